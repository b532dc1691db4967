//! The control files of the kernel's FUSE connections, which show a connection and can abort it.
//!
//! They are usually mounted at a known place. In many containers and small machines they are not mounted;
//! root then uses a mount of them that no other process sees.

use rustix::fs::{Mode, OFlags, open, openat};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

/// The usual mount point of the control files.
const USUAL: &str = "/sys/fs/fuse/connections";

/// The directory of control files of a connection. Its number is that of the device, as the kernel packs it
/// in 32 bits.
pub(crate) fn files(connection: u64) -> io::Result<OwnedFd> {
    let (name, flags) = (connection.to_string(), OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC);
    match open(Path::new(USUAL).join(&name), flags, Mode::empty()).map_err(io::Error::from) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Ok(openat(aside()?, name, flags, Mode::empty())?)
        }
        done => done,
    }
}

fn aside() -> io::Result<OwnedFd> {
    let made = fsopen("fusectl", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&made)?;
    Ok(fsmount(&made, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?)
}
