//! Sparse files in the four formats of GNU tar.

use std::io::Read;

use super::super::meta::Segment;
use super::header::{Header, old_map};
use super::pax::Pax;
use super::{BLOCK, TarError, TarReader};

/// Maximum number of ranges in a map.
const SEGMENTS_MAX: usize = 1 << 20;
/// Number of ranges in an extension block of an old map.
const OLD_MAP_ENTRIES: usize = 21;
/// Maximum number of digits in a map of format 1.0.
const DIGITS_MAX: usize = 20;

/// Layout of a sparse file.
pub(super) struct Sparse {
    pub(super) size: u64,
    pub(super) segments: Vec<Segment>,
}

impl<R: Read> TarReader<R> {
    /// The map of a sparse file; `None` for other files. The data begins after what is read here.
    pub(super) fn sparse(
        &mut self,
        start: u64,
        header: &Header,
        pax: &Pax,
    ) -> Result<Option<Sparse>, TarError> {
        let bad = || TarError::Header { at: start, why: "the map of a sparse file is damaged" };
        let (map, size) = if let Some(old) = &header.old_sparse {
            let mut map = old.map.clone();
            let mut is_extended = old.is_extended;
            while is_extended {
                let mut block = [0; BLOCK];
                self.fill(&mut block)?;
                map.extend(old_map(&block, OLD_MAP_ENTRIES).ok_or_else(bad)?);
                if map.len() > SEGMENTS_MAX {
                    return Err(bad());
                }
                is_extended = block.get(504).is_some_and(|byte| *byte != 0);
            }
            (map, old.size)
        } else if pax.number("GNU.sparse.major") == Some(1) {
            (self.map_in_data(start)?, pax.number("GNU.sparse.realsize").ok_or_else(bad)?)
        } else if let Some(size) = pax.number("GNU.sparse.size").or(pax.number("GNU.sparse.realsize")) {
            (pax.sparse_map().ok_or_else(bad)?, size)
        } else {
            return Ok(None);
        };
        check(&map, size, self.left).map(Some).ok_or_else(bad)
    }

    /// The map before the data: one number a line, padded to whole blocks.
    fn map_in_data(&mut self, start: u64) -> Result<Vec<(u64, u64)>, TarError> {
        let bad = || TarError::Header { at: start, why: "the map of a sparse file is damaged" };
        let mut block = [0; BLOCK];
        let mut at = BLOCK;
        let mut number = |reader: &mut TarReader<R>| -> Result<u64, TarError> {
            let mut digits = String::new();
            loop {
                if at == BLOCK {
                    reader.left = reader.left.checked_sub(BLOCK as u64).ok_or_else(bad)?;
                    reader.fill(&mut block)?;
                    at = 0;
                }
                let byte = block.get(at).copied().unwrap_or(0);
                at += 1;
                match byte {
                    b'\n' => return digits.parse().map_err(|_| bad()),
                    b'0'..=b'9' if digits.len() < DIGITS_MAX => digits.push(char::from(byte)),
                    _ => return Err(bad()),
                }
            }
        };
        let count = number(self)?;
        let count = usize::try_from(count).ok().filter(|count| *count <= SEGMENTS_MAX).ok_or_else(bad)?;
        (0..count).map(|_| Ok((number(self)?, number(self)?))).collect()
    }
}

/// The ranges, if they are in order, inside the file, and as long as the stored data.
fn check(map: &[(u64, u64)], size: u64, stored: u64) -> Option<Sparse> {
    let (mut segments, mut end, mut sum) = (Vec::new(), 0u64, 0u64);
    for (offset, len) in map {
        if *offset < end {
            return None;
        }
        end = offset.checked_add(*len).filter(|end| *end <= size)?;
        sum += len;
        if *len > 0 {
            segments.push(Segment { offset: *offset, len: *len });
        }
    }
    (sum == stored && size < 1 << 62).then_some(Sparse { size, segments })
}
