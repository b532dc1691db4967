//! `cenote`: listings, searches, and messages about missing objects.
#![allow(clippy::disallowed_types)] // The tests write key files.

use std::collections::BTreeSet;

use crate::cenote_support::{by_dataset, cenote, good, run, target};
use testkit::{EntryKind, Fixture};

fn lines(bytes: &[u8]) -> BTreeSet<Vec<u8>> {
    bytes.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()).map(<[u8]>::to_vec).collect()
}

#[test]
fn a_path_that_is_not_there() {
    let fixture = Fixture::open("single");
    for verb in ["ls", "stat", "cat", "tar", "find"] {
        let (code, out, err) = run(cenote(fixture.dir(), verb).arg("t_single/fs:/no/such"));
        assert_eq!((code, out.as_slice()), (1, &b""[..]), "{verb}");
        assert_eq!(err, "cenote: t_single/fs:/no/such: No such file or directory\n", "{verb}");
    }
    let (code, _, err) = run(cenote(fixture.dir(), "cat").arg("t_single/fs:/README.txt/x"));
    assert_eq!((code, err.as_str()), (1, "cenote: t_single/fs:/README.txt/x: Not a directory\n"));
    let (code, _, err) = run(cenote(fixture.dir(), "cat").arg("t_single/fs:/a"));
    assert_eq!((code, err.as_str()), (1, "cenote: t_single/fs:/a: Is a directory\n"));
}

#[test]
fn a_dataset_or_pool_that_is_not_there() {
    let fixture = Fixture::open("single");
    let (code, _, err) = run(cenote(fixture.dir(), "ls").arg("t_single/none:/"));
    assert_eq!((code, err.as_str()), (1, "cenote: cannot open 't_single/none': dataset does not exist\n"));
    let (code, _, err) = run(cenote(fixture.dir(), "ls").arg("tank:/"));
    assert_eq!(code, 1);
    assert!(err.contains("tank") && err.contains("no such pool"), "{err}");
}

#[test]
fn wrong_usage_is_2() {
    let fixture = Fixture::open("single");
    assert_eq!(run(cenote(fixture.dir(), "ls").arg("--nonsense")).0, 2);
    assert_eq!(run(cenote(fixture.dir(), "cp").arg("t_single/fs:/a")).0, 2);
    assert_eq!(run(cenote(fixture.dir(), "frobnicate").arg("x")).0, 2);
}

#[test]
fn the_pool_by_guid() {
    let fixture = Fixture::open("single");
    let guid = &fixture.manifest().pool_properties["guid"].value;
    let text = good(cenote(fixture.dir(), "cat").arg(format!("{guid}/fs:/README.txt")));
    assert_eq!(text, good(cenote(fixture.dir(), "cat").arg("t_single/fs:/README.txt")));
}

#[test]
fn encrypted_without_a_key_and_with_a_wrong_one() {
    let fixture = Fixture::open("encryption");
    let (code, out, err) = run(cenote(fixture.dir(), "ls").arg("t_encryption/hex/child:/"));
    assert_eq!((code, out.as_slice()), (1, &b""[..]));
    assert!(err.contains("'t_encryption/hex'") && err.contains("--key 't_encryption/hex=FILE'"), "{err}");
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("key");
    std::fs::write(&file, "f".repeat(64)).expect("written");
    let key = format!("t_encryption/hex={}", file.display());
    let (code, _, err) = run(cenote(fixture.dir(), "ls").args(["--key", &key, "t_encryption/hex:/"]));
    assert_eq!(code, 1);
    assert!(err.contains("ncorrect key"), "{err}");
    std::fs::write(&file, testkit::keys::HEX).expect("written");
    good(cenote(fixture.dir(), "ls").args(["--key", &key, "t_encryption/hex/child:/"]));
}

#[test]
fn listings_have_every_name() {
    let fixture = Fixture::open("single");
    let entries = by_dataset(&fixture).remove("t_single/fs").expect("the dataset");
    let listed = lines(&good(cenote(fixture.dir(), "ls").args(["-A", "t_single/fs:/modes"])));
    let wanted: BTreeSet<Vec<u8>> = entries
        .iter()
        .filter_map(|entry| entry.path.strip_prefix(b"modes/"))
        .filter(|rest| !rest.contains(&b'/'))
        .map(<[u8]>::to_vec)
        .collect();
    assert_eq!(listed, wanted);
    for entry in entries.iter().filter(|entry| entry.kind == EntryKind::File).take(20) {
        let line = good(cenote(fixture.dir(), "ls").arg("-li").arg(target("t_single/fs", &entry.path)));
        let line = String::from_utf8_lossy(&line).into_owned();
        let fields: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(fields[0], entry.ino.expect("an inode").to_string());
        assert_eq!(
            (fields[2], fields[5]),
            (entry.nlink.to_string().as_str(), entry.size.to_string().as_str())
        );
    }
}

#[test]
fn find_finds() {
    let fixture = Fixture::open("single");
    let entries = by_dataset(&fixture).remove("t_single/fs").expect("the dataset");
    let find = |words: &[&str]| -> BTreeSet<Vec<u8>> {
        let out = good(cenote(fixture.dir(), "find").args(words).arg("-print0").arg("t_single/fs:/"));
        out.split(|&byte| byte == 0).filter(|path| !path.is_empty()).map(<[u8]>::to_vec).collect()
    };
    let wanted = |fits: &dyn Fn(&testkit::Entry) -> bool| -> BTreeSet<Vec<u8>> {
        let path = |entry: &testkit::Entry| match entry.path.as_slice() {
            b"." => b"t_single/fs:/".to_vec(),
            path => [b"t_single/fs:/", path].concat(),
        };
        entries.iter().filter(|entry| fits(entry)).map(path).collect()
    };
    assert_eq!(find(&[]), wanted(&|_| true));
    assert_eq!(find(&["-type", "f"]), wanted(&|entry| entry.kind == EntryKind::File));
    assert_eq!(find(&["-size", "+100k"]), wanted(&|entry| entry.size > 100 << 10));
    let has_rand = |entry: &testkit::Entry| {
        let name = entry.path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
        name.starts_with(b"rand-")
    };
    assert_eq!(find(&["-name", "rand-*"]), wanted(&has_rand));
    assert_eq!(find(&["-maxdepth", "1"]), wanted(&|entry| !entry.path.contains(&b'/')));
}

#[test]
fn links_on_the_way_are_followed_within_the_file_system() {
    let fixture = Fixture::open("single");
    let direct = good(cenote(fixture.dir(), "ls").arg("t_single/fs:/a/b"));
    assert_eq!(good(cenote(fixture.dir(), "ls").arg("t_single/fs:/link-dir/")), direct);
    let text = good(cenote(fixture.dir(), "cat").arg("t_single/fs:/README.txt"));
    assert_eq!(good(cenote(fixture.dir(), "cat").arg("t_single/fs:/link-short")), text);
    let (code, _, err) = run(cenote(fixture.dir(), "cat").arg("t_single/fs:/link-dangling"));
    assert_eq!((code, err.as_str()), (1, "cenote: t_single/fs:/link-dangling: No such file or directory\n"));
}
