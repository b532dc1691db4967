//! The right to allocate, free and change: a transaction.

use format::Txg;

/// A transaction: held while its txg is open, or that of the sync that writes the txg. Its holder alone may change the
/// pool: allocating without a transaction does not compile.
pub trait AllocTx: Send + Sync {
    /// The txg that the change belongs to.
    fn txg(&self) -> Txg;

    /// Which pass of the sync this is, from 1 on; 0 while the txg is open.
    fn pass(&self) -> u32 {
        0
    }
}
