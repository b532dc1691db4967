//! The end of the removal of a vdev with data: everything is copied, and the vdev becomes its mapping.

use super::put;
use crate::error::PoolError;
use crate::live::{LivePool, PoolTask};
use crate::vdev_zaps;
use dsl::{MosTx, TaskCtx};
use format::config::{VdevKind, VdevNode};
use format::nvlist::NvList;
use format::scan::{RemovalPhys, ScanState};
use format::{ObjectId, VdevGuid, VdevId};
use std::sync::Arc;
use vdev::sync::lock;
use vdev::{Device, VdevTree, label_write};

/// A vdev that has left the pool.
pub(super) struct Left {
    /// The last tree with the vdev.
    tree: Arc<VdevTree>,
    guid: VdevGuid,
    /// Its open devices, each with its leaf.
    devices: Vec<(VdevNode, Arc<dyn Device>)>,
}

impl LivePool {
    /// Ends the running removal. The caller holds the jobs.
    pub(super) fn finish_removal(&self) -> Result<(), PoolError> {
        let Some(run) = *lock(&self.removals.run) else { return Ok(()) };
        let left = self.run_on_pool(move |ctx, pool| pool.finish_removal(ctx, run.vdev, run.phys))?;
        *lock(&self.removals.run) = None;
        self.clear_left(&left);
        Ok(())
    }

    /// Clears the labels of devices that have left the pool, which is on disk without them.
    pub(super) fn clear_left(&self, left: &Left) {
        self.events.sysevent("config_sync", NvList::new());
        for (leaf, device) in &left.devices {
            if let Err(error) = label_write::clear(&**device) {
                // An import ignores labels of a vdev that the pool no longer has.
                tracing::warn!(pool = self.name, path = leaf.path, %error, "labels of a removed device");
            }
        }
        self.events.vdev_sysevent("vdev_remove_dev", &left.tree, left.guid);
    }
}

impl PoolTask<'_> {
    fn finish_removal(
        &mut self,
        ctx: &mut TaskCtx<'_>,
        vdev: VdevId,
        phys: RemovalPhys,
    ) -> Result<Left, PoolError> {
        let (m, pool) = (ctx.m(), self.pool);
        let mapping = pool.tree().indirect(vdev).unwrap_or_default();
        let left = Left::of(&pool.tree(), vdev);
        pool.change_tree(self.state, |next| {
            let node = next.config.vdev_tree.children.get_mut(vdev.0 as usize);
            let node = node.ok_or(PoolError::NoVdev { vdev })?;
            free_leaves(m, node)?;
            pool.space.remove_top(m, vdev)?;
            *node = removed(node, phys.prev_indirect_vdev);
            Ok(())
        })?;
        pool.tree().set_mapping(vdev, mapping);
        pool.allocator.remove_top(vdev);
        let done = RemovalPhys {
            state: ScanState::Finished,
            prev_indirect_vdev: Some(vdev),
            end_time: ctx.now(),
            copied: phys.to_copy,
            ..phys
        };
        put(m, &done)?;
        self.state.mark_all();
        ctx.note("vdev remove completed", None, format!("{} vdev {vdev}", pool.name()));
        Ok(left)
    }
}

/// The configuration of a removed vdev.
fn removed(node: &VdevNode, prev: Option<VdevId>) -> VdevNode {
    let mut left = VdevNode::new(VdevKind::Indirect, node.guid);
    left.id = node.id;
    left.create_txg = node.create_txg;
    left.metaslab_shift = node.metaslab_shift;
    left.ashift = node.ashift;
    left.asize = node.asize;
    left.non_allocating = true;
    left.zap_top = node.zap_top;
    left.indirect_object = node.indirect_object;
    left.indirect_births = node.indirect_births;
    left.prev_indirect_vdev = prev;
    left
}

impl Left {
    /// The vdev, while it is still in the tree.
    pub(super) fn of(tree: &Arc<VdevTree>, vdev: VdevId) -> Left {
        let top = tree.top(vdev);
        let leaves: Vec<VdevNode> = top.map(|top| top.leaves().cloned().collect()).unwrap_or_default();
        let device = |leaf: VdevNode| tree.device(leaf.guid).map(|device| (leaf, device));
        Left {
            guid: top.map_or(VdevGuid(0), |top| top.guid),
            devices: leaves.into_iter().filter_map(device).collect(),
            tree: Arc::clone(tree),
        }
    }
}

/// Frees what the MOS has about the leaves of a vdev: their ZAPs and DTLs.
pub(super) fn free_leaves(m: MosTx<'_>, node: &VdevNode) -> Result<(), PoolError> {
    let mut todo = vec![node];
    while let Some(node) = todo.pop() {
        if node.zap_leaf != ObjectId(0) {
            vdev_zaps::free(m, node.zap_leaf)?;
        }
        if node.dtl != ObjectId(0) {
            crate::space_maps::object::MapWriter::free(m, node.dtl)?;
        }
        todo.extend(&node.children);
    }
    Ok(())
}

/// Turns the slot of a vdev without data into a hole.
pub(super) fn make_hole(next: &mut format::config::PoolConfig, vdev: VdevId) {
    if let Some(node) = next.vdev_tree.children.get_mut(vdev.0 as usize) {
        *node = VdevNode::new(VdevKind::Hole, VdevGuid(0));
        node.id = vdev.0;
    }
    next.hole_array.push(vdev);
    next.hole_array.sort_unstable();
}
