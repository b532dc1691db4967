//! Writable objects: reading their newest state, and changing them.

use crate::DmuError;
use crate::object::cell::{Cell, Inner, Known, Leaf, Overlay, POINTER_COST, Spill};
use crate::object::disk_tree::{BlockResult, DiskTree, read_range};
use crate::objset::live::LiveSet;
use crate::store::RangeRead;
use format::dnode::Dnode;
use format::ids::SwapClass;
use format::units::{MAX_BLOCK, SECTOR};
use format::{BlockId, BlockPtr, Endian, ObjType, ObjectId};
use std::ops::Range;
use std::sync::Arc;
use zio::{AllocTx, Block};

/// Repetitions of a read whose object was written meanwhile, so that the reader's pointers are gone.
const RETRIES: usize = 4;
/// Most spare bytes in the buffer of an object's only block, so that it can grow in place.
const SPARE_MAX: usize = 16 << 10;

/// Space of an object on the devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taken {
    /// Bytes of its blocks, as of the last sync.
    pub used: u64,
    /// Size of the dnode, in slots of 512 bytes.
    pub slots: u8,
    /// Bytes of a data block.
    pub block_size: u64,
    /// Some data are only in memory: their space is not known yet.
    pub is_unwritten: bool,
    /// Bytes of blocks that were changed since, before compression: about so many will be written.
    pub dirty: u64,
}

/// Location of the newest contents of a block.
enum Found {
    /// In memory; `None`: it is a hole.
    Block(Option<Block>),
    /// On the devices.
    At(BlockPtr),
    /// Unknown: the location must be queried again.
    Unsure,
}

impl Found {
    fn pointer(&self) -> Option<BlockPtr> {
        if let Found::At(bp) = self { Some(*bp) } else { None }
    }
}

/// A writable object. Cheap to clone; all handles show and change one object.
#[derive(Clone)]
pub struct LiveObject {
    set: Arc<LiveSet>,
    pub(super) cell: Arc<Cell>,
}

impl LiveObject {
    pub(crate) fn new(set: Arc<LiveSet>, cell: Arc<Cell>) -> LiveObject {
        LiveObject { set, cell }
    }

    /// Number of the object.
    pub fn id(&self) -> ObjectId {
        self.cell.id
    }

    /// The object set that contains the object.
    pub fn set(&self) -> &Arc<LiveSet> {
        &self.set
    }

    /// Its dnode as it is now.
    pub(crate) fn image(&self) -> Arc<Dnode> {
        self.cell.lock().image()
    }

    /// Type of the object's data.
    pub fn obj_type(&self) -> ObjType {
        self.cell.lock().header.obj_type
    }

    /// Type of the bonus.
    pub fn bonus_type(&self) -> ObjType {
        self.cell.lock().header.bonus_type
    }

    /// Bytes of a data block.
    pub fn block_size(&self) -> u64 {
        self.cell.lock().header.block_size()
    }

    /// The highest block number; 0 also for an empty object.
    pub fn max_block(&self) -> BlockId {
        BlockId(self.cell.lock().header.maxblkid)
    }

    /// Size of the dnode, in slots of 512 bytes.
    pub fn slots(&self) -> u8 {
        self.cell.lock().header.extra_slots + 1
    }

    /// Calls `look` with the bonus.
    pub fn with_bonus<R>(&self, look: impl FnOnce(&[u8]) -> R) -> R {
        look(&self.cell.lock().header.bonus)
    }

    /// Bytes that the bonus may have, with or without a spill block beside it.
    pub fn bonus_capacity(&self, with_spill: bool) -> usize {
        self.cell.lock().header.bonus_capacity(with_spill)
    }

    /// Whether the dnode has room for a spill pointer beside its bonus.
    pub fn has_spill_room(&self) -> bool {
        let header = &self.cell.lock().header;
        header.has_room(header.bonus.len(), true)
    }

    pub(crate) fn zap_state(&self) -> &crate::zap::ZapState {
        &self.cell.zap
    }

    /// Whether the object has a spill block.
    pub fn has_spill(&self) -> bool {
        self.cell.lock().header.has_spill
    }

    /// The space of the object, read at one moment.
    pub fn taken(&self) -> Taken {
        let inner = self.cell.lock();
        Taken {
            used: inner.synced.as_ref().map_or(0, |dnode| dnode.used_bytes()),
            slots: inner.header.extra_slots + 1,
            block_size: inner.header.block_size(),
            is_unwritten: inner.is_unwritten(),
            dirty: inner.dirty_blocks().saturating_mul(inner.header.block_size()),
        }
    }

    /// A number that changes with every change of the object: for caches of decoded contents.
    pub fn version(&self) -> u64 {
        self.cell.lock().version
    }

    /// Applies `change` in the txg of `tx`.
    pub(super) fn change<R>(&self, tx: &dyn AllocTx, change: impl FnOnce(&mut Inner) -> R) -> R {
        let mut inner = self.cell.lock();
        let is_first = inner.touch(tx.txg());
        let result = change(&mut inner);
        drop(inner);
        self.set.note_change(&self.cell, tx.txg(), is_first);
        result
    }

    /// Replaces the bonus.
    pub fn set_bonus(&self, bytes: &[u8], tx: &dyn AllocTx) {
        self.change_bonus(tx, |bonus| {
            bonus.clear();
            bonus.extend_from_slice(bytes);
        });
    }

    /// Changes the bonus. It must fit: the number of pointers of a dnode never changes.
    pub fn change_bonus<R>(&self, tx: &dyn AllocTx, change: impl FnOnce(&mut Vec<u8>) -> R) -> R {
        self.change(tx, |inner| {
            let result = change(&mut inner.header.bonus);
            inner.header.bonus_tail.clear();
            let room = inner.header.bonus_capacity(inner.header.has_spill);
            assert!(inner.header.bonus.len() <= room, "a bonus beyond the {room} bytes of its dnode");
            result
        })
    }

    /// Changes the type of the bonus.
    pub fn set_bonus_type(&self, bonus_type: ObjType, tx: &dyn AllocTx) {
        self.change(tx, |inner| inner.header.bonus_type = bonus_type);
    }

    /// Changes the type of the data, as when an object without data becomes a ZAP.
    pub fn set_type(&self, obj_type: ObjType, tx: &dyn AllocTx) {
        self.change(tx, |inner| inner.header.obj_type = obj_type);
    }

    /// The spill block; `None`: there is none.
    pub fn spill(&self) -> Result<Option<Block>, DmuError> {
        let (known, synced) = {
            let inner = self.cell.lock();
            (inner.spill(), inner.synced.clone())
        };
        match (known, synced) {
            (Known::Data(bytes), _) => Ok(Some(Block::shared(bytes, Endian::Little))),
            (Known::Sealed, _) => Err(self.locked()),
            (Known::Pointer(_), Some(dnode)) => self.tree(dnode).spill(),
            _ => Ok(None),
        }
    }

    /// Replaces the spill block; `None` removes it. Bonus and spill pointer must fit into the dnode together.
    pub fn set_spill(&self, bytes: Option<Vec<u8>>, tx: &dyn AllocTx) {
        let added = bytes.as_ref().map_or(0, Vec::len);
        self.change(tx, |inner| {
            inner.header.has_spill = bytes.is_some();
            inner.open.spill = bytes.map_or(Spill::Drop, |bytes| Spill::Data(Arc::new(bytes)));
        });
        self.set.meter.add(tx.txg(), added as u64);
    }

    /// The block tree as of the last sync.
    fn tree(&self, dnode: Arc<Dnode>) -> DiskTree {
        DiskTree::new(Arc::clone(self.set.blocks()), self.id(), dnode)
    }

    /// A data block in its newest state; `None` for a hole.
    ///
    /// # Errors
    /// [`DmuError`] if the block, or one above it, is damaged or cannot be read.
    pub fn block(&self, blkid: BlockId) -> Result<Option<Block>, DmuError> {
        let mut last = None;
        // Contents that were read without a checksum, and the pointer that led to them.
        let mut unproved: Option<(BlockPtr, Block)> = None;
        for _ in 0..RETRIES {
            let (known, synced) = {
                let inner = self.cell.lock();
                (inner.known(blkid.0), inner.synced.clone())
            };
            let found = match (known, &synced) {
                (Known::Data(bytes), _) => return Ok(Some(Block::shared(bytes, Endian::Little))),
                (Known::Sealed, _) => return Err(self.locked()),
                (Known::Hole, _) | (Known::Unknown, None) => return Ok(None),
                (Known::Pointer(bp), _) => Ok((!bp.is_hole()).then_some((None, bp))),
                (Known::Unknown, Some(dnode)) => {
                    let tree = self.tree(Arc::clone(dnode));
                    tree.leaf(blkid).map(|bp| bp.map(|bp| (Some(tree), bp)))
                }
            };
            let read = match found {
                Ok(None) => return Ok(None),
                // The pointer is in the tree now, and was before the read.
                Ok(Some((_, bp))) if unproved.as_ref().is_some_and(|(read, _)| *read == bp) => {
                    return Ok(unproved.map(|(_, block)| block));
                }
                Ok(Some((Some(tree), bp))) => tree.data(&bp).map(|block| (bp, block)),
                Ok(Some((None, bp))) => self.read_pointer(&bp).map(|block| (bp, block)),
                Err(error) => Err(error),
            };
            match read {
                // Two txgs later the space may belong to another block: look up the pointer again.
                Ok(read) if !self.is_proved(&read.0) && self.is_written_since(synced.as_ref()) => {
                    unproved = Some(read);
                }
                Ok((_, block)) => return Ok(Some(block)),
                Err(error) if self.is_written_since(synced.as_ref()) => last = Some(error),
                Err(error) => {
                    self.set.store().tell(&error, blkid);
                    return Err(error);
                }
            }
        }
        Err(last.unwrap_or(DmuError::NoObject { objset: self.set.number(), object: self.id() }))
    }

    fn is_written_since(&self, synced: Option<&Arc<Dnode>>) -> bool {
        match (&self.cell.lock().synced, synced) {
            (Some(now), Some(then)) => !Arc::ptr_eq(now, then),
            (None, None) => false,
            _ => true,
        }
    }

    fn is_proved(&self, bp: &BlockPtr) -> bool {
        self.set.blocks().is_proved(bp)
    }

    /// The block of a pointer in an overlay.
    fn read_pointer(&self, bp: &BlockPtr) -> Result<Block, DmuError> {
        let blocks = self.set.blocks();
        blocks.store.read(bp, blocks.key()).map_err(|source| blocks.zio_error(self.id(), source))
    }

    /// Data blocks in their newest state, in order, up to the first that cannot be read. Blocks on disk are
    /// read in one batch; a block that was written meanwhile is read again by itself.
    fn blocks(&self, blocks: Range<u64>) -> Vec<BlockResult> {
        if let Some(only) = blocks.clone().next().filter(|only| only + 1 == blocks.end) {
            return vec![self.block(BlockId(only))];
        }
        let (known, synced) = {
            let inner = self.cell.lock();
            (blocks.clone().map(|blkid| inner.known(blkid)).collect::<Vec<_>>(), inner.synced.clone())
        };
        let found = self.find(blocks.clone(), known, synced.clone());
        let wanted: Vec<BlockPtr> = found.iter().filter_map(Found::pointer).collect();
        let set = self.set.blocks();
        let mut read = set.store.read_many(&wanted, set.key()).into_iter();
        let is_written = self.is_written_since(synced.as_ref());
        let mut results = Vec::with_capacity(found.len());
        for (blkid, found) in blocks.map(BlockId).zip(found) {
            let result = match found {
                Found::Block(block) => Ok(block),
                Found::At(bp) => match read.next() {
                    Some(Ok(block)) if !is_written || self.is_proved(&bp) => Ok(Some(block)),
                    Some(Err(source)) if !is_written => Err(set.zio_error(self.id(), source))
                        .inspect_err(|error| set.store.tell(error, blkid)),
                    _ => self.block(blkid),
                },
                Found::Unsure => self.block(blkid),
            };
            let is_end = result.is_err();
            results.push(result);
            if is_end {
                break;
            }
        }
        results
    }

    /// The locations of the newest contents of blocks: in the overlays, or by the pointers of the tree on
    /// disk.
    fn find(&self, blocks: Range<u64>, known: Vec<Known>, synced: Option<Arc<Dnode>>) -> Vec<Found> {
        let tree = synced.map(|dnode| self.tree(dnode));
        let is_unknown = |known: &Known| matches!(known, Known::Unknown);
        let unknown = blocks.zip(&known).filter(|(_, known)| is_unknown(known)).map(|(blkid, _)| blkid);
        let leaves = tree.as_ref().map(|tree| tree.leaves(unknown).pointers);
        let mut leaves = leaves.map(Vec::into_iter);
        let check = |bp: BlockPtr| match &tree {
            _ if bp.is_hole() => Found::Block(None),
            Some(tree) if tree.is_leaf(&bp) => Found::At(bp),
            _ => Found::Unsure,
        };
        let find = |known| match (known, &mut leaves) {
            (Known::Data(bytes), _) => Found::Block(Some(Block::shared(bytes, Endian::Little))),
            (Known::Sealed, _) => Found::Unsure,
            (Known::Pointer(bp), _) if !bp.is_hole() => Found::At(bp),
            (Known::Pointer(_) | Known::Hole, _) | (Known::Unknown, None) => Found::Block(None),
            // A block whose pointer could not be read is looked up again, by itself.
            (Known::Unknown, Some(leaves)) => leaves.next().map_or(Found::Unsure, check),
        };
        known.into_iter().map(find).collect()
    }

    /// Reads blocks into the cache, unless they are in memory.
    pub fn read_ahead(&self, blocks: &[u64]) {
        let (known, synced) = {
            let inner = self.cell.lock();
            (blocks.iter().map(|blkid| inner.known(*blkid)).collect::<Vec<_>>(), inner.synced.clone())
        };
        let set = self.set.blocks();
        let mut unknown = Vec::with_capacity(blocks.len());
        let mut assigned = Vec::new();
        for (blkid, known) in blocks.iter().zip(known) {
            match known {
                Known::Pointer(bp) if !bp.is_hole() => assigned.push(bp),
                Known::Unknown => unknown.push(*blkid),
                _ => {}
            }
        }
        if !assigned.is_empty() {
            set.store.read_ahead(&assigned, set.key(), &|_| true);
        }
        if let Some(dnode) = synced.filter(|_| !unknown.is_empty()) {
            self.tree(dnode).read_ahead(&unknown);
        }
    }

    /// Fills `buf` with the bytes from `offset` on; holes and bytes beyond the end are zeros. Blocks are read
    /// many at once, and sequential reads are followed by read-ahead.
    ///
    /// # Errors
    /// [`DmuError`] of the first block that is damaged or cannot be read.
    pub fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DmuError> {
        let (size, max_block, is_on_disk) = {
            let inner = self.cell.lock();
            (inner.header.block_size(), inner.header.maxblkid, inner.synced.is_some())
        };
        if is_on_disk {
            let read = RangeRead { offset, len: buf.len() as u64, block_size: size, max_block };
            self.set.store().follow(&self.cell.streams, &read, &|blocks| {
                let object = self.clone();
                Box::new(move || object.read_ahead(&blocks))
            });
        }
        let short = || self.shape("a block changed its size while it was read");
        read_range(size, offset, buf, &|blocks| self.blocks(blocks), &short)
    }

    pub(super) fn locked(&self) -> DmuError {
        self.set.locked()
    }

    pub(super) fn shape(&self, why: &'static str) -> DmuError {
        DmuError::Shape { objset: self.set.number(), object: self.id(), why }
    }

    /// The first block at or after `from` that holds data, or is a hole.
    pub(crate) fn next_block(&self, from: u64, data: bool) -> Result<Option<u64>, DmuError> {
        let mut at = from;
        loop {
            let (synced, max, candidate) = {
                let inner = self.cell.lock();
                (inner.synced.clone(), inner.header.maxblkid, next_known(&inner, at))
            };
            if at > max {
                return Ok(None);
            }
            let on_disk = match &synced {
                Some(dnode) => self.tree(Arc::clone(dnode)).next(at, data)?,
                None if data => None,
                None => Some(at),
            };
            // Up to the first block in an overlay, the tree on disk is right.
            let limit = candidate.as_ref().map_or(max + 1, |(blkid, ..)| *blkid);
            match on_disk {
                Some(found) if found < limit => return Ok(Some(found)),
                None if !data
                    && synced.as_ref().is_some_and(|dnode| dnode.maxblkid.0 < limit.min(max + 1)) =>
                {
                    let beyond = synced.map_or(0, |dnode| dnode.maxblkid.0 + 1).max(at);
                    if beyond < limit {
                        return Ok((beyond <= max).then_some(beyond));
                    }
                }
                _ => {}
            }
            let Some((blkid, is_data, until)) = candidate else { return Ok(None) };
            if is_data == data {
                return Ok((blkid <= max).then_some(blkid));
            }
            at = until;
        }
    }

    /// The buffer of a block whose newest contents are in memory only. As long as it is held, later changes
    /// of the block are made in a copy.
    pub(crate) fn buffer(&self, blkid: BlockId) -> Option<Arc<Vec<u8>>> {
        match self.cell.lock().known(blkid.0) {
            Known::Data(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// Replaces a whole block.
    ///
    /// # Errors
    /// [`DmuError::Shape`] if the object has blocks of another size; [`DmuError::Locked`].
    pub fn put_block(&self, blkid: BlockId, bytes: Vec<u8>, tx: &dyn AllocTx) -> Result<(), DmuError> {
        if self.set.blocks().is_locked() {
            return Err(self.locked());
        }
        if bytes.len() as u64 != self.block_size() {
            return Err(self.shape("a block of another size than the object's"));
        }
        let added = self.change(tx, |inner| {
            let size = bytes.len() as u64;
            inner.header.maxblkid = inner.header.maxblkid.max(blkid.0);
            size - inner.open.insert(blkid.0, Leaf::Data(Arc::new(bytes))).min(size)
        });
        self.set.meter.add(tx.txg(), added);
        Ok(())
    }

    /// Changes bytes of a block, based on its newest contents or zeros.
    pub(crate) fn change_block<R>(
        &self,
        blkid: BlockId,
        tx: &dyn AllocTx,
        change: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<R, DmuError> {
        // Contents on disk are read before the lock is taken, and again if they changed meanwhile.
        let mut loaded: Option<(u64, Option<Block>)> = None;
        let mut change = Some(change);
        if self.set.blocks().is_locked() {
            return Err(self.locked());
        }
        loop {
            let mut inner = self.cell.lock();
            let size = inner.header.block_size() as usize;
            let base = match inner.known(blkid.0) {
                Known::Data(bytes) => Some(bytes),
                Known::Sealed => return Err(self.locked()),
                Known::Hole => None,
                Known::Unknown if inner.synced.is_none() => None,
                Known::Pointer(_) | Known::Unknown => match loaded.take() {
                    Some((version, block)) if version == inner.version => {
                        let class = inner.header.obj_type.swap_class();
                        let swapped = block.map(|block| in_little_order(&block, class));
                        match swapped {
                            Some(None) => {
                                return Err(DmuError::ForeignOrder {
                                    objset: self.set.number(),
                                    object: self.id(),
                                });
                            }
                            Some(bytes) => bytes,
                            None => None,
                        }
                    }
                    _ => {
                        let version = inner.version;
                        drop(inner);
                        loaded = Some((version, self.block(blkid)?));
                        continue;
                    }
                },
            };
            let is_first = inner.touch(tx.txg());
            inner.header.maxblkid = inner.header.maxblkid.max(blkid.0);
            let is_held = matches!(inner.open.blocks.get(&blkid.0), Some(Leaf::Data(_)));
            if !is_held {
                let bytes = base.unwrap_or_else(|| Arc::new(vec![0; size]));
                inner.open.insert(blkid.0, Leaf::Data(bytes));
            } else {
                // With the second reference, the next line would copy the buffer unnecessarily.
                drop(base);
            }
            let Some(Leaf::Data(bytes)) = inner.open.blocks.get_mut(&blkid.0) else {
                return Err(self.shape("a block was not where it had just been put"));
            };
            let is_copied = !is_held || Arc::strong_count(bytes) > 1;
            let bytes = Arc::make_mut(bytes);
            bytes.resize(size, 0);
            let Some(change) = change.take() else { return Err(self.shape("changed twice")) };
            let result = change(bytes);
            drop(inner);
            self.set.note_change(&self.cell, tx.txg(), is_first);
            if is_copied {
                self.set.meter.add(tx.txg(), size as u64);
            }
            return Ok(result);
        }
    }

    /// Writes bytes from `offset` on. Blocks that are overwritten whole are not read.
    pub fn write_at(&self, offset: u64, data: &[u8], tx: &dyn AllocTx) -> Result<(), DmuError> {
        let size = self.block_size();
        let (mut rest, mut at) = (data, offset);
        if at.checked_add(data.len() as u64).is_none() {
            return Err(self.shape("a write beyond the largest offset"));
        }
        while !rest.is_empty() {
            let within = (at % size) as usize;
            let len = rest.len().min(size as usize - within);
            let (part, after) = rest.split_at(len);
            let blkid = BlockId(at / size);
            if blkid.0 > 0 && !size.is_power_of_two() {
                return Err(self.shape("a second block, and the first is not of a power of two"));
            }
            if len as u64 == size {
                self.put_block(blkid, part.to_vec(), tx)?;
            } else {
                self.change_block(blkid, tx, |bytes| bytes[within..within + len].copy_from_slice(part))?;
            }
            rest = after;
            at += len as u64;
        }
        Ok(())
    }

    /// Assigns a block that is on the devices already, or a hole.
    pub fn assign_block(&self, blkid: BlockId, bp: BlockPtr, tx: &dyn AllocTx) {
        let dropped = self.change(tx, |inner| {
            inner.header.maxblkid = inner.header.maxblkid.max(blkid.0);
            inner.open.insert(blkid.0, Leaf::Pointer(Box::new(bp)))
        });
        self.set.meter.add(tx.txg(), POINTER_COST);
        self.set.meter.sub(tx.txg(), dropped);
    }

    /// The pointer to a data block, if its newest contents are on the devices; `None` while they are only in
    /// memory.
    pub fn pointer_on_disk(&self, blkid: BlockId) -> Result<Option<BlockPtr>, DmuError> {
        let (known, synced) = {
            let inner = self.cell.lock();
            (inner.known(blkid.0), inner.synced.clone())
        };
        match (known, synced) {
            (Known::Data(_) | Known::Sealed, _) => Ok(None),
            (Known::Pointer(bp), _) => Ok(Some(bp)),
            (Known::Hole, _) | (Known::Unknown, None) => Ok(Some(BlockPtr::HOLE)),
            (Known::Unknown, Some(dnode)) if blkid > dnode.maxblkid => Ok(Some(BlockPtr::HOLE)),
            (Known::Unknown, Some(dnode)) => self.tree(dnode).pointer(format::Level(0), blkid).map(Some),
        }
    }

    /// Changes the size of the only block, keeping as much of its contents as fits.
    ///
    /// # Errors
    /// [`DmuError::Shape`] if there are more blocks, or the size is not a multiple of 512 up to 16 MiB.
    pub fn set_block_size(&self, size: u64, tx: &dyn AllocTx) -> Result<(), DmuError> {
        if size == 0 || size > MAX_BLOCK || !size.is_multiple_of(SECTOR) {
            return Err(self.shape("no such block size"));
        }
        loop {
            let (version, now, max) = {
                let inner = self.cell.lock();
                (inner.version, inner.header.block_size(), inner.header.maxblkid)
            };
            if now == size {
                return Ok(());
            }
            if max > 0 {
                return Err(self.shape("its block size cannot change any more"));
            }
            if self.resize_in_place(version, size, tx) {
                return Ok(());
            }
            let held = self.block(BlockId(0))?;
            let mut inner = self.cell.lock();
            if inner.version != version {
                continue;
            }
            let is_first = inner.touch(tx.txg());
            inner.header.datablkszsec = u16::try_from(size / SECTOR).unwrap_or(u16::MAX);
            let added = match held {
                Some(block) => {
                    let mut bytes = block.bytes().to_vec();
                    bytes.resize(size as usize, 0);
                    size - inner.open.insert(0, Leaf::Data(Arc::new(bytes))).min(size)
                }
                // A hole of the old size must not be read as one of the new size.
                None => {
                    inner.open.remove(0);
                    inner.open.freed.insert(0..1);
                    0
                }
            };
            drop(inner);
            self.set.note_change(&self.cell, tx.txg(), is_first);
            self.set.meter.add(tx.txg(), added);
            return Ok(());
        }
    }

    /// Changes the size of the only block in place if the txg has changed it already, so that a block that
    /// grows in many steps is not copied each time. Returns false if it was not changed, or the object is no
    /// longer of this version.
    fn resize_in_place(&self, version: u64, size: u64, tx: &dyn AllocTx) -> bool {
        let mut inner = self.cell.lock();
        let is_of_txg = inner.dirty && inner.open_txg == tx.txg() && inner.version == version;
        if !is_of_txg || !matches!(inner.open.blocks.get(&0), Some(Leaf::Data(_))) {
            return false;
        }
        inner.touch(tx.txg());
        inner.header.datablkszsec = u16::try_from(size / SECTOR).unwrap_or(u16::MAX);
        let mut before = size;
        if let Some(Leaf::Data(bytes)) = inner.open.blocks.get_mut(&0) {
            before = if Arc::strong_count(bytes) > 1 { 0 } else { bytes.len() as u64 };
            let bytes = Arc::make_mut(bytes);
            if bytes.capacity() < size as usize {
                let spare = bytes.len().min(SPARE_MAX);
                bytes.reserve_exact(size as usize - bytes.len() + spare);
            }
            bytes.resize(size as usize, 0);
        }
        drop(inner);
        self.set.note_change(&self.cell, tx.txg(), false);
        self.set.meter.add(tx.txg(), size - before.min(size));
        true
    }

    /// Frees a range of bytes: whole blocks become holes, the edges zeros. A length of `u64::MAX` means all
    /// bytes from `offset` on; the highest block number falls then.
    pub fn free_range(&self, offset: u64, len: u64, tx: &dyn AllocTx) -> Result<(), DmuError> {
        let (size, max) = {
            let inner = self.cell.lock();
            (inner.header.block_size(), inner.header.maxblkid)
        };
        let data_end = (max + 1).saturating_mul(size);
        let to_end = len == u64::MAX || offset.saturating_add(len) >= data_end;
        let end = if to_end { data_end } else { offset + len };
        if offset >= end {
            return Ok(());
        }
        let (first, last) = (offset.div_ceil(size), if to_end { max + 1 } else { end / size });
        let head_end = end.min(first.saturating_mul(size));
        if offset < head_end {
            self.zero(offset, head_end, tx)?;
        }
        if !to_end && last >= first && last.saturating_mul(size) < end {
            self.zero(last * size, end, tx)?;
        }
        if first >= last && !(to_end && first <= max) {
            return Ok(());
        }
        let dropped = self.change(tx, |inner| {
            let range = first..if to_end { u64::MAX } else { last };
            let dropped = inner.open.drop_blocks(range.clone());
            inner.open.freed.insert(range);
            if to_end {
                inner.header.maxblkid = inner.header.maxblkid.min(first.saturating_sub(1));
            }
            dropped
        });
        self.set.meter.sub(tx.txg(), dropped);
        Ok(())
    }

    /// Zeros bytes within one block, unless it is a hole.
    fn zero(&self, from: u64, to: u64, tx: &dyn AllocTx) -> Result<(), DmuError> {
        let size = self.block_size();
        let blkid = BlockId(from / size);
        if self.block(blkid)?.is_none() {
            return Ok(());
        }
        let (start, end) = ((from % size) as usize, (to - blkid.0 * size) as usize);
        self.change_block(blkid, tx, |bytes| bytes[start..end].fill(0))
    }

    /// Frees the object. Returns the number of its dnode slots.
    pub(crate) fn free_all(&self, tx: &dyn AllocTx) -> u64 {
        let (dropped, blocks, slots) = self.change(tx, |inner| {
            let dropped = inner.open.dirty_bytes();
            inner.open.drop_blocks(0..u64::MAX);
            let top = inner.synced.iter().flat_map(|dnode| dnode.blkptrs.iter());
            let fill = top.filter(|bp| !bp.is_hole()).map(BlockPtr::fill).fold(0, u64::saturating_add);
            let blocks = fill.min(inner.header.maxblkid.saturating_add(1));
            let mut freed = zio::RangeSet::new();
            freed.insert(0..u64::MAX);
            let displaced = std::mem::take(&mut inner.open.displaced);
            inner.open =
                Overlay { freed, is_freed: true, spill: Spill::Drop, displaced, ..Overlay::default() };
            inner.exists = false;
            (dropped, blocks, u64::from(inner.header.extra_slots) + 1)
        });
        self.set.meter.sub(tx.txg(), dropped);
        self.note_freed(blocks, tx);
        slots
    }
}

impl Overlay {
    /// Drops the new contents, and begins an empty tree of another shape. Returns the bytes that the contents took.
    pub(super) fn reshape(&mut self) -> u64 {
        self.is_reshaped = true;
        // A hole of the old size must not be read as one of the new size.
        self.freed.insert(0..u64::MAX);
        self.drop_blocks(0..u64::MAX)
    }

    /// Drops the new contents of these blocks. Returns the bytes that they took.
    pub(super) fn drop_blocks(&mut self, range: std::ops::Range<u64>) -> u64 {
        let ids: Vec<u64> = self.blocks.range(range).map(|(blkid, _)| *blkid).collect();
        let mut dropped = 0;
        for id in ids {
            dropped += self.remove(id);
        }
        dropped
    }
}

/// The bytes of a block with its integers in little-endian order, in which all blocks are written; `None` if
/// they are big-endian and not plain integers.
fn in_little_order(block: &Block, class: SwapClass) -> Option<Arc<Vec<u8>>> {
    let width = match (block.order(), class) {
        (Endian::Little, _) | (Endian::Big, SwapClass::U8) => return Some(block.share()),
        (Endian::Big, SwapClass::U16) => 2,
        (Endian::Big, SwapClass::U32) => 4,
        (Endian::Big, SwapClass::U64) => 8,
        (Endian::Big, _) => return None,
    };
    let mut bytes = block.bytes().to_vec();
    bytes.chunks_exact_mut(width).for_each(<[u8]>::reverse);
    Some(Arc::new(bytes))
}

/// The first block at or after `at` in an overlay, whether it holds data, and the block up to which that is
/// known.
fn next_known(inner: &Inner, at: u64) -> Option<(u64, bool, u64)> {
    let overlays = [Some(&inner.open), inner.syncing.as_ref().map(|frozen| &*frozen.overlay)];
    let overlays = || overlays.into_iter().flatten();
    let next_block = |from: u64| {
        overlays().filter_map(|overlay| overlay.blocks.range(from..).next().map(|(blkid, _)| *blkid)).min()
    };
    let freed = |overlay: &Overlay| overlay.freed.iter().find(|range| range.end > at);
    let next_freed = overlays().filter_map(|overlay| freed(overlay).map(|range| range.start.max(at))).min();
    let next = next_block(at).into_iter().chain(next_freed).min()?;
    let is_data = match inner.known(next) {
        Known::Data(_) | Known::Sealed => true,
        Known::Pointer(bp) => !bp.is_hole(),
        Known::Hole | Known::Unknown => false,
    };
    if is_data || next_block(next) == Some(next) {
        return Some((next, is_data, next + 1));
    }
    // A hole up to the end of the freed range, or to the next block that was written since.
    let run = overlays().flat_map(|overlay| overlay.freed.iter().find(|range| range.contains(&next)));
    let end = run.map(|range| range.end).min().unwrap_or(next + 1);
    Some((next, false, next_block(next + 1).map_or(end, |block| end.min(block))))
}

impl std::fmt::Debug for LiveObject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LiveObject({} of {:?})", self.id(), self.set)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Store;
    use crate::testing::NoLedger;
    use crate::{Limits, NewObject, SetPolicy, Txgs};
    use format::objset::ObjsetType;
    use format::{ChecksumId, DeviceOffset, Txg};
    use std::sync::Mutex;
    use zio::testing::{Device, DeviceError, MemoryDevice, pool_on};

    type Before = Box<dyn FnOnce() + Send>;

    /// A device that runs a callback before its next read, and gives the space to another block.
    #[derive(Default)]
    struct Slow(Mutex<Option<Before>>);

    impl std::fmt::Debug for Slow {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("Slow")
        }
    }

    #[derive(Debug)]
    struct Reused(MemoryDevice, Arc<Slow>);

    impl Device for Reused {
        fn size(&self) -> u64 {
            self.0.size()
        }

        fn read_at(&self, buf: &mut [u8], at: DeviceOffset) -> Result<(), DeviceError> {
            let before = self.1.0.lock().expect("sound").take();
            if let Some(before) = before {
                before();
                self.0.write_at(&vec![0xEE; buf.len()], at)?;
            }
            self.0.read_at(buf, at)
        }

        fn write_at(&self, buf: &[u8], at: DeviceOffset) -> Result<(), DeviceError> {
            self.0.write_at(buf, at)
        }

        fn flush(&self) -> Result<(), DeviceError> {
            self.0.flush()
        }
    }

    #[test]
    fn a_place_that_was_reused_while_it_was_read_is_not_taken_for_the_block() {
        for checksum in [ChecksumId::Off, ChecksumId::Fletcher4] {
            let slow = Arc::new(Slow::default());
            let store = Store::new(pool_on(Arc::new(Reused(MemoryDevice::new(1 << 28), slow.clone()))).0, 0);
            let txgs = Arc::new(Txgs::new(Txg(3), Limits::default()));
            let policy = SetPolicy { checksum, embed: false, ..SetPolicy::dataset() };
            let tx = txgs.begin().expect("open");
            let set = LiveSet::create(&store, txgs.meter(), 7, ObjsetType::Other, policy, &tx);
            let object = set.allocate(&NewObject::of(ObjType::PLAIN_FILE).with_block_size(4096), &tx);
            let object = object.expect("made");
            drop(tx);
            let write = {
                let (set, object, txgs) = (set.clone(), object.clone(), txgs.clone());
                move |byte: u8| {
                    let tx = txgs.begin().expect("open");
                    object
                        .put_block(BlockId(0), (0..4096).map(|at| at as u8 ^ byte).collect(), &tx)
                        .expect("put");
                    drop(tx);
                    let tx = txgs.quiesce();
                    set.sync(&tx, &mut NoLedger).expect("synced");
                    txgs.finish(tx);
                }
            };
            write(1);
            *slow.0.lock().expect("sound") = Some(Box::new(move || write(2)));
            let block = object.block(BlockId(0)).expect("readable").expect("data");
            assert!(slow.0.lock().expect("sound").is_none(), "it was read from the device");
            assert!(block.bytes().iter().enumerate().all(|(at, byte)| *byte == at as u8 ^ 2), "{checksum:?}");
        }
    }
}
