//! Space maps: logs of allocations and frees (docs/on-disk/15-space.md, sections 2 and 4).
//!
//! The data of an object is a sequence of 64-bit words; an entry has one or two of them and does not cross a data
//! block, so every block can be decoded alone. Offsets and runs are in units of `2^shift` bytes from the start of
//! the map; [`MapBounds`] converts them to byte ranges and refuses those outside of the map.
//!
//! # What always holds
//! - [`Writer`] output decodes to the same ranges, in the same order.
//! - The caller replays the entries; this module does not know whether a range was free before.

use crate::endian::{bits, with_bits};
use crate::{DecodeError, Endian, VdevId};

/// Size of the bonus without a histogram, in bytes.
#[cfg(test)]
pub(crate) const PHYS_SIZE_OLD: usize = 24;
/// Size of the bonus with a histogram, in bytes.
pub const PHYS_SIZE: usize = 320;
/// Number of buckets in the histogram.
pub const BUCKETS: usize = 32;
/// Shift of log space maps: their unit is 512 bytes.
pub const LOG_SHIFT: u32 = 9;

const WHAT: &str = "space map";
/// Maximum run of a one-word entry.
const RUN_MAX: u64 = 1 << 15;
/// Maximum run of a two-word entry.
const RUN_MAX_TWO: u64 = 1 << 36;
/// First offset that does not fit a one-word entry.
const OFFSET_END: u64 = 1 << 47;
/// First offset that does not fit a two-word entry.
const OFFSET_END_TWO: u64 = 1 << 63;

/// Bonus of a space map object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpaceMapPhys {
    /// Object id of the space map itself; informative.
    pub object: u64,
    /// Size of the entries in bytes.
    pub length: u64,
    /// Bytes allocated less bytes freed, over all entries.
    pub allocated: i64,
    /// Number of free segments by size, as a hint: bucket `i` counts segments of `2^(i + shift)` bytes or more.
    pub histogram: Option<[u64; BUCKETS]>,
}

impl SpaceMapPhys {
    /// Reads the bonus, with or without a histogram.
    ///
    /// # Errors
    /// [`DecodeError::Short`]; [`DecodeError::Field`] if the length is not a whole number of words.
    pub fn decode(bytes: &[u8], order: Endian) -> Result<SpaceMapPhys, DecodeError> {
        let [object, length, allocated] = order.words(WHAT, bytes, 0)?;
        if !length.is_multiple_of(8) {
            return Err(DecodeError::field(WHAT, "length", length));
        }
        let histogram = if bytes.len() >= PHYS_SIZE { Some(order.words(WHAT, bytes, 64)?) } else { None };
        Ok(SpaceMapPhys { object, length, allocated: allocated as i64, histogram })
    }

    /// The bonus, 24 or 320 bytes.
    pub fn encode(&self, order: Endian) -> Vec<u8> {
        let mut words = vec![self.object, self.length, self.allocated as u64];
        if let Some(histogram) = &self.histogram {
            words.extend([0; 5]);
            words.extend(histogram);
        }
        words.into_iter().flat_map(|word| order.put_u64(word)).collect()
    }
}

/// Kind of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MapType {
    /// The range was free and was allocated.
    Alloc,
    /// The range was allocated and was freed.
    Free,
}

impl MapType {
    fn from_bit(bit: u64) -> MapType {
        if bit == 0 { MapType::Alloc } else { MapType::Free }
    }
}

/// One entry of the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry {
    /// Begins the entries of one sync pass; with txg 0 it is padding.
    Debug {
        /// Whether the entries that follow allocate or free.
        action: MapType,
        /// The sync pass that appended the entries.
        pass: u16,
        /// The txg that appended the entries.
        txg: u64,
    },
    /// An entry for one range.
    Range {
        /// Whether the range was allocated or freed.
        kind: MapType,
        /// Start of the range, in units from the start of the map.
        offset: u64,
        /// Length of the range in units; at least 1.
        run: u64,
        /// The vdev; only in two-word entries, and significant only in log space maps.
        vdev: Option<VdevId>,
    },
}

impl Entry {
    /// The entry that fills the last word of a block.
    #[cfg(test)]
    pub(crate) const PADDING: Entry = Entry::Debug { action: MapType::Alloc, pass: 0, txg: 0 };

    /// Whether the entry is padding at the end of a block.
    pub fn is_padding(&self) -> bool {
        matches!(self, Entry::Debug { txg: 0, .. })
    }

    /// Whether the entry takes two words.
    pub fn is_two_words(&self) -> bool {
        matches!(self, Entry::Range { vdev: Some(_), .. })
    }
}

/// Iterator over the entries of one block, or of any run of whole entries. Ends after an error.
#[derive(Debug, Clone)]
pub struct Entries<'a> {
    bytes: &'a [u8],
    order: Endian,
    at: usize,
}

/// The entries in `bytes`: one data block, cut at the end of the entries.
pub fn entries(bytes: &[u8], order: Endian) -> Entries<'_> {
    Entries { bytes, order, at: 0 }
}

impl Entries<'_> {
    fn word(&mut self) -> Option<u64> {
        let word = self.order.get_u64(self.bytes, self.at)?;
        self.at += 8;
        Some(word)
    }

    fn entry(&mut self, word: u64) -> Result<Entry, DecodeError> {
        match bits(word, 62, 2) {
            0b10 => match bits(word, 60, 2) {
                action @ 0..=1 => Ok(Entry::Debug {
                    action: MapType::from_bit(action),
                    pass: bits(word, 50, 10) as u16,
                    txg: bits(word, 0, 50),
                }),
                action => Err(DecodeError::field(WHAT, "debug action", action)),
            },
            0b11 => {
                if bits(word, 60, 2) != 0 {
                    return Err(DecodeError::field(WHAT, "reserved bits", bits(word, 60, 2)));
                }
                let second =
                    self.word().ok_or(DecodeError::invalid(WHAT, "an entry crosses the end of its block"))?;
                Ok(Entry::Range {
                    kind: MapType::from_bit(bits(second, 63, 1)),
                    offset: bits(second, 0, 63),
                    run: bits(word, 24, 36) + 1,
                    vdev: Some(VdevId(bits(word, 0, 24) as u32)),
                })
            }
            _ => Ok(Entry::Range {
                kind: MapType::from_bit(bits(word, 15, 1)),
                offset: bits(word, 16, 47),
                run: bits(word, 0, 15) + 1,
                vdev: None,
            }),
        }
    }
}

impl Iterator for Entries<'_> {
    type Item = Result<Entry, DecodeError>;

    fn next(&mut self) -> Option<Result<Entry, DecodeError>> {
        let word = self.word()?;
        let entry = self.entry(word);
        if entry.is_err() {
            self.at = self.bytes.len();
        }
        Some(entry)
    }
}

/// A range of bytes, or of txgs in a DTL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// Whether the range was allocated or freed.
    pub kind: MapType,
    /// First byte, in the space that the map covers.
    pub start: u64,
    /// Length of the range in bytes.
    pub len: u64,
    /// The vdev; only in log space maps.
    pub vdev: Option<VdevId>,
}

/// The range of a vdev that a map covers. Converts entries to byte ranges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MapBounds {
    /// First byte that the space map covers.
    pub start: u64,
    /// Number of bytes that the space map covers.
    pub size: u64,
    /// Base-2 logarithm of the unit of offsets and lengths.
    pub shift: u32,
}

impl MapBounds {
    /// Bounds of a DTL: any txg.
    pub const DTL: MapBounds = MapBounds { start: 0, size: u64::MAX, shift: 0 };
    /// Bounds of a log space map: any byte of any vdev.
    pub const LOG: MapBounds = MapBounds { start: 0, size: u64::MAX, shift: LOG_SHIFT };

    /// The range of an entry; `None` for a debug entry.
    ///
    /// # Errors
    /// [`DecodeError::Field`] if the range leaves the bounds.
    pub fn segment(&self, entry: &Entry) -> Result<Option<Segment>, DecodeError> {
        let Entry::Range { kind, offset, run, vdev } = *entry else { return Ok(None) };
        let outside = || DecodeError::field(WHAT, "offset", offset);
        let scale = |units: u64| units.checked_mul(1u64.checked_shl(self.shift)?);
        let from = scale(offset).ok_or_else(outside)?;
        let len = scale(run).ok_or_else(outside)?;
        let end = from.checked_add(len).ok_or_else(outside)?;
        if end > self.size {
            return Err(outside());
        }
        let start = self.start.checked_add(from).ok_or_else(outside)?;
        Ok(Some(Segment { kind, start, len, vdev }))
    }
}

/// Encodes entries; no entry crosses the end of a data block.
#[derive(Debug, Clone)]
pub struct Writer {
    words: Vec<u64>,
    /// Number of words in the stream before the first of `words`.
    before: u64,
    block_words: u64,
}

impl Writer {
    /// Appends to entries of `length` bytes in an object with blocks of `block_size` bytes.
    pub fn new(length: u64, block_size: u64) -> Writer {
        Writer { words: Vec::new(), before: length / 8, block_words: (block_size / 8).max(2) }
    }

    /// Adds the entry that begins a sync pass.
    pub fn debug(&mut self, action: MapType, pass: u16, txg: u64) {
        let word = with_bits(0b10 << 62, 60, 2, action as u64);
        self.words.push(with_bits(with_bits(word, 50, 10, u64::from(pass)), 0, 50, txg));
    }

    /// Adds a range, in as many entries as necessary. With a vdev, or if a value exceeds a one-word entry, entries
    /// have two words (feature `spacemap_v2`).
    ///
    /// # Errors
    /// [`DecodeError::Field`] if the range ends beyond 2^63 units.
    pub fn range(
        &mut self,
        kind: MapType,
        offset: u64,
        run: u64,
        vdev: Option<VdevId>,
    ) -> Result<(), DecodeError> {
        let end = offset.checked_add(run).filter(|end| *end <= OFFSET_END_TWO);
        let end = end.ok_or(DecodeError::field(WHAT, "offset", offset))?;
        let two = vdev.is_some() || run > RUN_MAX || end > OFFSET_END;
        let mut at = offset;
        while at < end {
            let piece = (end - at).min(if two { RUN_MAX_TWO } else { RUN_MAX });
            if two {
                self.two_words(kind, at, piece, vdev.unwrap_or_default());
            } else {
                self.words.push(with_bits(with_bits(piece - 1, 15, 1, kind as u64), 16, 47, at));
            }
            at += piece;
        }
        Ok(())
    }

    fn two_words(&mut self, kind: MapType, offset: u64, run: u64, vdev: VdevId) {
        if (self.before + self.words.len() as u64) % self.block_words == self.block_words - 1 {
            self.debug(MapType::Alloc, 0, 0);
        }
        let first = with_bits(0b11 << 62, 24, 36, run - 1);
        self.words.push(with_bits(first, 0, 24, u64::from(vdev.0)));
        self.words.push(with_bits(offset, 63, 1, kind as u64));
    }

    /// The words to append, in this byte order.
    pub fn finish(self, order: Endian) -> Vec<u8> {
        self.words.into_iter().flat_map(|word| order.put_u64(word)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    fn all(words: &[u64]) -> Vec<Entry> {
        entries(&bytes(words), Endian::Little).map(Result::unwrap).collect()
    }

    #[test]
    fn examples_of_the_spec() {
        let map = all(&[0x8004_0000_0000_0006, 0x3b, 0x42_002f, 0x9004_0000_0000_0009]);
        let range = |offset, run| Entry::Range { kind: MapType::Alloc, offset, run, vdev: None };
        assert_eq!(
            map,
            [
                Entry::Debug { action: MapType::Alloc, pass: 1, txg: 6 },
                range(0, 60),
                range(0x42, 48),
                Entry::Debug { action: MapType::Free, pass: 1, txg: 9 },
            ]
        );
        let log = all(&[0xc000_0000_2f00_0000, 0x8000_0000_0010_2540]);
        let freed = Entry::Range { kind: MapType::Free, offset: 0x10_2540, run: 48, vdev: Some(VdevId(0)) };
        assert_eq!(log, [freed]);
        let segment = MapBounds::LOG.segment(&freed).unwrap().unwrap();
        assert_eq!((segment.start, segment.len), (0x10_2540 << 9, 48 << 9));
    }

    #[test]
    fn writer_chooses_the_form_and_pads_blocks() {
        let mut writer = Writer::new(0, 32);
        writer.debug(MapType::Free, 2, 77);
        writer.range(MapType::Free, 5, RUN_MAX, None).unwrap();
        writer.range(MapType::Alloc, 5, RUN_MAX + 1, None).unwrap();
        writer.range(MapType::Alloc, OFFSET_END, 1, None).unwrap();
        writer.range(MapType::Free, 1, RUN_MAX_TWO + 3, Some(VdevId(9))).unwrap();
        let stream = writer.finish(Endian::Little);
        let decoded: Vec<Entry> = stream
            .chunks(32)
            .flat_map(|block| entries(block, Endian::Little).map(Result::unwrap).collect::<Vec<_>>())
            .filter(|entry| !entry.is_padding())
            .collect();
        let range = |kind, offset, run, vdev| Entry::Range { kind, offset, run, vdev };
        assert_eq!(
            decoded,
            [
                Entry::Debug { action: MapType::Free, pass: 2, txg: 77 },
                range(MapType::Free, 5, RUN_MAX, None),
                range(MapType::Alloc, 5, RUN_MAX + 1, Some(VdevId(0))),
                range(MapType::Alloc, OFFSET_END, 1, Some(VdevId(0))),
                range(MapType::Free, 1, RUN_MAX_TWO, Some(VdevId(9))),
                range(MapType::Free, 1 + RUN_MAX_TWO, 3, Some(VdevId(9))),
            ]
        );
        assert!(Writer::new(0, 32).range(MapType::Free, u64::MAX, 1, None).is_err());
    }

    #[test]
    fn half_an_entry_ends_the_stream() {
        let cut = bytes(&[0x3b, 0xc000_0000_2f00_0000]);
        let found: Vec<_> = entries(&cut, Endian::Little).collect();
        assert_eq!(found.len(), 2);
        assert!(found[1].is_err());
    }

    #[test]
    fn ranges_outside_the_map_are_refused() {
        let map = MapBounds { start: 1 << 20, size: 1 << 20, shift: 9 };
        let range = |offset, run| Entry::Range { kind: MapType::Alloc, offset, run, vdev: None };
        assert_eq!(map.segment(&range(2047, 1)).unwrap().unwrap().start, (1 << 20) + (2047 << 9));
        assert!(map.segment(&range(2047, 2)).is_err());
        assert!(map.segment(&range(u64::MAX >> 1, 1)).is_err());
        assert!(MapBounds { shift: 64, ..map }.segment(&range(0, 1)).is_err());
        assert_eq!(map.segment(&Entry::PADDING), Ok(None));
    }

    #[test]
    fn bonus_of_both_sizes() {
        for order in [Endian::Little, Endian::Big] {
            let old = SpaceMapPhys { object: 3, length: 16, allocated: -5, histogram: None };
            let new = SpaceMapPhys { histogram: Some(std::array::from_fn(|i| i as u64)), ..old };
            for phys in [old, new] {
                assert_eq!(SpaceMapPhys::decode(&phys.encode(order), order), Ok(phys));
            }
            assert_eq!((old.encode(order).len(), new.encode(order).len()), (PHYS_SIZE_OLD, PHYS_SIZE));
        }
        assert!(SpaceMapPhys::decode(&[1; 24], Endian::Little).is_err());
    }
}
