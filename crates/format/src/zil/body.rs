//! The contents of intent log records (docs/on-disk/24-zil.md, sections 4.2 and 9).

use super::{NAME_MAX, RawRecord, RecordKind, WHAT};
use crate::blkptr::BLKPTR_SIZE;
use crate::endian::bits;
use crate::units::MAX_BLOCK;
use crate::{BlockPtr, BpKind, DecodeError, Endian, ObjectId, Txg};

/// Bits of the mask of a set-attribute record that announce the attribute block: on Linux, and on other systems.
const XVATTR_BITS: u64 = 0x8000_0000 | 0x1_0000;
/// Maximum number of words in the bitmap of requested attributes.
const XVATTR_WORDS: u64 = 3;
/// Size of an entry of an old ACL in bytes.
const ACE_V0_SIZE: usize = 12;

/// Bits of [`SetAttr::mask`], with the values of Linux.
pub mod mask {
    /// The record sets the mode.
    pub const MODE: u64 = 1;
    /// The record sets the owner.
    pub const UID: u64 = 2;
    /// The record sets the group.
    pub const GID: u64 = 4;
    /// The record sets the size.
    pub const SIZE: u64 = 8;
    /// The record sets the access time.
    pub const ATIME: u64 = 0x10;
    /// The record sets the modification time.
    pub const MTIME: u64 = 0x20;
    /// The record carries further attributes ([`super::Xvattr`]).
    pub const XVATTR: u64 = 0x8000_0000;
}

/// Bits of [`Xvattr::attrs`] and of the first word of [`Xvattr::requested`].
pub mod xat {
    /// The time of creation is set.
    pub const CREATE_TIME: u64 = 1;
    /// The archive flag is set.
    pub const ARCHIVE: u64 = 2;
    /// The system flag is set.
    pub const SYSTEM: u64 = 4;
    /// The read-only flag is set.
    pub const READONLY: u64 = 8;
    /// The hidden flag is set.
    pub const HIDDEN: u64 = 0x10;
    /// The flag that forbids unlinking is set.
    pub const NOUNLINK: u64 = 0x20;
    /// The immutable flag is set.
    pub const IMMUTABLE: u64 = 0x40;
    /// The append-only flag is set.
    pub const APPENDONLY: u64 = 0x80;
    /// The flag that excludes the file from dumps is set.
    pub const NODUMP: u64 = 0x100;
    /// The offline flag is set.
    pub const OFFLINE: u64 = 0x8000;
    /// The sparse flag is set.
    pub const SPARSE: u64 = 0x1_0000;
    /// The flag that lets new files inherit the project is set.
    pub const PROJINHERIT: u64 = 0x2_0000;
    /// The project id is set.
    pub const PROJID: u64 = 0x4_0000;
}

/// A time as the log stores it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LogTime {
    /// Seconds since 1970; earlier times as two's complement.
    pub secs: u64,
    /// Nanoseconds, as stored; they may be 10^9 or more.
    pub nanos: u64,
}

/// Attributes beyond those of POSIX.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Xvattr {
    /// Bitmap of the attributes that are set; bits of its first word as in [`xat`].
    pub requested: Vec<u32>,
    /// Values of the requested flags.
    pub attrs: u64,
    /// Time of creation of the file.
    pub crtime: LogTime,
    /// Stamp of the virus scanner; or the project id in the first eight bytes, if that is requested.
    pub scanstamp: [u8; 32],
}

/// An ACL in a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedAcl {
    /// Number of entries in the ACL.
    pub count: u64,
    /// Flags of the ACL, as stored in the znode.
    pub flags: u64,
    /// The packed entries of the ACL.
    pub aces: Vec<u8>,
    /// FUIDs of owners that are not POSIX ids.
    pub fuids: Vec<u64>,
}

/// The kind of object that a record creates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CreateKind {
    /// A file that is neither a directory nor a symbolic link.
    File,
    /// A directory.
    Dir,
    /// The directory of a file's extended attributes.
    XattrDir,
    /// A symbolic link was made.
    Symlink,
}

/// Creation of an object with a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Create {
    /// The kind of the new object.
    pub what: CreateKind,
    /// Directory of the new name; for an attribute directory, the file.
    pub dir: ObjectId,
    /// Object number of the new file.
    pub object: ObjectId,
    /// Number of 512-byte slots of its dnode.
    pub slots: u8,
    /// Mode with the type bits.
    pub mode: u64,
    /// Owner; the high half is an index into `domains`.
    pub uid: u64,
    /// Group; the high half is an index into `domains`.
    pub gid: u64,
    /// Generation of the file: the txg of its creation.
    pub generation: u64,
    /// Time of creation of the file.
    pub crtime: LogTime,
    /// Device number, in the encoding of the file system.
    pub rdev: u64,
    /// Further attributes of the new file.
    pub xvattr: Option<Xvattr>,
    /// ACL of the new file.
    pub acl: Option<LoggedAcl>,
    /// Domain names of the FUIDs in the record.
    pub domains: Vec<Vec<u8>>,
    /// Name of the new file; empty for an attribute directory.
    pub name: Vec<u8>,
    /// Target of a symbolic link.
    pub target: Vec<u8>,
}

/// A change of a file's name and directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rename {
    /// Directory of the old name.
    pub from_dir: ObjectId,
    /// Directory of the new name.
    pub to_dir: ObjectId,
    /// Name before the change.
    pub from: Vec<u8>,
    /// Name after the change.
    pub to: Vec<u8>,
}

/// Change of attributes; fields that the mask does not select are undefined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetAttr {
    /// Object number of the file.
    pub object: ObjectId,
    /// Mask of the fields that are set, with the bits of the writer's platform.
    pub mask: u64,
    /// Mode, if the mask has it.
    pub mode: u64,
    /// Owner, if the mask has it.
    pub uid: u64,
    /// Group, if the mask has it.
    pub gid: u64,
    /// Size in bytes, if the mask has it.
    pub size: u64,
    /// Time of the last access.
    pub atime: LogTime,
    /// Time of the last change of the contents.
    pub mtime: LogTime,
    /// Further attributes that the record sets.
    pub xvattr: Option<Xvattr>,
    /// Domain names of the FUIDs in the record.
    pub domains: Vec<Vec<u8>>,
}

/// Cloning of blocks of another file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CloneRange {
    /// Object id of the file that the blocks were cloned into.
    pub object: ObjectId,
    /// First byte of the range.
    pub offset: u64,
    /// Length of the range in bytes.
    pub length: u64,
    /// Block size of the file in bytes.
    pub block_size: u64,
    /// Pointers to the cloned blocks.
    pub pointers: Vec<BlockPtr>,
}

/// The contents of a record, by type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Body {
    /// An object was created with a name.
    Create(Box<Create>),
    /// A directory entry of a file that is not a directory was removed.
    Remove {
        /// Object number of the directory.
        dir: ObjectId,
        /// The name that was removed.
        name: Vec<u8>,
    },
    /// An empty directory was removed.
    Rmdir {
        /// Object number of the parent directory.
        dir: ObjectId,
        /// The name that was removed.
        name: Vec<u8>,
    },
    /// A hard link was created.
    Link {
        /// Directory of the new name.
        dir: ObjectId,
        /// Object number of the file that gets the name.
        object: ObjectId,
        /// Name of the new link.
        name: Vec<u8>,
    },
    /// A file was renamed; an existing file of the new name was replaced.
    Rename(Rename),
    /// Two files exchanged their names.
    Exchange(Rename),
    /// A file was renamed and a whiteout was left, which the second part describes; its name and directory are the
    /// old ones.
    Whiteout(Rename, Box<Create>),
    /// Data was written to a file or volume.
    Write {
        /// Object id of the file; 1 in a volume.
        object: ObjectId,
        /// First byte of the range.
        offset: u64,
        /// Length of the range in bytes.
        length: u64,
        /// The written block, if the data is not in the record.
        bp: BlockPtr,
        /// The data, if it is in the record.
        data: Option<Vec<u8>>,
    },
    /// A write without data: an earlier record has the data, and only the size of the file is significant.
    Write2 {
        /// Object number of the file.
        object: ObjectId,
        /// First byte of the range.
        offset: u64,
        /// Length of the range in bytes.
        length: u64,
    },
    /// A range was freed; of length 0: the rest of the file from the offset on.
    Truncate {
        /// Object number of the file.
        object: ObjectId,
        /// First byte of the range.
        offset: u64,
        /// Length of the range in bytes.
        length: u64,
    },
    /// Attributes of a file were set.
    SetAttr(Box<SetAttr>),
    /// An ACL of the old form was set: entries of 12 bytes.
    AclV0 {
        /// Object number of the file.
        object: ObjectId,
        /// The packed entries of the ACL.
        aces: Vec<u8>,
    },
    /// The ACL of a file was set.
    Acl {
        /// Object number of the file.
        object: ObjectId,
        /// The ACL that was set.
        acl: LoggedAcl,
        /// Domain names of the FUIDs in the record.
        domains: Vec<Vec<u8>>,
    },
    /// An extended attribute was set; an empty value removes it.
    SetSaXattr {
        /// Object number of the file.
        object: ObjectId,
        /// Name of the extended attribute.
        name: Vec<u8>,
        /// Value of the extended attribute.
        value: Vec<u8>,
    },
    /// Blocks of another file were cloned.
    CloneRange(CloneRange),
}

/// A decoded log record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// True if names are looked up without regard to case.
    pub case_insensitive: bool,
    /// Txg in which the change was made.
    pub txg: Txg,
    /// Sequence number of the record in its chain.
    pub seq: u64,
    /// The contents of the record.
    pub body: Body,
}

impl RawRecord<'_> {
    /// Decodes the contents of the record. A record of an encrypted log must have been decrypted.
    ///
    /// # Errors
    /// [`DecodeError::Short`], or [`DecodeError::Field`] and [`DecodeError::Invalid`] for what no record
    /// of its type can hold.
    pub fn decode(&self) -> Result<Record, DecodeError> {
        let kind = self.kind()?;
        DecodeError::need(WHAT, kind.fixed_size(), self.bytes.len())?;
        let fields = Fields { bytes: self.bytes, order: self.order };
        let body = fields.body(kind)?;
        Ok(Record { case_insensitive: self.case_insensitive, txg: self.txg, seq: self.seq, body })
    }
}

/// The fixed fields of a record, read by offset.
#[derive(Clone, Copy)]
struct Fields<'a> {
    bytes: &'a [u8],
    order: Endian,
}

impl<'a> Fields<'a> {
    fn u64(&self, at: usize) -> Result<u64, DecodeError> {
        self.order.u64(WHAT, self.bytes, at)
    }

    fn object(&self, at: usize) -> Result<ObjectId, DecodeError> {
        self.u64(at).map(ObjectId)
    }

    fn time(&self, at: usize) -> Result<LogTime, DecodeError> {
        Ok(LogTime { secs: self.u64(at)?, nanos: self.u64(at + 8)? })
    }

    fn tail(&self, at: usize) -> Tail<'a> {
        Tail { rest: self.bytes.get(at..).unwrap_or(&[]), order: self.order }
    }

    fn body(&self, kind: RecordKind) -> Result<Body, DecodeError> {
        use RecordKind as K;
        Ok(match kind {
            K::Create | K::CreateAttr => self.create(CreateKind::File, kind == K::CreateAttr)?,
            K::Mkdir | K::MkdirAttr => self.create(CreateKind::Dir, kind == K::MkdirAttr)?,
            K::MkXattrDir => self.create(CreateKind::XattrDir, false)?,
            K::Symlink => self.create(CreateKind::Symlink, false)?,
            K::CreateAcl | K::CreateAclAttr => self.create_acl(CreateKind::File, kind == K::CreateAclAttr)?,
            K::MkdirAcl | K::MkdirAclAttr => self.create_acl(CreateKind::Dir, kind == K::MkdirAclAttr)?,
            K::Remove => Body::Remove { dir: self.object(32)?, name: self.tail(40).name()? },
            K::Rmdir => Body::Rmdir { dir: self.object(32)?, name: self.tail(40).name()? },
            K::Link => {
                Body::Link { dir: self.object(32)?, object: self.object(40)?, name: self.tail(48).name()? }
            }
            K::Rename => Body::Rename(self.rename(48)?),
            K::RenameExchange => Body::Exchange(self.rename(48)?),
            K::RenameWhiteout => self.whiteout()?,
            K::Write => self.write()?,
            K::Write2 => {
                let (object, offset, length) = self.range()?;
                Body::Write2 { object, offset, length }
            }
            K::Truncate => {
                let (object, offset, length) = self.range()?;
                Body::Truncate { object, offset, length }
            }
            K::SetAttr => self.set_attr()?,
            K::AclV0 => self.acl_v0()?,
            K::Acl => self.acl()?,
            K::SetSaXattr => self.set_sa_xattr()?,
            K::CloneRange => self.clone_range()?,
        })
    }

    /// Object, offset and length of a record about a range.
    fn range(&self) -> Result<(ObjectId, u64, u64), DecodeError> {
        let (object, offset, length) = (self.object(32)?, self.u64(40)?, self.u64(48)?);
        let end = offset.checked_add(length).filter(|end| *end <= i64::MAX as u64);
        end.ok_or(DecodeError::field(WHAT, "offset", offset))?;
        Ok((object, offset, length))
    }

    /// Object id and number of dnode slots of a new object.
    fn new_object(&self, at: usize) -> Result<(ObjectId, u8), DecodeError> {
        let word = self.u64(at)?;
        let (object, slots) = (bits(word, 0, 48), bits(word, 56, 8));
        if object == 0 || bits(word, 48, 8) != 0 {
            return Err(DecodeError::field(WHAT, "object", word));
        }
        if slots >= 32 {
            return Err(DecodeError::field(WHAT, "dnode slots", slots + 1));
        }
        Ok((ObjectId(object), slots as u8 + 1))
    }

    /// Decodes a create record up to its variable part.
    fn create_fixed(&self, what: CreateKind) -> Result<Create, DecodeError> {
        let (object, slots) = self.new_object(40)?;
        Ok(Create {
            what,
            dir: self.object(32)?,
            object,
            slots,
            mode: self.u64(48)?,
            uid: self.u64(56)?,
            gid: self.u64(64)?,
            generation: self.u64(72)?,
            crtime: self.time(80)?,
            rdev: self.u64(96)?,
            xvattr: None,
            acl: None,
            domains: Vec::new(),
            name: Vec::new(),
            target: Vec::new(),
        })
    }

    fn create(&self, what: CreateKind, with_attrs: bool) -> Result<Body, DecodeError> {
        let mut create = self.create_fixed(what)?;
        let mut tail = self.tail(104);
        if with_attrs {
            create.xvattr = Some(tail.xvattr()?);
        }
        create.domains = tail.strings(owner_domains(create.uid, create.gid))?;
        create.name = match what {
            CreateKind::XattrDir => tail.string()?,
            _ => tail.name()?,
        };
        if what == CreateKind::Symlink {
            create.target = tail.string()?;
        }
        Ok(Body::Create(Box::new(create)))
    }

    fn create_acl(&self, what: CreateKind, with_attrs: bool) -> Result<Body, DecodeError> {
        let mut create = self.create_fixed(what)?;
        let mut tail = self.tail(144);
        if with_attrs {
            create.xvattr = Some(tail.xvattr()?);
        }
        let (acl, domains) = self.logged_acl(104, &mut tail)?;
        create.acl = Some(acl);
        create.domains = domains;
        create.name = tail.name()?;
        Ok(Body::Create(Box::new(create)))
    }

    /// Decodes an ACL: its counts are at `at`, its parts follow in `tail`.
    fn logged_acl(&self, at: usize, tail: &mut Tail<'_>) -> Result<(LoggedAcl, Vec<Vec<u8>>), DecodeError> {
        let (count, domains, fuids) = (self.u64(at)?, self.u64(at + 8)?, self.u64(at + 16)?);
        let (size, flags) = (self.u64(at + 24)?, self.u64(at + 32)?);
        // An entry has at least eight bytes.
        if count.checked_mul(8).is_none_or(|least| least > size) {
            return Err(DecodeError::field(WHAT, "ACL entries", count));
        }
        let aces = tail.padded(size)?.to_vec();
        let fuids = tail.words(fuids)?;
        let domains = tail.strings(domains)?;
        Ok((LoggedAcl { count, flags, aces, fuids }, domains))
    }

    fn rename(&self, names_at: usize) -> Result<Rename, DecodeError> {
        let mut tail = self.tail(names_at);
        Ok(Rename {
            from_dir: self.object(32)?,
            to_dir: self.object(40)?,
            from: tail.name()?,
            to: tail.name()?,
        })
    }

    fn whiteout(&self) -> Result<Body, DecodeError> {
        let rename = self.rename(112)?;
        let (object, slots) = self.new_object(48)?;
        let whiteout = Create {
            what: CreateKind::File,
            dir: rename.from_dir,
            object,
            slots,
            mode: self.u64(56)?,
            uid: self.u64(64)?,
            gid: self.u64(72)?,
            generation: self.u64(80)?,
            crtime: self.time(88)?,
            rdev: self.u64(104)?,
            xvattr: None,
            acl: None,
            domains: Vec::new(),
            name: rename.from.clone(),
            target: Vec::new(),
        };
        Ok(Body::Whiteout(rename, Box::new(whiteout)))
    }

    fn write(&self) -> Result<Body, DecodeError> {
        let (object, offset, length) = self.range()?;
        let bp = BlockPtr::decode(self.bytes.get(64..).unwrap_or(&[]), self.order)?;
        let mut tail = self.tail(192);
        let data = if tail.rest.is_empty() {
            check_indirect(&bp, offset, length)?;
            None
        } else {
            Some(tail.take(length)?.to_vec())
        };
        Ok(Body::Write { object, offset, length, bp, data })
    }

    fn set_attr(&self) -> Result<Body, DecodeError> {
        let mask = self.u64(40)?;
        let mut tail = self.tail(112);
        Ok(Body::SetAttr(Box::new(SetAttr {
            object: self.object(32)?,
            mask,
            mode: self.u64(48)?,
            uid: self.u64(56)?,
            gid: self.u64(64)?,
            size: self.u64(72)?,
            atime: self.time(80)?,
            mtime: self.time(96)?,
            xvattr: if mask & XVATTR_BITS != 0 { Some(tail.xvattr()?) } else { None },
            domains: tail.strings_to_the_end()?,
        })))
    }

    fn acl_v0(&self) -> Result<Body, DecodeError> {
        let count = self.u64(40)?;
        let size = count.saturating_mul(ACE_V0_SIZE as u64);
        Ok(Body::AclV0 { object: self.object(32)?, aces: self.tail(48).take(size)?.to_vec() })
    }

    fn acl(&self) -> Result<Body, DecodeError> {
        let (acl, domains) = self.logged_acl(40, &mut self.tail(80))?;
        Ok(Body::Acl { object: self.object(32)?, acl, domains })
    }

    fn set_sa_xattr(&self) -> Result<Body, DecodeError> {
        let mut tail = self.tail(48);
        let name = tail.string()?;
        if name.is_empty() || name.len() > NAME_MAX {
            return Err(DecodeError::field(WHAT, "name length", name.len() as u64));
        }
        let value = tail.take(self.u64(40)?)?.to_vec();
        Ok(Body::SetSaXattr { object: self.object(32)?, name, value })
    }

    fn clone_range(&self) -> Result<Body, DecodeError> {
        let (object, offset, length) = self.range()?;
        let (block_size, count) = (self.u64(56)?, self.u64(64)?);
        if block_size == 0 || block_size > MAX_BLOCK || !block_size.is_multiple_of(512) {
            return Err(DecodeError::field(WHAT, "block size", block_size));
        }
        if length.div_ceil(block_size) > count {
            return Err(DecodeError::field(WHAT, "length", length));
        }
        let area = self.tail(72).take(count.saturating_mul(BLKPTR_SIZE as u64))?;
        let pointers = BlockPtr::decode_all(area, self.order).collect();
        Ok(Body::CloneRange(CloneRange { object, offset, length, block_size, pointers }))
    }
}

/// Checks that the block of an indirect write contains the range.
fn check_indirect(bp: &BlockPtr, offset: u64, length: u64) -> Result<(), DecodeError> {
    if bp.kind() == BpKind::Hole {
        return Ok(());
    }
    bp.validate()?;
    if bp.level().0 != 0 {
        return Err(DecodeError::field(WHAT, "level of a write", bp.level().0));
    }
    let lsize = bp.lsize().0;
    if offset % lsize + length.min(MAX_BLOCK + 1) > lsize {
        return Err(DecodeError::field(WHAT, "length of a write", length));
    }
    Ok(())
}

/// Number of domain strings that follow if the owners' high halves are indexes: one for each different index.
fn owner_domains(uid: u64, gid: u64) -> u64 {
    match (uid >> 32, gid >> 32) {
        (0, 0) => 0,
        (0, _) | (_, 0) => 1,
        (u, g) if u == g => 1,
        _ => 2,
    }
}

/// The variable part of a record, consumed from the front.
struct Tail<'a> {
    rest: &'a [u8],
    order: Endian,
}

impl<'a> Tail<'a> {
    fn take(&mut self, n: u64) -> Result<&'a [u8], DecodeError> {
        let needed = usize::try_from(n).unwrap_or(usize::MAX);
        let (head, rest) = self.rest.split_at_checked(needed).ok_or(DecodeError::Short {
            what: WHAT,
            needed,
            have: self.rest.len(),
        })?;
        self.rest = rest;
        Ok(head)
    }

    /// `n` bytes, and the padding up to a multiple of eight.
    fn padded(&mut self, n: u64) -> Result<&'a [u8], DecodeError> {
        let bytes = self.take(n)?;
        self.take(n.next_multiple_of(8) - n)?;
        Ok(bytes)
    }

    fn u64(&mut self) -> Result<u64, DecodeError> {
        let raw = self.take(8)?;
        self.order.u64(WHAT, raw, 0)
    }

    fn words(&mut self, count: u64) -> Result<Vec<u64>, DecodeError> {
        let raw = self.take(count.saturating_mul(8))?;
        Ok(self.order.all_words(raw).collect())
    }

    /// Bytes up to a NUL.
    fn string(&mut self) -> Result<Vec<u8>, DecodeError> {
        let end = self.rest.iter().position(|b| *b == 0);
        let end = end.ok_or(DecodeError::invalid(WHAT, "a string does not end"))?;
        let string = self.take(end as u64)?.to_vec();
        self.take(1)?;
        Ok(string)
    }

    fn strings(&mut self, count: u64) -> Result<Vec<Vec<u8>>, DecodeError> {
        // Each string has at least its NUL, so the loop ends with the record.
        DecodeError::need(WHAT, usize::try_from(count).unwrap_or(usize::MAX), self.rest.len())?;
        (0..count).map(|_| self.string()).collect()
    }

    /// Strings up to the padding.
    fn strings_to_the_end(&mut self) -> Result<Vec<Vec<u8>>, DecodeError> {
        let mut strings = Vec::new();
        while self.rest.first().is_some_and(|b| *b != 0) {
            strings.push(self.string()?);
        }
        Ok(strings)
    }

    /// The name of a directory entry.
    fn name(&mut self) -> Result<Vec<u8>, DecodeError> {
        let name = self.string()?;
        if name.is_empty() || name.len() > NAME_MAX {
            return Err(DecodeError::field(WHAT, "name length", name.len() as u64));
        }
        if name.contains(&b'/') {
            return Err(DecodeError::invalid(WHAT, "a name holds a slash"));
        }
        Ok(name)
    }

    fn xvattr(&mut self) -> Result<Xvattr, DecodeError> {
        let raw = self.take(4)?;
        let words = u64::from(self.order.u32(WHAT, raw, 0)?);
        if !(1..=XVATTR_WORDS).contains(&words) {
            return Err(DecodeError::field(WHAT, "attribute words", words));
        }
        let bitmap = self.take(4 * words)?;
        let requested = bitmap.chunks_exact(4).filter_map(|raw| self.order.get_u32(raw, 0)).collect();
        Ok(Xvattr {
            requested,
            attrs: self.u64()?,
            crtime: LogTime { secs: self.u64()?, nanos: self.u64()? },
            scanstamp: self.take(32)?.try_into().map_err(|_| DecodeError::invalid(WHAT, "short"))?,
        })
    }
}
