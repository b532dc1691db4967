//! What a server of files needs of an open file system beyond operations on files: its dataset, its space,
//! whether it is durable.
//!
//! `serve::export` asks through [`ServedFilesystem`]; files are known by number there.

use cenote::files::FilesystemWriter;
use cenote::files::FsStats;
use cenote::{Dataset, Error, LivePool};
use format::ObjectId;
use std::sync::Arc;
use zpl::{NoLog, ZplError};

/// Upper bound of the txgs after which freed space is available again: the txg of the change, and those for
/// which its last blocks are kept.
const TXGS_UNTIL_FREE: usize = 4;

/// Tells whether all changes of a file system are on disk. Outlives its [`FilesystemWriter`], which changes
/// the file system once more when it is dropped.
pub struct Written {
    set: Arc<dmu::LiveSet>,
    pool: Arc<LivePool>,
}

impl Written {
    /// True if every change is on disk. Meaningful only while nothing changes the file system.
    pub fn is_on_disk(&self) -> bool {
        self.pool.is_on_disk(self.set.newest_change())
    }
}

/// Transactions of one step of freeing removed files.
const DRAIN_STEPS: usize = 64;

/// A numeric property of a dataset in force. `None`: there is none, or it cannot be read.
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

    /// Lets data that is read in order leave the cache of the pool after its first use, because the client
    /// keeps what it has read, as the kernel does for its mounts.
    fn let_streams_pass(&self);

    /// True if every change must be durable when it is acknowledged: property `sync=always`.
    fn is_sync_always(&self) -> bool;

    /// Bytes that can still be written, within the quotas and the free space of the pool.
    fn available(&self) -> u64;

    /// True if `bytes` more can be written. Before it returns false, it waits for the txgs that make freed
    /// space available again.
    ///
    /// # Errors
    /// If the pool cannot be written any more.
    fn has_room(&self, bytes: u64) -> Result<bool, Error>;

    /// Stops the intent log for this file system, for all its handles: for a program that makes many changes,
    /// alone, and waits for [`FilesystemWriter::sync`] at the end.
    fn stop_logging(&self);

    /// Frees the space of all files that have lost their last name; large ones are freed step by step.
    ///
    /// # Errors
    /// If something cannot be freed now; the next opening of the file system tries again.
    fn finish_removals(&self) -> Result<(), Error>;

    /// Makes the changes of a file, and all changes of names, durable.
    ///
    /// # Errors
    /// If the pool cannot be written any more.
    fn fsync(&self, id: ObjectId) -> Result<(), Error>;

    /// Ends a change of a file: with `sync=always` it is durable when this returns.
    ///
    /// # Errors
    /// If the pool cannot be written any more.
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
