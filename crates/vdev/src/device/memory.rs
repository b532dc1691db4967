//! A device in memory: sparse, every write durable at once, gone when dropped.

use super::error::DeviceError;
use super::interface::{Device, check_range};
use super::sparse::SparseBytes;
use crate::sync::{read, write};
use format::DeviceOffset;
use std::sync::RwLock;

/// Bytes in memory; bytes that were never written are zero.
#[derive(Debug)]
pub struct MemoryDevice {
    size: u64,
    pages: RwLock<SparseBytes>,
}

impl MemoryDevice {
    /// An empty device of `size` bytes; only written pages take memory.
    pub fn new(size: u64) -> MemoryDevice {
        MemoryDevice { size, pages: RwLock::default() }
    }

    /// A device with the given contents.
    pub fn from_bytes(bytes: &[u8]) -> MemoryDevice {
        let mut pages = SparseBytes::default();
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
        read(&self.pages).read_or_zero(buf, at.0);
        Ok(())
    }

    fn write_at(&self, buf: &[u8], at: DeviceOffset) -> Result<(), DeviceError> {
        check_range(at, buf.len() as u64, self.size)?;
        write(&self.pages).write_over_zero(buf, at.0);
        Ok(())
    }

    fn discard(&self, at: DeviceOffset, len: u64) -> Result<(), DeviceError> {
        check_range(at, len, self.size)?;
        write(&self.pages).clear(at.0, len);
        Ok(())
    }
}
