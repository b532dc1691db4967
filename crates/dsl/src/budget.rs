//! Limits of the background work in one txg.

use std::sync::atomic::{AtomicU64, Ordering};

/// Blocks freed in the background in one txg.
static BLOCKS_PER_TXG: AtomicU64 = AtomicU64::new(100_000);

/// Changes how many blocks are freed in the background in one txg, at least one, in all pools of this
/// process.
pub fn set_blocks_per_txg(blocks: u64) {
    BLOCKS_PER_TXG.store(blocks.max(1), Ordering::Relaxed);
}

/// Background work that may still be done in this txg.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// Blocks that may still be freed or examined.
    pub blocks: u64,
}

impl Budget {
    /// The budget of one txg.
    pub fn per_txg() -> Budget {
        Budget { blocks: BLOCKS_PER_TXG.load(Ordering::Relaxed) }
    }

    /// A budget without limit.
    #[cfg(test)]
    pub(crate) fn unlimited() -> Budget {
        Budget { blocks: u64::MAX }
    }

    /// Whether the budget is used up.
    pub fn is_spent(&self) -> bool {
        self.blocks == 0
    }

    /// Takes `n` blocks from the budget, or all that are left. Returns false if it was used up before.
    pub(crate) fn take(&mut self, n: u64) -> bool {
        let had = !self.is_spent();
        self.blocks = self.blocks.saturating_sub(n);
        had
    }
}
