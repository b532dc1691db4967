//! The threads: each walks an object set or checks blocks, whichever is to be done.
//!
//! Pointers met by a walk go into one bounded queue. A walker that finds it full checks a block
//! itself before it goes on, so nobody ever waits for room, and there is no thread whose death or
//! slowness could stop the others.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dmu::traverse::{self, Bookmark, Step, Visitor};
use dmu::{DmuError, ObjSet};
use format::dnode::Dnode;
use format::{AllocOffset, BlockPtr, BpKind, ObjType, Txg, VdevGuid, VdevId};
use vdev::tree::{Fault, FaultKind};
use zio::{ReadPolicy, Zio, ZioError};

use super::plan::{Plan, chain};
use super::{DeviceReport, HITS_MAX, Options, Progress, Watcher};
use crate::Pool;

/// Pointers waiting to be checked.
const QUEUE_MAX: usize = 4096;
/// Shared blocks remembered, so that they are read once. At 40 bytes each.
const SHARED_MAX: usize = 1 << 20;
/// Blocks between two reports of progress by a thread.
const REPORT_EVERY: u64 = 64;

/// A damaged block and where it was met.
pub(super) struct Hit {
    /// Index in the plan.
    pub(super) set: usize,
    pub(super) at: Bookmark,
    pub(super) bp: BlockPtr,
    pub(super) object: Option<ObjectShape>,
    pub(super) cause: String,
}

/// What names need to know of an object whose dnode was at hand.
#[derive(Debug, Clone, Copy)]
pub(super) struct ObjectShape {
    pub(super) kind: ObjType,
    pub(super) block_size: u64,
    /// log2 of the pointers in one of its indirect blocks.
    pub(super) fan_out: u32,
}

impl ObjectShape {
    fn of(dnode: &Dnode) -> ObjectShape {
        ObjectShape { kind: dnode.obj_type, block_size: dnode.data_block_size(), fan_out: dnode.epbs() }
    }
}

/// Counters of one object set.
#[derive(Default)]
pub(super) struct Counts {
    pub(super) blocks: AtomicU64,
    pub(super) bytes: AtomicU64,
    pub(super) damaged: AtomicU64,
    pub(super) degraded: AtomicU64,
}

/// Everything that was found.
pub(super) struct Found {
    pub(super) counts: Vec<Counts>,
    pub(super) hits: Vec<Hit>,
    pub(super) hits_untold: u64,
    pub(super) devices: HashMap<VdevGuid, DeviceReport>,
    pub(super) totals: Progress,
    pub(super) cut_short: bool,
}

struct Job {
    set: usize,
    at: Bookmark,
    bp: BlockPtr,
    object: Option<ObjectShape>,
}

/// Where a block is: enough to know it again.
type Location = (VdevId, AllocOffset, Txg);

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    /// Walks going on: more jobs may come.
    walking: usize,
}

struct Engine<'a> {
    zio: &'a Zio,
    plan: &'a Plan,
    options: &'a Options,
    watcher: &'a dyn Watcher,
    next_set: AtomicUsize,
    queue: Mutex<Queue>,
    changed: Condvar,
    stop: AtomicBool,
    counts: Vec<Counts>,
    blocks: AtomicU64,
    bytes: AtomicU64,
    damaged: AtomicU64,
    degraded: AtomicU64,
    hits: Mutex<(Vec<Hit>, u64)>,
    devices: Mutex<HashMap<VdevGuid, DeviceReport>>,
    /// Shared blocks checked: `None` good, otherwise why not.
    shared: Mutex<HashMap<Location, Option<Arc<str>>>>,
}

/// A panic elsewhere does not make our lists wrong: each change is one call.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn run(pool: &Pool, plan: &Plan, options: &Options, watcher: &dyn Watcher) -> Found {
    let engine = Engine {
        zio: pool.store().zio(),
        plan,
        options,
        watcher,
        next_set: AtomicUsize::new(0),
        queue: Mutex::default(),
        changed: Condvar::new(),
        stop: AtomicBool::new(false),
        counts: plan.sets.iter().map(|_| Counts::default()).collect(),
        blocks: AtomicU64::new(0),
        bytes: AtomicU64::new(0),
        damaged: AtomicU64::new(0),
        degraded: AtomicU64::new(0),
        hits: Mutex::default(),
        devices: Mutex::default(),
        shared: Mutex::default(),
    };
    // Scoped: they end with this call, and borrow the pool for no longer.
    std::thread::scope(|scope| {
        for _ in 0..options.threads.max(1) {
            scope.spawn(|| engine.work());
        }
    });
    engine.found()
}

impl Engine<'_> {
    fn found(self) -> Found {
        let totals = self.progress(String::new());
        let (hits, hits_untold) = self.hits.into_inner().unwrap_or_else(PoisonError::into_inner);
        Found {
            counts: self.counts,
            hits,
            hits_untold,
            devices: self.devices.into_inner().unwrap_or_else(PoisonError::into_inner),
            totals,
            cut_short: self.stop.into_inner(),
        }
    }

    fn progress(&self, dataset: String) -> Progress {
        Progress {
            bytes: self.bytes.load(Ordering::Relaxed),
            blocks: self.blocks.load(Ordering::Relaxed),
            damaged: self.damaged.load(Ordering::Relaxed),
            degraded: self.degraded.load(Ordering::Relaxed),
            dataset,
        }
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn work(&self) {
        while !self.stopped() {
            if let Some(job) = self.take_job() {
                self.check(&job);
            } else if !self.walk_next() && !self.wait() {
                return;
            }
        }
        self.changed.notify_all();
    }

    /// A waiting job. A thread without one rather opens a new walk, so that disks have enough to do.
    fn take_job(&self) -> Option<Job> {
        lock(&self.queue).jobs.pop_front()
    }

    /// Walks the next object set, if one is left.
    fn walk_next(&self) -> bool {
        let index = self.next_set.fetch_add(1, Ordering::Relaxed);
        let Some(set) = self.plan.sets.get(index) else { return false };
        if let Ok(objset) = &set.objset {
            lock(&self.queue).walking += 1;
            let mut walker = Walker { engine: self, set: index, objset };
            traverse::walk(objset, set.newer_than, &mut walker);
            lock(&self.queue).walking -= 1;
            self.changed.notify_all();
        }
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

    fn push(&self, job: Job) {
        let mut queue = lock(&self.queue);
        if queue.jobs.len() < QUEUE_MAX {
            queue.jobs.push_back(job);
            drop(queue);
            self.changed.notify_one();
            return;
        }
        drop(queue);
        self.check(&job);
    }

    /// Checks one block, whatever it takes.
    fn check(&self, job: &Job) {
        let location = location_if_shared(&job.bp);
        if let Some(known) = location.and_then(|location| lock(&self.shared).get(&location).cloned()) {
            if let Some(cause) = known {
                self.hit(job, cause.to_string());
            }
            return;
        }
        let cause = self.read(job);
        if let Some(location) = location {
            let mut shared = lock(&self.shared);
            if shared.len() >= SHARED_MAX {
                shared.clear();
            }
            shared.insert(location, cause.as_deref().map(Arc::from));
        }
        self.count(job, cause.is_some());
        if let Some(cause) = cause {
            self.hit(job, cause);
        }
    }

    /// Reads a block as told; the reason if it cannot be had.
    fn read(&self, job: &Job) -> Option<String> {
        let objset = self.plan.sets.get(job.set).and_then(|set| set.objset.as_ref().ok());
        let key = objset.and_then(|objset| objset.key().key());
        let policy = ReadPolicy { key, every_copy: self.options.every_copy };
        let checked = self.zio.check(&job.bp, &policy);
        if !checked.faults.is_empty() {
            self.faults(&checked.faults);
            // A device that is not there is told once, as a device, not with every block.
            let lied = checked.faults.iter().any(|fault| fault.kind != FaultKind::Missing);
            if lied && checked.data.is_ok() {
                self.degraded.fetch_add(1, Ordering::Relaxed);
                if let Some(counts) = self.counts.get(job.set) {
                    counts.degraded.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
        let opened = match (checked.data, key) {
            // What the key opens is only known to be right when it was opened.
            (Ok(data), Some(_)) => self.zio.open(&job.bp, data, key).map(|_| ()),
            (data, _) => data.map(|_| ()),
        };
        match opened {
            Ok(()) | Err(ZioError::Redacted { .. }) => None,
            Err(error) => Some(chain(&error)),
        }
    }

    fn faults(&self, faults: &[Fault]) {
        let mut devices = lock(&self.devices);
        for fault in faults {
            let fresh = || DeviceReport { guid: fault.leaf, ..DeviceReport::default() };
            devices.entry(fault.leaf).or_insert_with(fresh).count(fault.kind);
        }
    }

    fn count(&self, job: &Job, is_damaged: bool) {
        let bytes: u64 = match job.bp.kind() {
            BpKind::Normal | BpKind::Gang => job.bp.dvas().map(|dva| dva.asize.0).sum(),
            BpKind::Embedded | BpKind::Hole | BpKind::Redacted => 0,
        };
        let blocks = self.blocks.fetch_add(1, Ordering::Relaxed) + 1;
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let Some(counts) = self.counts.get(job.set) else { return };
        counts.blocks.fetch_add(1, Ordering::Relaxed);
        counts.bytes.fetch_add(bytes, Ordering::Relaxed);
        if (blocks.is_multiple_of(REPORT_EVERY) || is_damaged) && !self.stopped() {
            let name = self.plan.sets.get(job.set).map(|set| set.name.clone()).unwrap_or_default();
            if !self.watcher.progress(&self.progress(name)) {
                self.stop.store(true, Ordering::Relaxed);
            }
        }
    }

    fn hit(&self, job: &Job, cause: String) {
        self.damaged.fetch_add(1, Ordering::Relaxed);
        if let Some(counts) = self.counts.get(job.set) {
            counts.damaged.fetch_add(1, Ordering::Relaxed);
        }
        let mut hits = lock(&self.hits);
        if hits.0.len() < HITS_MAX {
            hits.0.push(Hit { set: job.set, at: job.at, bp: job.bp, object: job.object, cause });
        } else {
            hits.1 += 1;
        }
    }
}

/// Blocks that more than one pointer of one tree may lead to: deduplicated and cloned ones.
fn location_if_shared(bp: &BlockPtr) -> Option<Location> {
    if bp.is_embedded() || (!bp.is_dedup() && bp.physical_birth() == bp.logical_birth()) {
        return None;
    }
    bp.dvas().next().map(|dva| (dva.vdev, dva.offset, bp.physical_birth()))
}

struct Walker<'e, 'a> {
    engine: &'e Engine<'a>,
    set: usize,
    objset: &'e Arc<ObjSet>,
}

impl Visitor for Walker<'_, '_> {
    fn block(&mut self, at: &Bookmark, bp: &BlockPtr, dnode: Option<&Dnode>) -> Step {
        if self.engine.stopped() {
            return Step::Stop;
        }
        let object = dnode.map(ObjectShape::of);
        match bp.kind() {
            BpKind::Hole | BpKind::Redacted => return Step::Over,
            BpKind::Embedded | BpKind::Normal | BpKind::Gang => {}
        }
        self.engine.push(Job { set: self.set, at: *at, bp: *bp, object });
        Step::Into
    }

    fn unreadable(&mut self, at: &Bookmark, bp: &BlockPtr, error: DmuError) -> Step {
        // A block without a good copy is told by whoever checks it. What remains here are right
        // bytes that make no sense.
        if matches!(error, DmuError::Zio { source: ZioError::Unreadable { .. }, .. }) {
            return Step::Into;
        }
        let object = (at.object.0 == 0).then(|| ObjectShape::of(&self.objset.phys().meta_dnode));
        let job = Job { set: self.set, at: *at, bp: *bp, object };
        self.engine.hit(&job, chain(&error));
        Step::Into
    }
}
