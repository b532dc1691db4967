//! Checkpoints: kept, gone back to, discarded, and each of that interrupted by power cuts.

use super::churn;
use super::faults::{SIZE, create, import, import_as};
use crate::support::{Files, judge};
use cenote_pool::{CreateSpec, FeatureSet, ImportOptions, Layout, Leave, LivePool, OpenOptions, PoolError};
use dmu::NewObject;
use format::{DeviceOffset, ObjType, ObjectId};
use std::sync::Arc;
use testkit::Fixture;
use vdev::Device;
use vdev::device::sim::{Power, SimDisk};
use vdev::env::{Env, Random};

/// Objects that are rewritten by turns.
const OBJECTS: u64 = 5;

fn noise(n: u64) -> Vec<u8> {
    let mut bytes = vec![0; 40_000 + 9_000 * (n as usize % 4)];
    Random::from_seed(n).fill(&mut bytes);
    bytes
}

/// Replaces the object whose turn it is. Fails if the power does.
fn put(pool: &LivePool, n: u64) -> Result<(), PoolError> {
    pool.run(move |ctx| {
        let m = ctx.m();
        let name = format!("org.cenote:object{}", n % OBJECTS);
        if let Some(id) = m.entry(&name)? {
            m.free(id)?;
        }
        let object = m.allocate(&NewObject::of(ObjType::U64_METADATA).with_block_size(128 << 10))?;
        object.write_at(0, &noise(n), m.tx)?;
        m.set_entry(&name, object.id().0)?;
        m.set_entry(&format!("org.cenote:version{}", n % OBJECTS), n)
    })
}

/// The newest `put` that the pool has. All objects have the contents of their last one.
fn newest(pool: &LivePool) -> u64 {
    let view = pool.view().unwrap();
    let entry = |name: String| view.directory().words(&name).unwrap().first().copied();
    let mut newest = 0;
    for turn in 0..OBJECTS {
        let Some(n) = entry(format!("org.cenote:version{turn}")) else { continue };
        let id = entry(format!("org.cenote:object{turn}")).expect("set together");
        let mut bytes = vec![0; noise(n).len()];
        view.mos().object(ObjectId(id)).unwrap().read_at(0, &mut bytes).unwrap();
        assert!(bytes == noise(n), "object {turn} of {n}");
        newest = newest.max(n);
    }
    newest
}

fn back() -> ImportOptions {
    ImportOptions {
        open: OpenOptions { checkpoint: true, ..OpenOptions::default() },
        ..ImportOptions::default()
    }
}

fn held(pool: &LivePool) -> u64 {
    pool.view().unwrap().space().unwrap().checkpoint
}

fn discard_all(pool: &LivePool) {
    pool.discard_checkpoint().unwrap();
    pool.work_to_end().unwrap();
}

#[test]
fn what_a_checkpoint_references_is_kept_until_it_is_discarded() {
    // `zdb` expects a histogram in the map of a checkpoint.
    for (name, features) in [
        ("logs", FeatureSet::Default),
        ("nologs", FeatureSet::Named(vec!["zpool_checkpoint".into(), "spacemap_histogram".into()])),
    ] {
        let files = Files::new(2, 96 << 20);
        let mut spec = CreateSpec::new(name, vec![files.top(Layout::Single, 0..1)]);
        spec.features = features;
        let pool = LivePool::create(spec, Env::system()).unwrap();
        (1..=12).for_each(|n| put(&pool, n).unwrap());
        assert!(matches!(pool.discard_checkpoint(), Err(PoolError::NoCheckpoint { .. })));
        pool.make_checkpoint().unwrap();
        assert!(matches!(pool.make_checkpoint(), Err(PoolError::CheckpointExists { .. })));
        assert!(matches!(pool.reguid(None), Err(PoolError::CheckpointExists { .. })));
        (13..=40).for_each(|n| put(&pool, n).unwrap());
        let kept = held(&pool);
        assert!(kept >= OBJECTS * 40_000, "{kept}");
        // As after a crash, then after an export.
        drop(pool);
        judge(&files, name);
        let pool = files.import(name).unwrap();
        (41..=45).for_each(|n| put(&pool, n).unwrap());
        pool.add(vec![files.top(Layout::Single, 1..2)]).unwrap();
        (46..=50).for_each(|n| put(&pool, n).unwrap());
        pool.export(Leave::Exported).unwrap();
        judge(&files, name);

        let pool = files.import_with(name, &back()).unwrap();
        assert_eq!((newest(&pool), held(&pool)), (12, 0));
        assert!(matches!(pool.discard_checkpoint(), Err(PoolError::NoCheckpoint { .. })));
        assert_eq!(pool.config().vdev_tree.children.len(), 1, "the vdev was added later");
        (13..=30).for_each(|n| put(&pool, n).unwrap());
        pool.export(Leave::Exported).unwrap();
        judge(&files, name);
        assert!(matches!(files.import_with(name, &back()), Err(PoolError::NoCheckpoint { .. })));

        let pool = files.import(name).unwrap();
        pool.make_checkpoint().unwrap();
        (31..=60).for_each(|n| put(&pool, n).unwrap());
        let before = pool.view().unwrap().space().unwrap().allocated;
        let kept = held(&pool);
        discard_all(&pool);
        let space = pool.view().unwrap().space().unwrap();
        assert_eq!(space.checkpoint, 0);
        assert!(space.allocated + kept / 2 < before, "{space:?}, {before}");
        assert!(!pool.features().is_active("zpool_checkpoint"));
        (61..=70).for_each(|n| put(&pool, n).unwrap());
        pool.export(Leave::Exported).unwrap();
        judge(&files, name);
    }
}

#[test]
fn a_checkpoint_of_openzfs_is_kept_and_gone_back_to() {
    ["checkpoint", "checkpoint-raidz", "checkpoint-removed"].into_iter().for_each(keep_and_go_back);
}

fn keep_and_go_back(fixture: &str) {
    let fixture = Fixture::open(fixture);
    let name = &fixture.manifest().pool;
    let files = Files::copy_of(&fixture);
    let pool = files.import(name).unwrap();
    let kept = held(&pool);
    churn(&pool, 10);
    assert!(held(&pool) >= kept);
    pool.export(Leave::Exported).unwrap();
    judge(&files, name);
    let pool = files.import_with(name, &back()).unwrap();
    churn(&pool, 10);
    pool.export(Leave::Exported).unwrap();
    judge(&files, name);

    let files = Files::copy_of(&fixture);
    let pool = files.import(name).unwrap();
    discard_all(&pool);
    assert_eq!(held(&pool), 0);
    pool.export(Leave::Exported).unwrap();
    judge(&files, name);
}

#[test]
fn a_pool_without_the_feature_gets_no_checkpoint() {
    let device: Arc<dyn Device> = Arc::new(SimDisk::new(SIZE, 1));
    let (env, _) = Env::simulated(1);
    let mut spec = CreateSpec::new("tank", vec![super::faults::top(Layout::Single, &[device])]);
    spec.features = FeatureSet::None;
    let pool = LivePool::create(spec, env).unwrap();
    assert!(matches!(pool.make_checkpoint(), Err(PoolError::FeatureDisabled { .. })));
    put(&pool, 1).unwrap();
}

/// A pool with 12 versions on a disk, and the power that it has.
fn on_disk() -> (Arc<SimDisk>, Arc<Power>) {
    let power = Power::new();
    let disk = Arc::new(SimDisk::powered(SIZE, 3, Arc::clone(&power)));
    let pool = create(Layout::Single, &[Arc::clone(&disk) as _], 3);
    (1..=12).for_each(|n| put(&pool, n).unwrap());
    pool.export(Leave::Exported).unwrap();
    (disk, power)
}

fn copy(disk: &SimDisk, seed: u64) -> (Arc<SimDisk>, Arc<Power>) {
    let power = Power::new();
    (Arc::new(disk.power_on(seed, Arc::clone(&power))), power)
}

/// Writes the disk to a file that `zdb` judges.
#[allow(clippy::disallowed_types)] // No pool is open on it.
fn judge_disk(disk: &SimDisk) {
    let dir = tempfile::tempdir().unwrap();
    let mut image = vec![0; SIZE as usize];
    disk.read_at(&mut image, DeviceOffset(0)).unwrap();
    std::fs::write(dir.path().join("d0"), image).unwrap();
    testkit::assert_zdb_clean(dir.path(), "tank");
}

/// Makes a checkpoint, writes, and discards it. Returns the newest version that was acknowledged, until the power fails.
fn checkpointed_work(disk: &Arc<SimDisk>) -> u64 {
    let Ok(pool) = import(&[Arc::clone(disk) as _]) else { return 12 };
    let mut done = 12;
    let mut work = || -> Result<(), PoolError> {
        pool.make_checkpoint()?;
        for n in 13..=22 {
            put(&pool, n)?;
            done = n;
        }
        pool.discard_checkpoint()?;
        put(&pool, 23)?;
        done = 23;
        pool.work_to_end()?;
        put(&pool, 24)?;
        done = 24;
        Ok(())
    };
    // The power may fail.
    let _ = work();
    done
}

#[test]
fn power_cuts_lose_neither_the_checkpoint_nor_what_came_after() {
    let (disk, _) = on_disk();
    let (whole, power) = copy(&disk, 1);
    assert_eq!(checkpointed_work(&whole), 24);
    let operations = power.operations();
    let (mut kept, mut discarding) = (0, 0);
    for cut in (0..operations).step_by(5) {
        let (disk, power) = copy(&disk, cut);
        power.cut_after(cut);
        let done = checkpointed_work(&disk);
        let (disk, _) = copy(&disk, cut);
        // What is there may also be gone back to.
        let (other, _) = copy(&disk, cut);
        let pool = import(&[Arc::clone(&disk) as _]).unwrap();
        assert!((done..=done + 1).contains(&newest(&pool)), "cut {cut}: {done}");
        let has_checkpoint = pool.view().unwrap().checkpoint().unwrap().is_some();
        if pool.features().is_active("zpool_checkpoint") && !has_checkpoint {
            discarding += 1;
        }
        put(&pool, 30).unwrap();
        pool.work_to_end().unwrap();
        if has_checkpoint {
            discard_all(&pool);
        }
        assert_eq!((held(&pool), pool.features().is_active("zpool_checkpoint")), (0, false), "cut {cut}");
        pool.export(Leave::Exported).unwrap();
        if cut.is_multiple_of(35) {
            judge_disk(&disk);
        }
        if has_checkpoint {
            kept += 1;
            go_back_with_cuts(&other, cut, done);
        }
    }
    assert!(kept > 5 && discarding > 0, "{kept} {discarding}");
}

/// Goes back, with a power cut meanwhile.
fn go_back_with_cuts(disk: &SimDisk, seed: u64, done: u64) {
    let (whole, power) = copy(disk, seed);
    let pool = import_as(&[Arc::clone(&whole) as _], &back()).unwrap();
    assert_eq!(newest(&pool), 12);
    put(&pool, 13).unwrap();
    pool.export(Leave::Exported).unwrap();
    if seed.is_multiple_of(35) {
        judge_disk(&whole);
    }
    let cut = Random::from_seed(seed).below(power.operations());
    let (disk, power) = copy(disk, seed);
    power.cut_after(cut);
    // The power may fail.
    let _ = import_as(&[Arc::clone(&disk) as _], &back()).map(|pool| put(&pool, 13));
    let (disk, _) = copy(&disk, seed);
    let pool = import(&[Arc::clone(&disk) as _]).unwrap();
    let found = newest(&pool);
    assert!([12, 13, done, done + 1].contains(&found), "cut {seed}, {cut}: {found}");
    put(&pool, 40).unwrap();
    pool.export(Leave::Exported).unwrap();
    if seed.is_multiple_of(35) {
        judge_disk(&disk);
    }
}

/// Blocks are freed in the txg in which the checkpoint is made, by another thread.
#[test]
fn a_checkpoint_made_while_others_write_is_whole() {
    let files = Files::new(1, 96 << 20);
    let pool =
        LivePool::create(CreateSpec::new("busy", vec![files.top(Layout::Single, 0..1)]), Env::system())
            .unwrap();
    pool.start();
    let mut first = 1;
    for _ in 0..8 {
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| (first..first + 20).for_each(|n| put(&pool, n).unwrap()));
            pool.make_checkpoint().unwrap();
            writer.join().unwrap();
        });
        first += 20;
        // The state of the checkpoint is read completely, by `zdb` too.
        let found = vdev::scan::Search::in_paths([files.dir()]).run();
        let open = OpenOptions { checkpoint: true, ..OpenOptions::default() };
        let kept = cenote_pool::Pool::open(found, &cenote_pool::Which::Name("busy".into()), &open).unwrap();
        assert!(kept.txg() < pool.txgs().synced_txg());
        discard_all(&pool);
    }
    pool.make_checkpoint().unwrap();
    (first..first + 20).for_each(|n| put(&pool, n).unwrap());
    pool.export(Leave::Exported).unwrap();
    judge(&files, "busy");
    let pool = files.import_with("busy", &back()).unwrap();
    assert_eq!(newest(&pool), first - 1);
    pool.export(Leave::Exported).unwrap();
    judge(&files, "busy");
}

/// A side of a mirror is an older copy: it lacks what the other side has, also what the checkpoint references.
#[test]
fn a_side_that_lacks_data_is_remembered_when_going_back_is_cut() {
    let disks: Vec<SimDisk> = (0..2).map(|n| SimDisk::new(SIZE, n)).collect();
    let on = |disks: &[&SimDisk], power: &Arc<Power>, seed: u64| -> Vec<Arc<dyn Device>> {
        disks.iter().map(|disk| Arc::new(disk.power_on(seed, Arc::clone(power))) as Arc<dyn Device>).collect()
    };
    let disks: Vec<Arc<SimDisk>> = disks.into_iter().map(Arc::new).collect();
    let devices: Vec<Arc<dyn Device>> =
        disks.iter().map(|disk| Arc::clone(disk) as Arc<dyn Device>).collect();
    let pool = create(Layout::Mirror, &devices, 5);
    (1..=8).for_each(|n| put(&pool, n).unwrap());
    pool.export(Leave::Exported).unwrap();
    let old = disks[1].power_on(1, Power::new());
    let pool = import(&devices).unwrap();
    (9..=12).for_each(|n| put(&pool, n).unwrap());
    pool.make_checkpoint().unwrap();
    (13..=20).for_each(|n| put(&pool, n).unwrap());
    pool.export(Leave::Exported).unwrap();

    let power = Power::new();
    let sides = on(&[&disks[0], &old], &power, 1);
    drop(import_as(&sides, &back()).unwrap());
    let operations = power.operations();
    for cut in 0..operations {
        let power = Power::new();
        let sides: Vec<Arc<SimDisk>> = [&*disks[0], &old]
            .into_iter()
            .map(|disk| Arc::new(disk.power_on(cut, Arc::clone(&power))))
            .collect();
        power.cut_after(cut);
        let devices: Vec<Arc<dyn Device>> =
            sides.iter().map(|disk| Arc::clone(disk) as Arc<dyn Device>).collect();
        // The power may fail.
        drop(import_as(&devices, &back()));
        let sides = on(&[&sides[0], &sides[1]], &Power::new(), cut);
        let pool = import(&sides).unwrap();
        let found = newest(&pool);
        pool.resilver_if_needed().unwrap();
        pool.work_to_end().unwrap();
        pool.export(Leave::Exported).unwrap();
        let pool = import(&sides[1..]).unwrap();
        assert_eq!(newest(&pool), found, "cut {cut}: of the older side alone");
    }
}
