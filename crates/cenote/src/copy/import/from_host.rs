//! Copies from the host.
//!
//! # What always holds
//! - Symbolic links are copied, never followed, except at the path that the caller gives.
//! - Attributes and content of a file are read through one handle, so they belong together even if the file is
//!   replaced meanwhile.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, SeekFrom, Stat};
use rustix::io::Errno;
use zpl::NameAndValue;

use super::file_job::{Body, FileJob, JobSource};
use super::{DirRef, Folder, Importer, Kind, Meta, Problem};
use crate::copy::meta::{Content, Segment, Stamp, segments};

/// Number of bytes that are read at a time.
const CHUNK: u64 = 128 << 10;
/// Maximum length of a symbolic link's target in bytes.
const TARGET_MAX: usize = 4096;
/// Buffer size in bytes for values and lists of extended attributes; the limit of Linux is 64 KiB.
const XATTR_MAX: usize = 1 << 20;

/// A file or directory of the host that is to be copied.
#[derive(Debug)]
pub struct HostSource {
    folder: Arc<OwnedFd>,
    name: Vec<u8>,
    stat: Stat,
}

/// A file of the host, relative to its directory.
pub(super) struct HostFile {
    folder: Arc<OwnedFd>,
    name: CString,
    /// Kind of the file as in the directory entry.
    kind: FileType,
}

/// A directory that is being read.
struct Level {
    folder: Arc<OwnedFd>,
    entries: fs::Dir,
    to: DirRef,
    display_path: Vec<u8>,
}

/// The problem of an unreadable file or directory of the host.
fn unreadable(error: impl Into<io::Error>) -> Problem {
    Problem::Source(error.into())
}

impl HostSource {
    /// Opens the file or directory at `path`. A symbolic link is not followed unless `follow` is true or the
    /// path ends in a slash.
    ///
    /// # Errors
    /// The file does not exist, or its attributes cannot be read.
    pub fn open(path: &Path, follow: bool) -> io::Result<HostSource> {
        let bytes = path.as_os_str().as_bytes();
        let trimmed = bytes.iter().rposition(|byte| *byte != b'/').map_or(&b"/"[..], |at| &bytes[..=at]);
        let slash = trimmed.iter().rposition(|byte| *byte == b'/');
        let (above, mut name) = match slash {
            Some(0) => (&b"/"[..], &trimmed[1..]),
            Some(at) => (&trimmed[..at], &trimmed[at + 1..]),
            None => (&b"."[..], trimmed),
        };
        if name.is_empty() {
            name = b".";
        }
        let follow = follow || trimmed.len() < bytes.len();
        let folder = fs::open(above, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let flags = if follow { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
        let stat = fs::statat(&folder, name, flags)?;
        if follow {
            // The target of the symbolic link.
            let file = fs::openat(&folder, name, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
            let real = fs::readlink(format!("/proc/self/fd/{}", file.as_raw_fd()), Vec::new())?;
            return HostSource::open(Path::new(std::ffi::OsStr::from_bytes(real.as_bytes())), false);
        }
        Ok(HostSource { folder: Arc::new(folder), name: name.to_vec(), stat })
    }

    /// True if it is a directory.
    pub fn is_dir(&self) -> bool {
        kind_of(&self.stat) == FileType::Directory
    }

    /// Device and inode number, which identify the file.
    pub fn identity(&self) -> (u64, u64) {
        (self.stat.st_dev, self.stat.st_ino)
    }

    /// Opens the content.
    ///
    /// # Errors
    /// The file is neither a regular file nor a block device, or cannot be opened.
    pub fn content(&self) -> io::Result<HostContent> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = fs::openat(&self.folder, &self.name, flags, Mode::empty())?;
        let size = match kind_of(&fs::fstat(&file)?) {
            FileType::RegularFile | FileType::BlockDevice => fs::seek(&file, SeekFrom::End(0))?,
            FileType::Directory => return Err(Errno::ISDIR.into()),
            _ => return Err(Errno::INVAL.into()),
        };
        Ok(HostContent { file, size })
    }

    /// Last component of its path; `None` for a root directory.
    pub fn own_name(&self) -> Option<&[u8]> {
        (!matches!(self.name.as_slice(), b"." | b"..")).then_some(self.name.as_slice())
    }
}

impl Importer<'_> {
    /// Copies a file or directory of the host into `to` as `name`; without a name, the entries of a
    /// directory go directly into `to`. The observer gets paths that begin with `display_path`.
    pub fn copy_host(&mut self, source: &HostSource, to: &Folder, name: Option<&[u8]>, display_path: &[u8]) {
        let to = &to.0;
        if !source.is_dir() {
            let name = name.unwrap_or(&source.name);
            let file = HostFile {
                folder: Arc::clone(&source.folder),
                name: CString::new(source.name.clone()).unwrap_or_default(),
                kind: kind_of(&source.stat),
            };
            self.host_file(file, to, name, display_path);
            return;
        }
        let first = match self.enter_folder(&source.folder, &source.name, to, name, display_path) {
            Ok(Some(level)) => level,
            Ok(None) => return,
            Err(error) => return self.problem(display_path, unreadable(error)),
        };
        let mut stack = vec![first];
        while let Some(level) = stack.last_mut() {
            if self.shared.is_stopped() {
                return;
            }
            match level.next() {
                Ok(None) => {
                    stack.pop();
                }
                Ok(Some((name, kind))) => {
                    let (to, folder) = (level.to.clone(), Arc::clone(&level.folder));
                    let display_path = crate::copy::join(&level.display_path, name.as_bytes());
                    if kind != FileType::Directory {
                        let target = name.as_bytes().to_vec();
                        self.host_file(HostFile { folder, name, kind }, &to, &target, &display_path);
                        continue;
                    }
                    let name = name.as_bytes();
                    match self.enter_folder(&folder, name, &to, Some(name), &display_path) {
                        Ok(Some(below)) => stack.push(below),
                        Ok(None) => {}
                        Err(error) => self.problem(&display_path, unreadable(error)),
                    }
                }
                Err(error) => {
                    let display_path = level.display_path.clone();
                    stack.pop();
                    self.problem(&display_path, unreadable(error));
                }
            }
        }
    }

    fn host_file(&mut self, file: HostFile, to: &DirRef, name: &[u8], display_path: &[u8]) {
        let job = FileJob {
            dir: to.clone(),
            name: name.to_vec(),
            display_path: display_path.to_vec(),
            source: Box::new(file),
        };
        self.file(job, 0);
    }

    fn enter_folder(
        &mut self,
        folder: &Arc<OwnedFd>,
        name: &[u8],
        to: &DirRef,
        as_name: Option<&[u8]>,
        display_path: &[u8],
    ) -> io::Result<Option<Level>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = fs::openat(folder, name, flags, Mode::empty())?;
        let stat = fs::fstat(&opened)?;
        let mut meta = meta_of(&stat, Kind::Directory);
        meta.xattrs = self.host_xattrs(&Handle::Open(&opened), display_path);
        let Some(to) = self.enter(to, as_name, display_path, meta) else { return Ok(None) };
        let entries = fs::Dir::read_from(&opened)?;
        Ok(Some(Level { folder: Arc::new(opened), entries, to, display_path: display_path.to_vec() }))
    }

    fn host_xattrs(&mut self, handle: &Handle<'_>, display_path: &[u8]) -> Vec<NameAndValue> {
        let (found, failure) = xattrs(handle);
        if let Some(error) = failure {
            self.problem(display_path, unreadable(error));
        }
        found
    }
}

impl Level {
    /// Name and type of the next entry.
    fn next(&mut self) -> io::Result<Option<(CString, FileType)>> {
        loop {
            let Some(entry) = self.entries.read() else { return Ok(None) };
            let entry = entry?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let kind = match entry.file_type() {
                FileType::Unknown => kind_of(&fs::statat(&self.folder, name, AtFlags::SYMLINK_NOFOLLOW)?),
                known => known,
            };
            return Ok(Some((name.to_owned(), kind)));
        }
    }
}

impl JobSource for HostFile {
    fn make(&self, job: &FileJob) -> Result<(), Problem> {
        match self.kind {
            FileType::RegularFile => self.make_regular(job),
            _ => self.make_other(job),
        }
    }
}

impl HostFile {
    fn make_regular(&self, job: &FileJob) -> Result<(), Problem> {
        // Without blocking: the file may have been replaced by a pipe.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file =
            fs::openat(&self.folder, self.name.as_c_str(), flags, Mode::empty()).map_err(unreadable)?;
        let stat = fs::fstat(&file).map_err(unreadable)?;
        if kind_of(&stat) != FileType::RegularFile {
            return Err(unreadable(io::Error::other("it changed while it was copied")));
        }
        job.once((stat.st_dev, stat.st_ino), stat.st_nlink as u64, || {
            let mut meta = meta_of(&stat, Kind::Regular);
            meta.xattrs = read_xattrs(&Handle::Open(&file), job);
            let content = HostContent { file, size: meta.size };
            let is_dense = u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(512) >= meta.size;
            let whole = Segment { offset: 0, len: meta.size };
            let map = match (meta.size, is_dense) {
                (0, _) => Vec::new(),
                (_, true) => vec![whole],
                (_, false) => segments(&content).unwrap_or_else(|_| vec![whole]),
            };
            job.create(&meta, &Body::Data { content: &content, segments: &map })
        })
    }

    fn make_other(&self, job: &FileJob) -> Result<(), Problem> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file =
            fs::openat(&self.folder, self.name.as_c_str(), flags, Mode::empty()).map_err(unreadable)?;
        let stat = fs::fstat(&file).map_err(unreadable)?;
        let kind = match kind_of(&stat) {
            FileType::Symlink => Kind::Symlink,
            FileType::Fifo => Kind::Fifo,
            FileType::Socket => Kind::Socket,
            FileType::CharacterDevice => Kind::CharDevice,
            FileType::BlockDevice => Kind::BlockDevice,
            _ => return Err(unreadable(io::Error::other("it changed while it was copied"))),
        };
        job.once((stat.st_dev, stat.st_ino), stat.st_nlink as u64, || {
            let mut meta = meta_of(&stat, kind);
            let path = Handle::Path(
                [b"/proc/self/fd/", self.folder_number().as_bytes(), b"/", self.name.as_bytes()].concat(),
            );
            meta.xattrs = read_xattrs(&path, job);
            if kind != Kind::Symlink {
                return job.create(&meta, &Body::None);
            }
            let target = fs::readlinkat(&file, c"", Vec::with_capacity(TARGET_MAX)).map_err(unreadable)?;
            job.create(&meta, &Body::Target(target.as_bytes()))
        })
    }

    fn folder_number(&self) -> String {
        self.folder.as_raw_fd().to_string()
    }
}

/// The content of a regular file or a block device.
#[derive(Debug)]
pub struct HostContent {
    file: OwnedFd,
    size: u64,
}

impl Content for HostContent {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, mut offset: u64, mut buf: &mut [u8]) -> io::Result<()> {
        while !buf.is_empty() {
            match rustix::io::pread(&self.file, &mut *buf, offset) {
                Ok(0) => {
                    return Err(io::Error::new(
                        io::ErrorKind::UnexpectedEof,
                        "it became shorter while it was copied",
                    ));
                }
                Ok(n) => {
                    buf = buf.get_mut(n..).unwrap_or(&mut []);
                    offset += n as u64;
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn next_data(&self, offset: u64) -> io::Result<Option<u64>> {
        match fs::seek(&self.file, SeekFrom::Data(offset)) {
            Ok(at) => Ok(Some(at)),
            Err(Errno::NXIO) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn next_hole(&self, offset: u64) -> io::Result<u64> {
        Ok(fs::seek(&self.file, SeekFrom::Hole(offset))?)
    }

    fn block_size(&self) -> u64 {
        CHUNK
    }
}

fn kind_of(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

fn meta_of(stat: &Stat, kind: Kind) -> Meta {
    let time = |secs, nanos| Stamp { secs, nanos };
    Meta {
        kind,
        perm: stat.st_mode & 0o7777,
        uid: stat.st_uid,
        gid: stat.st_gid,
        size: if kind == Kind::Regular { u64::try_from(stat.st_size).unwrap_or(0) } else { 0 },
        atime: time(stat.st_atime, stat.st_atime_nsec as u32),
        mtime: time(stat.st_mtime, stat.st_mtime_nsec as u32),
        ctime: time(stat.st_ctime, stat.st_ctime_nsec as u32),
        rdev: (fs::major(stat.st_rdev), fs::minor(stat.st_rdev)),
        xattrs: Vec::new(),
        aces: Vec::new(),
    }
}

/// A file for reading its extended attributes.
enum Handle<'h> {
    Open(&'h OwnedFd),
    /// A path whose last component is not followed.
    Path(Vec<u8>),
}

fn read_xattrs(handle: &Handle<'_>, job: &FileJob) -> Vec<NameAndValue> {
    let (found, failure) = xattrs(handle);
    if let Some(error) = failure {
        job.problem(unreadable(error));
    }
    found
}

/// The extended attributes of a file, and the error that prevented reading all of them.
fn xattrs(handle: &Handle<'_>) -> (Vec<NameAndValue>, Option<io::Error>) {
    let list = |buf: &mut Vec<u8>| match handle {
        Handle::Open(file) => fs::flistxattr(file.as_fd(), buf.as_mut_slice()),
        Handle::Path(path) => fs::llistxattr(path.as_slice(), buf.as_mut_slice()),
    };
    // Most files have none: one call is sufficient.
    let names = match grown(list) {
        Ok(names) => names,
        Err(Errno::NOTSUP | Errno::PERM | Errno::ACCESS) => return (Vec::new(), None),
        Err(error) => return (Vec::new(), Some(error.into())),
    };
    let mut found = Vec::new();
    for name in names.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let get = |buf: &mut Vec<u8>| match handle {
            Handle::Open(file) => fs::fgetxattr(file.as_fd(), name, buf.as_mut_slice()),
            Handle::Path(path) => fs::lgetxattr(path.as_slice(), name, buf.as_mut_slice()),
        };
        match grown(get) {
            Ok(value) => found.push((name.to_vec(), value)),
            // The attribute was removed, or is listed but cannot be read.
            Err(Errno::NODATA | Errno::NOTSUP) => {}
            Err(error) => return (found, Some(error.into())),
        }
    }
    (found, None)
}

/// Repeats a call with a growing buffer until it is large enough; most lists are empty.
fn grown(mut call: impl FnMut(&mut Vec<u8>) -> Result<usize, Errno>) -> Result<Vec<u8>, Errno> {
    let mut buf = vec![0; 256];
    loop {
        match call(&mut buf) {
            Ok(len) => {
                buf.truncate(len);
                return Ok(buf);
            }
            Err(Errno::RANGE) if buf.len() < XATTR_MAX => buf.resize(buf.len() * 8, 0),
            Err(error) => return Err(error),
        }
    }
}
