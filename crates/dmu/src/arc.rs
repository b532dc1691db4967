//! The block cache, shared by all snapshots and clones of a pool.
//!
//! Keyed by the address and birth of a block's first copy, so a block is cached once however many trees
//! reference it. Sharded by hash; each shard has three queues in order of use: blocks requested once, blocks
//! requested again, and written file contents not requested since. So a scan that requests each block once
//! can only evict the first kind, a write stream only the last. If readers keep contents themselves, as the
//! kernel does for a mount, read-ahead contents also move to the last queue at their first request.
//!
//! # What always holds
//! - The bytes held exceed the bound given to `Arc::new` by at most one block per shard.
//! - No lock is held while a block is read from a device.

use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{Mutex, MutexGuard, lock};
use format::{BlockPtr, Txg};
use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, RandomState};
use zio::Block;

const SHARDS: usize = 16;
/// Bytes of memory that a block takes beyond its contents: its key, twice, its map entries, its counters.
const ENTRY_COST: usize = 256;

/// Written contents that were not requested since may take the cache divided by this;
const WRITTEN_PART: usize = 16;
/// if that is less than this many bytes,
const WRITTEN_LEAST: usize = 64 << 20;
/// they may take more, up to the cache divided by this: they must not evict requested blocks.
const WRITTEN_PART_MOST: usize = 4;

/// Most bytes of the `Written` queue in a shard of `limit` bytes.
fn written_max(limit: usize) -> usize {
    (limit / WRITTEN_PART).max((WRITTEN_LEAST / SHARDS).min(limit / WRITTEN_PART_MOST))
}

/// Bytes of memory that a cached block takes.
fn cost(block: &Block) -> usize {
    block.bytes().len() + ENTRY_COST
}

/// Identity of a cached block.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Key {
    place: [u64; 2],
    birth: Txg,
    /// Whether the block was opened with a key: decrypted, with its MAC checked.
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

/// The queues of a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lane {
    /// File contents that were written and not requested since, or that their reader keeps itself.
    Written,
    /// Blocks that were requested once.
    Once,
    /// Blocks that were requested again.
    Often,
}

struct Entry {
    block: Block,
    /// Time of the last use: the entry's key in its queue.
    stamp: u64,
    lane: Lane,
    /// The queue for the first request of a block that was read ahead; `None`: it was requested already.
    ahead: Option<Lane>,
}

/// Blocks in order of their last use.
#[derive(Default)]
struct Queue {
    order: BTreeMap<u64, Key>,
    bytes: usize,
}

#[derive(Default)]
struct Shard {
    entries: HashMap<Key, Entry>,
    /// The queues, indexed by [`Lane`].
    queues: [Queue; 3],
    clock: u64,
}

/// Counters of a cache since its creation.
#[derive(Debug, Clone, Copy, Default)]
pub struct Stats {
    /// Look-ups that found their block.
    pub hits: u64,
    /// Look-ups that did not find their block.
    pub misses: u64,
}

/// The block cache of the pool.
pub struct Arc {
    shards: Vec<Mutex<Shard>>,
    shard_limit: usize,
    hasher: RandomState,
    hits: AtomicU64,
    misses: AtomicU64,
    streams_pass: AtomicBool,
}

impl Arc {
    /// A cache of at most `bytes` bytes of memory.
    pub fn new(bytes: usize) -> Arc {
        Arc {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            shard_limit: bytes / SHARDS,
            hasher: RandomState::new(),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            streams_pass: AtomicBool::new(false),
        }
    }

    /// Sets that file contents which are read sequentially are not kept for long, because their readers keep
    /// them.
    pub fn let_streams_pass(&self) {
        self.streams_pass.store(true, Ordering::Relaxed);
    }

    fn shard(&self, key: &Key) -> MutexGuard<'_, Shard> {
        let i = self.hasher.hash_one(key) as usize % SHARDS;
        // A panic under the lock cannot have left the queues inconsistent: after every step they are usable
        // as a cache.
        lock(&self.shards[i])
    }

    /// The block, if it is cached.
    pub fn get(&self, key: &Key) -> Option<Block> {
        let found = self.shard(key).touch(key, self.shard_limit);
        let counter = if found.is_some() { &self.hits } else { &self.misses };
        counter.fetch_add(1, Ordering::Relaxed);
        found
    }

    /// Counts a request for a block that its reader got from the thread that read it ahead.
    pub(crate) fn note_use(&self, key: &Key) {
        let mut shard = self.shard(key);
        if shard.entries.get(key).is_some_and(|entry| entry.ahead.is_some()) {
            shard.touch(key, self.shard_limit);
        }
    }

    /// Whether the block is cached. Does not count as a request.
    pub fn has(&self, key: &Key) -> bool {
        self.shard(key).entries.contains_key(key)
    }

    /// Adds a block, and evicts others if necessary.
    pub fn insert(&self, key: Key, block: Block) {
        self.add(key, block, None);
    }

    /// Adds a block that was read ahead: the first look-up counts as its first request. `is_content`: it has
    /// file contents.
    pub(crate) fn insert_ahead(&self, key: Key, block: Block, is_content: bool) {
        let passes = is_content && self.streams_pass.load(Ordering::Relaxed);
        self.add(key, block, Some(if passes { Lane::Written } else { Lane::Once }));
    }

    fn add(&self, key: Key, block: Block, ahead: Option<Lane>) {
        if cost(&block) <= self.shard_limit {
            self.shard(&key).insert(key, block, Lane::Once, ahead, self.shard_limit);
        }
    }

    /// Adds a block that was written in place of `old`, which will not be requested again. It takes over the
    /// queue of `old`. New file contents are kept in a small part of the cache until they are requested: the
    /// program that writes a file need not read it, and the kernel may have it cached as well.
    pub fn renew(&self, old: Option<&Key>, key: Key, block: Block, is_content: bool) {
        let was = old.and_then(|old| self.shard(old).remove(old));
        let mut shard = self.shard(&key);
        // In one step: a block may be written twice in the same place, and a reader of the earlier version
        // must not insert that in between.
        let here = shard.remove(&key);
        let lane = was.or(here).unwrap_or(if is_content { Lane::Written } else { Lane::Once });
        if cost(&block) <= self.shard_limit {
            shard.insert(key, block, lane, None, self.shard_limit);
        }
    }

    /// Drops a block that will not be requested again.
    pub fn forget(&self, key: &Key) {
        self.shard(key).remove(key);
    }

    /// Numbers of hits and misses.
    pub fn stats(&self) -> Stats {
        Stats { hits: self.hits.load(Ordering::Relaxed), misses: self.misses.load(Ordering::Relaxed) }
    }

    /// Bytes of memory held now.
    pub fn bytes(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).bytes()).sum()
    }
}

impl Shard {
    fn bytes(&self) -> usize {
        self.queues.iter().map(|queue| queue.bytes).sum()
    }

    fn queue(&mut self, lane: Lane) -> &mut Queue {
        &mut self.queues[lane as usize]
    }

    /// Appends an entry to a queue, as the one used last.
    fn put(&mut self, key: Key, entry: Entry) {
        self.clock += 1;
        let (stamp, queue) = (self.clock, &mut self.queues[entry.lane as usize]);
        queue.bytes += cost(&entry.block);
        queue.order.insert(stamp, key);
        self.entries.insert(key, Entry { stamp, ..entry });
    }

    fn take(&mut self, key: &Key) -> Option<Entry> {
        let entry = self.entries.remove(key)?;
        let queue = self.queue(entry.lane);
        queue.order.remove(&entry.stamp);
        queue.bytes -= cost(&entry.block);
        Some(entry)
    }

    /// Removes the least recently used entry of a queue.
    fn take_oldest(&mut self, lane: Lane) -> Option<(Key, Entry)> {
        let key = *self.queue(lane).order.first_key_value()?.1;
        self.take(&key).map(|entry| (key, entry))
    }

    fn touch(&mut self, key: &Key, limit: usize) -> Option<Block> {
        self.clock += 1;
        let entry = self.entries.get_mut(key)?;
        let block = entry.block.clone();
        let from = &mut self.queues[entry.lane as usize];
        from.order.remove(&entry.stamp);
        from.bytes -= cost(&block);
        entry.lane = entry.ahead.take().unwrap_or(Lane::Often);
        entry.stamp = self.clock;
        let to = &mut self.queues[entry.lane as usize];
        to.order.insert(self.clock, *key);
        to.bytes += cost(&block);
        self.demote(limit);
        self.trim_written(limit);
        Some(block)
    }

    fn remove(&mut self, key: &Key) -> Option<Lane> {
        self.take(key).map(|entry| entry.lane)
    }

    fn insert(&mut self, key: Key, block: Block, lane: Lane, ahead: Option<Lane>, limit: usize) {
        if self.entries.contains_key(&key) {
            return;
        }
        self.put(key, Entry { block, stamp: 0, lane, ahead });
        self.trim_written(limit);
        while self.bytes() > limit {
            let victim = self.take_oldest(Lane::Once).or_else(|| self.take_oldest(Lane::Often));
            if victim.or_else(|| self.take_oldest(Lane::Written)).is_none() {
                break;
            }
        }
    }

    /// Evicts written contents beyond their share. Keeps the newest, because a record that is changed
    /// repeatedly would otherwise be read each time.
    fn trim_written(&mut self, limit: usize) {
        let is_over = |queue: &Queue| queue.bytes > written_max(limit) && queue.order.len() > 1;
        while is_over(self.queue(Lane::Written)) && self.take_oldest(Lane::Written).is_some() {}
    }

    /// Limits the queue of blocks requested again to four fifths, so that new blocks stay long enough to be
    /// requested again.
    fn demote(&mut self, limit: usize) {
        while self.queue(Lane::Often).bytes > limit / 5 * 4 {
            let Some((key, entry)) = self.take_oldest(Lane::Often) else { break };
            // As the oldest there: it was not requested for the longest time.
            let (stamp, queue) = (entry.stamp, self.queue(Lane::Once));
            queue.bytes += cost(&entry.block);
            queue.order.insert(stamp, key);
            self.entries.insert(key, Entry { lane: Lane::Once, ..entry });
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
    fn small_blocks_count_with_what_it_takes_to_keep_them() {
        let cache = Arc::new(SHARDS * 10_000);
        for n in 0..10_000 {
            cache.insert(key(n), block(1));
        }
        let kept = (0..10_000).filter(|n| cache.has(&key(*n))).count();
        assert!(kept <= SHARDS * 10_000 / ENTRY_COST, "{kept} blocks");
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
            cache.insert_ahead(key(n), block(100), true);
            assert!(cache.has(&key(n)) && cache.get(&key(n)).is_some());
        }
        assert!((0..50).all(|n| cache.get(&key(n)).is_some()));
    }

    #[test]
    fn a_block_larger_than_a_shard_is_not_kept() {
        let cache = Arc::new(SHARDS * 1000);
        cache.insert(key(1), block(1001));
        assert_eq!(cache.bytes(), 0);
    }

    #[test]
    fn what_is_written_and_not_read_takes_a_small_part() {
        let cache = Arc::new(2 * WRITTEN_PART * WRITTEN_LEAST);
        let size = 1 << 20;
        for n in 0..2000 {
            cache.renew(None, key(n), block(size), true);
        }
        let part = 2 * WRITTEN_LEAST;
        assert!((part / 2..=part).contains(&cache.bytes()), "{} bytes", cache.bytes());
        for n in 0..100 {
            cache.renew(None, key(n), block(size), false);
        }
        assert!((0..100).all(|n| cache.has(&key(n))), "not contents of files");
    }

    #[test]
    fn a_stream_that_is_written_does_not_push_out_what_is_used_often() {
        for blocks_of_shard in [50, 5000] {
            let cache = Arc::new(SHARDS * blocks_of_shard * cost(&block(100)));
            let often = blocks_of_shard as u64 * 2;
            for n in 0..often {
                cache.insert(key(n), block(100));
                assert!(cache.get(&key(n)).is_some());
            }
            for n in 0..100_000 {
                cache.renew(None, key(1_000_000 + n), block(100), true);
            }
            assert!((0..often).all(|n| cache.get(&key(n)).is_some()), "{blocks_of_shard}");
        }
    }

    #[test]
    fn a_stream_passes_where_its_reader_keeps_it() {
        let size = 1 << 20;
        let cache = Arc::new(WRITTEN_PART * WRITTEN_LEAST);
        let read = |numbers: std::ops::Range<u64>| {
            for n in numbers {
                cache.insert_ahead(key(n), block(size), true);
                match n % 2 {
                    0 => assert!(cache.get(&key(n)).is_some()),
                    _ => cache.note_use(&key(n)),
                }
            }
        };
        read(0..200);
        assert!(cache.bytes() >= 150 * size, "{} bytes: nobody else has them", cache.bytes());
        cache.let_streams_pass();
        let before = cache.bytes();
        read(1000..3000);
        assert!(cache.bytes() <= before + WRITTEN_LEAST, "{} bytes, before {before}", cache.bytes());
        for n in 5000..5100 {
            cache.insert_ahead(key(n), block(size), true);
        }
        assert!((5000..5100).all(|n| cache.has(&key(n))), "nobody has asked for them yet");
        for n in 6000..6100 {
            cache.insert_ahead(key(n), block(size), false);
            cache.get(&key(n));
        }
        assert!((6000..6100).all(|n| cache.has(&key(n))), "not contents of files");
    }

    #[test]
    fn what_is_used_often_stays_when_it_is_written_again() {
        let cache = Arc::new(WRITTEN_LEAST * 2);
        let size = 1 << 20;
        cache.insert(key(1), block(size));
        cache.get(&key(1));
        cache.renew(Some(&key(1)), key(2), block(size), true);
        for n in 1000..3000 {
            cache.renew(None, key(n), block(size), true);
        }
        assert!(cache.has(&key(2)) && !cache.has(&key(1)) && !cache.has(&key(1000)));
    }
}
