//! A dataset of an open pool.

use crate::{Error, Pool};
use dmu::ObjSet;
pub use dsl::dataset::DatasetKind;
use dsl::keys::encryption_root;
use format::objset::ObjsetType;
use std::sync::Arc;
use zpl::{Filesystem, Node, Volume};

/// A file system, volume or snapshot of an open pool. Cloning is cheap.
#[derive(Clone)]
pub struct Dataset {
    pool: Pool,
    inner: dsl::Dataset,
}

impl Dataset {
    pub(crate) fn new(pool: &Pool, inner: dsl::Dataset) -> Dataset {
        Dataset { pool: pool.clone(), inner }
    }

    /// Full name, the pool's name first.
    pub fn name(&self) -> &str {
        self.inner.name()
    }

    /// Kind of the dataset: a file system, a volume or a snapshot.
    ///
    /// # Errors
    /// [`Error::Dsl`] if the dataset cannot be read.
    pub fn kind(&self) -> Result<DatasetKind, Error> {
        Ok(self.inner.kind()?)
    }

    /// The pool of the dataset.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// The dataset as the engine knows it: properties, space, snapshots, clones, holds. This type is not part
    /// of the stable interface.
    pub fn dsl(&self) -> &dsl::Dataset {
        &self.inner
    }

    /// The object set. If the dataset is encrypted and its key is not loaded, only unencrypted parts can be
    /// read.
    ///
    /// # Errors
    /// [`Error::Dsl`] if it cannot be opened.
    pub fn objset(&self) -> Result<Arc<ObjSet>, Error> {
        Ok(self.inner.open_objset()?)
    }

    /// The object set, readable as a whole.
    fn unlocked_objset(&self) -> Result<Arc<ObjSet>, Error> {
        let objset = self.objset()?;
        if objset.is_locked() {
            let root = encryption_root(self.inner.dir())?;
            let root = root.map_or_else(String::new, |dir| dir.name().to_owned());
            return Err(Error::Locked { dataset: self.name().to_owned(), root });
        }
        Ok(objset)
    }

    /// The files of a file system or of a snapshot of one.
    ///
    /// # Errors
    /// [`Error::NotAFilesystem`], [`Error::Locked`], [`Error::Dsl`] or [`Error::Zpl`] if it cannot be read.
    pub fn filesystem(&self) -> Result<DatasetFiles, Error> {
        let objset = self.unlocked_objset()?;
        if objset.kind() == ObjsetType::Zvol {
            return Err(Error::NotAFilesystem { dataset: self.name().to_owned() });
        }
        Ok(DatasetFiles {
            name: self.name().to_owned(),
            fs: Filesystem::open(objset)?,
            _pool: self.pool.clone(),
        })
    }

    /// The value in force of a property: a native one (`used`, `compressratio`), `written@SNAPSHOT`, or a
    /// user property (`module:name`), as `zfs get -p` prints it, with exact numbers. `None`: the dataset has
    /// no value.
    ///
    /// # Errors
    /// [`Error::Dsl`]: there is no such property, or it cannot be read.
    pub fn property(&self, name: &str) -> Result<Option<String>, Error> {
        let value = dsl::prop::get(self.dsl(), name)?;
        Ok(value.map(|value| dsl::prop::exact(name, &value.raw)))
    }

    /// The data of a volume or of a snapshot of one.
    ///
    /// # Errors
    /// [`Error::NotAVolume`], [`Error::Locked`], [`Error::Dsl`] or [`Error::Zpl`] if it cannot be read.
    pub fn volume(&self) -> Result<Volume, Error> {
        let objset = self.unlocked_objset()?;
        if objset.kind() != ObjsetType::Zvol {
            return Err(Error::NotAVolume { dataset: self.name().to_owned() });
        }
        Ok(Volume::open(&objset)?)
    }
}

/// The files of a file system or of a snapshot of one. Dereferences to the [`Filesystem`].
#[derive(Clone)]
pub struct DatasetFiles {
    name: String,
    fs: Arc<Filesystem>,
    /// Keeps the pool open, and the blocks of this state allocated.
    _pool: Pool,
}

impl DatasetFiles {
    /// The file at `path` from the root of the file system; symbolic links are not followed.
    ///
    /// # Errors
    /// [`Error::NoSuchPath`]; [`Error::Zpl`] if a directory on the way cannot be read.
    pub fn open(&self, path: &[u8]) -> Result<Node, Error> {
        let found = self.fs.resolve(path)?;
        found.ok_or_else(|| Error::NoSuchPath { dataset: self.name.clone(), path: path.to_vec() })
    }

    /// The file system, as a shared reference.
    pub fn filesystem(&self) -> &Arc<Filesystem> {
        &self.fs
    }
}

impl std::ops::Deref for DatasetFiles {
    type Target = Arc<Filesystem>;

    fn deref(&self) -> &Arc<Filesystem> {
        &self.fs
    }
}
