//! File systems opened for writing.

use crate::attrs::layout::Tables;
use crate::dir::prefetch_credit::PrefetchCredit;
use crate::error::BeginError;
use crate::fs::backing::{Backing, Cost, IntentLog, NoLog};
use crate::fs::make;
use crate::fs::make::directory_normalization;
use crate::fs::options::FsOptions;
use crate::node::inode::{Inode, Store};
use crate::node::table::Inodes;
use crate::space::quota::Quotas;
use crate::{Attrs, FileKind, Filesystem, Node, ZplError};
use dmu::AllocTx;
use dmu::DmuError;
use dmu::Env;
use dmu::interrupt::Lock;
use dmu::zap::Match;
use dmu::{LiveObject, LiveSet, Tx};
use dsl::sync::{lock, read, write};
use format::ObjectId;
use format::names;
use format::zil::{Body, SetAttr};
use format::znode::{FLAG_APPENDONLY, FLAG_IMMUTABLE, FLAG_PROJINHERIT, Time};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, RwLock};

/// A file system opened for writing. Operations take object numbers; several threads may call any of them at
/// the same time.
pub struct Fs {
    pub(crate) backing: Arc<dyn Backing>,
    pub(crate) set: Arc<LiveSet>,
    pub(crate) reader: Arc<Filesystem>,
    pub(crate) tables: Tables,
    pub(crate) env: Env,
    options: RwLock<Arc<FsOptions>>,
    /// Whether it can be changed in spite of the property `readonly`.
    is_writable_anyway: AtomicBool,
    pub(crate) inodes: Inodes,
    pub(crate) unlinked: LiveObject,
    log: RwLock<Arc<dyn IntentLog>>,
    /// Held while a file moves from one directory to another.
    pub(crate) renames: Lock,
    pub(crate) quotas: Quotas,
    pub(crate) prefetch_credit: PrefetchCredit,
    /// During a log replay: the transaction of all changes.
    replaying: AtomicBool,
    replay_tx: Mutex<Option<Tx>>,
    /// Files without a name that are freed in several steps.
    pub(crate) pending: Mutex<VecDeque<ObjectId>>,
}

impl Fs {
    /// Opens a file system for writing. Files without a name are not freed yet: [`Fs::drain`] does that.
    ///
    /// # Errors
    /// If it cannot be read; [`ZplError::Version`] if its version is before 5: such file systems are
    /// read-only.
    pub fn open(backing: Arc<dyn Backing>, options: FsOptions, env: &Env) -> Result<Arc<Fs>, ZplError> {
        let set = Arc::clone(backing.set());
        let reader = Filesystem::open(set.view())?;
        if reader.version() < 5 {
            return Err(ZplError::Version { objset: set.number(), version: reader.version() });
        }
        let tables = Tables::open(&set, &reader)?;
        let unlinked = reader.master_value(names::master_node::DELETE_QUEUE)?.ok_or(ZplError::Corrupt {
            objset: set.number(),
            object: names::master_node::OBJECT,
            why: "the master node has no set of unlinked files",
        })?;
        let quotas = Quotas::open(&reader)?;
        let pending = reader.unlinked()?.into_iter().collect();
        Ok(Arc::new(Fs {
            unlinked: set.object(ObjectId(unlinked))?,
            backing,
            set,
            reader,
            tables,
            env: env.clone(),
            options: RwLock::new(Arc::new(options)),
            inodes: Inodes::default(),
            log: RwLock::new(Arc::new(NoLog)),
            renames: Lock::default(),
            quotas,
            prefetch_credit: PrefetchCredit::default(),
            is_writable_anyway: AtomicBool::new(false),
            replaying: AtomicBool::new(false),
            replay_tx: Mutex::default(),
            pending: Mutex::new(pending),
        }))
    }

    /// The file system for reading, which always shows the newest state.
    pub fn reader(&self) -> &Arc<Filesystem> {
        &self.reader
    }

    /// The object set with the contents.
    pub fn set(&self) -> &Arc<LiveSet> {
        &self.set
    }

    /// Object number of the root directory.
    pub fn root(&self) -> ObjectId {
        self.reader.root()
    }

    /// The options in force.
    pub fn options(&self) -> Arc<FsOptions> {
        Arc::clone(&read(&self.options))
    }

    /// Replaces the options, after properties have changed.
    pub fn set_options(&self, options: FsOptions) {
        *write(&self.options) = Arc::new(options);
    }

    /// Logs every change to `log` from now on. Not during a log replay.
    pub fn set_log(&self, log: Arc<dyn IntentLog>) {
        *write(&self.log) = log;
    }

    pub(crate) fn intent_log(&self) -> Arc<dyn IntentLog> {
        Arc::clone(&read(&self.log))
    }

    /// Logs a record, if there is a log.
    pub(crate) fn log(&self, tx: &Tx, record: impl FnOnce() -> Body) {
        let log = read(&self.log);
        if log.is_on() {
            log.log(tx, record());
        }
    }

    /// Logs the present attributes, which stay locked until they are logged: so of two records of one
    /// attribute, the later one has the later value, whatever the order of the threads.
    pub(crate) fn log_attrs(&self, inode: &Inode, tx: &Tx, record: impl FnOnce(&Attrs) -> SetAttr) {
        let log = self.intent_log();
        if log.is_on() {
            let state = inode.state();
            log.log(tx, Body::SetAttr(Box::new(record(&state.attrs))));
        }
    }

    /// A file for reading, in its present state.
    ///
    /// # Errors
    /// [`ZplError::Stale`] if there is no such file; or an object of the file system cannot be read.
    pub fn node(&self, id: ObjectId) -> Result<Node, ZplError> {
        self.reader.node_of(self.inode(id)?.object.read())
    }

    /// The value of an extended attribute; `None`: there is none. The kernel asks for one whenever a file is
    /// first written.
    ///
    /// # Errors
    /// If the attribute cannot be read.
    pub fn xattr(&self, id: ObjectId, name: &[u8]) -> Result<Option<Vec<u8>>, ZplError> {
        let inode = self.inode(id)?;
        if inode.has_no_xattrs() {
            return Ok(None);
        }
        self.reader.node_of(inode.object.read())?.xattr(name)
    }

    /// The attributes of a file.
    ///
    /// # Errors
    /// [`ZplError::Stale`] if there is no such file; or an object of the file system cannot be read.
    pub fn attrs(&self, id: ObjectId) -> Result<Attrs, ZplError> {
        Ok(self.inode(id)?.attrs())
    }

    /// Drops the inodes in memory that are not in use, because their objects were changed by other means.
    pub fn forget(&self) {
        self.inodes.clear();
    }

    /// The file with this number.
    pub(crate) fn inode(&self, id: ObjectId) -> Result<Arc<Inode>, ZplError> {
        if let Some(inode) = self.inodes.get(id) {
            return Ok(inode);
        }
        let inode = self.inodes.get_or_insert(Inode::load(&self.reader, &self.tables, self.object(id)?)?);
        // The object may have been freed between the two steps: then no other thread removes the inode from
        // the table.
        if let Err(error) = self.object(id) {
            self.inodes.remove_this(&inode);
            return Err(error);
        }
        Ok(inode)
    }

    fn object(&self, id: ObjectId) -> Result<LiveObject, ZplError> {
        match self.set.object(id) {
            Err(DmuError::NoObject { .. }) => Err(ZplError::Stale { object: id }),
            other => Ok(other?),
        }
    }

    /// The directory with this number.
    pub(crate) fn directory(&self, id: ObjectId) -> Result<Arc<Inode>, ZplError> {
        let dir = self.inode(id)?;
        dir.expect(FileKind::Directory, "directory")?;
        Ok(dir)
    }

    /// Sets whether the file system can be changed in spite of the property `readonly`: it was mounted that
    /// way.
    pub fn set_writable_anyway(&self, is_writable: bool) {
        self.is_writable_anyway.store(is_writable, Ordering::Release);
    }

    /// Begins a change that a caller requested.
    pub(crate) fn begin(&self, cost: Cost) -> Result<Tx, ZplError> {
        let is_read_only = self.options().read_only && !self.is_writable_anyway.load(Ordering::Acquire);
        if is_read_only && !self.is_replaying() {
            return Err(BeginError::ReadOnly.into());
        }
        self.begin_freeing(cost)
    }

    /// Begins a change that follows from earlier ones. Allowed also in a read-only file system.
    pub(crate) fn begin_freeing(&self, cost: Cost) -> Result<Tx, ZplError> {
        if self.is_replaying()
            && let Some(tx) = &*lock(&self.replay_tx)
        {
            return Ok(tx.again());
        }
        Ok(self.backing.begin(cost)?)
    }

    pub(crate) fn is_replaying(&self) -> bool {
        self.replaying.load(Ordering::Relaxed)
    }

    /// Sets the transaction of all changes until the next call, during which quotas are not checked; `None`
    /// ends that.
    pub(crate) fn set_replay_tx(&self, tx: Option<Tx>) {
        self.quotas.suspend(tx.is_some());
        self.replaying.store(tx.is_some(), Ordering::Relaxed);
        *lock(&self.replay_tx) = tx;
    }

    /// The context for changing attributes.
    pub(crate) fn store<'s>(&'s self, tx: &'s dyn AllocTx) -> Store<'s> {
        Store { tables: &self.tables, reader: &self.reader, tx }
    }

    pub(crate) fn now(&self) -> Time {
        make::now(&self.env)
    }

    /// Normalization for hashing names in new directories.
    pub(crate) fn normalization(&self) -> u64 {
        directory_normalization(self.reader.normalization(), self.reader.case_sensitivity())
    }

    /// Comparison of names. Names of extended attributes are compared bytewise.
    pub(crate) fn name_match(&self, dir: &Inode, ignore_case: bool) -> Match {
        if dir.attrs().is_xattr() {
            return Match::Exact;
        }
        self.reader.name_match(ignore_case)
    }

    pub(crate) fn pending(&self) -> MutexGuard<'_, VecDeque<ObjectId>> {
        lock(&self.pending)
    }
}

/// Restrictions by flags and projects. Not checked during a replay, because records come in another order
/// than their changes.
impl Fs {
    /// Fails if flags forbid every change of the file.
    pub(crate) fn check_mutable(&self, inode: &Inode, attrs: &Attrs) -> Result<(), ZplError> {
        if attrs.flags & FLAG_IMMUTABLE != 0 && !self.is_replaying() {
            return Err(ZplError::NotPermitted { object: inode.id, why: "it is immutable" });
        }
        Ok(())
    }

    /// Fails if flags forbid every change of the file but appending.
    pub(crate) fn check_not_append_only(&self, inode: &Inode, attrs: &Attrs) -> Result<(), ZplError> {
        self.check_mutable(inode, attrs)?;
        if attrs.flags & FLAG_APPENDONLY != 0 && !self.is_replaying() {
            return Err(ZplError::NotPermitted { object: inode.id, why: "it can only grow" });
        }
        Ok(())
    }

    /// A directory that passes its project to new files takes only files of that project.
    pub(crate) fn check_project(
        &self,
        inode: &Inode,
        attrs: &Attrs,
        dir: &Inode,
        dir_attrs: &Attrs,
    ) -> Result<(), ZplError> {
        let is_bound = dir_attrs.flags & FLAG_PROJINHERIT != 0 && !self.is_replaying();
        if is_bound && attrs.projid != dir_attrs.projid {
            return Err(ZplError::OtherProject { object: inode.id, dir: dir.id });
        }
        Ok(())
    }
}

impl std::fmt::Debug for Fs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Fs({:?})", self.set)
    }
}
