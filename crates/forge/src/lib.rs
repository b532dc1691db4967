//! Makes pools over from outside, block by block and in place, with every checksum right again.
//!
//! A reader that is to be trusted with strange pools needs strange pools to be tested with, and nobody
//! makes them: OpenZFS writes in the byte order of its machine, and nothing that writes a pool writes
//! a wrong one on purpose. This crate takes the images of a pool, changes blocks where they are and
//! reseals what leads to them, up to the uberblocks in the labels.
//!
//! # What always holds
//! - No space is allocated or freed: a block keeps its place, its birth and its size on disk. Contents
//!   that compress worse than before are compressed in another way, as each pointer says how.
//! - A block that several parents share (snapshots, clones, dedup) is made over once, and all of
//!   them lead to the same.
//! - Only the newest state of the pool survives: older uberblocks would lead to blocks that have
//!   changed, and are wiped.
//! - What needs a key that an outsider has not is left as it is: encrypted contents keep their
//!   ciphertext and their byte order; the blocks above them are resealed.
//!
//! # Order
//! [`image::Image`] opens the devices -> [`walk::Walk`] visits blocks, children first, and asks an
//! [`walk::Edit`] what becomes of each -> [`seal`] compresses, checksums and writes it -> the new root goes into the
//! uberblocks ([`labels`]).
//!
//! [`swap`] is the edit that writes a pool in the other byte order, [`mutate`] those that an attacker makes. Tests: `tests/`, with zdb as the judge.
#![forbid(unsafe_code)]

pub mod image;
pub mod labels;
pub mod mutate;
pub mod seal;
pub mod swap;
pub mod walk;

/// Why a pool could not be made over.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ForgeError {
    /// The pool does not open.
    #[error("the pool does not open: {0}")]
    Pool(#[from] pool::PoolError),
    /// A block cannot be read.
    #[error("a block cannot be read: {0}")]
    Read(#[from] zio::ZioError),
    /// Something in a block is not what it should be.
    #[error("a block cannot be understood: {0}")]
    Decode(#[from] format::DecodeError),
    /// A checksum cannot be computed.
    #[error("a checksum cannot be computed: {0}")]
    Checksum(#[from] codec::checksum::ChecksumError),
    /// A block cannot be written to its vdev.
    #[error("a block cannot be written: {0}")]
    Write(#[from] vdev::tree::VdevError),
    /// A device cannot be read or written.
    #[error("a device: {0}")]
    Device(#[from] vdev::DeviceError),
    /// The new contents of a block do not fit in its place, however they are compressed.
    #[error("the new contents of {0} do not fit in its place")]
    Room(format::BlockPtr),
    /// The pool holds something that this tool does not make over.
    #[error("not made over: {0}")]
    Unsupported(&'static str),
}

/// The outcome of a step.
pub type Result<T> = std::result::Result<T, ForgeError>;
