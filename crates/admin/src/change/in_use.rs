//! Whether devices that a command names are used already: by a pool, or by what else is on them.
//!
//! Files are asked for labels only; block devices also for file systems, as the tools of OpenZFS do. That
//! a device is mounted or otherwise open shows when it is opened for writing, alone.

use super::pool_layout::DeviceUse;
use super::pool_path::DeviceName;
use super::signature;
use crate::cachefile::Imported;
use format::config::PoolState;
use std::fmt;
use std::sync::Arc;
use vdev::Device;
use vdev::device::file::{Access, FileDevice};
use vdev::device::partition::PartitionDevice;
use vdev::gpt;
use vdev::label;

/// Partitions that are looked into.
const PARTITIONS_MAX: usize = 128;

/// By what a device is used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Usage {
    /// A pool that is imported here.
    Active(String),
    /// A pool that somebody may have imported elsewhere, or that was not exported.
    PotentiallyActive(String),
    /// A pool that was exported.
    Exported(String),
    /// A hot spare of a pool that is imported here.
    Spare(String),
    /// A cache device of a pool that is imported here.
    Cache(String),
    /// A file system or the like.
    Filesystem(&'static str),
}

/// A device that is used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InUse {
    /// Its path.
    pub path: String,
    /// By what.
    pub usage: Usage,
}

impl InUse {
    /// Not even `-f` may take it.
    pub fn is_final(&self) -> bool {
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
            // The words of OpenZFS, which has none for this.
            Usage::Cache(pool) => write!(f, "{path} is part of unknown pool '{pool}'"),
            Usage::Filesystem(kind) => write!(f, "{path} contains a filesystem of type '{kind}'"),
        }
    }
}

/// What uses a device that is wanted for something. A device that cannot be read is not judged here.
pub(super) fn usage_of(device: &DeviceName, wanted: DeviceUse, imported: &Imported) -> Option<InUse> {
    let path = device.path.display().to_string();
    let opened: Arc<dyn Device> = Arc::new(FileDevice::open(&device.path, Access::Auto).ok()?);
    let usage = match by_pool(&opened, imported) {
        // A spare may be shared by pools.
        Some(Usage::Spare(_)) if wanted == DeviceUse::Spare => None,
        None if device.is_disk => signature::of_device(&*opened).map(Usage::Filesystem),
        usage => usage,
    };
    usage.map(|usage| InUse { path, usage })
}

/// The pool that a device, or a partition of it, belongs to.
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

/// What the labels of a leaf say.
fn by_label(device: &dyn Device, imported: &Imported) -> Option<Usage> {
    if device.size() < format::label::DEVICE_MIN || !label::looks_like_leaf(device) {
        return None;
    }
    let probe = label::probe(device);
    let config = probe.newest_config()?;
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
