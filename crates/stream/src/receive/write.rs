//! Records about the contents of objects: blocks, holes, spill blocks.

use super::{Applied, Applier, ApplyError};
use codec::compress::decompress;
use dmu::{DmuError, LiveObject, StoredForm, Tx};
use format::stream::{Free, Spill, Write, WriteEmbedded, flag};
use format::swap::contents_to_little;
use format::units::{MAX_BLOCK, SECTOR};
use format::{BlockId, BlockPtr, CompressionId, Lsize, ObjType, ObjectId};

/// Largest spill block in bytes.
pub(super) const SPILL_MAX: u64 = 128 << 10;
/// Most blocks of a redacted range, and of the part of it that is marked in one transaction.
const REDACTED_MAX: u64 = 1 << 32;
const REDACTED_STEP: u64 = 4096;
/// Largest offset in an object.
pub(super) const OFFSET_MAX: u64 = 1 << 63;

impl Applier {
    /// The object of a record, which must exist.
    pub(super) fn existing(&self, id: ObjectId) -> Result<LiveObject, ApplyError> {
        if id.0 == 0 || id.0 >= ObjectId::LIMIT {
            return Err(self.invalid("an object of no permitted number"));
        }
        match self.set.object(id) {
            Ok(object) => Ok(object),
            Err(DmuError::NoObject { .. }) => Err(self.invalid("a record of an object that does not exist")),
            Err(error) => Err(error.into()),
        }
    }

    /// Notes the place of a block; blocks come in order.
    pub(super) fn in_order(&mut self, object: ObjectId, offset: u64) -> Result<(), ApplyError> {
        if (object, offset) < self.last {
            return Err(self.invalid("blocks out of order"));
        }
        self.last = (object, offset);
        self.highest = self.highest.max(object);
        Ok(())
    }

    pub(super) fn check_range(&self, offset: u64, size: u64, max: u64) -> Result<(), ApplyError> {
        let is_size = size != 0 && size.is_multiple_of(SECTOR) && size <= max;
        let is_range =
            offset.is_multiple_of(SECTOR) && offset.checked_add(size).is_some_and(|end| end < OFFSET_MAX);
        if is_size && is_range { Ok(()) } else { Err(self.invalid("a block of no permitted size or place")) }
    }

    /// Writes a block.
    pub(super) fn write(&mut self, record: &Write, payload: &mut Vec<u8>, tx: &Tx) -> Result<(), ApplyError> {
        self.check_range(record.offset, record.logical_size, self.max_block)?;
        self.in_order(record.object, record.offset)?;
        let object = self.existing(record.object)?;
        let compression = match record.compression {
            0 => CompressionId::Off,
            id => self.algorithm(id)?,
        };
        if compression == CompressionId::Off {
            if payload.len() as u64 != record.logical_size {
                return Err(self.invalid("a block of another size than its record says"));
            }
            let bytes = self.to_little(object.obj_type(), std::mem::take(payload));
            return self.put(&object, record.offset, bytes, None, tx);
        }
        let bytes = self.decompressed(compression, payload, record.logical_size)?;
        let form = StoredForm { compression, bytes: std::mem::take(payload), is_embedded: false };
        let form = Some(form).filter(|_| !self.is_turned(object.obj_type()));
        self.put(&object, record.offset, self.to_little(object.obj_type(), bytes), form, tx)
    }

    /// Writes a block that its sender has embedded in the pointer.
    pub(super) fn write_embedded(
        &mut self,
        record: &WriteEmbedded,
        payload: &[u8],
        tx: &Tx,
    ) -> Result<(), ApplyError> {
        // OpenZFS sends an embedded spill block like this, and its receivers lose it.
        let is_spill = record.offset == (record.length.wrapping_mul(2)).wrapping_neg();
        // A block that is embedded at the sender may be larger than those of the stream.
        self.check_range(if is_spill { 0 } else { record.offset }, record.length, MAX_BLOCK)?;
        if !is_spill {
            self.in_order(record.object, record.offset)?;
        }
        if record.embedded_kind != 0 || u64::from(record.lsize) > record.length || record.lsize == 0 {
            return Err(self.invalid("an embedded block of an unknown kind or size"));
        }
        let object = self.existing(record.object)?;
        let compression = self.algorithm(record.compression)?;
        let Some(stored) = payload.get(..record.psize as usize) else {
            return Err(self.invalid("an embedded block of another size than its record says"));
        };
        let mut bytes = self.decompressed(compression, stored, record.lsize.into())?;
        let is_whole = bytes.len() as u64 == record.length;
        bytes.resize(record.length as usize, 0);
        if is_spill {
            return self.put_spill(&object, bytes, tx);
        }
        let form = StoredForm { compression, bytes: stored.to_vec(), is_embedded: true };
        let keeps_form = is_whole && !self.is_turned(object.obj_type());
        let bytes = self.to_little(object.obj_type(), bytes);
        self.put(&object, record.offset, bytes, keeps_form.then_some(form), tx)
    }

    /// Contents of a block as a little-endian sender has them. The form in which they were stored is then another.
    fn to_little(&self, kind: ObjType, bytes: Vec<u8>) -> Vec<u8> {
        if self.is_turned(kind) { contents_to_little(kind, bytes) } else { bytes }
    }

    pub(super) fn algorithm(&self, id: u8) -> Result<CompressionId, ApplyError> {
        match CompressionId::from_id(id) {
            Ok(id) if !matches!(id, CompressionId::Inherit | CompressionId::On | CompressionId::Empty) => {
                Ok(id)
            }
            _ => Err(self.invalid("a block of an unknown compression")),
        }
    }

    fn decompressed(&self, id: CompressionId, stored: &[u8], size: u64) -> Result<Vec<u8>, ApplyError> {
        let mut bytes = vec![0; size as usize];
        match decompress(id, stored, &mut bytes) {
            Ok(()) => Ok(bytes),
            Err(_) => Err(self.invalid("a block that cannot be decompressed")),
        }
    }

    /// Writes bytes: as a whole block, in its stored form if that fits the object, or as a part of blocks.
    fn put(
        &self,
        object: &LiveObject,
        offset: u64,
        bytes: Vec<u8>,
        form: Option<StoredForm>,
        tx: &Tx,
    ) -> Result<(), ApplyError> {
        let size = object.block_size();
        let is_block = bytes.len() as u64 == size && offset.is_multiple_of(size);
        let blkid = BlockId(offset / size);
        let put = match form.filter(|form| fits(form, size)) {
            _ if !is_block => object.write_at(offset, &bytes, tx),
            Some(form) => object.put_stored(blkid, bytes, form, tx),
            None if blkid.0 > 0 && !size.is_power_of_two() => {
                return Err(self.invalid("a second block, and the first is not of a power of two"));
            }
            None => object.put_block(blkid, bytes, tx),
        };
        match put {
            Err(DmuError::Shape { why, .. }) => Err(self.invalid(why)),
            put => Ok(put?),
        }
    }

    /// Marks a range of an object as left out of the stream: reading it is an error.
    pub(super) fn redact(&mut self, record: &Free, tx: &Tx) -> Result<Applied, ApplyError> {
        let object = self.existing(record.object)?;
        let size = object.block_size();
        let (first, count) = (record.offset / size, record.length.div_ceil(size));
        let is_range = record.offset.is_multiple_of(size)
            && record.length != 0
            && record.offset.checked_add(record.length).is_some_and(|end| end < OFFSET_MAX)
            && count <= REDACTED_MAX;
        if !is_range {
            return Err(self.invalid("a redacted range that no object can have"));
        }
        let done = self.redacted;
        let next = count.min(done + REDACTED_STEP);
        for blkid in first + done..first + next {
            let bp = BlockPtr::redacted(object.obj_type(), Lsize(size), dmu::AllocTx::txg(tx));
            object.assign_block(BlockId(blkid), bp, tx);
        }
        self.redacted = if next < count { next } else { 0 };
        Ok(if next < count { Applied::InPart } else { Applied::Done })
    }

    /// Makes a range of an object a hole.
    pub(super) fn free(&self, record: &Free, tx: &Tx) -> Result<(), ApplyError> {
        let object = self.existing(record.object)?;
        if record.length != u64::MAX && record.offset.checked_add(record.length).is_none() {
            return Err(self.invalid("a range beyond the largest offset"));
        }
        Ok(object.free_range(record.offset, record.length, tx)?)
    }

    /// Writes a spill block.
    pub(super) fn spill(&self, record: &Spill, payload: &mut Vec<u8>, tx: &Tx) -> Result<(), ApplyError> {
        let size = record.length;
        if size == 0 || !size.is_multiple_of(SECTOR) || size > SPILL_MAX || payload.len() as u64 != size {
            return Err(self.invalid("a spill block of no permitted size"));
        }
        let object = self.existing(record.object)?;
        if record.flags & flag::UNMODIFIED != 0 && self.tells_spills && object.has_spill() {
            return Ok(());
        }
        self.put_spill(&object, std::mem::take(payload), tx)
    }

    fn put_spill(&self, object: &LiveObject, bytes: Vec<u8>, tx: &Tx) -> Result<(), ApplyError> {
        if bytes.len() as u64 > SPILL_MAX || !object.has_spill_room() {
            return Err(self.invalid("a spill block that its dnode has no room for"));
        }
        object.set_spill(Some(self.to_little(object.bonus_type(), bytes)), tx);
        Ok(())
    }
}

/// Whether a block of this size may have a stored form.
fn fits(form: &StoredForm, size: u64) -> bool {
    let len = form.bytes.len() as u64;
    let is_smaller = if form.is_embedded { len <= format::blkptr::EMBEDDED_MAX as u64 } else { len < size };
    len != 0 && is_smaller && (form.is_embedded || len.is_multiple_of(SECTOR))
}
