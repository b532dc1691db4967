//! Allocated extents of a pool, computed from all space maps and their logs. A comparison with the referenced
//! blocks shows leaked extents and extents that are in use without being allocated
//! (docs/on-disk/15-space.md).
//!
//! # What always holds
//! - The space maps and their logs allocate no extent twice and free no extent twice: otherwise
//!   [`Pool::allocated`] returns an error.
//! - An extent can be taken once.
//!
//! Memory: some tens of bytes for each separate range of free space.

use crate::error::PoolError;
use crate::space::{MetaslabSpace, VdevSpace};
use crate::space_map::{SpaceMap, apply};
use crate::view::Pool;
use format::names;
use format::space_map::{MapBounds, MapType, Segment};
use format::{Dva, ObjectId, VdevId};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};
use vdev::sync::lock;
use vdev::tree::RangeSet;

/// Allocated extents of a pool that were not taken yet. Several threads may take extents.
pub struct Allocated {
    tops: BTreeMap<VdevId, Vec<Metaslab>>,
}

struct Metaslab {
    start: u64,
    size: u64,
    /// Ranges that are not allocated, or were taken.
    free: Mutex<RangeSet>,
}

impl Pool {
    /// Reads all space maps and their logs. Space that only the checkpoint needs counts as free.
    ///
    /// # Errors
    /// [`PoolError::Dmu`] if a space map cannot be read, [`PoolError::Decode`] or [`PoolError::Corrupt`] if
    /// one is malformed. Also if maps contradict each other.
    pub fn allocated(&self) -> Result<Allocated, PoolError> {
        let spaces = self.vdev_spaces()?;
        let all = self.own_maps(&spaces)?;
        self.apply_logs(&all, &spaces)?;
        for space in &spaces {
            self.give_up_checkpoint(&all, space)?;
        }
        Ok(all)
    }

    /// The allocated ranges of a top-level vdev, ascending.
    ///
    /// # Errors
    /// Those of [`Pool::allocated`].
    pub(crate) fn allocated_ranges(&self, vdev: VdevId) -> Result<Vec<Range<u64>>, PoolError> {
        let all = self.allocated()?;
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for metaslab in all.tops.get(&vdev).into_iter().flatten() {
            let mut used = RangeSet::new();
            used.insert(metaslab.start..metaslab.start + metaslab.size);
            metaslab.lock().iter().for_each(|free| used.remove(free));
            for range in used.iter() {
                match ranges.last_mut().filter(|last| last.end == range.start) {
                    Some(last) => last.end = range.end,
                    None => ranges.push(range),
                }
            }
        }
        Ok(ranges)
    }

    /// Free ranges by the metaslabs' own maps, by vdev and metaslab, without the logs.
    ///
    /// # Errors
    /// [`PoolError::Dmu`] if a space map cannot be read, [`PoolError::Decode`] or [`PoolError::Corrupt`] if
    /// one is malformed. Also if maps contradict each other.
    pub fn mapped_free_space(&self) -> Result<BTreeMap<VdevId, Vec<RangeSet>>, PoolError> {
        let free = |metaslab: Metaslab| metaslab.free.into_inner().unwrap_or_else(PoisonError::into_inner);
        let vdevs = self.own_maps(&self.vdev_spaces()?)?.tops.into_iter();
        Ok(vdevs.map(|(vdev, metaslabs)| (vdev, metaslabs.into_iter().map(free).collect())).collect())
    }

    /// All metaslabs as their own maps have them.
    fn own_maps(&self, spaces: &[VdevSpace]) -> Result<Allocated, PoolError> {
        let mut all = Allocated { tops: BTreeMap::new() };
        for space in spaces {
            let metaslabs = space.metaslabs.iter().map(|m| self.own_map(space, m));
            all.tops.insert(space.vdev, metaslabs.collect::<Result<_, _>>()?);
        }
        Ok(all)
    }

    /// A metaslab as its own map has it.
    fn own_map(&self, space: &VdevSpace, metaslab: &MetaslabSpace) -> Result<Metaslab, PoolError> {
        let MetaslabSpace { start, size, .. } = *metaslab;
        let mut free = RangeSet::new();
        free.insert(start..start.saturating_add(size));
        if let Some(id) = metaslab.space_map {
            let bounds = MapBounds { start, size, shift: space.ashift };
            SpaceMap::open(self.mos(), id)?.replay(bounds, &mut free)?;
        }
        Ok(Metaslab { start, size, free: Mutex::new(free) })
    }

    /// Applies the changes of the logs that the metaslabs' own maps do not have yet.
    fn apply_logs(&self, all: &Allocated, spaces: &[VdevSpace]) -> Result<(), PoolError> {
        let tops = spaces.iter().map(|space| (space.vdev, &space.metaslabs[..])).collect();
        self.for_each_logged(&tops, &mut |object, (vdev, _), segment| {
            let corrupt = |why| PoolError::Corrupt { object, why };
            let metaslab = all.metaslab_of(vdev, &segment).ok_or(corrupt("an entry across metaslabs"))?;
            apply(&segment, &mut metaslab.lock()).map_err(corrupt)
        })
    }

    /// Frees the space that only the checkpoint holds: it is listed in a map of its own.
    fn give_up_checkpoint(&self, all: &Allocated, space: &VdevSpace) -> Result<(), PoolError> {
        let zap = self.tree().top(space.vdev).map(|node| node.zap_top).unwrap_or_default();
        let Some(id) = self.vdev_zap_number(zap, names::top_vdev::CHECKPOINT_SM)? else { return Ok(()) };
        let map = SpaceMap::open(self.mos(), ObjectId(id))?;
        let corrupt = |why| PoolError::Corrupt { object: ObjectId(id), why };
        let bounds = MapBounds { start: 0, size: u64::MAX, shift: space.ashift };
        map.for_each(bounds, &mut |segment| {
            let metaslab =
                all.metaslab_of(space.vdev, &segment).ok_or(corrupt("an entry across metaslabs"))?;
            match segment.kind {
                MapType::Free => apply(&segment, &mut metaslab.lock()).map_err(corrupt),
                MapType::Alloc => Err(corrupt("an allocation among what the checkpoint keeps")),
            }
        })
    }
}

impl Allocated {
    /// Takes an extent that is in use. Returns false if it is not allocated, or part of it was taken before.
    #[must_use]
    pub fn take(&self, extent: &Dva) -> bool {
        let segment = Segment {
            kind: MapType::Free,
            start: extent.offset.0,
            len: extent.asize.0,
            vdev: Some(extent.vdev),
        };
        let metaslab = self.metaslab_of(extent.vdev, &segment);
        metaslab.is_some_and(|metaslab| apply(&segment, &mut metaslab.lock()).is_ok())
    }

    /// Extents that were not taken, in order.
    pub fn left(&self) -> impl Iterator<Item = (VdevId, Range<u64>)> + '_ {
        let metaslabs = self.tops.iter().flat_map(|(vdev, all)| all.iter().map(|metaslab| (*vdev, metaslab)));
        metaslabs.flat_map(|(vdev, metaslab)| metaslab.left().into_iter().map(move |range| (vdev, range)))
    }

    /// The metaslab that contains all of a range.
    fn metaslab_of(&self, vdev: VdevId, segment: &Segment) -> Option<&Metaslab> {
        let metaslabs = self.tops.get(&vdev)?;
        let index = metaslabs.partition_point(|m| m.start <= segment.start).checked_sub(1)?;
        let metaslab = &metaslabs[index];
        let room = metaslab.size.checked_sub(segment.start - metaslab.start)?;
        (segment.len <= room).then_some(metaslab)
    }
}

impl Metaslab {
    fn lock(&self) -> MutexGuard<'_, RangeSet> {
        lock(&self.free)
    }

    fn left(&self) -> Vec<Range<u64>> {
        let (free, end) = (self.lock(), self.start + self.size);
        let mut left = Vec::new();
        let mut at = self.start;
        for range in free.iter().chain(std::iter::once(end..end)) {
            if at < range.start {
                left.push(at..range.start);
            }
            at = range.end;
        }
        left
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use format::{AllocOffset, Asize};

    fn extent(offset: u64, asize: u64) -> Dva {
        Dva { vdev: VdevId(3), offset: AllocOffset(offset), asize: Asize(asize), gang: false }
    }

    #[test]
    fn what_is_taken_once_is_gone_and_the_rest_is_left() {
        let mut free = RangeSet::new();
        free.insert(100..150);
        let first = Metaslab { start: 0, size: 200, free: Mutex::new(free) };
        let second = Metaslab { start: 200, size: 100, free: Mutex::default() };
        let all = Allocated { tops: BTreeMap::from([(VdevId(3), vec![first, second])]) };
        assert!(all.take(&extent(20, 30)));
        assert!(!all.take(&extent(40, 20)), "a part was taken");
        assert!(!all.take(&extent(90, 20)), "a part is free");
        assert!(!all.take(&extent(190, 20)), "no extent is in two metaslabs");
        assert!(!all.take(&extent(290, 20)) && !all.take(&extent(u64::MAX - 5, 20)));
        assert!(!all.take(&Dva { vdev: VdevId(4), ..extent(0, 10) }));
        assert!(all.take(&extent(200, 100)));
        let left: Vec<_> = all.left().map(|(_, range)| range).collect();
        assert_eq!(left, [0..20, 50..100, 150..200]);
    }
}
