//! Mappings of removed vdevs: where their contents are, and when they were copied (docs/on-disk/14-vdevs.md,
//! section 6).
//!
//! # What always holds
//! - Entries of a decoded [`Mapping`] are ascending, do not overlap, and do not refer to the removed vdev itself.
//!   The vdev tree checks whether the target vdevs exist.

use crate::endian::bits;
use crate::units::SECTOR_SHIFT;
use crate::{AllocOffset, DecodeError, Dva, Endian, ObjectId, Txg, VdevId};

/// Bytes of a mapping entry.
pub const ENTRY_SIZE: usize = 24;
/// Bytes of a births entry.
pub const BIRTH_SIZE: usize = 16;

const WHAT: &str = "indirect mapping";

/// Bonus of a mapping object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MappingPhys {
    /// Offset after the last mapped byte.
    pub max_offset: u64,
    /// Number of bytes that the mapping covers.
    pub bytes_mapped: u64,
    /// Number of entries of the mapping.
    pub num_entries: u64,
    /// Object id of the number of obsolete bytes of each entry, a `u32` each; `None`: not counted.
    pub counts: Option<ObjectId>,
}

impl MappingPhys {
    /// Reads the bonus: 24 bytes, or 32 with counts.
    ///
    /// # Errors
    /// [`DecodeError::Short`] if fewer than 24 bytes are given.
    pub fn decode(bytes: &[u8], order: Endian) -> Result<MappingPhys, DecodeError> {
        let [max_offset, bytes_mapped, num_entries] = order.words(WHAT, bytes, 0)?;
        let counts = order.get_u64(bytes, 24).filter(|id| *id != 0).map(ObjectId);
        Ok(MappingPhys { max_offset, bytes_mapped, num_entries, counts })
    }
}

impl MappingPhys {
    /// Encodes the bonus: 32 bytes with counts, else 24.
    pub fn encode(&self, order: Endian) -> Vec<u8> {
        let words = [self.max_offset, self.bytes_mapped, self.num_entries];
        words.into_iter().chain(self.counts.map(|id| id.0)).flat_map(|word| order.put_u64(word)).collect()
    }
}

/// A range of a removed vdev and its new location.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MappingEntry {
    /// Offset on the removed vdev.
    pub source: AllocOffset,
    /// The new location; its size is the length of the range.
    pub target: Dva,
}

impl MappingEntry {
    /// Reads an entry of 24 bytes.
    ///
    /// # Errors
    /// [`DecodeError::Short`]; [`DecodeError::Invalid`] if the entry has no length.
    pub fn decode(bytes: &[u8], order: Endian) -> Result<MappingEntry, DecodeError> {
        let [source, place, position] = order.words(WHAT, bytes, 0)?;
        let target =
            Dva::from_words(place, position).ok_or(DecodeError::invalid(WHAT, "an entry of no length"))?;
        Ok(MappingEntry { source: AllocOffset(bits(source, 0, 63) << SECTOR_SHIFT), target })
    }

    /// Encodes the entry, 24 bytes.
    pub fn encode(&self, order: Endian) -> [u8; ENTRY_SIZE] {
        let [place, position] = self.target.to_words();
        let mut out = [0; ENTRY_SIZE];
        for (chunk, word) in out.chunks_exact_mut(8).zip([self.source.0 >> SECTOR_SHIFT, place, position]) {
            chunk.copy_from_slice(&order.put_u64(word));
        }
        out
    }

    /// Offset after the last byte, on the removed vdev.
    pub(crate) fn end(&self) -> u64 {
        self.source.0.saturating_add(self.target.asize.0)
    }
}

/// The whole mapping of a removed vdev.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Mapping {
    entries: Vec<MappingEntry>,
}

impl Mapping {
    /// Reads and checks all entries of the mapping of `vdev`.
    ///
    /// # Errors
    /// [`DecodeError::Field`] if the entries overlap or do not ascend, or one of them leads back to
    /// `vdev`; the errors of an entry.
    pub fn decode(bytes: &[u8], order: Endian, vdev: VdevId) -> Result<Mapping, DecodeError> {
        if !bytes.len().is_multiple_of(ENTRY_SIZE) {
            return Err(DecodeError::field(WHAT, "size", bytes.len() as u64));
        }
        let entries: Vec<MappingEntry> = bytes
            .chunks_exact(ENTRY_SIZE)
            .map(|raw| MappingEntry::decode(raw, order))
            .collect::<Result<_, _>>()?;
        let mut end = 0;
        for entry in &entries {
            if entry.source.0 < end || entry.source.0.checked_add(entry.target.asize.0).is_none() {
                return Err(DecodeError::field(WHAT, "source offset", entry.source.0));
            }
            if entry.target.vdev == vdev {
                return Err(DecodeError::field(WHAT, "target vdev", vdev.0));
            }
            end = entry.end();
        }
        Ok(Mapping { entries })
    }

    /// The entries, ascending by source offset.
    pub fn entries(&self) -> &[MappingEntry] {
        &self.entries
    }

    /// The present locations of the bytes `[offset, offset + len)` of the removed vdev, in order.
    ///
    /// # Errors
    /// [`DecodeError::Field`] with the first offset that no entry maps.
    pub fn lookup(&self, offset: AllocOffset, len: u64) -> Result<Vec<Piece>, DecodeError> {
        let unmapped = |at: u64| DecodeError::field(WHAT, "unmapped offset", at);
        let end = offset.0.checked_add(len).ok_or_else(|| unmapped(offset.0))?;
        let mut at = offset.0;
        let first = self.entries.partition_point(|entry| entry.end() <= at);
        let mut pieces = Vec::new();
        for entry in self.entries.get(first..).unwrap_or(&[]) {
            if at >= end || entry.source.0 > at {
                break;
            }
            let skipped = at - entry.source.0;
            let piece_end = end.min(entry.end());
            let place = entry.target.offset.0.checked_add(skipped).ok_or_else(|| unmapped(at))?;
            pieces.push(Piece { vdev: entry.target.vdev, offset: AllocOffset(place), len: piece_end - at });
            at = piece_end;
        }
        if at < end { Err(unmapped(at)) } else { Ok(pieces) }
    }
}

/// A part of a block of a removed vdev, at its present location.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// The vdev, which may have been removed as well.
    pub(crate) vdev: VdevId,
    /// First byte of the range.
    pub(crate) offset: AllocOffset,
    /// Length of the range in bytes.
    pub len: u64,
}

/// When the contents of a removed vdev were copied.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Births {
    /// End offset of each range, and the txg in which the range up to it was copied.
    entries: Vec<(AllocOffset, Txg)>,
}

impl Births {
    /// Decodes all entries; their number is the only word of the bonus.
    ///
    /// # Errors
    /// [`DecodeError::Short`]; [`DecodeError::Field`] if offsets do not ascend.
    pub fn decode(bytes: &[u8], order: Endian) -> Result<Births, DecodeError> {
        const WHAT: &str = "indirect births";
        if !bytes.len().is_multiple_of(BIRTH_SIZE) {
            return Err(DecodeError::field(WHAT, "size", bytes.len() as u64));
        }
        let mut entries: Vec<(AllocOffset, Txg)> = Vec::with_capacity(bytes.len() / BIRTH_SIZE);
        for raw in bytes.chunks_exact(BIRTH_SIZE) {
            let [end, txg] = order.words(WHAT, raw, 0)?;
            if entries.last().is_some_and(|(last, _)| last.0 >= end) {
                return Err(DecodeError::field(WHAT, "offset", end));
            }
            entries.push((AllocOffset(end), Txg(txg)));
        }
        Ok(Births { entries })
    }

    /// The txg in which the byte at `offset` was copied.
    pub fn at(&self, offset: AllocOffset) -> Option<Txg> {
        let i = self.entries.partition_point(|(end, _)| *end <= offset);
        self.entries.get(i).map(|(_, txg)| *txg)
    }

    /// Pairs of end offset and txg, ascending.
    pub fn entries(&self) -> &[(AllocOffset, Txg)] {
        &self.entries
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Asize;

    fn entry(source: u64, len: u64, vdev: u32, offset: u64) -> MappingEntry {
        let target = Dva { vdev: VdevId(vdev), offset: AllocOffset(offset), asize: Asize(len), gang: false };
        MappingEntry { source: AllocOffset(source), target }
    }

    fn pack(entries: &[MappingEntry]) -> Vec<u8> {
        entries.iter().flat_map(|e| e.encode(Endian::Little)).collect()
    }

    #[test]
    fn blocks_are_cut_along_entries() {
        let entries = [entry(0, 4096, 1, 1 << 20), entry(4096, 512, 2, 512), entry(8192, 512, 1, 0)];
        let mapping = Mapping::decode(&pack(&entries), Endian::Little, VdevId(0)).unwrap();
        assert_eq!(mapping.entries(), entries);
        let pieces = mapping.lookup(AllocOffset(3584), 1024).unwrap();
        assert_eq!(
            pieces,
            [
                Piece { vdev: VdevId(1), offset: AllocOffset((1 << 20) + 3584), len: 512 },
                Piece { vdev: VdevId(2), offset: AllocOffset(512), len: 512 },
            ]
        );
        assert!(mapping.lookup(AllocOffset(4096), 1024).is_err());
        assert!(mapping.lookup(AllocOffset(8192), 1024).is_err());
        assert!(mapping.lookup(AllocOffset(u64::MAX), 1024).is_err());
        assert_eq!(mapping.lookup(AllocOffset(8192), 512).unwrap().len(), 1);
    }

    #[test]
    fn mappings_that_overlap_or_lead_back_are_refused() {
        let decode = |entries: &[MappingEntry]| Mapping::decode(&pack(entries), Endian::Little, VdevId(0));
        assert!(decode(&[entry(0, 1024, 1, 0), entry(512, 512, 1, 0)]).is_err());
        assert!(decode(&[entry(512, 512, 1, 0), entry(0, 512, 1, 0)]).is_err());
        assert!(decode(&[entry(0, 512, 0, 0)]).is_err());
        assert!(decode(&[entry(0, 0, 1, 0)]).is_err());
        assert!(Mapping::decode(&[0; 25], Endian::Little, VdevId(0)).is_err());
    }

    #[test]
    fn births_by_offset() {
        let bytes: Vec<u8> = [4096u64, 10, 8192, 11].into_iter().flat_map(u64::to_le_bytes).collect();
        let births = Births::decode(&bytes, Endian::Little).unwrap();
        assert_eq!(births.at(AllocOffset(0)), Some(Txg(10)));
        assert_eq!(births.at(AllocOffset(4096)), Some(Txg(11)));
        assert_eq!(births.at(AllocOffset(8192)), None);
        let bytes: Vec<u8> = [4096u64, 10, 4096, 11].into_iter().flat_map(u64::to_le_bytes).collect();
        assert!(Births::decode(&bytes, Endian::Little).is_err());
    }
}
