//! State of a scrub or resilver, in memory and on disk. The work itself is in `scrub`
//! (docs/on-disk/14-vdevs.md, sections 7 and 9; docs/on-disk/22-mos-dsl.md, sections 11 and 12).
//!
//! A scan goes over all blocks that were there when it began, each once, in slices. A slice takes the state
//! of the last txg, walks on from where the one before has ended, reads every copy of the blocks that it
//! meets, parity included, and writes over what is wrong; leaves that lack a block get it. How far it is goes
//! to disk every few seconds, so that it goes on after the pool was closed, or the power.
//!
//! # Order of a scan
//! The pool's own objects; the snapshots that there were at its begin, by the txgs of their making; the
//! heads, by number; snapshots that were made meanwhile, for what only they hold. What a dataset shares with
//! the snapshot before is passed over. This order does not change when datasets are made, renamed, promoted
//! or destroyed: what a destroyed snapshot held alone is gone, and what it shared with the next belongs to
//! that one, which comes later.
//!
//! # What always holds
//! - Nothing counts as done before it is durable.
//! - A leaf that lacks something is resilvered: a scrub that does not bring it all of that, as one that is
//!   paused, ends. It goes on to its end if the leaf was in service all the time and has only failed to take
//!   a write; then comes a resilver.
//! - A leaf's DTL is cleared only of what it got: it was in service all the time, with the same device, and
//!   nothing failed.
//! - On disk other implementations find a scan that has just begun, of the same range: it names no dataset
//!   that could be destroyed. How far it really is stands in an entry of our own
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

/// How far a scan has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Position {
    /// Part of the order above, from 0.
    pub(crate) pass: u64,
    /// The dataset: its txg (of a snapshot) and number.
    pub(crate) at: (Txg, ObjectId),
    /// Position in the dataset.
    pub(crate) place: dmu::traverse::WalkPosition,
}

/// A scan that is under way, or paused.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) phys: ScanPhys,
    pub(crate) position: Position,
    /// Datasets of this pass that are to come; `None`: to be listed.
    pub(crate) targets: Option<VecDeque<(Txg, ObjectId)>>,
    pub(crate) issued: u64,
    pub(crate) pass_start: u64,
    pub(crate) pass_examined: u64,
    pub(crate) pass_issued: u64,
    pub(crate) paused_since: u64,
    pub(crate) spent_paused: u64,
    /// Leaves that were in service since it began, with their devices, which are not kept open for it.
    pub(crate) served: HashMap<VdevGuid, Weak<dyn Device>>,
    /// Something could not be walked, so that leaves may still lack it.
    pub(crate) is_incomplete: bool,
    /// Errors that are not yet in the log.
    pub(crate) errors: Vec<state::Failed>,
    /// When it was last written down.
    pub(crate) saved: Duration,
    pub(crate) mark: Mark,
}

/// The leaves that are in service, with their devices.
pub(crate) fn in_service(tree: &VdevTree) -> HashMap<VdevGuid, Weak<dyn Device>> {
    let status = tree.status();
    let serves = |guid: &VdevGuid| status.find(*guid).is_some_and(|leaf| leaf.state >= VdevState::Degraded);
    let leaves = tree.leaf_guids().into_iter().filter(serves);
    leaves.filter_map(|guid| Some((guid, Arc::downgrade(&tree.device(guid)?)))).collect()
}

impl Run {
    /// Whether a leaf that lacks something gets all of it when this has ended. After a resilver, the next
    /// brings what was missed meanwhile; a scrub is no reason to wait for that, and one that is paused brings
    /// nothing.
    fn brings(&self, leaf: VdevGuid, missing: &RangeSet) -> bool {
        let range = self.phys.min_txg.0 + 1..self.phys.max_txg.0 + 1;
        let in_range: u64 = missing.overlap(&range).iter().map(|part| part.end - part.start).sum();
        let is_resilver = self.phys.func == ScanFunc::Resilver;
        self.served.contains_key(&leaf)
            && (is_resilver || (!self.phys.is_paused() && in_range == missing.total()))
    }

    /// Whether a scrub may end before a leaf gets what it lacks: the leaf was in service all the time, and
    /// has missed only few writes since.
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
    /// Leaves that a resilver has done what it could for, since they came into service.
    pub(crate) hopeless: Mutex<HashSet<VdevGuid>>,
    /// Notes of what programs could not read.
    pub(crate) notes: Arc<notes::Notes>,
}

impl Scans {
    /// How far the scan is that is under way or paused; `None`: what is on disk is all that there is to tell.
    pub(crate) fn progress(&self) -> Option<ScanProgress> {
        lock(&self.run).as_ref().map(Run::progress)
    }

    /// Whether a leaf in service lacks something that the scan under way does not bring to it, and that a
    /// resilver could.
    pub(crate) fn is_resilver_due(&self, tree: &VdevTree) -> bool {
        self.lacks_something(tree, Run::brings)
    }

    /// The same of what a resilver is to bring at once, though a scrub is under way.
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

    /// Notes that a leaf is back, so that a resilver can bring it what it has missed.
    pub(crate) fn note_back(&self, leaf: VdevGuid) {
        lock(&self.hopeless).remove(&leaf);
    }

    /// The notes of what programs could not read.
    pub(crate) fn notes(&self) -> &Arc<notes::Notes> {
        &self.notes
    }

    /// All leaves may be resilvered again.
    pub(crate) fn forget_hopeless(&self) {
        lock(&self.hopeless).clear();
    }
}
