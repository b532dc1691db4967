//! History of a workload: which step is durable after which disk operation. `crash` derives the permitted
//! states from it.
//!
//! # What always holds
//! - A step is announced before its first disk operation, and its outcome is recorded before the next step.
//! - A step is recorded as durable only after the call that promised it has returned.

use crate::content::Model;
use crate::world::World;

/// What is durable from a moment on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durable {
    /// A step begins, without a promise.
    Nothing,
    /// All steps so far are durable.
    Pool,
    /// All changes in this head are durable.
    Head(u64),
    /// This file of this head is durable, and all names in the head.
    File(u64, u64),
}

/// A promise, or the beginning of a step.
#[derive(Debug, Clone, Copy)]
pub struct Ack {
    /// Number of disk operations before it.
    pub operations: u64,
    /// The last step that had begun.
    pub step: u64,
    /// The changes that are durable from now on.
    pub what: Durable,
}

/// Promises and model versions of a workload.
#[derive(Debug, Default)]
pub struct History {
    /// Step numbers, each with the model after that step.
    pub versions: Vec<(u64, Model)>,
    /// Promises and beginnings of steps, in order.
    pub acks: Vec<Ack>,
    step: u64,
}

impl History {
    /// Number of the present step.
    pub fn step(&self) -> u64 {
        self.step
    }
}

impl World {
    /// Starts recording the history of this world.
    pub fn remember(&mut self) {
        self.history = Some(History::default());
        self.promise(Durable::Pool);
    }

    /// Ends recording and returns the history.
    pub fn take_history(&mut self) -> Option<History> {
        self.note_outcome();
        self.history.take()
    }

    fn note_outcome(&mut self) {
        let Some(history) = &mut self.history else { return };
        let step = history.step;
        history.versions.retain(|(known, _)| *known != step);
        history.versions.push((step, self.model.clone()));
    }

    /// Begins a step, and records the model before it.
    pub(crate) fn begin(&mut self) {
        self.note_outcome();
        if let Some(history) = &mut self.history {
            history.step += 1;
        }
        self.promise(Durable::Nothing);
    }

    /// Records a promise for all steps so far.
    pub(crate) fn promise(&mut self, what: Durable) {
        let operations = self.disks.operations();
        if let Some(history) = &mut self.history {
            history.acks.push(Ack { operations, step: history.step, what });
        }
    }
}
