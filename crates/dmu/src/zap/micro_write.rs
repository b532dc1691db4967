//! Changing a micro ZAP: one block of slots (docs/on-disk/21-zap.md, section 2).

use super::blocks::{ZapBlocks, ZapBlocksMut};
use super::entry::{ZapEntry, micro_entry};
use super::matching::Matcher;
use super::micro_index::{MicroIndex, micro_hash};
use super::normalize::prepare;
use super::value::NewValue;
use super::zap_mut::{MICRO_STEP, Mode, ZapMut, put_empty_fat};
use crate::DmuError;
use crate::sync::{Arc, Mutex, MutexGuard, PoisonError, lock};
use format::zap::{
    FatHeader, Leaf, MICRO_NAME_MAX, MicroEntry, MicroZap, NewEntry, ZapBlockKind, clear_micro_entry,
    hash_name, set_micro_entry, set_micro_value,
};
use format::{BlockId, Endian};
use std::collections::BTreeMap;
use zio::Block;

/// Largest block of a growing micro ZAP, in bytes.
const MICRO_GROWN_MAX: usize = 128 << 10;
/// log2 of the block size of a ZAP that was converted from a micro ZAP.
const CONVERTED_SHIFT: u32 = 14;
/// Most chunks of a leaf that an entry of a micro ZAP takes.
const ENTRY_CHUNKS: usize = 1 + 3 + 1;

/// The entries of one hash.
struct Found {
    /// The slot of the name; `None`: it does not exist.
    slot: Option<usize>,
    /// The smallest unused differentiator.
    cd: u32,
    /// Number of entries with this hash.
    count: usize,
}

impl ZapMut<'_> {
    /// The index, built now if it is missing.
    pub(super) fn index<'s>(
        &self,
        state: &'s mut Option<MicroIndex>,
        block: &Block,
    ) -> Result<&'s mut MicroIndex, DmuError> {
        match state {
            Some(index) => Ok(index),
            None => {
                let index = MicroIndex::build(block.bytes(), block.order());
                Ok(state.insert(index.map_err(|e| self.decode_error(e))?))
            }
        }
    }

    fn micro<'b>(&self, block: &'b Block) -> Result<MicroZap<'b>, DmuError> {
        MicroZap::decode(block.bytes(), block.order()).map_err(|e| self.decode_error(e))
    }

    /// All entries in order.
    pub(super) fn micro_entries(&self, salt: u64, normalization: u64) -> Result<Vec<ZapEntry>, DmuError> {
        let block = self.first()?;
        let hash = |entry: &MicroEntry<'_>| hash_name(salt, 0, &prepare(entry.name, normalization));
        let mut entries: Vec<_> =
            self.micro(&block)?.entries().map(|entry| micro_entry(&entry, hash(&entry))).collect();
        // Of damaged entries with equal positions, the first slot counts, as for a reader.
        entries.sort_by_key(|entry| (entry.hash, entry.cd));
        Ok(entries)
    }

    pub(super) fn find_micro(
        &self,
        state: &mut Option<MicroIndex>,
        block: &Block,
        salt: u64,
        matcher: &Matcher<'_>,
    ) -> Result<Option<ZapEntry>, DmuError> {
        let index = self.index(state, block)?;
        let zap = self.micro(block)?;
        let hash = hash_name(salt, 0, &matcher.hashed);
        let slot = look(index, &zap, matcher, micro_hash(hash)).slot;
        Ok(slot.and_then(|slot| zap.entry(slot)).map(|entry| micro_entry(&entry, hash)))
    }

    /// Stores an entry. Returns false if the ZAP must become fat for it.
    pub(super) fn put_micro(
        &self,
        state: &mut Option<MicroIndex>,
        block: Block,
        salt: u64,
        matcher: &Matcher<'_>,
        value: &NewValue<'_>,
        mode: Mode,
    ) -> Result<bool, DmuError> {
        let hash = micro_hash(hash_name(salt, 0, &matcher.hashed));
        let index = self.index(state, &block)?;
        let (found, size) = (look(index, &self.micro(&block)?, matcher, hash), block.bytes().len());
        drop(block);
        match (found.slot, mode) {
            (Some(_), Mode::Insert) => return Err(self.exists()),
            (None, Mode::Update) => return Err(self.missing()),
            _ => {}
        }
        let Some(value) = value.single else { return Ok(false) };
        if let Some(slot) = found.slot {
            self.change(BlockId(0), ZapBlockKind::First, |block| set_micro_value(block, slot, value))?;
            return Ok(true);
        }
        let fills_a_leaf = (found.count + 1) * ENTRY_CHUNKS >= Leaf::chunks_of(1 << CONVERTED_SHIFT);
        if matcher.name.len() > MICRO_NAME_MAX || fills_a_leaf {
            return Ok(false);
        }
        let slot = match index.free_slot() {
            Some(slot) => slot,
            None if size + MICRO_STEP > MICRO_GROWN_MAX => return Ok(false),
            None => self.grow_micro(index)?,
        };
        self.change(BlockId(0), ZapBlockKind::First, |block| {
            set_micro_entry(block, slot, matcher.name, value, found.cd)
        })?;
        index.add(slot, hash);
        Ok(true)
    }

    pub(super) fn take_micro(
        &self,
        state: &mut Option<MicroIndex>,
        block: Block,
        salt: u64,
        matcher: &Matcher<'_>,
    ) -> Result<Option<ZapEntry>, DmuError> {
        let hash = hash_name(salt, 0, &matcher.hashed);
        let index = self.index(state, &block)?;
        let taken = {
            let zap = self.micro(&block)?;
            let slot = look(index, &zap, matcher, micro_hash(hash)).slot;
            slot.and_then(|slot| zap.entry(slot)).map(|entry| (entry.slot, micro_entry(&entry, hash)))
        };
        drop(block);
        let Some((slot, entry)) = taken else { return Ok(None) };
        self.change(BlockId(0), ZapBlockKind::First, |block| clear_micro_entry(block, slot))?;
        index.remove(slot);
        Ok(Some(entry))
    }

    /// Adds a step of free slots. Returns the first of them.
    fn grow_micro(&self, index: &mut MicroIndex) -> Result<usize, DmuError> {
        // Rewrites the block in little-endian order, if it was not.
        self.change(BlockId(0), ZapBlockKind::First, |_| Ok(()))?;
        let size = (self.first()?.bytes().len() / MICRO_STEP + 1) * MICRO_STEP;
        let slots = size / format::zap::MICRO_ENTRY_SIZE - 1;
        self.blocks.grow_block(size as u64)?;
        index.grow(slots);
        index.free_slot().ok_or_else(|| self.corrupt("a micro ZAP of no known size"))
    }

    /// Converts the ZAP to the fat form, with its entries. First into a draft: hostile names may not fit, and
    /// then the ZAP must stay unchanged.
    pub(super) fn convert(&self, salt: u64, normalization: u64) -> Result<FatHeader, DmuError> {
        let draft = Draft::default();
        let mut header = FatHeader::new(CONVERTED_SHIFT, salt, normalization, 0);
        put_empty_fat(&draft, &header)?;
        let fat = ZapMut::open(&draft, self.objset, self.object)?;
        let mut key = Vec::new();
        {
            let block = self.first()?;
            for entry in self.micro(&block)?.entries() {
                key.clear();
                key.extend_from_slice(entry.name);
                key.push(0);
                let hash = hash_name(salt, 0, &prepare(entry.name, normalization));
                let value = entry.value.to_be_bytes();
                let new = NewEntry { hash, cd: entry.cd, key: &key, int_size: 8, value: &value };
                fat.place(&mut header, &new)?;
            }
        }
        drop(fat);
        self.blocks.set_block_size(1 << CONVERTED_SHIFT)?;
        for (id, bytes) in draft.into_blocks() {
            self.blocks.put_block(BlockId(id), bytes)?;
        }
        Ok(header)
    }
}

/// Blocks in memory.
#[derive(Default)]
struct Draft(Mutex<BTreeMap<u64, Arc<Vec<u8>>>>);

impl Draft {
    fn blocks(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Vec<u8>>>> {
        lock(&self.0)
    }

    fn into_blocks(self) -> impl Iterator<Item = (u64, Vec<u8>)> {
        let blocks = self.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        blocks.into_iter().map(|(id, bytes)| (id, Arc::unwrap_or_clone(bytes)))
    }
}

impl ZapBlocks for Draft {
    fn block_size(&self) -> u64 {
        1 << CONVERTED_SHIFT
    }

    fn max_block(&self) -> BlockId {
        BlockId(self.blocks().keys().next_back().copied().unwrap_or(0))
    }

    fn block(&self, id: BlockId) -> Result<Option<Block>, DmuError> {
        Ok(self.blocks().get(&id.0).map(|bytes| Block::shared(bytes.clone(), Endian::Little)))
    }
}

impl ZapBlocksMut for Draft {
    fn put_block(&self, id: BlockId, bytes: Vec<u8>) -> Result<(), DmuError> {
        self.blocks().insert(id.0, Arc::new(bytes));
        Ok(())
    }

    fn change_block(&self, id: BlockId, change: &mut dyn FnMut(&mut [u8])) -> Result<(), DmuError> {
        let mut blocks = self.blocks();
        let block = blocks.get_mut(&id.0).expect("a ZAP changes blocks that it has read");
        change(Arc::<Vec<u8>>::make_mut(block).as_mut_slice());
        Ok(())
    }

    fn set_block_size(&self, _bytes: u64) -> Result<(), DmuError> {
        Ok(())
    }

    fn free_blocks(&self, first: BlockId, count: u64) -> Result<(), DmuError> {
        let mut blocks = self.blocks();
        blocks.retain(|id, _| !(first.0..first.0.saturating_add(count)).contains(id));
        Ok(())
    }
}

/// Examines the entries of a hash; of several that match, the lowest differentiator counts.
fn look(index: &MicroIndex, zap: &MicroZap<'_>, matcher: &Matcher<'_>, hash: u32) -> Found {
    let mut best: Option<(u32, usize)> = None;
    let mut taken = Vec::new();
    for entry in index.slots_of(hash).filter_map(|slot| zap.entry(slot)) {
        taken.push(entry.cd);
        if best.is_none_or(|best| (entry.cd, entry.slot) < best) && matcher.accepts(entry.name) {
            best = Some((entry.cd, entry.slot));
        }
    }
    let count = taken.len();
    taken.sort_unstable();
    taken.dedup();
    let unused = taken.iter().zip(0_u32..).find(|(cd, i)| **cd != *i);
    Found { slot: best.map(|(_, slot)| slot), cd: unused.map_or(taken.len() as u32, |(_, i)| i), count }
}
