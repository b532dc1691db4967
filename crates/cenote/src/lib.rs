//! ZFS as a library: reads every file of a pool that OpenZFS wrote, with every byte verified; creates pools
//! and changes them.
//!
//! The library needs no kernel module and no root, and prints nothing. [`Pool::open`] opens a pool for
//! reading:
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
//! [`Pool::open_rw`] opens a pool for writing:
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
//! Creating pools, and creating, destroying and changing datasets, is in the crate `admin`.
//!
//! # The stable interface
//! [`Pool`], [`Dataset`], [`Filesystem`], [`Node`], [`Volume`], [`PoolWriter`], [`chain::Chain`], and the modules
//! [`files`], [`copy`], [`inspect`], [`verify`] and [`error`]. Methods that return types of the engine (`spa`, `dsl`,
//! `objset`, `live`, `head`) are for the crates above; the engine may change.
//!
//! # Handles
//! - Dropping a [`PoolWriter`] exports its pool; only [`PoolWriter::close`] returns whether that worked.
//!   Files that are still open for writing then return errors; what they had written is on disk. The devices
//!   are released with the last of these files: until then the pool cannot be opened for writing again.
//! - A pool is open for writing once, in one process: a second [`Pool::open_rw`] is refused.
//! - A [`Pool`] shows one transaction group as long as it is held ([`PoolWriter::view`]: the last on disk),
//!   unless that holds back too much space of the pool; [`files::FilesystemWriter`] shows the newest state to
//!   all its clones.
//! - The pools of a namespace (`admin::Namespace`) stay open when their handles are dropped, and are exported
//!   only when they have no users.
//! - A dataset that is open for writing follows changed properties at once, and keeps its files when it is
//!   renamed. It cannot be destroyed or rolled back meanwhile.
//! - All handles can be used by many threads. A thread that panics does not affect the others.
//!
//! # What always holds
//! - Every byte returned was verified against the pool's checksums, and came from another copy or from parity
//!   if a device failed or returned wrong data. Data that cannot be read is an error that names its location.
//! - Opening a pool reads only what it needs; memory is bounded by [`OpenOptions::cache_bytes`] and a few
//!   blocks per thread.
#![forbid(unsafe_code)]

mod block_walk;
mod caller;
mod cancel;
pub mod chain;
pub mod copy;
mod dataset;
pub mod error;
pub mod files;
mod host;
pub mod inspect;
mod memory;
mod open;
pub mod receive;
mod target;
pub mod verify;
mod worker_pool;
mod writer;

pub use ::stream;
pub use caller::Caller;
pub use cancel::CancelFlag;
pub use dataset::{Dataset, DatasetFiles, DatasetKind};
pub use dmu::{interrupt, panics};
pub use dsl::SnapshotHold;
pub use error::Error;
pub use host::this_host;
pub use memory::{Budget, allowed as memory_allowed};
pub use open::{OpenOptions, Pool};
pub use pool::FeatureState;
pub use pool::LivePool;
pub use pool::{NotHandedOver, Outside};
pub use target::Target;
pub use vdev::VdevTree;
pub use writer::{PoolWriter, history_command};
pub use zpl::{Filesystem, Node, Volume};
