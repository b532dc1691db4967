//! Copies directory trees into a file system of a pool: from the host, from a pool, from an archive.
//!
//! One thread walks the source and creates directories; worker threads create all other files, in batches.
//! [`import`] runs both.
//!
//! # What always holds
//! - A file that could not be read completely does not appear under its name, unless zeros were requested.
//! - An existing file is replaced atomically, by a rename, when its successor is complete; a directory is
//!   never replaced.
//! - Files of the same pool share their blocks with the copy if both datasets have the same record size. A damaged
//!   block is then damaged in both.
//! - Symbolic links of the target are not followed below the directory that is filled.
//! - A directory gets its times after all its entries.
//! - Copied files are durable only after the caller has synced the file system.
//!
//! # Order of locks
//! `links` -> locks of `zpl`.

mod dir;
mod file_job;
mod from_host;
mod from_pool;
mod from_tar;
mod to_volume;

pub use from_host::{HostContent, HostSource};
pub use from_tar::unpack;
pub use to_volume::{VolumeError, write_volume};

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use ::pool::LivePool;
use dmu::LiveObject;
use dsl::{Head, SnapshotHold};
use format::{BlockPtr, ObjectId};
use zpl::{BeginError, Fs, PoolClones};
use zpl::{Node, ZplError};

use super::host::Damaged;
use super::meta::{Kind, Meta};
use super::{Observer, Problem, Summary};
use crate::CancelFlag;
use crate::files::FilesystemWriter;
use crate::worker_pool::{Queue, with_workers};
pub use dir::Folder;
use dir::{Dir, DirRef};
use file_job::FileJob;
use vdev::sync::lock;

/// Maximum number of files in one job.
const BATCH_FILES: usize = 32;
/// Maximum number of bytes in one job, if the sizes are known.
const BATCH_BYTES: u64 = 1 << 20;

/// Options of [`import`].
#[derive(Debug, Clone)]
pub struct Options {
    /// Files keep their owners; otherwise they belong to the owner of new files of the target.
    pub owners: bool,
    /// Treatment of files that cannot be read completely.
    pub damaged: Damaged,
    /// Existing files are not replaced.
    pub keep_existing: bool,
    /// Number of worker threads in addition to the walking one; 0: one per processor.
    pub threads: usize,
    /// Cancels the copy: files in progress are removed, and no more are begun. Cancellation itself is not
    /// reported as a problem.
    pub cancel: CancelFlag,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            owners: true,
            damaged: Damaged::default(),
            keep_existing: false,
            threads: 0,
            cancel: CancelFlag::default(),
        }
    }
}

/// State shared by all threads.
struct Shared {
    fs: Arc<Fs>,
    pool: Arc<LivePool>,
    clones: PoolClones,
    /// Source datasets, by object set id.
    origins: Mutex<HashMap<u64, Origin>>,
    options: Options,
    /// Owner of new files that do not keep their owners: user and group id.
    owner: (u32, u32),
    files: AtomicU64,
    dirs: AtomicU64,
    bytes: AtomicU64,
    problems: Mutex<Vec<(Vec<u8>, Problem)>>,
    /// Files with several names that were copied under one of them, and the number of names left. Locked while such
    /// a file is created, so that it is created once.
    links: Mutex<HashMap<(u64, u64), (ObjectId, u64)>>,
    temporary: AtomicU64,
    /// The pool cannot be written any more.
    is_stopped: AtomicBool,
}

/// A source dataset in the same pool.
#[derive(Clone)]
enum Origin {
    /// The hold prevents its destruction.
    Snapshot { root: BlockPtr, _hold: Arc<SnapshotHold> },
    /// The open head prevents its destruction.
    Head(Arc<Head>),
    /// Its blocks cannot be shared.
    Foreign,
}

impl Shared {
    fn problem(&self, path: &[u8], problem: impl Into<Problem>) {
        let problem = problem.into();
        if let Problem::Target(ZplError::Begin(BeginError::Tx(_))) = problem {
            // This problem is reported once.
            if self.is_stopped.swap(true, Ordering::Relaxed) {
                return;
            }
        }
        lock(&self.problems).push((path.to_vec(), problem));
    }

    /// The writable object of a source file, with its version; `Some(None)`: the file is in a snapshot and cannot
    /// change. `None`: the file has changed, or its blocks cannot be shared. The source dataset cannot be destroyed
    /// until the copy ends.
    fn newest(&self, node: &Node) -> Option<Option<(LiveObject, u64)>> {
        if let Some(live) = node.object().live() {
            return Some(Some((live.clone(), live.version())));
        }
        let set = node.object().objset();
        let number = set.number();
        let known = lock(&self.origins).get(&number).cloned();
        let origin = known.unwrap_or_else(|| {
            let heads = self.pool.heads();
            let origin = match heads.hold_snapshot(ObjectId(number), set.root()) {
                Ok(hold) => Origin::Snapshot { root: *set.root(), _hold: Arc::new(hold) },
                // The id is not that of an existing snapshot with this root.
                Err(_) => heads.open(ObjectId(number)).map_or(Origin::Foreign, Origin::Head),
            };
            lock(&self.origins).entry(number).or_insert(origin).clone()
        });
        match origin {
            Origin::Snapshot { root, .. } => (root == *set.root()).then_some(None),
            Origin::Head(head) => {
                let live = head.set.object(node.id()).ok()?;
                let version = live.version();
                (live.read().dnode() == node.object().dnode()).then_some(Some((live, version)))
            }
            Origin::Foreign => None,
        }
    }

    fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed) || self.options.cancel.is_cancelled()
    }

    /// A unique temporary name for an incomplete file.
    fn temporary_name(&self) -> Vec<u8> {
        let number = self.temporary.fetch_add(1, Ordering::Relaxed);
        format!(".cenote.{}.{number}", rustix::process::getpid().as_raw_nonzero()).into_bytes()
    }
}

/// A copy in progress.
pub struct Importer<'i> {
    shared: Arc<Shared>,
    queue: &'i Queue<'i, Vec<FileJob>>,
    observer: &'i mut dyn Observer,
    batch: Vec<FileJob>,
    batch_bytes: u64,
    reported_bytes: u64,
    failures: u64,
    minor: u64,
}

/// Copies into a file system: runs `lead`, which calls methods of the [`Importer`]. Returns the result of `lead`
/// and the counts when all files are created.
pub fn import<T>(
    to: &FilesystemWriter,
    options: &Options,
    observer: &mut dyn Observer,
    lead: impl FnOnce(&mut Importer<'_>) -> T,
) -> (T, Summary) {
    let shared = Arc::new(Shared {
        fs: Arc::clone(to.fs()),
        pool: Arc::clone(to.pool()),
        clones: PoolClones::new(to.pool().brt()),
        origins: Mutex::default(),
        options: options.clone(),
        owner: to.owner(),
        files: AtomicU64::new(0),
        dirs: AtomicU64::new(0),
        bytes: AtomicU64::new(0),
        problems: Mutex::default(),
        links: Mutex::default(),
        temporary: AtomicU64::new(0),
        is_stopped: AtomicBool::new(false),
    });
    let threads = match options.threads {
        0 => to.pool().env().workers(),
        threads => threads,
    };
    let work = |batch: Vec<FileJob>| batch.into_iter().for_each(FileJob::run);
    with_workers(threads, &work, |queue| {
        let mut importer = Importer {
            shared: Arc::clone(&shared),
            queue,
            observer,
            batch: Vec::new(),
            batch_bytes: 0,
            reported_bytes: 0,
            failures: 0,
            minor: 0,
        };
        let result = lead(&mut importer);
        importer.finish();
        (result, importer.summary())
    })
}

impl Importer<'_> {
    /// Opens an existing directory to be filled. It keeps its attributes.
    ///
    /// # Errors
    /// The file is not a directory, or cannot be read.
    pub fn top(&self, id: ObjectId, display_path: &[u8]) -> Result<Folder, ZplError> {
        Dir::existing(&self.shared, id, display_path, None).map(Folder)
    }

    /// Creates a directory, or opens the existing one; without a name, returns `above` itself. The directory gets
    /// its attributes when the last reference is dropped. `None`: this failed and was reported.
    fn enter(
        &mut self,
        above: &DirRef,
        name: Option<&[u8]>,
        display_path: &[u8],
        meta: Meta,
    ) -> Option<DirRef> {
        if self.shared.is_stopped() {
            return None;
        }
        self.observer.begins(display_path);
        let made = match name {
            Some(name) => Dir::make(above, name, display_path, meta),
            None => Dir::existing(&self.shared, above.id, display_path, Some((above, meta)))
                .map_err(Problem::from),
        };
        match made {
            Ok(dir) => Some(dir),
            Err(problem) => {
                self.shared.problem(display_path, problem);
                self.report_progress();
                None
            }
        }
    }

    /// Queues a file to be created. `bytes`: memory that it holds or will need.
    fn file(&mut self, job: FileJob, bytes: u64) {
        if self.shared.is_stopped() {
            return;
        }
        self.observer.begins(&job.display_path);
        self.batch.push(job);
        self.batch_bytes += bytes;
        if self.batch.len() >= BATCH_FILES || self.batch_bytes >= BATCH_BYTES {
            self.flush();
        }
    }

    fn flush(&mut self) {
        if !self.batch.is_empty() {
            self.queue.push(std::mem::take(&mut self.batch));
            self.batch_bytes = 0;
            self.report_progress();
        }
    }

    /// Waits until all queued files are created.
    pub fn finish(&mut self) {
        self.flush();
        let queue = self.queue;
        queue.finish_reporting(&mut || self.report_progress());
        self.report_progress();
    }

    /// Reports a problem with a path to the observer.
    pub(crate) fn problem(&mut self, display_path: &[u8], problem: impl Into<Problem>) {
        self.shared.problem(display_path, problem);
        self.report_progress();
    }

    /// Reports progress since the last call to the observer.
    fn report_progress(&mut self) {
        let bytes = self.shared.bytes.load(Ordering::Relaxed);
        if bytes > self.reported_bytes {
            self.observer.copied(bytes - self.reported_bytes);
            self.reported_bytes = bytes;
        }
        let problems = std::mem::take(&mut *lock(&self.shared.problems));
        for (path, problem) in problems {
            if problem.is_minor() {
                self.minor += 1;
            } else {
                self.failures += 1;
            }
            self.observer.problem(&path, &problem);
        }
    }

    fn summary(&self) -> Summary {
        Summary {
            files: self.shared.files.load(Ordering::Relaxed),
            dirs: self.shared.dirs.load(Ordering::Relaxed),
            bytes: self.shared.bytes.load(Ordering::Relaxed),
            failures: self.failures,
            minor: self.minor,
        }
    }
}
