//! Resilvers that wait for another one: `com.datto:resilver_defer` (docs/on-disk/14-vdevs.md, section 7).
//!
//! # What always holds
//! - Feature `resilver_defer` is active exactly while a leaf is marked.
//! - A mark only tells what follows the active resilver: the DTL of the leaf is what makes it follow, also without a
//!   mark.

use crate::error::PoolError;
use crate::live::{LivePool, PoolTask};
use crate::scan::Run;
use crate::scrub::RESILVER_DEFER_PERCENT;
use dsl::TaskCtx;
use format::VdevGuid;
use format::config::VdevNode;
use format::scan::ScanFunc;
use vdev::sync::lock;

const FEATURE: &str = "resilver_defer";

impl LivePool {
    /// Starts a resilver for a leaf that was attached. One that is well under way ends first, if the pool knows
    /// of deferred resilvers: the next one follows it.
    pub(crate) fn resilver_new_leaf(&self, leaf: VdevGuid) -> Result<(), PoolError> {
        let _driver = self.jobs.hold();
        let is_advanced = |run: &Run| {
            let done = run.phys.examined.saturating_mul(100);
            run.phys.func == ScanFunc::Resilver
                && done >= RESILVER_DEFER_PERCENT.get().saturating_mul(run.phys.to_examine)
                && done > 0
        };
        let may_wait = self.features.is_enabled(FEATURE);
        if may_wait && lock(&self.scans.run).as_ref().is_some_and(is_advanced) {
            return self.run_on_pool(move |ctx, pool| pool.defer_resilver(ctx, leaf));
        }
        self.begin_resilver()
    }
}

impl PoolTask<'_> {
    fn defer_resilver(&mut self, ctx: &mut TaskCtx<'_>, leaf: VdevGuid) -> Result<(), PoolError> {
        let Some(node) = crate::config::find_mut(&mut self.state.config.vdev_tree, leaf) else {
            return Ok(());
        };
        if !self.pool.features.is_active(FEATURE) {
            self.pool.features.incr(ctx.m(), FEATURE)?;
        }
        node.resilver_defer = true;
        self.state.mark_all();
        Ok(())
    }

    /// Removes all marks: a resilver begins that leaves nothing out.
    pub(super) fn begin_deferred(&mut self, ctx: &mut TaskCtx<'_>) -> Result<(), PoolError> {
        if unmark(&mut self.state.config.vdev_tree) {
            self.state.mark_all();
        }
        self.end_deferring(ctx.m())
    }

    /// Ends the feature if no leaf is marked any more.
    pub(crate) fn end_deferring(&mut self, m: dsl::MosTx<'_>) -> Result<(), PoolError> {
        let is_marked = self.state.config.vdev_tree.leaves().any(|leaf| leaf.resilver_defer);
        if self.pool.features.is_active(FEATURE) && !is_marked {
            self.pool.features.decr(m, FEATURE)?;
        }
        Ok(())
    }
}

/// Removes the marks of all leaves. Returns whether there were any.
fn unmark(node: &mut VdevNode) -> bool {
    let own = std::mem::replace(&mut node.resilver_defer, false);
    node.children.iter_mut().fold(own, |any, child| unmark(child) | any)
}
