//! Construction of the tree: from a configuration and the devices that were found, or from a tree whose
//! configuration changes.

use super::error::{ConfigFault, VdevError};
use super::leaf::{Leaf, LeafState, Memory};
use super::node::{Body, DEPTH_MAX, DistributedSpare, Listener, Losses, Top, Vdev, VdevTree};
use crate::device::Device;
use crate::geometry::{Draid, DraidParams, Expansion, Raidz, ReflowState};
use format::config::{VdevKind, VdevNode};
use format::uberblock::ReflowInfo;
use format::{Ashift, VdevGuid, VdevId};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, RwLock};

impl VdevTree {
    /// Builds the tree of a root configuration from the devices that were found. A leaf without a device is
    /// missing; [`VdevTree::status`] shows the consequences.
    ///
    /// # Errors
    /// [`VdevError::BadConfig`] or [`VdevError::Draid`] if the configuration describes an impossible tree.
    pub fn open(
        root: &VdevNode,
        devices: &HashMap<VdevGuid, Arc<dyn Device>>,
        reflow: ReflowInfo,
    ) -> Result<Arc<VdevTree>, VdevError> {
        VdevTree::build(
            root,
            &Builder {
                devices,
                reflow,
                memories: HashMap::new(),
                losses: Arc::default(),
                listener: Arc::default(),
            },
        )
    }

    fn build(root: &VdevNode, builder: &Builder<'_>) -> Result<Arc<VdevTree>, VdevError> {
        if root.kind != VdevKind::Root {
            return Err(VdevError::BadConfig { guid: root.guid, fault: ConfigFault::NotRoot });
        }
        let mut tops = Vec::with_capacity(root.children.len());
        let mut draids = HashMap::new();
        for (index, node) in root.children.iter().enumerate() {
            let id = VdevId(u32::try_from(index).map_err(|_| VdevError::BadConfig {
                guid: root.guid,
                fault: ConfigFault::TooManyChildren,
            })?);
            if node.kind == VdevKind::Draid {
                draids.insert(node.guid, index);
            }
            tops.push(builder.top(id, node)?);
        }
        let losses = Arc::clone(&builder.losses);
        let listener = Arc::clone(&builder.listener);
        let (config, reflow) = (root.clone(), builder.reflow);
        Ok(Arc::new(VdevTree { config, tops, draids, reflow, losses, listener }))
    }

    /// Builds a tree with a changed configuration: vdevs added, grown or removed, paths, states. Existing
    /// leaves keep their device (unless `new_devices` has one for them), their counters, their DTL and their
    /// unflushed births; removed vdevs keep their mapping. A device that is replaced is flushed. Calls that
    /// still use the old tree count on the same leaves.
    ///
    /// # Errors
    /// [`VdevError::BadConfig`] or [`VdevError::Draid`] if the configuration describes an impossible tree.
    pub fn reconfigured(
        &self,
        root: &VdevNode,
        new_devices: &HashMap<VdevGuid, Arc<dyn Device>>,
    ) -> Result<Arc<VdevTree>, VdevError> {
        self.rebuilt(root, new_devices, &[], &HashMap::new())
    }

    /// Like [`VdevTree::reconfigured`], where leaves have other guids than before: `former` has their guids in
    /// this tree by the new ones. A leaf gets another guid when it takes over the place of its top-level vdev.
    ///
    /// # Errors
    /// Those of [`VdevTree::reconfigured`].
    pub fn reconfigured_as(
        &self,
        root: &VdevNode,
        new_devices: &HashMap<VdevGuid, Arc<dyn Device>>,
        former: &HashMap<VdevGuid, VdevGuid>,
    ) -> Result<Arc<VdevTree>, VdevError> {
        self.rebuilt(root, new_devices, &[], former)
    }

    /// Builds this tree without the devices of some leaves, which are flushed.
    ///
    /// # Errors
    /// Those of [`VdevTree::reconfigured`].
    pub fn without_devices(&self, leaves: &[VdevGuid]) -> Result<Arc<VdevTree>, VdevError> {
        self.flush_leaves(leaves);
        self.rebuilt(self.config(), &HashMap::new(), leaves, &HashMap::new())
    }

    fn rebuilt(
        &self,
        root: &VdevNode,
        new_devices: &HashMap<VdevGuid, Arc<dyn Device>>,
        shut: &[VdevGuid],
        former: &HashMap<VdevGuid, VdevGuid>,
    ) -> Result<Arc<VdevTree>, VdevError> {
        let memory_of = |state: &LeafState| (state.guid, Arc::clone(&state.memory));
        let mut memories: HashMap<VdevGuid, Arc<Memory>> =
            self.all_leaf_states().into_iter().map(memory_of).collect();
        let (losses, listener) = (Arc::clone(&self.losses), Arc::clone(&self.listener));
        let mut leaves = Vec::new();
        self.tops.iter().for_each(|top| top.vdev.leaves(&mut leaves));
        let mut devices: HashMap<VdevGuid, Arc<dyn Device>> =
            leaves.iter().filter_map(|leaf| Some((leaf.guid, Arc::clone(leaf.device()?)))).collect();
        devices.retain(|guid, _| !shut.contains(guid));
        for (now, before) in former {
            if let Some(memory) = memories.remove(before) {
                memories.insert(*now, memory);
            }
            if let Some(device) = devices.remove(before) {
                devices.insert(*now, device);
            }
            let mut losses = self.losses();
            if let Some(last) = losses.of_leaves.get(&before.0).copied() {
                losses.of_leaves.insert(now.0, last);
            }
        }
        // The new tree flushes its own devices only.
        let replaced = new_devices
            .iter()
            .filter(|(guid, new)| devices.get(*guid).is_some_and(|old| !Arc::ptr_eq(old, new)));
        let replaced: Vec<VdevGuid> = replaced.map(|(guid, _)| *guid).collect();
        self.flush_leaves(&replaced);
        devices.extend(new_devices.iter().map(|(guid, device)| (*guid, Arc::clone(device))));
        let tree = VdevTree::build(
            root,
            &Builder { devices: &devices, reflow: self.reflow, memories, losses, listener },
        )?;
        for (id, node) in self.tops() {
            if let Some(mapping) = self.indirect(id)
                && tree.top(id).is_some_and(|now| now.guid == node.guid)
            {
                tree.set_mapping(id, mapping);
            }
        }
        Ok(tree)
    }
}

/// Makes vdevs from their configuration.
struct Builder<'a> {
    devices: &'a HashMap<VdevGuid, Arc<dyn Device>>,
    reflow: ReflowInfo,
    /// Counters, DTLs and unflushed births of the leaves of the earlier tree.
    memories: HashMap<VdevGuid, Arc<Memory>>,
    /// Flushes of the earlier tree that lost writes.
    losses: Arc<Mutex<Losses>>,
    listener: Listener,
}

impl Builder<'_> {
    fn memory(&self, node: &VdevNode) -> Arc<Memory> {
        self.memories.get(&node.guid).cloned().unwrap_or_default()
    }

    fn top(&self, id: VdevId, node: &VdevNode) -> Result<Top, VdevError> {
        let ashift = node.ashift.unwrap_or(Ashift(9));
        let vdev = self.vdev(node, ashift, node.asize, 0)?;
        // Labels may be older than the vdev's last growth; the devices then offer more.
        let limit = node.asize.max(vdev.offered());
        Ok(Top { id, vdev, ashift, limit, indirect: RwLock::default() })
    }

    /// `needed` is the allocatable space that the vdev above relies on.
    fn vdev(&self, node: &VdevNode, ashift: Ashift, needed: u64, depth: usize) -> Result<Vdev, VdevError> {
        let bad = |fault| VdevError::BadConfig { guid: node.guid, fault };
        if depth > DEPTH_MAX {
            return Err(bad(ConfigFault::TooDeep));
        }
        let needed = needed_of_child(node, needed);
        let children = || -> Result<Vec<Vdev>, VdevError> {
            node.children.iter().map(|child| self.vdev(child, ashift, needed, depth + 1)).collect()
        };
        let body = match node.kind {
            VdevKind::Mirror | VdevKind::Replacing | VdevKind::Spare => Body::Mirror(children()?),
            VdevKind::Raidz => {
                let raidz = Raidz::new(node.children.len(), node.nparity, ashift, self.expansion(node));
                Body::Raidz(Box::new(raidz.ok_or(bad(ConfigFault::Raidz))?), children()?)
            }
            VdevKind::Draid => Body::Draid(Box::new(draid(node, ashift)?), children()?),
            VdevKind::DistributedSpare => Body::DistributedSpare(Box::new(DistributedSpare {
                draid: node.top_guid.ok_or(bad(ConfigFault::SpareWithoutDraid))?,
                index: node.spareid.ok_or(bad(ConfigFault::SpareWithoutIndex))? as usize,
                state: LeafState::new(node, Some(u64::MAX), 0, self.memory(node)),
            })),
            VdevKind::Indirect => Body::Indirect,
            VdevKind::Hole => Body::Hole,
            VdevKind::Disk | VdevKind::File | VdevKind::Missing | VdevKind::L2cache | VdevKind::Log => {
                let device = self.devices.get(&node.guid).cloned();
                Body::Leaf(Box::new(Leaf::new(node, device, needed, self.memory(node))))
            }
            VdevKind::Root => return Err(bad(ConfigFault::InnerRoot)),
        };
        Ok(Vdev { body })
    }

    fn expansion(&self, node: &VdevNode) -> Expansion {
        let running = node.raidz_expanding.then_some(ReflowState {
            offset: self.reflow.offset,
            in_scratch: self.reflow.state == ReflowInfo::SCRATCH_VALID,
        });
        Expansion { txgs: node.expand_txgs.clone(), running }
    }
}

fn draid(node: &VdevNode, ashift: Ashift) -> Result<Draid, VdevError> {
    let fault = ConfigFault::DraidWithoutShape;
    let shape = node.draid.ok_or(VdevError::BadConfig { guid: node.guid, fault })?;
    Ok(Draid::new(DraidParams {
        children: node.children.len(),
        ndata: usize::from(shape.ndata),
        nparity: node.nparity,
        nspares: usize::from(shape.nspares),
        ngroups: u64::from(shape.ngroups),
        ashift,
    })?)
}

/// Allocatable bytes that each child needs if the vdev is to have `needed`.
fn needed_of_child(node: &VdevNode, needed: u64) -> u64 {
    let columns = match node.kind {
        VdevKind::Raidz => node.children.len().saturating_sub(usize::from(node.raidz_expanding)),
        VdevKind::Draid => {
            let spares = node.draid.map_or(0, |shape| usize::from(shape.nspares));
            node.children.len().saturating_sub(spares)
        }
        _ => return needed,
    };
    needed.checked_div(columns as u64).unwrap_or(0)
}
