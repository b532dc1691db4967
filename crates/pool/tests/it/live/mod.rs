//! Pools that are created, changed, exported and opened again, checked by `zdb`.

mod checkpoint;
mod faults;
mod held;
mod lapsed;
mod meeting;
mod outages;
mod race;
mod refused;
mod replacing;
mod returns;
mod sources;
mod spares;
mod tree_changes;

use crate::support::{Files, judge, write_by_other};
use cenote_pool::LivePool;
use cenote_pool::{AuxKind, Command, CreateSpec, FeatureSet, ImportOptions, Layout, Leave};
use cenote_pool::{AuxState, PoolError};
use dmu::NewObject;
use format::ObjType;
use testkit::Fixture;
use vdev::env::{Env, Random};

#[test]
fn a_new_pool_of_one_file() {
    let files = Files::new(1, 128 << 20);
    let spec = CreateSpec::new("tank", vec![files.top(Layout::Single, 0..1)]);
    let pool = LivePool::create(spec, Env::system()).unwrap();
    for _ in 0..3 {
        pool.run(|ctx| ctx.m().set_entry("org.cenote:test", ctx.txg().0)).unwrap();
    }
    pool.export(Leave::Exported).unwrap();
    judge(&files, "tank");
}

#[test]
fn raidz_mirror_and_old_pools() {
    let mut files = Files::new(9, 96 << 20);
    let mirror = files.top(Layout::Mirror, 0..2);
    let raidz = files.top(Layout::Raidz(2), 2..6);
    let mut special = files.top(Layout::Mirror, 6..8);
    special.class = cenote_pool::space::Class::Special;
    let mut log = files.top(Layout::Single, 8..9);
    log.class = cenote_pool::space::Class::Log;
    let pool = LivePool::create(CreateSpec::new("tank", vec![mirror, raidz, special, log]), Env::system());
    let pool = pool.unwrap();
    churn(&pool, 40);
    pool.set_props(vec![("comment".into(), "hello".into()), ("autotrim".into(), "on".into())]).unwrap();
    pool.export(Leave::Exported).unwrap();
    judge(&files, "tank");

    files = Files::new(1, 96 << 20);
    let mut spec = CreateSpec::new("old", vec![files.top(Layout::Single, 0..1)]);
    spec.features = FeatureSet::None;
    let pool = LivePool::create(spec, Env::system()).unwrap();
    churn(&pool, 40);
    pool.export(Leave::Exported).unwrap();
    judge(&files, "old");
}

#[test]
fn opened_again_after_an_export_and_after_a_crash() {
    let files = Files::new(2, 96 << 20);
    let spec = CreateSpec::new("tank", vec![files.top(Layout::Mirror, 0..2)]);
    let pool = LivePool::create(spec, Env::system()).unwrap();
    churn(&pool, 20);
    pool.export(Leave::Exported).unwrap();
    for round in 0..3 {
        let pool = files.import("tank").unwrap();
        churn(&pool, 30);
        assert_eq!(pool.view().unwrap().txg(), pool.txgs().synced_txg());
        match round {
            // As after a crash.
            0 => drop(pool),
            _ => pool.export(Leave::Exported).unwrap(),
        }
        judge(&files, "tank");
    }
}

#[test]
fn vdevs_are_added_and_features_enabled() {
    let files = Files::new(10, 96 << 20);
    let mut spec = CreateSpec::new("grow", vec![files.top(Layout::Single, 0..1)]);
    spec.features = FeatureSet::Named(vec!["spacemap_histogram".into(), "empty_bpobj".into()]);
    let pool = LivePool::create(spec, Env::system()).unwrap();
    churn(&pool, 5);
    let special = || {
        let mut special = files.top(Layout::Mirror, 5..7);
        special.class = cenote_pool::space::Class::Special;
        special
    };
    assert!(matches!(pool.add(vec![special()]), Err(PoolError::BadSpec { .. })));
    pool.add(vec![files.top(Layout::Mirror, 1..3)]).unwrap();
    churn(&pool, 5);
    let enabled = pool.enable_features(&pool.upgradable()).unwrap();
    assert_eq!((enabled.len(), pool.upgradable().len()), (44 - 2, 0));
    churn(&pool, 5);
    pool.add(vec![special(), files.top(Layout::Raidz(1), 3..5)]).unwrap();
    churn(&pool, 25);
    let leaf = |n: usize| files.top(Layout::Single, n..n + 1).leaves.remove(0);
    pool.add_aux(AuxKind::Spare, vec![leaf(7)]).unwrap();
    pool.add_aux(AuxKind::Cache, vec![leaf(8), leaf(9)]).unwrap();
    let view = pool.view().unwrap();
    let (spares, cache) = (view.spares().unwrap(), view.cache_devices().unwrap());
    drop(view);
    assert_eq!((spares.len(), spares[0].state, cache.len()), (1, AuxState::Available, 2));
    assert!(pool.remove_aux(cache[1].node.guid).unwrap() && !pool.remove_aux(cache[1].node.guid).unwrap());
    assert_eq!(pool.view().unwrap().cache_devices().unwrap(), cache[..1]);
    let record = Command { text: "zpool add grow".into(), user: 0, hostname: "here".into() };
    pool.record(record).unwrap();
    pool.sync().unwrap();
    let history = pool.view().unwrap().history().unwrap();
    let last = history.last().unwrap().as_ref().unwrap();
    assert_eq!(last.str("history command"), Some("zpool add grow"));
    pool.export(Leave::Exported).unwrap();
    judge(&files, "grow");

    let opts = ImportOptions { new_name: Some("grown".into()), ..ImportOptions::default() };
    let pool = files.import_with("grow", &opts).unwrap();
    churn(&pool, 5);
    assert_eq!((pool.name(), pool.config().name.as_str()), ("grown", "grown"));
    pool.export(Leave::Destroyed).unwrap();
    assert!(matches!(files.import("grown"), Err(PoolError::Destroyed { .. })));
    judge(&files, "grown");
}

/// OpenZFS opens the pool for writing, and Cenote opens the result.
#[test]
fn pools_are_written_by_turns() {
    for (count, layout) in [(1, Layout::Single), (4, Layout::Raidz(1))] {
        let files = Files::new(count, 96 << 20);
        let spec = CreateSpec::new("turns", vec![files.top(layout, 0..count)]);
        let mut pool = LivePool::create(spec, Env::system()).unwrap();
        for round in 0..3 {
            churn(&pool, 20);
            match round {
                // As after a crash.
                1 => drop(pool),
                _ => pool.export(Leave::Exported).unwrap(),
            }
            let feature = format!("org.cenote:round{round}");
            if !write_by_other(&files, "turns", &feature) {
                return;
            }
            judge(&files, "turns");
            pool = files.import("turns").unwrap();
            assert_eq!(pool.features().counts().get(&feature), Some(&0));
        }
    }
}

#[test]
fn a_degraded_pool_is_written() {
    let files = Files::new(4, 96 << 20);
    let spec = CreateSpec::new("tank", vec![files.top(Layout::Raidz(1), 0..4)]);
    let pool = LivePool::create(spec, Env::system()).unwrap();
    churn(&pool, 5);
    pool.export(Leave::Exported).unwrap();
    files.hide(2);
    let pool = files.import("tank").unwrap();
    churn(&pool, 5);
    pool.export(Leave::Exported).unwrap();
    judge(&files, "tank");
    files.show(2);
    let pool = files.import("tank").unwrap();
    churn(&pool, 5);
    pool.export(Leave::Exported).unwrap();
    judge(&files, "tank");
}

#[test]
fn logs_are_flushed_and_maps_condensed() {
    for (name, features) in [("logs", FeatureSet::Default), ("nologs", FeatureSet::None)] {
        let files = Files::new(1, 512 << 20);
        let mut spec = CreateSpec::new(name, vec![files.top(Layout::Single, 0..1)]);
        spec.features = features;
        let pool = LivePool::create(spec, Env::system()).unwrap();
        churn(&pool, 600);
        let logs = pool.view().unwrap().log_space_maps().unwrap().len();
        assert!(logs < 80, "{logs} logs");
        // Every other time as after a crash.
        drop(pool);
        judge(&files, name);
        let pool = files.import(name).unwrap();
        churn(&pool, 100);
        pool.export(Leave::Exported).unwrap();
        judge(&files, name);
    }
}

#[test]
fn golden_pools_are_written() {
    let wanted =
        std::env::var("CENOTE_FIXTURES").unwrap_or_else(|_| "mirror raidz2 classes snapshots".into());
    for name in wanted.split_whitespace() {
        let fixture = Fixture::open(name);
        let copy = Files::copy_of(&fixture);
        let pool = match copy.import(&fixture.manifest().pool) {
            Ok(pool) => pool,
            Err(PoolError::NotWritable { why, .. }) => {
                eprintln!("{name}: not writable: {why}");
                continue;
            }
            Err(error) => {
                eprintln!("{name}: {error:?}");
                continue;
            }
        };
        churn(&pool, 10);
        pool.export(Leave::Exported).unwrap();
        eprintln!("{name}: written");
        judge(&copy, &fixture.manifest().pool);
    }
}

/// Writes txgs in which objects of the MOS are created, changed and freed.
fn churn(pool: &LivePool, txgs: u64) {
    for n in 0..txgs {
        pool.run(move |ctx| {
            let m = ctx.m();
            let name = format!("org.cenote:object{}", n % 7);
            if let Some(id) = m.entry(&name)? {
                m.free(id)?;
            }
            let new = NewObject::of(ObjType::U64_METADATA).with_block_size(128 << 10);
            let object = m.allocate(&new)?;
            let mut noise = vec![0; 50_000 + 9_000 * (n as usize % 5)];
            Random::from_seed(n).fill(&mut noise);
            object.write_at(n * 1000, &noise, m.tx)?;
            m.set_entry(&name, object.id().0)
        })
        .unwrap();
    }
}
