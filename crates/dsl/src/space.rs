//! Space as the properties show it: used and by what, available, written since a point in history
//! (docs/on-disk/22-mos-dsl.md, section 4).
//!
//! # What always holds
//! - Arithmetic here never wraps: counters that contradict each other are clamped at 0 or at the largest
//!   number.
//! - Only stored counters are read, never the blocks themselves, except for the deadlists of pools before
//!   version 26.

use crate::bookmark::Bookmark;
use crate::dataset::Dataset;
use crate::dir::Dir;
use crate::error::DslError;
use crate::prop::inherit::own_number;
use dmu::ObjSet;
use format::dsl::BOOKMARK_FLAG_HAS_FBN;
use format::{ObjectId, Txg};
use std::sync::Arc;

/// Used space in bytes, by purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UsedBy {
    /// Bytes that only the head itself uses.
    pub dataset: u64,
    /// Blocks that only snapshots hold.
    pub snapshots: u64,
    /// Bytes of child datasets, their reservations included.
    pub children: u64,
    /// Bytes that the refreservation adds to the use of the head.
    pub refreservation: u64,
}

/// A ratio in hundredths; 100 if no bytes are stored.
fn ratio(uncompressed: u64, compressed: u64) -> u64 {
    match compressed {
        0 => 100,
        _ => u64::try_from(u128::from(uncompressed) * 100 / u128::from(compressed)).unwrap_or(u64::MAX),
    }
}

impl Dir {
    /// Bytes that this directory and all below it may still take.
    ///
    /// # Errors
    /// If an object of the MOS cannot be read, or is damaged.
    pub(crate) fn available(&self) -> Result<u64, DslError> {
        let mut available = u64::MAX;
        let chain: Vec<&Dir> = self.ancestry().collect();
        for dir in chain.into_iter().rev() {
            let phys = dir.phys();
            let mut limit = if phys.quota == 0 { u64::MAX } else { phys.quota };
            if dir.parent().is_none()
                && let Some(pool) = self.dsl().pool_space()
            {
                limit = limit.min(pool.size.saturating_sub(pool.slop));
            }
            let own_reservation = phys.reserved.saturating_sub(phys.used);
            let from_above = available.saturating_add(own_reservation);
            available = if phys.used > limit { 0 } else { from_above.min(limit - phys.used) };
        }
        Ok(available)
    }
}

impl Dataset {
    /// Bytes charged: for a head, those of its directory; for a snapshot, those that it alone holds.
    pub(crate) fn used(&self) -> u64 {
        if self.is_snapshot() { self.unique() } else { self.dir().phys().used }
    }

    /// Bytes of blocks that only this dataset holds.
    pub fn unique(&self) -> u64 {
        self.phys().unique
    }

    /// Bytes that the dataset references.
    pub fn referenced(&self) -> u64 {
        self.phys().referenced
    }

    /// Bytes that the dataset references, before compression.
    pub(crate) fn logical_referenced(&self) -> u64 {
        self.phys().uncompressed
    }

    /// Bytes before compression: for a head, those of its directory; for a snapshot, those that it
    /// references.
    pub(crate) fn logical_used(&self) -> u64 {
        if self.is_snapshot() { self.phys().uncompressed } else { self.dir().phys().uncompressed }
    }

    /// Compression ratio in hundredths: for a head, of all blocks charged to its directory; for a snapshot,
    /// of the blocks that it references.
    pub(crate) fn compress_ratio(&self) -> u64 {
        if self.is_snapshot() {
            return self.ref_compress_ratio();
        }
        ratio(self.dir().phys().uncompressed, self.dir().phys().compressed)
    }

    /// Compression ratio of the referenced blocks, in hundredths.
    pub(crate) fn ref_compress_ratio(&self) -> u64 {
        ratio(self.phys().uncompressed, self.phys().compressed)
    }

    /// Used space of a head's directory, by purpose; `None` for a snapshot.
    pub fn used_by(&self) -> Option<UsedBy> {
        let parts = self.dir().phys().breakdown;
        (!self.is_snapshot() && self.dir().phys().has_breakdown()).then(|| UsedBy {
            dataset: parts.head,
            snapshots: parts.snap,
            children: parts.child.saturating_add(parts.child_reservation),
            refreservation: parts.ref_reservation,
        })
    }

    /// Bytes that may still be written to this dataset: the minimum over the quotas and reservations of the
    /// tree, with its own refreservation and refquota.
    ///
    /// # Errors
    /// If an object of the MOS cannot be read, or is damaged.
    pub fn available(&self) -> Result<u64, DslError> {
        let tree = self.dir().available()?;
        let reserved = own_number(self, "refreservation")?.unwrap_or(0);
        let available = tree.saturating_add(reserved.saturating_sub(self.unique()));
        Ok(match own_number(self, "refquota")? {
            None | Some(0) => available,
            Some(quota) => available.min(quota.saturating_sub(self.referenced())),
        })
    }

    /// Bytes born since the previous snapshot.
    ///
    /// # Errors
    /// If an object of the MOS cannot be read, or is damaged.
    pub fn written(&self) -> Result<u64, DslError> {
        let Some(previous) = self.phys().prev_snap else { return Ok(self.referenced()) };
        let (_, before) = crate::dataset::read(self.dsl(), previous)?;
        let gone = self.deadlist()?.map_or(0, |list| list.space().used);
        Ok(self.referenced().saturating_add(gone).saturating_sub(before.referenced))
    }

    /// Bytes born since this earlier snapshot in its history.
    pub(crate) fn written_since(&self, snapshot: &Dataset) -> Result<u64, DslError> {
        let txg = snapshot.phys().creation_txg;
        let mut gone = 0_u64;
        let mut at = (self.id(), self.phys().deadlist);
        let mut chain = self.chain();
        while at.0 != snapshot.id() {
            gone = gone.saturating_add(killed(self.dsl().mos(), at.1, txg)?);
            let Some(before) = chain.next() else {
                let (name, since) = (self.name().to_owned(), snapshot.name().to_owned());
                return Err(DslError::NotAncestor { name, since });
            };
            let (id, phys) = before?;
            at = (id, phys.deadlist);
        }
        Ok(self.referenced().saturating_add(gone).saturating_sub(snapshot.referenced()))
    }

    /// Bytes born since this bookmark in its history; `None` if the bookmark does not record what was freed
    /// since.
    pub(crate) fn written_since_bookmark(&self, mark: &Bookmark) -> Result<Option<u64>, DslError> {
        let Some(v2) = mark.phys().v2.filter(|v2| v2.flags & BOOKMARK_FLAG_HAS_FBN != 0) else {
            return Ok(None);
        };
        let txg = mark.phys().creation_txg;
        if txg > self.phys().creation_txg && self.is_snapshot() {
            let (name, since) = (self.name().to_owned(), mark.name().to_owned());
            return Err(DslError::NotAncestor { name, since });
        }
        // The bookmark itself counts blocks freed before the next snapshot; the deadlists of later datasets
        // in the chain have the rest.
        let mut gone = v2.freed_before_next[0];
        let mut here = (self.phys().deadlist, self.phys().prev_snap_txg);
        for before in self.chain() {
            if here.1 <= txg {
                break;
            }
            gone = gone.saturating_add(killed(self.dsl().mos(), here.0, txg)?);
            let (_, phys) = before?;
            here = (phys.deadlist, phys.prev_snap_txg);
        }
        Ok(Some(self.referenced().saturating_add(gone).saturating_sub(v2.referenced)))
    }
}

/// Bytes in a deadlist that were born up to `until`.
fn killed(mos: &Arc<ObjSet>, deadlist: Option<ObjectId>, until: Txg) -> Result<u64, DslError> {
    match deadlist {
        Some(id) => Ok(crate::deadlist::Deadlist::open(mos, id)?.space_between(Txg(0), until)?.used),
        None => Ok(0),
    }
}

#[cfg(test)]
mod tests {
    use super::ratio;

    #[test]
    fn ratios_are_in_hundredths_and_round_down() {
        assert_eq!((ratio(0, 0), ratio(300, 200), ratio(2, 3)), (100, 150, 66));
        assert_eq!(ratio(u64::MAX, 1), u64::MAX);
    }
}
