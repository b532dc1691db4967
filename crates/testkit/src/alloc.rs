//! A counting allocator: measures the peak memory use of a piece of code.
//!
//! A test program makes it its allocator with `#[global_allocator] static ALLOCATOR: testkit::alloc::Counting
//! = testkit::alloc::Counting;`
//!
//! # What always holds
//! - Requested bytes are counted, touched or not: a buffer of zeros that a hostile length made huge counts in
//!   full, although the system would not have provided its pages yet.
//! - [`thread_peak`] measures its own thread only, so that concurrent tests do not disturb each other.
//!   [`process_peak`] measures all threads; only one call at a time may measure.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicIsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// The allocator of the system, with a count of the allocated bytes.
#[derive(Debug, Clone, Copy, Default)]
pub struct Counting;

/// Bytes that are allocated now, and the most so far. Signed, because a thread may free what another has
/// allocated.
#[derive(Clone, Copy)]
struct Held {
    now: isize,
    most: isize,
}

thread_local! {
    // Initialized at compile time and never dropped, so the allocator may use it at any time.
    static HELD: Cell<Held> = const { Cell::new(Held { now: 0, most: 0 }) };
}

static PROCESS_COUNTS: AtomicBool = AtomicBool::new(false);
static PROCESS_NOW: AtomicIsize = AtomicIsize::new(0);
static PROCESS_MOST: AtomicIsize = AtomicIsize::new(0);

fn count(bytes: isize) {
    let _ = HELD.try_with(|held| {
        let Held { now, most } = held.get();
        let now = now.saturating_add(bytes);
        held.set(Held { now, most: most.max(now) });
    });
    if PROCESS_COUNTS.load(Ordering::Relaxed) {
        let now = PROCESS_NOW.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        if bytes > 0 {
            PROCESS_MOST.fetch_max(now, Ordering::Relaxed);
        }
    }
}

/// `Layout` promises that sizes fit `isize`.
fn signed(size: usize) -> isize {
    isize::try_from(size).unwrap_or(isize::MAX)
}

// SAFETY: every call is passed on unchanged to the system's allocator, which keeps the promises of
// `GlobalAlloc`; counting touches no memory of the caller and does not allocate.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises are those that `System` requires.
        let made = unsafe { System.alloc(layout) };
        if !made.is_null() {
            count(signed(layout.size()));
        }
        made
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises are those that `System` requires.
        let made = unsafe { System.alloc_zeroed(layout) };
        if !made.is_null() {
            count(signed(layout.size()));
        }
        made
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: `at` came from one of the other calls with this layout, so from `System`.
        unsafe { System.dealloc(at, layout) };
        count(-signed(layout.size()));
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: `at` came from one of the other calls with this layout, so from `System`; the
        // caller promised that `size` fits.
        let made = unsafe { System.realloc(at, layout, size) };
        if !made.is_null() {
            // Counted as if the new block were allocated before the old one is freed, which may be the case.
            count(signed(size));
            count(-signed(layout.size()));
        }
        made
    }
}

/// Runs `code`; returns the most bytes that this thread held, beyond those it held before.
///
/// # Panics
/// If [`Counting`] is not the allocator of this program: the result would always be 0.
pub fn thread_peak<R>(code: impl FnOnce() -> R) -> (R, usize) {
    assert_counting();
    let before = HELD.get();
    HELD.set(Held { now: before.now, most: before.now });
    let result = code();
    let after = HELD.get();
    HELD.set(Held { now: after.now, most: after.most.max(before.most) });
    (result, (after.most - before.now).unsigned_abs())
}

/// [`thread_peak`] for all threads together.
pub fn process_peak<R>(code: impl FnOnce() -> R) -> (R, usize) {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    assert_counting();
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    PROCESS_NOW.store(0, Ordering::SeqCst);
    PROCESS_MOST.store(0, Ordering::SeqCst);
    PROCESS_COUNTS.store(true, Ordering::SeqCst);
    let result = code();
    PROCESS_COUNTS.store(false, Ordering::SeqCst);
    (result, PROCESS_MOST.load(Ordering::SeqCst).unsigned_abs())
}

fn assert_counting() {
    let before = HELD.get().now;
    let probe = std::hint::black_box(vec![0u8; 32]);
    assert!(HELD.get().now > before, "testkit::alloc::Counting is not the global allocator");
    drop(probe);
}
