//! A file system that is open for writing, in the form in which it is exported: operations by node, for one
//! client that caches.
//!
//! # What always holds
//! - A node is an object number (see `identity`); [`ROOT`], which is no file's object number, is the root.
//!   The client checks permissions (FUSE: `default_permissions`), and the operations here rely on that; the
//!   rules that a client cannot check are in `access`.
//! - All changes pass through the client, so names and attributes are [`Stability::Stable`]. Code that
//!   changes the file system without the client notifies the client.
//! - A file that loses its last name is kept until the client forgets it (`unlinked`).
//! - Attributes of a file with set-id bits are [`Stability::Volatile`]: a client must not use bits that were
//!   cleared.
//! - A change is acknowledged when it is made; with `sync=always`, when it is durable.
//! - If the client caches writes ([`WriteSource::ClientCache`]), it owns sizes and times of files: values
//!   that it sends are stored unchanged.
//!
//! Tests: `tests/it/posix`.

use super::attr_map::{END, attr, cookie, cursor};
use super::caller::Caller;
use super::error::{Answer, ExportError};
use super::identity::{NodeTable, object_of};
use super::seek::Found;
use super::types::{
    Attr, CopyRange, DirLine, DirSink, Entry, Kind, Known, NewNode, NewTime, ROOT, Rename, Seek, SetAttr,
    SpaceInfo, Stability, Time, Write, WriteSource,
};
use super::unlinked::{FileId, Unlinked};
use super::{seek, set_ids};
use admin::served::ServedFilesystem;
use cenote::files::{
    AccessTimes, Allocate, Attrs, BeginError, CaseSensitivity, FileKind, FilesystemWriter, NewAttrs,
    RenameHow, SnapshotDir, XattrHow, ZplError,
};
use cenote::files::{BCLONE_WAIT_DIRTY, FileRange, Fs, Hold, NewFile, WriteHow};
use format::ObjectId;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// Cookies after `.` and after `..`; the cookies of the entries follow (`attr_map`).
const DOT: u64 = 1;
const DOT_DOT: u64 = 2;
/// Bytes that are copied at a time if blocks cannot be shared.
const COPY_CHUNK: usize = 1 << 20;
/// Prefix of the names of extended attributes that belong to programs.
const USER: &[u8] = b"user.";
/// Most transactions that free unlinked files when a file system is opened again.
const DRAIN_STEPS: usize = 64;

/// A file system that is open for writing and exported to one client.
pub struct LiveFs {
    writer: FilesystemWriter,
    unlinked: Unlinked,
    /// The nodes that the client knows.
    nodes: Arc<NodeTable>,
    /// Which reads update access times; `None`: the reads that the properties of the dataset name.
    access_times: Option<AccessTimes>,
    /// Extended attributes of programs (`user.…`) are hidden.
    hides_user_xattrs: bool,
}

/// Whether a directory could not be made for lack of space, and this process wants to mount something there.
fn is_for_mount(caller: &Caller, new: &NewNode<'_>, error: &ZplError) -> bool {
    new.kind == Kind::Directory && is_without_room(error) && caller.is_this_process()
}

/// Whether a change failed because a quota or the pool is full.
fn is_without_room(error: &ZplError) -> bool {
    matches!(
        error,
        ZplError::OverQuota { .. } | ZplError::Begin(BeginError::NoSpace(_) | BeginError::Quota(_))
    ) || error.is_full_directory()
}

fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time { secs: since.as_secs().cast_signed(), nanos: since.subsec_nanos() }
}

impl LiveFs {
    /// Exports the file system that `writer` writes.
    #[must_use]
    pub fn new(writer: FilesystemWriter) -> LiveFs {
        writer.let_streams_pass();
        LiveFs {
            writer,
            unlinked: Unlinked::default(),
            nodes: Arc::default(),
            access_times: None,
            hides_user_xattrs: false,
        }
    }

    /// Hides extended attributes of programs (`user.…`), as the mount option `noxattr` does.
    #[must_use]
    pub(crate) fn without_user_xattrs(mut self) -> LiveFs {
        self.hides_user_xattrs = true;
        self
    }

    /// Sets which reads update access times; `None`: the reads that the properties of the dataset name.
    #[must_use]
    pub(crate) fn with_access_times(mut self, access_times: Option<AccessTimes>) -> LiveFs {
        self.access_times = access_times;
        self
    }

    /// Takes over the node table of an export whose contents this file system replaces.
    pub(super) fn with_nodes(mut self, nodes: &Arc<NodeTable>) -> LiveFs {
        self.nodes = Arc::clone(nodes);
        self
    }

    /// The nodes that the client knows.
    pub(crate) fn nodes(&self) -> &Arc<NodeTable> {
        &self.nodes
    }

    /// Leaves the unlinked files that the client knows to the next opening of the file system, which must be
    /// told which of them to keep before it frees any. Returns these files.
    pub(crate) fn leave_unlinked(&self) -> Vec<FileId> {
        self.unlinked.leave()
    }

    /// Keeps the unlinked files in `left` while the client knows them, and frees all others.
    pub(super) fn keep_unlinked(&self, left: &[FileId]) {
        for (id, generation) in left {
            match self.fs().hold(*id) {
                Ok(hold) if hold.attrs().generation == *generation => self.unlinked.keep(hold, &self.nodes),
                // The file no longer exists.
                Ok(_) | Err(_) => {}
            }
        }
        if let Err(error) = self.fs().drain(DRAIN_STEPS) {
            tracing::warn!(%error, "unlinked files are not freed yet");
        }
    }

    /// Whether there are unlinked files that the client knows.
    pub(super) fn has_unlinked(&self) -> bool {
        !self.unlinked.is_empty()
    }

    /// Allows changes of the file system despite the property `readonly`, or follows the property again.
    pub(crate) fn set_writable_anyway(&self, is_writable: bool) {
        self.fs().set_writable_anyway(is_writable);
    }

    /// Whether the file that a node stood for no longer exists.
    pub(crate) fn is_lost(&self, node: u64) -> bool {
        let now = || self.fs().attrs(self.id(node)).ok().map(|attrs| attrs.generation);
        node != ROOT && self.nodes.is_lost(node, now)
    }

    /// Checks that the name of an extended attribute is neither hidden nor that of an access control list
    /// while those are disabled.
    fn check_hidden(&self, name: &[u8]) -> Answer<()> {
        let is_hidden = (self.hides_user_xattrs && name.starts_with(USER))
            || (is_acl(name) && !self.fs().options().posix_acls);
        if is_hidden { Err(ExportError::Unsupported) } else { Ok(()) }
    }

    /// The file system that is exported.
    pub(crate) fn writer(&self) -> &FilesystemWriter {
        &self.writer
    }

    /// Updates the access time of a file by the rule of the mount or the dataset. A failure does not fail the
    /// read.
    fn accessed(&self, id: ObjectId) {
        let _ = match self.access_times {
            Some(rule) => self.fs().accessed_by(id, rule),
            None => self.fs().accessed(id),
        };
    }

    /// Which reads update access times.
    pub(crate) fn access_rule(&self) -> AccessTimes {
        self.access_times.unwrap_or(self.fs().options().access_times)
    }

    /// How `.zfs` appears in the root.
    pub(super) fn snapshot_dir(&self) -> SnapshotDir {
        self.fs().options().snapshot_dir
    }

    pub(crate) fn fs(&self) -> &Arc<Fs> {
        self.writer.fs()
    }

    /// Prepares a change of a file by a call before which not every client clears set-id bits and
    /// capabilities.
    pub(super) fn before_change(&self, caller: &Caller, node: u64) -> Answer<()> {
        self.take_back_rights(caller, self.id(node))
    }

    /// The object of a node.
    pub(crate) fn id(&self, node: u64) -> ObjectId {
        if node == ROOT { self.fs().root() } else { ObjectId(object_of(node)) }
    }

    /// The node of an object, without regard to other files that had its number.
    pub(crate) fn node(&self, id: ObjectId) -> u64 {
        if id == self.fs().root() { ROOT } else { id.0 }
    }

    /// Makes a new file durable if `sync` asks for that; on failure the client is not told of the file.
    fn acknowledged(&self, made: Known) -> Answer<Known> {
        self.settled(self.id(made.entry.node)).inspect_err(|_| self.forget(made.entry.node, 1))?;
        Ok(made)
    }

    /// Waits until a change of a file is as durable as the property `sync` requires.
    pub(crate) fn settled(&self, id: ObjectId) -> Answer<()> {
        self.writer.settled(id).map_err(ExportError::NotDurable)
    }

    /// Attributes of a file and their stability: the space of a file is known only after the file was
    /// written.
    fn attr_of(&self, id: ObjectId) -> Result<(Attr, Stability), ZplError> {
        let stat = self.fs().stat(id)?;
        let block_size = u32::try_from(stat.block_size).unwrap_or(1 << 24);
        let shown = attr(id.0, &stat.attrs, stat.blocks_512, block_size);
        Ok((shown, stability_of(&stat.attrs, stat.is_unwritten)))
    }

    fn known(&self, id: ObjectId) -> Answer<Known> {
        let (attr, stability) = self.attr_of(id)?;
        Ok(self.known_as(id, attr, stability))
    }

    /// Counts that the client is told of a file with these attributes.
    fn known_as(&self, id: ObjectId, attr: Attr, stability: Stability) -> Known {
        let is_root = id == self.fs().root();
        let node = if is_root { ROOT } else { self.nodes.acquire(id.0, attr.generation) };
        Known { entry: Entry { node, attr }, name: self.name_stability(), attr: stability }
    }

    /// A file or its parent directory, for a client that kept its number: a server of NFS, or a program that
    /// opens files by handles. The client compares generations.
    fn by_handle(&self, node: u64, name: &[u8]) -> Answer<Known> {
        let attrs = self.fs().attrs(self.id(node))?;
        if attrs.is_xattr() {
            return Err(ExportError::Stale);
        }
        let id = if name == b".." { attrs.parent } else { self.id(node) };
        self.known(id)
    }

    /// Stability of names, including absent ones. If several spellings are one name (`casesensitivity`,
    /// `normalization`), a change of one affects spellings that the client does not know to be equal.
    pub(crate) fn name_stability(&self) -> Stability {
        let reader = self.fs().reader();
        let is_exact =
            reader.normalization() == 0 && reader.case_sensitivity() != CaseSensitivity::Insensitive;
        if is_exact { Stability::Stable } else { Stability::Volatile }
    }

    /// Keeps a file that has lost a name until the client forgets it, if that was the last name.
    fn lost_name(&self, hold: Hold) {
        if hold.attrs().links == 0 || is_removed_dir(&hold.attrs()) {
            self.unlinked.keep(hold, &self.nodes);
        }
    }

    /// Makes a change. If it fails for lack of space while there are unlinked files, tries again after the
    /// next txg: the client reports only some time after the removal of the last name that it has forgotten a
    /// file.
    fn when_removals_are_known(&self, change: impl Fn() -> Result<(), ZplError>) -> Result<(), ZplError> {
        let is_full = |error: &ZplError| {
            matches!(error, ZplError::Begin(BeginError::NoSpace(_) | BeginError::Quota(_)))
        };
        match change() {
            Err(error) if is_full(&error) && self.has_unlinked() && self.writer.sync().is_ok() => change(),
            done => done,
        }
    }

    fn make_file(
        &self,
        caller: &Caller,
        dir: u64,
        name: &[u8],
        new: &NewNode<'_>,
    ) -> Result<Known, ZplError> {
        let (dir, file) = (self.id(dir), LiveFs::new_file(caller, new));
        let made = match self.fs().create(dir, name, &file) {
            Err(error) if is_for_mount(caller, new, &error) => self.fs().create_mount_point(dir, name, &file),
            made => made,
        }?;
        let shown = attr(made.id.0, &made.attrs, 1, 512);
        Ok(self.known_as(made.id, shown, stability_of(&made.attrs, false)))
    }

    fn remove(
        &self,
        dir: u64,
        remove: impl FnOnce(&Arc<Fs>, ObjectId) -> Result<Option<Hold>, ZplError>,
    ) -> Answer<()> {
        let dir = self.id(dir);
        if let Some(hold) = remove(self.fs(), dir)? {
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

    // ---- operations ----------------------------------------------------------------------------

    /// Looks up a name in a directory; `None` if there is none.
    pub(super) fn lookup(&self, dir: u64, name: &[u8]) -> Answer<Option<Known>> {
        if matches!(name, b"." | b"..") {
            return self.by_handle(dir, name).map(Some);
        }
        cenote::panics::provoke(name, cenote::panics::TEST_NAMES[0]);
        loop {
            let Some(id) = self.fs().lookup(self.id(dir), name)? else {
                // Existing names longer than the limit are found, whether or not further ones may be made
                // (`longname`).
                let is_possible = name.len() <= self.fs().name_max();
                return if is_possible { Ok(None) } else { Err(ExportError::NameTooLong) };
            };
            match self.attr_of(id) {
                Ok((attr, stability)) => return Ok(Some(self.known_as(id, attr, stability))),
                // The file was removed between the two calls: look it up again.
                Err(ZplError::Stale { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Counts that the client has forgotten a node `count` times.
    pub(super) fn forget(&self, node: u64, count: u64) {
        if let Some(generation) = self.nodes.forget(node, count) {
            self.unlinked.release(object_of(node), generation);
        }
    }

    /// Attributes of a file, and their stability.
    pub(super) fn attr(&self, node: u64) -> Answer<(Attr, Stability)> {
        Ok(self.attr_of(self.id(node))?)
    }

    /// Changes attributes of a file, and returns the new ones.
    pub(super) fn set_attr(&self, caller: &Caller, node: u64, new: &SetAttr) -> Answer<(Attr, Stability)> {
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
            let mode = self.fs().attrs(id)?.mode;
            wanted.mode = Some(cenote::files::without_set_ids(mode) & 0o7777);
        }
        if new.is_bare() {
            wanted.mode = self.mode_after_chown(caller, id)?;
        }
        // Called without any attribute as well: the call updates the ctime.
        self.fs().set_attrs(id, &wanted)?;
        if new.kill_set_ids || new.size.is_some() || new.uid.is_some() || new.gid.is_some() {
            self.drop_set_ids(caller, id)?;
        }
        self.settled(id)?;
        self.attr(node)
    }

    /// Target of a symbolic link.
    pub(super) fn read_link(&self, node: u64) -> Answer<Vec<u8>> {
        let id = self.id(node);
        let target = self.fs().node(id)?.readlink()?;
        self.accessed(id);
        Ok(target)
    }

    /// Makes a file, directory, link or device.
    pub(super) fn make(&self, caller: &Caller, dir: u64, name: &[u8], new: &NewNode<'_>) -> Answer<Known> {
        self.acknowledged(self.make_file(caller, dir, name, new)?)
    }

    /// Removes a name of a file that is no directory.
    pub(super) fn unlink(&self, dir: u64, name: &[u8]) -> Answer<()> {
        self.remove(dir, |fs, dir| fs.unlink_kept(dir, name))
    }

    /// Removes an empty directory.
    pub(super) fn rmdir(&self, dir: u64, name: &[u8]) -> Answer<()> {
        self.remove(dir, |fs, dir| fs.rmdir_kept(dir, name))
    }

    /// Renames a file; each name is given with its directory.
    pub(super) fn rename(
        &self,
        caller: &Caller,
        from: (u64, &[u8]),
        to: (u64, &[u8]),
        how: Rename,
    ) -> Answer<()> {
        let (from_dir, to_dir) = (self.id(from.0), self.id(to.0));
        let how = match how {
            Rename::Replace => RenameHow::Replace,
            Rename::NoReplace => RenameHow::NoReplace,
            Rename::Exchange => RenameHow::Exchange,
            Rename::Whiteout { no_replace } => {
                if no_replace && self.fs().lookup(to_dir, to.1)?.is_some() {
                    return Err(ExportError::Exists);
                }
                RenameHow::Whiteout { uid: caller.uid, gid: caller.gid }
            }
        };
        if let Some(hold) = self.fs().rename_kept((from_dir, from.1), (to_dir, to.1), how)? {
            self.lost_name(hold);
        }
        self.settled(from_dir)?;
        self.settled(to_dir)
    }

    /// Gives a file another name.
    pub(super) fn link(&self, node: u64, dir: u64, name: &[u8]) -> Answer<Known> {
        let id = self.id(node);
        self.fs().link(id, self.id(dir), name)?;
        self.settled(id)?;
        self.known(id)
    }

    /// Makes a regular file. If the name exists, returns its file, or an error if `is_exclusive`.
    pub(crate) fn create(
        &self,
        caller: &Caller,
        dir: u64,
        name: &[u8],
        mode: u32,
        is_exclusive: bool,
    ) -> Answer<Known> {
        let new = NewNode { kind: Kind::Regular, mode, rdev: (0, 0), target: &[] };
        match self.make_file(caller, dir, name, &new) {
            Ok(made) => self.acknowledged(made),
            // Another caller has made the file meanwhile, and this one did not ask for a new file.
            Err(ZplError::Exists { .. }) if !is_exclusive => {
                self.lookup(dir, name)?.ok_or(ExportError::NotFound)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Makes a regular file without a name.
    pub(crate) fn tmpfile(&self, caller: &Caller, dir: u64, mode: u32) -> Answer<Known> {
        let new = NewNode { kind: Kind::Regular, mode, rdev: (0, 0), target: &[] };
        let hold = self.fs().tmpfile(self.id(dir), &LiveFs::new_file(caller, &new))?;
        // The client is told of it before the hold ends: a file without a name has no other reference.
        let known = self.known(hold.id())?;
        self.unlinked.keep(hold, &self.nodes);
        Ok(known)
    }

    /// Reads from a file into `buf`; returns the number of bytes.
    pub(super) fn read(&self, node: u64, offset: u64, buf: &mut [u8]) -> Answer<usize> {
        let id = self.id(node);
        let read = self.fs().read(id, offset, buf)?;
        self.accessed(id);
        Ok(read)
    }

    /// Writes all of the data of a write.
    pub(super) fn write(&self, caller: &Caller, node: u64, write: &Write<'_>) -> Answer<()> {
        let id = self.id(node);
        match write.source {
            WriteSource::ClientCache { .. } => {}
            WriteSource::Uncached => self.begin_around_cache(caller, id)?,
            WriteSource::Program => self.drop_set_ids(caller, id)?,
        }
        let keep_times = write.source == WriteSource::ClientCache { keeps_times: true };
        // The client knows the end of the file best, and turns appending into a position by itself.
        let how = WriteHow { append: false, clear_set_ids: write.clear_set_ids, keep_times };
        let put = || self.fs().write(id, write.offset, write.data, &how).map(|_| ());
        self.when_removals_are_known(put)?;
        match write.source {
            _ if write.is_durable => self.commit(node),
            // No program waits for a write from the client's cache.
            WriteSource::ClientCache { .. } => Ok(()),
            WriteSource::Program | WriteSource::Uncached => self.settled(id),
        }
    }

    /// Makes the contents and attributes of a file durable.
    pub(super) fn commit(&self, node: u64) -> Answer<()> {
        self.writer.fsync(self.id(node)).map_err(ExportError::NotDurable)
    }

    /// Passes the lines of a directory after the cookie `from` to `sink`, until no more fit.
    pub(super) fn read_dir(&self, node: u64, from: u64, sink: &mut dyn DirSink) -> Answer<()> {
        let id = self.id(node);
        if from == 0 {
            self.accessed(id);
        }
        if from < DOT_DOT {
            let above = self.node(self.fs().attrs(id)?.parent);
            let dots = [DirLine::dir(node, b".", DOT), DirLine::dir(above, b"..", DOT_DOT)];
            for line in dots.iter().filter(|line| line.next > from) {
                if !sink.line(line) {
                    return Ok(());
                }
            }
        }
        if from == END {
            return Ok(());
        }
        // A directory line cannot carry a name that is good only for now.
        let wants_attrs = sink.wants_attrs() && self.name_stability() == Stability::Stable;
        // A program that changes a directory waits in the kernel for the replies to all programs that list
        // it, so the listing takes little time: it reads no more than fits, and allocates no memory for it.
        let mut left = sink.room();
        let mut takes = |name: usize| {
            let len = sink.len_of(name);
            let fits = len <= left;
            left = left.saturating_sub(len);
            fits
        };
        let page = self.fs().read_dir_page(id, cursor(from), &mut takes)?;
        self.fs().prefetch_listed(&page);
        for (name, entry) in page.iter() {
            let file = if wants_attrs { self.known(entry.id).ok() } else { None };
            let kind = file.map_or(entry.kind_hint, |file| Some(file.entry.attr.kind));
            let file = file.map(|file| (file.entry, file.attr));
            let (node, next) = (self.node(entry.id), cookie(entry.cursor));
            if !sink.line(&DirLine { node, kind, name, next, file }) {
                // The client is not told of this file after all.
                file.into_iter().for_each(|(entry, _)| self.forget(entry.node, 1));
                break;
            }
        }
        Ok(())
    }

    /// Space of the file system, within the quotas of the directory `node`.
    pub(super) fn space(&self, node: u64) -> Answer<SpaceInfo> {
        let stats = self.writer.stats(self.id(node))?;
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

    /// Names of the extended attributes of a file.
    pub(super) fn xattr_names(&self, node: u64) -> Answer<Vec<Vec<u8>>> {
        let mut names = self.fs().node(self.id(node))?.xattrs()?;
        names.retain(|name| self.check_hidden(name).is_ok());
        Ok(names)
    }

    /// Value of an extended attribute; `None` if there is none of that name.
    pub(super) fn xattr(&self, node: u64, name: &[u8]) -> Answer<Option<Vec<u8>>> {
        check_xattr_name(name)?;
        self.check_hidden(name)?;
        Ok(self.fs().xattr(self.id(node), name)?)
    }

    /// Sets an extended attribute, and clears the set-group-id bit if `kill_set_gid`.
    pub(super) fn set_xattr(
        &self,
        node: u64,
        name: &[u8],
        value: &[u8],
        how: XattrHow,
        kill_set_gid: bool,
    ) -> Answer<()> {
        check_xattr_name(name)?;
        self.check_hidden(name)?;
        let id = self.id(node);
        self.fs().set_xattr(id, name, value, how)?;
        if kill_set_gid {
            const SETGID: u32 = 0o2000;
            let mode = self.fs().attrs(id)?.mode & 0o7777;
            let new = NewAttrs { mode: Some(mode & !SETGID), ..NewAttrs::default() };
            self.fs().set_attrs(id, &new)?;
        }
        self.settled(id)
    }

    /// Removes an extended attribute.
    pub(super) fn remove_xattr(&self, node: u64, name: &[u8]) -> Answer<()> {
        check_xattr_name(name)?;
        self.check_hidden(name)?;
        let id = self.id(node);
        self.fs().remove_xattr(id, name)?;
        self.settled(id)
    }

    /// Searches for data or a hole in the contents that have arrived here.
    pub(super) fn find(&self, node: u64, offset: u64, what: Seek, client_has_size: bool) -> Answer<Found> {
        seek::find(self.fs(), self.id(node), offset, what, client_has_size)
    }

    /// Reserves, punches or zeroes a range of a file.
    pub(super) fn allocate(
        &self,
        caller: &Caller,
        node: u64,
        offset: u64,
        len: u64,
        how: Allocate,
    ) -> Answer<()> {
        let id = self.id(node);
        if matches!(how, Allocate::Reserve { .. }) {
            self.check_room(id, len)?;
        }
        self.take_back_rights(caller, id)?;
        self.fs().fallocate(id, offset, len, how)?;
        self.settled(id)
    }

    /// Copies a range within the file system, by sharing blocks where possible; returns the number of bytes.
    pub(super) fn copy_range(&self, caller: &Caller, range: &CopyRange) -> Answer<u64> {
        let (from, to) = (self.id(range.from), self.id(range.to));
        self.take_back_rights(caller, to)?;
        let source = FileRange { id: from, offset: range.from_offset };
        let target = FileRange { id: to, offset: range.to_offset };
        let shared = match self.writer.clone_range(&self.writer, source, target, range.len) {
            Err(ZplError::NotYetWritten { .. }) if BCLONE_WAIT_DIRTY.is_on() => {
                self.writer.sync().map_err(ExportError::NotDurable)?;
                self.writer.clone_range(&self.writer, source, target, range.len)
            }
            other => other,
        };
        let done = match shared {
            Ok(done) => done,
            // If blocks cannot be shared for any reason, the bytes are copied, or the copy returns the error.
            Err(_) => copy_chunks(range.len, |done, chunk| {
                let read = self.fs().read(from, range.from_offset + done, chunk)?;
                let data = chunk.get(..read).unwrap_or_default();
                if read > 0 {
                    self.fs().write(to, range.to_offset + done, data, &WriteHow::default())?;
                }
                Ok(read)
            })?,
        };
        self.settled(to)?;
        Ok(done)
    }

    /// Attributes of a file as the file system stores them, with its flags and project.
    pub(crate) fn stored_attrs(&self, node: u64) -> Answer<Attrs> {
        Ok(self.fs().attrs(self.id(node))?)
    }

    /// Changes flags or the project of a file. The caller has checked the permission.
    pub(crate) fn set_stored_attrs(&self, node: u64, new: &NewAttrs) -> Answer<()> {
        let id = self.id(node);
        self.fs().set_attrs(id, new)?;
        self.settled(id)
    }

    /// Makes all changes of the file system durable.
    pub(super) fn sync(&self) -> Answer<()> {
        self.writer.sync().map(drop).map_err(ExportError::NotDurable)
    }
}

/// Copies `len` bytes in chunks; returns the number of bytes. `step` copies one chunk at a position, with a
/// buffer of its size, and returns its bytes: 0 ends the copy, and so does an error after the first chunk.
pub(super) fn copy_chunks(len: u64, mut step: impl FnMut(u64, &mut [u8]) -> Answer<usize>) -> Answer<u64> {
    let mut buf = vec![0; COPY_CHUNK.min(usize::try_from(len).unwrap_or(COPY_CHUNK))];
    let mut done = 0;
    while done < len {
        let want = usize::try_from(len - done).map_or(buf.len(), |left| left.min(buf.len()));
        match step(done, buf.get_mut(..want).unwrap_or_default()) {
            Ok(0) => break,
            Ok(count) => done += count as u64,
            Err(_) if done > 0 => break,
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// Stability of attributes: the space of a file that is not written yet will soon change.
fn stability_of(attrs: &Attrs, is_unwritten: bool) -> Stability {
    match (set_ids::lends_rights(attrs), is_unwritten) {
        (true, _) => Stability::Volatile,
        (false, true) => Stability::Settling,
        (false, false) => Stability::Stable,
    }
}

/// Whether an extended attribute is an access control list.
fn is_acl(name: &[u8]) -> bool {
    matches!(name, b"system.posix_acl_access" | b"system.posix_acl_default")
}

/// Checks that the name of an extended attribute has one of Linux's prefixes and a further part.
fn check_xattr_name(name: &[u8]) -> Answer<()> {
    if is_acl(name) {
        return Ok(());
    }
    match [&b"user."[..], b"trusted.", b"security."].iter().find_map(|space| name.strip_prefix(*space)) {
        Some(b"") => Err(ExportError::Invalid),
        Some(_) => Ok(()),
        None => Err(ExportError::Unsupported),
    }
}

/// Whether a directory was removed: its only link left is its own.
fn is_removed_dir(attrs: &Attrs) -> bool {
    FileKind::from_mode(attrs.mode) == Some(FileKind::Directory) && attrs.links < 2
}
