//! Reading one object: its blocks, its bonus, its spill block, its holes.

pub(crate) mod cell;
pub(crate) mod disk_tree;
pub(crate) mod live;
pub(crate) mod raw;
#[cfg(test)]
mod read_tests;
pub(crate) mod receive;
#[cfg(test)]
mod reshape_tests;
pub(crate) mod tail;
pub(crate) mod tree;

use crate::prefetch::Streams;
use crate::store::RangeRead;
use crate::sync::{Arc, Mutex};
use crate::zap::ZapBlocks;
use crate::{DmuError, LiveObject, ObjSet};
use disk_tree::{BlockResult, DiskTree, read_range, shift_right};
use format::dnode::Dnode;
use format::{BlockId, BlockPtr, Endian, Level, ObjectId};
use std::collections::HashSet;
use std::ops::Range;
use zio::Block;

/// An object of an object set. Cheap to clone.
#[derive(Clone)]
pub struct Object {
    objset: Arc<ObjSet>,
    tree: DiskTree,
    /// Streams of reads that are followed for read-ahead; shared by all clones.
    streams: Arc<Mutex<Streams>>,
    /// The writable object whose newest state this shows; `None`: it shows the state on disk.
    live: Option<LiveObject>,
}

impl Object {
    pub(crate) fn new(objset: Arc<ObjSet>, id: ObjectId, dnode: Arc<Dnode>) -> Object {
        let tree = DiskTree::new(Arc::clone(objset.blocks()), id, dnode);
        Object { objset, tree, streams: Arc::default(), live: None }
    }

    /// A reading handle of a writable object: `dnode` as of now, blocks as of their reads.
    pub(crate) fn of_live(objset: Arc<ObjSet>, dnode: Arc<Dnode>, live: &LiveObject) -> Object {
        Object { live: Some(live.clone()), ..Object::new(objset, live.id(), dnode) }
    }

    /// The writable object whose newest state this shows; `None`: it shows the state on disk.
    pub fn live(&self) -> Option<&LiveObject> {
        self.live.as_ref()
    }

    /// Number of the object.
    pub fn id(&self) -> ObjectId {
        self.tree.id()
    }

    /// The dnode of the object.
    pub fn dnode(&self) -> &Dnode {
        self.tree.dnode()
    }

    /// The object set that contains the object.
    pub fn objset(&self) -> &Arc<ObjSet> {
        &self.objset
    }

    /// Byte order of the dnode and the bonus.
    pub fn order(&self) -> Endian {
        self.dnode().order
    }

    /// The valid bytes of the bonus; empty if the bonus is encrypted and the key is not loaded, because only
    /// ciphertext is available then.
    pub fn bonus(&self) -> &[u8] {
        if self.objset.is_locked() && self.dnode().bonus_type.is_encrypted() {
            &[]
        } else {
            self.dnode().valid_bonus()
        }
    }

    /// Bytes of a data block.
    pub fn block_size(&self) -> u64 {
        self.dnode().data_block_size()
    }

    /// End of the last block that the tree can hold, in bytes.
    pub fn logical_end(&self) -> u64 {
        self.dnode().maxblkid.0.saturating_add(1).saturating_mul(self.block_size())
    }

    /// An error about this object's structure.
    pub fn corrupt(&self, why: &'static str) -> DmuError {
        self.tree.corrupt(why)
    }

    /// The pointer to block `blkid` of `level` in the tree on disk; a hole if there is none. Costs a cached
    /// look-up per level.
    ///
    /// # Errors
    /// [`DmuError`] if an indirect block above it is damaged or cannot be read.
    pub fn block_ptr(&self, level: Level, blkid: BlockId) -> Result<BlockPtr, DmuError> {
        self.tree.pointer(level, blkid)
    }

    /// The data block with this number; `None` for a hole.
    ///
    /// # Errors
    /// [`DmuError`] if the block, or one above it, is damaged or cannot be read.
    pub fn block(&self, blkid: BlockId) -> Result<Option<Block>, DmuError> {
        if let Some(live) = &self.live {
            return live.block(blkid);
        }
        self.tree.block(blkid).inspect_err(|error| self.objset.store().tell(error, blkid))
    }

    /// Data blocks of the tree on disk in order, up to the first that cannot be read.
    fn blocks(&self, blocks: Range<u64>) -> Vec<BlockResult> {
        if let Some(only) = blocks.clone().next().filter(|only| only + 1 == blocks.end) {
            return vec![self.block(BlockId(only))];
        }
        let results = self.tree.blocks(blocks.clone());
        let mut errors =
            blocks.zip(&results).filter_map(|(blkid, result)| Some((blkid, result.as_ref().err()?)));
        if let Some((blkid, error)) = errors.next() {
            self.objset.store().tell(error, BlockId(blkid));
        }
        results
    }

    /// The spill block, if the object has one.
    ///
    /// # Errors
    /// [`DmuError`] if its pointer or the block is damaged or cannot be read.
    pub fn spill(&self) -> Result<Option<Block>, DmuError> {
        match &self.live {
            Some(live) => live.spill(),
            None => self.tree.spill(),
        }
    }

    /// Fills `buf` with the bytes from `offset` on; holes and bytes beyond the end are zeros. Blocks are read
    /// many at once, and sequential reads are followed by read-ahead.
    ///
    /// # Errors
    /// [`DmuError`] of the first block that is damaged or cannot be read.
    pub fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DmuError> {
        if let Some(live) = &self.live {
            return live.read_at(offset, buf);
        }
        let size = self.block_size();
        let max_block = self.dnode().maxblkid.0;
        let read = RangeRead { offset, len: buf.len() as u64, block_size: size, max_block };
        self.objset.store().follow(&self.streams, &read, &|blocks| {
            let tree = self.tree.clone();
            Box::new(move || tree.read_ahead(&blocks))
        });
        read_range(size, offset, buf, &|blocks| self.blocks(blocks), &|| self.corrupt("a short block"))
    }

    /// Like [`Object::read_at`], for an object that is an array of numbers of `width` bytes, a power of two:
    /// all are returned in little-endian order, whatever the byte order of each block. `offset` and length
    /// are multiples of the width.
    pub fn read_numbers(&self, offset: u64, width: usize, buf: &mut [u8]) -> Result<(), DmuError> {
        let size = self.block_size();
        let mut rest = buf;
        let mut at = offset;
        while !rest.is_empty() {
            let len = rest.len().min((size - at % size) as usize);
            let (part, after) = rest.split_at_mut(len);
            self.read_at(at, part)?;
            if self.block(BlockId(at / size))?.is_some_and(|block| block.order() == Endian::Big) {
                part.chunks_exact_mut(width).for_each(<[u8]>::reverse);
            }
            rest = after;
            at = at.saturating_add(len as u64);
        }
        Ok(())
    }

    /// The first offset at or after `offset` that is in a block, not a hole; `None` if there is none.
    ///
    /// # Errors
    /// [`DmuError`] if an indirect block is damaged or cannot be read, or the tree repeats itself.
    pub fn next_data(&self, offset: u64) -> Result<Option<u64>, DmuError> {
        let size = self.block_size();
        let found = self.next_block(offset / size, true)?;
        Ok(found.map(|blkid| offset.max(blkid.saturating_mul(size))))
    }

    /// The first offset at or after `offset` that is in a hole; [`Object::logical_end`] or `offset`,
    /// whichever is greater, if there is no hole before.
    ///
    /// # Errors
    /// Those of [`Object::next_data`].
    pub fn next_hole(&self, offset: u64) -> Result<u64, DmuError> {
        let size = self.block_size();
        let found = self.next_block(offset / size, false)?;
        Ok(offset.max(found.map_or_else(|| self.logical_end(), |blkid| blkid.saturating_mul(size))))
    }

    fn next_block(&self, from: u64, data: bool) -> Result<Option<u64>, DmuError> {
        match &self.live {
            Some(live) => live.next_block(from, data),
            None => self.tree.next(from, data),
        }
    }

    /// The blocks in order, starting with `first`: for reading lists and logs.
    pub fn blocks_from(&self, first: BlockId) -> Blocks {
        Blocks { object: self.clone(), next: first, seen: HashSet::new() }
    }
}

/// Iterator over the blocks of a list or log. Such objects belong to the pool itself, where no block has two
/// pointers: a list that a hostile pool made longer than its stored blocks is detected.
pub struct Blocks {
    object: Object,
    next: BlockId,
    /// First addresses of the blocks and indirect blocks that were met.
    seen: HashSet<[u64; 2]>,
}

impl Blocks {
    /// The next block; `None` if it is a hole.
    pub fn next_block(&mut self) -> Result<Option<Block>, DmuError> {
        let id = self.next;
        self.next = BlockId(id.0.saturating_add(1));
        let epbs = self.object.dnode().epbs();
        if self.object.dnode().nlevels > 1 && (self.seen.is_empty() || id.0.is_multiple_of(1 << epbs)) {
            let above = self.object.block_ptr(Level(1), BlockId(shift_right(id.0, epbs)))?;
            self.note(&above)?;
        }
        let bp = self.object.block_ptr(Level(0), id)?;
        self.note(&bp)?;
        self.object.block(id)
    }

    fn note(&mut self, bp: &BlockPtr) -> Result<(), DmuError> {
        match bp.dvas().next() {
            Some(dva) if !bp.is_embedded() && !self.seen.insert(dva.to_words()) => {
                Err(self.object.corrupt("one block in two places of a list"))
            }
            _ => Ok(()),
        }
    }
}

impl ZapBlocks for Object {
    fn block_size(&self) -> u64 {
        Object::block_size(self)
    }

    fn max_block(&self) -> BlockId {
        self.dnode().maxblkid
    }

    fn block(&self, id: BlockId) -> Result<Option<Block>, DmuError> {
        Object::block(self, id)
    }
}

impl LiveObject {
    /// A reading handle: header and bonus as of now, blocks as of their reads.
    pub fn read(&self) -> Object {
        self.read_through(self.set().view())
    }

    pub(crate) fn read_through(&self, view: Arc<ObjSet>) -> Object {
        Object::of_live(view, self.image(), self)
    }
}
