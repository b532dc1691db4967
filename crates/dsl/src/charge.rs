//! Charging directories: each change of a directory's space is carried up the tree to the root
//! (docs/on-disk/22-mos-dsl.md, sections 2, 4 and 4.1).
//!
//! # What always holds
//! - `used` of a directory is the sum of its parts, and its parts CHILD and CHILD_RSRV together are the sum
//!   of `max(used, reserved)` of its children. Every change of a directory's `used` or `reserved` goes
//!   through `apply`, which carries it to the root.
//! - Counters that contradict each other are clamped at 0, with a warning: they never wrap.

use crate::block_space::{Delta, difference};
use crate::error::DslError;
use crate::mos_tx::MosTx;
use crate::name::DEPTH_LIMIT;
use crate::stored_props;
use format::ObjectId;
use format::dsl::DirPhys;

/// The part of a directory's `used` that a charge belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Charge {
    /// Blocks of the head born after the origin.
    Head,
    /// Blocks that only snapshots hold.
    Snap,
    /// Reservations of children beyond their use.
    ChildReservation,
    /// Bytes that the refreservation adds to the use of the head.
    RefReservation,
}

/// A change of a directory's parts. The change of `used` is their sum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct DirDelta {
    pub(crate) head: i64,
    pub(crate) snap: i64,
    pub(crate) child: i64,
    pub(crate) child_reservation: i64,
    pub(crate) ref_reservation: i64,
    pub(crate) compressed: i64,
    pub(crate) uncompressed: i64,
}

impl DirDelta {
    fn of(to: Charge, delta: Delta) -> DirDelta {
        let mut change = DirDelta {
            compressed: delta.compressed,
            uncompressed: delta.uncompressed,
            ..DirDelta::default()
        };
        *match to {
            Charge::Head => &mut change.head,
            Charge::Snap => &mut change.snap,
            Charge::ChildReservation => &mut change.child_reservation,
            Charge::RefReservation => &mut change.ref_reservation,
        } = delta.used;
        change
    }

    fn used(&self) -> i64 {
        [self.head, self.snap, self.child, self.child_reservation, self.ref_reservation]
            .into_iter()
            .fold(0, i64::saturating_add)
    }
}

/// Adds to a counter that cannot be negative.
pub(crate) fn shift(what: &'static str, id: ObjectId, counter: &mut u64, by: i64) {
    *counter = match counter.checked_add_signed(by) {
        Some(sum) => sum,
        None => {
            tracing::warn!(object = id.0, what, counter = *counter, by, "a space counter would wrap");
            if by < 0 { 0 } else { u64::MAX }
        }
    };
}

fn add(phys: &mut DirPhys, id: ObjectId, change: &DirDelta) {
    if phys.has_breakdown() {
        let parts = &mut phys.breakdown;
        shift("head", id, &mut parts.head, change.head);
        shift("snapshots", id, &mut parts.snap, change.snap);
        shift("children", id, &mut parts.child, change.child);
        shift("reservations of children", id, &mut parts.child_reservation, change.child_reservation);
        shift("refreservation", id, &mut parts.ref_reservation, change.ref_reservation);
    }
    shift("used", id, &mut phys.used, change.used());
    shift("compressed", id, &mut phys.compressed, change.compressed);
    shift("uncompressed", id, &mut phys.uncompressed, change.uncompressed);
}

/// Applies a change to a directory and to all directories above it.
pub(crate) fn apply(m: MosTx<'_>, dir: ObjectId, change: DirDelta) -> Result<(), DslError> {
    let (mut at, mut change) = (Some(dir), change);
    for _ in 0..=DEPTH_LIMIT {
        let Some(id) = at.filter(|_| change != DirDelta::default()) else { return Ok(()) };
        let (mut before, mut after) = (0, 0);
        m.change_dir(id, |phys| {
            before = charged(phys.used, phys.reserved);
            let used = phys.used;
            add(phys, id, &change);
            after = charged(phys.used, phys.reserved);
            let child = difference(phys.used, used);
            let (compressed, uncompressed) = (change.compressed, change.uncompressed);
            change = DirDelta { child, compressed, uncompressed, ..DirDelta::default() };
            at = phys.parent;
        })?;
        // The parent is charged the reservation as far as it exceeds the use.
        change.child_reservation = difference(after, before).saturating_sub(change.child);
    }
    Err(DslError::Endless { what: "parents", object: dir, limit: DEPTH_LIMIT })
}

/// What a directory's parent is charged.
pub(crate) fn charged(used: u64, reserved: u64) -> u64 {
    used.max(reserved)
}

/// Charges a directory and all directories above it.
pub(crate) fn charge(m: MosTx<'_>, dir: ObjectId, to: Charge, delta: Delta) -> Result<(), DslError> {
    apply(m, dir, DirDelta::of(to, delta))
}

/// Charges `$FREE` for blocks that wait to be freed; negative for blocks that were freed.
pub(crate) fn charge_free(m: MosTx<'_>, delta: Delta) -> Result<(), DslError> {
    if delta == Delta::default() {
        return Ok(());
    }
    charge(m, m.free_dir()?, Charge::Head, delta)
}

/// Charges the growth of the MOS to the hidden directory `$MOS`.
///
/// # Errors
/// If an object of the MOS cannot be read or changed: the txg must not end then.
pub fn charge_mos(m: MosTx<'_>, delta: Delta) -> Result<(), DslError> {
    if delta == Delta::default() {
        return Ok(());
    }
    charge(m, m.mos_dir()?, Charge::Head, delta)
}

// ---- stored limits --------------------------------------------------------------------------

/// A number property that is set on the directory itself; 0 if it is not set.
pub(crate) fn own_number(m: MosTx<'_>, dir: &DirPhys, name: &str) -> Result<u64, DslError> {
    Ok(stored_props::own_number(&m.view(), dir.props, name)?.unwrap_or(0))
}

/// The refreservation of a head.
pub(crate) fn refreservation(m: MosTx<'_>, dir: &DirPhys) -> Result<u64, DslError> {
    own_number(m, dir, "refreservation")
}

/// Bytes that a head is charged for `unique` bytes under this refreservation.
pub(crate) fn ref_charged(unique: u64, refreservation: u64) -> u64 {
    unique.max(refreservation)
}

/// Sets the reservation in the bonus, and updates the charges of the directories above.
pub(crate) fn set_reserved(m: MosTx<'_>, dir: ObjectId, bytes: u64) -> Result<(), DslError> {
    let phys = m.dir(dir)?;
    let delta = difference(charged(phys.used, bytes), charged(phys.used, phys.reserved));
    m.change_dir(dir, |phys| phys.reserved = bytes)?;
    match phys.parent {
        Some(parent) => {
            let used = Delta { used: delta, ..Delta::default() };
            charge(m, parent, Charge::ChildReservation, used)
        }
        None => Ok(()),
    }
}

/// Charges the difference between two refreservations of a directory's head. Called when the effective stored
/// value has changed by a path other than [`set_refreservation`].
pub(crate) fn refreservation_changed(
    m: MosTx<'_>,
    dir: ObjectId,
    old: u64,
    new: u64,
) -> Result<(), DslError> {
    let Some(head) = m.dir(dir)?.head else { return Ok(()) };
    let unique = m.dataset(head)?.unique;
    let used = difference(ref_charged(unique, new), ref_charged(unique, old));
    charge(m, dir, Charge::RefReservation, Delta { used, ..Delta::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_and_sum_agree_and_nothing_wraps() {
        let mut phys = DirPhys::decode(&[0; 256], format::Endian::Little).unwrap();
        phys.flags = format::dsl::DIR_FLAG_USED_BREAKDOWN;
        let change = DirDelta { head: 10, snap: 5, compressed: 7, ..DirDelta::default() };
        add(&mut phys, ObjectId(1), &change);
        assert_eq!((phys.used, phys.breakdown.head, phys.breakdown.snap), (15, 10, 5));
        add(&mut phys, ObjectId(1), &DirDelta { head: -20, ..DirDelta::default() });
        assert_eq!((phys.used, phys.breakdown.head, phys.compressed), (0, 0, 7));
    }
}
