//! `cenote ls`: lists directories.

use std::ffi::OsString;
use std::io::{BufWriter, Write};

use ::cenote::Node;
use ::cenote::copy::Kind;
use format::nicenum;

use super::open::{Found, FoundFile, Session, Source};
use super::{Failure, Outcome, code, term};
use crate::console::RawOut;

/// List directories, one name a line
///
/// With -l: mode (`+`: has an ACL), links, owner and group as numbers, size, time of change in UTC,
/// name. Names that would steer a terminal are shown with escapes there.
#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    source: Source,
    #[command(flatten)]
    how: How,
    /// POOL/DATASET[@SNAPSHOT]:/PATH; without a path, the root
    #[arg(required = true, value_name = "TARGET")]
    targets: Vec<OsString>,
}

/// What is listed, and how.
#[derive(clap::Args)]
pub(super) struct How {
    /// Long lines
    #[arg(short)]
    long: bool,
    /// Directories below, too
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Names that begin with a dot, too, and `.` and `..`
    #[arg(short, long)]
    all: bool,
    /// Names that begin with a dot, too, without `.` and `..`
    #[arg(short = 'A', long)]
    almost_all: bool,
    /// Inode numbers in front
    #[arg(short, long)]
    inode: bool,
    /// Sizes with K, M, G
    #[arg(long)]
    human_readable: bool,
    /// The directory itself, not what is in it
    #[arg(long)]
    directory: bool,
    /// In the order of the directory, unsorted
    #[arg(short = 'U')]
    unsorted: bool,
    /// Newest first
    #[arg(short = 't', conflicts_with = "unsorted")]
    by_time: bool,
    /// Largest first
    #[arg(short = 'S', conflicts_with_all = ["unsorted", "by_time"])]
    by_size: bool,
    /// The other way round
    #[arg(short, long)]
    reverse: bool,
}

/// A file to be listed on one line.
struct Line {
    name: Vec<u8>,
    inode: u64,
    /// `None`: a short line needs no attributes.
    node: Option<Node>,
}

struct Lister<'a> {
    args: &'a How,
    /// Directories have titles, because there are several.
    is_titled: bool,
    out: BufWriter<RawOut>,
    to_terminal: bool,
    failed: bool,
    /// Output was written already, so the next directory begins with an empty line.
    begun: bool,
}

pub(super) fn run(args: &Args) -> Outcome {
    list(&Session::new(&args.source), &args.how, &args.targets)
}

/// Lists these targets.
pub(super) fn list(session: &Session<'_>, how: &How, targets: &[OsString]) -> Outcome {
    let mut lister = Lister {
        args: how,
        is_titled: targets.len() > 1 || how.recursive,
        out: BufWriter::new(RawOut::new()),
        to_terminal: term::out_is_terminal(),
        failed: false,
        begun: false,
    };
    for target in targets {
        match session.find(target, false) {
            Ok(Found::File(file)) => lister.target(&file)?,
            Ok(Found::Volume(dataset, volume)) => {
                let name = term::escape(dataset.name().as_bytes());
                writeln!(lister.out, "{name}: a volume of {} bytes", volume.size())?;
            }
            Err(failure) => {
                lister.out.flush()?;
                failure.tell()?;
                lister.failed = true;
            }
        }
    }
    lister.out.flush()?;
    Ok(code(lister.failed))
}

impl Lister<'_> {
    fn complain(&mut self, text: &str) -> std::io::Result<()> {
        // Keeps errors and listed lines in order if both go to the same place.
        self.out.flush()?;
        term::complain(text);
        self.failed = true;
        Ok(())
    }

    fn target(&mut self, file: &FoundFile) -> Result<(), Failure> {
        if !file.node.is_dir() || self.args.directory {
            let line =
                Line { name: file.shown.clone(), inode: file.node.id().0, node: Some(file.node.clone()) };
            return Ok(self.line(&line)?);
        }
        self.directory(&file.node, &file.shown, self.is_titled)
    }

    /// Lists a directory, and with `-R` the directories below it, in depth-first order, without recursion.
    fn directory(&mut self, start: &Node, shown: &[u8], titled: bool) -> Result<(), Failure> {
        let mut todo = vec![(start.clone(), shown.to_vec())];
        // A damaged pool can have directories that contain themselves.
        let mut seen = std::collections::HashSet::from([start.id()]);
        while let Some((dir, shown)) = todo.pop() {
            if titled {
                let gap = if std::mem::replace(&mut self.begun, true) { "\n" } else { "" };
                self.out.write_all(gap.as_bytes())?;
                self.out.write_all(&term::name(&shown, self.to_terminal))?;
                self.out.write_all(b":\n")?;
            }
            let lines = self.read(&dir, &shown)?;
            let mut below = Vec::new();
            for line in &lines {
                self.line(line)?;
                let node = line
                    .node
                    .as_ref()
                    .filter(|node| node.is_dir() && line.name != b"." && line.name != b"..");
                if let (true, Some(node)) = (self.args.recursive, node) {
                    let path = join(&shown, &line.name);
                    if seen.insert(node.id()) {
                        below.push((node.clone(), path));
                    } else {
                        self.complain(&format!(
                            "{}: listed already: the directory is damaged",
                            term::escape(&path)
                        ))?;
                    }
                }
            }
            todo.extend(below.into_iter().rev());
        }
        Ok(())
    }

    /// The lines of a directory, in the order of the output.
    fn read(&mut self, dir: &Node, shown: &[u8]) -> Result<Vec<Line>, Failure> {
        let args = self.args;
        let fs = dir.filesystem();
        let needs_node = args.long || args.recursive || args.by_time || args.by_size;
        let mut lines = Vec::new();
        if args.all {
            let parent = dir.attrs().parent;
            lines.push(Line { name: b".".to_vec(), inode: dir.id().0, node: Some(dir.clone()) });
            lines.push(Line { name: b"..".to_vec(), inode: parent.0, node: fs.node(parent).ok() });
        }
        let entries = match dir.entries() {
            Ok(entries) => entries,
            Err(error) => {
                self.complain(&format!("{}: {}", term::escape(shown), term::chain(&error)))?;
                return Ok(lines);
            }
        };
        let (mut met, mut errors) = (0u64, false);
        for entry in entries {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => {
                    errors = true;
                    self.complain(&format!("{}: {}", term::escape(shown), term::chain(&error)))?;
                    continue;
                }
            };
            met += 1;
            if entry.name.starts_with(b".") && !(args.all || args.almost_all) {
                continue;
            }
            let node = if needs_node { Some(fs.node(entry.id)) } else { None };
            let node = match node.transpose() {
                Ok(node) => node,
                Err(error) => {
                    let path = join(shown, &entry.name);
                    self.complain(&format!("{}: {}", term::escape(&path), term::chain(&error)))?;
                    None
                }
            };
            lines.push(Line { name: entry.name, inode: entry.id.0, node });
        }
        let all = dir.entry_count().unwrap_or(met);
        if all > met && !errors {
            let shown = term::escape(shown);
            self.complain(&format!("{shown}: {} of {all} entries of the directory are damaged", all - met))?;
        }
        self.sort(&mut lines);
        Ok(lines)
    }

    fn sort(&self, lines: &mut [Line]) {
        let args = self.args;
        let time = |line: &Line| line.node.as_ref().map(|node| node.attrs().mtime);
        let size = |line: &Line| line.node.as_ref().map(|node| node.attrs().size);
        if !args.unsorted {
            lines.sort_by(|a, b| a.name.cmp(&b.name));
        }
        if args.by_time {
            lines.sort_by_key(|line| std::cmp::Reverse(time(line)));
        }
        if args.by_size {
            lines.sort_by_key(|line| std::cmp::Reverse(size(line)));
        }
        if args.reverse {
            lines.reverse();
        }
    }

    fn line(&mut self, line: &Line) -> std::io::Result<()> {
        if self.args.inode {
            write!(self.out, "{:>8} ", line.inode)?;
        }
        if self.args.long {
            match &line.node {
                Some(node) => self.long(node)?,
                None => write!(self.out, "?????????? ")?,
            }
        }
        self.out.write_all(&term::name(&line.name, self.to_terminal))?;
        if let Some(node) = line.node.as_ref().filter(|node| self.args.long && node.kind() == Kind::Symlink) {
            let target = node.readlink().unwrap_or_else(|_| b"?".to_vec());
            self.out.write_all(b" -> ")?;
            self.out.write_all(&term::name(&target, self.to_terminal))?;
        }
        self.out.write_all(b"\n")
    }

    fn long(&mut self, node: &Node) -> std::io::Result<()> {
        let attrs = node.attrs();
        let size = match node.kind() {
            Kind::CharDevice | Kind::BlockDevice => format!("{}, {}", attrs.rdev.0, attrs.rdev.1),
            _ if self.args.human_readable => nicenum::nicebytes(attrs.size),
            _ => attrs.size.to_string(),
        };
        let acl = if has_acl(node) { '+' } else { ' ' };
        let (mode, time) = (term::mode(attrs.mode), term::date(attrs.mtime.secs));
        let (links, uid, gid) = (attrs.links, attrs.posix_uid(), attrs.posix_gid());
        write!(self.out, "{mode}{acl} {links:>3} {uid:>8} {gid:>8} {size:>12} {time} ")
    }
}

/// Whether a file has an ACL beyond its mode.
fn has_acl(node: &Node) -> bool {
    let posix = |name: &Vec<u8>| name.starts_with(b"system.posix_acl_");
    node.xattrs().is_ok_and(|names| names.iter().any(posix)) || node.acl().is_ok_and(|acl| !acl.is_trivial)
}

fn join(above: &[u8], name: &[u8]) -> Vec<u8> {
    let separator: &[u8] = if above.ends_with(b"/") { b"" } else { b"/" };
    [above, separator, name].concat()
}
