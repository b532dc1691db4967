//! Disks that rot, lie and die while they are written to.
#![allow(missing_docs)]

use cenote_crash::disks::Layout;
use cenote_crash::faults::{Fault, Readings, read_beyond_redundancy, run_with_faults};
use cenote_crash::scans::flip_and_scrub;

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

/// Disks that are bad in different ways.
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

/// With threads: disks vanish and come back while somebody writes and reads.
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
