//! Finding and opening a pool.

use crate::{Dataset, Error, PoolUse};
use dmu::{ObjSet, Store};
use dsl::Dsl;
use dsl::keys::encryption_root;
use format::{PoolGuid, Txg};
use pool::{PoolError, Which};
use std::path::PathBuf;
use std::sync::Arc;
use vdev::device::file::Access;
use vdev::scan::{Found, Search};
use vdev::{Devices, Env, VdevTree};

/// Bytes of block cache unless [`OpenOptions::cache_bytes`] says otherwise.
const DEFAULT_CACHE: usize = 128 << 20;

/// Where to look for a pool, and how to open it.
#[derive(Debug, Clone)]
pub struct OpenOptions {
    search: Vec<PathBuf>,
    access: Access,
    devices: Devices,
    pub(crate) pool: pool::OpenOptions,
}

impl Default for OpenOptions {
    fn default() -> OpenOptions {
        OpenOptions::new()
    }
}

impl OpenOptions {
    /// Looks where pools are by default: the devices of the machine.
    pub fn new() -> OpenOptions {
        let pool = pool::OpenOptions { cache_bytes: DEFAULT_CACHE, ..pool::OpenOptions::default() };
        OpenOptions { search: Vec::new(), access: Access::Auto, devices: Devices::system(), pool }
    }

    /// Looks in this folder, or at this device or image file. May be called several times; then the
    /// default places are not looked at.
    #[must_use]
    pub fn search(mut self, path: impl Into<PathBuf>) -> OpenOptions {
        self.search.push(path.into());
        self
    }

    /// Reads image files past the system's cache, as block devices are read in any case: right for who reads much of
    /// a pool once. Otherwise they are read through it, which many short commands one after the other gain from.
    #[must_use]
    pub fn direct(mut self, yes: bool) -> OpenOptions {
        self.access = if yes { Access::Direct } else { Access::Auto };
        self
    }

    /// Gets devices from this source instead of the machine: from memory, say. The places to look are then names of that
    /// source.
    #[must_use]
    pub fn devices(mut self, devices: Devices) -> OpenOptions {
        self.devices = devices;
        self
    }

    /// Bytes that the block cache may take; 128 MiB unless set. Opened for change, a pool takes no more than a share of
    /// the memory that the process may use.
    #[must_use]
    pub fn cache_bytes(mut self, bytes: usize) -> OpenOptions {
        self.pool.cache_bytes = bytes;
        self
    }

    /// Opens the newest state that is not newer than `txg`.
    #[must_use]
    pub fn max_txg(mut self, txg: u64) -> OpenOptions {
        self.pool.max_txg = Some(Txg(txg));
        self
    }

    /// If the newest state of the pool cannot be read, opens the newest that can.
    #[must_use]
    pub fn recover(mut self, yes: bool) -> OpenOptions {
        self.pool.recover = yes;
        self
    }

    /// Opens the pool as it was when its checkpoint was taken.
    #[must_use]
    pub fn checkpoint(mut self, yes: bool) -> OpenOptions {
        self.pool.checkpoint = yes;
        self
    }

    /// What the pool is called while it is open, whatever its labels say.
    #[must_use]
    pub fn known_as(mut self, name: impl Into<String>) -> OpenOptions {
        self.pool.name = Some(name.into());
        self
    }

    /// Opens the pool even if log devices are missing: writes that were acknowledged but not yet part
    /// of a transaction group are then not known.
    #[must_use]
    pub fn allow_missing_logs(mut self, yes: bool) -> OpenOptions {
        self.pool.allow_missing_logs = yes;
        self
    }

    /// Opens the pool even if top-level devices are missing: what had its only copies there cannot be
    /// read.
    #[must_use]
    pub fn allow_missing_devices(mut self, yes: bool) -> OpenOptions {
        self.pool.allow_missing_tops = yes;
        self
    }

    /// Opens the pool even if it was destroyed.
    #[must_use]
    pub fn destroyed(mut self, yes: bool) -> OpenOptions {
        self.pool.destroyed = yes;
        self
    }

    /// The devices of all pools in the places to look.
    pub(crate) fn found(&self) -> Found {
        let env = Env::system().with_devices(self.devices.clone());
        Search { paths: self.search.clone(), access: self.access, env }.run()
    }
}

/// An open pool. Read-only; closed when dropped. Cloning is cheap.
#[derive(Clone)]
pub struct Pool {
    inner: Arc<pool::Pool>,
    /// It belongs to a namespace, which keeps it open meanwhile.
    _user: Option<PoolUse>,
}

impl Pool {
    /// Finds the pool with this name, or with this guid if `name` is a number, and opens it.
    ///
    /// # Errors
    /// If there is none, or more than one of that name, or it cannot be opened; see [`Error::Pool`].
    pub fn open(name: &str, options: &OpenOptions) -> Result<Pool, Error> {
        Pool::open_among(options.found(), name, options)
    }

    /// Opens one of the pools among devices that were found.
    pub(crate) fn open_among(found: Found, name: &str, options: &OpenOptions) -> Result<Pool, Error> {
        let which = match name.parse::<u64>() {
            Ok(guid) => Which::Guid(PoolGuid(guid)),
            Err(_) => Which::Name(name.to_owned()),
        };
        let problems = found.problems.clone();
        match pool::Pool::open(found, &which, &options.pool) {
            // It may be what could not be looked at.
            Err(PoolError::NoSuchPool { wanted, .. }) if !problems.is_empty() => {
                Err(Error::Search { wanted, problems })
            }
            opened => {
                let opened = opened?;
                opened.store().start_prefetch();
                Ok(Pool::from(opened))
            }
        }
    }

    /// The same pool, counted as used as long as this handle, or a clone of it, exists.
    #[must_use]
    pub fn used_by(self, user: Option<PoolUse>) -> Pool {
        Pool { _user: user, ..self }
    }

    /// The pool's name.
    pub fn name(&self) -> &str {
        self.inner.name()
    }

    /// The pool's identity.
    pub fn guid(&self) -> PoolGuid {
        self.inner.guid()
    }

    /// The dataset or snapshot with this full name, the pool's name first.
    pub fn dataset(&self, name: &str) -> Result<Dataset, Error> {
        Ok(Dataset::new(self, self.dsl().dataset(name)?))
    }

    /// All file systems and volumes, parents first, each followed by its snapshots, oldest first.
    pub fn datasets(&self) -> Result<Vec<Dataset>, Error> {
        let mut all = Vec::new();
        for dir in self.dsl().dirs()? {
            let Some(head) = dir.head()? else { continue };
            let snapshots = head.snapshots()?;
            all.push(Dataset::new(self, head));
            all.extend(snapshots.into_iter().map(|snapshot| Dataset::new(self, snapshot)));
        }
        Ok(all)
    }

    /// Loads the key of the encryption root that `dataset` belongs to. `material` is what OpenZFS reads
    /// from a key's location: a passphrase, 64 hex digits, or 32 raw bytes. All datasets with that
    /// root can be read from now on.
    ///
    /// # Errors
    /// If the dataset is not encrypted, the material has the wrong form, or it is not the key.
    pub fn load_key(&self, dataset: &str, material: &[u8]) -> Result<(), Error> {
        let found = self.dsl().dataset(dataset)?;
        let root = encryption_root(found.dir())?
            .ok_or_else(|| Error::NotEncrypted { dataset: dataset.to_owned() })?;
        Ok(self.dsl().keyring().load(&root, material)?)
    }

    /// The vdevs, with what each has done wrong since the pool was opened.
    pub fn vdevs(&self) -> &Arc<VdevTree> {
        self.inner.tree()
    }

    /// The datasets of the pool.
    pub fn dsl(&self) -> &Dsl {
        self.inner.dsl()
    }

    /// The pool's own object set.
    pub fn mos(&self) -> &Arc<ObjSet> {
        self.inner.mos()
    }

    /// Where the blocks come from.
    pub fn store(&self) -> &Arc<Store> {
        self.inner.store()
    }

    /// The pool as the layers below know it.
    pub fn spa(&self) -> &Arc<pool::Pool> {
        &self.inner
    }
}

impl From<Arc<pool::Pool>> for Pool {
    fn from(inner: Arc<pool::Pool>) -> Pool {
        Pool { inner, _user: None }
    }
}
