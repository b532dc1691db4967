//! What the file system should hold, and held after each step before.
//!
//! Names are one sequence of versions; each file is a sequence of its own. The intent log may bring back
//! a newer version of the names than of a file that nobody asked to be durable, but never an older one
//! than what was.

use std::collections::BTreeMap;
use std::sync::Arc;

/// A file of the model, whatever its names.
pub type FileId = u64;

/// What a name leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Entry {
    /// A directory.
    Dir(FileId),
    /// A regular file.
    File(FileId),
    /// A symbolic link.
    Symlink(FileId),
}

impl Entry {
    /// The file.
    pub fn id(self) -> FileId {
        match self {
            Entry::Dir(id) | Entry::File(id) | Entry::Symlink(id) => id,
        }
    }
}

/// All names, by path.
pub type Names = BTreeMap<String, Entry>;

/// What a file is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FileState {
    /// Its contents; of a symbolic link the target.
    pub bytes: Vec<u8>,
    /// Its permissions.
    pub mode: u32,
    /// Its extended attributes.
    pub xattrs: BTreeMap<String, Vec<u8>>,
}

/// A state and the step that made it.
#[derive(Debug, Clone)]
pub struct Version<T> {
    /// Number of the step.
    pub step: u64,
    /// The state from that step on.
    pub state: Arc<T>,
}

/// A snapshot.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// The step that took it.
    pub taken: u64,
    /// The step that destroyed it.
    pub destroyed: Option<u64>,
    /// Its names.
    pub names: Arc<Names>,
    /// Its files.
    pub files: BTreeMap<FileId, Arc<FileState>>,
}

/// The file system, with its history.
#[derive(Debug, Clone, Default)]
pub struct Model {
    /// Versions of the names; the first is empty.
    pub names: Vec<Version<Names>>,
    /// Versions of each file.
    pub files: BTreeMap<FileId, Vec<Version<FileState>>>,
    /// Snapshots by name.
    pub snapshots: BTreeMap<String, Snapshot>,
    step: u64,
    last_id: FileId,
}

impl Model {
    /// An empty file system.
    pub fn new() -> Model {
        Model { names: vec![Version { step: 0, state: Arc::default() }], ..Model::default() }
    }

    /// The number of the last step.
    pub fn step(&self) -> u64 {
        self.step
    }

    /// Begins the next step.
    pub fn begin_step(&mut self) -> u64 {
        self.step += 1;
        self.step
    }

    /// The names as they are now.
    pub fn now(&self) -> &Names {
        self.names.last().map_or_else(|| unreachable!("there is a first version"), |version| &version.state)
    }

    /// A file as it is now.
    pub fn file(&self, id: FileId) -> &FileState {
        let versions = self.files.get(&id).and_then(|versions| versions.last());
        versions.map_or_else(|| panic!("no file {id} in the model"), |version| &version.state)
    }

    /// Changes the names.
    pub fn change_names(&mut self, change: impl FnOnce(&mut Names)) {
        let mut names = self.now().clone();
        change(&mut names);
        self.names.push(Version { step: self.step, state: Arc::new(names) });
    }

    /// A new file.
    pub fn add_file(&mut self, state: FileState) -> FileId {
        self.last_id += 1;
        self.files.insert(self.last_id, vec![Version { step: self.step, state: Arc::new(state) }]);
        self.last_id
    }

    /// Changes a file.
    pub fn change_file(&mut self, id: FileId, change: impl FnOnce(&mut FileState)) {
        let mut state = self.file(id).clone();
        change(&mut state);
        let version = Version { step: self.step, state: Arc::new(state) };
        self.files.entry(id).or_default().push(version);
    }

    /// Takes a snapshot of what is there now.
    pub fn snapshot(&mut self, name: &str) {
        let files = self.now().values().map(|entry| {
            let id = entry.id();
            (id, Arc::new(self.file(id).clone()))
        });
        let snapshot = Snapshot {
            taken: self.step,
            destroyed: None,
            names: Arc::new(self.now().clone()),
            files: files.collect(),
        };
        self.snapshots.insert(name.to_owned(), snapshot);
    }
}

/// The versions that may be seen when everything up to `durable` is certain and nothing after `begun` had
/// begun.
pub fn possible<T>(versions: &[Version<T>], durable: u64, begun: u64) -> impl Iterator<Item = &Version<T>> {
    let first = versions.iter().rposition(|version| version.step <= durable).unwrap_or(0);
    versions[first..].iter().take_while(move |version| version.step <= begun)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn possible_versions_reach_from_the_durable_to_the_begun() {
        let versions: Vec<Version<u64>> =
            [0, 3, 5, 9].map(|step| Version { step, state: Arc::new(step) }).to_vec();
        let steps = |durable, begun| possible(&versions, durable, begun).map(|v| v.step).collect::<Vec<_>>();
        assert_eq!(steps(4, 6), [3, 5]);
        assert_eq!(steps(9, 20), [9]);
        assert_eq!(steps(0, 0), [0]);
    }
}
