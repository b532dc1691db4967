//! Removal of vdevs: pools that are emptied step by step while they change, exported and opened again at every
//! step, compared with a model and judged by `zdb`.

mod fixtures;
mod refusals;

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
const HEAD: &str = "tank/a";

/// A pool on files, and what its only dataset must contain.
struct World {
    files: Files,
    pool: Arc<LivePool>,
    model: BTreeMap<ObjectId, Vec<u8>>,
    random: Random,
}

fn fill(set: &Arc<LiveSet>, tx: &SyncTx) -> Result<(), DslError> {
    let object = set.allocate(&NewObject::of(ObjType::MASTER_NODE), tx)?;
    Ok(object.create_zap(tx, 1, 0)?)
}

impl World {
    /// `tops`: the layout and number of devices of each top-level vdev, and its class.
    fn new(tops: &[(Layout, usize, Class)], seed: u64) -> World {
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
    fn write(&mut self, blocks: u64) {
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
    fn change(&mut self) {
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

    fn churn(&mut self, rounds: usize) {
        for _ in 0..rounds {
            match self.random.below(3) {
                0 => self.write(20),
                _ => self.change(),
            }
        }
        self.pool.sync().unwrap();
    }

    fn check(&self) {
        let head = self.pool.heads().open_by_name(HEAD).unwrap();
        for (id, bytes) in &self.model {
            let mut found = vec![0; bytes.len()];
            head.set.object(*id).unwrap().read_at(0, &mut found).unwrap();
            assert!(found == *bytes, "object {id}");
        }
    }

    /// Closes the pool as a crash does, or exports it; has it judged, and opens it again.
    fn reopen(self, is_crash: bool) -> World {
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

    fn guid(&self, top: usize) -> VdevGuid {
        self.pool.config().vdev_tree.children[top].guid
    }

    fn snapshot(&self, name: &str) {
        let name = format!("{HEAD}@{name}");
        self.pool.run(move |ctx| snapshot(ctx, &[name], &[]).map(|_| ())).unwrap();
    }

    fn destroy(&self, name: &str) {
        let name = format!("{HEAD}@{name}");
        self.pool.run(move |ctx| destroy_snapshots(ctx, &[name], false)).unwrap();
    }
}

#[test]
fn a_vdev_is_emptied_while_the_pool_changes() {
    let single = (Layout::Single, 1, Class::Normal);
    let mut world = World::new(&[single, single, single], 1);
    (0..40).for_each(|_| world.write(40));
    world.churn(40);
    world.snapshot("old");
    world.churn(20);
    world.pool.remove_device(world.guid(0)).unwrap();
    let mut steps = 0;
    loop {
        world.churn(3);
        let is_going_on = world.pool.remove_step(1 << 20).unwrap();
        steps += 1;
        if steps == 4 {
            world.destroy("old");
        }
        world = world.reopen(steps % 2 == 0);
        if !is_going_on {
            break;
        }
    }
    assert!(steps > 4, "{steps}");
    world.churn(30);
    world = world.reopen(false);
    // A second removal, onto the last vdev, of what the first has moved.
    let second = world.guid(1);
    world.pool.remove_device(second).unwrap();
    world.pool.remove_step(1 << 20).unwrap();
    world = world.reopen(true);
    world.pool.remove_to_end().unwrap();
    world.churn(20);
    world = world.reopen(false);
    let objects: Vec<ObjectId> = world.model.keys().copied().collect();
    let head = world.pool.heads().open_by_name(HEAD).unwrap();
    let tx = head.begin(Cost::freeing()).unwrap();
    objects.into_iter().for_each(|id| head.set.free(id, &tx).unwrap());
    drop((tx, head));
    world.model.clear();
    world.pool.sync().unwrap();
    world.reopen(false);
}

#[test]
fn a_mirror_and_a_special_mirror_leave() {
    let mirror = |class| (Layout::Mirror, 2, class);
    let tops = [mirror(Class::Normal), mirror(Class::Normal), mirror(Class::Special)];
    let mut world = World::new(&tops, 2);
    (0..20).for_each(|_| world.write(40));
    world.churn(20);
    for top in [2, 0] {
        let guid = world.guid(top);
        world.pool.remove_device(guid).unwrap();
        world.churn(5);
        world.pool.remove_to_end().unwrap();
        world = world.reopen(top == 2);
    }
    world.churn(10);
    world.pool.start_scrub(false).unwrap();
    world.pool.scan_to_end().unwrap();
    assert_eq!(world.pool.tree().repaired_bytes(), 0);
    world.reopen(false);
}

#[test]
fn a_canceled_removal_leaves_no_trace() {
    let single = (Layout::Single, 1, Class::Normal);
    let mut world = World::new(&[single, single], 3);
    (0..40).for_each(|_| world.write(40));
    // Before that nothing is on the vdev.
    world.pool.sync().unwrap();
    let guid = world.guid(0);
    world.pool.remove_device(guid).unwrap();
    assert!(world.pool.remove_step(2 << 20).unwrap(), "{:?}", world.pool.view().unwrap().removal());
    world.churn(20);
    world = world.reopen(true);
    assert!(world.pool.remove_step(1 << 20).unwrap(), "{:?}", world.pool.view().unwrap().removal());
    world.churn(10);
    world.pool.cancel_removal().unwrap();
    world.churn(10);
    world = world.reopen(false);
    assert!(!world.pool.features().is_active("device_removal"));
    assert!(!world.pool.features().is_active("obsolete_counts"));
    let top = &world.pool.config().vdev_tree.children[0];
    assert!(!top.removing && !top.non_allocating);
    // Then once more, to the end.
    world.pool.remove_device(guid).unwrap();
    world.pool.remove_to_end().unwrap();
    world.churn(10);
    world.reopen(false);
}

#[test]
fn a_mirrored_log_becomes_a_hole() {
    let tops = [(Layout::Single, 1, Class::Normal), (Layout::Mirror, 2, Class::Log)];
    let mut world = World::new(&tops, 4);
    let head = world.pool.heads().open_by_name(HEAD).unwrap();
    for _ in 0..5 {
        world.write(2);
        let tx = head.begin(Cost::metadata()).unwrap();
        let time =
            dmu::log::Pending::Body(format::zil::Body::Remove { dir: ObjectId(1), name: b"gone".to_vec() });
        head.log.push(&tx, time);
        drop(tx);
        head.log.commit(None).unwrap();
    }
    let log = format::VdevId(1);
    assert!(world.pool.allocator().vdev_totals(log).allocated > 0);
    world.pool.remove_device(world.guid(1)).unwrap();
    assert_eq!(world.pool.config().hole_array, [log]);
    drop(head);
    world.churn(5);
    world = world.reopen(false);
    world.churn(5);
    world.reopen(true);
}
