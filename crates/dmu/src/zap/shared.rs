//! Reading a ZAP that others change: with the lock and the index of its writers, without a transaction.

use super::blocks::{ZapBlocks, ZapBlocksMut};
use super::entry::ZapEntry;
use super::matching::Match;
use super::state::ZapState;
use super::zap_mut::ZapMut;
use crate::DmuError;
use format::{BlockId, ObjectId};
use zio::Block;

/// Finds an entry with the shared state of a ZAP's writers, without a transaction: in a micro ZAP this does
/// not compare all names, unlike [`super::Zap`], which has no access to that state.
pub fn lookup_shared(
    blocks: &dyn ZapBlocks,
    state: &ZapState,
    (objset, object): (u64, ObjectId),
    name: &[u8],
    how: Match,
) -> Result<Option<ZapEntry>, DmuError> {
    ZapMut::over(Shared { blocks, state, objset, object }, objset, object).lookup_matching(name, how)
}

/// At most `limit` entries from a cursor on, without a transaction, under the writers' lock.
pub fn list_shared(
    blocks: &dyn ZapBlocks,
    state: &ZapState,
    (objset, object): (u64, ObjectId),
    cursor: u64,
    limit: usize,
) -> Result<Vec<ZapEntry>, DmuError> {
    ZapMut::over(Shared { blocks, state, objset, object }, objset, object).entries_from(cursor, limit)
}

/// Blocks that are only read.
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
