//! The inodes in memory, by number.

use crate::node::inode::Inode;
use dsl::sync::lock;
use format::ObjectId;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

const SHARDS: usize = 16;
/// Inodes not in use that a shard keeps.
const SHARD_KEEPS: usize = 1024;

/// Table of the inodes in memory, by object number.
#[derive(Default)]
pub(crate) struct Inodes {
    shards: [Mutex<Shard>; SHARDS],
}

struct Shard {
    inodes: HashMap<u64, Arc<Inode>>,
    /// Number of inodes at which those not in use are forgotten.
    limit: usize,
}

impl Default for Shard {
    fn default() -> Shard {
        Shard { inodes: HashMap::new(), limit: SHARD_KEEPS }
    }
}

impl Shard {
    /// Forgets the inodes that are not in use.
    fn sweep(&mut self) {
        self.inodes.retain(|_, inode| Arc::strong_count(inode) > 1 || inode.is_held());
        // Many may be in use: they are not looked at each time.
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
        // Neighbours are often used by one thread: they share a shard.
        lock(&self.shards[(id.0 / 32) as usize % SHARDS])
    }

    /// The inode, if it is in memory.
    pub(crate) fn get(&self, id: ObjectId) -> Option<Arc<Inode>> {
        self.shard(id).inodes.get(&id.0).cloned()
    }

    /// The inode in memory: this one, unless another thread was faster.
    pub(crate) fn get_or_insert(&self, loaded: Inode) -> Arc<Inode> {
        let mut shard = self.shard(loaded.id);
        let inode = Arc::clone(shard.inodes.entry(loaded.id.0).or_insert_with(|| Arc::new(loaded)));
        shard.make_room();
        inode
    }

    /// A file that was just made.
    pub(crate) fn insert(&self, inode: Arc<Inode>) {
        let mut shard = self.shard(inode.id);
        shard.inodes.insert(inode.id.0, inode);
        shard.make_room();
    }

    /// Removes the inode of an object that is freed.
    pub(crate) fn remove(&self, id: ObjectId) {
        self.shard(id).inodes.remove(&id.0);
    }

    /// The object of this inode is freed; its number may be another's by now.
    pub(crate) fn remove_this(&self, inode: &Arc<Inode>) {
        let mut shard = self.shard(inode.id);
        if shard.inodes.get(&inode.id.0).is_some_and(|found| Arc::ptr_eq(found, inode)) {
            shard.inodes.remove(&inode.id.0);
        }
    }

    /// Forgets all inodes that are not in use: after the set was changed by other means.
    pub(crate) fn clear(&self) {
        for shard in &self.shards {
            lock(shard).sweep();
        }
    }
}
