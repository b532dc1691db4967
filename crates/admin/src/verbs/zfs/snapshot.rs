//! `zfs snapshot`: takes snapshots of datasets of one pool, all at the same instant, or none.
//!
//! # Order
//! Names are expanded and checked -> the caller's permissions -> programs' writes to mounts are brought into the pool,
//! those through memory maps too -> the snapshots are taken in one transaction group -> listings of `.zfs/snapshot`
//! that the kernel remembers are dropped.
//!
//! Source: docs/on-disk/33-cli.md (sections 1.3, 7), 22-mos-dsl.md (section 5).

use super::operand::{self, NotOpened};
use crate::Session;
use crate::edit::names::{self, Form, NameError};
use crate::edit::operation::{self, Operation};
use crate::edit::values::{self, ValueError};
use crate::edit::{self, EditError, permit};
use crate::verbs::{Code, Reason, Refused, Right, Verb};
use cenote::PoolWriter;
use dsl::prop::PropValue;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;

/// Snapshots to take.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Request {
    /// Full names: `tank/home@monday`.
    pub names: Vec<String>,
    /// Also of all file systems and volumes below each named one (`-r`).
    pub recursive: bool,
    /// User properties of each snapshot, with their values (`-o`).
    pub properties: Vec<(String, String)>,
}

/// The snapshots that were taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// Full names, in the order of the request, parents before children.
    pub snapshots: Vec<String>,
}

/// Why no snapshot was taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum Refusal {
    /// The caller may run no such verb.
    #[error("{0}")]
    Denied(Reason),
    /// A name has no `@`.
    #[error("missing '@' delimiter in snapshot name")]
    NotASnapshot {
        /// The name.
        name: String,
    },
    /// The dataset of a snapshot cannot be opened.
    #[error("{0}")]
    Open(NotOpened),
    /// A property that snapshots cannot have.
    #[error("cannot create snapshots : {0}")]
    Property(Reason),
    /// A name that no snapshot can have.
    #[error("cannot create snapshot '{name}': {reason}")]
    Name {
        /// The name.
        name: String,
        /// What is wrong with it.
        reason: Reason,
    },
    /// Two snapshots of one dataset, or of two pools, cannot be taken at the same instant.
    #[error("cannot create snapshots : multiple snapshots of same fs not allowed")]
    SameDataset {
        /// Number of snapshots that were asked for.
        wanted: usize,
    },
    /// Snapshots of these names exist.
    #[error("{}", taken.iter().map(|name| format!("cannot create snapshot '{name}': dataset already exists"))
        .collect::<Vec<_>>().join("\n"))]
    Exists {
        /// Full names of those that exist.
        taken: Vec<String>,
        /// Number of snapshots that were asked for.
        wanted: usize,
    },
    /// The snapshots cannot be taken.
    #[error("{}", match about {
        Some(name) => format!("cannot create snapshot '{name}': {reason}"),
        None => format!("cannot create snapshots : {reason}"),
    })]
    NotTaken {
        /// The snapshot or dataset that the reason is about; `None`: all of them.
        about: Option<String>,
        /// Why.
        reason: Reason,
        /// Number of snapshots that were asked for.
        wanted: usize,
    },
}

from_denied!(Refusal, Refusal::Denied);

impl Refused for Refusal {
    fn reason(&self) -> Reason {
        match self {
            Refusal::Denied(reason)
            | Refusal::Open(NotOpened { reason, .. })
            | Refusal::Property(reason)
            | Refusal::Name { reason, .. }
            | Refusal::NotTaken { reason, .. } => reason.clone(),
            Refusal::NotASnapshot { .. } => NameError::NoSnapshot.into(),
            Refusal::SameDataset { .. } => Reason::new(Code::Refused, self),
            Refusal::Exists { taken, .. } => {
                Reason { code: Code::Exists, about: taken.clone(), message: "dataset already exists".into() }
            }
        }
    }
}

impl Request {
    /// One snapshot, without properties.
    pub fn of(name: impl Into<String>) -> Request {
        Request { names: vec![name.into()], ..Request::default() }
    }
}

impl Verb for Request {
    const NAME: &'static str = "zfs snapshot";
    const RIGHT: Right = Right::Delegated(&["snapshot"]);
    type Answer = Answer;
    type Refusal = Refusal;

    fn run(&self, session: &mut Session<'_>) -> Result<Answer, Refusal> {
        let snapshots = self.expand(session)?;
        let wanted = snapshots.len();
        self.check_properties()?;
        for name in &snapshots {
            names::check(name, Form::Snapshot)
                .map_err(|error| Refusal::Name { name: name.clone(), reason: error.into() })?;
        }
        if names_a_dataset_twice(&snapshots) {
            return Err(Refusal::SameDataset { wanted });
        }
        let Some(first) = snapshots.first() else { return Ok(Answer { snapshots }) };
        let closed = |error: EditError| Refusal::Open(NotOpened::new(first.as_str(), error));
        let view = session.view(first).map_err(closed)?;
        let pool = session.writer(first).map_err(|error| match error.is_read_only() {
            true => Refusal::NotTaken { about: None, reason: error.into(), wanted },
            false => closed(error),
        })?;
        let taken: Vec<String> =
            snapshots.iter().filter(|name| view.dataset(name).is_ok()).cloned().collect();
        if !taken.is_empty() {
            return Err(Refusal::Exists { taken, wanted });
        }
        take(&pool, &snapshots, &self.properties).map_err(|error| not_taken(&snapshots, error.into()))?;
        session.note_change(first);
        if let Some(mounting) = session.mounting() {
            mounting.after_snapshots(snapshots.iter().map(String::as_str));
        }
        Ok(Answer { snapshots })
    }
}

impl Request {
    /// Full names of the snapshots to take, each once.
    fn expand(&self, session: &mut Session<'_>) -> Result<Vec<String>, Refusal> {
        let (mut wanted, mut known) = (Vec::new(), HashSet::new());
        for name in &self.names {
            for snapshot in self.expand_one(session, name)? {
                if known.insert(snapshot.clone()) {
                    wanted.push(snapshot);
                }
            }
        }
        Ok(wanted)
    }

    fn expand_one(&self, session: &mut Session<'_>, name: &str) -> Result<Vec<String>, Refusal> {
        let Some((dataset, snapshot)) = name.split_once('@') else {
            return Err(Refusal::NotASnapshot { name: name.to_owned() });
        };
        let view = operand::open_head(session, dataset).map_err(Refusal::Open)?;
        if !self.recursive {
            return Ok(vec![name.to_owned()]);
        }
        let all = edit::with_descendants(&view, dataset)
            .map_err(|error| Refusal::Open(NotOpened::new(dataset, error)))?;
        // What is being received is not whole yet.
        let is_whole = |dataset: &&String| {
            *dataset == name || view.dsl().dataset(dataset).map_or(true, |found| !found.is_inconsistent())
        };
        Ok(all.iter().filter(is_whole).map(|dataset| format!("{dataset}@{snapshot}")).collect())
    }

    /// Only user properties can be set on snapshots.
    fn check_properties(&self) -> Result<(), Refusal> {
        for (name, value) in &self.properties {
            if !format::prop::is_user(name) {
                return Err(Refusal::Property(ValueError::OfSnapshot.into()));
            }
            values::check_user(name, value).map_err(|error| Refusal::Property(error.into()))?;
        }
        Ok(())
    }
}

/// The refusal of a change that was tried. A lack of space is the dataset's; a caller without permission learns no
/// names.
fn not_taken(snapshots: &[String], reason: Reason) -> Refusal {
    let about = match snapshots {
        [one] if !reason.is_denied() => match reason.code {
            Code::NoSpace => one.split('@').next().map(str::to_owned),
            _ => Some(one.clone()),
        },
        _ => None,
    };
    Refusal::NotTaken { about, reason, wanted: snapshots.len() }
}

/// True if two of these snapshots are of one dataset, or of two pools.
fn names_a_dataset_twice(names: &[String]) -> bool {
    let mut datasets: Vec<&str> = names.iter().filter_map(|n| Some(n.split_once('@')?.0)).collect();
    let pools = datasets.iter().map(|name| edit::pool_of(name)).collect::<HashSet<_>>();
    datasets.sort_unstable();
    datasets.windows(2).any(|two| two.first() == two.last()) || pools.len() > 1
}

/// Takes the snapshots in one transaction group, with what programs have written to mounts.
fn take(pool: &PoolWriter, names: &[String], properties: &[(String, String)]) -> Result<(), EditError> {
    if let Some(permit) = permit::of(pool)? {
        let needed: &[&str] = if properties.is_empty() { &["snapshot"] } else { &["snapshot", "userprop"] };
        names.iter().try_for_each(|name| permit.ask(name, needed))?;
    }
    let datasets = names.iter().filter_map(|name| Some(name.split_once('@')?.0));
    pool.live().hand_over(datasets).map_err(EditError::NotHandedOver)?;
    let names = names.to_vec();
    let properties: Vec<(String, PropValue)> =
        properties.iter().map(|(name, text)| (name.clone(), PropValue::String(text.clone()))).collect();
    let mut input = operation::pair("snaps", operation::names(&names));
    input.push("props", operation::properties(&properties));
    let operation = Operation::begin("snapshot");
    edit::run(pool, move |ctx| dsl::snapshot::snapshot(ctx, &names, &properties).map(|_| ()))?;
    operation.done(pool, input)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_snapshot_of_each_dataset_of_one_pool() {
        let twice = |names: &[&str]| {
            names_a_dataset_twice(&names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>())
        };
        assert!(!twice(&["tank/a@1", "tank/b@2"]));
        assert!(twice(&["tank/a@1", "tank/a@2"]));
        assert!(twice(&["tank/a@1", "other@1"]));
    }

    #[test]
    fn refusals_cross_a_process() {
        let reason = Reason::new(Code::NoSpace, "out of space");
        let refusal = not_taken(&["tank/a@1".to_owned()], reason);
        let carried: Refusal =
            serde_json::from_str(&serde_json::to_string(&refusal).expect("data")).expect("data");
        assert_eq!(carried, refusal);
        assert_eq!(carried.to_string(), "cannot create snapshot 'tank/a': out of space");
    }
}
