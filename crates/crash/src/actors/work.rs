//! Threads that work on one pool beside each other: three on files of two datasets, one that copies out of snapshots, and
//! one that writes txgs.
//!
//! What each does follows from its seed; in which order their operations on the disks come follows from [`super::turns`].

use super::history::{Copied, History, Promise, Snapshot, Steps, What, empty_home, file_state};
use super::turns::{self, TurnDisk, Turns};
use super::{Failure, with_causes};
use crate::disks::{Disks, Layout};
use crate::model::{Entry, FileId, FileState, Names};
use crate::workload::{POOL, RECORD, create, env};
use cenote::copy::import::{Importer, Options, import};
use cenote::copy::walk::Children;
use cenote::copy::{Observer, Problem};
use cenote::files::FilesystemWriter;
use dsl::DslError;
use dsl::TaskCtx;
use dsl::create::{NewHead, create as create_head};
use dsl::destroy::destroy_snapshots;
use dsl::snapshot::snapshot;
use format::objset::ObjsetType;
use format::{ObjectId, Txg};
use pool::LivePool;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use vdev::device::Device;
use vdev::device::sim::Op;
use vdev::env::Random;
use zpl::{
    Allocate, FileRange, FsOptions, HeadFs, NewAttrs, NewFile, NewFilesystem, PoolClones, RenameHow,
    WriteHow, make_filesystem,
};
use zpl::{FileKind, Filesystem, Node, ZplError};

/// The datasets.
pub const DATASETS: [&str; 2] = [POOL, "crash/b"];
/// Directory of the second dataset with what was copied out of snapshots.
pub const COPIES: &str = "copies";
/// Homes: dataset, name, thread.
const HOMES: [(usize, &str, usize); 5] =
    [(0, "h0", 0), (0, "h1", 1), (1, "h2", 2), (0, "h3", 2), (1, "h4", 0)];
/// Threads that work on files.
const WORKERS: usize = 3;
/// Largest file.
const FILE_MAX: u64 = 90_000;
/// Homes with fewer names get new files first.
const NAMES_MIN: usize = 4;
/// Most names in a home.
const NAMES_MAX: usize = 9;
/// How often that thread lets the others go first before each of its steps.
const COPIER_WAITS: u64 = 3;
/// Clones that a thread remembers.
const CLONES: usize = 3;
/// Bytes of a write that counts as large.
const LARGE: u64 = 8 << 10;
/// Most steps of the thread that copies, for so many of a worker: it ends with the workers.
const COPIER_STEPS: u64 = 3;

/// What was done to the disks, and what may be found.
pub struct ActorsRun {
    /// How many disks there are.
    pub disks: usize,
    /// Operations before the threads began.
    pub base: Vec<(usize, Op)>,
    /// Operations of the disks.
    pub ops: Vec<(usize, Op)>,
    /// What was done.
    pub history: History,
}

/// What all threads share.
struct World {
    disks: Disks,
    pool: Arc<LivePool>,
    fs: Vec<Arc<HeadFs>>,
    /// Directories of the homes.
    dirs: Vec<ObjectId>,
    history: Mutex<History>,
    /// The snapshot that is being copied.
    copied: Mutex<Option<usize>>,
    /// A txg is being written.
    is_syncing: AtomicBool,
    /// Workers that have not ended.
    workers: AtomicUsize,
}

impl World {
    fn copied(&self) -> MutexGuard<'_, Option<usize>> {
        self.copied.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, history: &mut History, what: What) {
        history.events.push((self.disks.operations(), what));
    }

    fn tell(&self, text: String) {
        let operations = self.disks.operations();
        self.history().told.push((operations, text));
    }

    /// Everything that has ended is durable when `act` has returned.
    fn promise(&self, promise: Promise, act: impl FnOnce() -> Result<(), Failure>) -> Result<(), Failure> {
        act()?;
        let mut history = self.history();
        self.note(&mut history, What::Promised(promise));
        Ok(())
    }
}

fn new_world(layout: Layout, seed: u64) -> Result<(World, Vec<(usize, Op)>), Failure> {
    let mut disks = Disks::new(layout.disks(), seed);
    let shown = disks.disks().iter().map(|disk| Arc::new(TurnDisk(Arc::clone(disk))) as Arc<dyn Device>);
    disks.show(shown.collect());
    disks.record();
    let pool = create(&disks, layout, env(seed))?;
    let fill_env = env(seed);
    pool.run(move |ctx| {
        let mut fill = |set: &Arc<dmu::LiveSet>, tx: &dmu::SyncTx| {
            let made = make_filesystem(set, &NewFilesystem::default(), &fill_env, tx);
            made.map(drop).map_err(|error| DslError::Fill { source: Box::new(error) })
        };
        create_head(ctx, NewHead::named(DATASETS[1]), ObjsetType::Zfs, &mut fill).map(drop)
    })?;
    let mut fs = Vec::new();
    for dataset in DATASETS {
        let head = pool.heads().open_by_name(dataset)?;
        let options = FsOptions { record_size: RECORD, clones: true, ..FsOptions::default() };
        fs.push(HeadFs::open(&head, options, &env(seed))?);
    }
    let dir = |fs: &HeadFs, name: &str| -> Result<ObjectId, Failure> {
        Ok(fs.fs.create(fs.fs.root(), name.as_bytes(), &NewFile::of(FileKind::Directory, 0o755))?.id)
    };
    let mut dirs = Vec::new();
    for (dataset, name, _) in HOMES {
        dirs.push(dir(&fs[dataset], name)?);
    }
    dir(&fs[1], COPIES)?;
    for fs in &fs {
        // The first commit of a chain waits for a txg.
        fs.sync()?;
    }
    pool.sync()?;
    // From here on a thread of ours writes the txgs.
    pool.txgs().set_inline(None);
    let base = disks.take_record();
    let homes = HOMES.iter().map(|(dataset, name, _)| empty_home(*dataset, name)).collect();
    let history = Mutex::new(History { homes, ..History::default() });
    Ok((
        World {
            disks,
            pool,
            fs,
            dirs,
            history,
            copied: Mutex::default(),
            is_syncing: AtomicBool::new(false),
            workers: AtomicUsize::new(WORKERS),
        },
        base,
    ))
}

/// Runs the threads, each for about so many steps.
///
/// # Errors
/// If anything fails: on disks without faults nothing does. If threads wait for each other, they are left behind.
pub fn run(layout: Layout, seed: u64, steps: u64) -> Result<ActorsRun, Failure> {
    let (world, base) = new_world(layout, seed)?;
    let world = Arc::new(world);
    let turns = Turns::new(WORKERS + 2, seed);
    let mut threads = Vec::new();
    for seat in 0..WORKERS + 2 {
        let (turns, world) = (Arc::clone(&turns), Arc::clone(&world));
        threads.push(std::thread::spawn(move || {
            turns.enter(seat, || {
                let outcome = match seat {
                    WORKERS => copy_out(&world, seed, steps / COPIER_STEPS),
                    seat if seat < WORKERS => {
                        let done = work(&world, seat, seed, steps);
                        world.workers.fetch_sub(1, Ordering::Relaxed);
                        done
                    }
                    _ => write_txgs(&world, &turns),
                };
                if outcome.is_err() {
                    // Nobody is to wait for it.
                    world.pool.txgs().fail(dmu::TxError::Closed);
                }
                outcome
            })
        }));
    }
    turns.conduct().map_err(|why| -> Failure {
        let history = world.history();
        format!("{why}\n{}", super::history::told_until(&history, u64::MAX, 60)).into()
    })?;
    let mut outcome = Ok(());
    for thread in threads {
        let done = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        // The first failure ends the others, with errors that say less.
        outcome = match (outcome, done) {
            (Ok(()), Err(error)) => Err(error),
            (Err(first), Err(error)) if first.to_string().contains("closed") => Err(error),
            (outcome, _) => outcome,
        };
    }
    let ops = world.disks.take_record();
    let history = std::mem::take(&mut *world.history());
    outcome.map_err(|error| -> Failure {
        let told = super::history::told_until(&history, u64::MAX, 12);
        format!("{}\n{told}", with_causes(&*error)).into()
    })?;
    Ok(ActorsRun { disks: layout.disks(), base, ops, history })
}

fn write_txgs(world: &World, turns: &Turns) -> Result<(), Failure> {
    loop {
        turns::idle();
        if turns.is_last() {
            return Ok(());
        }
        let txg = world.pool.txgs().open_txg();
        world.tell(format!("txg {} begins", txg.0));
        let steps = world.history().done();
        world.is_syncing.store(true, Ordering::Relaxed);
        let synced = world.pool.sync_here();
        world.is_syncing.store(false, Ordering::Relaxed);
        synced?;
        world.tell(format!("txg {} is on disk", txg.0));
        let mut history = world.history();
        let promise = Promise { names: steps.clone(), files: steps, file: None };
        world.note(&mut history, What::Promised(promise));
    }
}

/// A thread that works on files.
struct Worker<'w> {
    world: &'w World,
    seat: usize,
    homes: Vec<usize>,
    random: Random,
    objects: HashMap<(usize, FileId), ObjectId>,
    recent: Vec<(usize, FileId)>,
    /// The last clones, the newest last.
    clones: Vec<FreshClone>,
    /// Files with a large write of this txg that no fsync has asked for, and whether they were changed since.
    large: Vec<(usize, FileId, Txg, bool)>,
    counter: u64,
}

/// A clone that was made not long ago.
#[derive(Clone)]
struct FreshClone {
    source: Named,
    target: Named,
    txg: Txg,
}

fn work(world: &World, seat: usize, seed: u64, steps: u64) -> Result<(), Failure> {
    let homes = (0..HOMES.len()).filter(|i| HOMES[*i].2 == seat).collect();
    let random = Random::from_seed(seed.wrapping_mul(0x1_0001).wrapping_add(seat as u64));
    let mut worker = Worker {
        world,
        seat,
        homes,
        random,
        objects: HashMap::new(),
        recent: Vec::new(),
        clones: Vec::new(),
        large: Vec::new(),
        counter: 0,
    };
    for _ in 0..steps {
        turns::pause();
        worker.step()?;
    }
    Ok(())
}

/// A file by its name.
#[derive(Clone)]
struct Named {
    home: usize,
    name: String,
    id: FileId,
}

impl Worker<'_> {
    fn fs(&self, home: usize) -> &HeadFs {
        &self.world.fs[HOMES[home].0]
    }

    fn object(&self, file: &Named) -> ObjectId {
        self.objects[&(file.home, file.id)]
    }

    fn names(&self, home: usize) -> Names {
        self.world.history().homes[home].model.now().clone()
    }

    fn state(&self, file: &Named) -> FileState {
        self.world.history().homes[file.home].model.file(file.id).clone()
    }

    fn pick_home(&mut self) -> usize {
        self.homes[self.random.below(self.homes.len() as u64) as usize]
    }

    /// A file: often one that was used lately.
    fn pick(&mut self) -> Option<Named> {
        let home = self.pick_home();
        let all: Vec<Named> =
            self.names(home).into_iter().map(|(name, entry)| Named { home, name, id: entry.id() }).collect();
        let lately: Vec<&Named> =
            all.iter().filter(|file| self.recent.contains(&(file.home, file.id))).collect();
        if !lately.is_empty() && self.random.below(5) < 3 {
            return Some(lately[self.random.below(lately.len() as u64) as usize].clone());
        }
        all.get(self.random.below(all.len() as u64) as usize).cloned()
    }

    fn used(&mut self, file: &Named) {
        self.recent.push((file.home, file.id));
        if self.recent.len() > 3 {
            self.recent.remove(0);
        }
    }

    fn tell(&self, text: &str) {
        self.world.tell(format!("thread {}: {text}", self.seat));
    }

    /// One change of a home: `act` makes it, then `change` makes it in the model. Returns what `act` does; `None`: it
    /// could not be done.
    fn change<T>(
        &mut self,
        home: usize,
        is_rename: bool,
        told: &str,
        act: impl FnOnce(&HeadFs) -> Result<Option<T>, Failure>,
        change: impl FnOnce(&mut crate::model::Model, &T),
    ) -> Result<Option<T>, Failure> {
        let step = {
            let mut history = self.world.history();
            let done = history.done_in(HOMES[home].0);
            let step = history.homes[home].model.begin_step();
            if is_rename {
                history.homes[home].renames.push((step, done));
            }
            self.world.note(&mut history, What::Begun(home, step));
            step
        };
        self.tell(&format!("{}, step {step}: {told}", HOMES[home].1));
        let done = act(self.fs(home)).map_err(|error| -> Failure {
            format!("{}, step {step}: {told}: {}", HOMES[home].1, with_causes(&*error)).into()
        })?;
        let mut history = self.world.history();
        if let Some(done) = &done {
            change(&mut history.homes[home].model, done);
        }
        history.homes[home].done = step;
        Ok(done)
    }

    fn step(&mut self) -> Result<(), Failure> {
        let copied = *self.world.copied();
        let is_copied = copied.is_some_and(|i| snapshots(self.world).iter().any(|(index, ..)| *index == i));
        if is_copied && self.random.one_in(3) {
            return destroy_snapshot(self.world, &mut self.random);
        }
        // What changes now has blocks that only the snapshot has.
        if is_copied && self.random.one_in(2) {
            return if self.random.one_in(2) { self.write() } else { self.truncate() };
        }
        let home = self.pick_home();
        let names = self.names(home).len();
        let is_full = names >= NAMES_MAX;
        if names < NAMES_MIN && self.random.one_in(2) {
            self.create(home)?;
            return self.write();
        }
        // What is committed now may be on disk before anybody asks for it: the log holds records of both kinds. And blocks
        // have pointers already that are nobody's after a cut.
        if self.world.is_syncing.load(Ordering::Relaxed) && self.random.one_in(2) {
            return match self.random.below(5) {
                0 | 1 if !is_full => self.share(home),
                2 => self.fsync_clone(),
                _ => self.fsync(),
            };
        }
        match self.random.below(100) {
            0..=9 if !is_full => self.create(home).map(drop),
            10..=31 => self.write(),
            32..=40 => self.truncate(),
            41..=45 => self.punch(),
            46..=54 => self.rename(),
            55..=57 if !is_full => self.link(),
            58..=63 => self.remove(),
            64..=74 if !is_full => self.share(home),
            75..=83 => self.fsync(),
            84..=87 => self.fsync_clone(),
            88..=89 => self.sync_dataset(HOMES[home].0),
            90..=91 => self.chmod(),
            92..=94 => self.look(),
            95..=96 => {
                let number = self.counter();
                let name = format!("t{}s{number}", self.seat);
                take_snapshot(self.world, HOMES[home].0, &name)
            }
            97..=98 => destroy_snapshot(self.world, &mut self.random),
            _ => self.drain(home),
        }
    }

    /// The content of a file is about to change.
    fn changed(&mut self, file: &Named) {
        let of_file = self.large.iter_mut().filter(|(home, id, ..)| (*home, *id) == (file.home, file.id));
        of_file.for_each(|(.., is_changed)| *is_changed = true);
    }

    fn counter(&mut self) -> u64 {
        self.counter += 1;
        self.counter
    }

    fn noise(&mut self, len: u64) -> Vec<u8> {
        let mut bytes = vec![0; len as usize];
        match self.random.below(4) {
            // Zeros are nobody's; some blocks can be compressed.
            0 => bytes.fill(self.random.next() as u8 | 1),
            _ => self.random.fill(&mut bytes),
        }
        bytes.iter_mut().for_each(|byte| *byte = (*byte).max(1));
        bytes
    }

    fn create(&mut self, home: usize) -> Result<Option<Named>, Failure> {
        let name = format!("n{}", self.counter());
        let dir = self.world.dirs[home];
        let made = self.change(
            home,
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
        let id = self.names(home)[&name].id();
        self.objects.insert((home, id), object);
        let file = Named { home, name, id };
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
            self.large.push((file.home, id, self.world.pool.txgs().open_txg(), false));
        }
        self.change(
            file.home,
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
            // As programs do that write anew what must not be lost: what was written is in order from now on.
            turns::pause();
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
            file.home,
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
            file.home,
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

    /// A new name, or that of another file of the same home.
    fn rename(&mut self) -> Result<(), Failure> {
        match self.pick() {
            Some(file) => self.rename_file(&file),
            None => Ok(()),
        }
    }

    fn rename_file(&mut self, file: &Named) -> Result<(), Failure> {
        let others: Vec<String> = {
            let names = self.names(file.home);
            names.into_iter().filter(|(_, entry)| entry.id() != file.id).map(|(name, _)| name).collect()
        };
        let to = match others.get(self.random.below(others.len() as u64) as usize) {
            Some(other) if self.random.one_in(3) => other.clone(),
            _ => format!("n{}", self.counter()),
        };
        let (dir, from) = (self.world.dirs[file.home], file.name.clone());
        self.change(
            file.home,
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
        let (object, dir, id) = (self.object(&file), self.world.dirs[file.home], file.id);
        self.change(
            file.home,
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
        let (dir, name) = (self.world.dirs[file.home], file.name.clone());
        self.change(
            file.home,
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

    /// A new file that shares the blocks of another, perhaps of another dataset. Sometimes both go at once.
    fn share(&mut self, home: usize) -> Result<(), Failure> {
        let Some(source) = self.pick() else { return Ok(()) };
        let Some(target) = self.create(home)? else { return Ok(()) };
        let bytes = self.state(&source).bytes;
        let (from, to) = (self.object(&source), self.object(&target));
        let (len, id) = (bytes.len() as u64, target.id);
        let source_fs = Arc::clone(&self.world.fs[HOMES[source.home].0]);
        let told = format!("{} (file {id}) becomes a clone of {}", target.name, source.name);
        let shared = self.change(
            home,
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
            turns::pause();
            self.rename()?;
            for file in [target, source] {
                if self.names(file.home).contains_key(&file.name) {
                    self.remove_file(&file)?;
                }
            }
            // With this txg on disk, the blocks are free while the records still say that they were shared.
            turns::urge();
        } else if self.world.is_syncing.load(Ordering::Relaxed) || self.random.one_in(2) {
            turns::pause();
            self.fsync_file(&target)?;
        }
        Ok(())
    }

    fn chmod(&mut self) -> Result<(), Failure> {
        let Some(file) = self.pick() else { return Ok(()) };
        let mode = self.random.below(0o1000) as u32;
        let (object, id) = (self.object(&file), file.id);
        self.change(
            file.home,
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

    /// A clone becomes durable, whatever state its txg is in; if it has gone, another file of its dataset, with which its
    /// record may go. Sometimes its blocks are freed right after.
    fn fsync_clone(&mut self) -> Result<(), Failure> {
        let Some(clone) = self.clones.get(self.random.below(self.clones.len() as u64) as usize).cloned()
        else {
            return self.fsync();
        };
        let is_there = |worker: &Self, file: &Named| {
            worker.names(file.home).get(&file.name).is_some_and(|entry| entry.id() == file.id)
        };
        if is_there(self, &clone.target) {
            self.fsync_file(&clone.target)?;
        } else {
            self.fsync()?;
        }
        if self.random.one_in(3) {
            turns::pause();
            for file in [clone.target, clone.source] {
                if is_there(self, &file) {
                    self.remove_file(&file)?;
                }
            }
        }
        Ok(())
    }

    /// Notes what an fsync of this file meets.
    fn cover(&mut self, file: &Named) {
        let txgs = self.world.pool.txgs();
        let (open, synced) = (txgs.open_txg(), txgs.synced_txg());
        let is_here = |home: usize| HOMES[home].0 == HOMES[file.home].0;
        let mut history = self.world.history();
        let beside = &mut history.coverage.beside_clones;
        for clone in self.clones.iter().filter(|clone| is_here(clone.target.home)) {
            match clone.txg {
                txg if txg >= open => beside[0] += 1,
                txg if txg > synced => beside[1] += 1,
                txg if txg == synced => beside[2] += 1,
                _ => {}
            }
        }
        self.large.retain(|(.., txg, _)| *txg > synced);
        let cut = self.large.iter().filter(|(home, id, _, is_changed)| {
            is_here(*home) && *is_changed && (*home, *id) != (file.home, file.id)
        });
        history.coverage.beside_cuts += cut.count() as u64;
        drop(history);
        self.large.retain(|(home, id, ..)| (*home, *id) != (file.home, file.id));
    }

    fn fsync_file(&mut self, file: &Named) -> Result<(), Failure> {
        self.cover(file);
        let promise = {
            let history = self.world.history();
            let names = history.done_in(HOMES[file.home].0);
            let file = Some((file.home, file.id, history.homes[file.home].done));
            Promise { files: vec![0; names.len()], names, file }
        };
        self.tell(&format!("fsync {}/{} (file {})", HOMES[file.home].1, file.name, file.id));
        let object = self.object(file);
        self.world.promise(promise, || Ok(self.fs(file.home).fsync(object)?))?;
        self.tell(&format!("fsync {}/{} is done", HOMES[file.home].1, file.name));
        Ok(())
    }

    fn sync_dataset(&mut self, dataset: usize) -> Result<(), Failure> {
        sync_dataset(self.world, dataset)
    }

    /// What is read now is what was written.
    fn look(&mut self) -> Result<(), Failure> {
        let Some(file) = self.pick() else { return Ok(()) };
        let known = self.state(&file);
        let node = self.fs(file.home).fs.node(self.object(&file))?;
        let mut bytes = vec![0; node.attrs().size as usize];
        node.read_at(0, &mut bytes)?;
        if bytes != known.bytes {
            return Err(
                format!("{}/{} reads other than it was written", HOMES[file.home].1, file.name).into()
            );
        }
        Ok(())
    }

    fn drain(&mut self, home: usize) -> Result<(), Failure> {
        self.fs(home).fs.drain(4)?;
        Ok(())
    }
}

fn sync_dataset(world: &World, dataset: usize) -> Result<(), Failure> {
    let steps: Steps = world.history().done_in(dataset);
    world.tell(format!("sync {}", DATASETS[dataset]));
    let promise = Promise { names: steps.clone(), files: steps, file: None };
    world.promise(promise, || Ok(world.fs[dataset].sync()?))
}

/// Runs a task, again in the next txg where it cannot be done in this one.
fn run_task<F>(world: &World, task: impl Fn() -> F) -> Result<(), pool::PoolError>
where
    F: FnOnce(&mut TaskCtx<'_>) -> Result<(), DslError> + Send + 'static,
{
    loop {
        match world.pool.run(task()) {
            Err(pool::PoolError::Dsl(DslError::Again { .. })) => {}
            done => return done,
        }
    }
}

fn take_snapshot(world: &World, dataset: usize, name: &str) -> Result<(), Failure> {
    let index = {
        let mut history = world.history();
        let from = history.done();
        let index = history.snapshots.len();
        history.snapshots.push(Snapshot { dataset, name: name.to_owned(), from, until: Vec::new() });
        world.note(&mut history, What::Taking(index));
        index
    };
    let full = format!("{}@{name}", DATASETS[dataset]);
    world.tell(format!("snapshot {full}"));
    run_task(world, || {
        let full = full.clone();
        move |ctx: &mut TaskCtx<'_>| snapshot(ctx, &[full], &[]).map(drop)
    })?;
    let mut history = world.history();
    history.snapshots[index].until = history.begun();
    world.note(&mut history, What::Taken(index));
    Ok(())
}

/// Snapshots that are there and that nobody destroys.
fn snapshots(world: &World) -> Vec<(usize, usize, String)> {
    let history = world.history();
    let gone = |i: usize| {
        history.events.iter().any(|(_, what)| matches!(what, What::Destroying(other) if *other == i))
    };
    let all = history.snapshots.iter().enumerate();
    let there = all.filter(|(i, snapshot)| !snapshot.until.is_empty() && !gone(*i));
    there.map(|(i, snapshot)| (i, snapshot.dataset, snapshot.name.clone())).collect()
}

fn destroy_snapshot(world: &World, random: &mut Random) -> Result<(), Failure> {
    let mut all = snapshots(world);
    if all.is_empty() {
        return Ok(());
    }
    let copied = *world.copied();
    let at = all.iter().position(|(index, _, _)| copied == Some(*index)).filter(|_| !random.one_in(4));
    let at = at.unwrap_or(random.below(all.len() as u64) as usize);
    let (index, dataset, name) = all.swap_remove(at);
    {
        let mut history = world.history();
        world.note(&mut history, What::Destroying(index));
    }
    let full = format!("{}@{name}", DATASETS[dataset]);
    world.tell(format!("destroy {full}"));
    if copied == Some(index) {
        world.history().coverage.copied_and_destroyed += 1;
        turns::urge();
    }
    let done = run_task(world, || {
        let full = full.clone();
        move |ctx: &mut TaskCtx<'_>| destroy_snapshots(ctx, &[full], false).map(drop)
    });
    match done {
        Ok(()) => {
            let mut history = world.history();
            world.note(&mut history, What::Destroyed(index));
        }
        // It is being copied, and stays.
        Err(pool::PoolError::Dsl(DslError::Busy { .. })) => {
            world.tell(format!("{full} is in use"));
            let mut history = world.history();
            world.note(&mut history, What::Taken(index));
        }
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

/// What a copy tells.
#[derive(Default)]
struct Heard {
    problems: u64,
}

impl Observer for Heard {
    fn begins(&mut self, _: &[u8]) {
        turns::pause();
    }

    fn problem(&mut self, _: &[u8], _: &Problem) {
        self.problems += 1;
    }
}

/// Copies files out of snapshots, which share their blocks, while others destroy these.
fn copy_out(world: &World, seed: u64, steps: u64) -> Result<(), Failure> {
    let mut random = Random::from_seed(seed ^ 0xc0);
    for step in 0..steps {
        // The others make what is copied, and change it.
        (0..COPIER_WAITS).for_each(|_| turns::stand_back());
        if world.workers.load(Ordering::Relaxed) == 0 {
            break;
        }
        if random.one_in(2) {
            take_snapshot(world, 0, &format!("c{step}"))?;
        }
        copy_one(world, &mut random, step)?;
        turns::pause();
        if random.one_in(3) {
            destroy_snapshot(world, &mut random)?;
        }
    }
    Ok(())
}

fn copy_one(world: &World, random: &mut Random, step: u64) -> Result<(), Failure> {
    let of_first: Vec<(usize, usize, String)> =
        snapshots(world).into_iter().filter(|(_, dataset, _)| *dataset == 0).collect();
    let chosen = of_first.get(random.below(of_first.len() as u64) as usize);
    let Some((index, _, name)) = chosen else { return Ok(()) };
    let from = format!("{}@{name}", DATASETS[0]);
    let view = world.pool.view()?;
    // Somebody may have destroyed it since it was chosen.
    let Ok(dataset) = view.dsl().dataset(&from) else { return Ok(()) };
    let source = Filesystem::open(dataset.open_objset()?)?;
    let mut files: Vec<Node> = Vec::new();
    for (_, dir, _) in HOMES.iter().filter(|(dataset, _, _)| *dataset == 0) {
        let Some(dir) = source.resolve(dir.as_bytes())? else { continue };
        for entry in dir.entries()? {
            files.push(source.node(entry?.id)?);
        }
    }
    let to = FilesystemWriter::open(&world.pool, DATASETS[1])?;
    let copies = to.reader().resolve(COPIES.as_bytes())?.ok_or("there is no directory for copies")?.id();
    world.tell(format!("copy {} files out of {from}", files.len()));
    *world.copied() = Some(*index);
    let options = Options { threads: 1, ..Options::default() };
    let mut copied: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    let mut heard = Heard::default();
    let lead = |importer: &mut Importer<'_>| -> Result<Vec<(String, Vec<u8>)>, Failure> {
        let top = importer.top(copies, b"")?;
        let mut done = Vec::new();
        for (i, node) in files.iter().enumerate() {
            // Much may happen to a snapshot while it is copied.
            turns::stand_back();
            let name = format!("c{step}-{i}");
            let mut bytes = vec![0; node.attrs().size as usize];
            // What a view that is too old leads to may be gone.
            if node.read_at(0, &mut bytes).is_err() {
                continue;
            }
            turns::stand_back();
            let none: Option<&Children<'_>> = None;
            turns::with_helpers(|| {
                importer.copy_pool(&source, node, (&from, b""), (&top, Some(name.as_bytes())), none);
                importer.finish();
            });
            done.push((name, bytes));
        }
        Ok(done)
    };
    let (done, summary) = import(&to, &options, &mut heard, lead);
    if summary.failures == 0 && heard.problems == 0 {
        copied.extend(done?);
    }
    *world.copied() = None;
    drop((files, source, view));
    sync_dataset(world, 1)?;
    let mut history = world.history();
    for (name, bytes) in copied {
        history.copies.push(Copied { name, bytes });
        let index = history.copies.len() - 1;
        world.note(&mut history, What::Copied(index));
    }
    Ok(())
}
