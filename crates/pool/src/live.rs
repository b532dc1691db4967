//! A pool that is open for writing.
//!
//! [`LivePool`] owns the state that lasts from one transaction group to the next: the vdevs, the block layer,
//! the allocator, the MOS, the open heads and the configuration. Datasets are changed through
//! [`LivePool::heads`], all other state by sync tasks ([`LivePool::run`]).
//!
//! # What always holds
//! - One txg is written at a time, atomically: the uberblock is written last, after all blocks that it
//!   references are durable.
//! - A txg that cannot be written suspends the pool (`outage`) until devices are back. A pool that is not
//!   attended stays suspended for good, and waiting threads get an error.
//! - Verbs that only read use [`LivePool::view`], which never shows a txg that is not on disk.
//! - No thread is required: without [`LivePool::start`] every caller that must wait for a txg writes it
//!   itself, so a run with a simulated [`Env`] is deterministic.
//!
//! # Order of locks
//! `state` (held while a txg is written) -> `heads.exclusive()` -> `tasks`, `published`, `tree_change` ->
//! locks of the layers below.

use crate::checkpoint::Checkpoint;
use crate::config::Host;
use crate::diagnosis::Diagnosis;
use crate::error::{PoolError, chain};
use crate::events::{self, Poster};
use crate::hot_spares::SpareWatch;
use crate::jobs::Jobs;
use crate::labels;
use crate::leases::Leases;
use crate::losses::Losses;
use crate::mmp::Mmp;
use crate::out_of_service::OutOfService;
use crate::outage::Outages;
use crate::outside::{NotHandedOver, Outside, Outsides};
use crate::removal::Removals;
use crate::runtime::Runtime;
use crate::scan::Scans;
use crate::space_maps::SpaceBook;
use crate::status::{FailMode, LiveStatus, ScanProgress};
use crate::txg_history::{TxgHistory, TxgRecord};
use crate::view::Pool;
use dmu::Store;
use dmu::{LiveSet, TxError, Txgs};
use dsl::DslError;
use dsl::brt::Brt;
use dsl::{Caller, FeatureCounts, Head, Heads, TaskCtx};
use format::config::{PoolConfig, VdevNode};
use format::uberblock::Uberblock;
use format::{BlockPtr, ObjectId, PoolGuid, Txg, VdevGuid, VdevId};
use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use vdev::device::held::Hold;
use vdev::env::Env;
use vdev::sync::lock;
use vdev::{Device, VdevTree};
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
    /// Present host id of that machine.
    pub(crate) host_id: AtomicU64,
    pub(crate) name: String,
    /// Holds writes back until the first change; `None`: they are not held back.
    pub(crate) hold: Option<Arc<Hold>>,
    /// The pool has been opened: later changes are requested by its users.
    pub(crate) is_open: AtomicBool,
    pub(crate) tasks: Mutex<Vec<Task>>,
    /// The txg that writes the newest command to the history.
    pub(crate) recorded: AtomicU64,
    pub(crate) state: Mutex<State>,
    pub(crate) published: RwLock<Arc<Published>>,
    /// Views of the pool that are in use.
    pub(crate) leases: Arc<Leases>,
    /// Spares and cache devices that are held.
    pub(crate) aux: Mutex<HeldAux>,
    /// Datasets with logs that were claimed and not yet replayed.
    pub(crate) unreplayed: Mutex<Vec<ObjectId>>,
    pub(crate) runtime: Mutex<Option<Runtime>>,
    pub(crate) mmp: Mmp,
    pub(crate) outages: Arc<Outages>,
    /// Holders of file system data outside of the pool.
    pub(crate) outside: Outsides,
    /// Faults found by diagnosis are to be lifted from leaves that answer.
    pub(crate) lift_faults: AtomicBool,
    /// Property `autoexpand`: vdevs grow with their devices.
    pub(crate) autoexpand: AtomicBool,
    pub(crate) events: Arc<Poster>,
    pub(crate) txg_history: TxgHistory,
    /// Scrubs and resilvers of the pool.
    pub(crate) scans: Arc<Scans>,
    /// Background jobs, `scans` included.
    pub(crate) jobs: Jobs<LivePool>,
    /// The checkpoint of the pool.
    pub(crate) checkpoint: Arc<Checkpoint>,
    pub(crate) out_of_service: OutOfService,
    /// Leaves with spares, for the background thread.
    pub(crate) spare_watch: SpareWatch,
    /// Removals of vdevs.
    pub(crate) removals: Arc<Removals>,
}

/// Present spares and cache devices by guid, with their devices open for writing; `None`: another process has
/// the device.
pub(crate) type HeldAux = HashMap<VdevGuid, Option<Arc<dyn Device>>>;

/// State that changes from txg to txg. Only the thread that writes a txg has it.
pub(crate) struct State {
    pub(crate) config: PoolConfig,
    /// Uberblock of the last txg on disk.
    pub(crate) uberblock: Uberblock,
    /// Top-level vdevs whose labels are written in the next commit.
    pub(crate) dirty: BTreeSet<VdevId>,
    /// The configuration in the MOS must be written.
    pub(crate) is_config_changed: bool,
    /// The next txg flushes all metaslabs.
    pub(crate) flush_all: bool,
    /// An uberblock must be written even without changes.
    pub(crate) is_forced: bool,
    /// Logs to be claimed in the next txg.
    pub(crate) claims: Vec<Claim>,
    /// Newest birth of a claimed block.
    pub(crate) claimed: Txg,
    pub(crate) diagnosis: Diagnosis,
    pub(crate) losses: Losses,
    /// Why no more txgs are written.
    pub(crate) stopped: Option<TxError>,
}

/// The last txg that is on disk, as all threads may read it.
pub(crate) struct Published {
    pub(crate) config: PoolConfig,
    pub(crate) uberblock: Uberblock,
    /// The tree of that txg.
    pub(crate) tree: Arc<VdevTree>,
    pub(crate) view: Mutex<Option<Arc<Pool>>>,
}

/// A head with an intent log to be claimed.
pub(crate) struct Claim {
    pub(crate) head: Arc<Head>,
    pub(crate) what: LogFate,
}

/// What becomes of a log that a crash left.
pub(crate) enum LogFate {
    /// It is claimed, and replayed later.
    Claimed,
    /// It is given up: it cannot be read, or the pool has gone back to a checkpoint. These blocks of it are allocated.
    GivenUp(Vec<BlockPtr>),
}

/// A task that waits for its txg.
pub(crate) struct Task {
    /// The txg that was open when the task was submitted: it runs in this one or a later one.
    pub(crate) txg: Txg,
    /// At most one such task runs in a txg, because a second could conflict with the changes of the first.
    pub(crate) is_alone: bool,
    pub(crate) run: Box<Work>,
}

/// The work of a task, which delivers its result itself. The error is its failure in words.
pub(crate) type Work = dyn FnOnce(&mut TaskCtx<'_>, &mut PoolTask<'_>) -> Result<(), String> + Send;

/// Context of a task on the pool itself, besides a [`TaskCtx`].
pub(crate) struct PoolTask<'a> {
    pub(crate) pool: &'a LivePool,
    pub(crate) state: &'a mut State,
}

/// The parts from which a pool is assembled.
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
    /// State of the pool for its first events.
    pub(crate) context: events::Context,
}

impl LivePool {
    pub(crate) fn assemble(parts: Parts) -> Arc<LivePool> {
        let Parts { env, zio, store, mos, allocator, txgs, heads, features, brt, space, host, .. } = parts;
        let Parts { name, hold, config, uberblock, context, .. } = parts;
        let events = Poster::new(&env, &name, config.pool_guid, context);
        zio.tree().set_listener(Arc::clone(&events) as _);
        let tree = zio.tree();
        let published = Published { config: config.clone(), uberblock, tree, view: Mutex::default() };
        let state = State {
            config,
            uberblock,
            dirty: BTreeSet::new(),
            is_config_changed: false,
            flush_all: false,
            is_forced: false,
            claims: Vec::new(),
            claimed: Txg(0),
            diagnosis: Diagnosis::default(),
            losses: Losses::default(),
            stopped: None,
        };
        let (scans, jobs_env) = (Arc::<Scans>::default(), env.clone());
        let checkpoint = Arc::<Checkpoint>::default();
        let removals = Arc::<Removals>::default();
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
            mmp: Mmp::default(),
            outages: Arc::default(),
            outside: Outsides::default(),
            lift_faults: AtomicBool::new(false),
            autoexpand: AtomicBool::new(false),
            events,
            txg_history: TxgHistory::default(),
            jobs: Jobs::new(
                jobs_env,
                vec![Arc::clone(&scans) as _, Arc::clone(&checkpoint) as _, Arc::clone(&removals) as _],
            ),
            checkpoint,
            scans,
            removals,
            out_of_service: OutOfService::default(),
            spare_watch: SpareWatch::default(),
        });
        pool.attend_outages();
        let shown = Arc::downgrade(&pool);
        pool.leases.set_view(move || shown.upgrade()?.view().ok());
        pool.store.set_witness(Arc::clone(pool.scans.notes()) as _);
        if let Some(hold) = &pool.hold {
            pool.judge(hold);
        }
        pool.sync_inline();
        pool
    }

    // ---- queries -----------------------------------------------------------------------------

    /// Name under which the pool is open.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Guid of the pool.
    pub fn guid(&self) -> PoolGuid {
        self.published().config.pool_guid
    }

    /// The tree of vdevs in use. Another one replaces it when vdevs or devices change.
    pub fn tree(&self) -> Arc<VdevTree> {
        self.zio.tree()
    }

    /// Transaction groups of the pool.
    pub fn txgs(&self) -> &Arc<Txgs> {
        &self.txgs
    }

    /// Heads of datasets that are open for writing.
    pub fn heads(&self) -> &Arc<Heads> {
        &self.heads
    }

    /// Reference counts of the pool's features.
    pub fn features(&self) -> &Arc<FeatureCounts> {
        &self.features
    }

    /// Block reference tables: blocks that several files share.
    pub fn brt(&self) -> &Arc<Brt> {
        &self.brt
    }

    /// Meta object set in its newest state, not yet on disk.
    pub(crate) fn mos(&self) -> &Arc<LiveSet> {
        &self.mos
    }

    /// Block store of the pool.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// Allocator of the pool.
    pub fn allocator(&self) -> &Arc<Allocator> {
        &self.allocator
    }

    /// Clock, random numbers, devices and worker threads.
    pub fn env(&self) -> &Env {
        &self.env
    }

    /// Sets the host id of the machine, which may become known or change while the pool is open. It applies
    /// to later writes.
    pub fn set_host_id(&self, id: u64) {
        self.host_id.store(id, Ordering::Relaxed);
    }

    /// The poster of the pool's events.
    pub(crate) fn events(&self) -> &Arc<Poster> {
        &self.events
    }

    /// The last txgs, oldest first, and the open one.
    pub fn txg_history(&self) -> Vec<TxgRecord> {
        let txg = self.txgs.open_txg();
        self.txg_history.records(self.env.clock().monotonic(), txg, self.txgs.meter().of(txg))
    }

    /// Takes the object numbers of the datasets whose claimed logs are not replayed yet, from this import or
    /// an earlier one. The caller replays them before it reads the datasets, because their records were
    /// acknowledged as durable. The next call returns an empty list.
    pub fn take_unreplayed(&self) -> Vec<ObjectId> {
        std::mem::take(&mut *lock(&self.unreplayed))
    }

    /// Registers a holder of file system data outside of the pool until that holder is dropped. Called before
    /// the holder takes any data; a second call has no effect.
    pub fn add_outside(&self, keeper: &Arc<dyn Outside>) {
        self.outside.add(keeper);
    }

    /// Makes registered holders write their data of these file systems: on return, all data that they had at
    /// the call are in the pool. The caller holds no transaction.
    ///
    /// # Errors
    /// A message that names the data that could not be written.
    pub fn hand_over<'n>(&self, datasets: impl IntoIterator<Item = &'n str>) -> Result<(), NotHandedOver> {
        self.outside.hand_over(datasets)
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

    /// The pool as of the last txg on disk, for reading. Cheap while no new txg was written.
    ///
    /// The blocks of the view stay unchanged while it is held, up to a share of the pool (`leases`). Beyond
    /// that the view lapses: overwritten blocks give errors ([`dmu::DmuError::TooOld`] for those without a
    /// checksum), and the caller takes a new view.
    ///
    /// # Errors
    /// [`PoolError`] if the MOS cannot be read.
    pub fn view(&self) -> Result<Arc<Pool>, PoolError> {
        let published = self.published();
        let mut view = lock(&published.view);
        // Devices may have changed since. A txg in which vdevs join or leave changes the tree before it is on disk:
        // the MOS of the last txg has nothing about them.
        let is_of_txg = |tree: &VdevTree| has_same_vdevs(tree, &published.tree);
        let tree = Some(self.tree()).filter(|tree| is_of_txg(tree)).unwrap_or(Arc::clone(&published.tree));
        // A suspended pool cannot read a newer state.
        let is_new = |view: &Pool| Arc::ptr_eq(view.tree(), &tree) || self.suspended().is_some();
        if let Some(view) = view.as_ref().filter(|view| is_new(view)) {
            return Ok(Arc::clone(view));
        }
        let lease = Arc::new(self.leases.hold(published.uberblock.txg));
        if !Arc::ptr_eq(&published, &self.published()) {
            // Txgs that have ended since may have freed blocks for reuse: this view is too old to be held.
            drop(view);
            return self.view();
        }
        let aux = lock(&self.aux).keys().copied().collect();
        let (config, uberblock) = (&published.config, &published.uberblock);
        let made = Pool::of_live(&self.heads, config, uberblock, &tree, &self.store, aux, lease)?;
        made.show(Arc::new(Status { scans: Arc::clone(&self.scans), outages: Arc::clone(&self.outages) }));
        *view = Some(Arc::clone(&made));
        Ok(made)
    }

    // ---- changing ----------------------------------------------------------------------------

    /// Runs a task in syncing context, in the open txg or a later one, after all changes made before this
    /// call. Returns when that txg is on disk. The caller holds no transaction.
    ///
    /// # Errors
    /// The error of the task: the pool is unchanged then. [`PoolError::Tx`] if the txg could not be written,
    /// also because the task failed after its first change: the pool then ends as in a crash.
    pub fn run<T: Send + 'static>(
        &self,
        task: impl FnOnce(&mut TaskCtx<'_>) -> Result<T, DslError> + Send + 'static,
    ) -> Result<T, PoolError> {
        self.run_as(Caller::Root, task)
    }

    /// Like [`LivePool::run`], on behalf of a caller: limits on the number of datasets bind callers that
    /// cannot change them.
    ///
    /// # Errors
    /// Those of [`LivePool::run`].
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

    /// Like [`LivePool::run`], for a task that changes the pool itself.
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
            let failure = result.as_ref().err().map(|error| chain(error));
            *lock(&slot) = Some((ctx.txg(), result));
            failure.map_or(Ok(()), Err)
        });
        let mut txg = {
            // Keeps the txg open until the task is in the queue.
            let tx = self.txgs.begin_now()?;
            lock(&self.tasks).push(Task { txg: tx.txg(), is_alone, run });
            tx.txg()
        };
        loop {
            // A task that has not started is then skipped.
            self.wait_synced(txg).inspect_err(|_| is_wanted.store(false, Ordering::Release))?;
            txg = match &*lock(&outcome) {
                Some((at, _)) if *at > self.txgs.synced_txg() => *at,
                Some(_) => break,
                None => Txg(txg.0 + 1),
            };
        }
        let done = lock(&outcome).take();
        let result = done.map_or(Err(PoolError::Tx(TxError::Closed)), |(_, result)| result)?;
        // The first txgs of an import make no change that a user has requested.
        if self.is_open.load(Ordering::Acquire) {
            self.release()?;
        }
        Ok(result)
    }

    /// Waits until a txg is on disk; writes it if there is no sync thread.
    ///
    /// # Errors
    /// [`TxError`] if it never will be: the pool is suspended, has stopped or is closed.
    pub(crate) fn wait_synced(&self, txg: Txg) -> Result<(), PoolError> {
        Ok(self.txgs.wait_synced(txg)?)
    }

    /// Writes all changes made before this call to disk. Returns the txg that holds them.
    ///
    /// # Errors
    /// [`PoolError::Tx`] if the txg could not be written: the pool is suspended then.
    pub fn sync(&self) -> Result<Txg, PoolError> {
        let txg = self.txgs.open_txg();
        self.wait_synced(txg)?;
        self.release()?;
        Ok(txg)
    }

    /// Like [`LivePool::sync`], and writes an uberblock even without changes: before a pool is closed, this
    /// shows whether its devices take writes.
    ///
    /// # Errors
    /// Those of [`LivePool::sync`].
    pub fn sync_all(&self) -> Result<Txg, PoolError> {
        lock(&self.state).is_forced = true;
        self.sync()
    }

    /// Whether a txg is on disk.
    pub fn is_on_disk(&self, txg: Txg) -> bool {
        txg <= self.txgs.synced_txg()
    }

    pub(crate) fn publish(&self, state: &State) {
        let (config, uberblock, tree) = (state.config.clone(), state.uberblock, self.tree());
        let published = Published { config, uberblock, tree, view: Mutex::default() };
        *self.published.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(published);
    }
}

/// Whether two trees have the same vdevs, with the same ZAPs.
fn has_same_vdevs(one: &VdevTree, other: &VdevTree) -> bool {
    let facts = |node: &VdevNode| (node.guid, node.zap_top, node.zap_leaf, node.children.len());
    one.config().walk().map(facts).eq(other.config().walk().map(facts))
}

/// The open pool's answers to its views.
struct Status {
    scans: Arc<Scans>,
    outages: Arc<Outages>,
}

impl LiveStatus for Status {
    fn suspended(&self) -> Option<FailMode> {
        self.outages.suspended()
    }

    fn stopped(&self) -> Option<String> {
        self.outages.stopped()
    }

    fn scan_progress(&self) -> Option<ScanProgress> {
        self.scans.progress()
    }

    fn is_resilver_due(&self, tree: &VdevTree) -> bool {
        self.scans.is_resilver_due(tree)
    }
}

impl State {
    /// Marks all labels and the configuration in the MOS to be written.
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
