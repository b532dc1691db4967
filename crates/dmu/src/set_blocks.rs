//! The blocks of one object set: the store that reads them, the key that opens them, and the set's number in errors.
//!
//! Plain and writable sets, their objects, edits of block trees and walks all read through one [`SetBlocks`], so a key
//! is given once: where a set is opened.
//!
//! # What always holds
//! - A pointer of a tree is followed only if it says what its place demands ([`TreeShape`]): level, type and size.

use crate::{DmuError, Store};
use codec::crypt::{CryptError, DataKey, block as crypt_block};
use format::dnode::Dnode;
use format::objset::{FLAG_USERACCOUNTING_COMPLETE, ObjsetPhys};
use format::{BlockId, BlockPtr, DecodeError, Level, ObjType, ObjectId};
use std::sync::Arc;
use zio::{Block, ZioError};

/// What is known about the key of an object set.
#[derive(Clone, Default)]
pub enum KeyState {
    /// Not encrypted.
    #[default]
    None,
    /// Encrypted, and the key is not loaded: what is only authenticated can be read, unchecked.
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

/// A state of a pool that others change, for as long as it is read.
pub trait Lease: Send + Sync {
    /// What was freed since that state may have been overwritten by now.
    fn has_lapsed(&self) -> bool;

    /// Whether the newest state on disk leads to `bp` from block `blkid` of an object of dataset `objset` (0: the
    /// pool's own set). If so, the block was never freed.
    fn is_in_newest(&self, objset: u64, object: ObjectId, blkid: BlockId, bp: &BlockPtr) -> bool;
}

/// What the pointers of an object's block tree must say of their blocks.
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

/// Where the blocks of an object set come from.
pub(crate) struct SetBlocks {
    pub(crate) store: Arc<Store>,
    /// The dataset's object in the pool's own set; 0 for that set.
    pub(crate) number: u64,
    pub(crate) key: KeyState,
    /// Keeps the state of a pool that others change. Held as long as the set is read.
    pub(crate) lease: Option<Arc<dyn Lease>>,
}

impl SetBlocks {
    /// The key that opens blocks, if the set has one and it is loaded.
    pub(crate) fn key(&self) -> Option<&DataKey> {
        self.key.key()
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

    /// Checks that a pointer is what its place in a tree demands.
    ///
    /// # Errors
    /// [`DmuError::Corrupt`] if it is not.
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

    /// Reads a block of a tree, its pointer checked. Of an indirect block, pointers at the end that were never written
    /// may be missing: they are holes.
    ///
    /// # Errors
    /// [`DmuError`] if the pointer does not fit its place, or the block cannot be read.
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
    /// [`DmuError::Empty`] if the set was never written; otherwise why its root block cannot be read.
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

    /// Whether wrong contents of this block would be noticed: a checksum, a MAC or the pointer itself tells.
    pub(crate) fn is_proved(&self, bp: &BlockPtr) -> bool {
        bp.is_embedded()
            || bp.checksum_kind().is_ok_and(|kind| !kind.is_none())
            || (self.key().is_some() && bp.uses_crypt())
    }

    /// The lease that tells whether what was read by this pointer is the block; `None` where that is certain.
    pub(crate) fn doubt(&self, bp: &BlockPtr) -> Option<&dyn Lease> {
        self.lease.as_deref().filter(|_| !self.is_proved(bp))
    }
}
