//! What surrounds writing: making it durable, repairing, remembering what leaves missed, changing the
//! configuration of an open pool.
//!
//! # What always holds
//! - When `flush` returns without error, every block whose write returned before is durable on enough
//!   leaves to be read, also if another thread's flush was under way.
//! - A flush that failed is not tried again: systems report a lost write once and then forget it. What
//!   was written to the leaf since its last flush counts as missed.
//!
//! Lock order: the `flushing` locks of leaves by guid, then a leaf's other locks.

use super::leaf::{Leaf, Memory, Trust, Unflushed};
use super::{
    Body, Builder, Extent, Fault, FaultKind, RangeSet, Standing, Top, Vdev, VdevError, VdevTree, Write,
};
use crate::device::{Device, DeviceError, flush_across};
use format::config::VdevNode;
use format::{VdevGuid, VdevId};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl VdevTree {
    /// Makes durable what was written to these top-level vdevs: flushes the volatile caches of all their
    /// leaves that were written since their last flush. A leaf that fails counts as having missed all
    /// of that. [`VdevError::NotFlushed`] if a vdev may thereby have lost a block.
    ///
    /// Labels are written to devices directly and not seen here: [`VdevTree::flush_leaves`].
    pub fn flush(&self, tops: &[VdevId]) -> Result<(), VdevError> {
        let tops: Vec<&Top> = tops.iter().map(|top| self.find_top(*top)).collect::<Result<_, _>>()?;
        let mut leaves: BTreeMap<u64, &Leaf> = BTreeMap::new();
        for top in &tops {
            let mut below = Vec::new();
            top.vdev.leaves(&mut below);
            leaves.extend(below.into_iter().map(|leaf| (leaf.guid.0, leaf)));
        }
        let _flushing: Vec<_> = leaves.values().map(|leaf| leaf.memory().start_flush()).collect();
        let mut devices: Vec<&dyn Device> = Vec::new();
        let mut taken: Vec<(&Leaf, Unflushed)> = Vec::new();
        let (mut births, mut is_lossy) = (RangeSet::new(), false);
        for leaf in leaves.into_values() {
            let unflushed = std::mem::take(&mut *leaf.memory().unflushed());
            births.merge(&unflushed.written);
            match leaf.device() {
                _ if unflushed.is_empty() => {}
                Some(device) => {
                    devices.push(&**device);
                    taken.push((leaf, unflushed));
                }
                None => {
                    leaf.lose(&unflushed, &DeviceError::Gone);
                    is_lossy = true;
                }
            }
        }
        for ((leaf, unflushed), result) in taken.iter().zip(flush_across(&devices)) {
            if let Err(error) = result.or_else(unsupported_is_fine) {
                leaf.lose(unflushed, &error);
                is_lossy = true;
            }
        }
        // What leaves failed to take was judged when it was written; together with what is lost now it may
        // be too much.
        match tops.iter().find(|top| is_lossy && !top.vdev.has_kept(&births)) {
            Some(top) => Err(VdevError::NotFlushed { vdev: top.id }),
            None => Ok(()),
        }
    }

    /// Flushes the devices of leaves, whether blocks were written to them or not: after labels were. A
    /// leaf without a device has the outcome [`DeviceError::Gone`].
    pub fn flush_leaves(&self, leaves: &[VdevGuid]) -> Vec<Result<(), DeviceError>> {
        let open: Vec<_> = leaves.iter().map(|leaf| self.device(*leaf)).collect();
        let devices: Vec<&dyn Device> = open.iter().flatten().map(|device| &**device).collect();
        let mut results = flush_across(&devices).into_iter();
        let mut result = |is_open: bool| if is_open { results.next() } else { None };
        open.iter()
            .map(|device| result(device.is_some()).unwrap_or(Err(DeviceError::Gone)))
            .map(|result| result.or_else(unsupported_is_fine))
            .collect()
    }

    /// Writes a block that was read and verified back to the leaves that gave wrong bytes or none, as
    /// the `faults` of that read name them. A leaf that cannot be repaired keeps the block's txg in its
    /// DTL. Does nothing on vdevs that cannot be written.
    pub fn repair(&self, at: &Extent, data: &[u8], faults: &[Fault]) {
        let wrong: BTreeSet<VdevGuid> =
            faults.iter().filter(|fault| fault.kind != FaultKind::Missing).map(|fault| fault.leaf).collect();
        if !wrong.is_empty() {
            // Whether the other leaves have the block was known before.
            self.write_to(&[Write { at: *at, data }], &|leaf| wrong.contains(&leaf.guid), true);
        }
    }

    /// Writes a verified block to those of its leaves that are in service and did not have it: what
    /// resilvering does. The txg stays in their DTLs until [`VdevTree::forgive`].
    pub fn resilver(&self, at: &Extent, data: &[u8]) -> Result<(), VdevError> {
        let is_stale = |leaf: &Leaf| leaf.trust(at.birth) == Trust::Stale;
        let write = [Write { at: *at, data }];
        let written = self.write_to(&write, &is_stale, true);
        match written.results.into_iter().next() {
            Some(Err(error)) if !matches!(error, VdevError::NotWritten { .. }) => Err(error),
            _ if written.is_complete => Ok(()),
            _ => Err(VdevError::NotWritten { vdev: at.vdev }),
        }
    }

    /// What a leaf missed: what [`VdevTree::set_dtl`] gave, and writes since that failed or were not tried
    /// because it is missing. Empty for an unknown leaf.
    pub fn dtl(&self, leaf: VdevGuid) -> RangeSet {
        self.standing(leaf).map(|standing| (*standing.memory.missed()).clone()).unwrap_or_default()
    }

    /// The leaves whose DTL has changed since the last call.
    pub fn take_changed_dtls(&self) -> Vec<VdevGuid> {
        let standings = self.all_standings();
        let changed = standings.iter().filter(|standing| standing.memory.take_missed_changed());
        changed.map(|standing| standing.guid).collect()
    }

    /// Takes txgs out of a leaf's DTL, after it got everything that was written in them.
    pub fn forgive(&self, leaf: VdevGuid, txgs: Range<u64>) {
        if let Some(standing) = self.standing(leaf)
            && standing.memory.missed().intersects(&RangeSet::from_iter([txgs.clone()]))
        {
            standing.memory.change_missed(|missed| missed.remove(txgs));
        }
    }

    fn all_standings(&self) -> Vec<&Standing> {
        let mut standings = Vec::new();
        self.tops.iter().for_each(|top| top.vdev.standings(&mut standings));
        standings
    }

    fn standing(&self, leaf: VdevGuid) -> Option<&Standing> {
        self.all_standings().into_iter().find(|standing| standing.guid == leaf)
    }

    /// This tree with a changed configuration: vdevs added, grown or gone, paths, states. Leaves that were
    /// there before keep their device (unless `new_devices` has one for them), their counters, their
    /// DTL and what is to be flushed; removed vdevs keep their mapping. Calls that still use the old tree
    /// count on the same leaves.
    pub fn reconfigured(
        &self,
        root: &VdevNode,
        new_devices: &HashMap<VdevGuid, Arc<dyn Device>>,
    ) -> Result<Arc<VdevTree>, VdevError> {
        let memory_of = |standing: &Standing| (standing.guid, Arc::clone(&standing.memory));
        let memories: HashMap<VdevGuid, Arc<Memory>> =
            self.all_standings().into_iter().map(memory_of).collect();
        let mut leaves = Vec::new();
        self.tops.iter().for_each(|top| top.vdev.leaves(&mut leaves));
        let mut devices: HashMap<VdevGuid, Arc<dyn Device>> =
            leaves.iter().filter_map(|leaf| Some((leaf.guid, Arc::clone(leaf.device()?)))).collect();
        devices.extend(new_devices.iter().map(|(guid, device)| (*guid, Arc::clone(device))));
        let tree = VdevTree::build(root, &Builder { devices: &devices, reflow: self.reflow, memories })?;
        for (id, node) in self.tops() {
            if let Some(mapping) = self.indirect(id)
                && tree.top(id).is_some_and(|now| now.guid == node.guid)
            {
                tree.set_mapping(id, mapping);
            }
        }
        Ok(tree)
    }
}

impl Vdev {
    /// Whether blocks of these births are on enough leaves.
    fn has_kept(&self, births: &RangeSet) -> bool {
        let lost = |children: &[Vdev]| children.iter().filter(|child| !child.has_kept(births)).count();
        match &self.body {
            Body::Leaf(leaf) => leaf.in_service().is_some() && !leaf.memory().missed().intersects(births),
            Body::Mirror(children) => lost(children) < children.len(),
            Body::Raidz(raidz, children) => lost(children) <= raidz.nparity(),
            Body::Draid(draid, children) => lost(children) <= usize::from(draid.params().nparity),
            Body::DistributedSpare(_) | Body::Indirect | Body::Hole => false,
        }
    }
}

impl Leaf {
    /// Notes that nothing written since the last flush is on the leaf.
    fn lose(&self, unflushed: &Unflushed, error: &DeviceError) {
        tracing::warn!(leaf = %self.guid, %error, "flush failed");
        self.counters().write_errors.fetch_add(1, Ordering::Relaxed);
        self.memory().change_missed(|missed| {
            missed.merge(&unflushed.written);
            missed.merge(&unflushed.repaired);
        });
    }
}

/// A device without a volatile cache has nothing to flush.
fn unsupported_is_fine(error: DeviceError) -> Result<(), DeviceError> {
    match error {
        DeviceError::Io { cause: Errno::OPNOTSUPP, .. } => Ok(()),
        error => Err(error),
    }
}
