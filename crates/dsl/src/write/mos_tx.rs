//! The MOS in syncing context, and the small steps in it that everything here is made of.
//!
//! # What always holds
//! - A structure is read where it is used and written back whole, little-endian: nobody keeps a decoded
//!   copy across a call that may change it.

use super::features::FeatureCounts;
use crate::bpobj::Space;
use crate::{DslError, mos};
use dmu::ObjSet;
use dmu::live::{LiveObject, LiveSet, NewObject, SyncTx};
use dmu::zap::ZapMut;
use format::dsl::{DatasetPhys, DirPhys};
use format::{BlockId, BlockPtr, Endian, ObjType, ObjectId, Txg};
use std::sync::Arc;
use zio::{AllocTx, Env, Zio};

/// The object directory.
pub(crate) const DIRECTORY: ObjectId = ObjectId(1);

/// The MOS in the txg that syncs. Cheap to copy; everything that changes containers takes one.
#[derive(Clone, Copy)]
pub struct MosTx<'a> {
    /// The pool's own object set.
    pub mos: &'a Arc<LiveSet>,
    /// The txg that syncs.
    pub tx: &'a SyncTx,
    /// Reference counts of features.
    pub features: &'a FeatureCounts,
    /// Clock and randomness.
    pub env: &'a Env,
}

impl<'a> MosTx<'a> {
    /// The txg that syncs.
    pub fn txg(&self) -> Txg {
        self.tx.txg()
    }

    /// The block layer.
    pub fn zio(&self) -> &'a Arc<Zio> {
        self.mos.store().zio()
    }

    /// A reading handle of the newest state.
    pub fn view(&self) -> Arc<ObjSet> {
        self.mos.view()
    }

    // ---- objects ----------------------------------------------------------------------------

    /// An object.
    pub fn object(&self, id: ObjectId) -> Result<LiveObject, DslError> {
        Ok(self.mos.object(id)?)
    }

    /// An object whose bonus must be of this type.
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

    /// Makes an object.
    pub fn allocate(&self, new: &NewObject) -> Result<LiveObject, DslError> {
        Ok(self.mos.allocate(new, self.tx)?)
    }

    /// Frees an object with all its blocks.
    pub fn free(&self, id: ObjectId) -> Result<(), DslError> {
        Ok(self.mos.free(id, self.tx)?)
    }

    /// The ZAP in an object, for changing it.
    pub fn zap(&self, id: ObjectId) -> Result<ZapMut<'a>, DslError> {
        Ok(self.object(id)?.zap(self.tx)?)
    }

    /// Makes an empty ZAP.
    pub fn create_zap(
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

    /// Makes an empty ZAP without a bonus.
    pub fn create_plain_zap(&self, obj_type: ObjType) -> Result<ObjectId, DslError> {
        self.create_zap(obj_type, ObjType::NONE, Vec::new(), 0)
    }

    /// Puts `items`, packed little-endian words, at the byte `offset` of an object that is an array of
    /// words. A block that holds words of the other byte order is turned around first.
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

    /// The object that the object directory has under this name.
    pub fn entry(&self, name: &str) -> Result<Option<ObjectId>, DslError> {
        match self.zap(DIRECTORY)?.lookup(name.as_bytes())? {
            Some(entry) => Ok(Some(mos::number(DIRECTORY, &entry)?).filter(|id| *id != 0).map(ObjectId)),
            None => Ok(None),
        }
    }

    /// Puts a number under a name in the object directory.
    pub fn set_entry(&self, name: &str, value: u64) -> Result<(), DslError> {
        Ok(self.zap(DIRECTORY)?.upsert(name.as_bytes(), value)?)
    }

    /// Takes a name out of the object directory. False: it was not there.
    pub fn remove_entry(&self, name: &str) -> Result<bool, DslError> {
        Ok(self.zap(DIRECTORY)?.remove_if_present(name.as_bytes())?)
    }

    // ---- blocks -----------------------------------------------------------------------------

    /// What a block is charged.
    pub fn space_of(&self, bp: &BlockPtr) -> Space {
        crate::space::of_pointer(self.zio(), self.features.deflates(), bp)
    }

    // ---- directories and datasets -----------------------------------------------------------

    /// The bonus of a directory.
    pub fn dir(&self, id: ObjectId) -> Result<DirPhys, DslError> {
        Ok(self.open_dir(id)?.1)
    }

    fn open_dir(&self, id: ObjectId) -> Result<(LiveObject, DirPhys), DslError> {
        let object = self.object_with_bonus(id, ObjType::DSL_DIR, "DSL directory")?;
        let order = object.read().order();
        let phys = object.with_bonus(|bonus| DirPhys::decode(bonus, order)).map_err(DslError::decode(id))?;
        Ok((object, phys))
    }

    /// Changes the bonus of a directory.
    pub fn change_dir<R>(&self, id: ObjectId, change: impl FnOnce(&mut DirPhys) -> R) -> Result<R, DslError> {
        let (object, mut phys) = self.open_dir(id)?;
        let result = change(&mut phys);
        object.change_bonus(self.tx, |bonus| phys.encode_into(bonus));
        Ok(result)
    }

    /// The bonus of a dataset.
    pub fn dataset(&self, id: ObjectId) -> Result<DatasetPhys, DslError> {
        Ok(self.open_dataset(id)?.1)
    }

    fn open_dataset(&self, id: ObjectId) -> Result<(LiveObject, DatasetPhys), DslError> {
        let object = self.object_with_bonus(id, ObjType::DSL_DATASET, "DSL dataset")?;
        let order = object.read().order();
        let phys =
            object.with_bonus(|bonus| DatasetPhys::decode(bonus, order)).map_err(DslError::decode(id))?;
        Ok((object, phys))
    }

    /// Changes the bonus of a dataset.
    pub fn change_dataset<R>(
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

    /// Adds a member to a set of numbers, which is made if there is none. Returns the set. That it is a
    /// member already changes nothing.
    pub fn set_insert(
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
    pub fn set_remove(&self, set: ObjectId, member: u64) -> Result<(), DslError> {
        Ok(self.zap(set)?.remove_int(member)?)
    }
}
