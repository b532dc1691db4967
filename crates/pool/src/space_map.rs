//! Space map objects: their headers, and their entries one after the other
//! (docs/on-disk/15-space.md, section 2).

use crate::error::PoolError;
use dmu::{ObjSet, Object};
use format::space_map::{Entry, MapBounds, MapType, Segment, SpaceMapPhys, entries};
use format::{BlockId, ObjType, ObjectId};
use std::sync::Arc;
use vdev::tree::RangeSet;

/// An open space map object.
pub struct SpaceMap {
    object: Object,
    phys: SpaceMapPhys,
}

impl SpaceMap {
    /// Opens the space map in object `id` of the MOS.
    ///
    /// # Errors
    /// [`PoolError::Dmu`] if the object cannot be read, [`PoolError::Corrupt`] or [`PoolError::Decode`] if it
    /// is no space map.
    pub fn open(mos: &Arc<ObjSet>, id: ObjectId) -> Result<SpaceMap, PoolError> {
        let object = mos.object(id)?;
        if object.dnode().bonus_type != ObjType::SPACE_MAP_HEADER {
            return Err(PoolError::Corrupt { object: id, why: "not a space map" });
        }
        let phys = SpaceMapPhys::decode(object.bonus(), object.order()).map_err(PoolError::decode(id))?;
        if phys.length > object.logical_end() || !phys.length.is_multiple_of(8) {
            return Err(PoolError::Corrupt { object: id, why: "a space map is longer than its object" });
        }
        Ok(SpaceMap { object, phys })
    }

    /// The header of the map, as stored in the bonus.
    pub fn phys(&self) -> &SpaceMapPhys {
        &self.phys
    }

    /// Object that holds the map.
    pub(crate) fn object(&self) -> &Object {
        &self.object
    }

    /// Calls `visit` with every entry, debug entries included, in order.
    ///
    /// # Errors
    /// [`PoolError::Dmu`] if a space map cannot be read, [`PoolError::Decode`] or [`PoolError::Corrupt`] if
    /// one is malformed. Or the error of `visit`.
    pub fn for_each_entry(
        &self,
        visit: &mut dyn FnMut(Entry) -> Result<(), PoolError>,
    ) -> Result<(), PoolError> {
        let id = self.object.id();
        let size = self.object.block_size().max(1);
        let mut blocks = self.object.blocks_from(BlockId(0));
        for block in 0..self.phys.length.div_ceil(size) {
            let hole = PoolError::Corrupt { object: id, why: "a space map has a hole" };
            let data = blocks.next_block()?.ok_or(hole)?;
            let left = usize::try_from(self.phys.length - block * size).unwrap_or(usize::MAX);
            let bytes = data.bytes().get(..left).unwrap_or(data.bytes());
            for entry in entries(bytes, data.order()) {
                visit(entry.map_err(PoolError::decode(id))?)?;
            }
        }
        Ok(())
    }

    /// Calls `visit` with every range, in order.
    ///
    /// # Errors
    /// [`PoolError::Dmu`] if a space map cannot be read, [`PoolError::Decode`] or [`PoolError::Corrupt`] if
    /// one is malformed. Or the error of `visit`.
    pub fn for_each(
        &self,
        bounds: MapBounds,
        visit: &mut dyn FnMut(Segment) -> Result<(), PoolError>,
    ) -> Result<(), PoolError> {
        let id = self.object.id();
        self.for_each_entry(&mut |entry| match bounds.segment(&entry).map_err(PoolError::decode(id))? {
            Some(segment) => visit(segment),
            None => Ok(()),
        })
    }

    /// The ranges in the last block, and the length of the map without that block.
    ///
    /// # Errors
    /// Those of [`SpaceMap::for_each`].
    pub(crate) fn last_block(&self, bounds: MapBounds) -> Result<(u64, Vec<Segment>), PoolError> {
        let id = self.object.id();
        let size = self.object.block_size().max(1);
        let Some(last) = self.phys.length.checked_sub(1).map(|end| end / size) else {
            return Ok((0, Vec::new()));
        };
        let hole = PoolError::Corrupt { object: id, why: "a space map has a hole" };
        let data = self.object.blocks_from(BlockId(last)).next_block()?.ok_or(hole)?;
        let left = usize::try_from(self.phys.length - last * size).unwrap_or(usize::MAX);
        let bytes = data.bytes().get(..left).unwrap_or(data.bytes());
        let mut segments = Vec::new();
        for entry in entries(bytes, data.order()) {
            let entry = entry.map_err(PoolError::decode(id))?;
            segments.extend(bounds.segment(&entry).map_err(PoolError::decode(id))?);
        }
        Ok((last * size, segments))
    }

    /// Applies the entries to the earlier free space. Fails if a range is allocated or freed twice.
    pub(crate) fn replay(&self, bounds: MapBounds, free: &mut RangeSet) -> Result<(), PoolError> {
        let object = self.object.id();
        self.for_each(bounds, &mut |segment| {
            apply(&segment, free).map_err(|why| PoolError::Corrupt { object, why })
        })
    }
}

/// Applies an entry to the earlier free space. Fails with the reason if it contradicts that.
pub(crate) fn apply(segment: &Segment, free: &mut RangeSet) -> Result<(), &'static str> {
    let range = segment.start..segment.start + segment.len;
    let known: u64 = free.overlap(&range).iter().map(|part| part.end - part.start).sum();
    match segment.kind {
        MapType::Alloc if known != segment.len => return Err("space is allocated twice"),
        MapType::Free if known != 0 => return Err("space is freed twice"),
        MapType::Alloc => free.remove(range),
        MapType::Free => free.insert(range),
    }
    Ok(())
}
