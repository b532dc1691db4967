//! Adding top-level vdevs to a pool that is open (docs/on-disk/11-labels-config.md, section 4.1).
//!
//! # What always holds
//! - The new devices have labels without a txg before any label of the pool names them: a crash in between
//!   leaves the pool as it was.
//! - Nothing is allocated on a new vdev before it is in the configuration of the same txg.

use crate::PoolError;
use crate::create::init_labels;
use crate::layout::{NewDevices, TopSpec};
use crate::live::{LivePool, PoolTask};
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
            let why = "special and dedup vdevs need feature 'allocation_classes'".to_owned();
            return Err(PoolError::BadSpec { why });
        }
        self.run_on_pool(move |ctx, pool| pool.add(ctx, &tops))
    }
}

impl PoolTask<'_> {
    fn add(&mut self, ctx: &mut TaskCtx<'_>, tops: &[TopSpec]) -> Result<(), PoolError> {
        let (m, txg) = (ctx.m(), ctx.txg());
        let mut devices = NewDevices::new();
        let mut changed = self.state.config.clone();
        let mut added: Vec<VdevId> = Vec::new();
        for top in tops {
            let node = top.node(&self.pool.env, txg, &mut devices)?;
            added.push(config::push_top(&mut changed, node));
        }
        // Fails if it makes no tree; devices are written only then.
        self.pool.tree().reconfigured(&changed.vdev_tree, &devices)?;
        let first = self.state.config.vdev_tree.children.len();
        init_labels(&changed, &devices, &changed.vdev_tree.children[first..], &self.state.uberblock)?;
        for (spec, vdev) in tops.iter().zip(&added) {
            let node = &mut changed.vdev_tree.children[vdev.0 as usize];
            vdev_zaps::create_top(m, node, spec.class)?;
            node.metaslab_array = self.pool.space.add_top(m, *vdev, node)?;
        }
        self.pool.change_tree(|now| {
            Ok(Some(now.reconfigured(&self.pool.with_out_of_service(&changed.vdev_tree), &devices)?))
        })?;
        self.pool.events().sysevent("config_sync", NvList::new());
        self.pool.events().sysevent("vdev_add", NvList::new());
        for (spec, vdev) in tops.iter().zip(&added) {
            let node = &changed.vdev_tree.children[vdev.0 as usize];
            self.pool.allocator.add_top(SpaceBook::fresh_top(*vdev, node, class_of(spec.class)));
        }
        self.state.config = changed;
        self.state.mark_all();
        Ok(())
    }
}
