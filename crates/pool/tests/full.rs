//! Small pools that are filled completely, emptied and filled again, in each layout; and pools so fragmented
//! that blocks have to be written as gangs; a mapping that is condensed. They never deadlock, and `zdb` finds no errors.

#[path = "it/support.rs"]
#[allow(dead_code)] // other tests use the rest
mod support;
#[path = "it/removal/world.rs"]
#[allow(dead_code)] // the tests of removals use the rest
mod world;

use cenote_pool::LivePool;
use cenote_pool::PoolError;
use cenote_pool::space::Class;
use cenote_pool::{CreateSpec, Layout, Leave};
use dmu::{LiveSet, NewObject, SyncTx};
use dsl::DslError;
use dsl::create;
use dsl::create::NewHead;
use dsl::destroy::{destroy, destroy_snapshots};
use dsl::snapshot::snapshot;
use dsl::{Cost, Head};
use format::objset::ObjsetType;
use format::{BpKind, ObjType, ObjectId, VdevId};
use std::sync::{Arc, PoisonError, RwLock};
use support::{Files, judge};
use vdev::env::{Env, Random};
use world::{HEAD, World};

/// Ganging is a parameter of the process: the test that sets it runs alone.
static GANGING: RwLock<()> = RwLock::new(());

fn fill_set(set: &Arc<LiveSet>, tx: &SyncTx) -> Result<(), DslError> {
    let object = set.allocate(&NewObject::of(ObjType::MASTER_NODE), tx)?;
    Ok(object.create_zap(tx, 1, 0)?)
}

fn new_pool(files: &Files, layout: Layout, count: usize) -> Arc<LivePool> {
    let spec = CreateSpec::new("tank", vec![files.top(layout, 0..count)]);
    let pool = LivePool::create(spec, Env::system()).unwrap();
    pool.run(|ctx| {
        create::create(ctx, NewHead::named("tank/a"), ObjsetType::Other, &mut fill_set).map(|_| ())
    })
    .unwrap();
    pool
}

fn head(pool: &LivePool) -> Arc<Head> {
    pool.heads().open_by_name("tank/a").unwrap()
}

/// Writes files until the pool is full, a few in each txg. Returns them, and their bytes.
fn fill(pool: &LivePool, random: &mut Random, size: &dyn Fn(&mut Random) -> u64) -> (Vec<ObjectId>, u64) {
    let head = head(pool);
    let (mut files, mut bytes, mut refused) = (Vec::new(), 0, 0);
    // Space that waits to be freed is available with the next txgs.
    while refused < 4 {
        let len = size(random);
        let tx = match head.begin(Cost::write(len, 128 << 10)) {
            Ok(tx) => tx,
            Err(DslError::Space { .. }) => {
                refused += 1;
                pool.sync().unwrap();
                continue;
            }
            Err(error) => panic!("{error}"),
        };
        let block = len.next_multiple_of(512).clamp(512, 128 << 10);
        let file =
            head.set.allocate(&NewObject::of(ObjType::PLAIN_FILE).with_block_size(block), &tx).unwrap();
        let mut noise = vec![0; len as usize];
        random.fill(&mut noise);
        file.write_at(0, &noise, &tx).unwrap();
        drop(tx);
        files.push(file.id());
        bytes += len;
        if files.len() % 16 == 0 {
            pool.sync().unwrap();
        }
    }
    pool.sync().unwrap();
    (files, bytes)
}

fn delete(pool: &LivePool, files: impl Iterator<Item = ObjectId>) {
    let head = head(pool);
    for (n, file) in files.enumerate() {
        let tx = head.begin(Cost::freeing()).unwrap_or_else(|error| panic!("deleting: {error}"));
        head.set.free(file, &tx).unwrap();
        drop(tx);
        if n % 64 == 63 {
            pool.sync().unwrap();
        }
    }
    for _ in 0..4 {
        pool.sync().unwrap();
    }
}

fn any_size(random: &mut Random) -> u64 {
    match random.below(4) {
        0 => 1 + random.below(4 << 10),
        1 => 1 + random.below(64 << 10),
        _ => 1 + random.below(700 << 10),
    }
}

#[test]
fn a_full_pool_is_emptied_and_filled_again() {
    let _as_usual = GANGING.read().unwrap_or_else(PoisonError::into_inner);
    for (layout, count) in
        [(Layout::Single, 1), (Layout::Mirror, 2), (Layout::Raidz(1), 3), (Layout::Raidz(2), 4)]
    {
        let files = Files::new(count, 64 << 20);
        let pool = new_pool(&files, layout, count);
        let mut random = Random::from_seed(3);
        let mut first = 0;
        for round in 0..3 {
            let (objects, bytes) = fill(&pool, &mut random, &any_size);
            println!("{layout:?}, round {round}: {} files, {bytes} bytes", objects.len());
            if round == 0 {
                first = bytes;
            }
            assert!(bytes * 10 >= first * 8, "{layout:?}: {bytes} bytes, {first} at first");
            // A snapshot and a clone of each dataset, if there is space for them.
            let names = ["tank/a@s".to_owned()];
            let is_taken = match pool.run(move |ctx| snapshot(ctx, &names, &[]).map(|_| ())) {
                Ok(()) => true,
                Err(PoolError::Dsl(DslError::Space { .. })) => false,
                Err(error) => panic!("{error}"),
            };
            let is_cloned = is_taken
                && pool
                    .run(|ctx| create::clone(ctx, "tank/a@s", NewHead::named("tank/c")).map(|_| ()))
                    .is_ok();
            delete(&pool, objects.into_iter());
            if is_cloned {
                pool.run(|ctx| destroy(ctx, "tank/c")).unwrap();
            }
            if is_taken {
                pool.run(|ctx| destroy_snapshots(ctx, &["tank/a@s".to_owned()], false)).unwrap();
            }
            for _ in 0..6 {
                pool.sync().unwrap();
            }
        }
        fill(&pool, &mut random, &any_size);
        pool.export(Leave::Exported).unwrap();
        judge(&files, "tank");
        let pool = files.import("tank").unwrap();
        pool.set_props(vec![("comment".into(), "still full".into())]).unwrap();
        pool.export(Leave::Exported).unwrap();
    }
}

#[test]
fn a_fragmented_pool_writes_blocks_in_pieces() {
    let _as_usual = GANGING.read().unwrap_or_else(PoisonError::into_inner);
    for (layout, count) in [(Layout::Single, 1), (Layout::Mirror, 2), (Layout::Raidz(1), 3)] {
        let files = Files::new(count, 64 << 20);
        let pool = new_pool(&files, layout, count);
        let mut random = Random::from_seed(5);
        let is_gang = |id: &ObjectId| {
            let object = head(&pool).set.object(*id).unwrap().read();
            object.dnode().blkptrs.iter().any(|bp| bp.kind() == BpKind::Gang)
        };
        // Of the small files every sixth stays, until no free segment is large.
        let (mut large, mut rounds) = (Vec::new(), 0);
        while !large.iter().any(is_gang) {
            delete(&pool, large.drain(..));
            let (small, _) = fill(&pool, &mut random, &|_| 8 << 10);
            delete(&pool, small.iter().enumerate().filter(|(n, _)| n % 6 != 0).map(|(_, file)| *file));
            (large, _) = fill(&pool, &mut random, &|_| 128 << 10);
            rounds += 1;
            assert!(rounds < 12, "{layout:?}: {} blocks, none in pieces", large.len());
        }
        println!(
            "{layout:?}: {} blocks in pieces, round {rounds}",
            large.iter().filter(|id| is_gang(id)).count()
        );
        pool.export(Leave::Exported).unwrap();
        judge(&files, "tank");
        let pool = files.import("tank").unwrap();
        delete(&pool, large.into_iter().step_by(2));
        pool.export(Leave::Exported).unwrap();
        judge(&files, "tank");
    }
}

#[test]
fn a_pool_without_room_for_any_block_in_one_piece_settles_in_every_txg() {
    let _alone = GANGING.write().unwrap_or_else(PoisonError::into_inner);
    let files = Files::new(2, 64 << 20);
    let pool = new_pool(&files, Layout::Mirror, 2);
    assert!(zio::FORCE_GANGING.set(513));
    for percent in [100, 60] {
        assert!(zio::FORCE_GANGING_PCT.set(percent));
        for round in 0..10 {
            let names: Vec<String> = (0..8).map(|n| format!("tank/{percent}-{round}-{n}")).collect();
            let made = names.clone();
            pool.run(move |ctx| {
                made.iter().try_for_each(|name| {
                    create::create(ctx, NewHead::named(name), ObjsetType::Other, &mut fill_set).map(|_| ())
                })
            })
            .unwrap();
            if round % 2 == 1 {
                pool.run(move |ctx| names.iter().try_for_each(|name| destroy(ctx, name))).unwrap();
            }
        }
    }
    assert!(zio::FORCE_GANGING.set(zio::FORCE_GANGING.default));
    pool.export(Leave::Exported).unwrap();
    judge(&files, "tank");
    let pool = files.import("tank").unwrap();
    pool.sync().unwrap();
    pool.export(Leave::Exported).unwrap();
    judge(&files, "tank");
}

/// Of a removed vdev of many small segments nearly all blocks are freed: its mapping shrinks.
#[test]
fn a_mapping_is_condensed_when_much_of_it_is_obsolete() {
    assert!(cenote_pool::CONDENSE_MIN_MAPPING.set(0));
    assert!(cenote_pool::REMOVE_MAX_SEGMENT.set(8 << 10));
    let single = (Layout::Single, 1, Class::Normal);
    let mut world = World::new(&[single, single], 5);
    (0..40).for_each(|_| world.write(20));
    world.pool.sync().unwrap();
    world.pool.remove_device(world.guid(0)).unwrap();
    world.pool.remove_to_end().unwrap();
    let entries = |world: &World| world.pool.tree().indirect(VdevId(0)).unwrap().entries().len();
    let before = entries(&world);
    let mut objects: Vec<_> = world.model.keys().copied().collect();
    objects.truncate(objects.len() * 9 / 10);
    {
        let head = world.pool.heads().open_by_name(HEAD).unwrap();
        let tx = head.begin(Cost::freeing()).unwrap();
        for id in objects {
            head.set.free(id, &tx).unwrap();
            world.model.remove(&id);
        }
    }
    for _ in 0..3 {
        world.churn(3);
    }
    let after = entries(&world);
    assert!(after < before / 2, "{before} entries, then {after}");
    world = world.reopen(true);
    assert!(entries(&world) <= after);
    world.churn(5);
    world.reopen(false);
}
