//! Where blocks go that nobody needs any more: back to the allocator at once, or to lists that are worked
//! off in the background, a bounded part in each txg
//! (docs/on-disk/15-space.md, sections 6.1, 6.3 and 6.4; docs/on-disk/22-mos-dsl.md, sections 4.1 and 5).
//!
//! # What always holds
//! - What waits in one of the lists is charged to the hidden directory `$FREE`, and no longer when it has
//!   been freed.
//! - A block that others refer to (clones) is not freed: a reference is dropped instead.
//! - In the background, what the allocator refuses is reported and left out: one bad pointer in a list must
//!   not keep the pool from being written.
//!
//! # Order
//! Once per txg, after the heads were written: destroyed datasets, then `free_bpobj`, then destroyed clones.

use super::brt::Brt;
use super::ddt::Tables;
use super::mos_tx::MosTx;
use super::space::{self, Delta};
use super::{bpobj, bptree, livelist};
use crate::DslError;
use crate::bpobj::Space;
use dmu::log::Unclaim;
use format::bpobj::StoredBlock;
use format::{BlockPtr, BpKind, ObjType, ObjectId, Txg};
use std::sync::atomic::{AtomicU64, Ordering};

/// Entry of the object directory: blocks that wait to be freed.
const FREE_BPOBJ: &str = "free_bpobj";
/// Entry of the object directory: the set of livelists of destroyed clones.
const DELETED_CLONES: &str = "com.delphix:deleted_clones";
/// Blocks freed in the background in one txg.
static BLOCKS_PER_TXG: AtomicU64 = AtomicU64::new(100_000);

/// Changes how many blocks are freed in the background in one txg, at least one, in all pools of this process.
pub fn set_blocks_per_txg(blocks: u64) {
    BLOCKS_PER_TXG.store(blocks.max(1), Ordering::Relaxed);
}

/// How much may still be done in this txg.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// Blocks that may still be freed or looked at.
    pub blocks: u64,
}

impl Budget {
    /// What a txg may do beside its other work.
    pub fn per_txg() -> Budget {
        Budget { blocks: BLOCKS_PER_TXG.load(Ordering::Relaxed) }
    }

    /// No limit.
    pub fn unlimited() -> Budget {
        Budget { blocks: u64::MAX }
    }

    /// Nothing is left.
    pub fn is_spent(&self) -> bool {
        self.blocks == 0
    }

    /// Takes `n` blocks, or what is left. False: nothing was left.
    pub fn take(&mut self, n: u64) -> bool {
        let had = !self.is_spent();
        self.blocks = self.blocks.saturating_sub(n);
        had
    }
}

/// Frees blocks of the syncing txg, and remembers those that must wait.
#[derive(Debug, Default)]
pub struct Freer {
    waiting: Vec<StoredBlock>,
    space: Space,
}

/// Freeing it needs more than a word to the allocator: reading its gang headers, or a look into a table.
fn must_wait(brt: &Brt, bp: &BlockPtr) -> bool {
    bp.kind() == BpKind::Gang || bp.is_dedup() || brt.may_be_cloned(bp)
}

impl Freer {
    /// With nothing to do.
    pub fn new() -> Freer {
        Freer::default()
    }

    /// Frees a block, or remembers it for [`Freer::flush`]. Holes and data in pointers take no space.
    ///
    /// # Errors
    /// If the allocator refuses it.
    pub fn free(&mut self, m: MosTx<'_>, brt: &Brt, bp: &BlockPtr) -> Result<(), DslError> {
        if !matches!(bp.kind(), BpKind::Normal | BpKind::Gang) {
            return Ok(());
        }
        if !must_wait(brt, bp) {
            return Ok(m.zio().free(bp, m.tx)?);
        }
        self.wait(m, bp);
        Ok(())
    }

    /// Remembers a block for [`Freer::flush`]. Where it is freed then, a refusal concerns nobody else.
    fn wait(&mut self, m: MosTx<'_>, bp: &BlockPtr) {
        self.waiting.extend(StoredBlock::new(bp, false));
        self.space = self.space.plus(m.space_of(bp));
    }

    /// Puts what must wait on the list, and charges `$FREE`. Returns what it is charged.
    pub fn flush(&mut self, m: MosTx<'_>) -> Result<Space, DslError> {
        let (waiting, space) = (std::mem::take(&mut self.waiting), std::mem::take(&mut self.space));
        if !waiting.is_empty() {
            bpobj::append(m, free_bpobj(m)?, &waiting, space)?;
            charge(m, space, true)?;
        }
        Ok(space)
    }
}

/// The list of blocks that wait to be freed; made if there is none.
pub fn free_bpobj(m: MosTx<'_>) -> Result<ObjectId, DslError> {
    if let Some(id) = m.entry(FREE_BPOBJ)? {
        return Ok(id);
    }
    let id = bpobj::create(m, 0)?;
    m.set_entry(FREE_BPOBJ, id.0)?;
    Ok(id)
}

/// Charges `$FREE` for blocks that wait from now on (`more`), or do not wait any more.
pub fn charge(m: MosTx<'_>, space: Space, more: bool) -> Result<(), DslError> {
    if space == Space::default() {
        return Ok(());
    }
    let delta = Delta::from(space);
    space::charge_free(m, if more { delta } else { -delta })
}

/// The blocks of a destroyed object set, born after `birth`, are freed from now on in the background. They
/// are charged `space`; the caller moves that from the directory to `$FREE`.
pub fn add_destroyed(m: MosTx<'_>, bp: &BlockPtr, birth: Txg, space: Space) -> Result<(), DslError> {
    bptree::add(m, bp, birth, space)
}

/// The blocks of a destroyed clone, as its livelist has them, are freed from now on in the background. The
/// caller moves what the livelist is charged from the clone's directory to `$FREE`.
pub fn add_deleted_clone(m: MosTx<'_>, livelist: ObjectId) -> Result<(), DslError> {
    let set = m.entry(DELETED_CLONES)?;
    let id = m.set_insert(set, ObjType::ZAP_METADATA, livelist.0)?;
    if set.is_none() {
        m.set_entry(DELETED_CLONES, id.0)?;
    }
    Ok(())
}

/// What a round of background freeing has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Freed {
    /// What is no longer charged to `$FREE`.
    pub space: Space,
    /// Blocks that the allocator refused, or that could not be reached: their space is lost until the next
    /// check of the pool.
    pub refused: u64,
}

/// A round of background freeing.
pub(crate) struct Round<'a> {
    m: MosTx<'a>,
    brt: &'a Brt,
    tables: Tables,
    pub(crate) freed: Freed,
}

impl Round<'_> {
    /// Frees a block that is charged `space`, or drops a reference to it.
    pub(crate) fn free(&mut self, bp: &BlockPtr, space: Space) -> Result<(), DslError> {
        self.freed.space = self.freed.space.plus(space);
        if !matches!(bp.kind(), BpKind::Normal | BpKind::Gang) || self.brt.release(self.m, bp)? {
            return Ok(());
        }
        if bp.is_dedup() && self.tables.release(self.m, bp)? {
            return Ok(());
        }
        if let Err(error) = self.m.zio().free(bp, self.m.tx) {
            tracing::error!(%error, "a block on a list of freed blocks cannot be freed");
            self.freed.refused += 1;
        }
        Ok(())
    }

    /// Frees a block whose charge is not known yet.
    pub(crate) fn free_found(&mut self, bp: &BlockPtr) -> Result<(), DslError> {
        self.free(bp, self.m.space_of(bp))
    }
}

/// Something waits to be freed in the background.
pub fn is_pending(m: MosTx<'_>) -> Result<bool, DslError> {
    if bptree::is_pending(m)? || m.entry(DELETED_CLONES)?.is_some() {
        return Ok(true);
    }
    match m.entry(FREE_BPOBJ)? {
        Some(id) => {
            let list = crate::bpobj::Bpobj::open(&m.view(), id)?;
            Ok(list.phys().num_blkptrs > 0 || list.phys().num_subobjs > 0)
        }
        None => Ok(false),
    }
}

/// Frees as much as fits into `budget`, and takes it off `$FREE`. The object sets of this txg were written:
/// references to clones that none of them has are dropped first.
pub fn background(m: MosTx<'_>, brt: &Brt, budget: &mut Budget) -> Result<Freed, DslError> {
    brt.settle(m)?;
    let mut freer = Freer::new();
    for (bp, how) in brt.take_dropped(m.txg()) {
        match how {
            // What a log of another system says is no reason to stop the pool.
            Unclaim::Pointer => freer.wait(m, &bp),
            Unclaim::CountOnly => _ = brt.release(m, &bp)?,
        }
    }
    freer.flush(m)?;
    let mut round = Round { m, brt, tables: Tables::default(), freed: Freed::default() };
    bptree::work(m, budget, &mut round)?;
    drain_free_bpobj(m, budget, &mut round)?;
    drain_clones(m, budget, &mut round)?;
    round.tables.finish(m)?;
    charge(m, round.freed.space, false)?;
    Ok(round.freed)
}

fn drain_free_bpobj(m: MosTx<'_>, budget: &mut Budget, round: &mut Round<'_>) -> Result<(), DslError> {
    let Some(id) = m.entry(FREE_BPOBJ)? else { return Ok(()) };
    if budget.is_spent() {
        return Ok(());
    }
    bpobj::consume(m, id, budget, &mut |entry, space| round.free(&entry.bp, space))?;
    Ok(())
}

fn drain_clones(m: MosTx<'_>, budget: &mut Budget, round: &mut Round<'_>) -> Result<(), DslError> {
    let Some(set) = m.entry(DELETED_CLONES)? else { return Ok(()) };
    for member in crate::mos::int_set(&m.view(), set)? {
        if budget.is_spent() {
            return Ok(());
        }
        if livelist::drain(m, member, budget, round)? {
            m.set_remove(set, member.0)?;
        }
    }
    if m.zap(set)?.count()? == 0 {
        m.remove_entry(DELETED_CLONES)?;
        m.free(set)?;
    }
    Ok(())
}
