//! Devices and redundancy: leaves, their labels, and the tree of mirrors and RAID-Z above them.
//!
//! The only crate that opens disks. Above it, `zio` addresses blocks on top-level vdevs and verifies their
//! bytes; this crate knows which leaves hold a block, and finds its right bytes when some leaves return wrong
//! bytes, fail or are missing.
//!
//! - [`device`]: random access to one leaf's bytes; files, block devices, memory, simulated disks.
//! - [`source`]: the source of devices, chosen by the caller.
//! - [`geometry`]: the layout of a block's columns on the children of its vdev: pure functions of numbers.
//! - [`label`]: the four labels of a leaf; [`label_write`]: writing them; [`scan`]: finding leaves.
//! - [`tree`]: the vdevs of a pool, reading and writing their blocks.
//! - [`tunable`]: parameters that can be changed while a pool is open. They belong to the process.
//! - [`gpt`]: finding the ZFS partition of a whole disk, and creating it.
//!
//! # What always holds
//! - Bytes from a disk are checked before they are used as numbers; no such byte causes a panic.
//! - Memory is bounded by the block size limit of 16 MiB, also for a pointer that claims more.
//! - A block counts as right only if the caller's `verify` has accepted it.
//!
//! # State of the process
//! The devices, the clock and the random numbers of a session come from its [`Env`]. All sessions of a
//! process share: the parameters ([`tunable`]), idle io_uring instances and idle buffers ([`device`]), and
//! for each thread the priority under which its requests are counted
//! ([`PriorityGuard`](tree::PriorityGuard)).

pub mod device;
pub mod env;
pub mod geometry;
pub mod gpt;
pub mod label;
pub mod label_write;
mod random;
pub mod scan;
pub mod source;
pub mod sync;
pub mod tree;
pub mod tunable;

pub use device::{Device, DeviceError};
pub use env::Env;
pub use source::Devices;
pub use tree::VdevTree;
