//! The object directory, object 1 of the MOS, and the packed lists it leads to
//! (docs/on-disk/11-labels-config.md, section 3.2).

use crate::error::PoolError;
use dmu::zap::{Zap, ZapEntry};
use dmu::{ObjSet, Object};
use format::nvlist::NvList;
use format::{BlockId, Endian, ObjType, ObjectId};
use std::ops::Range;
use std::sync::Arc;

/// Object number of the directory.
pub(crate) use format::names::directory::OBJECT;
/// Largest packed list in bytes: configurations of thousands of devices have a few MiB. Decoded it may take
/// ten times as much memory.
const PACKED_MAX: u64 = 16 << 20;

/// The object directory of the MOS.
#[derive(Clone)]
pub struct Directory {
    mos: Arc<ObjSet>,
    zap: Zap,
}

impl Directory {
    pub(crate) fn open(mos: &Arc<ObjSet>) -> Result<Directory, PoolError> {
        Ok(Directory { mos: mos.clone(), zap: Zap::open(&mos.object(OBJECT)?)? })
    }

    /// The entry with this name.
    ///
    /// # Errors
    /// [`PoolError::Dmu`] if the directory cannot be read, [`PoolError::Directory`] if the entry is
    /// malformed.
    pub(crate) fn entry(&self, name: &str) -> Result<Option<ZapEntry>, PoolError> {
        Ok(self.zap.lookup(name.as_bytes())?)
    }

    /// All entries, in the order of the ZAP.
    pub fn entries(&self) -> impl Iterator<Item = Result<ZapEntry, PoolError>> {
        self.zap.entries().map(|entry| entry.map_err(PoolError::from))
    }

    /// The words of an entry; empty if there is none.
    ///
    /// # Errors
    /// [`PoolError::Dmu`] if the directory cannot be read, [`PoolError::Directory`] if the entry is
    /// malformed.
    pub fn words(&self, name: &str) -> Result<Vec<u64>, PoolError> {
        match self.entry(name)? {
            None => Ok(Vec::new()),
            Some(entry) if entry.int_size == 8 => Ok(entry.u64s()),
            Some(_) => Err(PoolError::Directory { entry: name.to_owned() }),
        }
    }

    /// The number in an entry; `None`: there is no such entry.
    ///
    /// # Errors
    /// [`PoolError::Dmu`] if the directory cannot be read, [`PoolError::Directory`] if the entry is
    /// malformed.
    pub fn number(&self, name: &str) -> Result<Option<u64>, PoolError> {
        Ok(self.words(name)?.first().copied())
    }

    /// An object number; `None` if there is no entry or it is 0.
    ///
    /// # Errors
    /// [`PoolError::Dmu`] if the directory cannot be read, [`PoolError::Directory`] if the entry is
    /// malformed.
    pub fn object(&self, name: &str) -> Result<Option<ObjectId>, PoolError> {
        Ok(self.number(name)?.filter(|id| *id != 0).map(ObjectId))
    }

    /// The object number in an entry that every pool has.
    ///
    /// # Errors
    /// [`PoolError::Directory`] if there is no such entry or it is no number, [`PoolError::Dmu`] if the
    /// directory cannot be read.
    pub(crate) fn required(&self, name: &str) -> Result<ObjectId, PoolError> {
        self.object(name)?.ok_or_else(|| PoolError::Directory { entry: name.to_owned() })
    }

    /// The ZAP that an entry names.
    ///
    /// # Errors
    /// [`PoolError::Dmu`] if the directory cannot be read, [`PoolError::Directory`] if the entry is
    /// malformed.
    pub fn zap(&self, name: &str) -> Result<Option<(ObjectId, Zap)>, PoolError> {
        match self.object(name)? {
            Some(id) => Ok(Some((id, Zap::open(&self.mos.object(id)?)?))),
            None => Ok(None),
        }
    }

    /// The packed list that an entry names.
    pub(crate) fn packed_list(&self, name: &str) -> Result<Option<NvList>, PoolError> {
        self.object(name)?.map(|id| packed_list(&self.mos, id)).transpose()
    }
}

/// Decodes the nvlist in an object. The bonus holds its length in bytes.
pub(crate) fn packed_list(mos: &Arc<ObjSet>, id: ObjectId) -> Result<NvList, PoolError> {
    let object = mos.object(id)?;
    if object.dnode().bonus_type != ObjType::PACKED_NVLIST_SIZE {
        return Err(PoolError::Corrupt { object: id, why: "not a packed list" });
    }
    let len = object.order().u64("packed list", object.bonus(), 0).map_err(PoolError::decode(id))?;
    if len > PACKED_MAX || len > object.logical_end() {
        return Err(PoolError::Corrupt { object: id, why: "a packed list is longer than its object" });
    }
    let (packed, _) = read_whole(&object, 0..len)?;
    NvList::decode(&packed).map_err(PoolError::decode(id))
}

/// Reads a range of an object without holes, and its byte order. A hole is an error, and so is a block that
/// occurs twice, so that memory grows only with the stored bytes.
pub(crate) fn read_whole(object: &Object, range: Range<u64>) -> Result<(Vec<u8>, Endian), PoolError> {
    let (mut bytes, mut order) = (Vec::new(), object.order());
    let size = object.block_size().max(1);
    let mut at = range.start;
    let mut blocks = object.blocks_from(BlockId(at / size));
    while at < range.end {
        let hole = PoolError::Corrupt { object: object.id(), why: "a hole where data must be" };
        let block = blocks.next_block()?.ok_or(hole)?;
        let within = at % size;
        let len = (size - within).min(range.end - at);
        let (from, to) = (usize::try_from(within).ok(), usize::try_from(within + len).ok());
        let piece = from.zip(to).and_then(|(from, to)| block.bytes().get(from..to));
        let short = PoolError::Corrupt { object: object.id(), why: "a block is shorter than it must be" };
        bytes.extend_from_slice(piece.ok_or(short)?);
        order = block.order();
        at += len;
    }
    Ok((bytes, order))
}
