//! The intent log: chain structure of its blocks, and its records
//! (docs/on-disk/24-zil.md, sections 3 and 4). The head of a chain is `objset::ZilHeader`.
//!
//! Reading a log takes three steps. [`Chain::decode`] decodes the chain structure of a block and finds the bytes of
//! its records; `codec::checksum::verify_zil` verifies the block. [`records`] iterates over the records without
//! decoding them, which is all that is possible for an encrypted log without its key. [`RawRecord::decode`] decodes
//! the change.
//!
//! - Names in a decoded record are not empty, contain no NUL and no slash, and have at most `NAME_MAX` bytes;
//!   ranges end below 2^63; all parts that the counts of a record announce are present.
//! - Encoding a decoded record and decoding it again gives the same record.

mod body;
mod encode;

pub use body::{
    Body, CloneRange, Create, CreateKind, LogTime, LoggedAcl, Record, Rename, SetAttr, Xvattr, mask, xat,
};

use crate::blkptr::BLKPTR_SIZE;
use crate::{BlockPtr, Checksum, ChecksumId, DecodeError, Endian, ObjectId, Txg};
use std::ops::Range;

/// Bytes of the chain structure.
pub const CHAIN_SIZE: usize = 184;
/// Magic number of the chain structure, the same as in trailers of labels.
pub(crate) const CHAIN_MAGIC: u64 = crate::label::TRAILER_MAGIC;
/// Unit in bytes in which blocks of the newer kind are written.
pub const WRITE_UNIT: usize = 4096;
/// Bytes of a record's header.
pub(crate) const RECORD_HEADER: usize = 32;
/// Maximum length of a name in bytes, with the feature `longname`.
pub(crate) const NAME_MAX: usize = 1023;
/// Bit of a record's type: names are looked up without regard to case.
const TX_CI: u64 = 1 << 63;

const WHAT: &str = "intent log";

/// The chain structure of a log block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chain {
    /// Pointer to the next block, which is allocated but may not be written.
    pub next: BlockPtr,
    /// Number of bytes used: in the newer kind from the start of the block, in the older kind without the chain
    /// structure.
    pub nused: u64,
    /// Checksum of the block, as stored.
    pub checksum: Checksum,
    /// Byte order of the writer.
    pub order: Endian,
}

impl Chain {
    /// Decodes the chain structure of a block, given the checksum algorithm of its pointer, and finds the bytes of
    /// the records. The checksum is not verified here.
    ///
    /// # Errors
    /// [`DecodeError::Short`], [`DecodeError::Magic`]; [`DecodeError::Field`] if the algorithm is not one for logs,
    /// or more bytes are used than the block has.
    pub fn decode(block: &[u8], kind: ChecksumId) -> Result<(Chain, Range<usize>), DecodeError> {
        DecodeError::need(WHAT, CHAIN_SIZE, block.len())?;
        let room = block.len() - CHAIN_SIZE;
        let start = match kind {
            ChecksumId::Zilog2 => 0,
            ChecksumId::Zilog => room,
            _ => return Err(DecodeError::field(WHAT, "checksum algorithm", kind.id())),
        };
        let found = Endian::Little.u64(WHAT, block, start + 144)?;
        let order = match found {
            CHAIN_MAGIC => Endian::Little,
            _ if found.swap_bytes() == CHAIN_MAGIC => Endian::Big,
            _ => return Err(DecodeError::Magic { what: WHAT, found, expected: CHAIN_MAGIC }),
        };
        let nused = order.u64(WHAT, block, start + 136)?;
        let range = match kind {
            ChecksumId::Zilog2 => CHAIN_SIZE as u64..nused,
            _ => 0..nused,
        };
        let limit = if start == 0 { block.len() } else { room } as u64;
        if range.start > range.end || range.end > limit {
            return Err(DecodeError::field(WHAT, "nused", nused));
        }
        let chain = Chain {
            next: BlockPtr::decode(block.get(start + 8..).unwrap_or(&[]), order)?,
            nused,
            checksum: Checksum(order.words(WHAT, block, start + 152)?),
            order,
        };
        Ok((chain, range.start as usize..range.end as usize))
    }

    /// Encodes the chain trailer, 184 bytes.
    pub fn encode(&self) -> [u8; CHAIN_SIZE] {
        let mut out = [0; CHAIN_SIZE];
        let [a, b, c, d] = self.checksum.0;
        let tail = [self.nused, CHAIN_MAGIC, a, b, c, d];
        let words = std::iter::once(0).chain(*self.next.words()).chain(tail);
        for (chunk, word) in out.chunks_exact_mut(8).zip(words) {
            chunk.copy_from_slice(&self.order.put_u64(word));
        }
        out
    }

    /// True if the next pointer continues the identity of `bp`, the pointer to this block. Otherwise the block does
    /// not belong to the chain and its records are ignored.
    pub fn follows(&self, bp: &BlockPtr) -> bool {
        let [guid0, guid1, objset, seq] = bp.checksum().0;
        self.next.checksum() == Checksum([guid0, guid1, objset, seq.wrapping_add(1)])
    }
}

/// Sequence number of a log block in its chain, from 1.
pub fn block_seq(bp: &BlockPtr) -> u64 {
    let [.., seq] = bp.checksum().0;
    seq
}

/// The dataset that a log block belongs to.
pub fn block_objset(bp: &BlockPtr) -> ObjectId {
    let [_, _, objset, _] = bp.checksum().0;
    ObjectId(objset)
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $var:ident = $n:literal $text:literal $min:literal,)*) => {
        /// Type of a record.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum RecordKind { $($(#[$doc])* $var = $n,)* }

        impl RecordKind {
            /// The kind with this number.
            ///
            /// # Errors
            /// [`DecodeError::Field`] if no record has this type.
            pub fn from_id(id: u64) -> Result<RecordKind, DecodeError> {
                match id {
                    $($n => Ok(RecordKind::$var),)*
                    _ => Err(DecodeError::field(WHAT, "record type", id)),
                }
            }

            /// The name as zdb prints it.
            pub fn name(self) -> &'static str { match self { $(RecordKind::$var => $text,)* } }

            /// Size of the fixed part in bytes, header included.
            fn fixed_size(self) -> usize { match self { $(RecordKind::$var => $min,)* } }
        }
    };
}

kinds! {
    /// TX_CREATE: a file was created.
    Create = 1 "TX_CREATE" 104,
    /// TX_MKDIR: a directory was created.
    Mkdir = 2 "TX_MKDIR" 104,
    /// TX_MKXATTR: the directory of a file's extended attributes was created.
    MkXattrDir = 3 "TX_MKXATTR" 104,
    /// TX_SYMLINK: a symbolic link was created.
    Symlink = 4 "TX_SYMLINK" 104,
    /// TX_REMOVE: a directory entry of a file that is not a directory was removed.
    Remove = 5 "TX_REMOVE" 40,
    /// TX_RMDIR: a directory was removed.
    Rmdir = 6 "TX_RMDIR" 40,
    /// TX_LINK: a hard link was created.
    Link = 7 "TX_LINK" 48,
    /// TX_RENAME: a file was renamed.
    Rename = 8 "TX_RENAME" 48,
    /// TX_WRITE: data was written to a file or volume.
    Write = 9 "TX_WRITE" 192,
    /// TX_TRUNCATE: a range was freed, or the file was truncated.
    Truncate = 10 "TX_TRUNCATE" 56,
    /// TX_SETATTR: attributes of a file were set.
    SetAttr = 11 "TX_SETATTR" 112,
    /// TX_ACL_V0: an ACL of the old form was set.
    AclV0 = 12 "TX_ACL_V0" 48,
    /// TX_ACL: an ACL was set.
    Acl = 13 "TX_ACL_ACL" 80,
    /// TX_CREATE_ACL: a file was created with an ACL.
    CreateAcl = 14 "TX_CREATE_ACL" 144,
    /// TX_CREATE_ATTR: a file was created with attributes.
    CreateAttr = 15 "TX_CREATE_ATTR" 104,
    /// TX_CREATE_ACL_ATTR: a file was created with an ACL and attributes.
    CreateAclAttr = 16 "TX_CREATE_ACL_ATTR" 144,
    /// TX_MKDIR_ACL: a directory was created with an ACL.
    MkdirAcl = 17 "TX_MKDIR_ACL" 144,
    /// TX_MKDIR_ATTR: a directory was created with attributes.
    MkdirAttr = 18 "TX_MKDIR_ATTR" 104,
    /// TX_MKDIR_ACL_ATTR: a directory was created with an ACL and attributes.
    MkdirAclAttr = 19 "TX_MKDIR_ACL_ATTR" 144,
    /// TX_WRITE2: data was written that an earlier record contains.
    Write2 = 20 "TX_WRITE2" 192,
    /// TX_SETSAXATTR: an extended attribute in the system attributes was set or removed.
    SetSaXattr = 21 "TX_SETSAXATTR" 48,
    /// TX_RENAME_EXCHANGE: two files exchanged their names.
    RenameExchange = 22 "TX_RENAME_EXCHANGE" 48,
    /// TX_RENAME_WHITEOUT: a file was renamed and a whiteout was left at the old name.
    RenameWhiteout = 23 "TX_RENAME_WHITEOUT" 112,
    /// TX_CLONE_RANGE: blocks of another file were cloned.
    CloneRange = 24 "TX_CLONE_RANGE" 72,
}

impl RecordKind {
    /// The number stored on disk.
    pub(crate) fn id(self) -> u64 {
        self as u64
    }

    /// True if the record concerns one object, whose id is the first field; such records may be out of order with
    /// changes of directory entries.
    pub(crate) fn is_per_object(self) -> bool {
        use RecordKind as K;
        matches!(
            self,
            K::Write
                | K::Truncate
                | K::SetAttr
                | K::AclV0
                | K::Acl
                | K::Write2
                | K::SetSaXattr
                | K::CloneRange
        )
    }
}

/// A record whose contents are not decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawRecord<'a> {
    /// Type number without the flag for case.
    pub txtype: u64,
    /// True if names are looked up without regard to case.
    pub case_insensitive: bool,
    /// Txg in which the change was made.
    pub txg: Txg,
    /// Sequence number of the record in its chain.
    pub seq: u64,
    /// The bytes of the record, its header included.
    pub bytes: &'a [u8],
    /// Byte order of the writer.
    pub(crate) order: Endian,
}

impl<'a> RawRecord<'a> {
    /// Splits the first record off `bytes`.
    fn split(bytes: &'a [u8], order: Endian) -> Result<(RawRecord<'a>, &'a [u8]), DecodeError> {
        let [txtype, len, txg, seq] = order.words(WHAT, bytes, 0)?;
        let bad_length = DecodeError::field(WHAT, "record length", len);
        if len < RECORD_HEADER as u64 || !len.is_multiple_of(8) {
            return Err(bad_length);
        }
        let len = usize::try_from(len).map_err(|_| bad_length.clone())?;
        let (bytes, rest) = bytes.split_at_checked(len).ok_or(bad_length)?;
        let record = RawRecord {
            txtype: txtype & !TX_CI,
            case_insensitive: txtype & TX_CI != 0,
            txg: Txg(txg),
            seq,
            bytes,
            order,
        };
        Ok((record, rest))
    }

    /// The type of the record.
    ///
    /// # Errors
    /// [`DecodeError::Field`] if no record has this type.
    pub fn kind(&self) -> Result<RecordKind, DecodeError> {
        RecordKind::from_id(self.txtype)
    }

    /// The object of a record that concerns one.
    pub fn object(&self) -> Option<ObjectId> {
        let kind = self.kind().ok().filter(|kind| kind.is_per_object());
        kind.and_then(|_| self.order.get_u64(self.bytes, RECORD_HEADER)).map(ObjectId)
    }

    /// The block pointers of a write or clone record, which are not encrypted even in an encrypted log. A claim
    /// needs them. Zero pointers of immediate writes are left out.
    ///
    /// # Errors
    /// [`DecodeError::Short`]; [`DecodeError::Field`] if the record cannot hold that many pointers.
    pub fn pointers(&self) -> Result<Vec<BlockPtr>, DecodeError> {
        let (at, count) = match self.kind() {
            Ok(RecordKind::Write) => (64, 1),
            Ok(RecordKind::CloneRange) => (72, self.order.u64(WHAT, self.bytes, 64)?),
            _ => return Ok(Vec::new()),
        };
        let area = self.bytes.get(at..).unwrap_or(&[]);
        let size = usize::try_from(count).ok().and_then(|n| n.checked_mul(BLKPTR_SIZE));
        let size = size.ok_or(DecodeError::field(WHAT, "number of pointers", count))?;
        let area = area.get(..size).ok_or(DecodeError::field(WHAT, "number of pointers", count))?;
        Ok(BlockPtr::decode_all(area, self.order).filter(|bp| *bp != BlockPtr::HOLE).collect())
    }
}

/// Iterator over the records of a block. Ends after an error.
#[derive(Debug, Clone)]
pub struct Records<'a> {
    rest: &'a [u8],
    order: Endian,
}

/// The records in the range that [`Chain::decode`] returned, in the writer's byte order.
pub fn records(bytes: &[u8], order: Endian) -> Records<'_> {
    Records { rest: bytes, order }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<RawRecord<'a>, DecodeError>;

    fn next(&mut self) -> Option<Result<RawRecord<'a>, DecodeError>> {
        if self.rest.len() < RECORD_HEADER {
            return None;
        }
        match RawRecord::split(self.rest, self.order) {
            Ok((record, rest)) => {
                self.rest = rest;
                Some(Ok(record))
            }
            Err(error) => {
                self.rest = &[];
                Some(Err(error))
            }
        }
    }
}

#[cfg(test)]
mod tests;
