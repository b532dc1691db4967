//! Cancelling a removal: the vdev stays, and the copies are given back.

use super::{RemoveRefusal, mapping, put};
use crate::error::PoolError;
use crate::live::{LivePool, PoolTask};
use dsl::TaskCtx;
use format::VdevId;
use format::scan::{RemovalPhys, ScanState};
use vdev::sync::lock;
use vdev::tree::IndirectMapping;

impl LivePool {
    /// Cancels the running removal: the vdev is used as before.
    ///
    /// # Errors
    /// [`RemoveRefusal::NotRunning`]; or the error of the txg that failed.
    pub fn cancel_removal(&self) -> Result<(), RemoveRefusal> {
        let _driver = self.jobs.hold();
        match self.removals.running() {
            None => Err(RemoveRefusal::NotRunning),
            Some(_) => Ok(self.end_canceled()?),
        }
    }

    /// Cancels the running removal. The caller holds the jobs.
    pub(super) fn end_canceled(&self) -> Result<(), PoolError> {
        let Some(run) = *lock(&self.removals.run) else { return Ok(()) };
        self.run_on_pool(move |ctx, pool| pool.cancel_removal(ctx, run.vdev, run.phys))?;
        *lock(&self.removals.run) = None;
        self.allocator.set_allocating(run.vdev, true);
        Ok(())
    }
}

impl PoolTask<'_> {
    fn cancel_removal(
        &mut self,
        ctx: &mut TaskCtx<'_>,
        vdev: VdevId,
        phys: RemovalPhys,
    ) -> Result<(), PoolError> {
        let (m, pool) = (ctx.m(), self.pool);
        let node = self.state.config.vdev_tree.children.get(vdev.0 as usize).cloned();
        let node = node.ok_or(PoolError::NoVdev { vdev })?;
        let copies = pool.tree().indirect(vdev).unwrap_or_default();
        let failed = |cause| PoolError::Evacuate { vdev, cause: Box::new(cause) };
        for metaslab in 0..node.metaslabs() {
            // What is not in use has no copies any more.
            for range in pool.allocator.in_use(vdev, metaslab).map_err(failed)?.iter() {
                let len = range.end - range.start;
                for part in copies.parts(format::AllocOffset(range.start), len) {
                    pool.allocator.free(&part.dst, ctx.tx).map_err(failed)?;
                }
            }
        }
        pool.change_tree(self.state, |next| {
            let node = next.config.vdev_tree.children.get_mut(vdev.0 as usize);
            let node = node.ok_or(PoolError::NoVdev { vdev })?;
            (node.removing, node.non_allocating) = (false, false);
            mapping::free(m, node)
        })?;
        pool.tree().set_indirect(vdev, IndirectMapping::default());
        m.features.decr(m, "device_removal")?;
        put(m, &RemovalPhys { state: ScanState::Canceled, end_time: ctx.now(), ..phys })?;
        self.state.mark_all();
        let name = crate::vdev_name::path_of_top(&node);
        ctx.note("vdev remove canceled", None, format!("{} vdev {vdev} {name}", pool.name()));
        Ok(())
    }
}
