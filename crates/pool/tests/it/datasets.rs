//! Datasets that are created, snapshotted, cloned, promoted, rolled back, renamed and destroyed, on pools
//! that `zdb` checks: no leaks, and correct lists of freed blocks.

use crate::check;
use crate::support::{Files, judge};
use cenote_pool::LivePool;
use cenote_pool::{CreateSpec, Layout, Leave};
use dmu::{LiveSet, NewObject, SyncTx};
use dsl::DslError;
use dsl::create;
use dsl::create::NewHead;
use dsl::destroy::{destroy, destroy_snapshots};
use dsl::promote::promote;
use dsl::rename::rename;
use dsl::rollback::rollback;
use dsl::snapshot::snapshot;
use dsl::{Cost, TaskCtx};
use format::objset::ObjsetType;
use format::{BlockId, ObjType, ObjectId};
use std::sync::Arc;
use vdev::env::{Env, Random};

/// A task under test.
type Task = Box<dyn FnOnce(&mut TaskCtx<'_>) -> Result<(), DslError> + Send>;

fn fill(set: &Arc<LiveSet>, tx: &SyncTx) -> Result<(), DslError> {
    let object = set.allocate(&NewObject::of(ObjType::MASTER_NODE), tx)?;
    Ok(object.create_zap(tx, 1, 0)?)
}

fn run(pool: &LivePool, task: impl FnOnce(&mut TaskCtx<'_>) -> Result<(), DslError> + Send + 'static) {
    pool.run(task).unwrap();
}

fn make(pool: &LivePool, name: &'static str) {
    run(pool, move |ctx| create::create(ctx, NewHead::named(name), ObjsetType::Other, &mut fill).map(|_| ()));
}

fn take(pool: &LivePool, name: &'static str) {
    run(pool, move |ctx| snapshot(ctx, &[name.to_owned()], &[]).map(|_| ()));
}

fn destroy_many(pool: &LivePool, names: &'static [&'static str]) {
    run(pool, move |ctx| {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        destroy_snapshots(ctx, &names, false)
    });
}

fn clone(pool: &LivePool, origin: &'static str, name: &'static str) {
    run(pool, move |ctx| create::clone(ctx, origin, NewHead::named(name)).map(|_| ()));
}

/// Writes some blocks of noise.
fn write(pool: &LivePool, name: &str, object: u64, blocks: std::ops::Range<u64>, seed: u64) {
    let head = pool.heads().open_by_name(name).unwrap();
    let tx = head.begin(Cost::write(1 << 20, 128 << 10)).unwrap();
    let new = NewObject::of(ObjType::PLAIN_FILE).with_block_size(16 << 10);
    let file = match head.set.object(ObjectId(object)) {
        Ok(file) => file,
        Err(_) => head.set.claim(ObjectId(object), &new, &tx).unwrap(),
    };
    for block in blocks {
        let mut noise = vec![0; 16 << 10];
        Random::from_seed(seed * 1000 + block).fill(&mut noise);
        if block % 5 == 0 {
            // Small enough to be embedded in the pointer.
            noise[20..].fill(0);
        }
        file.put_block(BlockId(block), noise, &tx).unwrap();
    }
}

#[test]
fn the_life_of_datasets() {
    let files = Files::new(1, 128 << 20);
    let spec = CreateSpec::new("tank", vec![files.top(Layout::Single, 0..1)]);
    let pool = LivePool::create(spec, Env::system()).unwrap();
    make(&pool, "tank/a");
    write(&pool, "tank/a", 300, 0..40, 1);
    take(&pool, "tank/a@s1");
    write(&pool, "tank/a", 300, 5..20, 2);
    take(&pool, "tank/a@s2");
    write(&pool, "tank/a", 300, 0..10, 3);
    take(&pool, "tank/a@s3");
    write(&pool, "tank/a", 300, 30..35, 4);
    clone(&pool, "tank/a@s2", "tank/c");
    write(&pool, "tank/c", 300, 0..30, 5);
    write(&pool, "tank/c", 301, 0..30, 6);
    take(&pool, "tank/c@t1");
    write(&pool, "tank/c", 301, 10..40, 7);
    pool.export(Leave::Exported).unwrap();
    judge(&files, "tank");

    let pool = files.import("tank").unwrap();
    destroy_many(&pool, &["tank/a@s1"]);
    run(&pool, |ctx| promote(ctx, "tank/c"));
    write(&pool, "tank/a", 300, 0..30, 8);
    write(&pool, "tank/c", 300, 0..30, 9);
    run(&pool, |ctx| rollback(ctx, "tank/a", None));
    make(&pool, "tank/d");
    make(&pool, "tank/e");
    write(&pool, "tank/e", 300, 0..30, 10);
    run(&pool, |ctx| rename(ctx, "tank/e", "tank/d/e"));
    pool.export(Leave::Exported).unwrap();
    judge(&files, "tank");

    let pool = files.import("tank").unwrap();
    destroy_many(&pool, &["tank/a@s3"]);
    run(&pool, |ctx| destroy(ctx, "tank/a"));
    destroy_many(&pool, &["tank/c@t1", "tank/c@s2"]);
    run(&pool, |ctx| destroy(ctx, "tank/d/e"));
    pool.export(Leave::Exported).unwrap();
    judge(&files, "tank");
}

#[test]
fn clones_with_livelists_go() {
    let files = Files::new(1, 128 << 20);
    let spec = CreateSpec::new("tank", vec![files.top(Layout::Single, 0..1)]);
    let pool = LivePool::create(spec, Env::system()).unwrap();
    make(&pool, "tank/a");
    write(&pool, "tank/a", 300, 0..200, 1);
    take(&pool, "tank/a@s");
    clone(&pool, "tank/a@s", "tank/c");
    write(&pool, "tank/c", 300, 0..20, 2);
    write(&pool, "tank/c", 300, 10..30, 3);
    pool.export(Leave::Exported).unwrap();
    judge(&files, "tank");
    let pool = files.import("tank").unwrap();
    run(&pool, |ctx| destroy(ctx, "tank/c"));
    pool.export(Leave::Exported).unwrap();
    judge(&files, "tank");
}

/// Runs each operation on the datasets of a pool once.
fn change_everything(pool: &Arc<LivePool>) {
    let view = pool.view().unwrap();
    let dirs = view.dsl().dirs().unwrap();
    let heads: Vec<String> = dirs.iter().map(|dir| dir.name().to_owned()).collect();
    let snapshots: Vec<String> = heads
        .iter()
        .flat_map(|name| view.dsl().dataset(name).unwrap().snapshots().unwrap())
        .map(|snapshot| snapshot.name().to_owned())
        .collect();
    drop((dirs, view));
    let attempt = |what: &str, task: Task| match pool.run(task) {
        Ok(()) => println!("{what}: done"),
        Err(error) => println!("{what}: {error}"),
    };
    let names: Vec<String> = heads.iter().map(|name| format!("{name}@cenote")).collect();
    attempt("snapshot", Box::new(move |ctx| snapshot(ctx, &names, &[]).map(|_| ())));
    for name in &heads {
        let name = name.clone();
        attempt("promote", Box::new(move |ctx| promote(ctx, &name)));
    }
    for name in &heads {
        let Ok(head) = pool.heads().open_by_name(name) else { continue };
        let Ok(tx) = head.begin(Cost::metadata()) else { continue };
        let object = head.set.allocate(&NewObject::of(ObjType::U64_METADATA), &tx).unwrap();
        object.write_at(0, name.as_bytes(), &tx).unwrap();
    }
    for name in &heads {
        let name = name.clone();
        attempt("rollback", Box::new(move |ctx| rollback(ctx, &name, None)));
    }
    for name in snapshots.iter().step_by(2) {
        let name = name.clone();
        attempt(&name.clone(), Box::new(move |ctx| destroy_snapshots(ctx, &[name], false)));
    }
    for name in heads.iter().rev() {
        let name = name.clone();
        let snapshot = format!("{name}@cenote");
        attempt(&snapshot.clone(), Box::new(move |ctx| destroy_snapshots(ctx, &[snapshot], false)));
        attempt(&name.clone(), Box::new(move |ctx| destroy(ctx, &name)));
    }
}

#[test]
fn datasets_of_golden_pools() {
    let wanted =
        std::env::var("CENOTE_FIXTURES").unwrap_or_else(|_| "snapshots properties cloned encryption".into());
    for name in wanted.split_whitespace() {
        let fixture = testkit::Fixture::open(name);
        let files = Files::copy_of(&fixture);
        let pool_name = fixture.manifest().pool.clone();
        println!("{name}");
        let pool = match files.import(&pool_name) {
            Ok(pool) => pool,
            Err(error) => {
                println!("{name}: {error}");
                continue;
            }
        };
        change_everything(&pool);
        // If one block has two references, the sums are not those of a set of blocks.
        if !["cloned", "dedup-fast", "dedup-legacy", "removed-vdev"].contains(&name) {
            check::check(pool.view().unwrap().dsl().clone());
        }
        pool.export(Leave::Exported).unwrap();
        judge(&files, &pool_name);
    }
}
