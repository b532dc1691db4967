//! What both services of file systems show alike: attributes, and positions in a directory.
//!
//! Positions: 0 is the start, 1 to [`ENTRIES`] follow what is listed before the entries (`.`, `..`, `.zfs`), then comes
//! the cursor after each entry, which is stateless.

use crate::view::{Attr, Kind};
use cenote::Node;
use cenote::files::{Attrs, FileKind};

/// The position at which the entries begin.
pub(crate) const ENTRIES: u64 = 3;
/// Entry cursors that would be taken for one of the first positions are told from them by this.
pub(crate) const SMALL_CURSOR: u64 = 1 << 61;
/// Beyond all positions.
pub(crate) const END: u64 = (1 << 63) - 1;

/// Attributes of a file under the number `shown`.
pub(crate) fn attr_of(node: &Node, shown: u64) -> Attr {
    let block_size = u32::try_from(node.block_size()).unwrap_or(1 << 24);
    attr(shown, node.attrs(), node.blocks_512(), block_size)
}

/// The same of a file whose blocks are known.
pub(crate) fn attr(shown: u64, attrs: &Attrs, blocks: u64, block_size: u32) -> Attr {
    Attr {
        ino: shown,
        generation: attrs.generation,
        kind: FileKind::from_mode(attrs.mode).unwrap_or(Kind::Regular),
        perm: (attrs.mode & 0o7777) as u16,
        nlink: u32::try_from(attrs.links).unwrap_or(u32::MAX),
        uid: attrs.posix_uid(),
        gid: attrs.posix_gid(),
        size: attrs.size,
        blocks,
        block_size,
        rdev: attrs.rdev,
        atime: attrs.atime,
        mtime: attrs.mtime,
        ctime: attrs.ctime,
        crtime: attrs.crtime,
    }
}

/// The position after an entry with this cursor.
pub(crate) fn position(cursor: u64) -> u64 {
    match cursor {
        0..=ENTRIES => SMALL_CURSOR | cursor,
        SMALL_CURSOR.. => END,
        cursor => cursor,
    }
}

/// The cursor to go on from at a position among the entries.
pub(crate) fn cursor(position: u64) -> u64 {
    match position {
        ..=ENTRIES => 0,
        position if position & SMALL_CURSOR != 0 => position & !SMALL_CURSOR,
        position => position,
    }
}
