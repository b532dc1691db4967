//! A pool that is open for writing.
//!
//! [`LivePool`] owns everything that one transaction group after the other is made of: the vdevs, the
//! block layer, the allocator, the MOS, the open heads and the configuration. Datasets are changed by
//! whoever holds one of [`LivePool::heads`]; everything else by sync tasks ([`LivePool::run`]).
//!
//! # What always holds
//! - One txg is written at a time, and either whole or not at all: its uberblock is the last thing that
//!   is written, and only after everything that it leads to is durable.
//! - A txg that cannot be written suspends the pool (`outage`): until devices are back, or, where nobody
//!   attends to the pool, for good; whoever waits is told.
//! - Reading verbs use [`LivePool::view`], which never sees a txg that is not on disk.
//! - No thread is needed: without [`LivePool::start`] every caller that must wait for a txg writes it
//!   itself, so a run with a simulated [`Env`] is the same every time.
//!
//! # Order of locks
//! `state` (held while a txg is written) -> `heads.exclusive()` -> `tasks`, `published`, `tree_change` -> locks of the
//! layers below.

use crate::aux::change as aux;
use crate::space_maps::SpaceBook;
use crate::{Host, Outside};
use crate::{Pool, PoolError};
use crate::{claim, diagnosis, events, labels, leases, mmp, outage, runtime, scan, sync, txg_history};
use dmu::Store;
use dmu::{LiveSet, SyncTx, TxError, Txgs};
use dsl::DslError;
use dsl::brt::Brt;
use dsl::{Caller, FeatureCounts, Heads, TaskCtx};
use format::config::PoolConfig;
use format::uberblock::Uberblock;
use format::{ObjectId, PoolGuid, Txg, VdevId};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use vdev::VdevTree;
use vdev::device::held::Hold;
use vdev::env::Env;
use zio::alloc::Allocator;
use zio::{AllocTx, Zio};

/// A pool that is open for writing.
pub struct LivePool {
    pub(crate) env: Env,
    pub(crate) zio: Arc<Zio>,
    pub(crate) store: Arc<Store>,
    pub(crate) mos: Arc<LiveSet>,
    pub(crate) allocator: Arc<Allocator>,
    /// Held while the tree of vdevs is changed (`tree_change`).
    pub(crate) tree_change: Mutex<()>,
    pub(crate) txgs: Arc<Txgs>,
    pub(crate) heads: Arc<Heads>,
    pub(crate) features: Arc<FeatureCounts>,
    pub(crate) brt: Arc<Brt>,
    pub(crate) space: Arc<SpaceBook>,
    pub(crate) host: Host,
    /// The id of that machine now.
    pub(crate) host_id: AtomicU64,
    pub(crate) name: String,
    /// Its writes wait until something was changed.
    pub(crate) hold: Option<Arc<Hold>>,
    /// It has been opened: what is changed from now on, somebody has asked for.
    pub(crate) is_open: AtomicBool,
    pub(crate) tasks: Mutex<Vec<Task>>,
    /// The txg that writes the newest command into the history.
    pub(crate) recorded: AtomicU64,
    pub(crate) state: Mutex<State>,
    pub(crate) published: RwLock<Arc<Published>>,
    /// Views of it that are read.
    pub(crate) leases: Arc<leases::Leases>,
    /// Spares and cache devices that are there.
    pub(crate) aux: Mutex<aux::Held>,
    /// Datasets with logs that were claimed and not yet replayed.
    pub(crate) unreplayed: Mutex<Vec<ObjectId>>,
    pub(crate) runtime: Mutex<Option<runtime::Runtime>>,
    pub(crate) mmp: mmp::Mmp,
    pub(crate) outages: Arc<outage::Outages>,
    /// Who keeps data of its file systems.
    pub(crate) outside: Mutex<Vec<Weak<dyn Outside>>>,
    /// Leaves that were faulted by themselves and answer are to be used again.
    pub(crate) lift_faults: AtomicBool,
    /// Vdevs grow with their devices.
    pub(crate) autoexpand: AtomicBool,
    pub(crate) events: Arc<events::Poster>,
    pub(crate) txg_history: txg_history::TxgHistory,
    pub(crate) scans: Arc<scan::Scans>,
}

/// What changes from txg to txg, and belongs to whoever writes one.
pub(crate) struct State {
    pub(crate) config: PoolConfig,
    /// Of the last txg that is on disk.
    pub(crate) uberblock: Uberblock,
    /// Top-level vdevs whose labels are to be written.
    pub(crate) dirty: BTreeSet<VdevId>,
    /// The configuration in the MOS is to be written.
    pub(crate) is_config_changed: bool,
    /// The next txg flushes all metaslabs.
    pub(crate) flush_all: bool,
    /// An uberblock is due, whether or not anything changed.
    pub(crate) is_forced: bool,
    /// Logs to be claimed in the next txg.
    pub(crate) claims: Vec<claim::Claim>,
    /// Newest birth of what was claimed.
    pub(crate) claimed: Txg,
    pub(crate) diagnosis: diagnosis::Diagnosis,
    pub(crate) losses: sync::Losses,
    /// Why no more txgs are written.
    pub(crate) stopped: Option<TxError>,
}

/// What everybody may know of the last txg that is on disk.
pub(crate) struct Published {
    pub(crate) config: PoolConfig,
    pub(crate) uberblock: Uberblock,
    pub(crate) view: Mutex<Option<Arc<Pool>>>,
}

/// What waits to be done in a txg.
pub(crate) struct Task {
    /// The txg that was open when it was submitted: it is done in this one or a later one.
    pub(crate) txg: Txg,
    /// Of such tasks only one is done in a txg: a second could stumble over what the first has made.
    pub(crate) is_alone: bool,
    pub(crate) run: Box<Work>,
}

/// What a task does; where its outcome goes it knows itself. An error, in words: it has failed.
pub(crate) type Work = dyn FnOnce(&mut TaskCtx<'_>, &mut PoolTask<'_>) -> Result<(), String> + Send;

/// What a task on the pool itself holds, besides a [`TaskCtx`].
pub(crate) struct PoolTask<'a> {
    pub(crate) pool: &'a LivePool,
    pub(crate) state: &'a mut State,
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What these guard is whole between any two statements, or given up with the pool.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a pool is put together from.
pub(crate) struct Parts {
    pub(crate) name: String,
    pub(crate) hold: Option<Arc<Hold>>,
    pub(crate) env: Env,
    pub(crate) zio: Arc<Zio>,
    pub(crate) store: Arc<Store>,
    pub(crate) mos: Arc<LiveSet>,
    pub(crate) allocator: Arc<Allocator>,
    pub(crate) txgs: Arc<Txgs>,
    pub(crate) heads: Arc<Heads>,
    pub(crate) features: Arc<FeatureCounts>,
    pub(crate) brt: Arc<Brt>,
    pub(crate) space: Arc<SpaceBook>,
    pub(crate) host: Host,
    pub(crate) config: PoolConfig,
    pub(crate) uberblock: Uberblock,
    /// What is being done with it.
    pub(crate) context: events::Context,
}

impl LivePool {
    pub(crate) fn assemble(parts: Parts) -> Arc<LivePool> {
        let Parts { env, zio, store, mos, allocator, txgs, heads, features, brt, space, host, .. } = parts;
        let Parts { name, hold, config, uberblock, context, .. } = parts;
        let events = events::Poster::new(&env, &name, config.pool_guid, context);
        zio.tree().set_listener(Arc::clone(&events) as _);
        let published = Published { config: config.clone(), uberblock, view: Mutex::default() };
        let state = State {
            config,
            uberblock,
            dirty: BTreeSet::new(),
            is_config_changed: false,
            flush_all: false,
            is_forced: false,
            claims: Vec::new(),
            claimed: Txg(0),
            diagnosis: diagnosis::Diagnosis::default(),
            losses: sync::Losses::default(),
            stopped: None,
        };
        let pool = Arc::new(LivePool {
            env,
            zio,
            store,
            mos,
            allocator,
            tree_change: Mutex::default(),
            txgs,
            heads,
            features,
            brt,
            space,
            host_id: AtomicU64::new(host.id),
            host,
            name,
            hold,
            is_open: AtomicBool::new(false),
            tasks: Mutex::default(),
            recorded: AtomicU64::new(0),
            state: Mutex::new(state),
            published: RwLock::new(Arc::new(published)),
            leases: Arc::default(),
            aux: Mutex::default(),
            unreplayed: Mutex::default(),
            runtime: Mutex::default(),
            mmp: mmp::Mmp::default(),
            outages: Arc::default(),
            outside: Mutex::default(),
            lift_faults: AtomicBool::new(false),
            autoexpand: AtomicBool::new(false),
            events,
            txg_history: txg_history::TxgHistory::default(),
            scans: Arc::default(),
        });
        pool.zio.set_outage(Arc::new(outage::Asked(Arc::downgrade(&pool))));
        pool.leases.set_pool(&pool);
        pool.store.set_witness(Arc::clone(pool.scans.notes()) as _);
        if let Some(hold) = &pool.hold {
            pool.judge(hold);
        }
        pool.sync_inline();
        pool
    }

    /// Whoever has to wait for a txg writes it.
    pub(crate) fn sync_inline(self: &Arc<Self>) {
        let pool = Arc::downgrade(self);
        self.txgs.set_inline(Some(Arc::new(move || {
            let pool = pool.upgrade().ok_or(TxError::Closed)?;
            match pool.sync_here() {
                Ok(_) => Ok(()),
                Err(PoolError::Tx(error)) => Err(error),
                Err(error) => Err(TxError::Suspended { why: error.to_string() }),
            }
        })));
    }

    // ---- looking -----------------------------------------------------------------------------

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its guid.
    pub fn guid(&self) -> PoolGuid {
        self.published().config.pool_guid
    }

    /// Its vdevs, as they are now.
    pub fn tree(&self) -> Arc<VdevTree> {
        self.zio.tree()
    }

    /// Its transaction groups.
    pub fn txgs(&self) -> &Arc<Txgs> {
        &self.txgs
    }

    /// Its heads that are open for writing.
    pub fn heads(&self) -> &Arc<Heads> {
        &self.heads
    }

    /// Reference counts of its features.
    pub fn features(&self) -> &Arc<FeatureCounts> {
        &self.features
    }

    /// Blocks that several files share.
    pub fn brt(&self) -> &Arc<Brt> {
        &self.brt
    }

    /// Its own object set, in its newest state.
    pub fn mos(&self) -> &Arc<LiveSet> {
        &self.mos
    }

    /// Where its blocks come from and go to.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// Its space.
    pub fn allocator(&self) -> &Arc<Allocator> {
        &self.allocator
    }

    /// Clock, random numbers and workers.
    pub fn env(&self) -> &Env {
        &self.env
    }

    /// The machine that it is open on, as it was then.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// The id of the machine has become known, or is another now: it counts for what is set from now on.
    pub fn set_host_id(&self, id: u64) {
        self.host_id.store(id, Ordering::Relaxed);
    }

    /// The configuration as of the last txg that is on disk.
    pub fn config(&self) -> PoolConfig {
        self.published().config.clone()
    }

    /// The uberblock of the last txg that is on disk.
    pub fn uberblock(&self) -> Uberblock {
        self.published().uberblock
    }

    pub(crate) fn published(&self) -> Arc<Published> {
        Arc::clone(&self.published.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The pool as of the last txg that is on disk, for reading. Cheap while no new txg was written.
    ///
    /// What it leads to stays as it is while the view is held, up to a part of the pool (`leases`); who holds back
    /// more than that gets errors of blocks that were overwritten ([`dmu::DmuError::TooOld`] of those that have no
    /// checksum), and asks for a new view.
    ///
    /// # Errors
    /// If the MOS cannot be read.
    pub fn view(&self) -> Result<Arc<Pool>, PoolError> {
        let published = self.published();
        let mut view = lock(&published.view);
        // Devices may have come and gone since. Of a pool that is suspended nothing new can be read.
        let is_new = |view: &Pool| Arc::ptr_eq(view.tree(), &self.tree()) || self.suspended().is_some();
        if let Some(view) = view.as_ref().filter(|view| is_new(view)) {
            return Ok(Arc::clone(view));
        }
        let lease = Arc::new(self.leases.hold(published.uberblock.txg));
        if !Arc::ptr_eq(&published, &self.published()) {
            // Txgs that have ended since may have let go of blocks: this one is too old to be held.
            drop(view);
            return self.view();
        }
        let aux = lock(&self.aux).keys().copied().collect();
        let (config, uberblock) = (&published.config, &published.uberblock);
        let made = Pool::of_live(&self.name, config, uberblock, &self.tree(), &self.store, aux, lease)?;
        made.show(&self.scans, &self.outages);
        *view = Some(Arc::clone(&made));
        Ok(made)
    }

    // ---- changing ----------------------------------------------------------------------------

    /// Does something in syncing context: in the txg that is open now or a later one, after everything that
    /// was changed before this call. Returns when that txg is on disk. The caller holds no transaction.
    ///
    /// # Errors
    /// What the task returns: nothing has changed then. Or [`PoolError::Tx`] if the txg could not be
    /// written, also because the task failed after it had changed something: the pool ends as in a crash.
    pub fn run<T: Send + 'static>(
        &self,
        task: impl FnOnce(&mut TaskCtx<'_>) -> Result<T, DslError> + Send + 'static,
    ) -> Result<T, PoolError> {
        self.run_as(Caller::Root, task)
    }

    /// The same for somebody: limits on the number of datasets bind those who cannot change them.
    ///
    /// # Errors
    /// As of [`LivePool::run`].
    pub fn run_as<T: Send + 'static>(
        &self,
        caller: Caller,
        task: impl FnOnce(&mut TaskCtx<'_>) -> Result<T, DslError> + Send + 'static,
    ) -> Result<T, PoolError> {
        self.submit(true, move |ctx, _| {
            ctx.caller = caller;
            let result = task(ctx);
            ctx.caller = Caller::Root;
            Ok(result?)
        })
    }

    /// The same for what changes the pool itself.
    pub(crate) fn run_on_pool<T: Send + 'static>(
        &self,
        task: impl FnOnce(&mut TaskCtx<'_>, &mut PoolTask<'_>) -> Result<T, PoolError> + Send + 'static,
    ) -> Result<T, PoolError> {
        self.submit(false, task)
    }

    pub(crate) fn submit<T: Send + 'static>(
        &self,
        is_alone: bool,
        task: impl FnOnce(&mut TaskCtx<'_>, &mut PoolTask<'_>) -> Result<T, PoolError> + Send + 'static,
    ) -> Result<T, PoolError> {
        let outcome = Arc::new(Mutex::new(None));
        let slot = Arc::clone(&outcome);
        let is_wanted = Arc::new(AtomicBool::new(true));
        let is_still_wanted = Arc::clone(&is_wanted);
        let run = Box::new(move |ctx: &mut TaskCtx<'_>, pool: &mut PoolTask<'_>| {
            if !is_still_wanted.load(Ordering::Acquire) {
                return Ok(());
            }
            let result = task(ctx, pool);
            let failure = result.as_ref().err().map(|error| sync::with_causes(error));
            *lock(&slot) = Some((ctx.txg(), result));
            failure.map_or(Ok(()), Err)
        });
        let mut txg = {
            // The txg is not closed before the task is in the queue.
            let tx = self.txgs.begin_now()?;
            lock(&self.tasks).push(Task { txg: tx.txg(), is_alone, run });
            tx.txg()
        };
        loop {
            // One that has not begun yet changes nothing then.
            self.wait_synced(txg).inspect_err(|_| is_wanted.store(false, Ordering::Release))?;
            txg = match &*lock(&outcome) {
                Some((at, _)) if *at > self.txgs.synced_txg() => *at,
                Some(_) => break,
                None => Txg(txg.0 + 1),
            };
        }
        let done = lock(&outcome).take();
        let result = done.map_or(Err(PoolError::Tx(TxError::Closed)), |(_, result)| result)?;
        // The first txgs of an import change nothing that somebody has asked for.
        if self.is_open.load(Ordering::Acquire) {
            self.release()?;
        }
        Ok(result)
    }

    /// Waits until a txg is on disk; writes it if there is no thread that does.
    ///
    /// # Errors
    /// If it never will be.
    pub fn wait_synced(&self, txg: Txg) -> Result<(), PoolError> {
        Ok(self.txgs.wait_synced(txg)?)
    }

    /// Brings everything that was changed before this call to disk. Returns the txg that did.
    ///
    /// # Errors
    /// If it could not be written: the pool is suspended then.
    pub fn sync(&self) -> Result<Txg, PoolError> {
        let txg = self.txgs.open_txg();
        self.wait_synced(txg)?;
        self.release()?;
        Ok(txg)
    }

    /// The same, and writes an uberblock whether or not anything was changed: who is about to let go of a pool learns
    /// here whether its devices take it.
    ///
    /// # Errors
    /// As of [`LivePool::sync`].
    pub fn sync_all(&self) -> Result<Txg, PoolError> {
        lock(&self.state).is_forced = true;
        self.sync()
    }

    /// Whether a txg is on disk.
    pub fn is_on_disk(&self, txg: Txg) -> bool {
        txg <= self.txgs.synced_txg()
    }

    /// Writes one txg on this thread: for a pool whose txgs are written by a thread of its caller's.
    ///
    /// # Errors
    /// If it could not be written: the pool is suspended then.
    pub fn sync_here(&self) -> Result<Txg, PoolError> {
        let mut state = lock(&self.state);
        if let Some(error) = &state.stopped {
            return Err(error.clone().into());
        }
        let tx = self.txgs.quiesce();
        if let Some(error) = self.txgs.failure() {
            state.stopped = Some(error.clone());
            drop(state);
            self.note_failure();
            return Err(error.into());
        }
        let _insist = zio::Insist::begin();
        self.finish(&mut state, tx)
    }

    /// Tells whoever waits for devices that nothing more is written, if that is so.
    pub(crate) fn note_failure(&self) {
        if let Some(TxError::Suspended { why }) = self.txgs.failure() {
            self.note_stopped(&why);
        }
    }

    /// Writes a txg that was closed.
    pub(crate) fn finish(&self, state: &mut State, tx: SyncTx) -> Result<Txg, PoolError> {
        let txg = tx.txg();
        let fuse = Fuse(self);
        // Should it not return, nothing is written on top of what it has left.
        state.stopped = Some(Fuse::blown());
        let now = || self.env.clock().monotonic();
        let writing = self.txg_history.begin(txg, self.txgs.meter().of(txg), now(), &self.tree());
        match sync::write_txg(self, state, &tx) {
            Ok(()) => {
                state.stopped = None;
                drop(fuse);
                self.txg_history.end(&writing, now(), &self.tree());
                self.publish(state);
                self.txgs.finish(tx);
                self.outages.note_txg();
                Ok(txg)
            }
            Err(error) => {
                let error = sync::with_causes(&error);
                tracing::error!(pool = self.name, txg = txg.0, error, "the txg was not written");
                self.note_stopped(&error);
                let error = TxError::Suspended { why: error };
                state.stopped = Some(error.clone());
                self.txgs.fail(error.clone());
                Err(error.into())
            }
        }
    }

    pub(crate) fn publish(&self, state: &State) {
        let published =
            Published { config: state.config.clone(), uberblock: state.uberblock, view: Mutex::default() };
        *self.published.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(published);
    }
}

/// Ends the waiting of everybody if the thread that writes a txg panics.
pub(crate) struct Fuse<'a>(&'a LivePool);

impl Fuse<'_> {
    const WHY: &'static str = "writing a txg ended in a panic";

    pub(crate) fn blown() -> TxError {
        TxError::Suspended { why: Fuse::WHY.to_owned() }
    }
}

impl Drop for Fuse<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.note_stopped(Fuse::WHY);
            self.0.txgs.fail(Fuse::blown());
        }
    }
}

impl State {
    /// All labels and the configuration in the MOS are to be written.
    pub(crate) fn mark_all(&mut self) {
        self.dirty = labels::all_tops(&self.config.vdev_tree);
        self.is_config_changed = true;
    }
}

impl std::fmt::Debug for LivePool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LivePool({} at txg {})", self.name, self.txgs.synced_txg())
    }
}
