//! The pool that the threads work on, and the record of their operations.

use super::Failure;
use super::history::{History, Promise, Steps, What, empty_work_dir};
use super::scheduler::ScheduledDisk;
use crate::disks::{Disks, Layout};
use crate::run::{POOL, RECORD, create, env};
use dsl::create::{NewHead, create as create_head};
use dsl::{DslError, TaskCtx};
use format::ObjectId;
use format::objset::ObjsetType;
use pool::LivePool;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Mutex, MutexGuard};
use vdev::device::Device;
use vdev::device::sim::Op;
use zpl::{FileKind, FsOptions, HeadFs, NewFile, NewFilesystem, make_filesystem};

/// Names of the datasets.
pub(super) const DATASETS: [&str; 2] = [POOL, "crash/b"];
/// Directory of the second dataset for files that were copied out of snapshots.
pub(super) const COPIES: &str = "copies";
/// Work directories: index of the dataset, name, index of the thread.
pub(super) const WORK_DIRS: [(usize, &str, usize); 5] =
    [(0, "h0", 0), (0, "h1", 1), (1, "h2", 2), (0, "h3", 2), (1, "h4", 0)];
/// Number of threads that work on files.
pub(super) const WORKERS: usize = 3;

/// State shared by all threads.
pub(super) struct World {
    pub(super) disks: Disks,
    pub(super) pool: Arc<LivePool>,
    pub(super) fs: Vec<Arc<HeadFs>>,
    /// Object ids of the work directories.
    pub(super) dirs: Vec<ObjectId>,
    pub(super) history: Mutex<History>,
    /// Index of the snapshot that is being copied.
    pub(super) copied: Mutex<Option<usize>>,
    /// Whether a txg is being written.
    pub(super) is_syncing: AtomicBool,
    /// Number of workers that have not ended.
    pub(super) workers: AtomicUsize,
}

impl World {
    pub(super) fn copied(&self) -> MutexGuard<'_, Option<usize>> {
        vdev::sync::lock(&self.copied)
    }

    pub(super) fn history(&self) -> MutexGuard<'_, History> {
        vdev::sync::lock(&self.history)
    }

    pub(super) fn note(&self, history: &mut History, what: What) {
        history.events.push((self.disks.operations(), what));
    }

    pub(super) fn tell(&self, text: String) {
        let operations = self.disks.operations();
        self.history().operation_log.push((operations, text));
    }

    /// Calls `act`, after which all ended steps are durable, and records that promise.
    pub(super) fn promise(
        &self,
        promise: Promise,
        act: impl FnOnce() -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        act()?;
        let mut history = self.history();
        self.note(&mut history, What::Promised(promise));
        Ok(())
    }
}

pub(super) fn new_world(layout: Layout, seed: u64) -> Result<(World, Vec<(usize, Op)>), Failure> {
    let mut disks = Disks::new(layout.disks(), seed);
    let shown = disks.disks().iter().map(|disk| Arc::new(ScheduledDisk(Arc::clone(disk))) as Arc<dyn Device>);
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
    for (dataset, name, _) in WORK_DIRS {
        dirs.push(dir(&fs[dataset], name)?);
    }
    dir(&fs[1], COPIES)?;
    for fs in &fs {
        // The first commit of a chain waits for a txg.
        fs.sync()?;
    }
    pool.sync()?;
    // From here on, a thread of the run writes the txgs.
    pool.txgs().set_inline(None);
    let base = disks.take_record();
    let work_dirs = WORK_DIRS.iter().map(|(dataset, name, _)| empty_work_dir(*dataset, name)).collect();
    let history = Mutex::new(History { work_dirs, ..History::default() });
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

pub(super) fn sync_dataset(world: &World, dataset: usize) -> Result<(), Failure> {
    let steps: Steps = world.history().done_in(dataset);
    world.tell(format!("sync {}", DATASETS[dataset]));
    let promise = Promise { names: steps.clone(), files: steps, file: None };
    world.promise(promise, || Ok(world.fs[dataset].sync()?))
}

/// Runs a sync task; tries again in the next txg if it cannot be done in this one.
pub(super) fn run_task<F>(world: &World, task: impl Fn() -> F) -> Result<(), pool::PoolError>
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
