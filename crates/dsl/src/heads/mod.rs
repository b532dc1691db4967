//! Heads that are open for writing: one object set for each, shared by all its writers.
//!
//! Called by the code that mounts a file system or serves a volume ([`Heads::open`]), and by the pool's sync
//! ([`Heads::sync_all`], [`Heads::finish_txg`]).
//!
//! # What always holds
//! - A head is open once: two users get the same [`Head`].
//! - A head without users is closed only when it has no unwritten changes.
//! - A head that a sync task removes or replaces (destroy, rollback) is not open: the task fails with
//!   [`DslError::Busy`] if it is in use.
//! - A snapshot that is held ([`Heads::hold_snapshot`]) is not destroyed: [`DslError::Busy`] too.
//! - Names and chains change only while [`Heads::exclusive`] is held; no head is opened meanwhile.
//!
//! # Order of locks
//! `quiet` -> `open` -> `Head::dirs` -> `Heads::dirs`.

pub(crate) mod head;
pub(crate) mod reservation;

mod sync;

pub use head::{Head, HeadSpace, OpenDataset, ReceivePoint, SyncMode};

use crate::brt::Brt;
use crate::error::DslError;
use crate::features::FeatureCounts;
use crate::keyring::Keyring;
use crate::mos;
use crate::name::DEPTH_LIMIT;
use crate::policy::policy_of;
use crate::sync::{lock, read, write};
use crate::tree::{Dsl, PoolSpace};
use dmu::log::IntentLog;
use dmu::{KeyState, LiveSet, ObjSet, Txgs};
use format::dsl::DS_FLAG_INCONSISTENT;
use format::names::directory;
use format::{BlockPtr, ObjType, ObjectId, Txg};
use head::{check_changeable, check_raw, check_usable, open_set};
use reservation::{DirCounters, HeadCounters, PoolCounters};
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock, RwLockWriteGuard, Weak};

/// Most bytes that changes allocate on the devices for each byte of dirty memory: with copies and parity.
const CHANGES_OF_DIRTY: u64 = 4;
/// The heads that are open for writing.
pub struct Heads {
    mos: Arc<LiveSet>,
    txgs: Arc<Txgs>,
    features: Arc<FeatureCounts>,
    brt: Arc<Brt>,
    pool_name: String,
    root_dir: ObjectId,
    /// The keys that are loaded.
    keyring: Arc<Keyring>,
    /// Held while names and chains change.
    quiet: RwLock<()>,
    open: Mutex<BTreeMap<ObjectId, Arc<Head>>>,
    dirs: Mutex<HashMap<ObjectId, Weak<DirCounters>>>,
    /// Snapshots that are held, each with its number of holds.
    held: Arc<Mutex<BTreeMap<ObjectId, usize>>>,
    pool: Arc<PoolCounters>,
    /// Counts changes of properties that write policies depend on.
    policies: AtomicU64,
    /// Counts changes of names and limits, so that open heads notice them.
    changes: AtomicU64,
    seen_changes: AtomicU64,
}

impl Heads {
    /// Creates the registry of open heads of a pool. `mos` and `txgs` are those that the pool is written
    /// with.
    ///
    /// # Errors
    /// If the pool has no root directory.
    pub fn new(
        mos: &Arc<LiveSet>,
        txgs: &Arc<Txgs>,
        features: &Arc<FeatureCounts>,
        brt: &Arc<Brt>,
        pool_name: &str,
    ) -> Result<Arc<Heads>, DslError> {
        let zap = mos::zap(&mos.view(), directory::OBJECT)?;
        let root = mos::lookup_object(&zap, directory::OBJECT, directory::ROOT_DATASET)?;
        let root_dir = root.ok_or(DslError::NoSpecial { name: directory::ROOT_DATASET })?;
        Ok(Arc::new(Heads {
            mos: Arc::clone(mos),
            txgs: Arc::clone(txgs),
            features: Arc::clone(features),
            brt: Arc::clone(brt),
            pool_name: pool_name.to_owned(),
            root_dir,
            keyring: Arc::default(),
            quiet: RwLock::new(()),
            open: Mutex::default(),
            dirs: Mutex::default(),
            held: Arc::default(),
            pool: Arc::default(),
            policies: AtomicU64::new(0),
            changes: AtomicU64::new(0),
            seen_changes: AtomicU64::new(0),
        }))
    }

    /// Sets the size of the pool: once at opening, and after each sync.
    pub fn set_pool_space(&self, space: PoolSpace) {
        self.pool.set(space, self.mos.store().zio());
    }

    /// Sets the bytes, not part of the pool's size, that become free with the next txgs: writers that find
    /// the pool full wait for them.
    pub fn set_returning(&self, bytes: u64) {
        self.pool.set_returning(bytes);
    }

    /// After the sync of a txg: sets the bytes that can be allocated in the class of data blocks. Until the
    /// next txg, intent logs may take the part that running changes leave, and a quarter of the slop space in
    /// any case.
    pub fn set_free(&self, synced: Txg, free: u64) {
        let Some(PoolSpace { slop, .. }) = self.pool.get() else { return };
        let changes = self.txgs.dirty_max().saturating_mul(CHANGES_OF_DIRTY);
        self.txgs.meter().set_log_room(synced, |logged| {
            let changes = free.saturating_add(logged).saturating_sub(slop).min(changes);
            free.saturating_sub(slop - slop / 4).saturating_sub(changes)
        });
    }

    /// The size of the pool; `None`: not set yet.
    pub(crate) fn pool_space(&self) -> Option<PoolSpace> {
        self.pool.get()
    }

    /// Whether blocks are being freed, or become free with the next txgs.
    pub(crate) fn is_freeing(&self) -> bool {
        self.pool.is_freeing()
    }

    /// The transaction groups of the pool.
    pub(crate) fn txgs(&self) -> &Arc<Txgs> {
        &self.txgs
    }

    /// Keeps heads from being opened while names and chains change: the sync holds it while tasks run. A task
    /// therefore never opens a head; see `TaskCtx::change_contents`.
    pub fn exclusive(&self) -> RwLockWriteGuard<'_, ()> {
        write(&self.quiet)
    }

    /// Notes a change of properties that decide how open heads are written, or of features that they need.
    pub fn policy_changed(&self) {
        self.policies.fetch_add(1, Ordering::AcqRel);
    }

    /// Notes that directories were renamed, which also changes inherited properties, or that limits of heads
    /// were set.
    pub(crate) fn names_or_limits_changed(&self) {
        self.changes.fetch_add(1, Ordering::AcqRel);
        self.policy_changed();
    }

    /// Reading view of the newest state.
    fn dsl(&self) -> Dsl {
        self.view(self.mos.view(), self.root_dir)
    }

    /// The datasets of a state of the pool, with the keys that are loaded.
    pub fn view(&self, mos: Arc<ObjSet>, root_dir: ObjectId) -> Dsl {
        Dsl::with_keyring(mos, root_dir, &self.pool_name, Arc::clone(&self.keyring))
    }

    /// Makes the intent logs of all open heads begin new chains, so that none stays on a vdev that takes no new
    /// blocks.
    pub fn restart_logs(&self) {
        let heads: Vec<Arc<Head>> = lock(&self.open).values().cloned().collect();
        heads.iter().for_each(|head| head.log.restart());
    }

    /// Name of the pool.
    pub fn pool_name(&self) -> &str {
        &self.pool_name
    }

    /// The keys that are loaded.
    pub(crate) fn keyring(&self) -> &Keyring {
        &self.keyring
    }

    /// Opens the head in this dataset object, or returns the one that is open. A head that is read, and not changed
    /// ([`crate::Dataset::unwritten`]), is opened too: its [`Head::begin`] fails.
    ///
    /// # Errors
    /// [`DslError::WrongKind`] for a snapshot, [`DslError::Inconsistent`], [`DslError::Encrypted`] if its key is not
    /// loaded, or the error of reading it.
    pub fn open(&self, dataset: ObjectId) -> Result<Arc<Head>, DslError> {
        let _steady = read(&self.quiet);
        self.open_steady(dataset, Purpose::Use)
    }

    /// Opens a head that is being received: one that [`Heads::open`] refuses as inconsistent.
    ///
    /// # Errors
    /// Those of [`Heads::open`].
    pub fn open_partial(&self, dataset: ObjectId) -> Result<Arc<Head>, DslError> {
        let _steady = read(&self.quiet);
        self.open_steady(dataset, Purpose::Receive)
    }

    /// Opens an encrypted head that is being received raw. Its key is not used, whether or not it is loaded.
    ///
    /// # Errors
    /// [`DslError::WrongKind`] if it is not being received, [`DslError::Encrypted`] if it is not encrypted; or the
    /// error of reading it.
    pub fn open_raw(&self, dataset: ObjectId) -> Result<Arc<Head>, DslError> {
        let _steady = read(&self.quiet);
        self.open_steady(dataset, Purpose::ReceiveRaw)
    }

    /// Opens the head with this full name.
    ///
    /// # Errors
    /// [`DslError::NotFound`]; otherwise those of [`Heads::open`].
    pub fn open_by_name(&self, name: &str) -> Result<Arc<Head>, DslError> {
        let _steady = read(&self.quiet);
        let dataset = self.dsl().dataset(name)?;
        self.open_steady(dataset.id(), Purpose::Use)
    }

    /// Keeps a snapshot from being destroyed until the returned value is dropped. `root` is the root block of
    /// the snapshot that the caller means: object numbers are reused, so another dataset may have this one by
    /// now.
    ///
    /// # Errors
    /// [`DslError::NotFound`] if the snapshot no longer exists, or the error of reading it.
    pub fn hold_snapshot(&self, id: ObjectId, root: &BlockPtr) -> Result<SnapshotHold, DslError> {
        let _steady = read(&self.quiet);
        let gone = || DslError::not_found(format!("snapshot {id}"));
        let object = self.mos.object(id).map_err(|_| gone())?;
        if object.read().dnode().bonus_type != ObjType::DSL_DATASET {
            return Err(gone());
        }
        let phys = mos::dataset_phys(&object)?;
        if !phys.is_snapshot() || phys.bp != *root {
            return Err(gone());
        }
        *lock(&self.held).entry(id).or_default() += 1;
        Ok(SnapshotHold { held: Arc::clone(&self.held), id })
    }

    /// The open head of this dataset; `None`: it is not open.
    pub(crate) fn get(&self, dataset: ObjectId) -> Option<Arc<Head>> {
        lock(&self.open).get(&dataset).cloned()
    }

    fn open_steady(&self, id: ObjectId, purpose: Purpose) -> Result<Arc<Head>, DslError> {
        let mut open = lock(&self.open);
        if let Some(head) = open.get(&id) {
            return Ok(Arc::clone(head));
        }
        let dsl = self.dsl();
        let dataset = dsl.dataset_by_object(id)?;
        let unwritten = match purpose {
            Purpose::Use => {
                check_usable(&dataset)?;
                dataset.unwritten()?
            }
            Purpose::Receive => check_changeable(&dataset).map(|()| None)?,
            Purpose::ReceiveRaw => check_raw(&dataset).map(|()| None)?,
        };
        let policies = self.policies.load(Ordering::Acquire);
        let policy = policy_of(&dataset, &self.features)?;
        let bp = dataset.phys().bp;
        let key = match purpose {
            Purpose::ReceiveRaw => KeyState::Locked,
            _ => dsl.keyring().key_of(&dataset)?,
        };
        if purpose == Purpose::Use && matches!(key, KeyState::Locked) {
            return Err(DslError::Encrypted {
                name: dataset.name().to_owned(),
                why: "its key is not loaded",
            });
        }
        let set = open_set(&self.mos, &self.txgs, &bp, id, key, &policy)?;
        let head = Arc::new(Head {
            log: IntentLog::new(&set, &self.txgs),
            set,
            id,
            unwritten,
            dir: dataset.dir().id(),
            name: RwLock::new(dataset.name().into()),
            txgs: Arc::clone(&self.txgs),
            brt: Arc::clone(&self.brt),
            pool: Arc::clone(&self.pool),
            counters: HeadCounters::default(),
            dirs: RwLock::new(self.counters_of(dataset.dir().id())?),
            object: self.mos.object(id)?,
            version: AtomicU64::new(u64::MAX),
            features: Mutex::default(),
            policy_of: AtomicU64::new(policies),
            sync_mode: AtomicU64::new(0),
            copies: AtomicU64::new(policy.copies.into()),
            opening: Mutex::default(),
            opened: Mutex::default(),
            log_synced: AtomicU64::new(0),
            received: Mutex::default(),
        });
        head.set_log_properties(&dataset)?;
        head.refresh(&self.mos)?;
        open.insert(id, Arc::clone(&head));
        Ok(head)
    }

    /// Counters of a directory and of all directories above.
    fn counters_of(&self, dir: ObjectId) -> Result<Arc<[Arc<DirCounters>]>, DslError> {
        let mut dirs = Vec::new();
        let mut at = Some(dir);
        let mut known = lock(&self.dirs);
        while let Some(id) = at {
            if dirs.len() > DEPTH_LIMIT {
                return Err(DslError::Endless { what: "parents", object: dir, limit: DEPTH_LIMIT });
            }
            let object = self.mos.object(id)?;
            at = mos::dir_phys(&object)?.parent;
            let counters = match known.get(&id).and_then(Weak::upgrade) {
                Some(counters) => counters,
                None => Arc::new(DirCounters::new(object)?),
            };
            known.insert(id, Arc::downgrade(&counters));
            dirs.push(counters);
        }
        Ok(dirs.into())
    }

    /// Checks that a head or snapshot that is to be destroyed or replaced is neither in use nor held.
    ///
    /// # Errors
    /// [`DslError::Busy`] if it is, or was changed since this txg closed.
    pub(crate) fn check_idle(&self, id: ObjectId, name: &str) -> Result<(), DslError> {
        if lock(&self.held).contains_key(&id) {
            return Err(DslError::Busy { name: name.to_owned() });
        }
        match lock(&self.open).get(&id) {
            Some(head) if is_still_used(head) || head.set.is_dirty(self.txgs.open_txg()) => {
                Err(DslError::Busy { name: name.to_owned() })
            }
            _ => Ok(()),
        }
    }

    /// Checks that no stream is being received into a dataset, or below it: the receive knows it by its name.
    ///
    /// # Errors
    /// [`DslError::Busy`], or the error of reading a dataset.
    pub(crate) fn check_not_received(&self, name: &str) -> Result<(), DslError> {
        let below = format!("{name}/");
        let is_at = |head: &Head| {
            let own = head.name();
            *own == *name || own.starts_with(&below)
        };
        let open: Vec<Arc<Head>> = lock(&self.open).values().filter(|head| is_at(head)).cloned().collect();
        for head in open {
            let is_partial = mos::dataset_phys(&head.object)?.flags & DS_FLAG_INCONSISTENT != 0;
            // Beside the registry and this list.
            let is_received = || Arc::strong_count(&head) > 2 || Arc::strong_count(&head.set) > OWN_HOLDERS;
            if !is_partial || !is_received() {
                continue;
            }
            // Read-ahead is no use.
            head.set.store().drain_prefetch();
            if is_received() {
                return Err(DslError::Busy { name: name.to_owned() });
            }
        }
        Ok(())
    }

    /// Closes a head that is not in use.
    pub(crate) fn evict(&self, id: ObjectId) -> Option<Arc<Head>> {
        lock(&self.open).remove(&id)
    }

    /// Whether this head is in use.
    pub fn is_in_use(&self, id: ObjectId) -> bool {
        lock(&self.open).get(&id).is_some_and(is_still_used)
    }
}

/// What a head is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// Its contents are used.
    Use,
    /// It is being received.
    Receive,
    /// It is being received, and stays encrypted.
    ReceiveRaw,
}

/// Guard that keeps a snapshot from being destroyed.
#[derive(Debug)]
pub struct SnapshotHold {
    held: Arc<Mutex<BTreeMap<ObjectId, usize>>>,
    id: ObjectId,
}

impl Drop for SnapshotHold {
    fn drop(&mut self) {
        let mut held = lock(&self.held);
        if let Some(count) = held.get_mut(&self.id) {
            *count -= 1;
            if *count == 0 {
                held.remove(&self.id);
            }
        }
    }
}

impl std::fmt::Debug for Heads {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Heads({} of {})", lock(&self.open).len(), self.pool_name)
    }
}

/// References to the object set of an unused head: those of the head and of its log.
const OWN_HOLDERS: usize = 2;

/// Whether the head, its log or its contents have holders beside the registry.
fn is_used(head: &Arc<Head>) -> bool {
    Arc::strong_count(head) > 1
        || Arc::strong_count(&head.log) > 1
        || Arc::strong_count(&head.set) > OWN_HOLDERS
}

/// Like `is_used`, but ends read-ahead, which does not count as use.
fn is_still_used(head: &Arc<Head>) -> bool {
    if !is_used(head) {
        return false;
    }
    head.set.store().drain_prefetch();
    is_used(head)
}
