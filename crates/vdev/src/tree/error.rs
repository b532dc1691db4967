//! Why a block could not be read from a vdev or written to it.

use crate::geometry::DraidError;
use format::units::MAX_BLOCK;
use format::{AllocOffset, Asize, Psize, VdevGuid, VdevId};

/// Why a block could not be read from a vdev or written to it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VdevError {
    /// Too many of the leaves that hold the block are missing or fail.
    #[error("no usable copy")]
    NoCopies,
    /// There were bytes, but none that are right.
    #[error("wrong checksum in every copy and reconstruction")]
    WrongChecksum,
    /// The pool has no such vdev, or none that can hold data.
    #[error("no vdev {vdev}")]
    NoVdev {
        /// Number of the top-level vdev.
        vdev: VdevId,
    },
    /// The place is not on the vdev.
    #[error("vdev {vdev}: {asize} bytes at {offset} are beyond its end")]
    OutOfRange {
        /// Number of the top-level vdev.
        vdev: VdevId,
        /// First byte of the range in the allocatable space.
        offset: AllocOffset,
        /// Bytes of the range, parity and padding included.
        asize: Asize,
    },
    /// The place does not start with a sector (or a stripe of a dRAID).
    #[error("vdev {vdev}: offset {offset} is not aligned")]
    Misaligned {
        /// Number of the top-level vdev.
        vdev: VdevId,
        /// First byte of the range in the allocatable space.
        offset: AllocOffset,
    },
    /// No block has this size.
    #[error("a block of {0} bytes")]
    Size(Psize),
    /// A removed vdev has no mapping for a place, or its mapping was not set.
    #[error("removed vdev {vdev}: no mapping at {offset}")]
    NoMapping {
        /// Number of the removed vdev.
        vdev: VdevId,
        /// First byte without a mapping.
        offset: AllocOffset,
    },
    /// The mapping of a removed vdev cannot be right.
    #[error("mapping of removed vdev {vdev}: {why}")]
    BadMapping {
        /// Number of the removed vdev.
        vdev: VdevId,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The configuration describes a vdev that cannot be.
    #[error("vdev {guid}: {why}")]
    BadConfig {
        /// Guid of the vdev in the configuration.
        guid: VdevGuid,
        /// What is wrong with it.
        why: &'static str,
    },
    /// Too few leaves took a block for it to be read back.
    #[error("vdev {vdev}: too few devices could be written")]
    NotWritten {
        /// Number of the top-level vdev.
        vdev: VdevId,
    },
    /// Written blocks were lost while they were made durable.
    #[error("vdev {vdev}: too few devices could be flushed")]
    NotFlushed {
        /// Number of the top-level vdev.
        vdev: VdevId,
    },
    /// Nothing can be written to a vdev of this kind.
    #[error("vdev {vdev} cannot be written: {why}")]
    CannotWrite {
        /// Number of the top-level vdev.
        vdev: VdevId,
        /// What keeps it from being written.
        why: &'static str,
    },
    /// The shape of a dRAID is not possible.
    #[error(transparent)]
    Draid(#[from] DraidError),
}

/// Fails unless a block can have this size: no memory is taken for more than the format allows.
pub(super) fn check_size(psize: Psize) -> Result<(), VdevError> {
    if (1..=MAX_BLOCK).contains(&psize.0) { Ok(()) } else { Err(VdevError::Size(psize)) }
}
