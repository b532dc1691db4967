//! What a server of files needs from an open file system beyond operations on files: its dataset, its space, and
//! whether its changes are on disk.
//!
//! `serve::export` calls [`ServedFilesystem`]; it identifies files by object number.

use cenote::files::FilesystemWriter;
use cenote::files::FsStats;
use cenote::{Dataset, Error, LivePool};
use format::ObjectId;
use std::sync::Arc;
use zpl::{NoLog, ZplError};

/// Upper bound of the number of txgs after which freed space is available again: the txg of the change, and those
/// that its last blocks are kept for.
const TXGS_UNTIL_FREE: usize = 4;

/// Tells whether all changes of a file system are on disk. It outlives its [`FilesystemWriter`], which changes the
/// file system once more when it is dropped.
pub struct Written {
    set: Arc<dmu::LiveSet>,
    pool: Arc<LivePool>,
}

impl Written {
    /// True if every change is on disk. The result is meaningful only while no caller changes the file system.
    pub fn is_on_disk(&self) -> bool {
        self.pool.is_on_disk(self.set.newest_change())
    }
}

/// Number of transactions in one step that frees removed files.
const DRAIN_STEPS: usize = 64;

/// A numeric property in force. `None`: the dataset does not have it, or it cannot be read.
#[must_use]
pub fn setting(dataset: &Dataset, name: &str) -> Option<u64> {
    dsl::prop::get(dataset.dsl(), name).ok().flatten().and_then(|value| value.raw.number())
}

/// A file system that is served to others, by FUSE or another protocol.
pub trait ServedFilesystem {
    /// A handle that tells whether all changes are on disk.
    fn written(&self) -> Written;

    /// Full name of the dataset as of the last sync. It differs from the name at opening after a rename.
    fn current_name(&self) -> Arc<str>;

    /// Number of the dataset in the pool. It never changes.
    fn dataset_id(&self) -> ObjectId;

    /// Evicts sequentially read data from the pool's cache after its first use. For clients with a cache of their
    /// own, such as the kernel for its mounts.
    fn let_streams_pass(&self);

    /// True if every change must be durable when it is acknowledged: property `sync=always`.
    fn is_sync_always(&self) -> bool;

    /// Bytes that can still be written, within the quotas and the free space of the pool.
    fn available(&self) -> u64;

    /// True if `bytes` more can be written. Before it returns false, it waits for the txgs that make freed
    /// space available again.
    ///
    /// # Errors
    /// The pool does not accept writes any more.
    fn has_room(&self, bytes: u64) -> Result<bool, Error>;

    /// Stops the intent log for this file system and all its handles. For a program that is the only writer, makes
    /// many changes, and waits for [`FilesystemWriter::sync`] at the end.
    fn stop_logging(&self);

    /// Frees the space of all files that have lost their last name; large ones are freed step by step.
    ///
    /// # Errors
    /// Some space cannot be freed now; the next opening of the file system tries again.
    fn finish_removals(&self) -> Result<(), Error>;

    /// Makes the changes of a file and all changes of directory entries durable.
    ///
    /// # Errors
    /// The pool does not accept writes any more.
    fn fsync(&self, id: ObjectId) -> Result<(), Error>;

    /// Ends a change of a file: with `sync=always` the change is durable when this returns.
    ///
    /// # Errors
    /// The pool does not accept writes any more.
    fn settled(&self, id: ObjectId) -> Result<(), Error>;

    /// Size and free space as `statfs` reports them for the file `at`.
    ///
    /// # Errors
    /// [`ZplError::Stale`] if there is no such file.
    fn stats(&self, at: ObjectId) -> Result<FsStats, ZplError>;
}

impl ServedFilesystem for FilesystemWriter {
    fn written(&self) -> Written {
        Written { set: Arc::clone(&self.head().head().set), pool: Arc::clone(self.pool()) }
    }

    fn current_name(&self) -> Arc<str> {
        self.head().head().name()
    }

    fn dataset_id(&self) -> ObjectId {
        self.head().head().id()
    }

    fn let_streams_pass(&self) {
        self.fs().set().store().cache().let_streams_pass();
    }

    fn is_sync_always(&self) -> bool {
        self.head().head().sync_mode() == dsl::SyncMode::Always
    }

    fn available(&self) -> u64 {
        self.head().head().space().available
    }

    fn has_room(&self, bytes: u64) -> Result<bool, Error> {
        for _ in 0..TXGS_UNTIL_FREE {
            let head = self.head().head();
            if bytes <= head.space().available || !head.is_freeing() {
                break;
            }
            self.pool().sync()?;
        }
        Ok(bytes <= self.available())
    }

    fn stop_logging(&self) {
        self.fs().set_log(Arc::new(NoLog));
    }

    fn finish_removals(&self) -> Result<(), Error> {
        while !self.fs().drain(DRAIN_STEPS)? {}
        Ok(())
    }

    fn fsync(&self, id: ObjectId) -> Result<(), Error> {
        Ok(self.head().fsync(id).map_err(::pool::PoolError::from)?)
    }

    fn settled(&self, id: ObjectId) -> Result<(), Error> {
        Ok(self.head().changed(id).map_err(::pool::PoolError::from)?)
    }

    fn stats(&self, at: ObjectId) -> Result<FsStats, ZplError> {
        let space = self.head().head().space();
        self.fs().stats(space.referenced, space.available, at)
    }
}
