//! Large buffers: records of files, and what is read and written at once.
//!
//! Most of them are made by one thread and dropped by another: who writes a file makes a record, and the cache drops it
//! when somebody else needs room. mimalloc gives each thread pages of its own, 4 MiB for each size, and a page
//! stays as long as one buffer of it does; with thirty threads a process then takes twice what it holds. Here all
//! threads share the buffers of a size.
//!
//! # What always holds
//! - A buffer begins at a page of the system, so devices take it as it is.
//! - Buffers of one size lie behind each other in [`CHUNK`]s that are never given back; their memory is: at once
//!   where [`Large::kept_max`] bytes lie idle, and what was not needed for a whole period at its end.
//! - Nothing here allocates.

use crate::system;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Buffers of more bytes are large,
const LEAST: usize = 32 << 10;
/// up to so many.
const MOST: usize = 2 << 20;
/// Sizes between a power of two and the next.
const STEPS: usize = 4;
const CLASSES: usize = STEPS * (MOST / LEAST).ilog2() as usize;
/// Bytes of addresses that are taken at once: a multiple of the largest page of the system.
const CHUNK: usize = 64 << 20;

/// The first bytes of a buffer that nobody has.
struct Link {
    next: *mut Link,
}

/// Buffers of one size that nobody has.
struct Free {
    /// Those whose memory was kept, the last one first.
    warm: *mut Link,
    warm_count: usize,
    /// As few as there were since the period began.
    warm_least: usize,
    /// Those whose memory was given back, but for the page with the link.
    cold: *mut Link,
    /// What is left of the chunk.
    rest: *mut u8,
    rest_len: usize,
    /// When the period began.
    since: Option<Instant>,
}

// SAFETY: the buffers on the lists belong to whoever has the lists.
unsafe impl Send for Free {}

impl Free {
    const NONE: Free = Free {
        warm: ptr::null_mut(),
        warm_count: 0,
        warm_least: 0,
        cold: ptr::null_mut(),
        rest: ptr::null_mut(),
        rest_len: 0,
        since: None,
    };
}

/// How much of a fresh buffer is zeros.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Zeros {
    All,
    AllButLink,
    Unknown,
}

/// The large buffers of a process.
pub(crate) struct Large {
    classes: [Mutex<Free>; CLASSES],
    /// Bytes of buffers that nobody has, and whose memory was kept.
    kept: AtomicUsize,
    kept_max: AtomicUsize,
    period_ms: AtomicUsize,
    /// Bytes of buffers that somebody has.
    held: AtomicUsize,
}

/// The class of a size, and the bytes of its buffers; `None`: it is not large.
fn class_of(size: usize) -> Option<(usize, usize)> {
    if size <= LEAST || size > MOST {
        return None;
    }
    let below = 1 << (size - 1).ilog2();
    let step = below / STEPS;
    let steps = (size - below).div_ceil(step);
    let class = STEPS * (below / LEAST).ilog2() as usize + steps - 1;
    Some((class, below + steps * step))
}

/// Whether buffers of these two sizes are of the same class.
pub(crate) fn is_same(one: usize, other: usize) -> bool {
    class_of(one).is_some_and(|class| class_of(other) == Some(class))
}

/// Whether buffers of this size and alignment are made here.
pub(crate) fn is_large(size: usize, align: usize) -> bool {
    size > LEAST && size <= MOST && align <= system::PAGE
}

impl Large {
    /// None yet.
    pub(crate) const fn new() -> Large {
        Large {
            classes: [const { Mutex::new(Free::NONE) }; CLASSES],
            kept: AtomicUsize::new(0),
            kept_max: AtomicUsize::new(usize::MAX),
            period_ms: AtomicUsize::new(10_000),
            held: AtomicUsize::new(0),
        }
    }

    /// How many bytes may lie idle, and for how long.
    pub(crate) fn keep(&self, bytes: usize, period: Duration) {
        self.kept_max.store(bytes, Ordering::Relaxed);
        self.period_ms.store(usize::try_from(period.as_millis()).unwrap_or(usize::MAX), Ordering::Relaxed);
    }

    fn period(&self) -> Duration {
        Duration::from_millis(self.period_ms.load(Ordering::Relaxed) as u64)
    }

    fn free(&self, class: usize) -> MutexGuard<'_, Free> {
        // Nothing below panics while it holds the lock.
        self.classes[class].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A buffer of at least `size` bytes; null if there is no memory. `zeroed`: all of them are zeros.
    pub(crate) fn take(&self, size: usize, zeroed: bool) -> *mut u8 {
        let Some((class, len)) = class_of(size) else { return ptr::null_mut() };
        let Some((buffer, zeros)) = self.find(class, len) else { return ptr::null_mut() };
        self.held.fetch_add(len, Ordering::Relaxed);
        let dirty = match zeros {
            Zeros::All => 0,
            Zeros::AllButLink => size_of::<Link>(),
            Zeros::Unknown => size,
        };
        if zeroed {
            // SAFETY: the buffer is ours and longer than that.
            unsafe { buffer.as_ptr().write_bytes(0, dirty) };
        }
        buffer.as_ptr()
    }

    fn find(&self, class: usize, len: usize) -> Option<(NonNull<u8>, Zeros)> {
        let mut free = self.free(class);
        if let Some(link) = NonNull::new(free.warm) {
            // SAFETY: buffers on a list begin with a link.
            free.warm = unsafe { link.as_ref() }.next;
            free.warm_count -= 1;
            free.warm_least = free.warm_least.min(free.warm_count);
            self.kept.fetch_sub(len, Ordering::Relaxed);
            return Some((link.cast(), Zeros::Unknown));
        }
        if let Some(link) = NonNull::new(free.cold) {
            // SAFETY: as above.
            free.cold = unsafe { link.as_ref() }.next;
            return Some((link.cast(), Zeros::AllButLink));
        }
        if free.rest_len < len {
            free.rest = system::map(CHUNK)?.as_ptr();
            free.rest_len = CHUNK;
        }
        let buffer = NonNull::new(free.rest)?;
        free.rest_len -= len;
        // SAFETY: the chunk has so many bytes more.
        free.rest = unsafe { free.rest.add(len) };
        Some((buffer, Zeros::All))
    }

    /// Takes a buffer back.
    ///
    /// # Safety
    /// `buffer` came from [`Large::take`] of the same value with a size of the same class, and nobody uses it any more.
    pub(crate) unsafe fn give_back(&self, buffer: *mut u8, size: usize) {
        let Some((class, len)) = class_of(size) else { return };
        self.held.fetch_sub(len, Ordering::Relaxed);
        let link: *mut Link = buffer.cast();
        if self.kept.load(Ordering::Relaxed) >= self.kept_max.load(Ordering::Relaxed) {
            // SAFETY: the buffer is ours now; no lock is held while the kernel takes its pages.
            unsafe { system::discard(buffer, len) };
            let mut free = self.free(class);
            // SAFETY: the buffer is ours, long enough, and aligned to a page.
            unsafe { link.write(Link { next: free.cold }) };
            free.cold = link;
            return;
        }
        self.kept.fetch_add(len, Ordering::Relaxed);
        let mut free = self.free(class);
        // SAFETY: as above.
        unsafe { link.write(Link { next: free.warm }) };
        free.warm = link;
        free.warm_count += 1;
        let now = Instant::now();
        match free.since {
            Some(since) if now.duration_since(since) < self.period() => {}
            Some(_) => self.end_period(&mut free, len, now),
            None => free.since = Some(now),
        }
    }

    /// Gives back the memory of what was not needed since the period began.
    fn end_period(&self, free: &mut Free, len: usize, now: Instant) {
        for _ in 0..free.warm_least.min(free.warm_count) {
            let Some(link) = NonNull::new(free.warm) else { break };
            // SAFETY: buffers on a list begin with a link.
            free.warm = unsafe { link.as_ref() }.next;
            free.warm_count -= 1;
            self.kept.fetch_sub(len, Ordering::Relaxed);
            // SAFETY: the buffer is on no list any more, and of this length.
            unsafe { system::discard(link.as_ptr().cast(), len) };
            // SAFETY: as above.
            unsafe { link.as_ptr().write(Link { next: free.cold }) };
            free.cold = link.as_ptr();
        }
        free.warm_least = free.warm_count;
        free.since = Some(now);
    }

    /// Ends the periods that are over: where nothing is given back any more nobody else does.
    pub(crate) fn tidy(&self, now: Instant) {
        for class in 0..CLASSES {
            let below = LEAST << (class / STEPS);
            let len = below + (class % STEPS + 1) * (below / STEPS);
            let mut free = self.free(class);
            if free.since.is_some_and(|since| now.duration_since(since) >= self.period()) {
                self.end_period(&mut free, len, now);
            }
        }
    }

    /// Bytes of buffers that somebody has, and of those whose memory was kept although nobody has them.
    pub(crate) fn bytes(&self) -> (usize, usize) {
        (self.held.load(Ordering::Relaxed), self.kept.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(large: &Large, size: usize) -> usize {
        let buffer = large.take(size, false);
        assert!(!buffer.is_null() && buffer.align_offset(system::PAGE) == 0);
        buffer as usize
    }

    fn give_back(large: &Large, buffer: usize, size: usize) {
        // SAFETY: the tests give back what they took, with its size, once.
        unsafe { large.give_back(buffer as *mut u8, size) };
    }

    #[test]
    fn a_class_has_room_for_its_sizes_and_wastes_little() {
        let mut last = (0, LEAST);
        for size in (LEAST + 1..=MOST).step_by(511).chain([LEAST + 1, 128 << 10, 1 << 20, MOST]) {
            let (class, len) = class_of(size).unwrap();
            assert!(class < CLASSES && len >= size && len - size < size / 4 + 1, "{size}: {len}");
            assert!(len.is_multiple_of(system::PAGE));
            if size > last.1 && class != last.0 {
                last = (class, len);
            }
        }
        assert_eq!(class_of(128 << 10), Some((7, 128 << 10)), "records fit exactly");
        assert_eq!((class_of(LEAST), class_of(MOST + 1)), (None, None));
    }

    #[test]
    fn what_one_thread_drops_another_takes() {
        let large = Large::new();
        let size = 128 << 10;
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..8 {
            let taken: Vec<usize> = std::thread::scope(|scope| {
                let one = || (0..4).map(|_| take(&large, size)).collect::<Vec<_>>();
                let threads: Vec<_> = (0..4).map(|_| scope.spawn(one)).collect();
                threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
            });
            seen.extend(taken.iter().copied());
            taken.into_iter().for_each(|buffer| give_back(&large, buffer, size));
        }
        assert_eq!(seen.len(), 16, "the same buffers each time");
        assert_eq!(large.bytes(), (0, 16 * size));
    }

    #[test]
    fn no_more_is_kept_than_may_be() {
        let large = Large::new();
        let size = 64 << 10;
        large.keep(3 * size, Duration::from_secs(1000));
        let taken: Vec<usize> = (0..9).map(|_| take(&large, size)).collect();
        taken.into_iter().for_each(|buffer| give_back(&large, buffer, size));
        assert_eq!(large.bytes(), (0, 3 * size));
    }

    #[test]
    fn what_nobody_needs_for_a_period_is_given_back() {
        let large = Large::new();
        let size = 256 << 10;
        let taken: Vec<usize> = (0..9).map(|_| take(&large, size)).collect();
        taken.into_iter().for_each(|buffer| give_back(&large, buffer, size));
        let later = |periods| Instant::now() + periods * large.period();
        large.tidy(Instant::now());
        assert_eq!(large.bytes().1, 9 * size, "the period is not over");
        // Of the first period it is not known: it began without any.
        large.tidy(later(1));
        assert_eq!(large.bytes().1, 9 * size);
        let (one, two) = (take(&large, size), take(&large, size));
        give_back(&large, one, size);
        give_back(&large, two, size);
        large.tidy(later(2));
        assert_eq!(large.bytes().1, 2 * size, "two were needed");
        large.tidy(later(3));
        assert_eq!(large.bytes().1, 0);
    }

    #[test]
    fn zeros_are_zeros_wherever_a_buffer_comes_from() {
        let large = Large::new();
        let size = 100_000;
        for kept_max in [usize::MAX, 0] {
            large.keep(kept_max, Duration::from_secs(1000));
            for _ in 0..3 {
                let buffer = large.take(size, true);
                // SAFETY: the buffer has so many bytes, and they are initialised.
                let bytes = unsafe { std::slice::from_raw_parts_mut(buffer, size) };
                assert!(bytes.iter().all(|byte| *byte == 0));
                bytes.fill(7);
                give_back(&large, buffer as usize, size);
            }
        }
    }
}
