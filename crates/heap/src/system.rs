//! Maps pages of memory and returns them to the system.

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};
use std::ptr::{self, NonNull};

/// A divisor of the system's page size, in bytes.
pub(crate) const PAGE: usize = 4096;

/// Maps `len` bytes of address space; a page takes memory when it is first touched. `None` if the system
/// refuses.
pub(crate) fn map(len: usize) -> Option<NonNull<u8>> {
    let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::NORESERVE);
    // SAFETY: a new mapping at an address of the kernel's choice replaces none.
    let start = unsafe { mmap_anonymous(ptr::null_mut(), len, access, flags) }.ok()?;
    // SAFETY: this mapping was just made. Huge pages need fewer faults, where the system has any.
    let _ = unsafe { madvise(start, len, Advice::LinuxHugepage) };
    NonNull::new(start.cast())
}

/// Gives the pages of a range back to the system; they are zeros from then on.
///
/// # Safety
/// The range is part of a mapping made by [`map`], consists of whole pages, and its contents are not used any
/// more.
pub(crate) unsafe fn discard(start: *mut u8, len: usize) {
    // SAFETY: the caller promises it.
    if unsafe { madvise(start.cast(), len, Advice::LinuxDontNeed) }.is_err() {
        // The contract is that the range reads as zeros.
        // SAFETY: the caller promises it.
        unsafe { start.write_bytes(0, len) };
    }
}
