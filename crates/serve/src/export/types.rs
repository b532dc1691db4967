//! The values that an export takes and gives: attributes, directory lines, requests to change something.
//!
//! They are plain data in numbers and bytes. An adapter of a protocol decodes its messages into them and
//! encodes them again; nothing here knows a protocol or a client's cache.

pub use cenote::copy::{Kind, Stamp as Time};

/// Node number of the root directory of every export. No file has this object number.
pub(crate) const ROOT: u64 = 1;

/// Attributes of a file, as `stat` shows them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attr {
    /// Inode number to show. It differs from the node number for root directories.
    pub ino: u64,
    /// Distinguishes files that had the same object number one after the other.
    pub generation: u64,
    /// Kind of the file.
    pub kind: Kind,
    /// Permission bits, with set-id and sticky bits.
    pub perm: u16,
    /// Number of hard links.
    pub nlink: u32,
    /// User id of the owner.
    pub uid: u32,
    /// Group id of the owner.
    pub gid: u32,
    /// Length in bytes.
    pub size: u64,
    /// Space taken, in units of 512 bytes.
    pub blocks: u64,
    /// Preferred size of a read, in bytes.
    pub block_size: u32,
    /// Major and minor number, of a device file.
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

/// A file that was looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Node number: identifies the file in later calls.
    pub node: u64,
    /// Attributes of the file.
    pub attr: Attr,
}

/// How an answer may become wrong while a client remembers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Stability {
    /// It may change at any time without a call of this client.
    #[default]
    Volatile,
    /// It changes by itself within moments: the file waits to be written, and its space is not known yet.
    Settling,
    /// It changes only by calls of this client, or the client is told.
    Stable,
}

/// A file that was looked up or made, and what a client may remember of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Known {
    /// The file.
    pub entry: Entry,
    /// Whether the name goes on to stand for the file.
    pub name: Stability,
    /// Whether the attributes stay right.
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
    /// The file with its attributes, where the listing wants them ([`DirSink::wants_attrs`]) and they could
    /// be read.
    pub file: Option<(Entry, Stability)>,
}

impl<'a> DirLine<'a> {
    /// A line of a directory, without attributes.
    pub(crate) fn dir(node: u64, name: &'a [u8], next: u64) -> DirLine<'a> {
        DirLine { node, kind: Some(Kind::Directory), name, next, file: None }
    }
}

/// Receives the lines of a directory.
pub trait DirSink {
    /// Takes one line. `false`: the line does not fit, and no other line does.
    fn line(&mut self, line: &DirLine<'_>) -> bool;

    /// Whether lines are to carry the attributes of their files.
    fn wants_attrs(&self) -> bool;

    /// Bytes that a line takes whose name has `name` bytes.
    fn len_of(&self, name: usize) -> usize;

    /// Bytes that are left for lines.
    fn room(&self) -> usize;
}

/// Target of a search in the contents of a file.
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
    /// Bytes of a block, the unit of the next two fields.
    pub block_size: u32,
    /// Blocks in all.
    pub blocks: u64,
    /// Blocks that are free.
    pub free: u64,
    /// Most files that there can be.
    pub files: u64,
    /// Files that can still be made.
    pub files_free: u64,
    /// Longest name of a file, in bytes.
    pub name_max: u32,
}

/// A time to set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NewTime {
    /// The time of the call.
    Now,
    /// A given time.
    At(Time),
}

/// Attributes to change. Those that are `None` stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SetAttr {
    /// Permission bits, with set-id and sticky bits.
    pub mode: Option<u32>,
    /// User id of the owner.
    pub uid: Option<u32>,
    /// Group id of the owner.
    pub gid: Option<u32>,
    /// Length in bytes.
    pub size: Option<u64>,
    /// Time of the last access.
    pub atime: Option<NewTime>,
    /// Time of the last change of the contents.
    pub mtime: Option<NewTime>,
    /// Time of the last change of the attributes.
    pub ctime: Option<Time>,
    /// Set-id bits are cleared.
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
    /// Kind of the file.
    pub kind: Kind,
    /// Permission bits, before the umask.
    pub mode: u32,
    /// Major and minor number, of a device file.
    pub rdev: (u32, u32),
    /// Target, of a symbolic link.
    pub target: &'a [u8],
}

/// How a write reached the server, which decides whether set-id bits were cleared and whose times count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WriteSource {
    /// From the program that made it.
    Program,
    /// From the program, past the client's cache: the client has not cleared set-id bits before.
    Uncached,
    /// From the client's cache, after the program went on. The caller is not the writer.
    ClientCache {
        /// The client sends the times of the file by itself.
        keeps_times: bool,
    },
}

/// A write to a file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Write<'a> {
    /// Position of the first byte.
    pub(crate) offset: u64,
    /// Bytes to write.
    pub(crate) data: &'a [u8],
    /// Way on which it reached the server.
    pub(crate) source: WriteSource,
    /// Set-id bits are cleared.
    pub(crate) clear_set_ids: bool,
    /// The bytes are to be durable before the call returns.
    pub(crate) is_durable: bool,
}

/// A range of one file to be copied into another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyRange {
    /// Node number of the source.
    pub from: u64,
    /// Position in the source.
    pub from_offset: u64,
    /// Node number of the target.
    pub to: u64,
    /// Position in the target.
    pub to_offset: u64,
    /// Bytes to copy.
    pub len: u64,
}

/// Treatment of the two names by a rename.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rename {
    /// A file that has the new name loses it.
    Replace,
    /// The new name must be free.
    NoReplace,
    /// The two files exchange their names.
    Exchange,
    /// The old name becomes a whiteout of the caller's.
    Whiteout {
        /// The new name must be free.
        no_replace: bool,
    },
}
