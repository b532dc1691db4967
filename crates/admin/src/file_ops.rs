//! What programs have asked of a mounted file system: the data of `fsstat` and of the `objset-…` kstat files.
//!
//! Counted are the requests that reach us: what the kernel answers out of its own caches is not among them.

/// A kind of request. Those that fail count too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FileOp {
    /// Making a file, a device or a socket.
    Create,
    /// Making a directory.
    MakeDir,
    /// Making a symbolic link.
    Symlink,
    /// One more name of a file.
    Link,
    /// Removing a name.
    Remove,
    /// Removing a directory.
    RemoveDir,
    /// Another name.
    Rename,
    /// Looking for a name.
    Lookup,
    /// Reading a directory.
    ReadDir,
    /// Bytes of directories.
    ReadDirBytes,
    /// Reading a symbolic link.
    ReadLink,
    /// Reading attributes.
    GetAttr,
    /// Changing attributes.
    SetAttr,
    /// Reading extended attributes, access control lists among them.
    GetXattr,
    /// Changing them.
    SetXattr,
    /// Opening files and directories.
    Open,
    /// Closing them.
    Close,
    /// Bringing a file to disk.
    Sync,
    /// Reading data.
    Read,
    /// Bytes of it.
    ReadBytes,
    /// Writing data.
    Write,
    /// Bytes of it.
    WriteBytes,
    /// Reserving and freeing space within files.
    Space,
    /// Cloning and copying between files.
    Copy,
    /// Looking for holes.
    Seek,
    /// How full the file system is.
    StatFs,
    /// Anything else.
    Other,
}

/// How many kinds there are.
pub const FILE_OPS: usize = FileOp::Other as usize + 1;

/// How many requests of each kind there were.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FileOps(pub [u64; FILE_OPS]);

impl FileOps {
    /// How many of one kind.
    pub fn of(&self, op: FileOp) -> u64 {
        self.0[op as usize]
    }

    /// How many of several kinds.
    pub fn sum(&self, ops: &[FileOp]) -> u64 {
        ops.iter().map(|op| self.of(*op)).fold(0, u64::wrapping_add)
    }

    /// These and those.
    #[must_use]
    pub fn plus(&self, other: &FileOps) -> FileOps {
        FileOps(std::array::from_fn(|i| self.0[i].wrapping_add(other.0[i])))
    }

    /// What came after an earlier count.
    #[must_use]
    pub fn since(&self, earlier: &FileOps) -> FileOps {
        FileOps(std::array::from_fn(|i| self.0[i].saturating_sub(earlier.0[i])))
    }
}
