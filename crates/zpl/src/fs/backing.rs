//! The interfaces that a writable file system needs from other layers: transactions, an intent log, the block
//! reference table.

use crate::{BeginError, ZplError};
use dmu::log::LogData;
use dmu::{LiveSet, Tx};
use format::zil::Body;
use format::znode::Time;
use format::{BlockPtr, ObjectId};
use std::sync::Arc;

/// Upper bound of the space that a change takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cost {
    /// Bytes added, before compression and copies.
    pub bytes: u64,
    /// Number of data blocks among them.
    pub blocks: u64,
    /// The change frees more than it takes, and is allowed in a full pool.
    pub frees: bool,
    /// The largest size in bytes that the contents can ever have: the size of a volume. `None`: no such
    /// bound.
    pub within: Option<u64>,
}

impl Cost {
    /// Cost of a change of names and attributes.
    pub const NAMES: Cost = Cost { bytes: 64 << 10, blocks: 0, frees: false, within: None };
    /// Cost of a change that frees what it removes.
    pub(crate) const FREES: Cost = Cost { bytes: 32 << 10, blocks: 0, frees: true, within: None };

    /// Cost of writing `bytes` to blocks of `block_size` bytes.
    pub(crate) fn write(bytes: u64, block_size: u64) -> Cost {
        // The first and the last block are written in part.
        let blocks = bytes / block_size.max(1) + 2;
        Cost { bytes: bytes.saturating_add(16 << 10), blocks, frees: false, within: None }
    }
}

/// The dataset that contains a file system or a volume.
pub trait Backing: Send + Sync {
    /// The object set with the contents.
    fn set(&self) -> &Arc<LiveSet>;

    /// Joins the open txg, if there is space for the change.
    fn begin(&self, cost: Cost) -> Result<Tx, BeginError>;

    /// Whether the pool waits for its devices: a lock may then be held for long ([`dmu::interrupt`]).
    fn is_suspended(&self) -> bool;

    /// Activates a feature of the dataset (by its name in `format::feature`) in this txg. Called for every
    /// use, so it must be cheap.
    fn uses_feature(&self, _name: &'static str, _tx: &Tx) {}

    /// The table that counts references to cloned blocks; `None`: they are not counted.
    fn clones(&self) -> Option<&dyn CloneTable> {
        None
    }
}

/// The intent log as the file system sees it. A record belongs to the txg of its transaction, and is written
/// when a caller requests durability before that txg is on disk.
///
/// Records of attributes are logged while the attributes of their file are locked: these calls must not wait.
pub trait IntentLog: Send + Sync {
    /// Whether records are used; if not, the caller makes none.
    fn is_on(&self) -> bool {
        true
    }

    /// Logs a change of names or attributes.
    fn log(&self, tx: &Tx, record: Body);

    /// Logs a write of data to an object, whose range no other thread changes meanwhile, and the new mtime,
    /// if there is one.
    fn log_write(&self, tx: &Tx, object: ObjectId, offset: u64, data: LogData, mtime: Option<Time>);

    /// Notes a change of an object that no record can describe: an fsync of it waits for the txg.
    fn log_by_txg(&self, tx: &Tx, object: ObjectId);

    /// Makes earlier records of this object precede all later records: it is about to be renamed.
    fn order(&self, _object: ObjectId) {}

    /// Drops the records of this object alone: the object was freed.
    fn forget(&self, _object: ObjectId) {}
}

/// The log of a dataset without an intent log: every fsync waits for the txg.
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

/// The reference counts of cloned blocks (docs/on-disk/32-dedup-cloning.md): the pool's table.
pub trait CloneTable: Send + Sync {
    /// Announces that pointers of the object set with this number are about to be read, and get references in
    /// the txg of `tx`. Its owner keeps it open until this call.
    fn note_source(&self, objset: u64, tx: &Tx);

    /// Adds one reference to each of these blocks in the txg of `tx`. Holes and embedded blocks are not among
    /// them.
    ///
    /// # Errors
    /// If one of them cannot be cloned; then none was counted.
    fn add(&self, blocks: &[BlockPtr], tx: &Tx) -> Result<(), ZplError>;
}
