//! The block layer with the cache in front.

use crate::DmuError;
use crate::arc::{Arc as BlockCache, Key};
use crate::prefetch::{Prefetch, Task};
use crate::reading::{Reading, Turn};
use codec::crypt::DataKey;
use format::blkptr::BLKPTR_SIZE;
use format::{BlockId, BlockPtr, Endian, Level, ObjectId};
use std::sync::{Arc, OnceLock};
use zio::write::NewBlock;
use zio::{AllocTx, Block, Priority, PriorityGuard, ReadPolicy, Zio, ZioError};

/// Hears of data that could not be read, by whoever asked for it.
pub trait Witness: Send + Sync {
    /// Block `blkid` of an object could not be read from any device. Called on the reader's thread, so it is to be quick; the
    /// reader may have looked at a state of the pool that is gone meanwhile.
    fn unreadable(&self, objset: u64, object: ObjectId, blkid: BlockId);
}

/// Where the blocks of a pool come from.
pub struct Store {
    zio: Arc<Zio>,
    cache: BlockCache,
    capacity: OnceLock<u64>,
    env: OnceLock<zio::Env>,
    reading: Reading,
    prefetch: Prefetch,
    witness: OnceLock<Arc<dyn Witness>>,
}

impl Store {
    /// The blocks of `zio`, with a cache of at most `cache_bytes` in front.
    pub fn new(zio: Arc<Zio>, cache_bytes: usize) -> Arc<Store> {
        Arc::new(Store {
            zio,
            cache: BlockCache::new(cache_bytes),
            capacity: OnceLock::new(),
            env: OnceLock::new(),
            reading: Reading::new(),
            prefetch: Prefetch::default(),
            witness: OnceLock::new(),
        })
    }

    /// The block layer.
    pub fn zio(&self) -> &Arc<Zio> {
        &self.zio
    }

    /// The cache.
    pub fn cache(&self) -> &BlockCache {
        &self.cache
    }

    /// Who hears of data that cannot be read. A second call changes nothing.
    pub fn set_witness(&self, witness: Arc<dyn Witness>) {
        let _ = self.witness.set(witness);
    }

    /// Passes on an error that a reader of a data block gets, if it is one of the devices.
    pub(crate) fn tell(&self, error: &DmuError, blkid: BlockId) {
        if let (Some(witness), DmuError::Zio { objset, object, source: ZioError::Unreadable { .. } }) =
            (self.witness.get(), error)
        {
            witness.unreadable(*objset, *object, blkid);
        }
    }

    /// More bytes than all blocks of the pool can take together: twice what its devices have if all
    /// of them are as large as the largest that is there.
    pub(crate) fn capacity(&self) -> u64 {
        *self.capacity.get_or_init(|| {
            let tree = self.zio.tree();
            let leaves = tree.leaf_guids();
            let sizes = leaves.iter().filter_map(|leaf| tree.device(*leaf)).map(|device| device.size());
            let largest = sizes.max().unwrap_or(u64::MAX);
            largest.saturating_mul(2 * leaves.len() as u64)
        })
    }

    /// Clock, random numbers and workers of whoever writes.
    pub fn set_env(&self, env: zio::Env) {
        let _ = self.env.set(env);
    }

    /// Clock, random numbers and workers: those given to [`Store::set_env`], or the system's.
    pub fn env(&self) -> &zio::Env {
        self.env.get_or_init(zio::Env::system)
    }

    /// Writes blocks; their pointers in the order of `blocks`. What was written is in the cache afterwards, and
    /// what stood there before is not: seldom does a snapshot want it, and with every change of a record one more would
    /// push out what is in use.
    pub fn write_many(&self, blocks: &[NewBlock], tx: &dyn AllocTx) -> Vec<Result<BlockPtr, ZioError>> {
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
            let Some(id) = Key::of(bp, false) else {
                old.inspect(|old| self.cache.forget(old));
                continue;
            };
            let data = Block::shared(Arc::clone(&block.data), Endian::Little);
            self.cache.renew(old.as_ref(), id, without_end(bp, data), is_content(bp));
        }
        written
    }

    /// The contents of a block, from the cache or from the devices.
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

    /// The pointers of an indirect block, from the cache or from the devices. Those that are missing at its end were never
    /// written: they are [`BlockPtr::HOLE`].
    pub fn pointers(&self, bp: &BlockPtr, key: Option<&DataKey>) -> Result<Block, ZioError> {
        self.read_kept(bp, key)
    }

    fn read_kept(&self, bp: &BlockPtr, key: Option<&DataKey>) -> Result<Block, ZioError> {
        let Some(id) = Key::of(bp, key.is_some()) else { return self.read_device(bp, key) };
        if let Some(block) = self.cache.get(&id) {
            return Ok(block);
        }
        match self.reading.enter(&id) {
            Turn::Theirs(Some(block)) => {
                self.cache.note_use(&id);
                Ok(block)
            }
            Turn::Theirs(None) => self.read_device(bp, key),
            Turn::Ours(mut ours) => {
                let block = without_end(bp, self.read_device(bp, key)?);
                self.cache.insert(id, block.clone());
                ours.read(&block);
                Ok(block)
            }
        }
    }

    /// The contents of a data block that nothing tells from others, by a pointer that may be old. `stands`, asked after the
    /// devices were read: the block stands there still. `None`: it does not, and nobody gets what was read.
    pub(crate) fn read_standing(
        &self,
        bp: &BlockPtr,
        key: Option<&DataKey>,
        stands: &dyn Fn() -> bool,
    ) -> Result<Option<Block>, ZioError> {
        let Some(id) = Key::of(bp, key.is_some()) else { return self.read_device(bp, key).map(Some) };
        if let Some(block) = self.cache.get(&id) {
            // Whoever has put it there may have read it by an old pointer as well.
            return Ok(stands().then_some(block));
        }
        let turn = self.reading.enter(&id);
        let block = match &turn {
            Turn::Theirs(Some(block)) => block.clone(),
            Turn::Theirs(None) | Turn::Ours(_) => self.read_device(bp, key)?,
        };
        if !stands() {
            return Ok(None);
        }
        match turn {
            Turn::Theirs(_) => self.cache.note_use(&id),
            Turn::Ours(mut ours) => {
                self.cache.insert(id, block.clone());
                ours.read(&block);
            }
        }
        Ok(Some(block))
    }

    fn read_device(&self, bp: &BlockPtr, key: Option<&DataKey>) -> Result<Block, ZioError> {
        self.zio.read(bp, &ReadPolicy { key, every_copy: false })
    }

    /// Brings a block into the cache before it is asked for, if it `stands` where it was read. What goes wrong is told to
    /// whoever asks for it.
    pub(crate) fn read_ahead(&self, bp: &BlockPtr, key: Option<&DataKey>, stands: &dyn Fn() -> bool) {
        let Some(id) = Key::of(bp, key.is_some()) else { return };
        if self.cache.has(&id) {
            return;
        }
        let _ahead = PriorityGuard::begin(Priority::AsyncRead);
        if let Turn::Ours(mut ours) = self.reading.enter(&id)
            && !self.cache.has(&id)
            && let Ok(block) = self.read_device(bp, key)
            && stands()
        {
            let block = without_end(bp, block);
            self.cache.insert_ahead(id, block.clone(), is_content(bp));
            ours.read(&block);
        }
    }

    /// Starts the threads that read ahead; without them nothing is.
    pub fn start_prefetch(&self) {
        self.prefetch.start();
    }

    /// Ends them; returns when they read nothing any more. Before devices are closed.
    pub fn stop_prefetch(&self) {
        self.prefetch.stop();
    }

    /// Nothing that was to be read ahead is any more: whoever holds something now uses it.
    pub fn drain_prefetch(&self) {
        self.prefetch.drain();
    }

    /// Whether tasks would be done now.
    pub fn can_prefetch(&self) -> bool {
        self.prefetch.has_room()
    }

    /// Has something read ahead by another thread, or not at all.
    pub fn prefetch(&self, tasks: impl IntoIterator<Item = Box<dyn FnOnce() + Send>>) {
        self.prefetch.submit(tasks.into_iter().map(|task| task as Task));
    }
}

/// Whether a block is of what a file holds.
fn is_content(bp: &BlockPtr) -> bool {
    bp.level() == Level(0) && !bp.obj_type().is_metadata()
}

/// What is kept of a block: of one of pointers, without those at its end that were never written, where that is most of it. A
/// new object set has six of 128 KiB above its first dnodes, with one pointer each.
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

    /// Its meta-dnode has room for all dnodes that there may be, at first, and nearly none.
    #[test]
    fn pointers_that_were_never_written_take_no_memory() {
        let store = Store::new(memory_pool(1 << 30), 64 << 20);
        let txgs = Txgs::new(Txg(3), Limits::default());
        let tx = txgs.begin().expect("open");
        let set = LiveSet::create(&store, txgs.meter(), 7, ObjsetType::Other, SetPolicy::dataset(), &tx);
        let new = NewObject::of(ObjType::PLAIN_FILE).with_block_size(512);
        let object = set.allocate(&new, &tx).expect("made");
        // Far enough for two levels of pointers.
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
