//! How a block is to be read, and what is to be written, and how it is to be stored.

use crate::AllocClass;
use codec::crypt::DataKey;
use format::{BlockPtr, ChecksumId, CompressionId, Level, ObjType};
use std::sync::Arc;

/// How a block is to be read.
#[derive(Clone, Copy, Default)]
pub struct ReadPolicy<'a> {
    /// The key of an encrypted dataset. Without it, encrypted blocks are [`ZioError::Locked`](crate::ZioError::Locked), except
    /// that dnode blocks come with their bonus areas still encrypted, and MACs are not checked.
    pub key: Option<&'a DataKey>,
    /// Read and check every copy, parity included, as a scrub does.
    pub every_copy: bool,
}

/// How a block is to be stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WritePolicy {
    /// One that may stand in a tree: not "on" or "inherit".
    pub checksum: ChecksumId,
    /// `Off`: none, and zeros are stored too. Not "on" or "inherit".
    pub compression: CompressionId,
    /// Level in the algorithm's own numbers; counts for zstd alone, 0 is its default.
    pub level: i32,
    /// Copies of the data, 1 to 3.
    pub copies: u8,
    /// Copies of a gang header, should there have to be one; not fewer than `copies` are made.
    pub gang_copies: u8,
    /// Type of the object that the block belongs to.
    pub obj_type: ObjType,
    /// Height in the block tree.
    pub tree_level: Level,
    /// The class of vdevs to allocate from.
    pub class: AllocClass,
    /// Blocks that take at most so many bytes on disk go to special vdevs instead; 0: none.
    pub small_blocks: u64,
    /// Small results may go into the pointer (feature `embedded_data`). Types and levels for which that
    /// is never done are known here.
    pub embed: bool,
    /// Holes tell when they were made (feature `hole_birth`).
    pub hole_birth: bool,
    /// Data equal to what stands there, by a checksum that is strong enough, is not written.
    pub nopwrite: bool,
}

impl WritePolicy {
    /// How many copies a header of a gang has.
    pub(crate) fn gang_header_copies(&self) -> u8 {
        self.gang_copies.clamp(self.copies, 3)
    }

    /// Where a block goes that takes so many bytes on disk.
    pub(crate) fn class_of(&self, psize: u64) -> AllocClass {
        if psize <= self.small_blocks { AllocClass::Special } else { self.class }
    }
}

/// A block to be written.
#[derive(Debug, Clone)]
pub struct NewBlock {
    /// The contents: a multiple of 512 bytes, at most 16 MiB, integers in the little order.
    pub data: Arc<Vec<u8>>,
    /// How it is to be stored.
    pub policy: WritePolicy,
    /// What stood here; [`BlockPtr::HOLE`] if nothing.
    pub old: BlockPtr,
    /// `old` was born in this txg, nothing else refers to it, and it may be overwritten if the size is
    /// the same. The result then has its addresses.
    pub in_place: bool,
    /// Fill count of the pointer (docs/on-disk/12-block-pointers.md, section 10).
    pub fill: u64,
}
