//! The project of a file by its path, as `chattr -p` and `lsattr -p` use it. The file system of the file is
//! asked through the kernel, which decides what a program may change.
//!
//! Tests: here, `crates/cli/tests/commands/mounts.rs`.
#![allow(unsafe_code)] // Two ioctls.

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Result;
use rustix::ioctl::{Getter, Setter, ioctl, opcode};
use std::os::fd::OwnedFd;
use std::path::Path;

/// `struct fsxattr` of `linux/fs.h`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Extended {
    flags: u32,
    extent_size: u32,
    extents: u32,
    project: u32,
    cow_extent_size: u32,
    spare: [u8; 8],
}

const GET: rustix::ioctl::Opcode = opcode::read::<Extended>(b'X', 31);
const SET: rustix::ioctl::Opcode = opcode::write::<Extended>(b'X', 32);
/// Flag: new files in the directory get its project (`FS_XFLAG_PROJINHERIT`).
const INHERITS: u32 = 0x200;

/// An open file or directory whose project can be read and changed.
#[derive(Debug)]
pub struct Projected {
    file: OwnedFd,
    now: Extended,
}

impl Projected {
    /// Opens a regular file or a directory. Symbolic links are followed.
    ///
    /// # Errors
    /// The error of opening it; `ENOTTY` or `EOPNOTSUPP` if its file system has no projects.
    pub fn open(path: &Path) -> Result<Projected> {
        let flags = OFlags::RDONLY | OFlags::NOCTTY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = openat(CWD, path, flags, Mode::empty())?;
        // SAFETY: FS_IOC_FSGETXATTR fills one `struct fsxattr`, which any bytes are valid for.
        let now = unsafe { ioctl(&file, Getter::<GET, Extended>::new()) }?;
        Ok(Projected { file, now })
    }

    /// Project id of the file.
    pub fn project(&self) -> u32 {
        self.now.project
    }

    /// Whether new files in the directory get its project.
    pub fn inherits(&self) -> bool {
        self.now.flags & INHERITS != 0
    }

    /// Changes the project and the inheritance, where given.
    ///
    /// # Errors
    /// The error of the file system.
    pub fn change(&mut self, project: Option<u32>, inherits: Option<bool>) -> Result<()> {
        let mut new = self.now;
        new.project = project.unwrap_or(new.project);
        if let Some(inherits) = inherits {
            new.flags = if inherits { new.flags | INHERITS } else { new.flags & !INHERITS };
        }
        if new != self.now {
            // SAFETY: FS_IOC_FSSETXATTR reads one `struct fsxattr`.
            unsafe { ioctl(&self.file, Setter::<SET, Extended>::new(new)) }?;
            self.now = new;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::Errno;

    #[test]
    fn the_structure_is_that_of_the_kernel() {
        assert_eq!(size_of::<Extended>(), 28);
        assert_eq!((GET, SET), (0x801c_581f, 0x401c_5820));
    }

    #[test]
    fn what_is_not_there_or_has_no_projects_is_refused() {
        let refused = |path: &str| Projected::open(Path::new(path)).expect_err("refused");
        assert_eq!(refused("/nowhere/at/all"), Errno::NOENT);
        assert!(matches!(refused("/proc/self"), Errno::NOTTY | Errno::OPNOTSUPP));
    }
}
