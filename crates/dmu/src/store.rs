//! The block layer with the cache in front.

use crate::arc::{Arc as BlockCache, Key};
use codec::crypt::DataKey;
use format::BlockPtr;
use std::sync::{Arc, OnceLock};
use zio::{Block, ReadPolicy, Zio, ZioError};

/// Where the blocks of a pool come from.
pub struct Store {
    zio: Arc<Zio>,
    cache: BlockCache,
    capacity: OnceLock<u64>,
}

impl Store {
    /// The blocks of `zio`, with a cache of at most `cache_bytes` in front.
    pub fn new(zio: Arc<Zio>, cache_bytes: usize) -> Arc<Store> {
        Arc::new(Store { zio, cache: BlockCache::new(cache_bytes), capacity: OnceLock::new() })
    }

    /// The block layer.
    pub fn zio(&self) -> &Arc<Zio> {
        &self.zio
    }

    /// The cache.
    pub fn cache(&self) -> &BlockCache {
        &self.cache
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

    /// The contents of a block, from the cache or from the devices.
    pub fn read(&self, bp: &BlockPtr, key: Option<&DataKey>) -> Result<Block, ZioError> {
        let cached_as = Key::of(bp, key.is_some());
        if let Some(block) = cached_as.and_then(|id| self.cache.get(&id)) {
            return Ok(block);
        }
        let block = self.zio.read(bp, &ReadPolicy { key, every_copy: false })?;
        if let Some(id) = cached_as {
            self.cache.insert(id, block.clone());
        }
        Ok(block)
    }
}
