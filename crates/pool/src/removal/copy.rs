//! A slice of a removal: some segments are copied, in one txg.

use super::{MAX_SEGMENT, MAX_SPAN, Run, mapping, put};
use crate::error::PoolError;
use crate::live::{LivePool, PoolTask};
use crate::space;
use crate::space_maps::class_of;
use dsl::TaskCtx;
use format::config::VdevNode;
use format::{AllocOffset, Asize, Dva, Psize, VdevId};
use std::ops::Range;
use std::sync::Arc;
use vdev::sync::lock;
use vdev::tree::{IndirectMapping, MapEntry, RangeSet};
use zio::Move;
use zio::alloc::{AllocClass, AllocError, Request};

/// Most bytes of a slice: so much memory it takes, twice for mirrors.
const SLICE_MAX: u64 = 32 << 20;
/// Fewest bytes of a slice, even if less is asked for: the largest sector. Slices are multiples of it.
const SLICE_MIN: u64 = 64 << 10;

/// Segments to be copied in one txg.
#[derive(Debug, Default)]
struct Batch {
    /// Ranges of the vdev, ascending.
    segments: Vec<Range<u64>>,
    /// The parts of the segments that are not in use.
    gaps: Vec<Range<u64>>,
    bytes: u64,
    /// Most bytes of a segment.
    longest: u64,
    /// Nothing in use is left behind the segments.
    is_last: bool,
}

impl LivePool {
    /// Copies some segments. Returns true if none are left.
    pub(super) fn copy_slice(&self, budget: u64) -> Result<bool, PoolError> {
        let Some(run) = *lock(&self.removals.run) else { return Ok(true) };
        let budget = budget.clamp(SLICE_MIN, SLICE_MAX) / SLICE_MIN * SLICE_MIN;
        let (run, is_last) = self.run_on_pool(move |ctx, pool| pool.copy_slice(ctx, run, budget))?;
        *lock(&self.removals.run) = Some(run);
        Ok(is_last)
    }
}

impl PoolTask<'_> {
    fn copy_slice(
        &mut self,
        ctx: &mut TaskCtx<'_>,
        mut run: Run,
        budget: u64,
    ) -> Result<(Run, bool), PoolError> {
        let (pool, vdev) = (self.pool, run.vdev);
        let node = self.state.config.vdev_tree.children.get(vdev.0 as usize);
        let node = node.ok_or(PoolError::NoVdev { vdev })?;
        let before = pool.tree().indirect(vdev).unwrap_or_default();
        let batch = next_batch(pool, node, before.end().0, budget)?;
        if batch.segments.is_empty() {
            return Ok((run, true));
        }
        let class = class_of(space::class_of(&ctx.mos.view(), node)?);
        let entries = copy(ctx, pool, vdev, class, &batch)?;
        mapping::append(ctx.m(), node, &before, &entries, ctx.txg())?;
        let extended: IndirectMapping = before.extended(vdev, &entries, ctx.txg())?;
        pool.tree().set_mapping(vdev, Arc::new(extended));
        for gap in &batch.gaps {
            let (offset, asize) = (AllocOffset(gap.start), Asize(gap.end - gap.start));
            pool.zio.free_copies(vdev, offset, asize, ctx.tx).map_err(|cause| alloc_failed(vdev, cause))?;
        }
        run.phys.copied = run.phys.copied.saturating_add(batch.bytes).min(run.phys.to_copy);
        put(ctx.m(), &run.phys)?;
        Ok((run, batch.is_last))
    }
}

/// The next segments behind `from`, joined over short gaps.
fn next_batch(pool: &LivePool, node: &VdevNode, from: u64, budget: u64) -> Result<Batch, PoolError> {
    let vdev = VdevId(node.id);
    let sector = 1_u64 << node.ashift.map_or(9, |ashift| ashift.0);
    let longest = (MAX_SEGMENT.get() / sector * sector).max(sector);
    let mut batch = Batch { is_last: true, longest, ..Batch::default() };
    let first = from.checked_shr(node.metaslab_shift).unwrap_or(u64::MAX);
    for metaslab in first..node.metaslabs() {
        let mut in_use: RangeSet =
            pool.allocator.in_use(vdev, metaslab).map_err(|cause| alloc_failed(vdev, cause))?;
        in_use.remove(0..from);
        for range in in_use.iter() {
            if !batch.add(range, budget) {
                return Ok(batch);
            }
        }
    }
    Ok(batch)
}

impl Batch {
    /// Adds a range. Returns false if the batch is full: the rest of the range is left to the next one.
    fn add(&mut self, range: Range<u64>, budget: u64) -> bool {
        let mut at = range.start;
        while at < range.end {
            if self.bytes >= budget {
                self.is_last = false;
                return false;
            }
            let len = (range.end - at).min(self.longest).min(budget - self.bytes);
            self.push(at..at + len);
            at += len;
        }
        true
    }

    fn push(&mut self, part: Range<u64>) {
        self.bytes += part.end - part.start;
        if let Some(last) = self.segments.last_mut()
            && part.start - last.end <= MAX_SPAN.get()
            && part.end - last.start <= self.longest
        {
            if part.start > last.end {
                self.gaps.push(last.end..part.start);
            }
            last.end = part.end;
            return;
        }
        self.segments.push(part);
    }
}

/// Allocates new places for segments, and copies them. Gives the places back if that fails.
fn copy(
    ctx: &TaskCtx<'_>,
    pool: &LivePool,
    vdev: VdevId,
    class: AllocClass,
    batch: &Batch,
) -> Result<Vec<MapEntry>, PoolError> {
    let mut moves: Vec<Move> = Vec::new();
    let copied = batch
        .segments
        .iter()
        .try_for_each(|segment| place(ctx, pool, vdev, class, segment, &mut moves))
        .and_then(|()| Ok(pool.zio.copy_ranges(&moves, &batch.gaps, ctx.txg())?));
    if let Err(error) = copied {
        for one in &moves {
            // If this fails the space is lost until the pool is next opened; the caller need not know.
            let _ = pool.allocator.free(&one.to, ctx.tx);
        }
        return Err(error);
    }
    let entry = |one: &Move| MapEntry { src: one.from.offset, len: one.to.asize.0, dst: one.to };
    Ok(moves.iter().map(entry).collect())
}

/// Allocates new places for a segment: one, or several smaller ones if there is no segment as long.
fn place(
    ctx: &TaskCtx<'_>,
    pool: &LivePool,
    vdev: VdevId,
    class: AllocClass,
    segment: &Range<u64>,
    moves: &mut Vec<Move>,
) -> Result<(), PoolError> {
    let (mut at, mut longest) = (segment.start, u64::MAX);
    while at < segment.end {
        let len = (segment.end - at).min(longest);
        let want = Request { class, psize: Psize(len), copies: 1, near: None };
        match pool.allocator.allocate(&want, ctx.tx) {
            Ok(places) => {
                let Some(to) = places.into_iter().next() else { continue };
                let from = Dva { vdev, offset: AllocOffset(at), asize: Asize(len), gang: false };
                moves.push(Move { from, to });
                at += len;
            }
            Err(AllocError::NoSpace { largest, .. }) if largest.0 > 0 && largest.0 < len => {
                longest = largest.0;
            }
            Err(cause) => return Err(alloc_failed(vdev, cause)),
        }
    }
    Ok(())
}

fn alloc_failed(vdev: VdevId, cause: AllocError) -> PoolError {
    PoolError::Evacuate { vdev, cause: Box::new(cause) }
}
