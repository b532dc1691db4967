//! One metaslab: its free and deferred units, and the changes of each txg.
//!
//! # What always holds
//! - A unit is in exactly one of: free (the tree or a window), deferred, allocated.
//! - No unit changes before the free space was loaded, so the source returns the state of the disk before the
//!   first change. Free space is dropped from memory only when no unit is deferred or pending and the last
//!   change is on disk.
//! - The counters of the vdev are the sums over its metaslabs.
//!
//! # Windows
//! Small and large requests are each served from a window, a run cut out of the free segments, by moving its
//! start: blocks of one txg lie side by side and most allocations do not use a tree. A window is settled (its
//! rest goes back to the tree) when it is too short, or when an operation needs all free space in one place.

use super::ledger::Ledger;
use super::pending::Pending;
use super::range_tree::{RangeTree, Run, Runs};
use super::types::{LoadError, SpaceSource};
use format::{Txg, VdevId};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};
use vdev::tree::RangeSet;

/// Largest small request in bytes; small requests are served apart from larger ones.
const SMALL_MAX: u64 = 32 << 10;
/// Longest window, in bytes, for small and for large requests.
const WINDOW_MAX: [u64; 2] = [1 << 20, 16 << 20];
/// A window is at most the metaslab divided by this.
const WINDOW_SHARE: u64 = 32;
/// Segments shorter than the longest window divided by this do not become windows while there are longer
/// ones.
const WINDOW_MIN_SHARE: u64 = 8;
/// Segments examined from the cursor on before the index by length is used.
const STEPS: usize = 64;
/// Number of txgs before freed space is reused (docs/on-disk/15-space.md, section 5).
pub(super) const DEFER_TXGS: u64 = 2;

/// Kind of window that serves a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Allocations of metadata and small blocks.
    Small,
    /// All other allocations.
    Large,
}

impl Kind {
    /// The kind for a request of so many bytes.
    pub(super) fn of(bytes: u64) -> Kind {
        if bytes <= SMALL_MAX { Kind::Small } else { Kind::Large }
    }
}

/// Allocated and deferred bytes of a vdev.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) allocated: AtomicU64,
    pub(super) deferred: AtomicU64,
}

/// Applies the change of one part to a sum; the sum itself cannot become negative.
fn change(sum: &AtomicU64, before: u64, after: u64) {
    sum.fetch_add(after.wrapping_sub(before), Relaxed);
}

/// Number of a metaslab, and what it works with: its source of free space, and the counters that it keeps up to date.
#[derive(Clone, Copy)]
pub(super) struct MetaslabContext<'a> {
    pub(super) vdev: VdevId,
    pub(super) index: u64,
    pub(super) counters: &'a Counters,
    pub(super) ledger: &'a Ledger,
    pub(super) source: &'a dyn SpaceSource,
}

/// Why a run cannot be freed or claimed.
#[derive(Debug)]
pub(super) enum Refusal {
    /// Part of the run has the wrong state: free, or allocated.
    State,
    /// The free space could not be read.
    Load(LoadError),
}

impl From<LoadError> for Refusal {
    fn from(error: LoadError) -> Refusal {
        Refusal::Load(error)
    }
}

/// A metaslab: a part of a top-level vdev with its own space map.
#[derive(Debug)]
pub(super) struct Metaslab {
    /// First byte in the vdev; a multiple of `unit`.
    pub(super) start: u64,
    /// Size in bytes; a multiple of `unit`.
    pub(super) size: u64,
    /// Granularity of allocations, in bytes.
    unit: u64,
    /// Bytes that can be allocated now; before loading, by the hint.
    free: AtomicU64,
    /// Bytes of the longest free segment. Before loading, by the hint; later an estimate.
    largest: AtomicU64,
    /// Whether `largest` is exact rather than an estimate.
    is_largest_exact: AtomicBool,
    is_loaded: AtomicBool,
    /// Whether reading its free space failed.
    is_unreadable: AtomicBool,
    body: Mutex<Body>,
}

#[derive(Debug, Default)]
struct Body {
    free: Option<Box<FreeSpace>>,
    /// By txg, ascending: at most the syncing and the open one.
    pending: Vec<(Txg, Pending)>,
    /// Freed runs that are not reusable yet, by txg, ascending.
    deferred: Vec<(Txg, Runs)>,
    /// Allocated bytes, as included in [`Counters`].
    allocated: u64,
    /// Deferred bytes, as included in [`Counters`].
    waiting: u64,
    /// Txg of the last change.
    changed: Txg,
}

#[derive(Debug)]
struct FreeSpace {
    tree: RangeTree,
    /// The rest of each kind's window; if it is empty, the cursor.
    windows: [Run; 2],
}

impl FreeSpace {
    fn total(&self) -> u64 {
        self.tree.total() + self.windows.iter().map(|(_, len)| u64::from(*len)).sum::<u64>()
    }

    fn overlaps(&self, (start, len): Run) -> bool {
        let in_window = |&(at, left): &Run| left > 0 && at < start + len && start < at + left;
        self.windows.iter().any(in_window) || self.tree.overlaps((start, len))
    }

    fn settle_kind(&mut self, kind: Kind) {
        let (at, left) = self.windows[kind as usize];
        self.tree.insert((at, left));
        self.windows[kind as usize] = (at, 0);
    }

    fn settle(&mut self) {
        self.settle_kind(Kind::Small);
        self.settle_kind(Kind::Large);
    }

    /// Takes `len` units off the kind's window.
    fn bump(&mut self, kind: Kind, len: u32) -> Option<u32> {
        let (at, left) = &mut self.windows[kind as usize];
        if *left < len {
            return None;
        }
        let taken = *at;
        *at += len;
        *left -= len;
        Some(taken)
    }

    /// Makes a new window with at least `len` units. Sequential as long as there are long segments; otherwise
    /// the shortest sufficient segment, and only as much of it as needed.
    fn refill(&mut self, kind: Kind, len: u32, longest: u32) -> bool {
        self.settle_kind(kind);
        let cursor = self.windows[kind as usize].0;
        let long = (longest / WINDOW_MIN_SHARE as u32).max(len);
        let tree = &mut self.tree;
        let (found, wanted) = if tree.largest() >= long {
            let next = tree.next_fit(cursor, long, STEPS);
            let found = next.or_else(|| tree.next_fit(0, long, STEPS)).or_else(|| tree.best_fit(long));
            (found, longest.max(len))
        } else {
            (tree.best_fit(len), len)
        };
        let Some((start, count)) = found else { return false };
        let window = (start, count.min(wanted));
        tree.remove(window);
        self.windows[kind as usize] = window;
        true
    }

    /// Takes `len` units. Returns windows to the tree if the units are not available otherwise.
    fn take(&mut self, kind: Kind, len: u32, longest: u32) -> Option<u32> {
        if let Some(at) = self.bump(kind, len) {
            return Some(at);
        }
        if !self.refill(kind, len, longest) {
            self.settle();
            if !self.refill(kind, len, longest) {
                return None;
            }
        }
        self.bump(kind, len)
    }
}

impl Body {
    fn pending(&mut self, txg: Txg, place: &MetaslabContext<'_>) -> &mut Pending {
        self.changed = self.changed.max(txg);
        by_txg(&mut self.pending, txg, || place.ledger.note_change(txg, place.vdev, place.index))
    }

    fn defer(&mut self, txg: Txg, run: Run, place: &MetaslabContext<'_>) {
        by_txg(&mut self.deferred, txg, || place.ledger.note_deferred(txg, place.vdev, place.index))
            .insert(run);
    }

    fn is_deferred(&self, run: Run) -> bool {
        self.deferred.iter().any(|(_, runs)| runs.overlaps(run))
    }

    /// The free space, which the caller has loaded.
    fn loaded(&mut self) -> &mut FreeSpace {
        self.free.as_deref_mut().expect("the metaslab was loaded before it is used")
    }
}

/// The entry of a txg, created if it is missing.
fn by_txg<T: Default>(list: &mut Vec<(Txg, T)>, txg: Txg, made: impl FnOnce()) -> &mut T {
    let index = list.partition_point(|(at, _)| *at < txg);
    if list.get(index).is_none_or(|(at, _)| *at != txg) {
        list.insert(index, (txg, T::default()));
        made();
    }
    &mut list[index].1
}

/// Facts about a metaslab before it is loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) allocated: u64,
    pub(super) largest: u64,
    /// The metaslab was never written, so the hints are right.
    pub(super) is_empty: bool,
}

impl Metaslab {
    /// A metaslab that is not loaded. Adds its allocated bytes by the hint to the vdev's counters.
    pub(super) fn new(start: u64, size: u64, unit: u64, known: Known, counters: &Counters) -> Metaslab {
        let allocated = known.allocated.min(size);
        change(&counters.allocated, 0, allocated);
        let largest = if known.is_empty { size } else { known.largest.min(size - allocated) };
        Metaslab {
            start,
            size,
            unit,
            free: AtomicU64::new(size - allocated),
            largest: AtomicU64::new(largest),
            is_largest_exact: AtomicBool::new(known.is_empty),
            is_loaded: AtomicBool::new(false),
            is_unreadable: AtomicBool::new(false),
            body: Mutex::new(Body { allocated, ..Body::default() }),
        }
    }

    /// Bytes that can be allocated, as far as known.
    pub(super) fn free_bytes(&self) -> u64 {
        self.free.load(Relaxed)
    }

    /// Bytes of the longest free segment, as far as known.
    pub(super) fn largest(&self) -> u64 {
        self.largest.load(Relaxed).min(self.free_bytes())
    }

    /// Whether there may be a segment of this length, by [`Metaslab::largest`] or beyond it.
    pub(super) fn may_have(&self, bytes: u64) -> bool {
        self.free_bytes() >= bytes && !self.is_largest_exact.load(Relaxed)
    }

    /// Whether there may be such a segment, and the hint does not exclude it. A hint is a power of two below
    /// the length of the longest segment.
    pub(super) fn is_likely_to_have(&self, bytes: u64) -> bool {
        let hint = self.largest.load(Relaxed);
        self.may_have(bytes) && (self.is_loaded() || hint == 0 || bytes / 2 <= hint)
    }

    /// Whether its free space is in memory.
    pub(super) fn is_loaded(&self) -> bool {
        self.is_loaded.load(Relaxed)
    }

    /// Whether its free space could not be read.
    pub(super) fn is_unreadable(&self) -> bool {
        self.is_unreadable.load(Relaxed)
    }

    /// Lets a metaslab whose loading failed be loaded again.
    pub(super) fn forget_failure(&self) {
        self.is_unreadable.store(false, Relaxed);
    }

    /// Txg of the last change, and number of segments in memory.
    pub(super) fn segments(&self) -> (Txg, usize) {
        let body = self.lock();
        (body.changed, body.free.as_ref().map_or(0, |free| free.tree.segments()))
    }

    fn lock(&self) -> MutexGuard<'_, Body> {
        // A thread that panicked here has found a bug in this module: no other thread may use its state.
        self.body.lock().expect("no thread panicked while it changed this metaslab")
    }

    /// Units of a length in bytes.
    fn units(&self, bytes: u64) -> Option<u32> {
        u32::try_from(bytes / self.unit).ok().filter(|_| bytes.is_multiple_of(self.unit))
    }

    /// The run of a range of bytes of the vdev; `None`: not in this metaslab, or not in whole units.
    fn run(&self, offset: u64, bytes: u64) -> Option<Run> {
        let at = offset.checked_sub(self.start)?;
        let end = at.checked_add(bytes)?;
        if bytes == 0 || end > self.size {
            return None;
        }
        Some((self.units(at)?, self.units(bytes)?))
    }

    /// Whether a range of bytes of the vdev is in this metaslab, in whole units.
    pub(super) fn has(&self, offset: u64, bytes: u64) -> bool {
        self.run(offset, bytes).is_some()
    }

    fn bytes(&self, units: u32) -> u64 {
        u64::from(units) * self.unit
    }

    fn offset(&self, unit: u32) -> u64 {
        self.start + self.bytes(unit)
    }

    /// Units of the longest window.
    fn window(&self, kind: Kind) -> u32 {
        let bytes = WINDOW_MAX[kind as usize].min(self.size / WINDOW_SHARE);
        u32::try_from(bytes / self.unit).unwrap_or(u32::MAX).max(1)
    }

    // ---- loading -------------------------------------------------------------------------------

    /// Locks the metaslab with its free space in memory.
    fn load(&self, place: &MetaslabContext<'_>) -> Result<MutexGuard<'_, Body>, LoadError> {
        let mut body = self.lock();
        if body.free.is_none() {
            let tree = self.read(place).inspect_err(|_| self.is_unreadable.store(true, Relaxed))?;
            let free = tree.total() * self.unit;
            change(&place.counters.allocated, body.allocated, self.size - free);
            body.allocated = self.size - free;
            body.free = Some(Box::new(FreeSpace { tree, windows: [(0, 0); 2] }));
            self.is_loaded.store(true, Relaxed);
            self.is_unreadable.store(false, Relaxed);
            self.tell(&body);
        }
        Ok(body)
    }

    fn read(&self, place: &MetaslabContext<'_>) -> Result<RangeTree, LoadError> {
        if self.size / self.unit > u64::from(u32::MAX) {
            return Err(LoadError::TooLarge);
        }
        let space = place.source.free_space(place.vdev, place.index).map_err(LoadError::Source)?;
        let mut runs = Vec::new();
        for range in space.iter() {
            let run = self.run(range.start, range.end - range.start);
            runs.push(run.ok_or(LoadError::Range { start: range.start, end: range.end })?);
        }
        Ok(RangeTree::from_ascending(&runs))
    }

    /// Updates the numbers that are read without the lock.
    fn tell(&self, body: &Body) {
        let Some(free) = &body.free else { return };
        let in_windows = free.windows.iter().map(|(_, len)| *len).max().unwrap_or(0);
        self.free.store(free.total() * self.unit, Relaxed);
        self.largest.store(self.bytes(free.tree.largest().max(in_windows)), Relaxed);
        self.is_largest_exact.store(in_windows == 0, Relaxed);
    }

    /// Drops the free space from memory if the disk has all changes.
    pub(super) fn unload(&self, synced: Txg) -> bool {
        let mut body = self.lock();
        let is_idle = body.pending.is_empty() && body.deferred.is_empty() && body.changed <= synced;
        if !is_idle || body.free.is_none() {
            return false;
        }
        body.loaded().settle();
        self.tell(&body);
        body.free = None;
        self.is_loaded.store(false, Relaxed);
        true
    }

    /// Makes [`Metaslab::largest`] exact, if the free space is in memory.
    pub(super) fn settle(&self) {
        let mut body = self.lock();
        if let Some(free) = &mut body.free {
            free.settle();
        }
        self.tell(&body);
    }

    // ---- allocating ----------------------------------------------------------------------------

    /// Allocates `bytes`. Returns the offset in the vdev, or `None` if there is not enough space.
    pub(super) fn alloc(
        &self,
        bytes: u64,
        kind: Kind,
        txg: Txg,
        place: &MetaslabContext<'_>,
    ) -> Result<Option<u64>, LoadError> {
        let Some(len) = self.units(bytes) else { return Ok(None) };
        let mut body = self.load(place)?;
        let free = body.loaded();
        if let Some(at) = free.bump(kind, len) {
            self.free.fetch_sub(bytes, Relaxed);
            return Ok(Some(self.took(&mut body, (at, len), txg, place)));
        }
        let at = free.take(kind, len, self.window(kind));
        self.tell(&body);
        Ok(at.map(|at| self.took(&mut body, (at, len), txg, place)))
    }

    /// Like [`Metaslab::alloc`], but at least `distance` bytes away from each of `others` if possible.
    pub(super) fn alloc_away(
        &self,
        bytes: u64,
        (others, distance): (&[u64], u64),
        txg: Txg,
        place: &MetaslabContext<'_>,
    ) -> Result<Option<u64>, LoadError> {
        let Some(len) = self.units(bytes) else { return Ok(None) };
        let mut body = self.load(place)?;
        let free = body.loaded();
        free.settle();
        let is_far = |at: u32| others.iter().all(|other| other.abs_diff(self.offset(at)) >= distance);
        let beyond = |other: &u64| {
            let at = other.saturating_add(distance).saturating_sub(self.start);
            u32::try_from(at.div_ceil(self.unit)).unwrap_or(u32::MAX)
        };
        let starts = std::iter::once(0).chain(others.iter().map(beyond));
        let far = starts
            .filter_map(|from| free.tree.next_fit(from, len, STEPS))
            .map(|(at, _)| at)
            .find(|at| is_far(*at));
        let at = far.or_else(|| free.tree.best_fit(len).map(|(at, _)| at));
        if let Some(at) = at {
            free.tree.remove((at, len));
        }
        self.tell(&body);
        Ok(at.map(|at| self.took(&mut body, (at, len), txg, place)))
    }

    /// Notes that a run was allocated. Returns its offset.
    fn took(&self, body: &mut Body, run: Run, txg: Txg, place: &MetaslabContext<'_>) -> u64 {
        let bytes = self.bytes(run.1);
        body.allocated += bytes;
        place.counters.allocated.fetch_add(bytes, Relaxed);
        body.pending(txg, place).alloc(run);
        self.offset(run.0)
    }

    /// Undoes an allocation that no caller has seen: its space is reusable at once.
    pub(super) fn undo_alloc(&self, offset: u64, bytes: u64, txg: Txg, place: &MetaslabContext<'_>) {
        let run = self.run(offset, bytes).expect("what is undone was allocated here");
        let mut body = self.lock();
        body.pending(txg, place).undo_alloc(run);
        body.loaded().tree.insert(run);
        body.allocated -= bytes;
        change(&place.counters.allocated, bytes, 0);
        self.tell(&body);
    }

    /// Allocates the named range.
    pub(super) fn claim(
        &self,
        offset: u64,
        bytes: u64,
        txg: Txg,
        place: &MetaslabContext<'_>,
    ) -> Result<(), Refusal> {
        let run = self.run(offset, bytes).ok_or(Refusal::State)?;
        let mut body = self.load(place)?;
        let free = body.loaded();
        free.settle();
        let is_free = free.tree.contains(run);
        if is_free {
            free.tree.remove(run);
        }
        self.tell(&body);
        if !is_free {
            return Err(Refusal::State);
        }
        self.took(&mut body, run, txg, place);
        Ok(())
    }

    /// Fails unless the whole range is in use.
    pub(super) fn check_allocated(
        &self,
        offset: u64,
        bytes: u64,
        place: &MetaslabContext<'_>,
    ) -> Result<(), Refusal> {
        let run = self.run(offset, bytes).ok_or(Refusal::State)?;
        let mut body = self.load(place)?;
        let is_free = body.loaded().overlaps(run) || body.is_deferred(run);
        if is_free { Err(Refusal::State) } else { Ok(()) }
    }

    // ---- freeing -------------------------------------------------------------------------------

    /// Frees a range: free on disk at once, reusable when `txg` + 2 has synced.
    pub(super) fn free(
        &self,
        offset: u64,
        bytes: u64,
        txg: Txg,
        place: &MetaslabContext<'_>,
    ) -> Result<(), Refusal> {
        let run = self.run(offset, bytes).ok_or(Refusal::State)?;
        let mut body = self.load(place)?;
        if body.loaded().overlaps(run) || body.is_deferred(run) {
            return Err(Refusal::State);
        }
        body.pending(txg, place).free(run);
        body.defer(txg, run, place);
        body.allocated -= bytes;
        body.waiting += bytes;
        change(&place.counters.allocated, bytes, 0);
        change(&place.counters.deferred, 0, bytes);
        Ok(())
    }

    /// Takes the changes of `txg` since the last call: allocated and freed ranges of the vdev.
    pub(super) fn take_changes(&self, txg: Txg) -> (RangeSet, RangeSet) {
        let mut body = self.lock();
        let Some(index) = body.pending.iter().position(|(at, _)| *at == txg) else {
            return (RangeSet::new(), RangeSet::new());
        };
        let (_, pending) = body.pending.remove(index);
        drop(body);
        let (allocs, frees) = pending.net();
        (self.ranges(allocs), self.ranges(frees))
    }

    fn ranges(&self, runs: impl IntoIterator<Item = Run>) -> RangeSet {
        runs.into_iter().map(|(at, len)| self.offset(at)..self.offset(at) + self.bytes(len)).collect()
    }

    /// Makes the space reusable that was freed before the txg `end`.
    pub(super) fn release(&self, end: Txg, place: &MetaslabContext<'_>) {
        let mut body = self.lock();
        let ready = body.deferred.partition_point(|(txg, _)| *txg < end);
        let ready: Vec<_> = body.deferred.drain(..ready).collect();
        for (_, runs) in &ready {
            let bytes = runs.total() * self.unit;
            body.waiting -= bytes;
            change(&place.counters.deferred, bytes, 0);
            let tree = &mut body.loaded().tree;
            runs.iter().for_each(|run| tree.insert(run));
        }
        self.tell(&body);
    }

    // ---- the whole -----------------------------------------------------------------------------

    /// The free space on disk after the changes taken so far.
    pub(super) fn free_on_disk(&self, place: &MetaslabContext<'_>) -> Result<RangeSet, LoadError> {
        let mut body = self.load(place)?;
        body.loaded().settle();
        self.tell(&body);
        let mut space = self.ranges(body.loaded().tree.iter());
        let insert = |space: &mut RangeSet, run: Run| {
            space.insert(self.offset(run.0)..self.offset(run.0) + self.bytes(run.1));
        };
        body.deferred.iter().flat_map(|(_, runs)| runs.iter()).for_each(|run| insert(&mut space, run));
        // A range allocated and freed within untaken changes was free all the time: so remove the frees
        // first, then add the allocations back.
        for run in body.pending.iter().flat_map(|(_, pending)| pending.frees()) {
            space.remove(self.offset(run.0)..self.offset(run.0) + self.bytes(run.1));
        }
        for run in body.pending.iter().flat_map(|(_, pending)| pending.allocs()) {
            insert(&mut space, *run);
        }
        Ok(space)
    }

    /// The ranges that are in use, with all changes of running txgs.
    pub(super) fn in_use(&self, place: &MetaslabContext<'_>) -> Result<RangeSet, LoadError> {
        let mut body = self.load(place)?;
        body.loaded().settle();
        self.tell(&body);
        let mut space = RangeSet::new();
        space.insert(self.start..self.start + self.size);
        let mut remove = |run: Run| {
            space.remove(self.offset(run.0)..self.offset(run.0) + self.bytes(run.1));
        };
        body.loaded().tree.iter().for_each(&mut remove);
        body.deferred.iter().flat_map(|(_, runs)| runs.iter()).for_each(&mut remove);
        Ok(space)
    }

    /// Adds the free segments to `counts`, by the power of two of their bytes; deferred segments and rests of
    /// windows count separately.
    pub(super) fn count_segments(
        &self,
        counts: &mut [u64; 64],
        place: &MetaslabContext<'_>,
    ) -> Result<(), LoadError> {
        let mut body = self.load(place)?;
        body.loaded().settle();
        self.tell(&body);
        let mut count = |(_, len): Run| counts[self.bytes(len).ilog2() as usize] += 1;
        body.loaded().tree.iter().for_each(&mut count);
        body.deferred.iter().flat_map(|(_, runs)| runs.iter()).for_each(&mut count);
        Ok(())
    }
}
