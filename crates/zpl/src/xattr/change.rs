//! Changing extended attributes, in both stored forms (docs/on-disk/23-zpl.md, section 5).
//!
//! # What always holds
//! - A name is in one of the forms, never in both: writing one form removes the other in the same
//!   transaction.
//! - A POSIX ACL that is equivalent to the mode is not stored; mode and list always agree.

use crate::acl::change as acl;
use crate::attrs::change::{acl_edits, set_mode};
use crate::attrs::initial::Fresh;
use crate::attrs::record::mode_record;
use crate::dir::edits::Edits;
use crate::dir::names::{Given, NewFile, create_record};
use crate::file::data::{blocks_after, content_changed};
use crate::fs::backing::Cost;
use crate::fs::options::XattrStorage;
use crate::fs::writable::Fs;
use crate::node::inode::{Edit, Inode};
use crate::xattr::stored_names;
use crate::{Attrs, FileKind, ZplError};
use dmu::Tx;
use dmu::log::LogData;
use dmu::zap::Match;
use format::acl::{POSIX_ACCESS, POSIX_DEFAULT};
use format::sa::Attr;
use format::zil::{Body, CreateKind};
use format::znode::{FLAG_ARCHIVE, FLAG_PROJINHERIT};
use format::{NvList, NvValue, ObjectId};
use std::sync::Arc;

/// Bytes of the longest name.
const NAME_MAX: usize = 255;
/// Longest value that is kept among the system attributes, in bytes.
const PACKED_VALUE_MAX: usize = 32 << 10;
/// Bytes of the longest packed list.
const PACKED_MAX: usize = 65535;
/// Bytes of the longest value.
const VALUE_MAX: usize = 1 << 20;

/// Whether the attribute may or must exist before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum XattrHow {
    /// The attribute may exist or not.
    #[default]
    Either,
    /// The attribute must not exist.
    Create,
    /// The attribute must exist.
    Replace,
}

/// A change to be made.
struct Change<'x> {
    name: &'x [u8],
    /// New value; `None` removes the attribute.
    value: Option<&'x [u8]>,
    /// The new mode that an ACL implies.
    mode: Option<u32>,
}

impl Fs {
    /// Sets an extended attribute. `name` includes the Linux namespace: `user.x`.
    ///
    /// # Errors
    /// [`ZplError::XattrExists`], [`ZplError::NoXattr`] as `how` demands; [`ZplError::Unsupported`] if the
    /// dataset has no extended attributes, or no POSIX ACLs.
    pub fn set_xattr(&self, id: ObjectId, name: &[u8], value: &[u8], how: XattrHow) -> Result<(), ZplError> {
        if value.len() > VALUE_MAX {
            return Err(ZplError::AttributeTooLarge { size: value.len() as u64 });
        }
        self.change_xattr(id, name, Some(value), how)
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// [`ZplError::NoXattr`]; [`ZplError::NotPermitted`]; [`ZplError::Begin`] if no transaction can begin.
    pub fn remove_xattr(&self, id: ObjectId, name: &[u8]) -> Result<(), ZplError> {
        self.change_xattr(id, name, None, XattrHow::Replace)
    }

    fn change_xattr(
        &self,
        id: ObjectId,
        name: &[u8],
        value: Option<&[u8]>,
        how: XattrHow,
    ) -> Result<(), ZplError> {
        if name.len() > NAME_MAX {
            return Err(ZplError::NameTooLong { len: name.len(), max: NAME_MAX });
        }
        if name.is_empty() || name.contains(&0) {
            return Err(ZplError::InvalidName);
        }
        if self.options().xattrs == XattrStorage::Off {
            return Err(ZplError::Unsupported { what: "extended attributes" });
        }
        let inode = self.busy(id)?;
        let _settings = inode.settings(&*self.backing)?;
        let attrs = inode.attrs();
        self.check_not_append_only(&inode, &attrs)?;
        let is_there = self.reader.node_of(inode.object.read())?.xattr(name)?.is_some();
        let is_default = name == POSIX_DEFAULT.as_bytes();
        let is_acl = is_default || name == POSIX_ACCESS.as_bytes();
        match (how, is_there) {
            (XattrHow::Create, true) => return Err(ZplError::XattrExists { object: id }),
            // Linux reports no error when an ACL that does not exist is removed.
            (XattrHow::Replace, false) if value.is_none() && is_acl => return Ok(()),
            (XattrHow::Replace, false) => return Err(ZplError::NoXattr { object: id }),
            _ => {}
        }
        let change = self.with_mode_change(&inode, &attrs, Change { name, value, mode: None })?;
        let result = self.put_xattr(&inode, &change, is_there);
        if is_default {
            inode.state().default_acl = None;
        }
        result
    }

    /// Replays a record of the packed list, whatever the properties are now. Modes have records of their own.
    pub(crate) fn replay_xattr(&self, id: ObjectId, name: &[u8], value: &[u8]) -> Result<(), ZplError> {
        let inode = self.busy(id)?;
        let _settings = inode.settings(&*self.backing)?;
        let value = Some(value).filter(|value| !value.is_empty());
        inode.state().default_acl = None;
        self.store_packed(&inode, &Change { name, value, mode: None })
    }

    /// Checks a POSIX ACL, and adds the mode that it implies.
    fn with_mode_change<'x>(
        &self,
        inode: &Inode,
        attrs: &Attrs,
        change: Change<'x>,
    ) -> Result<Change<'x>, ZplError> {
        let is_access = change.name == POSIX_ACCESS.as_bytes();
        if !is_access && change.name != POSIX_DEFAULT.as_bytes() {
            return Ok(change);
        }
        if !self.options().posix_acls || inode.kind == FileKind::Symlink {
            return Err(ZplError::Unsupported { what: "a POSIX ACL" });
        }
        let Some(list) = change.value.map(acl::decode_valid).transpose()? else { return Ok(change) };
        if !is_access {
            return match inode.kind {
                FileKind::Directory => Ok(change),
                _ => Err(ZplError::Invalid { what: "a default ACL of something that is no directory" }),
            };
        }
        let mode = attrs.mode & !0o777 | acl::mode_of(&list);
        let value = change.value.filter(|_| !acl::is_minimal(&list));
        Ok(Change { value, mode: Some(mode), ..change })
    }

    /// Makes the change; the settings are locked.
    fn put_xattr(&self, inode: &Arc<Inode>, change: &Change<'_>, is_there: bool) -> Result<(), ZplError> {
        let Some(value) = change.value else {
            return if is_there || change.mode.is_some() { self.store_packed(inode, change) } else { Ok(()) };
        };
        // A name that no file can have fits only in the packed list.
        let can_be_file = crate::dir::is_name(change.name);
        let prefers_packed = self.options().xattrs == XattrStorage::SystemAttributes;
        if !can_be_file && value.len() > PACKED_VALUE_MAX {
            return Err(ZplError::AttributeTooLarge { size: value.len() as u64 });
        }
        if (prefers_packed || !can_be_file) && value.len() <= PACKED_VALUE_MAX {
            match self.store_packed(inode, change) {
                Err(ZplError::AttributeTooLarge { .. }) if can_be_file => {}
                result => return result,
            }
        }
        self.store_in_directory(inode, change, value)
    }

    /// Changes the packed list, and removes the name from the directory.
    fn store_packed(&self, inode: &Arc<Inode>, change: &Change<'_>) -> Result<(), ZplError> {
        let (mut list, _) = self.reader.node_of(inode.object.read())?.packed_xattrs()?;
        let had = stored_names(change.name).any(|name| list.has(name));
        for name in stored_names(change.name).skip(1) {
            list.remove(name);
        }
        match change.value {
            Some(value) => list.set(change.name, NvValue::ByteArray(value.to_vec())),
            None => drop(list.remove(change.name)),
        }
        let packed = NvList::encode_xdr(&list);
        if packed.len() > PACKED_MAX {
            return Err(ZplError::AttributeTooLarge { size: packed.len() as u64 });
        }
        // The log also has a record of the file's removal.
        let file = if self.is_replaying() { None } else { self.xattr_file(inode, change.name)? };
        let tx = self.begin(Cost::write(packed.len() as u64 + (64 << 10), PACKED_MAX as u64))?;
        let mut edits = Vec::new();
        if had || change.value.is_some() {
            edits.push((Attr::Dxattr, Some(packed)));
        }
        self.apply_settings(inode, change, edits, &tx)?;
        let mut later = None;
        if let Some((dir, stored, file)) = &file {
            later = self.remove_xattr_file(dir, stored, file, &tx)?;
        }
        if had || change.value.is_some() {
            self.log_sa_xattr(inode, change.name, change.value, &tx);
        }
        if change.mode.is_some() || file.is_some() {
            self.log_mode(inode, change, &tx);
        }
        drop(tx);
        if let Some(id) = later {
            self.free_later(id);
        }
        Ok(())
    }

    /// Changes mode, ctime and the other attributes that go with the change.
    fn apply_settings(
        &self,
        inode: &Inode,
        change: &Change<'_>,
        mut edits: Vec<Edit>,
        tx: &Tx,
    ) -> Result<(), ZplError> {
        let now = self.now();
        let mode = change.mode.filter(|mode| *mode != inode.attrs().mode);
        if let Some(mode) = mode {
            edits.extend(acl_edits(mode, inode.is_dir()));
        }
        inode.edit(&self.store(tx), &edits, |attrs| {
            attrs.ctime = now;
            attrs.flags |= FLAG_ARCHIVE;
            if let Some(mode) = mode {
                set_mode(attrs, mode);
            }
        })
    }

    fn log_mode(&self, inode: &Inode, change: &Change<'_>, tx: &Tx) {
        if change.mode.is_some() {
            self.log_attrs(inode, tx, |attrs| mode_record(inode.id, attrs));
        }
    }

    /// The file of an attribute in the directory form, with the directory and its name there.
    #[allow(clippy::type_complexity)] // one place
    fn xattr_file(
        &self,
        inode: &Inode,
        name: &[u8],
    ) -> Result<Option<(Arc<Inode>, Vec<u8>, Arc<Inode>)>, ZplError> {
        let Some(dir) = inode.attrs().xattr_dir else { return Ok(None) };
        let dir = self.directory(dir)?;
        for stored in stored_names(name) {
            if let Some((id, stored)) = self.find(&dir, stored, false)? {
                let file = self.inode(id)?;
                return Ok(Some((dir, stored, file)));
            }
        }
        Ok(None)
    }

    /// Removes the file of an attribute. The owner's settings are locked, so that no other thread changes the
    /// directory.
    fn remove_xattr_file(
        &self,
        dir: &Arc<Inode>,
        stored: &[u8],
        file: &Arc<Inode>,
        tx: &Tx,
    ) -> Result<Option<ObjectId>, ZplError> {
        drop(dir.ready(&self.store(tx))?);
        let now = self.now();
        let mut entries = Edits::new(tx);
        let later = entries.remove(dir, stored, Match::Exact).and_then(|()| self.drop_link(file, now, tx));
        let later = entries.keep_if(later)?;
        dir.change(&self.store(tx), |attrs| {
            attrs.size = attrs.size.saturating_sub(1).max(2);
            (attrs.mtime, attrs.ctime) = (now, now);
        })?;
        self.log(tx, || Body::Remove { dir: dir.id, name: stored.to_vec() });
        Ok(later)
    }

    /// Stores an attribute as a file of the hidden directory, and removes it from the packed list.
    fn store_in_directory(
        &self,
        inode: &Arc<Inode>,
        change: &Change<'_>,
        value: &[u8],
    ) -> Result<(), ZplError> {
        let dir = match inode.attrs().xattr_dir {
            Some(id) => self.directory(id)?,
            None => self.make_xattr_dir(inode, &Given::default())?,
        };
        let (file, is_new) = match self.xattr_file(inode, change.name)? {
            Some((_, _, file)) => (file, false),
            None => {
                let attrs = inode.attrs();
                let new = NewFile {
                    uid: attrs.posix_uid(),
                    gid: attrs.posix_gid(),
                    ..NewFile::of(FileKind::Regular, 0o644)
                };
                let given = Given { is_exact: true, ..Given::default() };
                let made = self.create_as(dir.id, change.name, &new, &given)?;
                (self.inode(made.id)?, true)
            }
        };
        if let Err(error) = self.replace_content(&file, value) {
            drop(file);
            if is_new && let Err(other) = self.unlink(dir.id, change.name) {
                tracing::warn!(object = inode.id.0, %other, "an attribute that was refused stays, empty");
            }
            return Err(error);
        }
        let (mut list, _) = self.reader.node_of(inode.object.read())?.packed_xattrs()?;
        let removed = stored_names(change.name).filter(|name| list.remove(name).is_some()).count();
        // The value is stored: the attributes that go with it must not be refused any more.
        let tx = self.begin(Cost::FREES)?;
        let mut edits = Vec::new();
        if removed > 0 {
            edits.push((Attr::Dxattr, Some(NvList::encode_xdr(&list))));
            self.log_sa_xattr(inode, change.name, None, &tx);
        }
        self.apply_settings(inode, change, edits, &tx)?;
        self.log_mode(inode, change, &tx);
        Ok(())
    }

    /// Replaces the whole content of a file in one transaction, after its old blocks were freed in as many as
    /// that takes.
    fn replace_content(&self, file: &Inode, value: &[u8]) -> Result<(), ZplError> {
        let _range = file.ranges(&*self.backing).write_all()?;
        let rest = self.free_in_steps(file, 0..u64::MAX)?;
        let (len, block_max) = (value.len() as u64, self.options().block_max());
        let tx = self.begin(Cost::write(len, blocks_after(&file.object, len, block_max)))?;
        let store = self.store(&tx);
        drop(file.ready(&store)?);
        file.object.free_range(0, u64::MAX, &tx)?;
        file.object.note_freed(rest.blocks, &tx);
        self.grow_block(&file.object, 0, len, block_max, &tx)?;
        file.object.write_at(0, value, &tx)?;
        let now = self.now();
        file.change(&store, |attrs| {
            attrs.size = value.len() as u64;
            content_changed(attrs, now);
        })?;
        self.log(&tx, || Body::Truncate { object: file.id, offset: 0, length: 0 });
        let log = self.intent_log();
        if log.is_on() {
            log.log_write(&tx, file.id, 0, LogData::written(&file.object, 0, value), None);
            // An fsync of the owner does not include this object, so its content must be logged before its
            // name.
            log.order(file.id);
        }
        Ok(())
    }

    /// Creates the hidden directory of a file; the settings are locked.
    pub(crate) fn make_xattr_dir(&self, inode: &Arc<Inode>, given: &Given) -> Result<Arc<Inode>, ZplError> {
        let tx = self.begin(Cost::NAMES)?;
        let store = self.store(&tx);
        drop(inode.ready(&store)?);
        let (attrs, now) = (inode.attrs(), self.now());
        // The owner's project is applied when it is set again.
        let project = if attrs.flags & FLAG_PROJINHERIT != 0 { attrs.projid } else { 0 };
        let fresh = Fresh {
            kind: FileKind::Directory,
            mode: 0o04_1777,
            uid: attrs.uid,
            gid: attrs.gid,
            parent: inode.id,
            rdev: (0, 0),
            project: self.options().projects.then_some(project),
            flags: 0,
            is_xattr: true,
            links: 2,
            generation: given.generation.unwrap_or(dmu::AllocTx::txg(&tx).0),
            now,
            crtime: given.crtime.unwrap_or(now),
            target: &[],
            xattrs: None,
            slots: given.object.map_or(1, |(_, slots)| slots).clamp(1, 32),
        };
        let dir = self.make_object(&fresh, given, &tx)?;
        // Before any reference leads to it: a thread that follows one must find this inode.
        self.inodes.insert(Arc::clone(&dir));
        if let Err(error) = inode.change(&store, |attrs| attrs.xattr_dir = Some(dir.id)) {
            self.inodes.remove_this(&dir);
            self.set.free(dir.id, &tx)?;
            return Err(error);
        }
        self.log(&tx, || {
            let mut record = create_record(inode.id, b"", &dir, &dir.attrs(), &[]);
            record.what = CreateKind::XattrDir;
            Body::Create(Box::new(record))
        });
        Ok(dir)
    }
}
