//! Files that programs write through memory maps: requests take into account pages that the kernel has not
//! written back yet.
//!
//! The maps belong to another process, which is this program again: while the kernel reads a page for a map,
//! the process cannot change its maps, and the process that serves the mount needs to.
#![allow(unsafe_code)] // Mappings.

use super::{AdminSnapshot, TestMounts, home_over, options, transports};
use admin::PoolVerbs;
use cenote_serve::fuse::Transport;
use cenote_serve::mounts::TableSettings;
use rustix::fs::{SeekFrom, copy_file_range, ftruncate, ioctl_ficlone, seek};
use rustix::io::{Errno, pread};
use rustix::mm::{MapFlags, ProtFlags, mmap};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

const PAGE: usize = 4096;
const MIB: u64 = 1 << 20;
const RECORD: u64 = 128 << 10;
/// Variable with the path of the file that the other process maps.
const MAPPED_FILE: &str = "CENOTE_TEST_MAPPED_FILE";
/// Output of that process after a write.
const WRITTEN: &str = "written";

/// Another process with a mapped file.
struct Mapper {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Mapper {
    fn of(path: &Path) -> Mapper {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "mounts::maps::other_process", "--ignored", "--nocapture"])
            .env(MAPPED_FILE, path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (orders, answers) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Mapper { child, orders, answers: BufReader::new(answers) }
    }

    /// Writes at the beginning of a page, which stays mapped. The file itself is closed then.
    fn write(&mut self, at: u64, text: &str) {
        writeln!(self.orders, "{at} {text}").unwrap();
        let mut lines = self.answers.by_ref().lines().map(Result::unwrap);
        assert!(lines.any(|line| line.ends_with(WRITTEN)), "the other process has ended");
    }
}

impl Drop for Mapper {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
#[ignore = "the other process of the tests here"]
fn other_process() {
    let Some(path) = std::env::var_os(MAPPED_FILE) else { return };
    for order in std::io::stdin().lines().map(Result::unwrap) {
        let (at, text) = order.split_once(' ').unwrap();
        let (rights, shared) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        let file = File::options().read(true).write(true).open(&path).unwrap();
        assert!(text.len() <= PAGE);
        // SAFETY: a new mapping of a page of a file that is longer; only this thread uses it, and it stays
        // until the process ends.
        unsafe {
            let page = mmap(std::ptr::null_mut(), PAGE, rights, shared, &file, at.parse().unwrap()).unwrap();
            drop(file);
            std::ptr::copy_nonoverlapping(text.as_ptr(), page.cast(), text.len());
        }
        println!("{WRITTEN}");
    }
}

/// Makes a file that is one hole.
fn sparse(path: &Path, len: u64) -> File {
    let file = File::options().read(true).write(true).create_new(true).open(path).unwrap();
    ftruncate(&file, len).unwrap();
    file
}

fn data(file: &File, from: u64) -> Result<u64, Errno> {
    seek(file, SeekFrom::Data(from))
}

fn hole(file: &File, from: u64) -> Result<u64, Errno> {
    seek(file, SeekFrom::Hole(from))
}

#[test]
fn what_was_written_through_maps_is_data_to_whoever_seeks() {
    for transport in transports() {
        let Some(home) = home_over(transport) else { return };
        home.mount("p/a", "a", &options()).unwrap();
        let file = sparse(&home.path("a/file"), 8 * MIB);
        assert_eq!((data(&file, 0), hole(&file, 0)), (Err(Errno::NXIO), Ok(0)), "{transport:?}");
        let mut mapper = Mapper::of(&home.path("a/file"));
        mapper.write(4 * MIB, "one");
        assert_eq!(data(&file, 0), Ok(4 * MIB), "{transport:?}");
        assert_eq!(hole(&file, 4 * MIB), Ok(4 * MIB + RECORD), "{transport:?}");
        // Searches for a hole find neither the changed range nor what follows it.
        for at in [1, 2, 3] {
            mapper.write(4 * MIB + at * RECORD, "two");
        }
        assert_eq!(hole(&file, 4 * MIB), Ok(4 * MIB + 4 * RECORD), "{transport:?}");
        mapper.write(5 * MIB, "three");
        mapper.write(4 * MIB + 4 * RECORD, "three");
        assert_eq!(hole(&file, 4 * MIB + 1), Ok(4 * MIB + 5 * RECORD), "{transport:?}");
        assert_eq!(data(&file, 5 * MIB + RECORD), Err(Errno::NXIO), "{transport:?}");
        // Programs with the file mapped continue.
        mapper.write(4 * MIB, "four");
        let mut text = [0; 4];
        pread(&file, &mut text, 4 * MIB).unwrap();
        assert_eq!(&text, b"four");
    }
}

#[test]
fn what_was_written_through_maps_is_copied_along() {
    for transport in transports() {
        let Some(home) = home_over(transport) else { return };
        home.mount("p/a", "a", &options()).unwrap();
        let from = sparse(&home.path("a/from"), 2 * MIB);
        let mut mapper = Mapper::of(&home.path("a/from"));
        for (name, text) in [("ranges", "one"), ("sparse", "two")] {
            mapper.write(MIB, text);
            let to = sparse(&home.path("a").join(name), 0);
            if name == "ranges" {
                let (mut at, mut end) = (0, 0);
                while copy_file_range(&from, Some(&mut at), &to, Some(&mut end), 2 << 20).unwrap() > 0 {}
            } else {
                let copied = Command::new("cp")
                    .arg("--sparse=always")
                    .args([home.path("a/from"), home.path("a").join(name)])
                    .status();
                assert!(copied.unwrap().success());
            }
            let mut found = [0; 3];
            pread(&to, &mut found, MIB).unwrap();
            assert_eq!(&found, text.as_bytes(), "{transport:?}, {name}");
        }
        // No present kernel passes these calls to a server; with one that does, this checks the pages as
        // well.
        mapper.write(MIB, "six");
        let to = sparse(&home.path("a/clone"), 0);
        match ioctl_ficlone(&to, &from) {
            Err(error) => assert_eq!(error, Errno::OPNOTSUPP),
            Ok(()) => {
                let mut found = [0; 3];
                pread(&to, &mut found, MIB).unwrap();
                assert_eq!(&found, b"six");
            }
        }
    }
}

#[test]
fn snapshots_on_every_road_have_what_was_written_through_maps() {
    let _admin = AdminSnapshot::set(true);
    for transport in transports() {
        let Some(home) = home_over(transport) else { return };
        home.mount("p/a", "a", &options()).unwrap();
        home.mount("p/a/b", "b", &options()).unwrap();
        for file in ["a/file", "b/file"] {
            fs::write(home.path(file), vec![b'.'; 8192]).unwrap();
        }
        let has = |mount: &str, snapshot: &str, text: &str| {
            let path = home.path(mount).join(".zfs/snapshot").join(snapshot).join("file");
            let found = fs::read(path).unwrap();
            assert!(found.starts_with(text.as_bytes()), "{transport:?}, {mount}, {snapshot}: {text}");
        };
        let [mut a, mut b] = ["a/file", "b/file"].map(|file| Mapper::of(&home.path(file)));
        a.write(0, "one");
        b.write(0, "uno");
        home.pool().snapshot(&["p/a@library", "p/a/b@library"]).unwrap();
        has("a", "library", "one");
        has("b", "library", "uno");
        a.write(0, "two");
        fs::create_dir(home.path("a/.zfs/snapshot/made")).unwrap();
        has("a", "made", "two");
        // Another process has the page mapped and has written to it before; the kernel must report a further
        // write.
        a.write(0, "three");
        b.write(0, "tre");
        fs::create_dir(home.path("b/.zfs/snapshot/made")).unwrap();
        has("b", "made", "tre");
        has("a", "made", "two");
        home.pool().snapshot(&["p/a@again"]).unwrap();
        has("a", "again", "three");
    }
}

/// A user who writes more than the quota allows does not keep others from taking snapshots.
#[test]
fn what_a_quota_refuses_stops_no_snapshot() {
    for transport in transports() {
        let Some(home) = home_over(transport) else { return };
        home.pool().create_filesystem("p/q", &[("quota", "1M"), ("compression", "off")]).unwrap();
        home.folder("q");
        home.mount("p/q", "q", &options()).unwrap();
        let file = sparse(&home.path("q/file"), 64 * MIB);
        let mut mapper = Mapper::of(&home.path("q/file"));
        let mut full = 0;
        for round in 0..400 {
            // Until writes are refused, and further.
            mapper.write(round * RECORD, "text");
            if round % 8 == 7 {
                full += u32::from(file.sync_data().is_err());
                mapper.write(round * RECORD + RECORD / 2, "text");
                home.pool().snapshot(&[&format!("p/q@{round}")]).unwrap();
            }
        }
        assert!(full > 0, "{transport:?}");
    }
}

#[test]
fn no_snapshot_is_taken_without_what_was_written_through_maps() {
    // A single thread, which is to take the snapshot, so none is left for the pages that the kernel writes
    // back.
    let settings =
        TableSettings { transport: Transport::Classic, threads: Some(1), ..TableSettings::default() };
    let Some(home) = TestMounts::set(settings, &["p/a"]) else { return };
    home.folder("a");
    home.mount("p/a", "a", &options()).unwrap();
    let _file = sparse(&home.path("a/file"), MIB);
    let mut mapper = Mapper::of(&home.path("a/file"));
    mapper.write(0, "text");
    let _admin = AdminSnapshot::set(true);
    let made = fs::create_dir(home.path("a/.zfs/snapshot/made"));
    assert_eq!(made.unwrap_err().kind(), std::io::ErrorKind::ResourceBusy);
    assert_eq!(fs::read_dir(home.path("a/.zfs/snapshot")).unwrap().count(), 0);
    home.pool().snapshot(&["p/a@command"]).unwrap();
    assert!(fs::read(home.path("a/.zfs/snapshot/command/file")).unwrap().starts_with(b"text"));
}

#[test]
fn many_seek_at_once_in_files_that_are_written_through_maps() {
    const ROUNDS: u64 = 20;
    for transport in transports() {
        // More of them than threads that answer requests.
        let Some(home) = home_over(transport) else { return };
        home.mount("p/a", "a", &options()).unwrap();
        std::thread::scope(|scope| {
            for number in 0..6 {
                let path = home.path(&format!("a/file{number}"));
                scope.spawn(move || {
                    let file = sparse(&path, 64 * MIB);
                    let mut mapper = Mapper::of(&path);
                    for at in (0..ROUNDS).rev().map(|round| round * 2 * MIB + MIB) {
                        mapper.write(at, "data");
                        let (data, hole) = (data(&file, 0).unwrap(), hole(&file, at).unwrap());
                        // If no thread is left for the pages, the whole file is reported as data.
                        assert!(data == at || data == 0, "{data} {at}");
                        assert!(hole == at + RECORD || hole == 64 * MIB, "{hole} {at}");
                    }
                });
            }
        });
    }
}
