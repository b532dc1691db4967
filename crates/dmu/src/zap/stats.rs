//! Shape and fill of a ZAP, for people who look at pools.

use super::entries::{Table, chunks_of, sorted_entries, step};
use super::reader::{Form, Zap};
use crate::DmuError;
use format::zap::{FatHeader, Leaf};

/// Rows of a histogram; what is larger counts in the last.
pub const HISTOGRAM_ROWS: usize = 10;

/// Shape and fill of a ZAP.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ZapStats {
    /// Is fat.
    pub is_fat: bool,
    /// Bytes of a block.
    pub block_size: u64,
    /// Entries: counted in a micro ZAP, as the header says in a fat one.
    pub entries: u64,
    /// Leaves, as the header says.
    pub leaves: u64,
    /// Blocks ever used.
    pub blocks: u64,
    /// Start value of the hash.
    pub salt: u64,
    /// `format::zap::NORM_…`
    pub normalization: u64,
    /// The header, if it is fat.
    pub header: Option<FatHeader>,
    /// Leaves by log2 of the slots of the pointer table that lead to them.
    pub leaves_by_pointers: [u64; HISTOGRAM_ROWS],
    /// Leaves by entries, in fives.
    pub leaves_by_entries: [u64; HISTOGRAM_ROWS],
    /// Leaves by tenths of chunks used.
    pub leaves_by_fullness: [u64; HISTOGRAM_ROWS],
    /// Entries by chunks taken.
    pub entries_by_chunks: [u64; HISTOGRAM_ROWS],
    /// Buckets by entries.
    pub buckets_by_entries: [u64; HISTOGRAM_ROWS],
}

impl Zap {
    /// Shape and fill, for people.
    pub fn stats(&self) -> Result<ZapStats, DmuError> {
        collect(self)
    }
}

fn collect(zap: &Zap) -> Result<ZapStats, DmuError> {
    let mut stats = ZapStats {
        block_size: zap.block_size(),
        entries: zap.count()?,
        blocks: 1,
        salt: zap.salt(),
        normalization: zap.normalization(),
        ..ZapStats::default()
    };
    if let Form::Fat(header) = &zap.form {
        stats.is_fat = true;
        stats.leaves = header.leaves;
        stats.blocks = header.free_block.0;
        stats.header = Some(header.clone());
        let mut table = Table::new();
        let mut index = 0;
        while index < header.table_len() {
            let step = step(zap, header, &mut table, index);
            if let Some(damage) = step.damage {
                return Err(damage);
            }
            if let Some((block, _)) = step.leaf {
                let leaf = Leaf::decode(block.bytes(), block.order()).map_err(|e| zap.decode_error(e))?;
                add_leaf(&mut stats, header, &leaf, block.bytes().len());
            }
            index = step.next;
        }
    }
    Ok(stats)
}

fn add_leaf(stats: &mut ZapStats, header: &FatHeader, leaf: &Leaf<'_>, block_size: usize) {
    count(&mut stats.leaves_by_pointers, (header.table_shift - leaf.prefix_len) as usize);
    count(&mut stats.leaves_by_entries, usize::from(leaf.entries) / 5);
    // As measured on the real zdb, whose chunks have 22 bytes here, so that nothing is ever full.
    let free = usize::from(leaf.free_chunks) * 22;
    count(&mut stats.leaves_by_fullness, 10 * block_size.saturating_sub(free) / block_size.max(1));
    for bucket in 0..leaf.buckets {
        count(&mut stats.buckets_by_entries, leaf.chain(bucket).flatten().count());
    }
    for entry in sorted_entries(header, leaf).0 {
        // The real zdb takes the words of a key for bytes.
        count(&mut stats.entries_by_chunks, chunks_of(&entry, 1));
    }
}

fn count(histogram: &mut [u64; HISTOGRAM_ROWS], row: usize) {
    histogram[row.min(HISTOGRAM_ROWS - 1)] += 1;
}
