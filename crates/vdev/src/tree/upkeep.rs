//! What surrounds writing: making it durable, repairing, remembering what leaves missed, changing the
//! configuration of an open pool.
//!
//! # What always holds
//! - When `flush` returns without error, every block whose write began after its mark and has returned is
//!   durable on enough leaves to be read, also if flushes of other threads are under way or have failed.
//! - A flush that failed is not tried again: systems report a lost write once and then forget it. What
//!   was written to the leaf since its last flush counts as missed, and so does what is being written to it meanwhile.
//!
//! Lock order: the `flushing` locks of leaves by guid, then `losses`, then a leaf's other locks.

use super::block::{Extent, Fault, FaultKind};
use super::error::VdevError;
use super::leaf::{Leaf, Standing, Trust, Unflushed};
use super::node::{Body, Vdev, VdevTree};
use super::range_set::RangeSet;
use super::write::Write;
use crate::device::{Device, DeviceError, flush_across, flush_is_supported};
use format::{Txg, VdevGuid, VdevId};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::atomic::Ordering;

/// A moment in the life of a tree. What was written after it is not called durable if a flush has failed
/// since, whichever thread made that flush.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark(u64);

impl VdevTree {
    /// To be taken before the first of the writes that a flush is to make durable.
    pub fn mark(&self) -> Mark {
        Mark(self.losses().count)
    }

    /// Makes durable what was written to these top-level vdevs: flushes the volatile caches of all their
    /// leaves that were written since their last flush. A leaf that fails counts as having missed all
    /// of that.
    ///
    /// # Errors
    /// [`VdevError::NotFlushed`] if a vdev may thereby have lost a block, now or in a flush of any thread since
    /// `since`: a device reports that it lost something once, and to one.
    ///
    /// Labels are written to devices directly and not seen here: [`VdevTree::flush_leaves`].
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

    /// Flushes the devices of leaves, whether blocks were written to them or not: after labels were. A
    /// leaf without a device has the outcome [`DeviceError::Gone`].
    pub fn flush_leaves(&self, leaves: &[VdevGuid]) -> Vec<Result<(), DeviceError>> {
        let known = leaves.iter().filter_map(|guid| Some((guid.0, self.leaf(*guid)?))).collect();
        let results = self.flush_each(&known, |_| true);
        let result = |leaf: &VdevGuid| results.get(&leaf.0).cloned().unwrap_or(Err(DeviceError::Gone));
        leaves.iter().map(result).collect()
    }

    /// Flushes those of the leaves whose unflushed blocks `is_wanted` names, and notes what they lost.
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

    /// Which vdevs may have lost a block with what these leaves lost. What leaves failed to take was judged
    /// when it was written; together with what is lost now it may be too much.
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
    ///
    /// # Errors
    /// [`VdevError`] if the block cannot be written at all, or a leaf that lacks it did not take it.
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

    /// Whether a leaf that is in service lacks blocks that were born in this txg on this vdev, so that
    /// [`VdevTree::resilver`] has something to do.
    pub fn lacks(&self, vdev: VdevId, birth: Txg) -> bool {
        self.find_top(vdev).is_ok_and(|top| {
            let mut leaves = Vec::new();
            top.vdev.leaves(&mut leaves);
            leaves.iter().any(|leaf| leaf.trust(birth) == Trust::Stale)
        })
    }

    /// Bytes that were written over wrong ones, or to leaves that lacked them, since the pool was opened.
    pub fn repaired_bytes(&self) -> u64 {
        let of_leaf = |standing: &&Standing| standing.memory.counters.repaired_bytes.load(Ordering::Relaxed);
        self.all_standings().iter().map(of_leaf).sum()
    }

    /// What a leaf missed: what [`VdevTree::set_dtl`] gave, and writes since that failed or were not tried
    /// because it is missing. Empty for an unknown leaf.
    pub fn dtl(&self, leaf: VdevGuid) -> RangeSet {
        self.standing(leaf).map(|standing| (*standing.memory.missed()).clone()).unwrap_or_default()
    }

    /// Notes that nothing that was written in these txgs is on a leaf, although the writes were reported as
    /// done, and counts one error of writing.
    pub fn miss(&self, leaf: VdevGuid, txgs: Range<u64>) {
        let Some(standing) = self.standing(leaf) else { return };
        standing.memory.counters.write_errors.fetch_add(1, Ordering::Relaxed);
        self.note_missed(leaf, txgs);
    }

    /// The same of a leaf that has done nothing wrong: its device is another than before.
    pub fn note_missed(&self, leaf: VdevGuid, txgs: Range<u64>) {
        if let Some(standing) = self.standing(leaf).filter(|_| !txgs.is_empty()) {
            standing.memory.change_missed(|missed| missed.insert(txgs));
        }
    }

    /// The leaves whose DTL has changed since the last call.
    pub fn take_changed_dtls(&self) -> Vec<VdevGuid> {
        let standings = self.all_standings();
        let changed = standings.iter().filter(|standing| standing.memory.take_missed_changed());
        changed.map(|standing| standing.guid).collect()
    }

    /// Whether a flush has failed since the last call, and a leaf has lost something that it had taken.
    pub fn take_has_lost(&self) -> bool {
        let standings = self.all_standings();
        // Each of them is asked.
        standings.iter().filter(|leaf| leaf.memory.has_lost.swap(false, Ordering::AcqRel)).count() > 0
    }

    /// Takes txgs out of a leaf's DTL, after it got everything that was written in them, since `since` or
    /// before the DTL was there; but for those of which something failed since [`VdevTree::begin_repairs`]. Flushes
    /// the leaf first: what it only has in its cache it does not have.
    ///
    /// # Errors
    /// If the leaf could not be flushed, now or since `since`. Its DTL stays.
    pub fn forgive(&self, leaf: VdevGuid, txgs: Range<u64>, since: Mark) -> Result<(), DeviceError> {
        let Some(standing) = self.standing(leaf) else { return Ok(()) };
        self.flush_leaves(&[leaf]).pop().unwrap_or(Ok(()))?;
        if self.losses().of_leaves.get(&leaf.0).is_some_and(|last| *last > since.0) {
            return Err(DeviceError::NotWritten);
        }
        let before = standing.memory.missed();
        if before.intersects(&RangeSet::from_iter([txgs.clone()])) {
            let kept = standing.memory.unrepaired();
            standing.memory.change_missed(|missed| {
                missed.remove(txgs.clone());
                for range in kept.iter() {
                    let (start, end) = (range.start.max(txgs.start), range.end.min(txgs.end));
                    (start..end)
                        .filter(|txg| before.contains(*txg))
                        .for_each(|txg| missed.insert(txg..txg + 1));
                }
            });
        }
        Ok(())
    }

    /// Whether writes to a leaf have failed because its device was not there, since the last call.
    pub fn take_was_gone(&self, leaf: VdevGuid) -> bool {
        self.standing(leaf).is_some_and(|standing| standing.memory.was_gone.swap(false, Ordering::AcqRel))
    }

    /// A run over what leaves lack begins: what earlier runs could not bring to them counts no more.
    pub fn begin_repairs(&self) {
        self.all_standings().iter().for_each(|standing| standing.memory.forget_unrepaired());
    }

    /// Notes that a block born in this txg cannot be read, so that leaves that lack it do not get it:
    /// [`VdevTree::forgive`] leaves that txg in their DTLs.
    pub fn note_unreadable(&self, birth: Txg) {
        let standings = self.all_standings();
        let lacking = standings.iter().filter(|standing| standing.memory.missed().contains(birth.0));
        lacking.for_each(|standing| standing.memory.note_unrepaired(birth));
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
        if !unflushed.is_empty() {
            self.memory().change_missed(|missed| {
                missed.merge(&unflushed.written);
                missed.merge(&unflushed.repaired);
            });
            self.memory().has_lost.store(true, Ordering::Release);
        }
    }
}
