//! A part of another device, such as the ZFS partition of a whole disk.

use super::error::DeviceError;
use super::interface::{Device, ReadRequest, WriteRequest, check_range, size_of_parts};
use super::raw::RawTarget;
use format::DeviceOffset;
use std::io::IoSlice;
use std::path::Path;
use std::sync::Arc;

/// `len` bytes of a device, from `start` on.
#[derive(Debug)]
pub struct PartitionDevice {
    base: Arc<dyn Device>,
    start: u64,
    len: u64,
}

impl PartitionDevice {
    /// The part of `base` that starts at `start` and has `len` bytes.
    ///
    /// # Errors
    /// [`DeviceError::OutOfRange`] unless the part lies within `base`.
    pub fn new(base: Arc<dyn Device>, start: DeviceOffset, len: u64) -> Result<PartitionDevice, DeviceError> {
        check_range(start, len, base.size())?;
        Ok(PartitionDevice { base, start: start.0, len })
    }

    /// The place on the base of `len` bytes at `at`.
    fn place(&self, at: DeviceOffset, len: u64) -> Result<DeviceOffset, DeviceError> {
        check_range(at, len, self.len)?;
        Ok(DeviceOffset(self.start + at.0))
    }
}

impl Device for PartitionDevice {
    fn size(&self) -> u64 {
        self.len
    }

    fn read_at(&self, buf: &mut [u8], at: DeviceOffset) -> Result<(), DeviceError> {
        self.base.read_at(buf, self.place(at, buf.len() as u64)?)
    }

    fn read_many(&self, requests: &mut [ReadRequest<'_>]) {
        let mut moved: Vec<ReadRequest<'_>> = Vec::with_capacity(requests.len());
        let mut which = Vec::with_capacity(requests.len());
        for (i, request) in requests.iter_mut().enumerate() {
            match self.place(request.at, request.buf.len() as u64) {
                Ok(at) => {
                    moved.push(ReadRequest::new(at, request.buf));
                    which.push(i);
                }
                Err(error) => request.result = Err(error),
            }
        }
        self.base.read_many(&mut moved);
        let results: Vec<_> = moved.into_iter().map(|request| request.result).collect();
        for (i, result) in which.into_iter().zip(results) {
            if let Some(request) = requests.get_mut(i) {
                request.result = result;
            }
        }
    }

    fn write_at(&self, buf: &[u8], at: DeviceOffset) -> Result<(), DeviceError> {
        self.base.write_at(buf, self.place(at, buf.len() as u64)?)
    }

    fn write_parts(&self, parts: &[IoSlice<'_>], at: DeviceOffset) -> Result<(), DeviceError> {
        self.base.write_parts(parts, self.place(at, size_of_parts(parts))?)
    }

    fn write_many(&self, requests: &mut [WriteRequest<'_>]) {
        let mut moved: Vec<WriteRequest<'_>> = Vec::with_capacity(requests.len());
        let mut which = Vec::with_capacity(requests.len());
        for (i, request) in requests.iter_mut().enumerate() {
            match self.place(request.at, request.size()) {
                Ok(at) => {
                    moved.push(WriteRequest::new(at, std::mem::take(&mut request.parts)));
                    which.push(i);
                }
                Err(error) => request.result = Err(error),
            }
        }
        self.base.write_many(&mut moved);
        for (i, done) in which.into_iter().zip(moved) {
            if let Some(request) = requests.get_mut(i) {
                (request.parts, request.result) = (done.parts, done.result);
            }
        }
    }

    fn sector_sizes(&self) -> (u64, u64) {
        self.base.sector_sizes()
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.base.flush()
    }

    fn discard(&self, at: DeviceOffset, len: u64) -> Result<(), DeviceError> {
        self.base.discard(self.place(at, len)?, len)
    }

    fn path(&self) -> Option<&Path> {
        self.base.path()
    }

    fn is_read_only(&self) -> bool {
        self.base.is_read_only()
    }

    fn is_at(&self, path: &Path) -> bool {
        self.base.is_at(path)
    }

    fn is_removed(&self) -> bool {
        self.base.is_removed()
    }

    fn raw_target(&self) -> Option<RawTarget<'_>> {
        let target = self.base.raw_target()?;
        Some(RawTarget { base: target.base.checked_add(self.start)?, ..target })
    }
}
