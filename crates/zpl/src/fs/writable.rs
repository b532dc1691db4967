//! A file system opened for writing.

use crate::attrs::layout::Tables;
use crate::dir::prefetch::Foresight;
use crate::fs::backing::{BeginError, Cost, Home, IntentLog, NoLog};
use crate::fs::make;
use crate::fs::make::directory_normalization;
use crate::fs::options::FsOptions;
use crate::fs::stat::Stat;
use crate::node::inode::{Inode, Store};
use crate::node::table::Inodes;
use crate::space::quota::Quotas;
use crate::{Attrs, CaseSensitivity, FileKind, Filesystem, Node, ZplError};
use dmu::AllocTx;
use dmu::DmuError;
use dmu::Env;
use dmu::interrupt::Lock;
use dmu::zap::Match;
use dmu::{LiveObject, LiveSet, Tx};
use format::ObjectId;
use format::names;
use format::zil::{Body, SetAttr};
use format::znode::{FLAG_APPENDONLY, FLAG_IMMUTABLE, FLAG_PROJINHERIT, Time};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

/// A file system opened for writing. Operations are by object number; several threads may call any of them
/// at the same time.
pub struct Fs {
    pub(crate) home: Arc<dyn Home>,
    pub(crate) set: Arc<LiveSet>,
    pub(crate) reader: Arc<Filesystem>,
    pub(crate) tables: Tables,
    pub(crate) env: Env,
    options: RwLock<Arc<FsOptions>>,
    /// It can be changed whatever the property `readonly` says.
    is_writable_anyway: AtomicBool,
    pub(crate) inodes: Inodes,
    pub(crate) unlinked: LiveObject,
    log: RwLock<Arc<dyn IntentLog>>,
    /// Whoever moves something from one directory to another.
    pub(crate) renames: Lock,
    pub(crate) quotas: Quotas,
    pub(crate) foresight: Foresight,
    /// While a log is replayed: the transaction that everything belongs to.
    replaying: AtomicBool,
    replay_tx: Mutex<Option<Tx>>,
    /// Files without a name whose space is to be freed little by little.
    pub(crate) pending: Mutex<VecDeque<ObjectId>>,
}

impl Fs {
    /// Opens a file system for writing. Files without a name are not freed yet: [`Fs::drain`] does that.
    ///
    /// # Errors
    /// If it cannot be read, or is of a version before 5: those can only be read.
    pub fn open(home: Arc<dyn Home>, options: FsOptions, env: &Env) -> Result<Arc<Fs>, ZplError> {
        let set = Arc::clone(home.set());
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
        let quotas = Quotas::open(&set, &reader)?;
        let pending = reader.unlinked()?.into_iter().collect();
        Ok(Arc::new(Fs {
            unlinked: set.object(ObjectId(unlinked))?,
            home,
            set,
            reader,
            tables,
            env: env.clone(),
            options: RwLock::new(Arc::new(options)),
            inodes: Inodes::default(),
            log: RwLock::new(Arc::new(NoLog)),
            renames: Lock::default(),
            quotas,
            foresight: Foresight::default(),
            is_writable_anyway: AtomicBool::new(false),
            replaying: AtomicBool::new(false),
            replay_tx: Mutex::default(),
            pending: Mutex::new(pending),
        }))
    }

    /// The file system for reading, in its newest state.
    pub fn reader(&self) -> &Arc<Filesystem> {
        &self.reader
    }

    /// Its object set.
    pub fn set(&self) -> &Arc<LiveSet> {
        &self.set
    }

    /// The root directory.
    pub fn root(&self) -> ObjectId {
        self.reader.root()
    }

    /// What its properties mean now.
    pub fn options(&self) -> Arc<FsOptions> {
        Arc::clone(&self.options.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// A property was changed.
    pub fn set_options(&self, options: FsOptions) {
        *self.options.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(options);
    }

    /// From now on `log` is told of every change. Not while a log is replayed.
    pub fn set_log(&self, log: Arc<dyn IntentLog>) {
        *self.log.write().unwrap_or_else(PoisonError::into_inner) = log;
    }

    pub(crate) fn intent_log(&self) -> Arc<dyn IntentLog> {
        Arc::clone(&self.log.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Tells the log, if there is one.
    pub(crate) fn log(&self, tx: &Tx, record: impl FnOnce() -> Body) {
        let log = self.log.read().unwrap_or_else(PoisonError::into_inner);
        if log.is_on() {
            log.log(tx, record());
        }
    }

    /// Tells the log of attributes, as they are now. They are locked until it knows: of two records that say the same
    /// attribute, the later one says what it was later, whoever of those who change it is told of first.
    pub(crate) fn log_attrs(&self, inode: &Inode, tx: &Tx, record: impl FnOnce(&Attrs) -> SetAttr) {
        let log = self.intent_log();
        if log.is_on() {
            let state = inode.state();
            log.log(tx, Body::SetAttr(Box::new(record(&state.attrs))));
        }
    }

    /// A file for reading, as it is now.
    pub fn node(&self, id: ObjectId) -> Result<Node, ZplError> {
        self.reader.node_of(self.inode(id)?.object.read())
    }

    /// The value of an extended attribute. The kernel asks for one whenever a file is first written.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn xattr(&self, id: ObjectId, name: &[u8]) -> Result<Option<Vec<u8>>, ZplError> {
        let inode = self.inode(id)?;
        if inode.has_no_xattrs() {
            return Ok(None);
        }
        self.reader.node_of(inode.object.read())?.xattr(name)
    }

    /// The attributes of a file.
    pub fn attrs(&self, id: ObjectId) -> Result<Attrs, ZplError> {
        Ok(self.inode(id)?.attrs())
    }

    /// What `stat` tells of a file. Nothing is decoded for it: it is asked for more often than anything else.
    ///
    /// # Errors
    /// [`ZplError::Stale`] if there is none.
    pub fn stat(&self, id: ObjectId) -> Result<Stat, ZplError> {
        let inode = self.inode(id)?;
        let (taken, attrs) = (inode.object.taken(), inode.attrs());
        let is_unwritten = inode.kind == FileKind::Regular && taken.is_unwritten;
        // Programs take a file with fewer blocks than bytes for one with holes: what is still to be written counts as if it
        // could not be compressed, but the file for no more than its bytes.
        let more = if is_unwritten { taken.dirty.min(attrs.size.saturating_sub(taken.used)) } else { 0 };
        Ok(Stat {
            attrs,
            // As of `Node::blocks_512`.
            blocks_512: (taken.used.saturating_add(more).saturating_add(256) / 512)
                .saturating_add(taken.slots.into()),
            block_size: taken.block_size,
            is_unwritten,
        })
    }

    /// Forgets what is in memory of files that nobody uses: their objects were changed by other means.
    pub fn forget(&self) {
        self.inodes.clear();
    }

    /// The file with this number.
    pub(crate) fn inode(&self, id: ObjectId) -> Result<Arc<Inode>, ZplError> {
        if let Some(inode) = self.inodes.get(id) {
            return Ok(inode);
        }
        let inode = self.inodes.get_or_insert(Inode::load(&self.reader, &self.tables, self.object(id)?)?);
        // It may have been freed between the two: then nobody else takes it out of the table.
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

    /// Says whether it can be changed whatever the property `readonly` says: it was mounted so.
    pub fn set_writable_anyway(&self, is_writable: bool) {
        self.is_writable_anyway.store(is_writable, Ordering::Release);
    }

    /// Begins a change that somebody asked for.
    pub(crate) fn begin(&self, cost: Cost) -> Result<Tx, ZplError> {
        let is_read_only = self.options().read_only && !self.is_writable_anyway.load(Ordering::Acquire);
        if is_read_only && !self.is_replaying() {
            return Err(BeginError::ReadOnly.into());
        }
        self.begin_freeing(cost)
    }

    /// Begins a change that follows from earlier ones: also where nothing can be changed any more.
    pub(crate) fn begin_freeing(&self, cost: Cost) -> Result<Tx, ZplError> {
        if self.is_replaying()
            && let Some(tx) = &*self.replay_tx.lock().unwrap_or_else(PoisonError::into_inner)
        {
            return Ok(tx.again());
        }
        Ok(self.home.begin(cost)?)
    }

    pub(crate) fn is_replaying(&self) -> bool {
        self.replaying.load(Ordering::Relaxed)
    }

    /// Until the next call everything belongs to this transaction, and limits are not looked at; with `None`
    /// everything is as usual again.
    pub(crate) fn set_replay_tx(&self, tx: Option<Tx>) {
        self.quotas.suspend(tx.is_some());
        self.replaying.store(tx.is_some(), Ordering::Relaxed);
        *self.replay_tx.lock().unwrap_or_else(PoisonError::into_inner) = tx;
    }

    /// What changes of attributes need.
    pub(crate) fn store<'s>(&'s self, tx: &'s dyn AllocTx) -> Store<'s> {
        Store { tables: &self.tables, reader: &self.reader, tx }
    }

    pub(crate) fn now(&self) -> Time {
        make::now(&self.env)
    }

    /// How the names in new directories are hashed.
    pub(crate) fn normalization(&self) -> u64 {
        directory_normalization(self.reader.normalization(), self.reader.case_sensitivity())
    }

    /// How names are compared. In directories of extended attributes they are what they are.
    pub(crate) fn name_match(&self, dir: &Inode, ignore_case: bool) -> Match {
        if dir.attrs().is_xattr() {
            return Match::Exact;
        }
        match self.reader.case_sensitivity() {
            CaseSensitivity::Insensitive => Match::Normalized,
            CaseSensitivity::Mixed if ignore_case => Match::Normalized,
            CaseSensitivity::Sensitive if self.reader.normalization() == 0 => Match::Exact,
            CaseSensitivity::Sensitive | CaseSensitivity::Mixed => Match::NormalizedMatchCase,
        }
    }

    pub(crate) fn pending(&self) -> MutexGuard<'_, VecDeque<ObjectId>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What flags and projects forbid. The records of a log come in another order than the changes that they tell
/// of: while they are replayed nothing is forbidden.
impl Fs {
    /// Flags that forbid every change of a file.
    pub(crate) fn check_mutable(&self, inode: &Inode, attrs: &Attrs) -> Result<(), ZplError> {
        if attrs.flags & FLAG_IMMUTABLE != 0 && !self.is_replaying() {
            return Err(ZplError::NotPermitted { object: inode.id, why: "it is immutable" });
        }
        Ok(())
    }

    /// Flags that forbid every change of a file but adding to its end.
    pub(crate) fn check_not_append_only(&self, inode: &Inode, attrs: &Attrs) -> Result<(), ZplError> {
        self.check_mutable(inode, attrs)?;
        if attrs.flags & FLAG_APPENDONLY != 0 && !self.is_replaying() {
            return Err(ZplError::NotPermitted { object: inode.id, why: "it can only grow" });
        }
        Ok(())
    }

    /// A directory that gives its project to new files takes only files of that project.
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
