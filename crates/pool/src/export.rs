//! Closing a pool: export and destruction (docs/on-disk/10-overview.md, section 5.3).

use crate::error::PoolError;
use crate::live::LivePool;
use dmu::TxError;
use format::config::PoolState;
use std::sync::Arc;
use vdev::sync::lock;

/// State in which a pool is left when it is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leave {
    /// Any machine may open it.
    Exported,
    /// The pool stays in use by this machine, which opens it again later.
    Imported,
    /// The pool is destroyed. It is opened again only on explicit request.
    Destroyed,
}

impl LivePool {
    /// Syncs the pool, marks it as exported in all labels, and closes it. Threads that still use it get
    /// [`TxError::Closed`]. A pool whose writes are still held back is left as it was found.
    ///
    /// # Errors
    /// [`PoolError::Tx`] if the last txgs cannot be written, for example because the pool is suspended. The
    /// pool is then closed as by a crash: it keeps every synced txg.
    pub fn export(self: Arc<Self>, how: Leave) -> Result<(), PoolError> {
        self.give_up();
        // No administrator brings devices back to a pool that is being closed.
        self.unattend();
        let outcome = match how {
            // The pool is unchanged, so its labels are still right.
            Leave::Exported | Leave::Imported if self.is_held() => Ok(()),
            Leave::Imported => self.jobs.save_all(&self).and_then(|()| self.sync()).map(|_| ()),
            _ => self.jobs.save_all(&self).and_then(|()| self.sync()).and_then(|_| self.write_state(how)),
        };
        match how {
            Leave::Imported => {}
            Leave::Exported => self.events.left("pool_export", 1),
            Leave::Destroyed => self.events.left("pool_destroy", 2),
        }
        self.events.left("config_sync", 5);
        self.close();
        outcome
    }

    fn write_state(&self, how: Leave) -> Result<(), PoolError> {
        let left = match how {
            Leave::Exported => PoolState::Exported,
            Leave::Imported => PoolState::Active,
            Leave::Destroyed => PoolState::Destroyed,
        };
        self.run_on_pool(move |_, pool| {
            pool.state.config.state = left;
            pool.state.mark_all();
            pool.state.flush_all = true;
            Ok(())
        })
    }

    /// Refuses new work, and waits for the pool's threads to end.
    pub(crate) fn close(&self) {
        self.end_outages();
        self.jobs.close();
        self.txgs.fail(TxError::Closed);
        self.store.stop_prefetch();
        let runtime = lock(&self.runtime).take();
        if let Some(runtime) = runtime {
            runtime.join();
        }
        lock(&self.state).stopped.get_or_insert(TxError::Closed);
    }
}

impl Drop for LivePool {
    fn drop(&mut self) {
        self.close();
    }
}
