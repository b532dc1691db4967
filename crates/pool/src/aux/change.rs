//! Adding and removing hot spares and cache devices (docs/on-disk/11-labels-config.md, sections 3.2 and 4.1;
//! docs/on-disk/14-vdevs.md, section 8).
//!
//! # What always holds
//! - Spares and cache devices are not part of the tree: the pool is complete without them, and has no data on
//!   them.
//! - A device has its label before a list names it.
//! - Present devices are open exclusively for as long as the pool is, so that no other program uses them. A
//!   spare may be shared by pools: the pool that opened first holds it.

use crate::aux;
use crate::config;
use crate::directory::Directory;
use crate::error::PoolError;
use crate::layout::LeafSpec;
use crate::live::{HeldAux, LivePool, PoolTask};
use crate::refusal::{DeviceRefusal, SpecRefusal};
use crate::view::Pool;
use dsl::MosTx;
use format::VdevGuid;
use format::config::{ConfigForm, PoolConfig, PoolState, VdevNode};
use format::names;
use format::nvlist::{NvList, NvValue};
use std::sync::Arc;
use vdev::device::file::Access;
use vdev::scan::{Found, Leaf};
use vdev::sync::lock;
use vdev::{Devices, label, label_write};

/// Purpose of a device that holds no data of the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuxKind {
    /// Replaces a device that fails.
    Spare,
    /// Caches blocks that are read.
    Cache,
}

impl AuxKind {
    /// Entry of the object directory, and key of the list in it.
    fn entry(self) -> &'static str {
        match self {
            AuxKind::Spare => names::directory::SPARES,
            AuxKind::Cache => names::directory::L2CACHE,
        }
    }

    /// The word of the history.
    fn word(self) -> &'static str {
        match self {
            AuxKind::Spare => "spare",
            AuxKind::Cache => "l2cache",
        }
    }

    fn state(self) -> PoolState {
        match self {
            AuxKind::Spare => PoolState::Spare,
            AuxKind::Cache => PoolState::L2cache,
        }
    }
}

/// Opens the spares and cache devices of a pool exclusively: those that were found, and others at their
/// recorded paths.
pub(crate) fn hold_all(
    pool: &Pool,
    found: &Found,
    access: Access,
    source: &Devices,
) -> Result<HeldAux, PoolError> {
    let mut held = HeldAux::new();
    for node in aux::all_nodes(pool.directory())? {
        let is_left = |leaf: &Leaf| is_left_over(leaf, node.guid, pool);
        let is_it = |leaf: &Leaf| aux::is_device_of(leaf, node.guid) || is_left(leaf);
        let recorded;
        let found = if found.leaves.iter().any(is_it) {
            found
        } else {
            recorded = aux::at_recorded_path(&node, source);
            &recorded
        };
        let Some(leaf) = found.leaves.iter().find(|leaf| is_it(leaf)) else { continue };
        let device = match leaf.device.is_read_only() {
            true => found.open_exclusive(is_it, access, source).devices.remove(&node.guid),
            false => Some(Arc::clone(&leaf.device)),
        };
        if device.is_none() {
            tracing::warn!(path = %leaf.path.display(), "a spare or cache device is in use by somebody else");
        }
        held.insert(node.guid, device);
    }
    Ok(held)
}

/// Whether a device is a spare that has left the tree, but the power failed before it got the label of a spare.
fn is_left_over(leaf: &Leaf, spare: VdevGuid, pool: &Pool) -> bool {
    let names_it = |config: &PoolConfig| {
        !config.is_aux() && config.pool_guid == pool.guid() && config.guid == Some(spare)
    };
    pool.config().vdev_tree.find(spare).is_none() && leaf.probe.newest_config().is_some_and(names_it)
}

impl LivePool {
    /// Gives spares the labels of spares that lack them, because the power failed when they went back.
    ///
    /// # Errors
    /// [`PoolError`] if the list cannot be read.
    pub(crate) fn relabel_spares(&self) -> Result<(), PoolError> {
        let config = self.config();
        for spare in self.view()?.spares()? {
            let device = lock(&self.aux).get(&spare.node.guid).cloned().flatten();
            let device = device.filter(|device| !device.is_read_only());
            let Some(device) = device.filter(|_| config.vdev_tree.find(spare.node.guid).is_none()) else {
                continue;
            };
            if label::probe(&*device).newest_config().is_some_and(PoolConfig::is_aux) {
                continue;
            }
            let list = aux_label(AuxKind::Spare, &config, &spare.node);
            if let Err(error) = label_write::init(&*device, &list, &self.uberblock()) {
                tracing::warn!(pool = self.name(), spare = spare.node.path, %error, "the labels of a spare");
            }
        }
        Ok(())
    }

    /// Adds spares or cache devices. Their contents are lost, except for spares that are open for reading
    /// only, which other pools share.
    ///
    /// # Errors
    /// [`PoolError::BadDevice`] if one of them is too small, cannot be written or belongs to this pool
    /// already; or the error of a device.
    pub fn add_aux(&self, kind: AuxKind, leaves: Vec<LeafSpec>) -> Result<(), PoolError> {
        if leaves.is_empty() {
            return Ok(());
        }
        self.run_on_pool(move |ctx, pool| {
            let m = ctx.m();
            let mut list = entries(m, kind)?;
            let mut nodes: Vec<VdevNode> = Vec::new();
            for leaf in &leaves {
                let mut node = leaf.aux_node(&pool.pool.env)?;
                node.is_spare = kind == AuxKind::Spare;
                let mut known = list
                    .iter()
                    .filter_map(|entry| entry.u64(names::config::GUID))
                    .chain(nodes.iter().map(|n| n.guid.0));
                if known.any(|guid| guid == node.guid.0) {
                    return Err(PoolError::BadDevice {
                        path: leaf.path.clone(),
                        why: DeviceRefusal::OwnSpare,
                    });
                }
                nodes.push(node);
            }
            for (leaf, node) in leaves.iter().zip(&nodes).filter(|(leaf, _)| !leaf.device.is_read_only()) {
                pool.init_aux(kind, leaf, node)?;
            }
            list.extend(nodes.iter().map(VdevNode::to_aux_nvlist));
            write(m, kind, list)?;
            let mut known = lock(&pool.pool.aux);
            let own = |leaf: &LeafSpec| (!leaf.device.is_read_only()).then(|| Arc::clone(&leaf.device));
            let devices = leaves.iter().map(own);
            known.extend(nodes.iter().map(|node| node.guid).zip(devices));
            drop(known);
            for node in &nodes {
                let path = node.path.as_deref().unwrap_or_default();
                ctx.note("vdev add", None, format!("{} {path}", kind.entry()));
            }
            Ok(())
        })
    }

    /// Removes an unused spare, or a cache device, from its list. Returns false if there is no such device.
    ///
    /// # Errors
    /// [`PoolError`] if the lists cannot be read or written.
    pub fn remove_aux(&self, guid: VdevGuid) -> Result<bool, PoolError> {
        let in_use = self.config().vdev_tree.find(guid).is_some();
        if in_use {
            return Err(PoolError::BadSpec { why: SpecRefusal::SpareInUse });
        }
        self.run_on_pool(move |ctx, pool| {
            let mut is_removed = false;
            for kind in [AuxKind::Spare, AuxKind::Cache] {
                let mut list = entries(ctx.m(), kind)?;
                let before = list.len();
                let is_it = |entry: &&NvList| entry.u64(names::config::GUID) == Some(guid.0);
                let found = list.iter().find(is_it).and_then(|entry| entry.str(names::config::PATH));
                let path = found.unwrap_or_default().to_owned();
                list.retain(|entry| entry.u64(names::config::GUID) != Some(guid.0));
                if list.len() != before {
                    write(ctx.m(), kind, list)?;
                    lock(&pool.pool.aux).remove(&guid);
                    let text = format!("{} vdev ({}) {path}", pool.pool.name(), kind.word());
                    ctx.note("vdev remove", None, text);
                    pool.pool.events().sysevent("vdev_remove_aux", event(guid, &path));
                    is_removed = true;
                }
            }
            Ok(is_removed)
        })
    }
}

impl PoolTask<'_> {
    /// Writes the labels of a spare or cache device.
    fn init_aux(&self, kind: AuxKind, leaf: &LeafSpec, node: &VdevNode) -> Result<(), PoolError> {
        let list = aux_label(kind, &self.state.config, node);
        let written = label_write::init(&*leaf.device, &list, &self.state.uberblock);
        written.map_err(|cause| PoolError::Label { path: leaf.path.clone(), cause })
    }
}

impl LivePool {
    /// Takes a spare from the list of spares, because it has become a device of the pool for good.
    pub(crate) fn forget_spare(&self, m: MosTx<'_>, guid: VdevGuid) -> Result<(), PoolError> {
        let mut list = entries(m, AuxKind::Spare)?;
        list.retain(|entry| entry.u64(names::config::GUID) != Some(guid.0));
        write(m, AuxKind::Spare, list)
    }
}

/// The label of a spare or cache device of a pool with this configuration.
pub(crate) fn aux_label(kind: AuxKind, config: &PoolConfig, node: &VdevNode) -> NvList {
    let (state, vdev_tree, raw) = (kind.state(), node.clone(), NvList::new());
    PoolConfig { state, vdev_tree, raw, ..config.clone() }.to_nvlist(ConfigForm::Label)
}

/// What an event says about a device that has left its list.
fn event(guid: VdevGuid, path: &str) -> NvList {
    let mut extra = NvList::new();
    extra.push("vdev_guid", guid.0);
    extra.push("vdev_path", path);
    extra
}

/// The list in stored form.
fn entries(m: MosTx<'_>, kind: AuxKind) -> Result<Vec<NvList>, PoolError> {
    let stored = Directory::open(&m.view())?.packed_list(kind.entry())?;
    Ok(stored.and_then(|list| list.lists(kind.entry()).map(<[NvList]>::to_vec)).unwrap_or_default())
}

/// Writes the list into the MOS.
fn write(m: MosTx<'_>, kind: AuxKind, entries: Vec<NvList>) -> Result<(), PoolError> {
    let mut list = NvList::new();
    if !entries.is_empty() || m.entry(kind.entry())?.is_some() {
        list.push(kind.entry(), NvValue::ListArray(entries));
        config::write_list(m, kind.entry(), &list)?;
    }
    Ok(())
}
