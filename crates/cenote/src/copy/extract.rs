//! Copies directory trees of a pool into a directory of the host.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use zpl::{Filesystem, Node, Volume};

use super::host::{Damaged, HostTree, Lost, Outcome};
use super::meta::{Content, Kind, Meta};
use super::source::{full_meta, known_segments};
use super::walk::{Children, Flow, Position, Trouble, Visitor, walk};
use super::{Observer, Problem, Summary};

/// Copies into one directory of the host; several copies share their hard links.
pub struct Extractor<'a> {
    tree: HostTree,
    damaged: Damaged,
    observer: &'a mut dyn Observer,
    summary: Summary,
    links: Links,
}

/// Files with several names: where the first name was written, and the number of names left.
#[derive(Default)]
struct Links(HashMap<(u64, u64), FirstName>);

/// Path from the root of the target, and the number of names that follow.
type FirstName = (Vec<Vec<u8>>, u64);

impl<'a> Extractor<'a> {
    /// An extractor into `tree`; `damaged` applies to files that cannot be read completely.
    pub fn new(tree: HostTree, damaged: Damaged, observer: &'a mut dyn Observer) -> Extractor<'a> {
        Extractor { tree, damaged, observer, summary: Summary::default(), links: Links::default() }
    }

    /// Counts of the copies so far.
    #[must_use]
    pub fn summary(&self) -> &Summary {
        &self.summary
    }

    /// Copies `start` and everything below it as `name`; without a name, the entries of a directory go
    /// directly into the target. The observer gets paths that begin with `display_path`.
    pub fn copy(
        &mut self,
        fs: &Arc<Filesystem>,
        start: &Node,
        (dataset, display_path): (&str, &[u8]),
        name: Option<&[u8]>,
        children: Option<&Children<'_>>,
    ) {
        let mut visit = Visit { to: self, name, display_path };
        walk(fs, start, dataset, children, &mut visit);
    }

    /// Writes the data of a volume as a sparse file.
    pub fn copy_volume(
        &mut self,
        volume: &Volume,
        display_path: &[u8],
        name: &[u8],
        times: super::meta::Stamp,
    ) {
        let meta = Meta {
            kind: Kind::Regular,
            perm: 0o600,
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            size: volume.size(),
            atime: times,
            mtime: times,
            ctime: times,
            rdev: (0, 0),
            xattrs: Vec::new(),
            aces: Vec::new(),
        };
        self.observer.begins(display_path);
        self.regular(display_path, name, &meta, volume);
    }

    fn problem(&mut self, path: &[u8], problem: impl Into<Problem>) {
        let problem = problem.into();
        self.summary.count(&problem);
        self.observer.problem(path, &problem);
    }

    fn lost(&mut self, path: &[u8], lost: Vec<Lost>) {
        for lost in lost {
            self.problem(path, lost);
        }
    }

    /// Writes a regular file. Returns true if it was created.
    fn regular(&mut self, display_path: &[u8], name: &[u8], meta: &Meta, content: &dyn Content) -> bool {
        let segments = known_segments(content);
        match self.tree.file(name, meta, content, &segments, self.damaged) {
            Ok(Outcome { lost, bad, left_out }) => {
                if !bad.is_empty() {
                    self.problem(display_path, Problem::Damaged { ranges: bad, left_out });
                }
                if left_out {
                    return false;
                }
                self.lost(display_path, lost);
                self.summary.files += 1;
                let bytes = segments.iter().map(|segment| segment.len).sum();
                self.summary.bytes += bytes;
                self.observer.copied(bytes);
                true
            }
            Err(error) => {
                self.problem(display_path, error);
                false
            }
        }
    }

    /// All attributes of a node; attributes that cannot be read are reported.
    fn meta(&mut self, display_path: &[u8], node: &Node) -> Meta {
        let (meta, errors) = full_meta(node);
        errors.into_iter().for_each(|error| self.problem(display_path, Problem::Attributes(error)));
        meta
    }

    fn single(&mut self, display_path: &[u8], name: &[u8], node: &Node) {
        let key = (node.object().objset().number(), node.id().0);
        let links = node.attrs().links;
        if links > 1 && self.link(display_path, name, key) {
            return;
        }
        let meta = self.meta(display_path, node);
        let made = match meta.kind {
            Kind::Regular => self.regular(display_path, name, &meta, node),
            Kind::Symlink => match node.readlink() {
                Ok(target) => {
                    let made = self.tree.symlink(name, &meta, &target);
                    self.made(display_path, made)
                }
                Err(error) => {
                    self.problem(display_path, Trouble::from(error));
                    false
                }
            },
            _ => {
                let made = self.tree.special(name, &meta);
                self.made(display_path, made)
            }
        };
        if made && links > 1 {
            let path = self.tree.path().map(<[u8]>::to_vec).chain([name.to_vec()]).collect();
            self.links.0.insert(key, (path, links - 1));
        }
    }

    fn made(&mut self, display_path: &[u8], made: io::Result<Vec<Lost>>) -> bool {
        match made {
            Ok(lost) => {
                self.summary.files += 1;
                self.lost(display_path, lost);
                true
            }
            Err(error) => {
                self.problem(display_path, error);
                false
            }
        }
    }

    /// Creates a hard link to an earlier copy of the same file. False if there is none, or the host cannot
    /// link.
    fn link(&mut self, display_path: &[u8], name: &[u8], key: (u64, u64)) -> bool {
        let Some((path, left)) = self.links.0.get_mut(&key) else { return false };
        *left = left.saturating_sub(1);
        let last = *left == 0;
        let linked = self.tree.hard_link(name, path);
        if last {
            self.links.0.remove(&key);
        }
        match linked {
            Ok(()) => {
                self.summary.files += 1;
                true
            }
            Err(error) => {
                self.problem(display_path, Problem::NotLinked(error));
                false
            }
        }
    }
}

/// A walk through one tree.
struct Visit<'v, 'a> {
    to: &'v mut Extractor<'a>,
    /// Name of the start in the target.
    name: Option<&'v [u8]>,
    display_path: &'v [u8],
}

impl Visit<'_, '_> {
    fn display_path(&self, at: Position<'_>) -> Vec<u8> {
        super::join(self.display_path, at.path)
    }
}

impl Visitor for Visit<'_, '_> {
    fn enter(&mut self, at: Position<'_>, _: &Node) -> Flow {
        let display_path = self.display_path(at);
        self.to.observer.begins(&display_path);
        let name = if at.path.is_empty() { self.name } else { Some(at.name) };
        let Some(name) = name else { return Flow::Into };
        match self.to.tree.enter(name) {
            Ok(()) => Flow::Into,
            Err(error) => {
                self.to.problem(&display_path, error);
                Flow::Over
            }
        }
    }

    fn leave(&mut self, at: Position<'_>, dir: &Node) -> Flow {
        let display_path = self.display_path(at);
        let meta = self.to.meta(&display_path, dir);
        let is_top = at.path.is_empty() && self.name.is_none();
        let left = if is_top { Ok(self.to.tree.attributes_of_top(&meta)) } else { self.to.tree.leave(&meta) };
        self.to.summary.dirs += 1;
        match left {
            Ok(lost) => self.to.lost(&display_path, lost),
            Err(error) => {
                // The target's parent directory cannot be reached any more: continuing would write files to wrong
                // places.
                self.to.problem(&display_path, error);
                return Flow::Stop;
            }
        }
        Flow::Into
    }

    fn file(&mut self, at: Position<'_>, node: &Node) -> Flow {
        let display_path = self.display_path(at);
        self.to.observer.begins(&display_path);
        let name = if at.path.is_empty() { self.name.unwrap_or(b"") } else { at.name };
        self.to.single(&display_path, name, node);
        Flow::Into
    }

    fn trouble(&mut self, at: Position<'_>, trouble: Trouble) -> Flow {
        let display_path = self.display_path(at);
        self.to.problem(&display_path, trouble);
        Flow::Into
    }
}
