//! Units and ids as types that cannot be mixed: sizes before and after compression, offsets on a device and in its
//! allocatable space, object and vdev numbers, transaction groups.

use std::fmt;

/// Binary logarithm of the unit of sizes in block pointers, in bytes.
pub const SECTOR_SHIFT: u32 = 9;
/// The unit of sizes in block pointers, in bytes.
pub const SECTOR: u64 = 1 << SECTOR_SHIFT;
/// Size in bytes of the area at the front of each leaf with labels 0 and 1 and the boot area.
pub const LABEL_START: u64 = 0x40_0000;
/// Size in bytes of the area at the end of each leaf with labels 2 and 3.
pub const LABEL_END: u64 = 0x8_0000;
/// Maximum size of a block in bytes: 16 MiB.
pub const MAX_BLOCK: u64 = 1 << 24;
/// Bytes of the largest block without the feature `large_blocks`.
pub const OLD_MAX_BLOCK: u64 = 128 << 10;

macro_rules! unit {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub $inner);
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { fmt::Display::fmt(&self.0, f) }
        }
        impl From<$name> for $inner { fn from(x: $name) -> $inner { x.0 } }
    };
}

unit!(/// Bytes of a block before compression.
    Lsize(u64));
unit!(/// Bytes of a block after compression and encryption, as checksummed.
    Psize(u64));
unit!(/// Bytes that a block takes on its vdev, parity and padding included.
    Asize(u64));
unit!(/// Byte offset in a vdev's allocatable space (starts after the front labels on a leaf).
    AllocOffset(u64));
unit!(/// Byte offset on a device.
    DeviceOffset(u64));
unit!(/// Index of a top-level vdev: what a DVA names.
    VdevId(u32));
unit!(/// Random identity of a vdev.
    VdevGuid(u64));
unit!(/// Random identity of a pool.
    PoolGuid(u64));
unit!(/// Number of a transaction group.
    Txg(u64));
unit!(/// Number of an object in its object set; the inode number of a file.
    ObjectId(u64));
unit!(/// Number of a block in its object, at some level.
    BlockId(u64));
unit!(/// Height in a block tree: 0 is data.
    Level(u8));
unit!(/// log2 of the allocation sector of a top-level vdev, 9 to 16.
    Ashift(u8));

impl AllocOffset {
    /// The offset on the device. The front labels are added only here.
    pub fn on_device(self) -> DeviceOffset {
        DeviceOffset(self.0.saturating_add(LABEL_START))
    }
}

impl Ashift {
    /// Size of an allocation sector in bytes.
    pub fn sector(self) -> u64 {
        1 << self.0
    }
}

impl ObjectId {
    /// The accounting object of space by user.
    pub const USER_USED: ObjectId = ObjectId(u64::MAX);
    /// The accounting object of space by group.
    pub const GROUP_USED: ObjectId = ObjectId(u64::MAX - 1);
    /// The accounting object of space by project.
    pub const PROJECT_USED: ObjectId = ObjectId(u64::MAX - 2);
    /// Exclusive upper bound of the ids of ordinary objects.
    pub const LIMIT: u64 = 1 << 48;
}

/// The four words of a block's checksum, as stored in words 12 to 15 of its pointer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Checksum(pub [u64; 4]);

impl fmt::Display for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d] = self.0;
        write!(f, "{a:016x}:{b:016x}:{c:016x}:{d:016x}")
    }
}

impl fmt::Debug for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
