//! The threads of a pool that is open: one writes txgs when nobody asks for one, every few seconds and when
//! much has changed; one shows other machines that the pool is in use; one scrubs and resilvers.
//!
//! # What always holds
//! - The second thread waits for nothing that the first does: a txg that takes long is not mistaken for a
//!   machine that has died.

use crate::live::{LivePool, lock};
use dmu::{Txgs, Work};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// How long the threads sleep at most.
const IDLE: Duration = Duration::from_secs(5);
/// How often the second looks whether it is wanted.
const LOOK: Duration = Duration::from_secs(1);

/// The threads.
pub(crate) struct Runtime {
    threads: Vec<JoinHandle<()>>,
    stop: Arc<Stop>,
}

/// Says that the threads should end.
#[derive(Default)]
struct Stop {
    is_set: Mutex<bool>,
    changed: Condvar,
}

impl Stop {
    fn set(&self) {
        *lock(&self.is_set) = true;
        self.changed.notify_all();
    }

    /// Waits for so long, or until it is set. True: it is set.
    fn wait(&self, time: Duration) -> bool {
        let is_set = lock(&self.is_set);
        let waited = self.changed.wait_timeout_while(is_set, time, |is_set| !*is_set);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

impl Runtime {
    /// Makes the threads end, and waits for it. The caller has made sure that no txg is waited for.
    pub(crate) fn join(self) {
        self.stop.set();
        let own = std::thread::current().id();
        for thread in self.threads.into_iter().filter(|thread| thread.thread().id() != own) {
            // A panic there has suspended the pool and was reported.
            let _ = thread.join();
        }
    }
}

impl LivePool {
    /// Starts the threads. A second call does nothing.
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
            // Then callers write txgs themselves.
            Err(error) => tracing::warn!(%error, "no thread for writing txgs"),
        }
    }
}

/// Work of a thread: a panic ends it, and not the process. Of a txg that is being written everybody is told.
fn alive(work: impl FnOnce()) -> impl FnOnce() {
    // The hook of panics has told of it.
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
            // Whoever waits is told of errors.
            Work::Sync if pool.sync_here().is_err() => return,
            Work::Sync => {}
        }
    }
}

/// Scrubs and resilvers, and looks for devices that have come back.
fn heal(pool: &Weak<LivePool>, stop: &Stop) {
    let mut pause = Duration::ZERO;
    while !stop.wait(pause) {
        let Some(pool) = pool.upgrade() else { return };
        pause = pool.scan_tick();
    }
}

/// Writes uberblocks between the txgs, while multihost is on.
fn shine(pool: &Weak<LivePool>, stop: &Stop) {
    // How long it is may change at any time, and what is written promises others what it is now.
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
