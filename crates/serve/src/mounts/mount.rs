//! A mount that is served: its places, the file system that it shows, and what the kernel can do with it.
//!
//! # What always holds
//! - A mount in the table has at least one place; the oldest is the one that messages name.
//! - A place is changed only if this mount is on top there.
//! - A connection is aborted only while its device has the number by which it is identified, because numbers
//!   are reused at once.

use super::kernel;
use super::walk::MountPoint;
use super::{LOOK_EVERY, interrupted, is_root};
use crate::affinity::spawn_anywhere;
use crate::export::{ROOT, SNAPSHOTS};
use crate::fuse::{self, LiveService, Notifier};
use admin::sync::lock;
use admin::{MountError, MountOptions, Mounted, NotWritten};
use cenote::{LivePool, SnapshotHold, interrupt};
use format::PoolGuid;
use rustix::io::Errno;
use rustix::mount::MountFlags;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Longest wait until the end of a mount is noticed.
pub(super) const HEARING_OF_AN_END: Duration = Duration::from_millis(50);
/// Time for a mount that is ended by force to write its data to disk.
pub(super) const LAST_WRITES: Duration = Duration::from_secs(10);
const FORGOTTEN_AT_ONCE: usize = 1024;

/// Counter of placements, for their order.
static AGES: AtomicU64 = AtomicU64::new(0);

/// A place of a mount: its path and options.
#[derive(Debug, Clone)]
pub(super) struct Spot {
    pub(super) at: PathBuf,
    pub(super) options: MountOptions,
    /// Age of the placement: greater for later ones.
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
    /// The places of the mount, oldest first.
    spots: Mutex<Vec<Spot>>,
    pub(super) device: (u32, u32),
    pub(super) backend: Backend,
    pub(super) notifier: Arc<Notifier>,
    /// Requests have come over io_uring from the beginning of the mount.
    pub(super) began_with_rings: bool,
    end: Mutex<End>,
    /// The mount is being or was unmounted by this process: the kernel's table need not confirm that it is
    /// gone.
    pub(super) is_unmounted: AtomicBool,
    /// The dataset was closed, or is being closed.
    pub(super) is_settled: AtomicBool,
    ended: Condvar,
}

/// The file system that a mount shows.
pub(super) enum Backend {
    /// A file system of a pool that is open for writing.
    Live { pool: Arc<LivePool>, service: Arc<LiveService> },
    /// A file system that is only read.
    View {
        /// The pool, which may be opened for reading only.
        pool: PoolGuid,
        /// Keeps a snapshot of a pool that is open for writing from being destroyed, until the mount is closed.
        hold: Mutex<Option<SnapshotHold>>,
    },
}

impl Backend {
    pub(super) fn pool(&self) -> PoolGuid {
        match self {
            Backend::Live { pool, .. } => pool.guid(),
            Backend::View { pool, .. } => *pool,
        }
    }
}

/// A thread that drops caches, and the channel on which it reports progress and its end.
pub(super) type Forgetting = (JoinHandle<()>, Receiver<()>);

/// Progress of the end of a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) enum End {
    /// The mount is served.
    #[default]
    Not,
    /// The kernel has ended the mount.
    Gone,
    /// The mount has ended and all its data are on disk.
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

    /// The places of the mount, oldest first.
    pub(super) fn spots(&self) -> Vec<Spot> {
        lock(&self.spots).clone()
    }

    /// The oldest place of the mount.
    pub(super) fn first(&self) -> Spot {
        lock(&self.spots).first().cloned().expect("a mount has a place as long as it is in the table")
    }

    pub(super) fn is_at(&self, at: &Path) -> bool {
        lock(&self.spots).iter().any(|spot| spot.at == at)
    }

    /// Adds a place.
    pub(super) fn add(&self, spot: Spot) {
        lock(&self.spots).push(spot);
    }

    /// Notes that a place has another path now. `false`: the mount has no place `from`.
    pub(super) fn moved(&self, from: &Path, to: &Path) -> bool {
        let mut spots = lock(&self.spots);
        let spot = spots.iter_mut().find(|spot| spot.at == from);
        spot.map(|spot| spot.at = to.to_owned()).is_some()
    }

    /// Removes a place. `false`: it is the last one, or the mount has no such place.
    pub(super) fn leave(&self, at: &Path) -> bool {
        let mut spots = lock(&self.spots);
        let index = spots.iter().position(|spot| spot.at == at).filter(|_| spots.len() > 1);
        index.map(|index| spots.remove(index)).is_some()
    }

    /// Sets the options in all places.
    pub(super) fn set_options(&self, options: &MountOptions) {
        lock(&self.spots).iter_mut().for_each(|spot| spot.options = options.clone());
    }

    /// Adds the descriptions of the places for which `is_meant` holds, each with its age.
    pub(super) fn tell(&self, is_meant: impl Fn(&Path) -> bool, told: &mut Vec<(u64, Mounted)>) {
        let name = lock(&self.name);
        for Spot { at, options, age } in lock(&self.spots).iter().filter(|spot| is_meant(&spot.at)) {
            let (dataset, at, options) = (name.clone(), at.clone(), options.clone());
            told.push((*age, Mounted { dataset, at, options }));
        }
    }

    /// Description of the mount in its oldest place.
    pub(super) fn told_first(&self) -> Mounted {
        let Spot { at, options, .. } = self.first();
        Mounted { dataset: lock(&self.name).clone(), at, options }
    }

    /// The mount point of a place; `None`: this mount is not on top there.
    ///
    /// # Errors
    /// The process has no descriptor or memory left to find out.
    pub(super) fn place_at(&self, at: &Path) -> io::Result<Option<MountPoint>> {
        let is_short = |error: &io::Error| {
            let errno = Errno::from_io_error(error);
            errno.is_some_and(|errno| [Errno::MFILE, Errno::NFILE, Errno::NOMEM].contains(&errno))
        };
        let found = MountPoint::find(at).map_err(io::Error::from);
        match found.and_then(|place| Ok((place.top()?.device == self.device).then_some(place))) {
            Err(error) if is_short(&error) => Err(error),
            found => Ok(found.ok().flatten()),
        }
    }

    /// A place in which this mount is on top: its path and mount point.
    fn reachable(&self) -> Option<(PathBuf, MountPoint)> {
        self.spots().into_iter().find_map(|spot| {
            let place = self.place_at(&spot.at).ok().flatten()?;
            Some((spot.at, place))
        })
    }

    pub(super) fn is_on_top(&self) -> bool {
        self.reachable().is_some()
    }

    /// Whether the kernel's table has this mount: no other process has unmounted it.
    pub(super) fn is_within(&self, table: &[kernel::Line]) -> bool {
        table.iter().any(|line| line.device == self.device)
    }

    /// Whether a mount that has left its places has ended. Device numbers are reused at once, so a mount with
    /// this device elsewhere counts as moved, unless the end of this one is reported.
    pub(super) fn has_ended(&self, table: &[kernel::Line]) -> bool {
        let spots = self.spots();
        let is_here =
            |line: &kernel::Line| line.device == self.device && spots.iter().any(|spot| spot.at == line.at);
        !table.iter().any(is_here)
            && (!self.is_within(table) || self.wait(End::Gone, Some(HEARING_OF_AN_END)))
    }

    /// Whether the kernel has ended the mount.
    pub(super) fn is_gone(&self) -> bool {
        self.is_unmounted.load(Ordering::Acquire)
            || !self.is_on_top() && kernel::table().is_ok_and(|table| !self.is_within(&table))
    }

    /// The mount that covers a place: the newest one there or above that was mounted after this one.
    pub(super) fn hidden_by(&self, at: &Path, table: &[kernel::Line]) -> Option<PathBuf> {
        let covers = |line: &&kernel::Line| kernel::is_within(at, &line.at);
        let last = table.iter().rev().find(covers)?;
        (last.device != self.device).then(|| last.at.clone())
    }

    /// Further paths at which programs have bound this mount or a folder of it: the mount would remain there
    /// after it was unmounted from its own places.
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

    /// Closes the dataset: a snapshot may be destroyed from here on. Returns whether all data that were written
    /// to it are on disk.
    pub(super) fn close(&self) -> bool {
        match &self.backend {
            Backend::Live { service, .. } => service.export().end(),
            Backend::View { hold, .. } => {
                drop(lock(hold).take());
                true
            }
        }
    }

    /// The pool and the service, for a file system that is open for writing.
    pub(super) fn live(&self) -> Option<(&Arc<LivePool>, &Arc<LiveService>)> {
        match &self.backend {
            Backend::Live { pool, service } => Some((pool, service)),
            Backend::View { .. } => None,
        }
    }

    /// Waits until the end has progressed to `end`. `false`: the time limit has passed, or the client of the
    /// waiting command no longer waits.
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

    /// Has the kernel write back cached data. The kernel waits for the pool, however long that takes, and the
    /// system call cannot be interrupted: so a thread of its own makes it, and this one waits while the
    /// client of its command does.
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
        spawned.map(|_| told).map_err(MountError::System)
    }

    /// [`Mount::write_back`] for a caller that is itself answering `own` requests of the mount.
    fn write_back_beside(&self, own: u64) -> Result<(), MountError> {
        // A covered place cannot be reached by its path, and no further program writes to it.
        let Some((at, _)) = self.reachable() else { return Ok(()) };
        match fuse::write_back_beside(&at, own) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(MountError::System(error)),
            _ => Ok(()),
        }
    }

    /// [`Mount::write_back`] with a time limit, because the pool may be suspended or no thread of the mount
    /// free. An error if the limit has passed.
    pub(super) fn try_write_back(self: &Arc<Mount>, own: u64) -> Result<(), MountError> {
        let told = self.start_writing_back(own)?;
        told.recv_timeout(LAST_WRITES).unwrap_or_else(|_| Err(MountError::NotWritten(NotWritten::Cache)))
    }

    /// Has the kernel drop unused names, and the files that only they refer to.
    pub(super) fn shrink(&self, flags: MountFlags) {
        if is_root()
            && let Some((_, place)) = self.reachable()
        {
            let _ = place.open().and_then(|dir| Ok(kernel::remount(&dir, flags)?));
        }
    }

    /// Has the kernel drop what it caches about the snapshots in `.zfs`.
    pub(super) fn forget_snapshots(&self) {
        // The listing of the root as well: `.zfs` may have become visible or hidden.
        self.notifier.forget_file(SNAPSHOTS);
        self.notifier.forget_file(ROOT);
    }

    /// Changes the flags of the mount in all its places.
    pub(super) fn remount(&self, flags: MountFlags) -> io::Result<()> {
        for spot in self.spots() {
            let place = self.place_at(&spot.at)?.ok_or(io::ErrorKind::NotFound)?;
            kernel::remount(&place.open()?, flags)?;
        }
        Ok(())
    }

    /// Aborts the connection: programs that wait for a reply get an error.
    pub(super) fn abort(&self) -> io::Result<()> {
        let switch = kernel::Switch::of(self.device)?;
        // While the mount is connected, its device has this number.
        if self.notifier.is_connected() { switch.abort() } else { Ok(()) }
    }

    /// Has the kernel drop these nodes with their contents, in a thread that reports its progress: it waits
    /// until requests about their pages were answered.
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
