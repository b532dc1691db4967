//! Input and output types of the allocator.

use format::{Ashift, Dva, Psize, VdevId};
use std::error::Error;
use std::fmt;
use vdev::tree::RangeSet;

/// Allocation class: the purpose of a top-level vdev, and the request of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AllocClass {
    /// Blocks of all kinds that have no class of their own.
    Normal,
    /// The intent log: log vdevs, else the metaslabs that normal vdevs set aside, else normal vdevs.
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

/// Facts about a metaslab that are known without reading its space map.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MetaslabHint {
    /// Bytes that are allocated.
    pub allocated: u64,
    /// Bytes of the longest free segment, or a lower bound; 0: unknown.
    pub largest_free: u64,
    /// The metaslab has no space map: all of it is free.
    pub never_used: bool,
}

/// Description of a top-level vdev for the allocator.
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
    /// Allocatable bytes; the rest after the last whole metaslab is not used.
    pub asize: u64,
    /// Whether new blocks may be allocated there (property `allocating`).
    pub allocating: bool,
    /// Hints for each metaslab.
    pub metaslabs: Vec<MetaslabHint>,
}

/// Source of the free space of metaslabs. `pool` implements it with space maps.
pub trait SpaceSource: Send + Sync {
    /// The free space of a metaslab in the last synced txg, in bytes of the vdev. Called before the first
    /// change to the metaslab, and again if it was dropped from memory meanwhile, which happens only when all
    /// its changes have been synced. Must not call the allocator.
    ///
    /// # Errors
    /// If the space map cannot be read.
    fn free_space(&self, vdev: VdevId, metaslab: u64) -> Result<RangeSet, Box<dyn Error + Send + Sync>>;
}

/// A request for space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// Allocation class.
    pub class: AllocClass,
    /// Bytes on disk: 1 byte to 16 MiB.
    pub psize: Psize,
    /// Number of copies, 1 to 3.
    pub copies: u8,
    /// A block that should be near, if any.
    pub near: Option<Dva>,
}

/// Why the free space of a metaslab cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// It could not be read.
    #[error(transparent)]
    Source(Box<dyn Error + Send + Sync>),
    /// A free range that is outside the metaslab, or not in whole sectors.
    #[error("free space from {start} to {end}")]
    Range {
        /// First byte of the range.
        start: u64,
        /// One past the last byte.
        end: u64,
    },
    /// More than 2^32 sectors: no vdev has such metaslabs.
    #[error("the metaslab has too many sectors")]
    TooLarge,
}

/// Why space was not allocated, freed or claimed. The state is unchanged then.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AllocError {
    /// No free segment is large enough.
    #[error("no room for {copies} copies of {psize} bytes in class {class}")]
    NoSpace {
        /// The requested class; its fallbacks are full too.
        class: AllocClass,
        /// Bytes of the block on disk.
        psize: Psize,
        /// Requested number of copies.
        copies: u8,
        /// The largest smaller block of which at least one copy may be available; 0: none.
        largest: Psize,
    },
    /// A size that no block has.
    #[error("a block of {0} bytes")]
    Size(Psize),
    /// An extent to be freed is not allocated, or not completely.
    #[error("{dva} is not allocated")]
    NotAllocated {
        /// The extent in question.
        dva: Dva,
    },
    /// An extent to be claimed is allocated, at least partly.
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
    /// The free space of a metaslab could not be read.
    #[error("vdev {vdev}: metaslab {metaslab}")]
    Load {
        /// Number of the top-level vdev.
        vdev: VdevId,
        /// Number of the metaslab on the vdev.
        metaslab: u64,
        /// Why it cannot be computed.
        #[source]
        source: LoadError,
    },
}

/// Changes of a metaslab in a txg since they were last taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpaceChange {
    /// Number of the top-level vdev.
    pub vdev: VdevId,
    /// Number of the metaslab on the vdev.
    pub metaslab: u64,
    /// Allocated ranges, in bytes of the vdev.
    pub allocs: RangeSet,
    /// Freed ranges, in bytes of the vdev; disjoint from `allocs`.
    pub frees: RangeSet,
}

/// Space of a class or of a vdev. Deflated bytes are allocated bytes without the overhead of redundancy
/// (docs/on-disk/15-space.md, section 9).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ClassTotals {
    /// Bytes in metaslabs, including those set aside for the intent log.
    pub size: u64,
    /// Allocated bytes, including changes that were not taken yet.
    pub allocated: u64,
    /// Bytes that are free on disk but not reusable yet.
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
