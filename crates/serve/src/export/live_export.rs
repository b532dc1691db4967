//! A file system that is open for writing, exported with its snapshots in `.zfs`. Its contents can be
//! replaced while clients use it.
//!
//! # What always holds
//! - Contents are replaced in this order: the nodes that the client knows stand for their old files, or for
//!   none (`identity`); the client is told, without waiting, that all names may have changed; calls about
//!   files are answered again, because the client may hold pages locked until then; the client drops all
//!   attributes and pages; at last calls about names are answered. Pages that programs wrote to the old
//!   contents and that the client still holds are dropped with the others.
//! - A file that is open while the file system is replaced, and is another file or none afterwards, returns
//!   [`ExportError::Stale`] until the client closes it.
//! - Nodes of `snapshots` are never passed to the file system, and nodes of the file system never to
//!   `snapshots`.

use super::caller::Caller;
use super::error::{Answer, ExportError};
use super::identity::NodeTable;
use super::live::{LiveFs, copy_chunks};
use super::pool_view::PoolView;
use super::replace::{About, Contents, State};
use super::seek::Found;
use super::snapshots::{self, ExportedHead, Rights, Snapshots};
use super::types::{
    Attr, CopyRange, DirLine, DirSink, Entry, Kind, Known, NewNode, ROOT, Rename, Seek, SetAttr, SpaceInfo,
    Stability, Write, WriteSource,
};
use super::unlinked::FileId;
use super::view::View;
use admin::ADMIN_SNAPSHOT;
use admin::served::ServedFilesystem;
use cenote::files::{Allocate, SnapshotDir, XattrHow};
use format::ObjectId;
use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

/// Names: the node of a directory, and a name in it.
pub(crate) type Names = BTreeSet<(u64, Vec<u8>)>;

/// A file system that is open for writing, in the form in which it is exported.
pub struct LiveExport {
    contents: Contents,
    /// `.zfs`, if it is shown.
    snapshots: Option<Arc<Snapshots>>,
    /// The nodes that the client knows; kept when the contents are replaced.
    nodes: Arc<NodeTable>,
}

impl LiveExport {
    /// Exports a file system without its snapshots.
    #[must_use]
    pub fn new(live: LiveFs) -> LiveExport {
        LiveExport { nodes: Arc::clone(live.nodes()), contents: Contents::new(live), snapshots: None }
    }

    /// Exports a file system with its snapshots.
    pub(crate) fn with_snapshots(live: LiveFs) -> LiveExport {
        let snapshots = Some(Snapshots::new(Arc::clone(live.writer().pool())));
        LiveExport { snapshots, ..LiveExport::new(live) }
    }

    // ---- contents --------------------------------------------------------------------------------

    /// Takes the file system away once no call uses it. `None`: the export has ended.
    ///
    /// # Errors
    /// [`ExportError::Interrupted`] if the caller no longer waits; then nothing has changed.
    pub(crate) fn pause(&self) -> Answer<Option<LiveFs>> {
        self.contents.pause()
    }

    /// Continues with other contents than before. Calls `tell`, which notifies the client of everything that
    /// needs no wait, and then answers calls about files. Does nothing if the export has ended.
    pub(crate) fn enter(&self, live: LiveFs, tell: impl FnOnce()) {
        self.nodes.replaced();
        let live = live.with_nodes(&self.nodes);
        live.keep_unlinked(&[]);
        tell();
        self.contents.resume(State::Entering(Box::new(live)));
    }

    /// Continues with the same contents as before and with these unlinked files; all that the client knows
    /// stays right. Does nothing if the export has ended.
    pub(crate) fn resume(&self, live: LiveFs, unlinked: &[FileId]) {
        let live = live.with_nodes(&self.nodes);
        live.keep_unlinked(unlinked);
        self.contents.resume(State::Serving(Box::new(live)));
    }

    /// Answers calls about names too: the client has forgotten the old contents.
    pub(crate) fn entered(&self) {
        self.contents.entered();
    }

    /// The nodes that the client knows.
    pub(crate) fn nodes(&self) -> Vec<u64> {
        self.nodes.nodes().into_iter().chain([ROOT]).collect()
    }

    /// Ends the export. Returns whether all changes of the file system are on disk.
    pub(crate) fn end(&self) -> bool {
        let live = self.contents.end();
        if let Some(snapshots) = &self.snapshots {
            snapshots.close();
        }
        let written = live.as_ref().map(|live| live.writer().written());
        // Access times that are not stored yet are changes as well.
        drop(live);
        written.is_some_and(|written| written.is_on_disk())
    }

    /// Calls `ask` with the file system, as soon as the contents are there.
    ///
    /// # Errors
    /// [`ExportError::Ended`], [`ExportError::Interrupted`], or the error of `ask`.
    pub(crate) fn ask<T>(&self, ask: impl FnOnce(&LiveFs) -> Answer<T>) -> Answer<T> {
        self.contents.ask(About::Files, |live, _| ask(live))
    }

    /// Calls `ask` with the file system, unless the file that the client means by `node` no longer exists.
    pub(crate) fn ask_of<T>(&self, node: u64, ask: impl FnOnce(&LiveFs) -> Answer<T>) -> Answer<T> {
        // Checked within the call, when the contents can no longer be replaced.
        self.ask(|live| if live.is_lost(node) { Err(ExportError::Stale) } else { ask(live) })
    }

    /// Calls `ask` with the file system about names in directories; waits until the client has forgotten old
    /// ones.
    fn ask_names<T, const N: usize>(
        &self,
        nodes: [u64; N],
        ask: impl FnOnce(&LiveFs) -> Answer<T>,
    ) -> Answer<T> {
        self.contents.ask(About::Names, |live, _| {
            if nodes.iter().any(|node| live.is_lost(*node)) { Err(ExportError::Stale) } else { ask(live) }
        })
    }

    /// Allows changes of the file system despite the property `readonly`, or follows the property again.
    pub(crate) fn set_writable_anyway(&self, is_writable: bool) {
        self.contents.tell(|live| live.set_writable_anyway(is_writable));
    }

    /// The present name of the dataset; `None` while it is not served.
    pub(crate) fn name(&self) -> Option<Arc<str>> {
        self.contents.peek(|live| live.writer().current_name())
    }

    /// Notes that the client reads contents of a file, which it will cache.
    pub(crate) fn note_cached(&self, node: u64) {
        self.nodes.note_cached(node);
    }

    /// Whether the client may have contents of a file in its cache.
    pub(crate) fn may_be_cached(&self, node: u64) -> bool {
        self.nodes.may_be_cached(node)
    }

    // ---- snapshots -------------------------------------------------------------------------------

    /// Notes that snapshots were made, destroyed or renamed otherwise than through `.zfs`.
    pub(crate) fn snapshots_changed(&self, dataset: &str) {
        if let Some(snapshots) = &self.snapshots {
            snapshots.refresh(dataset);
        }
    }

    /// Whether a node belongs to `.zfs`.
    pub(crate) fn is_in_zfs(&self, node: u64) -> bool {
        self.snapshots.is_some() && snapshots::is_here(node)
    }

    /// The `.zfs` directory that a node belongs to, if any.
    fn zfs(&self, node: u64) -> Option<&Arc<Snapshots>> {
        self.snapshots.as_ref().filter(|_| snapshots::is_here(node))
    }

    /// Whether a name stands for `.zfs` in the root: no file has that name, whatever `snapdir` says.
    fn is_entrance(&self, dir: u64, name: &[u8]) -> bool {
        dir == ROOT && name == snapshots::NAME && self.snapshots.is_some()
    }

    /// Whether listings of a directory show `.zfs`.
    fn shows_entrance(&self, dir: u64) -> Answer<bool> {
        Ok(dir == ROOT
            && self.snapshots.is_some()
            && self.ask(|live| Ok(live.snapshot_dir()))? == SnapshotDir::Visible)
    }

    /// The file system as `.zfs` shows it.
    fn head(&self) -> Answer<ExportedHead> {
        self.ask(|live| Ok(ExportedHead { root: live.attr(ROOT)?.0, name: live.writer().current_name() }))
    }

    /// Calls `ask` with the snapshot that a node of `.zfs` belongs to.
    fn ask_snapshot<T>(
        &self,
        zfs: &Arc<Snapshots>,
        node: u64,
        ask: impl FnOnce(&PoolView, u64) -> Answer<T>,
    ) -> Answer<T> {
        let name = self.ask(|live| Ok(live.writer().current_name()))?;
        zfs.ask(node, &name, ask)
    }

    /// Looks up a name in a directory of `.zfs`.
    fn lookup_in_zfs(&self, zfs: &Arc<Snapshots>, dir: u64, name: &[u8]) -> Answer<Option<Known>> {
        let head = self.head()?;
        let found = zfs.lookup(dir, name, &head)?;
        // `..` of the topmost directory is the root.
        Ok(Some(found.unwrap_or(Known {
            entry: Entry { node: ROOT, attr: head.root },
            name: Stability::Stable,
            attr: Stability::Volatile,
        })))
    }

    // ---- operations ------------------------------------------------------------------------------

    /// Looks up a name in a directory; `None` if there is none.
    pub(crate) fn lookup(&self, dir: u64, name: &[u8]) -> Answer<Option<Known>> {
        if let Some(zfs) = self.zfs(dir) {
            return self.lookup_in_zfs(zfs, dir, name);
        }
        match &self.snapshots {
            // An error instead of "absent", so that the client does not remember it: the property may change.
            Some(zfs) if self.is_entrance(dir, name) => match self.ask(|live| Ok(live.snapshot_dir()))? {
                SnapshotDir::Disabled => Err(ExportError::NotFound),
                SnapshotDir::Hidden | SnapshotDir::Visible => zfs.entrance(&self.head()?).map(Some),
            },
            _ => self.ask_names([dir], |live| live.lookup(dir, name)),
        }
    }

    /// How long a client may remember that a name does not exist.
    pub(crate) fn absence_stability(&self) -> Stability {
        self.ask(|live| Ok(live.name_stability())).unwrap_or_default()
    }

    /// Counts that the client has forgotten a node `count` times.
    pub(crate) fn forget(&self, node: u64, count: u64) {
        if let Some(zfs) = self.zfs(node) {
            zfs.forget(node, count);
        } else if !self.contents.tell(|live| live.forget(node, count)) {
            self.nodes.forget(node, count);
        }
    }

    /// Attributes of a file, and their stability.
    pub(crate) fn attr(&self, node: u64) -> Answer<(Attr, Stability)> {
        if let Some(zfs) = self.zfs(node) {
            return zfs.attr(node, &self.head()?);
        }
        let (mut attr, stability) = self.ask_of(node, |live| live.attr(node))?;
        // A listed `.zfs` counts as a subdirectory.
        if self.shows_entrance(node)? {
            attr.nlink = attr.nlink.saturating_add(1);
        }
        Ok((attr, stability))
    }

    /// Changes attributes of a file, and returns the new ones.
    pub(crate) fn set_attr(&self, caller: &Caller, node: u64, new: &SetAttr) -> Answer<(Attr, Stability)> {
        if self.is_in_zfs(node) {
            // As OpenZFS does: nothing changes, and no error is returned.
            return if snapshots::is_snapshot(node) { Err(ExportError::ReadOnly) } else { self.attr(node) };
        }
        self.ask_of(node, |live| live.set_attr(caller, node, new))
    }

    /// Target of a symbolic link.
    pub(crate) fn read_link(&self, node: u64) -> Answer<Vec<u8>> {
        match self.zfs(node) {
            Some(zfs) => self.ask_snapshot(zfs, node, View::read_link),
            None => self.ask_of(node, |live| live.read_link(node)),
        }
    }

    /// Makes a file, directory, link or device; in `.zfs/snapshot` a snapshot.
    pub(crate) fn make(&self, caller: &Caller, dir: u64, name: &[u8], new: &NewNode<'_>) -> Answer<Known> {
        if let Some(zfs) = self.zfs(dir) {
            return match new.kind {
                Kind::Directory => zfs.make(dir, name, &self.head()?, &Rights::of(caller)),
                // A client may make a file as part of opening it.
                Kind::Regular => Err(why_no_file(dir)),
                _ => Err(why_no_change(dir)),
            };
        }
        if self.is_entrance(dir, name) {
            return Err(ExportError::Exists);
        }
        self.ask_names([dir], |live| live.make(caller, dir, name, new))
    }

    /// Calls `make` with the file system to make a regular file in a directory.
    pub(crate) fn make_regular<T>(
        &self,
        dir: u64,
        name: &[u8],
        make: impl FnOnce(&LiveFs) -> Answer<T>,
    ) -> Answer<T> {
        if self.is_in_zfs(dir) {
            return Err(why_no_file(dir));
        }
        if self.is_entrance(dir, name) {
            return Err(ExportError::Exists);
        }
        self.ask_names([dir], make)
    }

    /// Calls `make` with the file system to make a file without a name in a directory.
    pub(crate) fn make_unnamed<T>(&self, dir: u64, make: impl FnOnce(&LiveFs) -> Answer<T>) -> Answer<T> {
        if self.is_in_zfs(dir) {
            return Err(ExportError::ReadOnly);
        }
        self.ask_names([dir], make)
    }

    /// Removes a name of a file that is no directory.
    pub(crate) fn unlink(&self, dir: u64, name: &[u8]) -> Answer<()> {
        if self.is_in_zfs(dir) {
            return Err(why_no_change(dir));
        }
        if self.is_entrance(dir, name) {
            return Err(ExportError::NotPermitted);
        }
        self.ask_names([dir], |live| live.unlink(dir, name))
    }

    /// Removes an empty directory; in `.zfs/snapshot` a snapshot.
    pub(crate) fn rmdir(&self, caller: &Caller, dir: u64, name: &[u8]) -> Answer<()> {
        if let Some(zfs) = self.zfs(dir) {
            return zfs.remove(dir, name, &self.head()?, &Rights::of(caller));
        }
        if self.is_entrance(dir, name) {
            return Err(ExportError::Exists);
        }
        self.ask_names([dir], |live| live.rmdir(dir, name))
    }

    /// Renames a file; in `.zfs/snapshot` a snapshot. Each name is given with its directory.
    pub(crate) fn rename(
        &self,
        caller: &Caller,
        from: (u64, &[u8]),
        to: (u64, &[u8]),
        how: Rename,
    ) -> Answer<()> {
        match (self.zfs(from.0), self.zfs(to.0)) {
            (Some(zfs), Some(_)) => return zfs.rename(from, to, &self.head()?, &Rights::of(caller)),
            (Some(_), None) | (None, Some(_)) => return Err(ExportError::CrossDevice),
            (None, None) => {}
        }
        if self.is_entrance(from.0, from.1) || self.is_entrance(to.0, to.1) {
            return Err(ExportError::NotPermitted);
        }
        self.ask_names([from.0, to.0], |live| live.rename(caller, from, to, how))
    }

    /// Gives a file another name.
    pub(crate) fn link(&self, node: u64, dir: u64, name: &[u8]) -> Answer<Known> {
        if self.is_in_zfs(node) || self.is_in_zfs(dir) {
            let is_target = self.is_in_zfs(dir);
            return Err(if is_target { ExportError::NotPermitted } else { ExportError::CrossDevice });
        }
        if self.is_entrance(dir, name) {
            return Err(ExportError::Exists);
        }
        self.ask_names([node, dir], |live| live.link(node, dir, name))
    }

    /// Reads from a file into `buf`; returns the number of bytes.
    pub(crate) fn read(&self, node: u64, offset: u64, buf: &mut [u8]) -> Answer<usize> {
        match self.zfs(node) {
            Some(zfs) => self.ask_snapshot(zfs, node, |snapshot, node| snapshot.read(node, offset, buf)),
            None => self.ask_of(node, |live| live.read(node, offset, buf)),
        }
    }

    /// Writes all of the data of a write.
    pub(crate) fn write(&self, caller: &Caller, node: u64, write: &Write<'_>) -> Answer<()> {
        if self.is_in_zfs(node) {
            return Err(ExportError::ReadOnly);
        }
        let is_from_cache = matches!(write.source, WriteSource::ClientCache { .. });
        self.contents.ask(About::Files, |live, is_entering| {
            if is_from_cache && is_entering {
                // Programs wrote these bytes to the old contents.
                Ok(())
            } else if live.is_lost(node) {
                Err(ExportError::Stale)
            } else {
                live.write(caller, node, write)
            }
        })
    }

    /// Makes the contents and attributes of a file durable.
    pub(crate) fn commit(&self, node: u64) -> Answer<()> {
        if self.is_in_zfs(node) {
            return Ok(());
        }
        self.ask_of(node, |live| live.commit(node))
    }

    /// Passes the lines of a directory after the cookie `from` to `sink`, until no more fit.
    pub(crate) fn read_dir(&self, node: u64, from: u64, sink: &mut dyn DirSink) -> Answer<()> {
        if let Some(zfs) = self.zfs(node) {
            return zfs.read_dir(node, from, sink, &self.head()?);
        }
        if self.shows_entrance(node)? {
            return self.ask_names([node], |live| live.read_dir(node, from, &mut WithEntrance { sink }));
        }
        self.ask_names([node], |live| live.read_dir(node, from, sink))
    }

    /// Space of the file system, or of the snapshot that a node belongs to.
    pub(crate) fn space(&self, node: u64) -> Answer<SpaceInfo> {
        match self.zfs(node) {
            Some(zfs) if snapshots::is_snapshot(node) => self.ask_snapshot(zfs, node, View::space),
            Some(_) => self.ask(|live| live.space(ROOT)),
            None => self.ask(|live| live.space(node)),
        }
    }

    /// Names of the extended attributes of a file.
    pub(crate) fn xattr_names(&self, node: u64) -> Answer<Vec<Vec<u8>>> {
        match self.zfs(node) {
            Some(zfs) if snapshots::is_snapshot(node) => self.ask_snapshot(zfs, node, View::xattr_names),
            Some(_) => Ok(Vec::new()),
            None => self.ask_of(node, |live| live.xattr_names(node)),
        }
    }

    /// Value of an extended attribute; `None` if there is none of that name.
    pub(crate) fn xattr(&self, node: u64, name: &[u8]) -> Answer<Option<Vec<u8>>> {
        match self.zfs(node) {
            Some(zfs) if snapshots::is_snapshot(node) => {
                self.ask_snapshot(zfs, node, |snapshot, node| snapshot.xattr(node, name))
            }
            Some(_) => Ok(None),
            None => self.ask_of(node, |live| live.xattr(node, name)),
        }
    }

    /// Calls `change` with the file system to change something of a file other than its contents or names.
    pub(crate) fn change<T>(&self, node: u64, change: impl FnOnce(&LiveFs) -> Answer<T>) -> Answer<T> {
        if self.is_in_zfs(node) { Err(ExportError::ReadOnly) } else { self.ask_of(node, change) }
    }

    /// Sets an extended attribute, and clears the set-group-id bit if `kill_set_gid`.
    pub(crate) fn set_xattr(
        &self,
        node: u64,
        name: &[u8],
        value: &[u8],
        how: XattrHow,
        kill_set_gid: bool,
    ) -> Answer<()> {
        self.change(node, |live| live.set_xattr(node, name, value, how, kill_set_gid))
    }

    /// Removes an extended attribute.
    pub(crate) fn remove_xattr(&self, node: u64, name: &[u8]) -> Answer<()> {
        self.change(node, |live| live.remove_xattr(node, name))
    }

    /// Searches for data or a hole in the contents that have arrived here. With `client_has_size`, only the
    /// client knows the end of the file.
    pub(crate) fn find(&self, node: u64, offset: u64, what: Seek, client_has_size: bool) -> Answer<Found> {
        match self.zfs(node) {
            Some(zfs) => {
                let seek = |snapshot: &PoolView, node| snapshot.seek(node, offset, what);
                let at = self.ask_snapshot(zfs, node, seek)?;
                Ok(Found { at: Some(at), hole: None, size: 0 })
            }
            None => self.ask_of(node, |live| live.find(node, offset, what, client_has_size)),
        }
    }

    /// Reserves, punches or zeroes a range of a file.
    pub(crate) fn allocate(
        &self,
        caller: &Caller,
        node: u64,
        offset: u64,
        len: u64,
        how: Allocate,
    ) -> Answer<()> {
        self.change(node, |live| live.allocate(caller, node, offset, len, how))
    }

    /// Copies a range of a file, which may be a snapshot's, into a file; returns the number of bytes.
    pub(crate) fn copy_range(&self, caller: &Caller, range: &CopyRange) -> Answer<u64> {
        if self.is_in_zfs(range.to) {
            return Err(ExportError::ReadOnly);
        }
        if self.is_in_zfs(range.from) {
            return self.copy_out(caller, range);
        }
        self.ask_of(range.to, |live| match live.is_lost(range.from) {
            true => Err(ExportError::Stale),
            false => live.copy_range(caller, range),
        })
    }

    /// Copies from a file of a snapshot, as programs do to restore files.
    fn copy_out(&self, caller: &Caller, range: &CopyRange) -> Answer<u64> {
        self.ask_of(range.to, |live| live.before_change(caller, range.to))?;
        copy_chunks(range.len, |done, chunk| {
            let read = self.read(range.from, range.from_offset + done, chunk)?;
            let write = Write {
                offset: range.to_offset + done,
                data: chunk.get(..read).unwrap_or_default(),
                source: WriteSource::Program,
                clear_set_ids: true,
                is_durable: false,
            };
            if read > 0 {
                self.write(caller, range.to, &write)?;
            }
            Ok(read)
        })
    }

    /// Makes all changes of the file system durable.
    pub(crate) fn sync(&self) -> Answer<()> {
        self.ask(LiveFs::sync)
    }
}

/// The error for making a file in a directory of `.zfs`.
fn why_no_file(dir: u64) -> ExportError {
    match dir {
        dir if snapshots::is_snapshot(dir) => ExportError::ReadOnly,
        snapshots::SHARES => ExportError::Unsupported,
        _ => ExportError::NotAllowed,
    }
}

/// The error for a change of a directory of `.zfs` that another directory would allow.
fn why_no_change(dir: u64) -> ExportError {
    if snapshots::is_snapshot(dir) { ExportError::ReadOnly } else { ExportError::NotPermitted }
}

/// The names on the way to these paths, which lie below the directory `at` where the file system is mounted.
pub(crate) fn names_to<'a>(live: &LiveFs, at: &Path, paths: impl Iterator<Item = &'a Path>) -> Names {
    let fs = live.fs();
    let root = fs.root();
    // A directory whose number belonged to another directory before has an additional node.
    let node_of = |dir: ObjectId| {
        let generation = fs.attrs(dir).ok().map(|attrs| attrs.generation);
        generation.and_then(|generation| live.nodes().node_of(dir.0, generation)).unwrap_or(dir.0)
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

/// Passes on the lines of the root, with `.zfs` after `..`.
struct WithEntrance<'s> {
    sink: &'s mut dyn DirSink,
}

impl DirSink for WithEntrance<'_> {
    fn line(&mut self, line: &DirLine<'_>) -> bool {
        // The cookie after `.` is the one before `..`, so `..` is listed again if only one of the two fits.
        if line.name == b".."
            && !self.sink.line(&DirLine::dir(snapshots::ENTRANCE, snapshots::NAME, line.next - 1))
        {
            return false;
        }
        self.sink.line(line)
    }

    fn wants_attrs(&self) -> bool {
        self.sink.wants_attrs()
    }

    fn len_of(&self, name: usize) -> usize {
        self.sink.len_of(name)
    }

    fn room(&self) -> usize {
        self.sink.room()
    }
}

impl Rights {
    /// The rights of a caller.
    fn of(caller: &Caller) -> Rights {
        let (uid, gid, groups) = (caller.uid, caller.gid, caller.groups());
        Rights { is_on: ADMIN_SNAPSHOT.is_on(), caller: admin::Caller { uid, gid, groups } }
    }
}
