//! Layout of a leaf: four labels, two at each end, and the parts of a label
//! (docs/on-disk/11-labels-config.md, sections 1 and 4).
//!
//! ```text
//! device:  | label 0 | label 1 | boot area |  allocatable space  | label 2 | label 3 |
//!          0       256K      512K         4M                 S-512K    S-256K       S
//! label:   | pad | boot env | config (nvlist + trailer) | uberblock ring |
//!          0     8K        16K                        128K             256K
//! ```
//!
//! `S` is the size of the device rounded down to whole labels. The configuration, the boot environment and each
//! uberblock slot end with a [`Trailer`]: a SHA-256 that also covers their location on the device.
//! `codec::checksum` computes it.

use crate::uberblock::UBERBLOCK_SIZE;
use crate::units::{LABEL_END, LABEL_START};
use crate::{Ashift, DecodeError, DeviceOffset, Endian};

/// Size of one label in bytes.
pub const LABEL_SIZE: u64 = 0x4_0000;
/// Number of labels on a leaf: two at the front, two at the end.
pub const LABELS: usize = 4;
/// Minimum size of a leaf's device in bytes.
pub const DEVICE_MIN: u64 = 64 << 20;
/// Offset of the boot area after the front labels; raidz expansion uses it as scratch space.
pub const BOOT_AREA_OFFSET: u64 = 2 * LABEL_SIZE;

/// Offset of the boot environment in its label.
pub const BOOT_ENV_OFFSET: u64 = 0x2000;
/// Size of the boot environment in bytes, trailer included.
pub const BOOT_ENV_SIZE: usize = 0x2000;
/// Offset of the configuration in its label.
pub const CONFIG_OFFSET: u64 = 0x4000;
/// Size of the configuration in bytes, trailer included.
pub const CONFIG_SIZE: usize = 0x1_c000;
/// Maximum size of the packed configuration in bytes.
pub const CONFIG_NVLIST_MAX: usize = CONFIG_SIZE - TRAILER_SIZE;
/// Offset of the uberblock ring in its label.
pub const RING_OFFSET: u64 = 0x2_0000;
/// Size of the uberblock ring in bytes.
pub const RING_SIZE: usize = 0x2_0000;

/// Size in bytes of the checksum trailer of an embedded checksum.
pub const TRAILER_SIZE: usize = 40;
/// Magic number of a checksum trailer.
pub(crate) const TRAILER_MAGIC: u64 = 0x0210_da7a_b10c_7a11;

const _: () = assert!(UBERBLOCK_SIZE + TRAILER_SIZE <= 1024);

/// The size of a device rounded down to whole labels, in bytes.
pub(crate) fn aligned_size(device_size: u64) -> u64 {
    device_size / LABEL_SIZE * LABEL_SIZE
}

/// Bytes of allocatable space on a device of this size; 0 if it is too small for a leaf.
pub fn usable_size(device_size: u64) -> u64 {
    if device_size < DEVICE_MIN { 0 } else { aligned_size(device_size) - LABEL_START - LABEL_END }
}

/// Offset of label `index` (0 to 3). On a device that is too small for four labels, labels 2 and 3 start at 0:
/// compare the size with [`DEVICE_MIN`] first.
pub fn label_offset(index: usize, device_size: u64) -> DeviceOffset {
    let index = index as u64;
    if index < 2 {
        return DeviceOffset(index * LABEL_SIZE);
    }
    let from_end = 4u64.saturating_sub(index) * LABEL_SIZE;
    DeviceOffset(aligned_size(device_size).saturating_sub(from_end))
}

/// Size of an uberblock slot in bytes on a leaf of a top-level vdev with this ashift: 1 to 8 KiB.
pub fn ring_slot_size(ashift: Ashift) -> usize {
    1 << ashift.0.clamp(10, 13)
}

/// Number of slots in an uberblock ring.
pub fn ring_slots(ashift: Ashift) -> usize {
    RING_SIZE / ring_slot_size(ashift)
}

/// Offset of uberblock slot `slot` of a label.
pub fn slot_offset(label: usize, slot: usize, ashift: Ashift, device_size: u64) -> DeviceOffset {
    let in_ring = (slot * ring_slot_size(ashift)) as u64;
    DeviceOffset(label_offset(label, device_size).0 + RING_OFFSET + in_ring)
}

/// The 40 bytes at the end of a protected region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trailer {
    /// The stored checksum, in host order.
    pub(crate) checksum: [u64; 4],
    /// Byte order in which the region was written.
    pub(crate) order: Endian,
}

impl Trailer {
    /// Decodes the trailer at the end of `region`.
    ///
    /// # Errors
    /// [`DecodeError::Short`]; [`DecodeError::Magic`] if the magic number is in neither byte order.
    pub fn decode(region: &[u8]) -> Result<Trailer, DecodeError> {
        const WHAT: &str = "checksum trailer";
        let start = region.len().checked_sub(TRAILER_SIZE).ok_or(DecodeError::Short {
            what: WHAT,
            needed: TRAILER_SIZE,
            have: region.len(),
        })?;
        let found = Endian::Little.u64(WHAT, region, start)?;
        let order = match found {
            TRAILER_MAGIC => Endian::Little,
            _ if found.swap_bytes() == TRAILER_MAGIC => Endian::Big,
            _ => return Err(DecodeError::Magic { what: WHAT, found, expected: TRAILER_MAGIC }),
        };
        Ok(Trailer { checksum: order.words(WHAT, region, start + 8)?, order })
    }

    /// The 40 bytes, in the byte order of the trailer.
    pub fn encode(&self) -> [u8; TRAILER_SIZE] {
        let mut out = [0; TRAILER_SIZE];
        let [a, b, c, d] = self.checksum;
        for (chunk, word) in out.chunks_exact_mut(8).zip([TRAILER_MAGIC, a, b, c, d]) {
            chunk.copy_from_slice(&self.order.put_u64(word));
        }
        out
    }
}

/// The verifier: the checksum words of a trailer while its checksum is computed.
pub fn verifier(region_start: DeviceOffset) -> [u64; 4] {
    [region_start.0, 0, 0, 0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_sit_at_both_ends_of_the_rounded_size() {
        let size = (64 << 20) + 12345;
        let starts: Vec<u64> = (0..LABELS).map(|i| label_offset(i, size).0).collect();
        assert_eq!(starts, [0, 0x4_0000, (64 << 20) - 0x8_0000, (64 << 20) - 0x4_0000]);
        assert_eq!(usable_size(size), (64 << 20) - 0x48_0000);
        assert_eq!(usable_size(DEVICE_MIN - 1), 0);
        assert_eq!(label_offset(3, 100), DeviceOffset(0));
    }

    #[test]
    fn slots_follow_the_ashift() {
        for (ashift, size, slots) in
            [(9, 1024, 128), (10, 1024, 128), (11, 2048, 64), (12, 4096, 32), (13, 8192, 16), (16, 8192, 16)]
        {
            assert_eq!((ring_slot_size(Ashift(ashift)), ring_slots(Ashift(ashift))), (size, slots));
        }
        assert_eq!(slot_offset(1, 3, Ashift(12), 64 << 20), DeviceOffset(0x4_0000 + 0x2_0000 + 3 * 4096));
    }

    #[test]
    fn trailers_tell_their_order() {
        for order in [Endian::Little, Endian::Big] {
            let trailer = Trailer { checksum: [1, 2, 3, 4], order };
            let mut region = vec![7; 100];
            region.extend(trailer.encode());
            assert_eq!(Trailer::decode(&region), Ok(trailer));
        }
        assert!(Trailer::decode(&[0; 512]).is_err());
        assert!(Trailer::decode(&[0; 39]).is_err());
    }
}
