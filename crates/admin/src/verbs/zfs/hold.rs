//! `zfs hold`: keeps snapshots from being destroyed, under a tag.
//!
//! Source: docs/on-disk/33-cli.md (section 7), 22-mos-dsl.md (section 5).

use crate::Session;
use crate::edit::names::{self, Form};
use crate::edit::{self, EditError};
use crate::verbs::{Code, Denied, Reason, Refused, Right, Verb};
use serde::{Deserialize, Serialize};
use std::fmt;

/// A snapshot to hold.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Request {
    /// Full name of the snapshot.
    pub snapshot: String,
    /// Tag of the hold.
    pub tag: String,
    /// Also the snapshots of this name of all datasets below (`-r`).
    pub recursive: bool,
}

/// The snapshots that were held or released.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// Full names.
    pub snapshots: Vec<String>,
}

/// Which of the two verbs on holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HoldAction {
    /// `zfs hold`.
    Hold,
    /// `zfs release`.
    Release,
}

/// Why no snapshot was held or released.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum Refusal {
    /// The caller may run no such verb.
    #[error("{0}")]
    Denied(Reason),
    /// Tags with a point in front are those of the tools themselves.
    #[error("tag may not start with '.'")]
    ReservedTag,
    /// The tag is empty.
    #[error("cannot hold: operation not applicable to datasets of this type")]
    EmptyTag,
    /// The name is not that of a snapshot.
    #[error("'{name}' is not a snapshot")]
    NotASnapshot {
        /// The name.
        name: String,
    },
    /// The dataset of the snapshot cannot be opened.
    #[error("{}", reason.cannot_open(name))]
    Open {
        /// Full name of the dataset or snapshot.
        name: String,
        /// Why.
        reason: Reason,
    },
    /// The pool cannot be changed, or the caller lacks a permission: no names are told.
    #[error("cannot {action}: {reason}")]
    NotAllowed {
        /// Which verb.
        action: HoldAction,
        /// Why.
        reason: Reason,
    },
    /// A snapshot cannot be held or released.
    #[error("cannot {} snapshot '{name}': {reason}", action.words())]
    Snapshot {
        /// Which verb.
        action: HoldAction,
        /// Full name of the snapshot.
        name: String,
        /// Why.
        reason: Reason,
    },
}

impl fmt::Display for HoldAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            HoldAction::Hold => "hold",
            HoldAction::Release => "release",
        })
    }
}

impl HoldAction {
    fn words(self) -> &'static str {
        match self {
            HoldAction::Hold => "hold",
            HoldAction::Release => "release hold from",
        }
    }
}

impl From<Denied> for Refusal {
    fn from(denied: Denied) -> Refusal {
        Refusal::Denied(denied.into())
    }
}

impl Refused for Refusal {
    fn reason(&self) -> Reason {
        match self {
            Refusal::Denied(reason)
            | Refusal::Open { reason, .. }
            | Refusal::NotAllowed { reason, .. }
            | Refusal::Snapshot { reason, .. } => reason.clone(),
            Refusal::ReservedTag | Refusal::EmptyTag => Reason::new(Code::Value, self),
            Refusal::NotASnapshot { .. } => Reason::new(Code::WrongKind, self),
        }
    }
}

impl Verb for Request {
    const NAME: &'static str = "zfs hold";
    const RIGHT: Right = Right::Delegated(&["hold"]);
    type Answer = Answer;
    type Refusal = Refusal;

    fn run(&self, session: &mut Session<'_>) -> Result<Answer, Refusal> {
        if self.tag.starts_with('.') {
            return Err(Refusal::ReservedTag);
        }
        if self.tag.is_empty() {
            return Err(Refusal::EmptyTag);
        }
        change(session, HoldAction::Hold, &self.snapshot, &self.tag, self.recursive)
    }
}

/// Holds or releases a snapshot and, with `recursive`, those of the same name below.
pub(super) fn change(
    session: &mut Session<'_>,
    action: HoldAction,
    snapshot: &str,
    tag: &str,
    recursive: bool,
) -> Result<Answer, Refusal> {
    let snapshots = expand(session, action, snapshot, recursive)?;
    let pool = session.writer(snapshot).map_err(|error| match error.is_read_only() {
        true => Refusal::NotAllowed { action, reason: error.into() },
        false => Refusal::Open { name: snapshot.to_owned(), reason: error.into() },
    })?;
    let done = match action {
        HoldAction::Hold => edit::hold(&pool, &snapshots, tag),
        HoldAction::Release => edit::release(&pool, &snapshots, tag),
    };
    done.map_err(|blame| {
        let (name, error) = *blame;
        let reason = Reason::from(error);
        match reason.is_denied() {
            true => Refusal::NotAllowed { action, reason },
            false => Refusal::Snapshot { action, name, reason },
        }
    })?;
    session.note_change(snapshot);
    Ok(Answer { snapshots })
}

/// Full names of the snapshots that are meant.
fn expand(
    session: &mut Session<'_>,
    action: HoldAction,
    name: &str,
    recursive: bool,
) -> Result<Vec<String>, Refusal> {
    let Some((dataset, snapshot)) = name.split_once('@') else {
        return Err(Refusal::NotASnapshot { name: name.to_owned() });
    };
    let closed = |error: EditError| Refusal::Open { name: dataset.to_owned(), reason: error.into() };
    names::check(dataset, Form::Head).map_err(|error| closed(error.into()))?;
    let view = session.view(dataset).map_err(closed)?;
    view.dataset(dataset).map_err(|error| closed(error.into()))?;
    let found = if recursive {
        edit::with_name_below(&view, dataset, snapshot).map_err(closed)?
    } else {
        Vec::from_iter(view.dataset(name).is_ok().then(|| name.to_owned()))
    };
    if found.is_empty() {
        let reason = Reason::new(Code::NoDataset, "dataset does not exist");
        return Err(Refusal::Snapshot { action, name: name.to_owned(), reason });
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_have_the_words_of_openzfs_and_cross_a_process() {
        let reason = Reason::new(Code::Exists, "tag already exists on this dataset");
        let refusal = |action| Refusal::Snapshot { action, name: "p/a@s".into(), reason: reason.clone() };
        assert_eq!(
            refusal(HoldAction::Hold).to_string(),
            "cannot hold snapshot 'p/a@s': tag already exists on this dataset"
        );
        let release = refusal(HoldAction::Release);
        assert!(release.to_string().starts_with("cannot release hold from snapshot 'p/a@s': "));
        let text = serde_json::to_string(&release).expect("data");
        assert_eq!(serde_json::from_str::<Refusal>(&text).expect("data"), release);
    }
}
