//! Threads of a pool, and the signal that ends them. Their work is in `threads`.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use vdev::sync::lock;

/// The threads of a pool.
pub(crate) struct Runtime {
    pub(crate) threads: Vec<JoinHandle<()>>,
    pub(crate) stop: Arc<Stop>,
}

/// The signal for the threads to end.
#[derive(Default)]
pub(crate) struct Stop {
    is_set: Mutex<bool>,
    changed: Condvar,
}

impl Stop {
    fn set(&self) {
        *lock(&self.is_set) = true;
        self.changed.notify_all();
    }

    /// Waits for `time`, or until the signal is set. Returns whether it is set.
    pub(crate) fn wait(&self, time: Duration) -> bool {
        let is_set = lock(&self.is_set);
        let waited = self.changed.wait_timeout_while(is_set, time, |is_set| !*is_set);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

impl Runtime {
    /// Ends the threads, and joins them. The caller ensures that no thread waits for a txg.
    pub(crate) fn join(self) {
        self.stop.set();
        let own = std::thread::current().id();
        for thread in self.threads.into_iter().filter(|thread| thread.thread().id() != own) {
            // Its panic has suspended the pool and was reported.
            let _ = thread.join();
        }
    }
}
