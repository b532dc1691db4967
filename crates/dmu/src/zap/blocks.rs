//! The interfaces through which a ZAP is read and changed: blocks by number.

use super::state::ZapState;
use crate::DmuError;
use format::BlockId;
use zio::Block;

/// Source of the blocks of a ZAP.
pub trait ZapBlocks: Send + Sync {
    /// Bytes of a block.
    fn block_size(&self) -> u64;
    /// The highest block number.
    fn max_block(&self) -> BlockId;
    /// A block; `None` for a hole, and after the last one.
    fn block(&self, id: BlockId) -> Result<Option<Block>, DmuError>;
}

/// The blocks of a writable ZAP.
pub trait ZapBlocksMut: ZapBlocks {
    /// Replaces a whole block, or creates it. The bytes are little-endian.
    fn put_block(&self, id: BlockId, bytes: Vec<u8>) -> Result<(), DmuError>;
    /// Changes bytes of a block in place: calls `change` exactly once if the result is `Ok`. Blocks that
    /// [`ZapBlocks::block`] returns in big-endian order are replaced instead.
    fn change_block(&self, id: BlockId, change: &mut dyn FnMut(&mut [u8])) -> Result<(), DmuError>;
    /// Sets the size of the only block, larger or smaller. The caller replaces the block right after.
    fn set_block_size(&self, bytes: u64) -> Result<(), DmuError>;
    /// Enlarges the only block: it keeps its contents, followed by zeros.
    fn grow_block(&self, bytes: u64) -> Result<(), DmuError> {
        let Some(block) = self.block(BlockId(0))? else { return self.set_block_size(bytes) };
        let mut grown = block.bytes().to_vec();
        grown.resize(bytes as usize, 0);
        self.set_block_size(bytes)?;
        self.put_block(BlockId(0), grown)
    }
    /// Makes blocks holes.
    fn free_blocks(&self, first: BlockId, count: u64) -> Result<(), DmuError>;
    /// What is kept beside the object for its writers. Without it each [`ZapMut`](super::ZapMut) has its own, and there
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
