//! The workload while disks are taken out of service, returned, scrubbed and resilvered, slice by slice.
//!
//! # Requirements
//! - No operation fails, and all data reads as it was written, at any time.
//! - After a power cut the scan continues; at its end every disk has all data, and every copy is good.
//! - Flipped bits are repaired by a scrub.

use crate::disks::Layout;
use crate::run::{Failure, Run};
use crate::workload::Work;
use format::VdevGuid;
use pool::{Leave, Offline};
use std::sync::Arc;
use vdev::env::Random;

/// Bytes of blocks in one slice of a scan, so that a scan lasts for several steps.
const SLICE: u64 = 48 << 10;
/// Steps from the beginning of one disturbance to the next.
const ROUND: u64 = 24;
/// Number of bytes that are flipped in one place.
const FLIPPED: u64 = 64;

fn leaves(work: &Work) -> Vec<VdevGuid> {
    work.pool().tree().leaf_guids()
}

/// One step of the disturbances. Log devices are left alone.
fn disturb(work: &Work, step: u64, layout: Layout, random: &mut Random) -> Result<(), Failure> {
    let pool = work.pool();
    let which = (step / ROUND) as usize % layout.data_disks();
    let leaf = leaves(work)[which];
    match step % ROUND {
        2 => {
            let how = if random.one_in(2) { Offline::Always } else { Offline::Temporarily };
            if !pool.take_offline(leaf, how)? && pool.scan_progress().is_none() {
                return Err("a disk could not be done without".into());
            }
        }
        9 => drop(pool.bring_online(leaf, None)?),
        18 if pool.scan_progress().is_none() => pool.start_scrub(false)?,
        20 if random.one_in(3)
            && pool.scan_progress().is_some_and(|scan| scan.phys.func == format::scan::ScanFunc::Scrub) =>
        {
            pool.pause_scrub()?;
            pool.start_scrub(false)?;
        }
        _ => {}
    }
    pool.scan_step_within(SLICE)?;
    Ok(())
}

/// Runs the workload with scans.
///
/// # Errors
/// An operation fails.
pub(crate) fn run(layout: Layout, seed: u64, steps: u64) -> Result<Run, Failure> {
    let mut work = Work::new(layout, seed)?;
    let mut random = Random::from_seed(seed ^ 0x5ca9);
    for step in 1..=steps {
        work.advance()?;
        disturb(&work, step, layout, &mut random)?;
    }
    Ok(work.end().0)
}

/// Counts of the scrubs of a run.
#[derive(Debug, Default, Clone, Copy)]
pub struct Scrubbed {
    /// Number of ranges in which bits were flipped.
    pub(crate) flipped: u64,
    /// Number of bytes that were repaired.
    pub repaired: u64,
    /// Number of blocks that could not be repaired.
    pub errors: u64,
}

/// Flips bits on as many disks as can be spared, at random places that hold data, while the workload runs;
/// then scrubs, and checks that every copy is good again.
///
/// # Errors
/// An operation fails, or a copy is not good at the end.
pub fn flip_and_scrub(layout: Layout, seed: u64, steps: u64) -> Result<Scrubbed, Failure> {
    let mut work = Work::new(layout, seed)?;
    let mut random = Random::from_seed(seed);
    let mut all = Scrubbed::default();
    for step in 1..=steps {
        work.advance()?;
        if random.one_in(2) {
            work.rot_bytes(step as usize % layout.spare_disks(), &mut random, FLIPPED);
            all.flipped += 1;
        }
        if step % ROUND == 0 {
            work.pool().sync()?;
            work.pool().start_scrub(false)?;
            while work.pool().scan_progress().is_some() {
                work.pool().scan_step_within(SLICE * 4)?;
                work.advance()?;
            }
            let scan = work.pool().view()?.scan()?.ok_or("no scrub is on record")?;
            (all.repaired, all.errors) = (all.repaired + scan.processed, all.errors + scan.errors);
            work.look()?;
        }
    }
    work.pool().sync()?;
    work.pool().start_scrub(false)?;
    work.pool().scan_to_end()?;
    let last = work.pool().view()?.scan()?.ok_or("no scrub is on record")?;
    (all.repaired, all.errors) = (all.repaired + last.processed, all.errors + last.errors);
    let pool = Arc::clone(work.pool());
    let (_, disks) = work.end();
    pool.export(Leave::Exported)?;
    crate::check::check_space(&disks)?;
    Ok(all)
}
