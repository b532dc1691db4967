//! The block layer behind the block cache.

use crate::DmuError;
use crate::arc::{Arc as BlockCache, Key};
use crate::in_flight::{InFlight, Reader, Turn, Waiter};
use crate::prefetch::{Prefetch, Streams, Task};
use crate::sync::{Mutex, lock};
use codec::crypt::DataKey;
use format::blkptr::BLKPTR_SIZE;
use format::{BlockId, BlockPtr, Endian, Level, ObjType, ObjectId};
use std::sync::{Arc, OnceLock};
use zio::{AllocTx, Block, Priority, PriorityGuard, ReadPolicy, Zio, ZioError};
use zio::{NewBlock, Seal};

/// Most bytes of blocks in one batch of a reader.
pub(crate) const BATCH_BYTES: u64 = 4 << 20;
/// Most blocks in one batch.
pub(crate) const BATCH_BLOCKS: u64 = 256;
/// Bytes that one thread reads ahead in one batch.
const AHEAD_BYTES: u64 = 1 << 20;

/// Listener for data that could not be read, for any caller.
pub trait Witness: Send + Sync {
    /// Called when block `blkid` of an object could not be read from any device. Runs on the reader's thread,
    /// so it must be quick; the reader may have used an old state of the pool.
    fn unreadable(&self, objset: u64, object: ObjectId, blkid: BlockId);
}

/// Source of the blocks of a pool.
pub struct Store {
    zio: Arc<Zio>,
    cache: BlockCache,
    capacity: OnceLock<u64>,
    env: OnceLock<zio::Env>,
    in_flight: InFlight,
    prefetch: Prefetch,
    witness: OnceLock<Arc<dyn Witness>>,
}

impl Store {
    /// A store of the blocks of `zio`, with a cache of at most `cache_bytes`.
    pub fn new(zio: Arc<Zio>, cache_bytes: usize) -> Arc<Store> {
        Arc::new(Store {
            zio,
            cache: BlockCache::new(cache_bytes),
            capacity: OnceLock::new(),
            env: OnceLock::new(),
            in_flight: InFlight::new(),
            prefetch: Prefetch::default(),
            witness: OnceLock::new(),
        })
    }

    /// The block layer of the pool.
    pub fn zio(&self) -> &Arc<Zio> {
        &self.zio
    }

    /// The block cache of the pool.
    pub fn cache(&self) -> &BlockCache {
        &self.cache
    }

    /// Sets the listener for data that cannot be read. A second call has no effect.
    pub fn set_witness(&self, witness: Arc<dyn Witness>) {
        let _ = self.witness.set(witness);
    }

    /// Reports an error of reading a data block to the listener, if a device caused it.
    pub(crate) fn tell(&self, error: &DmuError, blkid: BlockId) {
        if let (Some(witness), DmuError::Zio { objset, object, source: ZioError::Unreadable { .. } }) =
            (self.witness.get(), error)
        {
            witness.unreadable(*objset, *object, blkid);
        }
    }

    /// An upper bound of the bytes of all blocks of the pool: twice the size of its devices if all are as
    /// large as the largest one.
    pub(crate) fn capacity(&self) -> u64 {
        *self.capacity.get_or_init(|| {
            let tree = self.zio.tree();
            let leaves = tree.leaf_guids();
            let sizes = leaves.iter().filter_map(|leaf| tree.device(*leaf)).map(|device| device.size());
            let largest = sizes.max().unwrap_or(u64::MAX);
            largest.saturating_mul(2 * leaves.len() as u64)
        })
    }

    /// Sets the clock, random numbers and workers for writing.
    pub fn set_env(&self, env: zio::Env) {
        let _ = self.env.set(env);
    }

    /// Clock, random numbers and workers: those of [`Store::set_env`], or the system's.
    pub(crate) fn env(&self) -> &zio::Env {
        self.env.get_or_init(zio::Env::system)
    }

    /// Writes blocks. Returns their pointers in the order of `blocks`. The new blocks are cached and the
    /// replaced ones dropped: snapshots seldom need them, and otherwise every change of a record would evict
    /// a block in use.
    pub(crate) fn write_many(
        &self,
        blocks: &[NewBlock],
        tx: &dyn AllocTx,
    ) -> Vec<Result<BlockPtr, ZioError>> {
        if blocks.is_empty() {
            return Vec::new();
        }
        let written = self.zio.write_many(blocks, tx, self.env());
        for (block, result) in blocks.iter().zip(&written) {
            let Ok(bp) = result else { continue };
            if *bp == block.old {
                continue;
            }
            let old = Key::of(&block.old, false);
            let is_ciphertext =
                matches!(block.seal, Some(Seal::Raw(_))) && block.policy.obj_type != ObjType::DNODE;
            let Some(id) = Key::of(bp, false).filter(|_| !is_ciphertext) else {
                old.inspect(|old| self.cache.forget(old));
                continue;
            };
            let data = Block::shared(Arc::clone(&block.data), Endian::Little);
            self.cache.renew(old.as_ref(), id, without_end(bp, data), is_content(bp));
        }
        written
    }

    /// The contents of a block, from the cache or from the devices.
    ///
    /// # Errors
    /// [`ZioError`] if the block cannot be read, decrypted or decompressed.
    pub fn read(&self, bp: &BlockPtr, key: Option<&DataKey>) -> Result<Block, ZioError> {
        let block = self.read_kept(bp, key)?;
        let size = usize::try_from(bp.lsize().0).unwrap_or(usize::MAX);
        if bp.level() == Level(0) || block.bytes().len() >= size {
            return Ok(block);
        }
        let mut bytes = Vec::with_capacity(size);
        bytes.extend_from_slice(block.bytes());
        bytes.resize(size, 0);
        Ok(Block::new(bytes, block.order()))
    }

    /// The pointers of an indirect block, from the cache or from the devices. Missing pointers at its end
    /// were never written: they are [`BlockPtr::HOLE`].
    ///
    /// # Errors
    /// [`ZioError`] if the block cannot be read, decrypted or decompressed.
    pub fn pointers(&self, bp: &BlockPtr, key: Option<&DataKey>) -> Result<Block, ZioError> {
        self.read_kept(bp, key)
    }

    fn read_kept(&self, bp: &BlockPtr, key: Option<&DataKey>) -> Result<Block, ZioError> {
        let Some(id) = Key::of(bp, key.is_some()) else { return self.read_device(bp, key) };
        if let Some(block) = self.cache.get(&id) {
            return Ok(block);
        }
        match self.in_flight.enter(&id) {
            Turn::Theirs(waiter) => self.wait_for(waiter, &id, bp, key),
            Turn::Ours(reader) => {
                if let Some(block) = self.cached_meanwhile(&id) {
                    reader.finish(&block);
                    return Ok(block);
                }
                let block = without_end(bp, self.read_device(bp, key)?);
                self.cache.insert(id, block.clone());
                reader.finish(&block);
                Ok(block)
            }
        }
    }

    /// The block, if another thread has read it after this thread has looked in the cache and before it got the
    /// right to read.
    fn cached_meanwhile(&self, id: &Key) -> Option<Block> {
        if self.cache.has(id) { self.cache.get(id) } else { None }
    }

    /// The block that another thread reads, or if that fails, the result of an own read.
    fn wait_for(
        &self,
        waiter: Waiter,
        id: &Key,
        bp: &BlockPtr,
        key: Option<&DataKey>,
    ) -> Result<Block, ZioError> {
        match waiter.wait() {
            Some(block) => {
                self.cache.note_use(id);
                Ok(block)
            }
            None => self.read_device(bp, key),
        }
    }

    /// The contents of data blocks, each with an error of its own, in the order of `bps`. Blocks that are
    /// neither cached nor being read by another thread are read from the devices in one batch, which takes
    /// the memory of all its blocks.
    pub(crate) fn read_many(&self, bps: &[BlockPtr], key: Option<&DataKey>) -> Vec<Result<Block, ZioError>> {
        let mut results: Vec<Option<Result<Block, ZioError>>> = Vec::with_capacity(bps.len());
        let mut readers = Vec::new();
        let mut waiters = Vec::new();
        for (at, bp) in bps.iter().enumerate() {
            let Some(id) = Key::of(bp, key.is_some()) else {
                results.push(Some(self.read_device(bp, key)));
                continue;
            };
            let mut cached = self.cache.get(&id);
            if cached.is_none() {
                match self.in_flight.enter(&id) {
                    Turn::Ours(reader) => match self.cached_meanwhile(&id) {
                        Some(block) => {
                            reader.finish(&block);
                            cached = Some(block);
                        }
                        None => readers.push((at, reader)),
                    },
                    Turn::Theirs(waiter) => waiters.push((at, id, waiter)),
                }
            }
            results.push(cached.map(Ok));
        }
        let mut set = |at: usize, result| {
            if let Some(slot) = results.get_mut(at) {
                *slot = Some(result);
            }
        };
        self.read_batch(bps, readers, key, &mut |at, reader, read| {
            if let Ok(block) = &read {
                self.cache.insert(reader.key(), block.clone());
                reader.finish(block);
            }
            set(at, read);
        });
        // Wait only now: this thread reads no block of the batch any more, so no other thread waits for it.
        for (at, id, waiter) in waiters {
            if let Some(bp) = bps.get(at) {
                set(at, self.wait_for(waiter, &id, bp, key));
            }
        }
        bps.iter()
            .zip(results)
            .map(|(bp, result)| result.unwrap_or_else(|| self.read_device(bp, key)))
            .collect()
    }

    /// Reads blocks of `bps`, by their positions, from the devices in one batch. `sink` gets each as soon as
    /// it is decoded, with the right to read it.
    fn read_batch<'r>(
        &self,
        bps: &[BlockPtr],
        readers: Vec<(usize, Reader<'r>)>,
        key: Option<&DataKey>,
        sink: &mut dyn FnMut(usize, Reader<'r>, Result<Block, ZioError>),
    ) {
        let wanted: Vec<BlockPtr> = readers.iter().filter_map(|(at, _)| bps.get(*at).copied()).collect();
        let mut readers = readers.into_iter().zip(&wanted);
        self.zio.read_each(&wanted, &ReadPolicy { key, every_copy: false }, &mut |read| {
            if let Some(((at, reader), bp)) = readers.next() {
                sink(at, reader, read.map(|block| without_end(bp, block)));
            }
        });
    }

    /// The contents of a data block without a checksum, read by a pointer that may be old. `stands` is called
    /// after the devices were read, and tells whether the block is still there. `None`: it is not, and the
    /// bytes are dropped.
    ///
    /// # Errors
    /// [`ZioError`] if the block cannot be read, decrypted or decompressed.
    pub(crate) fn read_standing(
        &self,
        bp: &BlockPtr,
        key: Option<&DataKey>,
        stands: &dyn Fn() -> bool,
    ) -> Result<Option<Block>, ZioError> {
        let Some(id) = Key::of(bp, key.is_some()) else { return self.read_device(bp, key).map(Some) };
        if let Some(block) = self.cache.get(&id) {
            // The reader that has cached it may also have used an old pointer.
            return Ok(stands().then_some(block));
        }
        match self.in_flight.enter(&id) {
            Turn::Theirs(waiter) => {
                let block = match waiter.wait() {
                    Some(block) => block,
                    None => self.read_device(bp, key)?,
                };
                if !stands() {
                    return Ok(None);
                }
                self.cache.note_use(&id);
                Ok(Some(block))
            }
            Turn::Ours(reader) => {
                let block = self.read_device(bp, key)?;
                if !stands() {
                    return Ok(None);
                }
                self.cache.insert(id, block.clone());
                reader.finish(&block);
                Ok(Some(block))
            }
        }
    }

    /// The stored bytes of blocks, neither decrypted nor decompressed, each with an error of its own, in the order of
    /// `bps`. They are read in one batch, past the cache, which has the contents of blocks.
    pub(crate) fn stored_many(&self, bps: &[BlockPtr]) -> Vec<Result<Vec<u8>, ZioError>> {
        self.zio.read_physical_many(bps, &ReadPolicy::default())
    }

    fn read_device(&self, bp: &BlockPtr, key: Option<&DataKey>) -> Result<Block, ZioError> {
        self.zio.read(bp, &ReadPolicy { key, every_copy: false })
    }

    /// Reads blocks into the cache ahead of their requests, in one batch: those that are neither cached nor
    /// being read, and that `stands` accepts after the read. Errors are left to the reader that requests the
    /// block.
    pub(crate) fn read_ahead(
        &self,
        bps: &[BlockPtr],
        key: Option<&DataKey>,
        stands: &dyn Fn(&BlockPtr) -> bool,
    ) {
        let _ahead = PriorityGuard::begin(Priority::AsyncRead);
        let mut readers = Vec::new();
        for (at, bp) in bps.iter().enumerate() {
            if let Some(id) = Key::of(bp, key.is_some())
                && !self.cache.has(&id)
                && let Turn::Ours(reader) = self.in_flight.enter(&id)
                // Another thread may have cached it in between.
                && !self.cache.has(&id)
            {
                readers.push((at, reader));
            }
        }
        self.read_batch(bps, readers, key, &mut |at, reader, read| {
            if let (Some(bp), Ok(block)) = (bps.get(at), read)
                && stands(bp)
            {
                self.cache.insert_ahead(reader.key(), block.clone(), is_content(bp));
                reader.finish(&block);
            }
        });
    }

    /// Allows read-ahead. Its threads start on demand, and end with the store at the latest.
    pub fn start_prefetch(&self) {
        self.prefetch.start();
    }

    /// Ends the read-ahead threads. Returns when they read no block any more. Called before devices are
    /// closed.
    pub fn stop_prefetch(&self) {
        self.prefetch.stop();
    }

    /// Drops all waiting read-ahead: after this, every holder of a reference is a real user.
    pub fn drain_prefetch(&self) {
        self.prefetch.drain();
    }

    /// Whether submitted tasks would run now.
    pub fn can_prefetch(&self) -> bool {
        self.prefetch.has_room()
    }

    /// Submits tasks to the read-ahead threads; those that do not fit into their queue are dropped.
    pub fn prefetch(&self, tasks: impl IntoIterator<Item = Box<dyn FnOnce() + Send>>) {
        self.prefetch.submit(tasks.into_iter().map(|task| task as Task));
    }

    /// Notes a read of an object in `streams`, and makes other threads read the blocks that its readers are
    /// expected to need next. `read_ahead` makes the task that reads some blocks.
    pub(crate) fn follow(
        &self,
        streams: &Mutex<Streams>,
        read: &RangeRead,
        read_ahead: &dyn Fn(Vec<u64>) -> Task,
    ) {
        let (first, end) = read.blocks();
        if read.max_block == 0 || first >= end {
            return;
        }
        let Some(ahead) = lock(streams).note(first, end, read.block_size) else { return };
        if self.can_prefetch() {
            let blocks: Vec<u64> = ahead.blocks(read.max_block).collect();
            let together = (AHEAD_BYTES / read.block_size).clamp(1, BATCH_BLOCKS) as usize;
            self.prefetch.submit(blocks.chunks(together).map(|chunk| read_ahead(chunk.to_vec())));
        }
    }
}

/// A read of a range of an object.
pub(crate) struct RangeRead {
    pub(crate) offset: u64,
    /// Number of bytes.
    pub(crate) len: u64,
    /// Bytes of a data block of the object.
    pub(crate) block_size: u64,
    /// The highest block number of the object.
    pub(crate) max_block: u64,
}

impl RangeRead {
    /// The first block, and one past the last.
    fn blocks(&self) -> (u64, u64) {
        let end = self.offset.saturating_add(self.len).div_ceil(self.block_size);
        (self.offset / self.block_size, if self.len == 0 { 0 } else { end })
    }
}

/// Whether a block has file contents.
fn is_content(bp: &BlockPtr) -> bool {
    bp.level() == Level(0) && !bp.obj_type().is_metadata()
}

/// The form in which a block is cached: an indirect block without the pointers at its end that were never
/// written, if they are most of it. A new object set has six of 128 KiB above its first dnodes, with one
/// pointer each.
fn without_end(bp: &BlockPtr, block: Block) -> Block {
    let bytes = block.bytes();
    if bp.level() == Level(0) {
        return block;
    }
    let (pointers, _) = bytes.as_chunks::<BLKPTR_SIZE>();
    let last = pointers.iter().rposition(|pointer| *pointer != [0; BLKPTR_SIZE]);
    let used = last.map_or(0, |last| (last + 1) * BLKPTR_SIZE);
    match bytes.get(..used) {
        Some(used) if used.len() <= bytes.len() / 2 => Block::new(used.to_vec(), block.order()),
        _ => block,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::NoLedger;
    use crate::{Limits, LiveSet, NewObject, SetPolicy, Txgs};
    use format::objset::ObjsetType;
    use format::{ObjType, Txg};
    use zio::testing::memory_pool;

    #[test]
    fn a_record_that_is_overwritten_leaves_the_cache() {
        let size = 1 << 20;
        let store = Store::new(memory_pool(1 << 30), 64 << 20);
        let txgs = Txgs::new(Txg(3), Limits::default());
        let tx = txgs.begin().expect("open");
        let set = LiveSet::create(&store, txgs.meter(), 7, ObjsetType::Other, SetPolicy::dataset(), &tx);
        let new = NewObject::of(ObjType::PLAIN_FILE).with_block_size(size);
        let object = set.allocate(&new, &tx).expect("made");
        drop(tx);
        for round in 1..=20 {
            let tx = txgs.begin().expect("open");
            object.put_block(BlockId(0), vec![round; size as usize], &tx).expect("put");
            drop(tx);
            let tx = txgs.quiesce();
            set.sync(&tx, &mut NoLedger).expect("synced");
            txgs.finish(tx);
        }
        let held = store.cache().bytes() as u64;
        assert!((size..3 * size).contains(&held), "{held} bytes for one record of {size}");
        let before = store.cache().stats();
        assert_eq!(
            object.block(BlockId(0)).expect("readable").expect("there").bytes(),
            vec![20; size as usize]
        );
        assert_eq!(store.cache().stats().misses, before.misses, "the newest is there");
    }

    /// The tree of a new meta-dnode has room for all possible dnodes, and nearly none.
    #[test]
    fn pointers_that_were_never_written_take_no_memory() {
        let store = Store::new(memory_pool(1 << 30), 64 << 20);
        let txgs = Txgs::new(Txg(3), Limits::default());
        let tx = txgs.begin().expect("open");
        let set = LiveSet::create(&store, txgs.meter(), 7, ObjsetType::Other, SetPolicy::dataset(), &tx);
        let new = NewObject::of(ObjType::PLAIN_FILE).with_block_size(512);
        let object = set.allocate(&new, &tx).expect("made");
        // Far enough for two levels of indirect blocks.
        object.put_block(BlockId(1 << 12), vec![7; 512], &tx).expect("put");
        drop(tx);
        let tx = txgs.quiesce();
        set.sync(&tx, &mut NoLedger).expect("synced");
        txgs.finish(tx);
        let written = store.cache().bytes();
        let top = object.read().dnode().blkptrs.first().copied().expect("one");
        assert!(top.level() > Level(0) && !top.is_hole());
        let cut = store.pointers(&top, None).expect("readable");
        let whole = store.read(&top, None).expect("readable");
        assert_eq!(whole.bytes().len() as u64, top.lsize().0, "who asks for all of it gets that");
        assert!(cut.bytes().len() < whole.bytes().len() / 8);
        assert_eq!(cut.bytes(), whole.bytes().get(..cut.bytes().len()).expect("shorter"));
        assert!(whole.bytes().iter().skip(cut.bytes().len()).all(|byte| *byte == 0));
        let key = Key::of(&top, false).expect("not a hole");
        store.cache().forget(&key);
        assert_eq!(store.read(&top, None).expect("readable").bytes(), whole.bytes(), "from the device too");
        assert_eq!(object.block(BlockId(1 << 12)).expect("readable").expect("there").bytes(), vec![7; 512]);
        assert!(object.block(BlockId(1 << 11)).expect("readable").is_none());
        assert!(written < 64 << 10 && store.cache().bytes() < 64 << 10, "{written} bytes");
    }
}
