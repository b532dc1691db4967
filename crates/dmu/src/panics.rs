//! Panics that end one request and nothing else.
//!
//! # What always holds
//! - Work for a request runs in [`survive`]: if it panics, the request fails and the process continues.
//! - Data guarded by a lock are consistent between any two statements that can panic. Data that a transaction
//!   was changing are not: its txg and all later ones are never written, and the pool is as after a power cut
//!   ([`crate::Tx`]).
//! - A thread without a name belongs to a scope: the thread that waits for it there panics as well.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

thread_local! {
    static SURVIVED: Cell<bool> = const { Cell::new(false) };
    static LEAVES: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work`. The program's panic hook should check [`is_survived`].
///
/// # Errors
/// The payload of the panic, or the value passed to [`leave`].
pub fn survive<T>(work: impl FnOnce() -> T) -> std::thread::Result<T> {
    let before = SURVIVED.replace(true);
    let done = catch_unwind(AssertUnwindSafe(work));
    SURVIVED.set(before);
    LEAVES.set(false);
    done
}

/// Whether a panic of this thread ends one request only.
pub fn is_survived() -> bool {
    SURVIVED.get() || std::thread::current().name().is_none()
}

/// Ends the work of this thread without a panic report and without doubt about its changes. Called by work
/// that runs in [`survive`].
pub fn leave(with: Box<dyn Any + Send>) -> ! {
    LEAVES.set(true);
    resume_unwind(with)
}

/// Names of files for which requests panic if a test asks for it (`CENOTE_TEST_PANIC` in the environment of
/// the process): before the first change, and in the middle of a change. Only the feature `testing` has this.
pub const TEST_NAMES: [&[u8]; 2] = [b"panic-in-a-request", b"panic-in-a-change"];

/// Panics if a test asks for it and `name` is `wanted`.
#[inline]
pub fn provoke(name: &[u8], wanted: &[u8]) {
    #[cfg(feature = "testing")]
    {
        static IS_TEST: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
        let is_test = || *IS_TEST.get_or_init(|| std::env::var_os("CENOTE_TEST_PANIC").is_some());
        assert!(name != wanted || !is_test(), "a test wants this panic");
    }
    let _ = (name, wanted);
}

/// Whether this thread is unwinding from a panic.
pub(crate) fn is_panicking() -> bool {
    std::thread::panicking() && !LEAVES.get()
}
