//! Writes that no device takes: waiting until devices are back, and doing them again.
//!
//! A sync cannot be done again from the beginning: half of its trees have new pointers already. So what
//! cannot be written waits here, and the caller sees nothing of it but the time that it took. Whether
//! waiting is of any use, [`Outage`](crate::Outage) decides.
//!
//! # What always holds
//! - Blocks of a txg are kept until a flush has made them durable, so those that a device has lost with its
//!   volatile cache are written again: when a flush has failed, and whenever devices were gone, as they may
//!   have lost power. At most 64 MiB are kept: then there is a flush.
//! - Blocks of the intent log are not kept, and their writers do not wait: a commit that fails falls back to
//!   its txg.
//! - Only a thread that [insists](crate::Insist) waits when it cannot read: one that writes a txg.
//!
//! Tests: `pool`, `tests/it/live/outages.rs`.

use crate::ZioError;
use crate::batch::Batch;
use crate::kept_blocks::KeptBlocks;
use crate::layer::Zio;
use crate::outage;
use crate::space::{Unflushed, Writer};
use vdev::tree::{Fault, FaultKind, VdevError};

impl Zio {
    /// From now on blocks are kept. To be called while no txg is being written, and only if
    /// [`Outage::is_attended`](crate::Outage::is_attended).
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
        outage::insists() && faults.iter().any(is_gone) && self.waits_out(why)
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
