//! Unfinished work of the pool's previous user, resumed in the first txg after an import
//! (docs/on-disk/10-overview.md, section 4, step 14; docs/on-disk/22-mos-dsl.md, section 12).

use crate::error::PoolError;
use crate::scan;
use dsl::{TaskCtx, destroy, holds};
use format::scan::ScanPhys;

/// Adopts an unfinished scan, and releases temporary holds. Returns the scan as it continues.
pub(crate) fn clear(
    ctx: &mut TaskCtx<'_>,
    scan: Option<ScanPhys>,
    is_ours: bool,
) -> Result<Option<ScanPhys>, PoolError> {
    let scan = scan.map(|phys| scan::state::adopt(ctx.m(), phys, is_ours)).transpose()?;
    for snapshot in holds::release_temporary(ctx.m())? {
        destroy::destroy_if_deferred(ctx, snapshot)?;
    }
    Ok(scan)
}
