//! The errors of streams.

use format::{DecodeError, ObjectId};
use std::io;

/// Why a stream cannot be read, changed or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StreamError {
    /// The source cannot be read.
    #[error("cannot read the stream at byte {at}")]
    Read {
        /// Byte of the stream.
        at: u64,
        /// The error of the source.
        #[source]
        cause: io::Error,
    },
    /// The target cannot be written.
    #[error("cannot write the stream")]
    Write(#[source] io::Error),
    /// The first record is not the start of a stream.
    #[error("not a send stream")]
    NotAStream,
    /// There are fewer bytes than the first record has, and they are not its beginning.
    #[error("not a send stream")]
    TooShort,
    /// The stream ends within a record.
    #[error("the stream ends within the record at byte {at}")]
    Cut {
        /// Byte at which the record starts.
        at: u64,
    },
    /// A record cannot be decoded.
    #[error("record at byte {at}: {cause}")]
    Record {
        /// Byte at which the record starts.
        at: u64,
        /// What is wrong with it.
        #[source]
        cause: DecodeError,
    },
    /// A checksum differs: the record or something since the last right checksum is damaged.
    #[error("checksum mismatch at byte {at}")]
    Checksum {
        /// Byte at which the record with the checksum starts.
        at: u64,
        /// The checksum in the record.
        stored: [u64; 4],
        /// The checksum of the stream up to the record.
        actual: [u64; 4],
    },
    /// A payload is longer than its type of record may have.
    #[error("record at byte {at}: a payload of {len} bytes, of at most {max}")]
    TooLong {
        /// Byte at which the record starts.
        at: u64,
        /// Bytes of the payload.
        len: u64,
        /// The most that is permitted.
        max: u64,
    },
    /// A record breaks a rule of the format.
    #[error("record at byte {at}: {problem}")]
    Invalid {
        /// Byte at which the record starts.
        at: u64,
        /// The violation, one fixed text for each rule.
        problem: &'static str,
    },
    /// The stream has references to earlier blocks, which must be written out first.
    #[error("Deduplicated streams are not supported: use zstream redup")]
    Deduplicated,
    /// A block cannot be decompressed.
    #[error("decompression failed for ino {object} offset {offset}")]
    Decompress {
        /// The object.
        object: ObjectId,
        /// Byte of the object at which the block starts.
        offset: u64,
    },
    /// A write refers to one that the stream does not have.
    #[error("record at byte {at} refers to a block that the stream does not have")]
    NoSource {
        /// Byte at which the record starts.
        at: u64,
    },
    /// Blocks of an encrypted stream cannot be compressed.
    #[error("raw streams cannot be recompressed")]
    Encrypted,
}
