//! The kernel's FUSE protocol: decodes requests from bytes ([`input`]), encodes replies to bytes
//! ([`output`]).
//!
//! # What always holds
//! - Bytes are read and written in the machine's order, field by field: no struct is laid over them.
//! - A request that is too short for its kind decodes to `None`, and gets an error as its reply. No input of
//!   the kernel causes a panic here.
//!
//! Source: `linux/fuse.h` (the header that is the interface; 7.31 and later, up to 7.45), and observed
//! behaviour of kernels.

pub(super) mod input;
pub(super) mod output;

/// Version of the protocol that is spoken with newer kernels; with older ones, theirs.
pub(super) const MAJOR: u32 = 7;
pub(super) const MINOR: u32 = 42;
/// Oldest version of the protocol that is supported: that of Linux 5.4.
pub(super) const MINOR_MIN: u32 = 31;

/// Lengths of the header of a request and of a reply, in bytes.
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

/// Capabilities that the kernel offers in `INIT` and the server uses, by bit.
pub mod flag {
    /// Several reads of one file at a time.
    pub(crate) const ASYNC_READ: u64 = 1 << 0;
    /// Files can be looked up by their node numbers alone (for NFS and file handles).
    pub(crate) const EXPORT_SUPPORT: u64 = 1 << 4;
    /// Writes of more than a page.
    pub(crate) const BIG_WRITES: u64 = 1 << 5;
    /// Requests carry the umask, and the kernel does not apply it.
    pub const DONT_MASK: u64 = 1 << 6;
    /// The kernel can read a directory with the attributes of its files.
    pub const DO_READDIRPLUS: u64 = 1 << 13;
    /// The kernel decides for each directory whether to read it with attributes.
    pub const READDIRPLUS_AUTO: u64 = 1 << 14;
    /// Several direct reads and writes of one file at a time.
    pub(crate) const ASYNC_DIO: u64 = 1 << 15;
    /// The kernel caches writes and writes dirty pages back later.
    pub const WRITEBACK_CACHE: u64 = 1 << 16;
    /// `OPEN` may return `ENOSYS`, after which the kernel sends no more of them.
    pub const NO_OPEN_SUPPORT: u64 = 1 << 17;
    /// Several look-ups in one directory at a time.
    pub(crate) const PARALLEL_DIROPS: u64 = 1 << 18;
    /// The kernel evaluates POSIX ACLs.
    pub(crate) const POSIX_ACL: u64 = 1 << 20;
    /// Reading from an aborted connection returns an error of its own.
    pub(crate) const ABORT_ERROR: u64 = 1 << 21;
    /// The field `max_pages` of the reply to `INIT` is used.
    pub(crate) const MAX_PAGES: u64 = 1 << 22;
    /// The kernel caches targets of symbolic links.
    pub const CACHE_SYMLINKS: u64 = 1 << 23;
    /// `OPENDIR` may return `ENOSYS`, after which the kernel sends no more of them.
    pub const NO_OPENDIR_SUPPORT: u64 = 1 << 24;
    /// The kernel drops cached pages only on a notification.
    pub const EXPLICIT_INVAL_DATA: u64 = 1 << 25;
    /// The server clears set-id bits on writes, truncations and changes of owner, if the request says so.
    pub const HANDLE_KILLPRIV_V2: u64 = 1 << 28;
    /// The kernel sends the long form of `SETXATTR`.
    pub(crate) const SETXATTR_EXT: u64 = 1 << 29;
    /// The second word of capabilities in `INIT` is used.
    pub(crate) const INIT_EXT: u64 = 1 << 30;
    /// A notification can make the kernel look a name up again without dropping it.
    pub(crate) const HAS_EXPIRE_ONLY: u64 = 1 << 35;
    /// Files that are open for direct I/O can have shared writable mappings.
    pub(crate) const DIRECT_IO_ALLOW_MMAP: u64 = 1 << 36;
    /// Requests come over io_uring.
    pub(crate) const OVER_IO_URING: u64 = 1 << 41;
}
