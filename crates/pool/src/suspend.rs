//! Suspended pools: the handling of writes that no device takes (property `failmode`).
//!
//! The block layer asks here, on the thread that writes a txg, after it has tried every other place. While it
//! waits the pool is *suspended*: with `wait`, threads that change the pool or wait for a txg wait too; with
//! `continue` they get an error at once; reading continues as far as devices answer. [`LivePool::resume`]
//! repeats the failed writes, so no change in memory is lost; [`LivePool::give_up`] ends the waiting with an
//! error. With `panic` the process ends.
//!
//! # What always holds
//! - No thread waits for ever unless the pool is attended ([`LivePool::attend`]) and its threads run. Without
//!   that, as in commands that work in process, a failed write ends the pool as a crash would, for every
//!   `failmode` but `panic`: the pool must be opened again.
//! - Closing a pool gives it up first.
//! - Locks: only `state` is held while waiting, which [`LivePool::resume`] and [`LivePool::give_up`] do not
//!   take.

use crate::error::{PoolError, chain};
use crate::live::LivePool;
use crate::status::FailMode;
use dmu::TxError;
use dmu::interrupt;
use format::Txg;
use format::nvlist::NvList;
use std::error::Error;
use std::io::Write;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, Weak};
use vdev::scan::Found;
use vdev::sync::lock;

/// The pool as the block layer queries it.
struct Asked(Weak<LivePool>);

impl zio::Outage for Asked {
    fn is_attended(&self) -> bool {
        self.0.upgrade().is_some_and(|pool| pool.is_attended())
    }

    fn wait(&self, why: &dyn Error) -> bool {
        self.0.upgrade().is_some_and(|pool| pool.wait_out(&chain(why)))
    }
}

/// Writes the message to the log and to standard error, and ends the process.
fn abort(message: &str) {
    tracing::error!(message);
    let _ = writeln!(std::io::stderr(), "{message}");
    std::process::abort();
}

impl LivePool {
    /// Registers this pool with the block layer as the handler of writes that failed everywhere.
    pub(crate) fn attend_outages(self: &Arc<Self>) {
        self.zio.set_outage(Arc::new(Asked(Arc::downgrade(self))));
    }

    /// Makes the pool attended: the caller promises to call [`LivePool::resume`] or [`LivePool::give_up`]
    /// when it is suspended. Needs the threads of [`LivePool::start`].
    pub fn attend(&self) {
        // With the lock, no txg is being written.
        let _state = lock(&self.state);
        lock(&self.outages.state).is_attended = true;
        self.zio.keep_blocks();
    }

    /// Ends attendance: from now on failures are errors at once.
    pub(crate) fn unattend(&self) {
        lock(&self.outages.state).is_attended = false;
    }

    /// Whether waiting for devices was given up, so that the pool takes no more writes.
    pub fn is_given_up(&self) -> bool {
        lock(&self.outages.state).is_given_up
    }

    /// Records why the pool takes no more writes, ends all waiting, and posts an event.
    pub(crate) fn note_stopped(&self, why: &str) {
        if self.outages.note_last(why) {
            tracing::error!(pool = self.name, why, "nothing more is written to the pool");
            let mut reason = NvList::new();
            reason.push("reason", why);
            self.events.ereport("io_failure", &self.tree(), None, reason);
        }
    }

    /// Whether the pool takes no writes until it is imported again.
    pub fn has_stopped(&self) -> bool {
        self.outages.stopped().is_some()
    }

    pub(crate) fn is_attended(&self) -> bool {
        lock(&self.outages.state).is_attended
    }

    /// Why the pool is suspended; `None`: it is not.
    pub fn suspended(&self) -> Option<String> {
        lock(&self.outages.state).suspended.clone()
    }

    /// Sets the hook that is called instead of ending the process when `failmode` is `panic`. If the hook
    /// returns, the pool continues like one that is not attended.
    pub fn set_panic_hook(&self, hook: impl Fn(&str) + Send + Sync + 'static) {
        lock(&self.outages.state).panic = Some(Box::new(hook));
    }

    /// Waits, on the sync thread, until the failed operation may be repeated. Returns false if it never may.
    pub(crate) fn wait_out(&self, why: &str) -> bool {
        let has_thread = lock(&self.runtime).is_some();
        let mut state = lock(&self.outages.state);
        if state.mode == FailMode::Panic {
            let message = format!("Pool '{}' has encountered an uncorrectable I/O failure: {why}", self.name);
            match &state.panic {
                Some(hook) => hook(&message),
                None => abort(&message),
            }
            return false;
        }
        if !state.is_attended || !has_thread || state.is_given_up {
            return false;
        }
        tracing::error!(pool = self.name, why, "the pool is suspended");
        self.events.ereport("io_failure", &self.tree(), None, NvList::new());
        state.suspended = Some(why.to_owned());
        self.txgs.suspend(TxError::Suspended { why: why.to_owned() }, state.mode == FailMode::Wait);
        self.outages.changed.notify_all();
        while state.suspended.is_some() && !state.is_given_up {
            state = self.outages.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let is_back = !state.is_given_up;
        tracing::warn!(pool = self.name, is_back, "the pool is no longer suspended");
        is_back
    }

    /// Does what `zpool clear` does: clears the errors of all leaves, uses faulted leaves again if they
    /// answer, opens devices of silent leaves again, at the paths of `found` or at their old ones, and lets a
    /// suspended pool repeat the failed writes. Returns when the waiting txg is on disk.
    ///
    /// # Errors
    /// [`TxError::Suspended`] in [`PoolError::Tx`] if a write fails again: the pool is suspended again.
    /// [`TxError::Closed`] if the pool was given up or closed. [`TxError::Interrupted`] if the caller was
    /// interrupted.
    pub fn resume(&self, found: Option<&Found>) -> Result<(), PoolError> {
        self.reopen_all(found)?;
        self.tree().clear_errors();
        let mut state = lock(&self.outages.state);
        if state.is_given_up {
            return Err(TxError::Closed.into());
        }
        let waiting = state.suspended.take().map(|_| Txg(self.txgs.synced_txg().0 + 1));
        self.txgs.resume();
        self.outages.changed.notify_all();
        self.lift_faults.store(true, Ordering::Release);
        self.txgs.kick();
        while waiting.is_some_and(|txg| self.txgs.synced_txg() < txg) {
            match &state.suspended {
                Some(why) => return Err(TxError::Suspended { why: why.clone() }.into()),
                None if state.is_given_up => return Err(TxError::Closed.into()),
                None => {}
            }
            if interrupt::ends(true) {
                return Err(TxError::Interrupted.into());
            }
            state = interrupt::wait(&self.outages.changed, state);
        }
        Ok(())
    }

    /// Ends a suspended pool: waiting threads get an error, and the pool keeps what was synced, as after a
    /// crash. Has no effect on a pool that is not suspended.
    pub fn give_up(&self) {
        let mut state = lock(&self.outages.state);
        if let Some(why) = state.suspended.take() {
            state.is_given_up = true;
            self.txgs.fail(TxError::Suspended { why });
            self.outages.changed.notify_all();
        }
    }

    /// From now on no thread waits for devices: outages fail at once.
    pub(crate) fn end_outages(&self) {
        self.give_up();
        lock(&self.outages.state).is_given_up = true;
    }
}
