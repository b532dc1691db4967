//! The namespace: the pools that this process has imported and keeps open, and the interface that mounts their file
//! systems. A daemon has one namespace. Commands that run in process have none: they open and close a pool for each
//! verb.
//!
//! # What always holds
//! - A pool in the namespace is open for writing, by this process alone, until it is exported or destroyed; or it
//!   was imported read-only, and shows its state at that time.
//! - Pools have the names under which they are imported here. While a pool is being opened or closed, its name is
//!   reserved for that operation; all other callers wait until it is finished.
//! - A pool is taken out only while it has no users. [`PoolWriter`] and [`Pool`] values count as users.
//!
//! # Order of locks
//! pools -> users of a pool -> locks of a pool. No lock is held while a pool is opened or closed or a file system
//! is mounted.

use super::mounting::Obstacle;
use super::mounting::remounted::Remounted;
use super::{ImportSettings, Mounts};
use crate::users::{PoolUse, PoolUsers};
use ::pool::LivePool;
use cenote::{Pool, PoolWriter};
use format::PoolGuid;
use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use vdev::scan::Found;
use vdev::sync::lock;

/// How long a verb waits while another verb opens or closes a pool of the same name.
const PATIENCE: Duration = Duration::from_secs(60);

/// Interval between the calls that ask the users of a pool to release it.
const TELL_EVERY: Duration = Duration::from_millis(500);

/// The imported pools of this process.
pub struct Namespace {
    pools: Mutex<BTreeMap<String, Slot>>,
    changed: Condvar,
    mounts: Option<Arc<dyn Mounts>>,
    /// File systems that failed to mount automatically, and why.
    not_mounted: Mutex<BTreeMap<String, Obstacle>>,
    /// Mounts that were moved inside others because those were mounted over their mount points.
    remounted: Mutex<Remounted>,
    /// Callback for a pool that is to be taken out while it is in use.
    when_wanted: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

/// State of a pool's name.
enum Slot {
    /// Reserved: the pool is being opened or closed.
    Taken,
    /// The pool is imported.
    Open(Arc<Entry>),
}

/// An imported pool.
pub(crate) struct Entry {
    opened: Opened,
    settings: Mutex<Arc<ImportSettings>>,
    users: PoolUsers,
    load_guid: u64,
}

/// A random value for the property `load_guid`, different at each call.
pub(crate) fn draw() -> u64 {
    // The keys of hash tables are random and differ within a process.
    RandomState::new().build_hasher().finish()
}

/// How it is open.
pub(crate) enum Opened {
    /// For writing.
    Live(Arc<LivePool>),
    /// Only for reading, with the devices that were found beside it.
    ReadOnly(Pool, Found),
}

impl Namespace {
    /// An empty namespace. `mounts` mounts file systems; with `None` no file systems are mounted.
    pub fn new(mounts: Option<Arc<dyn Mounts>>) -> Arc<Namespace> {
        Arc::new(Namespace {
            pools: Mutex::default(),
            changed: Condvar::new(),
            mounts,
            not_mounted: Mutex::default(),
            remounted: Mutex::default(),
            when_wanted: OnceLock::new(),
        })
    }

    /// The interface that mounts file systems; `None` if this process mounts none.
    pub fn mounts(&self) -> Option<&Arc<dyn Mounts>> {
        self.mounts.as_ref()
    }

    /// File systems that failed to mount automatically, and why.
    pub(crate) fn not_mounted(&self) -> MutexGuard<'_, BTreeMap<String, Obstacle>> {
        lock(&self.not_mounted)
    }

    /// Mounts that were moved inside others because those were mounted over their mount points.
    pub(super) fn remounted(&self) -> MutexGuard<'_, Remounted> {
        lock(&self.remounted)
    }

    /// The names of the imported pools.
    pub fn names(&self) -> Vec<String> {
        let pools = self.pools();
        let open = pools.iter().filter(|(_, slot)| matches!(slot, Slot::Open(_)));
        open.map(|(name, _)| name.clone()).collect()
    }

    /// The pool of this name, if it is open for writing. The pool cannot be exported while the value exists;
    /// closing the value does not close the pool.
    pub fn get(&self, name: &str) -> Option<PoolWriter> {
        let (entry, user) = self.entry(name)?;
        match &entry.opened {
            Opened::Live(live) => Some(PoolWriter::shared(Arc::clone(live), Some(Arc::new(user)))),
            Opened::ReadOnly(..) => None,
        }
    }

    /// The pool of this name as the engine's type, if it is open for writing. It does not count as a use: the
    /// caller must prevent the export of the pool.
    pub fn live(&self, name: &str) -> Option<Arc<LivePool>> {
        match &self.entry(name)?.0.opened {
            Opened::Live(live) => Some(Arc::clone(live)),
            Opened::ReadOnly(..) => None,
        }
    }

    /// The import settings of the pool of this name.
    pub fn settings(&self, name: &str) -> Option<Arc<ImportSettings>> {
        Some(self.entry(name)?.0.settings())
    }

    /// True if the pool with this guid is imported here.
    pub(crate) fn has(&self, guid: PoolGuid) -> bool {
        let pools = self.pools();
        pools.values().any(|slot| matches!(slot, Slot::Open(entry) if entry.guid() == guid))
    }

    /// The pool of this name, and a value that counts as a use of it. Waits while the pool is being opened or
    /// closed.
    pub(crate) fn entry(&self, name: &str) -> Option<(Arc<Entry>, PoolUse)> {
        let until = Instant::now() + PATIENCE;
        let mut pools = self.pools();
        loop {
            match pools.get(name)? {
                Slot::Open(entry) => return Some((Arc::clone(entry), entry.users.enter())),
                Slot::Taken => {}
            }
            let left = until.checked_duration_since(Instant::now())?;
            pools = self.changed.wait_timeout(pools, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Reserves a name for a pool that is about to be opened. `None`: the name is in use.
    pub(crate) fn reserve(self: &Arc<Self>, name: &str) -> Option<Reserved> {
        let until = Instant::now() + PATIENCE;
        let mut pools = self.pools();
        while let Some(slot) = pools.get(name) {
            let left = until.checked_duration_since(Instant::now());
            let (Slot::Taken, Some(left)) = (slot, left) else { return None };
            pools = self.changed.wait_timeout(pools, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        pools.insert(name.to_owned(), Slot::Taken);
        Some(Reserved { namespace: Arc::clone(self), name: name.to_owned(), is_settled: false })
    }

    /// Takes a pool out once it has no users. From then on callers that want the pool wait; until then, present
    /// users may use it again.
    ///
    /// # Errors
    /// [`NotTaken`]; the pool stays in the namespace.
    pub(crate) fn take(self: &Arc<Self>, name: &str, patience: Duration) -> Result<Taken, NotTaken> {
        if self.is_mounted(name) {
            return Err(NotTaken::Busy);
        }
        let until = Instant::now() + patience;
        loop {
            let users = match self.claim(name, false)? {
                // One of the users that this has waited for may have mounted a file system; no more can come now.
                Claim::Taken(_) if self.is_mounted(name) => return Err(NotTaken::Busy),
                Claim::Taken(taken) => return Ok(taken),
                Claim::Used(users) => users,
            };
            let left = until.checked_duration_since(Instant::now()).ok_or(NotTaken::Busy)?;
            // Called repeatedly: a user may begin to wait at any time.
            if let Some(tell) = self.when_wanted.get() {
                tell();
            }
            users.wait_gone(left.min(TELL_EVERY));
        }
    }

    /// True if a dataset of the pool is mounted.
    fn is_mounted(&self, pool: &str) -> bool {
        let mounted = self.mounts.as_ref().map(|mounts| mounts.list()).unwrap_or_default();
        mounted.iter().any(|mount| mount.dataset.split(['/', '@']).next() == Some(pool))
    }

    /// Sets the callback that is called repeatedly while a pool is to be taken out and is in use, so that users
    /// that only wait can release it. Only the first call has an effect.
    pub fn when_wanted(&self, tell: impl Fn() + Send + Sync + 'static) {
        let _ = self.when_wanted.set(Box::new(tell));
    }

    /// Takes a pool out like [`Namespace::take`], but also if it is still in use after that time. `None`: there is
    /// no such pool.
    pub(crate) fn take_whatever(self: &Arc<Self>, name: &str, patience: Duration) -> Option<Taken> {
        if let Claim::Used(users) = self.claim(name, false).ok()? {
            users.wait_gone(patience);
        }
        match self.claim(name, true).ok()? {
            Claim::Taken(taken) => Some(taken),
            Claim::Used(_) => None,
        }
    }

    /// Reserves the name of a pool that has no users, or, with `anyway`, of any pool.
    fn claim(self: &Arc<Self>, name: &str, anyway: bool) -> Result<Claim, NotTaken> {
        let until = Instant::now() + PATIENCE;
        let mut pools = self.pools();
        loop {
            match pools.get(name) {
                None => return Err(NotTaken::Missing),
                Some(Slot::Open(entry)) if !anyway && !entry.users.is_empty() => {
                    return Ok(Claim::Used(entry.users.clone()));
                }
                Some(Slot::Open(entry)) => {
                    let entry = Some(Arc::clone(entry));
                    pools.insert(name.to_owned(), Slot::Taken);
                    return Ok(Claim::Taken(Taken {
                        namespace: Arc::clone(self),
                        name: name.to_owned(),
                        entry,
                    }));
                }
                Some(Slot::Taken) => {}
            }
            let left = until.checked_duration_since(Instant::now()).ok_or(NotTaken::Busy)?;
            pools = self.changed.wait_timeout(pools, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn settle(&self, name: &str, entry: Option<Arc<Entry>>) {
        let mut pools = self.pools();
        match entry {
            Some(entry) => pools.insert(name.to_owned(), Slot::Open(entry)),
            None => pools.remove(name),
        };
        self.changed.notify_all();
    }

    fn pools(&self) -> MutexGuard<'_, BTreeMap<String, Slot>> {
        lock(&self.pools)
    }
}

impl Entry {
    /// How it is open.
    pub(crate) fn opened(&self) -> &Opened {
        &self.opened
    }

    /// The settings of its import.
    pub(crate) fn settings(&self) -> Arc<ImportSettings> {
        Arc::clone(&lock(&self.settings))
    }

    pub(crate) fn set_settings(&self, settings: ImportSettings) {
        *lock(&self.settings) = Arc::new(settings);
    }

    /// Value of the property `load_guid`, unique to this import.
    pub(crate) fn load_guid(&self) -> u64 {
        self.load_guid
    }

    pub(crate) fn guid(&self) -> PoolGuid {
        match &self.opened {
            Opened::Live(live) => live.guid(),
            Opened::ReadOnly(pool, _) => pool.guid(),
        }
    }
}

/// Result of an attempt to reserve a pool's name.
enum Claim {
    /// The name is reserved.
    Taken(Taken),
    /// The pool has users.
    Used(PoolUsers),
}

/// Why a pool cannot be taken out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotTaken {
    /// There is no such pool.
    Missing,
    /// The pool is in use.
    Busy,
}

/// A name reserved for a pool that is being opened. Dropping the value frees the name.
pub(crate) struct Reserved {
    namespace: Arc<Namespace>,
    name: String,
    is_settled: bool,
}

impl Reserved {
    /// The pool is open, for all users of the namespace. One that is open for writing gets its threads; threads that
    /// wait for its devices wait as its property `failmode` says.
    pub(crate) fn fill(mut self, opened: Opened, settings: ImportSettings) {
        if let Opened::Live(live) = &opened {
            live.start();
            live.attend();
        }
        let settings = Mutex::new(Arc::new(settings));
        let entry = Arc::new(Entry { opened, settings, users: PoolUsers::default(), load_guid: draw() });
        self.is_settled = true;
        self.namespace.settle(&self.name, Some(Arc::clone(&entry)));
        if let Opened::Live(live) = &entry.opened {
            // The next status shows what is due. If it does not begin now, it is tried again while the pool is open.
            let _ = live.resilver_if_needed();
        }
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        if !self.is_settled {
            self.namespace.settle(&self.name, None);
        }
    }
}

/// A pool that was taken out. Dropping the value puts it back.
pub(crate) struct Taken {
    namespace: Arc<Namespace>,
    name: String,
    entry: Option<Arc<Entry>>,
}

impl Taken {
    pub(crate) fn entry(&self) -> &Arc<Entry> {
        self.entry.as_ref().expect("it is given away only by ending this")
    }

    /// Calls `close` with the pool. The pool leaves the namespace whatever `close` returns.
    pub(crate) fn close<T>(mut self, close: impl FnOnce(Arc<Entry>) -> T) -> T {
        let entry = self.entry.take().expect("it is given away only here");
        let closed = close(entry);
        self.namespace.settle(&self.name, None);
        closed
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        if let Some(entry) = self.entry.take() {
            self.namespace.settle(&self.name, Some(entry));
        }
    }
}

impl std::fmt::Debug for Namespace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Namespace").field(&self.names()).finish()
    }
}
