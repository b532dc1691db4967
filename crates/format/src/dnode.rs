//! Dnodes: 512 bytes or more that describe one object
//! (docs/on-disk/20-dmu.md, section 2).

use crate::blkptr::BLKPTR_SIZE;
use crate::ids::SwapClass;
use crate::units::{BlockId, SECTOR, SECTOR_SHIFT};
use crate::{BlockPtr, DecodeError, Endian, ObjType, znode};

/// Bytes of one dnode slot.
pub const SLOT_SIZE: usize = 512;
/// Size of a dnode before its pointers, in bytes.
pub const CORE_SIZE: usize = 64;
/// Number of dnode slots in a 16 KiB block.
pub const SLOTS_PER_BLOCK: usize = 32;

/// Flag: `used` is in bytes, not sectors.
pub const FLAG_USED_BYTES: u8 = 1;
/// Flag: counted in the space of user, group and project.
pub const FLAG_USERUSED_ACCOUNTED: u8 = 2;
/// Flag: the last 128 bytes are a spill pointer.
pub const FLAG_SPILL: u8 = 4;
/// Flag: counted in the number of objects of user, group and project.
pub const FLAG_USEROBJUSED_ACCOUNTED: u8 = 8;

/// A dnode, decoded: the description of one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dnode {
    /// Type of the object's data.
    pub obj_type: ObjType,
    /// Binary logarithm of the size of an indirect block in bytes.
    pub indblkshift: u8,
    /// Height of the tree; 1: the pointers refer to data.
    pub nlevels: u8,
    /// Type of the bonus; `NONE` if there is none.
    pub bonus_type: ObjType,
    /// Checksum id; 0: inherited.
    pub checksum: u8,
    /// Compression id; 0: inherited.
    pub compress: u8,
    /// The bits `FLAG_…` of the dnode.
    pub flags: u8,
    /// Data block size in sectors of 512.
    pub datablkszsec: u16,
    /// Number of valid bytes in the bonus.
    pub bonuslen: u16,
    /// Number of slots beyond the first.
    pub extra_slots: u8,
    /// Highest block number; 0 for an empty object too.
    pub maxblkid: BlockId,
    /// Space charged to the object, in the unit given by the flags.
    pub used_raw: u64,
    /// The top of the tree: one to three pointers.
    pub blkptrs: Vec<BlockPtr>,
    /// The whole bonus area, up to its capacity, in the block's byte order.
    pub bonus: Vec<u8>,
    /// Pointer to the spill block.
    pub spill: Option<BlockPtr>,
    /// Byte order of its block, and therefore of the bonus.
    pub order: Endian,
    /// The first 64 bytes as stored, because authentication covers unknown fields too.
    pub core: [u8; CORE_SIZE],
}

impl Dnode {
    /// Number of slots of the dnode at the start of `bytes`, without decoding it; 1 for a free slot.
    pub fn slots_at(bytes: &[u8]) -> usize {
        match bytes.first() {
            Some(0) | None => 1,
            Some(_) => usize::from(bytes.get(12).copied().unwrap_or(0)) + 1,
        }
    }

    /// Decodes the dnode at the start of `bytes`, which may be longer. `None`: a free slot.
    ///
    /// # Errors
    /// [`DecodeError::Short`]; [`DecodeError::Field`] names the first field that no dnode can have.
    pub fn decode(bytes: &[u8], order: Endian) -> Result<Option<Dnode>, DecodeError> {
        const WHAT: &str = "dnode";
        DecodeError::need(WHAT, SLOT_SIZE, bytes.len())?;
        let core: [u8; CORE_SIZE] =
            bytes[..CORE_SIZE].try_into().map_err(|_| DecodeError::invalid(WHAT, "short"))?;
        let bad = |field, value: u64| Err(DecodeError::field(WHAT, field, value));
        let [kind, indblkshift, nlevels, nblkptr, bonustype, checksum, compress, flags, ..] = core;
        if kind == 0 {
            return Ok(None);
        }
        let obj_type = ObjType::from_id(kind)?;
        let bonus_type = ObjType::from_id(bonustype)?;
        if !(1..=3).contains(&nblkptr) {
            return bad("nblkptr", nblkptr.into());
        }
        if !(1..=30).contains(&nlevels) {
            return bad("nlevels", nlevels.into());
        }
        if !(9..=17).contains(&indblkshift) {
            return bad("indblkshift", indblkshift.into());
        }
        let datablkszsec = order.u16(WHAT, bytes, 8)?;
        if !(1..=32768).contains(&datablkszsec) {
            return bad("datablkszsec", datablkszsec.into());
        }
        let bonuslen = order.u16(WHAT, bytes, 10)?;
        let extra_slots = core[12];
        if usize::from(extra_slots) >= SLOTS_PER_BLOCK {
            return bad("extra slots", extra_slots.into());
        }
        let size = SLOT_SIZE * (usize::from(extra_slots) + 1);
        DecodeError::need(WHAT, size, bytes.len())?;
        let has_spill = flags & FLAG_SPILL != 0;
        // OpenZFS 2.3 makes the dnode of a redaction list of many snapshots with three pointers and puts the spill pointer
        // over the third.
        let is_covered = has_spill && nblkptr == 3 && bonuslen == 0 && size == SLOT_SIZE;
        let nblkptr = if is_covered { 2 } else { nblkptr };
        let bonus_start = CORE_SIZE + BLKPTR_SIZE * usize::from(nblkptr);
        let bonus_end = if has_spill { size - BLKPTR_SIZE } else { size };
        if bonus_end < bonus_start || usize::from(bonuslen) > bonus_end - bonus_start {
            return bad("bonuslen", bonuslen.into());
        }
        let dnode = Dnode {
            obj_type,
            indblkshift,
            nlevels,
            bonus_type,
            checksum,
            compress,
            flags,
            datablkszsec,
            bonuslen,
            extra_slots,
            maxblkid: BlockId(order.u64(WHAT, bytes, 16)?),
            used_raw: order.u64(WHAT, bytes, 24)?,
            blkptrs: BlockPtr::decode_all(&bytes[CORE_SIZE..bonus_start], order).collect(),
            bonus: bytes[bonus_start..bonus_end].to_vec(),
            spill: if has_spill { Some(BlockPtr::decode(&bytes[bonus_end..size], order)?) } else { None },
            order,
            core,
        };
        dnode.check_tree()?;
        Ok(Some(dnode))
    }

    /// The stored bytes, whole slots.
    pub fn encode(&self) -> Vec<u8> {
        let order = self.order;
        let size = SLOT_SIZE * self.slots();
        let mut out = self.core.to_vec();
        out[0] = self.obj_type.id();
        out[1] = self.indblkshift;
        out[2] = self.nlevels;
        out[3] = self.blkptrs.len() as u8;
        out[4] = self.bonus_type.id();
        out[5] = self.checksum;
        out[6] = self.compress;
        out[7] = self.flags;
        out[8..10].copy_from_slice(&order.put_u16(self.datablkszsec));
        out[10..12].copy_from_slice(&order.put_u16(self.bonuslen));
        out[12] = self.extra_slots;
        out[16..24].copy_from_slice(&order.put_u64(self.maxblkid.0));
        out[24..32].copy_from_slice(&order.put_u64(self.used_raw));
        for bp in &self.blkptrs {
            out.extend_from_slice(&bp.encode(order));
        }
        out.extend_from_slice(&self.bonus);
        if let Some(spill) = &self.spill {
            out.extend_from_slice(&spill.encode(order));
        }
        out.resize(size, 0);
        out
    }

    /// The same dnode in little-endian order, bonus included. `None`: the layout of its bonus is not known.
    /// Attributes (`SA`) are unchanged, because they have a byte order of their own.
    pub fn into_little(mut self) -> Option<Dnode> {
        if self.order == Endian::Little {
            return Some(self);
        }
        match self.bonus_type.swap_class() {
            _ if self.bonuslen == 0 => {}
            SwapClass::U8 => {}
            SwapClass::U64 => self.bonus.chunks_exact_mut(8).for_each(<[u8]>::reverse),
            SwapClass::Znode => znode::swap_bytes(&mut self.bonus, self.order),
            _ => return None,
        }
        self.order = Endian::Little;
        Some(self)
    }

    fn check_tree(&self) -> Result<(), DecodeError> {
        let shift = self.epbs() * u32::from(self.nlevels - 1);
        let top = if shift >= 64 { 0 } else { self.maxblkid.0 >> shift };
        if top >= self.blkptrs.len() as u64 {
            return Err(DecodeError::field("dnode", "maxblkid", self.maxblkid.0));
        }
        // The end of the object is a 64-bit byte offset.
        let blocks = self.maxblkid.0.checked_add(1);
        if blocks.and_then(|blocks| blocks.checked_mul(self.data_block_size().max(1))).is_none() {
            return Err(DecodeError::field("dnode", "maxblkid", self.maxblkid.0));
        }
        if self.maxblkid.0 > 0 && !self.data_block_size().is_power_of_two() {
            return Err(DecodeError::field("dnode", "datablkszsec", self.datablkszsec));
        }
        Ok(())
    }

    /// Number of 512-byte slots.
    pub fn slots(&self) -> usize {
        usize::from(self.extra_slots) + 1
    }

    /// Size of a data block in bytes.
    pub fn data_block_size(&self) -> u64 {
        u64::from(self.datablkszsec) << SECTOR_SHIFT
    }

    /// Size of an indirect block in bytes.
    pub fn indirect_size(&self) -> u64 {
        1 << self.indblkshift
    }

    /// Binary logarithm of the number of pointers in an indirect block.
    pub fn epbs(&self) -> u32 {
        u32::from(self.indblkshift) - BLKPTR_SIZE.trailing_zeros()
    }

    /// Bytes of space charged to the object.
    pub fn used_bytes(&self) -> u64 {
        if self.flags & FLAG_USED_BYTES != 0 { self.used_raw } else { self.used_raw.saturating_mul(SECTOR) }
    }

    /// The valid part of the bonus.
    pub fn valid_bonus(&self) -> &[u8] {
        self.bonus.get(..usize::from(self.bonuslen)).unwrap_or(&[])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bonus_of_words_is_turned_with_its_dnode() {
        let mut raw = [0; SLOT_SIZE];
        raw[..5].copy_from_slice(&[ObjType::DSL_DIR.id(), 17, 1, 1, ObjType::DSL_DIR.id()]);
        raw[8..12].copy_from_slice(&[0, 1, 0, 16]);
        raw[CORE_SIZE + BLKPTR_SIZE + 7] = 32;
        let dnode = Dnode::decode(&raw, Endian::Big).unwrap().unwrap();
        let little = dnode.into_little().unwrap();
        assert_eq!(
            (little.order, little.datablkszsec, &little.bonus[..8]),
            (Endian::Little, 1, &[32, 0, 0, 0, 0, 0, 0, 0][..])
        );
        assert_eq!(Dnode::decode(&little.encode(), Endian::Little).unwrap().unwrap().bonus, little.bonus);
        // System attributes have their own byte order; the format does not define a swapped bonus for a ZAP.
        raw[4] = ObjType::SA.id();
        assert_eq!(Dnode::decode(&raw, Endian::Big).unwrap().unwrap().into_little().unwrap().bonus[7], 32);
        raw[4] = ObjType::DIRECTORY.id();
        assert_eq!(Dnode::decode(&raw, Endian::Big).unwrap().unwrap().into_little(), None);
    }
}
