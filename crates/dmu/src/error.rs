//! What can go wrong between an object number and its bytes.

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
    /// The object set is encrypted and its key is not loaded.
    #[error("object set {objset} is encrypted, and its key is not loaded")]
    Locked {
        /// The object set.
        objset: u64,
    },
    /// The object set has never been written (the origin of all datasets).
    #[error("object set {objset} was never written")]
    Empty {
        /// The object set.
        objset: u64,
    },
}
