//! A volume that is open for writing.

use std::sync::Arc;

use dsl::DslError;
use pool::LivePool;
use zpl::HeadVolume;
use zpl::ZplError;

use crate::Error;

/// A volume of a pool, open for writing. Cloning is cheap.
#[derive(Clone)]
pub struct VolumeFile {
    name: Arc<str>,
    pool: Arc<LivePool>,
    head: Arc<HeadVolume>,
}

impl VolumeFile {
    /// Opens the volume with this full name. If the pool was not exported, the intent log is replayed first.
    ///
    /// # Errors
    /// [`Error::NotAVolume`]; [`Error::Dsl`] if it does not exist or cannot be changed: it is a snapshot,
    /// read-only, or encrypted.
    pub fn open(pool: &Arc<LivePool>, name: &str) -> Result<VolumeFile, Error> {
        let dataset = pool.view()?.dsl().dataset(name)?;
        if !dataset.is_volume()? {
            return Err(Error::NotAVolume { dataset: name.to_owned() });
        }
        if dataset.is_snapshot() {
            let why = "a snapshot cannot be changed";
            return Err(DslError::WrongKind { name: name.to_owned(), why }.into());
        }
        super::check_writable(&dataset, name)?;
        pool.release()?;
        let head = pool.heads().open(dataset.id())?;
        let head = HeadVolume::open(&head)?;
        Ok(VolumeFile { name: dataset.name().into(), pool: Arc::clone(pool), head })
    }

    /// Full name of the dataset.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Size in bytes.
    pub fn size(&self) -> u64 {
        self.head.volume.size()
    }

    /// Block size in bytes (`volblocksize`).
    pub fn block_size(&self) -> u64 {
        self.head.volume.block_size()
    }

    fn at(&self, source: ZplError) -> Error {
        Error::Path { dataset: self.name.to_string(), path: Vec::new(), source }
    }

    fn changed(&self) -> Result<(), Error> {
        Ok(self.head.changed().map_err(pool::PoolError::from)?)
    }

    /// Fills `buf` with the bytes from `offset` on.
    ///
    /// # Errors
    /// [`Error::Path`] if the range is not inside the volume, or a block cannot be read.
    pub fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), Error> {
        self.head.volume.read_at(offset, buf).map_err(|source| self.at(source))
    }

    /// Writes all of `data` at `offset`.
    ///
    /// # Errors
    /// [`Error::Path`] if the range is not inside the volume, in which case nothing is written, or if the pool is
    /// full.
    pub fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), Error> {
        self.head.volume.write_at(offset, data).map_err(|source| self.at(source))?;
        self.changed()
    }

    /// Zeros a range and frees its whole blocks.
    ///
    /// # Errors
    /// As [`VolumeFile::write_at`].
    pub fn write_zeroes(&self, offset: u64, len: u64) -> Result<(), Error> {
        self.head.volume.write_zeroes(offset, len).map_err(|source| self.at(source))?;
        self.changed()
    }

    /// Frees the whole blocks in a range, which then read as zeros.
    ///
    /// # Errors
    /// [`Error::Path`] if the range is not inside the volume.
    pub fn trim(&self, offset: u64, len: u64) -> Result<(), Error> {
        self.head.volume.trim(offset, len).map_err(|source| self.at(source))?;
        self.changed()
    }

    /// Changes the size of the volume; bytes beyond it are lost. The change is durable when this returns.
    ///
    /// # Errors
    /// [`Error::Path`] if the size is 0 or not a multiple of the block size, or the pool cannot be written any
    /// more.
    pub fn set_size(&self, size: u64) -> Result<(), Error> {
        self.head.resize(size).map_err(|source| self.at(source))
    }

    /// Makes all writes to this volume durable.
    ///
    /// # Errors
    /// [`Error::Pool`] if the pool cannot be written any more.
    pub fn flush(&self) -> Result<(), Error> {
        Ok(self.head.flush().map_err(pool::PoolError::from)?)
    }

    /// Writes all changes of the pool to disk. Returns the transaction group that contains them.
    ///
    /// # Errors
    /// [`Error::Pool`] if the pool cannot be written any more.
    pub fn sync(&self) -> Result<format::Txg, Error> {
        Ok(self.pool.sync()?)
    }
}

impl std::fmt::Debug for VolumeFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "VolumeFile({})", self.name)
    }
}
