//! Writing one space map object (docs/on-disk/15-space.md, section 2).
//!
//! # What always holds
//! - `length` and `allocated` in the bonus match the entries after each [`MapWriter::store`]; entries
//!   appended later do not count until the next call.
//! - Feature `spacemap_histogram` counts the objects whose bonus has room for a histogram.

use crate::error::PoolError;
use dmu::{LiveObject, NewObject};
use dsl::MosTx;
use format::space_map::{BUCKETS, MapType, SpaceMapPhys, Writer};
use format::{Endian, ObjType, ObjectId, VdevId};
use std::ops::Range;
use zio::AllocTx;

/// Block size of a map in bytes, with log space maps and without.
const BLOCK: [u64; 2] = [16 << 10, 128 << 10];
/// log2 of an indirect block.
const INDIRECT_SHIFT: u8 = 14;
/// Longest run of an entry of one word.
const SHORT_RUN: u64 = 1 << 15;
/// A map is condensed when it is this many times longer than necessary,
const CONDENSE_TIMES: u64 = 2;
/// and longer than this many bytes.
const CONDENSE_MIN: u64 = 4 << 10;

/// A space map open for appending.
pub(crate) struct MapWriter {
    object: LiveObject,
    phys: SpaceMapPhys,
}

impl MapWriter {
    /// Block size of a new map in bytes.
    pub(crate) fn block_size(with_logs: bool) -> u64 {
        BLOCK[usize::from(with_logs)]
    }

    /// Creates an empty map.
    pub(crate) fn create(m: MosTx<'_>, block_size: u64) -> Result<MapWriter, PoolError> {
        let histogram = m.features.is_enabled("spacemap_histogram").then_some([0; BUCKETS]);
        if histogram.is_some() {
            m.features.incr(m, "spacemap_histogram")?;
        }
        let mut phys = SpaceMapPhys { object: 0, length: 0, allocated: 0, histogram };
        let new = NewObject {
            indirect_shift: INDIRECT_SHIFT,
            ..NewObject::of(ObjType::SPACE_MAP).with_block_size(block_size)
        };
        let new = new.with_bonus(ObjType::SPACE_MAP_HEADER, phys.encode(Endian::Little));
        let object = m.allocate(&new)?;
        phys.object = object.id().0;
        object.set_bonus(&phys.encode(Endian::Little), m.tx);
        Ok(MapWriter { object, phys })
    }

    /// Opens a map to append to it.
    pub(crate) fn open(m: MosTx<'_>, id: ObjectId) -> Result<MapWriter, PoolError> {
        let object = m.object_with_bonus(id, ObjType::SPACE_MAP_HEADER, "space map")?;
        let order = object.read().order();
        let phys = object.with_bonus(|bonus| SpaceMapPhys::decode(bonus, order));
        Ok(MapWriter { phys: phys.map_err(PoolError::decode(id))?, object })
    }

    /// Frees the map in this object.
    pub(crate) fn free(m: MosTx<'_>, id: ObjectId) -> Result<(), PoolError> {
        if MapWriter::open(m, id)?.phys.histogram.is_some() {
            m.features.decr(m, "spacemap_histogram")?;
        }
        Ok(m.free(id)?)
    }

    pub(crate) fn id(&self) -> ObjectId {
        self.object.id()
    }

    /// Whether the map is much longer than a condensed map with this many free segments.
    pub(crate) fn is_longer_than(&self, segments: u64) -> bool {
        let needed = segments.saturating_mul(16);
        self.phys.length > CONDENSE_MIN && self.phys.length > needed.saturating_mul(CONDENSE_TIMES)
    }

    /// Removes all entries of the map.
    pub(crate) fn clear(&mut self, m: MosTx<'_>) -> Result<(), PoolError> {
        self.object.free_range(0, u64::MAX, m.tx)?;
        (self.phys.length, self.phys.allocated) = (0, 0);
        Ok(())
    }

    /// Appends ranges of a space that begins at `start`, in units of `1 << shift`. Entries with a vdev have
    /// two words.
    pub(crate) fn append(
        &mut self,
        m: MosTx<'_>,
        kind: MapType,
        ranges: impl Iterator<Item = (Range<u64>, Option<VdevId>)>,
        start: u64,
        shift: u32,
    ) -> Result<(), PoolError> {
        let mut writer = Writer::new(self.phys.length, self.object.block_size());
        let longest = if m.features.is_enabled("spacemap_v2") { u64::MAX } else { SHORT_RUN };
        let mut total: i64 = 0;
        writer.debug(kind, m.tx.pass().min(1023) as u16, m.txg().0);
        for (range, vdev) in ranges {
            total += (range.end - range.start) as i64;
            let (mut at, end) = ((range.start - start) >> shift, (range.end - start) >> shift);
            while at < end {
                let run = (end - at).min(longest);
                writer.range(kind, at, run, vdev).map_err(PoolError::decode(self.id()))?;
                at += run;
            }
        }
        if total == 0 {
            return Ok(());
        }
        let bytes = writer.finish(Endian::Little);
        self.object.write_at(self.phys.length, &bytes, m.tx)?;
        self.phys.length += bytes.len() as u64;
        self.phys.allocated += if kind == MapType::Alloc { total } else { -total };
        Ok(())
    }

    /// Bytes that a map of freed ranges holds back.
    pub(crate) fn held(&self) -> u64 {
        self.phys.allocated.min(0).unsigned_abs()
    }

    /// Removes all entries from byte `length` on, which hold back `bytes`.
    pub(crate) fn cut(&mut self, m: MosTx<'_>, length: u64, bytes: u64) -> Result<(), PoolError> {
        self.object.free_range(length, u64::MAX, m.tx)?;
        self.phys.length = length;
        self.phys.allocated = self.phys.allocated.saturating_add_unsigned(bytes);
        Ok(())
    }

    /// Replaces the histogram, if the bonus has room for one.
    pub(crate) fn set_histogram(&mut self, histogram: [u64; BUCKETS]) {
        if self.phys.histogram.is_some() {
            self.phys.histogram = Some(histogram);
        }
    }

    /// Writes the header into the bonus.
    pub(crate) fn store(&self, m: MosTx<'_>) -> Result<(), PoolError> {
        self.object.set_bonus(&self.phys.encode(Endian::Little), m.tx);
        Ok(())
    }
}
