//! Rollback to a snapshot, and exchange of the contents of two heads (docs/on-disk/22-mos-dsl.md, section 5).

use crate::block_space::{Space, difference};
use crate::bookmark::Bookmark;
use crate::charge::{self, DirDelta};
use crate::create::{create_clone_head, create_dir, forget_log, has_foreign_log};
use crate::dataset::Dataset;
use crate::deadlist::Deadlist;
use crate::destroy;
use crate::destroy::{destroy_head, free_log};
use crate::error::DslError;
use crate::limits::{self, LeaveSlop};
use crate::mos_tx::MosTx;
use crate::name::{Name, Tail};
use crate::snapshot::keep_refreservation;
use crate::task::TaskCtx;
use crate::{counts, livelist, zapify};
use format::dsl::DatasetPhys;
use format::names;
use format::{ObjectId, Txg};

/// Name of the temporary clone that a rollback makes.
const TEMPORARY: &str = "%rollback";

/// Checked plan of a rollback.
struct Plan {
    head: Dataset,
    target: Dataset,
    /// Newer snapshots, which are destroyed,
    snapshots: Vec<Dataset>,
    /// and the last parts of the names of newer bookmarks.
    marks: Vec<String>,
}

/// Finds what is newer than the snapshot, and checks that all of it may be `lost`.
fn plan(ctx: &TaskCtx<'_>, name: &str, to: Option<&str>, lost: &[String]) -> Result<Plan, DslError> {
    let dsl = ctx.dsl()?;
    let dir = dsl.dir(name)?;
    let head = dir.head()?.ok_or_else(|| DslError::not_found(name))?;
    let newest = head.previous()?.filter(|snapshot| snapshot.dir().id() == dir.id());
    let none = || DslError::not_found(format!("{name}@"));
    let target = match to {
        None => newest.clone().ok_or_else(none)?,
        Some(to) => {
            let Name { tail: Tail::Snapshot(snapshot), .. } = Name::parse(to)? else {
                return Err(DslError::WrongKind { name: to.to_owned(), why: "not a snapshot" });
            };
            head.snapshot(snapshot)?.ok_or_else(|| DslError::not_found(to))?
        }
    };
    let txg = target.phys().creation_txg;
    let mut snapshots = head.snapshots()?;
    snapshots.retain(|other| other.phys().creation_txg > txg);
    let marks = head.bookmarks()?;
    let marks: Vec<&str> = marks
        .iter()
        .filter(|mark| mark.phys().creation_txg > txg)
        .map(crate::bookmark::Bookmark::name)
        .collect();
    let newer = snapshots.iter().map(Dataset::name).chain(marks.iter().copied());
    let kept: Vec<String> = newer.filter(|name| !lost.iter().any(|l| l == name)).map(str::to_owned).collect();
    if !kept.is_empty() {
        return Err(DslError::NotNewest { name: target.name().to_owned(), newer: kept });
    }
    for snapshot in &snapshots {
        destroy::check_snapshot(ctx, snapshot, false)?;
    }
    let marks = marks.iter().filter_map(|name| Some(name.split_once('#')?.1.to_owned())).collect();
    Ok(Plan { head, target, snapshots, marks })
}

/// Rolls a head back to its newest snapshot, which `to` names.
///
/// # Errors
/// [`DslError::NotNewest`] if newer snapshots or bookmarks exist, [`DslError::Busy`] if the head is in use,
/// [`DslError::Space`] if its refreservation could not be kept, [`DslError::Quota`] if the snapshot
/// references more than the head's refquota.
pub fn rollback(ctx: &mut TaskCtx<'_>, name: &str, to: Option<&str>) -> Result<(), DslError> {
    rollback_over(ctx, name, to, &[])
}

/// Rolls a head back to an older snapshot: newer snapshots and bookmarks of the head are destroyed if their
/// full names are in `lost`. Names of other objects in `lost` are ignored.
///
/// # Errors
/// Those of [`rollback`]; [`DslError::HasClones`] or [`DslError::Held`] for a snapshot that would be
/// destroyed.
pub fn rollback_over(
    ctx: &mut TaskCtx<'_>,
    name: &str,
    to: Option<&str>,
    lost: &[String],
) -> Result<(), DslError> {
    let Plan { head, target, snapshots, marks } = checked(ctx, name, to, lost)?;
    ctx.check_unused(head.id(), name)?;

    for snapshot in &snapshots {
        destroy::destroy_snapshot(ctx, snapshot.id(), snapshot.name())?;
        ctx.note("destroy", Some((snapshot.name(), snapshot.id())), " ");
    }
    let m = ctx.m();
    for mark in &marks {
        Bookmark::destroy(m, head.id(), mark)?;
    }
    let dir = create_dir(m, Some(head.dir().id()), TEMPORARY)?;
    counts::adjust(m, dir, 1, 0)?;
    let clone = create_clone_head(ctx, dir, target.id())?;
    clone_swap(ctx, clone, head.id())?;
    destroy_head(ctx, clone, &format!("{name}/{TEMPORARY}")).map(|_| ())
}

/// Runs the checks of [`rollback_over`], except whether the head is in use, without a change. Called before
/// the head is taken from its users.
///
/// # Errors
/// Those of [`rollback_over`], except [`DslError::Busy`] for the head.
pub fn check_rollback_over(
    ctx: &mut TaskCtx<'_>,
    name: &str,
    to: Option<&str>,
    lost: &[String],
) -> Result<(), DslError> {
    checked(ctx, name, to, lost).map(drop)
}

/// The plan of a rollback, if only a use of the head could still prevent it.
fn checked(ctx: &TaskCtx<'_>, name: &str, to: Option<&str>, lost: &[String]) -> Result<Plan, DslError> {
    let plan = plan(ctx, name, to, lost)?;
    if plan.head.is_encrypted()? && has_foreign_log(ctx, &plan.target.phys().bp)? {
        let why = "the intent log in an encrypted snapshot cannot be taken out without its key";
        return Err(DslError::Encrypted { name: name.to_owned(), why });
    }
    ctx.check_writable(plan.head.id(), name)?;
    limits::check_pool(ctx, LeaveSlop::Half)?;
    check_refreservation(ctx, &plan.head, 0)?;
    check_refquota(ctx, &plan.head, &plan.target, |_| 0)?;
    Ok(plan)
}

/// Checks that the space which the refreservation adds is available when a head has `unique` bytes of its
/// own.
pub(crate) fn check_refreservation(ctx: &TaskCtx<'_>, head: &Dataset, unique: u64) -> Result<(), DslError> {
    let reserved = charge::refreservation(ctx.m(), head.dir().phys())?;
    let (now, then) = (head.unique().min(reserved), unique.min(reserved));
    let (needed, available) = (now.saturating_sub(then), head.dir().available()?);
    if needed > available {
        return Err(DslError::Space { needed, available, after: None });
    }
    Ok(())
}

/// Checks that the bytes which a head would reference do not exceed its refquota by more than `tolerance` of it.
pub(crate) fn check_refquota(
    ctx: &TaskCtx<'_>,
    head: &Dataset,
    target: &Dataset,
    tolerance: impl Fn(u64) -> u64,
) -> Result<(), DslError> {
    let quota = charge::own_number(ctx.m(), head.dir().phys(), "refquota")?;
    let used = target.referenced();
    if quota != 0 && used > quota.saturating_add(tolerance(quota)) {
        return Err(DslError::Quota { name: head.name().to_owned(), used, quota, after: None });
    }
    Ok(())
}

/// The exchanged part of the state of one head.
struct Side {
    phys: DatasetPhys,
    dead: Space,
    /// Bytes in the deadlist born since the head's directory began.
    dead_own: u64,
}

impl Side {
    fn open(m: MosTx<'_>, id: ObjectId, since: Txg) -> Result<Side, DslError> {
        let phys = m.dataset(id)?;
        let (dead, dead_own) = match phys.deadlist {
            Some(list) => (
                Deadlist::open(&m.view(), list)?.space(),
                Deadlist::open(&m.view(), list)?.space_between(since, Txg(u64::MAX))?.used,
            ),
            None => (Space::default(), 0),
        };
        Ok(Side { phys, dead, dead_own })
    }

    /// Space of all blocks that were reachable at any time since the previous snapshot, that snapshot
    /// included.
    fn total(&self) -> Space {
        Space {
            used: self.phys.referenced,
            compressed: self.phys.compressed,
            uncompressed: self.phys.uncompressed,
        }
        .plus(self.dead)
    }
}

/// Exchanges the contents of a head and of a clone of its newest snapshot. The clone, which gets the old
/// contents of the head, is then destroyed by the caller; object numbers and names stay.
///
/// # Errors
/// [`DslError::Mismatch`] if the clone does not descend from the head's newest snapshot; [`DslError::Busy`]
/// if one of them is in use.
pub(crate) fn clone_swap(ctx: &mut TaskCtx<'_>, clone: ObjectId, head: ObjectId) -> Result<(), DslError> {
    let m = ctx.m();
    let name = |id| Ok::<_, DslError>(ctx.dsl()?.dataset_by_object(id)?.name().to_owned());
    let (clone_name, head_name) = (name(clone)?, name(head)?);
    ctx.check_writable(head, &head_name)?;
    ctx.check_unused(clone, &clone_name)?;
    ctx.check_unused(head, &head_name)?;
    let (from, to) = (m.dataset(clone)?, m.dataset(head)?);
    if from.prev_snap != to.prev_snap {
        let number = |id: Option<ObjectId>| id.map_or(0, u64::from);
        let (found, expected) = (number(from.prev_snap), number(to.prev_snap));
        return Err(DslError::Mismatch { what: "origin of a clone", object: clone, found, expected });
    }
    free_log(ctx, &to, head)?;
    // A caller that opens one of them from here on finds the exchanged contents.
    drop(ctx.heads.evict(clone));
    let since = m.origin_txg(&m.dir(to.dir)?)?;
    let (from, to) = (Side::open(m, clone, since)?, Side::open(m, head, since)?);
    if let (Some(previous), Some(list)) = (to.phys.prev_snap, from.phys.deadlist) {
        let after = m.dataset(previous)?.prev_snap_txg;
        let unique = Deadlist::open(&m.view(), list)?.space_between(after, Txg(u64::MAX))?.used;
        if m.dataset(previous)?.next_snap == Some(head) {
            m.change_dataset(previous, |phys| phys.unique = unique)?;
        }
    }
    charge_swap(m, &from, &to)?;
    livelist::remove(m, from.phys.dir)?;
    livelist::remove(m, to.phys.dir)?;
    swap_contents(m, clone, head, &from.phys, &to.phys)?;
    zapify::swap_features(m, clone, head)?;
    swap_remap_deadlists(m, clone, head)?;
    keep_refreservation(m, to.phys.dir, to.phys.unique, from.phys.unique)?;
    forget_log(ctx, head)?;
    let component = head_name.rsplit('/').next().unwrap_or_default();
    ctx.note("clone swap", Some((&clone_name, clone)), format!("parent={component}"));
    Ok(())
}

fn charge_swap(m: MosTx<'_>, from: &Side, to: &Side) -> Result<(), DslError> {
    let (new, old) = (from.total(), to.total());
    let used = difference(new.used, old.used);
    let compressed = difference(new.compressed, old.compressed);
    let uncompressed = difference(new.uncompressed, old.uncompressed);
    let dead = difference(from.dead_own, to.dead_own);
    let of_head = DirDelta { head: used - dead, snap: dead, compressed, uncompressed, ..DirDelta::default() };
    let of_clone =
        DirDelta { head: -used, compressed: -compressed, uncompressed: -uncompressed, ..DirDelta::default() };
    // Apply increases first: an intermediate result below zero would be clamped.
    if used >= 0 {
        charge::apply(m, to.phys.dir, of_head)?;
        charge::apply(m, from.phys.dir, of_clone)
    } else {
        charge::apply(m, from.phys.dir, of_clone)?;
        charge::apply(m, to.phys.dir, of_head)
    }
}

fn swap_contents(
    m: MosTx<'_>,
    a: ObjectId,
    b: ObjectId,
    of_a: &DatasetPhys,
    of_b: &DatasetPhys,
) -> Result<(), DslError> {
    let give = |id, from: &DatasetPhys| {
        m.change_dataset(id, |phys| {
            phys.bp = from.bp;
            phys.referenced = from.referenced;
            phys.compressed = from.compressed;
            phys.uncompressed = from.uncompressed;
            phys.unique = from.unique;
            phys.deadlist = from.deadlist;
        })
    };
    give(a, of_b)?;
    give(b, of_a)
}

fn swap_remap_deadlists(m: MosTx<'_>, a: ObjectId, b: ObjectId) -> Result<(), DslError> {
    let (of_a, of_b) = (
        zapify::get(m, a, names::dataset::REMAP_DEADLIST)?,
        zapify::get(m, b, names::dataset::REMAP_DEADLIST)?,
    );
    for (id, list) in [(a, of_b), (b, of_a)] {
        match list {
            Some(list) => zapify::set(m, id, names::dataset::REMAP_DEADLIST, list)?,
            None => zapify::remove(m, id, names::dataset::REMAP_DEADLIST).map(|_| ())?,
        }
    }
    Ok(())
}
