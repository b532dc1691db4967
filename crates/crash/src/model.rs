//! Model of a file system: its expected contents now and after each earlier step.
//!
//! Names are one sequence of versions; each file is a sequence of its own. The intent log may bring back
//! a newer version of the names than of a file that was not synced, but never a version older than the
//! last durable one.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Number of a file of the model, independent of its names.
pub(crate) type FileId = u64;

/// Target of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Entry {
    /// A directory.
    Dir(FileId),
    /// A regular file.
    File(FileId),
    /// A symbolic link.
    Symlink(FileId),
}

impl Entry {
    /// Number of the file.
    pub(crate) fn id(self) -> FileId {
        match self {
            Entry::Dir(id) | Entry::File(id) | Entry::Symlink(id) => id,
        }
    }
}

/// All names of a file system: path to target.
pub(crate) type Names = BTreeMap<String, Entry>;

/// Content and attributes of a file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct FileState {
    /// Content; for a symbolic link, its target.
    pub bytes: Vec<u8>,
    /// Permission bits.
    pub mode: u32,
    /// Extended attributes by name.
    pub xattrs: BTreeMap<String, Vec<u8>>,
}

/// A state, and the step that produced it.
#[derive(Debug, Clone)]
pub(crate) struct Version<T> {
    /// Number of the step.
    pub step: u64,
    /// State from that step on.
    pub state: Arc<T>,
}

/// A snapshot of the model.
#[derive(Debug, Clone)]
pub(crate) struct Snapshot {
    /// Number of the step that took it.
    pub taken: u64,
    /// Step that destroyed it; `None`: it exists.
    pub destroyed: Option<u64>,
    /// Names at that step.
    pub names: Arc<Names>,
    /// Files at that step.
    pub files: BTreeMap<FileId, Arc<FileState>>,
}

/// Model of a file system with its history.
#[derive(Debug, Clone, Default)]
pub(crate) struct Model {
    /// Versions of the names; the first is empty.
    pub names: Vec<Version<Names>>,
    /// Versions of each file, oldest first, by number.
    pub files: BTreeMap<FileId, Vec<Version<FileState>>>,
    /// Snapshots by name.
    pub snapshots: BTreeMap<String, Snapshot>,
    step: u64,
    last_id: FileId,
}

impl Model {
    /// The model of an empty file system.
    pub(crate) fn new() -> Model {
        Model { names: vec![Version { step: 0, state: Arc::default() }], ..Model::default() }
    }

    /// The number of the last step.
    pub(crate) fn step(&self) -> u64 {
        self.step
    }

    /// Begins the next step.
    pub(crate) fn begin_step(&mut self) -> u64 {
        self.step += 1;
        self.step
    }

    /// The current names.
    pub(crate) fn now(&self) -> &Names {
        self.names.last().map_or_else(|| unreachable!("there is a first version"), |version| &version.state)
    }

    /// The current state of a file.
    pub(crate) fn file(&self, id: FileId) -> &FileState {
        let versions = self.files.get(&id).and_then(|versions| versions.last());
        versions.map_or_else(|| panic!("no file {id} in the model"), |version| &version.state)
    }

    /// Changes the names in the current step.
    pub(crate) fn change_names(&mut self, change: impl FnOnce(&mut Names)) {
        let mut names = self.now().clone();
        change(&mut names);
        self.names.push(Version { step: self.step, state: Arc::new(names) });
    }

    /// Adds a file in the current step; returns its number.
    pub(crate) fn add_file(&mut self, state: FileState) -> FileId {
        self.last_id += 1;
        self.files.insert(self.last_id, vec![Version { step: self.step, state: Arc::new(state) }]);
        self.last_id
    }

    /// Changes a file in the current step.
    pub(crate) fn change_file(&mut self, id: FileId, change: impl FnOnce(&mut FileState)) {
        let mut state = self.file(id).clone();
        change(&mut state);
        let version = Version { step: self.step, state: Arc::new(state) };
        self.files.entry(id).or_default().push(version);
    }

    /// Takes a snapshot of the current state.
    pub(crate) fn snapshot(&mut self, name: &str) {
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

/// The versions that may be found if all steps up to `durable` are durable and no step after `begun` was
/// begun.
pub(crate) fn possible<T>(
    versions: &[Version<T>],
    durable: u64,
    begun: u64,
) -> impl Iterator<Item = &Version<T>> {
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
