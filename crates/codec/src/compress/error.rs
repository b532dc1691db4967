//! Errors of decompression.

use format::CompressionId;

/// Why an image cannot be decompressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecompressError {
    /// The block pointer has an algorithm that no written block has.
    #[error("blocks are not stored with compression {id}")]
    Algorithm {
        /// The compression algorithm of the image.
        id: CompressionId,
    },
    /// The image, or the length in it, ends before the block is complete.
    #[error("{id}: the image of {have} bytes ends too early")]
    Truncated {
        /// The compression algorithm of the image.
        id: CompressionId,
        /// Bytes of the compressed image.
        have: usize,
    },
    /// The stream violates the rules of the algorithm.
    #[error("{id}: invalid stream")]
    Corrupt {
        /// The compression algorithm of the image.
        id: CompressionId,
    },
    /// The stream is complete but does not have the block's size.
    #[error("{id}: the block is not of {expected} bytes")]
    Size {
        /// The compression algorithm of the image.
        id: CompressionId,
        /// Logical size in the block pointer, in bytes.
        expected: usize,
    },
    /// Memory for the algorithm's scratch space cannot be allocated.
    #[error("{id}: out of memory")]
    Memory {
        /// The compression algorithm of the image.
        id: CompressionId,
    },
}
