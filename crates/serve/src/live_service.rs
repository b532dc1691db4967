//! The kernel's questions about a file system that is open for writing.
//!
//! # What always holds
//! - A node is the number of an object (see `lookups`); 1, which no file has, is the root. The kernel checks permissions
//!   (`default_permissions`), so the operations here trust it.
//! - Whoever makes something by a name has the kernel look first: that the name is there all the same means that what it
//!   remembers is old, and it is told to look again (`ESTALE`).
//! - Everything changes through the kernel that caches it, so names and attributes are cached without end. Whoever changes
//!   the file system by another way tells the kernel.
//! - Nothing depends on files being opened here; where it helps they are (`manner`), else `open` is answered "not
//!   needed". A file whose last name goes is kept until the kernel forgets it, which it does when its last descriptor
//!   is closed and not before.
//! - Of a file with set-id bits the kernel asks for the attributes each time, whoever runs it: it must not believe in bits
//!   that are gone. Where they count (see [`crate::fuse::MountOptions::setuid`]) it takes them away itself before it writes; what it
//!   does not see, because it goes around its cache, takes them away here before a byte is written, and capabilities of the
//!   file with them.
//! - A change is acknowledged when it is made; with `sync=always`, when it is durable.
//! - Where the kernel keeps what programs write ([`Manner`]), sizes and times of files are its own: what it sends is taken
//!   as it is. It sends them when a file is closed, synced, or dirty for some seconds. Whoever needs all of it sooner
//!   (a snapshot, a rollback, a report of space) has it written back first ([`crate::fuse::write_back`]).

mod control;
mod lookups;
mod manner;
mod rules;
mod seeking;

use crate::errno::zpl_errno;
use crate::fuse::dirty_pages::DirtyPages;
use crate::fuse::{
    Answer, Caller, CopyRange, Known, Life, Lines, NewNode, NewTime, Notifier, Opened, Service, SetAttr,
    WriteAt, flag,
};
use crate::shown::{END, attr, cursor, position};
use crate::view::{Attr, Entry, Kind, Seek, SpaceInfo, Time};
use cenote::Error;
use cenote::files::served::{BCLONE_WAIT_DIRTY, FileRange, Fs, Hold, NewFile, WriteHow};
use cenote::files::{
    AccessTimes, Allocate, Attrs, BeginError, CaseSensitivity, FileKind, FilesystemWriter, NewAttrs,
    RenameHow, XattrHow, ZplError,
};
use format::ObjectId;
pub(crate) use lookups::{Lookups, is_later};
pub use manner::Manner;
use rustix::io::Errno;
pub(crate) use seeking::seek;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// Stands for the root directory.
const ROOT: u64 = 1;
/// Positions of `.` and `..` in a directory; the cursor after each entry follows, which is stateless.
const DOT: u64 = 1;
const DOT_DOT: u64 = 2;
const SHARDS: usize = 16;
/// Copied at a time, where blocks cannot be shared.
const COPY_CHUNK: usize = 1 << 20;

/// `renameat2`.
const RENAME_NOREPLACE: u32 = 1;
const RENAME_EXCHANGE: u32 = 2;
const RENAME_WHITEOUT: u32 = 4;
const RENAME_WHITEOUT_NEW: u32 = RENAME_WHITEOUT | RENAME_NOREPLACE;
/// `setxattr`.
const XATTR_CREATE: u32 = 1;
const XATTR_REPLACE: u32 = 2;
const XATTR_BOTH: u32 = XATTR_CREATE | XATTR_REPLACE;
/// `fallocate`.
/// The name space of programs' extended attributes.
const USER: &[u8] = b"user.";
const KEEP_SIZE: u32 = 0x01;
const PUNCH_HOLE: u32 = 0x02;
const ZERO_RANGE: u32 = 0x10;

/// Transactions in which files without a name are freed when a file system is served again.
const DRAIN_STEPS: usize = 64;

/// Serves a file system that is open for writing.
pub struct LiveService {
    writer: FilesystemWriter,
    /// Files without a name that the kernel still knows.
    nameless: [Mutex<HashMap<u64, Hold>>; SHARDS],
    /// The kernel may keep dirty pages.
    writeback: bool,
    agreed: manner::Agreed,
    /// What the kernel knows.
    lookups: Arc<Lookups>,
    /// Which reads are noted, if the property does not say.
    access_times: Option<AccessTimes>,
    /// Extended attributes of programs (`user.…`) are not there.
    hides_user_xattrs: bool,
    /// What the kernel has of files; known to whoever is mounted by itself.
    pages: DirtyPages,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What these guard is whole between any two statements.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Of a directory that could not be made for want of room: this process wants to mount something there. The kernel tells the
/// thread that asks.
fn is_for_mount(caller: &Caller, new: &NewNode<'_>, error: &ZplError) -> bool {
    new.kind == Kind::Directory
        && matches!(zpl_errno(error), Errno::DQUOT | Errno::NOSPC)
        && std::path::Path::new(&format!("/proc/self/task/{}", caller.pid)).exists()
}

/// An error of the pool's, for who asked for something durable.
fn pool_errno(error: &Error) -> Errno {
    tracing::error!(%error, "a change could not be made durable");
    Errno::IO
}

fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time { secs: since.as_secs().cast_signed(), nanos: since.subsec_nanos() }
}

impl LiveService {
    /// Serves `writer`. With `writeback` the kernel keeps what programs write until it is asked for, or for some seconds,
    /// where no promise forbids it.
    #[must_use]
    pub fn new(writer: FilesystemWriter, writeback: bool) -> LiveService {
        writer.let_streams_pass();
        let nameless = std::array::from_fn(|_| Mutex::default());
        let agreed = manner::Agreed::new();
        let lookups = Arc::default();
        LiveService {
            writer,
            nameless,
            writeback,
            agreed,
            lookups,
            access_times: None,
            hides_user_xattrs: false,
            pages: DirtyPages::default(),
        }
    }

    /// What the kernel knows of it.
    pub(crate) fn lookups(&self) -> &Arc<Lookups> {
        &self.lookups
    }

    /// Goes on with what was agreed for a mount whose contents these replace, and with what the kernel knows of them.
    pub(crate) fn go_on_with(mut self, manner: Manner, lookups: &Arc<Lookups>) -> LiveService {
        self.go_on_as(manner);
        self.lookups = Arc::clone(lookups);
        self
    }

    /// The files without a name that the kernel still knows, by number and generation. They are let go of, and not freed
    /// before the file system is opened again.
    pub(crate) fn leave_nameless(&self) -> Vec<(ObjectId, u64)> {
        let mut left = Vec::new();
        for shard in &self.nameless {
            for (_, hold) in lock(shard).drain() {
                left.push((hold.id(), hold.attrs().generation));
                hold.leave();
            }
        }
        left
    }

    /// Keeps those files, which were let go of, as long as the kernel knows them. Others without a name are freed.
    pub(crate) fn keep_nameless(&self, left: &[(ObjectId, u64)]) {
        for (id, generation) in left {
            match self.fs().hold(*id) {
                Ok(hold) if hold.attrs().generation == *generation => self.keep(hold),
                // Not there any more.
                Ok(_) | Err(_) => {}
            }
        }
        if let Err(error) = self.fs().drain(DRAIN_STEPS) {
            tracing::warn!(%error, "unlinked files are not freed yet");
        }
    }

    /// The file system can be changed whatever the property `readonly` says, or only as it says.
    pub(crate) fn set_writable_anyway(&self, is_writable: bool) {
        self.fs().set_writable_anyway(is_writable);
    }

    /// Whether a node stands for a file that is no more, or is another now.
    pub(crate) fn is_lost(&self, node: u64) -> bool {
        let now = || self.fs().attrs(self.id(node)).ok().map(|attrs| attrs.generation);
        node != ROOT && self.lookups.is_lost(node, now)
    }

    /// The same without extended attributes of programs (`user.…`), as mounted with `noxattr`.
    #[must_use]
    pub fn without_user_xattrs(mut self) -> LiveService {
        self.hides_user_xattrs = true;
        self
    }

    /// An error for the names of extended attributes that are not there: access control lists, too, where they do not count.
    fn check_hidden(&self, name: &[u8]) -> Answer<()> {
        let is_hidden = (self.hides_user_xattrs && name.starts_with(USER))
            || (is_acl(name) && !self.fs().options().posix_acls);
        if is_hidden { Err(Errno::OPNOTSUPP) } else { Ok(()) }
    }

    /// The same, noting reads by this rule, whatever the property says.
    #[must_use]
    pub fn with_access_times(mut self, access_times: Option<AccessTimes>) -> LiveService {
        self.access_times = access_times;
        self
    }

    /// What it serves.
    pub fn writer(&self) -> &FilesystemWriter {
        &self.writer
    }

    /// It was read: what the property or the mount says is noted. That it cannot be is no failure of the read.
    fn accessed(&self, id: ObjectId) {
        let _ = match self.access_times {
            Some(rule) => self.fs().accessed_by(id, rule),
            None => self.fs().accessed(id),
        };
    }

    fn access_rule(&self) -> AccessTimes {
        self.access_times.unwrap_or(self.fs().options().access_times)
    }

    fn fs(&self) -> &Arc<Fs> {
        self.writer.fs()
    }

    /// A file is about to be changed by a call of which not every kernel takes back before what the file lends.
    pub(crate) fn before_change(&self, caller: &Caller, node: u64) -> Answer<()> {
        self.take_back_rights(caller, self.id(node))
    }

    fn id(&self, node: u64) -> ObjectId {
        if node == ROOT { self.fs().root() } else { ObjectId(lookups::object_of(node)) }
    }

    /// The node of an object, without others that had its number.
    fn node(&self, id: ObjectId) -> u64 {
        if id == self.fs().root() { ROOT } else { id.0 }
    }

    /// What was made is durable if it is to be; if that fails, the kernel is not told of it.
    fn acknowledged(&self, made: Known) -> Answer<Known> {
        self.settled(self.id(made.entry.node)).inspect_err(|_| self.forget(made.entry.node, 1))?;
        Ok(made)
    }

    fn settled(&self, id: ObjectId) -> Answer<()> {
        self.writer.settled(id).map_err(|error| pool_errno(&error))
    }

    /// Attributes, and how long they are right: what a file takes on the devices is known when it was written there.
    fn attr_of(&self, id: ObjectId) -> Result<(Attr, Life), ZplError> {
        let stat = self.fs().stat(id)?;
        let block_size = u32::try_from(stat.block_size).unwrap_or(1 << 24);
        let shown = attr(id.0, &stat.attrs, stat.blocks_512, block_size);
        Ok((shown, life_of(&stat.attrs, stat.is_unwritten)))
    }

    fn known(&self, id: ObjectId) -> Answer<Known> {
        let (attr, life) = self.attr_of(id).map_err(|e| zpl_errno(&e))?;
        Ok(self.known_as(id, attr, life))
    }

    /// The kernel is told of a file.
    fn known_as(&self, id: ObjectId, attr: Attr, life: Life) -> Known {
        let is_root = id == self.fs().root();
        let node = if is_root { ROOT } else { self.lookups.tell(id.0, attr.generation) };
        Known { entry: Entry { node, attr }, name: self.name_life(), attr: life }
    }

    /// A file, or the directory above, that somebody knows from long ago by its number: a server of NFS, or who opens
    /// files by handles. The kernel compares generations.
    fn by_handle(&self, node: u64, name: &[u8]) -> Answer<Known> {
        let attrs = self.fs().attrs(self.id(node)).map_err(|e| zpl_errno(&e))?;
        if attrs.is_xattr() {
            return Err(Errno::STALE);
        }
        let id = if name == b".." { attrs.parent } else { self.id(node) };
        self.known(id)
    }

    /// Where several spellings are one name, a change of one concerns others that the kernel cannot know.
    fn name_life(&self) -> Life {
        let reader = self.fs().reader();
        let is_exact =
            reader.normalization() == 0 && reader.case_sensitivity() != CaseSensitivity::Insensitive;
        if is_exact { Life::Ever } else { Life::None }
    }

    /// The file has lost a name: if that was its last, it stays until the kernel forgets it.
    fn lost_name(&self, hold: Hold) {
        if hold.attrs().links == 0 || is_removed_dir(&hold.attrs()) {
            self.keep(hold);
        }
    }

    /// Keeps a file without a name while the kernel knows it.
    fn keep(&self, hold: Hold) {
        let (id, generation) = (hold.id().0, hold.attrs().generation);
        let Some(shard) = self.shard(id) else { return };
        lock(shard).insert(id, hold);
        // Forgotten before it was here to be found.
        if !self.lookups.knows(id, generation) {
            self.let_go(id, generation);
        }
    }

    /// The kernel tells that it has forgotten a file some time after its last name was removed. So a change that finds
    /// no room while there are such files is tried again after the next txg, in which they may have gone.
    fn when_removals_are_known(&self, change: impl Fn() -> Result<(), ZplError>) -> Result<(), ZplError> {
        let is_full = |error: &ZplError| {
            matches!(error, ZplError::Begin(BeginError::NoSpace(_) | BeginError::Quota(_)))
        };
        match change() {
            Err(error) if is_full(&error) && self.has_nameless() && self.writer.sync().is_ok() => change(),
            done => done,
        }
    }

    fn has_nameless(&self) -> bool {
        self.nameless.iter().any(|shard| !lock(shard).is_empty())
    }

    /// The kernel no longer knows a file.
    fn let_go(&self, id: u64, generation: u64) {
        let Some(shard) = self.shard(id) else { return };
        let mut shard = lock(shard);
        let is_it = shard.get(&id).is_some_and(|hold| hold.attrs().generation == generation);
        let hold = if is_it { shard.remove(&id) } else { None };
        drop(shard);
        // Which may free the file.
        drop(hold);
    }

    fn shard(&self, id: u64) -> Option<&Mutex<HashMap<u64, Hold>>> {
        self.nameless.get(id as usize % SHARDS)
    }

    /// What the kernel is told of whoever makes something by a name that is there.
    fn unless_it_is_there(error: &ZplError) -> Errno {
        match zpl_errno(error) {
            Errno::EXIST => Errno::STALE,
            other => other,
        }
    }

    fn make_file(
        &self,
        caller: &Caller,
        dir: u64,
        name: &[u8],
        new: &NewNode<'_>,
    ) -> Result<Known, ZplError> {
        let (dir, file) = (self.id(dir), LiveService::new_file(caller, new));
        let made = match self.fs().create(dir, name, &file) {
            Err(error) if is_for_mount(caller, new, &error) => self.fs().create_mount_point(dir, name, &file),
            made => made,
        }?;
        let shown = attr(made.id.0, &made.attrs, 1, 512);
        Ok(self.known_as(made.id, shown, life_of(&made.attrs, false)))
    }

    fn remove(
        &self,
        dir: u64,
        remove: impl FnOnce(&Arc<Fs>, ObjectId) -> Result<Option<Hold>, ZplError>,
    ) -> Answer<()> {
        let dir = self.id(dir);
        if let Some(hold) = remove(self.fs(), dir).map_err(|e| zpl_errno(&e))? {
            self.lost_name(hold);
        }
        self.settled(dir)
    }

    fn new_file<'n>(caller: &Caller, new: &NewNode<'n>) -> NewFile<'n> {
        NewFile {
            kind: new.kind,
            mode: new.mode,
            umask: caller.umask,
            uid: caller.uid,
            gid: caller.gid,
            rdev: new.rdev,
            target: new.target,
        }
    }

    /// Copies what cannot be shared; how much.
    fn copy_bytes(&self, range: &CopyRange) -> Answer<u64> {
        let mut buf = vec![0; COPY_CHUNK.min(usize::try_from(range.len).unwrap_or(COPY_CHUNK))];
        let (from, to) = (self.id(range.from), self.id(range.to));
        let mut done = 0;
        while done < range.len {
            let want = usize::try_from(range.len - done).map_or(buf.len(), |left| left.min(buf.len()));
            let chunk = buf.get_mut(..want).ok_or(Errno::IO)?;
            let read = match self.fs().read(from, range.from_offset + done, chunk) {
                Ok(0) => break,
                Ok(read) => read,
                Err(_) if done > 0 => break,
                Err(e) => return Err(zpl_errno(&e)),
            };
            let data = chunk.get(..read).ok_or(Errno::IO)?;
            match self.fs().write(to, range.to_offset + done, data, &WriteHow::default()) {
                Ok(_) => done += read as u64,
                Err(_) if done > 0 => break,
                Err(e) => return Err(zpl_errno(&e)),
            }
        }
        Ok(done)
    }
}

/// How long attributes are right; those of an unwritten file will soon tell of more space.
fn life_of(attrs: &Attrs, is_unwritten: bool) -> Life {
    match (rules::lends_rights(attrs), is_unwritten) {
        (true, _) => Life::None,
        (false, true) => Life::Moment,
        (false, false) => Life::Ever,
    }
}

/// An access control list.
fn is_acl(name: &[u8]) -> bool {
    matches!(name, b"system.posix_acl_access" | b"system.posix_acl_default")
}

/// The name spaces of extended attributes that there are, as Linux has them, and a name in them.
fn check_xattr_name(name: &[u8]) -> Answer<()> {
    if is_acl(name) {
        return Ok(());
    }
    match [&b"user."[..], b"trusted.", b"security."].iter().find_map(|space| name.strip_prefix(*space)) {
        Some(b"") => Err(Errno::INVAL),
        Some(_) => Ok(()),
        None => Err(Errno::OPNOTSUPP),
    }
}

/// A directory that was removed has no link left but its own.
fn is_removed_dir(attrs: &Attrs) -> bool {
    FileKind::from_mode(attrs.mode) == Some(FileKind::Directory) && attrs.links < 2
}

impl Service for LiveService {
    fn set_notifier(&self, notifier: &Arc<Notifier>) {
        self.pages.set_notifier(notifier);
        self.lookups.set_device(notifier.number());
    }

    fn abilities(&self, offered: u64) -> u64 {
        let manner = self.agree(offered);
        let acl = if manner.acls { flag::POSIX_ACL } else { 0 };
        let writeback = if manner.writeback { flag::WRITEBACK_CACHE } else { 0 };
        let no_opens = if manner.opens { 0 } else { flag::NO_OPEN_SUPPORT };
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

    fn absent_life(&self) -> Life {
        self.name_life()
    }

    fn lookup(&self, _: &Caller, dir: u64, name: &[u8]) -> Answer<Option<Known>> {
        if matches!(name, b"." | b"..") {
            return self.by_handle(dir, name).map(Some);
        }
        cenote::panics::provoke(name, cenote::panics::TEST_NAMES[0]);
        loop {
            let found = self.fs().lookup(self.id(dir), name).map_err(|e| zpl_errno(&e))?;
            let Some(id) = found else {
                // Long names that are there are found, whether or not more may be made (`longname`).
                let is_possible = name.len() <= self.fs().name_max();
                return if is_possible { Ok(None) } else { Err(Errno::NAMETOOLONG) };
            };
            match self.attr_of(id) {
                Ok((attr, life)) => return Ok(Some(self.known_as(id, attr, life))),
                // Removed between the two: look again.
                Err(ZplError::Stale { .. }) => {}
                Err(e) => return Err(zpl_errno(&e)),
            }
        }
    }

    fn forget(&self, node: u64, count: u64) {
        if let Some(generation) = self.lookups.forget(node, count) {
            self.let_go(lookups::object_of(node), generation);
        }
    }

    fn attr(&self, node: u64, _: Option<u64>) -> Answer<(Attr, Life)> {
        self.attr_of(self.id(node)).map_err(|e| zpl_errno(&e))
    }

    fn set_attr(&self, caller: &Caller, node: u64, new: &SetAttr) -> Answer<(Attr, Life)> {
        let id = self.id(node);
        self.check_times(id, new)?;
        let time = |time: NewTime| match time {
            NewTime::Now => now(),
            NewTime::At(time) => time,
        };
        let mut wanted = NewAttrs {
            mode: new.mode,
            uid: new.uid,
            gid: new.gid,
            size: new.size,
            atime: new.atime.map(time),
            mtime: new.mtime.map(time),
            ctime: new.ctime,
            clear_set_ids: new.kill_set_ids && new.size.is_some(),
            ..NewAttrs::default()
        };
        if new.kill_set_ids
            && new.size.is_none()
            && new.mode.is_none()
            && new.uid.is_none()
            && new.gid.is_none()
        {
            let mode = self.fs().attrs(id).map_err(|e| zpl_errno(&e))?.mode;
            wanted.mode = Some(cenote::files::without_set_ids(mode) & 0o7777);
        }
        if rules::is_bare(new) {
            wanted.mode = self.mode_after_chown(caller, id)?;
        }
        // Also without anything to change, which is a change of the ctime.
        self.fs().set_attrs(id, &wanted).map_err(|e| zpl_errno(&e))?;
        if new.kill_set_ids || new.size.is_some() || new.uid.is_some() || new.gid.is_some() {
            self.drop_set_ids(caller, id)?;
        }
        self.settled(id)?;
        self.attr(node, None)
    }

    fn read_link(&self, node: u64) -> Answer<Vec<u8>> {
        let link = self.fs().node(self.id(node)).map_err(|e| zpl_errno(&e))?;
        let target = link.readlink().map_err(|e| zpl_errno(&e))?;
        self.accessed(self.id(node));
        Ok(target)
    }

    fn make(&self, caller: &Caller, dir: u64, name: &[u8], new: &NewNode<'_>) -> Answer<Known> {
        let made = self.make_file(caller, dir, name, new);
        self.acknowledged(made.map_err(|e| LiveService::unless_it_is_there(&e))?)
    }

    fn unlink(&self, _: &Caller, dir: u64, name: &[u8]) -> Answer<()> {
        self.remove(dir, |fs, dir| fs.unlink_kept(dir, name))
    }

    fn rmdir(&self, _: &Caller, dir: u64, name: &[u8]) -> Answer<()> {
        self.remove(dir, |fs, dir| fs.rmdir_kept(dir, name))
    }

    fn rename(&self, caller: &Caller, from: (u64, &[u8]), to: (u64, &[u8]), flags: u32) -> Answer<()> {
        let how = match flags {
            0 => RenameHow::Replace,
            RENAME_NOREPLACE => RenameHow::NoReplace,
            RENAME_EXCHANGE => RenameHow::Exchange,
            // That nothing has the new name is looked at below.
            RENAME_WHITEOUT | RENAME_WHITEOUT_NEW => RenameHow::Whiteout { uid: caller.uid, gid: caller.gid },
            _ => return Err(Errno::INVAL),
        };
        let (from_dir, to_dir) = (self.id(from.0), self.id(to.0));
        let has_new = || Ok(self.fs().lookup(to_dir, to.1).map_err(|e| zpl_errno(&e))?.is_some());
        if flags == RENAME_WHITEOUT_NEW && has_new()? {
            return Err(Errno::EXIST);
        }
        let replaced = self.fs().rename_kept((from_dir, from.1), (to_dir, to.1), how);
        if let Some(hold) = replaced.map_err(|e| zpl_errno(&e))? {
            self.lost_name(hold);
        }
        self.settled(from_dir)?;
        self.settled(to_dir)
    }

    fn link(&self, _: &Caller, node: u64, dir: u64, name: &[u8]) -> Answer<Known> {
        let id = self.id(node);
        self.fs().link(id, self.id(dir), name).map_err(|e| LiveService::unless_it_is_there(&e))?;
        self.settled(id)?;
        self.known(id)
    }

    fn create(
        &self,
        caller: &Caller,
        dir: u64,
        name: &[u8],
        mode: u32,
        flags: u32,
    ) -> Answer<(Known, Opened)> {
        if !self.creates(flags) {
            return Err(Errno::NOSYS);
        }
        let new = NewNode { kind: Kind::Regular, mode, rdev: (0, 0), target: &[] };
        let made = self.make_file(caller, dir, name, &new).map_err(|e| zpl_errno(&e));
        match made {
            Ok(made) => Ok((self.acknowledged(made)?, self.opened_new(flags))),
            // Somebody was faster, and a new file was not asked for.
            Err(Errno::EXIST) if flags & rustix::fs::OFlags::EXCL.bits() == 0 => {
                let found = self.lookup(caller, dir, name)?.ok_or(Errno::NOENT)?;
                Ok((found, self.opened_new(flags)))
            }
            Err(e) => Err(e),
        }
    }

    fn tmpfile(&self, caller: &Caller, dir: u64, mode: u32, flags: u32) -> Answer<(Known, Opened)> {
        let new = NewNode { kind: Kind::Regular, mode, rdev: (0, 0), target: &[] };
        let made = self.fs().tmpfile(self.id(dir), &LiveService::new_file(caller, &new));
        let hold = made.map_err(|e| zpl_errno(&e))?;
        // The kernel knows it first: nothing else keeps it.
        let known = self.known(hold.id())?;
        self.keep(hold);
        Ok((known, self.opened_new(flags)))
    }

    fn open(&self, _: &Caller, node: u64, flags: u32) -> Answer<Opened> {
        if !self.asks_on(flags) {
            return Err(Errno::NOSYS);
        }
        self.opened_again(self.id(node), flags)
    }

    fn open_dir(&self, _: &Caller, _: u64) -> Answer<Opened> {
        // A listing that the kernel keeps would be no access that anybody sees.
        let is_noted = self.access_rule() == AccessTimes::Always && self.manner().opens;
        if is_noted { Ok(Opened::default()) } else { Err(Errno::NOSYS) }
    }

    fn read(&self, node: u64, handle: u64, offset: u64, buf: &mut [u8]) -> Answer<usize> {
        let id = self.id(node);
        if handle != manner::DIRECT {
            // Said before it is read, see `leaves_old_pages`.
            self.note_cached_read(node);
        }
        let read = self.fs().read(id, offset, buf).map_err(|e| zpl_errno(&e))?;
        // That it was read is known; that the time could not be noted is no failure of the read.
        self.accessed(id);
        Ok(read)
    }

    fn write(&self, caller: &Caller, node: u64, write: &WriteAt<'_>) -> Answer<()> {
        let id = self.id(node);
        // Where the end of the file is, the kernel knows best: it appends by itself. The times of what it kept, too.
        let keep_times = write.from_cache && self.manner().writeback;
        match write.from_cache {
            true => {}
            false if write.handle == manner::DIRECT => self.begin_around_cache(caller, id)?,
            false => self.drop_set_ids(caller, id)?,
        }
        let how = WriteHow { append: false, clear_set_ids: write.kill_set_ids, keep_times };
        let put = || self.fs().write(id, write.offset, write.data, &how).map(|_| ());
        match self.when_removals_are_known(put).map_err(|e| zpl_errno(&e)) {
            // Closing a file whose pages could not be written says EIO for all but this.
            Err(Errno::DQUOT) if keep_times => return Err(Errno::NOSPC),
            written => written?,
        };
        // Whoever opened it for that: for others the kernel asks separately. Nobody waits for pages of the cache.
        let is_durable = write.handle == manner::DIRECT
            && write.flags & (rustix::fs::OFlags::DSYNC | rustix::fs::OFlags::SYNC).bits() != 0;
        match (is_durable, write.from_cache) {
            (true, _) => self.fsync(node, write.handle, true),
            (_, false) => self.settled(id),
            _ => Ok(()),
        }
    }

    fn fsync(&self, node: u64, _: u64, _: bool) -> Answer<()> {
        self.writer.fsync(self.id(node)).map_err(|error| pool_errno(&error))
    }

    fn read_dir(&self, node: u64, from: u64, lines: &mut dyn Lines) -> Answer<()> {
        let id = self.id(node);
        if from == 0 {
            // That it was listed is known; that the time could not be noted is no failure.
            self.accessed(id);
        }
        if from < DOT_DOT {
            let attrs = self.fs().attrs(id).map_err(|e| zpl_errno(&e))?;
            let above = self.node(attrs.parent);
            let dots = [(DOT, node, &b"."[..]), (DOT_DOT, above, &b".."[..])];
            for (next, node, name) in dots.into_iter().filter(|(next, ..)| *next > from) {
                if !lines.line(node, Some(Kind::Directory), name, next, None) {
                    return Ok(());
                }
            }
        }
        if from == END {
            return Ok(());
        }
        // A line cannot say that its name is good for now only.
        let wants_files = lines.wants_files() && self.name_life() == Life::Ever;
        // Who changes a directory waits in the kernel for the replies to those who list it, and often longer than for one: so
        // nothing is read that does not fit, and what is read takes no memory of its own.
        let mut left = lines.room();
        let mut takes = |name: usize| {
            let len = lines.len_of(name);
            let fits = len <= left;
            left = left.saturating_sub(len);
            fits
        };
        let page = self.fs().read_dir_page(id, cursor(from), &mut takes).map_err(|e| zpl_errno(&e))?;
        self.fs().prefetch_listed(&page);
        for (name, entry) in page.iter() {
            let node = self.node(entry.id);
            let file = if wants_files { self.known(entry.id).ok() } else { None };
            let kind = file.map_or(entry.kind_hint, |file| Some(file.entry.attr.kind));
            let file = file.map(|file| (file.entry, file.attr));
            if !lines.line(node, kind, name, position(entry.cursor), file) {
                // Not told of it after all.
                file.into_iter().for_each(|(entry, _)| self.forget(entry.node, 1));
                break;
            }
        }
        Ok(())
    }

    fn space(&self, node: u64) -> Answer<SpaceInfo> {
        let stats = self.writer.stats(self.id(node)).map_err(|e| zpl_errno(&e))?;
        let name_max = u32::try_from(stats.name_max).unwrap_or(255);
        Ok(SpaceInfo {
            block_size: u32::try_from(stats.block_size).unwrap_or(1 << 24),
            blocks: stats.blocks,
            free: stats.blocks_free,
            files: stats.files,
            files_free: stats.files_free,
            name_max,
        })
    }

    fn xattr_names(&self, node: u64) -> Answer<Vec<Vec<u8>>> {
        let node = self.fs().node(self.id(node)).map_err(|e| zpl_errno(&e))?;
        let mut names = node.xattrs().map_err(|e| zpl_errno(&e))?;
        names.retain(|name| self.check_hidden(name).is_ok());
        Ok(names)
    }

    fn xattr(&self, node: u64, name: &[u8]) -> Answer<Option<Vec<u8>>> {
        check_xattr_name(name)?;
        self.check_hidden(name)?;
        self.fs().xattr(self.id(node), name).map_err(|e| zpl_errno(&e))
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
        check_xattr_name(name)?;
        self.check_hidden(name)?;
        let id = self.id(node);
        let how = match flags {
            0 => XattrHow::Either,
            XATTR_CREATE => XattrHow::Create,
            XATTR_REPLACE => XattrHow::Replace,
            // Neither can be.
            XATTR_BOTH if self.xattr(node, name)?.is_some() => return Err(Errno::EXIST),
            XATTR_BOTH => return Err(Errno::NODATA),
            _ => return Err(Errno::INVAL),
        };
        self.fs().set_xattr(id, name, value, how).map_err(|e| zpl_errno(&e))?;
        if kill_set_gid {
            const SETGID: u32 = 0o2000;
            let mode = self.fs().attrs(id).map_err(|e| zpl_errno(&e))?.mode & 0o7777;
            let new = NewAttrs { mode: Some(mode & !SETGID), ..NewAttrs::default() };
            self.fs().set_attrs(id, &new).map_err(|e| zpl_errno(&e))?;
        }
        self.settled(id)
    }

    fn remove_xattr(&self, _: &Caller, node: u64, name: &[u8]) -> Answer<()> {
        check_xattr_name(name)?;
        self.check_hidden(name)?;
        let id = self.id(node);
        self.fs().remove_xattr(id, name).map_err(|e| zpl_errno(&e))?;
        self.settled(id)
    }

    fn seek(&self, node: u64, offset: u64, what: Seek) -> Answer<u64> {
        seek(&self.pages, (node, offset), what, || self.find(node, offset, what))
    }

    fn allocate(&self, caller: &Caller, node: u64, offset: u64, len: u64, mode: u32) -> Answer<()> {
        let keep_size = mode & KEEP_SIZE != 0;
        let how = match mode & !KEEP_SIZE {
            0 => Allocate::Reserve { keep_size },
            PUNCH_HOLE if keep_size => Allocate::Punch,
            ZERO_RANGE => Allocate::Zero { keep_size },
            _ => return Err(Errno::OPNOTSUPP),
        };
        let id = self.id(node);
        if matches!(how, Allocate::Reserve { .. }) {
            self.check_room(id, len)?;
        }
        self.take_back_rights(caller, id)?;
        self.fs().fallocate(id, offset, len, how).map_err(|e| zpl_errno(&e))?;
        self.settled(id)
    }

    fn copy_range(&self, caller: &Caller, range: &CopyRange) -> Answer<u64> {
        let (from, to) = (self.id(range.from), self.id(range.to));
        self.take_back_rights(caller, to)?;
        let source = FileRange { id: from, offset: range.from_offset };
        let target = FileRange { id: to, offset: range.to_offset };
        let shared = match self.writer.clone_range(&self.writer, source, target, range.len) {
            Err(ZplError::NotYetWritten { .. }) if BCLONE_WAIT_DIRTY.is_on() => {
                self.writer.sync().map_err(|error| pool_errno(&error))?;
                self.writer.clone_range(&self.writer, source, target, range.len)
            }
            other => other,
        };
        let done = match shared {
            Ok(done) => done,
            // Whatever keeps blocks from being shared, bytes can be copied, or the copy tells why not.
            Err(_) => self.copy_bytes(range)?,
        };
        self.settled(to)?;
        Ok(done)
    }

    fn ioctl(&self, caller: &Caller, node: u64, number: u32, given: &[u8], got: &mut [u8]) -> Answer<usize> {
        self.control(caller, self.id(node), number, given, got)
    }

    fn sync(&self) -> Answer<()> {
        self.writer.sync().map(drop).map_err(|error| pool_errno(&error))
    }
}
