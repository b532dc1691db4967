//! Objects of an open object set by number.

use crate::sync::Arc;
use crate::{DmuError, ObjSet, Object};
use format::{BlockId, BlockPtr, Level, ObjectId};

impl ObjSet {
    /// Whether the tree of an object on disk references `bp` as its data block `blkid`. Returns false also if
    /// that cannot be read.
    pub fn leads_to(self: &Arc<Self>, object: ObjectId, blkid: BlockId, bp: &BlockPtr) -> bool {
        self.object(object).is_ok_and(|object| {
            object.dnode().maxblkid >= blkid
                && object.block_ptr(Level(0), blkid).is_ok_and(|now| !now.is_hole() && now == *bp)
        })
    }

    /// The object of the dnode array.
    pub fn meta_object(self: &Arc<Self>) -> Object {
        Object::new(Arc::clone(self), ObjectId(0), Arc::new(self.phys().meta_dnode.clone()))
    }

    /// Opens the object with this number.
    ///
    /// # Errors
    /// [`DmuError::NoObject`] if the number is free, inside a larger dnode, or out of range.
    pub fn object(self: &Arc<Self>, id: ObjectId) -> Result<Object, DmuError> {
        if let Some(live) = self.live() {
            return Ok(live.object(id)?.read_through(Arc::clone(self)));
        }
        let none = DmuError::NoObject { objset: self.number(), object: id };
        let dnode = self.image().dnode(id)?.ok_or(none)?;
        Ok(Object::new(Arc::clone(self), id, Arc::new(dnode)))
    }

    /// The first object with a number of at least `from`, in order of numbers. Fails if the tree of the
    /// dnodes repeats itself: such a walk would not end.
    pub fn next_object(self: &Arc<Self>, from: ObjectId) -> Result<Option<Object>, DmuError> {
        if let Some(live) = self.live() {
            return Ok(live.next_object(from)?.map(|object| object.read_through(Arc::clone(self))));
        }
        let next = self.image().next_dnode(from)?;
        Ok(next.map(|(id, dnode)| Object::new(Arc::clone(self), id, Arc::new(dnode))))
    }
}
