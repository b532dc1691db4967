//! A device in memory: sparse, read and written at once, lost when dropped.

use super::pages::Pages;
use super::{Device, DeviceError, check_range};
use format::DeviceOffset;
use std::sync::{PoisonError, RwLock};

/// Bytes in memory; what was never written is zero.
#[derive(Debug)]
pub struct MemoryDevice {
    size: u64,
    pages: RwLock<Pages>,
}

impl MemoryDevice {
    /// An empty device of `size` bytes; memory is taken only for what is written.
    pub fn new(size: u64) -> MemoryDevice {
        MemoryDevice { size, pages: RwLock::default() }
    }

    /// A device with the given contents.
    pub fn from_bytes(bytes: &[u8]) -> MemoryDevice {
        let mut pages = Pages::default();
        pages.write_over_zero(bytes, 0);
        MemoryDevice { size: bytes.len() as u64, pages: RwLock::new(pages) }
    }
}

impl Device for MemoryDevice {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, buf: &mut [u8], at: DeviceOffset) -> Result<(), DeviceError> {
        check_range(at, buf.len() as u64, self.size)?;
        self.pages.read().unwrap_or_else(PoisonError::into_inner).read_or_zero(buf, at.0);
        Ok(())
    }

    fn write_at(&self, buf: &[u8], at: DeviceOffset) -> Result<(), DeviceError> {
        check_range(at, buf.len() as u64, self.size)?;
        self.pages.write().unwrap_or_else(PoisonError::into_inner).write_over_zero(buf, at.0);
        Ok(())
    }

    fn discard(&self, at: DeviceOffset, len: u64) -> Result<(), DeviceError> {
        check_range(at, len, self.size)?;
        self.pages.write().unwrap_or_else(PoisonError::into_inner).clear(at.0, len);
        Ok(())
    }
}
