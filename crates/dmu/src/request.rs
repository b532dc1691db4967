//! Reading blocks by pointer, many at once: for a walk that has found the pointers itself, as that of a send.
//!
//! # What always holds
//! - A pointer is followed only if its level, type and size match its place.
//! - A block without a checksum, of a state that may be too old, is returned only if that state is still valid after
//!   the read.

use crate::set_blocks::TreeShape;
use crate::{DmuError, ObjSet};
use format::dnode::Dnode;
use format::{BlockId, BlockPtr, Level, ObjectId};
use std::sync::Arc;
use zio::Block;

/// The place of a block in its object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockPlace {
    /// A data block.
    Data(BlockId),
    /// The spill block.
    Spill,
}

/// A block to be read.
#[derive(Debug, Clone)]
pub struct BlockRequest {
    /// The object that the block belongs to.
    pub object: ObjectId,
    /// Its dnode.
    pub dnode: Arc<Dnode>,
    /// The place of the block in the object.
    pub place: BlockPlace,
    /// The pointer to the block; not a hole.
    pub bp: BlockPtr,
    /// The bytes as they are stored are wanted, neither decrypted nor decompressed; otherwise the contents.
    pub stored: bool,
}

impl ObjSet {
    /// Reads blocks of objects of the tree on disk, each with an error of its own, in the order of `requests`. Blocks
    /// that are not cached are read from the devices in one batch, which takes the memory of all its blocks. Stored
    /// bytes do not come from the cache, and do not enter it.
    pub fn read_blocks(&self, requests: &[BlockRequest]) -> Vec<Result<Block, DmuError>> {
        let mut results: Vec<Option<Result<Block, DmuError>>> =
            requests.iter().map(|request| self.check_request(request).err().map(Err)).collect();
        for stored in [false, true] {
            let wanted: Vec<(usize, &BlockRequest)> = requests
                .iter()
                .enumerate()
                .filter(|(at, request)| request.stored == stored && matches!(results.get(*at), Some(None)))
                .collect();
            let bps: Vec<BlockPtr> = wanted.iter().map(|(_, request)| request.bp).collect();
            let read = if stored { self.stored(&bps) } else { self.contents(&bps) };
            for ((at, request), read) in wanted.into_iter().zip(read) {
                let read = read.map_err(|source| self.blocks().zio_error(request.object, source));
                if let Some(slot) = results.get_mut(at) {
                    *slot = Some(read.and_then(|block| self.still_stands(request, block)));
                }
            }
        }
        let unread =
            |request: &BlockRequest| Err(self.blocks().corrupt(request.object, "a block was not read"));
        requests.iter().zip(results).map(|(request, read)| read.unwrap_or_else(|| unread(request))).collect()
    }

    /// Reads an indirect block of an object, or a block of dnodes, of the tree on disk. An indirect block may lack
    /// pointers at its end that were never written: they are holes.
    ///
    /// # Errors
    /// [`DmuError`] if the pointer does not match its place, or the block cannot be read.
    pub fn read_tree_block(
        &self,
        object: ObjectId,
        dnode: &Dnode,
        bp: &BlockPtr,
        level: Level,
    ) -> Result<Block, DmuError> {
        self.blocks().read(&TreeShape::of(object, dnode), bp, level)
    }

    /// Makes other threads read indirect blocks or blocks of dnodes into the cache. Errors are left to the reader that
    /// asks for a block. Nothing happens where blocks are not read ahead.
    pub fn read_tree_ahead(&self, bps: Vec<BlockPtr>) {
        let blocks = Arc::clone(self.blocks());
        let read = move || {
            let is_proved = |bp: &BlockPtr| blocks.is_proved(bp);
            let bps: Vec<BlockPtr> = bps.into_iter().filter(is_proved).collect();
            blocks.store.read_ahead(&bps, blocks.key(), &|_| true);
        };
        self.store().prefetch([Box::new(read) as Box<dyn FnOnce() + Send>]);
    }

    fn contents(&self, bps: &[BlockPtr]) -> Vec<Result<Block, zio::ZioError>> {
        self.store().read_many(bps, self.blocks().key())
    }

    fn stored(&self, bps: &[BlockPtr]) -> Vec<Result<Block, zio::ZioError>> {
        let read = self.store().stored_many(bps);
        bps.iter().zip(read).map(|(bp, read)| Ok(Block::new(read?, bp.byte_order()))).collect()
    }

    fn check_request(&self, request: &BlockRequest) -> Result<(), DmuError> {
        let (bp, object) = (&request.bp, request.object);
        match request.place {
            BlockPlace::Data(_) => {
                self.blocks().check_pointer(&TreeShape::of(object, &request.dnode), bp, Level(0))
            }
            BlockPlace::Spill if bp.level() == Level(0) && bp.obj_type() == request.dnode.bonus_type => {
                Ok(())
            }
            BlockPlace::Spill => Err(self.blocks().corrupt(object, "a spill pointer of the wrong type")),
        }
    }

    /// Drops bytes that may be those of another block.
    fn still_stands(&self, request: &BlockRequest, block: Block) -> Result<Block, DmuError> {
        let (objset, object) = (self.number(), request.object);
        let (Some(lease), BlockPlace::Data(blkid)) = (self.blocks().doubt(&request.bp), request.place) else {
            return Ok(block);
        };
        if !lease.has_lapsed() || lease.is_in_newest(objset, object, blkid, &request.bp) {
            return Ok(block);
        }
        Err(DmuError::TooOld { objset, object })
    }
}
