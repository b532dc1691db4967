//! Leaves of an open pool that are out of service without a record in its configuration.

use format::VdevGuid;
use format::config::VdevNode;
use std::collections::{HashMap, HashSet};
use std::sync::Mutex;
use std::time::Duration;
use vdev::sync::lock;

/// How a leaf is taken offline, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Offline {
    /// Until an administrator brings it back.
    Always,
    /// Until the pool is closed.
    Temporarily,
    /// Declared faulted, until that is cleared.
    Faulted,
    /// Declared faulted, until that is cleared or the pool is closed.
    FaultedTemporarily,
}

impl Offline {
    /// Takes the leaf out of service in a configuration.
    pub(crate) fn mark(self, node: &mut VdevNode) {
        match self {
            Offline::Always | Offline::Temporarily => node.offline = true,
            Offline::Faulted | Offline::FaultedTemporarily => {
                (node.faulted, node.aux_state) = (true, Some("external".to_owned()));
            }
        }
    }

    /// Whether no label records it.
    pub(crate) fn is_temporary(self) -> bool {
        matches!(self, Offline::Temporarily | Offline::FaultedTemporarily)
    }
}

/// Leaves that are out of service without a record in the configuration.
#[derive(Debug, Default)]
pub(crate) struct OutOfService {
    /// Leaves that were taken out of service because they did not answer.
    pub(crate) silent: Mutex<HashSet<VdevGuid>>,
    /// Monotonic time of the last retry of silent leaves.
    pub(crate) looked: Mutex<Duration>,
    /// Leaves that are out of service until the pool is closed, and how.
    pub(crate) out: Mutex<HashSet<(VdevGuid, Offline)>>,
}

impl OutOfService {
    /// Leaves that are out of service until the pool is closed, and how.
    pub(crate) fn leaves(&self) -> HashSet<(VdevGuid, Offline)> {
        lock(&self.out).clone()
    }

    /// Follows leaves that get other guids: `former` has their guids so far by the new ones.
    pub(crate) fn rename(&self, former: &HashMap<VdevGuid, VdevGuid>) {
        for (now, before) in former {
            let mut silent = lock(&self.silent);
            if silent.remove(before) {
                silent.insert(*now);
            }
            drop(silent);
            let mut out = lock(&self.out);
            let ways: Vec<Offline> =
                out.iter().filter(|(leaf, _)| leaf == before).map(|(_, how)| *how).collect();
            for how in ways {
                out.remove(&(*before, how));
                out.insert((*now, how));
            }
        }
    }

    /// Forgets a leaf that has left the pool.
    pub(crate) fn forget(&self, leaf: VdevGuid) {
        lock(&self.silent).remove(&leaf);
        lock(&self.out).retain(|(known, _)| *known != leaf);
    }

    /// Notes that a leaf was taken out of service because it did not answer.
    pub(crate) fn note_silent(&self, leaf: VdevGuid) {
        lock(&self.silent).insert(leaf);
    }
}
