//! Whether there is room for a change, asked before it is made
//! (docs/on-disk/15-space.md, section 8; docs/on-disk/22-mos-dsl.md, section 4).
//!
//! Every directory above an open head keeps its counters in atomics, as of the last sync, and the bytes
//! that changes since then may take at most. A limit is reached when both together reach it: so it can be
//! exceeded by what one change takes, and what is not written yet can be refused although it would have
//! fitted; then the answer names the txg after which it is worth asking again.
//!
//! Estimates are too high rather than too low: too high means that a txg is written earlier when space
//! becomes scarce, too low that a txg might not fit on the devices.
//!
//! # What always holds
//! - Writing to a volume that has reserved all that it can ever take is never refused for good: at most it
//!   waits, because old and new blocks exist together until a txg is on disk.
//! - Asking reads a few atomics for each level of the tree, takes no lock and allocates nothing unless it
//!   is refused.
//! - What is reserved for a head or directory is not asked of the levels above.

use crate::charge::ref_charged;
use crate::error::DslError;
use crate::mos;
use crate::tree::PoolSpace;
use dmu::LiveObject;
use format::{Ashift, Psize, Txg, VdevId};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use zio::Zio;

/// What a change will take at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cost {
    /// Bytes, metadata included; before copies, and before what small blocks waste on the vdevs.
    pub bytes: u64,
    /// Blocks of data among them: each may end in the middle of a sector.
    pub blocks: u64,
    /// It frees more than it takes once it is written: quotas do not stop it, and it may use half of what
    /// the pool keeps back.
    pub frees: bool,
    /// However much is written, what the head holds never has more bytes than this: the size of a volume.
    pub within: Option<u64>,
}

/// Of what the pool keeps back, the part that may be taken by more than changes have said that they would
/// take.
const DIRTY_PART_OF_SLOP: u64 = 8;
/// A change of a few blocks of metadata.
const METADATA_BYTES: u64 = 64 << 10;
/// Number of these blocks.
const METADATA_BLOCKS: u64 = 4;

impl Cost {
    /// Writing this many bytes of data to blocks of this size.
    pub fn write(bytes: u64, block_size: u64) -> Cost {
        // The first and the last are written in part.
        let blocks = bytes / block_size.max(1) + 2;
        Cost { bytes: bytes.saturating_add(METADATA_BYTES), blocks, frees: false, within: None }
    }

    /// Cost of a change of metadata only.
    pub fn metadata() -> Cost {
        Cost { bytes: METADATA_BYTES, blocks: 0, frees: false, within: None }
    }

    /// Cost of a change that frees more than it takes.
    pub fn freeing() -> Cost {
        Cost { bytes: METADATA_BYTES, blocks: 0, frees: true, within: None }
    }
}

/// Bytes that changes of the txgs which are not on disk yet may take, by the lowest bit of the txg.
#[derive(Debug, Default)]
pub(crate) struct Pending([AtomicU64; 2]);

impl Pending {
    pub(crate) fn total(&self) -> u64 {
        self.0.iter().map(|slot| slot.load(Ordering::Relaxed)).fold(0, u64::saturating_add)
    }

    pub(crate) fn add(&self, txg: Txg, bytes: u64) {
        self.0[(txg.0 & 1) as usize].fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn clear(&self, txg: Txg) {
        self.0[(txg.0 & 1) as usize].store(0, Ordering::Relaxed);
    }
}

/// A number that others read while the sync changes it.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }
}

/// How large the pool is.
#[derive(Debug)]
pub(crate) struct PoolCounters {
    size: Counter,
    slop: Counter,
    /// Bytes that were freed, and can be used again after the next txgs; not in `size`.
    returning: Counter,
    /// Changes that free something and are not on disk yet.
    freeing: Pending,
    /// What a block of one sector takes, in percent of its size.
    waste: Counter,
    /// Bytes of a sector that a block may leave empty: all but the smallest block.
    unused: Counter,
}

impl Default for PoolCounters {
    /// The size of the pool is not known yet: nothing is refused.
    fn default() -> PoolCounters {
        let counters = PoolCounters {
            size: Counter::default(),
            slop: Counter::default(),
            returning: Counter::default(),
            freeing: Pending::default(),
            waste: Counter::default(),
            unused: Counter::default(),
        };
        counters.size.set(u64::MAX);
        counters.waste.set(100);
        counters
    }
}

impl PoolCounters {
    pub(crate) fn set(&self, space: PoolSpace, zio: &Zio) {
        self.size.set(space.size);
        self.slop.set(space.slop);
        let tree = zio.tree();
        let tops = || tree.tops().map(|(vdev, _)| vdev);
        self.waste.set(tops().map(|vdev| waste_on(zio, vdev)).max().unwrap_or(100));
        self.unused.set(tops().map(|vdev| sector_of(zio, vdev) - SMALLEST_BLOCK).max().unwrap_or(0));
    }

    pub(crate) fn set_returning(&self, bytes: u64) {
        self.returning.set(bytes);
    }

    pub(crate) fn note_freeing(&self, txg: Txg) {
        self.freeing.add(txg, 1);
    }

    pub(crate) fn synced(&self, txg: Txg) {
        self.freeing.clear(txg);
    }

    pub(crate) fn is_freeing(&self) -> bool {
        self.freeing.total() > 0 || self.returning.get() > 0
    }

    /// A limit that is reached is worth waiting for: `fits` once what is pending is on disk, or something is
    /// being freed.
    fn is_worth_waiting(&self, fits: bool) -> bool {
        fits || self.freeing.total() > 0
    }

    /// What a copy takes at most on vdevs: of bytes that are written in so many blocks of data, and in a few
    /// of metadata.
    pub(crate) fn wasted(&self, bytes: u64, blocks: u64) -> u64 {
        let unused = blocks.saturating_add(METADATA_BLOCKS).saturating_mul(self.unused.get());
        let bytes = bytes.saturating_add(unused);
        (bytes / 100).saturating_mul(self.waste.get()).saturating_add(bytes % 100)
    }

    /// What dirty buffers take at most on vdevs, as far as it is more than what the pool keeps back has room
    /// for: changes say too little of what they take where they write parts of large blocks.
    pub(crate) fn more_than_estimated(&self, dirty: u64) -> u64 {
        self.wasted(dirty, 0).saturating_sub(self.slop.get() / DIRTY_PART_OF_SLOP)
    }

    /// `None`: it was not said.
    pub(crate) fn get(&self) -> Option<PoolSpace> {
        let space = PoolSpace { size: self.size.get(), slop: self.slop.get() };
        (space.size != u64::MAX).then_some(space)
    }

    fn limit(&self, frees: bool) -> u64 {
        let slop = self.slop.get();
        self.size.get().saturating_sub(if frees { slop / 2 } else { slop })
    }
}

/// Bytes that the size of every block is a multiple of.
const SMALLEST_BLOCK: u64 = 512;

fn sector_of(zio: &Zio, vdev: VdevId) -> u64 {
    zio.tree().ashift(vdev).map_or(SMALLEST_BLOCK, Ashift::sector)
}

/// What a block of one sector is charged on a vdev, in percent of its size: with parity and padding it is
/// more.
fn waste_on(zio: &Zio, vdev: VdevId) -> u64 {
    let (tree, sector) = (zio.tree(), sector_of(zio, vdev));
    let asize = tree.psize_to_asize(vdev, Psize(sector), Txg(u64::MAX)).map_or(sector, |asize| asize.0);
    let charged = (asize >> 9).saturating_mul(tree.deflate_ratio(vdev));
    (charged.saturating_mul(100) / sector).max(100)
}

/// A directory above an open head.
#[derive(Debug)]
pub(crate) struct DirCounters {
    object: LiveObject,
    /// State of the object that the counters are of.
    version: Counter,
    used: Counter,
    reserved: Counter,
    quota: Counter,
    pub(crate) pending: Pending,
}

impl DirCounters {
    pub(crate) fn new(object: LiveObject) -> Result<DirCounters, DslError> {
        let counters = DirCounters {
            object,
            version: Counter::default(),
            used: Counter::default(),
            reserved: Counter::default(),
            quota: Counter::default(),
            pending: Pending::default(),
        };
        counters.version.set(u64::MAX);
        counters.refresh()?;
        Ok(counters)
    }

    /// Reads the counters again if the directory has changed.
    pub(crate) fn refresh(&self) -> Result<(), DslError> {
        let version = self.object.version();
        if self.version.get() == version {
            return Ok(());
        }
        let phys = mos::dir_phys(&self.object)?;
        self.used.set(phys.used);
        self.reserved.set(phys.reserved);
        self.quota.set(phys.quota);
        self.version.set(version);
        Ok(())
    }
}

/// The counters of a head.
#[derive(Debug, Default)]
pub(crate) struct HeadCounters {
    pub(crate) referenced: Counter,
    pub(crate) unique: Counter,
    pub(crate) refquota: Counter,
    pub(crate) refreservation: Counter,
    pub(crate) pending: Pending,
}

/// A limit that is reached.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Refused {
    /// A quota: bytes used, bytes allowed.
    Quota { used: u64, quota: u64, is_pending: bool },
    /// The pool: bytes used, bytes that there are.
    Pool { used: u64, size: u64, is_pending: bool },
}

impl HeadCounters {
    /// What all that it can ever hold takes has been set aside for it.
    pub(crate) fn is_set_aside(&self, cost: Cost) -> bool {
        let reserved = self.refreservation.get();
        cost.within.is_some_and(|within| within <= reserved) && self.unique.get() <= reserved
    }
}

/// Asks a head, its directory and all above it. `dirs` begins with the head's own directory. Bytes are those
/// on the vdevs here. `dirty` are those of the pool that changes have made dirty
/// ([`PoolCounters::more_than_estimated`]).
pub(crate) fn check(
    head: &HeadCounters,
    dirs: &[Arc<DirCounters>],
    pool: &PoolCounters,
    cost: Cost,
    dirty: u64,
) -> Result<(), Refused> {
    if head.is_set_aside(cost) {
        return check_overwriting(dirs, pool, cost, dirty);
    }
    let fits_alone = head.unique.get().saturating_add(cost.bytes) <= head.refreservation.get();
    check_all(head, dirs, pool, cost, dirty).map_err(|refused| match refused {
        // Once what is pending has been written, its reservation has room for it.
        Refused::Pool { used, size, .. } if fits_alone => Refused::Pool { used, size, is_pending: true },
        Refused::Quota { used, quota, .. } if fits_alone => Refused::Quota { used, quota, is_pending: true },
        refused => refused,
    })
}

/// Waits only for txgs, so that the blocks which are about to go do not fill the pool.
fn check_overwriting(
    dirs: &[Arc<DirCounters>],
    pool: &PoolCounters,
    cost: Cost,
    dirty: u64,
) -> Result<(), Refused> {
    let Some(root) = dirs.last() else { return Ok(()) };
    let (used, size, pending) = (root.used.get(), pool.size.get(), root.pending.total().max(dirty));
    if pending > 0 && pending.saturating_add(cost.bytes) > size.saturating_sub(used) / 2 {
        return Err(Refused::Pool { used, size, is_pending: true });
    }
    Ok(())
}

fn check_all(
    head: &HeadCounters,
    dirs: &[Arc<DirCounters>],
    pool: &PoolCounters,
    cost: Cost,
    dirty: u64,
) -> Result<(), Refused> {
    let pending = head.pending.total();
    let refquota = head.refquota.get();
    if refquota != 0 && !cost.frees {
        let used = head.referenced.get();
        if used.saturating_add(pending) >= refquota {
            return Err(Refused::Quota {
                used,
                quota: refquota,
                is_pending: pool.is_worth_waiting(used < refquota),
            });
        }
    }
    let unique = head.unique.get().saturating_add(pending);
    let reserved = head.refreservation.get();
    let mut asked = ref_charged(unique.saturating_add(cost.bytes), reserved)
        .saturating_sub(ref_charged(unique, reserved));
    for (level, dir) in dirs.iter().enumerate() {
        if asked == 0 {
            return Ok(());
        }
        let (used, quota) = (dir.used.get(), dir.quota.get());
        let is_root = level + 1 == dirs.len();
        let pending = dir.pending.total().max(if is_root { dirty } else { 0 });
        let total = used.saturating_add(pending);
        if quota != 0 && !cost.frees && total >= quota {
            return Err(Refused::Quota { used, quota, is_pending: pool.is_worth_waiting(used < quota) });
        }
        if is_root {
            let size = pool.limit(cost.frees);
            if total >= size {
                // What was freed comes back two txgs later.
                let soon = size.saturating_add(pool.returning.get());
                let is_pending = pool.is_worth_waiting(used < soon);
                return Err(Refused::Pool { used, size, is_pending });
            }
        }
        let reserved = dir.reserved.get();
        asked = total.saturating_add(asked).max(reserved).saturating_sub(total.max(reserved));
    }
    Ok(())
}

/// Bytes that a head may still take.
pub(crate) fn available(head: &HeadCounters, dirs: &[Arc<DirCounters>], pool: &PoolCounters) -> u64 {
    let mut available = u64::MAX;
    for (above, dir) in dirs.iter().rev().enumerate() {
        let (used, quota) = (dir.used.get(), dir.quota.get());
        let mut limit = if quota == 0 { u64::MAX } else { quota };
        if above == 0 {
            // What was freed and comes back later counts: a writer that needs it waits for it.
            limit = limit.min(pool.limit(false).saturating_add(pool.returning.get()));
        }
        let from_above = available.saturating_add(dir.reserved.get().saturating_sub(used));
        available = from_above.min(limit.saturating_sub(used));
    }
    let (unique, referenced) = (head.unique.get(), head.referenced.get());
    available = available.saturating_add(head.refreservation.get().saturating_sub(unique));
    match head.refquota.get() {
        0 => available,
        quota => available.min(quota.saturating_sub(referenced)),
    }
}
