//! Rewriting blocks that leaves hold wrongly or not at all: repair after a read, and resilver.
//!
//! A repaired or resilvered block stays in the DTL of the leaf until [`VdevTree::clear_dtl`], which flushes
//! first.

use super::block::{Extent, Fault, FaultKind};
use super::error::VdevError;
use super::indirect::Segment;
use super::leaf::{Leaf, LeafState, Trust};
use super::node::VdevTree;
use super::write::Write;
use format::{Psize, Txg, VdevGuid, VdevId};
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

impl VdevTree {
    /// Writes a verified block back to the leaves that gave wrong bytes or none, according to the `faults` of
    /// its read. A leaf that cannot be repaired keeps the block's txg in its DTL. Does nothing on vdevs that
    /// cannot be written.
    pub fn repair(&self, at: &Extent, data: &[u8], faults: &[Fault]) {
        let wrong: BTreeSet<VdevGuid> =
            faults.iter().filter(|fault| fault.kind != FaultKind::Missing).map(|fault| fault.leaf).collect();
        if !wrong.is_empty() {
            // The result is not needed: the other leaves were judged by the read.
            let writes = self.pieces(at, data).unwrap_or_default();
            self.write_to(&writes, &|leaf| wrong.contains(&leaf.guid), true);
        }
    }

    /// The writes of a block to where it is now: several for a block of a removed vdev.
    fn pieces<'d>(&self, at: &Extent, data: &'d [u8]) -> Result<Vec<Write<'d>>, VdevError> {
        let part = |segment: &Segment| {
            let end = segment.start + segment.at.psize.0 as usize;
            Write { at: segment.at, data: data.get(segment.start..end).unwrap_or_default() }
        };
        Ok(self.places(at)?.iter().map(part).collect())
    }

    /// The pieces of a block where it is now; for a block of a vdev that is being removed, those of its copies
    /// too.
    fn places(&self, at: &Extent) -> Result<Vec<Segment>, VdevError> {
        let mut all = self.segments(at)?;
        if self.is_removed(at.vdev) {
            return Ok(all);
        }
        let Some(copies) = self.indirect(at.vdev) else { return Ok(all) };
        for part in copies.parts(at.offset, at.psize.0) {
            let birth = copies.birth(part.src).unwrap_or(at.birth);
            let copy = Extent { vdev: part.dst.vdev, offset: part.dst.offset, psize: Psize(part.len), birth };
            all.push(Segment { at: copy, start: (part.src.0 - at.offset.0) as usize });
        }
        Ok(all)
    }

    /// Writes a verified block to its leaves that are in service and lack it, as a resilver does. The txg
    /// stays in their DTLs until [`VdevTree::clear_dtl`].
    ///
    /// # Errors
    /// [`VdevError`] if the block cannot be written at all, or a leaf that lacks it did not take it.
    pub fn resilver(&self, at: &Extent, data: &[u8]) -> Result<(), VdevError> {
        for piece in self.pieces(at, data)? {
            self.resilver_piece(piece)?;
        }
        Ok(())
    }

    fn resilver_piece(&self, piece: Write<'_>) -> Result<(), VdevError> {
        let at = piece.at;
        let is_stale = |leaf: &Leaf| leaf.trust(at.birth) == Trust::Stale;
        let written = self.write_to(&[piece], &is_stale, true);
        match written.results.into_iter().next() {
            Some(Err(error)) if !matches!(error, VdevError::NotWritten { .. }) => Err(error),
            _ if written.is_complete => Ok(()),
            _ => Err(VdevError::NotWritten { vdev: at.vdev }),
        }
    }

    /// Whether a leaf in service lacks part of a block, so that [`VdevTree::resilver`] would write.
    pub fn lacks_part(&self, at: &Extent) -> bool {
        self.places(at).is_ok_and(|segments| segments.iter().any(|s| self.lacks(s.at.vdev, s.at.birth)))
    }

    /// Whether a leaf in service lacks blocks born in this txg on this vdev, so that [`VdevTree::resilver`]
    /// would write.
    pub fn lacks(&self, vdev: VdevId, birth: Txg) -> bool {
        self.find_top(vdev).is_ok_and(|top| {
            let mut leaves = Vec::new();
            top.vdev.leaves(&mut leaves);
            leaves.iter().any(|leaf| leaf.trust(birth) == Trust::Stale)
        })
    }

    /// Bytes written over wrong ones, or to leaves that lacked them, since the pool was opened.
    pub fn repaired_bytes(&self) -> u64 {
        let of_leaf = |state: &&LeafState| state.memory.counters.repaired_bytes.load(Ordering::Relaxed);
        self.all_leaf_states().iter().map(of_leaf).sum()
    }

    /// Starts a repair run: blocks that earlier runs could not repair no longer count.
    pub fn begin_repairs(&self) {
        self.all_leaf_states().iter().for_each(|state| state.memory.forget_unrepaired());
    }

    /// Notes that a block born in this txg cannot be read, so that leaves that lack it do not get it:
    /// [`VdevTree::clear_dtl`] keeps that txg in their DTLs.
    pub fn note_unreadable(&self, birth: Txg) {
        let states = self.all_leaf_states();
        let lacking = states.iter().filter(|state| state.memory.missed().contains(birth.0));
        lacking.for_each(|state| state.memory.note_unrepaired(birth));
    }
}
