//! Freeing blocks: at once, or through the list of waiting blocks (docs/on-disk/15-space.md, section 6.1;
//! docs/on-disk/22-mos-dsl.md, section 4.1).
//!
//! [`Freer`] frees the blocks that a sync kills; [`Round`] frees the blocks of waiting lists in the
//! background.
//!
//! # What always holds
//! - A waiting block is charged to the hidden directory `$FREE`, until it is freed.
//! - A block with other references (clones, dedup) is not freed: one reference is dropped instead.

use crate::block_space::{Delta, Space};
use crate::bpobj::Bpobj;
use crate::brt::Brt;
use crate::charge::charge_free;
use crate::ddt::Tables;
use crate::error::DslError;
use crate::mos_tx::MosTx;
use format::bpobj::StoredBlock;
use format::{BlockPtr, BpKind, ObjectId, names};

/// Frees blocks of the syncing txg, and collects those that must wait.
#[derive(Debug, Default)]
pub(crate) struct Freer {
    waiting: Vec<StoredBlock>,
    space: Space,
}

/// Whether freeing the block needs more than a call of the allocator: gang headers to read, or a table to
/// look up.
fn must_wait(brt: &Brt, bp: &BlockPtr) -> bool {
    bp.kind() == BpKind::Gang || bp.is_dedup() || brt.may_be_cloned(bp)
}

impl Freer {
    /// A collector without any blocks.
    pub(crate) fn new() -> Freer {
        Freer::default()
    }

    /// Frees a block, or collects it for [`Freer::flush`]. Holes and embedded data take no space.
    ///
    /// # Errors
    /// If the allocator refuses the block.
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

    /// Collects a block for [`Freer::flush`]. If the allocator refuses it in the background, that is reported
    /// and does not fail the txg.
    pub(crate) fn wait(&mut self, m: MosTx<'_>, bp: &BlockPtr) {
        self.waiting.extend(StoredBlock::new(bp, false));
        self.space = self.space.plus(m.space_of(bp));
    }

    /// Appends the collected blocks to the waiting list, and charges `$FREE`. Returns that charge.
    pub(crate) fn flush(&mut self, m: MosTx<'_>) -> Result<Space, DslError> {
        let (waiting, space) = (std::mem::take(&mut self.waiting), std::mem::take(&mut self.space));
        if !waiting.is_empty() {
            Bpobj::append(m, free_bpobj(m)?, &waiting, space)?;
            charge_waiting(m, space, true)?;
        }
        Ok(space)
    }
}

/// The list of waiting blocks; created if there is none.
pub(crate) fn free_bpobj(m: MosTx<'_>) -> Result<ObjectId, DslError> {
    if let Some(id) = m.entry(names::directory::FREE_BPOBJ)? {
        return Ok(id);
    }
    let id = Bpobj::create(m, 0)?;
    m.set_entry(names::directory::FREE_BPOBJ, id.0)?;
    Ok(id)
}

/// Charges `$FREE` for new waiting blocks (`more`), or takes off the charge of freed ones.
pub(crate) fn charge_waiting(m: MosTx<'_>, space: Space, more: bool) -> Result<(), DslError> {
    if space == Space::default() {
        return Ok(());
    }
    let delta = Delta::from(space);
    charge_free(m, if more { delta } else { -delta })
}

/// Result of a round of background freeing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Freed {
    /// Space that was taken off `$FREE`.
    pub space: Space,
    /// Blocks that the allocator refused or that could not be reached: their space is lost until the pool is
    /// next checked.
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

    /// Writes the histograms of the dedup tables, and takes the charge of freed blocks off `$FREE`.
    pub(crate) fn finish(mut self) -> Result<Freed, DslError> {
        self.tables.finish(self.m)?;
        charge_waiting(self.m, self.freed.space, false)?;
        Ok(self.freed)
    }

    /// Frees a block with the charge `space`, or drops one reference to it.
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

    /// Frees a block, and computes its charge.
    pub(crate) fn free_found(&mut self, bp: &BlockPtr) -> Result<(), DslError> {
        self.free(bp, self.m.space_of(bp))
    }
}
