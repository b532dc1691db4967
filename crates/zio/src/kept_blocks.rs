//! Blocks of a txg that are kept in memory until a flush has made them durable, so that they can be written
//! again if a device loses them.

use format::{Dva, Txg, VdevId};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Most bytes of blocks that are kept before a flush.
const KEPT_MAX: usize = 64 << 20;
/// Bytes of kept blocks in one batch of rewrites.
const BATCH: usize = 8 << 20;

/// A block that may not be durable yet.
pub(crate) struct KeptBlock {
    pub(crate) places: Vec<Dva>,
    pub(crate) birth: Txg,
    pub(crate) bytes: Arc<Vec<u8>>,
}

/// The blocks of a txg that may not be durable yet, by their first address: an overwritten block is replaced.
#[derive(Default)]
pub(crate) struct KeptBlocks {
    blocks: BTreeMap<(VdevId, u64), KeptBlock>,
    bytes: usize,
    /// Whether all blocks written since the last flush are kept.
    is_complete: bool,
    /// Devices have been gone meanwhile, and may have lost their volatile caches.
    pub(crate) is_suspect: bool,
}

impl KeptBlocks {
    /// An empty set, just after a flush. `is_complete`: all blocks that are written from now on are added.
    pub(crate) fn begin(is_complete: bool) -> KeptBlocks {
        KeptBlocks { is_complete, ..KeptBlocks::default() }
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Notes that a block was written that cannot be kept: until the next flush none can be written again.
    pub(crate) fn give_up(&mut self) {
        self.is_complete = false;
    }

    pub(crate) fn add(&mut self, places: Vec<Dva>, birth: Txg, bytes: Arc<Vec<u8>>) {
        let Some(first) = places.first().map(|dva| (dva.vdev, dva.offset.0)) else { return };
        self.bytes += bytes.len();
        if let Some(old) = self.blocks.insert(first, KeptBlock { places, birth, bytes }) {
            self.bytes -= old.bytes.len();
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.bytes >= KEPT_MAX
    }

    /// Batches that are written one after the other.
    pub(crate) fn batches(&self) -> Vec<Vec<&KeptBlock>> {
        let mut batches = vec![Vec::new()];
        let mut bytes = 0;
        for block in self.blocks.values() {
            bytes += block.bytes.len();
            if let Some(last) = batches.last_mut() {
                last.push(block);
            }
            if bytes >= BATCH {
                batches.push(Vec::new());
                bytes = 0;
            }
        }
        batches
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use format::{AllocOffset, Asize};

    #[test]
    fn what_is_overwritten_in_its_place_counts_once() {
        let place =
            |offset| Dva { vdev: VdevId(0), offset: AllocOffset(offset), asize: Asize(512), gang: false };
        let mut kept = KeptBlocks::default();
        kept.add(vec![place(0)], Txg(4), Arc::new(vec![1; 512]));
        kept.add(vec![place(512)], Txg(4), Arc::new(vec![2; 512]));
        kept.add(vec![place(0)], Txg(4), Arc::new(vec![3; 512]));
        let batches = kept.batches();
        let found: Vec<u8> = batches.iter().flatten().map(|block| block.bytes[0]).collect();
        assert_eq!((found, kept.bytes), (vec![3, 2], 1024));
    }
}
