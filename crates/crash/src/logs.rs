//! Pools whose logs wait to be replayed, with every kind of record that we write, and every attribute.
//!
//! Each is replayed twice, by our own code and by an OpenZFS kernel (`cargo xtask kernel-peer --logs`): both
//! must produce the same files. All timestamps differ from each other, and have nanoseconds.

use crate::check::check_space;
use crate::disks::{Disks, Layout};
use crate::run;
use crate::run::host;
use crate::run::{Failure, POOL};
use dsl::prop;
use dsl::prop::PropValue;
use format::acl::{PosixEntry, PosixWho};
use format::znode::{FLAG_PROJID, Time};
use format::{DeviceOffset, ObjectId};
use pool::LivePool;
use pool::{ImportOptions, Leave};
use pool::{OpenOptions, Which};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use vdev::device::sim::{Fate, SimDisk};
use vdev::device::{Device, DeviceError};
use vdev::env::Env;
use vdev::env::Random;
use zpl::{
    Allocate, FileRange, Fs, FsOptions, HeadFs, NewAttrs, NewFile, PoolClones, RenameHow, WriteHow, XattrHow,
};
use zpl::{FileKind, Filesystem};

/// A function that is called once.
type Hook = Box<dyn FnOnce() + Send>;

/// A disk that calls a hook before its next write.
pub(crate) struct HookDisk {
    disk: Arc<SimDisk>,
    hook: Mutex<Option<Hook>>,
}

impl std::fmt::Debug for HookDisk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.disk.fmt(f)
    }
}

impl HookDisk {
    /// Calls `hook` before the next write.
    pub(crate) fn before_write(&self, hook: Hook) {
        *vdev::sync::lock(&self.hook) = Some(hook);
    }
}

impl Device for HookDisk {
    fn size(&self) -> u64 {
        self.disk.size()
    }

    fn sector_sizes(&self) -> (u64, u64) {
        self.disk.sector_sizes()
    }

    fn read_at(&self, buf: &mut [u8], at: DeviceOffset) -> Result<(), DeviceError> {
        self.disk.read_at(buf, at)
    }

    fn write_at(&self, buf: &[u8], at: DeviceOffset) -> Result<(), DeviceError> {
        let hook = vdev::sync::lock(&self.hook).take();
        if let Some(hook) = hook {
            hook();
        }
        self.disk.write_at(buf, at)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.disk.flush()
    }

    fn discard(&self, at: DeviceOffset, len: u64) -> Result<(), DeviceError> {
        self.disk.discard(at, len)
    }
}

fn options() -> FsOptions {
    FsOptions { record_size: run::RECORD, posix_acls: true, clones: true, ..FsOptions::default() }
}

/// A pool on one disk, with its file system and its disk.
pub(crate) struct LoggedPool {
    /// The simulated disks; there is one.
    pub disks: Disks,
    /// The device that wraps the disk.
    pub hook: Arc<HookDisk>,
    /// The open pool, which is named [`POOL`].
    pub pool: Arc<LivePool>,
    /// Its root file system, open for writing.
    pub fs: Arc<HeadFs>,
}

/// Makes a pool and opens its root file system for writing.
///
/// # Errors
/// The pool cannot be made, or the file system cannot be opened.
pub(crate) fn create(env: &Env) -> Result<LoggedPool, Failure> {
    let layout: Layout = "single".parse()?;
    let mut disks = Disks::new(1, 5);
    let hook = Arc::new(HookDisk { disk: Arc::clone(&disks.disks()[0]), hook: Mutex::default() });
    disks.show(vec![Arc::clone(&hook) as Arc<dyn Device>]);
    let pool = run::create(&disks, layout, env.clone())?;
    pool.run(|ctx| prop::change::set(ctx, POOL, "acltype", &PropValue::Number(1)))?;
    let head = pool.heads().open_by_name(POOL)?;
    let fs = HeadFs::open(&head, options(), env)?;
    Ok(LoggedPool { disks, hook, pool, fs })
}

fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Random::from_seed(seed).fill(&mut bytes);
    bytes
}

/// A pool after a power cut, and its expected contents.
pub(crate) struct Left {
    /// The disks after the cut.
    pub disks: Disks,
    /// A line for each name: attributes that every replay must produce, and a checksum of the contents.
    pub list: String,
}

/// A file of another user, with set-id bits if the mode has them.
fn file(mode: u32) -> NewFile<'static> {
    NewFile { uid: 1001, gid: 1002, ..NewFile::of(FileKind::Regular, mode) }
}

fn folder(mode: u32) -> NewFile<'static> {
    NewFile::of(FileKind::Directory, mode)
}

/// A file system with files, each of which gets one kind of change.
struct Changes<'a> {
    fs: &'a Arc<Fs>,
    root: ObjectId,
    dir: ObjectId,
    ids: BTreeMap<&'static str, ObjectId>,
    /// Advances the clock.
    tick: &'a dyn Fn(),
}

impl<'a> Changes<'a> {
    /// Makes the files.
    fn begin(fs: &'a Arc<Fs>, tick: &'a dyn Fn()) -> Result<Changes<'a>, Failure> {
        let names = [
            "owner", "cut", "mode", "times", "size", "cut-own", "hole", "write", "reserve", "zero", "xattr",
            "acl", "flags", "project", "appended", "linked", "gone", "over", "under", "source", "swap1",
            "swap2", "white", "crtime",
        ];
        let root = fs.root();
        let make = |name: &'static str| -> Result<(&'static str, ObjectId), Failure> {
            tick();
            let id = fs.create(root, name.as_bytes(), &file(0o6755))?.id;
            fs.write(id, 0, &noise(30_000, name.len() as u64), &WriteHow::default())?;
            Ok((name, id))
        };
        let ids = names.into_iter().map(make).collect::<Result<_, Failure>>()?;
        tick();
        let dir = fs.create(root, b"dir", &folder(0o755))?.id;
        tick();
        fs.create(root, b"empty", &folder(0o755))?;
        Ok(Changes { fs, root, dir, ids, tick })
    }

    fn set(&self, name: &str, new: NewAttrs) -> Result<(), Failure> {
        (self.tick)();
        self.fs.set_attrs(self.ids[name], &new)?;
        Ok(())
    }

    fn attributes(&self) -> Result<(), Failure> {
        let none = NewAttrs::default();
        let given = |secs| Some(Time { secs, nanos: 987_654_321 });
        self.set("owner", NewAttrs { uid: Some(5), gid: Some(6), ..none })?;
        self.set("cut", NewAttrs { size: Some(20_000), clear_set_ids: true, ..none })?;
        self.set("mode", NewAttrs { mode: Some(0o1640), ..none })?;
        self.set("times", NewAttrs { atime: given(77), mtime: given(1_234_567_890), ..none })?;
        self.set("size", NewAttrs { size: Some(100_000), mtime: given(99), ..none })?;
        self.set("flags", NewAttrs { linux_flags: Some(0x40), ..none })?;
        self.set("project", NewAttrs { project: Some(77), ..none })?;
        self.set("crtime", NewAttrs { crtime: given(4242), ..none })
    }

    fn contents(&self) -> Result<(), Failure> {
        let Changes { fs, ids, tick, .. } = self;
        tick();
        fs.truncate(ids["cut-own"], 10_000, true)?;
        tick();
        fs.fallocate(ids["hole"], 100, 20_000, Allocate::Punch)?;
        tick();
        fs.fallocate(ids["zero"], 8000, 9000, Allocate::Zero { keep_size: true })?;
        tick();
        fs.fallocate(ids["reserve"], 0, 50_000, Allocate::Reserve { keep_size: false })?;
        for at in [0, 20_000, 9000] {
            tick();
            let how = WriteHow { clear_set_ids: true, ..WriteHow::default() };
            fs.write(ids["write"], at, &noise(9000, at), &how)?;
        }
        tick();
        fs.write(ids["appended"], 0, &noise(50_000, 9), &WriteHow { append: true, ..WriteHow::default() })?;
        Ok(())
    }

    /// Changes extended attributes. `acl`: an access control list in the form of its attribute.
    fn xattrs(&self, acl: &[u8]) -> Result<(), Failure> {
        let Changes { fs, ids, tick, .. } = self;
        tick();
        fs.set_xattr(ids["xattr"], b"user.small", b"value", XattrHow::Either)?;
        tick();
        fs.set_xattr(ids["xattr"], b"user.other", &noise(500, 3), XattrHow::Either)?;
        fs.remove_xattr(ids["xattr"], b"user.small")?;
        tick();
        fs.set_xattr(ids["acl"], b"system.posix_acl_access", acl, XattrHow::Either)?;
        Ok(())
    }

    fn names(&self) -> Result<(), Failure> {
        let Changes { fs, root, dir, ids, tick } = self;
        tick();
        fs.link(ids["linked"], *dir, b"second name")?;
        tick();
        fs.unlink(*root, b"gone")?;
        tick();
        fs.rmdir(*root, b"empty")?;
        tick();
        fs.rename(*root, b"over", *root, b"under", RenameHow::Replace)?;
        tick();
        fs.rename(*root, b"swap1", *root, b"swap2", RenameHow::Exchange)?;
        tick();
        fs.rename(*root, b"white", *dir, b"moved", RenameHow::Whiteout { uid: 3, gid: 4 })?;
        Ok(())
    }

    /// Makes files of every type; `acl`: the access control list that some of them inherit.
    fn new_files(&self, acl: &[u8]) -> Result<(), Failure> {
        let Changes { fs, root, dir, tick, .. } = self;
        tick();
        let deeper = fs.create(*dir, b"deeper", &NewFile { uid: 7, gid: 8, ..folder(0o2750) })?.id;
        tick();
        let new = fs.create(deeper, b"new", &file(0o4711))?.id;
        fs.write(new, 0, &noise(100_000, 4), &WriteHow::default())?;
        tick();
        let link = NewFile { target: b"dir/deeper/new", ..NewFile::of(FileKind::Symlink, 0o777) };
        fs.create(*root, b"link", &link)?;
        tick();
        fs.create(*root, b"pipe", &NewFile::of(FileKind::Fifo, 0o600))?;
        tick();
        fs.create(*root, b"null", &NewFile { rdev: (1, 3), ..NewFile::of(FileKind::CharDevice, 0o666) })?;
        tick();
        fs.set_xattr(*dir, b"system.posix_acl_default", acl, XattrHow::Either)?;
        tick();
        fs.create(*dir, b"inherits", &NewFile { umask: 0o022, ..file(0o664) })?;
        tick();
        fs.create(*dir, b"inherits too", &NewFile { umask: 0o022, ..folder(0o775) })?;
        Ok(())
    }

    /// Clones a file, and then writes to the source.
    fn clones(&self, clones: &PoolClones) -> Result<(), Failure> {
        let Changes { fs, root, ids, tick, .. } = self;
        tick();
        let copy = fs.create(*root, b"copy", &file(0o644))?.id;
        tick();
        let (from, to) = (FileRange { id: ids["source"], offset: 0 }, FileRange { id: copy, offset: 0 });
        fs.clone_range(fs, from, to, 30_000, clones)?;
        tick();
        fs.write(ids["source"], 0, &noise(5000, 99), &WriteHow::default())?;
        tick();
        Ok(())
    }
}

/// A pool that was cut off after every kind of change was made durable by the log alone.
///
/// # Errors
/// An operation fails.
pub(crate) fn every_record() -> Result<Left, Failure> {
    let (env, clock) = Env::simulated(3);
    let tick = || clock.advance(Duration::new(1_000_003, 123_456_789));
    (0..1500).for_each(|_| tick());
    let world = create(&env)?;
    let fs = &world.fs.fs;
    let changes = Changes::begin(fs, &tick)?;
    world.fs.sync()?;
    world.pool.sync()?;
    world.fs.fsync(fs.root())?;
    world.pool.sync()?;

    let acl = zpl::encode_posix(&[
        PosixEntry { who: PosixWho::UserObj, perm: 7 },
        PosixEntry { who: PosixWho::User(1005), perm: 6 },
        PosixEntry { who: PosixWho::GroupObj, perm: 5 },
        PosixEntry { who: PosixWho::Mask, perm: 7 },
        PosixEntry { who: PosixWho::Other, perm: 1 },
    ]);
    changes.attributes()?;
    changes.contents()?;
    changes.xattrs(&acl)?;
    changes.names()?;
    changes.new_files(&acl)?;
    changes.clones(&PoolClones::new(world.fs.head().clones()))?;
    world.fs.sync()?;
    Ok(Left { disks: world.disks.after_cut(Fate::Lost, 1), list: list(fs.reader())? })
}

/// A pool that was cut off when a txg with clones was on disk, whose records became durable while that txg
/// was being written: the record of an existing file, and that of a file that was removed together with its
/// source.
///
/// # Errors
/// An operation fails.
pub(crate) fn clones_while_their_txg_is_written() -> Result<Left, Failure> {
    let (env, _clock) = Env::simulated(4);
    let world = create(&env)?;
    let (fs, root) = (Arc::clone(&world.fs.fs), world.fs.fs.root());
    let make = |name: &str, len: usize| -> Result<ObjectId, Failure> {
        let id = fs.create(root, name.as_bytes(), &NewFile::of(FileKind::Regular, 0o644))?.id;
        fs.write(id, 0, &noise(len, len as u64), &WriteHow::default())?;
        Ok(id)
    };
    let (kept, gone) = (make("kept", 40_000)?, make("gone", 80_000)?);
    let (other, old) = (make("other", 100)?, make("old", 50)?);
    world.fs.fsync(old)?;
    world.pool.sync()?;
    world.fs.fsync(make("third", 200)?)?;
    world.pool.sync()?;
    world.pool.txgs().set_inline(None);
    let table = PoolClones::new(world.fs.head().clones());
    for (from, name, len) in [(kept, "copy of kept", 40_000), (gone, "copy of gone", 80_000)] {
        let to = fs.create(root, name.as_bytes(), &NewFile::of(FileKind::Regular, 0o644))?.id;
        let (from, to) = (FileRange { id: from, offset: 0 }, FileRange { id: to, offset: 0 });
        fs.clone_range(&fs, from, to, len, &table)?;
    }
    // The record of the clones keeps its place in the log.
    fs.rename(root, b"old", root, b"renamed", RenameHow::Replace)?;
    fs.unlink(root, b"gone")?;
    fs.unlink(root, b"copy of gone")?;
    let opened = Arc::clone(&world.fs);
    let (tell, told) = std::sync::mpsc::channel();
    let (begin, begun) = std::sync::mpsc::channel();
    world.hook.before_write(Box::new(move || {
        // On a thread of its own: it may wait for this txg, which continues then.
        std::thread::spawn(move || {
            let durable = || -> Result<(), Failure> {
                opened.fs.write(other, 0, &[7; 500], &WriteHow::default())?;
                Ok(opened.fsync(other)?)
            };
            let outcome = durable();
            let _is_early = begin.send(());
            let _nobody_waits = tell.send(outcome);
        });
        let _is_late = begun.recv_timeout(Duration::from_millis(300));
    }));
    world.pool.sync_here()?;
    told.recv()??;
    Ok(Left { disks: world.disks.after_cut(Fate::Lost, 1), list: list(fs.reader())? })
}

/// A pool whose log an OpenZFS kernel is to replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Case {
    /// The pool of `every_record`.
    Records,
    /// The pool of `clones_while_their_txg_is_written`.
    Clones,
    /// As `Clones`; the kernel claims the log, and replays it with the next import.
    ClonesClaimedThere,
    /// As `Clones`; the kernel only claims the log, and our code replays it.
    ClonesReplayedHere,
    /// As `Clones`; our code claims the log, and the kernel replays it.
    ClonesClaimedHere,
}

impl Case {
    /// All cases, by name.
    pub const ALL: [(&'static str, Case); 5] = [
        ("records", Case::Records),
        ("clones", Case::Clones),
        ("clones-claimed-there", Case::ClonesClaimedThere),
        ("clones-replayed-here", Case::ClonesReplayedHere),
        ("clones-claimed-here", Case::ClonesClaimedHere),
    ];
}

/// Name of the pool's disk in the folder of a case.
const DISK: &str = "disk";
/// Name of the file with the expected contents.
const OURS: &str = "ours";

/// Puts the pool of a case, and a list of its expected contents, into a folder.
///
/// # Errors
/// The pool cannot be made, or our own replay does not give the expected contents.
pub fn make(dir: &Path, case: Case) -> Result<(), Failure> {
    std::fs::create_dir_all(dir)?;
    let Left { disks, list } = match case {
        Case::Records => every_record()?,
        _ => clones_while_their_txg_is_written()?,
    };
    let ours = disks.after_cut(Fate::Kept, 2);
    if case == Case::ClonesClaimedHere {
        let pool = import(&disks)?;
        for _ in 0..4 {
            pool.sync()?;
        }
        pool.export(Leave::Exported)?;
    }
    dump(&disks, &dir.join(DISK))?;
    std::fs::write(dir.join(OURS), &list)?;
    compare(&list, &replayed(&ours)?)
}

/// Compares the contents that the kernel has left with the expected ones.
///
/// # Errors
/// Description of the first difference or error.
pub fn check(dir: &Path, case: Case) -> Result<(), Failure> {
    let disks = load(&dir.join(DISK))?;
    if case == Case::ClonesReplayedHere {
        replayed(&disks)?;
    }
    check_space(&disks)?;
    compare(&std::fs::read_to_string(dir.join(OURS))?, &list_pool(&disks)?)
}

fn compare(before: &str, after: &str) -> Result<(), Failure> {
    let differ: Vec<String> = before
        .lines()
        .zip(after.lines())
        .filter(|(before, after)| before != after)
        .map(|(before, after)| format!("\n  was {before}\n  is  {after}"))
        .collect();
    if !differ.is_empty() || before.lines().count() != after.lines().count() {
        return Err(format!("{} differences:{}", differ.len(), differ.concat()).into());
    }
    Ok(())
}

fn import(disks: &Disks) -> Result<Arc<LivePool>, Failure> {
    let options = ImportOptions { host: host(), force: true, ..ImportOptions::default() };
    Ok(LivePool::import(&disks.found(), &Which::Name(POOL.to_owned()), &options, run::env(9))?)
}

/// Replays the log, and lists the contents.
fn replayed(disks: &Disks) -> Result<String, Failure> {
    let pool = import(disks)?;
    drop(HeadFs::open(&pool.heads().open_by_name(POOL)?, options(), &run::env(9))?);
    pool.export(Leave::Exported)?;
    check_space(disks)?;
    list_pool(disks)
}

fn list_pool(disks: &Disks) -> Result<String, Failure> {
    let pool = pool::Pool::open(disks.found(), &Which::Name(POOL.to_owned()), &OpenOptions::default())?;
    list(&Filesystem::open(pool.dsl().dataset(POOL)?.open_objset()?)?)
}

/// A line for each name: attributes that every replay must produce, and a checksum of the contents.
fn list(fs: &Arc<Filesystem>) -> Result<String, Failure> {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut lines = Vec::new();
    let mut left = vec![(".".to_owned(), fs.root())];
    while let Some((path, id)) = left.pop() {
        let node = fs.node(id)?;
        let a = node.attrs();
        let mut hasher = DefaultHasher::new();
        match node.kind() {
            FileKind::Directory => {
                for entry in node.entries()? {
                    let entry = entry?;
                    left.push((format!("{path}/{}", String::from_utf8_lossy(&entry.name)), entry.id));
                }
            }
            FileKind::Regular => {
                let mut bytes = vec![0; a.size as usize];
                node.read_at(0, &mut bytes)?;
                bytes.hash(&mut hasher);
            }
            FileKind::Symlink => node.readlink()?.hash(&mut hasher),
            _ => {}
        }
        // OpenZFS gives projects to files and directories only, and other kinds do not use them.
        let is_plain = matches!(node.kind(), FileKind::Regular | FileKind::Directory);
        let flags = if is_plain { a.flags } else { a.flags & !FLAG_PROJID };
        let mut xattrs: Vec<(String, u64)> = Vec::new();
        for (name, value) in node.xattr_values()? {
            let mut hasher = DefaultHasher::new();
            value.hash(&mut hasher);
            xattrs.push((String::from_utf8_lossy(&name).into_owned(), hasher.finish()));
        }
        xattrs.sort();
        let time = |time: Time| format!("{}.{:09}", time.secs, time.nanos);
        // After changes of names, OpenZFS's replay sets the modification time of a directory to the time of
        // the replay.
        let mtime = if node.is_dir() { Time::default() } else { a.mtime };
        // It does not restore access times either.
        let times = [mtime, a.crtime].map(time);
        lines.push(format!(
            "{path} mode {:o} owner {}:{} links {} size {} device {:?} times {times:?} flags {:x} project {} \
             contents {:x} attributes {xattrs:x?}\n",
            a.mode,
            a.uid,
            a.gid,
            a.links,
            a.size,
            a.rdev,
            flags,
            a.projid,
            hasher.finish()
        ));
    }
    lines.sort();
    Ok(lines.concat())
}

/// Copies the only disk to a file.
fn dump(disks: &Disks, path: &Path) -> Result<(), Failure> {
    let mut all = vec![0; disks.size() as usize];
    disks.disks()[0].read_at(&mut all, DeviceOffset(0))?;
    Ok(std::fs::write(path, all)?)
}

/// A disk with the contents of a file.
fn load(path: &Path) -> Result<Disks, Failure> {
    let disks = Disks::new(1, 6);
    disks.write(0, 0, &std::fs::read(path)?);
    disks.flush(0);
    Ok(disks)
}
