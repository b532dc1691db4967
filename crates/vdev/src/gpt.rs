//! Partition tables: finding the partitions of a disk, and partitioning a disk that is given to ZFS as a
//! whole.
//!
//! A small reader of GUID partition tables and of the four primary partitions of an MBR: enough for a disk
//! image whose partitions the kernel does not show. The primary GPT is used if its checksums are right,
//! otherwise the backup at the end of the disk; sectors of 512 and 4096 bytes are tried. All partitions are
//! searched for labels, because systems give ZFS partitions various types.
//!
//! # What always holds
//! - No field of a GPT is used before both checksums (header, entries) are verified. An MBR has none.
//! - At most 1 MiB of entries is read, however many the header states.
//! - A returned partition lies within the disk; one that begins there and ends beyond it, as in a truncated
//!   image, is returned up to the end of the disk.

mod table;
mod write;

pub use table::Partition;
pub use write::{GptWriteError, Identity, write};

use crate::device::{Device, DeviceError};
use format::{DeviceOffset, Endian};
use table::{MBR_OF_GPT, MBR_SIZE, SECTORS, SIGNATURE, crc32};

const HEADER_MIN: usize = 92;
const ENTRY_MIN: u64 = 128;
const ENTRIES_MAX: u64 = 1 << 20;

/// The partitions of a disk, in the order of the table; `None` if there is no valid table.
///
/// # Errors
/// [`DeviceError`] if a table could not be read and no other table is valid.
pub fn partitions(disk: &dyn Device) -> Result<Option<Vec<Partition>>, DeviceError> {
    let mut failure = None;
    for sector in SECTORS {
        let Some(backup) = (disk.size() / sector).checked_sub(1) else { continue };
        for place in [1, backup] {
            match read_table(disk, sector, place) {
                Ok(Some(table)) => return Ok(Some(table)),
                Ok(None) => {}
                Err(error) => failure = failure.or(Some(error)),
            }
        }
    }
    match (read_mbr(disk)?, failure) {
        (None, Some(error)) => Err(error),
        (found, _) => Ok(found),
    }
}

/// The primary partitions of a master boot record; `None` if there is none, or if it only protects a GPT.
fn read_mbr(disk: &dyn Device) -> Result<Option<Vec<Partition>>, DeviceError> {
    let mut block = [0; MBR_SIZE];
    if disk.size() < MBR_SIZE as u64 {
        return Ok(None);
    }
    disk.read_at(&mut block, DeviceOffset(0))?;
    let Some(entries) = block.get(446..510).filter(|_| block.ends_with(&[0x55, 0xaa])) else {
        return Ok(None);
    };
    let mut found = Vec::new();
    for (i, entry) in entries.chunks_exact(16).enumerate() {
        let le = Endian::Little;
        let (kind, first) = (entry.get(4).copied().unwrap_or(0), le.get_u32(entry, 8).unwrap_or(0));
        let count = le.get_u32(entry, 12).unwrap_or(0);
        if kind == MBR_OF_GPT {
            return Ok(None);
        }
        let (start, end) = (u64::from(first) * 512, (u64::from(first) + u64::from(count)) * 512);
        if kind != 0 {
            found.extend(partition(i + 1, start, end, disk.size()));
        }
    }
    Ok((!found.is_empty()).then_some(found))
}

/// A partition, cut off at the end of the disk; `None` if no part of it is on the disk.
fn partition(number: usize, start: u64, end: u64, disk_size: u64) -> Option<Partition> {
    let end = end.min(disk_size);
    // The length is computed only if the end is after the start.
    (start > 0 && start < end).then(|| Partition { number, start: DeviceOffset(start), len: end - start })
}

/// The checked fields of a header.
struct Header {
    entries_at: u64,
    count: u64,
    entry_size: u64,
    entries_crc: u32,
}

/// Reads the table with its header in sector `place`; `None` if there is none.
fn read_table(disk: &dyn Device, sector: u64, place: u64) -> Result<Option<Vec<Partition>>, DeviceError> {
    let Some(at) = place.checked_mul(sector) else { return Ok(None) };
    if at.checked_add(sector).is_none_or(|end| end > disk.size()) {
        return Ok(None);
    }
    let mut block = vec![0; sector as usize];
    disk.read_at(&mut block, DeviceOffset(at))?;
    let Some(header) = decode_header(&block, sector, place, disk.size()) else { return Ok(None) };
    let mut entries = vec![0; (header.count * header.entry_size) as usize];
    disk.read_at(&mut entries, DeviceOffset(header.entries_at))?;
    if crc32(&entries) != header.entries_crc {
        return Ok(None);
    }
    let table = entries
        .chunks_exact(header.entry_size as usize)
        .enumerate()
        .filter_map(|(i, entry)| decode_entry(i + 1, entry, sector, disk.size()))
        .collect();
    Ok(Some(table))
}

/// Decodes a header; `None` unless it is valid for this place on this disk.
fn decode_header(block: &[u8], sector: u64, place: u64, disk_size: u64) -> Option<Header> {
    let le = Endian::Little;
    if block.get(..8)? != SIGNATURE {
        return None;
    }
    let len = le.get_u32(block, 12)? as usize;
    if len < HEADER_MIN || le.get_u64(block, 24)? != place {
        return None;
    }
    let mut header = block.get(..len)?.to_vec();
    let crc = le.get_u32(&header, 16)?;
    header.get_mut(16..20)?.fill(0);
    if crc32(&header) != crc {
        return None;
    }
    let entries_at = le.get_u64(block, 72)?.checked_mul(sector)?;
    let (count, entry_size) = (u64::from(le.get_u32(block, 80)?), u64::from(le.get_u32(block, 84)?));
    let total = count.checked_mul(entry_size)?;
    let fits = entries_at.checked_add(total)? <= disk_size && total <= ENTRIES_MAX;
    let sane = entry_size >= ENTRY_MIN && entry_size.is_multiple_of(8) && fits;
    sane.then_some(Header { entries_at, count, entry_size, entries_crc: le.get_u32(block, 88)? })
}

/// `None` for an unused entry or one that is not on the disk.
fn decode_entry(number: usize, entry: &[u8], sector: u64, disk_size: u64) -> Option<Partition> {
    let kind: [u8; 16] = entry.get(..16)?.try_into().ok()?;
    let (first, last) = (Endian::Little.get_u64(entry, 32)?, Endian::Little.get_u64(entry, 40)?);
    let start = first.checked_mul(sector)?;
    let end = last.checked_add(1)?.checked_mul(sector)?;
    if kind == [0; 16] { None } else { partition(number, start, end, disk_size) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::memory::MemoryDevice;
    use crate::device::sim::{Power, SimDisk};
    use std::sync::Arc;

    /// A disk with one partition from 1 MiB on and the usual reserved one behind it.
    fn disk(sector: u64, size: u64) -> MemoryDevice {
        let disk = MemoryDevice::new(size);
        let last = size / sector - 1;
        let mut entries = vec![0; 128 * 128];
        let mut entry = |i: usize, kind: [u8; 16], start: u64, end: u64| {
            let e = &mut entries[i * 128..(i + 1) * 128];
            e[..16].copy_from_slice(&kind);
            e[32..40].copy_from_slice(&start.to_le_bytes());
            e[40..48].copy_from_slice(&end.to_le_bytes());
        };
        entry(0, [1; 16], (1 << 20) / sector, last - (9 << 20) / sector);
        entry(8, [7; 16], last - (8 << 20) / sector, last - (1 << 20) / sector);
        for (place, table) in [(1, 2), (last, last - 32)] {
            let mut header = vec![0; 92];
            header[..8].copy_from_slice(SIGNATURE);
            header[12..16].copy_from_slice(&92u32.to_le_bytes());
            header[24..32].copy_from_slice(&u64::to_le_bytes(place));
            header[72..80].copy_from_slice(&u64::to_le_bytes(table));
            header[80..84].copy_from_slice(&128u32.to_le_bytes());
            header[84..88].copy_from_slice(&128u32.to_le_bytes());
            header[88..92].copy_from_slice(&crc32(&entries).to_le_bytes());
            let crc = crc32(&header);
            header[16..20].copy_from_slice(&crc.to_le_bytes());
            disk.write_at(&header, DeviceOffset(place * sector)).unwrap();
            disk.write_at(&entries, DeviceOffset(table * sector)).unwrap();
        }
        disk
    }

    #[test]
    fn crc_of_the_check_string() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    }

    #[test]
    fn finds_the_partitions() {
        for sector in SECTORS {
            let found = partitions(&disk(sector, 128 << 20)).unwrap().unwrap();
            assert_eq!((found.len(), found[0].number, found[1].number), (2, 1, 9));
            assert_eq!((found[0].start, found[0].len), (DeviceOffset(1 << 20), (128 << 20) - (10 << 20)));
        }
    }

    #[test]
    fn the_backup_serves_when_the_primary_is_broken() {
        for at in [512 + 9, 512 + 60, 1024 + 33] {
            let disk = disk(512, 64 << 20);
            disk.write_at(&[0xff], DeviceOffset(at)).unwrap();
            assert!(partitions(&disk).unwrap().is_some(), "byte {at} broken");
            disk.write_at(&[0xff], DeviceOffset((64 << 20) - 512 + 20)).unwrap();
            assert_eq!(partitions(&disk).unwrap(), None, "both broken");
        }
    }

    #[test]
    fn the_backup_serves_when_the_primary_cannot_be_read() {
        let last = (64 << 20) - 512;
        for unreadable in [512, 1024] {
            let disk = SimDisk::over(Arc::new(disk(512, 64 << 20)), 1, Power::new());
            disk.make_unreadable(DeviceOffset(unreadable), 512);
            assert_eq!(partitions(&disk).unwrap().unwrap().len(), 2);
            disk.make_unreadable(DeviceOffset(last), 512);
            assert!(partitions(&disk).is_err());
        }
    }

    #[test]
    fn a_partition_of_a_disk_that_was_cut_off_goes_to_its_end() {
        let whole = disk(512, 64 << 20);
        let mut front = vec![0; 40 << 20];
        whole.read_at(&mut front, DeviceOffset(0)).unwrap();
        let found = partitions(&MemoryDevice::from_bytes(&front)).unwrap().unwrap();
        assert_eq!(found, [Partition { number: 1, start: DeviceOffset(1 << 20), len: 39 << 20 }]);
    }

    #[test]
    fn primary_partitions_of_an_mbr() {
        let disk = MemoryDevice::new(64 << 20);
        let mut entry = [0; 16];
        entry[4] = 0xbf;
        entry[8..12].copy_from_slice(&2048u32.to_le_bytes());
        entry[12..].copy_from_slice(&4096u32.to_le_bytes());
        disk.write_at(&entry, DeviceOffset(446 + 32)).unwrap();
        assert_eq!(partitions(&disk).unwrap(), None, "not signed");
        disk.write_at(&[0x55, 0xaa], DeviceOffset(510)).unwrap();
        let expected = Partition { number: 3, start: DeviceOffset(1 << 20), len: 2 << 20 };
        assert_eq!(partitions(&disk).unwrap(), Some(vec![expected]));
        disk.write_at(&[MBR_OF_GPT], DeviceOffset(446 + 4)).unwrap();
        assert_eq!(partitions(&disk).unwrap(), None, "stands for a GPT");
    }

    #[test]
    fn a_partition_that_ends_before_it_starts_is_none() {
        let mut entry = [7; 128];
        entry[32..40].copy_from_slice(&20u64.to_le_bytes());
        entry[40..48].copy_from_slice(&10u64.to_le_bytes());
        assert_eq!(decode_entry(1, &entry, 512, 1 << 20), None);
        entry[40..48].copy_from_slice(&20u64.to_le_bytes());
        assert_eq!(decode_entry(1, &entry, 512, 1 << 20).map(|found| found.len), Some(512));
    }

    #[test]
    fn no_table_on_an_empty_or_tiny_disk() {
        for size in [0, 100, 512, 1024, 4096, 1 << 20] {
            assert_eq!(partitions(&MemoryDevice::new(size)).unwrap(), None);
        }
    }
}
