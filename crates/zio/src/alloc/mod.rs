//! The space allocator: the free space of the top-level vdevs, and the choice of space for each block.
//!
//! Called by `zio::write` for every block, by `zio::free`, and by `pool` once per pass of a sync. Independent
//! of objects: free space comes in through [`SpaceSource`], changes go out as [`SpaceChange`]s.
//!
//! # What always holds
//! - No byte is allocated twice, and none that is allocated on disk.
//! - Space freed in txg N is not reused before N + 2 is on disk, so that the last uberblocks can still be
//!   imported. On disk it is free at once, as the changes say.
//! - An extent lies inside one metaslab and starts at a sector (on a dRAID, a stripe).
//! - A free or claim that contradicts the known state changes nothing. Counts cannot fall below zero.
//! - A metaslab's free space is read when it is first needed: opening a pool reads none.
//!
//! # Order
//! `allocate`, `free`, `claim` in open or syncing context of a txg -> in each pass of its sync `take_changes`
//! -> uberblock written -> `synced`. Changes of the next txg are kept apart.
//!
//! # Locks
//! The list of vdevs is copied out of its lock at the start. Then at most one metaslab is locked (also while
//! its free space is read; other metaslabs remain usable), and inside that the ledger.
//! [`SpaceSource::free_space`] must not call back.
//!
//! Source: `docs/on-disk/15-space.md`. Tests: `src/alloc/tests` (a bitmap as the model), and in each module.

mod ledger;
mod metaslab;
mod pending;
mod range_tree;
#[cfg(test)]
mod tests;
mod top;
mod types;
mod view;

pub use types::{
    AllocClass, AllocError, ClassTotals, LoadError, MetaslabHint, Request, SpaceChange, SpaceSource, TopSpace,
};

use crate::AllocTx;
use format::units::MAX_BLOCK;
use format::{AllocOffset, Asize, Dva, Psize, Txg, VdevId};
use ledger::Ledger;
use metaslab::{Metaslab, MetaslabContext, Refusal};
use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, RwLock};
use top::{Top, Want};
use vdev::sync::{lock, read, write};
use vdev::tree::{RangeSet, VdevTree};
use view::{Group, Pick, View, fallbacks};

/// Largest number of copies of a block.
const COPIES_MAX: u8 = 3;
/// Most segments kept in memory for idle metaslabs; some 30 bytes each.
const SEGMENTS_MAX: usize = 8 << 20;
/// Buckets of a space map's histogram.
const BUCKETS: usize = 32;

impl ClassTotals {
    fn add(&mut self, top: &Top, ratio: u64) {
        let deflated = |bytes: u64| (bytes >> 9).saturating_mul(ratio);
        let allocated = top.counters.allocated.load(Relaxed);
        let deferred = top.counters.deferred.load(Relaxed);
        let log = top.log_metaslab.map_or(0, |index| top.metaslabs[index].size);
        for (sum, bytes) in [
            (&mut self.size, top.size),
            (&mut self.allocated, allocated),
            (&mut self.deferred, deferred),
            (&mut self.embedded_log, log),
            (&mut self.deflated_size, deflated(top.size)),
            (&mut self.deflated_allocated, deflated(allocated)),
            (&mut self.deflated_deferred, deflated(deferred)),
            (&mut self.deflated_embedded_log, deflated(log)),
        ] {
            *sum = sum.saturating_add(bytes);
        }
    }
}

/// The space allocator of a pool. All calls may come from any thread.
pub struct Allocator {
    view: RwLock<Arc<View>>,
    source: Arc<dyn SpaceSource>,
    ledger: Ledger,
}

impl fmt::Debug for Allocator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Allocator").field("tops", &self.view().tops.len()).finish_non_exhaustive()
    }
}

/// State shared by the requests of one call.
struct Call<'a> {
    view: &'a View,
    txg: Txg,
    /// Vdevs that are used only if no other has enough space.
    avoid: &'a [VdevId],
    /// For each top-level vdev, the last requested size and its allocated size.
    sizes: Vec<(Psize, Option<u64>)>,
}

impl Call<'_> {
    fn asize(&mut self, top: usize, psize: Psize) -> Option<u64> {
        let (known, asize) = self.sizes[top];
        if known == psize {
            return asize;
        }
        let asize = self.view.tree.psize_to_asize(self.view.tops[top].vdev, psize, self.txg);
        let asize = asize.map(|asize| asize.0);
        self.sizes[top] = (psize, asize);
        asize
    }
}

// ---- vdevs -------------------------------------------------------------------------------------

impl Allocator {
    /// An allocator for these vdevs. Reads nothing.
    pub fn new(tree: Arc<VdevTree>, tops: Vec<TopSpace>, source: Arc<dyn SpaceSource>) -> Allocator {
        let tops = tops.into_iter().map(|space| Arc::new(Top::new(space, &tree, None))).collect();
        let view = RwLock::new(Arc::new(View::new(tree, tops)));
        Allocator { view, source, ledger: Ledger::default() }
    }

    fn view(&self) -> Arc<View> {
        Arc::clone(&read(&self.view))
    }

    fn change_view(&self, make: impl FnOnce(&View) -> View) {
        let mut view = write(&self.view);
        *view = Arc::new(make(&view));
    }

    /// Adds a top-level vdev, or the new metaslabs of one that has grown.
    pub fn add_top(&self, space: TopSpace) {
        self.change_view(|view| {
            let old = view.find(space.vdev);
            let top = Top::new(space, &view.tree, old.map(|index| &*view.tops[index]));
            let mut tops = view.tops.clone();
            match old {
                Some(index) => tops[index] = Arc::new(top),
                None => tops.push(Arc::new(top)),
            }
            View::new(Arc::clone(&view.tree), tops)
        });
    }

    /// Drops a top-level vdev that was removed. Its changes must have been taken.
    pub fn remove_top(&self, vdev: VdevId) {
        self.change_view(|view| {
            let tops = view.tops.iter().filter(|top| top.vdev != vdev).cloned().collect();
            View::new(Arc::clone(&view.tree), tops)
        });
    }

    /// Allows or forbids new blocks on a vdev.
    pub fn set_allocating(&self, vdev: VdevId, allocating: bool) {
        self.change_view(|view| {
            let change = |top: &Arc<Top>| match top.vdev == vdev {
                true => Arc::new(top.with_allocating(allocating)),
                false => Arc::clone(top),
            };
            View::new(Arc::clone(&view.tree), view.tops.iter().map(change).collect())
        });
    }

    /// Replaces the tree that gives sizes and states of vdevs. Metaslabs that could not be read are tried
    /// again.
    pub fn set_tree(&self, tree: Arc<VdevTree>) {
        self.change_view(|view| {
            let metaslabs = view.tops.iter().flat_map(|top| &top.metaslabs);
            metaslabs.for_each(|metaslab| metaslab.forget_failure());
            View::new(tree, view.tops.clone())
        });
    }

    // ---- allocating ----------------------------------------------------------------------------

    /// Allocates space for all copies of a block, or for none. Copies are on different vdevs if enough of
    /// them have space, otherwise an eighth of the vdev apart, otherwise anywhere.
    ///
    /// # Errors
    /// [`AllocError::NoSpace`] if no vdev of the class or of its fallbacks has enough space.
    pub fn allocate(&self, want: &Request, tx: &dyn AllocTx) -> Result<Vec<Dva>, AllocError> {
        let view = self.view();
        self.allocate_for(want, &mut Call::new(&view, tx.txg()))
    }

    /// Like [`Allocator::allocate`], but on vdevs of `avoid` only if no other has enough space, because a
    /// write there has just failed.
    ///
    /// # Errors
    /// Those of [`Allocator::allocate`].
    pub(crate) fn allocate_elsewhere(
        &self,
        want: &Request,
        avoid: &[VdevId],
        tx: &dyn AllocTx,
    ) -> Result<Vec<Dva>, AllocError> {
        let view = self.view();
        self.allocate_for(want, &mut Call { avoid, ..Call::new(&view, tx.txg()) })
    }

    /// Like [`Allocator::allocate`], for many blocks: consecutive blocks of the list become neighbours on
    /// disk as far as possible. Results in the order of the requests.
    pub fn allocate_batch(&self, wants: &[Request], tx: &dyn AllocTx) -> Vec<Result<Vec<Dva>, AllocError>> {
        let view = self.view();
        let mut call = Call::new(&view, tx.txg());
        wants.iter().map(|want| self.allocate_for(want, &mut call)).collect()
    }

    fn allocate_for(&self, want: &Request, call: &mut Call<'_>) -> Result<Vec<Dva>, AllocError> {
        assert!((1..=COPIES_MAX).contains(&want.copies), "a block has one to three copies");
        if want.psize.0 == 0 || want.psize.0 > MAX_BLOCK {
            return Err(AllocError::Size(want.psize));
        }
        let Request { class, psize, copies, .. } = *want;
        let mut failure = None;
        for pick in fallbacks(class) {
            match self.allocate_from(*pick, want, call) {
                Ok(Some(dvas)) => return Ok(dvas),
                Ok(None) => {}
                Err(error) => failure = Some(error),
            }
        }
        let largest = || call.view.largest(want, call.txg);
        Err(failure.unwrap_or_else(|| AllocError::NoSpace { class, psize, copies, largest: largest() }))
    }

    fn allocate_from(
        &self,
        pick: Pick,
        want: &Request,
        call: &mut Call<'_>,
    ) -> Result<Option<Vec<Dva>>, AllocError> {
        let view = call.view;
        let group = view.group(pick);
        let mut dvas = Vec::with_capacity(usize::from(want.copies));
        while dvas.len() < usize::from(want.copies) {
            let copy = self.allocate_copy(pick, group, want, &dvas, call);
            match copy {
                Ok(Some((position, dva))) => {
                    if dvas.is_empty() && want.near.is_none() {
                        group.took(position, dva.asize.0, view);
                    }
                    dvas.push(dva);
                }
                Ok(None) | Err(_) => {
                    self.undo(&dvas, call);
                    return copy.map(|_| None);
                }
            }
        }
        Ok(Some(dvas))
    }

    /// Allocates one more copy: on a vdev without one, otherwise on any.
    fn allocate_copy(
        &self,
        pick: Pick,
        group: &Group,
        want: &Request,
        copies: &[Dva],
        call: &mut Call<'_>,
    ) -> Result<Option<(usize, Dva)>, AllocError> {
        let count = group.tops.len();
        if count == 0 {
            return Ok(None);
        }
        let first = self.first_position(group, want, copies, call.view);
        let mut failure = None;
        for is_last_resort in [false, true] {
            for is_used in [false, true] {
                for position in (0..count).map(|step| (first + step) % count) {
                    let index = group.tops[position];
                    let vdev = call.view.tops[index].vdev;
                    let has_copy = copies.iter().any(|copy| copy.vdev == vdev);
                    if (has_copy || call.avoid.contains(&vdev)) != is_used {
                        continue;
                    }
                    match self.allocate_on(index, (pick, is_last_resort), want, copies, call) {
                        Ok(Some(dva)) => return Ok(Some((position, dva))),
                        Ok(None) => {}
                        Err(error) => failure = Some(error),
                    }
                }
            }
        }
        failure.map_or(Ok(None), Err)
    }

    /// Position of the vdev at which the search starts: that of `near`, or the vdev whose turn it is; for
    /// further copies, the one after the first copy.
    fn first_position(&self, group: &Group, want: &Request, copies: &[Dva], view: &View) -> usize {
        let vdev = copies.last().or(want.near.as_ref()).map(|dva| dva.vdev);
        let known = vdev.and_then(|vdev| group.tops.iter().position(|index| view.tops[*index].vdev == vdev));
        known.map_or(group.turn(), |position| position + usize::from(!copies.is_empty()))
    }

    fn allocate_on(
        &self,
        index: usize,
        (pick, is_last_resort): (Pick, bool),
        want: &Request,
        copies: &[Dva],
        call: &mut Call<'_>,
    ) -> Result<Option<Dva>, AllocError> {
        let Some(asize) = call.asize(index, want.psize) else { return Ok(None) };
        let top = &call.view.tops[index];
        let mut others = [0; COPIES_MAX as usize];
        let mut count = 0;
        for copy in copies.iter().filter(|copy| copy.vdev == top.vdev) {
            others[count] = copy.offset.0;
            count += 1;
        }
        let near = want.near.filter(|near| near.vdev == top.vdev && copies.is_empty());
        let how = Want {
            txg: call.txg,
            ledger: &self.ledger,
            source: &*self.source,
            embedded_log: pick == Pick::EmbeddedLog,
            near: near.map(|near| near.offset.0),
            is_last_resort,
        };
        let offset = top
            .alloc(asize, &others[..count], &how)
            .map_err(|(metaslab, source)| AllocError::Load { vdev: top.vdev, metaslab, source })?;
        let dva =
            |offset| Dva { vdev: top.vdev, offset: AllocOffset(offset), asize: Asize(asize), gang: false };
        Ok(offset.map(dva))
    }

    fn undo(&self, dvas: &[Dva], call: &Call<'_>) {
        for dva in dvas {
            let find = call.view.find(dva.vdev).map(|index| &*call.view.tops[index]);
            let found = find.and_then(|top| Some((top, top.metaslab_at(dva.offset.0)?)));
            let (top, (index, metaslab)) = found.expect("what is undone was allocated in this call");
            let place = top.place(index, &self.ledger, &*self.source);
            metaslab.undo_alloc(dva.offset.0, dva.asize.0, call.txg, &place);
        }
    }

    // ---- freeing and claiming ------------------------------------------------------------------

    /// Frees an extent; for a gang block its header alone, with the header's size. On disk it is free from
    /// this txg on; it is reused when two more txgs have synced.
    ///
    /// # Errors
    /// [`AllocError`] if the extent is not on a vdev of the pool, or part of it is not allocated.
    pub fn free(&self, dva: &Dva, tx: &dyn AllocTx) -> Result<(), AllocError> {
        let not_allocated = AllocError::NotAllocated { dva: *dva };
        self.at_extent(dva, not_allocated, |metaslab, place| {
            metaslab.free(dva.offset.0, dva.asize.0, tx.txg(), place)
        })
    }

    /// Allocates the named extent: a block of the intent log that was found when the pool was opened.
    ///
    /// # Errors
    /// [`AllocError`] if the extent is not on a vdev of the pool, or a part of it is allocated.
    pub(crate) fn claim(&self, dva: &Dva, tx: &dyn AllocTx) -> Result<(), AllocError> {
        let not_free = AllocError::NotFree { dva: *dva };
        self.at_extent(dva, not_free, |metaslab, place| {
            metaslab.claim(dva.offset.0, dva.asize.0, tx.txg(), place)
        })
    }

    /// Checks that all of an extent is in use.
    ///
    /// # Errors
    /// [`AllocError::NotAllocated`] if part of it is free, or was freed.
    pub(crate) fn check_allocated(&self, dva: &Dva) -> Result<(), AllocError> {
        let not_allocated = AllocError::NotAllocated { dva: *dva };
        self.at_extent(dva, not_allocated, |metaslab, place| {
            metaslab.check_allocated(dva.offset.0, dva.asize.0, place)
        })
    }

    /// A range of a vdev as ranges that lie in one metaslab each. What is in none is left out.
    pub fn by_metaslab(&self, vdev: VdevId, range: &Range<u64>) -> Vec<Range<u64>> {
        let view = self.view();
        let Some(index) = view.find(vdev) else { return Vec::new() };
        let top = &view.tops[index];
        let (mut parts, mut at) = (Vec::new(), range.start);
        while at < range.end
            && let Some((_, metaslab)) = top.metaslab_at(at)
        {
            let end = range.end.min(metaslab.start + metaslab.size);
            if end <= at {
                break;
            }
            parts.push(at..end);
            at = end;
        }
        parts
    }

    /// Calls a closure with the metaslab that holds all of an extent.
    fn at_extent(
        &self,
        dva: &Dva,
        refused: AllocError,
        change: impl FnOnce(&Metaslab, &MetaslabContext<'_>) -> Result<(), Refusal>,
    ) -> Result<(), AllocError> {
        let view = self.view();
        let top = view.find(dva.vdev).map(|index| &*view.tops[index]);
        let found = top.and_then(|top| Some((top, top.metaslab_at(dva.offset.0)?)));
        match found {
            Some((top, (index, metaslab))) if metaslab.has(dva.offset.0, dva.asize.0) => {
                let place = top.place(index, &self.ledger, &*self.source);
                change(metaslab, &place).map_err(|refusal| match refusal {
                    Refusal::State => refused,
                    Refusal::Load(source) => load_error(&place, source),
                })
            }
            _ => Err(AllocError::NoMetaslab { dva: *dva }),
        }
    }

    /// Calls a closure with the metaslab of this number; `None` if there is none.
    fn at_index<T>(
        &self,
        vdev: VdevId,
        metaslab: u64,
        act: impl FnOnce(&Metaslab, &MetaslabContext<'_>) -> T,
    ) -> Option<T> {
        let view = self.view();
        let top = &*view.tops[view.find(vdev)?];
        let found = top.metaslabs.get(usize::try_from(metaslab).ok()?)?;
        Some(act(found, &top.place(metaslab, &self.ledger, &*self.source)))
    }

    // ---- syncing -------------------------------------------------------------------------------

    /// Takes the changes of `txg` since the last call for it, by vdev and metaslab. Space that was allocated
    /// and freed in between is not included.
    pub fn take_changes(&self, txg: Txg) -> Vec<SpaceChange> {
        let noted = lock(&self.ledger.changed).remove(&txg).unwrap_or_default();
        let take = |(vdev, metaslab): (VdevId, u64)| {
            let (allocs, frees) = self.at_index(vdev, metaslab, |m, _| m.take_changes(txg))?;
            let is_change = !allocs.is_empty() || !frees.is_empty();
            is_change.then_some(SpaceChange { vdev, metaslab, allocs, frees })
        };
        noted.into_iter().filter_map(take).collect()
    }

    /// Whether `txg` has changes that [`Allocator::take_changes`] has not returned yet.
    pub fn has_changes(&self, txg: Txg) -> bool {
        lock(&self.ledger.changed).get(&txg).is_some_and(|noted| !noted.is_empty())
    }

    /// Notes that `txg` is on disk: space freed two txgs before becomes reusable.
    ///
    /// # Panics
    /// If changes of that txg were not taken: the disk would lack them.
    pub fn synced(&self, txg: Txg) {
        self.synced_for(txg, Txg(u64::MAX));
    }

    /// Like [`Allocator::synced`], while readers still view the pool as of the txg `shown`: space freed since
    /// then waits.
    ///
    /// # Panics
    /// As [`Allocator::synced`].
    pub fn synced_for(&self, txg: Txg, shown: Txg) {
        let untaken = lock(&self.ledger.changed).range(..=txg).next().map(|(untaken, _)| *untaken);
        assert!(untaken.is_none(), "txg {txg} is synced, changes of {untaken:?} were not taken");
        let end = Txg((txg.0 + 1).saturating_sub(metaslab::DEFER_TXGS).min(shown.0.saturating_add(1)));
        let ready = {
            let mut deferred = lock(&self.ledger.deferred);
            let later = deferred.split_off(&end);
            std::mem::replace(&mut *deferred, later)
        };
        let metaslabs: BTreeSet<_> = ready.into_values().flatten().collect();
        for (vdev, metaslab) in metaslabs {
            self.at_index(vdev, metaslab, |m, place| m.release(end, place));
        }
        if self.view().is_outdated() {
            self.change_view(|view| View::new(Arc::clone(&view.tree), view.tops.clone()));
        }
        self.unload(txg, SEGMENTS_MAX);
    }

    /// Drops the free space of idle metaslabs while more than `max` segments are in memory.
    fn unload(&self, synced: Txg, max: usize) {
        let view = self.view();
        let loaded = view.tops.iter().flat_map(|top| &top.metaslabs).filter(|m| m.is_loaded());
        let mut loaded: Vec<_> = loaded.map(|metaslab| (metaslab.segments(), metaslab)).collect();
        let mut total: usize = loaded.iter().map(|((_, segments), _)| segments).sum();
        loaded.sort_by_key(|((changed, _), _)| *changed);
        for ((_, segments), metaslab) in loaded {
            if total <= max {
                break;
            }
            if metaslab.unload(synced) {
                total -= segments;
            }
        }
    }

    // ---- looking -------------------------------------------------------------------------------

    /// The free space of a metaslab on disk after the changes taken so far, deferred space included, as a
    /// condensed space map has it. In bytes of the vdev.
    ///
    /// # Errors
    /// [`AllocError`] if there is no such metaslab, or it cannot be loaded.
    pub fn free_space(&self, vdev: VdevId, metaslab: u64) -> Result<RangeSet, AllocError> {
        self.at_index(vdev, metaslab, |m, place| m.free_on_disk(place).map_err(|e| load_error(place, e)))
            .unwrap_or(Ok(RangeSet::new()))
    }

    /// The ranges of a metaslab that are in use, with all changes of running txgs. In bytes of the vdev.
    ///
    /// # Errors
    /// [`AllocError`] if there is no such metaslab, or it cannot be loaded.
    pub fn in_use(&self, vdev: VdevId, metaslab: u64) -> Result<RangeSet, AllocError> {
        self.at_index(vdev, metaslab, |m, place| m.in_use(place).map_err(|e| load_error(place, e)))
            .unwrap_or(Ok(RangeSet::new()))
    }

    /// Numbers of free segments of a metaslab as a space map's histogram has them (docs/on-disk/15-space.md,
    /// section 2): a hint, from the present state in memory.
    ///
    /// # Errors
    /// [`AllocError`] if there is no such metaslab, or it cannot be loaded.
    pub fn histogram(&self, vdev: VdevId, metaslab: u64) -> Result<[u64; BUCKETS], AllocError> {
        let mut counts = [0; 64];
        self.at_index(vdev, metaslab, |m, place| {
            m.count_segments(&mut counts, place).map_err(|e| load_error(place, e))
        })
        .unwrap_or(Ok(()))?;
        let view = self.view();
        let shift = view.find(vdev).map_or(9, |index| view.tops[index].ashift()) as usize;
        let mut buckets = [0_u64; BUCKETS];
        for (bucket, count) in counts.iter().skip(shift).enumerate() {
            // The last bucket counts a longer segment as several of its own size.
            let (last, excess) = (bucket.min(BUCKETS - 1), bucket.saturating_sub(BUCKETS - 1));
            buckets[last] = buckets[last].saturating_add(count.saturating_mul(1 << excess));
        }
        Ok(buckets)
    }

    /// Space of a class, without its fallbacks.
    pub fn totals(&self, class: AllocClass) -> ClassTotals {
        let view = self.view();
        let mut totals = ClassTotals::default();
        for (top, ratio) in view.tops.iter().zip(&view.ratios).filter(|(top, _)| top.class == class) {
            totals.add(top, *ratio);
        }
        totals
    }

    /// Space of a top-level vdev; all zero if it is unknown.
    pub fn vdev_totals(&self, vdev: VdevId) -> ClassTotals {
        let view = self.view();
        let mut totals = ClassTotals::default();
        if let Some(index) = view.find(vdev) {
            totals.add(&view.tops[index], view.ratios[index]);
        }
        totals
    }
}

impl<'a> Call<'a> {
    fn new(view: &'a View, txg: Txg) -> Call<'a> {
        Call { view, txg, avoid: &[], sizes: vec![(Psize(0), None); view.tops.len()] }
    }
}

fn load_error(place: &MetaslabContext<'_>, source: LoadError) -> AllocError {
    AllocError::Load { vdev: place.vdev, metaslab: place.index, source }
}
