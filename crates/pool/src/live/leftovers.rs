//! What whoever had the pool before has left unfinished, and nobody will finish: done in the first txg after
//! an import (docs/on-disk/10-overview.md, section 4, step 14; docs/on-disk/22-mos-dsl.md, section 12).

use crate::PoolError;
use dmu::zap::ZapValue;
use dsl::write::{MosTx, TaskCtx, destroy, holds};
use format::ObjectId;
use format::scan::{ScanPhys, ScanState};

/// Directory: the last or current scan.
const SCAN: &str = "scan";

/// Ends scans that were under way, and temporary holds.
pub(super) fn clear(ctx: &mut TaskCtx<'_>, scan: Option<ScanPhys>) -> Result<(), PoolError> {
    if let Some(scan) = scan.filter(|scan| scan.state == ScanState::Scanning) {
        cancel_scan(ctx.m(), scan, ctx.now())?;
        ctx.note("scan aborted", None, "errors=0");
    }
    for snapshot in holds::release_temporary(ctx.m())? {
        destroy::destroy_if_deferred(ctx, snapshot)?;
    }
    Ok(())
}

/// A scan remembers datasets by their numbers; these change while nobody scans.
fn cancel_scan(m: MosTx<'_>, scan: ScanPhys, now: u64) -> Result<(), PoolError> {
    if scan.queue != ObjectId(0) {
        m.free(scan.queue)?;
    }
    let canceled = ScanPhys {
        state: ScanState::Canceled,
        queue: ObjectId(0),
        end_time: now,
        bookmark: [0; 4],
        ddt_bookmark: [0; 4],
        ..scan
    };
    let directory = m.zap(crate::directory::OBJECT)?;
    Ok(directory.upsert(SCAN.as_bytes(), ZapValue::U64s(&canceled.to_words()))?)
}
