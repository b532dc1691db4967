//! Freeing blocks: at once, or by way of the list of blocks that wait
//! (docs/on-disk/15-space.md, section 6.1; docs/on-disk/22-mos-dsl.md, section 4.1).
//!
//! [`Freer`] frees what a sync kills; [`Round`] frees, in the background, what waits on lists.
//!
//! # What always holds
//! - What waits is charged to the hidden directory `$FREE`, and no longer when it has been freed.
//! - A block that others refer to (clones, dedup) is not freed: a reference is dropped instead.

use crate::block_space::{Delta, Space};
use crate::bpobj::Bpobj;
use crate::brt::Brt;
use crate::charge::charge_free;
use crate::ddt::Tables;
use crate::error::DslError;
use crate::mos_tx::MosTx;
use format::bpobj::StoredBlock;
use format::{BlockPtr, BpKind, ObjectId, names};

/// Frees blocks of the syncing txg, and remembers those that must wait.
#[derive(Debug, Default)]
pub(crate) struct Freer {
    waiting: Vec<StoredBlock>,
    space: Space,
}

/// Freeing it needs more than a word to the allocator: reading its gang headers, or a look into a table.
fn must_wait(brt: &Brt, bp: &BlockPtr) -> bool {
    bp.kind() == BpKind::Gang || bp.is_dedup() || brt.may_be_cloned(bp)
}

impl Freer {
    /// A collector without any blocks.
    pub(crate) fn new() -> Freer {
        Freer::default()
    }

    /// Frees a block, or remembers it for [`Freer::flush`]. Holes and data in pointers take no space.
    ///
    /// # Errors
    /// If the allocator refuses it.
    pub(crate) fn free(&mut self, m: MosTx<'_>, brt: &Brt, bp: &BlockPtr) -> Result<(), DslError> {
        if !matches!(bp.kind(), BpKind::Normal | BpKind::Gang) {
            return Ok(());
        }
        if !must_wait(brt, bp) {
            return Ok(m.zio().free(bp, m.tx)?);
        }
        self.wait(m, bp);
        Ok(())
    }

    /// Remembers a block for [`Freer::flush`]: when it is freed in the background, a refusal of the allocator
    /// is reported and does not fail the txg.
    pub(crate) fn wait(&mut self, m: MosTx<'_>, bp: &BlockPtr) {
        self.waiting.extend(StoredBlock::new(bp, false));
        self.space = self.space.plus(m.space_of(bp));
    }

    /// Puts what must wait on the list, and charges `$FREE`. Returns what it is charged.
    pub(crate) fn flush(&mut self, m: MosTx<'_>) -> Result<Space, DslError> {
        let (waiting, space) = (std::mem::take(&mut self.waiting), std::mem::take(&mut self.space));
        if !waiting.is_empty() {
            Bpobj::append(m, free_bpobj(m)?, &waiting, space)?;
            charge_waiting(m, space, true)?;
        }
        Ok(space)
    }
}

/// The list of blocks that wait to be freed; made if there is none.
pub(crate) fn free_bpobj(m: MosTx<'_>) -> Result<ObjectId, DslError> {
    if let Some(id) = m.entry(names::directory::FREE_BPOBJ)? {
        return Ok(id);
    }
    let id = Bpobj::create(m, 0)?;
    m.set_entry(names::directory::FREE_BPOBJ, id.0)?;
    Ok(id)
}

/// Charges `$FREE` for blocks that wait from now on (`more`), or that have been freed.
pub(crate) fn charge_waiting(m: MosTx<'_>, space: Space, more: bool) -> Result<(), DslError> {
    if space == Space::default() {
        return Ok(());
    }
    let delta = Delta::from(space);
    charge_free(m, if more { delta } else { -delta })
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

impl<'a> Round<'a> {
    pub(crate) fn new(m: MosTx<'a>, brt: &'a Brt) -> Round<'a> {
        Round { m, brt, tables: Tables::default(), freed: Freed::default() }
    }

    /// Writes the histograms of the dedup tables, and takes what was freed off `$FREE`.
    pub(crate) fn finish(mut self) -> Result<Freed, DslError> {
        self.tables.finish(self.m)?;
        charge_waiting(self.m, self.freed.space, false)?;
        Ok(self.freed)
    }

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
