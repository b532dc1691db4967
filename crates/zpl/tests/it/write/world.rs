//! A file system on a disk in memory.

use cenote_zpl::Filesystem;
use cenote_zpl::{Backing, BeginError, Cost, Fs, FsOptions, NewFilesystem, make_filesystem};
use dmu::{KeyState, ObjSet, Store};
use dmu::{Ledger, Limits, LiveSet, SetPolicy, Tx, Txgs};
use format::objset::ObjsetType;
use format::{BlockPtr, Txg};
use std::sync::Arc;
use vdev::env::{Env, ManualClock};
use zio::testing::memory_pool;

pub(crate) struct MemoryBacking {
    pub(crate) set: Arc<LiveSet>,
    pub(crate) txgs: Arc<Txgs>,
}

impl Backing for MemoryBacking {
    fn set(&self) -> &Arc<LiveSet> {
        &self.set
    }

    fn is_suspended(&self) -> bool {
        self.txgs.is_suspended()
    }

    fn begin(&self, _: Cost) -> Result<Tx, BeginError> {
        Ok(self.txgs.begin()?)
    }
}

/// A ledger that frees killed blocks.
struct Freeing<'a> {
    zio: Arc<zio::Zio>,
    tx: &'a dyn zio::AllocTx,
}

impl Ledger for Freeing<'_> {
    fn born(&mut self, _: &BlockPtr) {}

    fn killed(&mut self, bp: &BlockPtr) {
        self.zio.free(bp, self.tx).expect("what is killed was allocated");
    }
}

pub(crate) struct World {
    pub(crate) store: Arc<Store>,
    pub(crate) home: Arc<MemoryBacking>,
    pub(crate) fs: Arc<Fs>,
    pub(crate) env: Env,
    pub(crate) clock: Arc<ManualClock>,
}

pub(crate) fn new_set(kind: ObjsetType, limits: Limits) -> (Arc<Store>, Arc<MemoryBacking>, Tx) {
    let store = Store::new(memory_pool(4 << 30), 16 << 20);
    let (home, tx) = new_set_in(&store, kind, limits);
    (store, home, tx)
}

pub(crate) fn new_set_in(store: &Arc<Store>, kind: ObjsetType, limits: Limits) -> (Arc<MemoryBacking>, Tx) {
    let txgs = Txgs::new(Txg(3), limits);
    let tx = txgs.begin().expect("open");
    let policy = SetPolicy {
        user_accounting: true,
        object_accounting: true,
        project_accounting: true,
        ..SetPolicy::dataset()
    };
    let set = LiveSet::create(store, txgs.meter(), 7, kind, policy, &tx);
    (Arc::new(MemoryBacking { set, txgs }), tx)
}

impl World {
    pub(crate) fn new(options: FsOptions) -> World {
        World::with(options, &NewFilesystem::default(), Limits::default())
    }

    pub(crate) fn with(options: FsOptions, new: &NewFilesystem, limits: Limits) -> World {
        let (env, clock) = Env::simulated(11);
        clock.advance(std::time::Duration::from_secs(1_700_000_000));
        let (store, home, tx) = new_set(ObjsetType::Zfs, limits);
        make_filesystem(home.set(), new, &env, &tx).expect("made");
        drop(tx);
        let fs = Fs::open(Arc::clone(&home) as Arc<dyn Backing>, options, &env).expect("opened");
        World { store, home, fs, env, clock }
    }

    pub(crate) fn sync(&self) {
        sync(&self.store, &self.home);
    }

    /// The file system as another process reads it from disk.
    pub(crate) fn reopened(&self) -> Arc<Filesystem> {
        Filesystem::open(reopened(&self.store, &self.home)).expect("a file system")
    }

    /// The same file system opened again for writing, as after a restart.
    pub(crate) fn remounted(&mut self, options: FsOptions) -> Arc<Fs> {
        let set = LiveSet::open(
            &self.store,
            self.home.txgs.meter(),
            &self.home.set.root_bp(),
            7,
            KeyState::None,
            (*self.home.set.policy()).clone(),
        );
        let home = MemoryBacking { set: set.expect("readable"), txgs: Arc::clone(&self.home.txgs) };
        self.home = Arc::new(home);
        let home = Arc::clone(&self.home) as Arc<dyn Backing>;
        self.fs = Fs::open(home, options, &self.env).expect("opened");
        Arc::clone(&self.fs)
    }
}

pub(crate) fn sync(store: &Arc<Store>, home: &MemoryBacking) {
    sync_and(store, home, || ());
}

/// Writes a txg, and calls `before_the_end` when only its commit is missing.
pub(crate) fn sync_and(store: &Arc<Store>, home: &MemoryBacking, before_the_end: impl FnOnce()) {
    let tx = home.txgs.quiesce();
    let mut ledger = Freeing { zio: Arc::clone(store.zio()), tx: &tx };
    if let Err(error) = home.set.sync(&tx, &mut ledger) {
        panic!("sync: {error}: {:?}", std::error::Error::source(&error));
    }
    before_the_end();
    home.txgs.finish(tx);
}

pub(crate) fn reopened(store: &Arc<Store>, home: &MemoryBacking) -> Arc<ObjSet> {
    let store = Store::new(Arc::clone(store.zio()), 1 << 20);
    ObjSet::open(&store, &home.set.root_bp(), 7, KeyState::None).expect("readable")
}
