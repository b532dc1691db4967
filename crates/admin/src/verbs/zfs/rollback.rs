//! `zfs rollback`: makes a file system or volume what it was when a snapshot was taken. What is newer is destroyed.
//!
//! # Order
//! What is newer is looked up, and refused unless the request allows it -> newer clones are unmounted -> the caller's
//! permissions -> newer clones are destroyed -> the engine checks all that it will check -> users of the mount wait
//! -> the contents are replaced, and newer snapshots and bookmarks destroyed, in one transaction group.
//!
//! # What always holds
//! - A rollback that is denied or refused stops no mount: the mount waits only when nothing else is in the way.
//!
//! Source: docs/on-disk/33-cli.md (sections 1.3, 7), 22-mos-dsl.md (section 5).

use super::operand::NotOpened;
use super::{destroy, listing, mounts};
use crate::Session;
use crate::edit::names::{self, Form};
use crate::edit::operation::{self, Operation};
use crate::edit::{self, EditError, permit};
use crate::mounting::MountRefusal;
use crate::verbs::{Code, Reason, Refused, Right, Stopped, Verb};
use cenote::{Pool, PoolWriter};
use dsl::rollback as task;
use serde::{Deserialize, Serialize};

/// A snapshot to go back to.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Request {
    /// Full name of the snapshot.
    pub snapshot: String,
    /// Newer snapshots and bookmarks may be destroyed (`-r`, `-R`).
    pub destroy_newer: bool,
    /// Clones of newer snapshots, and what depends on them, may be destroyed (`-R`).
    pub destroy_clones: bool,
    /// Destroys exactly these, as an earlier refusal has listed them: a snapshot that was taken since then refuses the
    /// rollback. `None`: whatever is newer by now, as far as the other fields allow.
    pub confirmed: Option<Newer>,
}

/// What is newer than a snapshot, and is lost by going back to it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Newer {
    /// Full names of snapshots, oldest first.
    pub snapshots: Vec<String>,
    /// Full names of bookmarks, sorted.
    pub bookmarks: Vec<String>,
    /// Clones of those snapshots and their dependents, in the order of destruction.
    pub clones: Vec<String>,
}

impl Newer {
    /// Snapshots and bookmarks, in the order in which they are listed.
    pub(crate) fn points(&self) -> impl Iterator<Item = &String> {
        self.snapshots.iter().chain(&self.bookmarks)
    }
}

/// The dataset is what it was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// What was destroyed.
    pub destroyed: Newer,
}

/// Why the dataset is not what it was.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum Refusal {
    /// The caller may run no such verb.
    #[error("{0}")]
    Denied(Reason),
    /// The snapshot cannot be opened.
    #[error("{0}")]
    Open(NotOpened),
    /// Newer snapshots or bookmarks would be lost.
    #[error("{}", listing(
        &format!("cannot rollback to '{snapshot}': more recent snapshots or bookmarks exist"),
        "use '-r' to force deletion of the following snapshots and bookmarks:",
        newer.points(),
    ))]
    NewerExist {
        /// Full name of the snapshot to go back to.
        snapshot: String,
        /// All that is newer.
        newer: Newer,
    },
    /// Clones of newer snapshots would be lost.
    #[error("{}", listing(
        &format!("cannot rollback to '{snapshot}': clones of previous snapshots exist"),
        "use '-R' to force deletion of the following clones and dependents:",
        &newer.clones,
    ))]
    ClonesExist {
        /// Full name of the snapshot to go back to.
        snapshot: String,
        /// All that is newer.
        newer: Newer,
    },
    /// The pool can only be read.
    #[error("{}", match first {
        Some(name) => format!("cannot destroy '{name}': {reason}"),
        None => format!("cannot rollback '{dataset}': {reason}"),
    })]
    ReadOnly {
        /// Full name of the dataset.
        dataset: String,
        /// What would have been destroyed first.
        first: Option<String>,
        /// Why.
        reason: Reason,
    },
    /// A clone cannot be unmounted, or what programs have written to the dataset cannot be written back.
    #[error("{0}")]
    Mount(MountRefusal),
    /// It was tried; the clones that were destroyed stay so.
    #[error("{}{}", not_rolled_back(dataset, &stopped.reason), destroy::partly(&stopped.done, &stopped.left))]
    Stopped {
        /// Full name of the dataset.
        dataset: String,
        /// What was destroyed and what was not, the snapshot to go back to last; why it stopped.
        stopped: Stopped,
    },
}

/// The line about a rollback that was tried.
fn not_rolled_back(dataset: &str, reason: &Reason) -> String {
    match (reason.code, reason.about.first()) {
        (Code::Held, Some(held)) => format!("cannot destroy '{held}': dataset is busy"),
        _ => format!("cannot rollback '{dataset}': {reason}"),
    }
}

from_denied!(Refusal, Refusal::Denied);

impl Refused for Refusal {
    fn reason(&self) -> Reason {
        match self {
            Refusal::Denied(reason)
            | Refusal::Open(NotOpened { reason, .. })
            | Refusal::ReadOnly { reason, .. } => reason.clone(),
            Refusal::NewerExist { newer, .. } => Reason {
                code: Code::Refused,
                about: newer.points().cloned().collect(),
                message: "more recent snapshots or bookmarks exist".into(),
            },
            Refusal::ClonesExist { newer, .. } => Reason {
                code: Code::HasClones,
                about: newer.clones.clone(),
                message: "clones of previous snapshots exist".into(),
            },
            Refusal::Mount(refusal) => refusal.into(),
            Refusal::Stopped { stopped, .. } => stopped.reason.clone(),
        }
    }
}

impl Request {
    /// Going back to a snapshot, if nothing is newer.
    pub fn of(snapshot: impl Into<String>) -> Request {
        Request { snapshot: snapshot.into(), ..Request::default() }
    }

    /// Full name of the dataset.
    fn dataset(&self) -> &str {
        self.snapshot.split('@').next().unwrap_or(&self.snapshot)
    }

    /// What will be destroyed.
    fn newer(&self, session: &mut Session<'_>) -> Result<Newer, Refusal> {
        let closed = |error: EditError| self.closed(error);
        names::check(&self.snapshot, Form::Snapshot).map_err(|error| closed(error.into()))?;
        let view = session.view(&self.snapshot).map_err(closed)?;
        if let Some(confirmed) = &self.confirmed {
            return Ok(confirmed.clone());
        }
        let newer = newer_than(&view, &self.snapshot).map_err(closed)?;
        let snapshot = self.snapshot.clone();
        if !self.destroy_newer && newer.points().next().is_some() {
            return Err(Refusal::NewerExist { snapshot, newer });
        }
        if !self.destroy_clones && !newer.clones.is_empty() {
            return Err(Refusal::ClonesExist { snapshot, newer });
        }
        Ok(newer)
    }

    fn closed(&self, error: EditError) -> Refusal {
        Refusal::Open(NotOpened::new(self.snapshot.as_str(), error))
    }
}

impl Verb for Request {
    const NAME: &'static str = "zfs rollback";
    const RIGHT: Right = Right::Delegated(&["rollback", "destroy", "mount"]);
    type Answer = Answer;
    type Refusal = Refusal;

    fn run(&self, session: &mut Session<'_>) -> Result<Answer, Refusal> {
        let newer = self.newer(session)?;
        let dataset = self.dataset();
        let pool = session.writer(&self.snapshot).map_err(|error| match error.is_read_only() {
            true => Refusal::ReadOnly {
                dataset: dataset.to_owned(),
                first: newer.points().chain(&newer.clones).next().cloned(),
                reason: error.into(),
            },
            false => self.closed(error),
        })?;
        let mounting = session.mounting();
        if let Some(mounting) = &mounting {
            mounting.before_destroy(&newer.clones, mounts::UNMOUNT).map_err(Refusal::Mount)?;
        }
        let outcome = match prepare(&pool, &self.snapshot, &newer) {
            Err(stopped) => Err(stopped),
            Ok(prepared) => {
                let replacing = mounting.as_ref().map(|mounting| mounting.before_replace(dataset));
                let mut replacing = replacing.transpose().map_err(Refusal::Mount)?;
                prepared.run(|| replacing.iter_mut().for_each(|replacing| replacing.replaced(dataset)))
            }
        };
        if outcome.as_ref().err().is_none_or(|stopped| !stopped.done.is_empty()) {
            session.note_change(&self.snapshot);
        }
        match outcome {
            Ok(()) => Ok(Answer { destroyed: newer }),
            Err(stopped) => Err(Refusal::Stopped { dataset: dataset.to_owned(), stopped }),
        }
    }
}

/// What is newer than a snapshot.
fn newer_than(pool: &Pool, snapshot: &str) -> Result<Newer, EditError> {
    let target = pool.dsl().dataset(snapshot)?;
    let txg = target.phys().creation_txg;
    let name = snapshot.split('@').next().unwrap_or_default();
    let mut newer = Newer::default();
    let Some(head) = pool.dsl().dir(name)?.head()? else { return Ok(newer) };
    for other in head.snapshots()?.iter().filter(|s| s.phys().creation_txg > txg) {
        for name in edit::dependents(pool, other.name())?.all {
            if !newer.clones.contains(&name) {
                newer.clones.push(name);
            }
        }
        newer.snapshots.push(other.name().to_owned());
    }
    let marks = head.bookmarks()?;
    let later = marks.iter().filter(|mark| mark.phys().creation_txg > txg);
    newer.bookmarks = later.map(|mark| mark.name().to_owned()).collect();
    Ok(newer)
}

/// Does what a rollback does before the head is replaced, and checks all that it will check, before the head is taken
/// from its users. Clones that are newer are destroyed.
fn prepare<'p>(
    pool: &'p PoolWriter,
    snapshot: &'p str,
    newer: &'p Newer,
) -> Result<PreparedRollback<'p>, Stopped> {
    let rollback = PreparedRollback { pool, snapshot, newer };
    rollback.ask()?;
    destroy::destroy_all(pool, &newer.clones)?;
    let (name, target, lost) = rollback.task_input();
    edit::run(pool, move |ctx| task::check_rollback_over(ctx, &name, Some(&target), &lost))
        .map_err(|error| rollback.failed(error))?;
    Ok(rollback)
}

/// A rollback that nothing is known to refuse, except that the head is in use.
#[derive(Debug)]
#[must_use]
struct PreparedRollback<'p> {
    pool: &'p PoolWriter,
    snapshot: &'p str,
    newer: &'p Newer,
}

impl PreparedRollback<'_> {
    /// Replaces the head. `replaced` is called when it has been, or may have been.
    fn run(self, replaced: impl FnOnce()) -> Result<(), Stopped> {
        let (name, target, lost) = self.task_input();
        let operation = Operation::begin("rollback");
        let outcome = edit::run(self.pool, move |ctx| task::rollback_over(ctx, &name, Some(&target), &lost));
        if !matches!(outcome, Err(EditError::Refused(_))) {
            replaced();
        }
        let recorded = outcome.and_then(|()| {
            if !self.newer.snapshots.is_empty() {
                let input = destroy::input(&self.newer.snapshots, false);
                Operation::begin("destroy_snaps").done(self.pool, input)?;
            }
            let target = operation::pair("target", self.snapshot);
            operation.done_with(self.pool, target.clone(), Some(target))
        });
        recorded.map_err(|error| self.failed(error))
    }

    /// Asks for the caller's permissions.
    fn ask(&self) -> Result<(), Stopped> {
        permit::ask(self.pool, self.snapshot, &["rollback"])
            .and_then(|()| destroy::ask(self.pool, &self.newer.snapshots))
            .and_then(|()| {
                let mut marks = self.newer.bookmarks.iter();
                marks.try_for_each(|mark| permit::ask(self.pool, mark, &["destroy"]))
            })
            .map_err(|error| Stopped {
                done: Vec::new(),
                left: vec![self.snapshot.to_owned()],
                reason: error.into(),
            })
    }

    /// The head, the snapshot, and what is lost.
    fn task_input(&self) -> (String, String, Vec<String>) {
        let name = self.snapshot.split('@').next().unwrap_or_default().to_owned();
        (name, self.snapshot.to_owned(), self.newer.points().cloned().collect())
    }

    /// After the clones were destroyed.
    fn failed(&self, error: EditError) -> Stopped {
        let left = self.newer.snapshots.iter().chain([&self.snapshot.to_owned()]).cloned().collect();
        Stopped { done: self.newer.clones.clone(), left, reason: error.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::carried;

    #[test]
    fn what_is_newer_is_named() {
        let snapshot = "tank/fs@5".to_owned();
        let newer = Newer {
            snapshots: vec!["tank/fs@6".into(), "tank/fs@7".into()],
            bookmarks: vec![],
            clones: vec!["tank/c".into()],
        };
        assert_eq!(
            carried(&Refusal::NewerExist { snapshot: snapshot.clone(), newer: newer.clone() }).to_string(),
            "cannot rollback to 'tank/fs@5': more recent snapshots or bookmarks exist\n\
             use '-r' to force deletion of the following snapshots and bookmarks:\ntank/fs@6\ntank/fs@7"
        );
        assert!(carried(&Refusal::ClonesExist { snapshot, newer }).to_string().ends_with(":\ntank/c"));
    }

    #[test]
    fn held_snapshots_are_named_and_what_was_done() {
        let mut reason = Reason::new(Code::Held, "dataset is busy");
        reason.about.push("tank/fs@6".into());
        let mut stopped = Stopped {
            done: vec!["tank/c".into()],
            left: vec!["tank/fs@6".into(), "tank/fs@5".into()],
            reason,
        };
        let refusal = |stopped: &Stopped| {
            carried(&Refusal::Stopped { dataset: "tank/fs".into(), stopped: stopped.clone() }).to_string()
        };
        assert_eq!(
            refusal(&stopped),
            "cannot destroy 'tank/fs@6': dataset is busy\ndestroyed: tank/c\nnot destroyed: tank/fs@6 tank/fs@5"
        );
        stopped.done.clear();
        stopped.reason = crate::verbs::Denied.into();
        assert_eq!(refusal(&stopped), "cannot rollback 'tank/fs': permission denied");
    }
}
