//! The memory allocator of the programs: mimalloc, tuned to keep freed memory for some seconds, and beside it
//! `large` for buffers of more than 32 KiB, which all threads share.
//!
//! A transaction group allocates and frees hundreds of thousands of objects and records; with the system's
//! allocator this took a third of the time of writing small files. The next transaction group needs the same memory
//! again. When the memory was returned in between, as by mimalloc's default of one second, clearing pages took a
//! quarter of the time of many small synchronous writes. On machines with little memory it is nevertheless returned
//! after one second. The library crates do not choose an allocator; the program that embeds them does.
#![deny(unsafe_code)]

#[allow(unsafe_code)] // Memory is handed out by address.
mod large;
#[allow(unsafe_code)] // System calls.
mod system;

use large::Large;
use std::time::{Duration, Instant};

#[global_allocator]
static ALLOCATOR: shared::Allocator = shared::Allocator;
static LARGE: Large = Large::new();

/// How long freed memory stays mapped: longer than the interval between two transaction groups.
const PURGE_DELAY: Duration = Duration::from_secs(10);
/// How long freed memory stays mapped where memory is scarce.
const PURGE_DELAY_SCARCE: Duration = Duration::from_secs(1);
/// Memory is scarce below this many bytes.
const SCARCE: u64 = 4 << 30;
/// Where memory is scarce, at most this fraction of it, one in `IDLE_SHARE`, stays in free large buffers.
const IDLE_SHARE: u64 = 64;

/// Configures the allocator. A program calls it before anything else, with the bytes of memory that it may
/// use.
pub fn init(memory: u64) {
    let is_scarce = memory < SCARCE;
    purge_delay::set(if is_scarce { PURGE_DELAY_SCARCE } else { PURGE_DELAY });
    if is_scarce {
        LARGE.set_limits(usize::try_from(memory / IDLE_SHARE).unwrap_or(usize::MAX), PURGE_DELAY_SCARCE);
        // The first byte touched takes a whole huge page. Where turning them off fails, the system may have
        // none.
        let _ = rustix::thread::disable_transparent_huge_pages(true);
    }
}

/// Starts a thread that returns unused memory to the system, for long-running programs that may be idle. If the
/// thread cannot be started, memory is returned only when other memory is freed.
pub fn start_trim_thread() {
    let trim = || loop {
        std::thread::sleep(PURGE_DELAY / 4);
        LARGE.trim(Instant::now());
    };
    let _ = std::thread::Builder::new().name("heap".to_owned()).spawn(trim);
}

#[allow(unsafe_code)] // Implements `GlobalAlloc`, an unsafe trait.
mod shared {
    use super::{LARGE, large};
    use mimalloc::MiMalloc;
    use std::alloc::{GlobalAlloc, Layout};

    /// Sends large requests to [`LARGE`] and all others to mimalloc.
    pub(super) struct Allocator;

    // SAFETY: both parts are allocators, and which one serves a buffer follows from its size and alignment
    // alone, which are the same for allocation and release.
    unsafe impl GlobalAlloc for Allocator {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            if large::is_large(layout.size(), layout.align()) {
                return LARGE.take(layout.size(), false);
            }
            // SAFETY: the caller makes the same promise.
            unsafe { MiMalloc.alloc(layout) }
        }

        unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
            if large::is_large(layout.size(), layout.align()) {
                return LARGE.take(layout.size(), true);
            }
            // SAFETY: the caller makes the same promise.
            unsafe { MiMalloc.alloc_zeroed(layout) }
        }

        unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
            if large::is_large(layout.size(), layout.align()) {
                // SAFETY: the buffer was allocated there with this size, and the caller does not use it any
                // more.
                return unsafe { LARGE.give_back(start, layout.size()) };
            }
            // SAFETY: the caller makes the same promise.
            unsafe { MiMalloc.dealloc(start, layout) }
        }

        unsafe fn realloc(&self, start: *mut u8, layout: Layout, size: usize) -> *mut u8 {
            let align = layout.align();
            let (was, is) = (large::is_large(layout.size(), align), large::is_large(size, align));
            if !was && !is {
                // SAFETY: the caller makes the same promise.
                return unsafe { MiMalloc.realloc(start, layout, size) };
            }
            if was && is && large::is_same(layout.size(), size) {
                return start;
            }
            // SAFETY: the caller promises that the size is not zero and fits the alignment.
            let new = unsafe { Layout::from_size_align_unchecked(size, align) };
            // SAFETY: `new` is a valid layout. The old buffer holds the bytes that are copied, and is freed
            // after that.
            unsafe {
                let moved = self.alloc(new);
                if !moved.is_null() {
                    moved.copy_from_nonoverlapping(start, layout.size().min(size));
                    self.dealloc(start, layout);
                }
                moved
            }
        }
    }
}

#[allow(unsafe_code)] // Sets an option of mimalloc, a C library.
mod purge_delay {
    use libmimalloc_sys::{mi_option_set, mi_option_t};
    use std::time::Duration;

    /// `mi_option_purge_delay` of mimalloc 2 and 3, which the bindings do not name.
    const OPTION: mi_option_t = 15;

    pub(super) fn set(time: Duration) {
        let time = u16::try_from(time.as_millis()).unwrap_or(u16::MAX);
        // SAFETY: the option exists, takes any number, and may be set at any time.
        unsafe { mi_option_set(OPTION, time.into()) };
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn vectors_keep_their_bytes_as_they_grow_and_shrink() {
        let mut bytes: Vec<u8> = Vec::new();
        for n in 0..5_000_000_u32 {
            bytes.push((n % 251) as u8);
        }
        for len in [5_000_000, 2 << 20, 300_000, 131_072, 40_000, 100] {
            bytes.truncate(len);
            bytes.shrink_to_fit();
            assert!(bytes.iter().enumerate().all(|(n, byte)| *byte == (n % 251) as u8), "{len}");
        }
    }
}
