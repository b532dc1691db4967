//! Stress: several actors at once on a daemon of its own and a pool on files, in rounds that a seed decides.
//!
//! Everything goes through the commands and the mounts, as users do it: nothing of the house is linked here. A round
//! makes a pool (`world`); then work, at the same time, writers that know what must be in their files
//! (`writer`, `model`), administrators whose verbs meet on the same datasets (`verbs`), one who takes devices out
//! of service, spoils them and brings them back (`devices`), and one who kills the daemon. When the time is up, all
//! that is left is judged (`judge`): by the models, by `cenote verify`, by OpenZFS's `zdb -bcc`, and with
//! every set of devices that must suffice.
//!
//! # What always holds
//! - What an actor does follows from the seed, the number of the round and its own number, but for the verbs that meet: those
//!   that have met least. How the threads of a round meet does not: a round that has failed is run again several times.
//! - A round fails when a file has contents that no order of the writer's calls explains; when a command is ended by a
//!   signal, panics or takes longer than `world::PATIENCE`; when the pool is suspended; or when a judge finds something.
//! - The folder of a round that has failed stays, with the devices, the daemon's log and `journal`: every command with
//!   its time, its actor, its exit code and what it said. That of a good round is removed.
//! - No more devices are spoilt at a time than the layout can do without.
// A test kit beside the house: it makes files and starts programs.
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

/// What is to be done.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Decides everything.
    pub seed: u64,
    /// No round begins after this.
    pub time: Duration,
    /// How long the actors of a round work.
    pub round: Duration,
    /// This round alone.
    pub only: Option<u64>,
    /// The program `cenote`.
    pub program: PathBuf,
    /// Where the folders of rounds are made.
    pub folder: PathBuf,
    /// Who works.
    pub actors: Actors,
}

/// Who works in a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Actors {
    /// Programs that write files.
    pub writers: u64,
    /// Administrators, each of whom has two or three verbs run at once.
    pub administrators: u64,
    /// Devices leave and return.
    pub devices: bool,
    /// The daemon is killed.
    pub kills: bool,
    /// Every second round has the mounts served over io_uring, where root may switch it on.
    pub both_transports: bool,
}

/// What was done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Report {
    /// Rounds.
    pub rounds: u64,
    /// Calls of writers.
    pub calls: u64,
    /// Commands.
    pub commands: u64,
    /// Times that the daemon was killed.
    pub kills: u64,
}

/// Runs rounds until the time is up. Every round is told on standard error.
///
/// # Errors
/// What went wrong in the first round that failed, how it is run again, and where everything of it is.
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

/// One round.
fn round(plan: &Plan, coverage: &verbs::Coverage, number: u64) -> Result<Report, Failure> {
    let mut random = Random::new(plan.seed).branch(number);
    let wants_ring = plan.actors.both_transports && number % 2 == 1;
    let _transport = wants_ring.then(world::Ring::switch_on);
    let world = World::make(plan, number, &mut random)?;
    let outcome = work(plan, &world, coverage, &mut random);
    let outcome = outcome.and_then(|writers| judge::judge(&world, &writers));
    let report = world.report();
    world.end(outcome)?;
    Ok(report)
}

/// Lets the actors work; the writers, with what they know.
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
