//! Renames within and between directories (docs/on-disk/23-zpl.md, section 6).

use crate::dir::edits::Edits;
use crate::dir::names::{Given, NewFile, create_record, entry_value, lock_names};
use crate::fs::backing::Cost;
use crate::fs::writable::Fs;
use crate::node::hold::Hold;
use crate::node::inode::{Inode, locked};
use crate::{Attrs, FileKind, ZplError};
use dmu::AllocTx;
use dmu::Tx;
use dmu::zap::Match;
use format::ObjectId;
use format::zil::{Body, Rename};
use format::znode::{FLAG_ARCHIVE, FLAG_AV_MODIFIED, FLAG_PROJINHERIT, Time};
use std::sync::Arc;

/// Most parents that are followed upwards: a longer chain is a cycle.
const DEPTH_MAX: usize = 4096;

/// Handling of an existing file at the new name, and of the old name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RenameHow {
    /// An existing file at the new name loses that name.
    #[default]
    Replace,
    /// The new name must be free.
    NoReplace,
    /// The two files exchange their names.
    Exchange,
    /// Like [`RenameHow::Replace`]; the old name gets a whiteout, a device 0:0, with these owners.
    Whiteout {
        /// Id of the owner of the whiteout.
        uid: u32,
        /// Id of the group of the whiteout.
        gid: u32,
    },
}

/// A name in a directory.
#[derive(Clone, Copy)]
struct DirName<'r> {
    dir: &'r Arc<Inode>,
    name: &'r [u8],
}

/// A rename whose locks are held.
struct Move<'r> {
    from: DirName<'r>,
    to: DirName<'r>,
    /// The file that is moved, and its name in stored form.
    source: &'r Arc<Inode>,
    source_name: &'r [u8],
    target: Option<&'r Arc<Inode>>,
    how: RenameHow,
    /// Facts about a whiteout that a replay creates again.
    given: &'r Given,
}

impl Fs {
    /// Moves a name to another name or directory, or exchanges two names.
    ///
    /// # Errors
    /// [`ZplError::NotFound`] if the old name does not exist, or for an exchange the new one;
    /// [`ZplError::Exists`] if the new name exists and must not; [`ZplError::IntoItself`];
    /// [`ZplError::NotEmpty`], [`ZplError::WrongKind`] if the file at the new name cannot be replaced;
    /// [`ZplError::OtherProject`].
    pub fn rename(
        &self,
        from_dir: ObjectId,
        from: &[u8],
        to_dir: ObjectId,
        to: &[u8],
        how: RenameHow,
    ) -> Result<(), ZplError> {
        self.rename_as(from_dir, from, to_dir, to, how, &Given::default())
    }

    /// Like [`Fs::rename`], and returns a hold on the file that lost the new name, for handles that are still
    /// open.
    ///
    /// # Errors
    /// Those of [`Fs::rename`].
    pub fn rename_kept(
        self: &Arc<Self>,
        from: (ObjectId, &[u8]),
        to: (ObjectId, &[u8]),
        how: RenameHow,
    ) -> Result<Option<Hold>, ZplError> {
        let keep = |inode: &Arc<Inode>| match how {
            RenameHow::Exchange => Ok(None),
            _ => self.keep(inode).map(Some),
        };
        self.rename_with(from, to, how, &Given::default(), keep)
    }

    pub(crate) fn rename_as(
        &self,
        from_dir: ObjectId,
        from: &[u8],
        to_dir: ObjectId,
        to: &[u8],
        how: RenameHow,
        given: &Given,
    ) -> Result<(), ZplError> {
        self.rename_with((from_dir, from), (to_dir, to), how, given, |_| Ok(None)).map(drop)
    }

    /// Renames. `keep` makes a hold on the file at the new name, before it loses that name.
    fn rename_with(
        &self,
        (from_dir, from): (ObjectId, &[u8]),
        (to_dir, to): (ObjectId, &[u8]),
        how: RenameHow,
        given: &Given,
        keep: impl Fn(&Arc<Inode>) -> Result<Option<Hold>, ZplError>,
    ) -> Result<Option<Hold>, ZplError> {
        if [from, to].iter().any(|name| matches!(*name, b"." | b"..")) {
            return Err(ZplError::Invalid { what: "a name to be moved" });
        }
        let (from_dir, to_dir) = (self.directory(from_dir)?, self.directory(to_dir)?);
        self.check_name(&to_dir, to)?;
        // Keeps directories in place while this thread walks up to make sure that no cycle is made.
        let is_moved = from_dir.id != to_dir.id;
        let _renames = is_moved.then(|| locked(&self.renames, &*self.backing)).transpose()?;
        let (later, kept) = loop {
            let target;
            let mut names = lock_names(&*self.backing, &[&from_dir, &to_dir])?;
            let Some((source, mut stored)) = self.find_named(&from_dir, from)? else {
                return Err(ZplError::NotFound { dir: from_dir.id });
            };
            target = self.find_inode(&to_dir, to)?;
            let is_locked = |dir: &Arc<Inode>| dir.id == from_dir.id || dir.id == to_dir.id;
            if let Some(target) = target.as_ref().filter(|target| target.is_dir() && !is_locked(target)) {
                // The names of the target directory must be locked too, in the order of numbers: release and
                // look up again.
                drop(names);
                names = lock_names(&*self.backing, &[&from_dir, &to_dir, target])?;
                let still = self.find(&to_dir, to, false)?.is_some_and(|(id, _)| id == target.id);
                match self.find(&from_dir, from, false)? {
                    Some((id, name)) if id == source.id && still => stored = name,
                    _ => continue,
                }
            }
            let kept = target.as_ref().map_or(Ok(None), &keep)?;
            let (from, to) = (DirName { dir: &from_dir, name: from }, DirName { dir: &to_dir, name: to });
            let (source, source_name, target) = (&source, stored.as_slice(), target.as_ref());
            let later = self.rename_locked(&Move { from, to, source, source_name, target, how, given })?;
            drop(names);
            break (later, kept);
        };
        if let Some(id) = later {
            self.free_later(id);
        }
        Ok(kept)
    }

    fn rename_locked(&self, m: &Move<'_>) -> Result<Option<ObjectId>, ZplError> {
        let is_same = m.target.is_some_and(|target| target.id == m.source.id);
        let is_respelled = is_same && m.from.dir.id == m.to.dir.id && m.source_name != m.to.name && {
            // Are these two names of one file, or one name in another spelling?
            let entries = self.entries_of(m.to.dir)?;
            !entries.contains(m.to.name)?
        };
        if is_same && !is_respelled {
            return match m.how {
                RenameHow::NoReplace => Err(ZplError::Exists { dir: m.to.dir.id }),
                _ => Ok(None),
            };
        }
        let target = m.target.filter(|_| !is_same);
        self.check_rename(m, target)?;
        let tx = self.begin(if target.is_some() { Cost::FREES } else { Cost::NAMES })?;
        let store = self.store(&tx);
        for inode in [m.from.dir, m.to.dir, m.source].into_iter().chain(target) {
            drop(inode.ready(&store)?);
        }
        let now = self.now();
        self.intent_log().order(m.source.id);
        if m.how == RenameHow::Exchange {
            let Some(target) = target else { return Err(ZplError::NotFound { dir: m.to.dir.id }) };
            self.exchange(m, target, now, &tx)?;
            self.log(&tx, || Body::Exchange(m.record()));
            return Ok(None);
        }
        let later = self.move_name(m, target, now, &tx)?;
        self.note_name(m.to.name, &tx);
        Ok(later)
    }

    /// Checks flags, projects and kinds of files that forbid a rename.
    fn check_rename(&self, m: &Move<'_>, target: Option<&Arc<Inode>>) -> Result<(), ZplError> {
        let (from_attrs, to_attrs) = (Fs::check_linked(m.from.dir)?, Fs::check_linked(m.to.dir)?);
        self.check_not_append_only(m.from.dir, &from_attrs)?;
        self.check_mutable(m.to.dir, &to_attrs)?;
        self.check_removable(m.source)?;
        let attrs = m.source.attrs();
        if attrs.is_xattr() != to_attrs.is_xattr() {
            return Err(ZplError::Invalid { what: "a move between files and extended attributes" });
        }
        self.check_project(m.source, &attrs, m.to.dir, &to_attrs)?;
        if m.source.is_dir() {
            self.check_not_below(m.to.dir, m.source)?;
        }
        let Some(target) = target else {
            return match m.how {
                RenameHow::Exchange => Err(ZplError::NotFound { dir: m.to.dir.id }),
                _ => Ok(()),
            };
        };
        self.check_removable(target)?;
        match m.how {
            RenameHow::NoReplace => Err(ZplError::Exists { dir: m.to.dir.id }),
            RenameHow::Exchange => {
                self.check_not_append_only(m.to.dir, &to_attrs)?;
                self.check_mutable(m.from.dir, &from_attrs)?;
                self.check_project(target, &target.attrs(), m.from.dir, &from_attrs)?;
                if target.is_dir() { self.check_not_below(m.from.dir, target) } else { Ok(()) }
            }
            RenameHow::Replace | RenameHow::Whiteout { .. } => {
                self.check_not_append_only(m.to.dir, &to_attrs)?;
                match (m.source.is_dir(), target.is_dir()) {
                    (true, true) => self.check_empty(target),
                    (true, false) => target.expect(FileKind::Directory, "directory"),
                    (false, true) => {
                        let (object, kind) = (target.id, target.kind);
                        Err(ZplError::WrongKind { object, kind, expected: "file" })
                    }
                    (false, false) => Ok(()),
                }
            }
        }
    }

    /// Fails if `dir` is `ancestor` or below it.
    fn check_not_below(&self, dir: &Arc<Inode>, ancestor: &Inode) -> Result<(), ZplError> {
        let mut at = Arc::clone(dir);
        for _ in 0..DEPTH_MAX {
            if at.id == ancestor.id {
                return Err(ZplError::IntoItself { object: ancestor.id });
            }
            if at.id == self.root() {
                return Ok(());
            }
            let parent = at.attrs().parent;
            at = self.inode(parent)?;
        }
        Err(ZplError::Corrupt {
            objset: self.set.number(),
            object: dir.id,
            why: "its parents go round in a circle",
        })
    }

    /// Moves the source to its new name, and removes the file there.
    fn move_name(
        &self,
        m: &Move<'_>,
        target: Option<&Arc<Inode>>,
        now: Time,
        tx: &Tx,
    ) -> Result<Option<ObjectId>, ZplError> {
        let store = self.store(tx);
        let is_dir = m.source.is_dir();
        let whiteout = match m.how {
            RenameHow::Whiteout { uid, gid } => Some(self.make_whiteout(m, uid, gid, now, tx)?),
            _ => None,
        };
        if let Some((inode, _)) = &whiteout {
            // Before a name leads to it: a look-up of that name must find this inode.
            self.inodes.insert(Arc::clone(inode));
        }
        let mut entries = Edits::new(tx);
        let made = whiteout.as_ref().map(|(inode, _)| entry_value(inode.id, inode.kind));
        let moved_away = self.move_entries(m, target.is_some(), made, &mut entries);
        let later = moved_away.and_then(|()| match target {
            Some(target) => self.drop_link(target, now, tx),
            None => Ok(None),
        });
        let later = entries.keep_if(later);
        if let (Err(_), Some((inode, _))) = (&later, &whiteout) {
            self.inodes.remove_this(inode);
            self.set.free(inode.id, tx)?;
        }
        let later = later?;
        m.source.change(&store, |attrs| moved(attrs, m.to.dir.id, now))?;
        let from_change = if whiteout.is_some() { 0 } else { -1 };
        let to_change = i64::from(target.is_none());
        let subdirs_to = i64::from(is_dir) - i64::from(target.is_some_and(|target| target.is_dir()));
        change_dir(m.from.dir, &store, from_change, -i64::from(is_dir), now)?;
        change_dir(m.to.dir, &store, to_change, subdirs_to, now)?;
        match whiteout {
            Some((inode, attrs)) => {
                self.log(tx, || {
                    let made = create_record(m.from.dir.id, m.source_name, &inode, &attrs, &[]);
                    Body::Whiteout(m.record(), Box::new(made))
                });
            }
            None => self.log(tx, || Body::Rename(m.record())),
        }
        Ok(later)
    }

    /// Moves the entry, and replaces that of the target if there is one. `made` is the whiteout.
    fn move_entries<'r>(
        &self,
        m: &Move<'r>,
        has_target: bool,
        made: Option<u64>,
        entries: &mut Edits<'r>,
    ) -> Result<(), ZplError> {
        let (from, to, how) = (m.from.dir, m.to.dir, self.name_match(m.to.dir, false));
        entries.remove(from, m.source_name, Match::Exact)?;
        // The spelling of the new name is used, even if it replaces another spelling.
        if has_target {
            entries.remove(to, m.to.name, how)?;
        }
        entries.insert(to, m.to.name, entry_value(m.source.id, m.source.kind), how)?;
        match made {
            Some(made) => entries.insert(from, m.source_name, made, Match::Exact),
            None => Ok(()),
        }
    }

    /// Creates the device that takes the place of the old name.
    fn make_whiteout(
        &self,
        m: &Move<'_>,
        uid: u32,
        gid: u32,
        now: Time,
        tx: &Tx,
    ) -> Result<(Arc<Inode>, Attrs), ZplError> {
        let new = NewFile { uid, gid, ..NewFile::of(FileKind::CharDevice, 0) };
        let dir = m.from.dir.attrs();
        let passes_on = dir.flags & FLAG_PROJINHERIT != 0;
        let fresh = crate::attrs::initial::Fresh {
            kind: new.kind,
            mode: new.kind.mode_bits(),
            uid: uid.into(),
            gid: gid.into(),
            parent: m.from.dir.id,
            rdev: (0, 0),
            project: (passes_on || self.options().projects).then_some(if passes_on { dir.projid } else { 0 }),
            flags: 0,
            is_xattr: false,
            links: 1,
            generation: m.given.generation.unwrap_or(tx.txg().0),
            // A replay takes the time from the record.
            now: m.given.crtime.unwrap_or(now),
            crtime: m.given.crtime.unwrap_or(now),
            target: &[],
            xattrs: None,
            slots: m.given.object.map_or_else(|| self.options().dnode_slots, |(_, slots)| slots).clamp(1, 32),
        };
        let inode = self.make_object(&fresh, m.given, tx)?;
        let attrs = inode.attrs();
        Ok((inode, attrs))
    }

    /// Exchanges the names of two files.
    fn exchange(&self, m: &Move<'_>, target: &Arc<Inode>, now: Time, tx: &Tx) -> Result<(), ZplError> {
        let store = self.store(tx);
        let how = self.name_match(m.to.dir, false);
        let [source_value, target_value] = [m.source, target].map(|inode| entry_value(inode.id, inode.kind));
        let mut entries = Edits::new(tx);
        let exchanged = entries
            .update(m.from.dir, m.source_name, target_value, Match::Exact)
            .and_then(|()| entries.update(m.to.dir, m.to.name, source_value, how));
        entries.keep_if(exchanged)?;
        m.source.change(&store, |attrs| moved(attrs, m.to.dir.id, now))?;
        target.change(&store, |attrs| moved(attrs, m.from.dir.id, now))?;
        let subdirs = i64::from(m.source.is_dir()) - i64::from(target.is_dir());
        change_dir(m.from.dir, &store, 0, -subdirs, now)?;
        change_dir(m.to.dir, &store, 0, subdirs, now)
    }
}

impl Move<'_> {
    fn record(&self) -> Rename {
        Rename {
            from_dir: self.from.dir.id,
            to_dir: self.to.dir.id,
            from: self.from.name.to_vec(),
            to: self.to.name.to_vec(),
        }
    }
}

fn moved(attrs: &mut Attrs, parent: ObjectId, now: Time) {
    attrs.parent = parent;
    attrs.ctime = now;
    attrs.flags |= FLAG_ARCHIVE | FLAG_AV_MODIFIED;
}

fn change_dir(
    dir: &Inode,
    store: &crate::node::inode::Store<'_>,
    entries: i64,
    subdirs: i64,
    now: Time,
) -> Result<(), ZplError> {
    dir.change(store, |attrs| {
        attrs.size = attrs.size.saturating_add_signed(entries).max(2);
        attrs.links = attrs.links.saturating_add_signed(subdirs).max(2);
        (attrs.mtime, attrs.ctime) = (now, now);
    })
}
