//! The blocks of an object and the ranges that they cover.

use dmu::{DmuError, Object};
use format::dnode::{SLOT_SIZE, SLOTS_PER_BLOCK};
use format::{BlockPtr, BpKind, Level, ObjectId, Txg};
use std::collections::BTreeMap;
use zio::ZioError;

/// A range of an object without holes, in bytes. In the object of dnodes, a range in which dnodes are in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// Offset of the first byte.
    pub start: u64,
    /// Offset after the last byte.
    pub end: u64,
}

/// The ranges of `object` that are not holes, in order.
///
/// # Errors
/// An indirect block cannot be read.
pub fn segments(object: &Object) -> Result<Vec<Segment>, DmuError> {
    if object.id() == ObjectId(0) {
        return dnode_segments(object);
    }
    let size = object.block_size();
    if !size.is_power_of_two() {
        // Such an object has one block, which counts as data even if it is a hole.
        return Ok(vec![Segment { start: 0, end: size }]);
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

/// The dnodes of one block: first slot and number of slots of each, ascending.
type Slots = Vec<(usize, usize)>;

/// The ranges with dnodes in use, as OpenZFS's zdb determines them: it searches for the next block that is not full
/// by its count of dnodes, and stops if that block, filled with large dnodes, has no free slot.
fn dnode_segments(object: &Object) -> Result<Vec<Segment>, DmuError> {
    let mut blocks: BTreeMap<u64, Slots> = BTreeMap::new();
    let mut next = ObjectId(1);
    while let Some(found) = object.objset().next_object(next)? {
        let (id, slots) = (found.id().0, found.dnode().slots());
        let per_block = SLOTS_PER_BLOCK as u64;
        blocks.entry(id / per_block).or_default().push(((id % per_block) as usize, slots));
        next = ObjectId(id + slots as u64);
    }
    let at = |block: u64, slot: usize| (block * SLOTS_PER_BLOCK as u64 + slot as u64) * SLOT_SIZE as u64;
    let mut segments = Vec::new();
    let mut from = (0, 0);
    while let Some((block, slot)) = next_used(&blocks, from) {
        let start = at(block, slot);
        match next_free(&blocks, (block, slot)) {
            Ok(free) => {
                segments.push(Segment { start, end: at(free.0, free.1) });
                from = free;
            }
            Err(block) => {
                segments.push(Segment { start, end: at(block + 1, 0) });
                break;
            }
        }
    }
    Ok(segments)
}

fn next_used(blocks: &BTreeMap<u64, Slots>, from: (u64, usize)) -> Option<(u64, usize)> {
    blocks.range(from.0..).find_map(|(block, slots)| {
        let first = if *block == from.0 { from.1 } else { 0 };
        slots.iter().find(|(slot, _)| *slot >= first).map(|(slot, _)| (*block, *slot))
    })
}

/// The next free slot; as an error, the block in which the search ends without one.
fn next_free(blocks: &BTreeMap<u64, Slots>, from: (u64, usize)) -> Result<(u64, usize), u64> {
    let free_in = |block: u64, first: usize| {
        let mut at = first;
        while let Some((_, slots)) =
            blocks.get(&block).and_then(|all| all.iter().find(|(slot, slots)| *slot == at && *slots > 0))
        {
            at += slots;
        }
        (at < SLOTS_PER_BLOCK).then_some(at)
    };
    if let Some(slot) = free_in(from.0, from.1) {
        return Ok((from.0, slot));
    }
    let is_full = |block: &u64| blocks.get(block).is_some_and(|slots| slots.len() == SLOTS_PER_BLOCK);
    let block = (from.0 + 1..).find(|block| !is_full(block)).unwrap_or(u64::MAX);
    free_in(block, 0).map(|slot| (block, slot)).ok_or(block)
}

/// Calls `visit` with level, block number and pointer of each block of `object`, and of each hole with a birth txg,
/// parents first. The spill block is not included. Returns the errors of blocks that could not be read.
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
    /// `level` decreases with every call, so the depth of recursion is bounded by the height of the object's tree.
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
