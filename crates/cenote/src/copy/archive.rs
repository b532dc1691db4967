//! Writes directory trees of a pool as a tar archive.

use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::Arc;

use zpl::{Filesystem, Node};

use super::host::Damaged;
use super::meta::{Content, Kind, Meta, Segment};
use super::source::{full_meta, known_segments};
use super::tar::{BadRange, Body, Piece, TarWriter, push_bad, read_in_blocks};
use super::walk::{Children, Flow, Position, Trouble, Visitor, walk};
use super::{Observer, Problem, Summary};

/// Files with at most this many bytes of data are read into memory before their header is written; larger ones are
/// read twice.
const BUFFER_MAX: u64 = 32 << 20;

/// Writes an archive.
pub struct Archiver<'a, W: Write> {
    tar: TarWriter<W>,
    damaged: Damaged,
    observer: &'a mut dyn Observer,
    summary: Summary,
    /// Files with several names: the name in the archive, and the number of names left.
    links: HashMap<(u64, u64), (Vec<u8>, u64)>,
    /// The error that ended the archive.
    broken: Option<io::Error>,
}

impl<'a, W: Write> Archiver<'a, W> {
    /// An archive written to `tar`; `damaged` applies to files that cannot be read completely.
    pub fn new(tar: TarWriter<W>, damaged: Damaged, observer: &'a mut dyn Observer) -> Archiver<'a, W> {
        Archiver { tar, damaged, observer, summary: Summary::default(), links: HashMap::new(), broken: None }
    }

    /// Adds `start` and everything below it. Names of members begin with `name`, the path in the file system
    /// without its first slash; the observer gets paths that begin with `display_path`.
    ///
    /// # Errors
    /// If the archive cannot be written.
    pub fn add(
        &mut self,
        fs: &Arc<Filesystem>,
        start: &Node,
        (dataset, display_path): (&str, &[u8]),
        name: &[u8],
        children: Option<&Children<'_>>,
    ) -> io::Result<()> {
        walk(fs, start, dataset, children, &mut Visit { to: self, name, display_path });
        self.broken.take().map_or(Ok(()), Err)
    }

    /// Ends the archive and returns the counts.
    ///
    /// # Errors
    /// If the archive cannot be written.
    pub fn finish(self) -> io::Result<Summary> {
        self.tar.finish()?;
        Ok(self.summary)
    }

    fn problem(&mut self, path: &[u8], problem: impl Into<Problem>) {
        let problem = problem.into();
        self.summary.count(&problem);
        self.observer.problem(path, &problem);
    }

    fn meta(&mut self, display_path: &[u8], node: &Node) -> Meta {
        let (meta, errors) = full_meta(node);
        errors.into_iter().for_each(|error| self.problem(display_path, Problem::Attributes(error)));
        meta
    }

    fn single(&mut self, display_path: &[u8], name: &[u8], node: &Node) -> io::Result<()> {
        let meta = self.meta(display_path, node);
        let key = (node.object().objset().number(), node.id().0);
        let links = node.attrs().links;
        if let Some((first, left)) = self.links.get_mut(&key) {
            let first = if *left <= 1 {
                self.links.remove(&key).map(|(first, _)| first)
            } else {
                *left -= 1;
                Some(first.clone())
            };
            self.tar.member(name, &meta, &Body::HardLink(&first.unwrap_or_default()))?;
            self.summary.files += 1;
            return Ok(());
        }
        let written = match meta.kind {
            Kind::Regular => self.regular(display_path, name, &meta, node)?,
            Kind::Symlink => match node.readlink() {
                Ok(target) => self.tar.member(name, &meta, &Body::Target(&target)).map(|_| true)?,
                Err(error) => {
                    self.problem(display_path, Trouble::from(error));
                    false
                }
            },
            Kind::Socket => {
                self.problem(display_path, Problem::Socket);
                false
            }
            _ => self.tar.member(name, &meta, &Body::None).map(|_| true)?,
        };
        if written {
            self.summary.files += 1;
            if links > 1 {
                self.links.insert(key, (name.to_vec(), links - 1));
            }
        }
        Ok(())
    }

    /// Adds a regular file. A member cannot be removed once it has begun, so a file is read completely before its
    /// header is written, unless lost ranges are to be zero-filled.
    fn regular(&mut self, display_path: &[u8], name: &[u8], meta: &Meta, node: &Node) -> io::Result<bool> {
        let segments = known_segments(node);
        let data: u64 = segments.iter().map(|segment| segment.len).sum();
        let bad = if self.damaged == Damaged::ZeroFill {
            self.tar.member(name, meta, &Body::Data { content: node, segments: &segments })?
        } else {
            let (buffer, bad) = Buffer::read(node, &segments, data <= BUFFER_MAX);
            if bad.is_empty() {
                let content: &dyn Content = if data <= BUFFER_MAX { &buffer } else { node };
                // A range that becomes unreadable after the first reading is filled with zeros and reported.
                self.tar.member(name, meta, &Body::Data { content, segments: &segments })?
            } else {
                self.problem(display_path, Problem::Damaged { ranges: bad, left_out: true });
                return Ok(false);
            }
        };
        if !bad.is_empty() {
            self.problem(display_path, Problem::Damaged { ranges: bad, left_out: false });
        }
        self.summary.bytes += data;
        self.observer.copied(data);
        Ok(true)
    }
}

/// Data of a small file in memory.
struct Buffer<'a> {
    size: u64,
    segments: &'a [Segment],
    /// The segments, concatenated.
    bytes: Vec<u8>,
    /// Offset of each segment in `bytes`.
    starts: Vec<usize>,
}

impl<'a> Buffer<'a> {
    /// Reads all data, and keeps it in memory if `keep` is true.
    fn read(content: &dyn Content, segments: &'a [Segment], keep: bool) -> (Buffer<'a>, Vec<BadRange>) {
        let (mut bytes, mut starts, mut bad) = (Vec::new(), Vec::new(), Vec::new());
        for segment in segments {
            starts.push(bytes.len());
            let read = read_in_blocks(content, *segment, &mut |piece| {
                match piece {
                    Piece::Data(_, data) if keep => bytes.extend_from_slice(data),
                    Piece::Data(..) => {}
                    Piece::Bad(range) => push_bad(&mut bad, range),
                }
                Ok(())
            });
            debug_assert!(read.is_ok(), "the closure never fails");
        }
        (Buffer { size: content.size(), segments, bytes, starts }, bad)
    }
}

impl Content for Buffer<'_> {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let short = || io::Error::from(io::ErrorKind::UnexpectedEof);
        let index = self.segments.partition_point(|segment| segment.offset <= offset).checked_sub(1);
        let index = index.ok_or_else(short)?;
        let (segment, start) = self.segments.get(index).zip(self.starts.get(index)).ok_or_else(short)?;
        let at = start + (offset - segment.offset) as usize;
        buf.copy_from_slice(self.bytes.get(at..at + buf.len()).ok_or_else(short)?);
        Ok(())
    }

    fn next_data(&self, _: u64) -> io::Result<Option<u64>> {
        Ok(None)
    }

    fn next_hole(&self, _: u64) -> io::Result<u64> {
        Ok(self.size)
    }

    fn block_size(&self) -> u64 {
        512
    }
}

struct Visit<'v, 'a, W: Write> {
    to: &'v mut Archiver<'a, W>,
    name: &'v [u8],
    display_path: &'v [u8],
}

impl<W: Write> Visit<'_, '_, W> {
    fn member_name(&self, at: Position<'_>) -> Vec<u8> {
        match super::join(self.name, at.path) {
            // The root of the file system.
            name if name.is_empty() => b".".to_vec(),
            name => name,
        }
    }

    fn flow(&mut self, done: io::Result<Flow>) -> Flow {
        done.unwrap_or_else(|error| {
            self.to.broken = Some(error);
            Flow::Stop
        })
    }
}

impl<W: Write> Visitor for Visit<'_, '_, W> {
    fn enter(&mut self, at: Position<'_>, dir: &Node) -> Flow {
        let display_path = super::join(self.display_path, at.path);
        self.to.observer.begins(&display_path);
        let meta = self.to.meta(&display_path, dir);
        let name = self.member_name(at);
        self.to.summary.dirs += 1;
        let done = self.to.tar.member(&name, &meta, &Body::None).map(|_| Flow::Into);
        self.flow(done)
    }

    fn leave(&mut self, _: Position<'_>, _: &Node) -> Flow {
        Flow::Into
    }

    fn file(&mut self, at: Position<'_>, node: &Node) -> Flow {
        let display_path = super::join(self.display_path, at.path);
        self.to.observer.begins(&display_path);
        let name = self.member_name(at);
        let done = self.to.single(&display_path, &name, node).map(|()| Flow::Into);
        self.flow(done)
    }

    fn trouble(&mut self, at: Position<'_>, trouble: Trouble) -> Flow {
        let display_path = super::join(self.display_path, at.path);
        self.to.problem(&display_path, trouble);
        Flow::Into
    }
}
