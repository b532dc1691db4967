//! Opening pools: choice of the state, missing devices, refusals.

use crate::common::{found, load_keys, open, try_open, without};
use cenote_pool::import::{Status, candidates, candidates_for};
use cenote_pool::{AuxState, OpenOptions, Pool, PoolError, Which};
use dmu::KeyState;
use dsl::DslError;
use dsl::keys::{KeyError, KeyStatus};
use format::config::PoolState;
use format::{BlockId, BlockPtr, DeviceOffset, Level, ObjectId, Txg};
use std::collections::BTreeSet;
use std::sync::Arc;
use testkit::Fixture;
use vdev::Device;
use vdev::device::overlay::OverlayDevice;
use vdev::scan::{Found, Search};
use vdev::tree::VdevState;
use zio::{ReadPolicy, ZioError};

fn defaults() -> OpenOptions {
    OpenOptions::default()
}

/// Overwrites the first blocks that an uberblock of this txg references.
fn destroy_root_of(found: &mut Found, txg: Txg) {
    for leaf in &mut found.leaves {
        let overlay: Arc<dyn Device> = Arc::new(OverlayDevice::new(leaf.device.clone()));
        let same = leaf.probe.uberblocks.iter().find(|u| u.uberblock.txg == txg);
        for dva in same.into_iter().flat_map(|u| u.uberblock.root.dvas()) {
            let at = DeviceOffset(dva.offset.on_device().0);
            overlay.write_at(&[0xa5; 512], at).unwrap();
        }
        leaf.device = overlay;
    }
}

fn txgs(found: &Found) -> Vec<Txg> {
    let all = found.leaves.iter().flat_map(|leaf| leaf.probe.uberblocks.iter().map(|u| u.uberblock.txg));
    let set: BTreeSet<Txg> = all.collect();
    set.into_iter().rev().collect()
}

#[test]
fn by_name_by_guid_and_not_at_all() {
    let fixture = Fixture::open("single");
    let pool = open(&fixture);
    let again = Pool::open(found(&fixture), &Which::Guid(pool.guid()), &defaults()).unwrap();
    assert_eq!((again.name(), again.txg()), (pool.name(), pool.txg()));
    match Pool::open(found(&fixture), &Which::Name("nosuch".into()), &defaults()) {
        Err(PoolError::NoSuchPool { wanted, .. }) => assert_eq!(wanted, "'nosuch'"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn two_pools_of_one_name_must_be_told_apart_by_guid() {
    let (a, b) = (Fixture::open("single"), Fixture::open("mirror"));
    let mut both = found(&a);
    both.leaves.append(&mut found(&b).leaves);
    for leaf in &mut both.leaves {
        leaf.probe.configs.iter_mut().for_each(|found| found.config.name = "tank".into());
    }
    match Pool::open(both.clone(), &Which::Name("tank".into()), &defaults()) {
        Err(error @ PoolError::Ambiguous { .. }) => {
            let text = error.to_string();
            for fixture in [&a, &b] {
                assert!(text.contains(&fixture.manifest().pool_properties["guid"].value), "{text}");
            }
        }
        other => panic!("{other:?}"),
    }
    let guid = format::PoolGuid(b.manifest().pool_properties["guid"].value.parse().unwrap());
    assert_eq!(Pool::open(both, &Which::Guid(guid), &defaults()).unwrap().guid(), guid);
}

#[test]
fn an_older_state_needs_to_be_asked_for() {
    let fixture = Fixture::open("single");
    let mut damaged = found(&fixture);
    let states = txgs(&damaged);
    destroy_root_of(&mut damaged, states[0]);
    match try_open(damaged.clone(), &fixture, &defaults()) {
        Err(error @ PoolError::Unreadable { .. }) => {
            let text = error.to_string();
            assert!(text.contains("OpenOptions::recover") && text.contains(&states[1].to_string()), "{text}");
        }
        other => panic!("{other:?}"),
    }
    let recovered = try_open(damaged, &fixture, &OpenOptions { recover: true, ..defaults() }).unwrap();
    assert!(recovered.txg() < states[0] && states.contains(&recovered.txg()));
}

#[test]
fn an_upper_limit_for_the_txg() {
    let fixture = Fixture::open("single");
    let states = txgs(&found(&fixture));
    let limit = states[1];
    let pool =
        try_open(found(&fixture), &fixture, &OpenOptions { max_txg: Some(limit), ..defaults() }).unwrap();
    assert_eq!(pool.txg(), limit);
    match try_open(found(&fixture), &fixture, &OpenOptions { max_txg: Some(Txg(1)), ..defaults() }) {
        Err(PoolError::NoUberblock { limit, .. }) => assert_eq!(limit, Some(Txg(1))),
        other => panic!("{other:?}"),
    }
}

#[test]
fn any_devices_that_redundancy_allows_may_be_missing() {
    for (name, gone) in [
        ("mirror", &["d0.img"][..]),
        ("raidz1", &["d3.img"]),
        ("raidz2", &["d0.img", "d4.img"]),
        ("raidz3", &["d1.img", "d2.img", "d5.img"]),
        ("draid1", &["d2.img"]),
        ("raid10", &["d0.img", "d3.img"]),
        ("raidz-expanded", &["d3.img"]),
        ("classes", &["d1.img", "s0.img"]),
    ] {
        let fixture = Fixture::open(name);
        let pool = try_open(without(&fixture, gone), &fixture, &defaults())
            .unwrap_or_else(|e| panic!("{name}: {e:?}"));
        assert_eq!(pool.tree().status().state, VdevState::Degraded, "{name}");
        for dataset in &fixture.manifest().datasets {
            if !dataset.name.contains('#') {
                let opened = pool.dsl().dataset(&dataset.name).unwrap().objset(KeyState::Locked);
                assert!(opened.is_ok(), "{}: {:?}", dataset.name, opened.err());
            }
        }
    }
}

#[test]
fn a_missing_log_device_is_named_and_can_be_ignored() {
    let fixture = Fixture::open("zil-slog");
    match try_open(without(&fixture, &["l0.img"]), &fixture, &defaults()) {
        Err(error @ PoolError::MissingLogs { .. }) => {
            assert!(error.to_string().contains("OpenOptions::allow_missing_logs"));
        }
        other => panic!("{other:?}"),
    }
    let opts = OpenOptions { allow_missing_logs: true, ..defaults() };
    assert!(try_open(without(&fixture, &["l0.img"]), &fixture, &opts).is_ok());
}

#[test]
fn a_missing_top_level_vdev_is_refused() {
    let fixture = Fixture::open("raid10");
    let half = without(&fixture, &["d0.img", "d1.img"]);
    match try_open(half.clone(), &fixture, &defaults()) {
        Err(PoolError::MissingTops { .. } | PoolError::Unreadable { .. }) => {}
        other => panic!("{other:?}"),
    }
    let list = candidates(&half);
    assert_eq!(list.len(), 1);
    assert!(!list[0].is_importable());
    assert_eq!(list[0].status, Status::MissingDevices);
    assert_eq!(list[0].message_id(), Some("ZFS-8000-3C"));
}

#[test]
fn features_that_are_not_known_are_named() {
    let fixture = Fixture::open("single");
    let mut strange = found(&fixture);
    for found in strange.leaves.iter_mut().flat_map(|leaf| &mut leaf.probe.configs) {
        found.config.features_for_read.push("com.example:colder_water".into());
    }
    match try_open(strange.clone(), &fixture, &defaults()) {
        Err(error @ PoolError::UnsupportedFeatures { .. }) => {
            assert!(error.to_string().contains("com.example:colder_water"));
        }
        other => panic!("{other:?}"),
    }
    let list = candidates(&strange);
    assert_eq!(list[0].status, Status::UnsupportedFeatures);
    assert!(list[0].status_text().unwrap().ends_with("\n\tcom.example:colder_water"));
}

#[test]
fn the_checkpoint_shows_the_pool_as_it_was() {
    let fixture = Fixture::open("checkpoint");
    let now = open(&fixture);
    let then = try_open(found(&fixture), &fixture, &OpenOptions { checkpoint: true, ..defaults() }).unwrap();
    assert!(then.txg() < now.txg());
    assert!(
        now.dsl().dataset("t_checkpoint/new").is_ok() && now.dsl().dataset("t_checkpoint/doomed").is_err()
    );
    assert!(
        then.dsl().dataset("t_checkpoint/new").is_err() && then.dsl().dataset("t_checkpoint/doomed").is_ok()
    );

    let single = Fixture::open("single");
    let without_one = try_open(found(&single), &single, &OpenOptions { checkpoint: true, ..defaults() });
    assert!(matches!(without_one, Err(PoolError::NoCheckpoint { .. })), "{without_one:?}");
}

#[test]
fn a_destroyed_pool_opens_only_on_request() {
    let fixture = Fixture::open("single");
    let mut destroyed = found(&fixture);
    for found in destroyed.leaves.iter_mut().flat_map(|leaf| &mut leaf.probe.configs) {
        found.config.state = PoolState::Destroyed;
    }
    assert!(matches!(try_open(destroyed.clone(), &fixture, &defaults()), Err(PoolError::Destroyed { .. })));
    assert!(candidates(&destroyed)[0].is_destroyed());
    assert!(try_open(destroyed, &fixture, &OpenOptions { destroyed: true, ..defaults() }).is_ok());
}

#[test]
fn spares_and_cache_devices() {
    let in_use = open(&Fixture::open("spare-in-use"));
    assert_eq!(in_use.spares().unwrap().iter().map(|s| s.state).collect::<Vec<_>>(), [AuxState::InUse]);
    let fixture = Fixture::open("classes");
    let pool = open(&fixture);
    assert_eq!(pool.spares().unwrap()[0].state, AuxState::Available);
    assert_eq!(pool.cache_devices().unwrap()[0].state, AuxState::Online);
    let alone = try_open(without(&fixture, &["h0.img", "c0.img"]), &fixture, &defaults()).unwrap();
    assert_eq!(alone.cache_devices().unwrap()[0].state, AuxState::Unavailable);
}

#[test]
fn listing_all_golden_pools() {
    for fixture in Fixture::all() {
        let list = candidates(&found(&fixture));
        let ours = list.iter().find(|c| c.name == fixture.manifest().pool).unwrap();
        assert!(ours.problem.is_none(), "{}: {:?}", fixture.name(), ours.problem);
        assert_eq!(
            ours.health_name(),
            fixture.manifest().pool_properties["health"].value,
            "{}",
            fixture.name()
        );
        let held = ours.status == Status::OtherHost;
        assert_eq!(held, fixture.manifest().is_unclean(), "{}", fixture.name());
        let here = candidates_for(&found(&fixture), ours.config.hostid);
        assert!(here.iter().all(|c| c.status != Status::OtherHost));
    }
}

#[test]
fn the_half_that_was_split_off_is_a_pool_of_its_own() {
    let fixture = Fixture::open("three-way");
    let names: Vec<String> = candidates(&found(&fixture)).into_iter().map(|c| c.name).collect();
    assert_eq!(names, ["t_three_way", "t_three_way_split"]);
    let split = Pool::open(found(&fixture), &Which::Name("t_three_way_split".into()), &defaults()).unwrap();
    assert!(split.dsl().dirs().unwrap().iter().all(|d| d.name().starts_with("t_three_way_split")));
}

#[test]
fn keys_are_checked_before_they_count() {
    let pool = open(&Fixture::open("encryption"));
    let (dsl, keyring) = (pool.dsl(), pool.dsl().keyring());
    let root = dsl.dir("t_encryption/hex").unwrap();
    let child = dsl.dataset("t_encryption/hex/child").unwrap();
    assert_eq!(keyring.status(&root).unwrap(), KeyStatus::Unavailable);
    assert!(matches!(keyring.key_of(&child).unwrap(), KeyState::Locked));

    let refused = |error: DslError| match error {
        DslError::Key(key) => key.to_string(),
        other => panic!("{other:?}"),
    };
    let wrong = keyring.load(&root, &[b'0'; 64]).unwrap_err();
    assert_eq!(refused(wrong), "Incorrect key provided for 't_encryption/hex'.");
    let short = keyring.load(&root, b"abc\n").unwrap_err();
    assert_eq!(refused(short), "Hex key too short (expected 64).");
    let plain = keyring.load(&dsl.dir("t_encryption").unwrap(), b"").unwrap_err();
    assert_eq!(refused(plain), "'t_encryption' is not encrypted.");
    assert!(matches!(
        keyring.load(child.dir(), b"").unwrap_err(),
        DslError::Key(KeyError::NotRoot { root, .. }) if root == "t_encryption/hex"
    ));

    assert!(load_keys(&pool) > 5);
    assert!(matches!(keyring.key_of(&child).unwrap(), KeyState::Key(_)));
    let again = keyring.load(&root, &testkit::keys::material("hex").unwrap()).unwrap_err();
    assert_eq!(refused(again), "Key already loaded for 't_encryption/hex'.");
    // With its key the MACs of an object set are verified: every dataset must pass.
    for dir in dsl.dirs().unwrap() {
        dir.head().unwrap().unwrap().open_objset().unwrap_or_else(|e| panic!("{}: {e:?}", dir.name()));
    }
    keyring.unload(&root).unwrap();
    assert!(matches!(keyring.key_of(&child).unwrap(), KeyState::Locked));
}

#[test]
fn encrypted_blocks_are_the_same_in_a_batch() {
    let pool = open(&Fixture::open("encryption"));
    assert!(load_keys(&pool) > 5);
    let mut encrypted = 0;
    for dir in pool.dsl().dirs().unwrap() {
        let set = dir.head().unwrap().unwrap().open_objset().unwrap();
        let policy = ReadPolicy { key: set.key().key(), ..ReadPolicy::default() };
        let mut next = set.next_object(ObjectId(1)).unwrap().filter(|_| policy.key.is_some());
        while let Some(object) = next {
            next = set.next_object(ObjectId(object.id().0 + 1)).unwrap();
            let blocks = object.dnode().maxblkid.0 + 1;
            if blocks == 1 || blocks > 256 || !object.dnode().obj_type.is_encrypted() {
                continue;
            }
            let pointers = (0..blocks).map(|blkid| object.block_ptr(Level(0), BlockId(blkid)).unwrap());
            let bps: Vec<BlockPtr> = pointers.filter(BlockPtr::uses_crypt).collect();
            encrypted += bps.len();
            let zio = pool.store().zio();
            for (bp, read) in bps.iter().zip(zio.read_many(&bps, &policy)) {
                assert!(read.unwrap().bytes() == zio.read(bp, &policy).unwrap().bytes(), "{bp}");
            }
            let locked = zio.read_many(&bps, &ReadPolicy::default());
            assert!(locked.iter().all(|read| matches!(read, Err(ZioError::Locked { .. }))));
            // The object is right too, through the cache.
            let mut whole = vec![0; object.logical_end() as usize];
            object.read_at(0, &mut whole).unwrap();
            for (blkid, bytes) in (0..).zip(whole.chunks(object.block_size() as usize)) {
                match object.block(BlockId(blkid)).unwrap() {
                    Some(block) => assert!(block.bytes() == bytes, "block {blkid} of {}", object.id()),
                    None => assert!(bytes.iter().all(|byte| *byte == 0)),
                }
            }
        }
    }
    assert!(encrypted > 10, "{encrypted} blocks");
}

#[test]
fn the_history_begins_with_the_creation() {
    for fixture in Fixture::all() {
        let history = open(&fixture).history().unwrap();
        // Pools before version 4 have none.
        if fixture.name() == "version1" {
            continue;
        }
        let records: Vec<_> = history.into_iter().collect::<Result<_, _>>().unwrap();
        let commands: Vec<&str> = records.iter().filter_map(|r| r.str("history command")).collect();
        let first = commands.first().unwrap();
        assert!(
            first.starts_with("zpool create") || fixture.name() == "three-way",
            "{}: {first}",
            fixture.name()
        );
    }
}

#[test]
fn the_error_log_names_the_lost_block() {
    let lost = open(&Fixture::open("single")).error_log().unwrap();
    assert!(lost.is_empty());
    for fixture in Fixture::all() {
        open(&fixture).error_log().unwrap();
    }
}

#[test]
fn scans_removals_and_expansions() {
    let removed = open(&Fixture::open("removed-vdev"));
    assert!(removed.removal().unwrap().is_some_and(|r| r.copied > 0));
    for name in ["raidz-expanded", "raidz-expanding"] {
        let expanded = open(&Fixture::open(name));
        assert_eq!(expanded.expansions().unwrap().iter().map(|e| e.state).collect::<Vec<_>>(), [2]);
    }
    for fixture in Fixture::all() {
        let pool = open(&fixture);
        pool.scan().unwrap();
        pool.error_scrub().unwrap();
        pool.condensing().unwrap();
    }
}

#[test]
fn states_before_a_reflow_are_refused() {
    let mut refused = 0;
    for name in ["raidz-expanded", "raidz-expanding"] {
        let fixture = Fixture::open(name);
        let found = found(&fixture);
        let all: Vec<_> =
            found.leaves.iter().flat_map(|l| l.probe.uberblocks.iter().map(|u| &u.uberblock)).collect();
        let newest = all.iter().max_by_key(|u| u.rank()).unwrap();
        for older in all.iter().filter(|u| u.reflow != newest.reflow) {
            let opts = OpenOptions { max_txg: Some(older.txg), ..defaults() };
            let outcome = try_open(found.clone(), &fixture, &opts);
            let ok = matches!(outcome, Err(PoolError::Reflowed { chosen, .. }) if chosen <= older.txg);
            assert!(ok || outcome.is_ok_and(|pool| pool.uberblock().reflow == newest.reflow), "{name}");
            refused += usize::from(ok);
        }
    }
    assert!(refused > 0);
}

#[test]
fn an_empty_folder_holds_no_pool() {
    let folder = tempfile::tempdir().unwrap();
    let found = Search::in_paths([folder.path()]).run();
    assert!(candidates(&found).is_empty());
    assert!(matches!(
        Pool::open(found, &Which::Name("x".into()), &defaults()),
        Err(PoolError::NoSuchPool { .. })
    ));
}
