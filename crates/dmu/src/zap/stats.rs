//! Statistics of a ZAP's structure, for `zdb`.

use super::entries::{Table, chunks_of, sorted_entries, step};
use super::reader::{Form, Zap};
use crate::DmuError;
use format::zap::{FatHeader, Leaf};

/// Rows of a histogram; the last one counts all larger values too.
pub const HISTOGRAM_ROWS: usize = 10;

/// Statistics of a ZAP's structure.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ZapStats {
    /// Whether the ZAP has the fat form.
    pub is_fat: bool,
    /// Bytes of a block.
    pub block_size: u64,
    /// Number of entries: counted in a micro ZAP, from the header of a fat one.
    pub entries: u64,
    /// Number of leaves, from the header.
    pub leaves: u64,
    /// Number of blocks ever used.
    pub blocks: u64,
    /// Salt of the ZAP: start value of its hash.
    pub salt: u64,
    /// Normalization of names: `format::zap::NORM_…`.
    pub normalization: u64,
    /// The header of a fat ZAP; `None` for a micro ZAP.
    pub header: Option<FatHeader>,
    /// Number of leaves, by log2 of the slots of the pointer table that lead to them.
    pub leaves_by_pointers: [u64; HISTOGRAM_ROWS],
    /// Number of leaves, by their number of entries divided by 5.
    pub leaves_by_entries: [u64; HISTOGRAM_ROWS],
    /// Number of leaves, by tenths of used chunks.
    pub leaves_by_fullness: [u64; HISTOGRAM_ROWS],
    /// Number of entries, by chunks.
    pub entries_by_chunks: [u64; HISTOGRAM_ROWS],
    /// Number of buckets, by entries.
    pub buckets_by_entries: [u64; HISTOGRAM_ROWS],
}

impl Zap {
    /// Statistics of the ZAP's structure, for `zdb`.
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
    // As measured with the real zdb, which counts 22 bytes a chunk here, so that no leaf is ever full.
    let free = usize::from(leaf.free_chunks) * 22;
    count(&mut stats.leaves_by_fullness, 10 * block_size.saturating_sub(free) / block_size.max(1));
    for bucket in 0..leaf.buckets {
        count(&mut stats.buckets_by_entries, leaf.chain(bucket).flatten().count());
    }
    for entry in sorted_entries(header, leaf).0 {
        // The real zdb counts the words of a key as bytes.
        count(&mut stats.entries_by_chunks, chunks_of(&entry, 1));
    }
}

fn count(histogram: &mut [u64; HISTOGRAM_ROWS], row: usize) {
    histogram[row.min(HISTOGRAM_ROWS - 1)] += 1;
}
