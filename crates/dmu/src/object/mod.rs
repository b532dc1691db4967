//! Reading one object: its block tree, its bonus, its spill block, its holes.

pub(crate) mod cell;
pub(crate) mod live;
pub(crate) mod tail;
pub(crate) mod tree;

use crate::LiveObject;
use crate::zap::ZapBlocks;
use crate::{DmuError, Lease, LoopGuard, ObjSet};
use codec::crypt::DataKey;
use format::dnode::Dnode;
use format::{BlockId, BlockPtr, Endian, Level, ObjType, ObjectId};
use std::collections::HashSet;
use std::sync::Arc;
use zio::{Block, ZioError};

/// An object of an object set. Cloning is cheap.
#[derive(Clone)]
pub struct Object {
    objset: Arc<ObjSet>,
    id: ObjectId,
    dnode: Arc<Dnode>,
    /// The writable object that this shows in its newest state.
    live: Option<LiveObject>,
}

impl Object {
    pub(crate) fn new(objset: Arc<ObjSet>, id: ObjectId, dnode: Arc<Dnode>) -> Object {
        Object { objset, id, dnode, live: None }
    }

    /// A reading handle of a writable object: `dnode` as it is now, blocks as they are when asked for.
    pub(crate) fn of_live(objset: Arc<ObjSet>, dnode: Arc<Dnode>, live: LiveObject) -> Object {
        Object { objset, id: live.id(), dnode, live: Some(live) }
    }

    /// The writable object that this shows, if it shows one.
    pub fn live(&self) -> Option<&LiveObject> {
        self.live.as_ref()
    }

    /// Its number.
    pub fn id(&self) -> ObjectId {
        self.id
    }

    /// Its dnode.
    pub fn dnode(&self) -> &Dnode {
        &self.dnode
    }

    /// The object set it belongs to.
    pub fn objset(&self) -> &Arc<ObjSet> {
        &self.objset
    }

    /// The byte order of its dnode and bonus.
    pub fn order(&self) -> Endian {
        self.dnode.order
    }

    /// The valid bytes of its bonus; none if the bonus is encrypted and the key is not loaded, because
    /// what is there then is ciphertext.
    pub fn bonus(&self) -> &[u8] {
        if self.objset.is_locked() && self.dnode.bonus_type.is_encrypted() {
            &[]
        } else {
            self.dnode.valid_bonus()
        }
    }

    /// Bytes of a data block.
    pub fn block_size(&self) -> u64 {
        self.dnode.data_block_size()
    }

    /// One past the last byte that the tree can hold: blocks up to the highest number.
    pub fn logical_end(&self) -> u64 {
        self.dnode.maxblkid.0.saturating_add(1).saturating_mul(self.block_size())
    }

    /// An error about this object's structure.
    pub fn corrupt(&self, why: &'static str) -> DmuError {
        DmuError::Corrupt { objset: self.objset.number(), object: self.id, why }
    }

    pub(crate) fn zio_error(&self, source: ZioError) -> DmuError {
        match source {
            ZioError::Locked { .. } => DmuError::Locked { objset: self.objset.number() },
            source => DmuError::Zio { objset: self.objset.number(), object: self.id, source },
        }
    }

    /// Reads the block behind a pointer of this object, checking that the pointer is what its place
    /// in the tree demands.
    fn read(&self, bp: &BlockPtr, level: Level) -> Result<Block, DmuError> {
        let size = if level.0 == 0 { self.block_size() } else { self.dnode.indirect_size() };
        self.check_pointer(bp, level, size)?;
        self.objset.store().read(bp, self.objset.key().key()).map_err(|e| self.zio_error(e))
    }

    /// The pointers of an indirect block, checked likewise; those that are missing at its end are holes.
    fn pointers(&self, bp: &BlockPtr, level: Level) -> Result<Block, DmuError> {
        self.check_pointer(bp, level, self.dnode.indirect_size())?;
        self.objset.store().pointers(bp, self.objset.key().key()).map_err(|e| self.zio_error(e))
    }

    fn check_pointer(&self, bp: &BlockPtr, level: Level, size: u64) -> Result<(), DmuError> {
        if bp.level() != level {
            return Err(self.corrupt("a block pointer of the wrong level"));
        }
        if bp.obj_type() != self.dnode.obj_type {
            return Err(self.corrupt("a block pointer of the wrong type"));
        }
        if bp.lsize().0 != size {
            return Err(self.corrupt("a block of the wrong size"));
        }
        Ok(())
    }

    /// The pointer to block `blkid` of `level`, a hole if nothing is there. Costs a cached look-up per
    /// level.
    pub fn block_ptr(&self, level: Level, blkid: BlockId) -> Result<BlockPtr, DmuError> {
        Ok(self.descend(level, blkid)?.0)
    }

    /// Walks from the top towards block `blkid` of `level`; stops early at a hole. Returns the pointer
    /// and the level at which it was found.
    fn descend(&self, level: Level, blkid: BlockId) -> Result<(BlockPtr, Level), DmuError> {
        let epbs = self.dnode.epbs();
        let top = Level(self.dnode.nlevels - 1);
        let Some(up) = top.0.checked_sub(level.0) else { return Ok((BlockPtr::HOLE, top)) };
        let index = shift_right(blkid.0, epbs * u32::from(up));
        let Some(mut bp) = usize::try_from(index).ok().and_then(|i| self.dnode.blkptrs.get(i)).copied()
        else {
            return Ok((BlockPtr::HOLE, top));
        };
        let mut at = top;
        while at > level && !bp.is_hole() {
            let block = self.pointers(&bp, at)?;
            at = Level(at.0 - 1);
            let index = shift_right(blkid.0, epbs * u32::from(at.0 - level.0)) & ((1 << epbs) - 1);
            let start = index as usize * format::blkptr::BLKPTR_SIZE;
            let Some(bytes) = block.bytes().get(start..).filter(|bytes| !bytes.is_empty()) else {
                return Ok((BlockPtr::HOLE, at));
            };
            bp = BlockPtr::decode(bytes, block.order()).map_err(|source| DmuError::Decode {
                objset: self.objset.number(),
                object: self.id,
                source,
            })?;
        }
        Ok((bp, at))
    }

    /// The data block with this number; `None` for a hole.
    pub fn block(&self, blkid: BlockId) -> Result<Option<Block>, DmuError> {
        if let Some(live) = &self.live {
            return live.block(blkid);
        }
        self.block_on_disk(blkid).inspect_err(|error| self.objset.store().tell(error, blkid))
    }

    /// The same in the tree on disk; nobody is told of errors.
    pub(crate) fn block_on_disk(&self, blkid: BlockId) -> Result<Option<Block>, DmuError> {
        let Some(bp) = self.pointer_on_disk(blkid)? else { return Ok(None) };
        match self.objset.lease().filter(|_| !is_proved(&bp, self.objset.key().key())) {
            None => self.data_of(&bp).map(Some),
            Some(lease) => self.leased(&bp, blkid, &**lease).map(Some),
        }
    }

    /// A data block without a checksum, of a state that may be too old: what the devices gave is the block only if that
    /// still stood there afterwards.
    fn leased(&self, bp: &BlockPtr, blkid: BlockId, lease: &dyn Lease) -> Result<Block, DmuError> {
        self.check_pointer(bp, Level(0), self.block_size())?;
        let stands = || !lease.has_lapsed() || self.is_in_newest(bp, blkid, lease);
        let read = self.objset.store().read_standing(bp, self.objset.key().key(), &stands);
        let number = self.objset.number();
        read.map_err(|e| self.zio_error(e))?.ok_or(DmuError::TooOld { objset: number, object: self.id })
    }

    /// The newest state on disk leads to this block from the same place: it was never freed.
    fn is_in_newest(&self, bp: &BlockPtr, blkid: BlockId, lease: &dyn Lease) -> bool {
        let object = lease.newest(self.objset.number()).and_then(|newest| newest.object(self.id).ok());
        object.and_then(|object| object.pointer_on_disk(blkid).ok().flatten()).is_some_and(|now| now == *bp)
    }

    /// What leads to a data block in the tree on disk; `None` for a hole.
    pub(crate) fn pointer_on_disk(&self, blkid: BlockId) -> Result<Option<BlockPtr>, DmuError> {
        if blkid > self.dnode.maxblkid {
            return Ok(None);
        }
        let bp = self.block_ptr(Level(0), blkid)?;
        Ok(Some(bp).filter(|bp| !bp.is_hole()))
    }

    /// The data block that a pointer of this object leads to.
    pub(crate) fn data_of(&self, bp: &BlockPtr) -> Result<Block, DmuError> {
        self.read(bp, Level(0))
    }

    /// Brings a data block into the cache before it is asked for.
    pub(crate) fn read_ahead(&self, blkid: BlockId) {
        if blkid <= self.dnode.maxblkid
            && let Ok(bp) = self.block_ptr(Level(0), blkid)
            && self.check_pointer(&bp, Level(0), self.block_size()).is_ok()
        {
            let key = self.objset.key().key();
            let lease = self.objset.lease().filter(|_| !is_proved(&bp, key));
            self.objset.store().read_ahead(&bp, key, &|| lease.is_none_or(|lease| !lease.has_lapsed()));
        }
    }

    /// The spill block, if the object has one.
    pub fn spill(&self) -> Result<Option<Block>, DmuError> {
        if let Some(live) = &self.live {
            return live.spill();
        }
        self.spill_on_disk()
    }

    /// The spill block that the dnode points to.
    pub(crate) fn spill_on_disk(&self) -> Result<Option<Block>, DmuError> {
        let Some(bp) = self.dnode.spill.filter(|bp| !bp.is_hole()) else { return Ok(None) };
        if bp.level().0 != 0 || bp.obj_type() != self.dnode.bonus_type {
            return Err(self.corrupt("a spill pointer of the wrong type"));
        }
        self.objset.store().read(&bp, self.objset.key().key()).map(Some).map_err(|e| self.zio_error(e))
    }

    /// Fills `buf` with the bytes from `offset` on; holes and what lies beyond the end are zeros.
    pub fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DmuError> {
        let size = self.block_size();
        let mut rest = buf;
        let mut at = offset;
        while !rest.is_empty() {
            let within = (at % size) as usize;
            let len = rest.len().min(size as usize - within);
            let (part, after) = rest.split_at_mut(len);
            match self.block(BlockId(at / size))? {
                Some(block) => {
                    let bytes = block.bytes().get(within..within + len);
                    part.copy_from_slice(bytes.ok_or_else(|| self.corrupt("a short block"))?);
                }
                None => part.fill(0),
            }
            rest = after;
            at = at.saturating_add(len as u64);
        }
        Ok(())
    }

    /// As [`Object::read_at`], of an object that is an array of numbers of `width` bytes, a power of two: all of them
    /// in the little order, whichever order their blocks have, each its own. `offset` and length are multiples
    /// of the width.
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
    pub fn next_data(&self, offset: u64) -> Result<Option<u64>, DmuError> {
        let size = self.block_size();
        let found = match &self.live {
            Some(live) => live.next_block(offset / size, true)?,
            None => self.search(Wanted::Data, offset / size)?,
        };
        Ok(found.map(|blkid| offset.max(blkid.saturating_mul(size))))
    }

    /// The first offset at or after `offset` that is in a hole; [`Object::logical_end`] or `offset`,
    /// whichever is greater, if no hole comes before.
    pub fn next_hole(&self, offset: u64) -> Result<u64, DmuError> {
        let size = self.block_size();
        let found = match &self.live {
            Some(live) => live.next_block(offset / size, false)?,
            None => self.search(Wanted::Hole, offset / size)?,
        };
        Ok(offset.max(found.map_or_else(|| self.logical_end(), |blkid| blkid.saturating_mul(size))))
    }

    /// The first block from `from` on that is in the tree on disk, or in none of its holes.
    pub(crate) fn next_on_disk(&self, from: u64, data: bool) -> Result<Option<u64>, DmuError> {
        self.search(if data { Wanted::Data } else { Wanted::Hole }, from)
    }

    /// The first block from `from` on that is one, or is none.
    fn search(&self, wanted: Wanted, from: u64) -> Result<Option<u64>, DmuError> {
        if from > self.dnode.maxblkid.0 {
            return Ok(None);
        }
        let mut search = Search { wanted, from, guard: LoopGuard::new(self.objset.store()) };
        let top = Level(self.dnode.nlevels - 1);
        for (index, bp) in self.dnode.blkptrs.iter().enumerate() {
            if let Some(found) = self.search_below(&mut search, top, index as u64, bp)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// The same below the pointer `index` of `level`. Levels fall, so that this ends.
    fn search_below(
        &self,
        search: &mut Search,
        level: Level,
        index: u64,
        bp: &BlockPtr,
    ) -> Result<Option<u64>, DmuError> {
        let shift = self.dnode.epbs() * u32::from(level.0);
        let span = 1_u64.checked_shl(shift);
        // What no block number reaches is beyond the end of every object.
        let Some(first) = span.map_or((index == 0).then_some(0), |span| index.checked_mul(span)) else {
            return Ok(None);
        };
        let last = span.map_or(u64::MAX, |span| first.saturating_add(span - 1));
        if last < search.from || first > self.dnode.maxblkid.0 {
            return Ok(None);
        }
        if bp.is_hole() || level.0 == 0 {
            let is_wanted = bp.is_hole() == (search.wanted == Wanted::Hole);
            return Ok(is_wanted.then_some(first.max(search.from)));
        }
        // A pointer counts the blocks below it (that of dnodes counts dnodes).
        let is_full = self.dnode.obj_type != ObjType::DNODE && span.is_some_and(|span| bp.fill() >= span);
        if is_full && search.wanted == Wanted::Hole {
            return Ok(None);
        }
        if !search.guard.take(bp, self.id.0, level.0, index) {
            return Err(self.corrupt("its tree repeats itself"));
        }
        let block = self.pointers(bp, level)?;
        let below = Level(level.0 - 1);
        let passed = shift_right(search.from.saturating_sub(first), self.dnode.epbs() * u32::from(below.0));
        let there = BlockPtr::decode_all(block.bytes(), block.order());
        let children = there.chain(std::iter::repeat(BlockPtr::HOLE)).take(1 << self.dnode.epbs());
        for (i, child) in children.enumerate().skip(usize::try_from(passed).unwrap_or(usize::MAX)) {
            let Some(index) = (index << self.dnode.epbs()).checked_add(i as u64) else { break };
            if let Some(found) = self.search_below(search, below, index, &child)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// Its blocks one after the other from `first` on: how lists and logs are read.
    pub fn blocks_from(&self, first: BlockId) -> Blocks {
        Blocks { object: self.clone(), next: first, seen: HashSet::new() }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Data,
    Hole,
}

/// A search going on.
struct Search {
    wanted: Wanted,
    from: u64,
    guard: LoopGuard,
}

/// The blocks of a list or log in order. Such objects are of the pool itself, where no two pointers lead to
/// one block: a list that a hostile pool made longer than what it has stored is found out.
pub struct Blocks {
    object: Object,
    next: BlockId,
    /// First addresses of the blocks and indirect blocks met.
    seen: HashSet<[u64; 2]>,
}

impl Blocks {
    /// The next block; `None` if it is a hole.
    pub fn next_block(&mut self) -> Result<Option<Block>, DmuError> {
        let id = self.next;
        self.next = BlockId(id.0.saturating_add(1));
        let epbs = self.object.dnode.epbs();
        if self.object.dnode.nlevels > 1 && (self.seen.is_empty() || id.0.is_multiple_of(1 << epbs)) {
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
        self.dnode.maxblkid
    }

    fn block(&self, id: BlockId) -> Result<Option<Block>, DmuError> {
        Object::block(self, id)
    }
}

/// Whatever is read by a pointer, it is known whether that is what the pointer leads to.
pub(crate) fn is_proved(bp: &BlockPtr, key: Option<&DataKey>) -> bool {
    bp.is_embedded()
        || bp.checksum_kind().is_ok_and(|kind| !kind.is_none())
        || (key.is_some() && bp.uses_crypt())
}

/// `value >> by`, also where `by` is 64 or more.
fn shift_right(value: u64, by: u32) -> u64 {
    value.checked_shr(by).unwrap_or(0)
}
