//! Records about whole objects: dnodes, and numbers without an object.

use super::{Applied, Applier, ApplyError};
use dmu::{DmuError, LiveObject, NewObject, Tx};
use format::dnode::{CORE_SIZE, SLOT_SIZE, SLOTS_PER_BLOCK};
use format::sa::SA_MAGIC;
use format::stream::{Object, feature, flag};
use format::swap::contents_to_little;
use format::units::SECTOR;
use format::{ChecksumId, CompressionId, Endian, ObjType, ObjectId};

/// Bytes of the bonus of a dnode of one slot.
const OLD_BONUS: u32 = 320;
/// Bytes of a block pointer.
const POINTER: u32 = 128;

impl Applier {
    /// Creates an object, or makes an existing one like the record.
    pub(super) fn object(&mut self, record: &Object, payload: &[u8], tx: &Tx) -> Result<Applied, ApplyError> {
        let new = self.checked(record, payload)?;
        let id = record.object;
        let has_spill = record.flags & flag::HAS_SPILL != 0 || !self.tells_spills;
        let applied = match self.set.object(id) {
            Ok(object) if object.slots() == new.slots && self.raw.is_some() => {
                self.reclaim_raw(&object, &new, has_spill, tx)
            }
            Ok(object) if object.slots() == new.slots => self.reclaim(&object, new, has_spill, tx),
            Ok(_) => {
                self.set.free(id, tx)?;
                self.claim(id, &new, tx)
            }
            Err(DmuError::NoObject { .. }) => self.claim(id, &new, tx),
            Err(error) => Err(error.into()),
        }?;
        if matches!(applied, Applied::Done) {
            self.highest = self.highest.max(id);
            self.protect();
            if record.slots > 1 {
                self.head.use_feature("large_dnode");
            }
        }
        Ok(applied)
    }

    /// Checks the fields of a record.
    fn checked(&self, record: &Object, payload: &[u8]) -> Result<NewObject, ApplyError> {
        let id = record.object.0;
        if id == 0 || id >= ObjectId::LIMIT || record.object < self.last.0 {
            return Err(self.invalid("an object of no permitted number"));
        }
        let slots = record.slots.max(1);
        let within = id % SLOTS_PER_BLOCK as u64 + u64::from(slots);
        let is_large = self.features & feature::LARGE_DNODE != 0;
        if within > SLOTS_PER_BLOCK as u64 || (slots > 1 && !is_large) {
            return Err(self.invalid("a dnode of more slots than there are"));
        }
        let block_size = u64::from(record.block_size);
        if block_size == 0 || !block_size.is_multiple_of(SECTOR) || block_size > self.max_block {
            return Err(self.invalid("an object of no permitted block size"));
        }
        let kind = |id: u32| u8::try_from(id).ok().and_then(|id| ObjType::from_id(id).ok());
        let (Some(obj_type), Some(bonus_type)) = (kind(record.kind), kind(record.bonus_kind)) else {
            return Err(self.invalid("an object of an unknown type"));
        };
        if obj_type == ObjType::NONE || obj_type == ObjType::DNODE || obj_type == ObjType::OBJSET {
            return Err(self.invalid("an object of a type that no object has"));
        }
        let checksum = ChecksumId::from_id(record.checksum_type);
        let compression = CompressionId::from_id(record.compress);
        if checksum.is_err() || compression.is_err() {
            return Err(self.invalid("an object with an unknown algorithm"));
        }
        let bonus_len = record.bonus_len;
        let pointers = match bonus_type {
            ObjType::SA => 1,
            _ => 1 + (OLD_BONUS - bonus_len.min(OLD_BONUS)) / POINTER,
        };
        let room = SLOT_SIZE * usize::from(slots) - CORE_SIZE - (pointers * POINTER) as usize;
        let bonus = payload.get(..bonus_len as usize).filter(|bonus| bonus.len() <= room);
        let Some(bonus) = bonus else {
            return Err(self.invalid("a bonus that its dnode has no room for"));
        };
        let bonus = match self.is_turned(bonus_type) {
            true => contents_to_little(bonus_type, bonus.to_vec()),
            false => bonus.to_vec(),
        };
        let new = NewObject {
            obj_type,
            block_size,
            indirect_shift: 0,
            bonus_type,
            bonus,
            slots,
            block_pointers: pointers as u8,
            checksum: record.checksum_type,
            compress: record.compress,
            raw: None,
        };
        if self.raw.is_some() { self.checked_raw(record, payload, new) } else { Ok(new) }
    }

    /// Makes an existing object, whose dnode has as many slots, like a record.
    fn reclaim(
        &self,
        object: &LiveObject,
        mut new: NewObject,
        keeps_spill: bool,
        tx: &Tx,
    ) -> Result<Applied, ApplyError> {
        if object.block_size() != new.block_size && self.keeps_block_size(object, &new) {
            if new.block_size < object.block_size() {
                return Err(self.invalid("an object whose blocks have become smaller"));
            }
            new.block_size = object.block_size();
        }
        match object.reclaim(&new, keeps_spill, tx) {
            Ok(_) => Ok(Applied::Done),
            Err(DmuError::Shape { why, .. }) => Err(self.invalid(why)),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether a file of several blocks is the same as before, and only its sender has begun to send large blocks: an
    /// increment has only the blocks that have changed.
    fn keeps_block_size(&self, object: &LiveObject, new: &NewObject) -> bool {
        let generation = object.with_bonus(|bonus| generation_of(new.bonus_type, bonus));
        self.is_increment
            && new.obj_type == ObjType::PLAIN_FILE
            && object.max_block().0 > 0
            && generation.is_some()
            && generation == generation_of(new.bonus_type, &new.bonus)
    }

    /// Creates an object. Objects in its further slots are freed.
    fn claim(&self, id: ObjectId, new: &NewObject, tx: &Tx) -> Result<Applied, ApplyError> {
        for slot in 1..u64::from(new.slots) {
            match self.set.free(ObjectId(id.0 + slot), tx) {
                Ok(()) | Err(DmuError::NoObject { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        match self.set.claim(id, new, tx) {
            Ok(_) => Ok(Applied::Done),
            // It lies within the dnode of an object that a stream in order would have freed, or was freed just now.
            Err(DmuError::ObjectExists { .. }) => self.blocked(id),
            Err(error) => Err(error.into()),
        }
    }

    /// A number that is not free: an error, unless it is being freed.
    fn blocked(&self, id: ObjectId) -> Result<Applied, ApplyError> {
        let first = id.0 - id.0 % SLOTS_PER_BLOCK as u64;
        for before in first.max(1)..id.0 {
            if let Ok(object) = self.set.object(ObjectId(before))
                && before + u64::from(object.slots()) > id.0
            {
                return Err(self.invalid("an object within the dnode of another"));
            }
        }
        Ok(Applied::NeedsSync)
    }

    /// Frees all objects of a range of numbers.
    pub(super) fn free_objects(&self, first: ObjectId, count: u64, tx: &Tx) -> Result<(), ApplyError> {
        let end = first.0.saturating_add(count).min(ObjectId::LIMIT);
        let mut from = first.0.max(1);
        while from < end {
            let Some(object) = self.view.next_object(ObjectId(from))? else { break };
            if object.id().0 >= end {
                break;
            }
            self.set.free(object.id(), tx)?;
            from = object.id().0 + 1;
        }
        Ok(())
    }
}

/// Byte of the generation among the attributes that a file system puts first.
const SA_GENERATION: usize = 16;
/// Byte of the generation in a znode of the time before system attributes.
const ZNODE_GENERATION: usize = 64;

/// The txg in which a file was made, from its bonus; `None`: it has none.
fn generation_of(bonus_type: ObjType, bonus: &[u8]) -> Option<u64> {
    if bonus_type == ObjType::ZNODE {
        return Endian::Little.get_u64(bonus, ZNODE_GENERATION);
    }
    // Attributes have a byte order of their own.
    let orders = [Endian::Little, Endian::Big];
    let order = orders.into_iter().find(|order| order.get_u32(bonus, 0) == Some(SA_MAGIC))?;
    // The upper six bits of the layout number are the length of the header in units of 8 bytes.
    let layout = order.get_u16(bonus, 4).filter(|_| bonus_type == ObjType::SA)?;
    order.get_u64(bonus, usize::from(layout >> 10) * 8 + SA_GENERATION)
}
