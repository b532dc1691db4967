//! Background work of an open pool: logs data that could not be read, looks for devices that are back, begins
//! resilvers, and gives slices to the background jobs (`jobs`). Called again and again by one thread
//! (`threads`).

use crate::jobs;
use crate::live::LivePool;
use crate::scrub::SCAN_SUSPEND_PROGRESS;
use std::time::Duration;
use vdev::tree::Priority;

/// Pause between checks for new work while no job is active.
const IDLE: Duration = Duration::from_millis(200);
/// Pause while the pool is suspended, closing or held.
const STUCK: Duration = Duration::from_secs(1);

impl LivePool {
    /// Does the due work, and one slice of each job. Returns how long the thread may rest.
    pub(crate) fn background_tick(&self) -> Duration {
        if self.jobs.is_closing() || self.suspended().is_some() || self.is_held() {
            return STUCK;
        }
        let outcome = self.log_damage().and_then(|()| {
            if !self.is_attended() {
                return Ok(());
            }
            self.look_for_silent();
            // A resilver goes on although a spare cannot be attached or detached.
            if let Err(error) = self.attend_spares().and_then(|()| self.release_idle()) {
                tracing::debug!(pool = self.name, %error, "spares and replacements");
            }
            if self.wants_resilver() { self.start_resilver() } else { Ok(()) }
        });
        if SCAN_SUSPEND_PROGRESS.is_on() {
            return IDLE;
        }
        let (before, start) = (self.foreground(), std::time::Instant::now());
        match outcome.and_then(|()| self.jobs.step_all(self, jobs::SLICE)) {
            Ok(true) => jobs::rest(start.elapsed(), self.foreground() > before),
            Ok(false) => IDLE,
            Err(error) => {
                if !self.jobs.is_closing() {
                    tracing::warn!(pool = self.name, %error, "the scan does not get on");
                }
                STUCK
            }
        }
    }

    /// Number of device operations that callers waited for.
    fn foreground(&self) -> u64 {
        let kinds = [Priority::SyncRead, Priority::SyncWrite];
        let of = |stats: &vdev::tree::IoStats| -> u64 {
            kinds.iter().flat_map(|kind| stats.individual[kind.index()]).sum::<u64>()
        };
        self.tree().io_stats().values().map(|leaf| of(&leaf.stats)).sum()
    }
}
