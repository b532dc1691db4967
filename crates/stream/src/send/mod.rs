//! Sending: the records of a snapshot, or of what has changed since an earlier one
//! (docs/on-disk/30-send-streams.md, section 4).
//!
//! `plan` decides what the stream may contain, and makes its first record. `walk` visits the blocks of the object set
//! that are newer than the start of the increment, with its holes and free slots, and `emit` makes records of them:
//! `merge` joins those of neighbouring holes, `blocks` chooses the form in which a block travels. They end in a
//! `Sink`: `pipeline` reads the blocks and writes the records, and the estimate counts their bytes.
//!
//! # What always holds
//! - The records are in ascending order of objects and offsets, and those of an object follow its dnode.
//! - Blocks are read many at once by a few threads, up to `pipeline::IN_FLIGHT` bytes ahead of the writer.
//! - Streams are written in little-endian order, whatever the order of the pool.
//! - The walk ends, although a hostile tree may repeat itself: see [`dmu::LoopGuard`].
//!
//! Tests: `crates/cenote/tests/it/send`, `crates/cenote/tests/send_hostile.rs`, and `crates/pool_mutate/tests/it/send.rs`.

mod blocks;
mod emit;
mod key_data;
mod merge;
mod pipeline;
mod plan;
mod ranges;
mod walk;

use dmu::ObjSet;
use dsl::Dataset;
use dsl::bookmark::RedactionList;
use format::stream::{HEADER_SIZE, Record};
use format::{ObjectId, Txg};
use plan::Plan;
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
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct From {
    /// Guid of the snapshot.
    pub guid: u64,
    /// Its creation txg: blocks that are not newer are not sent.
    pub txg: Txg,
    /// It is not an earlier snapshot of the same dataset, but the origin or a snapshot before it: the receiver makes a
    /// clone.
    pub is_origin: bool,
    /// Snapshots of a redacted snapshot or of a redaction bookmark.
    pub redact_snaps: Option<Vec<u64>>,
    /// The list of a redaction bookmark: its blocks are sent although they are not newer, because the receiver may lack
    /// them.
    pub redaction: Option<RedactionList>,
    /// IV set guid of an encrypted snapshot or of its bookmark, which raw streams name.
    pub ivset_guid: Option<u64>,
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
    /// The blocks of this list are left out (`--redact`).
    pub redact: Option<RedactionList>,
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
    /// A data block or spill block cannot be read.
    #[error("cannot read byte {offset} of object {object}")]
    Block {
        /// The object.
        object: ObjectId,
        /// Byte of the object at which the block starts; 0 for a spill block.
        offset: u64,
        /// The error of the block.
        #[source]
        cause: dmu::DmuError,
    },
    /// An object, or a block that points to others, cannot be read.
    #[error(transparent)]
    Read(#[from] dmu::DmuError),
    /// The dataset cannot be read.
    #[error(transparent)]
    Dataset(#[from] dsl::DslError),
}

/// Receives the records of a stream in order.
trait Sink {
    /// Takes a record with its payload.
    fn record(&mut self, record: Record, payload: Vec<u8>) -> Result<(), SendError>;

    /// Takes a block whose contents are still to be read.
    fn block(&mut self, block: blocks::Block) -> Result<(), SendError>;
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
    let plan = Plan::new(source, options)?;
    pipeline::run(&plan, out, on_bytes)
}

/// The size that the stream will have, in bytes, as `zfs send -nv` tells it.
///
/// The blocks that lead to the data are read, not the data, so the size is exact unless a block turns out to be
/// unreadable. A full stream of more than [`WALKED_MAX`] bytes is estimated instead from the space that the dataset
/// references, because the walk would take long.
///
/// # Errors
/// [`SendError`] if the dataset cannot be read.
pub fn estimate(source: &Source, options: &Options) -> Result<u64, SendError> {
    let plan = Plan::new(source, options)?;
    let phys = source.dataset.phys();
    let space = if plan.sends_compressed() { phys.compressed } else { phys.uncompressed };
    if space > WALKED_MAX && source.from.is_none() && options.resume.is_none() {
        // A record has a header; most blocks of large datasets have the default size or more.
        return Ok(space.saturating_add(space / format::units::OLD_MAX_BLOCK * HEADER_SIZE as u64));
    }
    let mut counter = Counter::default();
    counter.record(plan.begin(), plan.begin_payload().to_vec())?;
    walk::walk(&plan, &mut counter)?;
    if !options.saved {
        counter.record(plan.end(), Vec::new())?;
    }
    Ok(counter.bytes)
}

/// Bytes of a full stream above which its size is estimated without visiting its blocks.
pub const WALKED_MAX: u64 = 1 << 40;

/// Counts the bytes of a stream.
#[derive(Default)]
struct Counter {
    bytes: u64,
}

impl Sink for Counter {
    fn record(&mut self, _: Record, payload: Vec<u8>) -> Result<(), SendError> {
        self.bytes += (HEADER_SIZE + payload.len()) as u64;
        Ok(())
    }

    fn block(&mut self, block: blocks::Block) -> Result<(), SendError> {
        self.bytes += block.stream_bytes();
        Ok(())
    }
}
