//! Devices that are gone: what decides whether to wait for them, and which threads wait when they cannot read.

use std::cell::Cell;
use std::error::Error;
use std::marker::PhantomData;

/// Decides what happens when writes are impossible.
pub trait Outage: Send + Sync {
    /// Whether devices may be brought back, so that blocks are worth keeping until they are durable.
    fn is_attended(&self) -> bool;

    /// Waits until the operation that failed with `why` may be repeated. Returns false if it never will.
    fn wait(&self, why: &dyn Error) -> bool;
}

thread_local! {
    static INSISTS: Cell<bool> = const { Cell::new(false) };
}

/// A guard: while it lives, reads of this thread wait for devices that are gone.
pub struct Insist {
    before: bool,
    /// Keeps the guard on its thread.
    thread: PhantomData<*const ()>,
}

impl Insist {
    /// Makes reads of this thread wait until the guard is dropped.
    #[must_use]
    pub fn begin() -> Insist {
        Insist { before: INSISTS.replace(true), thread: PhantomData }
    }
}

impl Drop for Insist {
    fn drop(&mut self) {
        INSISTS.set(self.before);
    }
}

/// Whether reads of this thread wait for devices that are gone.
pub(crate) fn insists() -> bool {
    INSISTS.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn insisting_ends_with_what_it_is_for() {
        let outer = Insist::begin();
        drop(Insist::begin());
        assert!(INSISTS.get());
        drop(outer);
        assert!(!INSISTS.get());
    }
}
