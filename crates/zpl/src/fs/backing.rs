//! What a file system that is changed needs from the layers beside it: transactions, an intent log, the
//! counts of cloned blocks.

use crate::{BeginError, ZplError};
use dmu::log::LogData;
use dmu::{LiveSet, Tx};
use format::zil::Body;
use format::znode::Time;
use format::{BlockPtr, ObjectId};
use std::sync::Arc;

/// What a change may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cost {
    /// Bytes that it may add, before compression and copies.
    pub bytes: u64,
    /// Blocks of data among them.
    pub blocks: u64,
    /// On balance it frees space, and may be made in a full pool.
    pub frees: bool,
    /// However much is written, there are never more bytes than this: the size of a volume.
    pub within: Option<u64>,
}

impl Cost {
    /// Of a change of names and attributes.
    pub const NAMES: Cost = Cost { bytes: 64 << 10, blocks: 0, frees: false, within: None };
    /// Of a change that frees what it removes.
    pub(crate) const FREES: Cost = Cost { bytes: 32 << 10, blocks: 0, frees: true, within: None };

    /// Of writing so many bytes to blocks of this size.
    pub(crate) fn write(bytes: u64, block_size: u64) -> Cost {
        // The first and the last are written in part.
        let blocks = bytes / block_size.max(1) + 2;
        Cost { bytes: bytes.saturating_add(16 << 10), blocks, frees: false, within: None }
    }
}

/// The dataset that a file system or a volume is in.
pub trait Backing: Send + Sync {
    /// The object set with the contents.
    fn set(&self) -> &Arc<LiveSet>;

    /// Joins the open txg, if there is room for the change.
    fn begin(&self, cost: Cost) -> Result<Tx, BeginError>;

    /// The pool waits for its devices: what holds a lock now may hold it for long ([`dmu::interrupt`]).
    fn is_suspended(&self) -> bool;

    /// The dataset uses this feature (its name as in `format::feature`) from this txg on. Called each time,
    /// so that the answer must be cheap.
    fn uses_feature(&self, _name: &'static str, _tx: &Tx) {}

    /// Where references to cloned blocks are counted, if they are.
    fn clones(&self) -> Option<&dyn CloneTable> {
        None
    }
}

/// What happened, for the intent log. A record that is given belongs to the txg of the transaction, and is
/// written when a caller asks for it to be durable before that txg is.
///
/// Records of attributes are given while the attributes of their file are locked: these calls must not wait.
pub trait IntentLog: Send + Sync {
    /// Something is done with records; if not, none are made.
    fn is_on(&self) -> bool {
        true
    }

    /// A change of names or attributes.
    fn log(&self, tx: &Tx, record: Body);

    /// Data was written to an object, whose range no other thread changes meanwhile; and with it the time of
    /// the last change of its content was set, if one is given.
    fn log_write(&self, tx: &Tx, object: ObjectId, offset: u64, data: LogData, mtime: Option<Time>);

    /// A change of an object that no record can describe: a caller that wants it durable waits for the txg.
    fn log_by_txg(&self, tx: &Tx, object: ObjectId);

    /// What was told of this object stays before what is told next: it is about to be renamed.
    fn order(&self, _object: ObjectId) {}

    /// The object is gone: what was told of it alone need not be written.
    fn forget(&self, _object: ObjectId) {}
}

/// The log of a dataset without one: a caller that wants a change durable waits for the txg.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoLog;

impl IntentLog for NoLog {
    fn is_on(&self) -> bool {
        false
    }

    fn log(&self, _: &Tx, _: Body) {}

    fn log_write(&self, _: &Tx, _: ObjectId, _: u64, _: LogData, _: Option<Time>) {}

    fn log_by_txg(&self, _: &Tx, _: ObjectId) {}
}

/// Counts the references to cloned blocks (docs/on-disk/26): the pool's table.
pub trait CloneTable: Send + Sync {
    /// Pointers of the object set with this number are about to be read, and get references in the txg of
    /// `tx`. Its owner keeps it open until this was said.
    fn note_source(&self, objset: u64, tx: &Tx);

    /// One more pointer to each of these blocks exists from the txg of `tx` on. Holes and embedded blocks
    /// are not among them.
    ///
    /// # Errors
    /// If one of them cannot be cloned; then none was counted.
    fn add(&self, blocks: &[BlockPtr], tx: &Tx) -> Result<(), ZplError>;
}
