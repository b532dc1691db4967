//! Views of the pool that are in use (`LivePool::view`). A view keeps the blocks of its txg from being
//! overwritten.
//!
//! # What always holds
//! - Blocks that were freed after the txg of a held view are not reused.
//! - Views hold back at most a share ([`SHARE`]) of the pool, and none of a pool that is nearly full
//!   ([`SHORT`]). Beyond that all views lapse: their readers may get errors for overwritten blocks, and take
//!   a new view. The repair path never writes through a pointer of a lapsed view (`zio::heal`). A block
//!   without a checksum is returned only if the newest state still references it (`dmu::Object`), so lapsed
//!   views can read snapshots until these are destroyed.
//! - A view is held as long as any object that was opened through it.
//! - Writers do not wait for views: the space that views hold back is less than the reserved (slop) space,
//!   and counts as free.

use crate::view::Pool;
use dmu::{KeyState, ObjSet};
use format::{BlockId, BlockPtr, ObjectId, Txg};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, OnceLock};
use vdev::sync::lock;

/// Divisor of the pool's size for the space that views may hold back.
pub(crate) const SHARE: u64 = 32;
/// Divisor of the pool's size for the space that must be free while views hold any back.
pub(crate) const SHORT: u64 = 16;

/// Closure that returns a view of the pool's last txg; `None`: the pool is closed or cannot be read.
type ViewOf = dyn Fn() -> Option<Arc<Pool>> + Send + Sync;

/// The views that are in use.
#[derive(Default)]
pub(crate) struct Leases {
    held: Mutex<Held>,
    /// Closure that returns the newest view.
    newest: OnceLock<Box<ViewOf>>,
}

#[derive(Default)]
struct Held {
    /// Txg of each view; the number distinguishes views of one txg.
    views: BTreeSet<(Txg, u64)>,
    next: u64,
    /// Whether views keep freed space from being reused.
    is_holding_back: bool,
}

impl Leases {
    /// Sets the closure that returns the newest view of the pool. A second call has no effect.
    pub(crate) fn set_view(&self, newest: impl Fn() -> Option<Arc<Pool>> + Send + Sync + 'static) {
        let _ = self.newest.set(Box::new(newest));
    }

    /// Holds a view of this txg until the lease is dropped.
    pub(crate) fn hold(self: &Arc<Self>, txg: Txg) -> Lease {
        let mut held = lock(&self.held);
        held.next += 1;
        let view = (txg, held.next);
        held.views.insert(view);
        Lease { leases: Arc::clone(self), view }
    }

    /// The txg of the oldest view; the largest txg if there is none.
    pub(crate) fn oldest(&self) -> Txg {
        lock(&self.held).views.first().map_or(Txg(u64::MAX), |(txg, _)| *txg)
    }

    /// Sets whether views keep freed space from being reused.
    pub(crate) fn note_holding_back(&self, is_holding_back: bool) {
        lock(&self.held).is_holding_back = is_holding_back;
    }

    /// Lets all views lapse: their blocks may be reused.
    pub(crate) fn lapse(&self) {
        lock(&self.held).views.clear();
    }

    /// The object set of a dataset (0: the MOS) in the newest state on disk; `None` if there is none.
    fn newest(&self, number: u64) -> Option<Arc<ObjSet>> {
        let view = self.newest.get()?()?;
        if number == 0 {
            return Some(Arc::clone(view.mos()));
        }
        // Pointers need no key.
        view.dsl().dataset_by_object(ObjectId(number)).ok()?.objset(KeyState::Locked).ok()
    }

    /// Whether views keep freed space from being reused, as of the last txg.
    pub(crate) fn is_holding_back(&self) -> bool {
        lock(&self.held).is_holding_back
    }
}

/// Keeps a view from being overwritten.
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
