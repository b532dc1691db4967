//! Destruction of snapshots and heads (docs/on-disk/22-mos-dsl.md, section 5).
//!
//! # What always holds
//! - The charge of blocks that a dataset alone holds moves to `$FREE` in the same txg; the blocks themselves
//!   are freed later, from the background lists (`free_lists`), unless the pool has no such lists.
//! - Blocks of the origin of a clone are never freed with the clone: only blocks born after it.

#[cfg(test)]
mod tests;

use crate::block_space::{Delta, Space};
use crate::bookmark::Bookmark;
use crate::bpobj::Bpobj;
use crate::charge::{self, Charge};
use crate::dataset::Dataset;
use crate::deadlist::Deadlist;
use crate::delegation;
use crate::error::DslError;
use crate::free_lists;
use crate::freeing::{Freer, free_bpobj};
use crate::keys::change::release_key;
use crate::limits::{self, LeaveSlop};
use crate::mos_tx::MosTx;
use crate::name::{self, DEPTH_LIMIT, Name, Tail};
use crate::snapshot::{keep_refreservation, replace_next};
use crate::task::TaskCtx;
use crate::tree::Dsl;
use crate::{bptree, counts, holds, livelist, receive, zapify};
use dmu::traverse::{self, Step, Visitor};
use dmu::{DmuError, KeyState, ObjSet};
use dmu::{LiveSet, SetPolicy};
use format::dnode::Dnode;
use format::dsl::{DS_FLAG_DEFER_DESTROY, DatasetPhys};
use format::names;
use format::{BlockPtr, ObjectId, Txg};
use std::collections::HashSet;

/// Full names of the clones of a snapshot.
fn clone_names(snapshot: &Dataset) -> Result<Vec<String>, DslError> {
    Ok(snapshot.clones()?.iter().map(|clone| clone.name().to_owned()).collect())
}

// ---- snapshots ------------------------------------------------------------------------------

/// Destroys snapshots (`pool/a@s`); names that do not exist are ignored. With `defer`, those that are held or
/// have clones are destroyed with their last hold and clone.
///
/// # Errors
/// [`DslError::HasClones`] or [`DslError::Held`] unless `defer`; no snapshot is destroyed then.
pub fn destroy_snapshots(ctx: &mut TaskCtx<'_>, names: &[String], defer: bool) -> Result<(), DslError> {
    let dsl = ctx.dsl()?;
    let mut found: Vec<(&String, ObjectId, bool)> = Vec::new();
    let mut seen = HashSet::new();
    for name in names {
        let Name { tail: Tail::Snapshot(_), .. } = Name::parse(name)? else {
            return Err(DslError::WrongKind { name: name.clone(), why: "not a snapshot" });
        };
        match dsl.dataset(name) {
            Ok(snapshot) if !seen.insert(snapshot.id()) => {}
            Ok(snapshot) => {
                let must_wait = check_snapshot(ctx, &snapshot, defer)?;
                found.push((name, snapshot.id(), must_wait));
            }
            Err(DslError::NotFound { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    limits::check_pool(ctx, LeaveSlop::Quarter)?;
    for (name, id, must_wait) in found {
        if must_wait {
            ctx.m().change_dataset(id, |phys| phys.flags |= DS_FLAG_DEFER_DESTROY)?;
            ctx.note("defer_destroy", Some((name, id)), " ");
        } else {
            destroy_snapshot(ctx, id, name)?;
            ctx.note("destroy", Some((name, id)), " ");
        }
    }
    Ok(())
}

/// Checks that a snapshot can be destroyed. Returns true if it must be deferred because of holds or clones.
pub(crate) fn check_snapshot(ctx: &TaskCtx<'_>, snapshot: &Dataset, defer: bool) -> Result<bool, DslError> {
    let name = || snapshot.name().to_owned();
    let (is_held, has_clones) = (holds::is_held(ctx.m(), snapshot.id())?, snapshot.phys().num_children > 1);
    match (is_held, has_clones, defer) {
        (false, false, _) => ctx.check_unused(snapshot.id(), snapshot.name()).map(|()| false),
        (_, _, true) => Ok(true),
        (true, _, false) => Err(DslError::Held { name: name() }),
        (false, true, false) => Err(DslError::HasClones { name: name(), clones: clone_names(snapshot)? }),
    }
}

/// Checks, before a hold or a clone of a snapshot is removed, that a snapshot marked for deferred destruction
/// can be destroyed with it.
///
/// # Errors
/// [`DslError::Busy`] or [`DslError::Again`] if the snapshot is in use.
pub fn check_deferred(ctx: &TaskCtx<'_>, snapshot: ObjectId, name: &str) -> Result<(), DslError> {
    let phys = ctx.m().dataset(snapshot)?;
    if phys.is_snapshot() && phys.flags & DS_FLAG_DEFER_DESTROY != 0 {
        return ctx.check_unused(snapshot, name);
    }
    Ok(())
}

/// Destroys a snapshot marked for deferred destruction if it has neither holds nor clones any more. Returns
/// true if it was destroyed.
///
/// # Errors
/// Those of destroying the snapshot, if it is due.
pub fn destroy_if_deferred(ctx: &mut TaskCtx<'_>, snapshot: ObjectId) -> Result<bool, DslError> {
    let m = ctx.m();
    let phys = m.dataset(snapshot)?;
    let is_free = phys.num_children == 1 && !holds::is_held(m, snapshot)?;
    if !phys.is_snapshot() || phys.flags & DS_FLAG_DEFER_DESTROY == 0 || !is_free {
        return Ok(false);
    }
    let name = ctx.dsl()?.dataset_by_object(snapshot)?.name().to_owned();
    destroy_snapshot(ctx, snapshot, &name)?;
    ctx.note("destroy", Some((&name, snapshot)), " ");
    Ok(true)
}

fn broken(what: &'static str, object: ObjectId) -> DslError {
    DslError::Mismatch { what, object, found: 0, expected: 1 }
}

/// The datasets of a chain around a snapshot.
struct Link {
    id: ObjectId,
    phys: DatasetPhys,
    /// The dataset after the snapshot.
    next: ObjectId,
    next_phys: DatasetPhys,
    /// Deadlists of the snapshot and of the dataset after it.
    deadlist: ObjectId,
    next_deadlist: ObjectId,
    /// The head of the snapshot's directory.
    head: ObjectId,
}

impl Link {
    fn open(m: MosTx<'_>, id: ObjectId) -> Result<Link, DslError> {
        let phys = m.dataset(id)?;
        let next = phys.next_snap.ok_or_else(|| broken("successor of a snapshot", id))?;
        let next_phys = m.dataset(next)?;
        if next_phys.prev_snap != Some(id) {
            return Err(broken("predecessor of a dataset", next));
        }
        let deadlist = phys.deadlist.ok_or_else(|| broken("deadlist", id))?;
        let next_deadlist = next_phys.deadlist.ok_or_else(|| broken("deadlist", next))?;
        let head = m.dir(phys.dir)?.head.ok_or_else(|| broken("head of a directory", phys.dir))?;
        Ok(Link { id, phys, next, next_phys, deadlist, next_deadlist, head })
    }
}

/// Destroys the snapshot with this full name. The caller has checked that it has no holds and no clones.
pub(crate) fn destroy_snapshot(ctx: &TaskCtx<'_>, id: ObjectId, name: &str) -> Result<(), DslError> {
    let m = ctx.m();
    let link = Link::open(m, id)?;
    let keeps_key = Bookmark::on_snapshot_destroy(m, link.head, id)?;
    zapify::drop_features(m, id)?;
    unlink(m, &link)?;
    let unique_to_next = space_unique_to_next(m, &link)?;
    free_own_blocks(m, &link)?;
    Deadlist::merge(m, link.next_deadlist, link.deadlist)?;
    merge_remap_deadlist(m, &link)?;
    if !keeps_key {
        Deadlist::remove_key(
            m,
            m.dataset(link.head)?.deadlist.unwrap_or(link.next_deadlist),
            link.phys.creation_txg,
        )?;
        remove_clones_key(m, link.phys.dir, link.phys.creation_txg)?;
    }
    settle_next(m, &link, unique_to_next)?;
    remove_name(m, &link, name)?;
    counts::adjust(m, link.phys.dir, 0, -1)?;
    counts::snapshots_changed(m, link.phys.dir)?;
    m.free_if_any(link.phys.props)?;
    holds::free_all(m, id)?;
    m.free_if_any(link.phys.next_clones)?;
    zapify::free_object(m, id)
}

/// Links the datasets before and after the snapshot, and updates the unique bytes of the one before.
fn unlink(m: MosTx<'_>, link: &Link) -> Result<(), DslError> {
    let Some(previous) = link.phys.prev_snap else {
        return m.change_dataset(link.next, |phys| {
            phys.prev_snap = None;
            phys.prev_snap_txg = Txg(0);
        });
    };
    let before = m.dataset(previous)?;
    if before.next_snap == Some(link.id) {
        let (after, until) = (before.prev_snap_txg, link.phys.prev_snap_txg);
        let more = Deadlist::open(&m.view(), link.next_deadlist)?.space_between(after, until)?.used;
        m.change_dataset(previous, |phys| phys.unique = phys.unique.saturating_add(more))?;
    }
    replace_next(m, previous, link.id, link.next)?;
    m.change_dataset(link.next, |phys| {
        phys.prev_snap = Some(previous);
        phys.prev_snap_txg = link.phys.prev_snap_txg;
    })
}

/// Bytes unique to the next snapshot once this one is gone. Called before birth ranges are merged.
fn space_unique_to_next(m: MosTx<'_>, link: &Link) -> Result<u64, DslError> {
    if !link.next_phys.is_snapshot() {
        return Ok(0);
    }
    let after = link.next_phys.next_snap.ok_or_else(|| broken("successor of a snapshot", link.next))?;
    let Some(list) = m.dataset(after)?.deadlist else { return Ok(0) };
    Ok(Deadlist::open(&m.view(), list)?.space_between(link.phys.prev_snap_txg, link.phys.creation_txg)?.used)
}

/// Frees the snapshot's own blocks: born after the snapshot before it, and killed before the one after it.
fn free_own_blocks(m: MosTx<'_>, link: &Link) -> Result<(), DslError> {
    let list = free_bpobj(m)?;
    let freed = Deadlist::move_range(m, link.next_deadlist, link.phys.prev_snap_txg, list)?;
    charge::charge(m, link.phys.dir, Charge::Snap, -Delta::from(freed))?;
    charge::charge_free(m, freed.into())
}

/// Places on removed vdevs that blocks of the next dataset had before these were remapped: those that only the
/// snapshot still names are obsolete; what its own list has goes to the next.
fn merge_remap_deadlist(m: MosTx<'_>, link: &Link) -> Result<(), DslError> {
    let list_of =
        |id| zapify::get(m, id, names::dataset::REMAP_DEADLIST).map(|list| list.filter(|list| *list != 0));
    let (own, next) = (list_of(link.id)?, list_of(link.next)?);
    if let Some(next) = next {
        Deadlist::move_range(m, ObjectId(next), link.phys.prev_snap_txg, obsolete_bpobj(m)?)?;
    }
    match (own, next) {
        (None, _) => Ok(()),
        (Some(own), Some(next)) => {
            Deadlist::merge(m, ObjectId(next), ObjectId(own))?;
            m.features.decr(m, "obsolete_counts")
        }
        (Some(own), None) => zapify::set(m, link.next, names::dataset::REMAP_DEADLIST, own),
    }
}

/// The list of places on removed vdevs that have become obsolete; created if there is none.
fn obsolete_bpobj(m: MosTx<'_>) -> Result<ObjectId, DslError> {
    if let Some(id) = m.entry(names::directory::OBSOLETE_BPOBJ)? {
        return Ok(id);
    }
    let id = Bpobj::create(m, 0)?;
    m.set_entry(names::directory::OBSOLETE_BPOBJ, id.0)?;
    m.features.incr(m, "obsolete_counts")?;
    Ok(id)
}

/// Removes the snapshot's key from the deadlists of the clones that descend from later datasets of the chain,
/// and of their clones.
fn remove_clones_key(m: MosTx<'_>, dir: ObjectId, key: Txg) -> Result<(), DslError> {
    let mut dirs = vec![dir];
    let mut seen = HashSet::new();
    while let Some(dir) = dirs.pop() {
        if !seen.insert(dir) {
            return Err(DslError::Endless { what: "clones", object: dir, limit: DEPTH_LIMIT });
        }
        for clone in m.members(m.dir(dir)?.clones)? {
            let phys = m.dataset(clone)?;
            if m.origin_txg(&m.dir(phys.dir)?)? > key {
                if let Some(list) = phys.deadlist {
                    Deadlist::remove_key(m, list, key)?;
                }
                dirs.push(phys.dir);
            }
        }
    }
    Ok(())
}

/// Updates the unique bytes of the next dataset.
fn settle_next(m: MosTx<'_>, link: &Link, unique: u64) -> Result<(), DslError> {
    if link.next_phys.is_snapshot() {
        return m.change_dataset(link.next, |phys| phys.unique = phys.unique.saturating_add(unique));
    }
    let (old, new) = (link.next_phys.unique, unique_of_head(m, link.next)?);
    m.change_dataset(link.next, |phys| phys.unique = new)?;
    keep_refreservation(m, link.next_phys.dir, old, new)
}

/// Bytes of a head that no snapshot holds: its referenced bytes minus those that remain of the previous
/// snapshot.
pub(crate) fn unique_of_head(m: MosTx<'_>, head: ObjectId) -> Result<u64, DslError> {
    let phys = m.dataset(head)?;
    let Some(previous) = phys.prev_snap else { return Ok(phys.referenced) };
    let dead = match phys.deadlist {
        Some(list) => Deadlist::open(&m.view(), list)?.space().used,
        None => 0,
    };
    let shared = m.dataset(previous)?.referenced.saturating_sub(dead);
    Ok(phys.referenced.saturating_sub(shared))
}

fn remove_name(m: MosTx<'_>, link: &Link, name: &str) -> Result<(), DslError> {
    let map = m.dataset(link.head)?.snapshot_names.ok_or_else(|| broken("snapshot names", link.head))?;
    let (_, component) = name.rsplit_once('@').ok_or_else(|| broken("name of a snapshot", link.id))?;
    Ok(m.zap(map)?.remove(component.as_bytes())?)
}

// ---- heads ----------------------------------------------------------------------------------

/// Checks that a head can be destroyed.
fn check_head(ctx: &TaskCtx<'_>, dsl: &Dsl, name: &str) -> Result<Dataset, DslError> {
    let Name { tail: Tail::None, .. } = name::Name::parse(name)? else {
        return Err(DslError::WrongKind { name: name.to_owned(), why: "not a file system or volume" });
    };
    let dir = dsl.dir(name)?;
    let head = dir.head()?.ok_or_else(|| DslError::not_found(name))?;
    if dir.parent().is_none() {
        let why = "operation does not apply to pools";
        return Err(DslError::WrongKind { name: name.to_owned(), why });
    }
    let mut children: Vec<String> = dir.children()?.iter().map(|child| child.name().to_owned()).collect();
    children.extend(head.snapshots()?.iter().map(|snapshot| snapshot.name().to_owned()));
    if !children.is_empty() {
        return Err(DslError::HasChildren { name: name.to_owned(), children });
    }
    for hidden in dir.hidden_children()? {
        // What an interrupted receive has left goes with the dataset.
        match hidden.head()?.filter(|_| hidden.component() == names::hidden::RECEIVE) {
            Some(partial) => ctx.check_unused(partial.id(), partial.name())?,
            None => return Err(DslError::Busy { name: name.to_owned() }),
        }
    }
    ctx.check_unused(head.id(), name)?;
    if let Some(origin) = head.phys().prev_snap {
        check_deferred(ctx, origin, name)?;
    }
    Ok(head)
}

/// Destroys a file system or volume that has no children and no snapshots.
///
/// # Errors
/// [`DslError::HasChildren`], [`DslError::Busy`], [`DslError::WrongKind`] for the pool's root.
pub fn destroy(ctx: &mut TaskCtx<'_>, name: &str) -> Result<(), DslError> {
    let dsl = ctx.dsl()?;
    let head = check_head(ctx, &dsl, name)?;
    limits::check_pool(ctx, LeaveSlop::Quarter)?;
    if dsl.dir(name)?.child(names::hidden::RECEIVE)?.is_some() {
        receive::discard(ctx, name, None)?;
    }
    free_log(ctx, head.phys(), head.id())?;
    let origin = destroy_head(ctx, head.id(), name)?;
    match origin {
        Some(origin) => destroy_if_deferred(ctx, origin).map(|_| ()),
        None => Ok(()),
    }
}

/// Destroys a head and its directory. The caller has checked that it has no children and no snapshots, and
/// has freed its log. Returns the snapshot that it descended from.
pub(crate) fn destroy_head(
    ctx: &mut TaskCtx<'_>,
    head: ObjectId,
    name: &str,
) -> Result<Option<ObjectId>, DslError> {
    let m = ctx.m();
    let phys = m.dataset(head)?;
    let dir = m.dir(phys.dir)?;
    let reserved = charge::refreservation(m, &dir)?;
    charge::refreservation_changed(m, phys.dir, reserved, 0)?;
    zapify::drop_features(m, head)?;
    Bookmark::destroy_all(m, head)?;
    let how = free_blocks(ctx, head, &phys)?;
    ctx.note("destroy", Some((name, head)), format!("({how}, mintxg={})", phys.prev_snap_txg));
    if let Some(list) = phys.deadlist {
        Deadlist::free(m, list)?;
    }
    if let Some(list) = zapify::get(m, head, names::dataset::REMAP_DEADLIST)?.filter(|list| *list != 0) {
        Deadlist::free(m, ObjectId(list))?;
        m.features.decr(m, "obsolete_counts")?;
    }
    if let Some(origin) = phys.prev_snap {
        let from = m.dataset(origin)?;
        if let Some(set) = from.next_clones {
            m.set_remove(set, head.0)?;
        }
        m.change_dataset(origin, |phys| phys.num_children = phys.num_children.saturating_sub(1).max(1))?;
        if let Some(clones) = m.dir(from.dir)?.clones {
            m.set_remove(clones, head.0)?;
        }
    }
    m.free_if_any(phys.snapshot_names)?;
    m.free_if_any(phys.next_clones)?;
    m.free_if_any(phys.props)?;
    zapify::free_object(m, head)?;
    m.change_dir(phys.dir, |phys| phys.head = None)?;
    destroy_dir(m, phys.dir)?;
    ctx.heads.keyring().forget(phys.dir);
    Ok(phys.prev_snap)
}

/// Frees the blocks that the head alone holds, or queues them for background freeing. Returns the name of the
/// method for the history.
fn free_blocks(ctx: &TaskCtx<'_>, head: ObjectId, phys: &DatasetPhys) -> Result<&'static str, DslError> {
    let m = ctx.m();
    let dir = m.dir(phys.dir)?;
    let space = Space { used: dir.used, compressed: dir.compressed, uncompressed: dir.uncompressed };
    let how = if let Some(list) = livelist::take_for_destroy(m, phys.dir)? {
        free_lists::add_deleted_clone(m, list)?;
        charge::charge_free(m, livelist::space(m, list)?.into())?;
        "livelist"
    } else if bptree::is_usable(m) {
        if !phys.bp.is_hole() && phys.bp.accounting_birth() > phys.prev_snap_txg {
            free_lists::add_destroyed(m, &phys.bp, phys.prev_snap_txg, space)?;
            charge::charge_free(m, space.into())?;
        }
        "bptree"
    } else {
        free_now(ctx, head, phys)?;
        "synchronous"
    };
    charge::charge(m, phys.dir, Charge::Head, -Delta::from(space))?;
    Ok(how)
}

/// Visitor that frees the blocks of a traversal.
struct FreeVisitor<'v, 'a> {
    ctx: &'v TaskCtx<'a>,
    freer: Freer,
    error: Option<DslError>,
}

impl Visitor for FreeVisitor<'_, '_> {
    fn block(&mut self, _: &traverse::Bookmark, bp: &BlockPtr, _: Option<&Dnode>) -> Step {
        // The block may be freed before the blocks below it are visited: its pointers are in memory by then,
        // and freed space is not reused before this txg is on disk.
        match self.freer.free(self.ctx.m(), self.ctx.brt, bp) {
            Ok(()) => Step::Into,
            Err(error) => {
                self.error = Some(error);
                Step::Stop
            }
        }
    }

    fn unreadable(&mut self, at: &traverse::Bookmark, _: &BlockPtr, error: DmuError) -> Step {
        // The space below it is lost, which is better than a dataset that can never be destroyed.
        tracing::warn!(%at, %error, "a block of a destroyed dataset cannot be read");
        Step::Over
    }
}

/// Frees all blocks born after the previous snapshot, in this txg: for pools without `async_destroy`.
fn free_now(ctx: &TaskCtx<'_>, head: ObjectId, phys: &DatasetPhys) -> Result<(), DslError> {
    if phys.bp.is_hole() {
        return Ok(());
    }
    let objset = ObjSet::open(ctx.mos.store(), &phys.bp, head.0, KeyState::Locked)?;
    let mut visitor = FreeVisitor { ctx, freer: Freer::new(), error: None };
    traverse::walk(&objset, phys.prev_snap_txg, &mut visitor);
    if let Some(error) = visitor.error {
        return Err(error);
    }
    visitor.freer.flush(ctx.m()).map(|_| ())
}

/// Frees the blocks of a head's intent log. They are not charged to the head.
pub(crate) fn free_log(ctx: &TaskCtx<'_>, phys: &DatasetPhys, head: ObjectId) -> Result<(), DslError> {
    if let Some(open) = ctx.heads.evict(head) {
        let header = open.set.zil_header();
        // The open log does not own a claimed log that was not replayed: that is freed below.
        if header.claim_txg == Txg(0) {
            open.log.close(ctx.tx);
            return Ok(());
        }
    }
    // A head that was never written has the log header of its origin, not a log of its own.
    if phys.bp.is_hole() || phys.bp.accounting_birth() <= phys.prev_snap_txg {
        return Ok(());
    }
    let (meter, policy) = (ctx.heads.txgs().meter(), SetPolicy::dataset());
    // The pointers of a log are not encrypted.
    let set = LiveSet::open(ctx.mos.store(), meter, &phys.bp, head.0, KeyState::Locked, policy)?;
    let freed = dmu::log::destroy(&set, ctx.tx, &mut |bp, how| ctx.brt.drop_claim(bp, how, ctx.txg()));
    if let Err(error) = freed {
        // The log's space is lost, which is better than a dataset that can never be destroyed.
        tracing::warn!(%error, dataset = head.0, "the intent log of a dataset was not freed");
    }
    Ok(())
}

/// Removes a directory without a head and without children from the tree.
pub(crate) fn destroy_dir(m: MosTx<'_>, id: ObjectId) -> Result<(), DslError> {
    charge::set_reserved(m, id, 0)?;
    let dir = m.dir(id)?;
    if dir.used != 0 {
        tracing::warn!(object = id.0, used = dir.used, "a directory that goes is still charged");
    }
    counts::adjust(m, id, -1, 0)?;
    if let Some(parent) = dir.parent {
        let map = m.dir(parent)?.children.ok_or_else(|| broken("child map", parent))?;
        let name = crate::mos::reverse_lookup(&crate::mos::zap(&m.view(), map)?, map, id)?;
        m.zap(map)?.remove(name.ok_or_else(|| broken("name of a directory", id))?.as_bytes())?;
    }
    livelist::remove(m, id)?;
    release_key(m, id)?;
    if let Some(permissions) = dir.delegation {
        delegation::change::free_all(m, permissions)?;
    }
    m.free_if_any(dir.props)?;
    m.free_if_any(dir.children)?;
    m.free_if_any(dir.clones)?;
    zapify::free_object(m, id)
}
