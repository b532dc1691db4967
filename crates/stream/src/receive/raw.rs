//! Records of raw streams: blocks and dnodes of encrypted datasets, which stay as their sender has them
//! (docs/on-disk/31-encryption.md, section 13).
//!
//! # What always holds
//! - A dnode comes after the record of its range, which says how their block is protected.
//! - Every size and number of a dnode is checked before it is taken over: it will be on disk as it is.

use super::write::{OFFSET_MAX, SPILL_MAX};
use super::{Applied, Applier, ApplyError};
use dmu::{DmuError, LiveObject, NewObject, RawBlock, RawForm, RawShape, Tx};
use format::blkptr::CryptParams;
use format::dnode::{CORE_SIZE, SLOT_SIZE, SLOTS_PER_BLOCK};
use format::stream::{Free, Object, ObjectRange, Spill, Write, feature, flag};
use format::{BlockId, CompressionId, ObjType};
use std::sync::Arc;

/// Bytes of a block pointer.
const POINTER: usize = 128;
/// Sizes of indirect blocks, as powers of two.
const INDIRECT_SHIFTS: std::ops::RangeInclusive<u8> = 12..=17;
/// Greatest height of a tree: that of the smallest indirect blocks over all offsets.
const LEVELS_MAX: u8 = 12;

/// How a block of dnodes is protected.
#[derive(Debug, Clone, Copy)]
pub(super) struct Range {
    /// The block.
    block: u64,
    params: CryptParams,
}

impl Applier {
    /// Begins a range of dnodes: those of one block.
    pub(super) fn object_range(&mut self, record: &ObjectRange) -> Result<(), ApplyError> {
        let slots = SLOTS_PER_BLOCK as u64;
        let first = record.first.0;
        let Some(raw) = self.raw else {
            return Err(self.invalid("a range of dnodes in a stream that is not raw"));
        };
        if record.slots != slots || !first.is_multiple_of(slots) {
            return Err(self.invalid("a range of dnodes that is not one block"));
        }
        if first / slots > raw.max_block || first / slots < self.last.0.0 / slots {
            return Err(self.invalid("a range of dnodes out of order, or beyond the last"));
        }
        self.check_order(record.flags)?;
        let params = CryptParams { salt: record.salt, iv: record.iv, mac: record.mac };
        self.range = Some(Range { block: first / slots, params });
        Ok(())
    }

    /// Goes on with the range in which an earlier receive has stopped: a sender need not repeat its record.
    pub(super) fn resume_range(&mut self) -> Result<(), ApplyError> {
        let block = self.last.0.0 / SLOTS_PER_BLOCK as u64;
        self.range = self.set.dnode_params(block)?.map(|params| Range { block, params });
        Ok(())
    }

    /// Checks what only a raw stream has of an object, and adds it to its description.
    pub(super) fn checked_raw(
        &self,
        record: &Object,
        payload: &[u8],
        mut new: NewObject,
    ) -> Result<NewObject, ApplyError> {
        if self.range.is_none_or(|range| range.block != record.object.0 / SLOTS_PER_BLOCK as u64) {
            return Err(self.invalid("an object outside its range"));
        }
        self.check_order(record.flags)?;
        self.check_tree(record, new.block_size)?;
        let pointers = usize::from(record.block_pointers);
        let area = SLOT_SIZE * usize::from(new.slots) - CORE_SIZE - POINTER * pointers;
        let (bonus, tail) = match payload.split_at_checked(record.bonus_len as usize) {
            Some(parts) if payload.len() <= area => parts,
            _ => return Err(self.invalid("a bonus that its dnode has no room for")),
        };
        (new.bonus, new.block_pointers) = (bonus.to_vec(), record.block_pointers);
        new.indirect_shift = record.indirect_shift;
        let bonus_tail = if tail.iter().all(|byte| *byte == 0) { Vec::new() } else { tail.to_vec() };
        new.raw = Some(RawShape { levels: record.levels, max_block: record.max_block, bonus_tail });
        Ok(new)
    }

    /// Checks the shape of a block tree.
    fn check_tree(&self, record: &Object, block_size: u64) -> Result<(), ApplyError> {
        let (levels, max) = (record.levels, record.max_block);
        let is_shape = INDIRECT_SHIFTS.contains(&record.indirect_shift)
            && (1..=LEVELS_MAX).contains(&levels)
            && (1..=3).contains(&record.block_pointers);
        if !is_shape {
            return Err(self.invalid("an object whose tree has an impossible shape"));
        }
        let above = u32::from(record.indirect_shift - 7) * u32::from(levels - 1);
        let is_reached = max.checked_shr(above).unwrap_or(0) < u64::from(record.block_pointers);
        let end = max.checked_add(1).and_then(|blocks| blocks.checked_mul(block_size));
        let is_end = end.is_some_and(|end| end <= OFFSET_MAX);
        if !is_reached || !is_end || (max > 0 && !block_size.is_power_of_two()) {
            return Err(self.invalid("an object whose last block is beyond its tree"));
        }
        Ok(())
    }

    /// Makes an existing object, whose dnode has as many slots, exactly like a record.
    pub(super) fn reclaim_raw(
        &self,
        object: &LiveObject,
        new: &NewObject,
        keeps_spill: bool,
        tx: &Tx,
    ) -> Result<Applied, ApplyError> {
        self.shaped(object.reclaim_raw(new, keeps_spill, tx))?;
        Ok(Applied::Done)
    }

    /// Protects the block of a dnode as its range says.
    pub(super) fn protect(&self) {
        if let Some(range) = self.range {
            self.set.protect_dnodes(range.block, range.params);
        }
    }

    /// Writes a block as it is.
    pub(super) fn write_raw(
        &mut self,
        record: &Write,
        payload: &mut Vec<u8>,
        tx: &Tx,
    ) -> Result<(), ApplyError> {
        self.check_order(record.flags)?;
        self.check_range(record.offset, record.logical_size, self.max_block)?;
        self.in_order(record.object, record.offset)?;
        let object = self.existing(record.object)?;
        let size = object.block_size();
        if record.kind != u32::from(object.obj_type().id()) || !record.offset.is_multiple_of(size) {
            return Err(self.invalid("a block that does not fit its object"));
        }
        let form = RawForm {
            lsize: record.logical_size,
            compression: self.stored_compression(record.compression)?,
            params: CryptParams { salt: record.salt, iv: record.iv, mac: record.mac },
        };
        let block = RawBlock { bytes: Arc::new(std::mem::take(payload)), form };
        self.shaped(object.put_raw(BlockId(record.offset / size), block, tx))
    }

    /// Writes a spill block as it is.
    pub(super) fn spill_raw(&self, record: &Spill, payload: &mut Vec<u8>, tx: &Tx) -> Result<(), ApplyError> {
        self.check_order(record.flags)?;
        self.check_range(0, record.length, SPILL_MAX)?;
        let object = self.existing(record.object)?;
        if record.flags & flag::UNMODIFIED != 0 && object.has_spill() {
            return Ok(());
        }
        // OpenZFS 2.3 leaves the type out.
        let is_type = [0, u32::from(ObjType::SA.id())].contains(&record.kind);
        if !is_type || object.bonus_type() != ObjType::SA {
            return Err(self.invalid("a spill block that does not fit its object"));
        }
        let form = RawForm {
            lsize: record.length,
            compression: self.stored_compression(record.compression)?,
            params: CryptParams { salt: record.salt, iv: record.iv, mac: record.mac },
        };
        let block = RawBlock { bytes: Arc::new(std::mem::take(payload)), form };
        self.shaped(object.set_raw_spill(block, tx))
    }

    /// Makes blocks holes: whole blocks only, because what is left of one could not be encrypted.
    pub(super) fn free_raw(&self, record: &Free, tx: &Tx) -> Result<(), ApplyError> {
        let object = self.existing(record.object)?;
        let size = object.block_size();
        let end = match record.length {
            u64::MAX => u64::MAX,
            length => match record.offset.checked_add(length) {
                Some(end) if end.is_multiple_of(size) => end / size,
                _ => return Err(self.invalid("a hole that is not of whole blocks")),
            },
        };
        if !record.offset.is_multiple_of(size) {
            return Err(self.invalid("a hole that is not of whole blocks"));
        }
        object.free_blocks(record.offset / size..end, tx);
        Ok(())
    }

    /// What is encrypted cannot be turned into the byte order in which blocks are written.
    fn check_order(&self, flags: u8) -> Result<(), ApplyError> {
        if flags & flag::BYTE_SWAP == 0 {
            return Ok(());
        }
        Err(self.invalid("encrypted blocks or dnodes in the other byte order, which cannot be written"))
    }

    /// The algorithm of a stored block; one that the stream announces if the pool may lack it.
    fn stored_compression(&self, id: u8) -> Result<CompressionId, ApplyError> {
        match self.algorithm(id)? {
            CompressionId::Zstd if self.features & feature::ZSTD == 0 => {
                Err(self.invalid("a block compressed by zstd in a stream without that feature"))
            }
            id => Ok(id),
        }
    }

    fn shaped<T>(&self, result: Result<T, DmuError>) -> Result<T, ApplyError> {
        match result {
            Err(DmuError::Shape { why, .. }) => Err(self.invalid(why)),
            result => Ok(result?),
        }
    }
}
