//! The interface through which the sync of a set tells which blocks it made and unmade.

use format::BlockPtr;

/// Receives every block that the sync of a set bears and kills: accounts for space, and frees.
pub trait Ledger {
    /// Called for a new block.
    fn born(&mut self, bp: &BlockPtr);
    /// Called for a block that the set no longer references.
    fn killed(&mut self, bp: &BlockPtr);
}
