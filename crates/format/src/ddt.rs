//! Dedup tables (docs/on-disk/32-dedup-cloning.md, section 2).
//!
//! A table is a ZAP, or since fast dedup a ZAP and two logs. Keys have five words. Values are compressed, so
//! decoding takes two steps: [`split_value`] returns the algorithm, and [`DdtValue::decode`] decodes the
//! decompressed value.

use crate::endian::{bits, with_bits};
use crate::{BlockPtr, Checksum, ChecksumId, CompressionId, DecodeError, Dva, Endian, Lsize, Psize, Txg};

/// Number of 64-bit words in a stored key.
pub const KEY_WORDS: usize = 5;
/// Size of a key in a log, in bytes.
pub(crate) const KEY_SIZE: usize = 8 * KEY_WORDS;
/// Size of a decompressed value of a legacy table, in bytes.
pub const LEGACY_SIZE: usize = 256;
/// Size of a decompressed value of a fast table, in bytes.
pub const FLAT_SIZE: usize = 72;
/// Size of the header of a log, in bytes.
#[cfg(test)]
pub(crate) const LOG_HEADER_SIZE: usize = 64;
/// Number of 64-bit words in a stored histogram.
pub(crate) const HISTOGRAM_WORDS: usize = 512;

/// Table flag: values have the flat form.
pub const FLAG_FLAT: u64 = 1;
/// Table flag: the table has logs.
pub const FLAG_LOG: u64 = 2;

const WHAT: &str = "dedup table";

/// Class of the entries in a ZAP of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DdtClass {
    /// Additional copies; not written any more.
    Ditto,
    /// Entries that are referenced more than once.
    Duplicate,
    /// Entries that are referenced once.
    Unique,
}

impl DdtClass {
    /// All classes, in the order in which they are searched.
    pub const ALL: [DdtClass; 3] = [DdtClass::Ditto, DdtClass::Duplicate, DdtClass::Unique];

    /// The last part of the name of the class's ZAP.
    pub(crate) fn name(self) -> &'static str {
        match self {
            DdtClass::Ditto => "ditto",
            DdtClass::Duplicate => "duplicate",
            DdtClass::Unique => "unique",
        }
    }
}

/// The algorithms that can have a table.
pub const ALGORITHMS: [ChecksumId; 5] =
    [ChecksumId::Sha256, ChecksumId::Sha512, ChecksumId::Skein, ChecksumId::Edonr, ChecksumId::Blake3];

/// The MOS directory entry of a fast table.
pub fn directory_name(checksum: ChecksumId) -> String {
    format!("DDT-{checksum}")
}

/// The name of a ZAP of a table.
pub fn zap_name(checksum: ChecksumId, class: DdtClass) -> String {
    format!("DDT-{checksum}-zap-{}", class.name())
}

/// The name of one of the two logs of a fast table.
pub fn log_name(checksum: ChecksumId, which: u8) -> String {
    format!("DDT-log-{checksum}-{which}")
}

/// The key of an entry, which identifies a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DdtKey {
    /// The checksum, as in the pointer.
    pub checksum: Checksum,
    /// Sizes, compression and encryption, packed.
    pub prop: u64,
}

impl DdtKey {
    /// Decodes a key from its stored words.
    pub fn from_words(words: &[u64; KEY_WORDS]) -> DdtKey {
        let [a, b, c, d, prop] = *words;
        DdtKey { checksum: Checksum([a, b, c, d]), prop }
    }

    /// Encodes the key as stored words.
    pub fn to_words(self) -> [u64; KEY_WORDS] {
        let [a, b, c, d] = self.checksum.0;
        [a, b, c, d, self.prop]
    }

    /// The key of the block that a pointer refers to.
    pub fn of(bp: &BlockPtr) -> DdtKey {
        // Sizes and compression are at the same bits in both words.
        let prop = with_bits(bits(bp.prop(), 0, 39), 39, 1, u64::from(bp.uses_crypt()));
        DdtKey { checksum: bp.checksum(), prop }
    }

    /// Logical size: bytes before compression.
    pub fn lsize(&self) -> Lsize {
        Lsize((bits(self.prop, 0, 16) + 1) << 9)
    }

    /// Physical size: bytes after compression.
    pub fn psize(&self) -> Psize {
        Psize((bits(self.prop, 16, 16) + 1) << 9)
    }

    /// The number of the compression algorithm.
    #[cfg(test)]
    pub(crate) fn compression_id(&self) -> u8 {
        bits(self.prop, 32, 7) as u8
    }

    /// Whether the block is encrypted.
    pub fn is_encrypted(&self) -> bool {
        bits(self.prop, 39, 1) == 1
    }
}

/// Compression and byte order of a value in a ZAP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packing {
    /// Compression of the bytes after the first: none or ZLE.
    pub compression: CompressionId,
    /// Byte order of the words after decompression.
    pub order: Endian,
}

/// Bit of the first byte of a value that was written by a little-endian host.
const LITTLE: u8 = 0x80;

impl Packing {
    /// The first byte of a value that is packed in this way.
    pub fn to_byte(self) -> u8 {
        let order = if self.order == Endian::Little { LITTLE } else { 0 };
        self.compression.id() | order
    }
}

/// Splits a value into its packing and the packed bytes.
///
/// # Errors
/// [`DecodeError::Invalid`] if the value is empty; [`DecodeError::Field`] if its algorithm is not known.
pub fn split_value(value: &[u8]) -> Result<(Packing, &[u8]), DecodeError> {
    let (first, packed) = value.split_first().ok_or(DecodeError::invalid(WHAT, "an empty value"))?;
    let order = if first & LITTLE != 0 { Endian::Little } else { Endian::Big };
    let compression = CompressionId::from_id(first & !LITTLE)?;
    if !matches!(compression, CompressionId::Off | CompressionId::Zle) {
        return Err(DecodeError::field(WHAT, "compression", first & !LITTLE));
    }
    Ok((Packing { compression, order }, packed))
}

/// Location and reference count of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DdtPhys {
    /// Addresses of the copies, as words of a block pointer.
    pub dva_words: [u64; 6],
    /// Number of references to the block.
    pub refcount: u64,
    /// Physical birth; 0: the slot is not in use.
    pub birth: Txg,
}

impl DdtPhys {
    fn from_words(words: [u64; 8]) -> DdtPhys {
        let [dva_words @ .., refcount, birth] = words;
        DdtPhys { dva_words, refcount, birth: Txg(birth) }
    }

    fn words(&self) -> impl Iterator<Item = u64> {
        self.dva_words.into_iter().chain([self.refcount, self.birth.0])
    }

    /// Addresses of the copies of the block.
    pub fn dvas(&self) -> impl Iterator<Item = Dva> + '_ {
        self.dva_words.chunks_exact(2).filter_map(|pair| match pair {
            [place, position] => Dva::from_words(*place, *position),
            _ => None,
        })
    }
}

/// The value of an entry, after its outer compression was removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DdtValue {
    /// Value of a legacy table: slot `n` is for blocks written with `n` copies; slot 0 is obsolete.
    Legacy([DdtPhys; 4]),
    /// A value of a table with feature `fast_dedup`: one record for all copies.
    Flat {
        /// Addresses, birth and reference count of the block.
        phys: DdtPhys,
        /// Seconds since 1970 when the entry entered its class.
        class_start: u64,
    },
}

impl DdtValue {
    /// Decodes a decompressed value; its size determines its form.
    ///
    /// # Errors
    /// [`DecodeError::Field`] if no form has this size.
    pub fn decode(bytes: &[u8], order: Endian) -> Result<DdtValue, DecodeError> {
        match bytes.len() {
            LEGACY_SIZE => {
                let mut slots = [DdtPhys::default(); 4];
                for (i, slot) in slots.iter_mut().enumerate() {
                    *slot = DdtPhys::from_words(order.words(WHAT, bytes, 64 * i)?);
                }
                Ok(DdtValue::Legacy(slots))
            }
            FLAT_SIZE => Ok(DdtValue::Flat {
                phys: DdtPhys::from_words(order.words(WHAT, bytes, 0)?),
                class_start: order.u64(WHAT, bytes, 64)?,
            }),
            other => Err(DecodeError::field(WHAT, "size of a value", other as u64)),
        }
    }

    /// Encodes the value without the outer compression.
    pub fn encode(&self, order: Endian) -> Vec<u8> {
        let words: Vec<u64> = match self {
            DdtValue::Legacy(slots) => slots.iter().flat_map(DdtPhys::words).collect(),
            DdtValue::Flat { phys, class_start } => phys.words().chain([*class_start]).collect(),
        };
        words.into_iter().flat_map(|word| order.put_u64(word)).collect()
    }

    /// The slots in use, with their number of copies (legacy) or 0 (flat).
    pub fn in_use(&self) -> impl Iterator<Item = (usize, &DdtPhys)> {
        let slots: &[DdtPhys] = match self {
            DdtValue::Legacy(slots) => slots,
            DdtValue::Flat { phys, .. } => std::slice::from_ref(phys),
        };
        slots.iter().enumerate().filter(|(_, slot)| slot.birth.0 != 0)
    }

    /// Sum of the reference counts of all slots.
    pub fn refcount(&self) -> u64 {
        self.in_use().fold(0, |sum, (_, slot)| sum.saturating_add(slot.refcount))
    }
}

/// The bonus of a dedup log object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogHeader {
    /// True if this log is being flushed; false if it is the active one.
    pub flushing: bool,
    /// Size of the records in bytes, in whole blocks.
    pub length: u64,
    /// First txg of the log.
    pub first_txg: Txg,
    /// Keys up to this one have been flushed already.
    pub checkpoint: Option<DdtKey>,
}

/// Version of the log format.
const LOG_VERSION: u64 = 1;
const LOG_FLUSHING: u64 = 1;
const LOG_CHECKPOINT: u64 = 2;

impl LogHeader {
    /// True if a record with this key is still valid. Records with keys up to the checkpoint are already in the
    /// ZAPs.
    pub fn counts(&self, key: &[u64; KEY_WORDS]) -> bool {
        self.checkpoint.is_none_or(|done| *key > done.to_words())
    }

    /// Reads the bonus, 64 bytes.
    ///
    /// # Errors
    /// [`DecodeError::Short`]; [`DecodeError::Field`] for an unknown version or unknown flags.
    pub fn decode(bytes: &[u8], order: Endian) -> Result<LogHeader, DecodeError> {
        let [info, length, first_txg] = order.words(WHAT, bytes, 0)?;
        let key = order.words(WHAT, bytes, 24)?;
        if bits(info, 0, 8) != LOG_VERSION {
            return Err(DecodeError::field(WHAT, "version of a log", bits(info, 0, 8)));
        }
        let flags = bits(info, 8, 8);
        if flags & !(LOG_FLUSHING | LOG_CHECKPOINT) != 0 {
            return Err(DecodeError::field(WHAT, "flags of a log", flags));
        }
        Ok(LogHeader {
            flushing: flags & LOG_FLUSHING != 0,
            length,
            first_txg: Txg(first_txg),
            checkpoint: (flags & LOG_CHECKPOINT != 0).then(|| DdtKey::from_words(&key)),
        })
    }

    /// The bonus in 64 bytes.
    pub fn encode(&self, order: Endian) -> Vec<u8> {
        let mut flags = if self.flushing { LOG_FLUSHING } else { 0 };
        flags |= if self.checkpoint.is_some() { LOG_CHECKPOINT } else { 0 };
        let key = self.checkpoint.map_or([0; KEY_WORDS], DdtKey::to_words);
        let head = [with_bits(LOG_VERSION, 8, 8, flags), self.length, self.first_txg.0];
        head.into_iter().chain(key).flat_map(|word| order.put_u64(word)).collect()
    }
}

/// A record of a log: the newest value of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogRecord {
    /// The key: checksum and properties of the block.
    pub key: DdtKey,
    /// The value of the entry at the time of the record.
    pub value: DdtValue,
    /// The class whose ZAP has an older value of the entry; `None`: no ZAP has one.
    pub stored_in: Option<DdtClass>,
}

/// Types of log records: end of the block, and entry.
const RECORD_END: u64 = 0;
const RECORD_ENTRY: u64 = 1;

impl LogRecord {
    fn decode(info: u64, bytes: &[u8], order: Endian) -> Result<LogRecord, DecodeError> {
        let stored_in = match (bits(info, 48, 8), bits(info, 56, 8)) {
            (0, 0) => Some(DdtClass::Ditto),
            (0, 1) => Some(DdtClass::Duplicate),
            (0, 2) => Some(DdtClass::Unique),
            (1, 3) => None,
            (_, class) => return Err(DecodeError::field(WHAT, "class of a log record", class)),
        };
        let value = bytes.get(8 + KEY_SIZE..).unwrap_or(&[]);
        Ok(LogRecord {
            key: DdtKey::from_words(&order.words(WHAT, bytes, 8)?),
            value: DdtValue::decode(value, order)?,
            stored_in,
        })
    }

    /// The bytes of the record.
    pub fn encode(&self, order: Endian) -> Vec<u8> {
        let value = self.value.encode(order);
        let (storage, class) = match self.stored_in {
            Some(class) => (0, class as u64),
            None => (1, 3),
        };
        let info = with_bits(RECORD_ENTRY, 8, 16, (8 + KEY_SIZE + value.len()) as u64);
        let info = with_bits(with_bits(info, 48, 8, storage), 56, 8, class);
        let mut out = order.put_u64(info).to_vec();
        out.extend(self.key.to_words().into_iter().flat_map(|word| order.put_u64(word)));
        out.extend(value);
        out
    }
}

/// Iterator over the records of one block of a log. Ends after an error.
#[derive(Debug, Clone)]
pub struct LogRecords<'a> {
    rest: &'a [u8],
    order: Endian,
}

/// The records of one block of a log.
pub fn log_records(block: &[u8], order: Endian) -> LogRecords<'_> {
    LogRecords { rest: block, order }
}

impl LogRecords<'_> {
    fn record(&mut self, info: u64) -> Result<LogRecord, DecodeError> {
        if bits(info, 0, 8) != RECORD_ENTRY {
            return Err(DecodeError::field(WHAT, "type of a log record", bits(info, 0, 8)));
        }
        let len = bits(info, 8, 16) as usize;
        let (record, rest) = self.rest.split_at_checked(len).ok_or(DecodeError::Short {
            what: WHAT,
            needed: len,
            have: self.rest.len(),
        })?;
        let decoded = LogRecord::decode(info, record, self.order)?;
        self.rest = rest;
        Ok(decoded)
    }
}

impl Iterator for LogRecords<'_> {
    type Item = Result<LogRecord, DecodeError>;

    fn next(&mut self) -> Option<Result<LogRecord, DecodeError>> {
        let info = self.order.get_u64(self.rest, 0)?;
        if bits(info, 0, 8) == RECORD_END {
            return None;
        }
        let record = self.record(info);
        if record.is_err() {
            self.rest = &[];
        }
        Some(record)
    }
}

/// One bucket of a histogram: blocks with 2^n to 2^(n+1) - 1 references.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DdtStat {
    /// Number of blocks counted.
    pub blocks: u64,
    /// Logical bytes of the blocks, before compression.
    pub lsize: u64,
    /// Physical bytes of the blocks, after compression.
    pub psize: u64,
    /// Bytes that are allocated on the devices, all copies included.
    pub dsize: u64,
    /// Number of references to the blocks.
    pub ref_blocks: u64,
    /// Bytes before compression, each reference counted.
    pub ref_lsize: u64,
    /// Bytes after compression, each reference counted.
    pub ref_psize: u64,
    /// Bytes that would be allocated without deduplication.
    pub ref_dsize: u64,
}

impl DdtStat {
    /// The sum of two buckets; saturates.
    pub fn plus(&self, other: &DdtStat) -> DdtStat {
        DdtStat {
            blocks: self.blocks.saturating_add(other.blocks),
            lsize: self.lsize.saturating_add(other.lsize),
            psize: self.psize.saturating_add(other.psize),
            dsize: self.dsize.saturating_add(other.dsize),
            ref_blocks: self.ref_blocks.saturating_add(other.ref_blocks),
            ref_lsize: self.ref_lsize.saturating_add(other.ref_lsize),
            ref_psize: self.ref_psize.saturating_add(other.ref_psize),
            ref_dsize: self.ref_dsize.saturating_add(other.ref_dsize),
        }
    }
}

/// Counts of a table by number of references.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DdtHistogram {
    /// Bucket `n` counts blocks with 2^n references or more.
    pub buckets: [DdtStat; 64],
}

impl Default for DdtHistogram {
    fn default() -> DdtHistogram {
        DdtHistogram { buckets: [DdtStat::default(); 64] }
    }
}

impl DdtHistogram {
    /// From the words of a `DDT-statistics` entry.
    ///
    /// # Errors
    /// [`DecodeError::Short`] if words are missing.
    pub fn from_words(words: &[u64]) -> Result<DdtHistogram, DecodeError> {
        DecodeError::need("dedup histogram", HISTOGRAM_WORDS, words.len())?;
        let mut histogram = DdtHistogram::default();
        let (chunks, _) = words.as_chunks::<8>();
        for (bucket, chunk) in histogram.buckets.iter_mut().zip(chunks) {
            let [blocks, lsize, psize, dsize, ref_blocks, ref_lsize, ref_psize, ref_dsize] = *chunk;
            *bucket = DdtStat { blocks, lsize, psize, dsize, ref_blocks, ref_lsize, ref_psize, ref_dsize };
        }
        Ok(histogram)
    }

    /// The words of a `DDT-statistics` entry.
    pub fn to_words(&self) -> Vec<u64> {
        self.buckets
            .iter()
            .flat_map(|b| {
                [b.blocks, b.lsize, b.psize, b.dsize, b.ref_blocks, b.ref_lsize, b.ref_psize, b.ref_dsize]
            })
            .collect()
    }

    /// The sums of all buckets.
    pub fn total(&self) -> DdtStat {
        self.buckets.iter().fold(DdtStat::default(), |sum, bucket| sum.plus(bucket))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn phys(n: u64) -> DdtPhys {
        DdtPhys { dva_words: [(n << 32) | 8, 77, 0, 0, 0, 0], refcount: n, birth: Txg(n) }
    }

    fn key(n: u64) -> DdtKey {
        DdtKey { checksum: Checksum([n, 2, 3, 4]), prop: 0x85_000f_00ff }
    }

    #[test]
    fn keys_come_from_pointers() {
        let bp = BlockPtr::HOLE.with_word(6, 0xc013_080f_000f_00ff).with_word(12, 9);
        let key = DdtKey::of(&bp);
        assert_eq!((key.lsize(), key.psize()), (Lsize(131_072), Psize(8192)));
        assert_eq!((key.compression_id(), key.is_encrypted()), (15, false));
        assert_eq!(DdtKey::from_words(&key.to_words()), key);
        assert!(DdtKey::of(&bp.with_prop_bits(61, 1, 1)).is_encrypted());
    }

    #[test]
    fn packing_of_values() {
        let (packing, rest) = split_value(&[0x8e, 1, 2]).unwrap();
        assert_eq!(
            (packing.compression, packing.order, rest),
            (CompressionId::Zle, Endian::Little, &[1, 2][..])
        );
        assert_eq!(split_value(&[0x02]).unwrap().0.order, Endian::Big);
        assert!(split_value(&[]).is_err());
        assert!(split_value(&[0x8f]).is_err());
    }

    #[test]
    fn values_of_both_forms() {
        let legacy = DdtValue::Legacy([DdtPhys::default(), phys(3), phys(4), DdtPhys::default()]);
        let flat = DdtValue::Flat { phys: phys(5), class_start: 1_700_000_000 };
        for order in [Endian::Little, Endian::Big] {
            for value in [legacy, flat] {
                assert_eq!(DdtValue::decode(&value.encode(order), order), Ok(value));
            }
        }
        assert_eq!((legacy.refcount(), flat.refcount()), (7, 5));
        assert_eq!(legacy.in_use().map(|(copies, _)| copies).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(phys(2).dvas().map(|dva| dva.vdev.0).collect::<Vec<_>>(), [2]);
        assert!(DdtValue::decode(&[0; 100], Endian::Little).is_err());
    }

    #[test]
    fn logs_end_at_zeros_and_refuse_the_unknown() {
        let records = [
            LogRecord {
                key: key(1),
                value: DdtValue::Flat { phys: phys(1), class_start: 5 },
                stored_in: None,
            },
            LogRecord {
                key: key(2),
                value: DdtValue::Flat { phys: phys(2), class_start: 6 },
                stored_in: Some(DdtClass::Unique),
            },
        ];
        let mut block: Vec<u8> = records.iter().flat_map(|r| r.encode(Endian::Little)).collect();
        assert_eq!(block.len(), 240);
        block.resize(512, 0);
        let read: Vec<LogRecord> = log_records(&block, Endian::Little).map(Result::unwrap).collect();
        assert_eq!(read, records);
        block[120] = 2;
        assert!(log_records(&block, Endian::Little).last().unwrap().is_err());
        assert!(log_records(&block[..100], Endian::Little).last().unwrap().is_err());
    }

    #[test]
    fn log_headers() {
        for checkpoint in [None, Some(key(7))] {
            let header = LogHeader { flushing: true, length: 131_072, first_txg: Txg(9), checkpoint };
            let bytes = header.encode(Endian::Big);
            assert_eq!(bytes.len(), LOG_HEADER_SIZE);
            assert_eq!(LogHeader::decode(&bytes, Endian::Big), Ok(header));
        }
        assert!(LogHeader::decode(&[0; 64], Endian::Little).is_err());
    }

    #[test]
    fn histograms() {
        let words: Vec<u64> = (0..512).collect();
        let histogram = DdtHistogram::from_words(&words).unwrap();
        assert_eq!(histogram.to_words(), words);
        assert_eq!(histogram.buckets[1].blocks, 8);
        assert_eq!(histogram.total().blocks, (0..64).map(|i| i * 8).sum::<u64>());
        assert!(DdtHistogram::from_words(&words[1..]).is_err());
    }
}
