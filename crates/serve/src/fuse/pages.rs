//! Buffers for requests and replies: memory mappings, whose pages the system provides when they are first
//! written to.
//!
//! A request may carry a mebibyte, so a waiting thread needs a buffer of that size; nearly all requests are
//! shorter. On the heap such a buffer would consist of pages that were used before, or of huge pages, and
//! take its full size: gigabytes with hundreds of mounts.
//!
//! # What always holds
//! - A page that was never written to takes no memory.
//! - At most [`kept_max`] large buffers are kept while no thread uses them, however many mounts there are.
#![allow(unsafe_code)] // Memory from the system.

use admin::sync::lock;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::io;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Mutex;

/// Zeroed bytes at the beginning of a page.
#[derive(Debug)]
pub(super) struct Pages {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the memory belongs to this value alone, as that of a vector does.
unsafe impl Send for Pages {}

impl Pages {
    /// Maps `len` zeroed bytes.
    pub(super) fn new(len: usize) -> io::Result<Pages> {
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: a new mapping at an address that the kernel chooses: it replaces none.
        let start = unsafe { mmap_anonymous(std::ptr::null_mut(), len.max(1), access, flags) }?;
        // SAFETY: the mapping that was just made. An error means that the kernel has no huge pages.
        let _ = unsafe { madvise(start, len.max(1), Advice::LinuxNoHugepage) };
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Pages { start, len })
    }
}

impl Deref for Pages {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: so many bytes are mapped, initialised (zeros), and borrowed as this value is.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for Pages {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and no other reference to them exists.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` with this length, and no reference to the memory exists any more.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len.max(1)) };
    }
}

/// Large buffers that no thread uses. All have one size.
static KEPT: Mutex<Vec<Pages>> = Mutex::new(Vec::new());

/// Number of long replies that are made at the same time, as long as no thread waits for disks.
fn kept_max() -> usize {
    let cpus = std::thread::available_parallelism().map_or(4, std::num::NonZero::get);
    (2 * cpus).clamp(4, 32)
}

/// A buffer for one long reply.
pub(super) struct Large(Option<Pages>);

impl Large {
    /// A buffer of `len` bytes; every call gives the same `len`.
    pub(super) fn take(len: usize) -> io::Result<Large> {
        let kept = lock(&KEPT).pop();
        kept.filter(|pages| pages.len() == len)
            .map_or_else(|| Pages::new(len), Ok)
            .map(|pages| Large(Some(pages)))
    }

    /// The buffer. It is not zeroed and may hold a previous reply.
    pub(super) fn bytes(&mut self) -> &mut [u8] {
        self.0.as_deref_mut().unwrap_or_default()
    }
}

impl Drop for Large {
    fn drop(&mut self) {
        let mut kept = lock(&KEPT);
        if kept.len() < kept_max() {
            kept.extend(self.0.take());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Number of pages in memory. The kernel is asked page by page, because it merges adjacent mappings.
    #[allow(clippy::disallowed_types)] // A file of the kernel about this process.
    fn resident(pages: &Pages) -> usize {
        use std::os::unix::fs::FileExt;
        const PRESENT: u64 = 1 << 63;
        let mut map = vec![0; pages.len() / 4096 * 8];
        let at = pages.start.as_ptr() as u64 / 4096 * 8;
        std::fs::File::open("/proc/self/pagemap").unwrap().read_exact_at(&mut map, at).unwrap();
        let (entries, _) = map.as_chunks::<8>();
        entries.iter().filter(|entry| u64::from_ne_bytes(**entry) & PRESENT != 0).count()
    }

    #[test]
    fn what_is_not_written_to_takes_no_memory() {
        let mut pages = Pages::new((1 << 20) + 4096).unwrap();
        assert!(pages.iter().step_by(4096).all(|byte| *byte == 0));
        let mut fresh = Pages::new(1 << 20).unwrap();
        fresh[5000] = 1;
        pages[0] = 2;
        drop(pages);
        assert_eq!(resident(&fresh), 1);
    }

    #[test]
    fn long_replies_share_few_rooms() {
        let len = 1 << 16;
        let taken: Vec<Large> = (0..kept_max() + 9).map(|_| Large::take(len).unwrap()).collect();
        drop(taken);
        assert!(KEPT.lock().unwrap().len() <= kept_max());
        assert_eq!(Large::take(len).unwrap().bytes().len(), len);
    }
}
