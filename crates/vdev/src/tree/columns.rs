//! The columns of a RAID-Z or dRAID block as they were read, and the candidates assembled from them.

use super::block::{Fault, FaultKind, How, Read};
use super::copies::Source;
use super::leaf::Trust;
use crate::geometry::{BlockMap, Column, Row};
use codec::gf256;

/// Bytes read from one leaf.
pub(super) struct Chunk<'t> {
    source: Source<'t>,
    bytes: Vec<u8>,
}

/// One version of a column: a part of a chunk.
#[derive(Debug, Clone, Copy)]
pub(super) struct Version {
    chunk: usize,
    start: usize,
    len: usize,
}

/// The results of reading one column.
#[derive(Debug, Default)]
pub(super) struct Loaded<'t> {
    /// The column is empty: it is known without reading.
    pub(super) known: bool,
    /// Distinct contents, the most trusted first.
    distinct: Vec<Version>,
    /// All versions, for judging the leaves.
    all: Vec<Version>,
    /// Sources that could not be read, each with the kind of failure.
    pub(super) failed: Vec<(Source<'t>, FaultKind)>,
}

/// The columns of a block that were read, with their leaves.
pub(super) struct Columns<'m, 't> {
    pub(super) map: &'m BlockMap,
    pub(super) chunks: Vec<Chunk<'t>>,
    pub(super) rows: Vec<Vec<Loaded<'t>>>,
}

/// A read that covers one or more columns on the same child.
pub(super) struct Span {
    pub(super) child: usize,
    pub(super) at: i64,
    pub(super) len: u64,
    /// Row, column, first byte in the span, bytes.
    pub(super) pieces: Vec<(usize, usize, usize, usize)>,
}

/// Removes the bytes after the end of the block.
pub(super) fn finish(mut block: Vec<u8>, psize: usize) -> Vec<u8> {
    block.truncate(psize);
    block
}

impl<'t> Columns<'_, 't> {
    pub(super) fn file(&mut self, span: &Span, source: Source<'t>, bytes: Vec<u8>) {
        let chunk = self.chunks.len();
        self.chunks.push(Chunk { source, bytes });
        for (row, column, start, len) in &span.pieces {
            if let Some(state) = self.rows.get_mut(*row).and_then(|row| row.get_mut(*column)) {
                state.all.push(Version { chunk, start: *start, len: *len });
            }
        }
    }

    pub(super) fn file_failure(&mut self, span: &Span, source: Source<'t>, kind: FaultKind) {
        for (row, column, start, _) in &span.pieces {
            if let Some(state) = self.rows.get_mut(*row).and_then(|row| row.get_mut(*column)) {
                let at = format::DeviceOffset(source.at.0 + *start as u64);
                state.failed.push((Source { at, ..source }, kind));
            }
        }
    }

    /// Drops versions equal to a more trusted one.
    pub(super) fn find_distinct(&mut self) {
        let chunks = &self.chunks;
        for state in self.rows.iter_mut().flatten() {
            state.all.sort_by_key(|version| chunks.get(version.chunk).map(|chunk| chunk.source.trust));
            for version in &state.all {
                let bytes = slice(chunks, *version);
                if !state.distinct.iter().any(|known| slice(chunks, *known) == bytes) {
                    state.distinct.push(*version);
                }
            }
        }
    }

    /// The block from the columns that were read, without a search, if it is right.
    pub(super) fn without_search(&self, psize: usize, how: How<'_>) -> Option<Read> {
        let mut work = Work::new(self);
        if !work.attempt(&|row, column| self.best(row, column)) || !work.is_right(psize, how) {
            return None;
        }
        let mut faults = self.failures();
        if how.every_copy {
            faults.extend(self.judge(&work.block));
        }
        Some(Read { data: Ok(finish(work.block, psize)), faults })
    }

    /// Whether some columns were read only from untrusted leaves.
    pub(super) fn has_untrusted(&self) -> bool {
        let good = |version: &Version| {
            self.chunks.get(version.chunk).is_some_and(|chunk| chunk.source.trust == Trust::Good)
        };
        self.rows.iter().flatten().any(|state| state.distinct.first().is_some_and(|first| !good(first)))
    }

    /// The most trusted version of a column; `None`: it must be reconstructed.
    pub(super) fn best(&self, row: usize, column: usize) -> Option<usize> {
        (self.versions(row, column) > 0).then_some(0)
    }

    /// The most trusted version of a column, if its leaf is trusted.
    pub(super) fn best_good(&self, row: usize, column: usize) -> Option<usize> {
        let state = self.state(row, column)?;
        if state.known {
            return Some(0);
        }
        let chunk = self.chunks.get(state.distinct.first()?.chunk)?;
        (chunk.source.trust == Trust::Good).then_some(0)
    }

    /// Number of distinct contents of a column.
    pub(super) fn versions(&self, row: usize, column: usize) -> usize {
        self.state(row, column).map_or(0, |state| if state.known { 1 } else { state.distinct.len() })
    }

    fn state(&self, row: usize, column: usize) -> Option<&Loaded<'t>> {
        self.rows.get(row)?.get(column)
    }

    /// The bytes of a version; empty for an empty column.
    pub(super) fn bytes(&self, row: usize, column: usize, version: usize) -> &[u8] {
        let version = self.state(row, column).and_then(|state| state.distinct.get(version));
        version.map_or(&[], |version| slice(&self.chunks, *version))
    }

    /// Faults of the sources that could not be read.
    pub(super) fn failures(&self) -> Vec<Fault> {
        let failed = self.rows.iter().flatten().flat_map(|state| &state.failed);
        failed.filter_map(|(source, kind)| source.fault(*kind)).collect()
    }

    /// Faults of every column that was read, because it is not known which of them are wrong.
    pub(super) fn blame_all(&self) -> Vec<Fault> {
        let versions = self.rows.iter().flatten().flat_map(|state| &state.all);
        versions.filter_map(|version| self.fault(*version)).collect()
    }

    fn fault(&self, version: Version) -> Option<Fault> {
        let source = self.chunks.get(version.chunk)?.source;
        let at = format::DeviceOffset(source.at.0 + version.start as u64);
        Source { at, ..source }.fault(FaultKind::Checksum)
    }

    /// Faults of the columns that differ from those of the right block.
    pub(super) fn judge(&self, block: &[u8]) -> Vec<Fault> {
        let mut faults = Vec::new();
        for (row, states) in self.map.rows.iter().zip(&self.rows) {
            let data = data_slices(block, row);
            let parity_was_read = states.iter().take(row.nparity).any(|state| !state.all.is_empty());
            let mut parity = vec![vec![0; row.height() as usize]; row.nparity];
            if parity_was_read {
                let mut targets: Vec<&mut [u8]> = parity.iter_mut().map(Vec::as_mut_slice).collect();
                if gf256::generate(&data, &mut targets).is_err() {
                    continue;
                }
            }
            let right = parity.iter().map(Vec::as_slice).chain(data.iter().copied());
            for (state, right) in states.iter().zip(right) {
                let wrong = state.all.iter().filter(|version| !says(slice(&self.chunks, **version), right));
                faults.extend(wrong.filter_map(|version| self.fault(*version)));
            }
        }
        faults
    }
}

fn slice<'c>(chunks: &'c [Chunk<'_>], version: Version) -> &'c [u8] {
    let end = version.start.saturating_add(version.len);
    chunks.get(version.chunk).and_then(|chunk| chunk.bytes.get(version.start..end)).unwrap_or_default()
}

/// Whether stored bytes equal the right ones, padded with zeros or cut to the part that was read.
fn says(stored: &[u8], right: &[u8]) -> bool {
    let common = stored.len().min(right.len());
    let (head, padding) = stored.split_at(common);
    head == &right[..common] && padding.iter().all(|byte| *byte == 0)
}

/// The parts of a block that form the data columns of a row.
pub(super) fn data_slices<'b>(block: &'b [u8], row: &Row) -> Vec<&'b [u8]> {
    let part = |column: &Column| {
        let start = column.block_at as usize;
        block.get(start..start + column.data as usize).unwrap_or_default()
    };
    row.data().iter().map(part).collect()
}

/// Like `data_slices`, mutable. Columns of a row are consecutive in the block.
pub(super) fn data_slices_mut<'b>(block: &'b mut [u8], row: &Row) -> Vec<&'b mut [u8]> {
    let mut slices = Vec::with_capacity(row.columns.len());
    let (mut rest, mut at) = (block, 0);
    for column in row.data() {
        if column.data == 0 {
            slices.push(&mut [][..]);
            continue;
        }
        let skip = (column.block_at as usize).saturating_sub(at).min(rest.len());
        let (_, tail) = rest.split_at_mut(skip);
        let take = (column.data as usize).min(tail.len());
        let (slice, tail) = tail.split_at_mut(take);
        slices.push(slice);
        at += skip + take;
        rest = tail;
    }
    slices
}

/// A block being assembled from versions of its columns.
pub(super) struct Work<'c, 'm, 't> {
    columns: &'c Columns<'m, 't>,
    pub(super) block: Vec<u8>,
    rows: Vec<WorkRow>,
}

pub(super) struct WorkRow {
    /// Parity columns; empty until one is needed.
    parity: Vec<Vec<u8>>,
    /// Index of the version in place for each column; `None`: not a version.
    now: Vec<Option<usize>>,
}

impl<'c, 'm, 't> Work<'c, 'm, 't> {
    pub(super) fn new(columns: &'c Columns<'m, 't>) -> Work<'c, 'm, 't> {
        let rows = columns
            .map
            .rows
            .iter()
            .map(|row| WorkRow { parity: vec![Vec::new(); row.nparity], now: vec![None; row.columns.len()] })
            .collect();
        Work { columns, block: vec![0; columns.map.size as usize], rows }
    }

    /// Assembles the block; `pick` chooses the version of each column, or `None` to reconstruct it. Returns
    /// false if a row lacks more columns than it has parity: the block is undefined then.
    pub(super) fn attempt(&mut self, pick: &dyn Fn(usize, usize) -> Option<usize>) -> bool {
        let Work { columns, block, rows } = self;
        rows.iter_mut()
            .zip(&columns.map.rows)
            .enumerate()
            .all(|(r, (state, row))| state.fill(columns, block, r, row, pick))
    }

    pub(super) fn is_right(&self, psize: usize, how: How<'_>) -> bool {
        self.block.get(..psize).is_some_and(how.verify)
    }
}

impl WorkRow {
    fn fill(
        &mut self,
        columns: &Columns<'_, '_>,
        block: &mut [u8],
        r: usize,
        row: &Row,
        pick: &dyn Fn(usize, usize) -> Option<usize>,
    ) -> bool {
        let choice: Vec<Option<usize>> = (0..row.columns.len()).map(|c| pick(r, c)).collect();
        let lacking = |c: &usize| choice.get(*c).is_none_or(Option::is_none);
        let lost_data = (row.nparity..row.columns.len()).filter(lacking).count();
        if lost_data > (0..row.nparity).filter(|c| !lacking(c)).count() {
            return false;
        }
        let mut data = data_slices_mut(block, row);
        for (c, target) in (row.nparity..).zip(&mut data) {
            place(&mut self.now, columns, &choice, r, c, target);
        }
        if lost_data == 0 {
            return true;
        }
        // Parity columns after the last available one would be recomputed without use.
        let nparity = (0..row.nparity).rev().find(|c| !lacking(c)).map_or(0, |last| last + 1);
        let mut all: Vec<&mut [u8]> = Vec::with_capacity(row.columns.len());
        for (c, target) in self.parity.iter_mut().enumerate().take(nparity) {
            target.resize(row.height() as usize, 0);
            place(&mut self.now, columns, &choice, r, c, target);
            all.push(target);
        }
        all.extend(data);
        let behind = row.nparity - nparity;
        let at_hand = (0..row.columns.len()).filter(lacking).filter(|c| *c < nparity || *c >= row.nparity);
        let missing: Vec<usize> = at_hand.map(|c| if c < nparity { c } else { c - behind }).collect();
        gf256::reconstruct(&mut all, nparity, &missing).is_ok()
    }
}

/// Copies the chosen version of a column into place unless it is there already.
fn place(
    now: &mut [Option<usize>],
    columns: &Columns<'_, '_>,
    choice: &[Option<usize>],
    r: usize,
    c: usize,
    target: &mut [u8],
) {
    let Some(now) = now.get_mut(c) else { return };
    let wanted = choice.get(c).copied().flatten();
    if let Some(version) = wanted
        && *now != wanted
    {
        let bytes = columns.bytes(r, c, version);
        let common = bytes.len().min(target.len());
        target[..common].copy_from_slice(&bytes[..common]);
        target[common..].fill(0);
    }
    *now = wanted;
}
