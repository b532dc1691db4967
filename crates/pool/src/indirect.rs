//! Reads the mappings of removed vdevs (docs/on-disk/14-vdevs.md, section 6).

use crate::directory::{Directory, read_whole};
use crate::error::PoolError;
use crate::scan::recorded as scan;
use dmu::{ObjSet, Object};
use format::config::VdevKind;
use format::indirect::{BIRTH_SIZE, Births, ENTRY_SIZE, Mapping, MappingPhys};
use format::{Endian, ObjectId, VdevId};
use std::collections::BTreeSet;
use std::sync::Arc;
use vdev::VdevTree;
use vdev::tree::{Birth, IndirectMapping, MapEntry};

/// Largest mapping in bytes: it is kept in memory as long as the pool is open.
const MAPPING_MAX: u64 = 4 << 30;

/// Reads the mappings of all removed vdevs into the tree, and that of the vdev that is being removed. The newest comes first: its mapping is
/// on vdevs that exist, and those of older ones may be on vdevs removed since.
pub(crate) fn load(mos: &Arc<ObjSet>, directory: &Directory, tree: &VdevTree) -> Result<(), PoolError> {
    for (vdev, _) in tree.tops().filter(|(_, node)| node.removing && node.kind != VdevKind::Indirect) {
        load_one(mos, tree, vdev)?;
    }
    let removed = tree.tops().filter(|(_, node)| node.kind == VdevKind::Indirect);
    let mut left: BTreeSet<VdevId> = removed.map(|(vdev, _)| vdev).collect();
    if left.is_empty() {
        return Ok(());
    }
    let mut next = scan::removal(directory)?.and_then(|r| r.prev_indirect_vdev);
    while let Some(vdev) = next {
        // A vdev that occurs twice, or is not removed, ends the chain.
        if !left.remove(&vdev) {
            break;
        }
        next = load_one(mos, tree, vdev)?;
    }
    // The chain has all of them; if it does not, ids usually descend from newest to oldest.
    for vdev in left.into_iter().rev() {
        load_one(mos, tree, vdev)?;
    }
    Ok(())
}

fn load_one(mos: &Arc<ObjSet>, tree: &VdevTree, vdev: VdevId) -> Result<Option<VdevId>, PoolError> {
    let Some(node) = tree.top(vdev) else { return Ok(None) };
    let (mapping, births) = (node.indirect_object, node.indirect_births);
    if mapping != ObjectId(0) {
        let entries = read_mapping(mos, mapping, vdev)?;
        let births = if births == ObjectId(0) { Vec::new() } else { read_births(mos, births)? };
        tree.set_indirect(vdev, IndirectMapping::new(vdev, entries, births)?);
    }
    Ok(node.prev_indirect_vdev)
}

fn read_mapping(mos: &Arc<ObjSet>, id: ObjectId, vdev: VdevId) -> Result<Vec<MapEntry>, PoolError> {
    let object = mos.object(id)?;
    let phys = MappingPhys::decode(object.bonus(), object.order()).map_err(PoolError::decode(id))?;
    let (bytes, order) = read(&object, phys.num_entries, ENTRY_SIZE)?;
    let mapping = Mapping::decode(&bytes, order, vdev).map_err(PoolError::decode(id))?;
    let entry =
        |e: &format::indirect::MappingEntry| MapEntry { src: e.source, len: e.target.asize.0, dst: e.target };
    Ok(mapping.entries().iter().map(entry).collect())
}

fn read_births(mos: &Arc<ObjSet>, id: ObjectId) -> Result<Vec<Birth>, PoolError> {
    let object = mos.object(id)?;
    let count = object.order().u64("indirect births", object.bonus(), 0).map_err(PoolError::decode(id))?;
    let (bytes, order) = read(&object, count, BIRTH_SIZE)?;
    let births = Births::decode(&bytes, order).map_err(PoolError::decode(id))?;
    Ok(births.entries().iter().map(|(end, txg)| Birth { end: *end, txg: *txg }).collect())
}

/// The first `count` items of `size` bytes, and their byte order.
fn read(object: &Object, count: u64, size: usize) -> Result<(Vec<u8>, Endian), PoolError> {
    let len = count.saturating_mul(size as u64);
    if len > object.logical_end() || len > MAPPING_MAX {
        return Err(PoolError::Corrupt { object: object.id(), why: "a mapping is longer than its object" });
    }
    read_whole(object, 0..len)
}
