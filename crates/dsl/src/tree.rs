//! The dataset tree of a pool: the entry point of all readers.
//!
//! [`Dsl`] knows the root directory, the loaded keys, and the size of the pool. Its look-ups by name and by
//! object number are in the modules of their results: [`crate::dir`], [`crate::dataset`],
//! [`crate::bookmark`].

use crate::keyring::Keyring;
use dmu::ObjSet;
use format::ObjectId;
use std::sync::{Arc, OnceLock};

/// Space of the root directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolSpace {
    /// Deflated bytes of the pool, minus those that a checkpoint and deferred frees hold.
    pub size: u64,
    /// Part of `size` that stays reserved as slop space.
    pub slop: u64,
}

/// The datasets of a pool. Clones share all state, the loaded keys included.
#[derive(Clone)]
pub struct Dsl(Arc<Shared>);

struct Shared {
    mos: Arc<ObjSet>,
    root: ObjectId,
    pool: String,
    keyring: Arc<Keyring>,
    space: OnceLock<Option<PoolSpace>>,
    measure: OnceLock<Measure>,
}

/// Closure that computes the space of the root directory; `None`: it is unknown.
type Measure = Box<dyn Fn() -> Option<PoolSpace> + Send + Sync>;

impl Dsl {
    /// Opens the datasets below the directory `root_dir` of this MOS. `pool` is the first component of full
    /// names. Reads nothing.
    pub fn open(mos: Arc<ObjSet>, root_dir: ObjectId, pool: &str) -> Dsl {
        Dsl::with_keyring(mos, root_dir, pool, Arc::default())
    }

    /// Like [`Dsl::open`], with the keys that are loaded in a pool that is open for writing: each of its states is a
    /// view of its own, and the keys are those of the pool.
    pub fn with_keyring(mos: Arc<ObjSet>, root_dir: ObjectId, pool: &str, keyring: Arc<Keyring>) -> Dsl {
        let pool = pool.to_owned();
        let (space, measure) = (OnceLock::new(), OnceLock::new());
        Dsl(Arc::new(Shared { mos, root: root_dir, pool, keyring, space, measure }))
    }

    /// The meta object set of the pool.
    pub fn mos(&self) -> &Arc<ObjSet> {
        &self.0.mos
    }

    /// Name of the pool, the first component of all full names.
    pub(crate) fn pool_name(&self) -> &str {
        &self.0.pool
    }

    /// The wrapping and data keys that are loaded.
    pub fn keyring(&self) -> &Keyring {
        &self.0.keyring
    }

    /// Sets the closure that computes the size of the pool, once; it is called when available space is first
    /// queried. Without it only quotas limit the available space.
    pub fn set_pool_space(&self, measure: impl Fn() -> Option<PoolSpace> + Send + Sync + 'static) {
        let _ = self.0.measure.set(Box::new(measure));
    }

    /// Number of the object of the root directory.
    pub(crate) fn root_id(&self) -> ObjectId {
        self.0.root
    }

    pub(crate) fn pool_space(&self) -> Option<PoolSpace> {
        *self.0.space.get_or_init(|| self.0.measure.get().and_then(|measure| measure()))
    }
}

impl std::fmt::Debug for Dsl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Dsl({}, root {})", self.0.pool, self.0.root)
    }
}
