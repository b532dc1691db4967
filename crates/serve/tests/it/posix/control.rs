//! Control calls (ioctl) of files, by number.
#![allow(unsafe_code)] // They have no safe form.

use rustix::io::Errno;
use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, ioctl};
use std::ffi::c_void;
use std::os::fd::OwnedFd;

/// Space for `struct fsxattr`, the longest input and output.
pub(crate) type Words = [u8; 28];

struct Call {
    number: u32,
    words: Words,
}

// SAFETY: the words are owned by the call and outlive it. The kernel reads and writes as many bytes as the
// number says, which `call` has compared with their length.
unsafe impl Ioctl for Call {
    type Output = Words;
    const IS_MUTATING: bool = true;

    fn opcode(&self) -> Opcode {
        self.number as Opcode
    }

    fn as_ptr(&mut self) -> *mut c_void {
        self.words.as_mut_ptr().cast()
    }

    unsafe fn output_from_ptr(_: IoctlOutput, words: *mut c_void) -> rustix::io::Result<Words> {
        // SAFETY: these are the words of the call.
        Ok(unsafe { *words.cast::<Words>() })
    }
}

/// Makes a call with these words; returns the words after it.
pub(crate) fn call(file: &OwnedFd, number: u32, words: Words) -> Result<Words, Errno> {
    let len = (number >> 16 & 0x3fff) as usize;
    assert!(len <= words.len(), "{number:x}");
    // SAFETY: all the memory that the call may touch is its own.
    unsafe { ioctl(file, Call { number, words }) }
}
