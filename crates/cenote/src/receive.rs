//! Receiving one stream into a pool (docs/on-disk/30-send-streams.md, sections 8 and 9).

use crate::PoolWriter;
use dsl::DslError;
use std::io::Read;
use stream::{Frame, Reader, StreamError};

/// Where and how a stream is received.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Receive {
    /// Full name of the file system or volume.
    pub dataset: String,
    /// Name of the snapshot that is made: the part after `@`.
    pub snapshot: String,
    /// What is newer than the start of the increment is lost (`-F`); a full stream replaces what is there.
    pub force: bool,
    /// A receive that is interrupted keeps what it has, to be resumed (`-s`).
    pub resumable: bool,
    /// Full name of the snapshot that a new dataset begins as a clone of (`-o origin=`, or found by its guid).
    pub origin: Option<String>,
    /// Damaged blocks of the existing snapshot are rewritten, and nothing else changes (`-c`).
    pub heal: bool,
}

/// What was received.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Received {
    /// Bytes of the stream, its start included.
    pub bytes: u64,
    /// Blocks that were healed.
    pub healed: u64,
}

/// Receives events of a receive.
pub trait Watch {
    /// So many bytes of the stream were received by now. Called often.
    fn bytes(&mut self, bytes: u64) {
        let _ = bytes;
    }

    /// All was received, and the existing head is about to be replaced: it is taken from its users. An error ends the
    /// receive.
    ///
    /// # Errors
    /// A message for people.
    fn before_replace(&mut self) -> Result<(), String> {
        Ok(())
    }

    /// The head was replaced, or may have been.
    fn replaced(&mut self) {}
}

/// Why a stream is not received.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReceiveError {
    /// The stream cannot be read, or breaks a rule.
    #[error(transparent)]
    Stream(#[from] StreamError),
    /// The stream has features that are unknown: their bits.
    #[error("stream has unsupported feature, feature flags = {0:x}")]
    UnknownFeatures(u64),
    /// The pool lacks a feature that the stream needs.
    #[error("stream needs feature '{0}', which the pool does not have")]
    NeedsFeature(&'static str),
    /// Kinds of streams that are not received.
    #[error("{0}")]
    Unsupported(&'static str),
    /// The start of the stream does not fit the target (`EINVAL`).
    #[error("invalid stream: {0}")]
    Invalid(&'static str),
    /// The dataset exists, and the stream is a full one without `force`.
    #[error("destination '{0}' exists")]
    Exists(String),
    /// The snapshot exists.
    #[error("destination snapshot '{0}' exists")]
    SnapshotExists(String),
    /// The stream is an increment, and the dataset does not exist.
    #[error("destination '{0}' does not exist")]
    Missing(String),
    /// No snapshot of the dataset has the guid of the increment's start; or no snapshot is its origin.
    #[error("no snapshot matches the incremental source")]
    NoSource,
    /// The dataset has changed since its most recent snapshot, or has a newer snapshot.
    #[error("destination has been modified since most recent snapshot")]
    Modified,
    /// An earlier receive into the dataset was interrupted, and can be resumed.
    #[error("destination contains partially-complete state")]
    PartialState,
    /// The dataset is in use.
    #[error("dataset is busy")]
    Busy,
    /// The parent is no file system.
    #[error("parent is not a filesystem")]
    WrongParent,
    /// The target was received with large blocks, and the stream has none.
    #[error("incremental stream lacks large blocks")]
    LargeBlockMismatch,
    /// The dataset to be resumed has another stream, or none.
    #[error("nothing to resume")]
    NotResumable,
    /// The stream is for a redacted origin that the target lacks.
    #[error("redaction does not match")]
    Redacted,
    /// What [`Watch::before_replace`] has said.
    #[error("{0}")]
    Kept(String),
    /// Any other error of the dataset layer, such as a limit or full space.
    #[error(transparent)]
    Dsl(#[from] DslError),
    /// The pool cannot be read or written.
    #[error(transparent)]
    Pool(crate::Error),
}

impl PoolWriter {
    /// Receives the stream whose first record is `begin`, up to its end.
    ///
    /// # Errors
    /// [`ReceiveError`]. With [`Receive::resumable`] what has arrived before an error of the stream stays; otherwise
    /// the dataset is as before.
    pub fn receive<R: Read>(
        &self,
        begin: &Frame,
        reader: &mut Reader<R>,
        how: &Receive,
        watch: &mut dyn Watch,
    ) -> Result<Received, ReceiveError> {
        let _ = (begin, reader, how, watch);
        Err(ReceiveError::Unsupported("receive is not implemented"))
    }

    /// Discards what an interrupted receive into this dataset has left (`zfs receive -A`).
    ///
    /// # Errors
    /// [`ReceiveError::NotResumable`] if there is nothing.
    pub fn discard_received(&self, dataset: &str) -> Result<(), ReceiveError> {
        Err(ReceiveError::Missing(dataset.to_owned()))
    }
}
