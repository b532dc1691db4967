//! Errors of file systems and volumes.

use crate::node::kind::FileKind;
use dmu::DmuError;
use dmu::TxError;
use format::{DecodeError, ObjectId};

/// A file system, a file or a volume that could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ZplError {
    /// An object could not be read.
    #[error(transparent)]
    Dmu(#[from] DmuError),
    /// An object is malformed.
    #[error("dataset {objset}, object {object}")]
    Decode {
        /// Number of the object set, which is that of its dataset.
        objset: u64,
        /// Number of the malformed object.
        object: ObjectId,
        /// How the bytes are malformed.
        #[source]
        source: DecodeError,
    },
    /// An object contradicts itself or others.
    #[error("dataset {objset}, object {object}: {why}")]
    Corrupt {
        /// Number of the object set, which is that of its dataset.
        objset: u64,
        /// Number of the damaged object.
        object: ObjectId,
        /// The contradiction, in words.
        why: &'static str,
    },
    /// The object set does not hold the expected kind of contents.
    #[error("dataset {objset} is not a {expected}")]
    WrongDataset {
        /// Number of the object set, which is that of its dataset.
        objset: u64,
        /// What was expected: a file system, a volume.
        expected: &'static str,
    },
    /// A file system of an unknown version.
    #[error("dataset {objset} is a file system of version {version}")]
    Version {
        /// Number of the object set, which is that of its dataset.
        objset: u64,
        /// Version of the file system.
        version: u64,
    },
    /// The object is an internal one of the file system, not a file.
    #[error("dataset {objset}, object {object} is not a file")]
    NotAFile {
        /// Number of the object set, which is that of its dataset.
        objset: u64,
        /// Number of the object.
        object: ObjectId,
    },
    /// The file is of another kind.
    #[error("file {object} is a {kind}, not a {expected}")]
    WrongKind {
        /// Object number of the file.
        object: ObjectId,
        /// Kind of the file.
        kind: FileKind,
        /// Kind that was expected.
        expected: &'static str,
    },
    /// A part of a file is larger than the format allows.
    #[error("file {object}: {what} of {size} bytes")]
    TooLarge {
        /// Object number of the file.
        object: ObjectId,
        /// The part that is too large.
        what: &'static str,
        /// Size in bytes.
        size: u64,
    },
    /// A read beyond the end of a volume.
    #[error("volume {objset}: {len} bytes at {offset}, beyond its end at {size}")]
    BeyondVolume {
        /// Number of the object set, which is that of its dataset.
        objset: u64,
        /// Offset of the first byte.
        offset: u64,
        /// Number of bytes asked for.
        len: u64,
        /// Size of the volume in bytes.
        size: u64,
    },
    /// No change can begin: no space, a quota, a suspended pool.
    #[error(transparent)]
    Begin(#[from] BeginError),
    /// A file of this name exists.
    #[error("directory {dir}: the name is taken")]
    Exists {
        /// Object number of the directory.
        dir: ObjectId,
    },
    /// There is no file of this name.
    #[error("directory {dir}: no such name")]
    NotFound {
        /// Object number of the directory.
        dir: ObjectId,
    },
    /// The file no longer exists.
    #[error("file {object} is gone")]
    Stale {
        /// Object number of the file.
        object: ObjectId,
    },
    /// The directory is not empty.
    #[error("directory {object} is not empty")]
    NotEmpty {
        /// Object number of the directory.
        object: ObjectId,
    },
    /// A name is longer than allowed.
    #[error("a name of {len} bytes; {max} are allowed")]
    NameTooLong {
        /// Length of the name, in bytes.
        len: usize,
        /// Longest name that is allowed, in bytes.
        max: usize,
    },
    /// A name that no file can have here: empty, special, or not UTF-8 where UTF-8 is required.
    #[error("not a name of a file")]
    InvalidName,
    /// An argument is invalid.
    #[error("{what} is not valid")]
    Invalid {
        /// Argument that is invalid.
        what: &'static str,
    },
    /// Flags of the file, or of its directory, forbid the change.
    #[error("file {object}: {why}")]
    NotPermitted {
        /// Object number of the file.
        object: ObjectId,
        /// Rule that forbids it.
        why: &'static str,
    },
    /// A directory would become its own descendant.
    #[error("directory {object} cannot be moved below itself")]
    IntoItself {
        /// Object number of the directory.
        object: ObjectId,
    },
    /// The file's project differs from the project that the directory requires.
    #[error("file {object} is of another project than directory {dir}")]
    OtherProject {
        /// Object number of the file.
        object: ObjectId,
        /// Object number of the directory.
        dir: ObjectId,
    },
    /// The file has the largest number of names already.
    #[error("file {object} has too many names")]
    TooManyLinks {
        /// Object number of the file.
        object: ObjectId,
    },
    /// The quota of an owner, a group or a project is reached.
    #[error("the {kind} quota of {id} is reached")]
    OverQuota {
        /// Kind of owner: user, group or project.
        kind: &'static str,
        /// Id of the owner.
        id: u64,
    },
    /// A file would exceed the largest size of a file.
    #[error("file {object}: a size of {size} bytes")]
    FileTooLarge {
        /// Object number of the file.
        object: ObjectId,
        /// Requested size in bytes.
        size: u64,
    },
    /// The attributes of a file would not fit into bonus and spill block.
    #[error("attributes of {size} bytes")]
    AttributeTooLarge {
        /// Size of the attributes in bytes.
        size: u64,
    },
    /// The intent log of the dataset cannot be replayed.
    #[error("object set {objset}: its intent log cannot be replayed")]
    Replay {
        /// Number of the object set, which is that of its dataset.
        objset: u64,
        /// Cause of the failure.
        #[source]
        source: Box<dmu::log::ReplayError>,
    },
    /// The file has no such extended attribute.
    #[error("file {object} has no such extended attribute")]
    NoXattr {
        /// Object number of the file.
        object: ObjectId,
    },
    /// The file has this extended attribute already.
    #[error("file {object} has this extended attribute already")]
    XattrExists {
        /// Object number of the file.
        object: ObjectId,
    },
    /// The operation does not apply to this file system, or to files of this kind.
    #[error("{what} is not supported")]
    Unsupported {
        /// Operation that is not supported.
        what: &'static str,
    },
    /// Blocks to be cloned are not on the devices yet: a retry after their txg succeeds.
    #[error("file {object} was changed and not yet written")]
    NotYetWritten {
        /// Object number of the file.
        object: ObjectId,
    },
    /// Blocks cannot be shared by these files or ranges: the data must be copied.
    #[error("blocks cannot be cloned: {why}")]
    CannotClone {
        /// The condition that is not met.
        why: &'static str,
    },
}

impl ZplError {
    /// Whether a directory cannot take this name because it has too many names of equal hash, for example
    /// names that differ only in case. OpenZFS reports it as a lack of space.
    pub fn is_full_directory(&self) -> bool {
        matches!(self, ZplError::Dmu(DmuError::ZapFull { .. }))
    }

    /// Whether the change was given up because its caller was interrupted.
    pub fn is_interrupted(&self) -> bool {
        matches!(self, ZplError::Begin(BeginError::Tx(TxError::Interrupted)))
    }
}

/// Why no change can begin.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BeginError {
    /// The pool has no space left.
    #[error("the pool is out of space")]
    NoSpace(#[source] Option<Box<dyn std::error::Error + Send + Sync>>),
    /// A quota of the dataset, or of one above it, is reached.
    #[error("the dataset's quota is reached")]
    Quota(#[source] Option<Box<dyn std::error::Error + Send + Sync>>),
    /// The pool is suspended or closed.
    #[error(transparent)]
    Tx(#[from] TxError),
    /// The dataset cannot be changed: a snapshot, or readonly.
    #[error("the dataset is read-only")]
    ReadOnly,
    /// Any other cause.
    #[error("no transaction can begin")]
    Other(#[source] Box<dyn std::error::Error + Send + Sync>),
}
