//! Multihost protection: uberblocks that continuously show other machines that the pool is in use
//! (docs/on-disk/11-labels-config.md, section 6).
//!
//! # What always holds
//! - While the property is on, every uberblock has the expected interval of writes; the last slot of each
//!   ring is for the writes between txgs.
//! - If no such write succeeds for too long, the pool is suspended, because another machine may have taken
//!   it.

use format::uberblock::Mmp as MmpWords;
use format::{Txg, VdevGuid};
use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use vdev::sync::lock;
use vdev::tunable::Tunable;

/// Milliseconds in which every leaf is written once.
pub static MULTIHOST_INTERVAL: Tunable = Tunable::new("zfs_multihost_interval", 1000, 100, (1 << 24) - 1);
/// Intervals without a successful write after which the pool is suspended; 0: it never is.
pub static MULTIHOST_FAIL_INTERVALS: Tunable =
    Tunable::new("zfs_multihost_fail_intervals", 10, 0, (1 << 16) - 1);
/// Number of multihost writes that are recorded.
pub static MULTIHOST_HISTORY: Tunable = Tunable::new("zfs_multihost_history", 0, 0, 1 << 16);

/// A multihost write, or one that was due and could not start: a line of the kstat file `multihost`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MmpRecord {
    /// Number of the write since the pool was opened, counted from 1.
    pub id: u64,
    /// Txg of the uberblock that was written.
    pub txg: Txg,
    /// Time of the uberblock, in seconds since 1970.
    pub timestamp: u64,
    /// Linux error number; 0: the write succeeded.
    pub error: i32,
    /// Duration of the write.
    pub duration: Duration,
    /// Average time between writes, as the uberblock has it.
    pub mmp_delay: Duration,
    /// The leaf and its label. `None`: no leaf could be written.
    pub target: Option<MmpTarget>,
}

/// Destination of a multihost write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MmpTarget {
    /// Guid of the leaf.
    pub vdev: VdevGuid,
    /// Number of the label, 0 to 3.
    pub label: usize,
    /// Path of the leaf in the configuration.
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
    pub(crate) delay: AtomicU64,
    /// Time of the last successful write, in nanoseconds of the monotonic clock.
    pub(crate) succeeded: AtomicU64,
    /// The silence allowed at that time, in nanoseconds; 0: any. A shorter limit does not apply to it.
    pub(crate) allowed: AtomicU64,
    history: Mutex<History>,
}

pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl Mmp {
    /// Turns multihost writes on or off.
    pub(crate) fn set(&self, is_on: bool, now: Duration) {
        self.note_success(now);
        self.delay.store(MULTIHOST_INTERVAL.get() * 1_000_000, Ordering::Relaxed);
        self.is_on.store(is_on, Ordering::Release);
    }

    pub(crate) fn note_success(&self, now: Duration) {
        let allowed = MULTIHOST_INTERVAL.get() * MULTIHOST_FAIL_INTERVALS.get() * 1_000_000;
        self.allowed.store(allowed, Ordering::Relaxed);
        self.succeeded.store(nanos(now), Ordering::Relaxed);
    }

    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Acquire)
    }

    /// The last multihost writes, oldest first.
    pub(crate) fn records(&self) -> Vec<MmpRecord> {
        lock(&self.history).last.iter().cloned().collect()
    }

    pub(crate) fn remember(&self, mut record: MmpRecord) {
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

    /// Words of multihost protection in the uberblock of a txg. The sequence starts again.
    pub(crate) fn words_of_txg(&self) -> MmpWords {
        self.sequence.store(0, Ordering::Relaxed);
        self.words(0)
    }

    /// Words of multihost protection in a write between txgs in this second.
    pub(crate) fn next_words(&self, second: u64) -> MmpWords {
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
