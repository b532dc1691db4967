//! The dataset tree of a new pool (docs/on-disk/22-mos-dsl.md, section 1.1).
//!
//! # Order
//! [`bootstrap`], before the pool has heads -> features are enabled -> [`create_root`], an ordinary task.

use crate::bpobj::Bpobj;
use crate::create::{
    Fill, NewHead, create_dataset, create_dir, create_head, fill_head, new_phys, note_props, store_props,
};
use crate::deadlist::Deadlist;
use crate::error::DslError;
use crate::mos_tx::MosTx;
use crate::task::TaskCtx;
use format::dsl::{DS_FLAG_CASE_INSENSITIVE, DatasetPhys};
use format::names;
use format::objset::ObjsetType;
use format::{ObjectId, Txg};

/// Creation txg of the empty snapshot, older than all other blocks.
const ORIGIN_TXG: Txg = Txg(1);

/// Creates the root directory, still without a head, the hidden directories, and the empty snapshot that all
/// heads descend from.
///
/// # Errors
/// If an object of the new MOS cannot be created.
pub fn bootstrap(m: MosTx<'_>) -> Result<(), DslError> {
    let root = create_dir(m, None, "")?;
    m.set_entry(names::directory::ROOT_DATASET, root.0)?;
    create_dir(m, Some(root), names::hidden::MOS)?;
    create_dir(m, Some(root), names::hidden::FREE)?;
    m.set_entry(names::directory::FREE_BPOBJ, Bpobj::create(m, 0)?.0)?;
    let origin = create_dir(m, Some(root), names::hidden::ORIGIN)?;
    let head = create_head(m, origin, None, 0)?;
    snapshot_origin(m, head)
}

/// Creates the snapshot of an empty head: the origin of all heads.
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
        m.zap(names)?.insert(names::hidden::ORIGIN.as_bytes(), snapshot.0)?;
    }
    let deadlist = Deadlist::create(m)?;
    Deadlist::add_key(m, deadlist, Txg(0))?;
    m.change_dataset(head, |phys| {
        phys.prev_snap = Some(snapshot);
        phys.prev_snap_txg = ORIGIN_TXG;
        phys.deadlist = Some(deadlist);
    })
}

/// Creates the head of the root directory, a file system. The name in `new` is the name of the pool.
///
/// # Errors
/// [`DslError::Space`] if the pool lacks the space that `new` reserves; otherwise the error of `fill`.
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
