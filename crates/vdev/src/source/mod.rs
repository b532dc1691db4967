//! Sources of devices: the files and block devices of the machine, a table of devices in memory, or any other
//! implementation of [`DeviceSource`], such as a bucket of an object store.
//!
//! A caller chooses the source once, with [`Env::with_devices`](crate::Env::with_devices). Searching for
//! pools, opening, creating, importing and reopening them then gets every device from it, by its path.
//!
//! - [`system`]: the machine's block devices and files. The only source that uses the file system.
//! - [`named`]: devices of any kind under names that the caller gives them: memory, simulated disks.
//!
//! # What always holds
//! - A path is a name within its source; only the source knows which device it names, and whether two paths
//!   name one device.
//! - A device has at most one handle in [`Mode::Exclusive`]; a second attempt is [`DeviceError::Busy`] until
//!   the handle is dropped. A handle in [`Mode::Read`] excludes no other.
//!
//! # Layers
//! `interface` -> `system`, `named` -> `devices`.
//!
//! Tests: `tests/it/sources.rs` runs one suite over every source; `pool/tests/it/live/sources.rs` has the
//! life of a pool in memory.
//!
//! [`DeviceError::Busy`]: crate::DeviceError::Busy

mod devices;
mod interface;
pub mod named;
pub mod system;

pub use devices::Devices;
pub use interface::{Candidate, DeviceId, DeviceSource, Listing, Mode};
