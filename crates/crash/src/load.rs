//! Faults while a pool is used by many threads, as in a daemon: disks vanish and return, bits flip, scrubs
//! run, and a workload that knows its expected contents continues all the time.
//!
//! # Requirements
//! - No operation fails, and all data reads as it was written: there are never more faulty disks at once than
//!   the layout can spare. A returned disk counts as faulty until it has all data again.
//! - At the end, after a resilver and a scrub, every copy of every block is good and the space maps are
//!   exact.

use crate::check::check_space;
use crate::disks::{Disks, Layout};
use crate::run::Failure;
use crate::workload::Work;
use pool::Leave;
use pool::LivePool;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use vdev::env::{Env, Random};

/// Steps between two checks of all contents.
const LOOK_EVERY: u64 = 40;
/// Interval at which the end of a scan is checked.
const PAUSE: Duration = Duration::from_millis(20);
/// Pause between two steps: the disks are small, and all versions are kept in memory.
const STEP: Duration = Duration::from_millis(4);
/// Longest time for a resilver on disks in memory; a longer one counts as stuck.
const PATIENCE: Duration = Duration::from_secs(20);

/// Counts of a run.
#[derive(Debug, Default, Clone, Copy)]
pub struct Told {
    /// Number of steps of the workload that were run.
    pub steps: u64,
    /// Disks that vanished and came back.
    pub outages: u64,
    /// Number of scrubs that have completed.
    pub scrubs: u64,
}

/// Runs the workload for `time`, and until each disk that can be spared was away once.
///
/// # Errors
/// An operation fails, or a requirement is not met.
pub fn run(layout: Layout, seed: u64, time: Duration) -> Result<Told, Failure> {
    let mut work = Work::new_in(layout, seed, Env::system(), false)?;
    let pool = Arc::clone(work.pool());
    pool.start();
    pool.attend();
    let (is_over, outages, scrubs) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let mut told = Told::default();
    let disks = work.disks().clone();
    let outcome = std::thread::scope(|scope| {
        let trouble = scope.spawn(|| trouble(&pool, &disks, layout, seed, &is_over, &outages, &scrubs));
        let started = Instant::now();
        let worked = (|| -> Result<(), Failure> {
            while !trouble.is_finished()
                && (started.elapsed() < time || outages.load(Ordering::Relaxed) < layout.spare_disks() as u64)
            {
                told.steps += 1;
                work.advance()?;
                std::thread::sleep(STEP);
                if told.steps % LOOK_EVERY == 0 {
                    work.look()?;
                }
            }
            Ok(())
        })();
        is_over.store(true, Ordering::Relaxed);
        let troubled = trouble.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        worked.map_err(|why| -> Failure { format!("{why}, after {told:?}").into() })?;
        troubled
    });
    (told.outages, told.scrubs) = (outages.into_inner(), scrubs.into_inner());
    outcome?;
    work.look()?;
    scrub(&pool)?;
    let (_, disks) = work.end();
    pool.export(Leave::Exported)?;
    check_space(&disks)?;
    Ok(told)
}

/// Removes and returns disks, with scrubs in between.
fn trouble(
    pool: &Arc<LivePool>,
    disks: &Disks,
    layout: Layout,
    seed: u64,
    is_over: &AtomicBool,
    outages: &AtomicU64,
    scrubs: &AtomicU64,
) -> Result<(), Failure> {
    let mut random = Random::from_seed(seed ^ 0x10ad);
    let mut which = random.below(layout.data_disks() as u64) as usize;
    while !is_over.load(Ordering::Relaxed) {
        let gone: Vec<usize> = (0..layout.spare_disks()).map(|i| (which + i) % layout.data_disks()).collect();
        which = (which + gone.len()) % layout.data_disks();
        gone.iter().for_each(|disk| disks.disks()[*disk].vanish());
        std::thread::sleep(Duration::from_millis(100 + random.below(400)));
        gone.iter().for_each(|disk| disks.disks()[*disk].come_back());
        if random.one_in(2) {
            // Sometimes an administrator clears the error; otherwise reads find that the disk is back.
            pool.clear(None, None)?;
        }
        wait_until_whole(pool)?;
        outages.fetch_add(gone.len() as u64, Ordering::Relaxed);
        if random.one_in(2) {
            scrub(pool)?;
            scrubs.fetch_add(1, Ordering::Relaxed);
        }
    }
    Ok(())
}

/// Waits until every leaf has all data and is in service.
fn wait_until_whole(pool: &Arc<LivePool>) -> Result<(), Failure> {
    let started = Instant::now();
    loop {
        let tree = pool.tree();
        let lacks = |leaf| !tree.dtl(leaf).is_empty();
        let is_whole = tree.status().state == vdev::tree::VdevState::Online
            && !tree.leaf_guids().into_iter().any(lacks)
            && pool.scan_progress().is_none();
        if is_whole {
            return Ok(());
        }
        if started.elapsed() > PATIENCE {
            let dtls: Vec<_> = tree.leaf_guids().into_iter().map(|leaf| tree.dtl(leaf)).collect();
            let scan = pool.scan_progress();
            return Err(format!("not whole again: {:?}, {dtls:?}, {scan:?}", tree.status()).into());
        }
        std::thread::sleep(PAUSE);
    }
}

/// Scrubs the pool, and waits for the end.
fn scrub(pool: &Arc<LivePool>) -> Result<(), Failure> {
    wait_until_whole(pool)?;
    pool.start_scrub(false)?;
    wait_until_whole(pool)?;
    match pool.view()?.scan()? {
        Some(scan) if scan.errors == 0 => Ok(()),
        scan => Err(format!("the scrub has found: {scan:?}").into()),
    }
}
