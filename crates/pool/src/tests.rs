//! Unit tests of background work, step by step.
#![allow(clippy::disallowed_types)] // Files are made and removed here; `vdev` opens them.

use crate::space::Class;
use crate::*;
use dmu::NewObject;
use format::scan::{ScanFunc, ScanState};
use format::{ObjType, VdevGuid};
use std::sync::Arc;
use std::time::Duration;
use vdev::Device;
use vdev::device::file::{Access, open_exclusive};
use vdev::device::sim::SimDisk;
use vdev::env::{Env, ManualClock};
use vdev::tree::VdevState;

const SIZE: u64 = 96 << 20;

fn mirror(leaves: Vec<LeafSpec>) -> (Arc<LivePool>, Arc<ManualClock>) {
    let top = TopSpec { layout: Layout::Mirror, class: Class::Normal, ashift: None, leaves };
    let (env, clock) = Env::simulated(5);
    let pool = LivePool::create(CreateSpec::new("tank", vec![top]), env).unwrap();
    pool.attend();
    (pool, clock)
}

fn of_disks(disks: &[Arc<SimDisk>]) -> (Arc<LivePool>, Arc<ManualClock>) {
    let leaf = |(n, disk): (usize, &Arc<SimDisk>)| {
        LeafSpec::file(format!("/d{n}"), Arc::clone(disk) as Arc<dyn Device>)
    };
    mirror(disks.iter().enumerate().map(leaf).collect())
}

fn side(pool: &LivePool, n: usize) -> VdevGuid {
    pool.config().vdev_tree.children[0].children[n].guid
}

fn change(pool: &LivePool, n: u64) {
    pool.run(move |ctx| {
        let object = ctx.m().allocate(&NewObject::of(ObjType::U64_METADATA).with_block_size(128 << 10))?;
        object.write_at(0, &[n as u8; 50_000], ctx.m().tx)?;
        ctx.m().set_entry("org.cenote:n", n)
    })
    .unwrap();
}

/// The last scan, as it is on disk.
fn last_scan(pool: &LivePool) -> (ScanFunc, ScanState) {
    let phys = pool.view().unwrap().scan().unwrap().unwrap();
    (phys.func, phys.state)
}

#[test]
fn a_write_that_fails_does_not_end_a_scrub_and_what_it_lacks_is_brought_afterwards() {
    let disks = [1, 2].map(|seed| Arc::new(SimDisk::new(SIZE, seed)));
    let (pool, _) = of_disks(&disks);
    (0..4).for_each(|n| change(&pool, n));
    pool.start_scrub(false).unwrap();
    change(&pool, 9);
    // The leaf has missed one of the writes.
    let (leaf, newest) = (side(&pool, 1), pool.txgs().synced_txg().0);
    pool.tree().miss(leaf, newest..newest + 1);
    assert!(!pool.tree().dtl(leaf).is_empty());
    assert_eq!(pool.tree().status().find(leaf).unwrap().state, VdevState::Online);
    // A view reports that a resilver is due.
    assert!(pool.view().unwrap().is_resilver_due());
    let mut scans = Vec::new();
    for _ in 0..8 {
        pool.background_tick();
        scans.push(last_scan(&pool));
    }
    scans.dedup();
    assert!(!scans.contains(&(ScanFunc::Scrub, ScanState::Canceled)), "{scans:?}");
    assert!(scans.contains(&(ScanFunc::Scrub, ScanState::Finished)), "{scans:?}");
    assert_eq!(scans.last(), Some(&(ScanFunc::Resilver, ScanState::Finished)));
    assert!(pool.tree().dtl(leaf).is_empty());
}

#[test]
fn a_leaf_whose_file_was_removed_or_cut_is_seen_without_being_asked() {
    for is_cut in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let path = |n: usize| folder.path().join(format!("d{n}"));
        let leaf = |n: usize| {
            std::fs::File::create(path(n)).unwrap().set_len(SIZE).unwrap();
            let device = open_exclusive(&path(n), Access::Cached).unwrap();
            LeafSpec::file(path(n).display().to_string(), device)
        };
        let (pool, clock) = mirror(vec![leaf(0), leaf(1)]);
        change(&pool, 1);
        let state = || pool.tree().status().find(side(&pool, 1)).unwrap().state;
        clock.advance(Duration::from_secs(60));
        pool.background_tick();
        assert_eq!(state(), VdevState::Online);
        // A file that was renamed still exists after a crash.
        std::fs::rename(path(1), folder.path().join("moved")).unwrap();
        clock.advance(Duration::from_secs(60));
        pool.background_tick();
        assert_eq!(state(), VdevState::Online);
        if is_cut {
            let file = std::fs::OpenOptions::new().write(true).open(folder.path().join("moved")).unwrap();
            file.set_len(SIZE / 2).unwrap();
        } else {
            std::fs::remove_file(folder.path().join("moved")).unwrap();
        }
        clock.advance(Duration::from_secs(60));
        pool.background_tick();
        assert_eq!(state(), VdevState::Unavail, "cut: {is_cut}");
        change(&pool, 2);
        assert!(!pool.tree().dtl(side(&pool, 1)).is_empty());
        // The other file is the only one left.
        std::fs::remove_file(path(0)).unwrap();
        clock.advance(Duration::from_secs(60));
        pool.background_tick();
        change(&pool, 3);
    }
}
