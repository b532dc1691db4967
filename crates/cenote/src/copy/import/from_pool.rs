//! Trees of a pool: of this one or another.

use std::sync::Arc;

use zpl::{Filesystem, Node, Volume};

use super::place::{Body, Job, Source};
use super::{DirRef, Folder, Importer, Kind, Meta, Problem};
use crate::copy::meta::Stamp;
use crate::copy::source::{full_meta, known_segments};
use crate::copy::walk::{Children, Flow, Place, Trouble, Visitor, walk};

impl Importer<'_> {
    /// Copies `start`, a file or directory of `fs`, into `to` as `name`; without a name, the entries of a
    /// directory go right into `to`. `shown` is what the observer hears.
    pub fn copy_pool(
        &mut self,
        fs: &Arc<Filesystem>,
        start: &Node,
        (dataset, shown): (&str, &[u8]),
        (to, name): (&Folder, Option<&[u8]>),
        children: Option<&Children<'_>>,
    ) {
        let mut visit = Visit { importer: self, stack: Vec::new(), to: to.0.clone(), name, shown };
        walk(fs, start, dataset, children, &mut visit);
    }

    /// Copies a volume into `to` as a file with holes.
    pub fn copy_volume(
        &mut self,
        volume: &Volume,
        (to, name): (&Folder, &[u8]),
        shown: &[u8],
        written: Stamp,
    ) {
        let (uid, gid) = self.shared.owner;
        let meta = Meta {
            kind: Kind::Regular,
            perm: 0o600,
            uid,
            gid,
            size: volume.size(),
            atime: written,
            mtime: written,
            ctime: written,
            rdev: (0, 0),
            xattrs: Vec::new(),
            aces: Vec::new(),
        };
        self.observer.begins(shown);
        let job = Job {
            dir: to.0.clone(),
            name: name.to_vec(),
            shown: shown.to_vec(),
            // It is made right here: this is never run.
            source: Source::Nothing,
        };
        let segments = known_segments(volume);
        if let Err(problem) = job.place(&meta, &Body::Data { content: volume, segments: &segments }) {
            self.problem(shown, problem);
        }
        self.tell();
    }
}

struct Visit<'v, 'i> {
    importer: &'v mut Importer<'i>,
    stack: Vec<DirRef>,
    to: DirRef,
    name: Option<&'v [u8]>,
    shown: &'v [u8],
}

impl Visit<'_, '_> {
    fn here(&self) -> DirRef {
        self.stack.last().unwrap_or(&self.to).clone()
    }
}

impl Visitor for Visit<'_, '_> {
    fn enter(&mut self, at: Place<'_>, dir: &Node) -> Flow {
        if self.importer.shared.is_stopped() {
            return Flow::Stop;
        }
        let shown = crate::copy::join(self.shown, at.path);
        let name = if at.path.is_empty() { self.name } else { Some(at.name) };
        let here = self.here();
        let (meta, errors) = full_meta(dir);
        for error in errors {
            self.importer.problem(&shown, Problem::Attributes(error));
        }
        match self.importer.enter(&here, name, &shown, meta) {
            Some(dir) => {
                self.stack.push(dir);
                Flow::Into
            }
            None => Flow::Over,
        }
    }

    fn leave(&mut self, _: Place<'_>, _: &Node) -> Flow {
        self.stack.pop();
        Flow::Into
    }

    fn file(&mut self, at: Place<'_>, node: &Node) -> Flow {
        if self.importer.shared.is_stopped() {
            return Flow::Stop;
        }
        let shown = crate::copy::join(self.shown, at.path);
        let name = if at.path.is_empty() { self.name.unwrap_or(b"") } else { at.name };
        let job = Job {
            dir: self.here(),
            name: name.to_vec(),
            shown,
            source: Source::Pool(Box::new(node.clone())),
        };
        self.importer.file(job, node.attrs().size);
        Flow::Into
    }

    fn trouble(&mut self, at: Place<'_>, trouble: Trouble) -> Flow {
        let shown = crate::copy::join(self.shown, at.path);
        self.importer.problem(&shown, trouble);
        Flow::Into
    }
}
