//! Errors of an export, which adapters translate into the errors of their protocol.

use admin::verbs::Reason;
use cenote::files::ZplError;
use std::error::Error;

/// Why an export cannot answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// The file system refused the call, or failed to carry it out.
    #[error(transparent)]
    FileSystem(#[from] ZplError),
    /// The change was made, but is not durable.
    #[error("a change could not be made durable")]
    NotDurable(#[source] cenote::Error),
    /// The pool is damaged at the place that was read.
    #[error("{0}")]
    Damaged(#[source] Box<dyn Error + Send + Sync>),
    /// A snapshot could not be opened or listed.
    #[error("a snapshot cannot be shown")]
    Snapshot(#[source] Box<dyn Error + Send + Sync>),
    /// A snapshot could not be made, destroyed or renamed.
    #[error("a snapshot could not be changed: {0}")]
    SnapshotChange(Reason),
    /// The export has ended.
    #[error("no longer exported")]
    Ended,
    /// The caller no longer waits: its program got a signal.
    #[error("interrupted")]
    Interrupted,
    /// The node number stands for no file, or no longer for the same file.
    #[error("no such file any more")]
    Stale,
    /// There is no file of this name, and the client must not remember that.
    #[error("no such name")]
    NotFound,
    /// The name exists already.
    #[error("the name is taken")]
    Exists,
    /// A file was used as a directory.
    #[error("not a directory")]
    NotDir,
    /// A directory was used as a file with contents.
    #[error("is a directory")]
    IsDir,
    /// The call does not apply to files of this kind, or to these arguments.
    #[error("not valid for this file")]
    Invalid,
    /// The name is longer than names may be.
    #[error("the name is too long")]
    NameTooLong,
    /// The name is not UTF-8.
    #[error("the name is not UTF-8")]
    NotUtf8,
    /// There is no data or hole at or after the position.
    #[error("no data from there on")]
    BeyondEnd,
    /// The dataset is encrypted and its key is not loaded.
    #[error("{dataset} is encrypted and its key is not loaded")]
    NoKey {
        /// Name of the dataset.
        dataset: String,
    },
    /// No slot is left for a further snapshot or dataset: too many are in use.
    #[error("too many snapshots in use")]
    TooMany,
    /// The directory or file cannot be changed: it is part of a snapshot, or of `.zfs`.
    #[error("read-only")]
    ReadOnly,
    /// The caller lacks a right, or a flag of the file forbids it.
    #[error("not permitted")]
    NotPermitted,
    /// The administrator does not allow changes in `.zfs`, or this directory of `.zfs` takes no such file.
    #[error("not allowed here")]
    NotAllowed,
    /// The two files are in different file systems.
    #[error("not in the same file system")]
    CrossDevice,
    /// The export has no such operation or attribute.
    #[error("not supported")]
    Unsupported,
    /// A snapshot is held, has clones, or cannot be taken now.
    #[error("in use")]
    Busy,
    /// The pool or a quota has no space left.
    #[error("no space left")]
    NoSpace,
    /// The file would keep set-id bits while its contents change.
    #[error("the file lends rights to programs")]
    LendsRights,
}

/// Result of an operation of an export.
pub(crate) type Answer<T> = Result<T, ExportError>;
