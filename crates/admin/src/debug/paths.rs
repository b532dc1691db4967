//! Finds the paths of many files of one file system; caches the directories that it has read.
//!
//! # What always holds
//! - At most [`NAMES_MAX`] names are cached, not counting those of the last directory read.

use format::ObjectId;
use std::collections::HashMap;
use std::sync::Arc;
use zpl::{Filesystem, Node, ZplError};

/// Maximum number of cached names.
const NAMES_MAX: usize = 1 << 20;

/// Finds paths by object ids.
pub struct Paths {
    fs: Arc<Filesystem>,
    /// Names by object id, for each directory.
    known: HashMap<ObjectId, HashMap<ObjectId, Vec<u8>>>,
    names: usize,
}

impl Paths {
    /// Creates an empty cache for this file system.
    pub fn new(fs: Arc<Filesystem>) -> Paths {
        Paths { fs, known: HashMap::new(), names: 0 }
    }

    /// The file system of the paths.
    pub fn filesystem(&self) -> &Arc<Filesystem> {
        &self.fs
    }

    /// The path of a file, as returned by [`Filesystem::path_of`].
    ///
    /// # Errors
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
