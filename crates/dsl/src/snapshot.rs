//! Creation of snapshots, many at once (docs/on-disk/22-mos-dsl.md, section 5).
//!
//! # What always holds
//! - A snapshot contains all changes of its head up to the end of the txg: the head is written before, and
//!   not again in that txg.
//! - A call takes all its snapshots in one txg, or none.

use crate::block_space::{Delta, difference};
use crate::bookmark::Bookmark;
use crate::charge::{self, Charge, ref_charged};
use crate::create::{create_dataset, new_phys};
use crate::dataset::Dataset;
use crate::deadlist::Deadlist;
use crate::error::DslError;
use crate::keys::change::mark_snapshot_ivs;
use crate::ledger::sync_set;
use crate::limits::{self, LeaveSlop};
use crate::mos_tx::MosTx;
use crate::name::{self, Name, Tail};
use crate::prop::PropValue;
use crate::prop::values::validate_user;
use crate::task::TaskCtx;
use crate::{counts, zapify};
use dmu::zap::ZapValue;
use format::names;
use format::{ObjType, ObjectId, Txg};
use std::collections::HashSet;

/// A snapshot that can be taken.
struct Planned {
    head: Dataset,
    name: String,
    full_name: String,
}

fn no_such_pool(name: &str) -> DslError {
    DslError::Crosses { name: name.to_owned(), why: "no such pool" }
}

fn plan(ctx: &TaskCtx<'_>, full_name: &str) -> Result<Planned, DslError> {
    let Name { dir, tail: Tail::Snapshot(snapshot) } = name::check_new(full_name)? else {
        let why = "a snapshot name must contain a '@'";
        return Err(DslError::BadName { name: full_name.to_owned(), why });
    };
    if dir.split('/').next() != Some(ctx.pool_name) {
        return Err(no_such_pool(full_name));
    }
    let dsl = ctx.dsl()?;
    let head = dsl.dir(dir)?.head()?.ok_or_else(|| DslError::not_found(dir))?;
    if head.is_inconsistent() {
        return Err(DslError::Inconsistent { name: full_name.to_owned() });
    }
    if head.snapshot(snapshot)?.is_some() {
        return Err(DslError::Exists { name: full_name.to_owned() });
    }
    // Two snapshots of one txg could not be told apart by the births of their blocks.
    if head.phys().prev_snap_txg >= ctx.txg() {
        return Err(DslError::Again { name: full_name.to_owned() });
    }
    Ok(Planned { head, name: snapshot.to_owned(), full_name: full_name.to_owned() })
}

/// Checks that the pool has the space by which a snapshot increases the charge of the refreservation.
fn check_room(ctx: &TaskCtx<'_>, head: &Dataset) -> Result<(), DslError> {
    let reserved = charge::refreservation(ctx.m(), head.dir().phys())?;
    let needed = head.unique().min(reserved);
    let available = head.dir().available()?;
    if needed > available {
        return Err(DslError::Space { needed, available, after: None });
    }
    Ok(())
}

/// Takes snapshots (`pool/a@s`), at most one of each dataset. `props` are user properties of all of them.
///
/// # Errors
/// [`DslError::BadName`] or [`DslError::Exists`] for a name, [`DslError::NotFound`] if a dataset is missing,
/// [`DslError::CountLimit`], or [`DslError::Space`] if a refreservation cannot be kept. [`DslError::Again`]
/// if a snapshot of one of the datasets was taken in this very txg.
pub fn snapshot(
    ctx: &mut TaskCtx<'_>,
    names: &[String],
    props: &[(String, PropValue)],
) -> Result<Vec<ObjectId>, DslError> {
    limits::check_pool(ctx, LeaveSlop::All)?;
    for (prop, value) in props {
        validate_user(prop, value.string().unwrap_or_default())?;
    }
    let mut planned = Vec::with_capacity(names.len());
    let mut heads = HashSet::new();
    for name in names {
        let plan = plan(ctx, name)?;
        if !heads.insert(plan.head.id()) {
            let why = "multiple snapshots of same fs not permitted";
            return Err(DslError::Crosses { name: name.clone(), why });
        }
        check_room(ctx, &plan.head)?;
        planned.push(plan);
    }
    let has_limits = ctx.features.is_active("filesystem_limits");
    for plan in planned.iter().filter(|_| has_limits) {
        let dir = plan.head.dir();
        // Snapshots of datasets below count for the directories above too.
        let below = format!("{}/", dir.name());
        let is_below = |p: &&Planned| p.head.dir().id() == dir.id() || p.head.name().starts_with(&below);
        let wanted = planned.iter().filter(is_below).count() as u64;
        counts::check(ctx, dir.id(), 0, wanted)?;
    }
    let mut taken = Vec::with_capacity(planned.len());
    for plan in planned {
        let id = take(ctx, plan.head.id(), &plan.name)?;
        store_props(ctx.m(), id, props)?;
        ctx.note("snapshot", Some((&plan.full_name, id)), " ");
        taken.push(id);
    }
    Ok(taken)
}

fn store_props(m: MosTx<'_>, snapshot: ObjectId, props: &[(String, PropValue)]) -> Result<(), DslError> {
    if props.is_empty() {
        return Ok(());
    }
    let map = m.create_plain_zap(ObjType::DSL_PROPS)?;
    let zap = m.zap(map)?;
    for (prop, value) in props {
        match value {
            PropValue::Number(n) => zap.upsert(prop.as_bytes(), *n)?,
            PropValue::String(text) => zap.upsert(prop.as_bytes(), ZapValue::Str(text.as_bytes()))?,
        }
    }
    m.change_dataset(snapshot, |phys| phys.props = Some(map))
}

/// Takes a snapshot of a head. The caller has made all checks.
pub(crate) fn take(ctx: &TaskCtx<'_>, head: ObjectId, name: &str) -> Result<ObjectId, DslError> {
    let m = ctx.m();
    if let Some(open) = ctx.heads.get(head).filter(|open| open.set.is_dirty(ctx.txg())) {
        sync_set(ctx.m(), ctx.brt, head, &open.set)?;
    }
    let old = m.dataset(head)?;
    let mut phys = new_phys(m, old.dir);
    phys.prev_snap = old.prev_snap;
    phys.prev_snap_txg = old.prev_snap_txg;
    phys.next_snap = Some(head);
    phys.num_children = 1;
    phys.deadlist = old.deadlist;
    (phys.referenced, phys.compressed) = (old.referenced, old.compressed);
    phys.uncompressed = old.uncompressed;
    phys.flags = old.flags;
    phys.bp = old.bp;
    let snapshot = create_dataset(m, &phys)?;
    zapify::copy_features(m, head, snapshot)?;
    mark_snapshot_ivs(m, old.dir, snapshot)?;
    insert_before(m, head, snapshot, old.prev_snap)?;
    let deadlist = next_deadlist(m, head, old.deadlist, old.prev_snap_txg)?;
    move_remap_deadlist(m, head, snapshot)?;
    m.change_dataset(head, |phys| {
        phys.deadlist = Some(deadlist);
        phys.prev_snap = Some(snapshot);
        phys.prev_snap_txg = m.txg();
        phys.unique = 0;
    })?;
    keep_refreservation(m, old.dir, old.unique, 0)?;
    let missing = || DslError::Mismatch { what: "snapshot names", object: head, found: 0, expected: 1 };
    m.zap(old.snapshot_names.ok_or_else(missing)?)?.insert(name.as_bytes(), snapshot.0)?;
    counts::adjust(m, old.dir, 0, 1)?;
    counts::snapshots_changed(m, old.dir)?;
    Ok(snapshot)
}

/// Inserts a new snapshot between a head and its previous snapshot.
fn insert_before(
    m: MosTx<'_>,
    head: ObjectId,
    snapshot: ObjectId,
    previous: Option<ObjectId>,
) -> Result<(), DslError> {
    let Some(previous) = previous else { return Ok(()) };
    replace_next(m, previous, head, snapshot)
}

/// Replaces `old` by `new` as a successor of a snapshot, in line or as a clone.
pub(crate) fn replace_next(
    m: MosTx<'_>,
    previous: ObjectId,
    old: ObjectId,
    new: ObjectId,
) -> Result<(), DslError> {
    let phys = m.dataset(previous)?;
    if phys.next_snap == Some(old) {
        return m.change_dataset(previous, |phys| phys.next_snap = Some(new));
    }
    // Pools before version 11 keep no such sets.
    let Some(set) = phys.next_clones else { return Ok(()) };
    m.set_remove(set, old.0)?;
    m.set_insert(Some(set), ObjType::NEXT_CLONES, new.0).map(|_| ())
}

/// Creates the new deadlist of a head when a snapshot takes over the present one: the same birth ranges, plus
/// the one that begins with the new snapshot.
fn next_deadlist(
    m: MosTx<'_>,
    head: ObjectId,
    old: Option<ObjectId>,
    previous_txg: Txg,
) -> Result<ObjectId, DslError> {
    let Some(old) = old else { return Deadlist::create(m) };
    let new = Deadlist::clone_keys(m, old, Txg(u64::MAX))?;
    let keys = Deadlist::keys(m, new)?;
    let mut wanted = Bookmark::fbn_keys(m, head, previous_txg)?;
    wanted.push(previous_txg);
    wanted.sort_unstable();
    wanted.dedup();
    for key in wanted.into_iter().filter(|key| !keys.contains(key)) {
        Deadlist::add_key(m, new, key)?;
    }
    Ok(new)
}

fn move_remap_deadlist(m: MosTx<'_>, head: ObjectId, snapshot: ObjectId) -> Result<(), DslError> {
    let Some(list) = zapify::get(m, head, names::dataset::REMAP_DEADLIST)?.filter(|id| *id != 0) else {
        return Ok(());
    };
    zapify::remove(m, head, names::dataset::REMAP_DEADLIST)?;
    zapify::set(m, snapshot, names::dataset::REMAP_DEADLIST, list)
}

/// Adjusts the charge of a refreservation when a head's unique bytes have changed without a block born or
/// killed.
pub(crate) fn keep_refreservation(
    m: MosTx<'_>,
    dir: ObjectId,
    old_unique: u64,
    new_unique: u64,
) -> Result<(), DslError> {
    let reserved = charge::refreservation(m, &m.dir(dir)?)?;
    let extra = |unique| difference(ref_charged(unique, reserved), unique);
    let used = extra(new_unique) - extra(old_unique);
    charge::charge(m, dir, Charge::RefReservation, Delta { used, ..Delta::default() })
}
