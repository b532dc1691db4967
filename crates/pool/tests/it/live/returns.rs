//! Leaves that lack data and get them back: due resilvers, devices that are no longer at their paths, and
//! spares and cache devices.

use super::churn;
use super::faults::{create, import};
use crate::support::{Files, judge};
use cenote_pool::LivePool;
use cenote_pool::{AuxKind, CreateSpec, ImportOptions, Layout, LeafSpec, Leave, Offline};
use cenote_pool::{AuxState, OpenOptions, Pool, PoolError, Which, import as listing};
use format::scan::ScanFunc;
use format::{DeviceOffset, VdevGuid};
use std::path::PathBuf;
use std::sync::Arc;
use vdev::device::Device;
use vdev::device::file::{Access, open_exclusive};
use vdev::device::memory::MemoryDevice;
use vdev::env::Env;
use vdev::scan::Search;
use vdev::tree::VdevState;

const SIZE: u64 = 96 << 20;

fn memories() -> [Arc<dyn Device>; 2] {
    [(); 2].map(|()| Arc::new(MemoryDevice::new(SIZE)) as Arc<dyn Device>)
}

/// A mirror of two files with some data.
fn mirror_of_files() -> (Files, Arc<LivePool>) {
    let files = Files::new(2, SIZE);
    let spec = CreateSpec::new("tank", vec![files.top(Layout::Mirror, 0..2)]);
    let pool = LivePool::create(spec, Env::system()).unwrap();
    churn(&pool, 3);
    (files, pool)
}

fn side(pool: &LivePool) -> VdevGuid {
    pool.config().vdev_tree.children[0].children[1].guid
}

fn state(pool: &LivePool, leaf: VdevGuid) -> VdevState {
    pool.tree().status().find(leaf).unwrap().state
}

/// Runs the due resilver; no leaf lacks data then.
fn resilver(pool: &LivePool) {
    assert_eq!(pool.scan_progress().unwrap().phys.func, ScanFunc::Resilver);
    pool.scan_to_end().unwrap();
    assert!(pool.tree().dtl(side(pool)).is_empty(), "{:?}", pool.tree().dtl(side(pool)));
    pool.sync().unwrap();
    assert!(!pool.view().unwrap().is_resilver_due());
}

#[test]
fn a_scrub_keeps_no_leaf_from_being_resilvered() {
    for is_paused in [true, false] {
        let pool = create(Layout::Mirror, &memories(), 20);
        churn(&pool, 3);
        pool.start_scrub(false).unwrap();
        if is_paused {
            pool.pause_scrub().unwrap();
        }
        let side = side(&pool);
        assert!(pool.take_offline(side, Offline::Always).unwrap());
        churn(&pool, 3);
        pool.bring_online(side, None).unwrap();
        resilver(&pool);
        pool.export(Leave::Exported).unwrap();
    }
}

/// A side that was out of service used to keep the old guid, and was never recognized again.
#[test]
fn a_pool_gets_a_new_guid_only_with_all_its_devices() {
    let devices = memories();
    let pool = create(Layout::Mirror, &devices, 29);
    churn(&pool, 2);
    let side = side(&pool);
    assert!(pool.take_offline(side, Offline::Always).unwrap());
    let refused = pool.reguid(None);
    assert!(matches!(refused, Err(PoolError::NotHealthy)), "{refused:?}");
    churn(&pool, 2);
    pool.bring_online(side, None).unwrap();
    resilver(&pool);
    let guid = pool.reguid(None).unwrap();
    pool.export(Leave::Exported).unwrap();
    for device in devices.chunks(1) {
        let alone = import(device).unwrap();
        assert_eq!(alone.config().pool_guid, guid);
        alone.export(Leave::Exported).unwrap();
    }
}

#[test]
fn a_resilver_that_is_due_after_an_import_is_known_at_once_also_with_a_paused_scrub() {
    for is_scrubbed in [true, false] {
        let devices = memories();
        let pool = create(Layout::Mirror, &devices, 21);
        churn(&pool, 3);
        if is_scrubbed {
            pool.start_scrub(false).unwrap();
            pool.pause_scrub().unwrap();
        }
        pool.export(Leave::Exported).unwrap();
        let pool = import(&devices[..1]).unwrap();
        churn(&pool, 3);
        pool.export(Leave::Exported).unwrap();
        let pool = import(&devices).unwrap();
        assert!(pool.view().unwrap().is_resilver_due());
        pool.resilver_if_needed().unwrap();
        resilver(&pool);
        pool.export(Leave::Exported).unwrap();
    }
}

#[test]
fn looking_again_sees_files_that_are_gone_cut_or_others() {
    let ways = ["away", "removed", "cut", "another"];
    for (verb, how) in ["reopen", "online", "clear"].into_iter().flat_map(|verb| ways.map(|how| (verb, how)))
    {
        let files = Files::new(2, SIZE);
        let (path, copy) = (files.dir().join("d1"), files.dir().join("copy"));
        let spec = CreateSpec::new("tank", vec![files.top(Layout::Mirror, 0..2)]);
        let pool = LivePool::create(spec, Env::system()).unwrap();
        churn(&pool, 3);
        std::fs::copy(&path, &copy).unwrap();
        let copied = pool.txgs().synced_txg();
        churn(&pool, 3);
        let side = side(&pool);
        match how {
            "away" => files.hide(1),
            "removed" => std::fs::remove_file(&path).unwrap(),
            "cut" => set_len(&path, SIZE / 2),
            _ => std::fs::rename(&copy, &path).unwrap(),
        }
        match verb {
            "reopen" => pool.reopen_devices(None).unwrap(),
            "online" => _ = pool.bring_online(side, None).unwrap(),
            _ => pool.clear(None, None).unwrap(),
        }
        churn(&pool, 3);
        if how == "another" {
            assert_eq!(state(&pool, side), VdevState::Online, "{verb}");
        } else {
            assert_eq!(state(&pool, side), VdevState::Unavail, "{verb}, {how}");
            match how {
                "away" => files.show(1),
                _ => std::fs::rename(&copy, &path).unwrap(),
            }
            assert_eq!(pool.bring_online(side, None).unwrap(), Some(VdevState::Online), "{verb}, {how}");
        }
        let missed = pool.tree().dtl(side);
        assert!(how == "away" || missed.contains(copied.0 + 2), "{verb}, {how}: {missed:?}");
        pool.resilver_if_needed().unwrap();
        resilver(&pool);
        pool.export(Leave::Exported).unwrap();
        let _unless_used = std::fs::remove_file(&copy);
        judge(&files, "tank");
        // It alone has all data.
        let found = Search::in_paths([&path]).run();
        let alone = Pool::open(found, &Which::Name("tank".into()), &OpenOptions::default()).unwrap();
        alone.properties().unwrap();
    }
}

#[test]
fn a_paused_scrub_keeps_no_device_open_that_was_let_go() {
    let (files, pool) = mirror_of_files();
    pool.start_scrub(false).unwrap();
    pool.pause_scrub().unwrap();
    files.hide(1);
    pool.reopen_devices(None).unwrap();
    churn(&pool, 3);
    let side = side(&pool);
    assert_eq!(state(&pool, side), VdevState::Unavail);
    files.show(1);
    assert_eq!(pool.bring_online(side, None).unwrap(), Some(VdevState::Online));
    resilver(&pool);
    pool.export(Leave::Exported).unwrap();
    judge(&files, "tank");
}

/// A reader of an older tree has the old handle, and with it the lock on the file.
#[test]
fn a_device_comes_back_while_somebody_reads_by_its_old_handle() {
    let (files, pool) = mirror_of_files();
    let old = pool.view().unwrap();
    files.hide(1);
    pool.reopen_devices(None).unwrap();
    churn(&pool, 3);
    let side = side(&pool);
    assert_eq!(state(&pool, side), VdevState::Unavail);
    files.show(1);
    assert_eq!(pool.bring_online(side, None).unwrap(), Some(VdevState::Online));
    drop(old);
    resilver(&pool);
    pool.export(Leave::Exported).unwrap();
    judge(&files, "tank");
}

#[test]
fn a_copy_with_another_guid_does_not_stand_in_the_way_of_the_original() {
    let files = Files::new(2, SIZE);
    let path = |n: usize| files.dir().join(format!("d{n}"));
    let spec = CreateSpec::new("tank", vec![files.top(Layout::Single, 0..1)]);
    let pool = LivePool::create(spec, Env::system()).unwrap();
    let original = pool.guid();
    churn(&pool, 3);
    pool.export(Leave::Exported).unwrap();
    std::fs::copy(path(0), path(1)).unwrap();
    let open = |found: &vdev::scan::Found, guid| {
        LivePool::import(found, &Which::Guid(guid), &ImportOptions::default(), Env::system())
    };
    let pool = open(&Search::in_paths([path(1)]).run(), original).unwrap();
    let copied = pool.reguid(None).unwrap();
    // The copy is newer than the original, and its leaf has the same guid.
    churn(&pool, 3);
    pool.export(Leave::Exported).unwrap();
    let found = Search::in_paths([files.dir()]).run();
    let (one, other) = (open(&found, original).unwrap(), open(&found, copied).unwrap());
    churn(&one, 2);
    churn(&other, 2);
    one.export(Leave::Exported).unwrap();
    other.export(Leave::Exported).unwrap();
}

#[allow(clippy::disallowed_types)] // Something cuts an image.
fn set_len(path: &std::path::Path, len: u64) {
    std::fs::OpenOptions::new().write(true).open(path).unwrap().set_len(len).unwrap();
}

#[test]
fn a_device_that_nothing_replaces_stays_though_its_file_is_gone() {
    let files = Files::new(1, SIZE);
    let spec = CreateSpec::new("tank", vec![files.top(Layout::Single, 0..1)]);
    let pool = LivePool::create(spec, Env::system()).unwrap();
    files.hide(0);
    pool.reopen_devices(None).unwrap();
    churn(&pool, 2);
    files.show(0);
    pool.export(Leave::Exported).unwrap();
    judge(&files, "tank");
}

#[test]
fn spares_and_cache_devices_are_held_and_found_where_they_were() {
    let files = Files::new(4, SIZE);
    let path = |n: usize| files.dir().join(format!("d{n}"));
    let spec = CreateSpec::new("tank", vec![files.top(Layout::Mirror, 0..2)]);
    let pool = LivePool::create(spec, Env::system()).unwrap();
    pool.add_aux(AuxKind::Spare, files.top(Layout::Single, 2..3).leaves).unwrap();
    pool.add_aux(AuxKind::Cache, files.top(Layout::Single, 3..4).leaves).unwrap();
    let is_held = || {
        [path(2), path(3)]
            .iter()
            .all(|path| open_exclusive(path, Access::Auto).is_err_and(|error| error.is_busy()))
    };
    assert!(is_held());
    pool.export(Leave::Exported).unwrap();
    assert!(!is_held());
    // The search covers the mirror only.
    let found = Search::in_paths([path(0), path(1)]).run();
    let listed = listing::candidates(&found);
    assert_eq!(listed[0].spares[0].state, "AVAIL");
    let pool =
        LivePool::import(&found, &Which::Name("tank".into()), &ImportOptions::default(), Env::system())
            .unwrap();
    assert!(is_held());
    let view = pool.view().unwrap();
    assert_eq!(view.spares().unwrap()[0].state, AuxState::Available);
    assert_eq!(view.cache_devices().unwrap()[0].state, AuxState::Online);
    drop(view);
    let spare = pool.view().unwrap().spares().unwrap()[0].node.guid;
    assert!(pool.remove_aux(spare).unwrap());
    assert_eq!(open_exclusive(&path(2), Access::Auto).err(), None);
    pool.export(Leave::Exported).unwrap();
    judge(&files, "tank");
}

#[test]
fn a_spare_that_another_pool_holds_is_shared() {
    let files = Files::new(3, SIZE);
    let path = |n: usize| files.dir().join(format!("d{n}"));
    let create = |name: &str, n: usize| {
        let spec = CreateSpec::new(name, vec![files.top(Layout::Single, n..n + 1)]);
        LivePool::create(spec, Env::system()).unwrap()
    };
    let (tank, lake) = (create("tank", 0), create("lake", 1));
    tank.add_aux(AuxKind::Spare, files.top(Layout::Single, 2..3).leaves).unwrap();
    let shared = || {
        let device = vdev::device::file::FileDevice::open(&path(2), Access::Auto).unwrap();
        vec![LeafSpec::file(path(2).display().to_string(), Arc::new(device))]
    };
    lake.add_aux(AuxKind::Spare, shared()).unwrap();
    assert!(lake.add_aux(AuxKind::Spare, shared()).is_err());
    let spare = |pool: &LivePool| {
        let spares = pool.view().unwrap().spares().unwrap();
        assert!(spares.len() == 1 && spares[0].state == AuxState::Available);
        spares[0].node.guid
    };
    assert_eq!(spare(&tank), spare(&lake));
    tank.export(Leave::Exported).unwrap();
    lake.export(Leave::Exported).unwrap();
    let found = Search::in_paths([files.dir()]).run();
    let import = |name: &str| {
        LivePool::import(&found, &Which::Name(name.into()), &ImportOptions::default(), Env::system()).unwrap()
    };
    let (tank, lake) = (import("tank"), import("lake"));
    assert_eq!(spare(&tank), spare(&lake));
    tank.export(Leave::Exported).unwrap();
    lake.export(Leave::Exported).unwrap();
}

#[test]
fn a_state_on_a_device_that_is_missing_is_told_by_the_name_of_the_device() {
    let (files, pool) = mirror_of_files();
    pool.export(Leave::Exported).unwrap();
    // The labels of the second are new, but it has none of the blocks that they reference.
    let second = open_exclusive(&files.dir().join("d1"), Access::Cached).unwrap();
    second.write_at(&vec![0; (SIZE - (8 << 20)) as usize], DeviceOffset(4 << 20)).unwrap();
    drop(second);
    files.hide(0);
    let found = Search::in_paths([files.dir()]).run();
    let refused = Pool::open(found, &Which::Name("tank".into()), &OpenOptions::default()).err();
    let Some(error @ PoolError::Unreadable { .. }) = refused else { panic!("{refused:?}") };
    let (text, missing) = (error.to_string(), PathBuf::from("d0"));
    assert!(text.contains(&*missing.to_string_lossy()) && !text.contains("-F"), "{text}");
}
