//! The intent log of a dataset: changes that were acknowledged as durable before their txg is on disk
//! (docs/on-disk/24-zil.md).
//!
//! `zpl` and volumes [push](IntentLog::push) their changes, in the transaction that makes them, and
//! [commit](IntentLog::commit) when a caller requests durability. `dsl` calls [`IntentLog::sync`] before it
//! writes a set, `pool` [`check`]s and [`claim`]s the logs at import, and [`replay`] applies the remaining
//! records.
//!
//! # What always holds
//! - When `commit` returns, every earlier push for the object, and every earlier change of names, is on a
//!   device whose cache was flushed after the write: in the log, or in a txg.
//! - A commit that failed stays failed. The records that it took from the queue and could not make durable
//!   are *owed* (`Writer::owed`): until the newest txg of them is on disk, every commit of any object waits
//!   for that txg or returns an error, and no block is written after the gap.
//! - A record describes the change as it happened, not the state when it is written: it keeps its data
//!   ([`LogData`]), and no block is read for it. Later changes of the same bytes are described by their own
//!   records.
//! - A record depends on no block that a crash removes: the blocks that it references were born in txgs that
//!   are on disk when it is pushed (`Tx::is_on_disk`), and are not freed before its own txg is on disk.
//! - A record whose txg is on disk is obsolete. It may still be in the chain, beside newer ones; a replay
//!   skips it. Our chains have no obsolete clones, as a clone is logged only while its txg is open. Those in
//!   chains of other implementations are claimed and freed by counting, as they do ([`Unclaim`]), because the
//!   system that claims a chain need not be the one that frees it.
//! - A block of the log is written while a transaction of the txg that allocated its successor is held. So
//!   every log block that is allocated in a txg's space maps is reachable from the head of the chain.
//! - The head points to the oldest block with a record of a txg that is not on disk, or to an earlier one.
//!
//! # Order of locks
//! writer (one committer at a time) -> [`Tx`] -> chain -> pending records.

pub mod walk;

mod chain;
mod claim;
mod pending;
mod replay;

pub use claim::{ClaimError, Claimed, Limits, Unclaim, check, claim, destroy, walk_chain};
pub use pending::{LogData, Pending};
pub use replay::{Apply, ReplayError, Replayed, apply_log, give_up, replay};

use crate::interrupt;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::thread::{self, Thread};
use crate::sync::{Arc, Mutex, MutexGuard, lock};
use crate::{LiveSet, SyncTx, Tx, TxError, Txgs};
use chain::ChainState;
use format::objset::ZilHeader;
use format::{BlockPtr, ObjectId, Txg};
use pending::Queue;
use zio::AllocTx;

/// The intent log of one dataset.
pub struct IntentLog {
    set: Arc<LiveSet>,
    txgs: Arc<Txgs>,
    enabled: AtomicBool,
    /// Changes of this txg and earlier may not have been recorded.
    recorded_after: AtomicU64,
    avoids_log_devices: AtomicBool,
    queue: Mutex<Queue>,
    /// Ordered records up to this one are durable.
    done: AtomicU64,
    progress: Mutex<Progress>,
    /// State of the active committer.
    writer: Mutex<Writer>,
    chain: Mutex<ChainState>,
    /// Highest number, plus one, of a record replayed in a txg, by the txg's lowest bit.
    replayed: [AtomicU64; 2],
    /// A chain that an import found is being replayed: the head must not change.
    in_replay: AtomicBool,
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
struct Progress {
    /// Whether a thread is writing.
    is_written: bool,
    /// The waiting threads, each with its record.
    waiters: Vec<(u64, Thread)>,
}

impl Progress {
    /// Registers the calling thread, which then parks until the record is durable, or until it must write
    /// itself. It may wake early.
    fn wait_for(&mut self, target: u64) {
        let me = thread::current();
        if !self.waiters.iter().any(|(_, thread)| thread.id() == me.id()) {
            self.waiters.push((target, me));
        }
    }

    /// Ends the turn of a committer. Returns the threads to wake when records up to `done` are durable: first
    /// one of the others, to write next, then all that are served. The remaining threads keep sleeping,
    /// because they would only compete for the lock.
    fn finish(&mut self, done: u64) -> Vec<Thread> {
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
struct Writer {
    /// Number of the last record.
    seq: u64,
    /// Bytes of the last commits: the next block has the size of the largest.
    recent: [usize; 8],
    at: usize,
    /// Records up to this txg were taken from the queue and may be lost: no commit succeeds before it is on
    /// disk.
    owed: Txg,
}

/// Guard of the thread whose turn it is to write. When it is dropped, however the turn ended, other threads
/// are woken.
struct Turn<'a>(&'a IntentLog);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let woken = {
            let mut progress = lock(&self.0.progress);
            progress.is_written = false;
            progress.finish(self.0.done.load(Ordering::Acquire))
        };
        woken.iter().for_each(Thread::unpark);
    }
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

    fn queue(&self) -> MutexGuard<'_, Queue> {
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

    /// Makes all pushed changes of `object`, or of all objects, durable, and every change of names. Must be
    /// called without a transaction.
    ///
    /// # Errors
    /// [`TxError`] if neither the log nor the txg could be written: the pool is suspended. All commits then
    /// fail until that txg is on disk.
    pub fn commit(&self, object: Option<ObjectId>) -> Result<(), TxError> {
        if !self.enabled.load(Ordering::Relaxed) {
            return Ok(());
        }
        let target = self.queue().order(object);
        loop {
            let mut progress = lock(&self.progress);
            if self.done.load(Ordering::Acquire) >= target {
                return Ok(());
            }
            if !progress.is_written {
                progress.is_written = true;
                // A thread that woke early may still be registered, and must not be woken in place of one
                // that waits.
                let me = thread::current().id();
                progress.waiters.retain(|(_, thread)| thread.id() != me);
                break;
            }
            progress.wait_for(target);
            drop(progress);
            match interrupt::look_again() {
                Some(time) => std::thread::park_timeout(time),
                None => thread::park(),
            }
            if self.done.load(Ordering::Acquire) >= target {
                return Ok(());
            }
            if interrupt::ends(self.txgs.is_suspended()) {
                self.leave();
                return Err(TxError::Interrupted);
            }
        }
        // Records that came while the last committer wrote are included in this commit.
        let turn = Turn(self);
        let outcome = self.write_pending();
        if let Ok(taken) = outcome {
            self.done.fetch_max(taken, Ordering::AcqRel);
        }
        drop(turn);
        outcome.map(drop)
    }

    /// Unregisters the calling thread. If it was woken to write next, another one is woken.
    fn leave(&self) {
        let mut progress = lock(&self.progress);
        let me = thread::current().id();
        progress.waiters.retain(|(_, thread)| thread.id() != me);
        if !progress.is_written
            && let Some((_, next)) = progress.waiters.pop()
        {
            next.unpark();
        }
    }

    /// Makes all ordered records durable. Returns the number of records that were ever ordered.
    fn write_pending(&self) -> Result<u64, TxError> {
        let mut writer = lock(&self.writer);
        // Recorded changes may depend on unrecorded ones.
        let unrecorded = Txg(self.recorded_after.load(Ordering::SeqCst));
        self.txgs.wait_synced(unrecorded.max(writer.owed))?;
        let synced = self.txgs.synced_txg();
        let (batch, taken) = self.queue().take(synced);
        let Some(newest) = batch.iter().map(|record| record.txg).max() else { return Ok(taken) };
        // From here on the records are in no list.
        writer.owed = newest;
        let is_beyond_records = batch.iter().any(|record| matches!(record.body, Pending::Txg { .. }));
        if is_beyond_records || self.write(&mut writer, batch).is_err() {
            // A txg on disk is as durable as the log.
            self.txgs.wait_synced(writer.owed)?;
        }
        writer.owed = Txg(0);
        Ok(taken)
    }

    /// For [`replay`]: notes that the change of this record belongs to the txg of `tx`.
    fn note_replayed(&self, seq: u64, tx: &Tx) {
        self.replayed[(tx.txg().0 & 1) as usize].fetch_max(seq, Ordering::AcqRel);
        self.set.mark_root(tx.txg());
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
                    tracing_free_failed(&bp, &error);
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
                tracing_free_failed(&bp, &error);
            }
        }
        drop(chain);
        self.set.set_zil_header(ZilHeader::default(), tx);
        lock(&self.queue).clear();
    }
}

fn tracing_free_failed(bp: &BlockPtr, error: &zio::ZioError) {
    tracing::warn!(%bp, %error, "a block of an intent log was not freed");
}

impl std::fmt::Debug for IntentLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "IntentLog({:?})", self.set)
    }
}
