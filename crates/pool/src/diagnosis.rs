//! Fault diagnosis: taking leaves out of service that keep failing.
//!
//! Called at the beginning of every txg. A leaf with new read or write errors is probed: if it can no longer
//! be read and written, or had too many errors within a short time, it is *faulted*, which the configuration
//! records (`faulted`, `aux_state`). From then on it is not used; txgs that it misses go to its DTL.
//!
//! # What always holds
//! - A leaf that is needed to supply some block stays in service and is only marked as degraded. Leaves that
//!   have missed writes do not count as a replacement, nor do those that fail at the same time.
//! - Such a fault is temporary: an import, and `LivePool::resume`, lift it from leaves that answer. A fault
//!   that an administrator has declared (`external`) stays.

use crate::config;
use format::config::{VdevKind, VdevNode};
use format::{Txg, VdevGuid};
use std::collections::HashMap;
use std::time::Duration;
use vdev::VdevTree;
use vdev::label_write::test_leaf;
use vdev::tree::{VdevState, VdevStatus};

/// Errors within [`WINDOW`] that fault a leaf that still answers.
pub(crate) const ERRORS_MAX: u64 = 10;
/// Time in which errors of a leaf are counted together.
const WINDOW: Duration = Duration::from_secs(600);
/// Value of `aux_state` for a leaf with too many errors.
pub(crate) const ERR_EXCEEDED: &str = "err_exceeded";

/// The errors of a leaf.
#[derive(Debug, Default)]
struct Errors {
    /// Error count of the leaf when it was last examined.
    seen: u64,
    /// Errors counted in the current window ([`WINDOW`]).
    recent: u64,
    since: Duration,
}

/// Recent errors of the leaves of a pool.
#[derive(Debug, Default)]
pub(crate) struct Diagnosis(HashMap<VdevGuid, Errors>);

impl Diagnosis {
    /// Notes the total number of errors of a leaf. Returns the number of recent ones; `None`: there are no
    /// new ones.
    pub(crate) fn note(&mut self, leaf: VdevGuid, errors: u64, now: Duration) -> Option<u64> {
        let known = self.0.entry(leaf).or_default();
        // The counters were cleared meanwhile.
        let seen = if known.seen > errors { 0 } else { known.seen };
        let new = errors - seen;
        known.seen = errors;
        if new == 0 {
            return None;
        }
        if now.saturating_sub(known.since) > WINDOW {
            (known.recent, known.since) = (0, now);
        }
        known.recent += new;
        Some(known.recent)
    }

    /// Ignores the errors of a leaf that is out of service: requests in flight when it left. They must not
    /// count against it once it is back.
    pub(crate) fn pass_over(&mut self, leaf: VdevGuid, errors: u64) {
        self.0.entry(leaf).or_default().seen = errors;
    }

    /// Forgets a leaf that has left the pool.
    pub(crate) fn leave(&mut self, leaf: VdevGuid) {
        self.0.remove(&leaf);
    }

    pub(crate) fn forget(&mut self, leaf: VdevGuid) {
        if let Some(known) = self.0.get_mut(&leaf) {
            known.recent = 0;
        }
    }
}

/// Whether every block stays readable without these leaves and without the leaves that have missed writes.
pub(crate) fn can_do_without(tree: &VdevTree, leaves: &[VdevGuid]) -> bool {
    let mut without = tree.config().clone();
    for guid in tree.leaf_guids() {
        if let Some(node) = config::find_mut(&mut without, guid)
            && (leaves.contains(&guid) || !tree.dtl(guid).is_empty() || node.resilver_txg != Txg(0))
        {
            node.faulted = true;
        }
    }
    let Ok(rest) = tree.reconfigured(&without, &HashMap::new()) else { return false };
    let holds_one = |top: &&VdevStatus| leaves.iter().any(|leaf| top.find(*leaf).is_some());
    rest.status().children.iter().filter(holds_one).all(|top| top.state >= VdevState::Degraded)
}

fn is_leaf(node: &VdevNode) -> bool {
    matches!(node.kind, VdevKind::Disk | VdevKind::File)
}

/// Lifts earlier faults from leaves that answer now. Returns true if the configuration has changed.
pub(crate) fn lift(tree: &VdevTree, root: &mut VdevNode) -> bool {
    let is_finding = |node: &&VdevNode| is_leaf(node) && node.aux_state.as_deref() == Some(ERR_EXCEEDED);
    let found: Vec<VdevGuid> = root.leaves().filter(is_finding).map(|node| node.guid).collect();
    let mut is_changed = false;
    for guid in found {
        let answers = tree.device(guid).is_some_and(|device| test_leaf(&*device).is_ok());
        if let Some(node) = config::find_mut(root, guid).filter(|_| answers) {
            (node.faulted, node.degraded, node.aux_state) = (false, false, None);
            is_changed = true;
        }
    }
    is_changed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_count_together_for_ten_minutes() {
        let mut diagnosis = Diagnosis::default();
        let leaf = VdevGuid(1);
        let at = |minutes: u64| Duration::from_secs(60 * minutes);
        assert_eq!(diagnosis.note(leaf, 0, at(0)), None);
        assert_eq!(diagnosis.note(leaf, 4, at(1)), Some(4));
        assert_eq!(diagnosis.note(leaf, 4, at(2)), None);
        assert_eq!(diagnosis.note(leaf, 9, at(10)), Some(9));
        assert_eq!(diagnosis.note(leaf, 10, at(30)), Some(1));
        // Cleared, and two more.
        assert_eq!(diagnosis.note(leaf, 2, at(31)), Some(3));
    }

    #[test]
    fn what_was_under_way_when_a_leaf_left_is_not_held_against_it() {
        let mut diagnosis = Diagnosis::default();
        let (leaf, now) = (VdevGuid(1), Duration::from_secs(60));
        assert_eq!(diagnosis.note(leaf, 45, now), Some(45));
        diagnosis.forget(leaf);
        // It is faulted, and the rest of the txg fails, too.
        diagnosis.pass_over(leaf, 898);
        assert_eq!(diagnosis.note(leaf, 898, now), None);
        assert_eq!(diagnosis.note(leaf, 899, now), Some(1));
    }
}
