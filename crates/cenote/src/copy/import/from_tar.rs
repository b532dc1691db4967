//! Copies from a tar archive.
//!
//! # What always holds
//! - Every member is unpacked below the directory that is filled: leading slashes of its name are dropped, a name
//!   with `..` is refused, and symbolic links are not followed, wherever they came from.
//! - Members with the same name replace each other in the order of the archive.
//! - Directories get their times at the end, whatever the order of the archive.

use std::collections::{HashMap, HashSet};
use std::io::{self, Read};

use format::ObjectId;
use zpl::{FileKind, ZplError};
use zpl::{NewAttrs, NewFile, WriteHow};

use super::dir::Dir;
use super::file_job::{Body, FileJob, JobSource, NoSource};
use super::{DirRef, Folder, Importer, Kind, Meta, Problem};
use crate::copy::host::Lost;
use crate::copy::meta::{Content, Segment, Stamp};
use crate::copy::untar::{Entry, Member, TarError, TarReader, clean_name};
use std::sync::atomic::Ordering;

/// Files with at most this many bytes of data are read into memory and created by a worker thread.
const SMALL_MAX: u64 = 1 << 20;
/// Maximum number of data ranges of such a file.
const SEGMENTS_MAX: usize = 1 << 10;
/// Maximum number of names that worker threads may be creating.
const IN_FLIGHT_MAX: usize = 1 << 16;
/// Number of bytes that are read from the archive at a time.
const CHUNK: usize = 1 << 20;

/// Selects members of an archive by their names.
type Wanted<'w> = dyn Fn(&[u8]) -> bool + 'w;

struct Unpacker<'u, 'i> {
    importer: &'u mut Importer<'i>,
    top: DirRef,
    display_path: &'u [u8],
    in_flight: HashSet<(ObjectId, Vec<u8>)>,
    /// Access and change times of the archive's directories.
    times: HashMap<ObjectId, (Stamp, Stamp)>,
    /// The directory of the last member.
    last: Option<(Vec<u8>, DirRef)>,
}

/// Unpacks the members that `wanted` selects into a directory of the target. The observer gets paths that
/// begin with `display_path`.
///
/// # Errors
/// [`TarError`] if the archive cannot be read any further. Files unpacked until then are kept.
pub fn unpack<R: Read>(
    importer: &mut Importer<'_>,
    top: &Folder,
    display_path: &[u8],
    archive: &mut TarReader<R>,
    wanted: &Wanted<'_>,
) -> Result<(), TarError> {
    let mut unpacker = Unpacker {
        importer,
        top: top.0.clone(),
        display_path,
        in_flight: HashSet::new(),
        times: HashMap::new(),
        last: None,
    };
    let result = unpacker.all(archive, wanted);
    unpacker.settle();
    unpacker.last = None;
    unpacker.set_times();
    result
}

impl<'i> Unpacker<'_, 'i> {
    fn all<R: Read>(&mut self, archive: &mut TarReader<R>, wanted: &Wanted<'_>) -> Result<(), TarError> {
        while let Some(member) = archive.next()? {
            if self.importer.shared.is_stopped() {
                return Ok(());
            }
            if !wanted(&member.name) {
                continue;
            }
            let display_path = crate::copy::join(self.display_path, &member.name);
            match self.member(member, &display_path, archive) {
                Ok(()) => {}
                Err(Failure::Archive(error)) => return Err(error),
                Err(Failure::Member(problem)) => self.importer.problem(&display_path, problem),
            }
        }
        Ok(())
    }

    fn member<R: Read>(
        &mut self,
        member: Member,
        display_path: &[u8],
        archive: &mut TarReader<R>,
    ) -> Result<(), Failure> {
        let parts = clean_name(&member.name).ok_or(Problem::LeadsOut)?;
        for ignored in &member.ignored {
            self.importer.problem(
                display_path,
                Lost::Xattr(ignored.clone().into_bytes(), "not understood".to_owned()),
            );
        }
        if member.has_nfs4_acl {
            self.importer.problem(display_path, Lost::Acl);
        }
        let Some((name, above)) = parts.split_last() else {
            // The member is the directory that is filled.
            if member.meta.kind == Kind::Directory {
                self.importer.observer.begins(display_path);
                let (dir, id) = (self.top.clone(), self.top.id);
                self.directory_attributes(&dir, id, display_path, &member.meta)?;
            }
            return Ok(());
        };
        let dir = self.folder(above)?;
        if self.in_flight.contains(&(dir.id, name.to_vec())) || self.in_flight.len() >= IN_FLIGHT_MAX {
            self.settle();
        }
        if member.meta.kind == Kind::Directory {
            return Ok(self.directory(&dir, name, display_path, &member.meta)?);
        }
        let job = |source: Box<dyn JobSource>| FileJob {
            dir: dir.clone(),
            name: name.to_vec(),
            display_path: display_path.to_vec(),
            source,
        };
        match member.entry {
            Entry::HardLink(target) => {
                self.importer.observer.begins(display_path);
                let id = self.link_target(&target)?;
                Ok(job(Box::new(NoSource)).link(id)?)
            }
            Entry::Symlink(target) => {
                let bytes = attribute_bytes(&member.meta) + target.len() as u64;
                let file = InMemory { meta: member.meta, target, segments: Vec::new(), data: Vec::new() };
                self.send(job(Box::new(file)), bytes);
                Ok(())
            }
            Entry::File => {
                let stored: u64 = member.segments.iter().map(|segment| segment.len).sum();
                if stored > SMALL_MAX || member.segments.len() > SEGMENTS_MAX {
                    self.importer.observer.begins(display_path);
                    return self.large(&job(Box::new(NoSource)), &member, archive);
                }
                let mut data = vec![0; stored as usize];
                let mut at = 0;
                while let Some(rest) = data.get_mut(at..).filter(|rest| !rest.is_empty()) {
                    match archive.read_data(rest)? {
                        0 => return Err(TarError::Truncated { at: archive.position() }.into()),
                        n => at += n,
                    }
                }
                let (meta, segments) = (member.meta, member.segments);
                let bytes = attribute_bytes(&meta) + stored;
                let file = InMemory { meta, target: Vec::new(), segments, data };
                self.send(job(Box::new(file)), bytes);
                Ok(())
            }
        }
    }

    fn send(&mut self, job: FileJob, bytes: u64) {
        self.in_flight.insert((job.dir.id, job.name.clone()));
        self.importer.file(job, bytes);
        if bytes > SMALL_MAX {
            // The number of names in progress is bounded.
            self.settle();
        }
    }

    /// Waits until the other threads have created all their files.
    fn settle(&mut self) {
        self.importer.finish();
        self.in_flight.clear();
    }

    /// Creates a file that is too large for memory, and writes it while it is read.
    fn large<R: Read>(
        &mut self,
        job: &FileJob,
        member: &Member,
        archive: &mut TarReader<R>,
    ) -> Result<(), Failure> {
        let Some(handle) = job.begin(&member.meta, &[])? else { return Ok(()) };
        let done = self.large_content(handle.id, member, archive).and_then(|()| {
            Ok(job.dir.attributes(handle.id, &job.display_path, &member.meta).map_err(Problem::from)?)
        });
        if done.is_err() {
            job.discard(&handle);
            return done;
        }
        job.publish(&handle)?;
        self.importer.shared.files.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn large_content<R: Read>(
        &mut self,
        id: ObjectId,
        member: &Member,
        archive: &mut TarReader<R>,
    ) -> Result<(), Failure> {
        let fs = std::sync::Arc::clone(&self.importer.shared.fs);
        if member.segments.len() != 1 || member.segments.first().is_some_and(|s| s.len < member.meta.size) {
            fs.truncate(id, member.meta.size, false).map_err(Problem::from)?;
        }
        let mut buf = vec![0; CHUNK];
        for segment in &member.segments {
            let mut done = 0;
            while done < segment.len {
                let len = (segment.len - done).min(CHUNK as u64) as usize;
                let Some(part) = buf.get_mut(..len) else { break };
                if self.importer.shared.options.cancel.is_cancelled() {
                    return Err(TarError::Io(std::io::ErrorKind::Interrupted.into()).into());
                }
                let n = archive.read_data(part)?;
                if n == 0 {
                    return Err(TarError::Truncated { at: archive.position() }.into());
                }
                let part = part.get(..n).unwrap_or(&[]);
                fs.write(id, segment.offset + done, part, &WriteHow::default()).map_err(Problem::from)?;
                done += n as u64;
                self.importer.shared.bytes.fetch_add(n as u64, Ordering::Relaxed);
                self.importer.report_progress();
            }
        }
        Ok(())
    }

    /// Creates a directory of the archive, or opens the existing one.
    fn directory(
        &mut self,
        dir: &DirRef,
        name: &[u8],
        display_path: &[u8],
        meta: &Meta,
    ) -> Result<(), Problem> {
        self.importer.observer.begins(display_path);
        let fs = &dir.shared.fs;
        let id = match fs.create(dir.id, name, &dir.new_file(meta, &[])) {
            Ok(made) => made.id,
            Err(ZplError::Exists { .. }) => {
                let id = fs.lookup(dir.id, name)?.ok_or(ZplError::NotFound { dir: dir.id })?;
                match FileKind::from_mode(fs.attrs(id)?.mode) {
                    Some(FileKind::Directory) => id,
                    kind if dir.shared.options.keep_existing => {
                        return Err(Problem::InTheWay { kind: kind.unwrap_or(FileKind::Regular) });
                    }
                    // As in other tar programs, a file that is not a directory is replaced.
                    _ => {
                        fs.unlink(dir.id, name)?;
                        fs.create(dir.id, name, &dir.new_file(meta, &[]))?.id
                    }
                }
            }
            Err(error) => return Err(error.into()),
        };
        dir.drop_inherited(id)?;
        self.directory_attributes(dir, id, display_path, meta)?;
        dir.shared.dirs.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Sets all attributes except the times, which creating entries would change.
    fn directory_attributes(
        &mut self,
        above: &DirRef,
        id: ObjectId,
        display_path: &[u8],
        meta: &Meta,
    ) -> Result<(), Problem> {
        above.attributes(id, display_path, meta)?;
        self.times.insert(id, (meta.atime, meta.mtime));
        // The directory may have a default ACL now.
        self.last = None;
        Ok(())
    }

    fn set_times(&mut self) {
        let fs = std::sync::Arc::clone(&self.importer.shared.fs);
        for (id, (atime, mtime)) in std::mem::take(&mut self.times) {
            let new = NewAttrs { atime: Some(atime), mtime: Some(mtime), ..NewAttrs::default() };
            match fs.set_attrs(id, &new) {
                // A later member has replaced it.
                Ok(_) | Err(ZplError::Stale { .. } | ZplError::NotAFile { .. }) => {}
                Err(error) => self.importer.problem(self.display_path, error),
            }
        }
    }

    /// The directory with these components below the target; missing ones are created.
    fn folder(&mut self, parts: &[&[u8]]) -> Result<DirRef, Problem> {
        if parts.is_empty() {
            return Ok(self.top.clone());
        }
        let path = parts.join(&b'/');
        if let Some((last, dir)) = &self.last
            && *last == path
        {
            return Ok(dir.clone());
        }
        let mut id = self.top.id;
        for part in parts {
            if self.in_flight.contains(&(id, part.to_vec())) {
                self.settle();
            }
            id = self.step(id, part, true)?;
        }
        let dir =
            Dir::existing(&self.importer.shared, id, &crate::copy::join(self.display_path, &path), None)?;
        self.last = Some((path, dir.clone()));
        Ok(dir)
    }

    /// Opens one component of a path. Symbolic links are not followed.
    fn step(&self, dir: ObjectId, name: &[u8], make: bool) -> Result<ObjectId, Problem> {
        let shared = &self.importer.shared;
        let Some(id) = shared.fs.lookup(dir, name)? else {
            if !make {
                return Err(ZplError::NotFound { dir }.into());
            }
            let (uid, gid) = shared.owner;
            let new = NewFile { uid, gid, ..NewFile::of(FileKind::Directory, 0o755) };
            return Ok(shared.fs.create(dir, name, &new)?.id);
        };
        match FileKind::from_mode(shared.fs.attrs(id)?.mode) {
            Some(FileKind::Directory) => Ok(id),
            Some(FileKind::Symlink) => Err(Problem::ThroughLink { name: name.to_vec() }),
            kind => Err(Problem::InTheWay { kind: kind.unwrap_or(FileKind::Regular) }),
        }
    }

    /// The target of a hard link, by its name in the archive.
    fn link_target(&mut self, name: &[u8]) -> Result<ObjectId, Problem> {
        let parts = clean_name(name).ok_or(Problem::LeadsOut)?;
        self.settle();
        let (last, above) = parts.split_last().ok_or(Problem::LeadsOut)?;
        let mut dir = self.top.id;
        for part in above {
            dir = self.step(dir, part, false)?;
        }
        let id = self.importer.shared.fs.lookup(dir, last)?;
        id.ok_or_else(|| Problem::NoTarget { target: name.to_vec() })
    }
}

/// Content of a small file of an archive: the bytes of its segments, concatenated.
struct InMemory {
    meta: Meta,
    target: Vec<u8>,
    segments: Vec<Segment>,
    data: Vec<u8>,
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

impl JobSource for InMemory {
    fn make(&self, job: &FileJob) -> Result<(), Problem> {
        let body = match self.meta.kind {
            Kind::Regular => Body::Data { content: self, segments: &self.segments },
            Kind::Symlink => Body::Target(&self.target),
            _ => Body::None,
        };
        job.create(&self.meta, &body).map(drop)
    }
}

/// Memory that the extended attributes of a member need, in bytes.
fn attribute_bytes(meta: &Meta) -> u64 {
    meta.xattrs.iter().map(|(name, value)| (name.len() + value.len()) as u64).sum()
}

/// Why a member was not unpacked.
enum Failure {
    Archive(TarError),
    Member(Problem),
}

impl From<TarError> for Failure {
    fn from(error: TarError) -> Failure {
        Failure::Archive(error)
    }
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Failure {
        Failure::Member(problem)
    }
}
