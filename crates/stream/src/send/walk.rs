//! The walk over an object set: the blocks that are newer than the start of the increment, in the order of objects and
//! offsets, with holes and free slots.
//!
//! A subtree whose pointer is not newer is skipped, unless a redaction list has blocks in it, and so is a hole. One
//! without a birth is told: pools without the feature `hole_birth` have no others.

use super::emit::Emitter;
use super::plan::Plan;
use super::ranges::Ranges;
use super::{SendError, Sink};
use dmu::{DmuError, LoopGuard};
use format::dnode::{Dnode, SLOT_SIZE};
use format::{BlockId, BlockPtr, BpKind, Level, ObjectId, Txg};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

/// Blocks of dnodes that are read ahead of the walk.
const DNODES_AHEAD: usize = 128;
/// Indirect blocks that are read ahead of it: each leads to many blocks.
const INDIRECT_AHEAD: usize = 2;
/// Blocks that are read ahead in one request.
const AHEAD_TOGETHER: usize = 8;

/// Number of the object whose blocks have the dnodes.
const META: ObjectId = ObjectId(0);

/// Passes the records of all objects to `sink`.
///
/// # Errors
/// [`SendError`]: a block with pointers or dnodes cannot be read, or what the sink returns.
pub(super) fn walk(plan: &Plan, sink: &mut dyn Sink) -> Result<(), SendError> {
    let meta = Arc::new(plan.set.phys().meta_dnode.clone());
    let mut walk = Walk {
        plan,
        emitter: Emitter::new(plan, sink)?,
        guard: LoopGuard::new(plan.set.store()),
        missing: Ranges::open(&plan.dsl, plan.missing.as_ref())?,
    };
    walk.tree(META, &meta)?;
    walk.emitter.finish()
}

struct Walk<'a> {
    plan: &'a Plan,
    emitter: Emitter<'a>,
    guard: LoopGuard,
    /// Blocks that are sent although they are not newer.
    missing: Ranges,
}

/// A pointer of a tree, with its place.
struct Place {
    level: Level,
    /// Number of its block at its level.
    blkid: u64,
    /// Data blocks below it.
    blocks: Range<u64>,
}

impl Place {
    fn new(dnode: &Dnode, level: Level, blkid: u64) -> Option<Place> {
        let shift = dnode.epbs().saturating_mul(u32::from(level.0));
        // A pointer far up a tall tree covers more blocks than there are numbers.
        let span = 1u64.checked_shl(shift).unwrap_or(u64::MAX);
        let first = blkid.checked_mul(span)?;
        Some(Place { level, blkid, blocks: first..first.saturating_add(span) })
    }
}

/// The blocks below an indirect block that are read before the walk reaches them.
#[derive(Default)]
struct Ahead {
    /// Their numbers and pointers; those that the walk has passed are taken out.
    blocks: VecDeque<(u64, BlockPtr)>,
    /// How many of them are read ahead.
    depth: usize,
    /// How many of them, from the first on, are read already, or will be.
    asked: usize,
}

impl Ahead {
    /// The walk has reached the block of this number. Returns the requests that are due, each for some blocks.
    fn reach(&mut self, number: u64) -> Vec<Vec<BlockPtr>> {
        while self.blocks.pop_front_if(|(first, _)| *first < number).is_some() {
            self.asked = self.asked.saturating_sub(1);
        }
        let end = self.depth.min(self.blocks.len());
        // Few requests of several blocks are better than many of one.
        let least = if end == self.blocks.len() { 1 } else { AHEAD_TOGETHER };
        let mut due = Vec::new();
        while end.saturating_sub(self.asked) >= least {
            let next = self.asked.saturating_add(AHEAD_TOGETHER).min(end);
            due.push(self.blocks.range(self.asked..next).map(|(_, bp)| *bp).collect());
            self.asked = next;
        }
        due
    }
}

impl Walk<'_> {
    fn tree(&mut self, id: ObjectId, dnode: &Arc<Dnode>) -> Result<(), SendError> {
        let top = Level(dnode.nlevels.saturating_sub(1));
        dnode.blkptrs.iter().zip(0..).try_for_each(|(bp, i)| self.pointer(id, dnode, top, i, bp))
    }

    fn pointer(
        &mut self,
        id: ObjectId,
        dnode: &Arc<Dnode>,
        level: Level,
        blkid: u64,
        bp: &BlockPtr,
    ) -> Result<(), SendError> {
        let Some(place) = Place::new(dnode, level, blkid) else { return Ok(()) };
        if self.is_received(id, dnode, &place) {
            return Ok(());
        }
        if bp.is_hole() {
            let is_told = bp.logical_birth() == Txg(0) || self.is_wanted(id, dnode, &place, bp)?;
            return if is_told { self.hole(id, dnode, &place) } else { Ok(()) };
        }
        let is_below_end = place.blocks.start <= dnode.maxblkid.0;
        if !is_below_end || !self.is_wanted(id, dnode, &place, bp)? {
            return Ok(());
        }
        match (level, id) {
            _ if bp.kind() == BpKind::Redacted => self.emitter.absent(id, dnode, &place.blocks),
            (Level(0), META) => self.dnodes(dnode, &place, bp),
            (Level(0), _) => {
                self.enter(id, &place, bp)?;
                self.emitter.data(id, dnode, BlockId(blkid), bp)
            }
            _ => self.indirect(id, dnode, &place, bp),
        }
    }

    /// Objects whose dnodes are in these blocks.
    fn objects(dnode: &Dnode, blocks: &Range<u64>) -> Range<u64> {
        let per_block = (dnode.data_block_size() / SLOT_SIZE as u64).max(1);
        blocks.start.saturating_mul(per_block)..blocks.end.saturating_mul(per_block)
    }

    /// Whether all below a pointer is before the place at which the stream starts.
    fn is_received(&self, id: ObjectId, dnode: &Dnode, place: &Place) -> bool {
        let (object, offset) = self.plan.start;
        if id == META {
            return Walk::objects(dnode, &place.blocks).end <= object.0;
        }
        id == object && place.blocks.end.saturating_mul(dnode.data_block_size()) <= offset
    }

    fn is_wanted(
        &mut self,
        id: ObjectId,
        dnode: &Dnode,
        place: &Place,
        bp: &BlockPtr,
    ) -> Result<bool, SendError> {
        if bp.logical_birth() > self.plan.from {
            return Ok(true);
        }
        match id {
            META => self.missing.has_object(&Walk::objects(dnode, &place.blocks)),
            _ => Ok(self.missing.first_in(id, &place.blocks)?.is_some()),
        }
    }

    fn hole(&mut self, id: ObjectId, dnode: &Dnode, place: &Place) -> Result<(), SendError> {
        if id == META {
            let objects = Walk::objects(dnode, &place.blocks);
            let end = Walk::objects(dnode, &(0..dnode.maxblkid.0.saturating_add(1))).end;
            return self.emitter.free_slots(objects.start..objects.end.min(end));
        }
        // Contents end with the last block; the record of that has told of the rest.
        let is_behind = place.blocks.start > dnode.maxblkid.0;
        if is_behind && !dnode.obj_type.is_metadata() {
            return Ok(());
        }
        self.emitter.hole(id, dnode, place.blocks.clone())
    }

    /// Notes a block in the guard.
    fn enter(&mut self, id: ObjectId, place: &Place, bp: &BlockPtr) -> Result<(), SendError> {
        if self.guard.take(bp, id.0, place.level.0, place.blkid) {
            return Ok(());
        }
        let (objset, object) = (self.plan.set.number(), id);
        Err(DmuError::Corrupt { objset, object, why: "its tree repeats itself" }.into())
    }

    fn indirect(
        &mut self,
        id: ObjectId,
        dnode: &Arc<Dnode>,
        place: &Place,
        bp: &BlockPtr,
    ) -> Result<(), SendError> {
        self.enter(id, place, bp)?;
        let block = self.plan.set.read_tree_block(id, dnode, bp, place.level)?;
        let count = 1u64 << dnode.epbs();
        let Some(first) = place.blkid.checked_mul(count) else { return Ok(()) };
        let below = Level(place.level.0.saturating_sub(1));
        let numbers = first..first.saturating_add(count);
        let pointers = || numbers.clone().zip(BlockPtr::decode_all(block.bytes(), block.order()));
        let is_tree = below > Level(0) || id == META;
        let mut ahead = if is_tree { self.ahead(id, dnode, below, pointers()) } else { Ahead::default() };
        let mut children = BlockPtr::decode_all(block.bytes(), block.order());
        for child in numbers.clone() {
            ahead.reach(child).into_iter().for_each(|bps| self.plan.set.read_tree_ahead(bps));
            let bp = children.next().unwrap_or(BlockPtr::HOLE);
            self.pointer(id, dnode, below, child, &bp)?;
        }
        Ok(())
    }

    /// The blocks below a pointer that the walk will read because they are newer.
    fn ahead(
        &self,
        id: ObjectId,
        dnode: &Dnode,
        level: Level,
        children: impl Iterator<Item = (u64, BlockPtr)>,
    ) -> Ahead {
        let is_newer = |bp: &BlockPtr| !bp.is_hole() && bp.logical_birth() > self.plan.from;
        let is_next = |(child, bp): &(u64, BlockPtr)| {
            let place = Place::new(dnode, level, *child);
            is_newer(bp) && place.is_some_and(|place| !self.is_received(id, dnode, &place))
        };
        let depth = if level > Level(0) { INDIRECT_AHEAD } else { DNODES_AHEAD };
        Ahead { blocks: children.filter(is_next).collect(), depth, asked: 0 }
    }

    /// A block of dnodes: each object with its blocks, and each free slot.
    fn dnodes(&mut self, meta: &Arc<Dnode>, place: &Place, bp: &BlockPtr) -> Result<(), SendError> {
        self.enter(META, place, bp)?;
        let block = self.plan.set.read_tree_block(META, meta, bp, Level(0))?;
        let objects = Walk::objects(meta, &place.blocks);
        self.emitter.dnode_block(ObjectId(objects.start), objects.end - objects.start, bp)?;
        let mut id = objects.start;
        while id < objects.end {
            let at = (id - objects.start) as usize * SLOT_SIZE;
            let bytes = block.bytes().get(at..).unwrap_or_default();
            let next = id.saturating_add(Dnode::slots_at(bytes) as u64);
            if id >= self.plan.start.0.0 && id != META.0 {
                self.slot(ObjectId(id), bytes, block.order())?;
            }
            id = next;
        }
        Ok(())
    }

    fn slot(&mut self, id: ObjectId, bytes: &[u8], order: format::Endian) -> Result<(), SendError> {
        let objset = self.plan.set.number();
        let decoded = Dnode::decode(bytes, order);
        match decoded.map_err(|source| DmuError::Decode { objset, object: id, source })? {
            None => self.emitter.free_slots(id.0..id.0.saturating_add(1)),
            Some(dnode) => self.object(id, &Arc::new(dnode)),
        }
    }

    fn object(&mut self, id: ObjectId, dnode: &Arc<Dnode>) -> Result<(), SendError> {
        self.emitter.object(id, dnode)?;
        self.tree(id, dnode)?;
        match dnode.spill.filter(|bp| !bp.is_hole()) {
            Some(bp) if bp.logical_birth() > self.plan.from => self.emitter.spill(id, dnode, &bp),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_block_is_read_ahead_once_and_not_too_early() {
        for count in [0, 1, 7, 8, 9, 200, 1000] {
            // Every third block is one that the walk reads.
            let blocks = (0..count).map(|i| (3 * i + 1, BlockPtr::HOLE)).collect();
            let mut ahead = Ahead { blocks, depth: DNODES_AHEAD, asked: 0 };
            let mut asked = 0;
            for number in 0..3 * count + 2 {
                let due = ahead.reach(number);
                asked += due.iter().map(Vec::len).sum::<usize>() as u64;
                let passed = number.saturating_sub(1).div_ceil(3).min(count);
                assert!(asked <= passed + DNODES_AHEAD as u64, "{asked} of {count} at {number}");
                // The block of this number, if the walk reads it, is among them.
                assert!(number % 3 != 1 || number / 3 >= count || asked > number / 3, "{asked} at {number}");
            }
            assert_eq!(asked, count);
        }
    }
}
