//! What whoever had the pool before has left unfinished: done in the first txg after an import
//! (docs/on-disk/10-overview.md, section 4, step 14; docs/on-disk/22-mos-dsl.md, section 12).

use super::scan;
use crate::PoolError;
use dsl::write::{TaskCtx, destroy, holds};
use format::scan::ScanPhys;

/// Takes over a scan that was under way, and ends temporary holds.
pub(super) fn clear(ctx: &mut TaskCtx<'_>, scan: Option<ScanPhys>, is_ours: bool) -> Result<(), PoolError> {
    if let Some(phys) = scan {
        scan::adopt(ctx.m(), phys, is_ours)?;
    }
    for snapshot in holds::release_temporary(ctx.m())? {
        destroy::destroy_if_deferred(ctx, snapshot)?;
    }
    Ok(())
}
