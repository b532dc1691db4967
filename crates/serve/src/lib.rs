//! The server: offers the data of open pools to other programs.
//!
//! - [`export`]: the files and snapshots of a dataset, for any protocol.
//! - [`fuse`]: the adapter to the kernel: FUSE's messages, cache lifetimes, notifications, transports and
//!   threads. One match there translates errors to error numbers.
//! - [`mounts`]: the table of mounts of a daemon, which implements `admin::Mounts` with FUSE.
//! - [`control`]: the control socket of the daemon.
//! - [`control_files`]: counters and parameters as a small FUSE file system; [`projects`]: projects of files
//!   by path.
//!
//! # What always holds
//! - `export` uses neither an adapter nor an error number (a test in it checks that).
//! - Threads start in `fuse`, `mounts` and `control`, and nowhere else above the engine.
#![deny(unsafe_code)]

mod affinity;
pub mod clean_start;
pub mod control;
pub mod control_files;
pub mod export;
pub mod fuse;
mod kernel_version;
pub mod manager;
pub mod mounts;
pub mod projects;
mod signals;

pub use cenote::panics;
pub use fuse::{MountError, MountOptions, Mounted, Unmounter};
pub use signals::{Terminator, on_report};
