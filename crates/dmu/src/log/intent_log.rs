//! The intent log of a dataset: changes that were promised to be durable before their txg is on disk
//! (docs/on-disk/24-zil.md).
//!
//! `zpl` and volumes [push](IntentLog::push) what they change, in the transaction that changes it, and
//! [commit](IntentLog::commit) when somebody asked for durability. `dsl` calls [`IntentLog::sync`]
//! before it writes a set, `pool` [`check`]s and [`claim`]s the logs at import, and [`replay`] applies
//! what is left of them.
//!
//! # What always holds
//! - When `commit` returns, everything that was pushed for the object before, and every change of names
//!   before, is on a device whose cache was flushed after the write: in the log, or in a txg.
//! - A commit that failed stays failed. What it took out of the queue and could not make durable is *owed*
//!   (`Writer::owed`): until the newest txg of it is on disk, no commit returns without an error, whoever asks and
//!   for whatever, and nothing is written behind the gap.
//! - A record says what happened, not what is there when it is written: it keeps its data ([`LogData`]), and nothing
//!   is read for it. What later changes do to the same bytes is said by their records alone.
//! - A record needs nothing that a crash takes away: the blocks that it points to were born in txgs that are on disk
//!   when it is pushed (`Tx::is_on_disk`), and nothing frees them before its own txg is.
//! - A record whose txg is on disk says nothing any more. It may stand in the chain all the same, beside newer ones; replay
//!   passes over it. No clone does in a chain of ours, as its record is only written while its txg is open. In those of
//!   others it is claimed and let go of as they do, by counting ([`Unclaim`]): whoever claims a chain need not be the one
//!   who frees it.
//! - A block of the log is written while a transaction of the txg that allocated its successor is
//!   held. So whatever a txg's space maps call allocated can be reached from the head of the chain.
//! - The head points to the oldest block that holds a record of a txg that is not on disk, or earlier.
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
    /// Changes of this txg and before may not have been recorded.
    recorded_after: AtomicU64,
    avoids_log_devices: AtomicBool,
    queue: Mutex<Queue>,
    /// Ordered records up to this one are durable.
    done: AtomicU64,
    progress: Mutex<Progress>,
    /// Of the committer at work.
    writer: Mutex<Writer>,
    chain: Mutex<ChainState>,
    /// Records replayed in a txg, by its lowest bit: the highest number, plus one.
    replayed: [AtomicU64; 2],
    /// A chain that an import found is being replayed: the head must stay as it is.
    in_replay: AtomicBool,
}

/// Where the blocks of a log go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogBias {
    /// To log devices, if the pool has any.
    #[default]
    Latency,
    /// To where data goes: log devices are left to others.
    Throughput,
}

/// Who commits.
#[derive(Debug, Default)]
struct Progress {
    /// Somebody writes.
    is_written: bool,
    /// Who waits, and for which record.
    waiters: Vec<(u64, Thread)>,
}

impl Progress {
    /// The calling thread parks until the record is durable, or somebody else must write. It may wake early.
    fn wait_for(&mut self, target: u64) {
        let me = thread::current();
        if !self.waiters.iter().any(|(_, thread)| thread.id() == me.id()) {
            self.waiters.push((target, me));
        }
    }

    /// Whom to wake when records up to `done` are durable: one of the rest, to write next, before all who are
    /// served. The others sleep on: they would only fight for the lock.
    fn finish(&mut self, done: u64) -> Vec<Thread> {
        let (served, rest): (Vec<_>, Vec<_>) =
            self.waiters.drain(..).partition(|(target, _)| *target <= done);
        let mut rest = rest.into_iter();
        let next = rest.next();
        self.waiters = rest.collect();
        next.into_iter().chain(served).map(|(_, thread)| thread).collect()
    }
}

/// What the committer at work knows.
#[derive(Debug, Default)]
struct Writer {
    /// Number of the last record.
    seq: u64,
    /// Bytes of the last commits: the next block is made as large as the largest.
    recent: [usize; 8],
    at: usize,
    /// Nothing is durable before this txg is on disk: records up to it were taken, and may be lost.
    owed: Txg,
}

/// The calling thread is the one that writes. When it has, however it ended, others are woken.
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
    /// The log of a set that has just been opened for writing.
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

    /// With `false` nothing is recorded and commits return at once (property `sync=disabled`). Once enabled again,
    /// commits wait for the txgs of changes that were not recorded.
    pub fn set_enabled(&self, enabled: bool) {
        if !self.enabled.swap(enabled, Ordering::SeqCst) && enabled {
            self.recorded_after.store(self.txgs.open_txg().0, Ordering::SeqCst);
        }
    }

    /// Where the blocks of the log go from now on (property `logbias`).
    pub fn set_bias(&self, bias: LogBias) {
        self.avoids_log_devices.store(bias == LogBias::Throughput, Ordering::Relaxed);
    }

    /// Whether anything is recorded.
    pub fn is_enabled(&self) -> bool {
        self.enabled.load(Ordering::Relaxed)
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        lock(&self.queue)
    }

    /// Remembers a change made in `tx`, until it is committed or its txg is on disk.
    pub fn push(&self, tx: &Tx, body: Pending) {
        if self.enabled.load(Ordering::Relaxed) {
            self.txgs.meter().add(tx.txg(), body.memory());
            self.queue().push(tx.txg(), body);
        }
    }

    /// What was pushed for an object on its own keeps its place before what is pushed next: the object is
    /// being renamed, and whoever renames a new file over an old one relies on that.
    pub fn order(&self, object: ObjectId) {
        self.queue().order(Some(object));
    }

    /// The same of all objects.
    pub fn order_all(&self) {
        self.queue().order(None);
    }

    /// The object is gone; what was pushed for it on its own need not be written.
    pub fn forget(&self, object: ObjectId) {
        self.queue().forget(object);
    }

    /// Makes durable what was pushed for `object`, or for all objects, and every change of names. Must be
    /// called without a transaction.
    ///
    /// # Errors
    /// If neither the log nor the txg could be written: the pool is suspended. It is an error again for everybody until
    /// that txg is on disk.
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
                // Who woke early may still be on the list, and must not be woken instead of somebody who waits.
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
        // Whoever came while the last one wrote is served by this one too.
        let turn = Turn(self);
        let outcome = self.write_pending();
        if let Ok(taken) = outcome {
            self.done.fetch_max(taken, Ordering::AcqRel);
        }
        drop(turn);
        outcome.map(drop)
    }

    /// The calling thread waits no longer. If it was woken to write next, another one is.
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

    /// Makes everything durable that is ordered. Returns how many records have ever been ordered.
    fn write_pending(&self) -> Result<u64, TxError> {
        let mut writer = lock(&self.writer);
        // What is recorded may build on what is not.
        let unrecorded = Txg(self.recorded_after.load(Ordering::SeqCst));
        self.txgs.wait_synced(unrecorded.max(writer.owed))?;
        let synced = self.txgs.synced_txg();
        let (batch, taken) = self.queue().take(synced);
        let Some(newest) = batch.iter().map(|record| record.txg).max() else { return Ok(taken) };
        // They are in no list any more, whatever happens from here on.
        writer.owed = newest;
        let is_beyond_records = batch.iter().any(|record| matches!(record.body, Pending::Txg { .. }));
        if is_beyond_records || self.write(&mut writer, batch).is_err() {
            // The txgs themselves are as good a promise.
            self.txgs.wait_synced(writer.owed)?;
        }
        writer.owed = Txg(0);
        Ok(taken)
    }

    /// For [`replay`]: this record's change belongs to the txg of `tx`.
    fn note_replayed(&self, seq: u64, tx: &Tx) {
        self.replayed[(tx.txg().0 & 1) as usize].fetch_max(seq, Ordering::AcqRel);
        self.set.mark_root(tx.txg());
    }

    /// In syncing context, before the set is written: frees the blocks that are no longer needed and puts
    /// the head of the chain into the set.
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
                    // The space is lost, the log is not.
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

    /// After the txg is on disk: its records are not needed any more.
    pub fn synced(&self, txg: Txg) {
        let dropped = self.queue().synced(txg);
        drop(dropped);
    }

    /// Waits until every record is in a txg on disk, and frees the chain with the sync of a later one: before a
    /// dataset is destroyed, rolled back or exported. Nothing may be pushed meanwhile.
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
