//! Lists of block pointers, which may contain further such lists (docs/on-disk/22-mos-dsl.md, section 4.2;
//! docs/on-disk/15-space.md, section 6.1).

pub mod change;
#[cfg(test)]
mod tests;

use crate::block_space::Space;
use crate::error::DslError;
use crate::mos;
use dmu::{ObjSet, Object};
use format::blkptr::BLKPTR_SIZE;
use format::bpobj::StoredBlock;
use format::dsl::BpobjPhys;
use format::endian::bits;
use format::{BlockId, BlockPtr, Endian, ObjType, ObjectId};
use std::collections::HashSet;
use std::sync::Arc;

/// Word of a stored pointer whose lowest bit is the freed mark.
const FILL_WORD: usize = 11;

/// A list of block pointers that is open for reading.
#[derive(Clone)]
pub struct Bpobj {
    object: Object,
    phys: BpobjPhys,
}

impl Bpobj {
    /// Opens the bpobj in object `id` of the MOS.
    ///
    /// # Errors
    /// [`DslError::WrongType`] if the object is no list; [`DslError::Mismatch`] if its counts exceed its
    /// size; or the object cannot be read.
    pub fn open(mos: &Arc<ObjSet>, id: ObjectId) -> Result<Bpobj, DslError> {
        let object = mos::object_with_bonus(mos, id, ObjType::BPOBJ_HDR, "bpobj")?;
        let phys = BpobjPhys::decode(object.bonus(), object.order()).map_err(DslError::decode(id))?;
        let bpobj = Bpobj { object, phys };
        let room = bpobj.object.logical_end() / BLKPTR_SIZE as u64;
        if phys.num_blkptrs > room {
            let (found, expected) = (phys.num_blkptrs, room);
            return Err(DslError::Mismatch { what: "pointers of a bpobj", object: id, found, expected });
        }
        Ok(bpobj)
    }

    /// The object of the list in the MOS.
    pub fn object(&self) -> &Object {
        &self.object
    }

    /// The decoded bonus of the list.
    pub fn phys(&self) -> &BpobjPhys {
        &self.phys
    }

    /// Total charge of all pointers, those of the lists below included.
    pub fn space(&self) -> Space {
        Space { used: self.phys.bytes, compressed: self.phys.comp, uncompressed: self.phys.uncomp }
    }

    /// Calls `visit` with each pointer, those of the lists below included, and whether it is marked as freed
    /// (livelists). Visits each list below once, even if it is referenced several times.
    ///
    /// # Errors
    /// Those of the callback; or a list cannot be read, or contains itself.
    pub fn for_each(
        &self,
        visit: &mut dyn FnMut(&BlockPtr, bool) -> Result<(), DslError>,
    ) -> Result<(), DslError> {
        let mos = self.object.objset();
        let mut seen = HashSet::from([self.object.id()]);
        let mut stack = vec![self.clone()];
        while let Some(bpobj) = stack.pop() {
            bpobj.own_pointers(visit)?;
            for id in bpobj.subobjs()? {
                if !seen.insert(id) {
                    let (found, expected) = (id.0, 0);
                    let object = bpobj.object.id();
                    return Err(DslError::Mismatch {
                        what: "sub-object named twice",
                        object,
                        found,
                        expected,
                    });
                }
                stack.push(Bpobj::open(mos, id)?);
            }
        }
        Ok(())
    }

    fn own_pointers(
        &self,
        visit: &mut dyn FnMut(&BlockPtr, bool) -> Result<(), DslError>,
    ) -> Result<(), DslError> {
        for_each_piece(&self.object, self.phys.num_blkptrs, BLKPTR_SIZE, &mut |bytes, order| {
            for bp in BlockPtr::decode_all(bytes, order) {
                let freed = bits(bp.words()[FILL_WORD], 0, 1) == 1;
                visit(&bp, freed)?;
            }
            Ok(())
        })
    }

    /// Calls `visit` with each entry of its own array.
    pub(crate) fn for_each_own(
        &self,
        visit: &mut dyn FnMut(&StoredBlock) -> Result<(), DslError>,
    ) -> Result<(), DslError> {
        for_each_piece(&self.object, self.phys.num_blkptrs, BLKPTR_SIZE, &mut |bytes, order| {
            for entry in format::bpobj::entries(bytes, order) {
                visit(&entry.map_err(DslError::decode(self.object.id()))?)?;
            }
            Ok(())
        })
    }

    /// Object numbers of the lists directly below.
    ///
    /// # Errors
    /// If an object of the MOS cannot be read, or is damaged.
    pub fn subobjs(&self) -> Result<Vec<ObjectId>, DslError> {
        let Some(id) = self.phys.subobjs else { return Ok(Vec::new()) };
        let list = self.object.objset().object(id)?;
        let room = list.logical_end() / 8;
        if self.phys.num_subobjs > room {
            let (found, expected) = (self.phys.num_subobjs, room);
            return Err(DslError::Mismatch { what: "sub-objects of a bpobj", object: id, found, expected });
        }
        let mut all = Vec::new();
        for_each_piece(&list, self.phys.num_subobjs, 8, &mut |bytes, order| {
            all.extend(order.all_words(bytes).map(ObjectId));
            Ok(())
        })?;
        Ok(all)
    }
}

/// Callback of [`for_each_piece`]: whole items and their byte order.
pub(crate) type Visit<'a> = dyn FnMut(&[u8], Endian) -> Result<(), DslError> + 'a;

/// Passes the first `count` items of `size` bytes to `visit`, block by block. A hole, and a block that occurs
/// twice, is an error: so a list takes no more time than it has blocks.
pub(crate) fn for_each_piece(
    object: &Object,
    count: u64,
    size: usize,
    visit: &mut Visit<'_>,
) -> Result<(), DslError> {
    let per_block = (object.block_size() / size as u64).max(1);
    let mut left = count;
    let mut blocks = object.blocks_from(BlockId(0));
    while left > 0 {
        let here = left.min(per_block);
        let hole =
            || DslError::Mismatch { what: "holes of a list", object: object.id(), found: 1, expected: 0 };
        let data = blocks.next_block()?.ok_or_else(hole)?;
        let len = usize::try_from(here).unwrap_or(usize::MAX).saturating_mul(size);
        visit(data.bytes().get(..len).unwrap_or(data.bytes()), data.order())?;
        left -= here;
    }
    Ok(())
}
