//! A set of numbers as ranges: the txgs that a leaf missed.

use std::collections::BTreeMap;
use std::ops::Range;

/// A set of `u64`s, kept as disjoint ranges that do not touch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RangeSet {
    /// Ends of the ranges by their starts.
    ranges: BTreeMap<u64, u64>,
}

impl RangeSet {
    /// The empty set.
    pub fn new() -> RangeSet {
        RangeSet::default()
    }

    /// Adds all numbers of a range.
    pub fn insert(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let (mut start, mut end) = (range.start, range.end);
        let touched: Vec<u64> = self
            .ranges
            .range(..=end)
            .rev()
            .take_while(|(_, stop)| **stop >= start)
            .map(|(first, _)| *first)
            .collect();
        for first in touched {
            if let Some(stop) = self.ranges.remove(&first) {
                start = start.min(first);
                end = end.max(stop);
            }
        }
        self.ranges.insert(start, end);
    }

    /// Removes all numbers of a range.
    pub fn remove(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let touched: Vec<(u64, u64)> = self
            .ranges
            .range(..range.end)
            .rev()
            .take_while(|(_, stop)| **stop > range.start)
            .map(|(first, stop)| (*first, *stop))
            .collect();
        for (first, stop) in touched {
            self.ranges.remove(&first);
            if first < range.start {
                self.ranges.insert(first, range.start);
            }
            if stop > range.end {
                self.ranges.insert(range.end, stop);
            }
        }
    }

    /// Whether a number is a member.
    pub fn contains(&self, number: u64) -> bool {
        self.ranges.range(..=number).next_back().is_some_and(|(_, end)| *end > number)
    }

    /// Whether the two have a number in common.
    pub fn intersects(&self, other: &RangeSet) -> bool {
        let touches = |range: Range<u64>| {
            self.ranges.range(..range.end).next_back().is_some_and(|(_, end)| *end > range.start)
        };
        other.iter().any(touches)
    }

    /// The parts of `range` that are in the set, ascending.
    pub fn overlap(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        let touching = self.ranges.range(..range.end).rev().take_while(|(_, end)| **end > range.start);
        let mut parts: Vec<Range<u64>> =
            touching.map(|(start, end)| (*start).max(range.start)..(*end).min(range.end)).collect();
        parts.reverse();
        parts
    }

    /// Number of members of all ranges together.
    pub fn total(&self) -> u64 {
        self.ranges.iter().map(|(start, end)| end - start).fold(0, u64::saturating_add)
    }

    /// Number of ranges, which neither touch nor overlap.
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Adds all numbers of another set.
    pub fn merge(&mut self, other: &RangeSet) {
        other.iter().for_each(|range| self.insert(range));
    }

    /// Whether the set has no members.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The ranges of the set, ascending; no two touch.
    pub fn iter(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.ranges.iter().map(|(start, end)| *start..*end)
    }
}

impl FromIterator<Range<u64>> for RangeSet {
    fn from_iter<I: IntoIterator<Item = Range<u64>>>(ranges: I) -> RangeSet {
        let mut set = RangeSet::new();
        for range in ranges {
            set.insert(range);
        }
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn agrees_with_a_plain_set() {
        let mut random = Random::from_seed(3);
        let (mut set, mut model) = (RangeSet::new(), vec![false; 200]);
        for _ in 0..5000 {
            let start = random.below(200);
            let range = start..start + random.below(200 - start + 1);
            let add = random.one_in(2);
            if add {
                set.insert(range.clone());
            } else {
                set.remove(range.clone());
            }
            model[range.start as usize..range.end as usize].fill(add);
            for (number, there) in model.iter().enumerate() {
                assert_eq!(set.contains(number as u64), *there);
            }
            let other = random.below(200);
            let other = other..other + 1 + random.below(5);
            let expected = model.iter().enumerate().any(|(i, there)| *there && other.contains(&(i as u64)));
            assert_eq!(set.intersects(&RangeSet::from_iter([other])), expected);
            let ranges: Vec<_> = set.iter().collect();
            assert!(ranges.windows(2).all(|pair| pair[0].end < pair[1].start), "{ranges:?}");
        }
    }
}
