//! Removal of devices (docs/on-disk/14-vdevs.md, section 6): log devices ([`log_device`]), and top-level vdevs
//! with data, whose contents are copied to the others (`start`, `copy`, `finish`). Spares and cache devices are
//! in `aux::change`.
//!
//! A removal is a background job. Each slice is a task in syncing context: it allocates new places for some
//! of the segments that are in use, copies them, and appends them to the mapping, in ascending order. So the
//! mapping on disk, the space maps and the copies are always of one txg, and a removal goes on after a crash
//! where the last txg left it.
//!
//! # What always holds
//! - While a vdev is being removed, nothing is allocated on it, and its blocks are read from it. No block on
//!   it changes: intent logs have left it before the first segment is copied.
//! - A segment is mapped if and only if it was copied; what is in use behind the end of the mapping is still
//!   to be copied. Freeing a block frees its own space and that of its copies ([`zio::Zio::free`]).
//! - What an import reads before it knows the mappings (the object directory, the configuration, the mappings)
//!   is written again when a removal begins, so that none of it is on a removed vdev.
//!
//! # Order
//! refusals -> no new blocks on the vdev -> intent logs leave it -> task: `removing`, an empty mapping, features
//! -> slices -> task: the vdev becomes `indirect`, its space maps and ZAPs of leaves are freed -> the labels of
//! its devices are cleared.
//!
//! # Order of locks
//! Those of `jobs`; `run` is the lock of this job.
//!
//! Tests: `tests/it/removal`.

mod cancel;
pub(crate) mod checks;
pub(crate) mod condense;
mod copy;
mod finish;
mod indirect;
mod log_device;
mod mapping;
pub(crate) mod obsolete;
mod start;

pub use checks::RemoveRefusal;
pub use condense::{MAX_OBSOLETE, MIN_MAPPING, OBSOLETE_PCT};

use crate::directory;
use crate::error::PoolError;
use crate::jobs::{Budget, Job, JobProgress, SLICE, Slice};
use crate::live::LivePool;
use dmu::zap::ZapValue;
use dsl::MosTx;
use format::config::{VdevKind, VdevNode};
use format::names;
use format::scan::{RemovalPhys, ScanState};
use format::{VdevGuid, VdevId};
use std::sync::Mutex;
use std::time::Duration;
use vdev::sync::lock;
use vdev::tunable::Tunable;
use zio::ZioError;

/// While it is on, removals begin but make no progress: for tests that need a running one.
pub static SUSPEND_PROGRESS: Tunable = Tunable::new("zfs_removal_suspend_progress", 0, 0, 1);
/// Longest segment that is copied as one, in bytes.
pub static MAX_SEGMENT: Tunable = Tunable::new("zfs_remove_max_segment", 16 << 20, 512, 16 << 20);
/// Longest gap between two segments that are copied as one, in bytes.
pub static MAX_SPAN: Tunable = Tunable::new("vdev_removal_max_span", 32 << 10, 0, 16 << 20);

/// The running removal of a vdev.
#[derive(Debug, Clone, Copy)]
struct Run {
    vdev: VdevId,
    phys: RemovalPhys,
}

/// The removals of a pool: at most one runs.
#[derive(Debug, Default)]
pub(crate) struct Removals {
    run: Mutex<Option<Run>>,
}

impl Removals {
    /// The running removal.
    pub(crate) fn running(&self) -> Option<RemovalPhys> {
        lock(&self.run).map(|run| run.phys)
    }
}

impl LivePool {
    /// Removes a device: a cache device or unused spare, a log vdev, or a vdev with data. The removal of a vdev
    /// with data begins, and goes on in the background.
    ///
    /// # Errors
    /// [`RemoveRefusal`]: the pool is unchanged then.
    pub fn remove_device(&self, guid: VdevGuid) -> Result<(), RemoveRefusal> {
        let config = self.config();
        let is_top = |node: &&VdevNode| node.guid == guid && guid != VdevGuid(0);
        let Some(top) = config.vdev_tree.children.iter().find(is_top).cloned() else {
            self.check_no_checkpoint()?;
            return self.remove_other(guid);
        };
        let _driver = self.jobs.hold();
        self.check_no_checkpoint()?;
        if top.kind == VdevKind::Indirect {
            return Err(RemoveRefusal::NoDevice);
        }
        if top.is_log { self.remove_log(&top) } else { self.start_removal(&top) }
    }

    /// Removes a spare or cache device.
    fn remove_other(&self, guid: VdevGuid) -> Result<(), RemoveRefusal> {
        if let Some(node) = self.config().vdev_tree.find(guid) {
            return Err(match node.is_spare {
                true => RemoveRefusal::SpareInUse,
                false => RemoveRefusal::NotTop,
            });
        }
        if self.remove_aux(guid)? { Ok(()) } else { Err(RemoveRefusal::NoDevice) }
    }

    /// Continues a removal that was running when the pool was last closed.
    pub(crate) fn resume_removal(&self, phys: RemovalPhys) {
        if let (ScanState::Scanning, Some(vdev)) = (phys.state, phys.vdev) {
            *lock(&self.removals.run) = Some(Run { vdev, phys });
        }
    }

    /// Runs the removal to its end, on this thread.
    ///
    /// # Errors
    /// [`PoolError`] if the pool cannot be read or written, or there is no space for the copies.
    pub fn remove_to_end(&self) -> Result<(), PoolError> {
        while self.jobs.step(self, &*self.removals, SLICE)? {}
        Ok(())
    }

    /// Copies at most `bytes`. Returns false if no removal is running.
    ///
    /// # Errors
    /// Those of [`LivePool::remove_to_end`].
    pub fn remove_step(&self, bytes: u64) -> Result<bool, PoolError> {
        self.jobs.step(self, &*self.removals, Budget { bytes, ..SLICE })
    }
}

/// Writes the state of a removal into the object directory.
fn put(m: MosTx<'_>, phys: &RemovalPhys) -> Result<(), PoolError> {
    let directory = m.zap(directory::OBJECT)?;
    directory.upsert(names::directory::REMOVING.as_bytes(), ZapValue::U64s(&phys.to_words()))?;
    Ok(())
}

/// The state of the last removal.
fn recorded(m: MosTx<'_>) -> Result<Option<RemovalPhys>, PoolError> {
    crate::scan::recorded::removal(&directory::Directory::open(&m.view())?)
}

impl Job<LivePool> for Removals {
    fn name(&self) -> &'static str {
        "removal"
    }

    fn progress(&self) -> Option<JobProgress> {
        let phys = self.running()?;
        let is_paused = SUSPEND_PROGRESS.is_on();
        Some(JobProgress { is_paused, done: phys.copied, total: phys.to_copy })
    }

    fn slice(&self, pool: &LivePool, budget: Budget) -> Result<Slice, PoolError> {
        let copied = match pool.copy_slice(budget.bytes) {
            // As OpenZFS: what cannot be copied now is not waited for, and the vdev is used as before.
            Err(error @ (PoolError::Zio(ZioError::Copy { .. }) | PoolError::Evacuate { .. })) => {
                tracing::warn!(pool = pool.name(), %error, "the removal of a vdev is canceled");
                pool.end_canceled()?;
                true
            }
            copied => copied?,
        };
        match copied {
            true => Ok(Slice::Last),
            // Every slice is a txg of its own: nothing is left to save.
            false => Ok(Slice::Partial { saved_at: Duration::MAX, must_save: false }),
        }
    }

    fn cancel(&self, pool: &LivePool) -> Result<(), PoolError> {
        pool.end_canceled()
    }

    fn finish(&self, pool: &LivePool) -> Result<(), PoolError> {
        pool.finish_removal()
    }
}
