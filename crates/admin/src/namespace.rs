//! The pools that this process has imported and keeps open, and how they are mounted. A daemon has one; commands
//! that run in process have none, and open and close a pool for each verb.
//!
//! # What always holds
//! - A pool in it is open for writing, by this process alone, until it is exported or destroyed; or it was
//!   imported for reading only, and is shown as it was then.
//! - Names are those by which the pools are known here. A name that is being given or given up belongs to the
//!   one who does that; all others wait until it is settled.
//! - A pool is let go of only when nobody uses it: verbs ([`PoolWriter`], [`Pool`]) say so while they last.
//!
//! # Order of locks
//! pools -> users of a pool -> whatever a pool has. No lock is held while a pool is opened or closed, or something
//! is mounted.

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

/// How long a verb waits for another one that opens or closes a pool of the same name.
const PATIENCE: Duration = Duration::from_secs(60);

/// How often those who use a pool are told that it is wanted.
const TELL_EVERY: Duration = Duration::from_millis(500);

/// The imported pools of this process.
pub struct Namespace {
    pools: Mutex<BTreeMap<String, Slot>>,
    changed: Condvar,
    mounts: Option<Arc<dyn Mounts>>,
    /// File systems that were to be mounted by themselves and could not be, and why.
    not_mounted: Mutex<BTreeMap<String, String>>,
    /// Mounts that are inside others because those were mounted over their places.
    remounted: Mutex<Remounted>,
    /// Told when a pool is to be taken out that is in use.
    when_wanted: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

/// What a name stands for.
enum Slot {
    /// Somebody opens or closes its pool.
    Taken,
    /// A pool.
    Open(Arc<Entry>),
}

/// A pool that is imported.
pub(crate) struct Entry {
    opened: Opened,
    settings: Mutex<Arc<ImportSettings>>,
    users: PoolUsers,
    load_guid: u64,
}

/// A number for the property `load_guid`, another one each time.
pub(crate) fn draw() -> u64 {
    // The keys of hash tables are random, and no two tables of a process have the same.
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
    /// Without pools. `mounts`: how their file systems are mounted, if they are.
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

    /// How file systems are mounted.
    pub fn mounts(&self) -> Option<&Arc<dyn Mounts>> {
        self.mounts.as_ref()
    }

    /// File systems that were to be mounted by themselves and could not be, and why.
    pub(crate) fn not_mounted(&self) -> MutexGuard<'_, BTreeMap<String, String>> {
        // Whole between any two statements.
        self.not_mounted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Mounts that are inside others because those were mounted over their places.
    pub(super) fn remounted(&self) -> MutexGuard<'_, Remounted> {
        // Whole between any two statements.
        self.remounted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The names of its pools.
    pub fn names(&self) -> Vec<String> {
        let pools = self.pools();
        let open = pools.iter().filter(|(_, slot)| matches!(slot, Slot::Open(_)));
        open.map(|(name, _)| name.clone()).collect()
    }

    /// The pool of this name, if it is open for writing. Closing it does nothing; it cannot be exported meanwhile.
    pub fn get(&self, name: &str) -> Option<PoolWriter> {
        let (entry, user) = self.entry(name)?;
        match &entry.opened {
            Opened::Live(live) => Some(PoolWriter::shared(Arc::clone(live), Some(Arc::new(user)))),
            Opened::ReadOnly(..) => None,
        }
    }

    /// The same pool, as the layers below know it: for whoever sees to it that it is not exported.
    pub fn live(&self, name: &str) -> Option<Arc<LivePool>> {
        match &self.entry(name)?.0.opened {
            Opened::Live(live) => Some(Arc::clone(live)),
            Opened::ReadOnly(..) => None,
        }
    }

    /// How the pool of this name was imported.
    pub fn settings(&self, name: &str) -> Option<Arc<ImportSettings>> {
        Some(self.entry(name)?.0.settings())
    }

    /// The pool with this guid is here.
    pub(crate) fn has(&self, guid: PoolGuid) -> bool {
        let pools = self.pools();
        pools.values().any(|slot| matches!(slot, Slot::Open(entry) if entry.guid() == guid))
    }

    /// The pool of this name, and that somebody uses it from now on. Waits while it is being opened or closed.
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

    /// Takes a name for a pool that is about to be opened. `None`: a pool has it.
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

    /// Takes a pool out, when nobody uses it any more; whoever asks for it then waits. Until then nobody does: who is
    /// at work may ask for it again.
    ///
    /// # Errors
    /// [`NotTaken`]; it is as before.
    pub(crate) fn take(self: &Arc<Self>, name: &str, patience: Duration) -> Result<Taken, NotTaken> {
        let mounted = self.mounts.as_ref().map(|mounts| mounts.list()).unwrap_or_default();
        if mounted.iter().any(|mount| mount.dataset.split(['/', '@']).next() == Some(name)) {
            return Err(NotTaken::Busy);
        }
        let until = Instant::now() + patience;
        loop {
            let users = match self.claim(name, false)? {
                Claim::Taken(taken) => return Ok(taken),
                Claim::Used(users) => users,
            };
            let left = until.checked_duration_since(Instant::now()).ok_or(NotTaken::Busy)?;
            // Again and again: some begin to wait only now.
            if let Some(tell) = self.when_wanted.get() {
                tell();
            }
            users.wait_gone(left.min(TELL_EVERY));
        }
    }

    /// Has `tell` called, a few times, while a pool is to be taken out and is in use: whoever uses it and only waits may give way. A
    /// second call changes nothing.
    pub fn when_wanted(&self, tell: impl Fn() + Send + Sync + 'static) {
        let _ = self.when_wanted.set(Box::new(tell));
    }

    /// The same, also of one that is still in use after that time. `None`: there is none.
    pub(crate) fn take_whatever(self: &Arc<Self>, name: &str, patience: Duration) -> Option<Taken> {
        if let Claim::Used(users) = self.claim(name, false).ok()? {
            users.wait_gone(patience);
        }
        match self.claim(name, true).ok()? {
            Claim::Taken(taken) => Some(taken),
            Claim::Used(_) => None,
        }
    }

    /// Takes a name away from everybody else, if nobody uses its pool, or `anyway`.
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
        // Whole between any two statements.
        self.pools.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    /// How it is open.
    pub(crate) fn opened(&self) -> &Opened {
        &self.opened
    }

    /// How it was imported.
    pub(crate) fn settings(&self) -> Arc<ImportSettings> {
        Arc::clone(&self.settings.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn set_settings(&self, settings: ImportSettings) {
        *self.settings.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(settings);
    }

    /// Tells this import from every other one.
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

/// What came of taking a name away.
enum Claim {
    /// It is taken.
    Taken(Taken),
    /// Its pool is in use, by these.
    Used(PoolUsers),
}

/// Why a pool could not be taken out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotTaken {
    /// There is none.
    Missing,
    /// It is in use.
    Busy,
}

/// A name that belongs to a pool that is being opened; free again when this is dropped.
pub(crate) struct Reserved {
    namespace: Arc<Namespace>,
    name: String,
    is_settled: bool,
}

impl Reserved {
    /// The pool is open: everybody may use it. One that is open for writing gets its threads, and whoever
    /// waits for its devices waits as its property `failmode` says.
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
            // Whoever asks next sees what is due. Should it not begin now, it is tried again as long as the pool is open.
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

/// A pool that was taken out; put back when this is dropped.
pub(crate) struct Taken {
    namespace: Arc<Namespace>,
    name: String,
    entry: Option<Arc<Entry>>,
}

impl Taken {
    pub(crate) fn entry(&self) -> &Arc<Entry> {
        self.entry.as_ref().expect("it is given away only by ending this")
    }

    /// Calls `close` with it. Whatever that says: afterwards the pool is gone from here.
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
