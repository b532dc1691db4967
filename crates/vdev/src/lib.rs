//! Devices and redundancy: leaves, their labels, and the tree of mirrors and RAID-Z above them.
//!
//! The only crate that opens disks. Above it, `zio` knows places on top-level vdevs and whether
//! bytes are right; here is known which leaves hold them, and how to find right bytes when some
//! leaves lie, fail or are missing.
//!
//! - [`device`]: random access to one leaf's bytes; files, block devices, memory, simulated disks.
//! - [`source`]: where devices come from, chosen by the caller.
//! - [`geometry`]: where the columns of a block are: pure functions of numbers.
//! - [`label`]: the four labels of a leaf; [`label_write`]: writing them; [`scan`]: finding leaves.
//! - [`tree`]: the vdevs of a pool, reading and writing their blocks.
//! - [`tunable`]: numbers that may be changed while it runs.
//! - [`gpt`]: finding the ZFS partition of a whole disk, and making it.
//!
//! # What always holds
//! - Bytes from a disk are checked before they are used as numbers; nothing here panics on them.
//! - Memory is bounded by the block size limit of 16 MiB, whatever a pointer claims.
//! - No block is called right that the caller's `verify` has not accepted.

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
