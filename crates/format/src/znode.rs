//! Legacy znodes, the 264-byte bonus of files created before system attributes; and file flags and directory
//! entries of every version (docs/on-disk/23-zpl.md, sections 3 and 8).

use crate::acl::{ACE_EVERYONE, ACE_GROUP, ACE_IDENTIFIER_GROUP, ACE_OWNER, AclVersion};
use crate::endian::bits;
use crate::{DecodeError, Endian, ObjectId};

/// Bytes of a legacy znode.
pub const ZNODE_SIZE: usize = 264;
/// Size in bytes of the area for ACEs in a znode.
pub const INLINE_ACES: usize = 72;
/// Offset of the ACL, after 22 words.
const ACL_AT: usize = 176;

/// Flag: an attribute directory, or a file in one.
pub const FLAG_XATTR: u64 = 0x1;
/// Flag: the ACL is equivalent to the mode.
pub const FLAG_ACL_TRIVIAL: u64 = 0x4;
/// Flag: new files in the directory inherit its ACL.
pub const FLAG_ACL_AUTO_INHERIT: u64 = 0x40;
/// Flag: the ACL does not deny execution to any user.
pub const FLAG_NO_EXECS_DENIED: u64 = 0x100;
/// Flag: a scan stamp follows the legacy znode.
pub(crate) const FLAG_BONUS_SCANSTAMP: u64 = 0x80;
/// Flag: read-only, as a DOS attribute.
pub const FLAG_READONLY: u64 = 1 << 32;
/// Flag: hidden, as a DOS attribute.
pub const FLAG_HIDDEN: u64 = 1 << 33;
/// Flag: a system file, as a DOS attribute.
pub const FLAG_SYSTEM: u64 = 1 << 34;
/// Flag: changed since the last archive.
pub const FLAG_ARCHIVE: u64 = 1 << 35;
/// Flag: the file cannot be unlinked.
pub const FLAG_NOUNLINK: u64 = 1 << 37;
/// Flag: content changed since the last virus scan.
pub const FLAG_AV_MODIFIED: u64 = 1 << 42;
/// Flag: the file cannot be changed.
pub const FLAG_IMMUTABLE: u64 = 1 << 36;
/// Flag: the file can only grow.
pub const FLAG_APPENDONLY: u64 = 1 << 38;
/// Flag: not to be backed up.
pub const FLAG_NODUMP: u64 = 1 << 39;
/// Flag: the file is a reparse point.
pub const FLAG_REPARSE: u64 = 1 << 43;
/// Flag: offline, that is, stored elsewhere, as a DOS attribute.
pub const FLAG_OFFLINE: u64 = 1 << 44;
/// Flag: sparse, as a DOS attribute.
pub const FLAG_SPARSE: u64 = 1 << 45;
/// Flag: new files take the directory's project.
pub const FLAG_PROJINHERIT: u64 = 1 << 46;
/// Flag: a project is stored.
pub const FLAG_PROJID: u64 = 1 << 47;

/// Flags that Linux shows as inode flags (`FS_…_FL`).
const LINUX_FLAGS: [(u64, u32); 4] =
    [(FLAG_IMMUTABLE, 0x10), (FLAG_APPENDONLY, 0x20), (FLAG_NODUMP, 0x40), (FLAG_PROJINHERIT, 0x2000_0000)];

/// The flags as Linux inode flags (`FS_…_FL`).
pub fn linux_flags(flags: u64) -> u32 {
    LINUX_FLAGS.iter().filter(|(flag, _)| flags & flag != 0).map(|(_, linux)| linux).sum()
}

/// The flags, with those that Linux knows replaced. `None`: a requested flag is not supported.
pub fn with_linux_flags(flags: u64, linux: u32) -> Option<u64> {
    let known: u32 = LINUX_FLAGS.iter().map(|(_, linux)| linux).sum();
    let all: u64 = LINUX_FLAGS.iter().map(|(flag, _)| flag).sum();
    let wanted: u64 = LINUX_FLAGS.iter().filter(|(_, bit)| linux & bit != 0).map(|(flag, _)| flag).sum();
    (linux & !known == 0).then_some(flags & !all | wanted)
}

/// Flags for DOS attributes, at the same bits as in the tools' word.
const DOS_FLAGS: u64 = FLAG_READONLY
    | FLAG_HIDDEN
    | FLAG_SYSTEM
    | FLAG_ARCHIVE
    | FLAG_IMMUTABLE
    | FLAG_NOUNLINK
    | FLAG_APPENDONLY
    | FLAG_NODUMP
    | FLAG_REPARSE
    | FLAG_OFFLINE
    | FLAG_SPARSE;

/// The flags for DOS attributes.
pub fn dos_flags(flags: u64) -> u64 {
    flags & DOS_FLAGS
}

/// The flags, with those for DOS attributes replaced. `None`: a requested flag is not supported, or the flag
/// "reparse point", which cannot be changed, differs.
pub fn with_dos_flags(flags: u64, dos: u64) -> Option<u64> {
    let is_possible = dos & !DOS_FLAGS == 0 && (flags ^ dos) & FLAG_REPARSE == 0;
    is_possible.then_some(flags & !DOS_FLAGS | dos)
}

/// A point in time, relative to the Unix epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time {
    /// Seconds since 1970, negative before.
    pub secs: i64,
    /// Nanoseconds within the second, less than 10⁹.
    pub nanos: u32,
}

impl Time {
    /// Decodes the two stored words. Invalid nanoseconds become the last of the second.
    pub fn from_words([secs, nanos]: [u64; 2]) -> Time {
        Time { secs: secs as i64, nanos: nanos.min(999_999_999) as u32 }
    }
}

/// The value of a directory entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DirentValue {
    /// Object id of the file; `None` if it is not valid.
    pub object: Option<ObjectId>,
    /// `(mode & S_IFMT) >> 12`; 0 if it is not known.
    pub kind: u8,
}

impl DirentValue {
    /// Decodes the first word of the value.
    pub fn decode(value: u64) -> DirentValue {
        let object = bits(value, 0, 48);
        DirentValue { object: (object != 0).then_some(ObjectId(object)), kind: bits(value, 60, 4) as u8 }
    }

    /// Encodes the first word of the value of an entry for `object`.
    pub fn encode(object: ObjectId, kind: u8) -> u64 {
        object.0 | u64::from(kind) << 60
    }
}

/// Swaps the byte order of a legacy znode in `order`. The rest of the bonus (a symbolic link's target, a scan
/// stamp) is bytes.
pub(crate) fn swap_bytes(bonus: &mut [u8], order: Endian) {
    let Some(znode) = bonus.get_mut(..ZNODE_SIZE) else { return };
    let version = order.get_u16(znode, ACL_AT + 12);
    let (words, acl) = znode.split_at_mut(ACL_AT);
    swap_each(words, 8);
    let (head, aces) = acl.split_at_mut(ZNODE_SIZE - INLINE_ACES - ACL_AT);
    swap_each(&mut head[..8], 8);
    swap_each(&mut head[8..12], 4);
    swap_each(&mut head[12..], 2);
    if version == Some(0) { swap_old_aces(aces) } else { swap_aces(aces, order) }
}

/// Swaps the byte order of ACEs of version 0.
pub(crate) fn swap_old_aces(aces: &mut [u8]) {
    for ace in aces.chunks_exact_mut(12) {
        swap_each(&mut ace[..8], 4);
        swap_each(&mut ace[8..], 2);
    }
}

/// Swaps the byte order of ACEs of version 1, which are in `order`.
pub(crate) fn swap_aces(aces: &mut [u8], order: Endian) {
    let mut at = 0;
    while let Some(ace) = aces.get_mut(at..).filter(|rest| rest.len() >= 8) {
        let is_object = (5..=8).contains(&order.get_u16(ace, 0).unwrap_or(0));
        let flags = order.get_u16(ace, 2).unwrap_or(0)
            & (ACE_OWNER | ACE_GROUP | ACE_EVERYONE | ACE_IDENTIFIER_GROUP);
        let is_named = ![ACE_OWNER, ACE_GROUP | ACE_IDENTIFIER_GROUP, ACE_EVERYONE].contains(&flags);
        swap_each(&mut ace[..4], 2);
        swap_each(&mut ace[4..8], 4);
        if let (true, Some(who)) = (is_named || is_object, ace.get_mut(8..16)) {
            who.reverse();
        }
        at += if is_object {
            48
        } else if is_named {
            16
        } else {
            8
        };
    }
}

fn swap_each(bytes: &mut [u8], width: usize) {
    bytes.chunks_exact_mut(width).for_each(<[u8]>::reverse);
}

/// The ACL inside a legacy znode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LegacyAcl {
    /// Object id of the ACEs if they are not inline; 0 if they are.
    pub external: ObjectId,
    /// Size of the ACEs in an external object (version 1) in bytes, as stored.
    pub size: u32,
    /// The form in which the ACEs are stored.
    pub version: AclVersion,
    /// Number of ACEs in the ACL.
    pub count: u32,
    /// The inline area for the first ACEs.
    pub inline: [u8; INLINE_ACES],
    /// Byte order of the ACEs.
    pub order: Endian,
}

impl LegacyAcl {
    /// Decodes the 88 bytes of a legacy ACL.
    ///
    /// # Errors
    /// [`DecodeError::Short`]; [`DecodeError::Field`] if no ACL has this version.
    pub fn decode(bytes: &[u8], order: Endian) -> Result<LegacyAcl, DecodeError> {
        const WHAT: &str = "legacy ACL";
        let version = AclVersion::from_id(order.u16(WHAT, bytes, 12)?)?;
        let size = order.u32(WHAT, bytes, 8)?;
        let count = match version {
            // In version 0 the word of the size has the number of entries.
            AclVersion::V0 => size,
            AclVersion::Fuid => order.u16(WHAT, bytes, 14)?.into(),
        };
        let inline = bytes.get(16..16 + INLINE_ACES).and_then(|raw| raw.try_into().ok());
        Ok(LegacyAcl {
            external: ObjectId(order.u64(WHAT, bytes, 0)?),
            size,
            version,
            count,
            inline: inline.ok_or(DecodeError::Short { what: WHAT, needed: 88, have: bytes.len() })?,
            order,
        })
    }
}

/// A legacy znode: the bonus of files before version 5.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LegacyZnode {
    /// Time of the last access.
    pub atime: Time,
    /// Time of the last change of the content.
    pub mtime: Time,
    /// Time of the last change of the file or its attributes.
    pub ctime: Time,
    /// Time at which the file was created.
    pub crtime: Time,
    /// Txg in which the file was created.
    pub generation: u64,
    /// File type and permission bits.
    pub mode: u64,
    /// Size of the file in bytes.
    pub size: u64,
    /// Object id of the directory that contains the file.
    pub parent: ObjectId,
    /// Number of hard links to the file.
    pub links: u64,
    /// Object id of the attribute directory; 0: there is none.
    pub xattr: ObjectId,
    /// Device number; the major number is in the high half.
    pub rdev: u64,
    /// The bits `FLAG_…` of the file.
    pub flags: u64,
    /// The owner, as a FUID.
    pub uid: u64,
    /// The group, as a FUID.
    pub gid: u64,
    /// The ACL as stored; [`LegacyZnode::decode_acl`] decodes it.
    pub(crate) acl: [u8; 88],
    /// Byte order of the znode.
    pub(crate) order: Endian,
}

impl LegacyZnode {
    /// Decodes the bonus of a legacy znode.
    ///
    /// # Errors
    /// [`DecodeError::Short`].
    pub fn decode(bytes: &[u8], order: Endian) -> Result<LegacyZnode, DecodeError> {
        const WHAT: &str = "znode";
        DecodeError::need(WHAT, ZNODE_SIZE, bytes.len())?;
        let time = |at| order.words(WHAT, bytes, at).map(Time::from_words);
        let [generation, mode, size, parent, links, xattr, rdev, flags, uid, gid] =
            order.words(WHAT, bytes, 64)?;
        let short = DecodeError::Short { what: WHAT, needed: ZNODE_SIZE, have: bytes.len() };
        Ok(LegacyZnode {
            atime: time(0)?,
            mtime: time(16)?,
            ctime: time(32)?,
            crtime: time(48)?,
            generation,
            mode,
            size,
            parent: ObjectId(parent),
            links,
            xattr: ObjectId(xattr),
            rdev,
            flags,
            uid,
            gid,
            acl: bytes.get(176..ZNODE_SIZE).and_then(|acl| acl.try_into().ok()).ok_or(short)?,
            order,
        })
    }

    /// Decodes the ACL of the znode.
    ///
    /// # Errors
    /// As [`LegacyAcl::decode`].
    pub fn decode_acl(&self) -> Result<LegacyAcl, DecodeError> {
        LegacyAcl::decode(&self.acl, self.order)
    }

    /// The target of a symbolic link in the bonus; `None`: it is in block 0.
    pub fn inline_target<'a>(&self, bonus: &'a [u8]) -> Option<&'a [u8]> {
        let stamp = if self.flags & FLAG_BONUS_SCANSTAMP != 0 { 32 } else { 0 };
        let start = ZNODE_SIZE + stamp;
        let len = usize::try_from(self.size).ok()?;
        bonus.get(start..start.checked_add(len)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turned_znode_reads_the_same() {
        // ACEs: for the owner, for a user by id, and for an object type with two GUIDs.
        let mut little: Vec<u8> = (0..320).map(|i| (i * 7) as u8).collect();
        for (at, value) in
            [(12, 1_u16), (14, 2), (16, 0), (18, ACE_OWNER), (24, 0), (26, 0), (40, 5), (42, 0)]
        {
            little[ACL_AT + at..ACL_AT + at + 2].copy_from_slice(&value.to_le_bytes());
        }
        let mut big = little.clone();
        swap_bytes(&mut big, Endian::Little);
        assert_ne!(big, little);
        assert_eq!(big[ZNODE_SIZE..], little[ZNODE_SIZE..]);
        let (a, b) = (LegacyZnode::decode(&little, Endian::Little), LegacyZnode::decode(&big, Endian::Big));
        let (a, b) = (a.unwrap(), b.unwrap());
        assert_eq!((a.atime, a.uid), (b.atime, b.uid));
        let (a, b) = (a.decode_acl().unwrap(), b.decode_acl().unwrap());
        assert_eq!((a.external, a.size, a.count), (b.external, b.size, b.count));
        let aces = |acl: &LegacyAcl| crate::acl::decode_aces(&acl.inline, 2, acl.version, acl.order).unwrap();
        assert_eq!(aces(&a), aces(&b));
        swap_bytes(&mut big, Endian::Big);
        assert_eq!(big, little);
    }

    #[test]
    fn both_orders() {
        for order in [Endian::Little, Endian::Big] {
            let mut raw = vec![0; ZNODE_SIZE];
            for (at, value) in [(16, -5_i64 as u64), (24, 7), (72, 0o120_777), (80, 4), (128, 1000)] {
                raw[at..at + 8].copy_from_slice(&order.put_u64(value));
            }
            raw[184..188].copy_from_slice(&order.put_u32(3));
            raw.extend(b"link");
            let znode = LegacyZnode::decode(&raw, order).unwrap();
            assert_eq!(znode.mtime, Time { secs: -5, nanos: 7 });
            assert_eq!((znode.mode, znode.uid), (0o120_777, 1000));
            assert_eq!(znode.inline_target(&raw), Some(&b"link"[..]));
            assert_eq!(znode.inline_target(&raw[..ZNODE_SIZE]), None);
            let acl = znode.decode_acl().unwrap();
            assert_eq!((acl.version, acl.count), (AclVersion::V0, 3));
        }
        assert!(LegacyZnode::decode(&[0; 263], Endian::Little).is_err());
    }

    #[test]
    fn entries_and_flags() {
        assert_eq!(DirentValue::decode(0x4000_0000_0000_0022).object, Some(ObjectId(34)));
        assert_eq!(DirentValue::decode(0x4000_0000_0000_0022).kind, 4);
        assert_eq!(DirentValue::decode(8 << 60).object, None);
        assert_eq!(linux_flags(FLAG_IMMUTABLE | FLAG_PROJINHERIT | FLAG_PROJID), 0x2000_0010);
    }
}
