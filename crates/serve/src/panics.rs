//! Panics that end one request and nothing else.
//!
//! # What always holds
//! - Only what changes nothing by itself is survived: questions of the kernel, and verbs of pools and datasets, whose
//!   changes are made in syncing context by another thread. A panic of anything that changes a file system or writes a pool leaves
//!   the state of the process in doubt: it ends the process, and what is on disk is whole.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    static SURVIVED: Cell<bool> = const { Cell::new(false) };
}

/// Does `work`, which changes nothing that others see. Whoever sets the hook of panics is to ask [`is_survived`].
///
/// # Errors
/// It has panicked, with this.
pub fn survive<T>(work: impl FnOnce() -> T) -> std::thread::Result<T> {
    let before = SURVIVED.replace(true);
    let done = catch_unwind(AssertUnwindSafe(work));
    SURVIVED.set(before);
    done
}

/// Whether a panic of this thread ends one request only.
pub fn is_survived() -> bool {
    SURVIVED.get()
}
