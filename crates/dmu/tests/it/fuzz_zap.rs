//! Fuzz targets of ZAPs with hostile blocks: every walk ends, and yields entries in the promised order.

use cenote_dmu::DmuError;
use cenote_dmu::zap::{Match, Zap, ZapBlocks, ZapBlocksMut, ZapKey, ZapMut, ZapValue, prepare};
use format::{BlockId, Endian, ObjectId};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use testkit::fuzz::Target;
use zio::Block;

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

/// Input: a byte whose bit 0 is the byte order, log2 of the block size, then the blocks.
#[test]
fn whole_zaps() {
    // A walk holds one leaf at a time, decoded and sorted.
    bolero::check!(name = "whole_zaps").for_each(target("whole_zaps").bound(64 << 10, 64).checked(|input| {
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

/// Walks a ZAP. Returns true if it has entries.
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

/// Writable blocks in memory.
struct Disk {
    size: u64,
    blocks: Mutex<BTreeMap<u64, Block>>,
}

impl ZapBlocks for Disk {
    fn block_size(&self) -> u64 {
        self.size
    }

    fn max_block(&self) -> BlockId {
        BlockId(self.blocks.lock().unwrap().keys().next_back().copied().unwrap_or(0))
    }

    fn block(&self, id: BlockId) -> Result<Option<Block>, DmuError> {
        Ok(self.blocks.lock().unwrap().get(&id.0).cloned())
    }
}

impl ZapBlocksMut for Disk {
    fn put_block(&self, id: BlockId, bytes: Vec<u8>) -> Result<(), DmuError> {
        self.blocks.lock().unwrap().insert(id.0, Block::new(bytes, Endian::Little));
        Ok(())
    }

    fn change_block(&self, id: BlockId, change: &mut dyn FnMut(&mut [u8])) -> Result<(), DmuError> {
        let mut blocks = self.blocks.lock().unwrap();
        let block = blocks.get_mut(&id.0).expect("only blocks that are there are changed");
        assert_eq!(block.order(), Endian::Little);
        let mut bytes = block.bytes().to_vec();
        change(&mut bytes);
        *block = Block::new(bytes, Endian::Little);
        Ok(())
    }

    fn set_block_size(&self, _bytes: u64) -> Result<(), DmuError> {
        assert!(self.blocks.lock().unwrap().len() <= 1);
        Ok(())
    }

    fn free_blocks(&self, first: BlockId, count: u64) -> Result<(), DmuError> {
        self.blocks.lock().unwrap().retain(|id, _| *id < first.0 || *id - first.0 >= count);
        Ok(())
    }
}

/// Like `whole_zaps`; then the ZAP is changed. Entries that were added without an error are found.
#[test]
fn written_zaps() {
    // The pointer table grows to 2^22 slots at most for one entry.
    bolero::check!(name = "written_zaps").for_each(target("written_zaps").bound(96 << 20, 256).checked(
        |input| {
            let Some(([options, shift], bytes)) = input.split_first_chunk() else { return false };
            let order = if options & 1 == 1 { Endian::Big } else { Endian::Little };
            let size = 1usize << (9 + (shift.wrapping_sub(9)) % 8);
            let block = |(chunk, id): (&[u8], u64)| {
                let mut chunk = chunk.to_vec();
                chunk.resize(size, 0);
                (id, Block::new(chunk, order))
            };
            let blocks: BTreeMap<u64, Block> = bytes.chunks(size).zip(0..).map(block).collect();
            let disk = Disk { size: size as u64, blocks: Mutex::new(blocks) };
            let Ok(zap) = ZapMut::open(&disk, 0, ObjectId(1)) else { return false };
            let found = zap.entries().unwrap_or_default();
            for (i, entry) in found.iter().take(20).enumerate() {
                let _ = match &entry.key {
                    ZapKey::Name(name) if i % 2 == 0 => zap.remove(name),
                    ZapKey::Name(name) => {
                        zap.update(name, ZapValue::Bytes(&bytes[..bytes.len().min(i * 30)]))
                    }
                    ZapKey::Words(words) if i % 2 == 0 => zap.remove_words(words),
                    ZapKey::Words(words) => zap.update_words(words, 5_u64),
                };
            }
            for i in 0..40_u64 {
                let name = format!("{i}-{}", "n".repeat(i as usize));
                if zap.insert(name.as_bytes(), i).is_ok() {
                    assert_eq!(zap.lookup_u64(name.as_bytes()).unwrap(), Some(i));
                }
                let _ = zap.insert_words(&[i << 56, i], i);
            }
            !found.is_empty()
        },
    ));
}

/// Input: a byte of flags, then the name.
#[test]
fn prepared_names() {
    bolero::check!(name = "prepared_names").for_each(target("prepared_names").bound(64 << 10, 256).checked(
        |input| {
            let Some((flags, name)) = input.split_first() else { return false };
            let flags = u64::from(*flags);
            let once = prepare(name, flags);
            // A character becomes at most eighteen, of at most four bytes each.
            assert!(once.len() <= 72 * name.len());
            if std::str::from_utf8(name).is_ok() {
                assert!(std::str::from_utf8(&once).is_ok());
            }
            !name.is_empty()
        },
    ));
}
