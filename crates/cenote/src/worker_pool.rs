//! A pool of worker threads with one bounded queue, which the caller fills.
//!
//! # What always holds
//! - The queue is bounded. A caller that finds it full runs the job itself, so no thread waits for free space
//!   in the queue, and a thread that panics or is slow cannot stop the others.
//! - [`with_workers`] returns when every job is done.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use vdev::sync::lock;

/// Jobs that may wait in the queue, per thread.
const WAITING_PER_THREAD: usize = 8;
/// Interval at which a waiting caller reports progress.
const REPORT_INTERVAL: Duration = Duration::from_millis(100);

/// The queue of jobs, and the workers' state.
pub(crate) struct Queue<'w, J> {
    state: Mutex<State<J>>,
    changed: Condvar,
    work: &'w (dyn Fn(J) + Sync),
    waiting_max: usize,
    threads: usize,
}

struct State<J> {
    jobs: VecDeque<J>,
    /// Number of running jobs.
    busy: usize,
    is_closed: bool,
}

/// Counts one running job until it is dropped, also when the job panics.
struct Busy<'q, 'w, J>(&'q Queue<'w, J>);

impl<J> Drop for Busy<'_, '_, J> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.busy -= 1;
        if state.busy == 0 {
            self.0.changed.notify_all();
        }
    }
}

/// Closes the queue when it is dropped, also when the caller panics: otherwise the workers would wait for
/// ever.
struct Closing<'q, 'w, J>(&'q Queue<'w, J>);

impl<J> Drop for Closing<'_, '_, J> {
    fn drop(&mut self) {
        self.0.lock().is_closed = true;
        self.0.changed.notify_all();
    }
}

impl<J: Send> Queue<'_, J> {
    /// Adds a job. If the queue is full, the calling thread runs the job.
    pub(crate) fn push(&self, job: J) {
        let mut state = self.lock();
        if state.jobs.len() < self.waiting_max {
            state.jobs.push_back(job);
            drop(state);
            self.changed.notify_one();
            return;
        }
        state.busy += 1;
        drop(state);
        let _busy = Busy(self);
        (self.work)(job);
    }

    /// Waits until all jobs that were added are done.
    pub(crate) fn finish(&self) {
        self.finish_reporting(&mut || {});
    }

    /// Like [`Queue::finish`], and calls `report` regularly while it waits.
    pub(crate) fn finish_reporting(&self, report: &mut dyn FnMut()) {
        while self.threads == 0
            && let Some(job) = self.take()
        {
            self.run(job);
        }
        let mut state = self.lock();
        while state.busy > 0 || !state.jobs.is_empty() {
            state =
                self.changed.wait_timeout(state, REPORT_INTERVAL).unwrap_or_else(PoisonError::into_inner).0;
            drop(state);
            report();
            state = self.lock();
        }
    }

    fn take(&self) -> Option<J> {
        let mut state = self.lock();
        let job = state.jobs.pop_front()?;
        state.busy += 1;
        Some(job)
    }

    fn run(&self, job: J) {
        let _busy = Busy(self);
        (self.work)(job);
    }

    fn serve(&self) {
        loop {
            if let Some(job) = self.take() {
                self.run(job);
                continue;
            }
            let state = self.lock();
            if !state.jobs.is_empty() {
                continue;
            }
            if state.is_closed {
                return;
            }
            drop(self.changed.wait(state).unwrap_or_else(PoisonError::into_inner));
        }
    }
}

impl<J> Queue<'_, J> {
    fn lock(&self) -> MutexGuard<'_, State<J>> {
        lock(&self.state)
    }
}

/// Starts `threads` workers that call `work` on each job, runs `lead`, which adds jobs, and returns its
/// result when all jobs are done.
pub(crate) fn with_workers<J: Send, T>(
    threads: usize,
    work: &(dyn Fn(J) + Sync),
    lead: impl FnOnce(&Queue<'_, J>) -> T,
) -> T {
    let state = State { jobs: VecDeque::new(), busy: 0, is_closed: false };
    let waiting_max = threads * WAITING_PER_THREAD;
    let queue = Queue { state: Mutex::new(state), changed: Condvar::new(), work, waiting_max, threads };
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| queue.serve());
        }
        let closing = Closing(&queue);
        let result = lead(&queue);
        queue.finish();
        drop(closing);
        result
    })
}

#[cfg(test)]
mod tests {
    use super::with_workers;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn every_job_is_done_once() {
        for threads in [0, 1, 4] {
            let sum = AtomicU64::new(0);
            let add = |n: u64| {
                sum.fetch_add(n, Ordering::Relaxed);
            };
            with_workers(threads, &add, |queue| {
                (0..1000).for_each(|n| queue.push(n));
                queue.finish();
                assert_eq!(sum.load(Ordering::Relaxed), 499_500);
                (0..1000).for_each(|n| queue.push(n));
            });
            assert_eq!(sum.load(Ordering::Relaxed), 999_000);
        }
    }
}
