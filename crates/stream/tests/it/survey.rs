//! What streams contain, and which rules they break.

use crate::golden::{read, write};
use cenote_stream::{Frame, StreamError, Substream, Survey, survey};
use format::ObjectId;
use format::stream::{Record, RecordKind, feature};

fn surveyed(bytes: &[u8]) -> (Survey, Result<(), StreamError>) {
    let (found, _, result) = listed(bytes);
    (found, result)
}

fn listed(bytes: &[u8]) -> (Survey, Vec<Substream>, Result<(), StreamError>) {
    let (mut found, mut streams) = (Survey::default(), Vec::new());
    let result = survey(bytes, &mut found, &mut |stream| streams.push(stream), |_| {});
    assert_eq!(found.streams, streams.len() as u64);
    (found, streams, result)
}

#[test]
fn golden_streams_are_whole() {
    for name in testkit::stream_names() {
        let bytes = testkit::stream(&name);
        let (found, result) = surveyed(&bytes);
        let is_cut = name == "resume-part";
        assert_eq!(result.is_err(), is_cut, "{name}: {result:?}");
        assert_eq!(found.is_complete, !is_cut && name != "saved-partial", "{name}");
        assert!(is_cut || found.bytes == bytes.len() as u64, "{name}");
        assert_eq!(found.streams == 0, found.unfinished.is_some(), "{name}");
    }
}

#[test]
fn a_package_lists_its_snapshots() {
    let (found, streams, result) = listed(&testkit::stream("replicate-r2"));
    assert!(result.is_ok() && found.package.is_some() && found.is_complete);
    let names: Vec<_> = streams.iter().map(|stream| String::from_utf8_lossy(stream.begin.name())).collect();
    assert!(names.len() > 2 && names.iter().all(|name| name.contains("@r")), "{names:?}");
    let of_streams: u64 = streams.iter().map(|stream| stream.bytes).sum();
    assert!(of_streams < found.bytes);
    for stream in &streams {
        assert!(stream.is_complete && stream.records[&RecordKind::End] == (1, 0));
        assert_eq!(stream.record_count(), stream.records.values().map(|(count, _)| count).sum::<u64>());
    }
}

#[test]
fn a_package_without_its_end_is_not_whole() {
    let bytes = testkit::stream("replicate-r2");
    let end = read(&bytes).0.last().expect("records").at as usize;
    let (found, result) = surveyed(&bytes[..end]);
    assert!(result.is_ok() && !found.is_complete && found.streams > 2 && found.unfinished.is_none());
    assert!(!surveyed(&[]).0.is_complete);
}

/// The problem of a stream whose records are changed by `change`.
fn broken(name: &str, change: impl FnOnce(&mut Vec<Frame>)) -> &'static str {
    let (mut frames, order) = read(&testkit::stream(name));
    change(&mut frames);
    frames.iter_mut().for_each(|frame| frame.put_record(order));
    match surveyed(&write(&frames, order)).1 {
        Err(StreamError::Invalid { problem, .. }) => problem,
        other => panic!("{name}: {other:?}"),
    }
}

/// Changes the first record that `change` takes.
fn first(frames: &mut [Frame], change: impl Fn(&mut Record) -> bool) {
    assert!(frames.iter_mut().any(|frame| change(&mut frame.header.record)), "no such record");
}

macro_rules! change {
    ($kind:ident, $record:ident => $change:expr) => {
        |frames: &mut Vec<Frame>| {
            first(frames, |record| {
                let Record::$kind($record) = record else { return false };
                $change;
                true
            });
        }
    };
}

fn oversized_bonus(frames: &mut [Frame]) {
    let is_object = |frame: &&mut Frame| matches!(frame.header.record, Record::Object(_));
    let frame = frames.iter_mut().find(is_object).expect("an object");
    let Record::Object(object) = &mut frame.header.record else { unreachable!("just looked for") };
    object.bonus_len = 328;
    frame.payload = vec![0; 328];
}

#[test]
fn broken_rules_are_named() {
    let huge = u64::MAX - 7;
    for (problem, found) in [
        (
            "a name that is not of a snapshot",
            broken("full", change!(Begin, begin => begin.to_name[6] = b'x')),
        ),
        ("a clone without an origin", broken("full", change!(Begin, begin => begin.flags |= 1))),
        (
            "deduplicated, which receivers refuse: use zstream redup",
            broken("full", change!(Begin, begin => begin.version_info |= feature::DEDUP << 2)),
        ),
        (
            "a raw stream with embedded data",
            broken("raw-full", change!(Begin, begin => begin.version_info |= feature::EMBED_DATA << 2)),
        ),
        (
            "a raw stream that does not tell of spill blocks",
            broken("raw-full", change!(Begin, begin => begin.flags &= !(1 << 3))),
        ),
        (
            "a raw stream without its keys",
            broken("full", change!(Begin, begin => begin.version_info |= feature::RAW << 2)),
        ),
        (
            "a list at the start of a stream that cannot be read",
            broken("raw-full", |frames| frames[0].payload.fill(9)),
        ),
        (
            "a large block in a stream without them",
            broken("full", change!(Object, object => object.block_size = 1 << 20)),
        ),
        ("a bonus that is larger than its dnode", broken("full", |frames| oversized_bonus(frames))),
        ("a range of no object", broken("full", change!(Free, free => free.object = ObjectId(0)))),
        (
            "a stream after the end of another one, which receivers do not read",
            broken("full", |frames| frames.extend(frames.clone())),
        ),
        ("an unknown feature", broken("full", change!(Begin, begin => begin.version_info |= 1 << 50))),
        ("an unknown kind of header", broken("full", change!(Begin, begin => begin.version_info |= 3))),
        (
            "neither a file system nor a volume",
            broken("full", change!(Begin, begin => begin.objset_type = 4)),
        ),
        ("the end of another stream", broken("full", change!(End, end => end.to_guid ^= 1))),
        (
            "an object without a number",
            broken("full", change!(Object, object => object.object = ObjectId(0))),
        ),
        ("the size of a block", broken("full", change!(Object, object => object.block_size = 513))),
        ("the size of a block", broken("full", change!(Object, object => object.block_size = 0))),
        ("too many slots of a dnode", broken("full", change!(Object, object => object.slots = 33))),
        ("an unknown checksum", broken("full", change!(Object, object => object.checksum_type = 99))),
        ("an unknown compression", broken("full", change!(Object, object => object.compress = 99))),
        ("a range out of bounds", broken("full", change!(FreeObjects, free => free.first = ObjectId(huge)))),
        ("a range out of bounds", broken("full", change!(Write, block => block.offset = huge))),
        ("a block of no object", broken("full", change!(Write, block => block.object = ObjectId(0)))),
        (
            "a block before the one that precedes it",
            broken("full", change!(Write, block => block.object = ObjectId(huge))),
        ),
        (
            "a compressed block is larger than the block",
            broken("full", change!(Write, block => block.compressed_size = 1 << 30)),
        ),
        (
            "encryption of dnodes in a stream that is not raw",
            broken("raw-full", change!(Begin, begin => begin.version_info &= !(feature::RAW << 2))),
        ),
        (
            "the number of slots of a block of dnodes",
            broken("raw-full", change!(ObjectRange, range => range.slots = 31)),
        ),
        ("a stream starts within another one", broken("full", |frames| frames.insert(5, frames[0].clone()))),
        ("a record outside of a stream", broken("full", |frames| frames.push(frames[5].clone()))),
        ("a record outside of a stream", broken("full-props", |frames| frames.push(frames[1].clone()))),
    ] {
        assert_eq!(found, problem);
    }
}
