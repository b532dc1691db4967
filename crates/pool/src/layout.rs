//! From specifications to vdevs: shapes, sizes, sectors.

use crate::config::find_mut;
use crate::error::PoolError;
use crate::refusal::{CHILDREN_MAX, DeviceRefusal, SpecRefusal};
use crate::space::Class;
use format::config::{PoolState, VdevKind, VdevNode};
use format::feature::{FEATURES, Feature, Since};
use format::label::{DEVICE_MIN, usable_size};
use format::{Ashift, Txg, VdevGuid};
use std::collections::HashMap;
use std::sync::Arc;
use vdev::env::Env;
use vdev::tunable::Tunable;
use vdev::{Device, label};

/// Allowed sector sizes of a new vdev, as powers of two.
const ASHIFTS: std::ops::RangeInclusive<u8> = 9..=16;
/// log2 of the largest sector that is chosen automatically: with larger ones small blocks would waste space.
pub static MAX_AUTO_ASHIFT: Tunable = Tunable::new("zfs_vdev_max_auto_ashift", 14, 9, 16);
/// log2 of the smallest sector that is chosen automatically.
pub static MIN_AUTO_ASHIFT: Tunable = Tunable::new("zfs_vdev_min_auto_ashift", 9, 9, 16);
/// log2 of the smallest metaslab.
const METASLAB_SHIFT_MIN: u32 = 24;
/// log2 of the metaslab size of ordinary vdevs,
const METASLAB_SHIFT_USUAL: u32 = 29;
/// and the largest for large vdevs, which then get more metaslabs.
const METASLAB_SHIFT_LARGE: u32 = 34;
/// A small vdev is divided into at least half as many metaslabs,
const METASLABS_MIN: u64 = 16;
/// a large one into at most as many,
const METASLABS_USUAL: u64 = 200;
/// the largest into at most as many.
const METASLABS_MAX: u64 = 1 << 17;

/// A device of a new vdev.
#[derive(Debug, Clone)]
pub struct LeafSpec {
    /// Path of the device, as in the configuration.
    pub path: String,
    /// The device, open for writing.
    pub device: Arc<dyn Device>,
    /// A block device, not a file.
    pub is_disk: bool,
    /// The leaf is a partition of a disk whose partition table was written for the pool.
    pub whole_disk: bool,
    /// Device id given by the system (`devid`).
    pub devid: Option<String>,
    /// Physical location of the device (`phys_path`).
    pub phys_path: Option<String>,
}

impl LeafSpec {
    /// A leaf that is a file.
    pub fn file(path: impl Into<String>, device: Arc<dyn Device>) -> LeafSpec {
        let path = path.into();
        LeafSpec { path, device, is_disk: false, whole_disk: false, devid: None, phys_path: None }
    }
}

/// Layout of a top-level vdev on its devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// One device, without redundancy.
    Single,
    /// All devices hold the same data.
    Mirror,
    /// RAID-Z with this many parity columns, 1 to 3.
    Raidz(u8),
}

/// Specification of a new top-level vdev.
#[derive(Debug, Clone)]
pub struct TopSpec {
    /// Layout on its devices.
    pub layout: Layout,
    /// Class of blocks that the vdev holds.
    pub class: Class,
    /// log2 of its sector size; `None`: the best for its devices.
    pub ashift: Option<Ashift>,
    /// The devices of the vdev.
    pub leaves: Vec<LeafSpec>,
}

/// The features of a new pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FeatureSet {
    /// All that OpenZFS 2.3 knows.
    Default,
    /// No features are enabled (`zpool create -d`).
    None,
    /// These features by their short names, and their dependencies.
    Named(Vec<String>),
}

impl FeatureSet {
    /// The features, in the order of the table.
    pub(crate) fn features(&self) -> Result<Vec<&'static Feature>, PoolError> {
        if let FeatureSet::Named(names) = self
            && let Some(unknown) = names.iter().find(|name| !FEATURES.iter().any(|f| f.name == **name))
        {
            return Err(PoolError::BadSpec { why: SpecRefusal::UnknownFeature { feature: unknown.clone() } });
        }
        let wanted = |feature: &&Feature| match self {
            FeatureSet::Default => feature.since == Since::V2_3,
            FeatureSet::None => false,
            FeatureSet::Named(names) => names.iter().any(|name| name == feature.name),
        };
        Ok(FEATURES.iter().filter(wanted).collect())
    }
}

/// The devices of new vdevs, by guid.
pub(crate) type NewDevices = HashMap<VdevGuid, Arc<dyn Device>>;

impl TopSpec {
    /// The configuration of the vdev, with new guids; the caller sets its number.
    pub(crate) fn node(
        &self,
        env: &Env,
        create_txg: Txg,
        devices: &mut NewDevices,
    ) -> Result<VdevNode, PoolError> {
        self.check_shape()?;
        let ashift = self.ashift()?;
        let mut leaves = Vec::new();
        for (index, leaf) in self.leaves.iter().enumerate() {
            let mut node = leaf.node(env, create_txg)?;
            node.id = index as u32;
            devices.insert(node.guid, Arc::clone(&leaf.device));
            leaves.push(node);
        }
        let mut top = match self.layout {
            Layout::Single => leaves.remove(0),
            Layout::Mirror => VdevNode::new(VdevKind::Mirror, VdevGuid(env.random())),
            Layout::Raidz(parity) => {
                let mut raidz = VdevNode::new(VdevKind::Raidz, VdevGuid(env.random()));
                raidz.nparity = parity;
                raidz
            }
        };
        top.children = leaves;
        top.create_txg = create_txg;
        top.ashift = Some(ashift);
        top.asize = self.asize();
        top.metaslab_shift = metaslab_shift(top.asize);
        top.is_log = self.class == Class::Log;
        Ok(top)
    }

    fn check_shape(&self) -> Result<(), PoolError> {
        let bad = |why: SpecRefusal| Err(PoolError::BadSpec { why });
        let count = self.leaves.len();
        match self.layout {
            Layout::Single if count != 1 => bad(SpecRefusal::SingleCount),
            Layout::Mirror if count < 2 => bad(SpecRefusal::MirrorCount),
            Layout::Raidz(parity) if !(1..=3).contains(&parity) => bad(SpecRefusal::RaidzParity { parity }),
            Layout::Raidz(_) if self.class == Class::Log => bad(SpecRefusal::RaidzLog),
            Layout::Raidz(parity) if count <= usize::from(parity) => bad(SpecRefusal::RaidzCount { parity }),
            _ if count > CHILDREN_MAX => bad(SpecRefusal::TooManyDevices),
            _ => Ok(()),
        }
    }

    fn ashift(&self) -> Result<Ashift, PoolError> {
        let sizes = || self.leaves.iter().map(|leaf| leaf.device.sector_sizes());
        let least = sizes().map(|(logical, _)| log2(logical)).max().unwrap_or(9);
        let ashift = self.ashift.map_or_else(|| best_ashift(sizes()), |ashift| ashift.0);
        if ashift < least || !ASHIFTS.contains(&ashift) {
            return Err(PoolError::BadSpec { why: SpecRefusal::Ashift { ashift } });
        }
        Ok(Ashift(ashift))
    }

    /// Allocatable bytes of each device: those of the smallest.
    fn asize(&self) -> u64 {
        let smallest = self.leaves.iter().map(|leaf| usable_size(leaf.device.size())).min().unwrap_or(0);
        match self.layout {
            Layout::Single | Layout::Mirror => smallest,
            Layout::Raidz(_) => smallest * self.leaves.len() as u64,
        }
    }
}

fn log2(bytes: u64) -> u8 {
    bytes.max(512).next_power_of_two().ilog2() as u8
}

/// log2 of the sector size of a vdev on devices with these sector sizes, logical and physical: the best for
/// them, unless that is very large.
pub fn best_ashift(sectors: impl IntoIterator<Item = (u64, u64)>) -> u8 {
    let max = MAX_AUTO_ASHIFT.get() as u8;
    let of_one = |(logical, physical): (u64, u64)| {
        let (least, best) = (log2(logical), log2(physical));
        if best > max { least } else { best.max(least) }
    };
    sectors.into_iter().map(of_one).max().unwrap_or(9).max(MIN_AUTO_ASHIFT.get() as u8)
}

impl LeafSpec {
    /// Configuration of a spare or cache device. A spare that is open for reading only is shared: it keeps
    /// the label and the guid by which other pools know it.
    pub(crate) fn aux_node(&self, env: &Env) -> Result<VdevNode, PoolError> {
        let mut node = match self.shared_spare() {
            Some(guid) => self.node_of(guid, Txg(0)),
            None => self.node(env, Txg(0))?,
        };
        node.ashift = Some(Ashift(best_ashift([self.device.sector_sizes()])));
        Ok(node)
    }

    /// Configuration of a new leaf, with a new guid.
    pub(crate) fn node(&self, env: &Env, create_txg: Txg) -> Result<VdevNode, PoolError> {
        let bad = |why: DeviceRefusal| Err(PoolError::BadDevice { path: self.path.clone(), why });
        if self.device.size() < DEVICE_MIN {
            return bad(DeviceRefusal::TooSmall);
        }
        if self.device.is_read_only() {
            return bad(DeviceRefusal::ReadOnly);
        }
        Ok(self.node_of(VdevGuid(env.random()), create_txg))
    }

    /// The guid of a spare that another pool has already.
    pub(crate) fn shared_spare(&self) -> Option<VdevGuid> {
        let probe = self.device.is_read_only().then(|| label::probe(&*self.device))?;
        probe.newest_config().filter(|config| config.state == PoolState::Spare)?.guid
    }

    fn node_of(&self, guid: VdevGuid, create_txg: Txg) -> VdevNode {
        let kind = if self.is_disk { VdevKind::Disk } else { VdevKind::File };
        let mut node = VdevNode::new(kind, guid);
        node.path = Some(self.path.clone());
        node.devid.clone_from(&self.devid);
        node.phys_path.clone_from(&self.phys_path);
        node.whole_disk = self.whole_disk;
        node.create_txg = create_txg;
        node
    }
}

/// log2 of the metaslabs of a new vdev. Measured on pools of other implementations: a vdev of 250 MB has
/// metaslabs of 16 MiB, one of 312 MB has them of 32 MiB.
fn metaslab_shift(asize: u64) -> u32 {
    let ceil_log2 = |bytes: u64| u64::BITS - bytes.leading_zeros();
    let usual = asize >> METASLAB_SHIFT_USUAL;
    if usual < METASLABS_MIN {
        return ceil_log2(asize / METASLABS_MIN).max(METASLAB_SHIFT_MIN);
    }
    if usual <= METASLABS_USUAL {
        return METASLAB_SHIFT_USUAL;
    }
    let shift = ceil_log2(asize / METASLABS_USUAL).min(METASLAB_SHIFT_LARGE);
    if asize >> shift <= METASLABS_MAX { shift } else { ceil_log2(asize / METASLABS_MAX) }
}

/// Sets the present path of a device.
pub(crate) fn set_path(root: &mut VdevNode, guid: VdevGuid, path: &str) -> bool {
    match find_mut(root, guid) {
        Some(node) if node.path.as_deref() != Some(path) => {
            node.path = Some(path.to_owned());
            true
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metaslabs_as_other_implementations_make_them() {
        assert_eq!(metaslab_shift(62_390_272), 24);
        assert_eq!(metaslab_shift(249_561_088), 24);
        assert_eq!(metaslab_shift(311_951_360), 25);
        assert_eq!(metaslab_shift(100 << 30), 29);
        assert_eq!(metaslab_shift(1 << 40), 33);
        assert_eq!(metaslab_shift(1 << 46), 34);
        assert!((1_u64 << 54) >> metaslab_shift(1 << 54) <= METASLABS_MAX);
    }

    #[test]
    fn sectors_are_those_that_devices_like_unless_they_are_very_large() {
        let best = |sectors: &[(u64, u64)]| best_ashift(sectors.iter().copied());
        assert_eq!(best(&[(512, 512)]), 9);
        assert_eq!(best(&[(512, 4096), (512, 512)]), 12);
        assert_eq!(best(&[(4096, 512)]), 12);
        assert_eq!(best(&[(512, 16384)]), 14);
        assert_eq!(best(&[(512, 65536)]), 9);
        assert_eq!(best(&[(4096, 65536)]), 12);
        assert_eq!(best(&[]), 9);
    }

    #[test]
    fn sets_of_features() {
        assert_eq!(FeatureSet::Default.features().unwrap().len(), 44);
        assert!(FeatureSet::None.features().unwrap().is_empty());
        assert!(FeatureSet::Named(vec!["nosuch".into()]).features().is_err());
    }
}
