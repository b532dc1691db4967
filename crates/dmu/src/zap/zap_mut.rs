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
//!   [`super::lookup_shared`] and [`super::list_shared`] take it too. A [`super::Zap`] over blocks that other code
//!   changes may see a leaf that is split by half: it is for states that stand still.
//!
//! # Order
//! Micro until an entry does not fit (its value, its name, the size of the block), then fat for good.
//! A leaf without room is split, its table grown first where the leaf has only one slot of it.
//!
//! Tests: `write_tests.rs`; `pool/tests/it/zap_rewrite.rs` writes ZAPs of the golden pools anew.

use super::blocks::ZapBlocksMut;
use super::matching::{Match, Matcher};
use super::micro_index::MicroIndex;
use super::reader::Form;
use super::state::ZapState;
use crate::DmuError;
use crate::sync::MutexGuard;
use format::zap::{
    FLAG_UINT64_KEY, FatHeader, MicroZap, ZapBlockKind, ZapForm, hash_name, hash_words, new_leaf, new_micro,
    to_little,
};
use format::{BlockId, DecodeError, Endian, ObjectId};
use zio::Block;

/// Bytes of a new micro ZAP, and the step by which it grows.
pub(super) const MICRO_STEP: usize = 512;
/// Longest name of an entry, without its NUL. Names over 255 bytes need the feature `longname`.
pub const NAME_LEN_MAX: usize = 1023;

/// Creates an empty micro ZAP of 512 bytes in an object without data. `salt` is random; it is made odd.
pub fn create_micro(blocks: &dyn ZapBlocksMut, salt: u64, normalization: u64) -> Result<(), DmuError> {
    blocks.state().into_iter().for_each(ZapState::clear);
    blocks.set_block_size(MICRO_STEP as u64)?;
    blocks.put_block(BlockId(0), new_micro(MICRO_STEP, salt | 1, normalization))
}

/// Creates an empty fat ZAP with blocks of `1 << block_shift` bytes (9 to 24) in an object without data.
/// `salt` is random; it is made odd. `flags` are `format::zap::FLAG_…`.
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

/// Writes the header and the only leaf of an empty fat ZAP.
pub(super) fn put_empty_fat(blocks: &dyn ZapBlocksMut, header: &FatHeader) -> Result<(), DmuError> {
    blocks.set_block_size(1 << header.block_shift)?;
    blocks.put_block(BlockId(0), header.new_block())?;
    blocks.put_block(BlockId(1), new_leaf(header.block_shift, 0, 0, header.normalization != 0))
}

/// Handling of an existing or missing key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// The key must not exist.
    Insert,
    /// The key must exist.
    Update,
    /// The key may exist or not.
    Upsert,
}

/// A prepared key.
pub(super) enum Key<'k> {
    Name(Matcher<'k>),
    Words(&'k [u64]),
}

impl<'k> Key<'k> {
    /// The key in stored form: a name with its NUL, or words, big-endian.
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

/// A key as the caller passes it.
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

/// A writable ZAP. It holds no block; several may exist for one ZAP if its blocks have a [`ZapState`].
pub struct ZapMut<'a> {
    pub(super) blocks: Box<dyn ZapBlocksMut + 'a>,
    pub(super) objset: u64,
    pub(super) object: ObjectId,
    own: ZapState,
}

impl<'a> ZapMut<'a> {
    /// Opens the ZAP in these blocks; `objset` and `object` are used in errors.
    ///
    /// # Errors
    /// [`DmuError`] if the first block is not that of a ZAP.
    pub fn open(
        blocks: impl ZapBlocksMut + 'a,
        objset: u64,
        object: ObjectId,
    ) -> Result<ZapMut<'a>, DmuError> {
        let zap = ZapMut::over(blocks, objset, object);
        zap.form()?;
        Ok(zap)
    }

    /// Opens the ZAP without a check: the first operation fails if it is none.
    pub(crate) fn over(blocks: impl ZapBlocksMut + 'a, objset: u64, object: ObjectId) -> ZapMut<'a> {
        ZapMut { blocks: Box::new(blocks), objset, object, own: ZapState::default() }
    }

    /// Whether the ZAP has the fat form.
    pub fn is_fat(&self) -> Result<bool, DmuError> {
        Ok(matches!(self.form()?, Form::Fat(_)))
    }

    /// Salt of the ZAP: start value of its hash.
    pub fn salt(&self) -> Result<u64, DmuError> {
        Ok(match self.form()? {
            Form::Micro { salt, .. } => salt,
            Form::Fat(header) => header.salt,
        })
    }

    /// Flags of the ZAP: `format::zap::FLAG_…`; 0 for a micro ZAP.
    pub fn flags(&self) -> Result<u64, DmuError> {
        Ok(match self.form()? {
            Form::Micro { .. } => 0,
            Form::Fat(header) => header.flags,
        })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Option<MicroIndex>> {
        self.blocks.state().unwrap_or(&self.own).lock()
    }

    /// The present form of the ZAP.
    pub(super) fn form(&self) -> Result<Form, DmuError> {
        self.form_of(&self.first()?)
    }

    pub(super) fn form_of(&self, first: &Block) -> Result<Form, DmuError> {
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

    /// Changes a block in place. A block of the other byte order is byte-swapped first.
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

    pub(super) fn wrong_keys(&self) -> DmuError {
        self.corrupt("a ZAP has names where words were expected, or words where names were")
    }
}
