//! Hot spares and cache devices: lists in the MOS of devices that are not part of the tree
//! (docs/on-disk/11-labels-config.md, section 3.2; docs/on-disk/14-vdevs.md, section 8).

pub(crate) mod change;

use crate::directory::Directory;
use crate::error::PoolError;
use crate::view::Pool;
use format::VdevGuid;
use format::config::{VdevKind, VdevNode};
use format::names;
use std::path::Path;
use vdev::scan::{Found, Leaf, Search};
use vdev::{Devices, Env};

/// Most devices in such a list: more than any machine has.
const DEVICES_MAX: usize = 1 << 16;

/// State of a spare or cache device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuxState {
    /// A spare that can be used.
    Available,
    /// A spare that stands in for another device.
    InUse,
    /// A cache device that is present.
    Online,
    /// A spare or cache device that is missing.
    Unavailable,
}

impl AuxState {}

/// A spare or cache device.
#[derive(Debug, Clone, PartialEq)]
pub struct AuxVdev {
    /// Configuration of the device.
    pub node: VdevNode,
    /// Whether the device can be used.
    pub state: AuxState,
}

pub(crate) fn nodes(directory: &Directory, name: &str) -> Result<Vec<VdevNode>, PoolError> {
    let Some(list) = directory.packed_list(name)? else { return Ok(Vec::new()) };
    let malformed = || PoolError::Directory { entry: name.to_owned() };
    let entries = list.lists(name).unwrap_or(&[]);
    if entries.len() > DEVICES_MAX {
        return Err(malformed());
    }
    entries.iter().map(|entry| VdevNode::from_nvlist(entry).map_err(|_| malformed())).collect()
}

/// The spares and cache devices with devices of their own: all but distributed spares.
pub(crate) fn all_nodes(directory: &Directory) -> Result<Vec<VdevNode>, PoolError> {
    let mut all = nodes(directory, names::directory::SPARES)?;
    all.extend(nodes(directory, names::directory::L2CACHE)?);
    all.retain(|node| node.kind != VdevKind::DistributedSpare);
    Ok(all)
}

/// Whether a device that was found is the spare or cache device with this guid.
pub(crate) fn is_device_of(leaf: &Leaf, guid: VdevGuid) -> bool {
    let config = leaf.probe.newest_config().filter(|config| config.is_aux());
    config.is_some_and(|config| config.guid.unwrap_or(config.vdev_tree.guid) == guid)
}

/// Looks for a spare or cache device at its recorded path, because the search may have covered other paths
/// only. The result is empty if another device is there.
pub(crate) fn at_recorded_path(node: &VdevNode, source: &Devices) -> Found {
    let is_there = |path: &&Path| source.identity(path).is_some();
    let Some(path) = node.path.as_deref().map(Path::new).filter(is_there) else {
        return Found::default();
    };
    let env = Env::system().with_devices(source.clone());
    let mut found = Search { env, ..Search::in_paths([path]) }.run();
    found.leaves.retain(|leaf| is_device_of(leaf, node.guid));
    found
}

impl Pool {
    /// The hot spares. A distributed spare is present if its dRAID is.
    ///
    /// # Errors
    /// [`PoolError::Dmu`] if an object of the MOS cannot be read, [`PoolError::Decode`] or
    /// [`PoolError::Directory`] if it is malformed.
    pub fn spares(&self) -> Result<Vec<AuxVdev>, PoolError> {
        let state = |node: &VdevNode| {
            if self.tree().config().find(node.guid).is_some() {
                AuxState::InUse
            } else if self.sees(node) || node.kind == VdevKind::DistributedSpare {
                AuxState::Available
            } else {
                AuxState::Unavailable
            }
        };
        let list = nodes(self.directory(), names::directory::SPARES)?;
        Ok(list.into_iter().map(|node| AuxVdev { state: state(&node), node }).collect())
    }

    /// The cache devices, with their states.
    ///
    /// # Errors
    /// [`PoolError::Dmu`] if an object of the MOS cannot be read, [`PoolError::Decode`] or
    /// [`PoolError::Directory`] if it is malformed.
    pub fn cache_devices(&self) -> Result<Vec<AuxVdev>, PoolError> {
        let state = |node: &VdevNode| if self.sees(node) { AuxState::Online } else { AuxState::Unavailable };
        let list = nodes(self.directory(), names::directory::L2CACHE)?;
        Ok(list.into_iter().map(|node| AuxVdev { state: state(&node), node }).collect())
    }

    fn sees(&self, node: &VdevNode) -> bool {
        // A pool open for writing knows the devices that it holds.
        self.has_device(node.guid)
            || (!self.is_live() && !at_recorded_path(node, &self.source).leaves.is_empty())
    }
}
