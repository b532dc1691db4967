//! ZAP blocks: the micro ZAP, and header, pointer table and leaves of the fat ZAP
//! (docs/on-disk/21-zap.md).
//!
//! A ZAP maps names to arrays of integers. This module reads and changes single blocks; `dmu::zap` finds the
//! blocks, walks the leaves in order and normalizes names.
//!
//! # What always holds
//! - Counts, chunk numbers and chains are not trusted: every walk inside a leaf is bounded by its number of chunks.
//! - Values and names are returned as stored: packed, big-endian; [`MicroEntry`] values are host integers.

mod write;

pub use write::{
    LeafMut, MICRO_NAME_MAX, NewEntry, ZapBlockKind, clear_micro_entry, new_leaf, new_micro, set_micro_entry,
    set_micro_value, to_little,
};

use crate::endian::bits;
use crate::{BlockId, DecodeError, Endian};

/// First word of a micro ZAP.
pub const MICRO_MAGIC: u64 = 0x8000_0000_0000_0003;
/// First word of a fat ZAP's header block.
pub const FAT_TYPE: u64 = 0x8000_0000_0000_0001;
/// Second word of a fat ZAP's header block.
pub const FAT_MAGIC: u64 = 0x0002_F52A_B2AB;
/// First word of a leaf.
pub const LEAF_TYPE: u64 = 0x8000_0000_0000_0000;
/// Magic number of a fat ZAP's leaf block.
pub const LEAF_MAGIC: u32 = 0x02AB_1EAF;
/// Size in bytes of a micro ZAP's header and of each of its entries.
pub const MICRO_ENTRY_SIZE: usize = 64;
/// Maximum size of a micro ZAP: 1 MiB, with the feature `large_microzap`.
pub(crate) const MICRO_MAX: usize = 1 << 20;
/// Size of a leaf's chunk in bytes.
pub const CHUNK_SIZE: usize = 24;
/// Number of data bytes in an array chunk.
pub const CHUNK_DATA: usize = 21;
/// Chunk number that ends a chain.
pub const CHAIN_END: u16 = 0xFFFF;

/// Flag: the hash has 48 significant bits, not 28.
pub const FLAG_HASH64: u64 = 1;
/// Flag: keys are arrays of `u64`, not names.
pub const FLAG_UINT64_KEY: u64 = 2;
/// Flag: the first word of a key is its hash.
pub const FLAG_PRE_HASHED_KEY: u64 = 4;

/// Bit of the normalization of keys: comparison in upper case.
pub const NORM_UPPER: u64 = 0x02;
/// Bit of the normalization of keys: canonical decomposition.
pub const NORM_CANONICAL: u64 = 0x10;
/// Bit of the normalization of keys: compatibility decomposition.
pub const NORM_COMPATIBLE: u64 = 0x20;
/// Bit of the normalization of keys: composition after decomposition.
pub const NORM_COMPOSE: u64 = 0x40;

const CRC64_POLY: u64 = 0xC96C_5795_D787_0F42;
const CRC64: [u64; 256] = crc64_table();

const fn crc64_table() -> [u64; 256] {
    let mut table = [0; 256];
    let mut i = 0;
    while i < 256 {
        let mut crc = i as u64;
        let mut bit = 0;
        while bit < 8 {
            crc = (crc >> 1) ^ (if crc & 1 == 1 { CRC64_POLY } else { 0 });
            bit += 1;
        }
        table[i] = crc;
        i += 1;
    }
    table
}

/// Number of significant bits of a hash, from the top, in a ZAP with these flags.
pub fn hash_bits(flags: u64) -> u32 {
    if flags & FLAG_HASH64 != 0 { 48 } else { 28 }
}

fn crc64(start: u64, bytes: impl Iterator<Item = u8>) -> u64 {
    bytes.fold(start, |crc, byte| (crc >> 8) ^ CRC64[usize::from((crc as u8) ^ byte)])
}

fn mask(hash: u64, flags: u64) -> u64 {
    hash & (u64::MAX << (64 - hash_bits(flags)))
}

/// The hash of a normalized name without its NUL.
pub fn hash_name(salt: u64, flags: u64, name: &[u8]) -> u64 {
    mask(crc64(salt, name.iter().copied()), flags)
}

/// The hash of a key of `u64` words.
pub fn hash_words(salt: u64, flags: u64, key: &[u64]) -> u64 {
    let hash = match key.first() {
        Some(first) if flags & FLAG_PRE_HASHED_KEY != 0 => *first,
        _ => crc64(salt, key.iter().flat_map(|word| word.to_le_bytes())),
    };
    mask(hash, flags)
}

/// The two forms of a ZAP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ZapForm {
    /// Micro ZAP: one block of fixed slots.
    Micro,
    /// Fat ZAP: header, pointer table and leaves.
    Fat,
}

impl ZapForm {
    /// The form of the ZAP that begins with this block.
    ///
    /// # Errors
    /// [`DecodeError::Short`] if the block is empty; [`DecodeError::Field`] if it does not begin a ZAP.
    pub fn of(block: &[u8], order: Endian) -> Result<ZapForm, DecodeError> {
        match order.u64("ZAP", block, 0)? {
            MICRO_MAGIC => Ok(ZapForm::Micro),
            FAT_TYPE => Ok(ZapForm::Fat),
            found => Err(DecodeError::Magic { what: "ZAP", found, expected: MICRO_MAGIC }),
        }
    }
}

/// The only block of a micro ZAP.
#[derive(Debug, Clone, Copy)]
pub struct MicroZap<'a> {
    block: &'a [u8],
    order: Endian,
    /// Salt of the hash.
    pub salt: u64,
    /// How keys are normalized: bits `NORM_…`, 0 if they are not.
    pub normalization: u64,
}

/// An entry of a micro ZAP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MicroEntry<'a> {
    /// Slot of the entry in the block; the header is slot 0.
    pub slot: usize,
    /// Value of the entry.
    pub value: u64,
    /// Collision differentiator: distinguishes entries of equal hash.
    pub cd: u32,
    /// Name without its NUL, not empty.
    pub name: &'a [u8],
}

impl<'a> MicroZap<'a> {
    /// Decodes the header of the block.
    ///
    /// # Errors
    /// [`DecodeError::Short`]; [`DecodeError::Field`] if the size is not possible.
    pub fn decode(block: &'a [u8], order: Endian) -> Result<MicroZap<'a>, DecodeError> {
        const WHAT: &str = "micro ZAP";
        let [magic, salt, normalization] = order.words(WHAT, block, 0)?;
        if magic != MICRO_MAGIC {
            return Err(DecodeError::Magic { what: WHAT, found: magic, expected: MICRO_MAGIC });
        }
        if block.len() > MICRO_MAX || !block.len().is_multiple_of(MICRO_ENTRY_SIZE) {
            return Err(DecodeError::field(WHAT, "size", block.len() as u64));
        }
        Ok(MicroZap { block, order, salt, normalization })
    }

    /// Number of slots, used and free.
    pub fn slots(&self) -> usize {
        (self.block.len() / MICRO_ENTRY_SIZE).saturating_sub(1)
    }

    /// The entry of a slot, counted from 1; `None` for a free slot or a number out of range. A name without NUL is
    /// damage and is treated as a free slot.
    pub fn entry(&self, slot: usize) -> Option<MicroEntry<'a>> {
        let at = slot.checked_mul(MICRO_ENTRY_SIZE).filter(|at| *at > 0)?;
        let raw = self.block.get(at..at.checked_add(MICRO_ENTRY_SIZE)?)?;
        let field = raw.get(14..)?;
        let len = field.iter().position(|byte| *byte == 0).filter(|len| *len > 0)?;
        Some(MicroEntry {
            slot,
            value: self.order.get_u64(raw, 0)?,
            cd: self.order.get_u32(raw, 8)?,
            name: field.get(..len)?,
        })
    }

    /// The used slots, in the order of the block, which is not significant.
    pub fn entries(self) -> impl Iterator<Item = MicroEntry<'a>> {
        (1..=self.slots()).filter_map(move |slot| self.entry(slot))
    }
}

/// The header of a fat ZAP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FatHeader {
    /// Binary logarithm of the block size in bytes.
    pub block_shift: u32,
    /// First block of the pointer table; 0 if the table is in the header.
    pub table_block: BlockId,
    /// Number of blocks of the pointer table; 0 if the table is in the header.
    pub table_blocks: u64,
    /// Number of hash bits that index the pointer table.
    pub table_shift: u32,
    /// First block of the larger table that is being built; 0: there is none.
    pub next_block: BlockId,
    /// Number of blocks already copied to it.
    pub blocks_copied: u64,
    /// The first block that was never used.
    pub free_block: BlockId,
    /// Number of leaves, as counted by the writer.
    pub leaves: u64,
    /// Number of entries, as counted by the writer.
    pub entries: u64,
    /// Salt of the hash.
    pub salt: u64,
    /// How keys are normalized: bits `NORM_…`, 0 if they are not.
    pub normalization: u64,
    /// The bits `FLAG_…` of the ZAP.
    pub flags: u64,
}

impl FatHeader {
    /// Decodes block 0 and checks the pointer table's parameters.
    ///
    /// # Errors
    /// [`DecodeError::Short`], [`DecodeError::Magic`]; [`DecodeError::Field`] names the invalid field.
    pub fn decode(block: &[u8], order: Endian) -> Result<FatHeader, DecodeError> {
        const WHAT: &str = "fat ZAP";
        let bad = |field, value: u64| Err(DecodeError::field(WHAT, field, value));
        let [form, magic, table_block, table_blocks, shift, next_block, blocks_copied, free_block] =
            order.words(WHAT, block, 0)?;
        let [leaves, entries, salt, normalization, flags] = order.words(WHAT, block, 64)?;
        if form != FAT_TYPE || magic != FAT_MAGIC {
            return Err(DecodeError::Magic { what: WHAT, found: magic, expected: FAT_MAGIC });
        }
        let block_shift = block.len().trailing_zeros();
        if !block.len().is_power_of_two() || !(9..=24).contains(&block_shift) {
            return bad("block size", block.len() as u64);
        }
        let embedded_shift = block_shift - 4;
        if shift > u64::from(hash_bits(flags)) {
            return bad("table shift", shift);
        }
        let table_shift = shift as u32;
        if table_blocks == 0 {
            if table_block != 0 || table_shift != embedded_shift {
                return bad("table shift", shift);
            }
        } else {
            if table_shift < block_shift - 3 || table_blocks != 1 << (table_shift + 3 - block_shift) {
                return bad("table blocks", table_blocks);
            }
            let end = table_block.checked_add(table_blocks);
            if table_block == 0 || end.is_none_or(|end| end > free_block) {
                return bad("table block", table_block);
            }
        }
        Ok(FatHeader {
            block_shift,
            table_block: BlockId(table_block),
            table_blocks,
            table_shift,
            next_block: BlockId(next_block),
            blocks_copied,
            free_block: BlockId(free_block),
            leaves,
            entries,
            salt,
            normalization,
            flags,
        })
    }

    /// Number of entries of the pointer table.
    pub fn table_len(&self) -> u64 {
        1 << self.table_shift
    }

    /// The index of a hash in the pointer table.
    pub fn table_index(&self, hash: u64) -> u64 {
        hash.checked_shr(64 - self.table_shift).unwrap_or(0)
    }

    /// Position of an entry of the pointer table: the block, and the byte in it.
    pub fn table_slot(&self, index: u64) -> (BlockId, usize) {
        if self.table_blocks == 0 {
            let half = 1_u64 << (self.block_shift - 1);
            return (BlockId(0), (half + 8 * (index & (self.table_len() - 1))) as usize);
        }
        let per_block = self.block_shift - 3;
        let block = self.table_block.0.saturating_add(index >> per_block);
        (BlockId(block), (8 * bits(index, 0, per_block)) as usize)
    }

    /// True if keys are arrays of `u64`.
    pub fn has_word_keys(&self) -> bool {
        self.flags & FLAG_UINT64_KEY != 0
    }
}

/// An entry chunk of a leaf.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeafEntry {
    /// Number of its chunk.
    pub chunk: u16,
    /// Size of each integer of the value in bytes: 1, 2, 4 or 8.
    pub int_size: u8,
    /// Chunk of the next entry of the bucket.
    pub(crate) next: u16,
    /// First chunk of the name.
    pub name_chunk: u16,
    /// Length of the name with its NUL in bytes, or of the key in words.
    pub name_len: u16,
    /// First chunk of the value.
    pub value_chunk: u16,
    /// Number of integers in the value.
    pub(crate) value_len: u16,
    /// Collision differentiator: distinguishes entries of equal hash.
    pub cd: u32,
    /// The 64-bit hash of the name.
    pub hash: u64,
}

impl LeafEntry {
    /// Length of the value in bytes.
    pub fn value_bytes(&self) -> usize {
        usize::from(self.value_len) * usize::from(self.int_size)
    }
}

/// A leaf of a fat ZAP.
#[derive(Debug, Clone, Copy)]
pub struct Leaf<'a> {
    block: &'a [u8],
    order: Endian,
    /// The top bits that all hashes of the leaf share.
    pub prefix: u64,
    /// Number of these bits.
    pub prefix_len: u32,
    /// Number of entries, as counted by the writer.
    pub entries: u16,
    /// Number of free chunks, as counted by the writer.
    pub free_chunks: u16,
    /// Number of hash buckets in a leaf.
    pub buckets: usize,
    /// Number of chunks in a leaf.
    pub chunks: usize,
}

impl<'a> Leaf<'a> {
    /// Reads the header of a leaf.
    ///
    /// # Errors
    /// [`DecodeError::Short`], [`DecodeError::Magic`]; [`DecodeError::Field`] names the invalid field.
    pub fn decode(block: &'a [u8], order: Endian) -> Result<Leaf<'a>, DecodeError> {
        const WHAT: &str = "ZAP leaf";
        let bad = |field, value: u64| Err(DecodeError::field(WHAT, field, value));
        let shift = block.len().trailing_zeros();
        if !block.len().is_power_of_two() || !(9..=24).contains(&shift) {
            return bad("block size", block.len() as u64);
        }
        let form = order.u64(WHAT, block, 0)?;
        let magic = order.u32(WHAT, block, 24)?;
        if form != LEAF_TYPE || magic != LEAF_MAGIC {
            return Err(DecodeError::Magic { what: WHAT, found: magic.into(), expected: LEAF_MAGIC.into() });
        }
        let buckets = block.len() / 32;
        let chunks = Leaf::chunks_of(block.len());
        let prefix = order.u64(WHAT, block, 16)?;
        let prefix_len = u32::from(order.u16(WHAT, block, 32)?);
        if prefix_len > 64 - (shift - 5) || prefix.checked_shr(prefix_len).unwrap_or(0) != 0 {
            return bad("prefix length", prefix_len.into());
        }
        let free_chunks = order.u16(WHAT, block, 28)?;
        if usize::from(free_chunks) > chunks {
            return bad("free chunks", free_chunks.into());
        }
        Ok(Leaf {
            block,
            order,
            prefix,
            prefix_len,
            entries: order.u16(WHAT, block, 30)?,
            free_chunks,
            buckets,
            chunks,
        })
    }

    /// The bucket of a hash.
    pub fn bucket(&self, hash: u64) -> usize {
        let shift = 64 - self.buckets.trailing_zeros() - self.prefix_len;
        (hash.checked_shr(shift).unwrap_or(0) & (self.buckets as u64 - 1)) as usize
    }

    /// True if entries with this hash belong to this leaf.
    pub fn covers(&self, hash: u64) -> bool {
        hash.checked_shr(64 - self.prefix_len).unwrap_or(0) == self.prefix
    }

    /// Chunk of the first entry of a bucket; [`CHAIN_END`] if it is empty.
    pub fn bucket_head(&self, bucket: usize) -> u16 {
        if bucket >= self.buckets {
            return CHAIN_END;
        }
        self.order.get_u16(self.block, 48 + 2 * bucket).unwrap_or(CHAIN_END)
    }

    fn chunk(&self, chunk: u16) -> Result<&'a [u8], DecodeError> {
        let at = 48 + 2 * self.buckets + CHUNK_SIZE * usize::from(chunk);
        if usize::from(chunk) >= self.chunks {
            return Err(DecodeError::field("ZAP leaf", "chunk number", chunk));
        }
        self.block.get(at..at + CHUNK_SIZE).ok_or(DecodeError::field("ZAP leaf", "chunk number", chunk))
    }

    /// The entry in a chunk.
    ///
    /// # Errors
    /// [`DecodeError::Field`] if the chunk is not an entry, or its sizes or its hash do not fit the leaf.
    pub(crate) fn entry(&self, chunk: u16) -> Result<LeafEntry, DecodeError> {
        const WHAT: &str = "ZAP entry";
        let raw = self.chunk(chunk)?;
        let (kind, int_size) = (raw[0], raw[1]);
        if kind != 252 {
            return Err(DecodeError::field(WHAT, "chunk kind", kind));
        }
        if !matches!(int_size, 1 | 2 | 4 | 8) {
            return Err(DecodeError::field(WHAT, "integer size", int_size));
        }
        let half = |at| self.order.u16(WHAT, raw, at);
        let entry = LeafEntry {
            chunk,
            int_size,
            next: half(2)?,
            name_chunk: half(4)?,
            name_len: half(6)?,
            value_chunk: half(8)?,
            value_len: half(10)?,
            cd: self.order.u32(WHAT, raw, 12)?,
            hash: self.order.u64(WHAT, raw, 16)?,
        };
        if entry.name_len == 0 {
            return Err(DecodeError::field(WHAT, "name length", entry.name_len));
        }
        if !self.covers(entry.hash) {
            return Err(DecodeError::field(WHAT, "hash", entry.hash));
        }
        Ok(entry)
    }

    /// The entries of a bucket, in chain order. Ends after the first error; a cycle is an error.
    pub fn chain(&self, bucket: usize) -> Chain<'a> {
        Chain { leaf: *self, next: self.bucket_head(bucket), left: self.chunks }
    }

    /// `len` bytes of an array that starts at `chunk`.
    fn array(&self, chunk: u16, len: usize) -> Result<Vec<u8>, DecodeError> {
        let mut out = Vec::new();
        self.array_into(chunk, len, &mut out)?;
        Ok(out)
    }

    /// Like [`Leaf::array`], into a buffer whose previous contents are discarded.
    fn array_into(&self, chunk: u16, len: usize, out: &mut Vec<u8>) -> Result<(), DecodeError> {
        const WHAT: &str = "ZAP array";
        // Arrays that cannot fit in the leaf are refused before memory is allocated.
        if len.div_ceil(CHUNK_DATA) > self.chunks {
            return Err(DecodeError::field(WHAT, "length", len as u64));
        }
        out.clear();
        out.reserve(len);
        let mut next = chunk;
        while out.len() < len {
            let raw = self.chunk(next)?;
            if raw[0] != 251 {
                return Err(DecodeError::field(WHAT, "chunk kind", raw[0]));
            }
            let take = CHUNK_DATA.min(len - out.len());
            out.extend_from_slice(&raw[1..1 + take]);
            next = self.order.u16(WHAT, raw, 22)?;
        }
        Ok(())
    }

    /// The name of an entry as stored, without its NUL.
    ///
    /// # Errors
    /// [`DecodeError::Field`] if the chain of chunks is broken; [`DecodeError::Invalid`] if the name does not end
    /// with NUL.
    pub fn name(&self, entry: &LeafEntry) -> Result<Vec<u8>, DecodeError> {
        let mut name = Vec::new();
        self.name_into(entry, &mut name)?;
        Ok(name)
    }

    /// Like [`Leaf::name`], into a buffer whose previous contents are discarded.
    ///
    /// # Errors
    /// As [`Leaf::name`].
    pub fn name_into(&self, entry: &LeafEntry, name: &mut Vec<u8>) -> Result<(), DecodeError> {
        self.array_into(entry.name_chunk, usize::from(entry.name_len), name)?;
        if name.pop() != Some(0) {
            return Err(DecodeError::invalid("ZAP entry", "the name has no NUL at its end"));
        }
        Ok(())
    }

    /// The first integer of the value of an entry, widened; `None` if it has none.
    ///
    /// # Errors
    /// [`DecodeError::Field`] if the value does not start in an array chunk.
    pub fn first_int(&self, entry: &LeafEntry) -> Result<Option<u64>, DecodeError> {
        const WHAT: &str = "ZAP array";
        if entry.value_len == 0 {
            return Ok(None);
        }
        // An integer is never longer than the data of a chunk.
        let raw = self.chunk(entry.value_chunk)?;
        if raw[0] != 251 {
            return Err(DecodeError::field(WHAT, "chunk kind", raw[0]));
        }
        let bytes = &raw[1..1 + usize::from(entry.int_size).min(CHUNK_DATA)];
        Ok(Some(bytes.iter().fold(0, |value, byte| value << 8 | u64::from(*byte))))
    }

    /// The key of an entry as stored, in units of `unit` bytes: 1 for names, 8 for words.
    ///
    /// # Errors
    /// [`DecodeError::Field`] if the chain of chunks breaks off.
    pub fn stored_key(&self, entry: &LeafEntry, unit: usize) -> Result<Vec<u8>, DecodeError> {
        self.array(entry.name_chunk, unit * usize::from(entry.name_len))
    }

    /// The key of an entry, if keys are arrays of words.
    ///
    /// # Errors
    /// [`DecodeError::Field`] if the chain of chunks breaks off.
    pub fn words(&self, entry: &LeafEntry) -> Result<Vec<u64>, DecodeError> {
        let raw = self.array(entry.name_chunk, 8 * usize::from(entry.name_len))?;
        Ok(Endian::Big.all_words(&raw).collect())
    }

    /// The value of an entry: big-endian integers, packed.
    ///
    /// # Errors
    /// [`DecodeError::Field`] if the chain of chunks breaks off.
    pub fn value(&self, entry: &LeafEntry) -> Result<Vec<u8>, DecodeError> {
        self.array(entry.value_chunk, entry.value_bytes())
    }

    /// True if the entry has this name. Compares in place, without copying the name.
    ///
    /// # Errors
    /// [`DecodeError::Field`] if the chain of chunks breaks off.
    pub fn name_is(&self, entry: &LeafEntry, name: &[u8]) -> Result<bool, DecodeError> {
        if usize::from(entry.name_len) != name.len() + 1 {
            return Ok(false);
        }
        let mut next = entry.name_chunk;
        for part in name.chunks(CHUNK_DATA) {
            let raw = self.chunk(next)?;
            if raw[0] != 251 {
                return Err(DecodeError::field("ZAP array", "chunk kind", raw[0]));
            }
            if raw.get(1..=part.len()) != Some(part) {
                return Ok(false);
            }
            next = self.order.u16("ZAP array", raw, 22)?;
        }
        Ok(true)
    }
}

/// The entries of one bucket of a leaf.
#[derive(Debug, Clone)]
pub struct Chain<'a> {
    leaf: Leaf<'a>,
    next: u16,
    left: usize,
}

impl Iterator for Chain<'_> {
    type Item = Result<LeafEntry, DecodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.next == CHAIN_END {
            return None;
        }
        let item = match self.left.checked_sub(1) {
            Some(left) => {
                self.left = left;
                self.leaf.entry(self.next)
            }
            None => Err(DecodeError::invalid("ZAP leaf", "a bucket's chain does not end")),
        };
        self.next = item.as_ref().map_or(CHAIN_END, |entry| entry.next);
        Some(item)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crc64_check_value() {
        // CRC-64/XZ of "123456789" has the same polynomial, start and end inverted.
        assert_eq!(!crc64(!0, b"123456789".iter().copied()), 0x995D_C9BB_DF19_39FA);
    }

    #[test]
    fn hash_keeps_only_the_top_bits() {
        assert_eq!(hash_name(1, 0, b"file") << 28, 0);
        assert_ne!(hash_name(1, FLAG_HASH64, b"file") << 28, 0);
        assert_eq!(hash_name(1, FLAG_HASH64, b"file") << 48, 0);
        assert_eq!(hash_words(7, FLAG_PRE_HASHED_KEY | FLAG_HASH64, &[u64::MAX, 1]), u64::MAX << 16);
        assert_eq!(hash_words(7, 0, &[0x6162_6364_6566_6768]), hash_name(7, 0, b"hgfedcba"));
    }

    #[test]
    fn micro_slots() {
        let mut block = vec![0; 512];
        block[..8].copy_from_slice(&MICRO_MAGIC.to_be_bytes());
        block[8..16].copy_from_slice(&77_u64.to_be_bytes());
        block[128..136].copy_from_slice(&5_u64.to_be_bytes());
        block[136..140].copy_from_slice(&2_u32.to_be_bytes());
        block[142..146].copy_from_slice(b"name");
        // A name that fills its field has no NUL.
        block[192 + 14..256].fill(b'x');
        assert_eq!(ZapForm::of(&block, Endian::Big), Ok(ZapForm::Micro));
        let zap = MicroZap::decode(&block, Endian::Big).unwrap();
        assert_eq!((zap.salt, zap.slots()), (77, 7));
        let entries: Vec<_> = zap.entries().collect();
        assert_eq!(entries, [MicroEntry { slot: 2, value: 5, cd: 2, name: b"name" }]);
    }

    #[test]
    fn a_chain_that_bites_its_tail_ends() {
        let mut block = vec![0; 512];
        block[24..28].copy_from_slice(&LEAF_MAGIC.to_le_bytes());
        block[..8].copy_from_slice(&LEAF_TYPE.to_le_bytes());
        block[48..80].fill(0xFF);
        block[48..50].copy_from_slice(&0_u16.to_le_bytes());
        let entry = 48 + 2 * 16;
        block[entry] = 252;
        block[entry + 1] = 8;
        block[entry + 6] = 2;
        let leaf = Leaf::decode(&block, Endian::Little).unwrap();
        assert_eq!((leaf.buckets, leaf.chunks), (16, 18));
        let items: Vec<_> = leaf.chain(0).collect();
        assert_eq!(items.len(), 19);
        assert!(items.last().unwrap().is_err());
        assert_eq!(leaf.chain(1).count(), 0);
    }
}
