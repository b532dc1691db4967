//! The tree of datasets of a new pool (docs/on-disk/22-mos-dsl.md, section 1.1).
//!
//! # Order
//! [`bootstrap`], before there are heads -> features are enabled -> [`create_root`], a task like others.

use super::bpobj;
use super::create::{
    Fill, NewHead, create_dataset, create_dir, create_head, fill_head, new_phys, note_props, store_props,
};
use super::ctx::{FREE_DIR, MOS_DIR, ORIGIN_DIR, ROOT_DATASET, TaskCtx};
use super::deadlist;
use super::mos_tx::MosTx;
use crate::DslError;
use format::dsl::{DS_FLAG_CASE_INSENSITIVE, DatasetPhys};
use format::objset::ObjsetType;
use format::{ObjectId, Txg};

/// Creation txg of the empty snapshot: before all else.
const ORIGIN_TXG: Txg = Txg(1);
/// Entry of the object directory: blocks that wait to be freed.
const FREE_BPOBJ: &str = "free_bpobj";

/// Makes the root directory, still without a head, the hidden directories, and the empty snapshot that all
/// heads descend from.
pub fn bootstrap(m: MosTx<'_>) -> Result<(), DslError> {
    let root = create_dir(m, None, "")?;
    m.set_entry(ROOT_DATASET, root.0)?;
    create_dir(m, Some(root), MOS_DIR)?;
    create_dir(m, Some(root), FREE_DIR)?;
    m.set_entry(FREE_BPOBJ, bpobj::create(m, 0)?.0)?;
    let origin = create_dir(m, Some(root), ORIGIN_DIR)?;
    let head = create_head(m, origin, None, 0)?;
    snapshot_origin(m, head)
}

/// The snapshot of a head that has nothing in it.
fn snapshot_origin(m: MosTx<'_>, head: ObjectId) -> Result<(), DslError> {
    let of = m.dataset(head)?;
    let phys = DatasetPhys {
        next_snap: Some(head),
        num_children: 1,
        creation_txg: ORIGIN_TXG,
        deadlist: of.deadlist,
        ..new_phys(m, of.dir)
    };
    let snapshot = create_dataset(m, &phys)?;
    if let Some(names) = of.snapshot_names {
        m.zap(names)?.insert(ORIGIN_DIR.as_bytes(), snapshot.0)?;
    }
    let deadlist = deadlist::create(m)?;
    deadlist::add_key(m, deadlist, Txg(0))?;
    m.change_dataset(head, |phys| {
        phys.prev_snap = Some(snapshot);
        phys.prev_snap_txg = ORIGIN_TXG;
        phys.deadlist = Some(deadlist);
    })
}

/// Makes the head of the root directory, a file system. The name of `new` is that of the pool.
///
/// # Errors
/// If what it reserves is not there, or why it cannot be filled.
pub fn create_root(ctx: &mut TaskCtx<'_>, new: NewHead<'_>, fill: Fill<'_>) -> Result<ObjectId, DslError> {
    let m = ctx.m();
    let root = m.root_dir()?;
    let flags = if new.case_insensitive { DS_FLAG_CASE_INSENSITIVE } else { 0 };
    let head = create_head(m, root, m.origin_snapshot()?, flags)?;
    store_props(ctx, new.name, root, new.props)?;
    fill_head(ctx, head, ObjsetType::Zfs, fill)?;
    note_props(ctx, new.name, head, new.props);
    Ok(head)
}
