//! The begin of the removal of a vdev with data.

use super::{RemoveRefusal, Run, mapping, put, recorded};
use crate::directory;
use crate::error::PoolError;
use crate::live::{LivePool, PoolTask};
use crate::vdev_name::path_of_top;
use dsl::{MosTx, TaskCtx};
use format::config::VdevNode;
use format::names;
use format::nvlist::NvList;
use format::scan::{RemovalPhys, ScanState};
use format::{ObjectId, VdevId};
use vdev::sync::lock;
use vdev::tree::IndirectMapping;

/// Txgs after which no transaction is left that has allocated blocks on a vdev before it was closed to them.
const SETTLING_TXGS: usize = 2;

impl LivePool {
    /// Begins to remove a vdev with data. The caller holds the jobs.
    pub(super) fn start_removal(&self, top: &VdevNode) -> Result<(), RemoveRefusal> {
        self.check_removable(top)?;
        self.release()?;
        let vdev = VdevId(top.id);
        self.allocator.set_allocating(vdev, false);
        let started = self.start_on_idle(top);
        if started.is_err() {
            self.allocator.set_allocating(vdev, !top.non_allocating);
        }
        started
    }

    /// The rest of the begin, once nothing is allocated on the vdev any more.
    fn start_on_idle(&self, top: &VdevNode) -> Result<(), RemoveRefusal> {
        self.leave_logs();
        for _ in 0..SETTLING_TXGS {
            self.sync()?;
        }
        self.check_removable(top)?;
        let (guid, vdev, name) = (top.guid, VdevId(top.id), path_of_top(top));
        let phys = self.run_on_pool(move |ctx, pool| pool.start_removal(ctx, vdev, &name))?;
        tracing::info!(pool = self.name, %guid, to_copy = phys.to_copy, "a vdev is being removed");
        *lock(&self.removals.run) = Some(Run { vdev, phys });
        Ok(())
    }

    /// Makes the intent logs of all heads begin new chains.
    pub(super) fn leave_logs(&self) {
        self.heads.restart_logs();
    }
}

impl PoolTask<'_> {
    fn start_removal(
        &mut self,
        ctx: &mut TaskCtx<'_>,
        vdev: VdevId,
        name: &str,
    ) -> Result<RemovalPhys, PoolError> {
        let (m, pool) = (ctx.m(), self.pool);
        let before = recorded(m)?;
        let to_copy = pool.allocator.vdev_totals(vdev).allocated;
        let phys = RemovalPhys {
            state: ScanState::Scanning,
            vdev: Some(vdev),
            prev_indirect_vdev: before.and_then(|phys| phys.prev_indirect_vdev),
            start_time: ctx.now(),
            end_time: 0,
            to_copy,
            copied: 0,
        };
        pool.change_tree(self.state, |next| {
            let node = next.config.vdev_tree.children.get_mut(vdev.0 as usize);
            let node = node.ok_or(PoolError::NoVdev { vdev })?;
            (node.removing, node.non_allocating) = (true, true);
            mapping::create(m, node)
        })?;
        pool.tree().set_indirect(vdev, IndirectMapping::default());
        m.features.incr(m, "device_removal")?;
        put(m, &phys)?;
        rewrite(m, directory::OBJECT)?;
        if let Some(config) = m.entry(names::directory::CONFIG)? {
            rewrite(m, config)?;
        }
        for node in &self.state.config.vdev_tree.children {
            for object in [node.indirect_object, node.indirect_births] {
                if object != ObjectId(0) {
                    rewrite(m, object)?;
                }
            }
        }
        self.state.mark_all();
        ctx.note("vdev remove started", None, format!("{} vdev {vdev} {name}", pool.name()));
        pool.events().sysevent("config_sync", NvList::new());
        Ok(phys)
    }
}

/// Writes all blocks of an object again, so that they move to vdevs that stay.
fn rewrite(m: MosTx<'_>, id: ObjectId) -> Result<(), PoolError> {
    let object = m.object(id)?;
    let size = object.block_size();
    let mut at = 0;
    let end = (object.max_block().0 + 1).saturating_mul(size);
    let mut buf = vec![0; usize::try_from(size).unwrap_or(0)];
    while at < end {
        object.read_at(at, &mut buf)?;
        if buf.iter().any(|byte| *byte != 0) {
            object.write_at(at, &buf, m.tx)?;
        }
        at += size;
    }
    Ok(())
}
