//! Space accounting of a head during a sync: the charges of the blocks born and killed
//! (docs/on-disk/22-mos-dsl.md, section 4.1).
//!
//! # Order
//! [`SpaceLedger::open`] reads the head's place in its chain -> `born` and `killed` while its object set is
//! written -> [`SpaceLedger::finish`] writes deadlist, livelist, bookmarks, the bonus of the head and of its
//! previous snapshot, and charges the directories, once for all blocks together.
//!
//! # What always holds
//! - A block that a snapshot holds (born no later than the previous snapshot's txg) is never freed: it goes
//!   to the deadlist.
//! - Applying the sums once equals applying each block: charges with a refreservation are differences of
//!   `max(unique, refreservation)`, and such differences add up.

use crate::block_space::{Delta, Space, difference, of_pointer};
use crate::bookmark::change::FbnCounter;
use crate::brt::Brt;
use crate::charge::{self, DirDelta, ref_charged, shift};
use crate::deadlist::change::DeadlistWriter;
use crate::error::DslError;
use crate::freeing::Freer;
use crate::livelist::{self, LivelistWriter};
use crate::mos_tx::MosTx;
use crate::zapify;
use dmu::{Ledger, LiveSet};
use format::dsl::{DatasetPhys, DirPhys};
use format::units::OLD_MAX_BLOCK;
use format::{BlockPtr, ObjectId, Txg};
use std::collections::BTreeSet;
use std::sync::Arc;
use zio::Zio;

/// The accounting of one head in one sync.
struct SpaceLedger<'a> {
    m: MosTx<'a>,
    brt: &'a Brt,
    head: ObjectId,
    phys: DatasetPhys,
    dir: DirPhys,
    origin_txg: Txg,
    /// Killed blocks born after this txg become unique to the previous snapshot.
    previous_counts_after: Option<Txg>,
    deadlist: Option<DeadlistWriter>,
    livelist: Option<LivelistWriter>,
    bookmarks: Option<FbnCounter>,
    freer: Freer,
    born: Space,
    /// Space of the killed blocks.
    killed: Space,
    /// Part of `killed` that no snapshot holds.
    young: Space,
    /// Bytes that only snapshots of this directory hold from now on.
    to_snapshots: u64,
    /// Bytes that only the previous snapshot holds from now on.
    to_previous: u64,
    features: BTreeSet<&'static str>,
    error: Option<DslError>,
}

impl<'a> SpaceLedger<'a> {
    fn open(m: MosTx<'a>, brt: &'a Brt, head: ObjectId) -> Result<SpaceLedger<'a>, DslError> {
        let phys = m.dataset(head)?;
        assert!(phys.prev_snap_txg < m.txg(), "a head is written after a snapshot of the same txg");
        let dir = m.dir(phys.dir)?;
        let previous = phys.prev_snap.map(|id| m.dataset(id)).transpose()?;
        let is_next = |p: &DatasetPhys| p.next_snap == Some(head);
        Ok(SpaceLedger {
            m,
            brt,
            head,
            origin_txg: m.origin_txg(&dir)?,
            previous_counts_after: previous.filter(is_next).map(|p| p.prev_snap_txg),
            deadlist: phys.deadlist.map(|id| DeadlistWriter::open(m, id)).transpose()?,
            livelist: LivelistWriter::open(m, phys.dir)?,
            bookmarks: FbnCounter::open(m, head)?,
            freer: Freer::new(),
            born: Space::default(),
            killed: Space::default(),
            young: Space::default(),
            to_snapshots: 0,
            to_previous: 0,
            features: BTreeSet::new(),
            error: None,
            phys,
            dir,
        })
    }

    fn note_features(&mut self, bp: &BlockPtr) {
        if bp.lsize().0 > OLD_MAX_BLOCK {
            self.features.insert("large_blocks");
        }
        if bp.compression_id() == format::CompressionId::Zstd.id() {
            self.features.insert("zstd_compress");
        }
        // In an embedded pointer the bits of the checksum id have another meaning.
        let by_checksum = match bp.checksum_id() {
            _ if bp.is_embedded() => return,
            11 => "sha512",
            12 => "skein",
            13 => "edonr",
            14 => "blake3",
            _ => return,
        };
        self.features.insert(by_checksum);
    }

    fn kill(&mut self, bp: &BlockPtr) -> Result<(), DslError> {
        let space = self.m.space_of(bp);
        let birth = bp.accounting_birth();
        self.killed = self.killed.plus(space);
        if let Some(livelist) = &mut self.livelist {
            livelist.killed(bp);
        }
        if let Some(bookmarks) = &mut self.bookmarks {
            bookmarks.killed(bp, space);
        }
        if birth > self.phys.prev_snap_txg {
            self.young = self.young.plus(space);
            return self.freer.free(self.m, self.brt, bp);
        }
        if let Some(deadlist) = &mut self.deadlist {
            deadlist.insert(bp, space);
        }
        if birth > self.origin_txg {
            self.to_snapshots += space.used;
        }
        if self.previous_counts_after.is_some_and(|after| birth > after) {
            self.to_previous += space.used;
        }
        Ok(())
    }

    /// Writes all results. `bp` is the new root of the object set.
    fn finish(mut self, bp: &BlockPtr) -> Result<(), DslError> {
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        let m = self.m;
        if let Some(deadlist) = &mut self.deadlist {
            deadlist.flush(m)?;
        }
        if let Some(livelist) = &mut self.livelist {
            livelist.flush(m)?;
        }
        if let Some(bookmarks) = &mut self.bookmarks {
            bookmarks.flush(m)?;
        }
        // Charge `$FREE` for the waiting blocks.
        self.freer.flush(m)?;
        for feature in &self.features {
            zapify::activate_feature(m, self.head, feature)?;
        }
        if let (Some(previous), true) = (self.phys.prev_snap, self.to_previous > 0) {
            m.change_dataset(previous, |phys| phys.unique = phys.unique.saturating_add(self.to_previous))?;
        }
        self.finish_head(bp)?;
        self.finish_dir()?;
        if self.livelist.is_some() { livelist::check_share(m, self.head) } else { Ok(()) }
    }

    fn finish_head(&self, bp: &BlockPtr) -> Result<(), DslError> {
        let (head, net) = (self.head, Delta::from(self.born) - Delta::from(self.killed));
        let unique = difference(self.born.used, self.young.used);
        self.m.change_dataset(head, |phys| {
            phys.bp = *bp;
            shift("referenced", head, &mut phys.referenced, net.used);
            shift("compressed", head, &mut phys.compressed, net.compressed);
            shift("uncompressed", head, &mut phys.uncompressed, net.uncompressed);
            shift("unique", head, &mut phys.unique, unique);
        })
    }

    fn finish_dir(&self) -> Result<(), DslError> {
        let reserved = charge::refreservation(self.m, &self.dir)?;
        let unique = self.m.dataset(self.head)?.unique;
        let young = difference(self.born.used, self.young.used);
        let charged = difference(ref_charged(unique, reserved), ref_charged(self.phys.unique, reserved));
        let kept = Delta::from(self.born) - Delta::from(self.young);
        let moved = difference(self.to_snapshots, 0);
        let change = DirDelta {
            head: young - moved,
            snap: moved,
            ref_reservation: charged - young,
            compressed: kept.compressed,
            uncompressed: kept.uncompressed,
            ..DirDelta::default()
        };
        charge::apply(self.m, self.phys.dir, change)
    }
}

impl Ledger for SpaceLedger<'_> {
    fn born(&mut self, bp: &BlockPtr) {
        if bp.is_hole() {
            return;
        }
        self.born = self.born.plus(self.m.space_of(bp));
        self.note_features(bp);
        self.brt.born(bp);
        if let Some(livelist) = &mut self.livelist {
            livelist.born(bp);
        }
    }

    fn killed(&mut self, bp: &BlockPtr) {
        if bp.is_hole() || self.error.is_some() {
            return;
        }
        if let Err(error) = self.kill(bp) {
            self.error = Some(error);
        }
    }
}

/// Writes the changes of a head's object set in this txg, and accounts for them.
///
/// # Errors
/// If an object cannot be read or written: the txg must not end then.
pub(crate) fn sync_set(m: MosTx<'_>, brt: &Brt, head: ObjectId, set: &Arc<LiveSet>) -> Result<(), DslError> {
    let mut ledger = SpaceLedger::open(m, brt, head)?;
    let bp = set.sync(m.tx, &mut ledger)?;
    ledger.finish(&bp)
}

/// Ledger that sums up and collects the killed blocks: for object sets without snapshots.
pub struct Tally {
    /// Space of new blocks minus that of killed blocks.
    pub delta: Delta,
    /// The killed blocks, which have no reference left.
    pub killed: Vec<BlockPtr>,
    zio: Arc<Zio>,
}

impl Tally {
    /// An empty tally of blocks of this pool.
    pub fn new(zio: &Arc<Zio>) -> Tally {
        Tally { delta: Delta::default(), killed: Vec::new(), zio: Arc::clone(zio) }
    }

    fn space_of(&self, bp: &BlockPtr) -> Delta {
        of_pointer(&self.zio, true, bp).into()
    }
}

impl Ledger for Tally {
    fn born(&mut self, bp: &BlockPtr) {
        self.delta = self.delta + self.space_of(bp);
    }

    fn killed(&mut self, bp: &BlockPtr) {
        self.delta = self.delta - self.space_of(bp);
        if !bp.is_hole() && !bp.is_embedded() {
            self.killed.push(*bp);
        }
    }
}
