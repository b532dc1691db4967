//! Paths of many files of one file system: directories that were read are remembered.
//!
//! # What always holds
//! - At most [`NAMES_MAX`] names are kept, beyond those of the directory that was read last.

use format::ObjectId;
use std::collections::HashMap;
use std::sync::Arc;
use zpl::{Filesystem, Node, ZplError};

/// Names that are remembered.
const NAMES_MAX: usize = 1 << 20;

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
        let fs = Arc::clone(&self.fs);
        fs.path_by(id, &mut |dir, id| self.name(dir, id))
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
