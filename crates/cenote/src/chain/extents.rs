//! Where the bytes of the device of an index are: in the index itself, or in a stream file.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Included, Unbounded};

/// Number of the index among the files of an extent; stream files have their number plus one.
pub(super) const OWN: u32 = 0;

/// A range of the device whose bytes follow each other in one file. Ranges without an extent are zeros.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Extent {
    /// First byte of the device.
    pub(super) at: u64,
    /// Number of bytes.
    pub(super) len: u64,
    /// Number of the file.
    pub(super) file: u32,
    /// First byte of the file.
    pub(super) pos: u64,
}

impl Extent {
    /// The first byte of the device after it.
    pub(super) fn end(&self) -> u64 {
        self.at.saturating_add(self.len)
    }

    /// The part of it within a range of the device, if there is one.
    pub(super) fn within(&self, from: u64, to: u64) -> Option<Extent> {
        let (start, end) = (self.at.max(from), self.end().min(to));
        let len = end.checked_sub(start).filter(|len| *len > 0)?;
        Some(Extent { at: start, len, pos: self.pos.saturating_add(start - self.at), ..*self })
    }

    /// Whether `next` goes on where this ends, on the device and in the file.
    fn continues(&self, next: &Extent) -> bool {
        self.end() == next.at && self.file == next.file && self.pos.checked_add(self.len) == Some(next.pos)
    }
}

/// The extents of a device that is being written; no two overlap.
#[derive(Debug, Default)]
pub(super) struct Extents(BTreeMap<u64, Extent>);

impl Extents {
    /// Number of extents.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// All extents, in the order of the device.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Extent> {
        self.0.values()
    }

    /// The parts of extents within a range, in order.
    pub(super) fn within(&self, from: u64, to: u64) -> impl Iterator<Item = Extent> {
        let before = self.0.range(..from).next_back().map(|(_, extent)| *extent);
        let inside = self.0.range((Included(from), Excluded(to.max(from)))).map(|(_, extent)| *extent);
        before.into_iter().chain(inside).filter_map(move |extent| extent.within(from, to))
    }

    /// Makes a range zeros.
    pub(super) fn punch(&mut self, from: u64, to: u64) {
        let first = self.0.range(..from).next_back().map_or(from, |(at, _)| *at);
        let mut at = Included(first);
        while let Some((key, extent)) = self.0.range((at, Unbounded)).next().map(|(key, e)| (*key, *e)) {
            if key >= to {
                break;
            }
            at = Excluded(key);
            if extent.end() <= from {
                continue;
            }
            self.0.remove(&key);
            for rest in [extent.within(0, from), extent.within(to, u64::MAX)].into_iter().flatten() {
                self.0.insert(rest.at, rest);
            }
        }
    }

    /// Replaces what is at the range of an extent by it.
    pub(super) fn put(&mut self, extent: Extent) {
        self.punch(extent.at, extent.end());
        if let Some((_, before)) = self.0.range_mut(..extent.at).next_back()
            && before.continues(&extent)
        {
            before.len += extent.len;
            return;
        }
        self.0.insert(extent.at, extent);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(at: u64, len: u64, file: u32, pos: u64) -> Extent {
        Extent { at, len, file, pos }
    }

    #[test]
    fn later_extents_replace_parts_of_earlier_ones() {
        let mut extents = Extents::default();
        extents.put(extent(100, 100, OWN, 0));
        extents.put(extent(200, 50, OWN, 100));
        assert_eq!(extents.iter().copied().collect::<Vec<_>>(), [extent(100, 150, OWN, 0)]);
        extents.put(extent(120, 30, 1, 7));
        let expected = [extent(100, 20, OWN, 0), extent(120, 30, 1, 7), extent(150, 100, OWN, 50)];
        assert_eq!(extents.iter().copied().collect::<Vec<_>>(), expected);
        let within: Vec<_> = extents.within(110, 125).collect();
        assert_eq!(within, [extent(110, 10, OWN, 10), extent(120, 5, 1, 7)]);
        extents.punch(0, 160);
        assert_eq!(extents.iter().copied().collect::<Vec<_>>(), [extent(160, 90, OWN, 60)]);
        extents.punch(0, u64::MAX);
        assert_eq!(extents.len(), 0);
    }
}
