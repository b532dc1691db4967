//! Checking and setting quotas of users, groups and projects.
//!
//! Use is read from the accounting objects, as of the last sync, and only for owners with a limit.

use super::quota::Owners;
use super::{QuotaOf, SpaceKind, limit_key, used_key};
use crate::ZplError;
use crate::fs::backing::Cost;
use crate::fs::writable::Fs;
use dmu::zap::Zap;
use dmu::{DmuError, NewObject};
use format::names::master_node;
use format::{ObjType, ObjectId};

fn kind_name(kind: SpaceKind) -> &'static str {
    match kind {
        SpaceKind::User => "user",
        SpaceKind::Group => "group",
        SpaceKind::Project => "project",
    }
}

impl Fs {
    /// Fails with [`ZplError::OverQuota`] if one of the owners has reached a limit.
    pub(crate) fn check_quota(&self, owners: Owners, of: &[QuotaOf]) -> Result<(), ZplError> {
        SpaceKind::ALL.iter().try_for_each(|kind| self.check_limits(*kind, owners.of(*kind), of))
    }

    /// Fails with [`ZplError::OverQuota`] if a user, group or project has reached its limit.
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

    /// Bytes or objects that an owner uses, as of the last sync.
    ///
    /// # Errors
    /// If the accounting cannot be read.
    pub(crate) fn used(&self, kind: SpaceKind, of: QuotaOf, id: u64) -> Result<u64, ZplError> {
        let object = match self.set.object(kind.accounting()) {
            Ok(object) => object,
            Err(DmuError::NoObject { .. }) => return Ok(0),
            Err(error) => return Err(error.into()),
        };
        Ok(Zap::open(&object.read())?.lookup_u64(used_key(of, id).as_bytes())?.unwrap_or(0))
    }

    /// Sets the limit of a user, a group (both as FUID) or a project, in bytes or objects; 0 removes it.
    ///
    /// # Errors
    /// [`ZplError::Begin`] if no transaction can begin; or the master node cannot be read or changed.
    pub fn set_quota(&self, kind: SpaceKind, of: QuotaOf, id: u64, limit: u64) -> Result<(), ZplError> {
        let tx = self.begin(Cost::NAMES)?;
        let name = kind.quota_key(of).as_bytes();
        let master = self.set.object(master_node::OBJECT)?.zap(&tx)?;
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
        let key = limit_key(id);
        if limit == 0 {
            entries.remove_if_present(key.as_bytes())?;
        } else {
            entries.upsert(key.as_bytes(), limit)?;
        }
        self.quotas.set(kind, of, Some(id), limit);
        Ok(())
    }

    /// Sets the limit of owners without a limit of their own, in bytes or objects; 0 removes it.
    ///
    /// # Errors
    /// [`ZplError::Begin`] if no transaction can begin; or the master node cannot be read or changed.
    pub fn set_default_quota(&self, kind: SpaceKind, of: QuotaOf, limit: u64) -> Result<(), ZplError> {
        let name = kind.default_quota_key(of);
        let tx = self.begin(Cost::NAMES)?;
        let master = self.set.object(master_node::OBJECT)?.zap(&tx)?;
        if limit == 0 {
            master.remove_if_present(name.as_bytes())?;
        } else {
            master.upsert(name.as_bytes(), limit)?;
        }
        self.quotas.set(kind, of, None, limit);
        Ok(())
    }
}
