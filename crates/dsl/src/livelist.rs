//! Livelists: the blocks that a clone has written and killed, so that destroying it need not traverse its
//! trees (docs/on-disk/22-mos-dsl.md, section 7; docs/on-disk/15-space.md, section 6.3).
//!
//! # What always holds
//! - A livelist has an entry for every block born in its clone after the origin, and a second one, marked as
//!   freed, for each of those that was killed. Both are under the same key, the freed one after the other.
//! - Its totals are those of the blocks without a freed mark.
//! - Both also hold at the end of each txg in which a part of it was drained: any implementation that imports
//!   the pool then can go on.
//! - The feature `livelist` counts livelists, those of destroyed clones included until they are drained.

use crate::block_space::Space;
use crate::bpobj::Bpobj;
use crate::budget::Budget;
use crate::deadlist::Deadlist;
use crate::deadlist::change::DeadlistWriter;
use crate::error::DslError;
use crate::freeing::Round;
use crate::mos_tx::MosTx;
use crate::zapify;
use format::bpobj::StoredBlock;
use format::names;
use format::{BlockPtr, ObjectId, Txg};
use std::collections::BTreeMap;
use std::sync::Arc;
use zio::Zio;

/// Feature, and counter of livelists.
const FEATURE: &str = "livelist";
/// Entries of a list at which the next list is begun.
const ENTRIES_MAX: u64 = 500_000;
/// A clone that shares this percentage of its blocks with its origin, or less, keeps no livelist: a traversal
/// of its trees costs no more.
const SHARED_MIN: u64 = 75;
/// Entries held in memory while a list is drained. Small in unit tests, so that they reach the limit.
const MARKS_MAX: u64 = if cfg!(test) { 8 } else { 250_000 };

/// Creates the livelist of a clone's directory, if the feature is enabled.
///
/// # Errors
/// If an object of the MOS cannot be read or changed: the txg must not end then.
pub(crate) fn create(m: MosTx<'_>, dir: ObjectId) -> Result<(), DslError> {
    if !m.features.is_enabled(FEATURE) {
        return Ok(());
    }
    m.features.incr(m, FEATURE)?;
    let id = Deadlist::create(m)?;
    zapify::set(m, dir, names::dir::LIVELIST, id.0)
}

/// The livelist of a directory; `None`: it has none.
///
/// # Errors
/// If an object of the MOS cannot be read, or is damaged.
pub(crate) fn of(m: MosTx<'_>, dir: ObjectId) -> Result<Option<ObjectId>, DslError> {
    Ok(zapify::get(m, dir, names::dir::LIVELIST)?.filter(|id| *id != 0).map(ObjectId))
}

/// Total charge of the blocks in a livelist.
///
/// # Errors
/// If an object of the MOS cannot be read, or is damaged.
pub(crate) fn space(m: MosTx<'_>, livelist: ObjectId) -> Result<Space, DslError> {
    Ok(Deadlist::open(&m.view(), livelist)?.space())
}

/// Removes the livelist of a directory. The blocks in it are not freed.
///
/// # Errors
/// If an object of the MOS cannot be read or changed: the txg must not end then.
pub(crate) fn remove(m: MosTx<'_>, dir: ObjectId) -> Result<(), DslError> {
    let Some(id) = of(m, dir)? else { return Ok(()) };
    zapify::remove(m, dir, names::dir::LIVELIST)?;
    Deadlist::free(m, id)?;
    m.features.decr(m, FEATURE)
}

/// Detaches the livelist from the directory of a clone that is being destroyed, for
/// [`crate::free_lists::add_deleted_clone`]. The feature counts it until it is drained.
pub(crate) fn take_for_destroy(m: MosTx<'_>, dir: ObjectId) -> Result<Option<ObjectId>, DslError> {
    let id = of(m, dir)?;
    if id.is_some() {
        zapify::remove(m, dir, names::dir::LIVELIST)?;
    }
    Ok(id)
}

/// Removes the livelist of a clone that shares too little with its origin. Called after the clone was
/// written.
pub(crate) fn check_share(m: MosTx<'_>, head: ObjectId) -> Result<(), DslError> {
    let phys = m.dataset(head)?;
    let Some(id) = of(m, phys.dir)? else { return Ok(()) };
    let own = u128::from(space(m, id)?.used);
    let all = u128::from(phys.referenced);
    // An empty clone still shares all blocks.
    if all > 0 && all.saturating_sub(own) * 100 <= all * u128::from(SHARED_MIN) {
        remove(m, phys.dir)?;
    }
    Ok(())
}

/// Collects in memory the blocks that a sync of a clone adds and kills.
pub(crate) struct LivelistWriter {
    id: ObjectId,
    origin: Txg,
    entries: Vec<(BlockPtr, bool, Space)>,
    zio: Arc<Zio>,
}

impl LivelistWriter {
    /// Opens the writer for the clone of this directory; `None`: it has no livelist.
    pub(crate) fn open(m: MosTx<'_>, dir: ObjectId) -> Result<Option<LivelistWriter>, DslError> {
        let Some(id) = of(m, dir)? else { return Ok(None) };
        let origin = match m.dir(dir)?.origin {
            Some(origin) => m.dataset(origin)?.creation_txg,
            None => Txg(0),
        };
        Ok(Some(LivelistWriter { id, origin, entries: Vec::new(), zio: Arc::clone(m.zio()) }))
    }

    /// Notes a block that was written.
    pub(crate) fn born(&mut self, bp: &BlockPtr) {
        self.push(bp, false);
    }

    /// Notes a block that the clone no longer references.
    pub(crate) fn killed(&mut self, bp: &BlockPtr) {
        self.push(bp, true);
    }

    fn push(&mut self, bp: &BlockPtr, freed: bool) {
        if bp.is_hole() || bp.is_embedded() || bp.accounting_birth() <= self.origin {
            return;
        }
        // Pools with livelists are new enough to deflate.
        self.entries.push((*bp, freed, crate::block_space::of_pointer(&self.zio, true, bp)));
    }

    /// Writes the collected entries to the object.
    pub(crate) fn flush(&mut self, m: MosTx<'_>) -> Result<(), DslError> {
        let entries = std::mem::take(&mut self.entries);
        if entries.is_empty() {
            return Ok(());
        }
        begin_list(m, self.id)?;
        let mut writer = DeadlistWriter::open(m, self.id)?;
        for (bp, freed, space) in entries {
            writer.push(&bp, freed, space);
        }
        writer.flush(m)
    }
}

/// Begins a list for the blocks of this txg, if there is none or the newest is full.
fn begin_list(m: MosTx<'_>, id: ObjectId) -> Result<(), DslError> {
    let key = Txg(m.txg().0 - 1);
    let is_full = match Deadlist::open(&m.view(), id)?.buckets().last() {
        None => true,
        Some((newest, _)) if *newest >= key => false,
        Some((_, list)) => Bpobj::open(&m.view(), *list)?.phys().num_blkptrs > ENTRIES_MAX,
    };
    if is_full {
        let list = Bpobj::create_for_livelist(m)?;
        m.zap(id)?.insert_int_key(key.0, list.0)?;
    }
    Ok(())
}

/// Identity of a block: its address and birth.
type Identity = [u64; 3];

fn identity(bp: &BlockPtr) -> Identity {
    let words = bp.words();
    [words[0], words[1], bp.logical_birth().0]
}

/// Entries by block: one entry of each, and how many there are.
type Tally = BTreeMap<Identity, (StoredBlock, u64)>;

/// Takes one entry of a block off the tally. Returns false if there was none.
fn take_one(tally: &mut Tally, block: Identity) -> bool {
    let Some((_, times)) = tally.get_mut(&block) else { return false };
    *times -= 1;
    if *times == 0 {
        tally.remove(&block);
    }
    true
}

/// Frees the remaining blocks of a destroyed clone, one list after the other, within the budget. The lists
/// are consistent at the end of every txg. Returns true when the livelist is drained and removed.
pub(crate) fn drain(
    m: MosTx<'_>,
    id: ObjectId,
    budget: &mut Budget,
    round: &mut Round<'_>,
) -> Result<bool, DslError> {
    for (key, list) in Deadlist::lists(m, id)? {
        if budget.is_spent() {
            return Ok(false);
        }
        let before = Bpobj::open(&m.view(), list)?.space();
        let is_done = Bpobj::is_shared(m, list)? || drain_list(m, list, budget, round)?;
        Deadlist::add_space(m, id, Bpobj::open(&m.view(), list)?.space(), before)?;
        if !is_done {
            // More lists are left for the next txg.
            budget.blocks = 0;
            return Ok(false);
        }
        Deadlist::detach(m, id, key)?;
        Bpobj::release(m, list)?;
    }
    Deadlist::free(m, id)?;
    m.features.decr(m, FEATURE)?;
    Ok(true)
}

/// Frees the unfreed blocks of a list from its end, where a freed mark comes before its block. Puts back
/// marks whose block was not reached. Returns true when the list is no longer needed.
fn drain_list(
    m: MosTx<'_>,
    list: ObjectId,
    budget: &mut Budget,
    round: &mut Round<'_>,
) -> Result<bool, DslError> {
    let mut marks = Tally::new();
    let mut held = 0;
    let mut blocks = *budget;
    let mut is_empty = false;
    while !is_empty && !blocks.is_spent() && held < MARKS_MAX {
        let mut entries = Budget { blocks: (MARKS_MAX - held).min(blocks.blocks) };
        is_empty = Bpobj::consume(m, list, &mut entries, &mut |entry, space| {
            let block = identity(&entry.bp);
            if entry.freed {
                held += 1;
                marks.entry(block).or_insert((*entry, 0)).1 += 1;
                return Ok(());
            }
            blocks.take(1);
            if take_one(&mut marks, block) {
                held -= 1;
                return Ok(());
            }
            round.free(&entry.bp, space)
        })?;
    }
    // Re-reading the marks costs work too, so it counts against the budget.
    budget.take((budget.blocks - blocks.blocks).saturating_add(held));
    if is_empty {
        return Ok(true);
    }
    put_marks(m, list, &marks)?;
    // With so many marks their blocks must be found first.
    if held >= MARKS_MAX { drain_crowded(m, list, blocks, round) } else { Ok(false) }
}

fn put_marks(m: MosTx<'_>, list: ObjectId, marks: &Tally) -> Result<(), DslError> {
    let mut entries = Vec::new();
    let mut less = Space::default();
    for (mark, times) in marks.values() {
        for _ in 0..*times {
            entries.push(StoredBlock { freed: true, ..*mark });
            less = less.plus(m.space_of(&mark.bp));
        }
    }
    Bpobj::append_net(m, list, &entries, Space::default(), less)
}

/// Like `drain_list`, for a list with more marks than fit in memory: examines the blocks in portions, frees
/// some unfreed ones, and marks them as freed. Returns true when none is left.
fn drain_crowded(
    m: MosTx<'_>,
    list: ObjectId,
    mut budget: Budget,
    round: &mut Round<'_>,
) -> Result<bool, DslError> {
    let reader = Bpobj::open(&m.view(), list)?;
    let portions = reader.phys().num_blkptrs.div_ceil(MARKS_MAX);
    let salt = m.env.random() | 1;
    for portion in 0..portions {
        let mut left = Tally::new();
        reader.for_each_own(&mut |entry| {
            let block = identity(&entry.bp);
            let mix = block.iter().fold(salt, |mix, word| (mix ^ word).wrapping_mul(salt).rotate_left(31));
            if mix % portions != portion {
                return Ok(());
            }
            if entry.freed {
                take_one(&mut left, block);
            } else {
                left.entry(block).or_insert((*entry, 0)).1 += 1;
            }
            Ok(())
        })?;
        let mut done = Tally::new();
        for (block, (entry, times)) in left {
            for _ in 0..times {
                if !budget.take(1) {
                    break;
                }
                round.free(&entry.bp, m.space_of(&entry.bp))?;
                done.entry(block).or_insert((entry, 0)).1 += 1;
            }
        }
        put_marks(m, list, &done)?;
        if budget.is_spent() {
            return Ok(false);
        }
    }
    Ok(true)
}
