//! Requested changes of attributes, and their intent log records (docs/on-disk/24-zil.md, section 4).

use crate::Attrs;
use format::ObjectId;
use format::zil::{LogTime, SetAttr, Xvattr, mask, xat};
use format::znode::{
    FLAG_APPENDONLY, FLAG_ARCHIVE, FLAG_HIDDEN, FLAG_IMMUTABLE, FLAG_NODUMP, FLAG_NOUNLINK, FLAG_OFFLINE,
    FLAG_PROJINHERIT, FLAG_READONLY, FLAG_SPARSE, FLAG_SYSTEM, Time, dos_flags, linux_flags, with_dos_flags,
    with_linux_flags,
};

/// Attributes to be set; `None` leaves an attribute unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NewAttrs {
    /// Permissions, set-id and sticky bits.
    pub mode: Option<u32>,
    /// Id of the owner.
    pub uid: Option<u32>,
    /// Id of the group.
    pub gid: Option<u32>,
    /// Size in bytes, for regular files only.
    pub size: Option<u64>,
    /// Time of the last access.
    pub atime: Option<Time>,
    /// Time of the last change of the content.
    pub mtime: Option<Time>,
    /// Time of the last change of the attributes; `None`: now.
    pub ctime: Option<Time>,
    /// Time of creation.
    pub crtime: Option<Time>,
    /// Project id.
    pub project: Option<u32>,
    /// Linux inode flags (`FS_…_FL`): immutable, append, nodump, project inheritance.
    pub linux_flags: Option<u32>,
    /// DOS attribute flags (`FLAG_…` of [`format::znode`], read-only to sparse).
    pub dos_flags: Option<u64>,
    /// The caller may not keep set-id bits when the size changes.
    pub clear_set_ids: bool,
}

/// Flags that Linux has: in records, and in files.
const LINUX: [(u64, u64); 4] = [
    (xat::IMMUTABLE, FLAG_IMMUTABLE),
    (xat::APPENDONLY, FLAG_APPENDONLY),
    (xat::NODUMP, FLAG_NODUMP),
    (xat::PROJINHERIT, FLAG_PROJINHERIT),
];
/// DOS flags that Linux has not: in records, and in files.
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
    /// The flags of a file with the flags `now` after the change; `None` if it cannot have a requested flag.
    pub(crate) fn flags(&self, now: u64) -> Option<u64> {
        let flags = self.linux_flags.map_or(Some(now), |linux| with_linux_flags(now, linux))?;
        self.dos_flags.map_or(Some(flags), |dos| with_dos_flags(flags, dos))
    }

    /// Whether the mode was requested, and is not a side effect of another change. The records of both look
    /// the same: a change of owners, size or modification time that leaves the permissions as they are
    /// (`now`) requests no other mode.
    pub(crate) fn is_chmod(&self, now: u32) -> bool {
        let changes_more =
            self.uid.is_some() || self.gid.is_some() || self.size.is_some() || self.mtime.is_some();
        self.mode.is_some_and(|mode| !changes_more || (mode ^ now) & 0o777 != 0)
    }
}

/// A time in the form of records.
pub(crate) fn log_time(time: Time) -> LogTime {
    LogTime { secs: time.secs as u64, nanos: time.nanos.into() }
}

/// The record of a change of attributes: the requested ones, and those that changed along. It has no field
/// for the ctime, which a replay sets to its own time.
pub(crate) fn record(object: ObjectId, new: &NewAttrs, before: &Attrs, after: &Attrs) -> SetAttr {
    let mut set = 0;
    let bits = [
        (new.mode.is_some() || after.mode != before.mode, mask::MODE),
        (new.uid.is_some(), mask::UID),
        (new.gid.is_some(), mask::GID),
        (new.size.is_some(), mask::SIZE),
        (new.atime.is_some(), mask::ATIME),
        // Other implementations take the mtime of a new size from the record, whether or not its mask has it.
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

/// The changes that a record requests. `flags` are those that the file has now.
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

/// The record of attributes that a change of the content has changed: set-id bits may be gone (`clears_ids`).
pub(crate) fn touched_record(object: ObjectId, clears_ids: bool, after: &Attrs) -> SetAttr {
    let mode = clears_ids.then_some(after.mode);
    record(object, &NewAttrs { mode, mtime: Some(after.mtime), ..NewAttrs::default() }, after, after)
}

/// The record of a change of the mode alone.
pub(crate) fn mode_record(object: ObjectId, after: &Attrs) -> SetAttr {
    record(object, &NewAttrs { mode: Some(after.mode), ..NewAttrs::default() }, after, after)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attrs::testing::attrs;
    use format::znode::FLAG_PROJID;

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
