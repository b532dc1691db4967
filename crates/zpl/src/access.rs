//! Access checks: pure functions of attributes and credentials, for callers without a kernel that checks
//! (docs/on-disk/23-zpl.md, section 4: on Linux the mode and the POSIX ACL decide).

use crate::Attrs;
use crate::FileKind;
use format::acl::{PosixEntry, PosixWho};

/// Credentials of a caller.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Cred {
    /// Id of the user.
    pub uid: u32,
    /// Id of the primary group, which new files get by default.
    pub gid: u32,
    /// Ids of further groups.
    pub groups: Vec<u32>,
    /// Not bound by permissions: root, or a caller with the capabilities for it.
    pub is_privileged: bool,
}

impl Cred {
    /// Credentials of root, which permissions do not bind.
    pub fn root() -> Cred {
        Cred { is_privileged: true, ..Cred::default() }
    }

    /// Whether `gid` is the primary group or one of the others.
    pub(crate) fn is_in(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }

    /// Whether the file belongs to the caller.
    pub(crate) fn owns(&self, attrs: &Attrs) -> bool {
        attrs.posix_uid() == self.uid && attrs.uid >> 32 == 0
    }
}

/// Requested access to a file: bits that can be combined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access(u16);

impl Access {
    /// Read a file, or list a directory.
    pub const READ: Access = Access(4);
    /// Write a file, or change the entries of a directory.
    pub(crate) const WRITE: Access = Access(2);
    /// Execute a file, or look up names in a directory.
    pub(crate) const EXECUTE: Access = Access(1);

    /// Both accesses together.
    pub(crate) fn and(self, other: Access) -> Access {
        Access(self.0 | other.0)
    }
}

/// Whether a file may be accessed. `acl` is its POSIX ACL, if it has one.
pub fn may_access(attrs: &Attrs, acl: Option<&[PosixEntry]>, cred: &Cred, access: Access) -> bool {
    let wanted = access.0;
    let is_dir = FileKind::from_mode(attrs.mode) == Some(FileKind::Directory);
    if cred.is_privileged {
        // Even root cannot execute a file without any execute bit.
        return wanted & 1 == 0 || is_dir || attrs.mode & 0o111 != 0;
    }
    if let Some(acl) = acl.filter(|_| !cred.owns(attrs)) {
        return allowed_by_acl(attrs, acl, cred, wanted);
    }
    let bits = if cred.owns(attrs) {
        attrs.mode >> 6
    } else if cred.is_in(attrs.posix_gid()) {
        attrs.mode >> 3
    } else {
        attrs.mode
    };
    wanted & !(bits as u16 & 7) == 0
}

/// The POSIX.1e algorithm for callers other than the owner.
fn allowed_by_acl(attrs: &Attrs, acl: &[PosixEntry], cred: &Cred, wanted: u16) -> bool {
    let mask = acl.iter().find(|entry| entry.who == PosixWho::Mask).map_or(7, |entry| entry.perm);
    let named = acl.iter().find(|entry| entry.who == PosixWho::User(cred.uid));
    if let Some(entry) = named {
        return wanted & !(entry.perm & mask) == 0;
    }
    let mut is_member = false;
    for entry in acl {
        let applies = match entry.who {
            PosixWho::GroupObj => cred.is_in(attrs.posix_gid()),
            PosixWho::Group(gid) => cred.is_in(gid),
            _ => false,
        };
        if applies {
            is_member = true;
            if wanted & !(entry.perm & mask) == 0 {
                return true;
            }
        }
    }
    let other = acl.iter().find(|entry| entry.who == PosixWho::Other).map_or(0, |entry| entry.perm);
    !is_member && wanted & !other == 0
}

/// Whether an entry may be removed from a directory or replaced, by the directory's permissions and its
/// sticky bit.
pub fn may_remove(dir: &Attrs, acl: Option<&[PosixEntry]>, file: &Attrs, cred: &Cred) -> bool {
    let may_change = may_access(dir, acl, cred, Access::WRITE.and(Access::EXECUTE));
    let is_sticky = dir.mode & 0o1000 != 0;
    may_change && (!is_sticky || cred.is_privileged || cred.owns(file) || cred.owns(dir))
}

/// Whether the owner may be changed to these ids.
pub fn may_chown(attrs: &Attrs, uid: Option<u32>, gid: Option<u32>, cred: &Cred) -> bool {
    if cred.is_privileged {
        return true;
    }
    let keeps_user = uid.is_none_or(|uid| attrs.uid == u64::from(uid));
    let group_fits = gid.is_none_or(|gid| attrs.gid == u64::from(gid) || cred.is_in(gid));
    cred.owns(attrs) && keeps_user && group_fits
}

/// Whether mode, times or flags may be changed.
pub fn may_change_attrs(attrs: &Attrs, cred: &Cred) -> bool {
    cred.is_privileged || cred.owns(attrs)
}

/// The mode that a caller gets for a requested `mode`: without setgid if the caller is not in the file's
/// group.
pub fn allowed_mode(attrs: &Attrs, mode: u32, cred: &Cred) -> u32 {
    if cred.is_privileged || cred.is_in(attrs.posix_gid()) { mode } else { mode & !0o2000 }
}

/// The mode after a change of the content or the owner: without the set-id bits of programs.
pub fn without_set_ids(mode: u32) -> u32 {
    let is_program = mode & 0o010 != 0;
    mode & !0o4000 & if is_program { !0o2000 } else { !0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attrs::testing::attrs;

    fn user(uid: u32, gid: u32) -> Cred {
        Cred { uid, gid, ..Cred::default() }
    }

    #[test]
    fn the_first_class_decides() {
        let file = attrs(0o10_0074, 1, 2);
        assert!(!may_access(&file, None, &user(1, 2), Access::READ));
        assert!(may_access(&file, None, &user(9, 2), Access::WRITE.and(Access::EXECUTE)));
        assert!(may_access(&file, None, &user(9, 9), Access::READ));
        assert!(!may_access(&file, None, &user(9, 9), Access::WRITE));
        assert!(may_access(&attrs(0o10_0000, 1, 1), None, &Cred::root(), Access::WRITE));
        assert!(!may_access(&attrs(0o10_0666, 1, 1), None, &Cred::root(), Access::EXECUTE));
        // An owner of a foreign domain matches no local user.
        assert!(!user(1, 1).owns(&attrs(0o10_0600, 1 << 32 | 1, 1)));
    }

    #[test]
    fn the_mask_bounds_all_but_owner_and_others() {
        let entry = |who, perm| PosixEntry { who, perm };
        let acl = [
            entry(PosixWho::UserObj, 7),
            entry(PosixWho::User(5), 7),
            entry(PosixWho::GroupObj, 4),
            entry(PosixWho::Group(8), 6),
            entry(PosixWho::Mask, 4),
            entry(PosixWho::Other, 7),
        ];
        let file = attrs(0o10_0747, 1, 2);
        let may = |cred: &Cred, access| may_access(&file, Some(&acl), cred, access);
        assert!(may(&user(5, 9), Access::READ) && !may(&user(5, 9), Access::WRITE));
        assert!(may(&user(6, 8), Access::READ) && !may(&user(6, 8), Access::WRITE));
        assert!(may(&user(6, 6), Access::WRITE));
        assert!(may(&user(1, 9), Access::WRITE));
    }

    #[test]
    fn a_sticky_directory_protects_what_is_of_others() {
        let dir = attrs(0o04_1777, 1, 1);
        let file = attrs(0o10_0666, 2, 2);
        assert!(!may_remove(&dir, None, &file, &user(3, 3)));
        assert!(may_remove(&dir, None, &file, &user(2, 2)));
        assert!(may_remove(&dir, None, &file, &user(1, 9)));
        assert!(may_chown(&file, Some(2), Some(2), &user(2, 5)));
        assert!(!may_chown(&file, Some(3), None, &user(2, 5)));
        assert_eq!(without_set_ids(0o10_6755), 0o10_0755);
        assert_eq!(without_set_ids(0o10_6745), 0o10_2745);
    }
}
