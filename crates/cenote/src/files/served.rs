//! For servers that know files by number: what is not an operation of the file system alone.

use super::FilesystemWriter;
use crate::Error;
use format::ObjectId;
use std::sync::Arc;
use vdev::tunable::Tunable;
use zpl::ZplError;
pub use zpl::{FileRange, Fs, FsStats, Hold, NewFile, WriteHow};

/// Blocks may be shared between files.
pub static BCLONE_ENABLED: Tunable = Tunable::new("zfs_bclone_enabled", 1, 0, 1);
/// Who copies what is not on disk yet waits until it is, and shares it then; otherwise the bytes are copied.
pub static BCLONE_WAIT_DIRTY: Tunable = Tunable::new("zfs_bclone_wait_dirty", 1, 0, 1);

/// Txgs after which what was freed is free at the latest: that of the change, and those that its last blocks are kept for.
const TXGS_OF_RETURN: usize = 4;

/// Whether everything that was changed in a file system is on disk. Outlives its [`FilesystemWriter`], which changes some
/// of it when it is dropped.
pub struct Written {
    set: Arc<dmu::LiveSet>,
    pool: Arc<crate::LivePool>,
}

impl Written {
    /// Whether it is, while nobody changes the file system.
    pub fn is_on_disk(&self) -> bool {
        self.pool.is_on_disk(self.set.newest_change())
    }
}

impl FilesystemWriter {
    /// What tells whether everything is on disk.
    pub fn written(&self) -> Written {
        Written { set: Arc::clone(&self.head.head().set), pool: Arc::clone(&self.pool) }
    }

    /// Full name of the dataset as of the last sync: it may have been renamed since it was opened.
    pub fn current_name(&self) -> Arc<str> {
        self.head.head().name()
    }

    /// The dataset's number in the pool, which it keeps for life.
    pub fn dataset_id(&self) -> ObjectId {
        self.head.head().id()
    }

    /// Whoever reads keeps what was read itself, as a kernel does for its mounts: what is read in order does not stay in the
    /// cache of the pool as well.
    pub fn let_streams_pass(&self) {
        self.fs().set().store().cache().let_streams_pass();
    }

    /// Every change is durable when it is acknowledged: property `sync=always`.
    pub fn is_sync_always(&self) -> bool {
        self.head.head().sync_mode() == dsl::SyncMode::Always
    }

    /// Bytes that may still be taken, as quotas and the pool have it.
    pub fn available(&self) -> u64 {
        self.head.head().space().available
    }

    /// Whether so many bytes may still be taken. Before that is denied, what was freed and comes back with the next txgs
    /// is waited for.
    ///
    /// # Errors
    /// The pool cannot be written any more.
    pub fn has_room(&self, bytes: u64) -> Result<bool, Error> {
        for _ in 0..TXGS_OF_RETURN {
            let head = self.head.head();
            if bytes <= head.space().available || !head.is_freeing() {
                break;
            }
            self.pool.sync()?;
        }
        Ok(bytes <= self.available())
    }

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
    /// [`zpl::Fs::clone_range`].
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
        if !BCLONE_ENABLED.is_on() {
            return Err(ZplError::CannotClone { why: "it is switched off (zfs_bclone_enabled)" });
        }
        self.fs().clone_range(source.fs(), from, to, len, &self.clone_table())
    }
}
