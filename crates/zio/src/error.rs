//! Why a block could not be read.

use codec::checksum::ChecksumError;
use codec::compress::DecompressError;
use codec::crypt::CryptError;
use format::{BlockPtr, DecodeError};
use vdev::tree::{Fault, VdevError};

/// A block that could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ZioError {
    /// The pointer itself is not one that any pool can hold.
    #[error("{bp}: not a valid block pointer")]
    BadPointer {
        /// The pointer.
        bp: BlockPtr,
        /// What is wrong with it.
        #[source]
        source: DecodeError,
    },
    /// No copy and no reconstruction gave the right bytes.
    #[error("{bp}: no readable copy ({} device errors)", faults.len())]
    Unreadable {
        /// The pointer.
        bp: BlockPtr,
        /// What each device did wrong.
        faults: Vec<Fault>,
        /// The last reason the vdevs gave.
        #[source]
        source: VdevError,
    },
    /// The pieces of a gang block do not make the block.
    #[error("{bp}: gang block: {why}")]
    Gang {
        /// The pointer.
        bp: BlockPtr,
        /// What is wrong.
        why: &'static str,
    },
    /// The checksum cannot be computed (a salted one on a pool without a salt).
    #[error("{bp}: checksum")]
    Checksum {
        /// The pointer.
        bp: BlockPtr,
        /// Why.
        #[source]
        source: ChecksumError,
    },
    /// The stored bytes are right, but do not decompress.
    #[error("{bp}: decompression failed")]
    Decompress {
        /// The pointer.
        bp: BlockPtr,
        /// Why.
        #[source]
        source: DecompressError,
    },
    /// The stored bytes are right, but the key does not open them, or their MAC is wrong.
    #[error("{bp}: authentication failed")]
    Crypt {
        /// The pointer.
        bp: BlockPtr,
        /// Why.
        #[source]
        source: CryptError,
    },
    /// The block is encrypted and no key is loaded.
    #[error("{bp}: encrypted, and the key is not loaded")]
    Locked {
        /// The pointer.
        bp: BlockPtr,
    },
    /// The data was left out of the stream that this dataset was received from.
    #[error("{bp}: redacted")]
    Redacted {
        /// The pointer.
        bp: BlockPtr,
    },
}

impl ZioError {
    /// The pointer that could not be followed.
    pub fn bp(&self) -> &BlockPtr {
        match self {
            ZioError::BadPointer { bp, .. }
            | ZioError::Unreadable { bp, .. }
            | ZioError::Gang { bp, .. }
            | ZioError::Checksum { bp, .. }
            | ZioError::Decompress { bp, .. }
            | ZioError::Crypt { bp, .. }
            | ZioError::Locked { bp }
            | ZioError::Redacted { bp } => bp,
        }
    }
}
