//! The queue of destroyed datasets whose blocks are freed in the background (docs/on-disk/15-space.md,
//! section 6.4; docs/on-disk/22-mos-dsl.md, section 5).
//!
//! The object is a queue of pointers to object sets. The first one is traversed, children before parents, and
//! each block newer than the entry's birth is freed, until the txg's budget is spent. The position where the
//! traversal stopped is stored in the entry.
//!
//! # What always holds
//! - A traversal stops only before a data block, so that no block is below the stored position, and every
//!   block before it in traversal order is free: all data blocks before it, and all blocks above them whose
//!   last child was before it.
//! - The blocks above the stored position have not been freed: the next round can read them.
//!
//! # Order
//! Of an object set: objects by number, for each its blocks and then the dnode blocks that are complete with
//! it; accounting objects; the root block.

pub(crate) mod walk;

use crate::block_space::Space;
use crate::bptree::walk::{Position, Walk};
use crate::budget::Budget;
use crate::error::DslError;
use crate::freeing::Round;
use crate::mos_tx::MosTx;
use dmu::{LiveObject, NewObject};
use format::dsl::{BPTREE_ENTRY_SIZE, BptreeEntry, BptreePhys};
use format::names;
use format::{BlockPtr, Endian, ObjType, ObjectId, Txg};

/// Feature that is active while the queue exists; its count is 1 then.
const FEATURE: &str = "async_destroy";
/// Bytes of a block of entries.
const BLOCK_SIZE: u64 = 128 << 10;
const ITEM: u64 = BPTREE_ENTRY_SIZE as u64;

/// Whether the pool may destroy datasets in the background.
pub(crate) fn is_usable(m: MosTx<'_>) -> bool {
    m.features.is_enabled(FEATURE)
}

pub(crate) fn is_pending(m: MosTx<'_>) -> Result<bool, DslError> {
    Ok(m.features.is_active(FEATURE) && m.entry(names::directory::BPTREE_OBJ)?.is_some())
}

fn open(m: MosTx<'_>, id: ObjectId) -> Result<(LiveObject, BptreePhys), DslError> {
    let object = m.object_with_bonus(id, ObjType::U64_METADATA, "list of destroyed datasets")?;
    let order = object.read().order();
    let phys = object.with_bonus(|bonus| BptreePhys::decode(bonus, order)).map_err(DslError::decode(id))?;
    Ok((object, phys))
}

fn store(m: MosTx<'_>, object: &LiveObject, phys: &BptreePhys) {
    object.set_bonus(&phys.encode(Endian::Little), m.tx);
}

/// Appends a destroyed object set to the queue.
pub(crate) fn add(m: MosTx<'_>, bp: &BlockPtr, birth: Txg, space: Space) -> Result<(), DslError> {
    let id = match m.entry(names::directory::BPTREE_OBJ)? {
        Some(id) => id,
        None => {
            let empty = BptreePhys::default().encode(Endian::Little);
            let new = NewObject::of(ObjType::U64_METADATA)
                .with_bonus(ObjType::U64_METADATA, empty)
                .with_block_size(BLOCK_SIZE);
            let id = m.allocate(&new)?.id();
            m.set_entry(names::directory::BPTREE_OBJ, id.0)?;
            m.features.incr(m, FEATURE)?;
            id
        }
    };
    let (object, mut phys) = open(m, id)?;
    let entry = BptreeEntry { bp: *bp, birth, bookmark: [0; 4] };
    m.write_words(&object, phys.end * ITEM, &entry.encode(Endian::Little))?;
    phys.end += 1;
    phys.bytes = phys.bytes.saturating_add(space.used);
    phys.comp = phys.comp.saturating_add(space.compressed);
    phys.uncomp = phys.uncomp.saturating_add(space.uncompressed);
    store(m, &object, &phys);
    Ok(())
}

/// Frees blocks within the budget.
pub(crate) fn work(m: MosTx<'_>, budget: &mut Budget, round: &mut Round<'_>) -> Result<(), DslError> {
    let Some(id) = m.entry(names::directory::BPTREE_OBJ)? else { return Ok(()) };
    let (object, mut phys) = open(m, id)?;
    let room = (object.max_block().0 + 1) * object.block_size() / ITEM;
    if phys.end > room {
        let (found, expected) = (phys.end, room);
        return Err(DslError::Mismatch { what: "destroyed datasets", object: id, found, expected });
    }
    while phys.begin < phys.end && !budget.is_spent() {
        let before = round.freed.space;
        let is_done = work_entry(m, &object, phys.begin, budget, round)?;
        let here = round.freed.space.minus(before);
        phys.bytes = phys.bytes.saturating_sub(here.used);
        phys.comp = phys.comp.saturating_sub(here.compressed);
        phys.uncomp = phys.uncomp.saturating_sub(here.uncompressed);
        if !is_done {
            break;
        }
        object.free_range(phys.begin * ITEM, ITEM, m.tx)?;
        phys.begin += 1;
    }
    if phys.begin < phys.end {
        store(m, &object, &phys);
        return Ok(());
    }
    // The remaining charge is of blocks that could not be read: they no longer wait.
    let lost = Space { used: phys.bytes, compressed: phys.comp, uncompressed: phys.uncomp };
    round.freed.space = round.freed.space.plus(lost);
    m.remove_entry(names::directory::BPTREE_OBJ)?;
    m.free(id)?;
    m.features.decr(m, FEATURE)
}

/// Frees blocks of an entry. Returns true when all of them are free.
fn work_entry(
    m: MosTx<'_>,
    object: &LiveObject,
    index: u64,
    budget: &mut Budget,
    round: &mut Round<'_>,
) -> Result<bool, DslError> {
    let at = index * ITEM;
    let mut raw = [0; BPTREE_ENTRY_SIZE];
    object.read().read_numbers(at, 8, &mut raw)?;
    let entry = BptreeEntry::decode(&raw, Endian::Little).map_err(DslError::decode(object.id()))?;
    if entry.birth == Txg(u64::MAX) || entry.bp.is_hole() {
        return Ok(true);
    }
    let from = Position::of_bookmark(&entry.bookmark);
    let mut walk = Walk::new(m.mos.store(), entry.birth, from, budget);
    let stopped = walk.run(&entry.bp, &mut |bp| round.free_found(bp))?;
    round.freed.refused += walk.unreadable();
    let Some(stopped) = stopped else { return Ok(true) };
    let entry = BptreeEntry { bookmark: stopped.bookmark(), ..entry };
    m.write_words(object, at, &entry.encode(Endian::Little))?;
    Ok(false)
}
