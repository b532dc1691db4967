//! A head that is open for writing: its contents, its intent log, what may still be written to it.

use super::reservation::{Cost, DirCounters, HeadCounters, PoolCounters, Refused, available, check};
use crate::brt::Brt;
use crate::dataset::Dataset;
use crate::error::DslError;
use crate::features::FeatureCounts;
use crate::mos;
use crate::prop;
use crate::stored_props::own_number;
use crate::sync::{lock, read};
use dmu::log::{IntentLog, LogBias};
use dmu::{KeyState, LiveObject, LiveSet, SetPolicy, Tx, Txgs};
use format::objset::ObjsetType;
use format::{BlockPtr, ObjectId, Txg};
use std::any::Any;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock, Weak};
use zio::AllocTx;

/// How often [`Head::begin_waiting`] waits for a sync before it gives up.
const SPACE_RETRIES: usize = 16;

/// Space of a head as file systems report it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeadSpace {
    /// Bytes that the head references.
    pub referenced: u64,
    /// Bytes that it may still take.
    pub available: u64,
}

/// When changes of a head are durable (property `sync`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncMode {
    /// When a caller asks for it.
    Standard,
    /// Before the operation returns.
    Always,
    /// With their txg, whatever is asked.
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
    /// Its intent log. A log that awaits its replay is replayed by the code that opens the head, before the
    /// first use.
    pub log: Arc<IntentLog>,
    pub(super) id: ObjectId,
    pub(super) dir: ObjectId,
    pub(super) name: RwLock<Arc<str>>,
    pub(super) txgs: Arc<Txgs>,
    pub(super) brt: Arc<Brt>,
    pub(super) pool: Arc<PoolCounters>,
    pub(super) counters: HeadCounters,
    /// Its directory and all above it.
    pub(super) dirs: RwLock<Arc<[Arc<DirCounters>]>>,
    pub(super) object: LiveObject,
    pub(super) version: AtomicU64,
    pub(super) prev_snap_txg: AtomicU64,
    /// Per-dataset features that came into use since the last sync.
    pub(super) features: Mutex<BTreeSet<&'static str>>,
    /// What the policy was read at.
    pub(super) policy_of: AtomicU64,
    pub(super) sync_mode: AtomicU64,
    /// Number of copies of data (property `copies`).
    pub(super) copies: AtomicU64,
    /// The last txg for which the log has put its head into the set.
    pub(super) log_synced: AtomicU64,
    /// Held while the layer above opens what is in the head. The sync does not take it, because opening may
    /// wait for a txg.
    pub(super) opening: Mutex<()>,
    /// The file system or volume that is open in the head.
    pub(super) opened: Mutex<Option<Weak<dyn OpenDataset>>>,
}

/// A file system or volume that is open for writing in a head. The layer above implements it.
pub trait OpenDataset: Any + Send + Sync {
    /// Takes over the properties that decide how the dataset is changed. Called in syncing context, before
    /// the task that changed a property returns; must not wait for a transaction.
    ///
    /// # Errors
    /// If a property cannot be read; the txg is not written then.
    fn properties_changed(&self, dataset: &Dataset, features: &FeatureCounts) -> Result<(), DslError>;
}

/// A count of changes that none is equal to.
const NEVER: u64 = u64::MAX;

impl Head {
    /// The dataset's object, also the number of its object set.
    pub fn id(&self) -> ObjectId {
        self.id
    }

    /// The directory that it belongs to.
    pub fn dir(&self) -> ObjectId {
        self.dir
    }

    /// Its full name as of the last sync.
    pub fn name(&self) -> Arc<str> {
        Arc::clone(&read(&self.name))
    }

    /// The transaction groups of its pool.
    pub fn txgs(&self) -> &Arc<Txgs> {
        &self.txgs
    }

    /// The counts of cloned blocks of its pool.
    pub fn clones(&self) -> &Arc<Brt> {
        &self.brt
    }

    /// The file system or volume that is open in the head. The first caller opens it; all share it until the
    /// last of them has dropped it, so that there is one copy of what it keeps in memory.
    ///
    /// From then on it is told of every change of properties ([`OpenDataset::properties_changed`]), and once
    /// with the next txg, whatever was changed while it was opened.
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

    /// The file system or volume that is open in the head, if one is.
    pub(super) fn opened(&self) -> Option<Arc<dyn OpenDataset>> {
        lock(&self.opened).as_ref().and_then(Weak::upgrade)
    }

    /// When its changes are durable.
    pub fn sync_mode(&self) -> SyncMode {
        SyncMode::of(self.sync_mode.load(Ordering::Relaxed))
    }

    /// Takes over the properties `sync` and `logbias`.
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

    /// Creation txg of its newest snapshot, or of its origin, as of the last sync: older blocks are shared.
    pub fn prev_snap_txg(&self) -> Txg {
        Txg(self.prev_snap_txg.load(Ordering::Acquire))
    }

    /// Joins the open txg if there is room for a change: in the pool, in the quotas of the directories above,
    /// in the refquota. The cost is multiplied by the copies that are kept, and by what small blocks waste.
    ///
    /// # Errors
    /// [`DslError::Quota`] or [`DslError::Space`], whose `after` says whether it is worth waiting;
    /// [`DslError::Tx`] if the pool is suspended or closed.
    pub fn begin(&self, cost: Cost) -> Result<Tx, DslError> {
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

    /// The same; where it is worth waiting, it waits until what is dirty now is on disk. Needs a thread
    /// that syncs, and a caller that holds no transaction.
    ///
    /// # Errors
    /// As of [`Head::begin`], once waiting is of no use.
    pub fn begin_waiting(&self, cost: Cost) -> Result<Tx, DslError> {
        let mut result = self.begin(cost);
        // A place that is set aside comes free with every txg; others may take it all the same.
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

    /// Space as file systems report it.
    pub fn space(&self) -> HeadSpace {
        let dirs = Arc::clone(&read(&self.dirs));
        HeadSpace {
            referenced: self.counters.referenced.get(),
            available: available(&self.counters, &dirs, &self.pool),
        }
    }

    /// Whether changes of the pool that free something are not on disk yet, or what they have freed cannot be
    /// used again yet.
    pub fn is_freeing(&self) -> bool {
        self.pool.is_freeing()
    }

    /// Something begins to use a per-dataset feature: it is active from the next sync on. To be called in
    /// the transaction of the change.
    pub fn use_feature(&self, name: &'static str) {
        lock(&self.features).insert(name);
    }

    /// Reads its counters again if its dataset has changed.
    pub(super) fn refresh(&self, live: &Arc<LiveSet>) -> Result<(), DslError> {
        let version = self.object.version();
        if self.version.swap(version, Ordering::AcqRel) == version {
            return Ok(());
        }
        let phys = mos::dataset_phys(&self.object)?;
        self.counters.referenced.set(phys.referenced);
        self.counters.unique.set(phys.unique);
        self.prev_snap_txg.store(phys.prev_snap_txg.0, Ordering::Release);
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

/// Checks that a dataset is a head whose contents may be changed.
pub(crate) fn check_changeable(dataset: &Dataset, may_be_partial: bool) -> Result<(), DslError> {
    let name = || dataset.name().to_owned();
    if dataset.is_snapshot() {
        return Err(DslError::WrongKind { name: name(), why: "a snapshot cannot be changed" });
    }
    if dataset.is_inconsistent() && !may_be_partial {
        return Err(DslError::Inconsistent { name: name() });
    }
    if dataset.is_encrypted()? {
        return Err(DslError::Encrypted { name: name(), why: "encrypted datasets cannot be written" });
    }
    Ok(())
}

/// Opens an object set for writing, accounting as it says itself.
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

/// Objects of a set are counted by owner only if all that are there have been counted.
pub(super) fn with_accounting_of(policy: &SetPolicy, set: &LiveSet) -> SetPolicy {
    let counts = |bit: u32| set.kind() == ObjsetType::Zfs && set.flags() >> bit & 1 == 1;
    SetPolicy {
        user_accounting: counts(0),
        object_accounting: counts(1),
        project_accounting: counts(2),
        ..policy.clone()
    }
}
