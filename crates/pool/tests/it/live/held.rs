//! Devices that fail when held writes are released, and tasks that fail halfway.

use super::churn;
use crate::support::{Files, judge};
use cenote_pool::LivePool;
use cenote_pool::{CreateSpec, ImportOptions, Layout, Leave};
use cenote_pool::{PoolError, Which};
use dmu::TxError;
use dsl::DslError;
use format::{DeviceOffset, ObjectId};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use vdev::device::file::{Access, open_exclusive};
use vdev::env::Env;
use vdev::scan::{Found, Leaf};
use vdev::{Device, DeviceError, label};

/// A device that can be made to refuse writes.
#[derive(Debug)]
struct Stubborn {
    base: Arc<dyn Device>,
    refuses: AtomicBool,
}

impl Device for Stubborn {
    fn size(&self) -> u64 {
        self.base.size()
    }

    fn read_at(&self, buf: &mut [u8], at: DeviceOffset) -> Result<(), DeviceError> {
        self.base.read_at(buf, at)
    }

    fn write_at(&self, buf: &[u8], at: DeviceOffset) -> Result<(), DeviceError> {
        if self.refuses.load(Ordering::Relaxed) {
            return Err(DeviceError::NotWritten);
        }
        self.base.write_at(buf, at)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.base.flush()
    }
}

/// A pool of one mirror, or of vdevs of one device.
fn pool_of(count: usize, layout: Layout) -> Files {
    let files = Files::new(count, 96 << 20);
    let tops = match layout {
        Layout::Single => (0..count).map(|n| files.top(layout, n..n + 1)).collect(),
        _ => vec![files.top(layout, 0..count)],
    };
    let pool = LivePool::create(CreateSpec::new("tank", tops), Env::system());
    let pool = pool.unwrap();
    churn(&pool, 5);
    pool.export(Leave::Exported).unwrap();
    files
}

/// Opens the pool with held writes, on handles that can refuse.
fn import_held(files: &Files, count: usize) -> (Vec<Arc<Stubborn>>, Arc<LivePool>) {
    let (mut disks, mut leaves) = (Vec::new(), Vec::new());
    for n in 0..count {
        let path = files.dir().join(format!("d{n}"));
        let base = open_exclusive(&path, Access::Cached).unwrap();
        let disk = Arc::new(Stubborn { base, refuses: AtomicBool::new(false) });
        let device = Arc::clone(&disk) as Arc<dyn Device>;
        leaves.push(Leaf { path, probe: label::probe(&*device), device, partition: None });
        disks.push(disk);
    }
    let found = Found::from(leaves);
    let opts = ImportOptions { hold: true, ..ImportOptions::default() };
    (disks, LivePool::import(&found, &Which::Name("tank".into()), &opts, Env::system()).unwrap())
}

#[test]
fn a_side_of_a_mirror_that_takes_nothing_is_done_without() {
    let files = pool_of(2, Layout::Mirror);
    let (disks, pool) = import_held(&files, 2);
    let first = pool.txgs().synced_txg().0;
    disks[1].refuses.store(true, Ordering::Relaxed);
    churn(&pool, 3);
    let [good, bad] = [0, 1].map(|n| pool.config().vdev_tree.children[0].children[n].guid);
    let last = pool.txgs().synced_txg().0;
    let missed = pool.tree().dtl(bad);
    assert!((first..=last).all(|txg| missed.contains(txg)), "{missed:?} of {first} to {last}");
    assert!(pool.tree().dtl(good).is_empty());
    pool.export(Leave::Exported).unwrap();
    drop(disks);

    files.hide(1);
    judge(&files, "tank");
    files.show(1);
    // The side is back, and missing blocks are not read from it.
    let pool = files.import("tank").unwrap();
    let missed = pool.tree().dtl(bad);
    assert!((first..=last).all(|txg| missed.contains(txg)), "{missed:?} of {first} to {last}");
    churn(&pool, 2);
    pool.export(Leave::Exported).unwrap();
}

#[test]
fn what_a_lost_side_has_missed_is_on_disk_when_the_change_is() {
    let files = pool_of(2, Layout::Mirror);
    let (disks, pool) = import_held(&files, 2);
    disks[1].refuses.store(true, Ordering::Relaxed);
    pool.run(|ctx| ctx.m().set_entry("org.cenote:kept", 1)).unwrap();
    let bad = pool.config().vdev_tree.children[0].children[1].guid;
    let missed = pool.tree().dtl(bad);
    // As a crash leaves it.
    drop((pool, disks));
    let pool = files.import("tank").unwrap();
    let known = pool.tree().dtl(bad);
    assert!(missed.iter().all(|range| known.overlap(&range) == [range]), "{missed:?}, {known:?}");
    assert_eq!(pool.view().unwrap().directory().number("org.cenote:kept").unwrap(), Some(1));
    pool.export(Leave::Exported).unwrap();
}

#[test]
fn without_redundancy_a_device_that_takes_nothing_ends_the_pool() {
    for count in [1, 2] {
        let files = pool_of(count, Layout::Single);
        let (disks, pool) = import_held(&files, count);
        disks[count - 1].refuses.store(true, Ordering::Relaxed);
        let done = pool.run(|ctx| ctx.m().set_entry("org.cenote:lost", 1));
        assert!(matches!(done, Err(PoolError::Tx(TxError::Suspended { .. }))), "{done:?}");
        assert!(pool.sync().is_err());
        drop((pool, disks));
        let pool = files.import("tank").unwrap();
        assert_eq!(pool.view().unwrap().directory().number("org.cenote:lost").unwrap(), None);
        pool.export(Leave::Exported).unwrap();
        judge(&files, "tank");
    }
}

#[test]
fn a_task_that_fails_halfway_is_not_on_disk() {
    let files = pool_of(1, Layout::Single);
    let pool = files.import("tank").unwrap();
    let refused = |id| DslError::Dmu(dmu::DmuError::NoObject { objset: 0, object: ObjectId(id) });
    // The failed task has changed nothing: the pool continues.
    let failed = pool.run(move |_| Err::<(), _>(refused(1)));
    assert!(matches!(failed, Err(PoolError::Dsl(_))), "{failed:?}");
    pool.run(|ctx| ctx.m().set_entry("org.cenote:kept", 1)).unwrap();
    let failed = pool.run(move |ctx| {
        ctx.m().set_entry("org.cenote:half", 1)?;
        Err::<(), _>(refused(2))
    });
    match failed {
        Err(PoolError::Tx(TxError::Suspended { why })) => assert!(why.contains("failed halfway"), "{why}"),
        other => panic!("{other:?}"),
    }
    assert!(pool.sync().is_err());
    drop(pool);
    let pool = files.import("tank").unwrap();
    let view = pool.view().unwrap();
    assert_eq!(view.directory().number("org.cenote:kept").unwrap(), Some(1));
    assert_eq!(view.directory().number("org.cenote:half").unwrap(), None);
    pool.export(Leave::Exported).unwrap();
    judge(&files, "tank");
}
