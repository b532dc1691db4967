//! The records of send streams (docs/on-disk/30-send-streams.md, sections 1 and 2).
//!
//! A stream is a sequence of records: a header of 312 bytes and, for some types, a payload whose length follows from
//! the header. All integers are in the byte order of the sender, which the magic number of the first record shows.
//!
//! # What always holds
//! - Decoding keeps every field as it is: the meaning of types, sizes and flags is checked by those who use them. Only
//!   an unknown type of record is an error.
//! - [`Record::put`] changes only the bytes of the record's own fields, so that a header that is decoded, changed and
//!   put back keeps all other bytes.

mod record;

pub use record::{
    Begin, End, Free, FreeObjects, Object, ObjectRange, Record, RecordKind, Spill, Write, WriteByRef,
    WriteEmbedded,
};

use crate::{DecodeError, Endian};

/// Bytes of a record's header.
pub const HEADER_SIZE: usize = 312;
/// Byte of the header at which the running checksum is stored, in all records except the first of a stream.
pub const CHECKSUM_AT: usize = 280;
/// Magic number of the first record.
pub const MAGIC: u64 = 0x2_F5BA_CBAC;

const WHAT: &str = "record of a stream";

/// The feature flags of a stream: bits of [`Begin::features`].
pub mod feature {
    /// Some writes refer to earlier ones.
    pub const DEDUP: u64 = 1 << 0;
    /// Some writes carry checksums that are strong enough to find equal blocks.
    pub const DEDUP_PROPS: u64 = 1 << 1;
    /// The sender has system attributes.
    pub const SA_SPILL: u64 = 1 << 2;
    /// Blocks embedded in pointers are sent as they are.
    pub const EMBED_DATA: u64 = 1 << 16;
    /// Blocks may be compressed with lz4.
    pub const LZ4: u64 = 1 << 17;
    /// Blocks of more than 128 KiB are sent whole.
    pub const LARGE_BLOCKS: u64 = 1 << 19;
    /// The stream continues an interrupted receive.
    pub const RESUMING: u64 = 1 << 20;
    /// Blocks of redaction snapshots are absent.
    pub const REDACTED: u64 = 1 << 21;
    /// Blocks are sent compressed as they are on disk.
    pub const COMPRESSED: u64 = 1 << 22;
    /// Dnodes may have several slots.
    pub const LARGE_DNODE: u64 = 1 << 23;
    /// Blocks are sent encrypted as they are on disk.
    pub const RAW: u64 = 1 << 24;
    /// Blocks may be compressed with zstd.
    pub const ZSTD: u64 = 1 << 25;
    /// The package lists holds.
    pub const HOLDS: u64 = 1 << 26;
    /// The receiver may switch to large blocks.
    pub const SWITCH_TO_LARGE_BLOCKS: u64 = 1 << 27;
    /// Names may have more than 255 bytes.
    pub const LONGNAME: u64 = 1 << 28;
    /// Directories may have one large block.
    pub const LARGE_MICROZAP: u64 = 1 << 29;

    /// All features with their names.
    pub const NAMES: [(u64, &str); 16] = [
        (DEDUP, "dedup"),
        (DEDUP_PROPS, "dedup_props"),
        (SA_SPILL, "sa_spill"),
        (EMBED_DATA, "embed_data"),
        (LZ4, "lz4"),
        (LARGE_BLOCKS, "large_blocks"),
        (RESUMING, "resuming"),
        (REDACTED, "redacted"),
        (COMPRESSED, "compressed"),
        (LARGE_DNODE, "large_dnode"),
        (RAW, "raw"),
        (ZSTD, "zstd"),
        (HOLDS, "holds"),
        (SWITCH_TO_LARGE_BLOCKS, "switch_to_large_blocks"),
        (LONGNAME, "longname"),
        (LARGE_MICROZAP, "large_microzap"),
    ];
}

/// The flags of records.
pub mod flag {
    /// Of [`super::Begin`]: the stream starts from the origin of its dataset.
    pub const CLONE: u32 = 1 << 0;
    /// Of [`super::Begin`]: names of the dataset are compared without regard to case.
    pub const CASE_INSENSITIVE: u32 = 1 << 1;
    /// Of [`super::Begin`]: the stream frees all that a clone might have.
    pub const FREE_RECORDS: u32 = 1 << 2;
    /// Of [`super::Begin`]: records tell whether objects have spill blocks.
    pub const SPILL_BLOCK: u32 = 1 << 3;
    /// Of [`super::Write`]: equal checksums mean equal blocks.
    pub const DEDUP: u8 = 1 << 0;
    /// Of records with contents, in raw streams: these are in big-endian order.
    pub const BYTE_SWAP: u8 = 1 << 1;
    /// Of [`super::Object`]: it has a spill block.
    pub const HAS_SPILL: u8 = 1 << 2;
    /// Of [`super::Spill`]: it is not newer than the start of the increment.
    pub const UNMODIFIED: u8 = 1 << 2;
}

/// The header of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// The fields of the record.
    pub record: Record,
    /// Bytes of payload as stored in the header; only [`Record::Begin`] uses this number.
    pub payload_len: u32,
    /// Checksum of the stream up to this number; zeros: none. Not in [`Record::Begin`].
    pub checksum: [u64; 4],
}

impl Header {
    /// Decodes a header.
    ///
    /// # Errors
    /// [`DecodeError::Field`] if the type of the record is not known.
    pub fn decode(bytes: &[u8; HEADER_SIZE], order: Endian) -> Result<Header, DecodeError> {
        let record = Record::decode(bytes, order)?;
        let checksum = match record {
            Record::Begin(_) => [0; 4],
            _ => order.words(WHAT, bytes, CHECKSUM_AT)?,
        };
        Ok(Header { record, payload_len: order.u32(WHAT, bytes, 4)?, checksum })
    }

    /// Bytes of the payload that follows the header.
    pub fn payload(&self) -> u64 {
        match &self.record {
            Record::Begin(_) => self.payload_len.into(),
            Record::Object(object) if object.raw_bonus_len != 0 => object.raw_bonus_len.into(),
            Record::Object(object) => u64::from(object.bonus_len).next_multiple_of(8),
            Record::Write(write) if write.compression != 0 => write.compressed_size,
            Record::Write(write) => write.logical_size,
            Record::Spill(spill) if spill.compressed_size != 0 => spill.compressed_size,
            Record::Spill(spill) => spill.length,
            Record::WriteEmbedded(embedded) => u64::from(embedded.psize).next_multiple_of(8),
            Record::End(_)
            | Record::Free(_)
            | Record::FreeObjects(_)
            | Record::WriteByRef(_)
            | Record::ObjectRange(_)
            | Record::Redact(_) => 0,
        }
    }
}

/// The byte order of a stream, from the header of its first record; `None`: it is no stream.
pub fn order_of(first: &[u8; HEADER_SIZE]) -> Option<Endian> {
    let is_first = |order: &Endian| {
        order.get_u32(first, 0) == Some(RecordKind::Begin as u32) && order.get_u64(first, 8) == Some(MAGIC)
    };
    [Endian::Little, Endian::Big].into_iter().find(is_first)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers() -> impl Iterator<Item = [u8; HEADER_SIZE]> {
        (0..=10u8).map(|kind| {
            let mut bytes = std::array::from_fn(|i| (i * 7 + 3) as u8);
            bytes[..4].copy_from_slice(&[kind, 0, 0, 0]);
            bytes
        })
    }

    #[test]
    fn what_is_put_back_is_what_was_decoded() {
        for bytes in headers() {
            for order in [Endian::Little, Endian::Big] {
                let mut bytes = bytes;
                let kind = bytes[0].into();
                bytes[..4].copy_from_slice(&order.put_u32(kind));
                let header = Header::decode(&bytes, order).unwrap();
                let mut again = bytes;
                header.record.put(&mut again, order);
                assert_eq!(again, bytes, "{header:?}");
                let mut empty = [0; HEADER_SIZE];
                header.record.put(&mut empty, order);
                assert_eq!(Header::decode(&empty, order).unwrap().record, header.record);
            }
        }
    }

    #[test]
    fn an_unknown_type_is_refused() {
        let mut bytes = [0; HEADER_SIZE];
        bytes[0] = 11;
        assert!(matches!(Header::decode(&bytes, Endian::Little), Err(DecodeError::Field { value: 11, .. })));
    }

    #[test]
    fn the_magic_number_shows_the_byte_order() {
        for order in [Endian::Little, Endian::Big] {
            let mut bytes = [0; HEADER_SIZE];
            assert_eq!(order_of(&bytes), None);
            bytes[8..16].copy_from_slice(&order.put_u64(MAGIC));
            assert_eq!(order_of(&bytes), Some(order));
            bytes[..4].copy_from_slice(&order.put_u32(3));
            assert_eq!(order_of(&bytes), None);
        }
    }
}
