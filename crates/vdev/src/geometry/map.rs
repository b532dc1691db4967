//! The location of a block's bytes: rows of columns.

use format::{Asize, Psize};

/// One column of a row: some bytes on one child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Column {
    /// Index of the child that holds the column.
    pub child: usize,
    /// First byte in the child's allocatable space. Negative in the boot area before it, where RAID-Z
    /// expansion keeps its scratch copy.
    pub at: i64,
    /// Bytes on the child, padding included; 0 for an empty column.
    pub stored: u64,
    /// First byte in the block; meaningless for parity.
    pub block_at: u64,
    /// Bytes of the block in this column; 0 for parity. At most `stored`, which is padded with zeros.
    pub data: u64,
}

/// A row: parity columns, then the data columns that they protect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Number of leading columns that are parity (P, Q, R).
    pub nparity: usize,
    /// The columns; for parity, those shorter than the first count as padded with zeros.
    pub columns: Vec<Column>,
}

impl Row {
    /// Bytes of each parity column.
    pub fn height(&self) -> u64 {
        self.columns.first().map_or(0, |column| column.stored)
    }

    /// The parity columns of the row, which come first.
    pub fn parity(&self) -> &[Column] {
        self.columns.get(..self.nparity).unwrap_or_default()
    }

    /// The data columns of the row, in the order of the block.
    pub fn data(&self) -> &[Column] {
        self.columns.get(self.nparity..).unwrap_or_default()
    }
}

/// The columns of a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockMap {
    /// The rows, in the order of the block for RAID-Z and dRAID.
    pub rows: Vec<Row>,
    /// Bytes of the block, rounded up to whole sectors.
    pub size: u64,
    /// Bytes of a sector of the vdev.
    pub(crate) sector: u64,
    /// Whether the data columns, taken in order, are the block from front to back.
    pub(crate) in_order: bool,
}

/// Cuts `sectors` into columns: `(short, extra, big)`, the height of a short column, the sectors
/// beyond full rows and the number of columns that are one sector higher.
pub(super) fn split(sectors: u64, width: u64, nparity: u64) -> (u64, u64, u64) {
    let per_row = width - nparity;
    let (short, extra) = (sectors / per_row, sectors % per_row);
    (short, extra, if extra == 0 { 0 } else { extra + nparity })
}

/// Allocated bytes of a block on a mirror or a single leaf.
pub(crate) fn mirror_asize(psize: Psize, sector: u64) -> Option<Asize> {
    Some(Asize(psize.0.checked_next_multiple_of(sector)?))
}
