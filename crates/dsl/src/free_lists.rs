//! Lists of blocks that are freed in the background, a bounded number in each txg: destroyed object sets,
//! `free_bpobj`, livelists of destroyed clones (docs/on-disk/15-space.md, sections 6.1, 6.3 and 6.4;
//! docs/on-disk/22-mos-dsl.md, sections 4.1 and 5).
//!
//! # What always holds
//! - In the background, a block that the allocator refuses is reported and skipped: one bad pointer in a list
//!   must not keep the pool from being written.
//!
//! # Order
//! Once per txg, after the heads were written: destroyed datasets, then `free_bpobj`, then destroyed clones.

use crate::block_space::Space;
use crate::bpobj::Bpobj;
use crate::brt::Brt;
pub use crate::budget::{Budget, set_blocks_per_txg};
use crate::error::DslError;
pub use crate::freeing::Freed;
use crate::freeing::{Freer, Round};
use crate::mos_tx::MosTx;
use crate::{bptree, livelist};
use dmu::log::Unclaim;
use format::names;
use format::{BlockPtr, ObjType, ObjectId, Txg};

/// Queues the blocks of a destroyed object set that were born after `birth` for background freeing. Their
/// charge is `space`; the caller moves it from the directory to `$FREE`.
pub(crate) fn add_destroyed(m: MosTx<'_>, bp: &BlockPtr, birth: Txg, space: Space) -> Result<(), DslError> {
    bptree::add(m, bp, birth, space)
}

/// Queues the blocks of a destroyed clone, as listed in its livelist, for background freeing. The caller
/// moves the livelist's charge from the clone's directory to `$FREE`.
pub(crate) fn add_deleted_clone(m: MosTx<'_>, livelist: ObjectId) -> Result<(), DslError> {
    let set = m.entry(names::directory::DELETED_CLONES)?;
    let id = m.set_insert(set, ObjType::ZAP_METADATA, livelist.0)?;
    if set.is_none() {
        m.set_entry(names::directory::DELETED_CLONES, id.0)?;
    }
    Ok(())
}

/// Whether blocks wait for background freeing.
///
/// # Errors
/// If an object of the MOS cannot be read, or is damaged.
pub fn is_pending(m: MosTx<'_>) -> Result<bool, DslError> {
    if bptree::is_pending(m)? || m.entry(names::directory::DELETED_CLONES)?.is_some() {
        return Ok(true);
    }
    match m.entry(names::directory::FREE_BPOBJ)? {
        Some(id) => {
            let list = Bpobj::open(&m.view(), id)?;
            Ok(list.phys().num_blkptrs > 0 || list.phys().num_subobjs > 0)
        }
        None => Ok(false),
    }
}

/// Frees blocks within `budget`, and takes their charge off `$FREE`. The object sets of this txg must be
/// written; first drops the references to cloned blocks that none of them uses.
///
/// # Errors
/// If an object of the MOS cannot be read or changed: the txg must not end then.
pub fn background(m: MosTx<'_>, brt: &Brt, budget: &mut Budget) -> Result<Freed, DslError> {
    brt.settle(m)?;
    let mut freer = Freer::new();
    for (bp, how) in brt.take_dropped(m.txg()) {
        match how {
            // A bad pointer in a log of another system is no reason to stop the pool.
            Unclaim::Pointer => freer.wait(m, &bp),
            Unclaim::CountOnly => _ = brt.release(m, &bp)?,
        }
    }
    freer.flush(m)?;
    let mut round = Round::new(m, brt);
    bptree::work(m, budget, &mut round)?;
    drain_free_bpobj(m, budget, &mut round)?;
    drain_clones(m, budget, &mut round)?;
    round.finish()
}

fn drain_free_bpobj(m: MosTx<'_>, budget: &mut Budget, round: &mut Round<'_>) -> Result<(), DslError> {
    let Some(id) = m.entry(names::directory::FREE_BPOBJ)? else { return Ok(()) };
    if budget.is_spent() {
        return Ok(());
    }
    Bpobj::consume(m, id, budget, &mut |entry, space| round.free(&entry.bp, space))?;
    Ok(())
}

fn drain_clones(m: MosTx<'_>, budget: &mut Budget, round: &mut Round<'_>) -> Result<(), DslError> {
    let Some(set) = m.entry(names::directory::DELETED_CLONES)? else { return Ok(()) };
    for member in crate::mos::int_set(&m.view(), set)? {
        if budget.is_spent() {
            return Ok(());
        }
        if livelist::drain(m, member, budget, round)? {
            m.set_remove(set, member.0)?;
        }
    }
    if m.zap(set)?.count()? == 0 {
        m.remove_entry(names::directory::DELETED_CLONES)?;
        m.free(set)?;
    }
    Ok(())
}
