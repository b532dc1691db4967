//! Changes of a stream on its way from a source to a target: what `zstream` does
//! (docs/on-disk/30-send-streams.md, section 12).

use crate::error::StreamError;
use crate::reader::{BLOCK_MAX, Frame, Reader};
use crate::writer::Writer;
use codec::compress::{compress, decompress};
use format::stream::{Header, Record, feature};
use format::{CompressionId, Endian, ObjectId};
use std::collections::HashMap;
use std::io::{Read, Seek, SeekFrom, Write};

/// What was done with a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Done {
    /// Number of records.
    pub records: u64,
    /// Number of records that were changed or dropped.
    pub changed: u64,
    /// Whether the last record is an end. A stream of a partly received dataset has none.
    pub is_complete: bool,
}

/// What is done with a record.
enum Fate {
    Unchanged,
    Changed,
    Dropped,
}

/// Copies a stream; `change` decides what becomes of each record.
fn copy<R: Read, W: Write>(
    source: R,
    target: W,
    mut change: impl FnMut(&mut Frame, Endian) -> Result<Fate, StreamError>,
) -> Result<Done, StreamError> {
    let (mut reader, mut writer) = (Reader::new(source), Writer::new(target));
    let mut done = Done::default();
    while let Some(mut frame) = reader.next_frame()? {
        done.records += 1;
        done.is_complete = matches!(frame.header.record, Record::End(_));
        let fate = change(&mut frame, reader.order())?;
        if !matches!(fate, Fate::Unchanged) {
            done.changed += 1;
            frame.put_record(reader.order());
        }
        if !matches!(fate, Fate::Dropped) {
            writer.write(&frame, reader.order())?;
        }
    }
    if done.records == 0 {
        return Err(StreamError::NotAStream);
    }
    writer.finish()?;
    Ok(done)
}

/// A block in a stream: its object, and the byte of the object at which it starts.
pub type BlockPlace = (ObjectId, u64);

/// Decompresses the blocks at these places with the given algorithms; `Off` only says that a block is not compressed.
/// `report` gets each of these places with the result: a block that is not compressed in this way stays as it is.
///
/// # Errors
/// [`StreamError::Deduplicated`], and those of [`Reader`] and [`Writer`].
pub fn decompress_blocks<R: Read, W: Write>(
    source: R,
    target: W,
    wanted: &HashMap<BlockPlace, CompressionId>,
    mut report: impl FnMut(BlockPlace, CompressionId, Result<(), StreamError>),
) -> Result<Done, StreamError> {
    copy(source, target, |frame, _| {
        refuse_references(&frame.header.record)?;
        let Record::Write(write) = &mut frame.header.record else { return Ok(Fate::Unchanged) };
        let place = (write.object, write.offset);
        let Some(algorithm) = wanted.get(&place) else { return Ok(Fate::Unchanged) };
        match plain(write, *algorithm, &frame.payload) {
            Ok(payload) => {
                frame.payload = payload;
                (write.compression, write.compressed_size) = (0, 0);
                report(place, *algorithm, Ok(()));
                Ok(Fate::Changed)
            }
            Err(failed) => {
                report(place, *algorithm, Err(failed));
                Ok(Fate::Unchanged)
            }
        }
    })
}

/// Refuses the start of a stream with references: its blocks cannot be changed one by one.
fn refuse_references(record: &Record) -> Result<(), StreamError> {
    match record {
        Record::Begin(begin) if begin.features() & (feature::DEDUP | feature::DEDUP_PROPS) != 0 => {
            Err(StreamError::Deduplicated)
        }
        Record::WriteByRef(_) => Err(StreamError::Deduplicated),
        _ => Ok(()),
    }
}

/// Compresses every block anew; a block that becomes no smaller is sent as it is. `level` is that of zstd.
///
/// # Errors
/// [`StreamError::Encrypted`] for raw streams, [`StreamError::Decompress`], and those of [`Reader`] and [`Writer`].
pub fn recompress<R: Read, W: Write>(
    source: R,
    target: W,
    algorithm: CompressionId,
    level: i32,
) -> Result<Done, StreamError> {
    copy(source, target, |frame, _| {
        refuse_references(&frame.header.record)?;
        let write = match &mut frame.header.record {
            Record::Begin(begin) if begin.features() & feature::RAW != 0 => {
                return Err(StreamError::Encrypted);
            }
            Record::Write(write) => write,
            _ => return Ok(Fate::Unchanged),
        };
        if write.compression != 0 {
            let stored = CompressionId::from_id(write.compression)
                .map_err(|_| StreamError::Decompress { object: write.object, offset: write.offset })?;
            frame.payload = plain(write, stored, &frame.payload)?;
        }
        (write.compression, write.compressed_size) = (0, 0);
        // Blocks have whole sectors on disk.
        let limit = frame.payload.len().saturating_sub(SECTOR);
        if let Some(mut image) = compress(algorithm, level, &frame.payload, limit) {
            image.resize(image.len().next_multiple_of(SECTOR), 0);
            (write.compression, write.compressed_size) = (algorithm.id(), image.len() as u64);
            frame.payload = image;
        }
        Ok(Fate::Changed)
    })
}

/// The decompressed contents of a block.
fn plain(
    write: &format::stream::Write,
    algorithm: CompressionId,
    payload: &[u8],
) -> Result<Vec<u8>, StreamError> {
    let failed = StreamError::Decompress { object: write.object, offset: write.offset };
    if write.logical_size > BLOCK_MAX {
        return Err(failed);
    }
    let mut plain = vec![0; write.logical_size as usize];
    decompress(algorithm, payload, &mut plain).map_err(|_| failed)?;
    Ok(plain)
}

/// Unit of the size of compressed blocks in bytes.
const SECTOR: usize = 512;

/// Drops the blocks at these places. `report` gets each of them.
///
/// # Errors
/// [`StreamError::Deduplicated`], and those of [`Reader`] and [`Writer`].
pub fn drop_blocks<R: Read, W: Write>(
    source: R,
    target: W,
    places: &[BlockPlace],
    mut report: impl FnMut(BlockPlace),
) -> Result<Done, StreamError> {
    copy(source, target, |frame, _| {
        refuse_references(&frame.header.record)?;
        let place = match &frame.header.record {
            Record::Write(write) => (write.object, write.offset),
            Record::WriteEmbedded(write) => (write.object, write.offset),
            _ => return Ok(Fate::Unchanged),
        };
        if !places.contains(&place) {
            return Ok(Fate::Unchanged);
        }
        report(place);
        Ok(Fate::Dropped)
    })
}

/// Replaces references to earlier blocks by these blocks, which are read from `source` again.
///
/// # Errors
/// [`StreamError::NoSource`] if a referenced block is not there, and those of [`Reader`] and [`Writer`].
pub fn write_references_out<W: Write>(
    source: impl Read,
    again: &mut (impl Read + Seek),
    target: W,
) -> Result<Done, StreamError> {
    // By snapshot, object and offset: where the record starts.
    let mut blocks: HashMap<(u64, ObjectId, u64), u64> = HashMap::new();
    copy(source, target, |frame, order| match &mut frame.header.record {
        Record::Begin(begin) => {
            let dedup = (feature::DEDUP | feature::DEDUP_PROPS) << 2;
            begin.version_info &= !dedup;
            frame.put_record(order);
            Ok(Fate::Unchanged)
        }
        Record::Write(write) => {
            blocks.insert((write.to_guid, write.object, write.offset), frame.at);
            Ok(Fate::Unchanged)
        }
        Record::WriteByRef(reference) => {
            let at = frame.at;
            let missing = StreamError::NoSource { at };
            let key = (reference.ref_guid, reference.ref_object, reference.ref_offset);
            let Some(start) = blocks.get(&key) else { return Err(missing) };
            let earlier = reread(again, *start, order)?;
            let Record::Write(write) = earlier.header.record else { return Err(missing) };
            let write = format::stream::Write {
                object: reference.object,
                offset: reference.offset,
                to_guid: reference.to_guid,
                ..write
            };
            blocks.insert((write.to_guid, write.object, write.offset), *start);
            let checksum = frame.header.checksum;
            let header = Header { record: Record::Write(write), checksum, payload_len: 0 };
            *frame = Frame { bytes: earlier.bytes, header, payload: earlier.payload, at };
            Ok(Fate::Changed)
        }
        _ => Ok(Fate::Unchanged),
    })
}

/// Reads the record at a byte of a stream again.
fn reread(source: &mut (impl Read + Seek), at: u64, order: Endian) -> Result<Frame, StreamError> {
    source.seek(SeekFrom::Start(at)).map_err(|cause| StreamError::Read { at, cause })?;
    let frame = Reader::within(source, order, at).next_frame()?;
    frame.ok_or(StreamError::Cut { at })
}
