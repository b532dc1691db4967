//! The common part of `zfs hold` and `zfs release`: which snapshots a request names, and changing the holds of several
//! snapshots in one transaction group.

use crate::Session;
use crate::edit::names::{self, Form};
use crate::edit::operation::Operation;
use crate::edit::{self, EditError, permit};
use crate::sync::lock;
use crate::verbs::{Code, Reason};
use cenote::{Pool, PoolWriter};
use dsl::{DslError, TaskCtx};
use format::nvlist::NvList;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::sync::{Arc, Mutex};

/// Why the holds of snapshots do not change: the name of the first snapshot that is to blame, and the reason.
pub(super) type Blame = Box<(String, EditError)>;

/// Why the holds of snapshots do not change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum WhyNot {
    /// The caller may run no such verb.
    Denied(Reason),
    /// A name has no `@`.
    NotASnapshot {
        /// The name.
        name: String,
    },
    /// The dataset cannot be opened.
    Open {
        /// Full name of the dataset, or of the snapshot.
        name: String,
        /// Why.
        reason: Reason,
    },
    /// There is no such snapshot.
    NoSnapshot {
        /// Full name.
        snapshot: String,
    },
    /// The pool can only be read.
    ReadOnly(Reason),
    /// A snapshot is to blame.
    Blame {
        /// Full name of the snapshot.
        snapshot: String,
        /// Why.
        reason: Reason,
    },
}

impl WhyNot {
    /// What the command `verb` says; `of_snapshot` stands in front of the name of a snapshot.
    pub(super) fn text(&self, verb: &str, of_snapshot: &str) -> String {
        match self {
            WhyNot::Denied(reason) => reason.to_string(),
            WhyNot::NotASnapshot { name } => format!("'{name}' is not a snapshot"),
            WhyNot::Open { name, reason } => reason.cannot_open(name),
            WhyNot::NoSnapshot { snapshot } => format!("{of_snapshot} '{snapshot}': dataset does not exist"),
            WhyNot::ReadOnly(reason) => format!("cannot {verb}: {reason}"),
            WhyNot::Blame { reason, .. } if reason.is_denied() => format!("cannot {verb}: {reason}"),
            WhyNot::Blame { snapshot, reason } => format!("{of_snapshot} '{snapshot}': {reason}"),
        }
    }

    /// The reason behind it.
    pub(super) fn reason(&self) -> Reason {
        match self {
            WhyNot::Denied(reason)
            | WhyNot::Open { reason, .. }
            | WhyNot::ReadOnly(reason)
            | WhyNot::Blame { reason, .. } => reason.clone(),
            WhyNot::NotASnapshot { .. } => names::NameError::NoSnapshot.into(),
            WhyNot::NoSnapshot { snapshot } => Reason {
                code: Code::NoDataset,
                about: vec![snapshot.clone()],
                message: "dataset does not exist".into(),
            },
        }
    }
}

/// The snapshots of a request.
pub(super) struct Target<'r> {
    /// Full names.
    pub(super) snapshots: &'r [String],
    /// Also those of the same names of all datasets below.
    pub(super) recursive: bool,
}

impl Target<'_> {
    /// Changes the holds of the snapshots. Returns their full names.
    pub(super) fn change(
        &self,
        session: &mut Session<'_>,
        change: impl FnOnce(&PoolWriter, &[String]) -> Result<(), Blame>,
    ) -> Result<Vec<String>, WhyNot> {
        let mut names = Vec::new();
        for snapshot in self.snapshots {
            names.extend(self.expand(session, snapshot)?);
        }
        let Some(first) = self.snapshots.first() else { return Ok(names) };
        let pool = session.writer(first).map_err(|error| match error.is_read_only() {
            true => WhyNot::ReadOnly(error.into()),
            false => WhyNot::Open { name: first.clone(), reason: error.into() },
        })?;
        change(&pool, &names).map_err(|blame| {
            let (snapshot, error) = *blame;
            WhyNot::Blame { snapshot, reason: error.into() }
        })?;
        session.note_change(first);
        Ok(names)
    }

    /// The snapshots that a name stands for.
    fn expand(&self, session: &mut Session<'_>, name: &str) -> Result<Vec<String>, WhyNot> {
        let Some((dataset, snapshot)) = name.split_once('@') else {
            return Err(WhyNot::NotASnapshot { name: name.to_owned() });
        };
        let closed = |error: EditError| WhyNot::Open { name: dataset.to_owned(), reason: error.into() };
        names::check(dataset, Form::Head).map_err(|error| closed(error.into()))?;
        let view = session.view(dataset).map_err(closed)?;
        view.dataset(dataset).map_err(|error| closed(error.into()))?;
        let found = match self.recursive {
            true => with_name_below(&view, dataset, snapshot).map_err(closed)?,
            false => Vec::from_iter(view.dataset(name).is_ok().then(|| name.to_owned())),
        };
        if found.is_empty() { Err(WhyNot::NoSnapshot { snapshot: name.to_owned() }) } else { Ok(found) }
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
pub(super) fn ask(pool: &PoolWriter, names: &[String], permission: &str) -> Result<(), Blame> {
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
