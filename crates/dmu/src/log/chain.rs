//! The chain of log blocks as far as it exists (docs/on-disk/24-zil.md, section 5).

use format::{BlockPtr, Txg};
use std::collections::VecDeque;

/// A written block of the chain.
#[derive(Debug)]
pub(super) struct Written {
    pub(super) bp: BlockPtr,
    pub(super) allocated: Txg,
    /// The newest txg that a record in it belongs to.
    pub(super) newest: Txg,
}

/// The present chain.
#[derive(Debug, Default)]
pub(super) struct ChainState {
    pub(super) written: VecDeque<Written>,
    /// The block at the end: allocated, referenced, not written.
    pub(super) current: Option<(BlockPtr, Txg)>,
    /// Whether this log has started a chain, which the head of the set must follow.
    pub(super) is_started: bool,
    /// The txg with whose sync the head that an import found is dropped.
    pub(super) forget_head: Option<Txg>,
}

impl ChainState {
    /// Whether the head of the set is that of a chain found by an import: not of a chain started since, nor
    /// of one that was freed already.
    pub(super) fn is_foreign(&self) -> bool {
        !self.is_started && self.forget_head.is_none()
    }

    /// The block that the head must point to.
    pub(super) fn head(&self) -> Option<BlockPtr> {
        self.written.front().map(|block| block.bp).or(self.current.map(|(bp, _)| bp))
    }

    /// Removes the blocks that no txg after `txg` needs.
    pub(super) fn trim(&mut self, txg: Txg) -> Vec<BlockPtr> {
        let mut freed = Vec::new();
        while let Some(block) =
            self.written.pop_front_if(|block| block.allocated <= txg && block.newest <= txg)
        {
            freed.push(block.bp);
        }
        freed
    }

    /// Removes all blocks of the chain.
    pub(super) fn abandon(&mut self) -> Vec<BlockPtr> {
        let current = self.current.take().map(|(bp, _)| bp);
        self.is_started = false;
        self.written.drain(..).map(|block| block.bp).chain(current).collect()
    }
}

/// Notes that a block of a log was not freed: its space is lost, the log is not.
pub(super) fn note_not_freed(bp: &BlockPtr, error: &zio::ZioError) {
    tracing::warn!(%bp, %error, "a block of an intent log was not freed");
}
