//! A mount that is served: where it is, the file system that it shows, and what the kernel can be had to do
//! with it.
//!
//! # What always holds
//! - It has a place as long as it is in the table; the first of several is the one by which it is known.
//! - Nothing is done to a place unless this mount is on top there.
//! - A connection is ended only while its device has the number by which it is named: numbers are given to
//!   others at once.

use super::kernel;
use super::walk::MountPoint;
use super::{LOOK_EVERY, interrupted, is_root, refused};
use crate::affinity::spawn_anywhere;
use crate::export::{ROOT, SNAPSHOTS};
use crate::fuse::{self, LiveService, Notifier};
use admin::sync::lock;
use admin::{MountError, MountOptions, Mounted};
use cenote::{LivePool, interrupt};
use format::PoolGuid;
use rustix::mount::MountFlags;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Longest time until the end of a mount is noticed.
pub(super) const HEARING_OF_AN_END: Duration = Duration::from_millis(50);
/// Time that a mount which is ended by force gets to write what it has to disk.
pub(super) const LAST_WRITES: Duration = Duration::from_secs(10);
const FORGOTTEN_AT_ONCE: usize = 1024;

/// Counts what is put somewhere, so that it is known what came after what.
static AGES: AtomicU64 = AtomicU64::new(0);

/// Where a mount is, and how.
#[derive(Debug, Clone)]
pub(super) struct Spot {
    pub(super) at: PathBuf,
    pub(super) options: MountOptions,
    /// Grows from one that is put somewhere to the next.
    pub(super) age: u64,
}

impl Spot {
    pub(super) fn new(at: PathBuf, options: MountOptions) -> Spot {
        Spot { at, options, age: AGES.fetch_add(1, Ordering::Relaxed) }
    }
}

/// A mount that is served.
pub(super) struct Mount {
    pub(super) name: Mutex<String>,
    /// Places where it is mounted, the oldest first.
    spots: Mutex<Vec<Spot>>,
    pub(super) device: (u32, u32),
    pub(super) backend: Backend,
    pub(super) notifier: Arc<Notifier>,
    /// Requests have come over io_uring from its beginning.
    pub(super) began_with_rings: bool,
    end: Mutex<End>,
    /// It is being unmounted here, or was: no other table needs to say that it is gone.
    pub(super) is_unmounted: AtomicBool,
    /// Its dataset was closed, or is being closed.
    pub(super) is_settled: AtomicBool,
    ended: Condvar,
}

/// The file system that a mount shows.
pub(super) enum Backend {
    /// A file system of a pool that is open for writing.
    Live { pool: Arc<LivePool>, service: Arc<LiveService> },
    /// One of a pool that is only read, which has this guid.
    View { pool: PoolGuid },
}

impl Backend {
    pub(super) fn pool(&self) -> PoolGuid {
        match self {
            Backend::Live { pool, .. } => pool.guid(),
            Backend::View { pool } => *pool,
        }
    }
}

/// A thread, and what tells that it gets on, and of its end.
pub(super) type Forgetting = (JoinHandle<()>, Receiver<()>);

/// Progress of the end of a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) enum End {
    /// It is served.
    #[default]
    Not,
    /// The kernel has let go of it.
    Gone,
    /// And all is on disk.
    Durable,
}

impl Mount {
    pub(super) fn new(
        name: &str,
        spot: Spot,
        device: (u32, u32),
        backend: Backend,
        notifier: Arc<Notifier>,
        began_with_rings: bool,
    ) -> Arc<Mount> {
        Arc::new(Mount {
            name: Mutex::new(name.to_owned()),
            spots: Mutex::new(vec![spot]),
            device,
            backend,
            notifier,
            began_with_rings,
            end: Mutex::default(),
            is_unmounted: AtomicBool::new(false),
            is_settled: AtomicBool::new(false),
            ended: Condvar::new(),
        })
    }

    pub(super) fn set_end(&self, end: End) {
        *lock(&self.end) = end;
        self.ended.notify_all();
    }

    // ---- places ------------------------------------------------------------------------------

    /// Where it is, oldest first.
    pub(super) fn spots(&self) -> Vec<Spot> {
        lock(&self.spots).clone()
    }

    /// The oldest place where it is mounted.
    pub(super) fn first(&self) -> Spot {
        lock(&self.spots).first().cloned().expect("a mount has a place as long as it is in the table")
    }

    pub(super) fn is_at(&self, at: &Path) -> bool {
        lock(&self.spots).iter().any(|spot| spot.at == at)
    }

    /// Notes that it is mounted in one more place.
    pub(super) fn add(&self, spot: Spot) {
        lock(&self.spots).push(spot);
    }

    /// One of its places has another path now. `false`: it is not there any more.
    pub(super) fn moved(&self, from: &Path, to: &Path) -> bool {
        let mut spots = lock(&self.spots);
        let spot = spots.iter_mut().find(|spot| spot.at == from);
        spot.map(|spot| spot.at = to.to_owned()).is_some()
    }

    /// Notes that it is no longer mounted in this place. `false`: that is its last, or it was not there.
    pub(super) fn leave(&self, at: &Path) -> bool {
        let mut spots = lock(&self.spots);
        let index = spots.iter().position(|spot| spot.at == at).filter(|_| spots.len() > 1);
        index.map(|index| spots.remove(index)).is_some()
    }

    /// Sets its options, in each of its places.
    pub(super) fn set_options(&self, options: &MountOptions) {
        lock(&self.spots).iter_mut().for_each(|spot| spot.options = options.clone());
    }

    /// Adds what is told of it in these places, each with its age.
    pub(super) fn tell(&self, is_meant: impl Fn(&Path) -> bool, told: &mut Vec<(u64, Mounted)>) {
        let name = lock(&self.name);
        for Spot { at, options, age } in lock(&self.spots).iter().filter(|spot| is_meant(&spot.at)) {
            let (dataset, at, options) = (name.clone(), at.clone(), options.clone());
            told.push((*age, Mounted { dataset, at, options }));
        }
    }

    /// Its state in the oldest of its places.
    pub(super) fn told_first(&self) -> Mounted {
        let Spot { at, options, .. } = self.first();
        Mounted { dataset: lock(&self.name).clone(), at, options }
    }

    /// One of its places, if the mount can be changed there: nothing else covers it.
    pub(super) fn place_at(&self, at: &Path) -> Option<MountPoint> {
        let place = MountPoint::find(at).ok()?;
        place.top().is_ok_and(|top| top.device == self.device).then_some(place)
    }

    /// A place in which nothing else covers it, and where that is.
    fn reachable(&self) -> Option<(PathBuf, MountPoint)> {
        self.spots().into_iter().find_map(|spot| self.place_at(&spot.at).map(|place| (spot.at, place)))
    }

    pub(super) fn is_on_top(&self) -> bool {
        self.reachable().is_some()
    }

    /// Whether the kernel has it: it was not unmounted by another way.
    pub(super) fn is_within(&self, table: &[kernel::Line]) -> bool {
        table.iter().any(|line| line.device == self.device)
    }

    /// Whether the kernel has dropped a mount that is no longer where it was. Numbers of devices are given to
    /// others at once: one that is elsewhere now was moved there, unless its end is heard of.
    pub(super) fn has_ended(&self, table: &[kernel::Line]) -> bool {
        let spots = self.spots();
        let is_here =
            |line: &kernel::Line| line.device == self.device && spots.iter().any(|spot| spot.at == line.at);
        !table.iter().any(is_here)
            && (!self.is_within(table) || self.wait(End::Gone, Some(HEARING_OF_AN_END)))
    }

    /// Whether the kernel has dropped a mount that is served no more.
    pub(super) fn is_gone(&self) -> bool {
        self.is_unmounted.load(Ordering::Acquire) || !self.is_on_top() && !self.is_within(&kernel::table())
    }

    /// What covers one of its places: the newest mount there or above, which came after it.
    pub(super) fn hidden_by(&self, at: &Path, table: &[kernel::Line]) -> Option<PathBuf> {
        let covers = |line: &&kernel::Line| kernel::is_within(at, &line.at);
        let last = table.iter().rev().find(covers)?;
        (last.device != self.device).then(|| last.at.clone())
    }

    /// Places that are not its own, in which programs have bound it or a folder of it, and where it would
    /// stay after it is unmounted from its own.
    pub(super) fn bound_elsewhere(&self, table: &[kernel::Line]) -> Vec<PathBuf> {
        let mut own: Vec<PathBuf> = self.spots().into_iter().map(|spot| spot.at).collect();
        let (mut ours, mut others) = (Vec::new(), Vec::new());
        for line in table.iter().filter(|line| line.device == self.device) {
            match own.iter().position(|at| *at == line.at) {
                Some(index) => {
                    own.swap_remove(index);
                    ours.push(line);
                }
                None => others.push(line),
            }
        }
        others.retain(|line| !ours.iter().any(|own| line.goes_with(own, table)));
        others.into_iter().map(|line| line.at.clone()).collect()
    }

    // ---- the dataset -------------------------------------------------------------------------

    /// Lets go of the dataset. Whether everything that was written to it is on disk.
    pub(super) fn close(&self) -> bool {
        match &self.backend {
            Backend::Live { service, .. } => service.export().end(),
            Backend::View { .. } => true,
        }
    }

    /// The pool and the service of a file system that can be changed.
    pub(super) fn live(&self) -> Option<(&Arc<LivePool>, &Arc<LiveService>)> {
        match &self.backend {
            Backend::Live { pool, service } => Some((pool, service)),
            Backend::View { .. } => None,
        }
    }

    /// Waits until the end is as far; `false`: it took too long, or the client of the command that waits does
    /// no longer.
    pub(super) fn wait(&self, end: End, limit: Option<Duration>) -> bool {
        let mut now = lock(&self.end);
        while *now < end {
            let Some(limit) = limit else {
                if interrupt::ends(true) {
                    return false;
                }
                now = self.ended.wait_timeout(now, LOOK_EVERY).unwrap_or_else(PoisonError::into_inner).0;
                continue;
            };
            let (next, timeout) = self.ended.wait_timeout(now, limit).unwrap_or_else(PoisonError::into_inner);
            now = next;
            if timeout.timed_out() && *now < end {
                return false;
            }
        }
        true
    }

    // ---- what the kernel does ----------------------------------------------------------------

    /// Has the kernel hand over what it keeps. The kernel waits for the pool, however long that takes, and
    /// its callers cannot be woken: a thread of its own waits there, and this one as long as the client of
    /// its command does.
    pub(super) fn write_back(self: &Arc<Mount>) -> Result<(), MountError> {
        let told = self.start_writing_back(0)?;
        loop {
            match told.recv_timeout(LOOK_EVERY) {
                Ok(done) => return done,
                Err(RecvTimeoutError::Timeout) if !interrupt::ends(true) => {}
                Err(_) => return Err(interrupted()),
            }
        }
    }

    fn start_writing_back(
        self: &Arc<Mount>,
        own: u64,
    ) -> Result<Receiver<Result<(), MountError>>, MountError> {
        let (tell, told) = std::sync::mpsc::channel();
        let mount = Arc::clone(self);
        let spawned = spawn_anywhere("write-back", move || {
            let _ = tell.send(mount.write_back_beside(own));
        });
        spawned.map(|_| told).map_err(|error| refused(&error))
    }

    /// [`Mount::write_back`], while `own` of its requests wait for the caller.
    fn write_back_beside(&self, own: u64) -> Result<(), MountError> {
        // What something else covers cannot be reached by its path, and no new program writes to it.
        let Some((at, _)) = self.reachable() else { return Ok(()) };
        match fuse::write_back_beside(&at, own) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(refused(&error)),
            _ => Ok(()),
        }
    }

    /// [`Mount::write_back`], but not for ever: the pool may be suspended, or no thread of the mount be free.
    /// An error then, too.
    pub(super) fn try_write_back(self: &Arc<Mount>, own: u64) -> Result<(), MountError> {
        let told = self.start_writing_back(own)?;
        told.recv_timeout(LAST_WRITES).unwrap_or_else(|_| {
            let why = "the kernel has not written back in time what programs have changed".to_owned();
            Err(MountError::Refused { why })
        })
    }

    /// Has the kernel forget the names that no program uses, and the files that only they led to.
    pub(super) fn shrink(&self, flags: MountFlags) {
        if is_root()
            && let Some((_, place)) = self.reachable()
        {
            let _ = place.open().and_then(|dir| Ok(kernel::remount(&dir, flags)?));
        }
    }

    /// Has the kernel forget what it knows of the snapshots that are shown.
    pub(super) fn forget_snapshots(&self) {
        // The root's listing too: `.zfs` may be visible now, or no longer.
        self.notifier.forget_file(SNAPSHOTS);
        self.notifier.forget_file(ROOT);
    }

    /// Changes its flags, wherever it is.
    pub(super) fn remount(&self, flags: MountFlags) -> io::Result<()> {
        for spot in self.spots() {
            let place = self.place_at(&spot.at).ok_or(io::ErrorKind::NotFound)?;
            kernel::remount(&place.open()?, flags)?;
        }
        Ok(())
    }

    /// Ends the connection at once: programs that wait for an answer get an error.
    pub(super) fn abort(&self) -> io::Result<()> {
        let switch = kernel::Switch::of(self.device)?;
        // While it is connected its device has the number.
        if self.notifier.is_connected() { switch.abort() } else { Ok(()) }
    }

    /// Has the kernel forget these nodes with their contents, in a thread that tells how it gets on until it
    /// is done: it waits until requests about their pages were answered.
    pub(super) fn start_forgetting(
        self: &Arc<Mount>,
        nodes: Vec<u64>,
        flags: MountFlags,
    ) -> io::Result<Forgetting> {
        let (tell, told) = std::sync::mpsc::channel();
        let mount = Arc::clone(self);
        let forget = move || {
            for some in nodes.chunks(FORGOTTEN_AT_ONCE) {
                some.iter().for_each(|node| mount.notifier.forget_attributes(*node));
                let _ = tell.send(());
            }
            for some in nodes.chunks(FORGOTTEN_AT_ONCE) {
                some.iter().for_each(|node| mount.notifier.forget_file(*node));
                let _ = tell.send(());
            }
            mount.shrink(flags);
        };
        spawn_anywhere("forget", forget).map(|thread| (thread, told))
    }
}
