//! Making written blocks durable.
//!
//! Called by `zio` after the blocks of a txg or of a log have been written, and by [`super::dtl`] before a
//! DTL is cleared.
//!
//! # What always holds
//! - When [`VdevTree::flush`] returns without error, every block that was written after its mark is durable
//!   on enough leaves to be read, also if flushes of other threads are running or have failed.
//! - A failed flush is not repeated: systems report a lost write once and then forget it. All data written to
//!   the leaf since its last flush counts as missed, and so do the writes that are in flight meanwhile.
//!
//! Lock order: the `flushing` locks of leaves by guid, then `losses`, then a leaf's other locks.

use super::error::VdevError;
use super::leaf::{Leaf, Unflushed};
use super::node::{Body, Vdev, VdevTree};
use super::range_set::RangeSet;
use crate::device::{Device, DeviceError, flush_across, flush_is_supported};
use format::{VdevGuid, VdevId};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

/// A point in time of a tree. Data written after it is not reported as durable if a flush of any thread has
/// failed since.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark(pub(super) u64);

impl VdevTree {
    /// The present point in time. Taken before the first of the writes that a flush is to make durable.
    pub fn mark(&self) -> Mark {
        Mark(self.losses().count)
    }

    /// Makes the blocks written to these top-level vdevs durable: flushes the volatile caches of all their
    /// leaves that were written since their last flush. A leaf that fails counts as having missed all of
    /// them.
    ///
    /// # Errors
    /// [`VdevError::NotFlushed`] if a vdev may thereby have lost a block, now or in a flush of any thread
    /// since `since`: a device reports a loss once, and to one thread.
    ///
    /// Labels are written to devices directly and not covered here: [`VdevTree::flush_leaves`].
    pub fn flush(&self, tops: &[VdevId], since: Mark) -> Result<(), VdevError> {
        let mut leaves = BTreeMap::new();
        for top in tops {
            let mut below = Vec::new();
            self.find_top(*top)?.vdev.leaves(&mut below);
            leaves.extend(below.into_iter().map(|leaf| (leaf.guid.0, leaf)));
        }
        self.flush_each(&leaves, |unflushed| !unflushed.is_empty());
        let losses = self.losses();
        let is_lossy = |top: &&VdevId| losses.of_tops.get(*top).is_some_and(|last| *last > since.0);
        tops.iter().find(is_lossy).map_or(Ok(()), |top| Err(VdevError::NotFlushed { vdev: *top }))
    }

    /// Flushes the devices of leaves, whether blocks were written to them or not: used after labels were
    /// written. The result for a leaf without a device is [`DeviceError::Gone`].
    pub fn flush_leaves(&self, leaves: &[VdevGuid]) -> Vec<Result<(), DeviceError>> {
        let known = leaves.iter().filter_map(|guid| Some((guid.0, self.leaf(*guid)?))).collect();
        let results = self.flush_each(&known, |_| true);
        let result = |leaf: &VdevGuid| results.get(&leaf.0).cloned().unwrap_or(Err(DeviceError::Gone));
        leaves.iter().map(result).collect()
    }

    /// Flushes the leaves whose unflushed blocks `is_wanted` selects, and notes the losses.
    fn flush_each(
        &self,
        leaves: &BTreeMap<u64, &Leaf>,
        is_wanted: impl Fn(&Unflushed) -> bool,
    ) -> BTreeMap<u64, Result<(), DeviceError>> {
        let _flushing: Vec<_> = leaves.values().map(|leaf| leaf.memory().start_flush()).collect();
        let taken = leaves.values().map(|leaf| (*leaf, leaf.memory().unflushed().take()));
        let mut taken: Vec<(&Leaf, Unflushed)> =
            taken.filter(|(_, unflushed)| is_wanted(unflushed)).collect();
        let devices: Vec<&dyn Device> =
            taken.iter().filter_map(|(leaf, _)| Some(&**leaf.device()?)).collect();
        let mut flushed = flush_across(&devices).into_iter();
        let mut results = BTreeMap::new();
        for (leaf, unflushed) in &mut taken {
            let result = leaf.device().and_then(|_| flushed.next()).unwrap_or(Err(DeviceError::Gone));
            let result = flush_is_supported(result);
            if let Err(error) = &result {
                unflushed.add_meanwhile(&leaf.memory().unflushed());
                if leaf.device().is_some() || !unflushed.is_empty() {
                    leaf.lose(unflushed, error);
                }
            }
            results.insert(leaf.guid.0, result);
        }
        self.note_losses(&taken, &results);
        results
    }

    /// Determines which vdevs may have lost a block by the losses of these leaves. Writes that leaves failed
    /// to take were judged at that time; together with the new losses it may be too many.
    fn note_losses(&self, taken: &[(&Leaf, Unflushed)], results: &BTreeMap<u64, Result<(), DeviceError>>) {
        if results.values().all(Result::is_ok) {
            return;
        }
        let mut losses = self.losses();
        losses.count += 1;
        let number = losses.count;
        let failed = |guid: u64| results.get(&guid).is_some_and(Result::is_err);
        losses.of_leaves.extend(results.keys().filter(|guid| failed(**guid)).map(|guid| (*guid, number)));
        for top in &self.tops {
            let mut leaves = Vec::new();
            top.vdev.leaves(&mut leaves);
            let is_here = |guid: VdevGuid| leaves.iter().any(|leaf| leaf.guid == guid);
            let mut births = RangeSet::new();
            taken.iter().filter(|(leaf, _)| is_here(leaf.guid)).for_each(|(_, u)| births.merge(&u.written));
            if leaves.iter().any(|leaf| failed(leaf.guid.0))
                && !births.is_empty()
                && !top.vdev.has_kept(&births)
            {
                losses.of_tops.insert(top.id, number);
            }
        }
    }

    /// Whether a flush has failed since the last call, so that a leaf has lost writes that it had taken.
    pub fn take_has_lost(&self) -> bool {
        let states = self.all_leaf_states();
        // `count` visits each leaf, so that every flag is reset.
        states.iter().filter(|leaf| leaf.memory.has_lost.swap(false, Ordering::AcqRel)).count() > 0
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
    /// Notes that the leaf lost all writes since the last flush.
    fn lose(&self, unflushed: &Unflushed, error: &DeviceError) {
        tracing::warn!(leaf = %self.guid, %error, "flush failed");
        self.counters().write_errors.fetch_add(1, Ordering::Relaxed);
        if !unflushed.is_empty() {
            self.memory().change_missed(|missed| {
                missed.merge(&unflushed.written);
                missed.merge(&unflushed.repaired);
            });
            self.memory().has_lost.store(true, Ordering::Release);
        }
    }
}
