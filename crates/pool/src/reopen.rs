//! Opening devices again for leaves that do not answer, and closing devices that are lost.
//!
//! # What always holds
//! - The configuration stays unchanged: only the devices of leaves change (`tree_change`).
//! - A device is closed when its path leads to another device or to none, when its file has no name any more,
//!   or when it was truncated, if the other leaves can supply every block: data written to it would be lost
//!   with the process.

use crate::diagnosis;
use crate::error::PoolError;
use crate::live::LivePool;
use crate::tree_change::DeviceSwap;
use format::config::VdevKind;
use format::{PoolGuid, Txg, VdevGuid};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use vdev::device::file::Access;
use vdev::scan::{Found, Leaf};
use vdev::source::Mode;
use vdev::sync::lock;
use vdev::{Device, label};

impl LivePool {
    /// Opens devices again for leaves whose handle no longer works, and closes devices that are no longer at
    /// their path, because the next process could not find what is written to them. Only on request of an
    /// administrator: names in `/dev` come and go by themselves.
    pub(crate) fn reopen_all(&self, found: Option<&Found>) -> Result<(), PoolError> {
        self.shut_displaced(found)?;
        self.reopen(found)
    }

    /// Opens devices again for leaves whose handle no longer works.
    pub(crate) fn reopen(&self, found: Option<&Found>) -> Result<(), PoolError> {
        let tree = self.tree();
        let config = self.config();
        let answers = |device: &dyn Device, leaf: VdevGuid| is_leaf(device, leaf, config.pool_guid);
        let devices = self.env.devices();
        let mut fresh: HashMap<VdevGuid, Arc<dyn Device>> = HashMap::new();
        // Newest txg of each new device, by its uberblocks.
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
                // The device may be another one than before, and lack earlier writes. A device that was held
                // until now and has the last txg is the same: losses of later writes are reported on its old
                // handle.
                let is_same = now.device(leaf).is_some() && newest >= synced;
                if !is_same && diagnosis::can_do_without(now, &[leaf]) {
                    now.note_missed(leaf, newest.0 + 1..open.0 + 1);
                }
            }
            DeviceSwap::Opened(fresh)
        })
    }

    /// The closed device of a leaf, if it is back at its path, but cannot be opened because a reader still
    /// has its old handle.
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

    /// Closes devices whose path leads to another device or to none, and devices that were truncated, as long
    /// as the other leaves can supply every block.
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

    /// Closes files that have no name any more, and devices that were truncated, as long as the other leaves
    /// can supply every block. Runs without a request, because data written to an unlinked file are lost with
    /// the process.
    pub(crate) fn shut_lost(&self) -> Result<(), PoolError> {
        let tree = self.tree();
        let is_lost = |device: &dyn Device| device.is_removed() || device.size_now() < device.size();
        let device_of = |leaf| Some((leaf, tree.device(leaf).filter(|device| is_lost(&**device))?));
        let lost: Vec<_> = tree.leaf_guids().into_iter().filter_map(device_of).collect();
        self.shut(&lost).map(drop)
    }

    /// Closes devices as long as the other leaves can supply every block. Returns the leaves whose devices
    /// stay open, with their paths.
    fn shut(&self, leaves: &[(VdevGuid, Arc<dyn Device>)]) -> Result<Vec<(VdevGuid, PathBuf)>, PoolError> {
        let mut kept = Vec::new();
        if leaves.is_empty() {
            return Ok(kept);
        }
        self.swap_devices(|now| {
            let mut shut: Vec<VdevGuid> = Vec::new();
            for (leaf, device) in leaves {
                if now.device(*leaf).is_none_or(|held| !Arc::ptr_eq(&held, device)) {
                    continue; // Another change has replaced it meanwhile.
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

/// The newest txg of an uberblock on a device: the device has all its writes up to that.
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
