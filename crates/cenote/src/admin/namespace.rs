//! The pools that this process has imported and keeps open, and how they are mounted. A daemon has one; commands
//! that run in process have none, and open and close a pool for each verb.
//!
//! # What always holds
//! - A pool in it is open for writing, by this process alone, until it is exported or destroyed.
//! - Names are those by which the pools are known here.
//!
//! # Order of locks
//! pools -> whatever a pool has. No lock is held while a pool is opened or closed, or something is mounted.

use super::Mounts;
use crate::PoolWriter;
use ::pool::live::LivePool;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The imported pools of this process.
pub struct Namespace {
    pools: Mutex<BTreeMap<String, Arc<LivePool>>>,
    mounts: Option<Arc<dyn Mounts>>,
}

impl Namespace {
    /// Without pools. `mounts`: how their file systems are mounted, if they are.
    pub fn new(mounts: Option<Arc<dyn Mounts>>) -> Arc<Namespace> {
        Arc::new(Namespace { pools: Mutex::default(), mounts })
    }

    /// How file systems are mounted.
    pub fn mounts(&self) -> Option<&Arc<dyn Mounts>> {
        self.mounts.as_ref()
    }

    /// The names of its pools.
    pub fn names(&self) -> Vec<String> {
        self.pools().keys().cloned().collect()
    }

    /// The pool of this name.
    pub fn get(&self, name: &str) -> Option<PoolWriter> {
        self.pools().get(name).map(|live| PoolWriter::of(Arc::clone(live)))
    }

    fn pools(&self) -> MutexGuard<'_, BTreeMap<String, Arc<LivePool>>> {
        // Whole between any two statements.
        self.pools.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Namespace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Namespace").field(&self.names()).finish()
    }
}

/// In whose name a verb runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Further groups.
    pub groups: Vec<u32>,
}

impl Caller {
    /// The user of this process.
    pub fn this_process() -> Caller {
        let groups = rustix::process::getgroups().unwrap_or_default();
        Caller {
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            groups: groups.iter().map(|group| group.as_raw()).collect(),
        }
    }
}
