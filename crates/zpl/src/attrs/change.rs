//! Changing attributes: mode, owners, times, size, project, flags (docs/on-disk/23-zpl.md, section 6).

use crate::access::without_set_ids;
use crate::acl::change as acl;
use crate::attrs::record::{NewAttrs, record};
use crate::file::data::Rest;
use crate::fs::backing::Cost;
use crate::fs::writable::Fs;
use crate::node::inode::{Edit, Inode};
use crate::space::QuotaOf;
use crate::{Attrs, FileKind, SpaceKind, ZplError};
use dmu::Tx;
use format::acl::{POSIX_ACCESS, decode_posix};
use format::sa::Attr;
use format::znode::{
    FLAG_ACL_TRIVIAL, FLAG_APPENDONLY, FLAG_ARCHIVE, FLAG_IMMUTABLE, FLAG_NO_EXECS_DENIED, FLAG_PROJID,
    FLAG_PROJINHERIT,
};
use format::{NvList, NvValue, ObjectId};
use std::sync::Arc;

/// Sets times of a file that can never get a name again, if no other attribute is set: in memory only, for
/// handles that are still open. The kernel sends this whenever a name is removed.
fn set_last_times(inode: &Inode, new: &NewAttrs) -> Option<Attrs> {
    let times = NewAttrs { atime: new.atime, mtime: new.mtime, ctime: new.ctime, ..NewAttrs::default() };
    let mut state = inode.state();
    let is_last = state.is_orphan && !state.is_nameless && !state.is_gone;
    let ctime = new.ctime.filter(|_| is_last && times == *new)?;
    let attrs = &mut state.attrs;
    attrs.atime = new.atime.unwrap_or(attrs.atime);
    attrs.mtime = new.mtime.unwrap_or(attrs.mtime);
    attrs.ctime = ctime;
    Some(*attrs)
}

impl Fs {
    /// Changes attributes, all in one transaction; a truncated file first loses its blocks in as many
    /// transactions as that takes.
    ///
    /// # Errors
    /// [`ZplError::NotPermitted`] if flags of the file forbid it: only the flags can be changed then.
    /// [`ZplError::Stale`] if the file no longer exists; [`ZplError::Begin`] if no transaction can begin.
    pub fn set_attrs(&self, id: ObjectId, new: &NewAttrs) -> Result<Attrs, ZplError> {
        let inode = self.busy(id)?;
        let _settings = inode.settings(&*self.backing)?;
        if let Some(attrs) = set_last_times(&inode, new) {
            return Ok(attrs);
        }
        let range = new.size.map(|_| inode.ranges(&*self.backing).write_all()).transpose()?;
        let attrs = inode.attrs();
        self.check_flags(&inode, &attrs, new)?;
        if new.size.is_some() {
            inode.expect(FileKind::Regular, "regular file")?;
        }
        if let Some(size) = new.size.filter(|size| *size >= 1 << 63) {
            return Err(ZplError::FileTooLarge { object: id, size });
        }
        self.check_new_owners(&inode, &attrs, new)?;
        let is_given_away = new.uid.is_some() || new.gid.is_some() || new.project.is_some();
        let xattr_dir =
            attrs.xattr_dir.filter(|_| is_given_away).map(|dir| self.directory(dir)).transpose()?;
        if let (Some(dir), Some(project)) = (&xattr_dir, new.project) {
            self.give_xattrs_to_project(dir, project)?;
        }
        let list = if new.mode.is_some() { self.access_list(&inode)? } else { None };

        let shrinks = new.size.is_some_and(|size| size < attrs.size);
        let rest = match new.size.filter(|_| shrinks) {
            Some(size) => self.free_in_steps(&inode, size..u64::MAX)?,
            None => Rest::default(),
        };
        let tx = self.begin(if shrinks { Cost::FREES } else { Cost::NAMES })?;
        drop(inode.ready(&self.store(&tx))?);
        if let Some(size) = new.size {
            self.set_size(&inode, size, new.clear_set_ids, &tx)?;
            inode.object.note_freed(rest.blocks, &tx);
        }
        self.apply_attrs(&inode, new, list, &tx)?;
        if let Some(dir) = &xattr_dir {
            dir.change(&self.store(&tx), |attrs| {
                attrs.uid = new.uid.map_or(attrs.uid, u64::from);
                attrs.gid = new.gid.map_or(attrs.gid, u64::from);
                set_project(attrs, new.project);
            })?;
        }
        self.log_attrs(&inode, &tx, |after| record(id, new, &attrs, after));
        if inode.is_dir() {
            // Files created in the directory later inherit the changed attributes.
            self.intent_log().order(id);
        }
        drop(tx);
        drop(range);
        Ok(inode.attrs())
    }

    /// Fails if the present or the new flags of the file forbid the change.
    fn check_flags(&self, inode: &Inode, attrs: &Attrs, new: &NewAttrs) -> Result<(), ZplError> {
        let flags = new.flags(attrs.flags).ok_or(ZplError::Unsupported { what: "a flag of the file" })?;
        let others = NewAttrs { linux_flags: None, dos_flags: None, clear_set_ids: false, ..*new };
        let changes_times_only = NewAttrs { atime: None, mtime: None, ctime: None, ..others }
            == NewAttrs::default()
            && new.size.is_none();
        if others != NewAttrs::default() && flags & (FLAG_IMMUTABLE | FLAG_APPENDONLY) != 0 {
            // Of an append-only file, times may change.
            if flags & FLAG_IMMUTABLE != 0 || !changes_times_only {
                self.check_not_append_only(inode, &Attrs { flags, ..*attrs })?;
            }
        }
        if (new.project.is_some() || flags & FLAG_PROJINHERIT != 0)
            && attrs.flags & FLAG_PROJID == 0
            && !self.options().projects
        {
            return Err(ZplError::Unsupported { what: "projects in this pool" });
        }
        Ok(())
    }

    /// Sets the project of the files that hold extended attributes to that of their owner, whose settings are
    /// locked. Uses transactions of its own, which are not logged: the replay of the owner's record repeats
    /// all of this.
    fn give_xattrs_to_project(&self, dir: &Inode, project: u32) -> Result<(), ZplError> {
        const AT_ONCE: usize = 64;
        let mut cursor = 0;
        loop {
            let entries = self.read_dir(dir.id, cursor, AT_ONCE)?;
            let Some(last) = entries.last() else { return Ok(()) };
            cursor = last.cursor;
            let tx = self.begin(Cost::NAMES)?;
            for entry in &entries {
                self.inode(entry.id)?.change(&self.store(&tx), |attrs| set_project(attrs, Some(project)))?;
            }
        }
    }

    fn check_new_owners(&self, inode: &Inode, attrs: &Attrs, new: &NewAttrs) -> Result<(), ZplError> {
        if inode.kind == FileKind::Directory && attrs.is_xattr() && new.project.is_some() {
            return Err(ZplError::Unsupported { what: "a project of extended attributes" });
        }
        // The present owner may be over the limit: only the new one is checked.
        let changes = [
            (SpaceKind::User, new.uid, attrs.uid),
            (SpaceKind::Group, new.gid, attrs.gid),
            (SpaceKind::Project, new.project, attrs.projid),
        ];
        for (kind, new, now) in changes {
            if let Some(id) = new.map(u64::from).filter(|id| *id != now) {
                self.check_limits(kind, id, &[QuotaOf::Space, QuotaOf::Objects])?;
            }
        }
        Ok(())
    }

    /// The POSIX ACL of a file, in either place where it may be stored.
    fn access_list(&self, inode: &Inode) -> Result<Option<Vec<u8>>, ZplError> {
        if !self.options().posix_acls {
            return Ok(None);
        }
        self.reader.node_of(inode.object.read())?.xattr(POSIX_ACCESS.as_bytes())
    }

    /// Applies all changes but the size.
    fn apply_attrs(
        &self,
        inode: &Arc<Inode>,
        new: &NewAttrs,
        list: Option<Vec<u8>>,
        tx: &Tx,
    ) -> Result<(), ZplError> {
        let now = self.now();
        let before = inode.attrs();
        let mut attrs = before;
        attrs.flags = new.flags(attrs.flags).unwrap_or(attrs.flags);
        if new.dos_flags.is_none() {
            attrs.flags |= FLAG_ARCHIVE;
        }
        attrs.ctime = new.ctime.unwrap_or(now);
        attrs.crtime = new.crtime.unwrap_or(attrs.crtime);
        let changes_owner = new.uid.is_some() || new.gid.is_some();
        (attrs.uid, attrs.gid) = (new.uid.map_or(attrs.uid, u64::from), new.gid.map_or(attrs.gid, u64::from));
        let mut mode = match new.mode {
            Some(mode) => attrs.mode & !0o7777 | mode & 0o7777,
            None => attrs.mode,
        };
        if changes_owner && new.mode.is_none() && !inode.is_dir() {
            mode = without_set_ids(mode);
        }
        set_project(&mut attrs, new.project);
        let mut edits = Vec::new();
        if mode & 0o777 != attrs.mode & 0o777
            || (new.is_chmod(attrs.mode) && attrs.flags & FLAG_ACL_TRIVIAL == 0)
        {
            edits.extend(acl_edits(mode, inode.is_dir()));
            set_mode(&mut attrs, mode);
        }
        attrs.mode = mode;
        let is_listed = match list {
            Some(list) if new.mode.is_some() => match decode_posix(&list) {
                Ok(list) => Some(acl::encode_posix(&acl::with_mode(&list, mode))),
                // A malformed list has no mode.
                Err(_) => None,
            },
            _ => None,
        };
        if let Some(list) = is_listed {
            self.put_access_list(inode, list, &mut edits, tx)?;
        }
        // Attributes that other threads change without the settings lock are kept.
        inode.edit(&self.store(tx), &edits, |old| {
            *old = Attrs {
                size: old.size,
                links: old.links,
                parent: old.parent,
                flags: old.flags & !(before.flags & !attrs.flags) | (attrs.flags & !before.flags),
                atime: new.atime.unwrap_or(old.atime),
                mtime: new.mtime.unwrap_or(old.mtime),
                seq: old.seq,
                xattr_dir: old.xattr_dir,
                ..attrs
            };
        })
    }

    /// Stores the POSIX ACL that was changed with the mode, where it was before.
    fn put_access_list(
        &self,
        inode: &Arc<Inode>,
        list: Vec<u8>,
        edits: &mut Vec<Edit>,
        tx: &Tx,
    ) -> Result<(), ZplError> {
        let node = self.reader.node_of(inode.object.read())?;
        let (mut packed, _) = node.packed_xattrs()?;
        if packed.has(POSIX_ACCESS) {
            packed.set(POSIX_ACCESS, NvValue::ByteArray(list));
            edits.push((Attr::Dxattr, Some(NvList::encode_xdr(&packed))));
            return Ok(());
        }
        let Some(dir) = inode.attrs().xattr_dir else { return Ok(()) };
        let dir = self.inode(dir)?;
        if let Some((id, _)) = self.find(&dir, POSIX_ACCESS.as_bytes(), false)? {
            let file = self.inode(id)?;
            // The list keeps its length: every entry is kept.
            file.object.write_at(0, &list, tx)?;
        }
        Ok(())
    }
}

fn set_project(attrs: &mut Attrs, project: Option<u32>) {
    if let Some(project) = project {
        attrs.projid = project.into();
        attrs.flags |= FLAG_PROJID;
    }
}

/// The ACE list that belongs to a mode.
pub(crate) fn acl_edits(mode: u32, is_dir: bool) -> [Edit; 2] {
    let (aces, count) = acl::trivial(mode, is_dir);
    [(Attr::DaclCount, Some(count.to_le_bytes().to_vec())), (Attr::DaclAces, Some(aces))]
}

/// Sets the mode and the flags that depend on it.
pub(crate) fn set_mode(attrs: &mut Attrs, mode: u32) {
    attrs.mode = mode;
    attrs.flags = attrs.flags & !FLAG_NO_EXECS_DENIED | acl::hints(mode);
}
