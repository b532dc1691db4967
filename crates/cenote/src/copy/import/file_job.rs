//! Creates one file of the target that is not a directory: a regular file, symbolic link, device, pipe or socket.
//!
//! A [`FileJob`] runs on a worker thread. Its [`JobSource`] opens the source and calls [`FileJob::create`] with the
//! attributes and the content. The modules `from_host`, `from_pool` and `from_tar` have the sources.
//!
//! # Order
//! create, under a temporary name if the name is taken -> content -> attributes -> rename to the final name.
//! A step that fails removes the file.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use format::ObjectId;
use zpl::WriteHow;
use zpl::{FileKind, Node, ZplError};

use super::{Damaged, DirRef, Meta, Problem, lock};
use crate::copy::meta::{Content, Segment};
use crate::copy::source::known_segments;
use crate::copy::tar::{BadRange, Piece, push_bad, read_in_blocks};

/// A file to create in a directory of the target.
pub(super) struct FileJob {
    pub(super) dir: DirRef,
    pub(super) name: Vec<u8>,
    /// Path for the observer.
    pub(super) display_path: Vec<u8>,
    pub(super) source: Box<dyn JobSource>,
}

/// The source of a file: reads it and creates its copy by the methods of the job.
pub(super) trait JobSource: Send {
    /// Creates the file of `job`.
    ///
    /// # Errors
    /// The source could not be read or the file could not be created; the caller reports it.
    fn make(&self, job: &FileJob) -> Result<(), Problem>;
}

/// A placeholder for a job that is not run, because its owner creates the file itself.
pub(super) struct NoSource;

impl JobSource for NoSource {
    fn make(&self, _: &FileJob) -> Result<(), Problem> {
        Ok(())
    }
}

/// Content of a new file.
pub(super) enum Body<'b> {
    /// Content of a file of a pool; its blocks are shared if possible.
    Node(&'b Node),
    Data {
        content: &'b dyn Content,
        segments: &'b [Segment],
    },
    Target(&'b [u8]),
    None,
}

/// A new file that is incomplete.
pub(super) struct NewFileHandle {
    pub(super) id: ObjectId,
    /// Temporary name; `None` if it has its final name.
    temporary: Option<Vec<u8>>,
}

impl FileJob {
    /// Creates the file, and reports a problem.
    pub(super) fn run(self) {
        if self.dir.shared.is_stopped() {
            return;
        }
        if let Err(problem) = self.source.make(&self) {
            self.problem(problem);
        }
    }

    pub(super) fn problem(&self, problem: impl Into<Problem>) {
        self.dir.shared.problem(&self.display_path, problem);
    }

    /// Creates a file with several names in the source: `make` creates it at the first name, the others
    /// become hard links.
    pub(super) fn once(
        &self,
        key: (u64, u64),
        links: u64,
        make: impl FnOnce() -> Result<Option<ObjectId>, Problem>,
    ) -> Result<(), Problem> {
        if links <= 1 {
            return make().map(|_| ());
        }
        let mut known = lock(&self.dir.shared.links);
        let Some((id, left)) = known.get_mut(&key) else {
            if let Some(id) = make()? {
                known.insert(key, (id, links - 1));
            }
            return Ok(());
        };
        let id = *id;
        *left = left.saturating_sub(1);
        if *left == 0 {
            known.remove(&key);
        }
        drop(known);
        self.link(id)
    }

    /// Creates a hard link to a file of the target.
    pub(super) fn link(&self, id: ObjectId) -> Result<(), Problem> {
        let (dir, fs) = (&self.dir, &self.dir.shared.fs);
        match fs.link(id, dir.id, &self.name) {
            Ok(_) => {}
            Err(ZplError::Exists { .. }) => {
                if fs.lookup(dir.id, &self.name)? == Some(id) {
                    dir.shared.files.fetch_add(1, Ordering::Relaxed);
                    return Ok(());
                }
                if !self.may_replace()? {
                    return Ok(());
                }
                let temporary = dir.shared.temporary_name();
                fs.link(id, dir.id, &temporary)?;
                self.publish(&NewFileHandle { id, temporary: Some(temporary) })?;
            }
            Err(error) => return Err(error.into()),
        }
        dir.shared.files.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Creates the file. `None`: it was left out; missing content was reported.
    pub(super) fn create(&self, meta: &Meta, body: &Body<'_>) -> Result<Option<ObjectId>, Problem> {
        let target = match body {
            Body::Target(target) => target,
            _ => &[][..],
        };
        let Some(handle) = self.begin(meta, target)? else { return Ok(None) };
        match self.fill(&handle, meta, body) {
            Ok(true) => {
                self.publish(&handle)?;
                self.dir.shared.files.fetch_add(1, Ordering::Relaxed);
                Ok(Some(handle.id))
            }
            Ok(false) => {
                self.discard(&handle);
                Ok(None)
            }
            Err(problem) => {
                self.discard(&handle);
                Err(problem)
            }
        }
    }

    /// Creates an empty file, under a temporary name if its name exists. `None`: the existing file is kept.
    pub(super) fn begin(&self, meta: &Meta, target: &[u8]) -> Result<Option<NewFileHandle>, Problem> {
        let (dir, fs) = (&self.dir, &self.dir.shared.fs);
        let new = dir.new_file(meta, target);
        let handle = match fs.create(dir.id, &self.name, &new) {
            Ok(made) => NewFileHandle { id: made.id, temporary: None },
            Err(ZplError::Exists { .. }) => {
                if !self.may_replace()? {
                    return Ok(None);
                }
                let temporary = dir.shared.temporary_name();
                NewFileHandle { id: fs.create(dir.id, &temporary, &new)?.id, temporary: Some(temporary) }
            }
            Err(error) => return Err(error.into()),
        };
        if let Err(error) = dir.drop_inherited(handle.id) {
            self.discard(&handle);
            return Err(error.into());
        }
        Ok(Some(handle))
    }

    /// False if an existing file must be kept.
    fn may_replace(&self) -> Result<bool, Problem> {
        let (dir, fs) = (&self.dir, &self.dir.shared.fs);
        if dir.shared.options.keep_existing {
            return Ok(false);
        }
        if let Some(id) = fs.lookup(dir.id, &self.name)?
            && FileKind::from_mode(fs.attrs(id)?.mode) == Some(FileKind::Directory)
        {
            return Err(Problem::InTheWay { kind: FileKind::Directory });
        }
        Ok(true)
    }

    /// Writes content and attributes. False: the content is incomplete and the file must be left out, or the copy
    /// was cancelled.
    fn fill(&self, handle: &NewFileHandle, meta: &Meta, body: &Body<'_>) -> Result<bool, Problem> {
        let bad = match body {
            Body::Data { content, segments } => self.write(handle.id, *content, segments)?,
            Body::Node(node) if !self.share(handle.id, node)? => {
                self.write(handle.id, *node, &known_segments(*node))?
            }
            _ => Some(Vec::new()),
        };
        let Some(bad) = bad else { return Ok(false) };
        if !bad.is_empty() {
            let left_out = self.dir.shared.options.damaged == Damaged::LeaveOut;
            self.problem(Problem::Damaged { ranges: bad, left_out });
            if left_out {
                return Ok(false);
            }
        }
        self.dir.attributes(handle.id, &self.display_path, meta)?;
        Ok(true)
    }

    /// Shares the blocks of a file of the same pool with a new file, without reading them: damaged blocks are
    /// damaged in both. False: the content must be copied.
    fn share(&self, id: ObjectId, node: &Node) -> Result<bool, ZplError> {
        let (shared, size) = (&self.dir.shared, node.attrs().size);
        if size == 0 || !Arc::ptr_eq(node.object().objset().store(), shared.fs.set().store()) {
            return Ok(false);
        }
        let Some(live) = shared.newest(node) else { return Ok(false) };
        match shared.fs.clone_file(node, live.as_ref(), id, &shared.clones) {
            Ok(()) => {
                shared.bytes.fetch_add(size, Ordering::Relaxed);
                Ok(true)
            }
            Err(
                ZplError::CannotClone { .. } | ZplError::NotYetWritten { .. } | ZplError::Unsupported { .. },
            ) => {
                // Some blocks may have been shared.
                if shared.fs.attrs(id)?.size > 0 {
                    shared.fs.truncate(id, 0, false)?;
                }
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Copies the content. Returns the ranges that could not be read; `None` if the copy was cancelled.
    fn write(
        &self,
        id: ObjectId,
        content: &dyn Content,
        segments: &[Segment],
    ) -> Result<Option<Vec<BadRange>>, ZplError> {
        let (shared, size) = (&self.dir.shared, content.size());
        let is_whole = *segments == [Segment { offset: 0, len: size }];
        if !is_whole && size > 0 {
            // Before the data, so that the file has its final block size.
            shared.fs.truncate(id, size, false)?;
        }
        let (mut bad, mut failure) = (Vec::new(), None);
        for segment in segments {
            let read = read_in_blocks(content, *segment, &mut |piece| match piece {
                _ if shared.options.cancel.is_cancelled() => Err(io::ErrorKind::Other.into()),
                Piece::Data(offset, bytes) => {
                    let done = shared.fs.write(id, offset, bytes, &WriteHow::default());
                    shared.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
                    done.map(|_| ()).map_err(|error| {
                        failure = Some(error);
                        io::ErrorKind::Other.into()
                    })
                }
                Piece::Bad(range) => {
                    push_bad(&mut bad, range);
                    Ok(())
                }
            });
            if let (Err(_), Some(failure)) = (read, failure.take()) {
                return Err(failure);
            }
        }
        if shared.options.cancel.is_cancelled() {
            return Ok(None);
        }
        // The end of a file whose last block could not be read.
        if is_whole && !bad.is_empty() {
            shared.fs.truncate(id, size, false)?;
        }
        Ok(Some(bad))
    }

    /// Gives a complete file its final name.
    pub(super) fn publish(&self, handle: &NewFileHandle) -> Result<(), Problem> {
        let (dir, fs) = (&self.dir, &self.dir.shared.fs);
        let Some(temporary) = &handle.temporary else { return Ok(()) };
        let renamed = fs.rename(dir.id, temporary, dir.id, &self.name, Default::default());
        if renamed.is_err() {
            self.discard(handle);
        }
        Ok(renamed?)
    }

    /// Removes an incomplete file.
    pub(super) fn discard(&self, handle: &NewFileHandle) {
        let name = handle.temporary.as_ref().unwrap_or(&self.name);
        // An error here is ignored, because the caller returns an earlier one.
        let _ = self.dir.shared.fs.unlink(self.dir.id, name);
    }
}
