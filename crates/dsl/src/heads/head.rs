//! A head that is open for writing: its contents, its intent log, its counters of space.

use super::reservation::{Cost, DirCounters, HeadCounters, PoolCounters, Refused, available, check};
use crate::brt::Brt;
use crate::dataset::{Dataset, ENCRYPTED};
use crate::error::DslError;
use crate::features::FeatureCounts;
use crate::mos;
use crate::prop;
use crate::stored_props::own_number;
use crate::sync::{lock, read};
use dmu::log::{IntentLog, LogBias};
use dmu::{KeyState, LiveObject, LiveSet, SetPolicy, Tx, Txgs};
use format::objset::ObjsetType;
use format::{BlockPtr, ObjectId};
use std::any::Any;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock, Weak};
use zio::AllocTx;

/// Most syncs that [`Head::begin_waiting`] waits for.
const SPACE_RETRIES: usize = 16;

/// Space of a head, in bytes, as `statfs` reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeadSpace {
    /// Bytes that the head references.
    pub referenced: u64,
    /// Bytes that it may still take.
    pub available: u64,
}

/// When changes of a head become durable (property `sync`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncMode {
    /// When a caller requests it (`fsync`, `O_SYNC`).
    Standard,
    /// Before the operation returns.
    Always,
    /// With their txg, even if a caller requests more.
    Disabled,
}

impl SyncMode {
    fn of(stored: u64) -> SyncMode {
        match stored {
            1 => SyncMode::Always,
            2 => SyncMode::Disabled,
            _ => SyncMode::Standard,
        }
    }
}

/// A head that is open for writing.
pub struct Head {
    /// Object set with the contents.
    pub set: Arc<LiveSet>,
    /// The head's intent log. The code that opens the head replays a claimed log before its first use.
    pub log: Arc<IntentLog>,
    pub(super) id: ObjectId,
    /// Why the contents are read, and not changed ([`Dataset::unwritten`]). `None`: they can be changed.
    pub(super) unwritten: Option<&'static str>,
    pub(super) dir: ObjectId,
    pub(super) name: RwLock<Arc<str>>,
    pub(super) txgs: Arc<Txgs>,
    pub(super) brt: Arc<Brt>,
    pub(super) pool: Arc<PoolCounters>,
    pub(super) counters: HeadCounters,
    /// Counters of the head's directory and of all directories above.
    pub(super) dirs: RwLock<Arc<[Arc<DirCounters>]>>,
    pub(super) object: LiveObject,
    pub(super) version: AtomicU64,
    /// Per-dataset features that were activated since the last sync.
    pub(super) features: Mutex<BTreeSet<&'static str>>,
    /// Value of `Heads::policies` when the policy was read.
    pub(super) policy_of: AtomicU64,
    pub(super) sync_mode: AtomicU64,
    /// Number of copies of data (property `copies`).
    pub(super) copies: AtomicU64,
    /// The last txg in which the log stored its header in the set.
    pub(super) log_synced: AtomicU64,
    /// How far a receive has come in a txg, by the lowest bit of the txg.
    pub(super) received: Mutex<[Option<ReceivePoint>; 2]>,
    /// Held while the layer above opens the contents of the head. The sync does not take it, because opening
    /// may wait for a txg.
    pub(super) opening: Mutex<()>,
    /// The file system or volume that is open in the head.
    pub(super) opened: Mutex<Option<Weak<dyn OpenDataset>>>,
}

/// How far a receive has come: where a sender goes on if it is interrupted (docs/on-disk/30-send-streams.md, section 8).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReceivePoint {
    /// The object of the last record that was applied.
    pub object: ObjectId,
    /// The byte of the object at which the record starts.
    pub offset: u64,
    /// Bytes of the stream that were received.
    pub bytes: u64,
}

/// A file system or volume that is open for writing in a head. The layer above implements it.
pub trait OpenDataset: Any + Send + Sync {
    /// Applies the properties that decide how the dataset is written. Called in syncing context, before the
    /// task that changed a property returns; must not wait for a transaction.
    ///
    /// # Errors
    /// If a property cannot be read; the txg is not written then.
    fn properties_changed(&self, dataset: &Dataset, features: &FeatureCounts) -> Result<(), DslError>;
}

/// A change count that never occurs.
const NEVER: u64 = u64::MAX;

impl Head {
    /// Number of the dataset's object in the MOS.
    pub fn id(&self) -> ObjectId {
        self.id
    }

    /// Why the contents are read, and not changed ([`Dataset::unwritten`]). `None`: they can be changed.
    pub fn unwritten(&self) -> Option<&'static str> {
        self.unwritten
    }

    /// Full name of the head as of the last sync.
    pub fn name(&self) -> Arc<str> {
        Arc::clone(&read(&self.name))
    }

    /// The transaction groups of the pool.
    pub fn txgs(&self) -> &Arc<Txgs> {
        &self.txgs
    }

    /// The block reference table of the pool.
    pub fn clones(&self) -> &Arc<Brt> {
        &self.brt
    }

    /// The file system or volume that is open in the head. The first caller opens it; later callers share it
    /// until the last of them has dropped it, so that its state exists once in memory.
    ///
    /// From then on it is notified of every change of properties ([`OpenDataset::properties_changed`]), and
    /// once with the next txg, in case a property changed while it was opened.
    ///
    /// # Errors
    /// Those of `open`.
    pub fn open_shared<T: OpenDataset, E>(
        &self,
        open: impl FnOnce() -> Result<Arc<T>, E>,
    ) -> Result<Arc<T>, E> {
        let _opening = lock(&self.opening);
        let there =
            self.opened().and_then(|there| (there as Arc<dyn Any + Send + Sync>).downcast::<T>().ok());
        if let Some(there) = there {
            return Ok(there);
        }
        let made = open()?;
        let weak: Weak<T> = Arc::downgrade(&made);
        *lock(&self.opened) = Some(weak);
        self.policy_of.store(NEVER, Ordering::Release);
        Ok(made)
    }

    /// The file system or volume that is open in the head; `None`: none is.
    pub(super) fn opened(&self) -> Option<Arc<dyn OpenDataset>> {
        lock(&self.opened).as_ref().and_then(Weak::upgrade)
    }

    /// When changes of the head become durable.
    pub fn sync_mode(&self) -> SyncMode {
        SyncMode::of(self.sync_mode.load(Ordering::Relaxed))
    }

    /// Applies the properties `sync` and `logbias`.
    pub(super) fn set_log_properties(&self, dataset: &Dataset) -> Result<(), DslError> {
        let stored = prop::stored_number(dataset, "sync")?;
        self.log.set_bias(match prop::stored_number(dataset, "logbias")? {
            1 => LogBias::Throughput,
            _ => LogBias::Latency,
        });
        self.log.set_enabled(SyncMode::of(stored) != SyncMode::Disabled);
        self.sync_mode.store(stored, Ordering::Relaxed);
        Ok(())
    }

    /// Joins the open txg if there is space for a change: in the pool, in the quotas of the directories
    /// above, in the refquota. The cost is multiplied by the number of copies, and by the overhead of small
    /// blocks.
    ///
    /// # Errors
    /// [`DslError::Unwritten`] for a head that is only read;
    /// [`DslError::Quota`] or [`DslError::Space`], whose `after` is the txg after which a retry may succeed;
    /// [`DslError::Tx`] if the pool is suspended or closed.
    pub fn begin(&self, cost: Cost) -> Result<Tx, DslError> {
        if let Some(why) = self.unwritten {
            return Err(DslError::Unwritten { name: self.name().to_string(), why });
        }
        let cost = self.on_vdevs(cost);
        let dirs = Arc::clone(&read(&self.dirs));
        let dirty = self.pool.more_than_estimated(self.txgs.meter().total());
        check(&self.counters, &dirs, &self.pool, cost, dirty)
            .map_err(|refused| self.refuse(&refused, cost))?;
        let tx = self.txgs.begin()?;
        let txg = tx.txg();
        if cost.frees {
            self.pool.note_freeing(txg);
        }
        self.counters.pending.add(txg, cost.bytes);
        for dir in dirs.iter() {
            dir.pending.add(txg, cost.bytes);
        }
        Ok(tx)
    }

    fn on_vdevs(&self, cost: Cost) -> Cost {
        let copied = |bytes: u64| bytes.saturating_mul(self.copies.load(Ordering::Relaxed));
        let bytes = copied(self.pool.wasted(cost.bytes, cost.blocks));
        Cost { bytes, within: cost.within.map(copied), ..cost }
    }

    /// Like [`Head::begin`], but waits until the dirty data are on disk if a retry may succeed then. Needs a
    /// sync thread, and a caller that holds no transaction.
    ///
    /// # Errors
    /// Those of [`Head::begin`], once waiting cannot help.
    pub fn begin_waiting(&self, cost: Cost) -> Result<Tx, DslError> {
        let mut result = self.begin(cost);
        // The space within a reservation is available again after every txg, but others may take it first.
        let retries =
            if self.counters.is_set_aside(self.on_vdevs(cost)) { usize::MAX } else { SPACE_RETRIES };
        for _ in 0..retries {
            match &result {
                Err(DslError::Quota { after: Some(txg), .. } | DslError::Space { after: Some(txg), .. }) => {
                    self.txgs.wait_synced(*txg)?;
                }
                _ => break,
            }
            result = self.begin(cost);
        }
        result
    }

    fn refuse(&self, refused: &Refused, cost: Cost) -> DslError {
        let after = |is_pending: bool| is_pending.then(|| self.txgs.open_txg());
        match *refused {
            Refused::Quota { used, quota, is_pending } => {
                DslError::Quota { name: self.name().to_string(), used, quota, after: after(is_pending) }
            }
            Refused::Pool { used, size, is_pending } => DslError::Space {
                needed: cost.bytes,
                available: size.saturating_sub(used),
                after: after(is_pending),
            },
        }
    }

    /// Space of the head as `statfs` reports it.
    pub fn space(&self) -> HeadSpace {
        let dirs = Arc::clone(&read(&self.dirs));
        HeadSpace {
            referenced: self.counters.referenced.get(),
            available: available(&self.counters, &dirs, &self.pool),
        }
    }

    /// Whether a change that frees space is not on disk yet, or the space that it freed is not reusable yet.
    pub fn is_freeing(&self) -> bool {
        self.pool.is_freeing()
    }

    /// Activates a per-dataset feature with the next sync. Called in the transaction of the change that needs
    /// it.
    pub fn use_feature(&self, name: &'static str) {
        lock(&self.features).insert(name);
    }

    /// Notes how far a receive into this head has come. It is stored with the txg of `tx`.
    pub fn note_received(&self, point: ReceivePoint, tx: &Tx) {
        lock(&self.received)[(tx.txg().0 & 1) as usize] = Some(point);
    }

    /// Reads the counters again if the dataset object has changed.
    pub(super) fn refresh(&self, live: &Arc<LiveSet>) -> Result<(), DslError> {
        let version = self.object.version();
        if self.version.swap(version, Ordering::AcqRel) == version {
            return Ok(());
        }
        let phys = mos::dataset_phys(&self.object)?;
        self.counters.referenced.set(phys.referenced);
        self.counters.unique.set(phys.unique);
        self.refresh_limits(live)
    }

    pub(super) fn refresh_limits(&self, live: &Arc<LiveSet>) -> Result<(), DslError> {
        let dir = mos::dir_phys(&live.object(self.dir)?)?;
        self.counters.refquota.set(own_number(&live.view(), dir.props, "refquota")?.unwrap_or(0));
        self.counters.refreservation.set(own_number(&live.view(), dir.props, "refreservation")?.unwrap_or(0));
        Ok(())
    }
}

impl std::fmt::Debug for Head {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Head({} = object {})", self.name(), self.id)
    }
}

/// Checks that a dataset is a head whose contents may be used.
pub(super) fn check_usable(dataset: &Dataset) -> Result<(), DslError> {
    check_head(dataset)?;
    match dataset.is_inconsistent() {
        true => Err(DslError::Inconsistent { name: dataset.name().to_owned() }),
        false => Ok(()),
    }
}

/// Checks that a dataset is a head whose contents may be changed by a task or a receive.
pub(crate) fn check_changeable(dataset: &Dataset) -> Result<(), DslError> {
    check_head(dataset)?;
    match dataset.is_encrypted()? {
        true => Err(DslError::Encrypted { name: dataset.name().to_owned(), why: ENCRYPTED }),
        false => Ok(()),
    }
}

fn check_head(dataset: &Dataset) -> Result<(), DslError> {
    match dataset.is_snapshot() {
        true => {
            let (name, why) = (dataset.name().to_owned(), "a snapshot cannot be changed");
            Err(DslError::WrongKind { name, why })
        }
        false => Ok(()),
    }
}

/// Checks that a dataset is an encrypted head that is being received.
pub(super) fn check_raw(dataset: &Dataset) -> Result<(), DslError> {
    let name = || dataset.name().to_owned();
    if dataset.is_snapshot() || !dataset.is_inconsistent() {
        return Err(DslError::WrongKind { name: name(), why: "it is not being received" });
    }
    if !dataset.is_encrypted()? {
        return Err(DslError::Encrypted {
            name: name(),
            why: "the stream is encrypted, and the dataset is not",
        });
    }
    Ok(())
}

/// Opens an object set for writing, with the accounting that it has on disk.
pub(crate) fn open_set(
    mos: &Arc<LiveSet>,
    txgs: &Arc<Txgs>,
    bp: &BlockPtr,
    id: ObjectId,
    key: KeyState,
    policy: &SetPolicy,
) -> Result<Arc<LiveSet>, DslError> {
    let set = LiveSet::open(mos.store(), txgs.meter(), bp, id.0, key, policy.clone())?;
    set.set_policy(with_accounting_of(policy, &set));
    Ok(set)
}

/// Enables accounting by owner only if all existing objects of the set are counted.
pub(super) fn with_accounting_of(policy: &SetPolicy, set: &LiveSet) -> SetPolicy {
    let counts = |bit: u32| set.kind() == ObjsetType::Zfs && set.flags() >> bit & 1 == 1;
    SetPolicy {
        user_accounting: counts(0),
        object_accounting: counts(1),
        project_accounting: counts(2),
        ..policy.clone()
    }
}
