//! The allocator of our programs: mimalloc, which keeps what was freed for some seconds, and beside it `large` for
//! buffers of more than 32 KiB, which all threads share.
//!
//! Objects and records come and go by the hundred thousand in a txg: with the system's allocator a third of the
//! time of writing small files went there. And what a txg frees the next one wants again: given back to the system in
//! between, as mimalloc does after a second, a quarter of the time of many small synchronous writes went to clearing
//! pages. Where memory is scarce it is given back all the same. The library leaves the choice to who embeds it.
#![deny(unsafe_code)]

#[allow(unsafe_code)] // Memory is handed out by address.
mod large;
#[allow(unsafe_code)] // Calls to the system.
mod system;

use large::Large;
use std::time::{Duration, Instant};

#[global_allocator]
static ALLOCATOR: shared::Allocator = shared::Allocator;
static LARGE: Large = Large::new();

/// How long freed memory is kept: longer than a txg takes to come round,
const KEEP: Duration = Duration::from_secs(10);
/// and where memory is scarce.
const KEEP_SCARCE: Duration = Duration::from_secs(1);
/// With less memory than this it is scarce.
const SCARCE: u64 = 4 << 30;
/// Of scarce memory this part may lie idle.
const IDLE_SHARE: u64 = 64;

/// To be called first of all by a program, with the bytes of memory that it may use.
pub fn init(memory: u64) {
    let is_scarce = memory < SCARCE;
    keep::freed_memory(if is_scarce { KEEP_SCARCE } else { KEEP });
    if is_scarce {
        LARGE.keep(usize::try_from(memory / IDLE_SHARE).unwrap_or(usize::MAX), KEEP_SCARCE);
        // Huge pages are taken whole for the first byte. Where they cannot be turned off there may be none.
        let _ = rustix::thread::disable_transparent_huge_pages(true);
    }
}

/// Has a thread give back what was not needed for a while: for a program that stays, and may be idle. Where the system
/// has no thread to give, what is freed next gives it back.
pub fn stay_tidy() {
    let tidy = || loop {
        std::thread::sleep(KEEP / 4);
        LARGE.tidy(Instant::now());
    };
    let _ = std::thread::Builder::new().name("heap".to_owned()).spawn(tidy);
}

/// Bytes of large buffers: those in use, and those that are kept although they are not.
#[must_use]
pub fn large_bytes() -> (usize, usize) {
    LARGE.bytes()
}

#[allow(unsafe_code)] // An allocator.
mod shared {
    use super::{LARGE, large};
    use mimalloc::MiMalloc;
    use std::alloc::{GlobalAlloc, Layout};

    /// mimalloc, and the large buffers.
    pub(super) struct Allocator;

    // SAFETY: both halves are allocators, and size and alignment, which are the same whenever a buffer is named, say
    // which of them has it.
    unsafe impl GlobalAlloc for Allocator {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            if large::is_large(layout.size(), layout.align()) {
                return LARGE.take(layout.size(), false);
            }
            // SAFETY: the caller's promise is the same.
            unsafe { MiMalloc.alloc(layout) }
        }

        unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
            if large::is_large(layout.size(), layout.align()) {
                return LARGE.take(layout.size(), true);
            }
            // SAFETY: the caller's promise is the same.
            unsafe { MiMalloc.alloc_zeroed(layout) }
        }

        unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
            if large::is_large(layout.size(), layout.align()) {
                // SAFETY: it came from there with this size, and the caller gives it up.
                return unsafe { LARGE.give_back(start, layout.size()) };
            }
            // SAFETY: the caller's promise is the same.
            unsafe { MiMalloc.dealloc(start, layout) }
        }

        unsafe fn realloc(&self, start: *mut u8, layout: Layout, size: usize) -> *mut u8 {
            let align = layout.align();
            let (was, is) = (large::is_large(layout.size(), align), large::is_large(size, align));
            if !was && !is {
                // SAFETY: the caller's promise is the same.
                return unsafe { MiMalloc.realloc(start, layout, size) };
            }
            if was && is && large::is_same(layout.size(), size) {
                return start;
            }
            // SAFETY: the caller promises that the size is not zero and fits the alignment.
            let new = unsafe { Layout::from_size_align_unchecked(size, align) };
            // SAFETY: of the new layout; the old buffer has as many bytes as are copied, and is given up after that.
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

#[allow(unsafe_code)] // An option of the allocator, in C.
mod keep {
    use libmimalloc_sys::{mi_option_set, mi_option_t};
    use std::time::Duration;

    /// `mi_option_purge_delay` of mimalloc 2 and 3, for which the bindings have no name.
    const PURGE_DELAY: mi_option_t = 15;

    pub(super) fn freed_memory(time: Duration) {
        let time = u16::try_from(time.as_millis()).unwrap_or(u16::MAX);
        // SAFETY: the option exists; it takes any number, and is read each time it counts.
        unsafe { mi_option_set(PURGE_DELAY, time.into()) };
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
