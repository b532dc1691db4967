//! Makes one file: regular, link, device.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use format::ObjectId;
use zpl::WriteHow;
use zpl::{FileKind, Node, ZplError};

use super::from_host::HostFile;
use super::{Damaged, DirRef, Kind, Meta, Problem, lock};
use crate::copy::meta::{Content, Segment};
use crate::copy::source::{full_meta, known_segments};
use crate::copy::tar::{BadRange, Piece, push_bad, read_in_blocks};
use crate::copy::walk::Trouble;

/// A file to be made.
pub(super) struct Job {
    pub(super) dir: DirRef,
    pub(super) name: Vec<u8>,
    pub(super) shown: Vec<u8>,
    pub(super) source: Source,
}

/// Where it comes from.
pub(super) enum Source {
    Host(HostFile),
    Pool(Box<Node>),
    Memory(Box<InMemory>),
    /// It is made by whoever holds the job.
    Nothing,
}

/// A file that was read already: segments of data, one after the other.
pub(super) struct InMemory {
    pub(super) meta: Meta,
    pub(super) target: Vec<u8>,
    pub(super) segments: Vec<Segment>,
    pub(super) data: Vec<u8>,
}

impl Content for InMemory {
    fn size(&self) -> u64 {
        self.meta.size
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let mut start = 0;
        for segment in &self.segments {
            if (segment.offset..segment.offset + segment.len).contains(&offset) {
                let at = start + (offset - segment.offset) as usize;
                let bytes = self.data.get(at..at + buf.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
                buf.copy_from_slice(bytes);
                return Ok(());
            }
            start += segment.len as usize;
        }
        Err(io::ErrorKind::UnexpectedEof.into())
    }

    fn next_data(&self, _: u64) -> io::Result<Option<u64>> {
        Ok(None)
    }

    fn next_hole(&self, _: u64) -> io::Result<u64> {
        Ok(self.meta.size)
    }

    fn block_size(&self) -> u64 {
        512
    }
}

/// What a file holds.
pub(super) enum Body<'b> {
    /// What a file of a pool holds: its blocks are shared where that is possible.
    Node(&'b Node),
    Data {
        content: &'b dyn Content,
        segments: &'b [Segment],
    },
    Target(&'b [u8]),
    None,
}

/// A file under the name it has until it is whole.
pub(super) struct Begun {
    pub(super) id: ObjectId,
    /// `None`: its own.
    temporary: Option<Vec<u8>>,
}

impl Job {
    pub(super) fn shown(&self) -> &[u8] {
        &self.shown
    }

    pub(super) fn run(self) {
        if self.dir.shared.is_stopped() {
            return;
        }
        let made = match &self.source {
            Source::Host(file) => file.make(&self),
            Source::Pool(node) => self.make_copy(node),
            Source::Memory(file) => {
                let body = match file.meta.kind {
                    Kind::Regular => Body::Data { content: &**file, segments: &file.segments },
                    Kind::Symlink => Body::Target(&file.target),
                    _ => Body::None,
                };
                self.place(&file.meta, &body).map(|_| ())
            }
            Source::Nothing => Ok(()),
        };
        if let Err(problem) = made {
            self.problem(problem);
        }
    }

    pub(super) fn problem(&self, problem: impl Into<Problem>) {
        self.dir.shared.problem(&self.shown, problem);
    }

    fn make_copy(&self, node: &Node) -> Result<(), Problem> {
        let key = (node.object().objset().number(), node.id().0);
        self.check_not_itself(node)?;
        self.once(key, node.attrs().links, || {
            let (meta, errors) = full_meta(node);
            errors.into_iter().for_each(|error| self.problem(Problem::Attributes(error)));
            match meta.kind {
                Kind::Regular => self.place(&meta, &Body::Node(node)),
                Kind::Symlink => {
                    let target = node.readlink().map_err(Trouble::from)?;
                    self.place(&meta, &Body::Target(&target))
                }
                _ => self.place(&meta, &Body::None),
            }
        })
    }

    fn check_not_itself(&self, node: &Node) -> Result<(), Problem> {
        let fs = &self.dir.shared.fs;
        let is_same_set = Arc::ptr_eq(node.filesystem(), fs.reader());
        if is_same_set && fs.lookup(self.dir.id, &self.name)? == Some(node.id()) {
            return Err(Problem::SameFile);
        }
        Ok(())
    }

    /// Makes a file that has several names in the source at the first of them, and links at the others.
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

    /// Makes it one more name of a file of the target.
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
                self.end(&Begun { id, temporary: Some(temporary) })?;
            }
            Err(error) => return Err(error.into()),
        }
        dir.shared.files.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Makes the file. `None`: it was left out, which was told where it is a loss.
    pub(super) fn place(&self, meta: &Meta, body: &Body<'_>) -> Result<Option<ObjectId>, Problem> {
        let target = match body {
            Body::Target(target) => target,
            _ => &[][..],
        };
        let Some(begun) = self.begin(meta, target)? else { return Ok(None) };
        match self.fill(&begun, meta, body) {
            Ok(true) => {
                self.end(&begun)?;
                self.dir.shared.files.fetch_add(1, Ordering::Relaxed);
                Ok(Some(begun.id))
            }
            Ok(false) => {
                self.give_up(&begun);
                Ok(None)
            }
            Err(problem) => {
                self.give_up(&begun);
                Err(problem)
            }
        }
    }

    /// Makes an empty file, under another name if something has its own. `None`: that stays.
    pub(super) fn begin(&self, meta: &Meta, target: &[u8]) -> Result<Option<Begun>, Problem> {
        let (dir, fs) = (&self.dir, &self.dir.shared.fs);
        let new = dir.new_file(meta, target);
        let begun = match fs.create(dir.id, &self.name, &new) {
            Ok(made) => Begun { id: made.id, temporary: None },
            Err(ZplError::Exists { .. }) => {
                if !self.may_replace()? {
                    return Ok(None);
                }
                let temporary = dir.shared.temporary_name();
                Begun { id: fs.create(dir.id, &temporary, &new)?.id, temporary: Some(temporary) }
            }
            Err(error) => return Err(error.into()),
        };
        if let Err(error) = dir.drop_inherited(begun.id) {
            self.give_up(&begun);
            return Err(error.into());
        }
        Ok(Some(begun))
    }

    /// False: what has the name stays, as was asked for.
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

    /// Content and attributes. False: it could not be read whole, and is not wanted so; or all is to end.
    fn fill(&self, begun: &Begun, meta: &Meta, body: &Body<'_>) -> Result<bool, Problem> {
        let bad = match body {
            Body::Data { content, segments } => self.write(begun.id, *content, segments)?,
            Body::Node(node) if !self.share(begun.id, node)? => {
                self.write(begun.id, *node, &known_segments(*node))?
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
        self.dir.attributes(begun.id, &self.shown, meta)?;
        Ok(true)
    }

    /// Makes a new file one that shares the blocks of another of its pool. Nothing is read: what is damaged there
    /// is here too. False: it has to be copied.
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
                // Some of it may have been shared.
                if shared.fs.attrs(id)?.size > 0 {
                    shared.fs.truncate(id, 0, false)?;
                }
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Ranges that could not be read. `None`: it was to end before it was done.
    fn write(
        &self,
        id: ObjectId,
        content: &dyn Content,
        segments: &[Segment],
    ) -> Result<Option<Vec<BadRange>>, ZplError> {
        let (shared, size) = (&self.dir.shared, content.size());
        let is_whole = *segments == [Segment { offset: 0, len: size }];
        if !is_whole && size > 0 {
            // First, so that it has blocks of its final size.
            shared.fs.truncate(id, size, false)?;
        }
        let (mut bad, mut failure) = (Vec::new(), None);
        for segment in segments {
            let read = read_in_blocks(content, *segment, &mut |piece| match piece {
                _ if shared.options.stop.is_asked() => Err(io::ErrorKind::Other.into()),
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
        if shared.options.stop.is_asked() {
            return Ok(None);
        }
        // The end of a file whose last block could not be read.
        if is_whole && !bad.is_empty() {
            shared.fs.truncate(id, size, false)?;
        }
        Ok(Some(bad))
    }

    /// The file is whole: it gets its name.
    pub(super) fn end(&self, begun: &Begun) -> Result<(), Problem> {
        let (dir, fs) = (&self.dir, &self.dir.shared.fs);
        let Some(temporary) = &begun.temporary else { return Ok(()) };
        let renamed = fs.rename(dir.id, temporary, dir.id, &self.name, Default::default());
        if renamed.is_err() {
            self.give_up(begun);
        }
        Ok(renamed?)
    }

    /// The file goes again.
    pub(super) fn give_up(&self, begun: &Begun) {
        let name = begun.temporary.as_ref().unwrap_or(&self.name);
        // On the way out with an error that matters more.
        let _ = self.dir.shared.fs.unlink(self.dir.id, name);
    }
}
