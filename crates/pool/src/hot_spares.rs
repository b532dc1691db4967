//! Hot spares that take over by themselves, devices that are replaced by new ones at their paths, and spares that go
//! back. Called by the background thread of a pool that is attended.
//!
//! # What always holds
//! - A spare stands in for a leaf that is faulted, degraded, pulled out or missing for some seconds, never for one that an
//!   administrator took offline, and only while its top-level vdev still has all data.
//! - A spare that could not stand in for a leaf is not tried again before the leaf was in order meanwhile.
//! - With `autoreplace=on` a device at the path of a missing leaf takes its place if it is blank: it has no label, and
//!   its first MiB is zeros. Whole disks are left to administrators, because they need a partition table.
//! - A spare goes back (`release_replaced`) when its leaf, which was out of service, is in service again.
//!
//! Tests: `tests/it/live/spares.rs`.

use crate::attach::{NewSide, Purpose};
use crate::aux::AuxState;
use crate::error::PoolError;
use crate::layout::LeafSpec;
use crate::live::LivePool;
use crate::vdev_shape;
use format::config::{VdevKind, VdevNode};
use format::{DeviceOffset, VdevGuid};
use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use vdev::device::file::Access;
use vdev::source::Mode;
use vdev::sync::lock;
use vdev::tree::{VdevState, VdevStatus};
use vdev::{Device, label};

/// Time for which a device must be missing: names in `/dev` come and go, and disks start at different times.
const GRACE: Duration = Duration::from_secs(5);
/// Interval between looks for new devices at the paths of missing leaves.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Bytes at the beginning of a blank device that are zeros.
const BLANK: usize = 1 << 20;

/// What is known of leaves and spares since the pool was opened.
#[derive(Debug, Default)]
pub(crate) struct SpareWatch {
    /// Leaves that were out of service while a spare stood in for them.
    covered: Mutex<HashSet<VdevGuid>>,
    /// Leaves with spares that could not stand in for them.
    tried: Mutex<HashSet<(VdevGuid, VdevGuid)>>,
    /// Leaves that have failed, and the monotonic time when that was first seen.
    failed: Mutex<HashMap<VdevGuid, Duration>>,
    /// Monotonic time of the last look for new devices.
    looked: Mutex<Duration>,
}

/// Whether a leaf in this state should have a spare: not if an administrator took it offline.
fn has_failed(state: VdevState) -> bool {
    matches!(state, VdevState::Faulted | VdevState::Removed | VdevState::Unavail | VdevState::Degraded)
}

impl LivePool {
    /// Lets spares take over and go back, and blank devices replace missing ones.
    ///
    /// # Errors
    /// [`PoolError`] if the pool cannot be read or written.
    pub(crate) fn attend_spares(&self) -> Result<(), PoolError> {
        self.note_returned()?;
        // A spare that cannot stand in now is tried as soon as it can.
        if self.check_steady(self.tree().config()).is_err() {
            return Ok(());
        }
        let (tree, status) = (self.tree(), self.tree().status());
        let mut wanting: Vec<VdevGuid> = Vec::new();
        for (top, state) in tree.config().children.iter().zip(&status.children) {
            if state.state >= VdevState::Degraded {
                find_wanting(top, &status, &mut wanting);
            }
        }
        lock(&self.spare_watch.tried).retain(|(leaf, _)| wanting.contains(leaf));
        self.pass_over_recent(&mut wanting, &status);
        if wanting.is_empty() {
            return Ok(());
        }
        if self.replace_missing(&wanting, &status)? {
            return Ok(());
        }
        wanting.into_iter().try_for_each(|leaf| self.stand_in(leaf))
    }

    /// Removes leaves whose devices are missing only since a moment ago.
    fn pass_over_recent(&self, wanting: &mut Vec<VdevGuid>, status: &VdevStatus) {
        let now = self.env.clock().monotonic();
        let mut failed = lock(&self.spare_watch.failed);
        failed.retain(|leaf, _| wanting.contains(leaf));
        wanting.retain(|leaf| {
            let since = *failed.entry(*leaf).or_insert(now);
            let is_missing = status.find(*leaf).is_some_and(|leaf| leaf.state == VdevState::Unavail);
            !is_missing || now.saturating_sub(since) >= GRACE
        });
    }

    /// Lets the first fitting spare stand in for a leaf.
    fn stand_in(&self, leaf: VdevGuid) -> Result<(), PoolError> {
        for spare in self.view()?.spares()? {
            let (guid, is_free) = (spare.node.guid, spare.state == AuxState::Available);
            if !is_free || !lock(&self.spare_watch.tried).insert((leaf, guid)) {
                continue;
            }
            match self.attach(leaf, NewSide::Spare(guid), Purpose::Replace) {
                Ok(()) => {
                    tracing::warn!(pool = self.name(), %leaf, spare = spare.node.path, "a spare stands in");
                    return Ok(());
                }
                Err(PoolError::Tx(error)) => return Err(error.into()),
                Err(error) => {
                    tracing::warn!(pool = self.name(), %leaf, spare = spare.node.path, %error, "a spare cannot stand in");
                }
            }
        }
        Ok(())
    }

    /// Notes which leaves are in service again while spares stand in for them.
    fn note_returned(&self) -> Result<(), PoolError> {
        let tree = self.tree();
        let is_spare = |node: &&VdevNode| node.kind == VdevKind::Spare;
        let originals: Vec<VdevGuid> = tree
            .config()
            .walk()
            .filter(is_spare)
            .filter_map(|node| node.children.first())
            .map(|node| node.guid)
            .collect();
        let status = tree.status();
        let mut returned = Vec::new();
        {
            let mut covered = lock(&self.spare_watch.covered);
            covered.retain(|leaf| originals.contains(leaf));
            for leaf in originals {
                match status.find(leaf).map(|leaf| leaf.state) {
                    Some(VdevState::Online) if covered.remove(&leaf) => returned.push(leaf),
                    Some(VdevState::Online) | None => {}
                    Some(_) => drop(covered.insert(leaf)),
                }
            }
        }
        if returned.is_empty() {
            return Ok(());
        }
        self.run_on_pool(move |_, pool| {
            let root = &mut pool.state.config.vdev_tree;
            returned.into_iter().for_each(|leaf| vdev_shape::note_repaired(root, leaf));
            pool.state.mark_all();
            Ok(())
        })
    }

    /// With `autoreplace=on`, replaces one missing leaf by a blank device at its path. Returns whether it did.
    fn replace_missing(&self, wanting: &[VdevGuid], status: &VdevStatus) -> Result<bool, PoolError> {
        let now = self.env.clock().monotonic();
        {
            let mut looked = lock(&self.spare_watch.looked);
            if now.saturating_sub(*looked) < LOOK_EVERY {
                return Ok(false);
            }
            *looked = now;
        }
        let is_on = self.view()?.property("autoreplace")?.flatten().and_then(|value| value.raw.number());
        if is_on != Some(1) {
            return Ok(false);
        }
        let config = self.config();
        for leaf in wanting.iter().filter_map(|leaf| config.vdev_tree.find(*leaf)) {
            let is_missing = status.find(leaf.guid).is_some_and(|leaf| !leaf.is_open);
            let path = leaf.path.as_deref().filter(|_| is_missing && !leaf.whole_disk);
            let Some(device) = path.and_then(|path| self.blank_device(path)) else { continue };
            let spec = LeafSpec {
                is_disk: leaf.kind == VdevKind::Disk,
                ..LeafSpec::file(leaf.path.clone().unwrap_or_default(), device)
            };
            match self.attach(leaf.guid, NewSide::Device(spec), Purpose::Replace) {
                Ok(()) => {
                    tracing::warn!(pool = self.name(), path, "a new device replaces a missing one");
                    return Ok(true);
                }
                Err(PoolError::Tx(error)) => return Err(error.into()),
                Err(error) => tracing::warn!(pool = self.name(), path, %error, "a new device is not used"),
            }
        }
        Ok(false)
    }

    /// The device at a path, if it is blank.
    fn blank_device(&self, path: &str) -> Option<Arc<dyn Device>> {
        let device = self.env.devices().open(Path::new(path), Mode::Exclusive, Access::Auto).ok()?;
        let mut first = vec![0; BLANK.min(device.size() as usize)];
        device.read_at(&mut first, DeviceOffset(0)).ok()?;
        let is_blank = first.iter().all(|byte| *byte == 0) && label::probe(&*device).is_empty();
        is_blank.then_some(device)
    }
}

/// The failed leaves of a vdev without a spare or a replacement.
fn find_wanting(node: &VdevNode, status: &VdevStatus, out: &mut Vec<VdevGuid>) {
    let state = |node: &VdevNode| status.find(node.guid).map(|vdev| vdev.state);
    match node.kind {
        VdevKind::Disk | VdevKind::File => {
            out.extend(state(node).is_some_and(has_failed).then_some(node.guid));
        }
        // The new device has, or will have, all data.
        VdevKind::Replacing => {}
        VdevKind::Spare => {
            let is_covered =
                node.children.iter().skip(1).any(|spare| state(spare) == Some(VdevState::Online));
            if !is_covered && let Some(first) = node.children.first() {
                find_wanting(first, status, out);
            }
        }
        _ => node.children.iter().for_each(|child| find_wanting(child, status, out)),
    }
}
