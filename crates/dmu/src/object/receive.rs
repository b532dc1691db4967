//! What only a receive does to an object: it gives an existing object another shape, and it writes blocks in the form
//! in which their sender had stored them (docs/on-disk/30-send-streams.md, section 9).

use crate::object::cell::{Leaf, Spill};
use crate::{DmuError, LiveObject, NewObject};
use format::BlockId;
use std::sync::Arc;
use zio::{AllocTx, StoredForm};

/// What [`LiveObject::reclaim`] has done with the contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reclaimed {
    /// They are as before.
    Kept,
    /// They are gone: the shape has changed.
    Freed,
}

impl LiveObject {
    /// Makes an existing object like a new one of this description, under the same number. The contents stay if
    /// type and block size stay, and the new object has room for as many block pointers; otherwise they are freed. The
    /// spill block stays if `keeps_spill`.
    ///
    /// # Errors
    /// [`DmuError::Shape`] if the size of the dnode differs, or its bonus does not fit; the error of freeing the
    /// contents.
    pub fn reclaim(
        &self,
        new: &NewObject,
        keeps_spill: bool,
        tx: &dyn AllocTx,
    ) -> Result<Reclaimed, DmuError> {
        let wanted = new.header();
        let (is_alike, is_same, has_spill) = {
            let inner = self.cell.lock();
            if inner.header.extra_slots != wanted.extra_slots {
                return Err(self.shape("a dnode that is reclaimed keeps its size"));
            }
            let is_alike = inner.header.block_size() == wanted.block_size()
                && inner.header.nblkptr <= wanted.nblkptr
                && inner.header.obj_type == wanted.obj_type;
            let is_same = is_alike
                && inner.header.bonus_type == wanted.bonus_type
                && (inner.header.checksum, inner.header.compress) == (wanted.checksum, wanted.compress)
                && inner.header.bonus == wanted.bonus
                && inner.header.bonus_tail.is_empty()
                && (keeps_spill || !inner.header.has_spill);
            (is_alike, is_same, inner.header.has_spill && keeps_spill)
        };
        if !wanted.has_room(wanted.bonus.len(), has_spill) {
            return Err(self.shape("a bonus beyond its dnode"));
        }
        if !is_alike {
            self.free_range(0, u64::MAX, tx)?;
        }
        self.cell.zap.clear();
        if is_same {
            // An increment has all objects of a block of dnodes in which one has changed.
            return Ok(Reclaimed::Kept);
        }
        self.change(tx, |inner| {
            let header = &mut inner.header;
            if !is_alike {
                header.nblkptr = wanted.nblkptr;
                header.datablkszsec = wanted.datablkszsec;
                header.levels = wanted.levels;
                inner.open.reshape();
            }
            (header.obj_type, header.bonus_type) = (wanted.obj_type, wanted.bonus_type);
            (header.checksum, header.compress) = (wanted.checksum, wanted.compress);
            // Fewer pointers than there is room for are as good.
            header.bonus.clone_from(&wanted.bonus);
            header.bonus_tail.clear();
            if header.has_spill && !has_spill {
                header.has_spill = false;
                inner.open.spill = Spill::Drop;
            }
        });
        Ok(if is_alike { Reclaimed::Kept } else { Reclaimed::Freed })
    }

    /// Replaces a whole block, with the form in which it is stored.
    ///
    /// # Errors
    /// [`DmuError::Shape`] if the object has blocks of another size, or the form is larger than the block.
    pub fn put_stored(
        &self,
        blkid: BlockId,
        bytes: Vec<u8>,
        form: StoredForm,
        tx: &dyn AllocTx,
    ) -> Result<(), DmuError> {
        if bytes.len() as u64 != self.block_size() {
            return Err(self.shape("a block of another size than the object's"));
        }
        let fits = if form.is_embedded {
            form.bytes.len() <= format::blkptr::EMBEDDED_MAX
        } else {
            form.bytes.len() < bytes.len() && form.bytes.len().is_multiple_of(512)
        };
        if form.bytes.is_empty() || !fits {
            return Err(self.shape("a stored form that no block of this size can have"));
        }
        let size = (bytes.len() + form.bytes.len()) as u64;
        let added = self.change(tx, |inner| {
            inner.header.maxblkid = inner.header.maxblkid.max(blkid.0);
            let leaf = Leaf::Stored(Arc::new(bytes), Arc::new(form));
            size - inner.open.insert(blkid.0, leaf).min(size)
        });
        self.set().meter.add(tx.txg(), added);
        Ok(())
    }
}
