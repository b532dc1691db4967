//! A program that writes files in a file system of its own, and knows what must be in them.
//!
//! It makes, overwrites, cuts, clones, renames and removes files, a few of them by `fsync`; it takes snapshots,
//! rolls back to them and reads them again. After a crash it looks what is there, and goes on with that.

use crate::Random;
use crate::model::{Model, Tree, compare};
use crate::world::{Done, Failure, PATIENCE, World, wrong};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// A file that tells the mounted file system from the empty folder below it.
const MARK: &str = "mark";
/// Most bytes of one call, and of a file.
const WRITE: u64 = 64 << 10;
const FILE: u64 = 512 << 10;
/// Snapshots kept.
const SNAPSHOTS: usize = 4;

/// A writer and what it knows.
pub(crate) struct Writer {
    name: String,
    pub(crate) dataset: String,
    at: PathBuf,
    random: Random,
    model: Model,
    snapshots: Vec<(String, Tree)>,
    taken: u64,
}

/// Why a step was not done.
enum Stopped {
    /// The system says no: the daemon is gone, or something is wrong.
    Io(io::Error),
    Failed(Failure),
}

impl From<io::Error> for Stopped {
    fn from(error: io::Error) -> Stopped {
        Stopped::Io(error)
    }
}

impl From<Failure> for Stopped {
    fn from(failure: Failure) -> Stopped {
        Stopped::Failed(failure)
    }
}

impl Writer {
    /// Makes its file system.
    pub(crate) fn new(world: &World, number: u64, mut random: Random) -> Done<Writer> {
        let name = format!("w{number}");
        let dataset = format!("tank/{name}");
        let size = *random.of(&["recordsize=4K", "recordsize=16K", "recordsize=128K"]);
        let compression = *random.of(&["compression=off", "compression=lz4", "compression=zstd"]);
        world.good(&name, &["zfs", "create", "-o", size, "-o", compression, &dataset])?;
        let at = world.mount().join(&name);
        for folder in ["a", "b"] {
            std::fs::create_dir(at.join(folder))?;
        }
        std::fs::write(at.join(MARK), &name)?;
        world.good(&name, &["zpool", "sync", "tank"])?;
        let (model, snapshots) = (Model::default(), Vec::new());
        Ok(Writer { name, dataset, at, random, model, snapshots, taken: 0 })
    }

    /// Works until the round is over.
    pub(crate) fn work(&mut self, world: &World) -> Done {
        while !world.is_over() {
            world.calls.fetch_add(1, Ordering::Relaxed);
            match self.step(world) {
                Ok(()) => {}
                Err(Stopped::Failed(failure)) => return Err(failure),
                Err(Stopped::Io(error)) if !world.is_killed => {
                    return wrong(format!("{}: a call failed: {error}", self.name));
                }
                Err(Stopped::Io(error)) => {
                    world.note(&format!("{}: {error}: looks what is there", self.name));
                    self.recover(world)?;
                }
            }
        }
        Ok(())
    }

    /// After the round: everything is there, also what was not made durable if nothing was killed.
    pub(crate) fn settle(&mut self, world: &World) -> Done {
        if world.is_killed {
            self.recover(world)?;
        }
        self.check(&self.at)
    }

    /// What is below a folder is what must be there.
    pub(crate) fn check(&self, at: &Path) -> Done {
        let found = read_tree(at)?;
        self.model.check(&found).map_err(|why| Failure(format!("{}: {why}", self.dataset)))
    }

    /// Every snapshot has what it had when it was taken.
    pub(crate) fn check_snapshots(&self) -> Done {
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
        match self.random.below(100) {
            0..25 => self.write_new(&path),
            25..45 => self.write_into(&path),
            45..53 => self.cut(&path),
            53..63 => self.rename(&path),
            63..70 => self.remove(&path),
            70..75 => self.copy(&path),
            75..83 => self.sync(&path),
            83..97 => self.read(&path),
            97 => self.snapshot(world),
            98 => self.look_back(world),
            _ => self.roll_back(world),
        }
    }

    fn write_new(&mut self, path: &str) -> Result<(), Stopped> {
        let count = self.random.below(WRITE + 1);
        let bytes: Arc<[u8]> = self.random.bytes(count).into();
        self.model.change(path, Some(Arc::from([])));
        let mut file = File::create(self.at.join(path))?;
        self.model.change(path, Some(Arc::clone(&bytes)));
        file.write_all(&bytes)?;
        if self.random.one_in(8) {
            file.sync_all()?;
            self.model.settle(path);
        }
        Ok(())
    }

    fn write_into(&mut self, path: &str) -> Result<(), Stopped> {
        let Some(old) = self.model.now(path) else { return Ok(()) };
        let offset = self.random.below((old.len() as u64).min(FILE - WRITE) + 1);
        let count = 1 + self.random.below(WRITE);
        let bytes = self.random.bytes(count);
        let mut new = old.to_vec();
        let end = offset as usize + bytes.len();
        new.resize(new.len().max(end), 0);
        new[offset as usize..end].copy_from_slice(&bytes);
        self.model.change(path, Some(new.into()));
        let file = OpenOptions::new().write(true).open(self.at.join(path))?;
        file.write_all_at(&bytes, offset)?;
        if self.random.one_in(8) {
            file.sync_data()?;
            self.model.settle(path);
        }
        Ok(())
    }

    fn cut(&mut self, path: &str) -> Result<(), Stopped> {
        let Some(old) = self.model.now(path) else { return Ok(()) };
        let size = self.random.below(old.len() as u64 * 5 / 4 + 2).min(FILE);
        let mut new = old.to_vec();
        new.resize(size as usize, 0);
        self.model.change(path, Some(new.into()));
        Ok(OpenOptions::new().write(true).open(self.at.join(path))?.set_len(size)?)
    }

    fn rename(&mut self, path: &str) -> Result<(), Stopped> {
        let to = self.path();
        let Some(bytes) = self.model.now(path).filter(|_| to != path) else { return Ok(()) };
        self.model.change(path, None);
        self.model.change(&to, Some(bytes));
        Ok(std::fs::rename(self.at.join(path), self.at.join(to))?)
    }

    fn remove(&mut self, path: &str) -> Result<(), Stopped> {
        if self.model.now(path).is_none() {
            return Ok(());
        }
        self.model.change(path, None);
        Ok(std::fs::remove_file(self.at.join(path))?)
    }

    /// By `copy_file_range`: blocks are shared.
    fn copy(&mut self, path: &str) -> Result<(), Stopped> {
        let to = self.path();
        let Some(bytes) = self.model.now(path).filter(|_| to != path) else { return Ok(()) };
        self.model.change(&to, Some(Arc::from([])));
        self.model.change(&to, Some(bytes));
        std::fs::copy(self.at.join(path), self.at.join(to))?;
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
        let told = |why| Failure(format!("{}: read {why}", self.dataset));
        Ok(compare(&wanted, &found).map_err(told)?)
    }

    fn snapshot(&mut self, world: &World) -> Result<(), Stopped> {
        self.taken += 1;
        let name = format!("s{}", self.taken);
        let full = format!("{}@{name}", self.dataset);
        if world.run(&self.name, &["zfs", "snapshot", &full])?.is_good() {
            if world.is_killed {
                // Another daemon may have taken it, of what the one before had on disk. Nothing was written since.
                self.recover(world)?;
            }
            self.model.settle_all();
            self.snapshots.push((name, self.model.tree()));
        } else if !world.is_killed {
            return Err(Failure(format!("{full} could not be taken")).into());
        }
        if self.snapshots.len() > SNAPSHOTS {
            let at = self.random.below(self.snapshots.len() as u64) as usize;
            let (name, _) = self.snapshots.remove(at);
            world.good_or_gone(&self.name, &format!("{}@{name}", self.dataset))?;
        }
        Ok(())
    }

    /// Reads a snapshot again.
    fn look_back(&mut self, _: &World) -> Result<(), Stopped> {
        if self.snapshots.is_empty() {
            return Ok(());
        }
        let (name, tree) = self.random.of(&self.snapshots);
        let found = read_tree(&self.at.join(".zfs/snapshot").join(name))?;
        let told = |why| Failure(format!("{}@{name}: {why}", self.dataset));
        Ok(compare(tree, &found).map_err(told)?)
    }

    fn roll_back(&mut self, world: &World) -> Result<(), Stopped> {
        if self.snapshots.is_empty() {
            return Ok(());
        }
        let at = self.random.below(self.snapshots.len() as u64) as usize;
        let (name, tree) = self.snapshots[at].clone();
        let full = format!("{}@{name}", self.dataset);
        self.model.may_be(&tree);
        if !world.run(&self.name, &["zfs", "rollback", "-r", &full])?.is_good() {
            if !world.is_killed {
                return Err(Failure(format!("{full} could not be gone back to")).into());
            }
            // Later ones may be gone, or not.
            let later: Vec<(String, Tree)> = self.snapshots.drain(at + 1..).collect();
            for (name, _) in later {
                world.good_or_gone(&self.name, &format!("{}@{name}", self.dataset))?;
            }
            return Err(io::Error::other("the daemon was killed").into());
        }
        self.snapshots.truncate(at + 1);
        self.model.become_tree(&tree);
        let found = read_tree(&self.at)?;
        let told = |why| Failure(format!("after the rollback to {full}: {why}"));
        Ok(compare(&tree, &found).map_err(told)?)
    }

    /// Waits until the file system is mounted again, and takes what is there if it can be explained.
    fn recover(&mut self, world: &World) -> Done {
        let begun = Instant::now();
        loop {
            // Any command starts a daemon, which mounts what was mounted.
            world.run(&self.name, &["zfs", "mount"])?;
            let is_there = std::fs::read_to_string(self.at.join(MARK)).is_ok_and(|mark| mark == self.name);
            if is_there && let Ok(found) = read_tree(&self.at) {
                let told = |why| Failure(format!("{} after a crash: {why}", self.dataset));
                return self.model.accept(&found).map_err(told);
            }
            if begun.elapsed() > PATIENCE {
                return wrong(format!(
                    "{} is not mounted again after {} s",
                    self.dataset,
                    PATIENCE.as_secs()
                ));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

impl World {
    /// Destroys a snapshot; that there is none is as well.
    fn good_or_gone(&self, actor: &str, snapshot: &str) -> Done {
        let begun = Instant::now();
        loop {
            let ran = self.run(actor, &["zfs", "destroy", snapshot])?;
            if ran.is_good() || ran.err.contains("does not exist") || ran.err.contains("could not find") {
                return Ok(());
            }
            if !self.is_killed || begun.elapsed() > PATIENCE {
                return wrong(format!("{snapshot} cannot be destroyed: {}", ran.err.trim()));
            }
        }
    }
}

fn tree_of(path: &str, content: Option<Arc<[u8]>>) -> Tree {
    content.into_iter().map(|bytes| (path.to_owned(), bytes)).collect()
}

fn read_file(path: &Path) -> io::Result<Option<Arc<[u8]>>> {
    let mut file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(Some(bytes.into()))
}

/// All files in the folders of a writer.
fn read_tree(at: &Path) -> io::Result<Tree> {
    let mut tree = Tree::new();
    for folder in ["a", "b"] {
        for entry in std::fs::read_dir(at.join(folder))? {
            let name = format!("{folder}/{}", entry?.file_name().to_string_lossy());
            let bytes = read_file(&at.join(&name))?.ok_or(io::ErrorKind::NotFound)?;
            tree.insert(name, bytes);
        }
    }
    Ok(tree)
}
