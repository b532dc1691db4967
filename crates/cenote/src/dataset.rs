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

    /// What it is.
    pub fn kind(&self) -> Result<DatasetKind, Error> {
        Ok(self.inner.kind()?)
    }

    /// The pool it belongs to.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// The dataset as the layers below know it: properties, space, snapshots, clones, holds.
    pub fn dsl(&self) -> &dsl::Dataset {
        &self.inner
    }

    /// Its objects. Of an encrypted dataset whose key is not loaded, only what is not encrypted.
    pub fn objset(&self) -> Result<Arc<ObjSet>, Error> {
        Ok(self.inner.open_objset()?)
    }

    /// Its objects, all of them readable.
    fn unlocked_objset(&self) -> Result<Arc<ObjSet>, Error> {
        let objset = self.objset()?;
        if objset.is_locked() {
            let root = encryption_root(self.inner.dir())?;
            let root = root.map_or_else(String::new, |dir| dir.name().to_owned());
            return Err(Error::Locked { dataset: self.name().to_owned(), root });
        }
        Ok(objset)
    }

    /// The file system.
    ///
    /// # Errors
    /// [`Error::NotAFilesystem`], [`Error::Locked`], or why it cannot be read.
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

    /// The value of a property in force: native (`used`, `compressratio`), `written@SNAPSHOT`, or a user's
    /// (`module:name`), in the form that `zfs get -p` prints: numbers in full. `None`: it has none here.
    ///
    /// # Errors
    /// [`dsl::DslError::NoProperty`], or it cannot be read.
    pub fn property(&self, name: &str) -> Result<Option<String>, Error> {
        let value = dsl::prop::get(self.dsl(), name)?;
        Ok(value.map(|value| dsl::prop::exact(name, &value.raw)))
    }

    /// The volume.
    ///
    /// # Errors
    /// [`Error::NotAVolume`], [`Error::Locked`], or why it cannot be read.
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
    /// Is not closed, nor are its blocks used again, meanwhile.
    _pool: Pool,
}

impl DatasetFiles {
    /// The file at `path` from the root of the file system; symbolic links are not followed.
    ///
    /// # Errors
    /// [`Error::NoSuchPath`], or why a directory on the way cannot be read.
    pub fn open(&self, path: &[u8]) -> Result<Node, Error> {
        let found = self.fs.resolve(path)?;
        found.ok_or_else(|| Error::NoSuchPath { dataset: self.name.clone(), path: path.to_vec() })
    }

    /// The file system, to keep.
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
