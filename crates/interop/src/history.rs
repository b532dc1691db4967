//! History of a workload: which step is durable after which disk operation. `crash` derives the permitted
//! states from it.
//!
//! # What always holds
//! - A step is announced before its first disk operation, and its outcome is recorded before the next step.
//! - A step is recorded as durable only after the call that promised it has returned.

use crate::content::Model;

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
    pub(crate) fn step(&self) -> u64 {
        self.step
    }

    /// Notes what should be there after the step that was under way.
    pub(crate) fn note_outcome(&mut self, model: &Model) {
        let step = self.step;
        self.versions.retain(|(known, _)| *known != step);
        self.versions.push((step, model.clone()));
    }

    /// A step begins, after this many operations of the disks; the model says what should be there before it.
    pub(crate) fn begin(&mut self, operations: u64, model: &Model) {
        self.note_outcome(model);
        self.step += 1;
        self.promise(operations, Durable::Nothing);
    }

    /// What was done so far has become durable, after this many operations of the disks.
    pub(crate) fn promise(&mut self, operations: u64, what: Durable) {
        self.acks.push(Ack { operations, step: self.step, what });
    }
}
