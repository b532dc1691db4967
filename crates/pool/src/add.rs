//! Adding top-level vdevs to an open pool (docs/on-disk/11-labels-config.md, section 4.1).
//!
//! # What always holds
//! - The labels of new devices are written with txg 0 before any other label of the pool names those devices:
//!   a crash in between leaves the pool unchanged.
//! - No space is allocated on a new vdev before the configuration of the same txg contains it.

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
    /// Adds top-level vdevs after the existing ones. Overwrites what their devices held.
    ///
    /// # Errors
    /// [`PoolError::BadSpec`] or [`PoolError::BadDevice`] if the specification makes no vdev, or if the
    /// feature `allocation_classes` is needed and not enabled: the devices are unchanged then. Otherwise the
    /// error of the device or of the txg that failed.
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
            // Check that the devices form a tree before the first write to them.
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
