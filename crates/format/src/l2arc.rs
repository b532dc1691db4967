//! Cache devices: the header and log blocks that let a cache survive a restart
//! (docs/on-disk/14-vdevs.md, section 12).
//!
//! No data on a cache device is needed to read a pool. Header and log blocks are in the byte order of their writer,
//! which the magic number shows.

use crate::endian::bits;
use crate::{DecodeError, DeviceOffset, Dva, Endian, Lsize, PoolGuid, Psize, Txg, VdevGuid};

/// Magic number of a device header: "ZFSCACHE".
pub const HEADER_MAGIC: u64 = 0x5a46_5343_4143_4845;
/// Magic number of a log block: "LOGBLKHD".
pub const LOG_BLOCK_MAGIC: u64 = 0x4c4f_4742_4c4b_4844;
/// Number of bytes of a header that are decoded; the rest is zero up to the trailer.
pub const HEADER_SIZE: usize = 232;
/// Size of a decompressed log block in bytes.
#[cfg(test)]
pub(crate) const LOG_BLOCK_SIZE: usize = 64 << 10;
/// Maximum number of entries of a log block.
pub(crate) const LOG_ENTRIES: usize = 1022;

const WHAT: &str = "cache device";
const POINTER_SIZE: usize = 64;
const ENTRIES_AT: usize = 128;

fn order_by_magic(bytes: &[u8], expected: u64) -> Result<Endian, DecodeError> {
    let found = Endian::Little.u64(WHAT, bytes, 0)?;
    match found {
        _ if found == expected => Ok(Endian::Little),
        _ if found.swap_bytes() == expected => Ok(Endian::Big),
        _ => Err(DecodeError::Magic { what: WHAT, found, expected }),
    }
}

/// Pointer to a log block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LogBlockPtr {
    /// Offset of the log block on the device.
    pub address: DeviceOffset,
    /// Bytes of the cached blocks that it describes.
    pub(crate) payload_asize: u64,
    /// Offset of the first of these on the device.
    pub(crate) payload_start: DeviceOffset,
    /// Sizes, compression and checksum, packed into bit fields.
    pub(crate) prop: u64,
    /// Fletcher-4 of the stored bytes.
    pub(crate) checksum: [u64; 4],
}

impl LogBlockPtr {
    fn decode(bytes: &[u8], at: usize, order: Endian) -> Result<LogBlockPtr, DecodeError> {
        let [address, payload_asize, payload_start, prop, checksum @ ..] =
            order.words::<8>(WHAT, bytes, at)?;
        Ok(LogBlockPtr {
            address: DeviceOffset(address),
            payload_asize,
            payload_start: DeviceOffset(payload_start),
            prop,
            checksum,
        })
    }
}

/// The header of a cache device, at the start of its allocatable space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheHeader {
    /// Version of the format: 1.
    pub version: u64,
    /// Guid of the pool whose blocks the device caches.
    pub pool_guid: PoolGuid,
    /// Guid of the cache device.
    pub(crate) vdev_guid: VdevGuid,
    /// Entries per log block; 0: no log, the device is too small.
    pub log_entries: u64,
    /// Blocks between the write position and this offset were evicted.
    pub evict: DeviceOffset,
    /// Bit 0: the device was not filled completely yet.
    pub flags: u64,
    /// Offset of the first byte in use.
    pub start: DeviceOffset,
    /// Offset after the last byte in use.
    pub end: DeviceOffset,
    /// The newest log block and its predecessor.
    pub newest: [LogBlockPtr; 2],
    /// Bytes used by log blocks.
    pub log_asize: u64,
    /// Number of log blocks on the device.
    pub log_count: u64,
    /// Time of the last change of the trim state, in seconds since 1970.
    pub trim_time: u64,
    /// State of the initial TRIM of the device.
    pub trim_state: u64,
    /// Byte order of the writer.
    pub(crate) order: Endian,
}

impl CacheHeader {
    /// Reads a header; its trailer is checked elsewhere.
    ///
    /// # Errors
    /// [`DecodeError::Short`], [`DecodeError::Magic`]; [`DecodeError::Field`] for an unknown version or
    /// an impossible number of entries.
    pub fn decode(bytes: &[u8]) -> Result<CacheHeader, DecodeError> {
        DecodeError::need(WHAT, HEADER_SIZE, bytes.len())?;
        let order = order_by_magic(bytes, HEADER_MAGIC)?;
        let [_, version, pool, vdev, log_entries, evict, flags, start, end] =
            order.words::<9>(WHAT, bytes, 0)?;
        if version != 1 {
            return Err(DecodeError::field(WHAT, "version", version));
        }
        if log_entries > LOG_ENTRIES as u64 {
            return Err(DecodeError::field(WHAT, "log entries per block", log_entries));
        }
        let [log_asize, log_count, trim_time, trim_state] =
            order.words(WHAT, bytes, 72 + 2 * POINTER_SIZE)?;
        Ok(CacheHeader {
            version,
            pool_guid: PoolGuid(pool),
            vdev_guid: VdevGuid(vdev),
            log_entries,
            evict: DeviceOffset(evict),
            flags,
            start: DeviceOffset(start),
            end: DeviceOffset(end),
            newest: [
                LogBlockPtr::decode(bytes, 72, order)?,
                LogBlockPtr::decode(bytes, 72 + POINTER_SIZE, order)?,
            ],
            log_asize,
            log_count,
            trim_time,
            trim_state,
            order,
        })
    }
}

/// One cached block in a log block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheEntry {
    /// The block's address in the pool.
    pub(crate) dva: Dva,
    /// Physical birth of the cached block.
    pub(crate) birth: Txg,
    /// Sizes, compression and state, packed into bit fields.
    pub(crate) prop: u64,
    /// Offset on the cache device.
    pub(crate) address: DeviceOffset,
    /// Compression level of the block.
    pub(crate) complevel: u64,
}

impl CacheEntry {
    /// Logical size: bytes before compression.
    pub fn lsize(&self) -> Lsize {
        Lsize((bits(self.prop, 0, 16) + 1) << 9)
    }

    /// Physical size: bytes after compression.
    pub fn psize(&self) -> Psize {
        Psize((bits(self.prop, 16, 16) + 1) << 9)
    }

    /// Whether the block is metadata.
    pub fn is_metadata(&self) -> bool {
        bits(self.prop, 48, 8) == 2
    }

    /// Whether the block is encrypted or authenticated.
    pub fn is_protected(&self) -> bool {
        bits(self.prop, 56, 1) == 1
    }
}

/// A log block: descriptions of cached blocks, and a pointer to the previous log block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogBlock {
    /// The previous log block in one of two interleaved chains.
    pub(crate) previous: LogBlockPtr,
    /// The cached blocks that this log block describes.
    pub entries: Vec<CacheEntry>,
}

impl LogBlock {
    /// Decodes the first `count` entries ([`CacheHeader::log_entries`]) of a decompressed log block. Entries
    /// without an address are left out.
    ///
    /// # Errors
    /// [`DecodeError::Short`], [`DecodeError::Magic`].
    pub fn decode(bytes: &[u8], count: u64) -> Result<LogBlock, DecodeError> {
        let order = order_by_magic(bytes, LOG_BLOCK_MAGIC)?;
        let count = usize::try_from(count).unwrap_or(usize::MAX).min(LOG_ENTRIES);
        let body = bytes.get(ENTRIES_AT..).unwrap_or(&[]);
        DecodeError::need(WHAT, count * POINTER_SIZE, body.len())?;
        let mut entries = Vec::with_capacity(count);
        for raw in body.chunks_exact(POINTER_SIZE).take(count) {
            let [place, position, birth, prop, address, complevel] = order.words::<6>(WHAT, raw, 0)?;
            let Some(dva) = Dva::from_words(place, position) else { continue };
            let address = DeviceOffset(address);
            entries.push(CacheEntry { dva, birth: Txg(birth), prop, address, complevel });
        }
        Ok(LogBlock { previous: LogBlockPtr::decode(bytes, 8, order)?, entries })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Header of a cache device of OpenZFS 2.3.2.
    const HEADER: &[u8] = include_bytes!("../testdata/l2arc-header.bin");

    #[test]
    fn a_real_header() {
        let header = CacheHeader::decode(HEADER).unwrap();
        assert_eq!((header.version, header.order), (1, Endian::Little));
        assert_eq!(header.start, DeviceOffset(0x40_0000 + HEADER.len() as u64));
        assert!(header.start < header.end && header.log_entries <= LOG_ENTRIES as u64);
    }

    #[test]
    fn headers_of_either_order_but_no_other_magic() {
        let mut swapped = HEADER.to_vec();
        swapped.chunks_exact_mut(8).for_each(<[u8]>::reverse);
        let (a, b) = (CacheHeader::decode(HEADER).unwrap(), CacheHeader::decode(&swapped).unwrap());
        assert_eq!(CacheHeader { order: Endian::Little, ..b }, a);
        assert!(CacheHeader::decode(&[0; 512]).is_err());
        assert!(CacheHeader::decode(&HEADER[..200]).is_err());
    }

    #[test]
    fn log_blocks_skip_empty_entries() {
        let mut block = vec![0; LOG_BLOCK_SIZE];
        block[..8].copy_from_slice(&LOG_BLOCK_MAGIC.to_le_bytes());
        block[8..16].copy_from_slice(&4096u64.to_le_bytes());
        let words = [8u64, 16, 77, 0x0102_000f_0001_0003, 8192, 0];
        for (i, word) in words.iter().enumerate() {
            block[128 + 64 + 8 * i..][..8].copy_from_slice(&word.to_le_bytes());
        }
        let log = LogBlock::decode(&block, 10).unwrap();
        assert_eq!((log.previous.address, log.entries.len()), (DeviceOffset(4096), 1));
        let entry = log.entries[0];
        assert_eq!((entry.lsize(), entry.psize(), entry.birth), (Lsize(2048), Psize(1024), Txg(77)));
        assert!(entry.is_metadata() && entry.is_protected());
        assert!(LogBlock::decode(&block[..200], 10).is_err());
        assert!(LogBlock::decode(&[0; 256], 1).is_err());
    }
}
