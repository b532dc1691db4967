//! Memory from the system.

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};
use std::ptr::{self, NonNull};

/// Bytes of its pages, or of a part of them.
pub(crate) const PAGE: usize = 4096;

/// So many bytes of addresses, whose pages come when they are first used.
pub(crate) fn map(len: usize) -> Option<NonNull<u8>> {
    let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::NORESERVE);
    // SAFETY: a new mapping, wherever the kernel wants it: nothing is replaced.
    let start = unsafe { mmap_anonymous(ptr::null_mut(), len, access, flags) }.ok()?;
    // SAFETY: the mapping that was just made. Huge pages are cheaper to get, where there may be any.
    let _ = unsafe { madvise(start, len, Advice::LinuxHugepage) };
    NonNull::new(start.cast())
}

/// Gives the pages of a range back to the system; they are zeros from then on.
///
/// # Safety
/// The range is part of a mapping of [`map`], made of whole pages, and nobody uses what is in it.
pub(crate) unsafe fn discard(start: *mut u8, len: usize) {
    // SAFETY: what the caller promises.
    if unsafe { madvise(start.cast(), len, Advice::LinuxDontNeed) }.is_err() {
        // What counts on zeros must find them.
        // SAFETY: the same.
        unsafe { start.write_bytes(0, len) };
    }
}
