//! Changing a block tree: from the old top and changed leaves to a new top (docs/on-disk/20-dmu.md, section
//! 3).
//!
//! The blocks on disk stay unchanged: indirect blocks on the way are copied into memory, changed there, and
//! written elsewhere from the bottom up. Born and killed blocks are collected.

use crate::DmuError;
use crate::ledger::Ledger;
use crate::object::cell::{Header, Leaf, TreeTop};
use crate::objset::live::LiveSet;
use crate::set_blocks::TreeShape;
use format::blkptr::BLKPTR_SIZE;
use format::{BlockPtr, BpKind, Endian, Level, ObjType, ObjectId};
use std::collections::BTreeMap;
use std::ops::Range;

/// A block tree that is being changed.
pub(crate) struct TreeEdit {
    shape: TreeShape,
    /// log2 of the pointers of an indirect block.
    epbs: u32,
    top: TreeTop,
    /// Indirect blocks that were changed and not written yet, by level and number.
    loaded: BTreeMap<(u8, u64), Vec<u8>>,
    /// Killed blocks, which have no reference left.
    killed: Vec<BlockPtr>,
    /// New blocks; some of them may be killed again.
    born: Vec<BlockPtr>,
    /// Bytes of space gained or lost.
    pub(crate) used: i64,
}

/// Appends to a list with room for one pointer, because most objects have one block.
fn push(list: &mut Vec<BlockPtr>, bp: BlockPtr) {
    if list.is_empty() {
        list.reserve_exact(1);
    }
    list.push(bp);
}

impl TreeEdit {
    pub(crate) fn new(id: ObjectId, header: &Header, top: TreeTop) -> TreeEdit {
        let epbs = u32::from(header.indblkshift) - BLKPTR_SIZE.trailing_zeros();
        let shape = TreeShape {
            object: id,
            obj_type: header.obj_type,
            data_size: header.block_size(),
            indirect_size: (BLKPTR_SIZE << epbs) as u64,
        };
        TreeEdit { shape, epbs, top, loaded: BTreeMap::new(), killed: Vec::new(), born: Vec::new(), used: 0 }
    }

    pub(crate) fn top(&self) -> &TreeTop {
        &self.top
    }

    fn indirect_size(&self) -> usize {
        self.shape.indirect_size as usize
    }

    /// Reports every block to the ledger: first the born ones.
    pub(crate) fn tell(&self, ledger: &mut dyn Ledger) {
        self.born.iter().for_each(|bp| ledger.born(bp));
        self.killed.iter().for_each(|bp| ledger.killed(bp));
    }

    /// Bytes of the indirect blocks in memory.
    pub(crate) fn held(&self) -> usize {
        self.loaded.len() * self.indirect_size()
    }

    /// Accounts for a new pointer in place of an old one.
    pub(crate) fn replaced(&mut self, set: &LiveSet, old: &BlockPtr, new: &BlockPtr) {
        if old == new || is_same_place(old, new) {
            return;
        }
        let zio = set.store().zio();
        if !old.is_hole() {
            self.used -= zio.dsize(old) as i64;
            push(&mut self.killed, *old);
        }
        if !new.is_hole() {
            self.used += zio.dsize(new) as i64;
            push(&mut self.born, *new);
        }
    }

    /// Makes the tree high enough for this block number.
    pub(crate) fn grow(&mut self, maxblkid: u64) {
        let pointers = self.top.blkptrs.len() as u64;
        let is_reached = |nlevels: u8| shift(maxblkid, self.epbs * u32::from(nlevels - 1)) < pointers;
        let mut nlevels = self.top.nlevels;
        while !is_reached(nlevels) {
            nlevels += 1;
        }
        self.raise(nlevels);
    }

    /// Gives the tree this height, unless it is higher.
    pub(crate) fn raise(&mut self, nlevels: u8) {
        let pointers = self.top.blkptrs.len();
        if nlevels <= self.top.nlevels {
            return;
        }
        if self.top.blkptrs.iter().any(|bp| !bp.is_hole()) {
            let mut block = vec![0; self.indirect_size()];
            for (i, bp) in self.top.blkptrs.iter().enumerate() {
                put(&mut block, i, bp);
            }
            self.loaded.insert((self.top.nlevels, 0), block);
            for level in self.top.nlevels + 1..nlevels {
                self.loaded.insert((level, 0), vec![0; self.indirect_size()]);
            }
        }
        self.top = TreeTop { nlevels, blkptrs: vec![BlockPtr::HOLE; pointers] };
    }

    /// Frees the tree, whose blocks are as in the header `old`, and begins one of another shape: holes, born in txg
    /// `birth`.
    pub(crate) fn start_over(
        &mut self,
        set: &LiveSet,
        old: &Header,
        new: &Header,
        birth: u64,
    ) -> Result<(), DmuError> {
        let mut gone = TreeEdit::new(self.shape.object, old, self.top.clone());
        gone.free_all(set)?;
        self.used += gone.used;
        self.killed.append(&mut gone.killed);
        self.loaded.clear();
        let nlevels = new.levels.max(1);
        let size = if nlevels == 1 { self.shape.data_size } else { self.shape.indirect_size };
        let hole = match set.policy().hole_birth {
            true => hole_of(self.shape.obj_type, nlevels - 1, size, birth),
            false => BlockPtr::HOLE,
        };
        self.top = TreeTop { nlevels, blkptrs: vec![hole; usize::from(new.nblkptr)] };
        Ok(())
    }

    /// Location of the pointer to a block: the indirect block above it; `None`: the dnode.
    fn above(&self, level: u8, blkid: u64) -> Option<(u8, u64)> {
        (level + 1 < self.top.nlevels).then(|| (level + 1, shift(blkid, self.epbs)))
    }

    fn index(&self, blkid: u64) -> usize {
        (blkid & ((1 << self.epbs) - 1)) as usize
    }

    /// The pointer to a block, as of the changes so far. Loads the indirect blocks above it.
    pub(crate) fn pointer(&mut self, set: &LiveSet, level: u8, blkid: u64) -> Result<BlockPtr, DmuError> {
        let Some(above) = self.above(level, blkid) else {
            return Ok(self.top.blkptrs.get(blkid as usize).copied().unwrap_or(BlockPtr::HOLE));
        };
        self.load(set, above)?;
        let index = self.index(blkid);
        Ok(self.loaded.get(&above).map_or(BlockPtr::HOLE, |block| get(block, index)))
    }

    /// Loads an indirect block. If it is a hole, its children become holes of the same birth.
    fn load(&mut self, set: &LiveSet, at: (u8, u64)) -> Result<(), DmuError> {
        if self.loaded.contains_key(&at) {
            return Ok(());
        }
        let bp = self.pointer(set, at.0, at.1)?;
        let block = if bp.is_hole() {
            let mut block = vec![0; self.indirect_size()];
            if bp.logical_birth().0 != 0 {
                // A punched range must keep its birth when one of its children is written.
                let size = if at.0 == 1 { self.shape.data_size } else { self.indirect_size() as u64 };
                let child = child_hole(&bp, at.0 - 1, size);
                for i in 0..1 << self.epbs {
                    put(&mut block, i, &child);
                }
            }
            block
        } else {
            read_indirect(set, &self.shape, &bp, at.0)?
        };
        self.loaded.insert(at, block);
        Ok(())
    }

    /// Stores a pointer in its place, and accounts for the replaced one.
    pub(crate) fn place(
        &mut self,
        set: &LiveSet,
        level: u8,
        blkid: u64,
        bp: &BlockPtr,
    ) -> Result<(), DmuError> {
        let old = self.pointer(set, level, blkid)?;
        self.replaced(set, &old, bp);
        self.put_pointer(level, blkid, bp);
        Ok(())
    }

    fn put_pointer(&mut self, level: u8, blkid: u64, bp: &BlockPtr) {
        let index = self.index(blkid);
        match self.above(level, blkid) {
            Some(above) => {
                if let Some(block) = self.loaded.get_mut(&above) {
                    put(block, index, bp);
                }
            }
            None => {
                if let Some(slot) = self.top.blkptrs.get_mut(blkid as usize) {
                    *slot = *bp;
                }
            }
        }
    }

    /// Makes the data blocks in `range` holes, except those in `but`, which are about to be written.
    pub(crate) fn free(
        &mut self,
        set: &LiveSet,
        range: &Range<u64>,
        but: &BTreeMap<u64, Leaf>,
        birth: u64,
    ) -> Result<(), DmuError> {
        let top_level = self.top.nlevels - 1;
        for index in 0..self.top.blkptrs.len() as u64 {
            self.free_below(set, top_level, index, range, but, birth)?;
        }
        Ok(())
    }

    fn free_below(
        &mut self,
        set: &LiveSet,
        level: u8,
        index: u64,
        range: &Range<u64>,
        but: &BTreeMap<u64, Leaf>,
        birth: u64,
    ) -> Result<(), DmuError> {
        let bits = self.epbs * u32::from(level);
        if bits >= u64::BITS && index > 0 {
            return Ok(());
        }
        let first = index.checked_shl(bits).unwrap_or(0);
        let last = first.saturating_add(1_u64.checked_shl(bits).map_or(u64::MAX, |span| span - 1));
        if last < range.start || first >= range.end {
            return Ok(());
        }
        let bp = self.pointer(set, level, index)?;
        let is_loaded = level > 0 && self.loaded.contains_key(&(level, index));
        if bp.is_hole() && !is_loaded {
            return Ok(());
        }
        if level == 0 {
            if !but.contains_key(&index) {
                let hole = hole_for(set, &bp, birth);
                self.place(set, 0, index, &hole)?;
            }
            return Ok(());
        }
        let is_covered = range.start <= first && last < range.end && but.range(first..=last).next().is_none();
        if is_covered && !is_loaded {
            self.kill_below(set, &bp, level)?;
            let hole = hole_for(set, &bp, birth);
            return self.place(set, level, index, &hole);
        }
        self.load(set, (level, index))?;
        let child_bits = self.epbs * u32::from(level - 1);
        let from = shift(range.start.saturating_sub(first), child_bits);
        let to = shift((range.end - 1).min(last) - first, child_bits).min((1 << self.epbs) - 1);
        for child in from..=to {
            self.free_below(set, level - 1, (index << self.epbs) + child, range, but, birth)?;
        }
        Ok(())
    }

    /// Frees all blocks of the tree, indirect blocks included.
    pub(crate) fn free_all(&mut self, set: &LiveSet) -> Result<(), DmuError> {
        let level = self.top.nlevels - 1;
        for bp in std::mem::take(&mut self.top.blkptrs) {
            self.kill(set, &bp, level)?;
        }
        self.loaded.clear();
        Ok(())
    }

    fn kill(&mut self, set: &LiveSet, bp: &BlockPtr, level: u8) -> Result<(), DmuError> {
        if bp.is_hole() {
            return Ok(());
        }
        self.kill_below(set, bp, level)?;
        self.replaced(set, bp, &BlockPtr::HOLE);
        Ok(())
    }

    fn kill_below(&mut self, set: &LiveSet, bp: &BlockPtr, level: u8) -> Result<(), DmuError> {
        if level > 0 && !bp.is_hole() {
            let block = read_indirect(set, &self.shape, bp, level)?;
            for i in 0..1 << self.epbs {
                self.kill(set, &get(&block, i), level - 1)?;
            }
        }
        Ok(())
    }

    /// Takes the changed indirect blocks of a level with numbers below `limit`, to be written.
    pub(crate) fn take_level(&mut self, level: u8, limit: u64) -> Vec<(u64, Vec<u8>)> {
        let keys: Vec<(u8, u64)> =
            self.loaded.range((level, 0)..(level, limit)).map(|(key, _)| *key).collect();
        keys.into_iter().filter_map(|key| Some((key.1, self.loaded.remove(&key)?))).collect()
    }

    /// Levels of indirect blocks.
    pub(crate) fn indirect_levels(&self) -> Range<u8> {
        1..self.top.nlevels
    }
}

/// A pointer that was never written.
const ZEROS: [u8; BLKPTR_SIZE] = [0; BLKPTR_SIZE];

/// Sum of the fill counts of an indirect block's pointers, and whether all of them are holes.
pub(crate) fn fill_of(block: &[u8]) -> (u64, bool) {
    let mut fill = 0;
    let mut is_empty = true;
    for bytes in block.chunks_exact(BLKPTR_SIZE) {
        // Most of a sparse block is zeros.
        if bytes == ZEROS {
            continue;
        }
        let Ok(bp) = BlockPtr::decode(bytes, Endian::Little) else { continue };
        if !bp.is_hole() {
            is_empty = false;
            fill += if bp.is_embedded() { 1 } else { bp.fill() };
        }
    }
    (fill, is_empty)
}

fn get(block: &[u8], index: usize) -> BlockPtr {
    let at = index * BLKPTR_SIZE;
    block
        .get(at..at + BLKPTR_SIZE)
        .and_then(|bytes| BlockPtr::decode(bytes, Endian::Little).ok())
        .unwrap_or(BlockPtr::HOLE)
}

fn put(block: &mut [u8], index: usize, bp: &BlockPtr) {
    let at = index * BLKPTR_SIZE;
    if let Some(bytes) = block.get_mut(at..at + BLKPTR_SIZE) {
        bytes.copy_from_slice(&bp.encode(Endian::Little));
    }
}

/// Reads an indirect block after checking its pointer, in little-endian order and at its full size.
fn read_indirect(set: &LiveSet, shape: &TreeShape, bp: &BlockPtr, level: u8) -> Result<Vec<u8>, DmuError> {
    let size = shape.indirect_size as usize;
    let block = set.blocks().read(shape, bp, Level(level))?;
    // A block may lack the holes at its end.
    let mut bytes = vec![0; size.max(block.bytes().len())];
    bytes[..block.bytes().len()].copy_from_slice(block.bytes());
    bytes.truncate(size);
    if block.order() == Endian::Big {
        for word in bytes.chunks_exact_mut(8) {
            word.reverse();
        }
    }
    Ok(bytes)
}

/// The hole that a freed block leaves, with its birth.
pub(crate) fn hole_for(set: &LiveSet, old: &BlockPtr, birth: u64) -> BlockPtr {
    if !set.policy().hole_birth {
        return BlockPtr::HOLE;
    }
    hole_of(old.obj_type(), old.level().0, old.lsize().0, birth)
}

/// A hole of `size` bytes with a birth.
fn hole_of(obj_type: ObjType, level: u8, size: u64, birth: u64) -> BlockPtr {
    let sectors = (size / 512).saturating_sub(1) & 0xffff;
    let prop = sectors | u64::from(obj_type.id()) << 48 | u64::from(level) << 56;
    BlockPtr::HOLE.with_word(6, prop).with_word(10, birth)
}

/// The child of an indirect block that is a hole with a birth.
fn child_hole(parent: &BlockPtr, level: u8, size: u64) -> BlockPtr {
    hole_of(parent.obj_type(), level, size, parent.logical_birth().0)
}

/// Whether the block was rewritten in place, in the same txg.
pub(crate) fn is_same_place(old: &BlockPtr, new: &BlockPtr) -> bool {
    matches!(old.kind(), BpKind::Normal | BpKind::Gang)
        && new.kind() == old.kind()
        && old.logical_birth() == new.logical_birth()
        && old.dvas().next().is_some()
        && old.dvas().eq(new.dvas())
}

fn shift(value: u64, by: u32) -> u64 {
    value.checked_shr(by).unwrap_or(0)
}
