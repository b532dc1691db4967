//! One function per verb of the commands: each takes open pools and returns plain data. Nothing is
//! printed and nothing formatted; the `-j` answers of the commands are this data, dressed.
//!
//! # What always holds
//! - A pool that was found and cannot be opened is told in the [`Problem`]s, never passed over.
//! - Numbers are as stored: bytes, seconds since 1970, hundredths of a ratio, numbers of an index.
//!
//! Layouts and texts: docs/on-disk/33-cli.md. Tests: `crates/cli/tests`, against what OpenZFS prints.
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
mod import;
mod import_settings;
mod iostat;
mod kstat;
mod methods;
pub mod mounting;
mod mounts;
mod namespace;
mod pool_props;
pub mod served;
mod session;
mod status;
mod tree;
mod tunables;
mod users;
mod vdev_props;
pub mod verbs;
mod waiting;

pub use ::pool::events::{Event, EventRing};
pub use cachefile::{Imported, ImportedPool};
pub use cenote::Caller;
pub use change::cache_path;
pub use data::*;
pub use datasets::{Entry, Walk, find, find_by_text, points, walk};
pub use file_ops::{FILE_OPS, FileOp, FileOps};
pub use identity::names as owner_names;
pub use import::{Candidate, CandidateVdev, import_list};
pub use import_settings::ImportSettings;
pub use iostat::{
    IoStats, Op, PRIORITIES, PoolIo, Priority, SIZE_BUCKETS, Sizes, TIME_BUCKETS, Times, VdevIo, pool_io,
};
pub use kstat::Kstats;
pub use methods::PoolVerbs;
pub use mounts::{
    ADMIN_SNAPSHOT, AccessTimes, DIO_ENABLED, MountError, MountOptions, Mounted, MountedByHand, Mounts,
    Suspended, Unmount,
};
pub use namespace::Namespace;
pub(crate) use namespace::{NotTaken, Opened};
pub use pool_props::{is_feature_property, pool_property, pool_property_names};
pub use session::{CloseError, ProgressListener, Session, Writer};
pub use status::{pool_status, settle};
pub use tree::{find_vdev, vdevs};
pub use tunables::{Tunable, set_tunables, tunable, tunables};
#[doc(hidden)] // For the server: locks that outlive a panic.
pub use vdev::sync;
pub use vdev_props::{vdev_property, vdev_property_names};
pub use waiting::files_to_free;

use ::pool::{OpenOptions, Which};
use cenote::error::chain;
use cenote::{Error, Pool};
use format::PoolGuid;
use format::config::{PoolConfig, PoolState};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use vdev::scan::Found;
use vdev::{Devices, Env};

/// Host id of this machine, 0 if it has none.
fn host_id() -> u64 {
    cenote::this_host().id
}

/// Bytes of block cache for each pool that a listing opens: metadata only is read.
const LISTING_CACHE: usize = 32 << 20;

/// Where pools are looked for.
#[derive(Debug, Clone, Default)]
pub struct Search {
    /// Folders, devices, image files; if there are none, all block devices of the machine.
    pub paths: Vec<PathBuf>,
    /// Only destroyed pools (`import -D`).
    pub destroyed: bool,
    /// Take the pools and their devices from this cache file instead of searching.
    pub cachefile: Option<PathBuf>,
    /// Datasets, and what a key's location holds for their encryption roots: to be loaded when their pools
    /// are opened.
    pub keys: Vec<(String, Vec<u8>)>,
    /// The pools that this process keeps open: verbs use these instead of opening devices. `None`: a verb opens
    /// its pool, and closes it.
    pub namespace: Option<Arc<Namespace>>,
    /// In whose name verbs run; `None`: the user of this process.
    pub caller: Option<Caller>,
    /// Where devices come from; the machine by default.
    pub devices: Devices,
}

impl Search {
    /// The places that the environment names: `CENOTE_DEVICES` (one path a line), else
    /// `ZPOOL_IMPORT_PATH` (separated by colons), else all block devices.
    pub fn from_env() -> Search {
        Search { paths: vdev::scan::Search::from_environment().paths, ..Search::default() }
    }

    fn run(&self) -> Result<Found, AdminError> {
        // Devices are known by absolute paths, wherever the command was started.
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
            // What else is in those folders is nobody's business.
            found.problems.clear();
            return Ok(found);
        }
        let is_default = paths.is_empty();
        let mut found = search(paths);
        if is_default {
            // Files are not among the block devices of the machine: the cache file tells where they are.
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

/// Something that could not be opened or looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Name of the pool, or path of the device.
    pub what: String,
    /// Why.
    pub why: String,
    missing_pool: bool,
}

impl Problem {
    fn new(what: impl Into<String>, why: impl Into<String>) -> Problem {
        Problem { what: what.into(), why: why.into(), missing_pool: false }
    }

    /// A pool that was asked for by name was not found at all.
    pub fn is_missing_pool(&self) -> bool {
        self.missing_pool
    }
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "cannot open '{}': {}", self.what, self.why)
    }
}

/// Why a verb fails.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AdminError {
    /// A difference was asked for to something that is no earlier snapshot of the same file system.
    #[error("'{name}' is not an earlier snapshot from the same fs")]
    NotEarlier {
        /// What was named first.
        name: String,
    },
    /// No pool of this name is open.
    #[error("no such pool")]
    NoPool {
        /// The name.
        name: String,
    },
    /// There is no such dataset.
    #[error("dataset does not exist")]
    NoDataset {
        /// Its name.
        name: String,
    },
    /// A name that no dataset can have.
    #[error("{why}")]
    BadName {
        /// The name.
        name: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A path below no mount point of an open pool.
    #[error("not a ZFS filesystem")]
    NotInPool {
        /// The path.
        path: String,
    },
    /// The verb needs a file system.
    #[error("operation not applicable to datasets of this type")]
    NotAFilesystem {
        /// What it was given.
        name: String,
    },
    /// A cache file that is none.
    #[error("{path}: {why}")]
    CacheFile {
        /// Its path.
        path: String,
        /// What is wrong.
        why: String,
    },
    /// Something below failed; the message tells the whole chain.
    #[error("{}", chain(.0))]
    Cenote(Box<Error>),
}

impl From<Error> for AdminError {
    fn from(error: Error) -> AdminError {
        AdminError::Cenote(Box::new(error))
    }
}

/// A pool opened by a listing, with the devices that were found beside it.
pub struct OpenPool {
    pub(crate) pool: Pool,
    pub(crate) found: Found,
    /// The name by which it is known here.
    pub(crate) name: String,
    /// How it was imported.
    pub(crate) settings: Arc<ImportSettings>,
    /// Drawn by its import.
    pub(crate) load_guid: u64,
    /// What of it is mounted, by dataset; `None`: nobody knows.
    pub(crate) mounted: Option<Arc<BTreeMap<String, Mounted>>>,
}

impl OpenPool {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The pool itself.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }
}

/// Finds and opens pools, by name: those named, or, without names, all that are there and not destroyed; where
/// there is a namespace, those that are imported, as of the last txg on disk. What could not be opened or looked
/// at comes second.
pub fn open_pools(search: &Search, names: &[String]) -> (Vec<OpenPool>, Vec<Problem>) {
    if let Some(namespace) = &search.namespace {
        return show_pools(namespace, search, names);
    }
    let found = match search.run() {
        Ok(found) => found,
        Err(e) => return (Vec::new(), vec![Problem::new("cache file", e.to_string())]),
    };
    let mut problems = device_problems(&found);
    let imported = match Imported::load() {
        Ok(imported) => imported,
        Err(e) => return (Vec::new(), vec![Problem::new("cache file", e.to_string())]),
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

/// The pools of a namespace, for reading.
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
            Err(problem) if problem.missing_pool && names.is_empty() => {}
            Err(problem) => problems.push(problem),
        }
    }
    (pools, problems)
}

fn show_one(namespace: &Namespace, name: &str) -> Result<OpenPool, Problem> {
    let missing = || Problem { missing_pool: true, ..Problem::new(name, "no such pool") };
    let (entry, user) = namespace.entry(name).ok_or_else(missing)?;
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

/// A pool that labels tell of.
struct Labelled {
    guid: PoolGuid,
    name: String,
}

/// The pools on the devices that were found, destroyed ones left out: the newest label of each decides. Those
/// that were imported under a temporary name have that.
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
        [] => return Err(Problem { missing_pool: true, ..Problem::new(name, "no such pool") }),
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

/// Loads the keys that were given for datasets of this pool; tells which could not be.
fn load_keys(pool: &OpenPool, search: &Search) -> Vec<Problem> {
    let in_pool = |name: &str| name.split(['/', '@']).next() == Some(pool.name());
    let keys = search.keys.iter().filter(|(dataset, _)| in_pool(dataset));
    let wrong =
        keys.filter_map(|(dataset, material)| Some((dataset, pool.pool.load_key(dataset, material).err()?)));
    wrong.map(|(dataset, error)| Problem::new(dataset, chain(&error))).collect()
}

/// What could not be looked at. Damage to some labels of a device that others still describe is no
/// problem of a listing: that is what four labels are for.
fn device_problems(found: &Found) -> Vec<Problem> {
    let is_leaf = |path: &PathBuf| found.leaves.iter().any(|leaf| leaf.path == *path);
    let lost = found.problems.iter().filter(|(path, _)| !is_leaf(path));
    lost.map(|(path, why)| Problem::new(path.display().to_string(), why.to_string())).collect()
}

/// Damaged labels of a pool's devices, for when it cannot be opened.
fn label_damage(found: &Found, pool: &str) -> Vec<Problem> {
    let belongs = |path: &PathBuf| {
        let configs = found.leaves.iter().filter(|leaf| leaf.path == *path).map(|l| l.probe.newest_config());
        configs.flatten().any(|config| config.name == pool)
    };
    let damage = found.problems.iter().filter(|(path, _)| belongs(path));
    damage.map(|(path, why)| Problem::new(path.display().to_string(), why.to_string())).collect()
}

/// Name, guid, state and versions of a pool.
pub fn pool_facts(pool: &OpenPool) -> Result<PoolFacts, AdminError> {
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

/// The newest version of the file system that a pool of this version can have
/// (docs/on-disk/10-overview.md).
fn zpl_version(pool_version: u64) -> u64 {
    match pool_version {
        0..3 => 1,
        3..9 => 2,
        9..15 => 3,
        15..24 => 4,
        _ => 5,
    }
}
