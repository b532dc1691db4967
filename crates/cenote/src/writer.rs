//! A pool that is open for writing.
//!
//! # What always holds
//! - While the pool is open no other process has its devices open for writing, and a thread writes txgs
//!   regularly.
//! - Changes that are not synced are written when the pool is closed. A change is known to be durable earlier
//!   only through the intent log or [`PoolWriter::sync`].

use crate::host::{host_name, this_host};
use crate::memory::Budget;
use crate::{Caller, Error, OpenOptions, Pool};
use dsl::DslError;
use dsl::TaskCtx;
use format::{PoolGuid, Txg};
use pool::LivePool;
use pool::PoolError;
use pool::{Command, ImportOptions, Leave};
use std::sync::Arc;
use vdev::Env;
use vdev::scan::Found;

/// A pool that is open for writing. Dropping it exports the pool; [`PoolWriter::close`] also returns errors of the
/// export. A pool that its owner keeps open ([`PoolWriter::shared`]) stays open.
pub struct PoolWriter {
    /// `None` only while the pool is being closed.
    live: Option<Arc<LivePool>>,
    /// The pool has another owner, which keeps it open.
    stays_open: bool,
    /// Held until this handle is dropped; see [`PoolWriter::shared`].
    user: Option<Arc<dyn Send + Sync>>,
    caller: Caller,
}

impl PoolWriter {
    /// Takes ownership of a pool that is open already. Its sync thread is not started: without one, every
    /// caller that waits for a txg writes it.
    pub fn of(live: Arc<LivePool>) -> PoolWriter {
        PoolWriter { live: Some(live), stays_open: false, user: None, caller: Caller::this_process() }
    }

    /// A pool that its owner, such as a namespace, keeps open: it stays open when this is closed or dropped.
    /// `user` is held until then.
    pub fn shared(live: Arc<LivePool>, user: Option<Arc<dyn Send + Sync>>) -> PoolWriter {
        let mut pool = PoolWriter::of(live);
        (pool.stays_open, pool.user) = (true, user);
        pool
    }

    /// Acts on behalf of `caller` from now on: its delegated permissions are checked, it owns new file
    /// systems, and the history names it. `None` changes nothing.
    #[must_use]
    pub fn in_name_of(mut self, caller: Option<&Caller>) -> PoolWriter {
        if let Some(caller) = caller {
            self.caller.clone_from(caller);
        }
        self
    }

    /// The user on whose behalf the pool is changed; by default the user of this process.
    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    /// True if the pool has another owner and stays open when this is closed.
    pub fn is_kept_open(&self) -> bool {
        self.stays_open
    }

    /// Returns the pool without closing it, for an owner that keeps it open.
    pub fn into_live(mut self) -> Arc<LivePool> {
        self.live.take().expect("a pool is given up only by closing it")
    }

    /// Opens a pool among devices that were found, starts its sync thread, and replays the intent logs of all
    /// datasets, so that every later reader sees all changes that were durable.
    ///
    /// # Errors
    /// [`PoolError`] with the reason why the pool cannot be opened for writing.
    pub fn import(found: &Found, guid: PoolGuid, options: &ImportOptions) -> Result<PoolWriter, PoolError> {
        let env = Env::system().with_devices(found.source());
        let live = LivePool::import(found, &pool::Which::Guid(guid), options, env)?;
        live.start();
        crate::files::replay_logs(&live);
        Ok(PoolWriter::of(live))
    }

    /// Name of the pool.
    pub fn name(&self) -> &str {
        self.live().name()
    }

    /// Guid of the pool.
    pub fn guid(&self) -> PoolGuid {
        self.live().guid()
    }

    /// The pool as the engine knows it. This type is not part of the stable interface.
    pub fn live(&self) -> &Arc<LivePool> {
        self.live.as_ref().expect("a pool is given up only by closing it")
    }

    /// The pool for reading, as of the last txg on disk. It does not show later changes: call
    /// [`PoolWriter::sync`] first.
    ///
    /// # Errors
    /// [`Error::Pool`] if the meta object set cannot be read.
    pub fn view(&self) -> Result<Pool, Error> {
        Ok(Pool::from(self.live().view()?).used_by(self.user.clone()))
    }

    /// Runs a task in syncing context. All its changes are made or, if it returns an error, none. Returns
    /// when they are on disk.
    ///
    /// # Errors
    /// The error of the task as [`Error::Dsl`]; [`Error::Pool`] if the txg cannot be written.
    pub fn run<T: Send + 'static>(
        &self,
        task: impl FnOnce(&mut TaskCtx<'_>) -> Result<T, DslError> + Send + 'static,
    ) -> Result<T, Error> {
        self.live().run(task).map_err(unwrapped)
    }

    /// Writes all changes made before this call to disk. Returns the transaction group that contains them.
    ///
    /// # Errors
    /// [`Error::Pool`] if the pool cannot be written any more.
    pub fn sync(&self) -> Result<Txg, Error> {
        Ok(self.live().sync()?)
    }

    /// Writes a command line of [`PoolWriter::caller`] into the history of the pool.
    ///
    /// # Errors
    /// [`Error::Pool`] if the pool cannot be written any more.
    pub fn record(&self, command: &str) -> Result<(), Error> {
        Ok(self.live().record(history_command(command, &self.caller))?)
    }

    /// Writes all changes and exports the pool. Does nothing to a pool that its owner keeps open.
    ///
    /// # Errors
    /// [`Error::Pool`] if something could not be written. The pool is then as after a crash, with all that
    /// was synced.
    pub fn close(self) -> Result<(), Error> {
        self.leave(Leave::Exported)
    }

    /// Destroys the pool: marks it as destroyed in its labels, so that it is no longer listed.
    ///
    /// # Errors
    /// [`Error::Pool`] if the labels cannot be written.
    pub fn destroy(self) -> Result<(), Error> {
        self.leave(Leave::Destroyed)
    }

    fn leave(mut self, how: Leave) -> Result<(), Error> {
        match self.live.take() {
            Some(live) if !self.stays_open => Ok(live.export(how)?),
            _ => Ok(()),
        }
    }
}

/// Returns the error of a task as an error of its own layer, not of the pool that ran it.
fn unwrapped(error: PoolError) -> Error {
    match error {
        PoolError::Dsl(error) => Error::Dsl(error),
        error => Error::Pool(error),
    }
}

impl Drop for PoolWriter {
    fn drop(&mut self) {
        if let Some(live) = self.live.take().filter(|_| !self.stays_open) {
            // A drop cannot return the error; `close` does.
            let _ = live.export(Leave::Exported);
        }
    }
}

impl std::fmt::Debug for PoolWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("PoolWriter").field(&self.live).finish()
    }
}

/// A command line of `caller`, as the history of a pool records it.
pub fn history_command(text: &str, caller: &Caller) -> Command {
    Command { text: text.to_owned(), user: caller.uid.into(), hostname: host_name() }
}

impl Pool {
    /// Finds the pool with this name, or with this guid if `name` is a number, and opens it for writing. No
    /// other process can open it for writing until it is closed.
    ///
    /// # Errors
    /// As [`Pool::open`]; [`PoolError::NotWritable`] for pools that can only be read,
    /// [`PoolError::BadDevice`] if another process has a device open, [`PoolError::OtherHost`] if another
    /// machine may have the pool open.
    pub fn open_rw(name: &str, options: &OpenOptions) -> Result<PoolWriter, Error> {
        let found = options.found();
        let pool = Pool::open_among(found.clone(), name, options)?;
        let Budget { cache_bytes, limits } = Budget::to_stay();
        let open = pool::OpenOptions {
            cache_bytes: options.pool.cache_bytes.min(cache_bytes),
            ..options.pool.clone()
        };
        let import = ImportOptions { open, limits, host: this_host(), ..ImportOptions::default() };
        Ok(PoolWriter::import(&found, pool.guid(), &import)?)
    }
}
