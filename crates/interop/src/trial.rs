//! A trial: a pool is made, worked on, let go of, judged, and opened again, several times.

use crate::plan::Plan;
use crate::world::{POOL, World};
use crate::{Failure, judge, wrong};
use std::path::Path;

/// Operations that are told of when something is wrong.
const LOGGED_OPERATIONS: usize = 30;

/// What is done.
#[derive(Debug, Clone)]
pub struct Trial {
    /// Where everything that is random comes from.
    pub seed: u64,
    /// This layout, whatever the seed says.
    pub layout: Option<String>,
    /// How often the pool is let go of.
    pub rounds: u64,
    /// Steps between that.
    pub steps: u64,
    /// `zdb` is asked after this many rounds; 0: only at the end; its `-dddd` only at the end.
    pub zdb_every: u64,
    /// `zdb` is asked at all.
    pub asks_zdb: bool,
    /// `ztest` works on the pool for so many seconds at the end.
    pub ztest_secs: u64,
    /// All operations are told of when something is wrong, not only the last.
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
    /// Runs it in a folder.
    ///
    /// # Errors
    /// The first thing that is wrong, with the last operations before it.
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
                let from = if self.full_trace { 0 } else { world.operation_log.len().saturating_sub(LOGGED_OPERATIONS) };
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
