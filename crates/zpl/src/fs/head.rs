//! File systems and volumes in the heads of a pool, and the source of their transactions, intent log and
//! reference counts.
//!
//! # What always holds
//! - A changed property applies to all operations that begin after the change: the head notifies the file
//!   system.
//! - Changes for which [`HeadFs::fsync`] or [`HeadVolume::flush`] has returned are durable.
//! - A claimed log is replayed before the file system can be changed.

use crate::ZplError;
use crate::attrs::record::log_time;
use crate::error::BeginError;
use crate::fs::backing::{Backing, CloneTable, Cost, IntentLog};
use crate::fs::replay;
use crate::{AccessTimes, Fs, FsOptions, SnapshotDir, VolumeWriter, XattrStorage};
use dmu::AllocTx;
use dmu::Env;
use dmu::log::{IntentLog as Log, LogData, Pending, Replayed, Unclaim};
use dmu::{LiveSet, Tx, TxError, Txgs};
use dsl::brt::Brt;
use dsl::{Dataset, DslError, prop};
use dsl::{FeatureCounts, Head, OpenDataset, SyncMode};
use format::zil::Body;
use format::znode::Time;
use format::{BlockPtr, ObjectId};
use std::sync::Arc;

/// Transactions of freeing files without a name, between checks whether any are left.
const DRAIN_STEPS: usize = 64;

/// A head as the backing of a file system or volume.
struct HeadBacking {
    clones: PoolClones,
    head: Arc<Head>,
}

impl HeadBacking {
    fn new(head: &Arc<Head>) -> Arc<HeadBacking> {
        Arc::new(HeadBacking { clones: PoolClones::new(head.clones()), head: Arc::clone(head) })
    }
}

impl Backing for HeadBacking {
    fn set(&self) -> &Arc<LiveSet> {
        &self.head.set
    }

    fn begin(&self, cost: Cost) -> Result<Tx, BeginError> {
        let cost =
            dsl::Cost { bytes: cost.bytes, blocks: cost.blocks, frees: cost.frees, within: cost.within };
        self.head.begin_waiting(cost).map_err(begin_error)
    }

    fn is_suspended(&self) -> bool {
        self.head.txgs().is_suspended()
    }

    fn uses_feature(&self, name: &'static str, _: &Tx) {
        self.head.use_feature(name);
    }

    fn clones(&self) -> Option<&dyn CloneTable> {
        Some(&self.clones)
    }
}

fn begin_error(error: DslError) -> BeginError {
    match error {
        DslError::Space { .. } => BeginError::NoSpace(Some(Box::new(error))),
        DslError::Quota { .. } => BeginError::Quota(Some(Box::new(error))),
        DslError::Unwritten { .. } => BeginError::ReadOnly,
        DslError::Tx(error) => BeginError::Tx(error),
        other => BeginError::Other(Box::new(other)),
    }
}

/// The intent log of a head.
struct HeadLog {
    log: Arc<Log>,
}

impl IntentLog for HeadLog {
    fn is_on(&self) -> bool {
        self.log.is_enabled()
    }

    fn log(&self, tx: &Tx, record: Body) {
        match &record {
            // Programs that rename a new file over an old one expect the data to be durable with the name.
            Body::Rename(_) | Body::Exchange(_) | Body::Whiteout(..) => self.log.order_all(),
            _ => {}
        }
        self.log.push(tx, Pending::Body(record));
    }

    fn log_write(&self, tx: &Tx, object: ObjectId, offset: u64, data: LogData, mtime: Option<Time>) {
        self.log.push(tx, Pending::Write { object, offset, data, mtime: mtime.map(log_time) });
    }

    fn log_by_txg(&self, tx: &Tx, object: ObjectId) {
        self.log.push(tx, Pending::Txg { object });
    }

    fn order(&self, object: ObjectId) {
        self.log.order(object);
    }

    fn forget(&self, object: ObjectId) {
        self.log.forget(object);
    }
}

/// The block reference table of the pool.
pub struct PoolClones {
    brt: Arc<Brt>,
}

impl PoolClones {
    /// Wraps the table of this pool.
    pub fn new(brt: &Arc<Brt>) -> PoolClones {
        PoolClones { brt: Arc::clone(brt) }
    }
}

impl CloneTable for PoolClones {
    fn note_source(&self, objset: u64, tx: &Tx) {
        self.brt.note_source(ObjectId(objset), tx.txg());
    }

    fn add(&self, blocks: &[BlockPtr], tx: &Tx) -> Result<(), ZplError> {
        for bp in blocks {
            if !self.brt.add_pending(bp, tx.txg()) {
                return Err(ZplError::Unsupported { what: "cloning such a block" });
            }
        }
        Ok(())
    }
}

/// The options of a file system, from the properties of its dataset.
///
/// # Errors
/// If the properties cannot be read.
pub fn options_of(dataset: &Dataset, features: &FeatureCounts) -> Result<FsOptions, DslError> {
    let number = |name| prop::stored_number(dataset, name);
    let access_times = match (number("atime")?, number("relatime")?) {
        (0, _) => AccessTimes::Never,
        (_, 0) => AccessTimes::Always,
        _ => AccessTimes::Relative,
    };
    Ok(FsOptions {
        record_size: number("recordsize")?,
        xattrs: match number("xattr")? {
            0 => XattrStorage::Off,
            1 => XattrStorage::Directory,
            _ => XattrStorage::SystemAttributes,
        },
        posix_acls: number("acltype")? == 1,
        access_times,
        dnode_slots: match number("dnodesize")? {
            0 => 1,
            1 => 2,
            bytes => (bytes / 512).clamp(1, 32) as u8,
        },
        long_names: number("longname")? == 1 && features.is_enabled("longname"),
        projects: features.is_enabled("project_quota"),
        log_sa_xattrs: features.is_enabled("zilsaxattr"),
        clones: features.is_enabled("block_cloning"),
        read_only: number("readonly")? == 1 || dataset.unwritten()?.is_some(),
        snapshot_dir: match number("snapdir")? {
            0 => SnapshotDir::Hidden,
            1 => SnapshotDir::Visible,
            _ => SnapshotDir::Disabled,
        },
        large_blocks: features.is_enabled("large_blocks"),
    })
}

/// Applies a record, with the data of a write that is in a block of its own.
type Apply<'a> = &'a mut dyn FnMut(&Body, Option<&[u8]>, &Tx) -> Result<(), ZplError>;

/// Replays the log of a head, and frees it.
fn replay_log(head: &Head, apply: Apply<'_>) -> Result<(), ZplError> {
    let done = apply_log(head, apply)?;
    let sync = || sync_all(head.txgs()).map_err(|error| refused(head, error.into()));
    if done.applied > 0 {
        sync()?;
    }
    give_up(head)?;
    if done == Replayed::default() { Ok(()) } else { sync() }
}

/// Applies the records of a head's log. The log is freed once the changes are on disk. A head that is only read keeps its
/// log, and shows its last transaction group.
fn apply_log(head: &Head, apply: Apply<'_>) -> Result<Replayed, ZplError> {
    if let Some(why) = head.unwritten() {
        if head.log.awaits_replay() {
            tracing::warn!(dataset = %head.name(), why, "its intent log is not replayed");
        }
        return Ok(Replayed::default());
    }
    let mut sync = || sync_all(head.txgs());
    let mut apply =
        |record: &format::zil::Record, data: Option<&[u8]>, tx: &Tx| apply(&record.body, data, tx);
    let done =
        dmu::log::apply_log(&head.log, &mut sync, &mut apply).map_err(|source| refused(head, source))?;
    if let Some((seq, why)) = &done.stopped {
        tracing::warn!(dataset = %head.name(), seq, why, "the intent log could not be replayed to its end");
    }
    Ok(done)
}

/// Frees the log of a head whose records are on disk.
fn give_up(head: &Head) -> Result<(), ZplError> {
    if head.unwritten().is_some() {
        return Ok(());
    }
    let mut unclaim = |bp: &BlockPtr, how: Unclaim, tx: &Tx| head.clones().drop_claim(bp, how, tx.txg());
    dmu::log::give_up(&head.log, &mut unclaim).map_err(|source| refused(head, source))
}

fn refused(head: &Head, source: dmu::log::ReplayError) -> ZplError {
    ZplError::Replay { objset: head.set.number(), source: Box::new(source) }
}

/// Logs of one pool whose records were applied and which are freed together once the changes are on disk.
/// That takes two txgs for any number of logs.
#[derive(Default)]
pub struct AppliedLogs(Vec<Arc<Head>>);

impl AppliedLogs {
    /// Applies the log of a file system that is not in use yet.
    ///
    /// # Errors
    /// If the dataset is no file system, or cannot be read: its log is unchanged.
    pub fn add_fs(&mut self, head: &Arc<Head>, options: FsOptions, env: &Env) -> Result<(), ZplError> {
        let fs = open_fs(head, options, env)?;
        apply_log(head, &mut |record, data, tx| replay::replay(&fs, record, data, tx))?;
        self.0.push(Arc::clone(head));
        Ok(())
    }

    /// Applies the log of a volume that is not in use yet.
    ///
    /// # Errors
    /// Those of [`AppliedLogs::add_fs`].
    pub fn add_volume(&mut self, head: &Arc<Head>) -> Result<(), ZplError> {
        let volume = VolumeWriter::open(HeadBacking::new(head))?;
        apply_log(head, &mut |record, data, tx| volume.replay(record, data, tx))?;
        self.0.push(Arc::clone(head));
        Ok(())
    }

    /// Frees the logs. All applied changes are on disk on return; a log that cannot be freed is freed when
    /// its dataset is opened.
    ///
    /// # Errors
    /// [`ZplError::Replay`] if the pool is suspended.
    pub fn give_up(self) -> Result<(), ZplError> {
        let Some(any) = self.0.first() else { return Ok(()) };
        let sync = || sync_all(any.txgs()).map_err(|error| refused(any, error.into()));
        sync()?;
        for head in &self.0 {
            if let Err(error) = give_up(head) {
                tracing::warn!(dataset = %head.name(), %error, "an intent log is not given up");
            }
        }
        sync()
    }
}

/// Opens the file system of a head. Its log must be applied before other changes.
fn open_fs(head: &Arc<Head>, options: FsOptions, env: &Env) -> Result<Arc<Fs>, ZplError> {
    let fs = Fs::open(HeadBacking::new(head), options, env)?;
    if head.log.awaits_replay() {
        // Records may create files with the numbers of files that wait to be freed.
        while !fs.drain(DRAIN_STEPS)? {}
    }
    Ok(fs)
}

fn sync_all(txgs: &Arc<Txgs>) -> Result<(), TxError> {
    txgs.wait_synced(txgs.open_txg())
}

/// A file system in a head, open for writing.
pub struct HeadFs {
    /// The file system, open for writing.
    pub fs: Arc<Fs>,
    head: Arc<Head>,
}

impl HeadFs {
    /// Returns the file system that is open in the head, or opens it and first replays a claimed log.
    ///
    /// # Errors
    /// [`ZplError::WrongDataset`] if the dataset is no file system; or it cannot be read.
    pub fn open(head: &Arc<Head>, options: FsOptions, env: &Env) -> Result<Arc<HeadFs>, ZplError> {
        HeadFs::open_drained(head, options, env, 0)
    }

    /// Like [`HeadFs::open`]. If the file system was not open, frees files without a name in at most `steps`
    /// transactions ([`Fs::drain`]).
    ///
    /// # Errors
    /// Those of [`HeadFs::open`]; or a file cannot be freed.
    pub fn open_drained(
        head: &Arc<Head>,
        options: FsOptions,
        env: &Env,
        steps: usize,
    ) -> Result<Arc<HeadFs>, ZplError> {
        head.open_shared(|| {
            let fs = open_fs(head, options, env)?;
            replay_log(head, &mut |record, data, tx| replay::replay(&fs, record, data, tx))?;
            fs.set_log(Arc::new(HeadLog { log: Arc::clone(&head.log) }));
            if steps > 0 {
                fs.drain(steps)?;
            }
            Ok(Arc::new(HeadFs { fs, head: Arc::clone(head) }))
        })
    }

    /// The head that contains the file system.
    pub fn head(&self) -> &Arc<Head> {
        &self.head
    }

    /// Makes the changes of a file durable, and all changes of names.
    ///
    /// # Errors
    /// If the pool is suspended.
    pub fn fsync(&self, id: ObjectId) -> Result<(), TxError> {
        commit(&self.head, Some(id))
    }

    /// Makes all changes durable.
    ///
    /// # Errors
    /// If the pool is suspended.
    pub fn sync(&self) -> Result<(), TxError> {
        commit(&self.head, None)
    }

    /// Called after a change: with `sync=always` the change is durable on return.
    ///
    /// # Errors
    /// If the pool is suspended.
    pub fn changed(&self, id: ObjectId) -> Result<(), TxError> {
        if self.head.sync_mode() == SyncMode::Always { self.fsync(id) } else { Ok(()) }
    }
}

impl OpenDataset for HeadFs {
    fn properties_changed(&self, dataset: &Dataset, features: &FeatureCounts) -> Result<(), DslError> {
        self.fs.set_options(options_of(dataset, features)?);
        Ok(())
    }
}

fn commit(head: &Head, object: Option<ObjectId>) -> Result<(), TxError> {
    head.log.commit(object)
}

/// A volume in a head, open for writing.
pub struct HeadVolume {
    /// The volume, open for writing.
    pub volume: Arc<VolumeWriter>,
    head: Arc<Head>,
}

impl HeadVolume {
    /// Returns the volume that is open in the head, or opens it and first replays a claimed log.
    ///
    /// # Errors
    /// [`ZplError::WrongDataset`] if the dataset is no volume; or it cannot be read.
    pub fn open(head: &Arc<Head>) -> Result<Arc<HeadVolume>, ZplError> {
        head.open_shared(|| {
            let volume = VolumeWriter::open(HeadBacking::new(head))?;
            replay_log(head, &mut |record, data, tx| volume.replay(record, data, tx))?;
            volume.set_log(Arc::new(HeadLog { log: Arc::clone(&head.log) }));
            Ok(Arc::new(HeadVolume { volume, head: Arc::clone(head) }))
        })
    }

    /// The head that contains the volume.
    pub fn head(&self) -> &Arc<Head> {
        &self.head
    }

    /// Changes the size. On return the new size is durable, and the blocks beyond it are freed.
    ///
    /// # Errors
    /// Those of [`VolumeWriter::set_size`]; [`BeginError::Tx`] if the pool is suspended.
    pub fn resize(&self, size: u64) -> Result<(), ZplError> {
        let txg = self.volume.set_size(size)?;
        self.head.txgs().wait_synced(txg).map_err(BeginError::from)?;
        self.volume.free_beyond()
    }

    /// Makes all writes durable.
    ///
    /// # Errors
    /// If the pool is suspended.
    pub fn flush(&self) -> Result<(), TxError> {
        commit(&self.head, None)
    }

    /// Called after a change: with `sync=always` the change is durable on return.
    ///
    /// # Errors
    /// If the pool is suspended.
    pub fn changed(&self) -> Result<(), TxError> {
        if self.head.sync_mode() == SyncMode::Always { self.flush() } else { Ok(()) }
    }
}

impl OpenDataset for HeadVolume {
    fn properties_changed(&self, dataset: &Dataset, _: &FeatureCounts) -> Result<(), DslError> {
        self.volume.set_read_only(prop::stored_number(dataset, "readonly")? == 1);
        Ok(())
    }
}
