//! Crash safety, shown on simulated disks: a seeded workload runs once and everything that is done to the
//! disks is recorded; then the power is cut at each of these operations, and what is found must be what
//! may be found.
//!
//! A tool beside the house: nothing uses it but its own tests and `cargo xtask crash`.
//!
//! # What always holds
//! - A run is reproduced by its layout, its seed and its number of steps; a cut by the operation and the
//!   fate of what was not flushed.
#![forbid(unsafe_code)]

pub mod check;
pub mod disks;
pub mod faults;
pub mod model;
pub mod workload;

use check::{Depth, check};
use disks::{Disks, Layout};
use vdev::device::sim::Fate;
use workload::{Failure, Run, run};

/// What becomes of writes that were not flushed.
const FATES: [Fate; 4] = [Fate::Random, Fate::Lost, Fate::Kept, Fate::InOrder];

/// A series of cuts through one run.
#[derive(Debug, Clone, Copy)]
pub struct Series {
    /// The layout.
    pub layout: Layout,
    /// The seed of the workload.
    pub seed: u64,
    /// Steps of the workload.
    pub steps: u64,
    /// Cut at every operation; or at one in so many.
    pub one_in: u64,
    /// Look at space and copies after one cut in so many.
    pub deep_one_in: u64,
    /// Only this cut.
    pub only: Option<u64>,
    /// The disks only say that they flush: then something must be found wrong.
    pub lying: bool,
}

/// A cut after which something was wrong.
#[derive(Debug)]
pub struct Broken {
    /// The series.
    pub series: Series,
    /// The operation at which the power went off; `None`: the workload itself failed.
    pub cut: Option<u64>,
    /// What was wrong.
    pub why: Failure,
}

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Series { layout, seed, steps, .. } = self.series;
        write!(f, "--layout {layout} --seed {seed} --steps {steps}")?;
        if let Some(cut) = self.cut {
            write!(f, " --cut {cut}")?;
        }
        write!(f, ": {}", self.why)?;
        let mut cause = self.why.source();
        while let Some(error) = cause {
            write!(f, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}

/// Runs a workload and cuts it. Returns the number of cuts that were checked.
///
/// # Errors
/// The first cut after which something is wrong.
pub fn cut_everywhere(series: Series) -> Result<u64, Box<Broken>> {
    let broken = |cut, why| Box::new(Broken { series, cut, why });
    let run = run(series.layout, series.seed, series.steps).map_err(|why| broken(None, why))?;
    let mut cuts = 0;
    let disks = Disks::new(series.layout, series.seed);
    run.base.iter().for_each(|(disk, op)| disks.apply(*disk, op));
    let first = disks.operations();
    for (n, (disk, op)) in run.ops.iter().enumerate() {
        let operation = first + n as u64;
        disks.apply_half(*disk, op);
        let is_wanted = match series.only {
            Some(only) => only == operation,
            None => (operation ^ series.seed).is_multiple_of(series.one_in.max(1)),
        };
        if is_wanted {
            cuts += 1;
            cut(&run, &disks, series, operation).map_err(|why| broken(Some(operation), why))?;
        }
        if !series.lying {
            disks.apply_rest(*disk, op);
        }
    }
    Ok(cuts)
}

/// Cuts the power during this operation.
fn cut(run: &Run, disks: &Disks, series: Series, operation: u64) -> Result<(), Failure> {
    let seed = series.seed.wrapping_mul(31).wrapping_add(operation);
    let fate = FATES[(seed % FATES.len() as u64) as usize];
    let after = disks.after_cut(fate, seed);
    let is_deep = series.only.is_some() || operation.is_multiple_of(series.deep_one_in.max(1));
    let depth = if is_deep { Depth::Everything } else { Depth::Contents };
    check(run, &after, operation, seed, depth)
}
