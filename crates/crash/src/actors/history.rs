//! What concurrent threads did, and the states that may be found after a cut.
//!
//! Each thread works in directories of its own, its work directories, so the contents of a work directory are
//! one sequence of versions, whatever other threads do. Promises connect them: an fsync makes all names of
//! its dataset durable, a txg all contents.
//!
//! # Permitted states
//! - The names of a work directory are one version, from the last promised one to the last one begun.
//! - A file consists of its versions in that range: its size is that of one of them, and each byte is from a
//!   version of that length. Zeros are from a version with zeros there, not from one that ends before.
//! - If a rename is found, every file of its dataset is at least as new as the rename.
//! - A promised snapshot exists; its work directories are between the steps that had ended when it was
//!   requested and those that had begun when it existed.

use super::found_state::{FoundDir, FoundFile, State};
use crate::model::{Entry, FileId, FileState, Model, Version, possible};
use std::collections::BTreeMap;
use zpl::FileKind;

const SECTOR: usize = 512;

/// A directory that one thread works in.
#[derive(Debug)]
pub(crate) struct WorkDir {
    /// Index of its dataset in `DATASETS`.
    pub dataset: usize,
    /// Name of the directory in the root of the dataset.
    pub dir: String,
    /// Expected contents, with their history.
    pub model: Model,
    /// The last step that has ended.
    pub done: u64,
    /// Steps with a rename, and for each the last ended steps of all work directories of the dataset before
    /// it.
    pub renames: Vec<(u64, Steps)>,
}

/// A step for each work directory; 0: none.
pub(crate) type Steps = Vec<u64>;

/// What is durable from a moment on.
#[derive(Debug, Clone, Default)]
pub(crate) struct Promise {
    /// Durable step of the names, by work directory.
    pub names: Steps,
    /// Durable step of all files, by work directory.
    pub files: Steps,
    /// A single durable file: index of its work directory, its id, and the step.
    pub file: Option<(usize, FileId, u64)>,
}

/// A snapshot of a dataset.
#[derive(Debug)]
pub(crate) struct Snapshot {
    /// Index of the dataset in `DATASETS`.
    pub dataset: usize,
    /// Its name, after the `@`.
    pub name: String,
    /// Last ended steps when the snapshot was requested.
    pub from: Steps,
    /// Last begun steps when the snapshot existed; empty before that.
    pub until: Steps,
}

/// A file that was copied out of a snapshot.
#[derive(Debug)]
pub(crate) struct Copied {
    /// Name of the copy in the directory of copies.
    pub name: String,
    /// Contents in the snapshot it was copied from.
    pub bytes: Vec<u8>,
}

/// An event that changes the permitted states.
#[derive(Debug)]
pub(crate) enum What {
    /// A step of a work directory may have begun.
    Begun(usize, u64),
    /// The call that made the promise has returned.
    Promised(Promise),
    /// The snapshot with this index may exist from now on.
    Taking(usize),
    /// The snapshot with this index exists.
    Taken(usize),
    /// The snapshot may be destroyed.
    Destroying(usize),
    /// The snapshot with this index no longer exists.
    Destroyed(usize),
    /// A copied file is durable.
    Copied(usize),
}

/// How often threads met in the ways in which data was lost before a defect was fixed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Coverage {
    /// Fsyncs in a dataset with a new clone whose txg was open, being written, or the last on disk.
    pub beside_clones: [u64; 3],
    /// Clones that were made, and clones that were refused because the txg of their blocks was not on disk,
    /// while a txg was being written.
    pub cloned_while_synced: [u64; 2],
    /// Attempts to destroy a snapshot while it was being copied.
    pub copied_and_destroyed: u64,
    /// Fsyncs of a file after a large write to another file of its dataset, which was not durable and had
    /// been truncated or overwritten since.
    pub beside_cuts: u64,
}

impl Coverage {
    /// Adds the counts of another run.
    pub(crate) fn add(&mut self, other: &Coverage) {
        self.beside_clones.iter_mut().zip(other.beside_clones).for_each(|(sum, one)| *sum += one);
        self.cloned_while_synced.iter_mut().zip(other.cloned_while_synced).for_each(|(sum, one)| *sum += one);
        self.copied_and_destroyed += other.copied_and_destroyed;
        self.beside_cuts += other.beside_cuts;
    }
}

/// Record of all that the threads did.
#[derive(Debug, Default)]
pub(crate) struct History {
    /// Directories in which they worked, with their models.
    pub(crate) work_dirs: Vec<WorkDir>,
    /// Events, each with the number of disk operations before it.
    pub events: Vec<(u64, What)>,
    /// Snapshots that were taken.
    pub snapshots: Vec<Snapshot>,
    /// Files that were copied from snapshots.
    pub copies: Vec<Copied>,
    /// Counts of the critical interleavings that occurred.
    pub coverage: Coverage,
    /// Descriptions of all operations, each with the number of disk operations before it.
    pub operation_log: Vec<(u64, String)>,
}

impl History {
    /// The last ended step of each work directory.
    pub(crate) fn done(&self) -> Steps {
        self.work_dirs.iter().map(|work_dir| work_dir.done).collect()
    }

    /// The last begun step of each work directory.
    pub(crate) fn begun(&self) -> Steps {
        self.work_dirs.iter().map(|work_dir| work_dir.model.step()).collect()
    }

    /// The last ended step of each work directory of one dataset; 0 for others.
    pub(crate) fn done_in(&self, dataset: usize) -> Steps {
        self.work_dirs
            .iter()
            .map(|work_dir| if work_dir.dataset == dataset { work_dir.done } else { 0 })
            .collect()
    }
}

/// State of a snapshot at a moment.
#[derive(Debug, Clone, Copy, Default)]
struct Life {
    may_be: bool,
    must_be: bool,
}

/// The certain and the possible at a moment.
#[derive(Debug)]
pub(crate) struct Moment {
    next: usize,
    names: Steps,
    files: Steps,
    file: BTreeMap<(usize, FileId), u64>,
    begun: Steps,
    snapshots: Vec<Life>,
    copies: Vec<bool>,
}

impl Moment {
    /// The moment before the first operation.
    pub(crate) fn new(history: &History) -> Moment {
        let none = vec![0; history.work_dirs.len()];
        Moment {
            next: 0,
            names: none.clone(),
            files: none.clone(),
            file: BTreeMap::new(),
            begun: none,
            snapshots: vec![Life::default(); history.snapshots.len()],
            copies: vec![false; history.copies.len()],
        }
    }

    /// Number of events so far; equal numbers mean equal moments.
    pub(crate) fn number(&self) -> usize {
        self.next
    }

    /// Advances to the moment of this disk operation.
    pub(crate) fn advance(&mut self, history: &History, operation: u64) {
        while let Some((_, what)) = history.events.get(self.next).filter(|(ops, _)| *ops <= operation) {
            self.next += 1;
            match what {
                What::Begun(work_dir, step) => self.begun[*work_dir] = *step,
                What::Promised(promise) => self.promised(promise),
                What::Taking(i) => self.snapshots[*i].may_be = true,
                What::Taken(i) => self.snapshots[*i].must_be = true,
                What::Destroying(i) => self.snapshots[*i].must_be = false,
                What::Destroyed(i) => self.snapshots[*i].may_be = false,
                What::Copied(i) => self.copies[*i] = true,
            }
        }
    }

    fn promised(&mut self, promise: &Promise) {
        let raise = |known: &mut Steps, steps: &Steps| {
            known.iter_mut().zip(steps).for_each(|(known, step)| *known = (*known).max(*step));
        };
        raise(&mut self.names, &promise.names);
        raise(&mut self.files, &promise.files);
        if let Some((work_dir, file, step)) = promise.file {
            let known = self.file.entry((work_dir, file)).or_default();
            *known = (*known).max(step);
        }
    }

    /// Checks that a state is permitted at this moment.
    ///
    /// # Errors
    /// Description of the first deviation.
    pub(crate) fn check(&self, history: &History, state: &State) -> Result<(), String> {
        for (i, found) in &state.work_dirs {
            let i = *i;
            let span = Span { history, work_dir: i, names: self.names[i], until: self.begun[i] };
            let file = |id| self.file.get(&(i, id)).copied().unwrap_or(0).max(self.files[i]);
            span.check(found, &file).map_err(|why| format!("{}: {why}", history.work_dirs[i].dir))?;
        }
        for (i, (snapshot, life)) in history.snapshots.iter().zip(&self.snapshots).enumerate() {
            if snapshot.dataset == 1 && state.is_second_gone {
                continue;
            }
            match state.snapshots.get(&i) {
                None if life.must_be => return Err(format!("snapshot {} is missing", snapshot.name)),
                Some(_) if !life.may_be => return Err(format!("snapshot {} is there", snapshot.name)),
                None => {}
                Some(work_dirs) => self.check_snapshot(history, snapshot, work_dirs)?,
            }
        }
        for (copied, is_certain) in history.copies.iter().zip(&self.copies) {
            if *is_certain && !state.is_second_gone && state.copies.get(&copied.name) != Some(&copied.bytes) {
                return Err(format!("the copy {} is not what was copied", copied.name));
            }
        }
        Ok(())
    }

    fn check_snapshot(
        &self,
        history: &History,
        snapshot: &Snapshot,
        work_dirs: &BTreeMap<usize, FoundDir>,
    ) -> Result<(), String> {
        let until = if snapshot.until.is_empty() { &self.begun } else { &snapshot.until };
        for (i, found) in work_dirs {
            let span = Span { history, work_dir: *i, names: snapshot.from[*i], until: until[*i] };
            let all = |_| snapshot.from[*i];
            let at = || format!("snapshot {}, {}", snapshot.name, history.work_dirs[*i].dir);
            span.check(found, &all).map_err(|why| format!("{}: {why}", at()))?;
        }
        Ok(())
    }
}

/// The versions of a work directory that may be found.
struct Span<'a> {
    history: &'a History,
    work_dir: usize,
    names: u64,
    until: u64,
}

impl Span<'_> {
    /// Checks that a directory is one of these versions. `durable` returns the step that a file must be at
    /// least as new as.
    fn check(&self, found: &FoundDir, durable: &dyn Fn(FileId) -> u64) -> Result<(), String> {
        let model = &self.history.work_dirs[self.work_dir].model;
        let mut reasons = Vec::new();
        for version in possible(&model.names, self.names, self.until) {
            match self.check_version(version.step, &version.state, found, durable) {
                Ok(()) => return Ok(()),
                Err(why) => reasons.push(format!("step {}: {why}", version.step)),
            }
        }
        let last = reasons.len().saturating_sub(12);
        let (from, until) = (self.names, self.until);
        Err(format!("steps {from} to {until}: no version fits:\n    {}", reasons[last..].join("\n    ")))
    }

    fn check_version(
        &self,
        step: u64,
        names: &BTreeMap<String, Entry>,
        found: &FoundDir,
        durable: &dyn Fn(FileId) -> u64,
    ) -> Result<(), String> {
        if let Some(missing) = names.keys().find(|name| !found.names.contains_key(*name)) {
            return Err(format!("{missing} is missing"));
        }
        if let Some(extra) = found.names.keys().find(|name| !names.contains_key(*name)) {
            return Err(format!("{extra} should not be there"));
        }
        let work_dir = &self.history.work_dirs[self.work_dir];
        let renames = work_dir.renames.iter().take_while(|(at, _)| *at <= step);
        let renamed = renames.map(|(_, done)| done[self.work_dir]).max().unwrap_or(0);
        let mut objects = BTreeMap::new();
        for (name, entry) in names {
            let (object, id) = (found.names[name], entry.id());
            if *objects.entry(id).or_insert(object) != object {
                return Err(format!("{name} is another file than its other names"));
            }
            let versions: Vec<&Version<FileState>> =
                possible(&work_dir.model.files[&id], durable(id).max(renamed), self.until).collect();
            let file = &found.files[&object];
            check_file(file, &versions).map_err(|why| {
                let steps: Vec<u64> = versions.iter().map(|version| version.step).collect();
                format!("{name} (file {id}, versions of steps {steps:?}): {why}")
            })?;
        }
        Ok(())
    }
}

fn check_file(found: &FoundFile, versions: &[&Version<FileState>]) -> Result<(), String> {
    if found.kind != FileKind::Regular {
        return Err(format!("is a {:?}", found.kind));
    }
    if !versions.iter().any(|version| version.state.mode == found.mode) {
        return Err(format!("mode {:o}", found.mode));
    }
    let (bytes, size) = (&found.bytes, found.bytes.len());
    if !versions.iter().any(|version| version.state.bytes.len() == size) {
        let sizes: Vec<usize> = versions.iter().map(|version| version.state.bytes.len()).collect();
        return Err(format!("{size} bytes, expected one of {sizes:?}"));
    }
    for (i, sector) in bytes.chunks(SECTOR).enumerate() {
        let at = i * SECTOR;
        let is_whole = |version: &&Version<FileState>| {
            version.state.bytes.get(at..at + sector.len()).is_some_and(|known| known == sector)
        };
        // Records of two writes may meet within a sector.
        let is_known = |(n, byte): (usize, &u8)| {
            versions.iter().any(|version| version.state.bytes.get(at + n) == Some(byte))
        };
        if !versions.iter().any(is_whole) && !sector.iter().enumerate().all(is_known) {
            let zeros = sector.iter().filter(|byte| **byte == 0).count();
            return Err(format!("the bytes from {at} on are of no version ({zeros} zeros in the sector)"));
        }
    }
    Ok(())
}

/// Describes the operations around a disk operation.
pub(crate) fn told_until(history: &History, operation: u64, lines: usize) -> String {
    let end = history.operation_log.iter().take_while(|(ops, _)| *ops <= operation).count();
    let of = &history.operation_log[end.saturating_sub(lines)..end];
    of.iter().map(|(ops, text)| format!("  {ops}: {text}")).collect::<Vec<_>>().join("\n")
}

/// A work directory that is empty.
pub(crate) fn empty_work_dir(dataset: usize, dir: &str) -> WorkDir {
    WorkDir { dataset, dir: dir.to_owned(), model: Model::new(), done: 0, renames: Vec::new() }
}

/// A file with these bytes.
pub(crate) fn file_state(bytes: Vec<u8>) -> FileState {
    FileState { bytes, mode: 0o644, xattrs: BTreeMap::new() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn found(bytes: Vec<u8>) -> FoundFile {
        FoundFile { kind: FileKind::Regular, mode: 0o644, bytes }
    }

    fn check(bytes: Vec<u8>, versions: &[Vec<u8>]) -> bool {
        let versions: Vec<Version<FileState>> = versions
            .iter()
            .map(|bytes| Version { step: 1, state: Arc::new(file_state(bytes.clone())) })
            .collect();
        check_file(&found(bytes), &versions.iter().collect::<Vec<_>>()).is_ok()
    }

    #[test]
    fn zeros_that_no_version_has_are_wrong() {
        let (old, new) = (vec![1; 3000], vec![2; 3000]);
        assert!(check(new.clone(), &[old.clone(), new.clone()]));
        assert!(check([&new[..700], &old[700..]].concat(), &[old.clone(), new.clone()]));
        assert!(check(Vec::new(), &[old.clone(), Vec::new()]));
        assert!(!check(vec![0; 3000], &[old, new, Vec::new()]));
    }
}
