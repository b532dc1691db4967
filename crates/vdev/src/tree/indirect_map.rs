//! The mapping of a removed vdev: the present location of each segment (docs/on-disk/14-vdevs.md, section 6).

use super::error::{MappingFault, VdevError};
use format::{AllocOffset, Dva, Txg, VdevId};

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
