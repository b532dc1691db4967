//! Sessions: what a verb works with.
//!
//! A session holds the search for pools, the namespace of the process, the user on whose behalf verbs run, and the
//! pools that its verbs have opened. A command makes one session, runs its verbs in it and ends it. A program that
//! embeds the library makes a session over a pool that it has open ([`Session::over`]).
//!
//! # What always holds
//! - A pool is opened for change when a verb first needs it, and closed when the session ends, also after an error.
//! - A session that ends successfully writes its command line into the history of the pools that its verbs changed,
//!   and of no others; a session that fails writes it nowhere.
//! - A verb runs only if the caller has its right ([`Session::run`]).
//!
//! Tests: `crates/admin/tests`, `crates/conformance/tests/it/zfs_change.rs`.

use crate::change;
use crate::edit::{self, EditError};
use crate::mounting::Mounting;
use crate::verbs::{Denied, Reason, Right, Streamed, Verb, Warning, Written};
use crate::{Caller, OpenPool, Problem, Search};
use cenote::{Pool, PoolWriter};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::ops::{ControlFlow, Deref};
use std::rc::Rc;

/// The context of a verb: pools, caller, warnings. See the module.
pub struct Session<'p> {
    search: Search,
    /// Command line for the history of changed pools; `None`: no line is written.
    command_line: Option<String>,
    /// Pools open for change, by name.
    writers: BTreeMap<String, Writer<'p>>,
    /// Pools open for reading only, by name.
    read_only: BTreeMap<String, Pool>,
    /// All pools, opened for their counters; see [`Session::counting_pools`].
    counting: Option<Rc<(Vec<OpenPool>, Vec<Problem>)>>,
    /// Names of the pools that verbs have changed.
    changed: BTreeSet<String>,
    /// Warnings of verbs that the caller has not taken yet.
    warnings: Vec<Warning>,
    /// Receives the progress of verbs; see [`Session::on_progress`].
    progress: Option<ProgressListener<'p>>,
    /// See [`Session::on_step`].
    step: Option<Box<dyn Fn() + 'p>>,
    /// See [`Session::set_input`].
    input: Option<Box<dyn Read + 'p>>,
}

/// Progress callback: the number of the current target, from 1, and the number of targets.
pub type ProgressListener<'p> = Box<dyn FnMut(usize, usize) + 'p>;

/// A pool that is open for change: opened by the session, or lent to it.
#[derive(Clone)]
pub enum Writer<'p> {
    /// Opened by the session, which closes it at its end.
    Opened(Rc<PoolWriter>),
    /// Lent by the program that has it open; the session leaves it open.
    Lent(&'p PoolWriter),
}

impl Deref for Writer<'_> {
    type Target = PoolWriter;

    fn deref(&self) -> &PoolWriter {
        match self {
            Writer::Opened(pool) => pool,
            Writer::Lent(pool) => pool,
        }
    }
}

/// A pool whose session did not end cleanly.
#[derive(Debug, thiserror::Error)]
#[error("cannot close '{pool}': {error}")]
pub struct CloseError {
    /// Name of the pool.
    pub pool: String,
    /// Why the history line or the last transaction group could not be written.
    #[source]
    pub error: EditError,
}

impl Session<'static> {
    /// A session that finds pools with `search` and writes no history line.
    pub fn new(search: Search) -> Session<'static> {
        Session {
            search,
            command_line: None,
            writers: BTreeMap::new(),
            read_only: BTreeMap::new(),
            counting: None,
            changed: BTreeSet::new(),
            warnings: Vec::new(),
            progress: None,
            step: None,
            input: None,
        }
    }

    /// A session that writes `command_line` into the history of each pool that its verbs change.
    pub fn of_command(search: Search, command_line: impl Into<String>) -> Session<'static> {
        Session { command_line: Some(command_line.into()), ..Session::new(search) }
    }
}

impl<'p> Session<'p> {
    /// A session over one pool that the caller has open. Its verbs run on behalf of that writer's caller. The
    /// session writes no history line, leaves the pool open, and does not mount or unmount file systems.
    pub fn over(pool: &'p PoolWriter) -> Session<'p> {
        Session {
            search: Search { caller: Some(pool.caller().clone()), ..Search::default() },
            command_line: None,
            writers: BTreeMap::from([(pool.name().to_owned(), Writer::Lent(pool))]),
            read_only: BTreeMap::new(),
            counting: None,
            changed: BTreeSet::new(),
            warnings: Vec::new(),
            progress: None,
            step: None,
            input: None,
        }
    }

    /// The search that finds the session's pools.
    pub(crate) fn search(&self) -> &Search {
        &self.search
    }

    /// The line for the history of changed pools; empty if no line is written.
    pub(crate) fn command_line(&self) -> &str {
        self.command_line.as_deref().unwrap_or_default()
    }

    /// True if verbs run on behalf of an administrator: root, or the user of this process.
    pub(crate) fn is_administrator(&self) -> bool {
        self.search.caller.as_ref().is_none_or(Caller::is_admin)
    }

    /// The mounts of this process; `None` if the process mounts no file systems.
    pub fn mounting(&self) -> Option<Mounting> {
        Mounting::of(&self.search)
    }

    /// Checks the caller's right and runs a verb.
    ///
    /// # Errors
    /// The verb's refusal; [`Denied`], converted to that refusal, if the verb needs an administrator and the caller
    /// is not one.
    pub fn run<V: Verb>(&mut self, request: &V) -> Result<V::Answer, V::Refusal> {
        self.check_right::<V>()?;
        request.run(self)
    }

    /// Runs a verb whose answer may be larger than memory: `sink` gets one item after the other, and may break off.
    ///
    /// # Errors
    /// As of [`Session::run`]; items that the sink has got by then are right.
    pub fn each<V: Streamed>(
        &mut self,
        request: &V,
        sink: &mut dyn FnMut(V::Item) -> ControlFlow<()>,
    ) -> Result<(), V::Refusal> {
        self.check_right::<V>()?;
        request.each(self, sink)
    }

    /// Runs a verb that produces bytes: `out` gets them, and `on` is told what happens, and may end it.
    ///
    /// # Errors
    /// As of [`Session::run`]; what was written by then is incomplete.
    pub fn write<V: Written>(
        &mut self,
        request: &V,
        out: &mut dyn Write,
        on: &mut dyn FnMut(V::Event) -> ControlFlow<()>,
    ) -> Result<V::Answer, V::Refusal> {
        self.check_right::<V>()?;
        request.write(self, out, on)
    }

    /// Checks that the caller has the right of a verb. Verbs that can also be run step by step call it themselves.
    ///
    /// # Errors
    /// [`Denied`], as the verb's refusal.
    pub(crate) fn check_right<V: Verb>(&self) -> Result<(), V::Refusal> {
        match V::RIGHT {
            Right::Administrator if !self.is_administrator() => Err(Denied.into()),
            _ => Ok(()),
        }
    }

    /// Asks for the permissions of a verb at one dataset, before the verb looks at anything: for callers that may not
    /// learn why it would be refused.
    ///
    /// # Errors
    /// [`EditError::Denied`], [`EditError::DelegationOff`]; errors of [`Session::writer`].
    pub fn ask<V: Verb>(&mut self, dataset: &str) -> Result<(), EditError> {
        match V::RIGHT {
            Right::Anyone => Ok(()),
            Right::Administrator if self.is_administrator() => Ok(()),
            Right::Administrator => Err(EditError::Denied),
            Right::Delegated(permissions) => edit::permit::ask(&*self.writer(dataset)?, dataset, permissions),
        }
    }

    /// The pool that a dataset's name begins with, open for change.
    ///
    /// # Errors
    /// [`EditError::NoPool`] if it does not exist; [`EditError::Open`] if it cannot be opened for change.
    pub fn writer(&mut self, dataset: &str) -> Result<Writer<'p>, EditError> {
        let name = edit::pool_of(dataset);
        if let Some(pool) = self.writers.get(name) {
            return Ok(pool.clone());
        }
        let pool = Writer::Opened(Rc::new(edit::open_pool(&self.search, dataset)?));
        self.writers.insert(name.to_owned(), pool.clone());
        Ok(pool)
    }

    /// The pool of this dataset in its present state, open for reading. A pool that cannot be changed is opened as
    /// well.
    ///
    /// # Errors
    /// [`EditError::NoPool`] if it does not exist; [`EditError::Open`] if it cannot be opened.
    pub(crate) fn view(&mut self, dataset: &str) -> Result<Pool, EditError> {
        let name = edit::pool_of(dataset);
        if let Some(pool) = self.read_only.get(name) {
            return Ok(pool.clone());
        }
        let error = match self.writer(dataset) {
            Ok(pool) => return Ok(pool.view()?),
            Err(error) => error,
        };
        if error.is_read_only() {
            let (pools, _) = self.pools(&[name.to_owned()]);
            if let Some(pool) = pools.iter().find(|pool| pool.name() == name) {
                self.read_only.insert(name.to_owned(), pool.pool().clone());
                return Ok(pool.pool().clone());
            }
        }
        Err(error)
    }

    /// The pools of these names for reading, as of now, by name; without names all that are there and not destroyed,
    /// or, where the process keeps pools open, those. None is opened for change. What could not be opened or looked at
    /// comes second. A session over a pool that was lent to it knows no other.
    pub(crate) fn pools(&mut self, names: &[String]) -> (Vec<OpenPool>, Vec<Problem>) {
        if self.writers.is_empty() || self.search.namespace.is_some() {
            return crate::open_pools(&self.search, names);
        }
        let is_lent = self.writers.values().any(|writer| matches!(writer, Writer::Lent(_)));
        let others: Vec<String> =
            names.iter().filter(|name| !self.writers.contains_key(*name)).cloned().collect();
        let (mut pools, mut problems) = match is_lent || (others.is_empty() && !names.is_empty()) {
            true => (Vec::new(), others.iter().map(|name| Problem::missing_pool(name)).collect()),
            false => crate::open_pools(&self.search, &others),
        };
        // Pools that this session has changed are as it sees them.
        pools.retain(|pool| !self.writers.contains_key(pool.name()));
        for (name, writer) in &self.writers {
            if names.is_empty() || names.contains(name) {
                match OpenPool::of(writer) {
                    Ok(pool) => pools.push(pool),
                    Err(problem) => problems.push(problem),
                }
            }
        }
        pools.sort_by(|a, b| a.name().cmp(b.name()));
        (pools, problems)
    }

    /// All pools, for reading what their devices have done. Counters begin when a pool is opened, so pools that the
    /// process does not keep open stay open until the session ends.
    pub(crate) fn counting_pools(&mut self) -> Rc<(Vec<OpenPool>, Vec<Problem>)> {
        if let Some(counting) = &self.counting {
            return Rc::clone(counting);
        }
        let pools = Rc::new(self.pools(&[]));
        if self.search.namespace.is_none() {
            self.counting = Some(Rc::clone(&pools));
        }
        pools
    }

    /// Waits a little until these pools (none: all) show what has happened until now; see [`crate::settle`].
    pub(crate) fn settle(&self, names: &[String]) {
        crate::settle(&self.search, names);
    }

    /// The names of the pools that are imported.
    ///
    /// # Errors
    /// The cache file cannot be read.
    pub fn imported_names(&self) -> Result<Vec<String>, Reason> {
        Ok(change::imported_names(&self.search)?)
    }

    /// The names of the pools that are found, destroyed ones left out, in order.
    ///
    /// # Errors
    /// Looking for them has failed.
    pub fn found_names(&self) -> Result<Vec<String>, Reason> {
        Ok(change::found_names(&self.search)?)
    }

    /// Brings a pool that is open for writing to the state of now: what programs did a moment ago is in the views that
    /// follow. Other pools stay as they are.
    pub(crate) fn sync(&self, pool: &str) -> Result<(), cenote::Error> {
        self.open_writer(pool).map_or(Ok(()), |writer| writer.sync().map(drop))
    }

    /// The pool, if this session or this process has it open for writing.
    pub(crate) fn open_writer(&self, pool: &str) -> Option<Writer<'p>> {
        let kept = || self.search.namespace.as_ref()?.get(pool).map(|writer| Writer::Opened(Rc::new(writer)));
        self.writers.get(pool).cloned().or_else(kept)
    }

    /// Notes that the pool of this dataset has changed: its history gets the session's command line.
    pub(crate) fn note_change(&mut self, dataset: &str) {
        self.changed.insert(edit::pool_of(dataset).to_owned());
    }

    /// Adds a warning for the user. The verb may still continue.
    pub(crate) fn warn(&mut self, warning: Warning) {
        self.warnings.push(warning);
    }

    /// Takes the warnings so far. The caller prints them before the answer or refusal.
    pub fn take_warnings(&mut self) -> Vec<Warning> {
        std::mem::take(&mut self.warnings)
    }

    /// Sets the progress callback. A verb with several targets calls it before each target.
    pub fn on_progress(&mut self, listener: ProgressListener<'p>) {
        self.progress = Some(listener);
    }

    /// Sets a callback that verbs which read many datasets call before each of them. It may unwind to end a request
    /// that its caller no longer waits for: such verbs change nothing.
    pub fn on_step(&mut self, step: impl Fn() + 'p) {
        self.step = Some(Box::new(step));
    }

    /// Sets what a verb reads besides its request: the stream of `zfs receive`.
    pub fn set_input(&mut self, input: impl Read + 'p) {
        self.input = Some(Box::new(input));
    }

    /// Takes the input of a verb; `None`: the session has none.
    pub(crate) fn take_input(&mut self) -> Option<Box<dyn Read + 'p>> {
        self.input.take()
    }

    /// Called before each of many datasets that a verb reads.
    pub(crate) fn step(&self) {
        self.step.iter().for_each(|step| step());
    }

    /// A callback that forwards progress to the session's listener, if there is one.
    pub(crate) fn progress_listener(&mut self) -> impl FnMut(usize, usize) + '_ {
        |index, total| {
            if let Some(listener) = &mut self.progress {
                listener(index, total);
            }
        }
    }

    /// Ends the session: writes its command line into the history of the pools that changed if `succeeded`, and
    /// closes the pools that it has opened.
    ///
    /// # Errors
    /// One [`CloseError`] for each pool whose history line or last transaction group could not be written.
    pub fn end(self, succeeded: bool) -> Result<(), Vec<CloseError>> {
        let mut errors = Vec::new();
        for (name, pool) in self.writers {
            let line = self.command_line.as_ref().filter(|_| succeeded && self.changed.contains(&name));
            let recorded = line.map_or(Ok(()), |line| pool.record(line));
            let closed = match pool {
                Writer::Opened(pool) => Rc::into_inner(pool).map_or(Ok(()), PoolWriter::close),
                Writer::Lent(_) => Ok(()),
            };
            for error in [recorded.err(), closed.err()].into_iter().flatten() {
                errors.push(CloseError { pool: name.clone(), error: error.into() });
            }
        }
        if errors.is_empty() { Ok(()) } else { Err(errors) }
    }
}
