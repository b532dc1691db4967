//! Errors of reading and writing blocks on vdevs.

use crate::geometry::DraidError;
use format::units::MAX_BLOCK;
use format::{AllocOffset, Asize, Psize, VdevGuid, VdevId};

/// Why the mapping of a removed vdev is not valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MappingFault {
    /// Entries overlap, have no length, or do not ascend.
    #[error("entries overlap or do not ascend")]
    Unordered,
    /// An entry ends beyond the largest offset.
    #[error("an entry has no end")]
    Endless,
    /// An entry leads to the removed vdev itself.
    #[error("an entry leads to the vdev itself")]
    OntoItself,
    /// The births do not ascend.
    #[error("births do not ascend")]
    UnorderedBirths,
    /// A part of the vdev was copied to a RAID-Z vdev, to which nothing can be copied.
    #[error("a piece is on RAID-Z")]
    OnRaidz,
    /// The mappings of several removed vdevs lead to each other.
    #[error("removals refer to each other in a circle")]
    Circle,
}

/// Why a configuration describes an impossible vdev.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigFault {
    /// The top of the tree is not a root.
    #[error("not a root")]
    NotRoot,
    /// There are more top-level vdevs than a DVA can number.
    #[error("too many children")]
    TooManyChildren,
    /// The tree has too many levels.
    #[error("too deep")]
    TooDeep,
    /// No RAID-Z has this number of children and parity columns.
    #[error("impossible RAID-Z")]
    Raidz,
    /// A distributed spare does not name its dRAID vdev.
    #[error("distributed spare of nothing")]
    SpareWithoutDraid,
    /// A distributed spare does not state its index in the dRAID vdev.
    #[error("distributed spare without a number")]
    SpareWithoutIndex,
    /// A root is below the root.
    #[error("a root below the root")]
    InnerRoot,
    /// A dRAID vdev does not state its groups and spares.
    #[error("dRAID without a shape")]
    DraidWithoutShape,
}

/// Why a vdev cannot be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WriteObstacle {
    /// An expansion of the RAID-Z vdev is under way.
    #[error("its expansion has not finished")]
    Expanding,
    /// A distributed spare stands in for a leaf of the dRAID vdev.
    #[error("a distributed spare is in use")]
    DistributedSpare,
    /// The vdev was removed, and its contents were copied to others.
    #[error("it was removed")]
    Removed,
    /// The slot of the vdev is a hole.
    #[error("there is nothing")]
    Hole,
}

/// Why a block could not be read from a vdev or written to it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VdevError {
    /// Too many of the leaves that hold the block are missing or fail.
    #[error("no usable copy")]
    NoCopies,
    /// Bytes were read, but no candidate was right.
    #[error("wrong checksum in every copy and reconstruction")]
    WrongChecksum,
    /// The pool has no such vdev, or it cannot hold data.
    #[error("no vdev {vdev}")]
    NoVdev {
        /// Number of the top-level vdev.
        vdev: VdevId,
    },
    /// The range is not on the vdev.
    #[error("vdev {vdev}: {asize} bytes at {offset} are beyond its end")]
    OutOfRange {
        /// Number of the top-level vdev.
        vdev: VdevId,
        /// First byte of the range in the allocatable space.
        offset: AllocOffset,
        /// Bytes of the range, parity and padding included.
        asize: Asize,
    },
    /// The offset is not at a sector (or at a stripe of a dRAID).
    #[error("vdev {vdev}: offset {offset} is not aligned")]
    Misaligned {
        /// Number of the top-level vdev.
        vdev: VdevId,
        /// First byte of the range in the allocatable space.
        offset: AllocOffset,
    },
    /// A size that no block can have.
    #[error("a block of {0} bytes")]
    Size(Psize),
    /// A removed vdev has no mapping for an offset, or its mapping was not set.
    #[error("removed vdev {vdev}: no mapping at {offset}")]
    NoMapping {
        /// Number of the removed vdev.
        vdev: VdevId,
        /// First byte without a mapping.
        offset: AllocOffset,
    },
    /// The mapping of a removed vdev is not valid.
    #[error("mapping of removed vdev {vdev}: {fault}")]
    BadMapping {
        /// Number of the removed vdev.
        vdev: VdevId,
        /// What is wrong with the mapping.
        fault: MappingFault,
    },
    /// The configuration describes an impossible vdev.
    #[error("vdev {guid}: {fault}")]
    BadConfig {
        /// Guid of the vdev in the configuration.
        guid: VdevGuid,
        /// What is wrong with the configuration of the vdev.
        fault: ConfigFault,
    },
    /// Too few leaves took a block for it to be read back.
    #[error("vdev {vdev}: too few devices could be written")]
    NotWritten {
        /// Number of the top-level vdev.
        vdev: VdevId,
    },
    /// Blocks were lost before they were durable.
    #[error("vdev {vdev}: too few devices could be flushed")]
    NotFlushed {
        /// Number of the top-level vdev.
        vdev: VdevId,
    },
    /// A vdev of this kind cannot be written.
    #[error("vdev {vdev} cannot be written: {obstacle}")]
    CannotWrite {
        /// Number of the top-level vdev.
        vdev: VdevId,
        /// Why the vdev cannot be written.
        obstacle: WriteObstacle,
    },
    /// The leaves of a vdev that is being removed have more different contents than the new place has leaves.
    #[error("vdev {vdev}: more different contents than leaves at {offset}")]
    TooManyVersions {
        /// Number of the top-level vdev that would take them.
        vdev: VdevId,
        /// First byte of the range in its allocatable space.
        offset: AllocOffset,
    },
    /// The parameters of a dRAID are not possible.
    #[error(transparent)]
    Draid(#[from] DraidError),
}

/// Fails unless a block can have this size, so that no memory is taken for more than the format allows.
pub(super) fn check_size(psize: Psize) -> Result<(), VdevError> {
    if (1..=MAX_BLOCK).contains(&psize.0) { Ok(()) } else { Err(VdevError::Size(psize)) }
}
