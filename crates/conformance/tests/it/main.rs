//! Compares the commands with those of OpenZFS: what they print and how they exit, from transcripts; what `zdb` prints
//! for the same images; that pools are sound afterwards.
//!
//! The tests run the program `cenote` that lies beside them: `cargo xtask test conformance` builds both. Nothing is
//! mounted, and no daemon runs; tests of these are in `cenote-cli`.

mod common;
mod fixtures;
mod receive;
mod receive_again;
mod refused;
mod stream;
mod stream_files;
mod usage;
mod zdb;
mod zfs_change;
mod zpool_change;
mod zpool_session;
mod zpool_support;
mod zstream;
