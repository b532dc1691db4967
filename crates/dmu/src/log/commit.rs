//! Making records durable: one thread writes for all that wait.

use super::intent_log::IntentLog;
use super::pending::Pending;
use crate::sync::atomic::Ordering;
use crate::sync::lock;
use crate::sync::thread::{self, Thread};
use crate::{TxError, interrupt};
use format::{ObjectId, Txg};

/// Guard of the thread whose turn it is to write. When it is dropped, however the turn ended, other threads
/// are woken.
struct Committer<'a>(&'a IntentLog);

impl Drop for Committer<'_> {
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
        let committer = Committer(self);
        let outcome = self.write_pending();
        if let Ok(taken) = outcome {
            self.done.fetch_max(taken, Ordering::AcqRel);
        }
        drop(committer);
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
}
