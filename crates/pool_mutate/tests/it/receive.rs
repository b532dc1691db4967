//! Streams of a big-endian sender are received like those of a little-endian one: the same files, attributes and space of
//! owners.
#![allow(clippy::disallowed_types)] // Empty files are made here; `vdev` opens them.

use crate::contents;
use cenote::receive::Receive;
use cenote::stream::Reader;
use cenote::{LivePool, OpenOptions, Pool, PoolWriter};
use cenote_pool_mutate::stream::to_big;
use dmu::ObjSet;
use std::path::Path;
use std::sync::Arc;
use vdev::device::file::{Access, open_exclusive};
use vdev::env::Env;

fn create(folder: &Path) -> PoolWriter {
    let path = folder.join("d0");
    std::fs::File::create(&path).and_then(|file| file.set_len(1 << 30)).expect("a file");
    let device = open_exclusive(&path, Access::Cached).expect("opened");
    let top = pool::TopSpec {
        layout: pool::Layout::Single,
        class: pool::space::Class::Normal,
        ashift: Some(format::Ashift(9)),
        leaves: vec![pool::LeafSpec::file(path.to_str().expect("a path"), device)],
    };
    let live = LivePool::create(pool::CreateSpec::new("dst", vec![top]), Env::system()).expect("a pool");
    live.start();
    PoolWriter::of(live)
}

fn receive(pool: &PoolWriter, bytes: &[u8], dataset: &str, snapshot: &str) {
    let mut reader = Reader::new(bytes);
    let begin = reader.next_frame().expect("read").expect("a record");
    let how = Receive { dataset: dataset.to_owned(), snapshot: snapshot.to_owned(), ..Receive::default() };
    let received = pool.receive(&begin, &mut reader, &how, &mut ());
    received.unwrap_or_else(|error| panic!("{dataset}@{snapshot}: {error:?}"));
}

/// The object set of a snapshot.
fn set_of(pool: &PoolWriter, snapshot: &str) -> Arc<ObjSet> {
    pool.sync().expect("synced");
    let dataset = pool.view().expect("a view").dsl().dataset(snapshot).expect("there");
    dataset.open_objset().expect("open")
}

/// What the pool has, but its own facts, the txgs and guids of its datasets, and the places of dead blocks.
fn lines(folder: &Path) -> Vec<String> {
    let pool = Pool::open("dst", &OpenOptions::new().search(folder)).expect("open");
    let all = contents::of(&pool).into_iter().skip_while(|line| !line.starts_with("dst/"));
    all.filter(|line| !line.contains(" deadlist ") && !line.contains("createtxg")).collect()
}

#[test]
fn big_endian_streams_make_the_same_datasets() {
    let [little, big] = [(); 2].map(|()| tempfile::tempdir().expect("a folder"));
    let (to_little, other) = (create(little.path()), create(big.path()));
    let streams = [
        ("full", "plain", "a"),
        ("incr-a-b", "plain", "b"),
        ("large-Lec", "large", "l1"),
        ("large-Lec-incr", "large", "l2"),
        ("holes-full", "holes", "1"),
        ("holes-incr", "holes", "2"),
        ("compressed-zstd-fast", "zstd", "1"),
        ("longname", "longname", "1"),
        ("old-full", "old", "1"),
        ("old-incr", "old", "2"),
        ("zvol-full", "volume", "1"),
        ("zvol-incr", "volume", "2"),
    ];
    for (stream, dataset, snapshot) in streams {
        let (bytes, dataset) = (testkit::stream(stream), format!("dst/{dataset}"));
        receive(&to_little, &bytes, &dataset, snapshot);
        let set = set_of(&to_little, &format!("{dataset}@{snapshot}"));
        let turned = to_big(&bytes, Some(&set)).expect("turned");
        assert_ne!(turned, bytes);
        receive(&other, &turned, &dataset, snapshot);
    }
    to_little.close().expect("exported");
    other.close().expect("exported");
    let (expected, found) = (lines(little.path()), lines(big.path()));
    for (expected, found) in expected.iter().zip(&found) {
        assert_eq!(expected, found);
    }
    assert_eq!(expected.len(), found.len());
    assert!(expected.len() > 300, "{}", expected.len());
    testkit::assert_zdb_clean(big.path(), "dst");
}
