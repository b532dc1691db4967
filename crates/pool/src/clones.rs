//! Block reference tables: the space of cloned blocks, and the space that cloning saves
//! (docs/on-disk/32-dedup-cloning.md, section 3).

use crate::directory::Directory;
use crate::error::PoolError;
use crate::view::Pool;
use dmu::ObjSet;
use format::brt::{BrtPhys, directory_name};
use format::{ObjectId, VdevId};
use std::sync::Arc;

/// The block reference table of a top-level vdev.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CloneTable {
    /// Number of the top-level vdev.
    pub vdev: VdevId,
    /// The object with the counts by region.
    pub object: ObjectId,
    /// Header of the table, from the bonus of the object.
    pub phys: BrtPhys,
}

pub(crate) fn tables(
    mos: &Arc<ObjSet>,
    directory: &Directory,
    vdevs: usize,
) -> Result<Vec<CloneTable>, PoolError> {
    let mut tables = Vec::new();
    for vdev in (0..u32::try_from(vdevs).unwrap_or(u32::MAX)).map(VdevId) {
        let Some(object) = directory.object(&directory_name(vdev))? else { continue };
        let opened = mos.object(object)?;
        let phys = BrtPhys::decode(opened.bonus(), opened.order()).map_err(PoolError::decode(object))?;
        tables.push(CloneTable { vdev, object, phys });
    }
    Ok(tables)
}

impl Pool {
    /// The block reference tables of all top-level vdevs.
    ///
    /// # Errors
    /// [`PoolError::Dmu`] if an object of the MOS cannot be read, [`PoolError::Decode`] or
    /// [`PoolError::Directory`] if it is malformed.
    pub fn clone_tables(&self) -> Result<Vec<CloneTable>, PoolError> {
        tables(self.mos(), self.directory(), self.tree().top_count())
    }
}
