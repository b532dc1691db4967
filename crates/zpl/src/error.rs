//! What can go wrong between a dataset and a file's bytes.

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
    /// An object was read, but it is not what it should be.
    #[error("dataset {objset}, object {object}")]
    Decode {
        /// The object set: its dataset's number.
        objset: u64,
        /// Number of the object.
        object: ObjectId,
        /// Cause of the failure.
        #[source]
        source: DecodeError,
    },
    /// An object contradicts itself or others.
    #[error("dataset {objset}, object {object}: {why}")]
    Corrupt {
        /// Number of the object set, which is that of its dataset.
        objset: u64,
        /// Number of the object.
        object: ObjectId,
        /// Cause of the failure.
        why: &'static str,
    },
    /// The object set does not hold what was asked for.
    #[error("dataset {objset} is not a {expected}")]
    WrongDataset {
        /// Number of the object set, which is that of its dataset.
        objset: u64,
        /// What it was taken for.
        expected: &'static str,
    },
    /// A file system of a version that we do not know.
    #[error("dataset {objset} is a file system of version {version}")]
    Version {
        /// Number of the object set, which is that of its dataset.
        objset: u64,
        /// Version of the file system.
        version: u64,
    },
    /// The object is none that a name can lead to.
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
        /// What it was taken for.
        expected: &'static str,
    },
    /// Something is larger than it may be.
    #[error("file {object}: {what} of {size} bytes")]
    TooLarge {
        /// Object number of the file.
        object: ObjectId,
        /// Part that is too large.
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
    /// No change can begin: no room, a quota, a pool that waits.
    #[error(transparent)]
    Begin(#[from] BeginError),
    /// There is a file of this name already.
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
    /// The file does not exist any more.
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
    /// A name is longer than names may be.
    #[error("a name of {len} bytes; {max} are allowed")]
    NameTooLong {
        /// Length or size in bytes.
        len: usize,
        /// Longest length that is allowed, in bytes.
        max: usize,
    },
    /// A name that no file can have here: empty, special, not UTF-8 where that is demanded.
    #[error("not a name of a file")]
    InvalidName,
    /// Something that was given makes no sense.
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
    /// The file's project is not that of a directory which demands it.
    #[error("file {object} is of another project than directory {dir}")]
    OtherProject {
        /// Object number of the file.
        object: ObjectId,
        /// Object number of the directory.
        dir: ObjectId,
    },
    /// The file has as many names as it can have.
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
    /// A file would be larger than files can be.
    #[error("file {object}: a size of {size} bytes")]
    FileTooLarge {
        /// Object number of the file.
        object: ObjectId,
        /// Size in bytes.
        size: u64,
    },
    /// The attributes of a file would not fit.
    #[error("attributes of {size} bytes")]
    AttributeTooLarge {
        /// Length or size in bytes.
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
    /// The operation is not for this file system, or not for files of this kind.
    #[error("{what} is not supported")]
    Unsupported {
        /// Operation that is not supported.
        what: &'static str,
    },
    /// Blocks to be cloned are not on the devices yet: it works after the txg is.
    #[error("file {object} was changed and not yet written")]
    NotYetWritten {
        /// Object number of the file.
        object: ObjectId,
    },
    /// Blocks cannot be shared by these files or ranges: they have to be copied.
    #[error("blocks cannot be cloned: {why}")]
    CannotClone {
        /// Rule that forbids it.
        why: &'static str,
    },
}

impl ZplError {
    /// A directory takes no more names like this one: too many of equal hash, for example those that differ
    /// only in the case of letters. OpenZFS calls it a lack of space.
    pub fn is_full_directory(&self) -> bool {
        matches!(self, ZplError::Dmu(DmuError::ZapFull { .. }))
    }

    /// The caller that asked for the change waits for it no longer.
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
