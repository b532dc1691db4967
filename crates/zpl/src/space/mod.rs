//! Space and objects used by users, groups and projects, and their limits (docs/on-disk/20-dmu.md, section 8,
//! and 23-zpl.md, section 7).
//!
//! The DMU counts the use, in an object for each kind of owner. The master node leads to the limits. This
//! module has the keys of both and the lists that `zfs userspace` shows; [`quota`] keeps the limits of an
//! open file system in memory, [`change`] checks and changes them.

pub(crate) mod change;
pub(crate) mod quota;

use crate::{Filesystem, ZplError};
use dmu::DmuError;
use dmu::zap::Zap;
use format::ObjectId;
use format::names::master_node;
use std::collections::BTreeMap;

/// Kind of owner for which use is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SpaceKind {
    /// Users: owners of files.
    User,
    /// Groups of files.
    Group,
    /// Projects of files.
    Project,
}

/// The limited resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum QuotaOf {
    /// Bytes of data and metadata.
    Space,
    /// Number of objects.
    Objects,
}

impl SpaceKind {
    /// All kinds of owners.
    pub(crate) const ALL: [SpaceKind; 3] = [SpaceKind::User, SpaceKind::Group, SpaceKind::Project];

    /// The ZAP in which the DMU counts the use of owners of this kind.
    pub(crate) fn accounting(self) -> ObjectId {
        match self {
            SpaceKind::User => ObjectId::USER_USED,
            SpaceKind::Group => ObjectId::GROUP_USED,
            SpaceKind::Project => ObjectId::PROJECT_USED,
        }
    }

    /// Key in the master node of the ZAP of limits by owner.
    pub(crate) fn quota_key(self, of: QuotaOf) -> &'static str {
        match (self, of) {
            (SpaceKind::User, QuotaOf::Space) => master_node::USER_QUOTA,
            (SpaceKind::User, QuotaOf::Objects) => master_node::USER_OBJECT_QUOTA,
            (SpaceKind::Group, QuotaOf::Space) => master_node::GROUP_QUOTA,
            (SpaceKind::Group, QuotaOf::Objects) => master_node::GROUP_OBJECT_QUOTA,
            (SpaceKind::Project, QuotaOf::Space) => master_node::PROJECT_QUOTA,
            (SpaceKind::Project, QuotaOf::Objects) => master_node::PROJECT_OBJECT_QUOTA,
        }
    }

    /// Key in the master node of the limit of owners without a limit of their own.
    pub(crate) fn default_quota_key(self, of: QuotaOf) -> &'static str {
        match (self, of) {
            (SpaceKind::User, QuotaOf::Space) => master_node::DEFAULT_USER_QUOTA,
            (SpaceKind::User, QuotaOf::Objects) => master_node::DEFAULT_USER_OBJECT_QUOTA,
            (SpaceKind::Group, QuotaOf::Space) => master_node::DEFAULT_GROUP_QUOTA,
            (SpaceKind::Group, QuotaOf::Objects) => master_node::DEFAULT_GROUP_OBJECT_QUOTA,
            (SpaceKind::Project, QuotaOf::Space) => master_node::DEFAULT_PROJECT_QUOTA,
            (SpaceKind::Project, QuotaOf::Objects) => master_node::DEFAULT_PROJECT_OBJECT_QUOTA,
        }
    }
}

/// Prefix of the keys of object counts; keys of byte counts have none.
const OBJECTS_PREFIX: &str = "obj-";

/// Key of an owner in an accounting ZAP.
pub(crate) fn used_key(of: QuotaOf, id: u64) -> String {
    match of {
        QuotaOf::Space => format!("{id:x}"),
        QuotaOf::Objects => format!("{OBJECTS_PREFIX}{id:x}"),
    }
}

/// Key of an owner in a ZAP of limits.
pub(crate) fn limit_key(id: u64) -> String {
    format!("{id:x}")
}

/// The owner of a key; `None` if it is no key of an owner.
fn owner(key: &[u8]) -> Option<u64> {
    std::str::from_utf8(key).ok().and_then(|text| u64::from_str_radix(text, 16).ok())
}

/// Use and limits of one user, group or project.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SpaceRow {
    /// Id of the owner: a FUID, or a project id.
    pub id: u64,
    /// Bytes used.
    pub used: u64,
    /// Objects used; `None`: they are not counted.
    pub objects: Option<u64>,
    /// Most bytes allowed; 0: no limit.
    pub quota: u64,
    /// Most objects allowed; 0: no limit.
    pub objquota: u64,
}

impl Filesystem {
    /// Use and limits of all owners that have any, by id. Empty if the file system has no accounting.
    ///
    /// # Errors
    /// If an object of the accounting or of the limits cannot be read.
    pub fn space(&self, kind: SpaceKind) -> Result<Vec<SpaceRow>, ZplError> {
        let mut rows = BTreeMap::new();
        match self.objset().object(kind.accounting()) {
            Ok(object) => read_used(&Zap::open(&object)?, &mut rows)?,
            Err(DmuError::NoObject { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        for (id, limit) in self.limits(kind, QuotaOf::Space)? {
            row(&mut rows, id).quota = limit;
        }
        for (id, limit) in self.limits(kind, QuotaOf::Objects)? {
            row(&mut rows, id).objquota = limit;
        }
        Ok(rows.into_values().collect())
    }

    /// Owners with a limit of their own, each with the limit.
    pub(crate) fn limits(&self, kind: SpaceKind, of: QuotaOf) -> Result<Vec<(u64, u64)>, ZplError> {
        let table = self.master_value(kind.quota_key(of))?.filter(|id| *id != 0);
        let Some(table) = table else { return Ok(Vec::new()) };
        let mut limits = Vec::new();
        for entry in Zap::open(&self.objset().object(ObjectId(table))?)?.entries() {
            let entry = entry?;
            limits.extend(owner(entry.name()).map(|id| (id, entry.u64().unwrap_or(0))));
        }
        Ok(limits)
    }

    /// The limit of owners without a limit of their own; 0: no limit.
    ///
    /// # Errors
    /// If the master node cannot be read.
    pub fn default_quota(&self, kind: SpaceKind, of: QuotaOf) -> Result<u64, ZplError> {
        Ok(self.master_value(kind.default_quota_key(of))?.unwrap_or(0))
    }
}

fn row(rows: &mut BTreeMap<u64, SpaceRow>, id: u64) -> &mut SpaceRow {
    rows.entry(id).or_insert(SpaceRow { id, ..SpaceRow::default() })
}

fn read_used(zap: &Zap, rows: &mut BTreeMap<u64, SpaceRow>) -> Result<(), ZplError> {
    for entry in zap.entries() {
        let entry = entry?;
        let value = entry.u64().unwrap_or(0);
        let name = entry.name();
        match name.strip_prefix(OBJECTS_PREFIX.as_bytes()) {
            Some(name) => {
                if let Some(id) = owner(name) {
                    row(rows, id).objects = Some(value);
                }
            }
            None => {
                if let Some(id) = owner(name) {
                    row(rows, id).used = value;
                }
            }
        }
    }
    Ok(())
}
