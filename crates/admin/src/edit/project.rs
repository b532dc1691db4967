//! Project ids of files, and the flag that hands them down to new files.

use super::EditError;
use cenote::Error;
use cenote::files::{FilesystemWriter, NewAttrs};
use format::ObjectId;
use format::znode::FLAG_PROJINHERIT;
use std::sync::Arc;
use zpl::{FileKind, Filesystem, ZplError};

/// What Linux calls the flag.
const INHERIT: u32 = 0x2000_0000;
/// Directories in directories that are followed.
const DEPTH_MAX: usize = 4096;

/// A file or directory, with its project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectNode {
    /// Its object.
    pub object: ObjectId,
    /// Path from the root of the file system.
    pub path: Vec<u8>,
    /// Project id.
    pub project: u64,
    /// New files in it get the same.
    pub inherits: bool,
}

/// How far below a path to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// At the path itself.
    Own,
    /// Also at what is directly in the directory.
    Entries,
    /// At everything below.
    All,
}

/// What is to be changed of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ProjectChange {
    /// The new id.
    pub project: Option<u32>,
    /// The flag is set or cleared.
    pub inherits: Option<bool>,
}

fn node(fs: &Arc<Filesystem>, object: ObjectId, path: Vec<u8>) -> Result<(ProjectNode, bool), ZplError> {
    let node = fs.node(object)?;
    let inherits = node.attrs().flags & FLAG_PROJINHERIT != 0;
    let project = node.attrs().projid;
    Ok((ProjectNode { object, path, project, inherits }, node.kind() == FileKind::Directory))
}

/// The files at and below a path, directories before what is in them. Only files and directories have projects;
/// what else there is, is passed over below the path.
///
/// # Errors
/// [`Error::NoSuchPath`], or why it cannot be read.
pub fn projects(
    fs: &Arc<Filesystem>,
    dataset: &str,
    path: &[u8],
    reach: Reach,
) -> Result<Vec<ProjectNode>, EditError> {
    let failed = |e: ZplError| EditError::Failed(Error::from(e));
    let no_path =
        || EditError::Failed(Error::NoSuchPath { dataset: dataset.to_owned(), path: path.to_vec() });
    let top = fs.resolve(path).map_err(failed)?.ok_or_else(no_path)?;
    let (first, is_dir) = node(fs, top.id(), path.to_vec()).map_err(failed)?;
    let mut stack = if is_dir && reach != Reach::Own { vec![(first.clone(), 0)] } else { Vec::new() };
    let mut found = vec![first];
    while let Some((dir, depth)) = stack.pop() {
        for entry in fs.node(dir.object).map_err(failed)?.entries().map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let mut path = dir.path.clone();
            if path.last() != Some(&b'/') {
                path.push(b'/');
            }
            path.extend_from_slice(&entry.name);
            let (below, is_dir) = node(fs, entry.id, path).map_err(failed)?;
            if is_dir && reach == Reach::All && depth < DEPTH_MAX {
                stack.push((below.clone(), depth + 1));
            }
            found.push(below);
        }
    }
    Ok(found)
}

/// Changes the project of a file.
///
/// # Errors
/// Why it cannot be changed.
pub fn change_project(
    fs: &FilesystemWriter,
    node: &ProjectNode,
    change: &ProjectChange,
) -> Result<(), EditError> {
    let failed = |e: ZplError| EditError::Failed(Error::from(e));
    let flags = fs.fs().attrs(node.object).map_err(failed)?.flags;
    let linux = format::znode::linux_flags(flags);
    let linux_flags = change.inherits.map(|on| if on { linux | INHERIT } else { linux & !INHERIT });
    let new = NewAttrs { project: change.project, linux_flags, ..NewAttrs::default() };
    fs.fs().set_attrs(node.object, &new).map_err(failed)?;
    Ok(())
}
