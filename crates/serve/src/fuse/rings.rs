//! Sets of rings: which mounts have them, and how a mount gets them while it is served.
//!
//! According to the kernel's document, rings are registered at the beginning of a mount, after both sides
//! have agreed on them; the kernel then waits for them, and they stay until the mount ends. That is too much
//! for each of thousands of mounts, so a mount begins without rings, over `/dev/fuse`, and the threads that
//! answer there count its requests. A busy mount gets a set of rings while it is served: there was no
//! agreement, but the kernel accepts the rings all the same (ARCHITECTURE.md has the experiments). No
//! document promises that, so it is done only on kernels on which it was tried ([`can_come_late`]); on others
//! the first mounts have rings from their beginning.
//!
//! The daemon does not try it out on an unknown kernel: a thread of the daemon that waited for a mount of the
//! daemon's own would keep it from ending when it is killed.
//!
//! # What always holds
//! - Requests are read over `/dev/fuse` as long as any come that way, whatever was registered.
//! - Rings that the kernel has accepted stay until the mount ends, unless it refused a whole queue: then none
//!   of the rings is used, and all are removed.
//! - The number of sets is bounded (`ring::Share`), and a set cannot be given back while its mount lives. So
//!   the fewer are left, the longer a mount has to be busy to get one.
//!
//! Tests: `tests/rings.rs`, `tests/it/few.rs`.

use super::dirty_pages::{Group, Member};
use super::service::Service;
use super::thread_pool::Served;
use super::{MAX_WRITE, clone, ring};
use crate::affinity;
use crate::kernel_version::this_kernel;
use admin::sync::lock;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Number of requests of a mount in one window of the measurement.
const WINDOW: u32 = 10_000;
/// A mount is busy if a window lasts no longer than this.
const WINDOW_TIME: Duration = Duration::from_secs(5);
/// Time without a request over `/dev/fuse` that wants a reply, after which no more of them are expected.
const QUIET: Duration = Duration::from_millis(100);
/// Number of such times that are waited for.
const QUIET_TRIES: usize = 20;

/// The kernels on which giving rings to a mount that is served was tried.
const TRIED: [(u32, u32); 1] = [(6, 18)];

/// Whether a mount can get rings while it is served.
pub(super) fn can_come_late() -> bool {
    TRIED.contains(&this_kernel())
}

/// Threads that serve the rings of a mount.
pub(super) type Threads = Vec<JoinHandle<io::Result<()>>>;

/// Waits until all of the threads have ended; returns the first error.
pub(super) fn join(threads: Threads) -> io::Result<()> {
    let died = |_| Err(io::Error::other("the server of the mount died"));
    let all: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap_or_else(died)).collect();
    all.into_iter().collect()
}

/// [`join`] on another thread, which then calls `told`; on the calling thread if there is no other.
pub(super) fn join_elsewhere(threads: Threads, told: impl FnOnce(io::Result<()>) + Send + 'static) {
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

/// Threads with all that they need to serve the rings of a mount; the kernel does not know of them yet.
pub(super) struct Rings {
    threads: Threads,
    /// Tells each thread first to register, then whether to serve.
    tell: Vec<mpsc::Sender<bool>>,
    registered: mpsc::Receiver<(u16, bool)>,
    queues: usize,
}

impl Rings {
    /// Makes as many threads as the share allows; they keep the share.
    pub(super) fn prepare(
        service: &Arc<dyn Service>,
        device: &Arc<OwnedFd>,
        share: ring::Share,
    ) -> io::Result<Rings> {
        let queues = ring::queues()?;
        let (made, all_made) = mpsc::channel();
        let (register, registered) = mpsc::channel();
        let (mut threads, mut tell) = (Threads::new(), Vec::new());
        let (seats, share) = (share.seats(), Arc::new(share));
        let seats_of_queue = seats / usize::from(queues.max(1));
        let groups: Vec<_> = (0..queues).map(|_| Group::of(seats_of_queue)).collect();
        // First one thread for each queue: the kernel uses the ring as soon as each queue has one.
        for (queue, group) in (0..queues).zip(&groups).cycle().take(seats) {
            let (group, share) = (Arc::clone(group), Arc::clone(&share));
            let (service, device) = (Arc::clone(service), Arc::clone(device));
            let (made, register) = (made.clone(), register.clone());
            let (send, told) = mpsc::channel();
            let run = move || {
                let _share = share;
                let seat = ring::Seat::new(device, queue, MAX_WRITE);
                let _ = made.send(seat.is_ok());
                // The sender is dropped if the mount is served in another way.
                let (Ok(mut seat), Ok(true)) = (seat, told.recv()) else { return Ok(()) };
                let is_registered = seat.register().is_ok();
                let _ = register.send((queue, is_registered));
                let serves = told.recv().unwrap_or(false);
                if !is_registered || !serves {
                    return Ok(());
                }
                let _member = Member::of(&group);
                seat.serve(&*service)
            };
            threads.push(std::thread::Builder::new().name(RING_THREAD.into()).spawn(run)?);
            tell.push(send);
        }
        drop(made);
        let is_whole = all_made.iter().take(seats).filter(|ok| *ok).count() == seats;
        let queues = usize::from(queues);
        if is_whole {
            Ok(Rings { threads, tell, registered, queues })
        } else {
            Err(io::ErrorKind::OutOfMemory.into())
        }
    }

    /// Registers the rings; returns the threads that then serve. `None`: the kernel accepted too few of them.
    pub(super) fn begin(self) -> Option<Threads> {
        let Rings { threads, tell, registered, queues } = self;
        let tell_all = |what: bool| tell.iter().for_each(|tell| tell.send(what).unwrap_or(()));
        tell_all(true);
        let mut is_there = vec![false; queues];
        for (queue, is_registered) in registered.iter().take(threads.len()) {
            if let Some(place) = is_there.get_mut(usize::from(queue)) {
                *place |= is_registered;
            }
        }
        // With one ring in each queue the kernel uses them, whatever became of the others.
        let is_whole = is_there.iter().all(|there| *there);
        tell_all(is_whole);
        is_whole.then_some(threads)
    }
}

/// Name of the threads that answer requests over rings.
pub(super) const RING_THREAD: &str = "fuse-ring";

/// Load of a mount, measured until it has rings.
#[derive(Debug, Default)]
pub(super) struct Load {
    requests: AtomicU32,
    /// Time at which the window began, in milliseconds.
    began: AtomicU64,
    /// Number of busy windows in a row.
    busy: AtomicUsize,
    /// A thread is giving rings to the mount.
    is_asked: AtomicBool,
}

fn now_ms() -> u64 {
    static BEGAN: OnceLock<Instant> = OnceLock::new();
    u64::try_from(BEGAN.get_or_init(Instant::now).elapsed().as_millis()).unwrap_or(u64::MAX)
}

impl Load {
    /// Counts a request. Returns whether to give rings to the mount: `true` once, until [`Load::refused`].
    pub(super) fn note(&self) -> bool {
        let count = self.requests.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        count.is_multiple_of(WINDOW) && self.note_window(now_ms(), ring::Share::count())
    }

    /// Ends a window while `taken` mounts have rings; returns whether to give rings to the mount.
    fn note_window(&self, now: u64, taken: usize) -> bool {
        let began = self.began.swap(now, Ordering::AcqRel);
        if u128::from(now.saturating_sub(began)) > WINDOW_TIME.as_millis() {
            self.busy.store(0, Ordering::Release);
            return false;
        }
        // The first window began with the first request, whose time is not known.
        self.busy.fetch_add(1, Ordering::AcqRel) + 1 > taken && !self.is_asked.swap(true, Ordering::AcqRel)
    }

    /// Notes that the mount got no rings: it asks again after being busy for as long as before.
    fn refused(&self) {
        self.busy.store(0, Ordering::Release);
        self.is_asked.store(false, Ordering::Release);
    }
}

/// Gives rings to a busy mount, on a thread of its own: the caller does not wait.
pub(super) fn bring_to(served: &Arc<Served>) {
    let mount = Arc::clone(served);
    let spawned = affinity::spawn_anywhere("fuse-rings", move || {
        if let Err(why) = bring(&mount) {
            tracing::debug!(%why, "a busy mount gets no rings");
            mount.load().refused();
        }
    });
    if spawned.is_err() {
        served.load().refused();
    }
}

fn bring(served: &Arc<Served>) -> io::Result<()> {
    // One mount at a time.
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = lock(&TURN);
    if !ring::is_enabled() {
        return Err(io::ErrorKind::Unsupported.into());
    }
    give(served)
}

/// Gives rings to a mount that is served without.
pub(super) fn give(served: &Arc<Served>) -> io::Result<()> {
    let share = ring::Share::take(ring::queues()?);
    let share = share.ok_or_else(|| io::Error::other("other mounts have all rings"))?;
    give_so_many(served, share)
}

/// Gives rings to a mount, within a share.
pub(super) fn give_so_many(served: &Arc<Served>, share: ring::Share) -> io::Result<()> {
    // The other descriptor of the mount does not block, so commands over it would not either.
    let device = Arc::new(clone::clone(served.device())?);
    let rings = Rings::prepare(served.service(), &device, share)?;
    let threads = rings.begin().ok_or_else(|| io::Error::other("the kernel has refused the rings"))?;
    served.set_rings(threads);
    for _ in 0..QUIET_TRIES {
        let before = served.answered();
        std::thread::sleep(QUIET);
        if served.answered() == before {
            served.expect_rest();
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_is_busy_when_much_is_asked_for_long_and_longer_where_others_have_rings() {
        let millis = u64::try_from(WINDOW_TIME.as_millis()).unwrap();
        let load = Load::default();
        assert!(!load.note_window(10 * millis, 0), "nobody knows how long that took");
        assert!(!load.note_window(12 * millis, 0), "few requests");
        assert!(load.note_window(12 * millis + 1, 0));
        assert!(!load.note_window(12 * millis + 2, 0), "it is asked for once");
        load.refused();
        assert!(!load.note_window(12 * millis + 3, 2) && !load.note_window(12 * millis + 4, 2));
        assert!(load.note_window(12 * millis + 5, 2));
        load.refused();
        assert!(!load.note_window(13 * millis, 1) && !load.note_window(15 * millis, 1), "it has paused");
        assert!(!load.note_window(15 * millis, 1) && load.note_window(15 * millis, 1));
    }
}
