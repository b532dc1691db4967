//! Tests of the commands, in one program: each test program links all crates below it. `fuzz` is a program of
//! its own, because it includes modules of the commands that expect to be at the root of the crate.

mod cenote_cp;
mod cenote_messages;
mod cenote_mount;
mod cenote_mount_rw;
mod cenote_support;
mod cenote_tar;
mod cenote_verify;
mod cenote_write;
mod common;
mod daemon;
mod daemon_support;
mod devices;
mod fixtures;
mod growing;
mod killed;
mod manuals;
mod mounts;
mod observing;
mod packaging;
mod panics;
mod readme;
mod refused;
mod stress;
mod tour;
mod usage;
mod zdb;
mod zfs_change;
mod zpool_change;
mod zpool_session;
mod zpool_support;

/// Runs in a process of its own: a writer of `stress` starts it by this name.
#[test]
fn map_writer() {
    cenote_stress::map_writer();
}
