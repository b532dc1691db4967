//! Objects of a writable object set by number: found, made, freed.

use crate::object::cell::Cell;
use crate::sync::{Arc, lock};
use crate::{DmuError, LiveObject, LiveSet, NewObject};
use format::dnode::SLOTS_PER_BLOCK;
use format::{ObjType, ObjectId};
use zio::AllocTx;

/// Blocks of dnodes that a thread reads ahead one after the other.
const DNODES_AHEAD: usize = 4;

impl LiveSet {
    /// Opens the object with this number.
    ///
    /// # Errors
    /// [`DmuError::NoObject`] if it does not exist in the newest state.
    pub fn object(self: &Arc<Self>, id: ObjectId) -> Result<LiveObject, DmuError> {
        let cell = self.cell(id)?;
        if !cell.lock().exists {
            return Err(self.no_object(id));
        }
        Ok(LiveObject::new(Arc::clone(self), cell))
    }

    /// Makes other threads read the dnodes of objects into the cache, as far as they are on disk. `ids` are in ascending
    /// order. Errors are left to the reader that asks for an object.
    pub fn read_dnodes_ahead(self: &Arc<Self>, ids: impl Iterator<Item = ObjectId>) {
        if !self.store().can_prefetch() {
            return;
        }
        let mut blocks: Vec<u64> = ids.map(|id| id.0 / SLOTS_PER_BLOCK as u64).collect();
        blocks.dedup();
        self.store().prefetch(blocks.chunks(DNODES_AHEAD).map(|chunk| {
            let (set, chunk) = (Arc::clone(self), chunk.to_vec());
            let read = move || {
                let root = set.root();
                chunk.iter().for_each(|block| drop(set.dnode_block(&root, *block)));
            };
            Box::new(read) as Box<dyn FnOnce() + Send>
        }));
    }

    /// Creates an object. Its number is not that of an object freed in a txg that is not on disk yet.
    pub fn allocate(self: &Arc<Self>, new: &NewObject, tx: &dyn AllocTx) -> Result<LiveObject, DmuError> {
        let slots = u64::from(new.slots.clamp(1, SLOTS_PER_BLOCK as u8));
        let id = lock(&self.numbers).take(slots, tx.txg(), &mut |block| self.used_slots(block))?;
        Ok(self.add(id, new, tx))
    }

    /// Creates the object with this number.
    ///
    /// # Errors
    /// [`DmuError::ObjectExists`] if the number, or one of its further slots, is in use or was freed in a txg
    /// that is not on disk yet.
    pub fn claim(
        self: &Arc<Self>,
        id: ObjectId,
        new: &NewObject,
        tx: &dyn AllocTx,
    ) -> Result<LiveObject, DmuError> {
        let slots = u64::from(new.slots.clamp(1, SLOTS_PER_BLOCK as u8));
        let is_number = id.0 != 0 && id.0 < ObjectId::LIMIT;
        let taken = is_number
            && lock(&self.numbers).take_this(id, slots, tx.txg(), &mut |block| self.used_slots(block))?;
        if !taken {
            return Err(DmuError::ObjectExists { objset: self.number(), object: id });
        }
        Ok(self.add(id, new, tx))
    }

    /// One of the three accounting objects of users, groups and projects; created if it is missing.
    pub(crate) fn accounting_object(
        self: &Arc<Self>,
        id: ObjectId,
        tx: &dyn AllocTx,
    ) -> Result<(LiveObject, bool), DmuError> {
        match self.object(id) {
            Ok(object) => Ok((object, false)),
            Err(DmuError::NoObject { .. }) => {
                Ok((self.add(id, &NewObject::of(ObjType::USERGROUP_USED), tx), true))
            }
            Err(error) => Err(error),
        }
    }

    fn add(self: &Arc<Self>, id: ObjectId, new: &NewObject, tx: &dyn AllocTx) -> LiveObject {
        let cell = Cell::new(id, new.header());
        if id.0 < ObjectId::LIMIT {
            lock(&self.fresh).insert(id.0);
        }
        self.shard(id.0).insert(id.0, Arc::clone(&cell));
        let is_first = cell.lock().touch(tx.txg());
        self.note_change(&cell, tx.txg(), is_first);
        LiveObject::new(Arc::clone(self), cell)
    }

    /// Frees an object and all its blocks.
    pub fn free(self: &Arc<Self>, id: ObjectId, tx: &dyn AllocTx) -> Result<(), DmuError> {
        let object = self.object(id)?;
        let slots = object.free_all(tx);
        lock(&self.numbers).give_back(id, slots, tx.txg());
        lock(&self.fresh).remove(&id.0);
        Ok(())
    }

    /// The first object with a number of at least `from` in the newest state.
    pub(crate) fn next_object(self: &Arc<Self>, from: ObjectId) -> Result<Option<LiveObject>, DmuError> {
        let mut at = from;
        loop {
            let on_disk = self.newest_image().next_dnode(at)?.map(|(id, _)| id);
            let fresh = lock(&self.fresh).range(at.0..).next().copied().map(ObjectId);
            let Some(next) = on_disk.into_iter().chain(fresh).min() else { return Ok(None) };
            match self.object(next) {
                Ok(object) => return Ok(Some(object)),
                Err(DmuError::NoObject { .. }) => at = ObjectId(next.0 + 1),
                Err(error) => return Err(error),
            }
        }
    }
}
