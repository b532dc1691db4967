//! The dataset layer: directories, file systems, volumes, snapshots, clones, bookmarks, holds,
//! properties, quotas, delegation and encryption keys, as the MOS holds them.
//!
//! Called by the pool, which opens the MOS, and by everything that wants a dataset by its name.
//! Opens object sets through `dmu`, but knows nothing of what is in them, except for the four
//! properties that a file system keeps in its own objects ([`prop`]).
//!
//! # What always holds
//! - Nothing is read before it is asked for: opening a [`Dsl`] reads no object.
//! - Every reference is checked where it is followed: the type and size of the bonus, the parent
//!   that a child names, the directory that a dataset names.
//! - Every chain is bounded: directories by the length of a name, snapshots by a count that only a
//!   loop can reach.
//! - Names from disk that could be mistaken for path parts or delimiters are errors.
//!
//! Source: `docs/on-disk/22-mos-dsl.md`, `docs/on-disk/31-encryption.md`. Tests: beside the code
//! and, on real pools, in `crates/pool/tests`.
#![forbid(unsafe_code)]

pub mod bookmark;
pub mod bpobj;
pub mod dataset;
pub mod deadlist;
pub mod delegation;
pub mod dir;
mod error;
pub mod keys;
mod mos;
pub mod name;
pub mod prop;
pub mod resume;
pub mod space;
pub mod write;

pub use bookmark::Bookmark;
pub use dataset::Dataset;
pub use dir::Dir;
pub use error::DslError;
pub use space::PoolSpace;

use dmu::ObjSet;
use format::ObjectId;
use keys::Keyring;
use name::{Name, Tail};
use std::sync::{Arc, OnceLock};

/// The datasets of a pool. Cloning shares everything, the loaded keys too.
#[derive(Clone)]
pub struct Dsl(Arc<Shared>);

struct Shared {
    mos: Arc<ObjSet>,
    root: ObjectId,
    pool: String,
    keyring: Keyring,
    space: OnceLock<Option<PoolSpace>>,
    measure: OnceLock<Measure>,
}

/// Finds out how much room the root directory has; `None`: it cannot be told.
type Measure = Box<dyn Fn() -> Option<PoolSpace> + Send + Sync>;

impl Dsl {
    /// The datasets below the directory `root_dir` of this MOS. `pool` is the name that full names
    /// begin with. Reads nothing.
    pub fn open(mos: Arc<ObjSet>, root_dir: ObjectId, pool: &str) -> Dsl {
        let (pool, keyring) = (pool.to_owned(), Keyring::default());
        let (space, measure) = (OnceLock::new(), OnceLock::new());
        Dsl(Arc::new(Shared { mos, root: root_dir, pool, keyring, space, measure }))
    }

    /// The meta object set.
    pub fn mos(&self) -> &Arc<ObjSet> {
        &self.0.mos
    }

    /// Name of the pool.
    pub fn pool_name(&self) -> &str {
        &self.0.pool
    }

    /// The loaded keys.
    pub fn keyring(&self) -> &Keyring {
        &self.0.keyring
    }

    /// Tells, once, how to find out how large the pool is; it is asked for when somebody wants to
    /// know what is available. Without it only quotas limit that.
    pub fn set_pool_space(&self, measure: impl Fn() -> Option<PoolSpace> + Send + Sync + 'static) {
        let _ = self.0.measure.set(Box::new(measure));
    }

    pub(crate) fn pool_space(&self) -> Option<PoolSpace> {
        *self.0.space.get_or_init(|| self.0.measure.get().and_then(|measure| measure()))
    }

    /// The root directory.
    pub fn root(&self) -> Result<Dir, DslError> {
        Dir::root(self, self.0.root)
    }

    /// The directory with this full name (`pool/a/b`).
    pub fn dir(&self, name: &str) -> Result<Dir, DslError> {
        let Name { dir, tail: Tail::None } = Name::parse(name)? else {
            return Err(DslError::BadName { name: name.to_owned(), why: "not a file system or volume" });
        };
        let mut components = dir.split('/');
        if components.next() != Some(self.pool_name()) {
            return Err(DslError::not_found(name));
        }
        let mut at = self.root()?;
        for component in components {
            at = at.child(component)?.ok_or_else(|| DslError::not_found(name))?;
        }
        Ok(at)
    }

    /// The directory in this object, wherever in the tree it is.
    pub fn dir_by_object(&self, id: ObjectId) -> Result<Dir, DslError> {
        Dir::by_object(self, self.0.root, id)
    }

    /// The file system, volume (`pool/a`) or snapshot (`pool/a@s`) with this full name.
    pub fn dataset(&self, name: &str) -> Result<Dataset, DslError> {
        let parsed = Name::parse(name)?;
        let head = self.dir(parsed.dir)?.head()?.ok_or_else(|| DslError::not_found(name))?;
        match parsed.tail {
            Tail::None => Ok(head),
            Tail::Snapshot(snapshot) => head.snapshot(snapshot)?.ok_or_else(|| DslError::not_found(name)),
            Tail::Bookmark(_) => Err(DslError::BadName {
                name: name.to_owned(),
                why: "bookmark delimiter '#' is not expected here",
            }),
        }
    }

    /// The dataset in this object, wherever in the tree it is.
    pub fn dataset_by_object(&self, id: ObjectId) -> Result<Dataset, DslError> {
        Dataset::by_object(self, id)
    }

    /// The bookmark with this full name (`pool/a#m`).
    pub fn bookmark(&self, name: &str) -> Result<Bookmark, DslError> {
        let Name { dir, tail: Tail::Bookmark(mark) } = Name::parse(name)? else {
            return Err(DslError::BadName { name: name.to_owned(), why: "not a bookmark" });
        };
        let head = self.dir(dir)?.head()?.ok_or_else(|| DslError::not_found(name))?;
        head.bookmark(mark)?.ok_or_else(|| DslError::not_found(name))
    }

    /// Every directory that has a name for users, depth first, children by name.
    pub fn dirs(&self) -> Result<Vec<Dir>, DslError> {
        let mut all = Vec::new();
        let mut stack = vec![self.root()?];
        while let Some(dir) = stack.pop() {
            let mut children = dir.children()?;
            children.reverse();
            stack.append(&mut children);
            all.push(dir);
        }
        Ok(all)
    }
}

impl std::fmt::Debug for Dsl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Dsl({}, root {})", self.0.pool, self.0.root)
    }
}
