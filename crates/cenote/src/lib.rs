//! ZFS as a library: open pools that OpenZFS made and get every byte out, checked; make pools and change them.
//!
//! No kernel module, no root, no process-wide state; nothing is printed. Everything starts with
//! [`Pool::open`]:
//!
//! ```no_run
//! use cenote::{OpenOptions, Pool};
//!
//! # fn main() -> Result<(), cenote::Error> {
//! let pool = Pool::open("tank", &OpenOptions::new().search("/images"))?;
//! let fs = pool.dataset("tank/home@monday")?.filesystem()?;
//! let file = fs.open(b"/notes/today.txt")?;
//! let mut head = vec![0; 4096];
//! let n = file.read_at(0, &mut head)?;
//! head.truncate(n);
//! # Ok(())
//! # }
//! ```
//!
//! Changing files goes through [`Pool::open_rw`]:
//!
//! ```no_run
//! use cenote::{OpenOptions, Pool};
//!
//! # fn main() -> Result<(), cenote::Error> {
//! let pool = Pool::open_rw("tank", &OpenOptions::new().search("/images"))?;
//! let fs = pool.filesystem("tank/home")?;
//! fs.create_dir_all(b"/notes/2026", 0o755)?;
//! let file = fs.create(b"/notes/2026/today.txt")?;
//! file.append(b"bought milk\n")?;
//! file.sync()?; // durable, by way of the intent log
//! fs.rename(b"/notes/old.txt", b"/notes/2026/old.txt")?;
//! drop((file, fs));
//! pool.close()?; // everything is on disk, and the pool is exported
//! # Ok(())
//! # }
//! ```
//!
//! Making pools, and changing which datasets they have, is in the crate `admin`.
//!
//! # Handles
//! - A [`PoolWriter`] that is dropped exports its pool; only [`PoolWriter::close`] tells whether that worked.
//!   Writers of files that are still open then get errors, and what they had written is on disk. The devices
//!   are let go of with the last of them: until then the pool cannot be opened for change again.
//! - A pool is open for change once, in one process: a second [`Pool::open_rw`] is refused.
//! - [`Pool`]s for reading show one transaction group ([`PoolWriter::view`]: the last that is on disk) as long as they
//!   are held, unless that holds back too much of the pool; [`files::FilesystemWriter`] shows the newest state to all
//!   of its clones.
//! - Pools of a namespace (`admin::Namespace`) stay open whatever happens to their handles, and are exported when nobody uses
//!   them.
//! - What is open for writing follows changed properties at once, and keeps its files when it is renamed. It
//!   cannot be destroyed or rolled back meanwhile.
//! - All handles are for many threads; one that panics takes nothing along.
//!
//! # What always holds
//! - Every byte returned was verified against the pool's checksums, and came from another copy or
//!   from parity where a device failed or lied. What cannot be had is an error that says where.
//! - Opening reads only what it needs; memory is bounded by [`OpenOptions::cache_bytes`] and a few
//!   blocks per thread.
#![forbid(unsafe_code)]

mod caller;
pub mod copy;
mod dataset;
pub mod error;
pub mod files;
mod host;
pub mod inspect;
mod memory;
mod open;
mod stop;
mod block_walk;
mod target;
mod worker_pool;
mod users;
pub mod verify;
mod writer;

pub use caller::Caller;
pub use dataset::{Dataset, DatasetFiles, DatasetKind};
pub use dmu::{interrupt, panics};
pub use error::Error;
pub use host::{host_id, host_name, this_host};
pub use memory::{Budget, allowed as memory_allowed};
pub use open::{OpenOptions, Pool};
pub use pool::FeatureState;
pub use pool::LivePool;
pub use pool::Outside;
pub use stop::Stop;
pub use target::Target;
pub use users::{PoolUse, PoolUsers};
pub use vdev::VdevTree;
pub use writer::{PoolWriter, history_command};
pub use zpl::{Filesystem, Node, Volume};

/// An open file: a [`Node`] of a file system.
pub type File = Node;
