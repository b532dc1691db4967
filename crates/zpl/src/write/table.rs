//! The inodes in memory, by number.

use super::inode::Inode;
use crate::ZplError;
use format::ObjectId;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const SHARDS: usize = 16;
/// Inodes that a shard keeps although nobody uses them.
const SHARD_KEEPS: usize = 4096;

/// The inodes in memory.
#[derive(Default)]
pub(super) struct Inodes {
    shards: [Mutex<HashMap<u64, Arc<Inode>>>; SHARDS],
}

impl Inodes {
    fn shard(&self, id: ObjectId) -> MutexGuard<'_, HashMap<u64, Arc<Inode>>> {
        // Neighbours are often used by one thread: they share a shard.
        self.shards[(id.0 / 32) as usize % SHARDS].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The inode, loaded by `load` if it is not in memory.
    pub(super) fn get(
        &self,
        id: ObjectId,
        load: impl FnOnce() -> Result<Inode, ZplError>,
    ) -> Result<Arc<Inode>, ZplError> {
        if let Some(inode) = self.shard(id).get(&id.0) {
            return Ok(Arc::clone(inode));
        }
        let loaded = Arc::new(load()?);
        let mut shard = self.shard(id);
        let inode = Arc::clone(shard.entry(id.0).or_insert(loaded));
        make_room(&mut shard);
        Ok(inode)
    }

    /// A file that was just made.
    pub(super) fn insert(&self, inode: Arc<Inode>) {
        let mut shard = self.shard(inode.id);
        shard.insert(inode.id.0, inode);
        make_room(&mut shard);
    }

    /// The object is freed.
    pub(super) fn remove(&self, id: ObjectId) {
        self.shard(id).remove(&id.0);
    }

    /// Forgets everything that nobody uses: after the set was changed by other means.
    pub(super) fn clear(&self) {
        for shard in &self.shards {
            let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            shard.retain(|_, inode| Arc::strong_count(inode) > 1 || inode.is_held());
        }
    }
}

/// Forgets the inodes that nobody uses once there are many.
fn make_room(shard: &mut HashMap<u64, Arc<Inode>>) {
    if shard.len() > SHARD_KEEPS {
        shard.retain(|_, inode| Arc::strong_count(inode) > 1 || inode.is_held());
    }
}
