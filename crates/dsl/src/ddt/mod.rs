//! Dedup tables, as far as freeing needs them: a reference to a block is dropped, and with the last one the
//! block is freed (docs/on-disk/32-dedup-cloning.md, section 2).
//!
//! # What always holds
//! - An entry is in the ZAP of its class: several references, or one. It moves when that changes.
//! - The histograms in the object directory are those of the entries in the ZAPs.
//! - The log of a table is flushed to the ZAPs before an entry is changed.
//!
//! # Order
//! One [`Tables`] for each round of freeing: [`Tables::release`] for each block, [`Tables::finish`] at the
//! end.

#[cfg(test)]
mod tests;

use crate::error::DslError;
use crate::mos;
use crate::mos_tx::MosTx;
use codec::compress::{compress, decompress};
use dmu::NewObject;
use dmu::zap::{ZapEntry, ZapKey, ZapValue};
use format::ddt::{
    DdtClass, DdtHistogram, DdtKey, DdtPhys, DdtStat, DdtValue, FLAG_FLAT, FLAG_LOG, FLAT_SIZE, KEY_WORDS,
    LEGACY_SIZE, LogHeader, LogRecord, Packing, directory_name, log_name, log_records, split_value, zap_name,
};
use format::names;
use format::zap::{FLAG_HASH64, FLAG_PRE_HASHED_KEY, FLAG_UINT64_KEY};
use format::{BlockId, BlockPtr, ChecksumId, CompressionId, Endian, ObjType, ObjectId};
use std::collections::BTreeMap;

/// Version of tables with a log.
const VERSION: u64 = 1;
/// log2 of the sizes of a block and of an indirect block of a ZAP of entries.
const ZAP_SHIFT: u32 = 15;
const ZAP_INDIRECT_SHIFT: u8 = 15;
/// ZLE level of compressed values.
const ZLE_LEVEL: i32 = 64;
/// Largest size of a log in bytes: more than the entries of any table that fits into memory.
const LOG_MAX: u64 = 1 << 32;

/// The dedup table of one checksum algorithm.
#[derive(Debug, Clone, Copy)]
struct Table {
    checksum: ChecksumId,
    /// The ZAP that names the ZAPs of the classes.
    home: ObjectId,
}

/// The dedup tables of a pool, during one round of freeing.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    known: BTreeMap<u8, Option<Table>>,
    /// Histograms that have changed, by name.
    histograms: BTreeMap<String, DdtHistogram>,
}

/// A found entry, and where it is.
struct Found {
    class: DdtClass,
    zap: ObjectId,
    value: DdtValue,
}

fn class_of(value: &DdtValue) -> DdtClass {
    if value.refcount() > 1 { DdtClass::Duplicate } else { DdtClass::Unique }
}

impl Tables {
    /// Drops a reference for a pointer with the dedup bit. Returns true if the table had counted it: the
    /// block was freed if this was the last reference. Returns false if the table has no entry (any more):
    /// the caller frees the block as usual.
    pub(crate) fn release(&mut self, m: MosTx<'_>, bp: &BlockPtr) -> Result<bool, DslError> {
        let Ok(checksum) = bp.checksum_kind() else { return Ok(false) };
        let Some(table) = self.table(m, checksum)? else { return Ok(false) };
        let key = DdtKey::of(bp);
        let Some(found) = find(m, table, &key)? else { return Ok(false) };
        let Some(slot) = slot_of(&found.value, bp) else { return Ok(false) };
        let mut value = found.value;
        let Some(phys) = slots(&mut value).get_mut(slot) else { return Ok(false) };
        phys.refcount = phys.refcount.saturating_sub(1);
        if phys.refcount == 0 {
            let stored = stored_pointer(bp, phys);
            *phys = DdtPhys::default();
            if let Err(error) = m.zio().free(&stored, m.tx) {
                tracing::error!(%error, "a block of a dedup table cannot be freed");
            }
        }
        self.count(m, table, found.class, &key, &found.value, false)?;
        self.put(m, table, &key, &found, value)?;
        Ok(true)
    }

    /// Writes the histograms of the changed tables.
    pub(crate) fn finish(&mut self, m: MosTx<'_>) -> Result<(), DslError> {
        for (name, histogram) in std::mem::take(&mut self.histograms) {
            let id = match m.entry(names::directory::DDT_STATISTICS)? {
                Some(id) => id,
                None => {
                    let id = m.create_plain_zap(ObjType::DDT_STATS)?;
                    m.set_entry(names::directory::DDT_STATISTICS, id.0)?;
                    id
                }
            };
            m.zap(id)?.upsert(name.as_bytes(), &histogram.to_words()[..])?;
        }
        Ok(())
    }

    fn table(&mut self, m: MosTx<'_>, checksum: ChecksumId) -> Result<Option<Table>, DslError> {
        if let Some(known) = self.known.get(&checksum.id()) {
            return Ok(*known);
        }
        let table = self.open(m, checksum)?;
        self.known.insert(checksum.id(), table);
        Ok(table)
    }

    fn open(&mut self, m: MosTx<'_>, checksum: ChecksumId) -> Result<Option<Table>, DslError> {
        if let Some(home) = m.entry(&directory_name(checksum))? {
            let zap = m.zap(home)?;
            let (version, flags) = (
                zap.lookup_u64(names::dedup_table::VERSION.as_bytes())?,
                zap.lookup_u64(names::dedup_table::FLAGS.as_bytes())?,
            );
            let flags = flags.unwrap_or(0);
            if version != Some(VERSION) || flags & !(FLAG_FLAT | FLAG_LOG) != 0 {
                return Err(DslError::Mismatch {
                    what: "version and flags of a dedup table",
                    object: home,
                    found: flags,
                    expected: FLAG_FLAT | FLAG_LOG,
                });
            }
            let table = Table { checksum, home };
            self.flush_logs(m, table)?;
            return Ok(Some(table));
        }
        let table = Table { checksum, home: names::directory::OBJECT };
        let any = DdtClass::ALL.into_iter().map(|class| class_zap(m, table, class));
        Ok(any.collect::<Result<Vec<_>, _>>()?.iter().any(Option::is_some).then_some(table))
    }

    // ---- entries ----------------------------------------------------------------------------

    /// Stores a changed value in the ZAP of its class.
    fn put(
        &mut self,
        m: MosTx<'_>,
        table: Table,
        key: &DdtKey,
        found: &Found,
        mut value: DdtValue,
    ) -> Result<(), DslError> {
        let class = class_of(&value);
        if value.refcount() == 0 || class != found.class {
            m.zap(found.zap)?.remove_words(&key.to_words())?;
            self.drop_if_empty(m, table, found.class, found.zap)?;
        }
        if value.refcount() == 0 {
            return Ok(());
        }
        if class != found.class
            && let DdtValue::Flat { class_start, .. } = &mut value
        {
            *class_start = m.env.clock().wall().as_secs();
        }
        store(m, table, class, key, &value)?;
        self.count(m, table, class, key, &value, true)
    }

    fn drop_if_empty(
        &mut self,
        m: MosTx<'_>,
        table: Table,
        class: DdtClass,
        zap: ObjectId,
    ) -> Result<(), DslError> {
        if m.zap(zap)?.count()? > 0 {
            return Ok(());
        }
        let name = zap_name(table.checksum, class);
        m.zap(table.home)?.remove(name.as_bytes())?;
        m.free(zap)?;
        self.histograms.remove(&name);
        match m.entry(names::directory::DDT_STATISTICS)? {
            Some(id) => Ok(m.zap(id)?.remove_if_present(name.as_bytes()).map(|_| ())?),
            None => Ok(()),
        }
    }

    // ---- histograms -------------------------------------------------------------------------

    fn histogram(&mut self, m: MosTx<'_>, name: &str) -> Result<&mut DdtHistogram, DslError> {
        if !self.histograms.contains_key(name) {
            let stored = match m.entry(names::directory::DDT_STATISTICS)? {
                Some(id) => match m.zap(id)?.lookup(name.as_bytes())? {
                    Some(entry) => DdtHistogram::from_words(&entry.u64s()).map_err(DslError::decode(id))?,
                    None => DdtHistogram::default(),
                },
                None => DdtHistogram::default(),
            };
            self.histograms.insert(name.to_owned(), stored);
        }
        Ok(self.histograms.entry(name.to_owned()).or_default())
    }

    /// Adds an entry to the histogram of its class, or subtracts it.
    fn count(
        &mut self,
        m: MosTx<'_>,
        table: Table,
        class: DdtClass,
        key: &DdtKey,
        value: &DdtValue,
        more: bool,
    ) -> Result<(), DslError> {
        let histogram = self.histogram(m, &zap_name(table.checksum, class))?;
        for (bucket, stat) in stats(m, key, value) {
            if let Some(sum) = histogram.buckets.get_mut(bucket) {
                *sum = if more { sum.plus(&stat) } else { minus(sum, &stat) };
            }
        }
        Ok(())
    }

    /// Recomputes the histograms of a table from its entries.
    #[cfg(test)]
    pub(crate) fn recount_all(&mut self, m: MosTx<'_>, checksum: ChecksumId) -> Result<(), DslError> {
        let Some(table) = self.table(m, checksum)? else { return Ok(()) };
        DdtClass::ALL.into_iter().try_for_each(|class| self.recount(m, table, class))
    }

    /// Recomputes the histogram of a class from its entries.
    fn recount(&mut self, m: MosTx<'_>, table: Table, class: DdtClass) -> Result<(), DslError> {
        let name = zap_name(table.checksum, class);
        let Some(id) = class_zap(m, table, class)? else {
            self.histograms.remove(&name);
            return Ok(());
        };
        self.histograms.insert(name, DdtHistogram::default());
        for entry in mos::zap(&m.view(), id)?.entries() {
            let entry = entry?;
            let ZapKey::Words(words) = &entry.key else { return Err(mos::stored_value(id, &entry)) };
            let words = words.first_chunk::<KEY_WORDS>().ok_or_else(|| mos::stored_value(id, &entry))?;
            let value = unpack(id, &entry)?;
            self.count(m, table, class, &DdtKey::from_words(words), &value, true)?;
        }
        Ok(())
    }

    // ---- logs -------------------------------------------------------------------------------

    /// Flushes the logs of a table to its ZAPs.
    fn flush_logs(&mut self, m: MosTx<'_>, table: Table) -> Result<(), DslError> {
        let mut logs = Vec::new();
        for which in 0..2 {
            let found = m.zap(table.home)?.lookup_u64(log_name(table.checksum, which).as_bytes())?;
            let Some(id) = found.filter(|id| *id != 0).map(ObjectId) else { continue };
            let object = m.object(id)?;
            let order = object.read().order();
            let header =
                object.with_bonus(|bonus| LogHeader::decode(bonus, order)).map_err(DslError::decode(id))?;
            if header.length > 0 {
                logs.push((id, header));
            }
        }
        if logs.is_empty() {
            return Ok(());
        }
        // The active log is newer than the one being flushed.
        logs.sort_by_key(|(_, header)| !header.flushing);
        let mut newest: BTreeMap<[u64; KEY_WORDS], LogRecord> = BTreeMap::new();
        for (id, header) in &logs {
            read_log(m, *id, header, &mut newest)?;
        }
        for (words, record) in newest {
            for class in DdtClass::ALL {
                if let Some(zap) = class_zap(m, table, class)? {
                    m.zap(zap)?.remove_words_if_present(&words)?;
                }
            }
            if record.value.refcount() > 0 {
                store(m, table, class_of(&record.value), &record.key, &record.value)?;
            }
        }
        for (id, header) in logs {
            let empty = LogHeader { length: 0, first_txg: m.txg(), checkpoint: None, ..header };
            let object = m.object(id)?;
            object.free_range(0, u64::MAX, m.tx)?;
            object.set_bonus(&empty.encode(Endian::Little), m.tx);
        }
        for class in DdtClass::ALL {
            self.recount(m, table, class)?;
            if let Some(zap) = class_zap(m, table, class)? {
                self.drop_if_empty(m, table, class, zap)?;
            }
        }
        Ok(())
    }
}

fn read_log(
    m: MosTx<'_>,
    id: ObjectId,
    header: &LogHeader,
    newest: &mut BTreeMap<[u64; KEY_WORDS], LogRecord>,
) -> Result<(), DslError> {
    let object = m.object(id)?;
    let size = object.block_size();
    if header.length > LOG_MAX || header.length > (object.max_block().0 + 1) * size {
        let (found, expected) = (header.length, (object.max_block().0 + 1) * size);
        return Err(DslError::Mismatch { what: "length of a dedup log", object: id, found, expected });
    }
    for blkid in 0..header.length.div_ceil(size) {
        let hole = || object.read().corrupt("a hole in a dedup log");
        let block = object.block(BlockId(blkid))?.ok_or_else(hole)?;
        for record in log_records(block.bytes(), block.order()) {
            let record = record.map_err(DslError::decode(id))?;
            let words = record.key.to_words();
            if header.counts(&words) {
                newest.insert(words, record);
            }
        }
    }
    Ok(())
}

fn slots(value: &mut DdtValue) -> &mut [DdtPhys] {
    match value {
        DdtValue::Legacy(slots) => slots,
        DdtValue::Flat { phys, .. } => std::slice::from_mut(phys),
    }
}

/// The slot of the entry that a pointer was written from.
fn slot_of(value: &DdtValue, bp: &BlockPtr) -> Option<usize> {
    let words = bp.words();
    let is_same = |phys: &DdtPhys| {
        phys.dva_words.starts_with(words.get(..2).unwrap_or(&[])) && phys.birth == bp.physical_birth()
    };
    value.in_use().find(|(_, phys)| is_same(phys)).map(|(slot, _)| slot)
}

/// The block of a slot: it may have more copies than the last pointer to it.
fn stored_pointer(bp: &BlockPtr, phys: &DdtPhys) -> BlockPtr {
    let with_places = phys.dva_words.iter().enumerate().fold(*bp, |bp, (i, word)| bp.with_word(i, *word));
    with_places.with_word(9, phys.birth.0)
}

fn class_zap(m: MosTx<'_>, table: Table, class: DdtClass) -> Result<Option<ObjectId>, DslError> {
    let found = m.zap(table.home)?.lookup_u64(zap_name(table.checksum, class).as_bytes())?;
    Ok(found.filter(|id| *id != 0).map(ObjectId))
}

fn find(m: MosTx<'_>, table: Table, key: &DdtKey) -> Result<Option<Found>, DslError> {
    for class in DdtClass::ALL {
        let Some(zap) = class_zap(m, table, class)? else { continue };
        if let Some(entry) = m.zap(zap)?.lookup_words(&key.to_words())? {
            return Ok(Some(Found { class, zap, value: unpack(zap, &entry)? }));
        }
    }
    Ok(None)
}

/// Decodes the value of an entry of a dedup table.
///
/// # Errors
/// [`DslError::StoredValue`] or [`DslError::Decode`] if the entry has no such value.
pub fn unpack(zap: ObjectId, entry: &ZapEntry) -> Result<DdtValue, DslError> {
    let (packing, packed) = split_value(&entry.value).map_err(DslError::decode(zap))?;
    if packing.compression == CompressionId::Off {
        return DdtValue::decode(packed, packing.order).map_err(DslError::decode(zap));
    }
    // The size is not stored, but a value of one form does not unpack to the size of the other.
    for size in [FLAT_SIZE, LEGACY_SIZE] {
        let mut bytes = vec![0; size];
        if decompress(packing.compression, packed, &mut bytes).is_ok()
            && repack(&bytes).is_some_and(|again| again == packed)
        {
            return DdtValue::decode(&bytes, packing.order).map_err(DslError::decode(zap));
        }
    }
    Err(mos::stored_value(zap, entry))
}

fn repack(bytes: &[u8]) -> Option<Vec<u8>> {
    compress(CompressionId::Zle, ZLE_LEVEL, bytes, bytes.len())
}

fn store(
    m: MosTx<'_>,
    table: Table,
    class: DdtClass,
    key: &DdtKey,
    value: &DdtValue,
) -> Result<(), DslError> {
    let zap = match class_zap(m, table, class)? {
        Some(zap) => zap,
        None => {
            let new = NewObject { indirect_shift: ZAP_INDIRECT_SHIFT, ..NewObject::of(ObjType::DDT_ZAP) };
            let object = m.allocate(&new)?;
            // The checksums of all other algorithms are good hashes themselves.
            let hashed = if table.checksum == ChecksumId::Edonr { 0 } else { FLAG_PRE_HASHED_KEY };
            let flags = FLAG_HASH64 | FLAG_UINT64_KEY | hashed;
            object.create_fat_zap(m.tx, ZAP_SHIFT, m.env.random(), 0, flags)?;
            m.zap(table.home)?.insert(zap_name(table.checksum, class).as_bytes(), object.id().0)?;
            object.id()
        }
    };
    let plain = value.encode(Endian::Little);
    let (id, packed) = match repack(&plain) {
        Some(packed) if packed.len() < plain.len() => (CompressionId::Zle, packed),
        _ => (CompressionId::Off, plain),
    };
    let mut bytes = vec![Packing { compression: id, order: Endian::Little }.to_byte()];
    bytes.extend(packed);
    Ok(m.zap(zap)?.upsert_words(&key.to_words(), ZapValue::Bytes(&bytes))?)
}

/// The statistics that an entry adds to a histogram, by bucket.
fn stats(m: MosTx<'_>, key: &DdtKey, value: &DdtValue) -> Vec<(usize, DdtStat)> {
    let tree = m.zio().tree();
    value
        .in_use()
        .filter(|(_, phys)| phys.refcount > 0)
        .map(|(_, phys)| {
            let taken =
                phys.dvas().map(|dva| (dva.asize.0 / 512).saturating_mul(tree.deflate_ratio(dva.vdev)));
            let (lsize, psize, dsize) = (key.lsize().0, key.psize().0, taken.sum::<u64>());
            let times = |size: u64| size.saturating_mul(phys.refcount);
            let stat = DdtStat {
                blocks: 1,
                lsize,
                psize,
                dsize,
                ref_blocks: phys.refcount,
                ref_lsize: times(lsize),
                ref_psize: times(psize),
                ref_dsize: times(dsize),
            };
            (phys.refcount.ilog2() as usize, stat)
        })
        .collect()
}

fn minus(from: &DdtStat, stat: &DdtStat) -> DdtStat {
    DdtStat {
        blocks: from.blocks.saturating_sub(stat.blocks),
        lsize: from.lsize.saturating_sub(stat.lsize),
        psize: from.psize.saturating_sub(stat.psize),
        dsize: from.dsize.saturating_sub(stat.dsize),
        ref_blocks: from.ref_blocks.saturating_sub(stat.ref_blocks),
        ref_lsize: from.ref_lsize.saturating_sub(stat.ref_lsize),
        ref_psize: from.ref_psize.saturating_sub(stat.ref_psize),
        ref_dsize: from.ref_dsize.saturating_sub(stat.ref_dsize),
    }
}
