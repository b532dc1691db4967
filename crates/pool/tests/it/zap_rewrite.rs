//! All ZAPs and configurations of the golden pools, rewritten: equal bytes if the history is unambiguous,
//! equal contents always.

use crate::common;
use crate::common::load_keys;
use cenote_pool::OpenOptions;
use dmu::zap::{Zap, ZapBlocks, ZapBlocksMut, ZapEntry, ZapKey, ZapMut, ZapValue, create_fat, create_micro};
use dmu::{DmuError, ObjSet, Object};
use format::config::ConfigForm;
use format::zap::{FatHeader, Leaf, MicroZap};
use format::{BlockId, Endian, NvList, NvValue, ObjectId};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use testkit::Fixture;
use zio::Block;

/// An object in memory: its block size, and its blocks.
#[derive(Default)]
struct Memory(Mutex<(u64, HashMap<u64, Block>)>);

impl ZapBlocks for Memory {
    fn block_size(&self) -> u64 {
        self.0.lock().unwrap().0
    }

    fn max_block(&self) -> BlockId {
        BlockId(self.0.lock().unwrap().1.keys().max().copied().unwrap_or(0))
    }

    fn block(&self, id: BlockId) -> Result<Option<Block>, DmuError> {
        Ok(self.0.lock().unwrap().1.get(&id.0).cloned())
    }
}

impl ZapBlocksMut for Memory {
    fn put_block(&self, id: BlockId, bytes: Vec<u8>) -> Result<(), DmuError> {
        self.0.lock().unwrap().1.insert(id.0, Block::new(bytes, Endian::Little));
        Ok(())
    }

    fn change_block(&self, id: BlockId, change: &mut dyn FnMut(&mut [u8])) -> Result<(), DmuError> {
        let mut disk = self.0.lock().unwrap();
        let block = disk.1.get_mut(&id.0).expect("only blocks that are there are changed");
        let mut bytes = block.bytes().to_vec();
        change(&mut bytes);
        *block = Block::new(bytes, Endian::Little);
        Ok(())
    }

    fn set_block_size(&self, bytes: u64) -> Result<(), DmuError> {
        self.0.lock().unwrap().0 = bytes;
        Ok(())
    }

    fn free_blocks(&self, first: BlockId, count: u64) -> Result<(), DmuError> {
        (first.0..first.0 + count).for_each(|id| drop(self.0.lock().unwrap().1.remove(&id)));
        Ok(())
    }
}

/// Counts of compared ZAPs.
#[derive(Debug, Default)]
struct Tally {
    zaps: usize,
    micro_same: usize,
    fat_same: usize,
    entries: usize,
}

fn put(zap: &ZapMut<'_>, entry: &ZapEntry) {
    let value = ZapValue::Packed { int_size: entry.int_size, bytes: &entry.value };
    match &entry.key {
        ZapKey::Name(name) => zap.insert(name, value).unwrap(),
        ZapKey::Words(words) => zap.insert_words(words, value).unwrap(),
    }
}

/// The names of a micro ZAP in the order in which they were added, if none was ever removed.
fn micro_order(block: &Block) -> Option<Vec<Vec<u8>>> {
    let zap = MicroZap::decode(block.bytes(), block.order()).ok()?;
    let names: Vec<_> = zap.entries().map(|entry| (entry.slot, entry.name.to_vec())).collect();
    let is_whole = names.iter().zip(1..).all(|((slot, _), i)| *slot == i);
    // The block is no larger than its entries required.
    let is_tight = block.bytes().len() == 512.max(64 * (names.len() + 1)).next_multiple_of(512);
    (is_whole && is_tight).then(|| names.into_iter().map(|(_, name)| name).collect())
}

/// The hashes and differentiators of the only leaf of a fat ZAP in the order of their insertion, if no entry
/// was ever removed or changed.
fn leaf_order(header: &FatHeader, block: &Block) -> Option<Vec<(u64, u32)>> {
    let leaf = Leaf::decode(block.bytes(), block.order()).ok()?;
    let mut entries: Vec<_> = (0..leaf.buckets).flat_map(|bucket| leaf.chain(bucket).flatten()).collect();
    entries.sort_by_key(|entry| entry.chunk);
    let unit = if header.has_word_keys() { 8 } else { 1 };
    let link = |chunk: u16| 48 + 2 * leaf.buckets + 24 * usize::from(chunk) + 22;
    let mut next = 0;
    // The chunks of an array, in the order of their allocation in a new leaf.
    let mut is_array = |first: u16, bytes: usize| {
        let mut at = first;
        (0..bytes.div_ceil(21)).all(|_| {
            let is_next = at == next;
            next += 1;
            at = Endian::Little.get_u16(block.bytes(), link(at)).unwrap_or(u16::MAX);
            is_next
        })
    };
    for entry in &entries {
        let is_fresh = is_array(entry.chunk, 1)
            && is_array(entry.name_chunk, unit * usize::from(entry.name_len))
            && is_array(entry.value_chunk, entry.value_bytes());
        if !is_fresh {
            return None;
        }
    }
    let free = Endian::Little.get_u16(block.bytes(), 34)?;
    let is_fresh = is_array(free, 21 * usize::from(leaf.free_chunks));
    is_fresh.then(|| entries.iter().map(|entry| (entry.hash, entry.cd)).collect())
}

fn rewrite(what: &str, object: &Object, tally: &mut Tally) {
    let zap = match Zap::open(object) {
        Ok(zap) => zap,
        // Created, but never written.
        Err(DmuError::Corrupt { .. }) if object.block(BlockId(0)).is_ok_and(|block| block.is_none()) => {
            return;
        }
        // Damaged on purpose, or with the key of another pool.
        Err(_) => return,
    };
    let Ok(mut entries) = zap.entries().collect::<Result<Vec<ZapEntry>, _>>() else { return };
    let memory = Memory::default();
    let first = object.block(BlockId(0)).unwrap().unwrap();
    let mut is_same_expected = false;
    match zap.fat_header() {
        None => {
            create_micro(&memory, zap.salt(), zap.normalization()).unwrap();
            if let Some(order) = micro_order(&first) {
                entries.sort_by_key(|entry| order.iter().position(|name| name == entry.name()));
                is_same_expected = true;
            }
        }
        Some(header) => {
            create_fat(&memory, header.block_shift, header.salt, header.normalization, header.flags).unwrap();
            let leaf = object.block(BlockId(1)).unwrap();
            if header.leaves == 1
                && header.free_block == BlockId(2)
                && let Some(order) = leaf.and_then(|leaf| leaf_order(header, &leaf))
            {
                let place = |entry: &ZapEntry| order.iter().position(|at| *at == (entry.hash, entry.cd));
                entries.sort_by_key(place);
                is_same_expected = true;
            }
        }
    }
    let new = ZapMut::open(&memory, 0, object.id()).unwrap();
    entries.iter().for_each(|entry| put(&new, entry));
    tally.zaps += 1;
    tally.entries += entries.len();
    if is_same_expected {
        for (id, block) in &memory.0.lock().unwrap().1 {
            let old = object.block(BlockId(*id)).unwrap().unwrap();
            let (old, new) = (old.bytes(), block.bytes());
            let differs = old.iter().zip(new).position(|(a, b)| a != b);
            if let Some(at) = differs {
                let c = (at - 1072) / 24;
                for c in c.saturating_sub(3)..c + 4 {
                    eprintln!(
                        "{what} chunk {c} old {:?} new {:?}",
                        &old[1072 + 24 * c..][..24],
                        &new[1072 + 24 * c..][..24]
                    );
                }
                eprintln!("{:?} {:?}", &old[24..40], &new[24..40]);
            }
            assert_eq!((old.len(), differs), (new.len(), None), "{what}: block {id}");
        }
        if zap.fat_header().is_some() { tally.fat_same += 1 } else { tally.micro_same += 1 }
    }
    entries.sort_by_key(|entry| (entry.hash, entry.cd));
    let mut again = new.entries().unwrap();
    // After removals the differentiators may differ.
    again.iter_mut().zip(&entries).for_each(|(new, old)| (new.cd, new.cursor) = (old.cd, old.cursor));
    let key = |entry: &ZapEntry| (entry.hash, format!("{:?}", entry.key));
    again.sort_by_key(key);
    entries.sort_by_key(key);
    let bare = |entries: Vec<ZapEntry>| -> Vec<_> {
        entries.into_iter().map(|e| (e.key, e.int_size, e.value, e.hash)).collect()
    };
    assert!(bare(again) == bare(entries), "{what}");
}

fn rewrite_all(what: &str, set: &Arc<ObjSet>, tally: &mut Tally) {
    let mut from = ObjectId(1);
    while let Some(object) = set.next_object(from).unwrap() {
        if object.dnode().obj_type.is_zap() {
            rewrite(&format!("{what} object {}", object.id()), &object, tally);
        }
        from = ObjectId(object.id().0 + 1);
    }
}

#[test]
fn zaps_are_written_as_the_reference_does() {
    let mut tally = Tally::default();
    for name in Fixture::names() {
        let fixture = Fixture::open(&name);
        let Ok(pool) = common::try_open(common::found(&fixture), &fixture, &OpenOptions::default()) else {
            continue;
        };
        load_keys(&pool);
        rewrite_all(&format!("{name}: MOS"), pool.mos(), &mut tally);
        for dir in pool.dsl().dirs().unwrap() {
            let Ok(Some(head)) = dir.head() else { continue };
            let Ok(set) = head.open_objset() else { continue };
            rewrite_all(&format!("{name}: {}", head.name()), &set, &mut tally);
        }
    }
    assert!(tally.zaps > 5000 && tally.entries > 40_000, "{tally:?}");
    // Most have only ever had entries added.
    assert!(tally.micro_same > 4500 && tally.fat_same > 500, "{tally:?}");
}

/// The list without values that only a running expansion has, and without empty values.
fn lasting(list: &NvList) -> NvList {
    let value = |value: &NvValue| match value {
        NvValue::List(list) => NvValue::List(lasting(list)),
        NvValue::ListArray(lists) => NvValue::ListArray(lists.iter().map(lasting).collect()),
        other => other.clone(),
    };
    let is_lasting = |name: &str, value: &NvValue| {
        // Of a mirror that was removed, an empty list of children is left.
        name != "expansion_time" && *value != NvValue::ListArray(Vec::new())
    };
    list.iter().filter(|(name, value)| is_lasting(name, value)).map(|(name, v)| (name, value(v))).collect()
}

#[test]
fn configurations_are_written_as_the_reference_does() {
    for name in Fixture::names() {
        let fixture = Fixture::open(&name);
        let Ok(pool) = common::try_open(common::found(&fixture), &fixture, &OpenOptions::default()) else {
            continue;
        };
        if !name.starts_with("version") {
            assert_eq!(pool.config().to_nvlist(ConfigForm::Mos), lasting(&pool.config().raw), "{name}");
        }
        for leaf in common::found(&fixture).leaves {
            for config in leaf.probe.configs.iter().map(|found| &found.config) {
                assert_eq!(
                    config.to_nvlist(ConfigForm::Label),
                    lasting(&config.raw),
                    "{name}: {}",
                    leaf.path.display()
                );
            }
        }
    }
}
