//! What the operands of the verbs that read name: opening their pools, finding them, and telling what cannot be opened.
//!
//! # What always holds
//! - Paths of others than the administrator are compared as text and never looked up: the caller learns nothing of
//!   folders that he cannot see.

use crate::datasets::{self, Entry};
use crate::edit;
use crate::edit::names::{self, Form};
use crate::verbs::{Reason, Refused};
use crate::{AdminError, OpenPool, Problem, Session};
use cenote::Pool;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// An operand: the full name of a dataset, snapshot or bookmark, or a path in a mounted file system.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operand {
    /// As the user wrote it: answers and refusals name it so.
    pub text: String,
    /// The path, if it is one; absolute and without `..` unless the administrator asks.
    pub path: Option<PathBuf>,
}

impl Operand {
    /// The full name of a dataset, snapshot or bookmark.
    pub fn name(name: impl Into<String>) -> Operand {
        Operand { text: name.into(), path: None }
    }
}

/// A dataset that cannot be opened, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("{}", reason.cannot_open(name))]
pub struct NotOpened {
    /// Full name of the dataset, snapshot or bookmark, or the operand as it was written.
    pub name: String,
    /// Why.
    pub reason: Reason,
}

impl NotOpened {
    /// From an error of a layer below.
    pub(super) fn new(name: impl Into<String>, error: impl Into<Reason>) -> NotOpened {
        NotOpened { name: name.into(), reason: error.into() }
    }
}

/// Something that a verb could not open; it has gone on with the rest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum Unopened {
    /// A pool or a device.
    #[error("{0}")]
    Pool(Problem),
    /// A dataset.
    #[error("{0}")]
    Dataset(NotOpened),
    /// A path that is there, and in no file system of a pool.
    #[error("'{path}': not a ZFS filesystem")]
    NotInPool {
        /// The path as it was written.
        path: String,
    },
    /// A name without `@` where a snapshot is needed.
    #[error("'{name}' is not a snapshot")]
    NotASnapshot {
        /// The name.
        name: String,
    },
}

/// The refusal of a verb that only looks at one dataset.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum OpenRefusal {
    /// The caller may run no such verb.
    #[error("{0}")]
    Denied(Reason),
    /// There is no such dataset, or it cannot be read.
    #[error("{0}")]
    Open(NotOpened),
}

from_denied!(OpenRefusal, OpenRefusal::Denied);

impl Refused for OpenRefusal {
    fn reason(&self) -> Reason {
        match self {
            OpenRefusal::Denied(reason) | OpenRefusal::Open(NotOpened { reason, .. }) => reason.clone(),
        }
    }
}

/// Opens the pools of operands for reading; all pools if a path is among them, because its pool is not known before.
pub(super) fn pools(session: &mut Session<'_>, operands: &[Operand]) -> (Vec<OpenPool>, Vec<Problem>) {
    let mut names: Vec<String> = Vec::new();
    for operand in operands {
        let pool = edit::pool_of(&operand.text).to_owned();
        match operand.path {
            Some(_) => return session.pools(&[]),
            None if !names.contains(&pool) => names.push(pool),
            None => {}
        }
    }
    session.pools(&names)
}

/// The problems that are told: a pool that is not there is told dataset by dataset.
pub(super) fn told(problems: Vec<Problem>) -> impl Iterator<Item = Problem> {
    problems.into_iter().filter(|problem| !problem.is_missing_pool())
}

/// What an operand names.
pub(super) fn find(
    session: &Session<'_>,
    pools: &[OpenPool],
    operand: &Operand,
) -> Result<Entry, AdminError> {
    match &operand.path {
        Some(path) if !session.is_administrator() => datasets::find_by_text(pools, path),
        _ => find_name(session, pools, &operand.text),
    }
}

/// What a name stands for.
pub(super) fn find_name(session: &Session<'_>, pools: &[OpenPool], name: &str) -> Result<Entry, AdminError> {
    match name.starts_with(['/', '.']) && !session.is_administrator() {
        true => datasets::find_by_text(pools, Path::new(name)),
        false => datasets::find(pools, name),
    }
}

/// The pool of an entry.
pub(super) fn pool_of_entry<'p>(pools: &'p [OpenPool], entry: &Entry) -> Option<&'p OpenPool> {
    pools.iter().find(|pool| pool.name() == entry.pool_name())
}

/// A view of the pool of a file system or volume that exists.
pub(super) fn open_head(session: &mut Session<'_>, name: &str) -> Result<Pool, NotOpened> {
    open(session, name, Form::Head)
}

/// A view of the pool of a dataset of this form that exists.
pub(super) fn open(session: &mut Session<'_>, name: &str, form: Form) -> Result<Pool, NotOpened> {
    names::check(name, form).map_err(|error| NotOpened::new(name, error))?;
    let view = session.view(name).map_err(|error| NotOpened::new(name, error))?;
    view.dataset(name).map_err(|error| NotOpened::new(name, error))?;
    Ok(view)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::carried;

    #[test]
    fn what_is_not_opened_is_told_in_the_words_of_openzfs() {
        let missing = AdminError::NoPool { name: "tank".into() };
        let missing = Unopened::Dataset(NotOpened::new("tank/a", missing));
        assert_eq!(carried(&missing).to_string(), "cannot open 'tank/a': dataset does not exist");
        let bad = AdminError::BadName { name: "a//b".into(), why: "empty component in name" };
        let bad = Unopened::Dataset(NotOpened::new("a//b", bad));
        assert_eq!(carried(&bad).to_string(), "cannot open 'a//b': empty component in name");
        let outside = Unopened::NotInPool { path: "./x".into() };
        assert_eq!(carried(&outside).to_string(), "'./x': not a ZFS filesystem");
        assert_eq!(carried(&Operand::name("tank")).path, None);
    }
}
