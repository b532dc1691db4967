//! Resolves the path of a mount point, one directory after the other, with a check of symbolic links.
//!
//! A mounted file system may belong to a user who can put a symbolic link in the place of a mount point below
//! it. If root followed that link, it would mount over, or remove, the target of the link.
//!
//! # What always holds
//! - A symbolic link is followed only if it belongs to root or to the user of this process.
//! - A directory that is made, removed, mounted on or unmounted is named by its parent directory, which is
//!   held open, and its name there: another process cannot redirect it by changing the path.
//! - A mount point itself is not held open: it could not be unmounted.

use super::kernel;
use crate::fuse;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, StatxFlags, openat, readlinkat, statx};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

/// Most symbolic links on a path: the kernel's limit.
const LINKS_MAX: usize = 40;

/// Why a path does not lead to a directory.
#[derive(Debug, thiserror::Error)]
pub(super) enum WalkError {
    /// A symbolic link on the path belongs to another user.
    #[error("{} is a symbolic link of user {owner}", link.display())]
    Foreign { link: PathBuf, owner: u32 },
    /// The server of a file system on the path has ended.
    #[error("the server of what is mounted on {} is gone", at.display())]
    Dead { at: PathBuf },
    #[error(transparent)]
    System(#[from] io::Error),
}

impl From<Errno> for WalkError {
    fn from(error: Errno) -> WalkError {
        WalkError::System(error.into())
    }
}

impl From<WalkError> for io::Error {
    fn from(error: WalkError) -> io::Error {
        match error {
            WalkError::System(error) => error,
            WalkError::Dead { .. } => Errno::NOTCONN.into(),
            foreign @ WalkError::Foreign { .. } => {
                io::Error::new(io::ErrorKind::PermissionDenied, foreign.to_string())
            }
        }
    }
}

/// A mount point: the name of a directory and its parent directory, which is held open.
#[derive(Debug)]
pub(super) struct MountPoint {
    parent: OwnedFd,
    name: OsString,
}

/// The directory or mount that is on top at a mount point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Top {
    /// Device number: major and minor.
    pub(super) device: (u32, u32),
    /// The kernel's number of the mount, if the kernel reports it (Linux 5.8).
    pub(super) mount: Option<u64>,
    /// Inode number.
    pub(super) node: u64,
    owner: u32,
    mode: u32,
}

/// The file of a descriptor, from the kernel's own tables: no file system is asked.
fn look(dir: impl AsFd) -> Result<Top, Errno> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::SYMLINK_NOFOLLOW | AtFlags::STATX_DONT_SYNC;
    let found = statx(dir, c"", flags, StatxFlags::BASIC_STATS | StatxFlags::MNT_ID)?;
    let is_told = found.stx_mask & StatxFlags::MNT_ID.bits() != 0;
    Ok(Top {
        device: (found.stx_dev_major, found.stx_dev_minor),
        mount: is_told.then_some(found.stx_mnt_id),
        node: found.stx_ino,
        owner: found.stx_uid,
        mode: found.stx_mode.into(),
    })
}

fn path_flags() -> OFlags {
    OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC
}

/// The path of a descriptor, without symbolic links.
fn path_of(dir: &OwnedFd) -> io::Result<PathBuf> {
    std::fs::read_link(by_number(dir))
}

/// A path that leads to an open descriptor, for calls that take paths.
fn by_number(dir: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", dir.as_raw_fd()))
}

/// The components of a path, with the root as `/`.
fn parts(path: &Path) -> impl Iterator<Item = OsString> + '_ {
    path.components().filter(|part| *part != Component::CurDir).map(|part| part.as_os_str().to_owned())
}

impl MountPoint {
    /// Resolves a path from the root.
    pub(super) fn find(path: &Path) -> Result<MountPoint, WalkError> {
        walk(path, false).map(|(place, _)| place)
    }

    /// [`MountPoint::find`], which makes missing directories. Returns whether the last one was made.
    pub(super) fn make(path: &Path) -> Result<(MountPoint, bool), WalkError> {
        walk(path, true)
    }

    /// Opens the directory, or the root of the file system that is mounted there.
    pub(super) fn open(&self) -> io::Result<OwnedFd> {
        Ok(openat(&self.parent, &self.name, path_flags() | OFlags::DIRECTORY, Mode::empty())?)
    }

    /// The directory or mount on top.
    pub(super) fn top(&self) -> io::Result<Top> {
        Ok(look(self.open()?)?)
    }

    /// Path of the mount point, without symbolic links.
    pub(super) fn path(&self) -> io::Result<PathBuf> {
        path_of(&self.open()?)
    }

    /// Whether something is mounted there.
    pub(super) fn is_mount_point(&self) -> io::Result<bool> {
        let (top, above) = (self.top()?, look(&self.parent)?);
        Ok(top.mount.zip(above.mount).map_or(top.device != above.device, |(top, above)| top != above))
    }

    /// Unmounts the topmost mount.
    pub(super) fn unmount(&self, detach: bool) -> io::Result<()> {
        let (by_call, path) = (by_number(&self.parent).join(&self.name), self.path()?);
        fuse::unmount_in(&by_call, &path, detach)
    }

    /// Removes the directory, if it is empty, still has this inode number, and belongs to the user of this
    /// process.
    pub(super) fn remove(&self, node: u64) -> io::Result<()> {
        let top = self.top()?;
        if top.node != node || top.owner != rustix::process::geteuid().as_raw() {
            return Err(Errno::STALE.into());
        }
        Ok(rustix::fs::unlinkat(&self.parent, &self.name, AtFlags::REMOVEDIR)?)
    }
}

fn walk(path: &Path, make: bool) -> Result<(MountPoint, bool), WalkError> {
    if !path.is_absolute() {
        return Err(Errno::INVAL.into());
    }
    let root = || openat(rustix::fs::CWD, "/", path_flags() | OFlags::DIRECTORY, Mode::empty());
    let mut left: VecDeque<OsString> = parts(path).collect();
    let (mut dir, mut links) = (root()?, 0);
    let mut place = MountPoint { parent: root()?, name: OsString::from(".") };
    let mut was_made = false;
    while let Some(name) = left.pop_front() {
        if name == OsStr::new("/") {
            (dir, place) = (root()?, MountPoint { parent: root()?, name: OsString::from(".") });
            continue;
        }
        // Opened as a directory first, which triggers an automount.
        let open = || match openat(&dir, &name, path_flags() | OFlags::DIRECTORY, Mode::empty()) {
            Err(Errno::NOTDIR) => openat(&dir, &name, path_flags(), Mode::empty()),
            other => other,
        };
        let next = match open() {
            Err(Errno::NOENT) if make => {
                was_made = match rustix::fs::mkdirat(&dir, &name, Mode::from_raw_mode(0o755)) {
                    Ok(()) => true,
                    Err(Errno::EXIST) => false,
                    Err(error) => return Err(error.into()),
                };
                open()?
            }
            Err(Errno::NOTCONN) => return Err(WalkError::Dead { at: path_of(&dir)? }),
            other => {
                was_made = false;
                other?
            }
        };
        let found = look(&next)?;
        match FileType::from_raw_mode(found.mode) {
            FileType::Directory => place = MountPoint { parent: std::mem::replace(&mut dir, next), name },
            FileType::Symlink => {
                links += 1;
                if links > LINKS_MAX {
                    return Err(Errno::LOOP.into());
                }
                let target = follow(&dir, &name, &next, found)?;
                parts(&target).collect::<Vec<_>>().into_iter().rev().for_each(|part| left.push_front(part));
            }
            _ => return Err(Errno::NOTDIR.into()),
        }
    }
    Ok((place, was_made))
}

/// Target of a link, unless the link belongs to another user.
fn follow(dir: &OwnedFd, name: &OsStr, link: &OwnedFd, found: Top) -> Result<PathBuf, WalkError> {
    if found.owner != 0 && found.owner != rustix::process::geteuid().as_raw() {
        return Err(WalkError::Foreign { link: path_of(dir)?.join(name), owner: found.owner });
    }
    let target = readlinkat(link, c"", Vec::new())?;
    Ok(PathBuf::from(OsString::from_vec(target.into_bytes())))
}

impl Top {
    /// Whether this is the mount of a line of the kernel's table.
    pub(super) fn is_of(self, line: &kernel::Line) -> bool {
        self.mount.map_or(self.device == line.device, |mount| mount == line.id)
    }

    /// The line of the kernel's table for this mount.
    pub(super) fn line(self, at: &Path) -> Option<kernel::Line> {
        let mut lines = kernel::table().ok()?.into_iter().rev().filter(|line| line.at == at);
        lines.find(|line| self.is_of(line))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, lchown, symlink};

    #[test]
    fn links_of_others_are_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().canonicalize().unwrap();
        std::fs::create_dir_all(base.join("victim/empty")).unwrap();
        symlink(base.join("victim"), base.join("link")).unwrap();
        symlink("victim/../victim", base.join("relative")).unwrap();
        for way in ["link/empty", "relative/empty", "./victim//empty"] {
            assert_eq!(
                MountPoint::find(&base.join(way)).unwrap().path().unwrap(),
                base.join("victim/empty"),
                "{way}"
            );
        }
        let node = std::fs::metadata(base.join("victim/empty")).unwrap().ino();
        assert!(
            MountPoint::find(&base.join("victim/empty")).unwrap().remove(node + 1).is_err(),
            "it is another one"
        );
        if !rustix::process::geteuid().is_root() {
            return testkit::skip("only root can make links of others");
        }
        lchown(base.join("link"), Some(65_534), None).unwrap();
        let refused = MountPoint::find(&base.join("link/empty")).unwrap_err();
        assert!(matches!(&refused, WalkError::Foreign { owner: 65_534, link } if *link == base.join("link")));
        assert!(matches!(MountPoint::make(&base.join("link/new")), Err(WalkError::Foreign { .. })));
        assert!(!base.join("victim/new").exists());
        MountPoint::find(&base.join("victim/empty")).unwrap().remove(node).unwrap();
        let (place, was_made) = MountPoint::make(&base.join("victim/a/b")).unwrap();
        assert!(was_made && place.path().unwrap() == base.join("victim/a/b"));
        assert!(!MountPoint::make(&base.join("victim/a")).unwrap().1);
    }

    #[test]
    fn a_link_that_leads_to_itself_leads_nowhere() {
        let folder = tempfile::tempdir().unwrap();
        symlink("loop", folder.path().join("loop")).unwrap();
        let found = MountPoint::find(&folder.path().join("loop"));
        assert!(matches!(found, Err(WalkError::System(error)) if error.raw_os_error() == Some(40)));
    }
}
