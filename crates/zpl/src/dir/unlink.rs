//! Removal of names, and freeing of files without a name (docs/on-disk/23-zpl.md, sections 6 and 6.2).
//!
//! # Order
//! The last name is removed -> a small file that is not in use is freed in the same transaction; any other
//! joins the unlinked set in that transaction -> when its last handle is dropped, its content is freed in as
//! many transactions as that takes -> in one transaction, its directory of extended attributes joins the set,
//! and the file leaves it and is freed.

use crate::dir::edits::Edits;
use crate::dir::names::lock_names;
use crate::fs::backing::Cost;
use crate::fs::writable::Fs;
use crate::node::hold::Hold;
use crate::node::inode::Inode;
use crate::{FileKind, ZplError};
use dmu::DmuError;
use dmu::Tx;
use dmu::zap::Match;
use format::zil::Body;
use format::znode::{FLAG_APPENDONLY, FLAG_NOUNLINK, Time};
use format::{BlockId, ObjectId};
use std::sync::Arc;

/// Most blocks that are freed in one transaction.
pub(crate) const BLOCKS_PER_TX: u64 = 1 << 15;
/// Most transactions for freeing one file at once, before it is left to [`Fs::drain`].
const STEPS_AT_ONCE: usize = 8;

/// Kind of file to be removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Directory,
    AnythingElse,
}

/// Holds a file while its last name is removed.
struct Held<'i>(Option<&'i Inode>);

impl<'i> Held<'i> {
    fn new(inode: &'i Inode) -> Held<'i> {
        inode.hold();
        Held(Some(inode))
    }

    /// Releases the hold. Returns true if it was the last one: the caller then frees the file.
    fn let_go(mut self) -> bool {
        self.0.take().is_some_and(Inode::let_go)
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        // The file has a name, or is being freed: no other thread waits for its last hold.
        if let Some(inode) = self.0 {
            inode.let_go();
        }
    }
}

impl Fs {
    /// Removes a name of a file that is no directory.
    ///
    /// # Errors
    /// [`ZplError::NotFound`]; [`ZplError::WrongKind`] for a directory.
    pub fn unlink(&self, dir: ObjectId, name: &[u8]) -> Result<(), ZplError> {
        self.remove(dir, name, Wanted::AnythingElse, |_| Ok(None)).map(drop)
    }

    /// Like [`Fs::unlink`], and returns a hold on the file, for handles that are still open.
    ///
    /// # Errors
    /// Those of [`Fs::unlink`].
    pub fn unlink_kept(self: &Arc<Self>, dir: ObjectId, name: &[u8]) -> Result<Option<Hold>, ZplError> {
        self.remove(dir, name, Wanted::AnythingElse, |inode| self.keep(inode).map(Some))
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// [`ZplError::NotFound`], [`ZplError::NotEmpty`]; [`ZplError::WrongKind`] for any other kind of file.
    pub fn rmdir(&self, dir: ObjectId, name: &[u8]) -> Result<(), ZplError> {
        self.remove(dir, name, Wanted::Directory, |_| Ok(None)).map(drop)
    }

    /// Like [`Fs::rmdir`], and returns a hold on the directory.
    ///
    /// # Errors
    /// Those of [`Fs::rmdir`].
    pub fn rmdir_kept(self: &Arc<Self>, dir: ObjectId, name: &[u8]) -> Result<Option<Hold>, ZplError> {
        self.remove(dir, name, Wanted::Directory, |inode| self.keep(inode).map(Some))
    }

    /// Removes a name. `keep` makes a hold on the file before the name is removed.
    fn remove(
        &self,
        dir: ObjectId,
        name: &[u8],
        wanted: Wanted,
        keep: impl Fn(&Arc<Inode>) -> Result<Option<Hold>, ZplError>,
    ) -> Result<Option<Hold>, ZplError> {
        if wanted == Wanted::Directory {
            match name {
                b"." => return Err(ZplError::Invalid { what: "the name of a directory to remove" }),
                b".." => return Err(ZplError::NotEmpty { object: dir }),
                _ => {}
            }
        }
        let dir = self.directory(dir)?;
        let (later, kept) = match wanted {
            Wanted::Directory => self.remove_dir(&dir, name, keep)?,
            Wanted::AnythingElse => {
                let _names = dir.names(&*self.backing)?;
                let inode = self.find_inode(&dir, name)?.ok_or(ZplError::NotFound { dir: dir.id })?;
                let kept = keep(&inode)?;
                (self.remove_locked(&dir, name, &inode, wanted)?, kept)
            }
        };
        if let Some(id) = later {
            self.free_later(id);
        }
        Ok(kept)
    }

    /// Removes a directory. Its own names are locked as well, in the order of numbers, so its number must be
    /// known before either lock is taken.
    fn remove_dir(
        &self,
        dir: &Arc<Inode>,
        name: &[u8],
        keep: impl Fn(&Arc<Inode>) -> Result<Option<Hold>, ZplError>,
    ) -> Result<(Option<ObjectId>, Option<Hold>), ZplError> {
        loop {
            let inode = self.find_inode(dir, name)?.ok_or(ZplError::NotFound { dir: dir.id })?;
            let dirs = [dir, &inode];
            let _names = lock_names(&*self.backing, if inode.is_dir() { &dirs } else { &dirs[..1] })?;
            if self.find(dir, name, false)?.is_some_and(|(found, _)| found == inode.id) {
                let kept = keep(&inode)?;
                return Ok((self.remove_locked(dir, name, &inode, Wanted::Directory)?, kept));
            }
        }
    }

    /// Removes a name under locks. Returns the file if it has no name any more and must still be freed.
    fn remove_locked(
        &self,
        dir: &Arc<Inode>,
        name: &[u8],
        inode: &Arc<Inode>,
        wanted: Wanted,
    ) -> Result<Option<ObjectId>, ZplError> {
        let dir_attrs = Fs::check_linked(dir)?;
        self.check_not_append_only(dir, &dir_attrs)?;
        self.check_removable(inode)?;
        match wanted {
            Wanted::Directory => {
                inode.expect(FileKind::Directory, "directory")?;
                self.check_empty(inode)?;
            }
            Wanted::AnythingElse if inode.is_dir() => {
                let (object, kind) = (inode.id, inode.kind);
                return Err(ZplError::WrongKind { object, kind, expected: "file" });
            }
            Wanted::AnythingElse => {}
        }
        let how = self.name_match(dir, false);
        let tx = self.begin(Cost::FREES)?;
        let store = self.store(&tx);
        drop(dir.ready(&store)?);
        drop(inode.ready(&store)?);
        let now = self.now();
        let mut entries = Edits::new(&tx);
        let later = entries.remove(dir, name, how).and_then(|()| self.drop_link(inode, now, &tx));
        let later = entries.keep_if(later)?;
        dir.change(&store, |attrs| {
            attrs.size = attrs.size.saturating_sub(1).max(2);
            if inode.is_dir() {
                attrs.links = attrs.links.saturating_sub(1).max(2);
            }
            (attrs.mtime, attrs.ctime) = (now, now);
        })?;
        self.log(&tx, || match wanted {
            Wanted::Directory => Body::Rmdir { dir: dir.id, name: name.to_vec() },
            Wanted::AnythingElse => Body::Remove { dir: dir.id, name: name.to_vec() },
        });
        Ok(later)
    }

    /// Fails if flags forbid the removal of a name of the file.
    pub(crate) fn check_removable(&self, inode: &Inode) -> Result<(), ZplError> {
        let attrs = inode.attrs();
        self.check_not_append_only(inode, &attrs)?;
        if attrs.flags & (FLAG_NOUNLINK | FLAG_APPENDONLY) != 0 && !self.is_replaying() {
            return Err(ZplError::NotPermitted { object: inode.id, why: "it cannot be unlinked" });
        }
        Ok(())
    }

    /// Fails if a directory has entries. They are counted, because its size may be wrong.
    pub(crate) fn check_empty(&self, dir: &Inode) -> Result<(), ZplError> {
        if self.entries_of(dir)?.count()? == 0 {
            return Ok(());
        }
        Err(ZplError::NotEmpty { object: dir.id })
    }

    /// Decrements the links of a file. Returns the file if it has no name any more and must still be freed.
    ///
    /// # Errors
    /// If the file cannot be changed: it is unchanged then.
    pub(crate) fn drop_link(
        &self,
        inode: &Arc<Inode>,
        now: Time,
        tx: &Tx,
    ) -> Result<Option<ObjectId>, ZplError> {
        let store = self.store(tx);
        // A directory of extended attributes must be freed before its file.
        let is_xattr_dir = inode.is_dir() && inode.attrs().is_xattr();
        let is_small = inode.object.max_block().0 < BLOCKS_PER_TX && !is_xattr_dir;
        // Held, so that no other thread drops the last hold and frees the file before it is in the unlinked
        // set.
        let held = Held::new(inode);
        let (before, is_freed_now) = {
            let mut state = inode.ready(&store)?;
            let before = state.attrs;
            inode.change_locked(&mut state, &store, |attrs| {
                attrs.links = if inode.is_dir() { 0 } else { attrs.links.saturating_sub(1) };
                attrs.ctime = now;
            })?;
            if state.attrs.links != 0 {
                return Ok(None);
            }
            let is_freed_now = is_small && !inode.is_held_by_others() && state.attrs.xattr_dir.is_none();
            state.is_orphan = true;
            state.is_gone = is_freed_now;
            (before, is_freed_now)
        };
        let result = if is_freed_now { self.set.free(inode.id, tx) } else { self.add_unlinked(inode.id, tx) };
        if let Err(error) = result {
            let mut state = inode.state();
            (state.is_orphan, state.is_gone) = (false, false);
            inode.change_locked(&mut state, &store, |attrs| {
                (attrs.links, attrs.ctime) = (before.links, before.ctime);
            })?;
            return Err(error.into());
        }
        if is_freed_now {
            self.inodes.remove(inode.id);
            self.intent_log().forget(inode.id);
            return Ok(None);
        }
        Ok(held.let_go().then_some(inode.id))
    }

    /// Adds a file to the unlinked set. It may be there already, from an operation that was cut short.
    pub(crate) fn add_unlinked(&self, id: ObjectId, tx: &Tx) -> Result<(), DmuError> {
        match self.unlinked.zap(tx)?.insert_int(id.0) {
            Err(DmuError::KeyExists { .. }) => Ok(()),
            other => other,
        }
    }

    /// Frees a file that has neither name nor holds, with its extended attributes; a long job is left to
    /// [`Fs::drain`].
    pub(crate) fn free_later(&self, id: ObjectId) {
        let mut todo = vec![id];
        let mut steps = STEPS_AT_ONCE;
        while let Some(id) = todo.pop() {
            if steps == 0 {
                self.pending().push_back(id);
                continue;
            }
            steps -= 1;
            match self.free_steps(id, STEPS_AT_ONCE, &mut todo) {
                Ok(true) => {}
                Ok(false) => self.pending().push_back(id),
                // The file is in the unlinked set: the next mount tries again.
                Err(error) => tracing::warn!(object = id.0, %error, "an unlinked file is not freed yet"),
            }
        }
    }

    /// Frees files without a name, in at most `steps` transactions: those found when the file system was
    /// opened, and those too large to be freed at once. Returns true if none is left.
    ///
    /// # Errors
    /// The error of the file that could not be freed; it is left to the next mount.
    pub fn drain(&self, steps: usize) -> Result<bool, ZplError> {
        for _ in 0..steps {
            let Some(id) = self.pending().pop_front() else { return Ok(true) };
            let mut more = Vec::new();
            let result = self.free_steps(id, 1, &mut more);
            self.pending().extend(more);
            if !result? {
                self.pending().push_back(id);
            }
        }
        Ok(self.pending().is_empty())
    }

    /// Frees a file without a name, in at most `steps` transactions. Returns true if it was freed, or is no
    /// file; objects to be freed next go to `more`.
    fn free_steps(&self, id: ObjectId, steps: usize, more: &mut Vec<ObjectId>) -> Result<bool, ZplError> {
        let inode = match self.inode(id) {
            Ok(inode) => inode,
            Err(ZplError::Stale { .. }) => return self.forget_unlinked(id).map(|()| true),
            // An object that is no file is left alone.
            Err(ZplError::NotAFile { .. }) => return Ok(true),
            Err(error) => return Err(error),
        };
        {
            let state = inode.state();
            if state.is_gone || state.attrs.links != 0 || inode.is_held() {
                return Ok(true);
            }
        }
        for _ in 0..steps {
            if self.free_step(&inode, more)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Removes a dangling entry of the unlinked set.
    fn forget_unlinked(&self, id: ObjectId) -> Result<(), ZplError> {
        let tx = self.begin_freeing(Cost::FREES)?;
        match self.unlinked.zap(&tx)?.remove_int(id.0) {
            Ok(()) | Err(DmuError::NoKey { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Runs one transaction of freeing a file. Returns true if it was the last.
    fn free_step(&self, inode: &Arc<Inode>, more: &mut Vec<ObjectId>) -> Result<bool, ZplError> {
        if inode.is_dir() && inode.attrs().is_xattr() && !self.purge_entries(inode, more)? {
            return Ok(false);
        }
        if inode.kind == FileKind::Regular && !self.free_blocks(inode)? {
            return Ok(false);
        }
        let xattr_dir = match inode.attrs().xattr_dir {
            Some(id) => self.xattr_dir_to_free(id)?,
            None => None,
        };
        let tx = self.begin_freeing(Cost::FREES)?;
        {
            let mut state = inode.state();
            if state.is_gone || state.attrs.links != 0 || inode.is_held() {
                return Ok(true);
            }
            state.is_gone = true;
        }
        // The directory usually has entries: they are removed first, and it is freed with the last.
        let next = match &xattr_dir {
            Some(dir) => self.drop_link(dir, self.now(), &tx)?,
            None => None,
        };
        let removed = self.unlinked.zap(&tx)?.remove_int(inode.id.0);
        match removed {
            Ok(()) | Err(DmuError::NoKey { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        self.set.free(inode.id, &tx)?;
        self.inodes.remove(inode.id);
        self.intent_log().forget(inode.id);
        drop(tx);
        more.extend(next);
        Ok(true)
    }

    /// The directory of extended attributes of a file that is being freed.
    fn xattr_dir_to_free(&self, id: ObjectId) -> Result<Option<Arc<Inode>>, ZplError> {
        match self.inode(id) {
            Ok(dir) => Ok(Some(dir).filter(|dir| dir.is_dir() && dir.attrs().is_xattr())),
            Err(ZplError::Stale { .. } | ZplError::NotAFile { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Removes the entries of a directory of extended attributes, a few in each transaction. Returns true if
    /// none is left.
    fn purge_entries(&self, dir: &Arc<Inode>, more: &mut Vec<ObjectId>) -> Result<bool, ZplError> {
        const ENTRIES_PER_TX: usize = 64;
        let _names = dir.names(&*self.backing)?;
        let node = self.reader.node_of(dir.object.read())?;
        let batch: Vec<_> = node.entries()?.take(ENTRIES_PER_TX).collect::<Result<_, _>>()?;
        if batch.is_empty() {
            return Ok(true);
        }
        let (mut inodes, mut blocks) = (Vec::new(), 0);
        for entry in &batch {
            let inode = match self.inode(entry.id) {
                Ok(inode) => Some(inode),
                Err(ZplError::Stale { .. } | ZplError::NotAFile { .. }) => None,
                Err(error) => return Err(error),
            };
            // Files larger than one step join the unlinked set.
            blocks += inode.iter().map(|inode| inode.object.max_block().0.min(BLOCKS_PER_TX)).sum::<u64>();
            inodes.push(inode);
            if blocks >= BLOCKS_PER_TX {
                break;
            }
        }
        let tx = self.begin_freeing(Cost::FREES)?;
        let now = self.now();
        let mut later = Vec::new();
        for (entry, inode) in batch.iter().zip(&inodes) {
            let mut entries = Edits::new(&tx);
            let removed = entries.remove(dir, &entry.name, Match::Exact);
            let dropped = removed.and_then(|()| match inode {
                Some(inode) if inode.attrs().is_xattr() && !inode.is_dir() => self.drop_link(inode, now, &tx),
                _ => Ok(None),
            });
            later.extend(entries.keep_if(dropped)?);
        }
        drop(tx);
        more.extend(later);
        Ok(inodes.len() < ENTRIES_PER_TX && inodes.len() == batch.len())
    }

    /// Frees blocks of a file, from its end. Returns true if the remaining ones are few enough to be freed
    /// with the object.
    fn free_blocks(&self, inode: &Inode) -> Result<bool, ZplError> {
        let object = &inode.object;
        if object.max_block() < BlockId(BLOCKS_PER_TX) {
            return Ok(true);
        }
        let tail = object.tail(&(0..u64::MAX), BLOCKS_PER_TX)?;
        if tail.start == 0 {
            return Ok(true);
        }
        let tx = self.begin_freeing(Cost::FREES)?;
        object.free_range(tail.start, u64::MAX, &tx)?;
        object.note_freed(tail.blocks, &tx);
        Ok(false)
    }
}
