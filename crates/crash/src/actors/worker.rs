//! A worker thread: random operations on the files of its work directories, each noted in the model.

use super::Failure;
use super::history::{Promise, What, file_state};
use super::scheduler;
use super::snapshots::{destroy_snapshot, snapshots, take_snapshot};
use super::world::{WORK_DIRS, World, sync_dataset};
use crate::model::{Entry, FileId, FileState, Names};
use crate::run::RECORD;
use cenote::error::chain;
use format::{ObjectId, Txg};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vdev::env::Random;
use zpl::{
    Allocate, FileKind, FileRange, HeadFs, NewAttrs, NewFile, PoolClones, RenameHow, WriteHow, ZplError,
};

/// Work directories with fewer names get new files first.
const NAMES_MIN: usize = 4;
/// Most names in a work directory.
const NAMES_MAX: usize = 9;
/// Largest size of a file in bytes.
const FILE_MAX: u64 = 90_000;
/// Most clones that a thread remembers.
const CLONES: usize = 3;
/// Least length of a large write, in bytes.
const LARGE: u64 = 8 << 10;

/// A thread that works on files.
struct Worker<'w> {
    world: &'w World,
    seat: usize,
    work_dirs: Vec<usize>,
    random: Random,
    objects: HashMap<(usize, FileId), ObjectId>,
    recent: Vec<(usize, FileId)>,
    /// The last clones, the newest last.
    clones: Vec<FreshClone>,
    /// Files with a large write of the present txg that no fsync has made durable, and whether they were
    /// changed since.
    large: Vec<(usize, FileId, Txg, bool)>,
    counter: u64,
}

/// A clone that was made recently.
#[derive(Clone)]
struct FreshClone {
    source: Named,
    target: Named,
    txg: Txg,
}

pub(super) fn work(world: &World, seat: usize, seed: u64, steps: u64) -> Result<(), Failure> {
    let work_dirs = (0..WORK_DIRS.len()).filter(|i| WORK_DIRS[*i].2 == seat).collect();
    let random = Random::from_seed(seed.wrapping_mul(0x1_0001).wrapping_add(seat as u64));
    let mut worker = Worker {
        world,
        seat,
        work_dirs,
        random,
        objects: HashMap::new(),
        recent: Vec::new(),
        clones: Vec::new(),
        large: Vec::new(),
        counter: 0,
    };
    for _ in 0..steps {
        scheduler::pause();
        worker.step()?;
    }
    Ok(())
}

/// A file by its name.
#[derive(Clone)]
struct Named {
    work_dir: usize,
    name: String,
    id: FileId,
}

impl Worker<'_> {
    fn fs(&self, work_dir: usize) -> &HeadFs {
        &self.world.fs[WORK_DIRS[work_dir].0]
    }

    fn object(&self, file: &Named) -> ObjectId {
        self.objects[&(file.work_dir, file.id)]
    }

    fn names(&self, work_dir: usize) -> Names {
        self.world.history().work_dirs[work_dir].model.now().clone()
    }

    fn state(&self, file: &Named) -> FileState {
        self.world.history().work_dirs[file.work_dir].model.file(file.id).clone()
    }

    fn pick_work_dir(&mut self) -> usize {
        self.work_dirs[self.random.below(self.work_dirs.len() as u64) as usize]
    }

    /// Picks a file, often one that was used recently.
    fn pick(&mut self) -> Option<Named> {
        let work_dir = self.pick_work_dir();
        let all: Vec<Named> = self
            .names(work_dir)
            .into_iter()
            .map(|(name, entry)| Named { work_dir, name, id: entry.id() })
            .collect();
        let lately: Vec<&Named> =
            all.iter().filter(|file| self.recent.contains(&(file.work_dir, file.id))).collect();
        if !lately.is_empty() && self.random.below(5) < 3 {
            return Some(lately[self.random.below(lately.len() as u64) as usize].clone());
        }
        all.get(self.random.below(all.len() as u64) as usize).cloned()
    }

    fn used(&mut self, file: &Named) {
        self.recent.push((file.work_dir, file.id));
        if self.recent.len() > 3 {
            self.recent.remove(0);
        }
    }

    fn tell(&self, text: &str) {
        self.world.tell(format!("thread {}: {text}", self.seat));
    }

    /// Makes one change of a work directory: calls `act`, then changes the model with `change`. Returns the
    /// result of `act`; `None`: the change was not possible.
    fn change<T>(
        &mut self,
        work_dir: usize,
        is_rename: bool,
        told: &str,
        act: impl FnOnce(&HeadFs) -> Result<Option<T>, Failure>,
        change: impl FnOnce(&mut crate::model::Model, &T),
    ) -> Result<Option<T>, Failure> {
        let step = {
            let mut history = self.world.history();
            let done = history.done_in(WORK_DIRS[work_dir].0);
            let step = history.work_dirs[work_dir].model.begin_step();
            if is_rename {
                history.work_dirs[work_dir].renames.push((step, done));
            }
            self.world.note(&mut history, What::Begun(work_dir, step));
            step
        };
        self.tell(&format!("{}, step {step}: {told}", WORK_DIRS[work_dir].1));
        let done = act(self.fs(work_dir)).map_err(|error| -> Failure {
            format!("{}, step {step}: {told}: {}", WORK_DIRS[work_dir].1, chain(&*error)).into()
        })?;
        let mut history = self.world.history();
        if let Some(done) = &done {
            change(&mut history.work_dirs[work_dir].model, done);
        }
        history.work_dirs[work_dir].done = step;
        Ok(done)
    }

    fn step(&mut self) -> Result<(), Failure> {
        let copied = *self.world.copied();
        let is_copied = copied.is_some_and(|i| snapshots(self.world).iter().any(|(index, ..)| *index == i));
        if is_copied && self.random.one_in(3) {
            return destroy_snapshot(self.world, &mut self.random);
        }
        // A change now affects blocks that only the snapshot holds.
        if is_copied && self.random.one_in(2) {
            return if self.random.one_in(2) { self.write() } else { self.truncate() };
        }
        let work_dir = self.pick_work_dir();
        let names = self.names(work_dir).len();
        let is_full = names >= NAMES_MAX;
        if names < NAMES_MIN && self.random.one_in(2) {
            self.create(work_dir)?;
            return self.write();
        }
        // A clone that is committed now may be on disk before an fsync asks for it: then the log holds
        // records of both kinds. Also, blocks that already have pointers belong to no file after a cut.
        if self.world.is_syncing.load(Ordering::Relaxed) && self.random.one_in(2) {
            return match self.random.below(5) {
                0 | 1 if !is_full => self.share(work_dir),
                2 => self.fsync_clone(),
                _ => self.fsync(),
            };
        }
        match self.random.below(100) {
            0..=9 if !is_full => self.create(work_dir).map(drop),
            10..=31 => self.write(),
            32..=40 => self.truncate(),
            41..=45 => self.punch(),
            46..=54 => self.rename(),
            55..=57 if !is_full => self.link(),
            58..=63 => self.remove(),
            64..=74 if !is_full => self.share(work_dir),
            75..=83 => self.fsync(),
            84..=87 => self.fsync_clone(),
            88..=89 => self.sync_dataset(WORK_DIRS[work_dir].0),
            90..=91 => self.chmod(),
            92..=94 => self.look(),
            95..=96 => {
                let number = self.counter();
                let name = format!("t{}s{number}", self.seat);
                take_snapshot(self.world, WORK_DIRS[work_dir].0, &name)
            }
            97..=98 => destroy_snapshot(self.world, &mut self.random),
            _ => self.drain(work_dir),
        }
    }

    /// Notes that the content of a file is about to change.
    fn changed(&mut self, file: &Named) {
        let of_file =
            self.large.iter_mut().filter(|(work_dir, id, ..)| (*work_dir, *id) == (file.work_dir, file.id));
        of_file.for_each(|(.., is_changed)| *is_changed = true);
    }

    fn counter(&mut self) -> u64 {
        self.counter += 1;
        self.counter
    }

    fn noise(&mut self, len: u64) -> Vec<u8> {
        let mut bytes = vec![0; len as usize];
        match self.random.below(4) {
            // Zeros identify no writer; blocks of one byte value can be compressed.
            0 => bytes.fill(self.random.next() as u8 | 1),
            _ => self.random.fill(&mut bytes),
        }
        bytes.iter_mut().for_each(|byte| *byte = (*byte).max(1));
        bytes
    }

    fn create(&mut self, work_dir: usize) -> Result<Option<Named>, Failure> {
        let name = format!("n{}", self.counter());
        let dir = self.world.dirs[work_dir];
        let made = self.change(
            work_dir,
            false,
            &format!("create {name}"),
            |fs| {
                let made = fs.fs.create(dir, name.as_bytes(), &NewFile::of(FileKind::Regular, 0o644))?;
                Ok(Some((made.id, name.clone())))
            },
            |model, (_, name)| {
                let id = model.add_file(file_state(Vec::new()));
                model.change_names(|names| _ = names.insert(name.clone(), Entry::File(id)));
            },
        )?;
        let Some((object, name)) = made else { return Ok(None) };
        let id = self.names(work_dir)[&name].id();
        self.objects.insert((work_dir, id), object);
        let file = Named { work_dir, name, id };
        self.used(&file);
        Ok(Some(file))
    }

    fn write(&mut self) -> Result<(), Failure> {
        let Some(file) = self.pick() else { return Ok(()) };
        let size = self.state(&file).bytes.len() as u64;
        let offset = match self.random.below(4) {
            0 => size,
            1 => 0,
            2 => self.random.below(size + 1) / RECORD * RECORD,
            _ => self.random.below(size.max(3000)),
        };
        let most = if self.random.one_in(2) { 40_000 } else { 3_000 };
        let len = (1 + self.random.below(most)).min(FILE_MAX.saturating_sub(offset));
        if len == 0 {
            return Ok(());
        }
        let (data, object) = (self.noise(len), self.object(&file));
        let id = file.id;
        self.used(&file);
        self.changed(&file);
        if len > LARGE {
            self.large.push((file.work_dir, id, self.world.pool.txgs().open_txg(), false));
        }
        self.change(
            file.work_dir,
            false,
            &format!("write {} (file {id}) {offset}+{len}", file.name),
            |fs| {
                fs.fs.write(object, offset, &data, &WriteHow::default())?;
                Ok(Some(()))
            },
            |model, ()| {
                model.change_file(id, |state| {
                    let end = offset as usize + data.len();
                    if state.bytes.len() < end {
                        state.bytes.resize(end, 0);
                    }
                    state.bytes[offset as usize..end].copy_from_slice(&data);
                });
            },
        )?;
        if len > LARGE && self.random.one_in(4) {
            // As programs replace important files: the write must be durable in order before the rename.
            scheduler::pause();
            self.rename_file(&file)?;
        }
        Ok(())
    }

    fn truncate(&mut self) -> Result<(), Failure> {
        let Some(file) = self.pick() else { return Ok(()) };
        let size = match self.random.below(3) {
            0 => 0,
            1 => self.random.below(self.state(&file).bytes.len() as u64 + 1),
            _ => self.random.below(FILE_MAX),
        };
        self.changed(&file);
        let (object, id) = (self.object(&file), file.id);
        self.change(
            file.work_dir,
            false,
            &format!("truncate {} (file {id}) to {size}", file.name),
            |fs| {
                fs.fs.truncate(object, size, false)?;
                Ok(Some(()))
            },
            |model, ()| model.change_file(id, |state| state.bytes.resize(size as usize, 0)),
        )
        .map(drop)
    }

    fn punch(&mut self) -> Result<(), Failure> {
        let Some(file) = self.pick() else { return Ok(()) };
        let size = self.state(&file).bytes.len() as u64;
        if size == 0 {
            return Ok(());
        }
        let offset = self.random.below(size);
        let len = 1 + self.random.below(size - offset);
        let (object, id) = (self.object(&file), file.id);
        self.change(
            file.work_dir,
            false,
            &format!("punch {} (file {id}) {offset}+{len}", file.name),
            |fs| {
                fs.fs.fallocate(object, offset, len, Allocate::Punch)?;
                Ok(Some(()))
            },
            |model, ()| {
                let range = offset as usize..(offset + len) as usize;
                model.change_file(id, |state| state.bytes[range].fill(0));
            },
        )
        .map(drop)
    }

    /// Renames a file to a new name or to that of another file of the same work directory.
    fn rename(&mut self) -> Result<(), Failure> {
        match self.pick() {
            Some(file) => self.rename_file(&file),
            None => Ok(()),
        }
    }

    fn rename_file(&mut self, file: &Named) -> Result<(), Failure> {
        let others: Vec<String> = {
            let names = self.names(file.work_dir);
            names.into_iter().filter(|(_, entry)| entry.id() != file.id).map(|(name, _)| name).collect()
        };
        let to = match others.get(self.random.below(others.len() as u64) as usize) {
            Some(other) if self.random.one_in(3) => other.clone(),
            _ => format!("n{}", self.counter()),
        };
        let (dir, from) = (self.world.dirs[file.work_dir], file.name.clone());
        self.change(
            file.work_dir,
            true,
            &format!("rename {from} to {to}"),
            |fs| {
                fs.fs.rename(dir, from.as_bytes(), dir, to.as_bytes(), RenameHow::Replace)?;
                Ok(Some(()))
            },
            |model, ()| {
                model.change_names(|names| {
                    if let Some(entry) = names.remove(&from) {
                        names.insert(to.clone(), entry);
                    }
                });
            },
        )
        .map(drop)
    }

    fn link(&mut self) -> Result<(), Failure> {
        let Some(file) = self.pick() else { return Ok(()) };
        let name = format!("n{}", self.counter());
        let (object, dir, id) = (self.object(&file), self.world.dirs[file.work_dir], file.id);
        self.change(
            file.work_dir,
            false,
            &format!("link {} as {name}", file.name),
            |fs| {
                fs.fs.link(object, dir, name.as_bytes())?;
                Ok(Some(()))
            },
            |model, ()| model.change_names(|names| _ = names.insert(name.clone(), Entry::File(id))),
        )
        .map(drop)
    }

    fn remove(&mut self) -> Result<(), Failure> {
        match self.pick() {
            Some(file) => self.remove_file(&file),
            None => Ok(()),
        }
    }

    fn remove_file(&mut self, file: &Named) -> Result<(), Failure> {
        let (dir, name) = (self.world.dirs[file.work_dir], file.name.clone());
        self.change(
            file.work_dir,
            false,
            &format!("remove {name}"),
            |fs| {
                fs.fs.unlink(dir, name.as_bytes())?;
                Ok(Some(()))
            },
            |model, ()| model.change_names(|names| _ = names.remove(&name)),
        )
        .map(drop)
    }

    /// Makes a file that shares the blocks of another, perhaps of another dataset. Sometimes removes both at
    /// once.
    fn share(&mut self, work_dir: usize) -> Result<(), Failure> {
        let Some(source) = self.pick() else { return Ok(()) };
        let Some(target) = self.create(work_dir)? else { return Ok(()) };
        let bytes = self.state(&source).bytes;
        let (from, to) = (self.object(&source), self.object(&target));
        let (len, id) = (bytes.len() as u64, target.id);
        let source_fs = Arc::clone(&self.world.fs[WORK_DIRS[source.work_dir].0]);
        let told = format!("{} (file {id}) becomes a clone of {}", target.name, source.name);
        let shared = self.change(
            work_dir,
            false,
            &told,
            |fs| {
                let table = PoolClones::new(fs.head().clones());
                let (from, to) = (FileRange { id: from, offset: 0 }, FileRange { id: to, offset: 0 });
                match fs.fs.clone_range(&source_fs.fs, from, to, len, &table) {
                    Ok(_) => Ok(Some(())),
                    Err(ZplError::CannotClone { .. } | ZplError::NotYetWritten { .. }) => Ok(None),
                    Err(error) => Err(error.into()),
                }
            },
            |model, ()| model.change_file(id, |state| state.bytes.clone_from(&bytes)),
        )?;
        if self.world.is_syncing.load(Ordering::Relaxed) {
            self.world.history().coverage.cloned_while_synced[usize::from(shared.is_none())] += 1;
        }
        if shared.is_none() {
            return Ok(());
        }
        let txg = self.world.pool.txgs().open_txg();
        self.clones.push(FreshClone { source: source.clone(), target: target.clone(), txg });
        if self.clones.len() > CLONES {
            self.clones.remove(0);
        }
        if self.random.one_in(3) {
            scheduler::pause();
            self.rename()?;
            for file in [target, source] {
                if self.names(file.work_dir).contains_key(&file.name) {
                    self.remove_file(&file)?;
                }
            }
            // Once this txg is on disk, the blocks are free while the records still say that they were
            // shared.
            scheduler::wake_idle();
        } else if self.world.is_syncing.load(Ordering::Relaxed) || self.random.one_in(2) {
            scheduler::pause();
            self.fsync_file(&target)?;
        }
        Ok(())
    }

    fn chmod(&mut self) -> Result<(), Failure> {
        let Some(file) = self.pick() else { return Ok(()) };
        let mode = self.random.below(0o1000) as u32;
        let (object, id) = (self.object(&file), file.id);
        self.change(
            file.work_dir,
            false,
            &format!("chmod {} {mode:o}", file.name),
            |fs| {
                fs.fs.set_attrs(object, &NewAttrs { mode: Some(mode), ..NewAttrs::default() })?;
                Ok(Some(()))
            },
            |model, ()| model.change_file(id, |state| state.mode = mode),
        )
        .map(drop)
    }

    fn fsync(&mut self) -> Result<(), Failure> {
        match self.pick() {
            Some(file) => self.fsync_file(&file),
            None => Ok(()),
        }
    }

    /// Makes a clone durable, whatever the state of its txg; if the clone was removed, another file of its
    /// dataset, with which its record may be written. Sometimes frees its blocks right after.
    fn fsync_clone(&mut self) -> Result<(), Failure> {
        let Some(clone) = self.clones.get(self.random.below(self.clones.len() as u64) as usize).cloned()
        else {
            return self.fsync();
        };
        let is_there = |worker: &Self, file: &Named| {
            worker.names(file.work_dir).get(&file.name).is_some_and(|entry| entry.id() == file.id)
        };
        if is_there(self, &clone.target) {
            self.fsync_file(&clone.target)?;
        } else {
            self.fsync()?;
        }
        if self.random.one_in(3) {
            scheduler::pause();
            for file in [clone.target, clone.source] {
                if is_there(self, &file) {
                    self.remove_file(&file)?;
                }
            }
        }
        Ok(())
    }

    /// Counts in the coverage what an fsync of this file meets.
    fn cover(&mut self, file: &Named) {
        let txgs = self.world.pool.txgs();
        let (open, synced) = (txgs.open_txg(), txgs.synced_txg());
        let is_here = |work_dir: usize| WORK_DIRS[work_dir].0 == WORK_DIRS[file.work_dir].0;
        let mut history = self.world.history();
        let beside = &mut history.coverage.beside_clones;
        for clone in self.clones.iter().filter(|clone| is_here(clone.target.work_dir)) {
            match clone.txg {
                txg if txg >= open => beside[0] += 1,
                txg if txg > synced => beside[1] += 1,
                txg if txg == synced => beside[2] += 1,
                _ => {}
            }
        }
        self.large.retain(|(.., txg, _)| *txg > synced);
        let cut = self.large.iter().filter(|(work_dir, id, _, is_changed)| {
            is_here(*work_dir) && *is_changed && (*work_dir, *id) != (file.work_dir, file.id)
        });
        history.coverage.beside_cuts += cut.count() as u64;
        drop(history);
        self.large.retain(|(work_dir, id, ..)| (*work_dir, *id) != (file.work_dir, file.id));
    }

    fn fsync_file(&mut self, file: &Named) -> Result<(), Failure> {
        self.cover(file);
        let promise = {
            let history = self.world.history();
            let names = history.done_in(WORK_DIRS[file.work_dir].0);
            let file = Some((file.work_dir, file.id, history.work_dirs[file.work_dir].done));
            Promise { files: vec![0; names.len()], names, file }
        };
        self.tell(&format!("fsync {}/{} (file {})", WORK_DIRS[file.work_dir].1, file.name, file.id));
        let object = self.object(file);
        self.world.promise(promise, || Ok(self.fs(file.work_dir).fsync(object)?))?;
        self.tell(&format!("fsync {}/{} is done", WORK_DIRS[file.work_dir].1, file.name));
        Ok(())
    }

    fn sync_dataset(&mut self, dataset: usize) -> Result<(), Failure> {
        sync_dataset(self.world, dataset)
    }

    /// Checks that a file reads as it was written.
    fn look(&mut self) -> Result<(), Failure> {
        let Some(file) = self.pick() else { return Ok(()) };
        let known = self.state(&file);
        let node = self.fs(file.work_dir).fs.node(self.object(&file))?;
        let mut bytes = vec![0; node.attrs().size as usize];
        node.read_at(0, &mut bytes)?;
        if bytes != known.bytes {
            return Err(format!(
                "{}/{} reads other than it was written",
                WORK_DIRS[file.work_dir].1, file.name
            )
            .into());
        }
        Ok(())
    }

    fn drain(&mut self, work_dir: usize) -> Result<(), Failure> {
        self.fs(work_dir).fs.drain(4)?;
        Ok(())
    }
}
