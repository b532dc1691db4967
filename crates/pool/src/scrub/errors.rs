//! Unreadable data: readers' errors go into the error log, and `scrub -e` checks the entries of the log
//! again.
//!
//! # What always holds
//! - A reader that meets such data only notes the place ([`crate::scan::notes`]). A thread reads it again, in
//!   the state of the last txg: if it is readable or gone there, the error belonged to an older state and is
//!   dropped.
//! - At most `NOTES_MAX` places wait; further ones are dropped, and noted when they are met again.
//!
//! Tests: `crates/crash/tests/it/errors.rs`.

use crate::error::PoolError;
use crate::error_log::{LoggedError, Now, block_in};
use crate::live::LivePool;
use crate::scan::notes::UnreadableBlock;
use crate::scan::state::{self, Failed};
use crate::scrub::ScanRefusal;
use crate::view::Pool;
use dmu::ObjSet;
use dmu::traverse::Bookmark;
use format::names;
use format::nvlist::{NvList, NvValue};
use format::scan::{ErrorScrubPhys, ScanFunc, ScanState};
use format::{BlockId, Level, ObjectId, Txg};
use std::sync::Arc;
use std::time::Duration;
use vdev::sync::lock;
use vdev::tree::{Priority, PriorityGuard, VdevError};
use zio::{ReadPolicy, ZioError};

/// Most places that are remembered as logged.
const LOGGED_MAX: usize = 100_000;
/// Number of blocks that are checked before txgs may continue.
const BATCH: usize = 256;
/// Interval at which a waiting thread checks whether it must still wait.
const LOOK: Duration = Duration::from_millis(10);

impl LivePool {
    /// Adds the blocks that readers could not read to the error log, if they are still unreadable.
    ///
    /// # Errors
    /// [`PoolError`] if the pool cannot be read or written.
    pub(crate) fn log_damage(&self) -> Result<(), PoolError> {
        let places: Vec<UnreadableBlock> = lock(&self.scans.notes.places).iter().copied().collect();
        if places.is_empty() {
            return Ok(());
        }
        let mut failed = Vec::new();
        for some in places.chunks(BATCH) {
            let _driver = self.jobs.hold();
            let _reading = self.jobs.gate().enter(|| self.txgs.synced_txg());
            let view = self.view()?;
            failed.extend(some.iter().filter_map(|place| self.look_again(&view, *place)));
        }
        {
            // A program that reads it repeatedly must not cause a txg each time.
            let mut logged = lock(&self.scans.notes.logged);
            if logged.len() > LOGGED_MAX {
                logged.clear();
            }
            failed.retain(|failed| logged.insert((place_of(failed), failed.birth)));
        }
        let by_head = self.features.is_active("head_errlog");
        if !failed.is_empty() && self.suspended().is_none() {
            self.run_on_pool(move |ctx, _| {
                state::log_errors(ctx.m(), names::directory::ERRLOG_LAST, by_head, &failed)
                    .map_err(state::failed)
            })?;
        }
        let mut notes = lock(&self.scans.notes.places);
        places.iter().for_each(|place| {
            notes.remove(place);
        });
        Ok(())
    }

    /// The block, if it cannot be read now.
    fn look_again(&self, view: &Arc<Pool>, (objset, object, blkid): UnreadableBlock) -> Option<Failed> {
        let (set, head) = open(view, objset)?;
        let at = Bookmark { objset: objset.0, object, level: 0, blkid: blkid.0 };
        let bp = match set.object(object).ok()?.block_ptr(Level(0), blkid) {
            Ok(bp) => bp,
            // A block above it cannot be read.
            Err(dmu::DmuError::Zio { source: ZioError::Unreadable { bp, .. }, .. }) => {
                return Some(Failed { head, at, birth: bp.logical_birth() });
            }
            Err(_) => return None,
        };
        let error = self.zio.check(&bp, &ReadPolicy::default()).data.err()?;
        let failed = Failed { head, at, birth: bp.logical_birth() };
        self.post_damage(&failed, &error);
        Some(failed)
    }

    /// Posts that a block is lost: `ereport.fs.zfs.data`.
    pub(crate) fn post_damage(&self, failed: &Failed, error: &ZioError) {
        let errno = match error {
            ZioError::Unreadable { source: VdevError::WrongChecksum, .. } | ZioError::Checksum { .. } => 52,
            _ => 5,
        };
        let mut extra = NvList::new();
        extra.push("zio_err", NvValue::Int32(errno));
        extra.push("zio_objset", failed.at.objset);
        extra.push("zio_object", failed.at.object.0);
        extra.push("zio_level", NvValue::Int64(failed.at.level));
        extra.push("zio_blkid", failed.at.blkid);
        self.events.ereport("data", &self.tree(), None, extra);
    }

    /// Waits until recent notes are on disk and so visible: commands in the history, and unreadable data. At
    /// most for `time`, and not for a suspended pool.
    pub fn settle(&self, time: Duration) {
        let has_thread = lock(&self.runtime).is_some();
        let mut waited = Duration::ZERO;
        loop {
            let is_noted = !lock(&self.scans.notes.places).is_empty();
            let recorded = Txg(self.recorded.load(std::sync::atomic::Ordering::Acquire));
            let is_recorded = recorded <= self.txgs.synced_txg();
            if (!is_noted && is_recorded) || waited >= time || self.suspended().is_some() {
                return;
            }
            if !has_thread {
                let _ = self.log_damage().and_then(|()| self.sync());
                return;
            }
            if !is_recorded {
                self.txgs.kick();
            }
            std::thread::sleep(LOOK);
            waited += LOOK;
        }
    }

    /// `zpool scrub -e`: checks every copy of all blocks in the error log again, and removes entries that are
    /// readable or gone. Runs completely on this thread.
    ///
    /// # Errors
    /// [`ScanRefusal`] if another scan is active, or the feature `head_errlog` is not enabled.
    pub fn scrub_errors(&self) -> Result<(), ScanRefusal> {
        if !self.features.is_enabled("head_errlog") {
            return Err(ScanRefusal::NeedsErrorsByHead);
        }
        self.log_damage()?;
        let _driver = self.jobs.hold();
        match lock(&self.scans.run).as_ref().map(|run| run.phys) {
            Some(phys) if phys.func == ScanFunc::Resilver => return Err(ScanRefusal::Resilvering),
            Some(phys) if phys.is_paused() => return Err(ScanRefusal::Paused),
            Some(_) => return Err(ScanRefusal::Scrubbing),
            None => {}
        }
        let log = self.view()?.error_log()?;
        if log.is_empty() {
            return Ok(());
        }
        let start_time = self.env.clock().wall().as_secs();
        self.events.sysevent("errorscrub_start", NvList::new());
        let mut done = Vec::new();
        for some in log.chunks(BATCH) {
            let _reading = self.jobs.gate().enter(|| self.txgs.synced_txg());
            let view = self.view()?;
            done.extend(some.iter().copied().filter(|entry| self.is_well(&view, entry)));
            if self.jobs.is_closing() || self.suspended().is_some() {
                return Err(PoolError::Tx(dmu::TxError::Closed).into());
            }
        }
        // Repaired blocks must be durable before their entries are removed.
        for flushed in self.tree().flush_leaves(&self.tree().leaf_guids()) {
            if flushed.is_err() {
                tracing::warn!(pool = self.name, "a device could not be flushed after an error scrub");
            }
        }
        let phys = ErrorScrubPhys {
            func: ScanFunc::ErrorScrub,
            state: ScanState::Finished,
            cursor: 0,
            start_time,
            end_time: self.env.clock().wall().as_secs(),
            to_examine: log.len() as u64,
            examined: log.len() as u64,
            errors: (log.len() - done.len()) as u64,
            paused_flags: 0,
        };
        self.run_on_pool(move |ctx, _| {
            state::forget_errors(ctx.m(), &done)?;
            state::put_error_scrub(ctx.m(), &phys)?;
            ctx.note("error scrub done", None, format!("errors={}", phys.errors));
            Ok(())
        })?;
        self.scans.notes.forget();
        self.events.sysevent("errorscrub_finish", NvList::new());
        Ok(())
    }

    /// Whether the block of an entry is readable again, or gone.
    fn is_well(&self, view: &Arc<Pool>, entry: &LoggedError) -> bool {
        match block_of(view, entry) {
            Now::Gone => true,
            Now::Unknown => false,
            Now::Block(bp) => {
                let _priority = PriorityGuard::begin(Priority::Scrub);
                self.zio.check(&bp, &ReadPolicy::SCRUB).data.is_ok()
            }
        }
    }
}

fn place_of(failed: &Failed) -> UnreadableBlock {
    (ObjectId(failed.at.objset), failed.at.object, BlockId(failed.at.blkid))
}

/// An object set by number, and the head of its dataset; `None`: it was destroyed, or cannot be opened.
fn open(view: &Arc<Pool>, objset: ObjectId) -> Option<(Arc<ObjSet>, ObjectId)> {
    if objset == ObjectId(0) {
        return Some((Arc::clone(view.mos()), ObjectId(0)));
    }
    let dataset = view.dsl().dataset_by_object(objset).ok()?;
    let head = dataset.dir().head().ok()?.map_or(objset, |head| head.id());
    Some((dataset.open_objset().ok()?, head))
}

/// The block of an entry of the log: in the head, or in one of its snapshots.
fn block_of(view: &Arc<Pool>, entry: &LoggedError) -> Now {
    let key = &entry.key;
    let (Ok(level), true) = (u8::try_from(key.level), entry.dataset != ObjectId(0)) else {
        return match (u8::try_from(key.level), entry.dataset) {
            (Ok(level), ObjectId(0)) => block_in(view.mos(), entry, level),
            _ => Now::Unknown,
        };
    };
    let Ok(head) = view.dsl().dataset_by_object(entry.dataset) else { return Now::Gone };
    let mut sets = vec![head.open_objset()];
    match head.snapshots() {
        Ok(snapshots) => sets.extend(snapshots.iter().rev().map(dsl::Dataset::open_objset)),
        Err(_) => return Now::Unknown,
    }
    for set in sets {
        let Ok(set) = set else { return Now::Unknown };
        match block_in(&set, entry, level) {
            Now::Gone => {}
            found => return found,
        }
    }
    Now::Gone
}
