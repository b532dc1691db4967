//! Devices that fail, vanish and come back.

use super::churn;
use cenote_pool::LivePool;
use cenote_pool::space::Class;
use cenote_pool::{
    Command, CreateSpec, Host, ImportOptions, Layout, LeafSpec, Leave, MULTIHOST_HISTORY, MmpRecord, Offline,
    TopSpec,
};
use cenote_pool::{PoolError, Which};
use dmu::TxError;
use std::path::PathBuf;
use std::sync::Arc;
use vdev::Device;
use vdev::device::memory::MemoryDevice;
use vdev::device::sim::{OpKind, Rates, SimDisk};
use vdev::env::Env;
use vdev::label;
use vdev::scan::{Found, Leaf};
use vdev::tree::{Aux, VdevState};

pub(crate) const SIZE: u64 = 96 << 20;

pub(crate) fn top(layout: Layout, devices: &[Arc<dyn Device>]) -> TopSpec {
    let leaf = |(n, device): (usize, &Arc<dyn Device>)| LeafSpec::file(format!("/d{n}"), Arc::clone(device));
    let leaves = devices.iter().enumerate().map(leaf).collect();
    TopSpec { layout, class: Class::Normal, ashift: None, leaves }
}

pub(crate) fn create(layout: Layout, devices: &[Arc<dyn Device>], seed: u64) -> Arc<LivePool> {
    let (env, _) = Env::simulated(seed);
    LivePool::create(CreateSpec::new("tank", vec![top(layout, devices)]), env).unwrap()
}

pub(crate) fn import(devices: &[Arc<dyn Device>]) -> Result<Arc<LivePool>, PoolError> {
    import_as(devices, &ImportOptions::default())
}

pub(crate) fn import_as(
    devices: &[Arc<dyn Device>],
    opts: &ImportOptions,
) -> Result<Arc<LivePool>, PoolError> {
    let leaf = |(n, device): (usize, &Arc<dyn Device>)| Leaf {
        path: PathBuf::from(format!("/d{n}")),
        device: Arc::clone(device),
        probe: label::probe(&**device),
        partition: None,
    };
    let leaves: Vec<Leaf> = devices.iter().enumerate().map(leaf).collect();
    let found = Found::from(leaves);
    let (env, _) = Env::simulated(99);
    LivePool::import(&found, &Which::Name("tank".into()), opts, env)
}

fn sims(count: u64) -> (Vec<Arc<SimDisk>>, Vec<Arc<dyn Device>>) {
    let disks: Vec<Arc<SimDisk>> = (0..count).map(|n| Arc::new(SimDisk::new(SIZE, n))).collect();
    let devices = disks.iter().map(|disk| Arc::clone(disk) as Arc<dyn Device>).collect();
    (disks, devices)
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    let images: Vec<Vec<u8>> = (0..2)
        .map(|_| {
            let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(64 << 20));
            let pool = create(Layout::Single, &[Arc::clone(&device)], 7);
            churn(&pool, 5);
            pool.export(Leave::Exported).unwrap();
            let mut image = vec![0; 64 << 20];
            device.read_at(&mut image, format::DeviceOffset(0)).unwrap();
            image
        })
        .collect();
    assert!(images[0] == images[1], "two runs of one seed differ");
}

#[test]
fn a_side_of_a_mirror_vanishes_and_comes_back() {
    let (disks, devices) = sims(2);
    let pool = create(Layout::Mirror, &devices, 1);
    churn(&pool, 3);
    let whole_until = pool.txgs().synced_txg();
    disks[1].vanish();
    churn(&pool, 3);
    let guid = pool.config().vdev_tree.children[0].children[1].guid;
    let missed = pool.tree().dtl(guid);
    assert!(!missed.contains(whole_until.0) && missed.contains(whole_until.0 + 2), "{missed:?}");
    pool.export(Leave::Exported).unwrap();
    disks[1].come_back();
    let pool = import(&devices).unwrap();
    // Its DTL has the missed writes, and missing blocks are not read from it.
    assert!(pool.tree().dtl(guid).contains(whole_until.0 + 2));
    churn(&pool, 3);
    pool.view().unwrap().properties().unwrap();
    pool.export(Leave::Exported).unwrap();
}

/// `zpool offline -f`, and with `-t`: a declared fault is shown whether or not the leaf is offline, lasts
/// over an export unless it is temporary, and is removed by `zpool clear`.
#[test]
fn a_declared_fault_covers_offline_and_lasts_as_long_as_was_said() {
    let (_, devices) = sims(2);
    let mut pool = create(Layout::Mirror, &devices, 11);
    let leaf = pool.config().vdev_tree.children[0].children[1].guid;
    let state = |pool: &LivePool| pool.tree().status().find(leaf).unwrap().state;
    let online_again = |pool: &LivePool| {
        pool.clear(None, None).unwrap();
        pool.bring_online(leaf, None).unwrap();
        assert_eq!(state(pool), VdevState::Online);
    };
    for (how, after) in [
        (Offline::Always, VdevState::Offline),
        (Offline::Temporarily, VdevState::Online),
        (Offline::Faulted, VdevState::Faulted),
        (Offline::FaultedTemporarily, VdevState::Online),
    ] {
        assert!(pool.take_offline(leaf, how).unwrap());
        assert!(state(&pool) < VdevState::Degraded, "{how:?}");
        pool.export(Leave::Exported).unwrap();
        pool = import(&devices).unwrap();
        assert_eq!(state(&pool), after, "{how:?}");
        online_again(&pool);
    }
    assert!(pool.take_offline(leaf, Offline::Always).unwrap());
    for how in [Offline::Faulted, Offline::FaultedTemporarily] {
        assert!(pool.take_offline(leaf, how).unwrap());
        assert_eq!(state(&pool), VdevState::Faulted);
        pool.clear(None, None).unwrap();
        assert_eq!(state(&pool), VdevState::Offline);
    }
    online_again(&pool);
    pool.export(Leave::Exported).unwrap();
}

#[test]
fn without_devices_the_pool_is_suspended_and_nothing_is_half_written() {
    let (disks, devices) = sims(1);
    let pool = create(Layout::Single, &devices, 2);
    churn(&pool, 2);
    let synced = pool.txgs().synced_txg();
    disks[0].vanish();
    let failed = pool.run(|ctx| ctx.m().set_entry("org.cenote:lost", 1));
    assert!(matches!(failed, Err(PoolError::Tx(TxError::Suspended { .. }))), "{failed:?}");
    assert!(matches!(pool.sync(), Err(PoolError::Tx(TxError::Suspended { .. }))));
    drop(pool);
    disks[0].come_back();
    let pool = import(&devices).unwrap();
    assert!(pool.txgs().synced_txg() > synced);
    let view = pool.view().unwrap();
    assert_eq!(view.directory().number("org.cenote:lost").unwrap(), None);
    pool.export(Leave::Exported).unwrap();
}

#[test]
fn a_pool_that_is_in_use_is_not_taken_from_its_machine() {
    let host = |id: u64| Host { id, name: format!("host{id}"), ..Host::default() };
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(SIZE));
    let devices = [device];
    let mut spec = CreateSpec::new("tank", vec![top(Layout::Single, &devices)]);
    spec.host = host(1);
    spec.props = vec![("multihost".into(), "on".into())];
    let pool = LivePool::create(spec, Env::system()).unwrap();
    assert!(pool.uberblock().mmp.is_some_and(|mmp| mmp.is_on()));
    pool.start();
    let opts = |id, force| ImportOptions { host: host(id), force, ..ImportOptions::default() };
    let refused = import_as(&devices, &opts(2, false));
    assert!(matches!(refused, Err(PoolError::OtherHost { hostid: 1, .. })), "{refused:?}");
    let refused = import_as(&devices, &opts(2, true));
    assert!(matches!(refused, Err(PoolError::ActiveElsewhere { .. })), "{refused:?}");
    churn(&pool, 2);
    pool.export(Leave::Exported).unwrap();
    let pool = import_as(&devices, &opts(1, false)).unwrap();
    assert_eq!((pool.config().hostid, pool.config().hostname.as_deref()), (1, Some("host1")));
    assert!(pool.uberblock().mmp.is_some_and(|mmp| mmp.is_on()));
}

/// A machine may get its host id while its pools are open.
#[test]
fn multihost_is_for_machines_that_have_an_id_by_then() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(SIZE));
    let devices = [device];
    let pool = LivePool::create(CreateSpec::new("tank", vec![top(Layout::Single, &devices)]), Env::system())
        .unwrap();
    pool.start();
    let on = || vec![("multihost".to_owned(), "on".to_owned())];
    let refused = pool.set_props(on());
    assert!(matches!(refused, Err(PoolError::Property { .. })), "{refused:?}");
    pool.set_host_id(7);
    pool.set_props(on()).unwrap();
    churn(&pool, 2);
    assert!(pool.uberblock().mmp.is_some_and(|mmp| mmp.is_on()));
    // The labels tell other machines which host has the pool.
    assert_eq!(pool.config().hostid, 7);
    let host = Host { id: 2, name: "host2".to_owned(), ..Host::default() };
    let refused = import_as(&devices, &ImportOptions { host, ..ImportOptions::default() });
    assert!(matches!(refused, Err(PoolError::OtherHost { hostid: 7, .. })), "{refused:?}");
}

#[test]
fn multihost_writes_are_remembered_up_to_the_number_that_is_asked_for() {
    let (disks, devices) = sims(1);
    let mut spec = CreateSpec::new("tank", vec![top(Layout::Single, &devices)]);
    spec.host = Host { id: 1, name: "host1".into(), ..Host::default() };
    spec.props = vec![("multihost".into(), "on".into())];
    let pool = LivePool::create(spec, Env::system()).unwrap();
    pool.start();
    // Other pools of this process record theirs as well, without further effect.
    assert!(MULTIHOST_HISTORY.set(2));
    let wait_for = |is_there: &dyn Fn(&[MmpRecord]) -> bool| loop {
        let history = pool.multihost_history();
        if is_there(&history) {
            break history;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    };
    let history = wait_for(&|history| history.last().is_some_and(|last| last.id >= 3));
    assert_eq!(history.len(), 2);
    let guid = pool.config().vdev_tree.children[0].guid;
    for record in &history {
        let target = record.target.as_ref().unwrap();
        assert_eq!((record.error, target.vdev), (0, guid), "{record:?}");
        assert!(target.label < 4 && record.timestamp > 0 && !record.mmp_delay.is_zero(), "{record:?}");
    }
    disks[0].vanish();
    wait_for(&|history| history.last().is_some_and(|last| last.error != 0));
    assert!(MULTIHOST_HISTORY.set(0));
}

#[test]
fn the_history_loses_the_oldest_records_but_not_the_first() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(SIZE));
    let mut spec = CreateSpec::new("tank", vec![top(Layout::Single, &[device])]);
    let command = |n: usize| Command {
        text: format!("command {n} {}", "x".repeat(500 + n % 1000)),
        user: 0,
        hostname: "here".into(),
    };
    spec.command = Some(command(0));
    let (env, _) = Env::simulated(4);
    let pool = LivePool::create(spec, env).unwrap();
    for n in 1..=400 {
        pool.record(command(n)).unwrap();
    }
    // Commands are recorded without waiting for their txg.
    pool.sync().unwrap();
    let history = pool.view().unwrap().history().unwrap();
    let commands: Vec<String> = history
        .into_iter()
        .filter_map(|record| record.unwrap().str("history command").map(str::to_owned))
        .collect();
    let number = |text: &String| text.split(' ').nth(1).unwrap().parse::<usize>().unwrap();
    assert_eq!(number(&commands[0]), 0);
    let kept: Vec<usize> = commands[1..].iter().map(number).collect();
    assert!(kept.len() < 300 && kept.len() > 50, "{} records", kept.len());
    assert!(kept.windows(2).all(|pair| pair[0] + 1 == pair[1]) && kept.last() == Some(&400), "{kept:?}");
}

#[test]
fn any_write_may_fail_once() {
    for n in (0..400).step_by(7) {
        let (disks, devices) = sims(2);
        let pool = create(Layout::Mirror, &devices, 3);
        disks[(n % 2) as usize].fail_nth(vdev::device::sim::OpKind::Write, n);
        churn(&pool, 8);
        pool.export(Leave::Exported).unwrap();
        let pool = import(&devices).unwrap_or_else(|error| panic!("write {n}: {error:?}"));
        churn(&pool, 1);
    }
}

fn leaf(pool: &LivePool, n: usize) -> format::config::VdevNode {
    pool.config().vdev_tree.children[0].children[n].clone()
}

#[test]
fn a_leaf_that_fails_its_test_is_faulted_and_left_alone() {
    let (disks, devices) = sims(2);
    let pool = create(Layout::Mirror, &devices, 11);
    churn(&pool, 3);
    let whole_until = pool.txgs().synced_txg();
    disks[1].vanish();
    churn(&pool, 4);
    let node = leaf(&pool, 1);
    assert!(node.faulted && node.aux_state.as_deref() == Some("err_exceeded"));
    let status = pool.tree().status();
    let faulted = status.find(node.guid).unwrap();
    assert_eq!(
        (faulted.state, faulted.aux, status.state),
        (VdevState::Faulted, Aux::ErrExceeded, VdevState::Degraded)
    );
    // It is not used, though it would answer.
    disks[1].come_back();
    disks[1].record(false);
    churn(&pool, 3);
    assert!(disks[1].take_record().is_empty());
    assert!(pool.tree().dtl(node.guid).contains(pool.txgs().synced_txg().0));
    // The labels say so.
    let label = label::probe(&*devices[0]).newest_config().unwrap().clone();
    assert!(label.vdev_tree.find(node.guid).unwrap().faulted);
    pool.resume(None).unwrap();
    churn(&pool, 3);
    assert!(!leaf(&pool, 1).faulted);
    let missed = pool.tree().dtl(node.guid);
    assert!(missed.contains(whole_until.0 + 2) && !missed.contains(pool.txgs().synced_txg().0), "{missed:?}");
    assert!(!disks[1].take_record().is_empty());
    pool.export(Leave::Exported).unwrap();
}

#[test]
fn a_leaf_with_many_errors_is_faulted_unless_it_is_the_last() {
    let (disks, devices) = sims(2);
    let pool = create(Layout::Mirror, &devices, 12);
    churn(&pool, 2);
    disks[0].set_rates(Rates { write_error: 2, ..Rates::default() });
    churn(&pool, 12);
    assert!(leaf(&pool, 0).faulted, "{:?}", pool.tree().status());
    disks[0].set_rates(Rates::default());
    disks[1].set_rates(Rates { write_error: 5, ..Rates::default() });
    for _ in 0..20 {
        if pool.run(|ctx| ctx.m().set_entry("org.cenote:n", ctx.txg().0)).is_err() {
            break; // both copies of something failed
        }
    }
    let last = leaf(&pool, 1);
    assert!(!last.faulted, "nothing would be left");
    drop(pool);
    disks[1].set_rates(Rates::default());
    // An import lifts the fault.
    let pool = import(&devices).unwrap();
    churn(&pool, 2);
    assert!(!leaf(&pool, 0).faulted && !leaf(&pool, 1).degraded);
    pool.export(Leave::Exported).unwrap();
}

#[test]
fn a_panic_in_a_task_lets_nobody_wait() {
    let (_, devices) = sims(1);
    let pool = create(Layout::Single, &devices, 13);
    pool.start();
    let failed = pool.run(|_| -> Result<(), dsl::DslError> { panic!("a bug, made for this test") });
    assert!(matches!(failed, Err(PoolError::Tx(TxError::Suspended { .. }))), "{failed:?}");
    assert!(pool.sync().is_err());
    drop(pool);
    churn(&import(&devices).unwrap(), 1);
}

#[test]
fn what_a_side_loses_when_a_txg_is_flushed_is_on_disk_with_that_txg() {
    let (disks, devices) = sims(2);
    let pool = create(Layout::Mirror, &devices, 14);
    churn(&pool, 3);
    let guid = pool.config().vdev_tree.children[0].children[1].guid;
    disks[1].fail_nth(OpKind::Flush, 0);
    pool.run(|ctx| ctx.m().set_entry("org.cenote:n", 1)).unwrap();
    let lossy = pool.txgs().synced_txg();
    assert!(pool.tree().dtl(guid).contains(lossy.0));
    // A crash, before any change.
    drop(pool);
    let pool = import(&devices).unwrap();
    assert!(pool.tree().dtl(guid).contains(lossy.0), "{:?}", pool.tree().dtl(guid));
    pool.export(Leave::Exported).unwrap();
}
