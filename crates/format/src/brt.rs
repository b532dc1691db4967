//! Block reference tables: reference counts of cloned blocks
//! (docs/on-disk/32-dedup-cloning.md, section 3).
//!
//! There is one table per top-level vdev: a ZAP from the offset of a block to its number of additional references,
//! and an array with the number of entries for each region of the vdev, so that most frees need not search the ZAP.

use crate::{DecodeError, Endian, ObjectId, VdevId, names};

/// Size in bytes of the bonus of a block reference table.
#[cfg(test)]
pub(crate) const BRT_PHYS_SIZE: usize = 56;
/// Size of a region in bytes, in every table so far.
pub const REGION_SIZE: u64 = 16 << 20;

const WHAT: &str = "block reference table";

/// The MOS directory entry of the table of a vdev.
pub fn directory_name(vdev: VdevId) -> String {
    format!("{}{vdev}", names::directory::BRT_PREFIX)
}

/// The bonus of the block reference table of one top-level vdev.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BrtPhys {
    /// The ZAP object that holds the entries: offset to count.
    pub entries: ObjectId,
    /// Number of regions, and of counters in the array object.
    pub regions: u64,
    /// Byte order of the array.
    pub array_order: Endian,
    /// Number of entries in the ZAP.
    pub count: u64,
    /// Size of one region in bytes.
    pub region_size: u64,
    /// Bytes allocated to cloned blocks, each counted once.
    pub used: u64,
    /// Bytes that the additional references would allocate without cloning.
    pub saved: u64,
}

impl BrtPhys {
    /// Reads the bonus, 56 bytes.
    ///
    /// # Errors
    /// [`DecodeError::Short`]; [`DecodeError::Field`] for an unknown byte order or an impossible size of
    /// regions.
    pub fn decode(bytes: &[u8], order: Endian) -> Result<BrtPhys, DecodeError> {
        let [entries, regions, swapped, count, region_size, used, saved] = order.words(WHAT, bytes, 0)?;
        let array_order = match swapped {
            0 => Endian::Little,
            1 => Endian::Big,
            _ => return Err(DecodeError::field(WHAT, "byte order", swapped)),
        };
        if region_size == 0 {
            return Err(DecodeError::field(WHAT, "region size", region_size));
        }
        Ok(BrtPhys { entries: ObjectId(entries), regions, array_order, count, region_size, used, saved })
    }

    /// The bonus in 56 bytes.
    pub fn encode(&self, order: Endian) -> Vec<u8> {
        let swapped = u64::from(self.array_order == Endian::Big);
        [self.entries.0, self.regions, swapped, self.count, self.region_size, self.used, self.saved]
            .into_iter()
            .flat_map(|word| order.put_u64(word))
            .collect()
    }

    /// Number of entries of each region in a block of the array.
    pub fn region_counts<'a>(&self, block: &'a [u8]) -> impl Iterator<Item = u16> + 'a {
        let order = self.array_order;
        let (pairs, _) = block.as_chunks::<2>();
        pairs.iter().map(move |raw| match order {
            Endian::Little => u16::from_le_bytes(*raw),
            Endian::Big => u16::from_be_bytes(*raw),
        })
    }
}

/// Decodes the number of additional references from a ZAP value: one 8-byte integer (big-endian, as ZAP values are
/// returned) or, without the feature `block_cloning_endian`, eight 1-byte integers in the byte order of the table.
///
/// # Errors
/// [`DecodeError::Field`] if the value has neither form.
pub fn extra_references(int_size: u8, value: &[u8], table_order: Endian) -> Result<u64, DecodeError> {
    if value.len() != 8 {
        return Err(DecodeError::field(WHAT, "size of a value", value.len() as u64));
    }
    match int_size {
        8 => Endian::Big.u64(WHAT, value, 0),
        1 => table_order.u64(WHAT, value, 0),
        _ => Err(DecodeError::field(WHAT, "integer size of a value", int_size)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bonus_round_trips() {
        let phys = BrtPhys {
            entries: ObjectId(70),
            regions: 4,
            array_order: Endian::Big,
            count: 8,
            region_size: REGION_SIZE,
            used: 1 << 20,
            saved: 2 << 20,
        };
        for order in [Endian::Little, Endian::Big] {
            let bytes = phys.encode(order);
            assert_eq!(bytes.len(), BRT_PHYS_SIZE);
            assert_eq!(BrtPhys::decode(&bytes, order), Ok(phys));
        }
        assert_eq!(phys.region_counts(&[0, 1, 2, 0, 9]).collect::<Vec<_>>(), [1, 512]);
        assert!(BrtPhys::decode(&[0xff; 56], Endian::Little).is_err());
        assert!(BrtPhys::decode(&[0; 56], Endian::Little).is_err());
    }

    #[test]
    fn counts_of_both_forms() {
        let value = [2, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(extra_references(1, &value, Endian::Little), Ok(2));
        assert_eq!(extra_references(8, &[0, 0, 0, 0, 0, 0, 0, 2], Endian::Little), Ok(2));
        assert!(extra_references(4, &value, Endian::Little).is_err());
        assert!(extra_references(1, &value[1..], Endian::Little).is_err());
    }
}
