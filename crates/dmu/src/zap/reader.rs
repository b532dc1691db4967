//! An open ZAP: its form, its header, its leaves.

use super::blocks::ZapBlocks;
use super::entry::{self, ZapEntry, leaf_entry};
use super::normalize::prepare;
use crate::{DmuError, Object};
use format::zap::{FatHeader, Leaf, LeafEntry, MicroEntry, MicroZap, ZapForm, hash_name};
use format::{BlockId, DecodeError, ObjectId};
use std::sync::Arc;
use zio::Block;

#[derive(Clone)]
pub(super) enum Form {
    Micro { salt: u64, normalization: u64 },
    Fat(FatHeader),
}

/// An open ZAP. Cheap to clone.
#[derive(Clone)]
pub struct Zap {
    pub(super) blocks: Arc<dyn ZapBlocks>,
    objset: u64,
    object: ObjectId,
    pub(super) first: Block,
    pub(super) form: Form,
}

impl Zap {
    /// Opens the ZAP in an object.
    ///
    /// # Errors
    /// [`DmuError`] if the object is not of a ZAP type, or its first block is not that of a ZAP.
    pub fn open(object: &Object) -> Result<Zap, DmuError> {
        if !object.dnode().obj_type.is_zap() {
            return Err(object.corrupt("not a name-value object"));
        }
        Zap::over(Arc::new(object.clone()), object.objset().number(), object.id())
    }

    /// Opens the ZAP in these blocks; `objset` and `object` are used in errors.
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

    /// The header of a fat ZAP; `None` for a micro ZAP.
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

    /// Salt of the ZAP: start value of its hash.
    pub fn salt(&self) -> u64 {
        match &self.form {
            Form::Micro { salt, .. } => *salt,
            Form::Fat(header) => header.salt,
        }
    }

    /// Normalization of names: `format::zap::NORM_…`.
    pub fn normalization(&self) -> u64 {
        match &self.form {
            Form::Micro { normalization, .. } => *normalization,
            Form::Fat(header) => header.normalization,
        }
    }

    /// Flags of the ZAP: `format::zap::FLAG_…`; 0 for a micro ZAP.
    pub(crate) fn flags(&self) -> u64 {
        self.fat_header().map_or(0, |header| header.flags)
    }

    /// Number of entries: counted in a micro ZAP, from the header of a fat one.
    pub fn count(&self) -> Result<u64, DmuError> {
        match &self.form {
            Form::Micro { .. } => Ok(self.micro()?.entries().count() as u64),
            Form::Fat(header) => Ok(header.entries),
        }
    }

    pub(super) fn micro(&self) -> Result<MicroZap<'_>, DmuError> {
        MicroZap::decode(self.first.bytes(), self.first.order()).map_err(|e| self.decode_error(e))
    }

    pub(super) fn micro_hash(&self, name: &[u8]) -> u64 {
        hash_name(self.salt(), 0, &prepare(name, self.normalization()))
    }

    pub(super) fn micro_entry(&self, entry: &MicroEntry<'_>) -> ZapEntry {
        entry::micro_entry(entry, self.micro_hash(entry.name))
    }

    pub(super) fn read_entry(
        &self,
        header: &FatHeader,
        leaf: &Leaf<'_>,
        entry: &LeafEntry,
    ) -> Result<ZapEntry, DmuError> {
        leaf_entry(header, leaf, entry).map_err(|e| self.decode_error(e))
    }

    /// A block of the pointer table.
    pub(super) fn table_block(&self, header: &FatHeader, id: BlockId) -> Result<Block, DmuError> {
        if header.table_blocks == 0 {
            return Ok(self.first.clone());
        }
        self.blocks.block(id)?.ok_or_else(|| self.corrupt("a hole in a ZAP's pointer table"))
    }

    /// The leaf in byte `at` of a block of the pointer table, after a check.
    pub(super) fn check_pointer(
        &self,
        header: &FatHeader,
        block: &Block,
        at: usize,
    ) -> Result<BlockId, DmuError> {
        match block.order().get_u64(block.bytes(), at) {
            Some(id) if id != 0 && id < header.free_block.0 => Ok(BlockId(id)),
            _ => Err(self.corrupt("a ZAP's pointer table leads outside the ZAP")),
        }
    }

    /// The block of the leaf for a hash; `None` if it is a hole or all zeros.
    pub(super) fn leaf_for(&self, header: &FatHeader, hash: u64) -> Result<Option<Block>, DmuError> {
        let (id, at) = header.table_slot(header.table_index(hash));
        let block = self.table_block(header, id)?;
        self.leaf_block(self.check_pointer(header, &block, at)?)
    }

    pub(super) fn leaf_block(&self, id: BlockId) -> Result<Option<Block>, DmuError> {
        // The removal of a ZAP's leaves may be cut short: the rest of a leaf is zeros then.
        Ok(self.blocks.block(id)?.filter(|block| block.bytes().iter().any(|byte| *byte != 0)))
    }

    /// Decodes a leaf and checks that it is the one for `hash`.
    pub(super) fn decode_leaf<'a>(
        &self,
        header: &FatHeader,
        hash: u64,
        block: &'a Block,
    ) -> Result<Leaf<'a>, DmuError> {
        let leaf = Leaf::decode(block.bytes(), block.order()).map_err(|e| self.decode_error(e))?;
        if leaf.prefix_len > header.table_shift || !leaf.covers(hash) {
            return Err(self.corrupt("a ZAP's pointer table leads to the wrong leaf"));
        }
        Ok(leaf)
    }

    pub(super) fn corrupt(&self, why: &'static str) -> DmuError {
        DmuError::Corrupt { objset: self.objset, object: self.object, why }
    }

    pub(super) fn decode_error(&self, source: DecodeError) -> DmuError {
        DmuError::Decode { objset: self.objset, object: self.object, source }
    }
}
