//! What can go wrong between an object number and its bytes, and why a change cannot begin.

use format::{DecodeError, ObjectId};
use zio::ZioError;

/// An error of an object set, an object or a ZAP.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DmuError {
    /// A block of the object could not be read.
    #[error("object {object} of object set {objset}")]
    Zio {
        /// Number of the object set: that of its dataset's object; 0 for the MOS.
        objset: u64,
        /// Number of the object.
        object: ObjectId,
        /// The error of the block layer.
        #[source]
        source: ZioError,
    },
    /// A block was read, but its contents are malformed.
    #[error("object {object} of object set {objset}")]
    Decode {
        /// Number of the object set.
        objset: u64,
        /// Number of the object.
        object: ObjectId,
        /// How the bytes are malformed.
        #[source]
        source: DecodeError,
    },
    /// The structure of the object contradicts itself.
    #[error("object {object} of object set {objset}: {why}")]
    Corrupt {
        /// Number of the object set.
        objset: u64,
        /// Number of the object.
        object: ObjectId,
        /// The contradiction, in words.
        why: &'static str,
    },
    /// There is no object with this number.
    #[error("object set {objset} has no object {object}")]
    NoObject {
        /// Number of the object set.
        objset: u64,
        /// Number that was looked up.
        object: ObjectId,
    },
    /// The number of a new object is in use, or not reusable yet.
    #[error("object set {objset} has an object {object}, or had one in this txg")]
    ObjectExists {
        /// Number of the object set.
        objset: u64,
        /// Requested number.
        object: ObjectId,
    },
    /// A block has the other byte order and an unknown structure, so it cannot be changed.
    #[error("object {object} of object set {objset} is in big-endian byte order, which cannot be written")]
    ForeignOrder {
        /// Number of the object set.
        objset: u64,
        /// Number of the object.
        object: ObjectId,
    },
    /// An impossible shape of an object: a block size that is not allowed, or too many blocks.
    #[error("object {object} of object set {objset}: {why}")]
    Shape {
        /// Number of the object set.
        objset: u64,
        /// Number of the object.
        object: ObjectId,
        /// Why the shape is not possible.
        why: &'static str,
    },
    /// The object set shows a pool as it was, and a block of the object may have been overwritten since: nothing else
    /// can tell, as it has no checksum. A newer object set has the newer block, or has it no more.
    #[error(
        "object {object} of object set {objset}: this state of it is too old, and a block may be overwritten"
    )]
    TooOld {
        /// Number of the object set.
        objset: u64,
        /// Number of the object.
        object: ObjectId,
    },
    /// The object set is encrypted and its key is not loaded.
    #[error("object set {objset} is encrypted, and its key is not loaded")]
    Locked {
        /// Number of the object set.
        objset: u64,
    },
    /// The ZAP has an entry with this key already.
    #[error("object {object} of object set {objset}: the key is there already")]
    KeyExists {
        /// Number of the object set.
        objset: u64,
        /// Object of the ZAP.
        object: ObjectId,
    },
    /// The ZAP has no entry with this key.
    #[error("object {object} of object set {objset}: no such key")]
    NoKey {
        /// Number of the object set.
        objset: u64,
        /// Object of the ZAP.
        object: ObjectId,
    },
    /// An entry of a ZAP that the format does not allow.
    #[error("object {object} of object set {objset}: {what} of a new entry is {value}")]
    ZapLimit {
        /// Number of the object set.
        objset: u64,
        /// Object of the ZAP.
        object: ObjectId,
        /// The property that is not allowed: a length, a size.
        what: &'static str,
        /// Its value.
        value: u64,
    },
    /// The ZAP has too many entries with nearly equal hashes.
    #[error("object {object} of object set {objset}: too many keys of equal hash")]
    ZapFull {
        /// Number of the object set.
        objset: u64,
        /// Object of the ZAP.
        object: ObjectId,
    },
    /// The object set has never been written (the origin of all datasets).
    #[error("object set {objset} was never written")]
    Empty {
        /// Number of the object set.
        objset: u64,
    },
}

/// Why no transaction can begin, or a txg will never be on disk.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TxError {
    /// A txg could not be written, and the pool waits for its devices.
    #[error("the pool is suspended: {why}")]
    Suspended {
        /// The failure that suspended the pool.
        why: String,
    },
    /// The pool is being closed.
    #[error("the pool is closed")]
    Closed,
    /// The caller of the request was interrupted.
    #[error("interrupted")]
    Interrupted,
}
