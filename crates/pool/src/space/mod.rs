//! Space: size of the pool, allocated bytes, fragmentation (docs/on-disk/15-space.md;
//! docs/on-disk/22-mos-dsl.md, section 4).
//!
//! Sizes come from the configuration alone. Allocated bytes come from the headers of the space maps and, if a
//! pool was not exported, from its log space maps; both are read on demand.

mod fragmentation;

use crate::directory::Directory;
use crate::error::PoolError;
use crate::space_map::SpaceMap;
use crate::view::Pool;
use crate::{clones, dedup};
use dmu::ObjSet;
use dmu::zap::Zap;
use dsl::PoolSpace;
use format::config::{VdevKind, VdevNode};
use format::names;
use format::space_map::{BUCKETS, MapBounds, MapType, Segment};
use format::{Endian, ObjectId, Txg, VdevId};
use std::collections::BTreeMap;
use std::sync::Arc;
use vdev::VdevTree;

/// A vdev with more metaslabs than this has one set aside for the intent log.
pub const EMBEDDED_LOG_METASLABS: u64 = 64;
/// Most metaslabs of a vdev that are read: no vdev is created with more than 2^17.
const METASLABS_MAX: u64 = 1 << 18;
/// Slop space: 1/32 of the pool,
const SLOP_SHIFT: u32 = 5;
/// but at most this,
const SLOP_MAX: u64 = 128 << 30;
/// and at least this, but no more than half the pool.
const SLOP_MIN: u64 = 128 << 20;

/// Class of blocks that a top-level vdev holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// Data and metadata of all kinds.
    Normal,
    /// Blocks of the intent log.
    Log,
    /// Metadata and small blocks.
    Special,
    /// Blocks of dedup tables.
    Dedup,
}

impl Class {
    /// The word that the tools print.
    pub fn name(self) -> &'static str {
        match self {
            Class::Normal => "normal",
            Class::Log => "log",
            Class::Special => "special",
            Class::Dedup => "dedup",
        }
    }
}

/// Space of a metaslab, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MetaslabSpace {
    /// First byte in the vdev.
    pub start: u64,
    /// Size of the metaslab, in bytes.
    pub size: u64,
    /// Its space map; `None`: it was never written, so all is free.
    pub space_map: Option<ObjectId>,
    /// Allocated bytes.
    pub allocated: u64,
    /// Its own map has all changes before this txg; later ones are in the logs.
    pub unflushed_txg: Txg,
    /// Numbers of free segments by the power of two of their length; `None`: not recorded.
    pub histogram: Option<[u64; BUCKETS]>,
}

/// Space of a top-level vdev.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VdevSpace {
    /// Number of the top-level vdev.
    pub vdev: VdevId,
    /// Class of blocks that the vdev holds.
    pub class: Class,
    /// Allocatable bytes, parity included.
    pub size: u64,
    /// Allocated bytes.
    pub allocated: u64,
    /// Bytes of `allocated` that only the checkpoint holds.
    pub checkpoint: u64,
    /// Fragmentation of the free space, in percent; `None`: unknown.
    pub fragmentation: Option<u64>,
    /// Bytes by which the vdev could grow with its devices; 0: none.
    pub expandable: u64,
    /// log2 of the sector size.
    pub ashift: u32,
    /// Metaslabs of the vdev, in order.
    pub metaslabs: Vec<MetaslabSpace>,
}

/// Space of the pool as `zpool list` shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpaceTotals {
    /// Bytes of all classes but log vdevs.
    pub size: u64,
    /// Allocated bytes.
    pub allocated: u64,
    /// Free bytes.
    pub free: u64,
    /// Allocated share of `size`, in percent.
    pub capacity: u64,
    /// Bytes that only the checkpoint holds.
    pub checkpoint: u64,
    /// Bytes by which the pool could grow.
    pub expandable: u64,
    /// Fragmentation of the normal class, in percent.
    pub fragmentation: Option<u64>,
}

// ---- sizes, without reading a space map --------------------------------------------------------

/// Start and size of a metaslab. On a dRAID both are whole stripes.
fn metaslab_bounds(node: &VdevNode, alignment: u64, index: u64) -> (u64, u64) {
    let nominal = 1_u64.checked_shl(node.metaslab_shift).unwrap_or(0);
    let from = nominal.saturating_mul(index);
    let start = from.checked_next_multiple_of(alignment.max(1)).unwrap_or(from);
    let room = from.saturating_add(nominal).saturating_sub(start);
    (start, room - room % alignment.max(1))
}

fn holds_data(node: &VdevNode) -> bool {
    !matches!(node.kind, VdevKind::Hole | VdevKind::Indirect | VdevKind::Missing)
}

/// Bytes of a top-level vdev that its metaslabs cover.
fn size_of(tree: &VdevTree, vdev: VdevId, node: &VdevNode) -> u64 {
    if !holds_data(node) {
        return 0;
    }
    let count = node.metaslabs().min(METASLABS_MAX);
    let alignment = tree.alignment(vdev).unwrap_or(1);
    if node.kind != VdevKind::Draid {
        return count.saturating_mul(1_u64.checked_shl(node.metaslab_shift).unwrap_or(0));
    }
    (0..count).map(|m| metaslab_bounds(node, alignment, m).1).fold(0, u64::saturating_add)
}

/// Class of blocks that a top-level vdev holds.
pub(crate) fn class_of(mos: &Arc<ObjSet>, node: &VdevNode) -> Result<Class, PoolError> {
    if node.is_log {
        return Ok(Class::Log);
    }
    let Some(zap) = vdev_zap(mos, node.zap_top)? else { return Ok(Class::Normal) };
    let bias = zap.lookup(names::top_vdev::ALLOCATION_BIAS.as_bytes())?.and_then(|entry| entry.string());
    Ok(match bias.as_deref() {
        Some(b"log") => Class::Log,
        Some(b"special") => Class::Special,
        Some(b"dedup") => Class::Dedup,
        _ => Class::Normal,
    })
}

fn vdev_zap(mos: &Arc<ObjSet>, id: ObjectId) -> Result<Option<Zap>, PoolError> {
    if id == ObjectId(0) { Ok(None) } else { Ok(Some(Zap::open(&mos.object(id)?)?)) }
}

fn deflated(tree: &VdevTree, vdev: VdevId, bytes: u64) -> u64 {
    (bytes >> 9).saturating_mul(tree.deflate_ratio(vdev))
}

/// Slop space of a pool of `size` bytes, of which `embedded_log` are set aside already.
fn slop(size: u64, embedded_log: u64) -> u64 {
    let slop = (size >> SLOP_SHIFT).min(SLOP_MAX);
    let slop = slop - embedded_log.min(slop / 2);
    slop.max(SLOP_MIN.min(size / 2))
}

/// Slop space of a pool of `size` bytes.
pub(crate) fn slop_of(size: u64) -> u64 {
    slop(size, 0)
}

/// Space of the root directory: the deflated size of the normal class, plus the savings of sharing, minus the
/// bytes that the checkpoint holds.
///
/// It was measured on pools with dedup, clones and a checkpoint (`available` and `used` of the root) that the
/// slop space is computed from the plain size, and that savings and checkpoint count in full.
pub(crate) fn root_space(
    mos: &Arc<ObjSet>,
    directory: &Directory,
    tree: &VdevTree,
) -> Result<PoolSpace, PoolError> {
    let (mut size, mut embedded, mut checkpoint) = (0_u64, 0_u64, 0_u64);
    for (vdev, node) in tree.tops() {
        // What is on a vdev that is being removed must find space on the others.
        if class_of(mos, node)? != Class::Normal || !holds_data(node) || node.removing {
            continue;
        }
        size = size.saturating_add(deflated(tree, vdev, size_of(tree, vdev, node)));
        if node.metaslabs() > EMBEDDED_LOG_METASLABS {
            let metaslab = 1_u64.checked_shl(node.metaslab_shift).unwrap_or(0);
            embedded = embedded.saturating_add(deflated(tree, vdev, metaslab));
        }
    }
    for (_, node) in tree.tops() {
        checkpoint = checkpoint.saturating_add(checkpoint_bytes(mos, node)?);
    }
    let slop = slop(size, embedded);
    let shared = dedup::saved(&dedup::histogram(directory)?.total());
    let cloned: u64 = clones::tables(mos, directory, tree.top_count())?
        .iter()
        .fold(0, |sum, table| sum.saturating_add(table.phys.saved));
    let whole = size.saturating_sub(embedded).saturating_add(shared).saturating_add(cloned);
    Ok(PoolSpace { size: whole.saturating_sub(checkpoint), slop })
}

/// Bytes of a top-level vdev that only the checkpoint holds: its map counts them as negative.
fn checkpoint_bytes(mos: &Arc<ObjSet>, node: &VdevNode) -> Result<u64, PoolError> {
    let Some(zap) = vdev_zap(mos, node.zap_top)? else { return Ok(0) };
    let Some(id) = zap.lookup(names::top_vdev::CHECKPOINT_SM.as_bytes())?.and_then(|entry| entry.u64())
    else {
        return Ok(0);
    };
    Ok(SpaceMap::open(mos, ObjectId(id))?.phys().allocated.min(0).unsigned_abs())
}

// ---- what is allocated -------------------------------------------------------------------------

/// Reads a `u64` array in an object.
fn array(mos: &Arc<ObjSet>, id: ObjectId, count: u64) -> Result<Vec<u64>, PoolError> {
    let object = mos.object(id)?;
    let count = count.min(object.logical_end() / 8);
    let len = usize::try_from(count).unwrap_or(usize::MAX).saturating_mul(8);
    let mut bytes = vec![0; len];
    object.read_numbers(0, 8, &mut bytes)?;
    Ok(Endian::Little.all_words(&bytes).collect())
}

/// Net change of each metaslab in the log space maps: vdev, metaslab, bytes allocated less freed.
type Unflushed = BTreeMap<(VdevId, u64), i128>;

impl Pool {
    /// Class of blocks that a top-level vdev holds.
    ///
    /// # Errors
    /// [`PoolError::Dmu`] if an object of the MOS cannot be read, [`PoolError::Decode`] or
    /// [`PoolError::Directory`] if it is malformed.
    pub fn class_of(&self, vdev: VdevId) -> Result<Class, PoolError> {
        self.tree().top(vdev).map_or(Ok(Class::Normal), |node| class_of(self.mos(), node))
    }

    /// Log space maps: txg and object, oldest first.
    ///
    /// # Errors
    /// [`PoolError::Dmu`] if an object of the MOS cannot be read, [`PoolError::Decode`] or
    /// [`PoolError::Directory`] if it is malformed.
    pub fn log_space_maps(&self) -> Result<Vec<(Txg, ObjectId)>, PoolError> {
        let Some((id, zap)) = self.directory().zap(names::directory::LOG_SPACEMAP_ZAP)? else {
            return Ok(Vec::new());
        };
        let mut maps = Vec::new();
        for entry in zap.entries() {
            let entry = entry?;
            let name = std::str::from_utf8(entry.name()).ok();
            let txg = name.and_then(|n| u64::from_str_radix(n, 16).ok());
            let (Some(txg), Some(map)) = (txg, entry.u64()) else {
                return Err(PoolError::Corrupt { object: id, why: "an entry of the log space maps" });
            };
            maps.push((Txg(txg), ObjectId(map)));
        }
        maps.sort_unstable();
        Ok(maps)
    }

    /// A number in the ZAP of a vdev; `None`: it has no ZAP, or no such entry.
    pub(crate) fn vdev_zap_number(&self, zap: ObjectId, name: &str) -> Result<Option<u64>, PoolError> {
        let Some(zap) = vdev_zap(self.mos(), zap)? else { return Ok(None) };
        Ok(zap.lookup(name.as_bytes())?.and_then(|entry| entry.u64()))
    }

    fn metaslabs(&self, vdev: VdevId, node: &VdevNode) -> Result<Vec<MetaslabSpace>, PoolError> {
        let count = node.metaslabs().min(METASLABS_MAX);
        if !holds_data(node) || node.metaslab_array == ObjectId(0) {
            return Ok(Vec::new());
        }
        let maps = array(self.mos(), node.metaslab_array, count)?;
        let flushed = match vdev_zap(self.mos(), node.zap_top)? {
            Some(zap) => {
                match zap.lookup(names::top_vdev::UNFLUSHED_TXGS.as_bytes())?.and_then(|entry| entry.u64()) {
                    Some(id) => array(self.mos(), ObjectId(id), count)?,
                    None => Vec::new(),
                }
            }
            None => Vec::new(),
        };
        let alignment = self.tree().alignment(vdev).unwrap_or(1);
        let mut all = Vec::new();
        for index in 0..count {
            let at = usize::try_from(index).unwrap_or(usize::MAX);
            let (start, size) = metaslab_bounds(node, alignment, index);
            let space_map = maps.get(at).copied().filter(|id| *id != 0).map(ObjectId);
            let phys = match space_map {
                Some(id) => Some(*SpaceMap::open(self.mos(), id)?.phys()),
                None => None,
            };
            all.push(MetaslabSpace {
                start,
                size,
                space_map,
                allocated: phys.map_or(0, |p| u64::try_from(p.allocated).unwrap_or(0)).min(size),
                unflushed_txg: Txg(flushed.get(at).copied().unwrap_or(0)),
                histogram: phys.and_then(|p| p.histogram),
            });
        }
        Ok(all)
    }

    /// Calls `visit` with every logged change that is not in its metaslab's own map, oldest first: the log,
    /// the metaslab of its first byte, and the change.
    pub(crate) fn for_each_logged(
        &self,
        tops: &BTreeMap<VdevId, &[MetaslabSpace]>,
        visit: &mut dyn FnMut(ObjectId, (VdevId, usize), Segment) -> Result<(), PoolError>,
    ) -> Result<(), PoolError> {
        for (txg, id) in self.log_space_maps()? {
            SpaceMap::open(self.mos(), id)?.for_each(MapBounds::LOG, &mut |segment| {
                let unnamed = || PoolError::Corrupt { object: id, why: "an entry without a vdev" };
                let vdev = segment.vdev.ok_or_else(unnamed)?;
                // Skip a vdev that no longer exists.
                let Some(metaslabs) = tops.get(&vdev) else { return Ok(()) };
                let index = metaslabs.partition_point(|m| m.start <= segment.start).saturating_sub(1);
                match metaslabs.get(index) {
                    Some(metaslab) if txg >= metaslab.unflushed_txg => visit(id, (vdev, index), segment),
                    _ => Ok(()),
                }
            })?;
        }
        Ok(())
    }

    /// Sums up the log space maps.
    fn unflushed(&self, tops: &BTreeMap<VdevId, Vec<MetaslabSpace>>) -> Result<Unflushed, PoolError> {
        let mut changes = Unflushed::new();
        let tops = tops.iter().map(|(vdev, metaslabs)| (*vdev, &metaslabs[..])).collect();
        self.for_each_logged(&tops, &mut |_, (vdev, index), segment| {
            let change = changes.entry((vdev, index as u64)).or_default();
            match segment.kind {
                MapType::Alloc => *change += i128::from(segment.len),
                MapType::Free => *change -= i128::from(segment.len),
            }
            Ok(())
        })?;
        Ok(changes)
    }

    /// Space of every top-level vdev that holds data. Reads the header of every space map, and the
    /// log space maps.
    ///
    /// # Errors
    /// [`PoolError::Dmu`] if a space map cannot be read, [`PoolError::Decode`] or [`PoolError::Corrupt`] if
    /// one is malformed.
    pub fn vdev_spaces(&self) -> Result<Vec<VdevSpace>, PoolError> {
        let mut tops = BTreeMap::new();
        for (vdev, node) in self.tree().tops().filter(|(_, node)| holds_data(node)) {
            tops.insert(vdev, self.metaslabs(vdev, node)?);
        }
        // By the metaslabs' own maps, because their histograms are of the same time.
        let ashift = |vdev| self.tree().ashift(vdev).map_or(9, |a| u32::from(a.0));
        let known = |feature: &format::feature::Feature| self.features().counts().contains_key(feature.guid);
        let has_histograms = format::feature::by_name("spacemap_histogram").is_some_and(known);
        let mut fragmentation: BTreeMap<VdevId, Option<u64>> = BTreeMap::new();
        for (vdev, metaslabs) in tops.iter().filter(|_| has_histograms) {
            fragmentation.insert(*vdev, fragmentation::of_vdev(metaslabs, ashift(*vdev)));
        }
        for ((vdev, index), change) in self.unflushed(&tops)? {
            let metaslabs = tops.get_mut(&vdev);
            if let Some(m) = metaslabs.and_then(|all| all.get_mut(usize::try_from(index).ok()?)) {
                let allocated = i128::from(m.allocated) + change;
                m.allocated = u64::try_from(allocated.max(0)).unwrap_or(u64::MAX).min(m.size);
            }
        }
        let status = self.tree().status();
        let mut all = Vec::new();
        for (vdev, metaslabs) in tops {
            let Some(node) = self.tree().top(vdev) else { continue };
            let offered = status.children.iter().find(|v| v.id == vdev.0).map_or(0, |v| v.offered);
            let metaslab = 1_u64.checked_shl(node.metaslab_shift).unwrap_or(0);
            let growth = offered.saturating_sub(node.asize);
            all.push(VdevSpace {
                vdev,
                class: self.class_of(vdev)?,
                size: size_of(self.tree(), vdev, node),
                allocated: metaslabs.iter().fold(0, |sum, m| sum.saturating_add(m.allocated)),
                checkpoint: checkpoint_bytes(self.mos(), node)?,
                fragmentation: fragmentation.get(&vdev).copied().flatten(),
                expandable: growth.checked_div(metaslab).unwrap_or(0) * metaslab,
                ashift: ashift(vdev),
                metaslabs,
            });
        }
        Ok(all)
    }

    /// Space of the pool as `zpool list` shows it.
    ///
    /// # Errors
    /// [`PoolError::Dmu`] if a space map cannot be read, [`PoolError::Decode`] or [`PoolError::Corrupt`] if
    /// one is malformed.
    pub fn space(&self) -> Result<SpaceTotals, PoolError> {
        let vdevs = self.vdev_spaces()?;
        let sum = |of: &dyn Fn(&VdevSpace) -> u64| {
            vdevs.iter().filter(|v| v.class != Class::Log).map(of).fold(0, u64::saturating_add)
        };
        let (size, allocated) = (sum(&|v| v.size), sum(&|v| v.allocated));
        Ok(SpaceTotals {
            size,
            allocated,
            free: size.saturating_sub(allocated),
            capacity: u64::try_from(u128::from(allocated) * 100 / u128::from(size.max(1))).unwrap_or(0),
            checkpoint: vdevs.iter().fold(0, |sum, v| sum.saturating_add(v.checkpoint)),
            expandable: sum(&|v| v.expandable),
            fragmentation: fragmentation::of_class(&vdevs, Class::Normal),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slop_is_a_share_within_bounds() {
        let (m, g, t) = (1 << 20, 1 << 30, 1 << 40);
        assert_eq!(slop(48 * m, 0), 24 * m);
        assert_eq!(slop(g, 0), 128 * m);
        assert_eq!(slop(32 * g, 0), g);
        assert_eq!(slop(32 * g, 300 * m), g - 300 * m);
        assert_eq!(slop(32 * g, 10 * g), g / 2);
        assert_eq!(slop(100 * t, 0), 128 * g);
    }
}
