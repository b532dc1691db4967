//! Space check of a change before it is made (docs/on-disk/15-space.md, section 8;
//! docs/on-disk/22-mos-dsl.md, section 4).
//!
//! Every directory above an open head has its counters, as of the last sync, in atomics, and the most bytes
//! that changes since then may take. A limit is reached when both together reach it. So it can be exceeded by
//! the cost of one change, and a change can be refused although the unwritten changes turn out smaller; the
//! error then names the txg after which a retry may succeed.
//!
//! Estimates err on the high side: a high estimate means that a txg is written earlier when space becomes
//! scarce; with a low one a txg might not fit on the devices.
//!
//! # What always holds
//! - A write to a volume that has reserved all that it can ever take is never refused for good: at most it
//!   waits, because old and new blocks exist together until a txg is on disk.
//! - A check reads a few atomics for each level of the tree, takes no lock, and allocates memory only for an
//!   error.
//! - Space that a head or directory has reserved is not checked again at the levels above.

use crate::charge::ref_charged;
use crate::error::DslError;
use crate::mos;
use crate::tree::PoolSpace;
use dmu::LiveObject;
use format::{Ashift, Psize, Txg, VdevId};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use zio::Zio;

/// Upper bound of the space that a change takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cost {
    /// Bytes, metadata included; before copies, and before the overhead of small blocks on the vdevs.
    pub bytes: u64,
    /// Number of data blocks among them: each may end in the middle of a sector.
    pub blocks: u64,
    /// The change frees more than it takes once it is written: quotas do not stop it, and it may use half of
    /// the slop space.
    pub frees: bool,
    /// The largest size in bytes that the head can ever have: the size of a volume. `None`: no such bound.
    pub within: Option<u64>,
}

/// Divisor of the slop space for the part that changes may take beyond their estimates.
const DIRTY_PART_OF_SLOP: u64 = 8;
/// Bytes of a change of metadata only.
const METADATA_BYTES: u64 = 64 << 10;
/// Blocks of a change of metadata only.
const METADATA_BLOCKS: u64 = 4;

impl Cost {
    /// Cost of writing `bytes` of data to blocks of `block_size` bytes.
    pub fn write(bytes: u64, block_size: u64) -> Cost {
        // The first and the last block are written in part.
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

/// Bytes that changes of unwritten txgs may take, by the lowest bit of the txg.
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

/// A number that the sync changes while other threads read it.
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

/// Size and space counters of the pool.
#[derive(Debug)]
pub(crate) struct PoolCounters {
    size: Counter,
    slop: Counter,
    /// Bytes that were freed and are reusable after the next txgs; not part of `size`.
    returning: Counter,
    /// Changes that free space and are not on disk yet.
    freeing: Pending,
    /// Allocated size of a one-sector block, in percent of its size.
    waste: Counter,
    /// Most bytes of a sector that a block can leave unused: a sector without the smallest block.
    unused: Counter,
}

impl Default for PoolCounters {
    /// Counters before the size of the pool is known: no change is refused.
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

    /// Whether waiting can help when a limit is reached: the change `fits` once the pending changes are on
    /// disk, or space is being freed.
    fn is_worth_waiting(&self, fits: bool) -> bool {
        fits || self.freeing.total() > 0
    }

    /// Most bytes that one copy takes on the vdevs: of `bytes` written in `blocks` data blocks and a few of
    /// metadata.
    pub(crate) fn wasted(&self, bytes: u64, blocks: u64) -> u64 {
        let unused = blocks.saturating_add(METADATA_BLOCKS).saturating_mul(self.unused.get());
        let bytes = bytes.saturating_add(unused);
        (bytes / 100).saturating_mul(self.waste.get()).saturating_add(bytes % 100)
    }

    /// Bytes that dirty buffers may take on the vdevs beyond a part of the slop space: changes that write
    /// parts of large blocks underestimate their cost.
    pub(crate) fn more_than_estimated(&self, dirty: u64) -> u64 {
        self.wasted(dirty, 0).saturating_sub(self.slop.get() / DIRTY_PART_OF_SLOP)
    }

    /// The size of the pool; `None`: not set yet.
    pub(crate) fn get(&self) -> Option<PoolSpace> {
        let space = PoolSpace { size: self.size.get(), slop: self.slop.get() };
        (space.size != u64::MAX).then_some(space)
    }

    fn limit(&self, frees: bool) -> u64 {
        let slop = self.slop.get();
        self.size.get().saturating_sub(if frees { slop / 2 } else { slop })
    }
}

/// The unit of block sizes, in bytes.
const SMALLEST_BLOCK: u64 = 512;

fn sector_of(zio: &Zio, vdev: VdevId) -> u64 {
    zio.tree().ashift(vdev).map_or(SMALLEST_BLOCK, Ashift::sector)
}

/// Charge of a one-sector block on a vdev, in percent of its size: more than 100 with parity and padding.
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
    /// Version of the directory object that the counters were read from.
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

/// A limit that a change would exceed.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Refused {
    /// A quota: bytes used, bytes allowed, whether pending changes count in.
    Quota { used: u64, quota: u64, is_pending: bool },
    /// The pool: bytes used, bytes in all, whether pending changes count in.
    Pool { used: u64, size: u64, is_pending: bool },
}

impl HeadCounters {
    /// Whether the head has reserved all the space that its contents can ever take.
    pub(crate) fn is_set_aside(&self, cost: Cost) -> bool {
        let reserved = self.refreservation.get();
        cost.within.is_some_and(|within| within <= reserved) && self.unique.get() <= reserved
    }
}

/// Checks a head, its directory and all directories above. `dirs` begins with the head's own directory. Bytes
/// are those on the vdevs. `dirty` is the dirty memory of the pool ([`PoolCounters::more_than_estimated`]).
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
        // The reservation has space for it once the pending changes are written.
        Refused::Pool { used, size, .. } if fits_alone => Refused::Pool { used, size, is_pending: true },
        Refused::Quota { used, quota, .. } if fits_alone => Refused::Quota { used, quota, is_pending: true },
        refused => refused,
    })
}

/// Refuses an overwrite only until a txg is on disk, so that old blocks which are about to be freed do not
/// fill the pool.
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
                // Freed space is reusable two txgs later.
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
            // Space that was freed and becomes reusable later counts: a writer that needs it waits for it.
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
