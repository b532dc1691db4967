//! Writes to the vdevs: all of a batch in one call, and the flush that makes them durable.

use crate::ZioError;
use crate::layer::Zio;
use crate::space::{Unflushed, Writer};
use format::{Dva, Psize, Txg, VdevId};
use std::collections::BTreeSet;
use vdev::tree::{Extent, VdevError, Write};

/// Index of a block in its batch, and the error of writing it.
pub(crate) type Failed = (usize, VdevError);

/// A range of bytes with one or more addresses; it is written if one address took it.
struct Stretch {
    /// Index of the block in the batch.
    block: usize,
    /// Number of addresses.
    places: usize,
}

/// The writes of a batch, grouped into stretches.
#[derive(Default)]
pub(crate) struct Batch<'a> {
    writes: Vec<Write<'a>>,
    stretches: Vec<Stretch>,
}

impl<'a> Batch<'a> {
    pub(crate) fn add(
        &mut self,
        block: usize,
        extents: impl Iterator<Item = Dva>,
        bytes: &'a [u8],
        birth: Txg,
    ) {
        let before = self.writes.len();
        let psize = Psize(bytes.len() as u64);
        self.writes.extend(extents.map(|dva| Write {
            at: Extent { vdev: dva.vdev, offset: dva.offset, psize, birth },
            data: bytes,
        }));
        self.stretches.push(Stretch { block, places: self.writes.len() - before });
    }
}

impl Zio {
    /// Writes a batch. Returns the blocks with a part that no device took.
    pub(crate) fn issue_batch(&self, writer: &Writer, batch: &Batch<'_>) -> Vec<Failed> {
        if batch.writes.is_empty() {
            return Vec::new();
        }
        // Take the tree only now: vdevs may have been added during the allocation.
        let tree = self.tree();
        let since = Some(tree.mark());
        let results = tree.write_many(&batch.writes);
        writer.note_written(Unflushed { vdevs: taken(&batch.writes, &results), since });
        failures(&batch.stretches, results)
    }

    /// Makes durable what these writes have left in volatile caches.
    pub(crate) fn flush(&self, written: &Unflushed) -> Result<(), ZioError> {
        let Some(since) = written.since else { return Ok(()) };
        let vdevs: Vec<_> = written.vdevs.iter().copied().collect();
        self.tree().flush(&vdevs, since).map_err(|source| ZioError::Flush { source })
    }
}

/// The vdevs that took a write.
fn taken(writes: &[Write<'_>], results: &[Result<(), VdevError>]) -> BTreeSet<VdevId> {
    let mut vdevs = BTreeSet::new();
    let mut last = None;
    for (write, _) in writes.iter().zip(results).filter(|(_, result)| result.is_ok()) {
        if last != Some(write.at.vdev) {
            last = Some(write.at.vdev);
            vdevs.insert(write.at.vdev);
        }
    }
    vdevs
}

/// The blocks with a stretch that no address took.
fn failures(stretches: &[Stretch], results: Vec<Result<(), VdevError>>) -> Vec<Failed> {
    let mut results = results.into_iter();
    let mut failed: Vec<Failed> = Vec::new();
    for stretch in stretches {
        let mut error = Some(VdevError::NoCopies);
        for result in results.by_ref().take(stretch.places) {
            error = error.and(result.err());
        }
        if let Some(error) = error
            && failed.last().is_none_or(|(block, _)| *block != stretch.block)
        {
            failed.push((stretch.block, error));
        }
    }
    failed
}
