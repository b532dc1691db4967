//! Tests of writing over blocks in memory: models, forms, and the rules of section 3 of
//! docs/on-disk/21-zap.md for every block.

mod cases;

use super::*;
use crate::DmuError;
use format::zap::{
    CHAIN_END, FLAG_HASH64, FLAG_PRE_HASHED_KEY, FLAG_UINT64_KEY, FatHeader, Leaf, LeafMut, MICRO_MAGIC,
    MicroZap, NORM_CANONICAL, NORM_UPPER, NewEntry, ZapForm, hash_name, hash_words,
};
use format::{BlockId, Endian, ObjectId};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex};
use zio::Block;

/// An object in memory.
#[derive(Default)]
struct Disk {
    blocks: Mutex<(u64, HashMap<u64, Block>)>,
    state: ZapState,
}

impl ZapBlocks for Disk {
    fn block_size(&self) -> u64 {
        self.blocks.lock().unwrap().0
    }

    fn max_block(&self) -> BlockId {
        BlockId(self.blocks.lock().unwrap().1.keys().max().copied().unwrap_or(0))
    }

    fn block(&self, id: BlockId) -> Result<Option<Block>, DmuError> {
        Ok(self.blocks.lock().unwrap().1.get(&id.0).cloned())
    }
}

impl ZapBlocksMut for Disk {
    fn put_block(&self, id: BlockId, bytes: Vec<u8>) -> Result<(), DmuError> {
        let mut blocks = self.blocks.lock().unwrap();
        assert_eq!(bytes.len() as u64, blocks.0, "every block has the size of the object's");
        blocks.1.insert(id.0, Block::new(bytes, Endian::Little));
        Ok(())
    }

    fn change_block(&self, id: BlockId, change: &mut dyn FnMut(&mut [u8])) -> Result<(), DmuError> {
        let mut blocks = self.blocks.lock().unwrap();
        let block = blocks.1.get_mut(&id.0).expect("only blocks that are there are changed");
        assert_eq!(block.order(), Endian::Little, "only blocks in our order are changed");
        let mut bytes = block.bytes().to_vec();
        change(&mut bytes);
        *block = Block::new(bytes, Endian::Little);
        Ok(())
    }

    fn set_block_size(&self, bytes: u64) -> Result<(), DmuError> {
        let mut blocks = self.blocks.lock().unwrap();
        assert!(blocks.1.len() <= 1, "the size is fixed as soon as there are two blocks");
        blocks.0 = bytes;
        Ok(())
    }

    fn free_blocks(&self, first: BlockId, count: u64) -> Result<(), DmuError> {
        let mut blocks = self.blocks.lock().unwrap();
        (first.0..first.0 + count).for_each(|id| drop(blocks.1.remove(&id)));
        Ok(())
    }

    fn state(&self) -> Option<&ZapState> {
        Some(&self.state)
    }
}

impl Disk {
    fn micro(salt: u64, normalization: u64) -> Disk {
        let disk = Disk::default();
        create_micro(&disk, salt, normalization).unwrap();
        disk
    }

    fn fat(shift: u32, salt: u64, normalization: u64, flags: u64) -> Disk {
        let disk = Disk::default();
        create_fat(&disk, shift, salt, normalization, flags).unwrap();
        disk
    }

    fn write(&self) -> ZapMut<'_> {
        ZapMut::open(self, 0, ObjectId(7)).unwrap()
    }

    fn copy(&self) -> Disk {
        Disk { blocks: Mutex::new(self.blocks.lock().unwrap().clone()), state: ZapState::default() }
    }

    /// The ZAP as a reader sees it.
    fn read(&self) -> Zap {
        Zap::over(Arc::new(self.copy()), 0, ObjectId(7)).unwrap()
    }

    fn raw(&self, id: u64) -> Vec<u8> {
        self.blocks.lock().unwrap().1[&id].bytes().to_vec()
    }

    fn edit(&self, id: u64, change: impl FnOnce(&mut [u8])) {
        let mut bytes = self.raw(id);
        change(&mut bytes);
        self.blocks.lock().unwrap().1.insert(id, Block::new(bytes, Endian::Little));
    }

    /// Checks the invariants of a ZAP on disk.
    fn verify(&self) {
        let first = self.block(BlockId(0)).unwrap().unwrap();
        match ZapForm::of(first.bytes(), first.order()).unwrap() {
            ZapForm::Micro => self.verify_micro(first.bytes()),
            ZapForm::Fat => self.verify_fat(&FatHeader::decode(first.bytes(), first.order()).unwrap()),
        }
        let mut seen = BTreeSet::new();
        for entry in self.read().entries() {
            let entry = entry.unwrap();
            assert!(seen.insert((entry.hash, entry.cd)), "(hash, cd) is unique");
        }
    }

    fn verify_micro(&self, block: &[u8]) {
        assert!(block.len().is_multiple_of(512) && block.len() <= 128 << 10);
        assert_eq!(block.len() as u64, self.block_size());
        assert_eq!(block[24..64], [0; 40]);
        let zap = MicroZap::decode(block, Endian::Little).unwrap();
        for slot in 1..=zap.slots() {
            let raw = &block[64 * slot..][..64];
            match zap.entry(slot) {
                None => assert_eq!(raw, [0; 64], "free slots are zero"),
                Some(entry) => assert!(raw[14 + entry.name.len()..].iter().all(|byte| *byte == 0)),
            }
        }
        let index = self.state.lock();
        if let Some(index) = &*index {
            let fresh = MicroIndex::build(block, Endian::Little).unwrap();
            assert_eq!(index.entries(), fresh.entries());
            assert_eq!(index.free_slot(), fresh.free_slot());
        }
    }

    fn verify_fat(&self, header: &FatHeader) {
        assert_eq!((header.next_block, header.blocks_copied), (BlockId(0), 0));
        assert!(self.max_block() < header.free_block);
        let mut slots = Vec::new();
        for index in 0..header.table_len() {
            let (block, at) = header.table_slot(index);
            slots.push(Endian::Little.get_u64(&self.raw(block.0), at).unwrap());
        }
        let ids: BTreeSet<u64> = slots.iter().copied().collect();
        assert_eq!(ids.len() as u64, header.leaves);
        let table = header.table_block.0..header.table_block.0 + header.table_blocks;
        let mut entries = 0;
        for id in ids {
            assert!(id != 0 && id < header.free_block.0 && !table.contains(&id));
            let raw = self.raw(id);
            let leaf = Leaf::decode(&raw, Endian::Little).unwrap();
            // The range of its slots leads to it, and no other slot.
            let width = 1 << (header.table_shift - leaf.prefix_len);
            let range = leaf.prefix * width..(leaf.prefix + 1) * width;
            for (index, slot) in slots.iter().enumerate() {
                assert_eq!(*slot == id, range.contains(&(index as u64)), "slot {index} of leaf {id}");
            }
            assert_eq!(raw[36], u8::from(header.normalization != 0));
            entries += verify_leaf(header, &leaf, &raw);
        }
        assert_eq!(entries, header.entries);
    }
}

/// Checks the accounting of a leaf. Returns the number of its entries.
fn verify_leaf(header: &FatHeader, leaf: &Leaf<'_>, raw: &[u8]) -> u64 {
    let unit = if header.has_word_keys() { 8 } else { 1 };
    let (sorted, damage) = entries::sorted_entries(header, leaf);
    assert_eq!(damage, None);
    assert_eq!(sorted.len(), usize::from(leaf.entries));
    let used: usize = sorted.iter().map(|entry| entries::chunks_of(entry, unit)).sum();
    assert_eq!(used + usize::from(leaf.free_chunks), leaf.chunks);
    for bucket in 0..leaf.buckets {
        let chain: Vec<_> = leaf.chain(bucket).map(Result::unwrap).collect();
        assert!(chain.is_sorted_by_key(|entry| entry.cd));
        for entry in chain {
            assert_eq!(leaf.bucket(entry.hash), bucket);
            let stored = leaf.stored_key(&entry, unit).unwrap();
            let hash = if header.has_word_keys() {
                hash_words(header.salt, header.flags, &leaf.words(&entry).unwrap())
            } else {
                assert_eq!(stored.last(), Some(&0));
                let name = &stored[..stored.len() - 1];
                hash_name(header.salt, header.flags, &prepare(name, header.normalization))
            };
            assert_eq!(hash, entry.hash);
        }
    }
    let area = 48 + 2 * leaf.buckets;
    let (mut free, mut count) = (Endian::Little.get_u16(raw, 34).unwrap(), 0);
    while free != CHAIN_END {
        let chunk = &raw[area + 24 * usize::from(free)..][..24];
        assert_eq!((chunk[0], &chunk[1..22]), (253, &[0; 21][..]));
        free = Endian::Little.get_u16(chunk, 22).unwrap();
        count += 1;
    }
    assert_eq!(count, leaf.free_chunks);
    sorted.len() as u64
}

/// Reproducible numbers from a seed.
struct Seeded(u64);

impl Seeded {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ (x >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

type Model = BTreeMap<Vec<u8>, (u8, Vec<u8>)>;

fn check_against(disk: &Disk, model: &Model, what: &str) {
    disk.verify();
    let found: Model = disk
        .write()
        .entries()
        .unwrap()
        .into_iter()
        .map(|e| (e.name().to_vec(), (e.int_size, e.value)))
        .collect();
    assert!(found == *model, "{what}: entries");
    let read: Vec<ZapEntry> = disk.read().entries().map(Result::unwrap).collect();
    assert_eq!(read, disk.write().entries().unwrap(), "{what}: order");
    let (mut listed, mut cursor) = (Vec::new(), 0);
    loop {
        let some = list_shared(disk, &disk.state, (0, ObjectId(7)), cursor, 37).unwrap();
        let Some(last) = some.last() else { break };
        cursor = last.cursor;
        listed.extend(some);
    }
    assert_eq!(listed, read, "{what}: in pieces");
    assert_eq!(disk.write().count().unwrap(), model.len() as u64, "{what}: count");
}

/// Random operations against a map. `names`: number of different ones; `rich`: also values and names that
/// only a fat ZAP can hold.
fn run_model(disk: &Disk, seed: u64, steps: u32, names: u64, rich: bool) -> Model {
    let mut random = Seeded(seed);
    let mut model = Model::new();
    let zap = disk.write();
    for step in 0..steps {
        let number = random.below(names);
        let mut name = format!("{number:x}-name").into_bytes();
        if rich && number.is_multiple_of(9) {
            name.resize(name.len() + (number % 300) as usize, b'y');
        }
        let (int_size, value) = if rich && random.below(3) == 0 {
            let int_size = 1 << random.below(4);
            let bound = if random.below(40) == 0 { 1000 } else { 20 };
            let count = random.below(bound);
            (int_size, (0..u64::from(int_size) * count).map(|i| (i * 7 + seed) as u8).collect())
        } else {
            (8, random.next().to_be_bytes().to_vec())
        };
        let packed = ZapValue::Packed { int_size, bytes: &value };
        let is_there = model.contains_key(&name);
        let what = format!("seed {seed} step {step}");
        match random.below(10) {
            0..4 => match zap.insert(&name, packed) {
                Ok(()) => assert!(!is_there && model.insert(name, (int_size, value)).is_none(), "{what}"),
                Err(DmuError::KeyExists { .. }) => assert!(is_there, "{what}"),
                Err(error) => panic!("{what}: {error}"),
            },
            4..6 => match zap.update(&name, packed) {
                Ok(()) => assert!(model.insert(name, (int_size, value)).is_some(), "{what}"),
                Err(DmuError::NoKey { .. }) => assert!(!is_there, "{what}"),
                Err(error) => panic!("{what}: {error}"),
            },
            6 => {
                zap.upsert(&name, packed).unwrap();
                model.insert(name, (int_size, value));
            }
            7..9 => {
                assert_eq!(zap.remove_if_present(&name).unwrap(), model.remove(&name).is_some(), "{what}");
            }
            _ => {
                let found = zap.lookup(&name).unwrap().map(|entry| (entry.int_size, entry.value));
                assert_eq!(found.as_ref(), model.get(&name), "{what}");
            }
        }
        if step % (steps / 4) == 0 {
            check_against(disk, &model, &what);
        }
    }
    check_against(disk, &model, &format!("seed {seed}"));
    model
}

#[test]
fn a_model_of_micro_zaps() {
    for seed in 0..8 {
        let disk = Disk::micro(seed * 2 + 1, 0);
        run_model(&disk, seed, 2000, 300, false);
        assert!(!disk.write().is_fat().unwrap());
    }
}

#[test]
fn a_model_of_zaps_that_become_fat() {
    for seed in 0..6 {
        let disk = Disk::micro(seed | 1, 0);
        run_model(&disk, seed, 4000, 1500, true);
        assert!(disk.write().is_fat().unwrap());
        // An emptied ZAP can be filled again.
        for entry in disk.write().entries().unwrap() {
            disk.write().remove(entry.name()).unwrap();
        }
        check_against(&disk, &Model::new(), "emptied");
        run_model(&disk, seed, 400, 100, true);
    }
}

#[test]
fn a_model_of_fat_zaps_of_other_sizes() {
    for (seed, shift, flags) in [(1, 15, 0), (2, 16, FLAG_HASH64), (3, 14, FLAG_HASH64)] {
        run_model(&Disk::fat(shift, seed, 0, flags), seed, 3000, 900, true);
    }
    // Small leaves split early, and their table soon leaves the header.
    for seed in 4..8 {
        let disk = Disk::fat(9, seed, 0, 0);
        run_model(&disk, seed, 6000, 2000, false);
        let header = disk.read().fat_header().unwrap().clone();
        assert!(header.table_blocks > 4, "{header:?}");
    }
}

#[test]
fn a_model_of_normalized_names() {
    for seed in 0..3 {
        let disk = Disk::micro(seed | 1, NORM_CANONICAL | NORM_UPPER);
        run_model(&disk, seed, 3000, 900, seed > 0);
    }
}

#[test]
fn a_micro_zap_grows_slot_by_slot_and_then_is_fat() {
    let disk = Disk::micro(0x1234_5678, 0);
    let zap = disk.write();
    assert_eq!(zap.salt().unwrap(), 0x1234_5679);
    for i in 0..2047_u64 {
        assert_eq!(disk.block_size(), 512 * (i.max(1) + 1).div_ceil(8), "{i}");
        zap.insert(format!("file{i}").as_bytes(), i).unwrap();
    }
    disk.verify();
    assert_eq!((disk.block_size(), zap.is_fat().unwrap()), (128 << 10, false));
    zap.insert(b"one more", 1).unwrap();
    assert_eq!((disk.block_size(), zap.is_fat().unwrap()), (16 << 10, true));
    disk.verify();
    assert_eq!(zap.count().unwrap(), 2048);
    for i in 0..2047_u64 {
        assert_eq!(zap.lookup_u64(format!("file{i}").as_bytes()).unwrap(), Some(i));
    }
}

#[test]
fn entries_that_do_not_fit_make_a_zap_fat() {
    let values: [(&[u8], ZapValue<'_>); 4] = [
        (&[b'n'; 50], ZapValue::U64(1)),
        (b"two", ZapValue::U64s(&[1, 2])),
        (b"text", ZapValue::Str(b"text")),
        (b"none", ZapValue::U64s(&[])),
    ];
    for (name, value) in values {
        let disk = Disk::micro(7, 0);
        disk.write().insert(&[b'm'; 49], 5).unwrap();
        assert!(!disk.write().is_fat().unwrap());
        disk.write().insert(name, value).unwrap();
        assert!(disk.write().is_fat().unwrap());
        disk.verify();
        let disk = Disk::micro(7, 0);
        if name.len() < 50 {
            disk.write().insert(name, 1).unwrap();
            disk.write().update(name, value).unwrap();
            assert!(disk.write().is_fat().unwrap());
            disk.verify();
        }
    }
}

#[test]
fn a_cursor_stays_good_when_a_zap_becomes_fat() {
    let disk = Disk::micro(99, 0);
    for i in 0..50_u64 {
        disk.write().insert(format!("f{i}").as_bytes(), i).unwrap();
    }
    let before: Vec<ZapEntry> = disk.read().entries().map(Result::unwrap).collect();
    disk.write().insert(b"long", ZapValue::Bytes(b"abc")).unwrap();
    disk.write().remove(b"long").unwrap();
    let after: Vec<ZapEntry> = disk.read().entries().map(Result::unwrap).collect();
    assert_eq!(before, after);
}

#[test]
fn a_hundred_thousand_entries() {
    let disk = Disk::fat(12, 1, 0, 0);
    let zap = disk.write();
    for i in 0..100_000_u64 {
        zap.insert(format!("entry-{i}").as_bytes(), i).unwrap();
    }
    let header = disk.read().fat_header().unwrap().clone();
    assert_eq!((header.entries, header.table_blocks > 0), (100_000, true));
    let read = disk.read();
    for i in (0..100_000_u64).step_by(997) {
        assert_eq!(read.lookup_u64(format!("entry-{i}").as_bytes()).unwrap(), Some(i));
    }
    assert_eq!(read.entries().map(Result::unwrap).count(), 100_000);
    let stats = read.stats().unwrap();
    assert_eq!((stats.entries, stats.leaves), (100_000, header.leaves));
}

#[test]
fn what_is_emptied_gives_its_blocks_back() {
    for shift in [9, 12, 14] {
        let disk = Disk::fat(shift, 77, 0, 0);
        let zap = disk.write();
        (0..3000_u64).for_each(|i| zap.insert_int(i).unwrap());
        let used = |disk: &Disk| disk.blocks.lock().unwrap().1.len() as u64;
        let (most, entries) = (used(&disk), disk.read().entries().map(Result::unwrap).collect::<Vec<_>>());
        // Half of it in order, as a program does that lists and removes.
        for entry in &entries[..1500] {
            zap.remove(entry.name()).unwrap();
        }
        disk.verify();
        assert!(used(&disk) < most, "{} of {most}", used(&disk));
        for entry in &entries[1500..] {
            zap.remove(entry.name()).unwrap();
        }
        disk.verify();
        let header = disk.read().fat_header().unwrap().clone();
        assert_eq!((header.leaves, used(&disk)), (1, 2 + header.table_blocks));
        (0..3000_u64).for_each(|i| zap.insert_int(i).unwrap());
        disk.verify();
        assert_eq!(used(&disk), most);
    }
}
