//! Operations on names: look-up, creation of files, links.

use crate::acl::change as acl;
use crate::attrs::initial::Fresh;
use crate::attrs::record::log_time;
use crate::dir::edits::Edits;
use crate::dir::{LONG_NAME_MAX, NAME_MAX, is_name};
use crate::file::TARGET_MAX;
use crate::fs::backing::{Backing, Cost};
use crate::fs::writable::Fs;
use crate::node::hold::Hold;
use crate::node::inode::Inode;
use crate::node::kind::encode_device;
use crate::space::QuotaOf;
use crate::space::quota::Owners;
use crate::{Attrs, DirEntries, DirEntry, DirPage, FileKind, ZplError};
use dmu::Tx;
use dmu::interrupt::Guard;
use dmu::panics;
use dmu::zap::ZapMut;
use dmu::{AllocTx, DmuError};
use format::acl::{POSIX_ACCESS, POSIX_DEFAULT, decode_posix};
use format::zil::{Body, Create, CreateKind};
use format::znode::{DirentValue, FLAG_PROJINHERIT, Time};
use format::{NvList, NvValue, ObjectId, Txg};
use std::sync::Arc;

/// Largest number of names of a file.
const LINK_MAX: u64 = (1 << 31) - 1;
/// Name of the directory of snapshots, in the root directory.
const CONTROL_NAME: &[u8] = b".zfs";
const SETGID: u32 = 0o2000;

/// Description of a file to be created.
#[derive(Debug, Clone, Copy)]
pub struct NewFile<'f> {
    /// Kind of the file.
    pub kind: FileKind,
    /// Permissions, set-id and sticky bits.
    pub mode: u32,
    /// Permissions to be masked out, unless the directory has a default ACL.
    pub umask: u32,
    /// Id of the owner.
    pub uid: u32,
    /// Id of the group, unless the directory passes its own on.
    pub gid: u32,
    /// Major and minor number, for devices.
    pub rdev: (u32, u32),
    /// Target of a symbolic link; empty for other files.
    pub target: &'f [u8],
}

impl NewFile<'_> {
    /// A file of this kind with these permissions, owned by root.
    pub fn of(kind: FileKind, mode: u32) -> NewFile<'static> {
        NewFile { kind, mode, umask: 0, uid: 0, gid: 0, rdev: (0, 0), target: &[] }
    }
}

/// A file that was created or found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Made {
    /// Object number of the file.
    pub id: ObjectId,
    /// Attributes of the file as of the look-up.
    pub attrs: Attrs,
}

/// Facts about a file that a replay creates again.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Given {
    /// Object number, and slots of the dnode.
    pub(crate) object: Option<(ObjectId, u8)>,
    pub(crate) generation: Option<u64>,
    pub(crate) crtime: Option<Time>,
    /// Mode and group are final: the directory does not change them.
    pub(crate) is_exact: bool,
    /// Quotas do not apply, and the file may use the slop space.
    pub(crate) is_always_room: bool,
}

/// A stand-in for a transaction: a ZAP is opened with it for look-ups only.
struct Looking;

impl AllocTx for Looking {
    fn txg(&self) -> Txg {
        Txg(0)
    }
}

/// The value of an entry for a file.
pub(crate) fn entry_value(id: ObjectId, kind: FileKind) -> u64 {
    DirentValue::encode(id, kind.type_bits())
}

/// The log record of a new file.
pub(crate) fn create_record(
    dir: ObjectId,
    name: &[u8],
    inode: &Inode,
    attrs: &Attrs,
    target: &[u8],
) -> Create {
    Create {
        what: match inode.kind {
            FileKind::Directory => CreateKind::Dir,
            FileKind::Symlink => CreateKind::Symlink,
            _ => CreateKind::File,
        },
        dir,
        object: inode.id,
        slots: inode.object.slots(),
        mode: attrs.mode.into(),
        uid: attrs.uid,
        gid: attrs.gid,
        generation: attrs.generation,
        crtime: log_time(attrs.crtime),
        rdev: encode_device(attrs.rdev.0, attrs.rdev.1),
        xvattr: None,
        acl: None,
        domains: Vec::new(),
        name: name.to_vec(),
        target: target.to_vec(),
    }
}

/// A file, and its name in stored form.
pub(crate) type Named = (Arc<Inode>, Vec<u8>);

/// Attributes that a new file inherits from its directory.
struct Inherited {
    mode: u32,
    gid: u64,
    project: Option<u64>,
    flags: u64,
    /// Packed extended attributes with the inherited ACLs, and those ACLs.
    xattrs: Option<Vec<u8>>,
    lists: Vec<(&'static str, Vec<u8>)>,
}

impl Fs {
    /// The ZAP of a directory, for look-ups.
    pub(crate) fn entries_of<'i>(&self, dir: &'i Inode) -> Result<ZapMut<'i>, ZplError> {
        Ok(dir.object.zap(&Looking)?)
    }

    /// Looks up `name` in a directory, `.` and `..` included. `None`: there is no such entry.
    ///
    /// # Errors
    /// [`ZplError::Stale`], [`ZplError::WrongKind`]; or the directory cannot be read.
    pub fn lookup(&self, dir: ObjectId, name: &[u8]) -> Result<Option<ObjectId>, ZplError> {
        self.lookup_with(dir, name, false)
    }

    /// Like [`Fs::lookup`]; if the file system's case sensitivity is mixed, case can be ignored.
    ///
    /// # Errors
    /// [`ZplError::Stale`], [`ZplError::WrongKind`]; or the directory cannot be read.
    pub(crate) fn lookup_with(
        &self,
        dir: ObjectId,
        name: &[u8],
        ignore_case: bool,
    ) -> Result<Option<ObjectId>, ZplError> {
        let dir = self.directory(dir)?;
        match name {
            b"." => return Ok(Some(dir.id)),
            b".." => return Ok(Some(dir.attrs().parent)),
            _ => {}
        }
        Ok(self.find(&dir, name, ignore_case)?.map(|(id, _)| id))
    }

    /// The object that a name leads to, and the name in stored form.
    pub(crate) fn find(
        &self,
        dir: &Inode,
        name: &[u8],
        ignore_case: bool,
    ) -> Result<Option<(ObjectId, Vec<u8>)>, ZplError> {
        if !is_name(name) {
            return Ok(None);
        }
        let how = self.name_match(dir, ignore_case);
        let entry = match self.entries_of(dir).and_then(|entries| Ok(entries.lookup_matching(name, how)?)) {
            // The directory was removed meanwhile.
            Err(_) if dir.state().is_gone => return Err(ZplError::Stale { object: dir.id }),
            other => other?,
        };
        let Some(entry) = entry else { return Ok(None) };
        let id = entry.u64().and_then(|value| DirentValue::decode(value).object);
        Ok(id.map(|id| (id, entry.name().to_vec())))
    }

    /// The file that a name leads to.
    pub(crate) fn find_inode(&self, dir: &Inode, name: &[u8]) -> Result<Option<Arc<Inode>>, ZplError> {
        Ok(self.find_named(dir, name)?.map(|(inode, _)| inode))
    }

    /// The file that a name leads to, and the name in stored form.
    pub(crate) fn find_named(&self, dir: &Inode, name: &[u8]) -> Result<Option<Named>, ZplError> {
        let mut last = None;
        loop {
            let Some((id, stored)) = self.find(dir, name, false)? else { return Ok(None) };
            match self.inode(id) {
                // The name was removed between the two look-ups; if it is still there, the entry is dangling.
                Err(ZplError::Stale { .. }) if last != Some(id) => last = Some(id),
                other => return other.map(|inode| Some((inode, stored))),
            }
        }
    }

    /// At most `max` entries of a directory from a position on: 0, or the cursor of an entry.
    ///
    /// # Errors
    /// [`ZplError::Stale`], [`ZplError::WrongKind`]; or the directory cannot be read.
    pub fn read_dir(&self, dir: ObjectId, cursor: u64, max: usize) -> Result<Vec<DirEntry>, ZplError> {
        self.with_entries(dir, cursor, |entries| entries.take(max).collect())
    }

    /// Entries of a directory from a position on: 0, or the cursor of an entry. Reads entries as long as
    /// `takes` accepts the length of their names. An empty page: no entries are left, or the first was not
    /// accepted.
    ///
    /// # Errors
    /// [`ZplError::Stale`]; or the first entry cannot be read. An error at a later entry is returned when
    /// that entry is asked for.
    pub fn read_dir_page(
        &self,
        dir: ObjectId,
        cursor: u64,
        takes: &mut dyn FnMut(usize) -> bool,
    ) -> Result<DirPage, ZplError> {
        self.with_entries(dir, cursor, |entries| DirPage::read(entries, takes))
    }

    fn with_entries<R>(
        &self,
        dir: ObjectId,
        cursor: u64,
        read: impl FnOnce(DirEntries) -> Result<R, ZplError>,
    ) -> Result<R, ZplError> {
        let dir = self.directory(dir)?;
        // Without the lock, a leaf that is split meanwhile could hide its entries.
        let _names = dir.names(&*self.backing)?;
        {
            let state = dir.state();
            if state.is_gone {
                return Err(ZplError::Stale { object: dir.id });
            }
        }
        read(self.reader.node_of(dir.object.read())?.entries_from(cursor)?)
    }

    /// Fails unless a file can have this name.
    pub(crate) fn check_name(&self, dir: &Inode, name: &[u8]) -> Result<(), ZplError> {
        let may_be_long = self.options().long_names || self.is_replaying();
        let max = if may_be_long { LONG_NAME_MAX } else { NAME_MAX };
        if name.len() > max {
            return Err(ZplError::NameTooLong { len: name.len(), max });
        }
        if name == b"." || name == b".." {
            return Err(ZplError::Exists { dir: dir.id });
        }
        if !is_name(name) || (self.reader.is_utf8only() && std::str::from_utf8(name).is_err()) {
            return Err(ZplError::InvalidName);
        }
        if dir.id == self.root() && name == CONTROL_NAME {
            return Err(ZplError::Exists { dir: dir.id });
        }
        Ok(())
    }

    /// Longest name that a file can have, in bytes.
    pub fn name_max(&self) -> usize {
        if self.options().long_names { LONG_NAME_MAX } else { NAME_MAX }
    }

    /// Fails if the directory was removed, so that no entry can be added.
    pub(crate) fn check_linked(dir: &Inode) -> Result<Attrs, ZplError> {
        let state = dir.state();
        if state.is_gone || state.attrs.links == 0 {
            return Err(ZplError::Stale { object: dir.id });
        }
        Ok(state.attrs)
    }

    pub(crate) fn note_name(&self, name: &[u8], tx: &Tx) {
        if name.len() > NAME_MAX {
            self.backing.uses_feature("longname", tx);
        }
    }

    /// Creates a file of any kind.
    ///
    /// # Errors
    /// [`ZplError::Exists`] if the name is taken; [`ZplError::NameTooLong`], [`ZplError::InvalidName`];
    /// [`ZplError::OverQuota`]; [`ZplError::Begin`] if there is not enough space.
    pub fn create(&self, dir: ObjectId, name: &[u8], new: &NewFile<'_>) -> Result<Made, ZplError> {
        self.create_as(dir, name, new, &Given::default())
    }

    /// Creates a directory to be used as a mount point. Quotas do not apply, because it takes almost no
    /// space, and a file system at its quota must not keep those below it from being mounted.
    ///
    /// # Errors
    /// Those of [`Fs::create`], except for quotas.
    pub fn create_mount_point(
        &self,
        dir: ObjectId,
        name: &[u8],
        new: &NewFile<'_>,
    ) -> Result<Made, ZplError> {
        self.create_as(dir, name, new, &Given { is_always_room: true, ..Given::default() })
    }

    pub(crate) fn create_as(
        &self,
        dir: ObjectId,
        name: &[u8],
        new: &NewFile<'_>,
        given: &Given,
    ) -> Result<Made, ZplError> {
        let dir = self.directory(dir)?;
        self.check_name(&dir, name)?;
        check_new(new)?;
        let attrs = Fs::check_linked(&dir)?;
        self.check_mutable(&dir, &attrs)?;
        let inherited = self.inherit(&dir, &attrs, new, given)?;
        self.check_new_quota(new.uid.into(), &inherited)?;

        let how = self.name_match(&dir, false);
        let _names = dir.names(&*self.backing)?;
        Fs::check_linked(&dir)?;
        let tx = self.begin(Cost { frees: given.is_always_room, ..Cost::NAMES })?;
        panics::provoke(name, panics::TEST_NAMES[1]);
        let entries = dir.object.zap(&tx)?;
        // Usually the name is free, which the insertion finds out. A replay must check first: the object of
        // the file may exist already.
        if given.object.is_some() && entries.lookup_matching(name, how)?.is_some() {
            return Err(ZplError::Exists { dir: dir.id });
        }
        // A replay keeps the time of creation.
        let now = given.crtime.unwrap_or_else(|| self.now());
        let fresh = self.fresh(new, &inherited, given, attrs.is_xattr(), dir.id, now, &tx);
        drop(dir.ready(&self.store(&tx))?);
        let inode = self.make_object(&fresh, given, &tx)?;
        // A concurrent look-up of the name finds this inode in the table and waits for its attributes: so no
        // change of the file, or in it, is logged before the file itself.
        let made = inode.state();
        self.inodes.insert(Arc::clone(&inode));
        if let Err(error) = entries.insert_matching(name, entry_value(inode.id, new.kind), how) {
            drop(made);
            self.inodes.remove_this(&inode);
            self.set.free(inode.id, &tx)?;
            return Err(match error {
                DmuError::KeyExists { .. } => ZplError::Exists { dir: dir.id },
                other => other.into(),
            });
        }
        self.note_name(name, &tx);
        dir.change(&self.store(&tx), |attrs| {
            attrs.size = attrs.size.saturating_add(1);
            attrs.links = attrs.links.saturating_add(u64::from(new.kind == FileKind::Directory));
            (attrs.mtime, attrs.ctime) = (now, now);
        })?;
        let attrs = made.attrs;
        self.log(&tx, || Body::Create(Box::new(create_record(dir.id, name, &inode, &attrs, new.target))));
        self.log_lists(&inode, &inherited, &tx);
        drop(made);
        Ok(Made { id: inode.id, attrs })
    }

    /// Creates a file without a name. It is freed when the handle is dropped, unless it was linked before.
    ///
    /// # Errors
    /// [`ZplError::Stale`] if the directory was removed; [`ZplError::OverQuota`]; [`ZplError::Begin`] if
    /// there is not enough space.
    pub fn tmpfile(self: &Arc<Self>, dir: ObjectId, new: &NewFile<'_>) -> Result<Hold, ZplError> {
        let dir = self.directory(dir)?;
        if new.kind != FileKind::Regular {
            return Err(ZplError::Invalid { what: "the kind of a file without a name" });
        }
        let attrs = Fs::check_linked(&dir)?;
        self.check_mutable(&dir, &attrs)?;
        let given = Given::default();
        let inherited = self.inherit(&dir, &attrs, new, &given)?;
        self.check_new_quota(new.uid.into(), &inherited)?;
        let tx = self.begin(Cost::NAMES)?;
        let mut fresh = self.fresh(new, &inherited, &given, attrs.is_xattr(), dir.id, self.now(), &tx);
        fresh.links = 0;
        let inode = self.make_object(&fresh, &given, &tx)?;
        if let Err(error) = self.add_unlinked(inode.id, &tx) {
            self.set.free(inode.id, &tx)?;
            return Err(error.into());
        }
        {
            let mut state = inode.state();
            state.is_orphan = true;
            state.is_nameless = true;
        }
        // Before other threads can find it: a file with neither name nor hold is freed.
        inode.hold();
        self.inodes.insert(Arc::clone(&inode));
        self.intent_log().log_by_txg(&tx, inode.id);
        Ok(Hold::new(Arc::clone(self), inode))
    }

    /// Adds a name to a file.
    ///
    /// # Errors
    /// [`ZplError::Exists`], [`ZplError::NotPermitted`], [`ZplError::TooManyLinks`],
    /// [`ZplError::OtherProject`]; errors of names as for [`Fs::create`].
    pub fn link(&self, id: ObjectId, dir: ObjectId, name: &[u8]) -> Result<Attrs, ZplError> {
        let (dir, inode) = (self.directory(dir)?, self.inode(id)?);
        self.check_name(&dir, name)?;
        if inode.is_dir() {
            return Err(ZplError::NotPermitted { object: id, why: "a directory has one name" });
        }
        let (dir_attrs, attrs) = (Fs::check_linked(&dir)?, inode.attrs());
        self.check_mutable(&dir, &dir_attrs)?;
        self.check_not_append_only(&inode, &attrs)?;
        if attrs.is_xattr() != dir_attrs.is_xattr() {
            return Err(ZplError::Invalid { what: "a link between files and extended attributes" });
        }
        self.check_project(&inode, &attrs, &dir, &dir_attrs)?;
        let how = self.name_match(&dir, false);
        let _names = dir.names(&*self.backing)?;
        Fs::check_linked(&dir)?;
        if self.entries_of(&dir)?.lookup_matching(name, how)?.is_some() {
            return Err(ZplError::Exists { dir: dir.id });
        }
        let tx = self.begin(Cost::NAMES)?;
        let store = self.store(&tx);
        drop(dir.ready(&store)?);
        let now = self.now();
        // Locked until the link is logged: the removal of the last other name is logged after it, because a
        // replay would otherwise free the file.
        let mut state = inode.ready(&store)?;
        if state.attrs.links >= LINK_MAX {
            return Err(ZplError::TooManyLinks { object: id });
        }
        if state.attrs.links == 0 && !state.is_nameless {
            return Err(ZplError::Stale { object: id });
        }
        inode.change_locked(&mut state, &store, |attrs| {
            attrs.links += 1;
            attrs.ctime = now;
            attrs.parent = dir.id;
        })?;
        state.is_orphan = false;
        let was_nameless = std::mem::take(&mut state.is_nameless);
        let result = match was_nameless {
            true => self.unlinked.zap(&tx).and_then(|set| set.remove_int(id.0)),
            false => Ok(()),
        };
        let mut entries = Edits::new(&tx);
        let inserted = result
            .map_err(ZplError::from)
            .and_then(|()| entries.insert(&dir, name, entry_value(id, inode.kind), how));
        if let Err(error) = inserted {
            inode.change_locked(&mut state, &store, |now| {
                (now.links, now.ctime, now.parent) = (now.links - 1, attrs.ctime, attrs.parent);
            })?;
            (state.is_orphan, state.is_nameless) = (was_nameless, was_nameless);
            drop(state);
            if was_nameless {
                self.add_unlinked(id, &tx)?;
            }
            return Err(error);
        }
        self.note_name(name, &tx);
        dir.change(&store, |attrs| {
            attrs.size = attrs.size.saturating_add(1);
            (attrs.mtime, attrs.ctime) = (now, now);
        })?;
        if was_nameless {
            // No record created the file, so no record can refer to it: the log commits by txg instead.
            let log = self.intent_log();
            log.log_by_txg(&tx, id);
            log.order(id);
        } else {
            self.log(&tx, || Body::Link { dir: dir.id, object: id, name: name.to_vec() });
        }
        Ok(state.attrs)
    }

    fn check_new_quota(&self, uid: u64, inherited: &Inherited) -> Result<(), ZplError> {
        let owners = Owners { uid, gid: inherited.gid, project: inherited.project.unwrap_or(0) };
        self.check_quota(owners, &[QuotaOf::Space, QuotaOf::Objects])
    }

    #[allow(clippy::too_many_arguments)] // the one place where all that makes a file comes together
    fn fresh<'f>(
        &self,
        new: &NewFile<'f>,
        inherited: &'f Inherited,
        given: &Given,
        is_xattr: bool,
        parent: ObjectId,
        now: Time,
        tx: &Tx,
    ) -> Fresh<'f> {
        Fresh {
            kind: new.kind,
            mode: new.kind.mode_bits() | inherited.mode,
            uid: new.uid.into(),
            gid: inherited.gid,
            parent,
            rdev: new.rdev,
            project: inherited.project,
            flags: inherited.flags,
            is_xattr,
            links: if new.kind == FileKind::Directory { 2 } else { 1 },
            generation: given.generation.unwrap_or(tx.txg().0),
            now,
            crtime: given.crtime.unwrap_or(now),
            target: if new.kind == FileKind::Symlink { new.target } else { &[] },
            xattrs: inherited.xattrs.as_deref(),
            slots: given.object.map_or_else(|| self.options().dnode_slots, |(_, slots)| slots).clamp(1, 32),
        }
    }

    /// Creates the object of a new file.
    pub(crate) fn make_object(
        &self,
        fresh: &Fresh<'_>,
        given: &Given,
        tx: &Tx,
    ) -> Result<Arc<Inode>, ZplError> {
        let attrs = fresh.attrs();
        let laid = fresh.lay_out(&attrs, &self.tables, Some(&self.reader), tx)?;
        let new = fresh.object(laid.bonus);
        let object = match given.object {
            Some((id, _)) => self.set.claim(id, &new, tx)?,
            None => self.set.allocate(&new, tx)?,
        };
        if laid.spill.is_some() {
            object.set_spill(laid.spill, tx);
        }
        if fresh.kind == FileKind::Directory
            && let Err(error) = object.create_zap(tx, self.env.random(), self.normalization())
        {
            self.set.free(object.id(), tx)?;
            return Err(error.into());
        }
        if fresh.slots > 1 {
            self.backing.uses_feature("large_dnode", tx);
        }
        Ok(Arc::new(Inode::fresh(object, fresh.kind, attrs, laid.offsets)))
    }

    /// The attributes that a new file inherits from its directory.
    fn inherit(
        &self,
        dir: &Inode,
        attrs: &Attrs,
        new: &NewFile<'_>,
        given: &Given,
    ) -> Result<Inherited, ZplError> {
        let (is_dir, is_link) = (new.kind == FileKind::Directory, new.kind == FileKind::Symlink);
        let takes_project = attrs.flags & FLAG_PROJINHERIT != 0;
        let stores_project = self.options().projects || takes_project;
        let mut inherited = Inherited {
            mode: if is_link { 0o777 } else { new.mode & 0o7777 },
            gid: new.gid.into(),
            project: stores_project.then_some(if takes_project { attrs.projid } else { 0 }),
            flags: if takes_project && is_dir { FLAG_PROJINHERIT } else { 0 },
            xattrs: None,
            lists: Vec::new(),
        };
        if given.is_exact {
            return Ok(inherited);
        }
        if attrs.mode & SETGID != 0 {
            inherited.gid = attrs.gid;
            inherited.mode |= if is_dir { SETGID } else { 0 };
        }
        let default = if is_link { None } else { self.default_acl(dir)? };
        let Some(default) = default else {
            inherited.mode &= if is_link { !0 } else { !(new.umask & 0o777) };
            return Ok(inherited);
        };
        let list = decode_posix(&default).map_err(|_| ZplError::Invalid { what: "a default ACL" })?;
        let (access, mode) = acl::inherit(&list, inherited.mode);
        inherited.mode = mode;
        if !acl::is_minimal(&access) {
            inherited.lists.push((POSIX_ACCESS, encode(&access)));
        }
        if is_dir {
            inherited.lists.push((POSIX_DEFAULT, default.to_vec()));
        }
        if !inherited.lists.is_empty() {
            let mut packed = NvList::new();
            for (name, value) in &inherited.lists {
                packed.push(name, NvValue::ByteArray(value.clone()));
            }
            inherited.xattrs = Some(packed.encode_xdr());
        }
        Ok(inherited)
    }

    /// The ACL that files in a directory inherit.
    fn default_acl(&self, dir: &Inode) -> Result<Option<Arc<Vec<u8>>>, ZplError> {
        if !self.options().posix_acls {
            return Ok(None);
        }
        if let Some(known) = &dir.state().default_acl {
            return Ok(known.clone());
        }
        let _settings = dir.settings(&*self.backing)?;
        let found = self.reader.node_of(dir.object.read())?.xattr(POSIX_DEFAULT.as_bytes())?.map(Arc::new);
        dir.state().default_acl = Some(found.clone());
        Ok(found)
    }

    /// Logs the inherited ACLs of a new file, for which creation records have no field.
    fn log_lists(&self, inode: &Inode, inherited: &Inherited, tx: &Tx) {
        for (name, value) in &inherited.lists {
            self.log_sa_xattr(inode, name.as_bytes(), Some(value), tx);
        }
    }

    /// Logs the value, or the removal, of an extended attribute among the system attributes.
    pub(crate) fn log_sa_xattr(&self, inode: &Inode, name: &[u8], value: Option<&[u8]>, tx: &Tx) {
        let (log, object) = (self.intent_log(), inode.id);
        if !log.is_on() {
            return;
        }
        // In a record an empty value means that the attribute was removed.
        if self.options().log_sa_xattrs && value.is_none_or(|value| !value.is_empty()) {
            let value = value.unwrap_or(&[]).to_vec();
            log.log(tx, Body::SetSaXattr { object, name: name.to_vec(), value });
        } else {
            log.log_by_txg(tx, object);
        }
        if inode.is_dir() {
            // Files created in the directory later may inherit the value.
            log.order(object);
        }
    }
}

fn encode(list: &[format::acl::PosixEntry]) -> Vec<u8> {
    acl::encode_posix(list)
}

fn check_new(new: &NewFile<'_>) -> Result<(), ZplError> {
    if new.kind == FileKind::Symlink && (new.target.is_empty() || new.target.contains(&0)) {
        return Err(ZplError::Invalid { what: "the target of a symbolic link" });
    }
    if new.kind == FileKind::Symlink && new.target.len() > TARGET_MAX {
        return Err(ZplError::NameTooLong { len: new.target.len(), max: TARGET_MAX });
    }
    Ok(())
}

/// Locks the names of several directories, each once, in the order of their numbers.
///
/// # Errors
/// Those of [`Inode::names`]; then none is locked.
pub(crate) fn lock_names<'i>(
    backing: &dyn Backing,
    dirs: &[&'i Arc<Inode>],
) -> Result<Vec<Guard<'i>>, ZplError> {
    let mut sorted: Vec<&'i Arc<Inode>> = dirs.to_vec();
    sorted.sort_by_key(|dir| dir.id);
    sorted.dedup_by_key(|dir| dir.id);
    sorted.into_iter().map(|dir| dir.names(backing)).collect()
}
