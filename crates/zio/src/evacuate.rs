//! Copying ranges of a vdev that is being removed to other vdevs (docs/on-disk/14-vdevs.md, section 6).

use crate::ZioError;
use crate::batch::Batch;
use crate::layer::Zio;
use crate::space::{Unflushed, Writer};
use format::{BlockPtr, Dva, Psize, Txg};
use std::ops::Range;
use std::sync::Arc;
use vdev::tree::{Extent, VdevError, Versions};

/// A range to be copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Move {
    /// Where it is.
    pub from: Dva,
    /// Where it goes: allocated, and as long.
    pub to: Dva,
}

impl Zio {
    /// Copies ranges in the sync of the txg `birth`. They are durable after [`Zio::flush_written`]. The call takes
    /// the memory of all ranges, twice where they are on mirrors. `gaps` are the parts of the ranges, ascending, that no
    /// block uses: they become zeros, because sides of a mirror may have anything there.
    ///
    /// # Errors
    /// [`ZioError::Copy`] with the first range that cannot be read or written.
    pub fn copy_ranges(&self, moves: &[Move], gaps: &[Range<u64>], birth: Txg) -> Result<(), ZioError> {
        let Some(writer) = self.writer() else { return Err(ZioError::ReadOnly { bp: BlockPtr::HOLE }) };
        let source = |m: &Move| extent(&m.from, Txg(0));
        let ranges: Vec<Extent> = moves.iter().map(source).collect();
        let mut read = Vec::with_capacity(moves.len());
        for (one, versions) in moves.iter().zip(self.tree().read_versions(&ranges)) {
            let mut versions = versions.map_err(|source| ZioError::Copy { from: one.from, source })?;
            blank(&mut versions, &one.from, gaps);
            read.push((*one, versions));
        }
        let (plain, contested): (Vec<_>, Vec<_>) = read.into_iter().partition(|(_, v)| v.len() == 1);
        for (one, versions) in &contested {
            self.write_contested(writer, one, versions, birth)?;
        }
        self.write_plain(writer, plain, birth)
    }

    /// Writes ranges whose contents are the same everywhere.
    fn write_plain(
        &self,
        writer: &Writer,
        ranges: Vec<(Move, Versions)>,
        birth: Txg,
    ) -> Result<(), ZioError> {
        let only = |(one, versions): (Move, Versions)| {
            versions.into_iter().next().map(|bytes| (one, Arc::new(bytes)))
        };
        let ranges: Vec<(Move, Arc<Vec<u8>>)> = ranges.into_iter().filter_map(only).collect();
        let mut which: Vec<usize> = (0..ranges.len()).collect();
        loop {
            let mut batch = Batch::default();
            for index in which {
                let Some((one, bytes)) = ranges.get(index) else { continue };
                batch.add(index, std::iter::once(one.to), bytes, birth);
            }
            let failed = self.issue_batch(writer, &batch);
            let Some((index, source)) = failed.first() else { break };
            let Some((one, _)) = ranges.get(*index) else { break };
            let error = ZioError::Copy { from: one.from, source: source.clone() };
            if !self.waits_out(&error) {
                return Err(error);
            }
            which = failed.into_iter().map(|(index, _)| index).collect();
        }
        if writer.kept().is_complete() {
            for (one, bytes) in ranges {
                writer.kept().add(vec![one.to], birth, bytes);
            }
            if writer.kept().is_full() {
                // The final flush reports this error again.
                let _ = self.flush_patiently(writer);
            }
        }
        Ok(())
    }

    /// Writes a range of which leaves of a mirror have different contents.
    fn write_contested(
        &self,
        writer: &Writer,
        one: &Move,
        versions: &Versions,
        birth: Txg,
    ) -> Result<(), ZioError> {
        let tree = self.tree();
        let since = Some(tree.mark());
        writer.kept().give_up();
        let written: Result<(), VdevError> = tree.write_versions(&extent(&one.to, birth), versions);
        writer.note_written(Unflushed { vdevs: [one.to.vdev].into(), since });
        written.map_err(|source| ZioError::Copy { from: one.from, source })
    }
}

/// Zeroes what is not in use in the versions of a range, and drops those that are equal then.
fn blank(versions: &mut Versions, from: &Dva, gaps: &[Range<u64>]) {
    let (start, end) = (from.offset.0, from.offset.0.saturating_add(from.asize.0));
    let first = gaps.partition_point(|gap| gap.end <= start);
    for gap in gaps.iter().skip(first).take_while(|gap| gap.start < end) {
        let part = (gap.start.max(start) - start) as usize..(gap.end.min(end) - start) as usize;
        versions.iter_mut().filter_map(|bytes| bytes.get_mut(part.clone())).for_each(|bytes| bytes.fill(0));
    }
    let mut distinct = Versions::new();
    for bytes in versions.drain(..) {
        if !distinct.contains(&bytes) {
            distinct.push(bytes);
        }
    }
    *versions = distinct;
}

fn extent(dva: &Dva, birth: Txg) -> Extent {
    Extent { vdev: dva.vdev, offset: dva.offset, psize: Psize(dva.asize.0), birth }
}
