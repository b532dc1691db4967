//! Operations of scans: start, pause, resume, stop; and scans as a background job ([`Job`]).

pub(crate) mod deferred;
mod errors;
mod slice;

use crate::error::PoolError;
use crate::jobs::{Budget, Job, JobProgress, SLICE, Slice};
use crate::live::LivePool;
use crate::scan::state::{self, Saved};
use crate::scan::{Position, Run, Scans};
use crate::status::ScanProgress;
use format::nvlist::NvList;
use format::scan::{SCAN_FLAG_PAUSED, ScanFunc, ScanPhys, ScanState};
use format::{ObjectId, Txg, VdevGuid};
use std::collections::HashMap;
use vdev::sync::lock;
use vdev::tunable::Tunable;

/// While it is on, scans start but make no progress: for tests that need an active scan.
pub static SCAN_SUSPEND_PROGRESS: Tunable = Tunable::new("zfs_scan_suspend_progress", 0, 0, 1);
/// A resilver that has examined less than this percentage of the pool begins again when a device is attached;
/// otherwise the resilver of that device follows it.
pub static RESILVER_DEFER_PERCENT: Tunable = Tunable::new("zfs_resilver_defer_percent", 10, 0, 100);
/// Number of txgs that blocks may be written for at the same time.
const CONCURRENT_TXGS: u64 = 4;
/// Most errors in memory before they are written.
const ERRORS_MAX: usize = 10_000;

/// Why a scan cannot be started, paused or stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScanRefusal {
    /// A scrub is active.
    #[error("currently scrubbing; use 'zpool scrub -s' to cancel scrub")]
    Scrubbing,
    /// The scrub is paused already.
    #[error("scrub is paused; use 'zpool scrub' to resume scrub")]
    Paused,
    /// A resilver is active.
    #[error("currently resilvering")]
    Resilvering,
    /// No scrub is active that could be paused or stopped.
    #[error("there is no active scrub")]
    NotScrubbing,
    /// The error log does not have the required form (feature `head_errlog`).
    #[error("unsupported version or feature")]
    NeedsErrorsByHead,
    /// The pool cannot be written.
    #[error(transparent)]
    Pool(Box<PoolError>),
}

impl From<PoolError> for ScanRefusal {
    fn from(error: PoolError) -> ScanRefusal {
        ScanRefusal::Pool(Box::new(error))
    }
}

/// How a scan ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    /// It has visited all blocks.
    Finished,
    /// Somebody stopped it.
    Canceled,
    /// A scrub ends because a resilver is due.
    GivesWay,
    /// A resilver begins again, with more leaves.
    Restarts,
}

impl Ending {
    /// The name of the line in the history.
    fn words(self) -> &'static str {
        match self {
            Ending::Finished => "scan done",
            Ending::Canceled => "scan aborted",
            Ending::GivesWay => "scan aborted, restarting",
            Ending::Restarts => "scan cancelled",
        }
    }
}

fn event_word(func: ScanFunc) -> &'static str {
    if func == ScanFunc::Resilver { "resilver" } else { "scrub" }
}

impl LivePool {
    /// Progress of the active or paused scan. `None`: there is none; [`crate::view::Pool::scan`] has the last
    /// one.
    pub fn scan_progress(&self) -> Option<ScanProgress> {
        self.scans.progress()
    }

    /// Starts a scrub, or resumes a paused one. With `newer`, only blocks written since the last scrub are
    /// checked.
    ///
    /// # Errors
    /// [`ScanRefusal`] if another scan is active.
    pub fn start_scrub(&self, newer: bool) -> Result<(), ScanRefusal> {
        if self.is_attended() && self.wants_resilver() {
            self.start_resilver()?;
        }
        let _driver = self.jobs.hold();
        let known = lock(&self.scans.run).as_ref().map(|run| run.phys);
        match known {
            Some(phys) if phys.func == ScanFunc::Resilver => return Err(ScanRefusal::Resilvering),
            Some(phys) if phys.is_paused() => return Ok(self.scans.resume(self)?),
            Some(_) => return Err(ScanRefusal::Scrubbing),
            None => {}
        }
        let min = if newer { self.view()?.last_scrubbed_txg()? } else { Txg(0) };
        Ok(self.begin(ScanFunc::Scrub, min)?)
    }

    /// Pauses the scrub until it is resumed, also over exports and power cuts.
    ///
    /// # Errors
    /// [`ScanRefusal`] if there is none, or it is paused already.
    pub fn pause_scrub(&self) -> Result<(), ScanRefusal> {
        let _driver = self.jobs.hold();
        match self.scrub_under_way() {
            None => Err(ScanRefusal::NotScrubbing),
            Some(phys) if phys.is_paused() => Err(ScanRefusal::Paused),
            Some(_) => Ok(self.scans.pause(self)?),
        }
    }

    /// Stops the scrub for good.
    ///
    /// # Errors
    /// [`ScanRefusal`] if there is none.
    pub fn stop_scrub(&self) -> Result<(), ScanRefusal> {
        let _driver = self.jobs.hold();
        match self.scrub_under_way() {
            None => Err(ScanRefusal::NotScrubbing),
            Some(_) => Ok(self.scans.cancel(self)?),
        }
    }

    /// The active or paused scrub; `None` also during a resilver.
    fn scrub_under_way(&self) -> Option<ScanPhys> {
        let phys = lock(&self.scans.run).as_ref().map(|run| run.phys);
        phys.filter(|phys| phys.func == ScanFunc::Scrub)
    }

    /// Starts a resilver, or restarts the active one; a scrub ends.
    ///
    /// # Errors
    /// [`PoolError`] if the pool cannot be written.
    pub fn start_resilver(&self) -> Result<(), PoolError> {
        let _driver = self.jobs.hold();
        self.begin_resilver()
    }

    /// Starts a resilver, or restarts the active one. The caller holds the jobs.
    fn begin_resilver(&self) -> Result<(), PoolError> {
        let missed = self.lacking();
        self.reach_missed(&missed)?;
        // What a removal has copied is younger than the blocks in it.
        let has_moved = self.tree().tops().any(|(vdev, _)| self.tree().indirect(vdev).is_some());
        let oldest = missed
            .iter()
            .filter_map(|leaf| self.tree().dtl(*leaf).iter().next().map(|range| range.start))
            .min()
            .filter(|_| !has_moved);
        let active = lock(&self.scans.run).as_ref().map(|run| run.phys.func);
        if let Some(func) = active {
            let is_scrub = func == ScanFunc::Scrub;
            self.end_scan(if is_scrub { Ending::GivesWay } else { Ending::Restarts })?;
        }
        lock(&self.scans.hopeless).clear();
        self.begin(ScanFunc::Resilver, Txg(oldest.unwrap_or(0).saturating_sub(1)))
    }

    /// Waits until the txg after the last that leaves lack is open: the DTL of a new leaf covers the txgs that were
    /// open when it was attached, and the scan visits the blocks of all of them. One txg more than that, because
    /// OpenZFS removes from DTLs what is older than the last txg of a scan.
    fn reach_missed(&self, leaves: &[VdevGuid]) -> Result<(), PoolError> {
        let last_of = |leaf: &VdevGuid| self.tree().dtl(*leaf).iter().last().map(|range| range.end);
        let last = leaves.iter().filter_map(last_of).max().unwrap_or(0);
        let is_near = |open: Txg| open.0 < last && last - open.0 < CONCURRENT_TXGS;
        while is_near(self.txgs.open_txg()) {
            self.sync()?;
        }
        Ok(())
    }

    /// Resumes a scan that was active when the pool was last closed.
    pub(crate) fn resume_scan(&self, phys: ScanPhys, saved: Option<Saved>) {
        let now = self.env.clock().wall().as_secs();
        let mut served = self.leaves_in_service();
        let mut phys = phys;
        match &saved {
            // A leaf that was not in service before lacks the blocks checked so far.
            Some(saved) => served.retain(|leaf, _| saved.served.contains(leaf)),
            None => (phys.examined, phys.skipped) = (0, 0),
        }
        let is_incomplete = saved.as_ref().is_some_and(|saved| saved.is_incomplete);
        let (position, issued) =
            saved.map_or((Position::default(), 0), |saved| (saved.position, saved.issued));
        self.tree().begin_repairs();
        *lock(&self.scans.run) = Some(Run {
            position,
            targets: None,
            issued,
            pass_start: now,
            pass_examined: 0,
            pass_issued: 0,
            paused_since: if phys.is_paused() { now } else { 0 },
            spent_paused: 0,
            served,
            is_incomplete,
            errors: Vec::new(),
            saved: self.env.clock().monotonic(),
            mark: self.tree().mark(),
            phys,
        });
    }

    fn begin(&self, func: ScanFunc, min_txg: Txg) -> Result<(), PoolError> {
        let to_examine = self.view()?.space().map_or(0, |space| space.allocated);
        let start_time = self.env.clock().wall().as_secs();
        let phys = ScanPhys {
            func,
            state: ScanState::Scanning,
            queue: ObjectId(0),
            min_txg,
            max_txg: Txg(0),
            current_min_txg: min_txg,
            current_max_txg: Txg(0),
            start_time,
            end_time: 0,
            to_examine,
            examined: 0,
            skipped: 0,
            processed: 0,
            errors: 0,
            ddt_class_max: 0,
            ddt_bookmark: [0; 4],
            bookmark: [0; 4],
            flags: 0,
        };
        self.tree().begin_repairs();
        let mark = self.tree().mark();
        let served = self.leaves_in_service();
        let phys = self.run_on_pool(move |ctx, pool| {
            if func == ScanFunc::Resilver {
                pool.begin_deferred(ctx)?;
            }
            let mut phys = ScanPhys { max_txg: ctx.txg(), current_max_txg: ctx.txg(), ..phys };
            state::begin(ctx.m(), &mut phys)?;
            let text =
                format!("func={} mintxg={} maxtxg={}", phys.func as u64, phys.min_txg.0, phys.max_txg.0);
            ctx.note("scan setup", None, text);
            Ok(phys)
        })?;
        self.resume_scan(phys, None);
        if let Some(run) = lock(&self.scans.run).as_mut() {
            (run.mark, run.served) = (mark, served);
        }
        self.events.sysevent(&format!("{}_start", event_word(func)), NvList::new());
        Ok(())
    }

    /// Saves the position of the scan. The caller holds the jobs.
    fn save_scan(&self) -> Result<(), PoolError> {
        let Some(leaves) =
            lock(&self.scans.run).as_ref().map(|run| run.served.keys().copied().collect::<Vec<_>>())
        else {
            return Ok(());
        };
        // Work counts as done only after it is durable.
        let lost = self.flush(&leaves);
        let now = self.env.clock().monotonic();
        let (phys, words, errors) = {
            let mut slot = lock(&self.scans.run);
            let Some(run) = slot.as_mut() else { return Ok(()) };
            run.served.retain(|leaf, _| !lost.contains(leaf));
            run.saved = now;
            (run.phys, state::words(run), std::mem::take(&mut run.errors))
        };
        let by_head = self.features.is_active("head_errlog");
        let kept = errors.clone();
        let written = self.run_on_pool(move |ctx, _| {
            state::save(ctx.m(), &phys, &words, by_head, &errors).map_err(state::failed)
        });
        if written.is_err()
            && let Some(run) = lock(&self.scans.run).as_mut()
        {
            run.errors.extend(kept);
        }
        written
    }

    /// Flushes leaves. Returns those that failed.
    fn flush(&self, leaves: &[VdevGuid]) -> Vec<VdevGuid> {
        let results = self.tree().flush_leaves(leaves);
        let failed = leaves.iter().zip(results).filter(|(_, result)| result.is_err());
        failed.map(|(leaf, _)| *leaf).collect()
    }

    /// Ends the scan. The caller holds the jobs.
    fn end_scan(&self, how: Ending) -> Result<(), PoolError> {
        let Some((mut phys, errors, served, mark, is_incomplete)) =
            lock(&self.scans.run).as_ref().map(|run| {
                (
                    run.phys,
                    run.errors.clone(),
                    run.served.keys().copied().collect::<Vec<_>>(),
                    run.mark,
                    run.is_incomplete,
                )
            })
        else {
            return Ok(());
        };
        let is_finished = how == Ending::Finished;
        phys.state = if is_finished { ScanState::Finished } else { ScanState::Canceled };
        phys.end_time = self.env.clock().wall().as_secs();
        phys.flags &= !SCAN_FLAG_PAUSED;
        if is_finished {
            self.flush(&self.tree().leaf_guids());
            if !is_incomplete {
                let range = phys.min_txg.0 + 1..phys.max_txg.0 + 1;
                for leaf in &served {
                    // A leaf whose flush fails keeps its DTL.
                    let _ = self.tree().clear_dtl(*leaf, range.clone(), mark);
                }
            }
            let lacks_still =
                |leaf: &VdevGuid| !self.tree().dtl(*leaf).overlap(&(0..phys.max_txg.0 + 1)).is_empty();
            lock(&self.scans.hopeless).extend(served.into_iter().filter(lacks_still));
        }
        let by_head = self.features.is_active("head_errlog");
        self.run_on_pool(move |ctx, _| {
            let mut phys = phys;
            state::end(ctx.m(), &mut phys, by_head, &errors)?;
            ctx.note(how.words(), None, format!("errors={}", phys.errors));
            if matches!(how, Ending::GivesWay | Ending::Restarts) {
                ctx.note("starting deferred resilver", None, format!("errors={}", phys.errors));
            }
            Ok(())
        })?;
        *lock(&self.scans.run) = None;
        self.scans.notes.forget();
        let word = event_word(phys.func);
        match how {
            Ending::Finished => self.events.sysevent(&format!("{word}_finish"), NvList::new()),
            Ending::Canceled => self.events.sysevent(&format!("{word}_abort"), NvList::new()),
            // The start of the next one tells.
            Ending::GivesWay | Ending::Restarts => {}
        }
        Ok(())
    }

    /// Runs the next slice of the active scan, and ends the scan when it is complete. Returns false if no
    /// scan is active.
    ///
    /// # Errors
    /// If the pool cannot be read or written.
    pub(crate) fn scan_step(&self) -> Result<bool, PoolError> {
        self.jobs.step(self, &*self.scans, SLICE)
    }

    /// Runs a slice of at most `bytes`, and saves the position in any case.
    ///
    /// # Errors
    /// [`PoolError`] if the pool cannot be read or written.
    pub fn scan_step_within(&self, bytes: u64) -> Result<bool, PoolError> {
        let is_going_on = self.jobs.step(self, &*self.scans, Budget { bytes, ..SLICE })?;
        self.jobs.save_all(self)?;
        Ok(is_going_on)
    }

    /// Runs the active scan to its end, on this thread.
    ///
    /// # Errors
    /// [`PoolError`] if the pool cannot be read or written.
    pub fn scan_to_end(&self) -> Result<(), PoolError> {
        while self.scan_step()? {}
        Ok(())
    }

    /// Runs all background jobs to their ends, on this thread.
    ///
    /// # Errors
    /// [`PoolError`] if the pool cannot be read or written.
    pub fn work_to_end(&self) -> Result<(), PoolError> {
        while self.jobs.step_all(self, SLICE)? {}
        Ok(())
    }

    /// Leaves in service that lack data.
    pub(crate) fn lacking(&self) -> Vec<VdevGuid> {
        let tree = self.tree();
        let mut leaves: Vec<VdevGuid> = self.leaves_in_service().into_keys().collect();
        leaves.retain(|leaf| !tree.dtl(*leaf).is_empty());
        leaves
    }

    /// Whether a leaf lacks data that a resilver should restore now.
    pub(crate) fn wants_resilver(&self) -> bool {
        // The active resilver ends first.
        let is_resilvering =
            lock(&self.scans.run).as_ref().is_some_and(|run| run.phys.func == ScanFunc::Resilver);
        !is_resilvering && self.scans.is_resilver_urgent(&self.tree())
    }
}

impl Job<LivePool> for Scans {
    fn name(&self) -> &'static str {
        "scan"
    }

    fn progress(&self) -> Option<JobProgress> {
        let of = |run: &Run| JobProgress {
            is_paused: run.phys.is_paused(),
            done: run.phys.examined,
            total: run.phys.to_examine,
        };
        lock(&self.run).as_ref().map(of)
    }

    fn slice(&self, pool: &LivePool, budget: Budget) -> Result<Slice, PoolError> {
        let Some(mut run) = lock(&self.run).as_ref().map(Run::copy) else { return Ok(Slice::Last) };
        let is_done = pool.scan_slice(&mut run, budget)?;
        let (saved_at, must_save) = (run.saved, run.errors.len() > ERRORS_MAX);
        *lock(&self.run) = Some(run);
        Ok(if is_done { Slice::Last } else { Slice::Partial { saved_at, must_save } })
    }

    fn save(&self, pool: &LivePool) -> Result<(), PoolError> {
        pool.save_scan()
    }

    fn pause(&self, pool: &LivePool) -> Result<(), PoolError> {
        let now = pool.env.clock().wall().as_secs();
        if let Some(run) = lock(&self.run).as_mut() {
            run.phys.flags |= SCAN_FLAG_PAUSED;
            run.paused_since = now;
        }
        pool.save_scan()?;
        pool.events.sysevent("scrub_paused", NvList::new());
        Ok(())
    }

    fn resume(&self, pool: &LivePool) -> Result<(), PoolError> {
        let now = pool.env.clock().wall().as_secs();
        if let Some(run) = lock(&self.run).as_mut() {
            run.phys.flags &= !SCAN_FLAG_PAUSED;
            run.spent_paused += now.saturating_sub(run.paused_since);
            run.paused_since = 0;
        }
        pool.save_scan()?;
        pool.events.sysevent("scrub_resume", NvList::new());
        Ok(())
    }

    fn cancel(&self, pool: &LivePool) -> Result<(), PoolError> {
        pool.end_scan(Ending::Canceled)
    }

    fn finish(&self, pool: &LivePool) -> Result<(), PoolError> {
        let func = lock(&self.run).as_ref().map(|run| run.phys.func);
        pool.end_scan(Ending::Finished)?;
        pool.release_replaced()?;
        if func == Some(ScanFunc::Resilver) && pool.scans.is_resilver_due(&pool.tree()) {
            pool.begin_resilver()?;
        }
        Ok(())
    }
}

impl Run {
    /// A copy to work with, while other threads read the original.
    fn copy(&self) -> Run {
        Run {
            targets: self.targets.clone(),
            served: HashMap::clone(&self.served),
            errors: self.errors.clone(),
            ..*self
        }
    }
}
