//! Streams of golden pools' snapshots: a receiver in memory has what the pool has, and OpenZFS's `zstream` finds them
//! whole.

mod model;

use crate::golden::compare::{Open, open};
use cenote::Pool;
use dmu::KeyState;
use format::stream::{Record, RecordKind, feature};
use format::{BlockId, Level};
use model::{Model, count, frames};
use std::collections::BTreeSet;
use std::io::Write as _;
use std::ops::ControlFlow;
use std::process::{Command, Stdio};
use stream::send::{From, Options, SendError, Sent, Source, estimate, send};
use stream::{Frame, Survey, survey};
use testkit::Fixture;

const SMALL: u64 = 128 << 10;

fn pool_of(fixture: &str) -> Pool {
    open(&Fixture::open(fixture), &Open::default())
}

fn from(dataset: &dsl::Dataset, is_origin: bool) -> From {
    From {
        guid: dataset.phys().guid,
        txg: dataset.phys().creation_txg,
        is_origin,
        redact_snaps: dataset.redact_snaps().expect("readable"),
        redaction: None,
        ivset_guid: dataset.ivset_guid().expect("readable"),
    }
}

fn source(pool: &Pool, name: &str, start: Option<From>) -> Source {
    let dataset = pool.dataset(name).expect("there").dsl().clone();
    let set = dataset.open_objset().expect("open");
    let active = |f: &&format::feature::Feature| pool.spa().features().is_active(f.name);
    let pool_features = format::feature::FEATURES.iter().filter(active).map(|f| f.name).collect();
    Source { dataset, set, from: start, pool_features }
}

fn named(name: &str) -> Options {
    Options { to_name: name.to_owned(), ..Options::default() }
}

fn try_send(source: &Source, options: &Options) -> Result<(Vec<u8>, Sent), SendError> {
    let mut bytes = Vec::new();
    let sent = send(source, options, &mut bytes, &mut |_| ControlFlow::Continue(()))?;
    assert_eq!(sent.bytes, bytes.len() as u64);
    Ok((bytes, sent))
}

/// The records of a stream, which is whole, of the estimated size, and accepted by `zstream`.
fn sent(source: &Source, options: &Options) -> Vec<Frame> {
    let name = &options.to_name;
    let (bytes, told) = try_send(source, options).unwrap_or_else(|error| panic!("{name}: {error:?}"));
    assert_eq!(estimate(source, options).expect("estimated"), told.bytes, "{name}");
    let mut found = Survey::default();
    let read = survey(&bytes[..], &mut found, &mut |_| {}, |_| {});
    read.unwrap_or_else(|error| panic!("{name}: {error}"));
    assert!(found.streams == 1 && found.is_complete, "{name}");
    judge(&bytes, name);
    frames(&bytes)
}

/// `zstream dump` finds no wrong checksum, and as many records.
fn judge(bytes: &[u8], name: &str) {
    let Some(zstream) = testkit::tool("zstream") else { return };
    let mut child = Command::new(zstream)
        .arg("dump")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    let mut input = child.stdin.take().expect("a pipe");
    let output = std::thread::scope(|threads| {
        threads.spawn(move || input.write_all(bytes).expect("read"));
        child.wait_with_output().expect("ends")
    });
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && output.stderr.is_empty(), "{name}: {output:?}");
    assert!(!told.contains("ncorrect checksum"), "{name}: {told}");
    assert!(told.contains(&format!("Total stream length = {} ", bytes.len())), "{name}: {told}");
}

/// Ways to send that a receiver reads alike.
fn ways() -> [(Options, u64); 4] {
    let large = Options { large_blocks: true, ..Options::default() };
    [
        (Options::default(), SMALL),
        (large.clone(), u64::MAX),
        (Options { embedded: true, compressed: true, ..large }, u64::MAX),
        (Options { embedded: true, compressed: true, ..Options::default() }, SMALL),
    ]
}

/// Sends every snapshot of a pool, in full and as an increment from each earlier one, and the origin's too.
fn check_all(fixture: &str) {
    let pool = pool_of(fixture);
    let fixture = Fixture::open(fixture);
    let mut checked = 0;
    for entry in fixture.manifest().datasets.iter().filter(|dataset| dataset.is_snapshot()) {
        let name = &entry.name;
        let full = source(&pool, name, None);
        let mut earlier = Vec::new();
        let mut at = full.dataset.previous().expect("readable");
        while let Some(snapshot) = at {
            at = snapshot.previous().expect("readable");
            earlier.push(snapshot);
        }
        for (way, block_max) in ways() {
            let options = Options { to_name: name.clone(), ..way };
            let expected = Model::read(&full.set, block_max);
            let mut model = Model::default();
            model.apply(&sent(&full, &options));
            model.assert_is(&expected, name);
            for snapshot in earlier.iter().take(3) {
                let is_origin = snapshot.dir().id() != full.dataset.dir().id();
                let start = from(snapshot, is_origin);
                let increment = Source { from: Some(start), ..full.clone() };
                let mut model = Model::read(&snapshot.open_objset().expect("open"), block_max);
                model.apply(&sent(&increment, &options));
                model.assert_is(&expected, &format!("{} to {name}", snapshot.name()));
            }
            checked += 1;
        }
    }
    assert!(checked > 0);
}

macro_rules! pools {
    ($($test:ident = $fixture:literal;)*) => { $(#[test] fn $test() { check_all($fixture); })* };
}

pools! {
    all_of_snapshots = "snapshots";
    all_of_holes = "holes";
    all_of_recordsize = "recordsize";
    all_of_encryption = "encryption";
    all_of_legacy = "legacy";
    all_of_version10 = "version10";
    all_of_zvol = "zvol";
    all_of_longname = "longname";
    all_of_gang = "gang";
    all_of_cloned = "cloned";
    all_of_dedup = "dedup-legacy";
}

/// A partly received dataset is sent as OpenZFS has sent it.
#[test]
fn a_saved_dataset_is_sent_as_by_openzfs() {
    let pool = pool_of("partial-receive");
    let golden = frames(&testkit::stream("saved-partial"));
    let Record::Begin(begin) = &golden[0].header.record else { panic!("a start") };
    let (to_name, to_guid) = (String::from_utf8_lossy(begin.name()).into_owned(), Some(begin.to_guid));
    let options = Options { saved: true, to_name, to_guid, ..Options::default() };
    let ours = sent_unended(&source(&pool, "tmp/res", None), &options);
    for (ours, golden) in ours.iter().zip(&golden) {
        assert_eq!(ours.header, golden.header);
        assert!(ours.payload == golden.payload, "payload of {:?}", golden.header.record);
        assert!(ours.bytes == golden.bytes, "bytes of {:?}", golden.header.record);
    }
    assert_eq!(ours.len(), golden.len());
}

fn sent_unended(source: &Source, options: &Options) -> Vec<Frame> {
    let (bytes, told) = try_send(source, options).expect("sent");
    assert_eq!(estimate(source, options).expect("estimated"), told.bytes);
    frames(&bytes)
}

/// A raw stream is the same from the dataset and from what OpenZFS has received of it, with and without its key.
#[test]
fn a_raw_stream_is_that_of_its_copy() {
    let pool = pool_of("rawrecv");
    let raw = |name: &str| Options { raw: true, ..named(name) };
    let (enc, copy) = ("t_rawrecv/enc@1", "t_rawrecv/copy@1");
    let mut locked = source(&pool, enc, None);
    let unlocked = sent(&locked, &raw(enc));
    locked.set = locked.dataset.objset(KeyState::Locked).expect("open");
    let ours = sent(&locked, &raw(enc));
    let copied = sent(&source(&pool, copy, None), &raw(copy));
    let bytes = |frames: &[Frame]| frames.iter().map(|f| (f.bytes, f.payload.clone())).collect::<Vec<_>>();
    assert!(bytes(&ours) == bytes(&unlocked), "with the key");
    assert!(count(&ours, RecordKind::ObjectRange) > 0 && count(&ours, RecordKind::Write) > 0);
    assert_eq!(ours.len(), copied.len());
    for (ours, copied) in ours.iter().zip(&copied).skip(1) {
        let (a, b) = (&ours.header.record, &copied.header.record);
        if !matches!(a, Record::End(_)) {
            assert_eq!(a, b);
            assert!(ours.payload == copied.payload, "{a:?}");
        }
    }
    // Encrypted contents need the key unless they are raw.
    assert!(matches!(try_send(&locked, &named(enc)), Err(SendError::Block { .. } | SendError::Read(_))));
    let wrong = Source { from: Some(From::default()), ..locked.clone() };
    assert!(matches!(try_send(&wrong, &raw(enc)), Err(SendError::Refused(_))), "no IV set guid");
}

/// Raw, without encryption, is large, embedded and compressed.
#[test]
fn a_raw_stream_of_a_plain_dataset_is_not_encrypted() {
    let pool = pool_of("recordsize");
    let name = "t_recordsize/big1M@s";
    let source = source(&pool, name, None);
    let raw = Options { raw: true, ..named(name) };
    let as_stored = Options { large_blocks: true, embedded: true, compressed: true, ..named(name) };
    assert!(try_send(&source, &raw).expect("sent") == try_send(&source, &as_stored).expect("sent"));
    let Record::Begin(begin) = &sent(&source, &raw)[0].header.record else { panic!("a start") };
    assert_eq!(begin.features() & feature::RAW, 0);
    assert_ne!(begin.features() & feature::LARGE_BLOCKS, 0);
}

/// What a redacted stream leaves out is what OpenZFS has left out, and an increment from its bookmark brings it back.
#[test]
fn redacted_blocks_are_absent_until_they_are_sent() {
    let pool = pool_of("redacted");
    let name = "t_redacted/fs@s";
    let bookmark =
        source(&pool, "t_redacted/fs", None).dataset.bookmark("book").expect("readable").expect("there");
    let list = bookmark.redaction().expect("readable").expect("a list");
    let full = source(&pool, name, None);
    let redacted = sent(&full, &Options { redact: Some(list.clone()), ..named(name) });
    assert!(count(&redacted, RecordKind::Redact) > 0);
    let mut model = Model::default();
    model.apply(&redacted);

    let copy = "t_redacted/redacted@s";
    let frames = sent(&source(&pool, copy, None), &named(copy));
    assert_eq!(frames[0].payload, redacted[0].payload, "snapshots");
    let mut copied = Model::default();
    copied.apply(&frames);
    copied.assert_is(&model, "what OpenZFS has received");
    assert_eq!(model.redacted.iter().copied().collect::<Vec<_>>(), [3, 15, 16, 23, 26]);

    let phys = bookmark.phys();
    let start = From {
        guid: phys.guid,
        txg: phys.creation_txg,
        redact_snaps: Some(list.snapshots.clone()),
        redaction: Some(list),
        ..From::default()
    };
    let head = "t_redacted/fs";
    let increment = source(&pool, head, Some(start));
    model.apply(&sent(&increment, &named("t_redacted/fs@--head--")));
    model.assert_is(&Model::read(&increment.set, SMALL), head);
}

/// A list that we make is the one that OpenZFS has made, less the blocks that are holes.
#[test]
fn redaction_lists_are_those_of_openzfs() {
    let pool = pool_of("redacted");
    let set = |name: &str| source(&pool, name, None).set;
    let snapshot = set("t_redacted/fs@s");
    let ours = dsl::bookmark::unneeded(&snapshot, &[set("t_redacted/c@r")]).expect("compared");
    let mark =
        source(&pool, "t_redacted/fs", None).dataset.bookmark("book").expect("readable").expect("there");
    let list = mark.redaction().expect("readable").expect("a list");
    let theirs: Vec<_> =
        list.entries(pool.dsl()).expect("opened").map(|entry| entry.expect("an entry")).collect();
    let blocks = |ranges: &[dsl::bookmark::RedactedRange]| {
        let mut blocks = BTreeSet::new();
        for range in ranges {
            let object = snapshot.object(range.object).expect("there");
            for blkid in (range.first.0..range.end()).map(BlockId) {
                if !object.block_ptr(Level(0), blkid).expect("readable").is_hole() {
                    blocks.insert((range.object.0, blkid.0));
                }
            }
        }
        blocks
    };
    assert!(ours.len() >= 3, "{ours:?}");
    assert_eq!(blocks(&ours), blocks(&theirs));
    // What one of the redaction snapshots has is needed.
    let both = dsl::bookmark::unneeded(&snapshot, &[set("t_redacted/c@r"), set("t_redacted/fs@s")]);
    assert_eq!(both.expect("compared"), []);
}

/// A stream that starts at any write, after what was received before it, gives the whole.
#[test]
fn a_stream_goes_on_where_it_stopped() {
    let pool = pool_of("recordsize");
    for (name, large_blocks) in [("t_recordsize/big1M@s", false), ("t_recordsize/r16K@s", true)] {
        let source = source(&pool, name, None);
        let options = Options { large_blocks, ..named(name) };
        let all = sent(&source, &options);
        let mut whole = Model::default();
        whole.apply(&all);
        for (at, frame) in all.iter().enumerate().step_by(7) {
            let Record::Write(write) = &frame.header.record else { continue };
            let resume = Some((write.object, write.offset));
            let rest = sent(&source, &Options { resume, ..options.clone() });
            let Record::Begin(begin) = &rest[0].header.record else { panic!("a start") };
            assert_ne!(begin.features() & feature::RESUMING, 0);
            assert!(rest.len() <= all.len() - at + 3, "{} of {}", rest.len(), all.len() - at);
            let mut model = Model::default();
            model.apply(&all[..at]);
            model.apply(&rest);
            model.assert_is(&whole, &format!("{name} from {resume:?}"));
        }
    }
}

/// A caller that is gone ends a stream, and so does one that has had enough.
#[test]
fn a_stream_ends_when_nobody_reads_it() {
    struct Closed(usize);
    impl std::io::Write for Closed {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 = self.0.checked_sub(bytes.len()).ok_or(std::io::ErrorKind::BrokenPipe)?;
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let pool = pool_of("recordsize");
    let name = "t_recordsize/big1M@s";
    let source = source(&pool, name, None);
    for room in [0, 400_000] {
        let result = send(&source, &named(name), &mut Closed(room), &mut |_| ControlFlow::Continue(()));
        assert!(matches!(result, Err(SendError::Write(_))), "{result:?}");
    }
    let result = send(&source, &named(name), &mut Closed(usize::MAX), &mut |bytes| {
        if bytes > 100_000 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert!(matches!(result, Err(SendError::Cancelled)), "{result:?}");
}

/// A block that no device has ends the stream, or is filled.
#[test]
fn an_unreadable_block_is_named_or_filled() {
    let pool = pool_of("lost-block");
    let mut found = 0;
    for entry in &Fixture::open("lost-block").manifest().datasets {
        let source = source(&pool, &entry.name, None);
        match try_send(&source, &named(&entry.name)) {
            Ok(_) => {}
            Err(SendError::Block { object, .. }) => {
                assert!(object.0 > 0);
                let options = Options { fill_unreadable: true, ..named(&entry.name) };
                let (bytes, told) = try_send(&source, &options).expect("filled");
                assert!(told.filled > 0);
                let pattern = 0x2f5_badd_b10c_u64.to_le_bytes().repeat(64);
                assert!(frames(&bytes).iter().any(|frame| frame.payload.starts_with(&pattern)));
                found += 1;
            }
            Err(error) => panic!("{}: {error:?}", entry.name),
        }
    }
    assert!(found > 0);
}

#[test]
fn holes_that_are_not_newer_are_not_told() {
    // Two files were emptied before the snapshot `two`, and only their attributes have changed since: their holes have
    // births.
    let pool = pool_of("snapshots");
    let two = from(pool.dataset("t_snapshots/fs@two").expect("there").dsl(), false);
    let source = source(&pool, "t_snapshots/fs@three", Some(two));
    let all = sent(&source, &named("t_snapshots/fs@three"));
    let holes = all.iter().filter(|frame| match &frame.header.record {
        Record::Free(free) => [4, 26].contains(&free.object.0) && free.length != u64::MAX,
        _ => false,
    });
    assert_eq!((holes.count(), count(&all, RecordKind::Free)), (0, 88));
}
