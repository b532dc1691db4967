//! Unfinished work of the pool's previous user, resumed in the first txg after an import
//! (docs/on-disk/10-overview.md, section 4, step 14; docs/on-disk/22-mos-dsl.md, section 12).

use crate::error::PoolError;
use crate::scan;
use dsl::{TaskCtx, destroy, holds, receive};
use format::scan::ScanPhys;

/// Adopts an unfinished scan, releases temporary holds, and destroys what receives have left in the datasets `partial` that
/// cannot be resumed. Returns the scan as it continues.
pub(crate) fn clear(
    ctx: &mut TaskCtx<'_>,
    scan: Option<ScanPhys>,
    is_ours: bool,
    partial: &[String],
) -> Result<Option<ScanPhys>, PoolError> {
    let scan = scan.map(|phys| scan::state::adopt(ctx.m(), phys, is_ours)).transpose()?;
    for snapshot in holds::release_temporary(ctx.m())? {
        destroy::destroy_if_deferred(ctx, snapshot)?;
    }
    for dataset in partial {
        if let Err(why) = ctx.step(|ctx| receive::clean_up(ctx, dataset))? {
            tracing::warn!(dataset, error = %why, "an unfinished receive is left");
        }
    }
    Ok(scan)
}
