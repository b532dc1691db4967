//! Checks each block: reads it by the options of the run, and records errors.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use dmu::DmuError;
use dmu::traverse::Bookmark;
use format::dnode::Dnode;
use format::{AllocOffset, BlockPtr, BpKind, ObjType, Txg, VdevGuid, VdevId};
use vdev::tree::{Fault, FaultKind};
use zio::{ReadPolicy, Zio, ZioError};

use super::plan::{Plan, Set};
use super::{DeviceReport, HITS_MAX, Options, Progress, Watcher};
use crate::Pool;
use crate::block_walk::{self, BlockChecker, Walk};
use crate::error::Cause;
use vdev::sync::lock;

/// Maximum number of shared blocks that are remembered, so that they are read once; 40 bytes each.
const SHARED_MAX: usize = 1 << 20;
/// Blocks between two reports of progress by a thread.
const REPORT_EVERY: u64 = 64;

/// A damaged block and the object set in which it was found.
pub(super) struct Hit {
    /// Index of the object set in the plan.
    pub(super) set: usize,
    pub(super) at: Bookmark,
    pub(super) bp: BlockPtr,
    pub(super) object: Option<ObjectShape>,
    pub(super) cause: Cause,
}

/// Properties of an object that finding names needs, from its dnode.
#[derive(Debug, Clone, Copy)]
pub(super) struct ObjectShape {
    pub(super) kind: ObjType,
    pub(super) block_size: u64,
    /// Binary logarithm of the number of pointers in an indirect block.
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

/// Results of all threads.
pub(super) struct Found {
    pub(super) counts: Vec<Counts>,
    pub(super) hits: Vec<Hit>,
    pub(super) hits_untold: u64,
    pub(super) devices: HashMap<VdevGuid, DeviceReport>,
    pub(super) totals: Progress,
    pub(super) cut_short: bool,
}

/// A block to check.
struct Job {
    set: usize,
    at: Bookmark,
    bp: BlockPtr,
    object: Option<ObjectShape>,
}

/// Location and birth of a block, which identify it.
type Location = (VdevId, AllocOffset, Txg);

struct Checker<'a> {
    zio: &'a Zio,
    plan: &'a Plan,
    options: &'a Options,
    watcher: &'a dyn Watcher,
    stop: AtomicBool,
    counts: Vec<Counts>,
    blocks: AtomicU64,
    bytes: AtomicU64,
    damaged: AtomicU64,
    degraded: AtomicU64,
    hits: Mutex<(Vec<Hit>, u64)>,
    devices: Mutex<HashMap<VdevGuid, DeviceReport>>,
    /// Shared blocks checked: `None` good, otherwise why not.
    shared: Mutex<HashMap<Location, Option<Cause>>>,
}

pub(super) fn run(pool: &Pool, plan: &Plan, options: &Options, watcher: &dyn Watcher) -> Found {
    let checker = Checker {
        zio: pool.store().zio(),
        plan,
        options,
        watcher,
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
    block_walk::run(&checker, &plan.walks(), options.threads);
    checker.found()
}

impl Checker<'_> {
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

    fn check_once(&self, job: &Job) {
        let location = location_if_shared(&job.bp);
        if let Some(known) = location.and_then(|location| lock(&self.shared).get(&location).cloned()) {
            if let Some(cause) = known {
                self.hit(job, cause);
            }
            return;
        }
        let cause = self.read(job);
        if let Some(location) = location {
            let mut shared = lock(&self.shared);
            if shared.len() >= SHARED_MAX {
                shared.clear();
            }
            shared.insert(location, cause.clone());
        }
        self.count(job, cause.is_some());
        if let Some(cause) = cause {
            self.hit(job, cause);
        }
    }

    /// Reads a block by the options of the run. Returns the reason if it cannot be read.
    fn read(&self, job: &Job) -> Option<Cause> {
        let objset = self.plan.sets.get(job.set).and_then(Set::objset);
        let key = objset.and_then(|objset| objset.key().key());
        let policy = ReadPolicy { key, every_copy: self.options.every_copy };
        let checked = self.zio.check(&job.bp, &policy);
        if !checked.faults.is_empty() {
            self.faults(&checked.faults);
            // A missing device is reported once, as a device, not for every block.
            let lied = checked.faults.iter().any(|fault| fault.kind != FaultKind::Missing);
            if lied && checked.data.is_ok() {
                self.degraded.fetch_add(1, Ordering::Relaxed);
                if let Some(counts) = self.counts.get(job.set) {
                    counts.degraded.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
        let opened = match (checked.data, key) {
            // The MAC is verified when the block is decrypted.
            (Ok(data), Some(_)) => self.zio.open(&job.bp, data, key).map(|_| ()),
            (data, _) => data.map(|_| ()),
        };
        match opened {
            Ok(()) | Err(ZioError::Redacted { .. }) => None,
            Err(error) => Some(error.into()),
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
        if (blocks.is_multiple_of(REPORT_EVERY) || is_damaged) && !self.is_stopped() {
            let name = self.plan.sets.get(job.set).map(|set| set.name.clone()).unwrap_or_default();
            if !self.watcher.progress(&self.progress(name)) {
                self.stop.store(true, Ordering::Relaxed);
            }
        }
    }

    fn hit(&self, job: &Job, cause: Cause) {
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

/// Identifies a block that several pointers of one tree may share: a deduplicated or cloned block.
fn location_if_shared(bp: &BlockPtr) -> Option<Location> {
    if bp.is_embedded() || (!bp.is_dedup() && bp.physical_birth() == bp.logical_birth()) {
        return None;
    }
    bp.dvas().next().map(|dva| (dva.vdev, dva.offset, bp.physical_birth()))
}

impl BlockChecker for Checker<'_> {
    type Job = Job;
    type Found = ();

    fn visit(
        &self,
        (): &mut (),
        walk: &Walk,
        at: &Bookmark,
        bp: &BlockPtr,
        dnode: Option<&Dnode>,
    ) -> Option<Job> {
        Some(Job { set: walk.set, at: *at, bp: *bp, object: dnode.map(ObjectShape::of) })
    }

    /// Checks one block by the options of the run.
    fn check(&self, (): &mut (), job: Job) {
        self.check_once(&job);
    }

    fn unreadable(&self, (): &mut (), walk: &Walk, at: &Bookmark, bp: &BlockPtr, error: Arc<DmuError>) {
        // A block without a good copy is reported by its check. What remains here are right
        // bytes that make no sense.
        if matches!(*error, DmuError::Zio { source: ZioError::Unreadable { .. }, .. }) {
            return;
        }
        let object = (at.object.0 == 0).then(|| ObjectShape::of(&walk.objset.phys().meta_dnode));
        self.hit(&Job { set: walk.set, at: *at, bp: *bp, object }, Cause::Object(error));
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}
