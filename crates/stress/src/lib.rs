//! Stress tests: several actors at once on a daemon and a pool of their own, in rounds decided by a seed.
//!
//! Actors use the commands and mounts as users do; no crate of the engine is linked. A round makes a pool
//! (`world`) and runs at the same time: writers that know what their files must contain (`writer`, `model`),
//! administrators whose verbs act on the same datasets (`verbs`), an actor that takes devices out of service,
//! corrupts them and brings them back (`devices`), and one that kills the daemon. When the time is up, the
//! result is checked (`judge`): against the models, by `cenote verify`, by `zdb -bcc` of OpenZFS, and with
//! every set of devices that must suffice.
//!
//! # What always holds
//! - The actions of an actor follow from the seed, the round number and the actor's number. The exception is
//!   the choice of concurrent verbs: the least tested combination comes next. The interleaving of threads is
//!   not repeatable: a round that has failed is run again several times.
//! - A round fails when a file has contents that no order of the writer's calls explains; when a command is
//!   ended by a signal, panics or takes longer than `world::COMMAND_TIMEOUT`; when the pool is suspended; or
//!   when a check fails.
//! - The directory of a failed round is kept, with the devices, the daemon's log and `journal`: every command
//!   with its time, actor, exit code and output. That of a successful round is removed.
//! - No more devices are faulty at a time than the layout tolerates.
// A test tool: it makes files and starts programs.
#![allow(clippy::disallowed_types)]

mod devices;
mod judge;
mod map;
mod model;
mod random;
pub mod siege;
mod verbs;
mod world;
mod writer;

pub use map::map_writer;
pub use random::Random;
pub use world::{Failure, Layout};

use std::path::PathBuf;
use std::time::{Duration, Instant};
use world::World;

/// The parameters of a stress run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The seed of all random choices.
    pub seed: u64,
    /// The time in which rounds are started.
    pub time: Duration,
    /// How long the actors of a round work.
    pub round: Duration,
    /// Number of the only round to run; `None`: all rounds.
    pub only: Option<u64>,
    /// Path of the `cenote` program.
    pub program: PathBuf,
    /// The directory in which rounds make theirs.
    pub folder: PathBuf,
    /// The actors of each round.
    pub actors: Actors,
}

/// The actors of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Actors {
    /// Number of concurrent writers.
    pub writers: u64,
    /// Number of administrators, each of whom runs two or three verbs at once.
    pub administrators: u64,
    /// Whether devices fail and return.
    pub devices: bool,
    /// Whether the daemon is killed.
    pub kills: bool,
    /// Serves the mounts of every second round over io_uring, where root may switch it on.
    pub both_transports: bool,
}

/// Totals of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Report {
    /// Number of completed rounds.
    pub rounds: u64,
    /// Number of calls made by writers.
    pub calls: u64,
    /// Number of commands that were run.
    pub commands: u64,
    /// Times that the daemon was killed.
    pub kills: u64,
}

/// Runs rounds until the time is up. Reports each round on standard error.
///
/// # Errors
/// The failure of the first round that failed, the command that repeats it, and its directory.
pub fn run(plan: &Plan) -> Result<Report, Failure> {
    let begun = Instant::now();
    let mut report = Report::default();
    let coverage = verbs::Coverage::default();
    let mut number = plan.only.unwrap_or(0);
    loop {
        let done = round(plan, &coverage, number).map_err(|failure| {
            eprintln!("{coverage}");
            let again = format!("--seed {} --round {number}", plan.seed);
            Failure(format!("round {number} failed: {failure}\nagain: cargo xtask stress {again}"))
        })?;
        report.rounds += 1;
        report.calls += done.calls;
        report.commands += done.commands;
        report.kills += done.kills;
        number += 1;
        if plan.only.is_some() || begun.elapsed() >= plan.time {
            eprintln!("{coverage}");
            return Ok(report);
        }
    }
}

/// Runs one round and checks it.
fn round(plan: &Plan, coverage: &verbs::Coverage, number: u64) -> Result<Report, Failure> {
    let mut random = Random::new(plan.seed).branch(number);
    let wants_ring = plan.actors.both_transports && number % 2 == 1;
    let _transport = wants_ring.then(world::Ring::switch_on);
    let world = World::make(plan, number, &mut random)?;
    let outcome = work(plan, &world, coverage, &mut random);
    let outcome = outcome.and_then(|writers| judge::check(&world, &writers));
    let report = world.report();
    world.end(outcome)?;
    Ok(report)
}

/// Lets the actors work; returns the writers with their models.
fn work(
    plan: &Plan,
    world: &World,
    coverage: &verbs::Coverage,
    random: &mut Random,
) -> Result<Vec<writer::Writer>, Failure> {
    let mut writers: Vec<writer::Writer> = (0..plan.actors.writers)
        .map(|number| writer::Writer::new(world, number, random.branch(number)))
        .collect::<Result<_, _>>()?;
    std::thread::scope(|scope| {
        for writer in &mut writers {
            scope.spawn(|| world.watch(|| writer.work(world)));
        }
        for number in 0..plan.actors.administrators {
            let random = random.branch(100 + number);
            scope.spawn(move || world.watch(|| verbs::work(world, coverage, number, random)));
        }
        if plan.actors.devices {
            let random = random.branch(200);
            scope.spawn(move || world.watch(|| devices::work(world, random)));
        }
        if plan.actors.kills {
            let random = random.branch(300);
            scope.spawn(move || world.watch(|| world::kill_now_and_then(world, random)));
        }
        world.wait(plan.round);
    });
    world.outcome()?;
    for writer in &mut writers {
        writer.settle(world)?;
    }
    Ok(writers)
}
