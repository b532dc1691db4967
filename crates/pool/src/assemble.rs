//! From labels to pools: the devices of each pool, and the tree that their labels describe
//! (docs/on-disk/10-overview.md, section 4, steps 1 and 2).
//!
//! # What always holds
//! - Only labels with a valid checksum count; labels of txg 0 belong to no pool yet.
//! - For every top-level vdev the newest label decides; the newest of all labels decides about the pool.
//! - The tree made here is not trusted: it suffices to find the MOS, which has the true one.

use crate::error::PoolError;
use format::config::{PoolConfig, PoolState, VdevNode};
use format::names;
use format::nvlist::{NvList, NvValue};
use format::uberblock::Uberblock;
use format::{PoolGuid, Txg, VdevGuid};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use vdev::Device;
use vdev::scan::{Found, Leaf};

/// The devices whose labels name one pool.
pub(crate) struct Group<'a> {
    /// Guid of the pool.
    pub(crate) guid: PoolGuid,
    /// Its devices, with their newest label.
    pub(crate) members: Vec<Member<'a>>,
}

/// A device and the newest of its labels.
#[derive(Clone, Copy)]
pub(crate) struct Member<'a> {
    pub(crate) leaf: &'a Leaf,
    pub(crate) config: &'a PoolConfig,
}

/// A spare or cache device that no pool uses at the moment.
pub(crate) struct AuxDevice<'a> {
    pub(crate) guid: VdevGuid,
    pub(crate) leaf: &'a Leaf,
}

fn newest_label(leaf: &Leaf) -> Option<&PoolConfig> {
    leaf.probe.configs.iter().map(|found| &found.config).max_by_key(|config| config.txg)
}

/// The newest label of a device that is part of a pool, but not as a spare or cache device.
pub(crate) fn label_in_pool(leaf: &Leaf) -> Option<&PoolConfig> {
    newest_label(leaf).filter(|config| !config.is_aux() && config.txg != Txg(0))
}

/// Whether a label of a device names this pool: the newest, or an older one of the same leaf.
pub(crate) fn names_pool(leaf: &Leaf, pool: PoolGuid) -> bool {
    memberships(leaf).any(|member| member.config.pool_guid == pool)
}

/// The pools that the labels of a leaf name, each with its newest label. There are several if the power
/// failed while the pool's guid changed.
fn memberships(leaf: &Leaf) -> impl Iterator<Item = Member<'_>> {
    let newest = label_in_pool(leaf);
    let is_of_leaf = move |config: &&PoolConfig| {
        newest.is_some_and(|newest| config.guid == newest.guid && !config.is_aux() && config.txg != Txg(0))
    };
    let mut by_pool: BTreeMap<PoolGuid, Member<'_>> = BTreeMap::new();
    for config in leaf.probe.configs.iter().map(|found| &found.config).filter(is_of_leaf) {
        let member = by_pool.entry(config.pool_guid).or_insert(Member { leaf, config });
        if config.txg > member.config.txg {
            member.config = config;
        }
    }
    by_pool.into_values()
}

fn by_pool<'a>(members: impl Iterator<Item = Member<'a>>) -> BTreeMap<PoolGuid, Group<'a>> {
    let mut groups = BTreeMap::new();
    for member in members {
        let guid = member.config.pool_guid;
        groups.entry(guid).or_insert_with(|| Group { guid, members: Vec::new() }).members.push(member);
    }
    groups
}

/// Groups the devices by pool. A leaf may have labels of two pools: it belongs to the pool of the newer
/// labels if an uberblock of that pool is on the leaf, otherwise to the other pool.
pub(crate) fn groups(found: &Found) -> Vec<Group<'_>> {
    let named = by_pool(found.leaves.iter().flat_map(memberships));
    let is_on_disk = |member: &Member<'_>| {
        named.get(&member.config.pool_guid).is_some_and(|group| group.is_on_disk(member.config.txg))
    };
    let member_of = |leaf| {
        let mut members: Vec<Member<'_>> = memberships(leaf).collect();
        members.sort_by_key(|member| std::cmp::Reverse(member.config.txg));
        let oldest = members.pop()?;
        Some(members.into_iter().find(is_on_disk).unwrap_or(oldest))
    };
    by_pool(found.leaves.iter().filter_map(member_of)).into_values().collect()
}

/// Guids of the pools for which at least one label on these devices satisfies `is_asked_for`.
pub fn guids_with(found: &Found, is_asked_for: impl Fn(&PoolConfig) -> bool) -> Vec<PoolGuid> {
    let has = |group: &Group<'_>| group.members.iter().any(|member| is_asked_for(member.config));
    groups(found).iter().filter(|group| has(group)).map(|group| group.guid).collect()
}

/// The spares and cache devices, by guid.
pub(crate) fn aux_devices(found: &Found) -> Vec<AuxDevice<'_>> {
    let aux = |leaf| {
        let config = newest_label(leaf).filter(|config| config.is_aux())?;
        Some(AuxDevice { guid: config.guid.unwrap_or(config.vdev_tree.guid), leaf })
    };
    found.leaves.iter().filter_map(aux).collect()
}

impl<'a> Group<'a> {
    /// The newest label of all.
    pub(crate) fn newest(&self) -> &'a PoolConfig {
        let newest = self.members.iter().map(|m| m.config).max_by_key(|config| config.txg);
        newest.unwrap_or_else(|| unreachable!("a group has at least one member"))
    }

    pub(crate) fn name(&self) -> &'a str {
        &self.newest().name
    }

    pub(crate) fn is_destroyed(&self) -> bool {
        self.newest().state == PoolState::Destroyed
    }

    /// Devices by the guid in their labels; of two with the same guid, the one written last. The guid of a leaf
    /// changes when it takes the place of its top-level vdev. If the power failed meanwhile, the device is also
    /// found by the guid in its older labels, or by that of the top-level vdev in its labels, unless that is the
    /// guid of another device.
    pub(crate) fn devices(&self, aux: &[AuxDevice<'_>]) -> HashMap<VdevGuid, Arc<dyn Device>> {
        let mut devices: HashMap<VdevGuid, (Txg, Arc<dyn Device>)> = HashMap::new();
        let pool = self.members.iter().filter_map(|m| Some((m.config.guid?, m.config.txg, m.leaf)));
        for (guid, txg, leaf) in aux.iter().map(|a| (a.guid, Txg(0), a.leaf)).chain(pool) {
            match devices.get(&guid) {
                Some((other, _)) if *other > txg => {}
                _ => drop(devices.insert(guid, (txg, leaf.device.clone()))),
            }
        }
        let mut devices: HashMap<VdevGuid, Arc<dyn Device>> =
            devices.into_iter().map(|(guid, (_, device))| (guid, device)).collect();
        for (guid, leaf) in self.members.iter().flat_map(|member| other_guids(member.leaf, self.guid)) {
            devices.entry(guid).or_insert_with(|| Arc::clone(&leaf.device));
        }
        devices
    }

    /// The tree that the labels describe, with placeholders for vdevs without a label.
    pub(crate) fn tree(&self) -> Result<VdevNode, PoolError> {
        let newest = self.newest();
        let mut tops: BTreeMap<u32, &PoolConfig> = BTreeMap::new();
        for Member { config, .. } in &self.members {
            let top = tops.entry(config.vdev_tree.id).or_insert(config);
            if config.txg > top.txg {
                *top = config;
            }
        }
        let known = tops.keys().last().map_or(0, |last| last + 1);
        let slots = newest.vdev_children.unwrap_or(known);
        // Ids come from labels, so there are at most as many slots as a DVA can number; placeholders are made
        // only for as many vdevs as a real pool could have.
        if slots > MAX_TOPS {
            let cause = format::DecodeError::field("pool config", names::config::VDEV_CHILDREN, slots);
            return Err(PoolError::Labels(cause));
        }
        let children = (0..slots)
            .map(|id| match tops.get(&id) {
                _ if newest.hole_array.iter().any(|hole| hole.0 == id) => stand_in("hole", id, 0),
                Some(config) => config.raw.list(names::config::VDEV_TREE).cloned().unwrap_or_default(),
                None => stand_in("missing", id, self.missing_guid(id)),
            })
            .collect();
        let mut root = stand_in("root", 0, self.guid.0);
        root.push(names::config::CHILDREN, NvValue::ListArray(children));
        VdevNode::from_nvlist(&root).map_err(PoolError::Labels)
    }

    /// Whether one of the devices has an uberblock of this pool that is not older than `since`.
    fn is_on_disk(&self, since: Txg) -> bool {
        let Ok(tree) = self.tree() else { return false };
        let sum = tree.guid_sum();
        self.uberblocks().iter().any(|(ub, _)| ub.txg >= since && ub.guid_sum == sum)
    }

    /// A unique guid for a vdev without a label, whose own guid is unknown.
    fn missing_guid(&self, id: u32) -> u64 {
        let mixed = self.guid.0.rotate_left(32) ^ (u64::from(id) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed.max(1)
    }

    /// All uberblocks of the group's devices, best first, each with the device it is on.
    pub(crate) fn uberblocks(&self) -> Vec<(&'a Uberblock, Member<'a>)> {
        let mut all: Vec<(&Uberblock, Member<'_>)> = Vec::new();
        for member in &self.members {
            all.extend(member.leaf.probe.uberblocks.iter().map(|found| (&found.uberblock, *member)));
        }
        all.sort_by_key(|(ub, _)| std::cmp::Reverse(ub.rank()));
        all
    }
}

/// Guids besides that of its newest label by which a device may be known in a pool.
fn other_guids(leaf: &Leaf, pool: PoolGuid) -> impl Iterator<Item = (VdevGuid, &Leaf)> {
    let configs = leaf.probe.configs.iter().map(|found| &found.config);
    let of_pool =
        configs.filter(move |config| config.pool_guid == pool && !config.is_aux() && config.txg != Txg(0));
    of_pool.flat_map(|config| [config.guid, config.top_guid]).flatten().map(move |guid| (guid, leaf))
}

/// Most top-level slots of a real pool.
const MAX_TOPS: u32 = 1 << 16;

fn stand_in(kind: &str, id: u32, guid: u64) -> NvList {
    let mut list = NvList::new();
    list.push(names::config::TYPE, kind);
    list.push(names::config::ID, u64::from(id));
    list.push(names::config::GUID, guid);
    list
}

/// The label on a device that was valid when an uberblock was written; `None` if all are newer.
pub(crate) fn label_of(member: Member<'_>, txg: Txg) -> Option<&PoolConfig> {
    let upto = member.leaf.probe.configs.iter().map(|found| &found.config).filter(|c| c.txg <= txg);
    upto.max_by_key(|config| config.txg)
}
