//! The ZAPs in which vdevs store their own facts (docs/on-disk/15-space.md, section 7).
//!
//! # What always holds
//! - The map of all vdev ZAPs has exactly the ZAPs that the configuration names.

use crate::error::PoolError;
use crate::space::Class;
use crate::space_maps::object::MapWriter;
use dsl::MosTx;
use format::config::{VdevKind, VdevNode};
use format::names;
use format::{ObjType, ObjectId};

fn create(m: MosTx<'_>) -> Result<ObjectId, PoolError> {
    let map = match m.entry(names::directory::VDEV_ZAP_MAP)? {
        Some(map) => map,
        None => {
            let map = m.create_plain_zap(ObjType::ZAP_METADATA)?;
            m.set_entry(names::directory::VDEV_ZAP_MAP, map.0)?;
            map
        }
    };
    let zap = m.create_plain_zap(ObjType::ZAP_METADATA)?;
    m.zap(map)?.insert_int(zap.0)?;
    Ok(zap)
}

/// Frees the ZAP of a vdev or leaf that has left the pool.
pub(crate) fn free(m: MosTx<'_>, zap: ObjectId) -> Result<(), PoolError> {
    if let Some(map) = m.entry(names::directory::VDEV_ZAP_MAP)? {
        m.zap(map)?.remove_int(zap.0)?;
    }
    Ok(m.free(zap)?)
}

/// Creates the ZAP of the root, if the pool has feature `vdev_zaps_v2` and there is none.
pub(crate) fn create_root(m: MosTx<'_>, root: &mut VdevNode) -> Result<(), PoolError> {
    if root.zap_root == ObjectId(0) && m.features.is_enabled("vdev_zaps_v2") {
        root.zap_root = create(m)?;
        m.features.incr(m, "vdev_zaps_v2")?;
    }
    Ok(())
}

/// Creates the ZAPs of a new top-level vdev and of its leaves, and stores the class in its own.
pub(crate) fn create_top(m: MosTx<'_>, top: &mut VdevNode, class: Class) -> Result<(), PoolError> {
    create_missing(m, top)?;
    if class != Class::Normal {
        m.zap(top.zap_top)?.upsert(names::top_vdev::ALLOCATION_BIAS.as_bytes(), class.name())?;
    }
    if matches!(class, Class::Special | Class::Dedup) {
        m.features.incr(m, "allocation_classes")?;
    }
    Ok(())
}

/// Creates the missing ZAPs of a top-level vdev and of its leaves. Returns whether any were missing.
pub(crate) fn create_missing(m: MosTx<'_>, top: &mut VdevNode) -> Result<bool, PoolError> {
    let mut is_new = false;
    if top.zap_top == ObjectId(0) && !matches!(top.kind, VdevKind::Hole) {
        top.zap_top = create(m)?;
        is_new = true;
    }
    create_of_leaves(m, top, &mut is_new)?;
    Ok(is_new)
}

fn create_of_leaves(m: MosTx<'_>, node: &mut VdevNode, is_new: &mut bool) -> Result<(), PoolError> {
    let is_leaf = matches!(node.kind, VdevKind::Disk | VdevKind::File);
    if is_leaf && node.zap_leaf == ObjectId(0) {
        node.zap_leaf = create(m)?;
        *is_new = true;
    }
    for child in &mut node.children {
        create_of_leaves(m, child, is_new)?;
    }
    Ok(())
}

/// Frees the objects of a leaf that leaves the pool: its ZAP and its DTL.
pub(crate) fn free_of_leaf(m: MosTx<'_>, leaf: &VdevNode) -> Result<(), PoolError> {
    // Fails before the first change if it is no DTL.
    if leaf.dtl != ObjectId(0) {
        MapWriter::free(m, leaf.dtl)?;
    }
    if leaf.zap_leaf != ObjectId(0) {
        if let Some(map) = m.entry(names::directory::VDEV_ZAP_MAP)? {
            m.zap(map)?.remove_int(leaf.zap_leaf.0)?;
        }
        m.free(leaf.zap_leaf)?;
    }
    Ok(())
}

/// Frees all vdev ZAPs: software that does not know them has written the configuration, so they are out of
/// date.
pub(crate) fn free_all(m: MosTx<'_>, root: &mut VdevNode) -> Result<(), PoolError> {
    if let Some(map) = m.entry(names::directory::VDEV_ZAP_MAP)? {
        for entry in m.zap(map)?.entries()? {
            if let Some(zap) = entry.u64() {
                m.free(ObjectId(zap))?;
            }
        }
        m.free(map)?;
        m.remove_entry(names::directory::VDEV_ZAP_MAP)?;
    }
    forget(root);
    Ok(())
}

fn forget(node: &mut VdevNode) {
    (node.zap_root, node.zap_top, node.zap_leaf) = (ObjectId(0), ObjectId(0), ObjectId(0));
    node.children.iter_mut().for_each(forget);
}
