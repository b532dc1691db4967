//! Request counts of a mounted file system: the data of `fsstat` and of the `objset-…` kstat files.
//!
//! Only requests that reach Cenote are counted. Requests that the kernel answers from its caches are not.

/// Kind of request. Failed requests count too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FileOp {
    /// Create a file, device or socket.
    Create,
    /// Create a directory.
    MakeDir,
    /// Create a symbolic link.
    Symlink,
    /// Create a hard link.
    Link,
    /// Remove a directory entry that is not a directory.
    Remove,
    /// Remove a directory.
    RemoveDir,
    /// Rename a file or directory.
    Rename,
    /// Look up a name in a directory.
    Lookup,
    /// Read a directory.
    ReadDir,
    /// Bytes of directories that were read.
    ReadDirBytes,
    /// Read a symbolic link.
    ReadLink,
    /// Get attributes.
    GetAttr,
    /// Set attributes.
    SetAttr,
    /// Get extended attributes, including access control lists.
    GetXattr,
    /// Set extended attributes, including access control lists.
    SetXattr,
    /// Open a file or directory.
    Open,
    /// Close a file or directory.
    Close,
    /// Synchronize a file (`fsync`).
    Sync,
    /// Read data.
    Read,
    /// Bytes of data that were read.
    ReadBytes,
    /// Write data.
    Write,
    /// Bytes of data that were written.
    WriteBytes,
    /// Allocate or punch holes in a file (`fallocate`).
    Space,
    /// Clone or copy a range between files.
    Copy,
    /// Seek to data or a hole.
    Seek,
    /// Report the space of the file system (`statfs`).
    StatFs,
    /// Any other request.
    Other,
}

/// Number of kinds.
pub const FILE_OPS: usize = FileOp::Other as usize + 1;

/// Number of requests, or bytes, by kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FileOps(pub [u64; FILE_OPS]);

impl FileOps {
    /// The count of one kind.
    pub fn of(&self, op: FileOp) -> u64 {
        self.0[op as usize]
    }

    /// The sum of the counts of several kinds.
    pub fn sum(&self, ops: &[FileOp]) -> u64 {
        ops.iter().map(|op| self.of(*op)).fold(0, u64::wrapping_add)
    }

    /// The sum of two sets of counts.
    #[must_use]
    pub fn plus(&self, other: &FileOps) -> FileOps {
        FileOps(std::array::from_fn(|i| self.0[i].wrapping_add(other.0[i])))
    }

    /// The differences from `earlier`, an earlier state of these counts.
    #[must_use]
    pub fn since(&self, earlier: &FileOps) -> FileOps {
        FileOps(std::array::from_fn(|i| self.0[i].saturating_sub(earlier.0[i])))
    }
}
