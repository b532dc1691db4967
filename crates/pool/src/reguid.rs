//! A new guid for a pool: copies of its devices can then be imported beside the original.
//!
//! # What always holds
//! - Labels, configuration and the sum of guids in the uberblock change in one txg.
//! - A device that did not get its label with the others would never be recognized as part of this pool
//!   again: all devices must be online.

use crate::error::PoolError;
use crate::live::LivePool;
use crate::refusal::PropertyRefusal;
use format::{PoolGuid, VdevGuid};
use vdev::label_write::test_leaf;
use vdev::tree::VdevState;

impl LivePool {
    /// Changes the guid of the pool to `wanted`, or to a random one.
    ///
    /// # Errors
    /// [`PoolError::Property`] if the pool or one of its vdevs has this guid, or it is 0;
    /// [`PoolError::NotHealthy`].
    pub fn reguid(&self, wanted: Option<PoolGuid>) -> Result<PoolGuid, PoolError> {
        let random = || PoolGuid(self.env.random().max(1));
        let new = wanted.unwrap_or_else(random);
        self.run_on_pool(move |ctx, pool| {
            pool.pool.check_no_checkpoint()?;
            let tree = pool.pool.tree();
            // A leaf that takes no writes may not have been detected yet.
            let answers = |leaf| tree.device(leaf).is_some_and(|device| test_leaf(&*device).is_ok());
            if tree.status().state != VdevState::Online || !tree.leaf_guids().into_iter().all(answers) {
                return Err(PoolError::NotHealthy);
            }
            let config = &mut pool.state.config;
            let is_used = config.pool_guid == new || config.vdev_tree.walk().any(|node| node.guid.0 == new.0);
            if is_used || new.0 == 0 {
                return Err(PoolError::Property { name: "guid".to_owned(), why: PropertyRefusal::GuidInUse });
            }
            let old = std::mem::replace(&mut config.pool_guid, new);
            config.vdev_tree.guid = VdevGuid(new.0);
            pool.state.mark_all();
            ctx.note("guid change", None, format!("old={} new={}", old.0, new.0));
            Ok(new)
        })
    }
}
