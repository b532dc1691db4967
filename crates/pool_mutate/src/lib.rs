//! Rewrites pools in place, block by block and from outside, and makes every checksum valid again.
//!
//! A reader that accepts untrusted pools has to be tested with unusual and malicious ones, which no other
//! tool produces: OpenZFS writes in the byte order of its machine, and no writer produces a wrong pool on
//! purpose. This crate takes the images of a pool, changes blocks where they are, and recomputes the
//! checksums on the path from them to the uberblocks in the labels.
//!
//! # What always holds
//! - No space is allocated or freed: a block keeps its address, birth and size on disk. Contents that
//!   compress worse than before are compressed by another algorithm, which the block pointer names.
//! - A block with several parents (snapshots, clones, dedup) is rewritten once, and all parents lead to the
//!   same copy.
//! - Only the newest state of the pool survives: older uberblocks lead to blocks that have changed, and are
//!   zeroed.
//! - Contents that need a key stay as they are: encrypted contents keep their ciphertext and byte order; the
//!   blocks above them are resealed.
//!
//! # Order
//! [`image::Image`] opens the devices -> `walk::Walk` visits blocks, children first, and lets a `walk::Edit`
//! change each -> `seal` compresses, checksums and writes it -> the new root goes into the uberblocks
//! (`labels`).
//!
//! [`swap`] is the edit that writes a pool in the other byte order, [`stream`] writes a send stream so, [`mutate`] the edits of an attacker.
//! Tests: `tests/`, with zdb as the judge.
#![forbid(unsafe_code)]

pub mod image;
mod labels;
pub mod mutate;
mod seal;
pub mod stream;
pub mod swap;
mod walk;

/// The reason why a pool could not be rewritten.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MutateError {
    /// The pool cannot be opened.
    #[error("the pool does not open: {0}")]
    Pool(#[from] pool::PoolError),
    /// A block cannot be read.
    #[error("a block cannot be read: {0}")]
    Read(#[from] zio::ZioError),
    /// A structure in a block does not decode.
    #[error("a block cannot be decoded: {0}")]
    Decode(#[from] format::DecodeError),
    /// A checksum cannot be computed.
    #[error("a checksum cannot be computed: {0}")]
    Checksum(#[from] codec::checksum::ChecksumError),
    /// A block cannot be written to its vdev.
    #[error("a block cannot be written: {0}")]
    Write(#[from] vdev::tree::VdevError),
    /// A device cannot be read or written.
    #[error("a device fails: {0}")]
    Device(#[from] vdev::DeviceError),
    /// The new contents of a block do not fit into its allocated size with any compression.
    #[error("the new contents of {0} do not fit in its place")]
    TooLarge(format::BlockPtr),
    /// The pool has a structure that this crate does not rewrite.
    #[error("cannot be rewritten: {0}")]
    Unsupported(&'static str),
}

/// Result of a step of a rewrite.
pub(crate) type Result<T> = std::result::Result<T, MutateError>;
