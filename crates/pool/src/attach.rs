//! Attaching a device to another one, for good or to replace it (docs/on-disk/14-vdevs.md, sections 7 and 8).
//!
//! A new side of a mirror and a replacement begin alike: the new leaf has every txg up to this one in its DTL,
//! takes part in all later writes, and a resilver brings the rest. `release_replaced` then ends a replacement.
//!
//! # What always holds
//! - The label of the new device is written with txg 0 before any other label of the pool names it: a crash in
//!   between leaves the pool unchanged.
//! - The new leaf is never read before it has its data: its DTL is there before the tree that contains the leaf.
//!   The DTL covers the txgs that are open at that time, too, whose first blocks may be written already.
//!
//! Tests: `tests/it/live/replacing.rs`, `crates/crash`.

use crate::aux;
use crate::config::{find_mut, initial_label};
use crate::directory::Directory;
use crate::error::PoolError;
use crate::labels::FIRST_TXG;
use crate::layout::LeafSpec;
use crate::live::{LivePool, PoolTask};
use crate::refusal::ShapeRefusal;
use crate::vdev_shape::{self as shape, Place};
use crate::vdev_zaps;
use dsl::TaskCtx;
use format::config::VdevNode;
use format::label::usable_size;
use format::nvlist::NvList;
use format::{Txg, VdevGuid, names};
use std::ops::Range;
use std::sync::Arc;
use vdev::sync::lock;
use vdev::{Device, label_write};

/// Number of txgs that blocks may be written for at the same time: the one that is synced, and two later ones.
const CONCURRENT_TXGS: u64 = 3;

/// What a new device is attached for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// It becomes one more side of a mirror.
    Mirror,
    /// It replaces the device that it is attached to.
    Replace,
}

/// The new device.
#[derive(Debug, Clone)]
pub enum NewSide {
    /// A device that is not part of the pool. What it held is lost.
    Device(LeafSpec),
    /// A hot spare of the pool.
    Spare(VdevGuid),
}

/// The txgs that a leaf lacks that was attached in `txg`.
pub(crate) fn lacking_since(txg: Txg) -> Range<u64> {
    FIRST_TXG.0..txg.0.saturating_add(CONCURRENT_TXGS)
}

/// A refusal as an error of the pool.
pub(crate) fn refuse(why: ShapeRefusal) -> PoolError {
    PoolError::Shape { why }
}

impl LivePool {
    /// Attaches a device to a leaf. A resilver begins, or follows the active one.
    ///
    /// # Errors
    /// [`PoolError::Shape`] or [`PoolError::BadDevice`] with the reason: nothing has changed then. Otherwise the
    /// error of a device or of the txg that failed.
    pub fn attach(&self, to: VdevGuid, new: NewSide, purpose: Purpose) -> Result<(), PoolError> {
        let leaf = self.run_on_pool(move |ctx, pool| pool.attach(ctx, to, &new, purpose))?;
        let (tree, events) = (self.tree(), self.events());
        if tree.config().find(leaf).is_some_and(|node| node.is_spare) {
            events.vdev_sysevent("vdev_spare", &tree, leaf);
        }
        events.vdev_sysevent("vdev_attach", &tree, leaf);
        self.resilver_new_leaf(leaf)?;
        self.events().sysevent("config_sync", NvList::new());
        Ok(())
    }
}

impl LivePool {
    /// Checks whether a device of this size and with these sectors could be attached to a leaf, without changing
    /// anything.
    ///
    /// # Errors
    /// [`PoolError::Shape`] with the reason.
    pub fn check_attach(&self, to: VdevGuid, device: &dyn Device, purpose: Purpose) -> Result<(), PoolError> {
        let root = self.config().vdev_tree;
        self.check_steady(&root)?;
        let place = shape::place_of(&root, to).ok_or(refuse(ShapeRefusal::NoSuchDevice))?;
        shape::plan(&root, &place, false, purpose).map_err(refuse)?;
        self.check_fits(&root, &place, device)
    }
}

impl PoolTask<'_> {
    fn attach(
        &mut self,
        ctx: &mut TaskCtx<'_>,
        to: VdevGuid,
        new: &NewSide,
        purpose: Purpose,
    ) -> Result<VdevGuid, PoolError> {
        let (m, txg, pool, uberblock) = (ctx.m(), ctx.txg(), self.pool, self.state.uberblock);
        let (guid, text) = pool.change_tree(self.state, |next| {
            let root = &mut next.config.vdev_tree;
            pool.check_steady(root)?;
            let place = shape::place_of(root, to).ok_or(refuse(ShapeRefusal::NoSuchDevice))?;
            let how = shape::plan(root, &place, matches!(new, NewSide::Spare(_)), purpose).map_err(refuse)?;
            let (mut leaf, device) = pool.new_side(m, new)?;
            pool.check_fits(root, &place, &*device)?;
            let old = find_mut(root, to).ok_or(refuse(ShapeRefusal::NoSuchDevice))?;
            let text = note_of(purpose, &leaf, old);
            if old.path == leaf.path {
                // Two leaves of a pool never have the same path.
                old.path = old.path.take().map(|path| format!("{path}/old"));
            }
            (leaf.create_txg, leaf.resilver_txg) = (old.create_txg, txg);
            let (guid, path) = (leaf.guid, leaf.path.clone().unwrap_or_default());
            next.devices.insert(guid, Arc::clone(&device));
            next.missed.push((guid, lacking_since(txg)));
            let create_txg = leaf.create_txg;
            shape::join(root, &place, how, leaf, VdevGuid(pool.env.random()));
            // The devices must form a tree before the first write to one of them.
            next.check()?;
            let list = initial_label(&next.config, guid, create_txg);
            label_write::init(&*device, &list, &uberblock)
                .map_err(|cause| PoolError::Label { path, cause })?;
            if let Some(top) = place.first().and_then(|top| next.config.vdev_tree.children.get_mut(*top)) {
                vdev_zaps::create_missing(m, top)?;
            }
            Ok((guid, text))
        })?;
        ctx.note("vdev attach", None, text);
        self.state.mark_all();
        Ok(guid)
    }
}

/// The line in the history.
fn note_of(purpose: Purpose, new: &VdevNode, old: &VdevNode) -> String {
    let (words, link) = match purpose {
        Purpose::Mirror => ("attach", "to"),
        Purpose::Replace if new.is_spare => ("spare in", "for"),
        Purpose::Replace => ("replace", "for"),
    };
    let path = |node: &VdevNode| node.path.clone().unwrap_or_default();
    format!("{words} vdev={} {link} vdev={}", path(new), path(old))
}

impl LivePool {
    /// The configuration and the device of a new leaf.
    fn new_side(&self, m: dsl::MosTx<'_>, new: &NewSide) -> Result<(VdevNode, Arc<dyn Device>), PoolError> {
        match new {
            NewSide::Device(spec) => Ok((spec.node(&self.env, FIRST_TXG)?, Arc::clone(&spec.device))),
            NewSide::Spare(guid) => {
                let spares = aux::nodes(&Directory::open(&m.view())?, names::directory::SPARES)?;
                let node = spares.into_iter().find(|node| node.guid == *guid);
                let mut node = node.ok_or(refuse(ShapeRefusal::NoSuchDevice))?;
                let busy = || ShapeRefusal::SpareBusy { path: node.path.clone().unwrap_or_default() };
                let is_in_use = self.tree().config().find(*guid).is_some();
                let device = lock(&self.aux).get(guid).cloned().flatten();
                let device = device.filter(|device| !is_in_use && !device.is_read_only());
                let device = device.ok_or_else(|| refuse(busy()))?;
                (node.is_spare, node.ashift) = (true, None);
                Ok((node, device))
            }
        }
    }

    /// Checks that devices may join the tree: there is no checkpoint, and no vdev is being removed.
    pub(crate) fn check_steady(&self, root: &VdevNode) -> Result<(), PoolError> {
        self.check_no_checkpoint()?;
        match root.walk().any(|node| node.removing) {
            true => Err(PoolError::VdevsChanging { name: self.name().to_owned() }),
            false => Ok(()),
        }
    }

    /// Checks that a device can stand at this place.
    fn check_fits(&self, root: &VdevNode, place: &Place, device: &dyn Device) -> Result<(), PoolError> {
        if usable_size(device.size()) < shape::needed_at(root, place) {
            return Err(refuse(ShapeRefusal::TooSmall));
        }
        let ashift = place.first().and_then(|top| root.children.get(*top)).and_then(|top| top.ashift);
        let sector = ashift.map_or(512, format::Ashift::sector);
        let (logical, _) = device.sector_sizes();
        if logical > sector { Err(refuse(ShapeRefusal::Sectors)) } else { Ok(()) }
    }
}
