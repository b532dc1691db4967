//! The blocks of one object set: the store that reads them, the key that decrypts them, and the set's number
//! in errors.
//!
//! Read-only and writable sets, their objects, edits of block trees and traversals all read through one
//! [`SetBlocks`], so a key is passed once: where a set is opened.
//!
//! # What always holds
//! - A pointer of a tree is followed only if its level, type and size match its place ([`TreeShape`]).

use crate::{DmuError, Store};
use codec::crypt::{CryptError, DataKey, block as crypt_block};
use format::dnode::Dnode;
use format::objset::{FLAG_USERACCOUNTING_COMPLETE, ObjsetPhys};
use format::{BlockId, BlockPtr, DecodeError, Level, ObjType, ObjectId};
use std::sync::Arc;
use zio::{Block, ZioError};

/// State of the key of an object set.
#[derive(Clone, Default)]
pub enum KeyState {
    /// Not encrypted.
    #[default]
    None,
    /// Encrypted, and the key is not loaded: data that are only authenticated can be read, unchecked.
    Locked,
    /// Encrypted, with its key.
    Key(Arc<DataKey>),
}

impl KeyState {
    /// The key, if it is loaded.
    pub fn key(&self) -> Option<&DataKey> {
        match self {
            KeyState::Key(key) => Some(key),
            KeyState::None | KeyState::Locked => None,
        }
    }
}

/// A hold on a state of a pool that others change, as long as it is read.
pub trait Lease: Send + Sync {
    /// Whether blocks freed since that state may have been overwritten.
    fn has_lapsed(&self) -> bool;

    /// Whether the newest state on disk references `bp` as block `blkid` of an object of dataset `objset` (0:
    /// the MOS). If so, the block was never freed.
    fn is_in_newest(&self, objset: u64, object: ObjectId, blkid: BlockId, bp: &BlockPtr) -> bool;
}

/// Properties that the pointers of an object's block tree must have.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TreeShape {
    pub(crate) object: ObjectId,
    pub(crate) obj_type: ObjType,
    /// Bytes of a data block.
    pub(crate) data_size: u64,
    /// Bytes of an indirect block.
    pub(crate) indirect_size: u64,
}

impl TreeShape {
    pub(crate) fn of(object: ObjectId, dnode: &Dnode) -> TreeShape {
        TreeShape {
            object,
            obj_type: dnode.obj_type,
            data_size: dnode.data_block_size(),
            indirect_size: dnode.indirect_size(),
        }
    }
}

/// Source of the blocks of an object set.
pub(crate) struct SetBlocks {
    pub(crate) store: Arc<Store>,
    /// Number of the dataset's object in the MOS; 0 for the MOS itself.
    pub(crate) number: u64,
    pub(crate) key: KeyState,
    /// Hold on the state of a pool that others change, as long as the set is read.
    pub(crate) lease: Option<Arc<dyn Lease>>,
}

impl SetBlocks {
    /// The key that decrypts blocks, if the set has one and it is loaded.
    pub(crate) fn key(&self) -> Option<&DataKey> {
        self.key.key()
    }

    /// Whether the set is encrypted, and its key is not at hand: nothing of it can be changed as plain data.
    pub(crate) fn is_locked(&self) -> bool {
        matches!(self.key, KeyState::Locked)
    }

    pub(crate) fn corrupt(&self, object: ObjectId, why: &'static str) -> DmuError {
        DmuError::Corrupt { objset: self.number, object, why }
    }

    pub(crate) fn decode_error(&self, object: ObjectId, source: DecodeError) -> DmuError {
        DmuError::Decode { objset: self.number, object, source }
    }

    pub(crate) fn zio_error(&self, object: ObjectId, source: ZioError) -> DmuError {
        match source {
            ZioError::Locked { .. } => DmuError::Locked { objset: self.number },
            source => DmuError::Zio { objset: self.number, object, source },
        }
    }

    /// Checks that a pointer matches its place in a tree.
    ///
    /// # Errors
    /// [`DmuError::Corrupt`] if it does not.
    pub(crate) fn check_pointer(
        &self,
        shape: &TreeShape,
        bp: &BlockPtr,
        level: Level,
    ) -> Result<(), DmuError> {
        let size = if level == Level(0) { shape.data_size } else { shape.indirect_size };
        if bp.level() != level {
            return Err(self.corrupt(shape.object, "a block pointer of the wrong level"));
        }
        if bp.obj_type() != shape.obj_type {
            return Err(self.corrupt(shape.object, "a block pointer of the wrong type"));
        }
        if bp.lsize().0 != size {
            return Err(self.corrupt(shape.object, "a block of the wrong size"));
        }
        Ok(())
    }

    /// Reads a block of a tree after checking its pointer. An indirect block may lack pointers at its end
    /// that were never written: they are holes.
    ///
    /// # Errors
    /// [`DmuError`] if the pointer does not match its place, or the block cannot be read.
    pub(crate) fn read(&self, shape: &TreeShape, bp: &BlockPtr, level: Level) -> Result<Block, DmuError> {
        self.check_pointer(shape, bp, level)?;
        let read = match level {
            Level(0) => self.store.read(bp, self.key()),
            _ => self.store.pointers(bp, self.key()),
        };
        read.map_err(|source| self.zio_error(shape.object, source))
    }

    /// Reads the root block of the set. With a key, its MACs are verified.
    ///
    /// # Errors
    /// [`DmuError::Empty`] if the set was never written; otherwise the error of reading its root block.
    pub(crate) fn read_root(&self, root: &BlockPtr) -> Result<ObjsetPhys, DmuError> {
        if root.is_hole() {
            return Err(DmuError::Empty { objset: self.number });
        }
        if root.obj_type() != ObjType::OBJSET {
            return Err(self.corrupt(ObjectId(0), "the root is not an object set"));
        }
        let at_root = |source| DmuError::Zio { objset: self.number, object: ObjectId(0), source };
        let block = self.store.read(root, self.key()).map_err(at_root)?;
        let phys = ObjsetPhys::decode(block.bytes(), block.order())
            .map_err(|source| self.decode_error(ObjectId(0), source))?;
        if let (Some(key), true) = (self.key(), root.uses_crypt()) {
            let (portable, local) = crypt_block::objset_macs(key, block.bytes(), block.order())
                .map_err(|source| at_root(ZioError::Crypt { bp: *root, source }))?;
            let local_applies = phys.flags & FLAG_USERACCOUNTING_COMPLETE != 0 && phys.local_mac != [0; 32];
            if portable != phys.portable_mac || (local_applies && local != phys.local_mac) {
                let source = CryptError::Authentication;
                return Err(at_root(ZioError::Crypt { bp: *root, source }));
            }
        }
        Ok(phys)
    }

    /// Whether wrong contents of this block would be detected: by a checksum or a MAC, or because they are in
    /// the pointer.
    pub(crate) fn is_proved(&self, bp: &BlockPtr) -> bool {
        bp.is_embedded()
            || bp.checksum_kind().is_ok_and(|kind| !kind.is_none())
            || (self.key().is_some() && bp.uses_crypt())
    }

    /// The lease to check after reading by this pointer, because the bytes may be those of another block;
    /// `None` if that is impossible.
    pub(crate) fn doubt(&self, bp: &BlockPtr) -> Option<&dyn Lease> {
        self.lease.as_deref().filter(|_| !self.is_proved(bp))
    }
}
