//! Dedup tables: a list of them, their sizes, and the space that they save (docs/on-disk/32-dedup-cloning.md,
//! section 2).

use crate::directory::Directory;
use crate::error::PoolError;
use crate::view::Pool;
use dmu::zap::{Zap, ZapKey};
use dmu::{ObjSet, Object};
use dsl::unpack_dedup_value;
use format::ddt::{
    ALGORITHMS, DdtClass, DdtHistogram, DdtKey, DdtStat, DdtValue, KEY_WORDS, LogHeader, directory_name,
    log_name, log_records, zap_name,
};
use format::names;
use format::{AllocOffset, BlockId, BlockPtr, ChecksumId, Dva, ObjectId, Txg, VdevId};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// The feature of tables with logs.
const FAST_DEDUP: &str = "fast_dedup";
/// The object directory, which names the ZAPs of classic tables.
const DIRECTORY: ObjectId = ObjectId(1);

/// The table of one checksum algorithm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DedupTable {
    /// Checksum algorithm of the entries.
    pub checksum: ChecksumId,
    /// Version and flags of a table with a log (`fast_dedup`); `None`: of the classic form.
    pub fast: Option<(u64, u64)>,
    /// The ZAP that names the ZAPs of the entries.
    pub home: ObjectId,
    /// ZAPs of the entries, by class.
    pub classes: Vec<(DdtClass, ObjectId)>,
    /// Objects of the dedup table's logs.
    pub logs: Vec<ObjectId>,
}

/// Bytes that deduplication saves.
pub fn saved(stat: &DdtStat) -> u64 {
    stat.ref_dsize.saturating_sub(stat.dsize)
}

/// Dedup ratio, in hundredths.
pub(crate) fn ratio(stat: &DdtStat) -> u64 {
    match (stat.ref_dsize, stat.dsize) {
        (0, _) | (_, 0) => 100,
        (referenced, taken) => {
            u64::try_from(u128::from(referenced) * 100 / u128::from(taken)).unwrap_or(u64::MAX)
        }
    }
}

/// Address of a block of a table: its first copy, and its birth.
type BlockAddress = (VdevId, AllocOffset, Txg);

/// The blocks of tables that have several copies.
#[derive(Debug, Default)]
pub struct DedupCopies(HashMap<BlockAddress, Vec<Dva>>);

impl DedupCopies {
    /// Adds the copies that the table has of a block to its pointer. A block of a fast table that was written
    /// with one copy and later with two has two copies, but older pointers have one address.
    #[must_use]
    pub fn complete(&self, bp: &BlockPtr) -> BlockPtr {
        let first = bp.dvas().next().filter(|_| bp.is_dedup());
        let place = first.map(|dva| (dva.vdev, dva.offset, bp.physical_birth()));
        let Some(copies) = place.and_then(|place| self.0.get(&place)) else { return *bp };
        copies.iter().enumerate().fold(*bp, |bp, (i, dva)| {
            let [place, position] = dva.to_words();
            bp.with_word(2 * i, place).with_word(2 * i + 1, position)
        })
    }

    fn add(&mut self, words: &[u64; KEY_WORDS], value: &DdtValue) {
        let DdtValue::Flat { phys, .. } = value else { return };
        // In pointers of encrypted blocks the third address has another use.
        let most = if DdtKey::from_words(words).is_encrypted() { 2 } else { 3 };
        let pairs = phys.dva_words.chunks_exact(2).take(most);
        let dva = |pair: &[u64]| Dva::from_words(*pair.first()?, *pair.get(1)?);
        let copies: Vec<Dva> = pairs.map_while(dva).collect();
        if let [first, _, ..] = copies[..] {
            self.0.insert((first.vdev, first.offset, phys.birth), copies);
        }
    }
}

/// The counted references of a block.
#[derive(Debug, Clone, Copy)]
struct Counted {
    /// Part of its key, to save memory.
    mark: u64,
    references: u64,
}

/// The part of a key that distinguishes a block from an earlier one at the same address.
fn mark(key: &DdtKey) -> u64 {
    key.checksum.0[0] ^ key.prop.rotate_left(24)
}

/// Number of references that the tables count for each block.
#[derive(Debug, Default)]
pub struct DedupCounts {
    blocks: HashMap<BlockAddress, Counted>,
    /// Algorithms with a table of the classic form.
    classic: Vec<ChecksumId>,
    /// Feature `fast_dedup` is enabled.
    is_fast_enabled: bool,
}

impl DedupCounts {
    /// Whether the tables have an entry of the block of this pointer, and not of another block at the same
    /// address.
    #[must_use]
    pub fn has(&self, bp: &BlockPtr) -> bool {
        let first = bp.dvas().next().filter(|_| bp.is_dedup());
        let place = first.map(|dva| (dva.vdev, dva.offset, bp.physical_birth()));
        let counted = place.and_then(|place| self.blocks.get(&place));
        counted.is_some_and(|counted| counted.mark == mark(&DdtKey::of(bp)))
    }

    /// Whether a block with a single deduplicated pointer may lack an entry: entries of fast tables can be
    /// pruned.
    #[must_use]
    pub fn may_lack(&self, checksum: ChecksumId) -> bool {
        self.is_fast_enabled && !self.classic.contains(&checksum)
    }

    /// Every block with an entry: its address, its birth, and its counted references.
    pub fn iter(&self) -> impl Iterator<Item = (VdevId, AllocOffset, Txg, u64)> + '_ {
        self.blocks.iter().map(|((vdev, offset, birth), one)| (*vdev, *offset, *birth, one.references))
    }

    fn add(&mut self, words: &[u64; KEY_WORDS], value: &DdtValue) {
        let mark = mark(&DdtKey::from_words(words));
        for (_, phys) in value.in_use() {
            if let Some(first) = phys.dvas().next() {
                let none = Counted { mark, references: 0 };
                let counted = self.blocks.entry((first.vdev, first.offset, phys.birth)).or_insert(none);
                // Two entries of one block are two counts of it.
                counted.references = counted.references.saturating_add(phys.refcount);
            }
        }
    }
}

/// The valid values in a log: the newest of each key, without those before its checkpoint, which are in the
/// ZAPs.
fn logged(log: &Object) -> Result<BTreeMap<[u64; KEY_WORDS], DdtValue>, PoolError> {
    let decode = |cause| PoolError::Decode { object: log.id(), cause };
    let header = log_header(log)?;
    let mut newest = BTreeMap::new();
    let blocks = header.length.div_ceil(log.block_size().max(1)).min(log.dnode().maxblkid.0 + 1);
    for blkid in 0..blocks {
        let Some(block) = log.block(BlockId(blkid))? else { continue };
        for record in log_records(block.bytes(), block.order()) {
            let record = record.map_err(decode)?;
            let words = record.key.to_words();
            if header.counts(&words) {
                newest.insert(words, record.value);
            }
        }
    }
    Ok(newest)
}

fn log_header(log: &Object) -> Result<LogHeader, PoolError> {
    let decode = |cause| PoolError::Decode { object: log.id(), cause };
    LogHeader::decode(log.bonus(), log.order()).map_err(decode)
}

type Find<'a> = dyn Fn(&str) -> Result<Option<ObjectId>, PoolError> + 'a;

fn classes(find: &Find<'_>, checksum: ChecksumId) -> Result<Vec<(DdtClass, ObjectId)>, PoolError> {
    let mut found = Vec::new();
    for class in DdtClass::ALL {
        if let Some(id) = find(&zap_name(checksum, class))? {
            found.push((class, id));
        }
    }
    Ok(found)
}

pub(crate) fn tables(directory: &Directory) -> Result<Vec<DedupTable>, PoolError> {
    let mut tables = Vec::new();
    for checksum in ALGORITHMS {
        if let Some((home, zap)) = directory.zap(&directory_name(checksum))? {
            let number = |name: &str| -> Result<Option<u64>, PoolError> {
                Ok(zap.lookup(name.as_bytes())?.and_then(|entry| entry.u64()))
            };
            let object = |name: &str| Ok(number(name)?.filter(|id| *id != 0).map(ObjectId));
            let mut logs = Vec::new();
            for which in 0..2 {
                logs.extend(object(&log_name(checksum, which))?);
            }
            let fast = Some((
                number(names::dedup_table::VERSION)?.unwrap_or(0),
                number(names::dedup_table::FLAGS)?.unwrap_or(0),
            ));
            tables.push(DedupTable { checksum, fast, home, classes: classes(&object, checksum)?, logs });
        } else {
            let classes = classes(&|name| directory.object(name), checksum)?;
            if !classes.is_empty() {
                tables.push(DedupTable { checksum, fast: None, home: DIRECTORY, classes, logs: Vec::new() });
            }
        }
    }
    Ok(tables)
}

fn histogram_of(
    directory: &Directory,
    checksum: ChecksumId,
    class: DdtClass,
) -> Result<DdtHistogram, PoolError> {
    let Some((id, zap)) = directory.zap(names::directory::DDT_STATISTICS)? else {
        return Ok(DdtHistogram::default());
    };
    match zap.lookup(zap_name(checksum, class).as_bytes())? {
        Some(entry) => DdtHistogram::from_words(&entry.u64s()).map_err(PoolError::decode(id)),
        None => Ok(DdtHistogram::default()),
    }
}

/// The histograms of all tables together.
pub(crate) fn histogram(directory: &Directory) -> Result<DdtHistogram, PoolError> {
    let mut sum = DdtHistogram::default();
    for table in tables(directory)? {
        for (class, _) in &table.classes {
            let one = histogram_of(directory, table.checksum, *class)?;
            for (bucket, other) in sum.buckets.iter_mut().zip(&one.buckets) {
                *bucket = bucket.plus(other);
            }
        }
    }
    Ok(sum)
}

/// Allocated bytes of the tables themselves.
fn table_size(mos: &Arc<ObjSet>, tables: &[DedupTable]) -> Result<u64, PoolError> {
    let mut bytes = 0_u64;
    for table in tables {
        for id in table.classes.iter().map(|(_, id)| id).chain(&table.logs) {
            bytes = bytes.saturating_add(mos.object(*id)?.dnode().used_bytes());
        }
    }
    Ok(bytes)
}

impl Pool {
    /// The dedup tables of the pool, by algorithm.
    ///
    /// # Errors
    /// [`PoolError::Dmu`] if an object of the MOS cannot be read, [`PoolError::Decode`], [`PoolError::Dsl`]
    /// or [`PoolError::Directory`] if it is malformed.
    pub fn dedup_tables(&self) -> Result<Vec<DedupTable>, PoolError> {
        tables(self.directory())
    }

    /// The histogram of one class of a table, as last stored.
    ///
    /// # Errors
    /// [`PoolError::Dmu`] if an object of the MOS cannot be read, [`PoolError::Decode`], [`PoolError::Dsl`]
    /// or [`PoolError::Directory`] if it is malformed.
    pub fn dedup_class_histogram(
        &self,
        checksum: ChecksumId,
        class: DdtClass,
    ) -> Result<DdtHistogram, PoolError> {
        histogram_of(self.directory(), checksum, class)
    }

    /// The histogram of all tables together.
    ///
    /// # Errors
    /// [`PoolError::Dmu`] if an object of the MOS cannot be read, [`PoolError::Decode`], [`PoolError::Dsl`]
    /// or [`PoolError::Directory`] if it is malformed.
    pub fn dedup_histogram(&self) -> Result<DdtHistogram, PoolError> {
        histogram(self.directory())
    }

    /// Bytes that the tables and their logs take.
    ///
    /// # Errors
    /// [`PoolError::Dmu`] if an object of the MOS cannot be read, [`PoolError::Decode`], [`PoolError::Dsl`]
    /// or [`PoolError::Directory`] if it is malformed.
    pub fn dedup_table_size(&self) -> Result<u64, PoolError> {
        table_size(self.mos(), &self.dedup_tables()?)
    }

    /// The blocks that have several copies in fast tables.
    ///
    /// # Errors
    /// [`PoolError::Dmu`] if an object of the MOS cannot be read, [`PoolError::Decode`], [`PoolError::Dsl`]
    /// or [`PoolError::Directory`] if it is malformed.
    pub fn dedup_copies(&self) -> Result<DedupCopies, PoolError> {
        let mut copies = DedupCopies::default();
        for table in self.dedup_tables()?.iter().filter(|table| table.fast.is_some()) {
            for (_, id) in &table.classes {
                for entry in Zap::open(&self.mos().object(*id)?)?.entries() {
                    let entry = entry?;
                    if let ZapKey::Words(words) = &entry.key
                        && let Ok(words) = words.as_slice().try_into()
                    {
                        copies.add(words, &unpack_dedup_value(*id, &entry)?);
                    }
                }
            }
            // Of two values for one place, the one with more copies is the later one.
            for id in &table.logs {
                logged(&self.mos().object(*id)?)?.iter().for_each(|(words, value)| copies.add(words, value));
            }
        }
        Ok(copies)
    }

    /// The references that the tables count for each block, logs included. Takes some tens of bytes for each
    /// entry.
    ///
    /// # Errors
    /// If a table cannot be read.
    pub fn dedup_counts(&self) -> Result<DedupCounts, PoolError> {
        let is_fast_enabled = self.features().is_enabled(FAST_DEDUP);
        let mut counts = DedupCounts { is_fast_enabled, ..DedupCounts::default() };
        for table in self.dedup_tables()? {
            if table.fast.is_none() {
                counts.classic.push(table.checksum);
            }
            let mut logs = Vec::new();
            for id in &table.logs {
                let log = self.mos().object(*id)?;
                logs.push((log_header(&log)?, log));
            }
            // The active log is newer than the one that is being flushed, and both are newer than the ZAPs.
            logs.sort_by_key(|(header, _)| !header.flushing);
            let mut newest = BTreeMap::new();
            for (_, log) in &logs {
                newest.append(&mut logged(log)?);
            }
            for (_, id) in &table.classes {
                self.each_dedup_entry(*id, &mut |_, key, value| {
                    let words = key.to_words();
                    if !newest.contains_key(&words) {
                        counts.add(&words, &value);
                    }
                })?;
            }
            let kept = newest.iter().filter(|(_, value)| value.refcount() > 0);
            kept.for_each(|(words, value)| counts.add(words, value));
        }
        Ok(counts)
    }

    /// Calls `visit` with every entry of the ZAP of a class of a table, in the order of the ZAP, and the
    /// position behind it.
    ///
    /// # Errors
    /// [`PoolError::Dmu`] if an object of the MOS cannot be read, [`PoolError::Decode`], [`PoolError::Dsl`]
    /// or [`PoolError::Directory`] if it is malformed.
    pub fn each_dedup_entry(
        &self,
        zap: ObjectId,
        visit: &mut dyn FnMut(u64, DdtKey, DdtValue),
    ) -> Result<(), PoolError> {
        for entry in Zap::open(&self.mos().object(zap)?)?.entries() {
            let entry = entry?;
            if let ZapKey::Words(words) = &entry.key
                && let Ok(words) = words.as_slice().try_into()
            {
                visit(entry.cursor, DdtKey::from_words(words), unpack_dedup_value(zap, &entry)?);
            }
        }
        Ok(())
    }

    /// The header of a log of a fast table, and how many keys in it count.
    ///
    /// # Errors
    /// [`PoolError::Dmu`] if an object of the MOS cannot be read, [`PoolError::Decode`], [`PoolError::Dsl`]
    /// or [`PoolError::Directory`] if it is malformed.
    pub fn dedup_log(&self, log: ObjectId) -> Result<(LogHeader, usize), PoolError> {
        let log = self.mos().object(log)?;
        Ok((log_header(&log)?, logged(&log)?.len()))
    }

    /// Number of entries in the ZAP of a class of a table.
    ///
    /// # Errors
    /// [`PoolError::Dmu`] if an object of the MOS cannot be read, [`PoolError::Decode`], [`PoolError::Dsl`]
    /// or [`PoolError::Directory`] if it is malformed.
    pub fn dedup_entries(&self, zap: ObjectId) -> Result<u64, PoolError> {
        Ok(Zap::open(&self.mos().object(zap)?)?.count()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use format::Asize;
    use format::ddt::DdtPhys;

    fn dva(offset: u64) -> Dva {
        Dva { vdev: VdevId(0), offset: AllocOffset(offset), asize: Asize(512), gang: false }
    }

    /// A shared pointer that was made when its block had one copy.
    fn pointer(encrypted: bool) -> BlockPtr {
        let [place, position] = dva(0x1000).to_words();
        let prop = 1 << 62 | u64::from(encrypted) << 61 | u64::from(format::ObjType::PLAIN_FILE.id()) << 48;
        let salt = u64::from(encrypted) * 0x0000_0700_0000_0009;
        BlockPtr::from_words([place, position, 0, 0, salt, salt, prop, 0, 0, 133, 191, 1, 1, 2, 3, 4])
    }

    /// `ztest` wrote a block with one copy, then again with two: the second copy belongs to both pointers.
    #[test]
    fn a_shared_block_has_the_copies_that_its_table_knows() {
        for encrypted in [false, true] {
            let bp = pointer(encrypted);
            assert_eq!((bp.is_dedup(), bp.uses_crypt()), (true, encrypted));
            let words = DdtKey::of(&bp).to_words();
            let entry = |dvas: [[u64; 2]; 3], birth: u64| {
                let [[a, b], [c, d], [e, f]] = dvas;
                let phys = DdtPhys { dva_words: [a, b, c, d, e, f], refcount: 3, birth: Txg(birth) };
                DdtValue::Flat { phys, class_start: 0 }
            };
            // The words after the copies of an encrypted block look like an address.
            let secret = [0xb29d_a9ec_71a6_162a, 0x7be0_faa7_121a_3461];
            let last = if encrypted { secret } else { [0, 0] };
            let mut copies = DedupCopies::default();
            copies.add(&words, &entry([dva(0x1000).to_words(), [0, 0], last], 133));
            assert_eq!(copies.complete(&bp), bp, "one copy is all there is");
            copies.add(&words, &entry([dva(0x1000).to_words(), dva(0x2000).to_words(), last], 133));
            let whole = copies.complete(&bp);
            assert_eq!(whole.dvas().collect::<Vec<_>>(), [dva(0x1000), dva(0x2000)]);
            assert_eq!(whole.words()[4..], bp.words()[4..]);
            // A later block in the same place is another block.
            let later = bp.with_word(9, 134);
            assert_eq!(copies.complete(&later), later);
            assert_eq!(copies.complete(&bp.with_prop_bits(62, 1, 0)).dvas().count(), 1);
        }
    }

    #[test]
    fn ratio_and_savings() {
        let stat = DdtStat { dsize: 512, ref_dsize: 1792, ..DdtStat::default() };
        assert_eq!((saved(&stat), ratio(&stat)), (1280, 350));
        assert_eq!(ratio(&DdtStat::default()), 100);
    }
}
