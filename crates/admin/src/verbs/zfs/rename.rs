//! `zfs rename`: renames a file system or volume with all below it, or a snapshot.
//!
//! # Order
//! Names are checked, the old one is looked up -> missing ancestors are made and mounted (`-p`) -> file systems are
//! unmounted (not with `-u`) -> the caller's permissions, and the new name, in one transaction group -> file systems
//! are mounted again in their new places; if the renaming was refused, in their old ones.
//!
//! Source: docs/on-disk/33-cli.md (sections 1.3, 7), 22-mos-dsl.md (section 5).

use super::operand::{self, NotOpened};
use super::{AfterAncestors, NotMounted, mounts};
use crate::Session;
use crate::edit::names::{self, Form, NameError};
use crate::edit::{self, EditError, permit};
use crate::mounting::MountRefusal;
use crate::verbs::{Code, Reason, Refused, Right, Verb};
use cenote::PoolWriter;
use dsl::rename as task;
use serde::{Deserialize, Serialize};

/// A dataset to rename.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Request {
    /// Full name of a file system, volume or snapshot.
    pub from: String,
    /// New full name; of a snapshot also `@name` or `name`.
    pub to: String,
    /// Missing file systems above the new name are made (`-p`).
    pub parents: bool,
    /// Also snapshots of the same name of all datasets below (`-r`).
    pub recursive: bool,
    /// File systems stay mounted where they are (`-u`).
    pub stay_mounted: bool,
}

/// The dataset has its new name.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Answer {
    /// Ancestors that were made and are not mounted.
    pub ancestors_not_mounted: Vec<NotMounted>,
    /// What was mounted before and is not mounted now, and why.
    pub not_mounted: Vec<MountRefusal>,
}

/// Why the dataset has its old name, with the ancestors that were made and are not mounted.
pub type Refusal = AfterAncestors<Why>;

/// Why a dataset has its old name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum Why {
    /// The caller may run no such verb.
    #[error("{0}")]
    Denied(Reason),
    /// The dataset cannot be opened.
    #[error("{0}")]
    Open(NotOpened),
    /// The dataset cannot have this name.
    #[error("cannot rename to '{to}': {reason}")]
    NewName {
        /// The new name.
        to: String,
        /// What is wrong with it.
        reason: Reason,
    },
    /// There is no place for the new name.
    #[error("cannot create '{to}': {reason}")]
    NoPlace {
        /// The new name.
        to: String,
        /// Why.
        reason: Reason,
    },
    /// The root of a pool is not renamed.
    #[error("cannot rename '{name}': operation does not apply to pools")]
    IsPool {
        /// Name of the pool.
        name: String,
    },
    /// A dataset below has a snapshot of the new name.
    #[error("cannot rename '{name}': a child dataset already has a snapshot with the new name")]
    ExistsBelow {
        /// Full name of the snapshot to rename.
        name: String,
        /// Full name that is taken.
        taken: String,
    },
    /// A dataset below would have a name that is too long.
    #[error("cannot rename '{name}': dataset name is too long")]
    TooLong {
        /// Full name of the dataset.
        name: String,
    },
    /// A file system cannot be unmounted.
    #[error("{0}")]
    Mount(MountRefusal),
    /// It was refused.
    #[error("cannot rename '{name}': {reason}")]
    NotRenamed {
        /// Full name of the dataset.
        name: String,
        /// Why.
        reason: Reason,
    },
}

from_denied!(Why, Why::Denied);

impl From<Why> for Refusal {
    fn from(why: Why) -> Refusal {
        AfterAncestors { ancestors_not_mounted: Vec::new(), why }
    }
}

impl Refused for Why {
    fn reason(&self) -> Reason {
        match self {
            Why::Denied(reason)
            | Why::Open(NotOpened { reason, .. })
            | Why::NewName { reason, .. }
            | Why::NoPlace { reason, .. }
            | Why::NotRenamed { reason, .. } => reason.clone(),
            Why::IsPool { .. } => Reason::new(Code::WrongKind, "operation does not apply to pools"),
            Why::ExistsBelow { taken, .. } => Reason {
                code: Code::Exists,
                about: vec![taken.clone()],
                message: "a child dataset already has a snapshot with the new name".into(),
            },
            Why::TooLong { .. } => NameError::TooLong.into(),
            Why::Mount(refusal) => refusal.into(),
        }
    }
}

impl Request {
    /// One dataset, as it is.
    pub fn of(from: impl Into<String>, to: impl Into<String>) -> Request {
        Request { from: from.into(), to: to.into(), ..Request::default() }
    }

    fn closed(&self, error: EditError) -> Why {
        Why::Open(NotOpened::new(self.from.as_str(), error))
    }

    fn refused(&self, error: EditError) -> Why {
        Why::NotRenamed { name: self.from.clone(), reason: error.into() }
    }

    fn no_place(&self, error: impl Into<EditError>) -> Why {
        Why::NoPlace { to: self.to.clone(), reason: error.into().into() }
    }

    fn unwritable(&self, error: EditError) -> Why {
        if error.is_read_only() { self.refused(error) } else { self.closed(error) }
    }
}

impl Verb for Request {
    const NAME: &'static str = "zfs rename";
    const RIGHT: Right = Right::Delegated(&["rename", "create", "mount"]);
    type Answer = Answer;
    type Refusal = Refusal;

    fn run(&self, session: &mut Session<'_>) -> Result<Answer, Refusal> {
        if self.from.contains('@') && !self.parents && !self.stay_mounted {
            return Ok(self.rename_snapshot(session).map(|()| Answer::default())?);
        }
        if !self.check_dataset(session)? {
            return Ok(Answer::default());
        }
        let mut ancestors_not_mounted = Vec::new();
        match self.rename_dataset(session, &mut ancestors_not_mounted) {
            Ok(not_mounted) => Ok(Answer { ancestors_not_mounted, not_mounted }),
            Err(why) => Err(AfterAncestors { ancestors_not_mounted, why }),
        }
    }
}

impl Request {
    fn rename_snapshot(&self, session: &mut Session<'_>) -> Result<(), Why> {
        let from = self.from.as_str();
        let view = operand::open(session, from, Form::Snapshot).map_err(Why::Open)?;
        let short =
            snapshot_name(from, &self.to).map_err(|reason| Why::NewName { to: self.to.clone(), reason })?;
        if from.split_once('@').is_some_and(|(_, old)| old == short) {
            return Ok(());
        }
        let pool = session.writer(from).map_err(|error| self.unwritable(error))?;
        rename_snapshot(&pool, from, short, self.recursive).map_err(|error| match error {
            EditError::Exists { name: taken } if self.recursive => {
                Why::ExistsBelow { name: from.to_owned(), taken }
            }
            other => self.refused(other),
        })?;
        session.note_change(from);
        let renamed = match self.recursive {
            true => edit::with_descendants(&view, from.split('@').next().unwrap_or(from)),
            false => Ok(Vec::new()),
        };
        let (head, old) = from.split_once('@').unwrap_or((from, ""));
        let mut heads = renamed.unwrap_or_default();
        heads.push(head.to_owned());
        if let Some(mounting) = session.mounting() {
            for head in &heads {
                mounting.after_snapshot_rename(&format!("{head}@{old}"), &format!("{head}@{short}"));
            }
        }
        let renamed: Vec<String> = heads.iter().map(|head| format!("{head}@{short}")).collect();
        mounts::snapshots_changed(session, &renamed);
        Ok(())
    }

    /// Checks the names of a file system or volume; false if there is nothing to do.
    fn check_dataset(&self, session: &mut Session<'_>) -> Result<bool, Why> {
        let (from, to) = (self.from.as_str(), self.to.as_str());
        operand::open_head(session, from).map_err(Why::Open)?;
        if from == to {
            return Ok(false);
        }
        let bad = |reason| Why::NewName { to: to.to_owned(), reason };
        names::check(to, Form::Head).map_err(|error| bad(error.into()))?;
        names::check_new(to).map_err(|error| self.no_place(error))?;
        // A pool that is read-only is refused below, with the old name.
        session.view(to).map_err(|error| self.no_place(error))?;
        if edit::pool_of(from) != edit::pool_of(to) {
            return Err(bad(Reason::new(Code::Refused, "datasets must be within same pool")));
        }
        if to.strip_prefix(from).is_some_and(|rest| rest.starts_with('/')) {
            let message = "New dataset name cannot be a descendant of current dataset name";
            return Err(bad(Reason::new(Code::Refused, message)));
        }
        if !from.contains('/') {
            return Err(Why::IsPool { name: from.to_owned() });
        }
        Ok(true)
    }

    /// Renames a file system or volume. Returns what is not mounted any more.
    fn rename_dataset(
        &self,
        session: &mut Session<'_>,
        ancestors_not_mounted: &mut Vec<NotMounted>,
    ) -> Result<Vec<MountRefusal>, Why> {
        let (from, to) = (self.from.as_str(), self.to.as_str());
        let pool = session.writer(from).map_err(|error| self.unwritable(error))?;
        if self.parents {
            let made = mounts::make_ancestors(session, &pool, to);
            *ancestors_not_mounted = made.map_err(|error| self.no_place(error))?;
        }
        let mounting = session.mounting();
        let pending = mounting
            .as_ref()
            .map(|mounting| mounting.before_rename(from, self.stay_mounted, mounts::UNMOUNT));
        let pending = pending.transpose().map_err(Why::Mount)?;
        let renamed = match &mounting {
            Some(mounting) => mounting.rename(from, to, || rename(&pool, from, to)),
            None => rename(&pool, from, to),
        };
        let mut not_mounted = Vec::new();
        if let (Some(mounting), Some(pending)) = (&mounting, pending) {
            not_mounted = mounting.after_rename(pending, if renamed.is_ok() { to } else { from });
        }
        renamed.map_err(|error| match error {
            // What is wrong with the place is about the new name.
            EditError::NoParent { .. } | EditError::ParentNotFilesystem { .. } => self.no_place(error),
            EditError::Refused(ref cause) if edit::is_bad_name(cause) => {
                Why::TooLong { name: from.to_owned() }
            }
            other => self.refused(other),
        })?;
        session.note_change(from);
        Ok(not_mounted)
    }
}

/// The part of a new name of a snapshot behind the `@`; the dataset before it may be left out.
fn snapshot_name<'t>(from: &str, to: &'t str) -> Result<&'t str, Reason> {
    let dataset = from.split('@').next().unwrap_or_default();
    let (of, short) = to.split_once('@').unwrap_or(("", to));
    if of.is_empty() {
        names::check(&format!("{dataset}@{short}"), Form::Snapshot)?;
        return Ok(short);
    }
    names::check(to, Form::Snapshot)?;
    match of == dataset {
        true => Ok(short),
        false => Err(Reason::new(Code::Refused, "snapshots must be part of same dataset")),
    }
}

/// Renames a file system or volume with all below it, or changes nothing.
fn rename(pool: &PoolWriter, from: &str, to: &str) -> Result<(), EditError> {
    permit::ask(pool, from, &["rename", "mount"])?;
    permit::ask_new(pool, to, &[])?;
    let (from, to) = (from.to_owned(), to.to_owned());
    edit::run(pool, move |ctx| task::rename(ctx, &from, &to))
}

/// Renames a snapshot, and with `recursive` those of the same name below, or changes nothing; `to` is the part of the
/// new name behind the `@`.
fn rename_snapshot(pool: &PoolWriter, from: &str, to: &str, recursive: bool) -> Result<(), EditError> {
    permit::ask(pool, from, &["rename", "create", "mount"])?;
    let (from, to) = (from.to_owned(), to.to_owned());
    edit::run(pool, move |ctx| task::rename_snapshot(ctx, &from, &to, recursive))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mounting::{MountAction, Obstacle};
    use crate::verbs::carried;

    #[test]
    fn new_names_of_snapshots() {
        for (to, expected) in [
            ("tank/fs@q", Ok("q")),
            ("@q", Ok("q")),
            ("q", Ok("q")),
            ("tank/fs@x/y", Err("cannot rename to 'tank/fs@x/y': trailing slash in name")),
            ("tank/cl@s", Err("cannot rename to 'tank/cl@s': snapshots must be part of same dataset")),
        ] {
            let found = snapshot_name("tank/fs@s", to).map_err(|reason| {
                carried(&Refusal::from(Why::NewName { to: to.to_owned(), reason })).to_string()
            });
            assert_eq!(found, expected.map_err(str::to_owned), "{to}");
        }
    }

    #[test]
    fn ancestors_that_are_not_mounted_come_first() {
        let refusal =
            MountRefusal { action: MountAction::Mount, what: "/tank/a".into(), why: Obstacle::NotEmpty };
        let refusal = AfterAncestors {
            ancestors_not_mounted: vec![NotMounted { refusal, needs_administrator: false }],
            why: Request::of("tank/b", "tank/a/b").refused(EditError::Denied),
        };
        assert_eq!(
            carried(&refusal).to_string(),
            "cannot mount '/tank/a': directory is not empty\n\
             filesystem successfully created, but not mounted\ncannot rename 'tank/b': permission denied"
        );
    }
}
