//! Why streams cannot be looked into.

use crate::receive::ReceiveError;
use std::io;
use std::path::PathBuf;
use stream::StreamError;

/// Why a chain of streams cannot be opened or joined.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChainError {
    /// A file with a stream cannot be opened or read.
    #[error("{}: {cause}", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// The error of the system.
        #[source]
        cause: io::Error,
    },
    /// A stream is damaged, cut or breaks a rule.
    #[error("{}: {cause}", file.display())]
    Stream {
        /// The file.
        file: PathBuf,
        /// What is wrong.
        #[source]
        cause: StreamError,
    },
    /// A stream cannot be applied.
    #[error("{}: {snapshot}: {cause}", file.display())]
    Apply {
        /// The file.
        file: PathBuf,
        /// Name of the snapshot in the stream.
        snapshot: String,
        /// Why.
        #[source]
        cause: Box<ReceiveError>,
    },
    /// The start of an increment is not among the streams.
    #[error("{}: {snapshot} starts from the snapshot with guid {guid}, and no stream ends there", file.display())]
    Gap {
        /// The file with the increment.
        file: PathBuf,
        /// Name of the snapshot in the increment.
        snapshot: String,
        /// Guid of the missing snapshot.
        guid: u64,
    },
    /// Two increments start from the same snapshot.
    #[error("{} and {}: {first} and {second} both start from {from}", first_file.display(), second_file.display())]
    Branches {
        /// The snapshot from which both start.
        from: String,
        /// The file with the first increment.
        first_file: PathBuf,
        /// Name of the snapshot in the first increment.
        first: String,
        /// The file with the other increment.
        second_file: PathBuf,
        /// Name of the snapshot in the other.
        second: String,
    },
    /// Two full streams are of datasets with the same name.
    #[error("{} and {}: {first} and {second} are both full streams", first_file.display(), second_file.display())]
    TwoStarts {
        /// The file with the first stream.
        first_file: PathBuf,
        /// Name of the snapshot in the first stream.
        first: String,
        /// The file with the other stream.
        second_file: PathBuf,
        /// Name of the snapshot in the other.
        second: String,
    },
    /// The name of a snapshot in a stream is none.
    #[error("{}: '{name}' is no name of a snapshot", file.display())]
    BadName {
        /// The file.
        file: PathBuf,
        /// The name, with escapes.
        name: String,
    },
    /// The file has no stream of a snapshot.
    #[error("{}: no snapshot in it", file.display())]
    Empty {
        /// The file.
        file: PathBuf,
    },
    /// No files were named.
    #[error("no stream was given")]
    NoFiles,
    /// A snapshot is not in the streams.
    #[error("no snapshot '{name}' in the streams")]
    NoSnapshot {
        /// What was asked for.
        name: String,
    },
    /// Several datasets have a snapshot of the name.
    #[error("several datasets have a snapshot '{name}': {}", datasets.join(", "))]
    Ambiguous {
        /// What was asked for.
        name: String,
        /// The datasets.
        datasets: Vec<String>,
    },
    /// The index cannot be written or read.
    #[error("index {}: {cause}", file.display())]
    Index {
        /// The file of the index.
        file: PathBuf,
        /// The error of the system.
        #[source]
        cause: io::Error,
    },
    /// The datasets in the index cannot be made or read.
    #[error(transparent)]
    Pool(#[from] crate::Error),
    /// The joined stream cannot be made.
    #[error(transparent)]
    Send(#[from] stream::send::SendError),
}
