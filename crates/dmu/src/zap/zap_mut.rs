//! Changing ZAPs (docs/on-disk/21-zap.md, section 4).
//!
//! [`ZapMut`] looks entries up and changes them through [`ZapBlocksMut`], so that it does not know of
//! transactions. One operation touches one slot of a micro ZAP, or one leaf and the header of a fat
//! one: nothing is decoded that does not lie on the way to the entry.
//!
//! # What always holds
//! - An operation that fails for a reason of the ZAP's (a key that is there, damage on the way) changes
//!   nothing that a reader could see.
//! - No block is held while it is changed, so that changing it copies nothing.
//! - One writer at a time: [`ZapState`] is its lock, kept beside the object with the index of a micro ZAP.
//!   [`lookup_shared`] and [`list_shared`] take it too. A [`super::Zap`] over blocks that somebody changes
//!   may see a leaf that is split by half: it is for states that stand still.
//!
//! # Order
//! Micro until an entry does not fit (its value, its name, the size of the block), then fat for good.
//! A leaf without room is split, its table grown first where the leaf has only one slot of it.
//!
//! Tests: `write_tests.rs`; `pool/tests/it/zap_rewrite.rs` writes ZAPs of the golden pools anew.

use super::fat_write::Place;
use super::{Form, Match, Matcher, MicroIndex, ZapBlocks, ZapEntry, cursor_position};
use crate::DmuError;
use crate::sync::{Mutex, MutexGuard};
use format::zap::{
    FLAG_UINT64_KEY, FatHeader, MicroZap, ZapBlockKind, ZapForm, hash_name, hash_words, new_leaf, new_micro,
    to_little,
};
use format::{BlockId, DecodeError, Endian, ObjectId};
use std::borrow::Cow;
use zio::Block;

/// Bytes of a new micro ZAP, and by which it grows.
pub(super) const MICRO_STEP: usize = 512;
/// Longest name of an entry, without its NUL. Names over 255 bytes need the feature `longname`.
pub const NAME_LEN_MAX: usize = 1023;
/// Bytes of the largest value of an entry.
pub const VALUE_MAX: usize = 8192;

/// The blocks of a ZAP that is being changed.
pub trait ZapBlocksMut: ZapBlocks {
    /// Replaces a whole block, or makes it. The bytes are little-endian.
    fn put_block(&self, id: BlockId, bytes: Vec<u8>) -> Result<(), DmuError>;
    /// Changes bytes of a block in place: calls `change` exactly once if the result is `Ok`. Blocks that
    /// [`ZapBlocks::block`] gives in big-endian order are not changed but put.
    fn change_block(&self, id: BlockId, change: &mut dyn FnMut(&mut [u8])) -> Result<(), DmuError>;
    /// Only while there is one block: its new size, larger or smaller. The block is put right after.
    fn set_block_size(&self, bytes: u64) -> Result<(), DmuError>;
    /// Makes the only block larger: what it has stays, and zeros follow.
    fn grow_block(&self, bytes: u64) -> Result<(), DmuError> {
        let Some(block) = self.block(BlockId(0))? else { return self.set_block_size(bytes) };
        let mut grown = block.bytes().to_vec();
        grown.resize(bytes as usize, 0);
        self.set_block_size(bytes)?;
        self.put_block(BlockId(0), grown)
    }
    /// Makes holes of blocks.
    fn free_blocks(&self, first: BlockId, count: u64) -> Result<(), DmuError>;
    /// What is kept beside the object for its writers. Without it each [`ZapMut`] has its own, and there
    /// must be no other at the same time.
    fn state(&self) -> Option<&ZapState> {
        None
    }
}

impl<T: ZapBlocks + ?Sized> ZapBlocks for &T {
    fn block_size(&self) -> u64 {
        (**self).block_size()
    }

    fn max_block(&self) -> BlockId {
        (**self).max_block()
    }

    fn block(&self, id: BlockId) -> Result<Option<Block>, DmuError> {
        (**self).block(id)
    }
}

impl<T: ZapBlocksMut + ?Sized> ZapBlocksMut for &T {
    fn put_block(&self, id: BlockId, bytes: Vec<u8>) -> Result<(), DmuError> {
        (**self).put_block(id, bytes)
    }

    fn change_block(&self, id: BlockId, change: &mut dyn FnMut(&mut [u8])) -> Result<(), DmuError> {
        (**self).change_block(id, change)
    }

    fn set_block_size(&self, bytes: u64) -> Result<(), DmuError> {
        (**self).set_block_size(bytes)
    }

    fn grow_block(&self, bytes: u64) -> Result<(), DmuError> {
        (**self).grow_block(bytes)
    }

    fn free_blocks(&self, first: BlockId, count: u64) -> Result<(), DmuError> {
        (**self).free_blocks(first, count)
    }

    fn state(&self) -> Option<&ZapState> {
        (**self).state()
    }
}

/// What a ZAP's writers share: their lock, and where the entries of a micro ZAP are.
#[derive(Debug, Default)]
pub struct ZapState {
    index: Mutex<Option<MicroIndex>>,
}

impl ZapState {
    /// Forgets the index. Whoever changes a ZAP's first block by other means than [`ZapMut`] calls this:
    /// after a rollback, a receive, or when the object's number is used again.
    pub fn clear(&self) {
        *self.lock() = None;
    }

    #[cfg(test)]
    pub(super) fn lock_for_tests(&self) -> MutexGuard<'_, Option<MicroIndex>> {
        self.lock()
    }

    fn lock(&self) -> MutexGuard<'_, Option<MicroIndex>> {
        self.index.lock().unwrap_or_else(|poisoned| {
            // Whoever panicked may have left the index behind the block.
            let mut index = poisoned.into_inner();
            *index = None;
            index
        })
    }
}

/// Finds an entry with the help of what the writers of a ZAP share, without a transaction: in a micro
/// ZAP this does not compare all names, as [`super::Zap`] does, which knows no writers.
pub fn lookup_shared(
    blocks: &dyn ZapBlocks,
    state: &ZapState,
    (objset, object): (u64, ObjectId),
    name: &[u8],
    how: Match,
) -> Result<Option<ZapEntry>, DmuError> {
    ZapMut::over(Shared { blocks, state, objset, object }, objset, object).lookup_matching(name, how)
}

/// At most `limit` entries from a cursor on, without a transaction, while nobody writes.
pub fn list_shared(
    blocks: &dyn ZapBlocks,
    state: &ZapState,
    (objset, object): (u64, ObjectId),
    cursor: u64,
    limit: usize,
) -> Result<Vec<ZapEntry>, DmuError> {
    ZapMut::over(Shared { blocks, state, objset, object }, objset, object).entries_from(cursor, limit)
}

/// Blocks that are only looked at.
struct Shared<'a> {
    blocks: &'a dyn ZapBlocks,
    state: &'a ZapState,
    objset: u64,
    object: ObjectId,
}

impl Shared<'_> {
    fn refuse<T>(&self) -> Result<T, DmuError> {
        let (objset, object) = (self.objset, self.object);
        Err(DmuError::Corrupt { objset, object, why: "a ZAP that is only looked at cannot be changed" })
    }
}

impl ZapBlocks for Shared<'_> {
    fn block_size(&self) -> u64 {
        self.blocks.block_size()
    }

    fn max_block(&self) -> BlockId {
        self.blocks.max_block()
    }

    fn block(&self, id: BlockId) -> Result<Option<Block>, DmuError> {
        self.blocks.block(id)
    }
}

impl ZapBlocksMut for Shared<'_> {
    fn put_block(&self, _id: BlockId, _bytes: Vec<u8>) -> Result<(), DmuError> {
        self.refuse()
    }

    fn change_block(&self, _id: BlockId, _change: &mut dyn FnMut(&mut [u8])) -> Result<(), DmuError> {
        self.refuse()
    }

    fn set_block_size(&self, _bytes: u64) -> Result<(), DmuError> {
        self.refuse()
    }

    fn free_blocks(&self, _first: BlockId, _count: u64) -> Result<(), DmuError> {
        self.refuse()
    }

    fn state(&self) -> Option<&ZapState> {
        Some(self.state)
    }
}

/// A value to be stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ZapValue<'a> {
    /// One integer of 8 bytes: all that a micro ZAP takes.
    U64(u64),
    /// Integers of 8 bytes.
    U64s(&'a [u64]),
    /// Integers of 4 bytes.
    U32s(&'a [u32]),
    /// Integers of 2 bytes.
    U16s(&'a [u16]),
    /// Integers of 1 byte.
    Bytes(&'a [u8]),
    /// A string: integers of 1 byte, with a NUL that is added.
    Str(&'a [u8]),
    /// Integers as [`ZapEntry::value`] has them: big-endian, packed.
    Packed {
        /// Bytes of each integer: 1, 2, 4 or 8.
        int_size: u8,
        /// The integers.
        bytes: &'a [u8],
    },
}

impl From<u64> for ZapValue<'_> {
    fn from(value: u64) -> Self {
        ZapValue::U64(value)
    }
}

impl<'a> From<&'a [u64]> for ZapValue<'a> {
    fn from(values: &'a [u64]) -> Self {
        ZapValue::U64s(values)
    }
}

impl<'a> From<&'a str> for ZapValue<'a> {
    fn from(text: &'a str) -> Self {
        ZapValue::Str(text.as_bytes())
    }
}

impl<'a> ZapValue<'a> {
    /// Bytes of each integer, and the integers packed.
    fn packed(&self) -> (u8, Cow<'a, [u8]>) {
        match self {
            ZapValue::U64(value) => (8, Cow::Owned(value.to_be_bytes().to_vec())),
            ZapValue::U64s(values) => (8, values.iter().flat_map(|v| v.to_be_bytes()).collect()),
            ZapValue::U32s(values) => (4, values.iter().flat_map(|v| v.to_be_bytes()).collect()),
            ZapValue::U16s(values) => (2, values.iter().flat_map(|v| v.to_be_bytes()).collect()),
            ZapValue::Bytes(bytes) => (1, Cow::Borrowed(*bytes)),
            ZapValue::Str(text) => (1, text.iter().copied().chain([0]).collect()),
            ZapValue::Packed { int_size, bytes } => (*int_size, Cow::Borrowed(*bytes)),
        }
    }

    /// The value, if a micro ZAP can have it.
    pub(super) fn single(&self) -> Option<u64> {
        match self {
            ZapValue::U64(value) | ZapValue::U64s([value]) => Some(*value),
            ZapValue::Packed { int_size: 8, bytes } => Some(u64::from_be_bytes((*bytes).try_into().ok()?)),
            _ => None,
        }
    }
}

/// Makes an empty micro ZAP, of 512 bytes, in an object without data. `salt` is random; it is made odd.
pub fn create_micro(blocks: &dyn ZapBlocksMut, salt: u64, normalization: u64) -> Result<(), DmuError> {
    blocks.state().into_iter().for_each(ZapState::clear);
    blocks.set_block_size(MICRO_STEP as u64)?;
    blocks.put_block(BlockId(0), new_micro(MICRO_STEP, salt | 1, normalization))
}

/// Makes an empty fat ZAP of blocks of `1 << block_shift` bytes (9 to 24) in an object without data.
/// `salt` is random, it is made odd; `flags` are `format::zap::FLAG_…`.
pub fn create_fat(
    blocks: &dyn ZapBlocksMut,
    block_shift: u32,
    salt: u64,
    normalization: u64,
    flags: u64,
) -> Result<(), DmuError> {
    assert!((9..=24).contains(&block_shift), "the blocks of a fat ZAP have 512 bytes to 16 MiB");
    assert!(
        normalization == 0 || flags & FLAG_UINT64_KEY == 0,
        "a ZAP whose keys are words does not normalize them"
    );
    blocks.state().into_iter().for_each(ZapState::clear);
    let header = FatHeader::new(block_shift, salt | 1, normalization, flags);
    put_empty_fat(blocks, &header)
}

/// Writes header and only leaf of an empty fat ZAP.
pub(super) fn put_empty_fat(blocks: &dyn ZapBlocksMut, header: &FatHeader) -> Result<(), DmuError> {
    blocks.set_block_size(1 << header.block_shift)?;
    blocks.put_block(BlockId(0), header.new_block())?;
    blocks.put_block(BlockId(1), new_leaf(header.block_shift, 0, 0, header.normalization != 0))
}

/// What to do with a key that is there or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// It must not be there.
    Insert,
    /// It must be there.
    Update,
    /// Either.
    Upsert,
}

/// A key, prepared once.
pub(super) enum Key<'k> {
    Name(Matcher<'k>),
    Words(&'k [u64]),
}

impl<'k> Key<'k> {
    /// As the key is stored: a name with its NUL, or words, big-endian.
    pub(super) fn stored(&self) -> Vec<u8> {
        match self {
            Key::Name(matcher) => matcher.name.iter().copied().chain([0]).collect(),
            Key::Words(words) => words.iter().flat_map(|word| word.to_be_bytes()).collect(),
        }
    }

    pub(super) fn hash(&self, salt: u64, flags: u64) -> u64 {
        match self {
            Key::Name(matcher) => hash_name(salt, flags, &matcher.hashed),
            Key::Words(words) => hash_words(salt, flags, words),
        }
    }
}

/// A key as a caller gives it.
#[derive(Clone, Copy)]
pub(super) enum Wanted<'k> {
    Name(&'k [u8], Match),
    Words(&'k [u64]),
}

impl<'k> Wanted<'k> {
    pub(super) fn exact(name: &'k [u8]) -> Wanted<'k> {
        Wanted::Name(name, Match::Exact)
    }
}

/// A value ready to be stored.
pub(super) struct NewValue<'v> {
    pub(super) int_size: u8,
    pub(super) bytes: Cow<'v, [u8]>,
    /// If a micro ZAP can have it.
    pub(super) single: Option<u64>,
}

/// A ZAP that is being changed. It holds no block; several may exist for one ZAP if its blocks have a
/// [`ZapState`].
pub struct ZapMut<'a> {
    pub(super) blocks: Box<dyn ZapBlocksMut + 'a>,
    pub(super) objset: u64,
    pub(super) object: ObjectId,
    own: ZapState,
}

impl<'a> ZapMut<'a> {
    /// Opens the ZAP in these blocks; `objset` and `object` are for messages.
    ///
    /// # Errors
    /// If the first block is no ZAP's.
    pub fn open(
        blocks: impl ZapBlocksMut + 'a,
        objset: u64,
        object: ObjectId,
    ) -> Result<ZapMut<'a>, DmuError> {
        let zap = ZapMut::over(blocks, objset, object);
        zap.form()?;
        Ok(zap)
    }

    /// The same without looking: what is no ZAP is found out by the first that is asked of it.
    pub(crate) fn over(blocks: impl ZapBlocksMut + 'a, objset: u64, object: ObjectId) -> ZapMut<'a> {
        ZapMut { blocks: Box::new(blocks), objset, object, own: ZapState::default() }
    }

    /// Number of entries: counted in a micro ZAP, as the header says in a fat one.
    pub fn count(&self) -> Result<u64, DmuError> {
        let mut state = self.lock();
        match self.form()? {
            Form::Micro { .. } => Ok(self.index(&mut state, &self.first()?)?.entries() as u64),
            Form::Fat(header) => Ok(header.entries),
        }
    }

    /// It has the fat form.
    pub fn is_fat(&self) -> Result<bool, DmuError> {
        Ok(matches!(self.form()?, Form::Fat(_)))
    }

    /// The start value of its hash.
    pub fn salt(&self) -> Result<u64, DmuError> {
        Ok(match self.form()? {
            Form::Micro { salt, .. } => salt,
            Form::Fat(header) => header.salt,
        })
    }

    /// How names are normalized: `format::zap::NORM_…`.
    pub fn normalization(&self) -> Result<u64, DmuError> {
        Ok(match self.form()? {
            Form::Micro { normalization, .. } => normalization,
            Form::Fat(header) => header.normalization,
        })
    }

    /// `format::zap::FLAG_…`; 0 of a micro ZAP.
    pub fn flags(&self) -> Result<u64, DmuError> {
        Ok(match self.form()? {
            Form::Micro { .. } => 0,
            Form::Fat(header) => header.flags,
        })
    }

    /// All entries in order. For ZAPs known to be small.
    pub fn entries(&self) -> Result<Vec<ZapEntry>, DmuError> {
        self.entries_from(0, usize::MAX)
    }

    /// At most `limit` entries from a cursor on: 0, or a [`ZapEntry::cursor`]. None: there are no more.
    pub fn entries_from(&self, cursor: u64, limit: usize) -> Result<Vec<ZapEntry>, DmuError> {
        let _state = self.lock();
        let form = self.form()?;
        let flags = if let Form::Fat(header) = &form { header.flags } else { 0 };
        let Some(from) = cursor_position(flags, cursor).filter(|_| limit > 0) else { return Ok(Vec::new()) };
        match form {
            Form::Micro { salt, normalization } => {
                let mut entries = self.micro_entries(salt, normalization)?;
                entries.retain(|entry| (entry.hash, entry.cd) >= from);
                entries.truncate(limit);
                Ok(entries)
            }
            Form::Fat(header) => self.fat_entries(&header, from, limit),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Option<MicroIndex>> {
        self.blocks.state().unwrap_or(&self.own).lock()
    }

    /// The entry of a key.
    pub(super) fn find(
        &self,
        state: &mut Option<MicroIndex>,
        wanted: Wanted<'_>,
    ) -> Result<Option<ZapEntry>, DmuError> {
        let first = self.first()?;
        let form = self.form_of(&first)?;
        let key = self.key(&form, wanted)?;
        match (&form, &key) {
            (Form::Micro { salt, .. }, Key::Name(matcher)) => self.find_micro(state, &first, *salt, matcher),
            (Form::Micro { .. }, Key::Words(_)) => Ok(None),
            (Form::Fat(header), key) => self.find_fat(header, key),
        }
    }

    /// Puts an entry.
    pub(super) fn put(
        &self,
        state: &mut Option<MicroIndex>,
        wanted: Wanted<'_>,
        value: &ZapValue<'_>,
        mode: Mode,
    ) -> Result<(), DmuError> {
        let value = self.check_value(value)?;
        let first = self.first()?;
        let form = self.form_of(&first)?;
        let key = self.key(&form, wanted)?;
        let mut header = match (form, &key) {
            (Form::Micro { salt, normalization }, Key::Name(matcher)) => {
                if self.put_micro(state, first, salt, matcher, &value, mode)? {
                    return Ok(());
                }
                let header = self.convert(salt, normalization)?;
                *state = None;
                header
            }
            (Form::Micro { .. }, Key::Words(_)) => return Err(self.wrong_keys()),
            (Form::Fat(header), _) => {
                drop(first);
                header
            }
        };
        self.put_fat(&mut header, &key, &value, mode)
    }

    /// Removes the entry of a key, gives it back if it was there.
    pub(super) fn take(
        &self,
        state: &mut Option<MicroIndex>,
        wanted: Wanted<'_>,
    ) -> Result<Option<ZapEntry>, DmuError> {
        let first = self.first()?;
        let form = self.form_of(&first)?;
        let key = self.key(&form, wanted)?;
        match (form, &key) {
            (Form::Micro { salt, .. }, Key::Name(matcher)) => self.take_micro(state, first, salt, matcher),
            (Form::Micro { .. }, Key::Words(_)) => Err(self.wrong_keys()),
            (Form::Fat(mut header), key) => {
                drop(first);
                let Place::Found { leaf, entry } = self.locate(&header, key)? else { return Ok(None) };
                self.take_fat(&mut header, leaf, &entry).map(Some)
            }
        }
    }

    /// Checks a key and prepares it.
    fn key<'k>(&self, form: &Form, wanted: Wanted<'k>) -> Result<Key<'k>, DmuError> {
        let (normalization, has_words) = match form {
            Form::Micro { normalization, .. } => (*normalization, false),
            Form::Fat(header) => (header.normalization, header.has_word_keys()),
        };
        match wanted {
            Wanted::Name(..) if has_words => Err(self.wrong_keys()),
            Wanted::Name(name, how) => {
                if name.is_empty() || name.len() > NAME_LEN_MAX {
                    return Err(self.limit("name length", name.len()));
                }
                if name.contains(&0) {
                    return Err(self.limit("a byte of the name", 0));
                }
                Ok(Key::Name(Matcher::new(name, how, normalization)))
            }
            Wanted::Words([]) => Err(self.limit("key length", 0)),
            Wanted::Words(words) => Ok(Key::Words(words)),
        }
    }

    fn check_value<'v>(&self, value: &ZapValue<'v>) -> Result<NewValue<'v>, DmuError> {
        let (int_size, bytes) = value.packed();
        if !matches!(int_size, 1 | 2 | 4 | 8) || !bytes.len().is_multiple_of(usize::from(int_size)) {
            return Err(self.limit("integer size", int_size.into()));
        }
        if bytes.len() > VALUE_MAX {
            return Err(self.limit("value length", bytes.len()));
        }
        Ok(NewValue { int_size, bytes, single: value.single() })
    }

    /// Which form it has now.
    pub(super) fn form(&self) -> Result<Form, DmuError> {
        self.form_of(&self.first()?)
    }

    fn form_of(&self, first: &Block) -> Result<Form, DmuError> {
        let (bytes, order) = (first.bytes(), first.order());
        let form = match ZapForm::of(bytes, order) {
            Ok(ZapForm::Micro) if self.blocks.max_block().0 != 0 => {
                return Err(self.corrupt("a micro ZAP of more than one block"));
            }
            Ok(ZapForm::Micro) => MicroZap::decode(bytes, order)
                .map(|zap| Form::Micro { salt: zap.salt, normalization: zap.normalization }),
            Ok(ZapForm::Fat) => FatHeader::decode(bytes, order).map(Form::Fat),
            Err(error) => Err(error),
        };
        form.map_err(|e| self.decode_error(e))
    }

    pub(super) fn first(&self) -> Result<Block, DmuError> {
        self.blocks.block(BlockId(0))?.ok_or_else(|| self.corrupt("the first block of a ZAP is a hole"))
    }

    /// Changes a block in place. A block of the other byte order is turned first.
    pub(super) fn change<R>(
        &self,
        id: BlockId,
        kind: ZapBlockKind,
        change: impl FnOnce(&mut [u8]) -> Result<R, DecodeError>,
    ) -> Result<R, DmuError> {
        let turned = match self.blocks.block(id)? {
            Some(block) if block.order() == Endian::Big => {
                Some(to_little(block.bytes(), kind).map_err(|e| self.decode_error(e))?)
            }
            Some(_) => None,
            None => return Err(self.corrupt("a hole where a ZAP is to be changed")),
        };
        if let Some(bytes) = turned {
            self.blocks.put_block(id, bytes)?;
        }
        let (mut change, mut result) = (Some(change), None);
        self.blocks.change_block(id, &mut |bytes| {
            if let Some(change) = change.take() {
                result = Some(change(bytes));
            }
        })?;
        let result = result.expect("a block that was changed without an error was given to be changed");
        result.map_err(|e| self.decode_error(e))
    }

    pub(super) fn corrupt(&self, why: &'static str) -> DmuError {
        DmuError::Corrupt { objset: self.objset, object: self.object, why }
    }

    pub(super) fn decode_error(&self, source: DecodeError) -> DmuError {
        DmuError::Decode { objset: self.objset, object: self.object, source }
    }

    pub(super) fn limit(&self, what: &'static str, value: usize) -> DmuError {
        DmuError::ZapLimit { objset: self.objset, object: self.object, what, value: value as u64 }
    }

    pub(super) fn exists(&self) -> DmuError {
        DmuError::KeyExists { objset: self.objset, object: self.object }
    }

    pub(super) fn missing(&self) -> DmuError {
        DmuError::NoKey { objset: self.objset, object: self.object }
    }

    pub(super) fn full(&self) -> DmuError {
        DmuError::ZapFull { objset: self.objset, object: self.object }
    }

    fn wrong_keys(&self) -> DmuError {
        self.corrupt("a ZAP has names where words were expected, or words where names were")
    }
}
