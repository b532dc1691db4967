//! Errors of an export, for adapters to translate into the words of their protocol.

use admin::verbs::Reason;
use cenote::files::ZplError;
use std::error::Error;

/// Why an export cannot answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// The file system refused the call, or could not carry it out.
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
    /// The caller waits no longer.
    #[error("interrupted")]
    Interrupted,
    /// The node number stands for no file, or no longer for the file that it stood for.
    #[error("no such file any more")]
    Stale,
    /// There is no file of this name, and that is not to be remembered.
    #[error("no such name")]
    NotFound,
    /// The name is taken.
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
    /// There is no data or hole from that position on.
    #[error("no data from there on")]
    BeyondEnd,
    /// The dataset is encrypted and its key is not loaded.
    #[error("{dataset} is encrypted and its key is not loaded")]
    NoKey {
        /// Name of the dataset.
        dataset: String,
    },
    /// More snapshots and datasets are in use than there are numbers for them.
    #[error("too many snapshots in use")]
    TooMany,
    /// The place cannot be changed.
    #[error("read-only")]
    ReadOnly,
    /// The caller lacks a right, or a flag of the file forbids it.
    #[error("not permitted")]
    NotPermitted,
    /// The administrator does not allow it here.
    #[error("not allowed here")]
    NotAllowed,
    /// The two files are in different file systems.
    #[error("not in the same file system")]
    CrossDevice,
    /// There is no such operation or attribute here.
    #[error("not supported")]
    Unsupported,
    /// A snapshot is held, has clones, or could not be taken now.
    #[error("in use")]
    Busy,
    /// There is no room.
    #[error("no space left")]
    NoSpace,
    /// The file would keep lending rights to programs while its contents change.
    #[error("the file lends rights to programs")]
    LendsRights,
}

/// Result of a call of an export.
pub(crate) type Answer<T> = Result<T, ExportError>;
