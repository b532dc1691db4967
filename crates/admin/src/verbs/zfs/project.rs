//! `zfs project`: project ids of files inside a file system, mounted or not, and the flag that hands them down to new
//! files. Files are looked at or changed.
//!
//! There may be millions of files: [`Session::each`] gives them one by one as they are looked at, with no more in
//! memory than the directories that are still to be visited; [`Session::run`] collects them. Files to be changed are
//! collected in any case: all are found before the first is changed.
//!
//! # What always holds
//! - A directory comes before what is in it.
//!
//! Source: docs/on-disk/33-cli.md (section 2), 30-zpl.md.

use super::operand::NotOpened;
use crate::Session;
use crate::verbs::{Code, Reason, Refused, Right, Streamed, Verb, collect};
use cenote::Error;
use cenote::error::chain;
use cenote::files::{FilesystemWriter, NewAttrs};
use format::ObjectId;
use format::znode::FLAG_PROJINHERIT;
use serde::{Deserialize, Serialize};
use std::ops::ControlFlow;
use std::sync::Arc;
use zpl::{FileKind, Filesystem, ZplError};

/// What Linux calls the flag.
const INHERIT: u32 = 0x2000_0000;
/// Directories in directories that are followed.
const DEPTH_MAX: usize = 4096;

/// Files to look at, or to change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Full name of the file system, or of a snapshot to look at.
    pub dataset: String,
    /// Path of a file or directory from the root of the file system, where it begins.
    #[serde(default)]
    pub path: Vec<u8>,
    /// How far below.
    pub reach: Reach,
    /// What is done with them.
    pub action: Action,
}

/// How far below a path to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reach {
    /// The path itself.
    Own,
    /// Also what is directly in the directory.
    Entries,
    /// Also everything below.
    All,
}

/// What is done with files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// They are looked at.
    Look,
    /// They get a project (`-p`) and, with `inherit`, hand it down (`-s`). Without an id, those that hand it down get
    /// that of the file where the request begins, so that a tree is all of one project.
    Set {
        /// The project id.
        id: Option<u32>,
        /// New files in the directories get it too.
        inherit: bool,
    },
    /// They hand nothing down any more and, unless the id is kept (`-k`), belong to project 0 (`-C`).
    Clear {
        /// The ids stay.
        keep: bool,
    },
}

/// A change of a file's project.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Change {
    /// The new id.
    pub project: Option<u32>,
    /// The flag is set or cleared.
    pub inherits: Option<bool>,
}

/// A file or directory with its project.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct File {
    /// Path from the root of the file system.
    pub path: Vec<u8>,
    /// Project id.
    pub project: u64,
    /// New files in it get the same.
    pub inherits: bool,
}

/// The files.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Answer {
    /// As they were found, the one where the request begins first.
    pub files: Vec<File>,
}

/// Why not all files were looked at or changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum Refusal {
    /// The caller may run no such verb.
    #[error("{0}")]
    Denied(Reason),
    /// The file system cannot be opened, or its changes cannot be written.
    #[error("{0}")]
    Open(NotOpened),
    /// There is no such file, or a file below it cannot be read.
    #[error("{dataset}:{}: {reason}", String::from_utf8_lossy(path))]
    Unreadable {
        /// Full name of the file system.
        dataset: String,
        /// Path where the request begins.
        path: Vec<u8>,
        /// Why.
        reason: Reason,
    },
    /// A file cannot be changed; those before it are.
    #[error("{dataset}:{}: {reason}", String::from_utf8_lossy(path))]
    NotChanged {
        /// Full name of the file system.
        dataset: String,
        /// Path of the file.
        path: Vec<u8>,
        /// Why.
        reason: Reason,
    },
}

from_denied!(Refusal, Refusal::Denied);

impl Refused for Refusal {
    fn reason(&self) -> Reason {
        match self {
            Refusal::Denied(reason)
            | Refusal::Open(NotOpened { reason, .. })
            | Refusal::Unreadable { reason, .. }
            | Refusal::NotChanged { reason, .. } => reason.clone(),
        }
    }
}

impl Action {
    /// What is changed of each file; `first` is the project of the file where the request begins. `None`: nothing.
    pub fn change(self, first: u64) -> Option<Change> {
        match self {
            Action::Look => None,
            Action::Set { id, inherit } => Some(Change {
                project: id.or_else(|| u32::try_from(first).ok().filter(|_| inherit)),
                inherits: inherit.then_some(true),
            }),
            Action::Clear { keep } => Some(Change { project: (!keep).then_some(0), inherits: Some(false) }),
        }
    }
}

impl Verb for Request {
    const NAME: &'static str = "zfs project";
    const RIGHT: Right = Right::Administrator;
    type Answer = Answer;
    type Refusal = Refusal;

    fn run(&self, session: &mut Session<'_>) -> Result<Answer, Refusal> {
        Ok(Answer { files: collect(self, session)? })
    }
}

impl Streamed for Request {
    type Item = File;

    fn each(
        &self,
        session: &mut Session<'_>,
        sink: &mut dyn FnMut(File) -> ControlFlow<()>,
    ) -> Result<(), Refusal> {
        if self.action == Action::Look {
            let view = session.view(&self.dataset).map_err(|error| self.closed(error))?;
            let files = view.dataset(&self.dataset).and_then(|dataset| dataset.filesystem());
            let files = files.map_err(|error| self.closed(error))?;
            return self.walk(files.filesystem(), &mut |_, file| sink(file));
        }
        let pool = session.writer(&self.dataset).map_err(|error| self.closed(error))?;
        let fs = FilesystemWriter::open(pool.live(), &self.dataset).map_err(|error| self.closed(error))?;
        let changed = self.change(&fs)?;
        fs.sync().map_err(|error| self.closed(error))?;
        let _ = changed.into_iter().try_for_each(sink);
        Ok(())
    }
}

impl Request {
    fn closed(&self, error: impl Into<Reason>) -> Refusal {
        Refusal::Open(NotOpened::new(self.dataset.as_str(), error))
    }

    fn unreadable(&self, error: impl Into<Error>) -> Refusal {
        let (dataset, path) = (self.dataset.clone(), self.path.clone());
        Refusal::Unreadable { dataset, path, reason: failed(error) }
    }

    /// Finds the files, and changes them. Returns them as they were.
    fn change(&self, fs: &FilesystemWriter) -> Result<Vec<File>, Refusal> {
        let mut found = Vec::new();
        self.walk(fs.reader(), &mut |node, file| {
            found.push((node, file));
            ControlFlow::Continue(())
        })?;
        let first = found.first().map_or(0, |(_, file)| file.project);
        let change = self.action.change(first).unwrap_or_default();
        // Names of one file side by side.
        found.dedup_by_key(|(object, _)| *object);
        for (object, file) in &found {
            change_file(fs, *object, change).map_err(|error| Refusal::NotChanged {
                dataset: self.dataset.clone(),
                path: file.path.clone(),
                reason: failed(error),
            })?;
        }
        Ok(found.into_iter().map(|(_, file)| file).collect())
    }

    /// Visits the files at and below the path.
    fn walk(
        &self,
        fs: &Arc<Filesystem>,
        visit: &mut dyn FnMut(ObjectId, File) -> ControlFlow<()>,
    ) -> Result<(), Refusal> {
        let failed = |error: ZplError| self.unreadable(error);
        let no_path =
            || self.unreadable(Error::NoSuchPath { dataset: self.dataset.clone(), path: self.path.clone() });
        let top = fs.resolve(&self.path).map_err(failed)?.ok_or_else(no_path)?;
        let (file, is_dir) = look(fs, top.id(), self.path.clone()).map_err(failed)?;
        let mut dirs = Vec::new();
        if is_dir && self.reach != Reach::Own {
            dirs.push((top.id(), file.path.clone(), 0));
        }
        if visit(top.id(), file).is_break() {
            return Ok(());
        }
        while let Some((dir, at, depth)) = dirs.pop() {
            for entry in fs.node(dir).map_err(failed)?.entries().map_err(failed)? {
                let entry = entry.map_err(failed)?;
                let mut path = at.clone();
                if path.last() != Some(&b'/') {
                    path.push(b'/');
                }
                path.extend_from_slice(&entry.name);
                let (file, is_dir) = look(fs, entry.id, path).map_err(failed)?;
                if is_dir && self.reach == Reach::All && depth < DEPTH_MAX {
                    dirs.push((entry.id, file.path.clone(), depth + 1));
                }
                if visit(entry.id, file).is_break() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}

fn failed(error: impl Into<Error>) -> Reason {
    Reason::new(Code::Failed, chain(&error.into()))
}

/// A file with its project, and whether it is a directory.
fn look(fs: &Arc<Filesystem>, object: ObjectId, path: Vec<u8>) -> Result<(File, bool), ZplError> {
    let node = fs.node(object)?;
    let inherits = node.attrs().flags & FLAG_PROJINHERIT != 0;
    let file = File { path, project: node.attrs().projid, inherits };
    Ok((file, node.kind() == FileKind::Directory))
}

fn change_file(fs: &FilesystemWriter, object: ObjectId, change: Change) -> Result<(), ZplError> {
    let linux = format::znode::linux_flags(fs.fs().attrs(object)?.flags);
    let linux_flags = change.inherits.map(|on| if on { linux | INHERIT } else { linux & !INHERIT });
    fs.fs().set_attrs(object, &NewAttrs { project: change.project, linux_flags, ..NewAttrs::default() })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::{Denied, carried};

    #[test]
    fn requests_answers_and_refusals_cross_a_process() {
        let action = Action::Set { id: Some(7), inherit: true };
        carried(&Request { dataset: "p/a".into(), path: b"/x\xff".to_vec(), reach: Reach::All, action });
        let file = File { path: b"/x".to_vec(), project: 7, inherits: true };
        carried(&Answer { files: vec![file] });
        let reason = Reason::new(Code::Failed, "out of space");
        let refusal = Refusal::NotChanged { dataset: "p/a".into(), path: b"/x".to_vec(), reason };
        assert_eq!(carried(&refusal).to_string(), "p/a:/x: out of space");
        assert!(carried(&Refusal::from(Denied)).reason().is_denied());
    }

    #[test]
    fn what_is_changed_of_a_file() {
        let change = |action: Action| action.change(5);
        assert_eq!(change(Action::Look), None);
        let all = |project, inherits| Some(Change { project, inherits });
        assert_eq!(change(Action::Set { id: Some(7), inherit: false }), all(Some(7), None));
        assert_eq!(change(Action::Set { id: None, inherit: true }), all(Some(5), Some(true)));
        assert_eq!(change(Action::Clear { keep: false }), all(Some(0), Some(false)));
        assert_eq!(change(Action::Clear { keep: true }), all(None, Some(false)));
    }
}
