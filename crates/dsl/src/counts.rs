//! Counts of the file systems and snapshots below a directory, kept where limits need them
//! (docs/on-disk/22-mos-dsl.md, section 4.3).
//!
//! # What always holds
//! - A directory that counts has two numbers in its ZAP: the directories below it, and the snapshots of
//!   itself and of all directories below. All directories below it count too.
//! - The feature `filesystem_limits` records that limits were once set, not how many directories count: it
//!   stays active when the last of them is gone, and while it is active every new directory counts.
//! - Hidden directories and snapshots are not counted.

use crate::features::FeatureCounts;
use crate::mos_tx::MosTx;
use crate::name::{DEPTH_LIMIT, is_hidden};
use crate::stored_props::own_number;
use crate::task::{Caller, TaskCtx};
use crate::zapify;
use crate::{Dir, DslError, mos};
use format::ObjectId;
use format::names;
use std::collections::HashSet;

/// Feature that limits on the number of datasets need.
const FEATURE: &str = "filesystem_limits";

/// Numbers of file systems and snapshots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Directories below, hidden ones not counted.
    pub filesystems: u64,
    /// Snapshots of the directory's head and of those below.
    pub snapshots: u64,
}

/// The counts of a directory; `None`: the directory does not count.
///
/// # Errors
/// If an object of the MOS cannot be read, or is damaged.
pub fn of(m: MosTx<'_>, dir: ObjectId) -> Result<Option<Counts>, DslError> {
    let filesystems = zapify::get(m, dir, names::dir::FILESYSTEM_COUNT)?;
    let snapshots = zapify::get(m, dir, names::dir::SNAPSHOT_COUNT)?;
    Ok(filesystems.zip(snapshots).map(|(filesystems, snapshots)| Counts { filesystems, snapshots }))
}

fn put(m: MosTx<'_>, dir: ObjectId, counts: Counts) -> Result<(), DslError> {
    zapify::set(m, dir, names::dir::FILESYSTEM_COUNT, counts.filesystems)?;
    zapify::set(m, dir, names::dir::SNAPSHOT_COUNT, counts.snapshots)
}

/// Counts the existing file systems and snapshots; with `keep`, the directory and all below store their
/// counts.
fn survey(m: MosTx<'_>, dir: ObjectId, keep: bool, depth: usize) -> Result<Counts, DslError> {
    if depth > DEPTH_LIMIT {
        return Err(DslError::Endless { what: "descent", object: dir, limit: DEPTH_LIMIT });
    }
    if let Some(counts) = of(m, dir)? {
        return Ok(counts);
    }
    let phys = m.dir(dir)?;
    let mut sum = Counts::default();
    if let Some(map) = phys.children {
        for entry in mos::zap(&m.view(), map)?.entries() {
            let entry = entry?;
            if is_hidden(&String::from_utf8_lossy(entry.name())) {
                continue;
            }
            let child = ObjectId(mos::number(map, &entry)?);
            let below = survey(m, child, keep, depth + 1)?;
            sum.filesystems += 1 + below.filesystems;
            sum.snapshots += below.snapshots;
        }
    }
    if let Some(head) = phys.head
        && let Some(names) = m.dataset(head)?.snapshot_names
    {
        for entry in mos::zap(&m.view(), names)?.entries() {
            sum.snapshots += u64::from(!is_hidden(&String::from_utf8_lossy(entry?.name())));
        }
    }
    if keep {
        put(m, dir, sum)?;
    }
    Ok(sum)
}

/// Checks that the pool supports limits on the number of datasets.
///
/// # Errors
/// [`DslError::FeatureDisabled`].
pub(crate) fn check_enabled(features: &FeatureCounts) -> Result<(), DslError> {
    if features.is_enabled(FEATURE) { Ok(()) } else { Err(DslError::FeatureDisabled { name: FEATURE }) }
}

/// Makes a directory and all directories below it count, because a limit was set here.
///
/// # Errors
/// [`DslError::FeatureDisabled`] if the pool does not support such limits.
pub(crate) fn activate(m: MosTx<'_>, dir: ObjectId) -> Result<(), DslError> {
    check_enabled(m.features)?;
    if !m.features.is_active(FEATURE) {
        m.features.incr(m, FEATURE)?;
    }
    survey(m, dir, true, 0).map(|_| ())
}

/// Adjusts the counts of `dir` and the directories above. `filesystems` is 1 for a new directory, which
/// begins to count itself, and -1 for one about to be destroyed: only the directories above count it.
/// `snapshots` is the change in the number of its snapshots, which `dir` counts too.
pub(crate) fn adjust(m: MosTx<'_>, dir: ObjectId, filesystems: i64, snapshots: i64) -> Result<(), DslError> {
    if !m.features.is_active(FEATURE) {
        return Ok(());
    }
    if filesystems > 0 && of(m, dir)?.is_none() {
        put(m, dir, Counts::default())?;
    }
    add(m, dir, 0, snapshots)?;
    m.dir(dir)?.parent.map_or(Ok(()), |parent| add_above(m, parent, filesystems, snapshots))
}

/// Changes the counts of a directory, if it counts.
fn add(m: MosTx<'_>, dir: ObjectId, filesystems: i64, snapshots: i64) -> Result<(), DslError> {
    let Some(counts) = of(m, dir)? else { return Ok(()) };
    let counts = Counts {
        filesystems: counts.filesystems.saturating_add_signed(filesystems),
        snapshots: counts.snapshots.saturating_add_signed(snapshots),
    };
    put(m, dir, counts)
}

fn add_above(m: MosTx<'_>, dir: ObjectId, filesystems: i64, snapshots: i64) -> Result<(), DslError> {
    each_above(m, dir, &mut |at| add(m, at, filesystems, snapshots))
}

/// Calls a closure for a directory and for all directories above it.
fn each_above(
    m: MosTx<'_>,
    dir: ObjectId,
    each: &mut dyn FnMut(ObjectId) -> Result<(), DslError>,
) -> Result<(), DslError> {
    let mut next = Some(dir);
    for _ in 0..=DEPTH_LIMIT {
        let Some(at) = next else { return Ok(()) };
        each(at)?;
        next = m.dir(at)?.parent;
    }
    Err(DslError::Endless { what: "parents", object: dir, limit: DEPTH_LIMIT })
}

/// Moves the counts of `dir` and all directories below it from one parent to another. Called while `dir` is
/// at its old place or at none.
pub(crate) fn transfer(m: MosTx<'_>, from: ObjectId, to: ObjectId, dir: ObjectId) -> Result<(), DslError> {
    if !m.features.is_active(FEATURE) || from == to {
        return Ok(());
    }
    let keep = of(m, to)?.is_some();
    let counts = survey(m, dir, keep, 0)?;
    let (filesystems, snapshots) = (signed(counts.filesystems) + 1, signed(counts.snapshots));
    add_above(m, from, -filesystems, -snapshots)?;
    add_above(m, to, filesystems, snapshots)
}

fn signed(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX - 1)
}

/// The counts that `dir` and all directories below it add to a new parent.
///
/// # Errors
/// If an object of the MOS cannot be read, or is damaged.
pub(crate) fn weight(m: MosTx<'_>, dir: ObjectId) -> Result<Counts, DslError> {
    let counts = survey(m, dir, false, 0)?;
    Ok(Counts { filesystems: counts.filesystems + 1, ..counts })
}

/// Checks that `filesystems` more file systems and `snapshots` more snapshots fit below `dir`, by its limits
/// and those of all directories above. A limit does not bind a caller that may change it.
///
/// # Errors
/// [`DslError::CountLimit`].
pub(crate) fn check(
    ctx: &TaskCtx<'_>,
    dir: ObjectId,
    filesystems: u64,
    snapshots: u64,
) -> Result<(), DslError> {
    match &ctx.caller {
        Caller::Root => Ok(()),
        Caller::User(user) => check_limits(ctx.m(), dir, filesystems, snapshots, &|at, prop| {
            Ok(user.granted(&ctx.dsl()?.dir_by_object(at)?, false)?.has(prop))
        }),
    }
}

/// Checks that snapshots may move from one directory to another. The limits of common ancestors are not
/// checked, because their counts stay the same.
///
/// # Errors
/// [`DslError::CountLimit`].
pub(crate) fn check_promotion(
    ctx: &TaskCtx<'_>,
    from: &Dir,
    to: &Dir,
    snapshots: u64,
) -> Result<(), DslError> {
    let Caller::User(user) = &ctx.caller else { return Ok(()) };
    let keeps_sum: HashSet<ObjectId> = from.ancestry().map(Dir::id).collect();
    check_limits(ctx.m(), to.id(), 0, snapshots, &|at, prop| {
        Ok(keeps_sum.contains(&at) || user.granted(&ctx.dsl()?.dir_by_object(at)?, false)?.has(prop))
    })
}

/// Checks that `dir` and all directories below it may be moved below another parent. Like OpenZFS, this
/// checks the limits of common ancestors too, although their counts stay the same.
///
/// # Errors
/// [`DslError::CountLimit`].
pub(crate) fn check_move(ctx: &TaskCtx<'_>, dir: &Dir, to: &Dir) -> Result<(), DslError> {
    if ctx.caller == Caller::Root || !ctx.features.is_active(FEATURE) {
        return Ok(());
    }
    let weight = weight(ctx.m(), dir.id())?;
    check(ctx, to.id(), weight.filesystems, weight.snapshots)
}

/// Checks limits. `is_exempt` tells whether the caller is exempt from the limit of a directory.
pub(crate) fn check_limits(
    m: MosTx<'_>,
    dir: ObjectId,
    filesystems: u64,
    snapshots: u64,
    is_exempt: &dyn Fn(ObjectId, &str) -> Result<bool, DslError>,
) -> Result<(), DslError> {
    if !m.features.is_active(FEATURE) {
        return Ok(());
    }
    each_above(m, dir, &mut |at| {
        let Some(now) = of(m, at)? else { return Ok(()) };
        let wanted = [
            ("filesystem_limit", now.filesystems, filesystems),
            ("snapshot_limit", now.snapshots, snapshots),
        ];
        for (prop, used, more) in wanted {
            let limit = limit(m, at, prop)?;
            if more > 0 && used.saturating_add(more) > limit && !is_exempt(at, prop)? {
                return Err(DslError::CountLimit { dir: at, prop, used, limit });
            }
        }
        Ok(())
    })
}

/// The limit set on a directory itself; `u64::MAX`: none.
fn limit(m: MosTx<'_>, dir: ObjectId, prop: &str) -> Result<u64, DslError> {
    Ok(own_number(&m.view(), m.dir(dir)?.props, prop)?.unwrap_or(u64::MAX))
}

/// Notes that a snapshot of this directory was made or destroyed.
///
/// # Errors
/// If an object of the MOS cannot be read or changed: the txg must not end then.
pub(crate) fn snapshots_changed(m: MosTx<'_>, dir: ObjectId) -> Result<(), DslError> {
    if !m.features.is_enabled("extensible_dataset") {
        return Ok(());
    }
    let now = m.env.clock().wall();
    zapify::set(m, dir, names::dir::SNAPSHOTS_CHANGED, &[now.as_secs(), u64::from(now.subsec_nanos())][..])
}
