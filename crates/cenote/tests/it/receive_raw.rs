//! Golden raw streams, received into pools of ours without their key: with the key, the contents are what OpenZFS's
//! receive made of the same streams, and every MAC is right.

use crate::golden::compare::{chain, contents};
use crate::receive::{OnFile, answers, how, receive, received};
use cenote::PoolWriter;
use cenote::receive::{Receive, ReceiveError};
use cenote::stream::{Frame, Reader};
use dsl::DslError;
use dsl::keys::KeyError;
use format::stream::{HEADER_SIZE, Record, feature};
use format::{Endian, NvList, NvValue};

/// The passphrase of all senders.
fn passphrase() -> Vec<u8> {
    testkit::keys::material("passphrase").expect("a key")
}

fn forced(dataset: &str, snapshot: &str) -> Receive {
    Receive { force: true, ..how(dataset, snapshot) }
}

/// Compares datasets below these encryption roots with what OpenZFS made of their streams. `pairs`: ours, and the one that OpenZFS received.
fn compare(pool: &PoolWriter, roots: &[&str], pairs: &[(&str, &str)]) {
    pool.sync().expect("synced");
    let (datasets, entries) = answers();
    let view = pool.view().expect("a view");
    for root in roots {
        // The keys belong to the pool: an earlier view may have loaded it.
        match view.load_key(root, &passphrase()) {
            Ok(()) | Err(cenote::Error::Dsl(DslError::Key(KeyError::AlreadyLoaded { .. }))) => {}
            Err(error) => panic!("the key of {root}: {}", chain(&error)),
        }
    }
    let mut wrong = Vec::new();
    for (ours, theirs) in pairs {
        let expected = datasets.iter().find(|dataset| dataset.name == *theirs).expect("an answer").clone();
        let of = entries.get(*theirs);
        let expected = testkit::Dataset { name: (*ours).to_owned(), ..expected };
        if let Err(error) = contents(&view, &expected, of, &mut wrong) {
            wrong.push(format!("{ours}: {}", chain(&error)));
        }
    }
    // Blocks of accounting, and of the array of dnodes, differ.
    wrong.retain(|wrong| !wrong.contains(": blocks "));
    let shown: Vec<&String> = wrong.iter().take(40).collect();
    assert!(wrong.is_empty(), "{} differences: {shown:#?}", wrong.len());
}

/// The frames of the first stream in these bytes, its start included.
fn frames(bytes: &[u8]) -> Vec<Frame> {
    let mut reader = Reader::new(bytes);
    let mut frames = Vec::new();
    while let Some(frame) = reader.next_frame().expect("a record") {
        let is_end = matches!(frame.header.record, Record::End(_));
        frames.push(frame);
        if is_end {
            break;
        }
    }
    frames
}

/// The bytes of frames whose records may have been changed. Their checksums are stale.
fn bytes_of(frames: &[Frame]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for frame in frames {
        let mut header = frame.bytes;
        frame.header.record.put(&mut header, Endian::Little);
        if let Record::Begin(_) = frame.header.record {
            header[4..8].copy_from_slice(&(frame.payload.len() as u32).to_le_bytes());
        }
        bytes.extend_from_slice(&header[..HEADER_SIZE]);
        bytes.extend_from_slice(&frame.payload);
    }
    bytes
}

/// Has OpenZFS read the dnodes of a dataset with its key.
fn judge_unlocked(files: &OnFile, dataset: &str) {
    let Some(zdb) = testkit::need_tool("zdb") else { return };
    let key = String::from_utf8(passphrase()).expect("text");
    let output = testkit::hurried(zdb)
        .args(["-e", "-p"])
        .arg(files.folder())
        .args(["-K", &key, "-dddd", dataset])
        .output()
        .expect("zdb starts");
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    let complaints: Vec<&str> =
        text.lines().filter(|line| line.to_ascii_lowercase().contains("error")).collect();
    assert!(output.status.success() && complaints.is_empty(), "zdb {dataset}: {complaints:#?}\n{text}");
    assert!(text.contains("\tuid ") && text.contains("\tmode\t"), "{dataset} was not unlocked:\n{text}");
}

fn receive_unverified(pool: &PoolWriter, bytes: &[u8], how: &Receive) -> Result<(), ReceiveError> {
    let mut reader = Reader::new(bytes).unverified();
    let begin = reader.next_frame().expect("a record").expect("a start");
    pool.receive(&begin, &mut reader, how, &mut ()).map(drop)
}

#[test]
fn a_full_stream_and_an_increment_on_it() {
    let (files, pool) = OnFile::new();
    received(&pool, "raw-full", &how("dst/raw", "1"));
    received(&pool, "raw-ccm", &how("dst/ccm", "1"));
    let view = pool.view().expect("a view");
    let dataset = view.dataset("dst/raw").expect("there");
    let property = |name: &str| dataset.property(name).expect("read").unwrap_or_default();
    let is = ["encryption", "keyformat", "keystatus", "encryptionroot", "keylocation", "pbkdf2iters"];
    let expected = ["aes-256-gcm", "passphrase", "unavailable", "dst/raw", "prompt", "100000"];
    assert_eq!(is.map(property), expected);
    assert!(dataset.filesystem().is_err(), "it is locked");
    compare(
        &pool,
        &["dst/raw", "dst/ccm"],
        &[("dst/raw@1", "dst/raw@1"), ("dst/raw", "dst/raw@1"), ("dst/ccm@1", "dst/rawccm@1")],
    );
    received(&pool, "raw-incr", &how("dst/raw", "2"));
    compare(
        &pool,
        &["dst/raw"],
        &[("dst/raw@1", "dst/raw@1"), ("dst/raw@2", "dst/raw@2"), ("dst/raw", "dst/raw@2")],
    );
    files.judge(pool);
    judge_unlocked(&files, "dst/raw");
    judge_unlocked(&files, "dst/raw@1");
    judge_unlocked(&files, "dst/ccm");
}

/// The substreams of a package, one after the other.
fn substreams(bytes: &[u8]) -> Vec<Vec<Frame>> {
    let mut reader = Reader::new(bytes);
    let mut streams: Vec<Vec<Frame>> = Vec::new();
    while let Some(frame) = reader.next_frame().expect("a record") {
        match &frame.header.record {
            Record::Begin(begin) if begin.is_package() => {}
            Record::Begin(_) => streams.push(vec![frame]),
            _ if streams.is_empty() => {}
            _ => streams.last_mut().expect("a stream").push(frame),
        }
    }
    streams
}

/// A file system with a volume below it, each received as an encryption root of its own.
#[test]
fn a_tree_of_datasets_below_an_encrypted_parent() {
    let (files, pool) = OnFile::new();
    received(&pool, "raw-full", &how("dst/raw", "1"));
    for stream in substreams(&testkit::stream("raw-replicate")) {
        let Record::Begin(begin) = &stream[0].header.record else { panic!("no start") };
        let name = String::from_utf8_lossy(begin.name()).into_owned();
        let (dataset, snapshot) = name.split_once('@').expect("a snapshot");
        let dataset = dataset.replace("src/enc", "dst/raw/tree");
        receive_unverified(&pool, &bytes_of(&stream), &how(&dataset, snapshot)).expect(&name);
    }
    compare(
        &pool,
        &["dst/raw/tree", "dst/raw/tree/vol"],
        &[
            ("dst/raw/tree@1", "dst/rawtree@1"),
            ("dst/raw/tree@2", "dst/rawtree@2"),
            ("dst/raw/tree/vol@1", "dst/rawtree/vol@1"),
            ("dst/raw/tree/vol@2", "dst/rawtree/vol@2"),
        ],
    );
    files.judge(pool);
}

/// The rest of a stream from record `index` on, as its sender resumes it at this place.
fn resumed(all: &[Frame], index: usize, object: u64, offset: u64) -> Vec<u8> {
    let mut rest = vec![all[0].clone()];
    if let Record::Begin(begin) = &mut rest[0].header.record {
        begin.version_info |= feature::RESUMING << 2;
    }
    let mut list = NvList::decode(&rest[0].payload).expect("a list");
    list.push("resume_object", NvValue::Uint64(object));
    list.push("resume_offset", NvValue::Uint64(offset));
    rest[0].payload = list.encode_xdr();
    rest.extend_from_slice(&all[index..]);
    bytes_of(&rest)
}

/// Receives the first records of a stream, and then what its sender sends to resume: from the last object on, with
/// or without its blocks before the place.
fn cut_and_resumed(pool: &PoolWriter, stream: &str, to: (&str, &str), cut: usize, repeats: bool) {
    let all = frames(&testkit::stream(stream));
    let (name, whole) = (to.0, how(to.0, to.1));
    let resumable = Receive { resumable: true, ..whole.clone() };
    let error = receive(pool, &bytes_of(&all[..cut]), &resumable);
    assert!(error.is_err(), "{cut}: {error:?}");
    pool.sync().expect("synced");
    let view = pool.view().expect("a view");
    let token = view.dataset(name).expect("there").property("receive_resume_token").expect("read");
    let state = dsl::resume::decode(&token.expect("a token")).expect("decoded");
    assert!(state.has("rawok") && state.has("compressok"), "{state:?}");
    let (object, offset) = (state.u64("object").expect("there"), state.u64("offset").expect("there"));
    let is_here = |frame: &Frame| match &frame.header.record {
        Record::Object(record) => record.object.0 == object,
        _ => false,
    };
    let from = all.iter().position(is_here).expect("the object");
    let refused = receive(pool, &testkit::stream(stream), &whole);
    assert!(matches!(refused, Err(ReceiveError::PartialState)), "{refused:?}");
    let mut rest = all;
    rest.retain(|frame| match &frame.header.record {
        Record::Write(record) => repeats || record.object.0 != object || record.offset >= offset,
        _ => true,
    });
    receive_unverified(pool, &resumed(&rest, from, object, offset), &whole).expect("resumed");
}

#[test]
fn a_receive_that_was_cut_goes_on() {
    let (files, pool) = OnFile::new();
    for (at, cut) in [40, 150, 151, 320].into_iter().enumerate() {
        let name = format!("dst/r{at}");
        cut_and_resumed(&pool, "raw-full", (&name, "1"), cut, at % 2 == 1);
        compare(&pool, &[&name], &[(&format!("{name}@1"), "dst/raw@1")]);
    }
    cut_and_resumed(&pool, "raw-incr", ("dst/r0", "2"), 100, false);
    compare(&pool, &["dst/r0"], &[("dst/r0@1", "dst/raw@1"), ("dst/r0@2", "dst/raw@2")]);
    files.judge(pool);
}

#[test]
fn what_does_not_fit_is_refused_and_changes_nothing() {
    let (files, pool) = OnFile::new();
    let refusal = |stream: &str, how: &Receive| {
        let error = receive(&pool, &testkit::stream(stream), how).expect_err("refused");
        format!("{error:?}")
    };
    assert!(refusal("raw-incr", &how("dst/raw", "2")).contains("Missing"));
    received(&pool, "enc-decrypted", &how("dst/plain", "1"));
    // A plain dataset with a snapshot of the right guid gets no encrypted blocks.
    assert!(refusal("raw-incr", &forced("dst/plain", "2")).contains("NotEncrypted"));
    received(&pool, "raw-full", &how("dst/raw", "1"));
    assert!(refusal("raw-full", &how("dst/raw", "x")).contains("Exists"));
    assert!(refusal("raw-full", &forced("dst/raw", "x")).contains("EncryptedOverwrite"));
    assert!(refusal("enc-decrypted", &forced("dst/raw", "x")).contains("EncryptedOverwrite"));
    // The plain stream of the same snapshot below the encrypted dataset.
    assert!(refusal("enc-decrypted", &how("dst/raw/below", "1")).contains("Encrypted"));
    let changed = |change: &dyn Fn(&mut NvList)| {
        let mut all = frames(&testkit::stream("raw-incr"));
        let mut list = NvList::decode(&all[0].payload).expect("a list");
        let mut keys = list.list("crypt_keydata").expect("keys").clone();
        change(&mut keys);
        list.set("crypt_keydata", NvValue::List(keys));
        all[0].payload = list.encode_xdr();
        receive_unverified(&pool, &bytes_of(&all), &how("dst/raw", "2")).expect_err("refused")
    };
    let set = |name: &'static str, value: u64| changed(&|keys| keys.set(name, NvValue::Uint64(value)));
    assert!(matches!(set("from_ivset_guid", 1), ReceiveError::OtherIvSet(_)));
    assert!(matches!(set("from_ivset_guid", 0), ReceiveError::NoIvSet(_)));
    assert!(matches!(set("DSL_CRYPTO_GUID", 1), ReceiveError::OtherKey(_)));
    for (name, value) in [
        ("DSL_CRYPTO_SUITE", 9),
        ("DSL_CRYPTO_VERSION", 2),
        ("keyformat", 4),
        ("mdn_nblkptr", 2),
        ("mdn_nlevels", 200),
        ("mdn_indblkshift", 40),
        ("mdn_blksz", 512),
        ("mdn_maxblkid", u64::MAX),
        ("mdn_maxblkid", 0),
    ] {
        assert!(matches!(set(name, value), ReceiveError::Invalid(_)), "{name} {value}");
    }
    let without = changed(&|keys| drop(keys.remove("portable_mac")));
    assert!(matches!(without, ReceiveError::Invalid(_)), "{without:?}");
    received(&pool, "raw-incr", &how("dst/raw", "2"));
    assert!(refusal("raw-incr", &how("dst/raw", "3")).contains("Modified"));
    received(&pool, "raw-incr", &forced("dst/raw", "3"));
    compare(&pool, &["dst/raw"], &[("dst/raw@3", "dst/raw@2"), ("dst/raw@1", "dst/raw@1")]);
    files.judge(pool);
}

/// A change of the first record of a kind that has a property. Returns false for other records.
macro_rules! change {
    ($kind:ident($record:ident) $(if $has:expr)? => $change:expr) => {
        |record: &mut Record| match record {
            Record::$kind($record) $(if $has)? => {
                $change;
                true
            }
            _ => false,
        }
    };
}

/// Records that break a rule end the receive with an error; the pool goes on.
#[test]
fn hostile_records_are_refused() {
    let changes: &[fn(&mut Record) -> bool] = &[
        change!(ObjectRange(range) => range.slots = 31),
        change!(ObjectRange(range) => range.first.0 = 16),
        change!(ObjectRange(range) => range.first.0 = 1 << 40),
        change!(ObjectRange(range) => range.flags = 2),
        change!(ObjectRange(range) if range.first.0 == 32 => range.first.0 = 64),
        change!(Object(object) => object.levels = 0),
        change!(Object(object) => object.levels = 255),
        change!(Object(object) => object.indirect_shift = 3),
        change!(Object(object) => object.block_pointers = 4),
        change!(Object(object) => object.block_pointers = 0),
        change!(Object(object) => object.max_block = u64::MAX),
        change!(Object(object) => object.max_block = 3),
        change!(Object(object) if object.raw_bonus_len > 0 => object.slots = 32),
        change!(Object(object) if object.raw_bonus_len > 0 => object.bonus_len = 512),
        change!(Object(object) if object.raw_bonus_len > 0 => object.block_pointers = 3),
        change!(Object(object) => object.flags |= 2),
        change!(Write(write) => write.flags |= 2),
        change!(Write(write) => write.compression = 200),
        change!(Write(write) => write.compression = 16),
        change!(Write(write) => write.offset = 1 << 40),
        change!(Write(write) => write.kind = 1),
        change!(Write(write) => write.logical_size = 1 << 30),
        change!(Write(write) if write.compression == 2 => write.logical_size *= 2),
        change!(Free(free) => free.offset = 7),
        change!(Free(free) if free.length != u64::MAX => free.length = 511),
        change!(Spill(spill) => spill.length = 1),
        change!(Spill(spill) => spill.kind = 19),
        change!(Spill(spill) => spill.object.0 = 2),
        // An object without attributes, whose dnode has no room for another pointer.
        change!(Spill(spill) => spill.object.0 = 1),
    ];
    let (files, pool) = OnFile::new();
    let all = frames(&testkit::stream("raw-full"));
    for (at, change) in changes.iter().enumerate() {
        let mut stream = all.clone();
        assert!(stream.iter_mut().any(|frame| change(&mut frame.header.record)), "change {at}");
        let error = receive_unverified(&pool, &bytes_of(&stream), &how("dst/bad", "1"));
        let text = error.as_ref().err().map(ToString::to_string);
        assert!(matches!(error, Err(ReceiveError::Stream(_))), "change {at}: {text:?}");
    }
    // Without its range, the first object cannot be protected.
    let stream: Vec<Frame> =
        all.iter().filter(|frame| !matches!(frame.header.record, Record::ObjectRange(_))).cloned().collect();
    assert!(receive_unverified(&pool, &bytes_of(&stream), &how("dst/bad", "1")).is_err());
    received(&pool, "raw-full", &how("dst/raw", "1"));
    files.judge(pool);
}
