//! Multihost protection: showing other machines that the pool is in use, all the time
//! (docs/on-disk/11-labels-config.md, section 6).
//!
//! # What always holds
//! - While the property is on, every uberblock says how often writes are to be expected; the last slot of
//!   each ring belongs to the writes between txgs.
//! - If for too long no such write succeeds, the pool is suspended: another machine may have taken it.

use crate::PoolError;
use crate::labels;
use crate::live::{LivePool, lock};
use dmu::TxError;
use format::config::VdevNode;
use format::label::{LABELS, ring_slots};
use format::uberblock::{Mmp as MmpWords, Uberblock};
use format::{Ashift, Txg, VdevGuid};
use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use vdev::label_write::write_uberblock;
use vdev::tunable::Tunable;

/// Milliseconds in which every leaf is written once.
pub static MULTIHOST_INTERVAL: Tunable = Tunable::new("zfs_multihost_interval", 1000, 100, (1 << 24) - 1);
/// Intervals without a successful write after which the pool is suspended; 0: it never is.
pub static MULTIHOST_FAIL_INTERVALS: Tunable =
    Tunable::new("zfs_multihost_fail_intervals", 10, 0, (1 << 16) - 1);
/// Error numbers of Linux that [`MmpRecord::error`] has.
const EIO: i32 = 5;
const ENXIO: i32 = 6;

/// So many multihost writes are remembered.
pub static MULTIHOST_HISTORY: Tunable = Tunable::new("zfs_multihost_history", 0, 0, 1 << 16);

/// A multihost write, or one that was due and could not be begun: a line of the kstat file `multihost`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MmpRecord {
    /// Counts the writes since the pool was opened, from 1 on.
    pub id: u64,
    /// Txg of the uberblock.
    pub txg: Txg,
    /// Seconds since 1970, as the uberblock has them.
    pub timestamp: u64,
    /// Error number; 0: it was written.
    pub error: i32,
    /// How long it took.
    pub duration: Duration,
    /// The average time between writes that the uberblock tells.
    pub mmp_delay: Duration,
    /// The leaf and its label. `None`: no leaf could be written.
    pub target: Option<MmpTarget>,
}

/// Where a multihost write went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MmpTarget {
    /// The leaf.
    pub vdev: VdevGuid,
    /// Which of its four labels.
    pub label: usize,
    /// Path of the leaf, as its label has it.
    pub path: String,
}

/// The last multihost writes of a pool.
#[derive(Debug, Default)]
struct History {
    last: VecDeque<MmpRecord>,
    count: u64,
}

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
    history: Mutex<History>,
}

/// A leaf that takes multihost writes.
struct Leaf {
    guid: VdevGuid,
    ashift: Ashift,
    path: String,
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

    fn remember(&self, mut record: MmpRecord) {
        let mut history = lock(&self.history);
        history.count += 1;
        record.id = history.count;
        history.last.push_back(record);
        let over = history.last.len().saturating_sub(MULTIHOST_HISTORY.get() as usize);
        history.last.drain(..over);
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

    /// The last multihost writes, oldest first.
    pub fn multihost_history(&self) -> Vec<MmpRecord> {
        lock(&self.mmp.history).last.iter().cloned().collect()
    }

    /// Writes an uberblock to a leaf, and remembers how it went. Says whether it is written.
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
