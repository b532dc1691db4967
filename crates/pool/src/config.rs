//! The pool's configuration as it is stored in the MOS, in the labels and in the cache file
//! (docs/on-disk/11-labels-config.md, section 3).
//!
//! # What always holds
//! - All three nvlists are encoded from one [`PoolConfig`], whose vdev tree starts at the root, so they never
//!   contradict each other.

use crate::error::PoolError;
use dmu::NewObject;
use dsl::MosTx;
use format::config::{ConfigForm, PoolConfig, PoolState, VdevKind, VdevNode};
use format::names;
use format::nvlist::NvList;
use format::{ObjType, PoolGuid, Txg, VdevGuid};

/// Version of pools with feature flags, also written as the version of the software.
pub(crate) const VERSION: u64 = 5000;
/// Bytes of a block of a packed list.
const BLOCK: u64 = 16 << 10;

/// The machine that writes the pool.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Host {
    /// Host id; 0: the machine has none.
    pub id: u64,
    /// Host name; empty: unknown.
    pub name: String,
    /// Description of the system (`uname -nrvm`), for the history. Empty: unknown.
    pub uts: String,
}

impl Host {
    /// The host name as configurations store it.
    pub(crate) fn stored_name(&self) -> Option<String> {
        Some(self.name.clone()).filter(|name| !name.is_empty())
    }
}

/// The configuration of a new pool. Its vdevs are added later.
pub(crate) fn new_pool(name: &str, guid: PoolGuid, create_txg: Txg, host: &Host) -> PoolConfig {
    let mut root = VdevNode::new(VdevKind::Root, VdevGuid(guid.0));
    root.create_txg = create_txg;
    PoolConfig {
        version: VERSION,
        name: name.to_owned(),
        state: PoolState::Active,
        txg: Txg(0),
        pool_guid: guid,
        errata: 0,
        hostid: host.id,
        hostname: host.stored_name(),
        comment: None,
        compatibility: None,
        top_guid: None,
        guid: None,
        vdev_children: Some(0),
        hole_array: Vec::new(),
        features_for_read: Vec::new(),
        vdev_tree: root,
        is_spare: false,
        is_log: false,
        split_guid: None,
        has_vdev_zaps: true,
        raw: NvList::new(),
    }
}

/// Appends a top-level vdev.
pub(crate) fn push_top(config: &mut PoolConfig, mut top: VdevNode) {
    let count = config.vdev_tree.children.len() as u32;
    top.id = count;
    config.vdev_tree.children.push(top);
    config.vdev_children = Some(count + 1);
}

/// The vdev with this guid, mutable.
pub(crate) fn find_mut(node: &mut VdevNode, guid: VdevGuid) -> Option<&mut VdevNode> {
    if node.guid == guid {
        return Some(node);
    }
    node.children.iter_mut().find_map(|child| find_mut(child, guid))
}

/// The first label of a new device of the pool, with txg 0.
pub(crate) fn initial_label(config: &PoolConfig, leaf: VdevGuid, create_txg: Txg) -> NvList {
    let mut list = config.label(leaf, Txg(0)).unwrap_or_default();
    list.push(names::config::CREATE_TXG, create_txg.0);
    list
}

/// Writes the configuration into the MOS.
pub(crate) fn write(m: MosTx<'_>, config: &PoolConfig) -> Result<(), PoolError> {
    write_list(m, names::directory::CONFIG, &config.to_nvlist(ConfigForm::Mos))
}

/// Writes a packed list into the object that `entry` of the object directory names; creates the object if
/// there is none.
pub(crate) fn write_list(m: MosTx<'_>, entry: &str, list: &NvList) -> Result<(), PoolError> {
    let object = match m.entry(entry)? {
        Some(id) => m.object_with_bonus(id, ObjType::PACKED_NVLIST_SIZE, "packed list")?,
        None => {
            let new = NewObject::of(ObjType::PACKED_NVLIST).with_block_size(BLOCK);
            let object = m.allocate(&new.with_bonus(ObjType::PACKED_NVLIST_SIZE, vec![0; 8]))?;
            m.set_entry(entry, object.id().0)?;
            object
        }
    };
    let mut packed = list.encode_xdr();
    let len = packed.len() as u64;
    packed.resize(packed.len().next_multiple_of(object.block_size() as usize), 0);
    object.write_at(0, &packed, m.tx)?;
    object.free_range(packed.len() as u64, u64::MAX, m.tx)?;
    object.set_bonus(&len.to_le_bytes(), m.tx);
    Ok(())
}
