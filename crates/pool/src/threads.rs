//! The threads of an open pool. The first writes txgs: every few seconds, when many changes have accumulated,
//! and on request. The second writes multihost uberblocks, which show other machines that the pool is in use.
//! The third runs background work (`background`).
//!
//! # What always holds
//! - The second thread never waits for the first: other machines do not mistake a long txg for a dead
//!   machine.

use crate::live::LivePool;
use crate::runtime::{Runtime, Stop};
use dmu::{Txgs, Work};
use std::sync::{Arc, Weak};
use std::thread::Builder;
use std::time::Duration;
use vdev::sync::lock;

/// Longest sleep of the threads.
const IDLE: Duration = Duration::from_secs(5);
/// Interval at which the second thread checks whether multihost is on.
const LOOK: Duration = Duration::from_secs(1);

impl LivePool {
    /// Starts the threads. A second call has no effect.
    pub fn start(self: &Arc<Self>) {
        let mut runtime = lock(&self.runtime);
        if runtime.is_some() {
            return;
        }
        let stop = Arc::new(Stop::default());
        let (txgs, pool) = (Arc::clone(&self.txgs), Arc::downgrade(self));
        let syncer =
            Builder::new().name(format!("sync {}", self.name)).spawn(alive(move || write(&txgs, &pool)));
        let (pool, until) = (Arc::downgrade(self), Arc::clone(&stop));
        let healer =
            Builder::new().name(format!("scan {}", self.name)).spawn(alive(move || heal(&pool, &until)));
        let (pool, until) = (Arc::downgrade(self), Arc::clone(&stop));
        let beacon =
            Builder::new().name(format!("mmp {}", self.name)).spawn(alive(move || shine(&pool, &until)));
        match syncer {
            Ok(syncer) => {
                let threads = std::iter::once(syncer).chain(beacon).chain(healer).collect();
                *runtime = Some(Runtime { threads, stop });
                self.txgs.set_inline(None);
                self.store.start_prefetch();
            }
            // Callers write txgs themselves then.
            Err(error) => tracing::warn!(%error, "no thread for writing txgs"),
        }
    }
}

/// Wraps the work of a thread: a panic ends the thread, and not the process. The panic of a sync thread is
/// reported to all threads that wait for the txg.
fn alive(work: impl FnOnce()) -> impl FnOnce() {
    // The panic hook has reported it.
    move || drop(dmu::panics::survive(work))
}

/// Writes txgs until the pool is closed.
fn write(txgs: &Arc<Txgs>, pool: &Weak<LivePool>) {
    loop {
        let work = txgs.wait_for_work(IDLE);
        let Some(pool) = pool.upgrade() else { return };
        match work {
            Work::Stop => return pool.note_failure(),
            Work::Idle => pool.when_idle(),
            // Errors reach the threads that wait for the txg.
            Work::Sync if pool.sync_here().is_err() => return,
            Work::Sync => {}
        }
    }
}

/// Runs background work: scrubs, resilvers, retries of devices.
fn heal(pool: &Weak<LivePool>, stop: &Stop) {
    let mut pause = Duration::ZERO;
    while !stop.wait(pause) {
        let Some(pool) = pool.upgrade() else { return };
        pause = pool.background_tick();
    }
}

/// Writes uberblocks between the txgs, while multihost is on.
fn shine(pool: &Weak<LivePool>, stop: &Stop) {
    // The interval may change at any time, and uberblocks announce the present one.
    let (mut pause, mut waited) = (LOOK, Duration::ZERO);
    while !stop.wait(pause) {
        let Some(pool) = pool.upgrade() else { return };
        waited += pause;
        let wanted = pool.mmp_pause();
        pause = wanted.map_or(LOOK, |wanted| wanted.min(LOOK));
        if wanted.is_some_and(|wanted| waited < wanted) {
            continue;
        }
        waited = Duration::ZERO;
        if wanted.is_some() && pool.mmp_write().is_err() {
            return; // The pool is suspended.
        }
    }
}
