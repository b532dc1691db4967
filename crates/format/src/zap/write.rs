//! Changes ZAP blocks in place (docs/on-disk/21-zap.md, sections 2 and 3).
//!
//! Blocks are written in little-endian order; [`to_little`] converts a big-endian block first. `dmu::zap` decides
//! which leaf an entry belongs to, when a leaf is split, and normalizes names.
//!
//! # What always holds
//! - An operation checks all parts that it will change before it changes one: after an error the block is
//!   unchanged.
//! - Chunk numbers and chains from disk are checked before they are followed; after a successful operation no chunk
//!   is in two chains.
//! - In a leaf created here the chunks of all entries and the free chunks are always all chunks, and chains are in
//!   the order of the differentiators.

use super::{
    CHAIN_END, CHUNK_DATA, CHUNK_SIZE, FAT_MAGIC, FAT_TYPE, FatHeader, LEAF_MAGIC, LEAF_TYPE, Leaf,
    LeafEntry, MICRO_ENTRY_SIZE, MICRO_MAGIC, ZapForm,
};
use crate::{BlockId, DecodeError, Endian};

/// Maximum length of a name in a micro ZAP in bytes, without its NUL.
pub const MICRO_NAME_MAX: usize = 49;

const KIND_ARRAY: u8 = 251;
const KIND_ENTRY: u8 = 252;
const KIND_FREE: u8 = 253;

/// Offset of a leaf's buckets in bytes.
const BUCKETS_AT: usize = 48;

/// An empty micro ZAP of `size` bytes, a multiple of 512. `salt` must not be 0.
pub fn new_micro(size: usize, salt: u64, normalization: u64) -> Vec<u8> {
    let mut block = vec![0; size];
    for (i, word) in [MICRO_MAGIC, salt, normalization].into_iter().enumerate() {
        put(&mut block, 8 * i, &word.to_le_bytes());
    }
    block
}

/// Fills slot `slot`, counted from 1, of a micro ZAP. The name is at most [`MICRO_NAME_MAX`] bytes.
///
/// # Errors
/// The slot does not exist, or the name is empty or too long.
pub fn set_micro_entry(
    block: &mut [u8],
    slot: usize,
    name: &[u8],
    value: u64,
    cd: u32,
) -> Result<(), DecodeError> {
    if name.is_empty() || name.len() > MICRO_NAME_MAX {
        return Err(DecodeError::field("micro ZAP", "name length", name.len() as u64));
    }
    let entry = micro_slot(block, slot)?;
    entry.fill(0);
    put(entry, 0, &value.to_le_bytes());
    put(entry, 8, &cd.to_le_bytes());
    put(entry, 14, name);
    Ok(())
}

/// Replaces the value in a slot of a micro ZAP.
///
/// # Errors
/// The slot does not exist.
pub fn set_micro_value(block: &mut [u8], slot: usize, value: u64) -> Result<(), DecodeError> {
    put(micro_slot(block, slot)?, 0, &value.to_le_bytes());
    Ok(())
}

/// Frees a slot of a micro ZAP.
///
/// # Errors
/// The slot does not exist.
pub fn clear_micro_entry(block: &mut [u8], slot: usize) -> Result<(), DecodeError> {
    micro_slot(block, slot)?.fill(0);
    Ok(())
}

fn micro_slot(block: &mut [u8], slot: usize) -> Result<&mut [u8], DecodeError> {
    let bad = DecodeError::field("micro ZAP", "slot", slot as u64);
    let Some(at) = slot.checked_mul(MICRO_ENTRY_SIZE).filter(|at| *at > 0) else { return Err(bad) };
    block.get_mut(at..at.saturating_add(MICRO_ENTRY_SIZE)).ok_or(bad)
}

impl FatHeader {
    /// The header of a new fat ZAP with one leaf in block 1.
    pub fn new(block_shift: u32, salt: u64, normalization: u64, flags: u64) -> FatHeader {
        FatHeader {
            block_shift,
            table_block: BlockId(0),
            table_blocks: 0,
            table_shift: block_shift - 4,
            next_block: BlockId(0),
            blocks_copied: 0,
            free_block: BlockId(2),
            leaves: 1,
            entries: 0,
            salt,
            normalization,
            flags,
        }
    }

    /// Writes the header to the front of block 0; a pointer table in the second half is unchanged.
    pub fn encode_into(&self, block: &mut [u8]) {
        let words = [
            FAT_TYPE,
            FAT_MAGIC,
            self.table_block.0,
            self.table_blocks,
            u64::from(self.table_shift),
            self.next_block.0,
            self.blocks_copied,
            self.free_block.0,
            self.leaves,
            self.entries,
            self.salt,
            self.normalization,
            self.flags,
        ];
        for (i, word) in words.into_iter().enumerate() {
            put(block, 8 * i, &word.to_le_bytes());
        }
    }

    /// Block 0 with an embedded pointer table, whose entries all refer to block 1.
    pub fn new_block(&self) -> Vec<u8> {
        let size = 1_usize << self.block_shift;
        let mut block = vec![0; size];
        self.encode_into(&mut block);
        for slot in block[size / 2..].chunks_exact_mut(8) {
            slot.copy_from_slice(&1_u64.to_le_bytes());
        }
        block
    }
}

/// An empty leaf of `1 << block_shift` bytes. `is_sorted`: chains are in the order of the differentiators, on which
/// readers of normalized names rely.
pub fn new_leaf(block_shift: u32, prefix: u64, prefix_len: u32, is_sorted: bool) -> Vec<u8> {
    let size = 1_usize << block_shift;
    let (buckets, chunks) = (size / 32, Leaf::chunks_of(size));
    let mut block = vec![0; size];
    put(&mut block, 0, &LEAF_TYPE.to_le_bytes());
    put(&mut block, 16, &prefix.to_le_bytes());
    put(&mut block, 24, &LEAF_MAGIC.to_le_bytes());
    put(&mut block, 28, &(chunks as u16).to_le_bytes());
    put(&mut block, 32, &(prefix_len as u16).to_le_bytes());
    block[36] = u8::from(is_sorted);
    block[BUCKETS_AT..BUCKETS_AT + 2 * buckets].fill(0xFF);
    let area = &mut block[BUCKETS_AT + 2 * buckets..];
    for (i, chunk) in area.chunks_exact_mut(CHUNK_SIZE).take(chunks).enumerate() {
        let next = if i + 1 < chunks { (i + 1) as u16 } else { CHAIN_END };
        chunk[0] = KIND_FREE;
        put(chunk, 22, &next.to_le_bytes());
    }
    block
}

/// An entry to be inserted into a leaf.
#[derive(Debug, Clone, Copy)]
pub struct NewEntry<'a> {
    /// Hash of the key, with the significant bits at the top.
    pub hash: u64,
    /// Collision differentiator: distinguishes entries of equal hash.
    pub cd: u32,
    /// The key as stored: a name with its NUL, or big-endian words.
    pub key: &'a [u8],
    /// Size of each integer of the value in bytes: 1, 2, 4 or 8.
    pub int_size: u8,
    /// The integers of the value, packed, in big-endian order.
    pub value: &'a [u8],
}

impl NewEntry<'_> {
    /// Number of chunks that the entry needs.
    pub fn chunks(&self) -> usize {
        1 + self.key.len().div_ceil(CHUNK_DATA) + self.value.len().div_ceil(CHUNK_DATA)
    }
}

/// A leaf that is being changed, in little-endian order.
#[derive(Debug)]
pub struct LeafMut<'a> {
    block: &'a mut [u8],
    /// Size of a unit of the key in bytes: 1 for names, 8 for words.
    key_unit: usize,
    buckets: usize,
    chunks: usize,
    entries: u16,
    free_chunks: u16,
}

impl<'a> LeafMut<'a> {
    /// Opens a leaf whose keys have units of `key_unit` bytes: 1 for names, 8 for words.
    ///
    /// # Errors
    /// As [`Leaf::decode`].
    pub fn open(block: &'a mut [u8], key_unit: usize) -> Result<LeafMut<'a>, DecodeError> {
        let leaf = Leaf::decode(block, Endian::Little)?;
        let Leaf { buckets, chunks, entries, free_chunks, .. } = leaf;
        Ok(LeafMut { block, key_unit, buckets, chunks, entries, free_chunks })
    }

    fn leaf(&self) -> Result<Leaf<'_>, DecodeError> {
        Leaf::decode(self.block, Endian::Little)
    }

    /// Inserts an entry after those of its bucket with differentiators that are not larger. `false`: there are not
    /// enough free chunks.
    ///
    /// # Errors
    /// The leaf is damaged at the place of the entry.
    pub fn insert(&mut self, new: &NewEntry<'_>) -> Result<bool, DecodeError> {
        let need = new.chunks();
        if need > usize::from(self.free_chunks) {
            return Ok(false);
        }
        let (free, rest) = self.free_chain(need)?;
        let leaf = self.leaf()?;
        let bucket = leaf.bucket(new.hash);
        let (mut link, mut next) = (BUCKETS_AT + 2 * bucket, leaf.bucket_head(bucket));
        for entry in leaf.chain(bucket) {
            let entry = entry?;
            if entry.cd > new.cd {
                break;
            }
            (link, next) = (self.chunk_at(entry.chunk) + 2, entry.next);
        }
        let (Some(entry), arrays) = (free.first().copied(), free.get(1..).unwrap_or_default()) else {
            return Ok(false);
        };
        let (names, values) = arrays.split_at(new.key.len().div_ceil(CHUNK_DATA));
        self.write_array(names, new.key);
        self.write_array(values, new.value);
        let at = self.chunk_at(entry);
        let raw = &mut self.block[at..at + CHUNK_SIZE];
        raw[0] = KIND_ENTRY;
        put(raw, 2, &next.to_le_bytes());
        put(raw, 4, &names.first().copied().unwrap_or(CHAIN_END).to_le_bytes());
        put(raw, 6, &((new.key.len() / self.key_unit) as u16).to_le_bytes());
        put(raw, 12, &new.cd.to_le_bytes());
        put(raw, 16, &new.hash.to_le_bytes());
        self.write_value_fields(entry, new.int_size, new.value.len(), values);
        put(self.block, link, &entry.to_le_bytes());
        self.set_counts(self.free_chunks - need as u16, self.entries.saturating_add(1), rest);
        Ok(true)
    }

    /// Removes the entry in `chunk`.
    ///
    /// # Errors
    /// The chunk is not an entry of a bucket, or the entry is damaged.
    pub fn remove(&mut self, chunk: u16) -> Result<(), DecodeError> {
        let leaf = self.leaf()?;
        let entry = leaf.entry(chunk)?;
        let bucket = leaf.bucket(entry.hash);
        let mut link = BUCKETS_AT + 2 * bucket;
        let mut is_there = false;
        for other in leaf.chain(bucket) {
            let other = other?;
            if other.chunk == chunk {
                is_there = true;
                break;
            }
            link = self.chunk_at(other.chunk) + 2;
        }
        if !is_there {
            return Err(DecodeError::field("ZAP leaf", "entry outside its bucket", chunk));
        }
        let mut chunks = Vec::new();
        self.array_chain(entry.name_chunk, self.key_unit * usize::from(entry.name_len), &mut chunks)?;
        self.array_chain(entry.value_chunk, entry.value_bytes(), &mut chunks)?;
        chunks.push(chunk);
        check_distinct(&chunks)?;
        let free = self.checked_free(chunks.len())?;
        put(self.block, link, &entry.next.to_le_bytes());
        let first = self.release(&chunks);
        self.set_counts(free, self.entries.saturating_sub(1), first);
        Ok(())
    }

    /// True if the leaf has no entries and all its chunks are free.
    pub fn is_empty(&self) -> bool {
        self.entries == 0 && usize::from(self.free_chunks) == self.chunks
    }

    /// Replaces the value of the entry in `chunk`. `false`: there are not enough free chunks.
    ///
    /// # Errors
    /// The chunk is not an entry, or the entry is damaged.
    pub fn set_value(&mut self, chunk: u16, int_size: u8, value: &[u8]) -> Result<bool, DecodeError> {
        let entry = self.leaf()?.entry(chunk)?;
        let need = value.len().div_ceil(CHUNK_DATA);
        let mut chunks = Vec::with_capacity(need);
        self.array_chain(entry.value_chunk, entry.value_bytes(), &mut chunks)?;
        check_distinct(&chunks)?;
        // The order is as if the old chunks were freed one by one, and the new ones then taken.
        chunks.reverse();
        if let Some(surplus) = chunks.len().checked_sub(need) {
            let free = self.checked_free(surplus)?;
            let mut surplus = chunks.split_off(need);
            surplus.reverse();
            let first = self.release(&surplus);
            self.set_counts(free, self.entries, first);
        } else {
            let more = need - chunks.len();
            if more > usize::from(self.free_chunks) {
                return Ok(false);
            }
            let (free, rest) = self.free_chain(more)?;
            chunks.extend(free);
            check_distinct(&chunks)?;
            self.set_counts(self.free_chunks - more as u16, self.entries, rest);
        }
        self.write_array(&chunks, value);
        self.write_value_fields(chunk, int_size, value.len(), &chunks);
        Ok(true)
    }

    fn chunk_at(&self, chunk: u16) -> usize {
        BUCKETS_AT + 2 * self.buckets + CHUNK_SIZE * usize::from(chunk)
    }

    /// Kind and successor of an array or free chunk.
    fn linked(&self, chunk: u16) -> Result<(u8, u16), DecodeError> {
        let bad = DecodeError::field("ZAP leaf", "chunk number", chunk);
        if usize::from(chunk) >= self.chunks {
            return Err(bad);
        }
        let at = self.chunk_at(chunk);
        let kind = *self.block.get(at).ok_or(bad)?;
        Ok((kind, Endian::Little.u16("ZAP leaf", self.block, at + 22)?))
    }

    /// The first `count` chunks of the free list, and the next one.
    fn free_chain(&self, count: usize) -> Result<(Vec<u16>, u16), DecodeError> {
        let mut chunks = Vec::with_capacity(count);
        let mut next = Endian::Little.u16("ZAP leaf", self.block, 34)?;
        while chunks.len() < count {
            let (kind, after) = self.linked(next)?;
            if kind != KIND_FREE {
                return Err(DecodeError::field("ZAP leaf", "kind of a free chunk", kind));
            }
            chunks.push(next);
            next = after;
        }
        check_distinct(&chunks)?;
        Ok((chunks, next))
    }

    /// Appends the chunks of an array of `len` bytes that starts at `first`.
    fn array_chain(&self, first: u16, len: usize, chunks: &mut Vec<u16>) -> Result<(), DecodeError> {
        let count = len.div_ceil(CHUNK_DATA);
        if count > self.chunks {
            return Err(DecodeError::field("ZAP array", "length", len as u64));
        }
        let mut next = first;
        for _ in 0..count {
            let (kind, after) = self.linked(next)?;
            if kind != KIND_ARRAY {
                return Err(DecodeError::field("ZAP array", "chunk kind", kind));
            }
            chunks.push(next);
            next = after;
        }
        Ok(())
    }

    /// The number of free chunks after adding `more`.
    fn checked_free(&self, more: usize) -> Result<u16, DecodeError> {
        let free = usize::from(self.free_chunks) + more;
        if free > self.chunks {
            return Err(DecodeError::field("ZAP leaf", "free chunks", free as u64));
        }
        Ok(free as u16)
    }

    fn write_array(&mut self, chunks: &[u16], bytes: &[u8]) {
        let nexts = chunks.iter().skip(1).copied().chain([CHAIN_END]);
        for ((chunk, next), part) in chunks.iter().zip(nexts).zip(bytes.chunks(CHUNK_DATA)) {
            let at = self.chunk_at(*chunk);
            let raw = &mut self.block[at..at + CHUNK_SIZE];
            raw[0] = KIND_ARRAY;
            raw[1..=CHUNK_DATA].fill(0);
            put(raw, 1, part);
            put(raw, 22, &next.to_le_bytes());
        }
    }

    fn write_value_fields(&mut self, entry: u16, int_size: u8, len: usize, chunks: &[u16]) {
        let at = self.chunk_at(entry);
        let count = (len / usize::from(int_size).max(1)) as u16;
        self.block[at + 1] = int_size;
        put(self.block, at + 8, &chunks.first().copied().unwrap_or(CHAIN_END).to_le_bytes());
        put(self.block, at + 10, &count.to_le_bytes());
    }

    /// Frees these chunks one by one. Returns the last one, which becomes the head of the free list.
    fn release(&mut self, chunks: &[u16]) -> u16 {
        let mut head = Endian::Little.get_u16(self.block, 34).unwrap_or(CHAIN_END);
        for chunk in chunks {
            let at = self.chunk_at(*chunk);
            let raw = &mut self.block[at..at + CHUNK_SIZE];
            raw.fill(0);
            raw[0] = KIND_FREE;
            put(raw, 22, &head.to_le_bytes());
            head = *chunk;
        }
        head
    }

    fn set_counts(&mut self, free_chunks: u16, entries: u16, first_free: u16) {
        (self.free_chunks, self.entries) = (free_chunks, entries);
        put(self.block, 28, &free_chunks.to_le_bytes());
        put(self.block, 30, &entries.to_le_bytes());
        put(self.block, 34, &first_free.to_le_bytes());
    }
}

impl Leaf<'_> {
    /// Number of chunks of a leaf of this size in bytes. Chunk numbers have 16 bits; the last of them marks an end.
    pub fn chunks_of(block_size: usize) -> usize {
        ((block_size - block_size / 16) / CHUNK_SIZE - 2).min(usize::from(CHAIN_END))
    }

    /// The smallest differentiator that no entry with this hash uses.
    ///
    /// # Errors
    /// The chain of the bucket is damaged.
    pub fn unused_cd(&self, hash: u64) -> Result<u32, DecodeError> {
        let mut taken = Vec::new();
        for entry in self.chain(self.bucket(hash)) {
            let entry: LeafEntry = entry?;
            if entry.hash == hash {
                taken.push(entry.cd);
            }
        }
        taken.sort_unstable();
        taken.dedup();
        let free = taken.iter().zip(0_u32..).find(|(cd, i)| **cd != *i);
        Ok(free.map_or(taken.len() as u32, |(_, i)| i))
    }
}

/// Kind of a ZAP block, for conversion of its byte order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ZapBlockKind {
    /// Block 0: a micro ZAP or a fat header.
    First,
    /// A block of the pointer table.
    Table,
    /// A leaf block with entries.
    Leaf,
}

/// Converts a block of a ZAP from big- to little-endian. Names and values of a fat ZAP are the same in both.
///
/// # Errors
/// The block is not of this kind.
pub fn to_little(block: &[u8], kind: ZapBlockKind) -> Result<Vec<u8>, DecodeError> {
    let mut out = block.to_vec();
    match kind {
        ZapBlockKind::Leaf => {
            let leaf = Leaf::decode(block, Endian::Big)?;
            swap_leaf(&mut out, leaf.buckets, leaf.chunks);
        }
        ZapBlockKind::First if ZapForm::of(block, Endian::Big)? == ZapForm::Micro => {
            for (i, slot) in out.chunks_exact_mut(MICRO_ENTRY_SIZE).enumerate() {
                let words: &[(usize, usize)] =
                    if i == 0 { &[(0, 8), (8, 8), (16, 8)] } else { &[(0, 8), (8, 4)] };
                swap_fields(slot, words);
            }
        }
        _ => out.chunks_exact_mut(8).for_each(<[u8]>::reverse),
    }
    Ok(out)
}

fn swap_leaf(block: &mut [u8], buckets: usize, chunks: usize) {
    swap_fields(block, &[(0, 8), (8, 8), (16, 8), (24, 4), (28, 2), (30, 2), (32, 2), (34, 2)]);
    let (table, area) = block[BUCKETS_AT..].split_at_mut(2 * buckets);
    table.chunks_exact_mut(2).for_each(<[u8]>::reverse);
    for chunk in area.chunks_exact_mut(CHUNK_SIZE).take(chunks) {
        match chunk[0] {
            KIND_ENTRY => swap_fields(chunk, &[(2, 2), (4, 2), (6, 2), (8, 2), (10, 2), (12, 4), (16, 8)]),
            _ => swap_fields(chunk, &[(22, 2)]),
        }
    }
}

/// Reverses the bytes of fields, given by offset and length.
fn swap_fields(bytes: &mut [u8], fields: &[(usize, usize)]) {
    for (at, len) in fields {
        bytes[*at..*at + *len].reverse();
    }
}

fn put(block: &mut [u8], at: usize, bytes: &[u8]) {
    block[at..at + bytes.len()].copy_from_slice(bytes);
}

/// Chains that meet or form a loop name a chunk twice.
fn check_distinct(chunks: &[u16]) -> Result<(), DecodeError> {
    let is_repeated = match chunks {
        [] | [_] => false,
        // The chunks of a new leaf are in ascending order.
        _ if chunks.is_sorted_by(|a, b| a < b) => false,
        _ => {
            let mut sorted = chunks.to_vec();
            sorted.sort_unstable();
            sorted.windows(2).any(|pair| pair[0] == pair[1])
        }
    };
    if is_repeated { Err(DecodeError::invalid("ZAP leaf", "a chunk is in two chains")) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zap::{MicroEntry, MicroZap};

    fn entry<'a>(hash: u64, cd: u32, key: &'a [u8], value: &'a [u8]) -> NewEntry<'a> {
        NewEntry { hash, cd, key, int_size: 1, value }
    }

    fn names(block: &[u8]) -> Vec<(Vec<u8>, u32)> {
        let leaf = Leaf::decode(block, Endian::Little).unwrap();
        (0..leaf.buckets)
            .flat_map(|bucket| leaf.chain(bucket).map(Result::unwrap).collect::<Vec<_>>())
            .map(|entry| (leaf.name(&entry).unwrap(), entry.cd))
            .collect()
    }

    #[test]
    fn a_leaf_fills_and_empties() {
        let empty = new_leaf(12, 0, 0, true);
        let mut block = empty.clone();
        let value = [7; 50];
        assert_eq!(Leaf::chunks_of(4096), 158);
        for i in 0..31_u64 {
            let name = format!("n{i:02}\0");
            let mut leaf = LeafMut::open(&mut block, 1).unwrap();
            assert!(leaf.insert(&entry(i << 58, 0, name.as_bytes(), &value)).unwrap());
        }
        assert_eq!(names(&block).len(), 31);
        let full = block.clone();
        let mut leaf = LeafMut::open(&mut block, 1).unwrap();
        assert!(!leaf.insert(&entry(1 << 60, 0, b"x\0", &value)).unwrap());
        assert_eq!(block, full);
        let decoded = Leaf::decode(&full, Endian::Little).unwrap();
        assert_eq!((decoded.free_chunks, decoded.entries), (3, 31));
        for bucket in 0..decoded.buckets {
            for entry in decoded.chain(bucket) {
                let entry = entry.unwrap();
                assert_eq!(decoded.value(&entry).unwrap(), value);
                LeafMut::open(&mut block, 1).unwrap().remove(entry.chunk).unwrap();
            }
        }
        let decoded = Leaf::decode(&block, Endian::Little).unwrap();
        assert_eq!((decoded.free_chunks, decoded.entries), (158, 0));
        assert_eq!(names(&block).len(), 0);
    }

    /// As golden pools show: the free list after a removal, and the chunks of a value after an update.
    #[test]
    fn chunks_are_freed_and_taken_in_the_order_of_the_reference() {
        let chain = |block: &[u8], mut at: u16| {
            let mut chunks = Vec::new();
            while at != CHAIN_END && chunks.len() < 6 {
                chunks.push(at);
                at = Endian::Little.get_u16(block, BUCKETS_AT + 2 * 16 + 24 * usize::from(at) + 22).unwrap();
            }
            chunks
        };
        let mut block = new_leaf(9, 0, 0, false);
        LeafMut::open(&mut block, 1).unwrap().insert(&entry(9, 0, b"a\0", &[1; 60])).unwrap();
        LeafMut::open(&mut block, 1).unwrap().insert(&entry(9, 1, &[b'b'; 30], &[1; 20])).unwrap();
        LeafMut::open(&mut block, 1).unwrap().remove(5).unwrap();
        assert_eq!(chain(&block, 5), [5, 8, 7, 6, 9, 10]);
        LeafMut::open(&mut block, 1).unwrap().set_value(0, 1, &[2; 60]).unwrap();
        assert_eq!(chain(&block, 4), [4, 3, 2]);
        LeafMut::open(&mut block, 1).unwrap().set_value(0, 1, &[2; 80]).unwrap();
        assert_eq!(chain(&block, 2), [2, 3, 4, 5]);
    }

    #[test]
    fn a_bucket_is_in_the_order_of_differentiators() {
        let mut block = new_leaf(12, 0, 0, true);
        for cd in [3, 0, 2, 4] {
            let name = format!("{cd}\0");
            LeafMut::open(&mut block, 1).unwrap().insert(&entry(9, cd, name.as_bytes(), &[])).unwrap();
        }
        assert_eq!(names(&block).iter().map(|(_, cd)| *cd).collect::<Vec<_>>(), [0, 2, 3, 4]);
        let leaf = Leaf::decode(&block, Endian::Little).unwrap();
        assert_eq!(leaf.unused_cd(9), Ok(1));
        assert_eq!(leaf.unused_cd(10), Ok(0));
    }

    #[test]
    fn values_change_length_in_place() {
        let mut block = new_leaf(12, 0, 0, false);
        let first = block.clone();
        LeafMut::open(&mut block, 1).unwrap().insert(&entry(9, 0, b"name\0", &[1; 21])).unwrap();
        for len in [1, 300, 22, 0, 64] {
            assert!(LeafMut::open(&mut block, 1).unwrap().set_value(0, 1, &vec![2; len]).unwrap());
            let leaf = Leaf::decode(&block, Endian::Little).unwrap();
            let entry = leaf.entry(0).unwrap();
            assert_eq!(leaf.value(&entry).unwrap(), vec![2; len]);
            assert_eq!(usize::from(leaf.free_chunks), 158 - 2 - len.div_ceil(21));
        }
        assert!(!LeafMut::open(&mut block, 1).unwrap().set_value(0, 1, &[0; 4000]).unwrap());
        LeafMut::open(&mut block, 1).unwrap().remove(0).unwrap();
        let counts = |block: &[u8]| block[..34].to_vec();
        assert_eq!(counts(&block), counts(&first));
    }

    #[test]
    fn damaged_chains_are_errors_and_change_nothing() {
        let mut whole = new_leaf(9, 0, 0, false);
        for (cd, name) in [b"a\0", b"b\0"].into_iter().enumerate() {
            LeafMut::open(&mut whole, 1).unwrap().insert(&entry(9, cd as u32, name, &[1; 30])).unwrap();
        }
        let chunk = |i: usize| BUCKETS_AT + 2 * 16 + 24 * i;
        for (at, byte) in [(34, 0), (34, 200), (chunk(8) + 22, 8), (chunk(9), 251)] {
            let mut block = whole.clone();
            block[at] = byte;
            let before = block.clone();
            assert!(LeafMut::open(&mut block, 1).unwrap().insert(&entry(9, 5, b"c\0", &[0; 40])).is_err());
            assert_eq!(block, before);
        }
        // The second entry's value refers to a chunk of the first, to a free chunk, to no chunk, to itself.
        for (at, byte) in [(chunk(6) + 22, 7), (chunk(6) + 22, 6), (chunk(4) + 8, 5), (chunk(4) + 8, 99)] {
            let mut block = whole.clone();
            block[at] = byte;
            let before = block.clone();
            let removed = LeafMut::open(&mut block, 1).unwrap().remove(4);
            let _ = removed.as_ref().inspect_err(|_| assert_eq!(block, before));
            assert_eq!(removed.is_err(), at != chunk(6) + 22 || byte == 6, "{at} {byte}");
        }
    }

    #[test]
    fn micro_slots_are_written_as_read() {
        let mut block = new_micro(512, 77, 2);
        set_micro_entry(&mut block, 3, b"name", 5, 1).unwrap();
        set_micro_entry(&mut block, 7, &[b'x'; 49], 6, 0).unwrap();
        set_micro_value(&mut block, 3, 9).unwrap();
        for slot in [0, 8, usize::MAX] {
            assert!(set_micro_entry(&mut block, slot, b"name", 5, 1).is_err());
        }
        assert!(set_micro_entry(&mut block, 1, &[b'x'; 50], 6, 0).is_err());
        let zap = MicroZap::decode(&block, Endian::Little).unwrap();
        assert_eq!((zap.salt, zap.normalization), (77, 2));
        assert_eq!(zap.entry(3), Some(MicroEntry { slot: 3, value: 9, cd: 1, name: b"name" }));
        clear_micro_entry(&mut block, 3).unwrap();
        clear_micro_entry(&mut block, 7).unwrap();
        assert_eq!(block, new_micro(512, 77, 2));
    }

    #[test]
    fn a_header_is_written_as_read() {
        let mut header = FatHeader::new(14, 5, 2, 1);
        header.entries = 99;
        assert_eq!(FatHeader::decode(&header.new_block(), Endian::Little).unwrap(), header);
    }

    #[test]
    fn swapping_twice_gives_the_original() {
        let mut block = new_leaf(9, 0, 0, false);
        LeafMut::open(&mut block, 1).unwrap().insert(&entry(9, 1, b"a\0", &[1; 30])).unwrap();
        let mut swapped = block.clone();
        swap_leaf(&mut swapped, 16, 18);
        assert_eq!(to_little(&swapped, ZapBlockKind::Leaf).unwrap(), block);
        let mut micro = new_micro(512, 77, 2);
        set_micro_entry(&mut micro, 3, b"name", 5, 1).unwrap();
        let mut swapped = micro.clone();
        swap_fields(&mut swapped, &[(0, 8), (8, 8), (16, 8), (192, 8), (200, 4)]);
        assert_eq!(to_little(&swapped, ZapBlockKind::First).unwrap(), micro);
        let header = FatHeader::new(9, 5, 2, 1).new_block();
        let swapped: Vec<u8> = header.chunks(8).flat_map(|word| word.iter().rev().copied()).collect();
        assert_eq!(to_little(&swapped, ZapBlockKind::First).unwrap(), header);
    }
}
