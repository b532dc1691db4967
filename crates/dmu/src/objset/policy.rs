//! The write policy of an object set, derived from properties of the dataset (docs/on-disk/20-dmu.md, section
//! 7).

use crate::object::cell::Header;
use format::{ChecksumId, CompressionId, Level, ObjType};
use zio::WritePolicy;
use zio::alloc::AllocClass;

/// The metadata that get one copy more than the data (property `redundant_metadata`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RedundantMetadata {
    /// All metadata.
    #[default]
    All,
    /// All metadata except the lowest indirect blocks of files.
    Most,
    /// Only metadata that many files depend on.
    Some,
    /// No metadata.
    None,
}

/// Write policy of an object set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetPolicy {
    /// Checksum algorithm of data.
    pub checksum: ChecksumId,
    /// Compression algorithm of data.
    pub compression: CompressionId,
    /// Level of that compression, if it has levels; 0: its default.
    pub level: i32,
    /// Number of copies of data, 1 to 3.
    pub copies: u8,
    /// Copies of metadata.
    pub redundant_metadata: RedundantMetadata,
    /// Blocks of files with at most this many bytes on disk are allocated like metadata; 0: none.
    pub special_small_blocks: u64,
    /// Compression of metadata: LZ4 if feature `lz4_compress` is active, otherwise LZJB.
    pub metadata_compression: CompressionId,
    /// Feature `embedded_data` is enabled.
    pub embed: bool,
    /// Feature `hole_birth` is enabled.
    pub hole_birth: bool,
    /// The set is encrypted.
    pub encrypted: bool,
    /// The set is the MOS: every block has three copies and Fletcher-4.
    pub is_mos: bool,
    /// Bytes are accounted for by user and group.
    pub user_accounting: bool,
    /// Objects are accounted for as well.
    pub object_accounting: bool,
    /// Projects are accounted for as well.
    pub project_accounting: bool,
}

impl SetPolicy {
    /// The policy of the MOS of a pool with all features.
    pub fn mos() -> SetPolicy {
        SetPolicy {
            checksum: ChecksumId::Fletcher4,
            compression: CompressionId::Lz4,
            level: 0,
            copies: 3,
            redundant_metadata: RedundantMetadata::All,
            special_small_blocks: 0,
            metadata_compression: CompressionId::Lz4,
            embed: true,
            hole_birth: true,
            encrypted: false,
            is_mos: true,
            user_accounting: false,
            object_accounting: false,
            project_accounting: false,
        }
    }

    /// The policy of a dataset whose properties are all at their defaults.
    pub fn dataset() -> SetPolicy {
        SetPolicy { copies: 1, is_mos: false, ..SetPolicy::mos() }
    }

    /// The policy for a block of an object: of its tree at `level`, or its spill block.
    pub(crate) fn of_block(&self, header: &Header, level: Level, is_spill: bool, pass: u32) -> WritePolicy {
        let obj_type = if is_spill { header.bonus_type } else { header.obj_type };
        let is_metadata = level.0 > 0 || obj_type.is_metadata() || is_spill;
        let mut policy = self.of_type(obj_type, level, is_metadata);
        if let Ok(checksum) = ChecksumId::from_id(header.checksum)
            && checksum.is_for_tree()
        {
            policy.checksum = checksum;
        }
        if let Ok(compression) = CompressionId::from_id(header.compress)
            && header.compress > 1
        {
            policy.compression = compression;
        }
        if pass >= NO_COMPRESSION_PASS {
            policy.compression = CompressionId::Off;
        }
        if !is_metadata && obj_type == ObjType::PLAIN_FILE {
            policy.small_blocks = self.special_small_blocks;
        }
        if self.encrypted { self.protected(policy) } else { policy }
    }

    /// The policy for a block of an encrypted set (docs/on-disk/31-encryption.md, section 4).
    fn protected(&self, mut policy: WritePolicy) -> WritePolicy {
        if policy.tree_level == Level(0) && policy.obj_type.is_encrypted() {
            // The third address holds salt and IV.
            (policy.copies, policy.gang_copies) = (policy.copies.min(2), 2);
        }
        if policy.tree_level == Level(0) && matches!(policy.obj_type, ObjType::DNODE | ObjType::OBJSET) {
            policy.compression = CompressionId::Off;
        }
        // What is received may ask for an algorithm that the pool does not have.
        let set = self.of_type(policy.obj_type, policy.tree_level, true);
        WritePolicy { checksum: set.checksum, embed: false, nopwrite: false, ..policy }
    }

    /// The policy for the root block.
    pub(crate) fn of_root(&self, pass: u32) -> WritePolicy {
        let mut policy = self.of_type(ObjType::OBJSET, Level(0), true);
        policy.nopwrite = false;
        if pass >= NO_COMPRESSION_PASS {
            policy.compression = CompressionId::Off;
        }
        if self.encrypted { self.protected(policy) } else { policy }
    }

    fn of_type(&self, obj_type: ObjType, level: Level, is_metadata: bool) -> WritePolicy {
        let is_embeddable =
            level.0 == 0 && obj_type != ObjType::DNODE && obj_type != ObjType::OBJSET && self.embed;
        let copies = if is_metadata { self.metadata_copies(obj_type, level) } else { self.copies };
        WritePolicy {
            checksum: if is_metadata && !is_for_metadata(self.checksum) {
                ChecksumId::Fletcher4
            } else {
                self.checksum
            },
            compression: if is_metadata { self.metadata_compression } else { self.compression },
            level: if is_metadata { 0 } else { self.level },
            copies,
            gang_copies: copies.max(2),
            obj_type,
            tree_level: level,
            class: if is_metadata { AllocClass::Special } else { AllocClass::Normal },
            small_blocks: 0,
            embed: is_embeddable,
            hole_birth: self.hole_birth,
            nopwrite: level.0 == 0 && !is_metadata,
        }
    }

    fn metadata_copies(&self, obj_type: ObjType, level: Level) -> u8 {
        let is_one_more = match self.redundant_metadata {
            RedundantMetadata::All => true,
            RedundantMetadata::Most => level.0 >= 2 || obj_type.is_metadata(),
            RedundantMetadata::Some => {
                obj_type.is_metadata()
                    && !matches!(obj_type, ObjType::DNODE | ObjType::DIRECTORY | ObjType::SA)
            }
            RedundantMetadata::None => false,
        };
        (self.copies + u8::from(is_one_more)).min(3)
    }
}

/// The pass from which on no block is compressed, so that sizes stay constant and the passes end.
const NO_COMPRESSION_PASS: u32 = 6;

/// Whether a checksum is strong enough for metadata, which always have one.
fn is_for_metadata(checksum: ChecksumId) -> bool {
    checksum == ChecksumId::Fletcher4 || checksum.is_dedup_strength() || checksum == ChecksumId::Edonr
}
