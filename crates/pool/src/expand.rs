//! Growth of top-level vdevs with their devices: `zpool online -e`, and automatic with `autoexpand=on`
//! (docs/on-disk/14-vdevs.md).
//!
//! # What always holds
//! - The size of a device is read again only in syncing context, and all its labels are written in the same
//!   txg, because labels 2 and 3 move with the end of the device.
//! - Labels 0 and 1 stay in place, so a crash leaves the pool unchanged, smaller than its devices.
//! - No space is allocated in a new metaslab before the configuration of the same txg covers it.

use crate::error::PoolError;
use crate::live::{LivePool, PoolTask};
use crate::space_maps::{SpaceBook, class_of};
use crate::tree_change::NextTree;
use dsl::TaskCtx;
use format::config::VdevNode;
use format::{Ashift, VdevGuid, VdevId};
use std::sync::atomic::Ordering::{Acquire, Release};
use vdev::VdevTree;
use vdev::label::probe;
use vdev::label_write::follow_growth;
use vdev::tree::{VdevState, VdevStatus};

/// The label at the very end of a device.
const LAST_LABEL: usize = 3;

/// The top-level vdevs that grow to the size of their devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grow {
    /// None; only the possible sizes are updated (`expandsize`).
    Nothing,
    /// The one that contains this leaf.
    With(VdevGuid),
    /// All top-level vdevs of the pool.
    Everything,
}

impl LivePool {
    /// Reads the sizes of devices again, and lets top-level vdevs grow. Returns the bytes by which the pool
    /// has grown. Space for less than one metaslab stays unused.
    ///
    /// # Errors
    /// [`PoolError`] if a label or a txg cannot be written.
    pub fn grow(&self, which: Grow) -> Result<u64, PoolError> {
        let which = if self.grows_by_itself() { Grow::Everything } else { which };
        let has_room = || match which {
            Grow::Nothing => false,
            Grow::With(_) | Grow::Everything => !growing_tops(&self.tree(), which).is_empty(),
        };
        if !self.has_larger_devices() && !has_room() {
            return Ok(0);
        }
        self.run_on_pool(move |ctx, pool| pool.grow(ctx, which))
    }

    /// Property `autoexpand`: whether vdevs grow with their devices automatically.
    pub(crate) fn grows_by_itself(&self) -> bool {
        self.autoexpand.load(Acquire)
    }

    pub(crate) fn set_grows_by_itself(&self, is_on: bool) {
        self.autoexpand.store(is_on, Release);
    }

    /// Whether a device has grown since its size was last read.
    fn has_larger_devices(&self) -> bool {
        let tree = self.tree();
        let has_grown = |leaf| tree.device(leaf).is_some_and(|device| device.size_now() > device.size());
        tree.leaf_guids().into_iter().any(has_grown)
    }
}

/// The top-level vdevs that would get more metaslabs, with the bytes that they would have then.
fn growing_tops(tree: &VdevTree, which: Grow) -> Vec<(VdevId, u64)> {
    let status = tree.status();
    let is_wanted = |node: &VdevNode| match which {
        Grow::Nothing => false,
        Grow::With(leaf) => node.leaves().any(|node| node.guid == leaf),
        Grow::Everything => true,
    };
    // A missing device may be smaller than the others.
    let is_whole = |top: &&VdevStatus| top.state == VdevState::Online;
    let offered = |vdev: VdevId| {
        let top = status.children.iter().find(|top| top.id == vdev.0);
        top.filter(is_whole).map_or(0, |top| top.offered)
    };
    tree.tops()
        .filter(|(_, node)| is_wanted(node))
        .map(|(vdev, node)| (vdev, node, offered(vdev)))
        .filter(|(_, node, offered)| offered.checked_shr(node.metaslab_shift) > Some(node.metaslabs()))
        .map(|(vdev, _, offered)| (vdev, offered))
        .collect()
}

impl PoolTask<'_> {
    fn grow(&mut self, ctx: &mut TaskCtx<'_>, which: Grow) -> Result<u64, PoolError> {
        let pool = self.pool;
        // The offered size is known once the tree has the new sizes of its devices.
        let has_grown = pool.change_tree(self.state, |next| {
            next.is_resized = renew_sizes(pool.name(), next, &growing_tops(next.now(), which));
            Ok(next.is_resized)
        })?;
        if has_grown {
            self.state.mark_all();
        }
        let before = space(&self.state.config.vdev_tree);
        let added = pool.change_tree(self.state, |next| {
            let mut added = Vec::new();
            for (vdev, offered) in growing_tops(next.now(), which) {
                let Some(node) = next.config.vdev_tree.children.get_mut(vdev.0 as usize) else { continue };
                let class = crate::space::class_of(&pool.mos().view(), node)?;
                node.asize = offered;
                pool.space.grow_top(ctx.m(), vdev, node)?;
                added.push(SpaceBook::fresh_top(vdev, node, class_of(class)));
            }
            Ok(added)
        })?;
        if added.is_empty() {
            return Ok(0);
        }
        added.into_iter().for_each(|top| pool.allocator.add_top(top));
        let now = space(&self.state.config.vdev_tree);
        let grown = now.saturating_sub(before);
        ctx.note("vdev online", None, format!("pool '{}' size: {now}(+{grown})", pool.name()));
        self.state.mark_all();
        Ok(grown)
    }
}

/// Reads the sizes of devices again. Returns whether one has grown, so that its labels must be written.
/// Devices of the vdevs in `growing` may have grown before they were opened, and then have no label at their
/// end.
fn renew_sizes(pool: &str, next: &NextTree<'_>, growing: &[(VdevId, u64)]) -> bool {
    let mut has_grown = false;
    for top in &next.config.vdev_tree.children {
        let is_growing = growing.iter().any(|(vdev, _)| vdev.0 == top.id);
        for leaf in top.leaves() {
            let Some(device) = next.now().device(leaf.guid) else { continue };
            let is_new = device.size_now() > device.size();
            let lacks_label = || probe(&*device).config_of_label(LAST_LABEL).is_none();
            if !is_new && (!is_growing || !lacks_label()) {
                continue;
            }
            device.renew_size();
            has_grown = true;
            if let Err(error) = follow_growth(&*device, top.ashift.unwrap_or(Ashift(9))) {
                // The first two labels are still valid.
                tracing::warn!(pool, %error, "labels at the new end of a device");
            }
        }
    }
    has_grown
}

/// Bytes of all metaslabs outside of log vdevs.
fn space(root: &VdevNode) -> u64 {
    let of = |top: &VdevNode| top.metaslabs().checked_shl(top.metaslab_shift).unwrap_or(0);
    root.children.iter().filter(|top| !top.is_log).map(of).fold(0, u64::saturating_add)
}
