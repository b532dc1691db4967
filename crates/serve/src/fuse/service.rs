//! The requests of the kernel to a file system: one function for each kind. A service implements the kinds
//! that it supports; the others return the error that the protocol has for that.
//!
//! # What always holds
//! - A node is a number that the service returned; 1 is the root.
//! - Functions are called from many threads at once, and may block.

use super::{FileCounters, Notifier};
use crate::export::{Attr, Caller, CopyRange, DirSink, Known, NewNode, Seek, SetAttr, SpaceInfo, Stability};
use rustix::io::Errno;
use std::sync::Arc;

/// The reply to opening a file or directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Opened {
    /// Handle that requests for the open file carry.
    pub handle: u64,
    /// Flags of [`open_flag`].
    pub flags: u32,
}

/// How the kernel is to treat an open file.
pub mod open_flag {
    /// Reads and writes bypass the page cache.
    pub const DIRECT_IO: u32 = 1 << 0;
    /// Pages that are in the page cache stay there.
    pub(crate) const KEEP_CACHE: u32 = 1 << 1;
    /// Closing a descriptor sends no `FLUSH`.
    pub(crate) const NOFLUSH: u32 = 1 << 5;
    /// Writes that bypass the cache may go in parallel.
    pub(crate) const PARALLEL_DIRECT_WRITES: u32 = 1 << 6;
}

/// A `WRITE` request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteAt<'a> {
    /// Handle of the open file, as in [`Opened`].
    pub handle: u64,
    /// Position of the first byte in the file.
    pub offset: u64,
    /// Bytes to write.
    pub data: &'a [u8],
    /// Whether the data come from the page cache; the caller is then not the program that wrote them.
    pub from_cache: bool,
    /// Whether set-id bits are cleared.
    pub kill_set_ids: bool,
    /// Flags with which the file was opened.
    pub flags: u32,
}

/// Result of a request: its answer, or the error number for the program.
pub type Answer<T> = Result<T, Errno>;

/// A file system that answers requests of the kernel.
///
/// # Errors
/// Every function returns the error number for the calling program.
pub trait Service: Send + Sync + 'static {
    /// The capabilities to use, out of those that are `offered`; see [`super::flag`].
    fn abilities(&self, offered: u64) -> u64;

    /// Gives the service the notifier of its mount, once it is mounted.
    fn set_notifier(&self, _notifier: &Arc<Notifier>) {}

    /// Counters of requests; `None`: requests are not counted.
    fn counters(&self) -> Option<&FileCounters> {
        None
    }

    /// The file called `name`; `Ok(None)`: there is none, and the kernel may remember that.
    fn lookup(&self, caller: &Caller, dir: u64, name: &[u8]) -> Answer<Option<Known>>;

    /// How long the kernel may remember that a name does not exist.
    fn absence_stability(&self) -> Stability {
        Stability::Stable
    }

    /// The kernel has forgotten `_count` answers that named the node: replies to look-ups, to making and
    /// linking files, and directory lines with attributes.
    fn forget(&self, _node: u64, _count: u64) {}

    /// Attributes of a file.
    fn attr(&self, node: u64, handle: Option<u64>) -> Answer<(Attr, Stability)>;

    /// Changes attributes of a file, and returns the new ones.
    fn set_attr(&self, _caller: &Caller, _node: u64, _new: &SetAttr) -> Answer<(Attr, Stability)> {
        Err(Errno::ROFS)
    }

    /// Target of a symbolic link.
    fn read_link(&self, node: u64) -> Answer<Vec<u8>>;

    /// Makes a file, directory, link or device, and does not open it.
    fn make(&self, _caller: &Caller, _dir: u64, _name: &[u8], _new: &NewNode<'_>) -> Answer<Known> {
        Err(Errno::ROFS)
    }

    /// Removes a name of a file that is no directory.
    fn unlink(&self, _caller: &Caller, _dir: u64, _name: &[u8]) -> Answer<()> {
        Err(Errno::ROFS)
    }

    /// Removes an empty directory.
    fn rmdir(&self, _caller: &Caller, _dir: u64, _name: &[u8]) -> Answer<()> {
        Err(Errno::ROFS)
    }

    /// Renames a file; each name is given with its directory, `_flags` are those of `renameat2`.
    fn rename(&self, _caller: &Caller, _from: (u64, &[u8]), _to: (u64, &[u8]), _flags: u32) -> Answer<()> {
        Err(Errno::ROFS)
    }

    /// Gives a file another name.
    fn link(&self, _caller: &Caller, _node: u64, _dir: u64, _name: &[u8]) -> Answer<Known> {
        Err(Errno::ROFS)
    }

    /// Opens a file. `NOSYS`: files need not be opened, and the kernel does not ask again.
    fn open(&self, _caller: &Caller, _node: u64, _flags: u32) -> Answer<Opened> {
        Err(Errno::NOSYS)
    }

    /// Makes a file unless the name exists, and opens it.
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

    /// Reads into `buf`; returns the number of bytes, which is less than the length of `buf` only at the end
    /// of the file.
    fn read(&self, node: u64, handle: u64, offset: u64, buf: &mut [u8]) -> Answer<usize>;

    /// Writes all bytes of the data.
    fn write(&self, _caller: &Caller, _node: u64, _write: &WriteAt<'_>) -> Answer<()> {
        Err(Errno::ROFS)
    }

    /// A descriptor was closed. `NOSYS`: the kernel need not send this.
    fn flush(&self, _node: u64, _handle: u64) -> Answer<()> {
        Err(Errno::NOSYS)
    }

    /// The last descriptor of an open file was closed.
    fn release(&self, _node: u64, _handle: u64) {}

    /// Makes the contents and attributes of a file durable.
    fn fsync(&self, _node: u64, _handle: u64, _data_only: bool) -> Answer<()> {
        Ok(())
    }

    /// Opens a directory, like [`Service::open`].
    fn open_dir(&self, _caller: &Caller, _node: u64) -> Answer<Opened> {
        Err(Errno::NOSYS)
    }

    /// The last descriptor of an open directory was closed.
    fn release_dir(&self, _node: u64, _handle: u64) {}

    /// Passes the lines of a directory after a cookie (0: all) to `sink`, until no more fit.
    fn read_dir(&self, node: u64, from: u64, sink: &mut dyn DirSink) -> Answer<()>;

    /// Space of the file system.
    fn space(&self, node: u64) -> Answer<SpaceInfo>;

    /// Names of the extended attributes of a file.
    fn xattr_names(&self, node: u64) -> Answer<Vec<Vec<u8>>>;

    /// Value of an extended attribute; `None` if there is none of that name.
    fn xattr(&self, node: u64, name: &[u8]) -> Answer<Option<Vec<u8>>>;

    /// Sets an extended attribute; `flags` are those of `setxattr`.
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

    /// Position of the next data or hole at or after `offset`.
    fn seek(&self, node: u64, offset: u64, what: Seek) -> Answer<u64>;

    /// Reserves, punches or zeroes a range of a file; `_mode` is that of `fallocate`.
    fn allocate(&self, _caller: &Caller, _node: u64, _offset: u64, _len: u64, _mode: u32) -> Answer<()> {
        Err(Errno::OPNOTSUPP)
    }

    /// Copies a range within the file system; returns the number of bytes.
    fn copy_range(&self, _caller: &Caller, _range: &CopyRange) -> Answer<u64> {
        Err(Errno::OPNOTSUPP)
    }

    /// Makes all changes of the file system durable.
    fn sync(&self) -> Answer<()> {
        Ok(())
    }

    /// A control call: its number, its input, and the buffer for its output. Returns the length of the
    /// output.
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
