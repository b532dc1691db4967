//! Finds the device that a command names.
//!
//! # What always holds
//! - A name that begins with a slash is a path. It is kept as given, with symbolic links, because the configuration
//!   stores it. Any other name is searched for in the device directories.

use rustix::io::Errno;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// Directories in which a name without a leading slash is searched for, in this order.
const FOLDERS: [&str; 9] = [
    "/dev/disk/by-vdev",
    "/dev/mapper",
    "/dev/disk/by-partlabel",
    "/dev/disk/by-partuuid",
    "/dev/disk/by-label",
    "/dev/disk/by-uuid",
    "/dev/disk/by-id",
    "/dev/disk/by-path",
    "/dev",
];
/// Directory in which the kernel describes block devices.
const SYS_BLOCK: &str = "/sys/class/block";
/// Prefixes of disks that can have partitions. As in OpenZFS, loop devices are excluded: the kernel would not show
/// their partitions.
const PARTITIONABLE: [&str; 8] = ["sd", "hd", "vd", "xvd", "nvme", "mmcblk", "pmem", "nbd"];

/// A device named by a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceName {
    /// Path as given, or the path found for a name.
    pub path: PathBuf,
    /// True for a block device, false for a file.
    pub is_disk: bool,
    /// True for a disk that can have partitions: it gets a partition table.
    pub is_whole_disk: bool,
    /// Size in bytes; 0 if it is not known.
    pub size: u64,
}

impl DeviceName {
    /// Describes an image file of `size` bytes.
    pub(crate) fn file(path: impl Into<PathBuf>, size: u64) -> DeviceName {
        DeviceName { path: path.into(), is_disk: false, is_whole_disk: false, size }
    }

    /// What messages call it.
    pub(super) fn kind_word(&self) -> &'static str {
        if self.is_disk { "disk" } else { "file" }
    }
}

/// Why a name does not denote a usable device.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PathProblem {
    /// The path does not exist.
    #[error("cannot resolve path '{path}'")]
    Unresolved {
        /// The path as given.
        path: String,
    },
    /// The name is in none of the device directories.
    #[error("cannot open '{name}': no such device in /dev\nmust be a full path or shorthand device name")]
    NoDevice {
        /// The name as given.
        name: String,
    },
    /// Neither a block device nor a regular file.
    #[error("cannot use '{path}': must be a block device or regular file")]
    Type {
        /// The path as given.
        path: String,
    },
    /// The device exists but cannot be examined.
    #[error("cannot open '{path}': {}", super::errno_text(&(*errno).into()))]
    Open {
        /// The path as given.
        path: String,
        /// What the system says.
        errno: Errno,
    },
}

/// Finds a device by path or name.
///
/// # Errors
/// [`PathProblem`] if the device does not exist, is of another type, or cannot be examined.
pub(crate) fn find_device(name: &str) -> Result<DeviceName, PathProblem> {
    if name.starts_with('/') {
        return at(PathBuf::from(name), || PathProblem::Unresolved { path: name.to_owned() });
    }
    let is_plain = !name.is_empty() && !name.starts_with("./") && !name.starts_with("../");
    let candidates = FOLDERS.iter().map(|folder| Path::new(folder).join(name));
    let found = candidates.filter(|_| is_plain).find(|path| path.exists());
    let missing = || PathProblem::NoDevice { name: name.to_owned() };
    at(found.ok_or_else(missing)?, missing)
}

fn at(path: PathBuf, missing: impl FnOnce() -> PathProblem) -> Result<DeviceName, PathProblem> {
    let shown = || path.display().to_string();
    let meta = match std::fs::metadata(&path) {
        Ok(meta) => meta,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Err(missing()),
        Err(e) => {
            let errno = Errno::from_io_error(&e).unwrap_or(Errno::INVAL);
            return Err(PathProblem::Open { path: shown(), errno });
        }
    };
    if meta.is_file() {
        return Ok(DeviceName::file(path, meta.len()));
    }
    if !meta.file_type().is_block_device() {
        return Err(PathProblem::Type { path: shown() });
    }
    let real = std::fs::canonicalize(&path).unwrap_or_else(|_| path.clone());
    let known = real.file_name().map(|name| Path::new(SYS_BLOCK).join(name));
    let sectors = known.as_deref().and_then(|sys| std::fs::read_to_string(sys.join("size")).ok());
    let size = sectors.and_then(|text| text.trim().parse::<u64>().ok()).map_or(0, |n| n.saturating_mul(512));
    Ok(DeviceName { is_whole_disk: is_whole_disk(&real), path, is_disk: true, size })
}

/// True if a block device, given by its path without symbolic links, is a disk that can have partitions.
fn is_whole_disk(real: &Path) -> bool {
    let Some(name) = real.file_name().and_then(|name| name.to_str()) else { return false };
    let is_known = PARTITIONABLE.iter().any(|prefix| name.starts_with(prefix));
    is_known && !Path::new(SYS_BLOCK).join(name).join("partition").exists()
}

/// Path of the first partition of a disk.
pub(super) fn first_partition(disk: &Path) -> PathBuf {
    let text = disk.as_os_str().to_string_lossy();
    let by_link = ["/by-id/", "/by-path/", "/by-vdev/"].iter().any(|folder| text.contains(folder));
    let suffix = match text.chars().last() {
        _ if by_link => "-part1",
        Some(c) if c.is_ascii_digit() => "p1",
        _ => "1",
    };
    PathBuf::from(format!("{text}{suffix}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_as_the_real_tool_judges_them() {
        let text = |name: &str| find_device(name).expect_err("no device").to_string();
        assert_eq!(text("/nosuch/x"), "cannot resolve path '/nosuch/x'");
        for name in ["nosuchdisk", "raidz4", "./f0", "no/such"] {
            let expected = format!(
                "cannot open '{name}': no such device in /dev\nmust be a full path or shorthand device name"
            );
            assert_eq!(text(name), expected);
        }
        assert_eq!(text("/dev/null"), "cannot use '/dev/null': must be a block device or regular file");
        assert_eq!(text("/tmp"), "cannot use '/tmp': must be a block device or regular file");
    }

    #[test]
    fn partitions_are_named_as_the_system_does() {
        for (disk, partition) in [
            ("/dev/sda", "/dev/sda1"),
            ("/dev/nvme0n1", "/dev/nvme0n1p1"),
            ("/dev/loop7", "/dev/loop7p1"),
            ("/dev/disk/by-id/wwn-0x5", "/dev/disk/by-id/wwn-0x5-part1"),
        ] {
            assert_eq!(first_partition(Path::new(disk)), Path::new(partition));
        }
    }
}
