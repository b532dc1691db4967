//! Hot spares and cache devices: lists in the MOS of devices that are not part of the tree
//! (docs/on-disk/11-labels-config.md, section 3.2; docs/on-disk/14-vdevs.md, section 8).

use crate::directory::Directory;
use crate::{Pool, PoolError};
use format::config::{VdevKind, VdevNode};

/// Devices in such a list: more than any machine has.
const DEVICES_MAX: usize = 1 << 16;

/// State of a spare or cache device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuxState {
    /// A spare that can be used.
    Available,
    /// A spare that stands in for another device.
    InUse,
    /// A cache device that is there.
    Online,
    /// The device is not there.
    Unavailable,
}

impl AuxState {
    /// The word that the tools print.
    pub fn name(self) -> &'static str {
        match self {
            AuxState::Available => "AVAIL",
            AuxState::InUse => "INUSE",
            AuxState::Online => "ONLINE",
            AuxState::Unavailable => "UNAVAIL",
        }
    }
}

/// A spare or cache device.
#[derive(Debug, Clone, PartialEq)]
pub struct AuxVdev {
    /// Its configuration.
    pub node: VdevNode,
    /// Whether it can be used.
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

impl Pool {
    /// The hot spares. A distributed spare is there when its dRAID is.
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
        let list = nodes(self.directory(), "spares")?;
        Ok(list.into_iter().map(|node| AuxVdev { state: state(&node), node }).collect())
    }

    /// The cache devices.
    pub fn cache_devices(&self) -> Result<Vec<AuxVdev>, PoolError> {
        let state = |node: &VdevNode| if self.sees(node) { AuxState::Online } else { AuxState::Unavailable };
        let list = nodes(self.directory(), "l2cache")?;
        Ok(list.into_iter().map(|node| AuxVdev { state: state(&node), node }).collect())
    }

    fn sees(&self, node: &VdevNode) -> bool {
        self.has_device(node.guid)
    }
}
