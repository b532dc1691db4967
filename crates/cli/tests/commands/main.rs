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
mod checkpoint;
mod daemon;
mod daemon_support;
mod devices;
mod growing;
mod killed;
mod manuals;
mod mounts;
mod observing;
mod packaging;
mod panics;
mod protected;
mod raw_streams;
mod readme;
mod receiving;
mod removing;
mod replicate;
mod sending;
mod tour;
