//! A pool that is open for change.
//!
//! # What always holds
//! - While it is open nobody else has its devices open for writing, and a thread writes txgs as time goes by.
//! - What was changed and not yet synced is written when the pool is closed; who must know that it is
//!   durable before goes through the intent log or [`PoolWriter::sync`].

use crate::host::{host_name, this_host};
use crate::memory::Budget;
use crate::{Caller, Error, OpenOptions, Pool, PoolUse};
use dsl::DslError;
use dsl::TaskCtx;
use format::config::PoolConfig;
use format::nvlist::NvList;
use format::{PoolGuid, Txg};
use pool::LivePool;
use pool::PoolError;
use pool::{Command, ImportOptions, Leave, Operation};
use std::sync::Arc;
use std::time::Duration;
use vdev::Env;
use vdev::scan::Found;

/// A pool that is open for change. Exported when it is dropped; [`PoolWriter::close`] also tells whether that
/// worked. One that belongs to a namespace stays open.
pub struct PoolWriter {
    /// `None` only while it is being closed.
    live: Option<Arc<LivePool>>,
    /// Somebody else keeps it open.
    stays_open: bool,
    /// It belongs to a namespace.
    user: Option<PoolUse>,
    caller: Caller,
}

impl PoolWriter {
    /// Takes over a pool that is open already. Does not start its thread: without one every caller that waits
    /// for a txg writes it.
    pub fn of(live: Arc<LivePool>) -> PoolWriter {
        PoolWriter { live: Some(live), stays_open: false, user: None, caller: Caller::this_process() }
    }

    /// A pool that somebody else keeps open: it stays open when this is closed or dropped.
    pub fn shared(live: Arc<LivePool>) -> PoolWriter {
        PoolWriter { live: Some(live), stays_open: true, user: None, caller: Caller::this_process() }
    }

    /// A pool that a namespace keeps open: it stays open when this is closed or dropped, and counts as used until then.
    pub fn kept_open(live: Arc<LivePool>, user: PoolUse) -> PoolWriter {
        let mut pool = PoolWriter::shared(live);
        pool.user = Some(user);
        pool
    }

    /// From now on everything is done in the name of this user: permissions are asked for, new file systems are
    /// his, the history names him.
    #[must_use]
    pub fn in_name_of(mut self, caller: Option<&Caller>) -> PoolWriter {
        if let Some(caller) = caller {
            self.caller.clone_from(caller);
        }
        self
    }

    /// In whose name everything is done: the user of this process, unless somebody else was named.
    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    /// True if the pool stays open when this is closed: others use it too.
    pub fn is_kept_open(&self) -> bool {
        self.stays_open
    }

    /// Gives up the handle and leaves the pool open: for a namespace, which keeps it open from then on.
    pub fn into_live(mut self) -> Arc<LivePool> {
        self.live.take().expect("a pool is given up only by closing it")
    }

    /// Opens a pool among devices that were found, starts the thread that writes txgs, and does again what the intent
    /// logs of all datasets say: whoever reads, copies or mounts one afterwards finds what was promised to be durable.
    ///
    /// # Errors
    /// Why the pool cannot be opened for change.
    pub fn import(found: &Found, guid: PoolGuid, options: &ImportOptions) -> Result<PoolWriter, PoolError> {
        let env = Env::system().with_devices(found.source());
        let live = LivePool::import(found, &pool::Which::Guid(guid), options, env)?;
        live.start();
        crate::files::replay_logs(&live);
        Ok(PoolWriter::of(live))
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.live().name()
    }

    /// Its guid.
    pub fn guid(&self) -> PoolGuid {
        self.live().guid()
    }

    /// The pool as the layers below know it.
    pub fn live(&self) -> &Arc<LivePool> {
        self.live.as_ref().expect("a pool is given up only by closing it")
    }

    /// Its configuration, as of the last txg on disk.
    pub fn config(&self) -> PoolConfig {
        self.live().config()
    }

    /// The pool for reading, as of the last txg on disk. What was changed later is in the next one: sync first.
    ///
    /// # Errors
    /// If the pool's own objects cannot be read.
    pub fn view(&self) -> Result<Pool, Error> {
        Ok(Pool::from(self.live().view()?).used_by(self.user.clone()))
    }

    /// Does something in syncing context: all of it or, with an error, nothing. Returns when it is on disk.
    ///
    /// # Errors
    /// What the task returns, or why the txg could not be written.
    pub fn run<T: Send + 'static>(
        &self,
        task: impl FnOnce(&mut TaskCtx<'_>) -> Result<T, DslError> + Send + 'static,
    ) -> Result<T, Error> {
        self.live().run(task).map_err(unwrapped)
    }

    /// Brings all that was changed before this call to disk. Returns the txg that did.
    ///
    /// # Errors
    /// If it could not be written.
    pub fn sync(&self) -> Result<Txg, Error> {
        Ok(self.live().sync()?)
    }

    /// Writes a command line into the pool's history, in the caller's name.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn record(&self, command: &str) -> Result<(), Error> {
        Ok(self.live().record(history_command(command, &self.caller))?)
    }

    /// Writes an operation that has succeeded into the pool's history, in the caller's name.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn record_operation(
        &self,
        name: &str,
        input: NvList,
        output: Option<NvList>,
        elapsed: Duration,
    ) -> Result<(), Error> {
        let Command { user, hostname, .. } = history_command("", &self.caller);
        let operation = Operation { name: name.to_owned(), input, output, elapsed, user, hostname };
        Ok(self.live().record_operation(operation)?)
    }

    /// Writes everything and exports the pool. Does nothing to one that belongs to a namespace.
    ///
    /// # Errors
    /// If something could not be written: then the pool is as after a crash, with what was synced.
    pub fn close(self) -> Result<(), Error> {
        self.leave(Leave::Exported)
    }

    /// Destroys the pool: its labels say so, and it is no longer listed.
    ///
    /// # Errors
    /// If the labels cannot be written.
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

/// An error of a task is that of its layer, not of the pool that it ran in.
fn unwrapped(error: PoolError) -> Error {
    match error {
        PoolError::Dsl(error) => Error::Dsl(error),
        error => Error::Pool(error),
    }
}

impl Drop for PoolWriter {
    fn drop(&mut self) {
        if let Some(live) = self.live.take().filter(|_| !self.stays_open) {
            // Whoever wants to know closes it.
            let _ = live.export(Leave::Exported);
        }
    }
}

impl std::fmt::Debug for PoolWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("PoolWriter").field(&self.live).finish()
    }
}

/// A command line as the history of a pool records it, in the name of `caller`.
pub fn history_command(text: &str, caller: &Caller) -> Command {
    Command { text: text.to_owned(), user: caller.uid.into(), hostname: host_name() }
}

impl Pool {
    /// Finds the pool with this name, or with this guid if `name` is a number, and opens it for change. Nobody
    /// else can meanwhile.
    ///
    /// # Errors
    /// As of [`Pool::open`]; [`PoolError::NotWritable`] for pools that can only be read,
    /// [`PoolError::BadDevice`] if somebody else has a device, [`PoolError::OtherHost`] if another machine may
    /// have the pool.
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
