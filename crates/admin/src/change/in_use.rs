//! Determines whether devices that a command names are in use by a pool or have other contents.
//!
//! As in OpenZFS, files are examined for labels only, block devices also for file systems. Whether a device is
//! mounted or open is found later, when it is opened exclusively.

use super::pool_layout::DeviceUse;
use super::pool_path::DeviceName;
use super::signature;
use crate::cachefile::Imported;
use format::Txg;
use format::config::PoolState;
use std::fmt;
use std::sync::Arc;
use vdev::Device;
use vdev::device::file::{Access, FileDevice};
use vdev::device::partition::PartitionDevice;
use vdev::gpt;
use vdev::label;

/// Maximum number of partitions that are examined.
const PARTITIONS_MAX: usize = 128;

/// Use of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Usage {
    /// Vdev of a pool that is imported here.
    Active(String),
    /// Vdev of a pool that was not exported, and may be imported elsewhere.
    PotentiallyActive(String),
    /// Vdev of an exported pool.
    Exported(String),
    /// Hot spare of a pool that is imported here.
    Spare(String),
    /// Cache device of a pool that is imported here.
    Cache(String),
    /// A file system or other known contents, by its name.
    Filesystem(&'static str),
}

/// A device that is in use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InUse {
    /// Path of the device.
    pub path: String,
    /// The pool or contents that use it.
    pub usage: Usage,
}

impl InUse {
    /// True if even `-f` must not take the device.
    pub(crate) fn is_final(&self) -> bool {
        matches!(self.usage, Usage::Active(_) | Usage::Spare(_))
    }
}

impl fmt::Display for InUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = &self.path;
        match &self.usage {
            Usage::Active(pool) => write!(f, "{path} is part of active pool '{pool}'"),
            Usage::PotentiallyActive(pool) => write!(f, "{path} is part of potentially active pool '{pool}'"),
            Usage::Exported(pool) => write!(f, "{path} is part of exported pool '{pool}'"),
            Usage::Spare(pool) => write!(f, "{path} is reserved as a hot spare for pool {pool}"),
            // The message of OpenZFS, which has none for this case.
            Usage::Cache(pool) => write!(f, "{path} is part of unknown pool '{pool}'"),
            Usage::Filesystem(kind) => write!(f, "{path} contains a filesystem of type '{kind}'"),
        }
    }
}

/// The use of a device that conflicts with `wanted`. Devices that cannot be read are not reported here.
pub(super) fn usage_of(device: &DeviceName, wanted: DeviceUse, imported: &Imported) -> Option<InUse> {
    let path = device.path.display().to_string();
    let opened: Arc<dyn Device> = Arc::new(FileDevice::open(&device.path, Access::Auto).ok()?);
    let usage = match by_pool(&opened, imported) {
        // Pools may share a spare.
        Some(Usage::Spare(_)) if wanted == DeviceUse::Spare => None,
        None if device.is_disk => signature::of_device(&*opened).map(Usage::Filesystem),
        usage => usage,
    };
    usage.map(|usage| InUse { path, usage })
}

/// The pool that a device, or one of its partitions, belongs to.
fn by_pool(device: &Arc<dyn Device>, imported: &Imported) -> Option<Usage> {
    if let Some(usage) = by_label(&**device, imported) {
        return Some(usage);
    }
    let partitions = gpt::partitions(&**device).ok().flatten().unwrap_or_default();
    partitions.iter().take(PARTITIONS_MAX).find_map(|partition| {
        let window = PartitionDevice::new(Arc::clone(device), partition.start, partition.len).ok()?;
        by_label(&window, imported)
    })
}

/// The use that the labels of a leaf describe.
fn by_label(device: &dyn Device, imported: &Imported) -> Option<Usage> {
    if device.size() < format::label::DEVICE_MIN || !label::looks_like_leaf(device) {
        return None;
    }
    let probe = label::probe(device);
    // A device that was detached has a label with txg 0, and is nobody's.
    let config = probe.newest_config().filter(|config| config.is_aux() || config.txg != Txg(0))?;
    let name = config.name.clone();
    let imported = config.guid.and_then(|guid| imported.pool_of(guid)).map(str::to_owned);
    match (imported, config.state) {
        (Some(pool), PoolState::Spare) => Some(Usage::Spare(pool)),
        (Some(pool), PoolState::L2cache) => Some(Usage::Cache(pool)),
        (Some(pool), _) => Some(Usage::Active(pool)),
        (None, PoolState::Active) => Some(Usage::PotentiallyActive(name)),
        (None, PoolState::Exported) => Some(Usage::Exported(name)),
        _ => None,
    }
}
