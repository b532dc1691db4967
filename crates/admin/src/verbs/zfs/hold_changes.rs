//! The common part of `zfs hold` and `zfs release`: which snapshots a request names, and changing the holds of several
//! snapshots in one transaction group; and what both answer.

use super::operand::{self, NotOpened};
use crate::Session;
use crate::edit::names;
use crate::edit::operation::Operation;
use crate::edit::{self, EditError, permit};
use crate::sync::lock;
use crate::verbs::{Code, Reason, Refused};
use cenote::{Pool, PoolWriter};
use dsl::{DslError, TaskCtx};
use format::nvlist::NvList;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::sync::{Arc, Mutex};

/// Why the holds of snapshots do not change: the name of the first snapshot that is to blame, and the reason.
pub(super) type Blame = Box<(String, EditError)>;

/// Which of the two verbs it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HoldChange {
    /// `zfs hold`.
    Hold,
    /// `zfs release`.
    Release,
}

impl HoldChange {
    /// The command, which is also the permission.
    pub(super) fn word(self) -> &'static str {
        match self {
            HoldChange::Hold => "hold",
            HoldChange::Release => "release",
        }
    }

    /// What the command says in front of the name of a snapshot.
    fn of_snapshot(self) -> &'static str {
        match self {
            HoldChange::Hold => "cannot hold snapshot",
            HoldChange::Release => "cannot release hold from snapshot",
        }
    }
}

/// The holds have changed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Answer {
    /// Full names of the snapshots, with those that `zfs release` has passed over.
    pub snapshots: Vec<String>,
}

/// Why no hold has changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum Refusal {
    /// The caller may run no such verb.
    #[error("{0}")]
    Denied(Reason),
    /// A name has no `@`.
    #[error("'{name}' is not a snapshot")]
    NotASnapshot {
        /// The name.
        name: String,
    },
    /// The dataset, or the pool of the snapshot, cannot be opened.
    #[error("{0}")]
    Open(NotOpened),
    /// There is no such snapshot.
    #[error("{} '{snapshot}': dataset does not exist", change.of_snapshot())]
    NoSnapshot {
        /// The verb.
        change: HoldChange,
        /// Full name.
        snapshot: String,
    },
    /// The pool can only be read.
    #[error("cannot {}: {reason}", change.word())]
    ReadOnly {
        /// The verb.
        change: HoldChange,
        /// Why.
        reason: Reason,
    },
    /// A snapshot is to blame. A caller without permission learns no names.
    #[error("{}: {reason}", match reason.is_denied() {
        true => format!("cannot {}", change.word()),
        false => format!("{} '{snapshot}'", change.of_snapshot()),
    })]
    Blame {
        /// The verb.
        change: HoldChange,
        /// Full name of the snapshot.
        snapshot: String,
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
            | Refusal::ReadOnly { reason, .. }
            | Refusal::Blame { reason, .. } => reason.clone(),
            Refusal::NotASnapshot { .. } => names::NameError::NoSnapshot.into(),
            Refusal::NoSnapshot { snapshot, .. } => Reason {
                code: Code::NoDataset,
                about: vec![snapshot.clone()],
                message: "dataset does not exist".into(),
            },
        }
    }
}

/// The snapshots of a request.
pub(super) struct Target<'r> {
    /// What is to be done with their holds.
    pub(super) change: HoldChange,
    /// Full names.
    pub(super) snapshots: &'r [String],
    /// Also those of the same names of all datasets below.
    pub(super) recursive: bool,
}

impl Target<'_> {
    /// Asks for the caller's permission at each snapshot, and changes their holds.
    pub(super) fn change(
        &self,
        session: &mut Session<'_>,
        change: impl FnOnce(&PoolWriter, &[String]) -> Result<(), Blame>,
    ) -> Result<Answer, Refusal> {
        let mut snapshots = Vec::new();
        for snapshot in self.snapshots {
            snapshots.extend(self.expand(session, snapshot)?);
        }
        let Some(first) = self.snapshots.first() else { return Ok(Answer { snapshots }) };
        let pool = session.writer(first).map_err(|error| match error.is_read_only() {
            true => Refusal::ReadOnly { change: self.change, reason: error.into() },
            false => Refusal::Open(NotOpened::new(first.as_str(), error)),
        })?;
        ask(&pool, &snapshots, self.change.word()).and_then(|()| change(&pool, &snapshots)).map_err(
            |blame| {
                let (snapshot, error) = *blame;
                Refusal::Blame { change: self.change, snapshot, reason: error.into() }
            },
        )?;
        session.note_change(first);
        Ok(Answer { snapshots })
    }

    /// The snapshots that a name stands for.
    fn expand(&self, session: &mut Session<'_>, name: &str) -> Result<Vec<String>, Refusal> {
        let Some((dataset, snapshot)) = name.split_once('@') else {
            return Err(Refusal::NotASnapshot { name: name.to_owned() });
        };
        let view = operand::open_head(session, dataset).map_err(Refusal::Open)?;
        let found = match self.recursive {
            true => with_name_below(&view, dataset, snapshot)
                .map_err(|error| Refusal::Open(NotOpened::new(dataset, error)))?,
            false => Vec::from_iter(view.dataset(name).is_ok().then(|| name.to_owned())),
        };
        if found.is_empty() {
            return Err(Refusal::NoSnapshot { change: self.change, snapshot: name.to_owned() });
        }
        Ok(found)
    }
}

/// The snapshot of this name, and those of the same name of all datasets below.
fn with_name_below(pool: &Pool, dataset: &str, snapshot: &str) -> Result<Vec<String>, EditError> {
    let mut found = Vec::new();
    for name in edit::with_descendants(pool, dataset)? {
        let Some(head) = pool.dsl().dir(&name)?.head()? else { continue };
        if head.snapshot(snapshot)?.is_some() {
            found.push(format!("{name}@{snapshot}"));
        }
    }
    Ok(found)
}

/// Records an operation that has succeeded in the pool's history.
pub(super) fn record(
    pool: &PoolWriter,
    operation: Operation,
    names: &[String],
    input: NvList,
) -> Result<(), Blame> {
    let first = || names.first().cloned().unwrap_or_default();
    operation.done(pool, input).map_err(|error| Box::new((first(), error)))
}

/// Asks for a permission at the dataset of each snapshot.
fn ask(pool: &PoolWriter, names: &[String], permission: &str) -> Result<(), Blame> {
    let blame = |name: &String, error| Box::new((name.clone(), error));
    names
        .iter()
        .try_for_each(|name| permit::ask(pool, name, &[permission]).map_err(|error| blame(name, error)))
}

/// Does something to each snapshot, in one transaction group, if it can be done to all; or, if `lenient`, to
/// one at least.
pub(super) fn each(
    pool: &PoolWriter,
    names: &[String],
    tag: &str,
    lenient: bool,
    step: impl Fn(&mut TaskCtx<'_>, &str, &str, bool) -> Result<(), DslError> + Send + Sync + 'static,
) -> Result<(), Blame> {
    let mut seen = HashSet::new();
    let names: Vec<String> = names.iter().filter(|name| seen.insert(name.as_str())).cloned().collect();
    let tag = tag.to_owned();
    // A task that fails has changed nothing, and a name twice would find its first hold in the way of the second. Which
    // snapshot is to blame stands here.
    let blamed = Arc::new(Mutex::new(names.first().cloned().unwrap_or_default()));
    let slot = Arc::clone(&blamed);
    let outcome = edit::run(pool, move |ctx| {
        let mut blame = None;
        let mut fit = Vec::new();
        for name in &names {
            match step(ctx, name, &tag, true) {
                Ok(()) => fit.push(name),
                // It would be done otherwise: the caller must not believe that it was.
                Err(error @ (DslError::Busy { .. } | DslError::Again { .. })) => {
                    name.clone_into(&mut lock(&slot));
                    return Err(error);
                }
                Err(error) => blame = blame.or(Some((name.clone(), error))),
            }
        }
        if let Some((name, error)) = blame.filter(|_| !lenient || fit.is_empty()) {
            *lock(&slot) = name;
            return Err(error);
        }
        fit.iter().try_for_each(|name| step(ctx, name, &tag, false))
    });
    outcome.map_err(|error| {
        let name = lock(&blamed).clone();
        Box::new((name, error))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::{Denied, carried};

    #[test]
    fn refusals_are_in_the_words_of_openzfs() {
        let text = |refusal: Refusal| carried(&refusal).to_string();
        let blame = |change, reason| Refusal::Blame { change, snapshot: "tank@a".into(), reason };
        let reason = Reason::new(Code::Refused, "tag already exists on this dataset");
        assert_eq!(
            text(blame(HoldChange::Hold, reason)),
            "cannot hold snapshot 'tank@a': tag already exists on this dataset"
        );
        assert_eq!(text(blame(HoldChange::Hold, Denied.into())), "cannot hold: permission denied");
        let refusal = Refusal::NoSnapshot { change: HoldChange::Release, snapshot: "tank@a".into() };
        assert_eq!(text(refusal), "cannot release hold from snapshot 'tank@a': dataset does not exist");
        assert_eq!(text(Refusal::NotASnapshot { name: "tank".into() }), "'tank' is not a snapshot");
    }
}
