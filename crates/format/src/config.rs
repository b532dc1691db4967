//! Pool and vdev configurations: the typed form of the nvlists in labels, in the MOS and in the
//! cache file (docs/on-disk/11-labels-config.md, sections 3 and 9).
//!
//! Three kinds of list are decoded as a [`PoolConfig`]: a leaf's label (its tree is one top-level vdev), the MOS or
//! cache file configuration (its tree is the root), and the short label of a spare or cache device (its tree is a
//! leaf made from the few keys that are present).
//!
//! # What always holds
//! - Every node of a tree was checked: known type, guid present and unique, children numbered in order, valid
//!   parity and ashift, consistent dRAID shape. `vdev` checks whether devices are large enough.
//! - The list itself is kept in [`PoolConfig::raw`], unknown keys included.

mod encode;
mod fields;
mod vdev_node;

pub use encode::ConfigForm;
pub use vdev_node::{DraidShape, VdevKind, VdevNode};

use crate::names::config as key;
use crate::{DecodeError, NvList, PoolGuid, Txg, VdevGuid, VdevId};
use fields::{WHAT, owned, required, small};

/// State of a pool, or of a device that is not part of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PoolState {
    /// In use, or not exported before the machine stopped.
    Active,
    /// The pool was exported and belongs to no host.
    Exported,
    /// The pool was destroyed; it can still be imported by request.
    Destroyed,
    /// The label of a spare device.
    Spare,
    /// The label of a cache device.
    L2cache,
}

impl PoolState {
    /// From the number stored on disk.
    ///
    /// # Errors
    /// [`DecodeError::Field`] if no state has this number.
    pub(crate) fn from_id(id: u64) -> Result<PoolState, DecodeError> {
        Ok(match id {
            0 => PoolState::Active,
            1 => PoolState::Exported,
            2 => PoolState::Destroyed,
            3 => PoolState::Spare,
            4 => PoolState::L2cache,
            _ => return Err(DecodeError::field(WHAT, key::STATE, id)),
        })
    }

    /// The number stored on disk.
    pub(crate) fn id(self) -> u64 {
        self as u64
    }
}

/// The configuration of a pool, from one label, the MOS or the cache file.
#[derive(Debug, Clone, PartialEq)]
pub struct PoolConfig {
    /// Format version: 5000, or 1 to 28 in supported pools. Any other version is kept, so that a refusal can name
    /// the pool.
    pub version: u64,
    /// Name of the pool; empty in the label of a spare or cache device.
    pub name: String,
    /// State of the pool or device when the configuration was written.
    pub state: PoolState,
    /// Txg in which the configuration was written; 0: the label was never part of a synced txg.
    pub txg: Txg,
    /// Guid of the pool; 0 in the label of a spare or cache device.
    pub pool_guid: PoolGuid,
    /// Number of a known erratum of the pool's format, 0 if none.
    pub errata: u64,
    /// Host that wrote it; 0: none recorded.
    pub hostid: u64,
    /// Host name of the machine that last had the pool open.
    pub hostname: Option<String>,
    /// The pool property `comment`, if it is set.
    pub comment: Option<String>,
    /// Names of the feature sets in the pool property `compatibility`.
    pub compatibility: Option<String>,
    /// Guid of the top-level vdev that the label is part of.
    pub top_guid: Option<VdevGuid>,
    /// Guid of the leaf on which the label is.
    pub guid: Option<VdevGuid>,
    /// Number of top-level vdev slots, holes included.
    pub vdev_children: Option<u32>,
    /// Top-level slots that are holes.
    pub hole_array: Vec<VdevId>,
    /// Active features without which the MOS cannot be read.
    pub features_for_read: Vec<String>,
    /// The vdev tree: a root; in a label one top-level vdev; in the label of a spare or cache device one leaf.
    pub vdev_tree: VdevNode,
    /// The label is that of an active spare.
    pub is_spare: bool,
    /// The label is that of a log device.
    pub is_log: bool,
    /// Guid of the pool from which this one is being split off.
    pub split_guid: Option<PoolGuid>,
    /// True if the object ids of vdev ZAPs in the tree are valid.
    pub has_vdev_zaps: bool,
    /// The list that the configuration was read from.
    pub raw: NvList,
}

impl PoolConfig {
    /// Reads and checks a configuration.
    ///
    /// # Errors
    /// [`DecodeError::Missing`] or [`DecodeError::Field`] names the key that is absent or out of range;
    /// otherwise the error of [`VdevNode::from_nvlist`].
    pub fn from_nvlist(list: &NvList) -> Result<PoolConfig, DecodeError> {
        let state = PoolState::from_id(list.u64(key::STATE).unwrap_or(0))?;
        let is_aux = matches!(state, PoolState::Spare | PoolState::L2cache);
        let version = required(list.u64(key::VERSION), key::VERSION)?;
        let vdev_tree = match list.list(key::VDEV_TREE) {
            Some(tree) => VdevNode::from_nvlist(tree)?,
            None if is_aux => VdevNode::from_aux_label(list)?,
            None => return Err(DecodeError::Missing { what: WHAT, field: key::VDEV_TREE }),
        };
        let config = PoolConfig {
            version,
            name: list.str(key::NAME).unwrap_or_default().to_owned(),
            state,
            txg: Txg(list.u64(key::TXG).unwrap_or(0)),
            pool_guid: PoolGuid(list.u64(key::POOL_GUID).unwrap_or(0)),
            errata: list.u64(key::ERRATA).unwrap_or(0),
            hostid: list.u64(key::HOSTID).unwrap_or(0),
            hostname: owned(list, key::HOSTNAME),
            comment: owned(list, key::COMMENT),
            compatibility: owned(list, key::COMPATIBILITY),
            top_guid: list.u64(key::TOP_GUID).map(VdevGuid),
            guid: list.u64(key::GUID).map(VdevGuid),
            vdev_children: list.u64(key::VDEV_CHILDREN).map(|n| small(key::VDEV_CHILDREN, n)).transpose()?,
            hole_array: holes(list)?,
            features_for_read: names(list.list(key::FEATURES_FOR_READ)),
            vdev_tree,
            is_spare: list.u64(key::IS_SPARE) == Some(1),
            is_log: list.u64(key::IS_LOG) == Some(1),
            split_guid: list.u64(key::SPLIT_GUID).map(PoolGuid),
            has_vdev_zaps: list.flag(key::HAS_PER_VDEV_ZAPS),
            raw: list.clone(),
        };
        if !is_aux {
            config.check()?;
        }
        Ok(config)
    }

    /// True for the label of a spare or cache device, which may be used by several pools.
    pub fn is_aux(&self) -> bool {
        matches!(self.state, PoolState::Spare | PoolState::L2cache)
    }

    fn check(&self) -> Result<(), DecodeError> {
        if self.name.is_empty() {
            return Err(DecodeError::Missing { what: WHAT, field: key::NAME });
        }
        if self.pool_guid.0 == 0 {
            return Err(DecodeError::field(WHAT, key::POOL_GUID, 0u64));
        }
        let Some(slots) = self.vdev_children else { return Ok(()) };
        let beyond = |id: u32| Err(DecodeError::field(WHAT, "vdev id beyond vdev_children", id));
        if let Some(hole) = self.hole_array.iter().find(|hole| hole.0 >= slots) {
            return beyond(hole.0);
        }
        match self.vdev_tree.kind {
            VdevKind::Root if self.vdev_tree.children.len() as u64 > u64::from(slots) => {
                beyond(self.vdev_tree.children.len() as u32 - 1)
            }
            VdevKind::Root => Ok(()),
            _ if self.vdev_tree.id >= slots => beyond(self.vdev_tree.id),
            _ => Ok(()),
        }
    }
}

fn holes(list: &NvList) -> Result<Vec<VdevId>, DecodeError> {
    list.u64s(key::HOLE_ARRAY)
        .unwrap_or(&[])
        .iter()
        .map(|id| small(key::HOLE_ARRAY, *id).map(VdevId))
        .collect()
}

fn names(list: Option<&NvList>) -> Vec<String> {
    list.into_iter().flat_map(NvList::iter).map(|(name, _)| name.to_owned()).collect()
}

#[cfg(test)]
mod tests;
