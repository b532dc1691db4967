//! Open heads in the sync of a txg: writing their changes, and then updating their names, limits and
//! properties.

use super::head::{Head, with_accounting_of};
use super::{Heads, is_used};
use crate::dataset::Dataset;
use crate::error::DslError;
use crate::ledger::sync_set;
use crate::policy::policy_of;
use crate::receive;
use crate::sync::{lock, write};
use crate::task::TaskCtx;
use crate::tree::Dsl;
use crate::zapify;
use format::Txg;
use format::objset::ZilHeader;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

impl Heads {
    /// Writes every head that the txg changed, and accounts for it. May be called again in the same txg.
    ///
    /// # Errors
    /// If an object cannot be read or written: the txg must not end then.
    pub fn sync_all(&self, ctx: &mut TaskCtx<'_>) -> Result<(), DslError> {
        self.retire(ctx);
        // In the order of their numbers, so that the same changes give the same pool.
        let heads: Vec<Arc<Head>> = lock(&self.open).values().cloned().collect();
        for head in heads {
            self.refresh_policy(&head)?;
            // After a snapshot in this txg the head must not change. The second time, the log would contain
            // changes of the next txg.
            let is_frozen = head.unwritten.is_some() || ctx.m().dataset(head.id)?.prev_snap_txg >= ctx.txg();
            if head.log_synced.swap(ctx.txg().0, Ordering::AcqRel) != ctx.txg().0 && !is_frozen {
                head.log.sync(ctx.tx);
            }
            for feature in std::mem::take(&mut *lock(&head.features)) {
                zapify::activate_feature(ctx.m(), head.id, feature)?;
            }
            if let Some(point) = lock(&head.received)[(ctx.txg().0 & 1) as usize].take() {
                receive::store_point(ctx.m(), head.id, &point)?;
            }
            if head.set.is_dirty(ctx.txg()) {
                sync_set(ctx.m(), ctx.brt, head.id, &head.set)?;
            }
        }
        Ok(())
    }

    /// Closes heads that are not in use and have no unwritten changes. A log that such a head has left is
    /// freed first, which takes one more txg.
    fn retire(&self, ctx: &TaskCtx<'_>) {
        let txg = ctx.txg();
        lock(&self.open).retain(|_, head| {
            if is_used(head) || head.set.is_dirty(txg) || head.set.is_dirty(Txg(txg.0 + 1)) {
                return true;
            }
            if head.unwritten.is_some() {
                return false;
            }
            // A snapshot may have been taken later in the txg, after which the head must not change.
            if head.log_synced.load(Ordering::Acquire) == txg.0 {
                return true;
            }
            let header = head.set.zil_header();
            // A claimed log waits for its replay.
            let has_log = header != ZilHeader::default() && header.claim_txg == Txg(0);
            if has_log {
                head.log.close(ctx.tx);
            }
            has_log
        });
    }

    fn refresh_policy(&self, head: &Head) -> Result<(), DslError> {
        let policies = self.policies.load(Ordering::Acquire);
        if head.policy_of.load(Ordering::Acquire) == policies {
            return Ok(());
        }
        let dataset = Heads::dataset_of(&self.dsl(), head)?;
        let policy = policy_of(&dataset, &self.features)?;
        head.set_log_properties(&dataset)?;
        head.set.set_policy(with_accounting_of(&policy, &head.set));
        head.copies.store(policy.copies.into(), Ordering::Relaxed);
        head.policy_of.store(policies, Ordering::Release);
        match head.opened() {
            Some(opened) => opened.properties_changed(&dataset, &self.features),
            None => Ok(()),
        }
    }

    /// Ends a txg: updates the counters, and lets the logs drop the txg's changes. Called after the uberblock
    /// was written, before `Txgs::finish`.
    ///
    /// # Errors
    /// If the MOS cannot be read.
    pub fn finish_txg(&self, txg: Txg) -> Result<(), DslError> {
        let changes = self.changes.load(Ordering::Acquire);
        let is_changed = self.seen_changes.swap(changes, Ordering::AcqRel) != changes;
        let dsl = self.dsl();
        let open = lock(&self.open);
        for head in open.values() {
            head.log.synced(txg);
            head.refresh(&self.mos)?;
            head.counters.pending.clear(txg);
            if is_changed {
                self.refresh_name_and_limits(&dsl, head)?;
            }
        }
        drop(open);
        let mut dirs = lock(&self.dirs);
        dirs.retain(|_, counters| counters.strong_count() > 0);
        for counters in dirs.values().filter_map(Weak::upgrade) {
            counters.refresh()?;
            counters.pending.clear(txg);
        }
        self.pool.synced(txg);
        Ok(())
    }

    /// The dataset of an open head. It is looked up by the name that the head knows, level by level; only a
    /// renamed level is searched by object number, which reads all names of the parent directory. After a
    /// rename only the heads of the renamed tree search, and each searches one level.
    fn dataset_of(dsl: &Dsl, head: &Head) -> Result<Dataset, DslError> {
        let name = head.name();
        match dsl.dataset(&name) {
            Ok(dataset) if dataset.id() == head.id => Ok(dataset),
            _ => dsl.head_by_object(head.id, &name),
        }
    }

    /// Updates name, directories above and limits after a rename or a new limit.
    fn refresh_name_and_limits(&self, dsl: &Dsl, head: &Head) -> Result<(), DslError> {
        let dataset = Heads::dataset_of(dsl, head)?;
        head.refresh_limits(&self.mos)?;
        *write(&head.name) = dataset.name().into();
        *write(&head.dirs) = self.counters_of(head.dir)?;
        Ok(())
    }
}
