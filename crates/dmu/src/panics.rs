//! Panics that end one request and nothing else.
//!
//! # What always holds
//! - Whoever begins work that others ask for does it by [`survive`]: the work fails, and the process goes on.
//! - What a lock guards is whole between any two statements that can panic. What a transaction was changing is not: its txg
//!   and all later ones are never written, and the pool is as after a power cut ([`crate::Tx`]).
//! - A thread that has no name belongs to a scope: whoever waits for it there panics as well.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

thread_local! {
    static SURVIVED: Cell<bool> = const { Cell::new(false) };
    static LEAVES: Cell<bool> = const { Cell::new(false) };
}

/// Does `work`. Whoever sets the hook of panics is to ask [`is_survived`].
///
/// # Errors
/// It has panicked, with this, or has left with it.
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

/// Ends the work of this thread without a panic: nothing is told, and nothing is in doubt. To be called by work that
/// [`survive`] does.
pub fn leave(with: Box<dyn Any + Send>) -> ! {
    LEAVES.set(true);
    resume_unwind(with)
}

/// Names of files for which requests panic, where a test wants that (`CENOTE_TEST_PANIC` in the environment of the process):
/// before anything is changed, and in the middle of a change. Programs that are built for use have none of this.
pub const TEST_NAMES: [&[u8]; 2] = [b"panic-in-a-request", b"panic-in-a-change"];

/// Panics if a test wants that for this name.
#[inline]
pub fn provoke(name: &[u8], wanted: &[u8]) {
    #[cfg(debug_assertions)]
    {
        static IS_TEST: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
        let is_test = || *IS_TEST.get_or_init(|| std::env::var_os("CENOTE_TEST_PANIC").is_some());
        assert!(name != wanted || !is_test(), "a test wants this panic");
    }
    let _ = (name, wanted);
}

/// Whether this thread unwinds for a panic.
pub(crate) fn is_panicking() -> bool {
    std::thread::panicking() && !LEAVES.get()
}
