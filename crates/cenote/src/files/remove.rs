//! Recursive removal of directory trees.
//!
//! One thread reads directories in batches; worker threads remove the files. A directory is removed when all
//! its entries are.
//!
//! # What always holds
//! - Memory is bounded by the depth of the tree and the queued batches, not by the number of files.
//! - Symbolic links are removed, never followed.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use format::ObjectId;
use zpl::Fs;
use zpl::{FileKind, ZplError};

use super::FilesystemWriter;
use super::last::{Finish, Last};
use crate::Error;
use crate::worker_pool::{Queue, with_workers};
use vdev::sync::lock;

/// Number of entries that are read from a directory together and removed by one job.
pub(super) const BATCH: usize = 256;
/// Maximum depth of directories.
pub(super) const DEPTH_MAX: usize = 16 << 10;

/// Observer of an operation on a directory tree.
pub trait TreeObserver {
    /// Called with the number of files that are done so far.
    fn progress(&mut self, done: u64) {
        let _ = done;
    }

    /// True if the operation must end early and leave the rest unchanged.
    fn is_stopped(&self) -> bool {
        false
    }

    /// Called for each path at which the operation failed.
    fn problem(&mut self, path: &[u8], error: &ZplError);
}

/// Result counts of [`FilesystemWriter::remove_all`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Removed {
    /// Names removed, directories excluded.
    pub files: u64,
    /// Directories removed.
    pub dirs: u64,
    /// Names that could not be removed.
    pub failures: u64,
}

/// State shared by all threads.
struct Shared {
    fs: Arc<Fs>,
    files: AtomicU64,
    dirs: AtomicU64,
    problems: Mutex<Vec<(Vec<u8>, ZplError)>>,
}

/// A directory that is removed when its last reference is dropped.
struct Dir {
    shared: Arc<Shared>,
    id: ObjectId,
    /// Object id of the parent directory, and the name in it.
    parent: ObjectId,
    name: Vec<u8>,
    path: Vec<u8>,
    above: Option<DirRef>,
    /// An entry of the directory could not be removed and was reported.
    is_kept: AtomicBool,
}

/// A reference to a directory.
type DirRef = Last<Dir>;

impl Finish for Dir {
    fn finish(&self) {
        self.remove();
    }

    fn into_above(self) -> Option<DirRef> {
        self.above
    }
}

impl Dir {
    fn problem(&self, path: Vec<u8>, error: ZplError) {
        self.is_kept.store(true, Ordering::Relaxed);
        lock(&self.shared.problems).push((path, error));
    }

    fn remove(&self) {
        if !self.is_kept.load(Ordering::Relaxed) {
            match self.shared.fs.rmdir(self.parent, &self.name) {
                Ok(()) => {
                    self.shared.dirs.fetch_add(1, Ordering::Relaxed);
                    return;
                }
                Err(ZplError::NotFound { .. }) => return,
                Err(error) => self.problem(self.path.clone(), error),
            }
        }
        if let Some(above) = &self.above {
            above.is_kept.store(true, Ordering::Relaxed);
        }
    }
}

/// Names to remove from a directory.
struct Batch {
    dir: DirRef,
    names: Vec<Vec<u8>>,
}

impl Batch {
    fn remove(self) {
        for name in &self.names {
            match self.dir.shared.fs.unlink(self.dir.id, name) {
                Ok(()) => {
                    self.dir.shared.files.fetch_add(1, Ordering::Relaxed);
                }
                Err(ZplError::NotFound { .. }) => {}
                Err(error) => self.dir.problem(join(&self.dir.path, name), error),
            }
        }
    }
}

/// A directory whose entries are being read.
struct Level {
    dir: DirRef,
    cursor: u64,
    /// Directories of the last batch that were not entered yet.
    below: Vec<(Vec<u8>, ObjectId)>,
    is_read: bool,
}

impl FilesystemWriter {
    /// Removes the file at `path`, or the directory and its contents, with several threads. Entries that cannot be
    /// removed stay, with the directories above them, and are reported to `observer`.
    ///
    /// # Errors
    /// [`Error::NoSuchPath`]; [`Error::Path`] if `path` is the root of the file system.
    pub fn remove_all(&self, path: &[u8], observer: &mut dyn TreeObserver) -> Result<Removed, Error> {
        let at = self.find(path, false)?;
        let missing = || Error::NoSuchPath { dataset: self.name().to_owned(), path: path.to_vec() };
        let id = at.id.ok_or_else(missing)?;
        if at.name.is_empty() {
            return Err(self.at(path)(ZplError::NotPermitted { object: id, why: "the root stays" }));
        }
        let is_dir = FileKind::from_mode(self.fs().attrs(id)?.mode) == Some(FileKind::Directory);
        if !is_dir {
            self.remove(path)?;
            return Ok(Removed { files: 1, ..Removed::default() });
        }
        let shared = Arc::new(Shared {
            fs: Arc::clone(self.fs()),
            files: AtomicU64::new(0),
            dirs: AtomicU64::new(0),
            problems: Mutex::default(),
        });
        let top = Dir {
            shared: Arc::clone(&shared),
            id,
            parent: at.dir,
            name: at.name,
            path: path.strip_suffix(b"/").unwrap_or(path).to_vec(),
            above: None,
            is_kept: AtomicBool::new(false),
        };
        let mut failures = 0;
        let threads = self.pool().env().workers();
        let mut tell = || -> bool {
            for (path, error) in std::mem::take(&mut *lock(&shared.problems)) {
                failures += 1;
                observer.problem(&path, &error);
            }
            observer.progress(shared.files.load(Ordering::Relaxed) + shared.dirs.load(Ordering::Relaxed));
            observer.is_stopped()
        };
        with_workers(threads, &Batch::remove, |queue| {
            walk(DirRef::new(top), queue, &mut tell);
            queue.finish_reporting(&mut || {
                tell();
            });
        });
        tell();
        self.changed(at.dir)?;
        let (files, dirs) = (shared.files.load(Ordering::Relaxed), shared.dirs.load(Ordering::Relaxed));
        Ok(Removed { files, dirs, failures })
    }
}

fn walk(top: DirRef, queue: &Queue<'_, Batch>, tell: &mut dyn FnMut() -> bool) {
    let level = |dir: DirRef| Level { dir, cursor: 0, below: Vec::new(), is_read: false };
    let mut stack = vec![level(top)];
    while let Some(last) = stack.last_mut() {
        let here = last.dir.clone();
        if let Some((name, id)) = last.below.pop() {
            let path = join(&here.path, &name);
            if stack.len() >= DEPTH_MAX {
                let why = "the tree is too deep";
                here.problem(path, ZplError::NotPermitted { object: id, why });
                continue;
            }
            let (shared, parent) = (Arc::clone(&here.shared), here.id);
            let (above, is_kept) = (Some(here), AtomicBool::new(false));
            stack.push(level(DirRef::new(Dir { shared, id, parent, name, path, above, is_kept })));
            continue;
        }
        if last.is_read {
            stack.pop();
            continue;
        }
        match read_batch(&here, last) {
            Ok(names) if names.is_empty() => {}
            Ok(names) => {
                queue.push(Batch { dir: here, names });
                if tell() {
                    // Directories that are not empty stay and are not reported.
                    stack.iter().for_each(|level| level.dir.is_kept.store(true, Ordering::Relaxed));
                    return;
                }
            }
            Err(error) => {
                last.is_read = true;
                here.problem(here.path.clone(), error);
            }
        }
    }
}

/// The names of files in the next batch of a directory; its directories are left in the level.
fn read_batch(dir: &Dir, level: &mut Level) -> Result<Vec<Vec<u8>>, ZplError> {
    // The cursor is a position in the order of hashes: it stays valid while earlier entries are removed.
    let fs = &dir.shared.fs;
    let entries = fs.read_dir(dir.id, level.cursor, BATCH)?;
    level.is_read = entries.len() < BATCH;
    let mut names = Vec::new();
    for entry in entries {
        level.cursor = entry.cursor;
        // The type in the entry may be wrong: a directory must never be unlinked.
        let is_dir = match entry.kind_hint {
            Some(FileKind::Directory) | None => {
                let attrs = fs.attrs(entry.id);
                attrs.is_ok_and(|attrs| FileKind::from_mode(attrs.mode) == Some(FileKind::Directory))
            }
            Some(_) => false,
        };
        if is_dir {
            level.below.push((entry.name, entry.id));
        } else {
            names.push(entry.name);
        }
    }
    Ok(names)
}

pub(super) fn join(above: &[u8], name: &[u8]) -> Vec<u8> {
    [above, b"/", name].concat()
}
