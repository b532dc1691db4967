//! Damaged, shortened and hostile streams.

use crate::golden::{read, write};
use cenote_stream::{Frame, Reader, StreamError};
use format::stream::{HEADER_SIZE, Header, Record};
use format::{Endian, ObjectId};

/// Reads to the end or to the first error; returns the number of records.
fn read_all(bytes: &[u8]) -> (usize, Result<(), StreamError>) {
    let mut reader = Reader::new(bytes);
    let mut records = 0;
    loop {
        match reader.next_frame() {
            Ok(Some(_)) => records += 1,
            Ok(None) => return (records, Ok(())),
            Err(error) => return (records, Err(error)),
        }
    }
}

#[test]
fn any_changed_byte_is_found() {
    let bytes = testkit::stream("incr-b-c");
    let end = bytes.len();
    for at in (0..end).step_by(997).chain([0, 8, 300, 311, 312, end - 1]) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x10;
        let (_, result) = read_all(&damaged);
        assert!(result.is_err(), "byte {at}");
    }
}

#[test]
fn a_stream_that_is_cut_within_a_record_is_told() {
    let bytes = testkit::stream("longname");
    let (frames, _) = read(&bytes);
    for frame in frames.iter().skip(1) {
        let at = frame.at as usize;
        let (records, whole) = read_all(&bytes[..at]);
        assert!(whole.is_ok() && records > 0, "cut before the record at {at}");
        for len in [1, HEADER_SIZE - 1, HEADER_SIZE + frame.payload.len() - 1] {
            let (_, cut) = read_all(&bytes[..at + len]);
            assert!(matches!(cut, Err(StreamError::Cut { at }) if at == frame.at), "{len} bytes: {cut:?}");
        }
    }
    assert!(read_all(&[]).1.is_ok());
    assert!(matches!(read_all(&bytes[..100]).1, Err(StreamError::Cut { at: 0 })));
    assert!(matches!(read_all(&[7; 1000]).1, Err(StreamError::NotAStream)));
}

/// A file whose tail was lost in a crash: zeros look like starts of streams.
#[test]
fn zeros_are_no_records() {
    let bytes = testkit::stream("longname");
    let (frames, _) = read(&bytes);
    for end in [bytes.len(), frames.last().expect("records").at as usize] {
        let padded = [&bytes[..end], &[0; 3 * HEADER_SIZE]].concat();
        let (_, result) = read_all(&padded);
        assert!(matches!(result, Err(StreamError::Record { at, .. }) if at == end as u64), "{result:?}");
    }
}

#[test]
fn an_end_without_its_checksum_is_refused() {
    let (mut frames, order) = read(&testkit::stream("longname"));
    let at = frames.last().expect("records").at as usize;
    let mut bytes = write(&frames, order);
    bytes[at + 8..].fill(0);
    let (_, result) = read_all(&bytes);
    assert!(matches!(result, Err(StreamError::Checksum { at: end, .. }) if end == at as u64), "{result:?}");
    // Without any checksum in headers, as of old senders.
    frames.iter_mut().for_each(|frame| frame.header.checksum = [0; 4]);
    for frame in frames.iter_mut().skip(1) {
        frame.bytes[HEADER_SIZE - 32..].fill(0);
    }
    let old = write(&frames, order);
    assert!(read_all(&old).1.is_ok() && old != write(&read(&testkit::stream("longname")).0, order));
}

/// A stream whose second record is this one.
fn with_record(record: Record) -> Vec<u8> {
    let (mut frames, order) = read(&testkit::stream("longname"));
    frames.truncate(1);
    let mut bytes = [0; HEADER_SIZE];
    record.put(&mut bytes, order);
    let header = Header { record, payload_len: 0, checksum: [1; 4] };
    frames.push(Frame { bytes, header, payload: Vec::new(), at: 0 });
    write(&frames, order)
}

/// The checksums are right, the lengths are not: nothing is allocated for them.
#[test]
fn lengths_out_of_range_are_refused() {
    let template = read(&testkit::stream("large-Lec")).0;
    for frame in template {
        let record = match frame.header.record {
            Record::Write(write) => Record::Write(format::stream::Write {
                logical_size: u64::MAX,
                compressed_size: u64::MAX - 3,
                ..write
            }),
            Record::Object(object) => {
                Record::Object(format::stream::Object { bonus_len: u32::MAX, ..object })
            }
            Record::WriteEmbedded(embedded) => {
                Record::WriteEmbedded(format::stream::WriteEmbedded { psize: u32::MAX, ..embedded })
            }
            Record::Spill(spill) => Record::Spill(format::stream::Spill { length: 1 << 40, ..spill }),
            _ => continue,
        };
        let bytes = with_record(record);
        let ((_, result), peak) = testkit::alloc::thread_peak(|| read_all(&bytes));
        assert!(matches!(result, Err(StreamError::TooLong { .. })), "{result:?}");
        assert!(peak < 64 << 10, "{peak} bytes");
    }
}

#[test]
fn lists_are_as_long_as_the_reader_allows() {
    let bytes = testkit::stream("replicate-r2-r3");
    let first = |max| Reader::new(&bytes[..]).with_list_max(max).next_frame();
    let length = first(u64::MAX).expect("whole").expect("a record").payload.len() as u64;
    assert!(length > 0 && first(length).is_ok());
    assert!(matches!(first(length - 1), Err(StreamError::TooLong { max, .. }) if max == length - 1));
}

#[test]
fn a_payload_that_is_not_there_takes_little_memory() {
    let write =
        read(&testkit::stream("longname")).0.into_iter().find_map(|frame| match frame.header.record {
            Record::Write(write) => Some(write),
            _ => None,
        });
    let write = write.expect("a block");
    let bytes = with_record(Record::Write(format::stream::Write { logical_size: 16 << 20, ..write }));
    let ((_, result), peak) = testkit::alloc::thread_peak(|| read_all(&bytes));
    assert!(matches!(result, Err(StreamError::Cut { .. })), "{result:?}");
    assert!(peak < 256 << 10, "{peak} bytes");
}

#[test]
fn an_unknown_record_names_its_place() {
    let mut bytes = testkit::stream("longname");
    let second = read(&bytes).0[1].at as usize;
    bytes[second] = 77;
    assert!(matches!(read_all(&bytes).1, Err(StreamError::Record { at, .. }) if at == second as u64));
}

/// A mutant of a stream, in either byte order: an error or records, never a panic, and little memory.
#[test]
fn mutants_are_read_or_refused() {
    let target = testkit::fuzz::Target::new(env!("CARGO_MANIFEST_DIR"), "mutants_are_read_or_refused");
    bolero::check!(name = "mutants_are_read_or_refused").for_each(target.bound(256 << 10, 16).checked(
        |bytes| {
            let mut reader = Reader::new(bytes).unverified();
            let mut records = 0;
            while let Ok(Some(frame)) = reader.next_frame() {
                let mut again = frame.bytes;
                frame.header.record.put(&mut again, reader.order());
                assert_eq!(again, frame.bytes);
                records += 1;
            }
            let _ = (reader.order() == Endian::Little, ObjectId(records));
            records > 1
        },
    ));
}
