//! Why a stream cannot be received.

/// Why a stream does not fit the dataset that it is for (docs/on-disk/30-send-streams.md, section 9).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReceiveRefusal {
    /// The stream is a full one, and the dataset exists.
    #[error("destination '{name}' exists")]
    Exists {
        /// Full name of the dataset.
        name: String,
    },
    /// A snapshot of this name exists.
    #[error("destination snapshot '{name}' exists")]
    SnapshotExists {
        /// Full name of the snapshot.
        name: String,
    },
    /// The stream is an increment, and the dataset does not exist.
    #[error("destination '{name}' does not exist")]
    Missing {
        /// Full name of the dataset.
        name: String,
    },
    /// No snapshot has the guid of the snapshot from which the increment starts.
    #[error("no snapshot of '{name}' has the guid {guid:#x}")]
    NoSource {
        /// Full name of the dataset.
        name: String,
        /// The guid.
        guid: u64,
    },
    /// The dataset has changed since the snapshot from which the increment starts.
    #[error("'{name}' has been modified since its snapshot")]
    Modified {
        /// Full name of the dataset.
        name: String,
    },
    /// An earlier receive was interrupted, and can be resumed or discarded.
    #[error("'{name}' contains partially-complete state")]
    PartialState {
        /// Full name of the dataset.
        name: String,
    },
    /// There is nothing to be resumed by this stream.
    #[error("'{name}' has no state that this stream resumes")]
    NotResumable {
        /// Full name of the dataset.
        name: String,
    },
    /// The target has large blocks, and the stream would lack them.
    #[error("'{name}' has large blocks, and the stream does not")]
    LargeBlocks {
        /// Full name of the dataset.
        name: String,
    },
    /// The stream is for a redacted snapshot, and the target has other data.
    #[error("the stream is not compatible with the redaction of '{name}'")]
    Redacted {
        /// Full name of the dataset.
        name: String,
    },
    /// The raw stream is of a dataset with other keys.
    #[error("'{name}' has another encryption key than the stream")]
    OtherKey {
        /// Full name of the dataset, or of the snapshot from which the stream starts.
        name: String,
    },
    /// The snapshot from which the raw stream starts has no IV set guid, here or at the sender (errata 4).
    #[error("'{name}' has no IV set guid, here or in the stream")]
    NoIvSet {
        /// Full name of the snapshot.
        name: String,
    },
    /// The snapshot from which the raw stream starts has the same guid and other contents.
    #[error("the IV set guid of '{name}' is not that of the stream")]
    OtherIvSet {
        /// Full name of the snapshot.
        name: String,
    },
    /// A full stream would replace an encrypted dataset, or make one of a dataset that is not.
    #[error("a full stream does not replace '{name}', which is or would become encrypted")]
    EncryptedOverwrite {
        /// Full name of the dataset.
        name: String,
    },
    /// A raw increment is for a dataset that is not encrypted.
    #[error("'{name}' is not encrypted, and the stream is raw")]
    NotEncrypted {
        /// Full name of the snapshot from which the stream starts.
        name: String,
    },
    /// The start of the stream contradicts the target or itself.
    #[error("{0}")]
    Invalid(&'static str),
}
