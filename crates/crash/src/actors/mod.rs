//! Several threads on one pool, and a power cut at every operation of their workload.
//!
//! `work` runs the threads once, in an order that a seed decides (`scheduler`), and records what they did
//! ([`history`]) and the operations of the disks. Then the power is cut at each of these operations, several
//! times with different fates of unflushed writes; the state that is found (`found`) must be permitted. Of
//! cuts that leave images which a check cannot tell apart, one is checked (`images`).
//!
//! # What always holds
//! - A run is reproduced by its layout, its seed and its number of steps, except for the moments in which a
//!   woken thread runs beside another: a run with a failure may have to be repeated.
//!
//! # Defects that it finds
//! Each of these defects was reintroduced by reverting its fix, and was found again by `cargo xtask crash
//! --layout threads:single --steps 90 --seed SEED`. As a run depends a little on the machine, the cut differs
//! each time; seeds were tried from 1 on, on an overloaded machine. `tests/it/taken_back.rs` has the seeds
//! that found them most often.
//!
//! - A copy out of a snapshot shares blocks that are freed meanwhile. Fix: f988a46 (`Heads::hold_snapshot`,
//!   `Brt::note_source`, `TaskCtx::check_unused`). Found with seeds 2 and 7 of 2, 4, 6, 7, 9; seed 2, cut
//!   731: 603136 bytes are allocated, 607232 were found, part of two blocks.
//! - A clone is logged with pointers whose txg has no uberblock yet. Fix: 362c82b (`Tx::is_on_disk` in
//!   `Fs::clone_blocks`). Found with seeds 2 and 4 of 1 to 6; 8 and 10; seed 8, cut 259: what an fsync of the
//!   clone had promised is missing.
//! - The claim of a log ignores the txg of a record. Fix: ac5a7f3 and 2041ed2 (`is_needed`, `Unclaim`,
//!   `IntentLog::begin_writing`). Found with seeds 3 and 5 of 2, 3, 5; seed 3, cut 658: the log of crash/b,
//!   claimed in txg 15, has a clone of txg 14.
//! - Zeros that no program wrote. Fix: 7938dac (`LogData`). Found with seed 4 of 1 to 12, and with 60 steps
//!   with seeds 4 and 10 of 12; seed 4, cut 285: bytes of no version, zeros among them.
//!
//! The third defect is found by the contents of the log: on a pool with as much free space as this one,
//! blocks of other sizes reuse the space that it would free too rarely. [`history::Coverage`] counts how
//! often threads met in these ways.
//!
//! # Duration
//! With all fixes, 432,192 cuts (28,263 images) of 90 steps on `threads:single`, `single+log` and
//! `mirror+log` found nothing in 26 minutes, on two processors with a load of 14: 0.97 million cuts an hour.
//! Another 705,330 on `threads:raidz1`, `mirror` and `raidz2` (71,249 images; seeds from 1000 on, 90 steps),
//! by one process in 25 minutes, found nothing either.

pub(crate) mod found;
mod found_state;
pub mod history;
pub(crate) mod images;
pub(crate) mod scheduler;
mod snapshots;
pub(crate) mod work;
mod worker;
mod world;

use crate::run::Failure;
use crate::{Broken, Cuts, Series};
use found::examine;
use found_state::State;
use history::{Moment, told_until};
use images::{Image, Known, Replay};
use std::collections::VecDeque;
use vdev::device::sim::Fate;
use work::ActorsRun;

/// The fates of unflushed writes; each is tried at every operation.
const FATES: [Fate; 6] = [Fate::Kept, Fate::Lost, Fate::InOrder, Fate::Random, Fate::Random, Fate::Random];
/// Number of checked images that are kept for comparison.
const KNOWN_MAX: usize = 24;
/// Operations before a failure that are printed.
const LOGGED_OPERATIONS: usize = 60;

/// An image that was checked.
struct Looked {
    state: State,
    /// Number of the moment at which its state was permitted.
    right_at: usize,
}

/// Runs threads, and cuts the power at every operation.
///
/// # Errors
/// [`crate::Broken`]: the first cut after which the state is not permitted.
pub(crate) fn cut_everywhere(series: Series, layout: crate::disks::Layout) -> Result<Cuts, Box<Broken>> {
    let broken = |cut, why| Box::new(Broken { series, cut, why });
    let run = work::run(layout, series.seed, series.steps).map_err(|why| broken(None, why))?;
    let mut replay = Replay::new(run.disks, series.seed, &run.base);
    let mut moment = Moment::new(&run.history);
    let mut known: VecDeque<Known<Looked>> = VecDeque::new();
    let mut cuts = Cuts { coverage: run.history.coverage, ..Cuts::default() };
    let first = run.base.last().map_or(0, |(_, op)| op.order + 1);
    for (n, (disk, op)) in run.ops.iter().enumerate() {
        let operation = first + n as u64;
        replay.begin(*disk, op);
        let is_wanted = match series.only {
            Some(only) => only == operation,
            None => (operation ^ series.seed).is_multiple_of(series.one_in.max(1)),
        };
        if is_wanted {
            moment.advance(&run.history, operation);
            for (i, fate) in FATES.into_iter().enumerate() {
                let seed = series.seed.wrapping_mul(31).wrapping_add(operation * 7 + i as u64);
                let image = replay.image(fate, seed);
                cuts.cuts += 1;
                cut(&run, &replay, &image, &moment, &mut known, seed, &mut cuts.images).map_err(|why| {
                    let told = told_until(&run.history, operation, LOGGED_OPERATIONS);
                    broken(Some(operation), format!("{fate:?}, {why}\n{told}").into())
                })?;
            }
        }
        if !series.lying {
            replay.finish(*disk, op, |disk, number, range| {
                known.iter_mut().for_each(|known| known.settled(disk, number, &range));
            });
        }
    }
    Ok(cuts)
}

fn cut(
    run: &ActorsRun,
    replay: &Replay,
    image: &Image,
    moment: &Moment,
    known: &mut VecDeque<Known<Looked>>,
    seed: u64,
    images: &mut u64,
) -> Result<(), String> {
    let like = known.iter_mut().find(|known| known.is_like(image));
    let looked = match like {
        Some(known) => &mut known.found,
        None => {
            *images += 1;
            let (state, reads) = examine(&run.history, replay.disks(image, seed), seed);
            known.push_front(Known::new(image, reads, Looked { state: state?, right_at: usize::MAX }));
            known.truncate(KNOWN_MAX);
            &mut known[0].found
        }
    };
    if looked.right_at != moment.number() {
        moment.check(&run.history, &looked.state)?;
        looked.right_at = moment.number();
    }
    Ok(())
}
