//! What the kernel may ask of a file system: one function a kind of request. Whoever serves something implements
//! what it can do; the rest answers "not there", as the protocol has it.
//!
//! # What always holds
//! - A node is a number that the service gave out; 1 is the root.
//! - Functions are called from many threads at once, and may block.

use super::{FileCounters, Notifier};
use crate::view::{Attr, Entry, Kind, Seek, SpaceInfo, Time};
use rustix::io::Errno;
use std::sync::Arc;

/// How long the kernel may keep an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Life {
    /// It asks again each time.
    #[default]
    None,
    /// For a moment: so often that nobody notices, and so seldom that it costs nothing.
    Moment,
    /// Until it is told otherwise.
    Ever,
}

/// [`Life::Moment`].
const MOMENT_NANOS: u32 = 20_000_000;

impl Life {
    /// In seconds; "for ever" is what a signed counter of jiffies bears.
    pub(super) fn seconds(self) -> u64 {
        match self {
            Life::None | Life::Moment => 0,
            Life::Ever => 1 << 30,
        }
    }

    /// The rest, in nanoseconds.
    pub(super) fn nanos(self) -> u32 {
        if self == Life::Moment { MOMENT_NANOS } else { 0 }
    }
}

/// Who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Caller {
    /// User.
    pub uid: u32,
    /// First group.
    pub gid: u32,
    /// Process; 0: the kernel itself.
    pub pid: u32,
    /// Bits that its files do not get.
    pub umask: u32,
}

/// A file that was looked up or made, and what the kernel may keep of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Known {
    /// The file.
    pub entry: Entry,
    /// How long the name stands for it.
    pub name: Life,
    /// How long its attributes are right.
    pub attr: Life,
}

/// An open file or directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Opened {
    /// Comes back with requests for it.
    pub handle: u64,
    /// Bits of [`open_flag`].
    pub flags: u32,
}

/// How the kernel is to treat an open file.
pub mod open_flag {
    /// Around the page cache.
    pub const DIRECT_IO: u32 = 1 << 0;
    /// What is in the page cache stays.
    pub const KEEP_CACHE: u32 = 1 << 1;
    /// A directory's listing may be cached.
    pub const CACHE_DIR: u32 = 1 << 3;
    /// Closing sends no `flush`.
    pub const NOFLUSH: u32 = 1 << 5;
    /// Writes around the cache may go in parallel.
    pub const PARALLEL_DIRECT_WRITES: u32 = 1 << 6;
}

/// A time to set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NewTime {
    /// That of the call.
    Now,
    /// This one.
    At(Time),
}

/// Attributes to change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SetAttr {
    /// Permission bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Bytes.
    pub size: Option<u64>,
    /// Last access.
    pub atime: Option<NewTime>,
    /// Last change of the data.
    pub mtime: Option<NewTime>,
    /// Last change of the attributes.
    pub ctime: Option<Time>,
    /// Set-id bits go.
    pub kill_set_ids: bool,
    /// The handle, when it comes from an open file.
    pub handle: Option<u64>,
}

/// A file to make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewNode<'a> {
    /// Kind.
    pub kind: Kind,
    /// Permission bits, before the umask.
    pub mode: u32,
    /// Major and minor number of a device.
    pub rdev: (u32, u32),
    /// Target of a symbolic link.
    pub target: &'a [u8],
}

/// A write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteAt<'a> {
    /// Handle.
    pub handle: u64,
    /// Position.
    pub offset: u64,
    /// Bytes.
    pub data: &'a [u8],
    /// From the page cache: the caller is not who wrote.
    pub from_cache: bool,
    /// Set-id bits go.
    pub kill_set_ids: bool,
    /// `open` flags of the file.
    pub flags: u32,
}

/// Part of one file to become part of another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyRange {
    /// From this file.
    pub from: u64,
    /// From this place on.
    pub from_offset: u64,
    /// To this file.
    pub to: u64,
    /// To this place.
    pub to_offset: u64,
    /// Bytes.
    pub len: u64,
}

/// Receives lines of a directory; `false`: no more fit.
pub trait Lines {
    /// One line. With attributes where the listing wants them, see [`Lines::wants_files`].
    fn line(
        &mut self,
        node: u64,
        kind: Option<Kind>,
        name: &[u8],
        next: u64,
        file: Option<(Entry, Life)>,
    ) -> bool;

    /// The kernel would have the files looked up at once.
    fn wants_files(&self) -> bool;

    /// Bytes that a line with a name of so many bytes takes.
    fn len_of(&self, name: usize) -> usize;

    /// Bytes that are left for lines.
    fn room(&self) -> usize;
}

/// The answer to one request.
pub type Answer<T> = Result<T, Errno>;

/// A file system that the kernel can ask.
pub trait Service: Send + Sync + 'static {
    /// Abilities to take of those that are `offered`, see [`super::flag`].
    fn abilities(&self, offered: u64) -> u64;

    /// How the kernel is told things from now on, once it is mounted.
    fn set_notifier(&self, _notifier: &Arc<Notifier>) {}

    /// Where requests are counted, if they are.
    fn counters(&self) -> Option<&FileCounters> {
        None
    }

    /// The file called `name`; `Ok(None)`: there is none, and the kernel may remember that.
    fn lookup(&self, caller: &Caller, dir: u64, name: &[u8]) -> Answer<Option<Known>>;

    /// How long the kernel may remember that there is no file of a name.
    fn absent_life(&self) -> Life {
        Life::Ever
    }

    /// The kernel no longer knows of so many answers that named the node: those to looking up, making and linking, and
    /// lines of directories with attributes.
    fn forget(&self, _node: u64, _count: u64) {}

    /// Attributes.
    fn attr(&self, node: u64, handle: Option<u64>) -> Answer<(Attr, Life)>;

    /// Changes attributes.
    fn set_attr(&self, _caller: &Caller, _node: u64, _new: &SetAttr) -> Answer<(Attr, Life)> {
        Err(Errno::ROFS)
    }

    /// Target of a symbolic link.
    fn read_link(&self, node: u64) -> Answer<Vec<u8>>;

    /// Makes a file, directory, link or device that is not opened.
    fn make(&self, _caller: &Caller, _dir: u64, _name: &[u8], _new: &NewNode<'_>) -> Answer<Known> {
        Err(Errno::ROFS)
    }

    /// Removes a name that is no directory's.
    fn unlink(&self, _caller: &Caller, _dir: u64, _name: &[u8]) -> Answer<()> {
        Err(Errno::ROFS)
    }

    /// Removes an empty directory.
    fn rmdir(&self, _caller: &Caller, _dir: u64, _name: &[u8]) -> Answer<()> {
        Err(Errno::ROFS)
    }

    /// Renames; `flags` as of `renameat2`.
    fn rename(&self, _caller: &Caller, _from: (u64, &[u8]), _to: (u64, &[u8]), _flags: u32) -> Answer<()> {
        Err(Errno::ROFS)
    }

    /// Another name for a file.
    fn link(&self, _caller: &Caller, _node: u64, _dir: u64, _name: &[u8]) -> Answer<Known> {
        Err(Errno::ROFS)
    }

    /// Opens a file. `NOSYS`: not needed, neither now nor ever.
    fn open(&self, _caller: &Caller, _node: u64, _flags: u32) -> Answer<Opened> {
        Err(Errno::NOSYS)
    }

    /// Makes a file, unless it is there, and opens it.
    fn create(
        &self,
        _caller: &Caller,
        _dir: u64,
        _name: &[u8],
        _mode: u32,
        _flags: u32,
    ) -> Answer<(Known, Opened)> {
        Err(Errno::ROFS)
    }

    /// Makes a file without a name and opens it.
    fn tmpfile(&self, _caller: &Caller, _dir: u64, _mode: u32, _flags: u32) -> Answer<(Known, Opened)> {
        Err(Errno::OPNOTSUPP)
    }

    /// Reads; fewer bytes than `buf` only at the end.
    fn read(&self, node: u64, handle: u64, offset: u64, buf: &mut [u8]) -> Answer<usize>;

    /// Writes all of it.
    fn write(&self, _caller: &Caller, _node: u64, _write: &WriteAt<'_>) -> Answer<()> {
        Err(Errno::ROFS)
    }

    /// A descriptor was closed. `NOSYS`: need not be told.
    fn flush(&self, _node: u64, _handle: u64) -> Answer<()> {
        Err(Errno::NOSYS)
    }

    /// The last descriptor of an open file was closed.
    fn release(&self, _node: u64, _handle: u64) {}

    /// Makes a file durable.
    fn fsync(&self, _node: u64, _handle: u64, _data_only: bool) -> Answer<()> {
        Ok(())
    }

    /// Opens a directory, as [`Service::open`].
    fn open_dir(&self, _caller: &Caller, _node: u64) -> Answer<Opened> {
        Err(Errno::NOSYS)
    }

    /// A directory was closed.
    fn release_dir(&self, _node: u64, _handle: u64) {}

    /// Lines of a directory from a position (0: the start) on.
    fn read_dir(&self, node: u64, from: u64, lines: &mut dyn Lines) -> Answer<()>;

    /// Space.
    fn space(&self, node: u64) -> Answer<SpaceInfo>;

    /// Names of the extended attributes.
    fn xattr_names(&self, node: u64) -> Answer<Vec<Vec<u8>>>;

    /// An extended attribute.
    fn xattr(&self, node: u64, name: &[u8]) -> Answer<Option<Vec<u8>>>;

    /// Sets an extended attribute; `flags` as of `setxattr`.
    fn set_xattr(
        &self,
        _caller: &Caller,
        _node: u64,
        _name: &[u8],
        _value: &[u8],
        _flags: u32,
        _kill_set_gid: bool,
    ) -> Answer<()> {
        Err(Errno::ROFS)
    }

    /// Removes an extended attribute.
    fn remove_xattr(&self, _caller: &Caller, _node: u64, _name: &[u8]) -> Answer<()> {
        Err(Errno::ROFS)
    }

    /// Next data or hole at or after a position.
    fn seek(&self, node: u64, offset: u64, what: Seek) -> Answer<u64>;

    /// `fallocate` with its mode.
    fn allocate(&self, _caller: &Caller, _node: u64, _offset: u64, _len: u64, _mode: u32) -> Answer<()> {
        Err(Errno::OPNOTSUPP)
    }

    /// Copies within the file system; how many bytes.
    fn copy_range(&self, _caller: &Caller, _range: &CopyRange) -> Answer<u64> {
        Err(Errno::OPNOTSUPP)
    }

    /// Makes everything durable.
    fn sync(&self) -> Answer<()> {
        Ok(())
    }

    /// A control call: its number, what it gives, and room for what it gets. How many bytes it got.
    fn ioctl(
        &self,
        _caller: &Caller,
        _node: u64,
        _number: u32,
        _given: &[u8],
        _got: &mut [u8],
    ) -> Answer<usize> {
        Err(Errno::NOTTY)
    }
}
