//! The blocks of one object, and the ranges that they cover.

use dmu::traverse::{Bookmark, Step, Visitor, walk_object};
use dmu::{DmuError, Object};
use format::dnode::Dnode;
use format::{BlockPtr, Txg};

/// A range of an object that is made of blocks, not of holes. Bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// First byte.
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
}

/// The ranges of `object` that are not holes, in order.
pub fn segments(object: &Object) -> Result<Vec<Segment>, DmuError> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(start) = object.next_data(at)? {
        let end = object.next_hole(start)?;
        found.push(Segment { start, end });
        at = end;
    }
    Ok(found)
}

/// Calls `visit` with level, number and pointer of each block of `object` that is not a hole, parents
/// first. Returns what could not be read on the way.
pub fn each_block(object: &Object, visit: &mut dyn FnMut(i64, u64, &BlockPtr)) -> Vec<DmuError> {
    let mut each = Each { visit, unreadable: Vec::new() };
    walk_object(object, Txg(0), &mut each);
    each.unreadable
}

struct Each<'a> {
    visit: &'a mut dyn FnMut(i64, u64, &BlockPtr),
    unreadable: Vec<DmuError>,
}

impl Visitor for Each<'_> {
    fn block(&mut self, at: &Bookmark, bp: &BlockPtr, dnode: Option<&Dnode>) -> Step {
        (self.visit)(at.level, at.blkid, bp);
        // Level 0 of the dnodes is not descended into: those blocks are other objects' blocks.
        match dnode {
            Some(_) if at.level > 0 => Step::Into,
            _ => Step::Over,
        }
    }

    fn unreadable(&mut self, _: &Bookmark, _: &BlockPtr, error: DmuError) -> Step {
        self.unreadable.push(error);
        Step::Into
    }
}
