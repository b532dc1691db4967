//! Looking for data and holes in files that programs may have changed through their maps, which the kernel tells of later.
//!
//! # What always holds
//! - A hole is one in the kernel's pages, too: before a range is told to be a hole, those were written back. Where that takes
//!   too long, all of the file is told to be data, which is true of any file.

use super::LiveService;
use crate::errno::zpl_errno;
use crate::fuse::Answer;
use crate::fuse::dirty_pages::DirtyPages;
use crate::view::Seek;
use rustix::io::Errno;

/// What is looked for, as far as it is known here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Found {
    /// Where it is; `None`: nowhere.
    at: Option<u64>,
    /// What is known here to be a hole on the way, or behind: only the kernel knows whether it still is.
    hole: Option<Hole>,
    /// Bytes of the file.
    size: u64,
}

/// A range of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Hole {
    from: u64,
    /// `None`: to the end, wherever that is.
    to: Option<u64>,
}

impl LiveService {
    /// Looks for data or a hole in what has arrived here.
    pub(crate) fn find(&self, node: u64, offset: u64, what: Seek) -> Answer<Found> {
        let id = self.id(node);
        let fs = self.fs();
        let size = fs.attrs(id).map_err(|e| zpl_errno(&e))?.size;
        // Where the kernel keeps what is written, it knows the end.
        let end = if self.manner().writeback { None } else { Some(size) };
        let hole = |from: u64, to: Option<u64>| {
            let to = to.or(end);
            to.is_none_or(|to| from < to).then_some(Hole { from, to })
        };
        let next_data = |from| fs.next_data(id, from).map_err(|e| zpl_errno(&e));
        let next_hole = |from| fs.next_hole(id, from).map_err(|e| zpl_errno(&e));
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
}

/// The first hole from `offset` on, and the data behind it. Both are looked for one after the other: what is written in
/// between leaves no hole, and the next one is looked for.
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

/// Looks for data or a hole with the kernel's pages counted in; `find` looks at what has arrived.
pub(crate) fn seek(
    pages: &DirtyPages,
    (node, offset): (u64, u64),
    what: Seek,
    find: impl Fn() -> Answer<Found>,
) -> Answer<u64> {
    let mut found = find()?;
    let mut written_back = None;
    // What was a hole may have become data: the next one is looked at then, and after that all others at once.
    for to_the_end in [false, true] {
        let Some(hole) = found.hole else { break };
        if written_back.is_some_and(|done| is_in(done, &found, what)) {
            break;
        }
        // A block of zeros becomes a hole when it is written: one may be found before the last.
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

/// Whether the answer depends on nothing but what was written back.
fn is_in(done: Hole, found: &Found, what: Seek) -> bool {
    match (what, done.to) {
        (_, None) => found.at.is_none_or(|at| at >= done.from),
        (Seek::Data, Some(to)) => found.at.is_some_and(|at| at <= to),
        (Seek::Hole, Some(to)) => found.at.is_some_and(|at| at >= done.from && at < to),
    }
}

/// What holds of any file.
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
    fn what_is_written_between_two_looks_is_no_hole() {
        // A record is written after each look for a hole, until there are three.
        let written = std::cell::Cell::new(0);
        let look_for_hole = |_| {
            let end = written.get();
            written.set(3.min(end + 1));
            Ok(Some(end))
        };
        let look_for_data = |from| Ok(Some(from).filter(|from| *from < written.get()));
        assert_eq!(find_hole(0, look_for_hole, look_for_data), Ok((Some(3), None)));
    }

    #[test]
    fn data_behind_a_new_hole_is_no_answer() {
        // A block of zeros was the end of the hole that was written back, and is a hole now.
        let (from, to) = (0, Some(128 << 10));
        let found = |at| Found { at: Some(at), hole: Some(Hole { from, to: Some(at) }), size: 1 << 20 };
        assert!(is_in(Hole { from, to }, &found(128 << 10), Seek::Data));
        assert!(!is_in(Hole { from, to }, &found(512 << 10), Seek::Data));
        assert!(is_in(Hole { from, to: None }, &found(512 << 10), Seek::Data));
        // Nor is a hole before it.
        assert!(!is_in(Hole { from: 128 << 10, to: None }, &found(0), Seek::Hole));
    }
}
