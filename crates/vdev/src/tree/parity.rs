//! Reading the columns of RAID-Z and dRAID blocks.
//!
//! # Order
//! 1. The data columns alone, straight into the block, if all their leaves should have them.
//! 2. Otherwise data from good leaves, and as many parity columns as data columns are missing.
//! 3. If the result is not right: all columns of all leaves, and a search for the wrong ones (`search.rs`).
//!
//! Afterwards the block is known, so every column that was read can be judged.

use super::block::{Extent, FaultKind, How, Read};
use super::columns::{Columns, Loaded, Span, finish};
use super::copies::{Pull, Source, pull_all};
use super::error::VdevError;
use super::leaf::Trust;
use super::node::{Vdev, VdevTree};
use super::search;
use crate::geometry::{BlockMap, Column, Row};
use format::Txg;

/// Largest gap, in sectors, between two reads of one leaf that are joined to one.
const GAP_SECTORS: u64 = 4;

/// The columns of a block to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Load {
    /// Data of good leaves, and only as much parity as needed.
    Enough,
    /// All columns of good leaves, padding included.
    Good,
    /// All columns of all leaves.
    All,
}

/// The data columns of a block, read straight into their places in the block.
pub(super) struct Straight<'t> {
    block: Vec<u8>,
    /// Source and number of bytes of each column, in the order of the block.
    parts: Vec<(Source<'t>, usize)>,
}

impl<'t> Straight<'t> {
    /// The reads of all columns.
    pub(super) fn pulls(&mut self) -> impl Iterator<Item = Pull<'t, '_>> {
        let mut rest = self.block.as_mut_slice();
        self.parts.iter().map(move |(source, len)| {
            let (buf, tail) = std::mem::take(&mut rest).split_at_mut(*len);
            rest = tail;
            Pull::new(*source, buf)
        })
    }

    /// Number of data columns.
    pub(super) fn columns(&self) -> usize {
        self.parts.len()
    }

    /// The block, if all columns could be read and it is right.
    pub(super) fn accept(self, is_complete: bool, psize: usize, how: How<'_>) -> Option<Read> {
        let is_right = is_complete && self.block.get(..psize).is_some_and(how.verify);
        is_right.then(|| Read { data: Ok(finish(self.block, psize)), faults: Vec::new() })
    }
}

impl VdevTree {
    /// Reads a block by its map.
    pub(super) fn read_columns(&self, children: &[Vdev], map: &BlockMap, at: &Extent, how: How<'_>) -> Read {
        let psize = at.psize.0 as usize;
        let straight = if how.every_copy { None } else { self.straight(children, map, at) };
        if let Some(mut straight) = straight {
            let mut pulls: Vec<_> = straight.pulls().collect();
            pull_all(&mut pulls);
            let is_complete = pulls.iter().all(|pull| pull.result.is_ok());
            drop(pulls);
            let read = straight.accept(is_complete, psize, how);
            return read.unwrap_or_else(|| self.search_columns(children, map, at, how));
        }
        let load = if how.every_copy { Load::Good } else { Load::Enough };
        let first = self.load(children, map, at.birth, load).without_search(psize, how);
        first.unwrap_or_else(|| self.search_columns(children, map, at, how))
    }

    /// Reads all columns of a block from all leaves, and searches for the wrong ones.
    pub(super) fn search_columns(
        &self,
        children: &[Vdev],
        map: &BlockMap,
        at: &Extent,
        how: How<'_>,
    ) -> Read {
        let psize = at.psize.0 as usize;
        let all = self.load(children, map, at.birth, Load::All);
        match search::search(&all, psize, how.verify) {
            Ok(block) => {
                let mut faults = all.failures();
                faults.extend(all.judge(&block));
                Read { data: Ok(finish(block, psize)), faults }
            }
            Err(error) => {
                let mut faults = all.failures();
                if error == VdevError::WrongChecksum {
                    faults.extend(all.blame_all());
                }
                Read { data: Err(error), faults }
            }
        }
    }

    /// The reads of the data columns alone; `None` if some data are not on leaves that should have them, or
    /// the columns are not in order.
    pub(super) fn straight<'t>(
        &'t self,
        children: &'t [Vdev],
        map: &BlockMap,
        at: &Extent,
    ) -> Option<Straight<'t>> {
        if !map.in_order {
            return None;
        }
        let (mut parts, mut left) = (Vec::new(), map.size);
        for column in map.rows.iter().flat_map(Row::data).filter(|column| column.data > 0) {
            left = left.checked_sub(column.data)?;
            let child = children.get(column.child)?;
            let sources = self.sources(child, column.at, column.data, at.birth);
            let source = sources.first().filter(|source| source.trust == Trust::Good)?;
            parts.push((*source, column.data as usize));
        }
        Some(Straight { block: vec![0; map.size as usize], parts })
    }

    /// Reads columns, all leaves at once.
    fn load<'m, 't>(
        &'t self,
        children: &'t [Vdev],
        map: &'m BlockMap,
        birth: Txg,
        load: Load,
    ) -> Columns<'m, 't> {
        let mut loaded = Columns { map, chunks: Vec::new(), rows: Vec::with_capacity(map.rows.len()) };
        let mut wanted = Vec::new();
        for (r, row) in map.rows.iter().enumerate() {
            let mut columns: Vec<Loaded<'t>> = row.columns.iter().map(|_| Loaded::default()).collect();
            let mut lacking = row.nparity;
            if load == Load::Enough {
                let good = |column: &&Column| self.is_good(children, column, birth);
                let stored = || row.data().iter().filter(|column| column.data > 0);
                lacking = stored().count() - stored().filter(good).count();
            }
            for (c, column) in row.columns.iter().enumerate() {
                let is_parity = c < row.nparity;
                let len = if is_parity || load == Load::Good { column.stored } else { column.data };
                if let Some(state) = columns.get_mut(c) {
                    state.known = len == 0;
                }
                if len == 0 {
                    continue;
                }
                if is_parity && load == Load::Enough {
                    if lacking == 0 || !self.is_good(children, column, birth) {
                        continue;
                    }
                    lacking -= 1;
                }
                wanted.push((column.child, column.at, len, r, c));
            }
            loaded.rows.push(columns);
        }
        let spans = join(wanted, map.sector * GAP_SECTORS);
        self.fetch(children, &spans, birth, load, &mut loaded);
        loaded.find_distinct();
        loaded
    }

    fn is_good(&self, children: &[Vdev], column: &Column, birth: Txg) -> bool {
        let Some(child) = children.get(column.child) else { return false };
        let sources = self.sources(child, column.at, column.stored, birth);
        sources.first().is_some_and(|source| source.trust == Trust::Good)
    }

    /// Reads the spans from their sources and stores the results under their columns.
    fn fetch<'t>(
        &'t self,
        children: &'t [Vdev],
        spans: &[Span],
        birth: Txg,
        load: Load,
        loaded: &mut Columns<'_, 't>,
    ) {
        let mut jobs: Vec<(usize, Source<'t>, Vec<u8>)> = Vec::with_capacity(spans.len());
        for (s, span) in spans.iter().enumerate() {
            let Some(child) = children.get(span.child) else { continue };
            let sources = self.sources(child, span.at, span.len, birth);
            // A plain read needs one of several good sources; a scrub compares them all.
            let has_good = sources.first().is_some_and(|source| source.trust == Trust::Good);
            let take = if load == Load::Enough && has_good { 1 } else { sources.len() };
            for source in sources.into_iter().take(take) {
                if load == Load::All || source.trust == Trust::Good {
                    jobs.push((s, source, vec![0; span.len as usize]));
                } else {
                    loaded.file_failure(span, source, FaultKind::Missing);
                }
            }
        }
        let mut pulls: Vec<_> = jobs.iter_mut().map(|(_, source, bytes)| Pull::new(*source, bytes)).collect();
        pull_all(&mut pulls);
        let results: Vec<_> = pulls.into_iter().map(|pull| pull.result).collect();
        for ((s, source, bytes), result) in jobs.into_iter().zip(results) {
            let Some(span) = spans.get(s) else { continue };
            match result {
                Ok(()) => loaded.file(span, source, bytes),
                Err(_) => loaded.file_failure(span, source, FaultKind::Io),
            }
        }
    }
}

/// Joins neighbouring columns of a child into one read.
fn join(mut wanted: Vec<(usize, i64, u64, usize, usize)>, gap: u64) -> Vec<Span> {
    wanted.sort_unstable();
    let mut spans: Vec<Span> = Vec::with_capacity(wanted.len());
    for (child, at, len, row, column) in wanted {
        if let Some(last) = spans.last_mut()
            && last.child == child
            && let Ok(start) = u64::try_from(at - last.at)
            && start <= last.len + gap
        {
            last.len = last.len.max(start + len);
            last.pieces.push((row, column, start as usize, len as usize));
            continue;
        }
        spans.push(Span { child, at, len, pieces: vec![(row, column, 0, len as usize)] });
    }
    spans
}
