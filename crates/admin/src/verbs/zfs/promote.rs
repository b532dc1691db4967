//! `zfs promote`: makes a clone the owner of the snapshots that it shares with its origin.
//!
//! Source: docs/on-disk/33-cli.md (section 7), 22-mos-dsl.md (section 5).

use super::operand::{self, NotOpened};
use crate::Session;
use crate::edit::{self, EditError, permit};
use crate::verbs::{Code, Reason, Refused, Right, Verb};
use cenote::PoolWriter;
use serde::{Deserialize, Serialize};

/// A clone to promote.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Request {
    /// Full name of the clone.
    pub dataset: String,
}

/// Why the clone is still one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum Refusal {
    /// The caller may run no such verb.
    #[error("{0}")]
    Denied(Reason),
    /// The dataset cannot be opened.
    #[error("{0}")]
    Open(NotOpened),
    /// The dataset is no clone.
    #[error("cannot promote '{dataset}': not a cloned filesystem")]
    NotAClone {
        /// Full name of the dataset.
        dataset: String,
    },
    /// Both the clone and its origin have a snapshot of this name.
    #[error("cannot promote '{dataset}': conflicting snapshot '{snapshot}' from parent '{origin}'")]
    SnapshotConflict {
        /// Full name of the dataset.
        dataset: String,
        /// Name of the snapshot, without its dataset.
        snapshot: String,
        /// Full name of the clone's origin.
        origin: String,
    },
    /// The clone is not promoted.
    #[error("cannot promote '{dataset}': {reason}")]
    NotPromoted {
        /// Full name of the dataset.
        dataset: String,
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
            | Refusal::NotPromoted { reason, .. } => reason.clone(),
            Refusal::NotAClone { .. } => Reason::new(Code::WrongKind, "not a cloned filesystem"),
            Refusal::SnapshotConflict { .. } => Reason::new(Code::Exists, self),
        }
    }
}

impl Verb for Request {
    const NAME: &'static str = "zfs promote";
    const RIGHT: Right = Right::Delegated(&["promote", "mount"]);
    type Answer = ();
    type Refusal = Refusal;

    fn run(&self, session: &mut Session<'_>) -> Result<(), Refusal> {
        let name = self.dataset.as_str();
        let dataset = || name.to_owned();
        let view = operand::open_head(session, name).map_err(Refusal::Open)?;
        let closed = |error: EditError| Refusal::Open(NotOpened::new(name, error));
        let origin = view.dataset(name).map_err(|error| closed(error.into()))?.dsl().dir().origin();
        let Ok(Some(origin)) = origin else { return Err(Refusal::NotAClone { dataset: dataset() }) };
        let pool = session.writer(name).map_err(|error| match error.is_read_only() {
            true => Refusal::NotPromoted { dataset: dataset(), reason: error.into() },
            false => closed(error),
        })?;
        promote(&pool, name).map_err(|error| match error {
            EditError::Exists { name: taken } => Refusal::SnapshotConflict {
                dataset: dataset(),
                snapshot: taken.split('@').next_back().unwrap_or_default().to_owned(),
                origin: origin.name().to_owned(),
            },
            error => Refusal::NotPromoted { dataset: dataset(), reason: error.into() },
        })?;
        session.note_change(name);
        drop_listings(session, name);
        Ok(())
    }
}

/// Promotes the clone in one transaction group.
fn promote(pool: &PoolWriter, name: &str) -> Result<(), EditError> {
    if let Some(permit) = permit::of(pool)? {
        permit.ask(name, &["promote", "mount"])?;
        let origin = edit::view(pool)?.dataset(name)?.dsl().dir().origin()?;
        origin.map_or(Ok(()), |origin| permit.ask(origin.name(), &["promote", "mount"]))?;
    }
    let name = name.to_owned();
    edit::run(pool, move |ctx| dsl::promote::promote(ctx, &name))
}

/// Snapshots have moved from one dataset to another: the kernel remembers old listings of `.zfs/snapshot`.
fn drop_listings(session: &mut Session<'_>, name: &str) {
    let Some(mounting) = session.mounting() else { return };
    let Ok(view) = session.view(name) else { return };
    let all = edit::with_descendants(&view, edit::pool_of(name)).unwrap_or_default();
    let snapshots: Vec<String> = all.iter().map(|name| format!("{name}@")).collect();
    mounting.after_snapshots(snapshots.iter().map(String::as_str));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_have_the_words_of_openzfs_and_cross_a_process() {
        let refusal =
            Refusal::SnapshotConflict { dataset: "p/c".into(), snapshot: "s".into(), origin: "p/a@1".into() };
        assert_eq!(refusal.to_string(), "cannot promote 'p/c': conflicting snapshot 's' from parent 'p/a@1'");
        let text = serde_json::to_string(&refusal).expect("data");
        assert_eq!(serde_json::from_str::<Refusal>(&text).expect("data"), refusal);
    }
}
