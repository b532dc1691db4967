//! The DTL (dirty time log) of each leaf: the txgs whose blocks it lacks.
//!
//! The pool loads the DTLs with [`VdevTree::set_dtl`], stores those that [`VdevTree::take_changed_dtls`]
//! names once a txg, and clears the txgs that a resilver has restored.

use super::flush::Mark;
use super::node::VdevTree;
use super::range_set::RangeSet;
use crate::device::DeviceError;
use format::VdevGuid;
use std::ops::Range;
use std::sync::atomic::Ordering;

impl VdevTree {
    /// Txgs that a leaf missed: those of [`VdevTree::set_dtl`], and those of later writes that failed or were
    /// skipped because the leaf is missing. Empty for an unknown leaf.
    pub fn dtl(&self, leaf: VdevGuid) -> RangeSet {
        self.state(leaf).map(|state| (*state.memory.missed()).clone()).unwrap_or_default()
    }

    /// Notes that a leaf lost all writes of these txgs, although they were reported as done, and counts one
    /// write error.
    pub fn miss(&self, leaf: VdevGuid, txgs: Range<u64>) {
        let Some(state) = self.state(leaf) else { return };
        state.memory.counters.write_errors.fetch_add(1, Ordering::Relaxed);
        self.note_missed(leaf, txgs);
    }

    /// Notes that a leaf lacks these txgs without an error: its device is another one than before.
    pub fn note_missed(&self, leaf: VdevGuid, txgs: Range<u64>) {
        if let Some(state) = self.state(leaf).filter(|_| !txgs.is_empty()) {
            state.memory.change_missed(|missed| missed.insert(txgs));
        }
    }

    /// The leaves whose DTL has changed since the last call.
    pub fn take_changed_dtls(&self) -> Vec<VdevGuid> {
        let states = self.all_leaf_states();
        let changed = states.iter().filter(|state| state.memory.take_missed_changed());
        changed.map(|state| state.guid).collect()
    }

    /// Removes txgs from a leaf's DTL, after all their blocks were written to it, since `since` or before the
    /// DTL was there; but not the txgs of writes that failed since [`VdevTree::begin_repairs`]. Flushes the
    /// leaf first: blocks in its volatile cache do not count.
    ///
    /// # Errors
    /// [`DeviceError`] if the leaf could not be flushed, now or since `since`. Its DTL is unchanged then.
    pub fn clear_dtl(&self, leaf: VdevGuid, txgs: Range<u64>, since: Mark) -> Result<(), DeviceError> {
        let Some(state) = self.state(leaf) else { return Ok(()) };
        self.flush_leaves(&[leaf]).pop().unwrap_or(Ok(()))?;
        if self.losses().of_leaves.get(&leaf.0).is_some_and(|last| *last > since.0) {
            return Err(DeviceError::NotWritten);
        }
        let before = state.memory.missed();
        if before.intersects(&RangeSet::from_iter([txgs.clone()])) {
            let kept = state.memory.unrepaired();
            state.memory.change_missed(|missed| {
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
        self.state(leaf).is_some_and(|state| state.memory.was_gone.swap(false, Ordering::AcqRel))
    }
}
