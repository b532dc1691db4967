//! A pool whose vdevs are removed, and a model of what its only dataset contains.

use crate::support::{Files, judge};
use cenote_pool::space::Class;
use cenote_pool::{CreateSpec, Layout, Leave, LivePool};
use dmu::{LiveSet, NewObject, SyncTx};
use dsl::create::{NewHead, create};
use dsl::destroy::destroy_snapshots;
use dsl::snapshot::snapshot;
use dsl::{Cost, DslError};
use format::objset::ObjsetType;
use format::{ObjType, ObjectId, VdevGuid};
use std::collections::BTreeMap;
use std::sync::Arc;
use vdev::env::{Env, Random};

const SIZE: u64 = 256 << 20;
pub(crate) const HEAD: &str = "tank/a";

/// A pool on files, and what its only dataset must contain.
pub(crate) struct World {
    pub(crate) files: Files,
    pub(crate) pool: Arc<LivePool>,
    pub(crate) model: BTreeMap<ObjectId, Vec<u8>>,
    random: Random,
}

fn fill(set: &Arc<LiveSet>, tx: &SyncTx) -> Result<(), DslError> {
    let object = set.allocate(&NewObject::of(ObjType::MASTER_NODE), tx)?;
    Ok(object.create_zap(tx, 1, 0)?)
}

impl World {
    /// `tops`: the layout and number of devices of each top-level vdev, and its class.
    pub(crate) fn new(tops: &[(Layout, usize, Class)], seed: u64) -> World {
        let files = Files::new(tops.iter().map(|(_, count, _)| count).sum(), SIZE);
        let mut first = 0;
        let mut specs = Vec::new();
        for (layout, count, class) in tops {
            let mut top = files.top(*layout, first..first + count);
            top.class = *class;
            specs.push(top);
            first += count;
        }
        let pool = LivePool::create(CreateSpec::new("tank", specs), Env::system()).unwrap();
        pool.run(|ctx| create(ctx, NewHead::named(HEAD), ObjsetType::Other, &mut fill).map(|_| ())).unwrap();
        World { files, pool, model: BTreeMap::new(), random: Random::from_seed(seed) }
    }

    /// Writes a new object of some random blocks.
    pub(crate) fn write(&mut self, blocks: u64) {
        let head = self.pool.heads().open_by_name(HEAD).unwrap();
        let size = [512, 4096, 128 << 10][self.random.below(3) as usize];
        let mut bytes = vec![0; (blocks * size) as usize];
        self.random.fill(&mut bytes);
        let tx = head.begin(Cost::write(bytes.len() as u64, size)).unwrap();
        let new = NewObject::of(ObjType::PLAIN_FILE).with_block_size(size);
        let object = head.set.allocate(&new, &tx).unwrap();
        object.write_at(0, &bytes, &tx).unwrap();
        self.model.insert(object.id(), bytes);
    }

    /// Frees an object, or overwrites a part of it.
    pub(crate) fn change(&mut self) {
        let count = self.model.len() as u64;
        if count == 0 {
            return;
        }
        let which = self.random.below(count) as usize;
        let Some((&id, _)) = self.model.iter().nth(which) else { return };
        let head = self.pool.heads().open_by_name(HEAD).unwrap();
        let tx = head.begin(Cost::write(1 << 20, 128 << 10)).unwrap();
        if self.random.one_in(2) {
            head.set.free(id, &tx).unwrap();
            self.model.remove(&id);
            return;
        }
        let bytes = self.model.get_mut(&id).unwrap();
        let len = 1 + self.random.below(bytes.len() as u64) as usize;
        let at = self.random.below((bytes.len() - len + 1) as u64) as usize;
        let mut new = vec![0; len];
        self.random.fill(&mut new);
        head.set.object(id).unwrap().write_at(at as u64, &new, &tx).unwrap();
        bytes[at..at + len].copy_from_slice(&new);
    }

    pub(crate) fn churn(&mut self, rounds: usize) {
        for _ in 0..rounds {
            match self.random.below(3) {
                0 => self.write(20),
                _ => self.change(),
            }
        }
        self.pool.sync().unwrap();
    }

    pub(crate) fn check(&self) {
        let head = self.pool.heads().open_by_name(HEAD).unwrap();
        for (id, bytes) in &self.model {
            let mut found = vec![0; bytes.len()];
            head.set.object(*id).unwrap().read_at(0, &mut found).unwrap();
            assert!(found == *bytes, "object {id}");
        }
    }

    /// Closes the pool as a crash does, or exports it; has it judged, and opens it again.
    pub(crate) fn reopen(self, is_crash: bool) -> World {
        let World { files, pool, model, random } = self;
        if is_crash {
            drop(pool);
        } else {
            pool.export(Leave::Exported).unwrap();
        }
        judge(&files, "tank");
        let pool = files.import("tank").unwrap();
        let world = World { files, pool, model, random };
        world.check();
        world
    }

    pub(crate) fn guid(&self, top: usize) -> VdevGuid {
        self.pool.config().vdev_tree.children[top].guid
    }

    pub(crate) fn snapshot(&self, name: &str) {
        let name = format!("{HEAD}@{name}");
        self.pool.run(move |ctx| snapshot(ctx, &[name], &[]).map(|_| ())).unwrap();
    }

    pub(crate) fn destroy(&self, name: &str) {
        let name = format!("{HEAD}@{name}");
        self.pool.run(move |ctx| destroy_snapshots(ctx, &[name], false)).unwrap();
    }
}
