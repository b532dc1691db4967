//! The mounts of a process that keeps pools open: implements [`admin::Mounts`] with FUSE.
//!
//! `table` has the verbs; `mount` is a mount that is served, `ending` handles its end, and `paused` is a
//! mount whose contents are taken away. `kernel` reads and changes the machine's table of mounts, `walk`
//! resolves the paths of mount points, `record` stores what earlier servers have left behind, and `users`
//! finds the programs that keep a mount busy.
//!
//! # What always holds
//! - A dataset has at most one mount, in one place or several: one connection to the kernel serves all
//!   places, and a file is the same file in each. Verbs on one dataset run one after the other; verbs on
//!   different datasets do not wait for each other, except that no mount of a pool begins, changes or ends while
//!   datasets of that pool are renamed.
//! - No lock of the table is held during a call to the kernel that may wait, and threads that answer requests
//!   take none of its locks. So a mount point, or the files of a pool, may lie in another of these mounts.
//! - A mount that another process unmounts (`umount`) is removed from the table, and its dataset closed. If
//!   the mount remains in other places, only that place is removed.
//! - When a dataset is not in the table, all data that were written to it are in the pool, and on disk.
//! - While something is being mounted, no mount drops all of its names at once: the kernel would unmount a
//!   file system from a folder that was looked up before.
//!
//! # Order of locks
//! `mounts` -> one mount's `name`, `spots`. `changing` is held alone; `placing` is held only during
//! notifications of the kernel that never wait.

mod ending;
mod kernel;
mod mount;
mod paused;
mod record;
mod table;
mod users;
mod walk;

use crate::export::{ExportError, LiveFs, PoolView};
use crate::fuse::{self, Service, Transport, ViewService};
use admin::sync::lock;
use admin::{AccessTimes, MountError, MountOptions, Mounted, Mounts, NotWritten, Unmount};
use cenote::files::{self, FilesystemWriter};
use cenote::{Dataset, LivePool, NotHandedOver, Outside, Pool, interrupt};
use ending::Ended;
use kernel::Sign;
use mount::{Backend, End, HEARING_OF_AN_END, LAST_WRITES, Mount, Spot};
use record::ByHand;
pub use record::Record;
use rustix::io::Errno;
use std::collections::{BTreeSet, HashSet};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use walk::{MountPoint, WalkError};

/// Longest wait for the kernel to release a mount that no program uses here: other mount namespaces may have
/// it too.
const LETTING_GO: Duration = Duration::from_secs(3);
/// Most mounts of dead servers that are detached on one path.
const DEAD_MAX: usize = 64;
/// Path of the snapshots in a mount.
const SNAPSHOT_DIR: &str = ".zfs/snapshot";

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Settings of a table of mounts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TableSettings {
    /// How the kernel and the server exchange requests and replies.
    pub transport: Transport,
    /// Whether the kernel caches writes for some seconds.
    pub writeback: bool,
    /// Most threads of a mount that is served over `/dev/fuse`; `None`: a default for the number of
    /// processors.
    pub threads: Option<usize>,
}

/// The mounts of this process.
pub struct MountTable {
    settings: TableSettings,
    inner: Arc<Inner>,
}

#[derive(Default)]
struct Inner {
    record: Option<Record>,
    /// This server is ending: mounts that users made by hand stay in the record, for the next server.
    is_leaving: AtomicBool,
    ended: Arc<Ended>,
    mounts: Mutex<Vec<Arc<Mount>>>,
    changing: Mutex<Changing>,
    changed: Condvar,
    /// Number of threads that are looking up a folder to mount something there.
    placing: Mutex<usize>,
    recent: Mutex<Option<RecentTable>>,
}

/// What verbs are changing.
#[derive(Default)]
struct Changing {
    /// Datasets whose mounts begin, change or end.
    mounts: BTreeSet<String>,
    /// Pools whose datasets are being renamed: no mount of theirs begins, changes or ends.
    names: BTreeSet<String>,
}

impl Changing {
    /// True if a mount of this pool begins, changes or ends.
    fn has_mount_of(&self, pool: &str) -> bool {
        self.mounts.iter().any(|dataset| pool_of(dataset) == pool)
    }
}

fn pool_of(dataset: &str) -> &str {
    dataset.split(['/', '@']).next().unwrap_or(dataset)
}

/// A slightly old copy of the kernel's table, so that thousands of mounts that end one after the other do not
/// read it thousands of times.
struct RecentTable {
    lines: Vec<kernel::Line>,
    until: Instant,
}

/// Fewest lines of a table that is worth keeping.
const LONG_TABLE: usize = 500;
/// A table is kept for this many times as long as reading it took.
const TIMES_AS_LONG: u32 = 20;

/// Marks that a thread looks up a folder and mounts something there: until this is dropped, no mount drops
/// all of its names.
#[must_use]
pub struct Placing<'t>(&'t Inner);

impl Drop for Placing<'_> {
    fn drop(&mut self) {
        *lock(&self.0.placing) -= 1;
    }
}

/// The right to change one dataset's mount.
struct Claim<'t> {
    inner: &'t Inner,
    dataset: String,
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        lock(&self.inner.changing).mounts.remove(&self.dataset);
        self.inner.changed.notify_all();
    }
}

/// The right to rename datasets of one pool: until this is dropped, no mount of the pool begins, changes or ends.
struct HeldNames<'t> {
    inner: &'t Inner,
    pool: String,
}

impl Drop for HeldNames<'_> {
    fn drop(&mut self) {
        lock(&self.inner.changing).names.remove(&self.pool);
        self.inner.changed.notify_all();
    }
}

impl Inner {
    fn placing(&self) -> Placing<'_> {
        *lock(&self.placing) += 1;
        Placing(self)
    }

    /// Waits until no other verb changes this dataset's mount or name; that verb may be waiting for a suspended pool.
    fn claim(&self, dataset: &str) -> Result<Claim<'_>, MountError> {
        let is_free = |changing: &Changing| {
            !changing.names.contains(pool_of(dataset)) && !changing.mounts.contains(dataset)
        };
        let mut changing = self.wait_until(is_free)?;
        changing.mounts.insert(dataset.to_owned());
        Ok(Claim { inner: self, dataset: dataset.to_owned() })
    }

    /// Waits until no mount of this pool begins, changes or ends, and keeps others from it.
    fn hold_names(&self, pool: &str) -> Result<HeldNames<'_>, MountError> {
        let mut changing = self.wait_until(|changing| !changing.names.contains(pool))?;
        // From here on no mount begins, so the wait below ends.
        changing.names.insert(pool.to_owned());
        drop(changing);
        let held = HeldNames { inner: self, pool: pool.to_owned() };
        drop(self.wait_until(|changing| !changing.has_mount_of(pool))?);
        Ok(held)
    }

    fn wait_until(
        &self,
        is_free: impl Fn(&Changing) -> bool,
    ) -> Result<MutexGuard<'_, Changing>, MountError> {
        let mut changing = lock(&self.changing);
        while !is_free(&changing) {
            if interrupt::ends(true) {
                return Err(interrupted());
            }
            let waited = self.changed.wait_timeout(changing, LOOK_EVERY);
            changing = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(changing)
    }

    fn find(&self, dataset: &str) -> Option<Arc<Mount>> {
        lock(&self.mounts).iter().find(|mount| *lock(&mount.name) == dataset).cloned()
    }

    fn all(&self) -> Vec<Arc<Mount>> {
        lock(&self.mounts).clone()
    }

    /// Paths at which programs have bound a mount or a folder of it, so that it outlives its unmounting here.
    fn bound_elsewhere(&self, mount: &Mount) -> io::Result<Vec<PathBuf>> {
        let mut recent = lock(&self.recent);
        let known = recent.as_ref().filter(|table| Instant::now() < table.until);
        // Device numbers are reused at once: only a newly read table proves that the mount is elsewhere.
        if known.is_some_and(|table| mount.bound_elsewhere(&table.lines).is_empty()) {
            return Ok(Vec::new());
        }
        let started = Instant::now();
        let lines = kernel::table()?;
        let also_at = mount.bound_elsewhere(&lines);
        *recent = (lines.len() >= LONG_TABLE)
            .then(|| RecentTable { until: Instant::now() + started.elapsed() * TIMES_AS_LONG, lines });
        Ok(also_at)
    }

    /// Removes a mount that another process has unmounted. It ends by itself, or is served further for
    /// programs that still use it, but is no longer listed.
    fn let_go(&self, mount: &Arc<Mount>) {
        if !mount.wait(End::Durable, Some(LETTING_GO)) {
            self.take_out(mount);
        }
    }

    /// Removes the mounts that were unmounted by `umount`, so that later queries do not show them, even if
    /// their threads are still ending.
    fn let_go_of_unmounted(&self) {
        let mounts = self.all();
        if mounts.is_empty() {
            return;
        }
        let Ok(table) = kernel::table() else { return };
        let here: HashSet<_> = table.iter().map(|line| (line.device, line.at.as_path())).collect();
        for mount in &mounts {
            let (stays, gone): (Vec<Spot>, Vec<Spot>) =
                mount.spots().into_iter().partition(|spot| here.contains(&(mount.device, spot.at.as_path())));
            if gone.is_empty() {
                continue;
            }
            let (moved, gone) = self.follow(mount, gone, &table);
            if moved || !stays.is_empty() {
                gone.iter().for_each(|spot| self.take_from(mount, &spot.at));
            } else if mount.has_ended(&table) {
                self.let_go(mount);
            }
        }
    }

    /// Finds the present path of a mount that is no longer in the places `gone`: a folder above it was
    /// renamed. Returns whether it was found anywhere, and the places that it has left.
    fn follow(&self, mount: &Mount, gone: Vec<Spot>, table: &[kernel::Line]) -> (bool, Vec<Spot>) {
        let is_new = |line: &&kernel::Line| line.device == mount.device && !mount.is_at(&line.at);
        let mut places = table.iter().filter(is_new).map(|line| line.at.clone()).peekable();
        // Device numbers are reused at once.
        if places.peek().is_none() || mount.wait(End::Gone, Some(HEARING_OF_AN_END)) {
            return (false, gone);
        }
        let mut left = Vec::new();
        for spot in gone {
            let Some(at) = places.next() else {
                left.push(spot);
                continue;
            };
            if mount.moved(&spot.at, &at) {
                self.note_gone(mount, &spot.at);
                self.tell_record(|record| record.note(&at));
                self.tell_record(|record| record.mounted(&at, mount.device));
                let dataset = lock(&mount.name).clone();
                self.note_by_hand(&dataset, &at, &spot.options);
            }
        }
        (true, left)
    }

    /// Notes that a mount that remains in other places has left this one.
    fn take_from(&self, mount: &Mount, at: &Path) {
        if mount.leave(at) {
            self.note_gone(mount, at);
        }
    }

    /// Notes that a mount has left a place.
    fn note_gone(&self, mount: &Mount, at: &Path) {
        self.tell_record(|record| record.gone(at, mount.device));
        if !self.is_leaving.load(Ordering::Acquire) {
            self.tell_record(|record| record.not_by_hand(at));
        }
    }

    fn tell_record(&self, tell: impl FnOnce(&Record) -> io::Result<()>) {
        if let Some(Err(error)) = self.record.as_ref().map(tell) {
            tracing::warn!(%error, "the record of mounts: what this server leaves behind if it dies may stay");
        }
    }

    /// Records that a user has mounted a dataset at a path that no property names.
    fn note_by_hand(&self, dataset: &str, at: &Path, options: &MountOptions) {
        if options.by_hand {
            let words: Vec<String> =
                options.temporary.iter().map(|(name, value)| format!("{name}={value}")).collect();
            let (dataset, at) = (dataset.to_owned(), at.to_owned());
            let noted = ByHand { dataset, at, words: words.join(",") };
            self.tell_record(|record| record.mounted_by_hand(&noted));
        }
    }

    /// The mount of a dataset, unless another process has unmounted it.
    fn find_mounted(&self, dataset: &str) -> Option<Arc<Mount>> {
        let mount = self.find(dataset)?;
        if !mount.is_on_top() {
            self.let_go_of_unmounted();
            return self.find(dataset);
        }
        Some(mount)
    }

    /// The places for which `is_meant` holds, oldest first.
    fn told(&self, is_meant: impl Fn(&Path) -> bool) -> Vec<Mounted> {
        let mut told: Vec<(u64, Mounted)> = Vec::new();
        lock(&self.mounts).iter().for_each(|mount| mount.tell(&is_meant, &mut told));
        told.sort_by_key(|(age, _)| *age);
        told.into_iter().map(|(_, mounted)| mounted).collect()
    }

    fn take_out(&self, mount: &Arc<Mount>) {
        lock(&self.mounts).retain(|other| !Arc::ptr_eq(other, mount));
    }
}

/// Interval at which a waiting command checks whether its client still waits.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The error of a command whose client no longer waits for it.
fn interrupted() -> MountError {
    MountError::System(Errno::INTR.into())
}

fn fuse_refused(error: fuse::MountError) -> MountError {
    MountError::System(match error {
        fuse::MountError::Refused { source, .. } => source,
        other => io::Error::other(other),
    })
}

impl MountTable {
    /// A table without mounts.
    #[must_use]
    pub fn new(settings: TableSettings) -> MountTable {
        MountTable { settings, inner: Arc::default() }
    }

    /// Has the table record its mounts, for a later server.
    #[must_use]
    pub fn recorded(self, record: Record) -> MountTable {
        MountTable { inner: Arc::new(Inner { record: Some(record), ..Inner::default() }), ..self }
    }

    /// Whether the requests of a dataset's mount have come over io_uring from its beginning.
    #[must_use]
    pub fn began_with_rings(&self, dataset: &str) -> bool {
        self.inner.find(dataset).is_some_and(|mount| mount.began_with_rings)
    }

    /// Claims a dataset that is not mounted yet, and prepares the directory for it.
    fn claim_free(
        &self,
        dataset: &str,
        at: &Path,
        options: &MountOptions,
    ) -> Result<(Claim<'_>, Placing<'_>, MountPoint), MountError> {
        let claim = self.inner.claim(dataset)?;
        if self.inner.find_mounted(dataset).is_some() {
            return Err(MountError::AlreadyMounted);
        }
        let placing = self.inner.placing();
        Ok((claim, placing, self.ready_directory(at, options.overlay)?))
    }

    /// For a thread that mounts another file system in one of these mounts: must be held from before the
    /// folder is looked up until the file system is mounted there.
    pub fn placing(&self) -> Placing<'_> {
        self.inner.placing()
    }

    /// Calls `walk`, and detaches mounts of dead servers on the path.
    fn past_dead<T>(&self, mut walk: impl FnMut() -> Result<T, WalkError>) -> io::Result<T> {
        for _ in 0..DEAD_MAX {
            match walk() {
                Err(WalkError::Dead { at }) if self.detach_left(&at) => {}
                done => return done.map_err(io::Error::from),
            }
        }
        Err(Errno::NOTCONN.into())
    }

    /// Detaches the mount of a dead server at a path without symbolic links. Returns whether there was one.
    fn detach_left(&self, at: &Path) -> bool {
        let Ok(place) = MountPoint::find(at) else { return false };
        let Some(line) = place.top().ok().and_then(|top| top.line(at)) else { return false };
        let is_ours = || self.inner.all().iter().any(|mount| mount.device == line.device);
        // The server of a recorded mount has ended or is ending; a server that replies is another one, whose
        // mount got the same device number.
        let is_recorded = || self.inner.record.as_ref().is_some_and(|record| record.has(at, line.device));
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

    /// The directory to mount on. A mount of a dead server there is detached.
    fn ready_directory(&self, at: &Path, overlay: bool) -> Result<MountPoint, MountError> {
        loop {
            let place = self.past_dead(|| MountPoint::find(at)).map_err(MountError::System)?;
            if place.is_mount_point().map_err(MountError::System)?
                && self.detach_left(&place.path().map_err(MountError::System)?)
            {
                continue;
            }
            if !overlay {
                let dir = place.open().map_err(MountError::System)?;
                let mut entries = std::fs::read_dir(format!("/proc/self/fd/{}", dir.as_raw_fd()))
                    .map_err(MountError::System)?;
                if entries.next().is_some() {
                    return Err(MountError::NotEmpty);
                }
            }
            return Ok(place);
        }
    }

    fn tell_record(&self, tell: impl FnOnce(&Record) -> io::Result<()>) {
        self.inner.tell_record(tell);
    }

    fn fuse_options(&self, dataset: &str, options: &MountOptions) -> fuse::MountOptions {
        fuse::MountOptions {
            source: dataset.to_owned(),
            allow_other: options.allow_other,
            writable: !options.read_only,
            // In a user's pool, set-id bits may have any value that the pool's owner wrote.
            setuid: options.setuid && is_root(),
            devices: options.devices && is_root(),
            exec: options.exec,
            threads: self.settings.threads,
            transport: self.settings.transport,
            group: 0,
        }
    }

    /// Mounts what is only read.
    fn start_view(
        &self,
        dataset: &Dataset,
        place: &MountPoint,
        options: &MountOptions,
        backend: Backend,
    ) -> Result<(), MountError> {
        let view = PoolView::new(dataset, false)?;
        let posix_acl = view.has_posix_acls();
        let name = dataset.name().to_owned();
        let reporter = move |node, error: &ExportError| {
            tracing::error!(dataset = name, node, %error, "damage");
        };
        let service = ViewService::new(Arc::new(view), posix_acl, Some(Box::new(reporter)));
        let serves: Arc<dyn Service> = Arc::new(service);
        let options = MountOptions { read_only: true, ..options.clone() };
        self.start(dataset.name(), place, &options, &serves, backend)
    }

    /// Mounts a snapshot of a pool that is open for writing.
    fn start_snapshot(
        &self,
        pool: &Arc<LivePool>,
        snapshot: &str,
        place: &MountPoint,
        options: &MountOptions,
    ) -> Result<(), MountError> {
        // The state of now: the snapshot may have been renamed or destroyed before its mount was claimed.
        let view = Pool::from(pool.view().map_err(cenote::Error::from)?);
        let found = view.dataset(snapshot)?;
        let hold = pool.heads().hold_snapshot(found.dsl().id(), &found.dsl().phys().bp);
        let hold = hold.map_err(cenote::Error::from)?;
        let hold = Mutex::new(Some(hold));
        self.start_view(&found, place, options, Backend::View { pool: pool.guid(), hold })
    }

    /// The file system to export for a mount with these options.
    fn live(writer: FilesystemWriter, options: &MountOptions) -> LiveFs {
        let says = |name: &str| options.temporary.iter().any(|(known, _)| known == name);
        let times = (says("atime") || says("relatime")).then_some(match options.atime {
            AccessTimes::Never => files::AccessTimes::Never,
            AccessTimes::Relative => files::AccessTimes::Relative,
            AccessTimes::Always => files::AccessTimes::Always,
        });
        let live = LiveFs::new(writer).with_access_times(times);
        live.set_writable_anyway(is_made_writable(options));
        if says("xattr") { live.without_user_xattrs() } else { live }
    }

    /// Mounts a service and watches for the end of its mount.
    fn start(
        &self,
        dataset: &str,
        place: &MountPoint,
        options: &MountOptions,
        serves: &Arc<dyn Service>,
        backend: Backend,
    ) -> Result<(), MountError> {
        let dir = place.open().map_err(MountError::System)?;
        let at = place.path().map_err(MountError::System)?;
        let before = place.top().map_err(MountError::System)?;
        self.tell_record(|record| record.note(&at));
        let wanted = fuse::MountOptions { group: backend.pool().0, ..self.fuse_options(dataset, options) };
        let mounted = fuse::mount_in(serves, dir, at.clone(), &wanted).map_err(fuse_refused)?;
        let notifier = Arc::clone(mounted.notifier());
        if let Backend::Live { pool, .. } = &backend {
            let keeper: Arc<dyn Outside> = Arc::clone(&self.inner) as _;
            pool.add_outside(&keeper);
        }
        // The mount may have been unmounted already; then its threads end.
        let device =
            mounted.number().filter(|device| *device != before.device).ok_or(MountError::NotMounted)?;
        let rings = mounted.is_over_io_uring();
        let (_, waiter) = mounted.split();
        let spot = Spot::new(at.clone(), options.clone());
        let mount = Mount::new(dataset, spot, device, backend, notifier, rings);
        lock(&self.inner.mounts).push(Arc::clone(&mount));
        self.tell_record(|record| record.mounted(&at, device));
        self.inner.note_by_hand(dataset, &at, options);
        let (inner, watched) = (Arc::clone(&self.inner), Arc::clone(&mount));
        let ended = move |result| {
            if let Err(error) = result {
                tracing::warn!(at = %at.display(), %error, "a mount ended with an error");
            }
            inner.close_soon(&watched);
        };
        if let Err(error) = waiter.when_ended(ended) {
            self.inner.take_out(&mount);
            mount.close();
            let _ = place.unmount(true);
            return Err(MountError::System(error));
        }
        Ok(())
    }

    /// Mounts a file system in one more place. As with OpenZFS, it can be written to in all places or in
    /// none.
    fn put_beside(
        &self,
        mount: &Mount,
        place: &MountPoint,
        options: &MountOptions,
    ) -> Result<(), MountError> {
        let first = mount.first();
        if first.options.read_only != options.read_only {
            return Err(MountError::Busy { by: Vec::new(), also_at: Vec::new() });
        }
        let (dir, at) =
            (place.open().map_err(MountError::System)?, place.path().map_err(MountError::System)?);
        if mount.is_at(&at) {
            return Err(MountError::AlreadyMounted);
        }
        self.tell_record(|record| record.note(&at));
        let dataset = lock(&mount.name).clone();
        let wanted = self.fuse_options(&dataset, options);
        fuse::mount_beside(&mount.notifier, &dir, &wanted).map_err(MountError::System)?;
        mount.add(Spot::new(at.clone(), options.clone()));
        self.tell_record(|record| record.mounted(&at, mount.device));
        self.inner.note_by_hand(&dataset, &at, options);
        Ok(())
    }

    /// Unmounts from several places, the newest first. If one cannot be unmounted, the others are mounted
    /// again.
    fn unmount_spots(&self, mount: &Arc<Mount>, spots: &[Spot], how: Unmount) -> Result<(), MountError> {
        for (index, spot) in spots.iter().enumerate().rev() {
            let is_last = mount.spots().len() == 1;
            let done = match is_last {
                true => self.end(mount, &spot.at, how),
                false => self.take_off(mount, &spot.at, how),
            };
            if let Err(error) = done {
                for gone in spots.get(index + 1..).unwrap_or_default() {
                    let _placing = self.inner.placing();
                    let again = self.ready_directory(&gone.at, true);
                    // The error is returned; a place that could not be mounted again is missing from the
                    // listing.
                    let _ = again.and_then(|place| self.put_beside(mount, &place, &gone.options));
                }
                return Err(error);
            }
        }
        Ok(())
    }

    /// Unmounts a mount from one of several places.
    fn take_off(&self, mount: &Mount, at: &Path, how: Unmount) -> Result<(), MountError> {
        let Some(place) = mount.place_at(at).map_err(MountError::System)? else {
            let table = kernel::table().map_err(MountError::System)?;
            let is_there = table.iter().any(|line| line.device == mount.device && line.at == at);
            if is_there {
                return Err(covered(mount, at, &table));
            }
            self.inner.take_from(mount, at);
            return Ok(());
        };
        match place.unmount(false) {
            Ok(()) => {}
            Err(error) if is_busy(&error) && how == Unmount::Normal => {
                return Err(in_use(at));
            }
            Err(error) if is_busy(&error) => place.unmount(true).map_err(MountError::System)?,
            Err(error) => return Err(MountError::System(error)),
        }
        self.inner.take_from(mount, at);
        Ok(())
    }

    /// Unmounts a mount from its last place: the mount ends.
    fn end(&self, mount: &Arc<Mount>, at: &Path, how: Unmount) -> Result<(), MountError> {
        if how == Unmount::Normal {
            let also_at = self.inner.bound_elsewhere(mount).map_err(MountError::System)?;
            if !also_at.is_empty() {
                let by = also_at.iter().flat_map(|at| users::of(at)).collect();
                return Err(MountError::Busy { by, also_at });
            }
        }
        if how == Unmount::Force {
            let _ = mount.try_write_back(0);
        }
        if let Some(place) = mount.place_at(at).map_err(MountError::System)? {
            mount.is_unmounted.store(true, Ordering::Release);
            let ended = place.unmount(false);
            mount.is_unmounted.store(ended.is_ok(), Ordering::Release);
            match (ended, how) {
                (Ok(()), _) => {}
                (Err(error), Unmount::Normal) if is_busy(&error) => {
                    return Err(in_use(at));
                }
                (Err(error), _) if !is_busy(&error) => return Err(MountError::System(error)),
                (Err(_), Unmount::Force) => {
                    let _ = mount.abort();
                    place.unmount(true).map_err(MountError::System)?;
                }
                (Err(_), _) => {
                    place.unmount(true).map_err(MountError::System)?;
                    // The mount is served further, but no longer listed.
                    self.inner.take_out(mount);
                    return Ok(());
                }
            }
        } else {
            let table = kernel::table().map_err(MountError::System)?;
            if mount.is_within(&table) {
                return Err(covered(mount, at, &table));
            }
        }
        self.finish(mount, how)
    }

    fn finish(&self, mount: &Arc<Mount>, how: Unmount) -> Result<(), MountError> {
        if !mount.wait(End::Gone, Some(LETTING_GO)) && how != Unmount::Lazy {
            // Another mount namespace has the mount: its programs get errors, as if the device were gone.
            let ended = mount.abort();
            if !mount.wait(End::Gone, Some(LETTING_GO)) {
                let at = mount.first().at;
                tracing::warn!(at = %at.display(), ?ended, "a mount is kept by another mount namespace, which sees errors now");
                self.inner.close_soon(mount);
            }
        }
        if !mount.wait(End::Durable, (how == Unmount::Force).then_some(LAST_WRITES)) {
            return Err(MountError::NotWritten(NotWritten::Data));
        }
        Ok(())
    }
}

/// The error for unmounting from a place where another mount is on top.
fn covered(mount: &Mount, at: &Path, table: &[kernel::Line]) -> MountError {
    mount.hidden_by(at, table).map_or_else(
        || MountError::Busy { by: Vec::new(), also_at: Vec::new() },
        |by| MountError::Hidden { by },
    )
}

impl Outside for Inner {
    fn hand_over(&self, dataset: &str) -> Result<(), NotHandedOver> {
        let Some(mount) = self.find(dataset) else { return Ok(()) };
        // A request for a snapshot in `.zfs` waits for this thread, and writes need another one.
        let done = if fuse::is_answering() { mount.try_write_back(1) } else { mount.write_back() };
        done.map_err(NotHandedOver::from)
    }
}

/// Whether a command has mounted the file system writable despite its property `readonly`.
fn is_made_writable(options: &MountOptions) -> bool {
    !options.read_only && options.temporary.iter().any(|(name, _)| name == "readonly")
}

/// The error for a mount that programs use.
fn in_use(at: &Path) -> MountError {
    MountError::Busy { by: users::of(at), also_at: Vec::new() }
}

fn is_busy(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::ResourceBusy
}

impl std::fmt::Debug for MountTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("MountTable").field(&self.list()).finish()
    }
}
