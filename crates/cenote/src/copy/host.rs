//! Writes files into a directory of the host, and never outside it.
//!
//! # What always holds
//! - Directories are opened one component at a time, below the target and through no symbolic link (`openat2` with
//!   `RESOLVE_BENEATH` and `RESOLVE_NO_SYMLINKS`; `O_NOFOLLOW` on kernels without it).
//! - A file appears under its name when it is complete, with its attributes: it is written as an unnamed file
//!   (`O_TMPFILE`) or, if that is not supported, under a temporary name. An existing file of that name is replaced,
//!   never followed.
//! - Set-id bits are kept only on a file that has got its owner; otherwise they would grant the rights of another
//!   user.
//! - A directory is inaccessible to other users while it is filled, and gets its mode and times at the end.
//!
//! # Order of attributes
//! Owner (the kernel then clears set-id bits and capabilities), mode, extended attributes and ACLs (an ACL's mask
//! is the group class of the mode), times.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{
    self, AtFlags, FileType, Gid, Mode, OFlags, ResolveFlags, Timespec, Timestamps, Uid, XattrFlags,
};
use rustix::io::Errno;

use super::meta::{Content, Kind, Meta, Segment, Stamp};
use super::tar::{BadRange, Piece, push_bad, read_in_blocks};
use crate::error::errno_text;

/// Maximum number of open directories along the current path; those above are reopened when needed.
const OPEN_MAX: usize = 128;

/// An attribute that could not be kept in a copy on the host.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Lost {
    /// Owner and group, which only root can set.
    Owner,
    /// An extended attribute: its name, and the system's message.
    Xattr(Vec<u8>, String),
    /// An NFSv4 ACL, which Linux does not support.
    Acl,
    /// Permission bits, with the system's message.
    Mode(String),
    /// Times, with the system's message.
    Times(String),
}

/// Result of writing one file.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// Attributes that were lost.
    pub(crate) lost: Vec<Lost>,
    /// Ranges that could not be read; zeros in the copy if it was kept.
    pub(crate) bad: Vec<BadRange>,
    /// True if the file was left out because of unreadable ranges.
    pub(crate) left_out: bool,
}

/// Treatment of files that cannot be read completely.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Damaged {
    /// The file is left out.
    #[default]
    LeaveOut,
    /// The file is copied, with zeros in the lost ranges.
    ZeroFill,
}

#[derive(Debug)]
struct Level {
    name: Vec<u8>,
    /// `None`: closed, because the path is deep.
    dir: Option<OwnedFd>,
}

/// A directory of the host that is being filled, and the current position in it.
#[derive(Debug)]
pub struct HostTree {
    root: OwnedFd,
    path: Vec<Level>,
    set_owner: bool,
    temporary: u64,
}

impl HostTree {
    /// Opens the directory at `target`, which the caller trusts, to be filled. With `set_owner`, files get their
    /// owners.
    ///
    /// # Errors
    /// The directory cannot be opened.
    pub fn open(target: &Path, set_owner: bool) -> io::Result<HostTree> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = fs::open(target, flags, Mode::empty())?;
        Ok(HostTree { root, path: Vec::new(), set_owner, temporary: 0 })
    }

    /// Enters the directory `name`, which is created if it does not exist.
    ///
    /// # Errors
    /// The directory cannot be created, or a file of another kind has the name.
    pub(crate) fn enter(&mut self, name: &[u8]) -> io::Result<()> {
        check_name(name)?;
        let here = self.here()?;
        match fs::mkdirat(here, name, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        let dir = open_dir(here, name)?;
        self.path.push(Level { name: name.to_vec(), dir: Some(dir) });
        if self.path.len() > OPEN_MAX {
            let far = self.path.len() - OPEN_MAX - 1;
            self.path[far].dir = None;
        }
        Ok(())
    }

    /// Sets attributes of the target itself.
    pub(crate) fn attributes_of_top(&self, meta: &Meta) -> Vec<Lost> {
        let mut lost = Vec::new();
        self.attributes(self.root.as_fd(), meta, &mut lost);
        lost
    }

    /// Leaves the current directory and sets its attributes.
    ///
    /// # Errors
    /// The parent directory cannot be opened again.
    pub(crate) fn leave(&mut self, meta: &Meta) -> io::Result<Vec<Lost>> {
        let mut lost = Vec::new();
        if let Some(Level { dir: Some(dir), .. }) = self.path.last() {
            self.attributes(dir.as_fd(), meta, &mut lost);
        }
        self.path.pop();
        self.reopen()?;
        Ok(lost)
    }

    /// Writes a regular file.
    ///
    /// # Errors
    /// The file could not be written; then it does not exist.
    pub(crate) fn file(
        &mut self,
        name: &[u8],
        meta: &Meta,
        content: &dyn Content,
        segments: &[Segment],
        damaged: Damaged,
    ) -> io::Result<Outcome> {
        check_name(name)?;
        let temporary = self.temporary_name();
        let here = self.here()?;
        refuse_device(here, name)?;
        let (file, guard) = match open_nameless(here)? {
            Some(file) => (file, None),
            None => {
                let flags =
                    OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let file = fs::openat(here, &temporary, flags, Mode::RUSR | Mode::WUSR)?;
                (file, Some(Temporary { dir: here, name: &temporary }))
            }
        };
        let mut outcome = Outcome::default();
        write_content(file.as_fd(), content, segments, &mut outcome.bad)?;
        if !outcome.bad.is_empty() && damaged == Damaged::LeaveOut {
            outcome.left_out = true;
            return Ok(outcome);
        }
        self.attributes(file.as_fd(), meta, &mut outcome.lost);
        match guard {
            Some(guard) => guard.becomes(name)?,
            None => give_name(file.as_fd(), here, name, &temporary)?,
        }
        Ok(outcome)
    }

    /// Creates a symbolic link.
    ///
    /// # Errors
    /// The link cannot be created.
    pub(crate) fn symlink(&mut self, name: &[u8], meta: &Meta, target: &[u8]) -> io::Result<Vec<Lost>> {
        check_name(name)?;
        let temporary = self.temporary_name();
        let here = self.here()?;
        fs::symlinkat(target, here, &temporary)?;
        let guard = Temporary { dir: here, name: &temporary };
        let mut lost = Vec::new();
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        if self.set_owner {
            let (uid, gid) = owner(meta);
            if fs::chownat(here, &temporary, uid, gid, flags).is_err() {
                lost.push(Lost::Owner);
            }
        }
        for (key, value) in &meta.xattrs {
            let path = [format!("/proc/self/fd/{}/", here.as_raw_fd()).as_bytes(), &temporary].concat();
            note_xattr(key, fs::lsetxattr(path, key.as_slice(), value, XattrFlags::empty()), &mut lost);
        }
        if let Err(error) = fs::utimensat(here, &temporary, &times(meta), flags) {
            lost.push(Lost::Times(errno_text(&error.into())));
        }
        guard.becomes(name)?;
        Ok(lost)
    }

    /// Creates a device, pipe or socket.
    ///
    /// # Errors
    /// The file cannot be created; devices need root.
    pub(crate) fn special(&mut self, name: &[u8], meta: &Meta) -> io::Result<Vec<Lost>> {
        check_name(name)?;
        let kind = match meta.kind {
            Kind::CharDevice => FileType::CharacterDevice,
            Kind::BlockDevice => FileType::BlockDevice,
            Kind::Fifo => FileType::Fifo,
            Kind::Socket => FileType::Socket,
            Kind::Regular | Kind::Directory | Kind::Symlink => {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a special file"));
            }
        };
        let device = match meta.kind {
            Kind::CharDevice | Kind::BlockDevice => fs::makedev(meta.rdev.0, meta.rdev.1),
            _ => 0,
        };
        let temporary = self.temporary_name();
        let here = self.here()?;
        fs::mknodat(here, &temporary, kind, Mode::RUSR | Mode::WUSR, device)?;
        let guard = Temporary { dir: here, name: &temporary };
        // `O_PATH` does not open the device's driver or the other end of a pipe.
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let handle = fs::openat(here, &temporary, flags, Mode::empty())?;
        let mut lost = Vec::new();
        self.attributes_by_path(handle.as_fd(), meta, &mut lost);
        guard.becomes(name)?;
        Ok(lost)
    }

    /// Creates a hard link `name` to the file at `existing`, a path from the root of the target.
    ///
    /// # Errors
    /// The file does not exist any more, or the host cannot create hard links.
    pub(crate) fn hard_link(&mut self, name: &[u8], existing: &[Vec<u8>]) -> io::Result<()> {
        check_name(name)?;
        let (old, dirs) = existing.split_last().ok_or(io::ErrorKind::InvalidInput)?;
        check_name(old)?;
        let temporary = self.temporary_name();
        let above = self.walk(dirs.iter().map(Vec::as_slice))?;
        let from = above.as_ref().map_or(self.root.as_fd(), AsFd::as_fd);
        let here = self.here()?;
        fs::linkat(from, old.as_slice(), here, &temporary, AtFlags::empty())?;
        let guard = Temporary { dir: here, name: &temporary };
        // A rename onto another name of the same file has no effect and leaves the temporary name: the guard
        // removes it unless it is gone.
        fs::renameat(here, &temporary, here, name)?;
        drop(guard);
        Ok(())
    }

    /// The components from the root of the target to the current directory.
    pub(crate) fn path(&self) -> impl Iterator<Item = &[u8]> {
        self.path.iter().map(|level| level.name.as_slice())
    }

    fn here(&self) -> io::Result<BorrowedFd<'_>> {
        match self.path.last() {
            None => Ok(self.root.as_fd()),
            Some(Level { dir: Some(dir), .. }) => Ok(dir.as_fd()),
            Some(Level { dir: None, .. }) => Err(io::Error::from(Errno::BADF)),
        }
    }

    fn reopen(&mut self) -> io::Result<()> {
        if self.path.last().is_some_and(|level| level.dir.is_none()) {
            let dir = self.walk(self.path.iter().map(|level| level.name.as_slice()))?;
            if let Some(level) = self.path.last_mut() {
                level.dir = dir;
            }
        }
        Ok(())
    }

    /// Opens directory after directory from the root of the target; `None`: the root itself.
    fn walk<'a>(&self, dirs: impl Iterator<Item = &'a [u8]>) -> io::Result<Option<OwnedFd>> {
        let mut at: Option<OwnedFd> = None;
        for name in dirs {
            check_name(name)?;
            at = Some(open_dir(at.as_ref().map_or(self.root.as_fd(), AsFd::as_fd), name)?);
        }
        Ok(at)
    }

    fn temporary_name(&mut self) -> Vec<u8> {
        self.temporary += 1;
        format!(".cenote.{}.{}", rustix::process::getpid().as_raw_nonzero(), self.temporary).into_bytes()
    }

    /// Sets owner, mode, extended attributes and times of an open file or directory.
    fn attributes(&self, file: BorrowedFd<'_>, meta: &Meta, lost: &mut Vec<Lost>) {
        let owned = self.chown(lost, meta, |uid, gid| fs::fchown(file, uid, gid));
        note_mode(fs::fchmod(file, mode(meta, owned)), lost);
        for (key, value) in &meta.xattrs {
            note_xattr(key, fs::fsetxattr(file, key.as_slice(), value, XattrFlags::empty()), lost);
        }
        if !meta.aces.is_empty() {
            lost.push(Lost::Acl);
        }
        if let Err(error) = fs::futimens(file, &times(meta)) {
            lost.push(Lost::Times(errno_text(&error.into())));
        }
    }

    /// Sets the same attributes through an `O_PATH` handle.
    fn attributes_by_path(&self, handle: BorrowedFd<'_>, meta: &Meta, lost: &mut Vec<Lost>) {
        let path = format!("/proc/self/fd/{}", handle.as_raw_fd());
        let owned = self.chown(lost, meta, |uid, gid| fs::chownat(handle, "", uid, gid, AtFlags::EMPTY_PATH));
        note_mode(fs::chmod(&path, mode(meta, owned)), lost);
        for (key, value) in &meta.xattrs {
            note_xattr(key, fs::setxattr(&path, key.as_slice(), value, XattrFlags::empty()), lost);
        }
        if !meta.aces.is_empty() {
            lost.push(Lost::Acl);
        }
        if let Err(error) = fs::utimensat(fs::CWD, &path, &times(meta), AtFlags::empty()) {
            lost.push(Lost::Times(errno_text(&error.into())));
        }
    }

    /// Sets the owner. True if the file has it now.
    fn chown(
        &self,
        lost: &mut Vec<Lost>,
        meta: &Meta,
        call: impl FnOnce(Option<Uid>, Option<Gid>) -> Result<(), Errno>,
    ) -> bool {
        let (uid, gid) = owner(meta);
        let done = self.set_owner && call(uid, gid).is_ok();
        if self.set_owner && !done {
            lost.push(Lost::Owner);
        }
        done
    }
}

/// Directory with a path for each open file of this process.
const DESCRIPTORS: &str = "/proc/self/fd";

/// A temporary name that is removed unless it [becomes](Temporary::becomes) the final one.
struct Temporary<'a> {
    dir: BorrowedFd<'a>,
    name: &'a [u8],
}

impl Temporary<'_> {
    fn becomes(self, name: &[u8]) -> io::Result<()> {
        fs::renameat(self.dir, self.name, self.dir, name)?;
        std::mem::forget(self);
        Ok(())
    }
}

impl Drop for Temporary<'_> {
    fn drop(&mut self) {
        // An error here is ignored, because the caller returns an earlier one.
        let _ = fs::unlinkat(self.dir, self.name, AtFlags::empty());
    }
}

/// Opens an unnamed file, which disappears if this process ends before it has a name. `None`: this is not supported
/// here.
fn open_nameless(dir: BorrowedFd<'_>) -> io::Result<Option<OwnedFd>> {
    // The file gets its name through its path there.
    if fs::access(DESCRIPTORS, fs::Access::EXISTS).is_err() {
        return Ok(None);
    }
    let flags = OFlags::WRONLY | OFlags::TMPFILE | OFlags::CLOEXEC;
    match fs::openat(dir, ".", flags, Mode::RUSR | Mode::WUSR) {
        Ok(file) => Ok(Some(file)),
        // Not supported by the file system or the kernel.
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOENT | Errno::NOSYS) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Gives an unnamed file this name, and replaces an existing file of that name.
fn give_name(file: BorrowedFd<'_>, dir: BorrowedFd<'_>, name: &[u8], temporary: &[u8]) -> io::Result<()> {
    let path = format!("{DESCRIPTORS}/{}", file.as_raw_fd());
    let link = |name: &[u8]| fs::linkat(fs::CWD, &path, dir, name, AtFlags::SYMLINK_FOLLOW);
    match link(name) {
        Err(Errno::EXIST) => {
            link(temporary)?;
            Temporary { dir, name: temporary }.becomes(name)
        }
        done => Ok(done?),
    }
}

/// Refuses a name from a pool that is not a single path component.
fn check_name(name: &[u8]) -> io::Result<()> {
    let bad = name.is_empty() || name == b"." || name == b".." || name.iter().any(|&b| b == b'/' || b == 0);
    if bad { Err(io::Error::new(io::ErrorKind::InvalidInput, "not a file name")) } else { Ok(()) }
}

fn open_dir(above: BorrowedFd<'_>, name: &[u8]) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    match fs::openat2(above, name, flags, Mode::empty(), resolve) {
        // The kernel or sandbox does not have the call. For one component and without links the effect is the same.
        Err(Errno::NOSYS | Errno::PERM) => Ok(fs::openat(above, name, flags, Mode::empty())?),
        other => Ok(other?),
    }
}

/// Refuses a target that is a device, which would be written to, not replaced.
fn refuse_device(dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<()> {
    let Ok(stat) = fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) else { return Ok(()) };
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::BlockDevice | FileType::CharacterDevice => {
            Err(io::Error::new(io::ErrorKind::AlreadyExists, "a device is there"))
        }
        _ => Ok(()),
    }
}

fn write_content(
    file: BorrowedFd<'_>,
    content: &dyn Content,
    segments: &[Segment],
    bad: &mut Vec<BadRange>,
) -> io::Result<()> {
    fs::ftruncate(file, content.size())?;
    for segment in segments {
        read_in_blocks(content, *segment, &mut |piece| match piece {
            Piece::Data(offset, bytes) => write_all_at(file, bytes, offset),
            Piece::Bad(range) => {
                push_bad(bad, range);
                Ok(())
            }
        })?;
    }
    Ok(())
}

fn write_all_at(file: BorrowedFd<'_>, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::pwrite(file, bytes, offset) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => {
                bytes = &bytes[n..];
                offset += n as u64;
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn owner(meta: &Meta) -> (Option<Uid>, Option<Gid>) {
    // The id that means "unchanged" is not a valid owner.
    let real = |id: u32| (id != u32::MAX).then_some(id);
    (real(meta.uid).map(Uid::from_raw), real(meta.gid).map(Gid::from_raw))
}

fn mode(meta: &Meta, owned: bool) -> Mode {
    let set_id = 0o6000;
    Mode::from_raw_mode(if owned || meta.kind == Kind::Directory { meta.perm } else { meta.perm & !set_id })
}

fn times(meta: &Meta) -> Timestamps {
    let spec = |time: Stamp| Timespec { tv_sec: time.secs, tv_nsec: time.nanos.min(999_999_999).into() };
    Timestamps { last_access: spec(meta.atime), last_modification: spec(meta.mtime) }
}

fn note_mode(result: Result<(), Errno>, lost: &mut Vec<Lost>) {
    if let Err(error) = result {
        lost.push(Lost::Mode(errno_text(&error.into())));
    }
}

fn note_xattr(key: &[u8], result: Result<(), Errno>, lost: &mut Vec<Lost>) {
    if let Err(error) = result {
        lost.push(Lost::Xattr(key.to_vec(), errno_text(&error.into())));
    }
}

#[cfg(test)]
mod tests {
    use super::super::meta::segments;
    use super::super::meta::tests::Bytes;
    use super::*;
    use std::os::unix::fs::{FileTypeExt, MetadataExt};

    fn meta(kind: Kind) -> Meta {
        let time = |secs, nanos| Stamp { secs, nanos };
        Meta {
            kind,
            perm: 0o4750,
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            size: 0,
            atime: time(-5, 7),
            mtime: time(1_700_000_000, 123_456_789),
            ctime: time(7, 0),
            rdev: (1, 3),
            xattrs: vec![(b"user.colour".to_vec(), b"blue".to_vec())],
            aces: Vec::new(),
        }
    }

    fn tree() -> (tempfile::TempDir, HostTree) {
        let dir = tempfile::tempdir().unwrap();
        let tree = HostTree::open(dir.path(), true).unwrap();
        (dir, tree)
    }

    fn put(tree: &mut HostTree, name: &[u8], content: &Bytes, damaged: Damaged) -> Outcome {
        let map = segments(content).unwrap();
        tree.file(name, &meta(Kind::Regular), content, &map, damaged).unwrap()
    }

    #[test]
    fn a_file_with_holes_and_attributes() {
        let (dir, mut tree) = tree();
        let mut data = vec![0u8; 1 << 20];
        data[700_000] = 5;
        tree.enter(b"d").unwrap();
        let content = Bytes { block: 4096, ..Bytes::new(data.clone()) };
        assert_eq!(put(&mut tree, b"f", &content, Damaged::LeaveOut).lost, []);
        tree.hard_link(b"g", &[b"d".to_vec(), b"f".to_vec()]).unwrap();
        tree.hard_link(b"g", &[b"d".to_vec(), b"f".to_vec()]).unwrap();
        assert_eq!(tree.leave(&meta(Kind::Directory)).unwrap(), []);
        let path = dir.path().join("d/f");
        // Before reading, which changes the access time.
        let stat = std::fs::metadata(&path).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), data);
        assert!(stat.blocks() * 512 <= 64 << 10, "holes are kept");
        assert_eq!((stat.mode() & 0o7777, stat.nlink()), (0o4750, 2));
        assert_eq!((stat.mtime(), stat.mtime_nsec(), stat.atime()), (1_700_000_000, 123_456_789, -5));
        assert_eq!(std::fs::metadata(dir.path().join("d")).unwrap().mtime_nsec(), 123_456_789);
        let mut value = [0u8; 16];
        let n = fs::getxattr(&path, "user.colour", &mut value).unwrap();
        assert_eq!(&value[..n], b"blue");
        let names: Vec<_> =
            std::fs::read_dir(dir.path().join("d")).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(names.len(), 2, "no temporary names are left: {names:?}");
    }

    /// Examines the directory during a copy.
    struct Watching<'a> {
        content: Bytes,
        folder: &'a Path,
        seen: std::sync::Mutex<Vec<usize>>,
    }

    impl Content for Watching<'_> {
        fn size(&self) -> u64 {
            self.content.size()
        }

        fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
            self.seen.lock().unwrap().push(std::fs::read_dir(self.folder)?.count());
            self.content.read_at(offset, buf)
        }

        fn next_data(&self, offset: u64) -> io::Result<Option<u64>> {
            self.content.next_data(offset)
        }

        fn next_hole(&self, offset: u64) -> io::Result<u64> {
            self.content.next_hole(offset)
        }

        fn block_size(&self) -> u64 {
            self.content.block_size()
        }
    }

    #[test]
    fn a_copy_that_is_not_finished_has_no_name() {
        let (dir, mut tree) = tree();
        let root = fs::open(dir.path(), OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
        if open_nameless(root.as_fd()).unwrap().is_none() {
            return;
        }
        for byte in [1, 2] {
            let content = Bytes::new(vec![byte; 1000]);
            let content = Watching { content, folder: dir.path(), seen: std::sync::Mutex::default() };
            let map = segments(&content.content).unwrap();
            tree.file(b"f", &meta(Kind::Regular), &content, &map, Damaged::LeaveOut).unwrap();
            // The second file replaces the first, which exists until then.
            assert!(content.seen.lock().unwrap().iter().all(|names| *names == usize::from(byte == 2)));
            assert_eq!(std::fs::read(dir.path().join("f")).unwrap(), vec![byte; 1000]);
            assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        }
    }

    #[test]
    fn links_of_the_host_are_not_followed() {
        let (dir, mut tree) = tree();
        let outside = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(outside.path(), dir.path().join("trap")).unwrap();
        assert!(tree.enter(b"trap").is_err());
        let secret = outside.path().join("secret");
        std::fs::write(&secret, "old").unwrap();
        std::os::unix::fs::symlink(&secret, dir.path().join("f")).unwrap();
        put(&mut tree, b"f", &Bytes::new(*b"new"), Damaged::LeaveOut);
        assert_eq!(std::fs::read_to_string(&secret).unwrap(), "old");
        assert!(!dir.path().join("f").is_symlink());
        for name in [&b""[..], b".", b"..", b"a/b", b"/etc", b"a\0b"] {
            assert!(tree.enter(name).is_err());
            assert!(tree.symlink(name, &meta(Kind::Symlink), b"x").is_err());
        }
        assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_link_in_the_pool_does_not_lead_out() {
        let (_dir, mut tree) = tree();
        let outside = tempfile::tempdir().unwrap();
        tree.symlink(b"way", &meta(Kind::Symlink), outside.path().as_os_str().as_encoded_bytes()).unwrap();
        assert!(tree.enter(b"way").is_err());
        assert!(tree.hard_link(b"x", &[b"way".to_vec(), b"y".to_vec()]).is_err());
    }

    #[test]
    fn damaged_files_are_left_out_or_filled() {
        let (dir, mut tree) = tree();
        let bad = Bytes { bad: Some(600), ..Bytes::new(vec![3u8; 2000]) };
        let outcome = put(&mut tree, b"f", &bad, Damaged::LeaveOut);
        assert!(outcome.left_out);
        assert_eq!(outcome.bad.iter().map(|b| (b.offset, b.len)).collect::<Vec<_>>(), [(512, 512)]);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        let outcome = put(&mut tree, b"f", &bad, Damaged::ZeroFill);
        assert!(!outcome.left_out && outcome.bad.len() == 1);
        let data = std::fs::read(dir.path().join("f")).unwrap();
        assert!(data[512..1024].iter().all(|&b| b == 0) && data[1024..].iter().all(|&b| b == 3));
    }

    #[test]
    fn deep_trees_need_few_descriptors() {
        let (dir, mut tree) = tree();
        for _ in 0..OPEN_MAX * 2 {
            tree.enter(b"d").unwrap();
        }
        assert_eq!(tree.path.iter().filter(|level| level.dir.is_some()).count(), OPEN_MAX);
        put(&mut tree, b"f", &Bytes::new(*b"x"), Damaged::LeaveOut);
        while !tree.path.is_empty() {
            tree.leave(&meta(Kind::Directory)).unwrap();
        }
        put(&mut tree, b"top", &Bytes::new(*b"x"), Damaged::LeaveOut);
        assert!(dir.path().join(format!("{}f", "d/".repeat(OPEN_MAX * 2))).is_file());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2);
    }

    #[test]
    fn pipes_and_devices() {
        let (dir, mut tree) = tree();
        let plain = Meta { xattrs: Vec::new(), perm: 0o640, ..meta(Kind::Fifo) };
        assert_eq!(tree.special(b"pipe", &plain).unwrap(), []);
        let stat = std::fs::symlink_metadata(dir.path().join("pipe")).unwrap();
        assert!(stat.file_type().is_fifo());
        assert_eq!((stat.mode() & 0o7777, stat.mtime_nsec()), (0o640, 123_456_789));
        if rustix::process::geteuid().is_root() {
            // In a container the system may refuse devices even to root.
            if tree.special(b"null", &Meta { kind: Kind::CharDevice, ..plain }).is_ok() {
                let stat = std::fs::symlink_metadata(dir.path().join("null")).unwrap();
                assert_eq!((fs::major(stat.rdev()), fs::minor(stat.rdev())), (1, 3));
            }
        }
    }
}
