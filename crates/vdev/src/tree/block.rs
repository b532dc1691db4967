//! A block's extent on a vdev, the options of a read, and its outcome.

use super::error::VdevError;
use format::units::LABEL_START;
use format::{AllocOffset, DeviceOffset, Psize, Txg, VdevGuid, VdevId};

/// A block's place on a top-level vdev.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// The top-level vdev that holds the block.
    pub vdev: VdevId,
    /// First byte in the allocatable space of the vdev.
    pub offset: AllocOffset,
    /// Bytes of the block as stored, without parity.
    pub psize: Psize,
    /// Txg in which the bytes were written: selects the RAID-Z width and is looked up in DTLs.
    pub birth: Txg,
}

/// How a leaf failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FaultKind {
    /// The device reported an error.
    Io,
    /// The device returned bytes that are not those of the block.
    Checksum,
    /// The leaf has no device, or the configuration took it out of service.
    Missing,
}

/// A failure of a leaf to give right bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// Guid of the leaf that failed.
    pub leaf: VdevGuid,
    /// First byte on the device of the range that was read or written.
    pub offset: DeviceOffset,
    /// The kind of the failure.
    pub kind: FaultKind,
}

/// The outcome of reading a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Read {
    /// The bytes, accepted by `verify`.
    pub data: Result<Vec<u8>, VdevError>,
    /// The leaves that failed or returned wrong bytes, also if the data could be read.
    pub faults: Vec<Fault>,
}

/// Options of a read.
#[derive(Clone, Copy)]
pub(super) struct How<'a> {
    /// Check every copy and all parity.
    pub(super) every_copy: bool,
    pub(super) verify: &'a dyn Fn(&[u8]) -> bool,
}

/// The byte of the device for a byte of a leaf's allocatable space, which may be negative: the boot area.
pub(super) fn on_device(at: i64) -> Option<DeviceOffset> {
    LABEL_START.checked_add_signed(at).map(DeviceOffset)
}
