//! Panics that end one request and nothing else.
//!
//! # What always holds
//! - Whoever begins work that others ask for does it by [`survive`]: the work fails, and the process goes on.
//! - What a lock guards is whole between any two statements that can panic. What a transaction was changing is not: its txg
//!   and all later ones are never written, and the pool is as after a power cut ([`crate::live::Tx`]).
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

/// Whether this thread unwinds for a panic.
pub(crate) fn is_panicking() -> bool {
    std::thread::panicking() && !LEAVES.get()
}
