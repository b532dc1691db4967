//! Devices that are attached, detached and replaced, and spares that stand in for others.
//!
//! Each pool is judged by `zdb`, in the middle of what goes on and after it; at the end the devices that a pool does
//! not need any more are taken away.

use super::churn;
use crate::support::{Files, judge};
use cenote_pool::space::Class;
use cenote_pool::{
    AuxKind, AuxState, CreateSpec, Layout, LeafSpec, Leave, LivePool, NewSide, Offline, PoolError, Purpose,
    ShapeRefusal,
};
use format::config::{PoolState, VdevKind, VdevNode};
use format::{Txg, VdevGuid};
use std::path::Path;
use std::sync::Arc;
use vdev::env::Env;
use vdev::label;

const SIZE: u64 = 96 << 20;

fn create(files: &Files, layout: Layout, count: usize) -> Arc<LivePool> {
    LivePool::create(CreateSpec::new("tank", vec![files.top(layout, 0..count)]), Env::system()).unwrap()
}

fn leaf(files: &Files, which: usize) -> LeafSpec {
    files.top(Layout::Single, which..which + 1).leaves.remove(0)
}

fn new(files: &Files, which: usize) -> NewSide {
    NewSide::Device(leaf(files, which))
}

/// The leaf at a file.
fn at(pool: &LivePool, files: &Files, which: usize) -> VdevNode {
    let path = files.dir().join(format!("d{which}"));
    let config = pool.config().vdev_tree;
    let found = config.leaves().find(|leaf| leaf.path.as_deref().map(Path::new) == Some(&path));
    found.unwrap_or_else(|| panic!("no leaf at {}", path.display())).clone()
}

fn top(pool: &LivePool) -> VdevNode {
    pool.config().vdev_tree.children[0].clone()
}

fn is_whole(pool: &LivePool, leaf: &VdevNode) -> bool {
    leaf.resilver_txg == Txg(0) && pool.tree().dtl(leaf.guid).is_empty()
}

/// Runs all scans to their ends.
fn scan(pool: &LivePool) {
    pool.scan_to_end().unwrap();
    assert!(pool.scan_progress().is_none());
}

/// The label of a file.
fn label_of(files: &Files, which: usize) -> format::config::PoolConfig {
    let path = files.dir().join(format!("d{which}"));
    let device = vdev::device::file::FileDevice::open(&path, vdev::device::file::Access::Cached).unwrap();
    label::probe(&device).newest_config().unwrap().clone()
}

fn refused<T: std::fmt::Debug>(outcome: Result<T, PoolError>) -> ShapeRefusal {
    match outcome {
        Err(PoolError::Shape { why }) => why,
        other => panic!("{other:?} is no refusal"),
    }
}

#[test]
fn a_device_becomes_a_mirror_and_the_old_device_leaves() {
    let files = Files::new(3, SIZE);
    let pool = create(&files, Layout::Single, 1);
    churn(&pool, 8);
    let before = top(&pool);
    pool.attach(before.guid, new(&files, 1), Purpose::Mirror).unwrap();
    let mirror = top(&pool);
    assert_eq!((mirror.kind, mirror.id, mirror.asize), (VdevKind::Mirror, 0, before.asize));
    assert_eq!((mirror.metaslab_array, mirror.zap_top), (before.metaslab_array, before.zap_top));
    assert_ne!(mirror.guid, before.guid);
    assert_eq!(mirror.children[0].guid, before.guid);
    let side = at(&pool, &files, 1);
    assert!(side.resilver_txg != Txg(0) && pool.tree().dtl(side.guid).contains(4));
    // The old side has what the new one lacks.
    assert_eq!(refused(pool.detach(before.guid)), ShapeRefusal::NoReplicas);
    churn(&pool, 3);
    pool.export(Leave::Exported).unwrap();
    judge(&files, "tank");
    let pool = files.import("tank").unwrap();
    scan(&pool);
    pool.attach(side.guid, new(&files, 2), Purpose::Mirror).unwrap();
    scan(&pool);
    for which in 0..3 {
        assert!(is_whole(&pool, &at(&pool, &files, which)), "d{which}");
    }
    let mirror = top(&pool);
    pool.detach(before.guid).unwrap();
    assert_eq!(label_of(&files, 0).txg, Txg(0));
    churn(&pool, 3);
    pool.detach(at(&pool, &files, 1).guid).unwrap();
    // The last side takes the place of the mirror.
    let last = top(&pool);
    assert_eq!((last.kind, last.guid), (VdevKind::File, mirror.guid));
    assert_eq!(
        (last.asize, last.metaslab_array, last.zap_top),
        (mirror.asize, mirror.metaslab_array, mirror.zap_top)
    );
    assert_eq!(refused(pool.detach(last.guid)), ShapeRefusal::NotDetachable);
    churn(&pool, 3);
    drop(pool);
    files.hide(0);
    files.hide(1);
    judge(&files, "tank");
    let pool = files.import("tank").unwrap();
    pool.start_scrub(false).unwrap();
    scan(&pool);
    assert_eq!(pool.view().unwrap().scan().unwrap().unwrap().errors, 0);
    churn(&pool, 3);
    pool.export(Leave::Exported).unwrap();
    judge(&files, "tank");
}

#[test]
fn a_device_of_a_raidz_is_replaced_over_a_crash() {
    let files = Files::new(5, SIZE);
    let pool = create(&files, Layout::Raidz(1), 3);
    churn(&pool, 10);
    let old = at(&pool, &files, 1);
    pool.attach(old.guid, new(&files, 3), Purpose::Replace).unwrap();
    let replacing = top(&pool).children[1].clone();
    assert_eq!((replacing.kind, replacing.id, replacing.children.len()), (VdevKind::Replacing, 1, 2));
    assert!(pool.scan_step_within(1).unwrap());
    churn(&pool, 3);
    // As after a crash, in the middle of the resilver.
    drop(pool);
    judge(&files, "tank");
    let pool = files.import("tank").unwrap();
    assert!(pool.scan_progress().is_some());
    scan(&pool);
    // The old device has left by itself, and the new one stands in its place.
    let child = top(&pool).children[1].clone();
    assert_eq!((child.guid, child.id), (replacing.children[1].guid, 1));
    assert!(is_whole(&pool, &child));
    assert_eq!(label_of(&files, 1).txg, Txg(0));
    churn(&pool, 3);
    drop(pool);
    files.hide(1);
    judge(&files, "tank");
    // Another device can be done without now.
    files.hide(0);
    let pool = files.import("tank").unwrap();
    pool.start_scrub(false).unwrap();
    scan(&pool);
    assert_eq!(pool.view().unwrap().scan().unwrap().unwrap().errors, 0);
    // A missing device is replaced, and a replacement canceled.
    let missing = at(&pool, &files, 0);
    pool.attach(missing.guid, new(&files, 4), Purpose::Replace).unwrap();
    let canceled = at(&pool, &files, 4);
    pool.detach(canceled.guid).unwrap();
    assert_eq!(top(&pool).children[0].guid, missing.guid);
    pool.attach(missing.guid, new(&files, 4), Purpose::Replace).unwrap();
    scan(&pool);
    let child = top(&pool).children[0].clone();
    assert!(child.children.is_empty() && is_whole(&pool, &child) && child.guid != missing.guid);
    pool.export(Leave::Exported).unwrap();
    judge(&files, "tank");
}

#[test]
fn a_device_that_is_a_whole_pool_is_replaced_by_one_at_the_same_path() {
    let files = Files::new(2, SIZE);
    let pool = create(&files, Layout::Single, 1);
    churn(&pool, 8);
    let old = top(&pool);
    let mut spec = leaf(&files, 1);
    spec.path.clone_from(old.path.as_ref().unwrap());
    pool.attach(old.guid, NewSide::Device(spec), Purpose::Replace).unwrap();
    let replacing = top(&pool);
    assert_eq!(replacing.children[0].path, old.path.as_ref().map(|path| format!("{path}/old")));
    scan(&pool);
    let now = top(&pool);
    assert_eq!((now.guid, &now.path, now.asize), (replacing.guid, &old.path, old.asize));
    pool.export(Leave::Exported).unwrap();
    files.hide(0);
    judge(&files, "tank");
    churn(&files.import("tank").unwrap(), 3);
}

#[test]
fn a_log_device_becomes_a_mirror() {
    let files = Files::new(3, SIZE);
    let mut log = files.top(Layout::Single, 1..2);
    log.class = Class::Log;
    let tops = vec![files.top(Layout::Single, 0..1), log];
    let pool = LivePool::create(CreateSpec::new("tank", tops), Env::system()).unwrap();
    churn(&pool, 3);
    let old = at(&pool, &files, 1);
    pool.attach(old.guid, new(&files, 2), Purpose::Mirror).unwrap();
    scan(&pool);
    let mirror = pool.config().vdev_tree.children[1].clone();
    assert!(mirror.is_log && mirror.children.iter().all(|side| !side.is_log));
    pool.detach(old.guid).unwrap();
    let last = pool.config().vdev_tree.children[1].clone();
    assert!(last.is_log && last.guid == mirror.guid);
    pool.export(Leave::Exported).unwrap();
    judge(&files, "tank");
}

#[test]
fn a_spare_stands_in_and_goes_back_or_stays() {
    let files = Files::new(6, SIZE);
    let pool = create(&files, Layout::Mirror, 2);
    pool.add_aux(AuxKind::Spare, vec![leaf(&files, 2), leaf(&files, 3)]).unwrap();
    churn(&pool, 5);
    let spares = pool.view().unwrap().spares().unwrap();
    let (spare, other) = (spares[0].node.guid, spares[1].node.guid);
    let states = |pool: &LivePool| -> Vec<AuxState> {
        pool.view().unwrap().spares().unwrap().iter().map(|spare| spare.state).collect()
    };
    let failed = at(&pool, &files, 1).guid;
    assert!(pool.take_offline(failed, Offline::Faulted).unwrap());
    pool.attach(failed, NewSide::Spare(spare), Purpose::Replace).unwrap();
    assert_eq!(states(&pool), [AuxState::InUse, AuxState::Available]);
    assert_eq!(
        refused(pool.attach(failed, NewSide::Spare(spare), Purpose::Replace)).to_string(),
        format!("{} is busy", files.dir().join("d2").display())
    );
    assert_eq!(refused(pool.attach(spare, new(&files, 4), Purpose::Replace)), ShapeRefusal::SpareOnly);
    assert!(matches!(pool.remove_aux(spare), Err(PoolError::BadSpec { .. })));
    scan(&pool);
    let both = top(&pool).children[1].clone();
    assert_eq!((both.kind, both.children[1].guid, both.children[1].is_spare), (VdevKind::Spare, spare, true));
    pool.export(Leave::Exported).unwrap();
    judge(&files, "tank");
    // The device is in order again.
    let pool = files.import("tank").unwrap();
    assert_eq!(states(&pool), [AuxState::InUse, AuxState::Available]);
    churn(&pool, 3);
    pool.clear(Some(failed), None).unwrap();
    scan(&pool);
    assert_eq!(top(&pool).children[1].guid, failed);
    assert_eq!(states(&pool), [AuxState::Available; 2]);
    assert_eq!(label_of(&files, 2).state, PoolState::Spare);
    pool.export(Leave::Exported).unwrap();
    judge(&files, "tank");
    // The device is replaced while a spare stands in for it.
    let pool = files.import("tank").unwrap();
    assert_eq!(states(&pool), [AuxState::Available; 2]);
    assert!(pool.take_offline(failed, Offline::Always).unwrap());
    pool.attach(failed, NewSide::Spare(other), Purpose::Replace).unwrap();
    scan(&pool);
    pool.attach(failed, new(&files, 4), Purpose::Replace).unwrap();
    drop(pool);
    judge(&files, "tank");
    let pool = files.import("tank").unwrap();
    scan(&pool);
    let now = at(&pool, &files, 4);
    assert_eq!((top(&pool).children[1].guid, now.unspare), (now.guid, false));
    assert_eq!(states(&pool), [AuxState::Available; 2]);
    // The device is given up: the spare stays.
    pool.attach(now.guid, NewSide::Spare(spare), Purpose::Replace).unwrap();
    scan(&pool);
    pool.detach(now.guid).unwrap();
    let kept = top(&pool).children[1].clone();
    assert_eq!((kept.guid, kept.is_spare), (spare, false));
    assert_eq!(states(&pool), [AuxState::Available]);
    pool.export(Leave::Exported).unwrap();
    judge(&files, "tank");
    churn(&files.import("tank").unwrap(), 3);
}

#[test]
fn what_is_refused_changes_nothing() {
    let files = Files::new(6, SIZE);
    let pool = create(&files, Layout::Raidz(1), 3);
    churn(&pool, 3);
    let before = pool.config();
    let (raidz, side) = (top(&pool), at(&pool, &files, 0));
    assert_eq!(refused(pool.attach(side.guid, new(&files, 3), Purpose::Mirror)), ShapeRefusal::OnlyMirrors);
    assert_eq!(refused(pool.attach(raidz.guid, new(&files, 3), Purpose::Mirror)), ShapeRefusal::Expansion);
    let nobody = VdevGuid(1);
    assert_eq!(refused(pool.attach(nobody, new(&files, 3), Purpose::Replace)), ShapeRefusal::NoSuchDevice);
    assert_eq!(refused(pool.detach(nobody)), ShapeRefusal::NoSuchDevice);
    assert_eq!(refused(pool.detach(side.guid)), ShapeRefusal::NotDetachable);
    assert_eq!(refused(pool.detach(raidz.guid)), ShapeRefusal::NotDetachable);
    let small = Files::new(1, 70 << 20);
    assert_eq!(refused(pool.attach(side.guid, new(&small, 0), Purpose::Replace)), ShapeRefusal::TooSmall);
    assert!(label::probe(&*leaf(&files, 3).device).is_empty());
    churn(&pool, 1);
    let after = pool.config();
    assert_eq!(after.vdev_tree, before.vdev_tree);
    pool.export(Leave::Exported).unwrap();
    judge(&files, "tank");
}

/// A resilver that is well under way ends before that of a device that was attached later; another one begins again.
#[test]
fn a_resilver_waits_for_one_that_is_well_under_way() {
    let files = Files::new(4, SIZE);
    let pool = create(&files, Layout::Single, 1);
    churn(&pool, 20);
    let first = top(&pool);
    pool.attach(first.guid, new(&files, 1), Purpose::Mirror).unwrap();
    // Nothing is done yet: it begins again with both.
    pool.attach(first.guid, new(&files, 2), Purpose::Mirror).unwrap();
    assert!(!at(&pool, &files, 2).resilver_defer);
    let examined =
        || pool.scan_progress().map_or(u64::MAX, |scan| scan.phys.examined * 100 / scan.phys.to_examine);
    while examined() < 10 {
        assert!(pool.scan_step_within(1).unwrap());
    }
    pool.attach(first.guid, new(&files, 3), Purpose::Mirror).unwrap();
    assert!(at(&pool, &files, 3).resilver_defer && pool.features().is_active("resilver_defer"));
    drop(pool);
    judge(&files, "tank");
    let pool = files.import("tank").unwrap();
    scan(&pool);
    for which in 0..4 {
        let side = at(&pool, &files, which);
        assert!(is_whole(&pool, &side) && !side.resilver_defer, "d{which}");
    }
    assert!(!pool.features().is_active("resilver_defer"));
    pool.export(Leave::Exported).unwrap();
    judge(&files, "tank");
}

/// A pool of OpenZFS in which a spare stands in for a faulted device.
#[test]
fn a_spare_that_openzfs_has_put_in_goes_back() {
    let fixture = testkit::Fixture::open("spare-in-use");
    let files = Files::copy_of(&fixture);
    let name = &fixture.manifest().pool;
    let pool = files.import(name).unwrap();
    let both = top(&pool).children[1].clone();
    assert_eq!(both.kind, VdevKind::Spare);
    churn(&pool, 3);
    pool.clear(Some(both.children[0].guid), None).unwrap();
    scan(&pool);
    assert_eq!(top(&pool).children[1].guid, both.children[0].guid);
    assert_eq!(pool.view().unwrap().spares().unwrap()[0].state, AuxState::Available);
    pool.export(Leave::Exported).unwrap();
    judge(&files, name);
}

/// A power cut came between the txg that gave a spare back and its label: the spare can be used nevertheless.
#[test]
fn a_spare_without_the_label_of_one_is_recognized() {
    let files = Files::new(3, SIZE);
    let pool = create(&files, Layout::Mirror, 2);
    pool.add_aux(AuxKind::Spare, vec![leaf(&files, 2)]).unwrap();
    let spare = pool.view().unwrap().spares().unwrap()[0].node.guid;
    let side = at(&pool, &files, 1).guid;
    pool.attach(side, NewSide::Spare(spare), Purpose::Replace).unwrap();
    scan(&pool);
    pool.sync().unwrap();
    let path = files.dir().join("d2");
    let before = std::fs::read(&path).unwrap();
    pool.detach(spare).unwrap();
    drop(pool);
    std::fs::write(&path, before).unwrap();
    assert!(!label_of(&files, 2).is_aux());
    let pool = files.import("tank").unwrap();
    assert_eq!(pool.view().unwrap().spares().unwrap()[0].state, AuxState::Available);
    assert!(label_of(&files, 2).is_aux());
    pool.attach(side, NewSide::Spare(spare), Purpose::Replace).unwrap();
    scan(&pool);
    pool.export(Leave::Exported).unwrap();
    judge(&files, "tank");
}
