//! Copies trees of a pool into a folder of the host.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use zpl::{Filesystem, Node, Volume};

use super::host::{Damaged, HostTree, Lost, Outcome};
use super::meta::{Content, Kind, Meta};
use super::source::{full_meta, known_segments};
use super::walk::{Children, Flow, Place, Trouble, Visitor, walk};
use super::{Observer, Problem, Summary};

/// A place to copy to, and the hard links made so far: several copies into one place share them.
pub struct Extractor<'a> {
    tree: HostTree,
    damaged: Damaged,
    observer: &'a mut dyn Observer,
    summary: Summary,
    links: Links,
}

/// Files with several names that were copied under one of them: where, and how many names are left.
#[derive(Default)]
struct Links(HashMap<(u64, u64), FirstName>);

/// Path from the target's top, and names that are still to come.
type FirstName = (Vec<Vec<u8>>, u64);

impl<'a> Extractor<'a> {
    /// Copies into `tree`.
    pub fn new(tree: HostTree, damaged: Damaged, observer: &'a mut dyn Observer) -> Extractor<'a> {
        Extractor { tree, damaged, observer, summary: Summary::default(), links: Links::default() }
    }

    /// What was done so far.
    #[must_use]
    pub fn summary(&self) -> &Summary {
        &self.summary
    }

    /// Copies `start` and all below it as `name`; without a name, a directory's entries go right
    /// into the target. `shown` is the source's own name, for what the observer hears.
    pub fn copy(
        &mut self,
        fs: &Arc<Filesystem>,
        start: &Node,
        (dataset, shown): (&str, &[u8]),
        name: Option<&[u8]>,
        children: Option<&Children<'_>>,
    ) {
        let mut visit = Visit { to: self, name, shown };
        walk(fs, start, dataset, children, &mut visit);
    }

    /// Writes a volume as an image with holes.
    pub fn copy_volume(&mut self, volume: &Volume, shown: &[u8], name: &[u8], times: super::meta::Stamp) {
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
        self.observer.begins(shown);
        self.regular(shown, name, &meta, volume);
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

    /// Writes a regular file. True if it is there.
    fn regular(&mut self, shown: &[u8], name: &[u8], meta: &Meta, content: &dyn Content) -> bool {
        let segments = known_segments(content);
        match self.tree.file(name, meta, content, &segments, self.damaged) {
            Ok(Outcome { lost, bad, left_out }) => {
                if !bad.is_empty() {
                    self.problem(shown, Problem::Damaged { ranges: bad, left_out });
                }
                if left_out {
                    return false;
                }
                self.lost(shown, lost);
                self.summary.files += 1;
                let bytes = segments.iter().map(|segment| segment.len).sum();
                self.summary.bytes += bytes;
                self.observer.copied(bytes);
                true
            }
            Err(error) => {
                self.problem(shown, error);
                false
            }
        }
    }

    /// The full attributes of a node; what cannot be read is told.
    fn meta(&mut self, shown: &[u8], node: &Node) -> Meta {
        let (meta, errors) = full_meta(node);
        errors.into_iter().for_each(|error| self.problem(shown, Problem::Attributes(error)));
        meta
    }

    fn single(&mut self, shown: &[u8], name: &[u8], node: &Node) {
        let key = (node.object().objset().number(), node.id().0);
        let links = node.attrs().links;
        if links > 1 && self.link(shown, name, key) {
            return;
        }
        let meta = self.meta(shown, node);
        let made = match meta.kind {
            Kind::Regular => self.regular(shown, name, &meta, node),
            Kind::Symlink => match node.readlink() {
                Ok(target) => {
                    let made = self.tree.symlink(name, &meta, &target);
                    self.made(shown, made)
                }
                Err(error) => {
                    self.problem(shown, Trouble::from(error));
                    false
                }
            },
            _ => {
                let made = self.tree.special(name, &meta);
                self.made(shown, made)
            }
        };
        if made && links > 1 {
            let path = self.tree.path().map(<[u8]>::to_vec).chain([name.to_vec()]).collect();
            self.links.0.insert(key, (path, links - 1));
        }
    }

    fn made(&mut self, shown: &[u8], made: io::Result<Vec<Lost>>) -> bool {
        match made {
            Ok(lost) => {
                self.summary.files += 1;
                self.lost(shown, lost);
                true
            }
            Err(error) => {
                self.problem(shown, error);
                false
            }
        }
    }

    /// Links to an earlier copy of the same file. False: there is none, or the host cannot link.
    fn link(&mut self, shown: &[u8], name: &[u8], key: (u64, u64)) -> bool {
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
                self.problem(shown, Problem::NotLinked(error));
                false
            }
        }
    }
}

/// One walk.
struct Visit<'v, 'a> {
    to: &'v mut Extractor<'a>,
    /// Name of the start in the target.
    name: Option<&'v [u8]>,
    shown: &'v [u8],
}

impl Visit<'_, '_> {
    fn shown(&self, at: Place<'_>) -> Vec<u8> {
        super::join(self.shown, at.path)
    }
}

impl Visitor for Visit<'_, '_> {
    fn enter(&mut self, at: Place<'_>, _: &Node) -> Flow {
        let shown = self.shown(at);
        self.to.observer.begins(&shown);
        let name = if at.path.is_empty() { self.name } else { Some(at.name) };
        let Some(name) = name else { return Flow::Into };
        match self.to.tree.enter(name) {
            Ok(()) => Flow::Into,
            Err(error) => {
                self.to.problem(&shown, error);
                Flow::Over
            }
        }
    }

    fn leave(&mut self, at: Place<'_>, dir: &Node) -> Flow {
        let shown = self.shown(at);
        let meta = self.to.meta(&shown, dir);
        let is_top = at.path.is_empty() && self.name.is_none();
        let left = if is_top { Ok(self.to.tree.attributes_of_top(&meta)) } else { self.to.tree.leave(&meta) };
        self.to.summary.dirs += 1;
        match left {
            Ok(lost) => self.to.lost(&shown, lost),
            Err(error) => {
                // The way back up is lost: going on would put files into wrong places.
                self.to.problem(&shown, error);
                return Flow::Stop;
            }
        }
        Flow::Into
    }

    fn file(&mut self, at: Place<'_>, node: &Node) -> Flow {
        let shown = self.shown(at);
        self.to.observer.begins(&shown);
        let name = if at.path.is_empty() { self.name.unwrap_or(b"") } else { at.name };
        self.to.single(&shown, name, node);
        Flow::Into
    }

    fn trouble(&mut self, at: Place<'_>, trouble: Trouble) -> Flow {
        let shown = self.shown(at);
        self.to.problem(&shown, trouble);
        Flow::Into
    }
}
