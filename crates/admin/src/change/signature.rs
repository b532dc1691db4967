//! Recognizes contents of a device that are not ZFS, such as file systems, by their magic numbers.
//!
//! A new pool overwrites them, so the commands warn first. Only contents that are common today are known, by the
//! names that other system tools use.

use format::DeviceOffset;
use vdev::Device;

/// A magic number and its position.
struct Magic {
    at: u64,
    bytes: &'static [u8],
    name: &'static str,
}

const fn magic(at: u64, bytes: &'static [u8], name: &'static str) -> Magic {
    Magic { at, bytes, name }
}

const MAGICS: &[Magic] = &[
    magic(0, b"XFSB", "xfs"),
    magic(3, b"NTFS    ", "ntfs"),
    magic(3, b"EXFAT   ", "exfat"),
    magic(54, b"FAT12   ", "vfat"),
    magic(54, b"FAT16   ", "vfat"),
    magic(82, b"FAT32   ", "vfat"),
    magic(0, b"LUKS\xba\xbe", "crypto_LUKS"),
    magic(0, b"hsqs", "squashfs"),
    magic(0x1_0040, b"_BHRfS_M", "btrfs"),
    magic(1024, b"\x10\x20\xf5\xf2", "f2fs"),
    magic(1024, b"\xe2\xe1\xf5\xe0", "erofs"),
    magic(1024, b"H+", "hfsplus"),
    magic(0x8001, b"CD001", "iso9660"),
    magic(0xff6, b"SWAPSPACE2", "swap"),
    magic(0xff6, b"SWAP-SPACE", "swap"),
    magic(536, b"LVM2 001", "LVM2_member"),
    magic(4096, b"\xfc\x4e\x2b\xa9", "linux_raid_member"),
    magic(0, b"\xfc\x4e\x2b\xa9", "linux_raid_member"),
    magic(0x1_0034, b"ReIsEr2Fs", "reiserfs"),
    magic(0x8000, b"JFS1", "jfs"),
    magic(24, b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81", "bcache"),
    magic(4096 + 24, b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81", "bcachefs"),
];

/// The superblock of ext2, ext3 and ext4.
const EXT: DeviceOffset = DeviceOffset(1024);

/// Name of the device's contents, if they are known. Read errors are ignored.
pub(super) fn of_device(device: &dyn Device) -> Option<&'static str> {
    if let Some(ext) = ext(device) {
        return Some(ext);
    }
    let is_there = |magic: &&Magic| {
        read(device, DeviceOffset(magic.at), magic.bytes.len()).is_some_and(|bytes| bytes == magic.bytes)
    };
    MAGICS.iter().find(is_there).map(|magic| magic.name)
}

fn read(device: &dyn Device, at: DeviceOffset, len: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0; len];
    device.read_at(&mut bytes, at).ok().map(|()| bytes)
}

/// Which of ext2, ext3 and ext4 a superblock describes, by its feature flags.
fn ext(device: &dyn Device) -> Option<&'static str> {
    let superblock = read(device, EXT, 256)?;
    let word = |at: usize| superblock.get(at..at + 4)?.first_chunk().copied().map(u32::from_le_bytes);
    if superblock.get(56..58)? != b"\x53\xef" {
        return None;
    }
    let (compatible, incompatible, read_only) = (word(92)?, word(96)?, word(100)?);
    // Features that ext3 does not have: extents, 64 bits, flexible groups, large inodes, …
    let is_ext4 = incompatible & !0x1f != 0 || read_only & !0x7 != 0;
    Some(match (is_ext4, compatible & 4 != 0) {
        (true, _) => "ext4",
        (false, true) => "ext3",
        (false, false) => "ext2",
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use vdev::device::memory::MemoryDevice;

    fn holding(parts: &[(u64, &[u8])]) -> Option<&'static str> {
        let device = MemoryDevice::new(1 << 20);
        for (at, bytes) in parts {
            device.write_at(bytes, DeviceOffset(*at)).expect("in memory");
        }
        of_device(&device)
    }

    #[test]
    fn file_systems_by_their_magic() {
        assert_eq!(holding(&[]), None);
        assert_eq!(holding(&[(0, b"XFSB")]), Some("xfs"));
        assert_eq!(holding(&[(0xff6, b"SWAPSPACE2")]), Some("swap"));
        assert_eq!(holding(&[(0x1_0040, b"_BHRfS_M")]), Some("btrfs"));
        let ext = (1024 + 56, &b"\x53\xef"[..]);
        assert_eq!(holding(&[ext]), Some("ext2"));
        assert_eq!(holding(&[ext, (1024 + 92, b"\x04")]), Some("ext3"));
        assert_eq!(holding(&[ext, (1024 + 96, b"\x40")]), Some("ext4"));
    }

    #[test]
    fn a_device_without_bytes_holds_nothing() {
        assert_eq!(of_device(&MemoryDevice::new(0)), None);
    }
}
