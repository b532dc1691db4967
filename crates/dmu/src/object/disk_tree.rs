//! The block tree of one object on disk: from the dnode to level-0 pointers, and the blocks behind them.
//!
//! [`Object`](crate::Object) reads through the tree of its dnode, [`LiveObject`](crate::LiveObject) through
//! that of its last sync if its overlays do not have the block. Blocks of a range are read in batches: the
//! walk yields the pointers, the store reads the uncached blocks with one request to the block layer.
//!
//! # What always holds
//! - A walk holds one indirect block at a time, and levels fall, so it ends.
//! - A block without a checksum, of a state that may be too old, is returned only if that state is still
//!   valid after the read.

use crate::set_blocks::{Lease, SetBlocks, TreeShape};
use crate::store::{BATCH_BLOCKS, BATCH_BYTES};
use crate::{DmuError, LoopGuard};
use format::blkptr::BLKPTR_SIZE;
use format::dnode::Dnode;
use format::{BlockId, BlockPtr, Level, ObjType, ObjectId};
use std::ops::Range;
use std::sync::Arc;
use zio::Block;

/// Result of reading a data block: `None` for a hole.
pub(crate) type BlockResult = Result<Option<Block>, DmuError>;

/// The block tree of an object, as described by a dnode. Cheap to clone.
#[derive(Clone)]
pub(crate) struct DiskTree {
    set: Arc<SetBlocks>,
    id: ObjectId,
    dnode: Arc<Dnode>,
}

/// Level-0 pointers of a range of blocks, in order.
pub(crate) struct Leaves {
    /// The pointers, holes included.
    pub(crate) pointers: Vec<BlockPtr>,
    /// The error of reading the next pointer, if there are fewer pointers than blocks.
    pub(crate) error: Option<DmuError>,
}

/// The indirect block of level 1 that a walk holds: its number, and its contents unless it is a hole.
type Held = Option<(u64, Option<Block>)>;

impl DiskTree {
    pub(crate) fn new(set: Arc<SetBlocks>, id: ObjectId, dnode: Arc<Dnode>) -> DiskTree {
        DiskTree { set, id, dnode }
    }

    pub(crate) fn id(&self) -> ObjectId {
        self.id
    }

    pub(crate) fn dnode(&self) -> &Arc<Dnode> {
        &self.dnode
    }

    pub(crate) fn shape(&self) -> TreeShape {
        TreeShape::of(self.id, &self.dnode)
    }

    pub(crate) fn corrupt(&self, why: &'static str) -> DmuError {
        self.set.corrupt(self.id, why)
    }

    fn read(&self, bp: &BlockPtr, level: Level) -> Result<Block, DmuError> {
        self.set.read(&self.shape(), bp, level)
    }

    /// The pointer at an index of an indirect block; a hole after the last one that was written.
    fn child(&self, block: &Block, index: u64) -> Result<BlockPtr, DmuError> {
        let start = usize::try_from(index).unwrap_or(usize::MAX).saturating_mul(BLKPTR_SIZE);
        match block.bytes().get(start..).filter(|bytes| !bytes.is_empty()) {
            Some(bytes) => BlockPtr::decode(bytes, block.order())
                .map_err(|source| self.set.decode_error(self.id, source)),
            None => Ok(BlockPtr::HOLE),
        }
    }

    /// The pointer to block `blkid` of `level`; a hole if there is none. Costs a cached look-up per level.
    ///
    /// # Errors
    /// [`DmuError`] if an indirect block above it is damaged or cannot be read.
    pub(crate) fn pointer(&self, level: Level, blkid: BlockId) -> Result<BlockPtr, DmuError> {
        let epbs = self.dnode.epbs();
        let top = Level(self.dnode.nlevels - 1);
        let Some(up) = top.0.checked_sub(level.0) else { return Ok(BlockPtr::HOLE) };
        let index = shift_right(blkid.0, epbs * u32::from(up));
        let first = usize::try_from(index).ok().and_then(|i| self.dnode.blkptrs.get(i));
        let Some(mut bp) = first.copied() else { return Ok(BlockPtr::HOLE) };
        let mut at = top;
        while at > level && !bp.is_hole() {
            let block = self.read(&bp, at)?;
            at = Level(at.0 - 1);
            let index = shift_right(blkid.0, epbs * u32::from(at.0 - level.0)) & ((1 << epbs) - 1);
            bp = self.child(&block, index)?;
        }
        Ok(bp)
    }

    /// The pointer to a data block; `None` for a hole, and beyond the highest block number.
    ///
    /// # Errors
    /// Those of [`DiskTree::pointer`].
    pub(crate) fn leaf(&self, blkid: BlockId) -> Result<Option<BlockPtr>, DmuError> {
        if blkid > self.dnode.maxblkid {
            return Ok(None);
        }
        let bp = self.pointer(Level(0), blkid)?;
        Ok(Some(bp).filter(|bp| !bp.is_hole()))
    }

    /// The pointers to data blocks, each indirect block above them looked up once.
    pub(crate) fn leaves(&self, blocks: impl Iterator<Item = u64>) -> Leaves {
        let mut leaves = Leaves { pointers: Vec::with_capacity(blocks.size_hint().0), error: None };
        let mut held = None;
        for blkid in blocks {
            match self.leaf_below(blkid, &mut held) {
                Ok(bp) => leaves.pointers.push(bp),
                Err(error) => {
                    leaves.error = Some(error);
                    break;
                }
            }
        }
        leaves
    }

    fn leaf_below(&self, blkid: u64, held: &mut Held) -> Result<BlockPtr, DmuError> {
        if blkid > self.dnode.maxblkid.0 {
            return Ok(BlockPtr::HOLE);
        }
        if self.dnode.nlevels < 2 {
            return self.pointer(Level(0), BlockId(blkid));
        }
        let epbs = self.dnode.epbs();
        let above = shift_right(blkid, epbs);
        if held.as_ref().is_none_or(|(number, _)| *number != above) {
            let bp = self.pointer(Level(1), BlockId(above))?;
            let block = if bp.is_hole() { None } else { Some(self.read(&bp, Level(1))?) };
            *held = Some((above, block));
        }
        match held {
            Some((_, Some(block))) => self.child(block, blkid & ((1 << epbs) - 1)),
            _ => Ok(BlockPtr::HOLE),
        }
    }

    /// A data block; `None` for a hole.
    ///
    /// # Errors
    /// [`DmuError`] if its pointer or the block is damaged or cannot be read.
    pub(crate) fn block(&self, blkid: BlockId) -> BlockResult {
        let Some(bp) = self.leaf(blkid)? else { return Ok(None) };
        match self.set.doubt(&bp) {
            None => self.data(&bp).map(Some),
            Some(lease) => self.leased(&bp, blkid, lease).map(Some),
        }
    }

    /// Whether a pointer is valid at level 0 of the tree.
    pub(crate) fn is_leaf(&self, bp: &BlockPtr) -> bool {
        self.set.check_pointer(&self.shape(), bp, Level(0)).is_ok()
    }

    /// The data block of a pointer of this tree.
    ///
    /// # Errors
    /// [`DmuError`] if the pointer does not match its place, or the block cannot be read.
    pub(crate) fn data(&self, bp: &BlockPtr) -> Result<Block, DmuError> {
        self.read(bp, Level(0))
    }

    /// The data blocks of pointers of this tree, read in one batch; results in the order of `bps`, `None` for
    /// holes.
    pub(crate) fn data_many(&self, bps: &[BlockPtr]) -> Vec<BlockResult> {
        let shape = self.shape();
        let mut results: Vec<Option<BlockResult>> = Vec::with_capacity(bps.len());
        let mut wanted = Vec::with_capacity(bps.len());
        for bp in bps {
            results.push(match self.set.check_pointer(&shape, bp, Level(0)) {
                _ if bp.is_hole() => Some(Ok(None)),
                Err(error) => Some(Err(error)),
                Ok(()) => {
                    wanted.push(*bp);
                    None
                }
            });
        }
        let mut read = self.set.store.read_many(&wanted, self.set.key()).into_iter();
        let next = |result: Option<BlockResult>| match result {
            Some(known) => Some(known),
            None => Some(read.next()?.map(Some).map_err(|source| self.set.zio_error(self.id, source))),
        };
        results.into_iter().map_while(next).collect()
    }

    /// Data blocks in order, read in batches if possible. Ends after the first error of the walk to them.
    pub(crate) fn blocks(&self, blocks: Range<u64>) -> Vec<BlockResult> {
        let Leaves { pointers, error } = self.leaves(blocks.clone());
        let is_doubtful = |bp: &BlockPtr| !bp.is_hole() && self.set.doubt(bp).is_some();
        let mut results = if pointers.iter().any(is_doubtful) {
            let ids = blocks.map(BlockId).take(pointers.len());
            ids.map(|blkid| self.block(blkid)).collect()
        } else {
            self.data_many(&pointers)
        };
        results.extend(error.map(Err));
        results
    }

    /// A data block without a checksum, of a state that may be too old: the bytes are accepted only if the
    /// state was still valid after the read.
    fn leased(&self, bp: &BlockPtr, blkid: BlockId, lease: &dyn Lease) -> Result<Block, DmuError> {
        self.set.check_pointer(&self.shape(), bp, Level(0))?;
        let number = self.set.number;
        let stands = || !lease.has_lapsed() || lease.is_in_newest(number, self.id, blkid, bp);
        let read = self.set.store.read_standing(bp, self.set.key(), &stands);
        let read = read.map_err(|source| self.set.zio_error(self.id, source))?;
        read.ok_or(DmuError::TooOld { objset: number, object: self.id })
    }

    /// Reads data blocks into the cache ahead of their requests. Errors are left to the reader that requests
    /// them.
    pub(crate) fn read_ahead(&self, blocks: &[u64]) {
        let (shape, set) = (self.shape(), &self.set);
        let mut pointers = self.leaves(blocks.iter().copied()).pointers;
        pointers.retain(|bp| !bp.is_hole() && set.check_pointer(&shape, bp, Level(0)).is_ok());
        let stands = |bp: &BlockPtr| set.doubt(bp).is_none_or(|lease| !lease.has_lapsed());
        set.store.read_ahead(&pointers, set.key(), &stands);
    }

    /// The spill block of the dnode.
    ///
    /// # Errors
    /// [`DmuError`] if its pointer or the block is damaged or cannot be read.
    pub(crate) fn spill(&self) -> BlockResult {
        let Some(bp) = self.dnode.spill.filter(|bp| !bp.is_hole()) else { return Ok(None) };
        if bp.level() != Level(0) || bp.obj_type() != self.dnode.bonus_type {
            return Err(self.corrupt("a spill pointer of the wrong type"));
        }
        let read = self.set.store.read(&bp, self.set.key());
        read.map(Some).map_err(|source| self.set.zio_error(self.id, source))
    }

    /// The first block at or after `from` that holds data, or (`data` is false) that is a hole; `None` if
    /// there is none up to the highest block number.
    ///
    /// # Errors
    /// [`DmuError`] if an indirect block is damaged or cannot be read, or the tree repeats itself.
    pub(crate) fn next(&self, from: u64, data: bool) -> Result<Option<u64>, DmuError> {
        if from > self.dnode.maxblkid.0 {
            return Ok(None);
        }
        let mut search = Search { data, from, guard: LoopGuard::new(&self.set.store) };
        let top = Level(self.dnode.nlevels - 1);
        for (index, bp) in self.dnode.blkptrs.iter().enumerate() {
            if let Some(found) = self.search_below(&mut search, top, index as u64, bp)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// Searches below the pointer `index` of `level`. Levels fall, so that this ends.
    fn search_below(
        &self,
        search: &mut Search,
        level: Level,
        index: u64,
        bp: &BlockPtr,
    ) -> Result<Option<u64>, DmuError> {
        let epbs = self.dnode.epbs();
        let span = 1_u64.checked_shl(epbs * u32::from(level.0));
        // Beyond the range of block numbers is beyond the end of every object.
        let Some(first) = span.map_or((index == 0).then_some(0), |span| index.checked_mul(span)) else {
            return Ok(None);
        };
        let last = span.map_or(u64::MAX, |span| first.saturating_add(span - 1));
        if last < search.from || first > self.dnode.maxblkid.0 {
            return Ok(None);
        }
        if bp.is_hole() || level == Level(0) {
            return Ok((bp.is_hole() != search.data).then_some(first.max(search.from)));
        }
        // A pointer counts the blocks below it (that of dnodes counts dnodes).
        let is_full = self.dnode.obj_type != ObjType::DNODE && span.is_some_and(|span| bp.fill() >= span);
        if is_full && !search.data {
            return Ok(None);
        }
        if !search.guard.take(bp, self.id.0, level.0, index) {
            return Err(self.corrupt("its tree repeats itself"));
        }
        let block = self.read(bp, level)?;
        let below = Level(level.0 - 1);
        let passed = shift_right(search.from.saturating_sub(first), epbs * u32::from(below.0));
        let there = BlockPtr::decode_all(block.bytes(), block.order());
        let children = there.chain(std::iter::repeat(BlockPtr::HOLE)).take(1 << epbs);
        for (i, child) in children.enumerate().skip(usize::try_from(passed).unwrap_or(usize::MAX)) {
            let Some(index) = (index << epbs).checked_add(i as u64) else { break };
            if let Some(found) = self.search_below(search, below, index, &child)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }
}

/// A search for data or for holes.
struct Search {
    /// Search for data; otherwise for holes.
    data: bool,
    from: u64,
    guard: LoopGuard,
}

/// Fills `buf` with the bytes from `offset` on of an object with data blocks of `size` bytes; holes are
/// zeros. `read` reads blocks, in order, and ends early after an error. `short` makes the error for a block
/// of fewer bytes.
///
/// # Errors
/// The error of the first block that `read` cannot supply.
pub(crate) fn read_range(
    size: u64,
    offset: u64,
    buf: &mut [u8],
    read: &dyn Fn(Range<u64>) -> Vec<BlockResult>,
    short: &dyn Fn() -> DmuError,
) -> Result<(), DmuError> {
    let together = (BATCH_BYTES / size).clamp(1, BATCH_BLOCKS);
    let (mut rest, mut at) = (buf, offset);
    while !rest.is_empty() {
        let first = at / size;
        let end = at.saturating_add(rest.len() as u64).div_ceil(size).min(first.saturating_add(together));
        let mut blocks = read(first..end.max(first + 1)).into_iter();
        for _ in first..end.max(first + 1) {
            let block = blocks.next().ok_or_else(short)??;
            let within = (at % size) as usize;
            let len = rest.len().min(size as usize - within);
            let (part, after) = rest.split_at_mut(len);
            match block {
                Some(block) => {
                    let bytes = block.bytes().get(within..within + len);
                    part.copy_from_slice(bytes.ok_or_else(short)?);
                }
                None => part.fill(0),
            }
            rest = after;
            at = at.saturating_add(len as u64);
        }
    }
    Ok(())
}

/// `value >> by`, also where `by` is 64 or more.
pub(crate) fn shift_right(value: u64, by: u32) -> u64 {
    value.checked_shr(by).unwrap_or(0)
}
