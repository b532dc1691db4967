//! Writes that no device takes: waiting until devices are back, and repeating the writes.
//!
//! A sync cannot be restarted: half of its trees have new pointers already. So failed writes wait here, and
//! the caller notices only the time. [`Outage`] decides whether to wait.
//!
//! # What always holds
//! - Blocks of a txg are kept until a flush has made them durable, so blocks that a device lost with its
//!   volatile cache are written again: after a failed flush, and whenever devices were gone, as they may have
//!   lost power. At most 64 MiB are kept: a flush follows then.
//! - Blocks of the intent log are not kept, and their writers do not wait: a commit that fails falls back to
//!   its txg.
//! - Only a thread with an [`Insist`] waits when it cannot read: one that writes a txg.
//!
//! Tests: `pool`, `tests/it/live/outages.rs`.

use crate::kept_blocks::KeptBlocks;
use crate::space::{Unflushed, Writer};
use crate::write::Batch;
use crate::{Zio, ZioError};
use std::cell::Cell;
use std::error::Error;
use std::marker::PhantomData;
use std::sync::Arc;
use vdev::tree::{Fault, FaultKind, VdevError};

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

impl Zio {
    /// Sets the handler of failed writes; without one they are errors at once. A second call has no effect.
    pub fn set_outage(&self, outage: Arc<dyn Outage>) {
        let _ = self.outage.set(outage);
    }

    /// Keeps blocks from now on. Called while no txg is being written and if [`Outage::is_attended`].
    pub fn keep_blocks(&self) {
        if let Some(writer) = self.writer() {
            *writer.kept() = KeptBlocks::begin(true);
        }
    }

    /// Whether devices may be brought back.
    pub(crate) fn is_attended(&self) -> bool {
        self.outage.get().is_some_and(|outage| outage.is_attended())
    }

    /// Waits until devices are back. Returns false if waiting was given up.
    pub(crate) fn waits_out(&self, why: &ZioError) -> bool {
        let is_back = self.outage.get().is_some_and(|outage| outage.wait(why));
        if let (true, Some(writer)) = (is_back, self.writer()) {
            writer.kept().is_suspect = true;
        }
        is_back
    }

    /// Like `waits_out`, for a failed read, if the block may be readable later and this thread insists.
    pub(crate) fn waits_to_read(&self, why: &ZioError, faults: &[Fault]) -> bool {
        let is_gone = |fault: &Fault| matches!(fault.kind, FaultKind::Io | FaultKind::Missing);
        INSISTS.get() && faults.iter().any(is_gone) && self.waits_out(why)
    }

    /// Writes all blocks again that are not known to be durable.
    fn write_again(&self, writer: &Writer) -> Result<(), ZioError> {
        let kept = writer.kept();
        for blocks in kept.batches() {
            let mut batch = Batch::default();
            for (index, block) in blocks.iter().enumerate() {
                batch.add(index, block.places.iter().copied(), &block.bytes, block.birth);
            }
            if let Some((_, source)) = self.issue_batch(writer, &batch).into_iter().next() {
                return Err(ZioError::Flush { source });
            }
        }
        Ok(())
    }

    /// Makes all written blocks durable, however often devices have to come back for that.
    pub(crate) fn flush_patiently(&self, writer: &Writer) -> Result<(), ZioError> {
        loop {
            let mut written = Unflushed::default();
            let outcome = self.renew_suspects(writer).and_then(|()| {
                written = writer.take_written();
                self.flush(&written)
            });
            let Err(error) = outcome else {
                *writer.kept() = KeptBlocks::begin(self.is_attended());
                return Ok(());
            };
            let is_complete = writer.kept().is_complete();
            if !is_complete || !self.waits_out(&error) {
                writer.note_written(written);
                return Err(error);
            }
        }
    }

    /// Writes the blocks again that returned devices may have lost.
    fn renew_suspects(&self, writer: &Writer) -> Result<(), ZioError> {
        let kept = writer.kept();
        if !kept.is_suspect {
            return Ok(());
        }
        if !kept.is_complete() {
            return Err(ZioError::Flush { source: VdevError::NoCopies });
        }
        drop(kept);
        // All kept blocks are written again, so losses of the old writes do not matter.
        let old = writer.take_written();
        self.write_again(writer).inspect_err(|_| writer.note_written(old))?;
        writer.kept().is_suspect = false;
        Ok(())
    }
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
