//! A program that writes files in a file system of its own, and knows what they must contain.
//!
//! It creates, overwrites (through the cache, by direct I/O and through maps), truncates, punches, clones,
//! labels, renames and removes files, and makes some of them durable by `fsync`. It takes snapshots, also of
//! pages that only the kernel holds, rolls back to them, reads them again and copies out of them. After a
//! crash it compares the files with its model, and continues from what it found.

use crate::Random;
use crate::map::Mapper;
use crate::model::{Content, FileState, Model, Tree, compare};
use crate::world::{COMMAND_TIMEOUT, Failure, Outcome, World, fail};
use rustix::fs::{FallocateFlags, OFlags, XattrFlags};
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// The file that distinguishes the mounted file system from the empty directory below it.
const MARK: &str = "mark";
/// Most bytes of one call, and of a file.
const WRITE: u64 = 64 << 10;
const FILE: u64 = 512 << 10;
/// The alignment of direct I/O in bytes.
const BLOCK: u64 = 4096;
/// The name of the extended attribute.
const LABEL: &str = "user.label";
/// Snapshots kept at a time.
const SNAPSHOTS: usize = 4;

/// A writer and its model.
pub(crate) struct Writer {
    name: String,
    pub(crate) dataset: String,
    at: PathBuf,
    random: Random,
    model: Model,
    snapshots: Vec<(String, Tree)>,
    taken: u64,
}

/// The reason why a step was not done.
enum Stopped {
    /// A system call failed: the daemon is gone, or there is a bug.
    Io(io::Error),
    Failed(Failure),
}

impl From<io::Error> for Stopped {
    fn from(error: io::Error) -> Stopped {
        Stopped::Io(error)
    }
}

impl From<Errno> for Stopped {
    fn from(error: Errno) -> Stopped {
        Stopped::Io(error.into())
    }
}

impl From<Failure> for Stopped {
    fn from(failure: Failure) -> Stopped {
        Stopped::Failed(failure)
    }
}

impl Writer {
    /// Creates the file system of a writer.
    pub(crate) fn new(world: &World, number: u64, mut random: Random) -> Outcome<Writer> {
        let name = format!("w{number}");
        let dataset = format!("tank/{name}");
        let size = *random.of(&["recordsize=4K", "recordsize=16K", "recordsize=128K"]);
        let compression = *random.of(&["compression=off", "compression=lz4", "compression=zstd"]);
        let xattr = *random.of(&["xattr=sa", "xattr=on"]);
        world.run_ok(&name, &["zfs", "create", "-o", size, "-o", compression, "-o", xattr, &dataset])?;
        let at = world.mount().join(&name);
        for folder in ["a", "b"] {
            std::fs::create_dir(at.join(folder))?;
        }
        std::fs::write(at.join(MARK), &name)?;
        world.run_ok(&name, &["zpool", "sync", "tank"])?;
        let (model, snapshots) = (Model::default(), Vec::new());
        Ok(Writer { name, dataset, at, random, model, snapshots, taken: 0 })
    }

    /// Works until the round is over.
    pub(crate) fn work(&mut self, world: &World) -> Outcome {
        while !world.is_over() {
            world.calls.fetch_add(1, Ordering::Relaxed);
            match self.step(world) {
                Ok(()) => {}
                Err(Stopped::Failed(failure)) => return Err(failure),
                Err(Stopped::Io(error)) if !world.has_kills => {
                    return fail(format!("{}: a call failed: {error}", self.name));
                }
                Err(Stopped::Io(error)) => {
                    world.note(&format!("{}: {error}: looks what is there", self.name));
                    self.recover(world)?;
                }
            }
        }
        Ok(())
    }

    /// Checks the files after the round; if the daemon was never killed, unsynced files too.
    pub(crate) fn settle(&mut self, world: &World) -> Outcome {
        if world.has_kills {
            self.recover(world)?;
        }
        self.check(&self.at)
    }

    /// Checks the files below a directory against the model.
    pub(crate) fn check(&self, at: &Path) -> Outcome {
        let found = read_tree(at)?;
        self.model.check(&found).map_err(|why| Failure(format!("{}: {why}", self.dataset)))
    }

    /// Checks that every snapshot has the contents it was taken with.
    pub(crate) fn check_snapshots(&self) -> Outcome {
        for (name, tree) in &self.snapshots {
            let found = read_tree(&self.at.join(".zfs/snapshot").join(name))?;
            compare(tree, &found).map_err(|why| Failure(format!("{}@{name}: {why}", self.dataset)))?;
        }
        Ok(())
    }

    fn path(&mut self) -> String {
        let folder = *self.random.of(&["a", "b"]);
        format!("{folder}/{}", self.random.below(12))
    }

    fn step(&mut self, world: &World) -> Result<(), Stopped> {
        let path = self.path();
        match self.random.below(120) {
            0..22 => self.write_new(&path),
            22..38 => self.write_into(&path, false),
            38..44 => self.write_into(&path, true),
            44..50 => self.cut(&path),
            50..57 => self.punch(&path),
            57..66 => self.rename(&path),
            66..72 => self.remove(&path),
            72..76 => self.copy(&path),
            76..80 => self.copy_range(&path),
            80..85 => self.label(&path),
            85..92 => self.sync(&path),
            92..113 => self.read(&path),
            113 => self.map(world, &path),
            114 | 115 => self.copy_back(&path),
            116 | 117 => self.snapshot(world).map(drop),
            118 => self.read_snapshot(world),
            _ => self.roll_back(world),
        }
    }

    fn open(&self, path: &str) -> io::Result<File> {
        OpenOptions::new().read(true).write(true).open(self.at.join(path))
    }

    fn write_new(&mut self, path: &str) -> Result<(), Stopped> {
        let count = self.random.below(WRITE + 1);
        let bytes: Arc<[u8]> = self.random.bytes(count).into();
        let old = self.model.now(path).unwrap_or_default();
        self.model.change(path, Some(old.with([])));
        let mut file = File::create(self.at.join(path))?;
        self.model.change(path, Some(old.with(Arc::clone(&bytes))));
        file.write_all(&bytes)?;
        if self.random.one_in(8) {
            file.sync_all()?;
            self.model.settle(path);
        }
        Ok(())
    }

    fn write_into(&mut self, path: &str, around_cache: bool) -> Result<(), Stopped> {
        let Some(old) = self.model.now(path) else { return Ok(()) };
        let mut offset = self.random.below((old.bytes.len() as u64).min(FILE - WRITE) + 1);
        let mut count = 1 + self.random.below(WRITE);
        let mut how = OpenOptions::new();
        how.write(true);
        if around_cache {
            (offset, count) = (offset / BLOCK * BLOCK, count.next_multiple_of(BLOCK));
            how.custom_flags(OFlags::DIRECT.bits() as i32);
        }
        let bytes = self.random.bytes(count);
        let new = overwritten(&old, &bytes, offset);
        self.model.change(path, Some(new));
        let file = how.open(self.at.join(path))?;
        file.write_all_at(&bytes, offset)?;
        if self.random.one_in(8) {
            file.sync_data()?;
            self.model.settle(path);
        }
        Ok(())
    }

    fn cut(&mut self, path: &str) -> Result<(), Stopped> {
        let Some(old) = self.model.now(path) else { return Ok(()) };
        let size = self.random.below(old.bytes.len() as u64 * 5 / 4 + 2).min(FILE);
        let mut new = old.bytes.to_vec();
        new.resize(size as usize, 0);
        self.model.change(path, Some(old.with(new)));
        Ok(self.open(path)?.set_len(size)?)
    }

    /// A call of `fallocate`: punches a hole, writes zeros, or allocates.
    fn punch(&mut self, path: &str) -> Result<(), Stopped> {
        let Some(old) = self.model.now(path) else { return Ok(()) };
        let offset = self.random.below((old.bytes.len() as u64).min(FILE - WRITE) + 1);
        let count = 1 + self.random.below(WRITE);
        let (size, end) = (old.bytes.len(), (offset + count) as usize);
        let keeps_size = self.random.one_in(2);
        let (mode, zeros) = match self.random.below(3) {
            0 => (FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, true),
            1 if keeps_size => (FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE, true),
            1 => (FallocateFlags::ZERO_RANGE, true),
            _ if keeps_size => (FallocateFlags::KEEP_SIZE, false),
            _ => (FallocateFlags::empty(), false),
        };
        let mut new = old.bytes.to_vec();
        if !mode.contains(FallocateFlags::KEEP_SIZE) {
            new.resize(size.max(end), 0);
        }
        if zeros {
            let end = end.min(new.len());
            new[(offset as usize).min(end)..end].fill(0);
        }
        self.model.change(path, Some(old.with(new)));
        let file = self.open(path)?;
        rustix::fs::fallocate(&file, mode, offset, count)?;
        if self.random.one_in(4) {
            file.sync_data()?;
            self.model.settle(path);
        }
        Ok(())
    }

    /// Sets or removes the extended attribute of a file.
    fn label(&mut self, path: &str) -> Result<(), Stopped> {
        let Some(old) = self.model.now(path) else { return Ok(()) };
        let at = self.at.join(path);
        if old.label.is_some() && self.random.one_in(3) {
            self.model.change(path, Some(FileState { label: None, ..old }));
            rustix::fs::removexattr(&at, LABEL)?;
        } else {
            let count = *self.random.of(&[0, 10, 300, 9000]);
            let label = self.random.bytes(count);
            self.model.change(path, Some(FileState { label: Some(label.clone().into()), ..old }));
            rustix::fs::setxattr(&at, LABEL, &label, XattrFlags::empty())?;
        }
        Ok(())
    }

    /// Changes bytes through a map; reads and snapshots must include pages that only the kernel holds.
    fn map(&mut self, world: &World, path: &str) -> Result<(), Stopped> {
        let Some(old) = self.model.now(path).filter(|old| !old.bytes.is_empty()) else { return Ok(()) };
        let size = old.bytes.len() as u64;
        let offset = self.random.below(size);
        let count = 1 + self.random.below((size - offset).min(WRITE));
        let bytes = self.random.bytes(count);
        // Earlier writes must not mix with these pages in the model.
        self.open(path)?.sync_data()?;
        self.model.settle(path);
        self.model.change_by_pages(path, Some(overwritten(&old, &bytes, offset)));
        let mapper = Mapper::write(&self.at.join(path), &bytes, offset as usize)?;
        self.read(path)?;
        if self.random.one_in(2) && self.snapshot(world)? {
            self.check_last_snapshot()?;
        }
        mapper.sync()?;
        self.model.settle(path);
        Ok(())
    }

    fn rename(&mut self, path: &str) -> Result<(), Stopped> {
        let to = self.path();
        if self.model.now(path).is_none() || to == path {
            return Ok(());
        }
        self.model.rename(path, &to);
        Ok(std::fs::rename(self.at.join(path), self.at.join(to))?)
    }

    fn remove(&mut self, path: &str) -> Result<(), Stopped> {
        if self.model.now(path).is_none() {
            return Ok(());
        }
        self.model.change(path, None);
        Ok(std::fs::remove_file(self.at.join(path))?)
    }

    /// Copies a whole file, by `FICLONE` where supported, else by `copy_file_range`: blocks are shared.
    fn copy(&mut self, path: &str) -> Result<(), Stopped> {
        let to = self.path();
        let Some(file) = self.model.now(path).filter(|_| to != path) else { return Ok(()) };
        let old = self.model.now(&to).unwrap_or_default();
        self.model.change(&to, Some(old.with([])));
        self.model.change(&to, Some(old.with(file.bytes)));
        let (from, into) = (File::open(self.at.join(path))?, File::create(self.at.join(&to))?);
        match rustix::fs::ioctl_ficlone(&into, &from) {
            Err(Errno::NOTSUP | Errno::NOTTY | Errno::NOSYS | Errno::INVAL) => {
                drop(into);
                std::fs::copy(self.at.join(path), self.at.join(&to))?;
            }
            done => done?,
        }
        Ok(())
    }

    /// Copies a range of a file into another one.
    fn copy_range(&mut self, path: &str) -> Result<(), Stopped> {
        let to = self.path();
        let both = self.model.now(path).zip(self.model.now(&to)).filter(|_| to != path);
        let Some((source, target)) = both else { return Ok(()) };
        let aligned =
            |number: u64, is_aligned: bool| if is_aligned { number / BLOCK * BLOCK } else { number };
        let is_aligned = self.random.one_in(2);
        let from = aligned(self.random.below(source.bytes.len() as u64 + 1), is_aligned);
        let into = self.random.below((target.bytes.len() as u64).min(FILE - WRITE) + 1);
        let into = aligned(into, is_aligned);
        let count = (source.bytes.len() as u64 - from).min(1 + self.random.below(WRITE));
        let bytes = &source.bytes[from as usize..(from + count) as usize];
        let new = if count == 0 { target.clone() } else { overwritten(&target, bytes, into) };
        self.model.change(&to, Some(new));
        let (one, two) = (File::open(self.at.join(path))?, self.open(&to)?);
        let mut done = 0;
        while done < count {
            let (mut from, mut into) = (from + done, into + done);
            let more = rustix::fs::copy_file_range(
                &one,
                Some(&mut from),
                &two,
                Some(&mut into),
                (count - done) as usize,
            )?;
            if more == 0 {
                return Err(Failure(format!("{path}: copy_file_range ends after {done} of {count}")).into());
            }
            done += more as u64;
        }
        Ok(())
    }

    /// Copies a file of a snapshot over the current one.
    fn copy_back(&mut self, path: &str) -> Result<(), Stopped> {
        if self.snapshots.is_empty() {
            return Ok(());
        }
        let (name, tree) = self.random.of(&self.snapshots).clone();
        let names: Vec<&String> = tree.keys().collect();
        let Some(from) = names.get(self.random.below(names.len().max(1) as u64) as usize) else {
            return Ok(());
        };
        let old = self.model.now(path).unwrap_or_default();
        self.model.change(path, Some(old.with([])));
        self.model.change(path, Some(old.with(Arc::clone(&tree[*from].bytes))));
        std::fs::copy(self.at.join(".zfs/snapshot").join(name).join(from), self.at.join(path))?;
        Ok(())
    }

    fn sync(&mut self, path: &str) -> Result<(), Stopped> {
        if self.model.now(path).is_none() {
            return Ok(());
        }
        File::open(self.at.join(path))?.sync_all()?;
        self.model.settle(path);
        Ok(())
    }

    fn read(&mut self, path: &str) -> Result<(), Stopped> {
        let found = read_file(&self.at.join(path))?;
        let (wanted, found) = (tree_of(path, self.model.now(path)), tree_of(path, found));
        let describe = |why| Failure(format!("{}: read {why}", self.dataset));
        Ok(compare(&wanted, &found).map_err(describe)?)
    }

    /// Takes a snapshot; returns whether it exists and is the last one.
    fn snapshot(&mut self, world: &World) -> Result<bool, Stopped> {
        self.taken += 1;
        let name = format!("s{}", self.taken);
        let full = format!("{}@{name}", self.dataset);
        let completed = world.run(&self.name, &["zfs", "snapshot", &full])?;
        if completed.is_success() {
            if world.has_kills {
                // A new daemon may have taken the snapshot of what the previous one had on disk. Nothing was
                // written since.
                self.recover(world)?;
            }
            self.model.settle_all();
            self.snapshots.push((name, self.model.tree()));
        } else if !world.has_kills && !completed.is_excused {
            return Err(Failure(format!("{full} could not be taken")).into());
        } else {
            // The snapshot may exist although the command failed.
            world.destroy_if_present(&self.name, &full)?;
        }
        if self.snapshots.len() > SNAPSHOTS {
            let at = self.random.below(SNAPSHOTS as u64) as usize;
            let (name, _) = self.snapshots.remove(at);
            world.destroy_if_present(&self.name, &format!("{}@{name}", self.dataset))?;
        }
        if world.has_kills {
            // The daemon may have been replaced without the mount showing it.
            self.recover(world)?;
        }
        Ok(completed.is_success())
    }

    /// Reads a snapshot again and compares it.
    fn read_snapshot(&mut self, _: &World) -> Result<(), Stopped> {
        if self.snapshots.is_empty() {
            return Ok(());
        }
        let (name, tree) = self.random.of(&self.snapshots);
        self.compare_snapshot(name, tree)
    }

    fn check_last_snapshot(&self) -> Result<(), Stopped> {
        self.snapshots.last().map_or(Ok(()), |(name, tree)| self.compare_snapshot(name, tree))
    }

    fn compare_snapshot(&self, name: &str, tree: &Tree) -> Result<(), Stopped> {
        let found = read_tree(&self.at.join(".zfs/snapshot").join(name))?;
        let describe = |why| Failure(format!("{}@{name}: {why}", self.dataset));
        Ok(compare(tree, &found).map_err(describe)?)
    }

    fn roll_back(&mut self, world: &World) -> Result<(), Stopped> {
        if self.snapshots.is_empty() {
            return Ok(());
        }
        let at = self.random.below(self.snapshots.len() as u64) as usize;
        let (name, tree) = self.snapshots[at].clone();
        let full = format!("{}@{name}", self.dataset);
        self.model.may_become(&tree);
        let completed = world.run(&self.name, &["zfs", "rollback", "-r", &full])?;
        if !completed.is_success() {
            if !world.has_kills && !completed.is_excused {
                return Err(Failure(format!("{full} could not be gone back to")).into());
            }
            // The later snapshots may be destroyed, or not.
            let later: Vec<(String, Tree)> = self.snapshots.drain(at + 1..).collect();
            for (name, _) in later {
                world.destroy_if_present(&self.name, &format!("{}@{name}", self.dataset))?;
            }
            return Ok(self.recover(world)?);
        }
        self.snapshots.truncate(at + 1);
        self.model.become_tree(&tree);
        let found = read_tree(&self.at)?;
        let describe = |why| Failure(format!("after the rollback to {full}: {why}"));
        Ok(compare(&tree, &found).map_err(describe)?)
    }

    /// Waits until the file system is mounted again, and adopts its contents if the model explains them.
    fn recover(&mut self, world: &World) -> Outcome {
        let begun = Instant::now();
        loop {
            // Any command starts a daemon, which restores the mounts.
            world.run(&self.name, &["zfs", "mount"])?;
            let is_there = std::fs::read_to_string(self.at.join(MARK)).is_ok_and(|mark| mark == self.name);
            if is_there && let Ok(found) = read_tree(&self.at) {
                let describe = |why| Failure(format!("{} after a crash: {why}", self.dataset));
                return self.model.accept(&found).map_err(describe);
            }
            if begun.elapsed() > COMMAND_TIMEOUT {
                return fail(format!(
                    "{} is not mounted again after {} s",
                    self.dataset,
                    COMMAND_TIMEOUT.as_secs()
                ));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

impl World {
    /// Destroys a snapshot, which may be missing already.
    fn destroy_if_present(&self, actor: &str, snapshot: &str) -> Outcome {
        let begun = Instant::now();
        loop {
            let completed = self.run(actor, &["zfs", "destroy", snapshot])?;
            if completed.is_success()
                || completed.err.contains("does not exist")
                || completed.err.contains("could not find")
            {
                return Ok(());
            }
            if !(self.has_kills || completed.is_excused) || begun.elapsed() > COMMAND_TIMEOUT {
                return fail(format!("{snapshot} cannot be destroyed: {}", completed.err.trim()));
            }
        }
    }
}

fn overwritten(old: &FileState, bytes: &[u8], offset: u64) -> FileState {
    let mut new = old.bytes.to_vec();
    let end = offset as usize + bytes.len();
    new.resize(new.len().max(end), 0);
    new[offset as usize..end].copy_from_slice(bytes);
    old.with(new)
}

fn tree_of(path: &str, content: Content) -> Tree {
    content.into_iter().map(|file| (path.to_owned(), file)).collect()
}

fn read_file(path: &Path) -> io::Result<Content> {
    let mut file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    let mut label = vec![0; 64 << 10];
    let label = match rustix::fs::fgetxattr(&file, LABEL, label.as_mut_slice()) {
        Ok(count) => Some(label[..count].into()),
        Err(Errno::NODATA) => None,
        Err(error) => return Err(error.into()),
    };
    Ok(Some(FileState { bytes: bytes.into(), label }))
}

/// Reads all files in the directories of a writer.
fn read_tree(at: &Path) -> io::Result<Tree> {
    let mut tree = Tree::new();
    for folder in ["a", "b"] {
        for entry in std::fs::read_dir(at.join(folder))? {
            let name = format!("{folder}/{}", entry?.file_name().to_string_lossy());
            let file = read_file(&at.join(&name))?.ok_or(io::ErrorKind::NotFound)?;
            tree.insert(name, file);
        }
    }
    Ok(tree)
}
