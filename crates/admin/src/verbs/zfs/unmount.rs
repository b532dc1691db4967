//! `zfs unmount`: unmounts file systems.
//!
//! # What always holds
//! - What is in use stays mounted. What was mounted last is unmounted first; if one of several below each other stays,
//!   the others are mounted again.
//!
//! Source: docs/on-disk/33-cli.md (sections 1.3, 7); [`crate::mounting`].

use super::UNMOUNT;
use crate::Session;
use crate::mounting::MountRefusal;
use crate::verbs::{Code, Denied, Reason, Refused, Right, Verb};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// What is to be unmounted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// All file systems, but those that were mounted by hand (`-a`).
    All,
    /// A file system and those below it.
    Dataset(String),
    /// What is mounted on a directory.
    Directory(PathBuf),
}

/// The file systems are unmounted.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Answer {
    /// Those of all that stay mounted, and why.
    pub still_mounted: Vec<MountRefusal>,
}

/// Why nothing is unmounted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum Refusal {
    /// The caller may run no such verb.
    #[error("{0}")]
    Denied(Reason),
    /// This process mounts nothing.
    #[error("cannot unmount: mounts need the daemon (unset CENOTE_DIRECT to use it)")]
    NoMounts,
    /// The file system stays mounted.
    #[error("{0}")]
    Unmount(MountRefusal),
}

impl From<Denied> for Refusal {
    fn from(denied: Denied) -> Refusal {
        Refusal::Denied(denied.into())
    }
}

impl Refused for Refusal {
    fn reason(&self) -> Reason {
        match self {
            Refusal::Denied(reason) => reason.clone(),
            Refusal::NoMounts => Reason::new(Code::Unsupported, self),
            Refusal::Unmount(refusal) => refusal.into(),
        }
    }
}

impl Verb for Request {
    const NAME: &'static str = "zfs unmount";
    const RIGHT: Right = Right::Administrator;
    type Answer = Answer;
    type Refusal = Refusal;

    fn run(&self, session: &mut Session<'_>) -> Result<Answer, Refusal> {
        let mounting = session.mounting().ok_or(Refusal::NoMounts)?;
        let done = match self {
            Request::All => {
                return Ok(Answer { still_mounted: mounting.unmount_all(None, false, UNMOUNT) });
            }
            Request::Dataset(name) => mounting.unmount(name, UNMOUNT),
            Request::Directory(path) => mounting.unmount_path(path, UNMOUNT),
        };
        done.map(|()| Answer::default()).map_err(Refusal::Unmount)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mounting::{MountAction, Obstacle};
    use crate::verbs::carried;

    #[test]
    fn refusals_cross_a_process() {
        let why = Obstacle::InUse { by: vec![(7, "cat".to_owned())], also_at: vec!["/b".into()] };
        let refusal = MountRefusal { action: MountAction::Unmount, what: "/tank".to_owned(), why };
        assert_eq!(
            carried(&Refusal::Unmount(refusal)).to_string(),
            "cannot unmount '/tank': pool or dataset is busy\nalso mounted on: /b\nin use by: cat (7)"
        );
        assert_eq!(carried(&Refusal::from(Denied)).reason().code, Code::Denied);
    }
}
