//! Opens the devices of new vdevs for writing.
//!
//! # Order
//! Check whether the devices are in use -> compare the vdevs -> open the devices exclusively -> check their use
//! again -> check sizes -> write partition tables of whole disks. Only the last step writes.

use super::ChangeError;
use super::in_use::{InUse, Usage, usage_of};
use super::pool_layout::{DeviceUse, LayoutClass, LayoutKind, PoolLayout};
use super::pool_path::{DeviceName, first_partition};
use super::replication::mismatches;
use crate::Imported;
use ::pool::space::Class;
use ::pool::{Layout, LeafSpec, TopSpec};
use format::Ashift;
use format::config::VdevNode;
use format::label::DEVICE_MIN;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use vdev::device::file::{self, Access};
use vdev::device::partition::PartitionDevice;
use vdev::{Device, Env, gpt};

/// Objections that are overridden.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allow {
    /// Devices may belong to a pool that is not imported, or contain a file system.
    pub in_use: bool,
    /// Vdevs may differ in type and redundancy.
    pub mismatch: bool,
    /// The sector size may differ from that of the pool's vdevs.
    pub ashift: bool,
}

impl Allow {
    /// All objections are overridden (`-f`).
    pub const ALL: Allow = Allow { in_use: true, mismatch: true, ashift: true };
}

/// Checks new vdevs, for a new pool or against the vdevs of an existing one.
///
/// # Errors
/// [`ChangeError::Vdevs`] with all objections.
pub(crate) fn check_layout(
    layout: &PoolLayout,
    pool: Option<&VdevNode>,
    allow: Allow,
) -> Result<(), ChangeError> {
    let imported = Imported::load()?;
    let used: Vec<InUse> = layout
        .devices()
        .filter_map(|(device, wanted)| usage_of(device, wanted, &imported))
        .filter(|usage| !allow.in_use || usage.is_final())
        .collect();
    ChangeError::in_use(allow.in_use, &used)?;
    if !allow.mismatch {
        ChangeError::vdevs(false, mismatches(layout, pool))?;
    }
    if pool.is_none() && !layout.has_data() {
        let line = "at least one general top-level vdev must be specified".to_owned();
        return ChangeError::vdevs(allow.mismatch, vec![line]);
    }
    Ok(())
}

/// An open device and its use.
struct Opened<'l> {
    name: &'l DeviceName,
    device: Arc<dyn Device>,
}

/// New vdevs with open devices.
pub(super) struct OpenDevices {
    pub(super) tops: Vec<TopSpec>,
    pub(super) spares: Vec<LeafSpec>,
    pub(super) cache: Vec<LeafSpec>,
}

/// Opens the devices of new vdevs exclusively for writing, and partitions whole disks.
pub(super) fn open_devices(
    layout: &PoolLayout,
    ashift: Option<u8>,
    too_small: impl Fn() -> ChangeError,
) -> Result<OpenDevices, ChangeError> {
    if has_disk_twice(layout) {
        return Err(ChangeError::DeviceBusy { disk: None });
    }
    let mut opened: Vec<Vec<Opened<'_>>> = Vec::new();
    for top in &layout.tops {
        opened.push(top.leaves.iter().map(open).collect::<Result<_, _>>()?);
    }
    let imported = Imported::load()?;
    let spare = |name| open_spare(name, &imported);
    let spares = layout.spares.iter().map(spare).collect::<Result<Vec<_>, _>>()?;
    let cache = layout.cache.iter().map(open).collect::<Result<Vec<_>, _>>()?;
    // Another command may have created a pool on them before they were locked.
    let imported = Imported::load()?;
    let used = layout.devices().filter_map(|(device, wanted)| usage_of(device, wanted, &imported));
    ChangeError::in_use(true, &used.filter(InUse::is_final).collect::<Vec<_>>())?;
    if opened.iter().flatten().chain(&spares).chain(&cache).any(|leaf| leaf.device.size() < DEVICE_MIN) {
        return Err(too_small());
    }
    let env = Env::system();
    let aux = |leaves: Vec<Opened<'_>>| -> Result<Vec<LeafSpec>, ChangeError> {
        leaves.into_iter().map(|leaf| leaf_spec(leaf, &env)).collect()
    };
    let (spares, cache) = (aux(spares)?, aux(cache)?);
    let mut tops = Vec::new();
    for (top, leaves) in layout.tops.iter().zip(opened) {
        let leaves = leaves.into_iter().map(|leaf| leaf_spec(leaf, &env)).collect::<Result<_, _>>()?;
        tops.push(TopSpec {
            layout: match top.kind {
                LayoutKind::Single => Layout::Single,
                LayoutKind::Mirror => Layout::Mirror,
                LayoutKind::Raidz(parity) => Layout::Raidz(parity),
            },
            class: match top.class {
                LayoutClass::Normal => Class::Normal,
                LayoutClass::Log => Class::Log,
                LayoutClass::Special => Class::Special,
                LayoutClass::Dedup => Class::Dedup,
            },
            ashift: ashift.map(Ashift),
            leaves,
        });
    }
    Ok(OpenDevices { tops, spares, cache })
}

/// Opens the device of a new leaf exclusively for writing. `agree` looks at the open device before anything is
/// written to it; then a whole disk is partitioned.
pub(super) fn open_leaf(
    name: &DeviceName,
    agree: &dyn Fn(&dyn Device) -> Result<(), ChangeError>,
) -> Result<LeafSpec, ChangeError> {
    leaf_of(open(name)?, agree)
}

/// Like [`open_leaf`], for a device that the pool itself has open.
///
/// # Errors
/// Those of [`open_leaf`].
pub(super) fn held_leaf(
    name: &DeviceName,
    device: Arc<dyn Device>,
    agree: &dyn Fn(&dyn Device) -> Result<(), ChangeError>,
) -> Result<LeafSpec, ChangeError> {
    leaf_of(Opened { name, device }, agree)
}

fn leaf_of(
    opened: Opened<'_>,
    agree: &dyn Fn(&dyn Device) -> Result<(), ChangeError>,
) -> Result<LeafSpec, ChangeError> {
    let name = opened.name;
    // Another command may have created a pool on it before it was locked.
    let used = usage_of(name, DeviceUse::Vdev, &Imported::load()?).filter(InUse::is_final);
    ChangeError::in_use(true, &used.into_iter().collect::<Vec<_>>())?;
    agree(&*opened.device)?;
    leaf_spec(opened, &Env::system())
}

/// True if two names denote the same block device. It has no other owner then, so it is not reported as busy.
fn has_disk_twice(layout: &PoolLayout) -> bool {
    let disks = layout.devices().filter(|(device, _)| device.is_disk);
    let mut seen = HashSet::new();
    let mut paths = disks.filter_map(|(device, _)| std::fs::canonicalize(&device.path).ok());
    !paths.all(|path| seen.insert(path))
}

fn open(name: &DeviceName) -> Result<Opened<'_>, ChangeError> {
    let shown = || name.path.display().to_string();
    match file::open_exclusive(&name.path, Access::Auto) {
        Ok(device) => Ok(Opened { name, device }),
        Err(error) => Err(ChangeError::device(shown(), name.is_disk, error)),
    }
}

/// Opens a spare. A spare that an imported pool already has is shared: it is opened for reading only and stays
/// unchanged.
fn open_spare<'l>(name: &'l DeviceName, imported: &Imported) -> Result<Opened<'l>, ChangeError> {
    let usage = usage_of(name, DeviceUse::Vdev, imported).map(|used| used.usage);
    if !matches!(usage, Some(Usage::Spare(_))) {
        return open(name);
    }
    let partition = name.is_whole_disk.then(|| first_partition(&name.path));
    let path = partition.as_ref().unwrap_or(&name.path);
    match file::FileDevice::open(path, Access::Auto) {
        Ok(device) => Ok(Opened { name, device: Arc::new(device) }),
        Err(error) => Err(ChangeError::device(path.display().to_string(), name.is_disk, error)),
    }
}

fn leaf_spec(leaf: Opened<'_>, env: &Env) -> Result<LeafSpec, ChangeError> {
    let Opened { name, device } = leaf;
    let shown = |path: &Path| path.display().to_string();
    if !name.is_disk {
        return Ok(LeafSpec::file(shown(&name.path), device));
    }
    let mut spec = LeafSpec { is_disk: true, ..LeafSpec::file(shown(&name.path), Arc::clone(&device)) };
    if name.is_whole_disk && device.is_read_only() {
        spec.path = shown(&first_partition(&name.path));
        spec.whole_disk = true;
    } else if name.is_whole_disk {
        let partition = gpt::write(&*device, &gpt::Identity::random(env))
            .map_err(|why| ChangeError::Partitions { path: shown(&name.path), why })?;
        // The kernel may not show the partition while the disk is open, so it is accessed through the disk.
        let window = PartitionDevice::new(device, partition.start, partition.len);
        spec.device = Arc::new(window.map_err(|why| ChangeError::Device { path: shown(&name.path), why })?);
        spec.path = shown(&first_partition(&name.path));
        spec.whole_disk = true;
    }
    spec.devid = None;
    Ok(spec)
}

/// Binary logarithm of the sector size that suits the devices of a vdev best.
pub(super) fn best_ashift(top: &super::LayoutTop) -> Result<u8, ChangeError> {
    let mut sectors = Vec::new();
    for leaf in &top.leaves {
        let shown = leaf.path.display().to_string();
        let device = file::FileDevice::open(&leaf.path, Access::Cached);
        let device = device.map_err(|e| ChangeError::device(shown, leaf.is_disk, e))?;
        sectors.push(device.sector_sizes());
    }
    Ok(pool::best_ashift(sectors))
}
