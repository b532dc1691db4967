//! The requests of the kernel to a file system: one function a kind of request. A server implements what it
//! can do; the rest answers "not there", as the protocol has it.
//!
//! # What always holds
//! - A node is a number that the service gave out; 1 is the root.
//! - Functions are called from many threads at once, and may block.

use super::{FileCounters, Notifier};
use crate::export::{Attr, Caller, CopyRange, DirSink, Known, NewNode, Seek, SetAttr, SpaceInfo, Stability};
use rustix::io::Errno;
use std::sync::Arc;

/// An open file or directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Opened {
    /// Handle: comes back with requests for the open file.
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
    /// Handle of the open file.
    pub handle: u64,
    /// Position of the first byte.
    pub offset: u64,
    /// Bytes to write.
    pub data: &'a [u8],
    /// The pages come from the page cache, and the caller is not the program that wrote them.
    pub from_cache: bool,
    /// Set-id bits are cleared.
    pub kill_set_ids: bool,
    /// Flags with which the file was opened.
    pub flags: u32,
}

/// Answer to one request.
pub type Answer<T> = Result<T, Errno>;

/// A file system that answers the kernel.
///
/// # Errors
/// Every function returns the error number that the program gets.
pub trait Service: Send + Sync + 'static {
    /// Abilities to take of those that are `offered`, see [`super::flag`].
    fn abilities(&self, offered: u64) -> u64;

    /// Gives the service what notifies the kernel, once it is mounted.
    fn set_notifier(&self, _notifier: &Arc<Notifier>) {}

    /// Counters of requests, if they are counted.
    fn counters(&self) -> Option<&FileCounters> {
        None
    }

    /// The file called `name`; `Ok(None)`: there is none, and the kernel may remember that.
    fn lookup(&self, caller: &Caller, dir: u64, name: &[u8]) -> Answer<Option<Known>>;

    /// Whether the kernel may remember that there is no file of a name.
    fn absence_stability(&self) -> Stability {
        Stability::Stable
    }

    /// The kernel no longer knows of so many answers that named the node: those to looking up, making and
    /// linking, and lines of directories with attributes.
    fn forget(&self, _node: u64, _count: u64) {}

    /// Attributes of a file.
    fn attr(&self, node: u64, handle: Option<u64>) -> Answer<(Attr, Stability)>;

    /// Changes attributes of a file, and returns the new ones.
    fn set_attr(&self, _caller: &Caller, _node: u64, _new: &SetAttr) -> Answer<(Attr, Stability)> {
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

    /// Gives a file another name.
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

    /// Reads into `buf`; returns the number of bytes, which is less than `buf` has only at the end.
    fn read(&self, node: u64, handle: u64, offset: u64, buf: &mut [u8]) -> Answer<usize>;

    /// Writes all of the data.
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

    /// Position of the next data or hole at or after `offset`.
    fn seek(&self, node: u64, offset: u64, what: Seek) -> Answer<u64>;

    /// `fallocate` of a range, with its mode.
    fn allocate(&self, _caller: &Caller, _node: u64, _offset: u64, _len: u64, _mode: u32) -> Answer<()> {
        Err(Errno::OPNOTSUPP)
    }

    /// Copies within the file system; returns how many bytes.
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
