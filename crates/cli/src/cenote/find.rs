//! `cenote find`: prints the paths of files with certain attributes.

use std::ffi::OsString;
use std::io::{BufWriter, Write};
use std::os::unix::ffi::OsStrExt;

use ::cenote::Node;
use ::cenote::copy::{Flow, Kind, Position, Trouble, Visitor, children, walk};

use super::open::{FoundFile, Session, Source};
use super::{Failure, Outcome, code, glob, term};
use crate::console::RawOut;

/// Print the paths of files below TARGET that have all the attributes asked for
///
/// As with find(1), the long options may be written with one dash: -name, -type and so on.
#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    source: Source,
    #[command(flatten)]
    tests: Tests,
    /// POOL/DATASET[@SNAPSHOT]:/PATH
    #[arg(required = true, value_name = "TARGET")]
    targets: Vec<OsString>,
}

/// The attributes that are asked for, and the form of the output.
#[derive(clap::Args)]
pub(super) struct Tests {
    /// The last part of the path matches a shell pattern (* ? [a-z])
    #[arg(long, value_name = "PATTERN")]
    name: Option<OsString>,
    /// The path from the root of the file system matches a shell pattern; * matches slashes too
    #[arg(long, value_name = "PATTERN")]
    path: Option<OsString>,
    /// One or more of f (file), d (directory), l (link), b, c (devices), p (pipe), s (socket)
    #[arg(long = "type", value_name = "LETTERS", value_parser = parse_kinds)]
    kinds: Option<Kinds>,
    /// Size in bytes or with K, M, G, T: N exactly, +N more, -N less; rounded up to the unit
    #[arg(long, value_name = "[+-]N", allow_hyphen_values = true, value_parser = parse_size)]
    size: Option<Size>,
    /// Inode number
    #[arg(long, value_name = "N")]
    inum: Option<u64>,
    /// Owner, as a number
    #[arg(long, value_name = "N")]
    uid: Option<u32>,
    /// Group, as a number
    #[arg(long, value_name = "N")]
    gid: Option<u32>,
    /// At most this many levels below TARGET
    #[arg(long, value_name = "LEVELS")]
    maxdepth: Option<usize>,
    /// End each path with a NUL instead of a newline, and escape nothing
    #[arg(long)]
    print0: bool,
    /// Also the file systems below, as directories of their names
    #[arg(long)]
    children: bool,
}

/// Options that find(1) writes with one dash.
const ONE_DASH: [&str; 9] =
    ["-name", "-path", "-type", "-size", "-inum", "-uid", "-gid", "-maxdepth", "-print0"];

/// Adds the second dash to options of `find` that are written with one.
pub(super) fn with_long_options(mut args: Vec<OsString>) -> Vec<OsString> {
    let is_of_streams = args.get(1).is_some_and(|verb| verb == "stream");
    let verb = 1 + usize::from(is_of_streams);
    if args.get(verb).is_some_and(|verb| verb == "find") {
        for arg in args.iter_mut().skip(verb + 1) {
            if arg.to_str().is_some_and(|text| ONE_DASH.contains(&text)) {
                *arg = OsString::from(format!("-{}", arg.to_string_lossy()));
            }
        }
    }
    args
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Kinds(Vec<Kind>);

fn parse_kinds(text: &str) -> Result<Kinds, String> {
    let kind = |letter| match letter {
        'f' => Ok(Kind::Regular),
        'd' => Ok(Kind::Directory),
        'l' => Ok(Kind::Symlink),
        'b' => Ok(Kind::BlockDevice),
        'c' => Ok(Kind::CharDevice),
        'p' => Ok(Kind::Fifo),
        's' => Ok(Kind::Socket),
        other => Err(format!("no type '{other}'")),
    };
    text.chars().filter(|&c| c != ',').map(kind).collect::<Result<_, _>>().map(Kinds)
}

/// A size to compare with, in a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Size {
    order: std::cmp::Ordering,
    units: u64,
    unit: u64,
}

fn parse_size(text: &str) -> Result<Size, String> {
    use std::cmp::Ordering::{Equal, Greater, Less};
    let (order, rest) = match text.as_bytes() {
        [b'+', ..] => (Greater, &text[1..]),
        [b'-', ..] => (Less, &text[1..]),
        _ => (Equal, text),
    };
    let digits = rest.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &rest[digits.len()..] {
        "" | "c" => 1,
        "k" | "K" => 1 << 10,
        "M" => 1 << 20,
        "G" => 1 << 30,
        "T" => 1 << 40,
        other => return Err(format!("no unit '{other}'")),
    };
    let units = digits.parse().map_err(|_| format!("no number: '{digits}'"))?;
    Ok(Size { order, units, unit })
}

impl Size {
    fn fits(self, bytes: u64) -> bool {
        bytes.div_ceil(self.unit).cmp(&self.units) == self.order
    }
}

struct Finder<'a> {
    args: &'a Tests,
    out: BufWriter<RawOut>,
    to_terminal: bool,
    shown: &'a [u8],
    /// Path of the starting directory in its file system.
    start: &'a [u8],
    failed: bool,
    broken: Option<std::io::Error>,
}

pub(super) fn run(args: &Args) -> Outcome {
    find(&Session::new(&args.source), &args.tests, &args.targets)
}

/// Prints the files below these targets.
pub(super) fn find(session: &Session<'_>, tests: &Tests, targets: &[OsString]) -> Outcome {
    let mut failed = false;
    for target in targets {
        match session.find_file(target, false) {
            Ok(file) => failed |= search(tests, &file)?,
            Err(failure) => {
                failure.tell()?;
                failed = true;
            }
        }
    }
    Ok(code(failed))
}

fn search(args: &Tests, file: &FoundFile) -> Result<bool, Failure> {
    let pool = file.dataset.pool().clone();
    let below = move |dataset: &str| children(&pool, dataset);
    let below: Option<&dyn Fn(&str) -> _> = if args.children { Some(&below) } else { None };
    let mut finder = Finder {
        args,
        out: BufWriter::new(RawOut::new()),
        to_terminal: term::out_is_terminal(),
        shown: &file.shown,
        start: &file.path,
        failed: false,
        broken: None,
    };
    walk(&file.fs, &file.node, file.dataset.name(), below, &mut finder);
    if let Some(error) = finder.broken {
        return Err(error.into());
    }
    finder.out.flush()?;
    Ok(finder.failed)
}

fn join(above: &[u8], below: &[u8]) -> Vec<u8> {
    let slash: &[u8] = if below.is_empty() || above.is_empty() || above.ends_with(b"/") { b"" } else { b"/" };
    [above, slash, below].concat()
}

impl Finder<'_> {
    fn matches(&self, at: Position<'_>, node: &Node) -> bool {
        let (args, attrs) = (self.args, node.attrs());
        let path = join(self.start, at.path);
        let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
        let glob = |pattern: &OsString, text: &[u8]| glob::matches(pattern.as_bytes(), text);
        args.name.as_ref().is_none_or(|pattern| glob(pattern, name))
            && args.path.as_ref().is_none_or(|pattern| glob(pattern, &[b"/", path.as_slice()].concat()))
            && args.kinds.as_ref().is_none_or(|kinds| kinds.0.contains(&node.kind()))
            && args.size.is_none_or(|size| size.fits(attrs.size))
            && args.inum.is_none_or(|number| number == node.id().0)
            && args.uid.is_none_or(|uid| uid == attrs.posix_uid())
            && args.gid.is_none_or(|gid| gid == attrs.posix_gid())
    }

    fn print(&mut self, at: Position<'_>, node: &Node) -> Flow {
        if self.matches(at, node) {
            let path = join(self.shown, at.path);
            let (path, end) =
                if self.args.print0 { (path, b"\0") } else { (term::name(&path, self.to_terminal), b"\n") };
            let written = self.out.write_all(&path).and_then(|()| self.out.write_all(end));
            if let Err(error) = written {
                self.broken = Some(error);
                return Flow::Stop;
            }
        }
        Flow::Into
    }
}

impl Visitor for Finder<'_> {
    fn enter(&mut self, at: Position<'_>, dir: &Node) -> Flow {
        match self.print(at, dir) {
            Flow::Into if self.args.maxdepth.is_some_and(|most| at.depth >= most) => Flow::Over,
            flow => flow,
        }
    }

    fn leave(&mut self, _: Position<'_>, _: &Node) -> Flow {
        Flow::Into
    }

    fn file(&mut self, at: Position<'_>, node: &Node) -> Flow {
        self.print(at, node)
    }

    fn trouble(&mut self, at: Position<'_>, trouble: Trouble) -> Flow {
        self.failed = true;
        let path = join(self.shown, at.path);
        term::complain(format_args!("{}: {}", term::escape(&path), term::chain(&trouble)));
        Flow::Into
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_round_up_as_in_find() {
        let fits = |text: &str, bytes| parse_size(text).map(|size| size.fits(bytes));
        assert_eq!(fits("1k", 1), Ok(true));
        assert_eq!(fits("+1k", 1024), Ok(false));
        assert_eq!(fits("+1k", 1025), Ok(true));
        assert_eq!(fits("-5", 4), Ok(true));
        assert_eq!(fits("0", 0), Ok(true));
        assert!(parse_size("k").is_err() && parse_size("1x").is_err());
    }

    #[test]
    fn one_dash_is_enough() {
        let args = ["cenote", "find", "-name", "-d", "-x"].map(OsString::from).to_vec();
        assert_eq!(with_long_options(args), ["cenote", "find", "--name", "-d", "-x"].map(OsString::from));
        let args = ["cenote", "stream", "find", "-name"].map(OsString::from).to_vec();
        assert_eq!(with_long_options(args), ["cenote", "stream", "find", "--name"].map(OsString::from));
        let other = ["cenote", "ls", "-name"].map(OsString::from).to_vec();
        assert_eq!(with_long_options(other.clone()), other);
    }
}
