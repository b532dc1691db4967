//! The files by which the kernel shows its FUSE connections, and has them ended.
//!
//! Usually they are mounted at a known place. Many containers and small machines do not have them there: then
//! root uses a mount of them that no other process sees.

use rustix::fs::{Mode, OFlags, open, openat};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

/// Where they usually are.
const USUAL: &str = "/sys/fs/fuse/connections";

/// The files of the connection with this number: the number of the device, as the kernel packs it in 32 bits.
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
