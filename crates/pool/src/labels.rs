//! The commit of a txg: labels and uberblocks, written in the order that makes a crash at any point harmless
//! (docs/on-disk/10-overview.md, section 6).
//!
//! # What always holds
//! - All blocks that the uberblock references are flushed before the uberblock is written.
//! - Until the uberblock is written, labels 1 and 3 match the old uberblock; afterwards labels 0 and 2 match
//!   the new one.
//! - A step that fails is repeated once. If it fails again, the next step waits until devices are back.
//!
//! # Order
//! flush data -> labels 0 and 2 of changed vdevs, flush -> uberblock in all labels, flush -> labels 1 and 3,
//! flush.

use crate::error::{CommitFailure, CommitStep, PoolError};
use format::config::{PoolConfig, VdevKind, VdevNode};
use format::uberblock::Uberblock;
use format::{Ashift, Txg, VdevGuid, VdevId};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use vdev::Device;
use vdev::label_write::{LabelWriteError, PackedConfig, write_configs, write_uberblocks};
use zio::Zio;

/// Number of top-level vdevs that get the uberblock of a txg without a change of the configuration.
const UBERBLOCK_TOPS: usize = 3;

/// The input of a commit.
pub(crate) struct Commit<'a> {
    pub(crate) zio: &'a Zio,
    /// Configuration of the whole pool, as of this txg.
    pub(crate) config: &'a PoolConfig,
    pub(crate) uberblock: &'a Uberblock,
    /// Top-level vdevs whose labels change.
    pub(crate) dirty: &'a BTreeSet<VdevId>,
    /// Leaves that are left as they are.
    pub(crate) skip: &'a [VdevGuid],
    /// A random number that selects the vdevs which get the uberblock, if not all do.
    pub(crate) turn: u64,
    /// Waits until a failed step may be repeated; returns false if it never may.
    pub(crate) waits: &'a dyn Fn(&PoolError) -> bool,
}

/// The configuration of each leaf, packed once for all of its labels.
type Configs = HashMap<VdevGuid, Result<PackedConfig, LabelWriteError>>;

/// A leaf that can be written.
struct Target {
    device: Arc<dyn Device>,
    guid: VdevGuid,
    top: VdevId,
    ashift: Ashift,
}

/// The leaves of a top-level vdev whose labels are written.
pub(crate) fn writable_leaves(top: &VdevNode) -> impl Iterator<Item = &VdevNode> {
    let is_device = |n: &&VdevNode| matches!(n.kind, VdevKind::Disk | VdevKind::File);
    let is_in_service = |n: &&VdevNode| !(n.offline || n.faulted || n.removed);
    top.leaves().filter(is_device).filter(is_in_service)
}

impl Commit<'_> {
    /// Runs all steps. On success the txg is the state of the pool.
    pub(crate) fn run(&self) -> Result<(), PoolError> {
        let configs = self.configs();
        self.zio
            .flush_written()
            .map_err(|cause| self.failed(CommitStep::Flush, CommitFailure::Flush(cause)))?;
        self.twice(CommitStep::EvenLabels, || self.write_labels(&configs, &[0, 2]))?;
        self.twice(CommitStep::Uberblock, || self.write_uberblock())?;
        self.twice(CommitStep::OddLabels, || self.write_labels(&configs, &[1, 3]))
    }

    fn failed(&self, step: CommitStep, why: CommitFailure) -> PoolError {
        PoolError::Commit { txg: self.uberblock.txg, step, why }
    }

    /// Runs a step, and repeats it once if it fails. If it fails again, it starts over once devices are back.
    fn twice(&self, step: CommitStep, work: impl Fn() -> Result<(), CommitFailure>) -> Result<(), PoolError> {
        loop {
            let done = work().or_else(|first| {
                tracing::warn!(pool = self.config.name, what = %step, %first, "writing labels again");
                work()
            });
            let Err(why) = done else { return Ok(()) };
            let error = self.failed(step, why);
            if !(self.waits)(&error) {
                return Err(error);
            }
        }
    }

    fn targets(&self, wanted: impl Fn(VdevId) -> bool) -> Vec<Target> {
        let mut all = Vec::new();
        let tree = self.zio.tree();
        for top in &self.config.vdev_tree.children {
            let vdev = VdevId(top.id);
            if !wanted(vdev) {
                continue;
            }
            for leaf in writable_leaves(top).filter(|leaf| !self.skip.contains(&leaf.guid)) {
                if let Some(device) = tree.device(leaf.guid) {
                    let ashift = top.ashift.unwrap_or(Ashift(9));
                    let guid = leaf.guid;
                    all.push(Target { device, guid, top: vdev, ashift });
                }
            }
        }
        all
    }

    /// The configurations that the leaves of the changed vdevs get.
    fn configs(&self) -> Configs {
        let tops = &self.config.vdev_tree.children;
        let changed = tops.iter().filter(|top| self.dirty.contains(&VdevId(top.id)));
        let pack = |leaf: &VdevNode| {
            let list = self.config.label(leaf.guid, self.uberblock.txg).unwrap_or_default();
            (leaf.guid, PackedConfig::new(&list))
        };
        changed.flat_map(writable_leaves).map(pack).collect()
    }

    fn write_labels(&self, configs: &Configs, labels: &[usize]) -> Result<(), CommitFailure> {
        let targets = self.targets(|vdev| self.dirty.contains(&vdev));
        if targets.is_empty() {
            return Ok(());
        }
        let leaves: Vec<(&dyn Device, &Result<PackedConfig, LabelWriteError>)> =
            targets.iter().map(|target| (&*target.device, &configs[&target.guid])).collect();
        let written = write_configs(&leaves, labels);
        let mut is_good: Vec<bool> = written.iter().map(Result::is_ok).collect();
        self.flush(&targets, &mut is_good);
        let tops = self.config.vdev_tree.children.iter().filter(|top| !top.is_log);
        let mut needed = tops.map(|top| VdevId(top.id)).filter(|vdev| self.dirty.contains(vdev));
        let good = |vdev: &VdevId| targets.iter().zip(&is_good).any(|(t, good)| t.top == *vdev && *good);
        match needed.find(|vdev| !good(vdev)) {
            None => Ok(()),
            Some(vdev) => {
                let of_vdev = targets.iter().zip(written).filter(|(target, _)| target.top == vdev);
                let first = of_vdev.filter_map(|(_, written)| written.err()).next();
                Err(match first {
                    Some(cause) => CommitFailure::Label { vdev, cause },
                    None => CommitFailure::LabelFlush { vdev },
                })
            }
        }
    }

    /// Flushes the devices, and clears `is_good` for each one whose flush failed.
    fn flush(&self, targets: &[Target], is_good: &mut [bool]) {
        let guids: Vec<VdevGuid> = targets.iter().map(|target| target.guid).collect();
        for (good, flushed) in is_good.iter_mut().zip(self.zio.tree().flush_leaves(&guids)) {
            *good &= flushed.is_ok();
        }
    }

    /// Writes the uberblock to some vdevs; if none of them takes it, to all.
    fn write_uberblock(&self) -> Result<(), CommitFailure> {
        let some = self.uberblock_tops();
        self.write_uberblock_to(&some).or_else(|_| self.write_uberblock_to(&all_tops(&self.config.vdev_tree)))
    }

    fn write_uberblock_to(&self, tops: &BTreeSet<VdevId>) -> Result<(), CommitFailure> {
        let targets = self.targets(|vdev| tops.contains(&vdev));
        let leaves: Vec<(&dyn Device, Ashift)> =
            targets.iter().map(|target| (&*target.device, target.ashift)).collect();
        let mut is_good: Vec<bool> =
            write_uberblocks(&leaves, self.uberblock).into_iter().map(|count| count > 0).collect();
        self.flush(&targets, &mut is_good);
        // After a crash, a vdev that this very txg adds is not searched for an uberblock.
        let is_old = |target: &Target| {
            let top = &self.config.vdev_tree.children[target.top.0 as usize];
            top.create_txg < self.uberblock.txg || self.uberblock.txg <= FIRST_TXG
        };
        let written = targets.iter().zip(&is_good).any(|(target, good)| *good && is_old(target));
        if written { Ok(()) } else { Err(CommitFailure::NoUberblock) }
    }

    /// All vdevs if a configuration changed, otherwise some: one is enough, and seeking costs time.
    fn uberblock_tops(&self) -> BTreeSet<VdevId> {
        let concrete: Vec<VdevId> = self
            .config
            .vdev_tree
            .children
            .iter()
            .filter(|top| !matches!(top.kind, VdevKind::Hole | VdevKind::Indirect | VdevKind::Missing))
            .filter(|top| !self.dirty.is_empty() || !top.is_log)
            .map(|top| VdevId(top.id))
            .collect();
        if !self.dirty.is_empty() || concrete.len() <= UBERBLOCK_TOPS {
            return concrete.into_iter().collect();
        }
        let first = (self.turn % concrete.len() as u64) as usize;
        concrete.iter().cycle().skip(first).take(UBERBLOCK_TOPS).copied().collect()
    }
}

/// The first txg of a pool.
pub(crate) const FIRST_TXG: Txg = Txg(4);

/// All top-level vdevs that have labels.
pub(crate) fn all_tops(root: &VdevNode) -> BTreeSet<VdevId> {
    let has_labels = |top: &&VdevNode| !matches!(top.kind, VdevKind::Hole | VdevKind::Indirect);
    root.children.iter().filter(has_labels).map(|top| VdevId(top.id)).collect()
}
