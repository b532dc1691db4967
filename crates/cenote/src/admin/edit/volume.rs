//! What a volume reserves so that it never runs out of space
//! (docs/on-disk/25-zvol.md, section 5).

use format::{Psize, Txg, VdevId};
use vdev::VdevTree;

/// Block size of volumes made without telling one.
pub const DEFAULT_VOLUME_BLOCK: u64 = 16 << 10;
/// Bytes of a block of metadata, at most.
const METADATA_BLOCK: u64 = 128 << 10;
/// Pointers in it.
const POINTERS: u64 = 1024;
/// Blocks of metadata that every volume has.
const METADATA_BLOCKS: u64 = 7;
/// Sectors are of so many bytes where sizes are deflated.
const SECTOR_SHIFT: u32 = 9;

/// What decides how much a volume of a size takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AutoReservation {
    /// Bytes of a block.
    pub block_size: u64,
    /// Copies of each block.
    pub copies: u64,
    /// Bytes that are charged for a block, on the vdev where this is most.
    pub charged: u64,
}

impl AutoReservation {
    /// For volumes on these vdevs.
    pub fn new(tree: &VdevTree, block_size: u64, copies: u64) -> AutoReservation {
        let charge = |vdev: VdevId| {
            let asize = |bytes| tree.psize_to_asize(vdev, Psize(bytes), Txg(u64::MAX)).map_or(bytes, |a| a.0);
            let ratio = asize(METADATA_BLOCK) >> SECTOR_SHIFT;
            asize(block_size).checked_div(ratio).map_or(block_size, |n| n * (METADATA_BLOCK >> SECTOR_SHIFT))
        };
        let parity = tree.tops().filter(|(_, top)| top.nparity > 0);
        let charged = parity.map(|(vdev, _)| charge(vdev)).max().unwrap_or(block_size);
        AutoReservation { block_size, copies: copies.clamp(1, 3), charged: charged.max(block_size) }
    }

    /// Bytes to reserve for a volume of `size` bytes.
    pub fn of(&self, size: u64) -> u64 {
        let blocks = size.div_ceil(self.block_size.max(1));
        let mut metadata = METADATA_BLOCKS;
        let mut level = blocks;
        while level > 1 {
            level = level.div_ceil(POINTERS);
            metadata = metadata.saturating_add(level);
        }
        let metadata = metadata.saturating_mul(METADATA_BLOCK).saturating_mul((self.copies + 1).min(3));
        blocks.saturating_mul(self.charged).saturating_mul(self.copies).saturating_add(metadata)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reservations_are_those_of_openzfs() {
        for (size, block, reserved) in [
            (10_485_760, 16 << 10, 12_582_912),
            (10_485_760, 8 << 10, 13_107_200),
            (10_010_624, 16 << 10, 12_107_776),
            (104_857_600, 4 << 10, 113_508_352),
            (104_857_600, 64 << 10, 107_479_040),
            (31_457_280, 16 << 10, 34_078_720),
        ] {
            let auto = AutoReservation { block_size: block, copies: 1, charged: block };
            assert_eq!(auto.of(size), reserved, "{size} in blocks of {block}");
        }
    }
}
