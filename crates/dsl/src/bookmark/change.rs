//! Bookmarks in syncing context: creation, destruction, and the count of blocks freed since
//! (docs/on-disk/22-mos-dsl.md, sections 4.1, 5 and 8).
//!
//! A bookmark with freed-before-next counts (FBN) records how much of its snapshot was freed before the next
//! snapshot of the chain was taken, whether or not its own snapshot still exists. The counts come from the
//! deadlist of the snapshot's successor; the sync (`FbnCounter`) updates them while that is the head.
//!
//! # What always holds
//! - The features `bookmarks`, `bookmark_v2`, `bookmark_written` and `redaction_bookmarks` count heads with
//!   bookmarks, bookmarks of the second form, with FBN, and with a redaction list.
//! - The deadlists of a head and its clones have the creation txg of each bookmark with FBN as a key.

use crate::block_space::Space;
use crate::bookmark::{Bookmark, RedactedRange, decode, redaction};
use crate::deadlist::Deadlist;
use crate::error::BookmarkError;
use crate::error::DslError;
use crate::mos;
use crate::mos_tx::MosTx;
use crate::zapify;
use dmu::{KeyState, ObjSet};
use format::dsl::{
    BOOKMARK_FLAG_HAS_FBN, BOOKMARK_FLAG_SNAPSHOT_EXISTS, BookmarkPhys, BookmarkV2, DatasetPhys,
};
use format::names;
use format::zap::NORM_UPPER;
use format::{BlockPtr, ObjType, ObjectId, Txg};

/// Features that bookmarks use.
const BOOKMARKS: &str = "bookmarks";
const BOOKMARK_V2: &str = "bookmark_v2";
const BOOKMARK_WRITTEN: &str = "bookmark_written";
const REDACTION: &str = "redaction_bookmarks";
const REDACTION_SPILL: &str = "redaction_list_spill";
/// The list of a new redaction bookmark.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NewRedaction {
    /// Guids of the redaction snapshots.
    pub snapshots: Vec<u64>,
    /// The blocks, in order: see [`super::unneeded`].
    pub ranges: Vec<RedactedRange>,
}

/// Most snapshots that are followed along a chain.
const CHAIN_LIMIT: usize = crate::dataset::CHAIN_LIMIT;
/// Most nested clones that are followed before a loop is assumed.
const CLONES_LIMIT: usize = 1 << 20;

fn map_of(m: MosTx<'_>, head: ObjectId) -> Result<Option<ObjectId>, DslError> {
    Ok(zapify::get(m, head, names::dataset::BOOKMARKS)?.filter(|id| *id != 0).map(ObjectId))
}

fn has_fbn(phys: &BookmarkPhys) -> bool {
    phys.v2.is_some_and(|v2| v2.flags & BOOKMARK_FLAG_HAS_FBN != 0)
}

impl Bookmark {
    /// Names and contents of a head's bookmarks.
    ///
    /// # Errors
    /// If an object of the MOS cannot be read, or is damaged.
    pub fn list(m: MosTx<'_>, head: ObjectId) -> Result<Vec<(Vec<u8>, BookmarkPhys)>, DslError> {
        let Some(map) = map_of(m, head)? else { return Ok(Vec::new()) };
        mos::zap(&m.view(), map)?
            .entries()
            .map(|entry| {
                let entry = entry?;
                Ok((entry.name().to_vec(), decode(map, &entry)?))
            })
            .collect()
    }

    /// The bookmark of a head with this name.
    ///
    /// # Errors
    /// If an object of the MOS cannot be read, or is damaged.
    pub fn get(m: MosTx<'_>, head: ObjectId, name: &str) -> Result<Option<BookmarkPhys>, DslError> {
        let Some(map) = map_of(m, head)? else { return Ok(None) };
        m.zap(map)?.lookup(name.as_bytes())?.map(|entry| decode(map, &entry)).transpose()
    }

    /// Creation txgs of the bookmarks of a head with FBN: each must be a key of its deadlists.
    pub(crate) fn fbn_txgs(m: MosTx<'_>, head: ObjectId) -> Result<Vec<Txg>, DslError> {
        let mut txgs: Vec<Txg> = Bookmark::list(m, head)?
            .iter()
            .filter(|(_, phys)| has_fbn(phys))
            .map(|(_, phys)| phys.creation_txg)
            .collect();
        txgs.sort_unstable();
        txgs.dedup();
        Ok(txgs)
    }

    /// Those of [`Bookmark::fbn_txgs`] that are newer than the snapshot of `previous`.
    pub(crate) fn fbn_keys(m: MosTx<'_>, head: ObjectId, previous: Txg) -> Result<Vec<Txg>, DslError> {
        Ok(Bookmark::fbn_txgs(m, head)?.into_iter().filter(|txg| *txg > previous).collect())
    }

    /// Creates a bookmark of a snapshot. The caller has checked the form of the name.
    ///
    /// # Errors
    /// [`BookmarkError`]; [`DslError::FeatureDisabled`] if the pool does not support bookmarks.
    pub fn create_from_snapshot(
        m: MosTx<'_>,
        head: ObjectId,
        snapshot: ObjectId,
        name: &str,
    ) -> Result<(), DslError> {
        let phys = check_source(m, head, snapshot, name)?;
        let ivset_guid = zapify::get(m, snapshot, names::dataset::IVSET_GUID)?.unwrap_or(0);
        let keeps_fbn = m.features.is_enabled(BOOKMARK_WRITTEN);
        let mut new = BookmarkPhys {
            guid: phys.guid,
            creation_txg: phys.creation_txg,
            creation_time: phys.creation_time,
            v2: None,
        };
        if keeps_fbn || (ivset_guid != 0 && m.features.is_enabled(BOOKMARK_V2)) {
            new.v2 = Some(second_form(m, &phys, ivset_guid, keeps_fbn)?);
        }
        put(m, head, name, &new)
    }

    /// Creates a redaction bookmark of a snapshot: one with the list of blocks that none of the redaction snapshots has.
    /// The caller has checked the form of the name, and that they descend from the snapshot.
    ///
    /// # Errors
    /// [`BookmarkError`]; [`DslError::FeatureDisabled`] if the pool does not support such bookmarks; or the snapshot
    /// cannot be read.
    pub fn create_redaction(
        m: MosTx<'_>,
        head: ObjectId,
        snapshot: ObjectId,
        name: &str,
        list: &NewRedaction,
    ) -> Result<(), DslError> {
        let phys = check_source(m, head, snapshot, name)?;
        let has_spill = redaction::has_spill(list.snapshots.len());
        let needed: &[&'static str] =
            if has_spill { &[BOOKMARK_V2, REDACTION, REDACTION_SPILL] } else { &[BOOKMARK_V2, REDACTION] };
        if let Some(name) = needed.iter().find(|name| !m.features.is_enabled(name)) {
            return Err(DslError::FeatureDisabled { name });
        }
        let set = ObjSet::open(m.mos.store(), &phys.bp, snapshot.0, KeyState::Locked)?;
        let block_size = |object| Ok(set.object(object)?.dnode().data_block_size());
        let object = redaction::create(m, &list.snapshots, &list.ranges, block_size)?;
        if has_spill {
            m.features.incr(m, REDACTION_SPILL)?;
        }
        let ivset_guid = zapify::get(m, snapshot, names::dataset::IVSET_GUID)?.unwrap_or(0);
        let mut v2 = second_form(m, &phys, ivset_guid, m.features.is_enabled(BOOKMARK_WRITTEN))?;
        v2.redaction = Some(object);
        let new = BookmarkPhys {
            guid: phys.guid,
            creation_txg: phys.creation_txg,
            creation_time: phys.creation_time,
            v2: Some(v2),
        };
        put(m, head, name, &new)
    }

    /// Copies a bookmark of the same head or of one before it in the chain. A redaction list is not copied.
    ///
    /// # Errors
    /// [`BookmarkError`]; [`DslError::FeatureDisabled`] if the pool does not support bookmarks.
    pub fn create_from_bookmark(
        m: MosTx<'_>,
        head: ObjectId,
        (source_head, source): (ObjectId, &str),
        name: &str,
    ) -> Result<(), DslError> {
        let missing = || BookmarkError::NoSuch { name: source.to_owned() };
        let mut phys = Bookmark::get(m, source_head, source)?.ok_or_else(missing)?;
        check_new(m, head, name)?;
        if source_head != head && !passes(m, head, source_head, phys.creation_txg)? {
            return Err(BookmarkError::NotAncestor.into());
        }
        if let Some(v2) = &mut phys.v2 {
            v2.redaction = None;
            if source_head != head {
                // In another chain the next snapshot is another one, and what was freed before it is unknown.
                v2.flags &= !BOOKMARK_FLAG_HAS_FBN;
                v2.freed_before_next = [0; 3];
            }
            if v2.ivset_guid == 0 && v2.flags & BOOKMARK_FLAG_HAS_FBN == 0 {
                phys.v2 = None;
            }
        }
        put(m, head, name, &phys)
    }

    /// Destroys a bookmark.
    ///
    /// # Errors
    /// [`BookmarkError::NoSuch`]; or an object of the MOS cannot be read or changed.
    pub fn destroy(m: MosTx<'_>, head: ObjectId, name: &str) -> Result<(), DslError> {
        let missing = || BookmarkError::NoSuch { name: name.to_owned() };
        let map = map_of(m, head)?.ok_or_else(missing)?;
        let phys = Bookmark::get(m, head, name)?.ok_or_else(missing)?;
        m.zap(map)?.remove(name.as_bytes())?;
        drop_contents(m, &phys)?;
        // If its snapshot is gone, the key in the deadlists was kept for this bookmark alone.
        let is_last = has_fbn(&phys) && !Bookmark::fbn_txgs(m, head)?.contains(&phys.creation_txg);
        let has_snapshot = phys.v2.is_some_and(|v2| v2.flags & BOOKMARK_FLAG_SNAPSHOT_EXISTS != 0);
        if is_last && !has_snapshot {
            Bookmark::remove_deadlist_key(m, head, phys.creation_txg)?;
        }
        drop_map_if_empty(m, head, map)
    }

    /// Destroys all bookmarks of a head that is being destroyed itself.
    pub(crate) fn destroy_all(m: MosTx<'_>, head: ObjectId) -> Result<(), DslError> {
        let Some(map) = map_of(m, head)? else { return Ok(()) };
        for (_, phys) in Bookmark::list(m, head)? {
            drop_contents(m, &phys)?;
        }
        zapify::remove(m, head, names::dataset::BOOKMARKS)?;
        m.free(map)?;
        m.features.decr(m, BOOKMARKS)
    }

    /// Removes a key that no snapshot and no bookmark needs any more from the deadlists of a head and of all
    /// clones that descend from a later point.
    pub(crate) fn remove_deadlist_key(m: MosTx<'_>, head: ObjectId, key: Txg) -> Result<(), DslError> {
        let mut stack = vec![head];
        for _ in 0..CLONES_LIMIT {
            let Some(id) = stack.pop() else { return Ok(()) };
            let phys = m.dataset(id)?;
            if let Some(dead) = phys.deadlist {
                Deadlist::remove_key(m, dead, key)?;
            }
            let Some(clones) = m.dir(phys.dir)?.clones else { continue };
            for clone in mos::int_set(&m.view(), clones)? {
                let dir = m.dir(m.dataset(clone)?.dir)?;
                let origin = dir.origin.map(|origin| m.dataset(origin)).transpose()?;
                if origin.is_some_and(|origin| origin.creation_txg > key) {
                    stack.push(clone);
                }
            }
        }
        Err(DslError::Endless { what: "clones", object: head, limit: CLONES_LIMIT })
    }

    /// Updates the bookmarks when a snapshot of `head` is about to be destroyed, before the deadlist of its
    /// successor changes. Returns true if a bookmark needs the snapshot's key in the deadlists, which must be
    /// kept then.
    pub(crate) fn on_snapshot_destroy(
        m: MosTx<'_>,
        head: ObjectId,
        snapshot: ObjectId,
    ) -> Result<bool, DslError> {
        let phys = m.dataset(snapshot)?;
        let Some(map) = map_of(m, head)? else { return Ok(false) };
        let dead = match phys.next_snap {
            Some(next) => m.dataset(next)?.deadlist,
            None => None,
        };
        let mut keeps_key = false;
        for (name, mut mark) in Bookmark::list(m, head)? {
            let txg = mark.creation_txg;
            let fbn = has_fbn(&mark);
            let Some(v2) = &mut mark.v2 else { continue };
            if txg == phys.creation_txg && mark.guid == phys.guid {
                keeps_key |= fbn;
                v2.flags &= !BOOKMARK_FLAG_SNAPSHOT_EXISTS;
            } else if fbn
                && (phys.prev_snap_txg..phys.creation_txg).contains(&txg)
                && let Some(dead) = dead
            {
                // Its next snapshot in line changes.
                let gone = Deadlist::open(&m.view(), dead)?.space_between(Txg(0), txg)?;
                add(v2, gone);
            } else {
                continue;
            }
            m.zap(map)?.update(&name, &mark.to_words()[..])?;
        }
        Ok(keeps_key)
    }

    /// Moves the bookmarks of `from` up to the txg of the new origin to `to`, which takes over that part of
    /// the history when it is promoted.
    pub(crate) fn move_upto(m: MosTx<'_>, from: ObjectId, to: ObjectId, txg: Txg) -> Result<(), DslError> {
        let Some(map) = map_of(m, from)? else { return Ok(()) };
        for (name, phys) in Bookmark::list(m, from)? {
            if phys.creation_txg > txg {
                continue;
            }
            m.zap(map)?.remove(&name)?;
            count(m, &phys, -1)?;
            let name = String::from_utf8_lossy(&name).into_owned();
            put(m, to, &name, &phys)?;
        }
        drop_map_if_empty(m, from, map)
    }

    /// Whether a moved bookmark would meet an existing one of the same name.
    pub(crate) fn move_conflicts(
        m: MosTx<'_>,
        from: ObjectId,
        to: ObjectId,
        txg: Txg,
    ) -> Result<Vec<String>, DslError> {
        let mut names = Vec::new();
        for (name, phys) in Bookmark::list(m, from)? {
            let name = String::from_utf8_lossy(&name).into_owned();
            if phys.creation_txg <= txg && Bookmark::get(m, to, &name)?.is_some() {
                names.push(name);
            }
        }
        Ok(names)
    }
}

fn second_form(
    m: MosTx<'_>,
    snapshot: &DatasetPhys,
    ivset_guid: u64,
    keeps_fbn: bool,
) -> Result<BookmarkV2, DslError> {
    let mut v2 = BookmarkV2 {
        redaction: None,
        flags: 0,
        referenced: 0,
        compressed: 0,
        uncompressed: 0,
        freed_before_next: [0; 3],
        ivset_guid,
    };
    if keeps_fbn {
        v2.flags = BOOKMARK_FLAG_HAS_FBN | BOOKMARK_FLAG_SNAPSHOT_EXISTS;
        v2.referenced = snapshot.referenced;
        v2.compressed = snapshot.compressed;
        v2.uncompressed = snapshot.uncompressed;
        if let Some(next) = snapshot.next_snap
            && let Some(dead) = m.dataset(next)?.deadlist
        {
            let gone = Deadlist::open(&m.view(), dead)?.space();
            v2.freed_before_next = [gone.used, gone.compressed, gone.uncompressed];
        }
    }
    Ok(v2)
}

fn check_new(m: MosTx<'_>, head: ObjectId, name: &str) -> Result<(), DslError> {
    if !m.features.is_enabled(BOOKMARKS) {
        return Err(DslError::FeatureDisabled { name: BOOKMARKS });
    }
    if Bookmark::get(m, head, name)?.is_some() { Err(BookmarkError::Exists.into()) } else { Ok(()) }
}

/// Checks that a head can have a new bookmark of a snapshot.
fn check_source(
    m: MosTx<'_>,
    head: ObjectId,
    snapshot: ObjectId,
    name: &str,
) -> Result<DatasetPhys, DslError> {
    let phys = m.dataset(snapshot)?;
    if !phys.is_snapshot() {
        return Err(BookmarkError::NotSnapshot.into());
    }
    check_new(m, head, name)?;
    if !is_ancestor(m, snapshot, head)? {
        return Err(BookmarkError::NotAncestor.into());
    }
    Ok(phys)
}

/// Whether `snapshot` is in the chain of `head`.
fn is_ancestor(m: MosTx<'_>, snapshot: ObjectId, head: ObjectId) -> Result<bool, DslError> {
    let txg = m.dataset(snapshot)?.creation_txg;
    let mut at = m.dataset(head)?;
    for _ in 0..CHAIN_LIMIT {
        match at.prev_snap {
            Some(id) if id == snapshot => return Ok(true),
            Some(id) if at.prev_snap_txg > txg => at = m.dataset(id)?,
            _ => return Ok(false),
        }
    }
    Err(DslError::Endless { what: "snapshots", object: head, limit: CHAIN_LIMIT })
}

/// Whether the history of `head` goes through the directory of `other` at or after `txg`: then a bookmark of
/// `other` at that txg is also a point in the history of `head`.
fn passes(m: MosTx<'_>, head: ObjectId, other: ObjectId, txg: Txg) -> Result<bool, DslError> {
    let dir = m.dataset(other)?.dir;
    let mut at = m.dataset(head)?;
    for _ in 0..CHAIN_LIMIT {
        if at.dir == dir {
            return Ok(true);
        }
        match at.prev_snap {
            Some(id) if at.prev_snap_txg >= txg => at = m.dataset(id)?,
            _ => return Ok(false),
        }
    }
    Err(DslError::Endless { what: "snapshots", object: head, limit: CHAIN_LIMIT })
}

/// Stores a bookmark and increments the counts of the features that it uses.
fn put(m: MosTx<'_>, head: ObjectId, name: &str, phys: &BookmarkPhys) -> Result<(), DslError> {
    let map = match map_of(m, head)? {
        Some(map) => map,
        None => {
            m.features.incr(m, BOOKMARKS)?;
            let map = m.create_zap(ObjType::ZAP_METADATA, ObjType::NONE, Vec::new(), NORM_UPPER)?;
            zapify::set(m, head, names::dataset::BOOKMARKS, map.0)?;
            map
        }
    };
    m.zap(map)?.insert(name.as_bytes(), &phys.to_words()[..])?;
    count(m, phys, 1)
}

fn count(m: MosTx<'_>, phys: &BookmarkPhys, delta: i64) -> Result<(), DslError> {
    let Some(v2) = &phys.v2 else { return Ok(()) };
    m.features.add(m, BOOKMARK_V2, delta)?;
    if has_fbn(phys) {
        m.features.add(m, BOOKMARK_WRITTEN, delta)?;
    }
    if v2.redaction.is_some() {
        m.features.add(m, REDACTION, delta)?;
    }
    Ok(())
}

/// Frees the objects of a bookmark, and decrements the counts of its features.
fn drop_contents(m: MosTx<'_>, phys: &BookmarkPhys) -> Result<(), DslError> {
    if let Some(list) = phys.v2.and_then(|v2| v2.redaction) {
        let has_spill = m.object(list)?.spill()?.is_some();
        if has_spill && m.features.is_active(REDACTION_SPILL) {
            m.features.decr(m, REDACTION_SPILL)?;
        }
        m.free(list)?;
    }
    count(m, phys, -1)
}

fn drop_map_if_empty(m: MosTx<'_>, head: ObjectId, map: ObjectId) -> Result<(), DslError> {
    if m.zap(map)?.count()? > 0 {
        return Ok(());
    }
    zapify::remove(m, head, names::dataset::BOOKMARKS)?;
    m.free(map)?;
    m.features.decr(m, BOOKMARKS)
}

fn add(v2: &mut BookmarkV2, gone: Space) {
    let sums = [gone.used, gone.compressed, gone.uncompressed];
    for (counter, more) in v2.freed_before_next.iter_mut().zip(sums) {
        *counter = counter.saturating_add(more);
    }
}

/// A bookmark whose FBN counts the blocks that a sync kills.
#[derive(Debug)]
struct Counted {
    name: Vec<u8>,
    txg: Txg,
    gone: Space,
}

/// Collects in memory the FBN changes that a sync of a head causes.
#[derive(Debug)]
pub(crate) struct FbnCounter {
    map: ObjectId,
    marks: Vec<Counted>,
}

impl FbnCounter {
    /// Opens the counter of a head; `None`: none of its bookmarks has counts to update.
    pub(crate) fn open(m: MosTx<'_>, head: ObjectId) -> Result<Option<FbnCounter>, DslError> {
        let Some(map) = map_of(m, head)? else { return Ok(None) };
        let newest = m.dataset(head)?.prev_snap_txg;
        let counts = |phys: &BookmarkPhys| has_fbn(phys) && phys.creation_txg >= newest;
        let marks: Vec<Counted> = Bookmark::list(m, head)?
            .into_iter()
            .filter(|(_, phys)| counts(phys))
            .map(|(name, phys)| Counted { name, txg: phys.creation_txg, gone: Space::default() })
            .collect();
        Ok((!marks.is_empty()).then_some(FbnCounter { map, marks }))
    }

    /// Counts a block that the head no longer references.
    pub(crate) fn killed(&mut self, bp: &BlockPtr, space: Space) {
        let birth = bp.accounting_birth();
        for mark in self.marks.iter_mut().filter(|mark| birth <= mark.txg) {
            mark.gone = mark.gone.plus(space);
        }
    }

    /// Writes the counts to the bookmarks.
    pub(crate) fn flush(&mut self, m: MosTx<'_>) -> Result<(), DslError> {
        let zap = m.zap(self.map)?;
        for mark in self.marks.iter_mut().filter(|mark| mark.gone != Space::default()) {
            let Some(entry) = zap.lookup(&mark.name)? else { continue };
            let mut phys = decode(self.map, &entry)?;
            if let Some(v2) = &mut phys.v2 {
                add(v2, std::mem::take(&mut mark.gone));
            }
            zap.update(&mark.name, &phys.to_words()[..])?;
        }
        Ok(())
    }
}
