//! What is obsolete of the mappings of removed vdevs (docs/on-disk/14-vdevs.md, section 6): ranges of which no
//! block is referenced any more, in a space map of each removed vdev.
//!
//! # What always holds
//! - If a vdev is marked as precise, its counts and its map together have every obsolete byte, once.
//! - Pools without feature `obsolete_counts` have no such map.

use crate::error::PoolError;
use crate::space_maps::object::MapWriter;
use dsl::bpobj::Bpobj;
use dsl::{MosTx, free_lists};
use format::config::VdevNode;
use format::names;
use format::space_map::MapType;
use format::{ObjectId, VdevId};
use std::collections::BTreeMap;
use vdev::tree::RangeSet;
use zio::{Obsolete, Zio};

/// Bytes of a block of a map of obsolete ranges.
const BLOCK: u64 = 128 << 10;

/// Appends ranges to the maps of their vdevs. Called in every pass.
pub(crate) fn write(m: MosTx<'_>, root: &VdevNode, ranges: Vec<Obsolete>) -> Result<(), PoolError> {
    if ranges.is_empty() || !m.features.is_enabled("obsolete_counts") {
        return Ok(());
    }
    let mut by_vdev: BTreeMap<VdevId, RangeSet> = BTreeMap::new();
    for range in ranges {
        let (from, to) = (range.offset.0, range.offset.0 + range.asize.0);
        by_vdev.entry(range.vdev).or_default().insert(from..to);
    }
    for (vdev, ranges) in by_vdev {
        let Some(node) = root.children.get(vdev.0 as usize) else { continue };
        let mut map = open_or_create(m, node.zap_top)?;
        map.append(m, MapType::Alloc, ranges.iter().map(|range| (range, None)), 0, 0)?;
        map.store(m)?;
    }
    Ok(())
}

fn open_or_create(m: MosTx<'_>, zap: ObjectId) -> Result<MapWriter, PoolError> {
    if let Some(id) = map_of(m, zap)? {
        return MapWriter::open(m, id);
    }
    let map = MapWriter::create(m, BLOCK)?;
    m.zap(zap)?.upsert(names::top_vdev::OBSOLETE_SM.as_bytes(), map.id().0)?;
    m.features.incr(m, "obsolete_counts")?;
    Ok(map)
}

pub(super) fn map_of(m: MosTx<'_>, zap: ObjectId) -> Result<Option<ObjectId>, PoolError> {
    let entry = m.zap(zap)?.lookup(names::top_vdev::OBSOLETE_SM.as_bytes())?;
    Ok(entry.and_then(|entry| entry.u64()).filter(|id| *id != 0).map(ObjectId))
}

/// Marks places as obsolete that lists of destroyed snapshots name, a bounded number in each txg. Returns whether
/// some are left.
pub(crate) fn drain_list(m: MosTx<'_>, zio: &Zio) -> Result<bool, PoolError> {
    let Some(list) = m.entry(names::directory::OBSOLETE_BPOBJ)? else { return Ok(false) };
    let mut budget = free_lists::Budget::per_txg();
    Bpobj::consume(m, list, &mut budget, &mut |stored, _| {
        for dva in stored.bp.dvas() {
            zio.note_obsolete(Obsolete { vdev: dva.vdev, offset: dva.offset, asize: dva.asize });
        }
        Ok(())
    })?;
    let phys = *Bpobj::open(&m.view(), list)?.phys();
    if phys.num_blkptrs > 0 || phys.num_subobjs > 0 {
        return Ok(true);
    }
    Bpobj::free(m, list)?;
    m.remove_entry(names::directory::OBSOLETE_BPOBJ)?;
    m.features.decr(m, "obsolete_counts")?;
    Ok(false)
}

/// Frees the map of a vdev, if there is one.
pub(super) fn free_map(m: MosTx<'_>, zap: ObjectId) -> Result<(), PoolError> {
    if let Some(id) = map_of(m, zap)? {
        MapWriter::free(m, id)?;
        m.zap(zap)?.remove(names::top_vdev::OBSOLETE_SM.as_bytes())?;
        m.features.decr(m, "obsolete_counts")?;
    }
    Ok(())
}

/// Marks the counts of a vdev as no longer precise.
pub(super) fn drop_precision(m: MosTx<'_>, zap: ObjectId) -> Result<(), PoolError> {
    let key = names::top_vdev::OBSOLETE_COUNTS_ARE_PRECISE.as_bytes();
    if m.zap(zap)?.lookup(key)?.is_some() {
        m.zap(zap)?.remove(key)?;
        m.features.decr(m, "obsolete_counts")?;
    }
    Ok(())
}
