//! Paths of many files of one file system: directories that were read are remembered.
//!
//! # What always holds
//! - At most [`NAMES_MAX`] names are kept, beyond those of the directory that was read last.

use dmu::DmuError;
use format::ObjectId;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use zpl::{Filesystem, Node, ZplError};

/// Names that are remembered.
const NAMES_MAX: usize = 1 << 20;
/// Levels of a path.
const DEPTH_MAX: usize = 4096;

/// Finds paths by objects.
pub struct Paths {
    fs: Arc<Filesystem>,
    /// By directory: names of what is in it.
    known: HashMap<ObjectId, HashMap<ObjectId, Vec<u8>>>,
    names: usize,
}

impl Paths {
    /// Paths in this file system.
    pub fn new(fs: Arc<Filesystem>) -> Paths {
        Paths { fs, known: HashMap::new(), names: 0 }
    }

    /// The file system.
    pub fn filesystem(&self) -> &Arc<Filesystem> {
        &self.fs
    }

    /// As [`Filesystem::path_of`].
    pub fn of(&mut self, id: ObjectId) -> Result<Option<Vec<u8>>, ZplError> {
        let mut parts: Vec<Vec<u8>> = Vec::new();
        let mut seen = HashSet::new();
        let mut at = self.fs.node(id)?;
        while at.id() != self.fs.root() {
            if seen.len() >= DEPTH_MAX || !seen.insert(at.id()) {
                return Ok(None);
            }
            let parent = match self.fs.node(at.attrs().parent) {
                Ok(parent) => parent,
                Err(ZplError::Dmu(DmuError::NoObject { .. }) | ZplError::NotAFile { .. }) => return Ok(None),
                Err(error) => return Err(error),
            };
            let name = if parent.attrs().xattr_dir == Some(at.id()) {
                Some(b"<xattrdir>".to_vec())
            } else if parent.is_dir() {
                self.name(&parent, at.id())?
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

    fn name(&mut self, dir: &Node, id: ObjectId) -> Result<Option<Vec<u8>>, ZplError> {
        if let Some(names) = self.known.get(&dir.id()) {
            return Ok(names.get(&id).cloned());
        }
        let mut names = HashMap::new();
        for entry in dir.entries()? {
            let entry = entry?;
            names.entry(entry.id).or_insert(entry.name);
        }
        if self.names + names.len() > NAMES_MAX {
            self.known.clear();
            self.names = 0;
        }
        self.names += names.len();
        let found = names.get(&id).cloned();
        self.known.insert(dir.id(), names);
        Ok(found)
    }
}
