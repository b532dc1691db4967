//! `cenote verify` on the golden pools: clean pools are reported as clean, and damage is reported exactly, by
//! file and device.
#![allow(clippy::disallowed_types)] // The tests damage copies of images.

use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::cenote_support::{cenote, good, keys, run};
use testkit::Fixture;

/// Runs `cenote verify`; returns exit code and report.
fn verify(devices: &Path, words: &[&str]) -> (i32, String) {
    let (code, out, err) = run(cenote(devices, "verify").args(words));
    assert_eq!(err, "");
    (code, String::from_utf8(out).expect("text"))
}

/// Pools with a faulty device.
const IMPAIRED: [&str; 8] = [
    "degraded",
    "heal-mirror",
    "heal-raidz1",
    "heal-raidz2",
    "lost-block",
    "missing-disk",
    "silent-disk",
    "spare-in-use",
];

#[test]
fn every_other_golden_pool_is_clean() {
    for fixture in Fixture::all().filter(|fixture| !IMPAIRED.contains(&fixture.name())) {
        let (code, report) = verify(fixture.dir(), &[&fixture.manifest().pool, "--strict"]);
        assert_eq!(code, 0, "{}: {report}", fixture.name());
        assert!(report.ends_with("result: no errors\n"), "{}: {report}", fixture.name());
    }
}

#[test]
fn what_redundancy_heals_is_told_with_the_device() {
    for (name, device) in [("heal-mirror", "d1.img"), ("heal-raidz1", "d1.img"), ("silent-disk", "d0.img")] {
        let fixture = Fixture::open(name);
        let pool = &fixture.manifest().pool;
        let (code, report) = verify(fixture.dir(), &[pool]);
        assert_eq!(code, 0, "{report}");
        assert!(report.contains("the data could be read all the same"), "{report}");
        let devices = report.split("devices with errors:\n").nth(1).expect("a list");
        assert!(
            devices
                .lines()
                .next()
                .is_some_and(|line| line.contains(device) && line.contains("gave wrong data"))
        );
        assert_eq!(devices.lines().filter(|line| line.starts_with("  ")).count(), 1, "{report}");
        assert_eq!(verify(fixture.dir(), &[pool, "--strict"]).0, 1);
    }
    let fixture = Fixture::open("heal-raidz2");
    let (code, report) = verify(fixture.dir(), &["t_heal_raidz2"]);
    assert_eq!(code, 0);
    assert!(
        report.contains("1 block has")
            && report.contains("d3.img: 1 read gave")
            && report.contains("d4.img: 1 read gave"),
        "{report}"
    );
}

#[test]
fn missing_devices_are_told_once() {
    let fixture = Fixture::open("missing-disk");
    let (code, report) = verify(fixture.dir(), &["t_missing_disk"]);
    assert_eq!(code, 0);
    assert!(report.contains("d1.img: unavailable") && report.contains("d3.img: unavailable"), "{report}");
    assert!(!report.contains("all the same"), "no block is bad where there is none: {report}");
    assert_eq!(verify(fixture.dir(), &["t_missing_disk", "--strict"]).0, 1);
}

#[test]
fn a_lost_block_is_told_by_file_name() {
    let fixture = Fixture::open("lost-block");
    let (code, report) = verify(fixture.dir(), &["t_lost_block"]);
    assert_eq!(code, 1);
    let damaged: Vec<&str> = report.lines().filter(|line| line.starts_with("  t_lost_block")).collect();
    assert_eq!(damaged.len(), 1, "{report}");
    assert!(damaged[0].starts_with("  t_lost_block/marked:/victim bytes 131072-262143: "), "{report}");
    assert!(report.ends_with("result: DATA IS LOST\n"));
    let (code, report) = verify(fixture.dir(), &["t_lost_block/fs"]);
    assert_eq!((code, report.ends_with("result: no errors\n")), (0, true), "{report}");
}

#[test]
fn encrypted_without_and_with_keys() {
    let fixture = Fixture::open("encryption");
    let (code, report) = verify(fixture.dir(), &["t_encryption"]);
    assert_eq!(code, 0);
    assert!(report.contains("14 without keys: checksums verified, MACs NOT verified"), "{report}");
    let (_folder, keys) = keys(&fixture);
    let (code, out, err) = run(cenote(fixture.dir(), "verify").args(&keys).arg("t_encryption"));
    let report = String::from_utf8(out).expect("text");
    assert_eq!((code, err.as_str()), (0, ""), "{report}");
    assert!(
        report.contains("14 datasets and snapshots with their keys: checksums and MACs verified"),
        "{report}"
    );
}

/// Overwrites the sectors of a disk that begin with some bytes of a file that is stored uncompressed; returns their
/// number.
fn overwrite(image: &Path, needle: &[u8]) -> usize {
    const SECTOR: usize = 512;
    let bytes = std::fs::read(image).expect("an image");
    let file = OpenOptions::new().write(true).open(image).expect("a copy");
    let is_found = |at: &usize| bytes[*at..].starts_with(needle);
    let found: Vec<usize> = (0..bytes.len()).step_by(SECTOR).filter(is_found).collect();
    for at in &found {
        file.write_all_at(&[0xAA; 64], *at as u64).expect("written");
    }
    found.len()
}

#[test]
fn lost_blocks_that_touch_are_one_range() {
    let fixture = Fixture::open("lost-block");
    let scratch = fixture.scratch();
    // The victim's first block as well, which is stored uncompressed.
    let (_, victim, _) = run(cenote(fixture.dir(), "cat").args(["--partial", "t_lost_block/marked:/victim"]));
    assert_eq!(overwrite(&scratch.image("d0.img"), &victim[4096..4096 + 64]), 1);
    let (code, report) = verify(scratch.dir(), &["t_lost_block"]);
    assert_eq!(code, 1);
    assert!(report.contains("t_lost_block/marked:/victim bytes 0-262143: "), "{report}");
}

#[test]
fn a_block_lost_in_snapshots_and_clones_is_told_for_each() {
    // A file that does not compress, so that its bytes can be found on the disk.
    const FILE: &str = "rand-131073";
    let fixture = Fixture::open("snapshots");
    let scratch = fixture.scratch();
    let holders: Vec<String> =
        fixture.entries().filter(|e| e.path == FILE.as_bytes()).map(|e| e.ds).collect();
    let head = good(cenote(fixture.dir(), "cat").arg(format!("t_snapshots/fs:/{FILE}")));
    assert!(overwrite(&scratch.image(&fixture.manifest().images[0].name), &head[4096..4096 + 64]) >= 1);
    let unreadable: BTreeSet<String> = holders
        .iter()
        .filter(|dataset| run(cenote(scratch.dir(), "cat").arg(format!("{dataset}:/{FILE}"))).0 != 0)
        .cloned()
        .collect();
    assert!(unreadable.len() > 2, "{unreadable:?}");
    let (code, report) = verify(scratch.dir(), &["t_snapshots"]);
    assert_eq!(code, 1);
    let needle = format!(":/{FILE} bytes 0-131071: ");
    let told: BTreeSet<String> = report
        .lines()
        .filter(|line| line.contains(&needle))
        .filter_map(|line| line.trim_start().split(':').next().map(str::to_owned))
        .collect();
    assert_eq!(told, unreadable, "{report}");
}

#[test]
fn a_pool_that_is_not_there_is_no_answer() {
    let empty = tempfile::tempdir().expect("a folder");
    let (code, _, err) = run(cenote(empty.path(), "verify").arg("tank"));
    assert_eq!(code, 2);
    assert!(err.contains("tank"), "{err}");
}

/// SplitMix64: every seed gives a different, repeatable series.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Damages some of the used sectors between the labels.
fn spoil(image: &Path, seed: u64, times: usize) {
    const LABELS: usize = 4 << 20;
    let bytes = std::fs::read(image).expect("an image");
    let used: Vec<usize> = (LABELS / 512..(bytes.len() - (1 << 19)) / 512)
        .filter(|sector| bytes[sector * 512..][..512].iter().any(|&byte| byte != 0))
        .collect();
    let file = OpenOptions::new().write(true).open(image).expect("a copy");
    let mut state = seed;
    for _ in 0..times {
        let sector = used[next(&mut state) as usize % used.len()];
        file.write_all_at(&next(&mut state).to_le_bytes(), sector as u64 * 512).expect("written");
    }
}

/// Targets `DATASET:/PATH` in the lines that report damaged data.
fn told(text: &str, before: &str, behind: &str) -> BTreeSet<String> {
    let lines = text.lines().filter_map(|line| line.strip_prefix(before));
    lines.filter_map(|line| line.split_once(behind).map(|(path, _)| path.to_owned())).collect()
}

#[test]
fn verify_tells_the_files_that_cannot_be_copied_and_no_others() {
    let fixture = Fixture::open("single");
    let mut lost_files = 0;
    for seed in 1..=8 {
        let scratch = fixture.scratch();
        spoil(&scratch.image(&fixture.manifest().images[0].name), seed, 12);
        let (code, report) = verify(scratch.dir(), &["t_single"]);
        assert!(matches!(code, 0 | 1), "seed {seed}: {report}");
        // If dnodes are lost, more than contents of files is reported.
        let whole_objects = report.contains(": objects ") || report.contains("attributes");
        let by_verify = told(&report, "  ", " bytes ");
        let mut by_copy = BTreeSet::new();
        for dataset in fixture.manifest().datasets.iter().filter(|dataset| dataset.entries.is_some()) {
            let (code, _, err) = run(cenote(scratch.dir(), "tar").arg(format!("{}:/", dataset.name)));
            assert!(matches!(code, 0 | 1), "seed {seed}: {err}");
            let lost: BTreeSet<String> = err
                .lines()
                .filter_map(|line| line.strip_prefix("cenote: ")?.split_once(" cannot be read (bytes "))
                .filter_map(|(line, _)| line.rsplit_once(": ").map(|(path, _)| path.to_owned()))
                .collect();
            by_copy.extend(lost);
        }
        lost_files += by_copy.len();
        let by_verify: BTreeSet<String> = by_verify.into_iter().filter(|path| path.contains(":/")).collect();
        if whole_objects {
            assert!(by_copy.is_subset(&by_verify), "seed {seed}: {by_copy:?}\n{report}");
        } else {
            assert_eq!(by_verify, by_copy, "seed {seed}: {report}");
        }
    }
    assert!(lost_files > 5, "the seeds hit something");
}
