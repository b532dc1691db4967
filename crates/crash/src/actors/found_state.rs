//! What is found in the pool after the power has gone off.

use format::ObjectId;
use std::collections::BTreeMap;
use zpl::FileKind;

/// A file found in the pool.
#[derive(Debug)]
pub(crate) struct FoundFile {
    /// Kind of the file.
    pub kind: FileKind,
    /// Permission bits.
    pub mode: u32,
    /// Content; for a symbolic link, its target.
    pub bytes: Vec<u8>,
}

/// What is in a work directory.
#[derive(Debug, Default)]
pub(crate) struct FoundDir {
    /// Names and what they lead to.
    pub names: BTreeMap<String, ObjectId>,
    /// Files by object id.
    pub files: BTreeMap<ObjectId, FoundFile>,
}

/// Contents of the whole pool.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// Work directories, but for those of a dataset that was destroyed.
    pub(crate) work_dirs: BTreeMap<usize, FoundDir>,
    /// Snapshots that are there, and the work directories in them.
    pub snapshots: BTreeMap<usize, BTreeMap<usize, FoundDir>>,
    /// Files that were copied out of snapshots.
    pub copies: BTreeMap<String, Vec<u8>>,
    /// The second dataset was destroyed after the import, with its snapshots.
    pub(crate) is_second_gone: bool,
}
