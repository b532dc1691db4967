//! Golden pools rewritten in the other byte order, as a whole and in halves: zdb and Cenote report the same
//! contents before and after.
//!
//! `cargo test` takes a few pools. All of them, with several seeds for halves: `CENOTE_MUTATE_POOLS=all
//! CENOTE_MUTATE_SEEDS=0..3 cargo test -p cenote-pool-mutate --test it swap`.

use crate::contents;
use cenote::{OpenOptions, Pool, verify};
use cenote_pool_mutate::image::{Backing, Image};
use cenote_pool_mutate::swap::{Outcome, Which, swap};
use std::ops::Range;
use std::path::{Path, PathBuf};
use testkit::{Fixture, Scratch, hurried, need_tool};

/// Pools of different ages, layouts and contents.
const POOLS: [&str; 8] =
    ["single", "snapshots", "raidz1", "legacy", "version10", "encryption", "removed-vdev", "gang"];
/// Pools that cannot be rewritten, and the reason.
const UNSUPPORTED: [(&str, &str); 2] = [
    ("checkpoint", "the checkpoint is an uberblock in a ZAP"),
    ("lost-block", "a block of a file is damaged"),
];

fn pools() -> Vec<Fixture> {
    let names: Vec<String> = match std::env::var("CENOTE_MUTATE_POOLS").as_deref() {
        Ok("all") => Fixture::names(),
        Ok(list) => list.split(',').map(str::to_owned).collect(),
        Err(_) => POOLS.map(str::to_owned).to_vec(),
    };
    let is_supported = |name: &&String| UNSUPPORTED.iter().all(|(left, _)| left != name);
    names.iter().filter(is_supported).map(|name| Fixture::open(name)).collect()
}

fn seeds() -> Range<u64> {
    let text = std::env::var("CENOTE_MUTATE_SEEDS").unwrap_or_else(|_| "0..1".into());
    let ends = text.split_once("..").and_then(|(a, b)| Some(a.parse().ok()?..b.parse().ok()?));
    ends.expect("CENOTE_MUTATE_SEEDS is FIRST..END")
}

fn images(fixture: &Fixture, folder: &Path) -> Vec<PathBuf> {
    fixture.manifest().images.iter().map(|image| folder.join(&image.name)).collect()
}

/// A copy of the fixture in the other byte order.
fn swapped(fixture: &Fixture, which: Which) -> (Scratch, Outcome) {
    let scratch = fixture.scratch();
    let image = Image::open(images(fixture, scratch.dir()), &fixture.manifest().pool, Backing::Files)
        .unwrap_or_else(|error| panic!("{}: {error}", fixture.name()));
    let outcome = swap(&image, which).unwrap_or_else(|error| panic!("{} {which:?}: {error}", fixture.name()));
    assert!(outcome.written > 20, "{}: {outcome:?}", fixture.name());
    (scratch, outcome)
}

fn open(fixture: &Fixture, folder: &Path) -> Pool {
    let options = OpenOptions::new().search(folder).allow_missing_logs(true);
    let pool = Pool::open(&fixture.manifest().pool, &options)
        .unwrap_or_else(|error| panic!("{}: {error}", fixture.name()));
    contents::load_keys(&pool, fixture);
    pool
}

/// The output of zdb without what the byte order changes: checksums, names of compressions, paths.
fn zdb(zdb: &Path, fixture: &Fixture, folder: &Path, option: &str) -> Vec<String> {
    let output = hurried(zdb)
        .args(["-e", "-p"])
        .arg(folder)
        .args([option, &fixture.manifest().pool])
        .output()
        .expect("zdb runs");
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).replace('\r', "\n");
    // When zdb aborts, the call trace has addresses of that process.
    let is_fleeting =
        |line: &str| ["estimated time", "PID: ", "TID: ", "+0x"].iter().any(|part| line.contains(part));
    let kept = text.lines().filter(|line| !is_fleeting(line) && !line.trim().is_empty());
    let mut lines: Vec<String> = kept.map(|line| plain(line, folder)).collect();
    lines.push(format!("{:?}", output.status.code()));
    lines
}

fn plain(line: &str, folder: &Path) -> String {
    const COMPRESSIONS: [&str; 5] = ["lz4", "lzjb", "gzip-9", "zstd", "zle"];
    let line = line.replace(&folder.display().to_string(), "DIR");
    let words = line.split(' ').filter(|word| !word.starts_with("cksum=") && !matches!(*word, "LE" | "BE"));
    words.map(|word| if COMPRESSIONS.contains(&word) { "packed" } else { word }).collect::<Vec<_>>().join(" ")
}

/// The first line in which two texts differ.
fn difference(before: &[String], after: &[String]) -> Option<String> {
    let pairs = before.iter().zip(after).find(|(a, b)| a != b);
    let first = pairs.map(|(a, b)| format!("\n  before: {a}\n  after:  {b}"));
    first.or_else(|| {
        (before.len() != after.len()).then(|| format!("{} and {} lines", before.len(), after.len()))
    })
}

#[test]
fn pools_of_the_other_order_hold_the_same_for_zdb() {
    let Some(tool) = need_tool("zdb") else { return };
    for fixture in pools() {
        let (scratch, outcome) = swapped(&fixture, Which::All);
        println!("{}: {outcome:?}", fixture.name());
        for option in ["-bcc", "-dddd"] {
            let before = zdb(&tool, &fixture, fixture.dir(), option);
            let after = zdb(&tool, &fixture, scratch.dir(), option);
            if let Some(difference) = difference(&before, &after) {
                panic!("{} {option}: {difference}", fixture.name());
            }
        }
    }
}

#[test]
fn pools_of_the_other_and_of_mixed_order_hold_the_same_for_cenote() {
    for fixture in pools() {
        let before = contents::of(&open(&fixture, fixture.dir()));
        assert!(before.len() > 1, "{}", fixture.name());
        let all = std::iter::once(Which::All).chain(seeds().map(Which::Half));
        for which in all {
            let what = format!("{} {which:?}", fixture.name());
            let (scratch, _) = swapped(&fixture, which);
            let pool = open(&fixture, scratch.dir());
            let after = contents::of(&pool);
            if let Some(difference) = difference(&before, &after) {
                panic!("{what}: {difference}");
            }
            let options = verify::Options { threads: 2, ..verify::Options::default() };
            let report = verify::verify(&pool, &options, &());
            let was = verify::verify(&open(&fixture, fixture.dir()), &options, &());
            assert_eq!(report.totals.damaged, was.totals.damaged, "{what}: {:?}", report.damage);
            // Wrong copies become right when they are rewritten.
            assert!(report.totals.degraded <= was.totals.degraded, "{what}");
            assert_eq!(report.is_space_right(), was.is_space_right(), "{what}: {:?}", report.space);
        }
    }
}
