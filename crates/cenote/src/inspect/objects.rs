//! The blocks of one object, and the ranges that they cover.

use dmu::{DmuError, Object};
use format::dnode::SLOT_SIZE;
use format::{BlockPtr, BpKind, Level, ObjectId, Txg};
use zio::ZioError;

/// A range of an object that is made of blocks, not of holes. Bytes; of the object of dnodes, where
/// dnodes are in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// First byte.
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
}

/// The ranges of `object` that are not holes, in order.
pub fn segments(object: &Object) -> Result<Vec<Segment>, DmuError> {
    if object.id() == ObjectId(0) {
        return dnode_segments(object);
    }
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(start) = object.next_data(at)? {
        let end = object.next_hole(start)?;
        if end <= start {
            break;
        }
        found.push(Segment { start, end });
        at = end;
    }
    Ok(found)
}

fn dnode_segments(object: &Object) -> Result<Vec<Segment>, DmuError> {
    let mut found: Vec<Segment> = Vec::new();
    let mut next = ObjectId(1);
    while let Some(dnode) = object.objset().next_object(next)? {
        let start = dnode.id().0 * SLOT_SIZE as u64;
        next = ObjectId(dnode.id().0 + dnode.dnode().slots() as u64);
        let end = next.0 * SLOT_SIZE as u64;
        match found.last_mut() {
            Some(last) if last.end == start => last.end = end,
            _ => found.push(Segment { start, end }),
        }
    }
    Ok(found)
}

/// Calls `visit` with level, number and pointer of each block of `object`, and of each hole that
/// replaced a block, parents first. Returns what could not be read on the way. The spill block is not
/// among them.
pub fn each_block(object: &Object, visit: &mut dyn FnMut(u8, u64, &BlockPtr)) -> Vec<DmuError> {
    let dnode = object.dnode();
    let mut each = Each { object, visit, unreadable: Vec::new() };
    for (blkid, bp) in dnode.blkptrs.iter().enumerate() {
        each.pointer(dnode.nlevels.saturating_sub(1), blkid as u64, bp);
    }
    each.unreadable
}

struct Each<'a> {
    object: &'a Object,
    visit: &'a mut dyn FnMut(u8, u64, &BlockPtr),
    unreadable: Vec<DmuError>,
}

impl Each<'_> {
    /// `level` falls with every call, so that the depth is that of the object at most.
    fn pointer(&mut self, level: u8, blkid: u64, bp: &BlockPtr) {
        if bp.logical_birth() == Txg(0) {
            return;
        }
        (self.visit)(level, blkid, bp);
        if level == 0 || matches!(bp.kind(), BpKind::Hole | BpKind::Redacted) {
            return;
        }
        let object = self.object;
        let (objset, id) = (object.objset().number(), object.id());
        if bp.level() != Level(level) || bp.lsize().0 != object.dnode().indirect_size() {
            self.unreadable.push(object.corrupt("a block pointer that does not fit its place"));
            return;
        }
        let block = match object.objset().store().read(bp, object.objset().key().key()) {
            Ok(block) => block,
            Err(ZioError::Locked { .. }) => return self.unreadable.push(DmuError::Locked { objset }),
            Err(source) => return self.unreadable.push(DmuError::Zio { objset, object: id, source }),
        };
        let Some(first) = blkid.checked_shl(object.dnode().epbs()) else { return };
        for (i, child) in BlockPtr::decode_all(block.bytes(), block.order()).enumerate() {
            self.pointer(level - 1, first.saturating_add(i as u64), &child);
        }
    }
}
