//! Structures of space allocation: metaslabs with their space maps, log space maps, and mappings of removed vdevs
//! (docs/on-disk/15-space.md).

use ::pool::space::{Class, EMBEDDED_LOG_METASLABS};
use ::pool::space_map::SpaceMap;
use cenote::{Error, Pool};
use dmu::zap::Zap;
use format::indirect::MappingPhys;
use format::names;
use format::space_map::{MapBounds, SpaceMapPhys};
use format::{Endian, ObjectId, Txg, VdevId};
use std::collections::BTreeMap;
use vdev::tree::{Birth, MapEntry, RangeSet};

/// A metaslab with its space map as stored, without the changes in log space maps.
#[derive(Debug, Clone, Copy)]
pub struct StoredMetaslab {
    /// Offset of its first byte in the vdev's allocatable space.
    pub start: u64,
    /// Size in bytes.
    pub size: u64,
    /// Object and header of its space map; `None`: no space was ever allocated there.
    pub map: Option<(ObjectId, SpaceMapPhys)>,
    /// Txg from which changes are only in the log space maps; 0: never flushed.
    pub unflushed_txg: Txg,
    /// True if it is reserved for the intent log.
    pub is_embedded_log: bool,
    /// Fragmentation in percent, from the histogram of its space map; `None`: the map has none.
    pub fragmentation: Option<u64>,
}

impl StoredMetaslab {
    /// Allocated bytes by the header of the space map.
    pub fn allocated(&self) -> u64 {
        self.map.map_or(0, |(_, phys)| u64::try_from(phys.allocated).unwrap_or(0)).min(self.size)
    }
}

/// Mapping of a removed vdev: where its data is now.
#[derive(Debug, Clone)]
pub struct RemovedVdev {
    /// Object id of the births table.
    pub births_object: ObjectId,
    /// Births table: for each range of offsets, the txg in which it was copied.
    pub births: Vec<Birth>,
    /// Object id of the mapping.
    pub mapping_object: ObjectId,
    /// Header of the mapping object.
    pub mapping: MappingPhys,
    /// Mapping entries, each with its number of obsolete bytes; `None`: obsolete bytes are not counted.
    pub entries: Vec<(MapEntry, Option<u32>)>,
    /// Object id and header of the space map of ranges that became obsolete since the counts were written.
    pub obsolete: Option<(ObjectId, SpaceMapPhys)>,
}

/// Metaslabs of a top-level vdev.
#[derive(Debug, Clone)]
pub struct VdevMetaslabs {
    /// Id of the top-level vdev.
    pub vdev: VdevId,
    /// Allocation class of the vdev.
    pub class: Class,
    /// Fragmentation in percent; `None`: it is not known, or the vdev has no allocatable space.
    pub fragmentation: Option<u64>,
    /// Object id of the table with the unflushed txg of each metaslab.
    pub unflushed_object: Option<ObjectId>,
    /// Metaslabs in the order of their offsets; empty for a removed vdev.
    pub metaslabs: Vec<StoredMetaslab>,
    /// Mapping, if the vdev was removed.
    pub removed: Option<RemovedVdev>,
}

/// All top-level vdevs; a hole has no metaslabs. Reads the header of every space map.
///
/// # Errors
/// One of these objects cannot be read.
pub fn metaslabs(pool: &Pool) -> Result<Vec<VdevMetaslabs>, Error> {
    let spa = pool.spa();
    let spaces = spa.vdev_spaces()?;
    let mut all = Vec::new();
    for (vdev, node) in spa.tree().tops() {
        let mut unflushed_object = None;
        if node.zap_top != ObjectId(0) {
            let zap = Zap::open(&pool.spa().mos().object(node.zap_top)?)?;
            unflushed_object =
                zap.lookup(names::top_vdev::UNFLUSHED_TXGS.as_bytes())?.and_then(|e| e.u64()).map(ObjectId);
        }
        let space = spaces.iter().find(|space| space.vdev == vdev);
        let mut stored = Vec::new();
        for metaslab in space.map_or(&[][..], |space| &space.metaslabs) {
            let map = match metaslab.space_map {
                Some(id) => Some((id, *SpaceMap::open(pool.spa().mos(), id)?.phys())),
                None => None,
            };
            stored.push(StoredMetaslab {
                start: metaslab.start,
                size: metaslab.size,
                map,
                unflushed_txg: metaslab.unflushed_txg,
                is_embedded_log: false,
                fragmentation: space.and_then(|space| metaslab.fragmentation(space.ashift)),
            });
        }
        let class = spa.class_of(vdev)?;
        if class == Class::Normal {
            set_aside(&mut stored);
        }
        all.push(VdevMetaslabs {
            vdev,
            class,
            fragmentation: space.and_then(|space| space.fragmentation),
            unflushed_object,
            metaslabs: stored,
            removed: removed(pool, vdev)?,
        });
    }
    Ok(all)
}

/// Free ranges of each metaslab by its own space map, by vdev, without the logs. Reads all space maps.
///
/// # Errors
/// A space map cannot be read.
pub fn free_space(pool: &Pool) -> Result<BTreeMap<VdevId, Vec<RangeSet>>, Error> {
    Ok(pool.spa().mapped_free_space()?)
}

/// Marks the emptiest metaslab of a vdev with many metaslabs: an open pool reserves it for the intent log.
fn set_aside(metaslabs: &mut [StoredMetaslab]) {
    if metaslabs.len() as u64 > EMBEDDED_LOG_METASLABS
        && let Some(emptiest) = metaslabs.iter_mut().min_by_key(|m| m.allocated())
    {
        emptiest.is_embedded_log = true;
    }
}

/// Object ids and headers of the space maps of ranges that only the checkpoint holds, by vdev.
///
/// # Errors
/// One of these objects cannot be read.
pub fn checkpoint_maps(pool: &Pool) -> Result<Vec<(VdevId, ObjectId, SpaceMapPhys)>, Error> {
    let mut maps = Vec::new();
    for (vdev, node) in pool.spa().tree().tops().filter(|(_, node)| node.zap_top != ObjectId(0)) {
        let zap = Zap::open(&pool.spa().mos().object(node.zap_top)?)?;
        if let Some(id) =
            zap.lookup_u64(names::top_vdev::CHECKPOINT_SM.as_bytes())?.filter(|id| *id != 0).map(ObjectId)
        {
            maps.push((vdev, id, *SpaceMap::open(pool.spa().mos(), id)?.phys()));
        }
    }
    Ok(maps)
}

fn removed(pool: &Pool, vdev: VdevId) -> Result<Option<RemovedVdev>, Error> {
    let spa = pool.spa();
    let (Some(node), Some(mapping)) = (spa.tree().top(vdev), spa.tree().indirect(vdev)) else {
        return Ok(None);
    };
    let object = pool.spa().mos().object(node.indirect_object)?;
    let corrupt = |_| object.corrupt("the header of the mapping of a removed vdev");
    let phys = MappingPhys::decode(object.bonus(), object.order()).map_err(corrupt)?;
    let entries = mapping.entries();
    let counts = match phys.counts {
        Some(counts) => Some(obsolete_counts(pool, counts, entries.len())?),
        None => None,
    };
    // An entry without a count is not obsolete.
    let count = |index: usize| counts.as_ref().map(|counts| counts.get(index).copied().unwrap_or(0));
    let mut obsolete = None;
    if node.zap_top != ObjectId(0) {
        let zap = Zap::open(&pool.spa().mos().object(node.zap_top)?)?;
        if let Some(id) =
            zap.lookup_u64(names::top_vdev::OBSOLETE_SM.as_bytes())?.filter(|id| *id != 0).map(ObjectId)
        {
            obsolete = Some((id, *SpaceMap::open(pool.spa().mos(), id)?.phys()));
        }
    }
    Ok(Some(RemovedVdev {
        births_object: node.indirect_births,
        births: mapping.births().to_vec(),
        mapping_object: node.indirect_object,
        mapping: phys,
        entries: entries.iter().enumerate().map(|(index, entry)| (*entry, count(index))).collect(),
        obsolete,
    }))
}

/// Obsolete bytes of each entry of a mapping.
fn obsolete_counts(pool: &Pool, id: ObjectId, entries: usize) -> Result<Vec<u32>, Error> {
    let object = pool.spa().mos().object(id)?;
    let room = usize::try_from(object.logical_end()).unwrap_or(usize::MAX);
    let mut bytes = vec![0; entries.saturating_mul(4).min(room)];
    object.read_numbers(0, 4, &mut bytes)?;
    Ok(bytes.chunks_exact(4).map(|raw| Endian::Little.get_u32(raw, 0).unwrap_or(0)).collect())
}

/// A log space map, and how many of its entries are still valid.
#[derive(Debug, Clone, Copy)]
pub struct LogMap {
    /// Txg of the changes.
    pub txg: Txg,
    /// Object id of the log space map.
    pub object: ObjectId,
    /// Header of the space map.
    pub phys: SpaceMapPhys,
    /// Number of entries in the log.
    pub entries: u64,
    /// Number of entries that are not yet in the space map of their metaslab.
    pub valid: u64,
}

/// The log space maps, oldest first. Reads all their entries.
///
/// # Errors
/// A log space map cannot be read.
pub fn log_maps(pool: &Pool, vdevs: &[VdevMetaslabs]) -> Result<Vec<LogMap>, Error> {
    let mut all = Vec::new();
    for (txg, object) in pool.spa().log_space_maps()? {
        let map = SpaceMap::open(pool.spa().mos(), object)?;
        let mut log = LogMap { txg, object, phys: *map.phys(), entries: 0, valid: 0 };
        map.for_each(MapBounds::LOG, &mut |segment| {
            let vdev = vdevs.iter().find(|v| Some(v.vdev) == segment.vdev);
            let Some(vdev) = vdev.filter(|v| !v.metaslabs.is_empty()) else { return Ok(()) };
            log.entries += 1;
            let index = vdev.metaslabs.partition_point(|m| m.start <= segment.start).saturating_sub(1);
            if vdev.metaslabs.get(index).is_some_and(|m| m.unflushed_txg <= txg) {
                log.valid += 1;
            }
            Ok(())
        })?;
        all.push(log);
    }
    Ok(all)
}
