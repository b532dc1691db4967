//! Promotion of a clone: it takes its origin and all older snapshots over from the head that has them
//! (docs/on-disk/22-mos-dsl.md, section 5).
//!
//! # What always holds
//! - Blocks stay with their datasets; only snapshots move between directories. The referenced and unique
//!   bytes of each dataset stay the same, except for the origin, which gets another successor.
//! - The snapshot charges of both directories are recomputed from the deadlists.

use crate::block_space::{Space, difference};
use crate::bookmark::Bookmark;
use crate::charge::{self, DirDelta};
use crate::dataset::CHAIN_LIMIT;
use crate::deadlist::Deadlist;
use crate::error::DslError;
use crate::keys::change::key_root_of;
use crate::limits::{self, LeaveSlop};
use crate::mos;
use crate::mos_tx::MosTx;
use crate::name::is_hidden;
use crate::task::TaskCtx;
use crate::tree::Dsl;
use crate::{counts, livelist};
use dmu::zap::ZapValue;
use format::dsl::DS_FLAG_NOPROMOTE;
use format::{ObjType, ObjectId, Txg};
use std::collections::HashMap;

/// The datasets of a chain from `from` back to `until`, which is left out; newest first.
fn chain(m: MosTx<'_>, from: ObjectId, until: Option<ObjectId>) -> Result<Vec<ObjectId>, DslError> {
    let (mut all, mut at) = (Vec::new(), Some(from));
    while let Some(id) = at.filter(|id| Some(*id) != until) {
        if all.len() > CHAIN_LIMIT || all.last() == Some(&id) {
            return Err(DslError::Endless { what: "snapshots", object: from, limit: CHAIN_LIMIT });
        }
        all.push(id);
        at = m.dataset(id)?.prev_snap;
    }
    if at.is_none() && until.is_some() {
        return Err(DslError::Mismatch { what: "chain of snapshots", object: from, found: 0, expected: 1 });
    }
    Ok(all)
}

/// Bytes in the deadlists of these datasets that were born after `after`: the snapshot charge of their
/// directory if it began at that txg.
fn dead_since(m: MosTx<'_>, datasets: &[ObjectId], after: Txg) -> Result<u64, DslError> {
    let mut sum = 0_u64;
    for id in datasets {
        if let Some(list) = m.dataset(*id)?.deadlist {
            sum = sum
                .saturating_add(Deadlist::open(&m.view(), list)?.space_between(after, Txg(u64::MAX))?.used);
        }
    }
    Ok(sum)
}

/// Checked plan of a promotion.
struct Plan {
    clone: ObjectId,
    clone_dir: ObjectId,
    /// The head that loses its snapshots, and its directory.
    loser: ObjectId,
    loser_dir: ObjectId,
    origin: ObjectId,
    /// The snapshot that the loser descends from.
    grand_origin: Option<ObjectId>,
    /// The origin and all snapshots before it, newest first.
    shared: Vec<ObjectId>,
    /// The clone and its snapshots, and the loser and the snapshots it keeps, newest first.
    clone_side: Vec<ObjectId>,
    loser_side: Vec<ObjectId>,
    /// Names of `shared`, in the same order.
    names: Vec<String>,
}

impl Plan {
    fn make(ctx: &TaskCtx<'_>, dsl: &Dsl, name: &str) -> Result<Plan, DslError> {
        let m = ctx.m();
        let dir = dsl.dir(name)?;
        let clone = dir.head()?.ok_or_else(|| DslError::not_found(name))?;
        let not_clone = || DslError::NotClone { name: name.to_owned() };
        let origin = dir.origin()?.ok_or_else(not_clone)?;
        if is_hidden(origin.dir().component()) || clone.phys().flags & DS_FLAG_NOPROMOTE != 0 {
            return Err(not_clone());
        }
        let loser_dir = origin.dir().id();
        if key_root_of(m, loser_dir)?.is_some_and(|root| root == loser_dir) {
            let why = "the clone of an encryption root cannot be promoted";
            return Err(DslError::Encrypted { name: name.to_owned(), why });
        }
        let loser = origin.dir().head()?.ok_or_else(not_clone)?;
        let grand_origin = m.dir(loser_dir)?.origin;
        let shared = chain(m, origin.id(), grand_origin)?;
        let names = shared_names(m, loser.phys().snapshot_names, &shared)?;
        for name in &names {
            if clone.snapshot(name)?.is_some() {
                return Err(DslError::Exists { name: format!("{}@{name}", clone.name()) });
            }
            // The new names must not be too long either.
            crate::name::Name::parse(&format!("{}@{name}", clone.name()))?;
        }
        let upto = m.dataset(origin.id())?.creation_txg;
        if let Some(mark) = Bookmark::move_conflicts(m, loser.id(), clone.id(), upto)?.first() {
            return Err(DslError::Exists { name: format!("{}#{mark}", clone.name()) });
        }
        Ok(Plan {
            clone: clone.id(),
            clone_dir: dir.id(),
            loser: loser.id(),
            loser_dir,
            origin: origin.id(),
            grand_origin,
            clone_side: chain(m, clone.id(), Some(origin.id()))?,
            loser_side: chain(m, loser.id(), Some(origin.id()))?,
            shared,
            names,
        })
    }

    /// Space of all blocks that were born in the shared part of the chain.
    fn moved_space(&self, m: MosTx<'_>) -> Result<Space, DslError> {
        let origin = m.dataset(self.origin)?;
        let mut sum = Space {
            used: origin.referenced,
            compressed: origin.compressed,
            uncompressed: origin.uncompressed,
        };
        for id in &self.shared {
            let phys = m.dataset(*id)?;
            if let (Some(list), true) = (phys.deadlist, phys.prev_snap.is_some()) {
                sum = sum.plus(Deadlist::open(&m.view(), list)?.space());
            }
        }
        if let Some(before) = self.grand_origin {
            let before = m.dataset(before)?;
            sum.used = sum.used.saturating_sub(before.referenced);
            sum.compressed = sum.compressed.saturating_sub(before.compressed);
            sum.uncompressed = sum.uncompressed.saturating_sub(before.uncompressed);
        }
        Ok(sum)
    }

    /// The dataset that follows the origin, on this side of the branch.
    fn next_of(side: &[ObjectId]) -> Result<ObjectId, DslError> {
        let none = DslError::Mismatch { what: "successor", object: ObjectId(0), found: 0, expected: 1 };
        side.last().copied().ok_or(none)
    }
}

fn shared_names(m: MosTx<'_>, map: Option<ObjectId>, shared: &[ObjectId]) -> Result<Vec<String>, DslError> {
    let missing = |id| DslError::Mismatch { what: "snapshot names", object: id, found: 0, expected: 1 };
    let map = map.ok_or_else(|| missing(ObjectId(0)))?;
    let mut names = HashMap::new();
    for entry in mos::zap(&m.view(), map)?.entries() {
        let entry = entry?;
        let id = ObjectId(mos::number(map, &entry)?);
        names.insert(id, crate::name::stored(map, id, entry.name())?.to_owned());
    }
    shared.iter().map(|id| names.remove(id).ok_or_else(|| missing(*id))).collect()
}

/// Makes a clone the owner of its origin and of all older snapshots; the former owner becomes its clone.
///
/// # Errors
/// [`DslError::NotClone`]; [`DslError::Exists`] if the clone has a snapshot of the name of one that it
/// would get; [`DslError::Space`] or [`DslError::Quota`] if a quota above it has no room for them.
pub fn promote(ctx: &mut TaskCtx<'_>, name: &str) -> Result<(), DslError> {
    let dsl = ctx.dsl()?;
    let plan = Plan::make(ctx, &dsl, name)?;
    let m = ctx.m();
    let moved = plan.moved_space(m)?;
    let (from, to) = (dsl.dir_by_object(plan.loser_dir)?, dsl.dir(name)?);
    limits::check_transfer(&from, &to, moved.used)?;
    limits::check_pool(ctx, LeaveSlop::Half)?;
    counts::check_promotion(ctx, &from, &to, plan.shared.len() as u64)?;

    charge_dirs(m, &plan, moved)?;
    turn_chain(m, &plan)?;
    turn_dirs(m, &plan)?;
    move_snapshots(m, &plan)?;
    Bookmark::move_upto(m, plan.loser, plan.clone, m.dataset(plan.origin)?.creation_txg)?;
    livelist::remove(m, plan.clone_dir)?;
    livelist::remove(m, plan.loser_dir)?;
    ctx.note("promote", Some((name, plan.clone)), " ");
    Ok(())
}

/// Moves the charge of the shared snapshots. Runs before all other changes.
fn charge_dirs(m: MosTx<'_>, plan: &Plan, moved: Space) -> Result<(), DslError> {
    let loser_dir = m.dir(plan.loser_dir)?;
    let grand_txg = m.origin_txg(&loser_dir)?;
    let origin_txg = m.dataset(plan.origin)?.creation_txg;
    let of_clone =
        dead_since(m, &plan.shared, grand_txg)?.saturating_add(dead_since(m, &plan.clone_side, grand_txg)?);
    let of_loser = dead_since(m, &plan.loser_side, origin_txg)?;
    let (used, compressed, uncompressed) =
        (difference(moved.used, 0), difference(moved.compressed, 0), difference(moved.uncompressed, 0));
    let gained = difference(of_clone, m.dir(plan.clone_dir)?.breakdown.snap);
    let lost = difference(of_loser, loser_dir.breakdown.snap);
    let to_clone =
        DirDelta { snap: gained, head: used - gained, compressed, uncompressed, ..DirDelta::default() };
    let to_loser = DirDelta {
        snap: lost,
        head: -used - lost,
        compressed: -compressed,
        uncompressed: -uncompressed,
        ..DirDelta::default()
    };
    charge::apply(m, plan.loser_dir, to_loser)?;
    charge::apply(m, plan.clone_dir, to_clone)
}

/// Makes the clone's side the successor of the origin, and the other side a branch.
fn turn_chain(m: MosTx<'_>, plan: &Plan) -> Result<(), DslError> {
    let (next, branch) = (Plan::next_of(&plan.clone_side)?, Plan::next_of(&plan.loser_side)?);
    let origin = m.dataset(plan.origin)?;
    let unique = match m.dataset(next)?.deadlist {
        Some(list) => {
            Deadlist::open(&m.view(), list)?.space_between(origin.prev_snap_txg, Txg(u64::MAX))?.used
        }
        None => 0,
    };
    let next_clones = match origin.next_clones {
        Some(set) => {
            m.set_remove(set, next.0)?;
            Some(m.set_insert(Some(set), ObjType::NEXT_CLONES, branch.0)?)
        }
        None => None,
    };
    m.change_dataset(plan.origin, |phys| {
        phys.next_snap = Some(next);
        phys.next_clones = next_clones;
        phys.unique = unique;
    })
}

/// Updates both directories and their sets of clones.
fn turn_dirs(m: MosTx<'_>, plan: &Plan) -> Result<(), DslError> {
    remove_clone(m, plan.loser_dir, plan.clone)?;
    if let Some(before) = plan.grand_origin {
        let dir = m.dataset(before)?.dir;
        remove_clone(m, dir, plan.loser)?;
        add_clone(m, dir, plan.clone)?;
    }
    add_clone(m, plan.clone_dir, plan.loser)?;
    m.change_dir(plan.clone_dir, |phys| phys.origin = plan.grand_origin)?;
    m.change_dir(plan.loser_dir, |phys| phys.origin = Some(plan.origin))
}

fn remove_clone(m: MosTx<'_>, dir: ObjectId, head: ObjectId) -> Result<(), DslError> {
    m.dir(dir)?.clones.map_or(Ok(()), |set| m.set_remove(set, head.0))
}

fn add_clone(m: MosTx<'_>, dir: ObjectId, head: ObjectId) -> Result<(), DslError> {
    let set = m.set_insert(m.dir(dir)?.clones, ObjType::DSL_CLONES, head.0)?;
    m.change_dir(dir, |phys| phys.clones = Some(set))
}

/// Moves the snapshots, their names, and the other clones of them.
fn move_snapshots(m: MosTx<'_>, plan: &Plan) -> Result<(), DslError> {
    let missing = |id| DslError::Mismatch { what: "snapshot names", object: id, found: 0, expected: 1 };
    let names = |head| m.dataset(head)?.snapshot_names.ok_or_else(|| missing(head));
    let (from, to) = (m.zap(names(plan.loser)?)?, m.zap(names(plan.clone)?)?);
    let branch = Plan::next_of(&plan.loser_side)?;
    for (id, name) in plan.shared.iter().zip(&plan.names) {
        from.remove(name.as_bytes())?;
        to.insert(name.as_bytes(), ZapValue::U64(id.0))?;
        counts::adjust(m, plan.loser_dir, 0, -1)?;
        m.change_dataset(*id, |phys| phys.dir = plan.clone_dir)?;
        counts::adjust(m, plan.clone_dir, 0, 1)?;
        for other in m.members(m.dataset(*id)?.next_clones)? {
            // The loser's own side was moved with the directories.
            if other == branch {
                continue;
            }
            let dir = m.dataset(other)?.dir;
            if let Some(head) = m.dir(dir)?.head {
                remove_clone(m, plan.loser_dir, head)?;
                add_clone(m, plan.clone_dir, head)?;
            }
        }
    }
    Ok(())
}
