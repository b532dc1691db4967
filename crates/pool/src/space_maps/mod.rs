//! The free space of the pool on disk: a space map for each metaslab, and one log for each txg for all of
//! them (docs/on-disk/15-space.md, sections 1 to 4).
//!
//! The allocator asks here, through [`SpaceSource`], for the free ranges of a metaslab that it is about to
//! use; the sync delivers the changes of each pass.
//!
//! # What always holds
//! - A metaslab's own map plus the changes that are kept in memory is the state after the last pass:
//!   [`SpaceBook::free_space`] is right at any time.
//! - With feature `log_spacemap` a metaslab's own map holds all changes before its *unflushed txg*, and the
//!   logs from that txg on hold the rest. For every unflushed txg there is a log; older logs are freed.
//! - The book's lock is not held during calls of the allocator, because the allocator may call back.
//!
//! # Order, in a sync
//! `begin` (pass 1: some metaslabs are flushed, old logs freed) -> in each pass `write` -> the MOS is synced,
//! which changes metaslabs again, until it does not.

pub(crate) mod object;

use crate::error::PoolError;
use crate::space::{MetaslabSpace, VdevSpace};
use crate::space_map::SpaceMap;
use crate::space_maps::object::MapWriter;
use crate::view::Pool;
use dmu::{LiveSet, NewObject, TxError};
use dsl::MosTx;
use format::config::VdevNode;
use format::names;
use format::space_map::{BUCKETS, LOG_SHIFT, MapBounds, MapType};
use format::{ObjType, ObjectId, Txg, VdevId};
use std::collections::BTreeMap;
use std::error::Error;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use vdev::VdevTree;
use vdev::sync::lock;
use vdev::tree::RangeSet;
use zio::alloc::{AllocClass, Allocator, MetaslabHint, SpaceChange, SpaceSource, TopSpace};

/// Number of logs that are kept before flushing begins.
const LOGS_MIN: usize = 16;
/// Most logs that flushing keeps.
const LOGS_MAX: u64 = 500;
/// Most maps that are condensed in one txg.
const CONDENSE_MAX: usize = 8;
/// Number of ranges in memory beyond which more metaslabs are flushed.
const RANGES_MAX: usize = 1 << 20;

/// The space map of a metaslab, and its changes in memory.
#[derive(Debug, Default)]
struct Map {
    start: u64,
    size: u64,
    /// Its own map; `None`: never used.
    object: Option<ObjectId>,
    /// Unflushed txg of the metaslab; 0: it has no logged changes yet.
    unflushed: Txg,
    /// The last txg whose log has changes of this metaslab, among the logs written since the pool was opened.
    logged: Txg,
    /// Space that is allocated, but free by the metaslab's own map.
    allocs: RangeSet,
    /// Space that is free, but allocated by the metaslab's own map.
    frees: RangeSet,
    /// The metaslab's own map is much longer than necessary. Used only without logs.
    is_long: bool,
}

impl Map {
    fn is_flushed(&self) -> bool {
        self.allocs.is_empty() && self.frees.is_empty()
    }

    /// Whether the metaslab's own map is complete up to `txg`: no changes are kept in memory, and the log of
    /// `txg` has none of it yet. The kept changes may be empty because a pass undid an earlier change: if the
    /// log of this pass has the second half and an older log the first half, the older log must stay in
    /// force.
    fn is_complete_up_to(&self, txg: Txg) -> bool {
        self.is_flushed() && self.unflushed != txg && self.logged != txg
    }

    /// The map of a metaslab that was never used.
    fn fresh(node: &VdevNode, index: u64) -> Map {
        Map { start: index << node.metaslab_shift, size: 1 << node.metaslab_shift, ..Map::default() }
    }

    /// Notes a change that the metaslab's own map does not have.
    fn note(&mut self, kind: MapType, range: &Range<u64>) {
        let (into, undone) = match kind {
            MapType::Alloc => (&mut self.allocs, &mut self.frees),
            MapType::Free => (&mut self.frees, &mut self.allocs),
        };
        into.insert(range.clone());
        for part in undone.overlap(range) {
            undone.remove(part.clone());
            into.remove(part);
        }
    }
}

/// Space maps of a top-level vdev.
#[derive(Debug, Default)]
struct Top {
    shift: u32,
    zap: ObjectId,
    array: ObjectId,
    /// Object of the array of unflushed txgs; 0: not created yet.
    unflushed: ObjectId,
    maps: Vec<Map>,
}

#[derive(Debug, Default)]
struct Book {
    tops: BTreeMap<VdevId, Top>,
    /// Object of the ZAP of logs; 0: not created yet.
    log_zap: ObjectId,
    logs: BTreeMap<Txg, ObjectId>,
}

/// The space maps of a pool that is open for writing.
pub(crate) struct SpaceBook {
    /// Weak, to avoid a cycle: the MOS reads through the block layer, whose allocator uses this book.
    mos: Weak<LiveSet>,
    book: Mutex<Book>,
}

/// The form in which maps are written.
#[derive(Clone, Copy)]
struct Style {
    /// Whether feature `log_spacemap` is in use.
    logs: bool,
}

impl SpaceBook {
    /// The book of a new pool.
    pub(crate) fn new(mos: &Arc<LiveSet>) -> Arc<SpaceBook> {
        Arc::new(SpaceBook { mos: Arc::downgrade(mos), book: Mutex::default() })
    }

    /// Loads the book of an existing pool: reads all logs.
    pub(crate) fn load(
        mos: &Arc<LiveSet>,
        pool: &Pool,
        spaces: &[VdevSpace],
    ) -> Result<Arc<SpaceBook>, PoolError> {
        let mut book = Book::default();
        for space in spaces {
            let Some(node) = pool.tree().top(space.vdev) else { continue };
            let unflushed = pool.vdev_zap_number(node.zap_top, names::top_vdev::UNFLUSHED_TXGS)?.unwrap_or(0);
            book.tops.insert(space.vdev, Top::of(node, space, ObjectId(unflushed)));
        }
        book.log_zap = pool.directory().object(names::directory::LOG_SPACEMAP_ZAP)?.unwrap_or_default();
        for (txg, id) in pool.log_space_maps()? {
            if txg > pool.txg() {
                return Err(PoolError::Corrupt { object: id, why: "a log space map of a later txg" });
            }
            book.logs.insert(txg, id);
            book.read_log(&SpaceMap::open(pool.mos(), id)?, txg)?;
        }
        Ok(Arc::new(SpaceBook { mos: Arc::downgrade(mos), book: Mutex::new(book) }))
    }

    fn lock(&self) -> MutexGuard<'_, Book> {
        lock(&self.book)
    }

    /// Adds a top-level vdev: creates its array of empty space maps. Returns the array, for the
    /// configuration.
    pub(crate) fn add_top(&self, m: MosTx<'_>, vdev: VdevId, node: &VdevNode) -> Result<ObjectId, PoolError> {
        let count = node.metaslabs();
        let array = create_array(m, ObjType::OBJECT_ARRAY, count)?;
        let top = Top {
            shift: shift_of(node),
            zap: node.zap_top,
            array,
            unflushed: ObjectId(0),
            maps: (0..count).map(|index| Map::fresh(node, index)).collect(),
        };
        self.lock().tops.insert(vdev, top);
        Ok(array)
    }

    /// Adds the new, empty metaslabs of a top-level vdev that has grown.
    pub(crate) fn grow_top(&self, m: MosTx<'_>, vdev: VdevId, node: &VdevNode) -> Result<(), PoolError> {
        let mut book = self.lock();
        let Some(top) = book.tops.get_mut(&vdev) else { return Ok(()) };
        let (known, count) = (top.maps.len() as u64, node.metaslabs());
        let zeros = vec![0; usize::try_from(count.saturating_sub(known) * 8).unwrap_or(0)];
        for array in [top.array, top.unflushed].into_iter().filter(|array| *array != ObjectId(0)) {
            m.object(array)?.write_at(known * 8, &zeros, m.tx)?;
        }
        top.maps.extend((known..count).map(|index| Map::fresh(node, index)));
        Ok(())
    }

    /// Frees the maps of a top-level vdev that leaves the pool. What the logs have about it is skipped from now on.
    pub(crate) fn remove_top(&self, m: MosTx<'_>, vdev: VdevId) -> Result<(), PoolError> {
        let Some(top) = self.lock().tops.remove(&vdev) else { return Ok(()) };
        for id in top.maps.iter().filter_map(|map| map.object) {
            MapWriter::free(m, id)?;
        }
        m.free(top.array)?;
        if top.unflushed != ObjectId(0) {
            m.free(top.unflushed)?;
            m.zap(top.zap)?.remove(names::top_vdev::UNFLUSHED_TXGS.as_bytes())?;
        }
        Ok(())
    }

    /// Adopts the vdev ZAPs of the configuration.
    pub(crate) fn renew_zaps(&self, root: &VdevNode) {
        let mut book = self.lock();
        for node in &root.children {
            if let Some(top) = book.tops.get_mut(&VdevId(node.id)).filter(|top| top.zap != node.zap_top) {
                // The entries of the old ZAP are gone with it.
                (top.zap, top.unflushed) = (node.zap_top, ObjectId(0));
            }
        }
    }

    /// The description of the new top-level vdev `vdev` for the allocator, or of one that has grown: the
    /// allocator uses the metaslabs that it does not know yet.
    pub(crate) fn fresh_top(vdev: VdevId, node: &VdevNode, class: AllocClass) -> TopSpace {
        let hint = MetaslabHint { allocated: 0, largest_free: 1 << node.metaslab_shift, never_used: true };
        let count = usize::try_from(node.metaslabs()).unwrap_or(0);
        top_space(vdev, node, class, vec![hint; count])
    }

    // ---- a sync ------------------------------------------------------------------------------

    /// Pass 1, before any change of this txg is written: flushes metaslabs, all of them if `all`, and frees
    /// obsolete logs.
    pub(crate) fn begin(&self, m: MosTx<'_>, allocator: &Allocator, all: bool) -> Result<(), PoolError> {
        if !m.features.is_active("log_spacemap") {
            return self.condense_some(m, allocator);
        }
        for (vdev, index) in self.to_flush(all) {
            if self.lock().pass_over(m, vdev, index)? {
                continue;
            }
            let histogram = allocator.histogram(vdev, index)?;
            let free = match self.lock().should_condense(m, vdev, index, &histogram)? {
                true => Some(allocator.free_space(vdev, index)?),
                false => None,
            };
            self.lock().flush(m, vdev, index, free.as_ref(), histogram)?;
        }
        self.lock().free_logs(m)
    }

    /// Without logs: condenses some of the maps that have become long.
    fn condense_some(&self, m: MosTx<'_>, allocator: &Allocator) -> Result<(), PoolError> {
        let long: Vec<(VdevId, u64)> = {
            let book = self.lock();
            let maps =
                book.tops.iter().flat_map(|(vdev, top)| top.maps.iter().enumerate().map(|m| (*vdev, m)));
            let long = maps.filter(|(_, (_, map))| map.is_long);
            long.map(|(vdev, (index, _))| (vdev, index as u64)).take(CONDENSE_MAX).collect()
        };
        for (vdev, index) in long {
            let (free, histogram) = (allocator.free_space(vdev, index)?, allocator.histogram(vdev, index)?);
            self.lock().condense(m, vdev, index, &free, histogram)?;
        }
        Ok(())
    }

    /// Chooses the metaslabs to flush in this txg: those whose changes have been kept longest.
    fn to_flush(&self, all: bool) -> Vec<(VdevId, u64)> {
        let book = self.lock();
        let mut candidates: Vec<(Txg, VdevId, u64)> = Vec::new();
        let mut ranges = 0;
        for (vdev, top) in &book.tops {
            for (index, map) in top.maps.iter().enumerate().filter(|(_, map)| map.unflushed != Txg(0)) {
                ranges += map.allocs.len() + map.frees.len();
                candidates.push((map.unflushed, *vdev, index as u64));
            }
        }
        candidates.sort_unstable();
        let hurry = if ranges > RANGES_MAX { 16 } else { 1 };
        let target = (candidates.len() as u64).clamp(1, LOGS_MAX);
        let wanted = (candidates.len() as u64).div_ceil(target) * hurry;
        let count = match all {
            true => candidates.len(),
            false if book.logs.len() < LOGS_MIN => 0,
            false => usize::try_from(wanted).unwrap_or(usize::MAX),
        };
        candidates.into_iter().take(count).map(|(_, vdev, index)| (vdev, index)).collect()
    }

    /// Writes the changes of a pass.
    pub(crate) fn write(
        &self,
        m: MosTx<'_>,
        allocator: &Allocator,
        changes: &[SpaceChange],
    ) -> Result<(), PoolError> {
        if changes.is_empty() {
            return Ok(());
        }
        let style = Style { logs: m.features.is_enabled("log_spacemap") };
        for change in changes {
            self.lock().prepare(m, change, style)?;
        }
        if style.logs {
            return self.lock().log(m, changes);
        }
        for change in changes {
            let histogram = allocator.histogram(change.vdev, change.metaslab)?;
            self.lock().append(m, change, histogram)?;
        }
        Ok(())
    }
}

impl SpaceSource for SpaceBook {
    fn free_space(&self, vdev: VdevId, metaslab: u64) -> Result<RangeSet, Box<dyn Error + Send + Sync>> {
        let book = self.lock();
        let Some((top, map)) = book.map(vdev, metaslab) else { return Ok(RangeSet::new()) };
        let mut free = RangeSet::new();
        free.insert(map.start..map.start + map.size);
        if let Some(id) = map.object {
            let bounds = MapBounds { start: map.start, size: map.size, shift: top.shift };
            let mos = self.mos.upgrade().ok_or(PoolError::Tx(TxError::Closed))?;
            SpaceMap::open(&mos.view(), id)?.replay(bounds, &mut free)?;
        }
        for range in map.allocs.iter() {
            free.remove(range);
        }
        free.merge(&map.frees);
        Ok(free)
    }
}

impl Top {
    fn of(node: &VdevNode, space: &VdevSpace, unflushed: ObjectId) -> Top {
        let map = |m: &MetaslabSpace| Map {
            start: m.start,
            size: m.size,
            object: m.space_map,
            unflushed: m.unflushed_txg,
            ..Map::default()
        };
        Top {
            shift: space.ashift,
            zap: node.zap_top,
            array: node.metaslab_array,
            unflushed,
            maps: space.metaslabs.iter().map(map).collect(),
        }
    }

    /// Index of the metaslab that contains a byte of the vdev.
    fn index_of(&self, at: u64) -> usize {
        let index = self.maps.partition_point(|map| map.start <= at);
        index.saturating_sub(1)
    }
}

impl Book {
    fn map(&self, vdev: VdevId, metaslab: u64) -> Option<(&Top, &Map)> {
        let top = self.tops.get(&vdev)?;
        Some((top, top.maps.get(usize::try_from(metaslab).ok()?)?))
    }

    /// The vdev, and the index of the metaslab in it.
    fn top_mut(&mut self, vdev: VdevId, metaslab: u64) -> (&mut Top, usize) {
        let index = usize::try_from(metaslab).unwrap_or(usize::MAX);
        let top = self.tops.get_mut(&vdev).filter(|top| index < top.maps.len());
        let top = top.unwrap_or_else(|| panic!("vdev {vdev} has no metaslab {metaslab}, and it has changed"));
        (top, index)
    }

    /// Reads the changes in a log of metaslabs that were not flushed since.
    fn read_log(&mut self, log: &SpaceMap, txg: Txg) -> Result<(), PoolError> {
        let object = log.object().id();
        log.for_each(MapBounds::LOG, &mut |segment| {
            let corrupt = |why| PoolError::Corrupt { object, why };
            let vdev = segment.vdev.ok_or(corrupt("an entry without a vdev"))?;
            let Some(top) = self.tops.get_mut(&vdev) else { return Ok(()) };
            let index = top.index_of(segment.start);
            let Some(map) = top.maps.get_mut(index) else { return Ok(()) };
            let range = segment.start..segment.start + segment.len;
            if range.start < map.start || range.end > map.start + map.size {
                return Err(corrupt("an entry across metaslabs"));
            }
            if txg >= map.unflushed {
                map.note(segment.kind, &range);
            }
            Ok(())
        })
    }

    /// Prepares for writing a metaslab's change: creates its map if there is none. If the metaslab is logged
    /// for the first time, or was flushed, its own map is complete up to this txg afterwards.
    fn prepare(&mut self, m: MosTx<'_>, change: &SpaceChange, style: Style) -> Result<(), PoolError> {
        let txg = m.txg();
        let (top, index) = self.top_mut(change.vdev, change.metaslab);
        if top.maps[index].object.is_none() {
            let map = MapWriter::create(m, MapWriter::block_size(style.logs))?;
            top.maps[index].object = Some(map.id());
            put_word(m, top.array, index, map.id().0)?;
        }
        if style.logs && top.maps[index].is_complete_up_to(txg) {
            top.set_unflushed(m, index, txg)?;
        }
        Ok(())
    }

    /// Appends changes to the log of the txg.
    fn log(&mut self, m: MosTx<'_>, changes: &[SpaceChange]) -> Result<(), PoolError> {
        let mut log = self.open_log(m)?;
        for kind in [MapType::Alloc, MapType::Free] {
            let ranges = changes.iter().flat_map(|change| {
                let set = if kind == MapType::Alloc { &change.allocs } else { &change.frees };
                set.iter().map(|range| (range, Some(change.vdev)))
            });
            log.append(m, kind, ranges, 0, LOG_SHIFT)?;
        }
        log.store(m)?;
        for change in changes {
            let (top, index) = self.top_mut(change.vdev, change.metaslab);
            let map = &mut top.maps[index];
            map.logged = m.txg();
            change.allocs.iter().for_each(|range| map.note(MapType::Alloc, &range));
            change.frees.iter().for_each(|range| map.note(MapType::Free, &range));
        }
        Ok(())
    }

    fn open_log(&mut self, m: MosTx<'_>) -> Result<MapWriter, PoolError> {
        if let Some(id) = self.logs.get(&m.txg()) {
            return MapWriter::open(m, *id);
        }
        if self.log_zap == ObjectId(0) {
            self.log_zap = m.create_plain_zap(ObjType::ZAP_METADATA)?;
            m.set_entry(names::directory::LOG_SPACEMAP_ZAP, self.log_zap.0)?;
            m.features.incr(m, "log_spacemap")?;
        }
        let log = MapWriter::create(m, MapWriter::block_size(true))?;
        m.zap(self.log_zap)?.insert_int_key(m.txg().0, log.id().0)?;
        self.logs.insert(m.txg(), log.id());
        Ok(log)
    }

    /// Without logs: appends a change to the metaslab's own map.
    fn append(
        &mut self,
        m: MosTx<'_>,
        change: &SpaceChange,
        histogram: [u64; BUCKETS],
    ) -> Result<(), PoolError> {
        let (top, index) = self.top_mut(change.vdev, change.metaslab);
        let mut writer = top.writer(m, index)?;
        let (start, shift) = (top.maps[index].start, top.shift);
        writer.append(m, MapType::Alloc, unnamed(&change.allocs), start, shift)?;
        writer.append(m, MapType::Free, unnamed(&change.frees), start, shift)?;
        writer.set_histogram(histogram);
        top.maps[index].is_long = writer.is_longer_than(segments(&histogram));
        writer.store(m)
    }

    /// Condenses a metaslab's own map.
    fn condense(
        &mut self,
        m: MosTx<'_>,
        vdev: VdevId,
        metaslab: u64,
        free: &RangeSet,
        histogram: [u64; BUCKETS],
    ) -> Result<(), PoolError> {
        let (top, index) = self.top_mut(vdev, metaslab);
        let mut writer = top.writer(m, index)?;
        top.condense(m, index, &mut writer, free)?;
        writer.set_histogram(histogram);
        top.maps[index].is_long = false;
        writer.store(m)
    }

    /// Whether a metaslab's map is much longer than its condensed form.
    fn should_condense(
        &self,
        m: MosTx<'_>,
        vdev: VdevId,
        metaslab: u64,
        histogram: &[u64; BUCKETS],
    ) -> Result<bool, PoolError> {
        let Some((_, Map { object: Some(id), .. })) = self.map(vdev, metaslab) else { return Ok(false) };
        Ok(MapWriter::open(m, *id)?.is_longer_than(segments(histogram)))
    }

    /// Marks a metaslab as flushed without writing, if no changes of it are kept. Returns false if some are.
    fn pass_over(&mut self, m: MosTx<'_>, vdev: VdevId, metaslab: u64) -> Result<bool, PoolError> {
        let (top, index) = self.top_mut(vdev, metaslab);
        let is_flushed = top.maps[index].is_flushed();
        if is_flushed {
            top.set_unflushed(m, index, m.txg())?;
        }
        Ok(is_flushed)
    }

    /// Writes the kept changes to a metaslab's own map, up to the end of the last txg.
    fn flush(
        &mut self,
        m: MosTx<'_>,
        vdev: VdevId,
        metaslab: u64,
        condensed: Option<&RangeSet>,
        histogram: [u64; BUCKETS],
    ) -> Result<(), PoolError> {
        let (top, index) = self.top_mut(vdev, metaslab);
        let mut writer = top.writer(m, index)?;
        let (start, shift) = (top.maps[index].start, top.shift);
        match condensed {
            Some(free) => top.condense(m, index, &mut writer, free)?,
            None => {
                let map = &top.maps[index];
                writer.append(m, MapType::Alloc, unnamed(&map.allocs), start, shift)?;
                writer.append(m, MapType::Free, unnamed(&map.frees), start, shift)?;
            }
        }
        writer.set_histogram(histogram);
        writer.store(m)?;
        let map = &mut top.maps[index];
        (map.allocs, map.frees) = (RangeSet::new(), RangeSet::new());
        top.set_unflushed(m, index, m.txg())
    }

    /// Frees the logs that no metaslab needs.
    fn free_logs(&mut self, m: MosTx<'_>) -> Result<(), PoolError> {
        let all = self.tops.values().flat_map(|top| &top.maps).map(|map| map.unflushed);
        let Some(oldest) = all.filter(|txg| *txg != Txg(0)).min() else { return Ok(()) };
        let needed = self.logs.split_off(&oldest);
        for (txg, id) in std::mem::replace(&mut self.logs, needed) {
            m.zap(self.log_zap)?.remove_int_key(txg.0)?;
            MapWriter::free(m, id)?;
        }
        Ok(())
    }
}

/// Estimate of the number of free segments.
fn segments(histogram: &[u64; BUCKETS]) -> u64 {
    histogram.iter().fold(2_u64, |sum, count| sum.saturating_add(*count))
}

fn unnamed(set: &RangeSet) -> impl Iterator<Item = (Range<u64>, Option<VdevId>)> + '_ {
    set.iter().map(|range| (range, None))
}

impl Top {
    fn writer(&self, m: MosTx<'_>, index: usize) -> Result<MapWriter, PoolError> {
        let id = self.maps[index].object.expect("a metaslab that has changes has a space map");
        MapWriter::open(m, id)
    }

    /// Rewrites the map: the whole metaslab is allocated except the free ranges.
    fn condense(
        &self,
        m: MosTx<'_>,
        index: usize,
        writer: &mut MapWriter,
        free: &RangeSet,
    ) -> Result<(), PoolError> {
        let map = &self.maps[index];
        writer.clear(m)?;
        let whole = std::iter::once((map.start..map.start + map.size, None));
        writer.append(m, MapType::Alloc, whole, map.start, self.shift)?;
        writer.append(m, MapType::Free, unnamed(free), map.start, self.shift)
    }

    fn set_unflushed(&mut self, m: MosTx<'_>, index: usize, txg: Txg) -> Result<(), PoolError> {
        if self.unflushed == ObjectId(0) {
            self.unflushed = create_array(m, ObjType::U64_METADATA, self.maps.len() as u64)?;
            m.zap(self.zap)?.upsert(names::top_vdev::UNFLUSHED_TXGS.as_bytes(), self.unflushed.0)?;
        }
        self.maps[index].unflushed = txg;
        put_word(m, self.unflushed, index, txg.0)
    }
}

/// Creates an array of `count` zeros.
fn create_array(m: MosTx<'_>, obj_type: ObjType, count: u64) -> Result<ObjectId, PoolError> {
    let size = (count * 8).next_power_of_two().clamp(512, 128 << 10);
    let object = m.allocate(&NewObject::of(obj_type).with_block_size(size))?;
    let zeros = vec![0; usize::try_from(count * 8).unwrap_or(0)];
    object.write_at(0, &zeros, m.tx)?;
    Ok(object.id())
}

fn put_word(m: MosTx<'_>, array: ObjectId, index: usize, word: u64) -> Result<(), PoolError> {
    Ok(m.object(array)?.write_at(index as u64 * 8, &word.to_le_bytes(), m.tx)?)
}

fn shift_of(node: &VdevNode) -> u32 {
    node.ashift.map_or(9, |ashift| u32::from(ashift.0))
}

fn top_space(vdev: VdevId, node: &VdevNode, class: AllocClass, metaslabs: Vec<MetaslabHint>) -> TopSpace {
    TopSpace {
        vdev,
        class,
        ashift: node.ashift.unwrap_or(format::Ashift(9)),
        metaslab_shift: node.metaslab_shift,
        asize: node.asize,
        allocating: !node.non_allocating && !node.removing,
        metaslabs,
    }
}

/// Descriptions of the vdevs of an opened pool for the allocator.
pub(crate) fn known_tops(tree: &VdevTree, spaces: &[VdevSpace]) -> Vec<TopSpace> {
    let hint = |m: &MetaslabSpace, shift: u32| MetaslabHint {
        allocated: m.allocated,
        largest_free: m.histogram.map_or(0, |counts| longest(&counts, shift)),
        never_used: m.space_map.is_none(),
    };
    let top = |space: &VdevSpace| {
        let node = tree.top(space.vdev)?;
        let hints = space.metaslabs.iter().map(|m| hint(m, space.ashift)).collect();
        Some(top_space(space.vdev, node, class_of(space.class), hints))
    };
    spaces.iter().filter_map(top).collect()
}

fn longest(counts: &[u64; BUCKETS], shift: u32) -> u64 {
    let bucket = counts.iter().rposition(|count| *count > 0);
    bucket.map_or(0, |bucket| 1_u64.checked_shl(bucket as u32 + shift).unwrap_or(0))
}

/// The allocation class of the allocator.
pub(crate) fn class_of(class: crate::space::Class) -> AllocClass {
    match class {
        crate::space::Class::Normal => AllocClass::Normal,
        crate::space::Class::Log => AllocClass::Log,
        crate::space::Class::Special => AllocClass::Special,
        crate::space::Class::Dedup => AllocClass::Dedup,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vdev::env::Random;

    const SIZE: u64 = 300;

    /// Applies the kept changes of a metaslab to its own map, unit by unit.
    fn allocated(own: &[bool], map: &Map) -> Vec<bool> {
        let unit = |at: usize| (own[at] || map.allocs.contains(at as u64)) && !map.frees.contains(at as u64);
        (0..own.len()).map(unit).collect()
    }

    #[test]
    fn changes_beside_a_map_are_its_difference_to_now() {
        let seed = 11;
        let mut random = Random::from_seed(seed);
        let mut own = vec![false; SIZE as usize];
        let mut now = own.clone();
        let mut map = Map { size: SIZE, ..Map::default() };
        for step in 0..20_000 {
            let start = random.below(SIZE);
            let is_alloc = !now[start as usize];
            let longest = (start..SIZE).take_while(|at| now[*at as usize] != is_alloc).count() as u64;
            let range = start..start + 1 + random.below(longest);
            now[range.start as usize..range.end as usize].fill(is_alloc);
            map.note(if is_alloc { MapType::Alloc } else { MapType::Free }, &range);
            assert_eq!(allocated(&own, &map), now, "seed {seed}, step {step}");
            assert!(!map.allocs.intersects(&map.frees), "seed {seed}, step {step}");
            let redundant = map.allocs.iter().any(|range| own[range.start as usize]);
            assert!(!redundant, "seed {seed}, step {step}: allocated in its own map already");
            if random.one_in(500) {
                // Flushed.
                own.clone_from(&now);
                (map.allocs, map.frees) = (RangeSet::new(), RangeSet::new());
            }
        }
    }

    /// Two passes of a txg: the first undoes all changes of older logs, the second makes others.
    #[test]
    fn what_comes_to_nothing_within_a_txg_is_not_cut_in_two() {
        let (seed, size) = (5, 6);
        let mut random = Random::from_seed(seed);
        let mut now = vec![false; size];
        let (mut map, mut logs) = (Map { size: size as u64, ..Map::default() }, Vec::new());
        for step in 0..20_000_u64 {
            let txg = Txg(1 + step / 3);
            if map.is_complete_up_to(txg) {
                map.unflushed = txg;
            }
            map.logged = txg;
            let at = random.below(size as u64);
            let kind = if now[at as usize] { MapType::Free } else { MapType::Alloc };
            now[at as usize] = kind == MapType::Alloc;
            map.note(kind, &(at..at + 1));
            logs.push((txg, kind, at));
            // As an import reads them: applied to an own map without changes.
            logs.retain(|(txg, ..)| *txg >= map.unflushed);
            let mut read = vec![false; size];
            for (_, kind, at) in &logs {
                let is_alloc = *kind == MapType::Alloc;
                assert_ne!(read[*at as usize], is_alloc, "seed {seed}, step {step}: {kind:?} of {at} twice");
                read[*at as usize] = is_alloc;
            }
            assert_eq!(read, now, "seed {seed}, step {step}");
        }
    }

    #[test]
    fn the_longest_segment_by_the_histogram() {
        let mut counts = [0; BUCKETS];
        assert_eq!(longest(&counts, 9), 0);
        (counts[0], counts[4]) = (7, 1);
        assert_eq!(longest(&counts, 9), 1 << 13);
    }
}
