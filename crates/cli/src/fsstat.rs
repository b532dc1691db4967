//! `fsstat`: shows the requests of programs to mounted file systems, like the command of this name on other
//! systems.
//!
//! The first line counts requests since a file system was mounted, each further line those of an interval.
//! Only requests that reach the server are counted: the kernel answers others from its caches.

mod layout;

use crate::getopt::Getopt;
use crate::out::Out;
use crate::rights;
use crate::stop::{Outcome, Stop};
use crate::zpool::Stamp;
use admin::{FileOps, Mounts};
use layout::Layout;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Names that stand for the file systems of all pools together.
const KINDS: [&str; 3] = ["zfs", "fuse.cenote", "cenote"];
/// Number of lines after which the header is repeated.
const PAGE: usize = 22;

pub(crate) const USAGE: &str =
    "usage: fsstat [-a|-f|-i|-n|-v] [-P] [-T u|d] {-F | {fstype | path}...} [interval [count]]\n";

/// The subject of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Subject {
    /// All mounts, under the name that was given.
    Kind(String),
    /// A mount: the name that was given, and its mount point.
    Mount(String, PathBuf),
}

impl Subject {
    fn name(&self) -> &str {
        match self {
            Subject::Kind(name) | Subject::Mount(name, _) => name,
        }
    }

    /// The requests so far.
    fn sample(&self, mounts: Option<&Arc<dyn Mounts>>) -> FileOps {
        let Some(mounts) = mounts else { return FileOps::default() };
        let all = mounts.list().into_iter();
        let is_here = |at: &Path| match self {
            Subject::Kind(_) => true,
            Subject::Mount(_, own) => at == own,
        };
        let stats = all.filter(|mount| is_here(&mount.at)).filter_map(|mount| mounts.stats(&mount.dataset));
        stats.fold(FileOps::default(), |sum, ops| sum.plus(&ops))
    }
}

struct Options {
    layout: Layout,
    exact: bool,
    stamp: Stamp,
}

/// Runs the command; returns its exit code.
pub(crate) fn main(args: Vec<OsString>, out: &Out) -> u8 {
    match run(args, out) {
        Ok(code) | Err(Stop::Code(code)) => code,
        Err(Stop::Usage(message)) => {
            if !message.is_empty() {
                say_error_line!("fsstat: {}", crate::out::visible(&message));
            }
            say_error!("{USAGE}");
            2
        }
        Err(Stop::Failed(message)) => {
            if let Some(message) = message {
                say_error_line!("fsstat: {}", crate::out::visible(&message));
            }
            1
        }
    }
}

fn run(args: Vec<OsString>, out: &Out) -> Outcome {
    let mut walk = Getopt::new(args, "aFfinPT:v", &[]);
    let mut options = Options { layout: Layout::General, exact: false, stamp: Stamp::Off };
    let mut all_kinds = false;
    while let Some((letter, value)) = walk.next()? {
        match letter {
            'F' => all_kinds = true,
            'P' => options.exact = true,
            'T' => options.stamp = Stamp::parse(value.as_deref())?,
            other => {
                let layout = Layout::of(other).expect("all letters are known");
                if options.layout != Layout::General && options.layout != layout {
                    return Err(Stop::usage("only one of -a, -f, -i, -n and -v can be given"));
                }
                options.layout = layout;
            }
        }
    }
    let operands = crate::zpool::operands(walk)?;
    let search = crate::search::from_env();
    let mounts = search.namespace.as_ref().and_then(|namespace| namespace.mounts().cloned());
    let (subjects, code) = subjects(&operands.pools, all_kinds, mounts.as_ref())?;
    let mut before = vec![FileOps::default(); subjects.len()];
    let mut lines = 0;
    let mut left = operands.count.unwrap_or(u64::MAX);
    loop {
        let now: Vec<FileOps> = subjects.iter().map(|subject| subject.sample(mounts.as_ref())).collect();
        let mut text = options.stamp.line();
        if lines == 0 || lines + subjects.len() > PAGE {
            text.push_str(&options.layout.header());
            lines = 0;
        }
        for ((subject, now), before) in subjects.iter().zip(&now).zip(&before) {
            let name = out.cell(subject.name());
            text.push_str(&options.layout.line(&now.since(before), &name, options.exact));
            lines += 1;
        }
        out.print(&text);
        (before, left) = (now, left - 1);
        let Some(seconds) = operands.interval.filter(|_| left > 0) else { return Ok(code) };
        // A longer pause counts as a year.
        if !crate::console::sleep(Duration::from_secs_f64(seconds.min(3.2e7))) {
            return Ok(code);
        }
    }
}

/// Resolves the operands. An unknown operand is reported, and makes the exit code 1.
fn subjects(
    names: &[String],
    all_kinds: bool,
    mounts: Option<&Arc<dyn Mounts>>,
) -> Result<(Vec<Subject>, u8), Stop> {
    if all_kinds {
        if !names.is_empty() {
            return Err(Stop::usage("-F takes no operands"));
        }
        return Ok((vec![Subject::Kind(KINDS[0].to_owned())], 0));
    }
    if names.is_empty() {
        return Err(Stop::usage("-F, a type of file system or a path must be given"));
    }
    let places: Vec<PathBuf> = mounts.into_iter().flat_map(|m| m.list()).map(|mount| mount.at).collect();
    let (mut found, mut code) = (Vec::new(), 0);
    for name in names {
        if KINDS.contains(&name.as_str()) {
            found.push(Subject::Kind(name.clone()));
        } else if let Some(at) = place_of(Path::new(name), &places) {
            found.push(Subject::Mount(name.clone(), at));
        } else {
            let name = crate::out::visible(name);
            say_error_line!("fsstat: '{name}' is neither a type of file system nor in a mounted one");
            code = 1;
        }
    }
    if found.is_empty() { Err(Stop::Code(code)) } else { Ok((found, code)) }
}

/// The mount that a path lies in. The path alone decides if possible: a mount must not be accessed while it
/// is changing.
fn place_of(path: &Path, places: &[PathBuf]) -> Option<PathBuf> {
    let deepest = |path: &Path| {
        let around = places.iter().filter(|place| path.starts_with(place));
        around.max_by_key(|place| place.components().count()).cloned()
    };
    if !rights::is_administrator() {
        return deepest(&rights::path(path));
    }
    let by_name = std::path::absolute(path).ok().and_then(|path| deepest(&path));
    by_name.or_else(|| deepest(&path.canonicalize().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_in_the_deepest_mount_around_it() {
        let places = ["/tank", "/tank/home", "/tankette"].map(PathBuf::from);
        let at = |path: &str| place_of(Path::new(path), &places).map(|at| at.display().to_string());
        assert_eq!(at("/tank"), Some("/tank".to_owned()));
        assert_eq!(at("/tank/home/x/y"), Some("/tank/home".to_owned()));
        assert_eq!(at("/tankette/a"), Some("/tankette".to_owned()));
        assert_eq!(at("/nowhere/at/all"), None);
    }

    #[test]
    fn operands_are_types_or_paths() {
        let kinds = |names: &[&str], all| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            subjects(&names, all, None)
        };
        assert_eq!(kinds(&[], true).unwrap(), (vec![Subject::Kind("zfs".to_owned())], 0));
        assert_eq!(kinds(&["fuse.cenote"], false).unwrap().0, [Subject::Kind("fuse.cenote".to_owned())]);
        assert!(matches!(kinds(&["/nowhere"], false), Err(Stop::Code(1))));
        assert!(matches!(kinds(&[], false), Err(Stop::Usage(_))));
        assert!(matches!(kinds(&["zfs"], true), Err(Stop::Usage(_))));
        assert_eq!(kinds(&["zfs", "/nowhere"], false).unwrap().1, 1);
    }
}
