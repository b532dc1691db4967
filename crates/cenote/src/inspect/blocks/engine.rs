//! The threads: each walks an object set or checks blocks, whichever is to be done.
//!
//! # What always holds
//! - Pointers met by a walk go into one bounded queue; a walker that finds it full checks a block
//!   itself, so memory is bounded and nobody waits for room.
//! - A block shared by deduplication or cloning is checked once, where it is met first.

use super::{BlockUse, Check, Damaged, Tally};
use crate::Pool;
use crate::verify::plan::{Plan, chain};
use dmu::traverse::{Bookmark, Step, Visitor, walk};
use dmu::{DmuError, ObjSet};
use format::dnode::Dnode;
use format::{AllocOffset, BlockPtr, Level, Txg, VdevId};
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use vdev::tree::VdevError;
use zio::{ReadPolicy, ZioError};

/// Pointers waiting to be checked.
const QUEUE_MAX: usize = 4096;
/// Unreadable blocks that are listed; all are counted.
const DAMAGED_MAX: usize = 10_000;
/// Error numbers of Linux, as the real tool counts them: a wrong checksum, and everything else.
const WRONG_CHECKSUM: i32 = 52;
const IO_ERROR: i32 = 5;

/// Where a block is.
pub(super) type Place = (VdevId, AllocOffset);

/// What does not change while the threads run.
pub(super) struct Setting<'a> {
    pub(super) pool: &'a Pool,
    pub(super) check: Check,
    /// Blocks that were cloned.
    pub(super) clones: HashSet<Place>,
    /// log2 of the size of the metaslabs, by vdev.
    pub(super) shifts: HashMap<VdevId, u32>,
}

impl Setting<'_> {
    fn shift(&self, vdev: VdevId) -> u32 {
        self.shifts.get(&vdev).copied().unwrap_or(u32::MAX)
    }
}

/// What the threads found.
#[derive(Default)]
pub(super) struct Found {
    pub(super) tally: Tally,
    pub(super) damaged: Vec<Damaged>,
    /// Unreadable blocks by error number.
    pub(super) errors: std::collections::BTreeMap<i32, u64>,
    pub(super) problems: Vec<String>,
}

impl Found {
    fn hit(&mut self, at: &Bookmark, bp: &BlockPtr, errno: i32, why: String) {
        *self.errors.entry(errno).or_default() += 1;
        if self.damaged.len() < DAMAGED_MAX {
            self.damaged.push(Damaged { at: *at, bp: *bp, errno, why });
        }
    }

    fn merge(&mut self, other: Found) {
        self.tally.merge(&other.tally);
        for (errno, n) in other.errors {
            *self.errors.entry(errno).or_default() += n;
        }
        let room = DAMAGED_MAX.saturating_sub(self.damaged.len());
        self.damaged.extend(other.damaged.into_iter().take(room));
        self.problems.extend(other.problems);
    }
}

struct Job {
    at: Bookmark,
    bp: BlockPtr,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    /// Walks going on: more jobs may come.
    walking: usize,
}

/// An object set to walk, and from which birth on.
pub(super) type Walk = (Arc<ObjSet>, Txg);

pub(super) struct Engine<'a> {
    setting: Setting<'a>,
    walks: Vec<Walk>,
    next: AtomicUsize,
    queue: Mutex<Queue>,
    changed: Condvar,
    /// Blocks of dedup tables and cloned blocks that were met.
    seen: Mutex<HashSet<Place>>,
}

/// A panic elsewhere does not make our lists wrong: each change is one call.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The object sets of a plan, and what is wrong with those that cannot be opened.
pub(super) fn walks_of(plan: &Plan) -> (Vec<Walk>, Vec<String>) {
    let (mut walks, mut problems) = (Vec::new(), Vec::new());
    for set in &plan.sets {
        match &set.objset {
            Ok(objset) => walks.push((Arc::clone(objset), set.newer_than)),
            Err(_) if set.empty => {}
            Err(why) => problems.push(format!("{}: {why}", set.name)),
        }
    }
    (walks, problems)
}

impl<'a> Engine<'a> {
    pub(super) fn new(setting: Setting<'a>, walks: Vec<Walk>) -> Engine<'a> {
        Engine {
            setting,
            walks,
            next: AtomicUsize::new(0),
            queue: Mutex::default(),
            changed: Condvar::new(),
            seen: Mutex::default(),
        }
    }

    /// Walks all sets on so many threads.
    pub(super) fn run(&self, threads: usize) -> Found {
        let mut all = Found::default();
        // Scoped: they end with this call, and borrow the pool for no longer.
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(|| self.work())).collect();
            for worker in workers {
                match worker.join() {
                    Ok(found) => all.merge(found),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
        });
        all.damaged.sort_by_key(|damaged| damaged.at);
        all
    }

    /// Counts a block that was met outside of any object set.
    pub(super) fn count_loose(&self, found: &mut Found, bp: &BlockPtr, used: BlockUse) {
        if !bp.is_hole() {
            self.count(found, bp, used, 0);
        }
    }

    fn work(&self) -> Found {
        let mut found = Found::default();
        loop {
            let job = lock(&self.queue).jobs.pop_front();
            if let Some(job) = job {
                self.check(&mut found, &job);
            } else if !self.walk_next(&mut found) && !self.wait() {
                return found;
            }
        }
    }

    /// Walks the next object set, if one is left.
    fn walk_next(&self, found: &mut Found) -> bool {
        let index = self.next.fetch_add(1, Ordering::Relaxed);
        let Some((objset, newer_than)) = self.walks.get(index) else { return false };
        lock(&self.queue).walking += 1;
        let mut walker = Walker { engine: self, found };
        walk(objset, *newer_than, &mut walker);
        lock(&self.queue).walking -= 1;
        self.changed.notify_all();
        true
    }

    /// Waits for a job. False: there will be none.
    fn wait(&self) -> bool {
        let queue = lock(&self.queue);
        if queue.jobs.is_empty() && queue.walking == 0 {
            return false;
        }
        if queue.jobs.is_empty() {
            // The time-out only guards against a lost wake-up.
            let _ = self.changed.wait_timeout(queue, Duration::from_millis(50));
        }
        true
    }

    fn push(&self, found: &mut Found, job: Job) {
        let mut queue = lock(&self.queue);
        if queue.jobs.len() < QUEUE_MAX {
            queue.jobs.push_back(job);
            drop(queue);
            self.changed.notify_one();
            return;
        }
        drop(queue);
        self.check(found, &job);
    }

    /// Counts a block; true if it was not met before.
    fn count(&self, found: &mut Found, bp: &BlockPtr, used: BlockUse, level: u8) -> bool {
        found.tally.add(bp, used, level, &|vdev| self.setting.shift(vdev));
        let Some(place) = bp.dvas().next().map(|dva| (dva.vdev, dva.offset)).filter(|_| !bp.is_embedded())
        else {
            return true;
        };
        let is_clone = !bp.is_dedup() && self.setting.clones.contains(&place);
        if !(bp.is_dedup() || is_clone) || lock(&self.seen).insert(place) {
            return true;
        }
        let asize: u64 = bp.dvas().map(|dva| dva.asize.0).sum();
        let shared = if is_clone { &mut found.tally.cloned } else { &mut found.tally.deduped };
        *shared = (shared.0.saturating_add(asize), shared.1 + 1);
        false
    }

    fn is_checked(&self, bp: &BlockPtr) -> bool {
        match self.setting.check {
            Check::Nothing => false,
            Check::Metadata => bp.level() > Level(0) || bp.obj_type().is_metadata(),
            Check::Everything => true,
        }
    }

    /// Reads every copy of a block and verifies it.
    fn check(&self, found: &mut Found, job: &Job) {
        let zio = self.setting.pool.store().zio();
        let policy = ReadPolicy { key: None, every_copy: true };
        if let Err(error) = zio.check(&job.bp, &policy).data {
            found.hit(&job.at, &job.bp, errno(&error), chain(&error));
        }
    }
}

/// The number that the real tool counts an error by.
fn errno(error: &ZioError) -> i32 {
    match error {
        ZioError::Unreadable { source: VdevError::WrongChecksum, .. } | ZioError::Gang { .. } => {
            WRONG_CHECKSUM
        }
        _ => IO_ERROR,
    }
}

struct Walker<'e, 'a, 'f> {
    engine: &'e Engine<'a>,
    found: &'f mut Found,
}

impl Visitor for Walker<'_, '_, '_> {
    fn block(&mut self, at: &Bookmark, bp: &BlockPtr, _: Option<&Dnode>) -> Step {
        if bp.is_hole() || bp.kind() == format::BpKind::Redacted {
            return Step::Over;
        }
        let level = u8::try_from(at.level.max(0)).unwrap_or(u8::MAX);
        let is_new = self.engine.count(self.found, bp, BlockUse::of(bp.obj_type()), level);
        if is_new && !bp.is_embedded() && self.engine.is_checked(bp) {
            self.engine.push(self.found, Job { at: *at, bp: *bp });
        }
        Step::Into
    }

    fn unreadable(&mut self, at: &Bookmark, bp: &BlockPtr, error: DmuError) -> Step {
        // A block without a good copy is told by whoever checks it, if it is checked.
        let is_bad_copy = matches!(error, DmuError::Zio { source: ZioError::Unreadable { .. }, .. });
        if !(is_bad_copy && self.engine.is_checked(bp)) {
            let errno = if is_bad_copy { WRONG_CHECKSUM } else { IO_ERROR };
            self.found.hit(at, bp, errno, chain(&error));
        }
        Step::Into
    }
}
