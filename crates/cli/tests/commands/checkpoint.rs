//! A checkpoint of a pool whose file systems are mounted and written.

// Tests use `std` to write files.
#![allow(clippy::disallowed_types)]

use crate::mounts::World;
use std::fs;
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Programs write and sync a file all the time, so that the checkpoint has an intent log. The log is given up when the
/// pool goes back, and its blocks are free.
#[test]
fn going_back_gives_up_the_intent_log_of_the_checkpoint() {
    let Some(world) = World::new() else { return };
    world.good("zfs create tank/a");
    let at = world.path("alt/tank/a");
    fs::write(at.join("before"), "kept").expect("written");
    let (done, synced) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut file = fs::File::create(at.join("log")).expect("made");
            while !done.load(Ordering::Relaxed) {
                let n = synced.load(Ordering::Relaxed) + 1;
                file.write_all(format!("{n:>9}\n").as_bytes()).expect("written");
                file.sync_all().expect("synced");
                synced.store(n, Ordering::Relaxed);
            }
        });
        let wait = |count: u64| {
            let from = synced.load(Ordering::Relaxed);
            while synced.load(Ordering::Relaxed) < from + count {
                std::thread::yield_now();
            }
        };
        wait(20);
        world.good("zpool checkpoint tank");
        wait(20);
        fs::remove_file(at.join("before")).expect("removed");
        done.store(true, Ordering::Relaxed);
    });
    let ran = world.run("zpool scrub -w tank");
    assert_eq!(ran.out, "warning: will not scrub state that belongs to the checkpoint of pool 'tank'\n");
    let status = world.good("zpool status tank");
    assert!(
        status.contains("\n    scan warning: skipped blocks that are only referenced by the checkpoint.\n")
    );
    world.good("zpool export tank");
    testkit::assert_zdb_clean(&world.folder(), "tank");
    world.good("zpool import -d ~ -R ~/alt --rewind-to-checkpoint tank");
    assert_eq!(fs::read_to_string(at.join("before")).expect("there again"), "kept");
    let log = fs::read_to_string(at.join("log")).expect("readable");
    let whole = log.lines().zip(1_u64..).all(|(line, n)| line.trim_start() == n.to_string());
    assert!(whole && (log.len() as u64) < synced.load(Ordering::Relaxed) * 10, "{log}");
    fs::write(at.join("after"), "new").expect("written");
    assert!(!world.good("zpool status tank").contains("checkpoint"));
    // A later start of the daemon does not go back again.
    world.good("zpool checkpoint tank");
    fs::write(at.join("after"), "newer").expect("written");
    world.good("daemon --stop");
    assert_eq!(fs::read_to_string(at.join("after")).unwrap_or_default(), "", "nothing is mounted");
    world.good("zpool sync tank");
    assert_eq!(fs::read_to_string(at.join("after")).expect("there"), "newer");
    world.good("zpool checkpoint -d -w tank");
    world.good("zpool export tank");
    testkit::assert_zdb_clean(&world.folder(), "tank");
}

/// The log device of a pool that goes back is gone: what it held is given up, and the space of its first block too.
#[test]
fn going_back_without_the_log_device_leaks_nothing() {
    let Some(world) = World::new() else { return };
    let log = world.path("log");
    fs::File::create(&log).expect("made").set_len(128 << 20).expect("sparse");
    world.good("zpool add -f tank log ~/log");
    world.good("zfs create -o sync=always tank/a");
    let file = world.path("alt/tank/a/file");
    let (done, written) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                fs::write(&file, "x".repeat(40_000)).expect("written");
                written.fetch_add(1, Ordering::Relaxed);
            }
        });
        while written.load(Ordering::Relaxed) < 20 {
            std::thread::yield_now();
        }
        world.good("zpool checkpoint tank");
        done.store(true, Ordering::Relaxed);
    });
    world.good("zpool export tank");
    fs::create_dir(world.path("aside")).expect("made");
    fs::rename(&log, world.path("aside/log")).expect("moved");
    world.good("zpool import -m -d ~ -R ~/alt --rewind-to-checkpoint tank");
    world.good("zpool export tank");
    fs::rename(world.path("aside/log"), &log).expect("moved");
    world.good("zpool import -d ~ -R ~/alt tank");
    world.good("zpool export tank");
    testkit::assert_zdb_clean(&world.folder(), "tank");
}
