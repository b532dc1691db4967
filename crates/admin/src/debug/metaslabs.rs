//! What the space maps say: metaslabs with their maps, the logs of what the maps do not have yet, and
//! the mappings of removed vdevs (docs/on-disk/15-space.md).

use cenote::{Error, Pool};
use dmu::zap::Zap;
use format::indirect::MappingPhys;
use format::names;
use format::space_map::{MapBounds, SpaceMapPhys};
use format::{Endian, ObjectId, Txg, VdevId};
use ::pool::space::{Class, EMBEDDED_LOG_METASLABS};
use ::pool::space_map::SpaceMap;
use std::collections::BTreeMap;
use vdev::tree::{Birth, MapEntry, RangeSet};

/// A metaslab and its space map as stored, the logs left out.
#[derive(Debug, Clone, Copy)]
pub struct StoredMetaslab {
    /// First byte in the vdev.
    pub start: u64,
    /// Bytes.
    pub size: u64,
    /// Object and header of its map; absent while nothing was ever allocated there.
    pub map: Option<(ObjectId, SpaceMapPhys)>,
    /// Changes from this txg on are in the logs; 0: never flushed.
    pub unflushed_txg: Txg,
    /// Set aside for the intent log.
    pub is_embedded_log: bool,
    /// How small the free segments are, in percent, as the histogram of its map tells; `None`: there is none.
    pub fragmentation: Option<u64>,
}

impl StoredMetaslab {
    /// Bytes allocated, as the map's header says.
    pub fn allocated(&self) -> u64 {
        self.map.map_or(0, |(_, phys)| u64::try_from(phys.allocated).unwrap_or(0)).min(self.size)
    }
}

/// Where the data of a removed vdev is now.
#[derive(Debug, Clone)]
pub struct RemovedVdev {
    /// Object of the births.
    pub births_object: ObjectId,
    /// Up to which offset blocks were copied in which txg.
    pub births: Vec<Birth>,
    /// Object of the mapping.
    pub mapping_object: ObjectId,
    /// Header of the mapping.
    pub mapping: MappingPhys,
    /// Its entries, each with how many of its bytes nothing needs any more; `None`: that is not counted.
    pub entries: Vec<(MapEntry, Option<u32>)>,
    /// Header of the map of what became obsolete since these counts were made.
    pub obsolete: Option<(ObjectId, SpaceMapPhys)>,
}

/// A top-level vdev, as far as space goes.
#[derive(Debug, Clone)]
pub struct VdevMetaslabs {
    /// The vdev.
    pub vdev: VdevId,
    /// What it is for.
    pub class: Class,
    /// How small the free segments are, in percent; `None`: not known, or nothing can be free there.
    pub fragmentation: Option<u64>,
    /// Object with the txgs up to which each map is complete.
    pub unflushed_object: Option<ObjectId>,
    /// Its metaslabs; none of a removed vdev.
    pub metaslabs: Vec<StoredMetaslab>,
    /// Of a removed vdev: where its data is now.
    pub removed: Option<RemovedVdev>,
}

/// All top-level vdevs; a hole has nothing. Reads the header of every space map.
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

/// What is free in each metaslab by its own map, by vdev; the logs are left out. Reads all space maps.
pub fn free_space(pool: &Pool) -> Result<BTreeMap<VdevId, Vec<RangeSet>>, Error> {
    Ok(pool.spa().mapped_free_space()?)
}

/// Whoever opens a pool sets the emptiest metaslab of a vdev with many aside for the intent log.
fn set_aside(metaslabs: &mut [StoredMetaslab]) {
    if metaslabs.len() as u64 > EMBEDDED_LOG_METASLABS
        && let Some(emptiest) = metaslabs.iter_mut().min_by_key(|m| m.allocated())
    {
        emptiest.is_embedded_log = true;
    }
}

/// The maps of what was freed since the checkpoint and is kept for it, by vdev.
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
    // What the counts do not reach is not obsolete.
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

/// Bytes of each entry of a mapping that nothing needs any more: one 32-bit number each.
fn obsolete_counts(pool: &Pool, id: ObjectId, entries: usize) -> Result<Vec<u32>, Error> {
    let object = pool.spa().mos().object(id)?;
    let room = usize::try_from(object.logical_end()).unwrap_or(usize::MAX);
    let mut bytes = vec![0; entries.saturating_mul(4).min(room)];
    object.read_numbers(0, 4, &mut bytes)?;
    Ok(bytes.chunks_exact(4).map(|raw| Endian::Little.get_u32(raw, 0).unwrap_or(0)).collect())
}

/// How much of a log space map still counts.
#[derive(Debug, Clone, Copy)]
pub struct LogMap {
    /// Txg whose changes it has.
    pub txg: Txg,
    /// Its object.
    pub object: ObjectId,
    /// Its header.
    pub phys: SpaceMapPhys,
    /// Ranges in it.
    pub entries: u64,
    /// Of those, in metaslabs whose own map does not have them yet.
    pub valid: u64,
}

/// The log space maps, oldest first. Reads them whole.
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
