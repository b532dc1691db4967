//! Checksums of blocks, labels, gang headers and intent-log blocks
//! (docs/on-disk/13-checksums-compression.md, section 1; 12-block-pointers.md, sections 5, 7 and 9).
//!
//! Called by `zio` for every block read or written and by `vdev::label` for labels and uberblocks.
//!
//! # What always holds
//! - Verification runs on the bytes as they are on disk, before decryption and decompression.
//! - A salted checksum is not computed without the salt; that is an error.
//! - Of a protected block (crypt bit, not an object set) only the first two words are a checksum; the
//!   other two are a MAC, which `crypt` checks.

mod edonr;
mod fletcher;
pub(crate) mod fletcher_lanes;
mod skein;
mod trailer;
mod zil;

pub use trailer::{
    BodySum, TRAILER_MAGIC, TRAILER_SIZE, gang_verifier, verify_gang_header, verify_trailer,
    write_gang_header, write_trailer,
};
pub(crate) use zil::CHAIN_SIZE;
pub use zil::{verify_zil, write_zil};

use aws_lc_rs::digest;
use format::{BlockPtr, BpKind, Checksum, ChecksumId, Endian, ObjType};
use std::fmt;

/// The pool's 32 random bytes that key the salted checksums.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Salt(pub [u8; 32]);

impl fmt::Debug for Salt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Salt(..)")
    }
}

/// Why a checksum cannot be computed. A mismatch is not an error of this kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChecksumError {
    /// The block pointer has an unknown algorithm, or one that is not for blocks of the tree.
    #[error("checksum algorithm {id} is not one of a block")]
    Algorithm {
        /// The algorithm's number in the block pointer.
        id: u8,
    },
    /// The algorithm is keyed with the pool's salt, and the pool has none.
    #[error("{id} needs the pool's checksum salt, which is missing")]
    NoSalt {
        /// The checksum algorithm that failed.
        id: ChecksumId,
    },
    /// The data is not a whole number of the algorithm's words.
    #[error("{id} of {len} bytes: not a multiple of {word}")]
    Length {
        /// The checksum algorithm that failed.
        id: ChecksumId,
        /// Number of bytes of the data.
        len: usize,
        /// Bytes of a word of the algorithm; the data must be a multiple of it.
        word: usize,
    },
    /// The data is shorter than the trailer.
    #[error("{len} bytes cannot hold a checksum trailer of {TRAILER_SIZE}")]
    NoRoom {
        /// Number of bytes of the data.
        len: usize,
    },
    /// The block pointer has no address, so its gang header has no verifier.
    #[error("a block pointer without an address")]
    NoAddress,
}

/// The checksum of `data`: the four words for a block pointer, before shortening for a protected block. `order` is
/// the byte order of the block. For `off` and `noparity`: zeros.
///
/// # Errors
/// If the algorithm is not one that a block can have, needs a salt that is not given, or does not take data
/// of this length.
pub fn compute(
    id: ChecksumId,
    data: &[u8],
    order: Endian,
    salt: Option<&Salt>,
) -> Result<Checksum, ChecksumError> {
    let salt = || salt.map(|salt| &salt.0).ok_or(ChecksumError::NoSalt { id });
    let whole = |word: usize| {
        let len = data.len();
        if len.is_multiple_of(word) { Ok(()) } else { Err(ChecksumError::Length { id, len, word }) }
    };
    Ok(Checksum(match id {
        ChecksumId::Off | ChecksumId::NoParity => [0; 4],
        ChecksumId::Fletcher2 => {
            whole(16)?;
            fletcher::fletcher2(data, order)
        }
        ChecksumId::Fletcher4 => {
            whole(4)?;
            fletcher::fletcher4(data, order)
        }
        ChecksumId::Sha256 => sha256(&[data]),
        ChecksumId::Sha512 => words(order, digest::digest(&digest::SHA512_256, data).as_ref()),
        ChecksumId::Skein => words(order, &skein::Keyed::new(salt()?).mac(data)),
        ChecksumId::Edonr => words(order, &edonr::Keyed::new(salt()?).mac(data)),
        ChecksumId::Blake3 => words(order, blake3::keyed_hash(salt()?, data).as_bytes()),
        ChecksumId::Inherit
        | ChecksumId::On
        | ChecksumId::Label
        | ChecksumId::GangHeader
        | ChecksumId::Zilog
        | ChecksumId::Zilog2 => return Err(ChecksumError::Algorithm { id: id.id() }),
    }))
}

/// True if `data`, the bytes of the block on disk, matches the checksum in its block pointer.
///
/// True for `off` and `noparity`, and for pointers that have no checksum (holes, embedded data).
/// A log block is verified with its chain header; of a gang block `data` is the reassembled block.
///
/// # Errors
/// If the checksum cannot be computed: see [`compute`].
pub fn verify(bp: &BlockPtr, data: &[u8], salt: Option<&Salt>) -> Result<bool, ChecksumError> {
    if !matches!(bp.kind(), BpKind::Normal | BpKind::Gang) {
        return Ok(true);
    }
    let id = bp.checksum_kind().map_err(|_| ChecksumError::Algorithm { id: bp.checksum_id() })?;
    if id.is_none() {
        return Ok(true);
    }
    if matches!(id, ChecksumId::Zilog | ChecksumId::Zilog2) {
        return Ok(verify_zil(bp, data).is_some());
    }
    let actual = compute(id, data, bp.byte_order(), salt)?;
    if is_shortened(bp) {
        let [stored0, stored1, ..] = bp.checksum().0;
        return Ok(shorten(id, actual) == [stored0, stored1]);
    }
    Ok(actual == bp.checksum())
}

/// True if the checksum words of the pointer also contain a MAC.
pub fn is_shortened(bp: &BlockPtr) -> bool {
    bp.uses_crypt() && bp.obj_type() != ObjType::OBJSET
}

/// The two checksum words of a protected block; checksums of weak algorithms are folded first.
pub fn shorten(id: ChecksumId, full: Checksum) -> [u64; 2] {
    let [a, b, c, d] = full.0;
    if id.is_dedup_strength() { [a, b] } else { [a ^ c, b ^ d] }
}

/// The checksum words of a protected block: the shortened checksum and the MAC.
#[cfg(test)]
pub(crate) fn with_mac(id: ChecksumId, full: Checksum, mac: &[u8; 16]) -> Checksum {
    let [a, b] = shorten(id, full);
    let [c, d] = mac_words(mac);
    Checksum([a, b, c, d])
}

/// A MAC as the words of a block pointer.
fn mac_words(mac: &[u8; 16]) -> [u64; 2] {
    let (words, _) = mac.as_chunks::<8>();
    let mut out = [0; 2];
    for (word, raw) in out.iter_mut().zip(words) {
        *word = u64::from_le_bytes(*raw);
    }
    out
}

/// SHA-256 of `parts`, as words read big-endian.
fn sha256(parts: &[&[u8]]) -> [u64; 4] {
    let mut context = digest::Context::new(&digest::SHA256);
    for part in parts {
        context.update(part);
    }
    words(Endian::Big, context.finish().as_ref())
}

/// The first 32 bytes of a digest as words.
fn words(order: Endian, bytes: &[u8]) -> [u64; 4] {
    let mut out = [0; 4];
    for (word, value) in out.iter_mut().zip(order.all_words(bytes)) {
        *word = value;
    }
    out
}

#[cfg(test)]
mod tests;
