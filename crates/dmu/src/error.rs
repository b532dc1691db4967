//! What can go wrong between an object number and its bytes, and why a change cannot begin.

use format::{DecodeError, ObjectId};
use zio::ZioError;

/// An object, or a part of one, that could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DmuError {
    /// A block of the object could not be read.
    #[error("object {object} of object set {objset}")]
    Zio {
        /// The object set: its dataset's number, 0 for the pool's own.
        objset: u64,
        /// The object.
        object: ObjectId,
        /// Why.
        #[source]
        source: ZioError,
    },
    /// A block was read, but it is not what it should be.
    #[error("object {object} of object set {objset}")]
    Decode {
        /// The object set.
        objset: u64,
        /// The object.
        object: ObjectId,
        /// What is wrong.
        #[source]
        source: DecodeError,
    },
    /// The structure of the object contradicts itself.
    #[error("object {object} of object set {objset}: {why}")]
    Corrupt {
        /// The object set.
        objset: u64,
        /// The object.
        object: ObjectId,
        /// What is wrong.
        why: &'static str,
    },
    /// There is no object with this number.
    #[error("object set {objset} has no object {object}")]
    NoObject {
        /// The object set.
        objset: u64,
        /// The number.
        object: ObjectId,
    },
    /// The number of a new object is taken, or about to become free.
    #[error("object set {objset} has an object {object}, or had one in this txg")]
    ObjectExists {
        /// The object set.
        objset: u64,
        /// The number.
        object: ObjectId,
    },
    /// A block was written by a machine of the other byte order, and cannot be changed.
    #[error("object {object} of object set {objset} is in big-endian byte order, which cannot be written")]
    ForeignOrder {
        /// The object set.
        objset: u64,
        /// The object.
        object: ObjectId,
    },
    /// An object cannot have this shape: a block size that is not allowed, or too many blocks.
    #[error("object {object} of object set {objset}: {why}")]
    Shape {
        /// The object set.
        objset: u64,
        /// The object.
        object: ObjectId,
        /// What is wrong.
        why: &'static str,
    },
    /// The object set shows a pool as it was, and a block of the object may have been overwritten since: nothing else can
    /// tell, as it has no checksum. A newer object set has the newer block, or has it no more.
    #[error(
        "object {object} of object set {objset}: this state of it is too old, and a block may be overwritten"
    )]
    TooOld {
        /// The object set.
        objset: u64,
        /// The object.
        object: ObjectId,
    },
    /// The object set is encrypted and its key is not loaded.
    #[error("object set {objset} is encrypted, and its key is not loaded")]
    Locked {
        /// The object set.
        objset: u64,
    },
    /// The ZAP has an entry of this key already.
    #[error("object {object} of object set {objset}: the key is there already")]
    KeyExists {
        /// The object set.
        objset: u64,
        /// The ZAP.
        object: ObjectId,
    },
    /// The ZAP has no entry of this key.
    #[error("object {object} of object set {objset}: no such key")]
    NoKey {
        /// The object set.
        objset: u64,
        /// The ZAP.
        object: ObjectId,
    },
    /// An entry of a ZAP that the format does not allow.
    #[error("object {object} of object set {objset}: {what} of a new entry is {value}")]
    ZapLimit {
        /// The object set.
        objset: u64,
        /// The ZAP.
        object: ObjectId,
        /// What is too large, too small or of no known kind.
        what: &'static str,
        /// What it is.
        value: u64,
    },
    /// The ZAP holds too many entries whose hashes are nearly equal.
    #[error("object {object} of object set {objset}: too many keys of equal hash")]
    ZapFull {
        /// The object set.
        objset: u64,
        /// The ZAP.
        object: ObjectId,
    },
    /// The object set has never been written (the origin of all datasets).
    #[error("object set {objset} was never written")]
    Empty {
        /// The object set.
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
        /// What happened.
        why: String,
    },
    /// The pool is being closed.
    #[error("the pool is closed")]
    Closed,
    /// Whoever asked for it waits no longer.
    #[error("interrupted")]
    Interrupted,
}
