//! Verbs on a pool that exists: adding vdevs, setting properties, enabling features, exporting, destroying.
//!
//! Each opens the pool, does its work, writes the command into the history and exports the pool again.

use super::pool_devices::{Allow, open_devices};
use super::pool_layout::{LayoutClass, PoolLayout};
use super::pool_open::{Listing, close, find, forget, listed_now, open_found};
use super::{ChangeError, open_for_change};
use crate::PoolWriter;
use crate::admin::{Imported, OpenPool, Search};
use ::pool::live::AuxKind;
use format::config::VdevNode;
use vdev::scan::Found;

/// Opens a pool for a verb, does the verb's work, notes the command and exports the pool. If the work fails,
/// nothing is noted.
fn change<T>(
    search: &Search,
    name: &str,
    command: &str,
    work: impl FnOnce(&PoolWriter) -> Result<T, ChangeError>,
) -> Result<T, ChangeError> {
    let pool = open_for_change(search, name)?;
    let outcome = work(&pool);
    if outcome.is_ok() {
        pool.record(command)?;
    }
    let closed = close(pool);
    let done = outcome?;
    closed?;
    Ok(done)
}

/// `zpool sync`: brings everything to disk.
///
/// # Errors
/// If the pool cannot be opened for change.
pub fn sync_pool(search: &Search, name: &str) -> Result<(), ChangeError> {
    let pool = open_for_change(search, name)?;
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
    change(search, name, command, |pool| Ok(pool.live().set_props(props.to_vec())?))
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
    let config = pool.config();
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

/// `zpool export`: the pool is no longer imported here, and any machine may have it.
///
/// # Errors
/// If there is no such pool, or its labels cannot be written.
pub fn export_pool(search: &Search, name: &str, command: &str) -> Result<(), ChangeError> {
    let found = search.run()?;
    let guid = find(&found, name)?;
    let pool = match open_found(&found, guid) {
        Ok(pool) => pool,
        // It was imported for reading: there is nothing to write.
        Err(ChangeError::ReadOnly { .. }) if forget_guid(guid)? => return Ok(()),
        Err(error) => return Err(error),
    };
    let config = pool.config();
    pool.record(command)?;
    pool.close()?;
    forget(&config)
}

fn forget_guid(guid: format::PoolGuid) -> Result<bool, ChangeError> {
    let path = super::cache_path();
    let file = ::pool::live::CacheFile::at(&path);
    let pools = file.pools().map_err(|e| crate::admin::AdminError::CacheFile {
        path: e.path.display().to_string(),
        why: e.why,
    })?;
    match pools.iter().find(|config| config.pool_guid == guid) {
        Some(config) => forget(config).map(|()| true),
        None => Ok(false),
    }
}

/// `zpool destroy`: the labels say that the pool is not wanted any more. What it holds is still there, and
/// `zpool import -D` brings it back until something else is written.
///
/// # Errors
/// If there is no such pool, or its labels cannot be written.
pub fn destroy_pool(search: &Search, name: &str, command: &str) -> Result<(), ChangeError> {
    let pool = open_for_change(search, name)?;
    let config = pool.config();
    pool.record(command)?;
    pool.destroy()?;
    forget(&config)
}

/// `zpool set cachefile=`: lists the pool in another cache file, or in none. Only the usual one makes it
/// imported.
///
/// # Errors
/// If there is no such pool, or a file cannot be written.
pub fn set_listing(search: &Search, name: &str, listing: &Listing, command: &str) -> Result<(), ChangeError> {
    let config = change(search, name, command, listed_now)?;
    if *listing != Listing::Usual {
        forget(&config)?;
    }
    listing.put(&config)
}

/// The names of the pools that are imported.
///
/// # Errors
/// If the cache file cannot be read.
pub fn imported_names() -> Result<Vec<String>, ChangeError> {
    Ok(Imported::load()?.pools.into_iter().map(|pool| pool.name).collect())
}

/// The names of all pools that verbs on all pools are for: those that are found, destroyed ones left out.
///
/// # Errors
/// If looking for them fails.
pub fn found_names(search: &Search) -> Result<Vec<String>, ChangeError> {
    let found: Found = search.run()?;
    let mut names: Vec<String> = crate::admin::labelled(&found).into_iter().map(|pool| pool.name).collect();
    names.sort();
    names.dedup();
    Ok(names)
}
