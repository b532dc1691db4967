//! What tests of live sets share.

use crate::Ledger;
use format::BlockPtr;

/// Takes note of no block.
pub(crate) struct NoLedger;

impl Ledger for NoLedger {
    fn born(&mut self, _: &BlockPtr) {}

    fn killed(&mut self, _: &BlockPtr) {}
}
