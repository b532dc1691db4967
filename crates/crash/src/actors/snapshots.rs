//! Snapshots of the datasets: taken and destroyed by sync tasks, and recorded in the history.

use super::Failure;
use super::history::{Snapshot, What};
use super::scheduler;
use super::world::{DATASETS, World, run_task};
use dsl::destroy::destroy_snapshots;
use dsl::snapshot::snapshot;
use dsl::{DslError, TaskCtx};
use vdev::env::Random;

pub(super) fn take_snapshot(world: &World, dataset: usize, name: &str) -> Result<(), Failure> {
    let index = {
        let mut history = world.history();
        let from = history.done();
        let index = history.snapshots.len();
        history.snapshots.push(Snapshot { dataset, name: name.to_owned(), from, until: Vec::new() });
        world.note(&mut history, What::Taking(index));
        index
    };
    let full = format!("{}@{name}", DATASETS[dataset]);
    world.tell(format!("snapshot {full}"));
    run_task(world, || {
        let full = full.clone();
        move |ctx: &mut TaskCtx<'_>| snapshot(ctx, &[full], &[]).map(drop)
    })?;
    let mut history = world.history();
    history.snapshots[index].until = history.begun();
    world.note(&mut history, What::Taken(index));
    Ok(())
}

/// Existing snapshots that no thread is destroying.
pub(super) fn snapshots(world: &World) -> Vec<(usize, usize, String)> {
    let history = world.history();
    let gone = |i: usize| {
        history.events.iter().any(|(_, what)| matches!(what, What::Destroying(other) if *other == i))
    };
    let all = history.snapshots.iter().enumerate();
    let there = all.filter(|(i, snapshot)| !snapshot.until.is_empty() && !gone(*i));
    there.map(|(i, snapshot)| (i, snapshot.dataset, snapshot.name.clone())).collect()
}

pub(super) fn destroy_snapshot(world: &World, random: &mut Random) -> Result<(), Failure> {
    let mut all = snapshots(world);
    if all.is_empty() {
        return Ok(());
    }
    let copied = *world.copied();
    let at = all.iter().position(|(index, _, _)| copied == Some(*index)).filter(|_| !random.one_in(4));
    let at = at.unwrap_or(random.below(all.len() as u64) as usize);
    let (index, dataset, name) = all.swap_remove(at);
    {
        let mut history = world.history();
        world.note(&mut history, What::Destroying(index));
    }
    let full = format!("{}@{name}", DATASETS[dataset]);
    world.tell(format!("destroy {full}"));
    if copied == Some(index) {
        world.history().coverage.copied_and_destroyed += 1;
        scheduler::wake_idle();
    }
    let done = run_task(world, || {
        let full = full.clone();
        move |ctx: &mut TaskCtx<'_>| destroy_snapshots(ctx, &[full], false).map(drop)
    });
    match done {
        Ok(()) => {
            let mut history = world.history();
            world.note(&mut history, What::Destroyed(index));
        }
        // The snapshot is being copied, and stays.
        Err(pool::PoolError::Dsl(DslError::Busy { .. })) => {
            world.tell(format!("{full} is in use"));
            let mut history = world.history();
            world.note(&mut history, What::Taken(index));
        }
        Err(error) => return Err(error.into()),
    }
    Ok(())
}
