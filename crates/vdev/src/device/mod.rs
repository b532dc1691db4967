//! Devices: where the bytes of a leaf are.
//!
//! [`Device`] is the door of this module: everything above reads and writes leaves through it and
//! never opens a file. Backends: [`mod@file`] (files and block devices), [`memory`], [`overlay`] (a
//! read-only base with writes in memory), [`held`] (writes that wait), [`sim`] (faults and power cuts from a
//! seed) and
//! [`window`] (a part of another device, such as a partition).
//!
//! # What always holds
//! - A read fills the whole buffer or fails; it never returns part of the data as success.
//! - Nothing outside `0..size()` is read or written.
//! - A device that is open read-only refuses writes with [`DeviceError::ReadOnly`].
//! - Concurrent calls are allowed; of overlapping ones each sector is seen old or new.
//! - A write that has returned is in effect; it is durable after a flush that starts later.
//!
//! Tests: `tests/devices.rs` runs one suite over every backend.

pub mod file;
pub mod held;
pub mod memory;
pub mod overlay;
mod pages;
pub mod sim;
pub(crate) mod stage;
#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
mod uring;
pub mod window;

/// The one call on devices that no library has a safe wrapper for.
#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
mod partition_table {
    use rustix::fd::BorrowedFd;
    use rustix::io::Errno;
    use rustix::ioctl::{NoArg, ioctl};

    /// `_IO(0x12, 95)`.
    const BLKRRPART: rustix::ioctl::Opcode = 0x125f;

    /// Makes the kernel read the partition table of a block device again.
    pub(super) fn reread(fd: BorrowedFd<'_>) -> Result<(), Errno> {
        // SAFETY: the request takes no argument and touches no memory of ours.
        unsafe { ioctl(fd, NoArg::<BLKRRPART>::new()) }
    }
}

use format::DeviceOffset;
use std::fmt::Debug;
use std::io::IoSlice;
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
    /// The write was never given to a device.
    #[error("not written")]
    NotWritten,
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

/// One write of a batch, and its outcome.
#[derive(Debug)]
pub struct WriteRequest<'a> {
    /// First byte to write.
    pub at: DeviceOffset,
    /// The bytes, in parts that follow each other on the device.
    pub parts: Vec<IoSlice<'a>>,
    /// The outcome; [`DeviceError::NotWritten`] until the batch was written. After a failure the range
    /// holds old bytes, new ones, or some of each.
    pub result: Result<(), DeviceError>,
}

impl<'a> WriteRequest<'a> {
    /// A request that was not given to a device yet.
    pub fn new(at: DeviceOffset, parts: Vec<IoSlice<'a>>) -> WriteRequest<'a> {
        WriteRequest { at, parts, result: Err(DeviceError::NotWritten) }
    }

    /// Bytes of all parts.
    pub fn size(&self) -> u64 {
        size_of_parts(&self.parts)
    }
}

/// Bytes of all parts of a write.
pub fn size_of_parts(parts: &[IoSlice<'_>]) -> u64 {
    parts.iter().map(|part| part.len() as u64).sum()
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

impl RawTarget<'_> {
    /// Where the device starts in the file.
    pub(crate) fn base(&self) -> DeviceOffset {
        DeviceOffset(self.base)
    }
}

/// Random access to the bytes of one leaf.
pub trait Device: Send + Sync + Debug {
    /// Bytes of the device; does not change while it is open, but for [`Device::renew_size`].
    fn size(&self) -> u64;

    /// How large it is now: a file or a volume may have grown since it was opened, or have been cut.
    fn size_now(&self) -> u64 {
        self.size()
    }

    /// Makes the size that of now. A device that has shrunk keeps the one that it had: what was there is missed
    /// where it is read.
    fn renew_size(&self) -> u64 {
        self.size()
    }

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

    /// Writes `parts` one behind the other, from `at` on.
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

    /// Whether a path leads to this device. True of what is not in the file system, and where that cannot be seen.
    fn is_at(&self, path: &Path) -> bool {
        let _ = path;
        true
    }

    /// Whether it is a file that no name leads to any more: what it holds is gone when it is closed.
    fn is_removed(&self) -> bool {
        false
    }

    /// Bytes of the sectors that the device addresses, and of those that it writes without reading
    /// first: the least and the best alignment of a pool on it.
    fn sector_sizes(&self) -> (u64, u64) {
        (512, 512)
    }

    /// Tells the system that the partition table of a whole disk has changed.
    fn reread_partitions(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    /// Whether writes are refused.
    fn is_read_only(&self) -> bool {
        false
    }

    /// The file to which reads and writes may go directly, for [`read_across`] and [`write_across`]. Only [`mod@file`] and wrappers
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

/// A device without a volatile cache has nothing to flush.
pub(crate) fn unsupported_is_fine(error: DeviceError) -> Result<(), DeviceError> {
    match error {
        DeviceError::Io { cause: rustix::io::Errno::OPNOTSUPP, .. } => Ok(()),
        error => Err(error),
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

/// Writes to several devices at once: requests that can be queued in the kernel wait together, the
/// others are written one after the other in the order of the batch. Requests that overlap are
/// written in any order.
pub fn write_across(batch: &mut [(&dyn Device, WriteRequest<'_>)]) {
    #[cfg(target_os = "linux")]
    if batch.len() > 1 {
        uring::write_batch(batch);
    }
    let mut left: Vec<_> = batch
        .iter_mut()
        .filter(|(_, request)| request.result == Err(DeviceError::NotWritten))
        .map(|(device, request)| (*device, request))
        .collect();
    each_device(&mut left, |device, request| request.result = device.write_parts(&request.parts, request.at));
}

/// Flushes several devices at once; outcomes in the order of the devices.
pub fn flush_across(devices: &[&dyn Device]) -> Vec<Result<(), DeviceError>> {
    let mut results = vec![None; devices.len()];
    #[cfg(target_os = "linux")]
    if devices.len() > 1 {
        uring::flush_batch(devices, &mut results);
    }
    let mut left: Vec<_> = devices
        .iter()
        .zip(&mut results)
        .filter(|(_, result)| result.is_none())
        .map(|(device, result)| (*device, result))
        .collect();
    each_device(&mut left, |device, result| *result = Some(device.flush()));
    results.into_iter().map(|result| result.unwrap_or(Err(DeviceError::NotWritten))).collect()
}

/// Does `work` for every item: real files each on a thread of their own, as this is where requests end
/// that the kernel could not queue; everything else in order, so that simulated runs repeat.
fn each_device<T: Send>(items: &mut [(&dyn Device, &mut T)], work: impl Fn(&dyn Device, &mut T) + Sync) {
    let same = |a: &dyn Device, b: &dyn Device| std::ptr::addr_eq(a, b);
    let several = items.windows(2).any(|pair| !same(pair[0].0, pair[1].0));
    if !several || items.iter().any(|(device, _)| device.raw_target().is_none()) {
        items.iter_mut().for_each(|(device, item)| work(*device, item));
        return;
    }
    let mut groups: Vec<Vec<&mut (&dyn Device, &mut T)>> = Vec::new();
    for item in items.iter_mut() {
        match groups.iter_mut().find(|group| group.first().is_some_and(|(device, _)| same(*device, item.0))) {
            Some(group) => group.push(item),
            None => groups.push(vec![item]),
        }
    }
    std::thread::scope(|scope| {
        for group in groups {
            let work = &work;
            scope.spawn(move || group.into_iter().for_each(|(device, item)| work(*device, item)));
        }
    });
}

#[cfg(test)]
mod tests {
    use super::file::{Access, FileDevice};
    use super::memory::MemoryDevice;
    use super::*;
    use std::thread::{self, ThreadId};

    #[test]
    fn files_are_served_in_parallel_and_simulated_devices_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let files: Vec<FileDevice> = (0..3)
            .map(|i| {
                let path = folder.path().join(i.to_string());
                std::fs::write(&path, [0; 512]).unwrap();
                FileDevice::open(&path, Access::Cached).unwrap()
            })
            .collect();
        let mut threads: Vec<Option<ThreadId>> = vec![None; 9];
        let mut items: Vec<(&dyn Device, &mut Option<ThreadId>)> =
            threads.iter_mut().enumerate().map(|(i, id)| (&files[i % 3] as &dyn Device, id)).collect();
        each_device(&mut items, |_, id| *id = Some(thread::current().id()));
        let of_device = |i: usize| threads.iter().skip(i).step_by(3).collect::<Vec<_>>();
        for i in 0..3 {
            assert!(of_device(i).iter().all(|id| id.is_some() && *id == of_device(i)[0]));
            assert!(of_device(i)[0] != of_device((i + 1) % 3)[0]);
        }
        let memories = [MemoryDevice::new(1), MemoryDevice::new(1)];
        let order = std::sync::Mutex::new(Vec::new());
        let mut numbers: Vec<usize> = (0..6).collect();
        let mut items: Vec<(&dyn Device, &mut usize)> =
            numbers.iter_mut().enumerate().map(|(i, n)| (&memories[i % 2] as &dyn Device, n)).collect();
        each_device(&mut items, |_, n| order.lock().unwrap().push((*n, thread::current().id())));
        let expected: Vec<_> = (0..6).map(|n| (n, thread::current().id())).collect();
        assert_eq!(*order.lock().unwrap(), expected);
    }
}
