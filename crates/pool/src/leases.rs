//! Views of the pool that somebody still reads ([`LivePool::view`]): what they lead to is not overwritten.
//!
//! # What always holds
//! - Blocks that were freed after the txg of a view that is held are not handed out again.
//! - Views hold back a part of the pool at most ([`SHARE`]), and nothing of one that is nearly full ([`SHORT`]): then
//!   all of them lapse, and who still reads one of them may get errors of blocks that were overwritten, and asks for
//!   a new view. Nothing is ever repaired through such a pointer (`zio::heal`). A block without a checksum is given
//!   out only if the newest state still leads to it (`dmu::Object`): so snapshots are readable by views that
//!   have lapsed, until they are destroyed.
//! - A view is held as long as anything that was opened through it.
//! - Nobody who writes waits for a view to be let go of: what they hold back is less than what is kept free in any
//!   case, and counts as free.

use crate::live::{LivePool, lock};
use dmu::{KeyState, ObjSet};
use format::{BlockId, BlockPtr, ObjectId, Txg};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use zio::alloc::AllocClass;

/// The part of the pool that views may hold back.
const SHARE: u64 = 32;
/// The part of the pool that is free at least while views hold anything back.
const SHORT: u64 = 16;

/// Views that are held.
#[derive(Default)]
pub(crate) struct Leases {
    held: Mutex<Held>,
    /// The pool that they show.
    pool: OnceLock<Weak<LivePool>>,
}

#[derive(Default)]
struct Held {
    /// By txg; the number tells views of one txg apart.
    views: BTreeSet<(Txg, u64)>,
    next: u64,
    /// Something is not used again because of them.
    is_holding_back: bool,
}

impl Leases {
    /// What they are views of. A second call changes nothing.
    pub(crate) fn set_pool(&self, pool: &Arc<LivePool>) {
        let _ = self.pool.set(Arc::downgrade(pool));
    }

    /// A view of this txg is held until the lease is dropped.
    pub(crate) fn hold(self: &Arc<Self>, txg: Txg) -> Lease {
        let mut held = lock(&self.held);
        held.next += 1;
        let view = (txg, held.next);
        held.views.insert(view);
        Lease { leases: Arc::clone(self), view }
    }

    /// The txg of the oldest view; the largest there is if there is none.
    fn oldest(&self) -> Txg {
        lock(&self.held).views.first().map_or(Txg(u64::MAX), |(txg, _)| *txg)
    }

    /// All views lapse.
    fn lapse(&self) {
        lock(&self.held).views.clear();
    }

    /// The object set of a dataset (0: the pool's own) in the newest state that is on disk; `None` if there is none.
    fn newest(&self, number: u64) -> Option<Arc<ObjSet>> {
        let view = self.pool.get()?.upgrade()?.view().ok()?;
        if number == 0 {
            return Some(Arc::clone(view.mos()));
        }
        // Pointers need no key.
        view.dsl().dataset_by_object(ObjectId(number)).ok()?.objset(KeyState::Locked).ok()
    }

    /// Something that was freed is not used again because of a view, as of the last txg.
    pub(crate) fn is_holding_back(&self) -> bool {
        lock(&self.held).is_holding_back
    }
}

/// That somebody holds a view.
pub(crate) struct Lease {
    leases: Arc<Leases>,
    view: (Txg, u64),
}

impl dmu::Lease for Lease {
    fn has_lapsed(&self) -> bool {
        !lock(&self.leases.held).views.contains(&self.view)
    }

    fn is_in_newest(&self, objset: u64, object: ObjectId, blkid: BlockId, bp: &BlockPtr) -> bool {
        self.leases.newest(objset).is_some_and(|newest| newest.leads_to(object, blkid, bp))
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        lock(&self.leases.held).views.remove(&self.view);
    }
}

impl LivePool {
    /// A txg is on disk: what was freed before may be used again, as far as no view shows it.
    pub(crate) fn reuse_freed(&self, txg: Txg) {
        let totals = self.allocator.totals(AllocClass::Normal);
        let is_old = |leases: &Leases| leases.oldest().0 < txg.0.saturating_sub(2);
        let is_short = totals.size.saturating_sub(totals.allocated) < totals.size / SHORT;
        if is_old(&self.leases) && (is_short || totals.deferred > totals.size / SHARE) {
            tracing::debug!(pool = self.name, "old views of the pool hold back too much, and lapse");
            self.leases.lapse();
        }
        self.allocator.synced_for(txg, self.leases.oldest());
        let is_holding_back = is_old(&self.leases);
        lock(&self.leases.held).is_holding_back = is_holding_back;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_view_counts_until_it_is_dropped() {
        let leases = Arc::<Leases>::default();
        assert_eq!(leases.oldest(), Txg(u64::MAX));
        let old = leases.hold(Txg(5));
        let same = leases.hold(Txg(5));
        let _new = leases.hold(Txg(7));
        drop(old);
        assert_eq!(leases.oldest(), Txg(5));
        drop(same);
        assert_eq!(leases.oldest(), Txg(7));
    }

    #[test]
    fn a_lapsed_view_takes_no_newer_one_along() {
        let leases = Arc::<Leases>::default();
        let lapsed = leases.hold(Txg(5));
        leases.lapse();
        let _new = leases.hold(Txg(5));
        drop(lapsed);
        assert_eq!(leases.oldest(), Txg(5));
    }
}
