//! An encrypted set that is received without its key (docs/on-disk/31-encryption.md, section 13).
//!
//! What the sender has authenticated comes with the stream: the MAC of the set, the shape of the array of dnodes, and
//! the salt, IV and MAC of each block of dnodes. The accounting of space cannot be kept, because it needs the owners
//! of the objects, which are encrypted: its MAC becomes zero, and the set counts as not accounted.

use crate::object::disk_tree::DiskTree;
use crate::sync::{Arc, lock};
use crate::{DmuError, LiveSet};
use format::blkptr::CryptParams;
use format::dnode::Dnode;
use format::objset::ZilHeader;
use format::{BlockId, BlockPtr, CompressionId, Level, ObjectId};
use std::collections::BTreeMap;
use zio::{AllocTx, RawForm, Seal};

/// Protection of a block that is not written.
const NO_PARAMS: CryptParams = CryptParams { salt: [0; 8], iv: [0; 12], mac: [0; 16] };

/// What a stream says of its object set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawSet {
    /// The MAC over what is the same wherever the set is stored.
    pub portable_mac: [u8; 32],
    /// Checksum id in the dnode of the array of dnodes.
    pub checksum: u8,
    /// Compression id in it.
    pub compress: u8,
    /// Height of its tree.
    pub levels: u8,
    /// log2 of its indirect blocks.
    pub indirect_shift: u8,
    /// Its highest block number.
    pub max_block: u64,
}

impl RawSet {
    /// Whether the array of dnodes `meta` can become that of the stream, with the blocks that it has.
    pub fn fits(&self, meta: &Dnode) -> bool {
        is_empty(meta)
            || (meta.indblkshift == self.indirect_shift
                && meta.nlevels <= self.levels
                && meta.maxblkid.0 <= self.max_block)
    }

    /// The dnode of the array as the stream has it, before its tree grows.
    pub(crate) fn shaped(&self, meta: &Dnode) -> Dnode {
        let mut shaped = meta.clone();
        (shaped.checksum, shaped.compress) = (self.checksum, self.compress);
        shaped.maxblkid = BlockId(self.max_block);
        if is_empty(meta) {
            (shaped.indblkshift, shaped.nlevels) = (self.indirect_shift, self.levels);
            shaped.blkptrs.fill(BlockPtr::HOLE);
        }
        shaped
    }
}

fn is_empty(meta: &Dnode) -> bool {
    meta.blkptrs.iter().all(BlockPtr::is_hole)
}

/// State of a raw receive into a set.
#[derive(Debug, Clone)]
pub(crate) struct RawState {
    pub(crate) set: RawSet,
    /// Protection of blocks of dnodes that are not on disk yet, by block.
    dnodes: BTreeMap<u64, CryptParams>,
}

impl LiveSet {
    /// Begins to receive raw blocks. The root gets the MAC of the stream with the next sync; until all is received,
    /// it does not match.
    pub fn begin_raw(&self, raw: RawSet, tx: &dyn AllocTx) {
        *lock(&self.raw) = Some(RawState { set: raw, dnodes: BTreeMap::new() });
        self.clear_flags();
        self.set_zil_header(ZilHeader::default(), tx);
    }

    /// Sets the protection of a block of dnodes. Called in the transaction of a change of one of them.
    pub fn protect_dnodes(&self, block: u64, params: CryptParams) {
        if let Some(raw) = lock(&self.raw).as_mut() {
            raw.dnodes.insert(block, params);
        }
    }

    /// The protection that a block of dnodes has on disk; `None`: there is no such block.
    ///
    /// # Errors
    /// [`DmuError`] if the pointer to it cannot be read.
    pub fn dnode_params(&self, block: u64) -> Result<Option<CryptParams>, DmuError> {
        let meta = Arc::clone(&self.root().meta);
        if BlockId(block) > meta.maxblkid {
            return Ok(None);
        }
        let tree = DiskTree::new(Arc::clone(self.blocks()), ObjectId(0), meta);
        Ok(tree.pointer(Level(0), BlockId(block))?.crypt_params())
    }

    /// What the stream says of the set; `None`: it is not received raw.
    pub(crate) fn raw_set(&self) -> Option<RawSet> {
        lock(&self.raw).as_ref().map(|raw| raw.set)
    }

    /// The protection of a block of dnodes that is being written: that which came with the stream, or the one that
    /// the block has on disk.
    ///
    /// # Errors
    /// [`DmuError::Locked`] if there is neither.
    pub(crate) fn dnode_seal(&self, block: u64, bytes: &[u8], old: &BlockPtr) -> Result<Seal, DmuError> {
        let new = lock(&self.raw).as_mut().and_then(|raw| raw.dnodes.remove(&block));
        let params = match new.or_else(|| old.crypt_params()) {
            Some(params) => params,
            // It becomes a hole.
            None if bytes.iter().all(|byte| *byte == 0) => NO_PARAMS,
            None => return Err(self.locked()),
        };
        let lsize = bytes.len() as u64;
        Ok(Seal::Raw(RawForm { lsize, compression: CompressionId::Off, params }))
    }

    pub(crate) fn locked(&self) -> DmuError {
        DmuError::Locked { objset: self.number() }
    }
}
