//! `zfs project` of files by their paths, wherever they are mounted. This runs in the client's process, never in the
//! daemon: the kernel decides what that user may see and change.

use super::{Options, told_line};
use crate::out::Out;
use crate::stop::Outcome;
use admin::verbs::zfs::project::Reach;
use rustix::io::Errno;
use serve::projects::Projected;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Directories in directories that are followed.
const DEPTH_MAX: usize = 4096;

/// Whether an operand is the path of a file, and not one inside a dataset.
pub(super) fn is_path(operand: &OsStr) -> bool {
    let bytes = operand.as_bytes();
    bytes.starts_with(b"/") || bytes.starts_with(b".") || Path::new(operand).symlink_metadata().is_ok()
}

/// Does what the options say with every operand; goes on behind one that fails.
pub(super) fn run(options: &Options, out: &Out) -> Outcome {
    let mut code = 0;
    for operand in &options.operands {
        if let Err(message) = one(options, operand, out) {
            super::complain(&message);
            code = 1;
        }
    }
    Ok(code)
}

fn one(options: &Options, operand: &OsString, out: &Out) -> Result<(), String> {
    let path = PathBuf::from(operand);
    let why = |error: std::io::Error| Errno::from_io_error(&error).map_or(error.to_string(), words);
    let meta = std::fs::metadata(&path)
        .map_err(|error| format!("failed to stat {}: {}", path.display(), why(error)))?;
    if !meta.is_dir() {
        if !meta.is_file() {
            return Err(format!(
                "only support project quota on regular file or directory: {}",
                path.display()
            ));
        }
        if options.own || options.below {
            let letter = if options.own { 'd' } else { 'r' };
            return Err(format!("'-{letter}' is only valid on directories: {}", path.display()));
        }
    }
    let first = open(&path)?;
    let expected = options.id.unwrap_or_else(|| first.project());
    let own = u64::from(first.project());
    drop(first);
    let change = options.action().change(own);
    let reach = if meta.is_dir() { options.reach() } else { Reach::Own };
    // Who asks for the entries of a directory is not told of the directory itself.
    let walk = Walk { reach, with_top: !(change.is_none() && reach == Reach::Entries) };
    walk.each(path, |path| {
        let mut file = open(path)?;
        let Some(change) = change else {
            let name = path.to_string_lossy();
            out.print(&told_line(options, &name, file.project().into(), file.inherits(), expected.into()));
            return Ok(());
        };
        let changed = file.change(change.project, change.inherits);
        changed.map_err(|errno| format!("failed to set attributes of {}: {}", path.display(), words(errno)))
    })
}

fn open(path: &Path) -> Result<Projected, String> {
    Projected::open(path)
        .map_err(|errno| format!("failed to get attributes of {}: {}", path.display(), words(errno)))
}

fn words(errno: Errno) -> String {
    cenote::error::errno_text(&errno.into())
}

/// Which files are visited.
struct Walk {
    reach: Reach,
    /// Also where it begins.
    with_top: bool,
}

impl Walk {
    /// Visits them, a directory before what is in it. What is neither a file nor a directory has no project, and is
    /// passed over; no link is followed below the top. Goes on behind what fails, and returns the last failure.
    fn each(&self, top: PathBuf, mut visit: impl FnMut(&Path) -> Result<(), String>) -> Result<(), String> {
        let mut result = if self.with_top { visit(&top) } else { Ok(()) };
        let mut left = if self.reach == Reach::Own { Vec::new() } else { vec![(top, 0)] };
        while let Some((dir, depth)) = left.pop() {
            let entries = match std::fs::read_dir(&dir) {
                Ok(entries) => entries,
                Err(error) => {
                    result = Err(format!("failed to open {}: {error}", dir.display()));
                    continue;
                }
            };
            for entry in entries.filter_map(Result::ok) {
                let kind = match entry.file_type() {
                    Ok(kind) if kind.is_dir() || kind.is_file() => kind,
                    _ => continue,
                };
                let path = entry.path();
                result = visit(&path).and(result);
                if kind.is_dir() && self.reach == Reach::All && depth < DEPTH_MAX {
                    left.push((path, depth + 1));
                }
            }
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_places_in_datasets() {
        for (operand, is) in
            [("/a", true), ("./a", true), ("..", true), ("p/a:/f", false), ("no/such", false)]
        {
            assert_eq!(is_path(OsStr::new(operand)), is, "{operand}");
        }
    }

    #[test]
    fn a_walk_reaches_as_far_as_it_should() {
        let folder = tempfile::tempdir().expect("a folder");
        let top = folder.path().to_owned();
        std::fs::create_dir_all(top.join("a/b")).expect("made");
        std::fs::write(top.join("a/b/c"), "").expect("written");
        std::os::unix::fs::symlink("/", top.join("link")).expect("linked");
        let reached = |reach, with_top| {
            let mut names = Vec::new();
            let walk = Walk { reach, with_top };
            let done = walk.each(top.clone(), |path| {
                let below = path.strip_prefix(&top).expect("below").to_string_lossy().into_owned();
                names.push(below);
                Ok(())
            });
            done.map(|()| names)
        };
        assert_eq!(reached(Reach::Own, true), Ok(vec![String::new()]));
        assert_eq!(reached(Reach::Entries, false), Ok(vec!["a".to_owned()]));
        let all = ["", "a", "a/b", "a/b/c"].map(str::to_owned).to_vec();
        assert_eq!(reached(Reach::All, true), Ok(all));
    }
}
