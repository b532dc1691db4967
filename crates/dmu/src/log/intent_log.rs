//! The log of one dataset: what is pushed to it, and what the sync of its set does with it.

use super::chain::{ChainState, note_not_freed};
use super::pending::{Pending, Queue};
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::thread::{self, Thread};
use crate::sync::{Arc, Mutex, MutexGuard, lock};
use crate::{LiveSet, SyncTx, Tx, Txgs};
use format::objset::ZilHeader;
use format::{BlockPtr, ObjectId, Txg};
use zio::AllocTx;

/// The intent log of one dataset.
pub struct IntentLog {
    pub(super) set: Arc<LiveSet>,
    pub(super) txgs: Arc<Txgs>,
    pub(super) enabled: AtomicBool,
    /// Changes of this txg and earlier may not have been recorded.
    pub(super) recorded_after: AtomicU64,
    pub(super) avoids_log_devices: AtomicBool,
    queue: Mutex<Queue>,
    /// Ordered records up to this one are durable.
    pub(super) done: AtomicU64,
    pub(super) progress: Mutex<Progress>,
    /// State of the active committer.
    pub(super) writer: Mutex<Writer>,
    pub(super) chain: Mutex<ChainState>,
    /// Highest number, plus one, of a record replayed in a txg, by the txg's lowest bit.
    pub(super) replayed: [AtomicU64; 2],
    /// A chain that an import found is being replayed: the head must not change.
    pub(super) in_replay: AtomicBool,
}

/// Where the blocks of a log are allocated (property `logbias`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogBias {
    /// On log devices, if the pool has any.
    #[default]
    Latency,
    /// In the class of data blocks: log devices are left to other datasets.
    Throughput,
}

/// The active committer and the waiting ones.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// Whether a thread is writing.
    pub(super) is_written: bool,
    /// The waiting threads, each with its record.
    pub(super) waiters: Vec<(u64, Thread)>,
}

impl Progress {
    /// Registers the calling thread, which then parks until the record is durable, or until it must write
    /// itself. It may wake early.
    pub(super) fn wait_for(&mut self, target: u64) {
        let me = thread::current();
        if !self.waiters.iter().any(|(_, thread)| thread.id() == me.id()) {
            self.waiters.push((target, me));
        }
    }

    /// Ends the turn of a committer. Returns the threads to wake when records up to `done` are durable: first
    /// one of the others, to write next, then all that are served. The remaining threads keep sleeping,
    /// because they would only compete for the lock.
    pub(super) fn finish(&mut self, done: u64) -> Vec<Thread> {
        let (served, rest): (Vec<_>, Vec<_>) =
            self.waiters.drain(..).partition(|(target, _)| *target <= done);
        let mut rest = rest.into_iter();
        let next = rest.next();
        self.waiters = rest.collect();
        next.into_iter().chain(served).map(|(_, thread)| thread).collect()
    }
}

/// State of the active committer.
#[derive(Debug, Default)]
pub(super) struct Writer {
    /// Number of the last record.
    pub(super) seq: u64,
    /// Bytes of the last commits: the next block has the size of the largest.
    pub(super) recent: [usize; 8],
    pub(super) at: usize,
    /// Records up to this txg were taken from the queue and may be lost: no commit succeeds before it is on
    /// disk.
    pub(super) owed: Txg,
}

impl IntentLog {
    /// The log of a set that was just opened for writing.
    pub fn new(set: &Arc<LiveSet>, txgs: &Arc<Txgs>) -> Arc<IntentLog> {
        Arc::new(IntentLog {
            set: Arc::clone(set),
            txgs: Arc::clone(txgs),
            enabled: AtomicBool::new(true),
            recorded_after: AtomicU64::new(0),
            avoids_log_devices: AtomicBool::new(false),
            queue: Mutex::default(),
            done: AtomicU64::new(0),
            progress: Mutex::default(),
            writer: Mutex::default(),
            chain: Mutex::default(),
            replayed: Default::default(),
            in_replay: AtomicBool::new(false),
        })
    }

    /// Sets whether changes are recorded. With `false` commits return at once (property `sync=disabled`).
    /// After enabling, commits wait for the txgs of changes that were not recorded.
    pub fn set_enabled(&self, enabled: bool) {
        if !self.enabled.swap(enabled, Ordering::SeqCst) && enabled {
            self.recorded_after.store(self.txgs.open_txg().0, Ordering::SeqCst);
        }
    }

    /// Sets where new blocks of the log are allocated (property `logbias`).
    pub fn set_bias(&self, bias: LogBias) {
        self.avoids_log_devices.store(bias == LogBias::Throughput, Ordering::Relaxed);
    }

    /// Whether changes are recorded.
    pub fn is_enabled(&self) -> bool {
        self.enabled.load(Ordering::Relaxed)
    }

    pub(super) fn queue(&self) -> MutexGuard<'_, Queue> {
        lock(&self.queue)
    }

    /// Records a change made in `tx`, and keeps it until it is committed or its txg is on disk.
    pub fn push(&self, tx: &Tx, body: Pending) {
        if self.enabled.load(Ordering::Relaxed) {
            self.txgs.meter().add(tx.txg(), body.memory());
            self.queue().push(tx.txg(), body);
        }
    }

    /// Makes earlier records of an object precede all later records, because the object is being renamed:
    /// programs that rename a new file over an old one rely on that.
    pub fn order(&self, object: ObjectId) {
        self.queue().order(Some(object));
    }

    /// Like [`IntentLog::order`], for all objects.
    pub fn order_all(&self) {
        self.queue().order(None);
    }

    /// Drops the pending records of an object alone, which was freed.
    pub fn forget(&self, object: ObjectId) {
        self.queue().forget(object);
    }

    /// Begins a new chain: the blocks of the present one are freed when their records are in txgs on disk. Called
    /// when the vdev that has them is to leave the pool.
    pub fn restart(&self) {
        let _writer = lock(&self.writer);
        self.give_up();
    }

    /// In syncing context, before the set is written: frees the blocks that are no longer needed and stores
    /// the head of the chain in the set.
    pub fn sync(&self, tx: &SyncTx) {
        if tx.pass() > 1 {
            return;
        }
        let mut header = self.set.zil_header();
        let before = header;
        let replayed = self.replayed[(tx.txg().0 & 1) as usize].swap(0, Ordering::AcqRel);
        header.replay_seq = header.replay_seq.max(replayed);
        let mut chain = lock(&self.chain);
        if chain.forget_head.take_if(|txg| *txg <= tx.txg()).is_some() {
            header = ZilHeader::default();
            self.in_replay.store(false, Ordering::Release);
        }
        if !self.in_replay.load(Ordering::Acquire) {
            for bp in chain.trim(tx.txg()) {
                if let Err(error) = self.set.store().zio().free(&bp, tx) {
                    // The space is lost, but not the log.
                    note_not_freed(&bp, &error);
                }
            }
            if chain.is_started {
                header.log = chain.head().unwrap_or(BlockPtr::HOLE);
            }
        }
        drop(chain);
        if header != before {
            self.set.set_zil_header(header, tx);
        }
    }

    /// Called after the txg is on disk: drops its records.
    pub fn synced(&self, txg: Txg) {
        let dropped = self.queue().synced(txg);
        drop(dropped);
    }

    /// Waits until every record is in a txg on disk, and frees the chain with the sync of a later one: called
    /// before a dataset is destroyed, rolled back or exported. No change may be pushed meanwhile.
    pub fn close(&self, tx: &SyncTx) {
        let mut chain = lock(&self.chain);
        for bp in chain.abandon() {
            if let Err(error) = self.set.store().zio().free(&bp, tx) {
                note_not_freed(&bp, &error);
            }
        }
        drop(chain);
        self.set.set_zil_header(ZilHeader::default(), tx);
        lock(&self.queue).clear();
    }
}

impl std::fmt::Debug for IntentLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "IntentLog({:?})", self.set)
    }
}
