//! Adding top-level vdevs to a pool that is open (docs/on-disk/11-labels-config.md, section 4.1).
//!
//! # What always holds
//! - The new devices have labels without a txg before any label of the pool names them: a crash in between
//!   leaves the pool as it was.
//! - Nothing is allocated on a new vdev before it is in the configuration of the same txg.

use crate::create::init_labels;
use crate::error::PoolError;
use crate::layout::TopSpec;
use crate::live::{LivePool, PoolTask};
use crate::refusal::SpecRefusal;
use crate::space::Class;
use crate::space_maps::{SpaceBook, class_of};
use crate::{config, vdev_zaps};
use dsl::TaskCtx;
use format::VdevId;
use format::nvlist::NvList;

impl LivePool {
    /// Adds vdevs behind those that the pool has. What their devices held is lost.
    ///
    /// # Errors
    /// If they make no vdevs, or a feature is missing: nothing was written then. Or if a device fails.
    pub fn add(&self, tops: Vec<TopSpec>) -> Result<(), PoolError> {
        let needs_classes = |top: &TopSpec| matches!(top.class, Class::Special | Class::Dedup);
        if tops.iter().any(needs_classes) && !self.features.is_enabled("allocation_classes") {
            return Err(PoolError::BadSpec { why: SpecRefusal::NeedsAllocationClasses });
        }
        self.run_on_pool(move |ctx, pool| pool.add(ctx, &tops))
    }
}

impl PoolTask<'_> {
    fn add(&mut self, ctx: &mut TaskCtx<'_>, tops: &[TopSpec]) -> Result<(), PoolError> {
        let (m, txg) = (ctx.m(), ctx.txg());
        let (pool, uberblock) = (self.pool, self.state.uberblock);
        let added = pool.change_tree(self.state, |next| {
            let first = next.config.vdev_tree.children.len();
            for top in tops {
                let node = top.node(&pool.env, txg, &mut next.devices)?;
                config::push_top(&mut next.config, node);
            }
            // Nothing is written to the devices unless they make a tree.
            next.now().reconfigured(&next.config.vdev_tree, &next.devices)?;
            init_labels(&next.config, &next.devices, &next.config.vdev_tree.children[first..], &uberblock)?;
            let mut added = Vec::new();
            for (spec, node) in tops.iter().zip(&mut next.config.vdev_tree.children[first..]) {
                let vdev = VdevId(node.id);
                vdev_zaps::create_top(m, node, spec.class)?;
                node.metaslab_array = pool.space.add_top(m, vdev, node)?;
                added.push(SpaceBook::fresh_top(vdev, node, class_of(spec.class)));
            }
            Ok(added)
        })?;
        pool.events().sysevent("config_sync", NvList::new());
        pool.events().sysevent("vdev_add", NvList::new());
        added.into_iter().for_each(|top| pool.allocator.add_top(top));
        self.state.mark_all();
        Ok(())
    }
}
