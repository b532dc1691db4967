//! Detection of endless traversals in trees that repeat themselves.
//!
//! A malicious pool can reference one block many times: a few blocks then form a tree of any size, in which
//! each level looks valid. In a valid object set no block occurs twice, except data that deduplication or
//! cloning shares.
//!
//! # What always holds
//! - A traversal that meets an indirect block, or a block of dnodes, at a second place ends, if that block is
//!   still remembered. [`SLOTS_MAX`] blocks are remembered; beyond that, some are kept for long, so that a
//!   larger tree that repeats itself is detected after some repetitions.
//! - The unshared blocks of a traversal take no more space than the devices have.
//! - Memory is a few dozen bytes for a short traversal, and 1.5 MiB at most.

use crate::Store;
use format::{BlockPtr, ObjType};

/// Number of remembered blocks; a power of two.
const SLOTS_MAX: usize = 1 << 16;
/// Slots of a new table.
const SLOTS_MIN: usize = 1 << 6;
/// Of this many blocks that find their slot taken, one replaces the block there.
const REPLACED_ONE_IN: u64 = 8;

/// Place of a block in a tree: object, level and number in one word.
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

/// Blocks that were met, with their places.
#[derive(Debug, Clone, Default)]
pub(crate) struct Memory {
    slots: Vec<Met>,
    taken: usize,
    clashes: u64,
}

impl Memory {
    /// Remembers a block. Returns false if it was met at another place before.
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

/// The budget of a traversal of one object set, or of a part of one.
#[derive(Debug, Clone)]
pub struct LoopGuard {
    /// Bytes of devices that are left.
    left: u64,
    met: Memory,
}

impl LoopGuard {
    /// A guard for a new traversal.
    pub fn new(store: &Store) -> LoopGuard {
        LoopGuard { left: store.capacity(), met: Memory::default() }
    }

    /// Takes the space of block `blkid` of `level` of an object. Returns false if the traversal repeats
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
        // The size in a pointer may be wrong; less than a sector is impossible.
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
