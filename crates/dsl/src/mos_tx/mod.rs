//! The MOS in syncing context, and the operations on it that all of this crate uses.
//!
//! # What always holds
//! - A structure is read where it is used and written back whole, little-endian: no decoded copy is kept
//!   across a call that may change it.

mod features;

use crate::block_space::{Space, of_pointer};
use crate::error::DslError;
use crate::features::FeatureCounts;
use crate::mos;
use dmu::ObjSet;
use dmu::zap::ZapMut;
use dmu::{LiveObject, LiveSet, NewObject, SyncTx};
use format::dsl::{DatasetPhys, DirPhys};
use format::names;
use format::{BlockId, BlockPtr, Endian, ObjType, ObjectId, Txg};
use std::sync::Arc;
use zio::{AllocTx, Env, Zio};

/// The MOS in the syncing txg. Cheap to copy; all functions that change the MOS take one.
#[derive(Clone, Copy)]
pub struct MosTx<'a> {
    /// The pool's own object set.
    pub mos: &'a Arc<LiveSet>,
    /// The transaction group that is being written.
    pub tx: &'a SyncTx,
    /// Reference counts of the features of the pool.
    pub features: &'a FeatureCounts,
    /// Clock and random numbers of the process.
    pub env: &'a Env,
}

impl<'a> MosTx<'a> {
    /// The transaction group that is being written.
    pub fn txg(&self) -> Txg {
        self.tx.txg()
    }

    /// The block layer of the pool.
    pub(crate) fn zio(&self) -> &'a Arc<Zio> {
        self.mos.store().zio()
    }

    /// A reading handle of the newest state.
    pub fn view(&self) -> Arc<ObjSet> {
        self.mos.view()
    }

    // ---- objects ----------------------------------------------------------------------------

    /// Opens an object.
    ///
    /// # Errors
    /// If there is no such object, or it cannot be read.
    pub fn object(&self, id: ObjectId) -> Result<LiveObject, DslError> {
        Ok(self.mos.object(id)?)
    }

    /// Opens an object whose bonus must be of this type.
    ///
    /// # Errors
    /// [`DslError::WrongType`]; or there is no such object.
    pub fn object_with_bonus(
        &self,
        id: ObjectId,
        bonus: ObjType,
        expected: &'static str,
    ) -> Result<LiveObject, DslError> {
        let object = self.object(id)?;
        let found = object.read().dnode().bonus_type;
        if found == bonus { Ok(object) } else { Err(DslError::WrongType { object: id, expected, found }) }
    }

    /// Creates an object.
    ///
    /// # Errors
    /// If the object cannot be created.
    pub fn allocate(&self, new: &NewObject) -> Result<LiveObject, DslError> {
        Ok(self.mos.allocate(new, self.tx)?)
    }

    /// Frees an object with all its blocks.
    ///
    /// # Errors
    /// If an object of the MOS cannot be read or changed: the txg must not end then.
    pub fn free(&self, id: ObjectId) -> Result<(), DslError> {
        Ok(self.mos.free(id, self.tx)?)
    }

    /// Opens the ZAP in an object for writing.
    ///
    /// # Errors
    /// If the object is no ZAP, or cannot be read.
    pub fn zap(&self, id: ObjectId) -> Result<ZapMut<'a>, DslError> {
        Ok(self.object(id)?.zap(self.tx)?)
    }

    /// Creates an empty ZAP.
    ///
    /// # Errors
    /// If the object cannot be created.
    pub(crate) fn create_zap(
        &self,
        obj_type: ObjType,
        bonus_type: ObjType,
        bonus: Vec<u8>,
        normalization: u64,
    ) -> Result<ObjectId, DslError> {
        let object = self.allocate(&NewObject::of(obj_type).with_bonus(bonus_type, bonus))?;
        object.create_zap(self.tx, self.env.random(), normalization)?;
        Ok(object.id())
    }

    /// Creates an empty ZAP without a bonus.
    ///
    /// # Errors
    /// If the object cannot be created.
    pub fn create_plain_zap(&self, obj_type: ObjType) -> Result<ObjectId, DslError> {
        self.create_zap(obj_type, ObjType::NONE, Vec::new(), 0)
    }

    /// Writes `items`, packed little-endian words, at the byte `offset` of an object that is an array of
    /// words. First byte-swaps a block that holds words of the other byte order.
    pub(crate) fn write_words(&self, object: &LiveObject, offset: u64, items: &[u8]) -> Result<(), DslError> {
        let size = object.block_size();
        let last = (offset + items.len() as u64).saturating_sub(1) / size;
        for blkid in (offset / size)..=last {
            self.make_little(object, BlockId(blkid))?;
        }
        Ok(object.write_at(offset, items, self.tx)?)
    }

    fn make_little(&self, object: &LiveObject, blkid: BlockId) -> Result<(), DslError> {
        let Some(block) = object.block(blkid)? else { return Ok(()) };
        if block.order() == Endian::Big {
            let turned = Endian::Big.all_words(block.bytes()).flat_map(u64::to_le_bytes).collect();
            object.put_block(blkid, turned, self.tx)?;
        }
        Ok(())
    }

    // ---- the object directory ---------------------------------------------------------------

    /// The object number under this name in the object directory; `None`: there is no such entry.
    ///
    /// # Errors
    /// If the object directory cannot be read, or the value is not one number.
    pub fn entry(&self, name: &str) -> Result<Option<ObjectId>, DslError> {
        match self.zap(names::directory::OBJECT)?.lookup(name.as_bytes())? {
            Some(entry) => {
                Ok(Some(mos::number(names::directory::OBJECT, &entry)?).filter(|id| *id != 0).map(ObjectId))
            }
            None => Ok(None),
        }
    }

    /// Stores a number under a name in the object directory.
    ///
    /// # Errors
    /// If an object of the MOS cannot be read or changed: the txg must not end then.
    pub fn set_entry(&self, name: &str, value: u64) -> Result<(), DslError> {
        Ok(self.zap(names::directory::OBJECT)?.upsert(name.as_bytes(), value)?)
    }

    /// Removes a name from the object directory. Returns false if there was none.
    ///
    /// # Errors
    /// If an object of the MOS cannot be read or changed: the txg must not end then.
    pub fn remove_entry(&self, name: &str) -> Result<bool, DslError> {
        Ok(self.zap(names::directory::OBJECT)?.remove_if_present(name.as_bytes())?)
    }

    // ---- blocks -----------------------------------------------------------------------------

    /// The charge of a block.
    pub fn space_of(&self, bp: &BlockPtr) -> Space {
        of_pointer(self.zio(), self.features.deflates(), bp)
    }

    // ---- directories and datasets -----------------------------------------------------------

    /// Decodes the bonus of a directory.
    pub(crate) fn dir(&self, id: ObjectId) -> Result<DirPhys, DslError> {
        Ok(self.open_dir(id)?.1)
    }

    fn open_dir(&self, id: ObjectId) -> Result<(LiveObject, DirPhys), DslError> {
        let object = self.object_with_bonus(id, ObjType::DSL_DIR, "DSL directory")?;
        let phys = mos::dir_phys(&object)?;
        Ok((object, phys))
    }

    /// Changes the bonus of a directory.
    pub(crate) fn change_dir<R>(
        &self,
        id: ObjectId,
        change: impl FnOnce(&mut DirPhys) -> R,
    ) -> Result<R, DslError> {
        let (object, mut phys) = self.open_dir(id)?;
        let result = change(&mut phys);
        object.change_bonus(self.tx, |bonus| phys.encode_into(bonus));
        Ok(result)
    }

    /// Decodes the bonus of a dataset.
    ///
    /// # Errors
    /// [`DslError::WrongType`] if the object is no dataset; or the object cannot be read.
    pub(crate) fn dataset(&self, id: ObjectId) -> Result<DatasetPhys, DslError> {
        Ok(self.open_dataset(id)?.1)
    }

    fn open_dataset(&self, id: ObjectId) -> Result<(LiveObject, DatasetPhys), DslError> {
        let object = self.object_with_bonus(id, ObjType::DSL_DATASET, "DSL dataset")?;
        let phys = mos::dataset_phys(&object)?;
        Ok((object, phys))
    }

    /// Changes the bonus of a dataset.
    pub(crate) fn change_dataset<R>(
        &self,
        id: ObjectId,
        change: impl FnOnce(&mut DatasetPhys) -> R,
    ) -> Result<R, DslError> {
        let (object, mut phys) = self.open_dataset(id)?;
        let result = change(&mut phys);
        object.change_bonus(self.tx, |bonus| phys.encode_into(bonus));
        Ok(result)
    }

    // ---- sets of numbers --------------------------------------------------------------------

    /// Adds a member to a set of numbers, which is created if there is none. Returns the set. Has no effect
    /// if it is a member already.
    pub(crate) fn set_insert(
        &self,
        set: Option<ObjectId>,
        obj_type: ObjType,
        member: u64,
    ) -> Result<ObjectId, DslError> {
        let id = match set {
            Some(id) => id,
            None => self.create_plain_zap(obj_type)?,
        };
        let zap = self.zap(id)?;
        if !zap.contains_int(member)? {
            zap.insert_int(member)?;
        }
        Ok(id)
    }

    /// Removes a member from a set of numbers.
    pub(crate) fn set_remove(&self, set: ObjectId, member: u64) -> Result<(), DslError> {
        Ok(self.zap(set)?.remove_int(member)?)
    }

    // ---- the tree of directories ------------------------------------------------------------

    /// The directory at the root of the tree.
    pub(crate) fn root_dir(&self) -> Result<ObjectId, DslError> {
        self.entry(names::directory::ROOT_DATASET)?
            .ok_or(DslError::NoSpecial { name: names::directory::ROOT_DATASET })
    }

    /// The child of a directory with this name, hidden ones included.
    pub(crate) fn child_dir(&self, parent: ObjectId, name: &str) -> Result<Option<ObjectId>, DslError> {
        let Some(map) = self.dir(parent)?.children else { return Ok(None) };
        match self.zap(map)?.lookup(name.as_bytes())? {
            Some(entry) => Ok(Some(ObjectId(mos::number(map, &entry)?))),
            None => Ok(None),
        }
    }

    fn special_dir(&self, name: &'static str) -> Result<ObjectId, DslError> {
        self.child_dir(self.root_dir()?, name)?.ok_or(DslError::NoSpecial { name })
    }

    /// The directory `$FREE`, to which waiting blocks are charged.
    pub(crate) fn free_dir(&self) -> Result<ObjectId, DslError> {
        self.special_dir(names::hidden::FREE)
    }

    /// The directory `$MOS`, to which the MOS is charged.
    pub(crate) fn mos_dir(&self) -> Result<ObjectId, DslError> {
        self.special_dir(names::hidden::MOS)
    }

    /// The directory `$ORIGIN`, whose snapshot all datasets descend from. Pools before version 11 have none.
    pub(crate) fn origin_dir(&self) -> Result<Option<ObjectId>, DslError> {
        self.child_dir(self.root_dir()?, names::hidden::ORIGIN)
    }

    /// The empty snapshot that all file systems and volumes descend from, if there is one.
    pub(crate) fn origin_snapshot(&self) -> Result<Option<ObjectId>, DslError> {
        let Some(dir) = self.origin_dir()? else { return Ok(None) };
        let Some(head) = self.dir(dir)?.head else { return Ok(None) };
        Ok(self.dataset(head)?.prev_snap)
    }

    /// Creation txg of the origin snapshot of a directory; 0 if there is none. Blocks of its head born up to
    /// it are charged elsewhere.
    pub(crate) fn origin_txg(&self, dir: &DirPhys) -> Result<Txg, DslError> {
        dir.origin.map_or(Ok(Txg(0)), |origin| Ok(self.dataset(origin)?.creation_txg))
    }

    /// The members of a set of objects; empty if there is no set.
    pub(crate) fn members(&self, set: Option<ObjectId>) -> Result<Vec<ObjectId>, DslError> {
        set.map_or(Ok(Vec::new()), |set| mos::int_set(&self.view(), set))
    }

    /// Frees an object, if there is one.
    pub(crate) fn free_if_any(&self, id: Option<ObjectId>) -> Result<(), DslError> {
        id.map_or(Ok(()), |id| self.free(id))
    }
}
