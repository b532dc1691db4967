//! Index of a micro ZAP: its slots by hash, and its free slots.
//!
//! A micro ZAP has no order on disk. Without this index every change of a directory of two thousand files
//! would compare two thousand names.
//!
//! # What always holds
//! - The index tells where a name may be; the block tells whether it is there. The index has every used slot:
//!   code that changes the block by other means drops the index.
//! - The returned free slot is the first one, whatever was removed before: equal blocks grow equally.

use super::normalize::prepare;
use format::zap::{MICRO_ENTRY_SIZE, MicroZap, hash_name};
use format::{DecodeError, Endian};

/// End of a chain of slots, which are counted from 1.
const NONE: u16 = 0;

/// Slots of a micro ZAP by hash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MicroIndex {
    /// First slot of each bucket. Their number is a power of two, and at least that of the slots.
    heads: Vec<u16>,
    /// Hash and next slot of the bucket, by slot. Slot 0 is the header.
    slots: Vec<(u32, u16)>,
    /// A bit for each used slot; bit 0 is always set.
    used: Vec<u64>,
    entries: usize,
}

/// The bits of a hash that distinguish entries of a micro ZAP.
pub(super) fn micro_hash(hash: u64) -> u32 {
    (hash >> 32) as u32
}

impl MicroIndex {
    /// Builds the index of a micro ZAP from its block.
    ///
    /// # Errors
    /// [`DecodeError`] if the block is no micro ZAP.
    pub(crate) fn build(block: &[u8], order: Endian) -> Result<MicroIndex, DecodeError> {
        let zap = MicroZap::decode(block, order)?;
        let mut index =
            MicroIndex { heads: vec![NONE; 8], slots: vec![(0, NONE)], used: vec![1], entries: 0 };
        index.grow(block.len() / MICRO_ENTRY_SIZE - 1);
        // Backwards, so that chains lead from lower to higher slots.
        for slot in (1..=zap.slots()).rev() {
            if let Some(entry) = zap.entry(slot) {
                let hash = hash_name(zap.salt, 0, &prepare(entry.name, zap.normalization));
                index.add(slot, micro_hash(hash));
            }
        }
        Ok(index)
    }

    /// Number of entries.
    pub(crate) fn entries(&self) -> usize {
        self.entries
    }

    /// The used slots whose entries have this hash.
    pub(super) fn slots_of(&self, hash: u32) -> impl Iterator<Item = usize> + '_ {
        let first = self.heads.get(self.bucket(hash)).copied().filter(|slot| *slot != NONE);
        let chain = std::iter::successors(first, |slot| {
            self.slots.get(usize::from(*slot)).map(|(_, next)| *next).filter(|next| *next != NONE)
        });
        chain.map(usize::from).filter(move |slot| self.slots.get(*slot).is_some_and(|(h, _)| *h == hash))
    }

    /// The first free slot.
    pub(super) fn free_slot(&self) -> Option<usize> {
        let (word, bits) = self.used.iter().enumerate().find(|(_, bits)| **bits != u64::MAX)?;
        let slot = 64 * word + bits.trailing_ones() as usize;
        (slot < self.slots.len()).then_some(slot)
    }

    pub(super) fn add(&mut self, slot: usize, hash: u32) {
        let bucket = self.bucket(hash);
        self.slots[slot] = (hash, self.heads[bucket]);
        self.heads[bucket] = slot as u16;
        self.used[slot / 64] |= 1 << (slot % 64);
        self.entries += 1;
    }

    pub(super) fn remove(&mut self, slot: usize) {
        let (hash, next) = self.slots[slot];
        let bucket = self.bucket(hash);
        let before = self.slots_in(bucket).find(|at| usize::from(self.slots[*at].1) == slot);
        match before {
            Some(before) => self.slots[before].1 = next,
            None => self.heads[bucket] = next,
        }
        self.used[slot / 64] &= !(1 << (slot % 64));
        self.entries -= 1;
    }

    /// Extends the index to `slots` slots, no fewer than before.
    pub(super) fn grow(&mut self, slots: usize) {
        // Without the header there are fewer than 2^14 slots in the largest micro ZAP.
        assert!(slots < usize::from(u16::MAX), "a micro ZAP of at most 1 MiB");
        self.slots.resize(slots + 1, (0, NONE));
        self.used.resize((slots + 1).div_ceil(64), 0);
        if slots > self.heads.len() {
            self.heads = vec![NONE; slots.next_power_of_two()];
            for slot in (1..=slots).rev() {
                if self.used[slot / 64] >> (slot % 64) & 1 == 1 {
                    let bucket = self.bucket(self.slots[slot].0);
                    self.slots[slot].1 = self.heads[bucket];
                    self.heads[bucket] = slot as u16;
                }
            }
        }
    }

    fn slots_in(&self, bucket: usize) -> impl Iterator<Item = usize> + '_ {
        let first = Some(self.heads[bucket]).filter(|slot| *slot != NONE);
        std::iter::successors(first, |slot| {
            Some(self.slots[usize::from(*slot)].1).filter(|next| *next != NONE)
        })
        .map(usize::from)
    }

    fn bucket(&self, hash: u32) -> usize {
        // The top bits of a hash are the most random.
        (hash.rotate_left(14) as usize) & (self.heads.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use format::zap::{clear_micro_entry, new_micro, set_micro_entry};

    #[test]
    fn slots_come_and_go() {
        let mut block = new_micro(1024, 5, 0);
        let mut index = MicroIndex::build(&block, Endian::Little).unwrap();
        let hash = |name: &[u8]| micro_hash(hash_name(5, 0, name));
        for i in 1..=15 {
            let name = format!("file{i}");
            assert_eq!(index.free_slot(), Some(i));
            set_micro_entry(&mut block, i, name.as_bytes(), 0, 0).unwrap();
            index.add(i, hash(name.as_bytes()));
        }
        assert_eq!((index.free_slot(), index.entries()), (None, 15));
        for i in [9, 3] {
            assert_eq!(index.slots_of(hash(format!("file{i}").as_bytes())).collect::<Vec<_>>(), [i]);
            clear_micro_entry(&mut block, i).unwrap();
            index.remove(i);
        }
        assert_eq!((index.free_slot(), index.slots_of(hash(b"file9")).count()), (Some(3), 0));
        block.resize(1536, 0);
        index.grow(23);
        let fresh = MicroIndex::build(&block, Endian::Little).unwrap();
        assert_eq!(fresh.used, index.used);
        for i in 1..=15 {
            let hash = hash(format!("file{i}").as_bytes());
            assert_eq!(index.slots_of(hash).collect::<Vec<_>>(), fresh.slots_of(hash).collect::<Vec<_>>());
        }
    }

    #[test]
    fn slots_of_equal_hash_share_a_chain() {
        let mut index = MicroIndex::build(&new_micro(1024, 5, 0), Endian::Little).unwrap();
        for slot in [4, 2, 9] {
            index.add(slot, 77 << 4);
        }
        index.remove(2);
        assert_eq!(index.slots_of(77 << 4).collect::<Vec<_>>(), [9, 4]);
        index.remove(9);
        index.remove(4);
        assert_eq!(index.slots_of(77 << 4).count(), 0);
    }
}
