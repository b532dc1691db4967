//! What a new object is like.

use crate::object::cell::Header;
use format::ObjType;
use format::dnode::{CORE_SIZE, SLOT_SIZE, SLOTS_PER_BLOCK};

/// Smallest and largest indirect blocks, as powers of two.
const INDIRECT_SHIFTS: std::ops::RangeInclusive<u8> = 12..=17;

/// What the sender of an encrypted object says of its dnode: all of it is authenticated, so it is kept exactly.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RawShape {
    /// Height of the block tree.
    pub levels: u8,
    /// The highest block number.
    pub max_block: u64,
    /// The bytes of the bonus area after the bonus.
    pub bonus_tail: Vec<u8>,
}

/// Description of a new object.
#[derive(Debug, Clone)]
pub struct NewObject {
    /// Type of the object's data.
    pub obj_type: ObjType,
    /// Bytes of a data block, a multiple of 512; 0: 512.
    pub block_size: u64,
    /// log2 of an indirect block; 0: 17.
    pub indirect_shift: u8,
    /// Type of the bonus.
    pub bonus_type: ObjType,
    /// Contents of the bonus.
    pub bonus: Vec<u8>,
    /// Size of the dnode, 1 to 32 slots of 512 bytes.
    pub slots: u8,
    /// Number of block pointers, 1 to 3; 0: as many as the bonus leaves room for.
    pub block_pointers: u8,
    /// Checksum id of its blocks; 0: that of the set.
    pub checksum: u8,
    /// Compression id of its blocks; 0: that of the set.
    pub compress: u8,
    /// Of an object of an encrypted set that is received without the key.
    pub raw: Option<RawShape>,
}

impl NewObject {
    /// An object of this type without a bonus, with blocks of 512 bytes that grow if possible.
    pub fn of(obj_type: ObjType) -> NewObject {
        NewObject {
            obj_type,
            block_size: 0,
            indirect_shift: 0,
            bonus_type: ObjType::NONE,
            bonus: Vec::new(),
            slots: 1,
            block_pointers: 0,
            checksum: 0,
            compress: 0,
            raw: None,
        }
    }

    /// Sets the bonus.
    pub fn with_bonus(mut self, bonus_type: ObjType, bonus: Vec<u8>) -> NewObject {
        (self.bonus_type, self.bonus) = (bonus_type, bonus);
        self
    }

    /// Sets the block size.
    pub fn with_block_size(mut self, bytes: u64) -> NewObject {
        self.block_size = bytes;
        self
    }

    /// The header of such an object, which has no data yet.
    pub(crate) fn header(&self) -> Header {
        let slots = self.slots.clamp(1, SLOTS_PER_BLOCK as u8);
        let room = 320 + SLOT_SIZE * (usize::from(slots) - 1);
        assert!(self.bonus.len() <= room, "a bonus of {} bytes in {slots} slots", self.bonus.len());
        let nblkptr = match self.bonus_type {
            _ if self.block_pointers != 0 => usize::from(self.block_pointers.min(3)),
            ObjType::SA => 1,
            _ => (1 + (room - self.bonus.len()) / 128).min(3),
        };
        let shift = if self.indirect_shift == 0 { 17 } else { self.indirect_shift };
        let sectors = self.block_size.div_ceil(512).max(1);
        let raw = self.raw.clone().unwrap_or_default();
        Header {
            obj_type: self.obj_type,
            bonus_type: self.bonus_type,
            indblkshift: shift.clamp(*INDIRECT_SHIFTS.start(), *INDIRECT_SHIFTS.end()),
            nblkptr: nblkptr as u8,
            checksum: self.checksum,
            compress: self.compress,
            flags: 0,
            extra_slots: slots - 1,
            datablkszsec: u16::try_from(sectors).expect("a block size of at most 16 MiB"),
            maxblkid: raw.max_block,
            bonus: self.bonus.clone(),
            bonus_tail: raw.bonus_tail,
            levels: raw.levels.max(1),
            has_spill: false,
            core: [0; CORE_SIZE],
        }
    }
}
