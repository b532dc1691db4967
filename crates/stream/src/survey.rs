//! What a stream contains, and whether its records obey the rules that receivers check
//! (docs/on-disk/30-send-streams.md, sections 1, 2 and 9).
//!
//! # What always holds
//! - The whole stream is read once, with its checksums; memory does not grow with its length or with the number of
//!   its snapshots.
//! - Rules that depend on the pool of the receiver are not checked here, and streams are not compared with the list of
//!   snapshots at the start of their package.

use crate::error::StreamError;
use crate::reader::{BLOCK_MAX, Frame, Reader};
use format::stream::{Begin, Record, RecordKind, feature, flag};
use format::units::OLD_MAX_BLOCK;
use format::{ChecksumId, CompressionId, NvList, ObjectId};
use std::collections::BTreeMap;
use std::io::Read;

/// Largest bonus in bytes in a dnode of one slot.
const BONUS_MAX: u64 = 320;
/// Unit of block sizes in bytes.
const SECTOR: u64 = 512;
/// Largest number of slots of a dnode, and number of slots of a block of dnodes.
const SLOTS_MAX: u64 = 32;
/// Length of a range that extends to the end of its object.
const TO_THE_END: u64 = u64::MAX;

/// The stream of one snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Substream {
    /// The record that starts it.
    pub begin: Begin,
    /// Number of records and bytes of payload by type.
    pub records: BTreeMap<RecordKind, (u64, u64)>,
    /// Number of bytes.
    pub bytes: u64,
    /// Whether its end is there. Without one a receiver keeps what it has received, to be resumed.
    pub is_complete: bool,
}

impl Substream {
    /// Number of records of all types.
    pub fn record_count(&self) -> u64 {
        self.records.values().map(|(records, _)| records).sum()
    }
}

/// What a stream contains.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Survey {
    /// The header of the package, if it is one.
    pub package: Option<Begin>,
    /// Number of streams of snapshots, without one whose end is missing.
    pub streams: u64,
    /// The stream of a snapshot that is being read, or whose end is missing.
    pub unfinished: Option<Substream>,
    /// Number of bytes.
    pub bytes: u64,
    /// Whether all streams are complete, and the end of the package is there.
    pub is_complete: bool,
}

/// Reads a stream to its end. Adds what it contains to `survey`, which is also right as far as the stream could be
/// read after an error. `each` gets each stream of a snapshot at its end, `progress` the number of bytes read after
/// each record.
///
/// # Errors
/// [`StreamError::Invalid`] if a record breaks a rule, and those of [`Reader`].
pub fn survey(
    source: impl Read,
    survey: &mut Survey,
    each: &mut dyn FnMut(Substream),
    mut progress: impl FnMut(u64),
) -> Result<(), StreamError> {
    let mut reader = Reader::new(source);
    let mut place = Place::Start;
    while let Some(frame) = reader.next_frame()? {
        let at = frame.at;
        place = next(survey, place, frame).map_err(|problem| StreamError::Invalid { at, problem })?;
        survey.bytes = reader.position();
        if let Some(whole) = survey.unfinished.take_if(|stream| stream.is_complete) {
            survey.streams += 1;
            each(whole);
        }
        progress(survey.bytes);
    }
    survey.is_complete = match place {
        Place::Start | Place::PackageHeader | Place::Stream(_) => false,
        Place::Between => survey.package.is_none(),
        Place::End => true,
    };
    Ok(())
}

/// Where a record is.
enum Place {
    Start,
    /// After the start of a package, before its first end.
    PackageHeader,
    /// Within the stream of a snapshot.
    Stream(Last),
    /// Between two streams.
    Between,
    /// After the end of a package.
    End,
}

/// The last block of a stream: its object and offset.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Last(ObjectId, u64);

type Checked<T> = Result<T, &'static str>;

fn ensure(holds: bool, problem: &'static str) -> Checked<()> {
    if holds { Ok(()) } else { Err(problem) }
}

/// Checks a record and counts it; returns the place after it.
fn next(survey: &mut Survey, place: Place, frame: Frame) -> Checked<Place> {
    let (kind, payload) = (frame.header.record.kind(), frame.payload.len() as u64);
    let bytes = (frame.bytes.len() as u64) + payload;
    let after = match (place, frame.header.record) {
        (Place::Start, Record::Begin(begin)) if begin.is_package() => {
            check_features(&begin)?;
            list(&frame.payload)?;
            survey.package = Some(begin);
            return Ok(Place::PackageHeader);
        }
        (Place::PackageHeader, Record::End(_)) => return Ok(Place::Between),
        (Place::Between, Record::Begin(_)) if survey.package.is_none() => {
            return Err("a stream after the end of another one, which receivers do not read");
        }
        (Place::Start | Place::Between, Record::Begin(begin)) => {
            check_begin(&begin, &list(&frame.payload)?)?;
            let stream = Substream { begin, records: BTreeMap::new(), bytes: 0, is_complete: false };
            survey.unfinished = Some(stream);
            Place::Stream(Last(ObjectId(0), 0))
        }
        (Place::Between, Record::End(end)) if survey.package.is_some() => {
            ensure(end.to_guid == 0, "the end of a package names a snapshot")?;
            return Ok(Place::End);
        }
        (Place::Stream(_), Record::Begin(_)) => return Err("a stream starts within another one"),
        (Place::Stream(last), record) => {
            let stream = survey.unfinished.as_mut().ok_or("a record without a stream")?;
            let last = check_record(&stream.begin, &record, last)?;
            stream.is_complete = kind == RecordKind::End;
            if stream.is_complete { Place::Between } else { Place::Stream(last) }
        }
        _ => return Err("a record outside of a stream"),
    };
    if let Some(stream) = survey.unfinished.as_mut() {
        stream.bytes += bytes;
        let (records, payloads) = stream.records.entry(kind).or_default();
        *records += 1;
        *payloads += payload;
    }
    Ok(after)
}

fn check_features(begin: &Begin) -> Checked<()> {
    let known = feature::NAMES.iter().fold(0, |known, (bit, _)| known | bit);
    ensure(begin.features() & !known == 0, "an unknown feature")?;
    let has_references = begin.features() & (feature::DEDUP | feature::DEDUP_PROPS) != 0;
    ensure(!has_references, "deduplicated, which receivers refuse: use zstream redup")
}

/// The list of names and values at the start of a stream.
fn list(payload: &[u8]) -> Checked<NvList> {
    if payload.is_empty() {
        return Ok(NvList::new());
    }
    NvList::decode(payload).map_err(|_| "a list at the start of a stream that cannot be read")
}

fn check_begin(begin: &Begin, list: &NvList) -> Checked<()> {
    check_features(begin)?;
    ensure(begin.header_kind() == 1, "an unknown kind of header")?;
    ensure(begin.objset_type == 2 || begin.objset_type == 3, "neither a file system nor a volume")?;
    ensure(begin.name().contains(&b'@'), "a name that is not of a snapshot")?;
    ensure(begin.flags & flag::CLONE == 0 || begin.from_guid != 0, "a clone without an origin")?;
    if begin.features() & feature::RAW != 0 {
        ensure(begin.features() & feature::EMBED_DATA == 0, "a raw stream with embedded data")?;
        ensure(begin.flags & flag::SPILL_BLOCK != 0, "a raw stream that does not tell of spill blocks")?;
        ensure(list.list("crypt_keydata").is_some(), "a raw stream without its keys")?;
    }
    Ok(())
}

/// Checks a record of this stream; returns the last block after it.
fn check_record(begin: &Begin, record: &Record, last: Last) -> Checked<Last> {
    let has = |bit| begin.features() & bit != 0;
    let is_range = |first: u64, count: u64| {
        ensure(count == TO_THE_END || first.checked_add(count).is_some(), "a range out of bounds")
    };
    let is_block = |object: ObjectId, offset, size: u64| {
        ensure(object.0 != 0, "a block of no object")?;
        ensure((1..=BLOCK_MAX).contains(&size), "the size of a block")?;
        is_range(offset, size)
    };
    let is_compression = |id| ensure(CompressionId::from_id(id).is_ok(), "an unknown compression");
    match record {
        Record::Begin(_) => Err("a stream starts within another one")?,
        // Other records of a stream from a partly received dataset have the guid of that dataset.
        Record::End(end) => ensure(end.to_guid == begin.to_guid, "the end of another stream")?,
        Record::Object(object) => {
            ensure(object.object.0 != 0, "an object without a number")?;
            let size = u64::from(object.block_size);
            ensure(size.is_multiple_of(SECTOR) && (1..=BLOCK_MAX).contains(&size), "the size of a block")?;
            ensure(
                size <= OLD_MAX_BLOCK || has(feature::LARGE_BLOCKS),
                "a large block in a stream without them",
            )?;
            ensure(u64::from(object.slots) <= SLOTS_MAX, "too many slots of a dnode")?;
            let room = BONUS_MAX + u64::from(object.slots.max(1) - 1) * SECTOR;
            ensure(u64::from(object.bonus_len) <= room, "a bonus that is larger than its dnode")?;
            ensure(ChecksumId::from_id(object.checksum_type).is_ok(), "an unknown checksum")?;
            is_compression(object.compress)?;
        }
        Record::FreeObjects(free) => {
            is_range(free.first.0, free.count)?;
        }
        Record::Free(free) | Record::Redact(free) => {
            ensure(free.object.0 != 0, "a range of no object")?;
            is_range(free.offset, free.length)?;
        }
        Record::Write(write) => {
            is_block(write.object, write.offset, write.logical_size)?;
            ensure(
                write.compressed_size <= write.logical_size,
                "a compressed block is larger than the block",
            )?;
            is_compression(write.compression)?;
            return in_order(last, Last(write.object, write.offset));
        }
        Record::WriteEmbedded(embedded) => {
            is_block(embedded.object, embedded.offset, embedded.length)?;
            is_compression(embedded.compression)?;
            ensure(embedded.embedded_kind == 0, "an unknown kind of embedded data")?;
            return in_order(last, Last(embedded.object, embedded.offset));
        }
        Record::WriteByRef(_) => Err("a reference in a stream without deduplication")?,
        Record::Spill(spill) => {
            is_block(spill.object, 0, spill.length)?;
            ensure(spill.compressed_size <= spill.length, "a compressed block is larger than the block")?;
        }
        Record::ObjectRange(range) => {
            ensure(has(feature::RAW), "encryption of dnodes in a stream that is not raw")?;
            ensure(range.slots == SLOTS_MAX, "the number of slots of a block of dnodes")?;
        }
    }
    Ok(last)
}

/// Blocks come in the order of objects and offsets.
fn in_order(last: Last, next: Last) -> Checked<Last> {
    if next >= last { Ok(next) } else { Err("a block before the one that precedes it") }
}
