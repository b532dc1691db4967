//! Resolution of paths to object ids.

use format::ObjectId;
use zpl::{FileKind, ZplError};

use super::FilesystemWriter;
use crate::Error;

/// Maximum number of symbolic links in one path, as in Linux.
const LINKS_MAX: usize = 40;

/// Result of [`FilesystemWriter::find`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Directory of the last component; for the root, the root itself.
    pub dir: ObjectId,
    /// Last component, after symbolic links were followed. Empty for the root.
    pub name: Vec<u8>,
    /// Object id of the file; `None` if it does not exist.
    pub id: Option<ObjectId>,
    /// Path from the root without symbolic links.
    pub path: Vec<u8>,
}

impl FilesystemWriter {
    /// Object id of the file at a path; symbolic links are followed.
    ///
    /// # Errors
    /// [`Error::NoSuchPath`]; [`Error::Path`] if a directory on the way cannot be read.
    pub fn resolve(&self, path: &[u8]) -> Result<ObjectId, Error> {
        self.found(path, true)
    }

    /// Object id of the file at a path; a symbolic link at its end is not followed unless a slash follows.
    ///
    /// # Errors
    /// [`Error::NoSuchPath`]; [`Error::Path`] if a directory on the way cannot be read.
    pub fn resolve_link(&self, path: &[u8]) -> Result<ObjectId, Error> {
        self.found(path, path.ends_with(b"/"))
    }

    fn found(&self, path: &[u8], follow: bool) -> Result<ObjectId, Error> {
        let missing = || Error::NoSuchPath { dataset: self.name().to_owned(), path: path.to_vec() };
        self.find(path, follow)?.id.ok_or_else(missing)
    }

    /// Resolves a path as the kernel does for a process confined to the root of the file system: `..` at the
    /// root stays there, and an absolute link starts at the root. The last component need not exist; if it is
    /// a symbolic link, it is followed if `follow` is true.
    ///
    /// # Errors
    /// [`Error::NoSuchPath`] if a directory on the way is missing; [`Error::Path`] with [`ZplError::WrongKind`] if
    /// it is not a directory; [`Error::TooManyLinks`].
    pub fn find(&self, path: &[u8], follow: bool) -> Result<Found, Error> {
        self.find_from(&mut Vec::new(), path, path, follow)
    }

    /// Like [`FilesystemWriter::find`], but `relative` starts in the last directory of `above`, the names and object
    /// ids from the root on. If the file exists, `above` leads to it afterwards, otherwise to its directory. `path`
    /// is the whole path, for errors.
    pub(super) fn find_from(
        &self,
        above: &mut Vec<(Vec<u8>, ObjectId)>,
        relative: &[u8],
        path: &[u8],
        follow: bool,
    ) -> Result<Found, Error> {
        let fs = self.fs();
        let components = |path: &[u8]| -> Vec<Vec<u8>> {
            let parts = path.split(|&byte| byte == b'/').filter(|part| !part.is_empty() && *part != b".");
            parts.map(<[u8]>::to_vec).rev().collect()
        };
        let mut todo = components(relative);
        let mut links = 0;
        while let Some(name) = todo.pop() {
            let dir = above.last().map_or(fs.root(), |(_, id)| *id);
            self.check_dir(path, dir)?;
            if name == b".." {
                above.pop();
                continue;
            }
            let Some(id) = fs.lookup(dir, &name).map_err(self.at(path))? else {
                // `new/.` would be inside a directory that does not exist.
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
        let mut last_first = above.iter().rev();
        let (name, id) = last_first.next().cloned().unwrap_or((Vec::new(), fs.root()));
        let dir = last_first.next().map_or(fs.root(), |(_, id)| *id);
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
