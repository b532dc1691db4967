//! Background jobs of a pool: long work that runs while the pool is in use and continues after it was closed
//! and opened again.
//!
//! A job ([`Job`]) has a position on disk and advances in slices: scrubs and resilvers (`scan`), the removal of a
//! vdev (`removal`); expansion, rebuild, trim and initialize are to follow. The runner ([`Jobs`]) gives slices to
//! the active jobs, saves their positions, and holds back frees that would disturb a slice. It does not
//! depend on the pool: the type `P` is passed through to the jobs.
//!
//! # What always holds
//! - One slice runs at a time. A change of a job (begin, pause, resume, cancel) waits for the running slice
//!   ([`Jobs::hold`]).
//! - The blocks that a slice reads and writes are in use: space that was freed since its txg is not reused
//!   before the slice has ended ([`Gate`]). A txg that would reuse it waits, and a slice ends at once when a
//!   txg waits.
//! - The position on disk is at most [`SAVE_EVERY`] and one slice behind; later work is repeated after a
//!   crash.
//! - Speed: between slices that met other I/O the runner rests as long as it worked, at most [`REST_MAX`].
//!
//! # Order of locks
//! `driver` (a slice, or a change of a job) -> locks of the job -> `gate`. The state of a pool is not locked
//! while a slice runs.

mod gate;

pub(crate) use gate::Gate;

use crate::error::PoolError;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use vdev::env::Env;
use vdev::sync::lock;

/// Limits of one slice, so that programs and txgs do not wait long for it.
pub(crate) const SLICE: Budget = Budget { bytes: 64 << 20, time: Duration::from_millis(100) };
/// Longest rest between two slices.
const REST_MAX: Duration = Duration::from_millis(500);
/// Interval at which the position of a job is saved.
const SAVE_EVERY: Duration = Duration::from_secs(5);

/// Limits of a slice.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Budget {
    /// Most bytes of blocks that are read.
    pub(crate) bytes: u64,
    /// Longest duration, by the monotonic clock of the pool.
    pub(crate) time: Duration,
}

/// Progress of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct JobProgress {
    /// Whether the job is paused: it gets no slices until it is resumed.
    pub(crate) is_paused: bool,
    /// Bytes examined since the job began.
    pub(crate) done: u64,
    /// Estimated total of bytes to examine.
    pub(crate) total: u64,
}

/// Result of one slice of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Slice {
    /// There is more to do.
    Partial {
        /// Monotonic time of the last save of the position.
        saved_at: Duration,
        /// The job holds as much in memory as it may: its position must be saved now.
        must_save: bool,
    },
    /// The job is done.
    Last,
}

/// Long work on a pool `P`. All methods but `name` and `progress` are called under [`Jobs::hold`].
pub(crate) trait Job<P>: Send + Sync {
    /// Name of the job in log messages.
    fn name(&self) -> &'static str;

    /// Progress of the job. `None`: it is not active.
    fn progress(&self) -> Option<JobProgress>;

    /// Works until the budget is spent, a txg waits, or the job is done. Called while the job is active and
    /// not paused.
    fn slice(&self, pool: &P, budget: Budget) -> Result<Slice, PoolError>;

    /// Writes the position to disk, after the work before it is durable. By default nothing is left to write: each slice
    /// is a txg of its own.
    fn save(&self, _pool: &P) -> Result<(), PoolError> {
        Ok(())
    }

    /// Pauses the job until [`Job::resume`], also over an export. Saves the position. By default a job is not paused.
    fn pause(&self, _pool: &P) -> Result<(), PoolError> {
        Ok(())
    }

    /// Continues a job after [`Job::pause`].
    fn resume(&self, _pool: &P) -> Result<(), PoolError> {
        Ok(())
    }

    /// Ends the job early. By default a job goes on to its end.
    fn cancel(&self, _pool: &P) -> Result<(), PoolError> {
        Ok(())
    }

    /// Ends the job after its last slice.
    fn finish(&self, _pool: &P) -> Result<(), PoolError> {
        Ok(())
    }
}

/// Runs the background jobs of a pool.
pub(crate) struct Jobs<P> {
    env: Env,
    all: Vec<Arc<dyn Job<P>>>,
    /// Held while a slice runs or a job is changed.
    driver: Mutex<()>,
    gate: Gate,
    /// Whether the pool is being closed.
    is_closing: AtomicBool,
}

impl<P> Jobs<P> {
    /// A runner of these jobs. Each gets a slice in turn.
    pub(crate) fn new(env: Env, all: Vec<Arc<dyn Job<P>>>) -> Jobs<P> {
        let (driver, gate) = (Mutex::default(), Gate::default());
        Jobs { env, all, driver, gate, is_closing: AtomicBool::new(false) }
    }

    /// Waits for the running slice. No other starts while the guard lives.
    pub(crate) fn hold(&self) -> MutexGuard<'_, ()> {
        lock(&self.driver)
    }

    /// The gate that keeps blocks that a slice reads from being overwritten.
    pub(crate) fn gate(&self) -> &Gate {
        &self.gate
    }

    /// Gives each active job one slice. Returns whether there was one.
    ///
    /// # Errors
    /// [`PoolError`] if a slice fails or a position cannot be saved.
    pub(crate) fn step_all(&self, pool: &P, budget: Budget) -> Result<bool, PoolError> {
        let mut is_going_on = false;
        for job in &self.all {
            is_going_on |= self.step(pool, &**job, budget)?;
        }
        Ok(is_going_on)
    }

    /// Gives one job a slice, and ends the job after its last. Returns false if the job is not active or is
    /// paused.
    ///
    /// # Errors
    /// [`PoolError`] if the slice fails or the position cannot be saved.
    pub(crate) fn step(&self, pool: &P, job: &dyn Job<P>, budget: Budget) -> Result<bool, PoolError> {
        let _driver = self.hold();
        let Some(before) = job.progress().filter(|progress| !progress.is_paused) else { return Ok(false) };
        tracing::trace!(job = job.name(), done = before.done, total = before.total, "next slice");
        match job.slice(pool, budget)? {
            Slice::Last => job.finish(pool)?,
            Slice::Partial { saved_at, must_save } => {
                let is_due = self.env.clock().monotonic().saturating_sub(saved_at) >= SAVE_EVERY;
                if is_due || must_save {
                    job.save(pool)?;
                }
            }
        }
        Ok(true)
    }

    /// Saves the positions of all jobs.
    ///
    /// # Errors
    /// [`PoolError`] if a position cannot be saved.
    pub(crate) fn save_all(&self, pool: &P) -> Result<(), PoolError> {
        let _driver = self.hold();
        self.all.iter().try_for_each(|job| job.save(pool))
    }

    /// Stops all jobs. The running slice ends soon.
    pub(crate) fn close(&self) {
        self.is_closing.store(true, Ordering::Release);
        self.gate.close();
    }

    /// Whether the pool is being closed.
    pub(crate) fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::Acquire)
    }
}

/// Rest after a slice that took `worked`. `met_others`: it met other I/O.
pub(crate) fn rest(worked: Duration, met_others: bool) -> Duration {
    if met_others { worked.min(REST_MAX) } else { Duration::ZERO }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    /// A job of three slices.
    #[derive(Default)]
    struct Three {
        done: AtomicU64,
        saved: AtomicU64,
        is_paused: AtomicBool,
        is_over: AtomicBool,
    }

    impl Job<()> for Three {
        fn name(&self) -> &'static str {
            "three"
        }

        fn progress(&self) -> Option<JobProgress> {
            let (done, total) = (self.done.load(Ordering::Relaxed), 3);
            let is_paused = self.is_paused.load(Ordering::Relaxed);
            (!self.is_over.load(Ordering::Relaxed)).then_some(JobProgress { is_paused, done, total })
        }

        fn slice(&self, (): &(), _: Budget) -> Result<Slice, PoolError> {
            match self.done.fetch_add(1, Ordering::Relaxed) {
                2 => Ok(Slice::Last),
                n => Ok(Slice::Partial { saved_at: Duration::MAX, must_save: n == 1 }),
            }
        }

        fn save(&self, (): &()) -> Result<(), PoolError> {
            self.saved.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }

        fn pause(&self, (): &()) -> Result<(), PoolError> {
            self.is_paused.store(true, Ordering::Relaxed);
            Ok(())
        }

        fn resume(&self, (): &()) -> Result<(), PoolError> {
            self.is_paused.store(false, Ordering::Relaxed);
            Ok(())
        }

        fn cancel(&self, pool: &()) -> Result<(), PoolError> {
            self.finish(pool)
        }

        fn finish(&self, (): &()) -> Result<(), PoolError> {
            self.is_over.store(true, Ordering::Relaxed);
            Ok(())
        }
    }

    #[test]
    fn a_job_goes_on_in_slices_until_it_is_paused_or_over() {
        let job = Arc::new(Three::default());
        let jobs = Jobs::new(Env::simulated(1).0, vec![Arc::clone(&job) as _]);
        let step = || jobs.step_all(&(), SLICE).unwrap();
        assert!(step() && step());
        assert_eq!(job.saved.load(Ordering::Relaxed), 1);
        job.pause(&()).unwrap();
        assert!(!step());
        job.resume(&()).unwrap();
        assert!(step() && !step());
        assert_eq!(job.progress(), None);
        let canceled = Three::default();
        canceled.cancel(&()).unwrap();
        assert!(!jobs.step(&(), &canceled, SLICE).unwrap());
        jobs.save_all(&()).unwrap();
        assert_eq!(job.saved.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn a_runner_rests_as_long_as_it_worked_beside_others() {
        let ms = Duration::from_millis;
        assert_eq!(rest(ms(100), true), ms(100));
        assert_eq!(rest(ms(2000), true), REST_MAX);
        assert_eq!(rest(ms(100), false), Duration::ZERO);
    }
}
