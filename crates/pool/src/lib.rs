//! The pool as a whole: which pools there are among some devices, opening one, and what belongs to
//! no dataset: features, properties, space, history, errors, scans, spares.
//!
//! Called by `cenote`. [`Pool`] shows one state and only reads; [`LivePool`] is a pool that is open for writing.
//!
//! # What always holds
//! - Opening reads labels, the MOS and a few small objects of it. Space maps, dedup tables and
//!   datasets are read when somebody asks for them.
//! - An open pool shows one state: that of the uberblock it was opened at.
//!
//! Source: `docs/on-disk/10-overview.md`, `11-labels-config.md`, `15-space.md`, `16-features.md`.
//! Tests: `tests/`.
#![forbid(unsafe_code)]

mod add;
pub mod allocated;
mod assemble;
mod aux;
mod cachefile;
mod checkpoint;
mod claim;
mod clones;
mod config;
mod create;
pub mod dedup;
mod diagnosis;
pub mod directory;
mod dtl;
mod error;
mod error_log;
pub mod events;
mod expand;
mod export;
pub mod features;
mod fragmentation;
mod held_writes;
mod history;
pub mod import;
mod indirect;
mod labels;
mod layout;
mod leases;
mod live;
mod missing;
mod mmp;
mod open;
pub(crate) mod outage;
mod outside;
pub mod props;
mod reguid;
mod resume_unfinished;
mod runtime;
pub(crate) mod scan;
pub mod space;
pub mod space_map;
mod space_maps;
mod sync;
#[cfg(test)]
mod tests;
mod tree_change;
mod txg_history;
mod upgrade;
mod vdev_props;
mod vdev_zaps;

pub use assemble::guids_with;
pub use aux::change::AuxKind;
pub use aux::{AuxState, AuxVdev};
pub use cachefile::{CacheFile, CacheFileError};
pub use clones::CloneTable;
pub use config::Host;
pub use create::{CreateSpec, FillRoot, RootDataset, check_name};
pub use error::PoolError;
pub use error_log::LoggedError;
pub use expand::Grow;
pub use export::Leave;
pub use features::{FeatureState, Features, UnknownFeature};
pub use history::record::{Command, Operation};
pub use import::writable::{ImportOptions, refusal};
pub use layout::{FeatureSet, Layout, LeafSpec, MAX_AUTO_ASHIFT, MIN_AUTO_ASHIFT, TopSpec, best_ashift};
pub(crate) use leases::Lease;
pub use live::LivePool;
pub use mmp::{MULTIHOST_FAIL_INTERVALS, MULTIHOST_HISTORY, MULTIHOST_INTERVAL, MmpRecord, MmpTarget};
pub use open::{OpenOptions, Which};
pub use outage::FailMode;
pub use outside::Outside;
pub use props::change::PoolProp;
pub use scan::recorded::Expansion;
pub use scan::{Offline, SCAN_SUSPEND_PROGRESS, ScanProgress, ScanRefusal};
pub use txg_history::{TXG_HISTORY, TxgRecord};
pub use vdev_props::VdevProp;

use directory::Directory;
use dmu::{KeyState, ObjSet, Store};
use dsl::Dsl;
use format::config::PoolConfig;
use format::uberblock::Uberblock;
use format::{PoolGuid, Txg, VdevGuid};
use open::Opened;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock};
use vdev::{Device, Devices, VdevTree};

/// An open pool.
pub struct Pool {
    name: String,
    label: PoolConfig,
    config: PoolConfig,
    uberblock: Uberblock,
    tree: Arc<VdevTree>,
    mos: Arc<ObjSet>,
    directory: Directory,
    features: Features,
    dsl: Dsl,
    devices: HashSet<VdevGuid>,
    /// The source of spares and cache devices that no search has found.
    source: Devices,
    /// It shows a pool that is open for writing, which keeps what it leads to meanwhile.
    lease: Option<Arc<Lease>>,
    /// The scans of that pool.
    scans: OnceLock<Arc<scan::Scans>>,
    /// Whether that pool is suspended.
    outages: OnceLock<Arc<outage::Outages>>,
}

impl Pool {
    fn from_opened(
        opened: Opened,
        devices: &HashMap<VdevGuid, Arc<dyn Device>>,
        source: Devices,
        name: Option<&str>,
    ) -> Result<Arc<Pool>, PoolError> {
        let Opened { label, config, uberblock, tree, mos, directory, features } = opened;
        let name = name.unwrap_or(&label.name).to_owned();
        let dsl = open::datasets(&name, &mos, &directory, &tree)?;
        let devices = devices.keys().copied().collect();
        Ok(Arc::new(Pool {
            name,
            label,
            config,
            uberblock,
            tree,
            mos,
            directory,
            features,
            dsl,
            devices,
            source,
            lease: None,
            scans: OnceLock::new(),
            outages: OnceLock::new(),
        }))
    }

    /// What a pool that is open for writing was as of an uberblock. `aux`: its spares and cache devices that
    /// are there.
    pub(crate) fn of_live(
        name: &str,
        config: &PoolConfig,
        uberblock: &Uberblock,
        tree: &Arc<VdevTree>,
        store: &Arc<Store>,
        aux: HashSet<VdevGuid>,
        lease: Arc<Lease>,
    ) -> Result<Arc<Pool>, PoolError> {
        let kept = Some(Arc::clone(&lease) as Arc<dyn dmu::Lease>);
        let mos = ObjSet::open_leased(store, kept, &uberblock.root, 0, KeyState::None)?;
        let directory = Directory::open(&mos)?;
        let features = Features::load(&directory)?;
        let dsl = open::datasets(name, &mos, &directory, tree)?;
        let is_open = |guid: &VdevGuid| tree.device(*guid).is_some();
        let devices = tree.leaf_guids().into_iter().filter(is_open).chain(aux).collect();
        let (label, config, uberblock) = (config.clone(), config.clone(), *uberblock);
        let (name, tree, lease) = (name.to_owned(), tree.clone(), Some(lease));
        Ok(Arc::new(Pool {
            name,
            label,
            config,
            uberblock,
            tree,
            mos,
            directory,
            features,
            dsl,
            devices,
            // Not asked: one that is open for writing holds its spares and cache devices.
            source: Devices::default(),
            lease,
            scans: OnceLock::new(),
            outages: OnceLock::new(),
        }))
    }

    /// Its name; while it is open under another one than its labels have, that.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its guid.
    pub fn guid(&self) -> PoolGuid {
        self.label.pool_guid
    }

    /// Version of its format: 5000, or 1 to 28.
    pub fn version(&self) -> u64 {
        self.uberblock.version
    }

    /// The txg whose state is shown.
    pub fn txg(&self) -> Txg {
        self.uberblock.txg
    }

    /// The uberblock that it was opened at.
    pub fn uberblock(&self) -> &Uberblock {
        &self.uberblock
    }

    /// The label that goes with the uberblock.
    pub fn label_config(&self) -> &PoolConfig {
        &self.label
    }

    /// The configuration in the MOS.
    pub fn config(&self) -> &PoolConfig {
        &self.config
    }

    /// Its vdevs.
    pub fn tree(&self) -> &Arc<VdevTree> {
        &self.tree
    }

    /// Where its blocks come from.
    pub fn store(&self) -> &Arc<Store> {
        self.mos.store()
    }

    /// The meta object set.
    pub fn mos(&self) -> &Arc<ObjSet> {
        &self.mos
    }

    /// The object directory.
    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    /// Its features.
    pub fn features(&self) -> &Features {
        &self.features
    }

    /// Its datasets.
    pub fn dsl(&self) -> &Dsl {
        &self.dsl
    }

    /// The uberblock of the checkpoint, if there is one.
    pub fn checkpoint(&self) -> Result<Option<Uberblock>, PoolError> {
        checkpoint::uberblock(&self.directory)
    }

    /// Bytes charged to one of the hidden directories below the root.
    pub fn hidden_space(&self, name: &str) -> Result<u64, PoolError> {
        Ok(self.dsl.root()?.child(name)?.map_or(0, |dir| dir.phys().used))
    }

    /// It shows a pool that is open for writing.
    pub fn is_live(&self) -> bool {
        self.lease.is_some()
    }

    /// The scans of the pool whose state this shows, and what keeps it from writing.
    pub(crate) fn show(&self, scans: &Arc<scan::Scans>, outages: &Arc<outage::Outages>) {
        let _ = self.scans.set(Arc::clone(scans));
        let _ = self.outages.set(Arc::clone(outages));
    }

    /// The pool whose state this shows cannot write at the moment, and what becomes of those who want to;
    /// `None`: it can, or is not open for writing.
    pub fn suspended(&self) -> Option<FailMode> {
        self.outages.get()?.suspended()
    }

    /// Why nothing more is written to the pool whose state this shows, whatever becomes of its devices: a bug of this program
    /// met it, or a txg could not be written. It is to be imported again. `None`: it is not so.
    pub fn stopped(&self) -> Option<String> {
        self.outages.get()?.stopped()
    }

    /// How far the scan is now that is under way; `None`: there is none, or the pool is not open for writing here.
    pub fn scan_progress(&self) -> Option<ScanProgress> {
        self.scans.get()?.progress()
    }

    /// A device that is back lacks something, and a resilver that brings it is about to begin.
    pub fn is_resilver_due(&self) -> bool {
        self.scans.get().is_some_and(|scans| scans.is_resilver_due(&self.tree))
    }

    /// A device with this guid was found.
    pub(crate) fn has_device(&self, guid: VdevGuid) -> bool {
        self.devices.contains(&guid)
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pool({} {} at txg {})", self.name(), self.guid(), self.txg())
    }
}
