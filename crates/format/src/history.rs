//! The pool's history: a ring of records that always keeps the records of the pool's creation
//! (docs/on-disk/22-mos-dsl.md, section 10).
//!
//! Positions are logical and only increase. Below [`HistoryPhys::create_len`] they are offsets in the object; later
//! records form a ring in the rest of the object.

use crate::{DecodeError, Endian, NvList};
use std::ops::Range;

const WHAT: &str = "history";
/// Size in bytes of the length before each record.
const LENGTH: usize = 8;
/// Maximum size of a record in bytes; real ones are a few KiB.
pub const RECORD_MAX: u64 = 16 << 20;

/// Bonus of the history object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HistoryPhys {
    /// Size in bytes of the records of the creation, at the start of the object, which are never overwritten.
    pub create_len: u64,
    /// End of the ring: offset in the object at which writing wraps around.
    pub end_of_ring: u64,
    /// Position of the oldest record that is still there.
    pub begin: u64,
    /// Position after the newest record.
    pub end: u64,
    /// Number of records that were overwritten.
    pub records_lost: u64,
}

impl HistoryPhys {
    /// Reads the bonus, 40 bytes.
    ///
    /// # Errors
    /// [`DecodeError::Short`]; [`DecodeError::Field`] for offsets that cannot be.
    pub fn decode(bytes: &[u8], order: Endian) -> Result<HistoryPhys, DecodeError> {
        let [create_len, end_of_ring, begin, end, records_lost] = order.words(WHAT, bytes, 0)?;
        if create_len >= end_of_ring {
            return Err(DecodeError::field(WHAT, "pool_create_len", create_len));
        }
        let ring = end_of_ring - create_len;
        if begin > end || end.saturating_sub(begin.max(create_len)) > ring {
            return Err(DecodeError::field(WHAT, "bof", begin));
        }
        Ok(HistoryPhys { create_len, end_of_ring, begin, end, records_lost })
    }

    /// The bonus in 40 bytes.
    pub fn encode(&self, order: Endian) -> Vec<u8> {
        [self.create_len, self.end_of_ring, self.begin, self.end, self.records_lost]
            .into_iter()
            .flat_map(|word| order.put_u64(word))
            .collect()
    }

    /// The ranges of logical positions to read, in order: the creation, then the ring.
    pub fn stretches(&self) -> [Range<u64>; 2] {
        let begin = self.begin.max(self.create_len);
        [0..self.create_len, begin..self.end.max(begin)]
    }

    /// The ranges of the object that correspond to logical positions. A stretch has one or two; for a longer range
    /// only the first three are returned.
    pub fn pieces(&self, positions: Range<u64>) -> Vec<Range<u64>> {
        let mut pieces = Vec::new();
        let mut at = positions.start;
        let end = positions.end.min(at.saturating_add(self.end_of_ring));
        let ring = self.end_of_ring.saturating_sub(self.create_len).max(1);
        while at < end && pieces.len() < 3 {
            let (start, room) = if at < self.create_len {
                (at, self.create_len - at)
            } else {
                let in_ring = (at - self.create_len) % ring;
                (self.create_len + in_ring, ring - in_ring)
            };
            let len = room.min(end - at);
            pieces.push(start..start + len);
            at += len;
        }
        pieces
    }
}

/// Iterator over the records of a stretch. Ends after an error.
#[derive(Debug, Clone)]
pub struct Records<'a> {
    rest: &'a [u8],
}

/// How many of `bytes` hold whole records, for a reader that has only the front of a stretch. The first byte starts a
/// record. Bytes that cannot be a record end the count: no later ones make them one.
pub fn whole_records(bytes: &[u8]) -> usize {
    let mut rest = bytes;
    while let Ok((_, after)) = split_record(rest) {
        rest = after;
    }
    bytes.len() - rest.len()
}

/// The records in `bytes`, which begin at the start of a record.
pub fn records(bytes: &[u8]) -> Records<'_> {
    Records { rest: bytes }
}

impl Iterator for Records<'_> {
    type Item = Result<NvList, DecodeError>;

    fn next(&mut self) -> Option<Result<NvList, DecodeError>> {
        if self.rest.is_empty() {
            return None;
        }
        match split_record(self.rest) {
            Ok((record, rest)) => {
                self.rest = rest;
                // A record that cannot be decoded does not hide those after it.
                Some(NvList::decode(record))
            }
            Err(error) => {
                self.rest = &[];
                Some(Err(error))
            }
        }
    }
}

fn split_record(bytes: &[u8]) -> Result<(&[u8], &[u8]), DecodeError> {
    // The length is little-endian in every pool.
    let length = Endian::Little.u64(WHAT, bytes, 0)?;
    if length == 0 || length > RECORD_MAX {
        return Err(DecodeError::field(WHAT, "record length", length));
    }
    let body = bytes.get(LENGTH..).unwrap_or(&[]);
    body.split_at_checked(length as usize).ok_or(DecodeError::Short {
        what: WHAT,
        needed: length as usize,
        have: body.len(),
    })
}

/// Encodes a record for appending: length, then the list in native encoding.
pub fn encode_record(list: &NvList) -> Vec<u8> {
    let packed = list.encode_native();
    let mut out = (packed.len() as u64).to_le_bytes().to_vec();
    out.extend(packed);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_creation_stays_and_the_rest_wraps() {
        let phys =
            HistoryPhys { create_len: 100, end_of_ring: 1000, begin: 1500, end: 2300, records_lost: 9 };
        assert_eq!(phys.stretches(), [0..100, 1500..2300]);
        assert_eq!(phys.pieces(0..100), vec![0..100]);
        // Position 1500 is 1400 after the creation: 500 into the second round of 900.
        assert_eq!(phys.pieces(1500..2300), vec![600..1000, 100..500]);
        for order in [Endian::Little, Endian::Big] {
            assert_eq!(HistoryPhys::decode(&phys.encode(order), order), Ok(phys));
        }
    }

    #[test]
    fn a_fresh_history_has_two_stretches_without_a_gap() {
        let phys = HistoryPhys { create_len: 100, end_of_ring: 1000, begin: 100, end: 250, records_lost: 0 };
        assert_eq!(phys.stretches(), [0..100, 100..250]);
        assert_eq!(phys.pieces(50..250), vec![50..100, 100..250]);
    }

    #[test]
    fn impossible_positions_are_refused() {
        let decode = |words: [u64; 5]| {
            let bytes: Vec<u8> = words.into_iter().flat_map(u64::to_le_bytes).collect();
            HistoryPhys::decode(&bytes, Endian::Little)
        };
        assert!(decode([100, 100, 100, 100, 0]).is_err());
        assert!(decode([0, 100, 50, 49, 0]).is_err());
        assert!(decode([0, 100, 0, 101, 0]).is_err());
        assert!(decode([0, 100, 0, 100, 0]).is_ok());
    }

    #[test]
    fn records_follow_one_another() {
        let list = |n: u64| -> NvList { [("history time", n)].into_iter().collect() };
        let mut stream = encode_record(&list(1));
        stream.extend(encode_record(&list(2)));
        let read: Vec<NvList> = records(&stream).map(Result::unwrap).collect();
        assert_eq!(read, [list(1), list(2)]);
        let first = encode_record(&list(1)).len();
        for len in 0..stream.len() {
            assert_eq!(whole_records(&stream[..len]), if len < first { 0 } else { first }, "{len} bytes");
        }
        assert_eq!(whole_records(&stream), stream.len());
        let cut = records(&stream[..stream.len() - 1]).last().unwrap();
        assert!(cut.is_err());
        assert_eq!(records(&[0; 64]).count(), 1);
    }
    /// Three records of a pool of OpenZFS 2.3.2: an ioctl of `zfs create`, the command, and an internal event.
    #[test]
    fn real_records_encode_to_the_same_bytes() {
        let stream = include_bytes!("../testdata/history.bin");
        let read: Vec<NvList> = records(stream).map(Result::unwrap).collect();
        assert_eq!(read[0].str("ioctl"), Some("create"));
        assert!(read[0].list("in_nvl").is_some_and(|list| list.has("type")));
        assert_eq!(read[1].str("history command"), Some("zfs create t_single/fs"));
        assert_eq!((read[2].str("internal_name"), read.len()), (Some("snapshot"), 3));
        let again: Vec<u8> = read.iter().flat_map(encode_record).collect();
        assert_eq!(again, stream);
    }
}
