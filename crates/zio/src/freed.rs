//! The filters that tell which blocks were freed or overwritten lately.
//!
//! # What always holds
//! - A block that was noted is found until its filter is dropped. What is dropped, as millions of blocks were freed
//!   since, is made up for: every block that is old enough to have been freed before that counts as freed.
//! - The filters take at most 16 MiB.

use format::{AllocOffset, Txg, VdevId};
use std::collections::VecDeque;
use std::sync::Mutex;
use vdev::sync::lock;

/// Bits of a filter: 2 MiB of memory, allocated when the previous one is full.
const BITS: usize = 1 << 24;
/// Blocks after which a filter is full: then one block in two hundred is reported though it was not freed.
const FULL: usize = 1 << 20;
/// Number of filters that are kept.
const FILTERS: usize = 8;

/// Record of recently freed blocks. It may also report a few others.
pub(crate) struct Freed(Mutex<Filters>);

#[derive(Default)]
struct Filters {
    /// The newest first, each with the last txg that freed one of its blocks.
    filters: VecDeque<(Vec<u64>, Txg)>,
    /// Number of blocks in the newest filter.
    count: usize,
    /// Frees of this txg and earlier ones are no longer all recorded.
    forgotten: Txg,
}

impl Freed {
    pub(crate) fn new() -> Freed {
        Freed(Mutex::default())
    }

    /// Records that a block is freed or overwritten in `txg`.
    pub(crate) fn note(&self, vdev: VdevId, offset: AllocOffset, birth: Txg, txg: Txg) {
        let mut filters = lock(&self.0);
        if filters.filters.is_empty() || filters.count >= FULL {
            while filters.filters.len() >= FILTERS {
                let oldest = filters.filters.pop_back().map_or(Txg(0), |(_, last)| last);
                filters.forgotten = filters.forgotten.max(oldest);
            }
            filters.filters.push_front((vec![0; BITS / 64], txg));
            filters.count = 0;
        }
        filters.count += 1;
        let Some((newest, last)) = filters.filters.front_mut() else { return };
        *last = txg.max(*last);
        for bit in bits(vdev, offset, birth) {
            if let Some(word) = newest.get_mut(bit / 64) {
                *word |= 1 << (bit % 64);
            }
        }
    }

    pub(crate) fn may_have(&self, vdev: VdevId, offset: AllocOffset, birth: Txg) -> bool {
        let filters = lock(&self.0);
        let has = |filter: &[u64]| {
            bits(vdev, offset, birth)
                .into_iter()
                .all(|bit| filter.get(bit / 64).is_some_and(|word| word >> (bit % 64) & 1 == 1))
        };
        // A free in a txg that is no longer recorded is possible only for a block born by then.
        birth <= filters.forgotten || filters.filters.iter().any(|(filter, _)| has(filter))
    }
}

/// The bits of a block in a filter, from its address and birth.
fn bits(vdev: VdevId, offset: AllocOffset, birth: Txg) -> [usize; 3] {
    let mut hash = offset.0 ^ u64::from(vdev.0) << 48;
    for word in [birth.0, 0x9e37_79b9_7f4a_7c15] {
        hash = (hash ^ hash >> 31).wrapping_mul(0xbf58_476d_1ce4_e5b9).wrapping_add(word);
    }
    hash ^= hash >> 29;
    [hash, hash >> 21, hash >> 41].map(|part| part as usize % BITS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_freed_is_known_and_little_else() {
        let freed = Freed::new();
        let block = |i: u64| (VdevId((i % 3) as u32), AllocOffset(i / 3 * 4096), Txg(1 + i % 17));
        let known = |i| {
            let (vdev, offset, birth) = block(i);
            freed.may_have(vdev, offset, birth)
        };
        assert!(!known(0));
        // Three quarters of the first filter and half of the next.
        let count = FULL as u64 * 3 / 2;
        for i in 0..count {
            let (vdev, offset, birth) = block(i);
            freed.note(vdev, offset, birth, Txg(20));
        }
        assert!((0..count).step_by(101).all(known));
        let others = 20_000;
        let wrong = (count..count + others).filter(|i| known(*i)).count() as u64;
        assert!(wrong < others / 15, "{wrong} of {others}");
        let (vdev, offset, birth) = block(5);
        let of_other_birth = (1000..2000).filter(|i| freed.may_have(vdev, offset, Txg(birth.0 + i))).count();
        assert!(of_other_birth < 100, "the next block in the same place is another");
    }

    #[test]
    fn what_may_be_forgotten_counts_as_freed() {
        let freed = Freed::new();
        let old = (VdevId(0), AllocOffset(0), Txg(5));
        freed.note(old.0, old.1, old.2, Txg(9));
        for i in 1..=(FULL * FILTERS) as u64 {
            freed.note(VdevId(1), AllocOffset(i * 4096), Txg(10), Txg(11));
        }
        assert!(freed.may_have(old.0, old.1, old.2));
        assert!(
            freed.may_have(old.0, old.1, Txg(9)),
            "it may have been freed in a txg of which not all is known"
        );
        assert!(!freed.may_have(old.0, old.1, Txg(12)));
    }
}
