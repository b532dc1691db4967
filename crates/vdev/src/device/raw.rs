//! Open files as the kernel sees them: the facts that a batch over several devices needs to queue its
//! requests, and the memory that `O_DIRECT` accepts.

use super::aligned::{ALIGN, AlignedBuf};
use super::error::{DeviceError, IoOp};
use format::DeviceOffset;
use rustix::io::Errno;
use std::io::IoSlice;
use std::os::fd::BorrowedFd;

/// The open file behind a device, for batches over several devices.
#[derive(Debug, Clone, Copy)]
pub struct RawTarget<'a> {
    /// The file, open with `O_DIRECT`.
    pub(super) fd: BorrowedFd<'a>,
    /// Byte of the file at which the device starts; added to offsets.
    pub(super) base: u64,
    /// Offsets and lengths must be multiples of this.
    pub(super) offset_align: u64,
    /// Addresses of buffers must be multiples of this.
    pub(super) memory_align: usize,
}

/// The error of a request that the system refused. A device that the system no longer knows is gone.
pub(super) fn io_error(op: IoOp, cause: Errno, at: u64, len: usize) -> DeviceError {
    match cause {
        Errno::NODEV | Errno::NXIO => DeviceError::Gone,
        cause => DeviceError::Io { op, at: DeviceOffset(at), len, cause: cause.into() },
    }
}

impl RawTarget<'_> {
    /// Whether a read may go straight into `buf`.
    pub(super) fn fits(&self, buf: &[u8], at: u64) -> bool {
        at.is_multiple_of(self.offset_align)
            && (buf.len() as u64).is_multiple_of(self.offset_align)
            && buf.as_ptr().addr().is_multiple_of(self.memory_align)
    }

    /// Whether a write may come straight from `parts`.
    pub(super) fn fits_parts(&self, parts: &[IoSlice<'_>], at: u64) -> bool {
        at.is_multiple_of(self.offset_align) && parts.iter().all(|part| self.fits(part, 0))
    }

    /// A copy of `parts` in aligned memory; `None` if the range itself is not aligned.
    pub(super) fn aligned_copy(&self, parts: &[IoSlice<'_>], at: u64) -> Option<AlignedBuf> {
        let len: u64 = parts.iter().map(|part| part.len() as u64).sum();
        let aligned = at.is_multiple_of(self.offset_align) && len.is_multiple_of(self.offset_align);
        if !aligned || self.memory_align > ALIGN {
            return None;
        }
        let mut staged = AlignedBuf::new(len as usize);
        let mut rest = &mut *staged;
        for part in parts {
            let (here, behind) = rest.split_at_mut(part.len());
            here.copy_from_slice(part);
            rest = behind;
        }
        Some(staged)
    }
}

/// Aligned memory around a request that is not aligned itself.
#[derive(Debug)]
pub(super) struct Bounce {
    memory: Vec<u8>,
    start: usize,
    len: usize,
    skip: usize,
    /// First byte of the aligned read in the file.
    pub(super) at: u64,
}

impl Bounce {
    /// `None` if the aligned range would reach past `size`.
    pub(super) fn new(target: RawTarget<'_>, len: usize, at: u64, size: u64) -> Option<Bounce> {
        let first = at - at % target.offset_align;
        let end = at.checked_add(len as u64)?.checked_next_multiple_of(target.offset_align)?;
        if end > size {
            return None;
        }
        let span = (end - first) as usize;
        let memory = vec![0; span + target.memory_align];
        let start = memory.as_ptr().align_offset(target.memory_align);
        memory.get(start..start + span)?;
        Some(Bounce { memory, start, len: span, skip: (at - first) as usize, at: first })
    }

    /// The aligned memory, to be filled from `at` on.
    pub(super) fn span(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.len]
    }

    /// Copies the requested bytes.
    pub(super) fn copy_to(&self, buf: &mut [u8]) -> Option<()> {
        let from = self.start + self.skip;
        buf.copy_from_slice(self.memory.get(from..from + buf.len())?);
        Some(())
    }
}
