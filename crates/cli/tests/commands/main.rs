//! Tests of the commands, in one program: a program of tests links all that is below it.
//! `fuzz` stands beside it, for it takes modules of the commands, which expect to be at the root.

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

/// Runs in a process of its own, which a writer of `stress` begins by this name.
#[test]
fn map_writer() {
    cenote_stress::map_writer();
}
