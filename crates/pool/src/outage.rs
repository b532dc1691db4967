//! What happens when nothing more can be written: property `failmode`.
//!
//! The block layer asks here, on the thread that writes a txg, after every other place was tried. While it
//! waits the pool is *suspended*: with `wait` whoever changes something, or waits for a txg, waits too; with
//! `continue` it gets an error at once; what can be read is read. [`LivePool::resume`] tries again what has
//! failed, so that nothing in memory is lost; [`LivePool::give_up`] tells all who wait that it is no use. With
//! `panic` the process ends.
//!
//! # What always holds
//! - Nobody waits for ever unless somebody has said that he attends to the pool ([`LivePool::attend`]), and
//!   its threads run. Without that a write that fails ends the pool as a crash would, whatever `failmode`
//!   says, but `panic`: it is to be opened again. So it is with commands that do their work in process.
//! - Closing a pool gives it up first.
//! - Locks: none is held while waiting but `state`, which whoever resumes or gives up does not take.

use crate::PoolError;
use crate::live::{LivePool, lock};
use crate::tree_change::DeviceSwap;
use crate::{diagnosis, sync};
use dmu::TxError;
use dmu::interrupt;
use format::config::VdevKind;
use format::nvlist::NvList;
use format::{PoolGuid, Txg, VdevGuid};
use std::collections::HashMap;
use std::error::Error;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use vdev::device::file::Access;
use vdev::scan::{Found, Leaf};
use vdev::source::Mode;
use vdev::{Device, label};

/// What the property says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FailMode {
    /// Writers wait until the devices are back.
    #[default]
    Wait,
    /// Writers get errors until the devices are back.
    Continue,
    /// The process ends.
    Panic,
}

impl FailMode {
    /// From the number that is stored.
    pub(crate) fn of_number(number: u64) -> FailMode {
        match number {
            1 => FailMode::Continue,
            2 => FailMode::Panic,
            _ => FailMode::Wait,
        }
    }
}

/// Ends the process.
type PanicHook = dyn Fn(&str) + Send + Sync;

#[derive(Default)]
struct State {
    mode: FailMode,
    is_attended: bool,
    /// Why the pool is suspended; `None`: it is not.
    suspended: Option<String>,
    is_given_up: bool,
    /// Why nothing more is written until it is imported again; `None`: something is, or it was given up on demand.
    stopped: Option<String>,
    /// Devices that were let go of. Who reads by an older tree may still have one, with the lock on it.
    let_go: HashMap<VdevGuid, Weak<dyn Device>>,
    panic: Option<Box<PanicHook>>,
}

/// Whether and how the pool is suspended.
#[derive(Default)]
pub(crate) struct Outages {
    state: Mutex<State>,
    changed: Condvar,
}

impl Outages {
    /// The pool is suspended, or has stopped; what becomes of those who want to write.
    pub(crate) fn suspended(&self) -> Option<FailMode> {
        let state = lock(&self.state);
        state.suspended.as_ref().or(state.stopped.as_ref()).map(|_| state.mode)
    }

    /// Why nothing more is written, whatever devices come back.
    pub(crate) fn stopped(&self) -> Option<String> {
        lock(&self.state).stopped.clone()
    }
}

/// What the block layer asks.
pub(crate) struct Asked(pub(crate) Weak<LivePool>);

impl zio::Outage for Asked {
    fn is_attended(&self) -> bool {
        self.0.upgrade().is_some_and(|pool| pool.is_attended())
    }

    fn wait(&self, why: &dyn Error) -> bool {
        self.0.upgrade().is_some_and(|pool| pool.wait_out(&sync::with_causes(why)))
    }
}

impl Outages {
    pub(crate) fn set_mode(&self, mode: FailMode) {
        lock(&self.state).mode = mode;
    }

    /// A txg is on disk.
    pub(crate) fn note_txg(&self) {
        self.changed.notify_all();
    }

    /// None will be any more. Whether nobody knew.
    fn note_last(&self, why: &str) -> bool {
        let mut state = lock(&self.state);
        let is_new = !std::mem::replace(&mut state.is_given_up, true);
        if is_new {
            state.stopped = Some(why.to_owned());
        }
        drop(state);
        self.changed.notify_all();
        is_new
    }
}

/// Says it, and ends the process.
fn abort(message: &str) {
    tracing::error!(message);
    let _ = writeln!(std::io::stderr(), "{message}");
    std::process::abort();
}

impl LivePool {
    /// Somebody attends to this pool from now on, and calls [`LivePool::resume`] or [`LivePool::give_up`] when
    /// it is suspended. Needs the threads of [`LivePool::start`].
    pub fn attend(&self) {
        // No txg is being written now.
        let _state = lock(&self.state);
        lock(&self.outages.state).is_attended = true;
        self.zio.keep_blocks();
    }

    /// Nobody attends to it any more: what fails from now on is an error at once.
    pub(crate) fn unattend(&self) {
        lock(&self.outages.state).is_attended = false;
    }

    /// Whoever waited for its devices was told that it is no use: nothing more is written.
    pub fn is_given_up(&self) -> bool {
        lock(&self.outages.state).is_given_up
    }

    /// Nothing more is written, for this reason: whoever waits is told, and so is whoever looks at events.
    pub(crate) fn note_stopped(&self, why: &str) {
        if self.outages.note_last(why) {
            tracing::error!(pool = self.name, why, "nothing more is written to the pool");
            let mut reason = NvList::new();
            reason.push("reason", why);
            self.events.ereport("io_failure", &self.tree(), None, reason);
        }
    }

    /// Nothing more is written until it is imported again.
    pub fn has_stopped(&self) -> bool {
        self.outages.stopped().is_some()
    }

    pub(crate) fn is_attended(&self) -> bool {
        lock(&self.outages.state).is_attended
    }

    /// Why the pool is suspended; `None`: it is not.
    pub fn suspended(&self) -> Option<String> {
        lock(&self.outages.state).suspended.clone()
    }

    /// What is called instead of ending the process when `failmode` is `panic`. If it returns, the pool goes
    /// on as if nobody attended to it.
    pub fn set_panic_hook(&self, hook: impl Fn(&str) + Send + Sync + 'static) {
        lock(&self.outages.state).panic = Some(Box::new(hook));
    }

    /// Waits, on the thread that writes a txg, until what has failed may be tried again. False: never.
    pub(crate) fn wait_out(&self, why: &str) -> bool {
        let has_thread = lock(&self.runtime).is_some();
        let mut state = lock(&self.outages.state);
        if state.mode == FailMode::Panic {
            let message = format!("Pool '{}' has encountered an uncorrectable I/O failure: {why}", self.name);
            match &state.panic {
                Some(hook) => hook(&message),
                None => abort(&message),
            }
            return false;
        }
        if !state.is_attended || !has_thread || state.is_given_up {
            return false;
        }
        tracing::error!(pool = self.name, why, "the pool is suspended");
        self.events.ereport("io_failure", &self.tree(), None, NvList::new());
        state.suspended = Some(why.to_owned());
        self.txgs.suspend(TxError::Suspended { why: why.to_owned() }, state.mode == FailMode::Wait);
        self.outages.changed.notify_all();
        while state.suspended.is_some() && !state.is_given_up {
            state = self.outages.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let is_back = !state.is_given_up;
        tracing::warn!(pool = self.name, is_back, "the pool is no longer suspended");
        is_back
    }

    /// Clears the errors of all leaves, uses those again that were faulted for theirs and answer, opens those again that do not answer, by the devices in `found` or at
    /// their old places, and lets a suspended pool try again what has failed. Returns when the txg that waited is on
    /// disk. What `zpool clear` does.
    ///
    /// # Errors
    /// [`TxError::Suspended`] in [`PoolError::Tx`] if something fails again: the pool is suspended again.
    /// [`TxError::Closed`] if the pool was given up or closed. [`TxError::Interrupted`] if the caller does not wait for that
    /// txg any longer.
    pub fn resume(&self, found: Option<&Found>) -> Result<(), PoolError> {
        self.reopen_all(found)?;
        self.tree().clear_errors();
        let mut state = lock(&self.outages.state);
        if state.is_given_up {
            return Err(TxError::Closed.into());
        }
        let waiting = state.suspended.take().map(|_| Txg(self.txgs.synced_txg().0 + 1));
        self.txgs.resume();
        self.outages.changed.notify_all();
        self.lift_faults.store(true, Ordering::Release);
        self.txgs.kick();
        while waiting.is_some_and(|txg| self.txgs.synced_txg() < txg) {
            match &state.suspended {
                Some(why) => return Err(TxError::Suspended { why: why.clone() }.into()),
                None if state.is_given_up => return Err(TxError::Closed.into()),
                None => {}
            }
            if interrupt::ends(true) {
                return Err(TxError::Interrupted.into());
            }
            state = interrupt::wait(&self.outages.changed, state);
        }
        Ok(())
    }

    /// Ends a suspended pool: whoever waits gets an error, and the pool is as after a crash, with what was
    /// synced. Does nothing to one that is not suspended.
    pub fn give_up(&self) {
        let mut state = lock(&self.outages.state);
        if let Some(why) = state.suspended.take() {
            state.is_given_up = true;
            self.txgs.fail(TxError::Suspended { why });
            self.outages.changed.notify_all();
        }
    }

    /// From now on nothing waits for devices.
    pub(crate) fn end_outages(&self) {
        self.give_up();
        lock(&self.outages.state).is_given_up = true;
    }

    /// New handles for leaves whose own no longer work, and none for those whose device is no longer where it was: what is written
    /// there would be lost with the process. For whoever is asked to look: names in `/dev` come and go by themselves.
    pub(crate) fn reopen_all(&self, found: Option<&Found>) -> Result<(), PoolError> {
        self.shut_displaced(found)?;
        self.reopen(found)
    }

    /// New handles for leaves whose own no longer work.
    pub(crate) fn reopen(&self, found: Option<&Found>) -> Result<(), PoolError> {
        let tree = self.tree();
        let config = self.config();
        let answers = |device: &dyn Device, leaf: VdevGuid| is_leaf(device, leaf, config.pool_guid);
        let devices = self.env.devices();
        let mut fresh: HashMap<VdevGuid, Arc<dyn Device>> = HashMap::new();
        // What they have, by their uberblocks.
        let mut newest: HashMap<VdevGuid, Txg> = HashMap::new();
        for node in config.vdev_tree.leaves() {
            let is_device = matches!(node.kind, VdevKind::Disk | VdevKind::File);
            if !is_device || tree.device(node.guid).is_some_and(|device| answers(&*device, node.guid)) {
                continue;
            }
            let open = |path: &str| devices.open(Path::new(path), Mode::Exclusive, Access::Auto).ok();
            let at_path = node.path.as_deref().and_then(open);
            let at_path = at_path.or_else(|| self.still_held(node.guid, node.path.as_deref(), found));
            let is_wanted = |leaf: &Leaf| answers(&*leaf.device, node.guid);
            let elsewhere = || match found?.leaves.iter().find(|leaf| is_wanted(leaf)) {
                Some(leaf) if !leaf.device.is_read_only() => Some(Arc::clone(&leaf.device)),
                Some(_) => found?.open_exclusive(is_wanted, Access::Auto, devices).devices.remove(&node.guid),
                None => None,
            };
            let at_path = at_path.filter(|device| answers(&**device, node.guid));
            let Some(device) = at_path.or_else(elsewhere) else { continue };
            newest.insert(node.guid, newest_txg(&*device, self.uberblock().guid_sum));
            self.scans.note_back(node.guid);
            fresh.insert(node.guid, device);
        }
        if fresh.is_empty() {
            return Ok(());
        }
        let (synced, open) = (self.txgs.synced_txg(), self.txgs.open_txg());
        self.swap_devices(|now| {
            for (leaf, newest) in newest {
                // It may be another one than before, and have less than was written to that. One that was held until now and
                // has the last txg is the same: its old handle tells what is lost of the next.
                let is_same = now.device(leaf).is_some() && newest >= synced;
                if !is_same && diagnosis::can_do_without(now, &[leaf]) {
                    now.note_missed(leaf, newest.0 + 1..open.0 + 1);
                }
            }
            DeviceSwap::Opened(fresh)
        })
    }

    /// The device of a leaf that was let go of, if it is back where it was, and could not be opened because somebody reads by its
    /// old handle.
    fn still_held(
        &self,
        leaf: VdevGuid,
        path: Option<&str>,
        found: Option<&Found>,
    ) -> Option<Arc<dyn Device>> {
        let device = lock(&self.outages.state).let_go.get(&leaf).and_then(Weak::upgrade)?;
        let places = found.map_or(&[][..], |found| &found.leaves).iter().map(|leaf| &*leaf.path);
        let is_back = path.map(Path::new).into_iter().chain(places).any(|path| device.is_at(path));
        (is_back && device.size_now() >= device.size()).then_some(device)
    }

    /// Lets go of devices whose path leads elsewhere or nowhere, and of those that were cut, as far as the others have everything.
    fn shut_displaced(&self, found: Option<&Found>) -> Result<(), PoolError> {
        let tree = self.tree();
        let is_displaced = |device: &dyn Device| {
            let places = found.map_or(&[][..], |found| &found.leaves).iter().map(|leaf| &*leaf.path);
            device.size_now() < device.size()
                || device.path().is_some_and(|own| !places.chain([own]).any(|path| device.is_at(path)))
        };
        let device_of = |leaf| Some((leaf, tree.device(leaf).filter(|device| is_displaced(&**device))?));
        let displaced: Vec<_> = tree.leaf_guids().into_iter().filter_map(device_of).collect();
        for (leaf, path) in self.shut(&displaced)? {
            tracing::error!(%leaf, path = %path.display(), "a device that cannot be done without is no longer where it was");
        }
        Ok(())
    }

    /// Lets go of files that have no name any more, and of devices that were cut, as far as the others have everything. What
    /// is written to such a file is gone with the process, so nobody needs to ask for this.
    pub(crate) fn shut_lost(&self) -> Result<(), PoolError> {
        let tree = self.tree();
        let is_lost = |device: &dyn Device| device.is_removed() || device.size_now() < device.size();
        let device_of = |leaf| Some((leaf, tree.device(leaf).filter(|device| is_lost(&**device))?));
        let lost: Vec<_> = tree.leaf_guids().into_iter().filter_map(device_of).collect();
        self.shut(&lost).map(drop)
    }

    /// Lets go of devices as far as the others have everything. Returns those that stay, and where they were.
    fn shut(&self, leaves: &[(VdevGuid, Arc<dyn Device>)]) -> Result<Vec<(VdevGuid, PathBuf)>, PoolError> {
        let mut kept = Vec::new();
        if leaves.is_empty() {
            return Ok(kept);
        }
        self.swap_devices(|now| {
            let mut shut: Vec<VdevGuid> = Vec::new();
            for (leaf, device) in leaves {
                if now.device(*leaf).is_none_or(|held| !Arc::ptr_eq(&held, device)) {
                    continue; // Somebody has seen to it meanwhile.
                }
                let path = device.path().map(Path::to_path_buf).unwrap_or_default();
                shut.push(*leaf);
                if diagnosis::can_do_without(now, &shut) {
                    tracing::warn!(%leaf, path = %path.display(), "a device is no longer where it was, or was cut");
                } else {
                    kept.push((*leaf, path));
                    shut.pop();
                }
            }
            if shut.is_empty() {
                return DeviceSwap::None;
            }
            let held = leaves.iter().filter(|(leaf, _)| shut.contains(leaf));
            let held = held.map(|(leaf, device)| (*leaf, Arc::downgrade(device)));
            lock(&self.outages.state).let_go.extend(held);
            DeviceSwap::Closed(shut)
        })?;
        Ok(kept)
    }
}

/// The newest txg that a device has an uberblock of; what it took until then it has.
fn newest_txg(device: &dyn Device, guid_sum: u64) -> Txg {
    let uberblocks = label::probe(device).uberblocks;
    let of_pool = uberblocks.iter().filter(|found| found.uberblock.guid_sum == guid_sum);
    of_pool.map(|found| found.uberblock.txg).max().unwrap_or(Txg(0))
}

/// Whether a device answers, and has the label of this leaf.
fn is_leaf(device: &dyn Device, leaf: VdevGuid, pool: PoolGuid) -> bool {
    let probe = label::probe(device);
    probe.newest_config().is_some_and(|config| config.pool_guid == pool && config.guid == Some(leaf))
}
