//! Limits of users, groups and projects, in the memory of an open file system (docs/on-disk/23-zpl.md,
//! section 7).

use super::{QuotaOf, SpaceKind};
use crate::{Filesystem, ZplError};
use dsl::sync::{read, write};
use std::collections::HashMap;
use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// Owners of a file to be created or written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Owners {
    pub(crate) uid: u64,
    pub(crate) gid: u64,
    pub(crate) project: u64,
}

impl Owners {
    pub(crate) fn of(&self, kind: SpaceKind) -> u64 {
        match kind {
            SpaceKind::User => self.uid,
            SpaceKind::Group => self.gid,
            SpaceKind::Project => self.project,
        }
    }
}

/// The limits of a file system, in memory.
#[derive(Default)]
pub(crate) struct Quotas {
    /// Whether any limit is set.
    any: AtomicBool,
    /// Limits are not checked, because a log is replayed.
    suspended: AtomicBool,
    limits: RwLock<HashMap<(SpaceKind, QuotaOf), Limits>>,
}

#[derive(Default)]
struct Limits {
    /// Limit of owners without a limit of their own; 0: none.
    default: u64,
    by_id: HashMap<u64, u64>,
}

impl Limits {
    fn of(&self, id: u64) -> u64 {
        self.by_id.get(&id).copied().unwrap_or(self.default)
    }
}

impl Quotas {
    /// Reads the limits from disk.
    pub(crate) fn open(reader: &Filesystem) -> Result<Quotas, ZplError> {
        let mut limits = HashMap::new();
        for kind in SpaceKind::ALL {
            for of in [QuotaOf::Space, QuotaOf::Objects] {
                let (default, by_id) = (reader.default_quota(kind, of)?, reader.limits(kind, of)?);
                limits.insert((kind, of), Limits { default, by_id: by_id.into_iter().collect() });
            }
        }
        let quotas = Quotas { limits: RwLock::new(limits), ..Quotas::default() };
        quotas.refresh();
        Ok(quotas)
    }

    fn refresh(&self) {
        let limits = read(&self.limits);
        let any = limits.values().any(|limits| limits.default != 0 || limits.by_id.values().any(|l| *l != 0));
        self.any.store(any, Ordering::Relaxed);
    }

    /// Turns checks off during a log replay.
    pub(crate) fn suspend(&self, is_suspended: bool) {
        self.suspended.store(is_suspended, Ordering::Relaxed);
    }

    /// Whether limits must be checked: some are set, and no log is replayed.
    pub(crate) fn are_checked(&self) -> bool {
        self.any.load(Ordering::Relaxed) && !self.suspended.load(Ordering::Relaxed)
    }

    /// The limit of an owner; 0: no limit.
    pub(crate) fn limit(&self, kind: SpaceKind, of: QuotaOf, id: u64) -> u64 {
        let limits = read(&self.limits);
        limits.get(&(kind, of)).map_or(0, |limits| limits.of(id))
    }

    /// Sets the limit of one owner, or (`None`) of owners without their own; 0: no limit.
    pub(crate) fn set(&self, kind: SpaceKind, of: QuotaOf, id: Option<u64>, limit: u64) {
        let mut limits = write(&self.limits);
        let entry = limits.entry((kind, of)).or_default();
        match id {
            None => entry.default = limit,
            Some(id) if limit == 0 => drop(entry.by_id.remove(&id)),
            Some(id) => drop(entry.by_id.insert(id, limit)),
        }
        drop(limits);
        self.refresh();
    }
}
