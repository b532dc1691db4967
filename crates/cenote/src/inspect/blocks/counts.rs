//! Counts of blocks by use, level and size.

use format::{BlockPtr, BpKind, ObjType, VdevId};
use std::collections::BTreeMap;

/// Use of a block, by which it is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BlockUse {
    /// Part of an object of this type.
    Object(ObjType),
    /// In a list of blocks that wait to be freed.
    DeferredFree,
    /// Part of an object whose type describes itself (a DMU "new type").
    Other,
}

impl BlockUse {
    /// The use of the blocks of an object of this type.
    pub(crate) fn of(kind: ObjType) -> BlockUse {
        if kind.id() & 0x80 != 0 { BlockUse::Other } else { BlockUse::Object(kind) }
    }

    /// True if blocks of this use are metadata at every level.
    pub fn is_metadata(self) -> bool {
        matches!(self, BlockUse::Object(kind) if kind.is_metadata())
    }
}

/// Number of histogram rows: powers of two from 512 bytes to 16 MiB.
pub const SIZE_ROWS: usize = 16;

/// Number and sizes of blocks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BlockCounts {
    /// Number of block pointers, embedded ones included.
    pub blocks: u64,
    /// Number of copies that are gang blocks: a block can have a plain copy and a gang copy.
    pub gangs: u64,
    /// Sum of the sizes before compression, in bytes.
    pub lsize: u64,
    /// Sum of the sizes after compression, in bytes.
    pub psize: u64,
    /// Bytes allocated, copies and parity included.
    pub asize: u64,
    /// Blocks by their size after compression, in sectors of 512 bytes.
    pub sectors: BTreeMap<u64, u64>,
}

impl BlockCounts {
    fn add(&mut self, bp: &BlockPtr) {
        let (psize, asize) = sizes(bp);
        self.blocks += 1;
        self.gangs += bp.dvas().filter(|dva| dva.gang).count() as u64;
        self.lsize = self.lsize.saturating_add(bp.lsize().0);
        self.psize = self.psize.saturating_add(psize);
        self.asize = self.asize.saturating_add(asize);
        *self.sectors.entry(psize >> 9).or_default() += 1;
    }

    /// Adds the counts of `other`.
    pub fn merge(&mut self, other: &BlockCounts) {
        self.blocks += other.blocks;
        self.gangs += other.gangs;
        self.lsize = self.lsize.saturating_add(other.lsize);
        self.psize = self.psize.saturating_add(other.psize);
        self.asize = self.asize.saturating_add(other.asize);
        for (sectors, n) in &other.sectors {
            *self.sectors.entry(*sectors).or_default() += n;
        }
    }
}

/// Stored and allocated bytes; an embedded block has neither.
fn sizes(bp: &BlockPtr) -> (u64, u64) {
    match bp.kind() {
        BpKind::Normal | BpKind::Gang => (bp.psize().0, bp.dvas().map(|dva| dva.asize.0).sum()),
        BpKind::Embedded | BpKind::Hole | BpKind::Redacted => (0, 0),
    }
}

/// All counts of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    /// Counts by use and level.
    pub by_use: BTreeMap<(BlockUse, u8), BlockCounts>,
    /// Number of embedded block pointers, by type and compressed size in bytes.
    pub embedded: BTreeMap<u8, BTreeMap<u64, u64>>,
    /// Number of blocks and bytes per row, by size after compression.
    pub by_psize: [(u64, u64); SIZE_ROWS],
    /// Number of blocks and bytes per row, by size before compression.
    pub by_lsize: [(u64, u64); SIZE_ROWS],
    /// Number of blocks and bytes per row, by allocated size.
    pub by_asize: [(u64, u64); SIZE_ROWS],
    /// Bytes and number of additional references to blocks of dedup tables.
    pub deduped: (u64, u64),
    /// Bytes and number of additional references to cloned blocks.
    pub cloned: (u64, u64),
    /// Number of blocks with two or more copies on one vdev.
    pub same_vdev: u64,
    /// Number of blocks with two or more copies in one metaslab.
    pub same_metaslab: u64,
}

impl Tally {
    /// Counts a block. `shift` returns the binary logarithm of a vdev's metaslab size.
    pub(super) fn add(&mut self, bp: &BlockPtr, used: BlockUse, level: u8, shift: &dyn Fn(VdevId) -> u32) {
        self.by_use.entry((used, level)).or_default().add(bp);
        if bp.is_embedded() {
            let sizes = self.embedded.entry(bp.checksum_id()).or_default();
            *sizes.entry(bp.psize().0).or_default() += 1;
            return;
        }
        let (psize, asize) = sizes(bp);
        for (rows, size) in
            [(&mut self.by_psize, psize), (&mut self.by_lsize, bp.lsize().0), (&mut self.by_asize, asize)]
        {
            let row = size.checked_ilog2().map_or(0, |log| log.saturating_sub(9) as usize).min(SIZE_ROWS - 1);
            if let Some((count, bytes)) = rows.get_mut(row) {
                *count += 1;
                *bytes = bytes.saturating_add(size);
            }
        }
        self.dittos(bp, shift);
    }

    fn dittos(&mut self, bp: &BlockPtr, shift: &dyn Fn(VdevId) -> u32) {
        let (mut vdev, mut metaslab) = (false, false);
        let copies: Vec<_> = bp.dvas().collect();
        for (i, a) in copies.iter().enumerate() {
            for b in copies.iter().skip(i + 1).filter(|b| b.vdev == a.vdev) {
                vdev = true;
                let index = |offset: u64| offset.checked_shr(shift(a.vdev)).unwrap_or(0);
                metaslab |= index(a.offset.0) == index(b.offset.0);
            }
        }
        self.same_vdev += u64::from(vdev);
        self.same_metaslab += u64::from(metaslab);
    }

    /// Adds the counts of `other`.
    pub(super) fn merge(&mut self, other: &Tally) {
        for (key, counts) in &other.by_use {
            self.by_use.entry(*key).or_default().merge(counts);
        }
        for (kind, sizes) in &other.embedded {
            for (size, n) in sizes {
                *self.embedded.entry(*kind).or_default().entry(*size).or_default() += n;
            }
        }
        let pairs = [
            (&mut self.by_psize, &other.by_psize),
            (&mut self.by_lsize, &other.by_lsize),
            (&mut self.by_asize, &other.by_asize),
        ];
        for (mine, theirs) in pairs {
            for (a, b) in mine.iter_mut().zip(theirs) {
                *a = (a.0 + b.0, a.1.saturating_add(b.1));
            }
        }
        self.deduped = (self.deduped.0.saturating_add(other.deduped.0), self.deduped.1 + other.deduped.1);
        self.cloned = (self.cloned.0.saturating_add(other.cloned.0), self.cloned.1 + other.cloned.1);
        self.same_vdev += other.same_vdev;
        self.same_metaslab += other.same_metaslab;
    }

    /// Sum over all uses and levels.
    pub fn total(&self) -> BlockCounts {
        let mut total = BlockCounts::default();
        self.by_use.values().for_each(|counts| total.merge(counts));
        total
    }
}
