//! ZFS as a library: open pools that OpenZFS made, and get every byte out, checked.
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
//! # What always holds
//! - Every byte returned was verified against the pool's checksums, and came from another copy or
//!   from parity where a device failed or lied. What cannot be had is an error that says where.
//! - Opening reads only what it needs; memory is bounded by [`OpenOptions::cache_bytes`] and a few
//!   blocks per thread.
#![forbid(unsafe_code)]

pub mod admin;
pub mod copy;
mod dataset;
mod error;
pub mod files;
pub mod inspect;
mod open;
mod survey;
mod target;
mod team;
pub mod verify;
mod writer;

pub use dataset::{Dataset, DatasetFiles, DatasetKind};
pub use error::Error;
pub use open::{OpenOptions, Pool};
pub use pool::FeatureState;
pub use target::Target;
pub use writer::PoolWriter;
pub use zpl::{Filesystem, Node, Volume};

/// An open file: a [`Node`] of a file system.
pub type File = Node;
