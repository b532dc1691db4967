//! The thread that writes txgs when nobody asks for one: every few seconds, and when much has changed.

use super::{LivePool, lock};
use dmu::live::{Txgs, Work};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long the thread sleeps at most.
const IDLE: Duration = Duration::from_secs(5);

/// The thread.
pub(super) struct Runtime {
    thread: Option<JoinHandle<()>>,
}

impl Runtime {
    /// Waits for the thread to end; whoever calls has made it stop.
    pub(super) fn join(mut self) {
        if let Some(thread) = self.thread.take().filter(|t| t.thread().id() != std::thread::current().id()) {
            // A panic there has suspended the pool and was reported.
            let _ = thread.join();
        }
    }
}

impl LivePool {
    /// Starts the thread that writes txgs. A second call does nothing.
    pub fn start(self: &Arc<Self>) {
        let mut runtime = lock(&self.runtime);
        if runtime.is_none() {
            let (txgs, pool) = (Arc::clone(&self.txgs), Arc::downgrade(self));
            let name = format!("sync {}", self.name);
            let thread = std::thread::Builder::new().name(name).spawn(move || work(&txgs, &pool));
            match thread {
                Ok(thread) => {
                    *runtime = Some(Runtime { thread: Some(thread) });
                    self.txgs.set_inline(None);
                }
                // Then callers write txgs themselves.
                Err(error) => tracing::warn!(%error, "no thread for writing txgs"),
            }
        }
    }
}

fn work(txgs: &Arc<Txgs>, pool: &Weak<LivePool>) {
    let mut pause = None;
    loop {
        let work = txgs.wait_for_work(pause.unwrap_or(IDLE));
        let Some(pool) = pool.upgrade() else { return };
        let outcome = match work {
            Work::Stop => return,
            Work::Sync => pool.sync_here().map(|_| ()),
            Work::Idle if pause.is_some() => pool.mmp_write(),
            Work::Idle => Ok(()),
        };
        if outcome.is_err() {
            return; // Whoever waits was told.
        }
        pause = pool.mmp_pause();
    }
}
