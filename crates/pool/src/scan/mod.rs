//! State of a scrub or resilver, in memory and on disk. `scrub` does the work (docs/on-disk/14-vdevs.md,
//! sections 7 and 9; docs/on-disk/22-mos-dsl.md, sections 11 and 12).
//!
//! A scan visits every block that existed when it began, each once, in slices. A slice takes the state of the
//! last txg, continues at the position where the previous slice ended, reads every copy of each block, parity
//! included, and rewrites wrong copies; leaves that lack a block get it. The position goes to disk every few
//! seconds, so a scan continues after the pool was closed or the power failed.
//!
//! # Order of a scan
//! The pool's own objects; the snapshots that existed at its begin, by creation txg; the heads, by object
//! number; snapshots that were made meanwhile, for blocks that only they hold. Blocks that a dataset shares
//! with the previous snapshot are skipped. This order does not change when datasets are made, renamed,
//! promoted or destroyed: blocks that a destroyed snapshot held alone are gone, and blocks that it shared
//! with the next snapshot belong to that one, which comes later.
//!
//! # What always holds
//! - A position is saved only after the work before it is durable.
//! - A leaf that lacks data is resilvered: a scrub that will not restore all of it, or that is paused, ends.
//!   A scrub continues to its end if the leaf was in service all the time and only failed to take a write; a
//!   resilver follows.
//! - The DTL of a leaf loses only txgs whose blocks the leaf received while it was in service all the time,
//!   with the same device and without an error.
//! - On disk other implementations find a scan of the same range that has just begun: it names no dataset
//!   that could be destroyed. The real position is in an entry of our own
//!   ([`format::names::directory::SCAN_POSITION`]).
//!
//! # Order of locks
//! Those of `jobs`; `run` is the lock of this job.
//!
//! Tests: `crates/crash` (`scans`: power cuts and flipped bits; `load`: with threads).

pub(crate) mod notes;
pub(crate) mod recorded;
pub(crate) mod state;

use crate::status::ScanProgress;
use format::scan::{ScanFunc, ScanPhys};
use format::{ObjectId, Txg, VdevGuid};
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;
use vdev::sync::lock;
use vdev::tree::{Mark, RangeSet, VdevState};
use vdev::{Device, VdevTree};

/// Position of a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Position {
    /// Index of the part in the order of a scan.
    pub(crate) pass: u64,
    /// The dataset: creation txg (of a snapshot) and object number.
    pub(crate) at: (Txg, ObjectId),
    /// Position in the dataset.
    pub(crate) place: dmu::traverse::WalkPosition,
}

/// An active or paused scan.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) phys: ScanPhys,
    pub(crate) position: Position,
    /// Remaining datasets of this part; `None`: not listed yet.
    pub(crate) targets: Option<VecDeque<(Txg, ObjectId)>>,
    pub(crate) issued: u64,
    pub(crate) pass_start: u64,
    pub(crate) pass_examined: u64,
    pub(crate) pass_issued: u64,
    pub(crate) paused_since: u64,
    pub(crate) spent_paused: u64,
    /// Leaves that have been in service since the scan began, with their devices, which it does not keep
    /// open.
    pub(crate) served: HashMap<VdevGuid, Weak<dyn Device>>,
    /// Some blocks could not be visited, so leaves may still lack them.
    pub(crate) is_incomplete: bool,
    /// Errors that are not in the error log yet.
    pub(crate) errors: Vec<state::Failed>,
    /// Monotonic time of the last save.
    pub(crate) saved: Duration,
    pub(crate) mark: Mark,
}

/// The leaves in service, with their devices.
pub(crate) fn in_service(tree: &VdevTree) -> HashMap<VdevGuid, Weak<dyn Device>> {
    let status = tree.status();
    let serves = |guid: &VdevGuid| status.find(*guid).is_some_and(|leaf| leaf.state >= VdevState::Degraded);
    let leaves = tree.leaf_guids().into_iter().filter(serves);
    leaves.filter_map(|guid| Some((guid, Arc::downgrade(&tree.device(guid)?)))).collect()
}

impl Run {
    /// Whether a leaf that lacks data has all of it when this scan has ended. Data missed during a resilver
    /// is restored by the next resilver, but a scrub must not delay it, and a paused scan restores none.
    fn brings(&self, leaf: VdevGuid, missing: &RangeSet) -> bool {
        let range = self.phys.min_txg.0 + 1..self.phys.max_txg.0 + 1;
        let in_range: u64 = missing.overlap(&range).iter().map(|part| part.end - part.start).sum();
        let is_resilver = self.phys.func == ScanFunc::Resilver;
        self.served.contains_key(&leaf)
            && (is_resilver || (!self.phys.is_paused() && in_range == missing.total()))
    }

    /// Whether a scrub may run to its end before the leaf is resilvered: the leaf was in service all the
    /// time, and has missed only a few writes since.
    fn may_end(&self, leaf: VdevGuid, missing: &RangeSet) -> bool {
        let before = 0..self.phys.min_txg.0 + 1;
        self.phys.func == ScanFunc::Scrub
            && !self.phys.is_paused()
            && self.served.contains_key(&leaf)
            && missing.overlap(&before).is_empty()
    }

    pub(crate) fn progress(&self) -> ScanProgress {
        ScanProgress {
            phys: self.phys,
            issued: self.issued,
            pass_start: self.pass_start,
            pass_examined: self.pass_examined,
            pass_issued: self.pass_issued,
            paused_since: self.paused_since,
            spent_paused: self.spent_paused,
        }
    }
}

/// The scans of a pool.
#[derive(Debug, Default)]
pub(crate) struct Scans {
    pub(crate) run: Mutex<Option<Run>>,
    /// Leaves that a resilver could not complete since they came into service.
    pub(crate) hopeless: Mutex<HashSet<VdevGuid>>,
    /// Notes of blocks that readers could not read.
    pub(crate) notes: Arc<notes::Notes>,
}

impl Scans {
    /// Progress of the active or paused scan; `None`: the state on disk is complete.
    pub(crate) fn progress(&self) -> Option<ScanProgress> {
        lock(&self.run).as_ref().map(Run::progress)
    }

    /// Whether a leaf in service lacks data that the active scan does not restore and a resilver could.
    pub(crate) fn is_resilver_due(&self, tree: &VdevTree) -> bool {
        self.lacks_something(tree, Run::brings)
    }

    /// Whether a resilver must start at once, although a scrub is active.
    pub(crate) fn is_resilver_urgent(&self, tree: &VdevTree) -> bool {
        self.lacks_something(tree, |run, leaf, missing| {
            run.brings(leaf, missing) || run.may_end(leaf, missing)
        })
    }

    fn lacks_something(
        &self,
        tree: &VdevTree,
        is_seen_to: impl Fn(&Run, VdevGuid, &RangeSet) -> bool,
    ) -> bool {
        let hopeless = lock(&self.hopeless).clone();
        let run = lock(&self.run);
        in_service(tree).into_keys().any(|leaf| {
            let missing = tree.dtl(leaf);
            let is_seen_to = run.as_ref().is_some_and(|run| is_seen_to(run, leaf, &missing));
            !missing.is_empty() && !hopeless.contains(&leaf) && !is_seen_to
        })
    }

    /// Follows a leaf that gets another guid.
    pub(crate) fn rename(&self, now: VdevGuid, former: VdevGuid) {
        if lock(&self.hopeless).remove(&former) {
            lock(&self.hopeless).insert(now);
        }
        if let Some(run) = lock(&self.run).as_mut()
            && let Some(device) = run.served.remove(&former)
        {
            run.served.insert(now, device);
        }
    }

    /// Forgets a leaf that has left the pool.
    pub(crate) fn forget_leaf(&self, leaf: VdevGuid) {
        lock(&self.hopeless).remove(&leaf);
        if let Some(run) = lock(&self.run).as_mut() {
            run.served.remove(&leaf);
        }
    }

    /// Notes that a leaf is back, so that a resilver can restore its data.
    pub(crate) fn note_back(&self, leaf: VdevGuid) {
        lock(&self.hopeless).remove(&leaf);
    }

    /// Notes of blocks that readers could not read.
    pub(crate) fn notes(&self) -> &Arc<notes::Notes> {
        &self.notes
    }

    /// Allows all leaves to be resilvered again.
    pub(crate) fn forget_hopeless(&self) {
        lock(&self.hopeless).clear();
    }
}
