//! Dirty time logs: the txgs that each leaf has missed, and the outages that follow for its ancestors
//! (docs/on-disk/14-vdevs.md).

use ::pool::space_map::SpaceMap;
use cenote::{Error, Pool};
use format::config::{VdevKind, VdevNode};
use format::space_map::{MapBounds, MapType};
use format::{ObjectId, VdevGuid};
use std::ops::Range;
use vdev::tree::{RangeSet, VdevState, VdevStatus};

/// The range of all txgs.
const ALWAYS: Range<u64> = 0..u64::MAX;

/// A vdev and its dirty time logs.
#[derive(Debug, Clone)]
pub struct DirtyTimes {
    /// Guid of the vdev.
    pub guid: VdevGuid,
    /// Path of a leaf, else the type of the vdev.
    pub name: String,
    /// True if its top-level vdev needs it: without it some data could not be read.
    pub required: bool,
    /// Object id of the space map with the missed txgs; 0: there is none.
    pub map: ObjectId,
    /// Missed txgs, as recorded.
    pub missing: RangeSet,
    /// Txgs that at least one descendant has missed.
    pub partial: RangeSet,
    /// Txgs whose data cannot be read from the vdev.
    pub outage: RangeSet,
    /// Children, in the order of the configuration.
    pub children: Vec<DirtyTimes>,
}

/// The dirty time logs of all vdevs below the root.
///
/// # Errors
/// A space map of missed txgs cannot be read.
pub fn dirty_times(pool: &Pool) -> Result<DirtyTimes, Error> {
    let config = &pool.spa().config().vdev_tree;
    let status = pool.spa().tree().status();
    let mut root = DirtyTimes {
        guid: config.guid,
        name: pool.name().to_owned(),
        required: true,
        map: ObjectId(0),
        missing: RangeSet::new(),
        partial: RangeSet::new(),
        outage: RangeSet::new(),
        children: Vec::new(),
    };
    for (node, status) in config.children.iter().zip(&status.children) {
        let mut top = vdev(pool, node, status)?;
        let base = top.clone();
        mark_required(&mut top, &base, node, true);
        root.children.push(top);
    }
    Ok(root)
}

fn vdev(pool: &Pool, node: &VdevNode, status: &VdevStatus) -> Result<DirtyTimes, Error> {
    let path = status.path.as_ref().map(|path| path.to_string_lossy().into_owned());
    let mut dirty = DirtyTimes {
        guid: node.guid,
        name: path.filter(|_| node.children.is_empty()).unwrap_or_else(|| node.kind.name().to_owned()),
        required: false,
        map: node.dtl,
        missing: RangeSet::new(),
        partial: RangeSet::new(),
        outage: RangeSet::new(),
        children: Vec::new(),
    };
    for (child, status) in node.children.iter().zip(&status.children) {
        dirty.children.push(vdev(pool, child, status)?);
    }
    if !node.children.is_empty() {
        combine(&mut dirty, node);
    } else if !matches!(node.kind, VdevKind::Indirect | VdevKind::Hole | VdevKind::Missing) {
        if node.dtl != ObjectId(0) {
            read(pool, node.dtl, &mut dirty.missing)?;
        }
        dirty.partial = dirty.missing.clone();
        dirty.outage = dirty.missing.clone();
        if !matches!(status.state, VdevState::Online | VdevState::Degraded) {
            dirty.outage.insert(ALWAYS);
        }
    }
    Ok(dirty)
}

fn read(pool: &Pool, id: ObjectId, missing: &mut RangeSet) -> Result<(), Error> {
    SpaceMap::open(pool.spa().mos(), id)?.for_each(MapBounds::DTL, &mut |segment| {
        let range = segment.start..segment.start.saturating_add(segment.len);
        match segment.kind {
            MapType::Alloc => missing.insert(range),
            MapType::Free => missing.remove(range),
        }
        Ok(())
    })?;
    Ok(())
}

/// Derives the logs of an inner vdev from those of its children: an outage is where more children fail than its
/// redundancy allows.
fn combine(dirty: &mut DirtyTimes, node: &VdevNode) {
    let too_many = match node.nparity {
        0 => dirty.children.len(),
        parity => usize::from(parity) + 1,
    };
    dirty.partial = at_least(1, dirty.children.iter().map(|child| &child.partial));
    dirty.outage = at_least(too_many, dirty.children.iter().map(|child| &child.outage));
    dirty.missing = dirty.outage.clone();
}

/// The txgs that are in at least `n` of the sets.
fn at_least<'a>(n: usize, sets: impl Iterator<Item = &'a RangeSet>) -> RangeSet {
    let mut edges: Vec<(u64, i64)> = Vec::new();
    for range in sets.flat_map(RangeSet::iter) {
        edges.push((range.start, 1));
        edges.push((range.end, -1));
    }
    edges.sort_unstable();
    let mut found = RangeSet::new();
    let (mut depth, mut from) = (0_i64, 0);
    for (at, change) in edges {
        let was_in = depth >= n as i64;
        depth += change;
        let is_in = depth >= n as i64;
        if is_in && !was_in {
            from = at;
        } else if was_in && !is_in && from < at {
            found.insert(from..at);
        }
    }
    found
}

/// Marks what is required: a top-level vdev always, a descendant if its loss would cause an outage of the top-level
/// vdev.
fn mark_required(dirty: &mut DirtyTimes, top: &DirtyTimes, node: &VdevNode, is_top: bool) {
    dirty.required = is_top || {
        let mut without = top.clone();
        lose(&mut without, node, dirty.guid);
        !without.outage.is_empty()
    };
    for child in &mut dirty.children {
        mark_required(child, top, node, false);
    }
}

/// Recomputes a vdev as if the leaf were lost.
fn lose(dirty: &mut DirtyTimes, node: &VdevNode, leaf: VdevGuid) {
    if dirty.children.is_empty() {
        if dirty.guid == leaf {
            dirty.outage.insert(ALWAYS);
        }
        return;
    }
    for (child, node) in dirty.children.iter_mut().zip(&node.children) {
        lose(child, node, leaf);
    }
    combine(dirty, node);
}

#[cfg(test)]
// A list with one range is intended here.
#[allow(clippy::single_range_in_vec_init)]
mod tests {
    use super::*;

    #[test]
    fn overlaps_are_counted() {
        let set = |ranges: &[Range<u64>]| {
            let mut set = RangeSet::new();
            ranges.iter().for_each(|range| set.insert(range.clone()));
            set
        };
        let sets = [set(&[0..10, 20..30]), set(&[5..25]), set(&[9..21])];
        let list = |n| at_least(n, sets.iter()).iter().collect::<Vec<_>>();
        assert_eq!(list(1), [0..30]);
        assert_eq!(list(2), [5..25]);
        assert_eq!(list(3), [9..10, 20..21]);
    }
}
