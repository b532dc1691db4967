//! Sending: the records of a snapshot, or of what has changed since an earlier one
//! (docs/on-disk/30-send-streams.md, section 4).

use dmu::ObjSet;
use dsl::Dataset;
use format::{ObjectId, Txg};
use std::io::Write;
use std::ops::ControlFlow;
use std::sync::Arc;

/// What is sent.
#[derive(Clone)]
pub struct Source {
    /// A snapshot, or a head as of its last txg, in a view that keeps its blocks.
    pub dataset: Dataset,
    /// Its contents. They may be locked for a raw stream.
    pub set: Arc<ObjSet>,
    /// Start of an increment; `None`: all is sent.
    pub from: Option<From>,
    /// Names of the active features of the pool.
    pub pool_features: Vec<&'static str>,
}

/// The start of an increment: an earlier snapshot, or what a bookmark keeps of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct From {
    /// Guid of the snapshot.
    pub guid: u64,
    /// Its creation txg: blocks that are not newer are not sent.
    pub txg: Txg,
    /// It is not an earlier snapshot of the same dataset, but the origin or a snapshot before it: the receiver makes a
    /// clone.
    pub is_origin: bool,
    /// Snapshots of a redaction bookmark.
    pub redact_snaps: Option<Vec<u64>>,
}

/// How it is sent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// Blocks of more than 128 KiB are sent whole (`-L`).
    pub large_blocks: bool,
    /// Blocks embedded in pointers are sent as they are (`-e`).
    pub embedded: bool,
    /// Compressed blocks are sent as they are (`-c`).
    pub compressed: bool,
    /// Blocks are sent as they are on disk, encrypted ones included (`-w`).
    pub raw: bool,
    /// Blocks that cannot be read are sent filled with a pattern (`zfs_send_corrupt_data`).
    pub fill_unreadable: bool,
    /// A partly received dataset is sent (`-S`): the stream has no end.
    pub saved: bool,
    /// Where an interrupted receive goes on: an object and a byte of it.
    pub resume: Option<(ObjectId, u64)>,
    /// Name of the snapshot in the stream (`pool/fs@snap`).
    pub to_name: String,
    /// Guid in the stream, if not that of the dataset (`-S`).
    pub to_guid: Option<u64>,
}

/// What was sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sent {
    /// Bytes of the stream.
    pub bytes: u64,
    /// Number of records.
    pub records: u64,
    /// Blocks that could not be read, and were filled.
    pub filled: u64,
}

/// Why a stream ends early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// The target cannot be written, or nobody reads it any more.
    #[error("cannot write the stream")]
    Write(#[source] std::io::Error),
    /// The caller has ended it.
    #[error("cancelled")]
    Cancelled,
    /// The dataset cannot be sent like this.
    #[error("{0}")]
    Refused(&'static str),
    /// A block or an object cannot be read.
    #[error(transparent)]
    Read(#[from] dmu::DmuError),
    /// The dataset cannot be read.
    #[error(transparent)]
    Dataset(#[from] dsl::DslError),
}

/// Sends. `on_bytes` is called with the bytes of the stream so far, after each record or some of them, and may end it.
///
/// # Errors
/// [`SendError`]. What was written until then is a stream without its end.
pub fn send(
    source: &Source,
    options: &Options,
    out: &mut dyn Write,
    on_bytes: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> Result<Sent, SendError> {
    let _ = (source, options, out, on_bytes);
    Err(SendError::Refused("send is not implemented"))
}

/// The size that the stream will have about, in bytes, as `zfs send -nv` tells it.
///
/// # Errors
/// [`SendError`] if the dataset cannot be read.
pub fn estimate(source: &Source, options: &Options) -> Result<u64, SendError> {
    let _ = (source, options);
    Err(SendError::Refused("send is not implemented"))
}
