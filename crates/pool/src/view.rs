//! One state of a pool, for reading: that of the uberblock at which it was opened, or of the last txg of a
//! pool that is open for writing (`live`).
//!
//! # What always holds
//! - The state does not change while the view is held. The present state of a pool open for writing is not
//!   part of it, and is queried through [`LiveStatus`].

use crate::checkpoint;
use crate::directory::Directory;
use crate::error::PoolError;
use crate::features::Features;
use crate::status::{FailMode, LiveStatus, ScanProgress};
use dmu::{ObjSet, Store};
use dsl::Dsl;
use format::config::PoolConfig;
use format::uberblock::Uberblock;
use format::{PoolGuid, Txg, VdevGuid};
use std::collections::HashSet;
use std::sync::{Arc, OnceLock};
use vdev::{Devices, VdevTree};

/// One state of a pool, for reading.
pub struct Pool {
    pub(crate) name: String,
    pub(crate) label: PoolConfig,
    pub(crate) config: PoolConfig,
    pub(crate) uberblock: Uberblock,
    pub(crate) tree: Arc<VdevTree>,
    pub(crate) mos: Arc<ObjSet>,
    pub(crate) directory: Directory,
    pub(crate) features: Features,
    pub(crate) dsl: Dsl,
    pub(crate) devices: HashSet<VdevGuid>,
    /// The source of spares and cache devices that the search did not find.
    pub(crate) source: Devices,
    /// Keeps the blocks of the state, if the pool is open for writing; `None`: it is not.
    pub(crate) lease: Option<Arc<dyn dmu::Lease>>,
    /// The pool open for writing, for facts that are not on disk.
    pub(crate) status: OnceLock<Arc<dyn LiveStatus>>,
}

impl Pool {
    /// Name of the pool: the one under which it was opened, which may differ from that in its labels.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Guid of the pool.
    pub fn guid(&self) -> PoolGuid {
        self.label.pool_guid
    }

    /// Version of the pool's format: 5000, or 1 to 28.
    pub fn version(&self) -> u64 {
        self.uberblock.version
    }

    /// The txg whose state this view shows.
    pub fn txg(&self) -> Txg {
        self.uberblock.txg
    }

    /// The uberblock of this state.
    pub fn uberblock(&self) -> &Uberblock {
        &self.uberblock
    }

    /// The label that belongs to the uberblock.
    pub(crate) fn label_config(&self) -> &PoolConfig {
        &self.label
    }

    /// The configuration in the MOS.
    pub fn config(&self) -> &PoolConfig {
        &self.config
    }

    /// Tree of vdevs by which this state is read.
    pub fn tree(&self) -> &Arc<VdevTree> {
        &self.tree
    }

    /// Block store through which this state is read.
    pub fn store(&self) -> &Arc<Store> {
        self.mos.store()
    }

    /// Meta object set of this state.
    pub fn mos(&self) -> &Arc<ObjSet> {
        &self.mos
    }

    /// Object directory of the MOS.
    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    /// Features of the pool and their reference counts.
    pub fn features(&self) -> &Features {
        &self.features
    }

    /// Datasets of the pool, by name and by object.
    pub fn dsl(&self) -> &Dsl {
        &self.dsl
    }

    /// The uberblock of the checkpoint, if there is one.
    ///
    /// # Errors
    /// [`PoolError::Directory`] if the entry is malformed, [`PoolError::Dmu`] if the directory cannot be
    /// read.
    pub fn checkpoint(&self) -> Result<Option<Uberblock>, PoolError> {
        checkpoint::uberblock(&self.directory)
    }

    /// Bytes charged to one of the hidden directories below the root.
    ///
    /// # Errors
    /// [`PoolError::Dsl`] if the directories cannot be read.
    pub fn hidden_space(&self, name: &str) -> Result<u64, PoolError> {
        Ok(self.dsl.root()?.child(name)?.map_or(0, |dir| dir.phys().used))
    }

    /// Whether the pool is open for writing here.
    pub fn is_live(&self) -> bool {
        self.lease.is_some()
    }

    /// Attaches the open pool, which supplies the status that is not on disk. A second call has no effect.
    pub(crate) fn show(&self, status: Arc<dyn LiveStatus>) {
        let _ = self.status.set(status);
    }

    /// Property `failmode` of a pool that is open for writing here and cannot write at the moment; otherwise
    /// `None`.
    pub fn suspended(&self) -> Option<FailMode> {
        self.status.get()?.suspended()
    }

    /// Why the viewed pool takes no writes until it is imported again, even when devices come back: a panic
    /// of this program, or a txg that could not be written. `None`: it takes writes, or may when devices are
    /// back.
    pub fn stopped(&self) -> Option<String> {
        self.status.get()?.stopped()
    }

    /// Progress of the active scan. `None`: there is none, or the pool is not open for writing here.
    pub fn scan_progress(&self) -> Option<ScanProgress> {
        self.status.get()?.scan_progress()
    }

    /// Whether a returned device lacks data, so that a resilver is about to begin.
    pub fn is_resilver_due(&self) -> bool {
        self.status.get().is_some_and(|status| status.is_resilver_due(&self.tree))
    }

    /// Whether a device with this guid was found.
    pub(crate) fn has_device(&self, guid: VdevGuid) -> bool {
        self.devices.contains(&guid)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // A closed pool reads no blocks. A view shares the block store of its pool.
        if self.lease.is_none() {
            self.store().stop_prefetch();
        }
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pool({} {} at txg {})", self.name(), self.guid(), self.txg())
    }
}
