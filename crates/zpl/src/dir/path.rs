//! From names and paths to files, and from files back to their paths, in a file system as it is read.

use crate::{FileKind, Filesystem, Node, ZplError};
use dmu::DmuError;
use format::ObjectId;
use std::collections::HashSet;
use std::sync::Arc;

/// Longest chain of parents that is followed.
const DEPTH_MAX: usize = 4096;

/// Finds the name of an object in a directory.
pub type NameIn<'a> = &'a mut dyn FnMut(&Node, ObjectId) -> Result<Option<Vec<u8>>, ZplError>;

impl Filesystem {
    /// What `name` leads to in `dir`, by the file system's own rules for names; `.` and `..` too.
    ///
    /// # Errors
    /// If an object of the file system cannot be read, or is damaged.
    pub fn lookup(&self, dir: &Node, name: &[u8]) -> Result<Option<ObjectId>, ZplError> {
        self.lookup_with(dir, name, false)
    }

    /// As [`Filesystem::lookup`]; where case sensitivity is mixed, case can be ignored.
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

    /// The file at a path of names separated by `/`, from the root on. Symbolic links are not
    /// followed.
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

    /// A path to an object, from the root on, found by its chain of parents: of a file with several
    /// names, that by which it was linked last. `None` if it has no name any more. Attribute
    /// directories are called `<xattrdir>`.
    ///
    /// Reads every directory on the way up to the entry that leads down.
    ///
    /// # Errors
    /// If an object of the file system cannot be read, or is damaged.
    pub fn path_of(self: &Arc<Self>, id: ObjectId) -> Result<Option<Vec<u8>>, ZplError> {
        self.path_by(id, &mut Node::name_of)
    }

    /// The same, with another way to find the name of an object in a directory, for callers that ask often.
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
