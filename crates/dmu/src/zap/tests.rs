//! Tests with ZAPs built in memory.

use super::entry::{cursor_after, cursor_position};
use super::*;
use crate::DmuError;
use format::zap::{
    FAT_MAGIC, FAT_TYPE, FLAG_HASH64, LEAF_MAGIC, LEAF_TYPE, MICRO_MAGIC, NORM_CANONICAL, NORM_UPPER,
    hash_name,
};
use format::{BlockId, Endian, ObjectId};
use std::collections::BTreeMap;
use std::sync::Arc;
use zio::Block;

/// Blocks in memory.
#[derive(Clone, Default)]
struct Blocks {
    size: u64,
    blocks: BTreeMap<u64, Block>,
}

impl ZapBlocks for Blocks {
    fn block_size(&self) -> u64 {
        self.size
    }

    fn max_block(&self) -> BlockId {
        BlockId(self.blocks.keys().last().copied().unwrap_or(0))
    }

    fn block(&self, id: BlockId) -> Result<Option<Block>, DmuError> {
        Ok(self.blocks.get(&id.0).cloned())
    }
}

impl Blocks {
    fn open(&self) -> Result<Zap, DmuError> {
        Zap::over(Arc::new(self.clone()), 0, ObjectId(7))
    }

    fn edit(&mut self, id: u64, change: impl FnOnce(&mut [u8])) {
        let block = &self.blocks[&id];
        let mut bytes = block.bytes().to_vec();
        change(&mut bytes);
        let block = Block::new(bytes, block.order());
        self.blocks.insert(id, block);
    }
}

/// Writes words into a block.
struct Pen {
    bytes: Vec<u8>,
    order: Endian,
}

impl Pen {
    fn new(size: usize, order: Endian) -> Pen {
        Pen { bytes: vec![0; size], order }
    }

    fn u64(&mut self, at: usize, value: u64) {
        self.bytes[at..at + 8].copy_from_slice(&self.order.put_u64(value));
    }

    fn u32(&mut self, at: usize, value: u32) {
        self.bytes[at..at + 4].copy_from_slice(&self.order.put_u32(value));
    }

    fn u16(&mut self, at: usize, value: u16) {
        self.bytes[at..at + 2].copy_from_slice(&self.order.put_u16(value));
    }

    fn block(self) -> Block {
        Block::new(self.bytes, self.order)
    }
}

fn micro(entries: &[(&str, u64)], normalization: u64, order: Endian) -> Blocks {
    let mut pen = Pen::new(64 * (entries.len() + 2), order);
    pen.u64(0, MICRO_MAGIC);
    pen.u64(8, 0x1234_5679);
    pen.u64(16, normalization);
    for (i, (name, value)) in entries.iter().enumerate() {
        let at = 64 * (i + 2);
        pen.u64(at, *value);
        pen.bytes[at + 14..at + 14 + name.len()].copy_from_slice(name.as_bytes());
    }
    let size = pen.bytes.len() as u64;
    Blocks { size, blocks: BTreeMap::from([(0, pen.block())]) }
}

/// A fat ZAP with leaves split evenly at `prefix_len` bits; `external`: its pointer table is in blocks of its
/// own.
fn fat(
    entries: &[(&str, &[u16])],
    normalization: u64,
    prefix_len: u32,
    external: bool,
    order: Endian,
) -> Blocks {
    const SHIFT: u32 = 12;
    let size = 1_usize << SHIFT;
    let leaves = 1_u64 << prefix_len;
    let table_shift = if external { SHIFT - 3 + 1 } else { SHIFT - 4 };
    let (table_block, table_blocks) = if external { (1, 2) } else { (0, 0) };
    let first_leaf = 1 + table_blocks;
    let salt = 0xABCD_EF01;
    let mut header = Pen::new(size, order);
    let words = [
        FAT_TYPE,
        FAT_MAGIC,
        table_block,
        table_blocks,
        table_shift.into(),
        0,
        0,
        first_leaf + leaves,
        leaves,
    ];
    for (i, word) in words.into_iter().enumerate() {
        header.u64(8 * i, word);
    }
    header.u64(72, entries.len() as u64);
    header.u64(80, salt);
    header.u64(88, normalization);
    let mut tables: Vec<Pen> = (0..table_blocks).map(|_| Pen::new(size, order)).collect();
    for slot in 0..1_usize << table_shift {
        let leaf = first_leaf + (slot as u64 >> (table_shift - prefix_len));
        if external {
            tables[slot / (size / 8)].u64(8 * (slot % (size / 8)), leaf);
        } else {
            header.u64(size / 2 + 8 * slot, leaf);
        }
    }
    let mut blocks = BTreeMap::from([(0, header.block())]);
    for (i, table) in tables.into_iter().enumerate() {
        blocks.insert(1 + i as u64, table.block());
    }
    let mut sorted: Vec<_> = entries
        .iter()
        .map(|(name, value)| (hash_name(salt, 0, &prepare(name.as_bytes(), normalization)), *name, *value))
        .collect();
    sorted.sort_by_key(|entry| entry.0);
    for prefix in 0..leaves {
        let mine: Vec<_> = sorted
            .iter()
            .filter(|(hash, ..)| prefix_len == 0 || hash >> (64 - prefix_len) == prefix)
            .copied()
            .collect();
        blocks.insert(first_leaf + prefix, leaf(&mine, prefix, prefix_len, size, order));
    }
    Blocks { size: size as u64, blocks }
}

// The counter counts chunks, of which an entry takes several.
#[allow(clippy::explicit_counter_loop)]
fn leaf(entries: &[(u64, &str, &[u16])], prefix: u64, prefix_len: u32, size: usize, order: Endian) -> Block {
    let mut pen = Pen::new(size, order);
    pen.u64(0, LEAF_TYPE);
    pen.u64(16, prefix);
    pen.u32(24, LEAF_MAGIC);
    pen.u16(32, prefix_len as u16);
    let buckets = size / 32;
    pen.bytes[48..48 + 2 * buckets].fill(0xFF);
    let place = |chunk: u16| 48 + 2 * buckets + 24 * usize::from(chunk);
    let mut used = 0_u16;
    for (hash, name, value) in entries {
        let cd = entries.iter().take_while(|e| e.1 != *name).filter(|e| e.0 == *hash).count() as u32;
        let entry = used;
        used += 1;
        let mut array = |pen: &mut Pen, bytes: &[u8]| {
            let first = used;
            for part in bytes.chunks(21) {
                let at = place(used);
                pen.bytes[at] = 251;
                pen.bytes[at + 1..at + 1 + part.len()].copy_from_slice(part);
                used += 1;
                pen.u16(at + 22, used);
            }
            pen.u16(place(used - 1) + 22, 0xFFFF);
            first
        };
        let name_chunk = array(&mut pen, format!("{name}\0").as_bytes());
        let raw: Vec<u8> = value.iter().flat_map(|v| v.to_be_bytes()).collect();
        let value_chunk = array(&mut pen, &raw);
        let at = place(entry);
        pen.bytes[at..at + 2].copy_from_slice(&[252, 2]);
        pen.u16(at + 2, 0xFFFF);
        pen.u16(at + 4, name_chunk);
        pen.u16(at + 6, name.len() as u16 + 1);
        pen.u16(at + 8, value_chunk);
        pen.u16(at + 10, value.len() as u16);
        pen.u32(at + 12, cd);
        pen.u64(at + 16, *hash);
        let shift = 64 - buckets.trailing_zeros() - prefix_len;
        let bucket = ((hash >> shift) as usize) & (buckets - 1);
        // Entries are appended to the end of a bucket: hashes rise, and so do differentiators.
        let mut link = 48 + 2 * bucket;
        loop {
            let next = order.get_u16(&pen.bytes, link).unwrap();
            if next == 0xFFFF {
                break;
            }
            link = place(next) + 2;
        }
        pen.u16(link, entry);
    }
    pen.block()
}

fn names(zap: &Zap) -> Vec<String> {
    zap.entries().map(|entry| String::from_utf8(entry.unwrap().name().to_vec()).unwrap()).collect()
}

/// Checks that every entry is found by name, and every cursor leads to the next entry.
fn check_cursors(zap: &Zap) {
    let all: Vec<ZapEntry> = zap.entries().map(Result::unwrap).collect();
    for (i, entry) in all.iter().enumerate() {
        assert_eq!(zap.lookup(entry.name()).unwrap().as_ref(), Some(entry));
        let rest: Vec<ZapEntry> = zap.entries_from(entry.cursor).map(Result::unwrap).collect();
        assert_eq!(rest, all[i + 1..]);
    }
    assert_eq!(zap.entries_from(CURSOR_END).count(), 0);
    assert!(all.is_sorted_by_key(|entry| (entry.hash, entry.cd)));
}

#[test]
fn micro_in_both_orders() {
    for order in [Endian::Little, Endian::Big] {
        let zap = micro(&[("one", 1), ("two", 2), ("three", u64::MAX)], 0, order).open().unwrap();
        assert_eq!(zap.count().unwrap(), 3);
        assert_eq!(zap.lookup_u64(b"three").unwrap(), Some(u64::MAX));
        assert_eq!(zap.lookup(b"Three").unwrap(), None);
        assert_eq!(zap.lookup_matching(b"Three", Match::Normalized).unwrap(), None);
        assert_eq!(zap.lookup_words(&[1]).unwrap(), None);
        check_cursors(&zap);
    }
}

#[test]
fn fat_of_every_shape() {
    let named: Vec<String> = (0..60).map(|i| format!("{i}-{}", "n".repeat(i % 45))).collect();
    let values: Vec<u16> = (0..40).map(|i| i * 1000).collect();
    let entries: Vec<(&str, &[u16])> =
        named.iter().enumerate().map(|(i, name)| (name.as_str(), &values[..1 + i % 23])).collect();
    for order in [Endian::Little, Endian::Big] {
        for (prefix_len, external) in [(2, false), (3, true), (8, false)] {
            let zap = fat(&entries, 0, prefix_len, external, order).open().unwrap();
            check_cursors(&zap);
            assert_eq!(names(&zap).len(), 60);
            let found = zap.lookup(named[22].as_bytes()).unwrap().unwrap();
            assert_eq!((found.int_size, found.u64s().len(), found.u64()), (2, 23, Some(0)));
            assert_eq!(zap.lookup(b"nobody").unwrap(), None);
            let stats = zap.stats().unwrap();
            assert_eq!(stats.entries_by_chunks.iter().sum::<u64>(), 60);
            assert_eq!(stats.leaves, 1 << prefix_len);
        }
    }
}

#[test]
fn names_match_as_the_flags_say() {
    let flags = NORM_CANONICAL | NORM_UPPER;
    let micro = micro(&[("Caf\u{e9}", 1), ("other", 2)], flags, Endian::Little);
    let fat = fat(&[("Caf\u{e9}", &[1]), ("other", &[2])], flags, 0, false, Endian::Little);
    for zap in [micro.open().unwrap(), fat.open().unwrap()] {
        let find = |name: &str, how| zap.lookup_matching(name.as_bytes(), how).unwrap().and_then(|e| e.u64());
        assert_eq!(find("CAFE\u{301}", Match::Normalized), Some(1));
        assert_eq!(find("CAFE\u{301}", Match::NormalizedMatchCase), None);
        assert_eq!(find("Cafe\u{301}", Match::NormalizedMatchCase), Some(1));
        assert_eq!(find("Cafe\u{301}", Match::Exact), None);
        assert_eq!(find("Caf\u{e9}", Match::Exact), Some(1));
        assert_eq!(find("OTHER", Match::Normalized), Some(2));
        assert_eq!(find("cafe", Match::Normalized), None);
    }
}

#[test]
fn a_name_under_a_hash_of_its_own_is_found_by_scan() {
    let name = "e\u{323}\u{302}";
    let mut blocks = fat(&[(name, &[1])], NORM_CANONICAL, 0, false, Endian::Little);
    // Another salt moves every hash.
    blocks.edit(0, |bytes| bytes[81] ^= 0xFF);
    let zap = blocks.open().unwrap();
    assert_eq!(
        zap.lookup_matching("\u{1EC7}".as_bytes(), Match::Normalized).unwrap().unwrap().u64(),
        Some(1)
    );
}

#[test]
fn of_equal_hashes_all_are_listed() {
    let zap =
        fat(&[("A", &[1]), ("a", &[2]), ("b", &[3])], NORM_UPPER, 0, false, Endian::Little).open().unwrap();
    check_cursors(&zap);
    assert_eq!(zap.lookup_matching(b"a", Match::Normalized).unwrap().unwrap().u64(), Some(1));
    assert_eq!(zap.lookup_matching(b"a", Match::NormalizedMatchCase).unwrap().unwrap().u64(), Some(2));
}

#[test]
fn damage_is_told_and_passed_over() {
    let entries: Vec<String> = (0..40).map(|i| format!("file{i}")).collect();
    let pairs: Vec<(&str, &[u16])> = entries.iter().map(|name| (name.as_str(), &[1_u16][..])).collect();
    let whole = fat(&pairs, 0, 2, false, Endian::Little);
    let mut bad_leaf = whole.clone();
    bad_leaf.edit(2, |bytes| bytes[24] = 0);
    let zap = bad_leaf.open().unwrap();
    assert_eq!(zap.entries().filter(Result::is_err).count(), 1);
    assert!(zap.entries().filter(Result::is_ok).count() >= 20);
    assert!(entries.iter().any(|name| zap.lookup(name.as_bytes()).is_err()));
    assert!(zap.stats().is_err());

    let mut hole = whole.clone();
    hole.edit(2, |bytes| bytes.fill(0));
    let zap = hole.open().unwrap();
    assert!(zap.entries().all(|entry| entry.is_ok()));
    assert!(entries.iter().any(|name| zap.lookup(name.as_bytes()).unwrap().is_none()));

    let mut table = whole.clone();
    table.edit(0, |bytes| bytes[2048..3072].fill(0));
    let zap = table.open().unwrap();
    assert_eq!(zap.entries().filter(Result::is_err).count(), 1);

    let mut wrong = whole;
    wrong.edit(0, |bytes| bytes[2048] = 3);
    assert!(wrong.open().unwrap().entries().any(|entry| entry.is_err()));
}

#[test]
fn cursors_at_the_edges() {
    assert_eq!(cursor_position(0, cursor_after(0, 5 << 36, 0)), Some((5 << 36, 1)));
    assert_eq!(cursor_position(0, cursor_after(0, 5 << 36, u32::MAX)), Some((6 << 36, 0)));
    assert_eq!(cursor_after(0, u64::MAX << 36, u32::MAX), CURSOR_END);
    assert_eq!(cursor_position(FLAG_HASH64, cursor_after(FLAG_HASH64, 5 << 16, 3)), Some((5 << 16, 4)));
    assert_eq!(cursor_position(FLAG_HASH64, cursor_after(FLAG_HASH64, 5 << 16, 0xFFFF)), Some((6 << 16, 0)));
    assert_eq!(cursor_position(0, CURSOR_END), None);
}

/// A pointer table of 2^48 slots costs a hostile pool no space if it is a hole, and nearly none if it leads
/// to holes.
#[test]
fn a_pointer_table_of_any_length_is_walked_in_bounded_time() {
    let mut blocks = fat(&[("a", &[1])], 0, 0, false, Endian::Little);
    blocks.edit(0, |bytes| {
        let table_blocks = 1_u64 << (48 + 3 - 12);
        bytes[16..24].copy_from_slice(&1_u64.to_le_bytes());
        bytes[24..32].copy_from_slice(&table_blocks.to_le_bytes());
        bytes[32..40].copy_from_slice(&48_u64.to_le_bytes());
        bytes[56..64].copy_from_slice(&u64::MAX.to_le_bytes());
        bytes[96..104].copy_from_slice(&FLAG_HASH64.to_le_bytes());
    });
    blocks.blocks.remove(&1);
    let zap = blocks.open().unwrap();
    assert_eq!(zap.entries().filter(Result::is_err).count(), 1001);
    assert!(zap.lookup(b"a").is_err() && zap.stats().is_err());
}

#[test]
fn entries_that_share_their_bytes_are_damage() {
    let mut blocks = fat(&[("x", &[1]), ("y", &[2])], 0, 0, false, Endian::Little);
    let place = |chunk: usize| 48 + 2 * (4096 / 32) + 24 * chunk;
    blocks.edit(1, |bytes| {
        // Both entries have a value of all chunks, which begins with the chunks of the first.
        let chunks = (4096 - 256) / 24 - 2;
        for chunk in 6..chunks {
            bytes[place(chunk)] = 251;
            let next = if chunk + 1 < chunks { chunk + 1 } else { 0xFFFF };
            bytes[place(chunk) + 22..][..2].copy_from_slice(&(next as u16).to_le_bytes());
        }
        for entry in [0, 3] {
            bytes[place(entry) + 8..][..2].copy_from_slice(&6_u16.to_le_bytes());
            bytes[place(entry) + 10..][..2].copy_from_slice(&(((chunks - 6) * 21 / 2) as u16).to_le_bytes());
        }
    });
    let zap = blocks.open().unwrap();
    let items: Vec<_> = zap.entries().collect();
    assert_eq!(items.iter().filter(|item| item.is_ok()).count(), 1);
    assert_eq!(items.iter().filter(|item| item.is_err()).count(), 1);
}

/// A leaf with several separate ranges of the table yields each entry once, and in order.
#[test]
fn a_table_that_jumps_between_leaves_does_not_repeat_them() {
    let named: Vec<String> = (0..40).map(|i| format!("file{i}")).collect();
    let pairs: Vec<(&str, &[u16])> = named.iter().map(|name| (name.as_str(), &[1_u16][..])).collect();
    let mut blocks = fat(&pairs, 0, 0, false, Endian::Little);
    let copy = blocks.blocks[&1].clone();
    blocks.blocks.insert(2, copy);
    blocks.edit(0, |bytes| {
        bytes[56..64].copy_from_slice(&3_u64.to_le_bytes());
        for slot in (0..256).step_by(2) {
            bytes[2048 + 8 * slot] = 2;
        }
    });
    let zap = blocks.open().unwrap();
    let found: Vec<_> = zap.entries().flatten().collect();
    assert_eq!(found.len(), 40);
    assert!(found.is_sorted_by_key(|entry| (entry.hash, entry.cd)));
    assert!(zap.entries().any(|entry| entry.is_err()));
}
