//! Devices: random access to the bytes of a leaf.
//!
//! [`Device`] is the interface through which all layers above read and write leaves; only a
//! [`DeviceSource`](crate::source::DeviceSource) opens devices. Backends: [`mod@file`] (files and block
//! devices), [`memory`], [`overlay`] (a read-only base with writes in memory), [`held`] (writes that are held
//! back until they are released), [`sim`] (faults and power cuts from a seed) and [`partition`] (a part of
//! another device).
//!
//! # What always holds
//! - A read fills the whole buffer or fails; it never returns part of the data as success.
//! - No byte outside `0..size()` is read or written.
//! - A device that is open read-only refuses writes with [`DeviceError::ReadOnly`].
//! - Concurrent calls are allowed; of overlapping ones each sector is seen old or new.
//! - A write that has returned is visible; it is durable after a flush that starts later.
//!
//! # Layers
//! `error` -> `interface` -> `raw` -> `uring` -> `batch` and the backends; each uses only earlier ones.
//!
//! # State of the process
//! Idle io_uring instances, the finding that the kernel has no io_uring, and idle aligned buffers are shared
//! by all pools of the process (`uring`, `aligned`): they hold no state of a pool, and their number follows
//! the threads, not the pools.
//!
//! Tests: `tests/it/devices.rs` runs one suite over every backend.

pub(crate) mod aligned;
mod batch;
mod error;
pub mod file;
pub mod held;
mod interface;
pub mod memory;
pub mod overlay;
pub mod partition;
mod raw;
pub mod sim;
mod sparse;
#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
mod uring;

pub use batch::{flush_across, read_across, write_across};
pub(crate) use error::flush_is_supported;
pub use error::{Cause, DeviceError, Holder, IoOp, SourceError};
pub use interface::{Device, ReadRequest, WriteRequest};
pub use raw::RawTarget;

/// The one device call for which no library has a safe wrapper.
#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
mod partition_table {
    use rustix::fd::BorrowedFd;
    use rustix::io::Errno;
    use rustix::ioctl::{NoArg, ioctl};

    /// The request `BLKRRPART` of Linux: `_IO(0x12, 95)`.
    const BLKRRPART: rustix::ioctl::Opcode = 0x125f;

    /// Makes the kernel read the partition table of a block device again.
    pub(super) fn reread(fd: BorrowedFd<'_>) -> Result<(), Errno> {
        // SAFETY: the request takes no argument and touches no memory of ours.
        unsafe { ioctl(fd, NoArg::<BLKRRPART>::new()) }
    }
}
