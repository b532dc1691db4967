//! Configurations as lists, with the keys in the order in which other implementations write them
//! (docs/on-disk/11-labels-config.md, section 3).
//!
//! # What always holds
//! - What was read from a label or from the MOS is written as the same bytes, if no program newer than
//!   the format described has added keys.
//! - Keys of the pool's own list that are not known here are kept; those of a vdev are not.

use super::{PoolConfig, PoolState, VdevKind, VdevNode};
use crate::names;
use crate::{NvList, NvValue, ObjectId, Txg, VdevGuid};

/// For whom a configuration is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConfigForm {
    /// The label of a leaf: one top-level vdev, without the vdev ZAPs.
    Label,
    /// The MOS, or the cache file: everything.
    Mos,
}

/// Keys of a pool's list that have a field.
const KNOWN: [&str; 22] = [
    "version",
    "name",
    "state",
    "txg",
    "pool_guid",
    "errata",
    "comment",
    "compatibility",
    "hostid",
    "hostname",
    names::config::HAS_PER_VDEV_ZAPS,
    "top_guid",
    "guid",
    "is_spare",
    "is_log",
    "split_guid",
    "hole_array",
    "vdev_children",
    "vdev_tree",
    "features_for_read",
    // Of the labels of spares and cache devices.
    "ashift",
    "path",
];

impl PoolConfig {
    /// The configuration as a list. In the form of a label, the tree must be a top-level vdev, and
    /// [`PoolConfig::guid`] and [`PoolConfig::top_guid`] say whose label it is.
    pub fn to_nvlist(&self, form: ConfigForm) -> NvList {
        if self.is_aux() {
            return self.aux_label();
        }
        let is_mos = form == ConfigForm::Mos;
        let mut list = NvList::new();
        list.push("version", self.version);
        list.push("name", self.name.as_str());
        list.push("state", self.state.id());
        list.push("txg", self.txg.0);
        list.push("pool_guid", self.pool_guid.0);
        list.push("errata", self.errata);
        push_text(&mut list, "comment", self.comment.as_deref());
        push_text(&mut list, "compatibility", self.compatibility.as_deref());
        push_unless_0(&mut list, "hostid", self.hostid);
        push_text(&mut list, "hostname", self.hostname.as_deref());
        push_flag(&mut list, names::config::HAS_PER_VDEV_ZAPS, is_mos && self.has_vdev_zaps);
        if !is_mos {
            push_some(&mut list, "top_guid", self.top_guid.map(|guid| guid.0));
            push_some(&mut list, "guid", self.guid.map(|guid| guid.0));
            push_unless_0(&mut list, "is_spare", self.is_spare.into());
            push_unless_0(&mut list, "is_log", self.is_log.into());
        }
        if !self.hole_array.is_empty() {
            let holes: Vec<u64> = self.hole_array.iter().map(|id| id.0.into()).collect();
            list.push("hole_array", holes);
        }
        push_some(&mut list, "vdev_children", self.vdev_children.map(u64::from));
        push_some(&mut list, "split_guid", self.split_guid.map(|guid| guid.0));
        list.push("vdev_tree", self.vdev_tree.to_nvlist(form));
        let features: NvList =
            self.features_for_read.iter().map(|name| (name.as_str(), NvValue::Boolean)).collect();
        list.push("features_for_read", features);
        self.push_unknown(&mut list);
        list
    }

    /// The label of a leaf, made from the configuration of the whole pool (whose tree is the root) as
    /// of `txg`; `None` if there is no such leaf.
    pub fn label(&self, leaf: VdevGuid, txg: Txg) -> Option<NvList> {
        let top = self.vdev_tree.children.iter().find(|top| top.find(leaf).is_some())?;
        let node = top.find(leaf)?;
        let label = PoolConfig {
            txg,
            top_guid: Some(top.guid),
            guid: Some(leaf),
            is_spare: node.is_spare,
            is_log: top.is_log,
            vdev_tree: top.clone(),
            ..self.clone()
        };
        Some(label.to_nvlist(ConfigForm::Label))
    }

    /// The label of a spare or cache device that is not in use.
    fn aux_label(&self) -> NvList {
        let leaf = &self.vdev_tree;
        let mut list = NvList::new();
        list.push("version", self.version);
        list.push("state", self.state.id());
        list.push("guid", leaf.guid.0);
        if self.state == PoolState::L2cache {
            push_some(&mut list, "ashift", leaf.ashift.map(|ashift| ashift.0.into()));
        }
        leaf.push_places(&mut list);
        self.push_unknown(&mut list);
        list
    }

    fn push_unknown(&self, list: &mut NvList) {
        for (name, value) in self.raw.iter() {
            if !KNOWN.contains(&name) && !list.has(name) {
                list.push(name, value.clone());
            }
        }
    }
}

impl VdevNode {
    /// The vdev and all below as a list: the root, or a top-level vdev.
    pub fn to_nvlist(&self, form: ConfigForm) -> NvList {
        let is_root = self.kind == VdevKind::Root;
        self.node(form, if is_root { Place::Root } else { Place::Top })
    }

    /// The vdev as an entry of the MOS lists of spares and cache devices, which have no number.
    pub fn to_aux_nvlist(&self) -> NvList {
        self.node(ConfigForm::Mos, Place::Aux)
    }

    fn node(&self, form: ConfigForm, place: Place) -> NvList {
        let mut list = NvList::new();
        list.push("type", self.kind.name());
        if place != Place::Aux {
            list.push("id", u64::from(self.id));
        }
        list.push("guid", self.guid.0);
        self.push_places(&mut list);
        self.push_shape(&mut list);
        match self.kind {
            VdevKind::Disk => list.push("whole_disk", u64::from(self.whole_disk)),
            // Made by the pool itself, not by a command.
            VdevKind::Spare | VdevKind::Replacing | VdevKind::Indirect | VdevKind::Hole => {
                list.push("whole_disk", 0_u64);
            }
            _ => push_unless_0(&mut list, "whole_disk", self.whole_disk.into()),
        }
        push_unless_0(&mut list, "not_present", self.not_present.into());
        push_unless_0(&mut list, "is_spare", self.is_spare.into());
        match place {
            Place::Top => self.push_top(&mut list),
            Place::Aux => push_some(&mut list, "ashift", self.ashift.map(|ashift| ashift.0.into())),
            Place::Root | Place::Below => {}
        }
        push_object(&mut list, "DTL", self.dtl);
        push_object(&mut list, names::config::INDIRECT_OBJECT, self.indirect_object);
        push_object(&mut list, names::config::INDIRECT_BIRTHS, self.indirect_births);
        push_some(
            &mut list,
            names::config::PREV_INDIRECT_VDEV,
            self.prev_indirect_vdev.map(|id| id.0.into()),
        );
        push_unless_0(&mut list, "is_hole", self.is_hole.into());
        push_unless_0(&mut list, "create_txg", self.create_txg.0);
        if form == ConfigForm::Mos {
            push_object(&mut list, names::config::VDEV_ZAP_ROOT, self.zap_root);
            push_object(&mut list, names::config::VDEV_ZAP_LEAF, self.zap_leaf);
            push_object(&mut list, names::config::VDEV_ZAP_TOP, self.zap_top);
            push_flag(&mut list, names::config::RESILVER_DEFER, self.resilver_defer);
        }
        self.push_states(&mut list);
        if !self.children.is_empty() {
            let place = if place == Place::Root { Place::Top } else { Place::Below };
            list.push("children", self.children.iter().map(|c| c.node(form, place)).collect::<Vec<_>>());
        }
        list
    }

    /// Where the device was seen.
    fn push_places(&self, list: &mut NvList) {
        push_text(list, "path", self.path.as_deref());
        push_text(list, "devid", self.devid.as_deref());
        push_text(list, "phys_path", self.phys_path.as_deref());
        push_text(list, "vdev_enc_sysfs_path", self.enc_path.as_deref());
    }

    /// What a vdev of columns was made with.
    fn push_shape(&self, list: &mut NvList) {
        if self.kind == VdevKind::DistributedSpare {
            push_some(list, "top_guid", self.top_guid.map(|guid| guid.0));
            push_some(list, "spareid", self.spareid.map(u64::from));
        }
        push_unless_0(list, "nparity", self.nparity.into());
        push_flag(list, "raidz_expanding", self.raidz_expanding);
        if !self.expand_txgs.is_empty() {
            list.push("raidz_expand_txgs", self.expand_txgs.iter().map(|txg| txg.0).collect::<Vec<_>>());
        }
        if let Some(shape) = &self.draid {
            list.push("draid_ndata", u64::from(shape.ndata));
            list.push("draid_nspares", u64::from(shape.nspares));
            list.push("draid_ngroups", u64::from(shape.ngroups));
        }
    }

    /// What only a top-level vdev has.
    fn push_top(&self, list: &mut NvList) {
        list.push("metaslab_array", self.metaslab_array.0);
        list.push("metaslab_shift", u64::from(self.metaslab_shift));
        list.push("ashift", self.ashift.map_or(0, |ashift| u64::from(ashift.0)));
        list.push("asize", self.asize);
        push_some(list, "min_alloc", self.min_alloc);
        list.push("is_log", u64::from(self.is_log));
        push_unless_0(list, "non_allocating", self.non_allocating.into());
        push_unless_0(list, "removing", self.removing.into());
    }

    /// Appends the persistent states of a device: offline, faulted, degraded, removed.
    fn push_states(&self, list: &mut NvList) {
        push_unless_0(list, "resilver_txg", self.resilver_txg.0);
        push_unless_0(list, "rebuild_txg", self.rebuild_txg.0);
        push_unless_0(list, "offline", self.offline.into());
        push_unless_0(list, "faulted", self.faulted.into());
        push_unless_0(list, "degraded", self.degraded.into());
        push_unless_0(list, "removed", self.removed.into());
        push_unless_0(list, "unspare", self.unspare.into());
        push_text(list, "aux_state", self.aux_state.as_deref());
        push_some(list, "orig_guid", self.orig_guid.map(|guid| guid.0));
    }
}

/// Where a vdev stands in the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Root,
    Top,
    Below,
    /// In a list of spares or cache devices.
    Aux,
}

fn push_text(list: &mut NvList, key: &str, value: Option<&str>) {
    if let Some(text) = value {
        list.push(key, text);
    }
}

fn push_some(list: &mut NvList, key: &str, value: Option<u64>) {
    if let Some(value) = value {
        list.push(key, value);
    }
}

fn push_unless_0(list: &mut NvList, key: &str, value: u64) {
    push_some(list, key, Some(value).filter(|value| *value != 0));
}

fn push_object(list: &mut NvList, key: &str, object: ObjectId) {
    push_unless_0(list, key, object.0);
}

fn push_flag(list: &mut NvList, key: &str, is_set: bool) {
    if is_set {
        list.push(key, NvValue::Boolean);
    }
}
