//! The last blocks of a range: the part of an object that can be freed in one txg.
//!
//! The blocks that a sync frees are listed in memory, so a large range is freed in steps, from the end. Holes
//! are skipped as the tree shows them, not one by one.
//!
//! Tests: below, against a bitmap.

use crate::DmuError;
use crate::object::cell::POINTER_COST;
use crate::object::live::LiveObject;
use std::ops::Range;
use zio::AllocTx;

/// Number of blocks that are counted at once.
const STRETCH: u64 = 1024;
/// Blocks of the tree above a stretch that freeing it also changes.
const ABOVE: u64 = 8;

/// The start of the last blocks of a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tail {
    /// Offset in bytes: the start of a block, or that of the range if no data are before it.
    pub start: u64,
    /// Number of blocks from there to the end, those of the tree included. Approximate.
    pub blocks: u64,
}

impl LiveObject {
    /// Finds the last blocks of a range of bytes: at least one, if there is any, and about `max` at most.
    pub fn tail(&self, range: &Range<u64>, max: u64) -> Result<Tail, DmuError> {
        let size = self.block_size();
        let first = range.start / size;
        let mut end = range.end.div_ceil(size).min(self.max_block().0.saturating_add(1));
        let mut blocks = 0;
        while let Some(last) = self.last_data(first, end)? {
            if blocks >= max {
                return Ok(Tail { start: end.saturating_mul(size), blocks });
            }
            let from = (last + 1).saturating_sub(STRETCH.min(max - blocks)).max(first);
            blocks = blocks.saturating_add(self.count_data(from..last + 1)?).saturating_add(ABOVE);
            end = from;
        }
        Ok(Tail { start: range.start, blocks })
    }

    /// Notes that so many blocks were freed: until that is written, their pointers count as dirty memory.
    pub fn note_freed(&self, blocks: u64, tx: &dyn AllocTx) {
        self.set().meter.add(tx.txg(), blocks.saturating_mul(POINTER_COST));
    }

    fn data_within(&self, range: Range<u64>) -> Result<Option<u64>, DmuError> {
        Ok(self.next_block(range.start, true)?.filter(|block| *block < range.end))
    }

    /// The last of these blocks that is no hole. Looks twice as far back each time, then bisects.
    fn last_data(&self, first: u64, end: u64) -> Result<Option<u64>, DmuError> {
        let (mut end, mut width) = (end, 1_u64);
        let mut last = loop {
            let from = end.saturating_sub(width).max(first);
            if from >= end {
                return Ok(None);
            }
            if let Some(found) = self.data_within(from..end)? {
                break found;
            }
            (end, width) = (from, width.saturating_mul(2));
        };
        while end - last > 1 {
            let middle = last + (end - last) / 2;
            match self.data_within(middle..end)? {
                Some(found) => last = found,
                None => end = middle,
            }
        }
        Ok(Some(last))
    }

    fn count_data(&self, range: Range<u64>) -> Result<u64, DmuError> {
        let (mut at, mut count) = (range.start, 0);
        while let Some(data) = self.data_within(at..range.end)? {
            let hole = self.next_block(data, false)?.map_or(range.end, |hole| hole.min(range.end));
            at = hole.max(data + 1);
            count += at - data;
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use crate::{Env, Store};
    use crate::{LiveSet, NewObject, SetPolicy, Txgs};
    use format::objset::ObjsetType;
    use format::{BlockId, BlockPtr, ObjType, Txg};
    use std::collections::BTreeSet;
    use zio::testing::memory_pool;

    struct Kept;

    impl crate::Ledger for Kept {
        fn born(&mut self, _: &BlockPtr) {}

        fn killed(&mut self, _: &BlockPtr) {}
    }

    #[test]
    fn the_tail_is_that_of_a_model() {
        let (env, _) = Env::simulated(5);
        let below = |limit: u64| env.random() % limit;
        let store = Store::new(memory_pool(1 << 30), 16 << 20);
        let txgs = Txgs::new(Txg(3), crate::Limits::default());
        let tx = txgs.begin().expect("open");
        let set = LiveSet::create(&store, txgs.meter(), 7, ObjsetType::Other, SetPolicy::dataset(), &tx);
        let new = NewObject::of(ObjType::PLAIN_FILE).with_block_size(512);
        let object = set.allocate(&new, &tx).expect("made");
        drop(tx);
        let mut model = BTreeSet::new();
        for round in 0..60 {
            let tx = txgs.begin().expect("open");
            for _ in 0..below(8) {
                // Far apart, or in runs.
                let at = below(1 << (4 + below(50)));
                for block in at..=at + below(40) {
                    object.put_block(BlockId(block), vec![1; 512], &tx).expect("put");
                    model.insert(block);
                }
            }
            drop(tx);
            if below(2) == 0 {
                let tx = txgs.quiesce();
                set.sync(&tx, &mut Kept).expect("synced");
                txgs.finish(tx);
            }
            let (first, max) = (below(1 << 20), 1 + below(60));
            let end = if below(3) == 0 { 1 << 54 } else { first + below(1 << 20) };
            let tail = object.tail(&(first * 512..end * 512), max).expect("readable");
            let start = tail.start / 512;
            let count = model.range(start..end.max(start)).count() as u64;
            let rest = if start > first { model.range(first..start).count() } else { 0 };
            assert!(count <= max && tail.blocks >= count, "round {round}: {tail:?}, {count} of {max}");
            assert_eq!(rest > 0, tail.start > first * 512, "round {round}");
            assert!(count > 0 || rest == 0, "round {round}");
            let tx = txgs.begin().expect("open");
            object.free_range(tail.start, end * 512 - tail.start, &tx).expect("freed");
            drop(tx);
            model.retain(|block| !(start..end).contains(block));
        }
    }
}
