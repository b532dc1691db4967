//! Removal of a log vdev: the intent logs leave it, then its slot becomes a hole.

use super::RemoveRefusal;
use super::finish::{Left, free_leaves, make_hole};
use crate::error::PoolError;
use crate::live::{LivePool, PoolTask};
use crate::vdev_name::path_of_top;
use crate::vdev_zaps;
use dsl::TaskCtx;
use format::config::VdevNode;
use format::{ObjectId, VdevId};

/// Txgs in which the logs free their blocks, at most: chains begin anew, and end when their records are in txgs.
const LEAVING_TXGS: usize = 6;

impl LivePool {
    /// Removes a log vdev. The caller holds the jobs.
    pub(super) fn remove_log(&self, top: &VdevNode) -> Result<(), RemoveRefusal> {
        self.release()?;
        let vdev = VdevId(top.id);
        self.allocator.set_allocating(vdev, false);
        let removed = self.remove_left_log(top);
        match removed {
            Ok(left) => {
                self.clear_left(&left);
                Ok(())
            }
            Err(refusal) => {
                self.allocator.set_allocating(vdev, !top.non_allocating);
                Err(refusal)
            }
        }
    }

    fn remove_left_log(&self, top: &VdevNode) -> Result<Left, RemoveRefusal> {
        let vdev = VdevId(top.id);
        self.leave_logs();
        for _ in 0..LEAVING_TXGS {
            self.sync()?;
            if self.allocator.vdev_totals(vdev).allocated == 0 {
                break;
            }
        }
        let name = path_of_top(top);
        let left = self.run_on_pool(move |ctx, pool| pool.remove_log(ctx, vdev, &name))?;
        left.ok_or(RemoveRefusal::Busy)
    }
}

impl PoolTask<'_> {
    /// Makes the slot of an empty log vdev a hole. `None`: it is not empty, because a log on it was not replayed.
    fn remove_log(
        &mut self,
        ctx: &mut TaskCtx<'_>,
        vdev: VdevId,
        name: &str,
    ) -> Result<Option<Left>, PoolError> {
        let (m, pool) = (ctx.m(), self.pool);
        if pool.allocator.vdev_totals(vdev).allocated != 0 {
            return Ok(None);
        }
        let left = Left::of(&pool.tree(), vdev);
        pool.change_tree(self.state, |next| {
            let node = next.config.vdev_tree.children.get(vdev.0 as usize);
            let node = node.ok_or(PoolError::NoVdev { vdev })?;
            free_leaves(m, node)?;
            pool.space.remove_top(m, vdev)?;
            if node.zap_top != ObjectId(0) {
                vdev_zaps::free(m, node.zap_top)?;
            }
            make_hole(&mut next.config, vdev);
            Ok(())
        })?;
        pool.allocator.remove_top(vdev);
        self.state.mark_all();
        ctx.note("vdev remove", None, format!("{} vdev (log) {name}", pool.name()));
        Ok(Some(left))
    }
}
