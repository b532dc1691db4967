//! Heads that are open for writing: one object set for each, shared by everybody who writes to it.
//!
//! Called by whoever mounts a file system or serves a volume ([`Heads::open`]), and by the pool's sync
//! ([`Heads::sync_all`], [`Heads::finish_txg`]).
//!
//! # What always holds
//! - A head is open once: two users get the same [`Head`].
//! - A head whose users have gone is forgotten only when nothing of it is left to be written.
//! - What a sync task takes away or replaces (destroy, rollback) is not open: the task fails with
//!   [`DslError::Busy`] if somebody uses it.
//! - A snapshot that somebody holds ([`Heads::hold_snapshot`]) is not destroyed: [`DslError::Busy`] too.
//! - Names and chains change only while [`Heads::exclusive`] is held; a head is not opened meanwhile.
//!
//! # Order of locks
//! `quiet` -> `open` -> one head's `rooms` -> `dirs`.

use super::brt::Brt;
use super::ctx::TaskCtx;
use super::features::FeatureCounts;
use super::ledger::sync_set;
use super::policy::policy_of;
use super::room::{self, Cost, HeadRoom, PoolRoom, Refused, Room};
use super::zapify;
use crate::dataset::Dataset;
use crate::name::DEPTH_LIMIT;
use crate::{Dsl, DslError, PoolSpace, mos, prop};
use dmu::live::{LiveObject, LiveSet, SetPolicy, Tx, Txgs};
use dmu::log::{IntentLog, LogBias};
use format::dsl::{DatasetPhys, DirPhys};
use format::objset::{ObjsetType, ZilHeader};
use format::{BlockPtr, Endian, ObjType, ObjectId, Txg};
use std::any::Any;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockWriteGuard, Weak};
use zio::AllocTx;

/// Bytes that changes take at most on the devices, by the bytes of memory that they may make dirty: with copies and parity.
const CHANGES_OF_DIRTY: u64 = 4;
/// How often [`Head::begin_waiting`] waits for a sync before it gives up.
const ROOM_RETRIES: usize = 16;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What these guard is whole between any two statements.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Space of a head as file systems report it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeadSpace {
    /// Bytes that it references.
    pub referenced: u64,
    /// Bytes that it may still take.
    pub available: u64,
}

/// When changes of a head are durable (property `sync`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncMode {
    /// When somebody asks for it.
    Standard,
    /// At once.
    Always,
    /// With their txg, whatever is asked.
    Disabled,
}

impl SyncMode {
    fn of(stored: u64) -> SyncMode {
        match stored {
            1 => SyncMode::Always,
            2 => SyncMode::Disabled,
            _ => SyncMode::Standard,
        }
    }
}

/// A head that is open for writing.
pub struct Head {
    /// Its contents.
    pub set: Arc<LiveSet>,
    /// Its intent log. If it is to be replayed, whoever opens the head to use it does that first.
    pub log: Arc<IntentLog>,
    id: ObjectId,
    dir: ObjectId,
    name: RwLock<Arc<str>>,
    txgs: Arc<Txgs>,
    brt: Arc<Brt>,
    pool: Arc<PoolRoom>,
    room: HeadRoom,
    /// Its directory and all above it.
    rooms: RwLock<Arc<[Arc<Room>]>>,
    object: LiveObject,
    version: AtomicU64,
    prev_snap_txg: AtomicU64,
    /// Per-dataset features that somebody has begun to use.
    features: Mutex<BTreeSet<&'static str>>,
    /// What the policy was read at.
    policy_of: AtomicU64,
    sync_mode: AtomicU64,
    /// Copies of data.
    copies: AtomicU64,
    /// The last txg for which the log has put its head into the set.
    log_synced: AtomicU64,
    /// What the layer above has made of it, while somebody uses that.
    opened: Mutex<Weak<dyn Any + Send + Sync>>,
    /// Hears when properties have changed.
    listener: Mutex<Option<Listener>>,
}

/// Hears what the properties of a head are now, and which features the pool has. Called in syncing context; it
/// must not wait for a transaction.
pub type Listener = Box<dyn Fn(&Dataset, &FeatureCounts) -> Result<(), DslError> + Send + Sync>;

/// A count of changes that none is equal to.
const NEVER: u64 = u64::MAX;

impl Head {
    /// The dataset's object, also the number of its object set.
    pub fn id(&self) -> ObjectId {
        self.id
    }

    /// The directory that it belongs to.
    pub fn dir(&self) -> ObjectId {
        self.dir
    }

    /// Its full name as of the last sync.
    pub fn name(&self) -> Arc<str> {
        Arc::clone(&self.name.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The transaction groups of its pool.
    pub fn txgs(&self) -> &Arc<Txgs> {
        &self.txgs
    }

    /// The counts of cloned blocks of its pool.
    pub fn clones(&self) -> &Arc<Brt> {
        &self.brt
    }

    /// What the layer above makes of the head: its files, its volume. Made by the first who asks, and
    /// shared by all until the last of them has dropped it, so that what it keeps in memory is there once.
    ///
    /// # Errors
    /// Those of `open`.
    pub fn opened<T: Any + Send + Sync, E>(
        &self,
        open: impl FnOnce() -> Result<Arc<T>, E>,
    ) -> Result<Arc<T>, E> {
        let mut slot = lock(&self.opened);
        if let Some(there) = slot.upgrade().and_then(|there| there.downcast::<T>().ok()) {
            return Ok(there);
        }
        let made = open()?;
        let weak: Weak<T> = Arc::downgrade(&made);
        *slot = weak;
        Ok(made)
    }

    /// From now on `listener` hears of every change of a property that decides how the head is changed, before
    /// the task that changed it returns; and once with the next txg, whatever was changed since its owner looked.
    pub fn on_properties(&self, listener: Listener) {
        *lock(&self.listener) = Some(listener);
        self.policy_of.store(NEVER, Ordering::Release);
    }

    /// When its changes are durable.
    pub fn sync_mode(&self) -> SyncMode {
        SyncMode::of(self.sync_mode.load(Ordering::Relaxed))
    }

    /// Properties `sync` and `logbias`.
    fn set_log_properties(&self, dataset: &Dataset) -> Result<(), DslError> {
        let stored = prop::stored_number(dataset, "sync")?;
        self.log.set_bias(match prop::stored_number(dataset, "logbias")? {
            1 => LogBias::Throughput,
            _ => LogBias::Latency,
        });
        self.log.set_enabled(SyncMode::of(stored) != SyncMode::Disabled);
        self.sync_mode.store(stored, Ordering::Relaxed);
        Ok(())
    }

    /// Creation txg of its newest snapshot, or of its origin, as of the last sync: older blocks are shared.
    pub fn prev_snap_txg(&self) -> Txg {
        Txg(self.prev_snap_txg.load(Ordering::Acquire))
    }

    /// Joins the open txg if there is room for a change: in the pool, in the quotas of the directories
    /// above, in the refquota. The cost is multiplied by the copies that are kept, and by what small blocks waste.
    ///
    /// # Errors
    /// [`DslError::Quota`] or [`DslError::Space`], whose `after` says whether it is worth waiting;
    /// [`DslError::Tx`] if the pool is suspended or closed.
    pub fn begin(&self, cost: Cost) -> Result<Tx, DslError> {
        let cost = self.on_vdevs(cost);
        let rooms = Arc::clone(&self.rooms.read().unwrap_or_else(PoisonError::into_inner));
        let dirty = self.pool.more_than_estimated(self.txgs.meter().total());
        room::ask(&self.room, &rooms, &self.pool, cost, dirty)
            .map_err(|refused| self.refuse(&refused, cost))?;
        let tx = self.txgs.begin()?;
        let txg = tx.txg();
        if cost.frees {
            self.pool.note_freeing(txg);
        }
        self.room.pending.add(txg, cost.bytes);
        for room in rooms.iter() {
            room.pending.add(txg, cost.bytes);
        }
        Ok(tx)
    }

    fn on_vdevs(&self, cost: Cost) -> Cost {
        let copied = |bytes: u64| bytes.saturating_mul(self.copies.load(Ordering::Relaxed));
        let bytes = copied(self.pool.wasted(cost.bytes, cost.blocks));
        Cost { bytes, within: cost.within.map(copied), ..cost }
    }

    /// The same; where it is worth waiting, it waits until what is dirty now is on disk. Needs a thread
    /// that syncs, and a caller that holds no transaction.
    pub fn begin_waiting(&self, cost: Cost) -> Result<Tx, DslError> {
        let mut result = self.begin(cost);
        // A place that is set aside comes free with every txg; others may take it all the same.
        let retries = if self.room.is_set_aside(self.on_vdevs(cost)) { usize::MAX } else { ROOM_RETRIES };
        for _ in 0..retries {
            match &result {
                Err(DslError::Quota { after: Some(txg), .. } | DslError::Space { after: Some(txg), .. }) => {
                    self.txgs.wait_synced(*txg)?;
                }
                _ => break,
            }
            result = self.begin(cost);
        }
        result
    }

    fn refuse(&self, refused: &Refused, cost: Cost) -> DslError {
        let after = |is_pending: bool| is_pending.then(|| self.txgs.open_txg());
        match *refused {
            Refused::Quota { used, quota, is_pending } => {
                DslError::Quota { name: self.name().to_string(), used, quota, after: after(is_pending) }
            }
            Refused::Pool { used, size, is_pending } => DslError::Space {
                needed: cost.bytes,
                available: size.saturating_sub(used),
                after: after(is_pending),
            },
        }
    }

    /// What file systems report.
    pub fn space(&self) -> HeadSpace {
        let rooms = Arc::clone(&self.rooms.read().unwrap_or_else(PoisonError::into_inner));
        HeadSpace {
            referenced: self.room.referenced.get(),
            available: room::available(&self.room, &rooms, &self.pool),
        }
    }

    /// Changes of the pool that free something are not on disk yet, or what they have freed cannot be used again yet.
    pub fn is_freeing(&self) -> bool {
        self.pool.is_freeing()
    }

    /// Something begins to use a per-dataset feature: it is active from the next sync on. To be called in
    /// the transaction of the change.
    pub fn use_feature(&self, name: &'static str) {
        lock(&self.features).insert(name);
    }

    /// Reads its counters again if its dataset has changed.
    fn refresh(&self, mos: &Arc<LiveSet>) -> Result<(), DslError> {
        let version = self.object.version();
        if self.version.swap(version, Ordering::AcqRel) == version {
            return Ok(());
        }
        let phys = decode_dataset(&self.object)?;
        self.room.referenced.set(phys.referenced);
        self.room.unique.set(phys.unique);
        self.prev_snap_txg.store(phys.prev_snap_txg.0, Ordering::Release);
        self.refresh_limits(mos)
    }

    fn refresh_limits(&self, mos: &Arc<LiveSet>) -> Result<(), DslError> {
        let dir = decode_dir(&mos.object(self.dir)?)?;
        self.room.refquota.set(stored_number(mos, &dir, "refquota")?);
        self.room.refreservation.set(stored_number(mos, &dir, "refreservation")?);
        Ok(())
    }
}

impl std::fmt::Debug for Head {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Head({} = object {})", self.name(), self.id)
    }
}

fn decode_dataset(object: &LiveObject) -> Result<DatasetPhys, DslError> {
    let decoded = object.with_bonus(|bonus| DatasetPhys::decode(bonus, Endian::Little));
    decoded.map_err(DslError::decode(object.id()))
}

fn decode_dir(object: &LiveObject) -> Result<DirPhys, DslError> {
    let decoded = object.with_bonus(|bonus| DirPhys::decode(bonus, Endian::Little));
    decoded.map_err(DslError::decode(object.id()))
}

/// A number property of a directory itself; 0 if it is not set.
fn stored_number(mos: &Arc<LiveSet>, dir: &DirPhys, name: &str) -> Result<u64, DslError> {
    let Some(id) = dir.props else { return Ok(0) };
    let zap = mos::zap(&mos.view(), id)?;
    let number = |key: &str| -> Result<Option<u64>, DslError> {
        Ok(zap.lookup(key.as_bytes())?.and_then(|entry| mos::single(&entry)))
    };
    if let Some(number) = number(name)? {
        return Ok(number);
    }
    if zap.lookup(format!("{name}$inherit").as_bytes())?.is_some() {
        return Ok(0);
    }
    Ok(number(&format!("{name}$recvd"))?.unwrap_or(0))
}

/// The heads that are open for writing.
pub struct Heads {
    mos: Arc<LiveSet>,
    txgs: Arc<Txgs>,
    features: Arc<FeatureCounts>,
    brt: Arc<Brt>,
    pool_name: String,
    root_dir: ObjectId,
    /// Held while names and chains change.
    quiet: RwLock<()>,
    open: Mutex<BTreeMap<ObjectId, Arc<Head>>>,
    dirs: Mutex<HashMap<ObjectId, Weak<Room>>>,
    /// Snapshots that are held, and how often.
    held: Arc<Mutex<BTreeMap<ObjectId, usize>>>,
    pool: Arc<PoolRoom>,
    /// Counts changes of properties that policies come from.
    policies: AtomicU64,
    /// Counts changes of names and limits, and what open heads know of.
    changes: AtomicU64,
    seen_changes: AtomicU64,
}

impl Heads {
    /// The heads of a pool. `mos` and `txgs` are those it is written with.
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
        let directory = super::mos_tx::DIRECTORY;
        let zap = mos::zap(&mos.view(), directory)?;
        let root = mos::lookup_object(&zap, directory, super::ctx::ROOT_DATASET)?;
        let root_dir = root.ok_or(DslError::NoSpecial { name: super::ctx::ROOT_DATASET })?;
        Ok(Arc::new(Heads {
            mos: Arc::clone(mos),
            txgs: Arc::clone(txgs),
            features: Arc::clone(features),
            brt: Arc::clone(brt),
            pool_name: pool_name.to_owned(),
            root_dir,
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

    /// Says how large the pool is: once at opening, and after each sync.
    pub fn set_pool_space(&self, space: PoolSpace) {
        self.pool.set(space, self.mos.store().zio());
    }

    /// Says how many bytes, which are not in the size of the pool, come back with the next txgs: who finds the pool
    /// full waits for them.
    pub fn set_returning(&self, bytes: u64) {
        self.pool.set_returning(bytes);
    }

    /// After the sync of a txg: says how many bytes can be allocated among blocks of data. Intent logs may take what is left of
    /// them whatever changes are begun until the next, and a quarter of what the pool keeps back in any case.
    pub fn set_free(&self, synced: Txg, free: u64) {
        let Some(PoolSpace { slop, .. }) = self.pool.get() else { return };
        let changes = self.txgs.dirty_max().saturating_mul(CHANGES_OF_DIRTY);
        self.txgs.meter().set_log_room(synced, |logged| {
            let changes = free.saturating_add(logged).saturating_sub(slop).min(changes);
            free.saturating_sub(slop - slop / 4).saturating_sub(changes)
        });
    }

    /// How large the pool is, if it was said.
    pub fn pool_space(&self) -> Option<PoolSpace> {
        self.pool.get()
    }

    /// The transaction groups of the pool.
    pub fn txgs(&self) -> &Arc<Txgs> {
        &self.txgs
    }

    /// Keeps heads from being opened while names and chains change: held by the sync while tasks run. A task
    /// therefore never opens a head; see [`TaskCtx::change_contents`].
    pub fn exclusive(&self) -> RwLockWriteGuard<'_, ()> {
        self.quiet.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Properties that decide how open heads are changed have changed, or features that they need.
    pub fn policy_changed(&self) {
        self.policies.fetch_add(1, Ordering::AcqRel);
    }

    /// Directories were renamed, which changes inherited properties too, or limits of heads were set.
    pub(crate) fn places_changed(&self) {
        self.changes.fetch_add(1, Ordering::AcqRel);
        self.policy_changed();
    }

    /// Reading view of the newest state.
    fn dsl(&self) -> Dsl {
        Dsl::open(self.mos.view(), self.root_dir, &self.pool_name)
    }

    /// Opens the head in this dataset object, or gives the one that is open.
    ///
    /// # Errors
    /// [`DslError::WrongKind`] of a snapshot, [`DslError::Inconsistent`], [`DslError::Encrypted`], or why
    /// it cannot be read.
    pub fn open(&self, dataset: ObjectId) -> Result<Arc<Head>, DslError> {
        let _steady = self.quiet.read().unwrap_or_else(PoisonError::into_inner);
        self.open_steady(dataset, false)
    }

    /// The same for a head that is being received, which is inconsistent until it is whole.
    pub fn open_partial(&self, dataset: ObjectId) -> Result<Arc<Head>, DslError> {
        let _steady = self.quiet.read().unwrap_or_else(PoisonError::into_inner);
        self.open_steady(dataset, true)
    }

    /// The same by its full name.
    pub fn open_by_name(&self, name: &str) -> Result<Arc<Head>, DslError> {
        let _steady = self.quiet.read().unwrap_or_else(PoisonError::into_inner);
        let dataset = self.dsl().dataset(name)?;
        self.open_steady(dataset.id(), false)
    }

    /// Keeps a snapshot from being destroyed until what this returns is dropped. `root` is the root block that the
    /// caller knows of it: object numbers come again, and another dataset may have this one by now.
    ///
    /// # Errors
    /// [`DslError::NotFound`] if there is no such snapshot any more, or why it cannot be read.
    pub fn hold_snapshot(&self, id: ObjectId, root: &BlockPtr) -> Result<SnapshotHold, DslError> {
        let _steady = self.quiet.read().unwrap_or_else(PoisonError::into_inner);
        let gone = || DslError::not_found(format!("snapshot {id}"));
        let object = self.mos.object(id).map_err(|_| gone())?;
        if object.read().dnode().bonus_type != ObjType::DSL_DATASET {
            return Err(gone());
        }
        let order = object.read().order();
        let phys =
            object.with_bonus(|bonus| DatasetPhys::decode(bonus, order)).map_err(DslError::decode(id))?;
        if !phys.is_snapshot() || phys.bp != *root {
            return Err(gone());
        }
        *lock(&self.held).entry(id).or_default() += 1;
        Ok(SnapshotHold { held: Arc::clone(&self.held), id })
    }

    /// The head if it is open.
    pub fn get(&self, dataset: ObjectId) -> Option<Arc<Head>> {
        lock(&self.open).get(&dataset).cloned()
    }

    fn open_steady(&self, id: ObjectId, may_be_partial: bool) -> Result<Arc<Head>, DslError> {
        let mut open = lock(&self.open);
        if let Some(head) = open.get(&id) {
            return Ok(Arc::clone(head));
        }
        let dataset = self.dsl().dataset_by_object(id)?;
        check_changeable(&dataset, may_be_partial)?;
        let policies = self.policies.load(Ordering::Acquire);
        let policy = policy_of(&dataset, &self.features)?;
        let bp = dataset.phys().bp;
        let set = open_set(&self.mos, &self.txgs, &bp, id, &policy)?;
        let head = Arc::new(Head {
            log: IntentLog::new(&set, &self.txgs),
            set,
            id,
            dir: dataset.dir().id(),
            name: RwLock::new(dataset.name().into()),
            txgs: Arc::clone(&self.txgs),
            brt: Arc::clone(&self.brt),
            pool: Arc::clone(&self.pool),
            room: HeadRoom::default(),
            rooms: RwLock::new(self.rooms_of(dataset.dir().id())?),
            object: self.mos.object(id)?,
            version: AtomicU64::new(u64::MAX),
            prev_snap_txg: AtomicU64::new(0),
            features: Mutex::default(),
            policy_of: AtomicU64::new(policies),
            sync_mode: AtomicU64::new(0),
            copies: AtomicU64::new(policy.copies.into()),
            opened: Mutex::new(Weak::<()>::new()),
            listener: Mutex::default(),
            log_synced: AtomicU64::new(0),
        });
        head.set_log_properties(&dataset)?;
        head.refresh(&self.mos)?;
        open.insert(id, Arc::clone(&head));
        Ok(head)
    }

    /// A directory and all above it.
    fn rooms_of(&self, dir: ObjectId) -> Result<Arc<[Arc<Room>]>, DslError> {
        let mut rooms = Vec::new();
        let mut at = Some(dir);
        let mut known = lock(&self.dirs);
        while let Some(id) = at {
            if rooms.len() > DEPTH_LIMIT {
                return Err(DslError::Endless { what: "parents", object: dir, limit: DEPTH_LIMIT });
            }
            let object = self.mos.object(id)?;
            at = decode_dir(&object)?.parent;
            let room = match known.get(&id).and_then(Weak::upgrade) {
                Some(room) => room,
                None => Arc::new(Room::new(object)?),
            };
            known.insert(id, Arc::downgrade(&room));
            rooms.push(room);
        }
        Ok(rooms.into())
    }

    /// Checks that nobody uses a head or holds a snapshot that is to be destroyed or replaced.
    ///
    /// # Errors
    /// [`DslError::Busy`] if somebody does, or has changed it since this txg closed.
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

    /// Forgets a head that nobody uses.
    pub(crate) fn evict(&self, id: ObjectId) -> Option<Arc<Head>> {
        lock(&self.open).remove(&id)
    }

    /// Whether somebody uses this head.
    pub fn is_in_use(&self, id: ObjectId) -> bool {
        lock(&self.open).get(&id).is_some_and(is_still_used)
    }

    /// Whether a sync of this txg has anything to write.
    pub fn is_dirty(&self, txg: Txg) -> bool {
        lock(&self.open).values().any(|head| head.set.is_dirty(txg))
    }

    /// Writes every head that the txg changed, and accounts for it. May be called again in the same txg.
    ///
    /// # Errors
    /// If something cannot be read or written. The txg must not end then.
    pub fn sync_all(&self, ctx: &mut TaskCtx<'_>) -> Result<(), DslError> {
        self.retire(ctx);
        // In order of their numbers, so that the same changes give the same pool.
        let heads: Vec<Arc<Head>> = lock(&self.open).values().cloned().collect();
        for head in heads {
            self.refresh_policy(&head)?;
            // Once a snapshot has been taken in this txg, the head must stay as it is; and the second time
            // the log would speak of changes of the next txg.
            let is_frozen = ctx.m().dataset(head.id)?.prev_snap_txg >= ctx.txg();
            if head.log_synced.swap(ctx.txg().0, Ordering::AcqRel) != ctx.txg().0 && !is_frozen {
                head.log.sync(ctx.tx);
            }
            for feature in std::mem::take(&mut *lock(&head.features)) {
                zapify::activate_feature(ctx.m(), head.id, feature)?;
            }
            if head.set.is_dirty(ctx.txg()) {
                sync_set(ctx, head.id, &head.set)?;
            }
        }
        Ok(())
    }

    /// Forgets heads that nobody uses any more and of which nothing is left to be written. A log that such
    /// a head has left is given up first, which takes one more txg.
    fn retire(&self, ctx: &TaskCtx<'_>) {
        let txg = ctx.txg();
        lock(&self.open).retain(|_, head| {
            if is_used(head) || head.set.is_dirty(txg) || head.set.is_dirty(Txg(txg.0 + 1)) {
                return true;
            }
            // Later in a txg a snapshot may have been taken, after which the head must stay as it is.
            if head.log_synced.load(Ordering::Acquire) == txg.0 {
                return true;
            }
            let header = head.set.zil_header();
            // A log that was claimed waits for its replay.
            let has_log = header != ZilHeader::default() && header.claim_txg == Txg(0);
            if has_log {
                head.log.close(ctx.tx);
            }
            has_log
        });
    }

    fn refresh_policy(&self, head: &Head) -> Result<(), DslError> {
        let policies = self.policies.load(Ordering::Acquire);
        if head.policy_of.load(Ordering::Acquire) == policies {
            return Ok(());
        }
        let dataset = self.dsl().dataset_by_object(head.id)?;
        let policy = policy_of(&dataset, &self.features)?;
        head.set_log_properties(&dataset)?;
        head.set.set_policy(with_accounting_of(&policy, &head.set));
        head.copies.store(policy.copies.into(), Ordering::Relaxed);
        head.policy_of.store(policies, Ordering::Release);
        match &*lock(&head.listener) {
            Some(listener) => listener(&dataset, &self.features),
            None => Ok(()),
        }
    }

    /// The txg is on disk: counters are as it left them, and the logs need not hold its changes any more.
    /// After the uberblock was written, before `Txgs::finish`.
    ///
    /// # Errors
    /// If the MOS cannot be read.
    pub fn finish_txg(&self, txg: Txg) -> Result<(), DslError> {
        let changes = self.changes.load(Ordering::Acquire);
        let is_changed = self.seen_changes.swap(changes, Ordering::AcqRel) != changes;
        let open = lock(&self.open);
        for head in open.values() {
            head.log.synced(txg);
            head.refresh(&self.mos)?;
            head.room.pending.clear(txg);
            if is_changed {
                self.refresh_place(head)?;
            }
        }
        drop(open);
        let mut dirs = lock(&self.dirs);
        dirs.retain(|_, room| room.strong_count() > 0);
        for room in dirs.values().filter_map(Weak::upgrade) {
            room.refresh()?;
            room.pending.clear(txg);
        }
        self.pool.synced(txg);
        Ok(())
    }

    /// After a rename or a new limit somewhere: name, directories above, limits.
    fn refresh_place(&self, head: &Head) -> Result<(), DslError> {
        let dataset = self.dsl().dataset_by_object(head.id)?;
        head.refresh_limits(&self.mos)?;
        *head.name.write().unwrap_or_else(PoisonError::into_inner) = dataset.name().into();
        *head.rooms.write().unwrap_or_else(PoisonError::into_inner) = self.rooms_of(head.dir)?;
        Ok(())
    }
}

/// That a snapshot is not destroyed.
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

/// Holders of a set that nobody uses: its head and its log.
const OWN_HOLDERS: usize = 2;

/// Somebody beside the registry holds it, its log or its contents.
fn is_used(head: &Arc<Head>) -> bool {
    Arc::strong_count(head) > 1
        || Arc::strong_count(&head.log) > 1
        || Arc::strong_count(&head.set) > OWN_HOLDERS
}

/// The same; reading ahead is no use of it, and ends.
fn is_still_used(head: &Arc<Head>) -> bool {
    if !is_used(head) {
        return false;
    }
    head.set.store().drain_prefetch();
    is_used(head)
}

/// Checks that a dataset is a head whose contents may be changed.
pub(crate) fn check_changeable(dataset: &Dataset, may_be_partial: bool) -> Result<(), DslError> {
    let name = || dataset.name().to_owned();
    if dataset.is_snapshot() {
        return Err(DslError::WrongKind { name: name(), why: "a snapshot cannot be changed" });
    }
    if dataset.is_inconsistent() && !may_be_partial {
        return Err(DslError::Inconsistent { name: name() });
    }
    if dataset.is_encrypted()? {
        return Err(DslError::Encrypted { name: name(), why: "encrypted datasets cannot be written" });
    }
    Ok(())
}

/// Opens an object set for writing, accounting as it says itself.
pub(crate) fn open_set(
    mos: &Arc<LiveSet>,
    txgs: &Arc<Txgs>,
    bp: &BlockPtr,
    id: ObjectId,
    policy: &SetPolicy,
) -> Result<Arc<LiveSet>, DslError> {
    let set = LiveSet::open(mos.store(), txgs.meter(), bp, id.0, policy.clone())?;
    set.set_policy(with_accounting_of(policy, &set));
    Ok(set)
}

/// Objects of a set are counted by owner only if all that are there have been counted.
fn with_accounting_of(policy: &SetPolicy, set: &LiveSet) -> SetPolicy {
    let counts = |bit: u32| set.kind() == ObjsetType::Zfs && set.flags() >> bit & 1 == 1;
    SetPolicy {
        user_accounting: counts(0),
        object_accounting: counts(1),
        project_accounting: counts(2),
        ..policy.clone()
    }
}

/// A property that decides how an open head is changed: how its blocks are written, its log, its files.
pub fn decides_policy(prop: &str) -> bool {
    matches!(
        prop,
        "acltype"
            | "atime"
            | "checksum"
            | "compression"
            | "copies"
            | "dnodesize"
            | "logbias"
            | "longname"
            | "readonly"
            | "recordsize"
            | "redundant_metadata"
            | "relatime"
            | "snapdir"
            | "special_small_blocks"
            | "sync"
            | "xattr"
    )
}
