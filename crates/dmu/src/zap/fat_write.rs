//! Changing a fat ZAP: header, pointer table and leaves (docs/on-disk/21-zap.md, sections 3 and 4).
//!
//! # What always holds
//! - The table is grown in one step, so the header never names a second table. A growth that another
//!   implementation left unfinished is finished before the table is changed.
//! - Splitting ends: it stops before the table is longer than hashes can distinguish, and does not begin if
//!   no split could help.

use super::entries::sorted_entries;
use super::entry::{NAME_MAX, ZapEntry, leaf_entry, max_cd};
use super::normalize::is_doubtful;
use super::value::NewValue;
use super::zap_mut::{Key, Mode, ZapMut};
use crate::DmuError;
use format::zap::{FatHeader, Leaf, LeafEntry, LeafMut, NewEntry, ZapBlockKind, hash_bits, new_leaf};
use format::{BlockId, DecodeError};
use zio::Block;

/// Most bits by which one entry may lengthen the pointer table. Keys with random hashes need a few; those of
/// a hostile ZAP could fill the memory with the table.
const GROWTH_MAX: u32 = 12;

/// The place of a key, or for a new one.
pub(super) enum KeyPosition {
    Found {
        leaf: BlockId,
        entry: LeafEntry,
    },
    /// The key does not exist; the smallest unused differentiator.
    Free {
        leaf: BlockId,
        cd: u32,
    },
    /// The leaf is a hole.
    NoLeaf,
}

/// Bytes of a unit of the keys.
fn key_unit(header: &FatHeader) -> usize {
    if header.has_word_keys() { 8 } else { 1 }
}

impl ZapMut<'_> {
    pub(super) fn find_fat(&self, header: &FatHeader, key: &Key<'_>) -> Result<Option<ZapEntry>, DmuError> {
        let KeyPosition::Found { leaf, entry } = self.locate(header, key)? else { return Ok(None) };
        self.read_entry(header, leaf, &entry).map(Some)
    }

    fn read_entry(&self, header: &FatHeader, leaf: BlockId, entry: &LeafEntry) -> Result<ZapEntry, DmuError> {
        let block = self.leaf_block(leaf)?.ok_or_else(|| self.corrupt("a hole among a ZAP's leaves"))?;
        let leaf = Leaf::decode(block.bytes(), block.order());
        leaf.and_then(|leaf| leaf_entry(header, &leaf, entry)).map_err(|e| self.decode_error(e))
    }

    /// Stores an entry. The header is written last.
    pub(super) fn put_fat(
        &self,
        header: &mut FatHeader,
        key: &Key<'_>,
        value: &NewValue<'_>,
        mode: Mode,
    ) -> Result<(), DmuError> {
        let stored = key.stored();
        let hash = key.hash(header.salt, header.flags);
        let mut new = NewEntry { hash, cd: 0, key: &stored, int_size: value.int_size, value: &value.bytes };
        if new.chunks() > Leaf::chunks_of(1 << header.block_shift) {
            return Err(self.limit("length of name and value", stored.len() + value.bytes.len()));
        }
        match (self.locate(header, key)?, mode) {
            (KeyPosition::Found { .. }, Mode::Insert) => Err(self.exists()),
            (KeyPosition::Free { .. } | KeyPosition::NoLeaf, Mode::Update) => Err(self.missing()),
            (KeyPosition::NoLeaf, _) => Err(self.corrupt("a hole among a ZAP's leaves")),
            (KeyPosition::Found { leaf, entry }, _) => self.replace(header, key, &new, (leaf, entry)),
            (KeyPosition::Free { cd, .. }, _) if cd >= max_cd(header.flags) => Err(self.full()),
            (KeyPosition::Free { leaf, cd }, _) => {
                new.cd = cd;
                // Load the header for changing before any other change: writing it in the end cannot fail
                // then.
                self.write_header(header)?;
                self.place_in(header, &new, leaf)?;
                self.write_header(header)
            }
        }
    }

    /// Replaces the value of an entry.
    fn replace(
        &self,
        header: &mut FatHeader,
        key: &Key<'_>,
        new: &NewEntry<'_>,
        mut at: (BlockId, LeafEntry),
    ) -> Result<(), DmuError> {
        let unit = key_unit(header);
        let mut was_split = false;
        loop {
            let (leaf, entry) = at;
            let is_done = self.change(leaf, ZapBlockKind::Leaf, |block| {
                LeafMut::open(block, unit)?.set_value(entry.chunk, new.int_size, new.value)
            })?;
            if is_done {
                return if was_split { self.write_header(header) } else { Ok(()) };
            }
            self.split(header, leaf, entry.hash)?;
            was_split = true;
            at = match self.locate(header, key)? {
                KeyPosition::Found { leaf, entry } => (leaf, entry),
                _ => return Err(self.corrupt("an entry of a ZAP vanished when its leaf was split")),
            };
        }
    }

    /// Adds an entry that does not exist, splitting leaves until it fits. Writes the header when the table
    /// needs it; the caller writes it in the end.
    pub(super) fn place(&self, header: &mut FatHeader, new: &NewEntry<'_>) -> Result<(), DmuError> {
        let leaf = self.leaf_id(header, new.hash)?;
        self.place_in(header, new, leaf)?;
        self.write_header(header)
    }

    fn place_in(
        &self,
        header: &mut FatHeader,
        new: &NewEntry<'_>,
        mut leaf: BlockId,
    ) -> Result<(), DmuError> {
        let unit = key_unit(header);
        loop {
            let is_done =
                self.change(leaf, ZapBlockKind::Leaf, |block| LeafMut::open(block, unit)?.insert(new))?;
            if is_done {
                header.entries = header.entries.saturating_add(1);
                return Ok(());
            }
            self.split(header, leaf, new.hash)?;
            leaf = self.leaf_id(header, new.hash)?;
        }
    }

    /// Removes an entry that was located.
    pub(super) fn take_fat(
        &self,
        header: &mut FatHeader,
        leaf: BlockId,
        entry: &LeafEntry,
    ) -> Result<ZapEntry, DmuError> {
        let taken = self.read_entry(header, leaf, entry)?;
        let (unit, chunk) = (key_unit(header), entry.chunk);
        // As for a new entry: writing the header in the end cannot fail.
        self.write_header(header)?;
        let is_empty = self.change(leaf, ZapBlockKind::Leaf, |block| {
            let mut leaf = LeafMut::open(block, unit)?;
            leaf.remove(chunk)?;
            Ok(leaf.is_empty())
        })?;
        header.entries = header.entries.saturating_sub(1);
        if is_empty {
            self.merge_empty(header, leaf)?;
        }
        self.write_header(header)?;
        Ok(taken)
    }

    /// Merges an empty leaf with its empty neighbour, and so on upwards, so that emptied leaves are freed.
    fn merge_empty(&self, header: &mut FatHeader, mut id: BlockId) -> Result<(), DmuError> {
        // With two tables, both would have to be changed.
        while header.next_block.0 == 0 {
            // Damage nearby must not prevent the removal of an entry.
            let Ok(Some((prefix, prefix_len))) = self.empty_leaf(id) else { break };
            if prefix_len == 0 || prefix_len > header.table_shift {
                break;
            }
            let width = 1_u64 << (header.table_shift - prefix_len);
            let neighbour = prefix ^ 1;
            let Ok(other) = self.leaf_id(header, neighbour << (64 - prefix_len)) else { break };
            if !matches!(self.empty_leaf(other), Ok(Some(found)) if found == (neighbour, prefix_len)) {
                break;
            }
            let (kept, freed) = if prefix & 1 == 0 { (id, other) } else { (other, id) };
            let is_sorted = header.normalization != 0;
            self.set_slots(header, (prefix | 1) * width, width, kept)?;
            self.blocks
                .put_block(kept, new_leaf(header.block_shift, prefix >> 1, prefix_len - 1, is_sorted))?;
            self.blocks.free_blocks(freed, 1)?;
            header.leaves = header.leaves.saturating_sub(1);
            id = kept;
        }
        Ok(())
    }

    /// Prefix of a leaf and its length in bits, if it has no entries.
    fn empty_leaf(&self, id: BlockId) -> Result<Option<(u64, u32)>, DmuError> {
        let Some(block) = self.leaf_block(id)? else { return Ok(None) };
        let leaf = Leaf::decode(block.bytes(), block.order()).map_err(|e| self.decode_error(e))?;
        let is_empty = leaf.entries == 0 && usize::from(leaf.free_chunks) == leaf.chunks;
        Ok(is_empty.then_some((leaf.prefix, leaf.prefix_len)))
    }

    pub(super) fn write_header(&self, header: &FatHeader) -> Result<(), DmuError> {
        self.change(BlockId(0), ZapBlockKind::First, |block| {
            header.encode_into(block);
            Ok(())
        })
    }

    /// Finds a key.
    pub(super) fn locate(&self, header: &FatHeader, key: &Key<'_>) -> Result<KeyPosition, DmuError> {
        let hash = key.hash(header.salt, header.flags);
        let id = self.leaf_id(header, hash)?;
        let Some(block) = self.leaf_block(id)? else { return Ok(KeyPosition::NoLeaf) };
        let leaf = self.decode_leaf(header, hash, &block)?;
        for entry in leaf.chain(leaf.bucket(hash)) {
            let entry = entry.map_err(|e| self.decode_error(e))?;
            if entry.hash == hash && self.is_key(&leaf, &entry, key)? {
                return Ok(KeyPosition::Found { leaf: id, entry });
            }
        }
        if let Key::Name(matcher) = key
            && is_doubtful(matcher.name, header.normalization)
            && let Some((leaf, entry)) = self.search(header, key)?
        {
            return Ok(KeyPosition::Found { leaf, entry });
        }
        let cd = leaf.unused_cd(hash).map_err(|e| self.decode_error(e))?;
        Ok(KeyPosition::Free { leaf: id, cd })
    }

    fn is_key(&self, leaf: &Leaf<'_>, entry: &LeafEntry, key: &Key<'_>) -> Result<bool, DmuError> {
        let verdict = match key {
            Key::Words(words) => {
                if usize::from(entry.name_len) != words.len() {
                    return Ok(false);
                }
                leaf.words(entry).map(|found| found == *words)
            }
            Key::Name(matcher) if matcher.wanted.is_none() => leaf.name_is(entry, matcher.name),
            Key::Name(_) if usize::from(entry.name_len) > NAME_MAX => return Ok(false),
            Key::Name(matcher) => leaf.name(entry).map(|name| matcher.accepts(&name)),
        };
        verdict.map_err(|e| self.decode_error(e))
    }

    /// Compares all entries with a name whose hash may differ from that of OpenZFS.
    fn search(&self, header: &FatHeader, key: &Key<'_>) -> Result<Option<(BlockId, LeafEntry)>, DmuError> {
        let mut found = None;
        self.for_each_leaf(header, 0, |id, leaf| {
            for entry in sorted_entries(header, leaf).0 {
                if self.is_key(leaf, &entry, key)? {
                    found = Some((id, entry));
                    return Ok(false);
                }
            }
            Ok(true)
        })?;
        Ok(found)
    }

    /// The entries from a position on, in order; reads no leaf after the one with the `limit`th entry.
    pub(super) fn fat_entries(
        &self,
        header: &FatHeader,
        from: (u64, u32),
        limit: usize,
    ) -> Result<Vec<ZapEntry>, DmuError> {
        let mut all = Vec::new();
        self.for_each_leaf(header, header.table_index(from.0), |_, leaf| {
            let (entries, damage) = sorted_entries(header, leaf);
            damage.map_or(Ok(()), |damage| Err(self.decode_error(damage)))?;
            let wanted = entries.iter().filter(|entry| (entry.hash, entry.cd) >= from);
            for entry in wanted.take(limit - all.len()) {
                all.push(leaf_entry(header, leaf, entry).map_err(|e| self.decode_error(e))?);
            }
            Ok(all.len() < limit)
        })?;
        Ok(all)
    }

    /// Visits the leaves from a slot of the pointer table on, until `visit` ends the visit.
    fn for_each_leaf(
        &self,
        header: &FatHeader,
        first: u64,
        mut visit: impl FnMut(BlockId, &Leaf<'_>) -> Result<bool, DmuError>,
    ) -> Result<(), DmuError> {
        let mut index = first;
        while index < header.table_len() {
            let hash = index.checked_shl(64 - header.table_shift).unwrap_or(0);
            let id = self.leaf_id(header, hash)?;
            index += 1;
            if let Some(block) = self.leaf_block(id)? {
                let leaf = self.decode_leaf(header, hash, &block)?;
                index = (leaf.prefix + 1) << (header.table_shift - leaf.prefix_len);
                if !visit(id, &leaf)? {
                    break;
                }
            }
        }
        Ok(())
    }

    /// The leaf that a hash belongs to.
    fn leaf_id(&self, header: &FatHeader, hash: u64) -> Result<BlockId, DmuError> {
        let (id, at) = header.table_slot(header.table_index(hash));
        let block = self.table_block(id)?;
        match block.order().get_u64(block.bytes(), at) {
            Some(id) if id != 0 && id < header.free_block.0 => Ok(BlockId(id)),
            _ => Err(self.corrupt("a ZAP's pointer table leads outside the ZAP")),
        }
    }

    fn table_block(&self, id: BlockId) -> Result<Block, DmuError> {
        self.blocks.block(id)?.ok_or_else(|| self.corrupt("a hole in a ZAP's pointer table"))
    }

    /// The block of a leaf; `None` if it is a hole, or all zeros after a removal that was cut short.
    fn leaf_block(&self, id: BlockId) -> Result<Option<Block>, DmuError> {
        Ok(self.blocks.block(id)?.filter(|block| block.bytes().iter().any(|byte| *byte != 0)))
    }

    fn decode_leaf<'b>(&self, header: &FatHeader, hash: u64, block: &'b Block) -> Result<Leaf<'b>, DmuError> {
        let leaf = Leaf::decode(block.bytes(), block.order()).map_err(|e| self.decode_error(e))?;
        if leaf.prefix_len > header.table_shift || !leaf.covers(hash) {
            return Err(self.corrupt("a ZAP's pointer table leads to the wrong leaf"));
        }
        Ok(leaf)
    }

    /// Splits the leaf `id`, which has no space for an entry with this hash.
    fn split(&self, header: &mut FatHeader, id: BlockId, hash: u64) -> Result<(), DmuError> {
        let block = self.leaf_block(id)?.ok_or_else(|| self.corrupt("a hole among a ZAP's leaves"))?;
        let leaf = self.decode_leaf(header, hash, &block)?;
        let (entries, damage) = sorted_entries(header, &leaf);
        if let Some(damage) = damage {
            return Err(self.decode_error(damage));
        }
        // The longest table distinguishes so many bits; entries that share them stay together.
        let differing = entries.iter().fold(0, |bits, entry| bits | (entry.hash ^ hash));
        let shift_needed = differing.leading_zeros() + 1;
        if shift_needed > shift_max(header) || shift_needed > header.table_shift + GROWTH_MAX {
            return Err(self.full());
        }
        if header.next_block.0 != 0 || leaf.prefix_len == header.table_shift {
            self.grow_table(header)?;
        }
        let mut grown = header.clone();
        let new = self.take_blocks(&mut grown, 1)?;
        let prefix_len = leaf.prefix_len + 1;
        let mut halves = [leaf.prefix << 1, leaf.prefix << 1 | 1]
            .map(|prefix| new_leaf(header.block_shift, prefix, prefix_len, header.normalization != 0));
        for entry in &entries {
            let half = (entry.hash >> (64 - prefix_len) & 1) as usize;
            if !copy_entry(header, &leaf, entry, &mut halves[half]).map_err(|e| self.decode_error(e))? {
                return Err(self.corrupt("a ZAP leaf of more entries than it has room for"));
            }
        }
        let [low, high] = halves;
        let per_leaf = 1_u64 << (header.table_shift - prefix_len);
        let first = (leaf.prefix << 1 | 1) * per_leaf;
        // Steps that can fail come before the change that must be complete.
        for index in [first, first + per_leaf - 1] {
            self.table_block(header.table_slot(index).0)?;
        }
        self.blocks.put_block(id, low)?;
        self.blocks.put_block(new, high)?;
        *header = grown;
        header.leaves = header.leaves.saturating_add(1);
        self.set_slots(header, first, per_leaf, new)?;
        self.write_header(header)
    }

    /// Makes `count` slots of the pointer table lead to a leaf.
    fn set_slots(&self, header: &FatHeader, first: u64, count: u64, leaf: BlockId) -> Result<(), DmuError> {
        let (mut index, end) = (first, first + count);
        let per_block = 1_u64 << (header.block_shift - 3);
        let kind = if header.table_blocks == 0 { ZapBlockKind::First } else { ZapBlockKind::Table };
        while index < end {
            let (block, at) = header.table_slot(index);
            let here = (end - index).min(if header.table_blocks == 0 {
                end - index
            } else {
                per_block - (index & (per_block - 1))
            });
            self.change(block, kind, |bytes| {
                let slots = bytes.get_mut(at..at + 8 * here as usize);
                let slots = slots.ok_or(DecodeError::field("ZAP pointer table", "block size", at as u64))?;
                slots.chunks_exact_mut(8).for_each(|slot| slot.copy_from_slice(&leaf.0.to_le_bytes()));
                Ok(())
            })?;
            index += here;
        }
        Ok(())
    }

    /// Allocates the next blocks that were never used.
    fn take_blocks(&self, header: &mut FatHeader, count: u64) -> Result<BlockId, DmuError> {
        let first = header.free_block;
        // Objects end at 2^63 bytes.
        let end = first.0.checked_add(count).filter(|end| *end <= 1 << (63 - header.block_shift));
        header.free_block = BlockId(end.ok_or_else(|| self.corrupt("a ZAP without end"))?);
        Ok(first)
    }

    /// Doubles the length of the pointer table, and each slot with it.
    fn grow_table(&self, header: &mut FatHeader) -> Result<(), DmuError> {
        if header.table_shift >= shift_max(header) {
            return Err(self.full());
        }
        let size = 1_usize << header.block_shift;
        let old = (header.table_block, header.table_blocks);
        let new_blocks = (2 * header.table_blocks).max(1);
        let new = if header.next_block.0 == 0 {
            self.take_blocks(header, new_blocks)?
        } else {
            // Another implementation began the growth: its copy is written again at the same place.
            let end = header.next_block.0.checked_add(new_blocks);
            let begins_behind = header.next_block.0 >= old.0.0.saturating_add(old.1).max(1);
            if !begins_behind || end.is_none_or(|end| end > header.free_block.0) {
                return Err(self.corrupt("a ZAP's next pointer table lies outside the ZAP"));
            }
            header.next_block
        };
        for i in 0..new_blocks {
            let (from, range) = if old.1 == 0 {
                (BlockId(0), size / 2..size)
            } else {
                let half = size / 2 * (i & 1) as usize;
                (BlockId(old.0.0 + i / 2), half..half + size / 2)
            };
            let block = self.table_block(from)?;
            let slots = block.bytes().get(range).unwrap_or_default();
            let doubled = block.order().all_words(slots).flat_map(|slot| [slot.to_le_bytes(); 2]);
            self.blocks.put_block(BlockId(new.0 + i), doubled.flatten().collect())?;
        }
        (header.table_block, header.table_blocks) = (new, new_blocks);
        header.table_shift += 1;
        (header.next_block, header.blocks_copied) = (BlockId(0), 0);
        // From here on the new table is valid, even if freeing the old one fails.
        self.write_header(header)?;
        if old.1 != 0 {
            self.blocks.free_blocks(old.0, old.1)?;
        }
        Ok(())
    }
}

/// Bits of the index of the longest pointer table, which has 512 MiB.
fn shift_max(header: &FatHeader) -> u32 {
    (hash_bits(header.flags) - 2).min(26)
}

/// Copies an entry into another leaf. Returns false if it does not fit.
fn copy_entry(
    header: &FatHeader,
    leaf: &Leaf<'_>,
    entry: &LeafEntry,
    to: &mut [u8],
) -> Result<bool, DecodeError> {
    let (key, value) = (leaf.stored_key(entry, key_unit(header))?, leaf.value(entry)?);
    let (hash, cd, int_size) = (entry.hash, entry.cd, entry.int_size);
    LeafMut::open(to, key_unit(header))?.insert(&NewEntry { hash, cd, key: &key, int_size, value: &value })
}
