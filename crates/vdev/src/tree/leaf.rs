//! A leaf: one device, the blocks that it should have, and its errors so far.
//!
//! A distributed spare has no device of its own, but a [`LeafState`]: it too can miss txgs or be out of
//! service.

use super::range_set::RangeSet;
use super::state::{Aux, VdevState};
use super::stats::{Done, IoCounters};
use crate::device::{Device, DeviceError};
use crate::sync::{lock, read, write};
use crate::tunable::Tunable;
use format::config::VdevNode;
use format::units::LABEL_START;
use format::{DeviceOffset, Txg, VdevGuid, label};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, RwLock};

/// Milliseconds after which a read or write counts as slow.
pub static SLOW_IO_MS: Tunable = Tunable::new("zio_slow_io_ms", 30_000, 0, u64::MAX);

/// Events of a leaf since the pool was opened.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) read_errors: AtomicU64,
    pub(super) write_errors: AtomicU64,
    pub(super) checksum_errors: AtomicU64,
    pub(super) slow_ios: AtomicU64,
    /// Bytes that repairs and resilvers have written.
    pub(super) repaired_bytes: AtomicU64,
}

/// Births of blocks that were written to a leaf since its last flush.
#[derive(Debug, Default)]
pub(super) struct Unflushed {
    /// Births of new blocks that were written.
    pub(super) written: RangeSet,
    /// Births of blocks of which wrong or missing bytes were replaced.
    pub(super) repaired: RangeSet,
    /// Births of writes that have begun and are not noted as done: a failed flush may have lost them too.
    in_flight: BTreeMap<u64, usize>,
}

impl Unflushed {
    pub(super) fn is_empty(&self) -> bool {
        self.written.is_empty() && self.repaired.is_empty()
    }

    /// Notes the start of a write of blocks of this birth.
    pub(super) fn begin(&mut self, birth: Txg) {
        *self.in_flight.entry(birth.0).or_default() += 1;
    }

    /// Notes the end of such a write, after its result is recorded.
    pub(super) fn end(&mut self, birth: Txg) {
        if let Some(count) = self.in_flight.get_mut(&birth.0) {
            *count -= 1;
            if *count == 0 {
                self.in_flight.remove(&birth.0);
            }
        }
    }

    /// Takes the births that a flush is to make durable. In-flight writes stay: their writer did not request
    /// this flush.
    pub(super) fn take(&mut self) -> Unflushed {
        let (written, repaired) = (std::mem::take(&mut self.written), std::mem::take(&mut self.repaired));
        Unflushed { written, repaired, in_flight: BTreeMap::new() }
    }

    /// Adds the writes that ended or were in flight while a flush failed: a device reports a loss once,
    /// without saying which writes are lost.
    pub(super) fn add_meanwhile(&mut self, now: &Unflushed) {
        self.written.merge(&now.written);
        self.repaired.merge(&now.repaired);
        for birth in now.in_flight.keys() {
            self.written.insert(*birth..birth.saturating_add(1));
        }
    }
}

/// State of a leaf that lasts as long as the pool is open, even when its configuration changes.
#[derive(Debug, Default)]
pub(super) struct Memory {
    pub(super) counters: Counters,
    pub(super) io: IoCounters,
    missed: RwLock<Arc<RangeSet>>,
    /// `missed` has changed since [`Memory::take_missed_changed`] was last called.
    missed_changed: AtomicBool,
    /// A failed flush has lost writes since the flag was last taken.
    pub(super) has_lost: AtomicBool,
    /// Txgs with blocks that could not be repaired on the leaf since [`Memory::forget_unrepaired`].
    unrepaired: Mutex<RangeSet>,
    /// A write has failed because the device was missing.
    pub(super) was_gone: AtomicBool,
    unflushed: Mutex<Unflushed>,
    /// Held while the leaf is flushed: a thread that finds no unflushed births waits here for the flush that
    /// took them.
    flushing: Mutex<()>,
}

impl Memory {
    pub(super) fn missed(&self) -> Arc<RangeSet> {
        Arc::clone(&read(&self.missed))
    }

    pub(super) fn change_missed(&self, change: impl FnOnce(&mut RangeSet)) {
        let mut missed = write(&self.missed);
        let before = Arc::clone(&missed);
        change(Arc::make_mut(&mut missed));
        if *before != **missed {
            self.missed_changed.store(true, Ordering::Release);
        }
    }

    /// Notes that writes of a txg are not on the leaf. Returns whether that is new.
    pub(super) fn miss(&self, birth: Txg) -> bool {
        let is_news = !self.missed().contains(birth.0);
        if is_news {
            self.change_missed(|missed| missed.insert(birth.0..birth.0.saturating_add(1)));
        }
        is_news
    }

    pub(super) fn take_missed_changed(&self) -> bool {
        self.missed_changed.swap(false, Ordering::AcqRel)
    }

    /// Notes that a block born in this txg could not be written to the leaf that lacked it.
    pub(super) fn note_unrepaired(&self, birth: Txg) {
        let mut unrepaired = lock(&self.unrepaired);
        if !unrepaired.contains(birth.0) {
            unrepaired.insert(birth.0..birth.0.saturating_add(1));
        }
    }

    pub(super) fn unrepaired(&self) -> RangeSet {
        lock(&self.unrepaired).clone()
    }

    pub(super) fn forget_unrepaired(&self) {
        *lock(&self.unrepaired) = RangeSet::new();
    }

    pub(super) fn unflushed(&self) -> MutexGuard<'_, Unflushed> {
        lock(&self.unflushed)
    }

    pub(super) fn start_flush(&self) -> MutexGuard<'_, ()> {
        lock(&self.flushing)
    }
}

/// How likely a leaf is to have a block; lower is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Trust {
    /// The leaf should have the block.
    Good,
    /// The leaf may lack blocks of this birth.
    Stale,
    /// The configuration took the leaf out of service, for instance as offline.
    OutOfService,
    /// No device is open for the leaf.
    Missing,
}

/// Facts about a leaf that need no read.
#[derive(Debug)]
pub(super) struct LeafState {
    pub(super) guid: VdevGuid,
    pub(super) state: VdevState,
    pub(super) aux: Aux,
    /// The txg since which the leaf is resilvering or rebuilding; 0: it is not.
    rebuilding_since: Txg,
    pub(super) memory: Arc<Memory>,
}

impl LeafState {
    /// Creates the state of a leaf. `usable` is the allocatable space of the device if there is one, `needed`
    /// that which the vdev above relies on.
    pub(super) fn new(node: &VdevNode, usable: Option<u64>, needed: u64, memory: Arc<Memory>) -> LeafState {
        let (state, aux) = state(node, usable, needed);
        LeafState {
            guid: node.guid,
            state,
            aux,
            rebuilding_since: node.resilver_txg.max(node.rebuild_txg),
            memory,
        }
    }

    /// Sets the DTL that the pool has stored, without marking it as changed.
    pub(super) fn set_missed(&self, txgs: RangeSet) {
        *write(&self.memory.missed) = Arc::new(txgs);
    }

    /// Whether the configuration allows the leaf to be used.
    pub(super) fn is_in_service(&self) -> bool {
        matches!(self.state, VdevState::Online | VdevState::Degraded)
    }

    /// Trust in the leaf for a block of this birth.
    pub(super) fn trust(&self, birth: Txg) -> Trust {
        if !self.is_in_service() {
            return Trust::OutOfService;
        }
        let missed = read(&self.memory.missed);
        if missed.contains(birth.0) || birth < self.rebuilding_since { Trust::Stale } else { Trust::Good }
    }
}

/// A leaf of the tree.
#[derive(Debug)]
pub(super) struct Leaf {
    pub(super) guid: VdevGuid,
    device: Option<Arc<dyn Device>>,
    pub(super) state: LeafState,
}

impl Leaf {
    /// `needed` is the allocatable space that the vdev above relies on.
    pub(super) fn new(
        node: &VdevNode,
        device: Option<Arc<dyn Device>>,
        needed: u64,
        memory: Arc<Memory>,
    ) -> Leaf {
        let usable = device.as_ref().map(|device| label::usable_size(device.size()));
        let state = LeafState::new(node, usable, needed, memory);
        Leaf { guid: node.guid, device, state }
    }

    pub(super) fn memory(&self) -> &Memory {
        &self.state.memory
    }

    pub(super) fn counters(&self) -> &Counters {
        &self.state.memory.counters
    }

    /// The device, if new blocks are written to the leaf.
    pub(super) fn in_service(&self) -> Option<&Arc<dyn Device>> {
        self.device.as_ref().filter(|_| self.state.is_in_service())
    }

    pub(super) fn device(&self) -> Option<&Arc<dyn Device>> {
        self.device.as_ref()
    }

    /// Allocatable bytes of the device, 0 without one.
    pub(super) fn usable(&self) -> u64 {
        self.device.as_ref().map_or(0, |device| label::usable_size(device.size()))
    }

    /// Trust in the leaf for a block of this birth.
    pub(super) fn trust(&self, birth: Txg) -> Trust {
        if self.device.is_none() { Trust::Missing } else { self.state.trust(birth) }
    }

    /// Number of errors so far: of equally trusted leaves, the one with fewer is read first.
    pub(super) fn error_count(&self) -> u64 {
        let c = self.counters();
        c.read_errors.load(Ordering::Relaxed) + c.checksum_errors.load(Ordering::Relaxed)
    }

    pub(super) fn path(&self) -> Option<&Path> {
        self.device.as_ref()?.path()
    }

    /// Whether a range is in the allocatable space or the boot area before it, outside the labels.
    pub(super) fn covers(&self, at: DeviceOffset, len: u64) -> bool {
        let end = LABEL_START.saturating_add(self.usable());
        at.0 >= label::BOOT_AREA_OFFSET && at.0.checked_add(len).is_some_and(|last| last <= end)
    }

    /// Counts a completed request; [`IoCounters::begin`] was called for it.
    pub(super) fn note_done(&self, done: Done) {
        self.memory().io.end(done);
        if done.took.as_millis() > u128::from(SLOW_IO_MS.get()) {
            self.counters().slow_ios.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The device, if a range may be read from it or written.
    pub(super) fn readable(&self, at: DeviceOffset, len: u64) -> Result<&dyn Device, DeviceError> {
        let device = self.device.as_deref().ok_or(DeviceError::Gone)?;
        if self.covers(at, len) {
            Ok(device)
        } else {
            Err(DeviceError::OutOfRange { at, len, size: device.size() })
        }
    }
}

/// State of a leaf by its configuration and its device, checked in the order of OpenZFS.
fn state(node: &VdevNode, usable: Option<u64>, needed: u64) -> (VdevState, Aux) {
    if node.removed {
        return (VdevState::Removed, Aux::None);
    }
    if node.faulted {
        let aux = match node.aux_state.as_deref() {
            Some("external") => Aux::External,
            _ => Aux::ErrExceeded,
        };
        return (VdevState::Faulted, aux);
    }
    if node.offline {
        return (VdevState::Offline, Aux::None);
    }
    match usable {
        None => (VdevState::Unavail, Aux::OpenFailed),
        Some(usable) if usable < needed || usable == 0 => (VdevState::Unavail, Aux::TooSmall),
        Some(_) if node.degraded => (VdevState::Degraded, Aux::ErrExceeded),
        Some(_) => (VdevState::Online, Aux::None),
    }
}
