//! Changing attributes: mode, owners, times, size, project, flags (docs/on-disk/23-zpl.md, section 6).

use crate::access::without_set_ids;
use crate::acl::change as acl;
use crate::dir::names::log_time;
use crate::file::data::Rest;
use crate::fs::backing::Cost;
use crate::fs::writable::Fs;
use crate::node::inode::{Edit, Inode};
use crate::space::quota::QuotaOf;
use crate::{Attrs, FileKind, SpaceKind, ZplError};
use dmu::Tx;
use format::acl::{POSIX_ACCESS, decode_posix};
use format::sa::Attr;
use format::zil::{SetAttr, Xvattr, mask, xat};
use format::znode::{
    FLAG_ACL_TRIVIAL, FLAG_APPENDONLY, FLAG_ARCHIVE, FLAG_HIDDEN, FLAG_IMMUTABLE, FLAG_NO_EXECS_DENIED,
    FLAG_NODUMP, FLAG_NOUNLINK, FLAG_OFFLINE, FLAG_PROJID, FLAG_PROJINHERIT, FLAG_READONLY, FLAG_SPARSE,
    FLAG_SYSTEM, Time, dos_flags, linux_flags, with_dos_flags, with_linux_flags,
};
use format::{NvList, NvValue, ObjectId};
use std::sync::Arc;

/// Attributes to be set; `None` leaves them as they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NewAttrs {
    /// Permissions, set-id and sticky bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Bytes, of regular files.
    pub size: Option<u64>,
    /// Time of the last access.
    pub atime: Option<Time>,
    /// Time of the last change of the content.
    pub mtime: Option<Time>,
    /// Time of the last change of the attributes; `None`: now.
    pub ctime: Option<Time>,
    /// Time of creation.
    pub crtime: Option<Time>,
    /// Project.
    pub project: Option<u32>,
    /// Flags as Linux has them (`FS_…_FL`): immutable, append, nodump, project inheritance.
    pub linux_flags: Option<u32>,
    /// Flags as programs for DOS attributes have them (`FLAG_…` of [`format::znode`], read-only to sparse).
    pub dos_flags: Option<u64>,
    /// The caller has no right to keep set-id bits when the size changes.
    pub clear_set_ids: bool,
}

/// Flags in records, and in files: those that Linux has.
const LINUX: [(u64, u64); 4] = [
    (xat::IMMUTABLE, FLAG_IMMUTABLE),
    (xat::APPENDONLY, FLAG_APPENDONLY),
    (xat::NODUMP, FLAG_NODUMP),
    (xat::PROJINHERIT, FLAG_PROJINHERIT),
];
/// The same of those that programs for DOS attributes have and Linux has not.
const DOS: [(u64, u64); 7] = [
    (xat::READONLY, FLAG_READONLY),
    (xat::HIDDEN, FLAG_HIDDEN),
    (xat::SYSTEM, FLAG_SYSTEM),
    (xat::ARCHIVE, FLAG_ARCHIVE),
    (xat::NOUNLINK, FLAG_NOUNLINK),
    (xat::OFFLINE, FLAG_OFFLINE),
    (xat::SPARSE, FLAG_SPARSE),
];

impl NewAttrs {
    /// The flags that a file with these will have; `None` if some are wanted that it cannot have.
    fn flags(&self, now: u64) -> Option<u64> {
        let flags = self.linux_flags.map_or(Some(now), |linux| with_linux_flags(now, linux))?;
        self.dos_flags.map_or(Some(flags), |dos| with_dos_flags(flags, dos))
    }

    /// The mode is what somebody wants, and not what is left of it after something else has changed. Records of both look the
    /// same: who changes owners, size or time of the content and leaves the permissions as they are (`now`) wants no other
    /// mode.
    fn is_chmod(&self, now: u32) -> bool {
        let changes_more =
            self.uid.is_some() || self.gid.is_some() || self.size.is_some() || self.mtime.is_some();
        self.mode.is_some_and(|mode| !changes_more || (mode ^ now) & 0o777 != 0)
    }
}

/// Sets times of a file that will never have a name again, where nothing else is wanted: in memory only, for those who
/// still have it open. The kernel does this each time that a name goes.
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
    /// Changes attributes, all in one transaction; before it a file that is cut loses blocks in as many as that
    /// takes.
    ///
    /// # Errors
    /// [`ZplError::NotPermitted`] if flags of the file forbid it: only they themselves can be changed then.
    pub fn set_attrs(&self, id: ObjectId, new: &NewAttrs) -> Result<Attrs, ZplError> {
        let inode = self.busy(id)?;
        let _settings = inode.settings(&*self.home)?;
        if let Some(attrs) = set_last_times(&inode, new) {
            return Ok(attrs);
        }
        let range = new.size.map(|_| inode.ranges(&*self.home).write_all()).transpose()?;
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
            // What is made in it later inherits from it.
            self.intent_log().order(id);
        }
        drop(tx);
        drop(range);
        Ok(inode.attrs())
    }

    /// Fails if the flags that the file has, or will have, forbid the change.
    fn check_flags(&self, inode: &Inode, attrs: &Attrs, new: &NewAttrs) -> Result<(), ZplError> {
        let flags = new.flags(attrs.flags).ok_or(ZplError::Unsupported { what: "a flag of the file" })?;
        let others = NewAttrs { linux_flags: None, dos_flags: None, clear_set_ids: false, ..*new };
        let changes_times_only = NewAttrs { atime: None, mtime: None, ctime: None, ..others }
            == NewAttrs::default()
            && new.size.is_none();
        if others != NewAttrs::default() && flags & (FLAG_IMMUTABLE | FLAG_APPENDONLY) != 0 {
            // Of what can only grow, times may change.
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

    /// The files of extended attributes are counted for the project of their owner, whose settings are locked. In
    /// transactions of their own, of which the log has nothing: the owner's record does all of this again.
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
        // Who owns it already may be over the limit.
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

    /// The POSIX ACL of a file, with the place that it is stored in.
    fn access_list(&self, inode: &Inode) -> Result<Option<Vec<u8>>, ZplError> {
        if !self.options().posix_acls {
            return Ok(None);
        }
        self.reader.node_of(inode.object.read())?.xattr(POSIX_ACCESS.as_bytes())
    }

    /// Changes everything but the size.
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
                // What is no list has no mode.
                Err(_) => None,
            },
            _ => None,
        };
        if let Some(list) = is_listed {
            self.put_access_list(inode, list, &mut edits, tx)?;
        }
        // What others change meanwhile, who do not lock the settings, is not set back.
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

    /// The POSIX ACL of a file changed with its mode: to where it is stored.
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
            // As long as before: an entry for each entry.
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

/// The list of ACEs that goes with a mode.
pub(crate) fn acl_edits(mode: u32, is_dir: bool) -> [Edit; 2] {
    let (aces, count) = acl::trivial(mode, is_dir);
    [(Attr::DaclCount, Some(count.to_le_bytes().to_vec())), (Attr::DaclAces, Some(aces))]
}

/// The mode, and the flags that follow from it.
pub(crate) fn set_mode(attrs: &mut Attrs, mode: u32) {
    attrs.mode = mode;
    attrs.flags = attrs.flags & !FLAG_NO_EXECS_DENIED | acl::hints(mode);
}

/// The record of a change of attributes: of what was asked for, and of what changed along. It has no place for the
/// time of the last change of attributes, which is that of the replay.
fn record(object: ObjectId, new: &NewAttrs, before: &Attrs, after: &Attrs) -> SetAttr {
    let mut set = 0;
    let bits = [
        (new.mode.is_some() || after.mode != before.mode, mask::MODE),
        (new.uid.is_some(), mask::UID),
        (new.gid.is_some(), mask::GID),
        (new.size.is_some(), mask::SIZE),
        (new.atime.is_some(), mask::ATIME),
        // Others take the time of a new size from the record, be it given or not.
        (new.mtime.is_some() || new.size.is_some() || after.mtime != before.mtime, mask::MTIME),
    ];
    for (is_set, bit) in bits {
        set |= if is_set { bit } else { 0 };
    }
    let xvattr = xvattr(new, after.flags);
    set |= if xvattr.is_some() { mask::XVATTR } else { 0 };
    SetAttr {
        object,
        mask: set,
        mode: (after.mode & 0o7777).into(),
        uid: after.uid,
        gid: after.gid,
        size: new.size.unwrap_or(after.size),
        atime: log_time(after.atime),
        mtime: log_time(after.mtime),
        xvattr,
        domains: Vec::new(),
    }
}

fn xvattr(new: &NewAttrs, flags: u64) -> Option<Xvattr> {
    let mut requested = 0;
    let mut xvattr =
        Xvattr { requested: Vec::new(), attrs: 0, crtime: log_time(Time::default()), scanstamp: [0; 32] };
    let linux = LINUX.iter().filter(|_| new.linux_flags.is_some() || new.dos_flags.is_some());
    let dos = DOS.iter().filter(|_| new.dos_flags.is_some());
    for (bit, flag) in linux.chain(dos) {
        requested |= bit;
        xvattr.attrs |= if flags & flag != 0 { *bit } else { 0 };
    }
    if let Some(time) = new.crtime {
        requested |= xat::CREATE_TIME;
        xvattr.crtime = log_time(time);
    }
    if let Some(project) = new.project {
        requested |= xat::PROJID;
        xvattr.scanstamp[..8].copy_from_slice(&u64::from(project).to_le_bytes());
    }
    xvattr.requested = vec![requested as u32, 0, 0];
    (requested != 0).then_some(xvattr)
}

/// What a record set: the other way round. `flags` are those that the file has now.
pub(crate) fn from_record(set: &SetAttr, flags: u64) -> NewAttrs {
    let has = |bit: u64| set.mask & bit != 0;
    let time = |time: format::zil::LogTime| Time::from_words([time.secs, time.nanos]);
    let mut new = NewAttrs {
        mode: has(mask::MODE).then_some(set.mode as u32),
        uid: has(mask::UID).then_some(set.uid as u32),
        gid: has(mask::GID).then_some(set.gid as u32),
        size: has(mask::SIZE).then_some(set.size),
        atime: has(mask::ATIME).then(|| time(set.atime)),
        mtime: has(mask::MTIME).then(|| time(set.mtime)),
        ..NewAttrs::default()
    };
    if let Some(xvattr) = &set.xvattr {
        let requested = u64::from(xvattr.requested.first().copied().unwrap_or(0));
        if requested & xat::CREATE_TIME != 0 {
            new.crtime = Some(time(xvattr.crtime));
        }
        if requested & xat::PROJID != 0 {
            let raw: [u8; 8] = std::array::from_fn(|i| xvattr.scanstamp[i]);
            new.project = Some(u64::from_le_bytes(raw) as u32);
        }
        let is_requested = |(bit, _): &&(u64, u64)| requested & bit != 0;
        let wanted = LINUX.iter().chain(&DOS).filter(is_requested).fold(flags, |flags, (bit, flag)| {
            if xvattr.attrs & bit != 0 { flags | flag } else { flags & !flag }
        });
        new.linux_flags = LINUX.iter().any(|flag| is_requested(&flag)).then(|| linux_flags(wanted));
        new.dos_flags = DOS.iter().any(|flag| is_requested(&flag)).then(|| dos_flags(wanted));
    }
    new
}

/// The record of what a change of the content has changed along: set-id bits may be gone (`clears_ids`).
pub(crate) fn touched_record(object: ObjectId, clears_ids: bool, after: &Attrs) -> SetAttr {
    let mode = clears_ids.then_some(after.mode);
    record(object, &NewAttrs { mode, mtime: Some(after.mtime), ..NewAttrs::default() }, after, after)
}

/// The record of a change of nothing but the mode.
pub(crate) fn mode_record(object: ObjectId, after: &Attrs) -> SetAttr {
    record(object, &NewAttrs { mode: Some(after.mode), ..NewAttrs::default() }, after, after)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attrs::testing::attrs;

    #[test]
    fn flags_go_through_the_log() {
        let before = FLAG_PROJID | FLAG_HIDDEN | FLAG_ARCHIVE | FLAG_NODUMP;
        let linux = NewAttrs { linux_flags: Some(linux_flags(FLAG_IMMUTABLE)), ..NewAttrs::default() };
        let dos = NewAttrs { dos_flags: Some(FLAG_READONLY | FLAG_APPENDONLY), ..NewAttrs::default() };
        let both = NewAttrs { dos_flags: dos.dos_flags, ..linux };
        for (new, expected) in [
            (linux, FLAG_PROJID | FLAG_HIDDEN | FLAG_ARCHIVE | FLAG_IMMUTABLE),
            (dos, FLAG_PROJID | FLAG_READONLY | FLAG_APPENDONLY),
            (both, FLAG_PROJID | FLAG_READONLY | FLAG_APPENDONLY),
            (NewAttrs::default(), before),
        ] {
            let after = new.flags(before).expect("possible");
            assert_eq!(after, expected, "{new:?}");
            let attrs = Attrs { flags: after, ..attrs(0o100_644, 0, 0) };
            let again = from_record(&record(ObjectId(5), &new, &attrs, &attrs), before);
            assert_eq!(again.flags(before), Some(after), "{again:?}");
        }
    }
}
