//! A trial: a pool is created, changed, exported, judged, and opened again, several times.

use crate::plan::Plan;
use crate::world::{POOL, World};
use crate::{Failure, judge, wrong};
use std::path::Path;

/// Operations before a failure that are printed.
const LOGGED_OPERATIONS: usize = 30;

/// Parameters of a trial.
#[derive(Debug, Clone)]
pub struct Trial {
    /// Seed of all random choices.
    pub seed: u64,
    /// Name of the layout; `None`: the seed chooses it.
    pub layout: Option<String>,
    /// Number of rounds; the pool is exported at the end of each.
    pub rounds: u64,
    /// Steps of work per round.
    pub steps: u64,
    /// `zdb -bcc` runs after this many rounds; 0: only at the end. `zdb -dddd` runs only at the end.
    pub zdb_every: u64,
    /// Whether `zdb` checks the pool at all.
    pub asks_zdb: bool,
    /// Seconds for which `ztest` works on the pool at the end; 0: not at all.
    pub ztest_secs: u64,
    /// Print all operations before a failure, not only the last.
    pub full_trace: bool,
}

impl std::fmt::Display for Trial {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "--seed {} --rounds {} --steps {}", self.seed, self.rounds, self.steps)?;
        match &self.layout {
            Some(layout) => write!(f, " --layout {layout}"),
            None => Ok(()),
        }
    }
}

impl Trial {
    /// Runs the trial with disks in the directory `dir`.
    ///
    /// # Errors
    /// [`Failure`]: the first deviation, with the last operations before it.
    pub fn run(&self, dir: &Path) -> Result<Plan, Failure> {
        let Some(plan) = Plan::of_seed(self.seed, self.layout.as_deref()) else {
            return wrong("there is no such layout");
        };
        let title = format!("{self} ({plan})");
        let mut world = World::create(plan, self.seed, dir).map_err(|why| format!("{title}: {why}"))?;
        match self.rounds(&mut world, dir) {
            Ok(()) => Ok(world.plan),
            Err(why) => {
                let why = cenote::error::chain(&*why);
                let from = if self.full_trace {
                    0
                } else {
                    world.operation_log.len().saturating_sub(LOGGED_OPERATIONS)
                };
                wrong(format!("{title}:\n  {}\n{why}", world.operation_log[from..].join("\n  ")))
            }
        }
    }

    fn rounds(&self, world: &mut World, dir: &Path) -> Result<(), Failure> {
        for round in 1..=self.rounds {
            for _ in 0..self.steps {
                world.step()?;
            }
            let is_last = round == self.rounds;
            if !is_last && world.draws_vanishing() {
                world.vanish()?;
                world.import()?;
                world.replay()?;
            }
            world.export()?;
            let asks_zdb = is_last || (self.zdb_every > 0 && round % self.zdb_every == 0);
            look(world, dir, asks_zdb && self.asks_zdb, is_last && self.asks_zdb)?;
            if !is_last {
                world.import()?;
            }
        }
        if self.ztest_secs > 0 && judge::ztest(dir, POOL, self.ztest_secs)? {
            judge::zdb(dir, POOL, &["-bcc"])?;
            judge::verify(&judge::open(dir, POOL)?)?;
        }
        Ok(())
    }
}

fn look(world: &World, dir: &Path, asks_zdb: bool, is_last: bool) -> Result<(), Failure> {
    let pool = judge::open(dir, POOL)?;
    judge::contents(&pool, &world.model)?;
    judge::verify(&pool)?;
    judge::no_leaks(&pool)?;
    if !world.plan.clones_files {
        judge::sums(&pool)?;
    }
    drop(pool);
    if asks_zdb {
        judge::zdb(dir, POOL, &["-bcc"])?;
    }
    if is_last {
        judge::zdb(dir, POOL, &["-dddd"])?;
    }
    Ok(())
}
