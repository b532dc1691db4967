//! Visits every block of a pool, children before parents.

use crate::Result;
use crate::image::Image;
use crate::seal::{SealedFields, relabel, seal, write_stored};
use format::blkptr::{BLKPTR_SIZE, Protection};
use format::dnode::{CORE_SIZE, Dnode, FLAG_SPILL, SLOT_SIZE};
use format::names;
use format::{AllocOffset, BlockPtr, BpKind, Endian, Level, ObjType, VdevId};
use std::collections::HashMap;
use zio::ReadPolicy;

/// The offset of the object set's block pointer in the bonus of a dataset.
const DATASET_BP: usize = 128;
/// Bytes of an entry in the list of trees being destroyed (`bptree`).
const BPTREE_ENTRY: usize = 168;
/// The offsets of the dnodes in an object set block.
const OBJSET_DNODES: [usize; 4] = [0, 1024, 1536, 2048];

/// The address of the first byte of a block.
type Address = (VdevId, AllocOffset);

/// The logical position of a block in the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BlockPosition {
    /// The object set: 0 for the MOS, else the number of the dataset's object.
    pub objset: u64,
    /// The object; 0 for dnode blocks and for the object set block itself.
    pub object: u64,
    /// The height in the block tree of the object; 0 for data.
    pub level: Level,
    /// The block number at this level; `u64::MAX` for a spill block and an object set block.
    pub block: u64,
}

/// The changes that a [`Walk`] makes to blocks.
pub(crate) trait Edit {
    /// Called before the blocks of an object set are visited; `root` is its block pointer before the walk.
    ///
    /// # Errors
    /// Stops the walk.
    fn enter(&mut self, _image: &Image, _objset: u64, _root: &BlockPtr) -> Result<()> {
        Ok(())
    }

    /// Changes the contents of a block, in which the pointers to children are updated already. Returns the
    /// byte order of the new contents, or `None` if they are unchanged.
    fn edit(&mut self, place: &BlockPosition, bp: &BlockPtr, contents: &mut Vec<u8>) -> Option<Endian>;

    /// Whether to call [`Edit::edit`] for a block without children; others are not read.
    fn wants(&self, _place: &BlockPosition, _bp: &BlockPtr) -> bool {
        true
    }

    /// Whether to call [`Edit::stored`] for a block.
    fn wants_stored(&self, _bp: &BlockPtr) -> bool {
        false
    }

    /// Changes the bytes of a block as stored, compressed and encrypted. Returns whether they changed.
    fn stored(&mut self, _bp: &BlockPtr, _bytes: &mut Vec<u8>) -> bool {
        false
    }
}

/// A walk over all blocks of a pool.
pub(crate) struct Walk<'a, E> {
    image: &'a Image,
    edit: &'a mut E,
    /// The rewritten blocks by address.
    done: HashMap<Address, SealedFields>,
    /// The MOS object with the trees being destroyed.
    bptree: Option<u64>,
    /// Blocks written so far.
    pub written: u64,
    /// Blocks left as they are because the new contents do not fit.
    pub unfit: u64,
}

impl<'a, E: Edit> Walk<'a, E> {
    /// Prepares a walk.
    pub(crate) fn new(image: &'a Image, edit: &'a mut E) -> Walk<'a, E> {
        Walk { image, edit, done: HashMap::new(), bptree: None, written: 0, unfit: 0 }
    }

    /// Visits all blocks; returns the new root block pointer.
    ///
    /// # Errors
    /// Fails if a block cannot be read, or if a parent must be rewritten and does not fit.
    pub(crate) fn run(&mut self) -> Result<BlockPtr> {
        self.bptree =
            self.image.pool.directory().object(names::directory::BPTREE_OBJ).ok().flatten().map(|id| id.0);
        let root = self.image.pool.uberblock().root;
        self.objset(&root, 0)
    }

    fn objset(&mut self, root: &BlockPtr, objset: u64) -> Result<BlockPtr> {
        if !root.is_hole() {
            self.edit.enter(self.image, objset, root)?;
        }
        self.block(root, BlockPosition { objset, object: 0, level: Level(0), block: u64::MAX })
    }

    fn block(&mut self, bp: &BlockPtr, place: BlockPosition) -> Result<BlockPtr> {
        if matches!(bp.kind(), BpKind::Hole | BpKind::Redacted) {
            return Ok(*bp);
        }
        let key = bp.dvas().next().map(|dva| self.image.resolve(&dva));
        if let Some(sealed) = key.and_then(|key| self.done.get(&key)) {
            return Ok(sealed.apply(bp));
        }
        let has_children = place.level > Level(0)
            || matches!(bp.obj_type(), ObjType::DNODE | ObjType::OBJSET)
            || self.is_bptree(&place);
        // The MAC covers the contents and depends on a key.
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
            // Recompressed contents may not fit, and a dedup table is keyed by the checksum of the stored
            // bytes.
            Some(new_order) if contents == resealed.0 && !has_new && !bp.is_embedded() => {
                relabel(self.image, bp, new_order)?
            }
            Some(new_order) => match seal(self.image, bp, &contents, new_order) {
                Ok(new) => new,
                Err(crate::MutateError::TooLarge(_)) => {
                    self.unfit += 1;
                    if has_new { seal(self.image, bp, &resealed.0, order)? } else { *bp }
                }
                Err(error) => return Err(error),
            },
        };
        self.stored(bp, new, key)
    }

    /// Lets the edit change the stored bytes, and records the block as done. `new` is the pointer after the
    /// edit of the contents.
    fn stored(&mut self, old: &BlockPtr, mut new: BlockPtr, key: Option<Address>) -> Result<BlockPtr> {
        if !new.is_embedded() && self.edit.wants_stored(&new) {
            let mut bytes = self.image.zio().read_physical(&new, &ReadPolicy::default())?.to_vec();
            if self.edit.stored(&new, &mut bytes) {
                new = write_stored(self.image, &new, &bytes)?;
            }
        }
        self.written += u64::from(new != *old);
        if let Some(key) = key {
            self.done.insert(key, SealedFields::new(new));
        }
        Ok(new)
    }

    fn is_bptree(&self, place: &BlockPosition) -> bool {
        place.objset == 0 && self.bptree == Some(place.object) && place.object != 0
    }

    /// Visits the children of a block and puts their new pointers into `contents`; returns whether a pointer
    /// changed.
    fn children(
        &mut self,
        bp: &BlockPtr,
        place: &BlockPosition,
        contents: &mut [u8],
        order: Endian,
    ) -> Result<bool> {
        if place.level > Level(0) {
            let fan = (contents.len() / BLKPTR_SIZE) as u64;
            let mut has_new = false;
            for (i, raw) in (0..).zip(contents.chunks_exact_mut(BLKPTR_SIZE)) {
                let child = BlockPosition {
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

    fn dnodes(&mut self, place: &BlockPosition, contents: &mut [u8], order: Endian) -> Result<bool> {
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
            let place = BlockPosition { objset, object, level: Level(dnode.nlevels - 1), block: i };
            has_new |= self.child(&mut raw[at..at + BLKPTR_SIZE], order, place)?;
        }
        if dnode.flags & FLAG_SPILL != 0 {
            let at = dnode.slots() * SLOT_SIZE - BLKPTR_SIZE;
            let place = BlockPosition { objset, object, level: Level(0), block: u64::MAX };
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

    fn child(&mut self, raw: &mut [u8], order: Endian, place: BlockPosition) -> Result<bool> {
        let old = BlockPtr::decode(raw, order)?;
        let new = self.block(&old, place)?;
        raw.copy_from_slice(&new.encode(order));
        Ok(new != old)
    }
}
