//! The sizes in which compressed blocks are stored.

use format::VdevId;
use format::config::VdevKind;
use format::units::SECTOR;
use vdev::VdevTree;

/// The sizes that compressed blocks may have: those that the vdevs for ordinary blocks can allocate
/// (docs/on-disk/12-block-pointers.md, section 11).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quantum {
    /// Bytes of the smallest allocation.
    pub min: u64,
    /// Unit of larger sizes, in bytes.
    pub unit: u64,
}

impl Default for Quantum {
    fn default() -> Quantum {
        Quantum { min: SECTOR, unit: SECTOR }
    }
}

impl Quantum {
    /// The quantum of a pool whose ordinary blocks are on these top-level vdevs.
    pub(crate) fn of(tree: &VdevTree, vdevs: impl IntoIterator<Item = VdevId>) -> Quantum {
        let sizes = vdevs.into_iter().filter_map(|vdev| tree.min_alloc(vdev)).filter(|size| *size >= SECTOR);
        let both = sizes.fold(None, |found: Option<Quantum>, size| {
            Some(match found {
                None => Quantum { min: size, unit: size },
                Some(found) => Quantum { min: found.min.min(size), unit: gcd(found.unit, size) },
            })
        });
        both.unwrap_or_default()
    }

    /// The quantum of all vdevs except log vdevs, which is right if no vdev is set apart for metadata.
    pub(crate) fn of_tree(tree: &VdevTree) -> Quantum {
        let holds_blocks = |kind| !matches!(kind, VdevKind::Indirect | VdevKind::Hole | VdevKind::Missing);
        let normal = tree.tops().filter(|(_, node)| !node.is_log && holds_blocks(node.kind));
        Quantum::of(tree, normal.map(|(vdev, _)| vdev))
    }

    /// The stored size of so many bytes.
    pub(crate) fn round_up(self, bytes: u64) -> u64 {
        if bytes <= self.min { self.min } else { bytes.next_multiple_of(self.unit) }
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_the_minimum_or_multiples_of_the_unit() {
        let quantum = Quantum { min: 16384, unit: 4096 };
        assert_eq!([1, 16384, 16385, 20480].map(|size| quantum.round_up(size)), [16384, 16384, 20480, 20480]);
        assert_eq!((gcd(4096, 16384), gcd(12288, 512), gcd(12288, 8192)), (4096, 512, 4096));
    }
}
