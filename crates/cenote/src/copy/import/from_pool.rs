//! Copies from the same or another pool.

use std::sync::Arc;

use zpl::{Filesystem, Node, Volume};

use super::file_job::{Body, FileJob, JobSource, NoSource};
use super::{DirRef, Folder, Importer, Kind, Meta, Problem};
use crate::copy::meta::Stamp;
use crate::copy::source::{full_meta, known_segments};
use crate::copy::walk::{Children, Flow, Position, Trouble, Visitor, walk};

impl Importer<'_> {
    /// Copies `start`, a file or directory of `fs`, into `to` as `name`; without a name, the entries of a
    /// directory go directly into `to`. The observer gets paths that begin with `display_path`.
    pub fn copy_pool(
        &mut self,
        fs: &Arc<Filesystem>,
        start: &Node,
        (dataset, display_path): (&str, &[u8]),
        (to, name): (&Folder, Option<&[u8]>),
        children: Option<&Children<'_>>,
    ) {
        let mut visit = Visit { importer: self, stack: Vec::new(), to: to.0.clone(), name, display_path };
        walk(fs, start, dataset, children, &mut visit);
    }

    /// Copies a volume into `to` as a sparse file.
    pub fn copy_volume(
        &mut self,
        volume: &Volume,
        (to, name): (&Folder, &[u8]),
        display_path: &[u8],
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
        self.observer.begins(display_path);
        let job = FileJob {
            dir: to.0.clone(),
            name: name.to_vec(),
            display_path: display_path.to_vec(),
            // The file is created here; this job is never run.
            source: Box::new(NoSource),
        };
        let segments = known_segments(volume);
        if let Err(problem) = job.create(&meta, &Body::Data { content: volume, segments: &segments }) {
            self.problem(display_path, problem);
        }
        self.report_progress();
    }
}

struct Visit<'v, 'i> {
    importer: &'v mut Importer<'i>,
    stack: Vec<DirRef>,
    to: DirRef,
    name: Option<&'v [u8]>,
    display_path: &'v [u8],
}

impl Visit<'_, '_> {
    fn here(&self) -> DirRef {
        self.stack.last().unwrap_or(&self.to).clone()
    }
}

impl Visitor for Visit<'_, '_> {
    fn enter(&mut self, at: Position<'_>, dir: &Node) -> Flow {
        if self.importer.shared.is_stopped() {
            return Flow::Stop;
        }
        let display_path = crate::copy::join(self.display_path, at.path);
        let name = if at.path.is_empty() { self.name } else { Some(at.name) };
        let here = self.here();
        let (meta, errors) = full_meta(dir);
        for error in errors {
            self.importer.problem(&display_path, Problem::Attributes(error));
        }
        match self.importer.enter(&here, name, &display_path, meta) {
            Some(dir) => {
                self.stack.push(dir);
                Flow::Into
            }
            None => Flow::Over,
        }
    }

    fn leave(&mut self, _: Position<'_>, _: &Node) -> Flow {
        self.stack.pop();
        Flow::Into
    }

    fn file(&mut self, at: Position<'_>, node: &Node) -> Flow {
        if self.importer.shared.is_stopped() {
            return Flow::Stop;
        }
        let display_path = crate::copy::join(self.display_path, at.path);
        let name = if at.path.is_empty() { self.name.unwrap_or(b"") } else { at.name };
        let job =
            FileJob { dir: self.here(), name: name.to_vec(), display_path, source: Box::new(node.clone()) };
        self.importer.file(job, node.attrs().size);
        Flow::Into
    }

    fn trouble(&mut self, at: Position<'_>, trouble: Trouble) -> Flow {
        let display_path = crate::copy::join(self.display_path, at.path);
        self.importer.problem(&display_path, trouble);
        Flow::Into
    }
}

impl JobSource for Node {
    fn make(&self, job: &FileJob) -> Result<(), Problem> {
        let key = (self.object().objset().number(), self.id().0);
        job.check_not_itself(self)?;
        job.once(key, self.attrs().links, || {
            let (meta, errors) = full_meta(self);
            errors.into_iter().for_each(|error| job.problem(Problem::Attributes(error)));
            match meta.kind {
                Kind::Regular => job.create(&meta, &Body::Node(self)),
                Kind::Symlink => {
                    let target = self.readlink().map_err(Trouble::from)?;
                    job.create(&meta, &Body::Target(&target))
                }
                _ => job.create(&meta, &Body::None),
            }
        })
    }
}

impl FileJob {
    /// # Errors
    /// [`Problem::SameFile`] if source and target are the same file.
    fn check_not_itself(&self, node: &Node) -> Result<(), Problem> {
        let fs = &self.dir.shared.fs;
        let is_same_set = Arc::ptr_eq(node.filesystem(), fs.reader());
        if is_same_set && fs.lookup(self.dir.id, &self.name)? == Some(node.id()) {
            return Err(Problem::SameFile);
        }
        Ok(())
    }
}
