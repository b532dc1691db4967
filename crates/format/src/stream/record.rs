//! The types of records with their fields, each with its byte in the header.

use super::{HEADER_SIZE, WHAT};
use crate::{DecodeError, Endian, ObjectId};

/// A value at a place in a header.
trait Field: Sized {
    fn get(bytes: &[u8; HEADER_SIZE], at: usize, order: Endian) -> Self;
    fn put(&self, bytes: &mut [u8; HEADER_SIZE], at: usize, order: Endian);
}

fn copy(bytes: &mut [u8; HEADER_SIZE], at: usize, value: &[u8]) {
    if let Some(place) = bytes.get_mut(at..at + value.len()) {
        place.copy_from_slice(value);
    }
}

impl Field for u64 {
    fn get(bytes: &[u8; HEADER_SIZE], at: usize, order: Endian) -> u64 {
        order.get_u64(bytes, at).unwrap_or_default()
    }
    fn put(&self, bytes: &mut [u8; HEADER_SIZE], at: usize, order: Endian) {
        copy(bytes, at, &order.put_u64(*self));
    }
}

impl Field for u32 {
    fn get(bytes: &[u8; HEADER_SIZE], at: usize, order: Endian) -> u32 {
        order.get_u32(bytes, at).unwrap_or_default()
    }
    fn put(&self, bytes: &mut [u8; HEADER_SIZE], at: usize, order: Endian) {
        copy(bytes, at, &order.put_u32(*self));
    }
}

impl Field for ObjectId {
    fn get(bytes: &[u8; HEADER_SIZE], at: usize, order: Endian) -> ObjectId {
        ObjectId(u64::get(bytes, at, order))
    }
    fn put(&self, bytes: &mut [u8; HEADER_SIZE], at: usize, order: Endian) {
        self.0.put(bytes, at, order);
    }
}

impl Field for u8 {
    fn get(bytes: &[u8; HEADER_SIZE], at: usize, _: Endian) -> u8 {
        bytes.get(at).copied().unwrap_or_default()
    }
    fn put(&self, bytes: &mut [u8; HEADER_SIZE], at: usize, _: Endian) {
        copy(bytes, at, &[*self]);
    }
}

impl<const N: usize> Field for [u8; N] {
    fn get(bytes: &[u8; HEADER_SIZE], at: usize, _: Endian) -> [u8; N] {
        bytes.get(at..at + N).and_then(|found| found.try_into().ok()).unwrap_or([0; N])
    }
    fn put(&self, bytes: &mut [u8; HEADER_SIZE], at: usize, _: Endian) {
        copy(bytes, at, self);
    }
}

impl<const N: usize> Field for [u64; N] {
    fn get(bytes: &[u8; HEADER_SIZE], at: usize, order: Endian) -> [u64; N] {
        std::array::from_fn(|i| u64::get(bytes, at + 8 * i, order))
    }
    fn put(&self, bytes: &mut [u8; HEADER_SIZE], at: usize, order: Endian) {
        self.iter().enumerate().for_each(|(i, word)| word.put(bytes, at + 8 * i, order));
    }
}

/// A type of record: its fields with their bytes in the header.
macro_rules! record {
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $ty:ty = $at:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $ty,)*
        }

        impl $name {
            fn get(bytes: &[u8; HEADER_SIZE], order: Endian) -> $name {
                $name { $($field: Field::get(bytes, $at, order),)* }
            }

            fn put(&self, bytes: &mut [u8; HEADER_SIZE], order: Endian) {
                $(self.$field.put(bytes, $at, order);)*
            }
        }
    };
}

record! {
    /// The start of a stream, or of a package of streams.
    Begin {
        /// Magic number.
        magic: u64 = 8,
        /// Kind of header in the lowest two bits, features above: see [`Begin::features`].
        version_info: u64 = 16,
        /// Creation time of the snapshot in seconds since 1970.
        creation_time: u64 = 24,
        /// Type of the object set: 2 file system, 3 volume, 0 in the header of a package.
        objset_type: u32 = 32,
        /// Flags: bit 0 clone, 1 without regard to case, 2 free records of a full stream, 3 spill blocks.
        flags: u32 = 36,
        /// Guid of the snapshot that is sent.
        to_guid: u64 = 40,
        /// Guid of the snapshot or bookmark from which an increment starts; 0: a full stream.
        from_guid: u64 = 48,
        /// Name of the snapshot, with zeros after it: see [`Begin::name`].
        to_name: [u8; 256] = 56,
    }
}

impl Begin {
    /// True for the header of a package of streams, false for that of one stream.
    pub fn is_package(&self) -> bool {
        self.header_kind() == 2
    }

    /// Kind of the header: 1 a stream, 2 a package.
    pub fn header_kind(&self) -> u64 {
        self.version_info & 3
    }

    /// Feature flags, with the bits of [`super::feature`].
    pub fn features(&self) -> u64 {
        self.version_info >> 2 & ((1 << 56) - 1)
    }

    /// Name of the snapshot.
    pub fn name(&self) -> &[u8] {
        self.to_name.split(|byte| *byte == 0).next().unwrap_or_default()
    }
}

record! {
    /// The end of a stream.
    End {
        /// Checksum of the stream before this record.
        checksum: [u64; 4] = 8,
        /// Guid of the snapshot that is sent.
        to_guid: u64 = 40,
    }
}

record! {
    /// A dnode; its bonus is the payload.
    Object {
        /// Number of the object.
        object: ObjectId = 8,
        /// Type of the object.
        kind: u32 = 16,
        /// Type of the bonus.
        bonus_kind: u32 = 20,
        /// Bytes of a block.
        block_size: u32 = 24,
        /// Bytes of the bonus.
        bonus_len: u32 = 28,
        /// Number of the checksum algorithm.
        checksum_type: u8 = 32,
        /// Number of the compression algorithm.
        compress: u8 = 33,
        /// Slots of the dnode; 0 means 1.
        slots: u8 = 34,
        /// Flags: bit 1 byte-swapped (raw), bit 2 has a spill block.
        flags: u8 = 35,
        /// Bytes of the payload of a raw stream; 0: that of `bonus_len`.
        raw_bonus_len: u32 = 36,
        /// Guid of the snapshot that is sent.
        to_guid: u64 = 40,
        /// Base-2 logarithm of the size of indirect blocks (raw).
        indirect_shift: u8 = 48,
        /// Number of levels (raw).
        levels: u8 = 49,
        /// Number of block pointers (raw).
        block_pointers: u8 = 50,
        /// Number of the last block (raw).
        max_block: u64 = 56,
    }
}

record! {
    /// A range of objects that do not exist.
    FreeObjects {
        /// The first object.
        first: ObjectId = 8,
        /// Number of objects.
        count: u64 = 16,
        /// Guid of the snapshot that is sent.
        to_guid: u64 = 24,
    }
}

record! {
    /// A block; its contents are the payload.
    Write {
        /// Number of the object.
        object: ObjectId = 8,
        /// Type of the object.
        kind: u32 = 16,
        /// Byte of the object at which the block starts.
        offset: u64 = 24,
        /// Bytes of the block before compression.
        logical_size: u64 = 32,
        /// Guid of the snapshot that is sent.
        to_guid: u64 = 40,
        /// Number of the algorithm of the checksum in `key`.
        checksum_type: u8 = 48,
        /// Flags: bit 0 equal checksums mean equal blocks, bit 1 byte-swapped (raw).
        flags: u8 = 49,
        /// Number of the compression algorithm of the payload; 0: it is not compressed.
        compression: u8 = 50,
        /// Checksum of the block on disk, and its sizes and compression.
        key: [u64; 5] = 56,
        /// Bytes of the payload, if it is compressed.
        compressed_size: u64 = 96,
        /// Salt of the encryption (raw).
        salt: [u8; 8] = 104,
        /// Initialization vector of the encryption (raw).
        iv: [u8; 12] = 112,
        /// Authentication code of the encryption (raw).
        mac: [u8; 16] = 124,
    }
}

record! {
    /// A range of an object without data, or ([`Record::Redact`]) whose data is absent.
    Free {
        /// Number of the object.
        object: ObjectId = 8,
        /// First byte.
        offset: u64 = 16,
        /// Number of bytes; all ones: to the end of the object.
        length: u64 = 24,
        /// Guid of the snapshot that is sent.
        to_guid: u64 = 32,
    }
}

record! {
    /// A block with the contents of an earlier one, in streams of old senders.
    WriteByRef {
        /// Number of the object.
        object: ObjectId = 8,
        /// Byte of the object at which the block starts.
        offset: u64 = 16,
        /// Bytes of the block.
        length: u64 = 24,
        /// Guid of the snapshot that is sent.
        to_guid: u64 = 32,
        /// `to_guid` of the earlier block.
        ref_guid: u64 = 40,
        /// `object` of the earlier block.
        ref_object: ObjectId = 48,
        /// `offset` of the earlier block.
        ref_offset: u64 = 56,
        /// Number of the algorithm of the checksum in `key`.
        checksum_type: u8 = 64,
        /// As in [`Write`].
        flags: u8 = 65,
        /// As in [`Write`].
        key: [u64; 5] = 72,
    }
}

record! {
    /// A spill block; its contents are the payload.
    Spill {
        /// Number of the object.
        object: ObjectId = 8,
        /// Bytes of the block.
        length: u64 = 16,
        /// Guid of the snapshot that is sent.
        to_guid: u64 = 24,
        /// Flags: bit 1 byte-swapped (raw), bit 2 unchanged since the start of the increment.
        flags: u8 = 32,
        /// Number of the compression algorithm of the payload (raw).
        compression: u8 = 33,
        /// Bytes of the payload (raw).
        compressed_size: u64 = 40,
        /// Salt of the encryption (raw).
        salt: [u8; 8] = 48,
        /// Initialization vector of the encryption (raw).
        iv: [u8; 12] = 56,
        /// Authentication code of the encryption (raw).
        mac: [u8; 16] = 68,
        /// Type of the block.
        kind: u32 = 84,
    }
}

record! {
    /// A block that is embedded in its pointer; the embedded bytes are the payload.
    WriteEmbedded {
        /// Number of the object.
        object: ObjectId = 8,
        /// Byte of the object at which the block starts.
        offset: u64 = 16,
        /// Bytes of the block.
        length: u64 = 24,
        /// Guid of the snapshot that is sent.
        to_guid: u64 = 32,
        /// Number of the compression algorithm.
        compression: u8 = 40,
        /// Type of the embedded data; 0: a block.
        embedded_kind: u8 = 41,
        /// Bytes before compression.
        lsize: u32 = 48,
        /// Bytes of the payload, without padding to 8 bytes.
        psize: u32 = 52,
    }
}

record! {
    /// The encryption of a block of dnodes, in raw streams.
    ObjectRange {
        /// The first object.
        first: ObjectId = 8,
        /// Number of slots.
        slots: u64 = 16,
        /// Guid of the snapshot that is sent.
        to_guid: u64 = 24,
        /// Salt of the encryption.
        salt: [u8; 8] = 32,
        /// Initialization vector of the encryption.
        iv: [u8; 12] = 40,
        /// Authentication code of the encryption.
        mac: [u8; 16] = 52,
        /// Flags: bit 1 byte-swapped.
        flags: u8 = 68,
    }
}

macro_rules! records {
    ($($(#[$doc:meta])* $kind:ident($body:ident) = $number:literal,)*) => {
        /// The type of a record, with the number by which it is stored.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u32)]
        pub enum RecordKind {
            $($(#[$doc])* $kind = $number,)*
        }

        /// A record, without its payload.
        #[derive(Debug, Clone, PartialEq, Eq)]
        #[allow(clippy::large_enum_variant, reason = "a stream has one at a time")]
        pub enum Record {
            $($(#[$doc])* $kind($body),)*
        }

        impl Record {
            /// Decodes the fields of a header.
            ///
            /// # Errors
            /// [`DecodeError::Field`] if the type is not known.
            pub(super) fn decode(bytes: &[u8; HEADER_SIZE], order: Endian) -> Result<Record, DecodeError> {
                match u32::get(bytes, 0, order) {
                    $($number => Ok(Record::$kind($body::get(bytes, order))),)*
                    other => Err(DecodeError::field(WHAT, "type", other)),
                }
            }

            /// Writes the type and the fields into a header; its other bytes stay as they are.
            pub fn put(&self, bytes: &mut [u8; HEADER_SIZE], order: Endian) {
                (self.kind() as u32).put(bytes, 0, order);
                match self {
                    $(Record::$kind(body) => body.put(bytes, order),)*
                }
            }

            /// The type.
            pub fn kind(&self) -> RecordKind {
                match self {
                    $(Record::$kind(_) => RecordKind::$kind,)*
                }
            }
        }
    };
}

records! {
    /// The start of a stream or package.
    Begin(Begin) = 0,
    /// A dnode.
    Object(Object) = 1,
    /// Objects that do not exist.
    FreeObjects(FreeObjects) = 2,
    /// A block.
    Write(Write) = 3,
    /// A range without data.
    Free(Free) = 4,
    /// The end of a stream.
    End(End) = 5,
    /// A copy of an earlier block.
    WriteByRef(WriteByRef) = 6,
    /// A spill block.
    Spill(Spill) = 7,
    /// A block embedded in its pointer.
    WriteEmbedded(WriteEmbedded) = 8,
    /// The encryption of a block of dnodes.
    ObjectRange(ObjectRange) = 9,
    /// A range whose data is absent.
    Redact(Free) = 10,
}
