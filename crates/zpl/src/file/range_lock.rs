//! Locks of byte ranges of a file: many readers or one writer of each byte.
//!
//! The block layer below locks single blocks only. This lock makes a write of several blocks, or a write
//! together with the size that it sets, atomic for readers.
//!
//! The holder of a range may wait for a txg, or for a device. A request that waits for a range gives up when
//! its caller is interrupted ([`dmu::interrupt`]).

use crate::ZplError;
use crate::error::BeginError;
use crate::fs::backing::Backing;
use dmu::TxError;
use dmu::interrupt;
#[cfg(feature = "shuttle")]
use shuttle::sync::{Condvar, Mutex, MutexGuard};
use std::ops::Range;
use std::sync::PoisonError;
#[cfg(not(feature = "shuttle"))]
use std::sync::{Condvar, Mutex, MutexGuard};

/// The locked ranges of one file.
#[derive(Debug, Default)]
pub(crate) struct RangeLock {
    ranges: Mutex<Table>,
    released: Condvar,
}

#[derive(Debug, Default)]
struct Table {
    held: Vec<Held>,
    /// Number of threads that wait. Counted because a wake-up without waiters would cost each read a system
    /// call.
    waiting: usize,
}

#[derive(Debug, Clone)]
struct Held {
    range: Range<u64>,
    is_exclusive: bool,
}

/// Guard of a locked range, which it unlocks when dropped.
#[derive(Debug)]
pub(crate) struct RangeGuard<'l> {
    lock: &'l RangeLock,
    held: Held,
}

/// The ranges of a file, for locking: a wait ends when the caller is interrupted.
#[derive(Clone, Copy)]
pub(crate) struct Ranges<'l> {
    lock: &'l RangeLock,
    /// The dataset for whose txgs a holder of a range may wait.
    backing: &'l dyn Backing,
}

impl<'l> Ranges<'l> {
    /// Locks the range for one writer.
    ///
    /// # Errors
    /// Of all methods here: [`TxError::Interrupted`] if the caller of the request was interrupted.
    pub(crate) fn write(self, range: Range<u64>) -> Result<RangeGuard<'l>, ZplError> {
        self.take(Held { range, is_exclusive: true })
    }

    /// Locks the whole file for one writer.
    pub(crate) fn write_all(self) -> Result<RangeGuard<'l>, ZplError> {
        self.write(0..u64::MAX)
    }

    /// Locks the range against writers.
    pub(crate) fn read(self, range: Range<u64>) -> Result<RangeGuard<'l>, ZplError> {
        self.take(Held { range, is_exclusive: false })
    }

    fn take(self, wanted: Held) -> Result<RangeGuard<'l>, ZplError> {
        let taken = self.lock.take(wanted, || self.backing.is_suspended());
        Ok(taken.map_err(BeginError::from)?)
    }
}

impl RangeLock {
    /// The ranges for locking; their holders may wait for a txg of `backing`.
    pub(crate) fn of<'l>(&'l self, backing: &'l dyn Backing) -> Ranges<'l> {
        Ranges { lock: self, backing }
    }

    fn ranges(&self) -> MutexGuard<'_, Table> {
        // Consistent between any two statements that can panic.
        self.ranges.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, wanted: Held, is_suspended: impl Fn() -> bool) -> Result<RangeGuard<'_>, TxError> {
        let conflicts = |held: &Held| {
            (held.is_exclusive || wanted.is_exclusive)
                && held.range.start < wanted.range.end
                && wanted.range.start < held.range.end
        };
        let mut ranges = self.ranges();
        while ranges.held.iter().any(conflicts) {
            if interrupt::ends(is_suspended()) {
                return Err(TxError::Interrupted);
            }
            ranges.waiting += 1;
            ranges = match interrupt::look_again() {
                Some(time) => {
                    self.released.wait_timeout(ranges, time).unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.released.wait(ranges).unwrap_or_else(PoisonError::into_inner),
            };
            ranges.waiting -= 1;
        }
        ranges.held.push(wanted.clone());
        drop(ranges);
        Ok(RangeGuard { lock: self, held: wanted })
    }
}

impl Drop for RangeGuard<'_> {
    fn drop(&mut self) {
        let mut ranges = self.lock.ranges();
        let same = |held: &Held| held.range == self.held.range && held.is_exclusive == self.held.is_exclusive;
        if let Some(index) = ranges.held.iter().position(same) {
            ranges.held.swap_remove(index);
        }
        let is_awaited = ranges.waiting > 0;
        drop(ranges);
        if is_awaited {
            self.lock.released.notify_all();
        }
    }
}

/// `cargo test -p cenote-zpl --features shuttle --lib every_order`
#[cfg(all(test, feature = "shuttle"))]
mod every_order {
    use super::*;
    use shuttle::sync::atomic::{AtomicU64, Ordering};
    use std::sync::Arc;

    const BYTES: usize = 6;

    /// Holders of each byte: a reader counts 1, a writer 1000.
    #[test]
    fn a_writer_is_alone_and_everybody_gets_through() {
        shuttle::check_random(
            || {
                let lock = Arc::new(RangeLock::default());
                let users: Arc<[AtomicU64; BYTES]> = Arc::new(std::array::from_fn(|_| AtomicU64::new(0)));
                let threads: Vec<_> = (0..4_u64)
                    .map(|t| {
                        let (lock, users) = (Arc::clone(&lock), Arc::clone(&users));
                        shuttle::thread::spawn(move || {
                            for round in 0..3 {
                                let start = (t + round) % 4;
                                let range = start..start + 1 + (t + round) % 3;
                                let is_writer = (t + round) % 2 == 0;
                                let wanted = Held { range: range.clone(), is_exclusive: is_writer };
                                let _held = lock.take(wanted, || false).expect("nobody ends it");
                                let mine = if is_writer { 1000 } else { 1 };
                                for byte in range.clone() {
                                    let before = users[byte as usize].fetch_add(mine, Ordering::SeqCst);
                                    assert!(before < if is_writer { 1 } else { 1000 }, "{before} at {byte}");
                                }
                                shuttle::thread::yield_now();
                                for byte in range {
                                    users[byte as usize].fetch_sub(mine, Ordering::SeqCst);
                                }
                            }
                        })
                    })
                    .collect();
                threads.into_iter().for_each(|thread| thread.join().expect("thread"));
            },
            500,
        );
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;
    use dmu::interrupt::Interrupt;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    impl RangeLock {
        fn taken(&self, range: Range<u64>, is_exclusive: bool) -> Result<RangeGuard<'_>, TxError> {
            self.take(Held { range, is_exclusive }, || false)
        }
    }

    #[test]
    fn readers_share_and_writers_wait() {
        let lock = Arc::new(RangeLock::default());
        let one = lock.taken(0..100, false).expect("free");
        let two = lock.taken(50..150, false).expect("free");
        let elsewhere = lock.taken(200..300, true).expect("free");
        let done = Arc::new(AtomicBool::new(false));
        let writer = std::thread::spawn({
            let (lock, done) = (Arc::clone(&lock), Arc::clone(&done));
            move || {
                let _all = lock.taken(0..u64::MAX, true).expect("nobody ends it");
                done.store(true, Ordering::SeqCst);
            }
        });
        drop(one);
        drop(elsewhere);
        assert!(!done.load(Ordering::SeqCst));
        drop(two);
        writer.join().expect("writer");
        assert!(done.load(Ordering::SeqCst));
    }

    #[test]
    fn a_wait_for_a_range_ends_with_the_program_that_wants_it() {
        let lock = RangeLock::default();
        let held = lock.taken(0..100, true).expect("free");
        let killed = Interrupt::new(7, |_| true);
        killed.signal();
        let gave_up = killed.during(|| lock.taken(50..60, false).err());
        assert_eq!(gave_up, Some(TxError::Interrupted));
        drop(held);
        assert!(lock.taken(0..u64::MAX, true).is_ok(), "whoever gave up holds nothing");
        assert_eq!(lock.ranges().waiting, 0);
    }
}
