//! Iteration over a ZAP in the order of its cursor.
//!
//! # What always holds
//! - Each slot of the pointer table yields the entries whose hash belongs to it, and no others: the entries
//!   come in order and once, even if the table and the leaves contradict each other.
//! - An iteration ends. A pointer table may claim any length, and blocks that are holes cost no space on
//!   disk; so [`FRUITLESS_SLOTS`] and [`DAMAGE_MAX`] bound the work between two entries.

use super::entry::{ZapEntry, cursor_after, cursor_position, micro_entry};
use super::reader::{Form, Zap};
use crate::DmuError;
use format::zap::{CHAIN_END, CHUNK_DATA, FatHeader, Leaf, LeafEntry, MicroEntry};
use format::{BlockId, DecodeError};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use zio::Block;

/// Most slots of the pointer table that are examined between two entries: those of the longest table of a
/// directory, whose hashes have 28 bits.
const FRUITLESS_SLOTS: u64 = 1 << 28;
/// Most damaged places reported between two entries.
const DAMAGE_MAX: u32 = 1000;
/// Most slots claimed by a leaf that are all examined. Of more, the last one and a sample are.
const RUN_EXACT: u64 = 1 << 16;
/// Number of slots in that sample.
const RUN_SAMPLES: u64 = 64;

/// Iterator over the entries of a ZAP in order. After an error it continues after the damage; it ends in any
/// case.
pub struct Entries {
    zap: Zap,
    /// The first position to return.
    from: (u64, u32),
    state: State,
}

enum State {
    /// The first block was not read yet.
    Start,
    /// Slots of a micro ZAP's block by their positions: a heap, so that a caller that needs a few does not
    /// sort all.
    Micro(BinaryHeap<Reverse<(u64, u32, usize)>>),
    /// Inside a fat ZAP.
    Fat {
        /// The leaf, its remaining entries, and the damage in it.
        leaf: Option<(Block, std::vec::IntoIter<LeafEntry>)>,
        damage: Option<Box<DmuError>>,
        /// Damaged places reported since the last entry.
        reported: u32,
        table: Table,
        /// The next slot of the pointer table.
        next: u64,
    },
    End,
}

/// Location of an entry.
enum At {
    /// In a slot of a micro ZAP, with its hash.
    Slot(usize, u64),
    /// In the current leaf.
    Leaf(LeafEntry),
}

/// An entry whose key is a name, without that name, which is in a buffer of the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NamedEntry {
    /// The first integer of the value; `None`: it has none.
    pub value: Option<u64>,
    /// Position after the entry, as [`ZapEntry::cursor`].
    pub cursor: u64,
}

impl Zap {
    /// All entries in order.
    pub fn entries(&self) -> Entries {
        self.entries_from(0)
    }

    /// The entries from a cursor on: 0, or a [`ZapEntry::cursor`].
    pub fn entries_from(&self, cursor: u64) -> Entries {
        Entries::new(self.clone(), cursor)
    }
}

impl Entries {
    fn new(zap: Zap, cursor: u64) -> Entries {
        let (from, state) = match cursor_position(zap.flags(), cursor) {
            Some(from) => (from, State::Start),
            None => ((0, 0), State::End),
        };
        Entries { zap, from, state }
    }

    fn start(&self) -> Result<State, DmuError> {
        Ok(match &self.zap.form {
            Form::Micro { .. } => {
                let micro = self.zap.micro()?;
                let places = micro.entries().map(|e| (self.zap.micro_hash(e.name), e.cd, e.slot));
                let wanted = places.filter(|(hash, cd, _)| (*hash, *cd) >= self.from).map(Reverse);
                State::Micro(wanted.collect::<Vec<_>>().into())
            }
            Form::Fat(header) => {
                let next = header.table_index(self.from.0);
                State::Fat { leaf: None, damage: None, reported: 0, table: Table::new(), next }
            }
        })
    }

    /// Advances to the next entry.
    fn advance(&mut self) -> Option<Result<At, DmuError>> {
        if matches!(self.state, State::Start) {
            match self.start() {
                Ok(state) => self.state = state,
                Err(error) => {
                    self.state = State::End;
                    return Some(Err(error));
                }
            }
        }
        let zap = &self.zap;
        match (&mut self.state, &zap.form) {
            (State::Micro(slots), Form::Micro { .. }) => {
                slots.pop().map(|Reverse((hash, _, slot))| Ok(At::Slot(slot, hash)))
            }
            (State::Fat { leaf, damage, reported, table, next }, Form::Fat(header)) => loop {
                if let Some((_, entries)) = leaf {
                    if let Some(entry) = entries.next() {
                        (*reported, table.left) = (0, FRUITLESS_SLOTS);
                        return Some(Ok(At::Leaf(entry)));
                    }
                    *leaf = None;
                }
                if let Some(damage) = damage.take() {
                    *reported += 1;
                    return Some(Err(*damage));
                }
                if *next >= header.table_len() {
                    return None;
                }
                if *reported >= DAMAGE_MAX || table.left == 0 {
                    *next = header.table_len();
                    return Some(Err(zap.corrupt("a ZAP's pointer table leads nowhere")));
                }
                let slots = *next;
                let step = step(zap, header, table, *next);
                *next = step.next;
                let slots = slots..step.next;
                *damage = step.damage.map(Box::new);
                *leaf = step.leaf.map(|(block, mut entries)| {
                    entries.retain(|entry| {
                        (entry.hash, entry.cd) >= self.from && slots.contains(&header.table_index(entry.hash))
                    });
                    (block, entries.into_iter())
                });
            },
            _ => None,
        }
    }

    /// The current leaf, and the header of its ZAP.
    fn leaf(&self) -> Result<(&FatHeader, Leaf<'_>), DmuError> {
        let (State::Fat { leaf: Some((block, _)), .. }, Form::Fat(header)) = (&self.state, &self.zap.form)
        else {
            return Err(self.zap.corrupt("an entry outside of the leaves of a ZAP"));
        };
        let leaf = Leaf::decode(block.bytes(), block.order()).map_err(|e| self.zap.decode_error(e))?;
        Ok((header, leaf))
    }

    /// The entry in a slot of a micro ZAP.
    fn slot(&self, slot: usize) -> Result<MicroEntry<'_>, DmuError> {
        let entry = self.zap.micro()?.entry(slot);
        entry.ok_or_else(|| self.zap.corrupt("a slot of a micro ZAP is gone"))
    }

    fn read(&self, at: &At) -> Result<ZapEntry, DmuError> {
        match at {
            At::Slot(slot, hash) => {
                let entry = self.slot(*slot)?;
                Ok(micro_entry(&entry, *hash))
            }
            At::Leaf(entry) => {
                let (header, leaf) = self.leaf()?;
                self.zap.read_entry(header, &leaf, entry)
            }
        }
    }

    /// Like [`Iterator::next`], without an allocation for each entry: replaces the contents of `name` by the
    /// entry's name. For a ZAP whose keys are words the name is empty.
    pub fn next_named(&mut self, name: &mut Vec<u8>) -> Option<Result<NamedEntry, DmuError>> {
        let at = match self.advance()? {
            Ok(at) => at,
            Err(error) => return Some(Err(error)),
        };
        Some(self.read_named(&at, name))
    }

    fn read_named(&self, at: &At, name: &mut Vec<u8>) -> Result<NamedEntry, DmuError> {
        name.clear();
        match at {
            At::Slot(slot, hash) => {
                let entry = self.slot(*slot)?;
                name.extend_from_slice(entry.name);
                Ok(NamedEntry { value: Some(entry.value), cursor: cursor_after(0, *hash, entry.cd) })
            }
            At::Leaf(entry) => {
                let (header, leaf) = self.leaf()?;
                let failed = |error| self.zap.decode_error(error);
                if !header.has_word_keys() {
                    leaf.name_into(entry, name).map_err(failed)?;
                }
                let value = leaf.first_int(entry).map_err(failed)?;
                Ok(NamedEntry { value, cursor: cursor_after(header.flags, entry.hash, entry.cd) })
            }
        }
    }
}

impl Iterator for Entries {
    type Item = Result<ZapEntry, DmuError>;

    fn next(&mut self) -> Option<Self::Item> {
        let at = self.advance()?;
        Some(at.and_then(|at| self.read(&at)))
    }
}

/// A forward reader of the pointer table, which keeps the current block.
pub(super) struct Table {
    at: Option<(BlockId, Block)>,
    /// Slots that may still be examined before an entry is found.
    left: u64,
}

impl Table {
    pub(super) fn new() -> Table {
        Table { at: None, left: FRUITLESS_SLOTS }
    }

    /// The leaf of a slot.
    fn get(&mut self, zap: &Zap, header: &FatHeader, index: u64) -> Result<BlockId, DmuError> {
        self.left = match self.left.checked_sub(1) {
            Some(left) => left,
            None => return Err(zap.corrupt("a ZAP's pointer table leads nowhere")),
        };
        let (id, at) = header.table_slot(index);
        let block = match &self.at {
            Some((held, block)) if *held == id => block,
            _ => {
                let block = zap.table_block(header, id)?;
                &self.at.insert((id, block)).1
            }
        };
        zap.check_pointer(header, block, at)
    }

    /// The first slot after `index` that does not lead to `id`.
    fn run_end(&mut self, zap: &Zap, header: &FatHeader, index: u64, id: BlockId) -> u64 {
        let mut next = index + 1;
        while next < header.table_len() && self.get(zap, header, next).is_ok_and(|other| other == id) {
            next += 1;
        }
        next
    }

    /// Like [`Table::run_end`], if the leaf claims that its slots end at `claimed`: a very long claim is
    /// accepted after a sample of its slots.
    fn claimed_end(&mut self, zap: &Zap, header: &FatHeader, index: u64, id: BlockId, claimed: u64) -> u64 {
        let len = claimed.saturating_sub(index);
        let mut leads_there = |slot| self.get(zap, header, slot).is_ok_and(|other| other == id);
        let is_believed = len > RUN_EXACT
            && claimed <= header.table_len()
            && leads_there(claimed - 1)
            && (1..RUN_SAMPLES).all(|i| leads_there(index + len / RUN_SAMPLES * i))
            && (claimed == header.table_len() || !leads_there(claimed));
        if is_believed { claimed } else { self.run_end(zap, header, index, id) }
    }

    /// The slot to continue at after a bad one: after all bad slots of the same kind in the same block, so
    /// that a table of zeros is one error for each of its blocks.
    fn after_bad(&mut self, zap: &Zap, header: &FatHeader, index: u64) -> u64 {
        let (block, _) = header.table_slot(index);
        if self.at.as_ref().is_none_or(|(held, _)| *held != block) {
            // The block cannot be read: skip all its slots.
            let per_block = 1 << (header.block_shift - 3);
            return (index | (per_block - 1)).saturating_add(1);
        }
        let mut next = index + 1;
        while next < header.table_len() && header.table_slot(next).0 == block {
            if self.get(zap, header, next).is_ok() {
                break;
            }
            next += 1;
        }
        next
    }
}

/// Result of examining one slot of the pointer table.
pub(super) struct Step {
    pub(super) leaf: Option<(Block, Vec<LeafEntry>)>,
    /// The damage, if any.
    pub(super) damage: Option<DmuError>,
    /// The first slot after those of the leaf, always further on.
    pub(super) next: u64,
}

/// Reads the leaf behind slot `index`, its entries in order.
pub(super) fn step(zap: &Zap, header: &FatHeader, table: &mut Table, index: u64) -> Step {
    let id = match table.get(zap, header, index) {
        Ok(id) => id,
        Err(error) => {
            return Step { leaf: None, damage: Some(error), next: table.after_bad(zap, header, index) };
        }
    };
    let hash = index.checked_shl(64 - header.table_shift).unwrap_or(0);
    let found = match zap.leaf_block(id) {
        Ok(None) => Ok(None),
        Ok(Some(block)) => zap.decode_leaf(header, hash, &block).map(|leaf| {
            // The leaf tells how many slots lead to it.
            let claimed = (leaf.prefix + 1) << (header.table_shift - leaf.prefix_len);
            let (entries, error) = sorted_entries(header, &leaf);
            Some((claimed, block.clone(), entries, error))
        }),
        Err(error) => Err(error),
    };
    match found {
        Ok(Some((claimed, block, entries, error))) => {
            let next = table.claimed_end(zap, header, index, id, claimed);
            let mut damage = error.map(|error| zap.decode_error(error));
            // If the table and the leaf disagree, some entries are out of reach.
            if claimed != next {
                damage = Some(zap.corrupt("a ZAP's pointer table and a leaf contradict each other"));
            }
            Step { leaf: Some((block, entries)), damage, next }
        }
        other => Step { leaf: None, damage: other.err(), next: table.run_end(zap, header, index, id) },
    }
}

/// All entries of the buckets, in order, and the first damage found. Each chunk counts once, whatever the
/// chains say: the entries together are no longer than the leaf.
pub(super) fn sorted_entries(header: &FatHeader, leaf: &Leaf<'_>) -> (Vec<LeafEntry>, Option<DecodeError>) {
    let key_unit = if header.has_word_keys() { 8 } else { 1 };
    let mut seen = vec![false; leaf.chunks];
    let mut room = leaf.chunks;
    let mut entries = Vec::new();
    let mut error = None;
    for bucket in 0..leaf.buckets {
        if leaf.bucket_head(bucket) == CHAIN_END {
            continue;
        }
        for entry in leaf.chain(bucket) {
            match entry {
                Ok(entry) => match seen.get_mut(usize::from(entry.chunk)) {
                    Some(seen) if !*seen => {
                        *seen = true;
                        match room.checked_sub(chunks_of(&entry, key_unit)) {
                            Some(left) => {
                                room = left;
                                entries.push(entry);
                            }
                            None => error = Some(DecodeError::invalid("ZAP leaf", "entries share chunks")),
                        }
                    }
                    _ => {
                        error = Some(DecodeError::invalid("ZAP leaf", "two chains meet"));
                        break;
                    }
                },
                Err(e) => error = Some(e),
            }
        }
    }
    entries.sort_unstable_by_key(|entry| (entry.hash, entry.cd));
    (entries, error)
}

/// Number of chunks of an entry, with a key made of units of `key_unit` bytes.
pub(super) fn chunks_of(entry: &LeafEntry, key_unit: usize) -> usize {
    let key = (key_unit * usize::from(entry.name_len)).div_ceil(CHUNK_DATA);
    1 + key + entry.value_bytes().div_ceil(CHUNK_DATA)
}
