//! The numbers stored in block pointers and dnodes for checksum algorithms, compression algorithms and object types
//! (docs/on-disk/12-block-pointers.md, section 9).

use crate::DecodeError;
use std::fmt;

macro_rules! ids {
    ($(#[$doc:meta])* $name:ident, $what:literal { $($(#[$vdoc:meta])* $var:ident = $n:literal $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum $name { $($(#[$vdoc])* $var = $n,)* }
        impl $name {
            /// The algorithm with this number.
            ///
            /// # Errors
            /// [`DecodeError::Field`] if no algorithm has this number.
            pub fn from_id(id: u8) -> Result<$name, DecodeError> {
                match id {
                    $($n => Ok($name::$var),)*
                    _ => Err(DecodeError::field($what, "id", id)),
                }
            }
            /// The number stored on disk.
            pub fn id(self) -> u8 { self as u8 }
            /// The name that the tools print.
            pub fn name(self) -> &'static str { match self { $($name::$var => $text,)* } }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { f.write_str(self.name()) }
        }
    };
}

ids! {
    /// Id of a checksum algorithm.
    ChecksumId, "checksum" {
        /// Inherited; not in written blocks.
        Inherit = 0 "inherit",
        /// The default algorithm; not in written blocks.
        On = 1 "on",
        /// Blocks have no checksum.
        Off = 2 "off",
        /// SHA-256 in the trailer of a label.
        Label = 3 "label",
        /// SHA-256 in the trailer of a gang header.
        GangHeader = 4 "gang_header",
        /// Fletcher-2 at the end of an old intent-log block.
        Zilog = 5 "zilog",
        /// Fletcher-2, of the first pool versions.
        Fletcher2 = 6 "fletcher2",
        /// Fletcher-4, the default for data.
        Fletcher4 = 7 "fletcher4",
        /// SHA-256, also used for labels.
        Sha256 = 8 "sha256",
        /// Fletcher-4 in the header of an intent-log block.
        Zilog2 = 9 "zilog2",
        /// No checksum is stored; `zfs set` does not offer it.
        NoParity = 10 "noparity",
        /// SHA-512, truncated to 256 bits.
        Sha512 = 11 "sha512",
        /// Skein-512, 256 bits, keyed with the pool's salt.
        Skein = 12 "skein",
        /// Edon-R-512, keyed with the pool's salt.
        Edonr = 13 "edonr",
        /// BLAKE3 keyed with the pool's salt.
        Blake3 = 14 "blake3",
    }
}

impl ChecksumId {
    /// True if the checksum is strong enough for deduplication. This decides how the checksum of an encrypted block
    /// is shortened (docs/on-disk/31-encryption.md, section 4).
    pub fn is_dedup_strength(self) -> bool {
        matches!(self, ChecksumId::Sha256 | ChecksumId::Sha512 | ChecksumId::Skein | ChecksumId::Blake3)
    }

    /// True if no checksum is stored.
    pub fn is_none(self) -> bool {
        matches!(self, ChecksumId::Off | ChecksumId::NoParity)
    }

    /// True if pointers to blocks of the tree, not of the intent log, may have it.
    pub fn is_for_tree(self) -> bool {
        self.is_none()
            || matches!(self, ChecksumId::Fletcher2 | ChecksumId::Fletcher4)
            || self.id() == 8
            || self.id() >= 11
    }
}

ids! {
    /// Id of a compression algorithm.
    CompressionId, "compression" {
        /// Inherited; not in written blocks.
        Inherit = 0 "inherit",
        /// The default algorithm; not in written blocks.
        On = 1 "on",
        /// The block is stored without compression.
        Off = 2 "uncompressed",
        /// LZJB, the default of the first pool versions.
        Lzjb = 3 "lzjb",
        /// Only blocks of zeros are detected.
        Empty = 4 "empty",
        /// zlib level 1.
        Gzip1 = 5 "gzip-1",
        /// zlib level 2.
        Gzip2 = 6 "gzip-2",
        /// zlib level 3.
        Gzip3 = 7 "gzip-3",
        /// zlib level 4.
        Gzip4 = 8 "gzip-4",
        /// zlib level 5.
        Gzip5 = 9 "gzip-5",
        /// zlib level 6.
        Gzip6 = 10 "gzip-6",
        /// zlib level 7.
        Gzip7 = 11 "gzip-7",
        /// zlib level 8.
        Gzip8 = 12 "gzip-8",
        /// zlib level 9.
        Gzip9 = 13 "gzip-9",
        /// ZLE: runs of zeros only.
        Zle = 14 "zle",
        /// LZ4, the default where feature `lz4_compress` is active.
        Lz4 = 15 "lz4",
        /// Zstandard; the level is in the header of the compressed data.
        Zstd = 16 "zstd",
    }
}

/// Layout of a block's contents in words, which determines how it is byte-swapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SwapClass {
    /// Bytes, which have no byte order.
    U8,
    /// Words of 16 bits, each swapped.
    U16,
    /// Words of 32 bits, each swapped.
    U32,
    /// Words of 64 bits, each swapped.
    U64,
    /// A ZAP: swapped by its own structure.
    Zap,
    /// An array of dnodes: swapped dnode by dnode.
    Dnode,
    /// An object set block: words, dnodes and MACs.
    Objset,
    /// A legacy znode in a bonus.
    Znode,
    /// An ACL of version 0.
    OldAcl,
    /// An ACL of version 1.
    Acl,
}

impl fmt::Display for SwapClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SwapClass::U8 => "uint8",
            SwapClass::U16 => "uint16",
            SwapClass::U32 => "uint32",
            SwapClass::U64 => "uint64",
            SwapClass::Zap => "zap",
            _ => "other",
        })
    }
}

/// The type of an object: one of the fixed table, or self-describing (bit 7 set).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct ObjType(u8);

struct TypeInfo(&'static str, SwapClass, bool, bool);

use SwapClass as S;
/// Name as zdb prints it, swap class, metadata, encrypted; indexed by number.
const TYPES: [TypeInfo; 54] = [
    TypeInfo("unallocated", S::U8, true, false),
    TypeInfo("object directory", S::Zap, true, false),
    TypeInfo("object array", S::U64, true, false),
    TypeInfo("packed nvlist", S::U8, true, false),
    TypeInfo("packed nvlist size", S::U64, true, false),
    TypeInfo("bpobj", S::U64, true, false),
    TypeInfo("bpobj header", S::U64, true, false),
    TypeInfo("SPA space map header", S::U64, true, false),
    TypeInfo("SPA space map", S::U64, true, false),
    TypeInfo("ZIL intent log", S::U64, true, true),
    TypeInfo("DMU dnode", S::Dnode, true, true),
    TypeInfo("DMU objset", S::Objset, true, false),
    TypeInfo("DSL directory", S::U64, true, false),
    TypeInfo("DSL directory child map", S::Zap, true, false),
    TypeInfo("DSL dataset snap map", S::Zap, true, false),
    TypeInfo("DSL props", S::Zap, true, false),
    TypeInfo("DSL dataset", S::U64, true, false),
    TypeInfo("ZFS znode", S::Znode, true, false),
    TypeInfo("ZFS V0 ACL", S::OldAcl, true, true),
    TypeInfo("ZFS plain file", S::U8, false, true),
    TypeInfo("ZFS directory", S::Zap, true, true),
    TypeInfo("ZFS master node", S::Zap, true, false),
    TypeInfo("ZFS delete queue", S::Zap, true, true),
    TypeInfo("zvol object", S::U8, false, true),
    TypeInfo("zvol prop", S::Zap, true, false),
    TypeInfo("other uint8[]", S::U8, false, true),
    TypeInfo("other uint64[]", S::U64, false, true),
    TypeInfo("other ZAP", S::Zap, true, false),
    TypeInfo("persistent error log", S::Zap, true, false),
    TypeInfo("SPA history", S::U8, true, false),
    TypeInfo("SPA history offsets", S::U64, true, false),
    TypeInfo("Pool properties", S::Zap, true, false),
    TypeInfo("DSL permissions", S::Zap, true, false),
    TypeInfo("ZFS ACL", S::Acl, true, true),
    TypeInfo("ZFS SYSACL", S::U8, true, true),
    TypeInfo("FUID table", S::U8, true, true),
    TypeInfo("FUID table size", S::U64, true, false),
    TypeInfo("DSL dataset next clones", S::Zap, true, false),
    TypeInfo("scan work queue", S::Zap, true, false),
    TypeInfo("ZFS user/group/project used", S::Zap, true, true),
    TypeInfo("ZFS user/group/project quota", S::Zap, true, true),
    TypeInfo("snapshot refcount tags", S::Zap, true, false),
    TypeInfo("DDT ZAP algorithm", S::Zap, true, false),
    TypeInfo("DDT statistics", S::Zap, true, false),
    TypeInfo("System attributes", S::U8, true, true),
    TypeInfo("SA master node", S::Zap, true, true),
    TypeInfo("SA attr registration", S::Zap, true, true),
    TypeInfo("SA attr layouts", S::Zap, true, true),
    TypeInfo("scan translations", S::Zap, true, false),
    TypeInfo("deduplicated block", S::U8, false, true),
    TypeInfo("DSL deadlist map", S::Zap, true, false),
    TypeInfo("DSL deadlist map hdr", S::U64, true, false),
    TypeInfo("DSL dir clones", S::Zap, true, false),
    TypeInfo("bpobj subobj", S::U64, true, false),
];

const CLASSES: [S; 10] =
    [S::U8, S::U16, S::U32, S::U64, S::Zap, S::Dnode, S::Objset, S::Znode, S::OldAcl, S::Acl];

macro_rules! type_consts {
    ($($(#[$doc:meta])* $name:ident = $n:literal;)*) => {
        impl ObjType { $($(#[$doc])* pub const $name: ObjType = ObjType($n);)* }
    };
}
type_consts! {
    /// No object: the dnode slot is free.
    NONE = 0;
    /// The object directory of the pool, a ZAP.
    OBJECT_DIRECTORY = 1;
    /// An array of object numbers.
    OBJECT_ARRAY = 2;
    /// A packed name-value list, such as the configuration.
    PACKED_NVLIST = 3;
    /// Bonus of a packed list: its length.
    PACKED_NVLIST_SIZE = 4;
    /// A list of block pointers.
    BPOBJ = 5;
    /// Bonus of a bpobj: its counts and sums.
    BPOBJ_HDR = 6;
    /// Bonus of a space map.
    SPACE_MAP_HEADER = 7;
    /// A space map: a log of allocations and frees.
    SPACE_MAP = 8;
    /// Blocks of an intent log.
    INTENT_LOG = 9;
    /// Blocks of the meta-dnode: an array of dnodes.
    DNODE = 10;
    /// An object set: the block that a dataset points to.
    OBJSET = 11;
    /// A DSL directory; the structure is in the bonus.
    DSL_DIR = 12;
    /// Children of a DSL directory.
    DSL_DIR_CHILD_MAP = 13;
    /// ZAP from the names of a dataset's snapshots to their objects.
    DSL_DS_SNAP_MAP = 14;
    /// ZAP of the local properties of a DSL directory or snapshot.
    DSL_PROPS = 15;
    /// A DSL dataset; the structure is in the bonus.
    DSL_DATASET = 16;
    /// Bonus of a legacy file.
    ZNODE = 17;
    /// An external ACL of version 0.
    OLD_ACL = 18;
    /// The contents of a regular file.
    PLAIN_FILE = 19;
    /// A directory of a file system, a ZAP.
    DIRECTORY = 20;
    /// Object 1 of a file system.
    MASTER_NODE = 21;
    /// The set of unlinked files that are still open, a ZAP.
    UNLINKED_SET = 22;
    /// The contents of a volume.
    ZVOL = 23;
    /// The properties of a volume, a ZAP.
    ZVOL_PROP = 24;
    /// A log of blocks that could not be read.
    ERROR_LOG = 28;
    /// The command history of the pool, a ring of records.
    SPA_HISTORY = 29;
    /// The properties of the pool, a ZAP.
    POOL_PROPS = 31;
    /// The permissions delegated on a DSL directory, a ZAP.
    DSL_PERMS = 32;
    /// An external ACL of version 1.
    ACL = 33;
    /// The table of FUID domains, a packed name-value list.
    FUID = 35;
    /// Datasets that follow a snapshot in clones.
    NEXT_CLONES = 37;
    /// Datasets that a scan has still to visit.
    SCAN_QUEUE = 38;
    /// Space used by users, groups or projects.
    USERGROUP_USED = 39;
    /// Quotas of users, groups or projects, a ZAP.
    USERGROUP_QUOTA = 40;
    /// The holds of a snapshot, a ZAP.
    USERREFS = 41;
    /// The entries of a dedup table, a ZAP.
    DDT_ZAP = 42;
    /// The histograms of dedup tables, a ZAP.
    DDT_STATS = 43;
    /// System attributes that do not fit into a bonus: a spill block.
    SA = 44;
    /// The ZAP of the registry and the layouts of system attributes.
    SA_MASTER_NODE = 45;
    /// The registry: names and sizes of system attributes.
    SA_ATTR_REGISTRATION = 46;
    /// The layouts of system attributes, a ZAP.
    SA_ATTR_LAYOUTS = 47;
    /// A deduplicated block, which may belong to several object sets.
    DEDUP = 49;
    /// A deadlist: a ZAP from txgs to bpobjs.
    DEADLIST = 50;
    /// Bonus of a deadlist: its sums.
    DEADLIST_HDR = 51;
    /// The clones of a DSL directory.
    DSL_CLONES = 52;
    /// The array of the object numbers of a bpobj's sub-lists.
    BPOBJ_SUBOBJ = 53;
    /// Self-describing array of `u32`, metadata.
    U32_METADATA = 0xC2;
    /// Self-describing array of `u64`, metadata.
    U64_METADATA = 0xC3;
    /// A ZAP whose object type states its properties: metadata, ZAP byte order.
    ZAP_METADATA = 0xC4;
    /// Words of metadata that have no type of their own: a redaction list.
    UINT64_METADATA = 0xc3;
}

impl ObjType {
    /// The type with this number, if it is one.
    ///
    /// # Errors
    /// [`DecodeError::Field`] if no type has this number.
    pub fn from_id(id: u8) -> Result<ObjType, DecodeError> {
        let known = if id & 0x80 != 0 {
            usize::from(id & 0x1f) < CLASSES.len()
        } else {
            usize::from(id) < TYPES.len()
        };
        if known { Ok(ObjType(id)) } else { Err(DecodeError::field("object type", "id", id)) }
    }

    /// The type with this number, without a check; for printing damaged pointers.
    pub fn from_id_unchecked(id: u8) -> ObjType {
        ObjType(id)
    }

    /// The number stored on disk.
    pub fn id(self) -> u8 {
        self.0
    }

    fn info(self) -> Option<&'static TypeInfo> {
        TYPES.get(usize::from(self.0))
    }

    /// True for metadata, which has more copies and always a checksum.
    pub fn is_metadata(self) -> bool {
        if self.0 & 0x80 != 0 { self.0 & 0x40 != 0 } else { self.info().is_some_and(|i| i.2) }
    }

    /// True if blocks of this type are encrypted, not only authenticated, in an encrypted object set.
    pub fn is_encrypted(self) -> bool {
        if self.0 & 0x80 != 0 { self.0 & 0x20 != 0 } else { self.info().is_some_and(|i| i.3) }
    }

    /// How the contents are byte-swapped.
    pub fn swap_class(self) -> SwapClass {
        if self.0 & 0x80 != 0 {
            CLASSES.get(usize::from(self.0 & 0x1f)).copied().unwrap_or(SwapClass::U8)
        } else {
            self.info().map_or(SwapClass::U8, |i| i.1)
        }
    }

    /// Whether objects of this type are ZAPs.
    pub fn is_zap(self) -> bool {
        self.swap_class() == SwapClass::Zap
    }
}

impl fmt::Display for ObjType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 & 0x80 == 0 {
            return f.write_str(self.info().map_or("unknown", |i| i.0));
        }
        let class = self.swap_class();
        let kind = if self.is_metadata() { "metadata" } else { "data" };
        let crypt = if self.is_encrypted() { " encrypted" } else { "" };
        write!(f, "bswap {class}{crypt} {kind}")
    }
}
