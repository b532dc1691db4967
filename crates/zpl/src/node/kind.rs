//! Kinds of files and device numbers, in the forms of modes, directory entries and attributes.

use std::fmt;

/// Kind of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FileKind {
    /// A named pipe.
    Fifo,
    /// A character device.
    CharDevice,
    /// A directory.
    Directory,
    /// A block device.
    BlockDevice,
    /// A regular file.
    Regular,
    /// A symbolic link.
    Symlink,
    /// A socket.
    Socket,
}

impl FileKind {
    /// The kind in `(mode & S_IFMT) >> 12`; `None` if that is no kind.
    pub(crate) fn from_type(bits: u8) -> Option<FileKind> {
        Some(match bits {
            1 => FileKind::Fifo,
            2 => FileKind::CharDevice,
            4 => FileKind::Directory,
            6 => FileKind::BlockDevice,
            8 => FileKind::Regular,
            10 => FileKind::Symlink,
            12 => FileKind::Socket,
            _ => return None,
        })
    }

    /// The kind in `st_mode`; `None` if that is no kind.
    pub fn from_mode(mode: u32) -> Option<FileKind> {
        FileKind::from_type((mode >> 12 & 0xF) as u8)
    }

    /// Inverse of [`FileKind::from_type`]: type of a directory entry, `(mode & S_IFMT) >> 12`.
    pub(crate) fn type_bits(self) -> u8 {
        match self {
            FileKind::Fifo => 1,
            FileKind::CharDevice => 2,
            FileKind::Directory => 4,
            FileKind::BlockDevice => 6,
            FileKind::Regular => 8,
            FileKind::Symlink => 10,
            FileKind::Socket => 12,
        }
    }

    /// The bits of the kind in `st_mode`.
    pub(crate) fn mode_bits(self) -> u32 {
        u32::from(self.type_bits()) << 12
    }
}

impl fmt::Display for FileKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FileKind::Fifo => "named pipe",
            FileKind::CharDevice => "character device",
            FileKind::Directory => "directory",
            FileKind::BlockDevice => "block device",
            FileKind::Regular => "regular file",
            FileKind::Symlink => "symbolic link",
            FileKind::Socket => "socket",
        })
    }
}

/// Decodes major and minor number. Linux stores its 32-bit form, with 12 and 20 bits; other systems 32 bits
/// each. A number with an empty high half is of the first form, because no device has major 0.
pub(crate) fn decode_device(rdev: u64) -> (u32, u32) {
    match (rdev >> 32) as u32 {
        0 => ((rdev >> 20) as u32, (rdev & 0xF_FFFF) as u32),
        major => (major, rdev as u32),
    }
}

/// Inverse of [`decode_device`]: the form of Linux if the numbers fit, otherwise 32 bits each.
pub(crate) fn encode_device(major: u32, minor: u32) -> u64 {
    if major < 1 << 12 && minor < 1 << 20 {
        u64::from(major) << 20 | u64::from(minor)
    } else {
        u64::from(major) << 32 | u64::from(minor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_numbers_of_linux_and_of_others() {
        for (stored, numbers) in
            [(0x10_0003, (1, 3)), (259 << 20 | 70000, (259, 70000)), (0x5_0000_0001, (5, 1)), (0, (0, 0))]
        {
            assert_eq!(decode_device(stored), numbers);
            if numbers.0 != 5 {
                assert_eq!(encode_device(numbers.0, numbers.1), stored);
            }
        }
    }
}
