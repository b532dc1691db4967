//! [`Device`]: the interface of every backend, and the requests of a batch.

use super::error::DeviceError;
use super::raw::RawTarget;
use format::DeviceOffset;
use std::fmt::Debug;
use std::io::IoSlice;
use std::path::Path;

/// One read of a batch, and its outcome.
#[derive(Debug)]
pub struct ReadRequest<'a> {
    /// First byte to read from the device.
    pub at: DeviceOffset,
    /// The buffer to fill; after a failure its contents are undefined.
    pub buf: &'a mut [u8],
    /// The outcome; [`DeviceError::NotRead`] until a device has served the request.
    pub result: Result<(), DeviceError>,
}

impl<'a> ReadRequest<'a> {
    /// A request that no device has served yet.
    pub fn new(at: DeviceOffset, buf: &'a mut [u8]) -> ReadRequest<'a> {
        ReadRequest { at, buf, result: Err(DeviceError::NotRead) }
    }

    /// Whether no device has served it yet.
    pub(super) fn is_pending(&self) -> bool {
        self.result == Err(DeviceError::NotRead)
    }
}

/// One write of a batch, and its outcome.
#[derive(Debug)]
pub struct WriteRequest<'a> {
    /// First byte to write on the device.
    pub at: DeviceOffset,
    /// The bytes, in parts that follow each other on the device.
    pub parts: Vec<IoSlice<'a>>,
    /// The outcome; [`DeviceError::NotWritten`] until a device has served the request. After a failure the
    /// range holds old bytes, new ones, or some of each.
    pub result: Result<(), DeviceError>,
}

impl<'a> WriteRequest<'a> {
    /// A request that no device has served yet.
    pub fn new(at: DeviceOffset, parts: Vec<IoSlice<'a>>) -> WriteRequest<'a> {
        WriteRequest { at, parts, result: Err(DeviceError::NotWritten) }
    }

    /// Number of bytes of all parts together.
    pub(crate) fn size(&self) -> u64 {
        size_of_parts(&self.parts)
    }

    /// Whether no device has served it yet.
    pub(super) fn is_pending(&self) -> bool {
        self.result == Err(DeviceError::NotWritten)
    }
}

/// Bytes of all parts of a write.
pub(crate) fn size_of_parts(parts: &[IoSlice<'_>]) -> u64 {
    parts.iter().map(|part| part.len() as u64).sum()
}

/// Fails unless `len` bytes at `at` lie within a device of `size` bytes.
///
/// # Errors
/// [`DeviceError::OutOfRange`].
pub(crate) fn check_range(at: DeviceOffset, len: u64, size: u64) -> Result<(), DeviceError> {
    match at.0.checked_add(len) {
        Some(end) if end <= size => Ok(()),
        _ => Err(DeviceError::OutOfRange { at, len, size }),
    }
}

/// Random access to the bytes of one leaf.
///
/// The interface is batched: [`read_many`](Device::read_many) and [`write_many`](Device::write_many) take
/// many requests at once, so that a backend can start all of them before it waits. A backend without that
/// ability implements only the single calls. Requests of several devices go through [`super::read_across`]
/// and [`super::write_across`].
pub trait Device: Send + Sync + Debug {
    /// Bytes of the device. Constant while the device is open, except for [`Device::renew_size`].
    fn size(&self) -> u64;

    /// Bytes of the device at this moment: a file or a volume may have grown, or been truncated, since it was
    /// opened.
    fn size_now(&self) -> u64 {
        self.size()
    }

    /// Adopts the present size, and returns it. A device that has shrunk keeps its size, so that reads of
    /// lost bytes fail.
    fn renew_size(&self) -> u64 {
        self.size()
    }

    /// Fills `buf` with the bytes from `at` on.
    ///
    /// # Errors
    /// [`DeviceError`]; the contents of the buffer are undefined then.
    fn read_at(&self, buf: &mut [u8], at: DeviceOffset) -> Result<(), DeviceError>;

    /// Reads a batch, in any order; each request carries its outcome.
    fn read_many(&self, requests: &mut [ReadRequest<'_>]) {
        for request in requests {
            request.result = self.read_at(request.buf, request.at);
        }
    }

    /// Writes `buf` at `at`. Durable only after a [`flush`](Device::flush) that starts later.
    ///
    /// # Errors
    /// [`DeviceError`]; the range then holds old bytes, new ones, or some of each.
    fn write_at(&self, buf: &[u8], at: DeviceOffset) -> Result<(), DeviceError> {
        let _ = (buf, at);
        Err(DeviceError::ReadOnly)
    }

    /// Writes `parts` one after the other, from `at` on.
    ///
    /// # Errors
    /// Those of [`Device::write_at`].
    fn write_parts(&self, parts: &[IoSlice<'_>], at: DeviceOffset) -> Result<(), DeviceError> {
        match parts {
            [only] => self.write_at(only, at),
            _ => {
                let mut all = Vec::with_capacity(size_of_parts(parts) as usize);
                parts.iter().for_each(|part| all.extend_from_slice(part));
                self.write_at(&all, at)
            }
        }
    }

    /// Writes a batch; each request carries its outcome. Requests that overlap are written in any order.
    fn write_many(&self, requests: &mut [WriteRequest<'_>]) {
        for request in requests {
            request.result = self.write_parts(&request.parts, request.at);
        }
    }

    /// Makes every write that has returned durable.
    ///
    /// # Errors
    /// [`DeviceError`] if some of them may be lost. A system reports a lost write once: a second flush that
    /// succeeds proves nothing.
    fn flush(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    /// Declares a range unused; its contents become undefined.
    ///
    /// # Errors
    /// [`DeviceError`] if the device did not take the request.
    fn discard(&self, at: DeviceOffset, len: u64) -> Result<(), DeviceError> {
        check_range(at, len, self.size())
    }

    /// The name by which the device was opened, if it has one.
    fn path(&self) -> Option<&Path> {
        None
    }

    /// Whether a path leads to this device. True for a device without a name, and if that is unknown.
    fn is_at(&self, path: &Path) -> bool {
        let _ = path;
        true
    }

    /// Whether this is a file without any name left: its contents are lost when it is closed.
    fn is_removed(&self) -> bool {
        false
    }

    /// Logical and physical sector size in bytes: the unit that the device addresses, and the unit that it
    /// writes without reading first. They are the least and the best alignment for a pool on it.
    fn sector_sizes(&self) -> (u64, u64) {
        (512, 512)
    }

    /// Makes the system read the partition table of a whole disk again.
    ///
    /// # Errors
    /// [`DeviceError::Busy`] if a partition of the disk is in use; otherwise the system's error.
    fn reread_partitions(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    /// Whether the device is open for reading only.
    fn is_read_only(&self) -> bool {
        false
    }

    /// The open file behind the device, for batches over several devices. Only [`super::file`] and wrappers
    /// that change nothing but the offset have one.
    fn raw_target(&self) -> Option<RawTarget<'_>> {
        None
    }
}
