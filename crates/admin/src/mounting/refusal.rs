//! Why something is not mounted or unmounted.

use cenote::Error;
use serde::{Deserialize, Serialize};
use std::fmt;

/// What was to be done to a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum MountAction {
    /// A file system is mounted.
    Mount,
    /// A file system is unmounted.
    Unmount,
    /// A dataset or path is looked up.
    Open,
}

impl fmt::Display for MountAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            MountAction::Mount => "mount",
            MountAction::Unmount => "unmount",
            MountAction::Open => "open",
        })
    }
}

/// Why something is not mounted or unmounted, in the words of OpenZFS.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("cannot {action} '{what}': {why}")]
pub struct MountRefusal {
    /// What was to be done.
    pub action: MountAction,
    /// A dataset or a path.
    pub what: String,
    /// Why, and perhaps lines of advice.
    pub why: String,
}

/// Why an encrypted file system is not mounted.
pub(super) const LOCKED: &str = "encryption key not loaded";

impl MountRefusal {
    /// The key of the file system is missing, and nothing else is known to be in the way.
    pub fn is_locked(&self) -> bool {
        self.action == MountAction::Mount && self.why == LOCKED
    }

    pub(super) fn mount(what: impl Into<String>, why: impl Into<String>) -> MountRefusal {
        MountRefusal { action: MountAction::Mount, what: what.into(), why: why.into() }
    }

    pub(super) fn unmount(what: impl Into<String>, why: impl Into<String>) -> MountRefusal {
        MountRefusal { action: MountAction::Unmount, what: what.into(), why: why.into() }
    }

    pub(super) fn open(what: impl Into<String>, why: impl Into<String>) -> MountRefusal {
        MountRefusal { action: MountAction::Open, what: what.into(), why: why.into() }
    }
}

/// There is no dataset of this name.
pub(super) fn missing(name: &str) -> MountRefusal {
    MountRefusal::open(name, "dataset does not exist")
}

/// The dataset cannot be read.
pub(super) fn failed(name: &str, error: &Error) -> MountRefusal {
    match error {
        Error::Dsl(dsl::DslError::NotFound { .. }) => missing(name),
        other => MountRefusal::open(name, crate::chain(other)),
    }
}
