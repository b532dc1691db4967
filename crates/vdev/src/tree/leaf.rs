//! A leaf: one device, what is known of its trustworthiness, and what it did wrong so far.
//!
//! A distributed spare has no device of its own, but a [`Standing`]: it too can miss txgs or be out
//! of service.

use super::{Aux, RangeSet, VdevState};
use crate::device::{Device, DeviceError};
use format::config::VdevNode;
use format::units::LABEL_START;
use format::{DeviceOffset, Txg, VdevGuid, label};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

/// A read that takes longer is counted as slow.
const SLOW: Duration = Duration::from_secs(30);

/// What happened on a leaf since the pool was opened.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) read_errors: AtomicU64,
    pub(super) write_errors: AtomicU64,
    pub(super) checksum_errors: AtomicU64,
    pub(super) slow_ios: AtomicU64,
    pub(super) reads: AtomicU64,
    pub(super) read_bytes: AtomicU64,
}

/// How much a leaf is to be believed; lower is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Trust {
    /// Nothing speaks against it.
    Good,
    /// It does not have blocks of this birth, or not surely.
    Stale,
    /// The configuration took it out of service, for instance as offline.
    OutOfService,
    /// There is no device.
    Missing,
}

/// What is known of a leaf without reading it.
#[derive(Debug)]
pub(super) struct Standing {
    pub(super) guid: VdevGuid,
    pub(super) state: VdevState,
    pub(super) aux: Aux,
    /// Resilvering or rebuilding since this txg; 0: not.
    rebuilding_since: Txg,
    missed: RwLock<Arc<RangeSet>>,
}

impl Standing {
    /// `usable` is the allocatable space of the device if there is one, `needed` what the vdev above
    /// relies on.
    pub(super) fn new(node: &VdevNode, usable: Option<u64>, needed: u64) -> Standing {
        let (state, aux) = state(node, usable, needed);
        Standing {
            guid: node.guid,
            state,
            aux,
            rebuilding_since: node.resilver_txg.max(node.rebuild_txg),
            missed: RwLock::default(),
        }
    }

    pub(super) fn set_missed(&self, txgs: RangeSet) {
        *self.missed.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(txgs);
    }

    /// How much to believe it about a block of this birth.
    pub(super) fn trust(&self, birth: Txg) -> Trust {
        if !matches!(self.state, VdevState::Online | VdevState::Degraded) {
            return Trust::OutOfService;
        }
        let missed = self.missed.read().unwrap_or_else(PoisonError::into_inner);
        if missed.contains(birth.0) || birth < self.rebuilding_since { Trust::Stale } else { Trust::Good }
    }
}

/// A leaf of the tree.
#[derive(Debug)]
pub(super) struct Leaf {
    pub(super) guid: VdevGuid,
    device: Option<Arc<dyn Device>>,
    pub(super) standing: Standing,
    pub(super) counters: Counters,
}

impl Leaf {
    /// `needed` is the allocatable space that the vdev above relies on.
    pub(super) fn new(node: &VdevNode, device: Option<Arc<dyn Device>>, needed: u64) -> Leaf {
        let usable = device.as_ref().map(|device| label::usable_size(device.size()));
        let standing = Standing::new(node, usable, needed);
        Leaf { guid: node.guid, device, standing, counters: Counters::default() }
    }

    pub(super) fn device(&self) -> Option<&Arc<dyn Device>> {
        self.device.as_ref()
    }

    /// Allocatable bytes of the device, 0 without one.
    pub(super) fn usable(&self) -> u64 {
        self.device.as_ref().map_or(0, |device| label::usable_size(device.size()))
    }

    /// How much to believe it about a block of this birth.
    pub(super) fn trust(&self, birth: Txg) -> Trust {
        if self.device.is_none() { Trust::Missing } else { self.standing.trust(birth) }
    }

    /// Errors so far: between equals, the one with fewer is asked first.
    pub(super) fn error_count(&self) -> u64 {
        let c = &self.counters;
        c.read_errors.load(Ordering::Relaxed) + c.checksum_errors.load(Ordering::Relaxed)
    }

    pub(super) fn path(&self) -> Option<&Path> {
        self.device.as_ref()?.path()
    }

    /// Whether a range is in the allocatable space or the boot area in front of it: never in labels.
    pub(super) fn covers(&self, at: DeviceOffset, len: u64) -> bool {
        let end = LABEL_START.saturating_add(self.usable());
        at.0 >= label::BOOT_AREA_OFFSET && at.0.checked_add(len).is_some_and(|last| last <= end)
    }

    /// Notes one finished read.
    pub(super) fn note_read(&self, len: u64, took: Duration) {
        self.counters.reads.fetch_add(1, Ordering::Relaxed);
        self.counters.read_bytes.fetch_add(len, Ordering::Relaxed);
        if took > SLOW {
            self.counters.slow_ios.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The device, if a range may be read from it.
    pub(super) fn readable(&self, at: DeviceOffset, len: u64) -> Result<&dyn Device, DeviceError> {
        let device = self.device.as_deref().ok_or(DeviceError::Gone)?;
        if self.covers(at, len) {
            Ok(device)
        } else {
            Err(DeviceError::OutOfRange { at, len, size: device.size() })
        }
    }
}

/// State of a leaf by its configuration and its device, in the order in which OpenZFS decides.
fn state(node: &VdevNode, usable: Option<u64>, needed: u64) -> (VdevState, Aux) {
    if node.removed {
        return (VdevState::Removed, Aux::None);
    }
    if node.offline {
        return (VdevState::Offline, Aux::None);
    }
    if node.faulted {
        let aux = match node.aux_state.as_deref() {
            Some("external") => Aux::External,
            _ => Aux::ErrExceeded,
        };
        return (VdevState::Faulted, aux);
    }
    match usable {
        None => (VdevState::Unavail, Aux::OpenFailed),
        Some(usable) if usable < needed || usable == 0 => (VdevState::Unavail, Aux::TooSmall),
        Some(_) if node.degraded => (VdevState::Degraded, Aux::ErrExceeded),
        Some(_) => (VdevState::Online, Aux::None),
    }
}
