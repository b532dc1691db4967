//! Block reference tables: the number of references to cloned blocks beyond the first
//! (docs/on-disk/32-dedup-cloning.md, section 3).
//!
//! # What always holds
//! - A block is freed only after every reference is gone: code that drops a pointer first calls
//!   `Brt::release`, and does not free the block if that dropped another reference.
//! - The counts by region are in memory: for most frees they already show that the block was never cloned.
//!   The entries themselves are only in the ZAP.
//! - A reference noted in open context by [`Brt::add_pending`] is counted from the start of the sync of its
//!   txg, before any block is freed in that txg. If the new pointer is not written after all, because it was
//!   overwritten in memory, the reference is dropped again at the end of that sync.
//! - A dataset whose blocks were shared in a txg is neither destroyed nor rolled back in an earlier txg,
//!   which may be syncing at that moment: its blocks would be freed before the new references count
//!   ([`Brt::note_source`]).
//! - A claimed intent log has a reference of its own to each block that its records clone. The replay of a
//!   record adds another, and freeing the log drops those of the log.
//!
//! # Order
//! `add_pending` (open) -> `apply` (start of the sync) -> `born`, `may_be_cloned` (object sets are written)
//! -> `settle` -> `release` (background freeing) -> `flush`.

#[cfg(test)]
mod tests;

use crate::error::DslError;
use crate::mos;
use crate::mos_tx::MosTx;
use crate::sync::lock;
use dmu::NewObject;
use dmu::ObjSet;
use dmu::log::Unclaim;
use dmu::zap::ZapValue;
use format::brt::{BrtPhys, REGION_SIZE, directory_name, extra_references};
use format::names;
use format::zap::{FLAG_HASH64, FLAG_UINT64_KEY};
use format::{BlockPtr, BpKind, Dva, Endian, ObjType, ObjectId, Txg, VdevId};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// Feature whose count is the number of block reference tables.
const CLONING: &str = "block_cloning";
/// Feature of entries that are integers of the ZAP, not bytes in the writer's byte order.
const CLONING_ENDIAN: &str = "block_cloning_endian";
/// Bytes of a block of counts by region.
const ARRAY_BLOCK: u64 = 32 << 10;
/// log2 of a block of the ZAP of entries, before and since `block_cloning_endian`.
const ENTRIES_SHIFT: u32 = 12;
const ENTRIES_SHIFT_WIDE: u32 = 13;
/// Most regions of a table: those of a vdev of 2^56 bytes.
const REGIONS_MAX: u64 = 1 << 32;

/// Location of a block: vdev and offset of its first address.
type BlockLocation = (VdevId, u64);

/// The table of one vdev.
#[derive(Debug)]
struct Table {
    object: ObjectId,
    entries: ObjectId,
    /// Byte order of the array, and of entries that are bytes.
    order: Endian,
    region_size: u64,
    regions: Vec<u16>,
    count: u64,
    used: u64,
    saved: u64,
    /// Blocks of the array that have changed.
    changed: BTreeSet<u64>,
    is_dirty: bool,
}

impl Table {
    fn region(&self, offset: u64) -> usize {
        usize::try_from(offset / self.region_size).unwrap_or(usize::MAX)
    }

    fn may_have(&self, offset: u64) -> bool {
        self.regions.get(self.region(offset)).is_some_and(|count| *count > 0)
    }

    /// Counts an entry of the region of `offset` in (`more`) or out.
    fn count_region(&mut self, offset: u64, more: bool) {
        let region = self.region(offset);
        if region >= self.regions.len() {
            // The vdev has grown.
            self.regions.resize(region + 1, 0);
        }
        if let Some(count) = self.regions.get_mut(region) {
            *count = if more { count.saturating_add(1) } else { count.saturating_sub(1) };
        }
        self.changed.insert(region as u64 * 2 / ARRAY_BLOCK);
    }

    fn phys(&self) -> BrtPhys {
        BrtPhys {
            entries: self.entries,
            regions: self.regions.len() as u64,
            array_order: self.order,
            count: self.count,
            region_size: self.region_size,
            used: self.used,
            saved: self.saved,
        }
    }
}

/// References that a txg adds to a block.
#[derive(Debug, Clone, Copy)]
struct Pending {
    bp: BlockPtr,
    /// References that must appear as pointers when the txg is written.
    clones: u64,
    /// References that count whether or not they appear as pointers.
    claims: u64,
}

#[derive(Debug, Default)]
struct Inner {
    tables: BTreeMap<VdevId, Table>,
    pending: BTreeMap<Txg, BTreeMap<BlockLocation, Pending>>,
    /// References counted in this sync whose pointers have not appeared yet.
    unconfirmed: BTreeMap<BlockLocation, Pending>,
    /// Datasets whose blocks get references, each with the newest such txg.
    sources: BTreeMap<ObjectId, Txg>,
    /// References of intent logs that are dropped, by txg.
    dropped: BTreeMap<Txg, Vec<(BlockPtr, Unclaim)>>,
}

/// The block reference tables of a pool.
#[derive(Debug, Default)]
pub struct Brt {
    inner: Mutex<Inner>,
    /// Whether there are tables: without them, no block was ever cloned.
    has_tables: AtomicBool,
    has_unconfirmed: AtomicBool,
}

/// The first address of a block that can be cloned: of a data block on a vdev.
fn location_of(bp: &BlockPtr) -> Option<(BlockLocation, Dva)> {
    let is_data = bp.level().0 == 0 && !bp.obj_type().is_metadata();
    if !is_data || !matches!(bp.kind(), BpKind::Normal | BpKind::Gang) {
        return None;
    }
    let dva = bp.dvas().next()?;
    Some(((dva.vdev, dva.offset.0), dva))
}

impl Brt {
    /// Reads the tables from the MOS.
    ///
    /// # Errors
    /// If a table cannot be read, or has more regions than its vdev can have.
    pub fn load(view: &Arc<ObjSet>) -> Result<Arc<Brt>, DslError> {
        let directory = mos::zap(view, names::directory::OBJECT)?;
        let tops = u32::try_from(view.store().zio().tree().top_count()).unwrap_or(u32::MAX);
        let mut inner = Inner::default();
        for vdev in (0..tops).map(VdevId) {
            if let Some(id) = mos::lookup_object(&directory, names::directory::OBJECT, &directory_name(vdev))?
            {
                inner.tables.insert(vdev, load_table(view, id)?);
            }
        }
        let has_tables = AtomicBool::new(!inner.tables.is_empty());
        Ok(Arc::new(Brt { inner: Mutex::new(inner), has_tables, has_unconfirmed: AtomicBool::default() }))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        lock(&self.inner)
    }

    /// Bytes that cloned blocks take, each counted once.
    pub fn used(&self) -> u64 {
        self.lock().tables.values().map(|table| table.used).sum()
    }

    /// Bytes that the references beyond the first would take as copies.
    pub fn saved(&self) -> u64 {
        self.lock().tables.values().map(|table| table.saved).sum()
    }

    /// In open context: adds a reference to this block in `txg`, beside the existing pointer. Returns false
    /// if such a block is not counted (holes, embedded data) or cannot be cloned (metadata).
    pub fn add_pending(&self, bp: &BlockPtr, txg: Txg) -> bool {
        self.note(bp, txg, 1, 0)
    }

    /// Like [`Brt::add_pending`], for a reference without a pointer in an object: that of a claimed intent
    /// log, until the log is freed.
    pub fn add_claim(&self, bp: &BlockPtr, txg: Txg) -> bool {
        self.note(bp, txg, 0, 1)
    }

    /// In open context: drops such a reference in `txg`.
    pub fn drop_claim(&self, bp: &BlockPtr, how: Unclaim, txg: Txg) {
        if location_of(bp).is_some() {
            self.lock().dropped.entry(txg).or_default().push((*bp, how));
        }
    }

    /// In open context: notes that pointers of this dataset are copied into other objects in `txg`. Called
    /// while the dataset is held open, before its pointers are read.
    pub fn note_source(&self, dataset: ObjectId, txg: Txg) {
        let mut inner = self.lock();
        let newest = inner.sources.entry(dataset).or_insert(txg);
        *newest = (*newest).max(txg);
    }

    /// Whether references to blocks of this dataset count only after this txg: blocks that it alone holds
    /// must not be freed in it.
    pub(crate) fn is_shared_after(&self, dataset: ObjectId, txg: Txg) -> bool {
        self.lock().sources.get(&dataset).is_some_and(|newest| *newest > txg)
    }

    /// Pointers of the intent logs that were freed in this txg, and how each is dropped.
    pub(crate) fn take_dropped(&self, txg: Txg) -> Vec<(BlockPtr, Unclaim)> {
        let mut inner = self.lock();
        let mut later = inner.dropped.split_off(&Txg(txg.0 + 1));
        std::mem::swap(&mut inner.dropped, &mut later);
        later.into_values().flatten().collect()
    }

    fn note(&self, bp: &BlockPtr, txg: Txg, clones: u64, claims: u64) -> bool {
        let Some((place, _)) = location_of(bp) else { return false };
        let mut inner = self.lock();
        let pending = inner.pending.entry(txg).or_default();
        let noted = pending.entry(place).or_insert(Pending { bp: *bp, clones: 0, claims: 0 });
        noted.clones += clones;
        noted.claims += claims;
        true
    }

    /// At the start of the sync: counts the references that its txg adds.
    ///
    /// # Errors
    /// If an object of the MOS cannot be read or changed: the txg must not end then.
    pub fn apply(&self, m: MosTx<'_>) -> Result<(), DslError> {
        let mut inner = self.lock();
        let mut later = inner.pending.split_off(&Txg(m.txg().0 + 1));
        std::mem::swap(&mut inner.pending, &mut later);
        inner.sources.retain(|_, newest| *newest > m.txg());
        for (place, noted) in later.into_values().flatten() {
            inner.add(m, place, &noted.bp, noted.clones + noted.claims)?;
            if noted.clones > 0 {
                let waiting = inner.unconfirmed.entry(place).or_insert(Pending { clones: 0, ..noted });
                waiting.clones += noted.clones;
            }
        }
        self.has_tables.store(!inner.tables.is_empty(), Ordering::Release);
        self.has_unconfirmed.store(!inner.unconfirmed.is_empty(), Ordering::Release);
        Ok(())
    }

    /// While object sets are written: notes that this pointer was written.
    pub(crate) fn born(&self, bp: &BlockPtr) {
        if !self.has_unconfirmed.load(Ordering::Acquire) {
            return;
        }
        let Some((place, _)) = location_of(bp) else { return };
        let mut inner = self.lock();
        if let Some(waiting) = inner.unconfirmed.get_mut(&place) {
            waiting.clones -= 1;
            if waiting.clones == 0 {
                inner.unconfirmed.remove(&place);
            }
        }
    }

    /// After the object sets were written: drops the noted references whose pointers were not written.
    ///
    /// # Errors
    /// If an object of the MOS cannot be read or changed: the txg must not end then.
    pub(crate) fn settle(&self, m: MosTx<'_>) -> Result<(), DslError> {
        let mut inner = self.lock();
        for (place, left) in std::mem::take(&mut inner.unconfirmed) {
            for _ in 0..left.clones {
                inner.drop_one(m, place, &left.bp)?;
            }
        }
        self.has_unconfirmed.store(false, Ordering::Release);
        Ok(())
    }

    /// Whether the block may have further references. If so, freeing it needs a look-up in the table.
    pub(crate) fn may_be_cloned(&self, bp: &BlockPtr) -> bool {
        if !self.has_tables.load(Ordering::Acquire) {
            return false;
        }
        let Some(((vdev, offset), _)) = location_of(bp) else { return false };
        self.lock().tables.get(&vdev).is_some_and(|table| table.may_have(offset))
    }

    /// Drops a reference to this block. Returns true if it had further references: one of them was dropped,
    /// and the block must not be freed.
    ///
    /// # Errors
    /// If an object of the MOS cannot be read or changed: the txg must not end then.
    pub(crate) fn release(&self, m: MosTx<'_>, bp: &BlockPtr) -> Result<bool, DslError> {
        if !self.may_be_cloned(bp) {
            return Ok(false);
        }
        let Some((place, _)) = location_of(bp) else { return Ok(false) };
        self.lock().drop_one(m, place, bp)
    }

    /// Number of references to this block beyond the first.
    ///
    /// # Errors
    /// If an object of the MOS cannot be read, or is damaged.
    pub fn references(&self, m: MosTx<'_>, bp: &BlockPtr) -> Result<u64, DslError> {
        let Some(((vdev, offset), _)) = location_of(bp) else { return Ok(0) };
        match self.lock().tables.get(&vdev) {
            Some(table) => look_up(m, table, offset),
            None => Ok(0),
        }
    }

    /// Writes the counts by region and the sums; removes tables without entries.
    ///
    /// # Errors
    /// If an object of the MOS cannot be read or changed: the txg must not end then.
    pub fn flush(&self, m: MosTx<'_>) -> Result<(), DslError> {
        let mut inner = self.lock();
        let empty: Vec<VdevId> =
            inner.tables.iter().filter(|(_, table)| table.count == 0).map(|(vdev, _)| *vdev).collect();
        for vdev in empty {
            if let Some(table) = inner.tables.remove(&vdev) {
                remove_table(m, vdev, &table)?;
            }
        }
        if inner.tables.is_empty() {
            self.has_tables.store(false, Ordering::Release);
            // The next table may have another form.
            if m.features.is_active(CLONING_ENDIAN) {
                m.features.decr(m, CLONING_ENDIAN)?;
            }
        }
        for table in inner.tables.values_mut().filter(|table| table.is_dirty) {
            write_table(m, table)?;
        }
        Ok(())
    }
}

impl Inner {
    fn add(
        &mut self,
        m: MosTx<'_>,
        (vdev, offset): BlockLocation,
        bp: &BlockPtr,
        n: u64,
    ) -> Result<(), DslError> {
        let table = match self.tables.entry(vdev) {
            Entry::Occupied(there) => there.into_mut(),
            Entry::Vacant(place) => place.insert(create_table(m, vdev)?),
        };
        let before = look_up(m, table, offset)?;
        put(m, table, offset, before + n)?;
        let size = m.space_of(bp).used;
        if before == 0 {
            table.count += 1;
            table.used = table.used.saturating_add(size);
            table.count_region(offset, true);
        }
        table.saved = table.saved.saturating_add(size.saturating_mul(n));
        table.is_dirty = true;
        Ok(())
    }

    fn drop_one(
        &mut self,
        m: MosTx<'_>,
        (vdev, offset): BlockLocation,
        bp: &BlockPtr,
    ) -> Result<bool, DslError> {
        let Some(table) = self.tables.get_mut(&vdev) else { return Ok(false) };
        let before = look_up(m, table, offset)?;
        if before == 0 {
            return Ok(false);
        }
        let size = m.space_of(bp).used;
        if before == 1 {
            m.zap(table.entries)?.remove_words(&[offset])?;
            table.count = table.count.saturating_sub(1);
            table.used = table.used.saturating_sub(size);
            table.count_region(offset, false);
        } else {
            put(m, table, offset, before - 1)?;
        }
        table.saved = table.saved.saturating_sub(size);
        table.is_dirty = true;
        Ok(true)
    }
}

fn load_table(view: &Arc<ObjSet>, id: ObjectId) -> Result<Table, DslError> {
    let object = view.object(id)?;
    let phys = BrtPhys::decode(object.bonus(), object.order()).map_err(DslError::decode(id))?;
    if phys.regions > REGIONS_MAX || phys.regions * 2 > object.logical_end().max(ARRAY_BLOCK) {
        let (found, expected) = (phys.regions, object.logical_end() / 2);
        return Err(DslError::Mismatch { what: "regions of a table of clones", object: id, found, expected });
    }
    let mut bytes = vec![0; usize::try_from(phys.regions * 2).unwrap_or(usize::MAX)];
    // The counts have 16 bits, but the object is an array of 64-bit words, which are byte-swapped as such.
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    object.read_numbers(0, 8, &mut bytes)?;
    bytes.truncate(phys.regions as usize * 2);
    Ok(Table {
        object: id,
        entries: phys.entries,
        order: phys.array_order,
        region_size: phys.region_size,
        regions: phys.region_counts(&bytes).collect(),
        count: phys.count,
        used: phys.used,
        saved: phys.saved,
        changed: BTreeSet::new(),
        is_dirty: false,
    })
}

fn create_table(m: MosTx<'_>, vdev: VdevId) -> Result<Table, DslError> {
    if !m.features.is_active(CLONING) && m.features.is_enabled(CLONING_ENDIAN) {
        m.features.incr(m, CLONING_ENDIAN)?;
    }
    let wide = m.features.is_active(CLONING_ENDIAN);
    let entries = m.allocate(&NewObject::of(ObjType::ZAP_METADATA))?;
    let shift = if wide { ENTRIES_SHIFT_WIDE } else { ENTRIES_SHIFT };
    entries.create_fat_zap(m.tx, shift, m.env.random(), 0, FLAG_HASH64 | FLAG_UINT64_KEY)?;
    // Size in whole metaslabs: the rest of the vdev is never allocated.
    let size = m.zio().tree().top(vdev).map_or(0, |top| top.metaslabs() << top.metaslab_shift);
    let regions = usize::try_from(size.div_ceil(REGION_SIZE)).unwrap_or(usize::MAX);
    let mut table = Table {
        object: ObjectId(0),
        entries: entries.id(),
        order: Endian::Little,
        region_size: REGION_SIZE,
        regions: vec![0; regions],
        count: 0,
        used: 0,
        saved: 0,
        changed: BTreeSet::new(),
        is_dirty: true,
    };
    let new = NewObject::of(ObjType::U64_METADATA)
        .with_bonus(ObjType::U64_METADATA, table.phys().encode(Endian::Little))
        .with_block_size(ARRAY_BLOCK);
    table.object = m.allocate(&new)?.id();
    // The length of the array covers all regions, so the whole array is written from the start.
    table.changed.extend(0..(regions as u64 * 2).div_ceil(ARRAY_BLOCK));
    m.set_entry(&directory_name(vdev), table.object.0)?;
    m.features.incr(m, CLONING)?;
    Ok(table)
}

fn remove_table(m: MosTx<'_>, vdev: VdevId, table: &Table) -> Result<(), DslError> {
    m.remove_entry(&directory_name(vdev))?;
    m.free(table.entries)?;
    m.free(table.object)?;
    m.features.decr(m, CLONING)
}

fn write_table(m: MosTx<'_>, table: &mut Table) -> Result<(), DslError> {
    let object = m.object(table.object)?;
    let per_block = (ARRAY_BLOCK / 2) as usize;
    for block in std::mem::take(&mut table.changed) {
        let first = usize::try_from(block).unwrap_or(usize::MAX).saturating_mul(per_block);
        let counts = table.regions.iter().skip(first).take(per_block);
        let bytes: Vec<u8> = counts.flat_map(|count| table.order.put_u16(*count)).collect();
        object.write_at(block * ARRAY_BLOCK, &bytes, m.tx)?;
    }
    object.set_bonus(&table.phys().encode(Endian::Little), m.tx);
    table.is_dirty = false;
    Ok(())
}

fn look_up(m: MosTx<'_>, table: &Table, offset: u64) -> Result<u64, DslError> {
    if !table.may_have(offset) {
        return Ok(0);
    }
    match m.zap(table.entries)?.lookup_words(&[offset])? {
        Some(entry) => extra_references(entry.int_size, &entry.value, table.order)
            .map_err(DslError::decode(table.entries)),
        None => Ok(0),
    }
}

fn put(m: MosTx<'_>, table: &Table, offset: u64, count: u64) -> Result<(), DslError> {
    let raw = table.order.put_u64(count);
    let value =
        if m.features.is_active(CLONING_ENDIAN) { ZapValue::U64(count) } else { ZapValue::Bytes(&raw) };
    Ok(m.zap(table.entries)?.upsert_words(&[offset], value)?)
}
