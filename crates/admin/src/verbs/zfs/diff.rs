//! `zfs diff`: what has changed from a snapshot to a later state of the same file system.
//!
//! There may be millions of changes: [`Session::each`] gives them one by one, in the order of object numbers, and takes
//! the same memory however many there are; [`Session::run`] collects them.
//!
//! # Order
//! A pool that is in use is written, so that what was done before is seen -> the caller's permission at both datasets
//! -> both are opened and compared (`admin::diff`).
//!
//! Source: docs/on-disk/33-cli.md (sections 2, 5).

use super::operand::{self, NotOpened};
use crate::diff;
use crate::edit::{self, EditError};
use crate::verbs::{Code, Reason, Refused, Right, Streamed, Verb, Warning, collect};
use crate::{AdminError, OpenPool, Session};
use cenote::Dataset;
use serde::{Deserialize, Serialize};
use std::ops::ControlFlow;

pub use crate::diff::{Change, What};
pub use format::znode::Time;
pub use zpl::FileKind;

/// Two states to compare.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Request {
    /// Full name of the earlier snapshot.
    pub from: String,
    /// A later snapshot of the same file system, by its full name or as `@name`; or the file system or a clone as of
    /// now, by name. `None`: the file system of the earlier snapshot.
    pub to: Option<String>,
}

/// The changes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Answer {
    /// In the order of object numbers. Paths are absolute: below the mount point of the file system, or below `/` and
    /// its name if it has none.
    pub changes: Vec<Change>,
}

/// Why the states are not compared, or not wholly.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum Refusal {
    /// The caller may run no such verb.
    #[error("{0}")]
    Denied(Reason),
    /// The earlier state is no snapshot.
    #[error("Badly formed snapshot name {name}: missing '@' delimiter in snapshot name")]
    NotASnapshot {
        /// The name.
        name: String,
    },
    /// A dataset cannot be opened.
    #[error("{0}")]
    Open(NotOpened),
    /// The caller lacks the permission `diff` to compare with the state of now.
    #[error(
        "The diff delegated permission is needed in order\nto create a just-in-time snapshot for diffing\n\
         : unable to generate diffs"
    )]
    NoPermission {
        /// Full name of the dataset.
        dataset: String,
    },
    /// The caller lacks a permission.
    #[error("unable to generate diffs: {0}")]
    NotGenerated(Reason),
    /// A state cannot be read, or the pool that is in use cannot be written.
    #[error("{0}")]
    Unreadable(Reason),
    /// The first is no snapshot from which the second has come.
    #[error("Unable to obtain diffs: \n   Not an earlier snapshot from the same fs")]
    NotEarlier {
        /// Full name of the first.
        from: String,
    },
    /// The comparison broke off; changes that were given out are right.
    #[error("Unable to obtain diffs: \n   {0}")]
    BrokenOff(Reason),
}

from_denied!(Refusal, Refusal::Denied);

impl Refused for Refusal {
    fn reason(&self) -> Reason {
        match self {
            Refusal::Denied(reason)
            | Refusal::Open(NotOpened { reason, .. })
            | Refusal::NotGenerated(reason)
            | Refusal::Unreadable(reason)
            | Refusal::BrokenOff(reason) => reason.clone(),
            Refusal::NotASnapshot { .. } => Reason::new(Code::Name, self),
            Refusal::NoPermission { .. } => EditError::Denied.into(),
            Refusal::NotEarlier { from } => AdminError::NotEarlier { name: from.clone() }.into(),
        }
    }
}

impl Verb for Request {
    const NAME: &'static str = "zfs diff";
    const RIGHT: Right = Right::Delegated(&["diff"]);
    type Answer = Answer;
    type Refusal = Refusal;

    fn run(&self, session: &mut Session<'_>) -> Result<Answer, Refusal> {
        Ok(Answer { changes: collect(self, session)? })
    }
}

impl Streamed for Request {
    type Item = Change;

    fn each(
        &self,
        session: &mut Session<'_>,
        sink: &mut dyn FnMut(Change) -> ControlFlow<()>,
    ) -> Result<(), Refusal> {
        let from = self.from.as_str();
        let Some((dataset, _)) = from.split_once('@') else {
            return Err(Refusal::NotASnapshot { name: from.to_owned() });
        };
        let to = match self.to.as_deref() {
            Some(short) if short.starts_with('@') => format!("{dataset}{short}"),
            Some(to) => to.to_owned(),
            None => dataset.to_owned(),
        };
        let pool_name = dataset.split('/').next().unwrap_or_default().to_owned();
        session.sync(&pool_name).map_err(|error| Refusal::Unreadable(Reason::new(Code::Failed, error)))?;
        let (pools, problems) = session.pools(&[pool_name]);
        if let Some(problem) = operand::told(problems).next() {
            session.warn(Warning::Problem { message: problem.to_string() });
        }
        let missing = || closed(from, AdminError::NoDataset { name: from.to_owned() });
        let pool = pools.first().ok_or_else(missing)?;
        self.ask(session, pool, dataset, &to)?;
        for name in [from, &to] {
            operand::find_name(session, &pools, name).map_err(|error| closed(name, error))?;
        }
        let (old, new) = (open(pool, from)?, open(pool, &to)?);
        let place = place(session, &pools, &to)?;
        let mut sink = |change: Change| sink(change.below(&place));
        diff::diff(&old, &new, &mut sink).map_err(|error| match error {
            AdminError::NotEarlier { name } => Refusal::NotEarlier { from: name },
            error => Refusal::BrokenOff(error.into()),
        })
    }
}

impl Request {
    /// Asks for the caller's permission at the datasets of both states: what is only in one of them is shown too.
    fn ask(&self, session: &Session<'_>, pool: &OpenPool, dataset: &str, to: &str) -> Result<(), Refusal> {
        let may = |name: &str| edit::may(session.search(), pool.pool(), name, &["diff"]);
        let refused = |name: &str, error: EditError| match error {
            EditError::NoDataset { .. } => Refusal::Open(NotOpened::new(name, error)),
            error => Refusal::NotGenerated(error.into()),
        };
        may(dataset).map_err(|error| match error {
            EditError::Denied if self.to.is_none() => Refusal::NoPermission { dataset: dataset.to_owned() },
            error => refused(&self.from, error),
        })?;
        let other = to.split('@').next().unwrap_or_default();
        match other == dataset {
            true => Ok(()),
            false => may(other).map_err(|error| refused(to, error)),
        }
    }
}

fn closed(name: &str, error: AdminError) -> Refusal {
    Refusal::Open(NotOpened::new(name, error))
}

fn open(pool: &OpenPool, name: &str) -> Result<Dataset, Refusal> {
    pool.pool().dataset(name).map_err(|error| Refusal::Unreadable(Reason::new(Code::Failed, error)))
}

/// Where the files of a file system are: its mount point, or `/` and its name if it has none. Without a slash at the
/// end.
fn place(session: &Session<'_>, pools: &[OpenPool], to: &str) -> Result<Vec<u8>, Refusal> {
    let head = to.split('@').next().unwrap_or(to);
    let entry = operand::find_name(session, pools, head).map_err(|error| closed(head, error))?;
    let mountpoint = entry.property("mountpoint").map_err(|error| Refusal::Unreadable(error.into()))?;
    let text = mountpoint.as_ref().and_then(|property| property.value.text()).unwrap_or_default();
    Ok(match text.starts_with('/') {
        true => text.trim_end_matches('/').as_bytes().to_vec(),
        false => format!("/{head}").into_bytes(),
    })
}

impl Change {
    /// The same with paths below `place`.
    fn below(mut self, place: &[u8]) -> Change {
        let whole = |path: &[u8]| [place, path].concat();
        self.path = whole(&self.path);
        if let What::Renamed { from } = &mut self.what {
            *from = whole(from);
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::carried;

    #[test]
    fn requests_answers_and_refusals_cross_a_process() {
        carried(&Request { from: "tank/a@1".into(), to: Some("@2".into()) });
        let change = Change {
            what: What::Renamed { from: b"/old\xff".to_vec() },
            kind: FileKind::Symlink,
            ctime: Time { secs: -1, nanos: 5 },
            path: b"/new".to_vec(),
        };
        let answer = Answer { changes: vec![change.below(b"/mnt")] };
        let changes = carried(&answer).changes;
        let change = changes.first().expect("one");
        assert_eq!(change.path, b"/mnt/new");
        assert_eq!(change.what, What::Renamed { from: b"/mnt/old\xff".to_vec() });
        let refusal = Refusal::NotASnapshot { name: "tank".into() };
        assert_eq!(
            carried(&refusal).to_string(),
            "Badly formed snapshot name tank: missing '@' delimiter in snapshot name"
        );
        let refusal = Refusal::NotEarlier { from: "tank@1".into() };
        assert_eq!(carried(&refusal).reason().code, Code::Refused);
        assert!(Refusal::NoPermission { dataset: "tank".into() }.reason().is_denied());
    }
}
