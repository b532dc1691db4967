//! ZAPs of hostile blocks: every walk ends, and what a walk finds has the promised order.

use cenote_dmu::DmuError;
use cenote_dmu::zap::{Match, Zap, ZapBlocks, prepare};
use format::zap::{FAT_MAGIC, FAT_TYPE, LEAF_MAGIC, LEAF_TYPE, MICRO_MAGIC};
use format::{BlockId, Endian, ObjectId};
use std::sync::Arc;
use zio::Block;

const SIZE: usize = 512;

/// Blocks in memory, all of one size.
struct Blocks(Vec<Block>);

impl ZapBlocks for Blocks {
    fn block_size(&self) -> u64 {
        SIZE as u64
    }

    fn max_block(&self) -> BlockId {
        BlockId(self.0.len().saturating_sub(1) as u64)
    }

    fn block(&self, id: BlockId) -> Result<Option<Block>, DmuError> {
        Ok(usize::try_from(id.0).ok().and_then(|id| self.0.get(id)).cloned())
    }
}

fn put(block: &mut [u8], at: usize, value: &[u8]) {
    block[at..at + value.len()].copy_from_slice(value);
}

/// Cuts the input into blocks and writes what would otherwise stop the decoder at once.
fn blocks(input: &[u8], order: Endian, micro: bool) -> Vec<Block> {
    let mut blocks: Vec<Vec<u8>> = input.chunks(SIZE).map(<[u8]>::to_vec).collect();
    for (i, block) in blocks.iter_mut().enumerate() {
        block.resize(SIZE, 0);
        if i > 0 {
            put(block, 0, &order.put_u64(LEAF_TYPE));
            put(block, 24, &order.put_u32(LEAF_MAGIC));
            // A prefix of few bits fits the pointer table more often.
            let (prefix, len) = (block[23] % 4, block[33] % 6);
            put(block, 16, &order.put_u64(prefix.into()));
            put(block, 32, &order.put_u16(len.into()));
        } else if micro {
            put(block, 0, &order.put_u64(MICRO_MAGIC));
        } else {
            let words = [FAT_TYPE, FAT_MAGIC, 0, 0, 5, 0, 0, 4];
            for (i, word) in words.into_iter().enumerate() {
                put(block, 8 * i, &order.put_u64(word));
            }
            for slot in 0..32 {
                let at = SIZE / 2 + 8 * slot;
                let leaf = block[at] % 5;
                put(block, at, &order.put_u64(leaf.into()));
            }
        }
    }
    blocks.into_iter().map(|block| Block::new(block, order)).collect()
}

#[test]
fn hostile_zaps() {
    bolero::check!().with_type::<(bool, bool, u64, Vec<u8>)>().with_max_len(4096).for_each(
        |(big, micro, cursor, input)| {
            let order = if *big { Endian::Big } else { Endian::Little };
            let blocks = blocks(input, order, *micro);
            let count = blocks.len();
            let Ok(zap) = Zap::over(Arc::new(Blocks(blocks)), 0, ObjectId(1)) else { return };
            let items: Vec<_> = zap.entries().collect();
            // A table of 32 slots, each with a leaf of at most 18 chunks and one report of damage.
            assert!(items.len() <= 32 * 19 * count.max(1));
            let entries: Vec<_> = items.into_iter().flatten().collect();
            assert!(entries.is_sorted_by_key(|entry| entry.hash));
            for entry in entries.iter().take(4) {
                let _ = zap.lookup(entry.name());
                let _ = (entry.u64(), entry.u64s(), entry.string());
            }
            let _ = zap.lookup_matching("Ünïcode".as_bytes(), Match::Normalized);
            let _ = zap.lookup_words(&[*cursor]);
            assert!(zap.entries_from(*cursor).count() <= 32 * 19 * count.max(1));
            let _ = zap.stats();
        },
    );
}

#[test]
fn any_name_is_prepared() {
    bolero::check!().with_type::<(u8, Vec<u8>)>().for_each(|(flags, name)| {
        let flags = u64::from(*flags);
        let once = prepare(name, flags);
        // No character becomes more than eighteen, of at most four bytes each.
        assert!(once.len() <= 72 * name.len());
        if std::str::from_utf8(name).is_ok() {
            assert!(std::str::from_utf8(&once).is_ok());
        }
    });
}
