//! Transactions: the permission to allocate, free and change.

use format::Txg;

/// A transaction: held while its txg is open, or by the sync that writes the txg. Only its holder can change
/// the pool: allocating without a transaction does not compile.
pub trait AllocTx: Send + Sync {
    /// The txg that the change belongs to.
    fn txg(&self) -> Txg;

    /// The pass of the sync, counted from 1; 0 while the txg is open.
    fn pass(&self) -> u32 {
        0
    }
}
