//! The mapping of a removed vdev: the present location of each segment (docs/on-disk/14-vdevs.md, section 6).

use super::error::{MappingFault, VdevError};
use format::{AllocOffset, Asize, Dva, Txg, VdevId};

/// A segment of a removed vdev and its copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MapEntry {
    /// First byte on the removed vdev.
    pub src: AllocOffset,
    /// Number of bytes of the segment.
    pub len: u64,
    /// First byte of its copy.
    pub dst: Dva,
}

/// The txg in which a part of a removed vdev was copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Birth {
    /// End of the part; it starts at the end of the previous one.
    pub end: AllocOffset,
    /// The txg in which the part was copied.
    pub txg: Txg,
}

/// Locations of the contents of a removed vdev.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IndirectMapping {
    entries: Vec<MapEntry>,
    births: Vec<Birth>,
}

impl IndirectMapping {
    /// Checks that entries and births ascend, entries do not overlap and none leads back to `vdev`.
    ///
    /// # Errors
    /// [`VdevError::BadMapping`] otherwise.
    pub fn new(
        vdev: VdevId,
        entries: Vec<MapEntry>,
        births: Vec<Birth>,
    ) -> Result<IndirectMapping, VdevError> {
        let bad = |fault| Err(VdevError::BadMapping { vdev, fault });
        let mut end = 0;
        for entry in &entries {
            if entry.src.0 < end || entry.len == 0 {
                return bad(MappingFault::Unordered);
            }
            let (Some(next), Some(_)) =
                (entry.src.0.checked_add(entry.len), entry.dst.offset.0.checked_add(entry.len))
            else {
                return bad(MappingFault::Endless);
            };
            if entry.dst.vdev == vdev {
                return bad(MappingFault::OntoItself);
            }
            end = next;
        }
        if births.windows(2).any(|pair| pair[0].end >= pair[1].end) {
            return bad(MappingFault::UnorderedBirths);
        }
        Ok(IndirectMapping { entries, births })
    }

    /// This mapping with further segments behind all others, which were copied in `txg`.
    ///
    /// # Errors
    /// [`VdevError::BadMapping`] if the segments do not ascend or lead back to `vdev`.
    pub fn extended(&self, vdev: VdevId, more: &[MapEntry], txg: Txg) -> Result<IndirectMapping, VdevError> {
        let (mut entries, mut births) = (self.entries.clone(), self.births.clone());
        entries.extend_from_slice(more);
        if let Some(end) = more.last().map(|last| AllocOffset(last.src.0.saturating_add(last.len))) {
            births.push(Birth { end, txg });
        }
        IndirectMapping::new(vdev, entries, births)
    }

    /// First byte behind the last segment: what is before it has been copied.
    pub fn end(&self) -> AllocOffset {
        self.entries.last().map_or(AllocOffset(0), |last| AllocOffset(last.src.0 + last.len))
    }

    /// The mapped parts of a range, ascending: each with where it is.
    pub fn parts(&self, start: AllocOffset, len: u64) -> Vec<MapEntry> {
        let end = start.0.saturating_add(len);
        let first = self.entries.partition_point(|entry| entry.src.0 + entry.len <= start.0);
        let of_range = self.entries.iter().skip(first).take_while(|entry| entry.src.0 < end);
        let cut = |entry: &MapEntry| {
            let from = entry.src.0.max(start.0);
            let to = (entry.src.0 + entry.len).min(end);
            let offset = AllocOffset(entry.dst.offset.0 + (from - entry.src.0));
            let dst = Dva { offset, asize: Asize(to - from), ..entry.dst };
            MapEntry { src: AllocOffset(from), len: to - from, dst }
        };
        of_range.map(cut).collect()
    }

    /// The segments, ascending by `src`, without overlap.
    pub fn entries(&self) -> &[MapEntry] {
        &self.entries
    }

    /// The births, ascending by `end`.
    pub fn births(&self) -> &[Birth] {
        &self.births
    }

    /// The entry that covers a byte.
    pub fn find(&self, at: AllocOffset) -> Option<&MapEntry> {
        let after = self.entries.partition_point(|entry| entry.src <= at);
        let entry = self.entries.get(after.checked_sub(1)?)?;
        (at.0 - entry.src.0 < entry.len).then_some(entry)
    }

    /// The txg in which a byte was copied.
    pub fn birth(&self, at: AllocOffset) -> Option<Txg> {
        let part = self.births.partition_point(|birth| birth.end <= at);
        Some(self.births.get(part)?.txg)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(src: u64, len: u64, offset: u64) -> MapEntry {
        let dst = Dva { vdev: VdevId(1), offset: AllocOffset(offset), asize: Asize(len), gang: false };
        MapEntry { src: AllocOffset(src), len, dst }
    }

    #[test]
    fn ranges_are_cut_along_segments_and_gaps() {
        let empty = IndirectMapping::default();
        assert!(empty.parts(AllocOffset(0), 4096).is_empty());
        let more = [entry(4096, 4096, 0), entry(8192, 512, 9000 * 512), entry(16384, 4096, 4096)];
        let map = empty.extended(VdevId(0), &more, Txg(7)).unwrap();
        assert_eq!((map.end(), map.birth(AllocOffset(16384))), (AllocOffset(20480), Some(Txg(7))));
        let parts = map.parts(AllocOffset(6144), 14336 - 512);
        assert_eq!(parts, [entry(6144, 2048, 2048), entry(8192, 512, 9000 * 512), entry(16384, 3584, 4096)]);
        assert!(map.parts(AllocOffset(8704), 1024).is_empty());
        assert!(map.extended(VdevId(0), &[entry(0, 512, 0)], Txg(8)).is_err(), "behind all others");
    }
}
