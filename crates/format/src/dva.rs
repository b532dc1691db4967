//! Data virtual addresses: locations of copies of a block
//! (docs/on-disk/12-block-pointers.md, section 1.1).

use crate::endian::{bits, with_bits};
use crate::units::{AllocOffset, Asize, SECTOR_SHIFT, VdevId};
use std::fmt;

/// One copy of a block: a location on a top-level vdev.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Dva {
    /// The top-level vdev on which the copy lies.
    pub vdev: VdevId,
    /// Offset in the vdev's allocatable space.
    pub offset: AllocOffset,
    /// Allocated bytes; for a gang block, of its header and all its pieces.
    pub asize: Asize,
    /// True if a gang header is stored there, not the data.
    pub gang: bool,
}

impl Dva {
    /// Decodes the two words in a pointer. `None`: both are zero, or the size is 0.
    pub fn from_words(place: u64, position: u64) -> Option<Dva> {
        let asize = bits(place, 0, 24);
        (asize != 0).then(|| Dva {
            vdev: VdevId(bits(place, 32, 24) as u32),
            asize: Asize(asize << SECTOR_SHIFT),
            offset: AllocOffset(bits(position, 0, 63) << SECTOR_SHIFT),
            gang: bits(position, 63, 1) == 1,
        })
    }

    /// The two words of a pointer.
    pub fn to_words(self) -> [u64; 2] {
        let place = with_bits(self.asize.0 >> SECTOR_SHIFT, 32, 24, u64::from(self.vdev.0));
        let position = with_bits(self.offset.0 >> SECTOR_SHIFT, 63, 1, u64::from(self.gang));
        [place, position]
    }
}

impl fmt::Display for Dva {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{:x}:{:x}", self.vdev, self.offset.0, self.asize.0)
    }
}
