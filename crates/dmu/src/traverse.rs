//! Traversal: visiting every block of an object set.
//!
//! The order is that of the tree: root block, dnodes, each object's blocks depth first. A subtree whose
//! pointer is not newer than `newer_than` is skipped: it belongs to an older snapshot, and every block below
//! is at least as old.
//!
//! # What always holds
//! - Memory is bounded by one block per level of the tree being visited.
//! - An unreadable block ends the visit of its subtree, not of the object set.
//! - A traversal ends, although a hostile tree may repeat itself: see [`LoopGuard`].

use crate::objset::dnode_slots::DnodeSlots;
use crate::set_blocks::TreeShape;
use crate::{DmuError, LoopGuard, ObjSet};
use format::dnode::{Dnode, SLOT_SIZE};
use format::{BlockId, BlockPtr, Level, ObjType, ObjectId, Txg};
use std::fmt;
use std::sync::Arc;
use zio::Block;

/// The place of a block in a pool, as error logs and scrubs name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Bookmark {
    /// Number of the dataset's object; 0 for the MOS.
    pub objset: u64,
    /// Number of the object; 0 for the blocks of dnodes.
    pub object: ObjectId,
    /// Level in the tree, 0 for data; -1 for the root block, -2 for intent log blocks.
    pub level: i64,
    /// Number of the block at its level; [`Bookmark::SPILL`] for the spill block.
    pub blkid: u64,
}

impl Bookmark {
    /// The block number of a spill block.
    pub const SPILL: u64 = u64::MAX - 1;
}

impl fmt::Display for Bookmark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<{}, {}, {}, {}>", self.objset, self.object, self.level, self.blkid)
    }
}

/// How a traversal continues after a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Visit the blocks below it.
    Into,
    /// Skip the blocks below it.
    Over,
    /// End the traversal.
    Stop,
}

/// Receives the blocks of a walk.
pub trait Visitor {
    /// Called for a pointer that is not a hole, before the blocks below it. `dnode` is the object that it
    /// belongs to; `None` for the root block.
    fn block(&mut self, at: &Bookmark, bp: &BlockPtr, dnode: Option<&Dnode>) -> Step;

    /// Called for a block that could not be read; the blocks below it are lost. [`Step::Stop`] ends the
    /// traversal.
    fn unreadable(&mut self, at: &Bookmark, bp: &BlockPtr, error: DmuError) -> Step;
}

/// Progress of a traversal: all earlier objects, and of this object all earlier level-0 blocks, were visited,
/// with all blocks above them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WalkPosition {
    /// Number of the object; 0: none was visited.
    pub object: ObjectId,
    /// Number of the level-0 block; [`Bookmark::SPILL`]: only the spill block is left.
    pub blkid: u64,
}

impl WalkPosition {
    /// The start of a traversal.
    pub const START: WalkPosition = WalkPosition { object: ObjectId(0), blkid: 0 };

    /// Its rank in the order of a traversal: accounting objects come last.
    fn rank(&self) -> (u64, u64) {
        (rank(self.object), self.blkid)
    }
}

impl PartialOrd for WalkPosition {
    fn partial_cmp(&self, other: &WalkPosition) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for WalkPosition {
    fn cmp(&self, other: &WalkPosition) -> std::cmp::Ordering {
        self.rank().cmp(&other.rank())
    }
}

fn rank(object: ObjectId) -> u64 {
    const LAST: u64 = ObjectId::PROJECT_USED.0;
    if object.0 >= LAST { LAST + (u64::MAX - object.0) } else { object.0 }
}

/// Callback that decides before each block, by its place, whether the traversal ends there.
pub(crate) type Until<'a> = &'a mut dyn FnMut(&WalkPosition) -> bool;

/// Visits the blocks of `objset` that are newer than `newer_than`.
pub fn walk(objset: &Arc<ObjSet>, newer_than: Txg, visitor: &mut dyn Visitor) {
    walk_from(objset, newer_than, WalkPosition::START, visitor, &mut |_| false);
}

/// Visits the blocks of `objset` from a place on, until `until` returns true. Blocks above the place may be
/// visited again. Returns the place of the first block that was not visited; `None`: all were, or the visitor
/// has ended the traversal.
pub fn walk_from(
    objset: &Arc<ObjSet>,
    newer_than: Txg,
    from: WalkPosition,
    visitor: &mut dyn Visitor,
    until: Until<'_>,
) -> Option<WalkPosition> {
    let guard = LoopGuard::new(objset.store());
    let mut walk = Walk { objset, newer_than, guard, visitor, from, until, stopped_at: None };
    let root = *objset.root();
    if root.logical_birth() <= newer_than {
        return None;
    }
    if from == WalkPosition::START {
        let at = Bookmark { objset: objset.number(), object: ObjectId(0), level: -1, blkid: 0 };
        if (walk.until)(&from) {
            return Some(from);
        }
        if walk.visitor.block(&at, &root, None) != Step::Into {
            return None;
        }
    }
    // Every `visit` below returns `Err(Stopped)` once the visitor or `until` has ended the traversal.
    let _ = walk.root_dnodes();
    walk.stopped_at
}

struct Stopped;

struct Walk<'a> {
    objset: &'a Arc<ObjSet>,
    newer_than: Txg,
    guard: LoopGuard,
    visitor: &'a mut dyn Visitor,
    from: WalkPosition,
    until: Until<'a>,
    stopped_at: Option<WalkPosition>,
}

/// Relation of a pointer to the place at which a traversal starts.
enum Part {
    /// All blocks below it are before the place.
    Before,
    /// The place is below it, and it was visited.
    Across,
    /// It starts at the place, or after it.
    From(WalkPosition),
}

impl Walk<'_> {
    fn root_dnodes(&mut self) -> Result<(), Stopped> {
        let phys = self.objset.phys();
        self.dnode(ObjectId(0), &phys.meta_dnode)?;
        for (id, dnode) in [ObjectId::USER_USED, ObjectId::GROUP_USED, ObjectId::PROJECT_USED]
            .into_iter()
            .zip(&phys.accounting)
        {
            if let Some(dnode) = dnode {
                self.dnode(id, dnode)?;
            }
        }
        Ok(())
    }

    /// The relation of a pointer to the place at which the traversal starts.
    fn part(&self, object: ObjectId, dnode: &Dnode, level: Level, blkid: u64) -> Part {
        let below = |blkid: u64| {
            let shift = dnode.epbs().saturating_mul(u32::from(level.0));
            let top = blkid.checked_shl(shift).filter(|first| first >> shift == blkid);
            top.unwrap_or(u64::MAX)
        };
        let (mut first, mut last) = (below(blkid), below(blkid.saturating_add(1)).saturating_sub(1));
        let place = if object == ObjectId(0) {
            // Compare by the objects in it.
            let per_block = (dnode.data_block_size() / SLOT_SIZE as u64).max(1);
            first = first.saturating_mul(per_block);
            last = last.saturating_mul(per_block).saturating_add(per_block - 1);
            if rank(self.from.object) > last {
                return Part::Before;
            }
            WalkPosition { object: ObjectId(first), blkid: 0 }
        } else {
            if object == self.from.object && self.from.blkid > last {
                return Part::Before;
            }
            WalkPosition { object, blkid: first }
        };
        if place < self.from { Part::Across } else { Part::From(place) }
    }

    /// Records that the traversal ends here, if it does.
    fn check_end(&mut self, place: WalkPosition) -> Result<(), Stopped> {
        if (self.until)(&place) {
            self.stopped_at = Some(place);
            return Err(Stopped);
        }
        Ok(())
    }

    fn dnode(&mut self, object: ObjectId, dnode: &Dnode) -> Result<(), Stopped> {
        if object != ObjectId(0) && rank(object) < rank(self.from.object) {
            return Ok(());
        }
        let top = Level(dnode.nlevels - 1);
        for (i, bp) in dnode.blkptrs.iter().enumerate() {
            self.pointer(object, dnode, top, i as u64, bp)?;
        }
        if let Some(bp) = &dnode.spill {
            let at = self.bookmark(object, Level(0), Bookmark::SPILL);
            if self.is_wanted(bp) {
                self.check_end(WalkPosition { object, blkid: Bookmark::SPILL })?;
                if self.visitor.block(&at, bp, Some(dnode)) == Step::Stop {
                    return Err(Stopped);
                }
            }
        }
        Ok(())
    }

    fn bookmark(&self, object: ObjectId, level: Level, blkid: u64) -> Bookmark {
        Bookmark { objset: self.objset.number(), object, level: i64::from(level.0), blkid }
    }

    fn is_wanted(&self, bp: &BlockPtr) -> bool {
        !bp.is_hole() && bp.accounting_birth() > self.newer_than
    }

    fn pointer(
        &mut self,
        object: ObjectId,
        dnode: &Dnode,
        level: Level,
        blkid: u64,
        bp: &BlockPtr,
    ) -> Result<(), Stopped> {
        if !self.is_wanted(bp) {
            return Ok(());
        }
        let part = self.part(object, dnode, level, blkid);
        if matches!(part, Part::Before) {
            return Ok(());
        }
        let at = self.bookmark(object, level, blkid);
        if !self.guard.take(bp, object.0, level.0, blkid) {
            let objset = self.objset.number();
            let why = "its tree repeats itself";
            self.visitor.unreadable(&at, bp, DmuError::Corrupt { objset, object, why });
            return Err(Stopped);
        }
        if let Part::From(place) = part {
            self.check_end(place)?;
            match self.visitor.block(&at, bp, Some(dnode)) {
                Step::Stop => return Err(Stopped),
                Step::Over => return Ok(()),
                Step::Into => {}
            }
        }
        let is_dnodes = dnode.obj_type == ObjType::DNODE && object == ObjectId(0);
        if level.0 == 0 && !is_dnodes {
            return Ok(());
        }
        match self.read(object, dnode, level, bp) {
            Ok(block) if level.0 > 0 => self.indirect(object, dnode, level, blkid, &block),
            Ok(block) => self.dnodes(BlockId(blkid), &at, bp, &block),
            Err(error) => self.unreadable(&at, bp, error),
        }
    }

    fn unreadable(&mut self, at: &Bookmark, bp: &BlockPtr, error: DmuError) -> Result<(), Stopped> {
        if self.visitor.unreadable(at, bp, error) == Step::Stop { Err(Stopped) } else { Ok(()) }
    }

    fn read(&self, object: ObjectId, dnode: &Dnode, level: Level, bp: &BlockPtr) -> Result<Block, DmuError> {
        self.objset.blocks().read(&TreeShape::of(object, dnode), bp, level)
    }

    fn indirect(
        &mut self,
        object: ObjectId,
        dnode: &Dnode,
        level: Level,
        blkid: u64,
        block: &Block,
    ) -> Result<(), Stopped> {
        let epbs = dnode.epbs();
        for (i, child) in BlockPtr::decode_all(block.bytes(), block.order()).enumerate() {
            let Some(first) = blkid.checked_mul(1 << epbs) else { break };
            self.pointer(object, dnode, Level(level.0 - 1), first.saturating_add(i as u64), &child)?;
        }
        Ok(())
    }

    fn dnodes(&mut self, blkid: BlockId, at: &Bookmark, bp: &BlockPtr, block: &Block) -> Result<(), Stopped> {
        let per_block = (block.bytes().len() / SLOT_SIZE) as u64;
        for (slot, bytes) in DnodeSlots::new(block.bytes()) {
            let id = ObjectId(blkid.0.saturating_mul(per_block).saturating_add(slot as u64));
            match Dnode::decode(bytes, block.order()) {
                Ok(Some(dnode)) => self.dnode(id, &dnode)?,
                Ok(None) => {}
                Err(source) => {
                    let error = DmuError::Decode { objset: self.objset.number(), object: id, source };
                    self.unreadable(at, bp, error)?;
                }
            }
        }
        Ok(())
    }
}
