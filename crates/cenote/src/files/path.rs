//! From paths to numbers.

use format::ObjectId;
use zpl::{FileKind, ZplError};

use super::FilesystemWriter;
use crate::Error;

/// Links followed in one path, as in Linux.
const LINKS_MAX: usize = 40;

/// Where a path leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The directory of the last component; the root's own is the root.
    pub dir: ObjectId,
    /// The last component, after links were followed. Empty: the root itself.
    pub name: Vec<u8>,
    /// What it leads to; `None`: nothing yet.
    pub id: Option<ObjectId>,
    /// The path from the root without links on the way.
    pub path: Vec<u8>,
}

impl FilesystemWriter {
    /// The number of the file at a path, links followed.
    ///
    /// # Errors
    /// [`Error::NoSuchPath`], [`Error::Path`].
    pub fn resolve(&self, path: &[u8]) -> Result<ObjectId, Error> {
        self.found(path, true)
    }

    /// The same; a link that a path ends with is what it leads to.
    ///
    /// # Errors
    /// [`Error::NoSuchPath`], [`Error::Path`].
    pub fn resolve_link(&self, path: &[u8]) -> Result<ObjectId, Error> {
        self.found(path, path.ends_with(b"/"))
    }

    fn found(&self, path: &[u8], follow: bool) -> Result<ObjectId, Error> {
        let missing = || Error::NoSuchPath { dataset: self.name().to_owned(), path: path.to_vec() };
        self.find(path, follow)?.id.ok_or_else(missing)
    }

    /// Where a path leads, as the system would walk it in a root of its own: `..` at the top stays there, and
    /// an absolute link starts again from the root. The last component need not exist, and is followed if it
    /// is a link and `follow` says so.
    ///
    /// # Errors
    /// [`Error::NoSuchPath`] if a directory on the way is missing; [`Error::Path`] with
    /// [`ZplError::WrongKind`] if it is something else, or there are too many links.
    pub fn find(&self, path: &[u8], follow: bool) -> Result<Found, Error> {
        let fs = self.fs();
        let components = |path: &[u8]| -> Vec<Vec<u8>> {
            let parts = path.split(|&byte| byte == b'/').filter(|part| !part.is_empty() && *part != b".");
            parts.map(<[u8]>::to_vec).rev().collect()
        };
        let mut todo = components(path);
        let mut above: Vec<(Vec<u8>, ObjectId)> = Vec::new();
        let mut links = 0;
        while let Some(name) = todo.pop() {
            let dir = above.last().map_or(fs.root(), |(_, id)| *id);
            self.check_dir(path, dir)?;
            if name == b".." {
                above.pop();
                continue;
            }
            let Some(id) = fs.lookup(dir, &name).map_err(self.at(path))? else {
                // `new/.` would be in it.
                if todo.is_empty() && !path.ends_with(b"/.") {
                    let path = joined(above.iter().map(|(name, _)| name.as_slice()).chain([&name[..]]));
                    return Ok(Found { dir, name, id: None, path });
                }
                return Err(Error::NoSuchPath { dataset: self.name().to_owned(), path: path.to_vec() });
            };
            let is_last = todo.is_empty();
            let attrs = fs.attrs(id).map_err(self.at(path))?;
            let is_link = FileKind::from_mode(attrs.mode) == Some(FileKind::Symlink);
            if !is_link || (is_last && !follow) {
                above.push((name, id));
                continue;
            }
            links += 1;
            if links > LINKS_MAX {
                return Err(Error::TooManyLinks { dataset: self.name().to_owned(), path: path.to_vec() });
            }
            let target = self.node(id)?.readlink().map_err(self.at(path))?;
            if target.starts_with(b"/") {
                above.clear();
            }
            todo.extend(components(&target));
        }
        if path.ends_with(b"/")
            && let Some((_, id)) = above.last()
        {
            self.check_dir(path, *id)?;
        }
        let whole = joined(above.iter().map(|(name, _)| name.as_slice()));
        let (name, id) = above.pop().unwrap_or((Vec::new(), fs.root()));
        let dir = above.last().map_or(fs.root(), |(_, id)| *id);
        Ok(Found { dir, name, id: Some(id), path: whole })
    }

    fn check_dir(&self, path: &[u8], id: ObjectId) -> Result<(), Error> {
        let attrs = self.fs().attrs(id).map_err(self.at(path))?;
        match FileKind::from_mode(attrs.mode) {
            Some(FileKind::Directory) | None => Ok(()),
            Some(kind) => Err(self.at(path)(ZplError::WrongKind { object: id, kind, expected: "directory" })),
        }
    }
}

fn joined<'a>(parts: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    parts.collect::<Vec<_>>().join(&b'/')
}
