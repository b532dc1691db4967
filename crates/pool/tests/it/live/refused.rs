//! Refused verbs of the pool itself, whatever their callers saw before: the pool is unchanged, and continues.

use super::churn;
use super::faults::{SIZE, create};
use cenote_pool::LivePool;
use cenote_pool::PoolError;
use cenote_pool::space::Class;
use cenote_pool::{Layout, LeafSpec, Leave, TopSpec};
use dsl::create::NewHead;
use format::config::PoolConfig;
use format::objset::ObjsetType;
use format::{PoolGuid, Txg};
use std::sync::Arc;
use vdev::device::Device;
use vdev::device::memory::MemoryDevice;
use vdev::device::sim::SimDisk;

/// The state that must not change.
fn state(pool: &LivePool) -> String {
    let config = PoolConfig { txg: Txg(0), ..pool.config() };
    let features: Vec<String> = pool.features().counts().into_keys().collect();
    let mut props = pool.view().unwrap().properties().unwrap();
    props.retain(|(name, _)| {
        ["comment", "bootfs", "failmode", "autotrim", "multihost"].contains(&name.as_str())
    });
    let leaves: Vec<_> = pool.tree().leaf_guids().into_iter().collect();
    format!("{config:?} {features:?} {props:?} {leaves:?}")
}

fn refused<T: std::fmt::Debug>(pool: &LivePool, verb: impl FnOnce() -> Result<T, PoolError>) {
    pool.sync().unwrap();
    let before = state(pool);
    let why = verb().expect_err("a refusal");
    assert!(!matches!(why, PoolError::HalfDone { .. }), "{why}");
    assert!(pool.txgs().failure().is_none() && !pool.txgs().is_suspended(), "{why}");
    churn(pool, 1);
    assert!(state(pool) == before, "{why}: {before} became {}", state(pool));
}

fn pairs(props: &[(&str, &str)]) -> Vec<(String, String)> {
    props.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn single(name: &str, device: Arc<dyn Device>) -> TopSpec {
    let leaves = vec![LeafSpec::file(format!("/{name}"), device)];
    TopSpec { layout: Layout::Single, class: Class::Normal, ashift: None, leaves }
}

#[test]
fn several_properties_are_set_all_or_none() {
    let devices = [Arc::new(MemoryDevice::new(SIZE)) as Arc<dyn Device>];
    let pool = create(Layout::Single, &devices, 41);
    pool.run(|ctx| {
        let mut nothing = |set: &_, tx: &_| {
            let _: (&Arc<dmu::LiveSet>, &dmu::SyncTx) = (set, tx);
            Ok(())
        };
        dsl::create::create(ctx, NewHead::named("tank/v"), ObjsetType::Zvol, &mut nothing).map(drop)
    })
    .unwrap();
    let long = format!("a:{}", "b".repeat(260));
    let text = "x".repeat(8192);
    for last in [
        ("bootfs", "tank/none"),
        ("bootfs", "tank/v"),
        ("feature@draid_failure_domains", "enabled"),
        ("feature@none", "enabled"),
        ("autotrim", "maybe"),
        ("size", "7"),
        ("multihost", "on"),
        (&long, "y"),
        ("a:b", &text),
    ] {
        let props = [("comment", "new"), ("autotrim", "on"), ("a:c", "d"), ("failmode", "panic"), last];
        refused(&pool, || pool.set_props(pairs(&props)));
    }
    // The longest allowed values.
    let (long, text) = (format!("a:{}", "b".repeat(253)), "x".repeat(8191));
    pool.set_props(pairs(&[(&long, &text)])).unwrap();
    pool.set_props(pairs(&[(&long, ""), ("bootfs", "tank")])).unwrap();
    pool.export(Leave::Exported).unwrap();
}

#[test]
fn a_guid_a_feature_and_devices_that_are_refused() {
    let devices = [Arc::new(MemoryDevice::new(SIZE)) as Arc<dyn Device>];
    let pool = create(Layout::Single, &devices, 42);
    churn(&pool, 2);
    let leaf = pool.config().vdev_tree.children[0].guid;
    for used in [PoolGuid(0), pool.guid(), PoolGuid(leaf.0)] {
        refused(&pool, || pool.reguid(Some(used)));
    }
    refused(&pool, || pool.enable_features(&["livelist", "none"]));
    let good = || Arc::new(MemoryDevice::new(SIZE)) as Arc<dyn Device>;
    let small = Arc::new(MemoryDevice::new(1 << 20)) as Arc<dyn Device>;
    refused(&pool, || pool.add(vec![single("d1", good()), single("d2", small)]));
    let raidz = TopSpec { layout: Layout::Raidz(3), ..single("d2", good()) };
    refused(&pool, || pool.add(vec![single("d1", good()), raidz]));
    // A device that takes no labels.
    let gone = Arc::new(SimDisk::new(SIZE, 1));
    gone.vanish();
    refused(&pool, || pool.add(vec![single("d1", good()), single("d2", gone)]));
    for fails in 0..6 {
        let disk = Arc::new(SimDisk::new(SIZE, 2));
        disk.vanish_after(fails);
        refused(&pool, || pool.add(vec![single("d1", good()), single("d2", Arc::clone(&disk) as _)]));
    }
    pool.add(vec![single("d1", good()), single("d2", good())]).unwrap();
    pool.reguid(None).unwrap();
    churn(&pool, 2);
    pool.export(Leave::Exported).unwrap();
}
