//! Traversal of the blocks of a destroyed object set, children before parents, in pieces. It can stop before
//! any data block and resume there later, when all earlier blocks have been freed and must not be read.
//!
//! # What always holds
//! - A block is visited after all blocks below it, so that the blocks needed to resume have not been freed.
//! - A block is skipped with all blocks below it if it is not newer than the given txg, or if it is before
//!   the position to resume from.
//! - Memory is bounded by a block per level. A hostile tree that references a block repeatedly costs time
//!   only: the allocator refuses the second free.

use crate::budget::Budget;
use crate::error::DslError;
use dmu::Store;
use format::dnode::{Dnode, SLOT_SIZE};
use format::objset::ObjsetPhys;
use format::{BlockPtr, Level, ObjType, ObjectId, Txg};
use std::sync::Arc;

/// First word of a stored position.
const STORED: u64 = u64::MAX;

/// A position in the traversal: all blocks before it have been freed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Position {
    object: u64,
    level: u8,
    blkid: u64,
}

impl Position {
    /// Decodes the position in an entry of the queue; `None`: from the start.
    pub(crate) fn of_bookmark(words: &[u64; 4]) -> Option<Position> {
        let [_, object, level, blkid] = *words;
        // Levels are signed there; the root of the object set has -1.
        let level = u8::try_from(level).ok()?;
        (*words != [0; 4]).then_some(Position { object, level, blkid })
    }

    pub(crate) fn bookmark(&self) -> [u64; 4] {
        [STORED, self.object, u64::from(self.level), self.blkid]
    }
}

/// The end of a subtree: its object, and the first data block after all blocks below.
#[derive(Debug, Clone, Copy)]
struct SubtreeEnd {
    end: u64,
    level: u8,
}

fn end_of(blkid: u64, level: u8, epbs: u32) -> u64 {
    let shift = epbs * u32::from(level);
    let next = blkid.saturating_add(1);
    match next.checked_shl(shift) {
        Some(end) if end >> shift == next => end,
        _ => u64::MAX,
    }
}

/// Callback for each block to be freed.
pub(crate) type Visit<'a> = dyn FnMut(&BlockPtr) -> Result<(), DslError> + 'a;

enum Stop {
    /// The budget is spent; the traversal resumes here.
    At(Position),
    Failed(DslError),
}

impl From<DslError> for Stop {
    fn from(error: DslError) -> Stop {
        Stop::Failed(error)
    }
}

/// A traversal of a destroyed object set.
pub(crate) struct Walk<'a> {
    store: &'a Arc<Store>,
    newer_than: Txg,
    from: Option<Position>,
    budget: &'a mut Budget,
    /// Number of dnodes in a dnode block.
    per_block: u64,
    /// log2 of the pointers in an indirect block of the dnode array.
    meta_epbs: u32,
    unreadable: u64,
}

/// The parts of a dnode that the traversal needs.
struct Tree<'d> {
    object: u64,
    dnode: &'d Dnode,
    /// Whether this is the dnode array, whose data blocks contain objects.
    is_dnodes: bool,
}

impl<'a> Walk<'a> {
    pub(crate) fn new(
        store: &'a Arc<Store>,
        newer_than: Txg,
        from: Option<Position>,
        budget: &'a mut Budget,
    ) -> Walk<'a> {
        Walk { store, newer_than, from, budget, per_block: 1, meta_epbs: 1, unreadable: 0 }
    }

    /// Number of blocks that could not be read; the blocks below them are lost.
    pub(crate) fn unreadable(&self) -> u64 {
        self.unreadable
    }

    /// Visits the blocks of the object set at `root`. Returns the position if the budget ended the traversal.
    pub(crate) fn run(
        &mut self,
        root: &BlockPtr,
        visit: &mut Visit<'_>,
    ) -> Result<Option<Position>, DslError> {
        if root.accounting_birth() <= self.newer_than {
            return Ok(None);
        }
        match self.objset(root, visit) {
            Ok(()) => Ok(None),
            Err(Stop::At(position)) => Ok(Some(position)),
            Err(Stop::Failed(error)) => Err(error),
        }
    }

    fn objset(&mut self, root: &BlockPtr, visit: &mut Visit<'_>) -> Result<(), Stop> {
        let read = self.store.read(root, None).ok();
        let phys = read.and_then(|block| ObjsetPhys::decode(block.bytes(), block.order()).ok());
        match phys {
            Some(phys) => {
                self.per_block = (phys.meta_dnode.data_block_size() / SLOT_SIZE as u64).max(1);
                self.meta_epbs = phys.meta_dnode.epbs();
                self.dnode(&Tree { object: 0, dnode: &phys.meta_dnode, is_dnodes: true }, visit)?;
                let ids = [ObjectId::USER_USED, ObjectId::GROUP_USED, ObjectId::PROJECT_USED];
                for (id, dnode) in ids.into_iter().zip(&phys.accounting) {
                    if let Some(dnode) = dnode {
                        self.dnode(&Tree { object: id.0, dnode, is_dnodes: false }, visit)?;
                    }
                }
            }
            None => self.unreadable += 1,
        }
        Ok(visit(root)?)
    }

    fn dnode(&mut self, tree: &Tree<'_>, visit: &mut Visit<'_>) -> Result<(), Stop> {
        let top = tree.dnode.nlevels.saturating_sub(1);
        for (i, bp) in tree.dnode.blkptrs.iter().enumerate() {
            self.pointer(tree, top, i as u64, bp, visit)?;
        }
        if let Some(spill) = &tree.dnode.spill
            && self.is_wanted(spill)
            && !self.is_before(tree, SubtreeEnd { end: u64::MAX, level: 0 })
        {
            visit(spill)?;
        }
        Ok(())
    }

    /// An object costs budget even if it has no blocks.
    fn may_begin(&mut self, object: u64) -> Result<(), Stop> {
        let is_new = self.from.is_none_or(|from| from.object != 0 && object > from.object);
        if is_new && !self.budget.take(1) {
            return Err(Stop::At(Position { object, level: 0, blkid: 0 }));
        }
        Ok(())
    }

    fn is_wanted(&self, bp: &BlockPtr) -> bool {
        !bp.is_hole() && bp.accounting_birth() > self.newer_than
    }

    /// Whether a block was freed before the position to resume from.
    fn is_before(&self, tree: &Tree<'_>, position: SubtreeEnd) -> bool {
        let Some(from) = self.from else { return false };
        let epbs = tree.dnode.epbs();
        match (tree.is_dnodes, from.object == 0) {
            // The objects up to `end` are below this block.
            (true, false) => position.end.saturating_mul(self.per_block) <= from.object,
            (true, true) => {
                let reached = end_of(from.blkid, from.level, epbs);
                (position.end, position.level) < (reached, from.level)
            }
            // Another implementation may store a position among the dnodes: the blocks below it are freed.
            (false, true) => tree.object / self.per_block < end_of(from.blkid, from.level, self.meta_epbs),
            (false, false) if tree.object != from.object => tree.object < from.object,
            (false, false) => {
                let reached = end_of(from.blkid, from.level, epbs);
                (position.end, position.level) < (reached, from.level)
            }
        }
    }

    fn pointer(
        &mut self,
        tree: &Tree<'_>,
        level: u8,
        blkid: u64,
        bp: &BlockPtr,
        visit: &mut Visit<'_>,
    ) -> Result<(), Stop> {
        let position = SubtreeEnd { end: end_of(blkid, level, tree.dnode.epbs()), level };
        if !self.is_wanted(bp) || self.is_before(tree, position) {
            return Ok(());
        }
        let has_children = !bp.is_embedded() && (level > 0 || tree.is_dnodes);
        if has_children {
            self.children(tree, level, blkid, bp, visit)?;
        } else if !tree.is_dnodes && tree.object < ObjectId::LIMIT && !self.budget.take(1) {
            return Err(Stop::At(Position { object: tree.object, level: 0, blkid }));
        }
        Ok(visit(bp)?)
    }

    fn children(
        &mut self,
        tree: &Tree<'_>,
        level: u8,
        blkid: u64,
        bp: &BlockPtr,
        visit: &mut Visit<'_>,
    ) -> Result<(), Stop> {
        let size = if level > 0 { tree.dnode.indirect_size() } else { tree.dnode.data_block_size() };
        let fits = bp.level() == Level(level) && bp.lsize().0 == size && bp.obj_type() == tree.dnode.obj_type;
        let read = || if level > 0 { self.store.pointers(bp, None) } else { self.store.read(bp, None) };
        let block = if fits { read().ok() } else { None };
        let Some(block) = block else {
            tracing::error!(
                object = tree.object,
                level,
                blkid,
                "a block of a destroyed dataset cannot be read"
            );
            self.unreadable += 1;
            return Ok(());
        };
        if level > 0 {
            let epbs = tree.dnode.epbs();
            for (i, child) in BlockPtr::decode_all(block.bytes(), block.order()).enumerate() {
                let Some(first) = blkid.checked_mul(1 << epbs) else { break };
                self.pointer(tree, level - 1, first.saturating_add(i as u64), &child, visit)?;
            }
            return Ok(());
        }
        let mut slot = 0;
        while slot < self.per_block {
            let at = usize::try_from(slot).unwrap_or(usize::MAX).saturating_mul(SLOT_SIZE);
            let Some(raw) = block.bytes().get(at..) else { break };
            slot += 1;
            match Dnode::decode(raw, block.order()) {
                Ok(Some(dnode)) => {
                    let object = blkid.saturating_mul(self.per_block).saturating_add(slot - 1);
                    slot += u64::from(dnode.extra_slots);
                    let is_dnodes = dnode.obj_type == ObjType::DNODE;
                    if is_dnodes {
                        // A dnode array inside an object is damage: such a tree would have no bottom.
                        self.unreadable += 1;
                        continue;
                    }
                    self.may_begin(object)?;
                    self.dnode(&Tree { object, dnode: &dnode, is_dnodes: false }, visit)?;
                }
                Ok(None) => {}
                Err(_) => self.unreadable += 1,
            }
        }
        Ok(())
    }
}
