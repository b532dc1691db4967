//! Enabling features of an existing pool (docs/on-disk/16-features.md, section 4).

use crate::error::PoolError;
use crate::live::LivePool;
use crate::refusal::PropertyRefusal;
use crate::vdev_zaps;
use dsl::{TaskCtx, mos_policy};
use format::feature::{self, FEATURES, Since};
use format::names;

/// Entries of the error logs in the object directory; their form depends on a feature.
const ERROR_LOGS: [&str; 2] = [names::directory::ERRLOG_LAST, names::directory::ERRLOG_SCRUB];

impl LivePool {
    /// The features that an upgrade would enable: all of OpenZFS 2.3 that are not enabled yet.
    pub fn upgradable(&self) -> Vec<&'static str> {
        let missing = |f: &&feature::Feature| {
            f.since == Since::V2_3 && !f.no_upgrade && !self.features.is_enabled(f.name)
        };
        FEATURES.iter().filter(missing).map(|f| f.name).collect()
    }

    /// Enables features and their dependencies. Returns those that were not enabled before.
    ///
    /// # Errors
    /// [`PoolError::Property`] if a feature is unknown.
    pub fn enable_features(&self, names: &[&str]) -> Result<Vec<&'static str>, PoolError> {
        let known = |name: &&str| {
            let known = feature::by_name(name).filter(|f| f.is_supported());
            let unknown = || PoolError::Property {
                name: format!("feature@{name}"),
                why: PropertyRefusal::NoSuchFeature,
            };
            known.map(|f| f.name).ok_or_else(unknown)
        };
        let wanted: Vec<&'static str> = names.iter().map(known).collect::<Result<_, _>>()?;
        self.run_on_pool(move |ctx, pool| {
            let enabled = enable(ctx, &wanted)?;
            vdev_zaps::create_root(ctx.m(), &mut pool.state.config.vdev_tree)?;
            pool.state.mark_all();
            Ok(enabled)
        })
    }
}

/// Enables features in syncing context.
pub(crate) fn enable(ctx: &mut TaskCtx<'_>, wanted: &[&'static str]) -> Result<Vec<&'static str>, PoolError> {
    let m = ctx.m();
    let missing: Vec<&str> =
        FEATURES.iter().map(|f| f.name).filter(|name| !ctx.features.is_enabled(name)).collect();
    for name in wanted {
        ctx.features.enable(m, name)?;
    }
    let enabled: Vec<&'static str> =
        FEATURES.iter().map(|f| f.name).filter(|name| missing.contains(name)).collect();
    let enabled: Vec<&'static str> =
        enabled.into_iter().filter(|name| ctx.features.is_enabled(name)).collect();
    for name in &enabled {
        ctx.note("set", None, format!("feature@{name}=enabled"));
    }
    if enabled.contains(&"head_errlog") {
        forget_errors(ctx)?;
    }
    if !enabled.is_empty() {
        ctx.mos.set_policy(mos_policy(ctx.features));
        ctx.heads.policy_changed();
    }
    Ok(enabled)
}

/// Drops the error logs, whose form changes. The next scrub finds their errors again.
fn forget_errors(ctx: &TaskCtx<'_>) -> Result<(), PoolError> {
    let m = ctx.m();
    for name in ERROR_LOGS {
        if let Some(log) = m.entry(name)? {
            m.free(log)?;
        }
        m.remove_entry(name)?;
    }
    Ok(())
}
