//! Locks of ranges of a file's bytes: many readers or one writer of each byte.
//!
//! The block layer below locks single blocks only; that a write of several blocks, or a write and the size
//! that belongs to it, is seen whole is this lock's business.

#[cfg(feature = "shuttle")]
use shuttle::sync::{Condvar, Mutex, MutexGuard};
use std::ops::Range;
use std::sync::PoisonError;
#[cfg(not(feature = "shuttle"))]
use std::sync::{Condvar, Mutex, MutexGuard};

/// The ranges of one file that are locked.
#[derive(Debug, Default)]
pub(super) struct RangeLock {
    ranges: Mutex<Ranges>,
    released: Condvar,
}

#[derive(Debug, Default)]
struct Ranges {
    held: Vec<Held>,
    /// Threads that sleep until something is released. To call nobody would cost each read a call to the system.
    waiting: usize,
}

#[derive(Debug, Clone)]
struct Held {
    range: Range<u64>,
    is_exclusive: bool,
}

/// A range that is locked, until it is dropped.
#[derive(Debug)]
pub(super) struct RangeGuard<'l> {
    lock: &'l RangeLock,
    held: Held,
}

impl RangeLock {
    /// Locks the range against everybody else.
    pub(super) fn write(&self, range: Range<u64>) -> RangeGuard<'_> {
        self.take(Held { range, is_exclusive: true })
    }

    /// Locks everything against everybody else.
    pub(super) fn write_all(&self) -> RangeGuard<'_> {
        self.write(0..u64::MAX)
    }

    /// Locks the range against writers.
    pub(super) fn read(&self, range: Range<u64>) -> RangeGuard<'_> {
        self.take(Held { range, is_exclusive: false })
    }

    fn ranges(&self) -> MutexGuard<'_, Ranges> {
        // Whole between any two statements that can panic.
        self.ranges.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, wanted: Held) -> RangeGuard<'_> {
        let conflicts = |held: &Held| {
            (held.is_exclusive || wanted.is_exclusive)
                && held.range.start < wanted.range.end
                && wanted.range.start < held.range.end
        };
        let mut ranges = self.ranges();
        while ranges.held.iter().any(conflicts) {
            ranges.waiting += 1;
            ranges = self.released.wait(ranges).unwrap_or_else(PoisonError::into_inner);
            ranges.waiting -= 1;
        }
        ranges.held.push(wanted.clone());
        drop(ranges);
        RangeGuard { lock: self, held: wanted }
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

    /// Who is at each byte: readers count one each, a writer a thousand.
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
                                let _held = if is_writer {
                                    lock.write(range.clone())
                                } else {
                                    lock.read(range.clone())
                                };
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
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn readers_share_and_writers_wait() {
        let lock = Arc::new(RangeLock::default());
        let one = lock.read(0..100);
        let two = lock.read(50..150);
        let elsewhere = lock.write(200..300);
        let done = Arc::new(AtomicBool::new(false));
        let writer = std::thread::spawn({
            let (lock, done) = (Arc::clone(&lock), Arc::clone(&done));
            move || {
                let _all = lock.write_all();
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
}
