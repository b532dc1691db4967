//! The stored form of a block: a hole, its bytes, or compressed bytes
//! (docs/on-disk/13-checksums-compression.md, section 2.1).

use crate::policy::WritePolicy;
use crate::quantum::Quantum;
use codec::compress::{compress, is_zero};
use format::{ChecksumId, CompressionId};

/// Blocks of this size or more are tried with a fast compressor before a slow one.
const TRIAL_MIN: usize = 128 << 10;
/// From this level on zstd is slow.
const TRIAL_LEVEL: i32 = 3;

/// The stored form of a block.
pub(super) enum Image {
    /// The block is all zeros: a hole.
    Zero,
    /// Compressed and small enough to be embedded in the pointer.
    Embedded(Vec<u8>),
    /// Compressed and padded with zeros to a stored size.
    Compressed(Vec<u8>),
    /// The bytes are stored as they are.
    Raw,
}

/// Chooses the form. Results of at most `embed_max` bytes are embedded in the pointer.
pub(super) fn make(data: &[u8], policy: &WritePolicy, quantum: Quantum, embed_max: usize) -> Image {
    let id = policy.compression;
    assert!(
        !matches!(id, CompressionId::Inherit | CompressionId::On),
        "a policy must name the algorithm that stands for {id}"
    );
    if id == CompressionId::Off {
        return Image::Raw;
    }
    if is_zero(data) {
        return Image::Zero;
    }
    let limit = limit(id, data.len() as u64, quantum).max(embed_max as u64) as usize;
    if limit == 0 || !is_worth_a_try(data, policy, limit) {
        return Image::Raw;
    }
    let Some(mut bytes) = compress(id, policy.level, data, limit) else { return Image::Raw };
    if bytes.len() <= embed_max {
        return Image::Embedded(bytes);
    }
    let stored = quantum.round_up(bytes.len() as u64);
    if stored >= data.len() as u64 {
        return Image::Raw;
    }
    bytes.resize(stored as usize, 0);
    Image::Compressed(bytes)
}

/// Most bytes that a compressed result may have: seven eighths, as far as that saves a unit of space. 0: no
/// result would be stored.
fn limit(id: CompressionId, lsize: u64, quantum: Quantum) -> u64 {
    let most = lsize - lsize / 8;
    let most = if id == CompressionId::Zle { most } else { most - most % quantum.unit };
    if most < quantum.min { 0 } else { most }
}

/// Whether a slow compressor is likely to succeed, by the results of fast ones.
fn is_worth_a_try(data: &[u8], policy: &WritePolicy, limit: usize) -> bool {
    let slow =
        policy.compression == CompressionId::Zstd && (policy.level == 0 || policy.level >= TRIAL_LEVEL);
    if !slow || data.len() < TRIAL_MIN {
        return true;
    }
    compress(CompressionId::Lz4, 0, data, limit).is_some()
        || compress(CompressionId::Zstd, 1, data, limit).is_some()
}

/// Estimated time of preparing a block, in nanoseconds: used to cut batches into equal parts.
pub(super) fn work_ns(policy: &WritePolicy, bytes: usize) -> u64 {
    let bytes = bytes as u64;
    let compression = match policy.compression {
        CompressionId::Off => 0,
        CompressionId::Empty => bytes / 16,
        CompressionId::Lz4 => bytes * 2,
        CompressionId::Zstd if policy.level > 6 => bytes * 30,
        CompressionId::Lzjb | CompressionId::Zle | CompressionId::Zstd => bytes * 4,
        _ => bytes * 20,
    };
    let checksum = match policy.checksum {
        ChecksumId::Off | ChecksumId::NoParity => 0,
        ChecksumId::Fletcher2 | ChecksumId::Fletcher4 => bytes / 8,
        _ => bytes * 2,
    };
    200 + compression + checksum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_follow_the_unit_of_the_pool() {
        let (small, large) = (Quantum::default(), Quantum { min: 4096, unit: 4096 });
        let lz4 = |lsize, quantum| limit(CompressionId::Lz4, lsize, quantum);
        assert_eq!([512, 1024, 131_072].map(|size| lz4(size, small)), [0, 512, 114_688]);
        assert_eq!([4096, 8192, 131_072].map(|size| lz4(size, large)), [0, 4096, 114_688]);
        assert_eq!(limit(CompressionId::Zle, 131_072 + 512, large), 115_136);
    }
}
