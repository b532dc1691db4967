//! `cenote cp` on the golden pools: the copies on the host have the contents of the manifest.
//!
//! As root all attributes are compared; as another user, owners and devices are left out.
#![allow(clippy::disallowed_types)] // The tests look at files of the host.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use crate::cenote_support::{below, by_dataset, cenote, good, keys, run, target};
use testkit::{Entry, EntryKind, Fixture, sha256};

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn xattrs(path: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut names = vec![0u8; 64 << 10];
    let n = rustix::fs::llistxattr(path, &mut names[..]).unwrap_or(0);
    let mut all = BTreeMap::new();
    for name in names[..n].split(|&byte| byte == 0).filter(|name| !name.is_empty()) {
        let mut value = vec![0u8; 64 << 10];
        let n = rustix::fs::lgetxattr(path, name, &mut value[..]).expect("a value");
        all.insert(String::from_utf8_lossy(name).into_owned(), value[..n].to_vec());
    }
    all
}

fn content_hash(path: &Path, entry: &Entry) -> String {
    if !entry.hashes_segments() {
        return sha256(&fs::read(path).expect("readable"));
    }
    let file = fs::File::open(path).expect("readable");
    let mut data = Vec::new();
    for &(offset, len) in entry.segs.as_deref().unwrap_or_default() {
        let mut segment = vec![0u8; len as usize];
        file.read_exact_at(&mut segment, offset).expect("readable");
        data.extend_from_slice(&segment);
    }
    sha256(&data)
}

fn compare(path: &Path, entry: &Entry) {
    let what = format!("{} {}", entry.ds, entry.path_lossy());
    let stat = fs::symlink_metadata(path).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(stat.mtime() * 1_000_000_000 + stat.mtime_nsec(), entry.mtime_ns, "{what}");
    if is_root() {
        assert_eq!((stat.uid(), stat.gid()), (entry.uid, entry.gid), "{what}");
        if entry.kind != EntryKind::Link {
            assert_eq!(stat.mode() & 0o7777, entry.mode, "{what}");
        }
    }
    match entry.kind {
        EntryKind::File => {
            assert_eq!(stat.len(), entry.size, "{what}");
            if let Some(hash) = &entry.sha256 {
                assert_eq!(&content_hash(path, entry), hash, "{what}");
            }
            // Holes are holes in the copy as well, whatever the block size of the host.
            let data: u64 = entry.segs.as_ref().map_or(entry.size, |segs| segs.iter().map(|seg| seg.1).sum());
            let most = data + (64 << 10) * (1 + entry.segs.as_ref().map_or(0, Vec::len) as u64);
            assert!(stat.blocks() * 512 <= most, "{what}: {} blocks for {data} bytes", stat.blocks());
        }
        EntryKind::Link => {
            let target = fs::read_link(path).expect("a link");
            assert_eq!(Some(target.as_os_str().as_encoded_bytes()), entry.target.as_deref(), "{what}");
        }
        EntryKind::Char | EntryKind::Block => {
            let rdev = (rustix::fs::major(stat.rdev()), rustix::fs::minor(stat.rdev()));
            assert_eq!(Some(rdev), entry.rdev, "{what}");
        }
        EntryKind::Directory | EntryKind::Pipe | EntryKind::Socket => {}
    }
}

/// Copies a file system and compares all of it. The file system of the temporary folder may not support large
/// attributes or long names: the command reports those, and they are left out here.
fn check(name: &str, dataset: &str) {
    let fixture = Fixture::open(name);
    let entries = by_dataset(&fixture).remove(dataset).expect("the dataset");
    let (_folder, keys) = keys(&fixture);
    let to = tempfile::tempdir().expect("a folder");
    let (code, out, err) =
        run(cenote(fixture.dir(), "cp").args(&keys).arg("-r").arg(target(dataset, b".")).arg(to.path()));
    assert_eq!(out, b"");
    let is_excused =
        |line: &str| line.starts_with("cenote: warning:") || line.starts_with("cenote: not everything");
    assert!(err.lines().all(is_excused), "{err}");
    assert_eq!(code, i32::from(err.contains("not everything")));
    let attributes_lost = err.contains("extended attributes");
    let mut inodes: BTreeMap<u64, u64> = BTreeMap::new();
    for entry in &entries {
        let is_device = matches!(entry.kind, EntryKind::Char | EntryKind::Block);
        let path = below(to.path(), &entry.path);
        if is_device && !is_root() {
            continue;
        }
        compare(&path, entry);
        if !attributes_lost && is_root() {
            assert_eq!(xattrs(&path), entry.xattr, "{}", entry.path_lossy());
        }
        if let (Some(ino), false) = (entry.ino, entry.kind == EntryKind::Directory) {
            let here = fs::symlink_metadata(&path).expect("compared").ino();
            assert_eq!(*inodes.entry(ino).or_insert(here), here, "{}: a link", entry.path_lossy());
        }
    }
    let count = walk(to.path());
    assert_eq!(count, entries.len() - 1, "nothing else was made");
}

fn walk(dir: &Path) -> usize {
    let mut count = 0;
    for entry in fs::read_dir(dir).expect("readable") {
        let entry = entry.expect("readable");
        count += 1;
        if entry.file_type().expect("known").is_dir() {
            count += walk(&entry.path());
        }
    }
    count
}

#[test]
fn one_disk() {
    check("single", "t_single/fs");
}

#[test]
fn a_snapshot() {
    let fixture = Fixture::open("snapshots");
    let snapshot = by_dataset(&fixture).into_keys().find(|name| name.contains("fs@")).expect("a snapshot");
    check("snapshots", &snapshot);
}

#[test]
fn access_control_lists() {
    check("posixacl", "t_posixacl/sa");
    check("posixacl", "t_posixacl/dir");
}

#[test]
fn sparse_files() {
    check("holes", "t_holes/lz4128K");
}

#[test]
fn names_that_are_no_text() {
    check("names", "t_names");
}

#[test]
fn an_encrypted_file_system() {
    check("encryption", "t_encryption/aes-256-gcm");
}

#[test]
fn volumes_become_images_with_holes() {
    let fixture = Fixture::open("zvol");
    let to = tempfile::tempdir().expect("a folder");
    for dataset in &fixture.manifest().datasets {
        let Some(hash) = &dataset.volume_sha256 else { continue };
        let name = dataset.name.replace(['/', '@'], "_");
        let file = to.path().join(&name);
        good(cenote(fixture.dir(), "cp").arg(&dataset.name).arg(&file));
        assert_eq!(Some(fs::metadata(&file).expect("made").len()), dataset.volume_bytes, "{name}");
        assert_eq!(&sha256(&fs::read(&file).expect("readable")), hash, "{name}");
        assert_eq!(&sha256(&good(cenote(fixture.dir(), "cat").arg(&dataset.name))), hash, "{name}");
    }
    assert!(fs::metadata(to.path().join("t_zvol_v16K")).expect("made").blocks() * 512 < 16 << 20);
}

#[test]
fn cat_into_a_file_keeps_holes() {
    let fixture = Fixture::open("single");
    let entry =
        fixture.entries().find(|e| e.ds == "t_single/fs" && e.path == b"holes/tail").expect("a sparse file");
    let to = tempfile::NamedTempFile::new().expect("a file");
    let status = cenote(fixture.dir(), "cat")
        .arg("t_single/fs:/holes/tail")
        .stdout(to.reopen().expect("a handle"))
        .status()
        .expect("it runs");
    assert!(status.success());
    let stat = to.as_file().metadata().expect("there");
    assert_eq!(stat.len(), entry.size);
    assert!(stat.blocks() * 512 < entry.size / 2);
    assert_eq!(Some(sha256(&fs::read(to.path()).expect("readable"))), entry.sha256);
}

#[test]
fn one_file_under_another_name_and_links_as_links() {
    let fixture = Fixture::open("single");
    let to = tempfile::tempdir().expect("a folder");
    let file = to.path().join("renamed");
    good(cenote(fixture.dir(), "cp").arg("t_single/fs:/README.txt").arg(&file));
    good(cenote(fixture.dir(), "cp").args(["t_single/fs:/link-short", "t_single/fs:/a/f0"]).arg(to.path()));
    let entries = by_dataset(&fixture).remove("t_single/fs").expect("the dataset");
    let of = |path: &[u8]| entries.iter().find(|entry| entry.path == path).expect("an entry");
    compare(&file, of(b"README.txt"));
    compare(&to.path().join("link-short"), of(b"link-short"));
    compare(&to.path().join("f0"), of(b"a/f0"));
    // Once more, over the existing copy; through the dangling link would be wrong.
    good(cenote(fixture.dir(), "cp").arg("t_single/fs:/a/f1").arg(to.path().join("link-short")));
    compare(&to.path().join("link-short"), of(b"a/f1"));
    assert_eq!(walk(to.path()), 3);
}

/// The bytes of a file are written to a device that the user names, which stays a device.
#[test]
fn onto_a_device() {
    use std::os::unix::fs::FileTypeExt;
    let fixture = Fixture::open("single");
    for device in ["/dev/null", "/dev/zero"] {
        good(cenote(fixture.dir(), "cp").args(["t_single/fs:/holes/tail", device]));
        assert!(fs::metadata(device).expect("there").file_type().is_char_device());
    }
    let (code, _, err) = run(cenote(fixture.dir(), "cp").args(["t_single/fs:/README.txt", "/dev/full"]));
    assert!(code == 1 && err.contains("No space left on device"), "{code} {err}");
    let (code, _, err) = run(cenote(fixture.dir(), "cp").args(["-r", "t_single/fs:/a", "/dev/null"]));
    assert!(code == 1 && err.contains("t_single/fs:/a: Is a directory"), "{code} {err}");
    let two = ["t_single/fs:/README.txt", "t_single/fs:/a/f0", "/dev/null"];
    let (code, _, err) = run(cenote(fixture.dir(), "cp").args(two));
    assert!(code == 1 && err.contains("/dev/null: not a directory"), "{code} {err}");
}

#[test]
fn a_damaged_file_is_left_out_or_filled() {
    let fixture = Fixture::open("lost-block");
    let to = tempfile::tempdir().expect("a folder");
    let (code, _, err) = run(cenote(fixture.dir(), "cp").arg("t_lost_block/marked:/victim").arg(to.path()));
    assert_eq!(code, 1);
    assert!(
        err.contains(
            "t_lost_block/marked:/victim: 131072 bytes cannot be read (bytes 131072-262143), left out"
        ),
        "{err}"
    );
    assert_eq!(walk(to.path()), 0);
    let (code, _, err) =
        run(cenote(fixture.dir(), "cp").args(["-r", "--partial", "t_lost_block/marked:/"]).arg(to.path()));
    assert_eq!(code, 1);
    assert!(err.contains("zeros in their place"), "{err}");
    let victim = fs::read(to.path().join("victim")).expect("kept");
    assert_eq!(victim.len(), 307_200);
    assert!(victim[131_072..262_144].iter().all(|&byte| byte == 0));
}
