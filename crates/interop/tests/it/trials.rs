//! A sample of trials. `cargo xtask interop` runs as many as wanted.
#![allow(missing_docs, clippy::disallowed_types)]

use cenote_interop::trial::Trial;

/// Runs a trial with one run of `zdb` at the end, or none.
fn trial(seed: u64, layout: &str, asks_zdb: bool) {
    let dir = tempfile::tempdir().expect("a folder");
    let layout = Some(layout.to_owned());
    let zdb_every = u64::from(asks_zdb) * 2;
    let trial =
        Trial { seed, layout, rounds: 2, steps: 60, zdb_every, asks_zdb, ztest_secs: 0, full_trace: false };
    trial.run(dir.path()).unwrap_or_else(|why| panic!("{why}"));
}

/// Without logs of space maps, rewritten space maps contained the changes of their txg twice.
#[test]
fn single_without_features() {
    trial(7, "single", true);
}

#[test]
fn raidz1_without_logs_of_space_maps() {
    trial(25, "raidz1", false);
}

#[test]
fn mirrors_with_shared_blocks() {
    trial(1, "mirrors", true);
}

#[test]
fn raidz2() {
    trial(12, "raidz2", false);
}

#[test]
fn raidz3_with_small_sectors() {
    trial(10, "raidz3", false);
}

#[test]
fn special_and_log() {
    trial(32, "special-log", true);
}

#[test]
fn stripe_with_a_thread() {
    trial(3, "stripe", false);
}

#[test]
fn full_and_filled_again() {
    trial(11, "full", true);
}

#[test]
fn clones_come_and_go() {
    trial(11, "clones-log", false);
}

#[test]
fn every_class_of_vdevs() {
    trial(11, "all-classes", true);
}

#[test]
fn sectors_of_64k() {
    trial(11, "sectors-64k", true);
}

/// Checks that gang blocks are really written.
#[test]
fn free_space_in_small_pieces() {
    let dir = tempfile::tempdir().expect("a folder");
    let layout = Some("pieces".to_owned());
    let trial = Trial {
        seed: 1,
        layout,
        rounds: 1,
        steps: 30,
        zdb_every: 0,
        asks_zdb: true,
        ztest_secs: 0,
        full_trace: false,
    };
    trial.run(dir.path()).unwrap_or_else(|why| panic!("{why}"));
    let Some(zdb) = testkit::need_tool("zdb") else { return };
    let output = testkit::hurried(zdb)
        .args(["-e", "-p"])
        .arg(dir.path())
        .args(["-bb", "judged"])
        .output()
        .expect("zdb runs");
    let text = String::from_utf8_lossy(&output.stdout);
    let count = text.lines().find_map(|line| line.trim().strip_prefix("ganged count:"));
    let count: u64 = count.and_then(|count| count.trim().parse().ok()).expect("a count");
    assert!(count > 0, "no block in pieces");
}

/// OpenZFS's own stress test continues on our pool; then `zdb` and our own check find no error.
#[test]
fn ztest_works_on_our_pool() {
    let dir = tempfile::tempdir().expect("a folder");
    let layout = Some("mirror".to_owned());
    let trial = Trial {
        seed: 5,
        layout,
        rounds: 1,
        steps: 40,
        zdb_every: 0,
        asks_zdb: false,
        ztest_secs: 3,
        full_trace: false,
    };
    trial.run(dir.path()).unwrap_or_else(|why| panic!("{why}"));
}
