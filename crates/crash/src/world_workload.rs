//! The workload of `cenote-interop` on simulated disks: datasets, snapshots, clones, volumes, properties,
//! limits and every operation on files.
//!
//! # Requirements after a cut
//! - The pool can be imported, and every log replayed to its end.
//! - The datasets, snapshots, holds and properties are those of one permitted step: a txg.
//! - The contents of each head are not older than that step or than what was synced since, and not newer than
//!   the next step that changed the datasets.
//! - Snapshots hold exactly the contents at the time they were taken.
//! - Exported again: every copy of every block is good, space maps, sums of datasets and counts of features
//!   are exact, and every object is referenced.

use crate::disks::Disks;
use crate::parts::{Span, check_head};
use crate::run::{Failure, env, host};
use cenote_interop::content::{Head, Model};
use cenote_interop::disk_provider::DiskProvider;
use cenote_interop::history::{Durable, History};
use cenote_interop::judge;
use cenote_interop::plan::Plan;
use cenote_interop::world::{POOL, World};
use dsl::Dsl;
use pool::LivePool;
use pool::{ImportOptions, LeafSpec, Leave};
use pool::{OpenOptions, Which};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use vdev::device::sim::Op;
use vdev::scan::Found;
use zpl::{HeadFs, HeadVolume, QuotaOf, SpaceKind, options_of};

/// Average number of steps between two exports of the pool.
const STEPS_TO_EXPORT: u64 = 50;
/// A vdev is added during the workload only if it takes at most this many disks.
const SPARE_DISKS: usize = 6;
/// Properties that are not stored as properties.
const NOT_STORED: [&str; 4] = ["quota", "reservation", "refquota", "refreservation"];

/// Simulated disks, provided one after the other.
struct SimulatedDisks {
    disks: Arc<Disks>,
    used: usize,
}

impl DiskProvider for SimulatedDisks {
    fn new_leaf(&mut self) -> Result<LeafSpec, Failure> {
        self.used += 1;
        if self.used > self.disks.disks().len() {
            return Err("there are no more disks".into());
        }
        Ok(self.disks.leaf(self.used - 1))
    }

    fn found(&self) -> Found {
        self.disks.found()
    }

    fn operations(&self) -> u64 {
        self.disks.operations()
    }
}

/// A completed workload: operations of the disks, and the promises made meanwhile.
pub(crate) struct WorldRun {
    /// Number of disks.
    pub disks: usize,
    /// Disk operations that created the pool.
    pub base: Vec<(usize, Op)>,
    /// Disk operations of the workload.
    pub ops: Vec<(usize, Op)>,
    history: History,
    /// Files share blocks, which are counted once per file.
    shares_blocks: bool,
    /// Descriptions of all operations of the workload.
    operation_log: Vec<String>,
}

/// Runs the workload.
///
/// # Errors
/// An operation fails, which on disks without faults is a defect.
pub(crate) fn run(layout: &str, seed: u64, steps: u64) -> Result<WorldRun, Failure> {
    let Some(plan) = Plan::of_seed(seed, Some(layout)) else { return Err("there is no such layout".into()) };
    let used: usize = plan.tops.iter().map(|top| top.disks).sum();
    let can_grow = plan.tops[0].disks <= SPARE_DISKS;
    let tops_max = plan.tops.len() + usize::from(can_grow);
    let count = used + plan.tops[0].disks * usize::from(can_grow);
    // A single thread makes the run reproducible by its seed.
    let shares_blocks = plan.clones_files;
    let plan = Plan { has_thread: false, tops_max, ..plan };
    let disks = Arc::new(Disks::new(count, seed));
    disks.record();
    let provider = SimulatedDisks { disks: Arc::clone(&disks), used: 0 };
    let mut world = World::create_on(plan, seed, Box::new(provider))?;
    let base = disks.take_record();
    world.remember();
    for step in 1..=steps {
        let with_log = |why: Failure, world: &World| -> Failure {
            let last = world.operation_log.len().saturating_sub(12);
            format!("{}\n  {}", cenote::error::chain(&*why), world.operation_log[last..].join("\n  ")).into()
        };
        let done = world.step();
        done.map_err(|why| with_log(why, &world))?;
        if (step ^ seed).is_multiple_of(STEPS_TO_EXPORT) {
            world.reopen().map_err(|why| with_log(why, &world))?;
        }
    }
    let ops = disks.take_record();
    match world.take_history() {
        Some(history) => Ok(WorldRun {
            disks: count,
            base,
            ops,
            history,
            shares_blocks,
            operation_log: std::mem::take(&mut world.operation_log),
        }),
        None => Err("nothing was noted".into()),
    }
}

/// Lower bounds of what is durable at one moment.
struct Certain {
    /// Last step that is durable in the whole pool.
    pool: u64,
    /// Last step that was begun.
    begun: u64,
    /// Last durable step by head number.
    heads: BTreeMap<u64, u64>,
    /// Last durable step of the names, by head number.
    names: BTreeMap<u64, u64>,
    /// Last durable step by head and file number.
    files: BTreeMap<(u64, u64), u64>,
}

impl WorldRun {
    fn at(&self, operation: u64) -> Certain {
        let mut certain = Certain {
            pool: 0,
            begun: 0,
            heads: BTreeMap::new(),
            names: BTreeMap::new(),
            files: BTreeMap::new(),
        };
        for ack in self.history.acks.iter().take_while(|ack| ack.operations <= operation) {
            certain.begun = ack.step;
            match ack.what {
                Durable::Nothing => {}
                Durable::Pool => certain.pool = ack.step,
                Durable::Head(head) => drop(certain.heads.insert(head, ack.step)),
                Durable::File(head, file) => {
                    certain.names.insert(head, ack.step);
                    certain.files.insert((head, file), ack.step);
                }
            }
        }
        certain
    }

    /// Number of promises made before this operation.
    pub(crate) fn promises(&self, operation: u64) -> usize {
        let before = self.history.acks.iter().take_while(|ack| ack.operations <= operation);
        before.filter(|ack| ack.what != Durable::Nothing).count()
    }

    /// Opens the pool that a power cut has left and checks it.
    ///
    /// # Errors
    /// [`Failure`]: the first deviation.
    pub(crate) fn check(
        &self,
        disks: &Disks,
        operation: u64,
        seed: u64,
        with_snapshots: bool,
        with_space: bool,
    ) -> Result<(), Failure> {
        let certain = self.at(operation);
        let options = ImportOptions { host: host(), force: true, ..ImportOptions::default() };
        let which = Which::Name(POOL.to_owned());
        let pool = LivePool::import(&disks.found(), &which, &options, env(seed))?;
        let checked = self.check_contents(&pool, &certain, with_snapshots, seed);
        if let (Err(why), Some(_)) = (&checked, std::env::var_os("CENOTE_CRASH_TRACE")) {
            return Err(format!("{}\n{why}", self.operation_log.join("\n")).into());
        }
        checked?;
        if with_space {
            pool.export(Leave::Exported)?;
            let pool = cenote::Pool::from(pool::Pool::open(disks.found(), &which, &OpenOptions::default())?);
            judge::verify(&pool)?;
            judge::no_leaks(&pool)?;
            if !self.shares_blocks {
                judge::sums(&pool)?;
            }
        }
        Ok(())
    }

    fn check_contents(
        &self,
        pool: &Arc<LivePool>,
        certain: &Certain,
        with_snapshots: bool,
        seed: u64,
    ) -> Result<(), Failure> {
        let view = pool.view()?;
        let (first, last, next) = self.find_datasets(view.dsl(), certain)?;
        let model = &self.history.versions[first].1;
        let until = next.map_or(certain.begun, |i| self.history.versions[i].0.min(certain.begun));
        let from = certain.pool.max(self.history.versions[first].0);
        for (name, head) in &model.heads {
            let of_head = certain.heads.get(&head.serial).copied().unwrap_or(0).max(from);
            let span = Span {
                versions: &self.history.versions[first..=next.unwrap_or(last)],
                head: head.serial,
                names: certain.names.get(&head.serial).copied().unwrap_or(0).max(of_head),
                of_head,
                files: &certain.files,
                until,
            };
            check_replayed(pool, name, &span, from, seed).map_err(|why| {
                format!("{name}, steps {of_head} to {until}: {}", cenote::error::chain(&*why))
            })?;
        }
        if with_snapshots {
            for (name, snapshot) in &model.snapshots {
                let dataset = match view.dsl().dataset(name) {
                    Err(dsl::DslError::NotFound { .. }) if snapshot.is_deferred => continue,
                    other => other?,
                };
                judge::same_content(&dataset, &snapshot.content).map_err(|why| format!("{name}: {why}"))?;
            }
        }
        Ok(())
    }

    /// Finds the versions whose datasets match those of the pool: the first and last of a row, and the next
    /// one if it was begun.
    fn find_datasets(&self, dsl: &Dsl, certain: &Certain) -> Result<(usize, usize, Option<usize>), Failure> {
        let versions = &self.history.versions;
        let begin = versions.iter().rposition(|(step, _)| *step <= certain.pool).unwrap_or(0);
        let end = versions.iter().rposition(|(step, _)| *step <= certain.begun).unwrap_or(0);
        let mut reasons = Vec::new();
        let mut i = begin;
        while i <= end {
            let mut last = i;
            while last < end && same_datasets(&versions[i].1, &versions[last + 1].1) {
                last += 1;
            }
            match fits(dsl, &versions[i].1) {
                Ok(()) => return Ok((i, last, (last < end).then_some(last + 1))),
                Err(why) => reasons.push(format!("step {}: {why}", versions[i].0)),
            }
            i = last + 1;
        }
        let (from, to) = (certain.pool, certain.begun);
        Err(format!("steps {from} to {to}: the datasets are of none:\n  {}", reasons.join("\n  ")).into())
    }
}

fn same_datasets(a: &Model, b: &Model) -> bool {
    let head = |(name, head): (&String, &Head)| {
        let own = (head.props.clone(), head.bookmarks.clone());
        (name.clone(), head.serial, head.origin.clone(), own)
    };
    a.heads.len() == b.heads.len()
        && a.snapshots.len() == b.snapshots.len()
        && a.heads.iter().map(head).eq(b.heads.iter().map(head))
        && a.snapshots.iter().zip(&b.snapshots).all(|((name, s), (other, t))| {
            name == other && (s.order, s.is_deferred, &s.holds) == (t.order, t.is_deferred, &t.holds)
        })
}

/// Checks that the datasets of the pool are those of the model.
fn fits(dsl: &Dsl, model: &Model) -> Result<(), Failure> {
    let (mut heads, mut snapshots) = (BTreeSet::new(), BTreeSet::new());
    for dir in dsl.dirs()? {
        let Some(head) = dir.head()? else { continue };
        let Some(expected) = model.heads.get(head.name()) else {
            return Err(format!("{} should not be there", head.name()).into());
        };
        let props = dir.stored_props()?;
        for (name, value) in expected.props.iter().filter(|(name, _)| !NOT_STORED.contains(&name.as_str())) {
            let found = props.value(name)?;
            if found.as_ref() != Some(value) {
                return Err(format!("{name} of {} is {found:?} instead of {value:?}", head.name()).into());
            }
        }
        let marks: BTreeMap<String, (u64, u64, u64)> = head
            .bookmarks()?
            .iter()
            .map(|mark| {
                let (phys, name) = (mark.phys(), mark.name());
                let name = name.split_once('#').map_or(name, |(_, name)| name);
                (name.to_owned(), (phys.guid, phys.creation_txg.0, phys.creation_time))
            })
            .collect();
        if marks != expected.bookmarks {
            let name = head.name();
            return Err(format!("bookmarks of {name}: {marks:?} instead of {:?}", expected.bookmarks).into());
        }
        for snapshot in head.snapshots()? {
            let Some(expected) = model.snapshots.get(snapshot.name()) else {
                return Err(format!("{} should not be there", snapshot.name()).into());
            };
            let tags: BTreeSet<String> = snapshot.holds()?.into_iter().map(|hold| hold.tag).collect();
            if tags != expected.holds {
                return Err(format!("{} is held by {tags:?}", snapshot.name()).into());
            }
            snapshots.insert(snapshot.name().to_owned());
        }
        heads.insert(head.name().to_owned());
    }
    if let Some(missing) = model.heads.keys().find(|name| !heads.contains(*name)) {
        return Err(format!("{missing} is missing").into());
    }
    let must_be = model.snapshots.iter().filter(|(_, snapshot)| !snapshot.is_deferred);
    match must_be.map(|(name, _)| name).find(|name| !snapshots.contains(*name)) {
        Some(missing) => Err(format!("{missing} is missing").into()),
        None => Ok(()),
    }
}

/// Opens a head for writing, which replays its log, and checks its contents.
fn check_replayed(
    pool: &Arc<LivePool>,
    name: &str,
    span: &Span<'_>,
    durable: u64,
    seed: u64,
) -> Result<(), Failure> {
    let head = pool.heads().open_by_name(name)?;
    let dataset = pool.view()?.dsl().dataset(name)?;
    if dataset.is_volume()? {
        let volume = HeadVolume::open(&head)?;
        return span.check_volume(&volume.volume);
    }
    let options = options_of(&dataset, pool.features())?;
    let files = HeadFs::open(&head, options, &env(seed))?;
    check_limits(files.fs.reader(), span, durable)?;
    check_head(files.fs.reader(), span)
}

/// Checks the default quotas, which are not logged.
fn check_limits(fs: &Arc<zpl::Filesystem>, span: &Span<'_>, durable: u64) -> Result<(), Failure> {
    for of_users in [true, false] {
        let kind = if of_users { SpaceKind::User } else { SpaceKind::Group };
        let (space, objects) =
            (fs.default_quota(kind, QuotaOf::Space)?, fs.default_quota(kind, QuotaOf::Objects)?);
        for (of_space, found) in [(true, space), (false, objects)] {
            let known = |head: &Head| head.limits.get(&(of_users, of_space)).copied();
            let versions: Vec<Option<u64>> = span.since(durable).map(|(_, head)| known(head)).collect();
            if !versions.iter().any(|limit| limit.is_none_or(|limit| limit == found)) {
                return Err(format!("a limit for everybody is {found}, not one of {versions:?}").into());
            }
        }
    }
    Ok(())
}
