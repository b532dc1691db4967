//! Changing access control lists: the trivial list that is equivalent to a mode, and POSIX ACLs
//! (docs/on-disk/23-zpl.md, section 4).

use crate::ZplError;
use format::acl::{ACE_EVERYONE, ACE_GROUP, ACE_IDENTIFIER_GROUP, ACE_OWNER, Ace, PosixEntry, PosixWho, Who};
use format::znode::{FLAG_ACL_TRIVIAL, FLAG_NO_EXECS_DENIED};

const ALLOW: u16 = 0;
const DENY: u16 = 1;
/// Rights that every owner has: attributes, named attributes, the ACL, the owner; synchronize.
const OWNER_BASE: u32 = 0x1E_0198;
/// Rights that every user has: reading attributes, named attributes and the ACL; synchronize.
const OTHER_BASE: u32 = 0x12_0088;
const READ: u32 = 0x1;
const WRITE: u32 = 0x6;
const DELETE_CHILD: u32 = 0x40;
const EXECUTE: u32 = 0x20;

/// Id of the user or group that an ACE names; `None` for owner, group and everyone.
fn is_named(ace: &Ace) -> Option<u64> {
    match ace.who {
        Who::User(id) | Who::NamedGroup(id) => Some(id),
        Who::Owner | Who::Group | Who::Everyone => None,
    }
}

/// Bytes that an ACE takes.
pub(crate) fn ace_size(ace: &Ace) -> usize {
    match (ace.guids, is_named(ace)) {
        (Some(_), _) => 48,
        (None, Some(_)) => 16,
        (None, None) => 8,
    }
}

/// Encodes ACEs as system attributes hold them.
pub(crate) fn encode_aces(aces: &[Ace]) -> Vec<u8> {
    let mut out = Vec::new();
    for ace in aces {
        out.extend(ace.kind.to_le_bytes());
        out.extend(ace.flags.to_le_bytes());
        out.extend(ace.mask.to_le_bytes());
        if ace_size(ace) > 8 {
            out.extend(is_named(ace).unwrap_or(0).to_le_bytes());
        }
        for guid in ace.guids.iter().flatten() {
            out.extend(guid);
        }
    }
    out
}

/// The ACE rights that three bits of a mode grant.
fn rights(bits: u32, is_dir: bool) -> u32 {
    let write = if is_dir { WRITE | DELETE_CHILD } else { WRITE };
    [(4, READ), (2, write), (1, EXECUTE)]
        .iter()
        .filter(|(bit, _)| bits & bit != 0)
        .map(|(_, mask)| mask)
        .sum()
}

/// The trivial list of a mode, encoded, and its number of entries.
pub(crate) fn trivial(mode: u32, is_dir: bool) -> (Vec<u8>, u64) {
    let [owner, group, other] = [mode >> 6 & 7, mode >> 3 & 7, mode & 7];
    let group_flags = ACE_GROUP | ACE_IDENTIFIER_GROUP;
    // Rights that the owner and others have but the group has not must be allowed to the owner before the
    // group is denied them.
    let first = owner & !group & other;
    let denied_owner = !owner & (group | other) & 7;
    let denied_group = !group & other & 7;
    let mut out = Vec::with_capacity(48);
    let mut count = 0;
    let mut add = |kind: u16, flags: u16, mask: u32| {
        out.extend(kind.to_le_bytes());
        out.extend(flags.to_le_bytes());
        out.extend(mask.to_le_bytes());
        count += 1;
    };
    if first != 0 {
        add(ALLOW, ACE_OWNER, rights(first, is_dir));
    }
    if denied_owner != 0 {
        add(DENY, ACE_OWNER, rights(denied_owner, is_dir));
    }
    if denied_group != 0 {
        add(DENY, group_flags, rights(denied_group, is_dir));
    }
    add(ALLOW, ACE_OWNER, OWNER_BASE | rights(owner, is_dir));
    add(ALLOW, group_flags, OTHER_BASE | rights(group, is_dir));
    add(ALLOW, ACE_EVERYONE, OTHER_BASE | rights(other, is_dir));
    (out, count)
}

/// The flags that a trivial list of this mode implies.
pub(crate) fn hints(mode: u32) -> u64 {
    FLAG_ACL_TRIVIAL | if mode & 0o111 == 0o111 { FLAG_NO_EXECS_DENIED } else { 0 }
}

/// Encodes a POSIX ACL in the form that Linux passes to file systems.
pub fn encode_posix(acl: &[PosixEntry]) -> Vec<u8> {
    let mut out = 2_u32.to_le_bytes().to_vec();
    for entry in acl {
        let (tag, id) = match entry.who {
            PosixWho::UserObj => (0x01_u16, u32::MAX),
            PosixWho::User(id) => (0x02, id),
            PosixWho::GroupObj => (0x04, u32::MAX),
            PosixWho::Group(id) => (0x08, id),
            PosixWho::Mask => (0x10, u32::MAX),
            PosixWho::Other => (0x20, u32::MAX),
        };
        out.extend(tag.to_le_bytes());
        out.extend(entry.perm.to_le_bytes());
        out.extend(id.to_le_bytes());
    }
    out
}

/// Decodes a POSIX ACL that is to be set, and checks it: owner, group and others once each, in order, named
/// entries only with a mask.
pub(crate) fn decode_valid(bytes: &[u8]) -> Result<Vec<PosixEntry>, ZplError> {
    let invalid = || ZplError::Invalid { what: "a POSIX ACL" };
    let acl = format::acl::decode_posix(bytes).map_err(|_| invalid())?;
    let rank = |who: &PosixWho| match who {
        PosixWho::UserObj => 0,
        PosixWho::User(_) => 1,
        PosixWho::GroupObj => 2,
        PosixWho::Group(_) => 3,
        PosixWho::Mask => 4,
        PosixWho::Other => 5,
    };
    let count = |wanted: u8| acl.iter().filter(|entry| rank(&entry.who) == wanted).count();
    let is_sorted = acl.is_sorted_by_key(|entry| rank(&entry.who));
    let has_names = count(1) + count(3) > 0;
    let is_valid = is_sorted
        && count(0) == 1
        && count(2) == 1
        && count(5) == 1
        && count(4) <= 1
        && (!has_names || count(4) == 1)
        && acl.iter().all(|entry| entry.perm <= 7);
    if is_valid { Ok(acl) } else { Err(invalid()) }
}

fn perm(acl: &[PosixEntry], who: PosixWho) -> Option<u16> {
    acl.iter().find(|entry| entry.who == who).map(|entry| entry.perm)
}

/// The permission bits that `stat` shows for an ACL.
pub(crate) fn mode_of(acl: &[PosixEntry]) -> u32 {
    let get = |who| u32::from(perm(acl, who).unwrap_or(0));
    let group = perm(acl, PosixWho::Mask).map_or_else(|| get(PosixWho::GroupObj), u32::from);
    get(PosixWho::UserObj) << 6 | group << 3 | get(PosixWho::Other)
}

/// Whether an ACL is equivalent to a mode.
pub(crate) fn is_minimal(acl: &[PosixEntry]) -> bool {
    acl.len() == 3
}

/// The ACL after a change of the mode.
pub(crate) fn with_mode(acl: &[PosixEntry], mode: u32) -> Vec<PosixEntry> {
    let has_mask = perm(acl, PosixWho::Mask).is_some();
    let bits = |shift: u32| (mode >> shift & 7) as u16;
    let change = |entry: &PosixEntry| PosixEntry {
        who: entry.who,
        perm: match entry.who {
            PosixWho::UserObj => bits(6),
            PosixWho::Mask => bits(3),
            PosixWho::GroupObj if !has_mask => bits(3),
            PosixWho::Other => bits(0),
            _ => entry.perm,
        },
    };
    acl.iter().map(change).collect()
}

/// The ACL of a new file in a directory with this default ACL, and its mode: the default, restricted to the
/// requested mode.
pub(crate) fn inherit(default: &[PosixEntry], mode: u32) -> (Vec<PosixEntry>, u32) {
    let has_mask = perm(default, PosixWho::Mask).is_some();
    let cut = |entry: &PosixEntry| {
        let asked = match entry.who {
            PosixWho::UserObj => mode >> 6 & 7,
            PosixWho::Mask => mode >> 3 & 7,
            PosixWho::GroupObj if !has_mask => mode >> 3 & 7,
            PosixWho::Other => mode & 7,
            _ => 7,
        };
        PosixEntry { who: entry.who, perm: entry.perm & asked as u16 }
    };
    let acl: Vec<PosixEntry> = default.iter().map(cut).collect();
    let mode = mode & !0o777 | mode_of(&acl);
    (acl, mode)
}

#[cfg(test)]
mod tests {
    use super::*;
    use format::Endian;
    use format::acl::{AclVersion, decode_aces, decode_posix};

    #[test]
    fn the_list_of_an_ordinary_mode_has_three_entries() {
        let (packed, count) = trivial(0o755, true);
        assert_eq!((packed.len(), count), (24, 3));
        let aces = decode_aces(&packed, count, AclVersion::Fuid, Endian::Little).expect("valid");
        let masks: Vec<_> = aces.iter().map(|ace| (ace.flags, ace.mask)).collect();
        assert_eq!(masks, [(0x1000, 0x1E_01FF), (0x2040, 0x12_00A9), (0x4000, 0x12_00A9)]);
        assert_eq!(encode_aces(&aces), packed);
        assert_eq!(hints(0o755), 0x104);
        assert_eq!(hints(0o644), 0x4);
    }

    /// Evaluates a trivial list: the first decision per class counts.
    fn mode_by_list(mode: u32) -> u32 {
        let (packed, count) = trivial(mode, false);
        let aces = decode_aces(&packed, count, AclVersion::Fuid, Endian::Little).expect("valid");
        let mut result = 0;
        for (class, shift) in [(Who::Owner, 6), (Who::Group, 3), (Who::Everyone, 0)] {
            for (bit, right) in [(4, READ), (2, WRITE), (1, EXECUTE)] {
                let applies =
                    |ace: &&Ace| (ace.who == class || ace.who == Who::Everyone) && ace.mask & right != 0;
                if aces.iter().find(applies).is_some_and(|ace| ace.kind == ALLOW) {
                    result |= bit << shift;
                }
            }
        }
        result
    }

    #[test]
    fn every_mode_is_what_its_list_says() {
        for mode in 0..0o1000 {
            assert_eq!(mode_by_list(mode), mode, "{mode:o}");
        }
    }

    #[test]
    fn posix_lists_follow_the_mode_and_are_inherited() {
        let entry = |who, perm| PosixEntry { who, perm };
        let acl = vec![
            entry(PosixWho::UserObj, 7),
            entry(PosixWho::User(1001), 6),
            entry(PosixWho::GroupObj, 5),
            entry(PosixWho::Mask, 7),
            entry(PosixWho::Other, 0),
        ];
        assert_eq!(decode_posix(&encode_posix(&acl)), Ok(acl.clone()));
        assert!(decode_valid(&encode_posix(&acl)).is_ok());
        assert!(decode_valid(&encode_posix(&acl[..4])).is_err());
        assert_eq!(mode_of(&acl), 0o770);
        assert_eq!(mode_of(&with_mode(&acl, 0o640)), 0o640);
        let (inherited, mode) = inherit(&acl, 0o10_0664);
        assert_eq!(mode, 0o10_0660);
        assert_eq!(perm(&inherited, PosixWho::User(1001)), Some(6));
        assert_eq!(perm(&inherited, PosixWho::Mask), Some(6));
    }
}
