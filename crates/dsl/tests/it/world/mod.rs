//! A pool in memory, reduced to the needs of the dataset layer: a MOS, heads, txgs; no labels, no space maps.
#![allow(dead_code, missing_docs, unreachable_pub)]

pub mod check;

use cenote_dsl as dsl;

use cenote_dsl::brt::Brt;
use cenote_dsl::charge;
use cenote_dsl::create;
use cenote_dsl::create::NewHead;
use cenote_dsl::free_lists;
use cenote_dsl::free_lists::Budget;
use cenote_dsl::{
    Caller, Cost, FeatureCounts, Head, Heads, MosTx, Tally, TaskCtx, bootstrap, create_root, mos_policy,
};
use cenote_dsl::{Dsl, DslError};
use dmu::{KeyState, ObjSet, Store};
use dmu::{Limits, LiveSet, NewObject, SyncTx, Txgs};
use format::objset::ObjsetType;
use format::{BlockId, ObjType, ObjectId, Txg};
use std::sync::Arc;
use zio::testing::memory_pool_and_allocator;
use zio::{AllocTx, Allocator, Env};

pub const POOL: &str = "tank";

/// Features that a new pool enables, as far as they matter here.
const FEATURES: &[&str] = &[
    "async_destroy",
    "empty_bpobj",
    "lz4_compress",
    "spacemap_histogram",
    "enabled_txg",
    "hole_birth",
    "extensible_dataset",
    "embedded_data",
    "bookmarks",
    "filesystem_limits",
    "large_blocks",
    "large_dnode",
    "userobj_accounting",
    "project_quota",
    "bookmark_v2",
    "bookmark_written",
    "livelist",
    "zstd_compress",
];

pub struct World {
    pub store: Arc<Store>,
    pub allocator: Arc<Allocator>,
    pub mos: Arc<LiveSet>,
    pub txgs: Arc<Txgs>,
    pub env: Env,
    pub features: Arc<FeatureCounts>,
    pub heads: Arc<Heads>,
    pub brt: Arc<Brt>,
}

pub fn fill_nothing(set: &Arc<LiveSet>, tx: &SyncTx) -> Result<(), DslError> {
    let object = set.allocate(&NewObject::of(ObjType::MASTER_NODE), tx)?;
    Ok(object.create_zap(tx, 1, 0)?)
}

impl World {
    pub fn new() -> World {
        World::with_features(FEATURES)
    }

    pub fn with_features(names: &[&str]) -> World {
        let (zio, allocator) = memory_pool_and_allocator(1 << 30);
        let store = Store::new(zio, 16 << 20);
        let txgs = Txgs::new(Txg(3), Limits::default());
        let (env, _) = Env::simulated(7);
        let tx = txgs.quiesce();
        let policy = dmu::SetPolicy::mos();
        let mos = LiveSet::create(&store, txgs.meter(), 0, ObjsetType::Meta, policy, &tx);
        let directory =
            mos.claim(ObjectId(1), &NewObject::of(ObjType::OBJECT_DIRECTORY), &tx).expect("object 1 is free");
        directory.create_zap(&tx, 1, 0).expect("a ZAP");
        directory.zap(&tx).expect("a ZAP").insert(b"deflate", 1).expect("inserted");
        let features = FeatureCounts::create(&mos, &tx, &env).expect("features");
        let m = MosTx { mos: &mos, tx: &tx, features: &features, env: &env };
        bootstrap(m).expect("hidden directories");
        for name in names {
            features.enable(m, name).expect("enabled");
        }
        mos.set_policy(mos_policy(&features));
        let brt = Brt::load(&mos.view()).expect("clone tables");
        let heads = Heads::new(&mos, &txgs, &features, &brt, POOL).expect("heads");
        let world = World { store, allocator, mos, txgs, env, features, heads, brt };
        let mut ctx = world.ctx(&tx);
        create_root(&mut ctx, NewHead::named(POOL), &mut fill_nothing).expect("root file system");
        drop(ctx);
        world.finish(tx);
        world
    }

    fn ctx<'a>(&'a self, tx: &'a SyncTx) -> TaskCtx<'a> {
        TaskCtx {
            mos: &self.mos,
            tx,
            zio: self.store.zio(),
            env: &self.env,
            features: &self.features,
            brt: &self.brt,
            heads: &self.heads,
            pool_name: POOL,
            caller: Caller::Root,
            notes: Vec::new(),
        }
    }

    /// Writes the MOS until it is clean.
    fn finish(&self, tx: SyncTx) {
        let txg = tx.txg();
        while self.mos.is_dirty(txg) {
            let mut tally = Tally::new(self.store.zio());
            self.mos.sync(&tx, &mut tally).expect("the MOS is written");
            for bp in &tally.killed {
                self.store.zio().free(bp, &tx).expect("what is killed was allocated");
            }
            charge::charge_mos(self.ctx(&tx).m(), tally.delta).expect("charged");
            assert!(tx.next_pass() < 30, "the MOS does not settle");
        }
        self.allocator.take_changes(txg);
        self.allocator.synced(txg);
        self.heads.finish_txg(txg).expect("counters");
        self.txgs.finish(tx);
    }

    /// Runs one txg with this task.
    pub fn run<R>(&self, task: impl FnOnce(&mut TaskCtx<'_>) -> R) -> R {
        let tx = self.txgs.quiesce();
        let mut ctx = self.ctx(&tx);
        self.brt.apply(ctx.m()).expect("clones");
        self.heads.sync_all(&mut ctx).expect("heads are written");
        let result = {
            let _steady = self.heads.exclusive();
            task(&mut ctx)
        };
        self.heads.sync_all(&mut ctx).expect("heads are written");
        free_lists::background(ctx.m(), &self.brt, &mut Budget::per_txg()).expect("freed");
        self.brt.flush(ctx.m()).expect("clones");
        drop(ctx);
        self.finish(tx);
        result
    }

    /// Runs one txg with a task that must succeed; then checks all sums.
    pub fn task<R>(&self, task: impl FnOnce(&mut TaskCtx<'_>) -> Result<R, DslError>) -> R {
        let result = self.run(task).expect("the task succeeds");
        self.check();
        result
    }

    /// Checks all sums, and that no block has leaked.
    pub fn check(&self) {
        let reachable = check::check(self.reopened());
        let allocated = self.allocator.totals(zio::AllocClass::Normal).allocated;
        assert_eq!(allocated, reachable, "space allocated, and space that something names");
    }

    /// Checks that no block waits to be freed, and that the charge of `$FREE` is 0.
    pub fn all_freed(&self) {
        self.sync();
        let hidden = self.reopened().root().expect("a root").hidden_children().expect("children");
        let free = hidden.iter().find(|d| d.component() == "$FREE").expect("there");
        let phys = free.phys();
        assert_eq!((phys.used, phys.compressed, phys.uncompressed), (0, 0, 0), "$FREE");
    }

    pub fn sync(&self) {
        self.run(|_| ());
    }

    pub fn create(&self, name: &str) -> ObjectId {
        self.task(|ctx| create::create(ctx, NewHead::named(name), ObjsetType::Zfs, &mut fill_nothing))
    }

    pub fn try_create(&self, name: &str) -> Result<ObjectId, DslError> {
        self.run(|ctx| create::create(ctx, NewHead::named(name), ObjsetType::Zfs, &mut fill_nothing))
    }

    pub fn snapshot(&self, name: &str) -> ObjectId {
        self.task(|ctx| cenote_dsl::snapshot::snapshot(ctx, &[name.to_owned()], &[]))[0]
    }

    pub fn open(&self, name: &str) -> Arc<Head> {
        self.heads.open_by_name(name).expect("a head")
    }

    /// The newest state as another process reads it from disk.
    pub fn reopened(&self) -> Dsl {
        let store = Store::new(Arc::clone(self.store.zio()), 16 << 20);
        let mos = ObjSet::open(&store, &self.mos.root_bp(), 0, KeyState::None).expect("a MOS");
        let directory = mos.object(ObjectId(1)).expect("object 1");
        let zap = dmu::zap::Zap::open(&directory).expect("a ZAP");
        let root = zap.lookup_u64(b"root_dataset").expect("readable").expect("there");
        Dsl::open(mos, ObjectId(root), POOL)
    }

    /// Writes `blocks` blocks of noise to an object, which is created at the first call.
    pub fn write(&self, name: &str, object: u64, first: u64, blocks: u64, seed: u64) {
        assert!(self.try_write(name, object, first, blocks, seed), "there is room");
    }

    /// Like `write`; returns false if there is not enough space.
    pub fn try_write(&self, name: &str, object: u64, first: u64, blocks: u64, seed: u64) -> bool {
        let head = self.open(name);
        let Ok(tx) = head.begin(Cost::write(blocks << 14, 128 << 10)) else { return false };
        let id = ObjectId(object);
        let file = match head.set.object(id) {
            Ok(file) => file,
            Err(_) => {
                let new = NewObject::of(ObjType::PLAIN_FILE).with_block_size(16 << 10);
                head.set.claim(id, &new, &tx).expect("a free number")
            }
        };
        for block in first..first + blocks {
            let bytes = noise(seed ^ block.wrapping_mul(0x9e37_79b9), 16 << 10);
            file.put_block(BlockId(block), bytes, &tx).expect("written");
        }
        true
    }

    pub fn remove(&self, name: &str, object: u64) {
        let head = self.open(name);
        let tx = head.begin(Cost::freeing()).expect("room");
        head.set.free(ObjectId(object), &tx).expect("freed");
    }

    pub fn read(&self, name: &str, object: u64, block: u64) -> Option<Vec<u8>> {
        let dsl = self.reopened();
        let dataset = dsl.dataset(name).expect("a dataset");
        let set = dataset.objset(KeyState::None).expect("an object set");
        let object = set.object(ObjectId(object)).ok()?;
        object.block(BlockId(block)).expect("readable").map(|block| block.bytes().to_vec())
    }
}

pub fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_add(0x1234_5678);
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..len).map(|_| next()).collect()
}
