//! Who may do what: what `zfs allow` has granted, asked for by the verbs
//! (docs/on-disk/33-cli.md, section 8; the table of what each verb needs is there).
//!
//! # What always holds
//! - The administrator may do everything.
//! - Others may do what was granted to them, one of their groups or everyone: at the dataset for itself, or at
//!   one above for those below; and nothing while the pool's property `delegation` is off.

use super::EditError;
use super::values::Setting;
use crate::{Caller, Owner, Search};
use cenote::{Pool, PoolWriter};
use dsl::delegation::Granted;

/// What the caller of some verb may do in a pool.
pub(crate) struct Permit<'p> {
    view: Pool,
    caller: &'p Caller,
}

/// Of somebody who has to ask; `None`: the caller may do everything.
///
/// # Errors
/// If the pool cannot be read.
pub(crate) fn of(pool: &PoolWriter) -> Result<Option<Permit<'_>>, EditError> {
    let caller = pool.caller();
    if caller.is_admin() {
        return Ok(None);
    }
    Ok(Some(Permit { view: super::view(pool)?, caller }))
}

/// Asks for permissions at one dataset, or at the dataset of a snapshot or bookmark.
///
/// # Errors
/// [`EditError::Denied`] if one is missing; [`EditError::NoDataset`].
pub(crate) fn ask(pool: &PoolWriter, name: &str, permissions: &[&str]) -> Result<(), EditError> {
    match of(pool)? {
        Some(permit) => permit.ask(name, permissions),
        None => Ok(()),
    }
}

/// Asks for permissions of the one in whose name verbs run that only read.
///
/// # Errors
/// [`EditError::Denied`] if one is missing; [`EditError::NoDataset`].
pub(crate) fn may(search: &Search, pool: &Pool, name: &str, permissions: &[&str]) -> Result<(), EditError> {
    match search.caller.as_ref().filter(|caller| !caller.is_admin()) {
        Some(caller) => Permit { view: pool.clone(), caller }.ask(name, permissions),
        None => Ok(()),
    }
}

/// Asks for permissions to make a dataset of this name, and to give it these properties. What is granted to whoever
/// makes a dataset counts for the latter.
///
/// # Errors
/// As of [`ask`].
pub(crate) fn ask_new(pool: &PoolWriter, name: &str, settings: &[&str]) -> Result<(), EditError> {
    let Some(permit) = of(pool)? else { return Ok(()) };
    let above = name.rsplit_once('/').map_or(name, |(above, _)| above);
    permit.ask(above, &["create", "mount"])?;
    let granted = permit.granted(above, true)?;
    if settings.iter().all(|permission| granted.has(permission)) { Ok(()) } else { Err(EditError::Denied) }
}

impl Permit<'_> {
    /// See [`ask`].
    pub(crate) fn ask(&self, name: &str, permissions: &[&str]) -> Result<(), EditError> {
        let granted = self.granted(name, false)?;
        if permissions.iter().all(|permission| granted.has(permission)) {
            Ok(())
        } else {
            Err(EditError::Denied)
        }
    }

    /// What is granted at a dataset; or, `below`, at a new one directly below it.
    fn granted(&self, name: &str, below: bool) -> Result<Granted, EditError> {
        let delegation = self.view.spa().property("delegation")?.flatten();
        if delegation.and_then(|value| value.raw.number()) == Some(0) {
            return Err(EditError::DelegationOff);
        }
        let name = name.split(['@', '#']).next().unwrap_or_default();
        Ok(self.caller.delegate().granted(&self.view.dsl().dir(name)?, below)?)
    }
}

/// The permission that setting a property takes.
pub(crate) fn to_set(prop: &str) -> String {
    if format::prop::is_user(prop) {
        return "userprop".to_owned();
    }
    if let Some((prefix, _)) = prop.split_once('@') {
        return prefix.to_owned();
    }
    format::prop::dataset(prop).map_or(prop, |known| known.name).to_owned()
}

/// The same of a property with its value.
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
