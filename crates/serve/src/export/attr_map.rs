//! Attributes and directory cookies in the form in which every export shows them.
//!
//! Cookies: 0 is the start, 1 to [`ENTRIES`] stand for the lines before the entries (`.`, `..`, `.zfs`).
//! After them, the cookie of an entry is its cursor, which is stateless.

use super::types::{Attr, Kind};
use cenote::Node;
use cenote::files::{Attrs, FileKind};

/// Cookie at which the entries begin.
pub(crate) const ENTRIES: u64 = 3;
/// Set in the cookie of an entry whose cursor would otherwise equal one of the first cookies.
pub(crate) const SMALL_CURSOR: u64 = 1 << 61;
/// Cookie after all entries.
pub(crate) const END: u64 = (1 << 63) - 1;

/// Attributes of a file of a read-only file system, shown under inode number `ino`.
pub(crate) fn attr_of(node: &Node, ino: u64) -> Attr {
    let block_size = u32::try_from(node.block_size()).unwrap_or(1 << 24);
    attr(ino, node.attrs(), node.blocks_512(), block_size)
}

/// Attributes of a file that takes `blocks` units of 512 bytes, shown under inode number `ino`.
pub(crate) fn attr(ino: u64, attrs: &Attrs, blocks: u64, block_size: u32) -> Attr {
    Attr {
        ino,
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

/// Cookie of the position after an entry with this cursor.
pub(crate) fn cookie(cursor: u64) -> u64 {
    match cursor {
        0..=ENTRIES => SMALL_CURSOR | cursor,
        SMALL_CURSOR.. => END,
        cursor => cursor,
    }
}

/// Cursor at which a listing continues for a cookie.
pub(crate) fn cursor(cookie: u64) -> u64 {
    match cookie {
        ..=ENTRIES => 0,
        cookie if cookie & SMALL_CURSOR != 0 => cookie & !SMALL_CURSOR,
        cookie => cookie,
    }
}
