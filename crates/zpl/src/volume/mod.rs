//! Volumes: a range of bytes as a block device (docs/on-disk/25-zvol.md).

pub(crate) mod writer;

use crate::ZplError;
use dmu::zap::Zap;
use dmu::{ObjSet, Object};
use format::ObjType;
use format::names;
use format::objset::ObjsetType;
use std::sync::Arc;

/// Whether a volume can have this size in bytes.
pub(crate) fn is_size(size: u64) -> bool {
    (1..1 << 63).contains(&size)
}

/// Checks that a range is inside a volume of `size` bytes.
pub(crate) fn check_range(objset: u64, size: u64, offset: u64, len: u64) -> Result<(), ZplError> {
    if offset.checked_add(len).is_none_or(|end| end > size) {
        return Err(ZplError::BeyondVolume { objset, offset, len, size });
    }
    Ok(())
}

/// An open volume. Cheap to clone.
#[derive(Clone)]
pub struct Volume {
    data: Object,
    size: u64,
}

impl Volume {
    /// Opens the volume in an object set.
    ///
    /// # Errors
    /// [`ZplError::WrongDataset`] if the object set holds no volume; [`ZplError::Corrupt`] if its size or
    /// block size is impossible.
    pub fn open(objset: &Arc<ObjSet>) -> Result<Volume, ZplError> {
        let number = objset.number();
        if objset.kind() != ObjsetType::Zvol {
            return Err(ZplError::WrongDataset { objset: number, expected: "volume" });
        }
        let corrupt = |object, why| ZplError::Corrupt { objset: number, object, why };
        let size = Volume::size_of(objset)?;
        let data = objset.object(names::volume::DATA)?;
        if data.dnode().obj_type != ObjType::ZVOL {
            return Err(corrupt(names::volume::DATA, "the object of a volume's bytes is of another type"));
        }
        if !data.block_size().is_power_of_two() {
            return Err(corrupt(names::volume::DATA, "a volume's block size is not a power of two"));
        }
        Ok(Volume { data, size })
    }

    /// The size of a volume in bytes. Needs no key: the size is not encrypted.
    pub(crate) fn size_of(objset: &Arc<ObjSet>) -> Result<u64, ZplError> {
        let corrupt =
            |why| ZplError::Corrupt { objset: objset.number(), object: names::volume::PROPERTIES, why };
        let size = Zap::open(&objset.object(names::volume::PROPERTIES)?)?
            .lookup_u64(names::volume::SIZE.as_bytes())?;
        match size {
            Some(size) if is_size(size) => Ok(size),
            Some(_) => Err(corrupt("the size of a volume is impossible")),
            None => Err(corrupt("a volume without a size")),
        }
    }

    /// Size of the volume in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Block size in bytes.
    pub fn block_size(&self) -> u64 {
        self.data.block_size()
    }

    /// The object with the data.
    pub fn object(&self) -> &Object {
        &self.data
    }

    /// Fills `buf` with the bytes from `offset` on.
    ///
    /// # Errors
    /// [`ZplError::BeyondVolume`] unless the whole range is inside the volume; or a block cannot be read.
    pub fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), ZplError> {
        check_range(self.data.objset().number(), self.size, offset, buf.len() as u64)?;
        Ok(self.data.read_at(offset, buf)?)
    }

    /// The first offset at or after `offset` that is in a block; `None` if only a hole follows.
    ///
    /// # Errors
    /// If an indirect block cannot be read.
    pub fn next_data(&self, offset: u64) -> Result<Option<u64>, ZplError> {
        if offset >= self.size {
            return Ok(None);
        }
        Ok(self.data.next_data(offset)?.filter(|data| *data < self.size))
    }

    /// The first offset at or after `offset` that is in a hole; the end counts as one; `None` beyond it.
    ///
    /// # Errors
    /// If an indirect block cannot be read.
    pub fn next_hole(&self, offset: u64) -> Result<Option<u64>, ZplError> {
        if offset >= self.size {
            return Ok(None);
        }
        Ok(Some(self.data.next_hole(offset)?.min(self.size)))
    }
}
