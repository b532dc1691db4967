//! Space and objects used by users, groups and projects, and their limits
//! (docs/on-disk/20-dmu.md, section 8, and 23-zpl.md, section 7).

pub(crate) mod quota;

use crate::{Filesystem, ZplError};
use dmu::DmuError;
use dmu::zap::Zap;
use format::ObjectId;
use std::collections::BTreeMap;

/// Who is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SpaceKind {
    /// Owners.
    User,
    /// Groups.
    Group,
    /// Projects.
    Project,
}

impl SpaceKind {
    fn accounting(self) -> ObjectId {
        match self {
            SpaceKind::User => ObjectId::USER_USED,
            SpaceKind::Group => ObjectId::GROUP_USED,
            SpaceKind::Project => ObjectId::PROJECT_USED,
        }
    }

    /// Keys of the master node: limits of space and of objects.
    fn quotas(self) -> [&'static str; 2] {
        match self {
            SpaceKind::User => ["userquota@", "userobjquota@"],
            SpaceKind::Group => ["groupquota@", "groupobjquota@"],
            SpaceKind::Project => ["projectquota@", "projectobjquota@"],
        }
    }
}

/// One user, group or project.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SpaceRow {
    /// Who: a FUID, or a project's number.
    pub id: u64,
    /// Bytes used.
    pub used: u64,
    /// Objects used; `None` where they are not counted.
    pub objects: Option<u64>,
    /// Most bytes allowed; 0 is no limit.
    pub quota: u64,
    /// Most objects allowed; 0 is no limit.
    pub objquota: u64,
}

/// The column of a row that a number belongs to.
type Column = fn(&mut SpaceRow) -> &mut u64;

impl Filesystem {
    /// Space and limits of everyone who has any, by id. Empty where space is not accounted for.
    pub fn space(&self, kind: SpaceKind) -> Result<Vec<SpaceRow>, ZplError> {
        let mut rows = BTreeMap::new();
        match self.objset().object(kind.accounting()) {
            Ok(object) => read_used(&Zap::open(&object)?, &mut rows)?,
            Err(DmuError::NoObject { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        let columns: [Column; 2] = [|row| &mut row.quota, |row| &mut row.objquota];
        for (name, column) in kind.quotas().into_iter().zip(columns) {
            let Some(id) = self.master_value(name)?.filter(|id| *id != 0) else { continue };
            read_quota(&Zap::open(&self.objset().object(ObjectId(id))?)?, column, &mut rows)?;
        }
        Ok(rows.into_values().collect())
    }

    /// The limits of those who have none of their own (space, objects); 0 is no limit.
    pub fn default_quota(&self, kind: SpaceKind) -> Result<(u64, u64), ZplError> {
        let names = match kind {
            SpaceKind::User => ["defaultuserquota", "defaultuserobjquota"],
            SpaceKind::Group => ["defaultgroupquota", "defaultgroupobjquota"],
            SpaceKind::Project => ["defaultprojectquota", "defaultprojectobjquota"],
        };
        Ok((self.master_value(names[0])?.unwrap_or(0), self.master_value(names[1])?.unwrap_or(0)))
    }
}

fn row(rows: &mut BTreeMap<u64, SpaceRow>, id: u64) -> &mut SpaceRow {
    rows.entry(id).or_insert(SpaceRow { id, ..SpaceRow::default() })
}

fn hex(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok().and_then(|text| u64::from_str_radix(text, 16).ok())
}

fn read_used(zap: &Zap, rows: &mut BTreeMap<u64, SpaceRow>) -> Result<(), ZplError> {
    for entry in zap.entries() {
        let entry = entry?;
        let value = entry.u64().unwrap_or(0);
        match entry.name().strip_prefix(b"obj-") {
            Some(id) => {
                if let Some(id) = hex(id) {
                    row(rows, id).objects = Some(value);
                }
            }
            None => {
                if let Some(id) = hex(entry.name()) {
                    row(rows, id).used = value;
                }
            }
        }
    }
    Ok(())
}

fn read_quota(zap: &Zap, column: Column, rows: &mut BTreeMap<u64, SpaceRow>) -> Result<(), ZplError> {
    for entry in zap.entries() {
        let entry = entry?;
        if let Some(id) = hex(entry.name()) {
            *column(row(rows, id)) = entry.u64().unwrap_or(0);
        }
    }
    Ok(())
}
