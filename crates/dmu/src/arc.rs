//! The block cache, shared by all snapshots and clones of a pool.
//!
//! Keyed by the place and birth of a block's first copy, so a block is cached once however many
//! trees lead to it. Sharded by hash; each shard is two queues by recency: blocks seen once are
//! on probation, blocks seen again are protected, and a scan that touches everything once can only
//! push out what is on probation.
//!
//! # What always holds
//! - The bytes held never exceed the bound given to [`Arc::new`], by more than one block per shard.
//! - No lock is held while a block is read from a device.

use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Mutex, MutexGuard, PoisonError};
use format::{BlockPtr, Txg};
use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, RandomState};
use zio::Block;

const SHARDS: usize = 16;

/// Identity of a cached block.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Key {
    place: [u64; 2],
    birth: Txg,
    /// The block was opened with a key: decrypted, its MAC checked.
    unlocked: bool,
}

impl Key {
    /// The identity of the block that `bp` points to; `None` for holes and embedded data.
    pub fn of(bp: &BlockPtr, unlocked: bool) -> Option<Key> {
        let dva = bp.dvas().next()?;
        let birth = bp.physical_birth();
        Some(Key { place: dva.to_words(), birth, unlocked: unlocked && bp.uses_crypt() })
    }

    #[cfg(test)]
    pub(crate) fn for_test(n: u64) -> Key {
        Key { place: [1, n], birth: Txg(1), unlocked: false }
    }
}

struct Entry {
    block: Block,
    /// When it was last used: its key in the queue it is in.
    stamp: u64,
    protected: bool,
    /// It was read ahead, and nobody has asked for it yet.
    ahead: bool,
}

#[derive(Default)]
struct Shard {
    entries: HashMap<Key, Entry>,
    probation: BTreeMap<u64, Key>,
    protected: BTreeMap<u64, Key>,
    clock: u64,
    bytes: usize,
    protected_bytes: usize,
}

/// Counters of a cache since it was made.
#[derive(Debug, Clone, Copy, Default)]
pub struct Stats {
    /// Look-ups that found their block.
    pub hits: u64,
    /// Look-ups that did not.
    pub misses: u64,
}

/// The cache.
pub struct Arc {
    shards: Vec<Mutex<Shard>>,
    shard_limit: usize,
    hasher: RandomState,
    hits: AtomicU64,
    misses: AtomicU64,
}

impl Arc {
    /// A cache of at most `bytes` bytes of blocks.
    pub fn new(bytes: usize) -> Arc {
        Arc {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            shard_limit: bytes / SHARDS,
            hasher: RandomState::new(),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
        }
    }

    fn shard(&self, key: &Key) -> MutexGuard<'_, Shard> {
        let i = self.hasher.hash_one(key) as usize % SHARDS;
        // A panic while the lock was held cannot have broken the queues half-way: every step leaves
        // them consistent enough to be used as a cache.
        self.shards[i].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The block, if it is cached.
    pub fn get(&self, key: &Key) -> Option<Block> {
        let found = self.shard(key).touch(key, self.shard_limit);
        let counter = if found.is_some() { &self.hits } else { &self.misses };
        counter.fetch_add(1, Ordering::Relaxed);
        found
    }

    /// Whether the block is cached. Does not count as a use of it.
    pub fn has(&self, key: &Key) -> bool {
        self.shard(key).entries.contains_key(key)
    }

    /// Adds a block, pushing out others.
    pub fn insert(&self, key: Key, block: Block) {
        if block.bytes().len() <= self.shard_limit {
            self.shard(&key).insert(key, block, self.shard_limit, false);
        }
    }

    /// Adds a block that nobody has asked for yet: the first look-up counts as its first use.
    pub fn insert_ahead(&self, key: Key, block: Block) {
        if block.bytes().len() <= self.shard_limit {
            self.shard(&key).insert(key, block, self.shard_limit, true);
        }
    }

    /// Adds a block, or new contents of one that was written again in its place.
    pub fn replace(&self, key: Key, block: Block) {
        let mut shard = self.shard(&key);
        shard.remove(&key);
        if block.bytes().len() <= self.shard_limit {
            shard.insert(key, block, self.shard_limit, false);
        }
    }

    /// Hits and misses.
    pub fn stats(&self) -> Stats {
        Stats { hits: self.hits.load(Ordering::Relaxed), misses: self.misses.load(Ordering::Relaxed) }
    }

    /// Bytes held now.
    pub fn bytes(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().unwrap_or_else(PoisonError::into_inner).bytes).sum()
    }
}

impl Shard {
    fn touch(&mut self, key: &Key, limit: usize) -> Option<Block> {
        self.clock += 1;
        let stamp = self.clock;
        let entry = self.entries.get_mut(key)?;
        if std::mem::take(&mut entry.ahead) {
            self.probation.remove(&entry.stamp);
            entry.stamp = stamp;
            self.probation.insert(stamp, *key);
            return Some(entry.block.clone());
        }
        if entry.protected {
            self.protected.remove(&entry.stamp);
        } else {
            self.probation.remove(&entry.stamp);
            self.protected_bytes += entry.block.bytes().len();
        }
        entry.protected = true;
        entry.stamp = stamp;
        let block = entry.block.clone();
        self.protected.insert(stamp, *key);
        self.demote(limit);
        Some(block)
    }

    fn remove(&mut self, key: &Key) {
        let Some(entry) = self.entries.remove(key) else { return };
        self.bytes -= entry.block.bytes().len();
        if entry.protected {
            self.protected.remove(&entry.stamp);
            self.protected_bytes -= entry.block.bytes().len();
        } else {
            self.probation.remove(&entry.stamp);
        }
    }

    fn insert(&mut self, key: Key, block: Block, limit: usize, ahead: bool) {
        if self.entries.contains_key(&key) {
            return;
        }
        self.clock += 1;
        self.bytes += block.bytes().len();
        self.entries.insert(key, Entry { block, stamp: self.clock, protected: false, ahead });
        self.probation.insert(self.clock, key);
        while self.bytes > limit {
            let victim = self.probation.pop_first().or_else(|| self.protected.pop_first());
            let Some((_, victim)) = victim else { break };
            let Some(entry) = self.entries.remove(&victim) else { continue };
            self.bytes -= entry.block.bytes().len();
            if entry.protected {
                self.protected_bytes -= entry.block.bytes().len();
            }
        }
    }

    /// Keeps the protected queue within four fifths, so that newcomers get a chance to be seen again.
    fn demote(&mut self, limit: usize) {
        while self.protected_bytes > limit / 5 * 4 {
            let Some((stamp, key)) = self.protected.pop_first() else { break };
            let Some(entry) = self.entries.get_mut(&key) else { continue };
            entry.protected = false;
            self.protected_bytes -= entry.block.bytes().len();
            self.probation.insert(stamp, key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use format::Endian;

    fn key(n: u64) -> Key {
        Key { place: [1, n], birth: Txg(1), unlocked: false }
    }

    fn block(len: usize) -> Block {
        Block::new(vec![7; len], Endian::Little)
    }

    #[test]
    fn bytes_stay_within_the_bound() {
        let cache = Arc::new(SHARDS * 1000);
        for n in 0..10_000 {
            cache.insert(key(n), block(100));
            cache.get(&key(n / 2));
        }
        assert!(cache.bytes() <= SHARDS * 1000, "{} bytes", cache.bytes());
    }

    #[test]
    fn a_scan_does_not_push_out_what_is_used_often() {
        let cache = Arc::new(SHARDS * 10_000);
        for n in 0..50 {
            cache.insert(key(n), block(100));
            assert!(cache.get(&key(n)).is_some());
        }
        for n in 1000..100_000 {
            cache.insert(key(n), block(100));
        }
        assert!((0..50).all(|n| cache.get(&key(n)).is_some()));
    }

    #[test]
    fn what_is_read_ahead_and_used_once_does_not_push_out_what_is_used_often() {
        let cache = Arc::new(SHARDS * 10_000);
        for n in 0..50 {
            cache.insert(key(n), block(100));
            assert!(cache.get(&key(n)).is_some());
        }
        for n in 1000..100_000 {
            cache.insert_ahead(key(n), block(100));
            assert!(cache.has(&key(n)) && cache.get(&key(n)).is_some());
        }
        assert!((0..50).all(|n| cache.get(&key(n)).is_some()));
    }

    #[test]
    fn a_block_larger_than_a_shard_is_not_kept() {
        let cache = Arc::new(SHARDS * 10);
        cache.insert(key(1), block(11));
        assert_eq!(cache.bytes(), 0);
    }
}
