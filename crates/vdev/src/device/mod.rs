//! Devices: where the bytes of a leaf are.
//!
//! [`Device`] is the door of this module: everything above reads and writes leaves through it and
//! never opens a file. Backends: [`mod@file`] (files and block devices), [`memory`], [`overlay`] (a
//! read-only base with writes in memory), [`sim`] (faults and power cuts from a seed) and
//! [`window`] (a part of another device, such as a partition).
//!
//! # What always holds
//! - A read fills the whole buffer or fails; it never returns part of the data as success.
//! - Nothing outside `0..size()` is read or written.
//! - A device that is open read-only refuses writes with [`DeviceError::ReadOnly`].
//! - Concurrent calls are allowed; of overlapping ones each sector is seen old or new.
//!
//! Tests: `tests/devices.rs` runs one suite over every backend.

pub mod file;
pub mod memory;
pub mod overlay;
mod pages;
pub mod sim;
#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
mod uring;
pub mod window;

use format::DeviceOffset;
use std::fmt::Debug;
use std::os::fd::BorrowedFd;
use std::path::Path;

/// What went wrong on a device.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// The operating system, or a simulated disk, reports an error.
    #[error("{len} bytes at {at}: {cause}")]
    Io {
        /// First byte of the request.
        at: DeviceOffset,
        /// Bytes of the request.
        len: usize,
        /// The system's error.
        #[source]
        cause: rustix::io::Errno,
    },
    /// The request reaches past the end of the device.
    #[error("{len} bytes at {at} are not within a device of {size}")]
    OutOfRange {
        /// First byte of the request.
        at: DeviceOffset,
        /// Bytes of the request.
        len: u64,
        /// Bytes of the device.
        size: u64,
    },
    /// The device is shorter than it was when it was opened.
    #[error("the device ends at {at}, within a request")]
    Truncated {
        /// Where it ends now.
        at: DeviceOffset,
    },
    /// Opened for reading only.
    #[error("the device is read-only")]
    ReadOnly,
    /// Somebody else uses the device.
    #[error("the device is in use")]
    Busy,
    /// The device has vanished.
    #[error("the device is gone")]
    Gone,
    /// The power of the simulated machine is off.
    #[error("the power is off")]
    PowerOff,
    /// The request was never given to a device.
    #[error("not read")]
    NotRead,
}

/// One read of a batch, and its outcome.
#[derive(Debug)]
pub struct ReadRequest<'a> {
    /// First byte to read.
    pub at: DeviceOffset,
    /// Where the bytes go; on failure the contents are undefined.
    pub buf: &'a mut [u8],
    /// The outcome; [`DeviceError::NotRead`] until the batch was read.
    pub result: Result<(), DeviceError>,
}

impl<'a> ReadRequest<'a> {
    /// A request that was not given to a device yet.
    pub fn new(at: DeviceOffset, buf: &'a mut [u8]) -> ReadRequest<'a> {
        ReadRequest { at, buf, result: Err(DeviceError::NotRead) }
    }
}

/// The open file behind a device, for batches over several devices.
#[derive(Debug, Clone, Copy)]
pub struct RawTarget<'a> {
    /// The file, open with `O_DIRECT`.
    fd: BorrowedFd<'a>,
    /// Added to offsets.
    base: u64,
    /// Offsets and lengths must be multiples of this.
    offset_align: u64,
    /// Addresses of buffers must be multiples of this.
    memory_align: usize,
}

/// Random access to the bytes of one leaf.
pub trait Device: Send + Sync + Debug {
    /// Bytes of the device; does not change while it is open.
    fn size(&self) -> u64;

    /// Fills `buf` with the bytes from `at` on.
    fn read_at(&self, buf: &mut [u8], at: DeviceOffset) -> Result<(), DeviceError>;

    /// Reads a batch; the requests may be served in any order, each carries its outcome.
    fn read_many(&self, requests: &mut [ReadRequest<'_>]) {
        for request in requests {
            request.result = self.read_at(request.buf, request.at);
        }
    }

    /// Writes `buf` at `at`. Durable only after a [`flush`](Device::flush) that started later.
    fn write_at(&self, buf: &[u8], at: DeviceOffset) -> Result<(), DeviceError> {
        let _ = (buf, at);
        Err(DeviceError::ReadOnly)
    }

    /// Makes every write that has returned durable.
    fn flush(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    /// Tells the device that a range is no longer used; its contents become undefined.
    fn discard(&self, at: DeviceOffset, len: u64) -> Result<(), DeviceError> {
        check_range(at, len, self.size())
    }

    /// Where the device is in the file system, if it is there.
    fn path(&self) -> Option<&Path> {
        None
    }

    /// Whether writes are refused.
    fn is_read_only(&self) -> bool {
        false
    }

    /// The file to which reads may go directly, for [`read_across`]. Only [`mod@file`] and wrappers
    /// that change nothing but the offset give one.
    fn raw_target(&self) -> Option<RawTarget<'_>> {
        None
    }
}

/// Fails unless `len` bytes at `at` lie within `size`.
pub fn check_range(at: DeviceOffset, len: u64, size: u64) -> Result<(), DeviceError> {
    match at.0.checked_add(len) {
        Some(end) if end <= size => Ok(()),
        _ => Err(DeviceError::OutOfRange { at, len, size }),
    }
}

/// Reads from several devices at once, such as the columns of one RAID-Z block: requests that
/// can be queued in the kernel wait together, the others are read one after the other.
pub fn read_across(batch: &mut [(&dyn Device, ReadRequest<'_>)]) {
    #[cfg(target_os = "linux")]
    if batch.len() > 1 {
        uring::read_batch(batch);
    }
    for (device, request) in batch {
        if request.result == Err(DeviceError::NotRead) {
            request.result = device.read_at(request.buf, request.at);
        }
    }
}
