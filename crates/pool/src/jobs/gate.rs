//! The gate: keeps the blocks that a slice reads from being overwritten.

use format::Txg;
use std::sync::{Condvar, Mutex, PoisonError};
use vdev::sync::lock;

/// Number of txgs after which freed space is reusable.
const DEFERRED: u64 = 2;

#[derive(Debug, Default)]
struct State {
    /// The txg whose state the current slice reads.
    reading: Option<Txg>,
    /// A txg waits for the slice.
    is_wanted: bool,
    is_closed: bool,
}

/// Synchronizes the one running slice with the txgs.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

/// Guard of a reading slice. While it lives, no block that was in use in its txg is overwritten.
pub(crate) struct Reading<'a>(&'a Gate);

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.0.state);
        (state.reading, state.is_wanted) = (None, false);
        drop(state);
        self.0.changed.notify_all();
    }
}

impl Gate {
    /// Starts a slice. `synced` returns the txg that is on disk.
    pub(crate) fn enter(&self, synced: impl FnOnce() -> Txg) -> Reading<'_> {
        let mut state = lock(&self.state);
        assert!(state.reading.is_none(), "one slice runs at a time");
        // Under the lock, no txg can release space in between.
        state.reading = Some(synced());
        drop(state);
        Reading(self)
    }

    /// Whether the slice must end.
    pub(crate) fn is_wanted(&self) -> bool {
        let state = lock(&self.state);
        state.is_wanted || state.is_closed
    }

    pub(crate) fn close(&self) {
        lock(&self.state).is_closed = true;
    }

    /// Called before the space that `txg` releases is reused: waits for a slice that may read it.
    pub(crate) fn pass(&self, txg: Txg) {
        let mut state = lock(&self.state);
        while state.reading.is_some_and(|reading| txg.0 > reading.0 + DEFERRED) {
            state.is_wanted = true;
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_txg_waits_only_if_it_hands_out_what_is_looked_at() {
        let gate = Gate::default();
        let reading = gate.enter(|| Txg(10));
        gate.pass(Txg(11));
        gate.pass(Txg(12));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| gate.pass(Txg(13)));
            while !gate.is_wanted() {
                std::thread::yield_now();
            }
            assert!(!waiting.is_finished());
            drop(reading);
        });
        assert!(!gate.is_wanted());
        gate.pass(Txg(14));
    }
}
