//! Files without a name that a client still knows: they exist until the client forgets them.
//!
//! # What always holds
//! - A file is in the table from the call that removed its last name until the client forgets its node, so an
//!   open file is never freed under its program.
//! - A file is freed outside of the locks of the table.

use super::identity::NodeTable;
use admin::sync::lock;
use cenote::files::Hold;
use format::ObjectId;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

const SHARDS: usize = 16;

/// Object number and generation of a file.
pub(crate) type FileId = (ObjectId, u64);

/// The unlinked files of a file system that a client knows.
#[derive(Default)]
pub(crate) struct Unlinked {
    /// Holds, by object number.
    shards: [Mutex<HashMap<u64, Hold>>; SHARDS],
}

impl Unlinked {
    fn shard(&self, id: u64) -> MutexGuard<'_, HashMap<u64, Hold>> {
        // The data is consistent between any two statements.
        lock(&self.shards[id as usize % SHARDS])
    }

    /// Keeps a file until the client forgets it.
    pub(crate) fn keep(&self, hold: Hold, nodes: &NodeTable) {
        let (id, generation) = (hold.id().0, hold.attrs().generation);
        self.shard(id).insert(id, hold);
        // The client may have forgotten the file before it was in the table.
        if !nodes.knows(id, generation) {
            self.release(id, generation);
        }
    }

    /// Releases a file that the client has forgotten, which may free it.
    pub(crate) fn release(&self, id: u64, generation: u64) {
        let mut shard = self.shard(id);
        let is_it = shard.get(&id).is_some_and(|hold| hold.attrs().generation == generation);
        let hold = if is_it { shard.remove(&id) } else { None };
        drop(shard);
        // This may free the file, so the lock is released before.
        drop(hold);
    }

    /// Whether the client knows no unlinked file.
    pub(crate) fn is_empty(&self) -> bool {
        (0..SHARDS as u64).all(|shard| self.shard(shard).is_empty())
    }

    /// Leaves all of them to the next opening of the file system, which keeps or frees them; returns their
    /// ids.
    pub(crate) fn leave(&self) -> Vec<FileId> {
        let mut left = Vec::new();
        for shard in 0..SHARDS as u64 {
            for (_, hold) in self.shard(shard).drain() {
                left.push((hold.id(), hold.attrs().generation));
                hold.leave();
            }
        }
        left
    }
}
