//! Encodes the structures of the dataset layer. Bytes after the known fields are zero.

use super::{
    BPTREE_ENTRY_SIZE, BookmarkPhys, BpobjPhys, BptreeEntry, BptreePhys, DEADLIST_PHYS_SIZE, DeadlistPhys,
    RedactionListPhys,
};
use crate::{Endian, ObjectId};

/// Bytes of a bptree's bonus.
pub(crate) const BPTREE_PHYS_SIZE: usize = 40;

fn number(id: Option<ObjectId>) -> u64 {
    id.map_or(0, |id| id.0)
}

fn bytes(words: &[u64], order: Endian, size: usize) -> Vec<u8> {
    let mut out: Vec<u8> = words.iter().flat_map(|word| order.put_u64(*word)).collect();
    out.resize(size, 0);
    out
}

impl BookmarkPhys {
    /// The words of the ZAP entry: 3 of the first form, 12 of the second.
    pub fn to_words(&self) -> Vec<u64> {
        let mut words = vec![self.guid, self.creation_txg.0, self.creation_time];
        if let Some(v2) = &self.v2 {
            words.extend([number(v2.redaction), v2.flags, v2.referenced, v2.compressed, v2.uncompressed]);
            words.extend(v2.freed_before_next);
            words.push(v2.ivset_guid);
        }
        words
    }
}

impl RedactionListPhys {
    /// The bonus or spill block, as long as needed for its guids.
    pub fn encode(&self, order: Endian) -> Vec<u8> {
        let mut words = vec![self.last_object, self.last_block, self.num_entries, self.num_snapshots];
        words.extend(&self.snapshots);
        bytes(&words, order, 8 * words.len())
    }
}

impl BpobjPhys {
    /// The bonus in `size` bytes: 16, 32, 48 or 56. Fields that do not fit are left out.
    pub fn encode(&self, order: Endian, size: usize) -> Vec<u8> {
        let words = [
            self.num_blkptrs,
            self.bytes,
            self.comp,
            self.uncomp,
            number(self.subobjs),
            self.num_subobjs,
            self.num_freed,
        ];
        bytes(&words, order, size)
    }
}

impl DeadlistPhys {
    /// Encodes the bonus, 320 bytes.
    pub fn encode(&self, order: Endian) -> Vec<u8> {
        bytes(&[self.used, self.comp, self.uncomp], order, DEADLIST_PHYS_SIZE)
    }
}

impl BptreePhys {
    /// Encodes the bonus, 40 bytes.
    pub fn encode(&self, order: Endian) -> Vec<u8> {
        bytes(&[self.begin, self.end, self.bytes, self.comp, self.uncomp], order, BPTREE_PHYS_SIZE)
    }
}

impl BptreeEntry {
    /// The entry in 168 bytes.
    pub fn encode(&self, order: Endian) -> Vec<u8> {
        let mut words = self.bp.words().to_vec();
        words.push(self.birth.0);
        words.extend(self.bookmark);
        bytes(&words, order, BPTREE_ENTRY_SIZE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbered(len: usize, order: Endian) -> Vec<u8> {
        (1..=len as u64 / 8).flat_map(|i| order.put_u64(i)).collect()
    }

    #[test]
    fn what_was_decoded_is_encoded_again() {
        for order in [Endian::Little, Endian::Big] {
            for size in [16, 32, 48, 56] {
                let raw = numbered(size, order);
                assert_eq!(BpobjPhys::decode(&raw, order).unwrap().encode(order, size), raw);
            }
            let raw = numbered(BPTREE_ENTRY_SIZE, order);
            assert_eq!(BptreeEntry::decode(&raw, order).unwrap().encode(order), raw);
            let raw = numbered(BPTREE_PHYS_SIZE, order);
            assert_eq!(BptreePhys::decode(&raw, order).unwrap().encode(order), raw);
            let raw = numbered(DEADLIST_PHYS_SIZE, order);
            assert_eq!(DeadlistPhys::decode(&raw, order).unwrap().encode(order)[..24], raw[..24]);
        }
        for words in [&[1, 2, 3][..], &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]] {
            assert_eq!(BookmarkPhys::from_words(words).unwrap().to_words(), words);
        }
    }
}
