//! How a block is to be read, and what is to be written, and how it is to be stored.

use crate::AllocClass;
use codec::crypt::DataKey;
use format::blkptr::CryptParams;
use format::{BlockPtr, ChecksumId, CompressionId, Level, ObjType};
use std::sync::Arc;

/// Options of reading a block.
#[derive(Clone, Copy, Default)]
pub struct ReadPolicy<'a> {
    /// The key of an encrypted dataset. Without it, encrypted blocks are
    /// [`ZioError::Locked`](crate::ZioError::Locked), except that dnode blocks come with their bonus areas still encrypted, and MACs are not checked.
    pub key: Option<&'a DataKey>,
    /// Read and check every copy, parity included, as a scrub does.
    pub every_copy: bool,
}

impl ReadPolicy<'_> {
    /// That of a scrub: every copy is checked as it is stored, which needs no key.
    pub const SCRUB: ReadPolicy<'static> = ReadPolicy { key: None, every_copy: true };
}

/// How a block is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WritePolicy {
    /// Checksum algorithm; not "on" or "inherit".
    pub checksum: ChecksumId,
    /// Compression algorithm; not "on" or "inherit". `Off`: none, and zeros are stored too.
    pub compression: CompressionId,
    /// Level in the algorithm's own numbers; used by zstd only, 0 is its default.
    pub level: i32,
    /// Copies of the data, 1 to 3.
    pub copies: u8,
    /// Number of copies of a gang header; at least `copies` are made.
    pub gang_copies: u8,
    /// Type of the object that the block belongs to.
    pub obj_type: ObjType,
    /// Level of the block in the block tree; 0 is data.
    pub tree_level: Level,
    /// The class of vdevs to allocate from.
    pub class: AllocClass,
    /// Blocks with at most this many bytes on disk go to special vdevs; 0: none.
    pub small_blocks: u64,
    /// Small results may be embedded in the pointer (feature `embedded_data`), except for types and levels
    /// that never are.
    pub embed: bool,
    /// Holes have births (feature `hole_birth`).
    pub hole_birth: bool,
    /// Data that equal the old block, by a strong checksum, are not written.
    pub nopwrite: bool,
}

impl WritePolicy {
    /// Number of copies of a gang header.
    pub(crate) fn gang_header_copies(&self) -> u8 {
        self.gang_copies.clamp(self.copies, 3)
    }

    /// The class for a block with this many bytes on disk.
    pub(crate) fn class_of(&self, psize: u64) -> AllocClass {
        if psize <= self.small_blocks { AllocClass::Special } else { self.class }
    }
}

/// The form in which a block is stored, where it is known already: a received block stays as its sender had it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredForm {
    /// Algorithm by which `bytes` are compressed.
    pub compression: CompressionId,
    /// The compressed block: a multiple of 512 bytes, fewer than the block has; or, in a pointer, at most 112.
    pub bytes: Vec<u8>,
    /// It is stored in the block's pointer.
    pub is_embedded: bool,
}

/// A block of level 0 that is stored as it is given, because it was compressed, and encrypted or authenticated,
/// elsewhere. Its integers are little-endian.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawForm {
    /// Bytes of the block before compression.
    pub lsize: u64,
    /// Algorithm by which it is compressed.
    pub compression: CompressionId,
    /// Salt, IV and MAC. A block of a type that is only authenticated has the MAC alone.
    pub params: CryptParams,
}

/// The protection of a block of an encrypted dataset that is written without the key
/// (docs/on-disk/31-encryption.md, section 4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seal {
    /// Level 0: [`NewBlock::data`] are the bytes to be stored. Dnodes without an object are a hole.
    Raw(RawForm),
    /// An indirect block: its MAC is made of those in it.
    Indirect,
    /// The root of an object set: its MACs are in it.
    Root,
}

/// A block to be written.
#[derive(Debug, Clone)]
pub struct NewBlock {
    /// The contents: a multiple of 512 bytes, at most 16 MiB, integers in little-endian order.
    pub data: Arc<Vec<u8>>,
    /// The compressed contents, if they are not to be compressed according to `policy`.
    pub stored: Option<Arc<StoredForm>>,
    /// How the block is protected; `None`: its dataset is not encrypted.
    pub seal: Option<Seal>,
    /// How the block is stored.
    pub policy: WritePolicy,
    /// The pointer that is replaced; [`BlockPtr::HOLE`] if there is none.
    pub old: BlockPtr,
    /// `old` was born in this txg and has no other reference, so it may be overwritten if the size is the
    /// same. The result then has its addresses.
    pub in_place: bool,
    /// Fill count of the pointer (docs/on-disk/12-block-pointers.md, section 10).
    pub fill: u64,
}

impl NewBlock {
    /// Bytes of the block before compression.
    pub fn lsize(&self) -> u64 {
        match &self.seal {
            Some(Seal::Raw(form)) => form.lsize,
            _ => self.data.len() as u64,
        }
    }

    /// The bytes that are stored, unless the block is compressed according to its policy.
    pub(crate) fn stored_bytes(&self) -> &[u8] {
        self.stored.as_ref().map_or(&self.data, |stored| &stored.bytes)
    }
}
