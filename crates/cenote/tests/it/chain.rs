//! Golden streams, opened as they are: any file of any snapshot is what OpenZFS's receive made of the same streams.
#![allow(clippy::disallowed_types)] // Streams are written into files here.

use crate::golden::compare::{chain as words, contents};
use cenote::Error;
use cenote::chain::{Chain, ChainError, ChainOptions, Input};
use cenote::stream::{Reader, Writer};
use cenote::verify::{Encryption, Options as VerifyOptions};
use format::Endian;
use format::stream::{Begin, Record, feature};
use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use testkit::Entry;

/// A folder with stream files.
struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Files {
        Files(tempfile::tempdir().expect("a folder"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A golden stream in a file.
    fn golden(&self, name: &str) -> PathBuf {
        self.with(name, &testkit::stream(name))
    }

    fn with(&self, name: &str, bytes: &[u8]) -> PathBuf {
        fs::write(self.path(name), bytes).expect("written");
        self.path(name)
    }
}

fn packed(name: &str) -> PathBuf {
    testkit::streams_root().join(format!("{name}.zstream.zst"))
}

/// Opens files; also tells whether they were read, because there was no index.
fn open_with(files: &[&Path], options: &ChainOptions) -> Result<(Chain, bool), ChainError> {
    let mut was_read = false;
    let inputs = files.iter().map(|file| Input::File(file.to_path_buf())).collect();
    let chain = Chain::open(inputs, options, &mut |_, _| was_read = true)?;
    Ok((chain, was_read))
}

fn open(files: &[&Path]) -> Chain {
    open_with(files, &ChainOptions::default()).unwrap_or_else(|error| panic!("{}", words(&error))).0
}

fn refused(files: &[&Path]) -> ChainError {
    match open_with(files, &ChainOptions::default()) {
        Ok(_) => panic!("opened"),
        Err(error) => error,
    }
}

/// Compares snapshots with what OpenZFS made of the streams: pairs of a name in the streams and one in its pool.
fn compare(chain: &Chain, pairs: &[(&str, &str)]) {
    let (datasets, entries) = testkit::received();
    let mut by_dataset: BTreeMap<String, BTreeMap<Vec<u8>, Entry>> = BTreeMap::new();
    for entry in entries {
        by_dataset.entry(entry.ds.clone()).or_default().insert(entry.path.clone(), entry);
    }
    let mut wrong = Vec::new();
    for (sent, received) in pairs {
        let expected = datasets.iter().find(|dataset| dataset.name == *received).expect("an answer");
        let snapshot = chain.find(sent).unwrap_or_else(|error| panic!("{}", words(&error)));
        let dataset = chain.dataset(snapshot).unwrap_or_else(|error| panic!("{}", words(&error)));
        let mut renamed = expected.clone();
        dataset.name().clone_into(&mut renamed.name);
        if let Err(error) = contents(chain.pool(), &renamed, by_dataset.get(&expected.name), &mut wrong) {
            wrong.push(format!("{sent}: {}", words(&error)));
        }
    }
    // How well lz4 compresses differs between implementations.
    wrong.retain(|wrong| !wrong.contains(": blocks "));
    let shown: Vec<&String> = wrong.iter().take(40).collect();
    assert!(wrong.is_empty(), "{} differences: {shown:#?}", wrong.len());
}

/// The start of a stream.
fn begin(bytes: &[u8]) -> Begin {
    match Reader::new(bytes).next_frame().expect("read").expect("a record").header.record {
        Record::Begin(begin) => begin,
        other => panic!("{other:?}"),
    }
}

/// A golden stream with another start.
fn changed(name: &str, change: impl Fn(&mut Begin)) -> Vec<u8> {
    let (bytes, mut out) = (testkit::stream(name), Vec::new());
    let (mut reader, mut writer) = (Reader::new(&bytes[..]), Writer::new(&mut out));
    while let Some(mut frame) = reader.next_frame().expect("read") {
        if let Record::Begin(begin) = &mut frame.header.record {
            change(begin);
            frame.put_record(Endian::Little);
        }
        writer.write(&frame, Endian::Little).expect("written");
    }
    out
}

const FULL: [(&str, &str); 3] =
    [("src/fs@a", "dst/full@a"), ("@b", "dst/full@b"), ("src/fs@c", "dst/full@c")];

#[test]
fn a_full_stream_and_increments_in_any_order_with_an_index() {
    let files = Files::new();
    let [full, second, third] = ["full", "incr-a-b", "incr-b-c"].map(|name| files.golden(name));
    let (chain, was_read) = open_with(&[&third, &full, &second], &ChainOptions::default()).expect("opened");
    assert!(was_read);
    compare(&chain, &FULL);
    let names: Vec<_> = chain.snapshots().iter().map(|snapshot| snapshot.snapshot.as_str()).collect();
    assert_eq!(names, ["a", "b", "c"]);
    drop(chain);

    let index = files.path("incr-b-c.idx");
    let bytes = fs::metadata(&index).expect("an index").len();
    let streams: u64 =
        [&full, &second, &third].map(|file| fs::metadata(file).expect("there").len()).iter().sum();
    assert!(bytes < streams / 4, "index {bytes} of streams {streams}");
    let (chain, was_read) = open_with(&[&full, &second, &third], &ChainOptions::default()).expect("opened");
    assert!(!was_read, "there is an index");
    compare(&chain, &FULL);
    assert_eq!(fs::read_dir(files.0.path()).expect("listed").count(), 4, "nothing is left over");

    // Another set of files has another index.
    let (chain, was_read) = open_with(&[&full, &second], &ChainOptions::default()).expect("opened");
    assert!(was_read && files.path("incr-a-b.idx").exists());
    compare(&chain, &FULL[..2]);
    assert!(matches!(chain.find("@c"), Err(ChainError::NoSnapshot { .. })));
}

#[test]
fn blocks_are_read_from_the_streams() {
    let files = Files::new();
    let names = ["small-blocks", "large-L", "compressed-lz4", "huge-Lc"];
    for (name, received) in names.into_iter().zip(["small@1", "l1@1", "c-lz4@1", "huge@1"]) {
        let file = files.golden(name);
        compare(&open(&[&file]), &[("", &format!("dst/{received}"))]);
        let index = fs::metadata(files.path(&format!("{name}.idx"))).expect("an index").len();
        assert!(index < 512 << 10, "{name}: {index}");
    }
}

#[test]
fn compressed_files_sources_that_are_read_once_and_volumes() {
    let files = Files::new();
    let options = ChainOptions { index: Some(files.path("x.idx")), ..ChainOptions::default() };
    let chain = [packed("incr-b-c"), packed("full"), packed("incr-a-b")];
    let chain: Vec<&Path> = chain.iter().map(PathBuf::as_path).collect();
    for must_read in [true, false] {
        let (chain, was_read) = open_with(&chain, &options).expect("opened");
        assert_eq!(was_read, must_read);
        compare(&chain, &FULL);
    }
    let source = Box::new(std::io::Cursor::new(testkit::stream("zvol-full")));
    let once = Input::Once { name: "-".into(), source };
    let inputs = vec![Input::File(files.golden("zvol-incr")), once];
    let chain = Chain::open(inputs, &ChainOptions::default(), &mut |_, _| {}).expect("opened");
    compare(&chain, &[("@r2", "dst/vol")]);
    assert!(chain.snapshots().iter().all(|snapshot| snapshot.is_volume));
    assert_eq!(fs::read_dir(files.0.path()).expect("listed").count(), 2);
}

#[test]
fn a_chain_is_joined_into_one_full_stream() {
    let files = Files::new();
    let paths = ["full", "incr-a-b", "incr-b-c"].map(|name| files.golden(name));
    let paths: Vec<&Path> = paths.iter().map(PathBuf::as_path).collect();
    let chain = open(&paths);
    for (index, (sent, received)) in FULL.into_iter().enumerate() {
        let mut joined = Vec::new();
        let snapshot = chain.find(sent).expect("found");
        let done = chain.join(snapshot, &mut joined, &mut |_| ControlFlow::Continue(()));
        let done = done.unwrap_or_else(|error| panic!("{}", words(&error)));
        assert_eq!(done.bytes, joined.len() as u64);
        let file = files.with(&format!("joined-{index}"), &joined);
        compare(&open(&[&file]), &[("", received)]);
        // Its guid is that of the snapshot: increments go on from there.
        let rest: Vec<&Path> =
            std::iter::once(file.as_path()).chain(paths[index + 1..].iter().copied()).collect();
        compare(&open(&rest), &[("@c", "dst/full@c")]);
    }
}

/// Loads the key of all senders for a dataset.
fn unlock(chain: &Chain, dataset: &str) {
    let key = testkit::keys::material("passphrase").expect("a key");
    let loaded = chain.pool().load_key(&chain.name_in_pool(dataset), &key);
    loaded.unwrap_or_else(|error| panic!("{dataset}: {}", words(&error)));
}

const RAW: [(&str, &str); 2] = [("@1", "dst/raw@1"), ("@2", "dst/raw@2")];

#[test]
fn raw_streams_are_read_with_their_key() {
    let files = Files::new();
    let [full, second] = ["raw-full", "raw-incr"].map(|name| files.golden(name));
    // The second time there is an index.
    for must_read in [true, false] {
        let (chain, was_read) = open_with(&[&second, &full], &ChainOptions::default()).expect("opened");
        assert_eq!(was_read, must_read);
        let newest = chain.find("").expect("found");
        let locked = chain.dataset(newest).expect("there").filesystem();
        assert!(matches!(locked, Err(Error::Locked { .. })), "it is locked");
        let wrong = chain.pool().load_key(&chain.name_in_pool(&newest.dataset), b"no such passphrase");
        let told = words(&wrong.expect_err("refused"));
        assert_eq!(told, format!("Incorrect key provided for '{}'.", newest.dataset));
        unlock(&chain, &newest.dataset);
        compare(&chain, &RAW);
    }
    let ccm = open(&[&files.golden("raw-ccm")]);
    unlock(&ccm, &ccm.snapshots()[0].dataset);
    compare(&ccm, &[("", "dst/rawccm@1")]);
    // Each dataset of a package is an encryption root of its own; a volume is among them.
    let tree = open(&[&files.golden("raw-replicate")]);
    let mut datasets: Vec<String> = tree.snapshots().iter().map(|one| one.dataset.clone()).collect();
    datasets.dedup();
    assert!(datasets.len() > 1 && tree.snapshots().iter().any(|one| one.is_volume));
    datasets.iter().for_each(|dataset| unlock(&tree, dataset));
    let report =
        cenote::verify::verify(tree.pool(), &VerifyOptions { space: false, ..Default::default() }, &());
    let is_verified = |name: &str| {
        let named = report.datasets.iter().find(|one| one.name == tree.name_in_pool(name));
        named.is_some_and(|one| one.encryption == Encryption::Verified)
    };
    assert!(report.is_whole() && datasets.iter().all(|dataset| is_verified(dataset)), "{report:?}");
}

#[test]
fn raw_chains_are_joined_without_their_key() {
    let files = Files::new();
    let [full, second] = ["raw-full", "raw-incr"].map(|name| files.golden(name));
    let chain = open(&[&full, &second]);
    for (index, (sent, received)) in RAW.into_iter().enumerate() {
        let mut joined = Vec::new();
        let snapshot = chain.find(sent).expect("found");
        let done = chain.join(snapshot, &mut joined, &mut |_| ControlFlow::Continue(()));
        done.unwrap_or_else(|error| panic!("{}", words(&error)));
        let start = begin(&joined);
        assert!(start.features() & feature::RAW != 0 && start.from_guid == 0);
        let file = files.with(&format!("joined-{index}"), &joined);
        let again = open(&[&file]);
        unlock(&again, &snapshot.dataset);
        compare(&again, &[("", received)]);
    }
    // The increment goes on from a joined stream: the IV sets are those of the sender.
    let joined = files.path("joined-0");
    let again = open(&[&joined, &second]);
    unlock(&again, &again.snapshots()[0].dataset);
    compare(&again, &RAW);
}

#[test]
fn packages_of_trees_with_clones() {
    let files = Files::new();
    let [first, second] = ["replicate-r2", "replicate-r2-r3"].map(|name| files.golden(name));
    let chain = open(&[&second, &first]);
    let pairs = ["@r1", "@r2", "@r3", "/one@r1", "/one@r2", "/one@r3", "/cl@r2", "/cl@r3", "/three@r3"]
        .map(|name| (format!("src/tree{name}"), format!("dst/tree{name}")));
    let pairs: Vec<_> = pairs.iter().map(|(sent, received)| (sent.as_str(), received.as_str())).collect();
    compare(&chain, &pairs);
    assert_eq!(chain.find("@r3").expect("found").dataset, "src/tree");

    let [full, interval] = ["full", "interval-a-c"].map(|name| files.golden(name));
    compare(&open(&[&full, &interval]), &FULL);
}

#[test]
fn streams_that_do_not_follow_each_other_are_refused() {
    let files = Files::new();
    let [full, second, third] = ["full", "incr-a-b", "incr-b-c"].map(|name| files.golden(name));
    let gap = refused(&[&third, &full]);
    assert!(matches!(&gap, ChainError::Gap { file, .. } if *file == third), "{gap:?}");
    assert!(matches!(refused(&[&second]), ChainError::Gap { .. }));
    let from = begin(&testkit::stream("incr-a-b")).from_guid;
    let branch = files.with("a-c", &changed("incr-b-c", |begin| begin.from_guid = from));
    let branches = refused(&[&full, &branch, &second]);
    assert!(
        matches!(&branches, ChainError::Branches { second_file, .. } if *second_file == branch),
        "{branches:?}"
    );
    // Of several ways to a snapshot, one that fits is taken.
    let other = files.golden("full-props");
    let bookmark = files.golden("incr-from-bookmark");
    compare(&open(&[&other, &branch, &bookmark, &third, &full, &second]), &FULL);
    let starts = refused(&[&full, &other]);
    assert!(matches!(starts, ChainError::TwoStarts { .. }), "{starts:?}");
    // The root of a pool, and datasets of several pools.
    let root = |begin: &mut Begin| begin.to_name[..8].copy_from_slice(b"tank@a\0\0");
    let root = files.with("root", &changed("full", root));
    let chain = open(&[&root, &files.golden("longname")]);
    compare(&chain, &[("tank@a", "dst/full@a"), ("src/long@1", "dst/long@1")]);
    assert!(matches!(chain.find("@x"), Err(ChainError::NoSnapshot { .. })));
    assert!(matches!(chain.find(""), Err(ChainError::Ambiguous { .. })));
    // The same stream twice is no contradiction.
    let again = files.golden("full");
    compare(&open(&[&full, &again, &second]), &FULL[..2]);
    assert!(matches!(refused(&[]), ChainError::NoFiles));
}

#[test]
fn damage_is_found() {
    let files = Files::new();
    let bytes = testkit::stream("full");
    let mut damaged = bytes.clone();
    damaged[bytes.len() / 2] ^= 1;
    let file = files.with("damaged", &damaged);
    let error = refused(&[&file]);
    assert!(words(&error).contains("checksum mismatch at byte"), "{}", words(&error));
    assert!(!files.path("damaged.idx").exists());
    let error = refused(&[&files.with("cut", &bytes[..bytes.len() - 400])]);
    assert!(words(&error).contains("the stream ends within"), "{}", words(&error));
    let error = refused(&[&files.with("text", b"no stream")]);
    assert!(words(&error).contains("not a send stream"), "{}", words(&error));

    // A damaged index is made again.
    let full = files.golden("full");
    drop(open(&[&full]));
    let index = files.path("full.idx");
    let good = fs::read(&index).expect("read");
    for at in [good.len() - 5, good.len() - 200] {
        let mut bad = good.clone();
        bad[at] ^= 1;
        fs::write(&index, &bad).expect("written");
        let (chain, was_read) = open_with(&[&full], &ChainOptions::default()).expect("opened");
        assert!(was_read);
        compare(&chain, &FULL[..1]);
    }
    // So is one of a file that has changed.
    fs::write(&full, testkit::stream("full-props")).expect("written");
    let (chain, was_read) = open_with(&[&full], &ChainOptions::default()).expect("opened");
    assert!(was_read);
    assert_eq!(chain.snapshots()[0].snapshot, "c");
}

/// In a folder that all may write to, the index of another user would replace what the streams hold.
#[test]
fn an_index_that_others_can_write_is_not_used() {
    use std::os::unix::fs::PermissionsExt;
    let files = Files::new();
    let stream = files.golden("full");
    let index = files.path("full.idx");
    let is_read = || open_with(&[&stream], &ChainOptions::default()).expect("opened").1;
    assert!(is_read() && !is_read());
    fs::set_permissions(&index, fs::Permissions::from_mode(0o666)).expect("set");
    assert!(is_read() && !is_read(), "it is made anew");
    assert_eq!(fs::metadata(&index).expect("there").permissions().mode() & 0o777, 0o600);
    fs::remove_file(&index).expect("removed");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, &index, rustix::fs::FileType::Fifo, mode, 0).expect("made");
    assert!(is_read(), "a pipe in its place does not stop it");
}
