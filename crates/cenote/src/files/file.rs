//! An open regular file.

use std::sync::Arc;

use format::ObjectId;
use zpl::{Allocate, FileRange, Hold, WriteHow};
use zpl::{Attrs, Node};

use super::FilesystemWriter;
use crate::Error;

/// A regular file, open for reading and writing. It stays accessible until this is dropped, even after its
/// last name is removed.
pub struct FileWriter {
    fs: FilesystemWriter,
    hold: Hold,
    path: Vec<u8>,
}

impl FileWriter {
    pub(super) fn new(fs: &FilesystemWriter, path: &[u8], id: ObjectId) -> Result<FileWriter, Error> {
        let hold = fs.fs().hold(id).map_err(fs.at(path))?;
        Ok(FileWriter { fs: fs.clone(), hold, path: path.to_vec() })
    }

    /// Object id of the file.
    pub fn id(&self) -> ObjectId {
        self.hold.id()
    }

    /// Current attributes of the file.
    pub fn attrs(&self) -> Attrs {
        self.hold.attrs()
    }

    /// Length in bytes.
    pub fn len(&self) -> u64 {
        self.attrs().size
    }

    /// True if the length is 0.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The file for reading, as it is now.
    ///
    /// # Errors
    /// [`Error::Path`] if it cannot be read.
    pub fn node(&self) -> Result<Node, Error> {
        self.hold.node().map_err(self.fs.at(&self.path))
    }

    /// Reads from `offset` on, at most up to the end. Returns the number of bytes.
    ///
    /// # Errors
    /// [`Error::Path`] if a block cannot be read.
    pub fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize, Error> {
        self.fs.fs().read(self.id(), offset, buf).map_err(self.fs.at(&self.path))
    }

    /// Writes all of `data` at `offset`. An `offset` beyond the end leaves a hole.
    ///
    /// # Errors
    /// [`Error::Path`] if there is no space or a quota is reached. Bytes written until then stay.
    pub fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), Error> {
        self.put(offset, data, false).map(|_| ())
    }

    /// Writes all of `data` at the end of the file. Returns its offset.
    ///
    /// # Errors
    /// As [`FileWriter::write_at`].
    pub fn append(&self, data: &[u8]) -> Result<u64, Error> {
        self.put(0, data, true)
    }

    fn put(&self, offset: u64, data: &[u8], append: bool) -> Result<u64, Error> {
        let how = WriteHow { append, ..WriteHow::default() };
        let at = self.fs.fs().write(self.id(), offset, data, &how).map_err(self.fs.at(&self.path))?;
        self.fs.changed(self.id())?;
        Ok(at)
    }

    /// Truncates the file, or extends it by a hole.
    ///
    /// # Errors
    /// [`Error::Path`] if the size is too large or the file is append-only.
    pub fn set_len(&self, len: u64) -> Result<(), Error> {
        self.fs.fs().truncate(self.id(), len, false).map_err(self.fs.at(&self.path))?;
        self.fs.changed(self.id())
    }

    /// Reserves, zeros or deallocates a range, as `fallocate` does.
    ///
    /// # Errors
    /// [`Error::Path`] if the range is empty or too large, or the file is append-only.
    pub fn allocate(&self, offset: u64, len: u64, how: Allocate) -> Result<(), Error> {
        self.fs.fs().fallocate(self.id(), offset, len, how).map_err(self.fs.at(&self.path))?;
        self.fs.changed(self.id())
    }

    /// Offset of the first byte of data at or after `offset`. `None`: only a hole follows.
    ///
    /// # Errors
    /// [`Error::Path`] if an indirect block cannot be read.
    pub fn next_data(&self, offset: u64) -> Result<Option<u64>, Error> {
        self.fs.fs().next_data(self.id(), offset).map_err(self.fs.at(&self.path))
    }

    /// Offset of the first byte of a hole at or after `offset`; the end of the file counts as a hole.
    ///
    /// # Errors
    /// [`Error::Path`] if an indirect block cannot be read.
    pub fn next_hole(&self, offset: u64) -> Result<Option<u64>, Error> {
        self.fs.fs().next_hole(self.id(), offset).map_err(self.fs.at(&self.path))
    }

    /// Copies `len` bytes from offset `from` of `source` to offset `to` of this file by sharing their blocks.
    ///
    /// # Errors
    /// [`zpl::ZplError::CannotClone`] if the ranges are not whole blocks of equal size;
    /// [`zpl::ZplError::NotYetWritten`] if the data is not on disk yet.
    pub fn clone_range(&self, source: &FileWriter, from: u64, to: u64, len: u64) -> Result<(), Error> {
        let mut done = 0;
        while done < len {
            let from = FileRange { id: source.id(), offset: from + done };
            let to = FileRange { id: self.id(), offset: to + done };
            let shared = self.fs.clone_range(&source.fs, from, to, len - done);
            match shared.map_err(self.fs.at(&self.path))? {
                0 => break,
                n => done += n,
            }
        }
        self.fs.changed(self.id())
    }

    /// Makes all changes of the file, and all changes of names, durable.
    ///
    /// # Errors
    /// [`Error::Pool`] if the pool cannot be written any more.
    pub fn sync(&self) -> Result<(), Error> {
        Ok(self.fs.head.fsync(self.id()).map_err(pool::PoolError::from)?)
    }

    /// The file system of the file.
    pub fn filesystem(&self) -> &FilesystemWriter {
        &self.fs
    }
}

impl std::fmt::Debug for FileWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FileWriter({}:{})", self.fs.name, self.path.escape_ascii())
    }
}

const _: fn() = || {
    fn is_shared_between_threads<T: Send + Sync>() {}
    is_shared_between_threads::<FileWriter>();
    is_shared_between_threads::<Arc<FilesystemWriter>>();
};
