//! Multihost protection: showing other machines that the pool is in use, all the time
//! (docs/on-disk/11-labels-config.md, section 6).
//!
//! # What always holds
//! - While the property is on, every uberblock says how often writes are to be expected; the last slot of
//!   each ring belongs to the writes between txgs.
//! - If for too long no such write succeeds, the pool is suspended: another machine may have taken it.

use super::{LivePool, labels, lock};
use crate::PoolError;
use dmu::live::TxError;
use format::label::{LABELS, ring_slots};
use format::uberblock::{Mmp as MmpWords, Uberblock};
use format::{Ashift, VdevGuid};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use vdev::label_write::write_uberblock;
use vdev::tunable::Tunable;

/// Milliseconds in which every leaf is written once.
pub static MULTIHOST_INTERVAL: Tunable = Tunable::new("zfs_multihost_interval", 1000, 100, (1 << 24) - 1);
/// Intervals without a successful write after which the pool is suspended; 0: it never is.
pub static MULTIHOST_FAIL_INTERVALS: Tunable =
    Tunable::new("zfs_multihost_fail_intervals", 10, 0, (1 << 16) - 1);

/// State of the writes between txgs.
#[derive(Debug, Default)]
pub(crate) struct Mmp {
    is_on: AtomicBool,
    sequence: AtomicU64,
    /// Second of the last write.
    second: AtomicU64,
    /// Average of the nanoseconds between writes.
    delay: AtomicU64,
    /// When a write last succeeded, in nanoseconds of the monotonic clock.
    succeeded: AtomicU64,
    /// The silence that was allowed then, in nanoseconds; 0: any. Who makes it shorter does not find it passed.
    allowed: AtomicU64,
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl Mmp {
    /// Turns it on or off.
    pub(crate) fn set(&self, is_on: bool, now: Duration) {
        self.note_success(now);
        self.delay.store(MULTIHOST_INTERVAL.get() * 1_000_000, Ordering::Relaxed);
        self.is_on.store(is_on, Ordering::Release);
    }

    fn note_success(&self, now: Duration) {
        let allowed = MULTIHOST_INTERVAL.get() * MULTIHOST_FAIL_INTERVALS.get() * 1_000_000;
        self.allowed.store(allowed, Ordering::Relaxed);
        self.succeeded.store(nanos(now), Ordering::Relaxed);
    }

    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Acquire)
    }

    fn words(&self, sequence: u64) -> MmpWords {
        if !self.is_on() {
            return MmpWords::default();
        }
        let (interval, fails) = (MULTIHOST_INTERVAL.get(), MULTIHOST_FAIL_INTERVALS.get());
        let config = 0b111 | interval << 8 | (sequence & 0xffff) << 32 | fails << 48;
        MmpWords { delay_ns: self.delay.load(Ordering::Relaxed).max(1), config }
    }

    /// What the uberblock of a txg says. The sequence starts again.
    pub(crate) fn words_of_txg(&self) -> MmpWords {
        self.sequence.store(0, Ordering::Relaxed);
        self.words(0)
    }

    /// What a write between txgs in this second says.
    fn next_words(&self, second: u64) -> MmpWords {
        let sequence = match self.second.swap(second, Ordering::Relaxed) == second {
            true => self.sequence.fetch_add(1, Ordering::Relaxed) + 1,
            false => {
                self.sequence.store(1, Ordering::Relaxed);
                1
            }
        };
        self.words(sequence)
    }
}

fn too_late() -> TxError {
    TxError::Suspended { why: "no multihost write succeeded in time".to_owned() }
}

impl LivePool {
    /// How long to wait between two calls of [`LivePool::mmp_write`]; `None`: multihost is off.
    pub(crate) fn mmp_pause(&self) -> Option<Duration> {
        let leaves = self.tree().leaf_guids().len().max(1) as u64;
        self.mmp.is_on().then(|| Duration::from_millis((MULTIHOST_INTERVAL.get() / leaves).max(1)))
    }

    /// Writes one leaf, in one label: the pool is alive.
    ///
    /// # Errors
    /// If no write has succeeded for too long: the pool is suspended then.
    pub(crate) fn mmp_write(&self) -> Result<(), PoolError> {
        let config = self.config();
        let mut leaves: Vec<(VdevGuid, Ashift)> = Vec::new();
        for top in &config.vdev_tree.children {
            let ashift = top.ashift.unwrap_or(Ashift(9));
            leaves.extend(labels::writable_leaves(top).map(|leaf| (leaf.guid, ashift)));
        }
        let now = self.env.clock().monotonic();
        let chosen = leaves.get((self.env.random() % leaves.len().max(1) as u64) as usize);
        let is_written = chosen.is_some_and(|(guid, ashift)| self.mmp_write_to(*guid, *ashift));
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

    /// Asks, before a txg becomes the state of the pool, whether another machine may have taken the pool.
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

    fn mmp_write_to(&self, guid: VdevGuid, ashift: Ashift) -> bool {
        let Some(device) = self.tree().device(guid) else { return false };
        let second = self.env.clock().wall().as_secs();
        let uberblock =
            Uberblock { timestamp: second, mmp: Some(self.mmp.next_words(second)), ..self.uberblock() };
        let label = (self.env.random() % LABELS as u64) as usize;
        let slot = ring_slots(ashift) as u64 - 1;
        write_uberblock(&*device, label, ashift, slot, &uberblock).is_ok()
    }
}
