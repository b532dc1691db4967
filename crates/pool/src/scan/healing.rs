//! Taking leaves out of service and back, and finding those again that did not answer.

use crate::PoolError;
use crate::live::{LivePool, lock};
use crate::{Grow, config};
use format::VdevGuid;
use format::config::VdevNode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use vdev::label_write::test_leaf;
use vdev::scan::Found;
use vdev::tree::VdevState;

/// How often leaves that did not answer are asked again.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// How a leaf is taken out of service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Offline {
    /// Until somebody brings it back.
    Always,
    /// Until the pool is closed.
    Temporarily,
    /// Declared faulted, until that is cleared.
    Faulted,
    /// Declared faulted, until that is cleared or the pool is closed.
    FaultedTemporarily,
}

impl Offline {
    /// Takes the leaf out of service in a configuration.
    pub(crate) fn mark(self, node: &mut VdevNode) {
        match self {
            Offline::Always | Offline::Temporarily => node.offline = true,
            Offline::Faulted | Offline::FaultedTemporarily => {
                (node.faulted, node.aux_state) = (true, Some("external".to_owned()));
            }
        }
    }

    fn is_temporary(self) -> bool {
        matches!(self, Offline::Temporarily | Offline::FaultedTemporarily)
    }
}

impl LivePool {
    /// Takes a leaf out of service. False: the others do not have everything.
    ///
    /// # Errors
    /// If the pool cannot be written.
    pub fn take_offline(&self, leaf: VdevGuid, how: Offline) -> Result<bool, PoolError> {
        // Nothing that only this leaf has.
        self.sync()?;
        let is_out = self.run_on_pool(move |_, task| {
            let pool = task.pool;
            let is_out = pool.retire(task.state, leaf, |root| {
                if how.is_temporary() {
                    lock(&pool.scans.out).insert((leaf, how));
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

    /// Brings a leaf back into service, with its device as it is now. What it has missed it gets by a resilver. Returns
    /// its state.
    ///
    /// # Errors
    /// If the pool cannot be written.
    pub fn bring_online(
        &self,
        leaf: VdevGuid,
        found: Option<&Found>,
    ) -> Result<Option<VdevState>, PoolError> {
        self.resume_if_suspended(found)?;
        // A slice that has passed the leaf over ends while that is still to be seen.
        drop(self.driver());
        lock(&self.scans.out).remove(&(leaf, Offline::Temporarily));
        lock(&self.scans.hopeless).remove(&leaf);
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
        Ok(self.tree().status().find(leaf).map(|leaf| leaf.state))
    }

    /// Opens devices again that do not answer, by those that were found or at their old places. What `zpool reopen`
    /// does; with `resilver`, what came back gets what it missed.
    ///
    /// # Errors
    /// If a tree cannot be made of what is there.
    pub fn reopen_devices(&self, found: Option<&Found>) -> Result<(), PoolError> {
        self.resume_if_suspended(found)?;
        self.reopen_all(found)?;
        self.grow(Grow::Nothing)?;
        Ok(())
    }

    /// Lets a suspended pool try again what has failed.
    fn resume_if_suspended(&self, found: Option<&Found>) -> Result<(), PoolError> {
        if self.suspended().is_some() { self.resume(found) } else { Ok(()) }
    }

    /// Begins a resilver if a leaf in service lacks something and none is under way that brings it.
    ///
    /// # Errors
    /// If the pool cannot be written.
    pub fn resilver_if_needed(&self) -> Result<(), PoolError> {
        if self.scans.is_resilver_due(&self.tree()) {
            self.start_resilver()?;
        }
        Ok(())
    }

    /// What `zpool clear` does: forgets errors, of one vdev and those below it or of all, uses faulted leaves again, opens
    /// devices again, and lets a suspended pool go on.
    ///
    /// # Errors
    /// If the pool was given up.
    pub fn clear(&self, vdev: Option<VdevGuid>, found: Option<&Found>) -> Result<(), PoolError> {
        lock(&self.scans.hopeless).clear();
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
        lock(&self.scans.out).retain(|out| !is_cleared(out));
        let is_all = |node: &&VdevNode| leaves.contains(&node.guid) && (node.faulted || node.degraded);
        if root.leaves().any(|node| is_all(&node)) {
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
        self.resilver_if_needed()
    }

    /// Asks leaves again that did not answer, and uses those that do; lets go of devices that are lost; with
    /// `autoexpand=on`, looks whether devices have grown.
    pub(crate) fn look_for_silent(&self) {
        let now = self.env.clock().monotonic();
        {
            let mut looked = lock(&self.scans.looked);
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
        let silent = lock(&self.scans.silent).clone();
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
            lock(&self.scans.silent).retain(|leaf| !answers(leaf));
            self.lift_faults.store(true, Ordering::Release);
            {
                lock(&self.state).is_forced = true;
            }
            self.txgs.kick();
        }
    }
}
