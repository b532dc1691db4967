//! How many file systems and snapshots there are below a directory, where limits want to know
//! (docs/on-disk/22-mos-dsl.md, section 4.3).
//!
//! # What always holds
//! - A directory that counts has two numbers in its ZAP: of the directories below it, and of the snapshots
//!   of itself and of everything below. Everything below it counts too.
//! - The feature `filesystem_limits` says that limits were ever set, not how many directories count: it stays
//!   active when the last of them is gone, and while it is, every new directory counts, wherever it is.
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

/// Feature that limits on counts of datasets need.
const FEATURE: &str = "filesystem_limits";

/// Numbers of file systems and snapshots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Directories below, hidden ones not counted.
    pub filesystems: u64,
    /// Snapshots of the directory's head and of those below.
    pub snapshots: u64,
}

/// The counts of a directory; `None`: it does not count.
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

/// Counts what is there; with `keep`, the directory and everything below counts from now on.
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

/// Checks that the pool knows such limits.
///
/// # Errors
/// [`DslError::FeatureDisabled`].
pub(crate) fn check_enabled(features: &FeatureCounts) -> Result<(), DslError> {
    if features.is_enabled(FEATURE) { Ok(()) } else { Err(DslError::FeatureDisabled { name: FEATURE }) }
}

/// A directory and everything below it counts from now on, because a limit was set here.
///
/// # Errors
/// [`DslError::FeatureDisabled`] if the pool knows no such limits.
pub fn activate(m: MosTx<'_>, dir: ObjectId) -> Result<(), DslError> {
    check_enabled(m.features)?;
    if !m.features.is_active(FEATURE) {
        m.features.incr(m, FEATURE)?;
    }
    survey(m, dir, true, 0).map(|_| ())
}

/// Counts what has changed: `dir` itself has come (`filesystems` 1), and begins to count itself, or is about
/// to go (-1), which the directories above count; or so many snapshots of it have come or gone, which it
/// counts too.
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

/// Does something for a directory and for all above it.
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

/// `dir` and everything below it moves from one parent to another. To be called while it is in its old
/// place or in none.
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

/// What `dir` and everything below it adds to a parent that it is put below.
///
/// # Errors
/// If an object of the MOS cannot be read, or is damaged.
pub fn weight(m: MosTx<'_>, dir: ObjectId) -> Result<Counts, DslError> {
    let counts = survey(m, dir, false, 0)?;
    Ok(Counts { filesystems: counts.filesystems + 1, ..counts })
}

/// Checks that so many file systems may be added below `dir`, and snapshots of it or below: the limits of it
/// and of all above. A caller that may change a limit is not bound by it.
///
/// # Errors
/// [`DslError::CountLimit`].
pub fn check(ctx: &TaskCtx<'_>, dir: ObjectId, filesystems: u64, snapshots: u64) -> Result<(), DslError> {
    match &ctx.caller {
        Caller::Root => Ok(()),
        Caller::User(user) => check_limits(ctx.m(), dir, filesystems, snapshots, &|at, prop| {
            Ok(user.granted(&ctx.dsl()?.dir_by_object(at)?, false)?.has(prop))
        }),
    }
}

/// The same for snapshots that go from one directory to another: above what both lie below, the sums stay the
/// same, and nothing is asked.
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

/// Checks that `dir` may be moved below another parent with everything in it. Limits above both are asked
/// too, as OpenZFS does, although nothing is added below them.
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

/// `is_exempt` tells whether the limit of a directory does not bind.
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

/// The limit set on a directory itself; the largest number: none.
fn limit(m: MosTx<'_>, dir: ObjectId, prop: &str) -> Result<u64, DslError> {
    Ok(own_number(&m.view(), m.dir(dir)?.props, prop)?.unwrap_or(u64::MAX))
}

/// Notes that a snapshot of this directory was made or destroyed.
///
/// # Errors
/// If an object of the MOS cannot be read or changed: the txg must not end then.
pub fn snapshots_changed(m: MosTx<'_>, dir: ObjectId) -> Result<(), DslError> {
    if !m.features.is_enabled("extensible_dataset") {
        return Ok(());
    }
    let now = m.env.clock().wall();
    zapify::set(m, dir, names::dir::SNAPSHOTS_CHANGED, &[now.as_secs(), u64::from(now.subsec_nanos())][..])
}
