//! The adapter of file systems that are open for writing: translates requests of the kernel for a
//! [`LiveExport`].
//!
//! # What always holds
//! - A node of the kernel is a node of the export. The kernel checks permissions (`default_permissions`).
//! - The kernel caches stable names and attributes without limit; a server that changes the file system
//!   without the kernel notifies it.
//! - Before a program makes something under a name, the kernel looks the name up. If the name exists all the
//!   same when the request arrives, the kernel's cache is out of date, and the reply `ESTALE` has it look
//!   again.
//! - OPEN is optional: it returns `ENOSYS` unless the mount needs file handles (`cache_mode`).
//! - The kernel asks for the attributes of a file with set-id bits each time, whichever program runs it. If
//!   set-id bits are in effect ([`MountOptions::setuid`](super::MountOptions::setuid)) the kernel clears them
//!   before it writes; for writes that bypass its cache the export clears them.
//! - If the kernel caches writes, it sends them when the file is closed or synced, or when they have been
//!   dirty for some seconds. Code that needs all data sooner (a snapshot, a rollback, a report of space)
//!   first has the kernel write back ([`write_back`](super::write_back::write_back)).

use super::cache_mode::{CacheMode, UNCACHED, is_durable, needs_opens};
use super::counters::FileCounters;
use super::dirty_pages::DirtyPages;
use super::errno::errno;
use super::flag;
use super::ioctl::Control;
use super::notify::Notifier;
use super::seek::seek;
use super::service::{Answer, Opened, Service, WriteAt, open_flag};
use super::write_back::while_answering;
use crate::affinity::spawn_anywhere;
use crate::export::{
    Attr, Caller, CopyRange, DirSink, ExportError, Known, LiveExport, NewNode, Rename, Seek, SetAttr,
    SpaceInfo, Stability, Write, WriteSource,
};
use cenote::files::{Allocate, XattrHow, ZplError};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::sync::Arc;

/// Flags of `renameat2`.
const RENAME_NOREPLACE: u32 = 1;
const RENAME_EXCHANGE: u32 = 2;
const RENAME_WHITEOUT: u32 = 4;
const RENAME_WHITEOUT_NEW: u32 = RENAME_WHITEOUT | RENAME_NOREPLACE;
/// Flags of `setxattr`.
const XATTR_CREATE: u32 = 1;
const XATTR_REPLACE: u32 = 2;
const XATTR_BOTH: u32 = XATTR_CREATE | XATTR_REPLACE;
/// Modes of `fallocate`.
const KEEP_SIZE: u32 = 0x01;
const PUNCH_HOLE: u32 = 0x02;
const ZERO_RANGE: u32 = 0x10;
/// Access modes of `open` that write.
const WRITES: u32 = 3;

/// The service of an export that is open for writing.
pub struct LiveService {
    export: Arc<LiveExport>,
    mode: CacheMode,
    /// The pages of files in the kernel's cache.
    pages: DirtyPages,
    /// Counters of requests; `None`: requests are not counted.
    counters: Option<FileCounters>,
}

/// The result of an export, with its error as an error number.
fn reply<T>(answer: Result<T, ExportError>) -> Answer<T> {
    answer.map_err(|error| errno(&error))
}

/// [`reply`] for a request that makes something: if the name exists, the kernel is to look it up again.
fn reply_made(answer: Result<Known, ExportError>) -> Answer<Known> {
    match answer {
        Err(ExportError::FileSystem(ZplError::Exists { .. })) => Err(Errno::STALE),
        other => reply(other),
    }
}

impl LiveService {
    /// The service of `export`. With `writeback` the kernel caches writes for some seconds, unless a promise
    /// forbids that (see `cache_mode`).
    #[must_use]
    pub fn new(export: Arc<LiveExport>, writeback: bool) -> LiveService {
        LiveService { export, mode: CacheMode::new(writeback), pages: DirtyPages::default(), counters: None }
    }

    /// Makes the service count requests by kind.
    #[must_use]
    pub(crate) fn counted(mut self) -> LiveService {
        self.counters = Some(FileCounters::default());
        self
    }

    /// The export that this service answers from.
    pub(crate) fn export(&self) -> &Arc<LiveExport> {
        &self.export
    }

    /// Whether properties have changed so that only a new mount keeps all promises.
    pub(crate) fn wants_new_mount(&self) -> bool {
        self.export.ask(|live| Ok(self.mode.wants_new_mount(live))).unwrap_or(false)
    }

    /// Adjusts the cache mode when the contents of the export come back after they were taken away.
    pub(crate) fn contents_return(&self) {
        self.mode.contents_return();
    }

    /// Has the kernel forget a file of a snapshot. The kernel has accepted a write to it, because it does not
    /// ask the server when a file is opened.
    fn take_back(&self, node: u64) {
        let Some(notifier) = self.pages.notifier().map(Arc::clone) else { return };
        // Not by this thread: the kernel waits for its reply.
        let _ = spawn_anywhere("take-back", move || notifier.forget_file(node));
    }
}

impl Service for LiveService {
    fn set_notifier(&self, notifier: &Arc<Notifier>) {
        self.pages.set_notifier(notifier);
    }

    fn counters(&self) -> Option<&FileCounters> {
        self.counters.as_ref()
    }

    fn abilities(&self, offered: u64) -> u64 {
        let Ok(agreed) = self.export.ask(|live| Ok(self.mode.agree(live, offered))) else { return 0 };
        let acl = if agreed.acls { flag::POSIX_ACL } else { 0 };
        let writeback = if agreed.writeback { flag::WRITEBACK_CACHE } else { 0 };
        let no_opens = if agreed.opens { 0 } else { flag::NO_OPEN_SUPPORT };
        flag::DO_READDIRPLUS
            | flag::READDIRPLUS_AUTO
            | flag::CACHE_SYMLINKS
            | flag::NO_OPENDIR_SUPPORT
            | flag::DIRECT_IO_ALLOW_MMAP
            | flag::DONT_MASK
            | flag::HANDLE_KILLPRIV_V2
            | flag::EXPLICIT_INVAL_DATA
            | flag::EXPORT_SUPPORT
            | acl
            | writeback
            | no_opens
    }

    fn absence_stability(&self) -> Stability {
        self.export.absence_stability()
    }

    fn lookup(&self, _: &Caller, dir: u64, name: &[u8]) -> Answer<Option<Known>> {
        reply(self.export.lookup(dir, name))
    }

    fn forget(&self, node: u64, count: u64) {
        self.export.forget(node, count);
    }

    fn attr(&self, node: u64, _: Option<u64>) -> Answer<(Attr, Stability)> {
        reply(self.export.attr(node))
    }

    fn set_attr(&self, caller: &Caller, node: u64, new: &SetAttr) -> Answer<(Attr, Stability)> {
        reply(self.export.set_attr(caller, node, new))
    }

    fn read_link(&self, node: u64) -> Answer<Vec<u8>> {
        reply(self.export.read_link(node))
    }

    fn make(&self, caller: &Caller, dir: u64, name: &[u8], new: &NewNode<'_>) -> Answer<Known> {
        let make = || reply_made(self.export.make(caller, dir, name, new));
        // A snapshot needs the data that the kernel writes back by other requests than this one.
        if self.export.is_in_zfs(dir) { while_answering(make) } else { make() }
    }

    fn unlink(&self, _: &Caller, dir: u64, name: &[u8]) -> Answer<()> {
        reply(self.export.unlink(dir, name))
    }

    fn rmdir(&self, caller: &Caller, dir: u64, name: &[u8]) -> Answer<()> {
        reply(self.export.rmdir(caller, dir, name))
    }

    fn rename(&self, caller: &Caller, from: (u64, &[u8]), to: (u64, &[u8]), flags: u32) -> Answer<()> {
        let how = match flags {
            0 => Rename::Replace,
            RENAME_NOREPLACE => Rename::NoReplace,
            RENAME_EXCHANGE => Rename::Exchange,
            RENAME_WHITEOUT | RENAME_WHITEOUT_NEW => {
                Rename::Whiteout { no_replace: flags == RENAME_WHITEOUT_NEW }
            }
            _ => return Err(Errno::INVAL),
        };
        reply(self.export.rename(caller, from, to, how))
    }

    fn link(&self, _: &Caller, node: u64, dir: u64, name: &[u8]) -> Answer<Known> {
        reply_made(self.export.link(node, dir, name))
    }

    fn open(&self, _: &Caller, node: u64, flags: u32) -> Answer<Opened> {
        if self.export.is_in_zfs(node) {
            // "Not needed" would apply to all files of the mount.
            return match self.mode.agreed().opens {
                true if flags & WRITES != 0 => Err(Errno::ROFS),
                true => Ok(Opened { handle: 0, flags: open_flag::KEEP_CACHE }),
                false => Err(Errno::NOSYS),
            };
        }
        reply(self.export.ask_of(node, |live| {
            Ok(match self.mode.asks_on(live, flags) {
                true => self.mode.opened_again(live, node, flags),
                false => Err(Errno::NOSYS),
            })
        }))?
    }

    fn create(
        &self,
        caller: &Caller,
        dir: u64,
        name: &[u8],
        mode: u32,
        flags: u32,
    ) -> Answer<(Known, Opened)> {
        let is_exclusive = flags & OFlags::EXCL.bits() != 0;
        let made = self.export.make_regular(dir, name, |live| {
            if !self.mode.creates(live, flags) {
                return Ok(None);
            }
            let made = live.create(caller, dir, name, mode, is_exclusive)?;
            Ok(Some((made, self.mode.opened_new(live, flags))))
        });
        reply(made)?.ok_or(Errno::NOSYS)
    }

    fn tmpfile(&self, caller: &Caller, dir: u64, mode: u32, flags: u32) -> Answer<(Known, Opened)> {
        reply(self.export.make_unnamed(dir, |live| {
            Ok((live.tmpfile(caller, dir, mode)?, self.mode.opened_new(live, flags)))
        }))
    }

    fn open_dir(&self, _: &Caller, _: u64) -> Answer<Opened> {
        // If the kernel caches the listing, the server does not see further accesses.
        let is_noted = self.export.ask(|live| Ok(needs_opens(live) && self.mode.agreed().opens));
        if reply(is_noted)? { Ok(Opened::default()) } else { Err(Errno::NOSYS) }
    }

    fn read(&self, node: u64, handle: u64, offset: u64, buf: &mut [u8]) -> Answer<usize> {
        if handle != UNCACHED {
            // Noted before the read, see `leaves_old_pages`.
            self.mode.note_cached_read(&self.export, node);
        }
        reply(self.export.read(node, offset, buf))
    }

    fn write(&self, caller: &Caller, node: u64, write: &WriteAt<'_>) -> Answer<()> {
        if self.export.is_in_zfs(node) {
            self.take_back(node);
        }
        let keeps_times = write.from_cache && self.mode.agreed().writeback;
        let source = match (write.from_cache, write.handle) {
            (true, _) => WriteSource::ClientCache { keeps_times },
            (false, UNCACHED) => WriteSource::Uncached,
            (false, _) => WriteSource::Program,
        };
        let wanted = Write {
            offset: write.offset,
            data: write.data,
            source,
            clear_set_ids: write.kill_set_ids,
            is_durable: is_durable(write),
        };
        match reply(self.export.write(caller, node, &wanted)) {
            // The kernel turns every error of a write-back into EIO when the file is closed, except this one.
            Err(Errno::DQUOT) if keeps_times => return Err(Errno::NOSPC),
            written => written?,
        }
        if !write.data.is_empty() && self.mode.leaves_old_pages(&self.export, node, write) {
            // Before the kernel learns that the range was written.
            self.pages.drop_range_anyway(node, write.offset, write.data.len() as u64);
        }
        Ok(())
    }

    fn flush(&self, node: u64, _: u64) -> Answer<()> {
        // A program that closes a file which no longer exists loses no data.
        let is_lost = || reply(self.export.ask(|live| Ok(live.is_lost(node))));
        if !self.export.is_in_zfs(node) && is_lost()? { Ok(()) } else { Err(Errno::NOSYS) }
    }

    fn fsync(&self, node: u64, _: u64, _: bool) -> Answer<()> {
        reply(self.export.commit(node))
    }

    fn read_dir(&self, node: u64, from: u64, sink: &mut dyn DirSink) -> Answer<()> {
        reply(self.export.read_dir(node, from, sink))
    }

    fn space(&self, node: u64) -> Answer<SpaceInfo> {
        reply(self.export.space(node))
    }

    fn xattr_names(&self, node: u64) -> Answer<Vec<Vec<u8>>> {
        reply(self.export.xattr_names(node))
    }

    fn xattr(&self, node: u64, name: &[u8]) -> Answer<Option<Vec<u8>>> {
        reply(self.export.xattr(node, name))
    }

    fn set_xattr(
        &self,
        _: &Caller,
        node: u64,
        name: &[u8],
        value: &[u8],
        flags: u32,
        kill_set_gid: bool,
    ) -> Answer<()> {
        let how = match flags {
            0 => XattrHow::Either,
            XATTR_CREATE => XattrHow::Create,
            XATTR_REPLACE => XattrHow::Replace,
            // Both flags at once: no attribute can satisfy them.
            XATTR_BOTH if self.export.is_in_zfs(node) => return Err(Errno::ROFS),
            XATTR_BOTH if self.xattr(node, name)?.is_some() => return Err(Errno::EXIST),
            XATTR_BOTH => return Err(Errno::NODATA),
            _ => return Err(Errno::INVAL),
        };
        reply(self.export.set_xattr(node, name, value, how, kill_set_gid))
    }

    fn remove_xattr(&self, _: &Caller, node: u64, name: &[u8]) -> Answer<()> {
        reply(self.export.remove_xattr(node, name))
    }

    fn seek(&self, node: u64, offset: u64, what: Seek) -> Answer<u64> {
        // If the kernel caches writes, it knows the end of the file. The server also answers what is written
        // back meanwhile: it holds no lock then.
        let find = || reply(self.export.find(node, offset, what, self.mode.agreed().writeback));
        seek(&self.pages, (node, offset), what, find)
    }

    fn allocate(&self, caller: &Caller, node: u64, offset: u64, len: u64, mode: u32) -> Answer<()> {
        let keep_size = mode & KEEP_SIZE != 0;
        let how = match mode & !KEEP_SIZE {
            0 => Allocate::Reserve { keep_size },
            PUNCH_HOLE if keep_size => Allocate::Punch,
            ZERO_RANGE => Allocate::Zero { keep_size },
            _ => return Err(Errno::OPNOTSUPP),
        };
        reply(self.export.allocate(caller, node, offset, len, how))
    }

    fn copy_range(&self, caller: &Caller, range: &CopyRange) -> Answer<u64> {
        reply(self.export.copy_range(caller, range))
    }

    fn sync(&self) -> Answer<()> {
        reply(self.export.sync())
    }

    fn ioctl(&self, caller: &Caller, node: u64, number: u32, given: &[u8], got: &mut [u8]) -> Answer<usize> {
        if self.export.is_in_zfs(node) {
            return Err(Errno::NOTTY);
        }
        let control = Control {
            caller,
            node,
            device: self.pages.notifier().and_then(|notifier| notifier.number()),
            kernel_checks_flags: self.mode.checks_flags,
        };
        let answer = reply(self.export.ask_of(node, |live| Ok(control.answer(live, number, given, got))))?;
        if let (Ok(_), true, Some(notifier)) =
            (&answer, Control::changes_attributes(number), self.pages.notifier())
        {
            notifier.forget_attributes(node);
        }
        answer
    }
}
