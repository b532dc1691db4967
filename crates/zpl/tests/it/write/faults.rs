//! Operations on names while reads begin to fail: each is done completely or not at all.

use super::world::{MemoryBacking, new_set_in, sync};
use cenote_zpl::{
    Backing, Fs, FsOptions, NewFile, NewFilesystem, RenameHow, WriteHow, XattrHow, XattrStorage,
    make_filesystem,
};
use cenote_zpl::{FileKind, ZplError};
use dmu::{KeyState, Limits, LiveSet, Store, Txgs};
use format::objset::ObjsetType;
use format::{DeviceOffset, ObjectId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use vdev::device::memory::MemoryDevice;
use vdev::device::{Device, DeviceError};
use vdev::env::Env;
use zio::testing::pool_on;

/// A disk on which a given number of further reads succeed.
#[derive(Debug)]
struct Failing {
    disk: MemoryDevice,
    reads_left: AtomicU64,
}

impl Device for Failing {
    fn size(&self) -> u64 {
        self.disk.size()
    }

    fn read_at(&self, buf: &mut [u8], at: DeviceOffset) -> Result<(), DeviceError> {
        let take = |left: u64| left.checked_sub(1);
        match self.reads_left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take) {
            Ok(_) => self.disk.read_at(buf, at),
            Err(_) => Err(DeviceError::Truncated { at }),
        }
    }

    fn write_at(&self, buf: &[u8], at: DeviceOffset) -> Result<(), DeviceError> {
        self.disk.write_at(buf, at)
    }
}

struct Bench {
    device: Arc<Failing>,
    store: Arc<Store>,
    home: Arc<MemoryBacking>,
    env: Env,
}

const NAMES: usize = 200;

fn name(dir: &str, i: usize) -> Vec<u8> {
    format!("{dir} {} {i}", "a long name, so that the directory is fat".repeat(2)).into_bytes()
}

impl Bench {
    fn new() -> Bench {
        let device =
            Arc::new(Failing { disk: MemoryDevice::new(1 << 30), reads_left: AtomicU64::new(u64::MAX) });
        let (zio, _) = pool_on(Arc::clone(&device) as Arc<dyn Device>);
        let store = Store::new(zio, 16 << 20);
        let (env, _) = Env::simulated(11);
        let (home, tx) = new_set_in(&store, ObjsetType::Zfs, Limits::default());
        make_filesystem(home.set(), &NewFilesystem::default(), &env, &tx).expect("made");
        drop(tx);
        let bench = Bench { device, store, home, env };
        let fs =
            Fs::open(Arc::clone(&bench.home) as Arc<dyn Backing>, options(), &bench.env).expect("opened");
        fill(&fs).expect("filled");
        sync(&bench.store, &bench.home);
        bench
    }

    /// Opens the file system as it is on disk, with empty caches.
    fn open(&self) -> Arc<Fs> {
        let store = Store::new(Arc::clone(self.store.zio()), 64 << 20);
        let txgs = Txgs::new(self.home.txgs.synced_txg(), Limits::default());
        let policy = (*self.home.set.policy()).clone();
        let set = LiveSet::open(&store, txgs.meter(), &self.home.set.root_bp(), 7, KeyState::None, policy)
            .expect("readable");
        let home = Arc::new(MemoryBacking { set, txgs });
        Fs::open(home as Arc<dyn Backing>, options(), &self.env).expect("opened")
    }

    fn reads_left(&self, reads: u64) -> u64 {
        self.device.reads_left.swap(reads, Ordering::Relaxed)
    }

    /// Fails after each number of reads, until the operation needs no more.
    fn all_or_nothing(&self, what: &str, operation: impl Fn(&Arc<Fs>) -> Result<(), ZplError>) {
        let before = dump(&self.open());
        let fs = self.open();
        operation(&fs).unwrap_or_else(|error| panic!("{what}: {error}"));
        let after = dump(&fs);
        let mut failures = 0;
        for reads in 0.. {
            let fs = self.open();
            self.reads_left(reads);
            let result = operation(&fs);
            let left = self.reads_left(u64::MAX);
            let expected = if result.is_ok() { &after } else { &before };
            let now = dump(&fs);
            let differ: Vec<_> = now.symmetric_difference(expected).take(6).collect();
            assert!(differ.is_empty(), "{what}, {reads} reads, {:?}: {differ:#?}", result.err());
            failures += usize::from(result.is_err());
            if left > 0 {
                assert!(result.is_ok(), "{what}: {result:?}");
                break;
            }
        }
        assert!(failures > 0, "{what}");
    }
}

fn options() -> FsOptions {
    FsOptions { long_names: true, ..FsOptions::default() }
}

fn fill(fs: &Arc<Fs>) -> Result<(), ZplError> {
    let file = NewFile::of(FileKind::Regular, 0o644);
    let dir = NewFile::of(FileKind::Directory, 0o755);
    for top in ["fat", "other"] {
        let id = fs.create(fs.root(), top.as_bytes(), &dir)?.id;
        for i in 0..NAMES {
            let made = fs.create(id, &name(top, i), if i % 5 == 0 { &dir } else { &file })?.id;
            if i % 7 == 1 {
                fs.set_options(FsOptions { xattrs: XattrStorage::Directory, ..options() });
                fs.set_xattr(made, b"user.x", &[3; 700], XattrHow::Either)?;
                fs.set_options(options());
            }
            if i % 5 != 0 {
                fs.write(made, 0, &[1; 5000], &WriteHow::default())?;
            }
        }
    }
    let small = fs.create(fs.root(), b"small", &dir)?.id;
    for i in 0..20 {
        let made = fs.create(small, format!("s{i}").as_bytes(), &file)?.id;
        fs.link(made, small, format!("second{i}").as_bytes())?;
    }
    Ok(())
}

/// Dumps attributes and names of all files, except files that wait to be freed.
fn dump(fs: &Arc<Fs>) -> BTreeSet<String> {
    let read = fs.reader();
    let unlinked: BTreeSet<ObjectId> = read.unlinked().expect("set").into_iter().collect();
    let mut gone = BTreeSet::new();
    let mut all = BTreeMap::new();
    let mut at = ObjectId(1);
    while let Some(object) = read.objset().next_object(at).expect("walk") {
        at = ObjectId(object.id().0 + 1);
        let Ok(node) = read.node_of(object.clone()) else { continue };
        let (id, attrs) = (object.id(), *node.attrs());
        if unlinked.contains(&id) && attrs.links == 0 {
            gone.insert(id);
            continue;
        }
        let cached = fs.attrs(id).expect("readable");
        assert_eq!(cached, attrs, "object {id} in memory");
        let mut entries = Vec::new();
        if node.kind() == FileKind::Directory {
            for entry in node.entries().expect("readable") {
                let entry = entry.expect("readable");
                entries.push(format!("{id}: {} is {}", String::from_utf8_lossy(&entry.name), entry.id));
            }
        }
        let line = format!(
            "{id}: {:?} {:o} links {} size {} parent {} unlinked {} attributes {:?}",
            node.kind(),
            attrs.mode,
            attrs.links,
            attrs.size,
            attrs.parent,
            unlinked.contains(&id),
            attrs.xattr_dir,
        );
        entries.push(line);
        all.insert(id, (attrs.parent, entries));
    }
    // With their attributes.
    for _ in 0..2 {
        let below: Vec<ObjectId> =
            all.iter().filter(|(_, (parent, _))| gone.contains(parent)).map(|(id, _)| *id).collect();
        for id in below {
            all.remove(&id);
            gone.insert(id);
        }
    }
    all.into_values().flat_map(|(_, lines)| lines).collect()
}

fn top(fs: &Fs, name: &str) -> Result<ObjectId, ZplError> {
    fs.lookup(fs.root(), name.as_bytes())?.ok_or(ZplError::NotFound { dir: fs.root() })
}

#[test]
fn making_files() {
    let bench = Bench::new();
    for (what, dir) in [("in a fat directory", "fat"), ("in a small one", "small")] {
        for kind in [FileKind::Regular, FileKind::Directory, FileKind::Symlink] {
            let new = NewFile { target: b"there", ..NewFile::of(kind, 0o644) };
            bench.all_or_nothing(what, |fs| fs.create(top(fs, dir)?, b"new", &new).map(drop));
        }
    }
    bench.all_or_nothing("a small directory becomes fat", |fs| {
        fs.create(top(fs, "small")?, &name("small", 1), &NewFile::of(FileKind::Regular, 0o644)).map(drop)
    });
}

#[test]
fn links() {
    let bench = Bench::new();
    bench.all_or_nothing("a link", |fs| {
        let (fat, small) = (top(fs, "fat")?, top(fs, "small")?);
        let file = fs.lookup(small, b"s3")?.ok_or(ZplError::NotFound { dir: small })?;
        fs.link(file, fat, b"new").map(drop)
    });
    bench.all_or_nothing("a file without a name gets one", |fs| {
        let fat = top(fs, "fat")?;
        let hold = fs.tmpfile(fat, &NewFile::of(FileKind::Regular, 0o644))?;
        fs.link(hold.id(), top(fs, "other")?, b"new").map(drop)
    });
}

#[test]
fn removing() {
    let bench = Bench::new();
    for i in [1, 2, 8] {
        bench.all_or_nothing("a file", |fs| fs.unlink(top(fs, "fat")?, &name("fat", i)));
    }
    bench.all_or_nothing("a held file", |fs| {
        let fat = top(fs, "fat")?;
        let id = fs.lookup(fat, &name("fat", 3))?.ok_or(ZplError::NotFound { dir: fat })?;
        let hold = fs.hold(id)?;
        let result = fs.unlink(fat, &name("fat", 3));
        std::mem::forget(hold);
        result
    });
    bench.all_or_nothing("a directory", |fs| fs.rmdir(top(fs, "fat")?, &name("fat", 5)));
    bench.all_or_nothing("one of two names", |fs| fs.unlink(top(fs, "small")?, b"s3"));
    bench.all_or_nothing("a directory with attributes", |fs| fs.rmdir(top(fs, "fat")?, &name("fat", 15)));
}

#[test]
fn moving() {
    let bench = Bench::new();
    let white = RenameHow::Whiteout { uid: 0, gid: 0 };
    let all = [
        ("a file", 1, None, RenameHow::Replace),
        ("a directory", 5, None, RenameHow::NoReplace),
        ("onto a file", 1, Some(2), RenameHow::Replace),
        ("onto a file with attributes", 2, Some(8), RenameHow::Replace),
        ("onto a directory", 5, Some(10), RenameHow::Replace),
        ("an exchange", 5, Some(1), RenameHow::Exchange),
        ("a whiteout", 1, None, white),
        ("a whiteout onto a file", 1, Some(3), white),
    ];
    for (what, from, to, how) in all {
        for dir in ["fat", "other"] {
            let new = to.map_or_else(|| b"new".to_vec(), |to| name(dir, to));
            bench.all_or_nothing(what, |fs| {
                fs.rename(top(fs, "fat")?, &name("fat", from), top(fs, dir)?, &new, how)
            });
        }
    }
    bench.all_or_nothing("into a small directory", |fs| {
        fs.rename(top(fs, "fat")?, &name("fat", 6), top(fs, "small")?, &name("new", 6), RenameHow::Replace)
    });
}
