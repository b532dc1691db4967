//! ZAPs of hostile blocks: every walk ends, and what a walk finds has the promised order.

use cenote_dmu::DmuError;
use cenote_dmu::zap::{Match, Zap, ZapBlocks, prepare};
use format::{BlockId, Endian, ObjectId};
use std::sync::Arc;
use testkit::alloc::Counting;
use testkit::fuzz::Target;
use zio::Block;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn target(name: &str) -> Target {
    Target::new(env!("CARGO_MANIFEST_DIR"), name)
}

/// Blocks in memory, all of one size.
struct Blocks {
    size: usize,
    blocks: Vec<Block>,
}

impl ZapBlocks for Blocks {
    fn block_size(&self) -> u64 {
        self.size as u64
    }

    fn max_block(&self) -> BlockId {
        BlockId(self.blocks.len().saturating_sub(1) as u64)
    }

    fn block(&self, id: BlockId) -> Result<Option<Block>, DmuError> {
        Ok(usize::try_from(id.0).ok().and_then(|id| self.blocks.get(id)).cloned())
    }
}

/// A byte whose bit 0 is the byte order, log2 of the block size, then the blocks.
#[test]
fn whole_zaps() {
    // A walk holds one leaf at a time, decoded and sorted.
    bolero::check!().for_each(target("whole_zaps").bound(64 << 10, 64).checked(|input| {
        let Some(([options, shift], bytes)) = input.split_first_chunk() else { return false };
        let order = if options & 1 == 1 { Endian::Big } else { Endian::Little };
        let size = 1usize << (9 + (shift.wrapping_sub(9)) % 8);
        let block = |chunk: &[u8]| {
            let mut chunk = chunk.to_vec();
            chunk.resize(size, 0);
            Block::new(chunk, order)
        };
        let blocks: Vec<Block> = bytes.chunks(size).map(block).collect();
        let count = blocks.len();
        let Ok(zap) = Zap::over(Arc::new(Blocks { size, blocks }), 0, ObjectId(1)) else { return false };
        walk(&zap, size, count)
    }));
}

/// True when entries were found.
fn walk(zap: &Zap, size: usize, count: usize) -> bool {
    // Each slot of the pointer table may lead to a leaf with an entry per chunk, and reports damage once.
    let most = (size / 16 + size / 24) * (size / 24 + 1) * count.max(1);
    let (mut last, mut found) = (0, 0);
    for item in zap.entries().take(1000) {
        found += 1;
        let Ok(entry) = item else { continue };
        assert!(entry.hash >= last, "{:x} after {last:x}", entry.hash);
        last = entry.hash;
        if found < 5 {
            let _ = (zap.lookup(entry.name()), entry.u64(), entry.u64s(), entry.string());
            assert!(
                zap.entries_from(entry.cursor)
                    .take(20)
                    .all(|next| next.is_err() || { next.is_ok_and(|next| next.hash >= entry.hash) })
            );
        }
    }
    if found == 1000 {
        assert!(zap.entries().count() <= most);
    }
    let _ = zap.lookup_matching("Ünïcode".as_bytes(), Match::Normalized);
    let _ = zap.lookup_words(&[last]);
    let _ = (zap.stats(), zap.count());
    found > 0
}

/// A byte of flags, then the name.
#[test]
fn prepared_names() {
    bolero::check!().for_each(target("prepared_names").bound(64 << 10, 256).checked(|input| {
        let Some((flags, name)) = input.split_first() else { return false };
        let flags = u64::from(*flags);
        let once = prepare(name, flags);
        // No character becomes more than eighteen, of at most four bytes each.
        assert!(once.len() <= 72 * name.len());
        if std::str::from_utf8(name).is_ok() {
            assert!(std::str::from_utf8(&once).is_ok());
        }
        !name.is_empty()
    }));
}
