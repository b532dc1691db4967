//! The write policy of a dataset, derived from its properties (docs/on-disk/20-dmu.md, section 7;
//! docs/on-disk/22-mos-dsl.md, section 6).

use crate::dataset::Dataset;
use crate::error::DslError;
use crate::features::FeatureCounts;
use crate::prop;
use codec::compress::zstd_level_from_byte;
use dmu::{RedundantMetadata, SetPolicy};
use format::{ChecksumId, CompressionId};

/// Low bits of a stored compression value that hold the algorithm; the level is in the bits above.
const ALGORITHM_BITS: u32 = 7;

/// The write policy of a head. Its accounting part applies to a new file system; the object set of an
/// existing one decides for itself.
///
/// # Errors
/// If the properties of the head cannot be read.
pub(crate) fn policy_of(dataset: &Dataset, features: &FeatureCounts) -> Result<SetPolicy, DslError> {
    let number = |name| prop::stored_number(dataset, name);
    let lz4 = features.is_active("lz4_compress");
    let default_compression = if lz4 { CompressionId::Lz4 } else { CompressionId::Lzjb };
    let (compression, level) = compression(number("compression")?, default_compression);
    Ok(SetPolicy {
        checksum: checksum(number("checksum")?),
        compression,
        level,
        copies: number("copies")?.clamp(1, 3) as u8,
        redundant_metadata: match number("redundant_metadata")? {
            1 => RedundantMetadata::Most,
            2 => RedundantMetadata::Some,
            3 => RedundantMetadata::None,
            _ => RedundantMetadata::All,
        },
        special_small_blocks: number("special_small_blocks")?,
        metadata_compression: default_compression,
        embed: features.is_active("embedded_data"),
        hole_birth: features.is_active("hole_birth"),
        encrypted: dataset.is_encrypted()?,
        user_accounting: true,
        object_accounting: features.is_enabled("userobj_accounting"),
        project_accounting: features.is_enabled("project_quota"),
        ..SetPolicy::dataset()
    })
}

/// The policy of the MOS of a pool with these features.
pub fn mos_policy(features: &FeatureCounts) -> SetPolicy {
    let lz4 = features.is_active("lz4_compress");
    let compression = if lz4 { CompressionId::Lz4 } else { CompressionId::Lzjb };
    SetPolicy {
        compression,
        metadata_compression: compression,
        embed: features.is_active("embedded_data"),
        hole_birth: features.is_active("hole_birth"),
        ..SetPolicy::mos()
    }
}

fn checksum(stored: u64) -> ChecksumId {
    match u8::try_from(stored).ok().and_then(|id| ChecksumId::from_id(id).ok()) {
        Some(id) if id.is_for_tree() => id,
        _ => ChecksumId::Fletcher4,
    }
}

fn compression(stored: u64, default: CompressionId) -> (CompressionId, i32) {
    let algorithm = (stored & ((1 << ALGORITHM_BITS) - 1)) as u8;
    let level = u8::try_from(stored >> ALGORITHM_BITS).ok().and_then(zstd_level_from_byte).unwrap_or(0);
    match CompressionId::from_id(algorithm) {
        Ok(CompressionId::Inherit | CompressionId::On | CompressionId::Empty) | Err(_) => (default, 0),
        Ok(CompressionId::Zstd) => (CompressionId::Zstd, level),
        Ok(id) => (id, 0),
    }
}

/// Whether a property decides how an open head is written: its blocks, its log, its files.
pub(crate) fn decides_policy(prop: &str) -> bool {
    matches!(
        prop,
        "acltype"
            | "atime"
            | "checksum"
            | "compression"
            | "copies"
            | "dnodesize"
            | "logbias"
            | "longname"
            | "readonly"
            | "recordsize"
            | "redundant_metadata"
            | "relatime"
            | "snapdir"
            | "special_small_blocks"
            | "sync"
            | "xattr"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_numbers_become_algorithms() {
        let of = |stored| compression(stored, CompressionId::Lz4);
        assert_eq!(of(1), (CompressionId::Lz4, 0));
        assert_eq!(of(2), (CompressionId::Off, 0));
        assert_eq!(of(400), (CompressionId::Zstd, 3));
        assert_eq!(of(13200), (CompressionId::Zstd, -1));
        assert_eq!(of(13), (CompressionId::Gzip9, 0));
        assert_eq!(of(77), (CompressionId::Lz4, 0));
        assert_eq!(
            (checksum(1), checksum(8), checksum(9)),
            (ChecksumId::Fletcher4, ChecksumId::Sha256, ChecksumId::Fletcher4)
        );
    }
}
