//! The kernel's table of mounts, and the calls that change mounts.
//!
//! # What always holds
//! - No function here makes a request to a mounted file system, except [`sign_of_life`].

use crate::fuse::connections;
use admin::sync::lock;
use rustix::buffer::spare_capacity;
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::{Errno, pread};
use rustix::mount::MountFlags;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, mpsc};
use std::time::Duration;

/// File system type of our mounts.
pub(super) const KIND: &str = "fuse.cenote";

/// A line of the kernel's table of mounts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line {
    /// The kernel's number of the mount.
    pub(super) id: u64,
    /// The kernel's number of the mount that contains the mount point.
    parent: u64,
    /// Device number: major and minor.
    pub(super) device: (u32, u32),
    /// The directory of the file system that is mounted.
    root: PathBuf,
    /// Mount point, as this process sees it.
    pub(super) at: PathBuf,
    /// Peer group: mounts and unmounts below one of its members are propagated to the others.
    peers: Option<u64>,
    /// Peer group whose mounts and unmounts are propagated to this mount.
    told_by: Option<u64>,
    /// Type of the file system.
    pub(super) kind: String,
    /// Source in the table; for our mounts, the name of the dataset.
    pub(super) source: String,
}

/// The mounts that this process sees, oldest first.
///
/// # Errors
/// The kernel's table cannot be read: nothing is known about any mount. A table that was once read needs no further
/// descriptor, so that a process without a free one can still unmount.
pub(super) fn table() -> io::Result<Vec<Line>> {
    static TABLE: Mutex<Option<OwnedFd>> = Mutex::new(None);
    let mut open = lock(&TABLE);
    let file = match open.take() {
        Some(file) => file,
        None => openat(CWD, "/proc/self/mountinfo", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?,
    };
    let mut text = Vec::new();
    loop {
        text.reserve(64 << 10);
        let start = text.len() as u64;
        if pread(&file, spare_capacity(&mut text), start)? == 0 {
            break;
        }
    }
    *open = Some(file);
    Ok(text.split(|byte| *byte == b'\n').filter_map(line).collect())
}

fn line(text: &[u8]) -> Option<Line> {
    let mut words = text.split(|byte| *byte == b' ');
    let number = |word: &[u8]| std::str::from_utf8(word).ok()?.parse().ok();
    let (id, parent) = (number(words.next()?)?, number(words.next()?)?);
    let device = std::str::from_utf8(words.next()?).ok()?;
    let (major, minor) = device.split_once(':')?;
    let path = |word: &[u8]| PathBuf::from(OsString::from_vec(unescaped(word)));
    let (root, at) = (path(words.next()?), path(words.next()?));
    let (mut peers, mut told_by) = (None, None);
    for word in words.by_ref().skip(1).take_while(|word| *word != b"-") {
        if let Some(group) = word.strip_prefix(b"shared:") {
            peers = number(group);
        } else if let Some(group) = word.strip_prefix(b"master:") {
            told_by = number(group);
        }
    }
    let mut rest = words;
    let kind = String::from_utf8_lossy(rest.next()?).into_owned();
    let source = String::from_utf8_lossy(&unescaped(rest.next()?)).into_owned();
    Some(Line {
        id,
        parent,
        device: (major.parse().ok()?, minor.parse().ok()?),
        root,
        at,
        peers,
        told_by,
        kind,
        source,
    })
}

impl Line {
    /// Whether the kernel unmounts this mount together with `other`: both show the same directory, and the
    /// mount below this one receives propagation from the mount below `other`.
    pub(super) fn goes_with(&self, other: &Line, table: &[Line]) -> bool {
        let above = |line: &Line| table.iter().find(|above| above.id == line.parent);
        let (Some(own), Some(others)) = (above(self), above(other)) else { return false };
        self.root == other.root
            && own.id != others.id
            && others.peers.is_some()
            && (own.peers == others.peers || own.told_by == others.peers)
    }
}

/// Decodes escapes: the kernel writes spaces and some other characters as `\040` and so on.
fn unescaped(text: &[u8]) -> Vec<u8> {
    let mut found = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, tail)) = rest.split_first() {
        let code =
            tail.get(..3).filter(|_| first == b'\\').and_then(|digits| std::str::from_utf8(digits).ok());
        match code.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                found.push(byte);
                rest = tail.get(3..).unwrap_or_default();
            }
            None => {
                found.push(first);
                rest = tail;
            }
        }
    }
    found
}

/// Whether something is or may be mounted below a directory, whose path has no symbolic links.
pub(super) fn has_mounts_below(at: &Path) -> bool {
    table().map_or(true, |table| table.iter().any(|line| line.at != at && is_within(&line.at, at)))
}

/// Longest wait for a sign of life; the kernel reports a server that has ended at once.
const SIGN_OF_LIFE: Duration = Duration::from_secs(1);

/// Whether the server of a mount is alive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sign {
    /// The server replies.
    Lives,
    /// The server has ended: every request is an error.
    Gone,
    /// No reply in time: the server hangs, or is ending.
    Nothing,
}

/// Asks the server of a mount for a sign of life. A server that hangs delays no other thread.
pub(super) fn sign_of_life(at: &Path) -> Sign {
    let (tell, told) = mpsc::channel();
    let asked = at.to_owned();
    let spawned = std::thread::Builder::new().name("mount-probe".into()).spawn(move || {
        let _ = tell.send(rustix::fs::statfs(&asked).map(drop));
    });
    match spawned.ok().and_then(|_| told.recv_timeout(SIGN_OF_LIFE).ok()) {
        Some(Ok(())) => Sign::Lives,
        Some(Err(Errno::NOTCONN)) => Sign::Gone,
        _ => Sign::Nothing,
    }
}

/// The number of the connection behind a device, as the kernel packs it in 32 bits.
fn connection(device: (u32, u32)) -> u64 {
    u64::from(device.0) << 20 | u64::from(device.1)
}

/// A control file that aborts a connection. Device numbers are reused at once: after opening it, the caller
/// must check that the device still has its number. From then on the file refers to that connection only, and
/// has no effect after the connection has ended.
pub(super) struct Switch(OwnedFd);

impl Switch {
    /// Opens the control file of the connection whose device has this number now.
    pub(super) fn of(device: (u32, u32)) -> std::io::Result<Switch> {
        let files = connections::files(connection(device))?;
        Ok(Switch(openat(files, "abort", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?))
    }

    /// Aborts the connection: programs that wait for a reply get an error.
    pub(super) fn abort(self) -> std::io::Result<()> {
        rustix::io::write(&self.0, b"1")?;
        Ok(())
    }
}

/// Changes the flags of a mount, given by an open directory.
pub(super) fn remount(dir: &OwnedFd, flags: MountFlags) -> rustix::io::Result<()> {
    rustix::mount::mount_remount(format!("/proc/self/fd/{}", dir.as_raw_fd()), flags, c"")
}

/// Whether a path is a directory or lies below it.
pub(super) fn is_within(path: &Path, dir: &Path) -> bool {
    let (path, dir) = (path.as_os_str().as_bytes(), dir.as_os_str().as_bytes());
    let dir = dir.strip_suffix(b"/").unwrap_or(dir);
    path.strip_prefix(dir).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_table_are_taken_apart() {
        let text =
            b"36 35 0:41 / /mnt/two\\040words rw,noatime master:1 shared:7 - fuse.cenote tank/a\\040b rw";
        let found = line(text).expect("a line");
        assert_eq!((found.id, found.parent, found.device), (36, 35, (0, 41)));
        assert_eq!((found.root.as_path(), found.peers, found.told_by), (Path::new("/"), Some(7), Some(1)));
        assert_eq!(found.at, Path::new("/mnt/two words"));
        assert_eq!((found.kind.as_str(), found.source.as_str()), (KIND, "tank/a b"));
        assert_eq!(line(b"36 35 broken"), None);
    }

    #[test]
    fn a_directory_contains_itself_and_what_is_below() {
        for (path, dir, within) in [
            ("/a/b", "/a", true),
            ("/a", "/a", true),
            ("/ab", "/a", false),
            ("/a", "/", true),
            ("/", "/a", false),
        ] {
            assert_eq!(is_within(Path::new(path), Path::new(dir)), within, "{path} {dir}");
        }
    }
}
