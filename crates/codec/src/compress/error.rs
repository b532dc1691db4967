//! Why an image cannot be decompressed.

use format::CompressionId;

/// Why an image is not the block that it should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecompressError {
    /// The pointer names an algorithm that never stands in a written block.
    #[error("blocks are not stored with compression {id}")]
    Algorithm {
        /// The compression algorithm of the image.
        id: CompressionId,
    },
    /// The image ends, or says that it ends, before the block is complete.
    #[error("{id}: the image of {have} bytes ends too early")]
    Truncated {
        /// The compression algorithm of the image.
        id: CompressionId,
        /// Bytes of the compressed image.
        have: usize,
    },
    /// The stream breaks the rules of the algorithm at some place.
    #[error("{id}: invalid stream")]
    Corrupt {
        /// The compression algorithm of the image.
        id: CompressionId,
    },
    /// The stream is whole but is not of the block's size.
    #[error("{id}: the block is not of {expected} bytes")]
    Size {
        /// The compression algorithm of the image.
        id: CompressionId,
        /// The logical size that the pointer states.
        expected: usize,
    },
    /// No memory for the scratch space of the algorithm.
    #[error("{id}: out of memory")]
    Memory {
        /// The compression algorithm of the image.
        id: CompressionId,
    },
}
