//! The multihost writes between txgs (`mmp`), and the suspension of a pool when they fail for too long.

use crate::error::PoolError;
use crate::labels;
use crate::live::LivePool;
use crate::mmp::{MULTIHOST_INTERVAL, MmpRecord, MmpTarget, nanos};
use dmu::TxError;
use format::config::VdevNode;
use format::label::{LABELS, ring_slots};
use format::uberblock::Uberblock;
use format::{Ashift, VdevGuid};
use std::sync::atomic::Ordering;
use std::time::Duration;
use vdev::label_write::write_uberblock;
use vdev::sync::lock;

/// Linux error numbers in [`MmpRecord::error`].
const EIO: i32 = 5;
const ENXIO: i32 = 6;

/// A leaf that takes multihost writes.
struct Leaf {
    guid: VdevGuid,
    ashift: Ashift,
    path: String,
}

fn too_late() -> TxError {
    TxError::Suspended { why: "no multihost write succeeded in time".to_owned() }
}

impl LivePool {
    /// Pause between two calls of [`LivePool::mmp_write`]; `None`: multihost is off.
    pub(crate) fn mmp_pause(&self) -> Option<Duration> {
        let leaves = self.tree().leaf_guids().len().max(1) as u64;
        self.mmp.is_on().then(|| Duration::from_millis((MULTIHOST_INTERVAL.get() / leaves).max(1)))
    }

    /// Writes an uberblock to one label of one leaf, which shows that the pool is in use.
    ///
    /// # Errors
    /// [`PoolError::Tx`] if no write has succeeded for too long: the pool is suspended then.
    pub(crate) fn mmp_write(&self) -> Result<(), PoolError> {
        let config = self.config();
        let mut leaves: Vec<Leaf> = Vec::new();
        for top in &config.vdev_tree.children {
            let ashift = top.ashift.unwrap_or(Ashift(9));
            let of = |leaf: &VdevNode| Leaf {
                guid: leaf.guid,
                ashift,
                path: leaf.path.clone().unwrap_or_default(),
            };
            leaves.extend(labels::writable_leaves(top).map(of));
        }
        let now = self.env.clock().monotonic();
        let chosen = leaves.get((self.env.random() % leaves.len().max(1) as u64) as usize);
        let is_written = self.mmp_write_to(chosen);
        let last = self.mmp.succeeded.load(Ordering::Relaxed);
        if is_written {
            let took = nanos(now).saturating_sub(last);
            let average = self.mmp.delay.load(Ordering::Relaxed);
            self.mmp.delay.store((average / 128 * 127 + took / 128).max(1), Ordering::Relaxed);
            self.mmp.note_success(now);
            return Ok(());
        }
        self.mmp_check().inspect_err(|_| self.txgs.fail(too_late()))
    }

    /// Checks, before a txg is committed, that no other machine may have taken the pool.
    ///
    /// # Errors
    /// [`TxError::Suspended`] if no write has succeeded for too long.
    pub(crate) fn mmp_check(&self) -> Result<(), PoolError> {
        let last = self.mmp.succeeded.load(Ordering::Relaxed);
        let silence = nanos(self.env.clock().monotonic()).saturating_sub(last);
        let allowed = self.mmp.allowed.load(Ordering::Relaxed);
        let is_late = self.mmp.is_on() && allowed > 0 && silence > allowed;
        if is_late && lock(&self.runtime).is_some() { Err(too_late().into()) } else { Ok(()) }
    }

    /// The last multihost writes, oldest first.
    pub fn multihost_history(&self) -> Vec<MmpRecord> {
        self.mmp.records()
    }

    /// Writes an uberblock to a leaf, and records the result. Returns whether it was written.
    fn mmp_write_to(&self, leaf: Option<&Leaf>) -> bool {
        let clock = self.env.clock();
        let second = clock.wall().as_secs();
        let uberblock =
            Uberblock { timestamp: second, mmp: Some(self.mmp.next_words(second)), ..self.uberblock() };
        let label = (self.env.random() % LABELS as u64) as usize;
        let began = clock.monotonic();
        let device = leaf.and_then(|leaf| Some((leaf, self.tree().device(leaf.guid)?)));
        let written = device.as_ref().map(|(leaf, device)| {
            let slot = ring_slots(leaf.ashift) as u64 - 1;
            write_uberblock(&**device, label, leaf.ashift, slot, &uberblock)
        });
        let error = match &written {
            Some(Ok(())) => 0,
            Some(Err(_)) => EIO,
            None => ENXIO,
        };
        let target = device.map(|(leaf, _)| MmpTarget { vdev: leaf.guid, label, path: leaf.path.clone() });
        self.mmp.remember(MmpRecord {
            id: 0,
            txg: uberblock.txg,
            timestamp: second,
            error,
            duration: clock.monotonic().saturating_sub(began),
            mmp_delay: Duration::from_nanos(self.mmp.delay.load(Ordering::Relaxed)),
            target,
        });
        error == 0
    }
}
