//! Searching for data and holes in a file of which the client may hold dirty pages.
//!
//! # What always holds
//! - A result is right for the contents that have arrived. A hole may have become data in the client's cache,
//!   so the result also names the hole that it relies on ([`Found::hole`]).
//!
//! Tests: here.

use super::error::Answer;
use super::types::Seek;
use cenote::files::Fs;
use format::ObjectId;

/// Result of a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Found {
    /// Position of the data or hole; `None` if there is none.
    pub(crate) at: Option<u64>,
    /// A hole that the search crossed or that follows the result, as far as contents have arrived. Only the
    /// client knows whether it still is a hole.
    pub(crate) hole: Option<Hole>,
    /// Length of the file in bytes.
    pub(crate) size: u64,
}

/// A range of a file without data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Hole {
    /// Its first byte.
    pub(crate) from: u64,
    /// The first byte after it; `None` if it reaches to the end of the file, wherever that is.
    pub(crate) to: Option<u64>,
}

/// Searches a file for data or a hole from `offset` on. With `client_has_size`, only the client knows the end
/// of the file.
pub(super) fn find(fs: &Fs, id: ObjectId, offset: u64, what: Seek, client_has_size: bool) -> Answer<Found> {
    let size = fs.attrs(id)?.size;
    let end = if client_has_size { None } else { Some(size) };
    let hole = |from: u64, to: Option<u64>| {
        let to = to.or(end);
        to.is_none_or(|to| from < to).then_some(Hole { from, to })
    };
    let next_data = |from| Ok(fs.next_data(id, from)?);
    let next_hole = |from| Ok(fs.next_hole(id, from)?);
    Ok(match what {
        Seek::Data => {
            let at = next_data(offset)?;
            Found { at, hole: hole(offset, at), size }
        }
        Seek::Hole => {
            let (at, to) = find_hole(offset, next_hole, next_data)?;
            Found { at, hole: hole(at.unwrap_or(offset), to), size }
        }
    })
}

/// The first hole from `offset` on, and the data after it. The two are searched for one after the other: a
/// write in between may leave no hole, and then the search goes on with the next one.
fn find_hole(
    offset: u64,
    mut next_hole: impl FnMut(u64) -> Answer<Option<u64>>,
    mut next_data: impl FnMut(u64) -> Answer<Option<u64>>,
) -> Answer<(Option<u64>, Option<u64>)> {
    loop {
        let at = next_hole(offset)?;
        let from = at.unwrap_or(offset);
        let to = next_data(from)?;
        if at.is_none() || to != at {
            return Ok((at, to));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_between_two_looks_is_no_hole() {
        // The test writes a record after each search for a hole, three times.
        let written = std::cell::Cell::new(0);
        let look_for_hole = |_| {
            let end = written.get();
            written.set(3.min(end + 1));
            Ok(Some(end))
        };
        let look_for_data = |from| Ok(Some(from).filter(|from| *from < written.get()));
        assert_eq!(find_hole(0, look_for_hole, look_for_data).unwrap(), (Some(3), None));
    }
}
