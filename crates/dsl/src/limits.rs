//! Limits that tasks check and set: the slop space of the pool, quotas and reservations
//! (docs/on-disk/22-mos-dsl.md, sections 2 and 4; docs/on-disk/15-space.md, section 8).
//!
//! # What always holds
//! - A task that is refused for lack of space has changed nothing.
//! - A reservation is set only if the quotas and reservations above leave enough space.

use crate::block_space::difference;
use crate::charge::{charged, own_number, ref_charged, refreservation, refreservation_changed, set_reserved};
use crate::dataset::Dataset;
use crate::dir::Dir;
use crate::error::DslError;
use crate::mos_tx::MosTx;
use crate::task::TaskCtx;
use crate::tree::Dsl;
use format::names::prop_suffix::INHERIT;

/// Share of the slop space (the space that the pool keeps back) that a task must leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LeaveSlop {
    /// All of it: for tasks that create datasets.
    All,
    /// Half of it: for tasks that change datasets.
    Half,
    /// A quarter: for tasks that free space in the end.
    Quarter,
}

/// Bytes that a task may allocate before it frees any.
const TASK_BYTES: u64 = 1 << 20;

/// Checks that the pool has enough free space for a task.
///
/// # Errors
/// [`DslError::Space`], with the txg after which there may be more if destroyed datasets are still being freed.
pub(crate) fn check_pool(ctx: &TaskCtx<'_>, leave: LeaveSlop) -> Result<(), DslError> {
    let Some(pool) = ctx.heads.pool_space() else { return Ok(()) };
    let kept = match leave {
        LeaveSlop::All => pool.slop,
        LeaveSlop::Half => pool.slop / 2,
        LeaveSlop::Quarter => pool.slop / 4,
    };
    let m = ctx.m();
    let used = m.dir(m.root_dir()?)?.used;
    let available = pool.size.saturating_sub(kept).saturating_sub(used);
    if available < TASK_BYTES.min(pool.slop / 8) {
        let waiting = m.free_dir().and_then(|dir| Ok(m.dir(dir)?.used)).unwrap_or(0);
        let is_freeing = waiting > 0 || ctx.heads.is_freeing();
        return Err(DslError::Space { needed: TASK_BYTES, available, after: is_freeing.then(|| ctx.txg()) });
    }
    Ok(())
}

// ---- quotas and reservations ----------------------------------------------------------------

fn bad_limit(name: &str, why: &'static str) -> DslError {
    DslError::BadLimit { name: name.to_owned(), why }
}

pub(crate) const BELOW_USED: &str = "size is less than current used or reserved space";
pub(crate) const ABOVE_AVAILABLE: &str = "size is greater than available space";

/// Bytes that a directory may still take, not counting its own reservation; for the root, the free bytes of
/// the pool, or `u64::MAX` if they are unknown.
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

/// Sets the quota: the most space that a dataset and all below it may take, in bytes; 0 removes it.
///
/// # Errors
/// [`DslError::BadLimit`] if the dataset takes or has reserved more already.
pub fn set_quota(ctx: &mut TaskCtx<'_>, name: &str, bytes: u64) -> Result<(), DslError> {
    let dir = ctx.dsl()?.dir(name)?;
    if bytes != 0 && (bytes < dir.phys().reserved || bytes < dir.phys().used) {
        return Err(bad_limit(name, BELOW_USED));
    }
    store(ctx.m(), &dir, "quota", bytes)?;
    ctx.m().change_dir(dir.id(), |phys| phys.quota = bytes)
}

/// Sets the reservation of a dataset and all below it, in bytes; 0 removes it.
///
/// # Errors
/// [`DslError::BadLimit`] if that much is not available, or the dataset's quota is lower.
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

/// Sets the refquota: the most space that a head may reference, in bytes; 0 removes it.
///
/// # Errors
/// [`DslError::BadLimit`] if the head references or has reserved more already.
pub fn set_refquota(ctx: &mut TaskCtx<'_>, name: &str, bytes: u64) -> Result<(), DslError> {
    let (dir, head) = head_of(&ctx.dsl()?, name)?;
    let reserved = refreservation(ctx.m(), dir.phys())?;
    if bytes != 0 && (bytes < head.referenced() || bytes < reserved) {
        return Err(bad_limit(name, BELOW_USED));
    }
    ctx.heads.names_or_limits_changed();
    store(ctx.m(), &dir, "refquota", bytes)
}

/// Sets the refreservation of a head alone, in bytes; 0 removes it.
///
/// # Errors
/// [`DslError::BadLimit`] if that much is not available, or the dataset's quota is lower.
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
    ctx.heads.names_or_limits_changed();
    store(ctx.m(), &dir, "refreservation", bytes)?;
    refreservation_changed(ctx.m(), dir.id(), old, bytes)
}

fn is_above_quota(dir: &Dir, bytes: u64) -> bool {
    dir.phys().quota != 0 && bytes > dir.phys().quota
}

/// Checks that `bytes` can move from one directory to another: that they fit the quotas from the target up to
/// the first common ancestor.
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

/// Stores a limit in the property ZAP.
fn store(m: MosTx<'_>, dir: &Dir, prop: &str, bytes: u64) -> Result<(), DslError> {
    let missing = || DslError::Mismatch { what: "properties", object: dir.id(), found: 0, expected: 1 };
    let zap = m.zap(dir.phys().props.ok_or_else(missing)?)?;
    zap.upsert(prop.as_bytes(), bytes)?;
    Ok(zap.remove_if_present(format!("{prop}{INHERIT}").as_bytes()).map(|_| ())?)
}
