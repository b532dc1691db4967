//! Golden streams, received into pools of ours: the files, their attributes and the space of their owners are what
//! OpenZFS's receive made of the same streams.
#![allow(clippy::disallowed_types)] // Empty files are made here; `vdev` opens them.

use crate::golden::compare::{chain, contents};
use cenote::receive::{Receive, ReceiveError, Received, Watch};
use cenote::stream::Reader;
use cenote::{LivePool, PoolWriter};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use testkit::Entry;
use vdev::device::file::{Access, open_exclusive};
use vdev::env::Env;

/// A pool on one file.
pub(crate) struct OnFile {
    dir: tempfile::TempDir,
}

impl OnFile {
    pub(crate) fn new() -> (OnFile, PoolWriter) {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("d0");
        std::fs::File::create(&path).and_then(|file| file.set_len(1 << 30)).expect("a file");
        let device = open_exclusive(&path, Access::Cached).expect("opened");
        let leaf = pool::LeafSpec::file(path.to_str().expect("a path"), device);
        let top = pool::TopSpec {
            layout: pool::Layout::Single,
            class: pool::space::Class::Normal,
            ashift: Some(format::Ashift(9)),
            leaves: vec![leaf],
        };
        let live = LivePool::create(pool::CreateSpec::new("dst", vec![top]), Env::system()).expect("a pool");
        live.start();
        (OnFile { dir }, PoolWriter::of(live))
    }

    pub(crate) fn judge(&self, writer: PoolWriter) {
        writer.close().expect("exported");
        testkit::assert_zdb_clean(self.dir.path(), "dst");
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("d0")
    }

    /// The folder with the pool's file.
    pub(crate) fn folder(&self) -> &Path {
        self.dir.path()
    }
}

pub(crate) fn how(dataset: &str, snapshot: &str) -> Receive {
    let (dataset, snapshot) = (dataset.to_owned(), snapshot.to_owned());
    Receive { dataset, snapshot, ..Receive::default() }
}

/// Receives the first stream in these bytes.
pub(crate) fn receive(pool: &PoolWriter, bytes: &[u8], how: &Receive) -> Result<Received, ReceiveError> {
    let mut reader = Reader::new(bytes);
    let begin = reader.next_frame().expect("a record").expect("a start");
    pool.receive(&begin, &mut reader, how, &mut ())
}

pub(crate) fn received(pool: &PoolWriter, stream: &str, how: &Receive) {
    receive(pool, &testkit::stream(stream), how)
        .unwrap_or_else(|error| panic!("{stream}: {}", chain(&error)));
}

pub(crate) type Answers = (Vec<testkit::Dataset>, BTreeMap<String, BTreeMap<Vec<u8>, Entry>>);

pub(crate) fn answers() -> Answers {
    let (datasets, entries) = testkit::received();
    let mut by_dataset: BTreeMap<String, BTreeMap<Vec<u8>, Entry>> = BTreeMap::new();
    for entry in entries {
        by_dataset.entry(entry.ds.clone()).or_default().insert(entry.path.clone(), entry);
    }
    (datasets, by_dataset)
}

/// Compares these datasets, and their snapshots, with what OpenZFS made of the streams.
fn compare(pool: &PoolWriter, names: &[&str]) {
    pool.sync().expect("synced");
    let (datasets, entries) = answers();
    let view = pool.view().expect("a view");
    let mut wrong = Vec::new();
    for dataset in &datasets {
        let name = dataset.name.split('@').next().unwrap_or_default();
        if !names.contains(&name) {
            continue;
        }
        if let Err(error) = contents(&view, dataset, entries.get(&dataset.name), &mut wrong) {
            wrong.push(format!("{}: {}", dataset.name, chain(&error)));
        }
    }
    // How well lz4 compresses differs between implementations. OpenZFS's receive has lost spill blocks that were embedded
    // in their pointers; ours has not.
    wrong.retain(|wrong| !wrong.contains(": blocks "));
    // A block that an increment from a redaction bookmark does not bring reads as zeros in OpenZFS.
    wrong.retain(|wrong| !(wrong.contains("/text-131072: ") && wrong.starts_with("dst/red")));
    let shown: Vec<&String> = wrong.iter().take(40).collect();
    assert!(wrong.is_empty(), "{} differences: {shown:#?}", wrong.len());
}

#[test]
fn a_full_stream_and_increments_on_it() {
    let (files, pool) = OnFile::new();
    received(&pool, "full", &how("dst/full", "a"));
    received(&pool, "incr-a-b", &how("dst/full", "b"));
    received(&pool, "incr-b-c", &Receive { force: true, ..how("dst/full", "c") });
    compare(&pool, &["dst/full"]);
    files.judge(pool);
}

#[test]
fn large_embedded_and_compressed_blocks() {
    let (files, pool) = OnFile::new();
    for (at, stream) in ["plain", "L", "e", "c", "Lec", "w"].into_iter().enumerate() {
        received(&pool, &format!("large-{stream}"), &how(&format!("dst/l{at}"), "1"));
    }
    received(&pool, "large-Lec-incr", &Receive { force: true, ..how("dst/l4", "2") });
    received(&pool, "large-plain-incr", &Receive { force: true, ..how("dst/l0", "2") });
    compare(&pool, &["dst/l0", "dst/l1", "dst/l2", "dst/l3", "dst/l4", "dst/l5"]);
    files.judge(pool);
}

#[test]
fn every_compression_and_block_size() {
    let (files, pool) = OnFile::new();
    let compressed = ["lzjb", "gzip-9", "zle", "lz4", "zstd-fast"];
    for name in compressed {
        received(&pool, &format!("compressed-{name}"), &how(&format!("dst/c-{name}"), "1"));
    }
    received(&pool, "small-blocks", &how("dst/small", "1"));
    received(&pool, "huge-Lc", &how("dst/huge", "1"));
    received(&pool, "longname", &how("dst/long", "1"));
    received(&pool, "enc-decrypted", &how("dst/dec", "1"));
    compare(
        &pool,
        &[
            "dst/c-lzjb",
            "dst/c-gzip-9",
            "dst/c-zle",
            "dst/c-lz4",
            "dst/c-zstd-fast",
            "dst/small",
            "dst/huge",
            "dst/long",
            "dst/dec",
        ],
    );
    files.judge(pool);
}

#[test]
fn holes_clones_volumes_and_old_pools() {
    let (files, pool) = OnFile::new();
    received(&pool, "holes-full", &how("dst/holes", "1"));
    received(&pool, "holes-incr", &Receive { force: true, ..how("dst/holes", "2") });
    received(&pool, "full-one-r1", &how("dst/one", "r1"));
    let origin = Some("dst/one@r1".to_owned());
    received(&pool, "clone-origin", &Receive { origin, ..how("dst/cl", "r2") });
    received(&pool, "zvol-full", &how("dst/vol", "r1"));
    received(&pool, "zvol-incr", &Receive { force: true, ..how("dst/vol", "r2") });
    received(&pool, "old-full", &how("dst/old", "1"));
    received(&pool, "old-incr", &Receive { force: true, ..how("dst/old", "2") });
    compare(&pool, &["dst/holes", "dst/one", "dst/cl", "dst/vol", "dst/old"]);
    files.judge(pool);
}

#[test]
fn a_redacted_stream_and_the_rest_of_it() {
    let (files, pool) = OnFile::new();
    received(&pool, "redacted", &how("dst/red", "a"));
    received(&pool, "incr-from-redaction-bookmark", &Receive { force: true, ..how("dst/red", "b") });
    compare(&pool, &["dst/red"]);
    files.judge(pool);
}

#[test]
fn a_receive_that_was_cut_goes_on() {
    let (files, pool) = OnFile::new();
    let resumable = Receive { resumable: true, ..how("dst/res", "c") };
    let cut = receive(&pool, &testkit::stream("resume-part"), &resumable);
    assert!(matches!(cut, Err(ReceiveError::Stream(_))), "{cut:?}");
    pool.sync().expect("synced");
    let view = pool.view().expect("a view");
    let token = view.dataset("dst/res").expect("there").property("receive_resume_token").expect("read");
    let expected = std::fs::read_to_string(testkit::streams_root().join("resume-token.txt")).expect("read");
    assert_eq!(token.as_deref().map(dsl::resume::decode), Some(dsl::resume::decode(expected.trim())));
    received(&pool, "resume-rest", &resumable);
    compare(&pool, &["dst/res"]);
    files.judge(pool);
}

/// OpenZFS's sender begins again at the start of the block in which it was interrupted, although the receiver has the
/// first records of it.
#[test]
fn the_rest_of_a_stream_may_repeat_what_is_there() {
    use cenote::stream::Writer;
    use format::stream::Record;
    let (files, pool) = OnFile::new();
    let resumable = Receive { resumable: true, ..how("dst/res", "c") };
    let part = testkit::stream("resume-part");
    receive(&pool, &part, &resumable).expect_err("cut");
    pool.sync().expect("synced");
    let rest = testkit::stream("resume-rest");
    let (mut rest, mut part) = (Reader::new(&rest[..]), Reader::new(&part[..]));
    let mut repeated = Vec::new();
    while let Ok(Some(frame)) = part.next_frame() {
        repeated.extend(matches!(frame.header.record, Record::Write(_)).then_some(frame));
    }
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes);
    let mut written = 0;
    while let Some(frame) = rest.next_frame().expect("a record") {
        if let Record::Write(first) = &frame.header.record {
            let (object, end) = (first.object, first.offset);
            for again in std::mem::take(&mut repeated) {
                let Record::Write(write) = &again.header.record else { continue };
                if write.object == object
                    && write.offset < end
                    && write.offset + 4 * write.logical_size >= end
                {
                    writer.write_record(&again.header.record, &again.payload).expect("written");
                    written += 1;
                }
            }
        }
        writer.write_record(&frame.header.record, &frame.payload).expect("written");
    }
    assert!(written > 0, "no record is repeated");
    receive(&pool, &bytes, &resumable).expect("received");
    compare(&pool, &["dst/res"]);
    files.judge(pool);
}

/// Damages the largest stored block of some file of a snapshot on the disk.
fn damage(disk: &std::path::Path, pool: &PoolWriter, snapshot: &str) {
    use std::os::unix::fs::FileExt;
    let view = pool.view().expect("a view");
    let set = view.dsl().dataset(snapshot).and_then(|found| found.open_objset()).expect("opened");
    let mut largest: Option<format::BlockPtr> = None;
    let mut from = format::ObjectId(1);
    while let Some(object) = set.next_object(from).expect("readable") {
        from = format::ObjectId(object.id().0 + 1);
        if object.dnode().obj_type != format::ObjType::PLAIN_FILE || object.dnode().maxblkid.0 > 100 {
            continue;
        }
        for blkid in 0..=object.dnode().maxblkid.0 {
            let bp = object.block_ptr(format::Level(0), format::BlockId(blkid)).expect("readable");
            let is_larger = largest.is_none_or(|largest| bp.psize() > largest.psize());
            if bp.kind() == format::BpKind::Normal && is_larger {
                largest = Some(bp);
            }
        }
    }
    let dva = largest.and_then(|bp| bp.dvas().next()).expect("a block");
    let file = std::fs::OpenOptions::new().write(true).open(disk).expect("opened");
    file.write_all_at(&[0xA5; 100], dva.offset.on_device().0 + 7).expect("written");
}

#[test]
fn damaged_blocks_are_healed_by_a_stream_of_their_snapshot() {
    let (files, mut pool) = OnFile::new();
    let cases =
        [("large-Lec", "dst/l4", "1"), ("compressed-gzip-9", "dst/c-gzip-9", "1"), ("full", "dst/full", "a")];
    for (stream, dataset, snapshot) in cases {
        received(&pool, stream, &how(dataset, snapshot));
    }
    pool.sync().expect("synced");
    let options = cenote::OpenOptions::new().search(files.dir.path());
    for (stream, dataset, snapshot) in cases {
        damage(&files.path(), &pool, &format!("{dataset}@{snapshot}"));
        pool.close().expect("exported");
        pool = cenote::Pool::open_rw("dst", &options).expect("opened");
        let heal = Receive { heal: true, ..how(dataset, snapshot) };
        let done = receive(&pool, &testkit::stream(stream), &heal).expect("healed");
        assert_eq!((done.healed, done.unhealed), (1, 0), "{stream}");
        let again = receive(&pool, &testkit::stream(stream), &heal).expect("read");
        assert_eq!((again.healed, again.unhealed), (0, 0), "{stream}");
    }
    compare(&pool, &["dst/c-gzip-9"]);
    files.judge(pool);
}

/// Zeros in place of what was left out would be taken for contents.
#[test]
fn redacted_data_cannot_be_read() {
    let (files, pool) = OnFile::new();
    received(&pool, "redacted", &how("dst/red", "a"));
    pool.sync().expect("synced");
    let redacted = |pool: &PoolWriter, snapshot: &str| {
        let view = pool.view().expect("a view");
        let set = view.dsl().dataset(snapshot).and_then(|found| found.open_objset()).expect("opened");
        let (mut count, mut from) = (0, format::ObjectId(1));
        while let Some(object) = set.next_object(from).expect("readable") {
            from = format::ObjectId(object.id().0 + 1);
            for blkid in (0..=object.dnode().maxblkid.0.min(64)).map(format::BlockId) {
                let bp = object.block_ptr(format::Level(0), blkid).expect("readable");
                if bp.kind() == format::BpKind::Redacted {
                    assert!(object.block(blkid).is_err(), "{}", object.id());
                    count += 1;
                }
            }
        }
        count
    };
    assert!(redacted(&pool, "dst/red@a") > 0);
    received(&pool, "incr-from-redaction-bookmark", &Receive { force: true, ..how("dst/red", "b") });
    assert!(redacted(&pool, "dst/red@a") > redacted(&pool, "dst/red@b"));
    files.judge(pool);
}

/// A stream that is being received when its dataset is renamed, or a snapshot of it is taken.
struct Meanwhile<'p> {
    pool: &'p PoolWriter,
    refused: usize,
}

impl Watch for Meanwhile<'_> {
    fn begun(&mut self) {
        let rename = self.pool.run(|ctx| dsl::rename::rename(ctx, "dst/full", "dst/other"));
        let snapshot = self.pool.run(|ctx| dsl::snapshot::snapshot(ctx, &["dst/full@mine".to_owned()], &[]));
        self.refused = usize::from(rename.is_err()) + usize::from(snapshot.is_err());
    }

    fn bytes(&mut self, _: u64) {
        let renamed = self.pool.run(|ctx| dsl::rename::rename(ctx, "dst/full", "dst/other"));
        self.refused += usize::from(renamed.is_err());
    }
}

#[test]
fn a_dataset_keeps_its_name_while_a_stream_is_received() {
    let (files, pool) = OnFile::new();
    let bytes = testkit::stream("full");
    let mut reader = Reader::new(&bytes[..]);
    let begin = reader.next_frame().expect("a record").expect("a start");
    let mut meanwhile = Meanwhile { pool: &pool, refused: 0 };
    pool.receive(&begin, &mut reader, &how("dst/full", "a"), &mut meanwhile).expect("received");
    assert!(meanwhile.refused > 2, "{}", meanwhile.refused);
    pool.run(|ctx| dsl::rename::rename(ctx, "dst/full", "dst/other")).expect("renamed");
    files.judge(pool);
}
