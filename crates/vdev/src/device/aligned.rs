//! Aligned memory for writes with `O_DIRECT`, for data at addresses that the kernel would refuse.
//!
//! Buffers of up to [`POOLED`] bytes are kept for reuse: fresh ones cost the kernel a page fault for every
//! 4 KiB, as much as the copying itself.

use crate::sync::lock;
use std::ops::{Deref, DerefMut};
use std::sync::Mutex;

/// Alignment that every device accepts.
pub(crate) const ALIGN: usize = 4096;
/// Bytes of a buffer that is kept for reuse.
const POOLED: usize = 1 << 20;
/// Bytes below which a buffer is not kept.
const SMALL: usize = 64 << 10;
/// Largest number of buffers that are kept.
const KEPT_MAX: usize = 32;

static POOL: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());

/// Bytes at an address that is a multiple of [`ALIGN`]. The initial contents are undefined.
#[derive(Debug)]
pub(crate) struct AlignedBuf {
    memory: Vec<u8>,
    start: usize,
    len: usize,
}

impl AlignedBuf {
    /// A buffer of `len` bytes. It is not zeroed and may hold a previous request's data.
    pub(crate) fn new(len: usize) -> AlignedBuf {
        let kept = if (SMALL..=POOLED).contains(&len) { lock(&POOL).pop() } else { None };
        let memory = kept.unwrap_or_else(|| {
            let room = if (SMALL..=POOLED).contains(&len) { POOLED } else { len };
            vec![0; room + ALIGN]
        });
        let start = memory.as_ptr().align_offset(ALIGN);
        assert!(start + len <= memory.len(), "a vector of bytes can be aligned within itself");
        AlignedBuf { memory, start, len }
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.len]
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.len]
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        if self.memory.len() != POOLED + ALIGN {
            return;
        }
        let mut pool = lock(&POOL);
        if pool.len() < KEPT_MAX {
            pool.push(std::mem::take(&mut self.memory));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aligned_whatever_the_size() {
        for len in [0, 1, 4095, SMALL, POOLED - 1, POOLED, POOLED + 1] {
            for _ in 0..3 {
                let mut buf = AlignedBuf::new(len);
                buf.fill(7);
                assert_eq!((buf.len(), buf.as_ptr().align_offset(ALIGN)), (len, 0));
            }
        }
    }
}
