//! Block pointers as lists of freed blocks store them (docs/on-disk/15-space.md, section 6.1).
//!
//! A stored pointer keeps what is needed to free the block, not what is needed to read it. In livelists an entry
//! can also be a free, which cancels an earlier entry. The bonus of such a list is `dsl::BpobjPhys`.

use crate::blkptr::BLKPTR_SIZE;
use crate::endian::bits;
use crate::{BlockPtr, BpKind, DecodeError, Endian};

/// Index of the word that holds the fill count in a pointer, and the free flag in a stored pointer.
const FILL: usize = 11;

/// One entry of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredBlock {
    /// The block, without fill count and usually without checksum.
    pub bp: BlockPtr,
    /// True if the entry is a free; only in livelists.
    pub freed: bool,
}

impl StoredBlock {
    /// The entry for a pointer. `None`: a hole, which is never stored.
    pub fn new(bp: &BlockPtr, freed: bool) -> Option<StoredBlock> {
        let stored = match bp.kind() {
            BpKind::Hole => return None,
            BpKind::Embedded | BpKind::Redacted => {
                BlockPtr::HOLE.with_word(6, bp.prop()).with_word(10, bp.logical_birth().0)
            }
            BpKind::Normal | BpKind::Gang => {
                let kept = bp.with_word(FILL, 0);
                if bp.is_dedup() { kept } else { (12..16).fold(kept, |kept, i| kept.with_word(i, 0)) }
            }
        };
        Some(StoredBlock { bp: stored, freed })
    }

    /// Reads the entry at the start of `bytes`.
    ///
    /// # Errors
    /// [`DecodeError::Short`]; [`DecodeError::Invalid`] if the pointer is a hole.
    pub fn decode(bytes: &[u8], order: Endian) -> Result<StoredBlock, DecodeError> {
        let bp = BlockPtr::decode(bytes, order)?;
        if bp.is_hole() {
            return Err(DecodeError::invalid("bpobj", "an entry is a hole"));
        }
        let fill = bp.words()[FILL];
        // Word 11 of an embedded pointer is payload, which was zeroed.
        Ok(StoredBlock { bp: bp.with_word(FILL, 0), freed: bits(fill, 0, 1) == 1 })
    }

    /// The 128 bytes of the entry.
    pub fn encode(&self, order: Endian) -> [u8; BLKPTR_SIZE] {
        self.bp.with_word(FILL, u64::from(self.freed)).encode(order)
    }
}

/// Reads the entries of a block. A partial entry at the end is ignored.
pub fn entries(bytes: &[u8], order: Endian) -> impl Iterator<Item = Result<StoredBlock, DecodeError>> + '_ {
    bytes.chunks_exact(BLKPTR_SIZE).map(move |raw| StoredBlock::decode(raw, order))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Txg;

    #[test]
    fn what_reading_needs_is_left_out() {
        let bp = BlockPtr::from_words(std::array::from_fn(|i| i as u64 + 1))
            .with_prop_bits(39, 1, 0)
            .with_prop_bits(62, 1, 0);
        let stored = StoredBlock::new(&bp, true).unwrap();
        assert_eq!(stored.bp.words()[..11], bp.words()[..11]);
        assert_eq!(stored.bp.words()[11..], [0; 5]);
        let dedup = StoredBlock::new(&bp.with_prop_bits(62, 1, 1), false).unwrap();
        assert_eq!(dedup.bp.words()[12..], bp.words()[12..]);
        for order in [Endian::Little, Endian::Big] {
            assert_eq!(StoredBlock::decode(&stored.encode(order), order), Ok(stored));
        }
    }

    #[test]
    fn embedded_pointers_lose_their_payload_and_holes_are_not_stored() {
        let bp = BlockPtr::from_words([7; 16]).with_prop_bits(39, 1, 1).with_prop_bits(40, 8, 0);
        let stored = StoredBlock::new(&bp, false).unwrap();
        assert_eq!((stored.bp.logical_birth(), stored.bp.words()[0]), (Txg(7), 0));
        assert_eq!(StoredBlock::new(&BlockPtr::HOLE, false), None);
        assert!(StoredBlock::decode(&[0; BLKPTR_SIZE], Endian::Little).is_err());
    }
    /// Pools with removed vdevs also list ranges of these that became obsolete: an address and a birth; all other
    /// fields are zero. Such an entry is not a pointer that could be read.
    #[test]
    fn obsolete_blocks_have_only_an_address_and_a_birth() {
        let bp = BlockPtr::HOLE.with_word(0, 0x1_0000_0006).with_word(1, 0x37c).with_word(10, 0xa);
        let stored = StoredBlock::decode(&bp.encode(Endian::Little), Endian::Little).unwrap();
        assert_eq!(stored, StoredBlock { bp, freed: false });
        assert_eq!(StoredBlock::new(&bp, false), Some(stored));
        assert!(bp.validate().is_err());
        assert_eq!(bp.dvas().count(), 1);
    }
}
