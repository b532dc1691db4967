//! A top-level vdev: choosing the metaslab that serves a request.
//!
//! Small and large requests, and the first, second and third copy of a block on the same vdev, each stay with
//! a metaslab (the *active* one) until its longest segment has become a quarter of what it was: so a txg is
//! written in few places, and the best metaslab need not be found for every block.
//!
//! For a metaslab that was never loaded only hints are known, which may be wrong. Metaslabs that should have
//! enough space by their longest segment are tried first, then those whose longest segment is unknown. Those
//! with only enough free bytes in total are tried when no vdev has a better one. For large blocks of a full
//! pool that would read all space maps each time, so it is done for small blocks, which cannot be cut into
//! smaller pieces, and occasionally for others.

use super::ledger::Ledger;
use super::metaslab::{Counters, Kind, Known, Metaslab, MetaslabContext};
use super::types::{AllocClass, LoadError, MetaslabHint, SpaceSource, TopSpace};
use format::{Txg, VdevId};
use std::cmp::Reverse;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use vdev::tree::VdevTree;

/// Copies of a block on one vdev are the vdev's size divided by this apart, if possible.
const DISTANCE_SHARE: u64 = 8;
/// Longer segments count as equally good.
const LONG_SEGMENT: u64 = 16 << 20;
/// An active metaslab is given up when its longest segment has shrunk by this power of two.
const WORN: u32 = 2;
/// Small requests stay as long as there are segments of this size, even if large ones wear the metaslab down:
/// metadata are small, and should not be scattered over the vdev with the data.
const ENOUGH_FOR_SMALL: u64 = 256 << 10;
/// A normal vdev with more metaslabs than this sets one aside for the intent log.
pub(super) const EMBEDDED_LOG_METASLABS: usize = 64;
/// Largest number of copies of a block.
const COPIES_MAX: usize = 3;
/// Largest request, in bytes, for which every possible metaslab is tried.
const THOROUGH_BYTES: u64 = 64 << 10;
/// For larger requests, number of metaslabs of a vdev that are read in one txg against their hints.
const DOUBTFUL_LOADS: u64 = 4;

/// Parameters of a request besides the vdev.
#[derive(Clone, Copy)]
pub(super) struct Want<'a> {
    pub(super) txg: Txg,
    pub(super) ledger: &'a Ledger,
    pub(super) source: &'a dyn SpaceSource,
    /// Allocate from the metaslab set aside for the intent log, rather than from the others.
    pub(super) embedded_log: bool,
    /// Preferred offset, if any.
    pub(super) near: Option<u64>,
    /// No metaslab has enough space by what is known; hints may be wrong.
    pub(super) is_last_resort: bool,
}

/// Reason to expect that a metaslab has enough space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trust {
    /// Its longest known segment is long enough.
    Known,
    /// It has enough free bytes, and its longest segment is unknown.
    Likely,
    /// It has enough free bytes in total; one segment may or may not be long enough.
    Doubtful,
}

/// A top-level vdev as the allocator sees it.
#[derive(Debug)]
pub(super) struct Top {
    pub(super) vdev: VdevId,
    pub(super) class: AllocClass,
    /// Whether the administrator allows new blocks; the configuration must allow them too.
    pub(super) is_allocating: bool,
    metaslab_shift: u32,
    ashift: u32,
    /// Total bytes of its metaslabs.
    pub(super) size: u64,
    pub(super) counters: Arc<Counters>,
    pub(super) metaslabs: Vec<Arc<Metaslab>>,
    /// The metaslab set aside for the intent log.
    pub(super) log_metaslab: Option<usize>,
    /// A txg and, in the low 8 bits, the number of metaslabs read in it against their hints.
    doubtful: AtomicU64,
    /// By copy and kind: 0, or 1 + (index << 8) + log2 of its longest segment when chosen.
    active: [AtomicU64; COPIES_MAX * 2],
}

/// Start and size of a metaslab. On a dRAID both are whole stripes.
fn bounds(shift: u32, alignment: u64, index: u64) -> (u64, u64) {
    let nominal = 1_u64.checked_shl(shift).unwrap_or(0);
    let from = nominal.saturating_mul(index);
    let start = from.checked_next_multiple_of(alignment).unwrap_or(from);
    let room = from.saturating_add(nominal).saturating_sub(start);
    (start, room - room % alignment)
}

impl Top {
    /// Creates a vdev. Metaslabs that `old` has keep their learnt state.
    pub(super) fn new(space: TopSpace, tree: &VdevTree, old: Option<&Top>) -> Top {
        let alignment = tree.alignment(space.vdev).unwrap_or(space.ashift.sector()).max(1);
        let counters = old.map_or_else(Arc::default, |old| Arc::clone(&old.counters));
        let count = space.asize.checked_shr(space.metaslab_shift).unwrap_or(0);
        let count = space.metaslabs.len().min(usize::try_from(count).unwrap_or(usize::MAX));
        let mut metaslabs: Vec<_> = old.map_or_else(Vec::new, |old| old.metaslabs.clone());
        for (index, hint) in space.metaslabs.into_iter().enumerate().take(count).skip(metaslabs.len()) {
            let (start, size) = bounds(space.metaslab_shift, alignment, index as u64);
            metaslabs.push(Arc::new(Metaslab::new(start, size, alignment, known(&hint), &counters)));
        }
        let log_metaslab = old.and_then(|old| old.log_metaslab).or_else(|| {
            let emptiest = || metaslabs.iter().enumerate().max_by_key(|(i, m)| (m.free_bytes(), Reverse(*i)));
            let is_large = space.class == AllocClass::Normal && metaslabs.len() > EMBEDDED_LOG_METASLABS;
            is_large.then(emptiest).flatten().map(|(index, _)| index)
        });
        Top {
            vdev: space.vdev,
            class: space.class,
            is_allocating: space.allocating,
            metaslab_shift: space.metaslab_shift,
            ashift: u32::from(space.ashift.0),
            size: metaslabs.iter().map(|metaslab| metaslab.size).fold(0, u64::saturating_add),
            counters,
            metaslabs,
            log_metaslab,
            doubtful: AtomicU64::new(0),
            active: Default::default(),
        }
    }

    /// A copy with another `is_allocating`.
    pub(super) fn with_allocating(&self, is_allocating: bool) -> Top {
        Top {
            is_allocating,
            counters: Arc::clone(&self.counters),
            metaslabs: self.metaslabs.clone(),
            doubtful: AtomicU64::new(0),
            active: Default::default(),
            ..*self
        }
    }

    /// log2 of the bytes of a sector of the vdev.
    pub(super) fn ashift(&self) -> u32 {
        self.ashift
    }

    /// Bytes that are not allocated.
    pub(super) fn free(&self) -> u64 {
        self.size.saturating_sub(self.counters.allocated.load(Relaxed))
    }

    /// The metaslab that contains a byte of the vdev, and its number.
    pub(super) fn metaslab_at(&self, offset: u64) -> Option<(u64, &Metaslab)> {
        let index = offset.checked_shr(self.metaslab_shift)?;
        let at = usize::try_from(index).ok()?;
        // On a dRAID a metaslab starts slightly after the place that its number gives.
        let starts_later = self.metaslabs.get(at).is_none_or(|metaslab| metaslab.start > offset);
        let at = if starts_later { at.checked_sub(1)? } else { at };
        self.metaslabs.get(at).map(|metaslab| (at as u64, &**metaslab))
    }

    pub(super) fn place<'a>(
        &'a self,
        index: u64,
        ledger: &'a Ledger,
        source: &'a dyn SpaceSource,
    ) -> MetaslabContext<'a> {
        MetaslabContext { vdev: self.vdev, index, counters: &self.counters, ledger, source }
    }

    /// Bytes of the longest free segment: exact for metaslabs that are loaded or were never used, by hints
    /// for others.
    pub(super) fn largest(&self, embedded_log: bool) -> u64 {
        let usable = self.usable(embedded_log);
        usable.fold(0, |largest, (_, metaslab)| {
            if metaslab.may_have(largest + 1) {
                metaslab.settle();
            }
            largest.max(metaslab.largest())
        })
    }

    /// Metaslabs that can serve requests.
    fn usable(&self, embedded_log: bool) -> impl Iterator<Item = (usize, &Metaslab)> {
        let metaslabs = self.metaslabs.iter().enumerate();
        metaslabs
            .filter(move |(index, metaslab)| {
                (self.log_metaslab == Some(*index)) == embedded_log && !metaslab.is_unreadable()
            })
            .map(|(index, metaslab)| (index, &**metaslab))
    }

    // ---- choosing ------------------------------------------------------------------------------

    /// Allocates `bytes`, away from the `others` (copies of the same block on this vdev). `None` if there is
    /// not enough space; an error if that may only be because a metaslab could not be read.
    pub(super) fn alloc(
        &self,
        bytes: u64,
        others: &[u64],
        want: &Want<'_>,
    ) -> Result<Option<u64>, (u64, LoadError)> {
        let kind = Kind::of(bytes);
        let slot = others.len().min(COPIES_MAX - 1) * 2 + kind as usize;
        if !want.embedded_log
            && !want.is_last_resort
            && let Some(at) = self.alloc_known(bytes, kind, slot, others, want)
        {
            return Ok(Some(at));
        }
        let near_enough: &[Nearness] = match others {
            [] => &[Nearness::Same],
            _ => &[Nearness::Far, Nearness::Apart, Nearness::Same],
        };
        let trusted: &[Trust] = match want.is_last_resort {
            false => &[Trust::Known, Trust::Likely],
            true => &[Trust::Doubtful],
        };
        let mut failure = None;
        for nearness in near_enough {
            for trust in trusted {
                // Each iteration allocates, or learns that a metaslab has less space than expected.
                for _ in 0..=self.metaslabs.len() {
                    let Some(index) = self.best(bytes, *nearness, *trust, others, want) else { break };
                    match self.alloc_in(index, bytes, kind, others, want) {
                        Ok(Some(at)) => {
                            self.activate(slot, index);
                            return Ok(Some(at));
                        }
                        Ok(None) => {}
                        Err(error) => failure = Some((index as u64, error)),
                    }
                }
            }
        }
        failure.map_or(Ok(None), Err)
    }

    /// Whether a metaslab may be read although its hint excludes a segment of so many bytes.
    fn may_doubt(&self, bytes: u64, txg: Txg) -> bool {
        if bytes <= THOROUGH_BYTES {
            return true;
        }
        let before = self.doubtful.load(Relaxed);
        let count = if before >> 8 == txg.0 { before & 0xff } else { 0 };
        self.doubtful.store(txg.0 << 8 | (count + 1).min(DOUBTFUL_LOADS), Relaxed);
        count < DOUBTFUL_LOADS
    }

    /// Allocates from the metaslab of the preferred offset, or from the active one.
    fn alloc_known(
        &self,
        bytes: u64,
        kind: Kind,
        slot: usize,
        others: &[u64],
        want: &Want<'_>,
    ) -> Option<u64> {
        let near = want.near.and_then(|near| self.metaslab_at(near)).map(|(index, _)| index as usize);
        let near = near.filter(|index| self.log_metaslab != Some(*index));
        for index in near.into_iter().chain(self.active(slot)) {
            let metaslab = &self.metaslabs[index];
            if metaslab.is_unreadable() || self.nearness(metaslab, others) != Nearness::Far {
                continue;
            }
            // After a failure the metaslab counts as unreadable, and others are tried.
            if let Ok(Some(at)) = self.alloc_in(index, bytes, kind, others, want) {
                return Some(at);
            }
        }
        None
    }

    fn alloc_in(
        &self,
        index: usize,
        bytes: u64,
        kind: Kind,
        others: &[u64],
        want: &Want<'_>,
    ) -> Result<Option<u64>, LoadError> {
        let metaslab = &self.metaslabs[index];
        let place = self.place(index as u64, want.ledger, want.source);
        match self.nearness(metaslab, others) {
            Nearness::Far => metaslab.alloc(bytes, kind, want.txg, &place),
            _ => metaslab.alloc_away(bytes, (others, self.distance()), want.txg, &place),
        }
    }

    fn distance(&self) -> u64 {
        let last = self.metaslabs.last();
        last.map_or(0, |metaslab| metaslab.start + metaslab.size) / DISTANCE_SHARE
    }

    fn nearness(&self, metaslab: &Metaslab, others: &[u64]) -> Nearness {
        if others.is_empty() {
            return Nearness::Far;
        }
        let range = metaslab.start..metaslab.start + metaslab.size;
        let gap = |other: &u64| range.start.saturating_sub(*other).max((other + 1).saturating_sub(range.end));
        if others.iter().any(|other| range.contains(other)) {
            Nearness::Same
        } else if others.iter().any(|other| gap(other) < self.distance()) {
            Nearness::Apart
        } else {
            Nearness::Far
        }
    }

    /// The best metaslab, by: long segments, loaded, emptier by eighths, lower offset.
    fn best(
        &self,
        bytes: u64,
        nearness: Nearness,
        trust: Trust,
        others: &[u64],
        want: &Want<'_>,
    ) -> Option<usize> {
        let fits = |metaslab: &Metaslab| match trust {
            Trust::Known => metaslab.largest() >= bytes,
            Trust::Likely => metaslab.is_likely_to_have(bytes),
            Trust::Doubtful => metaslab.may_have(bytes),
        };
        let best = self
            .usable(want.embedded_log)
            .filter(|(_, metaslab)| fits(metaslab) && self.nearness(metaslab, others) <= nearness)
            .max_by_key(|(index, metaslab)| {
                let eighths = metaslab.free_bytes() / (metaslab.size / 8).max(1);
                (length_class(metaslab), metaslab.is_loaded(), eighths, Reverse(*index))
            })
            .map(|(index, _)| index)?;
        (trust != Trust::Doubtful || self.may_doubt(bytes, want.txg)).then_some(best)
    }

    fn active(&self, slot: usize) -> Option<usize> {
        let packed = self.active[slot].load(Relaxed).checked_sub(1)?;
        let index = (packed >> 8) as usize;
        let then = (packed & 0xff) as u32;
        let metaslab = self.metaslabs.get(index)?;
        let is_small = slot % 2 == Kind::Small as usize;
        let is_good =
            length_class(metaslab) + WORN > then || is_small && metaslab.largest() >= ENOUGH_FOR_SMALL;
        (is_good && self.log_metaslab != Some(index)).then_some(index)
    }

    fn activate(&self, slot: usize, index: usize) {
        let length = length_class(&self.metaslabs[index]);
        self.active[slot].store(1 + ((index as u64) << 8) + u64::from(length), Relaxed);
    }
}

/// Distance of a metaslab from other copies of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Nearness {
    /// All of it is far enough away.
    Far,
    /// It contains none of them.
    Apart,
    /// It contains one of them.
    Same,
}

fn length_class(metaslab: &Metaslab) -> u32 {
    metaslab.largest().clamp(1, LONG_SEGMENT).ilog2()
}

fn known(hint: &MetaslabHint) -> Known {
    Known { allocated: hint.allocated, largest: hint.largest_free, is_empty: hint.never_used }
}
