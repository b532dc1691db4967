//! Limits of users, groups and projects (docs/on-disk/23-zpl.md, section 7).
//!
//! Limits are kept in memory; what is used is read from the accounting objects, that is as of the last
//! sync, and only where there is a limit.

use crate::fs::backing::Cost;
use crate::fs::writable::Fs;
use crate::{Filesystem, SpaceKind, ZplError};
use dmu::DmuError;
use dmu::zap::Zap;
use dmu::{LiveSet, NewObject};
use format::names;
use format::{ObjType, ObjectId};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// What a limit is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum QuotaOf {
    /// Bytes.
    Space,
    /// Objects.
    Objects,
}

const KINDS: [SpaceKind; 3] = [SpaceKind::User, SpaceKind::Group, SpaceKind::Project];

/// Who owns what is about to be made or written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Owners {
    pub(crate) uid: u64,
    pub(crate) gid: u64,
    pub(crate) project: u64,
}

impl Owners {
    fn of(&self, kind: SpaceKind) -> u64 {
        match kind {
            SpaceKind::User => self.uid,
            SpaceKind::Group => self.gid,
            SpaceKind::Project => self.project,
        }
    }
}

/// Key of the master node.
fn table_name(kind: SpaceKind, of: QuotaOf) -> &'static str {
    match (kind, of) {
        (SpaceKind::User, QuotaOf::Space) => "userquota@",
        (SpaceKind::User, QuotaOf::Objects) => "userobjquota@",
        (SpaceKind::Group, QuotaOf::Space) => "groupquota@",
        (SpaceKind::Group, QuotaOf::Objects) => "groupobjquota@",
        (SpaceKind::Project, QuotaOf::Space) => "projectquota@",
        (SpaceKind::Project, QuotaOf::Objects) => "projectobjquota@",
    }
}

fn used_object(kind: SpaceKind) -> ObjectId {
    match kind {
        SpaceKind::User => ObjectId::USER_USED,
        SpaceKind::Group => ObjectId::GROUP_USED,
        SpaceKind::Project => ObjectId::PROJECT_USED,
    }
}

fn kind_name(kind: SpaceKind) -> &'static str {
    match kind {
        SpaceKind::User => "user",
        SpaceKind::Group => "group",
        SpaceKind::Project => "project",
    }
}

/// The limits in memory.
#[derive(Default)]
pub(crate) struct Quotas {
    /// There is a limit at all.
    any: AtomicBool,
    /// Limits are not looked at: a log is replayed.
    suspended: AtomicBool,
    limits: RwLock<HashMap<(SpaceKind, QuotaOf), Limits>>,
}

#[derive(Default)]
struct Limits {
    /// Of those who have none of their own; 0: none.
    default: u64,
    by_id: HashMap<u64, u64>,
}

impl Limits {
    fn of(&self, id: u64) -> u64 {
        self.by_id.get(&id).copied().unwrap_or(self.default)
    }
}

impl Quotas {
    pub(crate) fn open(set: &Arc<LiveSet>, reader: &Filesystem) -> Result<Quotas, ZplError> {
        let quotas = Quotas::default();
        let mut limits = HashMap::new();
        for kind in KINDS {
            let (space, objects) = reader.default_quota(kind)?;
            for (of, default) in [(QuotaOf::Space, space), (QuotaOf::Objects, objects)] {
                let mut found = Limits { default, by_id: HashMap::new() };
                if let Some(id) = reader.master_value(table_name(kind, of))?.filter(|id| *id != 0) {
                    for entry in Zap::open(&set.object(ObjectId(id))?.read())?.entries() {
                        let entry = entry?;
                        let id = std::str::from_utf8(entry.name()).ok();
                        if let Some(id) = id.and_then(|id| u64::from_str_radix(id, 16).ok()) {
                            found.by_id.insert(id, entry.u64().unwrap_or(0));
                        }
                    }
                }
                limits.insert((kind, of), found);
            }
        }
        *quotas.limits.write().unwrap_or_else(PoisonError::into_inner) = limits;
        quotas.refresh();
        Ok(quotas)
    }

    fn refresh(&self) {
        let limits = self.limits.read().unwrap_or_else(PoisonError::into_inner);
        let any = limits.values().any(|limits| limits.default != 0 || limits.by_id.values().any(|l| *l != 0));
        self.any.store(any, Ordering::Relaxed);
    }

    pub(crate) fn suspend(&self, is_suspended: bool) {
        self.suspended.store(is_suspended, Ordering::Relaxed);
    }

    fn are_checked(&self) -> bool {
        self.any.load(Ordering::Relaxed) && !self.suspended.load(Ordering::Relaxed)
    }

    pub(crate) fn limit(&self, kind: SpaceKind, of: QuotaOf, id: u64) -> u64 {
        let limits = self.limits.read().unwrap_or_else(PoisonError::into_inner);
        limits.get(&(kind, of)).map_or(0, |limits| limits.of(id))
    }
}

impl Fs {
    /// Fails if one of the owners has used up what they may.
    pub(crate) fn check_quota(&self, owners: Owners, of: &[QuotaOf]) -> Result<(), ZplError> {
        KINDS.iter().try_for_each(|kind| self.check_limits(*kind, owners.of(*kind), of))
    }

    /// Fails if a user, a group or a project has used up what they may.
    pub(crate) fn check_limits(&self, kind: SpaceKind, id: u64, of: &[QuotaOf]) -> Result<(), ZplError> {
        if !self.quotas.are_checked() || (kind == SpaceKind::Project && id == 0) {
            return Ok(());
        }
        for of in of {
            let limit = self.quotas.limit(kind, *of, id);
            if limit != 0 && self.used(kind, *of, id)? >= limit {
                return Err(ZplError::OverQuota { kind: kind_name(kind), id });
            }
        }
        Ok(())
    }

    /// Bytes or objects that somebody uses, as of the last sync.
    pub fn used(&self, kind: SpaceKind, of: QuotaOf, id: u64) -> Result<u64, ZplError> {
        let object = match self.set.object(used_object(kind)) {
            Ok(object) => object,
            Err(DmuError::NoObject { .. }) => return Ok(0),
            Err(error) => return Err(error.into()),
        };
        let key = match of {
            QuotaOf::Space => format!("{id:x}"),
            QuotaOf::Objects => format!("obj-{id:x}"),
        };
        Ok(Zap::open(&object.read())?.lookup_u64(key.as_bytes())?.unwrap_or(0))
    }

    /// Sets a limit of a user, a group (both as FUID) or a project; 0 removes it.
    pub fn set_quota(&self, kind: SpaceKind, of: QuotaOf, id: u64, limit: u64) -> Result<(), ZplError> {
        let tx = self.begin(Cost::NAMES)?;
        let name = table_name(kind, of).as_bytes();
        let master = self.set.object(names::master_node::OBJECT)?.zap(&tx)?;
        let table = match master.lookup_u64(name)?.filter(|id| *id != 0) {
            Some(id) => self.set.object(ObjectId(id))?,
            None if limit == 0 => return Ok(()),
            None => {
                let table = self.set.allocate(&NewObject::of(ObjType::USERGROUP_QUOTA), &tx)?;
                table.create_zap(&tx, self.env.random(), 0)?;
                master.upsert(name, table.id().0)?;
                table
            }
        };
        let entries = table.zap(&tx)?;
        let key = format!("{id:x}");
        if limit == 0 {
            entries.remove_if_present(key.as_bytes())?;
        } else {
            entries.upsert(key.as_bytes(), limit)?;
        }
        self.note_limit(kind, of, Some(id), limit);
        Ok(())
    }

    /// Sets the limit of those who have none of their own; 0 removes it.
    pub fn set_default_quota(&self, kind: SpaceKind, of: QuotaOf, limit: u64) -> Result<(), ZplError> {
        let name = match (kind, of) {
            (SpaceKind::User, QuotaOf::Space) => "defaultuserquota",
            (SpaceKind::User, QuotaOf::Objects) => "defaultuserobjquota",
            (SpaceKind::Group, QuotaOf::Space) => "defaultgroupquota",
            (SpaceKind::Group, QuotaOf::Objects) => "defaultgroupobjquota",
            (SpaceKind::Project, QuotaOf::Space) => "defaultprojectquota",
            (SpaceKind::Project, QuotaOf::Objects) => "defaultprojectobjquota",
        };
        let tx = self.begin(Cost::NAMES)?;
        let master = self.set.object(names::master_node::OBJECT)?.zap(&tx)?;
        if limit == 0 {
            master.remove_if_present(name.as_bytes())?;
        } else {
            master.upsert(name.as_bytes(), limit)?;
        }
        self.note_limit(kind, of, None, limit);
        Ok(())
    }

    fn note_limit(&self, kind: SpaceKind, of: QuotaOf, id: Option<u64>, limit: u64) {
        let mut limits = self.quotas.limits.write().unwrap_or_else(PoisonError::into_inner);
        let entry = limits.entry((kind, of)).or_default();
        match id {
            None => entry.default = limit,
            Some(id) if limit == 0 => drop(entry.by_id.remove(&id)),
            Some(id) => drop(entry.by_id.insert(id, limit)),
        }
        drop(limits);
        self.quotas.refresh();
    }
}
