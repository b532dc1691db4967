//! Encodes configurations as lists, with the keys in the order in which OpenZFS writes them
//! (docs/on-disk/11-labels-config.md, section 3).
//!
//! # What always holds
//! - A list read from a label or from the MOS is written as the same bytes, if newer software has not added keys.
//! - Unknown keys of the pool's list are kept; those of a vdev are not.

use super::{PoolConfig, PoolState, VdevKind, VdevNode};
use crate::names::config as key;
use crate::{NvList, NvValue, ObjectId, Txg, VdevGuid};

/// Where a configuration is stored, which determines its keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConfigForm {
    /// The label of a leaf: one top-level vdev, without the vdev ZAPs.
    Label,
    /// The MOS or the cache file: the whole tree with the ZAPs of the vdevs.
    Mos,
}

/// Keys of a pool's list that are fields of [`PoolConfig`].
const KNOWN: [&str; 22] = [
    key::VERSION,
    key::NAME,
    key::STATE,
    key::TXG,
    key::POOL_GUID,
    key::ERRATA,
    key::COMMENT,
    key::COMPATIBILITY,
    key::HOSTID,
    key::HOSTNAME,
    key::HAS_PER_VDEV_ZAPS,
    key::TOP_GUID,
    key::GUID,
    key::IS_SPARE,
    key::IS_LOG,
    key::SPLIT_GUID,
    key::HOLE_ARRAY,
    key::VDEV_CHILDREN,
    key::VDEV_TREE,
    key::FEATURES_FOR_READ,
    // Keys of the labels of spares and cache devices.
    key::ASHIFT,
    key::PATH,
];

impl PoolConfig {
    /// The configuration as a list. For the form of a label, the tree must be a top-level vdev, and
    /// [`PoolConfig::guid`] and [`PoolConfig::top_guid`] name the leaf and its top-level vdev.
    pub fn to_nvlist(&self, form: ConfigForm) -> NvList {
        if self.is_aux() {
            return self.aux_label();
        }
        let is_mos = form == ConfigForm::Mos;
        let mut list = NvList::new();
        list.push(key::VERSION, self.version);
        list.push(key::NAME, self.name.as_str());
        list.push(key::STATE, self.state.id());
        list.push(key::TXG, self.txg.0);
        list.push(key::POOL_GUID, self.pool_guid.0);
        list.push(key::ERRATA, self.errata);
        push_text(&mut list, key::COMMENT, self.comment.as_deref());
        push_text(&mut list, key::COMPATIBILITY, self.compatibility.as_deref());
        push_unless_0(&mut list, key::HOSTID, self.hostid);
        push_text(&mut list, key::HOSTNAME, self.hostname.as_deref());
        push_flag(&mut list, key::HAS_PER_VDEV_ZAPS, is_mos && self.has_vdev_zaps);
        if !is_mos {
            push_some(&mut list, key::TOP_GUID, self.top_guid.map(|guid| guid.0));
            push_some(&mut list, key::GUID, self.guid.map(|guid| guid.0));
            push_unless_0(&mut list, key::IS_SPARE, self.is_spare.into());
            push_unless_0(&mut list, key::IS_LOG, self.is_log.into());
        }
        if !self.hole_array.is_empty() {
            let holes: Vec<u64> = self.hole_array.iter().map(|id| id.0.into()).collect();
            list.push(key::HOLE_ARRAY, holes);
        }
        push_some(&mut list, key::VDEV_CHILDREN, self.vdev_children.map(u64::from));
        push_some(&mut list, key::SPLIT_GUID, self.split_guid.map(|guid| guid.0));
        list.push(key::VDEV_TREE, self.vdev_tree.to_nvlist(form));
        let features: NvList =
            self.features_for_read.iter().map(|name| (name.as_str(), NvValue::Boolean)).collect();
        list.push(key::FEATURES_FOR_READ, features);
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

    /// The label of an unused spare or cache device.
    fn aux_label(&self) -> NvList {
        let leaf = &self.vdev_tree;
        let mut list = NvList::new();
        list.push(key::VERSION, self.version);
        list.push(key::STATE, self.state.id());
        list.push(key::GUID, leaf.guid.0);
        if self.state == PoolState::L2cache {
            push_some(&mut list, key::ASHIFT, leaf.ashift.map(|ashift| ashift.0.into()));
        }
        leaf.push_device_names(&mut list);
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
    /// The vdev and its descendants as a list: the root, or a top-level vdev.
    pub(crate) fn to_nvlist(&self, form: ConfigForm) -> NvList {
        let is_root = self.kind == VdevKind::Root;
        self.node(form, if is_root { Position::Root } else { Position::Top })
    }

    /// The vdev as an entry of the MOS lists of spares and cache devices, which have no ids.
    pub fn to_aux_nvlist(&self) -> NvList {
        self.node(ConfigForm::Mos, Position::Aux)
    }

    fn node(&self, form: ConfigForm, position: Position) -> NvList {
        let mut list = NvList::new();
        list.push(key::TYPE, self.kind.name());
        if position != Position::Aux {
            list.push(key::ID, u64::from(self.id));
        }
        list.push(key::GUID, self.guid.0);
        self.push_device_names(&mut list);
        self.push_shape(&mut list);
        match self.kind {
            VdevKind::Disk => list.push(key::WHOLE_DISK, u64::from(self.whole_disk)),
            // Vdevs that the pool creates itself, not a command.
            VdevKind::Spare | VdevKind::Replacing | VdevKind::Indirect | VdevKind::Hole => {
                list.push(key::WHOLE_DISK, 0_u64);
            }
            _ => push_unless_0(&mut list, key::WHOLE_DISK, self.whole_disk.into()),
        }
        push_unless_0(&mut list, key::NOT_PRESENT, self.not_present.into());
        push_unless_0(&mut list, key::IS_SPARE, self.is_spare.into());
        match position {
            Position::Top => self.push_top(&mut list),
            Position::Aux => push_some(&mut list, key::ASHIFT, self.ashift.map(|ashift| ashift.0.into())),
            Position::Root | Position::Below => {}
        }
        push_object(&mut list, key::DTL, self.dtl);
        push_object(&mut list, key::INDIRECT_OBJECT, self.indirect_object);
        push_object(&mut list, key::INDIRECT_BIRTHS, self.indirect_births);
        push_some(&mut list, key::PREV_INDIRECT_VDEV, self.prev_indirect_vdev.map(|id| id.0.into()));
        push_unless_0(&mut list, key::IS_HOLE, self.is_hole.into());
        push_unless_0(&mut list, key::CREATE_TXG, self.create_txg.0);
        if form == ConfigForm::Mos {
            push_object(&mut list, key::VDEV_ZAP_ROOT, self.zap_root);
            push_object(&mut list, key::VDEV_ZAP_LEAF, self.zap_leaf);
            push_object(&mut list, key::VDEV_ZAP_TOP, self.zap_top);
            push_flag(&mut list, key::RESILVER_DEFER, self.resilver_defer);
        }
        self.push_states(&mut list);
        if !self.children.is_empty() {
            let position = if position == Position::Root { Position::Top } else { Position::Below };
            list.push(
                key::CHILDREN,
                self.children.iter().map(|c| c.node(form, position)).collect::<Vec<_>>(),
            );
        }
        list
    }

    /// Appends the paths and ids of a device.
    fn push_device_names(&self, list: &mut NvList) {
        push_text(list, key::PATH, self.path.as_deref());
        push_text(list, key::DEVID, self.devid.as_deref());
        push_text(list, key::PHYS_PATH, self.phys_path.as_deref());
        push_text(list, key::ENC_PATH, self.enc_path.as_deref());
    }

    /// Appends the shape of a raidz or dRAID vdev.
    fn push_shape(&self, list: &mut NvList) {
        if self.kind == VdevKind::DistributedSpare {
            push_some(list, key::TOP_GUID, self.top_guid.map(|guid| guid.0));
            push_some(list, key::SPAREID, self.spareid.map(u64::from));
        }
        push_unless_0(list, key::NPARITY, self.nparity.into());
        push_flag(list, key::RAIDZ_EXPANDING, self.raidz_expanding);
        if !self.expand_txgs.is_empty() {
            list.push(key::RAIDZ_EXPAND_TXGS, self.expand_txgs.iter().map(|txg| txg.0).collect::<Vec<_>>());
        }
        if let Some(shape) = &self.draid {
            list.push(key::DRAID_NDATA, u64::from(shape.ndata));
            list.push(key::DRAID_NSPARES, u64::from(shape.nspares));
            list.push(key::DRAID_NGROUPS, u64::from(shape.ngroups));
        }
    }

    /// Appends the keys of top-level vdevs.
    fn push_top(&self, list: &mut NvList) {
        list.push(key::METASLAB_ARRAY, self.metaslab_array.0);
        list.push(key::METASLAB_SHIFT, u64::from(self.metaslab_shift));
        list.push(key::ASHIFT, self.ashift.map_or(0, |ashift| u64::from(ashift.0)));
        list.push(key::ASIZE, self.asize);
        push_some(list, key::MIN_ALLOC, self.min_alloc);
        list.push(key::IS_LOG, u64::from(self.is_log));
        push_unless_0(list, key::NON_ALLOCATING, self.non_allocating.into());
        push_unless_0(list, key::REMOVING, self.removing.into());
    }

    /// Appends the persistent states of a device: offline, faulted, degraded, removed.
    fn push_states(&self, list: &mut NvList) {
        push_unless_0(list, key::RESILVER_TXG, self.resilver_txg.0);
        push_unless_0(list, key::REBUILD_TXG, self.rebuild_txg.0);
        push_unless_0(list, key::OFFLINE, self.offline.into());
        push_unless_0(list, key::FAULTED, self.faulted.into());
        push_unless_0(list, key::DEGRADED, self.degraded.into());
        push_unless_0(list, key::REMOVED, self.removed.into());
        push_unless_0(list, key::UNSPARE, self.unspare.into());
        push_text(list, key::AUX_STATE, self.aux_state.as_deref());
        push_some(list, key::ORIG_GUID, self.orig_guid.map(|guid| guid.0));
    }
}

/// Position of a vdev in the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Position {
    Root,
    Top,
    Below,
    /// An entry of a list of spares or cache devices.
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
