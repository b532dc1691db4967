//! RAID-Z: rows of any width, with parity rotating by the block's place; also RAID-Z that was expanded by a
//! child, where old blocks keep their width and each row is placed by itself.

use super::map::{BlockMap, Column, Row, split};
use format::units::LABEL_START;
use format::{AllocOffset, Ashift, Asize, Psize, Txg};

/// Distance in bytes from the scratch copy of an expansion to the real place: the boot area.
const SCRATCH_SHIFT: i64 = (LABEL_START - 0x8_0000) as i64;
/// Single parity swaps its first two columns if this bit of the block's offset is set.
const SWAP_BIT: u64 = 1 << 20;

/// Progress of an expansion, from the uberblock in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReflowState {
    /// Bytes of the top-level vdev below which sectors are at their new place.
    pub offset: u64,
    /// Sectors below `offset` are in the scratch copy in the boot areas, not at their real place.
    pub in_scratch: bool,
}

/// Past and running expansions of a RAID-Z.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Expansion {
    /// Txgs of completed expansions, ascending: blocks born from each on have the new width.
    pub txgs: Vec<Txg>,
    /// The running expansion; `None`: there is none.
    pub running: Option<ReflowState>,
}

/// Shape of a RAID-Z, past and running expansions included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Raidz {
    children: usize,
    nparity: usize,
    sector: u64,
    expansion: Expansion,
}

impl Raidz {
    /// A RAID-Z; `None` if a width would leave no data column or the numbers contradict each other.
    pub fn new(children: usize, nparity: u8, ashift: Ashift, expansion: Expansion) -> Option<Raidz> {
        let ascending = expansion.txgs.windows(2).all(|pair| pair[0] < pair[1]);
        let sane = (1..=3).contains(&nparity) && children <= 255 && (9..=16).contains(&ashift.0);
        if !sane || !ascending {
            return None;
        }
        let raidz = Raidz { children, nparity: usize::from(nparity), sector: ashift.sector(), expansion };
        (raidz.original_width()? > raidz.nparity).then_some(raidz)
    }

    /// Number of parity columns of each row.
    pub(crate) fn nparity(&self) -> usize {
        self.nparity
    }

    /// Whether an expansion is running.
    pub(crate) fn is_expanding(&self) -> bool {
        self.expansion.running.is_some()
    }

    /// Number of children, including one that a running expansion adds.
    pub(crate) fn children(&self) -> usize {
        self.children
    }

    /// Number of children before the first expansion.
    fn original_width(&self) -> Option<usize> {
        let grown = self.expansion.txgs.len() + usize::from(self.expansion.running.is_some());
        self.children.checked_sub(grown)
    }

    /// Columns of a row of a block born in `birth` (section 4.1).
    pub(crate) fn width(&self, birth: Txg) -> usize {
        let done = self.expansion.txgs.iter().filter(|txg| **txg <= birth).count();
        self.original_width().unwrap_or(self.children) + done
    }

    /// Allocated bytes of a block, parity and padding included.
    pub fn asize(&self, psize: Psize, birth: Txg) -> Option<Asize> {
        let width = self.width(birth) as u64;
        let nparity = self.nparity as u64;
        let sectors = psize.0.div_ceil(self.sector);
        let rows = sectors.div_ceil(width.checked_sub(nparity).filter(|n| *n > 0)?);
        let total = sectors.checked_add(nparity.checked_mul(rows)?)?;
        Some(Asize(total.checked_next_multiple_of(nparity + 1)?.checked_mul(self.sector)?))
    }

    /// Padding sectors at the end of a block's space: child and offset of each. Their contents do not matter.
    /// Empty while an expansion runs.
    pub(crate) fn skipped(&self, offset: AllocOffset, psize: Psize, birth: Txg) -> Vec<(usize, i64)> {
        let (children, per_row) = (self.children as u64, (self.width(birth) - self.nparity) as u64);
        let sectors = psize.0.div_ceil(self.sector);
        let total = sectors + self.nparity as u64 * sectors.div_ceil(per_row);
        if self.expansion.running.is_some() {
            return Vec::new();
        }
        let first = offset.0 / self.sector;
        (first + total..first + total.next_multiple_of(self.nparity as u64 + 1))
            .map(|at| ((at % children) as usize, (at / children * self.sector) as i64))
            .collect()
    }

    /// The columns of a block. `None` if its numbers overflow or the offset is not at a sector.
    pub fn map(&self, offset: AllocOffset, psize: Psize, birth: Txg) -> Option<BlockMap> {
        let size = psize.0.checked_next_multiple_of(self.sector)?;
        if !offset.0.is_multiple_of(self.sector) || size == 0 || offset.0.checked_add(size)? > i64::MAX as u64
        {
            return None;
        }
        let width = self.width(birth);
        let rows = if width == self.children && self.expansion.running.is_none() {
            vec![self.plain_row(offset.0, size)]
        } else {
            self.placed_rows(offset.0, size, width)
        };
        let in_order = rows.len() == 1;
        Some(BlockMap { rows, size, sector: self.sector, in_order })
    }

    /// The one row of a block where no expansion matters (section 3).
    fn plain_row(&self, offset: u64, size: u64) -> Row {
        let (sector, children, nparity) = (self.sector, self.children as u64, self.nparity as u64);
        let (first, sectors) = (offset / sector, size / sector);
        let (start, row) = (first % children, first / children);
        let (short, _, big) = split(sectors, children, nparity);
        let accessed = if short == 0 { big } else { children };
        let mut columns = Vec::with_capacity(accessed as usize);
        let mut block_at = 0;
        for i in 0..accessed {
            let position = start + i;
            let at_row = row + u64::from(position >= children);
            let stored = (short + u64::from(i < big)) * sector;
            let data = if i < nparity { 0 } else { stored };
            let child = (position % children) as usize;
            columns.push(Column { child, at: (at_row * sector) as i64, stored, block_at, data });
            block_at += data;
        }
        self.swap_parity(offset, &mut columns);
        Row { nparity: self.nparity, columns }
    }

    /// Rows that are placed one by one (section 4.2).
    fn placed_rows(&self, offset: u64, size: u64, width: usize) -> Vec<Row> {
        let (width, nparity) = (width as u64, self.nparity as u64);
        let sectors = size / self.sector;
        let (_, extra, big) = split(sectors, width, nparity);
        let total = sectors + nparity * sectors.div_ceil(width - nparity);
        let count = total.div_ceil(width);
        let cols = total.min(width);
        let place = Placement { count, cols, extra, big };
        (0..count).map(|k| self.placed_row(offset, offset / self.sector + k * width, k, &place)).collect()
    }

    fn placed_row(&self, offset: u64, first: u64, k: u64, place: &Placement) -> Row {
        let nparity = self.nparity as u64;
        let (width, shift) = self.physical(first, place.cols);
        let mut columns = Vec::with_capacity(place.cols as usize);
        for c in 0..place.cols {
            let position = first + c;
            let at = ((position / width) * self.sector) as i64 - shift;
            let child = (position % width) as usize;
            let block_sector = if c < nparity { None } else { place.block_sector(k, c, c - nparity) };
            let there = c < nparity || block_sector.is_some();
            columns.push(Column {
                child,
                at,
                stored: if there { self.sector } else { 0 },
                block_at: block_sector.unwrap_or(0) * self.sector,
                data: if block_sector.is_some() { self.sector } else { 0 },
            });
        }
        self.swap_parity(offset, &mut columns);
        Row { nparity: self.nparity, columns }
    }

    /// Number of children over which a row is laid out now, and its distance before its place.
    fn physical(&self, first: u64, cols: u64) -> (u64, i64) {
        let children = self.children as u64;
        let Some(reflow) = self.expansion.running else { return (children, 0) };
        let copied = first + cols <= reflow.offset / self.sector;
        match (copied, reflow.in_scratch) {
            (false, _) => (children - 1, 0),
            (true, false) => (children, 0),
            (true, true) => (children, SCRATCH_SHIFT),
        }
    }

    /// Single parity would always hit the same disk for 1 MiB blocks; every other MiB swaps.
    fn swap_parity(&self, offset: u64, columns: &mut [Column]) {
        if self.nparity == 1
            && offset & SWAP_BIT != 0
            && let [first, second, ..] = columns
        {
            std::mem::swap(&mut first.child, &mut second.child);
            std::mem::swap(&mut first.at, &mut second.at);
        }
    }
}

/// Numbers shared by all rows of a block.
struct Placement {
    count: u64,
    cols: u64,
    extra: u64,
    big: u64,
}

impl Placement {
    /// The sector of the block in column `c` of row `k`; `None`: none.
    fn block_sector(&self, k: u64, c: u64, data_column: u64) -> Option<u64> {
        let full = self.big == 0 || c < self.big;
        if k + 1 == self.count && !full {
            return None;
        }
        Some(if full {
            data_column * self.count + k
        } else {
            self.extra * self.count + (data_column - self.extra) * (self.count - 1) + k
        })
    }
}
