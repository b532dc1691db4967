//! Look-up of files by name and path, and paths of files, in a file system that is open for reading.

use crate::{FileKind, Filesystem, Node, ZplError};
use dmu::DmuError;
use format::ObjectId;
use std::collections::HashSet;
use std::sync::Arc;

/// Longest chain of parents that is followed.
const DEPTH_MAX: usize = 4096;

/// Callback that finds the name of an object in a directory.
pub type NameIn<'a> = &'a mut dyn FnMut(&Node, ObjectId) -> Result<Option<Vec<u8>>, ZplError>;

impl Filesystem {
    /// Looks up `name` in `dir`, by the file system's own rules for names, `.` and `..` included. `None`:
    /// there is no such entry.
    ///
    /// # Errors
    /// If an object of the file system cannot be read, or is damaged.
    pub fn lookup(&self, dir: &Node, name: &[u8]) -> Result<Option<ObjectId>, ZplError> {
        self.lookup_with(dir, name, false)
    }

    /// Like [`Filesystem::lookup`]; if the file system's case sensitivity is mixed, case can be ignored.
    ///
    /// # Errors
    /// If an object of the file system cannot be read, or is damaged.
    pub fn lookup_with(
        &self,
        dir: &Node,
        name: &[u8],
        ignore_case: bool,
    ) -> Result<Option<ObjectId>, ZplError> {
        dir.expect(FileKind::Directory, "directory")?;
        match name {
            b"." => return Ok(Some(dir.id())),
            b".." => return Ok(Some(dir.attrs().parent)),
            _ => {}
        }
        let how = self.name_match(ignore_case);
        dir.lookup_entry(name, how)
    }

    /// The file at a path of names separated by `/`, starting at the root. Symbolic links are not followed.
    /// `None`: a name does not exist.
    ///
    /// # Errors
    /// If an object of the file system cannot be read, or is damaged.
    pub fn resolve(self: &Arc<Self>, path: &[u8]) -> Result<Option<Node>, ZplError> {
        let mut node = self.node(self.root())?;
        for name in path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
            if !node.is_dir() {
                return Ok(None);
            }
            match self.lookup(&node, name)? {
                Some(id) => node = self.node(id)?,
                None => return Ok(None),
            }
        }
        Ok(Some(node))
    }

    /// A path to an object, starting at the root, found through its chain of parents. For a file with several
    /// names it is the name that was linked last. `None` if the object has no name any more. Attribute
    /// directories are called `<xattrdir>`.
    ///
    /// Searches every directory on the way up for the entry of the one below.
    ///
    /// # Errors
    /// If an object of the file system cannot be read, or is damaged.
    pub fn path_of(self: &Arc<Self>, id: ObjectId) -> Result<Option<Vec<u8>>, ZplError> {
        self.path_by(id, &mut Node::name_of)
    }

    /// Like [`Filesystem::path_of`], with another method to find the name of an object in a directory, for
    /// callers with many queries.
    ///
    /// # Errors
    /// If an object of the file system cannot be read, or is damaged.
    pub fn path_by(self: &Arc<Self>, id: ObjectId, name_in: NameIn<'_>) -> Result<Option<Vec<u8>>, ZplError> {
        let mut parts: Vec<Vec<u8>> = Vec::new();
        let mut seen = HashSet::new();
        let mut at = self.node(id)?;
        while at.id() != self.root() {
            if seen.len() >= DEPTH_MAX || !seen.insert(at.id()) {
                return Ok(None);
            }
            let parent = match self.node(at.attrs().parent) {
                Ok(parent) => parent,
                Err(ZplError::Dmu(DmuError::NoObject { .. }) | ZplError::NotAFile { .. }) => return Ok(None),
                Err(error) => return Err(error),
            };
            let name = if parent.attrs().xattr_dir == Some(at.id()) {
                Some(b"<xattrdir>".to_vec())
            } else if parent.is_dir() {
                name_in(&parent, at.id())?
            } else {
                None
            };
            let Some(name) = name else { return Ok(None) };
            parts.push(name);
            at = parent;
        }
        let mut path = Vec::new();
        for part in parts.iter().rev() {
            path.push(b'/');
            path.extend_from_slice(part);
        }
        if path.is_empty() {
            path.push(b'/');
        }
        Ok(Some(path))
    }
}
