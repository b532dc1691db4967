//! `zfs upgrade`: raises the version of file systems.
//!
//! Source: docs/on-disk/33-cli.md (section 7).

use crate::Session;
use crate::edit::names::{self, Form};
use crate::edit::values::Setting;
use crate::edit::{self, EditError, FilesystemVersion};
use crate::verbs::{Reason, Refused, Right, Verb};
use serde::{Deserialize, Serialize};

/// File systems to upgrade.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Request {
    /// Full name of the file system.
    pub filesystem: String,
    /// Also all file systems below (`-r`).
    pub recursive: bool,
    /// The version that they get, 1 to 5.
    pub version: u64,
}

/// What became of the file systems.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Answer {
    /// Full names of those that were upgraded.
    pub upgraded: Vec<String>,
    /// Full names of those that had the version.
    pub already: Vec<String>,
    /// Those that keep their version, and why.
    pub refused: Vec<NotUpgraded>,
}

/// Why a file system keeps its version.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum NotUpgraded {
    /// It has a newer version.
    #[error("{name}: can not be downgraded; it is already at version {version}")]
    Newer {
        /// Full name of the file system.
        name: String,
        /// Its version.
        version: u64,
    },
    /// It cannot be changed.
    #[error("cannot set property for '{name}': {reason}")]
    Failed {
        /// Full name of the file system.
        name: String,
        /// Why.
        reason: Reason,
    },
}

/// Why nothing was looked at.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum Refusal {
    /// The caller may run no such verb.
    #[error("{0}")]
    Denied(Reason),
    /// The file system cannot be opened, or is none.
    #[error("{}", reason.cannot_open(filesystem))]
    Open {
        /// Full name of the file system.
        filesystem: String,
        /// Why.
        reason: Reason,
    },
}

from_denied!(Refusal, Refusal::Denied);

impl Refused for Refusal {
    fn reason(&self) -> Reason {
        match self {
            Refusal::Denied(reason) | Refusal::Open { reason, .. } => reason.clone(),
        }
    }
}

impl Verb for Request {
    const NAME: &'static str = "zfs upgrade";
    const RIGHT: Right = Right::Delegated(&["version"]);
    type Answer = Answer;
    type Refusal = Refusal;

    fn run(&self, session: &mut Session<'_>) -> Result<Answer, Refusal> {
        let found = self
            .versions(session)
            .map_err(|error| Refusal::Open { filesystem: self.filesystem.clone(), reason: error.into() })?;
        let mut answer = Answer::default();
        for FilesystemVersion { name, version } in found {
            if version == self.version {
                answer.already.push(name);
            } else if version > self.version {
                answer.refused.push(NotUpgraded::Newer { name, version });
            } else {
                match self.upgrade(session, &name) {
                    Ok(()) => answer.upgraded.push(name),
                    Err(error) => answer.refused.push(NotUpgraded::Failed { name, reason: error.into() }),
                }
            }
        }
        Ok(answer)
    }
}

impl Request {
    /// The file systems that are meant, with their versions. The one that is named must be a file system.
    fn versions(&self, session: &mut Session<'_>) -> Result<Vec<FilesystemVersion>, EditError> {
        names::check(&self.filesystem, Form::Head)?;
        let view = session.view(&self.filesystem)?;
        let own = edit::filesystem_versions(&view, &self.filesystem, false)?;
        if self.recursive { edit::filesystem_versions(&view, &self.filesystem, true) } else { Ok(own) }
    }

    fn upgrade(&self, session: &mut Session<'_>, name: &str) -> Result<(), EditError> {
        let pool = session.writer(name)?;
        edit::set(&pool, name, &[Setting::Version(self.version)])?;
        session.note_change(name);
        Ok(())
    }
}
