//! Dirty pages in the kernel's cache: the kernel writes back and drops the pages of a range while a request
//! waits.
//!
//! Programs write to pages through memory maps, and the server learns of that only when the kernel writes the
//! pages back. A request whose answer depends on such pages (a search for data) first has the kernel write
//! back the range.
//!
//! # What always holds
//! - A thread of its own notifies the kernel, and may wait as long as writes to the mount take. The request
//!   waits for that thread for a bounded time, and learns whether the pages were written back.
//! - Of the threads that answer requests from the same source (a [`Group`]), at least one does not wait: it
//!   answers the writes that the others wait for.
//! - A mount that makes no such request has no thread for it.

use super::notify::Notifier;
use crate::affinity;
use admin::sync::lock;
use std::cell::RefCell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

/// Longest time that a request waits.
const PATIENCE: Duration = Duration::from_secs(5);
/// Longest time that a request waits while all threads of its group wait, so that none waits for ever.
const MOMENT: Duration = Duration::from_secs(1);
/// A thread ends after being idle for this long.
const REST: Duration = Duration::from_secs(10);

/// The pages of the files of one mount in the kernel's cache.
#[derive(Default)]
pub(crate) struct DirtyPages {
    notifier: OnceLock<Arc<Notifier>>,
    jobs: Arc<Mutex<Option<Sender<Job>>>>,
}

/// A range of a file whose pages are to be dropped (`len` 0: to the end), and the channel for the report.
struct Job {
    node: u64,
    offset: u64,
    len: u64,
    done: Sender<bool>,
}

type Jobs = Mutex<Option<Sender<Job>>>;

impl DirtyPages {
    /// Sets the notifier of the mount.
    pub(crate) fn set_notifier(&self, notifier: &Arc<Notifier>) {
        let _ = self.notifier.set(Arc::clone(notifier));
    }

    /// The notifier of the mount; `None` before it is mounted.
    pub(crate) fn notifier(&self) -> Option<&Arc<Notifier>> {
        self.notifier.get()
    }

    /// Has the kernel write back and drop the dirty pages of a range; `len` 0: to the end of the file.
    /// Returns whether that is done: everything that programs had written to the range before this call has
    /// then arrived. `false` if it takes too long, or if no thread can wait for it. The caller must hold no
    /// lock that a write to the mount needs.
    pub(crate) fn drop_range(&self, node: u64, offset: u64, len: u64) -> bool {
        let Some(is_done) = self.begin(node, offset, len) else { return false };
        waiting(|| is_done.recv_timeout(PATIENCE).unwrap_or(false)).unwrap_or(false)
    }

    /// [`DirtyPages::drop_range`] for a request that has to wait: waits for a moment even if all threads do.
    pub(crate) fn drop_range_anyway(&self, node: u64, offset: u64, len: u64) {
        let Some(is_done) = self.begin(node, offset, len) else { return };
        if waiting(|| is_done.recv_timeout(PATIENCE)).is_none() {
            let _ = is_done.recv_timeout(MOMENT);
        }
    }

    /// Has a thread notify the kernel; returns the channel on which it reports. `None`: there is no thread,
    /// or the mount has no notifier.
    fn begin(&self, node: u64, offset: u64, len: u64) -> Option<Receiver<bool>> {
        let notifier = self.notifier.get()?;
        let (done, is_done) = channel();
        let mut job = Job { node, offset, len, done };
        let mut jobs = lock(&self.jobs);
        if let Some(thread) = &*jobs {
            match thread.send(job) {
                Ok(()) => return Some(is_done),
                // The thread has ended, and has taken no job that was sent to it.
                Err(unsent) => job = unsent.0,
            }
        }
        let (thread, work) = channel();
        thread.send(job).ok()?;
        let (notifier, shared) = (Arc::clone(notifier), Arc::clone(&self.jobs));
        affinity::spawn_anywhere("dirty-pages", move || serve(&notifier, &work, &shared)).ok()?;
        *jobs = Some(thread);
        Some(is_done)
    }
}

/// Notifies the kernel of one range after the other until there was none for a while.
fn serve(notifier: &Notifier, work: &Receiver<Job>, jobs: &Jobs) {
    loop {
        let job = match work.recv_timeout(REST) {
            Ok(job) => job,
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {
                // No job is sent while the lock is held.
                let mut jobs = lock(jobs);
                match work.try_recv() {
                    Ok(job) => job,
                    Err(_) => {
                        *jobs = None;
                        return;
                    }
                }
            }
        };
        let is_dropped = notifier.forget_range(job.node, job.offset, job.len);
        // An error means that the request has stopped waiting.
        let _ = job.done.send(is_dropped);
    }
}

/// The threads that answer requests from the same source.
#[derive(Debug)]
pub(super) struct Group {
    threads: usize,
    waiting: AtomicUsize,
}

impl Group {
    /// A group of `threads` threads.
    pub(super) fn of(threads: usize) -> Arc<Group> {
        Arc::new(Group { threads, waiting: AtomicUsize::new(0) })
    }

    fn enter(&self) -> bool {
        let enter = |waiting: usize| (waiting + 1 < self.threads).then_some(waiting + 1);
        self.waiting.fetch_update(Ordering::AcqRel, Ordering::Acquire, enter).is_ok()
    }
}

thread_local! {
    /// The group of the calling thread, if it answers requests.
    static GROUP: RefCell<Option<Arc<Group>>> = const { RefCell::new(None) };
}

/// The calling thread belongs to a group until this value is dropped.
pub(super) struct Member(Option<Arc<Group>>);

impl Member {
    pub(super) fn of(group: &Arc<Group>) -> Member {
        Member(GROUP.replace(Some(Arc::clone(group))))
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        GROUP.set(self.0.take());
    }
}

/// Calls `wait`, which may need another thread of the group. `None`, without a call: no other thread of the
/// group is free.
fn waiting<R>(wait: impl FnOnce() -> R) -> Option<R> {
    struct Leaves(Arc<Group>);
    impl Drop for Leaves {
        fn drop(&mut self) {
            self.0.waiting.fetch_sub(1, Ordering::AcqRel);
        }
    }
    let group = GROUP.with_borrow(Clone::clone);
    let _leaves = match group {
        Some(group) if group.enter() => Some(Leaves(group)),
        Some(_) => return None,
        None => None,
    };
    Some(wait())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use std::os::fd::OwnedFd;

    #[test]
    fn one_thread_of_a_group_does_not_wait() {
        let group = Group::of(3);
        let in_group = |wait: &(dyn Fn() -> Option<u8> + Sync)| {
            std::thread::scope(|scope| {
                let run = || {
                    let _member = Member::of(&group);
                    waiting(wait).flatten()
                };
                scope.spawn(run).join().unwrap()
            })
        };
        let third = || in_group(&|| Some(3));
        let second = || Some(if third().is_none() { 2 } else { 9 });
        assert_eq!(in_group(&|| in_group(&second)), Some(2));
        assert_eq!(third(), Some(3), "nobody waits any more");
        assert_eq!(waiting(|| 4), Some(4), "a thread of no group");
    }

    fn pages() -> (OwnedFd, DirtyPages) {
        let flags = SocketFlags::CLOEXEC;
        let (kernel, device) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        let pages = DirtyPages::default();
        pages.set_notifier(&Arc::new(Notifier::new(Arc::new(device), None, true)));
        (kernel, pages)
    }

    #[test]
    fn ranges_are_told_to_the_kernel_by_another_thread() {
        let (kernel, pages) = pages();
        assert!(pages.drop_range(7, 4096, 8192) && pages.drop_range(8, 0, 0));
        let mut message = [0; 64];
        let words = |bytes: &[u8]| -> Vec<u64> {
            bytes.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap())).collect()
        };
        for range in [[7, 4096, 8192], [8, 0, 0]] {
            let len = rustix::io::read(&kernel, &mut message).unwrap();
            assert_eq!(words(&message[16..len]), range);
        }
        let mut none = [PollFd::new(&kernel, PollFlags::IN)];
        assert_eq!(poll(&mut none, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(0));
        assert!(!DirtyPages::default().drop_range(7, 0, 0), "nobody to be told");
    }
}
