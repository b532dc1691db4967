//! Who may allocate, free and change.

use format::Txg;

/// A transaction: held while its txg is open, or the one that writes it. Whoever holds one may change the
/// pool, and nobody else can: allocating in no transaction does not compile.
pub trait AllocTx: Send + Sync {
    /// The txg that the change belongs to.
    fn txg(&self) -> Txg;

    /// Which pass of the sync this is, from 1 on; 0 while the txg is open.
    fn pass(&self) -> u32 {
        0
    }
}
