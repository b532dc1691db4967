//! Errors of reading, writing and freeing blocks.

use crate::AllocError;
use codec::checksum::ChecksumError;
use codec::compress::DecompressError;
use codec::crypt::CryptError;
use format::{BlockPtr, DecodeError, Dva};
use vdev::tree::{Fault, VdevError};

/// An error of reading, writing or freeing a block.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ZioError {
    /// The pointer is malformed.
    #[error("{bp}: not a valid block pointer")]
    BadPointer {
        /// The pointer of the block.
        bp: BlockPtr,
        /// How the pointer is malformed.
        #[source]
        source: DecodeError,
    },
    /// No copy and no reconstruction gave the right bytes.
    #[error("{bp}: no readable copy ({} device errors)", faults.len())]
    Unreadable {
        /// The pointer of the block.
        bp: BlockPtr,
        /// The failure of each device.
        faults: Vec<Fault>,
        /// The last error of the vdevs.
        #[source]
        source: VdevError,
    },
    /// The pieces of a gang block do not make the block.
    #[error("{bp}: gang block: {why}")]
    Gang {
        /// The pointer of the block.
        bp: BlockPtr,
        /// The contradiction, in words.
        why: &'static str,
    },
    /// The checksum cannot be computed (a salted one on a pool without a salt).
    #[error("{bp}: checksum")]
    Checksum {
        /// The pointer of the block.
        bp: BlockPtr,
        /// Why it cannot be computed.
        #[source]
        source: ChecksumError,
    },
    /// The stored bytes are right, but do not decompress.
    #[error("{bp}: decompression failed")]
    Decompress {
        /// The pointer of the block.
        bp: BlockPtr,
        /// Why it cannot be computed.
        #[source]
        source: DecompressError,
    },
    /// The stored bytes are right, but the key does not decrypt them, or their MAC is wrong.
    #[error("{bp}: authentication failed")]
    Crypt {
        /// The pointer of the block.
        bp: BlockPtr,
        /// Why it cannot be computed.
        #[source]
        source: CryptError,
    },
    /// The block is encrypted and no key is loaded.
    #[error("{bp}: encrypted, and the key is not loaded")]
    Locked {
        /// The pointer of the block.
        bp: BlockPtr,
    },
    /// There is no allocator: the pool is open for reading only.
    #[error("{bp}: the pool is open for reading only")]
    ReadOnly {
        /// The pointer; for a block to be written, its old pointer.
        bp: BlockPtr,
    },
    /// There is no space, not even in pieces; or an extent cannot be freed or claimed.
    #[error("{bp}: space")]
    Allocate {
        /// The pointer, without addresses if there was no space for any.
        bp: BlockPtr,
        /// Why it cannot be computed.
        #[source]
        source: AllocError,
    },
    /// No device took the block, at either of two places.
    #[error("{bp}: no device took it")]
    Unwritable {
        /// The pointer, with the place tried last.
        bp: BlockPtr,
        /// The last error of the vdevs.
        #[source]
        source: VdevError,
    },
    /// An address is not in the pool.
    #[error("{bp}: an address that is not in the pool")]
    Misplaced {
        /// The pointer of the block.
        bp: BlockPtr,
        /// Why the address is not in the pool.
        #[source]
        source: VdevError,
    },
    /// Writes did not become durable. Not the error of one block.
    #[error("writes may not be durable")]
    Flush {
        /// Why it cannot be computed.
        #[source]
        source: VdevError,
    },
    /// A range of a vdev that is being removed could not be copied.
    #[error("{from} cannot be copied to another vdev")]
    Copy {
        /// The range on the vdev that is being removed.
        from: Dva,
        /// Why it could not be read or written.
        #[source]
        source: VdevError,
    },
    /// The data were redacted from the stream that this dataset was received from.
    #[error("{bp}: redacted")]
    Redacted {
        /// The pointer of the block.
        bp: BlockPtr,
    },
}

impl ZioError {
    /// The pointer of the block; a hole if the error is not of one block.
    pub fn bp(&self) -> &BlockPtr {
        match self {
            ZioError::BadPointer { bp, .. }
            | ZioError::Unreadable { bp, .. }
            | ZioError::Gang { bp, .. }
            | ZioError::Checksum { bp, .. }
            | ZioError::Decompress { bp, .. }
            | ZioError::Crypt { bp, .. }
            | ZioError::Locked { bp }
            | ZioError::ReadOnly { bp }
            | ZioError::Allocate { bp, .. }
            | ZioError::Unwritable { bp, .. }
            | ZioError::Misplaced { bp, .. }
            | ZioError::Redacted { bp } => bp,
            ZioError::Flush { .. } | ZioError::Copy { .. } => &BlockPtr::HOLE,
        }
    }
}
