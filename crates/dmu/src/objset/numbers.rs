//! Allocation of object numbers (docs/on-disk/20-dmu.md, section 4.1).
//!
//! # What always holds
//! - A number that was freed in a txg is not reused before that txg is on disk: otherwise two objects could
//!   be changed under one number, and after a crash the log could create the second while the first exists. A
//!   set that was written need not have its txg on disk, but two txgs later it has: at most one txg is being
//!   written while another is open.
//! - A dnode of several slots lies within one block of dnodes.

use format::dnode::SLOTS_PER_BLOCK;
use format::{ObjectId, Txg};
use std::collections::{BTreeSet, HashMap, VecDeque};

const SLOTS: u64 = SLOTS_PER_BLOCK as u64;

/// The allocator of object numbers.
#[derive(Debug)]
pub(crate) struct Numbers {
    /// Number of the current block of dnodes, and its free slots.
    at: u64,
    free: u32,
    loaded: bool,
    /// Slots taken by objects that are not on disk yet, by block.
    taken: HashMap<u64, u32>,
    /// Slots as in `taken`, by the lowest bit of the txg that writes their objects.
    arriving: [Vec<(u64, u32)>; 2],
    /// Slots whose objects were freed in a txg that may not be on disk yet.
    leaving: HashMap<u64, u32>,
    freed: [Vec<(u64, u32)>; 2],
    /// Those of `leaving` whose txg was written, but may lack its uberblock.
    settling: VecDeque<(Txg, u64, u32)>,
    /// Blocks before `at` with slots that became free.
    reusable: BTreeSet<u64>,
    /// The first block after all that were ever used.
    end: u64,
}

/// Callback that reads the slots of a block of dnodes that are in use on disk.
pub(crate) type UsedSlots<'a> = &'a mut dyn FnMut(u64) -> Result<u32, crate::DmuError>;

fn mask(first: u64, slots: u64) -> u32 {
    (((1_u64 << slots) - 1) << first) as u32
}

impl Numbers {
    /// The numbers of a set whose last block of dnodes is `last_block`.
    pub(crate) fn new(last_block: u64) -> Numbers {
        Numbers {
            at: last_block,
            free: 0,
            loaded: false,
            taken: HashMap::new(),
            arriving: Default::default(),
            leaving: HashMap::new(),
            freed: Default::default(),
            settling: VecDeque::new(),
            reusable: BTreeSet::new(),
            end: last_block + 1,
        }
    }

    /// Allocates `slots` consecutive numbers for an object of `txg`.
    pub(crate) fn take(
        &mut self,
        slots: u64,
        txg: Txg,
        used: UsedSlots<'_>,
    ) -> Result<ObjectId, crate::DmuError> {
        self.settle(|freed| freed.0 + 2 <= txg.0);
        loop {
            if !self.loaded {
                self.load(used)?;
            }
            if let Some(first) = (0..=SLOTS - slots).find(|i| self.free & mask(*i, slots) == mask(*i, slots))
            {
                self.free &= !mask(first, slots);
                self.note_taken(self.at, mask(first, slots), txg);
                return Ok(ObjectId(self.at * SLOTS + first));
            }
            self.advance();
        }
    }

    /// Allocates this number. Returns false if it, or one of its further slots, is in use or not reusable
    /// yet. For a replay, which has waited for the written txgs, and repeats changes that were not on disk
    /// after all.
    pub(crate) fn take_this(
        &mut self,
        id: ObjectId,
        slots: u64,
        txg: Txg,
        used: UsedSlots<'_>,
    ) -> Result<bool, crate::DmuError> {
        let (block, first) = (id.0 / SLOTS, id.0 % SLOTS);
        if first + slots > SLOTS {
            return Ok(false);
        }
        self.settle(|_| true);
        let wanted = mask(first, slots);
        if self.unusable(block, used)? & wanted != 0 {
            return Ok(false);
        }
        if block == self.at && self.loaded {
            self.free &= !wanted;
        }
        self.note_taken(block, wanted, txg);
        self.end = self.end.max(block + 1);
        Ok(true)
    }

    fn note_taken(&mut self, block: u64, bits: u32, txg: Txg) {
        *self.taken.entry(block).or_default() |= bits;
        self.arriving[(txg.0 & 1) as usize].push((block, bits));
        self.end = self.end.max(block + 1);
    }

    /// Frees the number of an object that was freed in this txg.
    pub(crate) fn give_back(&mut self, id: ObjectId, slots: u64, txg: Txg) {
        let (block, bits) = (id.0 / SLOTS, mask(id.0 % SLOTS, slots));
        *self.leaving.entry(block).or_default() |= bits;
        self.freed[(txg.0 & 1) as usize].push((block, bits));
    }

    /// Notes that the set was written: the numbers allocated in the txg are in the blocks now, those freed
    /// become reusable when it is on disk.
    pub(crate) fn synced(&mut self, txg: Txg) {
        let slot = (txg.0 & 1) as usize;
        for (block, bits) in std::mem::take(&mut self.arriving[slot]) {
            clear_bits(&mut self.taken, block, bits);
        }
        let freed = std::mem::take(&mut self.freed[slot]);
        self.settling.extend(freed.into_iter().map(|(block, bits)| (txg, block, bits)));
    }

    /// Makes the numbers reusable that were freed in txgs for which `is_on_disk` is true.
    fn settle(&mut self, is_on_disk: impl Fn(Txg) -> bool) {
        while let Some((_, block, bits)) = self.settling.pop_front_if(|(txg, ..)| is_on_disk(*txg)) {
            clear_bits(&mut self.leaving, block, bits);
            if block != self.at {
                self.reusable.insert(block);
            } else {
                self.free |= bits & if self.loaded { u32::MAX } else { 0 };
            }
        }
    }

    fn unusable(&self, block: u64, used: UsedSlots<'_>) -> Result<u32, crate::DmuError> {
        // Number 0 is the dnode array itself.
        let reserved = u32::from(block == 0);
        let taken = self.taken.get(&block).copied().unwrap_or(0);
        let leaving = self.leaving.get(&block).copied().unwrap_or(0);
        Ok(used(block)? | taken | leaving | reserved)
    }

    fn load(&mut self, used: UsedSlots<'_>) -> Result<(), crate::DmuError> {
        self.free = !self.unusable(self.at, used)?;
        self.loaded = true;
        Ok(())
    }

    /// Moves on to a block that may have free slots: an earlier one with freed slots, otherwise a new one.
    fn advance(&mut self) {
        self.loaded = false;
        self.at = match self.reusable.pop_first() {
            Some(block) => block,
            None => {
                let next = if self.at + 1 < self.end { self.end } else { self.at + 1 };
                self.end = self.end.max(next + 1);
                next
            }
        };
    }
}

fn clear_bits(map: &mut HashMap<u64, u32>, block: u64, bits: u32) {
    if let Some(entry) = map.get_mut(&block) {
        *entry &= !bits;
        if *entry == 0 {
            map.remove(&block);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_unique_and_reused_only_after_the_sync() {
        let mut numbers = Numbers::new(0);
        let mut none = |_: u64| Ok(0);
        let first: Vec<u64> = (0..40).map(|_| numbers.take(1, Txg(5), &mut none).expect("free").0).collect();
        let expected: Vec<u64> = (1..41).collect();
        assert_eq!(first, expected);
        numbers.give_back(ObjectId(7), 1, Txg(5));
        assert!(!numbers.take_this(ObjectId(7), 1, Txg(5), &mut none).expect("asked"));
        let mut on_disk = |block: u64| {
            Ok(match block {
                0 => !1 & !(1 << 7),
                1 => (1 << 9) - 1,
                _ => 0,
            })
        };
        numbers.synced(Txg(5));
        assert!(numbers.take_this(ObjectId(7), 1, Txg(6), &mut on_disk).expect("asked"));
        assert!(!numbers.take_this(ObjectId(8), 1, Txg(6), &mut on_disk).expect("asked"));
    }

    /// A log written meanwhile would name the new object, and after a crash the old one would exist.
    #[test]
    fn a_number_of_a_txg_without_its_uberblock_is_not_reused() {
        let mut numbers = Numbers::new(0);
        let mut on_disk = |_: u64| Ok(0b111_0110);
        let first: Vec<u64> =
            (0..3).map(|_| numbers.take(1, Txg(5), &mut on_disk).expect("free").0).collect();
        assert_eq!(first, [3, 7, 8]);
        numbers.give_back(ObjectId(7), 1, Txg(5));
        numbers.synced(Txg(5));
        assert_eq!(numbers.take(1, Txg(6), &mut on_disk).expect("free"), ObjectId(9));
        assert_eq!(numbers.take(1, Txg(7), &mut on_disk).expect("free"), ObjectId(7));
    }

    #[test]
    fn large_dnodes_do_not_cross_a_block() {
        let mut numbers = Numbers::new(0);
        let mut none = |_: u64| Ok(0);
        for _ in 0..20 {
            let id = numbers.take(5, Txg(1), &mut none).expect("free").0;
            assert!(id % SLOTS + 5 <= SLOTS, "{id}");
        }
    }
}
