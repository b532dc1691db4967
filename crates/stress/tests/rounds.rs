//! Short runs of `cargo xtask stress` and `cargo xtask siege`.
#![allow(missing_docs)]

use cenote_stress::{Actors, Plan, run, siege};
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

/// One round; `cargo xtask stress` makes longer runs.
fn one_round(seed: u64, actors: Actors) {
    if !testkit::need_root() || !testkit::need_file("/dev/fuse") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let plan = Plan {
        seed,
        time: Duration::ZERO,
        round: Duration::from_secs(4),
        only: None,
        program: testkit::cenote(),
        folder: folder.path().to_owned(),
        actors,
    };
    if let Err(failure) = run(&plan) {
        // The folder of a failed round is kept.
        let kept = folder.keep();
        panic!("{failure}\n({})", kept.display());
    }
}

const NONE: Actors =
    Actors { writers: 2, administrators: 0, devices: false, kills: false, both_transports: false };

#[test]
fn writers_beside_administrators_and_devices() {
    one_round(1, Actors { administrators: 1, devices: true, ..NONE });
}

#[test]
fn writers_of_a_daemon_that_is_killed() {
    one_round(2, Actors { kills: true, ..NONE });
}

#[test]
fn users_without_rights_against_the_daemon() {
    if !testkit::need_root() || !testkit::need_file("/dev/fuse") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).expect("ours");
    let plan = siege::Plan {
        seed: 1,
        time: Duration::from_secs(4),
        mounts: 20,
        program: testkit::cenote(),
        folder: folder.path().to_owned(),
    };
    if let Err(failure) = siege::run(&plan) {
        let kept = folder.keep();
        panic!("{failure}\n({})", kept.display());
    }
}

/// Runs in a process of its own: a writer starts it by this name.
#[test]
fn map_writer() {
    cenote_stress::map_writer();
}
