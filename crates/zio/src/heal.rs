//! Repair of damaged copies that a read found, by writing good bytes over them.
//!
//! Readers may hold pointers from before the last txgs. After the block of such a pointer was freed, its
//! space may hold another block, which looks like damage to a reader with the old pointer. If another copy of
//! the old block still exists, a "repair" would destroy the new block. So blocks that were freed since the
//! pool was opened are recorded; they are not repaired, and no device is blamed for them.
//!
//! # What always holds
//! - An ordinary read repairs no block that this process has freed or overwritten. The record is bounded:
//!   when it drops old entries after millions of frees, no block is repaired that is old enough to have been
//!   freed before that.
//! - A scrub ([`ReadPolicy::every_copy`]) repairs every block, and writes it to leaves in service that lack
//!   it: its pointers must be in use.

use crate::layer::Zio;
use crate::policy::ReadPolicy;
use crate::read::extent_of;
use codec::checksum;
use format::{BlockPtr, BpKind, ChecksumId};
use vdev::VdevTree;
use vdev::tree::{Extent, Fault, Read};

impl Zio {
    /// Reads an extent of a block. Wrong bytes of a freed block are no fault of a device, because its space
    /// may belong to another block.
    pub(crate) fn read_extent(
        &self,
        tree: &VdevTree,
        at: &Extent,
        how: &ReadPolicy<'_>,
        verify: &dyn Fn(&[u8]) -> bool,
    ) -> Read {
        if how.every_copy {
            return tree.check_every_copy(at, verify);
        }
        tree.read_perhaps_reused(at, verify, &|| self.may_be_reused(at))
    }

    /// Whether the space of this extent may belong to another block by now.
    pub(crate) fn may_be_reused(&self, at: &Extent) -> bool {
        self.writer().is_some_and(|writer| writer.freed.may_have(at.vdev, at.offset, at.birth))
    }

    /// Writes the stored bytes of a block over its copies that are damaged. Returns whether these are its bytes, and it can
    /// be read now. Gang blocks are left alone. The pointer must be in use.
    pub fn rewrite(&self, bp: &BlockPtr, stored: &[u8]) -> bool {
        let verify = |data: &[u8]| checksum::verify(bp, data, self.salt()).unwrap_or(false);
        if self.writer().is_none() || bp.kind() != BpKind::Normal || stored.len() as u64 != bp.psize().0 {
            return false;
        }
        // An unusable checksum matches anything.
        if bp.checksum_id() == ChecksumId::Off.id() || !verify(stored) {
            return false;
        }
        let tree = self.tree();
        for dva in bp.dvas().filter(|dva| tree.check(dva, bp.psize()).is_ok()) {
            let at = extent_of(bp, &dva);
            let read = tree.check_every_copy(&at, &verify);
            tree.repair(&at, stored, &read.faults);
        }
        self.check(bp, &ReadPolicy::SCRUB).data.is_ok()
    }

    /// Writes good bytes over the copies that were wrong, if the pool is writable and the block is in use.
    pub(crate) fn heal(
        &self,
        tree: &VdevTree,
        bad: &[(Extent, Vec<Fault>)],
        data: &[u8],
        how: &ReadPolicy<'_>,
    ) {
        let Some(writer) = self.writer() else { return };
        if how.every_copy {
            // A failure needs no handling here: the leaf keeps the txg in its DTL.
            for (at, _) in bad.iter().filter(|(at, _)| tree.lacks_part(at)) {
                let _ = tree.resilver(at, data);
            }
        }
        for (at, faults) in bad.iter().filter(|(_, faults)| !faults.is_empty()) {
            if how.every_copy || !writer.freed.may_have(at.vdev, at.offset, at.birth) {
                tree.repair(at, data, faults);
            }
        }
    }
}
