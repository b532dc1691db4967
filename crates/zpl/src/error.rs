//! What can go wrong between a dataset and a file's bytes.

use crate::BeginError;
use crate::FileKind;
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
    /// No change can begin: no room, a quota, a pool that waits.
    #[error(transparent)]
    Begin(#[from] BeginError),
    /// There is a file of this name already.
    #[error("directory {dir}: the name is taken")]
    Exists {
        /// The directory.
        dir: ObjectId,
    },
    /// There is no file of this name.
    #[error("directory {dir}: no such name")]
    NotFound {
        /// The directory.
        dir: ObjectId,
    },
    /// The file does not exist any more.
    #[error("file {object} is gone")]
    Stale {
        /// The file.
        object: ObjectId,
    },
    /// The directory is not empty.
    #[error("directory {object} is not empty")]
    NotEmpty {
        /// The directory.
        object: ObjectId,
    },
    /// A name is longer than names may be.
    #[error("a name of {len} bytes; {max} are allowed")]
    NameTooLong {
        /// Bytes.
        len: usize,
        /// Most bytes.
        max: usize,
    },
    /// A name that no file can have here: empty, special, not UTF-8 where that is demanded.
    #[error("not a name of a file")]
    InvalidName,
    /// Something that was given makes no sense.
    #[error("{what} is not valid")]
    Invalid {
        /// What was given.
        what: &'static str,
    },
    /// Flags of the file, or of its directory, forbid the change.
    #[error("file {object}: {why}")]
    NotPermitted {
        /// The file.
        object: ObjectId,
        /// Which rule.
        why: &'static str,
    },
    /// A directory would become its own descendant.
    #[error("directory {object} cannot be moved below itself")]
    IntoItself {
        /// The directory.
        object: ObjectId,
    },
    /// The file's project is not that of a directory which demands it.
    #[error("file {object} is of another project than directory {dir}")]
    OtherProject {
        /// The file.
        object: ObjectId,
        /// The directory.
        dir: ObjectId,
    },
    /// The file has as many names as it can have.
    #[error("file {object} has too many names")]
    TooManyLinks {
        /// The file.
        object: ObjectId,
    },
    /// The quota of an owner, a group or a project is reached.
    #[error("the {kind} quota of {id} is reached")]
    OverQuota {
        /// Whose.
        kind: &'static str,
        /// The id.
        id: u64,
    },
    /// A file would be larger than files can be.
    #[error("file {object}: a size of {size} bytes")]
    FileTooLarge {
        /// The file.
        object: ObjectId,
        /// The size.
        size: u64,
    },
    /// The attributes of a file would not fit.
    #[error("attributes of {size} bytes")]
    AttributeTooLarge {
        /// Bytes.
        size: u64,
    },
    /// The intent log of the dataset cannot be replayed.
    #[error("object set {objset}: its intent log cannot be replayed")]
    Replay {
        /// The object set.
        objset: u64,
        /// Why.
        #[source]
        source: Box<dmu::log::ReplayError>,
    },
    /// The file has no such extended attribute.
    #[error("file {object} has no such extended attribute")]
    NoXattr {
        /// The file.
        object: ObjectId,
    },
    /// The file has this extended attribute already.
    #[error("file {object} has this extended attribute already")]
    XattrExists {
        /// The file.
        object: ObjectId,
    },
    /// The operation is not for this file system, or not for files of this kind.
    #[error("{what} is not supported")]
    Unsupported {
        /// What was asked for.
        what: &'static str,
    },
    /// Blocks to be cloned are not on the devices yet: it works after the txg is.
    #[error("file {object} was changed and not yet written")]
    NotYetWritten {
        /// The file.
        object: ObjectId,
    },
    /// Blocks cannot be shared by these files or ranges: they have to be copied.
    #[error("blocks cannot be cloned: {why}")]
    CannotClone {
        /// Which rule.
        why: &'static str,
    },
}

impl ZplError {
    /// A directory takes no more names like this one: too many of equal hash, for example those that differ only in
    /// the case of letters. OpenZFS calls it a lack of space.
    pub fn is_full_directory(&self) -> bool {
        matches!(self, ZplError::Dmu(DmuError::ZapFull { .. }))
    }

    /// Whoever asked for the change waits for it no longer.
    pub fn is_interrupted(&self) -> bool {
        matches!(self, ZplError::Begin(BeginError::Tx(TxError::Interrupted)))
    }
}
