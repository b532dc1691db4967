//! Which programs use a mount.

use super::kernel::is_within;
use rustix::process::getpid;
use std::fs;
use std::path::{Path, PathBuf};

/// Most programs that are named.
const NAMED: usize = 16;

/// The programs that have something open or mapped below a directory, or stand there: number and name. Only those
/// that this process may look at.
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

/// Links are read, not followed: nothing is asked of the mount.
fn uses(process: &Path, at: &Path) -> bool {
    let leads_there = |link: PathBuf| fs::read_link(link).is_ok_and(|path| is_within(&path, at));
    if ["cwd", "root", "exe"].into_iter().any(|link| leads_there(process.join(link))) {
        return true;
    }
    let opened = fs::read_dir(process.join("fd")).ok();
    if opened.is_some_and(|fds| fds.flatten().any(|fd| leads_there(fd.path()))) {
        return true;
    }
    let maps = fs::read_to_string(process.join("maps")).unwrap_or_default();
    let paths = maps.lines().filter_map(|line| line.find('/').and_then(|start| line.get(start..)));
    paths.into_iter().any(|path| is_within(Path::new(path), at))
}
