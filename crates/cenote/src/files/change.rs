//! Changes of attributes of whole directory trees.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use format::ObjectId;
use zpl::{Attrs, FileKind, ZplError};

use super::remove::{BATCH, DEPTH_MAX, TreeObserver, join};
use super::{FilesystemWriter, NewAttrs};
use crate::Error;
use crate::worker_pool::with_workers;
use vdev::sync::lock;

/// Result counts of [`FilesystemWriter::change_all`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Changed {
    /// Files and directories visited.
    pub seen: u64,
    /// Files and directories that could not be read or changed.
    pub failures: u64,
}

/// Files of one job: object id and path of each.
type Batch = Vec<(ObjectId, Vec<u8>)>;

impl FilesystemWriter {
    /// Changes the attributes of a file, or of a directory and everything in it, with several threads. `new`
    /// returns the changes of each file, `None` for no change; it is called from several threads. `follow`
    /// applies to a symbolic link at the end of `path`; links below are changed themselves, not followed.
    ///
    /// # Errors
    /// [`Error::NoSuchPath`]; [`Error::Path`] if the path cannot be read.
    pub fn change_all(
        &self,
        path: &[u8],
        follow: bool,
        new: &(dyn Fn(&Attrs) -> Option<NewAttrs> + Sync),
        observer: &mut dyn TreeObserver,
    ) -> Result<Changed, Error> {
        let top = if follow { self.resolve(path)? } else { self.resolve_link(path)? };
        let problems: Mutex<Vec<(Vec<u8>, ZplError)>> = Mutex::default();
        let seen = AtomicU64::new(0);
        let work = |batch: Batch| {
            for (id, path) in batch {
                if let Err(error) = self.change_one(id, new) {
                    lock(&problems).push((path, error));
                }
                seen.fetch_add(1, Ordering::Relaxed);
            }
        };
        let mut failures = 0;
        let mut tell = || -> bool {
            for (path, error) in std::mem::take(&mut *lock(&problems)) {
                failures += 1;
                observer.problem(&path, &error);
            }
            observer.progress(seen.load(Ordering::Relaxed));
            observer.is_stopped()
        };
        with_workers(self.pool().env().workers(), &work, |queue| {
            let mut stack = vec![(top, path.strip_suffix(b"/").unwrap_or(path).to_vec(), 0)];
            queue.push(vec![(top, path.to_vec())]);
            while let Some((dir, path, cursor)) = stack.pop() {
                let below = stack.len();
                let (batch, next) = match self.batch(dir, &path, cursor, &mut stack) {
                    Ok(read) => read,
                    Err(error) => {
                        lock(&problems).push((path, error));
                        continue;
                    }
                };
                if let Some(cursor) = next {
                    // Below the directories found last, so that memory is bounded by the depth of the tree.
                    stack.insert(below, (dir, path, cursor));
                }
                if !batch.is_empty() {
                    queue.push(batch);
                    if tell() {
                        break;
                    }
                }
            }
            queue.finish_reporting(&mut || {
                tell();
            });
        });
        tell();
        self.changed(top)?;
        Ok(Changed { seen: seen.into_inner(), failures })
    }

    /// The next entries of a directory, if it is one; directories among them go on the stack.
    fn batch(
        &self,
        dir: ObjectId,
        path: &[u8],
        cursor: u64,
        stack: &mut Vec<(ObjectId, Vec<u8>, u64)>,
    ) -> Result<(Batch, Option<u64>), ZplError> {
        let fs = self.fs();
        if FileKind::from_mode(fs.attrs(dir)?.mode) != Some(FileKind::Directory) {
            return Ok((Vec::new(), None));
        }
        let entries = fs.read_dir(dir, cursor, BATCH)?;
        let next = (entries.len() == BATCH).then(|| entries.last().map(|last| last.cursor)).flatten();
        let mut batch = Vec::new();
        for entry in entries {
            let path = join(path, &entry.name);
            if matches!(entry.kind_hint, Some(FileKind::Directory) | None) {
                // Ends directories that contain themselves.
                if path.len() > DEPTH_MAX * 8 {
                    return Err(ZplError::NotPermitted { object: entry.id, why: "the tree is too deep" });
                }
                stack.push((entry.id, path.clone(), 0));
            }
            batch.push((entry.id, path));
        }
        Ok((batch, next))
    }

    fn change_one(
        &self,
        id: ObjectId,
        new: &(dyn Fn(&Attrs) -> Option<NewAttrs> + Sync),
    ) -> Result<(), ZplError> {
        let attrs = self.fs().attrs(id)?;
        match new(&attrs) {
            Some(new) => self.fs().set_attrs(id, &new).map(|_| ()),
            None => Ok(()),
        }
    }
}
