//! The threads of a run: three work on files of two datasets, one copies files out of snapshots, and one
//! writes txgs.
//!
//! The seed decides what each thread does; `super::scheduler` decides the order of their disk operations.

use super::history::{Copied, History, Promise, What};
use super::scheduler::{self, Scheduler};
use super::snapshots::{destroy_snapshot, snapshots, take_snapshot};
use super::world::{COPIES, DATASETS, WORK_DIRS, WORKERS, World, new_world, sync_dataset};
use super::{Failure, worker};
use crate::disks::Layout;
use cenote::copy::import::{Importer, Options, import};
use cenote::copy::{Children, Observer, Problem};
use cenote::error::chain;
use cenote::files::FilesystemWriter;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vdev::device::sim::Op;
use vdev::env::Random;
use zpl::{Filesystem, Node};

/// How often the copying thread yields to the others before each of its steps.
const COPIER_WAITS: u64 = 3;
/// Most steps of the copying thread for this many steps of a worker; it ends with the workers.
const COPIER_STEPS: u64 = 3;

/// A completed run: disk operations and history.
pub(crate) struct ActorsRun {
    /// Number of disks of the pool, log devices included.
    pub disks: usize,
    /// Disk operations before the threads began.
    pub base: Vec<(usize, Op)>,
    /// Disk operations of the workload.
    pub ops: Vec<(usize, Op)>,
    /// Record of the operations of all threads.
    pub history: History,
}

/// Runs the threads, each for about `steps` steps.
///
/// # Errors
/// An operation fails, which on disks without faults is a defect; or the threads wait for each other, in
/// which case they are left behind.
pub(crate) fn run(layout: Layout, seed: u64, steps: u64) -> Result<ActorsRun, Failure> {
    let (world, base) = new_world(layout, seed)?;
    let world = Arc::new(world);
    let scheduler = Scheduler::new(WORKERS + 2, seed);
    let mut threads = Vec::new();
    for seat in 0..WORKERS + 2 {
        let (scheduler, world) = (Arc::clone(&scheduler), Arc::clone(&world));
        threads.push(std::thread::spawn(move || {
            scheduler.enter(seat, || {
                let outcome = match seat {
                    WORKERS => copy_out(&world, seed, steps / COPIER_STEPS),
                    seat if seat < WORKERS => {
                        let done = worker::work(&world, seat, seed, steps);
                        world.workers.fetch_sub(1, Ordering::Relaxed);
                        done
                    }
                    _ => write_txgs(&world, &scheduler),
                };
                if outcome.is_err() {
                    // No other thread waits for the syncing one.
                    world.pool.txgs().fail(dmu::TxError::Closed);
                }
                outcome
            })
        }));
    }
    scheduler.conduct().map_err(|why| -> Failure {
        let history = world.history();
        format!("{why}\n{}", super::history::told_until(&history, u64::MAX, 60)).into()
    })?;
    let mut outcome = Ok(());
    for thread in threads {
        let done = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        // The first failure ends the other threads with errors that say less.
        outcome = match (outcome, done) {
            (Ok(()), Err(error)) => Err(error),
            (Err(first), Err(error)) if first.to_string().contains("closed") => Err(error),
            (outcome, _) => outcome,
        };
    }
    let ops = world.disks.take_record();
    let history = std::mem::take(&mut *world.history());
    outcome.map_err(|error| -> Failure {
        let told = super::history::told_until(&history, u64::MAX, 12);
        format!("{}\n{told}", chain(&*error)).into()
    })?;
    Ok(ActorsRun { disks: layout.disks(), base, ops, history })
}

fn write_txgs(world: &World, scheduler: &Scheduler) -> Result<(), Failure> {
    loop {
        scheduler::pause_idle();
        if scheduler.is_last() {
            return Ok(());
        }
        let txg = world.pool.txgs().open_txg();
        world.tell(format!("txg {} begins", txg.0));
        let steps = world.history().done();
        world.is_syncing.store(true, Ordering::Relaxed);
        let synced = world.pool.sync_here();
        world.is_syncing.store(false, Ordering::Relaxed);
        synced?;
        world.tell(format!("txg {} is on disk", txg.0));
        let mut history = world.history();
        let promise = Promise { names: steps.clone(), files: steps, file: None };
        world.note(&mut history, What::Promised(promise));
    }
}

/// Observer that collects the problems of a copy.
#[derive(Default)]
struct Heard {
    problems: u64,
}

impl Observer for Heard {
    fn begins(&mut self, _: &[u8]) {
        scheduler::pause();
    }

    fn problem(&mut self, _: &[u8], _: &Problem) {
        self.problems += 1;
    }
}

/// Copies files out of snapshots, which shares their blocks, while other threads destroy the snapshots.
fn copy_out(world: &World, seed: u64, steps: u64) -> Result<(), Failure> {
    let mut random = Random::from_seed(seed ^ 0xc0);
    for step in 0..steps {
        // The other threads make and change the files to be copied.
        (0..COPIER_WAITS).for_each(|_| scheduler::yield_to_all());
        if world.workers.load(Ordering::Relaxed) == 0 {
            break;
        }
        if random.one_in(2) {
            take_snapshot(world, 0, &format!("c{step}"))?;
        }
        copy_one(world, &mut random, step)?;
        scheduler::pause();
        if random.one_in(3) {
            destroy_snapshot(world, &mut random)?;
        }
    }
    Ok(())
}

fn copy_one(world: &World, random: &mut Random, step: u64) -> Result<(), Failure> {
    let of_first: Vec<(usize, usize, String)> =
        snapshots(world).into_iter().filter(|(_, dataset, _)| *dataset == 0).collect();
    let chosen = of_first.get(random.below(of_first.len() as u64) as usize);
    let Some((index, _, name)) = chosen else { return Ok(()) };
    let from = format!("{}@{name}", DATASETS[0]);
    let view = world.pool.view()?;
    // Another thread may have destroyed the snapshot since it was chosen.
    let Ok(dataset) = view.dsl().dataset(&from) else { return Ok(()) };
    let source = Filesystem::open(dataset.open_objset()?)?;
    let mut files: Vec<Node> = Vec::new();
    for (_, dir, _) in WORK_DIRS.iter().filter(|(dataset, _, _)| *dataset == 0) {
        let Some(dir) = source.resolve(dir.as_bytes())? else { continue };
        for entry in dir.entries()? {
            files.push(source.node(entry?.id)?);
        }
    }
    let to = FilesystemWriter::open(&world.pool, DATASETS[1])?;
    let copies = to.reader().resolve(COPIES.as_bytes())?.ok_or("there is no directory for copies")?.id();
    world.tell(format!("copy {} files out of {from}", files.len()));
    *world.copied() = Some(*index);
    let options = Options { threads: 1, ..Options::default() };
    let mut copied: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    let mut heard = Heard::default();
    let lead = |importer: &mut Importer<'_>| -> Result<Vec<(String, Vec<u8>)>, Failure> {
        let top = importer.top(copies, b"")?;
        let mut done = Vec::new();
        for (i, node) in files.iter().enumerate() {
            // Lets the other threads work on the snapshot while it is copied.
            scheduler::yield_to_all();
            let name = format!("c{step}-{i}");
            let mut bytes = vec![0; node.attrs().size as usize];
            // Blocks that an outdated view refers to may be reused.
            if node.read_at(0, &mut bytes).is_err() {
                continue;
            }
            scheduler::yield_to_all();
            let none: Option<&Children<'_>> = None;
            scheduler::with_helpers(|| {
                importer.copy_pool(&source, node, (&from, b""), (&top, Some(name.as_bytes())), none);
                importer.finish();
            });
            done.push((name, bytes));
        }
        Ok(done)
    };
    let (done, summary) = import(&to, &options, &mut heard, lead);
    if summary.failures == 0 && heard.problems == 0 {
        copied.extend(done?);
    }
    *world.copied() = None;
    drop((files, source, view));
    sync_dataset(world, 1)?;
    let mut history = world.history();
    for (name, bytes) in copied {
        history.copies.push(Copied { name, bytes });
        let index = history.copies.len() - 1;
        world.note(&mut history, What::Copied(index));
    }
    Ok(())
}
