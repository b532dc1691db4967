//! Further descriptors of a mount: threads that each read their own do not wait for each other.
#![allow(unsafe_code)] // One ioctl.

use rustix::fs::{Mode, OFlags};
use rustix::io::Result;
use rustix::ioctl::{Updater, ioctl, opcode};
use std::os::fd::{AsRawFd, OwnedFd};

const CLONE: rustix::ioctl::Opcode = opcode::read::<u32>(229, 0);

/// Another descriptor of the mount that `device` serves.
pub(super) fn clone(device: &OwnedFd) -> Result<OwnedFd> {
    let other = rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    let mut number = device.as_raw_fd().cast_unsigned();
    // SAFETY: FUSE_DEV_IOC_CLONE reads one u32, the number of a descriptor, which lives until the call
    // returns.
    unsafe { ioctl(&other, Updater::<CLONE, u32>::new(&mut number)) }?;
    Ok(other)
}
