//! Permission checks: what `zfs allow` has granted to the caller of a verb (docs/on-disk/33-cli.md, section 8, has
//! the table of the permissions that each verb needs).
//!
//! # What always holds
//! - The administrator has every permission.
//! - Other users have the permissions granted to them, to one of their groups, or to everyone: at the dataset
//!   itself for the dataset, or at an ancestor for its descendants. They have none while the pool's property
//!   `delegation` is off.

use super::EditError;
use super::values::Setting;
use crate::{Caller, Owner, Search};
use cenote::{Pool, PoolWriter};
use dsl::delegation::Granted;

/// The permissions of a verb's caller in a pool.
pub(crate) struct Permit<'p> {
    view: Pool,
    caller: &'p Caller,
}

/// The permissions of a caller that needs them. `None`: the caller is an administrator.
///
/// # Errors
/// The pool cannot be read.
pub(crate) fn of(pool: &PoolWriter) -> Result<Option<Permit<'_>>, EditError> {
    let caller = pool.caller();
    if caller.is_admin() {
        return Ok(None);
    }
    Ok(Some(Permit { view: super::view(pool)?, caller }))
}

/// Checks permissions at a dataset, or at the dataset of a snapshot or bookmark.
///
/// # Errors
/// [`EditError::Denied`] if one is missing; [`EditError::NoDataset`].
pub(crate) fn ask(pool: &PoolWriter, name: &str, permissions: &[&str]) -> Result<(), EditError> {
    match of(pool)? {
        Some(permit) => permit.ask(name, permissions),
        None => Ok(()),
    }
}

/// Checks permissions of the caller of a verb that only reads.
///
/// # Errors
/// [`EditError::Denied`] if one is missing; [`EditError::NoDataset`].
pub(crate) fn may(search: &Search, pool: &Pool, name: &str, permissions: &[&str]) -> Result<(), EditError> {
    match search.caller.as_ref().filter(|caller| !caller.is_admin()) {
        Some(caller) => Permit { view: pool.clone(), caller }.ask(name, permissions),
        None => Ok(()),
    }
}

/// Checks permissions to create a dataset of this name with these properties. For the properties, permissions
/// granted to the creator of a dataset count too.
///
/// # Errors
/// As [`ask`].
pub(crate) fn ask_new(pool: &PoolWriter, name: &str, settings: &[&str]) -> Result<(), EditError> {
    let Some(permit) = of(pool)? else { return Ok(()) };
    let above = name.rsplit_once('/').map_or(name, |(above, _)| above);
    permit.ask(above, &["create", "mount"])?;
    let granted = permit.granted(above, true)?;
    if settings.iter().all(|permission| granted.has(permission)) { Ok(()) } else { Err(EditError::Denied) }
}

impl Permit<'_> {
    /// Checks permissions at a dataset; see the function [`ask`].
    pub(crate) fn ask(&self, name: &str, permissions: &[&str]) -> Result<(), EditError> {
        let granted = self.granted(name, false)?;
        if permissions.iter().all(|permission| granted.has(permission)) {
            Ok(())
        } else {
            Err(EditError::Denied)
        }
    }

    /// The permissions granted at a dataset; with `below`, those at a new child of it.
    fn granted(&self, name: &str, below: bool) -> Result<Granted, EditError> {
        let delegation = self.view.spa().property("delegation")?.flatten();
        if delegation.and_then(|value| value.raw.number()) == Some(0) {
            return Err(EditError::DelegationOff);
        }
        let name = name.split(['@', '#']).next().unwrap_or_default();
        Ok(self.caller.delegate().granted(&self.view.dsl().dir(name)?, below)?)
    }
}

/// The permission needed to set a property.
pub(crate) fn to_set(prop: &str) -> String {
    if format::prop::is_user(prop) {
        return "userprop".to_owned();
    }
    if let Some((prefix, _)) = prop.split_once('@') {
        return prefix.to_owned();
    }
    format::prop::dataset(prop).map_or(prop, |known| known.name).to_owned()
}

/// The permission needed for a property and its value.
pub(crate) fn for_setting(setting: &Setting) -> String {
    match setting {
        Setting::Property { name, .. } => to_set(name),
        Setting::AutoReservation => "refreservation".to_owned(),
        Setting::VolumeSize(_) => "volsize".to_owned(),
        Setting::Version(_) => "version".to_owned(),
        Setting::OwnerLimit { owner, objects, .. } => {
            let who = match owner {
                Owner::User => "user",
                Owner::Group => "group",
                Owner::Project => "project",
            };
            format!("{who}{}quota", if *objects { "obj" } else { "" })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_property_takes() {
        for (prop, permission) in [
            ("compress", "compression"),
            ("a:b", "userprop"),
            ("userquota@joe", "userquota"),
            ("quota", "quota"),
        ] {
            assert_eq!(to_set(prop), permission);
        }
    }
}
