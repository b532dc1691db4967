//! Tests of crash safety on simulated disks. A seeded workload runs once, and every disk operation is
//! recorded. Then the power is cut at each of these operations, and the pool that is left must be in one of
//! the permitted states.
//!
//! [`actors`] does the same with several threads, each of which can be held at any operation while the others
//! run.
//!
//! This crate is a tool: only its own tests and `cargo xtask crash` use it.
//!
//! # What always holds
//! - A run is reproduced by its layout, its seed and its number of steps; a cut by the operation and the fate
//!   of unflushed writes.
#![forbid(unsafe_code)]

pub mod actors;
pub mod check;
pub mod disks;
pub mod faults;
pub mod load;
pub mod logs;
pub(crate) mod model;
pub(crate) mod parts;
mod removals;
pub mod run;
pub mod scans;
pub(crate) mod shapes;
pub mod subject;
pub(crate) mod workload;
pub(crate) mod world_workload;

use actors::history::Coverage;
use check::{Depth, check};
use disks::Disks;
use run::{Failure, Run};
use subject::Subject;
use vdev::device::sim::{Fate, Op, OpKind};
use world_workload::WorldRun;

/// Fates of writes that were not flushed before the cut.
const FATES: [Fate; 4] = [Fate::Random, Fate::Lost, Fate::Kept, Fate::InOrder];
/// Snapshots of a pool with many snapshots are checked after one cut in this many.
const SNAPSHOTS_ONE_IN: u64 = 8;

/// A series of cuts through one run.
#[derive(Debug, Clone, Copy)]
pub struct Series {
    /// Workload, and layout of the pool.
    pub subject: Subject,
    /// Seed of the workload.
    pub seed: u64,
    /// Number of steps of the workload.
    pub steps: u64,
    /// Cut at one operation in this many; 1: at every operation.
    pub one_in: u64,
    /// Check space and all copies after one cut in this many.
    pub deep_one_in: u64,
    /// Check only the cut at this operation; `None`: all cuts.
    pub only: Option<u64>,
    /// Whether the disks ignore flushes: then a failure must be found.
    pub lying: bool,
}

/// Result counts of a series.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cuts {
    /// Number of cuts checked.
    pub cuts: u64,
    /// Number of disk images opened: each other cut leaves an image equal to one of them.
    pub images: u64,
    /// Interleavings of threads that occurred.
    pub coverage: Coverage,
}

impl Cuts {
    /// Adds the counts of another series.
    pub fn add(&mut self, other: &Cuts) {
        self.cuts += other.cuts;
        self.images += other.images;
        self.coverage.add(&other.coverage);
    }
}

/// A failure after a cut.
#[derive(Debug)]
pub struct Broken {
    /// Series in which it occurred.
    pub series: Series,
    /// Operation at which the power was cut; `None`: the workload itself failed.
    pub cut: Option<u64>,
    /// The reason: the first deviation from a permitted state.
    pub why: Failure,
}

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Series { subject, seed, steps, .. } = self.series;
        write!(f, "--layout {subject} --seed {seed} --steps {steps}")?;
        if let Some(cut) = self.cut {
            write!(f, " --cut {cut}")?;
        }
        write!(f, ": {}", cenote::error::chain(&*self.why))
    }
}

/// A completed workload.
enum Subjected {
    Files(Run),
    World(WorldRun),
    Scans(Run),
    Shapes(Run),
    Removals(Run),
}

impl Subjected {
    fn run(series: Series) -> Result<Subjected, Failure> {
        let Series { subject, seed, steps, .. } = series;
        Ok(match subject {
            Subject::Files(layout) => Subjected::Files(workload::run(layout, seed, steps)?),
            Subject::World(layout) => Subjected::World(world_workload::run(layout, seed, steps)?),
            Subject::Scans(layout) => Subjected::Scans(scans::run(layout, seed, steps)?),
            Subject::Shapes(layout) => Subjected::Shapes(shapes::run(layout, seed, steps)?),
            Subject::Removals(layout) => Subjected::Removals(removals::run(layout, seed, steps)?),
            Subject::Actors(_) => return Err("threads are cut by a module of their own".into()),
        })
    }

    fn disks(&self) -> usize {
        match self {
            Subjected::Files(run) | Subjected::Scans(run) | Subjected::Removals(run) => run.layout.disks(),
            Subjected::Shapes(run) => run.layout.disks() + shapes::FREE,
            Subjected::World(run) => run.disks,
        }
    }

    /// Disk operations until the pool was created, and after that.
    fn record(&self) -> [&[(usize, Op)]; 2] {
        match self {
            Subjected::Files(run)
            | Subjected::Scans(run)
            | Subjected::Shapes(run)
            | Subjected::Removals(run) => [&run.base, &run.ops],
            Subjected::World(run) => [&run.base, &run.ops],
        }
    }

    fn promises(&self, operation: u64) -> usize {
        match self {
            Subjected::Files(run)
            | Subjected::Scans(run)
            | Subjected::Shapes(run)
            | Subjected::Removals(run) => run.promises(operation),
            Subjected::World(run) => run.promises(operation),
        }
    }

    fn check(&self, disks: &Disks, operation: u64, seed: u64, is_deep: bool) -> Result<(), Failure> {
        match self {
            Subjected::Files(run) => {
                let depth = if is_deep { Depth::Everything } else { Depth::Contents };
                check(run, disks, operation, seed, depth)
            }
            Subjected::Removals(run) => check::check_removed(run, disks, operation, seed),
            Subjected::Scans(run) => check::check_scanned(run, disks, operation, seed),
            Subjected::Shapes(run) => shapes::check(run, disks, operation, seed),
            Subjected::World(run) => {
                let with_snapshots = is_deep || operation.is_multiple_of(SNAPSHOTS_ONE_IN);
                run.check(disks, operation, seed, with_snapshots, is_deep)
            }
        }
    }
}

/// Contents of the disks if all unflushed writes are lost.
#[derive(PartialEq, Eq)]
struct Flushed {
    flushes: u64,
    promises: usize,
}

/// Runs a workload and checks its cuts.
///
/// # Errors
/// [`Broken`]: the first cut after which the pool is not in a permitted state.
pub fn cut_everywhere(series: Series) -> Result<Cuts, Box<Broken>> {
    if let Subject::Actors(layout) = series.subject {
        return actors::cut_everywhere(series, layout);
    }
    let broken = |cut, why| Box::new(Broken { series, cut, why });
    let run = Subjected::run(series).map_err(|why| broken(None, why))?;
    let [base, ops] = run.record();
    let mut cuts = 0;
    let disks = Disks::new(run.disks(), series.seed);
    base.iter().for_each(|(disk, op)| disks.apply(*disk, op));
    let first = disks.operations();
    let (mut flushes, mut checked) = (0, None);
    for (n, (disk, op)) in ops.iter().enumerate() {
        let operation = first + n as u64;
        disks.apply_half(*disk, op);
        let is_wanted = match series.only {
            Some(only) => only == operation,
            None => (operation ^ series.seed).is_multiple_of(series.one_in.max(1)),
        };
        if is_wanted {
            cuts += 1;
            let flushed = Flushed { flushes, promises: run.promises(operation) };
            cut(&run, &disks, series, operation, flushed, &mut checked)
                .map_err(|why| broken(Some(operation), why))?;
        }
        if !series.lying {
            disks.apply_rest(*disk, op);
            flushes += u64::from(op.kind != OpKind::Write);
        }
    }
    Ok(Cuts { cuts, images: cuts, ..Cuts::default() })
}

/// Cuts the power during this operation.
fn cut(
    run: &Subjected,
    disks: &Disks,
    series: Series,
    operation: u64,
    flushed: Flushed,
    checked: &mut Option<Flushed>,
) -> Result<(), Failure> {
    let seed = series.seed.wrapping_mul(31).wrapping_add(operation);
    let fate = FATES[(seed % FATES.len() as u64) as usize];
    let is_deep = series.only.is_some() || operation.is_multiple_of(series.deep_one_in.max(1));
    if fate == Fate::Lost && !is_deep {
        // No flush and no promise since this image was checked: it is still in a permitted state.
        if checked.as_ref() == Some(&flushed) {
            return Ok(());
        }
        *checked = Some(flushed);
    }
    run.check(&disks.after_cut(fate, seed), operation, seed, is_deep)
}
