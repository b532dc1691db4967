//! A few threads that work off one queue while the caller fills it.
//!
//! # What always holds
//! - The queue is bounded. Who finds it full does a job itself, so nobody waits for room, and a thread that
//!   dies or is slow cannot stop the others.
//! - [`with_workers`] returns when every job is done.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use vdev::sync::lock;

/// Jobs waiting, for each thread.
const WAITING_PER_THREAD: usize = 8;
/// How often the caller looks at what happened while it waits for the end.
const TELL_EVERY: Duration = Duration::from_millis(100);

/// Jobs to be done.
pub(crate) struct Queue<'w, J> {
    state: Mutex<State<J>>,
    changed: Condvar,
    work: &'w (dyn Fn(J) + Sync),
    waiting_max: usize,
    threads: usize,
}

struct State<J> {
    jobs: VecDeque<J>,
    /// Jobs that somebody is at.
    busy: usize,
    is_closed: bool,
}

/// Takes a job off the count of those that somebody is at, also when it panics.
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

/// Closes the queue, also when its filler panics: the threads would wait for ever otherwise.
struct Closing<'q, 'w, J>(&'q Queue<'w, J>);

impl<J> Drop for Closing<'_, '_, J> {
    fn drop(&mut self) {
        self.0.lock().is_closed = true;
        self.0.changed.notify_all();
    }
}

impl<J: Send> Queue<'_, J> {
    /// Hands over a job. If many wait already, the caller does one.
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

    /// Returns when every job that was handed over is done.
    pub(crate) fn finish(&self) {
        self.finish_telling(&mut || {});
    }

    /// The same, and calls `tell` now and then meanwhile.
    pub(crate) fn finish_telling(&self, tell: &mut dyn FnMut()) {
        while self.threads == 0
            && let Some(job) = self.take()
        {
            self.run(job);
        }
        let mut state = self.lock();
        while state.busy > 0 || !state.jobs.is_empty() {
            state = self.changed.wait_timeout(state, TELL_EVERY).unwrap_or_else(PoisonError::into_inner).0;
            drop(state);
            tell();
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
        // What it guards is whole between any two statements.
        lock(&self.state)
    }
}

/// Runs `lead`, which fills the queue, with `threads` threads that call `work` on what is in it.
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
