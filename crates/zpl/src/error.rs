//! What can go wrong between a dataset and a file's bytes.

use crate::FileKind;
use dmu::DmuError;
use format::{DecodeError, ObjectId};

/// A file system, a file or a volume that could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ZplError {
    /// An object could not be read.
    #[error(transparent)]
    Dmu(#[from] DmuError),
    /// An object was read, but it is not what it should be.
    #[error("dataset {objset}, object {object}")]
    Decode {
        /// The object set: its dataset's number.
        objset: u64,
        /// The object.
        object: ObjectId,
        /// What is wrong.
        #[source]
        source: DecodeError,
    },
    /// An object contradicts itself or others.
    #[error("dataset {objset}, object {object}: {why}")]
    Corrupt {
        /// The object set.
        objset: u64,
        /// The object.
        object: ObjectId,
        /// What is wrong.
        why: &'static str,
    },
    /// The object set does not hold what was asked for.
    #[error("dataset {objset} is not a {expected}")]
    WrongDataset {
        /// The object set.
        objset: u64,
        /// What it was taken for.
        expected: &'static str,
    },
    /// A file system of a version that we do not know.
    #[error("dataset {objset} is a file system of version {version}")]
    Version {
        /// The object set.
        objset: u64,
        /// The version.
        version: u64,
    },
    /// The object is none that a name can lead to.
    #[error("dataset {objset}, object {object} is not a file")]
    NotAFile {
        /// The object set.
        objset: u64,
        /// The object.
        object: ObjectId,
    },
    /// The file is of another kind.
    #[error("file {object} is a {kind}, not a {expected}")]
    WrongKind {
        /// The file.
        object: ObjectId,
        /// What it is.
        kind: FileKind,
        /// What it was taken for.
        expected: &'static str,
    },
    /// Something is larger than it may be.
    #[error("file {object}: {what} of {size} bytes")]
    TooLarge {
        /// The file.
        object: ObjectId,
        /// What is too large.
        what: &'static str,
        /// Its size.
        size: u64,
    },
    /// A read beyond the end of a volume.
    #[error("volume {objset}: {len} bytes at {offset}, beyond its end at {size}")]
    BeyondVolume {
        /// The object set.
        objset: u64,
        /// First byte.
        offset: u64,
        /// Bytes asked for.
        len: u64,
        /// Size of the volume.
        size: u64,
    },
}
