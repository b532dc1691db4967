//! A MOS on a disk in memory, for unit tests.

use crate::brt::Brt;
use crate::error::DslError;
use crate::{FeatureCounts, MosTx, bootstrap};
use dmu::{KeyState, ObjSet, Store};
use dmu::{Ledger, Limits, LiveSet, NewObject, SetPolicy, SyncTx, Txgs};
use format::feature::{FEATURES, Since};
use format::objset::ObjsetType;
use format::{BlockPtr, ObjType, ObjectId, Txg};
use std::sync::Arc;
use zio::testing::memory_pool;
use zio::{Env, Zio};

/// A ledger that frees killed blocks.
struct Freeing<'a> {
    zio: &'a Zio,
    tx: &'a SyncTx,
}

impl Ledger for Freeing<'_> {
    fn born(&mut self, _: &BlockPtr) {}

    fn killed(&mut self, bp: &BlockPtr) {
        self.zio.free(bp, self.tx).expect("what is killed was allocated");
    }
}

pub(crate) struct World {
    pub(crate) store: Arc<Store>,
    pub(crate) txgs: Arc<Txgs>,
    pub(crate) mos: Arc<LiveSet>,
    pub(crate) features: Arc<FeatureCounts>,
    pub(crate) env: Env,
    pub(crate) brt: Arc<Brt>,
}

impl World {
    /// A pool with all features of the first release line enabled, but those of `without`.
    pub(crate) fn without(without: &[&str]) -> World {
        let store = Store::new(memory_pool(4 << 30), 16 << 20);
        let txgs = Txgs::new(Txg(3), Limits::default());
        let (env, _) = Env::simulated(7);
        let sync = txgs.quiesce();
        let mos = LiveSet::create(&store, txgs.meter(), 0, ObjsetType::Meta, SetPolicy::mos(), &sync);
        let directory =
            mos.claim(ObjectId(1), &NewObject::of(ObjType::OBJECT_DIRECTORY), &sync).expect("free");
        directory.create_zap(&sync, 1, 0).expect("a ZAP");
        directory.zap(&sync).expect("a ZAP").insert(b"deflate", 1).expect("new");
        let features = FeatureCounts::create(&mos, &sync, &env).expect("made");
        let m = MosTx { mos: &mos, tx: &sync, features: &features, env: &env };
        bootstrap(m).expect("made");
        let wanted = |name: &str| !without.contains(&name);
        for feature in FEATURES.iter().filter(|f| f.since == Since::V2_3 && wanted(f.name)) {
            if feature.depends.iter().all(|name| wanted(name)) {
                features.enable(m, feature.name).expect("enabled");
            }
        }
        let mut world = World { store, txgs, mos, features, env, brt: Arc::default() };
        world.finish(sync);
        world
    }

    pub(crate) fn new() -> World {
        World::without(&[])
    }

    fn finish(&mut self, sync: SyncTx) {
        let zio = Arc::clone(self.store.zio());
        self.mos.sync(&sync, &mut Freeing { zio: &zio, tx: &sync }).expect("synced");
        self.txgs.finish(sync);
    }

    /// Runs one txg with the changes of `work`.
    pub(crate) fn txg<R>(&mut self, work: impl FnOnce(MosTx<'_>, &Brt) -> Result<R, DslError>) -> R {
        let sync = self.txgs.quiesce();
        let m = MosTx { mos: &self.mos, tx: &sync, features: &self.features, env: &self.env };
        let result = work(m, &self.brt).expect("no error");
        self.finish(sync);
        result
    }

    /// Runs one txg in which `work` must fail.
    pub(crate) fn refused<R: std::fmt::Debug>(
        &mut self,
        work: impl FnOnce(MosTx<'_>) -> Result<R, DslError>,
    ) -> DslError {
        self.txg(|m, _| Ok(work(m).expect_err("refused")))
    }

    /// The MOS as another process reads it from disk.
    pub(crate) fn reopened(&self) -> Arc<ObjSet> {
        let store = Store::new(Arc::clone(self.store.zio()), 1 << 20);
        ObjSet::open(&store, &self.mos.root_bp(), 0, KeyState::None).expect("readable")
    }

    /// Number of objects in the MOS.
    pub(crate) fn objects(&self) -> u64 {
        self.mos.object_count()
    }
}

/// Pseudo-random numbers from a seed.
pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

/// A pointer to a data block that need not exist: number `n` of its kind, `sectors` sectors long.
pub(crate) fn pointer(n: u64, birth: u64, sectors: u64) -> BlockPtr {
    let prop = (sectors - 1) | (sectors - 1) << 16 | 2 << 32 | 7 << 40 | 19 << 48 | 1 << 63;
    BlockPtr::HOLE.with_word(0, sectors).with_word(1, 1 + n * 256).with_word(6, prop).with_word(10, birth)
}
