//! Large buffers: file records and the buffers of large reads and writes.
//!
//! Most large buffers are allocated by one thread and freed by another: a writer allocates a record, and the
//! cache frees it when it evicts. mimalloc gives each thread its own pages, 4 MiB for each size class, and a
//! page stays mapped as long as one of its buffers is in use; with thirty threads a process then maps twice
//! the memory that it uses. This module shares the buffers of a size class among all threads.
//!
//! # What always holds
//! - A buffer starts at a page boundary, so direct device I/O can use it without a copy.
//! - Buffers of one size class are carved from [`CHUNK`]s whose addresses are never unmapped. Their pages go
//!   back to the system in two cases: immediately when [`Large::kept_max`] free bytes are resident already,
//!   and at the end of a period for buffers that stayed free during the whole period.
//! - No function of this module allocates.

use crate::system;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Maximum size in bytes that is left to mimalloc.
const SMALL_MAX: usize = 32 << 10;
/// Maximum size in bytes that this module serves; larger requests go to mimalloc.
const LARGE_MAX: usize = 2 << 20;
/// Number of size classes between a power of two and the next.
const STEPS: usize = 4;
const CLASSES: usize = STEPS * (LARGE_MAX / SMALL_MAX).ilog2() as usize;
/// Size in bytes of a mapping: a multiple of the largest page size of the system.
const CHUNK: usize = 64 << 20;

/// The header written into a free buffer: the next one on its list.
struct Link {
    next: *mut Link,
}

/// The free buffers of one size class.
struct Free {
    /// Free buffers with resident pages; the last freed buffer is first.
    warm: *mut Link,
    warm_count: usize,
    /// The smallest `warm_count` since the period began.
    warm_least: usize,
    /// Free buffers whose pages were given back to the system, except the page with the link.
    cold: *mut Link,
    /// The unused rest of the newest chunk.
    rest: *mut u8,
    rest_len: usize,
    /// The start of the current period.
    since: Option<Instant>,
}

// SAFETY: the pointers lead to free buffers, which are reachable only through the lists.
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

/// Which bytes of a buffer from the lists are zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Zeros {
    All,
    AllButLink,
    Unknown,
}

/// The allocator of large buffers: one free list for each size class.
pub(crate) struct Large {
    classes: [Mutex<Free>; CLASSES],
    /// Bytes of free buffers whose pages are resident.
    kept: AtomicUsize,
    kept_max: AtomicUsize,
    period_ms: AtomicUsize,
    /// Bytes of buffers in use, rounded up to their size classes.
    held: AtomicUsize,
}

/// The size class of a request and the length of its buffers in bytes; `None` if the size is not large.
fn class_of(size: usize) -> Option<(usize, usize)> {
    if size <= SMALL_MAX || size > LARGE_MAX {
        return None;
    }
    let below = 1 << (size - 1).ilog2();
    let step = below / STEPS;
    let steps = (size - below).div_ceil(step);
    let class = STEPS * (below / SMALL_MAX).ilog2() as usize + steps - 1;
    Some((class, below + steps * step))
}

/// Whether two sizes fall into the same size class, so that a buffer need not move.
pub(crate) fn is_same(one: usize, other: usize) -> bool {
    class_of(one).is_some_and(|class| class_of(other) == Some(class))
}

/// Whether this module serves requests of this size and alignment.
pub(crate) fn is_large(size: usize, align: usize) -> bool {
    size > SMALL_MAX && size <= LARGE_MAX && align <= system::PAGE
}

impl Large {
    /// An allocator without any memory.
    pub(crate) const fn new() -> Large {
        Large {
            classes: [const { Mutex::new(Free::NONE) }; CLASSES],
            kept: AtomicUsize::new(0),
            kept_max: AtomicUsize::new(usize::MAX),
            period_ms: AtomicUsize::new(10_000),
            held: AtomicUsize::new(0),
        }
    }

    /// Sets how many bytes of free buffers stay resident at most, and the length of a period.
    pub(crate) fn set_limits(&self, bytes: usize, period: Duration) {
        self.kept_max.store(bytes, Ordering::Relaxed);
        self.period_ms.store(usize::try_from(period.as_millis()).unwrap_or(usize::MAX), Ordering::Relaxed);
    }

    fn period(&self) -> Duration {
        Duration::from_millis(self.period_ms.load(Ordering::Relaxed) as u64)
    }

    fn free(&self, class: usize) -> MutexGuard<'_, Free> {
        // No code below panics while it holds the lock.
        self.classes[class].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a buffer of at least `size` bytes, all zero if `zeroed`; null if the system has no memory.
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
            // SAFETY: the buffer is off the lists and at least this long.
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
        // SAFETY: `rest_len` said that this many bytes remain in the chunk.
        free.rest = unsafe { free.rest.add(len) };
        Some((buffer, Zeros::All))
    }

    /// Puts a buffer back on its free list.
    ///
    /// # Safety
    /// `buffer` came from [`Large::take`] of the same allocator with a size of the same class, and is not
    /// used any more.
    pub(crate) unsafe fn give_back(&self, buffer: *mut u8, size: usize) {
        let Some((class, len)) = class_of(size) else { return };
        self.held.fetch_sub(len, Ordering::Relaxed);
        let link: *mut Link = buffer.cast();
        if self.kept.load(Ordering::Relaxed) >= self.kept_max.load(Ordering::Relaxed) {
            // SAFETY: the buffer is unused. No lock is held while the kernel takes its pages.
            unsafe { system::discard(buffer, len) };
            let mut free = self.free(class);
            // SAFETY: the buffer is unused, long enough for a link, and page-aligned.
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

    /// Gives back the pages of the buffers that stayed free since the period began, and starts the next
    /// period.
    fn end_period(&self, free: &mut Free, len: usize, now: Instant) {
        for _ in 0..free.warm_least.min(free.warm_count) {
            let Some(link) = NonNull::new(free.warm) else { break };
            // SAFETY: buffers on a list begin with a link.
            free.warm = unsafe { link.as_ref() }.next;
            free.warm_count -= 1;
            self.kept.fetch_sub(len, Ordering::Relaxed);
            // SAFETY: the buffer is off the lists and has this length.
            unsafe { system::discard(link.as_ptr().cast(), len) };
            // SAFETY: as above.
            unsafe { link.as_ptr().write(Link { next: free.cold }) };
            free.cold = link.as_ptr();
        }
        free.warm_least = free.warm_count;
        free.since = Some(now);
    }

    /// Ends the periods that are over. Only `give_back` ends them otherwise, and an idle program does not
    /// call it.
    pub(crate) fn trim(&self, now: Instant) {
        for class in 0..CLASSES {
            let below = SMALL_MAX << (class / STEPS);
            let len = below + (class % STEPS + 1) * (below / STEPS);
            let mut free = self.free(class);
            if free.since.is_some_and(|since| now.duration_since(since) >= self.period()) {
                self.end_period(&mut free, len, now);
            }
        }
    }

    /// Bytes of buffers in use, and bytes of free buffers whose pages are resident.
    #[cfg(test)]
    fn bytes(&self) -> (usize, usize) {
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
        // SAFETY: each test frees each buffer once, with the size that it asked for.
        unsafe { large.give_back(buffer as *mut u8, size) };
    }

    #[test]
    fn a_class_has_room_for_its_sizes_and_wastes_little() {
        let mut last = (0, SMALL_MAX);
        for size in
            (SMALL_MAX + 1..=LARGE_MAX).step_by(511).chain([SMALL_MAX + 1, 128 << 10, 1 << 20, LARGE_MAX])
        {
            let (class, len) = class_of(size).unwrap();
            assert!(class < CLASSES && len >= size && len - size < size / 4 + 1, "{size}: {len}");
            assert!(len.is_multiple_of(system::PAGE));
            if size > last.1 && class != last.0 {
                last = (class, len);
            }
        }
        assert_eq!(class_of(128 << 10), Some((7, 128 << 10)), "records fit exactly");
        assert_eq!((class_of(SMALL_MAX), class_of(LARGE_MAX + 1)), (None, None));
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
        large.set_limits(3 * size, Duration::from_secs(1000));
        let taken: Vec<usize> = (0..9).map(|_| take(&large, size)).collect();
        taken.into_iter().for_each(|buffer| give_back(&large, buffer, size));
        assert_eq!(large.bytes(), (0, 3 * size));
    }

    #[test]
    fn buffers_free_for_a_whole_period_lose_their_pages() {
        let large = Large::new();
        let size = 256 << 10;
        let taken: Vec<usize> = (0..9).map(|_| take(&large, size)).collect();
        taken.into_iter().for_each(|buffer| give_back(&large, buffer, size));
        let later = |periods| Instant::now() + periods * large.period();
        large.trim(Instant::now());
        assert_eq!(large.bytes().1, 9 * size, "the period is not over");
        // The first period began with no free buffers, so it frees none.
        large.trim(later(1));
        assert_eq!(large.bytes().1, 9 * size);
        let (one, two) = (take(&large, size), take(&large, size));
        give_back(&large, one, size);
        give_back(&large, two, size);
        large.trim(later(2));
        assert_eq!(large.bytes().1, 2 * size, "two were needed");
        large.trim(later(3));
        assert_eq!(large.bytes().1, 0);
    }

    #[test]
    fn zeros_are_zeros_wherever_a_buffer_comes_from() {
        let large = Large::new();
        let size = 100_000;
        for kept_max in [usize::MAX, 0] {
            large.set_limits(kept_max, Duration::from_secs(1000));
            for _ in 0..3 {
                let buffer = large.take(size, true);
                // SAFETY: the buffer has this many bytes, and all are initialized.
                let bytes = unsafe { std::slice::from_raw_parts_mut(buffer, size) };
                assert!(bytes.iter().all(|byte| *byte == 0));
                bytes.fill(7);
                give_back(&large, buffer as usize, size);
            }
        }
    }
}
