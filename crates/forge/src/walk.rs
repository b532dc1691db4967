//! Every block of a pool, children before parents.

use crate::Result;
use crate::image::Image;
use crate::seal::{Sealed, relabel, seal, write_stored};
use format::blkptr::{BLKPTR_SIZE, Protection};
use format::dnode::{CORE_SIZE, Dnode, FLAG_SPILL, SLOT_SIZE};
use format::{AllocOffset, BlockPtr, BpKind, Endian, Level, ObjType, VdevId};
use std::collections::HashMap;
use zio::ReadPolicy;

/// Where the pointer to its object set is in the bonus of a dataset.
const DATASET_BP: usize = 128;
/// Bytes of an entry of a list of trees that are being destroyed.
const BPTREE_ENTRY: usize = 168;
/// Where dnodes are in an object set block.
const OBJSET_DNODES: [usize; 4] = [0, 1024, 1536, 2048];

/// Where the first byte of a block is on disk.
type PlaceKey = (VdevId, AllocOffset);

/// Where a block is in the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The object set: 0, or the number of a dataset in the MOS.
    pub objset: u64,
    /// The object; 0 for dnodes and for the object set block itself.
    pub object: u64,
    /// Its height in the tree of its object.
    pub level: Level,
    /// Its number at this level. `u64::MAX` for a spill block and an object set block.
    pub block: u64,
}

/// What becomes of the contents of blocks.
pub trait Edit {
    /// An object set will be visited next; `root` leads to it as it is.
    fn enter(&mut self, _image: &Image, _objset: u64, _root: &BlockPtr) -> Result<()> {
        Ok(())
    }

    /// Changes the contents of a block, whose pointers to its children are already the new ones.
    /// Gives the byte order that they have now, or `None` if nothing was changed.
    fn edit(&mut self, place: &Place, bp: &BlockPtr, contents: &mut Vec<u8>) -> Option<Endian>;

    /// Whether a block that has no children is to be edited: others need not be read.
    fn wants(&self, _place: &Place, _bp: &BlockPtr) -> bool {
        true
    }

    /// Whether the bytes of a block are to be changed as they are stored: compressed, encrypted.
    fn wants_stored(&self, _bp: &BlockPtr) -> bool {
        false
    }

    /// Changes them. Gives whether anything was changed.
    fn stored(&mut self, _bp: &BlockPtr, _bytes: &mut Vec<u8>) -> bool {
        false
    }
}

/// A walk over a pool.
pub struct Walk<'a, E> {
    image: &'a Image,
    edit: &'a mut E,
    /// By place on disk.
    done: HashMap<PlaceKey, Sealed>,
    /// The object of the MOS with trees that are being destroyed.
    bptree: Option<u64>,
    /// Blocks that were written.
    pub written: u64,
    /// Blocks that were left as they are since they would not have fit.
    pub unfit: u64,
}

impl<'a, E: Edit> Walk<'a, E> {
    /// A walk that has not begun.
    pub fn new(image: &'a Image, edit: &'a mut E) -> Walk<'a, E> {
        Walk { image, edit, done: HashMap::new(), bptree: None, written: 0, unfit: 0 }
    }

    /// Visits everything; gives the new pointer to the root.
    ///
    /// # Errors
    /// If a block cannot be read, or must be written and does not fit.
    pub fn run(&mut self) -> Result<BlockPtr> {
        self.bptree = self.image.pool.directory().object("bptree_obj").ok().flatten().map(|id| id.0);
        let root = self.image.pool.uberblock().root;
        self.objset(&root, 0)
    }

    fn objset(&mut self, root: &BlockPtr, objset: u64) -> Result<BlockPtr> {
        if !root.is_hole() {
            self.edit.enter(self.image, objset, root)?;
        }
        self.block(root, Place { objset, object: 0, level: Level(0), block: u64::MAX })
    }

    fn block(&mut self, bp: &BlockPtr, place: Place) -> Result<BlockPtr> {
        if matches!(bp.kind(), BpKind::Hole | BpKind::Redacted) {
            return Ok(*bp);
        }
        let key = bp.dvas().next().map(|dva| self.image.place_of(&dva));
        if let Some(sealed) = key.and_then(|key| self.done.get(&key)) {
            return Ok(sealed.apply(bp));
        }
        let has_children = place.level > Level(0)
            || matches!(bp.obj_type(), ObjType::DNODE | ObjType::OBJSET)
            || self.is_bptree(&place);
        // Whose contents are covered by a MAC that depends on a key.
        let is_locked =
            bp.level() == Level(0) && bp.protection() != Protection::None && bp.obj_type() != ObjType::OBJSET;
        if !has_children && (is_locked || !self.edit.wants(&place, bp)) {
            return self.stored(bp, *bp, key);
        }
        let block = self.image.read(bp)?;
        let mut contents = block.bytes().to_vec();
        let order = block.order();
        let has_new = has_children && self.children(bp, &place, &mut contents, order)?;
        let resealed = (contents.clone(), order);
        let edited = if is_locked { None } else { self.edit.edit(&place, bp, &mut contents) };
        let new = match edited {
            None if !has_new => *bp,
            None => seal(self.image, bp, &resealed.0, order)?,
            // Stored again they might not even fit, and dedup tables know them by the checksum.
            Some(new_order) if contents == resealed.0 && !has_new && !bp.is_embedded() => {
                relabel(self.image, bp, new_order)?
            }
            Some(new_order) => match seal(self.image, bp, &contents, new_order) {
                Ok(new) => new,
                Err(crate::ForgeError::Room(_)) => {
                    self.unfit += 1;
                    if has_new { seal(self.image, bp, &resealed.0, order)? } else { *bp }
                }
                Err(error) => return Err(error),
            },
        };
        self.stored(bp, new, key)
    }

    /// The last of a block: its bytes as they are stored. `new` leads to it as it is now.
    fn stored(&mut self, old: &BlockPtr, mut new: BlockPtr, key: Option<PlaceKey>) -> Result<BlockPtr> {
        if !new.is_embedded() && self.edit.wants_stored(&new) {
            let mut bytes = self.image.zio().read_physical(&new, &ReadPolicy::default())?.to_vec();
            if self.edit.stored(&new, &mut bytes) {
                new = write_stored(self.image, &new, &bytes)?;
            }
        }
        self.written += u64::from(new != *old);
        if let Some(key) = key {
            self.done.insert(key, Sealed::new(new));
        }
        Ok(new)
    }

    fn is_bptree(&self, place: &Place) -> bool {
        place.objset == 0 && self.bptree == Some(place.object) && place.object != 0
    }

    /// Visits the children of a block, and puts the new pointers into it.
    fn children(&mut self, bp: &BlockPtr, place: &Place, contents: &mut [u8], order: Endian) -> Result<bool> {
        if place.level > Level(0) {
            let fan = (contents.len() / BLKPTR_SIZE) as u64;
            let mut has_new = false;
            for (i, raw) in (0..).zip(contents.chunks_exact_mut(BLKPTR_SIZE)) {
                let child = Place {
                    level: Level(place.level.0 - 1),
                    block: place.block.saturating_mul(fan).saturating_add(i),
                    ..*place
                };
                has_new |= self.child(raw, order, child)?;
            }
            return Ok(has_new);
        }
        match bp.obj_type() {
            ObjType::DNODE => self.dnodes(place, contents, order),
            ObjType::OBJSET => {
                let mut has_new = false;
                for at in OBJSET_DNODES {
                    if let Some(raw) = contents.get_mut(at..at + SLOT_SIZE) {
                        has_new |= self.dnode(place.objset, 0, raw, order)?;
                    }
                }
                Ok(has_new)
            }
            _ => {
                let mut has_new = false;
                for raw in contents.chunks_exact_mut(BPTREE_ENTRY) {
                    let root = BlockPtr::decode(raw, order)?;
                    let new = self.objset(&root, u64::MAX)?;
                    raw[..BLKPTR_SIZE].copy_from_slice(&new.encode(order));
                    has_new |= new != root;
                }
                Ok(has_new)
            }
        }
    }

    fn dnodes(&mut self, place: &Place, contents: &mut [u8], order: Endian) -> Result<bool> {
        let mut has_new = false;
        let mut at = 0;
        let first = place.block * (contents.len() / SLOT_SIZE) as u64;
        while at + SLOT_SIZE <= contents.len() {
            let slots = Dnode::slots_at(&contents[at..]);
            let end = (at + slots * SLOT_SIZE).min(contents.len());
            let object = first + (at / SLOT_SIZE) as u64;
            has_new |= self.dnode(place.objset, object, &mut contents[at..end], order)?;
            at = end;
        }
        Ok(has_new)
    }

    fn dnode(&mut self, objset: u64, object: u64, raw: &mut [u8], order: Endian) -> Result<bool> {
        let Some(dnode) = Dnode::decode(raw, order)? else { return Ok(false) };
        let mut has_new = false;
        for (i, at) in (0..dnode.blkptrs.len()).map(|i| (i as u64, CORE_SIZE + i * BLKPTR_SIZE)) {
            let place = Place { objset, object, level: Level(dnode.nlevels - 1), block: i };
            has_new |= self.child(&mut raw[at..at + BLKPTR_SIZE], order, place)?;
        }
        if dnode.flags & FLAG_SPILL != 0 {
            let at = dnode.slots() * SLOT_SIZE - BLKPTR_SIZE;
            let place = Place { objset, object, level: Level(0), block: u64::MAX };
            has_new |= self.child(&mut raw[at..at + BLKPTR_SIZE], order, place)?;
        }
        if objset == 0 && dnode.bonus_type == ObjType::DSL_DATASET {
            let at = CORE_SIZE + dnode.blkptrs.len() * BLKPTR_SIZE + DATASET_BP;
            let root = BlockPtr::decode(&raw[at..], order)?;
            let new = self.objset(&root, object)?;
            raw[at..at + BLKPTR_SIZE].copy_from_slice(&new.encode(order));
            has_new |= new != root;
        }
        Ok(has_new)
    }

    fn child(&mut self, raw: &mut [u8], order: Endian, place: Place) -> Result<bool> {
        let old = BlockPtr::decode(raw, order)?;
        let new = self.block(&old, place)?;
        raw.copy_from_slice(&new.encode(order));
        Ok(new != old)
    }
}
