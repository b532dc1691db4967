//! A mount of a small tree in memory: how the kernel treats replies.
#![allow(clippy::disallowed_types)] // The tests look at the mount as any program would.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::transports::{transports, turn};
use cenote_serve::export::{Attr, DirItem, Entry, ExportError, Kind, Seek, SpaceInfo, Time, View};
use cenote_serve::fuse::{MountOptions, Mounted, Service, Transport, ViewService, mount};

const BLOCK: u64 = 4096;
/// Inode number shown for the root, whose node is 1.
const ROOT_INO: u64 = 34;

struct File {
    attr: Attr,
    data: Vec<u8>,
    entries: BTreeMap<Vec<u8>, u64>,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// A service with files in memory, by node. It counts requests, which shows what the kernel caches.
#[derive(Default)]
struct Memory {
    files: BTreeMap<u64, File>,
    lookups: AtomicUsize,
    attrs: AtomicUsize,
    reads: AtomicUsize,
}

fn attr(ino: u64, kind: Kind, size: u64) -> Attr {
    let at = |secs| Time { secs, nanos: 123_456_789 };
    Attr {
        ino,
        generation: 7,
        kind,
        perm: 0o640,
        nlink: 1,
        uid: 12,
        gid: 34,
        size,
        blocks: size.div_ceil(512),
        block_size: 131_072,
        rdev: (5, 70_000),
        atime: at(-5),
        mtime: at(1_700_000_000),
        ctime: at(9),
        crtime: at(1),
    }
}

impl Memory {
    fn add(&mut self, dir: u64, name: &[u8], node: u64, kind: Kind, data: Vec<u8>) -> &mut File {
        if let Some(above) = self.files.get_mut(&dir) {
            above.entries.insert(name.to_vec(), node);
        }
        let ino = if node == 1 { ROOT_INO } else { node };
        let attr = attr(ino, kind, data.len() as u64);
        let file = File { attr, data, entries: BTreeMap::new(), xattrs: BTreeMap::new() };
        self.files.entry(node).or_insert(file)
    }

    fn sample() -> Memory {
        let mut tree = Memory::default();
        tree.add(0, b"", 1, Kind::Directory, Vec::new()).attr.perm = 0o755;
        tree.add(1, b"dir", 50, Kind::Directory, Vec::new()).attr.perm = 0o755;
        let mut data = vec![0u8; 40_000];
        data[10_000] = 1;
        data[39_999] = 2;
        let file = tree.add(50, b"holes", 51, Kind::Regular, data);
        file.xattrs.insert(b"user.colour".to_vec(), b"blue".to_vec());
        file.xattrs.insert(b"user.empty".to_vec(), Vec::new());
        tree.add(50, b"link", 52, Kind::Symlink, b"../somewhere".to_vec());
        tree.add(50, b"device", 53, Kind::CharDevice, Vec::new());
        tree.add(50, b"damaged", 54, Kind::Regular, vec![1; 300_000]);
        tree.add(1, b"many", 60, Kind::Directory, Vec::new()).attr.perm = 0o755;
        for i in 0..3000 {
            tree.add(
                60,
                format!("file-{i:05}-{}", "x".repeat(i % 200)).as_bytes(),
                1000 + i as u64,
                Kind::Regular,
                vec![b'.'; i],
            );
        }
        tree.add(1, &[b'n'; 255], 70, Kind::Regular, vec![]);
        tree.add(1, b"not\xffutf8", 71 | 9 << 48, Kind::Fifo, vec![]);
        tree
    }

    fn file(&self, node: u64) -> Result<&File, ExportError> {
        self.files.get(&node).ok_or(ExportError::Stale)
    }
}

impl View for Memory {
    fn attr(&self, node: u64) -> Result<Attr, ExportError> {
        self.attrs.fetch_add(1, Ordering::Relaxed);
        Ok(self.file(node)?.attr)
    }

    fn lookup(&self, dir: u64, name: &[u8]) -> Result<Option<Entry>, ExportError> {
        self.lookups.fetch_add(1, Ordering::Relaxed);
        let found = self.file(dir)?.entries.get(name);
        found.map(|&node| Ok(Entry { node, attr: self.file(node)?.attr })).transpose()
    }

    fn read_dir(
        &self,
        dir: u64,
        from: u64,
        sink: &mut dyn FnMut(DirItem) -> bool,
    ) -> Result<(), ExportError> {
        let entries = &self.file(dir)?.entries;
        let dots = [(b".".to_vec(), dir), (b"..".to_vec(), 1)];
        let all = dots.into_iter().chain(entries.iter().map(|(name, &node)| (name.clone(), node)));
        for (at, (name, node)) in all.enumerate().skip(from as usize) {
            let kind = Some(self.file(node)?.attr.kind);
            if !sink(DirItem { node, kind, name, next: at as u64 + 1 }) {
                break;
            }
        }
        Ok(())
    }

    fn read_link(&self, node: u64) -> Result<Vec<u8>, ExportError> {
        Ok(self.file(node)?.data.clone())
    }

    fn read(&self, node: u64, offset: u64, buf: &mut [u8]) -> Result<usize, ExportError> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        if node == 54 && offset + buf.len() as u64 > 200_000 {
            return Err(ExportError::Damaged("checksum".into()));
        }
        let data = &self.file(node)?.data;
        let rest = data.get(offset as usize..).unwrap_or(&[]);
        let n = rest.len().min(buf.len());
        buf[..n].copy_from_slice(&rest[..n]);
        Ok(n)
    }

    fn seek(&self, node: u64, offset: u64, what: Seek) -> Result<u64, ExportError> {
        let data = &self.file(node)?.data;
        let size = data.len() as u64;
        if offset >= size {
            return Err(ExportError::BeyondEnd);
        }
        let is_hole = |at: u64| {
            let start = at / BLOCK * BLOCK;
            data[start as usize..(start + BLOCK).min(size) as usize].iter().all(|&b| b == 0)
        };
        match what {
            Seek::Data => (offset..size).find(|&at| !is_hole(at)).ok_or(ExportError::BeyondEnd),
            Seek::Hole => Ok((offset..size).find(|&at| is_hole(at)).unwrap_or(size)),
        }
    }

    fn xattr_names(&self, node: u64) -> Result<Vec<Vec<u8>>, ExportError> {
        Ok(self.file(node)?.xattrs.keys().cloned().collect())
    }

    fn xattr(&self, node: u64, name: &[u8]) -> Result<Option<Vec<u8>>, ExportError> {
        Ok(self.file(node)?.xattrs.get(name).cloned())
    }

    fn space(&self, _: u64) -> Result<SpaceInfo, ExportError> {
        Ok(SpaceInfo {
            block_size: 131_072,
            blocks: 1000,
            free: 400,
            files: 90,
            files_free: 50,
            name_max: 255,
        })
    }
}

type Sample = (tempfile::TempDir, Arc<Memory>, Mounted);

/// A mount of the sample over each transport that this kernel offers, one after the other.
fn mounts() -> impl Iterator<Item = Sample> {
    let turn = turn();
    transports().into_iter().filter_map(move |transport| {
        let _turn = &turn;
        mounted(transport)
    })
}

fn mounted(transport: Transport) -> Option<Sample> {
    let dir = tempfile::tempdir().unwrap();
    let view = Arc::new(Memory::sample());
    let source = "tank/data".to_owned();
    let options = MountOptions { source, threads: Some(4), transport, ..MountOptions::default() };
    let service: Arc<dyn Service> = Arc::new(ViewService::new(view.clone(), false, None));
    match mount(&service, dir.path(), &options) {
        Ok(mounted) => {
            assert_eq!(mounted.is_over_io_uring(), transport == Transport::Ring);
            Some((dir, view, mounted))
        }
        Err(error) => {
            testkit::skip(&format!("{error}: {:?}", std::error::Error::source(&error)));
            None
        }
    }
}

fn errno(result: io::Result<impl Sized>) -> Option<i32> {
    result.err().and_then(|error| error.raw_os_error())
}

fn xattr(path: &Path, name: &str) -> io::Result<Vec<u8>> {
    let mut buf = [0u8; 64];
    let n = rustix::fs::getxattr(path, name, &mut buf)?;
    Ok(buf[..n].to_vec())
}

#[test]
fn attributes_names_links_and_bytes() {
    for (dir, view, mounted) in mounts() {
        let at = |name: &str| dir.path().join(name);
        assert_eq!(fs::metadata(dir.path()).unwrap().ino(), ROOT_INO);
        let stat = fs::metadata(at("dir/holes")).unwrap();
        assert_eq!(
            (stat.ino(), stat.size(), stat.uid(), stat.gid(), stat.mode()),
            (51, 40_000, 12, 34, 0o100_640)
        );
        assert_eq!(
            (stat.mtime(), stat.mtime_nsec(), stat.atime(), stat.atime_nsec()),
            (1_700_000_000, 123_456_789, -5, 123_456_789)
        );
        assert_eq!(fs::read(at("dir/holes")).unwrap(), view.files[&51].data);
        assert_eq!(fs::read_link(at("dir/link")).unwrap().to_str(), Some("../somewhere"));
        let device = fs::symlink_metadata(at("dir/device")).unwrap();
        assert!(device.file_type().is_char_device());
        assert_eq!((rustix::fs::major(device.rdev()), rustix::fs::minor(device.rdev())), (5, 70_000));
        assert!(fs::metadata(at(&"n".repeat(255))).is_ok());
        assert_eq!(errno(fs::metadata(at("none"))), Some(rustix::io::Errno::NOENT.raw_os_error()));
        let fifo = fs::read_dir(dir.path())
            .unwrap()
            .map(Result::unwrap)
            .find(|entry| entry.file_type().unwrap().is_fifo());
        assert_eq!(fifo.unwrap().metadata().unwrap().ino(), 71 | 9 << 48);
        mounted.unmount().unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}

#[test]
fn nothing_can_be_changed_and_damage_is_an_error() {
    for (dir, view, mounted) in mounts() {
        let at = |name: &str| dir.path().join(name);
        let read_only = Some(rustix::io::Errno::ROFS.raw_os_error());
        assert_eq!(errno(fs::write(at("new"), "x")), read_only);
        assert_eq!(errno(fs::remove_file(at("dir/holes"))), read_only);
        assert_eq!(errno(fs::create_dir(at("dir/sub"))), read_only);
        assert_eq!(errno(fs::read(at("dir/damaged"))), Some(rustix::io::Errno::IO.raw_os_error()));
        let mut head = vec![0u8; 1000];
        fs::File::open(at("dir/damaged")).unwrap().read_exact_at(&mut head, 0).unwrap();
        assert_eq!(head, view.files[&54].data[..1000]);
        mounted.unmount().unwrap();
    }
}

#[test]
fn holes_extended_attributes_and_space() {
    for (dir, _, mounted) in mounts() {
        let at = |name: &str| dir.path().join(name);
        let file = fs::File::open(at("dir/holes")).unwrap();
        let seek = |to| rustix::fs::seek(&file, to);
        assert_eq!(seek(rustix::fs::SeekFrom::Data(0)).unwrap(), 8192);
        assert_eq!(seek(rustix::fs::SeekFrom::Hole(8192)).unwrap(), 12_288);
        assert_eq!(seek(rustix::fs::SeekFrom::Hole(39_000)).unwrap(), 40_000);
        assert_eq!(seek(rustix::fs::SeekFrom::Data(40_000)), Err(rustix::io::Errno::NXIO));
        assert_eq!(xattr(&at("dir/holes"), "user.colour").unwrap(), b"blue");
        assert_eq!(xattr(&at("dir/holes"), "user.empty").unwrap(), b"");
        assert_eq!(
            errno(xattr(&at("dir/holes"), "user.none")),
            Some(rustix::io::Errno::NODATA.raw_os_error())
        );
        let mut names = [0u8; 256];
        let n = rustix::fs::listxattr(at("dir/holes"), &mut names[..]).unwrap();
        assert_eq!(&names[..n], b"user.colour\0user.empty\0");
        let space = rustix::fs::statvfs(dir.path()).unwrap();
        assert_eq!((space.f_bsize, space.f_blocks, space.f_bfree, space.f_files), (131_072, 1000, 400, 90));
        drop(file);
        mounted.unmount().unwrap();
    }
}

#[test]
fn long_directories_from_many_threads() {
    for (dir, view, mounted) in mounts() {
        let many = dir.path().join("many");
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut seen = 0;
                    for entry in fs::read_dir(&many).unwrap() {
                        let entry = entry.unwrap();
                        let stat = entry.metadata().unwrap();
                        let node = view.files[&60].entries[entry.file_name().as_encoded_bytes()];
                        assert_eq!((stat.ino(), stat.len()), (node, node - 1000));
                        seen += 1;
                    }
                    assert_eq!(seen, 3000);
                });
            }
        });
        mounted.unmount().unwrap();
    }
}

#[test]
fn what_was_asked_once_is_not_asked_again() {
    for (dir, view, mounted) in mounts() {
        let path = dir.path().join("dir/holes");
        let touch = || {
            fs::read(&path).unwrap();
            assert!(fs::metadata(dir.path().join("dir/none")).is_err());
            fs::metadata(&path).unwrap();
        };
        touch();
        let asked = || [&view.lookups, &view.attrs, &view.reads].map(|n| n.load(Ordering::Relaxed));
        let before = asked();
        for _ in 0..20 {
            touch();
        }
        assert_eq!(asked(), before);
        mounted.unmount().unwrap();
    }
}

#[test]
fn an_open_file_outlives_the_unmount() {
    for (dir, _, mounted) in mounts() {
        let file = fs::File::open(dir.path().join("dir/holes")).unwrap();
        let (mut unmounter, waiter) = mounted.split();
        unmounter.unmount().unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        let mut byte = [0u8];
        file.read_exact_at(&mut byte, 10_000).unwrap();
        assert_eq!(byte, [1]);
        drop(file);
        waiter.wait().unwrap();
    }
}
