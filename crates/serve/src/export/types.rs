//! The values that an export takes and returns: attributes, directory lines, requests for changes.
//!
//! They are plain data: numbers and bytes. An adapter of a protocol decodes its messages into them and
//! encodes them again; they hold nothing of a protocol or of a client's cache.

pub use cenote::copy::{Kind, Stamp as Time};

/// Node number of the root directory of every export. No file has this object number.
pub(crate) const ROOT: u64 = 1;

/// Attributes of a file, as `stat` shows them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attr {
    /// Inode number to show. For a root directory it differs from the node number.
    pub ino: u64,
    /// Distinguishes files that had the same object number at different times.
    pub generation: u64,
    /// Kind: regular file, directory, link, device, …
    pub kind: Kind,
    /// Permission bits, with set-id and sticky bits.
    pub perm: u16,
    /// Number of hard links.
    pub nlink: u32,
    /// User id of the owner.
    pub uid: u32,
    /// Id of the owning group.
    pub gid: u32,
    /// Length of the contents in bytes.
    pub size: u64,
    /// Space taken, in units of 512 bytes.
    pub blocks: u64,
    /// Preferred size of a read, in bytes.
    pub block_size: u32,
    /// Major and minor number of a device file.
    pub rdev: (u32, u32),
    /// Time of the last access.
    pub atime: Time,
    /// Time of the last change of the contents.
    pub mtime: Time,
    /// Time of the last change of the attributes.
    pub ctime: Time,
    /// Time of creation.
    pub crtime: Time,
}

/// A file that was looked up: its node and attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Node number: identifies the file in later calls.
    pub node: u64,
    /// Attributes at the time of the answer.
    pub attr: Attr,
}

/// How an answer may become wrong while a client remembers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Stability {
    /// May change at any time without a call of this client.
    #[default]
    Volatile,
    /// Changes by itself within moments: the file waits to be written, and its space is not known yet.
    Settling,
    /// Changes only by calls of this client; otherwise the client is notified.
    Stable,
}

/// A file that was looked up or made, and what a client may remember of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Known {
    /// Node and attributes of the file.
    pub entry: Entry,
    /// Stability of the name: whether it continues to stand for the file.
    pub name: Stability,
    /// Stability of the attributes.
    pub attr: Stability,
}

/// One line of a directory of a read-only view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirItem {
    /// Node number of the file.
    pub node: u64,
    /// Kind of the file; `None` if the directory does not record it.
    pub kind: Option<Kind>,
    /// Name of the entry.
    pub name: Vec<u8>,
    /// Cookie of the position after this line, above 0 and below 2^63.
    pub next: u64,
}

/// One line of a directory, borrowed while it is listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DirLine<'a> {
    /// Node number of the file.
    pub node: u64,
    /// Kind of the file; `None` if the directory does not record it.
    pub kind: Option<Kind>,
    /// Name of the entry.
    pub name: &'a [u8],
    /// Cookie of the position after this line, above 0 and below 2^63.
    pub next: u64,
    /// The file with its attributes and their stability, if the listing wants them ([`DirSink::wants_attrs`])
    /// and they could be read.
    pub file: Option<(Entry, Stability)>,
}

impl<'a> DirLine<'a> {
    /// A line without attributes and without the kind of the file.
    pub(crate) fn dir(node: u64, name: &'a [u8], next: u64) -> DirLine<'a> {
        DirLine { node, kind: Some(Kind::Directory), name, next, file: None }
    }
}

/// Receives the lines of a directory listing.
pub trait DirSink {
    /// Takes one line. `false`: the line does not fit, and no other line does.
    fn line(&mut self, line: &DirLine<'_>) -> bool;

    /// Whether lines must carry the attributes of their files.
    fn wants_attrs(&self) -> bool;

    /// Bytes that a line with a name of `name` bytes takes.
    fn len_of(&self, name: usize) -> usize;

    /// Bytes that are left for further lines.
    fn room(&self) -> usize;
}

/// Target of a search in the contents of a file (`SEEK_DATA`, `SEEK_HOLE`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seek {
    /// The next byte of data.
    Data,
    /// The next byte of a hole. The end of the file counts as one.
    Hole,
}

/// Space of a file system, as `df` shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SpaceInfo {
    /// Bytes of a block, the unit of `blocks` and `free`.
    pub block_size: u32,
    /// Size of the file system in blocks.
    pub blocks: u64,
    /// Free space in blocks.
    pub free: u64,
    /// Greatest number of files, existing ones included.
    pub files: u64,
    /// Files that can still be made.
    pub files_free: u64,
    /// Longest name of a file, in bytes.
    pub name_max: u32,
}

/// A timestamp to set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NewTime {
    /// The time of the call.
    Now,
    /// The given time, with nanoseconds.
    At(Time),
}

/// Attributes to change; `None` leaves an attribute unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SetAttr {
    /// Permission bits, with set-id and sticky bits.
    pub mode: Option<u32>,
    /// User id of the owner.
    pub uid: Option<u32>,
    /// Id of the owning group.
    pub gid: Option<u32>,
    /// New length in bytes.
    pub size: Option<u64>,
    /// Time of the last access.
    pub atime: Option<NewTime>,
    /// Time of the last change of the contents.
    pub mtime: Option<NewTime>,
    /// Time of the last change of the attributes.
    pub ctime: Option<Time>,
    /// Whether set-id bits are cleared.
    pub kill_set_ids: bool,
}

impl SetAttr {
    /// Whether nothing is to be changed: `chown` was called without a user and without a group.
    pub(crate) fn is_bare(&self) -> bool {
        let SetAttr { mode, uid, gid, size, atime, mtime, ctime: _, kill_set_ids } = *self;
        (mode, uid, gid, size) == (None, None, None, None) && (atime, mtime) == (None, None) && !kill_set_ids
    }
}

/// A file to make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewNode<'a> {
    /// Kind: regular file, directory, link, device, …
    pub kind: Kind,
    /// Permission bits, before the umask.
    pub mode: u32,
    /// Major and minor number of a device file.
    pub rdev: (u32, u32),
    /// Target of a symbolic link; empty for other files.
    pub target: &'a [u8],
}

/// The way on which a write reached the server: decides whether set-id bits were cleared and which side sets
/// the times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WriteSource {
    /// Directly from the program that wrote it.
    Program,
    /// From the program, past the client's cache: the client has not cleared set-id bits.
    Uncached,
    /// From the client's cache, after the program's call has returned. The caller is not the program that
    /// wrote it.
    ClientCache {
        /// Whether the client sends the times of the file itself.
        keeps_times: bool,
    },
}

/// A write to a file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Write<'a> {
    /// Position of the first byte in the file.
    pub(crate) offset: u64,
    /// Bytes to write.
    pub(crate) data: &'a [u8],
    /// Way on which the write reached the server.
    pub(crate) source: WriteSource,
    /// Whether set-id bits are cleared.
    pub(crate) clear_set_ids: bool,
    /// Whether the bytes must be durable before the call returns.
    pub(crate) is_durable: bool,
}

/// A range of one file to be copied into another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyRange {
    /// Node number of the source.
    pub from: u64,
    /// Position of the first byte in the source.
    pub from_offset: u64,
    /// Node number of the target.
    pub to: u64,
    /// Position of the first byte in the target.
    pub to_offset: u64,
    /// Length of the range in bytes.
    pub len: u64,
}

/// What a rename does with the two names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rename {
    /// A file with the new name loses that name.
    Replace,
    /// The new name must not exist.
    NoReplace,
    /// The two files exchange their names.
    Exchange,
    /// The old name becomes a whiteout that belongs to the caller.
    Whiteout {
        /// Whether the new name must not exist.
        no_replace: bool,
    },
}
