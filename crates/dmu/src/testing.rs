//! Test support for writable sets.

use crate::Ledger;
use format::BlockPtr;

/// A ledger that ignores all blocks.
pub(crate) struct NoLedger;

impl Ledger for NoLedger {
    fn born(&mut self, _: &BlockPtr) {}

    fn killed(&mut self, _: &BlockPtr) {}
}
