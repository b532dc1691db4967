//! Searching for data and holes in files that programs may have changed through memory maps, of which the
//! kernel tells the server only later.
//!
//! # What always holds
//! - A reported hole is also a hole in the kernel's pages: before a range is reported as a hole, its pages
//!   are written back. If that takes too long, the whole file is reported as data, which is correct for any
//!   file.

use super::dirty_pages::DirtyPages;
use super::service::Answer;
use crate::export::{Found, Hole, Seek};
use rustix::io::Errno;

/// Searches for data or a hole, with the kernel's dirty pages; `find` searches the contents that have
/// arrived.
pub(super) fn seek(
    pages: &DirtyPages,
    (node, offset): (u64, u64),
    what: Seek,
    find: impl Fn() -> Answer<Found>,
) -> Answer<u64> {
    let mut found = find()?;
    let mut written_back = None;
    // The hole may have become data: the search is repeated for the next hole, and after that the rest of the
    // file is written back at once.
    for to_the_end in [false, true] {
        let Some(hole) = found.hole else { break };
        if written_back.is_some_and(|done| is_in(done, &found, what)) {
            break;
        }
        // A block of zeros becomes a hole when it is written, so an earlier hole may be found now.
        let hole = if to_the_end { Hole { from: offset, to: None } } else { hole };
        let len = hole.to.map_or(0, |to| to - hole.from);
        if !pages.drop_range(node, hole.from, len) {
            return all_is_data(&found, offset, what);
        }
        written_back = Some(hole);
        found = find()?;
    }
    found.at.ok_or(Errno::NXIO)
}

/// Whether the result depends only on the range that was written back.
fn is_in(done: Hole, found: &Found, what: Seek) -> bool {
    match (what, done.to) {
        (_, None) => found.at.is_none_or(|at| at >= done.from),
        (Seek::Data, Some(to)) => found.at.is_some_and(|at| at <= to),
        (Seek::Hole, Some(to)) => found.at.is_some_and(|at| at >= done.from && at < to),
    }
}

/// The answer that is correct for any file: all of it is data.
fn all_is_data(found: &Found, offset: u64, what: Seek) -> Answer<u64> {
    match what {
        // Only the kernel knows whether the file ends here.
        _ if offset >= found.size => Err(Errno::AGAIN),
        Seek::Data => Ok(offset),
        Seek::Hole => Ok(found.size),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_behind_a_new_hole_is_no_answer() {
        // A block of zeros followed the hole that was written back, and is a hole now.
        let (from, to) = (0, Some(128 << 10));
        let found = |at| Found { at: Some(at), hole: Some(Hole { from, to: Some(at) }), size: 1 << 20 };
        assert!(is_in(Hole { from, to }, &found(128 << 10), Seek::Data));
        assert!(!is_in(Hole { from, to }, &found(512 << 10), Seek::Data));
        assert!(is_in(Hole { from, to: None }, &found(512 << 10), Seek::Data));
        // A hole before the range is not covered either.
        assert!(!is_in(Hole { from: 128 << 10, to: None }, &found(0), Seek::Hole));
    }
}
