//! Files and volumes of a pool as sources of a copy.

use std::io;
use std::sync::Arc;

use zpl::{Node, Volume, ZplError};

use crate::{Dataset, DatasetKind, Error, Pool};

use super::meta::{Content, Meta, Segment, segments};
use super::walk::{AnyError, Child};

/// Converts a layer's error and keeps it with its sources.
pub(crate) fn to_io(error: ZplError) -> io::Error {
    io::Error::other(error)
}

/// Attributes of a node, without extended attributes and ACL.
fn meta(node: &Node) -> Meta {
    let attrs = node.attrs();
    Meta {
        kind: node.kind(),
        perm: attrs.mode & 0o7777,
        uid: attrs.posix_uid(),
        gid: attrs.posix_gid(),
        size: attrs.size,
        atime: attrs.atime,
        mtime: attrs.mtime,
        ctime: attrs.ctime,
        rdev: attrs.rdev,
        xattrs: Vec::new(),
        aces: Vec::new(),
    }
}

/// All attributes of a node, and the errors of those that cannot be read.
#[must_use]
pub(crate) fn full_meta(node: &Node) -> (Meta, Vec<ZplError>) {
    let (mut meta, mut errors) = (meta(node), Vec::new());
    match node.xattr_values() {
        Ok(all) => meta.xattrs = all,
        Err(error) => errors.push(error),
    }
    match node.acl() {
        Ok(acl) if !acl.is_trivial => meta.aces = acl.aces,
        Ok(_) => {}
        Err(error) => errors.push(error),
    }
    (meta, errors)
}

impl Content for Node {
    fn size(&self) -> u64 {
        self.attrs().size
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        match Node::read_at(self, offset, buf) {
            Ok(n) if n == buf.len() => Ok(()),
            Ok(_) => Err(io::ErrorKind::UnexpectedEof.into()),
            Err(error) => Err(to_io(error)),
        }
    }

    fn next_data(&self, offset: u64) -> io::Result<Option<u64>> {
        Node::next_data(self, offset).map_err(to_io)
    }

    fn next_hole(&self, offset: u64) -> io::Result<u64> {
        Node::next_hole(self, offset).map_err(to_io).map(|hole| hole.unwrap_or(self.attrs().size))
    }

    fn block_size(&self) -> u64 {
        Node::block_size(self)
    }
}

impl Content for Volume {
    fn size(&self) -> u64 {
        Volume::size(self)
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        Volume::read_at(self, offset, buf).map_err(to_io)
    }

    fn next_data(&self, offset: u64) -> io::Result<Option<u64>> {
        Volume::next_data(self, offset).map_err(to_io)
    }

    fn next_hole(&self, offset: u64) -> io::Result<u64> {
        Volume::next_hole(self, offset).map_err(to_io).map(|hole| hole.unwrap_or(Volume::size(self)))
    }

    fn block_size(&self) -> u64 {
        Volume::block_size(self)
    }
}

/// The ranges with data. Where an indirect block cannot be read, the rest counts as data, so that reading it
/// reports what is lost.
#[must_use]
pub fn known_segments(content: &dyn Content) -> Vec<Segment> {
    segments(content).unwrap_or_else(|_| whole(content))
}

fn whole(content: &dyn Content) -> Vec<Segment> {
    match content.size() {
        0 => Vec::new(),
        len => vec![Segment { offset: 0, len }],
    }
}

/// The child file systems of a dataset, sorted by name. A snapshot has none.
///
/// # Errors
/// [`Error::Dsl`] if the list or one of the datasets cannot be read.
pub fn child_filesystems(dataset: &Dataset) -> Result<Vec<Dataset>, Error> {
    if dataset.dsl().is_snapshot() {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    for dir in dataset.dsl().dir().children()? {
        let child = dataset.pool().dataset(dir.name())?;
        if child.kind()? == DatasetKind::Filesystem {
            found.push(child);
        }
    }
    found.sort_by(|a, b| a.name().cmp(b.name()));
    Ok(found)
}

/// The child file systems of a dataset of `pool`, as [`walk`](super::walk::walk) needs them.
///
/// # Errors
/// If the list of children cannot be read; a child that cannot be opened is in the list with its error.
pub fn children(pool: &Pool, dataset: &str) -> Result<Vec<Child>, AnyError> {
    let dataset = pool.dataset(dataset)?;
    let child = |child: Dataset| {
        let name = child.name().rsplit('/').next().unwrap_or_default().as_bytes().to_vec();
        let filesystem = child.filesystem().map(|files| Arc::clone(files.filesystem()));
        Child { name, dataset: child.name().to_owned(), filesystem: filesystem.map_err(Into::into) }
    };
    Ok(child_filesystems(&dataset)?.into_iter().map(child).collect())
}
