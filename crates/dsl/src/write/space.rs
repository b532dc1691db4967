//! Space of directories: charging it up the tree, and quotas and reservations
//! (docs/on-disk/22-mos-dsl.md, sections 2, 4 and 4.1).
//!
//! # What always holds
//! - `used` of a directory is the sum of its parts, and its parts CHILD and CHILD_RSRV together are the
//!   sum of `max(used, reserved)` of its children: whatever changes a directory's `used` or `reserved` goes
//!   through `apply`, which carries it to the root.
//! - Counters that contradict each other are clamped at 0, with a warning: they never wrap.

use super::ctx::TaskCtx;
use super::mos_tx::MosTx;
use crate::bpobj::Space;
use crate::dataset::Dataset;
use crate::dir::Dir;
use crate::name::DEPTH_LIMIT;
use crate::{Dsl, DslError};
use dmu::zap::ZapMut;
use format::ObjectId;
use format::dsl::DirPhys;

/// What space of a directory is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Charge {
    /// Blocks of the head born after the origin.
    Head,
    /// Blocks that only snapshots hold.
    Snap,
    /// Children.
    Child,
    /// What children have reserved beyond their use.
    ChildReservation,
    /// What the refreservation adds.
    RefReservation,
}

/// A change of space, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Delta {
    /// Bytes taken.
    pub used: i64,
    /// Bytes after compression.
    pub compressed: i64,
    /// Bytes before compression.
    pub uncompressed: i64,
}

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// `to - from`.
pub(crate) fn difference(to: u64, from: u64) -> i64 {
    if to >= from { signed(to - from) } else { -signed(from - to) }
}

impl From<Space> for Delta {
    fn from(space: Space) -> Delta {
        Delta {
            used: signed(space.used),
            compressed: signed(space.compressed),
            uncompressed: signed(space.uncompressed),
        }
    }
}

impl std::ops::Neg for Delta {
    type Output = Delta;

    fn neg(self) -> Delta {
        Delta { used: -self.used, compressed: -self.compressed, uncompressed: -self.uncompressed }
    }
}

impl std::ops::Add for Delta {
    type Output = Delta;

    fn add(self, other: Delta) -> Delta {
        Delta {
            used: self.used.saturating_add(other.used),
            compressed: self.compressed.saturating_add(other.compressed),
            uncompressed: self.uncompressed.saturating_add(other.uncompressed),
        }
    }
}

impl std::ops::Sub for Delta {
    type Output = Delta;

    fn sub(self, other: Delta) -> Delta {
        self + -other
    }
}

/// A change of a directory's parts. That of `used` is their sum.
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
            Charge::Child => &mut change.child,
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

/// Changes a directory and everything above it.
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
        // What the parent sees of it beyond its use is what it has reserved.
        change.child_reservation = difference(after, before).saturating_sub(change.child);
    }
    Err(DslError::Endless { what: "parents", object: dir, limit: DEPTH_LIMIT })
}

/// What a directory's parent is charged.
fn charged(used: u64, reserved: u64) -> u64 {
    used.max(reserved)
}

/// Charges a directory, and everything above it.
pub fn charge(m: MosTx<'_>, dir: ObjectId, to: Charge, delta: Delta) -> Result<(), DslError> {
    apply(m, dir, DirDelta::of(to, delta))
}

/// Charges what waits to be freed; negative when it has been freed.
pub fn charge_free(m: MosTx<'_>, delta: Delta) -> Result<(), DslError> {
    if delta == Delta::default() {
        return Ok(());
    }
    charge(m, m.free_dir()?, Charge::Head, delta)
}

/// Charges what the MOS itself has grown by.
pub fn charge_mos(m: MosTx<'_>, delta: Delta) -> Result<(), DslError> {
    if delta == Delta::default() {
        return Ok(());
    }
    charge(m, m.mos_dir()?, Charge::Head, delta)
}

// ---- stored numbers -------------------------------------------------------------------------

fn number_in(zap: &ZapMut<'_>, key: &str) -> Result<Option<u64>, DslError> {
    let entry = zap.lookup(key.as_bytes())?;
    Ok(entry.and_then(|entry| crate::mos::single(&entry)))
}

/// A number property of the directory itself, not inherited; 0 if it is not set.
pub(crate) fn own_number(m: MosTx<'_>, dir: &DirPhys, name: &str) -> Result<u64, DslError> {
    let Some(props) = dir.props else { return Ok(0) };
    let zap = m.zap(props)?;
    if let Some(number) = number_in(&zap, name)? {
        return Ok(number);
    }
    if zap.contains(format!("{name}$inherit").as_bytes())? {
        return Ok(0);
    }
    Ok(number_in(&zap, &format!("{name}$recvd"))?.unwrap_or(0))
}

/// The refreservation of a head.
pub(crate) fn refreservation(m: MosTx<'_>, dir: &DirPhys) -> Result<u64, DslError> {
    own_number(m, dir, "refreservation")
}

/// What a head is charged for `unique` bytes with this refreservation.
pub(crate) fn ref_charged(unique: u64, refreservation: u64) -> u64 {
    unique.max(refreservation)
}

// ---- room for tasks -------------------------------------------------------------------------

/// How much of what the pool keeps back a task must leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// All of it: the task makes something.
    All,
    /// Half of it: the task changes something.
    Half,
    /// A quarter: the task frees space in the end.
    Quarter,
}

/// Bytes that a task may take before anything is freed again.
const TASK_BYTES: u64 = 1 << 20;

/// Checks that the pool is not too full for a task.
///
/// # Errors
/// [`DslError::Space`].
pub fn check_pool(ctx: &TaskCtx<'_>, keep: Keep) -> Result<(), DslError> {
    let Some(pool) = ctx.heads.pool_space() else { return Ok(()) };
    let kept = match keep {
        Keep::All => pool.slop,
        Keep::Half => pool.slop / 2,
        Keep::Quarter => pool.slop / 4,
    };
    let m = ctx.m();
    let used = m.dir(m.root_dir()?)?.used;
    let available = pool.size.saturating_sub(kept).saturating_sub(used);
    if available < TASK_BYTES.min(pool.slop / 8) {
        return Err(DslError::Space { needed: TASK_BYTES, available, after: None });
    }
    Ok(())
}

// ---- quotas and reservations ----------------------------------------------------------------

fn bad_limit(name: &str, why: &'static str) -> DslError {
    DslError::BadLimit { name: name.to_owned(), why }
}

pub(crate) const BELOW_USED: &str = "size is less than current used or reserved space";
pub(crate) const ABOVE_AVAILABLE: &str = "size is greater than available space";

/// Bytes that a directory may still take, without what it has reserved itself; of the root's parent,
/// everything.
fn available_above(dir: &Dir) -> Result<u64, DslError> {
    match dir.parent() {
        Some(parent) => parent.available(),
        None => Ok(match dir.dsl().pool_space() {
            Some(pool) => pool.size.saturating_sub(pool.slop).saturating_sub(dir.phys().used),
            None => u64::MAX,
        }),
    }
}

fn head_of(dsl: &Dsl, name: &str) -> Result<(Dir, Dataset), DslError> {
    let dir = dsl.dir(name)?;
    let head = dir.head()?.ok_or_else(|| DslError::not_found(name))?;
    Ok((dir, head))
}

/// Limits what a dataset and everything below it may take; 0 takes the limit away.
///
/// # Errors
/// [`DslError::BadLimit`] if it takes or has reserved more already.
pub fn set_quota(ctx: &mut TaskCtx<'_>, name: &str, bytes: u64) -> Result<(), DslError> {
    let dir = ctx.dsl()?.dir(name)?;
    if bytes != 0 && (bytes < dir.phys().reserved || bytes < dir.phys().used) {
        return Err(bad_limit(name, BELOW_USED));
    }
    store(ctx.m(), &dir, "quota", bytes)?;
    ctx.m().change_dir(dir.id(), |phys| phys.quota = bytes)
}

/// Sets space aside for a dataset and everything below it.
///
/// # Errors
/// [`DslError::BadLimit`] if there is not so much, or the dataset's quota is lower.
pub fn set_reservation(ctx: &mut TaskCtx<'_>, name: &str, bytes: u64) -> Result<(), DslError> {
    let dir = ctx.dsl()?.dir(name)?;
    let phys = dir.phys();
    let delta = difference(charged(phys.used, bytes), charged(phys.used, phys.reserved));
    if delta > 0 && delta.unsigned_abs() > available_above(&dir)? {
        return Err(bad_limit(name, ABOVE_AVAILABLE));
    }
    if delta > 0 && phys.quota != 0 && bytes > phys.quota {
        return Err(bad_limit(name, ABOVE_AVAILABLE));
    }
    store(ctx.m(), &dir, "reservation", bytes)?;
    set_reserved(ctx.m(), dir.id(), bytes)
}

/// Changes the reservation in the bonus, and what is charged above for it.
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

/// Limits what a head may reference; 0 takes the limit away.
///
/// # Errors
/// [`DslError::BadLimit`] if it references or has reserved more already.
pub fn set_refquota(ctx: &mut TaskCtx<'_>, name: &str, bytes: u64) -> Result<(), DslError> {
    let (dir, head) = head_of(&ctx.dsl()?, name)?;
    let reserved = refreservation(ctx.m(), dir.phys())?;
    if bytes != 0 && (bytes < head.referenced() || bytes < reserved) {
        return Err(bad_limit(name, BELOW_USED));
    }
    ctx.heads.places_changed();
    store(ctx.m(), &dir, "refquota", bytes)
}

/// Sets space aside for a head alone.
///
/// # Errors
/// [`DslError::BadLimit`] if there is not so much, or the dataset's quota is lower.
pub fn set_refreservation(ctx: &mut TaskCtx<'_>, name: &str, bytes: u64) -> Result<(), DslError> {
    let (dir, head) = head_of(&ctx.dsl()?, name)?;
    let (unique, old) = (head.unique(), refreservation(ctx.m(), dir.phys())?);
    let delta = difference(ref_charged(unique, bytes), ref_charged(unique, old));
    let refquota = own_number(ctx.m(), dir.phys(), "refquota")?;
    let is_above_refquota = refquota != 0 && bytes > refquota;
    if delta > 0
        && (delta.unsigned_abs() > dir.available()? || is_above_quota(&dir, bytes) || is_above_refquota)
    {
        return Err(bad_limit(name, ABOVE_AVAILABLE));
    }
    ctx.heads.places_changed();
    store(ctx.m(), &dir, "refreservation", bytes)?;
    refreservation_changed(ctx.m(), dir.id(), old, bytes)
}

fn is_above_quota(dir: &Dir, bytes: u64) -> bool {
    dir.phys().quota != 0 && bytes > dir.phys().quota
}

/// Charges the difference between two refreservations of a directory's head. To be called when the stored
/// value that holds has changed in another way than by [`set_refreservation`].
pub fn refreservation_changed(m: MosTx<'_>, dir: ObjectId, old: u64, new: u64) -> Result<(), DslError> {
    let Some(head) = m.dir(dir)?.head else { return Ok(()) };
    let unique = m.dataset(head)?.unique;
    let used = difference(ref_charged(unique, new), ref_charged(unique, old));
    charge(m, dir, Charge::RefReservation, Delta { used, ..Delta::default() })
}

/// Checks that `bytes` can move from below one directory to another: that they do not exceed the quotas
/// between the latter and the first directory above both.
pub(crate) fn check_transfer(from: &Dir, to: &Dir, bytes: u64) -> Result<(), DslError> {
    let stays = |dir: &Dir| from.ancestry().any(|above| above.id() == dir.id());
    for dir in to.ancestry().take_while(|dir| !stays(dir)) {
        let (used, quota) = (dir.phys().used, dir.phys().quota);
        if quota != 0 && used.saturating_add(bytes) > quota {
            return Err(DslError::Quota { name: dir.name().to_owned(), used, quota, after: None });
        }
    }
    Ok(())
}

/// Puts a limit into the property ZAP.
fn store(m: MosTx<'_>, dir: &Dir, prop: &str, bytes: u64) -> Result<(), DslError> {
    let missing = || DslError::Mismatch { what: "properties", object: dir.id(), found: 0, expected: 1 };
    let zap = m.zap(dir.phys().props.ok_or_else(missing)?)?;
    zap.upsert(prop.as_bytes(), bytes)?;
    Ok(zap.remove_if_present(format!("{prop}$inherit").as_bytes()).map(|_| ())?)
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

    #[test]
    fn differences_have_a_sign() {
        assert_eq!((difference(3, 5), difference(5, 3), difference(u64::MAX, 0)), (-2, 2, i64::MAX));
    }
}
