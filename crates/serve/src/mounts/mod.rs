//! The mounts of a process that keeps pools open: what [`cenote::admin::Mounts`] wants, done with FUSE.
//!
//! `service` answers for a mount while its contents come and go, `kernel` asks and changes the machine's table of
//! mounts, `walk` leads to mount points, `record` knows what a server before this one has left behind, `users` finds the
//! programs that hold a mount up.
//!
//! # What always holds
//! - A dataset is mounted once. Verbs about one dataset happen one after the other; those about different
//!   ones do not wait for each other.
//! - No lock of the table is held while the kernel is asked to do anything, and threads that answer requests take
//!   none of its locks: so a mount point, or the files of a pool, may lie in another of these mounts.
//! - A mount that somebody else ends (`umount`) is taken out of the table, and its dataset closed.
//! - When a dataset is out of the table, everything that was written to it is in the pool, and on disk.
//!
//! # Order of locks
//! `mounts` -> one mount's `name`, `options`. `changing` is held alone.

mod kernel;
mod record;
mod service;
mod users;
mod walk;

use crate::LiveService;
use crate::fuse::{self, FileCounters, Notifier, Service, Transport, ViewService};
use crate::live_service::Manner;
use crate::pool_view::{PoolView, SNAPSHOTS};
use crate::view::ViewError;
use cenote::admin::{AccessTimes, FileOps, MountError, MountOptions, Mounted, Mounts, Unmount};
use cenote::files::{self, FilesystemWriter};
use cenote::{LivePool, Outside, Pool};
use kernel::Sign;
pub use record::Record;
use rustix::io::Errno;
use rustix::mount::MountFlags;
use service::{MountedFs, Names};
use std::collections::{BTreeSet, HashSet};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use walk::{Place, WalkError};

/// How long the kernel may take to let go of a mount that nobody uses here: other mount namespaces may have it too.
const LETTING_GO: Duration = Duration::from_secs(3);
/// How long it may take until a mount that has ended is known to have.
const HEARING_OF_AN_END: Duration = Duration::from_millis(50);
/// How long a mount that is ended by force is given to bring what it has to disk.
const LAST_WRITES: Duration = Duration::from_secs(10);
/// Mounts of dead servers on one way.
const DEAD_MAX: usize = 64;
/// How long the kernel may take to forget so many files before names are answered all the same. What programs have left in
/// its pages is lost until then, and written into the new contents from then on.
const FORGETTING: Duration = Duration::from_secs(2);
const FORGOTTEN_AT_ONCE: usize = 1024;
/// Where a mount shows its snapshots.
const SNAPSHOT_DIR: &str = ".zfs/snapshot";
/// The root of a mount.
const ROOT: u64 = 1;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What these guard is whole between any two statements.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// How a table mounts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TableSettings {
    /// How requests come.
    pub transport: Transport,
    /// The kernel may keep what programs write for some seconds.
    pub writeback: bool,
    /// Threads of a mount that is served over `/dev/fuse`; `None`: as many as seem good.
    pub threads: Option<usize>,
}

/// The mounts of this process.
pub struct MountTable {
    settings: TableSettings,
    record: Option<Record>,
    inner: Arc<Inner>,
}

#[derive(Default)]
struct Inner {
    mounts: Mutex<Vec<Arc<Mount>>>,
    /// Datasets that a verb is about.
    changing: Mutex<BTreeSet<String>>,
    changed: Condvar,
}

/// A mount that is served.
struct Mount {
    name: Mutex<String>,
    options: Mutex<MountOptions>,
    at: PathBuf,
    device: (u32, u32),
    behind: Behind,
    notifier: Arc<Notifier>,
    kept: Mutex<Option<Kept>>,
    end: Mutex<End>,
    /// It is being unmounted here, or was: no other table needs to say that it is gone.
    is_unmounted: AtomicBool,
    /// Its dataset was closed, or is being closed.
    is_settled: AtomicBool,
    ended: Condvar,
}

/// What is kept of a mount while its file system is let go of.
struct Kept {
    /// The names that lead to what is in use, and to what is mounted below.
    names: Names,
    /// How requests come.
    manner: Manner,
}

/// What stands behind a mount.
enum Behind {
    /// A file system of a pool that is open for writing.
    Live { pool: Arc<LivePool>, service: Arc<MountedFs> },
    /// One of a pool that is only read.
    View,
}

/// A thread, and what tells that it gets on, and of its end.
type Forgetting = (JoinHandle<()>, Receiver<()>);

/// How far the end of a mount is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
enum End {
    /// It is served.
    #[default]
    Not,
    /// The kernel has let go of it.
    Gone,
    /// And all is on disk.
    Durable,
}

/// The right to change one dataset's mount.
struct Claim<'t> {
    inner: &'t Inner,
    dataset: String,
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        lock(&self.inner.changing).remove(&self.dataset);
        self.inner.changed.notify_all();
    }
}

impl Inner {
    fn claim(&self, dataset: &str) -> Claim<'_> {
        let mut changing = lock(&self.changing);
        while !changing.insert(dataset.to_owned()) {
            changing = self.changed.wait(changing).unwrap_or_else(PoisonError::into_inner);
        }
        Claim { inner: self, dataset: dataset.to_owned() }
    }

    fn find(&self, dataset: &str) -> Option<Arc<Mount>> {
        lock(&self.mounts).iter().find(|mount| *lock(&mount.name) == dataset).cloned()
    }

    fn all(&self) -> Vec<Arc<Mount>> {
        lock(&self.mounts).clone()
    }

    /// Lets go of a mount that somebody else has unmounted: it ends by itself, or is served on for whoever still uses it,
    /// but is no longer ours to show.
    fn let_go(&self, mount: &Arc<Mount>) {
        if !mount.wait(End::Durable, Some(LETTING_GO)) {
            self.take_out(mount);
        }
    }

    /// What was unmounted by `umount` is gone when somebody asks next, though its threads may still be ending.
    fn let_go_of_unmounted(&self) {
        let mounts = self.all();
        if mounts.is_empty() {
            return;
        }
        let table = kernel::table();
        let here: HashSet<_> = table.iter().map(|line| (line.device, line.at.as_path())).collect();
        let elsewhere = mounts.iter().filter(|mount| !here.contains(&(mount.device, mount.at.as_path())));
        elsewhere.filter(|mount| mount.has_ended(&table)).for_each(|mount| self.let_go(mount));
    }

    /// The same for one.
    fn find_mounted(&self, dataset: &str) -> Option<Arc<Mount>> {
        let mount = self.find(dataset)?;
        if !mount.is_on_top() && mount.has_ended(&kernel::table()) {
            self.let_go(&mount);
            return self.find(dataset);
        }
        Some(mount)
    }

    fn take_out(&self, mount: &Arc<Mount>) {
        lock(&self.mounts).retain(|other| !Arc::ptr_eq(other, mount));
    }
}

impl Mount {
    fn set_end(&self, end: End) {
        *lock(&self.end) = end;
        self.ended.notify_all();
    }

    /// What is told of it.
    fn told(&self) -> Mounted {
        let (dataset, options) = (lock(&self.name).clone(), lock(&self.options).clone());
        Mounted { dataset, at: self.at.clone(), options }
    }

    /// Lets go of the dataset. Whether everything that was written to it is on disk.
    fn close(&self) -> bool {
        match &self.behind {
            Behind::Live { service, .. } => service.end(),
            Behind::View => true,
        }
    }

    /// What answers, if it can be changed.
    fn live(&self) -> Option<(&Arc<LivePool>, &Arc<MountedFs>)> {
        match &self.behind {
            Behind::Live { pool, service } => Some((pool, service)),
            Behind::View => None,
        }
    }

    /// Waits until the end is as far; `false`: it took too long.
    fn wait(&self, end: End, limit: Option<Duration>) -> bool {
        let mut now = lock(&self.end);
        while *now < end {
            let Some(limit) = limit else {
                now = self.ended.wait(now).unwrap_or_else(PoisonError::into_inner);
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

    /// Has the kernel hand over what it keeps.
    fn write_back(&self) -> Result<(), MountError> {
        self.write_back_beside(0)
    }

    /// The same while so many of its requests wait for the caller.
    fn write_back_beside(&self, own: u64) -> Result<(), MountError> {
        // What something else covers cannot be reached by its path, and is written to by nobody new.
        if !self.is_on_top() {
            return Ok(());
        }
        match fuse::write_back_beside(&self.at, own) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(refused(&error)),
            _ => Ok(()),
        }
    }

    /// The same, but not for ever: the pool may be suspended, or no thread of the mount be free. `Ok` then, too.
    fn try_write_back(self: &Arc<Mount>, own: u64) -> Result<(), MountError> {
        let (tell, told) = std::sync::mpsc::channel();
        let mount = Arc::clone(self);
        let spawned = fuse::spawn_anywhere("write-back", move || {
            let _ = tell.send(mount.write_back_beside(own));
        });
        match spawned {
            Ok(_) => told.recv_timeout(LAST_WRITES).unwrap_or(Ok(())),
            Err(_) => Ok(()),
        }
    }

    /// The kernel forgets the names that nobody uses, and the files that only they led to.
    fn shrink(&self, flags: MountFlags) {
        if is_root() {
            let _ = self.remount(flags);
        }
    }

    /// Has the kernel forget these nodes with their contents, in a thread that tells how it gets on until it is done: it waits
    /// until requests about their pages were answered.
    fn start_forgetting(self: &Arc<Mount>, nodes: Vec<u64>, flags: MountFlags) -> io::Result<Forgetting> {
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
        fuse::spawn_anywhere("forget", forget).map(|thread| (thread, told))
    }

    /// The kernel has it: nobody has unmounted it without telling us.
    fn is_within(&self, table: &[kernel::Line]) -> bool {
        table.iter().any(|line| line.device == self.device)
    }

    /// Of one that is no longer where it was: the kernel has it no more. Numbers of devices are given to others at once: one
    /// that is elsewhere now was moved there, unless its end is heard of.
    fn has_ended(&self, table: &[kernel::Line]) -> bool {
        let is_here = |line: &kernel::Line| line.device == self.device && line.at == self.at;
        !table.iter().any(is_here)
            && (!self.is_within(table) || self.wait(End::Gone, Some(HEARING_OF_AN_END)))
    }

    /// Its place, if the mount can be changed there: nothing else covers it.
    fn place(&self) -> Option<Place> {
        let place = Place::find(&self.at).ok()?;
        place.top().is_ok_and(|top| top.device == self.device).then_some(place)
    }

    fn is_on_top(&self) -> bool {
        self.place().is_some()
    }

    /// Of one that is served no more: the kernel has it no more either.
    fn is_gone(&self) -> bool {
        self.is_unmounted.load(Ordering::Acquire) || !self.is_on_top() && !self.is_within(&kernel::table())
    }

    /// What covers it: the newest mount on its place or above, which came after it.
    fn hidden_by(&self, table: &[kernel::Line]) -> Option<PathBuf> {
        let covers = |line: &&kernel::Line| kernel::is_within(&self.at, &line.at);
        let last = table.iter().rev().find(covers)?;
        (last.device != self.device).then(|| last.at.clone())
    }

    fn remount(&self, flags: MountFlags) -> io::Result<()> {
        let place = self.place().ok_or(io::ErrorKind::NotFound)?;
        Ok(kernel::remount(&place.open()?, flags)?)
    }
}

fn refused(error: &io::Error) -> MountError {
    let why = match Errno::from_io_error(error) {
        Some(Errno::PERM | Errno::ACCESS) => "permission denied".to_owned(),
        Some(Errno::NOENT) => "No such file or directory".to_owned(),
        _ => {
            let mut words = error.to_string();
            // Without the number that the standard library adds.
            if let Some(at) = words.find(" (os error") {
                words.truncate(at);
            }
            words
        }
    };
    MountError::Refused { why }
}

fn fuse_refused(error: fuse::MountError) -> MountError {
    match error {
        fuse::MountError::Refused { source, .. } => refused(&source),
        other => MountError::Refused { why: other.to_string() },
    }
}

impl MountTable {
    /// A table without mounts.
    #[must_use]
    pub fn new(settings: TableSettings) -> MountTable {
        MountTable { settings, record: None, inner: Arc::default() }
    }

    /// Writes down where it mounts something, for the server after this one.
    #[must_use]
    pub fn recorded(self, record: Record) -> MountTable {
        MountTable { record: Some(record), ..self }
    }

    /// The right to mount a dataset that is not mounted yet, and the directory for it.
    fn claim_free(
        &self,
        dataset: &str,
        at: &Path,
        options: &MountOptions,
    ) -> Result<(Claim<'_>, Place), MountError> {
        let claim = self.inner.claim(dataset);
        if self.inner.find_mounted(dataset).is_some() {
            return Err(MountError::AlreadyMounted);
        }
        Ok((claim, self.ready_directory(at, options.overlay)?))
    }

    /// Calls `walk`, and takes away what dead servers have left on the way.
    fn past_dead<T>(&self, mut walk: impl FnMut() -> Result<T, WalkError>) -> io::Result<T> {
        for _ in 0..DEAD_MAX {
            match walk() {
                Err(WalkError::Dead { at }) if self.detach_left(&at) => {}
                done => return done.map_err(io::Error::from),
            }
        }
        Err(Errno::NOTCONN.into())
    }

    /// Detaches what a dead server has left on a path, which is given without links. Whether there was any.
    fn detach_left(&self, at: &Path) -> bool {
        let Ok(place) = Place::find(at) else { return false };
        let Some(line) = place.top().ok().and_then(|top| top.line(at)) else { return false };
        let is_ours = || self.inner.all().iter().any(|mount| mount.device == line.device);
        // A server before this one is gone, or going; one that answers is another, which was given the number of the device.
        let is_recorded = || self.record.as_ref().is_some_and(|record| record.has(at, line.device));
        let is_left = || match kernel::sign_of_life(at) {
            Sign::Lives => false,
            Sign::Gone => true,
            Sign::Nothing => is_recorded(),
        };
        if line.kind != kernel::KIND || is_ours() || !is_left() {
            return false;
        }
        let detached = place.unmount(true);
        if detached.is_ok() {
            tracing::warn!(at = %at.display(), "detached the mount of a server that has died");
            self.tell_record(|record| record.gone(at, line.device));
        }
        detached.is_ok()
    }

    /// The directory to mount on. What a dead server has left there is taken away.
    fn ready_directory(&self, at: &Path, overlay: bool) -> Result<Place, MountError> {
        let refused = |error: io::Error| refused(&error);
        loop {
            let place = self.past_dead(|| Place::find(at)).map_err(refused)?;
            if place.is_mount_point().map_err(refused)? && self.detach_left(&place.path().map_err(refused)?) {
                continue;
            }
            if !overlay {
                let dir = place.open().map_err(refused)?;
                let mut entries =
                    std::fs::read_dir(format!("/proc/self/fd/{}", dir.as_raw_fd())).map_err(refused)?;
                if entries.next().is_some() {
                    return Err(MountError::NotEmpty);
                }
            }
            return Ok(place);
        }
    }

    fn tell_record(&self, tell: impl FnOnce(&Record) -> io::Result<()>) {
        if let Some(Err(error)) = self.record.as_ref().map(tell) {
            tracing::warn!(%error, "the record of mounts: what this server leaves behind if it dies may stay");
        }
    }

    fn fuse_options(&self, dataset: &str, options: &MountOptions) -> fuse::MountOptions {
        fuse::MountOptions {
            source: dataset.to_owned(),
            allow_other: options.allow_other,
            writable: !options.read_only,
            // Whoever is not root would give away what the owner of a pool has made up.
            setuid: options.setuid && is_root(),
            devices: options.devices && is_root(),
            exec: options.exec,
            threads: self.settings.threads,
            transport: self.settings.transport,
        }
    }

    fn live(
        &self,
        pool: &Arc<LivePool>,
        dataset: &str,
        options: &MountOptions,
    ) -> Result<LiveService, MountError> {
        let writer = FilesystemWriter::open_for_mount(pool, dataset)?;
        let says = |name: &str| options.temporary.iter().any(|(known, _)| known == name);
        let times = (says("atime") || says("relatime")).then_some(match options.atime {
            AccessTimes::Never => files::AccessTimes::Never,
            AccessTimes::Relative => files::AccessTimes::Relative,
            AccessTimes::Always => files::AccessTimes::Always,
        });
        let service = LiveService::new(writer, self.settings.writeback).with_access_times(times);
        Ok(if says("xattr") { service.without_user_xattrs() } else { service })
    }

    /// Mounts a service and watches over its mount.
    fn start(
        &self,
        dataset: &str,
        place: &Place,
        options: &MountOptions,
        serves: &Arc<dyn Service>,
        behind: Behind,
    ) -> Result<(), MountError> {
        let system = |error: io::Error| refused(&error);
        let dir = place.open().map_err(system)?;
        let at = place.path().map_err(system)?;
        let before = place.top().map_err(system)?;
        self.tell_record(|record| record.note(&at));
        let wanted = self.fuse_options(dataset, options);
        let mounted = fuse::mount_in(serves, dir, at.clone(), &wanted).map_err(fuse_refused)?;
        let notifier = Arc::clone(mounted.notifier());
        if let Behind::Live { service, pool } = &behind {
            service.set_notifier(&notifier);
            let keeper: Arc<dyn Outside> = Arc::clone(&self.inner) as _;
            pool.add_outside(&keeper);
        }
        let (_, waiter) = mounted.split();
        let top = place.top().map_err(system)?;
        if top == before {
            // Somebody has unmounted it already: its threads end.
            return Err(MountError::NotMounted);
        }
        let mount = Arc::new(Mount {
            name: Mutex::new(dataset.to_owned()),
            options: Mutex::new(options.clone()),
            at,
            device: top.device,
            behind,
            notifier,
            kept: Mutex::default(),
            end: Mutex::default(),
            is_unmounted: AtomicBool::new(false),
            is_settled: AtomicBool::new(false),
            ended: Condvar::new(),
        });
        lock(&self.inner.mounts).push(Arc::clone(&mount));
        self.tell_record(|record| record.mounted(&mount.at, mount.device));
        let (inner, record) = (Arc::clone(&self.inner), self.record.clone());
        let watched = Arc::clone(&mount);
        let ended = move |result| {
            if let Err(error) = result {
                tracing::warn!(at = %watched.at.display(), %error, "a mount ended with an error");
            }
            settle(&inner, record.as_ref(), &watched);
        };
        if let Err(error) = waiter.when_ended(ended) {
            self.inner.take_out(&mount);
            mount.close();
            let _ = place.unmount(true);
            return Err(refused(&error));
        }
        Ok(())
    }

    fn finish(&self, mount: &Arc<Mount>, how: Unmount) -> Result<(), MountError> {
        if !mount.wait(End::Gone, Some(LETTING_GO)) && how != Unmount::Lazy {
            // Another mount namespace has it: that one will see errors, as if the device were gone.
            let ended = kernel::abort(mount.device);
            if !mount.wait(End::Gone, Some(LETTING_GO)) {
                let at = mount.at.display();
                tracing::warn!(%at, ?ended, "a mount is kept by another mount namespace, which sees errors now");
                let (inner, record, mount) =
                    (Arc::clone(&self.inner), self.record.clone(), Arc::clone(mount));
                let settle = move || settle(&inner, record.as_ref(), &mount);
                let spawned = std::thread::Builder::new().name("mount".into()).spawn(settle);
                spawned.map_err(|error| refused(&error))?;
            }
        }
        if !mount.wait(End::Durable, (how == Unmount::Force).then_some(LAST_WRITES)) {
            let why = "not everything could be written".to_owned();
            return Err(MountError::Refused { why });
        }
        Ok(())
    }
}

impl Outside for Inner {
    fn hand_over(&self, dataset: &str) -> Result<(), String> {
        let Some(mount) = self.find(dataset) else { return Ok(()) };
        // A request for a snapshot in `.zfs` waits for this thread, and writes need another.
        let done = if fuse::is_answering() { mount.try_write_back(1) } else { mount.write_back() };
        done.map_err(|error| error.to_string())
    }
}

/// Closes the dataset of a mount that has ended, whoever brought that about, once.
fn settle(inner: &Inner, record: Option<&Record>, mount: &Arc<Mount>) {
    if mount.is_settled.swap(true, Ordering::AcqRel) {
        return;
    }
    let is_on_disk = mount.close();
    mount.set_end(End::Gone);
    // One whose connection was ended is still in the kernel's table, and answers with errors.
    if let Some(record) = record
        && mount.is_gone()
        && let Err(error) = record.gone(&mount.at, mount.device)
    {
        tracing::warn!(%error, "the record of mounts");
    }
    if let Behind::Live { pool, .. } = &mount.behind
        && !is_on_disk
        && let Err(error) = pool.sync()
    {
        tracing::error!(at = %mount.at.display(), %error, "what was written last is not on disk");
    }
    inner.take_out(mount);
    mount.set_end(End::Durable);
}

impl Mounts for MountTable {
    fn list(&self) -> Vec<Mounted> {
        self.inner.let_go_of_unmounted();
        lock(&self.inner.mounts).iter().map(|mount| mount.told()).collect()
    }

    fn mounted(&self, dataset: &str) -> Option<Mounted> {
        self.inner.find_mounted(dataset).map(|mount| mount.told())
    }

    fn below(&self, at: &Path) -> Vec<Mounted> {
        let Ok(at) = self.past_dead(|| Place::find(at)).and_then(|place| place.path()) else {
            return Vec::new();
        };
        let is_below = |mount: &Arc<Mount>| mount.at != at && kernel::is_within(&mount.at, &at);
        self.inner.all().into_iter().filter(is_below).map(|mount| mount.told()).collect()
    }

    fn make_folder(&self, at: &Path) -> io::Result<()> {
        let (place, was_made) = self.past_dead(|| Place::make(at))?;
        if was_made {
            let node = place.top()?.node;
            self.tell_record(|record| record.made(at, node));
        }
        Ok(())
    }

    fn remove_folder(&self, at: &Path) {
        let made = self.record.as_ref().and_then(|record| record.folder(at));
        let Some((node, place)) = made.zip(Place::find(at).ok()) else { return };
        if place.is_mount_point().is_ok_and(|is| !is) && place.remove(node).is_ok() {
            self.tell_record(|record| record.removed(at, node));
        }
    }

    fn stats(&self, dataset: &str) -> Option<FileOps> {
        let mount = self.inner.find(dataset)?;
        mount.live().and_then(|(_, service)| service.counters()).map(FileCounters::sample)
    }

    fn mount(
        &self,
        pool: &Arc<LivePool>,
        dataset: &str,
        at: &Path,
        options: &MountOptions,
    ) -> Result<(), MountError> {
        let (_claim, place) = self.claim_free(dataset, at, options)?;
        let live = self.live(pool, dataset, options)?;
        let service = Arc::new(MountedFs::new(live, pool));
        let serves: Arc<dyn Service> = Arc::clone(&service) as _;
        self.start(dataset, &place, options, &serves, Behind::Live { pool: Arc::clone(pool), service })
    }

    fn mount_view(
        &self,
        pool: &Pool,
        dataset: &str,
        at: &Path,
        options: &MountOptions,
    ) -> Result<(), MountError> {
        let (_claim, place) = self.claim_free(dataset, at, options)?;
        let view = PoolView::new(&pool.dataset(dataset)?, false)?;
        let posix_acl = view.has_posix_acls();
        let name = dataset.to_owned();
        let reporter = move |node, error: &ViewError| {
            tracing::error!(dataset = name, node, %error, "damage");
        };
        let service = ViewService::new(Arc::new(view), posix_acl, Some(Box::new(reporter)));
        let serves: Arc<dyn Service> = Arc::new(service);
        let options = MountOptions { read_only: true, ..options.clone() };
        self.start(dataset, &place, &options, &serves, Behind::View)
    }

    fn unmount(&self, dataset: &str, how: Unmount) -> Result<(), MountError> {
        let _claim = self.inner.claim(dataset);
        let mount = self.inner.find(dataset).ok_or(MountError::NotMounted)?;
        if how == Unmount::Force {
            let _ = mount.try_write_back(0);
        }
        if let Some(place) = mount.place() {
            mount.is_unmounted.store(true, Ordering::Release);
            let ended = place.unmount(false);
            mount.is_unmounted.store(ended.is_ok(), Ordering::Release);
            match (ended, how) {
                (Ok(()), _) => {}
                (Err(error), Unmount::Normal) if is_busy(&error) => {
                    return Err(MountError::Busy { by: users::of(&mount.at) });
                }
                (Err(error), _) if !is_busy(&error) => return Err(refused(&error)),
                (Err(_), Unmount::Force) => {
                    let _ = kernel::abort(mount.device);
                    place.unmount(true).map_err(|error| refused(&error))?;
                }
                (Err(_), _) => {
                    place.unmount(true).map_err(|error| refused(&error))?;
                    // Served on, but no longer ours to show.
                    self.inner.take_out(&mount);
                    return Ok(());
                }
            }
        } else {
            let table = kernel::table();
            if mount.is_within(&table) {
                return Err(mount
                    .hidden_by(&table)
                    .map_or_else(|| MountError::Busy { by: Vec::new() }, |by| MountError::Hidden { by }));
            }
        }
        self.finish(&mount, how)
    }

    fn remount(&self, dataset: &str, options: &MountOptions) -> Result<(), MountError> {
        let _claim = self.inner.claim(dataset);
        let mount = self.inner.find(dataset).ok_or(MountError::NotMounted)?;
        let before = lock(&mount.options).clone();
        let flags = |options| fuse::mount_flags(&self.fuse_options(dataset, options));
        if flags(&before) != flags(options) && is_root() {
            match mount.remount(flags(options)) {
                Ok(()) => {}
                Err(error) if is_busy(&error) => return Err(MountError::Busy { by: users::of(&mount.at) }),
                Err(error) => return Err(refused(&error)),
            }
        }
        *lock(&mount.options) = options.clone();
        Ok(())
    }

    fn wants_new_mount(&self, dataset: &str) -> bool {
        let Some(mount) = self.inner.find(dataset) else { return false };
        mount.live().is_some_and(|(_, service)| service.wants_new_mount())
    }

    fn write_back(&self, name: &str) -> Result<(), MountError> {
        let is_pool = !name.contains('/');
        for mount in self.inner.all() {
            let of = lock(&mount.name).clone();
            let below = of.strip_prefix(name).is_some_and(|rest| rest.starts_with('/'));
            if of == name || (is_pool && below) {
                mount.write_back()?;
            }
        }
        Ok(())
    }

    fn suspend(&self, dataset: &str) -> Result<(), MountError> {
        let Some(mount) = self.inner.find(dataset) else { return Ok(()) };
        let Some((pool, service)) = mount.live() else { return Ok(()) };
        mount.write_back()?;
        // What nobody uses it forgets now.
        mount.shrink(fuse::mount_flags(&self.fuse_options(dataset, &lock(&mount.options).clone())));
        if let Some(live) = service.pause() {
            let used = users::files(&mount.at);
            let below: Vec<PathBuf> = kernel::table().into_iter().map(|line| line.at).collect();
            let paths = used.paths.iter().chain(&below).map(PathBuf::as_path);
            *lock(&mount.kept) =
                Some(Kept { names: service::names_to(&live, &mount.at, paths), manner: live.manner() });
        }
        // The head is let go of when nothing of it is left to be written.
        pool.sync().map_err(|error| cenote::Error::from(error).into()).map(drop)
    }

    fn replaced(&self, dataset: &str) {
        let Some(mount) = self.inner.find(dataset) else { return };
        let Some((pool, service)) = mount.live() else { return };
        let Some(Kept { names, manner }) = lock(&mount.kept).take() else { return };
        let options = lock(&mount.options).clone();
        let flags = fuse::mount_flags(&self.fuse_options(dataset, &options));
        let nodes = service.nodes();
        // All names at once, if nothing is mounted below: it would be taken off with them.
        let mut has_forgotten_names = false;
        match self.live(pool, dataset, &options) {
            Ok(live) => service.enter(live, manner, || {
                has_forgotten_names = !kernel::has_mounts_below(&mount.at) && mount.notifier.forget_names();
            }),
            Err(error) => {
                tracing::error!(dataset, %error, "a mounted file system is gone");
                service.end();
            }
        }
        let forgetting = mount.start_forgetting(nodes.clone(), flags);
        // If all threads of the mount answer about names, none is left for what the kernel waits for.
        let waits = forgetting.as_ref().is_ok_and(|(_, told)| {
            loop {
                match told.recv_timeout(FORGETTING) {
                    Ok(()) => {}
                    Err(error) => break error == RecvTimeoutError::Timeout,
                }
            }
        });
        service.entered();
        if waits {
            tracing::debug!(dataset, "the kernel forgets what a file system had while it is used again");
        }
        if let Ok((thread, _)) = forgetting {
            let _ = thread.join();
        }
        // One by one, and only what is known to be in use: names of which programs stand in the middle.
        if !has_forgotten_names {
            names.iter().for_each(|(dir, name)| mount.notifier.look_again(*dir, name));
            mount.shrink(flags);
        }
        // Answers of before that the kernel had not yet looked at.
        nodes.iter().for_each(|node| mount.notifier.forget_attributes(*node));
        self.snapshots_changed(dataset);
    }

    fn snapshots_in_use(&self, dataset: &str) -> Vec<String> {
        let Some(mount) = self.inner.find(dataset) else { return Vec::new() };
        let at = mount.at.join(SNAPSHOT_DIR);
        let first = |path: &PathBuf| {
            let name = path.strip_prefix(&at).ok()?.components().next()?;
            Some(name.as_os_str().to_string_lossy().into_owned())
        };
        let mut names: Vec<String> = users::files(&at).paths.iter().filter_map(first).collect();
        names.dedup();
        names
    }

    fn snapshots_changed(&self, dataset: &str) {
        let Some(mount) = self.inner.find(dataset) else { return };
        if let Some((_, service)) = mount.live() {
            service.snapshots_changed(dataset);
        }
        // The root's listing too: `.zfs` may be visible now, or no longer.
        mount.notifier.forget_file(SNAPSHOTS);
        mount.notifier.forget_file(ROOT);
    }

    fn renamed(&self, from: &str, to: &str) {
        for mount in self.inner.all() {
            let mut name = lock(&mount.name);
            let rest = name.strip_prefix(from).map(str::to_owned);
            if let Some(rest) = rest.filter(|rest| rest.is_empty() || rest.starts_with('/')) {
                *name = format!("{to}{rest}");
            }
        }
    }
}

fn is_busy(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::ResourceBusy
}

impl std::fmt::Debug for MountTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("MountTable").field(&self.list()).finish()
    }
}
