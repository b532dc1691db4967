//! A sample of cuts for every layout. `cargo xtask crash` makes as many as wanted.
#![allow(missing_docs)]

use cenote_crash::disks::Layout;
use cenote_crash::subject::Subject;
use cenote_crash::{Series, cut_everywhere};

fn sample(layout: &str, steps: u64, one_in: u64) {
    let layout: Layout = layout.parse().expect("a layout");
    for seed in 0..3 {
        let series = Series {
            subject: Subject::Files(layout),
            seed,
            steps,
            one_in,
            deep_one_in: 8,
            only: None,
            lying: false,
        };
        let cuts = cut_everywhere(series).unwrap_or_else(|broken| panic!("{broken}")).cuts;
        assert!(cuts > 5, "{cuts} cuts");
    }
}

#[test]
fn single() {
    sample("single", 60, 7);
}

#[test]
fn single_with_log() {
    sample("single+log", 60, 11);
}

#[test]
fn mirror() {
    sample("mirror", 60, 13);
}

#[test]
fn mirror_with_log() {
    sample("mirror+log", 60, 17);
}

#[test]
fn raidz2() {
    sample("raidz2", 60, 29);
}

#[test]
fn raidz2_with_log() {
    sample("raidz2+log", 60, 31);
}

/// All operations on a pool, one seed for each layout.
#[test]
fn everything_on_every_layout() {
    for (seed, subject) in (1..).zip(Subject::all()) {
        let Subject::World(layout) = subject else { continue };
        // A cut of a pool with little free space takes longer to check.
        let one_in = match layout {
            "full-raidz1" => 9601,
            _ if layout.starts_with("full") || layout.starts_with("pieces") => 1201,
            _ => 61,
        };
        let series = Series { subject, seed, steps: 40, one_in, deep_one_in: 7, only: None, lying: false };
        let cuts = cut_everywhere(series).unwrap_or_else(|broken| panic!("{broken}")).cuts;
        assert!(cuts > 1, "{layout}: {cuts} cuts");
    }
}

#[test]
fn disks_that_only_say_that_they_flush_are_found_out() {
    let worlds = ["all:single", "all:raidz1", "all:mirrored-log"].map(|name| name.parse().expect("a layout"));
    for subject in Layout::all().into_iter().map(Subject::Files).chain(worlds) {
        let series =
            Series { subject, seed: 5, steps: 60, one_in: 5, deep_one_in: 8, only: None, lying: true };
        let broken = cut_everywhere(series).expect_err("something is missing");
        assert!(broken.cut.is_some(), "{broken}");
    }
}

/// A vdev is removed while the files change; the removal goes on after every cut.
#[test]
fn removals_go_on_after_a_cut() {
    for (layout, seed) in [("remove:stripe", 1), ("remove:mirrors", 2)] {
        let series = Series {
            subject: layout.parse().expect("a layout"),
            seed,
            steps: 50,
            one_in: 23,
            deep_one_in: 1,
            only: None,
            lying: false,
        };
        let cuts = cut_everywhere(series).unwrap_or_else(|broken| panic!("{broken}")).cuts;
        assert!(cuts > 8, "{layout}: {cuts} cuts");
    }
}

/// Disks are removed, returned, scrubbed and resilvered.
#[test]
fn scans_go_on_after_a_cut() {
    for (layout, seed) in [("scan:mirror", 1), ("scan:raidz2", 2)] {
        let series = Series {
            subject: layout.parse().expect("a layout"),
            seed,
            steps: 50,
            one_in: 31,
            deep_one_in: 1,
            only: None,
            lying: false,
        };
        let cuts = cut_everywhere(series).unwrap_or_else(|broken| panic!("{broken}")).cuts;
        assert!(cuts > 8, "{layout}: {cuts} cuts");
    }
}

/// Devices are attached, replaced and detached, and spares stand in.
#[test]
fn the_tree_changes_and_the_power_is_cut() {
    for (layout, seed) in [("shape:single", 1), ("shape:mirror", 2), ("shape:raidz1+log", 3)] {
        let series = Series {
            subject: layout.parse().expect("a layout"),
            seed,
            steps: 60,
            one_in: 113,
            deep_one_in: 1,
            only: None,
            lying: false,
        };
        let cuts = cut_everywhere(series).unwrap_or_else(|broken| panic!("{broken}")).cuts;
        assert!(cuts > 4, "{layout}: {cuts} cuts");
    }
}
