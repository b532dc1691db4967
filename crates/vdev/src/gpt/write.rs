//! Partitioning a whole disk for a pool, with the partition table that OpenZFS makes.
//!
//! Partition 1 holds the leaf. Partition 9, 16384 sectors near the end, is unused: it makes up for size
//! differences between disks that are nominally equal. There are a primary and a backup table, and an MBR
//! that covers the disk for programs without GPT support. Equal to a table of OpenZFS byte for byte, given
//! the same identity (test with the golden pool `wholedisk`).

use super::table::{MBR_OF_GPT, MBR_SIZE, Partition, SECTORS, SIGNATURE, crc32};
use crate::device::{Device, DeviceError};
use crate::env::Env;
use format::DeviceOffset;
use format::label::DEVICE_MIN;

/// Type of a partition with a leaf, 6a898cc3-1dd2-11b2-99a6-080020736631, as stored.
pub(crate) const TYPE_ZFS: [u8; 16] = *b"\xc3\x8c\x89\x6a\xd2\x1d\xb2\x11\x99\xa6\x08\x00\x20\x73\x66\x31";
/// Type of the reserved partition, 6a945a3b-1dd2-11b2-99a6-080020736631, as stored.
pub(crate) const TYPE_RESERVED: [u8; 16] =
    *b"\x3b\x5a\x94\x6a\xd2\x1d\xb2\x11\x99\xa6\x08\x00\x20\x73\x66\x31";

/// Number of entries of the table.
const ENTRIES: usize = 128;
/// Bytes of an entry of the table.
const ENTRY_SIZE: usize = 128;
/// Partitions start at multiples of so many sectors.
const ALIGN_SECTORS: u64 = 2048;
/// Sectors of the reserved partition.
const RESERVED_SECTORS: u64 = 16_384;
/// Index of the entry of the reserved partition, number 9.
const RESERVED_INDEX: usize = 8;
const HEADER_SIZE: usize = 92;
const REVISION: u32 = 0x1_0000;

/// Why a disk could not be partitioned.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GptWriteError {
    /// The disk is too small for a leaf and the reserved partition.
    #[error("a disk of {size} bytes is too small")]
    TooSmall {
        /// Bytes of the whole disk.
        size: u64,
    },
    /// No partition table is defined for this sector size.
    #[error("sectors of {sector} bytes")]
    Sector {
        /// Bytes of a sector of the disk.
        sector: u64,
    },
    /// A write failed. The disk may have no valid table now.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

/// The identity of a table: guids of the disk and of its partitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// Guid of the disk, in stored byte order like the other guids.
    pub disk: [u8; 16],
    /// Guid of the partition with the leaf.
    pub zfs: [u8; 16],
    /// Guid of the reserved partition.
    pub reserved: [u8; 16],
    /// Number in the name of the partition with the leaf: "zfs-" and 16 hexadecimal digits.
    pub name: u64,
}

impl Identity {
    /// An identity of random guids.
    pub fn random(env: &Env) -> Identity {
        let guid = || {
            let mut bytes = [0; 16];
            bytes[..8].copy_from_slice(&env.random().to_le_bytes());
            bytes[8..].copy_from_slice(&env.random().to_le_bytes());
            // Version 4, random, of the usual variant. The third field is stored little-endian.
            bytes[7] = bytes[7] & 0x0f | 0x40;
            bytes[8] = bytes[8] & 0x3f | 0x80;
            bytes
        };
        Identity { disk: guid(), zfs: guid(), reserved: guid(), name: env.random() }
    }
}

/// Positions on the disk, in sectors.
struct Plan {
    sector: u64,
    /// The last sector of the disk.
    last: u64,
    /// Sectors of the entries.
    table: u64,
    /// First sector of the reserved partition; the partition with the leaf ends before it.
    reserved: u64,
}

impl Plan {
    fn new(size: u64, sector: u64) -> Result<Plan, GptWriteError> {
        if !SECTORS.contains(&sector) {
            return Err(GptWriteError::Sector { sector });
        }
        let too_small = GptWriteError::TooSmall { size };
        let table = (ENTRIES * ENTRY_SIZE) as u64 / sector;
        let last = (size / sector).checked_sub(1).ok_or(too_small.clone())?;
        let behind = last.checked_sub(table + RESERVED_SECTORS).ok_or(too_small.clone())?;
        let reserved = behind / ALIGN_SECTORS * ALIGN_SECTORS;
        let leaf = reserved.saturating_sub(ALIGN_SECTORS) * sector;
        if leaf < DEVICE_MIN { Err(too_small) } else { Ok(Plan { sector, last, table, reserved }) }
    }

    fn entries(&self, identity: &Identity) -> Vec<u8> {
        let mut entries = vec![0; ENTRIES * ENTRY_SIZE];
        let mut put = |index: usize, kind: [u8; 16], guid: [u8; 16], first: u64, end: u64, name: &str| {
            let entry = &mut entries[index * ENTRY_SIZE..][..ENTRY_SIZE];
            entry[..16].copy_from_slice(&kind);
            entry[16..32].copy_from_slice(&guid);
            entry[32..40].copy_from_slice(&first.to_le_bytes());
            entry[40..48].copy_from_slice(&(end - 1).to_le_bytes());
            for (place, unit) in entry[56..].chunks_exact_mut(2).zip(name.encode_utf16()) {
                place.copy_from_slice(&unit.to_le_bytes());
            }
        };
        let name = format!("zfs-{:016x}", identity.name);
        put(0, TYPE_ZFS, identity.zfs, ALIGN_SECTORS, self.reserved, &name);
        let end = self.reserved + RESERVED_SECTORS;
        put(RESERVED_INDEX, TYPE_RESERVED, identity.reserved, self.reserved, end, "");
        entries
    }

    /// The sector of a header at `place` for the entries at `table`; `other` is the other header.
    fn header(&self, identity: &Identity, entries: &[u8], place: u64, other: u64, table: u64) -> Vec<u8> {
        let mut header = Vec::with_capacity(self.sector as usize);
        header.extend_from_slice(SIGNATURE);
        [REVISION, HEADER_SIZE as u32, 0, 0].iter().for_each(|n| header.extend(n.to_le_bytes()));
        let usable = [2 + self.table, self.last - self.table - 1];
        [place, other, usable[0], usable[1]].iter().for_each(|n| header.extend(n.to_le_bytes()));
        header.extend_from_slice(&identity.disk);
        header.extend(table.to_le_bytes());
        [ENTRIES as u32, ENTRY_SIZE as u32, crc32(entries)]
            .iter()
            .for_each(|n| header.extend(n.to_le_bytes()));
        assert_eq!(header.len(), HEADER_SIZE, "the header has the size that it states");
        let crc = crc32(&header);
        header[16..20].copy_from_slice(&crc.to_le_bytes());
        header.resize(self.sector as usize, 0);
        header
    }

    /// The sector with the MBR: one entry over the whole disk.
    fn mbr(&self) -> Vec<u8> {
        let mut mbr = vec![0; self.sector as usize];
        let entry = &mut mbr[446..462];
        entry[1..4].fill(0xff);
        entry[4] = MBR_OF_GPT;
        entry[5..8].fill(0xff);
        entry[8..12].copy_from_slice(&1u32.to_le_bytes());
        let sectors = u32::try_from(self.last).unwrap_or(u32::MAX);
        entry[12..].copy_from_slice(&sectors.to_le_bytes());
        mbr[510..MBR_SIZE].copy_from_slice(&[0x55, 0xaa]);
        mbr
    }
}

/// Partitions a whole disk; its former contents are no longer found. Returns the partition for the leaf. On
/// return the table is durable, and the system has been asked to read it; the device of the partition may
/// appear a little later.
///
/// # Errors
/// [`GptWriteError`] if the disk is too small, or a write or flush fails; the disk then has no valid table,
/// or only one of the two.
pub fn write(disk: &dyn Device, identity: &Identity) -> Result<Partition, GptWriteError> {
    let plan = Plan::new(disk.size(), disk.sector_sizes().0)?;
    let entries = plan.entries(identity);
    let put = |bytes: &[u8], sector: u64| disk.write_at(bytes, DeviceOffset(sector * plan.sector));
    // The backup first: at any moment one of the two is complete, the old or the new.
    let behind = plan.last - plan.table;
    put(&entries, behind)?;
    put(&plan.header(identity, &entries, plan.last, 1, behind), plan.last)?;
    disk.flush()?;
    put(&plan.mbr(), 0)?;
    put(&entries, 2)?;
    put(&plan.header(identity, &entries, 1, plan.last, 2), 1)?;
    disk.flush()?;
    disk.reread_partitions()?;
    let start = ALIGN_SECTORS * plan.sector;
    Ok(Partition { number: 1, start: DeviceOffset(start), len: plan.reserved * plan.sector - start })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Device;
    use crate::device::memory::MemoryDevice;
    use crate::gpt::partitions;

    /// A disk with sectors of 4 KiB.
    #[derive(Debug)]
    struct Large(MemoryDevice);

    impl Device for Large {
        fn size(&self) -> u64 {
            self.0.size()
        }

        fn read_at(&self, buf: &mut [u8], at: DeviceOffset) -> Result<(), DeviceError> {
            self.0.read_at(buf, at)
        }

        fn write_at(&self, buf: &[u8], at: DeviceOffset) -> Result<(), DeviceError> {
            assert!(at.0.is_multiple_of(4096) && buf.len().is_multiple_of(4096), "{} at {at}", buf.len());
            self.0.write_at(buf, at)
        }

        fn sector_sizes(&self) -> (u64, u64) {
            (4096, 4096)
        }
    }

    fn identity(seed: u64) -> Identity {
        Identity::random(&Env::simulated(seed).0)
    }

    #[test]
    fn written_tables_are_read_back() {
        for (disk, sector) in [
            (Box::new(MemoryDevice::new((128 << 20) + 512 * 7)) as Box<dyn Device>, 512),
            (Box::new(MemoryDevice::new(16 << 40)), 512),
            (Box::new(Large(MemoryDevice::new(1 << 30))), 4096),
        ] {
            let zfs = write(&*disk, &identity(1)).unwrap();
            let found = partitions(&*disk).unwrap().unwrap();
            assert_eq!(found.iter().map(|found| found.number).collect::<Vec<_>>(), [1, 9]);
            assert_eq!((found[0], found[0].start.0), (zfs, 2048 * sector));
            let (one, nine) = (found[0], found[1]);
            assert_eq!((one.start.0 + one.len, nine.len), (nine.start.0, 16_384 * sector));
            assert!(nine.start.0.is_multiple_of(2048 * sector));
            let end = disk.size() / sector * sector - (16 << 10) - sector;
            assert!(nine.start.0 + nine.len <= end && end - (nine.start.0 + nine.len) < 2048 * sector);
            // Each of the two tables alone.
            for header in [1, disk.size() / sector - 1] {
                write(&*disk, &identity(2)).unwrap();
                disk.write_at(&vec![0; sector as usize], DeviceOffset(header * sector)).unwrap();
                assert_eq!(partitions(&*disk).unwrap().unwrap(), found);
            }
        }
    }

    #[test]
    fn small_disks_are_refused() {
        for size in [0, 512, 1 << 20, (64 << 20) + (9 << 20)] {
            let error = write(&MemoryDevice::new(size), &identity(3)).unwrap_err();
            assert_eq!(error, GptWriteError::TooSmall { size });
        }
        assert!(write(&MemoryDevice::new((64 << 20) + (11 << 20)), &identity(3)).is_ok());
    }

    #[test]
    fn identities_are_random_guids() {
        let one = identity(4);
        assert!(one.disk != one.zfs && one.zfs != one.reserved && one != identity(5));
        for guid in [one.disk, one.zfs, one.reserved] {
            assert_eq!((guid[7] >> 4, guid[8] >> 6), (4, 2));
        }
    }
}
