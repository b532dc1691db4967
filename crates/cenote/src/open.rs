//! Finding and opening a pool.

use crate::{Dataset, Error};
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

/// Default of [`OpenOptions::cache_bytes`].
const DEFAULT_CACHE: usize = 128 << 20;

/// Places to search for a pool, and options of opening it.
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
    /// The defaults: all block devices of the machine are searched, and the newest state is opened.
    pub fn new() -> OpenOptions {
        let pool = pool::OpenOptions { cache_bytes: DEFAULT_CACHE, ..pool::OpenOptions::default() };
        OpenOptions { search: Vec::new(), access: Access::Auto, devices: Devices::system(), pool }
    }

    /// Adds a directory, device or image file to search. The block devices of the machine are searched only if no
    /// path is added.
    #[must_use]
    pub fn search(mut self, path: impl Into<PathBuf>) -> OpenOptions {
        self.search.push(path.into());
        self
    }

    /// Bypasses the kernel's page cache for image files, as always for block devices. This suits a program that
    /// reads much of a pool once; many short commands benefit from the page cache, which is the default.
    #[must_use]
    pub fn direct(mut self, yes: bool) -> OpenOptions {
        self.access = if yes { Access::Direct } else { Access::Auto };
        self
    }

    /// Takes devices from this source instead of the machine, for example from memory. The paths to search
    /// are then names of that source.
    #[must_use]
    pub fn devices(mut self, devices: Devices) -> OpenOptions {
        self.devices = devices;
        self
    }

    /// Upper bound of the block cache in bytes; the default is 128 MiB. A pool that is open for writing takes
    /// at most a share of the memory that the process may use.
    #[must_use]
    pub fn cache_bytes(mut self, bytes: usize) -> OpenOptions {
        self.pool.cache_bytes = bytes;
        self
    }

    /// Opens the newest state whose transaction group is not after `txg`.
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

    /// Name of the pool while it is open, in place of the name in its labels.
    #[must_use]
    pub fn known_as(mut self, name: impl Into<String>) -> OpenOptions {
        self.pool.name = Some(name.into());
        self
    }

    /// Opens the pool even if log devices are missing. Writes that were acknowledged and not yet part of a
    /// transaction group are then lost.
    #[must_use]
    pub fn allow_missing_logs(mut self, yes: bool) -> OpenOptions {
        self.pool.allow_missing_logs = yes;
        self
    }

    /// Opens the pool even if top-level devices are missing. Blocks with all copies on them cannot be read.
    #[must_use]
    pub fn allow_missing_devices(mut self, yes: bool) -> OpenOptions {
        self.pool.allow_missing_tops = yes;
        self
    }

    /// Opens the pool even if its labels say that it was destroyed.
    #[must_use]
    pub fn destroyed(mut self, yes: bool) -> OpenOptions {
        self.pool.destroyed = yes;
        self
    }

    /// The devices of all pools in the places to search.
    pub(crate) fn found(&self) -> Found {
        let env = Env::system().with_devices(self.devices.clone());
        Search { paths: self.search.clone(), access: self.access, env }.run()
    }
}

/// An open pool. Read-only; closed when dropped. Cloning is cheap.
#[derive(Clone)]
pub struct Pool {
    inner: Arc<pool::Pool>,
    /// Held while this handle exists; see [`Pool::used_by`].
    _user: Option<Arc<dyn Send + Sync>>,
}

impl Pool {
    /// Finds the pool with this name, or with this guid if `name` is a number, and opens it.
    ///
    /// # Errors
    /// [`Error::Search`] if no device of the pool was found and some devices could not be read;
    /// [`Error::Pool`] if there is no such pool, several have that name, or it cannot be opened.
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
            // The pool may be on a device that could not be examined.
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

    /// The same pool, which holds `user` until this handle and all its clones are dropped.
    #[must_use]
    pub fn used_by(self, user: Option<Arc<dyn Send + Sync>>) -> Pool {
        Pool { _user: user, ..self }
    }

    /// Name of the pool, without dataset components.
    pub fn name(&self) -> &str {
        self.inner.name()
    }

    /// Guid of the pool, which identifies it independently of its name.
    pub fn guid(&self) -> PoolGuid {
        self.inner.guid()
    }

    /// The dataset or snapshot with this full name, the pool's name first.
    ///
    /// # Errors
    /// [`Error::Dsl`] if there is none, or the path to it cannot be read.
    pub fn dataset(&self, name: &str) -> Result<Dataset, Error> {
        Ok(Dataset::new(self, self.dsl().dataset(name)?))
    }

    /// All file systems and volumes, parents first, each followed by its snapshots, oldest first.
    ///
    /// # Errors
    /// [`Error::Dsl`] if a dataset or a list of snapshots cannot be read.
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

    /// The tree of vdevs, with the errors of each since the pool was opened.
    pub(crate) fn vdevs(&self) -> &Arc<VdevTree> {
        self.inner.tree()
    }

    /// The datasets of the pool, as the engine knows them.
    pub fn dsl(&self) -> &Dsl {
        self.inner.dsl()
    }

    /// The meta object set.
    pub(crate) fn mos(&self) -> &Arc<ObjSet> {
        self.inner.mos()
    }

    /// The store that blocks are read from.
    pub(crate) fn store(&self) -> &Arc<Store> {
        self.inner.store()
    }

    /// The pool as the engine knows it. This type is not part of the stable interface.
    pub fn spa(&self) -> &Arc<pool::Pool> {
        &self.inner
    }
}

impl From<Arc<pool::Pool>> for Pool {
    fn from(inner: Arc<pool::Pool>) -> Pool {
        Pool { inner, _user: None }
    }
}
