//! The workload while a vdev is removed, slice by slice, and the removal is canceled and begun again.
//!
//! # Requirements
//! - No operation fails, and all data reads as it was written, at any time.
//! - After a power cut the removal goes on to its end; then all data are there, and the space maps are exact.

use crate::disks::Layout;
use crate::run::{Failure, Run};
use crate::workload::Work;
use vdev::env::Random;

/// Bytes of a slice, so that a removal lasts for several steps.
const SLICE: u64 = 128 << 10;
/// Steps before the removal.
const FIRST: u64 = 12;

/// One step of the removal.
fn advance(work: &Work, step: u64, random: &mut Random) -> Result<(), Failure> {
    let pool = work.pool();
    let top = pool.config().vdev_tree.children[0].clone();
    let is_there = top.kind != format::config::VdevKind::Indirect;
    let running = pool.view()?.removal()?.is_some_and(|r| r.state == format::scan::ScanState::Scanning);
    match step {
        ..FIRST => {}
        _ if is_there && !running => pool.remove_device(top.guid)?,
        _ if running && random.one_in(40) => pool.cancel_removal()?,
        _ => drop(pool.remove_step(SLICE)?),
    }
    Ok(())
}

/// Runs the workload with a removal.
///
/// # Errors
/// An operation fails.
pub(crate) fn run(layout: Layout, seed: u64, steps: u64) -> Result<Run, Failure> {
    let mut work = Work::new(layout, seed)?;
    let mut random = Random::from_seed(seed ^ 0x4e70);
    for step in 1..=steps {
        work.advance()?;
        advance(&work, step, &mut random)?;
    }
    work.look()?;
    Ok(work.end().0)
}
