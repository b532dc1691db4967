//! What goes into the allocator and what comes out of it.

use format::{Ashift, Dva, Psize, VdevId};
use std::error::Error;
use std::fmt;
use vdev::tree::RangeSet;

/// What a top-level vdev is for, and what a block asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AllocClass {
    /// Blocks of all kinds that have no class of their own.
    Normal,
    /// The intent log: log vdevs, else what normal vdevs set aside, else normal vdevs.
    Log,
    /// Metadata and small blocks: special vdevs, else normal ones.
    Special,
    /// Dedup tables: dedup vdevs, else special ones, else normal ones.
    Dedup,
}

impl fmt::Display for AllocClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AllocClass::Normal => "normal",
            AllocClass::Log => "log",
            AllocClass::Special => "special",
            AllocClass::Dedup => "dedup",
        })
    }
}

/// What is known of a metaslab without reading its space map.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MetaslabHint {
    /// Bytes that are allocated.
    pub allocated: u64,
    /// Bytes of the longest free segment, or less; 0 if not known.
    pub largest_free: u64,
    /// It has no space map: all of it is free.
    pub never_used: bool,
}

/// A top-level vdev that the allocator is told of.
#[derive(Debug, Clone)]
pub struct TopSpace {
    /// Number of the top-level vdev.
    pub vdev: VdevId,
    /// The class that it serves.
    pub class: AllocClass,
    /// log2 of the bytes of its sector.
    pub ashift: Ashift,
    /// log2 of the size of a metaslab.
    pub metaslab_shift: u32,
    /// Bytes that can be allocated; what remains behind the last whole metaslab is not used.
    pub asize: u64,
    /// Whether new blocks may go there (property `allocating`).
    pub allocating: bool,
    /// What is known of each metaslab.
    pub metaslabs: Vec<MetaslabHint>,
}

/// Where the free space of a metaslab is read from. `pool` has it from space maps.
pub trait SpaceSource: Send + Sync {
    /// What is free in a metaslab in the last synced txg, in bytes of the vdev. Asked before the
    /// first change to the metaslab, and again if it was dropped from memory meanwhile, which
    /// happens only when all its changes have been synced. Must not call the allocator.
    ///
    /// # Errors
    /// If the space map cannot be read.
    fn free_space(&self, vdev: VdevId, metaslab: u64) -> Result<RangeSet, Box<dyn Error + Send + Sync>>;
}

/// A request for space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// The class of vdevs that it should be on.
    pub class: AllocClass,
    /// Its bytes on disk, 1 byte to 16 MiB.
    pub psize: Psize,
    /// How many copies, 1 to 3.
    pub copies: u8,
    /// A block that it would best be near to.
    pub near: Option<Dva>,
}

/// Why the free space of a metaslab cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// It could not be read.
    #[error(transparent)]
    Source(Box<dyn Error + Send + Sync>),
    /// Free space that is not in the metaslab, or not in whole sectors.
    #[error("free space from {start} to {end}")]
    Range {
        /// First byte of the range.
        start: u64,
        /// One past the last byte.
        end: u64,
    },
    /// More than 2^32 sectors: no vdev is made with such metaslabs.
    #[error("the metaslab has too many sectors")]
    TooLarge,
}

/// Why space was not allocated, freed or claimed. Nothing has changed then.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AllocError {
    /// No room in one piece.
    #[error("no room for {copies} copies of {psize} bytes in class {class}")]
    NoSpace {
        /// The class asked for; those that it falls back to are full too.
        class: AllocClass,
        /// Bytes of the block as stored.
        psize: Psize,
        /// Number of copies that were asked for.
        copies: u8,
        /// The largest smaller block of which at least one copy might be had; 0: none.
        largest: Psize,
    },
    /// No block has this size.
    #[error("a block of {0} bytes")]
    Size(Psize),
    /// Freed, but it is not allocated, or not all of it.
    #[error("{dva} is not allocated")]
    NotAllocated {
        /// The extent in question.
        dva: Dva,
    },
    /// Claimed, but it is allocated already, or part of it.
    #[error("{dva} is not free")]
    NotFree {
        /// The extent in question.
        dva: Dva,
    },
    /// No vdev of this number, or the extent is not within one of its metaslabs, or not aligned.
    #[error("{dva} is not in a metaslab")]
    NoMetaslab {
        /// The extent in question.
        dva: Dva,
    },
    /// What is free could not be found out.
    #[error("vdev {vdev}: metaslab {metaslab}")]
    Load {
        /// Number of the top-level vdev.
        vdev: VdevId,
        /// Number of the metaslab on the vdev.
        metaslab: u64,
        /// The cause.
        #[source]
        source: LoadError,
    },
}

/// What a txg changed in a metaslab since it was last asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpaceChange {
    /// Number of the top-level vdev.
    pub vdev: VdevId,
    /// Number of the metaslab on the vdev.
    pub metaslab: u64,
    /// What became allocated, in bytes of the vdev.
    pub allocs: RangeSet,
    /// What became free, in bytes of the vdev; nothing that is also in `allocs`.
    pub frees: RangeSet,
}

/// Space of a class or of a vdev. Deflated bytes are what the space is worth to blocks: redundancy
/// taken off (docs/on-disk/15-space.md, section 9).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ClassTotals {
    /// Bytes in metaslabs, what is set aside for the intent log included.
    pub size: u64,
    /// Bytes allocated, changes included that were not taken yet.
    pub allocated: u64,
    /// Bytes that are free on disk but are not handed out yet.
    pub deferred: u64,
    /// Bytes of the metaslabs set aside for the intent log.
    pub embedded_log: u64,
    /// `size`, deflated.
    pub deflated_size: u64,
    /// `allocated`, deflated.
    pub deflated_allocated: u64,
    /// `deferred`, deflated.
    pub deflated_deferred: u64,
    /// `embedded_log`, deflated.
    pub deflated_embedded_log: u64,
}
