//! Free segments of a metaslab, by place and by length.
//!
//! A fragmented metaslab has a million segments, so both indexes count in allocation units from the start of
//! the metaslab and take eight bytes a segment each, plus the slack of their nodes. The index by length is
//! built at the first allocation: a metaslab with frees only does not need it.
//!
//! # What always holds
//! - Segments neither overlap nor touch.
//! - `by_size`, if present, holds exactly the segments of `by_start`.
//! - Adding units that are in the set, or removing units that are not, is a bug of the caller: callers check
//!   [`RangeTree::overlaps`] or [`RangeTree::contains`] first.

use std::collections::{BTreeMap, BTreeSet};

/// A run of allocation units: first unit, and number of units.
pub(super) type Run = (u32, u32);

/// Disjoint runs in the order of their places.
#[derive(Debug, Default)]
pub(super) struct Runs {
    /// Lengths of the runs by their starts.
    map: BTreeMap<u32, u32>,
    /// Number of units in all runs.
    total: u64,
}

impl Runs {
    /// Number of units in all runs.
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// The runs, ascending by start.
    pub(super) fn iter(&self) -> impl Iterator<Item = Run> + '_ {
        self.map.iter().map(|(start, len)| (*start, *len))
    }

    /// The run that starts last among those that start at or before a unit.
    fn before(&self, unit: u32) -> Option<Run> {
        self.map.range(..=unit).next_back().map(|(start, len)| (*start, *len))
    }

    /// Whether any unit of the run is in the set.
    pub(super) fn overlaps(&self, (start, len): Run) -> bool {
        len > 0 && self.before(start + (len - 1)).is_some_and(|(first, count)| first + count > start)
    }

    /// Adds a run that overlaps none. Returns the run that contains it now, and the runs before and after it
    /// that were joined to it.
    fn add(&mut self, (start, len): Run) -> Joined {
        let next = self.map.remove(&(start + len)).map(|count| (start + len, count));
        let tail = len + next.map_or(0, |(_, count)| count);
        self.total += u64::from(len);
        if let Some((first, count)) = self.map.range_mut(..start).next_back()
            && *first + *count == start
        {
            let previous = (*first, *count);
            *count += tail;
            return Joined { whole: (*first, *count), previous: Some(previous), next };
        }
        self.map.insert(start, tail);
        Joined { whole: (start, tail), previous: None, next }
    }

    /// Adds a run, joined with those that it touches.
    pub(super) fn insert(&mut self, run: Run) {
        assert!(!self.overlaps(run), "units {run:?} are added to a set that has some of them");
        self.add(run);
    }
}

/// Result of adding a run: its joined neighbours.
struct Joined {
    whole: Run,
    previous: Option<Run>,
    next: Option<Run>,
}

/// The free segments of a metaslab.
#[derive(Debug, Default)]
pub(super) struct RangeTree {
    by_start: Runs,
    /// Length, then start. `None` before the first allocation.
    by_size: Option<BTreeSet<(u32, u32)>>,
    /// Units of the longest segment; used while there is no index by length.
    longest: u32,
}

impl RangeTree {
    /// From runs in ascending order that neither overlap nor touch.
    pub(super) fn from_ascending(runs: &[Run]) -> RangeTree {
        assert!(runs.windows(2).all(|pair| pair[0].0 + pair[0].1 < pair[1].0), "runs out of order");
        let total = runs.iter().map(|(_, len)| u64::from(*len)).sum();
        RangeTree {
            by_start: Runs { map: runs.iter().copied().collect(), total },
            by_size: None,
            longest: runs.iter().map(|(_, len)| *len).max().unwrap_or(0),
        }
    }

    /// The index by length, built if it is missing.
    fn by_size(&mut self) -> &mut BTreeSet<(u32, u32)> {
        self.by_size.get_or_insert_with(|| self.by_start.iter().map(|(start, len)| (len, start)).collect())
    }

    /// Number of free units.
    pub(super) fn total(&self) -> u64 {
        self.by_start.total()
    }

    /// Number of free segments.
    pub(super) fn segments(&self) -> usize {
        self.by_start.map.len()
    }

    /// Units of the longest segment.
    pub(super) fn largest(&self) -> u32 {
        match &self.by_size {
            Some(by_size) => by_size.last().map_or(0, |(len, _)| *len),
            None => self.longest,
        }
    }

    /// The free segments, ascending by start.
    pub(super) fn iter(&self) -> impl Iterator<Item = Run> + '_ {
        self.by_start.iter()
    }

    /// Whether any unit of the run is free.
    pub(super) fn overlaps(&self, run: Run) -> bool {
        self.by_start.overlaps(run)
    }

    /// Whether all units of the run are free.
    pub(super) fn contains(&self, (start, len): Run) -> bool {
        self.by_start.before(start).is_some_and(|(first, count)| first + count >= start + len)
    }

    /// Adds a run to the free space.
    pub(super) fn insert(&mut self, run: Run) {
        if run.1 == 0 {
            return;
        }
        assert!(!self.overlaps(run), "units {run:?} become free and are free already");
        let joined = self.by_start.add(run);
        self.longest = self.longest.max(joined.whole.1);
        let Some(by_size) = &mut self.by_size else { return };
        for (start, len) in [joined.previous, joined.next].into_iter().flatten() {
            by_size.remove(&(len, start));
        }
        by_size.insert((joined.whole.1, joined.whole.0));
    }

    /// Removes a run from the free space.
    pub(super) fn remove(&mut self, run: Run) {
        let (start, len) = run;
        if len == 0 {
            return;
        }
        self.by_size();
        let (runs, by_size) = (&mut self.by_start, self.by_size.as_mut().expect("it was just made"));
        let found = runs
            .map
            .range_mut(..=start)
            .next_back()
            .filter(|(first, count)| **first + **count >= start + len);
        let (first, slot) = found.expect("the run to be taken is free: its callers found it so");
        let (first, count) = (*first, *slot);
        let before = start - first;
        let after = count - before - len;
        if before > 0 {
            *slot = before;
            by_size.insert((before, first));
        } else {
            runs.map.remove(&first);
        }
        if after > 0 {
            runs.map.insert(start + len, after);
            by_size.insert((after, start + len));
        }
        runs.total -= u64::from(len);
        by_size.remove(&(count, first));
    }

    /// The first free run of at least `len` units at or after `from`, within `steps` segments. It
    /// starts in the middle of a segment if `from` does.
    pub(super) fn next_fit(&self, from: u32, len: u32, steps: usize) -> Option<Run> {
        if let Some((first, count)) = self.by_start.before(from)
            && first + count > from
            && first + count - from >= len
        {
            return Some((from, first + count - from));
        }
        let later = self.by_start.map.range(from..).take(steps);
        later.map(|(start, count)| (*start, *count)).find(|(_, count)| *count >= len)
    }

    /// The shortest segment of at least `len` units.
    pub(super) fn best_fit(&mut self, len: u32) -> Option<Run> {
        self.by_size().range((len, 0)..).next().map(|(count, start)| (*start, *count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vdev::env::Random;

    const UNITS: u32 = 300;

    fn segments(model: &[bool]) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        for (unit, free) in model.iter().enumerate() {
            match runs.last_mut() {
                Some((start, len)) if *free && *start + *len == unit as u32 => *len += 1,
                _ if *free => runs.push((unit as u32, 1)),
                _ => {}
            }
        }
        runs
    }

    fn pick(random: &mut Random) -> Run {
        let start = random.below(u64::from(UNITS)) as u32;
        (start, 1 + random.below(u64::from(UNITS - start).min(20)) as u32)
    }

    #[test]
    fn agrees_with_a_bitmap() {
        for seed in 0..20 {
            let mut random = Random::from_seed(seed);
            let mut model = vec![false; UNITS as usize];
            let mut tree = RangeTree::default();
            for step in 0..600 {
                let run = pick(&mut random);
                let (from, to) = (run.0 as usize, (run.0 + run.1) as usize);
                let any = model[from..to].contains(&true);
                let all = !model[from..to].contains(&false);
                assert_eq!(tree.overlaps(run), any, "seed {seed} step {step}");
                assert_eq!(tree.contains(run), all, "seed {seed} step {step}");
                if !any {
                    tree.insert(run);
                    model[from..to].fill(true);
                } else if all {
                    tree.remove(run);
                    model[from..to].fill(false);
                }
                check(&mut tree, &model, run, &format!("seed {seed} step {step}"));
            }
        }
    }

    fn check(tree: &mut RangeTree, model: &[bool], (from, len): Run, what: &str) {
        let segments = segments(model);
        assert_eq!(tree.iter().collect::<Vec<_>>(), segments, "{what}");
        assert_eq!(tree.segments(), segments.len(), "{what}");
        assert_eq!(tree.total(), model.iter().filter(|free| **free).count() as u64, "{what}");
        assert_eq!(tree.largest(), segments.iter().map(|run| run.1).max().unwrap_or(0), "{what}");
        if tree.by_size.is_none() && model.len() as u64 > 3 * tree.total() {
            return; // the index by length is made later
        }
        let best = segments.iter().filter(|run| run.1 >= len).map(|run| (run.1, run.0)).min();
        assert_eq!(tree.best_fit(len), best.map(|(len, start)| (start, len)), "{what}");
        let rest = |run: &Run| (run.0.max(from), (run.0 + run.1).saturating_sub(run.0.max(from)));
        let next = segments.iter().map(rest).find(|run| run.1 >= len);
        assert_eq!(tree.next_fit(from, len, usize::MAX), next, "{what}");
    }

    #[test]
    fn is_built_from_segments_at_once() {
        let runs = [(0, 3), (5, 1), (9, 40)];
        let mut tree = RangeTree::from_ascending(&runs);
        assert_eq!((tree.total(), tree.largest(), tree.segments()), (44, 40, 3));
        tree.insert((3, 2));
        assert_eq!(tree.iter().collect::<Vec<_>>(), [(0, 6), (9, 40)]);
        assert_eq!(tree.next_fit(1, 4, 8), Some((1, 5)));
        assert_eq!(tree.next_fit(1, 41, 8), None);
    }
}
