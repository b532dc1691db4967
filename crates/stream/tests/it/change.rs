//! Streams that are changed on their way.

use crate::golden::{read, write};
use cenote_stream::StreamError;
use cenote_stream::change::{decompress_blocks, drop_blocks, recompress, write_references_out};
use format::stream::{Begin, HEADER_SIZE, Header, Record, WriteByRef, feature};
use format::{CompressionId, Endian, ObjectId};
use std::collections::{BTreeMap, HashMap};
use std::io::Cursor;

/// Blocks of a stream by object and offset, without compression.
fn blocks(bytes: &[u8]) -> BTreeMap<(ObjectId, u64), Vec<u8>> {
    let mut plain = Vec::new();
    recompress(bytes, &mut plain, CompressionId::Off, 0).expect("decompressed");
    let frames = read(&plain).0.into_iter();
    let block = |frame: cenote_stream::Frame| match frame.header.record {
        Record::Write(write) => {
            assert_eq!((write.compression, write.logical_size), (0, frame.payload.len() as u64));
            Some(((write.object, write.offset), frame.payload))
        }
        _ => None,
    };
    frames.filter_map(block).collect()
}

#[test]
fn blocks_are_compressed_anew() {
    let bytes = testkit::stream("compressed-gzip-9");
    let before = blocks(&bytes);
    for algorithm in [CompressionId::Lz4, CompressionId::Zstd, CompressionId::Gzip1, CompressionId::Lzjb] {
        let mut changed = Vec::new();
        let done = recompress(&bytes[..], &mut changed, algorithm, 3).expect("compressed");
        assert!(done.changed > 10, "{done:?}");
        let compressed = read(&changed).0.iter().any(|frame| {
            matches!(&frame.header.record, Record::Write(write) if write.compression == algorithm.id())
        });
        assert!(compressed && blocks(&changed) == before, "{algorithm:?}");
    }
}

#[test]
fn raw_streams_are_not_compressed_anew() {
    let refused = recompress(&testkit::stream("raw-full")[..], &mut Vec::new(), CompressionId::Lz4, 0);
    assert!(matches!(refused, Err(StreamError::Encrypted)), "{refused:?}");
}

#[test]
fn chosen_blocks_are_decompressed_or_said_to_be_plain() {
    let bytes = testkit::stream("compressed-lz4");
    let is_compressed = |frame: &&cenote_stream::Frame| matches!(&frame.header.record, Record::Write(write) if write.compression != 0);
    let frames = read(&bytes).0;
    let Some(Record::Write(chosen)) = frames.iter().find(is_compressed).map(|frame| &frame.header.record)
    else {
        panic!("a compressed block")
    };
    let place = (chosen.object, chosen.offset);
    let change = |algorithm| {
        let (mut changed, mut places) = (Vec::new(), Vec::new());
        let wanted = HashMap::from([(place, algorithm)]);
        let done = decompress_blocks(&bytes[..], &mut changed, &wanted, |place, _, result| {
            places.push((place, result.is_ok()));
        });
        (changed, done.expect("changed").changed, places)
    };
    let (changed, count, places) = change(CompressionId::Lz4);
    assert_eq!((count, places), (1, vec![(place, true)]));
    assert!(changed != bytes && blocks(&changed) == blocks(&bytes));
    // What is not compressed in this way, or has not the size of its block, stays as it is, and the rest is copied.
    for wrong in [CompressionId::Gzip6, CompressionId::Off] {
        let (changed, count, places) = change(wrong);
        assert_eq!((count, places), (0, vec![(place, false)]), "{wrong:?}");
        assert!(changed == bytes, "{wrong:?}");
    }
}

/// A record says that its block is compressed, and it is not.
#[test]
fn a_plain_block_is_said_to_be_plain() {
    let (mut frames, order) = read(&testkit::stream("longname"));
    let plain = write(&frames, order);
    let mut place = None;
    for frame in &mut frames {
        if let (Record::Write(block), None) = (&mut frame.header.record, place) {
            place = Some((block.object, block.offset));
            (block.compression, block.compressed_size) = (CompressionId::Lz4.id(), block.logical_size);
            frame.put_record(order);
        }
    }
    let bytes = write(&frames, order);
    let wanted = HashMap::from([(place.expect("a block"), CompressionId::Off)]);
    let mut changed = Vec::new();
    let done = decompress_blocks(&bytes[..], &mut changed, &wanted, |_, _, result| assert!(result.is_ok()));
    assert!(done.expect("changed").changed == 1 && changed == plain);
}

#[test]
fn streams_with_references_are_refused() {
    let bytes = with_references(Endian::Little).1;
    let none = HashMap::new();
    for refused in [
        decompress_blocks(&bytes[..], Vec::new(), &none, |_, _, _| {}),
        recompress(&bytes[..], Vec::new(), CompressionId::Lz4, 0),
        drop_blocks(&bytes[..], Vec::new(), &[], |_| {}),
    ] {
        assert!(matches!(refused, Err(StreamError::Deduplicated)), "{refused:?}");
    }
}

#[test]
fn a_missing_end_is_told() {
    let bytes = testkit::stream("longname");
    let end = read(&bytes).0.last().expect("records").at as usize;
    let copied = |bytes: &[u8]| drop_blocks(bytes, Vec::new(), &[], |_| {});
    assert!(copied(&bytes).expect("copied").is_complete);
    assert!(!copied(&bytes[..end]).expect("copied").is_complete);
    assert!(matches!(copied(&[]), Err(StreamError::NotAStream)));
}

#[test]
fn chosen_blocks_are_dropped() {
    let bytes = testkit::stream("full-one-r1");
    let all = blocks(&bytes);
    let (first, last) =
        (*all.first_key_value().expect("a block").0, *all.last_key_value().expect("a block").0);
    let (mut changed, mut places) = (Vec::new(), Vec::new());
    let done =
        drop_blocks(&bytes[..], &mut changed, &[first, last], |place| places.push(place)).expect("changed");
    assert_eq!((done.changed, places), (2, vec![first, last]));
    let left = blocks(&changed);
    assert_eq!(left.len(), all.len() - 2);
    assert!(!left.contains_key(&first) && !left.contains_key(&last));
}

/// A stream in which the second block of equal contents refers to the first.
fn with_references(order: Endian) -> (Vec<u8>, Vec<u8>) {
    let (frames, _) = read(&testkit::stream("longname"));
    let mut plain = Vec::new();
    let mut dedup = Vec::new();
    let mut first = None;
    for mut frame in frames {
        // In the byte order that is wanted.
        frame.put_record(order);
        frame.bytes[4..8].copy_from_slice(&order.put_u32(frame.header.payload_len));
        plain.push(frame.clone());
        match frame.header.record.clone() {
            Record::Begin(begin) => {
                frame.header.record = Record::Begin(Begin {
                    version_info: begin.version_info | (feature::DEDUP | feature::DEDUP_PROPS) << 2,
                    ..begin
                });
                frame.put_record(order);
                dedup.push(frame);
            }
            Record::Write(write) if first.is_none() => {
                first = Some((frame.clone(), write.clone()));
                dedup.push(frame.clone());
                let copy = format::stream::Write { object: ObjectId(77), offset: 512, ..write.clone() };
                let mut full = frame.clone();
                full.header.record = Record::Write(copy);
                full.put_record(order);
                plain.push(full);
                let reference = Record::WriteByRef(WriteByRef {
                    object: ObjectId(77),
                    offset: 512,
                    length: write.logical_size,
                    to_guid: write.to_guid,
                    ref_guid: write.to_guid,
                    ref_object: write.object,
                    ref_offset: write.offset,
                    checksum_type: write.checksum_type,
                    flags: write.flags,
                    key: write.key,
                });
                let mut bytes = [0; HEADER_SIZE];
                reference.put(&mut bytes, order);
                let header = Header { record: reference, payload_len: 0, checksum: [1; 4] };
                dedup.push(cenote_stream::Frame { bytes, header, payload: Vec::new(), at: 0 });
            }
            _ => dedup.push(frame),
        }
    }
    (write(&plain, order), write(&dedup, order))
}

#[test]
fn references_are_written_out() {
    for order in [Endian::Little, Endian::Big] {
        let (plain, dedup) = with_references(order);
        assert!(plain != dedup);
        let mut changed = Vec::new();
        let done = write_references_out(&dedup[..], &mut Cursor::new(&dedup), &mut changed).expect("changed");
        assert_eq!(done.changed, 1);
        assert!(changed == plain, "{order:?}");
    }
}

#[test]
fn a_reference_to_nothing_is_refused() {
    let order = Endian::Little;
    let (mut frames, _) = read(&with_references(order).1);
    for frame in &mut frames {
        if let Record::WriteByRef(reference) = &mut frame.header.record {
            reference.ref_object = ObjectId(4_000_000_000);
            frame.put_record(order);
        }
    }
    let bytes = write(&frames, order);
    let refused = write_references_out(&bytes[..], &mut Cursor::new(&bytes), &mut Vec::new());
    assert!(matches!(refused, Err(StreamError::NoSource { .. })), "{refused:?}");
}
