//! The inodes in memory, by number.

use crate::node::inode::Inode;
use dsl::sync::lock;
use format::ObjectId;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

const SHARDS: usize = 16;
/// Unused inodes that a shard keeps.
const SHARD_KEEPS: usize = 1024;

/// Table of the inodes in memory, by object number.
#[derive(Default)]
pub(crate) struct Inodes {
    shards: [Mutex<Shard>; SHARDS],
}

struct Shard {
    inodes: HashMap<u64, Arc<Inode>>,
    /// Number of inodes at which unused ones are dropped.
    limit: usize,
}

impl Default for Shard {
    fn default() -> Shard {
        Shard { inodes: HashMap::new(), limit: SHARD_KEEPS }
    }
}

impl Shard {
    /// Drops the inodes that are not in use.
    fn sweep(&mut self) {
        self.inodes.retain(|_, inode| Arc::strong_count(inode) > 1 || inode.is_held());
        // Many may be in use, so the next sweep comes only after as many more.
        self.limit = SHARD_KEEPS.max(2 * self.inodes.len());
    }

    fn make_room(&mut self) {
        if self.inodes.len() > self.limit {
            self.sweep();
        }
    }
}

impl Inodes {
    fn shard(&self, id: ObjectId) -> MutexGuard<'_, Shard> {
        // Neighbouring numbers are often used by one thread, so they share a shard.
        lock(&self.shards[(id.0 / 32) as usize % SHARDS])
    }

    /// The inode, if it is in memory.
    pub(crate) fn get(&self, id: ObjectId) -> Option<Arc<Inode>> {
        self.shard(id).inodes.get(&id.0).cloned()
    }

    /// Inserts an inode unless another thread has been faster; returns the one in the table.
    pub(crate) fn get_or_insert(&self, loaded: Inode) -> Arc<Inode> {
        let mut shard = self.shard(loaded.id);
        let inode = Arc::clone(shard.inodes.entry(loaded.id.0).or_insert_with(|| Arc::new(loaded)));
        shard.make_room();
        inode
    }

    /// Inserts the inode of a new file.
    pub(crate) fn insert(&self, inode: Arc<Inode>) {
        let mut shard = self.shard(inode.id);
        shard.inodes.insert(inode.id.0, inode);
        shard.make_room();
    }

    /// Removes the inode of an object that is freed.
    pub(crate) fn remove(&self, id: ObjectId) {
        self.shard(id).inodes.remove(&id.0);
    }

    /// Removes this inode after its object was freed; another file may have its number by now.
    pub(crate) fn remove_this(&self, inode: &Arc<Inode>) {
        let mut shard = self.shard(inode.id);
        if shard.inodes.get(&inode.id.0).is_some_and(|found| Arc::ptr_eq(found, inode)) {
            shard.inodes.remove(&inode.id.0);
        }
    }

    /// Drops all inodes that are not in use: after the object set was changed by other means.
    pub(crate) fn clear(&self) {
        for shard in &self.shards {
            lock(shard).sweep();
        }
    }
}
