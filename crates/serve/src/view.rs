//! A file system as a mount shows it: what [`crate::fuse`] asks for, in numbers and bytes.
//!
//! # What always holds
//! - Node 1 is the root of the mount. A node means the same file for the life of the mount: views
//!   are of read-only pools, so the kernel may cache all answers without end.
//! - A view keeps no state per open file or directory: a position in a directory is a number
//!   that stays good.

use std::error::Error;

pub use cenote::copy::{Kind, Stamp as Time};

/// What `stat` tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attr {
    /// Inode number to show; not always the node that names the file here.
    pub ino: u64,
    /// Tells files apart that had the same number one after the other.
    pub generation: u64,
    /// Kind.
    pub kind: Kind,
    /// Permission bits with set-id and sticky.
    pub perm: u16,
    /// Names.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Bytes.
    pub size: u64,
    /// Space taken, in units of 512 bytes.
    pub blocks: u64,
    /// Best size of a read.
    pub block_size: u32,
    /// Major and minor number of a device.
    pub rdev: (u32, u32),
    /// Last access.
    pub atime: Time,
    /// Last change of the data.
    pub mtime: Time,
    /// Last change of the attributes.
    pub ctime: Time,
    /// Creation.
    pub crtime: Time,
}

/// A file that was looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Names the file in later calls.
    pub node: u64,
    /// Its attributes.
    pub attr: Attr,
}

/// One line of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirItem {
    /// The file.
    pub node: u64,
    /// Its kind; `None`: the directory does not say.
    pub kind: Option<Kind>,
    /// Name.
    pub name: Vec<u8>,
    /// Position after this line, above 0 and below 2^63.
    pub next: u64,
}

/// What to look for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seek {
    /// A byte of data.
    Data,
    /// A byte of a hole; the end of the file counts.
    Hole,
}

/// What `df` tells, in units of `block_size`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SpaceInfo {
    /// Bytes of a unit.
    pub block_size: u32,
    /// Units in all.
    pub blocks: u64,
    /// Units free.
    pub free: u64,
    /// Files there can be.
    pub files: u64,
    /// Of those, not there yet.
    pub files_free: u64,
    /// Longest name in bytes.
    pub name_max: u32,
}

/// Why a view cannot answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ViewError {
    /// No such node, or no longer.
    #[error("no such file")]
    Stale,
    /// Only directories have entries.
    #[error("not a directory")]
    NotDir,
    /// Directories have no bytes.
    #[error("is a directory")]
    IsDir,
    /// Not of the kind that the call is for.
    #[error("wrong kind of file")]
    WrongKind,
    /// No data behind that position.
    #[error("no data from there on")]
    BeyondEnd,
    /// The dataset is encrypted and its key is not loaded.
    #[error("{dataset} is encrypted and its key is not loaded")]
    NoKey {
        /// Name of the dataset.
        dataset: String,
    },
    /// More snapshots and datasets were visited than there are numbers for them.
    #[error("too many snapshots in use")]
    TooMany,
    /// The pool is damaged there.
    #[error("{0}")]
    Damaged(#[source] Box<dyn Error + Send + Sync>),
}

/// A read-only file system that can be mounted.
pub trait FsView: Send + Sync + 'static {
    /// Attributes of a node.
    ///
    /// # Errors
    /// See [`ViewError`]; so for all calls.
    fn attr(&self, node: u64) -> Result<Attr, ViewError>;

    /// The file called `name` in a directory; `None`: there is none.
    fn lookup(&self, dir: u64, name: &[u8]) -> Result<Option<Entry>, ViewError>;

    /// Lines of a directory from a position (0: the start, with `.` and `..`) on, until `sink`
    /// returns `false`.
    fn read_dir(&self, dir: u64, from: u64, sink: &mut dyn FnMut(DirItem) -> bool) -> Result<(), ViewError>;

    /// Target of a symbolic link.
    fn read_link(&self, node: u64) -> Result<Vec<u8>, ViewError>;

    /// Reads from a file; fewer bytes than `buf` only at its end.
    fn read(&self, node: u64, offset: u64, buf: &mut [u8]) -> Result<usize, ViewError>;

    /// Next data or hole at or after a position.
    fn seek(&self, node: u64, offset: u64, what: Seek) -> Result<u64, ViewError>;

    /// Names of the extended attributes.
    fn xattr_names(&self, node: u64) -> Result<Vec<Vec<u8>>, ViewError>;

    /// An extended attribute; `None`: there is none of that name.
    fn xattr(&self, node: u64, name: &[u8]) -> Result<Option<Vec<u8>>, ViewError>;

    /// Space.
    fn space(&self, node: u64) -> Result<SpaceInfo, ViewError>;
}
