//! The mounts of a process that keeps pools open: what [`cenote::admin::Mounts`] wants, done with FUSE.
//!
//! `service` answers for a mount while its contents come and go, `kernel` asks and changes the machine's table of
//! mounts, `users` finds the programs that hold a mount up.
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

use crate::LiveService;
use crate::fuse::{self, FileCounters, Notifier, Service, Transport, ViewService, Waiter};
use crate::live_service::Manner;
use crate::pool_view::{PoolView, SNAPSHOTS};
use crate::view::ViewError;
use cenote::LivePool;
use cenote::Pool;
use cenote::admin::{AccessTimes, FileOps, MountError, MountOptions, Mounted, Mounts, Unmount};
use cenote::files::{self, FilesystemWriter};
pub use record::Record;
use rustix::io::Errno;
use service::{InUse, MountedFs, Names};
use std::collections::{BTreeSet, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long the kernel may take to let go of a mount that nobody uses here: other mount namespaces may have it too.
const LETTING_GO: Duration = Duration::from_secs(3);
/// How long it may take until a mount that has ended is known to have.
const HEARING_OF_AN_END: Duration = Duration::from_millis(50);
/// How long a mount that is ended by force is given to bring what it has to disk.
const LAST_WRITES: Duration = Duration::from_secs(10);
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
    /// Its dataset was closed, or is being closed.
    is_settled: AtomicBool,
    ended: Condvar,
}

/// What is kept of a mount while its file system is let go of.
struct Kept {
    /// What is in use.
    in_use: InUse,
    /// The names that lead there, and to what is mounted below.
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

    fn take_out(&self, mount: &Arc<Mount>) {
        lock(&self.mounts).retain(|other| !Arc::ptr_eq(other, mount));
    }
}

impl Mount {
    fn set_end(&self, end: End) {
        *lock(&self.end) = end;
        self.ended.notify_all();
    }

    /// Lets go of the dataset.
    fn close(&self) {
        if let Behind::Live { service, .. } = &self.behind {
            service.end();
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
        // What something else covers cannot be reached by its path, and is written to by nobody new.
        if !self.is_on_top() {
            return Ok(());
        }
        match fuse::write_back(&self.at) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(refused(&error)),
            _ => Ok(()),
        }
    }

    /// The same, but not for ever: the pool may be suspended.
    fn try_write_back(self: &Arc<Mount>) {
        let (tell, told) = std::sync::mpsc::channel();
        let mount = Arc::clone(self);
        let spawned = fuse::spawn_anywhere("write-back", move || {
            let _ = tell.send(mount.write_back());
        });
        if spawned.is_ok() {
            let _ = told.recv_timeout(LAST_WRITES);
        }
    }

    /// The kernel has it: nobody has unmounted it without telling us.
    fn is_within(&self, table: &[kernel::Line]) -> bool {
        table.iter().any(|line| line.device == self.device)
    }

    /// Of one that is no longer where it was: the kernel has it no more. Numbers of devices are given to others at once: one
    /// that is elsewhere now was moved there, unless its end is heard of.
    fn has_ended(&self, table: &[kernel::Line]) -> bool {
        !self.is_within(table) || self.wait(End::Gone, Some(HEARING_OF_AN_END))
    }

    /// The mount can be changed by its path: nothing else covers it.
    fn is_on_top(&self) -> bool {
        kernel::on(&self.at).is_some_and(|line| line.device == self.device)
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
    ) -> Result<(Claim<'_>, PathBuf), MountError> {
        let claim = self.inner.claim(dataset);
        self.inner.let_go_of_unmounted();
        if self.inner.find(dataset).is_some() {
            return Err(MountError::AlreadyMounted);
        }
        Ok((claim, ready_directory(at, options.overlay)?))
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
        at: PathBuf,
        options: &MountOptions,
        serves: &Arc<dyn Service>,
        behind: Behind,
    ) -> Result<(), MountError> {
        if let Some(Err(error)) = self.record.as_ref().map(|record| record.note(&at)) {
            tracing::warn!(at = %at.display(), %error, "a mount is not recorded: if this server dies, it stays");
        }
        let mounted = fuse::mount(serves, &at, &self.fuse_options(dataset, options)).map_err(fuse_refused)?;
        let notifier = Arc::clone(mounted.notifier());
        if let Behind::Live { service, .. } = &behind {
            service.set_notifier(&notifier);
        }
        let (_, waiter) = mounted.split();
        let Some(line) = kernel::on(&at) else {
            // Somebody has unmounted it already: its threads end.
            return Err(MountError::NotMounted);
        };
        let mount = Arc::new(Mount {
            name: Mutex::new(dataset.to_owned()),
            options: Mutex::new(options.clone()),
            at,
            device: line.device,
            behind,
            notifier,
            kept: Mutex::default(),
            end: Mutex::default(),
            is_settled: AtomicBool::new(false),
            ended: Condvar::new(),
        });
        lock(&self.inner.mounts).push(Arc::clone(&mount));
        let inner = Arc::clone(&self.inner);
        let watched = Arc::clone(&mount);
        let watch = move || watch(&inner, &watched, waiter);
        if let Err(error) = std::thread::Builder::new().name("mount".into()).spawn(watch) {
            self.inner.take_out(&mount);
            mount.close();
            let _ = fuse::unmount_at(&mount.at, true);
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
                let (inner, mount) = (Arc::clone(&self.inner), Arc::clone(mount));
                let settle = move || settle(&inner, &mount);
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

/// Waits for the end of a mount, whoever brings it about, and closes its dataset.
fn watch(inner: &Inner, mount: &Arc<Mount>, waiter: Waiter) {
    if let Err(error) = waiter.wait() {
        tracing::warn!(at = %mount.at.display(), %error, "a mount ended with an error");
    }
    settle(inner, mount);
}

/// Closes the dataset of a mount that has ended, once.
fn settle(inner: &Inner, mount: &Arc<Mount>) {
    if mount.is_settled.swap(true, Ordering::AcqRel) {
        return;
    }
    mount.close();
    mount.set_end(End::Gone);
    if let Behind::Live { pool, .. } = &mount.behind
        && let Err(error) = pool.sync()
    {
        tracing::error!(at = %mount.at.display(), %error, "what was written last is not on disk");
    }
    inner.take_out(mount);
    mount.set_end(End::Durable);
}

/// The directory to mount on, without links in its path. What a dead server has left there is taken away.
fn ready_directory(at: &Path, overlay: bool) -> Result<PathBuf, MountError> {
    while kernel::is_dead(at) && kernel::on(at).is_some_and(|line| line.kind == kernel::KIND) {
        fuse::unmount_at(at, true).map_err(|error| refused(&error))?;
    }
    let at = at.canonicalize().map_err(|error| refused(&error))?;
    let mut entries = std::fs::read_dir(&at).map_err(|error| refused(&error))?;
    if !overlay && entries.next().is_some() {
        return Err(MountError::NotEmpty);
    }
    Ok(at)
}

impl Mounts for MountTable {
    fn list(&self) -> Vec<Mounted> {
        let of = |mount: &Arc<Mount>| Mounted {
            dataset: lock(&mount.name).clone(),
            at: mount.at.clone(),
            options: lock(&mount.options).clone(),
        };
        self.inner.let_go_of_unmounted();
        lock(&self.inner.mounts).iter().map(of).collect()
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
        let (_claim, at) = self.claim_free(dataset, at, options)?;
        let live = self.live(pool, dataset, options)?;
        let service = Arc::new(MountedFs::new(live, pool));
        let serves: Arc<dyn Service> = Arc::clone(&service) as _;
        self.start(dataset, at, options, &serves, Behind::Live { pool: Arc::clone(pool), service })
    }

    fn mount_view(
        &self,
        pool: &Pool,
        dataset: &str,
        at: &Path,
        options: &MountOptions,
    ) -> Result<(), MountError> {
        let (_claim, at) = self.claim_free(dataset, at, options)?;
        let view = PoolView::new(&pool.dataset(dataset)?, false)?;
        let posix_acl = view.has_posix_acls();
        let name = dataset.to_owned();
        let reporter = move |node, error: &ViewError| {
            tracing::error!(dataset = name, node, %error, "damage");
        };
        let service = ViewService::new(Arc::new(view), posix_acl, Some(Box::new(reporter)));
        let serves: Arc<dyn Service> = Arc::new(service);
        let options = MountOptions { read_only: true, ..options.clone() };
        self.start(dataset, at, &options, &serves, Behind::View)
    }

    fn unmount(&self, dataset: &str, how: Unmount) -> Result<(), MountError> {
        let _claim = self.inner.claim(dataset);
        let mount = self.inner.find(dataset).ok_or(MountError::NotMounted)?;
        if how == Unmount::Force {
            mount.try_write_back();
        }
        if mount.is_on_top() {
            let ended = fuse::unmount_at(&mount.at, false);
            match (ended, how) {
                (Ok(()), _) => {}
                (Err(error), Unmount::Normal) if is_busy(&error) => {
                    return Err(MountError::Busy { by: users::of(&mount.at) });
                }
                (Err(error), _) if !is_busy(&error) => return Err(refused(&error)),
                (Err(_), Unmount::Force) => {
                    let _ = kernel::abort(mount.device);
                    fuse::unmount_at(&mount.at, true).map_err(|error| refused(&error))?;
                }
                (Err(_), _) => {
                    fuse::unmount_at(&mount.at, true).map_err(|error| refused(&error))?;
                    // Served on, but no longer ours to show.
                    self.inner.take_out(&mount);
                    return Ok(());
                }
            }
        } else if mount.is_within(&kernel::table()) {
            return Err(MountError::Busy { by: Vec::new() });
        }
        self.finish(&mount, how)
    }

    fn remount(&self, dataset: &str, options: &MountOptions) -> Result<(), MountError> {
        let _claim = self.inner.claim(dataset);
        let mount = self.inner.find(dataset).ok_or(MountError::NotMounted)?;
        let before = lock(&mount.options).clone();
        let flags = |options| fuse::mount_flags(&self.fuse_options(dataset, options));
        if flags(&before) != flags(options) && is_root() {
            let changed = kernel::remount(&mount.at, flags(options));
            match changed {
                Ok(()) => {}
                Err(Errno::BUSY) => return Err(MountError::Busy { by: users::of(&mount.at) }),
                Err(error) => return Err(refused(&error.into())),
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
        if let Some(live) = service.pause() {
            let used = users::files(&mount.at);
            let below: Vec<PathBuf> = kernel::table().into_iter().map(|line| line.at).collect();
            let paths = used.paths.iter().chain(&below).map(PathBuf::as_path);
            *lock(&mount.kept) = Some(Kept {
                names: service::names_to(&live, &mount.at, paths),
                in_use: service::generations(&live, used.numbers),
                manner: live.manner(),
            });
        }
        // The head is let go of when nothing of it is left to be written.
        pool.sync().map_err(|error| cenote::Error::from(error).into()).map(drop)
    }

    fn replaced(&self, dataset: &str) {
        let Some(mount) = self.inner.find(dataset) else { return };
        let Some((pool, service)) = mount.live() else { return };
        let Some(Kept { in_use, names, manner }) = lock(&mount.kept).take() else { return };
        let options = lock(&mount.options).clone();
        match self.live(pool, dataset, &options) {
            Ok(live) => {
                live.go_on_as(manner);
                service.resume(live, &in_use);
            }
            Err(error) => {
                tracing::error!(dataset, %error, "a mounted file system is gone");
                service.end();
            }
        }
        // What nobody uses is forgotten with its pages; of the rest the kernel is told one by one.
        if is_root() && mount.is_on_top() {
            let _ = kernel::remount(&mount.at, fuse::mount_flags(&self.fuse_options(dataset, &options)));
        }
        // All names at once, if nothing is mounted below: it would be taken off with them.
        if kernel::has_mounts_below(&mount.at) || !mount.notifier.forget_names() {
            names.iter().for_each(|(dir, name)| mount.notifier.look_again(*dir, name));
        }
        for node in in_use.into_keys().chain([ROOT]) {
            mount.notifier.forget_file(node);
        }
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
