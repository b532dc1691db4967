//! Finds pools, opens them for change, and maintains the cache files.
//!
//! # What always holds
//! - A pool is imported if the cache file, or our own file beside it, lists it. It stays imported while commands
//!   open it, make their changes and close it.
//! - A pool that was imported read-only is not opened for change.
//! - With a namespace only its pools are used: they are open already, and stay open.

use super::ChangeError;
use super::device_holder::with_holder;
use super::state::{cache_path, prepare_folder};
use crate::cachefile::{AUX, IN_PROCESS, ImportedPool, WITHOUT_LOGS};
use crate::{AdminError, Caller, ImportSettings, Imported, Search, import_settings, labelled};
use ::pool::OpenOptions;
use ::pool::{CacheFile, CacheFileError, CacheFileFailure, ImportOptions};
use cenote::Budget;
use cenote::this_host;
use cenote::{Error, PoolWriter};
use format::PoolGuid;
use format::config::PoolConfig;
use format::nvlist::NvValue;
use std::path::Path;
use std::sync::{Mutex, MutexGuard};
use vdev::scan::Found;
use vdev::sync::lock;

/// Import options of a command. Labels are written only with the first change, so a refused command leaves the
/// devices unchanged.
pub(super) fn options() -> ImportOptions {
    let Budget { cache_bytes, limits } = Budget::of_command();
    let open = OpenOptions { cache_bytes, ..OpenOptions::default() };
    ImportOptions { open, limits, host: this_host(), hold: true, ..ImportOptions::default() }
}

/// Finds a pool as the reading verbs do, and opens it for change. If several pools have this name, the imported one
/// is opened.
///
/// # Errors
/// [`ChangeError`] if the pool does not exist or cannot be changed.
pub(crate) fn open_for_change(search: &Search, name: &str) -> Result<PoolWriter, ChangeError> {
    check_admin(search)?;
    open_writer(search, name)
}

/// Opens a pool for verbs that check the caller's permissions themselves.
pub(crate) fn open_writer(search: &Search, name: &str) -> Result<PoolWriter, ChangeError> {
    let pool = open_even_suspended(search, name)?;
    if pool.live().suspended().is_some() {
        return Err(ChangeError::Suspended);
    }
    Ok(pool)
}

/// Opens a pool, even a suspended one, for verbs that may resume it.
fn open_even_suspended(search: &Search, name: &str) -> Result<PoolWriter, ChangeError> {
    let Some(namespace) = &search.namespace else {
        let found = search.run()?;
        let guid = find(&found, name)?;
        return Ok(open_found(&found, guid)?.in_name_of(search.caller.as_ref()));
    };
    let Some(pool) = namespace.get(name) else {
        let is_there = namespace.settings(name).is_some();
        return Err(if is_there { ChangeError::ImportedReadOnly } else { ChangeError::NoPool });
    };
    Ok(pool.in_name_of(search.caller.as_ref()))
}

/// Opens a pool, runs a verb's `work`, writes the command into the history and closes the pool. If the work fails,
/// no history line is written.
pub(super) fn change<T>(
    search: &Search,
    name: &str,
    command: &str,
    work: impl FnOnce(&PoolWriter) -> Result<T, ChangeError>,
) -> Result<T, ChangeError> {
    change_then(search, name, command, work, |_| Ok(()))
}

/// Like [`change`], with further work after the command is in the history.
pub(super) fn change_then<T>(
    search: &Search,
    name: &str,
    command: &str,
    work: impl FnOnce(&PoolWriter) -> Result<T, ChangeError>,
    after: impl FnOnce(&PoolWriter) -> Result<(), ChangeError>,
) -> Result<T, ChangeError> {
    do_and_close(open_for_change(search, name)?, command, work, after)
}

/// Like [`change`], for verbs on devices: the pool may be suspended because of missing devices, and the work
/// resumes it or fails.
pub(super) fn change_even_suspended<T>(
    search: &Search,
    name: &str,
    command: &str,
    work: impl FnOnce(&PoolWriter) -> Result<T, ChangeError>,
) -> Result<T, ChangeError> {
    check_admin(search)?;
    do_and_close(open_even_suspended(search, name)?, command, work, scan_now)
}

/// Does all that background jobs have to do, in a pool that is open for this command only.
pub(super) fn scan_now(pool: &PoolWriter) -> Result<(), ChangeError> {
    if !pool.is_kept_open() {
        pool.live().work_to_end()?;
    }
    Ok(())
}

/// Writes a command line into the history of a pool; an empty line is not written.
pub(super) fn record(pool: &PoolWriter, command: &str) -> Result<(), ChangeError> {
    if command.is_empty() { Ok(()) } else { Ok(pool.record(command)?) }
}

fn do_and_close<T>(
    pool: PoolWriter,
    command: &str,
    work: impl FnOnce(&PoolWriter) -> Result<T, ChangeError>,
    after: impl FnOnce(&PoolWriter) -> Result<(), ChangeError>,
) -> Result<T, ChangeError> {
    let outcome = work(&pool).and_then(|done| {
        record(&pool, command)?;
        after(&pool)?;
        Ok(done)
    });
    let closed = close(pool);
    let done = outcome?;
    closed?;
    Ok(done)
}

/// Checks that the caller is an administrator, which verbs on pools need.
///
/// # Errors
/// [`ChangeError::Denied`] otherwise.
pub(crate) fn check_admin(search: &Search) -> Result<(), ChangeError> {
    if search.caller.as_ref().is_none_or(Caller::is_admin) { Ok(()) } else { Err(ChangeError::Denied) }
}

/// Opens a pool among the devices found. Its history is unchanged.
pub(super) fn open_found(found: &Found, guid: PoolGuid) -> Result<PoolWriter, ChangeError> {
    let mut options = options();
    if let Some(pool) = Imported::load()?.by_guid(guid) {
        if pool.settings.readonly {
            return Err(ChangeError::ImportedReadOnly);
        }
        options.open.allow_missing_logs = pool.without_logs;
        options.open.name = Some(pool.name.clone()).filter(|_| pool.settings.temporary);
    }
    PoolWriter::import(found, guid, &options).map_err(|error| with_holder(error.into()))
}

/// The guid of the pool with this name.
pub(super) fn find(found: &Found, name: &str) -> Result<PoolGuid, ChangeError> {
    let imported = Imported::load()?;
    let known = labelled(found, &imported);
    let same: Vec<PoolGuid> =
        known.into_iter().filter(|pool| pool.name == name).map(|pool| pool.guid).collect();
    match &same[..] {
        [] => Err(ChangeError::NoPool),
        [one] => Ok(*one),
        several => {
            let listed: Vec<_> =
                several.iter().filter(|guid| imported.by_guid(**guid).is_some()).copied().collect();
            if let [one] = listed[..] { Ok(one) } else { Err(ChangeError::Ambiguous) }
        }
    }
}

/// The configuration as the cache file stores it: with spares and cache devices, so that they are found again.
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

/// Marks a cache file entry as imported with missing log devices.
pub(super) fn without_logs(mut config: PoolConfig) -> PoolConfig {
    config.raw.remove(WITHOUT_LOGS);
    config.raw.push(WITHOUT_LOGS, 1_u64);
    config
}

/// Marks a cache file entry as created or imported by a command in its own process.
pub(super) fn in_process(mut config: PoolConfig) -> PoolConfig {
    config.raw.remove(IN_PROCESS);
    config.raw.push(IN_PROCESS, 1_u64);
    config
}

/// The configuration of a pool that is open for change, as the cache file stores it.
pub(super) fn listed_now(pool: &PoolWriter) -> Result<PoolConfig, ChangeError> {
    listed(pool.live().config(), pool.view()?.spa())
}

/// Records a pool as imported, with its settings: in the cache file that is to list it, and in our own file.
/// `config` has the name under which it is imported. The pool is in one of the files at every moment: the new entry
/// is written before the old one is removed.
pub(super) fn note(config: &PoolConfig, settings: &ImportSettings) -> Result<(), ChangeError> {
    let usual = CacheFile::at(cache_path());
    if settings.is_listed() {
        prepare_folder(usual.path()).map_err(|e| broken(usual.path(), e))?;
        usual.put(config).map_err(AdminError::from)?;
    }
    if let Some(file) = settings.other_file() {
        file.put(config).map_err(AdminError::from)?;
    }
    import_settings::put(config.clone(), settings)?;
    if settings.is_listed() {
        return Ok(());
    }
    Ok(usual.take(config.pool_guid).map_err(AdminError::from)?)
}

/// Removes the entries that a failed [`note`] has written: the pool is not imported, so no file may list it.
pub(super) fn unnote(guid: PoolGuid, settings: &ImportSettings) {
    let files = [
        Some(CacheFile::at(cache_path())),
        settings.other_file(),
        Some(CacheFile::at(import_settings::path())),
    ];
    for file in files.into_iter().flatten() {
        // Continues with the other files; the error is logged.
        if let Err(error) = file.take(guid) {
            tracing::warn!(%error, "a pool that was not imported stays in a cache file");
        }
    }
}

/// Updates the entry of an imported pool. An error is only logged: the pool itself has changed already, and its old
/// entry still leads to it.
fn refresh(config: &PoolConfig) {
    let refresh = || {
        let _noting = noting();
        let imported = Imported::load()?;
        let known = imported.by_guid(config.pool_guid);
        known.map_or(Ok(()), |known| note_again(known, &known.settings, config.clone()))
    };
    warn_of(refresh());
}

/// Logs that the cache files could not be updated.
pub(super) fn warn_of(outcome: Result<(), ChangeError>) {
    if let Err(error) = outcome {
        tracing::warn!(%error, "a cache file is not up to date");
    }
}

/// Serializes the comparing and updating of cache files. The lock is not held while waiting for a pool.
pub(super) fn noting() -> MutexGuard<'static, ()> {
    static NOTING: Mutex<()> = Mutex::new(());
    lock(&NOTING)
}

/// Updates the entry of a listed pool, with these settings.
pub(super) fn note_again(
    pool: &ImportedPool,
    settings: &ImportSettings,
    mut config: PoolConfig,
) -> Result<(), ChangeError> {
    if settings.temporary {
        config.name.clone_from(&pool.name);
    }
    if pool.without_logs {
        config = without_logs(config);
    }
    if pool.in_process {
        config = in_process(config);
    }
    note(&config, settings)
}

/// Removes all entries of a pool that is no longer imported.
pub(super) fn forget(guid: PoolGuid) -> Result<(), ChangeError> {
    let imported = Imported::load()?;
    let Some(pool) = imported.by_guid(guid) else { return Ok(()) };
    let usual = CacheFile::at(cache_path());
    let files = [Some(usual), pool.settings.other_file(), Some(CacheFile::at(import_settings::path()))];
    for file in files.into_iter().flatten() {
        file.take(guid).map_err(AdminError::from)?;
    }
    Ok(())
}

fn broken(path: &Path, error: std::io::Error) -> ChangeError {
    AdminError::from(CacheFileError { path: path.to_path_buf(), why: CacheFileFailure::Io(error) }).into()
}

/// Closes a pool after a change and updates its entry.
pub(super) fn close(pool: PoolWriter) -> Result<(), ChangeError> {
    let config = listed_now(&pool);
    pool.close().map_err(|e: Error| ChangeError::from(e))?;
    refresh(&config?);
    Ok(())
}
