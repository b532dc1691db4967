//! Tests of the golden files: every fixture unpacks, and its lists are consistent.

use std::collections::BTreeMap;

use testkit::{Entry, EntryKind, Fixture};

#[test]
fn single_is_the_image_its_manifest_names() {
    let single = Fixture::open("single");
    single.check_sha256().expect("the image as made");
    assert_eq!(single.manifest().pool, "t_single");
    assert_eq!(single.images().len(), 1);
    assert!(single.manifest().dataset("t_single/fs@s1").is_some_and(testkit::Dataset::is_snapshot));
}

#[test]
fn two_at_once_unpack_one_pool() {
    let threads: Vec<_> = (0..4).map(|_| std::thread::spawn(|| Fixture::open("mirror"))).collect();
    for thread in threads {
        let mirror = thread.join().expect("no panic");
        assert_eq!(std::fs::read_dir(mirror.dir()).expect("a folder").count(), 2);
    }
}

#[test]
fn every_manifest_agrees_with_its_entries() {
    for name in Fixture::names() {
        let fixture = Fixture::open(&name);
        let mut counted: BTreeMap<String, u64> = BTreeMap::new();
        for entry in fixture.entries() {
            *counted.entry(entry.ds).or_default() += 1;
        }
        for dataset in &fixture.manifest().datasets {
            let listed = counted.remove(&dataset.name);
            assert_eq!(dataset.entries.unwrap_or(0), listed.unwrap_or(0), "{name}: {}", dataset.name);
        }
        assert!(counted.is_empty(), "{name}: entries of unknown datasets {counted:?}");
    }
}

#[test]
fn names_in_bytes_and_attributes_are_decoded() {
    let entries: Vec<Entry> = Fixture::open("single").entries().collect();
    assert!(entries.iter().any(|entry| entry.path == b"names/bad-utf8-\xff\xfe"));
    assert!(entries.iter().any(|entry| !entry.xattr.is_empty()));
    assert!(entries.iter().any(|entry| entry.kind == EntryKind::Link && entry.target.is_some()));
    assert!(entries.iter().any(|entry| entry.mtime_ns < 0));
}

#[test]
fn an_unknown_fixture_is_an_error() {
    let error = Fixture::try_open("no-such-pool").expect_err("none of that name");
    assert!(error.to_string().contains("no-such-pool"));
}

#[test]
fn a_scratch_copy_may_be_changed_and_goes_away() {
    let mirror = Fixture::open("mirror");
    let scratch = mirror.scratch_of(&["d0.img"]);
    std::fs::write(scratch.image("d0.img"), b"gone").expect("writable");
    assert!(!scratch.image("d1.img").exists());
    let folder = scratch.dir().to_path_buf();
    drop(scratch);
    assert!(!folder.exists());
    mirror.check_sha256().expect("the shared image is untouched");
}
