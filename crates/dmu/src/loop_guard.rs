//! An end for walks of trees that repeat themselves.
//!
//! Nothing keeps a pool that was made to do harm from pointing to one block many times over: a handful of
//! blocks then makes a tree of any size, at every level of which all is as it should be. No
//! block of a real tree is met twice in one object set, save data that deduplication or cloning shares.
//!
//! # What always holds
//! - A walk that meets an indirect block, or a block of dnodes, in a second place ends, if that block is still
//!   remembered. Remembered are [`SLOTS_MAX`]; when there are more, some are kept for long, so that a
//!   tree of more blocks that repeats itself is found out after some repetitions.
//! - The blocks of a walk that are not shared take no more space than the devices have.
//! - Memory is a few dozen bytes for a short walk, and 1.5 MiB at most.

use crate::Store;
use format::{BlockPtr, ObjType};

/// Blocks that are remembered; a power of two.
const SLOTS_MAX: usize = 1 << 16;
/// Slots of a table that has just been made.
const SLOTS_MIN: usize = 1 << 6;
/// Of so many blocks that find their slot taken, one takes it over.
const REPLACED_ONE_IN: u64 = 8;

/// Where in a tree a block is: object, level and number in one word.
pub(crate) fn place(object: u64, level: u8, blkid: u64) -> u64 {
    mix(object ^ mix(blkid ^ u64::from(level) << 58))
}

fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    word ^ (word >> 29)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Met {
    /// Words of the first address; zeros: the slot is free.
    address: [u64; 2],
    place: u64,
}

impl Met {
    fn is_free(&self) -> bool {
        *self == Met::default()
    }

    fn slot(&self, slots: usize) -> usize {
        mix(self.address[1] ^ self.address[0].rotate_left(17)) as usize & (slots - 1)
    }
}

/// Blocks met, and where.
#[derive(Debug, Clone, Default)]
pub(crate) struct Memory {
    slots: Vec<Met>,
    taken: usize,
    clashes: u64,
}

impl Memory {
    /// Remembers a block; false if it is known from another place.
    pub(crate) fn note(&mut self, bp: &BlockPtr, place: u64) -> bool {
        let Some(dva) = bp.dvas().next().filter(|_| !bp.is_embedded()) else { return true };
        if 2 * self.taken >= self.slots.len() && self.slots.len() < SLOTS_MAX {
            self.grow();
        }
        let met = Met { address: dva.to_words(), place };
        let at = met.slot(self.slots.len());
        let Some(slot) = self.slots.get_mut(at) else { return true };
        if slot.address == met.address {
            return slot.place == met.place;
        }
        if slot.is_free() {
            self.taken += 1;
            *slot = met;
        } else {
            self.clashes += 1;
            if self.clashes.is_multiple_of(REPLACED_ONE_IN) {
                *slot = met;
            }
        }
        true
    }

    fn grow(&mut self) {
        let len = (4 * self.slots.len()).clamp(SLOTS_MIN, SLOTS_MAX);
        let old = std::mem::replace(&mut self.slots, vec![Met::default(); len]);
        self.taken = 0;
        for met in old.into_iter().filter(|met| !met.is_free()) {
            let at = met.slot(len);
            if let Some(slot) = self.slots.get_mut(at).filter(|slot| slot.is_free()) {
                *slot = met;
                self.taken += 1;
            }
        }
    }
}

/// What a walk of one object set, or of a part of one, may still meet.
#[derive(Debug, Clone)]
pub struct LoopGuard {
    /// Bytes of devices.
    left: u64,
    met: Memory,
}

impl LoopGuard {
    /// LoopGuard for a walk.
    pub fn new(store: &Store) -> LoopGuard {
        LoopGuard { left: store.capacity(), met: Memory::default() }
    }

    /// Takes the room of block `blkid` of `level` of an object; false if there is none: the walk repeats
    /// itself.
    pub fn take(&mut self, bp: &BlockPtr, object: u64, level: u8, blkid: u64) -> bool {
        let is_data = bp.level().0 == 0 && bp.obj_type() != ObjType::DNODE;
        let is_shared = bp.is_dedup() || bp.physical_birth() != bp.logical_birth();
        if bp.is_embedded() || (is_shared && is_data) {
            return true;
        }
        if !is_data && !self.met.note(bp, place(object, level, blkid)) {
            return false;
        }
        // What a pointer says of its size may be a lie; less than a sector is none.
        let asize = bp.dvas().fold(0, |sum: u64, dva| sum.saturating_add(dva.asize.0)).max(512);
        match self.left.checked_sub(asize) {
            Some(left) => {
                self.left = left;
                true
            }
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pointer(n: u64) -> BlockPtr {
        BlockPtr::HOLE.with_word(0, 8).with_word(1, n + 1).with_prop_bits(56, 5, 1)
    }

    #[test]
    fn a_block_in_a_second_place_is_found_out() {
        for blocks in [1, 63, 1000, 40_000] {
            let mut memory = Memory::default();
            assert!((0..blocks).all(|n| memory.note(&pointer(n), n)));
            assert!((0..blocks).all(|n| memory.note(&pointer(n), n)), "the same places");
            let found = (0..blocks).filter(|n| !memory.note(&pointer(*n), n + blocks)).count();
            assert!(found as u64 * 2 >= blocks, "{found} of {blocks}");
        }
    }

    #[test]
    fn a_round_of_more_blocks_than_are_remembered_is_found_out() {
        let mut memory = Memory::default();
        let blocks = 20 * SLOTS_MAX as u64;
        assert!((0..blocks).all(|n| memory.note(&pointer(n), n)));
        assert!((0..blocks).any(|n| !memory.note(&pointer(n), n + blocks)));
    }
}
