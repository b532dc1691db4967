//! ZAPs of writable objects, in a transaction.

use crate::DmuError;
use crate::LiveObject;
use crate::zap::{
    ZapBlocks, ZapBlocksMut, ZapEntry, ZapMut, ZapState, create_fat, create_micro, list_shared,
};
use format::BlockId;
use zio::{AllocTx, Block};

/// A writable object and the transaction that changes it.
struct InTx<'t> {
    object: LiveObject,
    tx: &'t dyn AllocTx,
}

impl ZapBlocks for InTx<'_> {
    fn block_size(&self) -> u64 {
        self.object.block_size()
    }

    fn max_block(&self) -> BlockId {
        self.object.max_block()
    }

    fn block(&self, id: BlockId) -> Result<Option<Block>, DmuError> {
        self.object.block(id)
    }
}

impl ZapBlocksMut for InTx<'_> {
    fn put_block(&self, id: BlockId, bytes: Vec<u8>) -> Result<(), DmuError> {
        self.object.put_block(id, bytes, self.tx)
    }

    fn change_block(&self, id: BlockId, change: &mut dyn FnMut(&mut [u8])) -> Result<(), DmuError> {
        self.object.change_block(id, self.tx, |bytes| change(bytes))
    }

    fn set_block_size(&self, bytes: u64) -> Result<(), DmuError> {
        self.object.set_block_size(bytes, self.tx)
    }

    fn grow_block(&self, bytes: u64) -> Result<(), DmuError> {
        self.object.set_block_size(bytes, self.tx)
    }

    fn free_blocks(&self, first: BlockId, count: u64) -> Result<(), DmuError> {
        let size = self.object.block_size();
        self.object.free_range(first.0 * size, count * size, self.tx)
    }

    fn state(&self) -> Option<&ZapState> {
        Some(self.object.zap_state())
    }
}

/// A writable object that is only read.
struct Looked<'o>(&'o LiveObject);

impl ZapBlocks for Looked<'_> {
    fn block_size(&self) -> u64 {
        self.0.block_size()
    }

    fn max_block(&self) -> BlockId {
        self.0.max_block()
    }

    fn block(&self, id: BlockId) -> Result<Option<Block>, DmuError> {
        self.0.block(id)
    }
}

impl LiveObject {
    /// At most `limit` entries of the ZAP of this object from a cursor on, in its newest state; empty at the
    /// end.
    pub fn zap_entries(&self, cursor: u64, limit: usize) -> Result<Vec<ZapEntry>, DmuError> {
        list_shared(&Looked(self), self.zap_state(), (self.set().number(), self.id()), cursor, limit)
    }

    /// Opens the ZAP in this object for changes in the txg of `tx`.
    pub fn zap<'t>(&self, tx: &'t dyn AllocTx) -> Result<ZapMut<'t>, DmuError> {
        Ok(ZapMut::over(InTx { object: self.clone(), tx }, self.set().number(), self.id()))
    }

    /// Creates an empty micro ZAP in this object, which has no data yet.
    pub fn create_zap(&self, tx: &dyn AllocTx, salt: u64, normalization: u64) -> Result<(), DmuError> {
        create_micro(&InTx { object: self.clone(), tx }, salt, normalization)
    }

    /// Creates an empty fat ZAP with blocks of `1 << block_shift` bytes.
    pub fn create_fat_zap(
        &self,
        tx: &dyn AllocTx,
        block_shift: u32,
        salt: u64,
        normalization: u64,
        flags: u64,
    ) -> Result<(), DmuError> {
        create_fat(&InTx { object: self.clone(), tx }, block_shift, salt, normalization, flags)
    }
}
