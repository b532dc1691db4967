//! Disks with faults while they are written.
#![allow(missing_docs)]

use crate::support;
use cenote_crash::disks::{Disks, Layout};
use cenote_crash::faults::{Fault, Readings, read_beyond_redundancy, run_with_faults};
use cenote_crash::run::{POOL, env, host, open_fs};
use cenote_crash::scans::flip_and_scrub;
use pool::ImportOptions;
use pool::LivePool;
use pool::Which;
use vdev::device::sim::{Fate, OpKind};
use zpl::FileKind;
use zpl::{NewFile, WriteHow};

fn layout(name: &str) -> Layout {
    name.parse().expect("a layout")
}

fn sample(name: &str) {
    for fault in Fault::ALL {
        for seed in 0..4 {
            let done = run_with_faults(layout(name), seed, 120, &[fault]);
            done.unwrap_or_else(|why| panic!("{name}, {fault:?}, seed {seed}: {why}"));
        }
    }
}

#[test]
fn mirror() {
    sample("mirror");
}

#[test]
fn mirror_with_log() {
    sample("mirror+log");
}

#[test]
fn raidz1() {
    sample("raidz1");
}

#[test]
fn raidz2() {
    sample("raidz2");
}

#[test]
fn raidz3() {
    sample("raidz3");
}

/// Disks with different faults at the same time.
#[test]
fn two_at_once() {
    for (i, first) in Fault::ALL.into_iter().enumerate() {
        for second in Fault::ALL.into_iter().skip(i + 1) {
            let done = run_with_faults(layout("raidz2"), i as u64, 100, &[first, second]);
            done.unwrap_or_else(|why| panic!("{first:?} and {second:?}, seed {i}: {why}"));
        }
    }
}

#[test]
fn beyond_redundancy_there_are_errors_and_no_wrong_bytes() {
    for name in ["single", "mirror", "raidz1", "raidz3"] {
        let mut all = Readings::default();
        for seed in 0..6 {
            let read =
                read_beyond_redundancy(layout(name), seed, 100).unwrap_or_else(|why| panic!("{name}: {why}"));
            (all.right, all.errors) = (all.right + read.right, all.errors + read.errors);
        }
        assert!(all.errors > 0 && all.right > 0, "{name}: {all:?}");
    }
}

/// With threads: disks vanish and return during writes and reads.
#[test]
fn disks_come_back_under_load() {
    for (name, seed) in [("mirror", 1), ("raidz2", 2)] {
        let done = cenote_crash::load::run(layout(name), seed, std::time::Duration::from_secs(4));
        let done = done.unwrap_or_else(|why| panic!("{name}, seed {seed}: {why}"));
        assert!(done.outages > 0 && done.steps > 0, "{name}, seed {seed}: {done:?}");
    }
}

#[test]
fn flipped_bits_are_right_again_after_a_scrub() {
    for name in ["mirror", "raidz1", "raidz2", "raidz3"] {
        let mut repaired = 0;
        for seed in 0..6 {
            let done = flip_and_scrub(layout(name), seed, 72);
            let done = done.unwrap_or_else(|why| panic!("{name}, seed {seed}: {why}"));
            assert_eq!(done.errors, 0, "{name}, seed {seed}: {done:?}");
            repaired += done.repaired;
        }
        assert!(repaired > 0, "{name}");
    }
}

/// The operation that fails.
#[derive(Debug, Clone, Copy)]
enum Failing {
    /// One write.
    Write,
    /// One flush.
    Flush,
    /// All operations, until the disk is back.
    Disk,
}

impl Failing {
    /// Numbers of the operations that fail, if `writes` of them are writes: there are fewer flushes.
    fn positions(self, writes: u64) -> std::ops::Range<u64> {
        match self {
            Failing::Write | Failing::Disk => 0..writes,
            Failing::Flush => 0..writes / 4,
        }
    }
}

/// The n-th operation fails while two files are made durable; then their fsync is repeated. Every file whose
/// fsync succeeded is there after a cut.
#[test]
fn an_fsync_that_is_repeated_after_a_failure_says_yes_only_to_what_is_durable() {
    let mut refused = 0;
    for failing in [Failing::Write, Failing::Flush, Failing::Disk] {
        for n in failing.positions(24) {
            refused += repeat_fsync("single", 0, failing, n);
        }
    }
    assert!(refused > 20, "{refused}");
}

/// As above, but the lost data is redundant: a log device, which the txg replaces, a side of a mirror, a
/// column of a raidz. No fsync fails.
#[test]
fn an_fsync_is_durable_though_a_disk_fails_that_can_be_spared() {
    for (layout, disk) in [("single+log", 1), ("mirror", 0), ("mirror+log", 2), ("raidz1", 1)] {
        for failing in [Failing::Write, Failing::Flush, Failing::Disk] {
            for n in failing.positions(16) {
                assert_eq!(repeat_fsync(layout, disk, failing, n), 0, "{layout}, {failing:?} {n}");
            }
        }
    }
}

/// Returns the number of fsyncs that failed.
fn repeat_fsync(shape: &str, failed: usize, failing: Failing, n: u64) -> u64 {
    let disks = Disks::new(layout(shape).disks(), n);
    let (_pool, fs) = support::create(&disks, shape);
    let make = |name: &str, fill: u8, len: usize| {
        let made = fs.fs.create(fs.fs.root(), name.as_bytes(), &NewFile::of(FileKind::Regular, 0o644));
        let id = made.expect("made").id;
        fs.fs.write(id, 0, &vec![fill; len], &WriteHow::default()).expect("written");
        id
    };
    // The first commit of a chain waits for a txg.
    fs.fsync(make("first", 1, 10)).expect("durable");
    let files = [("large", 2, 100_000), ("small", 3, 300)];
    let ids = files.map(|(name, fill, len)| make(name, fill, len));
    let disk = &disks.disks()[failed];
    match failing {
        Failing::Write => disk.fail_nth(OpKind::Write, n),
        Failing::Flush => disk.fail_nth(OpKind::Flush, n),
        Failing::Disk => disk.vanish_after(n),
    }
    let (mut refused, mut promised) = (0, [false; 2]);
    for round in 0..4 {
        if round == 2 {
            disk.come_back();
        }
        for (i, id) in ids.iter().enumerate() {
            match fs.fsync(*id) {
                Ok(()) => promised[i] = true,
                Err(_) => refused += 1,
            }
        }
        let after = disks.after_cut(Fate::Lost, n);
        let options = ImportOptions { host: host(), force: true, ..ImportOptions::default() };
        let pool = LivePool::import(&after.found(), &Which::Name(POOL.to_owned()), &options, env(2));
        let again = open_fs(&pool.expect("imported"), 1).expect("replayed");
        for (i, (name, fill, len)) in files.iter().enumerate().filter(|(i, _)| promised[*i]) {
            let told = format!("{shape}, {failing:?} {n}, round {round}: {name}, which fsync has promised");
            let found = again.fs.lookup(again.fs.root(), name.as_bytes()).expect("readable");
            let node = again.fs.node(found.unwrap_or_else(|| panic!("{told}, is missing"))).expect("there");
            let mut bytes = vec![0; node.attrs().size as usize];
            node.read_at(0, &mut bytes).expect("readable");
            assert!(bytes == vec![*fill; *len], "{told}, is not what was written");
            assert_eq!(found, Some(ids[i]), "{told}");
        }
    }
    refused
}
