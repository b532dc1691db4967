//! Computes the reservation that guarantees a volume never runs out of space (docs/on-disk/25-zvol.md, section 5).

use format::{Psize, Txg, VdevId};
use vdev::VdevTree;

/// Default block size of volumes in bytes.
pub(crate) const DEFAULT_VOLUME_BLOCK: u64 = 16 << 10;
/// Maximum size of a metadata block in bytes.
const METADATA_BLOCK: u64 = 128 << 10;
/// Number of block pointers in an indirect block.
const POINTERS: u64 = 1024;
/// Number of metadata blocks that every volume has.
const METADATA_BLOCKS: u64 = 7;
/// Binary logarithm of the unit of deflated sizes, in bytes.
const SECTOR_SHIFT: u32 = 9;

/// The parameters that determine a volume's reservation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AutoReservation {
    /// Block size of the volume in bytes.
    pub block_size: u64,
    /// For each vdev with parity: bytes that a block allocates, and sectors that a block of 128 KiB allocates. The
    /// latter gives the ratio by which sizes are deflated.
    pub parity: Vec<(u64, u64)>,
}

impl AutoReservation {
    /// The parameters for volumes on these vdevs.
    pub(crate) fn new(tree: &VdevTree, block_size: u64) -> AutoReservation {
        let taken = |vdev: VdevId| {
            let asize = |bytes| tree.psize_to_asize(vdev, Psize(bytes), Txg(u64::MAX)).map_or(bytes, |a| a.0);
            (asize(block_size), asize(METADATA_BLOCK) >> SECTOR_SHIFT)
        };
        let parity = tree.tops().filter(|(_, top)| top.nparity > 0).map(|(vdev, _)| taken(vdev));
        AutoReservation { block_size, parity: parity.collect() }
    }

    /// Bytes to reserve for a volume of `size` bytes.
    pub(crate) fn of(&self, size: u64) -> u64 {
        let blocks = size.div_ceil(self.block_size.max(1));
        let mut metadata = METADATA_BLOCKS;
        let mut level = blocks;
        while level > 1 {
            level = level.div_ceil(POINTERS);
            metadata = metadata.saturating_add(level);
        }
        // Metadata has two copies. As in OpenZFS, additional copies of data are not counted.
        let metadata = metadata.saturating_mul(METADATA_BLOCK).saturating_mul(2);
        let deflated = |(taken, ratio): &(u64, u64)| {
            let sectors = blocks.saturating_mul(*taken).checked_div(*ratio).unwrap_or(0);
            sectors.saturating_mul(METADATA_BLOCK >> SECTOR_SHIFT)
        };
        let plain = blocks.saturating_mul(self.block_size);
        let data = self.parity.iter().map(deflated).fold(plain, u64::max);
        data.saturating_add(metadata)
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
            let auto = AutoReservation { block_size: block, parity: Vec::new() };
            assert_eq!(auto.of(size), reserved, "{size} in blocks of {block}");
        }
        // raidz2 of five devices with sectors of 4 KiB: 54 of them for 128 KiB.
        for (block, taken, reserved) in [
            (4 << 10, 3, 195_064_064),
            (8 << 10, 6, 191_918_336),
            (16 << 10, 9, 143_742_208),
            (64 << 10, 30, 119_129_856),
        ] {
            let parity = vec![(taken << 12, 54 << 3)];
            let auto = AutoReservation { block_size: block, parity };
            assert_eq!(auto.of(104_857_600), reserved, "raidz2, blocks of {block}");
        }
    }
}
