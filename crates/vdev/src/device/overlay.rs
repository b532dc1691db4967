//! A read-only base with writes kept in memory: for dry imports and experiments that leave the base
//! unchanged. The base must not change meanwhile.

use super::error::DeviceError;
use super::interface::{Device, check_range};
use super::sparse::SparseBytes;
use crate::sync::{read, write};
use format::DeviceOffset;
use std::path::Path;
use std::sync::{Arc, RwLock};

/// Another device with writes on top of it.
#[derive(Debug)]
pub struct OverlayDevice {
    base: Arc<dyn Device>,
    written: RwLock<SparseBytes>,
}

impl OverlayDevice {
    /// Starts with the contents of `base`, which is never written.
    pub fn new(base: Arc<dyn Device>) -> OverlayDevice {
        OverlayDevice { base, written: RwLock::default() }
    }

    /// Reads from the base, with zeros past its end (a page may reach further than the device).
    fn read_base(&self, buf: &mut [u8], at: u64) -> Result<(), DeviceError> {
        let there = self.base.size().saturating_sub(at).min(buf.len() as u64) as usize;
        let (head, tail) = buf.split_at_mut(there);
        tail.fill(0);
        if head.is_empty() { Ok(()) } else { self.base.read_at(head, DeviceOffset(at)) }
    }
}

impl Device for OverlayDevice {
    fn size(&self) -> u64 {
        self.base.size()
    }

    fn read_at(&self, buf: &mut [u8], at: DeviceOffset) -> Result<(), DeviceError> {
        check_range(at, buf.len() as u64, self.size())?;
        let written = read(&self.written);
        written.read(buf, at.0, |out, pos| self.read_base(out, pos))
    }

    fn write_at(&self, buf: &[u8], at: DeviceOffset) -> Result<(), DeviceError> {
        check_range(at, buf.len() as u64, self.size())?;
        let mut written = write(&self.written);
        written.write(buf, at.0, |page, pos| self.read_base(page, pos))
    }

    fn is_at(&self, path: &Path) -> bool {
        self.base.is_at(path)
    }

    fn is_removed(&self) -> bool {
        self.base.is_removed()
    }

    fn path(&self) -> Option<&Path> {
        self.base.path()
    }
}
