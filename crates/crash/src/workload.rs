//! A seeded workload on a pool of simulated disks, with a model of the expected contents.
//!
//! One thread makes all changes, and a txg is written when the workload says so or a call waits for one, so a
//! run is reproduced by its seed.

use crate::check;
use crate::disks::{Disks, Layout};
use crate::model::{Entry, FileState, Model};
use crate::run::{Ack, Failure, POOL, Run, create, env, open_fs};
use dsl::destroy::destroy_snapshots;
use dsl::snapshot::snapshot;
use format::ObjectId;
use format::units::{LABEL_END, LABEL_START};
use pool::Leave;
use pool::LivePool;
use std::collections::BTreeMap;
use std::sync::Arc;
use vdev::device::sim::{Fate, Op, OpKind};
use vdev::env::{Env, Random};
use zpl::FileKind;
use zpl::{Allocate, HeadFs, NewAttrs, NewFile, RenameHow, WriteHow, XattrHow};

/// Largest size of a file in bytes.
const FILE_MAX: u64 = 200_000;
/// Largest number of names.
const NAMES_MAX: usize = 40;

/// A workload in progress.
pub(crate) struct Work {
    layout: Layout,
    disks: Disks,
    pool: Arc<LivePool>,
    fs: Arc<HeadFs>,
    model: Model,
    /// Object ids of the model's files.
    objects: BTreeMap<u64, ObjectId>,
    random: Random,
    acks: Vec<Ack>,
    counter: u64,
    base: Vec<(usize, Op)>,
}

/// Makes a pool and runs `steps` steps of the workload on it.
///
/// # Errors
/// An operation fails, which on disks without faults is a defect.
pub(crate) fn run(layout: Layout, seed: u64, steps: u64) -> Result<Run, Failure> {
    let mut work = Work::new(layout, seed)?;
    for _ in 0..steps {
        work.advance()?;
    }
    Ok(work.into_run().0)
}

impl Work {
    /// Makes a pool on new disks.
    ///
    /// # Errors
    /// The pool cannot be created.
    pub(crate) fn new(layout: Layout, seed: u64) -> Result<Work, Failure> {
        Work::new_in(layout, seed, env(seed), true)
    }

    /// [`Work::new`] with this many disks that the pool does not use.
    ///
    /// # Errors
    /// The pool cannot be created.
    pub(crate) fn new_beside(layout: Layout, seed: u64, free: usize) -> Result<Work, Failure> {
        Work::on(Disks::new(layout.disks() + free, seed), layout, seed, env(seed), true)
    }

    /// [`Work::new`] with another environment. `is_recorded`: disk operations are recorded.
    ///
    /// # Errors
    /// The pool cannot be created.
    pub(crate) fn new_in(layout: Layout, seed: u64, env: Env, is_recorded: bool) -> Result<Work, Failure> {
        Work::on(Disks::new(layout.disks(), seed), layout, seed, env, is_recorded)
    }

    fn on(disks: Disks, layout: Layout, seed: u64, env: Env, is_recorded: bool) -> Result<Work, Failure> {
        if is_recorded {
            disks.record();
        }
        let pool = create(&disks, layout, env)?;
        let fs = open_fs(&pool, seed)?;
        pool.sync()?;
        let base = disks.take_record();
        let mut work = Work {
            layout,
            base,
            disks,
            pool,
            fs,
            model: Model::new(),
            objects: BTreeMap::new(),
            random: Random::from_seed(seed),
            acks: Vec::new(),
            counter: 0,
        };
        let root = work.model.add_file(FileState { mode: 0o755, ..FileState::default() });
        work.objects.insert(root, work.fs.fs.root());
        work.ack(true);
        Ok(work)
    }

    /// The simulated disks of the pool.
    pub(crate) fn disks(&self) -> &Disks {
        &self.disks
    }

    /// The pool that the workload uses.
    pub(crate) fn pool(&self) -> &Arc<LivePool> {
        &self.pool
    }

    /// The operations so far, and the disks; the pool is left open.
    pub(crate) fn end(self) -> (Run, Disks) {
        self.into_run()
    }

    /// Runs the next step.
    ///
    /// # Errors
    /// An operation fails.
    pub(crate) fn advance(&mut self) -> Result<(), Failure> {
        self.model.begin_step();
        self.ack(false);
        self.step()
    }

    /// Checks through the open pool that all data reads as it was written.
    ///
    /// # Errors
    /// [`Failure`]: the first difference.
    pub(crate) fn look(&self) -> Result<(), Failure> {
        let run = Run {
            layout: self.layout,
            base: Vec::new(),
            ops: Vec::new(),
            acks: Vec::new(),
            model: self.model.clone(),
        };
        let now = self.model.step();
        check::check_head(&run, self.fs.fs.reader(), now, now)
    }

    /// Flips bits in data on a disk, except in labels, which have copies of their own.
    pub(crate) fn rot(&self, disk: usize, random: &mut Random) {
        self.rot_bytes(disk, random, 512);
    }

    /// [`Work::rot`] with this many bytes.
    pub(crate) fn rot_bytes(&self, disk: usize, random: &mut Random, len: u64) {
        let ops = self.disks.disks()[disk].take_record();
        let written: Vec<&Op> =
            ops.iter().filter(|op| op.kind == OpKind::Write && op.at.0 >= LABEL_START && op.ok).collect();
        let index = random.below(written.len() as u64) as usize;
        if let Some(op) = written.get(index).filter(|op| op.at.0 + op.len <= self.disks.size() - LABEL_END) {
            self.disks.disks()[disk].flip(op.at, op.len.min(len), 1 << random.below(8));
        }
    }

    /// Exports the pool.
    ///
    /// # Errors
    /// The pool cannot be exported.
    pub(crate) fn export(self) -> Result<(Run, Disks), Failure> {
        let pool = Arc::clone(&self.pool);
        let done = self.into_run();
        pool.export(Leave::Exported)?;
        Ok(done)
    }

    /// Makes all changes durable, then cuts the power.
    ///
    /// # Errors
    /// A txg cannot be written.
    pub(crate) fn lose_power(self, fate: Fate, seed: u64) -> Result<(Run, Disks), Failure> {
        self.pool.sync()?;
        let (run, disks) = self.into_run();
        let after = disks.after_cut(fate, seed);
        Ok((run, after))
    }

    fn into_run(self) -> (Run, Disks) {
        let ops = self.disks.take_record();
        let run = Run { layout: self.layout, base: self.base, ops, acks: self.acks, model: self.model };
        (run, self.disks)
    }

    fn ack(&mut self, is_durable: bool) {
        let operations = self.disks.operations();
        self.acks.push(Ack { operations, step: self.model.step(), is_durable });
    }

    fn pick(&mut self, wanted: impl Fn(Entry) -> bool) -> Option<(String, Entry)> {
        let all: Vec<(String, Entry)> =
            self.model.now().iter().filter(|(_, e)| wanted(**e)).map(|(p, e)| (p.clone(), *e)).collect();
        let index = self.random.below(all.len() as u64) as usize;
        all.into_iter().nth(index)
    }

    fn object(&self, entry: Entry) -> ObjectId {
        self.objects[&entry.id()]
    }

    /// Picks a directory, which may be the root.
    fn pick_dir(&mut self) -> (String, ObjectId) {
        match self.pick(|entry| matches!(entry, Entry::Dir(_))) {
            Some((path, entry)) if self.random.below(3) > 0 => {
                let object = self.object(entry);
                (path, object)
            }
            _ => (String::new(), self.fs.fs.root()),
        }
    }

    fn new_name(&mut self) -> String {
        self.counter += 1;
        // Some names are long, so that directories outgrow their small form.
        match self.random.below(8) {
            0 => format!("{:060}", self.counter),
            _ => format!("n{}", self.counter),
        }
    }

    fn noise(&mut self, len: u64) -> Vec<u8> {
        let mut bytes = vec![0; len as usize];
        match self.random.below(4) {
            0 => bytes.fill(self.random.next() as u8),
            _ => self.random.fill(&mut bytes),
        }
        bytes
    }

    fn step(&mut self) -> Result<(), Failure> {
        let is_full = self.model.now().len() >= NAMES_MAX;
        match self.random.below(100) {
            0..=13 if !is_full => self.create_file(),
            14..=18 if !is_full => self.create_dir(),
            19..=21 if !is_full => self.create_symlink(),
            22..=25 if !is_full => self.link(),
            26..=50 => self.write(),
            51..=55 => self.truncate(),
            56..=58 => self.punch(),
            59..=64 => self.rename(),
            65..=72 => self.remove(),
            73..=76 => self.chmod(),
            77..=79 => self.set_xattr(),
            80..=90 => self.fsync(),
            91..=95 => self.sync(),
            96..=97 => self.snapshot(),
            98 => self.destroy_snapshot(),
            _ => self.drain(),
        }
    }

    fn create_file(&mut self) -> Result<(), Failure> {
        let (dir, object) = self.pick_dir();
        let name = self.new_name();
        let made = self.fs.fs.create(object, name.as_bytes(), &NewFile::of(FileKind::Regular, 0o644))?;
        let id = self.model.add_file(FileState { mode: 0o644, ..FileState::default() });
        self.objects.insert(id, made.id);
        self.model.change_names(|names| {
            names.insert(format!("{dir}/{name}"), Entry::File(id));
        });
        Ok(())
    }

    fn create_dir(&mut self) -> Result<(), Failure> {
        let (dir, object) = self.pick_dir();
        let name = self.new_name();
        let made = self.fs.fs.create(object, name.as_bytes(), &NewFile::of(FileKind::Directory, 0o755))?;
        let id = self.model.add_file(FileState { mode: 0o755, ..FileState::default() });
        self.objects.insert(id, made.id);
        self.model.change_names(|names| {
            names.insert(format!("{dir}/{name}"), Entry::Dir(id));
        });
        Ok(())
    }

    fn create_symlink(&mut self) -> Result<(), Failure> {
        let (dir, object) = self.pick_dir();
        let name = self.new_name();
        let len = 1 + self.random.below(300);
        let target: Vec<u8> = (0..len).map(|i| b'a' + (i % 26) as u8).collect();
        let new = NewFile { target: &target, ..NewFile::of(FileKind::Symlink, 0o777) };
        let made = self.fs.fs.create(object, name.as_bytes(), &new)?;
        let id = self.model.add_file(FileState { mode: 0o777, bytes: target, ..FileState::default() });
        self.objects.insert(id, made.id);
        self.model.change_names(|names| {
            names.insert(format!("{dir}/{name}"), Entry::Symlink(id));
        });
        Ok(())
    }

    fn link(&mut self) -> Result<(), Failure> {
        let Some((_, entry)) = self.pick(|entry| matches!(entry, Entry::File(_))) else { return Ok(()) };
        let (dir, object) = self.pick_dir();
        let name = self.new_name();
        self.fs.fs.link(self.object(entry), object, name.as_bytes())?;
        self.model.change_names(|names| {
            names.insert(format!("{dir}/{name}"), entry);
        });
        Ok(())
    }

    fn write(&mut self) -> Result<(), Failure> {
        let Some((_, entry)) = self.pick(|entry| matches!(entry, Entry::File(_))) else { return Ok(()) };
        let offset = match self.random.below(3) {
            0 => self.model.file(entry.id()).bytes.len() as u64,
            _ => self.random.below(FILE_MAX),
        };
        let most = if self.random.one_in(6) { 60_000 } else { 3_000 };
        let offset = offset.min(FILE_MAX);
        let len = 1 + self.random.below(most);
        let data = self.noise(len);
        self.fs.fs.write(self.object(entry), offset, &data, &WriteHow::default())?;
        self.model.change_file(entry.id(), |file| {
            let end = offset as usize + data.len();
            if file.bytes.len() < end {
                file.bytes.resize(end, 0);
            }
            file.bytes[offset as usize..end].copy_from_slice(&data);
        });
        Ok(())
    }

    fn truncate(&mut self) -> Result<(), Failure> {
        let Some((_, entry)) = self.pick(|entry| matches!(entry, Entry::File(_))) else { return Ok(()) };
        let size = self.random.below(FILE_MAX);
        self.fs.fs.truncate(self.object(entry), size, false)?;
        self.model.change_file(entry.id(), |file| file.bytes.resize(size as usize, 0));
        Ok(())
    }

    fn punch(&mut self) -> Result<(), Failure> {
        let Some((_, entry)) = self.pick(|entry| matches!(entry, Entry::File(_))) else { return Ok(()) };
        let size = self.model.file(entry.id()).bytes.len() as u64;
        if size == 0 {
            return Ok(());
        }
        let offset = self.random.below(size);
        let len = 1 + self.random.below(size - offset);
        self.fs.fs.fallocate(self.object(entry), offset, len, Allocate::Punch)?;
        let range = offset as usize..(offset + len) as usize;
        self.model.change_file(entry.id(), |file| file.bytes[range].fill(0));
        Ok(())
    }

    fn parent_of(&self, path: &str) -> (ObjectId, String) {
        let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
        let object = match self.model.now().get(dir) {
            Some(entry) => self.object(*entry),
            None => self.fs.fs.root(),
        };
        (object, name.to_owned())
    }

    fn rename(&mut self) -> Result<(), Failure> {
        let Some((from, entry)) = self.pick(|entry| !matches!(entry, Entry::Dir(_))) else { return Ok(()) };
        let target = self.pick(|entry| !matches!(entry, Entry::Dir(_)));
        let replaces = self.random.one_in(2);
        let to = match target {
            Some((to, other)) if replaces && other.id() != entry.id() => to,
            _ => {
                let (dir, _) = self.pick_dir();
                format!("{dir}/{}", self.new_name())
            }
        };
        let ((from_dir, from_name), (to_dir, to_name)) = (self.parent_of(&from), self.parent_of(&to));
        let how = RenameHow::Replace;
        self.fs.fs.rename(from_dir, from_name.as_bytes(), to_dir, to_name.as_bytes(), how)?;
        self.model.change_names(|names| {
            names.remove(&from);
            names.insert(to, entry);
        });
        Ok(())
    }

    fn remove(&mut self) -> Result<(), Failure> {
        let Some((path, entry)) = self.pick(|_| true) else { return Ok(()) };
        let prefix = format!("{path}/");
        let is_parent = self.model.now().keys().any(|other| other.starts_with(&prefix));
        let (dir, name) = self.parent_of(&path);
        match entry {
            Entry::Dir(_) if is_parent => return Ok(()),
            Entry::Dir(_) => self.fs.fs.rmdir(dir, name.as_bytes())?,
            _ => self.fs.fs.unlink(dir, name.as_bytes())?,
        }
        self.model.change_names(|names| {
            names.remove(&path);
        });
        Ok(())
    }

    fn chmod(&mut self) -> Result<(), Failure> {
        let Some((_, entry)) = self.pick(|entry| !matches!(entry, Entry::Symlink(_))) else { return Ok(()) };
        let mode = self.random.below(0o1000) as u32;
        self.fs.fs.set_attrs(self.object(entry), &NewAttrs { mode: Some(mode), ..NewAttrs::default() })?;
        self.model.change_file(entry.id(), |file| file.mode = mode);
        Ok(())
    }

    fn set_xattr(&mut self) -> Result<(), Failure> {
        let Some((_, entry)) = self.pick(|entry| matches!(entry, Entry::File(_))) else { return Ok(()) };
        let name = format!("user.x{}", self.random.below(3));
        let len = self.random.below(600);
        let value = self.noise(len.max(1));
        self.fs.fs.set_xattr(self.object(entry), name.as_bytes(), &value, XattrHow::Either)?;
        self.model.change_file(entry.id(), |file| drop(file.xattrs.insert(name, value)));
        Ok(())
    }

    /// Makes all steps so far durable through the log.
    fn fsync(&mut self) -> Result<(), Failure> {
        self.fs.sync()?;
        self.ack(true);
        Ok(())
    }

    /// Makes all steps so far durable through a txg.
    fn sync(&mut self) -> Result<(), Failure> {
        self.pool.sync()?;
        self.ack(true);
        Ok(())
    }

    fn snapshot(&mut self) -> Result<(), Failure> {
        let name = format!("s{}", self.model.step());
        let full = format!("{POOL}@{name}");
        // A snapshot contains all earlier changes.
        self.model.snapshot(&name);
        self.pool.run(move |ctx| snapshot(ctx, &[full], &[]))?;
        self.ack(true);
        Ok(())
    }

    fn destroy_snapshot(&mut self) -> Result<(), Failure> {
        let alive: Vec<String> = self
            .model
            .snapshots
            .iter()
            .filter(|(_, s)| s.destroyed.is_none())
            .map(|(n, _)| n.clone())
            .collect();
        let index = self.random.below(alive.len() as u64) as usize;
        let Some(name) = alive.into_iter().nth(index) else { return Ok(()) };
        let full = format!("{POOL}@{name}");
        let step = self.model.step();
        if let Some(snapshot) = self.model.snapshots.get_mut(&name) {
            snapshot.destroyed = Some(step);
        }
        self.pool.run(move |ctx| destroy_snapshots(ctx, &[full], false))?;
        self.ack(true);
        Ok(())
    }

    /// Frees the space of files without a name.
    fn drain(&mut self) -> Result<(), Failure> {
        self.fs.fs.drain(4)?;
        Ok(())
    }
}
