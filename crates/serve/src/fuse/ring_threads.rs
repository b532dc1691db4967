//! The threads that serve the rings of a mount, and their end.

use crate::affinity;
use admin::sync::lock;
use std::io;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// Threads that serve the rings of a mount.
pub(super) type RingThreads = Vec<JoinHandle<io::Result<()>>>;

/// Waits until all of the threads have ended; returns the first error.
pub(super) fn join(threads: RingThreads) -> io::Result<()> {
    let died = |_| Err(io::Error::other("the server of the mount died"));
    let all: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap_or_else(died)).collect();
    all.into_iter().collect()
}

/// [`join`] on another thread, which then calls `told`; on this one if there is no other.
pub(super) fn join_elsewhere(threads: RingThreads, told: impl FnOnce(io::Result<()>) + Send + 'static) {
    let work = Arc::new(Mutex::new(Some(move || told(join(threads)))));
    let take = |work: &Mutex<Option<_>>| lock(work).take();
    let theirs = Arc::clone(&work);
    let spawned = affinity::spawn_anywhere("mount", move || {
        if let Some(work) = take(&theirs) {
            work();
        }
    });
    if spawned.is_err()
        && let Some(work) = take(&work)
    {
        work();
    }
}
