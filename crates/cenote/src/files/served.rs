//! For servers that know files by number: what is not an operation of the file system alone.

use super::FilesystemWriter;
use crate::Error;
use format::ObjectId;
use zpl::ZplError;
pub use zpl::write::{FileRange, Fs, FsStats, Hold, NewFile, WriteHow};

impl FilesystemWriter {
    /// What was changed of a file, and all changes of names, are durable when this returns.
    ///
    /// # Errors
    /// The pool cannot be written any more.
    pub fn fsync(&self, id: ObjectId) -> Result<(), Error> {
        Ok(self.head.fsync(id).map_err(pool::PoolError::from)?)
    }

    /// To be called after a change: with `sync=always` it is durable when this returns.
    ///
    /// # Errors
    /// The pool cannot be written any more.
    pub fn settled(&self, id: ObjectId) -> Result<(), Error> {
        self.changed(id)
    }

    /// Its size and room, as `statfs` has them for the file `at`.
    ///
    /// # Errors
    /// [`ZplError::Stale`] if there is no such file.
    pub fn stats(&self, at: ObjectId) -> Result<FsStats, ZplError> {
        let space = self.head.head().space();
        self.fs().stats(space.referenced, space.available, at)
    }

    /// Shares blocks of a file of `source`, which is in the same pool, with one of this file system: see
    /// [`zpl::write::Fs::clone_range`].
    ///
    /// # Errors
    /// As there.
    pub fn clone_range(
        &self,
        source: &FilesystemWriter,
        from: FileRange,
        to: FileRange,
        len: u64,
    ) -> Result<u64, ZplError> {
        self.fs().clone_range(source.fs(), from, to, len, &self.clone_table())
    }
}
