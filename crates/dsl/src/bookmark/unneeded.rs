//! What redaction leaves out: the blocks of a snapshot that none of the redaction snapshots has
//! (docs/on-disk/30-send-streams.md, section 10).
//!
//! The trees of the snapshot and of the redaction snapshots are compared from their roots. A pointer that one of the
//! redaction snapshots shares ends the descent: everything below is needed there. So the work depends on what has
//! changed, not on the size of the snapshot.
//!
//! # What always holds
//! - Only blocks of plain files and volumes are listed. The rest of a stream tells which files there are.
//! - The ranges are in the order of objects and blocks, and neighbours are joined.
//! - A tree that repeats itself ends the comparison with an error ([`LoopGuard`]).

use super::RedactedRange;
use crate::error::{BookmarkError, DslError};
use dmu::{DmuError, LoopGuard, ObjSet, Object};
use format::dnode::SLOT_SIZE;
use format::{BlockId, BlockPtr, Level, ObjType, ObjectId};
use std::ops::Range;
use std::sync::Arc;

/// Most ranges of a list: 128 MiB on disk.
const RANGES_MAX: usize = 4 << 20;

/// The blocks of a snapshot with the contents `source` that none of the redaction snapshots, with the contents `by`, has.
///
/// # Errors
/// [`BookmarkError::TooManyRanges`], or a block with pointers or dnodes cannot be read.
pub fn unneeded(source: &Arc<ObjSet>, by: &[Arc<ObjSet>]) -> Result<Vec<RedactedRange>, DslError> {
    let metas: Vec<Object> = by.iter().map(ObjSet::meta_object).collect();
    let mut guard = LoopGuard::new(source.store());
    let mut changed = Vec::new();
    let meta = source.meta_object();
    compare(&meta, &metas, &mut guard, &mut |blocks| {
        changed.push(blocks);
        Ok(())
    })?;
    let mut found = Vec::new();
    let per_block = (meta.block_size() / SLOT_SIZE as u64).max(1);
    for blocks in changed {
        let mut next = ObjectId(blocks.start.saturating_mul(per_block).max(1));
        while let Some(object) = source.next_object(next)? {
            if object.id().0 >= blocks.end.saturating_mul(per_block) {
                break;
            }
            next = ObjectId(object.id().0 + 1);
            if matches!(object.dnode().obj_type, ObjType::PLAIN_FILE | ObjType::ZVOL) {
                of_object(&object, by, &mut guard, &mut found)?;
            }
        }
    }
    Ok(found)
}

/// Adds the blocks of an object that no redaction snapshot has.
fn of_object(
    object: &Object,
    by: &[Arc<ObjSet>],
    guard: &mut LoopGuard,
    found: &mut Vec<RedactedRange>,
) -> Result<(), DslError> {
    // One that is gone, or that is cut into other blocks, has none of these blocks.
    let mut same = Vec::new();
    for set in by {
        match set.object(object.id()) {
            Ok(there) if has_shape_of(&there, object) => same.push(there),
            Ok(_) | Err(DmuError::NoObject { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    compare(object, &same, guard, &mut |blocks| add(found, object.id(), &blocks))
}

fn has_shape_of(object: &Object, other: &Object) -> bool {
    let shape = |object: &Object| {
        let dnode = object.dnode();
        (dnode.obj_type, dnode.data_block_size(), dnode.indblkshift)
    };
    shape(object) == shape(other)
}

fn add(found: &mut Vec<RedactedRange>, object: ObjectId, blocks: &Range<u64>) -> Result<(), DslError> {
    let count = blocks.end - blocks.start;
    if let Some(last) = found.last_mut().filter(|last| last.object == object && last.end() == blocks.start) {
        last.blocks += count;
        return Ok(());
    }
    if found.len() == RANGES_MAX {
        return Err(BookmarkError::TooManyRanges { limit: RANGES_MAX }.into());
    }
    found.push(RedactedRange { object, first: BlockId(blocks.start), blocks: count });
    Ok(())
}

/// Passes the blocks of an object that none of the `others` has, in order.
fn compare(
    object: &Object,
    others: &[Object],
    guard: &mut LoopGuard,
    tell: &mut dyn FnMut(Range<u64>) -> Result<(), DslError>,
) -> Result<(), DslError> {
    let dnode = object.dnode();
    let top = Level(dnode.nlevels.saturating_sub(1));
    for (bp, blkid) in dnode.blkptrs.iter().zip(0..) {
        Comparison { object, others, guard: &mut *guard, tell: &mut *tell }.pointer(top, blkid, bp)?;
    }
    Ok(())
}

struct Comparison<'a> {
    object: &'a Object,
    others: &'a [Object],
    guard: &'a mut LoopGuard,
    tell: &'a mut dyn FnMut(Range<u64>) -> Result<(), DslError>,
}

impl Comparison<'_> {
    fn pointer(&mut self, level: Level, blkid: u64, bp: &BlockPtr) -> Result<(), DslError> {
        let dnode = self.object.dnode();
        let shift = dnode.epbs().saturating_mul(u32::from(level.0));
        let span = 1_u64.checked_shl(shift).unwrap_or(u64::MAX);
        let Some(first) = blkid.checked_mul(span).filter(|first| *first <= dnode.maxblkid.0) else {
            return Ok(());
        };
        if bp.is_hole() {
            return Ok(());
        }
        let mut may_share = false;
        for other in self.others {
            let there = pointer_of(other, level, blkid)?;
            if there.as_ref() == Some(bp) {
                return Ok(());
            }
            may_share |= there.is_none_or(|there| !there.is_hole());
        }
        let end = first.saturating_add(span).min(dnode.maxblkid.0.saturating_add(1));
        if level == Level(0) || !may_share {
            return (self.tell)(first..end);
        }
        if !self.guard.take(bp, self.object.id().0, level.0, blkid) {
            return Err(self.object.corrupt("its tree repeats itself").into());
        }
        let below = Level(level.0 - 1);
        let children = 1_u64.checked_shl(dnode.epbs()).unwrap_or(1);
        for child in (0..children).map(|index| blkid.saturating_mul(children).saturating_add(index)) {
            let pointer = self.object.block_ptr(below, BlockId(child))?;
            self.pointer(below, child, &pointer)?;
        }
        Ok(())
    }
}

/// The pointer at this place of another state of the object, a hole if it has none; `None`: its tree is lower, and what is
/// below must be looked at.
fn pointer_of(other: &Object, level: Level, blkid: u64) -> Result<Option<BlockPtr>, DslError> {
    if level.0 >= other.dnode().nlevels {
        return Ok(None);
    }
    Ok(Some(other.block_ptr(level, BlockId(blkid))?))
}
