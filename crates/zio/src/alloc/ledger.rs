//! The metaslabs that have work to be done for a txg.

use format::{Txg, VdevId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use vdev::sync::lock;

/// Metaslabs by txg: those with changes to be taken, and those with deferred frees.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    pub(super) changed: Mutex<Noted>,
    pub(super) deferred: Mutex<Noted>,
}

/// Metaslabs, as vdev and index, by txg.
type Noted = BTreeMap<Txg, BTreeSet<(VdevId, u64)>>;

impl Ledger {
    /// Notes that a metaslab has changes of a txg.
    pub(super) fn note_change(&self, txg: Txg, vdev: VdevId, metaslab: u64) {
        lock(&self.changed).entry(txg).or_default().insert((vdev, metaslab));
    }

    /// Notes that a metaslab has space that was freed in a txg and is not reusable yet.
    pub(super) fn note_deferred(&self, txg: Txg, vdev: VdevId, metaslab: u64) {
        lock(&self.deferred).entry(txg).or_default().insert((vdev, metaslab));
    }
}
