//! Administration of pools as data: sessions, the namespace of imported pools, mounting, and one module a verb
//! ([`verbs`]). Nothing is printed and nothing formatted: the commands make text, tables and JSON of it.
//!
//! # What always holds
//! - A pool that was found but cannot be opened is reported as a [`Problem`]; it is never skipped silently.
//! - Numbers keep their stored units: bytes, seconds since 1970, ratios in hundredths, index values.
//!
//! Layouts and texts: docs/on-disk/33-cli.md. Tests: `crates/admin/tests`, and `crates/cli/tests` against what
//! OpenZFS prints.
#![forbid(unsafe_code)]

mod cachefile;
pub mod change;
mod data;
mod datasets;
pub mod debug;
mod diagnosis;
pub mod diff;
pub mod edit;
mod file_ops;
mod identity;
mod import_settings;
mod iostat;
mod kstat;
mod methods;
pub mod mounting;
mod mounts;
mod namespace;
mod pool_props;
pub mod replicate;
pub mod served;
mod session;
mod status;
mod tree;
mod tunables;
mod users;
mod vdev_props;
pub mod verbs;

pub(crate) use ::pool::import::{Candidate, CandidateVdev};
pub use cachefile::{Imported, ImportedPool};
pub use cenote::Caller;
pub use data::*;
pub use file_ops::{FILE_OPS, FileOp, FileOps};
pub use identity::names as owner_names;
pub use import_settings::ImportSettings;
pub(crate) use iostat::pool_io;
pub use iostat::{
    IoStats, Op, PRIORITIES, PoolIo, Priority, SIZE_BUCKETS, Sizes, TIME_BUCKETS, Times, VdevIo,
};
pub use kstat::Kstats;
pub use methods::PoolVerbs;
pub use mounts::{
    ADMIN_SNAPSHOT, AccessTimes, DIO_ENABLED, MountError, MountOptions, Mounted, MountedByHand, Mounts,
    NotWritten, Suspended, Unmount,
};
pub use namespace::Namespace;
pub(crate) use namespace::{NotTaken, Opened};
pub(crate) use pool_props::pool_property;
pub use session::{CloseError, ProgressListener, Session, Writer};
pub use status::settle;
pub(crate) use tree::{find_vdev, vdevs};
pub use tunables::{ParameterError, Tunable, set_tunables, tunable, tunables};
#[doc(hidden)] // For the server: locks that outlive a panic.
pub use vdev::sync;

use ::pool::{CacheFileError, OpenOptions, Which};
use cenote::error::chain;
use cenote::{Error, Pool, PoolWriter};
use format::PoolGuid;
use format::config::{PoolConfig, PoolState};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use vdev::scan::Found;
use vdev::{Devices, Env};
use verbs::{Code, Reason};

/// Host id of this machine, 0 if it has none.
fn host_id() -> u64 {
    cenote::this_host().id
}

/// Bytes of block cache for each pool that a listing opens: metadata only is read.
const LISTING_CACHE: usize = 32 << 20;

/// Where pools are searched for, and on whose behalf verbs run.
#[derive(Debug, Clone, Default)]
pub struct Search {
    /// Directories, devices and image files to search. If empty, all block devices of the machine are searched.
    pub paths: Vec<PathBuf>,
    /// Find only destroyed pools (`zpool import -D`).
    pub destroyed: bool,
    /// Take the pools and their devices from this cache file instead of searching for them.
    pub cachefile: Option<PathBuf>,
    /// Encryption keys to load when a pool is opened: name of the encryption root, and the contents of its
    /// `keylocation`.
    pub keys: Vec<(String, Vec<u8>)>,
    /// The pools that this process keeps open, which verbs use instead of opening devices. `None`: each verb opens
    /// its pool and closes it.
    pub namespace: Option<Arc<Namespace>>,
    /// The user on whose behalf verbs run. `None`: the user of this process.
    pub caller: Option<Caller>,
    /// Source of the devices; by default, the machine.
    pub devices: Devices,
}

impl Search {
    /// The search that the environment variables describe: `CENOTE_DEVICES` (one path per line), else
    /// `ZPOOL_IMPORT_PATH` (paths separated by colons), else all block devices.
    pub fn from_env() -> Search {
        Search { paths: vdev::scan::Search::from_environment().paths, ..Search::default() }
    }

    fn run(&self) -> Result<Found, AdminError> {
        // Paths are made absolute, because the working directory of the command may not be ours.
        let absolute = |path: &PathBuf| std::path::absolute(path).unwrap_or_else(|_| path.clone());
        let mut paths: Vec<PathBuf> = self.paths.iter().map(absolute).collect();
        let env = Env::system().with_devices(self.devices.clone());
        let search = |paths| vdev::scan::Search { paths, env: env.clone(), ..Default::default() }.run();
        if let Some(file) = &self.cachefile {
            let listed = cachefile::device_paths(file)?;
            paths.extend(listed.paths.iter().cloned());
            if paths.is_empty() {
                return Ok(Found::default());
            }
            let mut found = search(paths);
            found.leaves.retain(|leaf| listed.has(leaf));
            // What else is in those folders is not told.
            found.problems.clear();
            return Ok(found);
        }
        let is_default = paths.is_empty();
        let mut found = search(paths);
        if is_default {
            // A search of block devices does not find image files: the cache file tells where they are.
            let known = |path: &PathBuf| found.leaves.iter().any(|leaf| leaf.path == *path);
            let imported = Imported::load()?;
            let paths = imported.pools.iter().flat_map(ImportedPool::paths);
            let is_there = |path: &PathBuf| self.devices.identity(path).is_some();
            let others: Vec<PathBuf> = paths.filter(|path| is_there(path) && !known(path)).collect();
            if !others.is_empty() {
                let more = search(others);
                found.leaves.extend(more.leaves);
                found.problems.extend(more.problems);
            }
        }
        Ok(found)
    }
}

/// A pool or device that could not be opened or looked at. A verb that reads several goes on with the others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// Name of the pool or dataset, or path of the device.
    pub what: String,
    /// Why.
    pub reason: Reason,
}

impl Problem {
    fn new(what: impl Into<String>, why: impl std::fmt::Display) -> Problem {
        Problem { what: what.into(), reason: Reason::new(Code::Failed, why) }
    }

    /// A pool that was asked for by name was not found at all.
    fn missing_pool(name: &str) -> Problem {
        let reason = Reason { about: vec![name.to_owned()], ..Reason::new(Code::NoPool, "no such pool") };
        Problem { what: name.to_owned(), reason }
    }

    /// True if the pool was requested by name and was not found.
    pub fn is_missing_pool(&self) -> bool {
        self.reason.code == Code::NoPool
    }
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "cannot open '{}': {}", self.what, self.reason)
    }
}

/// Error of a verb or listing that only reads.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AdminError {
    /// The start of a `zfs diff` is not an earlier snapshot of the same file system.
    #[error("'{name}' is not an earlier snapshot from the same fs")]
    NotEarlier {
        /// Name of the rejected start.
        name: String,
    },
    /// No open pool has this name.
    #[error("no such pool")]
    NoPool {
        /// Name of the pool.
        name: String,
    },
    /// No dataset has this name.
    #[error("dataset does not exist")]
    NoDataset {
        /// Full name of the dataset.
        name: String,
    },
    /// The name is not valid for a dataset.
    #[error("{why}")]
    BadName {
        /// The rejected name.
        name: String,
        /// The rule that it breaks.
        why: &'static str,
    },
    /// The path is not below the mount point of any open pool's file system.
    #[error("not a ZFS filesystem")]
    NotInPool {
        /// The path as it was given.
        path: String,
    },
    /// The verb needs a file system and was given another kind of dataset.
    #[error("operation not applicable to datasets of this type")]
    NotAFilesystem {
        /// Name of the dataset.
        name: String,
    },
    /// A cache file that cannot be read, decoded or written.
    #[error(transparent)]
    CacheFile(#[from] CacheFileError),
    /// A layer below failed; the message contains the whole chain of causes.
    #[error("{}", chain(.0))]
    Cenote(Box<Error>),
}

impl From<Error> for AdminError {
    fn from(error: Error) -> AdminError {
        AdminError::Cenote(Box::new(error))
    }
}

/// A pool that a listing has opened, and the devices that were found during its search.
pub struct OpenPool {
    pub(crate) pool: Pool,
    pub(crate) found: Found,
    /// Name under which the pool is imported here.
    pub(crate) name: String,
    /// Settings of its import.
    pub(crate) settings: Arc<ImportSettings>,
    /// Value of the property `load_guid`: a random number for each import.
    pub(crate) load_guid: u64,
    /// Its mounts, by dataset name. `None`: the mounts are not known.
    pub(crate) mounted: Option<Arc<BTreeMap<String, Mounted>>>,
}

impl OpenPool {
    /// A pool that is open for writing, as of the last txg on disk.
    fn of(pool: &PoolWriter) -> Result<OpenPool, Problem> {
        let view = pool.view().map_err(|error| Problem::new(pool.name(), chain(&error)))?;
        Ok(OpenPool {
            pool: view,
            found: Found::default(),
            name: pool.name().to_owned(),
            settings: Arc::default(),
            load_guid: namespace::draw(),
            mounted: None,
        })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The pool, open for reading.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }
}

/// Opens pools for reading: those in `names`, or, if `names` is empty, all pools found that are not destroyed. With
/// a namespace these are its imported pools, as of the last txg on disk. The second value lists what could not be
/// opened or examined.
pub fn open_pools(search: &Search, names: &[String]) -> (Vec<OpenPool>, Vec<Problem>) {
    if let Some(namespace) = &search.namespace {
        return show_pools(namespace, search, names);
    }
    let found = match search.run() {
        Ok(found) => found,
        Err(e) => return (Vec::new(), vec![Problem::new("cache file", e)]),
    };
    let mut problems = device_problems(&found);
    let imported = match Imported::load() {
        Ok(imported) => imported,
        Err(e) => return (Vec::new(), vec![Problem::new("cache file", e)]),
    };
    let known = labelled(&found, &imported);
    let mut wanted: Vec<String> = match names {
        [] => known.iter().map(|c| c.name.clone()).collect(),
        names => names.to_vec(),
    };
    wanted.sort();
    wanted.dedup();
    let mut pools = Vec::new();
    for name in wanted {
        match open_one(&found, &known, &imported, &name) {
            Ok(pool) => {
                problems.extend(load_keys(&pool, search));
                pools.push(pool);
            }
            Err(problem) => {
                problems.extend(label_damage(&found, &name));
                problems.push(problem);
            }
        }
    }
    (pools, problems)
}

/// Opens pools of a namespace for reading.
fn show_pools(namespace: &Namespace, search: &Search, names: &[String]) -> (Vec<OpenPool>, Vec<Problem>) {
    let mut wanted = if names.is_empty() { namespace.names() } else { names.to_vec() };
    wanted.sort();
    wanted.dedup();
    let (mut pools, mut problems) = (Vec::new(), Vec::new());
    for name in wanted {
        match show_one(namespace, &name) {
            Ok(pool) => {
                problems.extend(load_keys(&pool, search));
                pools.push(pool);
            }
            // One of all that has just gone is not missed.
            Err(problem) if problem.is_missing_pool() && names.is_empty() => {}
            Err(problem) => problems.push(problem),
        }
    }
    (pools, problems)
}

fn show_one(namespace: &Namespace, name: &str) -> Result<OpenPool, Problem> {
    let (entry, user) = namespace.entry(name).ok_or_else(|| Problem::missing_pool(name))?;
    let (pool, found) = match entry.opened() {
        Opened::Live(live) => {
            let view = live.view().map_err(|error| Problem::new(name, chain(&error)))?;
            (Pool::from(view), Found::default())
        }
        Opened::ReadOnly(pool, found) => (pool.clone(), found.clone()),
    };
    let pool = pool.used_by(Some(Arc::new(user)));
    let mounts = namespace.mounts().map(|mounts| mounts.list());
    let mounted = mounts.map(|all| Arc::new(all.into_iter().map(|m| (m.dataset.clone(), m)).collect()));
    let (settings, load_guid) = (entry.settings(), entry.load_guid());
    Ok(OpenPool { pool, found, name: name.to_owned(), settings, load_guid, mounted })
}

/// A pool described by device labels.
struct Labelled {
    guid: PoolGuid,
    name: String,
}

/// The pools on the devices that were found, without destroyed pools. The newest label of each pool decides. A pool
/// that was imported under a temporary name has that name.
fn labelled(found: &Found, imported: &Imported) -> Vec<Labelled> {
    let mut newest = BTreeMap::new();
    for config in found.leaves.iter().filter_map(|leaf| leaf.probe.newest_config()) {
        let at = newest.entry(config.pool_guid).or_insert(config);
        if config.txg > at.txg {
            *at = config;
        }
    }
    let usable =
        newest.into_values().filter(|c| !c.is_aux() && c.state != PoolState::Destroyed && c.txg.0 > 0);
    let name = |config: &PoolConfig| {
        let temporary = imported.by_guid(config.pool_guid).filter(|pool| pool.settings.temporary);
        temporary.map_or_else(|| config.name.clone(), |pool| pool.name.clone())
    };
    usable.map(|c| Labelled { guid: c.pool_guid, name: name(c) }).collect()
}

fn open_one(found: &Found, known: &[Labelled], imported: &Imported, name: &str) -> Result<OpenPool, Problem> {
    let same: Vec<&Labelled> = known.iter().filter(|c| c.name == name).collect();
    let guid = match &same[..] {
        [] => return Err(Problem::missing_pool(name)),
        [one] => one.guid,
        several => {
            let listed: Vec<_> = several.iter().filter(|c| imported.by_guid(c.guid).is_some()).collect();
            if let [one] = listed[..] {
                one.guid
            } else {
                let guids: Vec<String> = several.iter().map(|c| c.guid.to_string()).collect();
                let why = format!("more than one pool has this name: {}", guids.join(", "));
                return Err(Problem::new(name, why));
            }
        }
    };
    let imported = imported.by_guid(guid);
    let settings = Arc::new(imported.map(|pool| pool.settings.clone()).unwrap_or_default());
    let options = OpenOptions {
        cache_bytes: LISTING_CACHE,
        allow_missing_logs: imported.is_some_and(|pool| pool.without_logs),
        checkpoint: settings.checkpoint,
        name: Some(name.to_owned()),
        ..OpenOptions::default()
    };
    match ::pool::Pool::open(found.clone(), &Which::Guid(guid), &options) {
        Ok(pool) => {
            let (pool, found, name) = (Pool::from(pool), found.clone(), name.to_owned());
            Ok(OpenPool { pool, found, name, settings, load_guid: namespace::draw(), mounted: None })
        }
        Err(e) => Err(Problem::new(name, chain(&e))),
    }
}

/// Loads the keys given for datasets of this pool. Returns a problem for each key that could not be loaded.
fn load_keys(pool: &OpenPool, search: &Search) -> Vec<Problem> {
    let in_pool = |name: &str| name.split(['/', '@']).next() == Some(pool.name());
    let keys = search.keys.iter().filter(|(dataset, _)| in_pool(dataset));
    let wrong =
        keys.filter_map(|(dataset, material)| Some((dataset, pool.pool.load_key(dataset, material).err()?)));
    // A pool that stays open keeps the keys of earlier commands.
    let is_loaded = |error: &cenote::Error| {
        matches!(error, cenote::Error::Dsl(dsl::DslError::Key(dsl::KeyError::AlreadyLoaded { .. })))
    };
    wrong
        .filter(|(_, error)| !is_loaded(error))
        .map(|(dataset, error)| Problem::new(dataset, chain(&error)))
        .collect()
}

/// Devices that could not be examined. Damage to some of a device's four labels is not reported while another of
/// its labels is valid.
fn device_problems(found: &Found) -> Vec<Problem> {
    let is_leaf = |path: &PathBuf| found.leaves.iter().any(|leaf| leaf.path == *path);
    let lost = found.problems.iter().filter(|(path, _)| !is_leaf(path));
    lost.map(|(path, why)| Problem::new(path.display().to_string(), why)).collect()
}

/// Damaged labels of a pool's devices; reported when the pool cannot be opened.
fn label_damage(found: &Found, pool: &str) -> Vec<Problem> {
    let belongs = |path: &PathBuf| {
        let configs = found.leaves.iter().filter(|leaf| leaf.path == *path).map(|l| l.probe.newest_config());
        configs.flatten().any(|config| config.name == pool)
    };
    let damage = found.problems.iter().filter(|(path, _)| belongs(path));
    damage.map(|(path, why)| Problem::new(path.display().to_string(), why)).collect()
}

/// Name, guid, state and versions of a pool.
///
/// # Errors
/// [`AdminError::Cenote`] if the pool's configuration or version cannot be read.
pub(crate) fn pool_facts(pool: &OpenPool) -> Result<PoolFacts, AdminError> {
    let config = pool.pool.spa().config();
    Ok(PoolFacts {
        name: pool.name.clone(),
        guid: pool.pool.guid().0,
        health: tree::health(pool.pool.spa().tree().status().state),
        suspended: pool.pool.spa().suspended().is_some(),
        config_txg: config.txg.0,
        version: config.version,
        zpl_version: zpl_version(config.version),
    })
}

/// The newest file system version that a pool of this version supports (docs/on-disk/10-overview.md).
fn zpl_version(pool_version: u64) -> u64 {
    match pool_version {
        0..3 => 1,
        3..9 => 2,
        9..15 => 3,
        15..24 => 4,
        _ => 5,
    }
}
