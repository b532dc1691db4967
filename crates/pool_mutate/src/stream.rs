//! Writes a send stream in the other byte order, as a sender of that order does (docs/on-disk/30-send-streams.md).

use crate::swap::{Tables, swap_by_class, tables_of};
use codec::compress::decompress;
use dmu::ObjSet;
use format::stream::{HEADER_SIZE, Record, Write, WriteEmbedded};
use format::{CompressionId, Endian, ObjType, ObjectId};
use std::collections::HashMap;
use std::sync::Arc;
use stream::{Frame, Reader, StreamError, Writer};

/// A little-endian stream that is not raw, in big-endian order. `set` is the file system of the stream, in which the
/// layouts of attributes are; without one they keep their order. Embedded data of objects with numbers is sent as plain
/// data.
///
/// # Errors
/// [`StreamError`]: the stream cannot be read.
pub fn to_big(bytes: &[u8], set: Option<&Arc<ObjSet>>) -> Result<Vec<u8>, StreamError> {
    let tables = set.and_then(tables_of).unwrap_or_default();
    let (mut reader, mut out) = (Reader::new(bytes), Vec::new());
    let mut writer = Writer::new(&mut out);
    let mut kinds: HashMap<ObjectId, ObjType> = HashMap::new();
    while let Some(mut frame) = reader.next_frame()? {
        if let Record::WriteEmbedded(embedded) = &frame.header.record
            && let Some(kind) = kinds.get(&embedded.object).filter(|kind| kind.is_zap())
        {
            (frame.header.record, frame.payload) = expanded(embedded, *kind, &frame.payload);
        }
        swap_payload(&mut frame, &mut kinds, &tables);
        let payload_len = frame.bytes.get(4..8).and_then(|len| len.try_into().ok()).map(u32::from_le_bytes);
        frame.bytes = [0; HEADER_SIZE];
        frame.put_record(Endian::Big);
        frame.bytes[4..8].copy_from_slice(&payload_len.unwrap_or(0).to_be_bytes());
        writer.write(&frame, Endian::Big)?;
    }
    writer.finish()?;
    Ok(out)
}

fn swap_payload(frame: &mut Frame, kinds: &mut HashMap<ObjectId, ObjType>, tables: &Tables) {
    let kind = |id: u32| u8::try_from(id).ok().and_then(|id| ObjType::from_id(id).ok());
    let swapped = match &frame.header.record {
        Record::Object(object) => {
            kinds.extend(kind(object.kind).map(|kind| (object.object, kind)));
            kind(object.bonus_kind)
        }
        Record::Write(write) if write.compression == 0 => kind(write.kind),
        Record::Spill(_) => Some(ObjType::SA),
        _ => None,
    };
    if let Some(kind) = swapped {
        swap_by_class(kind, &mut frame.payload, Endian::Little, tables);
    }
}

/// Embedded data as plain data.
fn expanded(embedded: &WriteEmbedded, kind: ObjType, payload: &[u8]) -> (Record, Vec<u8>) {
    let mut bytes = vec![0; embedded.lsize as usize];
    let stored = payload.get(..embedded.psize as usize).unwrap_or_default();
    let compression = CompressionId::from_id(embedded.compression).unwrap_or(CompressionId::Off);
    // What cannot be decompressed is left to the receiver as zeros.
    let _ = decompress(compression, stored, &mut bytes);
    bytes.resize(embedded.length as usize, 0);
    let write = Write {
        object: embedded.object,
        kind: kind.id().into(),
        offset: embedded.offset,
        logical_size: embedded.length,
        to_guid: embedded.to_guid,
        checksum_type: 0,
        flags: 0,
        compression: 0,
        key: [0; 5],
        compressed_size: 0,
        salt: [0; 8],
        iv: [0; 12],
        mac: [0; 16],
    };
    (Record::Write(write), bytes)
}
