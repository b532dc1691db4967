//! The kernel's FUSE protocol: requests out of bytes ([`input`]), replies into bytes ([`output`]).
//!
//! # What always holds
//! - Bytes are read and written in the machine's order, field by field: no struct is laid over them.
//! - A request that is too short for its kind is `None`, which is answered with an error; nothing here panics
//!   on what the other side sends.
//!
//! Source: `linux/fuse.h` (the header that is the interface; 7.31 and later, up to 7.45), and what kernels
//! do.

pub(super) mod input;
pub(super) mod output;

/// Version that we speak. Newer kernels come down to it, older ones are spoken to in theirs.
pub(super) const MAJOR: u32 = 7;
pub(super) const MINOR: u32 = 42;
/// Oldest version that we serve: Linux 5.4.
pub(super) const MINOR_MIN: u32 = 31;

/// Bytes of the header of a request and of a reply.
pub(super) const IN_HEADER: usize = 40;
pub(super) const OUT_HEADER: usize = 16;

/// Most bytes of one write, and of one read.
pub(super) const MAX_WRITE: usize = 1 << 20;

/// Kinds of requests.
pub(super) mod op {
    pub(in crate::fuse) const LOOKUP: u32 = 1;
    pub(in crate::fuse) const FORGET: u32 = 2;
    pub(in crate::fuse) const GETATTR: u32 = 3;
    pub(in crate::fuse) const SETATTR: u32 = 4;
    pub(in crate::fuse) const READLINK: u32 = 5;
    pub(in crate::fuse) const SYMLINK: u32 = 6;
    pub(in crate::fuse) const MKNOD: u32 = 8;
    pub(in crate::fuse) const MKDIR: u32 = 9;
    pub(in crate::fuse) const UNLINK: u32 = 10;
    pub(in crate::fuse) const RMDIR: u32 = 11;
    pub(in crate::fuse) const RENAME: u32 = 12;
    pub(in crate::fuse) const LINK: u32 = 13;
    pub(in crate::fuse) const OPEN: u32 = 14;
    pub(in crate::fuse) const READ: u32 = 15;
    pub(in crate::fuse) const WRITE: u32 = 16;
    pub(in crate::fuse) const STATFS: u32 = 17;
    pub(in crate::fuse) const RELEASE: u32 = 18;
    pub(in crate::fuse) const FSYNC: u32 = 20;
    pub(in crate::fuse) const SETXATTR: u32 = 21;
    pub(in crate::fuse) const GETXATTR: u32 = 22;
    pub(in crate::fuse) const LISTXATTR: u32 = 23;
    pub(in crate::fuse) const REMOVEXATTR: u32 = 24;
    pub(in crate::fuse) const FLUSH: u32 = 25;
    pub(in crate::fuse) const INIT: u32 = 26;
    pub(in crate::fuse) const OPENDIR: u32 = 27;
    pub(in crate::fuse) const READDIR: u32 = 28;
    pub(in crate::fuse) const RELEASEDIR: u32 = 29;
    pub(in crate::fuse) const FSYNCDIR: u32 = 30;
    pub(in crate::fuse) const CREATE: u32 = 35;
    pub(in crate::fuse) const INTERRUPT: u32 = 36;
    pub(in crate::fuse) const DESTROY: u32 = 38;
    pub(in crate::fuse) const IOCTL: u32 = 39;
    pub(in crate::fuse) const BATCH_FORGET: u32 = 42;
    pub(in crate::fuse) const FALLOCATE: u32 = 43;
    pub(in crate::fuse) const READDIRPLUS: u32 = 44;
    pub(in crate::fuse) const RENAME2: u32 = 45;
    pub(in crate::fuse) const LSEEK: u32 = 46;
    pub(in crate::fuse) const COPY_FILE_RANGE: u32 = 47;
    pub(in crate::fuse) const SYNCFS: u32 = 50;
    pub(in crate::fuse) const TMPFILE: u32 = 51;
    pub(in crate::fuse) const STATX: u32 = 52;
}

/// Abilities that the kernel offers and we take, by bit.
pub mod flag {
    /// Several reads of one file at a time.
    pub(crate) const ASYNC_READ: u64 = 1 << 0;
    /// Files are found by their numbers alone.
    pub(crate) const EXPORT_SUPPORT: u64 = 1 << 4;
    /// Writes of more than a page.
    pub(crate) const BIG_WRITES: u64 = 1 << 5;
    /// The umask comes along and is not applied by the kernel.
    pub const DONT_MASK: u64 = 1 << 6;
    /// A directory is read with the attributes of its files.
    pub const DO_READDIRPLUS: u64 = 1 << 13;
    /// The kernel chooses when a directory is read with attributes.
    pub const READDIRPLUS_AUTO: u64 = 1 << 14;
    /// Direct I/O in parallel.
    pub(crate) const ASYNC_DIO: u64 = 1 << 15;
    /// The kernel keeps dirty pages.
    pub const WRITEBACK_CACHE: u64 = 1 << 16;
    /// `open` may be answered "not needed".
    pub const NO_OPEN_SUPPORT: u64 = 1 << 17;
    /// Look-ups of one directory in parallel.
    pub(crate) const PARALLEL_DIROPS: u64 = 1 << 18;
    /// The kernel evaluates POSIX ACLs.
    pub(crate) const POSIX_ACL: u64 = 1 << 20;
    /// An aborted connection is told from a vanished one.
    pub(crate) const ABORT_ERROR: u64 = 1 << 21;
    /// `max_pages` of the reply to `INIT` counts.
    pub(crate) const MAX_PAGES: u64 = 1 << 22;
    /// Targets of symbolic links are cached.
    pub const CACHE_SYMLINKS: u64 = 1 << 23;
    /// `opendir` may be answered "not needed".
    pub const NO_OPENDIR_SUPPORT: u64 = 1 << 24;
    /// Pages stay cached until told otherwise.
    pub const EXPLICIT_INVAL_DATA: u64 = 1 << 25;
    /// Writes, truncations and changes of owner drop the set-id bits here, when the request says so.
    pub const HANDLE_KILLPRIV_V2: u64 = 1 << 28;
    /// The long form of `setxattr`.
    pub(crate) const SETXATTR_EXT: u64 = 1 << 29;
    /// The second word of flags is used.
    pub(crate) const INIT_EXT: u64 = 1 << 30;
    /// Names can be forgotten without being dropped.
    pub(crate) const HAS_EXPIRE_ONLY: u64 = 1 << 35;
    /// Shared writable mappings of files open for direct I/O.
    pub(crate) const DIRECT_IO_ALLOW_MMAP: u64 = 1 << 36;
    /// Requests come through io_uring.
    pub(crate) const OVER_IO_URING: u64 = 1 << 41;
}
