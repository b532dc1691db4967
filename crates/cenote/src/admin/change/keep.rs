//! Keeping pools open: what a namespace does with them beside what every verb does.
//!
//! # What always holds
//! - The labels of a pool that is kept say that this machine has it. So they say after a crash, and after
//!   [`Namespace::leave_all`]: the same machine then opens it again without being asked, others ask first.
//! - The cache file, and our own beside it, list what is to be opened again.

use super::pool_open::{find_device_holder, forget};
use super::{ChangeError, cache_path};
use crate::admin::cachefile::{self, ImportedPool};
use crate::admin::{Imported, Kept, Namespace, NotTaken, Search};
use crate::memory::Budget;
use crate::writer::{command as line, this_host};
use crate::{Pool, PoolWriter};
use ::pool::live::{ImportOptions, Leave};
use ::pool::{OpenOptions, Which};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use vdev::scan::Found;

/// How long an export waits for verbs that are at work on the pool.
const PATIENCE: Duration = Duration::from_secs(5);

/// How a pool is opened that stays open.
pub(super) fn options() -> ImportOptions {
    let Budget { cache_bytes, limits } = Budget::to_stay();
    let open = OpenOptions { cache_bytes, ..OpenOptions::default() };
    ImportOptions { open, limits, host: this_host(), ..ImportOptions::default() }
}

/// Names who has a device that cannot be opened alone.
pub(super) fn with_holder(error: ChangeError) -> ChangeError {
    let ChangeError::Busy { why } = &error else { return error };
    let holder = why.split_once(": ").and_then(|(path, _)| find_device_holder(Path::new(path)));
    match holder {
        Some((process, name)) => {
            ChangeError::Busy { why: format!("{why} ({name}, process {process}, has it)") }
        }
        None => error,
    }
}

/// Takes a pool out of the namespace: exports or destroys it.
pub(super) fn close(search: &Search, name: &str, how: Leave, command: &str) -> Result<(), ChangeError> {
    let namespace = search.namespace.as_ref().ok_or(ChangeError::NoPool)?;
    let is_suspended =
        |namespace: &Namespace| namespace.live(name).is_some_and(|live| live.suspended().is_some());
    if is_suspended(namespace) {
        return Err(ChangeError::Suspended);
    }
    let taken = namespace.take(name, PATIENCE).map_err(|why| match why {
        NotTaken::Missing => ChangeError::NoPool,
        NotTaken::Busy => ChangeError::InUse,
    })?;
    let caller = search.caller.clone().unwrap_or_else(crate::admin::Caller::this_process);
    if let Kept::Live(live) = taken.entry().kept() {
        live.record(line(command, &caller))?;
    }
    taken.close(|entry| {
        let guid = entry.guid();
        if let Kept::Live(live) = entry.kept() {
            let live = Arc::clone(live);
            drop(entry);
            live.export(how)?;
        }
        forget(guid)
    })
}

impl Namespace {
    /// Opens the pools again that a cache file lists, the usual one if none is named, and those that were
    /// imported without one since the machine was started. Returns the names of those that cannot be opened, and why.
    pub fn import_all(self: &Arc<Self>, cachefile: Option<&Path>) -> Vec<(String, ChangeError)> {
        self.import_listed(cachefile, |_| true)
    }

    /// Opens those of them whose devices are all there, by their names; the others may be waiting for a file system that
    /// holds these.
    pub fn import_whole(self: &Arc<Self>) -> Vec<(String, ChangeError)> {
        self.import_listed(None, |pool| pool.paths().all(|path| path.exists()))
    }

    fn import_listed(
        self: &Arc<Self>,
        cachefile: Option<&Path>,
        is_wanted: impl Fn(&ImportedPool) -> bool,
    ) -> Vec<(String, ChangeError)> {
        let listed = match cachefile {
            Some(file) if file != cache_path() => cachefile::read(file, false),
            _ => Imported::load(),
        };
        let pools = match listed {
            Ok(imported) => imported.pools.into_iter().filter(is_wanted).collect::<Vec<_>>(),
            Err(error) => return vec![("cache file".to_owned(), error.into())],
        };
        let paths: Vec<PathBuf> =
            pools.iter().flat_map(ImportedPool::paths).filter(|path| path.exists()).collect();
        let search = |paths| vdev::scan::Search { paths, ..vdev::scan::Search::default() }.run();
        let known = if paths.is_empty() { Found::default() } else { search(paths) };
        let mut everywhere = None;
        let mut failed = Vec::new();
        for pool in &pools {
            if self.has(pool.guid) {
                continue;
            }
            let mut outcome = self.bring_back(pool, &known);
            if matches!(outcome, Err(ChangeError::NoPool | ChangeError::Unavailable)) {
                // Disks may have other names than when the file was written.
                let found = everywhere.get_or_insert_with(|| search(Vec::new()));
                outcome = self.bring_back(pool, found).or(outcome);
            }
            if let Err(error) = outcome {
                failed.push((pool.name.clone(), error));
            }
        }
        failed
    }

    fn bring_back(self: &Arc<Self>, pool: &ImportedPool, found: &Found) -> Result<(), ChangeError> {
        let reserved = self.reserve(&pool.name).ok_or(ChangeError::Exists)?;
        let mut options = options();
        options.open.allow_missing_logs = pool.without_logs;
        options.open.checkpoint = pool.settings.checkpoint;
        options.open.name = Some(pool.name.clone()).filter(|_| pool.settings.temporary);
        if pool.settings.readonly {
            let opened = ::pool::Pool::open(found.clone(), &Which::Guid(pool.guid), &options.open)?;
            reserved.fill(Kept::Shown(Pool::from(opened), found.clone()), pool.settings.clone());
            return Ok(());
        }
        let writer =
            PoolWriter::import(found, pool.guid, &options).map_err(|error| with_holder(error.into()))?;
        reserved.fill(Kept::Live(writer.into_live()), pool.settings.clone());
        Ok(())
    }

    /// Lets go of all pools, so that the next start opens them again: everything is on disk, and nothing else has
    /// changed. What is mounted was unmounted before. Returns what could not be written.
    pub fn leave_all(self: &Arc<Self>) -> Vec<(String, ChangeError)> {
        let leave = |name: String| self.leave(&name).err().map(|error| (name, error));
        self.names().into_iter().filter_map(leave).collect()
    }

    /// The same for one pool; nothing happens if there is none of that name.
    ///
    /// # Errors
    /// What could not be written; the pool is gone from here all the same.
    pub fn leave(self: &Arc<Self>, name: &str) -> Result<(), ChangeError> {
        let Some(taken) = self.take_whatever(name, PATIENCE) else { return Ok(()) };
        taken.close(|entry| match entry.kept() {
            Kept::Live(live) => Arc::clone(live).export(Leave::Imported).map_err(ChangeError::from),
            Kept::Shown(..) => Ok(()),
        })
    }
}
