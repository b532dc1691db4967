//! Project ids of files, and the flag that makes new files inherit them.

use super::EditError;
use cenote::Error;
use cenote::files::{FilesystemWriter, NewAttrs};
use format::ObjectId;
use format::znode::FLAG_PROJINHERIT;
use std::sync::Arc;
use zpl::{FileKind, Filesystem, ZplError};

/// The flag's value in Linux (`FS_PROJINHERIT_FL`).
const INHERIT: u32 = 0x2000_0000;
/// Maximum depth of nested directories that are followed.
const DEPTH_MAX: usize = 4096;

/// A file or directory, with its project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectNode {
    /// Object id of the file.
    pub object: ObjectId,
    /// Path from the root of the file system.
    pub path: Vec<u8>,
    /// Project id.
    pub project: u64,
    /// The inherit flag: new files in this directory get its project id.
    pub inherits: bool,
}

/// Which files below a path are visited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// Only the path itself.
    Own,
    /// The path and the entries of the directory.
    Entries,
    /// The path and all its descendants.
    All,
}

/// Change of a file's project.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ProjectChange {
    /// The new project id; `None`: unchanged.
    pub project: Option<u32>,
    /// The new inherit flag; `None`: unchanged.
    pub inherits: Option<bool>,
}

fn node(fs: &Arc<Filesystem>, object: ObjectId, path: Vec<u8>) -> Result<(ProjectNode, bool), ZplError> {
    let node = fs.node(object)?;
    let inherits = node.attrs().flags & FLAG_PROJINHERIT != 0;
    let project = node.attrs().projid;
    Ok((ProjectNode { object, path, project, inherits }, node.kind() == FileKind::Directory))
}

/// The files and directories at and below a path, directories before their entries. Other file types have no
/// project and are skipped below the path.
///
/// # Errors
/// [`Error::NoSuchPath`], or the path cannot be read.
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
/// The file cannot be changed.
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
