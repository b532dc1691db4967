//! Taking leaves offline and online, and retrying leaves that did not answer.

use crate::config;
use crate::diagnosis;
use crate::error::PoolError;
use crate::expand::Grow;
use crate::live::{LivePool, State};
use crate::out_of_service::Offline;
use crate::tree_change::DeviceSwap;
use crate::vdev_shape;
use format::VdevGuid;
use format::config::{VdevKind, VdevNode};
use format::nvlist::NvList;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use vdev::label_write::test_leaf;
use vdev::scan::Found;
use vdev::sync::lock;
use vdev::tree::VdevState;

/// Interval between retries of leaves that did not answer.
const LOOK_EVERY: Duration = Duration::from_secs(5);

impl LivePool {
    /// Takes a leaf out of service. Returns false if the other leaves cannot supply every block.
    ///
    /// # Errors
    /// [`PoolError::Tx`] if the txg cannot be written.
    pub fn take_offline(&self, leaf: VdevGuid, how: Offline) -> Result<bool, PoolError> {
        // Write all changes to disk, so that no data are on this leaf alone.
        self.sync()?;
        let is_out = self.run_on_pool(move |_, task| {
            let pool = task.pool;
            let is_out = pool.retire(task.state, leaf, |root| {
                if how.is_temporary() {
                    lock(&pool.out_of_service.out).insert((leaf, how));
                } else if let Some(node) = config::find_mut(root, leaf) {
                    how.mark(node);
                }
            })?;
            if is_out {
                task.state.mark_all();
            }
            Ok(is_out)
        })?;
        if is_out {
            self.events().vdev_sysevent("vdev_offline", &self.tree(), leaf);
        }
        Ok(is_out)
    }

    /// Brings a leaf back into service, with its present device. A resilver restores the writes that it
    /// missed. Returns its state.
    ///
    /// # Errors
    /// [`PoolError::Tx`] if the txg cannot be written.
    pub fn bring_online(
        &self,
        leaf: VdevGuid,
        found: Option<&Found>,
    ) -> Result<Option<VdevState>, PoolError> {
        self.resume_if_suspended(found)?;
        // Ends a running slice that has skipped the leaf, so that the scan notices it.
        drop(self.jobs.hold());
        lock(&self.out_of_service.out).remove(&(leaf, Offline::Temporarily));
        self.scans.note_back(leaf);
        self.run_on_pool(move |_, pool| {
            if let Some(node) = config::find_mut(&mut pool.state.config.vdev_tree, leaf) {
                (node.offline, node.removed) = (false, false);
            }
            pool.state.mark_all();
            Ok(())
        })?;
        self.reopen_devices(found)?;
        self.events().vdev_sysevent("vdev_online", &self.tree(), leaf);
        self.resilver_if_needed()?;
        self.release_idle()?;
        Ok(self.tree().status().find(leaf).map(|leaf| leaf.state))
    }

    /// Closes the device of a leaf that is out of service, so that it can be used for another one. Has no effect on other
    /// leaves. The leaf gets its device back when it comes online.
    ///
    /// # Errors
    /// [`PoolError::Vdev`] if the other devices form no tree.
    pub fn let_go(&self, leaf: VdevGuid) -> Result<(), PoolError> {
        let is_out = |state| matches!(state, VdevState::Offline | VdevState::Faulted | VdevState::Removed);
        self.swap_devices(|tree| match tree.status().find(leaf).map(|leaf| leaf.state) {
            Some(state) if is_out(state) => DeviceSwap::Closed(vec![leaf]),
            _ => DeviceSwap::None,
        })
    }

    /// Opens devices again that do not answer, at the paths of `found` or at their old ones, as `zpool
    /// reopen` does. With `resilver`, returned leaves are resilvered.
    ///
    /// # Errors
    /// [`PoolError::Vdev`] if the devices form no tree.
    pub fn reopen_devices(&self, found: Option<&Found>) -> Result<(), PoolError> {
        self.resume_if_suspended(found)?;
        self.reopen_all(found)?;
        self.grow(Grow::Nothing)?;
        Ok(())
    }

    /// Lets a suspended pool repeat the failed writes.
    fn resume_if_suspended(&self, found: Option<&Found>) -> Result<(), PoolError> {
        if self.suspended().is_some() { self.resume(found) } else { Ok(()) }
    }

    /// Begins a resilver if a leaf in service lacks data and no active scan restores them.
    ///
    /// # Errors
    /// [`PoolError::Tx`] if the txg cannot be written.
    pub fn resilver_if_needed(&self) -> Result<(), PoolError> {
        if self.scans.is_resilver_due(&self.tree()) {
            self.start_resilver()?;
        }
        Ok(())
    }

    /// Does what `zpool clear` does: clears errors, of one vdev and those below it or of all, uses faulted
    /// leaves again, opens devices again, and resumes a suspended pool.
    ///
    /// # Errors
    /// [`TxError::Closed`](dmu::TxError::Closed) if the pool was given up or closed; [`PoolError::Tx`] if the
    /// txg cannot be written.
    pub fn clear(&self, vdev: Option<VdevGuid>, found: Option<&Found>) -> Result<(), PoolError> {
        self.scans.forget_hopeless();
        self.resume_if_suspended(found)?;
        let tree = self.tree();
        let root = tree.config();
        let below = match vdev.and_then(|vdev| root.walk().find(|node| node.guid == vdev)) {
            Some(node) => node,
            None => root,
        };
        let leaves: Vec<VdevGuid> = below.leaves().map(|node| node.guid).collect();
        tree.clear_errors_of(&leaves);
        let is_cleared =
            |(leaf, how): &(VdevGuid, Offline)| *how == Offline::FaultedTemporarily && leaves.contains(leaf);
        lock(&self.out_of_service.out).retain(|out| !is_cleared(out));
        let is_all = |node: &&VdevNode| leaves.contains(&node.guid) && (node.faulted || node.degraded);
        let bad: Vec<VdevGuid> = root.leaves().filter(is_all).map(|node| node.guid).collect();
        if !bad.is_empty() {
            self.reopen_all(found)?;
            let wanted = leaves.clone();
            self.run_on_pool(move |_, pool| {
                for leaf in wanted {
                    let answers =
                        pool.pool.tree().device(leaf).is_some_and(|device| test_leaf(&*device).is_ok());
                    if let Some(node) =
                        config::find_mut(&mut pool.state.config.vdev_tree, leaf).filter(|_| answers)
                    {
                        (node.faulted, node.degraded, node.aux_state) = (false, false, None);
                        if bad.contains(&leaf) {
                            vdev_shape::note_repaired(&mut pool.state.config.vdev_tree, leaf);
                        }
                    }
                }
                pool.state.mark_all();
                Ok(())
            })?;
        } else {
            self.reopen_all(found)?;
        }
        for leaf in &leaves {
            self.events().vdev_sysevent("vdev_clear", &self.tree(), *leaf);
        }
        self.resilver_if_needed()?;
        self.release_idle()
    }

    /// Retries leaves that did not answer, and uses those that do; closes devices that are lost; with
    /// `autoexpand=on`, checks whether devices have grown.
    pub(crate) fn look_for_silent(&self) {
        let now = self.env.clock().monotonic();
        {
            let mut looked = lock(&self.out_of_service.looked);
            if now.saturating_sub(*looked) < LOOK_EVERY {
                return;
            }
            *looked = now;
        }
        if self.grows_by_itself()
            && let Err(error) = self.grow(Grow::Everything)
        {
            tracing::warn!(pool = self.name(), %error, "the pool does not grow with its devices");
        }
        if let Err(error) = self.shut_lost() {
            tracing::warn!(pool = self.name(), %error, "devices that are lost cannot be let go of");
        }
        let tree = self.tree();
        let silent = lock(&self.out_of_service.silent).clone();
        let is_shut = tree.leaf_guids().into_iter().any(|leaf| tree.device(leaf).is_none());
        if silent.is_empty() && !is_shut {
            return;
        }
        if let Err(error) = self.reopen(None) {
            tracing::warn!(pool = self.name(), %error, "devices cannot be opened again");
        }
        let tree = self.tree();
        let answers = |leaf: &VdevGuid| {
            tree.device(*leaf).is_some_and(|device: Arc<dyn vdev::Device>| test_leaf(&*device).is_ok())
        };
        if silent.iter().any(answers) {
            silent.iter().filter(|leaf| answers(leaf)).for_each(|leaf| self.scans.note_back(*leaf));
            lock(&self.out_of_service.silent).retain(|leaf| !answers(leaf));
            self.lift_faults.store(true, Ordering::Release);
            {
                lock(&self.state).is_forced = true;
            }
            self.txgs.kick();
        }
    }
}

/// Checks all leaves, and takes failing ones out of service.
pub(crate) fn diagnose(pool: &LivePool, state: &mut State) {
    let tree = pool.tree();
    if pool.lift_faults.swap(false, Ordering::AcqRel) && diagnosis::lift(&tree, &mut state.config.vdev_tree) {
        state.mark_all();
    }
    let now = pool.env.clock().monotonic();
    for status in tree.status().walk() {
        let is_in_service = matches!(status.state, VdevState::Online | VdevState::Degraded);
        if !matches!(status.kind, VdevKind::Disk | VdevKind::File) {
            continue;
        }
        let errors = status.read_errors.saturating_add(status.write_errors);
        if !is_in_service {
            state.diagnosis.pass_over(status.guid, errors);
            continue;
        }
        let Some(recent) = state.diagnosis.note(status.guid, errors, now) else { continue };
        let fails = tree.device(status.guid).is_none_or(|device| test_leaf(&*device).is_err());
        if !fails && recent < diagnosis::ERRORS_MAX {
            continue;
        }
        state.diagnosis.forget(status.guid);
        let was_gone = tree.take_was_gone(status.guid);
        if was_gone && !fails {
            // The leaf was gone and is back. Its DTL has the missed writes.
            continue;
        }
        if fails {
            pool.events.ereport("probe_failure", &tree, Some(status.guid), NvList::new());
            pool.out_of_service.note_silent(status.guid);
        }
        let known = state.config.vdev_tree.find(status.guid).filter(|node| !node.faulted);
        let Some(was_degraded) = known.map(|node| node.degraded) else { continue };
        let mark = |root: &mut VdevNode, is_faulted: bool| {
            if let Some(node) = config::find_mut(root, status.guid) {
                (node.faulted, node.degraded) = (is_faulted, !is_faulted);
                node.aux_state = Some(diagnosis::ERR_EXCEEDED.to_owned());
            }
        };
        let is_faulted = pool.retire(state, status.guid, |root| mark(root, true)).unwrap_or(false);
        if !is_faulted && was_degraded {
            continue;
        }
        if !is_faulted {
            mark(&mut state.config.vdev_tree, false);
        }
        tracing::warn!(leaf = %status.guid, recent, fails, is_faulted, "a leaf keeps failing");
        state.mark_all();
    }
}
