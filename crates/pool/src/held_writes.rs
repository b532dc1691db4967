//! Writes that are held back until the first change of the pool
//! ([`crate::import::writable::ImportOptions::hold`]), and the handling of a device that fails when they are
//! released.
//!
//! # What always holds
//! - A leaf that fails on release counts as missing. If the other leaves can supply every block, the pool
//!   goes on without it, and its DTL names every txg since the pool was opened; otherwise the pool ends as in
//!   a crash.

use crate::diagnosis;
use crate::error::PoolError;
use crate::live::LivePool;
use dmu::TxError;
use format::{Txg, VdevGuid};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use vdev::device::held::{Hold, Judge};

/// Decides which leaves a pool can lose.
#[derive(Debug)]
struct Leaves {
    pool: Weak<LivePool>,
    /// The first txg whose writes are held back.
    since: Txg,
}

impl Judge for Leaves {
    fn can_lose(&self, leaf: VdevGuid, failed: &[VdevGuid]) -> bool {
        let Some(pool) = self.pool.upgrade() else { return false };
        let tree = pool.tree();
        if !diagnosis::can_do_without(&tree, failed) {
            return false;
        }
        tree.miss(leaf, self.since.0..pool.txgs.open_txg().0.saturating_add(1));
        true
    }
}

impl LivePool {
    /// Registers the judge that decides which leaves the pool can lose on release. Called once, before the
    /// first write.
    pub(crate) fn judge(self: &Arc<Self>, hold: &Hold) {
        let since = Txg(self.txgs.synced_txg().0 + 1);
        hold.set_judge(Box::new(Leaves { pool: Arc::downgrade(self), since }));
    }

    /// Releases the writes that are held back ([`crate::import::writable::ImportOptions::hold`]); later
    /// writes go to the devices directly. A sync task that succeeds does this too. The caller holds no
    /// transaction.
    ///
    /// # Errors
    /// [`PoolError::Tx`] if a device fails and the other leaves cannot supply its blocks: the pool is
    /// suspended then.
    pub fn release(&self) -> Result<(), PoolError> {
        let Some(hold) = self.hold.as_ref().filter(|_| self.is_held()) else { return Ok(()) };
        hold.release().map_err(|error| TxError::Suspended { why: error.to_string() })?;
        // The DTLs of the failed leaves must be on disk before the leaves are used again.
        if self.is_open.load(Ordering::Acquire) && !hold.failed().is_empty() {
            self.wait_synced(self.txgs.open_txg())?;
        }
        Ok(())
    }

    /// Whether all writes since the pool was opened are still held back.
    pub(crate) fn is_held(&self) -> bool {
        self.hold.as_ref().is_some_and(|hold| !hold.is_released())
    }
}
