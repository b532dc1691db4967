//! Objects of an encrypted set that is received without its key: their blocks are stored as they are received, and
//! their dnodes are made exactly as the sender has them, because both are authenticated
//! (docs/on-disk/31-encryption.md, section 13).

use crate::object::cell::{Leaf, Spill};
use crate::{DmuError, LiveObject, NewObject};
use format::BlockId;
use std::sync::Arc;
use zio::{AllocTx, RawForm};

/// A block as its sender has stored it.
#[derive(Debug, Clone)]
pub struct RawBlock {
    /// The stored bytes.
    pub bytes: Arc<Vec<u8>>,
    /// What they are.
    pub form: RawForm,
}

impl RawBlock {
    /// Whether the bytes can be the stored form of a block.
    fn is_possible(&self) -> bool {
        let (psize, lsize) = (self.bytes.len() as u64, self.form.lsize);
        let is_size = match self.form.compression {
            format::CompressionId::Off => psize == lsize,
            _ => psize <= lsize,
        };
        psize != 0 && psize.is_multiple_of(512) && lsize.is_multiple_of(512) && is_size
    }
}

impl LiveObject {
    /// Replaces a whole block.
    ///
    /// # Errors
    /// [`DmuError::Shape`] if the object has blocks of another size, no block of this number, or the bytes are no
    /// stored form of a block.
    pub fn put_raw(&self, blkid: BlockId, block: RawBlock, tx: &dyn AllocTx) -> Result<(), DmuError> {
        if block.form.lsize != self.block_size() || !block.is_possible() {
            return Err(self.shape("a block of another size than the object's"));
        }
        if blkid > self.max_block() {
            return Err(self.shape("a block beyond the last"));
        }
        let size = block.bytes.len() as u64;
        let dropped = self.change(tx, |inner| inner.open.insert(blkid.0, Leaf::Raw(Arc::new(block))));
        self.set().meter.add(tx.txg(), size);
        self.set().meter.sub(tx.txg(), dropped);
        Ok(())
    }

    /// Replaces the spill block.
    ///
    /// # Errors
    /// [`DmuError::Shape`] if its pointer does not fit into the dnode, or the bytes are no stored form of a block.
    pub fn set_raw_spill(&self, block: RawBlock, tx: &dyn AllocTx) -> Result<(), DmuError> {
        if !block.is_possible() {
            return Err(self.shape("a spill block of an impossible size"));
        }
        let has_room = {
            let header = &self.cell.lock().header;
            header.has_room(header.bonus.len() + header.bonus_tail.len(), true)
        };
        if !has_room {
            return Err(self.shape("a spill block that its dnode has no room for"));
        }
        let size = block.bytes.len() as u64;
        self.change(tx, |inner| {
            inner.header.has_spill = true;
            inner.open.spill = Spill::Raw(Arc::new(block));
        });
        self.set().meter.add(tx.txg(), size);
        Ok(())
    }

    /// Makes blocks holes; those beyond the last are none. The highest block number stays.
    pub fn free_blocks(&self, blocks: std::ops::Range<u64>, tx: &dyn AllocTx) {
        let end = blocks.end.min(self.max_block().0.saturating_add(1));
        if blocks.start >= end {
            return;
        }
        let dropped = self.change(tx, |inner| {
            inner.open.freed.insert(blocks.start..end);
            inner.open.drop_blocks(blocks.start..end)
        });
        self.set().meter.sub(tx.txg(), dropped);
    }

    /// Makes an existing object exactly like a new one of this description, under the same number. The contents stay
    /// if the shape of the tree does, except blocks beyond the last. The spill block stays if `keeps_spill`.
    ///
    /// # Errors
    /// [`DmuError::Shape`] if the size of the dnode differs, or its bonus does not fit.
    pub fn reclaim_raw(&self, new: &NewObject, keeps_spill: bool, tx: &dyn AllocTx) -> Result<(), DmuError> {
        let wanted = new.header();
        let has_spill = {
            let inner = self.cell.lock();
            if inner.header.extra_slots != wanted.extra_slots {
                return Err(self.shape("a dnode that is reclaimed keeps its size"));
            }
            inner.header.has_spill && keeps_spill
        };
        if !wanted.has_room(wanted.bonus.len() + wanted.bonus_tail.len(), has_spill) {
            return Err(self.shape("a bonus beyond its dnode"));
        }
        let dropped = self.change(tx, |inner| {
            let old = &inner.header;
            let is_alike = old.block_size() == wanted.block_size()
                && old.nblkptr == wanted.nblkptr
                && old.obj_type == wanted.obj_type
                && old.indblkshift == wanted.indblkshift
                && old.levels <= wanted.levels;
            let flags = old.flags;
            if old.has_spill && !has_spill {
                inner.open.spill = Spill::Drop;
            }
            let dropped = if is_alike {
                let beyond = wanted.maxblkid.saturating_add(1)..u64::MAX;
                inner.open.freed.insert(beyond.clone());
                inner.open.drop_blocks(beyond)
            } else {
                inner.open.reshape()
            };
            inner.header = crate::object::cell::Header { flags, has_spill, ..wanted };
            dropped
        });
        self.set().meter.sub(tx.txg(), dropped);
        Ok(())
    }
}
