//! Access control lists: NFSv4 ACEs as file systems store them, and POSIX ACLs as Linux passes them
//! in extended attributes (docs/on-disk/23-zpl.md, sections 4 and 8).

use crate::{DecodeError, Endian};

/// Maximum number of ACEs of a file.
pub const MAX_ACES: usize = 1024;

/// The ACE is for the owner.
pub const ACE_OWNER: u16 = 0x1000;
/// The ACE is for the owning group (together with [`ACE_IDENTIFIER_GROUP`]).
pub const ACE_GROUP: u16 = 0x2000;
/// The ACE is for everyone.
pub const ACE_EVERYONE: u16 = 0x4000;
/// The id of the ACE is a group's.
pub const ACE_IDENTIFIER_GROUP: u16 = 0x40;
/// Mask of the ACE flags that state to whom the ACE applies.
const ACE_TYPE_FLAGS: u16 = ACE_OWNER | ACE_GROUP | ACE_EVERYONE | ACE_IDENTIFIER_GROUP;

/// How the ACEs of a list are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AclVersion {
    /// 12 bytes each, ids of 32 bits: file systems before FUIDs.
    V0,
    /// 8 bytes, followed by a FUID if the ACE names a user or a group, and by two GUIDs in object ACEs.
    Fuid,
}

impl AclVersion {
    /// From the number in a legacy ACL.
    ///
    /// # Errors
    /// [`DecodeError::Field`] if no such version is defined.
    pub(crate) fn from_id(id: u16) -> Result<AclVersion, DecodeError> {
        match id {
            0 => Ok(AclVersion::V0),
            1 => Ok(AclVersion::Fuid),
            other => Err(DecodeError::field("ACL", "version", other)),
        }
    }
}

/// To whom an ACE applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    /// The owner of the file.
    Owner,
    /// The group of the file.
    Group,
    /// Every user, the owner and the group included: `everyone@`.
    Everyone,
    /// A user, named by FUID.
    User(u64),
    /// A group, named by FUID.
    NamedGroup(u64),
}

/// One access control entry (ACE) of an NFSv4 ACL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ace {
    /// 0 allow, 1 deny, 2 audit, 3 alarm, 5 to 8 the same for object types.
    pub kind: u16,
    /// Inheritance flags, and the `ACE_…` bits that state the kind of [`Who`].
    pub flags: u16,
    /// The rights that the entry allows or denies, a mask of NFSv4 permission bits.
    pub mask: u32,
    /// The user, group or class to which the entry applies.
    pub who: Who,
    /// Type and inherited type of an object ACE.
    pub guids: Option<[[u8; 16]; 2]>,
}

fn who(flags: u16, id: u64) -> Who {
    match flags & ACE_TYPE_FLAGS {
        ACE_OWNER => Who::Owner,
        x if x == ACE_GROUP | ACE_IDENTIFIER_GROUP => Who::Group,
        ACE_EVERYONE => Who::Everyone,
        x if x & ACE_IDENTIFIER_GROUP != 0 => Who::NamedGroup(id),
        _ => Who::User(id),
    }
}

/// Reads up to `count` ACEs.
///
/// # Errors
/// [`DecodeError::Field`] if `count` exceeds what an ACL may have; [`DecodeError::Short`] if `bytes` ends
/// before the last ACE.
pub fn decode_aces(
    bytes: &[u8],
    count: u64,
    version: AclVersion,
    order: Endian,
) -> Result<Vec<Ace>, DecodeError> {
    if count > MAX_ACES as u64 {
        return Err(DecodeError::field("ACL", "entries", count));
    }
    let mut aces = Vec::new();
    let mut at = 0;
    for _ in 0..count {
        let rest = bytes.get(at..).unwrap_or(&[]);
        let (ace, len) = match version {
            AclVersion::V0 => decode_v0(rest, order)?,
            AclVersion::Fuid => decode_fuid(rest, order)?,
        };
        aces.push(ace);
        at += len;
    }
    Ok(aces)
}

fn decode_v0(raw: &[u8], order: Endian) -> Result<(Ace, usize), DecodeError> {
    const WHAT: &str = "ACE";
    let flags = order.u16(WHAT, raw, 8)?;
    let id = order.u32(WHAT, raw, 0)?;
    let ace = Ace {
        kind: order.u16(WHAT, raw, 10)?,
        flags,
        mask: order.u32(WHAT, raw, 4)?,
        who: who(flags, id.into()),
        guids: None,
    };
    Ok((ace, 12))
}

fn decode_fuid(raw: &[u8], order: Endian) -> Result<(Ace, usize), DecodeError> {
    const WHAT: &str = "ACE";
    let kind = order.u16(WHAT, raw, 0)?;
    let flags = order.u16(WHAT, raw, 2)?;
    let mask = order.u32(WHAT, raw, 4)?;
    let object = (5..=8).contains(&kind);
    let named = !matches!(who(flags, 0), Who::Owner | Who::Group | Who::Everyone);
    let id = if named || object { order.u64(WHAT, raw, 8)? } else { 0 };
    let guids = if object {
        let guid = |at: usize| raw.get(at..at + 16).and_then(|guid| guid.try_into().ok());
        let short = DecodeError::Short { what: WHAT, needed: 48, have: raw.len() };
        Some([guid(16).ok_or(short.clone())?, guid(32).ok_or(short)?])
    } else {
        None
    };
    let len = match (object, named) {
        (true, _) => 48,
        (false, true) => 16,
        (false, false) => 8,
    };
    Ok((Ace { kind, flags, mask, who: who(flags, id), guids }, len))
}

/// Name of the extended attribute with the POSIX ACL that rules access.
pub const POSIX_ACCESS: &str = "system.posix_acl_access";
/// Name of the extended attribute with the POSIX ACL that new files inherit.
pub const POSIX_DEFAULT: &str = "system.posix_acl_default";

/// To whom an entry of a POSIX ACL applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PosixWho {
    /// The owner of the file: `user::`.
    UserObj,
    /// The user with this uid: `user:UID:`.
    User(u32),
    /// The owning group of the file: `group::`.
    GroupObj,
    /// The group with this gid: `group:GID:`.
    Group(u32),
    /// The mask: upper bound of the permissions of all but the owner and others.
    Mask,
    /// All users that no other entry names: `other::`.
    Other,
}

/// An entry of a POSIX ACL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PosixEntry {
    /// The user, group or class to which the entry applies.
    pub who: PosixWho,
    /// 4 read, 2 write, 1 execute.
    pub perm: u16,
}

/// Reads a POSIX ACL in the form that Linux gives to file systems.
///
/// # Errors
/// [`DecodeError::Short`], or [`DecodeError::Field`] for a version other than 2, a length that is not a
/// whole number of entries, or an unknown tag.
pub fn decode_posix(bytes: &[u8]) -> Result<Vec<PosixEntry>, DecodeError> {
    const WHAT: &str = "POSIX ACL";
    let order = Endian::Little;
    let version = order.u32(WHAT, bytes, 0)?;
    if version != 2 {
        return Err(DecodeError::field(WHAT, "version", version));
    }
    let (raw, rest) = bytes.get(4..).unwrap_or(&[]).as_chunks::<8>();
    if !rest.is_empty() || raw.len() > MAX_ACES {
        return Err(DecodeError::field(WHAT, "length", bytes.len() as u64));
    }
    raw.iter().map(|entry| posix_entry(entry, order)).collect()
}

fn posix_entry(raw: &[u8; 8], order: Endian) -> Result<PosixEntry, DecodeError> {
    const WHAT: &str = "POSIX ACL";
    let id = order.u32(WHAT, raw, 4)?;
    let who = match order.u16(WHAT, raw, 0)? {
        0x01 => PosixWho::UserObj,
        0x02 => PosixWho::User(id),
        0x04 => PosixWho::GroupObj,
        0x08 => PosixWho::Group(id),
        0x10 => PosixWho::Mask,
        0x20 => PosixWho::Other,
        tag => return Err(DecodeError::field(WHAT, "tag", tag)),
    };
    Ok(PosixEntry { who, perm: order.u16(WHAT, raw, 2)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trivial_acl_of_a_directory() {
        let order = Endian::Big;
        let mut raw = Vec::new();
        for (flags, mask) in [(0x1000_u16, 0x1E_01FF_u32), (0x2040, 0x12_00A9), (0x4000, 0x12_00A9)] {
            raw.extend(order.put_u16(0));
            raw.extend(order.put_u16(flags));
            raw.extend(order.put_u32(mask));
        }
        let aces = decode_aces(&raw, 3, AclVersion::Fuid, order).unwrap();
        assert_eq!(
            aces.iter().map(|ace| ace.who).collect::<Vec<_>>(),
            [Who::Owner, Who::Group, Who::Everyone]
        );
        assert_eq!(aces[2].mask, 0x12_00A9);
        assert!(decode_aces(&raw, 4, AclVersion::Fuid, order).is_err());
        assert!(decode_aces(&raw, u64::MAX, AclVersion::Fuid, order).is_err());
    }

    #[test]
    fn named_and_object_aces_are_longer() {
        let order = Endian::Little;
        let mut raw = Vec::new();
        raw.extend([0, 0, 0x40, 0, 1, 0, 0, 0]);
        raw.extend(order.put_u64(7));
        raw.extend([5, 0, 0, 0, 1, 0, 0, 0]);
        raw.extend(order.put_u64(9));
        raw.extend([0xAB; 32]);
        let aces = decode_aces(&raw, 2, AclVersion::Fuid, order).unwrap();
        assert_eq!((aces[0].who, aces[1].who), (Who::NamedGroup(7), Who::User(9)));
        assert_eq!(aces[1].guids, Some([[0xAB; 16]; 2]));
    }

    #[test]
    fn posix_acl_of_linux() {
        let raw =
            b"\x02\0\0\0\x01\0\x06\0\xff\xff\xff\xff\x02\0\x07\0\xe9\x03\0\0\x20\0\x04\0\xff\xff\xff\xff";
        let acl = decode_posix(raw).unwrap();
        assert_eq!(acl[1], PosixEntry { who: PosixWho::User(1001), perm: 7 });
        assert_eq!(acl[2].who, PosixWho::Other);
        assert!(decode_posix(&raw[..10]).is_err());
    }
}
