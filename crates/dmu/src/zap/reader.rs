//! Name-value objects: one interface over the micro and the fat form
//! (docs/on-disk/21-zap.md).
//!
//! [`Zap`] finds entries by name and lists them; it reads blocks through [`ZapBlocks`], so that it
//! does not care what kind of object they belong to. [`ZapMut`] changes them. The bytes of single
//! blocks are `format::zap`'s.
//!
//! # What always holds
//! - Entries come in the order of their cursor (hash, then collision differentiator), whatever the
//!   form; a cursor stays good for as long as the entry's hash does, and survives a restart.
//! - Memory is bounded by one leaf, time by the blocks that are there: no count of the header is
//!   trusted, no chain is followed further than its leaf is long.
//! - A look-up in a damaged ZAP either finds the entry, or says what is damaged; it answers "no such
//!   name" only when what it read was sound.
//!
//! Tests: below, and `tests/it/fuzz_zap.rs`.

pub(crate) mod live;

mod entries;
mod fat_write;
mod micro_index;
mod micro_write;
mod normalize;
mod ops;
mod stats;
#[cfg(test)]
mod tests;
mod unicode5;
mod write;
#[cfg(test)]
mod write_tests;

pub use entries::{Entries, NamedEntry};
pub use micro_index::MicroIndex;
pub use normalize::prepare;
pub use stats::{HISTOGRAM_ROWS, ZapStats};
pub use write::{
    NAME_LEN_MAX, VALUE_MAX, ZapBlocksMut, ZapMut, ZapState, ZapValue, create_fat, create_micro, list_shared,
    lookup_shared,
};

use normalize::is_doubtful;

use crate::{DmuError, Object};
use format::zap::{
    FLAG_HASH64, FatHeader, Leaf, LeafEntry, MicroEntry, MicroZap, NORM_UPPER, ZapForm, hash_bits, hash_name,
    hash_words,
};
use format::{BlockId, DecodeError, ObjectId};
use std::sync::Arc;
use zio::Block;

/// The cursor after the last entry.
pub const CURSOR_END: u64 = u64::MAX;

/// Where a ZAP gets its blocks from.
pub trait ZapBlocks: Send + Sync {
    /// Bytes of a block.
    fn block_size(&self) -> u64;
    /// The highest block number.
    fn max_block(&self) -> BlockId;
    /// A block; `None` for a hole, and beyond the last one.
    fn block(&self, id: BlockId) -> Result<Option<Block>, DmuError>;
}

/// When a name of the ZAP is the name looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Match {
    /// Byte for byte.
    #[default]
    Exact,
    /// As normalized by the ZAP's flags, case included if they say so.
    Normalized,
    /// As normalized by the ZAP's flags, but upper and lower case differ.
    NormalizedMatchCase,
}

/// What an entry is known by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ZapKey {
    /// A name, without NUL.
    Name(Vec<u8>),
    /// Words of 64 bits.
    Words(Vec<u64>),
}

/// An entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ZapEntry {
    /// Its key.
    pub key: ZapKey,
    /// Bytes of each integer: 1, 2, 4 or 8.
    pub int_size: u8,
    /// The integers, big-endian, packed.
    pub value: Vec<u8>,
    /// The hash of its key, significant bits at the top.
    pub hash: u64,
    /// Tells entries of equal hash apart.
    pub cd: u32,
    /// The position after it.
    pub cursor: u64,
}

impl ZapEntry {
    /// The name; empty if the key is words.
    pub fn name(&self) -> &[u8] {
        match &self.key {
            ZapKey::Name(name) => name,
            ZapKey::Words(_) => &[],
        }
    }

    /// The first integer, if there is one.
    pub fn u64(&self) -> Option<u64> {
        let raw = self.value.get(..usize::from(self.int_size))?;
        Some(raw.iter().fold(0, |value, byte| value << 8 | u64::from(*byte)))
    }

    /// All integers, widened.
    pub fn u64s(&self) -> Vec<u64> {
        let widen = |raw: &[u8]| raw.iter().fold(0, |value, byte| value << 8 | u64::from(*byte));
        self.value.chunks_exact(usize::from(self.int_size).max(1)).map(widen).collect()
    }

    /// The value as a string: integers of one byte, up to the first NUL.
    pub fn string(&self) -> Option<Vec<u8>> {
        (self.int_size == 1).then(|| self.value.iter().copied().take_while(|byte| *byte != 0).collect())
    }
}

/// Longest name with its NUL that is compared in a normalized form. Longer ones are not made, and
/// each costs time.
const NAME_MAX: usize = 1025;

#[derive(Clone)]
enum Form {
    Micro { salt: u64, normalization: u64 },
    Fat(FatHeader),
}

/// An open ZAP. Cloning is cheap.
#[derive(Clone)]
pub struct Zap {
    blocks: Arc<dyn ZapBlocks>,
    objset: u64,
    object: ObjectId,
    first: Block,
    form: Form,
}

impl Zap {
    /// Opens the ZAP in an object.
    ///
    /// # Errors
    /// If the object is not of a ZAP type, or its first block is no ZAP's.
    pub fn open(object: &Object) -> Result<Zap, DmuError> {
        if !object.dnode().obj_type.is_zap() {
            return Err(object.corrupt("not a name-value object"));
        }
        Zap::over(Arc::new(object.clone()), object.objset().number(), object.id())
    }

    /// Opens the ZAP in these blocks; `objset` and `object` are for messages.
    pub fn over(blocks: Arc<dyn ZapBlocks>, objset: u64, object: ObjectId) -> Result<Zap, DmuError> {
        let corrupt = |why| DmuError::Corrupt { objset, object, why };
        let decode = |source| DmuError::Decode { objset, object, source };
        let first = blocks.block(BlockId(0))?.ok_or_else(|| corrupt("the first block of a ZAP is a hole"))?;
        let (bytes, order) = (first.bytes(), first.order());
        let form = match ZapForm::of(bytes, order).map_err(decode)? {
            ZapForm::Micro => {
                if blocks.max_block().0 != 0 {
                    return Err(corrupt("a micro ZAP of more than one block"));
                }
                let zap = MicroZap::decode(bytes, order).map_err(decode)?;
                Form::Micro { salt: zap.salt, normalization: zap.normalization }
            }
            ZapForm::Fat => Form::Fat(FatHeader::decode(bytes, order).map_err(decode)?),
        };
        Ok(Zap { blocks, objset, object, first, form })
    }

    /// The header, if it is fat.
    pub fn fat_header(&self) -> Option<&FatHeader> {
        match &self.form {
            Form::Fat(header) => Some(header),
            Form::Micro { .. } => None,
        }
    }

    /// Bytes of a block.
    pub fn block_size(&self) -> u64 {
        self.blocks.block_size()
    }

    /// The start value of its hash.
    pub fn salt(&self) -> u64 {
        match &self.form {
            Form::Micro { salt, .. } => *salt,
            Form::Fat(header) => header.salt,
        }
    }

    /// How names are normalized: `format::zap::NORM_…`.
    pub fn normalization(&self) -> u64 {
        match &self.form {
            Form::Micro { normalization, .. } => *normalization,
            Form::Fat(header) => header.normalization,
        }
    }

    /// `format::zap::FLAG_…`; 0 of a micro ZAP.
    pub fn flags(&self) -> u64 {
        self.fat_header().map_or(0, |header| header.flags)
    }

    /// Number of entries: counted in a micro ZAP, as the header says in a fat one.
    pub fn count(&self) -> Result<u64, DmuError> {
        match &self.form {
            Form::Micro { .. } => Ok(self.micro()?.entries().count() as u64),
            Form::Fat(header) => Ok(header.entries),
        }
    }

    /// The entry with exactly this name.
    pub fn lookup(&self, name: &[u8]) -> Result<Option<ZapEntry>, DmuError> {
        self.lookup_matching(name, Match::Exact)
    }

    /// The entry whose name matches; of several the one with the lowest differentiator.
    pub fn lookup_matching(&self, name: &[u8], how: Match) -> Result<Option<ZapEntry>, DmuError> {
        let matcher = Matcher::new(name, how, self.normalization());
        match &self.form {
            Form::Micro { .. } => self.lookup_micro(&matcher),
            Form::Fat(header) => self.lookup_fat(header, &matcher),
        }
    }

    /// The first integer of the entry with exactly this name.
    pub fn lookup_u64(&self, name: &[u8]) -> Result<Option<u64>, DmuError> {
        Ok(self.lookup(name)?.and_then(|entry| entry.u64()))
    }

    /// The entry whose key is these words.
    pub fn lookup_words(&self, key: &[u64]) -> Result<Option<ZapEntry>, DmuError> {
        let Form::Fat(header) = &self.form else { return Ok(None) };
        if !header.has_word_keys() {
            return Ok(None);
        }
        let hash = hash_words(header.salt, header.flags, key);
        let Some(block) = self.leaf_for(header, hash)? else { return Ok(None) };
        let leaf = self.decode_leaf(header, hash, &block)?;
        for entry in leaf.chain(leaf.bucket(hash)) {
            let entry = entry.map_err(|e| self.decode_error(e))?;
            if entry.hash == hash
                && usize::from(entry.name_len) == key.len()
                && leaf.words(&entry).map_err(|e| self.decode_error(e))? == key
            {
                return self.read_entry(header, &leaf, &entry).map(Some);
            }
        }
        Ok(None)
    }

    /// All entries in order.
    pub fn entries(&self) -> Entries {
        self.entries_from(0)
    }

    /// The entries from a cursor on: 0, or a [`ZapEntry::cursor`].
    pub fn entries_from(&self, cursor: u64) -> Entries {
        Entries::new(self.clone(), cursor)
    }

    /// Shape and fill, for people.
    pub fn stats(&self) -> Result<ZapStats, DmuError> {
        stats::collect(self)
    }

    fn micro(&self) -> Result<MicroZap<'_>, DmuError> {
        MicroZap::decode(self.first.bytes(), self.first.order()).map_err(|e| self.decode_error(e))
    }

    fn lookup_micro(&self, matcher: &Matcher<'_>) -> Result<Option<ZapEntry>, DmuError> {
        let found =
            self.micro()?.entries().filter(|entry| matcher.accepts(entry.name)).min_by_key(|entry| entry.cd);
        Ok(found.map(|entry| self.micro_entry(&entry)))
    }

    fn micro_hash(&self, name: &[u8]) -> u64 {
        hash_name(self.salt(), 0, &prepare(name, self.normalization()))
    }

    fn micro_entry(&self, entry: &MicroEntry<'_>) -> ZapEntry {
        micro_entry(entry, self.micro_hash(entry.name))
    }

    fn lookup_fat(&self, header: &FatHeader, matcher: &Matcher<'_>) -> Result<Option<ZapEntry>, DmuError> {
        if header.has_word_keys() {
            return Ok(None);
        }
        let hash = hash_name(header.salt, header.flags, &matcher.hashed);
        if let Some(block) = self.leaf_for(header, hash)? {
            let leaf = self.decode_leaf(header, hash, &block)?;
            for entry in leaf.chain(leaf.bucket(hash)) {
                let entry = entry.map_err(|e| self.decode_error(e))?;
                if entry.hash == hash && self.accepts(&leaf, &entry, matcher)? {
                    return self.read_entry(header, &leaf, &entry).map(Some);
                }
            }
        }
        // The hash of a rare name may not be what the reference made it: see `normalize`.
        if !is_doubtful(matcher.name, header.normalization) {
            return Ok(None);
        }
        for entry in self.entries() {
            let entry = entry?;
            if matcher.accepts(entry.name()) {
                return Ok(Some(entry));
            }
        }
        Ok(None)
    }

    fn accepts(&self, leaf: &Leaf<'_>, entry: &LeafEntry, matcher: &Matcher<'_>) -> Result<bool, DmuError> {
        let verdict = if matcher.wanted.is_some() {
            if usize::from(entry.name_len) > NAME_MAX {
                return Ok(false);
            }
            leaf.name(entry).map(|name| matcher.accepts(&name))
        } else {
            leaf.name_is(entry, matcher.name)
        };
        verdict.map_err(|e| self.decode_error(e))
    }

    fn read_entry(
        &self,
        header: &FatHeader,
        leaf: &Leaf<'_>,
        entry: &LeafEntry,
    ) -> Result<ZapEntry, DmuError> {
        leaf_entry(header, leaf, entry).map_err(|e| self.decode_error(e))
    }

    /// A block of the pointer table.
    fn table_block(&self, header: &FatHeader, id: BlockId) -> Result<Block, DmuError> {
        if header.table_blocks == 0 {
            return Ok(self.first.clone());
        }
        self.blocks.block(id)?.ok_or_else(|| self.corrupt("a hole in a ZAP's pointer table"))
    }

    /// The leaf that byte `at` of a block of the pointer table leads to.
    fn check_pointer(&self, header: &FatHeader, block: &Block, at: usize) -> Result<BlockId, DmuError> {
        match block.order().get_u64(block.bytes(), at) {
            Some(id) if id != 0 && id < header.free_block.0 => Ok(BlockId(id)),
            _ => Err(self.corrupt("a ZAP's pointer table leads outside the ZAP")),
        }
    }

    /// The block of the leaf that a hash belongs to; `None` if it is a hole or all zeros.
    fn leaf_for(&self, header: &FatHeader, hash: u64) -> Result<Option<Block>, DmuError> {
        let (id, at) = header.table_slot(header.table_index(hash));
        let block = self.table_block(header, id)?;
        self.leaf_block(self.check_pointer(header, &block, at)?)
    }

    fn leaf_block(&self, id: BlockId) -> Result<Option<Block>, DmuError> {
        // Removing a ZAP's leaves can end in the middle: what is left of a leaf is then zeros.
        Ok(self.blocks.block(id)?.filter(|block| block.bytes().iter().any(|byte| *byte != 0)))
    }

    /// Decodes a leaf and checks that it is the one for `hash`.
    fn decode_leaf<'a>(&self, header: &FatHeader, hash: u64, block: &'a Block) -> Result<Leaf<'a>, DmuError> {
        let leaf = Leaf::decode(block.bytes(), block.order()).map_err(|e| self.decode_error(e))?;
        if leaf.prefix_len > header.table_shift || !leaf.covers(hash) {
            return Err(self.corrupt("a ZAP's pointer table leads to the wrong leaf"));
        }
        Ok(leaf)
    }

    fn corrupt(&self, why: &'static str) -> DmuError {
        DmuError::Corrupt { objset: self.objset, object: self.object, why }
    }

    fn decode_error(&self, source: DecodeError) -> DmuError {
        DmuError::Decode { objset: self.objset, object: self.object, source }
    }
}

/// An entry of a micro ZAP, whose hash this is.
fn micro_entry(entry: &MicroEntry<'_>, hash: u64) -> ZapEntry {
    ZapEntry {
        key: ZapKey::Name(entry.name.to_vec()),
        int_size: 8,
        value: entry.value.to_be_bytes().to_vec(),
        hash,
        cd: entry.cd,
        cursor: cursor_after(0, hash, entry.cd),
    }
}

/// An entry of a leaf with key and value.
fn leaf_entry(header: &FatHeader, leaf: &Leaf<'_>, entry: &LeafEntry) -> Result<ZapEntry, DecodeError> {
    let key = if header.has_word_keys() {
        ZapKey::Words(leaf.words(entry)?)
    } else {
        ZapKey::Name(leaf.name(entry)?)
    };
    Ok(ZapEntry {
        key,
        int_size: entry.int_size,
        value: leaf.value(entry)?,
        hash: entry.hash,
        cd: entry.cd,
        cursor: cursor_after(header.flags, entry.hash, entry.cd),
    })
}

/// Largest differentiator of a ZAP with these flags.
fn max_cd(flags: u64) -> u32 {
    if flags & FLAG_HASH64 != 0 { u32::from(u16::MAX) } else { u32::MAX }
}

/// The serialized position after the entry (hash, cd).
fn cursor_after(flags: u64, hash: u64, cd: u32) -> u64 {
    let bits = hash_bits(flags);
    let high = hash >> (64 - bits);
    if cd < max_cd(flags) {
        return high | u64::from(cd + 1) << bits;
    }
    // No differentiator comes after the largest: the next hash does.
    match (high + 1) >> bits {
        0 => high + 1,
        _ => CURSOR_END,
    }
}

/// The (hash, cd) of a serialized position; `None` at the end.
fn cursor_position(flags: u64, cursor: u64) -> Option<(u64, u32)> {
    let bits = hash_bits(flags);
    let cd = u32::try_from(cursor >> bits).ok().filter(|cd| *cd < max_cd(flags)).unwrap_or(0);
    (cursor != CURSOR_END).then_some((cursor << (64 - bits), cd))
}

/// A name looked for, prepared once.
struct Matcher<'n> {
    name: &'n [u8],
    /// What its hash is made of.
    hashed: std::borrow::Cow<'n, [u8]>,
    /// How names are prepared for comparison, and the result for this one; `None`: byte for byte.
    wanted: Option<(u64, std::borrow::Cow<'n, [u8]>)>,
}

impl<'n> Matcher<'n> {
    fn new(name: &'n [u8], how: Match, normalization: u64) -> Matcher<'n> {
        let compare = match how {
            Match::Exact => 0,
            Match::Normalized => normalization,
            Match::NormalizedMatchCase => normalization & !NORM_UPPER,
        };
        Matcher {
            name,
            hashed: prepare(name, normalization),
            wanted: (compare != 0).then(|| (compare, prepare(name, compare))),
        }
    }

    fn accepts(&self, name: &[u8]) -> bool {
        match &self.wanted {
            None => name == self.name,
            Some((flags, wanted)) => name == self.name || prepare(name, *flags) == *wanted,
        }
    }
}
