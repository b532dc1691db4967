//! Constants and types shared by the reader and the writer of partition tables.

use format::DeviceOffset;

/// The first bytes of the header of a GUID partition table.
pub(super) const SIGNATURE: &[u8] = b"EFI PART";
/// Supported sector sizes of a table, in bytes.
pub(super) const SECTORS: [u64; 2] = [512, 4096];
/// Bytes of a master boot record.
pub(super) const MBR_SIZE: usize = 512;
/// Type of the MBR entry that covers a disk with a GPT.
pub(super) const MBR_OF_GPT: u8 = 0xee;

/// A partition of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Partition {
    /// Number in the table, from 1.
    pub(crate) number: usize,
    /// First byte on the disk.
    pub start: DeviceOffset,
    /// Number of bytes of the partition.
    pub len: u64,
}

/// CRC-32 as in Ethernet and GPT.
pub(super) fn crc32(bytes: &[u8]) -> u32 {
    const TABLE: [u32; 256] = {
        let mut table = [0; 256];
        let mut i = 0;
        while i < 256 {
            let mut crc = i as u32;
            let mut bit = 0;
            while bit < 8 {
                crc = if crc & 1 == 1 { (crc >> 1) ^ 0xedb8_8320 } else { crc >> 1 };
                bit += 1;
            }
            table[i] = crc;
            i += 1;
        }
        table
    };
    !bytes.iter().fold(!0, |crc, byte| (crc >> 8) ^ TABLE[((crc ^ u32::from(*byte)) & 0xff) as usize])
}
