//! The allocator interface that the write path needs, and the state that the write path keeps between calls.

use crate::freed::Freed;
use crate::kept_blocks::KeptBlocks;
use crate::{AllocClass, AllocError, AllocTx, Allocator, Request};
use format::{AllocOffset, Asize, Dva, Txg, VdevId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use vdev::sync::lock;
use vdev::tree::Mark;

/// Allocates and frees the space of blocks. Implemented by [`Allocator`] and by fakes in tests.
pub(crate) trait Space: Send + Sync {
    /// Allocates space for `want.copies` copies.
    fn allocate(&self, want: &Request, tx: &dyn AllocTx) -> Result<Vec<Dva>, AllocError>;
    /// Like `allocate`, on vdevs other than these if possible.
    fn allocate_elsewhere(
        &self,
        want: &Request,
        _avoid: &[VdevId],
        tx: &dyn AllocTx,
    ) -> Result<Vec<Dva>, AllocError> {
        self.allocate(want, tx)
    }
    /// Like `allocate`, for many blocks; consecutive blocks are placed next to each other.
    fn allocate_batch(&self, wants: &[Request], tx: &dyn AllocTx) -> Vec<Result<Vec<Dva>, AllocError>> {
        wants.iter().map(|want| self.allocate(want, tx)).collect()
    }
    /// Frees an extent.
    fn free(&self, extent: &Dva, tx: &dyn AllocTx) -> Result<(), AllocError>;
    /// Allocates the named extent.
    fn claim(&self, extent: &Dva, tx: &dyn AllocTx) -> Result<(), AllocError>;
    /// Fails with [`AllocError::NotAllocated`] if part of an extent is free.
    fn check_allocated(&self, extent: &Dva) -> Result<(), AllocError>;
}

impl Space for Allocator {
    fn allocate(&self, want: &Request, tx: &dyn AllocTx) -> Result<Vec<Dva>, AllocError> {
        Allocator::allocate(self, want, tx)
    }

    fn allocate_elsewhere(
        &self,
        want: &Request,
        avoid: &[VdevId],
        tx: &dyn AllocTx,
    ) -> Result<Vec<Dva>, AllocError> {
        Allocator::allocate_elsewhere(self, want, avoid, tx)
    }

    fn allocate_batch(&self, wants: &[Request], tx: &dyn AllocTx) -> Vec<Result<Vec<Dva>, AllocError>> {
        Allocator::allocate_batch(self, wants, tx)
    }

    fn free(&self, extent: &Dva, tx: &dyn AllocTx) -> Result<(), AllocError> {
        Allocator::free(self, extent, tx)
    }

    fn claim(&self, extent: &Dva, tx: &dyn AllocTx) -> Result<(), AllocError> {
        Allocator::claim(self, extent, tx)
    }

    fn check_allocated(&self, extent: &Dva) -> Result<(), AllocError> {
        Allocator::check_allocated(self, extent)
    }
}

/// A range of a removed vdev without any reference left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Obsolete {
    /// Number of the removed vdev.
    pub vdev: VdevId,
    /// First byte of the range.
    pub offset: AllocOffset,
    /// Bytes of the range.
    pub asize: Asize,
}

/// An extent that was freed, and that a checkpoint may reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    /// The extent. It stays allocated.
    pub extent: Dva,
    /// Txg in which it was written.
    pub birth: Txg,
}

/// Writes that may not be durable yet.
#[derive(Debug, Clone, Default)]
#[must_use]
pub struct Unflushed {
    /// The top-level vdevs that were written.
    pub(crate) vdevs: BTreeSet<VdevId>,
    /// Mark taken before the first of the writes.
    pub(crate) since: Option<Mark>,
}

/// The writing half of a block layer.
pub(crate) struct Writer {
    pub(crate) space: Arc<dyn Space>,
    /// Blocks that were freed, so that their space may belong to another block.
    pub(crate) freed: Freed,
    /// Blocks of the tree that may still be in a volatile cache.
    written: Mutex<Unflushed>,
    kept: Mutex<KeptBlocks>,
    obsolete: Mutex<Vec<Obsolete>>,
    /// Blocks born in this txg or before are held instead of being freed; 0: none.
    hold_up_to: AtomicU64,
    /// What was held instead of being freed, by the txg that freed it.
    held: Mutex<BTreeMap<Txg, Vec<Held>>>,
    /// Number of blocks considered for ganging, for [`crate::gang_write::forced`].
    pub(crate) gang_draws: AtomicU64,
}

impl Writer {
    pub(crate) fn new(space: Arc<dyn Space>) -> Writer {
        Writer {
            space,
            freed: Freed::new(),
            written: Mutex::default(),
            kept: Mutex::default(),
            obsolete: Mutex::default(),
            hold_up_to: AtomicU64::new(0),
            held: Mutex::default(),
            gang_draws: AtomicU64::new(0),
        }
    }

    /// The blocks to be written again if they turn out to be lost.
    pub(crate) fn kept(&self) -> MutexGuard<'_, KeptBlocks> {
        lock(&self.kept)
    }

    /// Notes completed writes. Called only after they have returned: a flush might take an earlier note
    /// before the write is done.
    pub(crate) fn note_written(&self, more: Unflushed) {
        let mut written = lock(&self.written);
        written.vdevs.extend(more.vdevs);
        written.since = written.since.into_iter().chain(more.since).min();
    }

    pub(crate) fn take_written(&self) -> Unflushed {
        std::mem::take(&mut *lock(&self.written))
    }

    pub(crate) fn note_obsolete(&self, ranges: Vec<Obsolete>) {
        if !ranges.is_empty() {
            lock(&self.obsolete).extend(ranges);
        }
    }

    pub(crate) fn hold_frees(&self, up_to: Txg) {
        self.hold_up_to.store(up_to.0, Ordering::Release);
    }

    /// Whether a block that was born in this txg is held when it is freed.
    pub(crate) fn is_to_hold(&self, birth: Txg) -> bool {
        birth.0 <= self.hold_up_to.load(Ordering::Acquire)
    }

    pub(crate) fn note_held(&self, txg: Txg, held: impl IntoIterator<Item = Held>) {
        let mut held = held.into_iter().peekable();
        if held.peek().is_some() {
            lock(&self.held).entry(txg).or_default().extend(held);
        }
    }

    pub(crate) fn take_held(&self, txg: Txg) -> Vec<Held> {
        lock(&self.held).remove(&txg).unwrap_or_default()
    }

    pub(crate) fn take_obsolete(&self) -> Vec<Obsolete> {
        std::mem::take(&mut *lock(&self.obsolete))
    }
}

/// Frees extents that were just allocated, after their use has failed. If this fails too, the space is lost
/// until the pool is next checked; the caller need not know.
pub(crate) fn give_back(space: &dyn Space, extents: impl IntoIterator<Item = Dva>, tx: &dyn AllocTx) {
    for extent in extents {
        let _ = space.free(&extent, tx);
    }
}

/// A request for space without a preferred place: blocks of a batch then follow one another.
pub(crate) fn request(class: AllocClass, psize: u64, copies: u8) -> Request {
    Request { class, psize: format::Psize(psize), copies, near: None }
}
