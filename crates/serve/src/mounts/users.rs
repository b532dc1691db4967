//! The programs that use a mount.

use super::kernel::is_within;
use rustix::fs::{AtFlags, StatxFlags};
use rustix::process::getpid;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Most programs that an error names.
const NAMED: usize = 16;
/// Bytes that are read of the list of memory maps of a process: enough for as many maps as a process may
/// have, with names of usual length.
const MAPS_MAX: u64 = 8 << 20;

/// The programs that have a file open or mapped below a directory, or their working directory there: process
/// id and name. Only programs that this process may inspect.
pub(super) fn of(at: &Path) -> Vec<(u32, String)> {
    let mut users = Vec::new();
    let Ok(entries) = fs::read_dir("/proc") else { return users };
    for entry in entries.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        if pid.cast_signed() == getpid().as_raw_nonzero().get() || !uses(&entry.path(), at) {
            continue;
        }
        let name = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
        users.push((pid, name.trim().to_owned()));
        if users.len() == NAMED {
            break;
        }
    }
    users
}

/// Files below a directory that programs use.
#[derive(Debug, Default)]
pub(super) struct Used {
    /// Inode numbers of the files.
    pub(super) numbers: BTreeSet<u64>,
    /// Paths of the files.
    pub(super) paths: BTreeSet<PathBuf>,
}

/// The files below a directory that programs, including this one, have open, mapped or as a working
/// directory.
pub(super) fn files(at: &Path) -> Used {
    let mut files = Used::default();
    let Ok(entries) = fs::read_dir("/proc") else { return files };
    for process in entries.flatten().map(|entry| entry.path()) {
        if process.file_name().is_some_and(|name| name.as_encoded_bytes().iter().all(u8::is_ascii_digit)) {
            add_files(&process, at, &mut files);
        }
    }
    files
}

fn add_files(process: &Path, at: &Path, files: &mut Used) {
    let places = ["cwd", "root", "exe"].map(|link| process.join(link));
    let opened = fs::read_dir(process.join("fd")).into_iter().flatten().flatten().map(|fd| fd.path());
    for link in places.into_iter().chain(opened) {
        if let Some(path) = fs::read_link(&link).ok().filter(|path| is_within(path, at)) {
            files.numbers.extend(number(&link));
            files.paths.insert(path);
        }
    }
    each_map(process, |number, path| {
        if is_within(path, at) {
            files.numbers.extend(number);
            files.paths.insert(path.to_owned());
        }
        true
    });
}

/// Calls `look` with each file that a process has mapped, by inode number and path, until `look` returns
/// `false`. Maps beyond [`MAPS_MAX`] bytes of the list are left out.
#[allow(clippy::disallowed_types)] // A file of the kernel about a process.
fn each_map(process: &Path, mut look: impl FnMut(Option<u64>, &Path) -> bool) {
    let Ok(maps) = fs::File::open(process.join("maps")) else { return };
    let mut maps = BufReader::new(maps.take(MAPS_MAX));
    let mut line = Vec::new();
    while maps.read_until(b'\n', &mut line).is_ok_and(|len| len > 0) {
        let text = line.strip_suffix(b"\n").unwrap_or(&line);
        if let Some(start) = text.iter().position(|byte| *byte == b'/') {
            let (fields, path) = text.split_at(start);
            let number = std::str::from_utf8(fields).ok();
            let number = number.and_then(|fields| fields.split_ascii_whitespace().nth(4)?.parse().ok());
            if !look(number, Path::new(OsStr::from_bytes(path))) {
                return;
            }
        }
        line.clear();
    }
}

/// Inode number of the file that a link in `/proc` leads to, from the kernel's own tables: no file system is
/// asked.
fn number(link: &Path) -> Option<u64> {
    let (flags, mask) = (AtFlags::STATX_DONT_SYNC, StatxFlags::INO);
    rustix::fs::statx(rustix::fs::CWD, link, flags, mask).ok().map(|stat| stat.stx_ino)
}

/// Whether a process uses a file below `at`. Links are read, not followed, so the mount gets no request.
fn uses(process: &Path, at: &Path) -> bool {
    let leads_there = |link: PathBuf| fs::read_link(link).is_ok_and(|path| is_within(&path, at));
    if ["cwd", "root", "exe"].into_iter().any(|link| leads_there(process.join(link))) {
        return true;
    }
    let opened = fs::read_dir(process.join("fd")).ok();
    if opened.is_some_and(|fds| fds.flatten().any(|fd| leads_there(fd.path()))) {
        return true;
    }
    let mut is_mapped = false;
    each_map(process, |_, path| {
        is_mapped = is_within(path, at);
        !is_mapped
    });
    is_mapped
}
