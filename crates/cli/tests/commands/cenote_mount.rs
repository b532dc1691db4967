//! `cenote mount` on golden pools: the mount shows the contents of the manifest.
// Tests do not run for a client, so they may use the process's own streams.
#![allow(clippy::disallowed_methods, clippy::disallowed_macros)]
#![allow(clippy::disallowed_types)] // The tests look at the mount as any program would.

use std::fs;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

use crate::cenote_support::{below, by_dataset, cenote, keys};
use testkit::{Entry, EntryKind, Fixture, sha256};

/// A mount and the process that serves it, ended when dropped.
struct Mount {
    at: tempfile::TempDir,
    child: Option<Child>,
}

impl Mount {
    /// `None`: no mount is possible here, which was reported.
    fn new(fixture: &Fixture, words: &[&str]) -> Option<Mount> {
        if !testkit::need_file("/dev/fuse") {
            return None;
        }
        let is_root = rustix::process::geteuid().is_root();
        if !is_root && testkit::need_tool("fusermount3").is_none() {
            return None;
        }
        let at = tempfile::tempdir().expect("a folder");
        let (_folder, keys) = keys(fixture);
        let before = fs::metadata(at.path()).expect("there").dev();
        let mut child =
            cenote(fixture.dir(), "mount").args(&keys).args(words).arg(at.path()).spawn().expect("it starts");
        let begun = Instant::now();
        loop {
            if fs::metadata(at.path()).is_ok_and(|stat| stat.dev() != before) {
                return Some(Mount { at, child: Some(child) });
            }
            if let Some(status) = child.try_wait().expect("a child") {
                testkit::skip(&format!("cannot mount here: {status}"));
                return None;
            }
            assert!(begun.elapsed() < Duration::from_secs(60), "not mounted");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn path(&self) -> &Path {
        self.at.path()
    }

    /// Interrupts the server; returns its exit code.
    fn end(mut self) -> Option<i32> {
        let mut child = self.child.take()?;
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it lives");
        child.wait().expect("it ends").code()
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if let Some(child) = self.child.as_mut() {
            let pid = rustix::process::Pid::from_child(child);
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
            let _ = child.wait();
        }
    }
}

fn xattr(path: &Path, name: &str) -> Vec<u8> {
    let mut value = vec![0u8; 64 << 10];
    let n = rustix::fs::lgetxattr(path, name, &mut value[..]).expect("a value");
    value.truncate(n);
    value
}

fn data_segments(file: &fs::File) -> Vec<(u64, u64)> {
    use rustix::fs::{SeekFrom, seek};
    let mut found = Vec::new();
    let mut at = 0;
    while let Ok(start) = seek(file, SeekFrom::Data(at)) {
        let end = seek(file, SeekFrom::Hole(start)).expect("the end is a hole");
        found.push((start, end - start));
        at = end;
    }
    found
}

fn compare_content(path: &Path, entry: &Entry) {
    let what = format!("{} {}", entry.ds, entry.path_lossy());
    if let Some(errno) = entry.read_errno {
        assert_eq!(fs::read(path).expect_err("damaged").raw_os_error(), Some(errno), "{what}");
        return;
    }
    let file = fs::File::open(path).expect("readable");
    if let Some(segs) = &entry.segs {
        assert_eq!(&data_segments(&file), segs, "{what}");
    }
    let data = if entry.hashes_segments() {
        let mut data = Vec::new();
        for &(offset, len) in entry.segs.as_deref().unwrap_or_default() {
            let mut segment = vec![0u8; len as usize];
            file.read_exact_at(&mut segment, offset).expect("readable");
            data.extend_from_slice(&segment);
        }
        data
    } else {
        fs::read(path).expect("readable")
    };
    assert_eq!(Some(sha256(&data)), entry.sha256, "{what}");
}

/// `slot`: the expected upper 16 bits of inode numbers; `None`: not 0.
fn compare(root: &Path, entry: &Entry, slot: Option<u64>) {
    let path = below(root, &entry.path);
    let what = format!("{} {}", entry.ds, entry.path_lossy());
    let stat = fs::symlink_metadata(&path).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!((stat.mode() & 0o7777, stat.uid(), stat.gid()), (entry.mode, entry.uid, entry.gid), "{what}");
    assert_eq!((stat.size(), stat.nlink(), stat.blocks()), (entry.size, entry.nlink, entry.blocks), "{what}");
    assert_eq!(stat.mtime() * 1_000_000_000 + stat.mtime_nsec(), entry.mtime_ns, "{what}");
    assert_eq!(stat.ctime() * 1_000_000_000 + stat.ctime_nsec(), entry.ctime_ns, "{what}");
    if let Some(ino) = entry.ino {
        assert_eq!(stat.ino() & ((1 << 48) - 1), ino, "{what}");
        match slot {
            Some(slot) => assert_eq!(stat.ino() >> 48, slot, "{what}"),
            None => assert_ne!(stat.ino() >> 48, 0, "{what}"),
        }
    }
    for (name, value) in &entry.xattr {
        assert_eq!(&xattr(&path, name), value, "{what} {name}");
    }
    match entry.kind {
        EntryKind::File => compare_content(&path, entry),
        EntryKind::Link => {
            let target = fs::read_link(&path).expect("a link");
            assert_eq!(Some(target.as_os_str().as_encoded_bytes()), entry.target.as_deref(), "{what}");
        }
        EntryKind::Char | EntryKind::Block => {
            let rdev = (rustix::fs::major(stat.rdev()), rustix::fs::minor(stat.rdev()));
            assert_eq!(Some(rdev), entry.rdev, "{what}");
        }
        EntryKind::Pipe => assert!(stat.file_type().is_fifo(), "{what}"),
        EntryKind::Socket => assert!(stat.file_type().is_socket(), "{what}"),
        EntryKind::Directory => assert!(stat.is_dir(), "{what}"),
    }
}

/// Number of names below a directory; also checks that the kind of each entry is right without `stat`.
fn count(dir: &Path) -> usize {
    let mut found = 0;
    for entry in fs::read_dir(dir).expect("a directory") {
        let entry = entry.expect("an entry");
        let kind = entry.file_type().expect("a kind");
        assert_eq!(kind, fs::symlink_metadata(entry.path()).expect("there").file_type());
        found += 1;
        if kind.is_dir() {
            found += count(&entry.path());
        }
    }
    found
}

fn check(fixture: &str, dataset: &str) {
    let fixture = Fixture::open(fixture);
    let Some(mount) = Mount::new(&fixture, &[dataset]) else { return };
    let entries = by_dataset(&fixture).remove(dataset).expect("the dataset");
    for entry in &entries {
        compare(mount.path(), entry, Some(0));
    }
    assert_eq!(count(mount.path()), entries.len() - 1, "nothing else is there");
    assert_eq!(mount.end(), Some(0));
}

#[test]
fn one_disk() {
    check("single", "t_single/fs");
}

#[test]
fn sparse_files() {
    check("holes", "t_holes/lz4128K");
}

#[test]
fn a_large_directory() {
    check("manyfiles", "t_manyfiles");
}

#[test]
fn attributes_in_spill_blocks_and_directories() {
    check("dnodes", "t_dnodes/legacy-sa");
    check("dnodes", "t_dnodes/16k-dir");
}

#[test]
fn names_of_1023_bytes() {
    check("longname", "t_longname/long");
}

#[test]
fn an_encrypted_file_system() {
    check("encryption", "t_encryption/aes-256-ccm");
}

#[test]
fn a_lost_block_is_an_input_output_error() {
    check("lost-block", "t_lost_block/marked");
}

#[test]
fn a_snapshot_by_itself() {
    let fixture = Fixture::open("snapshots");
    let all = by_dataset(&fixture);
    let snapshot = all.keys().find(|name| name.starts_with("t_snapshots/fs@")).expect("a snapshot");
    check("snapshots", snapshot);
}

#[test]
fn snapshots_are_below_dot_zfs() {
    let fixture = Fixture::open("snapshots");
    let Some(mount) = Mount::new(&fixture, &["t_snapshots/fs"]) else { return };
    let all = by_dataset(&fixture);
    let listed: Vec<String> = fs::read_dir(mount.path().join(".zfs/snapshot"))
        .expect("a directory")
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .collect();
    let mut seen = 0;
    for (dataset, entries) in &all {
        let Some(name) = dataset.strip_prefix("t_snapshots/fs@") else { continue };
        assert!(listed.iter().any(|other| other == name));
        let root = mount.path().join(".zfs/snapshot").join(name);
        for entry in entries {
            compare(&root, entry, None);
        }
        seen += 1;
    }
    assert_eq!(listed.len(), seen);
    assert!(seen > 1);
    let listing: Vec<_> =
        fs::read_dir(mount.path()).expect("a directory").map(|e| e.expect("an entry").file_name()).collect();
    assert!(!listing.iter().any(|name| name == ".zfs"), "snapdir=hidden");
    assert_eq!(mount.end(), Some(0));
}

#[test]
fn child_file_systems_are_in_directories_of_their_names() {
    let fixture = Fixture::open("snapshots");
    let Some(mount) = Mount::new(&fixture, &["t_snapshots"]) else { return };
    let all = by_dataset(&fixture);
    for (dataset, entries) in &all {
        let Some(name) = dataset.strip_prefix("t_snapshots/").filter(|name| !name.contains('@')) else {
            continue;
        };
        // A directory is hidden if a child file system is mounted on it.
        let is_hidden = |entry: &Entry| all.contains_key(&format!("{dataset}/{}", entry.path_lossy()));
        for entry in entries.iter().filter(|entry| !is_hidden(entry)) {
            compare(&mount.path().join(name), entry, None);
        }
    }
    assert_eq!(mount.end(), Some(0));
}

#[test]
fn in_the_background() {
    let fixture = Fixture::open("single");
    if !testkit::need_root() || !testkit::need_file("/dev/fuse") {
        return;
    }
    let at = tempfile::tempdir().expect("a folder");
    let status =
        cenote(fixture.dir(), "mount").arg("-b").arg("t_single/fs").arg(at.path()).status().expect("it runs");
    if !status.success() {
        return testkit::skip("cannot mount here");
    }
    assert!(at.path().join("README.txt").is_file());
    rustix::mount::unmount(at.path(), rustix::mount::UnmountFlags::empty()).expect("unmounted");
    assert_eq!(fs::read_dir(at.path()).expect("there").count(), 0);
}
