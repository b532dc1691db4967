//! A mounted file system whose contents can be replaced under it.
//!
//! # What always holds
//! - While it is paused, requests wait; nothing of the file system is in use, so that it can be rolled back.
//! - When it has ended, every request is an error: nobody waits for ever.

use crate::LiveService;
use crate::fuse::{
    Answer, Caller, CopyRange, FileCounters, Known, Life, Lines, NewNode, Opened, Service, SetAttr, WriteAt,
};
use crate::view::{Attr, Seek, SpaceInfo};
use rustix::io::Errno;
use std::sync::{Condvar, Mutex, PoisonError, RwLock};

/// What stands behind a mount now.
enum State {
    /// It answers.
    Serving(LiveService),
    /// It is being replaced.
    Paused,
    /// There is nothing any more.
    Ended,
}

/// Serves what stands behind a mount at the time.
pub(super) struct MountedFs {
    state: RwLock<State>,
    counters: FileCounters,
    /// For those who wait until it is no longer paused.
    changes: Mutex<()>,
    changed: Condvar,
}

impl MountedFs {
    pub(super) fn new(live: LiveService) -> MountedFs {
        MountedFs {
            state: RwLock::new(State::Serving(live)),
            counters: FileCounters::default(),
            changes: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// Lets go of the file system: returns when no request uses it. What comes meanwhile waits.
    pub(super) fn pause(&self) {
        self.put(State::Paused);
    }

    /// Goes on with this.
    pub(super) fn resume(&self, live: LiveService) {
        self.put(State::Serving(live));
    }

    /// Lets go of the file system for good.
    pub(super) fn end(&self) {
        self.put(State::Ended);
    }

    fn put(&self, new: State) {
        let old = {
            let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *state, new)
        };
        drop(old);
        let _waiters_look = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        self.changed.notify_all();
    }

    /// Asks what is served, once it is.
    pub(super) fn ask<T>(&self, ask: impl FnOnce(&LiveService) -> Answer<T>) -> Answer<T> {
        loop {
            match &*self.state.read().unwrap_or_else(PoisonError::into_inner) {
                State::Serving(live) => return ask(live),
                State::Ended => return Err(Errno::NODEV),
                State::Paused => {}
            }
            self.wait();
        }
    }

    fn wait(&self) {
        let mut changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        while matches!(&*self.state.read().unwrap_or_else(PoisonError::into_inner), State::Paused) {
            changes = self.changed.wait(changes).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Service for MountedFs {
    fn abilities(&self, offered: u64) -> u64 {
        self.ask(|live| Ok(live.abilities(offered))).unwrap_or(0)
    }

    fn counters(&self) -> Option<&FileCounters> {
        Some(&self.counters)
    }

    fn lookup(&self, caller: &Caller, dir: u64, name: &[u8]) -> Answer<Option<Known>> {
        self.ask(|live| live.lookup(caller, dir, name))
    }

    fn forget(&self, node: u64, count: u64) {
        // Nobody waits for this: while it is paused nothing is there that could be forgotten.
        if let State::Serving(live) = &*self.state.read().unwrap_or_else(PoisonError::into_inner) {
            live.forget(node, count);
        }
    }

    fn attr(&self, node: u64, handle: Option<u64>) -> Answer<(Attr, Life)> {
        self.ask(|live| live.attr(node, handle))
    }

    fn set_attr(&self, caller: &Caller, node: u64, new: &SetAttr) -> Answer<(Attr, Life)> {
        self.ask(|live| live.set_attr(caller, node, new))
    }

    fn read_link(&self, node: u64) -> Answer<Vec<u8>> {
        self.ask(|live| live.read_link(node))
    }

    fn make(&self, caller: &Caller, dir: u64, name: &[u8], new: &NewNode<'_>) -> Answer<Known> {
        self.ask(|live| live.make(caller, dir, name, new))
    }

    fn unlink(&self, caller: &Caller, dir: u64, name: &[u8]) -> Answer<()> {
        self.ask(|live| live.unlink(caller, dir, name))
    }

    fn rmdir(&self, caller: &Caller, dir: u64, name: &[u8]) -> Answer<()> {
        self.ask(|live| live.rmdir(caller, dir, name))
    }

    fn rename(&self, caller: &Caller, from: (u64, &[u8]), to: (u64, &[u8]), flags: u32) -> Answer<()> {
        self.ask(|live| live.rename(caller, from, to, flags))
    }

    fn link(&self, caller: &Caller, node: u64, dir: u64, name: &[u8]) -> Answer<Known> {
        self.ask(|live| live.link(caller, node, dir, name))
    }

    fn open(&self, caller: &Caller, node: u64, flags: u32) -> Answer<Opened> {
        self.ask(|live| live.open(caller, node, flags))
    }

    fn create(
        &self,
        caller: &Caller,
        dir: u64,
        name: &[u8],
        mode: u32,
        flags: u32,
    ) -> Answer<(Known, Opened)> {
        self.ask(|live| live.create(caller, dir, name, mode, flags))
    }

    fn tmpfile(&self, caller: &Caller, dir: u64, mode: u32, flags: u32) -> Answer<(Known, Opened)> {
        self.ask(|live| live.tmpfile(caller, dir, mode, flags))
    }

    fn read(&self, node: u64, handle: u64, offset: u64, buf: &mut [u8]) -> Answer<usize> {
        self.ask(|live| live.read(node, handle, offset, buf))
    }

    fn write(&self, caller: &Caller, node: u64, write: &WriteAt<'_>) -> Answer<()> {
        self.ask(|live| live.write(caller, node, write))
    }

    fn flush(&self, node: u64, handle: u64) -> Answer<()> {
        self.ask(|live| live.flush(node, handle))
    }

    fn release(&self, node: u64, handle: u64) {
        if let State::Serving(live) = &*self.state.read().unwrap_or_else(PoisonError::into_inner) {
            live.release(node, handle);
        }
    }

    fn fsync(&self, node: u64, handle: u64, data_only: bool) -> Answer<()> {
        self.ask(|live| live.fsync(node, handle, data_only))
    }

    fn open_dir(&self, caller: &Caller, node: u64) -> Answer<Opened> {
        self.ask(|live| live.open_dir(caller, node))
    }

    fn release_dir(&self, node: u64, handle: u64) {
        if let State::Serving(live) = &*self.state.read().unwrap_or_else(PoisonError::into_inner) {
            live.release_dir(node, handle);
        }
    }

    fn read_dir(&self, node: u64, from: u64, lines: &mut dyn Lines) -> Answer<()> {
        self.ask(|live| live.read_dir(node, from, lines))
    }

    fn space(&self, node: u64) -> Answer<SpaceInfo> {
        self.ask(|live| live.space(node))
    }

    fn xattr_names(&self, node: u64) -> Answer<Vec<Vec<u8>>> {
        self.ask(|live| live.xattr_names(node))
    }

    fn xattr(&self, node: u64, name: &[u8]) -> Answer<Option<Vec<u8>>> {
        self.ask(|live| live.xattr(node, name))
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
        self.ask(|live| live.set_xattr(caller, node, name, value, flags, kill_set_gid))
    }

    fn remove_xattr(&self, caller: &Caller, node: u64, name: &[u8]) -> Answer<()> {
        self.ask(|live| live.remove_xattr(caller, node, name))
    }

    fn seek(&self, node: u64, offset: u64, what: Seek) -> Answer<u64> {
        self.ask(|live| live.seek(node, offset, what))
    }

    fn allocate(&self, caller: &Caller, node: u64, offset: u64, len: u64, mode: u32) -> Answer<()> {
        self.ask(|live| live.allocate(caller, node, offset, len, mode))
    }

    fn copy_range(&self, caller: &Caller, range: &CopyRange) -> Answer<u64> {
        self.ask(|live| live.copy_range(caller, range))
    }

    fn sync(&self) -> Answer<()> {
        self.ask(Service::sync)
    }

    fn ioctl(&self, caller: &Caller, node: u64, number: u32, given: &[u8], got: &mut [u8]) -> Answer<usize> {
        self.ask(|live| live.ioctl(caller, node, number, given, got))
    }
}
