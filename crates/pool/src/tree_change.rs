//! The one place where the vdev tree of an open pool changes.
//!
//! A change concerns the configuration or the devices. The *configuration* (vdevs added, grown, taken out of
//! service) changes in syncing context only, from the current one to the next: [`LivePool::change_tree`]. The
//! *devices* through which leaves are reached change at any time, because a suspended pool waits for exactly
//! that, and leave the configuration unchanged: [`LivePool::swap_devices`].
//!
//! # What always holds
//! - One change runs at a time, under one lock. Each starts from the tree that the previous change installed:
//!   if a device is opened again during `zpool add`, the resulting tree has both the new device and the added
//!   vdev.
//! - A change of the configuration is atomic: the tree and the configuration of the next label are replaced
//!   together, after the last step that can fail.
//! - A closure that runs with the lock held decides by the tree that it is given, and waits for devices only.
//!
//! Tests: `tests/it/live/tree_changes.rs`.

use crate::error::PoolError;
use crate::layout::NewDevices;
use crate::live::{LivePool, State};
use crate::{config, diagnosis};
use format::VdevGuid;
use format::config::{PoolConfig, VdevNode};
use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use vdev::VdevTree;
use vdev::sync::lock;

/// The next configuration of a pool and its new devices, under construction by a change.
pub(crate) struct NextTree<'a> {
    now: &'a VdevTree,
    /// The present configuration, which the change turns into the next one.
    pub(crate) config: PoolConfig,
    /// Devices of leaves that the change adds.
    pub(crate) devices: NewDevices,
    /// Sizes of devices have changed: the tree is rebuilt even if the configuration stays the same.
    pub(crate) is_resized: bool,
    /// Txgs that new leaves lack. They are in the DTLs before anyone can read from the leaves.
    pub(crate) missed: Vec<(VdevGuid, Range<u64>)>,
    /// The former guids of leaves whose guids the change replaces, by the new ones.
    pub(crate) former: HashMap<VdevGuid, VdevGuid>,
}

impl NextTree<'_> {
    /// The tree in use, which no other change replaces before this one has ended.
    pub(crate) fn now(&self) -> &VdevTree {
        self.now
    }

    /// Checks that the next configuration and its devices form a tree: before the first write to a new device.
    ///
    /// # Errors
    /// [`PoolError::Vdev`] if they do not.
    pub(crate) fn check(&self) -> Result<(), PoolError> {
        self.now.reconfigured_as(&self.config.vdev_tree, &self.devices, &self.former)?;
        Ok(())
    }
}

/// How the devices of leaves change.
pub(crate) enum DeviceSwap {
    /// All leaves keep their devices.
    None,
    /// These leaves get other handles.
    Opened(NewDevices),
    /// These leaves have no device any more.
    Closed(Vec<VdevGuid>),
}

impl LivePool {
    /// Changes the configuration and the vdev tree together. Only a thread in syncing context has `state`.
    /// Labels are written if the caller marks them ([`State::mark_all`]).
    ///
    /// # Errors
    /// The error of the closure, or [`PoolError::Vdev`] if the next configuration describes no tree. The pool
    /// is unchanged then.
    pub(crate) fn change_tree<T>(
        &self,
        state: &mut State,
        change: impl FnOnce(&mut NextTree<'_>) -> Result<T, PoolError>,
    ) -> Result<T, PoolError> {
        let _changing = lock(&self.tree_change);
        let now = self.tree();
        let (config, devices) = (state.config.clone(), NewDevices::new());
        let (missed, former) = (Vec::new(), HashMap::new());
        let mut next = NextTree { now: &now, config, devices, is_resized: false, missed, former };
        let outcome = change(&mut next)?;
        let NextTree { config, devices, is_resized, missed, former, .. } = next;
        self.out_of_service.rename(&former);
        let wanted = self.with_out_of_service(&config.vdev_tree);
        if is_resized || !devices.is_empty() || *now.config() != *wanted {
            let next = now.reconfigured_as(&wanted, &devices, &former)?;
            missed.into_iter().for_each(|(leaf, txgs)| next.note_missed(leaf, txgs));
            self.install_tree(&now, next);
        }
        state.config = config;
        Ok(outcome)
    }

    /// Rebuilds the tree if the configuration has changed. Called at the end of every txg.
    ///
    /// # Errors
    /// [`PoolError::Vdev`] if the configuration describes no tree.
    pub(crate) fn renew_tree(&self, state: &mut State) -> Result<(), PoolError> {
        let is_current = *self.tree().config() == *self.with_out_of_service(&state.config.vdev_tree);
        if is_current { Ok(()) } else { self.change_tree(state, |_| Ok(())) }
    }

    /// Changes the devices of leaves, at any time. The closure gets the tree in use.
    ///
    /// # Errors
    /// [`PoolError::Vdev`] if the devices form no tree.
    pub(crate) fn swap_devices(&self, swap: impl FnOnce(&VdevTree) -> DeviceSwap) -> Result<(), PoolError> {
        let _changing = lock(&self.tree_change);
        let now = self.tree();
        let next = match swap(&now) {
            DeviceSwap::None => return Ok(()),
            DeviceSwap::Opened(devices) => now.reconfigured(now.config(), &devices)?,
            DeviceSwap::Closed(leaves) => now.without_devices(&leaves)?,
        };
        self.install_tree(&now, next);
        Ok(())
    }

    /// Takes a leaf out of service, in the configuration according to `mark`, if the other leaves can supply
    /// every block; otherwise returns false. A later request, also in the same txg, sees the leaf out of
    /// service.
    ///
    /// # Errors
    /// Those of [`LivePool::change_tree`].
    pub(crate) fn retire(
        &self,
        state: &mut State,
        leaf: VdevGuid,
        mark: impl FnOnce(&mut VdevNode),
    ) -> Result<bool, PoolError> {
        self.change_tree(state, |next| {
            let is_spare = diagnosis::can_do_without(next.now(), &[leaf]);
            if is_spare {
                mark(&mut next.config.vdev_tree);
            }
            Ok(is_spare)
        })
    }

    /// The configuration with the leaves marked that are out of service until the pool is closed, which no
    /// label records.
    fn with_out_of_service<'c>(&self, root: &'c VdevNode) -> Cow<'c, VdevNode> {
        let mut root = Cow::Borrowed(root);
        for (leaf, how) in self.out_of_service.leaves() {
            if let Some(node) = config::find_mut(root.to_mut(), leaf) {
                how.mark(node);
            }
        }
        root
    }

    /// Installs the next tree for all later reads and writes. The caller holds `tree_change`.
    fn install_tree(&self, old: &VdevTree, next: Arc<VdevTree>) {
        self.events.tree_changed(old, &next);
        self.zio.set_tree(Arc::clone(&next));
        self.allocator.set_tree(next);
    }
}
