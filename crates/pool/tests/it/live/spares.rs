//! Spares that take over by themselves and go back, and blank devices that replace missing ones: what the background
//! thread of an attended pool does.

use super::churn;
use crate::support::{Files, judge};
use cenote_pool::{AuxKind, AuxState, CreateSpec, Layout, LeafSpec, Leave, LivePool, Offline};
use format::VdevGuid;
use format::config::{VdevKind, VdevNode};
use std::sync::Arc;
use std::time::Duration;
use vdev::env::Env;

const SIZE: u64 = 96 << 20;

fn leaf(files: &Files, which: usize) -> LeafSpec {
    files.top(Layout::Single, which..which + 1).leaves.remove(0)
}

/// An attended mirror of the first two files, with the third as its spare.
fn mirror(files: &Files) -> Arc<LivePool> {
    let spec = CreateSpec::new("tank", vec![files.top(Layout::Mirror, 0..2)]);
    let pool = LivePool::create(spec, Env::system()).unwrap();
    churn(&pool, 5);
    pool.start();
    pool.attend();
    pool
}

fn side(pool: &LivePool, which: usize) -> VdevNode {
    pool.config().vdev_tree.children[0].children[which].clone()
}

/// Waits for what the background thread does.
fn until(pool: &LivePool, what: &str, is_there: impl Fn() -> bool) {
    for _ in 0..1200 {
        if is_there() {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("{what} never came: {:?}", pool.config().vdev_tree);
}

fn is_idle(pool: &LivePool) -> bool {
    let tree = pool.tree();
    pool.scan_progress().is_none() && tree.leaf_guids().iter().all(|leaf| tree.dtl(*leaf).is_empty())
}

fn spare_states(pool: &LivePool) -> Vec<AuxState> {
    pool.view().unwrap().spares().unwrap().iter().map(|spare| spare.state).collect()
}

#[test]
fn a_spare_takes_over_for_a_faulted_device_and_goes_back() {
    let files = Files::new(3, SIZE);
    let pool = mirror(&files);
    pool.add_aux(AuxKind::Spare, vec![leaf(&files, 2)]).unwrap();
    let failed: VdevGuid = side(&pool, 1).guid;
    // Taken offline on purpose: no spare is needed.
    assert!(pool.take_offline(failed, Offline::Always).unwrap());
    churn(&pool, 2);
    std::thread::sleep(Duration::from_millis(600));
    assert_eq!(spare_states(&pool), [AuxState::Available]);
    pool.bring_online(failed, None).unwrap();
    assert!(pool.take_offline(failed, Offline::Faulted).unwrap());
    until(&pool, "the spare", || side(&pool, 1).kind == VdevKind::Spare);
    assert_eq!(spare_states(&pool), [AuxState::InUse]);
    until(&pool, "the end of the resilver", || {
        let tree = pool.tree();
        let spare = side(&pool, 1).children[1].guid;
        pool.scan_progress().is_none() && tree.dtl(spare).is_empty()
    });
    churn(&pool, 3);
    pool.clear(Some(failed), None).unwrap();
    until(&pool, "the old device", || side(&pool, 1).guid == failed && is_idle(&pool));
    assert_eq!(spare_states(&pool), [AuxState::Available]);
    pool.export(Leave::Exported).unwrap();
    judge(&files, "tank");
}

#[test]
fn a_file_that_is_gone_is_replaced_by_a_spare_or_by_a_blank_file_at_its_path() {
    for is_replaced in [false, true] {
        let files = Files::new(3, SIZE);
        let pool = mirror(&files);
        let gone = side(&pool, 1);
        let path = gone.path.clone().unwrap();
        if is_replaced {
            pool.set_props(vec![("autoreplace".into(), "on".into())]).unwrap();
            std::fs::remove_file(&path).unwrap();
            std::fs::copy(files.dir().join("d2"), &path).unwrap();
        } else {
            pool.add_aux(AuxKind::Spare, vec![leaf(&files, 2)]).unwrap();
            std::fs::remove_file(&path).unwrap();
        }
        churn(&pool, 2);
        until(&pool, "another device", || side(&pool, 1).guid != gone.guid);
        let is_there = || {
            let now = side(&pool, 1);
            let kind = if is_replaced { VdevKind::File } else { VdevKind::Spare };
            let new = now.leaves().last().unwrap().guid;
            now.kind == kind && pool.scan_progress().is_none() && pool.tree().dtl(new).is_empty()
        };
        until(&pool, "the end of the resilver", is_there);
        if is_replaced {
            assert_eq!(side(&pool, 1).path.as_ref(), Some(&path));
        }
        churn(&pool, 2);
        pool.export(Leave::Exported).unwrap();
        judge(&files, "tank");
    }
}
