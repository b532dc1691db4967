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
use super::proto::MAX_WRITE;
use super::ring_threads::RingThreads;
use super::service::Service;
use super::thread_pool::Served;
use super::{clone, ring};
use crate::affinity;
use crate::kernel_version::this_kernel;
use admin::sync::lock;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

/// How long nothing may have come over `/dev/fuse` that is to be answered, until nothing more is expected
/// there.
const QUIET: Duration = Duration::from_millis(100);
/// Number of such times that are waited for.
const QUIET_TRIES: usize = 20;

/// The kernels on which giving rings to a mount that is served was tried.
const TRIED: [(u32, u32); 1] = [(6, 18)];

/// Whether a mount can get rings while it is served.
pub(super) fn can_come_late() -> bool {
    TRIED.contains(&this_kernel())
}

/// The threads of the rings of a mount, with all that they need, before the kernel knows of them.
pub(super) struct Rings {
    threads: RingThreads,
    /// First it is told to register, then whether it is to serve.
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
        let (mut threads, mut tell) = (RingThreads::new(), Vec::new());
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

    /// Tells the kernel of them; the threads that serve then. `None`: it wants none of them after all.
    pub(super) fn begin(self) -> Option<RingThreads> {
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

/// A mount that is busy gets rings, by a thread of its own: nothing waits for that.
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
