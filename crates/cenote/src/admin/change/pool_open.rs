//! Finding a pool and opening it for change; keeping the cache file.
//!
//! # What always holds
//! - A pool is imported if the cache file lists it, and stays so over any number of commands, each of which
//!   opens it, does its work and exports it again.

use super::ChangeError;
use super::state::{cache_path, prepare_folder};
use crate::admin::cachefile::{AUX, WITHOUT_LOGS};
use crate::admin::{AdminError, Imported, Search, labelled};
use crate::writer::this_host;
use crate::{Error, PoolWriter};
use ::pool::OpenOptions;
use ::pool::live::{CacheFile, CacheFileError, ImportOptions};
use format::PoolGuid;
use format::config::PoolConfig;
use format::nvlist::NvValue;
use std::path::{Path, PathBuf};
use vdev::scan::Found;

/// Bytes of block cache of a pool that a command changes.
const CACHE: usize = 128 << 20;

/// How a command opens a pool.
pub(super) fn options() -> ImportOptions {
    let open = OpenOptions { cache_bytes: CACHE, ..OpenOptions::default() };
    ImportOptions { open, host: this_host(), ..ImportOptions::default() }
}

/// Finds the pool of this name as the verbs that read do, and opens it for change. Of several pools of one
/// name the one that is imported counts.
///
/// # Errors
/// [`ChangeError`] if there is none, or it cannot be changed.
pub fn open_for_change(search: &Search, name: &str) -> Result<PoolWriter, ChangeError> {
    let found = search.run()?;
    let guid = find(&found, name)?;
    open_found(&found, guid)
}

/// Opens a pool among devices that were found. Leaves its history as it is.
pub(super) fn open_found(found: &Found, guid: PoolGuid) -> Result<PoolWriter, ChangeError> {
    let mut options = options();
    options.open.allow_missing_logs = Imported::load()?.by_guid(guid).is_some_and(|pool| pool.without_logs);
    Ok(PoolWriter::import(found, guid, &options)?)
}

/// The pool of this name.
pub(super) fn find(found: &Found, name: &str) -> Result<PoolGuid, ChangeError> {
    let same: Vec<PoolGuid> =
        labelled(found).into_iter().filter(|pool| pool.name == name).map(|pool| pool.guid).collect();
    match &same[..] {
        [] => Err(ChangeError::NoPool),
        [one] => Ok(*one),
        several => {
            let imported = Imported::load()?;
            let listed: Vec<_> =
                several.iter().filter(|guid| imported.by_guid(**guid).is_some()).copied().collect();
            if let [one] = listed[..] { Ok(one) } else { Err(ChangeError::Ambiguous) }
        }
    }
}

/// Which cache file lists a pool.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Listing {
    /// That of this machine or user.
    #[default]
    Usual,
    /// Another one.
    File(PathBuf),
    /// None: the pool is not imported once the command has ended.
    Nowhere,
}

impl Listing {
    /// From the property `cachefile`.
    pub fn of_property(value: &str) -> Listing {
        match value {
            "" => Listing::Usual,
            "none" => Listing::Nowhere,
            path => Listing::File(PathBuf::from(path)),
        }
    }

    /// Puts a pool into the file.
    pub(super) fn put(&self, config: &PoolConfig) -> Result<(), ChangeError> {
        match self {
            Listing::Usual => {
                let path = cache_path();
                prepare_folder(&path).map_err(|e| broken(&path, &e))?;
                CacheFile::at(path).put(config).map_err(|e| cache(&e))
            }
            Listing::File(path) => CacheFile::at(path).put(config).map_err(|e| cache(&e)),
            Listing::Nowhere => Ok(()),
        }
    }
}

/// The configuration as the cache file has it: spares and cache devices come along, so that they are found.
pub(super) fn listed(mut config: PoolConfig, view: &::pool::Pool) -> Result<PoolConfig, ChangeError> {
    let [spares, caches] = AUX;
    for (key, list) in [(spares, view.spares()?), (caches, view.cache_devices()?)] {
        config.raw.remove(key);
        if !list.is_empty() {
            let list = list.iter().map(|aux| aux.node.to_aux_nvlist()).collect();
            config.raw.push(key, NvValue::ListArray(list));
        }
    }
    Ok(config)
}

/// The same of a pool that is imported although log devices are missing.
pub(super) fn without_logs(mut config: PoolConfig) -> PoolConfig {
    config.raw.remove(WITHOUT_LOGS);
    config.raw.push(WITHOUT_LOGS, 1_u64);
    config
}

/// The same of a pool that is open for change.
pub(super) fn listed_now(pool: &PoolWriter) -> Result<PoolConfig, ChangeError> {
    listed(pool.config(), pool.view()?.spa())
}

/// Brings the entry of a pool up to date, if it has one.
pub(super) fn refresh(config: &PoolConfig) -> Result<(), ChangeError> {
    match Imported::load()?.by_guid(config.pool_guid) {
        Some(pool) if pool.without_logs => Listing::Usual.put(&without_logs(config.clone())),
        Some(_) => Listing::Usual.put(config),
        None => Ok(()),
    }
}

/// Takes a pool out of the cache file.
pub(super) fn forget(config: &PoolConfig) -> Result<(), ChangeError> {
    let path = cache_path();
    if !path.exists() || Imported::load()?.by_guid(config.pool_guid).is_none() {
        return Ok(());
    }
    CacheFile::at(path).take(config).map_err(|e| cache(&e))
}

fn broken(path: &Path, error: &std::io::Error) -> ChangeError {
    AdminError::CacheFile { path: path.display().to_string(), why: super::errno_text(error) }.into()
}

fn cache(error: &CacheFileError) -> ChangeError {
    AdminError::CacheFile { path: error.path.display().to_string(), why: error.why.clone() }.into()
}

/// Closes a pool that was changed.
pub(super) fn close(pool: PoolWriter) -> Result<(), ChangeError> {
    let config = listed_now(&pool);
    pool.close().map_err(|e: Error| ChangeError::from(e))?;
    let config = config?;
    refresh(&config)
}
