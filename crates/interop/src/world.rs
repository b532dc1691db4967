//! A pool that is being worked on, and the model of its expected contents.

use crate::content::{Content, Head, Model, Tree};
use crate::disk_provider::{DiskProvider, FolderDisks};
use crate::history::{Durable, History};
use crate::plan::{Plan, Setting};
use crate::{Failure, wrong};
use dmu::TxError;
use dsl::destroy::destroy_snapshots;
use dsl::prop;
use dsl::prop::PropValue;
use dsl::snapshot::snapshot;
use dsl::{Dataset, DslError};
use dsl::{SyncMode, TaskCtx};
use format::ObjectId;
use pool::LivePool;
use pool::{ImportOptions, Leave};
use pool::{PoolError, Which};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use vdev::env::{Env, Random};
use zpl::{FileKind, SpaceKind};
use zpl::{HeadFs, HeadVolume, NewFile, NewFilesystem, QuotaOf, WriteHow, make_filesystem, options_of};

/// Name of the pool.
pub const POOL: &str = "judged";
/// Size of disks that are to be full soon, in bytes.
const SMALL_DISK: u64 = 72 << 20;

/// A head that is open for writing.
pub(crate) enum Open {
    /// An open file system.
    Files(Arc<HeadFs>),
    /// An open volume.
    Volume(Arc<HeadVolume>),
}

impl Open {
    fn head(&self) -> &Arc<dsl::Head> {
        match self {
            Open::Files(files) => files.head(),
            Open::Volume(volume) => volume.head(),
        }
    }
}

/// A pool that is being worked on.
pub struct World {
    /// Plan of the pool.
    pub plan: Plan,
    pub(crate) disks: Box<dyn DiskProvider>,
    name: String,
    /// `None` while the pool is closed.
    pool: Option<Arc<LivePool>>,
    pub(crate) env: Env,
    pub(crate) open: BTreeMap<String, Open>,
    /// Expected contents of the pool.
    pub model: Model,
    pub(crate) random: Random,
    pub(crate) counter: u64,
    pub(crate) holds: Vec<(ObjectId, String)>,
    /// Number of the last file or head.
    pub(crate) serial: u64,
    /// The history, if it is recorded.
    pub(crate) history: Option<History>,
    /// Descriptions of all operations so far.
    pub operation_log: Vec<String>,
}

impl World {
    /// Opens an existing pool in a directory. Its contents are not modelled.
    ///
    /// # Errors
    /// The pool cannot be opened for writing.
    pub(crate) fn open(dir: &Path, seed: u64) -> Result<World, Failure> {
        World::open_named(dir, POOL, seed)
    }

    /// `World::open` for a pool with another name than [`POOL`].
    ///
    /// # Errors
    /// The pool cannot be opened for writing.
    pub fn open_named(dir: &Path, name: &str, seed: u64) -> Result<World, Failure> {
        let Some(plan) = Plan::of_seed(seed, None) else { return wrong("a seed without a plan") };
        let mut world = World {
            plan: Plan { has_thread: false, ..plan },
            disks: Box::new(FolderDisks::new(dir)),
            name: name.to_owned(),
            pool: None,
            env: Env::simulated(seed).0,
            open: BTreeMap::new(),
            model: Model::default(),
            random: Random::from_seed(seed),
            counter: 0,
            holds: Vec::new(),
            serial: 0,
            history: None,
            operation_log: Vec::new(),
        };
        world.import()?;
        Ok(world)
    }

    /// Starts recording.
    pub fn remember(&mut self) {
        self.history = Some(History::default());
        self.promise(Durable::Pool);
    }

    /// Ends recording and returns the history.
    pub fn take_history(&mut self) -> Option<History> {
        let mut history = self.history.take()?;
        history.note_outcome(&self.model);
        Some(history)
    }

    /// A step begins; the model says what should be there before it.
    pub(crate) fn begin(&mut self) {
        let operations = self.disks.operations();
        if let Some(history) = &mut self.history {
            history.begin(operations, &self.model);
        }
    }

    /// What was done so far has become durable.
    pub(crate) fn promise(&mut self, what: Durable) {
        let operations = self.disks.operations();
        if let Some(history) = &mut self.history {
            history.promise(operations, what);
        }
    }

    /// Writes a file into each file system, takes a snapshot of everything, and destroys every other snapshot
    /// and clone that can be.
    ///
    /// # Errors
    /// An operation fails for a reason that is not permitted.
    pub fn touch_everything(&mut self) -> Result<(), Failure> {
        let view = self.pool().view()?;
        let (mut heads, mut snapshots) = (Vec::new(), Vec::new());
        for dir in view.dsl().dirs()? {
            let Some(head) = dir.head()? else { continue };
            snapshots.extend(head.snapshots()?.iter().map(|s| s.name().to_owned()));
            if !head.is_encrypted()? {
                heads.push((head.name().to_owned(), head.is_volume()?));
            }
        }
        drop(view);
        for (name, _) in heads.iter().filter(|(_, is_volume)| !is_volume) {
            let head = self.pool().heads().open_by_name(name)?;
            let options = options_of(&self.dataset(name)?, self.pool().features())?;
            if options.read_only {
                continue;
            }
            let files = HeadFs::open(&head, options, &self.env)?;
            let made =
                files.fs.create(files.fs.root(), b"written later", &NewFile::of(FileKind::Regular, 0o644))?;
            let data = self.noise(100_000);
            files.fs.write(made.id, 0, &data, &WriteHow::default())?;
        }
        let names: Vec<String> = heads.iter().map(|(name, _)| format!("{name}@later")).collect();
        self.attempt("snapshot", move |ctx| snapshot(ctx, &names, &[]).map(drop))?;
        for name in snapshots.into_iter().step_by(2) {
            self.attempt("destroy", move |ctx| destroy_snapshots(ctx, &[name], false))?;
        }
        self.pool().sync()?;
        self.pool().sync()?;
        Ok(())
    }

    /// Makes a pool whose disks are files in a folder.
    ///
    /// # Errors
    /// The pool cannot be made.
    pub(crate) fn create(plan: Plan, seed: u64, dir: &Path) -> Result<World, Failure> {
        let disks = match plan.setting {
            Setting::Full | Setting::Pieces => FolderDisks::with_disks_of(dir, SMALL_DISK),
            Setting::Ordinary | Setting::Clones => FolderDisks::new(dir),
        };
        World::create_on(plan, seed, Box::new(disks))
    }

    /// Makes a pool on the disks of a provider.
    ///
    /// # Errors
    /// The pool cannot be made.
    pub fn create_on(plan: Plan, seed: u64, mut disks: Box<dyn DiskProvider>) -> Result<World, Failure> {
        let env = Env::simulated(seed).0;
        let mut spec = plan.spec(POOL, &mut *disks)?;
        let fill_env = env.clone();
        let projects = plan.features == pool::FeatureSet::Default;
        spec.root.fill = Box::new(move |set, tx| {
            let new = NewFilesystem { projects, ..NewFilesystem::default() };
            make_filesystem(set, &new, &fill_env, tx).map(drop).map_err(fill_error)
        });
        let pool = LivePool::create(spec, env.clone())?;
        if plan.has_thread {
            pool.start();
        }
        let mut model = Model::default();
        let root = Head { content: Content::Files(Tree::default()), ..Head::default() };
        model.heads.insert(POOL.to_owned(), root);
        let random = Random::from_seed(seed ^ 0x6d61_7472_6978);
        let mut world = World {
            plan,
            disks,
            name: POOL.to_owned(),
            pool: Some(pool),
            env,
            open: BTreeMap::new(),
            model,
            random,
            counter: 0,
            holds: Vec::new(),
            serial: 0,
            history: None,
            operation_log: Vec::new(),
        };
        world.prepare()?;
        Ok(world)
    }

    pub(crate) fn pool(&self) -> &Arc<LivePool> {
        self.pool.as_ref().expect("work goes on only in an open pool")
    }

    pub(crate) fn tell(&mut self, what: impl Into<String>) {
        let what = what.into().replace("00000000000000000000", "0");
        self.operation_log.push(match &self.history {
            Some(history) => format!("{}: {what}", history.step()),
            None => what,
        });
    }

    pub(crate) fn pick<T: Clone>(&mut self, of: &[T]) -> Option<T> {
        let index = self.random.below(of.len() as u64) as usize;
        of.get(index).cloned()
    }

    pub(crate) fn noise(&mut self, len: u64) -> Vec<u8> {
        let mut bytes = vec![0; len as usize];
        match self.random.below(5) {
            0 => bytes.fill(self.random.next() as u8),
            // Half of the bytes can be compressed.
            1 | 2 => {
                let half = bytes.len() / 2;
                self.random.fill(&mut bytes[..half]);
            }
            _ => self.random.fill(&mut bytes),
        }
        bytes
    }

    /// Runs a task on the datasets; `None` if it was refused for a permitted reason.
    pub(crate) fn attempt<T: Send + 'static>(
        &mut self,
        what: &str,
        task: impl FnOnce(&mut TaskCtx<'_>) -> Result<T, DslError> + Send + 'static,
    ) -> Result<Option<T>, Failure> {
        self.begin();
        match self.pool().run(task) {
            Ok(done) => {
                self.tell(what);
                self.promise(Durable::Pool);
                Ok(Some(done))
            }
            Err(PoolError::Dsl(error)) if is_refusal(&error) => {
                self.tell(format!("{what}: refused: {error}"));
                Ok(None)
            }
            Err(error) => {
                self.tell(what);
                wrong(format!("{what}: {}", cenote::error::chain(&error)))
            }
        }
    }

    /// A head, which is opened for writing if necessary.
    pub(crate) fn open_head(&mut self, name: &str) -> Result<&Open, Failure> {
        if !self.open.contains_key(name) {
            let head = self.pool().heads().open_by_name(name)?;
            let opened = match &self.model.heads[name].content {
                Content::Files(_) => {
                    let view = self.pool().view()?;
                    let options = options_of(&view.dsl().dataset(name)?, self.pool().features())?;
                    Open::Files(HeadFs::open(&head, options, &self.env)?)
                }
                Content::Volume(_) => Open::Volume(HeadVolume::open(&head)?),
            };
            self.open.insert(name.to_owned(), opened);
        }
        Ok(&self.open[name])
    }

    /// Closes a head, and syncs until it is clean.
    pub(crate) fn close_head(&mut self, name: &str) -> Result<(), Failure> {
        if self.open.remove(name).is_some() {
            // A clean head is forgotten.
            self.pool().sync()?;
            self.pool().sync()?;
            self.promise(Durable::Pool);
        }
        Ok(())
    }

    pub(crate) fn options_changed(&mut self) -> Result<(), Failure> {
        let view = self.pool().view()?;
        for (name, open) in &self.open {
            if let Open::Files(files) = open {
                files.fs.set_options(options_of(&view.dsl().dataset(name)?, self.pool().features())?);
            }
        }
        Ok(())
    }

    /// Removes snapshots from the model that were marked for deferred destruction and are gone.
    pub(crate) fn look_for_deferred(&mut self) -> Result<(), Failure> {
        let view = self.pool().view()?;
        let mut gone = Vec::new();
        for (name, _) in self.model.snapshots.iter().filter(|(_, s)| s.is_deferred) {
            match view.dsl().dataset(name) {
                Ok(_) => {}
                Err(DslError::NotFound { .. }) => gone.push(name.clone()),
                Err(error) => return Err(error.into()),
            }
        }
        for name in gone {
            self.model.snapshots.remove(&name);
        }
        Ok(())
    }

    pub(crate) fn dataset(&self, name: &str) -> Result<Dataset, Failure> {
        Ok(self.pool().view()?.dsl().dataset(name)?)
    }

    /// Runs a random operation.
    ///
    /// # Errors
    /// The operation fails for a reason that is not permitted.
    pub fn step(&mut self) -> Result<(), Failure> {
        if self.random.below(100) < 30 { self.change_datasets() } else { self.change_contents() }
    }

    /// Draws whether the machine disappears now.
    pub(crate) fn draws_vanishing(&mut self) -> bool {
        self.random.one_in(3)
    }

    fn close_all(&mut self) {
        self.open.clear();
    }

    /// Exports the pool.
    ///
    /// # Errors
    /// The pool cannot be exported.
    pub fn export(&mut self) -> Result<(), Failure> {
        self.tell("export");
        self.close_all();
        match self.pool.take() {
            Some(pool) => Ok(pool.export(Leave::Exported)?),
            None => Ok(()),
        }
    }

    /// Exports the pool and opens it again.
    ///
    /// # Errors
    /// As [`World::export`] and `World::import`.
    pub fn reopen(&mut self) -> Result<(), Failure> {
        self.begin();
        self.export()?;
        self.promise(Durable::Pool);
        self.import()
    }

    /// Makes all steps so far durable, through the logs where there are any; then closes the pool without an
    /// export, as if the machine disappeared.
    ///
    /// # Errors
    /// A log cannot be written.
    pub(crate) fn vanish(&mut self) -> Result<(), Failure> {
        self.tell("vanish");
        let promises_nothing = |open: &Open| open.head().sync_mode() == SyncMode::Disabled;
        if self.random.one_in(3) || self.open.values().any(promises_nothing) {
            self.pool().sync()?;
        } else {
            for open in self.open.values() {
                match open {
                    Open::Files(files) => files.sync()?,
                    Open::Volume(volume) => volume.flush()?,
                }
            }
        }
        self.pool().txgs().fail(TxError::Closed);
        self.close_all();
        let Some(pool) = self.pool.take() else { return Ok(()) };
        let left = Arc::downgrade(&pool);
        drop(pool);
        // The thread of the pool may still be at work, and holds the devices.
        while left.strong_count() > 0 {
            std::thread::yield_now();
        }
        Ok(())
    }

    /// Opens the pool again.
    ///
    /// # Errors
    /// The pool cannot be opened.
    pub(crate) fn import(&mut self) -> Result<(), Failure> {
        self.tell("import");
        let found = self.disks.found();
        let options = ImportOptions { force: true, partly_supported: true, ..ImportOptions::default() };
        let seed = self.random.next();
        self.env = Env::simulated(seed).0;
        let pool = LivePool::import(&found, &Which::Name(self.name.clone()), &options, self.env.clone())?;
        if self.plan.has_thread {
            pool.start();
        }
        self.pool = Some(pool);
        Ok(())
    }

    /// Removes all quotas, reservations and limits.
    ///
    /// # Errors
    /// One of them cannot be removed.
    pub(crate) fn lift_limits(&mut self) -> Result<(), Failure> {
        let heads: Vec<String> = self.model.heads.keys().cloned().collect();
        for head in heads {
            let is_files = matches!(self.model.heads[&head].content, Content::Files(_));
            let name = head.clone();
            self.attempt("lift limits", move |ctx| {
                for limit in ["quota", "refquota", "filesystem_limit"].iter().filter(|_| is_files) {
                    let none = if limit.ends_with("_limit") { u64::MAX } else { 0 };
                    prop::change::set(ctx, &name, limit, &PropValue::Number(none))?;
                }
                prop::change::set(ctx, &name, "refreservation", &PropValue::Number(0))?;
                prop::change::set(ctx, &name, "snapshot_limit", &PropValue::Number(u64::MAX))?;
                prop::change::set(ctx, &name, "reservation", &PropValue::Number(0))
            })?;
            if let Open::Files(files) = self.open_head(&head)? {
                for (kind, id) in [SpaceKind::User, SpaceKind::Group]
                    .iter()
                    .flat_map(|k| [0, 1000, 2000].map(|id| (*k, id)))
                {
                    files.fs.set_quota(kind, QuotaOf::Space, id, 0)?;
                }
                for kind in [SpaceKind::User, SpaceKind::Group] {
                    for of in [QuotaOf::Space, QuotaOf::Objects] {
                        files.fs.set_default_quota(kind, of, 0)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Opens every head, which replays the logs.
    ///
    /// # Errors
    /// A head cannot be opened.
    pub(crate) fn replay(&mut self) -> Result<(), Failure> {
        let heads: Vec<String> = self.model.heads.keys().cloned().collect();
        for head in heads {
            self.open_head(&head)?;
        }
        Ok(())
    }
}

/// Opens every head of an existing pool, which replays the logs.
///
/// # Errors
/// A head cannot be opened.
pub fn open_every_head(pool: &Arc<LivePool>) -> Result<(), Failure> {
    let view = pool.view()?;
    for dir in view.dsl().dirs()? {
        let Some(dataset) = dir.head()? else { continue };
        let head = pool.heads().open(dataset.id())?;
        if dataset.is_volume()? {
            drop(HeadVolume::open(&head)?);
        } else {
            let options = options_of(&dataset, pool.features())?;
            let files = HeadFs::open(&head, options, pool.env())?;
            while !files.fs.drain(1000)? {}
        }
    }
    Ok(pool.sync().map(drop)?)
}

/// Whether an error is a permitted refusal in a pool with any history.
fn is_refusal(error: &DslError) -> bool {
    !matches!(
        error,
        DslError::Dmu(_)
            | DslError::Decode { .. }
            | DslError::StoredName { .. }
            | DslError::WrongType { .. }
            | DslError::Mismatch { .. }
            | DslError::Endless { .. }
            | DslError::StoredValue { .. }
            | DslError::NotFound { .. }
            | DslError::Busy { .. }
            | DslError::Tx(_)
            | DslError::Fill { .. }
            | DslError::Again { .. }
    )
}

/// Converts an error of filling a new head.
pub(crate) fn fill_error(error: zpl::ZplError) -> DslError {
    DslError::Fill { source: Box::new(error) }
}
