//! The interface through which the sync of a set tells which blocks it made and unmade.

use format::BlockPtr;

/// Is told of every block that the sync of a set made or unmade: space is accounted for, and freed, there.
pub trait Ledger {
    /// A block is new.
    fn born(&mut self, bp: &BlockPtr);
    /// Nothing in the set refers to a block any more.
    fn killed(&mut self, bp: &BlockPtr);
}
