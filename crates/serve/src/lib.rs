//! The doors through which other programs reach a pool: today a read-only FUSE mount.
//!
//! [`fuse`] speaks the kernel's protocol and knows nothing of pools: it serves any [`fuse::Service`].
//! [`live_service`] answers for a file system that is open for writing; [`pool_view`] is a read-only view of a dataset, its snapshots and, when asked, its children.
//! Errors become numbers of the system in one place, `errno`.
//!
//! Threads start here and nowhere else above the engine: one per descriptor of the mount.
#![deny(unsafe_code)]

mod caller;
pub mod clean_start;
pub mod control;
pub mod control_files;
mod errno;
pub mod fuse;
mod kernel_version;
pub mod live_service;
pub mod manager;
pub mod mounts;
pub mod pool_view;
pub mod projects;
mod shown;
mod signals;
pub mod view;
mod zfsdir;

pub use cenote::panics;
pub use fuse::{MountError, MountOptions, Mounted, Unmounter};
pub use live_service::LiveService;
pub use pool_view::PoolView;
pub use signals::Terminator;
pub use view::{Attr, DirItem, Entry, FsView, Seek, SpaceInfo, Time, ViewError};
