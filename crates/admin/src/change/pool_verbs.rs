//! Verbs on a pool that exists: adding vdevs, setting properties, enabling features, exporting, destroying.
//!
//! Each opens the pool, does its work, writes the command into the history and closes the pool again.

use super::pool_devices::{Allow, open_devices};
use super::pool_layout::{LayoutClass, PoolLayout};
use super::pool_open::{
    change, check_admin, close, find, forget, listed_now, note, note_again, noting, open_found, open_writer,
    record,
};
use super::{ChangeError, keep_open, open_for_change};
use crate::{Imported, OpenPool, Search, Vdev};
use ::pool::{AuxKind, Leave, VdevProp};
use cenote::PoolWriter;
use format::VdevGuid;
use format::config::VdevNode;
use vdev::scan::Found;

/// `zpool sync`: brings everything to disk. Everybody may.
///
/// # Errors
/// If the pool cannot be opened for change.
pub fn sync_pool(search: &Search, name: &str) -> Result<(), ChangeError> {
    let pool = open_writer(search, name)?;
    pool.sync()?;
    close(pool)
}

/// `zpool set`: sets properties that are stored with the pool. All or none.
///
/// # Errors
/// If one of them cannot be set.
pub fn set_pool_props(
    search: &Search,
    name: &str,
    props: &[(String, String)],
    command: &str,
) -> Result<(), ChangeError> {
    change(search, name, command, |pool| {
        pool.live().set_host_id(crate::host_id());
        Ok(pool.live().set_props(props.to_vec())?)
    })
}

/// `zpool set` of a vdev. OpenZFS does not note the command, but what it did.
///
/// # Errors
/// If it cannot be set.
pub fn set_vdev_prop(search: &Search, name: &str, vdev: &Vdev, prop: VdevProp) -> Result<(), ChangeError> {
    if let VdevProp::Number("allocating", wanted) = prop {
        check_allocating(vdev, wanted != 0)?;
    }
    let pool = open_for_change(search, name)?;
    let outcome = pool.live().set_vdev_prop(VdevGuid(vdev.guid), prop);
    let closed = close(pool);
    outcome?;
    closed
}

/// Space is allocated on all vdevs; one whose state would change is refused.
fn check_allocating(vdev: &Vdev, wanted: bool) -> Result<(), ChangeError> {
    if vdev.space == 0 || vdev.pool_name.is_some() {
        return Err(ChangeError::Property("operation not supported on this type of vdev".to_owned()));
    }
    let is_allocating = !vdev.non_allocating;
    if wanted == is_allocating {
        return Ok(());
    }
    Err(ChangeError::Unsupported { what: "changing 'allocating' is".to_owned() })
}

/// `zpool upgrade`, `zpool set feature@…=enabled`: enables features and what they depend on. Returns those
/// that were not enabled before.
///
/// # Errors
/// If one is not known.
pub fn enable_features(
    search: &Search,
    name: &str,
    features: &[&str],
    command: &str,
) -> Result<Vec<&'static str>, ChangeError> {
    change(search, name, command, |pool| Ok(pool.live().enable_features(features)?))
}

/// The vdevs of a pool that is open, as its configuration has them: for checking what is to be added.
pub fn config_tree(pool: &OpenPool) -> &VdevNode {
    &pool.pool().spa().config().vdev_tree
}

/// What is to be added to a pool.
#[derive(Debug, Clone)]
pub struct NewVdevs {
    /// The vdevs, checked.
    pub layout: PoolLayout,
    /// log2 of their sectors; `None`: as the pool's property says, `Some(0)`: as their devices like best.
    pub ashift: Option<u8>,
    /// Which objections do not count.
    pub allow: Allow,
}

/// `zpool add`.
///
/// # Errors
/// [`ChangeError`]; the pool is as it was.
pub fn add_vdevs(search: &Search, name: &str, new: &NewVdevs, command: &str) -> Result<(), ChangeError> {
    change(search, name, command, |pool| {
        let live = pool.live();
        let ashift = match new.ashift {
            Some(ashift) => ashift,
            None => default_ashift(pool)?,
        };
        let needs_classes =
            new.layout.tops.iter().any(|t| matches!(t.class, LayoutClass::Special | LayoutClass::Dedup));
        if needs_classes && !live.features().is_enabled("allocation_classes") {
            return Err(ChangeError::NeedsFeature);
        }
        let wanted = Some(ashift).filter(|ashift| *ashift != 0);
        check_ashift(pool, new, wanted)?;
        let devices = open_devices(&new.layout, wanted, || ChangeError::AddTooSmall)?;
        // The new devices' labels go with those of the others.
        live.release()?;
        if !devices.tops.is_empty() {
            live.add(devices.tops)?;
        }
        live.add_aux(AuxKind::Spare, devices.spares)?;
        Ok(live.add_aux(AuxKind::Cache, devices.cache)?)
    })
}

/// The pool's property `ashift`; 0: none.
fn default_ashift(pool: &PoolWriter) -> Result<u8, ChangeError> {
    let view = pool.view()?;
    let value = view.spa().property("ashift").map_err(ChangeError::from)?;
    let number = value.flatten().and_then(|value| value.raw.number()).unwrap_or(0);
    Ok(u8::try_from(number).unwrap_or(0))
}

/// New vdevs have the sectors that the pool's have.
fn check_ashift(pool: &PoolWriter, new: &NewVdevs, wanted: Option<u8>) -> Result<(), ChangeError> {
    if new.allow.ashift {
        return Ok(());
    }
    let config = pool.live().config();
    let known = || config.vdev_tree.children.iter().filter(|top| !top.is_log).filter_map(|top| top.ashift);
    let counted = new.layout.tops.iter().filter(|top| top.class != LayoutClass::Log);
    for top in counted {
        let ashift = match wanted {
            Some(ashift) => ashift,
            None => super::pool_devices::best_ashift(top)?,
        };
        if known().any(|of_pool| of_pool.0 != ashift) {
            return Err(ChangeError::Ashift);
        }
    }
    Ok(())
}

/// `zpool export`: the pool is no longer imported here, and any machine may have it. What is mounted of it was
/// unmounted before.
///
/// # Errors
/// If there is no such pool, somebody uses it, or its labels cannot be written.
pub fn export_pool(search: &Search, name: &str, command: &str) -> Result<(), ChangeError> {
    check_admin(search)?;
    if search.namespace.is_some() {
        return keep_open::close(search, name, Leave::Exported, command);
    }
    let guid = Imported::load()?.by_name(name).map(|pool| pool.guid).ok_or(ChangeError::NoPool)?;
    let pool = match open_found(&search.run()?, guid) {
        Ok(pool) => pool,
        Err(error) => return leave_unwritten(guid, error),
    };
    let config = pool.live().config();
    record(&pool, command)?;
    pool.close()?;
    forget(config.pool_guid)
}

/// A pool that was imported for reading, or whose devices are gone, is let go of without being written.
fn leave_unwritten(guid: format::PoolGuid, error: ChangeError) -> Result<(), ChangeError> {
    let imported = Imported::load()?;
    match (imported.by_guid(guid), &error) {
        (
            Some(_),
            ChangeError::ReadOnly { .. }
            | ChangeError::ImportedReadOnly
            | ChangeError::NoPool
            | ChangeError::Unavailable { .. },
        ) => forget(guid),
        _ => Err(error),
    }
}

/// `zpool destroy`: the labels say that the pool is not wanted any more. What it holds is still there, and
/// `zpool import -D` brings it back until something else is written.
///
/// # Errors
/// If there is no such pool, somebody uses it, or its labels cannot be written.
pub fn destroy_pool(search: &Search, name: &str, command: &str) -> Result<(), ChangeError> {
    check_admin(search)?;
    if search.namespace.is_some() {
        return keep_open::close(search, name, Leave::Destroyed, command);
    }
    let found = search.run()?;
    let guid = find(&found, name)?;
    let pool = match open_found(&found, guid) {
        Ok(pool) => pool,
        // As OpenZFS does: nothing is written, so the pool can be imported again.
        Err(error @ ChangeError::ImportedReadOnly) => return leave_unwritten(guid, error),
        Err(error) => return Err(error),
    };
    let config = pool.live().config();
    record(&pool, command)?;
    pool.destroy()?;
    forget(config.pool_guid)
}

/// `zpool set cachefile=`: lists the pool in another cache file (`none`: in none; empty: in the usual one). It
/// stays imported.
///
/// # Errors
/// If there is no such pool, or a file cannot be written.
pub fn set_cachefile(search: &Search, name: &str, value: &str, command: &str) -> Result<(), ChangeError> {
    let settings = change(search, name, command, |pool| {
        let _noting = noting();
        let config = listed_now(pool)?;
        let guid = config.pool_guid;
        let imported = Imported::load()?;
        let known = imported.by_guid(guid);
        let mut settings = known.map(|pool| pool.settings.clone()).unwrap_or_default();
        let before = settings.other_file();
        settings.cachefile = Some(value.to_owned()).filter(|value| !value.is_empty());
        match known {
            Some(known) => note_again(known, &settings, config)?,
            None => note(&config, &settings)?,
        }
        let now = settings.other_file();
        if let Some(file) = before.filter(|file| now.is_none_or(|now| now.path() != file.path())) {
            file.take(guid).map_err(|e| super::cache_error(&e))?;
        }
        Ok(settings)
    })?;
    if let Some((entry, _)) = search.namespace.as_ref().and_then(|namespace| namespace.entry(name)) {
        entry.set_settings(settings);
    }
    Ok(())
}

/// The names of the pools that are imported.
///
/// # Errors
/// If the cache file cannot be read.
pub fn imported_names(search: &Search) -> Result<Vec<String>, ChangeError> {
    if let Some(namespace) = &search.namespace {
        return Ok(namespace.names());
    }
    Ok(Imported::load()?.pools.into_iter().map(|pool| pool.name).collect())
}

/// The names of all pools that verbs on all pools are for: those that are found, destroyed ones left out.
///
/// # Errors
/// If looking for them fails.
pub fn found_names(search: &Search) -> Result<Vec<String>, ChangeError> {
    if let Some(namespace) = &search.namespace {
        return Ok(namespace.names());
    }
    let found: Found = search.run()?;
    let mut names: Vec<String> =
        crate::labelled(&found, &Imported::load()?).into_iter().map(|pool| pool.name).collect();
    names.sort();
    names.dedup();
    Ok(names)
}
