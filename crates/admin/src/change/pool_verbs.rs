//! Verbs on an existing pool: add vdevs, set properties, enable features, export, destroy.
//!
//! Each verb opens the pool, makes its change, writes the command into the history and closes the pool.

use super::pool_devices::{Allow, open_devices};
use super::pool_layout::{LayoutClass, PoolLayout};
use super::pool_open::{
    change, check_admin, close, find, forget, listed_now, note, note_again, noting, open_found, open_writer,
    record,
};
use super::{ChangeError, keep_open, open_for_change};
use crate::{AdminError, Imported, OpenPool, Search, Vdev};
use ::pool::{AuxKind, Leave, VdevProp};
use cenote::PoolWriter;
use format::VdevGuid;
use format::config::VdevNode;
use vdev::scan::Found;

/// `zpool sync`: waits until all changes are on disk. Every user may do this.
///
/// # Errors
/// [`ChangeError`] if the pool cannot be opened for change.
pub(crate) fn sync_pool(search: &Search, name: &str) -> Result<(), ChangeError> {
    let pool = open_writer(search, name)?;
    pool.sync()?;
    close(pool)
}

/// `zpool set`: sets pool properties, all or none.
///
/// # Errors
/// One of the properties cannot be set.
pub(crate) fn set_pool_props(
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

/// `zpool set` of a vdev. As in OpenZFS, the history gets the change but not the command line.
///
/// # Errors
/// The property cannot be set.
pub(crate) fn set_vdev_prop(
    search: &Search,
    name: &str,
    vdev: &Vdev,
    prop: VdevProp,
) -> Result<(), ChangeError> {
    if let VdevProp::Number("allocating", wanted) = prop {
        check_allocating(vdev, wanted != 0)?;
    }
    let pool = open_for_change(search, name)?;
    let outcome = pool.live().set_vdev_prop(VdevGuid(vdev.guid), prop);
    let closed = close(pool);
    outcome?;
    closed
}

/// The property `allocating` cannot be changed; setting it to its present value is accepted.
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

/// `zpool upgrade`, `zpool set feature@…=enabled`: enables features and their dependencies. Returns the features
/// that were not enabled before.
///
/// # Errors
/// A feature is not known.
pub(crate) fn enable_features(
    search: &Search,
    name: &str,
    features: &[&str],
    command: &str,
) -> Result<Vec<&'static str>, ChangeError> {
    change(search, name, command, |pool| Ok(pool.live().enable_features(features)?))
}

/// The vdev tree of an open pool's configuration, for checking additional vdevs.
pub(crate) fn config_tree(pool: &OpenPool) -> &VdevNode {
    &pool.pool().spa().config().vdev_tree
}

/// Vdevs to add to a pool.
#[derive(Debug, Clone)]
pub(crate) struct NewVdevs {
    /// The vdevs, already checked.
    pub layout: PoolLayout,
    /// Binary logarithm of their sector size. `None`: the pool's property `ashift`; `Some(0)`: chosen for the
    /// devices.
    pub ashift: Option<u8>,
    /// Objections that are overridden.
    pub allow: Allow,
}

/// `zpool add`.
///
/// # Errors
/// [`ChangeError`]; the pool is unchanged.
pub(crate) fn add_vdevs(
    search: &Search,
    name: &str,
    new: &NewVdevs,
    command: &str,
) -> Result<(), ChangeError> {
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
        // The labels of the new devices are written together with those of the others.
        live.release()?;
        if !devices.tops.is_empty() {
            live.add(devices.tops)?;
        }
        live.add_aux(AuxKind::Spare, devices.spares)?;
        Ok(live.add_aux(AuxKind::Cache, devices.cache)?)
    })
}

/// The pool's property `ashift`; 0: not set.
fn default_ashift(pool: &PoolWriter) -> Result<u8, ChangeError> {
    let view = pool.view()?;
    let value = view.spa().property("ashift").map_err(ChangeError::from)?;
    let number = value.flatten().and_then(|value| value.raw.number()).unwrap_or(0);
    Ok(u8::try_from(number).unwrap_or(0))
}

/// Checks that the new vdevs have the sector size of the pool's vdevs.
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

/// `zpool export`: the pool is not imported here any more, and any host may import it. Its file systems must have
/// been unmounted before.
///
/// # Errors
/// The pool does not exist or is in use, or its labels cannot be written.
pub(crate) fn export_pool(search: &Search, name: &str, command: &str) -> Result<(), ChangeError> {
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

/// Forgets a pool that was imported read-only, or whose devices are missing, without writing to it.
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

/// `zpool destroy`: marks the pool as destroyed in its labels. Its data stays until it is overwritten;
/// `zpool import -D` restores the pool until then.
///
/// # Errors
/// The pool does not exist or is in use, or its labels cannot be written.
pub(crate) fn destroy_pool(search: &Search, name: &str, command: &str) -> Result<(), ChangeError> {
    check_admin(search)?;
    if search.namespace.is_some() {
        return keep_open::close(search, name, Leave::Destroyed, command);
    }
    let found = search.run()?;
    let guid = find(&found, name)?;
    let pool = match open_found(&found, guid) {
        Ok(pool) => pool,
        // As in OpenZFS, the labels are not written, so the pool can be imported again.
        Err(error @ ChangeError::ImportedReadOnly) => return leave_unwritten(guid, error),
        Err(error) => return Err(error),
    };
    let config = pool.live().config();
    record(&pool, command)?;
    pool.destroy()?;
    forget(config.pool_guid)
}

/// `zpool set cachefile=`: moves the pool to another cache file (`none`: to none; empty: to the default one). It
/// stays imported.
///
/// # Errors
/// The pool does not exist, or a file cannot be written.
pub(crate) fn set_cachefile(
    search: &Search,
    name: &str,
    value: &str,
    command: &str,
) -> Result<(), ChangeError> {
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
            file.take(guid).map_err(AdminError::from)?;
        }
        Ok(settings)
    })?;
    if let Some((entry, _)) = search.namespace.as_ref().and_then(|namespace| namespace.entry(name)) {
        entry.set_settings(settings);
    }
    Ok(())
}

/// Names of the imported pools.
///
/// # Errors
/// The cache file cannot be read.
pub(crate) fn imported_names(search: &Search) -> Result<Vec<String>, ChangeError> {
    if let Some(namespace) = &search.namespace {
        return Ok(namespace.names());
    }
    Ok(Imported::load()?.pools.into_iter().map(|pool| pool.name).collect())
}

/// Names of the pools that a verb on all pools applies to: all that are found, except destroyed ones.
///
/// # Errors
/// The search fails.
pub(crate) fn found_names(search: &Search) -> Result<Vec<String>, ChangeError> {
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
