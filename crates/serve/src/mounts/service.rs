//! A mounted file system whose contents can be replaced under it, with its snapshots in `.zfs`.
//!
//! # What always holds
//! - While it is paused, requests wait, as long as their callers do; nothing of the file system is in use, so that it can be
//!   rolled back.
//! - Contents are replaced in this order: the nodes that the kernel knows stand for the files that they stood for, or for
//!   none (`live_service::lookups`); it is told that no name is what it was, which waits for nothing; requests about files are
//!   answered again, since it may hold their pages until then; it forgets all attributes and pages; at last requests about
//!   names are answered. What it kept of pages that programs had written is of before, and goes with that.
//! - When it has ended, every request is an error: nobody waits for ever.
//! - A file that is open while its file system is replaced, and is another one or none afterwards, answers `ESTALE`,
//!   until the kernel has let go of it.
//! - Nodes of [`crate::zfsdir`] never reach the file system, and its nodes never that.

use crate::LiveService;
use crate::caller;
use crate::fuse::dirty_pages::DirtyPages;
use crate::fuse::{
    Answer, Caller, CopyRange, FileCounters, Known, Life, Lines, NewNode, Notifier, Opened, Service, SetAttr,
    WriteAt, open_flag,
};
use crate::live_service::{self, Lookups, Manner};
use crate::view::{Attr, Entry, Kind, Seek, SpaceInfo};
use crate::zfsdir::{self, Home, Rights, ZfsDir};
use admin::ADMIN_SNAPSHOT;
use admin::served::ServedFilesystem;
use cenote::files::SnapshotDir;
use cenote::{LivePool, interrupt};
use format::ObjectId;
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, RwLock, RwLockReadGuard, TryLockError};
use std::time::Duration;

/// The root.
const ROOT: u64 = 1;

/// What stands behind a mount now.
enum State {
    /// It answers.
    Serving(Box<LiveService>),
    /// Others than before are there, and the kernel is forgetting those: it answers about files, and not yet about names.
    Entering(Box<LiveService>),
    /// It is being replaced.
    Paused,
    /// There is nothing any more.
    Ended,
}

impl State {
    fn served(self) -> Option<LiveService> {
        match self {
            State::Serving(live) | State::Entering(live) => Some(*live),
            State::Paused | State::Ended => None,
        }
    }
}

/// Naps of whoever waits until no request uses what is served.
const NAP_MIN: Duration = Duration::from_micros(50);
const NAP_MAX: Duration = Duration::from_millis(10);
/// How often a request that waits looks whether it can go on.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// What a request is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum About {
    /// Files that the kernel knows.
    Files,
    /// Names, and what they stand for.
    Names,
}

/// Serves what stands behind a mount at the time.
pub(super) struct MountedFs {
    state: RwLock<State>,
    /// Somebody waits until no request uses it: no other one begins.
    is_wanted: AtomicBool,
    /// For those who wait until it is no longer paused, or wanted.
    changes: Mutex<()>,
    changed: Condvar,
    /// For which requests may wait.
    pool: Arc<LivePool>,
    zfs: Arc<ZfsDir>,
    /// What the kernel knows, whatever is behind the mount.
    lookups: Arc<Lookups>,
    /// What the kernel has of files.
    pages: DirtyPages,
    /// What was asked of it.
    counters: FileCounters,
}

/// Names: the node of a directory, and a name in it.
pub(super) type Names = BTreeSet<(u64, Vec<u8>)>;

impl MountedFs {
    pub(super) fn new(live: LiveService, pool: &Arc<LivePool>) -> MountedFs {
        MountedFs {
            lookups: Arc::clone(live.lookups()),
            state: RwLock::new(State::Serving(Box::new(live))),
            is_wanted: AtomicBool::new(false),
            changes: Mutex::default(),
            changed: Condvar::new(),
            zfs: ZfsDir::new(Arc::clone(pool)),
            pool: Arc::clone(pool),
            pages: DirtyPages::default(),
            counters: FileCounters::default(),
        }
    }

    /// Lets go of the file system: returns it when no request uses it. What comes meanwhile waits. `None`: the mount has
    /// ended.
    ///
    /// # Errors
    /// [`Errno::INTR`] if the caller waits no longer ([`cenote::interrupt`]); it is served as before.
    pub(super) fn pause(&self) -> Answer<Option<LiveService>> {
        self.is_wanted.store(true, Ordering::Release);
        let mut nap = NAP_MIN;
        let paused = loop {
            let state = match self.state.try_write() {
                Ok(state) => Some(state),
                Err(TryLockError::Poisoned(state)) => Some(state.into_inner()),
                Err(TryLockError::WouldBlock) => None,
            };
            match state {
                Some(state) if matches!(*state, State::Ended) => break Ok(State::Ended),
                // Somebody else has it: it comes back.
                Some(mut state) if !matches!(*state, State::Paused) => {
                    break Ok(std::mem::replace(&mut *state, State::Paused));
                }
                _ => {}
            }
            if interrupt::ends(self.is_suspended()) {
                break Err(Errno::INTR);
            }
            std::thread::sleep(nap);
            nap = (2 * nap).min(NAP_MAX);
        };
        self.is_wanted.store(false, Ordering::Release);
        self.wake();
        Ok(paused?.served())
    }

    fn is_suspended(&self) -> bool {
        self.pool.suspended().is_some()
    }

    /// What there is, to be asked; `None`: it is just being replaced, or is about to be.
    fn now(&self) -> Option<RwLockReadGuard<'_, State>> {
        if self.is_wanted.load(Ordering::Acquire) {
            return None;
        }
        match self.state.try_read() {
            Ok(state) => Some(state),
            Err(TryLockError::Poisoned(state)) => Some(state.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// There are other contents: what the kernel knows it by, after which `tell` tells it what waits for nothing, and
    /// requests about files are answered. Nothing happens if the mount has ended.
    pub(super) fn enter(&self, live: LiveService, manner: Manner, tell: impl FnOnce()) {
        self.lookups.replaced();
        let live = live.go_on_with(manner, &self.lookups);
        live.keep_nameless(&[]);
        tell();
        self.go_on(State::Entering(Box::new(live)));
    }

    /// There are the contents that there were, with these files without a name, and all that the kernel knows of them holds.
    /// Nothing happens if the mount has ended.
    pub(super) fn resume(&self, live: LiveService, manner: Manner, nameless: &[(ObjectId, u64)]) {
        let live = live.go_on_with(manner, &self.lookups);
        live.keep_nameless(nameless);
        self.go_on(State::Serving(Box::new(live)));
    }

    /// After a pause.
    fn go_on(&self, new: State) {
        {
            let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
            if matches!(*state, State::Paused) {
                *state = new;
            }
        }
        self.wake();
    }

    /// The kernel has forgotten what was before: requests about names are answered, too.
    pub(super) fn entered(&self) {
        {
            let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
            *state = match std::mem::replace(&mut *state, State::Paused) {
                State::Entering(live) => State::Serving(live),
                other => other,
            };
        }
        self.wake();
    }

    /// The nodes that the kernel knows.
    pub(super) fn nodes(&self) -> Vec<u64> {
        self.lookups.nodes().into_iter().chain([ROOT]).collect()
    }

    /// Lets go of the file system for good. Whether everything that was written to it is on disk.
    pub(super) fn end(&self) -> bool {
        let live = self.put(State::Ended);
        self.zfs.close();
        let written = live.as_ref().map(|live| live.writer().written());
        // Times that are not noted yet are changes.
        drop(live);
        written.is_some_and(|written| written.is_on_disk())
    }

    /// Snapshots were made, destroyed or renamed by another way.
    pub(super) fn snapshots_changed(&self, dataset: &str) {
        self.zfs.refresh(dataset);
    }

    fn put(&self, new: State) -> Option<LiveService> {
        let old = {
            let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *state, new)
        };
        self.wake();
        old.served()
    }

    fn wake(&self) {
        let _waiters_look = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        self.changed.notify_all();
    }

    /// Asks what is served, once it is; told is, too, whether it was there just now.
    fn ask_once<T>(&self, about: About, ask: impl FnOnce(&LiveService, bool) -> Answer<T>) -> Answer<T> {
        loop {
            match self.now().as_deref() {
                Some(State::Serving(live)) => return ask(live, false),
                Some(State::Entering(live)) if about == About::Files => return ask(live, true),
                Some(State::Ended) => return Err(Errno::NODEV),
                Some(State::Paused | State::Entering(_)) | None => {}
            }
            self.wait(about)?;
        }
    }

    /// Asks what is served, once it is.
    pub(super) fn ask<T>(&self, ask: impl FnOnce(&LiveService) -> Answer<T>) -> Answer<T> {
        self.ask_once(About::Files, |live, _| ask(live))
    }

    /// Whether the kernel has agreed to something else than the properties ask for now.
    pub(super) fn wants_new_mount(&self) -> bool {
        self.ask(|live| Ok(live.wants_new_mount())).unwrap_or(false)
    }

    /// Asks it about a file, unless the kernel means one that is no more.
    fn ask_of<T>(&self, node: u64, ask: impl FnOnce(&LiveService) -> Answer<T>) -> Answer<T> {
        // Looked at when it is known which contents are asked.
        self.ask(|live| if live.is_lost(node) { Err(Errno::STALE) } else { ask(live) })
    }

    /// Asks it about names in a directory, and other nodes that have to do with them.
    fn ask_names<T, const N: usize>(
        &self,
        nodes: [u64; N],
        ask: impl FnOnce(&LiveService) -> Answer<T>,
    ) -> Answer<T> {
        self.ask_once(About::Names, |live, _| {
            if nodes.iter().any(|node| live.is_lost(*node)) { Err(Errno::STALE) } else { ask(live) }
        })
    }

    fn waits(&self, about: About) -> bool {
        match self.now().as_deref() {
            Some(State::Paused) | None => true,
            Some(State::Entering(_)) => about == About::Names,
            Some(State::Serving(_) | State::Ended) => false,
        }
    }

    /// Waits until it can be asked; or, as an error, until the caller of the request waits no longer.
    fn wait(&self, about: About) -> Answer<()> {
        let mut changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        while self.waits(about) {
            if interrupt::ends(self.is_suspended()) {
                return Err(Errno::INTR);
            }
            // Whoever replaces it holds it for moments of which nobody is told.
            let waited = self.changed.wait_timeout(changes, LOOK_AGAIN);
            changes = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(())
    }

    /// The file system can be changed whatever the property `readonly` says, or only as it says.
    pub(super) fn set_writable_anyway(&self, is_writable: bool) {
        self.tell(|live| live.set_writable_anyway(is_writable));
    }

    /// Tells what is served something that nobody waits for. `false`: there is nothing to tell.
    fn tell(&self, tell: impl FnOnce(&LiveService)) -> bool {
        match &*self.state.read().unwrap_or_else(PoisonError::into_inner) {
            State::Serving(live) | State::Entering(live) => tell(live),
            State::Paused | State::Ended => return false,
        }
        true
    }

    // ---- .zfs --------------------------------------------------------------------------------

    /// What `.zfs` shows of the file system.
    fn home(&self) -> Answer<Home> {
        self.ask(|live| Ok(Home { root: live.attr(ROOT, None)?.0, name: live.writer().current_name() }))
    }

    /// Asks a snapshot about one of its files.
    fn ask_snapshot<T>(
        &self,
        node: u64,
        ask: impl FnOnce(&crate::fuse::ViewService, u64) -> Answer<T>,
    ) -> Answer<T> {
        let name = self.ask(|live| Ok(live.writer().current_name()))?;
        self.zfs.ask(node, &name, ask)
    }

    /// What the dataset is called now; `None`: it is not served.
    pub(super) fn name(&self) -> Option<Arc<str>> {
        match self.now().as_deref() {
            Some(State::Serving(live) | State::Entering(live)) => Some(live.writer().current_name()),
            _ => None,
        }
    }

    fn snapshot_dir(&self) -> Answer<SnapshotDir> {
        self.ask(|live| Ok(live.writer().fs().options().snapshot_dir))
    }

    fn rights(&self, caller: &Caller) -> Rights {
        let (uid, gid, groups) = (caller.uid, caller.gid, caller::groups(caller));
        Rights { is_on: ADMIN_SNAPSHOT.is_on(), caller: admin::Caller { uid, gid, groups } }
    }

    fn lookup_here(&self, caller: &Caller, dir: u64, name: &[u8]) -> Answer<Option<Known>> {
        let home = self.home()?;
        let found = self.zfs.lookup(caller, dir, name, &home)?;
        // Above all of it is the root.
        Ok(Some(found.unwrap_or(Known {
            entry: Entry { node: ROOT, attr: home.root },
            name: Life::Ever,
            attr: Life::None,
        })))
    }
}

/// A name in the root that stands for `.zfs`: no file has it, whatever the property says.
fn is_entrance(dir: u64, name: &[u8]) -> bool {
    dir == ROOT && name == zfsdir::NAME
}

/// Why no file is made in a directory of `.zfs`.
fn why_no_file(dir: u64) -> Errno {
    match dir {
        dir if zfsdir::is_snapshot(dir) => Errno::ROFS,
        zfsdir::SHARES => Errno::OPNOTSUPP,
        _ => Errno::ACCESS,
    }
}

/// The names on the way to these files, which lie below a mount: each by its directory.
pub(super) fn names_to<'a>(live: &LiveService, at: &Path, paths: impl Iterator<Item = &'a Path>) -> Names {
    let fs = live.writer().fs();
    let root = fs.root();
    // A directory whose number another one had before has another node.
    let node_of = |dir: ObjectId| {
        let generation = fs.attrs(dir).ok().map(|attrs| attrs.generation);
        generation.and_then(|generation| live.lookups().node_of(dir.0, generation)).unwrap_or(dir.0)
    };
    let mut names = Names::new();
    for path in paths {
        let Ok(rest) = path.strip_prefix(at) else { continue };
        let mut dir = root;
        for part in rest.components().map(|part| part.as_os_str().as_bytes()) {
            names.insert((if dir == root { ROOT } else { node_of(dir) }, part.to_vec()));
            let Ok(Some(next)) = fs.lookup(dir, part) else { break };
            dir = next;
        }
    }
    names
}

impl Service for MountedFs {
    fn set_notifier(&self, notifier: &Arc<Notifier>) {
        self.pages.set_notifier(notifier);
        self.lookups.set_device(notifier.number());
    }

    fn counters(&self) -> Option<&FileCounters> {
        Some(&self.counters)
    }

    fn abilities(&self, offered: u64) -> u64 {
        self.ask(|live| Ok(live.abilities(offered))).unwrap_or(0)
    }

    fn lookup(&self, caller: &Caller, dir: u64, name: &[u8]) -> Answer<Option<Known>> {
        if zfsdir::is_here(dir) {
            return self.lookup_here(caller, dir, name);
        }
        if dir == ROOT && name == zfsdir::NAME {
            // Said so that the kernel does not remember it: the property may change.
            return match self.snapshot_dir()? {
                SnapshotDir::Disabled => Err(Errno::NOENT),
                SnapshotDir::Hidden | SnapshotDir::Visible => self.zfs.entrance(&self.home()?).map(Some),
            };
        }
        self.ask_names([dir], |live| live.lookup(caller, dir, name))
    }

    fn absent_life(&self) -> Life {
        self.ask(|live| Ok(live.absent_life())).unwrap_or_default()
    }

    fn forget(&self, node: u64, count: u64) {
        if zfsdir::is_here(node) {
            self.zfs.forget(node, count);
        } else if !self.tell(|live| live.forget(node, count)) {
            self.lookups.forget(node, count);
        }
    }

    fn attr(&self, node: u64, handle: Option<u64>) -> Answer<(Attr, Life)> {
        if zfsdir::is_here(node) {
            return self.zfs.attr(node, &self.home()?);
        }
        let (mut attr, life) = self.ask_of(node, |live| live.attr(node, handle))?;
        // The entrance that the listing shows counts as a directory.
        if node == ROOT && self.snapshot_dir()? == SnapshotDir::Visible {
            attr.nlink = attr.nlink.saturating_add(1);
        }
        Ok((attr, life))
    }

    fn set_attr(&self, caller: &Caller, node: u64, new: &SetAttr) -> Answer<(Attr, Life)> {
        if zfsdir::is_here(node) {
            // As OpenZFS has it: nothing changes, and nobody is told.
            return if zfsdir::is_snapshot(node) { Err(Errno::ROFS) } else { self.attr(node, None) };
        }
        self.ask_of(node, |live| live.set_attr(caller, node, new))
    }

    fn read_link(&self, node: u64) -> Answer<Vec<u8>> {
        if zfsdir::is_here(node) {
            return self.ask_snapshot(node, Service::read_link);
        }
        self.ask_of(node, |live| live.read_link(node))
    }

    fn make(&self, caller: &Caller, dir: u64, name: &[u8], new: &NewNode<'_>) -> Answer<Known> {
        if zfsdir::is_here(dir) {
            match new.kind {
                Kind::Directory => {}
                // A kernel may make them so that programs open.
                Kind::Regular => return Err(why_no_file(dir)),
                _ => return Err(if zfsdir::is_snapshot(dir) { Errno::ROFS } else { Errno::PERM }),
            }
            return self.zfs.make(dir, name, &self.home()?, &self.rights(caller));
        }
        if is_entrance(dir, name) {
            return Err(Errno::EXIST);
        }
        self.ask_names([dir], |live| live.make(caller, dir, name, new))
    }

    fn unlink(&self, caller: &Caller, dir: u64, name: &[u8]) -> Answer<()> {
        if zfsdir::is_here(dir) {
            return Err(if zfsdir::is_snapshot(dir) { Errno::ROFS } else { Errno::PERM });
        }
        if is_entrance(dir, name) {
            return Err(Errno::PERM);
        }
        self.ask_names([dir], |live| live.unlink(caller, dir, name))
    }

    fn rmdir(&self, caller: &Caller, dir: u64, name: &[u8]) -> Answer<()> {
        if zfsdir::is_here(dir) {
            return self.zfs.remove(dir, name, &self.home()?, &self.rights(caller));
        }
        if is_entrance(dir, name) {
            return Err(Errno::EXIST);
        }
        self.ask_names([dir], |live| live.rmdir(caller, dir, name))
    }

    fn rename(&self, caller: &Caller, from: (u64, &[u8]), to: (u64, &[u8]), flags: u32) -> Answer<()> {
        match (zfsdir::is_here(from.0), zfsdir::is_here(to.0)) {
            (true, true) => return self.zfs.rename(from, to, &self.home()?, &self.rights(caller)),
            (true, false) | (false, true) => return Err(Errno::XDEV),
            (false, false) => {}
        }
        if is_entrance(from.0, from.1) || is_entrance(to.0, to.1) {
            return Err(Errno::PERM);
        }
        self.ask_names([from.0, to.0], |live| live.rename(caller, from, to, flags))
    }

    fn link(&self, caller: &Caller, node: u64, dir: u64, name: &[u8]) -> Answer<Known> {
        if zfsdir::is_here(node) || zfsdir::is_here(dir) {
            return Err(if zfsdir::is_here(dir) { Errno::PERM } else { Errno::XDEV });
        }
        if is_entrance(dir, name) {
            return Err(Errno::EXIST);
        }
        self.ask_names([node, dir], |live| live.link(caller, node, dir, name))
    }

    fn open(&self, caller: &Caller, node: u64, flags: u32) -> Answer<Opened> {
        if zfsdir::is_here(node) {
            // "Not needed" would count for all files of the mount.
            return self.ask(|live| match live.manner().opens {
                true if flags & WRITES != 0 => Err(Errno::ROFS),
                true => Ok(Opened { handle: 0, flags: open_flag::KEEP_CACHE }),
                false => Err(Errno::NOSYS),
            });
        }
        self.ask_of(node, |live| live.open(caller, node, flags))
    }

    fn create(
        &self,
        caller: &Caller,
        dir: u64,
        name: &[u8],
        mode: u32,
        flags: u32,
    ) -> Answer<(Known, Opened)> {
        if zfsdir::is_here(dir) {
            return Err(why_no_file(dir));
        }
        if is_entrance(dir, name) {
            return Err(Errno::EXIST);
        }
        self.ask_names([dir], |live| live.create(caller, dir, name, mode, flags))
    }

    fn tmpfile(&self, caller: &Caller, dir: u64, mode: u32, flags: u32) -> Answer<(Known, Opened)> {
        if zfsdir::is_here(dir) {
            return Err(Errno::ROFS);
        }
        self.ask_names([dir], |live| live.tmpfile(caller, dir, mode, flags))
    }

    fn read(&self, node: u64, handle: u64, offset: u64, buf: &mut [u8]) -> Answer<usize> {
        if zfsdir::is_here(node) {
            return self.ask_snapshot(node, |snapshot, node| snapshot.read(node, handle, offset, buf));
        }
        self.ask_of(node, |live| live.read(node, handle, offset, buf))
    }

    fn write(&self, caller: &Caller, node: u64, write: &WriteAt<'_>) -> Answer<()> {
        if zfsdir::is_here(node) {
            self.take_back(node);
            return Err(Errno::ROFS);
        }
        let leaves_old = self.ask_once(About::Files, |live, is_entering| {
            match (write.from_cache, live.is_lost(node)) {
                // What programs wrote before.
                (true, _) if is_entering => Ok(false),
                (_, true) => Err(Errno::STALE),
                (_, false) => {
                    live.write(caller, node, write)?;
                    Ok(live.leaves_old_pages(node, write))
                }
            }
        })?;
        if leaves_old && !write.data.is_empty() {
            // Before the kernel is told that it was written.
            self.pages.drop_range_anyway(node, write.offset, write.data.len() as u64);
        }
        Ok(())
    }

    fn flush(&self, node: u64, handle: u64) -> Answer<()> {
        if zfsdir::is_here(node) {
            return Err(Errno::NOSYS);
        }
        // Whoever closes a file that is no more has nothing to lose.
        self.ask(|live| if live.is_lost(node) { Ok(()) } else { live.flush(node, handle) })
    }

    fn release(&self, node: u64, handle: u64) {
        if !zfsdir::is_here(node) {
            self.tell(|live| live.release(node, handle));
        }
    }

    fn fsync(&self, node: u64, handle: u64, data_only: bool) -> Answer<()> {
        if zfsdir::is_here(node) {
            return Ok(());
        }
        self.ask_of(node, |live| live.fsync(node, handle, data_only))
    }

    fn open_dir(&self, caller: &Caller, node: u64) -> Answer<Opened> {
        self.ask(|live| live.open_dir(caller, if zfsdir::is_here(node) { ROOT } else { node }))
    }

    fn release_dir(&self, node: u64, handle: u64) {
        if !zfsdir::is_here(node) {
            self.tell(|live| live.release_dir(node, handle));
        }
    }

    fn read_dir(&self, node: u64, from: u64, lines: &mut dyn Lines) -> Answer<()> {
        if zfsdir::is_here(node) {
            return self.zfs.read_dir(node, from, lines, &self.home()?);
        }
        if node == ROOT && self.snapshot_dir()? == SnapshotDir::Visible {
            return self.ask_names([node], |live| live.read_dir(node, from, &mut WithEntrance { lines }));
        }
        self.ask_names([node], |live| live.read_dir(node, from, lines))
    }

    fn space(&self, node: u64) -> Answer<SpaceInfo> {
        if zfsdir::is_here(node)
            && let Some(space) = self.zfs.space(node, &self.home()?)?
        {
            return Ok(space);
        }
        self.ask(|live| live.space(if zfsdir::is_here(node) { ROOT } else { node }))
    }

    fn xattr_names(&self, node: u64) -> Answer<Vec<Vec<u8>>> {
        if zfsdir::is_here(node) {
            if !zfsdir::is_snapshot(node) {
                return Ok(Vec::new());
            }
            return self.ask_snapshot(node, Service::xattr_names);
        }
        self.ask_of(node, |live| live.xattr_names(node))
    }

    fn xattr(&self, node: u64, name: &[u8]) -> Answer<Option<Vec<u8>>> {
        if zfsdir::is_here(node) {
            if !zfsdir::is_snapshot(node) {
                return Ok(None);
            }
            return self.ask_snapshot(node, |snapshot, node| snapshot.xattr(node, name));
        }
        self.ask_of(node, |live| live.xattr(node, name))
    }

    fn set_xattr(
        &self,
        caller: &Caller,
        node: u64,
        name: &[u8],
        value: &[u8],
        flags: u32,
        kill_set_gid: bool,
    ) -> Answer<()> {
        if zfsdir::is_here(node) {
            return Err(Errno::ROFS);
        }
        self.ask_of(node, |live| live.set_xattr(caller, node, name, value, flags, kill_set_gid))
    }

    fn remove_xattr(&self, caller: &Caller, node: u64, name: &[u8]) -> Answer<()> {
        if zfsdir::is_here(node) {
            return Err(Errno::ROFS);
        }
        self.ask_of(node, |live| live.remove_xattr(caller, node, name))
    }

    fn seek(&self, node: u64, offset: u64, what: Seek) -> Answer<u64> {
        if zfsdir::is_here(node) {
            return self.zfs.seek(node, offset, what, &self.home()?);
        }
        // What is written back meanwhile is answered as well: nothing is held then.
        live_service::seek(&self.pages, (node, offset), what, || {
            self.ask_of(node, |live| live.find(node, offset, what))
        })
    }

    fn allocate(&self, caller: &Caller, node: u64, offset: u64, len: u64, mode: u32) -> Answer<()> {
        if zfsdir::is_here(node) {
            return Err(Errno::ROFS);
        }
        self.ask_of(node, |live| live.allocate(caller, node, offset, len, mode))
    }

    fn copy_range(&self, caller: &Caller, range: &CopyRange) -> Answer<u64> {
        if zfsdir::is_here(range.to) {
            return Err(Errno::ROFS);
        }
        if zfsdir::is_here(range.from) {
            return self.copy_out(caller, range);
        }
        self.ask_of(range.to, |live| match live.is_lost(range.from) {
            true => Err(Errno::STALE),
            false => live.copy_range(caller, range),
        })
    }

    fn sync(&self) -> Answer<()> {
        self.ask(Service::sync)
    }

    fn ioctl(&self, caller: &Caller, node: u64, number: u32, given: &[u8], got: &mut [u8]) -> Answer<usize> {
        if zfsdir::is_here(node) {
            return Err(Errno::NOTTY);
        }
        self.ask_of(node, |live| live.ioctl(caller, node, number, given, got))
    }
}

/// `open` for writing.
const WRITES: u32 = 3;
/// Copied at a time out of a snapshot.
const COPY_CHUNK: usize = 1 << 20;

impl MountedFs {
    /// The kernel has taken a write to a snapshot, because it does not ask when a file is opened: it forgets it.
    fn take_back(&self, node: u64) {
        let Some(notifier) = self.pages.notifier().map(Arc::clone) else { return };
        // Not by this thread, whose answer the kernel waits for.
        let forget = move || notifier.forget_file(node);
        let _ = crate::fuse::spawn_anywhere("take-back", forget);
    }

    /// Copies from a file of a snapshot: programs restore files so.
    fn copy_out(&self, caller: &Caller, range: &CopyRange) -> Answer<u64> {
        self.ask_of(range.to, |live| live.before_change(caller, range.to))?;
        let mut buf = vec![0; COPY_CHUNK.min(usize::try_from(range.len).unwrap_or(COPY_CHUNK))];
        let mut done = 0;
        while done < range.len {
            let want = usize::try_from(range.len - done).map_or(buf.len(), |left| left.min(buf.len()));
            let chunk = buf.get_mut(..want).ok_or(Errno::IO)?;
            let read = self.read(range.from, 0, range.from_offset + done, chunk);
            let wrote = read.and_then(|read| {
                let data = chunk.get(..read).ok_or(Errno::IO)?;
                let write = WriteAt {
                    handle: 0,
                    offset: range.to_offset + done,
                    data,
                    from_cache: false,
                    kill_set_ids: true,
                    flags: 0,
                };
                if read > 0 {
                    self.write(caller, range.to, &write)?;
                }
                Ok(read)
            });
            match wrote {
                Ok(0) => break,
                Ok(count) => done += count as u64,
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }
}

/// Lines of the root, with `.zfs` after `..`.
struct WithEntrance<'l> {
    lines: &'l mut dyn Lines,
}

impl Lines for WithEntrance<'_> {
    fn line(
        &mut self,
        node: u64,
        kind: Option<Kind>,
        name: &[u8],
        next: u64,
        file: Option<(Entry, Life)>,
    ) -> bool {
        // The position after `.` is that before `..`, which comes again if only one of the two fits.
        if name == b".."
            && !self.lines.line(zfsdir::ENTRANCE, Some(Kind::Directory), zfsdir::NAME, next - 1, None)
        {
            return false;
        }
        self.lines.line(node, kind, name, next, file)
    }

    fn wants_files(&self) -> bool {
        self.lines.wants_files()
    }

    fn len_of(&self, name: usize) -> usize {
        self.lines.len_of(name)
    }

    fn room(&self) -> usize {
        self.lines.room()
    }
}
